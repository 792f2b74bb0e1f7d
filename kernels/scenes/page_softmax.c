/* tensors: scores [tokens], weight [2] F32; scores := exp(scores - largest), weight = largest, sum */
#include <simpler/kernel.h>

#include <math.h>

void kernel_entry(const SimplerKernelArgs *args) {
    float *scores = simpler_tensor_data(args->tensors[0]), *weight = simpler_tensor_data(args->tensors[1]);
    uint32_t tokens = args->tensors[0]->shapes[0];
    float largest = scores[0], sum = 0;
    for (uint32_t token = 1; token < tokens; token++) largest = fmaxf(largest, scores[token]);
    for (uint32_t token = 0; token < tokens; token++) sum += scores[token] = expf(scores[token] - largest);
    weight[0] = largest;
    weight[1] = sum;
}
