/* A program that owns a log, loads a host runtime as its header says, and runs the scene vector_add with it.
 *
 *     scene LOG_DIRECTORY SIM_CONTEXT HOST_RUNTIME ORCHESTRATION KERNEL
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <simpler/host_log.h>
#include <simpler/host_log_binding.h>
#include <simpler/host_runtime.h>
#include <simpler/strace.h>

enum { COUNT = 1000, TILES = 3, RUNS = 3 };

static int failures;

#define EXPECT(condition)                                                          \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                            \
        }                                                                          \
    } while (0)

/* The functions that this program uses. */
static uint32_t (*host_runtime_abi)(void);
static SimplerContext *(*create_context)(const SimplerContextConfig *);
static int (*destroy_context)(SimplerContext *);
static int (*init)(SimplerContext *, int32_t, const SimplerBinaries *, const SimplerBytes *,
                   const SimplerCallConfig *, int);
static int (*register_callable)(SimplerContext *, const SimplerCallableImage *, uint64_t *);
static int (*unregister_callable)(SimplerContext *, uint64_t);
static size_t (*run_storage_size)(void);
static size_t (*run_storage_alignment)(void);
static int (*run_prepare)(SimplerContext *, void *, const SimplerRunRequest *);
static int (*run_launch)(SimplerContext *, void *);
static int (*run_poll)(SimplerContext *, void *);
static int (*run_wait)(SimplerContext *, void *);
static int (*run_finalize)(SimplerContext *, void *);
static int (*run)(SimplerContext *, const SimplerRunRequest *);
static size_t (*last_error)(const SimplerContext *, char *, size_t);

/* Opens an object and binds the log to it, before anything else of it is looked up. */
static void *open_bound(const char *path, int flags) {
    void *object = dlopen(path, flags);
    if (object == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    EXPECT(simpler_host_log_bind_module(object, simpler_host_log_state()) == SIMPLER_BIND_OK);
    return object;
}

/* Stores the address of a function: strict C converts no pointer to data to one to a function. */
static void look_up(void *object, const char *name, void *function) {
    void *address = dlsym(object, name);
    if (address == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    memcpy(function, &address, sizeof address);
}

static SimplerBytes file(const char *path) {
    SimplerBytes bytes = {NULL, 0};
    FILE *stream = fopen(path, "rb");
    long size;
    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0 || (size = ftell(stream)) <= 0) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    rewind(stream);
    bytes.data = malloc((size_t)size);
    bytes.size = fread((void *)bytes.data, 1, (size_t)size, stream);
    EXPECT(bytes.size == (uint64_t)size);
    fclose(stream);
    return bytes;
}

static SimplerRunTensor argument(float *values, uint64_t use) {
    SimplerRunTensor argument;
    memset(&argument, 0, sizeof argument);
    argument.tensor.addr = (uint64_t)(uintptr_t)values;
    argument.tensor.bytes = argument.tensor.extent = COUNT * sizeof *values;
    argument.tensor.owner_task = SIMPLER_NO_TASK;
    argument.tensor.ndims = argument.tensor.contiguous = 1;
    argument.tensor.shapes[0] = COUNT;
    argument.tensor.dtype = SIMPLER_F32;
    argument.tensor.address_space = SIMPLER_HOST_MEMORY;
    argument.use = use;
    return argument;
}

static void say(const SimplerContext *context, const char *what, int result) {
    char text[1024];
    if (result != 0) {
        last_error(context, text, sizeof text);
        fprintf(stderr, "%s: %d: %s\n", what, result, text);
        failures++;
    }
}

int main(int count, char **arguments) {
    static float a[COUNT], b[COUNT], c[COUNT];
    SimplerRunTensor tensors[3];
    uint64_t tiles = TILES, callable = 0;
    SimplerKernelImage kernel = {"add", {NULL, 0}, SIMPLER_AIV, 0};
    SimplerCallableImage image = {"vector_add", {NULL, 0}, NULL, 1, 0};
    SimplerRunRequest request;
    SimplerContextConfig config = {SIMPLER_TENSORMAP_AND_RINGBUFFER, 1};
    SimplerContext *context;
    void *object, *storage;
    int round, i, wrong = 0;
    char text[1024];

    if (count != 6) {
        return 2;
    }
    EXPECT(simpler_host_log_init(SIMPLER_LOG_TIMING, arguments[1], 0) == SIMPLER_HOST_LOG_OK);
    EXPECT(simpler_host_log_adopt(simpler_host_log_state()) == SIMPLER_BIND_OK);
    open_bound(arguments[2], RTLD_NOW | RTLD_GLOBAL);
    object = open_bound(arguments[3], RTLD_NOW | RTLD_LOCAL);
    look_up(object, "simpler_host_runtime_abi", &host_runtime_abi);
    EXPECT(host_runtime_abi() == SIMPLER_HOST_RUNTIME_ABI);
    look_up(object, "simpler_create_context", &create_context);
    look_up(object, "simpler_destroy_context", &destroy_context);
    look_up(object, "simpler_init", &init);
    look_up(object, "simpler_register_callable", &register_callable);
    look_up(object, "simpler_unregister_callable", &unregister_callable);
    look_up(object, "simpler_run_storage_size", &run_storage_size);
    look_up(object, "simpler_run_storage_alignment", &run_storage_alignment);
    look_up(object, "simpler_run_prepare", &run_prepare);
    look_up(object, "simpler_run_launch", &run_launch);
    look_up(object, "simpler_run_poll", &run_poll);
    look_up(object, "simpler_run_wait", &run_wait);
    look_up(object, "simpler_run_finalize", &run_finalize);
    look_up(object, "simpler_run", &run);
    look_up(object, "simpler_last_error", &last_error);
    EXPECT(dlsym(RTLD_DEFAULT, "simpler_init") == NULL); /* it is locally scoped */

    context = create_context(&config);
    EXPECT(context != NULL);
    EXPECT(init(context, -1, NULL, NULL, NULL, 0) == SIMPLER_REFUSED);
    EXPECT(last_error(context, text, sizeof text) > 0 && strstr(text, "no device -1") != NULL);
    say(context, "init", init(context, 5, NULL, NULL, NULL, 0));
    image.orchestration = file(arguments[4]);
    kernel.object = file(arguments[5]);
    image.kernels = &kernel;
    /* A kernel that the orchestration was not built for. */
    kernel.kind = SIMPLER_AIC;
    EXPECT(register_callable(context, &image, &callable) == -5);
    kernel.kind = SIMPLER_AIV;
    say(context, "register", register_callable(context, &image, &callable));

    tensors[0] = argument(a, SIMPLER_INPUT);
    tensors[1] = argument(b, SIMPLER_INPUT);
    tensors[2] = argument(c, SIMPLER_OUTPUT_EXISTING);
    memset(&request, 0, sizeof request);
    request.callable = callable;
    request.tensors = tensors;
    request.tensor_count = 3;
    request.scalars = &tiles;
    request.scalar_count = 1;
    request.run_id = 42;
    request.slot = SIMPLER_ANY_SLOT;

    storage = aligned_alloc(run_storage_alignment(), run_storage_size());
    memset(storage, 0, run_storage_size());
    for (round = 0; round < RUNS; round++) {
        for (i = 0; i < COUNT; i++) {
            a[i] = (float)(i + round);
            b[i] = (float)(2 * i);
            c[i] = -1;
        }
        {
            SIMPLER_INVOCATION("the_program", 0xc); /* of this program's copy of the logger */
            SIMPLER_SPAN(SIMPLER_EXT("scene", "round"));
            request.dispatch_id = (uint64_t)round + 1;
            if (round == 0) {
                say(context, "run", run(context, &request));
            } else {
                say(context, "prepare", run_prepare(context, storage, &request));
                EXPECT(memcmp(storage, SIMPLER_RUN_MAGIC, 8) == 0);
                EXPECT(run_prepare(context, storage, &request) == SIMPLER_REFUSED);
                say(context, "launch", run_launch(context, storage));
                while ((i = run_poll(context, storage)) == 0) {
                }
                EXPECT(i == 1);
                say(context, "wait", run_wait(context, storage));
                say(context, "finalize", run_finalize(context, storage));
            }
        }
        for (i = 0; i < COUNT; i++) {
            wrong += c[i] != a[i] + b[i];
        }
    }
    EXPECT(wrong == 0);
    free(storage);
    say(context, "unregister", unregister_callable(context, callable));
    EXPECT(run(context, &request) == SIMPLER_REFUSED);
    say(context, "destroy", destroy_context(context));
    free((void *)image.orchestration.data);
    free((void *)kernel.object.data);
    EXPECT(dlclose(object) == 0);
    EXPECT(simpler_host_log_close(10000) == SIMPLER_HOST_LOG_OK);
    return failures != 0;
}
