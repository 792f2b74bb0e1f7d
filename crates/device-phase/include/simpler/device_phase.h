/* The device's side of phase timing: where what lies in the phase buffer, and the stores that fill it.
 *
 *     +0            header: tail_used u64, reserved u64
 *     +16           phases: [thread][phase] { start u64, end u64 }
 *     +16 + T*160   tail:   [thread][slot]  { dispatch u64, finish u64 }
 *
 * T is the number of launched AICPU threads. The host resets the buffer before each run (start and dispatch
 * SIMPLER_PHASE_UNSET, all else 0) and reads it after the run has ended; the end of the run, not these stores,
 * is what makes them visible. So the stores are plain: each thread writes its own row and no other.
 *
 * The Rust crate simpler-device-phase has the same layout; a test compares every number.
 */
#ifndef SIMPLER_DEVICE_PHASE_H
#define SIMPLER_DEVICE_PHASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A phase happens at most once per run and thread. Numbers are slots of the buffer: append, never renumber. */
enum {
    SIMPLER_PHASE_RUN_WALL = 0,
    SIMPLER_PHASE_PREAMBLE = 1,
    SIMPLER_PHASE_SO_LOAD = 2,
    SIMPLER_PHASE_GRAPH_BUILD = 3,
    SIMPLER_PHASE_POST_ORCH = 4,
    SIMPLER_PHASE_ORCH_WINDOW = 5,
    SIMPLER_PHASE_SCHED_WINDOW = 6,
    SIMPLER_PHASE_CONFIG_VALIDATE = 7,
    SIMPLER_PHASE_ARENA_WIRE = 8,
    SIMPLER_PHASE_SM_RESET = 9,
    SIMPLER_PHASES = 10
};

#define SIMPLER_TASK_TIMING_SLOTS 16
#define SIMPLER_PHASE_UNSET UINT64_MAX

typedef struct SimplerPhaseHeader {
    uint64_t tail_used; /* not 0 once a slot was dispatched in this run */
    uint64_t reserved;
} SimplerPhaseHeader;

typedef struct SimplerPhaseRecord {
    uint64_t start; /* cycles of the device counter */
    uint64_t end;
} SimplerPhaseRecord;

typedef struct SimplerTaskTimingRecord {
    uint64_t dispatch; /* earliest publication by this thread */
    uint64_t finish;   /* latest FIN that this thread has seen */
} SimplerTaskTimingRecord;

/* Bytes of the header and the phases: where the tail begins, and what is read back of every run. */
static inline size_t simpler_phase_tail_offset(size_t threads) {
    return sizeof(SimplerPhaseHeader) + threads * SIMPLER_PHASES * sizeof(SimplerPhaseRecord);
}

/* Bytes of the whole buffer. */
static inline size_t simpler_phase_bytes(size_t threads) {
    return simpler_phase_tail_offset(threads) +
           threads * SIMPLER_TASK_TIMING_SLOTS * sizeof(SimplerTaskTimingRecord);
}

/* A thread's record of a phase; null without a buffer, for a thread that was not launched, for no phase. */
static inline SimplerPhaseRecord *simpler_phase_record(void *base, size_t threads, size_t thread, int phase) {
    SimplerPhaseRecord *records;
    if (!base || thread >= threads || phase < 0 || phase >= SIMPLER_PHASES) return NULL;
    records = (SimplerPhaseRecord *)((char *)base + sizeof(SimplerPhaseHeader));
    return records + thread * SIMPLER_PHASES + (size_t)phase;
}

/* A thread's record of a slot; null as above, and for a number that is no slot. */
static inline SimplerTaskTimingRecord *simpler_task_timing_record(void *base, size_t threads, size_t thread,
                                                                  int slot) {
    SimplerTaskTimingRecord *records;
    if (!base || thread >= threads || slot < 0 || slot >= SIMPLER_TASK_TIMING_SLOTS) return NULL;
    records = (SimplerTaskTimingRecord *)((char *)base + simpler_phase_tail_offset(threads));
    return records + thread * SIMPLER_TASK_TIMING_SLOTS + (size_t)slot;
}

/* Stores the window of a phase. Any thread, its own row only. */
static inline void simpler_phase_stamp(void *base, size_t threads, size_t thread, int phase, uint64_t start,
                                       uint64_t end) {
    SimplerPhaseRecord *record = simpler_phase_record(base, threads, thread, phase);
    if (!record) return;
    record->start = start;
    record->end = end;
}

/* Right before the register write that publishes a tagged task; the first publication counts. */
static inline void simpler_task_timing_dispatch(void *base, size_t threads, size_t thread, int slot,
                                                uint64_t cycles) {
    SimplerTaskTimingRecord *record = simpler_task_timing_record(base, threads, thread, slot);
    if (record && cycles < record->dispatch) record->dispatch = cycles;
}

/* Right after the FIN of a tagged task was seen; the last one counts. */
static inline void simpler_task_timing_finish(void *base, size_t threads, size_t thread, int slot,
                                              uint64_t cycles) {
    SimplerTaskTimingRecord *record = simpler_task_timing_record(base, threads, thread, slot);
    if (record && cycles > record->finish) record->finish = cycles;
}

/* By the thread that finishes last, once it has seen all others finish: whether the host need read the tail. */
static inline void simpler_task_timing_publish(void *base, size_t threads) {
    size_t thread;
    int slot;
    uint64_t used = 0;
    if (!base) return;
    for (thread = 0; thread < threads; thread++) {
        for (slot = 0; slot < SIMPLER_TASK_TIMING_SLOTS; slot++) {
            used |= simpler_task_timing_record(base, threads, thread, slot)->dispatch != SIMPLER_PHASE_UNSET;
        }
    }
    ((SimplerPhaseHeader *)base)->tail_used = used;
}

#ifdef __cplusplus
}
#endif
#endif
