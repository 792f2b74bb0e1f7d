/* Eight floats at a time, halves, and an exponential that vectorizes.
 *
 * The types are GCC's and Clang's vector extension: with AVX2 one value is one register, without it the
 * compiler splits it, so every kernel has a single source for both.
 */
#ifndef SIMPLER_KERNELS_VECTORS_H
#define SIMPLER_KERNELS_VECTORS_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* The vectors are passed between inlined functions only, so there is no ABI to keep. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define KERNEL_EXPORT __attribute__((visibility("default")))
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LANES 8

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
/* The same in memory, where alignment is that of the element. */
typedef float f32x4_in_memory __attribute__((vector_size(16), aligned(4), may_alias));
typedef float f32x8_in_memory __attribute__((vector_size(32), aligned(4), may_alias));
typedef int8_t i8x8_in_memory __attribute__((vector_size(8), aligned(1), may_alias));
typedef int32_t i32x4_in_memory __attribute__((vector_size(16), aligned(1), may_alias));

ALWAYS_INLINE f32x8 load8(const float *from) { return *(const f32x8_in_memory *)from; }
ALWAYS_INLINE void store8(float *to, f32x8 value) { *(f32x8_in_memory *)to = value; }
ALWAYS_INLINE f32x4 load4(const float *from) { return *(const f32x4_in_memory *)from; }
ALWAYS_INLINE f32x8 splat8(float value) { return value - (f32x8){0}; }

/* Eight signed bytes. GCC 12 does not find the widening load by itself. */
ALWAYS_INLINE f32x8 floats_from_bytes(const uint8_t *from) {
#ifdef __AVX2__
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from)));
#else
    return __builtin_convertvector(*(const i8x8_in_memory *)(const void *)from, f32x8);
#endif
}

ALWAYS_INLINE float sum4(f32x4 v) {
    f32x4 pairs = v + __builtin_shufflevector(v, v, 2, 3, 2, 3);
    return pairs[0] + pairs[1];
}

ALWAYS_INLINE float sum8(f32x8 v) {
    return sum4(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}

ALWAYS_INLINE float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A scalar argument that carries the bits of a float. */
ALWAYS_INLINE float float_scalar(uint64_t scalar) { return float_from_bits((uint32_t)scalar); }

/* A finite half. Moving its bits to the place of a float's scales it by 2^-112, subnormals included. */
ALWAYS_INLINE float float_from_half(uint16_t half) {
#ifdef __F16C__
    return _cvtsh_ss(half);
#else
    float magnitude = float_from_bits((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
    return half & 0x8000 ? -magnitude : magnitude;
#endif
}

/* Four halves that lie in two words. */
ALWAYS_INLINE f32x4 floats_from_halves(uint32_t first, uint32_t second) {
#ifdef __F16C__
    return (f32x4)_mm_cvtph_ps(_mm_set_epi32(0, 0, (int)second, (int)first));
#else
    return (f32x4){float_from_half((uint16_t)first), float_from_half((uint16_t)(first >> 16)),
                   float_from_half((uint16_t)second), float_from_half((uint16_t)(second >> 16))};
#endif
}

ALWAYS_INLINE f32x8 select8(i32x8 mask, f32x8 yes, f32x8 no) {
    return (f32x8)((mask & (i32x8)yes) | (~mask & (i32x8)no));
}

ALWAYS_INLINE f32x8 max8(f32x8 a, f32x8 b) { return select8(a > b, a, b); }

/* The sums of four vectors. */
ALWAYS_INLINE f32x4 sums_of_four(const f32x8 v[4]) {
    f32x4 halves[4];
    for (int i = 0; i < 4; i++)
        halves[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3) + __builtin_shufflevector(v[i], v[i], 4, 5, 6, 7);
    f32x4 first = __builtin_shufflevector(halves[0], halves[1], 0, 4, 1, 5) +
                  __builtin_shufflevector(halves[0], halves[1], 2, 6, 3, 7);
    f32x4 second = __builtin_shufflevector(halves[2], halves[3], 0, 4, 1, 5) +
                   __builtin_shufflevector(halves[2], halves[3], 2, 6, 3, 7);
    return __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
}

/* e^value to about one unit in the last place; below -87 it is 0, above 88 it stays e^88.
 * 2^n e^r with |r| <= ln 2 / 2, and e^r by its series. */
ALWAYS_INLINE f32x8 exp8(f32x8 value) {
    const f32x8 rounder = splat8(0x1.8p23f); /* adding it leaves the nearest integer in the low bits */
    f32x8 clamped = select8(value > splat8(88.0f), splat8(88.0f), value);
    clamped = max8(clamped, splat8(-87.0f));
    f32x8 shifted = clamped * 0x1.715476p+0f + rounder;
    f32x8 n = shifted - rounder;
    f32x8 r = clamped - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    f32x8 series = splat8(1.0f / 5040);
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    f32x8 power = (f32x8)(((u32x8)shifted << 23) + 0x3f800000u);
    return select8(value < splat8(-87.0f), splat8(0.0f), series * power);
}

#endif
