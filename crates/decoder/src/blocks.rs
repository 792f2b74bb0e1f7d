//! The block formats of weights, on the host: sizes, unpacking a row, and packing the built-in model's rows.

use simpler_kernel_abi::DType;

/// Elements of a quantized block.
pub const BLOCK: usize = 32;
/// Bytes of a Q4_1 block: f16 scale, f16 minimum, 32 nibbles.
pub const Q4_1_BYTES: usize = 20;
/// Bytes of a Q8_0 block: f16 scale, 32 signed bytes.
pub const Q8_0_BYTES: usize = 34;

/// Bytes of `elements` consecutive weights; `None` for a format that weights do not have, for a part of a
/// block, and on overflow.
pub fn weight_bytes(dtype: DType, elements: u64) -> Option<u64> {
    let (block, bytes) = match dtype {
        DType::F32 => (1, 4),
        DType::F16 => (1, 2),
        DType::Q4_1 => (BLOCK as u64, Q4_1_BYTES as u64),
        DType::Q8_0 => (BLOCK as u64, Q8_0_BYTES as u64),
        DType::I32 | DType::U8 => return None,
    };
    if !elements.is_multiple_of(block) {
        return None;
    }
    (elements / block).checked_mul(bytes)
}

/// The value of a half.
pub fn f32_from_f16(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10 & 0x1f);
    let fraction = u32::from(half & 0x3ff);
    match (exponent, fraction) {
        (0, _) => {
            let magnitude = fraction as f32 * f32::from_bits((127 - 24) << 23);
            if sign == 0 { magnitude } else { -magnitude }
        }
        (0x1f, _) => f32::from_bits(sign | 0xff << 23 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13),
    }
}

/// The half nearest to a value, ties to even; beyond the range it is infinite.
pub fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // 65520 and above round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14 the result is subnormal: adding 0.5 leaves the multiple of 2^-24, rounded, in the low bits.
    if magnitude < 0x3880_0000 {
        let aligned = f32::from_bits(magnitude) + 0.5;
        return sign | (aligned.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    sign | ((rounded - ((127 - 15) << 23)) >> 13) as u16
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f32_from_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// Unpacks weights; `bytes` holds exactly `out.len()` of them.
///
/// # Panics
/// If the lengths do not belong together or `dtype` is not a weight format.
pub fn unpack(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(weight_bytes(dtype, out.len() as u64), Some(bytes.len() as u64), "weights and their bytes");
    match dtype {
        DType::F32 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            }
        }
        DType::F16 => {
            for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = half_at(raw, 0);
            }
        }
        DType::Q4_1 => {
            for (values, block) in out.chunks_exact_mut(BLOCK).zip(bytes.chunks_exact(Q4_1_BYTES)) {
                let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                for (index, byte) in block[4..].iter().enumerate() {
                    values[index] = scale * f32::from(byte & 0xf) + minimum;
                    values[index + BLOCK / 2] = scale * f32::from(byte >> 4) + minimum;
                }
            }
        }
        DType::Q8_0 => {
            for (values, block) in out.chunks_exact_mut(BLOCK).zip(bytes.chunks_exact(Q8_0_BYTES)) {
                let scale = half_at(block, 0);
                for (value, byte) in values.iter_mut().zip(&block[2..]) {
                    *value = scale * f32::from(byte.cast_signed());
                }
            }
        }
        DType::I32 | DType::U8 => unreachable!("weight_bytes knows no such weights"),
    }
}

/// Packs whole blocks into Q4_1.
pub(crate) fn pack_q4_1(values: &[f32], out: &mut Vec<u8>) {
    for block in values.chunks_exact(BLOCK) {
        let minimum = block.iter().copied().fold(f32::INFINITY, f32::min);
        let maximum = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = (maximum - minimum) / 15.0;
        let quantum = |value: f32| {
            if scale == 0.0 { 0 } else { ((value - minimum) / scale).round().clamp(0.0, 15.0) as u8 }
        };
        out.extend_from_slice(&f16_from_f32(scale).to_le_bytes());
        out.extend_from_slice(&f16_from_f32(minimum).to_le_bytes());
        let (low, high) = block.split_at(BLOCK / 2);
        out.extend(low.iter().zip(high).map(|(low, high)| quantum(*low) | quantum(*high) << 4));
    }
}

/// Packs whole blocks into Q8_0.
pub(crate) fn pack_q8_0(values: &[f32], out: &mut Vec<u8>) {
    for block in values.chunks_exact(BLOCK) {
        let largest = block.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let scale = largest / 127.0;
        out.extend_from_slice(&f16_from_f32(scale).to_le_bytes());
        out.extend(block.iter().map(|value| {
            let quantum = if scale == 0.0 { 0.0 } else { (value / scale).round().clamp(-127.0, 127.0) };
            (quantum as i8).cast_unsigned()
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_through_f32() {
        for half in 0..=u16::MAX {
            let value = f32_from_f16(half);
            if value.is_nan() {
                assert!(f32_from_f16(f16_from_f32(value)).is_nan());
            } else {
                assert_eq!(f16_from_f32(value), half, "{half:#06x}");
            }
        }
    }

    #[test]
    fn halves_round_to_even_and_overflow_to_infinity() {
        assert_eq!(f16_from_f32(1.0 + 0.5 / 1024.0), 0x3c00);
        assert_eq!(f16_from_f32(1.0 + 1.5 / 1024.0), 0x3c02);
        assert_eq!(f16_from_f32(65519.0), 0x7bff);
        assert_eq!(f16_from_f32(65520.0), 0x7c00);
    }

    #[test]
    fn packed_blocks_unpack_to_nearby_values() {
        let values: Vec<f32> = (0..64).map(|i| ((i * 37 % 64) as f32 - 31.0) / 16.0).collect();
        for (dtype, step) in [(DType::Q4_1, 4.0 / 15.0), (DType::Q8_0, 2.0 / 127.0)] {
            let mut bytes = Vec::new();
            match dtype {
                DType::Q4_1 => pack_q4_1(&values, &mut bytes),
                _ => pack_q8_0(&values, &mut bytes),
            }
            let mut back = vec![0.0; values.len()];
            unpack(dtype, &bytes, &mut back);
            for (value, back) in values.iter().zip(&back) {
                assert!((value - back).abs() <= step * 0.55, "{dtype:?}: {value} became {back}");
            }
        }
    }
}
