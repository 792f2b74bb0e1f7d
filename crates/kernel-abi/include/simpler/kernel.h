/* What a kernel sees: its arguments and its block, nothing else.
 *
 * A kernel is a shared object that exports
 *
 *     void kernel_entry(const SimplerKernelArgs *args);
 *
 * It runs on one simulated AICore at a time, may not block, allocate or log, and may touch only the
 * memory that its tensors name. Every size is in bytes, every address a device address.
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

typedef struct SimplerKernelArgs {
    const SimplerTensor *const *tensors;
    const uint64_t *scalars;
    uint32_t tensor_count;
    uint32_t scalar_count;
    uint32_t block_index; /* 0 .. block_count - 1 */
    uint32_t block_count;
} SimplerKernelArgs;

/* What a kernel object defines. */
SIMPLER_EXPORT void kernel_entry(const SimplerKernelArgs *args);

/* The first element of a view. */
static inline void *simpler_tensor_data(const SimplerTensor *tensor) {
    return (void *)(uintptr_t)(tensor->addr + tensor->start_offset);
}

#ifdef __cplusplus
}
#endif
#endif
