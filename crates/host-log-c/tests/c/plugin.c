/* A plugin made of the headers alone, first of two files: what the tests call. */
#include <simpler/strace.h>

#include "plugin.h"

PLUGIN_FUNCTION void plugin_log(int n) { LOG_INFO("n=%d", n); }

PLUGIN_FUNCTION void plugin_log_many(int from, int count) {
    for (int n = from; n < from + count; n++) {
        LOG_WARN("record %d of the plugin", n);
    }
}

PLUGIN_FUNCTION void plugin_levels(void) {
    unified_log_debug(__func__, "debug %d", 10);
    unified_log_info(__func__, "info %d", 20);
    unified_log_timing(__func__, "timing %d", 25);
    unified_log_warn(__func__, "warn %d", 30);
    unified_log_error(__func__, "error %d", 40);
}

static int evaluations;

static int evaluated(void) { return ++evaluations; }

/* How often arguments of muted calls were evaluated. */
PLUGIN_FUNCTION int plugin_evaluations(void) {
    LOG_DEBUG("%d", evaluated());
    SIMPLER_SPAN_ATTRS((evaluated(), "name"), "n=%d", evaluated());
    SIMPLER_SPAN((evaluated(), "name"));
    return evaluations;
}

PLUGIN_FUNCTION int plugin_enabled(int level) { return unified_log_enabled(level); }

PLUGIN_FUNCTION int plugin_spans_enabled(void) { return unified_log_host_span_enabled(); }

PLUGIN_FUNCTION void plugin_tree(int n) {
    SIMPLER_SPAN_ATTRS(SIMPLER_EXT("plugin", "outer"), "n=%d kind=%s", n, "dense");
    {
        SIMPLER_SPAN(SIMPLER_EXT("plugin", "outer.inner"));
    }
    SIMPLER_SPAN_BEGIN(open, SIMPLER_EXT("plugin", "outer.open"));
    SIMPLER_SPAN_END(open);
}

PLUGIN_FUNCTION void plugin_invocation(unsigned long hid) {
    SIMPLER_INVOCATION("plugin_run", hid);
    SIMPLER_SPAN("plugin_run.bind");
}

PLUGIN_FUNCTION void plugin_raw_span(const SimplerHostSpan *span) { unified_log_host_span(span); }

PLUGIN_FUNCTION void plugin_text(const char *func, const char *fmt) {
    unified_log_at(SIMPLER_LOG_WARN, func, NULL, 0, fmt, 1, 2, 3);
}

/* errno after a text with it, a span and an invocation. */
PLUGIN_FUNCTION int plugin_errno(int value) {
    const char *volatile message = "%m"; /* the C library's, not C's */
    errno = value;
    unified_log_error(__func__, message, 0);
    plugin_tree(1);
    plugin_invocation(2);
    return errno;
}

/* A text at any number; gives how often the macro has evaluated it. */
PLUGIN_FUNCTION int plugin_at(int level) {
    int times = 0;
    SIMPLER_LOG_AT((times++, level), "at %d", level);
    return times;
}
