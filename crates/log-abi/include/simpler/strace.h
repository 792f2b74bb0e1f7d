/* Spans: how long a piece of code took, nested, as [STRACE] records of the log.
 *
 *     #include <simpler/strace.h>
 *     void load(int layers) {
 *         SIMPLER_SPAN_ATTRS("ext.loader.load", "layers=%d", layers);  // until the end of the block
 *         {
 *             SIMPLER_SPAN("ext.loader.load.read");
 *             ...
 *         }
 *     }
 *
 * A span is a local object: it ends on every path out of its block, by the compiler's cleanup attribute, in
 * C++ also when an exception passes; simpler::SpanScope and simpler::InvocationScope are the same as C++ objects.
 * The macros that declare stand where a declaration may stand. longjmp over it leaves it without a record and
 * the thread's nesting one too deep until the enclosing span ends.
 *
 * While TIMING is muted a span reads no clock and evaluates neither its name nor its attributes; the decision
 * is taken where it begins. Names and attributes are copied when it ends: both must live as long as the span.
 *
 * Nesting. The owner of the log keeps {invocation, callable, depth} per thread, and spans of all modules of
 * the process, whatever their language, nest in it. Without an owner, that is with a state that offers no
 * context, every span has invocation 0 and depth 0: a module that can be unloaded keeps no thread-local
 * memory of its own. A span belongs to its thread.
 *
 * Names are dotted. Those of a run (simpler_run.bind...) are the runtime's; any other producer says who it is,
 * ext.<producer>.<span>, for which there is SIMPLER_EXT("producer", "span"). Nothing is prefixed by itself.
 *
 * Attributes are key=value pairs between spaces; a value that needs a space escapes it itself (%20).
 *
 * Compiled with SIMPLER_HOST_STRACE 0 all of these leave nothing: no call, no string. Their arguments are
 * still checked by the compiler, and not evaluated.
 *
 * Threads, fork, signals: as unified_log.h says. A span that is open over a fork ends in both processes.
 */
#ifndef SIMPLER_STRACE_H
#define SIMPLER_STRACE_H

#include <simpler/unified_log.h>

/* The name of a span of a producer that is not the runtime: SIMPLER_EXT("serving", "schedule"). */
#define SIMPLER_EXT(producer, span) "ext." producer "." span

#define SIMPLER_STRACE_JOIN_(a, b) a##b
#define SIMPLER_STRACE_JOIN(a, b) SIMPLER_STRACE_JOIN_(a, b)
#define SIMPLER_STRACE_LOCAL SIMPLER_STRACE_JOIN(simpler_span_local_, __COUNTER__)

#ifdef __cplusplus
extern "C" {
#endif

/* Never defined: stands in sizeof, so that arguments are checked and not evaluated. */
SIMPLER_LOG_PRINTF(2, 3) int simpler_strace_unevaluated(const char *name, const char *fmt, ...);

#ifdef __cplusplus
}
#endif

#if SIMPLER_HOST_STRACE

#ifdef __cplusplus
extern "C" {
#endif

/* An open span. Its fields are nobody's but the functions' below. */
typedef struct SimplerSpanScope {
    const char *name;
    int64_t ts;
    int32_t depth;
    int32_t is_open; /* 0: muted when it began */
} SimplerSpanScope;

/* An open span with attributes. */
typedef struct SimplerAttributedSpanScope {
    SimplerSpanScope span;
    char attrs[SIMPLER_LOG_RAW_ATTRS_BYTES + 1];
} SimplerAttributedSpanScope;

/* An open invocation: its root span, and the context that it replaced. */
typedef struct SimplerInvocationScope {
    SimplerSpanScope root;
    SimplerSpanContext former;
    int32_t has_context;
} SimplerInvocationScope;

/* This thread's context, NULL while nobody offers one. */
static inline SimplerSpanContext *simpler_span_context(void) {
    SimplerHostLogState *state = __atomic_load_n(&simpler_log_module.state, __ATOMIC_ACQUIRE);
    SimplerSpanContextFn give = state == NULL ? NULL : __atomic_load_n(&state->span_context, __ATOMIC_ACQUIRE);
    return give == NULL ? NULL : give();
}

/* Begins a span; while TIMING is muted, one that does nothing. End it on the same thread, inner ones first. */
SIMPLER_LOG_SHARED void simpler_span_begin(SimplerSpanScope *span, const char *name);
SIMPLER_LOG_SHARED void simpler_span_begin(SimplerSpanScope *span, const char *name) {
    SimplerSpanContext *context;
    span->is_open = unified_log_host_span_enabled();
    if (!span->is_open) {
        return;
    }
    context = simpler_span_context();
    span->name = name;
    span->depth = context == NULL ? 0 : context->depth;
    if (context != NULL && context->depth != INT32_MAX) {
        context->depth++;
    }
    span->ts = simpler_log_monotonic_ns();
}

/* What simpler_span_end and its like do with a span that is open. */
SIMPLER_LOG_SHARED void simpler_span_end_with(SimplerSpanScope *span, const char *attrs);
SIMPLER_LOG_SHARED void simpler_span_end_with(SimplerSpanScope *span, const char *attrs) {
    SimplerHostSpan event = {0, 0, 0, 0, 0, 0, NULL, NULL};
    SimplerSpanContext *context;
    int64_t end_ns = simpler_log_monotonic_ns();
    span->is_open = 0;
    context = simpler_span_context();
    if (context != NULL) {
        context->depth = span->depth;
        event.inv = context->inv;
        event.hid = context->hid;
    }
    event.depth = span->depth;
    event.ts = span->ts;
    event.dur = end_ns - span->ts;
    event.name = span->name;
    event.attrs = attrs;
    simpler_log_emit_span(end_ns, &event);
}

/* Ends a span: its record is emitted, the nesting is what it was. A second end does nothing. */
static inline void simpler_span_end(SimplerSpanScope *span) {
    if (span->is_open) {
        simpler_span_end_with(span, NULL);
    }
}

/* Begins a span with attributes, formatted before the clock is read: that time is not the span's. What does
 * not fit 192 bytes is cut and marked ~ in the record. */
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(3, 4) void simpler_span_begin_attrs(SimplerAttributedSpanScope *scope,
                                                                            const char *name, const char *fmt, ...);
SIMPLER_LOG_SHARED void simpler_span_begin_attrs(SimplerAttributedSpanScope *scope, const char *name,
                                                 const char *fmt, ...) {
    int saved_errno = errno;
    scope->attrs[0] = 0;
    if (unified_log_host_span_enabled() && fmt != NULL) {
        va_list arguments;
        va_start(arguments, fmt);
        vsnprintf(scope->attrs, sizeof scope->attrs, fmt, arguments);
        va_end(arguments);
    }
    errno = saved_errno;
    simpler_span_begin(&scope->span, name);
}

static inline void simpler_span_end_attrs(SimplerAttributedSpanScope *scope) {
    if (scope->span.is_open) {
        simpler_span_end_with(&scope->span, scope->attrs);
    }
}

/* Begins an invocation with a number of its own and opens its root span at depth 0. The number is drawn even
 * while muted, and a muted root takes its place in the nesting, so that a span heard later is the child of a
 * root that is missing, not a root. Without a context it is a plain span. */
SIMPLER_LOG_SHARED SimplerInvocationScope simpler_invocation_begin(const char *name, uint64_t hid);
SIMPLER_LOG_SHARED SimplerInvocationScope simpler_invocation_begin(const char *name, uint64_t hid) {
    SimplerInvocationScope scope;
    SimplerHostLogState *state = __atomic_load_n(&simpler_log_module.state, __ATOMIC_ACQUIRE);
    SimplerSpanContext *context = simpler_span_context();
    memset(&scope, 0, sizeof scope);
    if (context != NULL) {
        uint64_t inv;
        do { /* 0 means none */
            inv = __atomic_fetch_add(&state->next_invocation_id, 1, __ATOMIC_RELAXED);
        } while (inv == 0);
        scope.former = *context;
        scope.has_context = 1;
        context->inv = inv;
        context->hid = hid;
        context->depth = 0;
    }
    simpler_span_begin(&scope.root, name);
    if (context != NULL && !scope.root.is_open) {
        context->depth = 1;
    }
    return scope;
}

/* Ends an invocation; the thread's former context comes back. */
SIMPLER_LOG_SHARED void simpler_invocation_end(SimplerInvocationScope *scope);
SIMPLER_LOG_SHARED void simpler_invocation_end(SimplerInvocationScope *scope) {
    simpler_span_end(&scope->root);
    if (scope->has_context) {
        SimplerSpanContext *context = simpler_span_context();
        scope->has_context = 0;
        if (context != NULL) {
            *context = scope->former;
        }
    }
}

#ifdef __cplusplus
}
#endif

/* For a span that is no block: SIMPLER_SPAN_BEGIN declares `variable`, SIMPLER_SPAN_END ends it. */
#define SIMPLER_SPAN_BEGIN(variable, name)     \
    SimplerSpanScope variable;                 \
    if (unified_log_host_span_enabled()) {     \
        simpler_span_begin(&(variable), name); \
    } else                                     \
        (variable).is_open = 0
#define SIMPLER_SPAN_END(variable) simpler_span_end(&(variable))
/* SIMPLER_SPAN_BEGIN_ATTRS(variable, name, "format", ...); ended by SIMPLER_SPAN_END_ATTRS. */
#define SIMPLER_SPAN_BEGIN_ATTRS(variable, ...)             \
    SimplerAttributedSpanScope variable;                    \
    if (unified_log_host_span_enabled()) {                  \
        simpler_span_begin_attrs(&(variable), __VA_ARGS__); \
    } else                                                  \
        (variable).span.is_open = 0
#define SIMPLER_SPAN_END_ATTRS(variable) simpler_span_end_attrs(&(variable))
/* SIMPLER_INVOCATION_BEGIN(variable, name, hid) and its end. */
#define SIMPLER_INVOCATION_BEGIN(variable, name, hid) \
    SimplerInvocationScope variable = simpler_invocation_begin((name), (hid))
#define SIMPLER_INVOCATION_END(variable) simpler_invocation_end(&(variable))

#ifdef __cplusplus

namespace simpler {

/* An open span that ends with its scope. */
class SpanScope {
  public:
    explicit SpanScope(const char *name) { simpler_span_begin(&scope_, name); }
    ~SpanScope() { simpler_span_end(&scope_); }
    SpanScope(const SpanScope &) = delete;
    SpanScope &operator=(const SpanScope &) = delete;

  private:
    SimplerSpanScope scope_;
};

/* An open invocation that ends with its scope. */
class InvocationScope {
  public:
    InvocationScope(const char *name, uint64_t hid) : scope_(simpler_invocation_begin(name, hid)) {}
    ~InvocationScope() { simpler_invocation_end(&scope_); }
    InvocationScope(const InvocationScope &) = delete;
    InvocationScope &operator=(const InvocationScope &) = delete;

  private:
    SimplerInvocationScope scope_;
};

} // namespace simpler

#endif

/* A span until the end of the block. */
#define SIMPLER_SPAN(name) SIMPLER_SPAN_SCOPE(SIMPLER_STRACE_LOCAL, name)
#define SIMPLER_SPAN_SCOPE(variable, name) \
    __attribute__((unused, cleanup(simpler_span_end))) SIMPLER_SPAN_BEGIN(variable, name)
/* SIMPLER_SPAN_ATTRS(name, "key=%d other=%s", ...): the same with attributes. */
#define SIMPLER_SPAN_ATTRS(...) SIMPLER_SPAN_ATTRS_SCOPE(SIMPLER_STRACE_LOCAL, __VA_ARGS__)
#define SIMPLER_SPAN_ATTRS_SCOPE(variable, ...) \
    __attribute__((unused, cleanup(simpler_span_end_attrs))) SIMPLER_SPAN_BEGIN_ATTRS(variable, __VA_ARGS__)
/* An invocation of the callable `hid` until the end of the block, with its root span. */
#define SIMPLER_INVOCATION(name, hid) SIMPLER_INVOCATION_SCOPE(SIMPLER_STRACE_LOCAL, name, hid)
#define SIMPLER_INVOCATION_SCOPE(variable, name, hid) \
    __attribute__((unused, cleanup(simpler_invocation_end))) SIMPLER_INVOCATION_BEGIN(variable, name, hid)

#else /* compiled out */

#define SIMPLER_SPAN(name) ((void)sizeof(simpler_strace_unevaluated((name), "-")))
#define SIMPLER_SPAN_ATTRS(...) ((void)sizeof(simpler_strace_unevaluated(__VA_ARGS__)))
#define SIMPLER_INVOCATION(name, hid) \
    ((void)(sizeof(simpler_strace_unevaluated((name), "-")) + sizeof((uint64_t)(hid))))
#define SIMPLER_SPAN_BEGIN(variable, name) SIMPLER_SPAN(name)
#define SIMPLER_SPAN_END(variable) ((void)0)
#define SIMPLER_SPAN_BEGIN_ATTRS(variable, ...) SIMPLER_SPAN_ATTRS(__VA_ARGS__)
#define SIMPLER_SPAN_END_ATTRS(variable) ((void)0)
#define SIMPLER_INVOCATION_BEGIN(variable, name, hid) SIMPLER_INVOCATION(name, hid)
#define SIMPLER_INVOCATION_END(variable) ((void)0)

#ifdef __cplusplus

namespace simpler {

class SpanScope {
  public:
    explicit SpanScope(const char *) {}
};

class InvocationScope {
  public:
    InvocationScope(const char *, uint64_t) {}
};

} // namespace simpler

#endif

#endif

#endif
