/* The gated half of the feed-forward network: silu(gate x) * (up x), row by row.
 *
 * tensors: gate [rows, columns], up [rows, columns] of the same format; x [columns, tokens]; out [rows, tokens]
 */
#include "rows.h"

ALWAYS_INLINE float silu(float value) { return value / (1.0f + exp_f32(-value)); }

ALWAYS_INLINE void gate(Columns *packed, uint8_t dtype, const uint8_t *gates, const uint8_t *ups, const float *x,
                        float *out, uint32_t rows, uint32_t stride, uint32_t first, uint32_t tokens) {
    uint64_t bytes = row_bytes(dtype, packed->columns);
    pack_columns(packed, dtype, x, stride, first, tokens);
    for (uint32_t row = 0; row < rows; row++) {
        float gated[TILE], raised[TILE];
        float *to = out + (uint64_t)row * stride + first;
        dot_row(packed, dtype, gates + row * bytes, tokens, gated);
        dot_row(packed, dtype, ups + row * bytes, tokens, raised);
        for (uint32_t token = 0; token < tokens; token++) to[token] = silu(gated[token]) * raised[token];
    }
}

ALWAYS_INLINE void gate_all(uint8_t dtype, const SimplerKernelArgs *args) {
    Columns packed;
    const uint8_t *gates = simpler_tensor_data(args->tensors[0]);
    const uint8_t *ups = simpler_tensor_data(args->tensors[1]);
    const float *x = simpler_tensor_data(args->tensors[2]);
    float *out = simpler_tensor_data(args->tensors[3]);
    uint32_t rows = args->tensors[0]->shapes[0];
    uint32_t tokens = args->tensors[2]->shapes[1];
    packed.columns = args->tensors[0]->shapes[1];
    uint32_t first = 0;
    for (; first + TILE <= tokens; first += TILE)
        gate(&packed, dtype, gates, ups, x, out, rows, tokens, first, TILE);
    for (; first < tokens; first++) gate(&packed, dtype, gates, ups, x, out, rows, tokens, first, 1);
}

KERNEL_EXPORT void kernel_entry(const SimplerKernelArgs *args) {
    switch (args->tensors[0]->dtype) {
    case SIMPLER_Q4_1: gate_all(SIMPLER_Q4_1, args); break;
    case SIMPLER_Q8_0: gate_all(SIMPLER_Q8_0, args); break;
    default: gate_all(SIMPLER_F32, args); break;
    }
}
