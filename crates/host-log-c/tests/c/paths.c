/* Spans and invocations end on every path out of their block, and put the nesting back. Ends with the number of
 * failures; its records go to stderr. */
#include <simpler/strace.h>
#include <stdlib.h>

static int failures;

#define EXPECT(condition)                                                       \
    do {                                                                        \
        if (!(condition)) {                                                     \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
            failures++;                                                         \
        }                                                                       \
    } while (0)

static SimplerSpanContext context;

#ifdef __cplusplus
extern "C" {
#endif
static SimplerSpanContext *give(void) { return &context; }
#ifdef __cplusplus
}
#endif

static int early(int n) {
    SIMPLER_SPAN("early");
    if (n > 0) {
        SIMPLER_SPAN_ATTRS("early.inner", "n=%d", n);
        EXPECT(context.depth == 3);
        return n;
    }
    return 0;
}

static void loops(void) {
    int n;
    for (n = 0; n < 4; n++) {
        SIMPLER_SPAN("loop");
        SIMPLER_SPAN("loop.inner"); SIMPLER_SPAN("loop.same_line");
        EXPECT(context.depth == 4);
        if (n == 1) {
            continue;
        }
        if (n == 2) {
            break;
        }
    }
    EXPECT(context.depth == 1);
    {
        SIMPLER_SPAN("left");
        goto out;
    }
out:
    EXPECT(context.depth == 1);
}

static void by_hand(void) {
    SIMPLER_SPAN_BEGIN(first, "first");
    SIMPLER_SPAN_BEGIN_ATTRS(second, "second", "k=%s", "v");
    EXPECT(context.depth == 3);
    SIMPLER_SPAN_END_ATTRS(second);
    SIMPLER_SPAN_END_ATTRS(second); /* once is enough */
    EXPECT(context.depth == 2);
    SIMPLER_SPAN_END(first);
    EXPECT(context.depth == 1);
}

static void nested_invocations(void) {
    SimplerSpanContext before = context;
    {
        SIMPLER_INVOCATION("inner", 9);
        EXPECT(context.inv == before.inv + 1 && context.hid == 9 && context.depth == 1);
    }
    EXPECT(memcmp(&before, &context, sizeof before) == 0);
}

static void endless_depth(void) {
    context.depth = INT32_MAX;
    {
        SIMPLER_SPAN("deepest");
        SIMPLER_SPAN("as deep");
        EXPECT(context.depth == INT32_MAX);
    }
    EXPECT(context.depth == INT32_MAX);
    context.depth = 1;
}

#ifdef __cplusplus
static void throws(void) {
    simpler::InvocationScope root("root", 5);
    simpler::SpanScope span("span");
    SIMPLER_SPAN_ATTRS("macro", "k=%d", 1);
    EXPECT(context.depth == 3);
    throw 7;
}
#endif

int main(void) {
    static SimplerHostLogState state;
    state.threshold = SIMPLER_LOG_TIMING;
    state.span_context = give;
    EXPECT(simpler_host_log_bind_state(&state) == SIMPLER_BIND_OK);
    {
        SIMPLER_INVOCATION("root", 7);
        /* 0 means none, so the first number drawn is 1. */
        EXPECT(context.inv == 1 && context.hid == 7 && context.depth == 1);
        EXPECT(early(1) == 1 && early(0) == 0 && context.depth == 1);
        loops();
        by_hand();
        nested_invocations();
        endless_depth();
#ifdef __cplusplus
        try {
            throws();
        } catch (int) {
            EXPECT(context.inv == 1 && context.depth == 1);
        }
#endif
        state.threshold = SIMPLER_LOG_ERROR;
        {
            SIMPLER_SPAN("muted");
            EXPECT(context.depth == 1);
            state.threshold = SIMPLER_LOG_TIMING;
        }
        state.threshold = SIMPLER_LOG_ERROR;
        {
            SIMPLER_INVOCATION("muted", 3);
            EXPECT(context.depth == 1 && context.hid == 3);
        }
        state.threshold = SIMPLER_LOG_TIMING;
    }
    EXPECT(context.inv == 0 && context.hid == 0 && context.depth == 0);
    EXPECT(state.dropped_record_count == 0);
    return failures;
}
