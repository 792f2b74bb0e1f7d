/* The host runtime of one architecture: what libsimpler_host_runtime_<platform>.so offers to a loader.
 *
 * A loader does this, in this order:
 *
 *   1. sim only: dlopen libsimpler_sim_context.so with RTLD_NOW | RTLD_GLOBAL, once a process, and keep it;
 *      bind the log to it (simpler_host_log_bind_state, simpler/host_log_binding.h);
 *   2. dlopen the host runtime with RTLD_NOW | RTLD_LOCAL;
 *   3. bind the log to it, BEFORE any other symbol is looked up: the object has a logger of its own, which is silent
 *      until then, and so would be every span of a run;
 *   4. look simpler_host_runtime_abi up and compare what it gives with SIMPLER_HOST_RUNTIME_ABI: an object of another
 *      version has other records and functions;
 *   5. look the other functions up, create a context, simpler_init it, register callables, run them:
 *
 *          simpler_create_context ── simpler_init ── simpler_register_callable ──┐
 *                                                                                ▼
 *                          simpler_run  =  prepare ── launch ── wait or poll ── finalize
 *                                                                                │
 *          simpler_destroy_context ── simpler_finalize ── simpler_unregister_callable
 *
 * crates/host-runtime/src/loader.rs is such a loader, for Rust. Several objects of different architectures may be loaded
 * at a time; each has its own copy of everything, the log apart. An object is never unmapped once it is loaded: its
 * threads, and what the standard library keeps of the caller's, run in its code. dlclose gives the handle back only.
 *
 * Results. An int is 0 when it went well. A negative one is a failure: −1 (SIMPLER_REFUSED) where something was refused
 * before it began, else the code of a run with its sign changed (orchestrator 1 to 11, scheduler 100 to 103). The
 * sentence to it is simpler_last_error's. Nothing unwinds out of a function: a failure inside is −1 with a
 * sentence, and the context is then poisoned: nothing begins with it any more. Its open runs can be polled, waited for and
 * finalized, with their own results; it can be finalized and destroyed; all else is refused.
 *
 * Threads. Any thread may call any function, unless it says otherwise; functions of one context may be called by
 * several threads at a time, but for simpler_destroy_context, which must be the last call. A run stays on the thread
 * that prepared it: the log has its spans open there, so its other phases are refused to any other thread. A thread must
 * therefore end its runs before it exits: nobody can afterwards, so their tensors and their pipeline slots stay in use and
 * their context can be neither finalized nor destroyed.
 *
 * Fork. A context belongs to the process that created it: a child has none of its threads. In a child all but
 * simpler_last_error is refused, and the context's memory is the child's to forget. A child creates its own.
 *
 * Signals: none of these is async-signal-safe. errno may change.
 *
 * Ownership. What a pointer parameter names is the caller's and is read, or copied, before the call returns; only the
 * tensors of a run, and its storage, are used until the run has ended. Sizes are in bytes.
 */
#ifndef SIMPLER_HOST_RUNTIME_H
#define SIMPLER_HOST_RUNTIME_H

#if !defined(__linux__) || !defined(__LP64__)
#error "the host runtime is for 64-bit Linux"
#endif

#include <stddef.h>
#include <stdint.h>

#include <simpler/orchestration.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: another one where a record or a function means something else than before, or is no more. A
 * function that is new is not there in an object that is older. */
#define SIMPLER_HOST_RUNTIME_ABI 1

/* The version that the object has. Any thread, before anything else. */
uint32_t simpler_host_runtime_abi(void);

/* The result of what was refused before it began. */
#define SIMPLER_REFUSED (-1)

/* A device of one process, or the place for one; opaque. */
typedef struct SimplerContext SimplerContext;

/* `size` bytes at `data`. {NULL, 0} is empty. */
typedef struct SimplerBytes {
    const void *data;
    uint64_t size;
} SimplerBytes;

/* Where the graph of a run is built. */
enum {
    SIMPLER_TENSORMAP_AND_RINGBUFFER = 0, /* on the device, while it is drained */
    SIMPLER_HOST_BUILD_GRAPH = 1          /* on the host, before the launch */
};

/* What is chosen when a context is created. Zeroes are the defaults. */
typedef struct SimplerContextConfig {
    uint32_t graph_runtime;  /* SIMPLER_TENSORMAP_AND_RINGBUFFER or SIMPLER_HOST_BUILD_GRAPH */
    uint32_t pipeline_depth; /* runs that may have begun at a time, 1 or 2; 0: 1 */
} SimplerContextConfig;

/* The objects that the device's own processors run. */
typedef struct SimplerBinaries {
    SimplerBytes aicpu;
    SimplerBytes aicore;
} SimplerBinaries;

#define SIMPLER_RINGS 4
#define SIMPLER_OUTPUT_PREFIX_BYTES 1024

/* What a run chooses for itself; all zero means every default. The fields that say so are not known to this version
 * and must be 0. */
typedef struct SimplerCallConfig {
    int32_t aicpu_thread_num;     /* 2 to as many as the platform has; 0: all of them */
    int32_t enable_chip_swimlane; /* level 0 to 4 of what is recorded of variable phases */
    int32_t enable_dump_args;     /* not known: 0 */
    int32_t enable_pmu;           /* not known: 0 */
    int32_t enable_dep_gen;       /* not known: 0 */
    int32_t enable_scope_stats;   /* not known: 0 */
    /* Of each ring; 0: the environment's (PTO2_RING_*), else the built-in size. */
    uint64_t ring_task_window[SIMPLER_RINGS]; /* tasks, a power of two from 4 */
    uint64_t ring_heap_bytes[SIMPLER_RINGS];  /* from 1024 */
    uint64_t ring_dep_pool[SIMPLER_RINGS];    /* dependencies, from 4 */
    char output_prefix[SIMPLER_OUTPUT_PREFIX_BYTES]; /* folder of the run's artifacts, zero-terminated; "": none */
} SimplerCallConfig;

typedef struct SimplerKernelImage {
    const char *name; /* zero-terminated UTF-8, for people */
    SimplerBytes object;
    int32_t kind;      /* SIMPLER_AIC or SIMPLER_AIV */
    uint32_t reserved; /* 0 */
} SimplerKernelImage;

/* A callable: one orchestration object, and its kernel objects by index. The orchestration carries the digests of the
 * kernels that it was built for (crates/kernel-compiler); any others are refused. */
typedef struct SimplerCallableImage {
    const char *name; /* zero-terminated UTF-8, for people */
    SimplerBytes orchestration;
    const SimplerKernelImage *kernels; /* kernel_count of them; NULL if there is none */
    uint32_t kernel_count;
    uint32_t reserved; /* 0 */
} SimplerCallableImage;

/* A tensor argument of a run: a whole buffer, whose memory tensor.address_space names, and its use.
 *
 * Host memory is staged: SIMPLER_INPUT and SIMPLER_NO_DEP are copied in, SIMPLER_OUTPUT and SIMPLER_OUTPUT_EXISTING are
 * copied back, SIMPLER_INOUT both. From prepare to the end of finalize nobody
 * writes to it, and nobody reads it either unless it is only copied in. Device memory is what simpler_malloc gave. */
typedef struct SimplerRunTensor {
    SimplerTensor tensor;
    uint64_t use;
} SimplerRunTensor;

/* What a run is. */
typedef struct SimplerRunRequest {
    uint64_t callable;               /* from simpler_register_callable */
    const SimplerRunTensor *tensors; /* tensor_count of them, at most 256 */
    const uint64_t *scalars;         /* scalar_count of them, at most 128 */
    uint32_t tensor_count;
    uint32_t scalar_count;
    const SimplerCallConfig *config; /* NULL: every default */
    /* Attributes of the root span, by which a reader orders runs: the caller's run, and the number of its dispatch, which
     * rises from run to run; 0 where nobody counts. */
    uint64_t run_id;
    uint64_t dispatch_id;
    int32_t slot; /* the pipeline slot, 0 to the depth - 1; SIMPLER_ANY_SLOT: one that is free */
    uint32_t reserved; /* 0 */
} SimplerRunRequest;

#define SIMPLER_ANY_SLOT (-1)

/* Creates a context, without a device yet. `config` may be NULL. NULL where the configuration is none (see
 * simpler_last_error with a NULL context). Ownership: the caller's, until simpler_destroy_context. */
SimplerContext *simpler_create_context(const SimplerContextConfig *config);

/* Ends the calling thread's open runs as simpler_run_finalize does, gives the device back, and frees the context; 0.
 *
 * Refused, and the context stays, while a run of another thread is open, and in a forked child. It is safe after any
 * failure of any other function. The storage of a run that it ends is not touched. */
int simpler_destroy_context(SimplerContext *context);

/* Attaches a device and makes it ready; once a context.
 *
 * `device_id`    0 or more; on sim below 64, and no other context of this process may have it, of whichever
 *                architecture
 * `binaries`     the objects of AICPU and AICore; on sim the simulator's own are used, so NULL or empty ones
 * `dispatcher`   the object that loads them; on sim NULL or empty
 * `prewarm`      the configuration for which the arena is built now rather than in the first run; NULL: none is
 * `enable_sdma`  non-zero asks for an async-DMA workspace
 *
 * Refused: a negative device, a second init, a context that was finalized. After any other failure it may be tried
 * again. */
int simpler_init(SimplerContext *context, int32_t device_id, const SimplerBinaries *binaries,
                 const SimplerBytes *dispatcher, const SimplerCallConfig *prewarm, int enable_sdma);

/* Gives the device back: another context may have it then. Ends open runs as simpler_destroy_context does, and is refused
 * as that is. Where another thread's call still uses the device, that call gives it back when it ends. Afterwards the
 * context can only be destroyed, also one that never had a device. */
int simpler_finalize(SimplerContext *context);

/* How many runs may have begun at a time, 1 or 2; negative where there is no device. */
int simpler_pipeline_depth(SimplerContext *context);

/* Device memory: `*address` is that of `bytes` new bytes, 1024-byte aligned, of undefined contents. It is freed by
 * simpler_free, or with the device. */
int simpler_malloc(SimplerContext *context, uint64_t bytes, uint64_t *address);

/* Frees what simpler_malloc gave. This and the copies wait for the run that is on the device; while that is the calling
 * thread's own they are refused. */
int simpler_free(SimplerContext *context, uint64_t address);

/* Copies `bytes` from `source`, host memory, to device memory. A range outside one allocation is refused. */
int simpler_copy_to(SimplerContext *context, uint64_t destination, const void *source, uint64_t bytes);

/* Copies `bytes` from device memory to `destination`, host memory. */
int simpler_copy_from(SimplerContext *context, void *destination, uint64_t source, uint64_t bytes);

/* Makes a callable known and stores its id, which is not 0. The same content again gives the same id, and must be
 * unregistered as often. At most 64 are known at a time.
 *
 * −5 where the kernels are not those that the orchestration was built for. The objects are code: they run with the
 * rights of this process, on sim in it. */
int simpler_register_callable(SimplerContext *context, const SimplerCallableImage *image, uint64_t *callable);

/* Takes one registration back. Runs that have begun go on. */
int simpler_unregister_callable(SimplerContext *context, uint64_t callable);

/* The memory that a run needs, the caller's from its first prepare until it has ended: this many bytes, so aligned,
 * zeroed before its first use. It may be used for one run after the other, with any context, and freed at any time
 * when no run is in it. It holds a magic and numbers, no address, so a stale or copied block is refused, never
 * followed.
 *
 * Where the run has ended otherwise than by its launch or its simpler_run_finalize, which is with its context or by a
 * failure inside, its storage still says that it holds it: it is zeroed again before its next use. Two threads must not
 * prepare a run in the same storage at a time. */
size_t simpler_run_storage_size(void);
size_t simpler_run_storage_alignment(void);

/* The first word of storage that was used: the characters SMPLRUN1 in memory order. */
#define SIMPLER_RUN_MAGIC "SMPLRUN1"

/* First phase of a run: takes a pipeline slot, and binds the callable and its arguments to it. The run's root span is
 * open from here to the end of its finalize.
 *
 * Refused: a null argument, storage that is misaligned, not zeroed, or holds a run; a callable that is not registered; a
 * slot that is out of range or in use, the pipeline being full. −5: a configuration that cannot be. After a failure no
 * run is in the storage; one that had begun has ended, and the log shows it. */
int simpler_run_prepare(SimplerContext *context, void *storage, const SimplerRunRequest *request);

/* Second phase: starts the run on the device. Refused where another run is on it: at most one is. After a failure the
 * run has ended and its storage is free; but nothing has changed where the call itself was wrong: another thread's run,
 * another context's, one that was launched before. */
int simpler_run_launch(SimplerContext *context, void *storage);

/* Whether simpler_run_wait would return at once: 1 or 0; negative where the run was not launched. */
int simpler_run_poll(SimplerContext *context, void *storage);

/* Third phase: waits for the end of the run on the device, which is then free for the next one. It returns only when
 * every kernel has. The result is the run's own; the run is still to be finalized, whatever it is. */
int simpler_run_wait(SimplerContext *context, void *storage);

/* Last phase: copies results back, emits the device's spans, closes the root span, gives the slot back. The storage is
 * free afterwards, whatever the result.
 *
 * A run may be finalized at any phase: one that was launched is waited for, one that was not gives −1. The result is
 * that of the whole run: not 0 if wait's was not, and it wins over wait's. */
int simpler_run_finalize(SimplerContext *context, void *storage);

/* prepare, launch, wait and finalize, in storage of its own; refused, like them, where a slot or the device is in use. The
 * result is that of the first phase that failed, but finalize's, if it is not 0, wins over wait's. The next run starts
 * afresh. */
int simpler_run(SimplerContext *context, const SimplerRunRequest *request);

/* Copies what the calling thread's latest failure said into `out` (`size` bytes, zero-terminated, cut if need be) and gives
 * the text's length. A thread keeps one text: the next failure, with whichever context, replaces it, and a call that goes
 * well does not. It is given where `context` is the one that the failure was with, or NULL; otherwise, and where nothing
 * has failed, the length is 0. A text has at most 1023 bytes; a longer one was cut and ends in ~. `out` may be NULL if
 * `size` is 0. */
size_t simpler_last_error(const SimplerContext *context, char *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
