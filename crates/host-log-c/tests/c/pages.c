/* Pages of 64 KiB, as a kernel might have them: nothing is wiped in a child but a page of the module's own.
 * pages PAGE_BYTES; ends with 0 if the module asked for a wiped page, 3 if it did not. */
#include <stdlib.h>

#include <simpler/unified_log.h>

static unsigned long page_bytes;
static int wiped;

#ifdef __cplusplus
extern "C" {
#endif
unsigned long getauxval(unsigned long type);
unsigned long getauxval(unsigned long type) { return type == 6 ? page_bytes : 0; }

int madvise(void *address, size_t bytes, int advice);
int madvise(void *address, size_t bytes, int advice) {
    wiped = advice == 18 && address == (void *)simpler_log_wiped_page && bytes == sizeof simpler_log_wiped_page;
    return 0;
}
#ifdef __cplusplus
}
#endif

int main(int count, char **arguments) {
    static SimplerHostLogState state;
    state.threshold = SIMPLER_LOG_WARN;
    page_bytes = count == 2 ? strtoul(arguments[1], NULL, 10) : 0;
    if (simpler_host_log_adopt(&state) != SIMPLER_BIND_OK || simpler_log_pid() != simpler_log_sys_getpid()) {
        return 1;
    }
    /* Whether the pid is remembered or asked for, it is this one's. */
    if (simpler_log_module.has_wiped_page != wiped) {
        return 2;
    }
    return wiped ? 0 : 3;
}
