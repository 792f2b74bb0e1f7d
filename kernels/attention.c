/* Attention of one key and value head and the query heads that share it.
 *
 * tensors: q [group * head, tokens], k [head, tokens], v [head, tokens] as the projections left them;
 *          k_cache, v_cache [positions, head] of this layer and head, written at `position` and read before it;
 *          rope [tokens, head / 2, 2] cosines and sines of the tokens' positions; out [group * head, tokens]
 * scalars: position of the first token
 *
 * The scores of a query are never held whole: positions are taken in spans, with a running maximum and
 * sum, so that the stack does not grow with the context.
 */
#include <simpler/kernel.h>

#include <float.h>
#include <math.h>

#include "vectors.h"

/* Widest head; the loader refuses more. */
#define HEAD_MAX 256
/* Positions whose scores are held at a time: with a head of 64, 32 KiB of keys. */
#define SPAN 128
_Static_assert(SPAN % LANES == 0, "scores are padded to whole vectors");

/* Rotates adjacent pairs by the angles of one position. */
ALWAYS_INLINE void rotate(float *to, const float *from, uint64_t stride, const float *rope, uint32_t head,
                          float scale) {
    for (uint32_t i = 0; i < head; i += 2) {
        float a = from[i * stride] * scale, b = from[(i + 1) * stride] * scale;
        to[i] = a * rope[i] - b * rope[i + 1];
        to[i + 1] = a * rope[i + 1] + b * rope[i];
    }
}

ALWAYS_INLINE f32x8 products(const float *query, const float *key, uint32_t whole) {
    f32x8 even = {0}, odd = {0};
    for (uint32_t i = 0; i < whole; i += LANES) {
        f32x8 product = load8(query + i) * load8(key + i);
        if (i / LANES % 2) odd += product;
        else even += product;
    }
    return even + odd;
}

/* The scores of `span` keys, and lowest ones behind them up to a whole number of vectors. */
ALWAYS_INLINE void score(const float *query, const float *keys, uint32_t span, float *scores, uint32_t head) {
    uint32_t whole = head / LANES * LANES, at = 0;
    for (; at + 4 <= span; at += 4) {
        f32x8 four[4];
        for (uint32_t i = 0; i < 4; i++) four[i] = products(query, keys + (uint64_t)(at + i) * head, whole);
        *(f32x4_in_memory *)(scores + at) = sums_of_four(four);
    }
    for (; at < span; at++) scores[at] = sum8(products(query, keys + (uint64_t)at * head, whole));
    for (uint32_t i = whole; i < head; i++)
        for (at = 0; at < span; at++) scores[at] += query[i] * keys[(uint64_t)at * head + i];
    for (at = span; at % LANES; at++) scores[at] = -FLT_MAX;
}

/* One query over `positions` cached keys and values. */
ALWAYS_INLINE void attend(const float *query, const float *keys, const float *values, uint32_t positions,
                          float *out, uint32_t head) {
    float scores[SPAN];
    float maximum = -FLT_MAX, sum = 0;
    uint32_t whole = head / LANES * LANES;
    for (uint32_t i = 0; i < head; i++) out[i] = 0;
    for (uint32_t start = 0; start < positions; start += SPAN) {
        uint32_t span = positions - start < SPAN ? positions - start : SPAN;
        const float *value = values + (uint64_t)start * head;
        score(query, keys + (uint64_t)start * head, span, scores, head);
        f32x8 largest = splat8(maximum), shares = {0};
        for (uint32_t at = 0; at < span; at += LANES) largest = max8(largest, load8(scores + at));
        float before = maximum;
        for (uint32_t lane = 0; lane < LANES; lane++) maximum = largest[lane] > maximum ? largest[lane] : maximum;
        float shrink = exp8(splat8(before - maximum))[0];
        for (uint32_t at = 0; at < span; at += LANES) {
            f32x8 share = exp8(load8(scores + at) - maximum);
            store8(scores + at, share);
            shares += share;
        }
        sum = sum * shrink + sum8(shares);
        f32x8 totals[HEAD_MAX / LANES];
        for (uint32_t i = 0; i < whole; i += LANES) totals[i / LANES] = load8(out + i) * shrink;
        for (uint32_t at = 0; at < span; at++)
            for (uint32_t i = 0; i < whole; i += LANES)
                totals[i / LANES] += scores[at] * load8(value + (uint64_t)at * head + i);
        for (uint32_t i = 0; i < whole; i += LANES) store8(out + i, totals[i / LANES]);
        for (uint32_t i = whole; i < head; i++) {
            float total = out[i] * shrink;
            for (uint32_t at = 0; at < span; at++) total += scores[at] * value[(uint64_t)at * head + i];
            out[i] = total;
        }
    }
    for (uint32_t i = 0; i < head; i++) out[i] /= sum;
}

ALWAYS_INLINE void attention(const SimplerKernelArgs *args, uint32_t head) {
    const float *q = simpler_tensor_data(args->tensors[0]);
    const float *k = simpler_tensor_data(args->tensors[1]);
    const float *v = simpler_tensor_data(args->tensors[2]);
    float *keys = simpler_tensor_data(args->tensors[3]);
    float *values = simpler_tensor_data(args->tensors[4]);
    const float *rope = simpler_tensor_data(args->tensors[5]);
    float *out = simpler_tensor_data(args->tensors[6]);
    uint64_t tokens = args->tensors[0]->shapes[1];
    uint32_t group = args->tensors[0]->shapes[0] / head;
    uint32_t position = (uint32_t)args->scalars[0];
    float scale = 1.0f / sqrtf((float)head);
    for (uint64_t token = 0; token < tokens; token++) {
        uint64_t row = (position + token) * head;
        rotate(keys + row, k + token, tokens, rope + token * head, head, 1.0f);
        for (uint32_t i = 0; i < head; i++) values[row + i] = v[i * tokens + token];
    }
    for (uint64_t token = 0; token < tokens; token++) {
        for (uint32_t member = 0; member < group; member++) {
            uint64_t first = (uint64_t)member * head * tokens + token;
            float query[HEAD_MAX], result[HEAD_MAX];
            rotate(query, q + first, tokens, rope + token * head, head, scale);
            attend(query, keys, values, position + (uint32_t)token + 1, result, head);
            for (uint32_t i = 0; i < head; i++) out[first + i * tokens] = result[i];
        }
    }
}

KERNEL_EXPORT void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t head = args->tensors[1]->shapes[0];
    /* The common head is worth its own copy: query and sums stay in registers. */
    if (head == 64) attention(args, 64);
    else attention(args, head);
}
