/* The device's end of the log on silicon: dev_vlog_* into CANN's dlog, and the init kernel that latches the level.
 *
 * Part of the binary that the AICPU loads, compiled with -DSIMPLER_ONBOARD as C11 or C++11. CANN's two functions are
 * weak: a binary without them loads, and its log is silent.
 *
 * CANN owns the severity: what it admits when the init kernel runs is sampled then and holds for the binary's life.
 * It has no TIMING, and both TIMING and WARN are its WARN; so there the host's threshold, latched beside it, decides
 * whether TIMING is heard. Where CANN admits INFO, TIMING is heard in any case.
 *
 * Never run on silicon. Uncertain, since no reference has them: the two signatures, the module number, and the
 * signature of an AICPU kernel.
 */
#ifndef SIMPLER_ONBOARD
#error "this is the device's end on silicon; on sim device_log.h adapts to the host's logger"
#endif

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <simpler/aicpu_args.h>
#include <simpler/device_log.h>

/* The module under which CANN files the records: its AICPU. */
#ifndef SIMPLER_DEVICE_LOG_MODULE
#define SIMPLER_DEVICE_LOG_MODULE 36
#endif

/* What CANN takes in one message, the zero included. */
#define SIMPLER_DEVICE_LOG_BYTES 1024

#ifdef __cplusplus
extern "C" {
#endif

extern __attribute__((weak)) int32_t CheckLogLevel(int32_t module, int32_t level);
extern __attribute__((weak, __format__(__printf__, 3, 4))) void DlogRecord(int32_t module, int32_t level,
                                                                           const char *fmt, ...);

/* A bit for every level of CANN that was admitted when the init kernel ran. */
static uint32_t latched_cann;
/* Whether TIMING is heard. */
static uint32_t latched_timing;

static int is_admitted(int32_t cann_level) {
    return CheckLogLevel != NULL && CheckLogLevel(SIMPLER_DEVICE_LOG_MODULE, cann_level) == 1;
}

/* The init kernel: latches the level. 0, or 1 for arguments that are null or have a level off the ladder; then
 * nothing has changed. The host runs it once, and nothing else while it runs. */
__attribute__((visibility("default"))) uint32_t simpler_aicpu_init(void *arguments);
uint32_t simpler_aicpu_init(void *arguments) {
    const SimplerAicpuInitArgs *init = (const SimplerAicpuInitArgs *)arguments;
    uint32_t cann = 0, timing;
    int32_t level;
    if (init == NULL || !simpler_log_is_threshold(init->log_level)) {
        return 1;
    }
    for (level = SIMPLER_CANN_DEBUG; level <= SIMPLER_CANN_ERROR; level++) {
        cann |= is_admitted(level) ? 1u << level : 0u;
    }
    timing = (cann & 1u << SIMPLER_CANN_INFO) != 0 ||
             ((cann & 1u << SIMPLER_CANN_WARN) != 0 && init->log_level <= SIMPLER_LOG_TIMING);
    __atomic_store_n(&latched_cann, cann, __ATOMIC_RELAXED);
    __atomic_store_n(&latched_timing, timing, __ATOMIC_RELAXED);
    return 0;
}

__attribute__((__format__(__printf__, 4, 0))) static void record(int32_t cann_level, const char *tag,
                                                                  const char *func, const char *fmt,
                                                                  va_list arguments) {
    char text[SIMPLER_DEVICE_LOG_BYTES];
    if ((__atomic_load_n(&latched_cann, __ATOMIC_RELAXED) & 1u << cann_level) == 0 || DlogRecord == NULL) {
        return;
    }
    if (vsnprintf(text, sizeof text, fmt == NULL ? "(null)" : fmt, arguments) < 0) {
        text[0] = 0;
    }
    DlogRecord(SIMPLER_DEVICE_LOG_MODULE, cann_level, "%s%s: %s", tag, func == NULL ? "?" : func, text);
}

void dev_vlog_error(const char *func, const char *fmt, va_list arguments) {
    record(SIMPLER_CANN_ERROR, "", func, fmt, arguments);
}

void dev_vlog_warn(const char *func, const char *fmt, va_list arguments) {
    record(SIMPLER_CANN_WARN, "", func, fmt, arguments);
}

void dev_vlog_timing(const char *func, const char *fmt, va_list arguments) {
    if (__atomic_load_n(&latched_timing, __ATOMIC_RELAXED) != 0) {
        record(SIMPLER_CANN_WARN, "[TIMING] ", func, fmt, arguments);
    }
}

void dev_vlog_info(const char *func, const char *fmt, va_list arguments) {
    record(SIMPLER_CANN_INFO, "", func, fmt, arguments);
}

void dev_vlog_debug(const char *func, const char *fmt, va_list arguments) {
    record(SIMPLER_CANN_DEBUG, "", func, fmt, arguments);
}

#ifdef __cplusplus
}
#endif
