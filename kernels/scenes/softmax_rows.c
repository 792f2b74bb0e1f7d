/* tensors: x, y [rows, columns] F32; the rows of a block: row, row + blocks, ... */
#include <simpler/kernel.h>

#include <math.h>

void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t rows = args->tensors[0]->shapes[0], columns = args->tensors[0]->shapes[1];
    for (uint32_t row = args->block_index; row < rows; row += args->block_count) {
        const float *x = (const float *)simpler_tensor_data(args->tensors[0]) + (uint64_t)row * columns;
        float *y = (float *)simpler_tensor_data(args->tensors[1]) + (uint64_t)row * columns;
        float largest = x[0], sum = 0;
        for (uint32_t i = 1; i < columns; i++) largest = fmaxf(largest, x[i]);
        for (uint32_t i = 0; i < columns; i++) sum += y[i] = expf(x[i] - largest);
        for (uint32_t i = 0; i < columns; i++) y[i] /= sum;
    }
}
