/* The embeddings of a few tokens.
 *
 * tensors: tokens [tokens] I32; embedding [vocabulary, features]; out [features, tokens], in a buffer that
 * may be larger; further tensors are not touched: the task only claims them for the pass that it opens
 * scalars: number of tokens
 *
 * A token outside the vocabulary has the embedding 0.
 */
#include "rows.h"

ALWAYS_INLINE float element(uint8_t dtype, const uint8_t *row, uint32_t index) {
    uint16_t scale, minimum;
    const uint8_t *block;
    float value;
    switch (dtype) {
    case SIMPLER_Q4_1: {
        block = row + (uint64_t)(index / BLOCK) * Q4_1_BYTES;
        memcpy(&scale, block, sizeof scale);
        memcpy(&minimum, block + 2, sizeof minimum);
        uint32_t within = index % BLOCK;
        uint32_t nibble = within < 16 ? block[4 + within] & 0xf : block[4 + within - 16] >> 4;
        return float_from_half(scale) * (float)nibble + float_from_half(minimum);
    }
    case SIMPLER_Q8_0:
        block = row + (uint64_t)(index / BLOCK) * Q8_0_BYTES;
        memcpy(&scale, block, sizeof scale);
        return float_from_half(scale) * (float)(int8_t)block[2 + index % BLOCK];
    default: memcpy(&value, row + (uint64_t)index * sizeof value, sizeof value); return value;
    }
}

KERNEL_EXPORT void kernel_entry(const SimplerKernelArgs *args) {
    const int32_t *tokens = simpler_tensor_data(args->tensors[0]);
    const SimplerTensor *embedding = args->tensors[1];
    const uint8_t *rows = simpler_tensor_data(embedding);
    float *out = simpler_tensor_data(args->tensors[2]);
    uint32_t vocabulary = embedding->shapes[0], features = embedding->shapes[1];
    uint64_t count = args->scalars[0];
    uint64_t bytes = row_bytes(embedding->dtype, features);
    for (uint64_t token = 0; token < count; token++) {
        int known = tokens[token] >= 0 && (uint32_t)tokens[token] < vocabulary;
        const uint8_t *row = rows + (known ? (uint64_t)tokens[token] * bytes : 0);
        for (uint32_t i = 0; i < features; i++)
            out[i * count + token] = known ? element(embedding->dtype, row, i) : 0.0f;
    }
}
