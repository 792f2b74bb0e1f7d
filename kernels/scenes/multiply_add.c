/* tensors: a [m, k], b [k, n], c [m, n] F32, strided; c += a b */
#include <simpler/kernel.h>

static float *at(const SimplerTensor *tensor, uint32_t row, uint32_t column) {
    return (float *)((char *)simpler_tensor_data(tensor) + row * tensor->strides[0] + column * tensor->strides[1]);
}

void kernel_entry(const SimplerKernelArgs *args) {
    const SimplerTensor *a = args->tensors[0], *b = args->tensors[1], *c = args->tensors[2];
    for (uint32_t i = 0; i < c->shapes[0]; i++)
        for (uint32_t k = 0; k < a->shapes[1]; k++)
            for (uint32_t j = 0; j < c->shapes[1]; j++) *at(c, i, j) += *at(a, i, k) * *at(b, k, j);
}
