/* Dot products of quantized weight rows with a few columns of activations.
 *
 * Activations lie feature by feature: element (feature, token) of a tensor [features, tokens] is at
 * feature * tokens + token. So the part of a result that one task writes is one contiguous region, and
 * tasks that share a result do not look dependent. Before its rows a task packs up to TILE columns into
 * the order in which the weight format yields its elements; a weight is then unpacked once per tile.
 */
#ifndef SIMPLER_KERNELS_ROWS_H
#define SIMPLER_KERNELS_ROWS_H

#include <simpler/kernel.h>

#include "vectors.h"

/* Tokens for which a weight is unpacked once: four accumulators and four partial sums fit 16 registers. */
#define TILE 4
/* Longest row: a packed tile of it takes 136 KiB of a core's stack. The loader refuses wider models. */
#define COLUMNS_MAX 8192
/* Elements of a GGUF block. */
#define BLOCK 32
#define Q4_1_BYTES 20
#define Q8_0_BYTES 34
/* Bytes ahead of the running row that are asked for: about what memory delivers in its latency. */
#define PREFETCH_BYTES 1024

/* Columns of activations in a weight format's order. */
typedef struct Columns {
    _Alignas(64) float x[TILE][COLUMNS_MAX]; /* activations */
    float sums[TILE][COLUMNS_MAX / BLOCK * 2]; /* Q4_1: per block 0 and the sum of its activations */
    uint32_t columns;                          /* elements of a row */
} Columns;

ALWAYS_INLINE uint64_t row_bytes(uint8_t dtype, uint32_t columns) {
    switch (dtype) {
    case SIMPLER_Q4_1: return (uint64_t)columns / BLOCK * Q4_1_BYTES;
    case SIMPLER_Q8_0: return (uint64_t)columns / BLOCK * Q8_0_BYTES;
    default: return (uint64_t)columns * sizeof(float);
    }
}

/* Q4_1: a block's 16 bytes are four words of eight nibbles, and word i's nibble k is element
 * 4 i + k / 2 (+ 16 when k is odd). A nibble is used where it stands in its word, as a value 16^k too
 * large; the activation that meets it is made 16^-k smaller, which is exact. Nibble 7 would reach the
 * sign bit, so it is shifted down instead. Two blocks fill one vector of eight words. */
ALWAYS_INLINE void pack_q4_1(Columns *packed, uint32_t token, const float *x, uint64_t stride) {
    static const float scales[8] = {0x1p0f, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-20f, 0x1p-24f, 0x1p0f};
    uint32_t blocks = packed->columns / BLOCK;
    for (uint32_t block = 0; block < blocks; block++) {
        float *to = packed->x[token] + (block / 2) * 64 + (block % 2) * 4;
        const float *from = x + (uint64_t)block * BLOCK * stride;
        f32x8 sum = {0};
        float values[BLOCK];
        if (stride == 1) {
            memcpy(values, from, sizeof values);
        } else {
            for (uint32_t i = 0; i < BLOCK; i++) values[i] = from[i * stride];
        }
        for (uint32_t i = 0; i < BLOCK; i += LANES) sum += load8(values + i);
        for (uint32_t k = 0; k < 8; k++)
            for (uint32_t i = 0; i < 4; i++)
                to[k * 8 + i] = values[4 * i + k / 2 + (k % 2) * 16] * scales[k];
        packed->sums[token][2 * block] = 0;
        packed->sums[token][2 * block + 1] = sum8(sum);
    }
    if (blocks % 2) {
        float *to = packed->x[token] + (blocks / 2) * 64 + 4;
        for (uint32_t k = 0; k < 8; k++) memset(to + k * 8, 0, 4 * sizeof(float));
        packed->sums[token][2 * blocks] = packed->sums[token][2 * blocks + 1] = 0;
    }
}

ALWAYS_INLINE uint32_t word_at(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

ALWAYS_INLINE void dot_q4_1(const Columns *packed, const uint8_t *row, uint32_t tokens, float *out) {
    f32x8 total[TILE] = {{0}};
    f32x4 minimums[TILE] = {{0}};
    uint32_t blocks = packed->columns / BLOCK;
    for (uint32_t block = 0; block < blocks; block += 2) {
        const uint8_t *first = row + (uint64_t)block * Q4_1_BYTES;
        /* A last single block meets itself, with activations of 0. */
        const uint8_t *second = block + 1 < blocks ? first + Q4_1_BYTES : first;
        __builtin_prefetch(first + PREFETCH_BYTES);
        f32x4 heads = floats_from_halves(word_at(first), word_at(second));
        f32x8 scale = __builtin_shufflevector(heads, heads, 0, 0, 0, 0, 2, 2, 2, 2);
        i32x8 words = __builtin_shufflevector(*(const i32x4_in_memory *)(first + 4),
                                              *(const i32x4_in_memory *)(second + 4), 0, 1, 2, 3, 4, 5, 6, 7);
        f32x8 even[TILE], odd[TILE];
        for (uint32_t k = 0; k < 8; k++) {
            i32x8 nibbles = k < 7 ? words & (0xf << (4 * k)) : (i32x8)((u32x8)words >> 28);
            f32x8 weights = __builtin_convertvector(nibbles, f32x8);
            for (uint32_t token = 0; token < tokens; token++) {
                f32x8 product = weights * load8(packed->x[token] + block * BLOCK + k * 8);
                if (k == 0) even[token] = product;
                else if (k == 1) odd[token] = product;
                else if (k % 2 == 0) even[token] += product;
                else odd[token] += product;
            }
        }
        for (uint32_t token = 0; token < tokens; token++) {
            total[token] += scale * (even[token] + odd[token]);
            minimums[token] += heads * load4(packed->sums[token] + 2 * block);
        }
    }
    for (uint32_t token = 0; token < tokens; token++) out[token] = sum8(total[token]) + sum4(minimums[token]);
}

ALWAYS_INLINE void pack_plain(Columns *packed, uint32_t token, const float *x, uint64_t stride) {
    if (stride == 1) {
        memcpy(packed->x[token], x, packed->columns * sizeof(float));
    } else {
        for (uint32_t i = 0; i < packed->columns; i++) packed->x[token][i] = x[i * stride];
    }
}

ALWAYS_INLINE void dot_q8_0(const Columns *packed, const uint8_t *row, uint32_t tokens, float *out) {
    f32x8 total[TILE] = {{0}};
    for (uint32_t start = 0; start < packed->columns; start += BLOCK) {
        const uint8_t *block = row + (uint64_t)(start / BLOCK) * Q8_0_BYTES;
        __builtin_prefetch(block + PREFETCH_BYTES);
        uint16_t half;
        memcpy(&half, block, sizeof half);
        f32x8 scale = splat8(float_from_half(half));
        f32x8 dot[TILE];
        for (uint32_t i = 0; i < BLOCK; i += LANES) {
            f32x8 weights = floats_from_bytes(block + 2 + i);
            for (uint32_t token = 0; token < tokens; token++) {
                f32x8 product = weights * load8(packed->x[token] + start + i);
                dot[token] = i == 0 ? product : dot[token] + product;
            }
        }
        for (uint32_t token = 0; token < tokens; token++) total[token] += scale * dot[token];
    }
    for (uint32_t token = 0; token < tokens; token++) out[token] = sum8(total[token]);
}

ALWAYS_INLINE void dot_f32(const Columns *packed, const uint8_t *row, uint32_t tokens, float *out) {
    const float *weights = (const float *)(const void *)row;
    uint32_t whole = packed->columns / LANES * LANES;
    for (uint32_t token = 0; token < tokens; token++) {
        f32x8 total = {0};
        for (uint32_t i = 0; i < whole; i += LANES) total += load8(weights + i) * load8(packed->x[token] + i);
        float rest = 0;
        for (uint32_t i = whole; i < packed->columns; i++) rest += weights[i] * packed->x[token][i];
        out[token] = sum8(total) + rest;
    }
}

/* Packs columns [first, first + tokens) of x [columns, stride]. */
ALWAYS_INLINE void pack_columns(Columns *packed, uint8_t dtype, const float *x, uint64_t stride, uint32_t first,
                                uint32_t tokens) {
    for (uint32_t token = 0; token < tokens; token++) {
        if (dtype == SIMPLER_Q4_1) pack_q4_1(packed, token, x + first + token, stride);
        else pack_plain(packed, token, x + first + token, stride);
    }
}

/* The dot products of one weight row with the packed columns; tokens is a constant wherever this is inlined. */
ALWAYS_INLINE void dot_row(const Columns *packed, uint8_t dtype, const uint8_t *row, uint32_t tokens, float *out) {
    if (dtype == SIMPLER_Q4_1) dot_q4_1(packed, row, tokens, out);
    else if (dtype == SIMPLER_Q8_0) dot_q8_0(packed, row, tokens, out);
    else dot_f32(packed, row, tokens, out);
}

#endif
