/* The variable-phase track: its records and pools, and named scopes.
 *
 * Who only wants a phase of its own needs one line of this:
 *
 *     SIMPLER_PHASE_SCOPE(recorder, "bind_tensors");
 *
 * From there to the end of the enclosing block is a named scope. All times are readings of the device
 * counter, in cycles. Needs gcc or clang.
 */
#ifndef SIMPLER_SWIMLANE_H
#define SIMPLER_SWIMLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How much is recorded: each level also what the one below records. */
enum {
    SIMPLER_SWIMLANE_OFF = 0,
    SIMPLER_SWIMLANE_AICORE_TASKS = 1,
    SIMPLER_SWIMLANE_AICPU_TASKS = 2,
    SIMPLER_SWIMLANE_SCHED_PHASES = 3,
    SIMPLER_SWIMLANE_ORCH_PHASES = 4 /* and named scopes */
};

/* Kinds of records, as in SimplerReadyPlace. */
enum {
    SIMPLER_RECORD_AICPU_TASK = 0,  /* a pool per core */
    SIMPLER_RECORD_AICORE_TASK = 1, /* a pool per core */
    SIMPLER_RECORD_SCHED_PHASE = 2, /* a pool per AICPU thread, as the rest */
    SIMPLER_RECORD_ORCH_PHASE = 3,
    SIMPLER_RECORD_NAMED_SCOPE = 4
};

/* A task as the AICPU saw it: 32 bytes. */
typedef struct SimplerAicpuTask {
    uint64_t dispatch;    /* when it was dispatched */
    uint64_t finish;      /* when its FIN was seen */
    uint32_t reg_task_id; /* lower half of the DATA_MAIN_BASE value; with the core, what joins the two tasks */
    uint32_t reserved[3];
} SimplerAicpuTask;

/* A task as its core saw it: 32 bytes. The scheduler reserves it before it dispatches, the core fills it
 * before its FIN. */
typedef struct SimplerAicoreTask {
    uint64_t start;            /* when the kernel was entered */
    uint64_t end;              /* when it returned */
    uint64_t token;            /* the task that was submitted */
    uint32_t reg_task_id;      /* as above */
    uint32_t receive_to_start; /* from the dispatch being read to the kernel being entered */
} SimplerAicoreTask;

/* What a scheduler may be doing; 3 is retired. */
enum {
    SIMPLER_SCHED_COMPLETE = 0,
    SIMPLER_SCHED_DISPATCH = 1, /* detail: pops */
    SIMPLER_SCHED_RELEASE = 2,
    SIMPLER_SCHED_DUMMY = 4,
    SIMPLER_SCHED_EARLY_DISPATCH = 5, /* detail: pops */
    SIMPLER_SCHED_RESOLVE = 6,
    SIMPLER_SCHED_DUMMY_TASK = 7, /* detail: task */
    SIMPLER_SCHED_DRAIN = 8,
    SIMPLER_SCHED_DRAIN_PREPARE = 9,
    SIMPLER_SCHED_DRAIN_PUBLISH = 10,
    SIMPLER_SCHED_ASYNC_POLL = 11,
    SIMPLER_SCHED_PREDICATED_SKIP = 12, /* detail: task */
    SIMPLER_SCHED_GRAPH_PREPARE = 13
};

typedef struct SimplerSchedPops {
    uint32_t hit;  /* a ready queue had a task */
    uint32_t miss; /* it had none */
} SimplerSchedPops;

typedef struct SimplerSchedTask {
    uint32_t low; /* halves of a task id */
    uint32_t high;
} SimplerSchedTask;

/* What a scheduler did for a while: 64 bytes. */
typedef struct SimplerSchedPhase {
    uint64_t start;
    uint64_t end;
    uint32_t loop_iter; /* turns of the scheduler's loop before this one */
    uint32_t kind;      /* SIMPLER_SCHED_... */
    uint32_t tasks;     /* tasks that the phase dealt with */
    union {
        SimplerSchedPops pops;
        SimplerSchedTask task;
    } detail;                   /* by kind */
    int16_t depths_at_start[3]; /* lengths of the shared ready queues */
    int16_t depths_at_end[3];
    uint32_t reserved[4];
} SimplerSchedPhase;

/* What the orchestrator did for a while: 32 bytes. */
typedef struct SimplerOrchPhase {
    uint64_t start;
    uint64_t end;
    uint64_t task_id;    /* the task that was submitted */
    uint32_t submit_idx; /* submits of the run before this one */
    uint32_t reserved;
} SimplerOrchPhase;

/* A named scope: 32 bytes. */
typedef struct SimplerNamedScope {
    uint64_t start;
    uint64_t end;
    uint64_t name_hash; /* FNV-1a, 64 bits, of the name */
    uint32_t depth;     /* scopes of the thread that it lies in */
    uint32_t reserved;
} SimplerNamedScope;

#define SIMPLER_SWIMLANE_FREE_PLACES 4

/* The active head of a pool. The device alone writes it, the host reads it after the run. */
typedef struct SimplerActiveHead {
    uint64_t buffer;    /* the buffer that is being filled; 0: none */
    uint32_t seq;       /* buffers that were handed over before it */
    uint32_t total;     /* records that were to be made in this run */
    uint32_t dropped;   /* and those of them that were lost */
    uint32_t count;     /* places that are taken in the buffer */
    uint32_t committed; /* and those of them that are filled */
    uint32_t reserved[9];
} SimplerActiveHead;

/* The free buffers of a pool. Places and tail are the host's (release), head is the device's (release). */
typedef struct SimplerFreeQueue {
    uint64_t buffers[SIMPLER_SWIMLANE_FREE_PLACES];
    uint32_t head; /* buffers taken out so far */
    uint32_t tail; /* buffers put in so far */
    uint64_t reserved[11];
} SimplerFreeQueue;

/* A pool: 192 bytes, aligned to 64. One producer, a device thread, and one consumer, the host. */
typedef struct SimplerSwimlanePool {
    SimplerActiveHead head;
    SimplerFreeQueue free;
} SimplerSwimlanePool;

/* A full buffer on its way to the host, in the ready queue of an AICPU thread. */
typedef struct SimplerReadyPlace {
    uint32_t index; /* core or AICPU thread */
    uint32_t kind;  /* SIMPLER_RECORD_... */
    uint64_t buffer;
    uint32_t seq;
    uint32_t count; /* records in the buffer */
} SimplerReadyPlace;

/* Where the scopes of one thread are recorded. The runtime makes it; only that thread uses it. */
typedef struct SimplerPhaseRecorder {
    void *context;
    uint64_t (*counter)(void *context);
    void (*record)(void *context, uint64_t hash, uint64_t start, uint64_t end, uint32_t depth);
    uint32_t depth; /* scopes that are open */
} SimplerPhaseRecorder;

/* An open scope: see SIMPLER_PHASE_SCOPE. */
typedef struct SimplerPhaseScope {
    SimplerPhaseRecorder *recorder;
    uint64_t hash;
    uint64_t start;
} SimplerPhaseScope;

static inline SimplerPhaseScope simpler_phase_enter(SimplerPhaseRecorder *recorder, uint64_t hash) {
    SimplerPhaseScope scope;
    scope.recorder = recorder;
    scope.hash = hash;
    scope.start = 0;
    if (recorder != NULL) {
        recorder->depth++;
        scope.start = recorder->counter(recorder->context);
    }
    return scope;
}

static inline void simpler_phase_leave(SimplerPhaseScope *scope) {
    SimplerPhaseRecorder *recorder = scope->recorder;
    if (recorder != NULL) {
        uint64_t end = recorder->counter(recorder->context);
        recorder->depth--;
        recorder->record(recorder->context, scope->hash, scope->start, end, recorder->depth);
    }
}

#ifdef __cplusplus
}
#endif

#define SIMPLER_PHASE_NAME_BYTES_MAX 64

/* FNV-1a, 64 bits, of a literal of up to 64 bytes, given without its NUL: a constant. */
#ifdef __cplusplus
constexpr uint64_t simpler_fnv1a(const char *text, size_t bytes, uint64_t hash = UINT64_C(0xcbf29ce484222325)) {
    return bytes == 0 ? hash
                      : simpler_fnv1a(text + 1, bytes - 1,
                                      (hash ^ static_cast<unsigned char>(*text)) * UINT64_C(0x100000001b3));
}
#else
/* Straight on, since a compiler that optimises folds that to a constant, and not a loop of this length. */
#define SIMPLER_FNV1A_STEP(n)                                                                                \
    if ((n) < bytes) hash = (hash ^ (unsigned char)text[(n) < bytes ? (n) : 0]) * UINT64_C(0x100000001b3);
#define SIMPLER_FNV1A_STEPS_8(n)                                                                             \
    SIMPLER_FNV1A_STEP((n)) SIMPLER_FNV1A_STEP((n) + 1) SIMPLER_FNV1A_STEP((n) + 2)                          \
    SIMPLER_FNV1A_STEP((n) + 3) SIMPLER_FNV1A_STEP((n) + 4) SIMPLER_FNV1A_STEP((n) + 5)                      \
    SIMPLER_FNV1A_STEP((n) + 6) SIMPLER_FNV1A_STEP((n) + 7)
__attribute__((always_inline)) static inline uint64_t simpler_fnv1a(const char *text, size_t bytes) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    SIMPLER_FNV1A_STEPS_8(0u)
    SIMPLER_FNV1A_STEPS_8(8u)
    SIMPLER_FNV1A_STEPS_8(16u)
    SIMPLER_FNV1A_STEPS_8(24u)
    SIMPLER_FNV1A_STEPS_8(32u)
    SIMPLER_FNV1A_STEPS_8(40u)
    SIMPLER_FNV1A_STEPS_8(48u)
    SIMPLER_FNV1A_STEPS_8(56u)
    return hash;
}
#undef SIMPLER_FNV1A_STEP
#undef SIMPLER_FNV1A_STEPS_8
#endif

#define SIMPLER_PHASE_JOIN_(a, b) a##b
#define SIMPLER_PHASE_JOIN(a, b) SIMPLER_PHASE_JOIN_(a, b)
#ifdef __cplusplus
#define SIMPLER_PHASE_CONSTANT constexpr uint64_t
#define SIMPLER_PHASE_ASSERT static_assert
#else
#define SIMPLER_PHASE_CONSTANT const uint64_t
#define SIMPLER_PHASE_ASSERT _Static_assert
#endif

/* Opens a named scope that ends with the enclosing block, on whichever path leaves it. At most one a line.
 *
 * recorder: a SimplerPhaseRecorder *, evaluated once; NULL records nothing and costs a comparison.
 * name: a literal of 1 to 64 bytes. It also goes into the section simpler_phase, where the host finds it;
 * where a linker throws that away (--gc-sections), the scope is called phase_ and its hash.
 *
 * In C++, not in an inline function or a template: what such a function keeps goes into a section group of
 * its own, which cannot be this section, and the compiler says so or ends up with two. A lambda is fine. */
#define SIMPLER_PHASE_SCOPE(recorder, name)                                                                  \
    SIMPLER_PHASE_ASSERT(sizeof("" name) > 1 && sizeof("" name) <= SIMPLER_PHASE_NAME_BYTES_MAX + 1,         \
                         "a scope's name has 1 to 64 bytes");                                                \
    static const char SIMPLER_PHASE_JOIN(simpler_phase_name_, __LINE__)[]                                    \
        __attribute__((section("simpler_phase"), used, aligned(1))) = "" name;                               \
    SIMPLER_PHASE_CONSTANT SIMPLER_PHASE_JOIN(simpler_phase_hash_, __LINE__) =                               \
        simpler_fnv1a("" name, sizeof("" name) - 1);                                                         \
    SimplerPhaseScope SIMPLER_PHASE_JOIN(simpler_phase_scope_, __LINE__)                                     \
        __attribute__((cleanup(simpler_phase_leave), unused)) =                                              \
            simpler_phase_enter((recorder), SIMPLER_PHASE_JOIN(simpler_phase_hash_, __LINE__))

#endif
