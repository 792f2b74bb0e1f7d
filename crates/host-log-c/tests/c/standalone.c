/* A program that owns its log: links the library, seeds the state, logs through both interfaces, forks.
 *
 *     standalone DIRECTORY
 */
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <simpler/host_log.h>
#include <simpler/strace.h>

static int failures;

#define EXPECT(condition)                                                          \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                            \
        }                                                                          \
    } while (0)

/* Nothing may be refused that the header allows, and nothing allowed that it refuses. */
static void refusals(const char *directory) {
    char text[64], longest[2048];
    SimplerHostSpan nameless = {0, 0, 0, 0, 0, 0, NULL, NULL};
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = 0;
    EXPECT(simpler_host_log_last_error(text, sizeof text) == 0 && text[0] == 0);
    EXPECT(simpler_host_log_init(26, directory, 0) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(simpler_host_log_set_threshold(0) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(simpler_host_log_set_directory(NULL) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(simpler_host_log_set_directory(longest) == SIMPLER_HOST_LOG_BAD_PATH);
    EXPECT(simpler_host_log_set_directory("/dev/null/log") == SIMPLER_HOST_LOG_BAD_DIRECTORY);
    EXPECT(simpler_host_log_last_error(text, sizeof text) > strlen("the log directory cannot be used: "));
    EXPECT(strncmp(text, "the log directory cannot be used: ", 34) == 0 && strlen(text) < sizeof text);
    EXPECT(simpler_host_log_last_error(NULL, 0) > 0 && simpler_host_log_last_error(text, 4) > 0);
    EXPECT(strcmp(text, "the") == 0);
    EXPECT(simpler_host_log_set_directory("") == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_counts(NULL) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(simpler_host_log_emit_text(SIMPLER_LOG_ERROR, "f", NULL, 1) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(simpler_host_log_emit_span(NULL) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(simpler_host_log_emit_span(&nameless) == SIMPLER_HOST_LOG_BAD_ARGUMENT);
    EXPECT(strcmp(simpler_host_log_error_text(SIMPLER_HOST_LOG_OK), "done") == 0);
    EXPECT(strlen(simpler_host_log_error_text(77)) > 0);
}

static void log_a_little(void) {
    SIMPLER_INVOCATION("standalone", 0xabc);
    SIMPLER_SPAN(SIMPLER_EXT("standalone", "inner"));
    LOG_INFO("from the header");
}

int main(int count, char **arguments) {
    const char *directory = count > 1 ? arguments[1] : "";
    SimplerHostSpan span = {7, 8, INT32_MAX, 0, 1, 2, "by.hand", "k=v"};
    SimplerHostLogCounts counts;
    pid_t child;
    int status = 0;
    EXPECT(simpler_host_log_state() != NULL);
    EXPECT(simpler_host_log_state()->threshold == SIMPLER_LOG_NUL);
    refusals(directory);
    EXPECT(simpler_host_log_init(SIMPLER_LOG_INFO, directory, 1) == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_set_directory("/tmp") == SIMPLER_HOST_LOG_ALREADY_BOUND);
    EXPECT(simpler_host_log_adopt(simpler_host_log_state()) == SIMPLER_BIND_OK);
    log_a_little(); /* before the writer */
    EXPECT(simpler_host_log_start_writer() == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_emit_text(35, NULL, "not \xff text", 10) == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_emit_text(SIMPLER_LOG_ERROR, "f", NULL, 0) == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_emit_span(&span) == SIMPLER_HOST_LOG_OK);
    log_a_little();
    EXPECT(simpler_host_log_flush(10000) == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_prepare_to_fork(10000) == SIMPLER_HOST_LOG_OK);
    child = fork();
    if (child == 0) {
        EXPECT(simpler_host_log_start_writer() == SIMPLER_HOST_LOG_OK);
        log_a_little();
        EXPECT(simpler_host_log_close(10000) == SIMPLER_HOST_LOG_OK);
        _exit(failures);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(simpler_host_log_start_writer() == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_set_threshold(SIMPLER_LOG_ERROR) == SIMPLER_HOST_LOG_OK);
    log_a_little(); /* muted */
    EXPECT(simpler_host_log_monotonic_ns() > 0);
    EXPECT(simpler_host_log_counts(&counts) == SIMPLER_HOST_LOG_OK);
    EXPECT(counts.dropped == 0 && counts.reported == 0);
    LOG_ERROR("last words"); /* drained by exit */
    printf("%d\n", (int)child);
    return failures;
}
