/* Root mean square normalisation of columns, times a weight per feature.
 *
 * tensors: x [features, x_tokens]; weight [features] F32; out [features, out_tokens]; further tensors are not
 * touched: the task only claims them for the half layer that it opens
 * scalars: the column of x that becomes the first of out; eps (bits of a float)
 */
#include <simpler/kernel.h>

#include <math.h>

#include "vectors.h"

/* Tokens that are summed side by side. */
#define SIDE 32

ALWAYS_INLINE float inverse_root_mean(float sum, uint32_t features, float eps) {
    return 1.0f / sqrtf(sum / (float)features + eps);
}

KERNEL_EXPORT void kernel_entry(const SimplerKernelArgs *args) {
    const float *x = simpler_tensor_data(args->tensors[0]);
    const float *weight = simpler_tensor_data(args->tensors[1]);
    float *out = simpler_tensor_data(args->tensors[2]);
    uint32_t features = args->tensors[0]->shapes[0];
    uint64_t x_tokens = args->tensors[0]->shapes[1], out_tokens = args->tensors[2]->shapes[1];
    float eps = float_scalar(args->scalars[1]);
    x += args->scalars[0];
    if (x_tokens == 1) {
        f32x8 squares = {0};
        float sum = 0;
        uint32_t whole = features / LANES * LANES;
        for (uint32_t i = 0; i < whole; i += LANES) squares += load8(x + i) * load8(x + i);
        for (uint32_t i = whole; i < features; i++) sum += x[i] * x[i];
        float scale = inverse_root_mean(sum + sum8(squares), features, eps);
        for (uint32_t i = 0; i < features; i++) out[i] = x[i] * scale * weight[i];
        return;
    }
    for (uint64_t first = 0; first < out_tokens; first += SIDE) {
        uint64_t side = out_tokens - first < SIDE ? out_tokens - first : SIDE;
        float sums[SIDE] = {0};
        for (uint32_t i = 0; i < features; i++)
            for (uint64_t token = 0; token < side; token++) {
                float value = x[i * x_tokens + first + token];
                sums[token] += value * value;
            }
        for (uint64_t token = 0; token < side; token++) sums[token] = inverse_root_mean(sums[token], features, eps);
        for (uint32_t i = 0; i < features; i++)
            for (uint64_t token = 0; token < side; token++)
                out[i * out_tokens + first + token] = x[i * x_tokens + first + token] * sums[token] * weight[i];
    }
}
