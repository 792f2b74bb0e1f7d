/* Logs to a stderr whose reader has gone, then to a file at its size limit, with the signals as they are by default.
 * broken DIRECTORY
 */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <sys/resource.h>

#include <simpler/strace.h>

static SimplerHostLogState state;

static uint64_t output_failed(void) { return state.dropped_by_reason[SIMPLER_DROP_OUTPUT_FAILED]; }

static volatile sig_atomic_t raised;

static void count(int signal) {
    (void)signal;
    raised++;
}

int main(int argc, char **argv) {
    struct rlimit limit = {100, RLIM_INFINITY};
    sigset_t pipe_only, pending;
    state.threshold = SIMPLER_LOG_WARN;
    if (argc != 2 || simpler_host_log_bind_state(&state) != SIMPLER_BIND_OK) {
        return 1;
    }
    LOG_WARN("nobody reads this");
    if (output_failed() != 1) {
        return 2;
    }
    /* One that was pending before is the program's own, and stays. */
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe_only, NULL);
    raise(SIGPIPE);
    LOG_WARN("nor this");
    sigpending(&pending);
    if (output_failed() != 2 || !sigismember(&pending, SIGPIPE)) {
        return 3;
    }
    signal(SIGPIPE, count);
    sigprocmask(SIG_UNBLOCK, &pipe_only, NULL);
    if (raised != 1) {
        return 4;
    }
    strncpy(state.log_directory, argv[1], sizeof state.log_directory - 1);
    state.log_directory_bound = 1;
    setrlimit(RLIMIT_FSIZE, &limit);
    LOG_WARN("%0200d", 1);
    LOG_WARN("%0200d", 2);
    if (output_failed() != 4 || state.dropped_record_count != 4 || raised != 1) {
        return 5;
    }
    return 0;
}
