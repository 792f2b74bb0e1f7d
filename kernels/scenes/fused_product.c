/* The AIC's part of fused_matmul: product = a b. */
#include "fused_rows.h"

void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t inner = args->tensors[0]->shapes[1], columns = args->tensors[1]->shapes[1];
    const float *a = simpler_tensor_data(args->tensors[0]), *b = simpler_tensor_data(args->tensors[1]);
    float *product = simpler_tensor_data(args->tensors[2]);
    Rows rows = rows_of_block(args);
    for (uint32_t row = rows.first; row < rows.end; row++) {
        float *to = product + (uint64_t)row * columns;
        for (uint32_t j = 0; j < columns; j++) to[j] = 0;
        for (uint32_t k = 0; k < inner; k++)
            for (uint32_t j = 0; j < columns; j++) to[j] += a[row * inner + k] * b[k * columns + j];
        __atomic_store_n(done_of_block(args), row - rows.first + 1, __ATOMIC_RELEASE);
    }
}
