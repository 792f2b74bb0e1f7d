/* tensors: q [dim], keys [tokens, dim], scores [tokens] F32; scores = keys q / sqrt(dim) */
#include <simpler/kernel.h>

#include <math.h>

void kernel_entry(const SimplerKernelArgs *args) {
    const float *q = simpler_tensor_data(args->tensors[0]), *keys = simpler_tensor_data(args->tensors[1]);
    float *scores = simpler_tensor_data(args->tensors[2]);
    uint32_t dim = args->tensors[0]->shapes[0], tokens = args->tensors[2]->shapes[0];
    float scale = 1.0f / sqrtf((float)dim);
    for (uint32_t token = 0; token < tokens; token++) {
        float dot = 0;
        for (uint32_t i = 0; i < dim; i++) dot += q[i] * keys[token * dim + i];
        scores[token] = dot * scale;
    }
}
