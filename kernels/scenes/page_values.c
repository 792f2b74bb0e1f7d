/* tensors: weights [tokens], values [tokens, dim], part [dim] F32; part = weights values */
#include <simpler/kernel.h>

void kernel_entry(const SimplerKernelArgs *args) {
    const float *weights = simpler_tensor_data(args->tensors[0]), *values = simpler_tensor_data(args->tensors[1]);
    float *part = simpler_tensor_data(args->tensors[2]);
    uint32_t tokens = args->tensors[0]->shapes[0], dim = args->tensors[2]->shapes[0];
    for (uint32_t i = 0; i < dim; i++) part[i] = 0;
    for (uint32_t token = 0; token < tokens; token++)
        for (uint32_t i = 0; i < dim; i++) part[i] += weights[token] * values[token * dim + i];
}
