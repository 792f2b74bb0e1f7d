/* The words that every module of one process shares, and the one function that a module exports.
 *
 * Each shared object has a private logger; all of them work on one SimplerHostLogState that the owner, one
 * module of the process, publishes. A module is handed the state once, by simpler_host_log_bind_state, and
 * is silent until then. It becomes a consumer: it submits through the owner's callback, or writes for itself
 * while there is none, but it never makes a writer, so that nothing of it is needed once it is unloaded.
 *
 * The struct carries no version and no size: whoever binds it was built with this header. The first 1128
 * bytes are fixed; what follows them is this implementation's own, and a binder reads and writes it as well. So
 * who makes a state by himself makes all of the struct: a block of only the first 1128 bytes must not be bound,
 * and cannot be told from a whole one. docs/abi.md says what a change needs.
 *
 * All fields but the texts are accessed with the __atomic builtins. 64-bit Linux only.
 */
#ifndef SIMPLER_HOST_LOG_STATE_H
#define SIMPLER_HOST_LOG_STATE_H

#if !defined(__linux__) || !defined(__LP64__)
#error "the shared log state is laid out for 64-bit Linux"
#endif

#include <stdint.h>

#include <simpler/host_span.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size of the directory's field, its terminating zero included: the longest path has 1023 bytes. */
#define SIMPLER_LOG_DIRECTORY_BYTES 1024

/* The bit of sink_producer_state that closes admission; the bits below it count the producers inside. */
#define SIMPLER_PRODUCERS_CLOSED (UINT64_C(1) << 63)

/* Why a record was lost: indices into dropped_by_reason. Each lost record has exactly one reason. */
enum {
    SIMPLER_DROP_QUEUE_FULL = 0,      /* the queue is too small for the burst, or the destination too slow */
    SIMPLER_DROP_CLAIM_EXHAUSTED = 1, /* the bounded claim lost to other producers although there was room */
    SIMPLER_DROP_OUTPUT_FAILED = 2,   /* the destination refused the write */
    SIMPLER_DROP_NOT_ADMITTED = 3,    /* there was no sink to submit to */
    SIMPLER_DROP_REASONS = 4
};

struct SimplerHostLogState;

/* Submits one record: a rendered line (first byte 0x20 or above) or a binary span frame (docs/abi.md).
 *
 * `context`     the state's sink_context
 * `record`      1 to 512 bytes, copied before it returns
 * `anchor_pid`  the pid whose clock anchor the record is, else 0
 *
 * Non-zero only if the record was accepted; on 0 the loss is already counted. The CALLER enters the producer
 * section (adds 1 to sink_producer_state and finds bit 63 of the former value clear); the CALLEE leaves it
 * (subtracts 1) on every path, exactly once. The callee puts pid and tid of the calling thread into a frame.
 *
 * Threads: any of the process whose pid is sink_owner_pid. It does not unwind, block or allocate. */
typedef int (*SimplerHostLogEnqueueFn)(void *context, struct SimplerHostLogState *state, const char *record,
                                       uint32_t size, int32_t anchor_pid);

/* The shared state of one process's log. Ownership: the owner holds it in static memory for the life of the
 * process. All of it is needed, sizeof(SimplerHostLogState) bytes; zeroes are a fine beginning for all of them but
 * the threshold. Fork: the child works on its own copy, which the owner's fork handler has put right. */
typedef struct SimplerHostLogState {
    int32_t threshold;           /* a value of the ladder, read for every record: a change acts at once */
    int32_t clock_anchor_pid;    /* who has emitted the clock anchor: 0 nobody, pid done, -pid at it */
    int32_t log_directory_bound; /* 0 free, -1 being written, 1 log_directory holds it; only 1 is bound */
    char log_directory[SIMPLER_LOG_DIRECTORY_BYTES]; /* zero-terminated; records go to host.<pid>.log there */
    int32_t sink_owner_pid;                          /* the writer's process: 0 none, pid runs, -pid in transition */
    int32_t sink_process_pid;                        /* the process that the counters belong to */
    void *sink_context;                              /* first argument of sink_enqueue */
    SimplerHostLogEnqueueFn sink_enqueue;            /* NULL while there is no writer */
    uint64_t dropped_record_count;                   /* all lost records */
    uint64_t pending_record_count;                   /* accepted and not finished, as of the owner's last look */
    uint64_t sink_producer_state;                    /* SIMPLER_PRODUCERS_CLOSED and the number of producers inside */
    uint64_t dropped_by_reason[SIMPLER_DROP_REASONS]; /* their sum is dropped_record_count */
    uint64_t reported_drop_count;                     /* how many of the lost a drop report has told */
    /* The tail of this implementation. */
    uint64_t next_invocation_id;       /* the invocation number handed out next; 0 is skipped */
    SimplerSpanContextFn span_context; /* NULL while there is no owner */
    /* The process whose clock anchor landed on stderr and stands in no file yet, else 0, and that anchor's
     * readings. Whoever wrote it stores them, the pid last; who opens a log file exchanges the pid for 0 and
     * repeats the anchor there. Fork: the parent's pid, so a child repeats nothing. */
    int32_t anchor_stderr_pid;
    int64_t anchor_mono_ns;
    int64_t anchor_wall_ns;
    uint64_t anchor_thread; /* as in its envelope */
} SimplerHostLogState;

/* What simpler_host_log_bind_state returns. */
enum {
    SIMPLER_BIND_OK = 0,
    SIMPLER_BIND_NULL_STATE = 1, /* the pointer is NULL */
    SIMPLER_BIND_OFF_LADDER = 2  /* the state's threshold is no value of the ladder */
};

/* Hands this module the process's state: SIMPLER_BIND_OK, or why not (and then nothing has changed).
 *
 * Only a null pointer and a threshold off the ladder are refused. Any other word that the module later
 * branches on is put right instead: a clock anchor claimed by this process that nobody finishes, one on stderr that
 * this process has not made, a directory that nobody finishes to write or whose word is none of its three values, a
 * bound directory without a path, a gate that is closed without an owner. Should one of them be at work just then,
 * the call waits for it, up to 100 ms.
 *
 * The loader calls it once, on its own thread, before it uses anything else of the module; binding again
 * replaces the state. Ownership: the state stays the owner's and must outlive the module. Threads: any, also
 * while others log. This is the only symbol that a logging module exports; unified_log.h defines it. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int simpler_host_log_bind_state(SimplerHostLogState *state);

typedef int (*SimplerHostLogBindFn)(SimplerHostLogState *state);

#ifdef __cplusplus
}
#endif

#endif
