/* Closes a log whose stderr nobody reads: stalled, with stderr a pipe that is full. */
#include <stdlib.h>
#include <unistd.h>

#include <simpler/host_log.h>

int main(void) {
    char text[128];
    if (simpler_host_log_init(SIMPLER_LOG_WARN, NULL, 0) != SIMPLER_HOST_LOG_OK ||
        simpler_host_log_emit_text(SIMPLER_LOG_WARN, "f", "never read", 10) != SIMPLER_HOST_LOG_OK) {
        _exit(1);
    }
    if (simpler_host_log_close(50) != SIMPLER_HOST_LOG_NOT_DRAINED) {
        _exit(2);
    }
    _exit(simpler_host_log_last_error(text, sizeof text) > 0 ? 0 : 3);
}
