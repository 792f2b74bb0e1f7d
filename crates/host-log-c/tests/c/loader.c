/* A program that owns its log and loads modules: loader DIRECTORY PLUGIN DEPENDENT.
 *
 * PLUGIN logs and exports a binder; DEPENDENT has none of its own but is linked to PLUGIN.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <simpler/host_log.h>
#include <simpler/host_log_binding.h>

static int failures;

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                             \
        }                                                                           \
    } while (0)

typedef void (*LogFn)(int n);

/* dlsym's answer as a function: strict C has no conversion between the two. */
static LogFn log_function(void *module) {
    LogFn function = NULL;
    void *symbol = dlsym(module, "plugin_log");
    memcpy(&function, &symbol, sizeof function);
    return function;
}

int main(int count, char **arguments) {
    SimplerHostLogState off_ladder;
    SimplerHostLogState *state = simpler_host_log_state();
    void *plugin, *dependent;
    EXPECT(count == 4);
    EXPECT(simpler_host_log_init(SIMPLER_LOG_INFO, arguments[1], 0) == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_bind_module(NULL, state) == SIMPLER_BIND_NULL_HANDLE);

    /* Linked to a module that has a binder: it is not the dependent's. */
    dependent = dlopen(arguments[3], RTLD_NOW | RTLD_LOCAL);
    EXPECT(dependent != NULL && dlsym(dependent, SIMPLER_HOST_LOG_BINDER) != NULL);
    EXPECT(simpler_host_log_find_binder(dependent) == NULL);
    EXPECT(simpler_host_log_bind_module(dependent, state) == SIMPLER_BIND_NO_BINDER);

    plugin = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    EXPECT(plugin != NULL);
    log_function(plugin)(1); /* silent */
    memset(&off_ladder, 0, sizeof off_ladder);
    off_ladder.threshold = 26;
    EXPECT(simpler_host_log_bind_module(plugin, NULL) == SIMPLER_BIND_NULL_STATE);
    EXPECT(simpler_host_log_bind_module(plugin, &off_ladder) == SIMPLER_BIND_OFF_LADDER);
    log_function(plugin)(2); /* still silent */
    EXPECT(simpler_host_log_bind_module(plugin, state) == SIMPLER_BIND_OK);
    log_function(plugin)(3);
    EXPECT(dlclose(plugin) == 0 && dlclose(dependent) == 0);
    for (int result = -3; result < 4; result++) {
        EXPECT(strlen(simpler_host_log_bind_text(result)) > 0);
    }
    EXPECT(simpler_host_log_close(10000) == SIMPLER_HOST_LOG_OK);
    return failures;
}
