/* A stand-in for CANN: one library with the functions that are used, which does nothing but record.
 *
 * Each call appends a line to a text that the test reads. Device memory is the host's. Written from the public
 * prototypes alone, so what the real one does beside is not in it. For one thread at a time.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char calls[1 << 16];
static size_t used;
static char failing[64];
static int calls_until_failure, failure;

/* For the tests: the record so far, which is then empty. */
const char *stand_in_take_calls(void);
const char *stand_in_take_calls(void) {
    static char taken[sizeof calls];
    memcpy(taken, calls, used);
    taken[used] = 0;
    used = 0;
    return taken;
}

/* For the tests: the call after `earlier` more calls of `function` returns `code`, once. */
void stand_in_fail(const char *function, int earlier, int code);
void stand_in_fail(const char *function, int earlier, int code) {
    snprintf(failing, sizeof failing, "%s", function);
    calls_until_failure = earlier;
    failure = code;
}

/* Records a call and says what it is to return. */
__attribute__((format(printf, 2, 3))) static int called(const char *function, const char *format, ...) {
    va_list arguments;
    used += (size_t)snprintf(calls + used, sizeof calls - used, "%s ", function);
    va_start(arguments, format);
    used += (size_t)vsnprintf(calls + used, sizeof calls - used, format, arguments);
    va_end(arguments);
    while (used != 0 && calls[used - 1] == ' ') {
        used--;
    }
    calls[used++] = '\n';
    if (strcmp(function, failing) == 0 && calls_until_failure-- == 0) {
        failing[0] = 0;
        return failure;
    }
    return 0;
}

/* For the tests: what was allocated and not freed. */
static int live_allocations;
int stand_in_live_allocations(void);
int stand_in_live_allocations(void) { return live_allocations; }

/* What it calls a thing: handles are the addresses of these, so that a wrong one shows. */
static char the_context[] = "context", the_stream[] = "stream", the_binary[] = "binary";
static char function_names[8][64];
static int functions;

int dlog_setlevel(int module, int level, int events);
int dlog_setlevel(int module, int level, int events) {
    return called("dlog_setlevel", "%d %d %d", module, level, events);
}

int aclInit(const char *configuration);
int aclInit(const char *configuration) {
    return called("aclInit", "%s", configuration == NULL ? "null" : configuration);
}

int aclFinalize(void);
int aclFinalize(void) { return called("aclFinalize", "%s", ""); }

int aclrtSetDevice(int32_t device);
int aclrtSetDevice(int32_t device) { return called("aclrtSetDevice", "%d", device); }

int aclrtResetDevice(int32_t device);
int aclrtResetDevice(int32_t device) { return called("aclrtResetDevice", "%d", device); }

int aclrtGetCurrentContext(void **context);
int aclrtGetCurrentContext(void **context) {
    *context = the_context;
    return called("aclrtGetCurrentContext", "%s", "");
}

int aclrtSetCurrentContext(void *context);
int aclrtSetCurrentContext(void *context) { return called("aclrtSetCurrentContext", "%s", (char *)context); }

int aclrtCreateStream(void **stream);
int aclrtCreateStream(void **stream) {
    *stream = the_stream;
    return called("aclrtCreateStream", "%s", "");
}

int aclrtDestroyStream(void *stream);
int aclrtDestroyStream(void *stream) { return called("aclrtDestroyStream", "%s", (char *)stream); }

int aclrtSynchronizeStream(void *stream);
int aclrtSynchronizeStream(void *stream) { return called("aclrtSynchronizeStream", "%s", (char *)stream); }

int aclrtMalloc(void **address, size_t bytes, int policy);
int aclrtMalloc(void **address, size_t bytes, int policy) {
    int code = called("aclrtMalloc", "%zu %d", bytes, policy);
    if (code == 0) {
        /* 64 bytes is what the reference promises, and not one more. */
        char *block = aligned_alloc(128, (bytes + 64 + 127) / 128 * 128);
        memset(block, 0xa5, bytes + 64);
        *address = block + 64;
        live_allocations++;
    }
    return code;
}

int aclrtFree(void *address);
int aclrtFree(void *address) {
    int code = called("aclrtFree", "%s", "");
    if (code == 0) {
        free((char *)address - 64);
        live_allocations--;
    }
    return code;
}

int aclrtMemcpy(void *destination, size_t room, const void *source, size_t bytes, int kind);
int aclrtMemcpy(void *destination, size_t room, const void *source, size_t bytes, int kind) {
    static const char *const kinds[] = {"H2H", "H2D", "D2H", "D2D"};
    int code = called("aclrtMemcpy", "%s %zu", kind >= 0 && kind < 4 ? kinds[kind] : "?", bytes);
    if (bytes > room) {
        return 100000;
    }
    if (code == 0) {
        memcpy(destination, source, bytes);
    }
    return code;
}

struct option {
    int kind;
    uint32_t value[4];
};
struct options {
    struct option *options;
    size_t count;
};

int aclrtBinaryLoadFromData(const void *data, size_t bytes, const struct options *options, void **binary);
int aclrtBinaryLoadFromData(const void *data, size_t bytes, const struct options *options, void **binary) {
    *binary = the_binary;
    return called("aclrtBinaryLoadFromData", "%.*s %zu option %d=%u", (int)bytes, (const char *)data,
                  options->count, options->options[0].kind, options->options[0].value[0]);
}

int aclrtBinaryUnLoad(void *binary);
int aclrtBinaryUnLoad(void *binary) { return called("aclrtBinaryUnLoad", "%s", (char *)binary); }

int aclrtRegisterCpuFunc(void *binary, const char *symbol, const char *name, void **function);
int aclrtRegisterCpuFunc(void *binary, const char *symbol, const char *name, void **function) {
    snprintf(function_names[functions % 8], sizeof function_names[0], "%s", name);
    *function = function_names[functions++ % 8];
    return called("aclrtRegisterCpuFunc", "%s %s %s", (char *)binary, symbol, name);
}

/* For the tests: what the launch of a function named `run...` stamps, as a device would, into the buffer that its
 * arguments name: the first word, and 7 in the last of so many bytes. */
static uint64_t tail_used;
static size_t buffer_bytes;
void stand_in_stamp(uint64_t used_word, size_t bytes);
void stand_in_stamp(uint64_t used_word, size_t bytes) {
    tail_used = used_word;
    buffer_bytes = bytes;
}

int aclrtLaunchKernelWithHostArgs(void *function, uint32_t blocks, void *stream, void *configuration,
                                  void *arguments, size_t bytes, void *placeholders, size_t placeholder_count);
int aclrtLaunchKernelWithHostArgs(void *function, uint32_t blocks, void *stream, void *configuration,
                                  void *arguments, size_t bytes, void *placeholders, size_t placeholder_count) {
    int32_t words[4] = {0, 0, 0, 0};
    int is_run = strncmp((char *)function, "run", 3) == 0;
    memcpy(words, arguments, bytes < sizeof words ? bytes : sizeof words);
    if (is_run && buffer_bytes != 0) {
        uint64_t address;
        memcpy(&address, arguments, sizeof address);
        memcpy((void *)(uintptr_t)address, &tail_used, sizeof tail_used);
        ((unsigned char *)(uintptr_t)address)[buffer_bytes - 1] = 7;
    }
    if (configuration != NULL || placeholders != NULL || placeholder_count != 0) {
        return 100000;
    }
    /* Of a run's arguments the address differs from run to run. */
    return is_run ? called("aclrtLaunchKernelWithHostArgs", "%s x%u on %s: %zu bytes, threads %d %d",
                           (char *)function, blocks, (char *)stream, bytes, words[2], words[3])
                  : called("aclrtLaunchKernelWithHostArgs", "%s x%u on %s: %zu bytes, level %d device %d",
                           (char *)function, blocks, (char *)stream, bytes, words[0], words[1]);
}
