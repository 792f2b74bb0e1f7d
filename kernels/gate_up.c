/* The gated half of the feed-forward network: silu(gate x) * (up x), row by row.
 *
 * tensors: gate [rows, columns], up [rows, columns] of the same format; x [columns, tokens]; out [rows, tokens]
 */
#include "rows.h"

ALWAYS_INLINE f32x8 silu(f32x8 value) { return value / (1.0f + exp8(-value)); }

ALWAYS_INLINE void gate(Columns *packed, uint8_t dtype, const uint8_t *gates, const uint8_t *ups, const float *x,
                        float *out, uint32_t rows, uint32_t stride, uint32_t first, uint32_t tokens) {
    uint64_t bytes = row_bytes(dtype, packed->columns);
    pack_columns(packed, dtype, x, stride, first, tokens);
    /* Eight rows at a time, so that the exponential works on whole vectors. */
    float gated[LANES * TILE] = {0}, raised[LANES * TILE];
    for (uint32_t start = 0; start < rows; start += LANES) {
        uint32_t count = rows - start < LANES ? rows - start : LANES;
        for (uint32_t row = 0; row < count; row++) {
            dot_row(packed, dtype, gates + (start + row) * bytes, tokens, gated + row * tokens);
            dot_row(packed, dtype, ups + (start + row) * bytes, tokens, raised + row * tokens);
        }
        for (uint32_t i = 0; i < LANES * tokens; i += LANES) store8(gated + i, silu(load8(gated + i)));
        for (uint32_t row = 0; row < count; row++)
            for (uint32_t token = 0; token < tokens; token++)
                out[(uint64_t)(start + row) * stride + first + token] =
                    gated[row * tokens + token] * raised[row * tokens + token];
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
