/* The first index of the largest value.
 *
 * tensors: values [count] F32; out [1] I32
 */
#include <simpler/kernel.h>

#include "vectors.h"

KERNEL_EXPORT void kernel_entry(const SimplerKernelArgs *args) {
    const float *values = simpler_tensor_data(args->tensors[0]);
    int32_t *out = simpler_tensor_data(args->tensors[1]);
    uint32_t count = args->tensors[0]->shapes[0];
    uint32_t whole = count / LANES * LANES, best = 0;
    /* A block whose maximum is no larger cannot hold an earlier or larger winner, so most are skipped whole. */
    for (uint32_t i = 0; i < whole; i += LANES) {
        i32x8 larger = load8(values + i) > splat8(values[best]);
        int64_t any = 0;
        for (uint32_t half = 0; half < 4; half++) any |= ((int64_t __attribute__((vector_size(32))))larger)[half];
        if (!any) continue;
        for (uint32_t lane = 0; lane < LANES; lane++)
            if (values[i + lane] > values[best]) best = i + lane;
    }
    for (uint32_t i = whole; i < count; i++)
        if (values[i] > values[best]) best = i;
    *out = (int32_t)best;
}
