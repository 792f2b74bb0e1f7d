/* What a kernel sees: its arguments and its block, and what it may leave to others.
 *
 * A kernel is a shared object that exports
 *
 *     void kernel_entry(const SimplerKernelArgs *args);
 *
 * It runs on one simulated AICore at a time, may not block or allocate, and may touch only the
 * memory that its tensors name. On a simulated chip it may log, through the headers of the log. Every size is in bytes, every address a device address.
 *
 * A kernel may return before its work is done: with simpler_copy_async the device's copy engine goes on,
 * with simpler_complete_at somebody else does. Its core is free then; its task completes, and what depends on
 * it starts, when all of that is done.
 */
#ifndef SIMPLER_KERNEL_H
#define SIMPLER_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Objects are compiled with hidden visibility: what the runtime looks up is declared with this. */
#define SIMPLER_EXPORT __attribute__((visibility("default")))

#define SIMPLER_TENSOR_DIMS_MAX 5
#define SIMPLER_NO_TASK UINT64_MAX

/* Element types. The Q types are the GGUF block formats of 32 elements. */
enum {
    SIMPLER_F32 = 0,
    SIMPLER_F16 = 1,
    SIMPLER_I32 = 2,
    SIMPLER_U8 = 3,
    SIMPLER_Q4_1 = 4, /* 20 bytes a block: f16 d, f16 m, 16 bytes of nibbles */
    SIMPLER_Q8_0 = 5  /* 34 bytes a block: f16 d, 32 signed bytes */
};

/* Where addr points. */
enum { SIMPLER_HOST_MEMORY = 0, SIMPLER_DEVICE_MEMORY = 1 };

/* A view of a buffer: 128 bytes, offsets as in the specification's run-time notes (section 3.4).
 *
 * A buffer is known by its addr: two views of one buffer have the same addr and bytes and differ in
 * start_offset, or the runtime takes them for two buffers that do not depend on each other. A view
 * touches the extent bytes from start_offset, and with an extent of 0 nothing; a strided one touches its
 * elements among them: views with the same strides, each a multiple of the next smaller, share what their
 * ranges share, and any others what lies between their ends. */
typedef struct SimplerTensor {
    uint64_t addr;         /* first byte of the buffer; 0: the runtime allocates (SIMPLER_OUTPUT) */
    uint64_t bytes;        /* size of the buffer */
    uint64_t owner_task;   /* the task that made the buffer, or SIMPLER_NO_TASK */
    uint64_t start_offset; /* bytes from addr to the view's first element */
    uint32_t version;
    uint32_t ndims;
    uint8_t dtype;
    uint8_t manual_dep;
    uint8_t contiguous;
    uint8_t address_space;
    uint32_t shapes[SIMPLER_TENSOR_DIMS_MAX];
    uint64_t extent;                           /* bytes that the view spans from start_offset */
    uint64_t strides[SIMPLER_TENSOR_DIMS_MAX]; /* bytes; read only when contiguous is 0 */
    uint64_t reserved[2];
} SimplerTensor;

/* What a kernel may wait for besides its own return, at most. */
#define SIMPLER_COMPLETIONS_MAX 4

/* Kinds of it. */
enum {
    SIMPLER_COMPLETION_COUNTER = 1, /* a 32-bit word has reached a value */
    SIMPLER_COMPLETION_COPY = 2     /* a copy of the copy engine has ended; addr is that of its state */
};

typedef struct SimplerCompletion {
    uint64_t addr;  /* of a 32-bit word, 4-byte aligned */
    uint32_t value; /* of a counter: what the word is to reach, unsigned */
    uint32_t kind;
} SimplerCompletion;

/* What one kernel waits for. Filled by the functions below, read by the scheduler when the kernel has returned. */
typedef struct SimplerCompletions {
    uint32_t count; /* more than there is room for fails the run with code 103 */
    uint32_t reserved;
    SimplerCompletion entries[SIMPLER_COMPLETIONS_MAX];
} SimplerCompletions;

/* Copies that the engine has room for at a time. */
#define SIMPLER_COPIES_MAX 64

/* States of a copy: free, being filled by a kernel, the engine's, ended, refused by the engine. */
enum {
    SIMPLER_COPY_FREE = 0,
    SIMPLER_COPY_CLAIMED = 1,
    SIMPLER_COPY_SUBMITTED = 2,
    SIMPLER_COPY_DONE = 3,
    SIMPLER_COPY_FAILED = 4
};

typedef struct SimplerCopy {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes;
    uint32_t state; /* atomic: acquire what it says, release what is under it */
    uint32_t reserved;
} SimplerCopy;

/* The workspace of the copy engine (SDMA), in device memory. */
typedef struct SimplerCopyEngine {
    uint32_t submitted; /* atomic: copies so far; the engine looks when it has moved */
    uint32_t reserved[15];
    SimplerCopy copies[SIMPLER_COPIES_MAX];
} SimplerCopyEngine;

typedef struct SimplerKernelArgs {
    const SimplerTensor *const *tensors;
    const uint64_t *scalars;
    uint32_t tensor_count;
    uint32_t scalar_count;
    uint32_t block_index; /* 0 .. block_count - 1 */
    uint32_t block_count;
    SimplerCompletions *completions; /* null: nobody looks there, and the kernel does all itself */
    SimplerCopyEngine *copy_engine;  /* null: the context was made without enable_sdma */
} SimplerKernelArgs;

/* What a kernel object defines. */
SIMPLER_EXPORT void kernel_entry(const SimplerKernelArgs *args);

/* The task completes only when the word at `word` (4-byte aligned, in memory that stays) is at least `value`, which a
 * kernel of another task, or anybody else, stores there with release. Returns 0 where nobody would look, as in a run
 * without a scheduler; else 1. One wait more than SIMPLER_COMPLETIONS_MAX fails the run with code 103, a word that is
 * null or not aligned with 101, more waiting kernels than a scheduler keeps with 102. */
static inline int simpler_complete_at(const SimplerKernelArgs *args, const uint32_t *word, uint32_t value) {
    SimplerCompletions *completions = args->completions;
    if (!completions) return 0;
    if (completions->count < SIMPLER_COMPLETIONS_MAX) {
        SimplerCompletion *entry = &completions->entries[completions->count];
        entry->addr = (uint64_t)(uintptr_t)word;
        entry->value = value;
        entry->kind = SIMPLER_COMPLETION_COUNTER;
    }
    completions->count++;
    return 1;
}

/* Starts a copy of `bytes` bytes from `src` to `dst` on the device's copy engine; the task completes only when it has
 * ended. Both are memory of the task's tensors that nobody else touches until then, and do not overlap. Copies are not
 * ordered among each other. Returns 1 if the copy was started, and 0 if there is no engine or no room: then the kernel
 * copies itself. A range that is not inside one allocation of the device fails the run with code 101. */
static inline int simpler_copy_async(const SimplerKernelArgs *args, void *dst, const void *src, uint64_t bytes) {
    SimplerCompletions *completions = args->completions;
    SimplerCopyEngine *engine = args->copy_engine;
    if (!completions || !engine || completions->count >= SIMPLER_COMPLETIONS_MAX) return 0;
    for (uint32_t i = 0; i < SIMPLER_COPIES_MAX; i++) {
        SimplerCopy *copy = &engine->copies[i];
        uint32_t state = SIMPLER_COPY_FREE;
        if (!__atomic_compare_exchange_n(&copy->state, &state, (uint32_t)SIMPLER_COPY_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        copy->dst = (uint64_t)(uintptr_t)dst;
        copy->src = (uint64_t)(uintptr_t)src;
        copy->bytes = bytes;
        __atomic_store_n(&copy->state, (uint32_t)SIMPLER_COPY_SUBMITTED, __ATOMIC_RELEASE);
        __atomic_fetch_add(&engine->submitted, 1, __ATOMIC_RELEASE);
        SimplerCompletion *entry = &completions->entries[completions->count++];
        entry->addr = (uint64_t)(uintptr_t)&copy->state;
        entry->value = SIMPLER_COPY_DONE;
        entry->kind = SIMPLER_COMPLETION_COPY;
        return 1;
    }
    return 0;
}

/* The first element of a view. */
static inline void *simpler_tensor_data(const SimplerTensor *tensor) {
    return (void *)(uintptr_t)(tensor->addr + tensor->start_offset);
}

#ifdef __cplusplus
}
#endif
#endif
