/* Logging on the AICPU: the five functions that device code calls on both platforms, and what is behind them.
 *
 *     #include <simpler/device_log.h>
 *     dev_vlog_info(__func__, "%d tasks", arguments);   or, as anywhere,   LOG_INFO("%d tasks", n);
 *
 * Sim (SIMPLER_ONBOARD not defined): the AICPU is threads of the host process, so the functions are thin adapters
 * into the module's host logger (unified_log.h): same live threshold, same records, same file.
 *
 * Silicon (-DSIMPLER_ONBOARD): there is no host process. The functions are undefined here and resolved on the
 * device, by device/device_log.c in the binary of the AICPU runtime, which hands the records to CANN's dlog. The
 * macros LOG_*, and the functions unified_log_* under their own names, become static calls of the five; the host's
 * logger is not compiled, and unified_log.h, included later, is empty.
 *
 * What is different on silicon: the level is the device's, latched when the device was opened, so a LOG_ macro
 * evaluates its arguments even if the record is not written; a record's body has at most 1023 bytes; the host's spans
 * do not exist (the phase buffer is the device's way to time), so strace.h is compiled out. TIMING is written as CANN's
 * WARN with the tag [TIMING].
 *
 * Threads: any. C11 or C++11 and later. Never run on silicon.
 */
#ifndef SIMPLER_DEVICE_LOG_H
#define SIMPLER_DEVICE_LOG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <simpler/log_level.h>

#define SIMPLER_DEVICE_LOG_FORMAT(text, first) __attribute__((__format__(__printf__, text, first)))

#ifndef SIMPLER_ONBOARD

#include <simpler/unified_log.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Weak and hidden, as all of the module's logger. */
#define SIMPLER_DEVICE_LOG_DEFINE(name, level)                                                                   \
    SIMPLER_LOG_SHARED SIMPLER_DEVICE_LOG_FORMAT(2, 0) void name(const char *func, const char *fmt, va_list);    \
    SIMPLER_LOG_SHARED void name(const char *func, const char *fmt, va_list arguments) {                         \
        simpler_log_emit_text((level), func, NULL, 0, fmt, arguments);                                           \
    }
SIMPLER_DEVICE_LOG_DEFINE(dev_vlog_error, SIMPLER_LOG_ERROR)
SIMPLER_DEVICE_LOG_DEFINE(dev_vlog_warn, SIMPLER_LOG_WARN)
SIMPLER_DEVICE_LOG_DEFINE(dev_vlog_timing, SIMPLER_LOG_TIMING)
SIMPLER_DEVICE_LOG_DEFINE(dev_vlog_info, SIMPLER_LOG_INFO)
SIMPLER_DEVICE_LOG_DEFINE(dev_vlog_debug, SIMPLER_LOG_DEBUG)
#undef SIMPLER_DEVICE_LOG_DEFINE

#ifdef __cplusplus
}
#endif

#else /* silicon */

#ifdef SIMPLER_UNIFIED_LOG_H
#error "the host's logger is in this file already: a build for silicon searches include/silicon first"
#endif
#define SIMPLER_UNIFIED_LOG_H

#include <simpler/host_span.h>

/* What strace.h needs to compile to nothing. */
#undef SIMPLER_HOST_STRACE
#define SIMPLER_HOST_STRACE 0
#define SIMPLER_LOG_NOTHING static inline __attribute__((always_inline))
#define SIMPLER_LOG_PRINTF SIMPLER_DEVICE_LOG_FORMAT

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a record of one level, if the device's latched level lets it through: `func: ` and the formatted body. A
 * NULL `func` is written as ?, a NULL `fmt` as (null). Before the init kernel has run nothing is written. */
SIMPLER_DEVICE_LOG_FORMAT(2, 0) void dev_vlog_error(const char *func, const char *fmt, va_list arguments);
SIMPLER_DEVICE_LOG_FORMAT(2, 0) void dev_vlog_warn(const char *func, const char *fmt, va_list arguments);
SIMPLER_DEVICE_LOG_FORMAT(2, 0) void dev_vlog_timing(const char *func, const char *fmt, va_list arguments);
SIMPLER_DEVICE_LOG_FORMAT(2, 0) void dev_vlog_info(const char *func, const char *fmt, va_list arguments);
SIMPLER_DEVICE_LOG_FORMAT(2, 0) void dev_vlog_debug(const char *func, const char *fmt, va_list arguments);

/* ---- What the names of unified_log.h become: local, so that no module defines one for another ---------- */

#define SIMPLER_DEVICE_LOG_DEFINE(level)                                                                         \
    SIMPLER_DEVICE_LOG_FORMAT(2, 3)                                                                              \
    static inline void simpler_device_log_##level(const char *func, const char *fmt, ...) {                      \
        va_list arguments;                                                                                       \
        va_start(arguments, fmt);                                                                                \
        dev_vlog_##level(func, fmt, arguments);                                                                  \
        va_end(arguments);                                                                                       \
    }
SIMPLER_DEVICE_LOG_DEFINE(error)
SIMPLER_DEVICE_LOG_DEFINE(warn)
SIMPLER_DEVICE_LOG_DEFINE(timing)
SIMPLER_DEVICE_LOG_DEFINE(info)
SIMPLER_DEVICE_LOG_DEFINE(debug)
#undef SIMPLER_DEVICE_LOG_DEFINE

/* Room for `[file:line] ` and a format; a format that does not fit loses the place, not its end. */
enum { SIMPLER_DEVICE_LOG_FORMAT_BYTES = 512 };

/* Writes `[file:line] ` and `fmt` to `out`, and returns it, or `fmt` if there is no room or no file. */
static inline const char *simpler_device_log_place(char *out, const char *file, int line, const char *fmt) {
    char digits[12];
    const char *base = file, *from;
    size_t at = 0, count = 0;
    unsigned rest = line > 0 ? (unsigned)line : 0;
    if (file == NULL || fmt == NULL) {
        return fmt;
    }
    for (from = file; *from != 0; from++) {
        if (*from == '/') {
            base = from + 1;
        }
    }
    out[at++] = '[';
    for (from = base; *from != 0; from++) {
        if (at + 2 >= SIMPLER_DEVICE_LOG_FORMAT_BYTES) {
            return fmt;
        }
        if (*from == '%') { /* a format it will be */
            out[at++] = '%';
        }
        out[at++] = *from;
    }
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (at + count + 4 >= SIMPLER_DEVICE_LOG_FORMAT_BYTES) {
        return fmt;
    }
    out[at++] = ':';
    while (count != 0) {
        out[at++] = digits[--count];
    }
    out[at++] = ']';
    out[at++] = ' ';
    for (from = fmt; *from != 0; from++) {
        if (at + 1 >= SIMPLER_DEVICE_LOG_FORMAT_BYTES) {
            return fmt;
        }
        out[at++] = *from;
    }
    out[at] = 0;
    return out;
}

/* The level is a number that is rounded down to the ladder. */
SIMPLER_DEVICE_LOG_FORMAT(5, 6)
static inline void simpler_device_log_at(int32_t level, const char *func, const char *file, int line,
                                         const char *fmt, ...) {
    char placed[SIMPLER_DEVICE_LOG_FORMAT_BYTES];
    va_list arguments;
    va_start(arguments, fmt);
    fmt = simpler_device_log_place(placed, file, line, fmt);
    switch (simpler_log_round_record(level)) {
    case SIMPLER_LOG_ERROR:
        dev_vlog_error(func, fmt, arguments);
        break;
    case SIMPLER_LOG_WARN:
        dev_vlog_warn(func, fmt, arguments);
        break;
    case SIMPLER_LOG_TIMING:
        dev_vlog_timing(func, fmt, arguments);
        break;
    case SIMPLER_LOG_INFO:
        dev_vlog_info(func, fmt, arguments);
        break;
    default:
        dev_vlog_debug(func, fmt, arguments);
        break;
    }
    va_end(arguments);
}

#ifdef __cplusplus
}
#endif

#define unified_log_error simpler_device_log_error
#define unified_log_warn simpler_device_log_warn
#define unified_log_timing simpler_device_log_timing
#define unified_log_info simpler_device_log_info
#define unified_log_debug simpler_device_log_debug
#define unified_log_at simpler_device_log_at
/* Only the device knows, and is asked with each record. */
#define unified_log_enabled(level) ((void)(level), 1)
#define unified_log_host_span_enabled() 0
#define unified_log_host_span(span) ((void)(span))

#define SIMPLER_LOG_AT(level, ...) simpler_device_log_at((level), __func__, __FILE__, __LINE__, __VA_ARGS__)
#define LOG_DEBUG(...) SIMPLER_LOG_AT(SIMPLER_LOG_DEBUG, __VA_ARGS__)
#define LOG_INFO(...) SIMPLER_LOG_AT(SIMPLER_LOG_INFO, __VA_ARGS__)
#define LOG_TIMING(...) SIMPLER_LOG_AT(SIMPLER_LOG_TIMING, __VA_ARGS__)
#define LOG_WARN(...) SIMPLER_LOG_AT(SIMPLER_LOG_WARN, __VA_ARGS__)
#define LOG_ERROR(...) SIMPLER_LOG_AT(SIMPLER_LOG_ERROR, __VA_ARGS__)

#endif /* silicon */

#endif
