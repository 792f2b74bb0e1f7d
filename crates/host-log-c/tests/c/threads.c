/* Threads log through one module while it is bound again, its threshold moves and a directory comes: for
 * ThreadSanitizer, which ends the program with a report if anything races. threads DIRECTORY */
#define _GNU_SOURCE
#include <pthread.h>

#include <simpler/strace.h>

enum { THREADS = 4, RECORDS = 500 };

static SimplerHostLogState state;
static __thread SimplerSpanContext context;

static SimplerSpanContext *give(void) { return &context; }

static int accept_all(void *sink, SimplerHostLogState *of, const char *record, uint32_t size, int32_t anchor_pid) {
    (void)sink;
    (void)record;
    (void)size;
    (void)anchor_pid;
    __atomic_fetch_sub(&of->sink_producer_state, 1, __ATOMIC_ACQ_REL);
    return 1;
}

static void *emit(void *number) {
    for (int n = 0; n < RECORDS; n++) {
        SIMPLER_INVOCATION("run", 1);
        SIMPLER_SPAN_ATTRS("run.part", "n=%d", n);
        LOG_WARN("record %d of %s", n, (const char *)number);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    int number;
    state.threshold = SIMPLER_LOG_TIMING;
    state.span_context = give;
    if (count != 2 || simpler_host_log_bind_state(&state) != SIMPLER_BIND_OK) {
        return 1;
    }
    for (number = 0; number < THREADS; number++) {
        pthread_create(&threads[number], NULL, emit, "a thread");
    }
    for (number = 0; number < 200; number++) {
        __atomic_store_n(&state.threshold, number % 2 ? SIMPLER_LOG_TIMING : SIMPLER_LOG_ERROR, __ATOMIC_RELAXED);
        simpler_host_log_bind_state(&state);
        if (number == 50) {
            __atomic_store_n(&state.log_directory_bound, -1, __ATOMIC_RELAXED);
            strcpy(state.log_directory, arguments[1]);
            __atomic_store_n(&state.log_directory_bound, 1, __ATOMIC_RELEASE);
        }
        if (number == 100 || number == 150) {
            __atomic_store_n(&state.sink_context, (void *)&state, __ATOMIC_RELEASE);
            __atomic_store_n(&state.sink_enqueue, accept_all, __ATOMIC_RELEASE);
            __atomic_store_n(&state.sink_owner_pid, simpler_log_pid(), __ATOMIC_RELEASE);
        }
        if (number == 125) {
            __atomic_store_n(&state.sink_enqueue, (SimplerHostLogEnqueueFn)NULL, __ATOMIC_RELEASE);
            __atomic_store_n(&state.sink_context, (void *)NULL, __ATOMIC_RELEASE);
            __atomic_store_n(&state.sink_owner_pid, 0, __ATOMIC_RELEASE);
        }
        LOG_WARN("round %d", number);
    }
    for (number = 0; number < THREADS; number++) {
        pthread_join(threads[number], NULL);
    }
    /* At the sink's edges a record may be refused; none may be lost to the outputs, and everybody has left. */
    if (state.sink_producer_state != 0 || state.dropped_by_reason[SIMPLER_DROP_OUTPUT_FAILED] != 0) {
        return 2;
    }
    return 0;
}
