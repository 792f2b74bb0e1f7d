/* The ladder of severities: what a record has, and what a process admits.
 *
 * The values are those of Python's logging. A record has one of the five levels; a threshold is one of
 * them or NUL, which admits nothing. The two round in opposite directions: who asks for threshold 35 must
 * not be given warnings, but a record at 35 is a warning that someone gave a number of their own.
 *
 * Everything here is a pure function of its arguments: any thread, any time, also in a signal handler.
 */
#ifndef SIMPLER_LOG_LEVEL_H
#define SIMPLER_LOG_LEVEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SIMPLER_LOG_DEBUG = 10,  /* details for whoever works on the code */
    SIMPLER_LOG_INFO = 20,   /* progress of normal work */
    SIMPLER_LOG_TIMING = 25, /* spans and the clock anchor; the default threshold lets these through */
    SIMPLER_LOG_WARN = 30,   /* something is off, work goes on */
    SIMPLER_LOG_ERROR = 40,  /* something failed */
    SIMPLER_LOG_NUL = 60     /* as a threshold: nothing at all */
};

/* The levels of CANN's device log. It has no TIMING: TIMING and WARN both become WARN, so that the default
 * threshold does not open the vendor's INFO stream. */
enum {
    SIMPLER_CANN_DEBUG = 0,
    SIMPLER_CANN_INFO = 1,
    SIMPLER_CANN_WARN = 2,
    SIMPLER_CANN_ERROR = 3,
    SIMPLER_CANN_NUL = 4
};

/* Whether `value` is a threshold: on the ladder, NUL included. */
static inline int simpler_log_is_threshold(int32_t value) {
    return value == SIMPLER_LOG_DEBUG || value == SIMPLER_LOG_INFO || value == SIMPLER_LOG_TIMING ||
           value == SIMPLER_LOG_WARN || value == SIMPLER_LOG_ERROR || value == SIMPLER_LOG_NUL;
}

/* The threshold that the wish `value` gets: the smallest of the ladder not below it, NUL above ERROR. */
static inline int32_t simpler_log_round_threshold(int32_t value) {
    return value <= SIMPLER_LOG_DEBUG    ? SIMPLER_LOG_DEBUG
           : value <= SIMPLER_LOG_INFO   ? SIMPLER_LOG_INFO
           : value <= SIMPLER_LOG_TIMING ? SIMPLER_LOG_TIMING
           : value <= SIMPLER_LOG_WARN   ? SIMPLER_LOG_WARN
           : value <= SIMPLER_LOG_ERROR  ? SIMPLER_LOG_ERROR
                                         : SIMPLER_LOG_NUL;
}

/* The level of a record that carries the number `value`: the largest not above it, DEBUG below the ladder. */
static inline int32_t simpler_log_round_record(int32_t value) {
    return value >= SIMPLER_LOG_ERROR    ? SIMPLER_LOG_ERROR
           : value >= SIMPLER_LOG_WARN   ? SIMPLER_LOG_WARN
           : value >= SIMPLER_LOG_TIMING ? SIMPLER_LOG_TIMING
           : value >= SIMPLER_LOG_INFO   ? SIMPLER_LOG_INFO
                                         : SIMPLER_LOG_DEBUG;
}

/* The level that CANN's device log is set to for a threshold or a level of the ladder. */
static inline int32_t simpler_log_cann_level(int32_t value) {
    return value <= SIMPLER_LOG_DEBUG   ? SIMPLER_CANN_DEBUG
           : value <= SIMPLER_LOG_INFO  ? SIMPLER_CANN_INFO
           : value <= SIMPLER_LOG_WARN  ? SIMPLER_CANN_WARN
           : value <= SIMPLER_LOG_ERROR ? SIMPLER_CANN_ERROR
                                        : SIMPLER_CANN_NUL;
}

/* The name of a level as it stands in a record's envelope; the number is rounded as a record's is. */
static inline const char *simpler_log_level_name(int32_t value) {
    return value >= SIMPLER_LOG_ERROR    ? "ERROR"
           : value >= SIMPLER_LOG_WARN   ? "WARN"
           : value >= SIMPLER_LOG_TIMING ? "TIMING"
           : value >= SIMPLER_LOG_INFO   ? "INFO"
                                         : "DEBUG";
}

#ifdef __cplusplus
}
#endif

#endif
