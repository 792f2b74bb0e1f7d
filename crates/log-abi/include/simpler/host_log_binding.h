/* The loader's side of binding: find a module's binder on its handle and hand it the process's state.
 *
 *     void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
 *     int bound = simpler_host_log_bind_module(module, state);
 *     if (bound != SIMPLER_BIND_OK && bound != SIMPLER_BIND_NO_BINDER) { ... }
 *     // only now call the module's functions
 *
 * Needs only this header; with a C library older than glibc 2.34, also -ldl.
 */
#ifndef SIMPLER_HOST_LOG_BINDING_H
#define SIMPLER_HOST_LOG_BINDING_H

#include <stddef.h>

#include <simpler/host_log_state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one symbol of a logging module. */
#define SIMPLER_HOST_LOG_BINDER "simpler_host_log_bind_state"

/* What simpler_host_log_bind_module returns besides the binder's own results. */
enum {
    SIMPLER_BIND_NULL_HANDLE = -1, /* there is no module */
    SIMPLER_BIND_NO_BINDER = -2    /* the module does not log: nothing to do */
};

/* The result in words, in lower case without a full stop; never NULL. */
static inline const char *simpler_host_log_bind_text(int result) {
    return result == SIMPLER_BIND_OK            ? "bound"
           : result == SIMPLER_BIND_NULL_STATE  ? "the log state to bind is null"
           : result == SIMPLER_BIND_OFF_LADDER  ? "the log state's threshold is no value of the level ladder"
           : result == SIMPLER_BIND_NULL_HANDLE ? "there is no module to bind"
           : result == SIMPLER_BIND_NO_BINDER   ? "the module does not export " SIMPLER_HOST_LOG_BINDER
                                                : "the module's binder refused the log state";
}

/* dlsym, dladdr and dlinfo under names of our own: strict C11 has no dlfcn.h to disagree with, and no
 * conversion from a pointer to data to one to a function. */
struct simpler_binding_symbol_info {
    const char *file_name;
    void *file_base;
    const char *symbol_name;
    void *symbol;
};
struct simpler_binding_link_map { /* the public head of glibc's struct link_map */
    unsigned long load_bias;
    char *file_name;
    void *dynamic_section;
};
extern SimplerHostLogBindFn simpler_binding_sys_binder(void *handle, const char *name) __asm__("dlsym");
extern void *simpler_binding_sys_symbol(void *handle, const char *name) __asm__("dlsym");
extern int simpler_binding_sys_dladdr(const void *address, struct simpler_binding_symbol_info *) __asm__("dladdr");
extern int simpler_binding_sys_dlinfo(void *handle, int request, void *answer) __asm__("dlinfo");

/* The binder that the module behind a dlopen handle itself exports, or NULL. dlsym also looks into what the
 * module depends on; a binder found there is another module's, and is not given. Threads: as dlsym. */
static inline SimplerHostLogBindFn simpler_host_log_find_binder(void *handle) {
    enum { RTLD_DI_LINKMAP_REQUEST = 2 };
    struct simpler_binding_symbol_info of_binder, of_module;
    struct simpler_binding_link_map *map = NULL;
    void *address = handle == NULL ? NULL : simpler_binding_sys_symbol(handle, SIMPLER_HOST_LOG_BINDER);
    if (address == NULL || simpler_binding_sys_dlinfo(handle, RTLD_DI_LINKMAP_REQUEST, &map) != 0 ||
        map == NULL || !simpler_binding_sys_dladdr(address, &of_binder) ||
        !simpler_binding_sys_dladdr(map->dynamic_section, &of_module) ||
        of_binder.file_base != of_module.file_base) {
        return NULL;
    }
    return simpler_binding_sys_binder(handle, SIMPLER_HOST_LOG_BINDER);
}

/* Binds `state` in the module behind a dlopen handle: the binder's result, or one of the above. Call it after
 * dlopen and before the module's own functions. Ownership: the handle stays the caller's, the state stays the
 * owner's and must outlive the module. Threads: as dlsym; errno may change. Fork: nothing special. */
static inline int simpler_host_log_bind_module(void *handle, SimplerHostLogState *state) {
    SimplerHostLogBindFn bind;
    if (handle == NULL) {
        return SIMPLER_BIND_NULL_HANDLE;
    }
    bind = simpler_host_log_find_binder(handle);
    return bind == NULL ? (int)SIMPLER_BIND_NO_BINDER : bind(state);
}

#ifdef __cplusplus
}
#endif

#endif
