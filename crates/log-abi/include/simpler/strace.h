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
 * The macros that declare stand where a declaration may stand. No goto and no case label may jump over one into its
 * scope: the end of the block would end a span that never began. C++ compilers refuse that, clang refuses the macros
 * of blocks in C, too, gcc says nothing in C without -Wjump-misses-init. longjmp over a span leaves it without a
 * record and the thread's nesting one too deep until the enclosing span ends.
 *
 * While TIMING is muted a span reads no clock and evaluates neither its name nor its attributes; the decision
 * is taken where it begins. Names and attributes are copied when it ends: both must live as long as the span.
 *
 * Nesting. The owner of the log keeps {invocation, callable, depth} per thread, and spans of all modules of
 * the process, whatever their language, nest in it. Without an owner, that is with a state that offers no
 * context, every span has invocation 0 and depth 0: a module that can be unloaded keeps no thread-local
 * memory of its own. A span belongs to its thread.
 *
 * `simpler stacks` does not show these spans while they are open: the log hears of them when they end. It shows those
 * of the owner around them.
 *
 * Names are dotted. Those of a run (simpler_run.bind...) are the runtime's; any other producer says who it is,
 * ext.<producer>.<span>, for which there is SIMPLER_EXT("producer", "span"). Nothing is prefixed by itself.
 *
 * Attributes are key=value pairs between spaces; a value that needs a space escapes it itself (%20).
 *
 * Compiled with SIMPLER_HOST_STRACE 0 the macros leave nothing: no variable, no call, no string. Their arguments are
 * still checked by the compiler, and not evaluated. The functions and the C++ objects are then there and do nothing;
 * of those a compiler that does not optimise may keep the texts that they are given. Files compiled either way may be
 * linked into one module.
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

/* An open span. Its fields are nobody's but the functions' below. */
typedef struct SimplerSpanScope {
    const char *name;
    int64_t ts;
    int32_t depth;
    int32_t is_open; /* 0: muted when it began */
} SimplerSpanScope;

/* What attributes take before they are escaped, and what is cut shows as cut. */
#define SIMPLER_SPAN_ATTRS_BYTES (SIMPLER_LOG_RAW_ATTRS_BYTES + 1)

/* An open span with attributes. `attrs` is the caller's: SIMPLER_SPAN_ATTRS_BYTES of room for as long as the span, or
 * NULL for none. */
typedef struct SimplerAttributedSpanScope {
    SimplerSpanScope span;
    char *attrs;
} SimplerAttributedSpanScope;

/* An open invocation: its root span, and the context that it replaced. */
typedef struct SimplerInvocationScope {
    SimplerSpanScope root;
    SimplerSpanContext former;
    int32_t has_context;
} SimplerInvocationScope;

#if SIMPLER_HOST_STRACE

/* This thread's context in a state, NULL while nobody offers one. */
static inline SimplerSpanContext *simpler_span_context_in(SimplerHostLogState *state) {
    SimplerSpanContextFn give = state == NULL ? NULL : __atomic_load_n(&state->span_context, __ATOMIC_ACQUIRE);
    return give == NULL ? NULL : give();
}

/* As simpler_span_begin, in a context that the caller has looked up. */
static inline void simpler_span_begin_in(SimplerHostLogState *state, SimplerSpanContext *context,
                                         SimplerSpanScope *span, const char *name) {
    span->is_open = simpler_log_is_heard_by(state, SIMPLER_LOG_TIMING);
    if (!span->is_open) {
        return;
    }
    span->name = name;
    span->depth = context == NULL ? 0 : context->depth;
    if (context != NULL && context->depth != INT32_MAX) {
        context->depth++;
    }
    span->ts = simpler_log_monotonic_ns();
}

/* Begins a span; while TIMING is muted, one that does nothing. End it on the same thread, inner ones first. */
SIMPLER_LOG_SHARED void simpler_span_begin(SimplerSpanScope *span, const char *name);
SIMPLER_LOG_SHARED void simpler_span_begin(SimplerSpanScope *span, const char *name) {
    SimplerHostLogState *state = simpler_log_state();
    span->is_open = 0;
    if (simpler_log_is_heard_by(state, SIMPLER_LOG_TIMING)) {
        simpler_span_begin_in(state, simpler_span_context_in(state), span, name);
    }
}

/* What simpler_span_end and its like do with a span that is open. */
SIMPLER_LOG_SHARED void simpler_span_end_in(SimplerHostLogState *state, SimplerSpanContext *context,
                                            SimplerSpanScope *span, const char *attrs);
SIMPLER_LOG_SHARED void simpler_span_end_in(SimplerHostLogState *state, SimplerSpanContext *context,
                                            SimplerSpanScope *span, const char *attrs) {
    SimplerHostSpan event = {0, 0, 0, 0, 0, 0, NULL, NULL};
    int64_t end_ns = simpler_log_monotonic_ns();
    span->is_open = 0;
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
    simpler_log_emit_span(state, end_ns, &event);
}

SIMPLER_LOG_SHARED void simpler_span_end_with(SimplerSpanScope *span, const char *attrs);
SIMPLER_LOG_SHARED void simpler_span_end_with(SimplerSpanScope *span, const char *attrs) {
    SimplerHostLogState *state = simpler_log_state();
    simpler_span_end_in(state, simpler_span_context_in(state), span, attrs);
}

/* Ends a span: its record is emitted, the nesting is what it was. A second end does nothing. */
static inline void simpler_span_end(SimplerSpanScope *span) {
    if (span->is_open) {
        simpler_span_end_with(span, NULL);
    }
}

/* Begins a span with attributes, formatted before the clock is read: that time is not the span's. What does
 * not fit 192 bytes is cut and marked ~ in the record. `scope->attrs` is set before. */
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(3, 4) void simpler_span_begin_attrs(SimplerAttributedSpanScope *scope,
                                                                            const char *name, const char *fmt, ...);
SIMPLER_LOG_SHARED void simpler_span_begin_attrs(SimplerAttributedSpanScope *scope, const char *name,
                                                 const char *fmt, ...) {
    int saved_errno = errno;
    if (scope->attrs != NULL) {
        scope->attrs[0] = 0;
        if (unified_log_host_span_enabled() && fmt != NULL) {
            va_list arguments;
            va_start(arguments, fmt);
            vsnprintf(scope->attrs, SIMPLER_SPAN_ATTRS_BYTES, fmt, arguments);
            va_end(arguments);
        }
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
    SimplerHostLogState *state = simpler_log_state();
    SimplerSpanContext *context = simpler_span_context_in(state);
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
    simpler_span_begin_in(state, context, &scope.root, name);
    if (context != NULL && !scope.root.is_open) {
        context->depth = 1;
    }
    return scope;
}

/* Ends an invocation; the thread's former context comes back. */
SIMPLER_LOG_SHARED void simpler_invocation_end(SimplerInvocationScope *scope);
SIMPLER_LOG_SHARED void simpler_invocation_end(SimplerInvocationScope *scope) {
    SimplerHostLogState *state;
    SimplerSpanContext *context;
    if (!scope->root.is_open && !scope->has_context) {
        return;
    }
    state = simpler_log_state();
    context = simpler_span_context_in(state);
    if (scope->root.is_open) {
        simpler_span_end_in(state, context, &scope->root, NULL);
    }
    if (scope->has_context && context != NULL) {
        *context = scope->former;
    }
    scope->has_context = 0;
}

#ifdef __cplusplus
}
#endif

/* For a span that is no block: SIMPLER_SPAN_BEGIN declares `variable`, SIMPLER_SPAN_END ends it. */
#define SIMPLER_SPAN_BEGIN(variable, name) SIMPLER_STRACE_BEGIN(, variable, name)
#define SIMPLER_SPAN_END(variable) simpler_span_end(&(variable))
/* SIMPLER_SPAN_BEGIN_ATTRS(variable, name, "format", ...); ended by SIMPLER_SPAN_END_ATTRS. */
#define SIMPLER_SPAN_BEGIN_ATTRS(variable, ...) SIMPLER_STRACE_BEGIN_ATTRS(, variable, __VA_ARGS__)
#define SIMPLER_SPAN_END_ATTRS(variable) simpler_span_end_attrs(&(variable))
/* SIMPLER_INVOCATION_BEGIN(variable, name, hid) and its end. */
#define SIMPLER_INVOCATION_BEGIN(variable, name, hid) \
    SimplerInvocationScope variable = simpler_invocation_begin((name), (hid))
#define SIMPLER_INVOCATION_END(variable) simpler_invocation_end(&(variable))

/* A span until the end of the block. */
#define SIMPLER_SPAN(name) \
    SIMPLER_STRACE_BEGIN(__attribute__((unused, cleanup(simpler_span_end))), SIMPLER_STRACE_LOCAL, name)
/* SIMPLER_SPAN_ATTRS(name, "key=%d other=%s", ...): the same with attributes. */
#define SIMPLER_SPAN_ATTRS(...)                                                                              \
    SIMPLER_STRACE_BEGIN_ATTRS(__attribute__((unused, cleanup(simpler_span_end_attrs))), SIMPLER_STRACE_LOCAL, \
                               __VA_ARGS__)
/* An invocation of the callable `hid` until the end of the block, with its root span. */
#define SIMPLER_INVOCATION(name, hid)                        \
    __attribute__((unused, cleanup(simpler_invocation_end))) \
    SIMPLER_INVOCATION_BEGIN(SIMPLER_STRACE_LOCAL, name, hid)

/* The variables have values from the beginning, since who jumps over a value is told so. The room for attributes has
 * none, which would cost as much as a span. */
#define SIMPLER_STRACE_BEGIN(attributes, variable, name) \
    attributes SimplerSpanScope variable = {NULL, 0, 0, 0}; \
    if (unified_log_host_span_enabled()) {               \
        simpler_span_begin(&(variable), name);           \
    }
#define SIMPLER_STRACE_BEGIN_ATTRS(attributes, variable, ...) \
    SIMPLER_STRACE_BEGIN_ATTRS_(attributes, variable, SIMPLER_STRACE_JOIN(variable, _attrs), __VA_ARGS__)
#define SIMPLER_STRACE_BEGIN_ATTRS_(attributes, variable, room, ...)         \
    char room[SIMPLER_SPAN_ATTRS_BYTES];                                     \
    attributes SimplerAttributedSpanScope variable = {{NULL, 0, 0, 0}, room}; \
    if (unified_log_host_span_enabled()) {                                   \
        simpler_span_begin_attrs(&(variable), __VA_ARGS__);                  \
    }

#else /* compiled out */

/* Never defined: what is never called, so that arguments are checked and not evaluated. */
SIMPLER_LOG_PRINTF(2, 3) int simpler_strace_unevaluated(const char *name, const char *fmt, ...);
int simpler_strace_unevaluated_number(uint64_t hid);

SIMPLER_LOG_NOTHING void simpler_span_begin(SimplerSpanScope *span, const char *name) {
    span->name = name;
    span->is_open = 0;
}
SIMPLER_LOG_NOTHING void simpler_span_end(SimplerSpanScope *span) { (void)span; }
SIMPLER_LOG_PRINTF(3, 4) static inline void simpler_span_begin_attrs(SimplerAttributedSpanScope *scope,
                                                                     const char *name, const char *fmt, ...) {
    (void)fmt;
    simpler_span_begin(&scope->span, name);
}
SIMPLER_LOG_NOTHING void simpler_span_end_attrs(SimplerAttributedSpanScope *scope) { (void)scope; }
SIMPLER_LOG_NOTHING SimplerInvocationScope simpler_invocation_begin(const char *name, uint64_t hid) {
    SimplerInvocationScope scope = {{NULL, 0, 0, 0}, {0, 0, 0, 0}, 0};
    (void)hid;
    scope.root.name = name;
    return scope;
}
SIMPLER_LOG_NOTHING void simpler_invocation_end(SimplerInvocationScope *scope) { (void)scope; }

#ifdef __cplusplus
}
#endif

#define SIMPLER_SPAN(name)                                 \
    do {                                                   \
        if (0) {                                           \
            (void)simpler_strace_unevaluated((name), "-"); \
        }                                                  \
    } while (0)
#define SIMPLER_SPAN_ATTRS(...)                            \
    do {                                                   \
        if (0) {                                           \
            (void)simpler_strace_unevaluated(__VA_ARGS__); \
        }                                                  \
    } while (0)
#define SIMPLER_INVOCATION(name, hid)                      \
    do {                                                   \
        if (0) {                                           \
            (void)simpler_strace_unevaluated((name), "-"); \
            (void)simpler_strace_unevaluated_number(hid);  \
        }                                                  \
    } while (0)
#define SIMPLER_SPAN_BEGIN(variable, name) SIMPLER_SPAN(name)
#define SIMPLER_SPAN_END(variable) ((void)0)
#define SIMPLER_SPAN_BEGIN_ATTRS(variable, ...) SIMPLER_SPAN_ATTRS(__VA_ARGS__)
#define SIMPLER_SPAN_END_ATTRS(variable) ((void)0)
#define SIMPLER_INVOCATION_BEGIN(variable, name, hid) SIMPLER_INVOCATION(name, hid)
#define SIMPLER_INVOCATION_END(variable) ((void)0)

#endif

#ifdef __cplusplus

/* Classes of two files are one if they have one name, so those that do nothing have another. */
#if SIMPLER_HOST_STRACE
#define SIMPLER_STRACE_NAMESPACE strace_on
#else
#define SIMPLER_STRACE_NAMESPACE strace_off
#endif
#define SIMPLER_STRACE_CLASS class __attribute__((visibility("hidden")))
#define SIMPLER_STRACE_INLINE inline __attribute__((always_inline))

namespace simpler {
inline namespace SIMPLER_STRACE_NAMESPACE {

/* An open span that ends with its scope. */
SIMPLER_STRACE_CLASS SpanScope {
  public:
    SIMPLER_STRACE_INLINE explicit SpanScope(const char *name) { simpler_span_begin(&scope_, name); }
    SIMPLER_STRACE_INLINE ~SpanScope() { simpler_span_end(&scope_); }
    SpanScope(const SpanScope &) = delete;
    SpanScope &operator=(const SpanScope &) = delete;

  private:
    SimplerSpanScope scope_;
};

/* An open invocation that ends with its scope. */
SIMPLER_STRACE_CLASS InvocationScope {
  public:
    SIMPLER_STRACE_INLINE InvocationScope(const char *name, uint64_t hid)
        : scope_(simpler_invocation_begin(name, hid)) {}
    SIMPLER_STRACE_INLINE ~InvocationScope() { simpler_invocation_end(&scope_); }
    InvocationScope(const InvocationScope &) = delete;
    InvocationScope &operator=(const InvocationScope &) = delete;

  private:
    SimplerInvocationScope scope_;
};

} // namespace SIMPLER_STRACE_NAMESPACE
} // namespace simpler

#endif

#endif
