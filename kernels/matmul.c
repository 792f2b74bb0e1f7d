/* Rows of a weight matrix times activations, optionally added to what is there (the residual stream).
 *
 * tensors: weights [rows, columns] in F32, Q4_1 or Q8_0; x [columns, tokens]; out [rows, tokens]
 * scalars: 1 to add to out, 0 to overwrite it
 */
#include "rows.h"

ALWAYS_INLINE void multiply(Columns *packed, uint8_t dtype, const uint8_t *weights, const float *x, float *out,
                            uint32_t rows, uint32_t stride, uint32_t first, uint32_t tokens, uint64_t add) {
    uint64_t bytes = row_bytes(dtype, packed->columns);
    pack_columns(packed, dtype, x, stride, first, tokens);
    for (uint32_t row = 0; row < rows; row++) {
        float dots[TILE];
        float *to = out + (uint64_t)row * stride + first;
        dot_row(packed, dtype, weights + row * bytes, tokens, dots);
        for (uint32_t token = 0; token < tokens; token++) to[token] = add ? to[token] + dots[token] : dots[token];
    }
}

ALWAYS_INLINE void multiply_all(uint8_t dtype, const SimplerKernelArgs *args) {
    Columns packed;
    const uint8_t *weights = simpler_tensor_data(args->tensors[0]);
    const float *x = simpler_tensor_data(args->tensors[1]);
    float *out = simpler_tensor_data(args->tensors[2]);
    uint32_t rows = args->tensors[0]->shapes[0];
    uint32_t tokens = args->tensors[1]->shapes[1];
    packed.columns = args->tensors[0]->shapes[1];
    uint32_t first = 0;
    for (; first + TILE <= tokens; first += TILE)
        multiply(&packed, dtype, weights, x, out, rows, tokens, first, TILE, args->scalars[0]);
    for (; first < tokens; first++)
        multiply(&packed, dtype, weights, x, out, rows, tokens, first, 1, args->scalars[0]);
}

KERNEL_EXPORT void kernel_entry(const SimplerKernelArgs *args) {
    switch (args->tensors[0]->dtype) {
    case SIMPLER_Q4_1: multiply_all(SIMPLER_Q4_1, args); break;
    case SIMPLER_Q8_0: multiply_all(SIMPLER_Q8_0, args); break;
    default: multiply_all(SIMPLER_F32, args); break;
    }
}
