/* What an orchestration sees: a run, and a table of operations on it.
 *
 * An orchestration is a shared object that exports
 *
 *     int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
 *                                   const SimplerChipArgs *args);
 *     int aicpu_orchestration_config(SimplerOrchestrationConfig *config);   (optional)
 *
 * The entry runs once per run, submits tasks and returns 0, or any other value to fail the run. Where it runs is
 * the runtime's business: tensormap_and_ringbuffer runs it on the orchestrator's AICPU thread, and tasks start while it
 * still submits; host_build_graph runs it on the host, and no task starts before it has returned. All calls of the
 * table belong to the thread that runs it.
 *
 * C++ has the same in simpler/orchestration.hpp.
 */
#ifndef SIMPLER_ORCHESTRATION_H
#define SIMPLER_ORCHESTRATION_H

#include <simpler/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMPLER_TASK_TENSORS_MAX 32
#define SIMPLER_TASK_SCALARS_MAX 16
#define SIMPLER_CHIP_TENSORS_MAX 256
#define SIMPLER_CHIP_SCALARS_MAX 128
#define SIMPLER_NO_KERNEL (-1)
#define SIMPLER_TASK_BLOCKS_MAX 65535

/* How a task uses a tensor; dependencies follow from the regions read and written, which are those of
 * buffers with the same addr: see SimplerTensor. A view with an extent of 0 would depend on nothing, so
 * it is error 5 unless its buffer is empty or it is passed on as SIMPLER_NO_DEP. */
enum {
    SIMPLER_INPUT = 0,           /* read */
    SIMPLER_OUTPUT = 1,          /* written whole; the runtime allocates and sets addr and owner_task */
    SIMPLER_INOUT = 2,           /* read and written */
    SIMPLER_OUTPUT_EXISTING = 3, /* written, memory is the caller's */
    SIMPLER_NO_DEP = 4           /* passed on, no dependency either way (constants) */
};

/* Core kinds. */
enum { SIMPLER_AIC = 0, SIMPLER_AIV = 1 };

typedef struct SimplerRun SimplerRun;

/* Records named scopes of the orchestration, see simpler/swimlane.h. */
struct SimplerPhaseRecorder;

typedef struct SimplerTaskArg {
    SimplerTensor *tensor; /* copied at submit; an OUTPUT's addr and owner_task are stored through it */
    uint64_t use;          /* SIMPLER_INPUT .. SIMPLER_NO_DEP */
} SimplerTaskArg;

/* Bits of SimplerTask.attrs. All zero is a task without any. */
enum {
    SIMPLER_TASK_EARLY_RESOLVE = 1 << 0, /* tasks that wait for it may be on their cores before it has finished; they
                                          * start when it has */
    SIMPLER_TASK_SYNC_START = 1 << 1,    /* all blocks run at the same time, and so may wait for each other */
    SIMPLER_TASK_PREDICATE = 1 << 2,     /* see simpler_task_set_predicate */
    SIMPLER_TASK_TIMED = 1 << 3,         /* the slot is in bits 4 to 7 */
    SIMPLER_TASK_SLOT_SHIFT = 4
};

#define SIMPLER_TASK_TIMING_SLOT_NONE (-1)
#define SIMPLER_TASK_TIMING_SLOT_MAX 15

/* Bits of SimplerTask.argument_error: what a setter has refused. Not 0 makes submit_task fail with error 5. */
enum { SIMPLER_ARGUMENT_TIMING_SLOT = 1 << 0, SIMPLER_ARGUMENT_PREDICATE = 1 << 1 };

/* A task. Its shape follows from the kernels that it names:
 *
 * - one: it runs on any core of that kind (of aiv0 and aiv1 alike);
 * - two or three, a MIX task: they run at the same time on the cores of one cluster, aic on its AIC, aiv0 and aiv1 on
 *   its AIVs, and so may wait for each other;
 * - none: only by submit_dummy_task.
 *
 * All kernels of a task get the same arguments. A task of several blocks runs as many times, each time with another
 * block_index, on as many cores or clusters as are free (SPMD). It is finished when all of it is. */
typedef struct SimplerTask {
    uint32_t struct_size; /* sizeof(SimplerTask) */
    int32_t aic;          /* index in the callable's kernel list, or SIMPLER_NO_KERNEL */
    int32_t aiv0;
    int32_t aiv1;
    const SimplerTaskArg *args;
    const uint64_t *scalars;
    uint32_t arg_count;
    uint32_t scalar_count;
    const int64_t *deps; /* ids of earlier tasks of this run to wait for, besides those that follow from args */
    uint32_t dep_count;
    uint8_t attrs;          /* SIMPLER_TASK_* bits */
    uint8_t argument_error; /* set by the functions below */
    uint8_t predicate;      /* set by simpler_task_set_predicate */
    uint8_t reserved0;      /* zero */
    uint32_t block_count;   /* 1 .. SIMPLER_TASK_BLOCKS_MAX */
    uint32_t reserved1;     /* zero */
} SimplerTask;

/* A task of these arguments: one block, without kernels, scalars or attributes. */
static inline SimplerTask simpler_task(const SimplerTaskArg *args, uint32_t arg_count) {
    SimplerTask task = {sizeof(SimplerTask), SIMPLER_NO_KERNEL, SIMPLER_NO_KERNEL, SIMPLER_NO_KERNEL,
                        args,                0,                 arg_count,         0,
                        0,                   0,                 0,                 0,
                        0,                   0,                 1,                 0};
    return task;
}

/* Runs the task only if the 32-bit word that argument arg begins with is not 0 when all that the task waits for is
 * done; else it finishes without running. The argument must be one that the task reads (SIMPLER_INPUT, SIMPLER_INOUT)
 * or gets without dependencies, of 4 bytes or more; submit_task fails with error 5 otherwise. */
static inline void simpler_task_set_predicate(SimplerTask *task, uint32_t arg) {
    if (arg >= SIMPLER_TASK_TENSORS_MAX) {
        task->argument_error |= SIMPLER_ARGUMENT_PREDICATE;
        return;
    }
    task->attrs |= SIMPLER_TASK_PREDICATE;
    task->predicate = (uint8_t)arg;
}

/* Times the task in slot 0 to 15: the log then holds the span ...device_wall.task_slot_<id>, from the task's
 * dispatch to its finish as the schedulers see them. Tasks that share a slot give one window, from the first
 * dispatch to the last finish. SIMPLER_TASK_TIMING_SLOT_NONE is no slot of a task and refused like any other
 * number: the slot stays as it was, and submit_task fails with error 5. */
static inline void simpler_task_set_timing_slot(SimplerTask *task, int32_t id) {
    if (id < 0 || id > SIMPLER_TASK_TIMING_SLOT_MAX) {
        task->argument_error |= SIMPLER_ARGUMENT_TIMING_SLOT;
        return;
    }
    task->attrs = (uint8_t)((task->attrs & (SIMPLER_TASK_TIMED - 1)) | SIMPLER_TASK_TIMED |
                            (uint32_t)id << SIMPLER_TASK_SLOT_SHIFT);
}

/* The slot that the task is timed in, or SIMPLER_TASK_TIMING_SLOT_NONE. */
static inline int32_t simpler_task_timing_slot(const SimplerTask *task) {
    return task->attrs & SIMPLER_TASK_TIMED ? task->attrs >> SIMPLER_TASK_SLOT_SHIFT
                                            : SIMPLER_TASK_TIMING_SLOT_NONE;
}

typedef struct SimplerChipArgs {
    const SimplerTensor *tensors;
    const uint64_t *scalars;
    uint32_t tensor_count;
    uint32_t scalar_count;
} SimplerChipArgs;

typedef struct SimplerOrchestrationConfig {
    uint32_t struct_size; /* in: sizeof(SimplerOrchestrationConfig) of the runtime */
    uint32_t tensors_min; /* out: fewer tensors or scalars than this is error 5 */
    uint32_t scalars_min;
} SimplerOrchestrationConfig;

/* Versioned by size: a caller that needs a later operation compares struct_size first. */
typedef struct SimplerOrchestrationApi {
    uint32_t struct_size;
    /* A task id >= 0, or a negative orchestrator error code; after an error the run is fatal. An id is the task's number in
     * its ring, see scope_begin, and from bit 32 on the ring. */
    int64_t (*submit_task)(SimplerRun *run, const SimplerTask *task);
    /* Cores of a kind (SIMPLER_AIC, SIMPLER_AIV) on this chip. */
    uint32_t (*core_count)(SimplerRun *run, int kind);
    /* Non-zero once the run has failed: stop submitting. */
    int (*is_fatal)(SimplerRun *run);
    /* Fail the run with code 9 and this text (copied, at most 255 bytes). */
    void (*report_fatal)(SimplerRun *run, const char *text);
    /* A record in the host log; level is 10, 20, 25, 30 or 40. */
    void (*log)(SimplerRun *run, int level, const char *func, const char *text);
    /* The recorder of named scopes (SIMPLER_PHASE_SCOPE in simpler/swimlane.h), good until the entry returns; NULL
     * where none are recorded, which a scope takes as well. */
    struct SimplerPhaseRecorder *(*phase_recorder)(SimplerRun *run);
    /* As submit_task for a task that names no kernel: it takes part in the dependencies and finishes as soon as all
     * that it waits for is done. Attributes and blocks mean nothing for it and are not looked at. */
    int64_t (*submit_dummy_task)(SimplerRun *run, const SimplerTask *task);
    /* Allocates count tensors (1 .. SIMPLER_TASK_TENSORS_MAX), as the outputs of a task that has finished: sets the
     * addr and owner_task of each. Their contents are undefined. The value is that task's id, or a negative code. */
    int64_t (*alloc_tensors)(SimplerRun *run, SimplerTensor *const *tensors, uint32_t count);
    /* Copies bytes from the first byte of a contiguous view on, once every task submitted so far that writes any of
     * the view has finished. 0, or a negative code: 8 where that takes more than 15 seconds. host_build_graph starts no
     * task before the orchestration has ended: there it is error 5 if such a task exists. */
    int32_t (*get_tensor_data)(SimplerRun *run, const SimplerTensor *tensor, void *to, uint64_t bytes);
    /* The other way round, once every task that reads or writes any of the view has finished. What is submitted
     * afterwards sees it. */
    int32_t (*set_tensor_data)(SimplerRun *run, const SimplerTensor *tensor, const void *from, uint64_t bytes);
    /* What is submitted from here to the scope_end that belongs to it is in a scope of its own, inside the innermost one
     * that is open; 64 deep at most. The outputs of its tasks may be used in it, and in scopes inside it, and nowhere
     * else. Once all in it is done, later tasks get its memory and its places. Tasks at a depth of d share ring d, of d
     * 3 and more ring 3. A task that its ring has no room for waits for scopes that have ended; where only
     * scopes that are open hold what it needs, it fails the run: 1 for places, 2 for memory, 4 for dependencies. The
     * run itself is the scope at depth 0. host_build_graph gets nothing back, since nothing runs while it submits.
     * 0, or a negative code: 10 where they are more than that. */
    int32_t (*scope_begin)(SimplerRun *run);
    /* Ends the innermost scope that is open; 5 if there is none. The entry must not return with one open. */
    int32_t (*scope_end)(SimplerRun *run);
} SimplerOrchestrationApi;

/* What an orchestration object defines; the second is optional. */
SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args);
SIMPLER_EXPORT int aicpu_orchestration_config(SimplerOrchestrationConfig *config);

#ifdef __cplusplus
}
#endif
#endif
