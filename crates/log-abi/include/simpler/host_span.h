/* What one span is on its way to the log, and the context that makes spans of several modules nest.
 *
 * Only data. How to emit a span is in unified_log.h, how to measure one in strace.h.
 */
#ifndef SIMPLER_HOST_SPAN_H
#define SIMPLER_HOST_SPAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One finished span. The logger adds pid, tid and the envelope, and escapes: both texts are raw. */
typedef struct SimplerHostSpan {
    uint64_t inv;      /* the invocation that the span belongs to, 0 outside any */
    uint64_t hid;      /* the identity of the callable that is being run, 0 outside any */
    int32_t depth;     /* nesting before the span was entered; a root has 0 */
    int32_t reserved;  /* 0 */
    int64_t ts;        /* start, ns of CLOCK_MONOTONIC (of the device's own axis for clk=dev spans) */
    int64_t dur;       /* length, ns */
    const char *name;  /* dotted, zero-terminated, up to 64 bytes once escaped; without one nothing is emitted */
    const char *attrs; /* key=value pairs between spaces, up to 192 bytes once escaped; NULL for none */
} SimplerHostSpan;

/* The open invocation of one thread. It lives in the owner's memory, so that every module of the process
 * sees the same nesting. */
typedef struct SimplerSpanContext {
    uint64_t inv;     /* the invocation, 0 outside any */
    uint64_t hid;     /* its callable, 0 outside any */
    int32_t depth;    /* how many spans of this thread are open */
    int32_t reserved; /* 0 */
} SimplerSpanContext;

/* Gives the calling thread's context: valid on that thread only, for as long as it lives. Any thread may
 * call it at any time, also between fork and exec. It never returns NULL. */
typedef SimplerSpanContext *(*SimplerSpanContextFn)(void);

#ifdef __cplusplus
}
#endif

#endif
