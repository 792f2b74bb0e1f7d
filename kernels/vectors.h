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

/* e^value to about one unit in the last place; below -87 it is 0, above 88 it stays e^88.
 * 2^n e^r with |r| <= ln 2 / 2, and e^r by its series. Free of branches, so loops over it vectorize. */
ALWAYS_INLINE float exp_f32(float value) {
    const float rounder = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
    float clamped = value > 88.0f ? 88.0f : value;
    clamped = clamped < -87.0f ? -87.0f : clamped;
    float shifted = clamped * 0x1.715476p+0f + rounder;
    int32_t shifted_bits, exponent_bits;
    memcpy(&shifted_bits, &shifted, sizeof shifted_bits);
    float n = shifted - rounder;
    float r = clamped - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    exponent_bits = (int32_t)((uint32_t)shifted_bits << 23) + 0x3f800000;
    float power;
    memcpy(&power, &exponent_bits, sizeof power);
    float result = series * power;
    return value < -87.0f ? 0.0f : result;
}

#endif
