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

#include <math.h>

#include "vectors.h"

/* Widest head; the loader refuses more. */
#define HEAD_MAX 256
/* Positions whose scores are held at a time: with a head of 64, 32 KiB of keys. */
#define SPAN 128

/* Rotates adjacent pairs by the angles of one position. */
ALWAYS_INLINE void rotate(float *to, const float *from, uint64_t stride, const float *rope, uint32_t head,
                          float scale) {
    for (uint32_t i = 0; i < head; i += 2) {
        float a = from[i * stride] * scale, b = from[(i + 1) * stride] * scale;
        to[i] = a * rope[i] - b * rope[i + 1];
        to[i + 1] = a * rope[i + 1] + b * rope[i];
    }
}

/* One query over `positions` cached keys and values. */
ALWAYS_INLINE void attend(const float *query, const float *keys, const float *values, uint32_t positions,
                          float *out, uint32_t head) {
    float scores[SPAN];
    float maximum = -0x1.fffffep127f, sum = 0;
    uint32_t whole = head / LANES * LANES;
    for (uint32_t i = 0; i < head; i++) out[i] = 0;
    for (uint32_t start = 0; start < positions; start += SPAN) {
        uint32_t span = positions - start < SPAN ? positions - start : SPAN;
        float largest = maximum;
        for (uint32_t at = 0; at < span; at++) {
            const float *key = keys + (uint64_t)(start + at) * head;
            f32x8 even = {0}, odd = {0};
            float score = 0;
            for (uint32_t i = 0; i < whole; i += LANES) {
                f32x8 product = load8(query + i) * load8(key + i);
                if (i / LANES % 2) odd += product;
                else even += product;
            }
            for (uint32_t i = whole; i < head; i++) score += query[i] * key[i];
            scores[at] = score + sum8(even + odd);
        }
        for (uint32_t at = 0; at < span; at++) largest = scores[at] > largest ? scores[at] : largest;
        float shrink = exp_f32(maximum - largest);
        maximum = largest;
        for (uint32_t at = 0; at < span; at++) scores[at] = exp_f32(scores[at] - largest);
        sum *= shrink;
        for (uint32_t at = 0; at < span; at++) sum += scores[at];
        f32x8 totals[HEAD_MAX / LANES];
        for (uint32_t i = 0; i < whole; i += LANES) totals[i / LANES] = load8(out + i) * shrink;
        for (uint32_t at = 0; at < span; at++) {
            const float *value = values + (uint64_t)(start + at) * head;
            for (uint32_t i = 0; i < whole; i += LANES) totals[i / LANES] += scores[at] * load8(value + i);
        }
        for (uint32_t i = 0; i < whole; i += LANES) store8(out + i, totals[i / LANES]);
        for (uint32_t i = whole; i < head; i++) {
            float total = out[i] * shrink;
            for (uint32_t at = 0; at < span; at++) total += scores[at] * values[(uint64_t)(start + at) * head + i];
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
