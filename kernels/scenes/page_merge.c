/* tensors: part [dim], part_weight [2], sum [dim], weight [2], out [dim] F32
 * scalars: first page, last page
 */
#include <simpler/kernel.h>

#include <math.h>

void kernel_entry(const SimplerKernelArgs *args) {
    const float *part = simpler_tensor_data(args->tensors[0]), *part_weight = simpler_tensor_data(args->tensors[1]);
    float *sum = simpler_tensor_data(args->tensors[2]), *weight = simpler_tensor_data(args->tensors[3]);
    float *out = simpler_tensor_data(args->tensors[4]);
    uint32_t dim = args->tensors[0]->shapes[0];
    if (args->scalars[0]) {
        weight[0] = part_weight[0];
        weight[1] = part_weight[1];
        for (uint32_t i = 0; i < dim; i++) sum[i] = part[i];
    } else {
        float largest = fmaxf(weight[0], part_weight[0]);
        float old = expf(weight[0] - largest), new = expf(part_weight[0] - largest);
        for (uint32_t i = 0; i < dim; i++) sum[i] = sum[i] * old + part[i] * new;
        weight[1] = weight[1] * old + part_weight[1] * new;
        weight[0] = largest;
    }
    if (args->scalars[1])
        for (uint32_t i = 0; i < dim; i++) out[i] = sum[i] / weight[1];
}
