/* tensors: a, b, c [count] F32; c = a + b */
#include <simpler/kernel.h>

void kernel_entry(const SimplerKernelArgs *args) {
    const float *a = simpler_tensor_data(args->tensors[0]), *b = simpler_tensor_data(args->tensors[1]);
    float *c = simpler_tensor_data(args->tensors[2]);
    for (uint32_t i = 0; i < args->tensors[2]->shapes[0]; i++) c[i] = a[i] + b[i];
}
