/* An AIV's part of fused_matmul: y = relu(product), for every other row from the PARITY-th on. */
#include "fused_rows.h"

#include <sched.h>

void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t columns = args->tensors[1]->shapes[1];
    const float *product = simpler_tensor_data(args->tensors[2]);
    float *y = simpler_tensor_data(args->tensors[3]);
    Rows rows = rows_of_block(args);
    for (uint32_t row = rows.first + PARITY; row < rows.end; row += 2) {
        while (__atomic_load_n(done_of_block(args), __ATOMIC_ACQUIRE) <= row - rows.first) sched_yield();
        for (uint32_t j = 0; j < columns; j++) {
            float value = product[(uint64_t)row * columns + j];
            y[(uint64_t)row * columns + j] = value > 0 ? value : 0;
        }
    }
}
