//! Conversions of bf16 and f16 numbers: of vectors, with the instructions of a set, and of single numbers in plain Rust.
//! Every instruction set must return the same values.

use super::vector::SimdF32;
use core::marker::PhantomData;

/// How a vector of 16-bit numbers is converted to f32, which is exact. Implementations are `#[inline(always)]`.
pub(crate) trait F16Load: Copy {
    /// Whether [`SimdF32::load_f16_half`] can load the numbers.
    const HALF_VECTORS: bool = false;
    /// Converts part `part`, 0 or 1, of the numbers from `from`: [`SimdF32::load_bf16`] or [`SimdF32::load_f16`].
    ///
    /// # Safety
    /// As these functions.
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32;
    /// [`F16Load::load`] without a temporary register, where that is possible.
    ///
    /// # Safety
    /// As [`F16Load::load`].
    #[inline(always)]
    unsafe fn load_low_register<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { Self::load(s, from, part) }
    }
}

/// bf16, two numbers in each word.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

impl F16Load for Bf16 {
    #[inline(always)]
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { s.load_bf16(from, part) }
    }
    #[inline(always)]
    unsafe fn load_low_register<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { s.load_bf16_alone(from, part) }
    }
}

/// f16, in consecutive vectors.
#[derive(Clone, Copy)]
pub(crate) struct F16;

impl F16Load for F16 {
    const HALF_VECTORS: bool = true;

    #[inline(always)]
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { s.load_f16(from, part) }
    }
}

/// `L` in a tile that leaves no free register. With `L` itself, the loop of three rows and two panels on AVX2 has two
/// vectors on the stack, as `.ci/asm-guard` reports.
#[derive(Clone, Copy)]
pub(crate) struct LowRegister<L>(PhantomData<L>);

impl<L: F16Load> F16Load for LowRegister<L> {
    #[inline(always)]
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { L::load_low_register(s, from, part) }
    }
}

/// The nearest bf16, ties to even; a NaN remains NaN and becomes quiet.
#[inline(always)]
pub(crate) fn narrow_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    ((if x.is_nan() { bits | 1 << 22 } else { rounded }) >> 16) as u16
}

/// Converts bf16 to f32. A bf16 is the upper half of an f32.
#[inline(always)]
pub(crate) fn widen_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Bit position of the exponent of an f32.
const EXPONENT: u32 = 23;

/// Difference of the exponent biases of f32 and f16, at the position of the exponent.
const REBIAS: u32 = (127 - 15) << EXPONENT;

/// From this magnitude on, the nearest f16 is infinite.
const TOO_LARGE: u32 = 65_520f32.to_bits();

/// The nearest f16, ties to even; a NaN remains NaN and becomes quiet.
#[inline(always)]
pub(crate) fn narrow_f16(x: f32) -> u16 {
    let magnitude = x.to_bits() & 0x7fff_ffff;
    let sign = x.to_bits() >> 16 & 0x8000;
    // The last bit of the sum has the value of the smallest subnormal f16, so the addition rounds to a subnormal f16.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let usual = magnitude.wrapping_sub(REBIAS).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let half = if magnitude > f32::INFINITY.to_bits() {
        0x7e00 | (magnitude >> 13 & 0x3ff)
    } else if magnitude >= TOO_LARGE {
        0x7c00
    } else if magnitude < (REBIAS + (1 << EXPONENT)) {
        small
    } else {
        usual
    };
    (sign | half) as u16
}

/// Converts f16 to f32, with integer operations and one subtraction of normal numbers, so no CPU takes a slow path.
#[inline(always)]
pub(crate) fn widen_f16(half: u16) -> f32 {
    let half = u32::from(half);
    let shifted = (half & 0x7fff) << 13;
    let exponent = shifted >> EXPONENT;
    let small = f32::from_bits(shifted + REBIAS + (1 << EXPONENT))
        - f32::from_bits(REBIAS + (1 << EXPONENT));
    let magnitude = match exponent {
        0 => small.to_bits(),
        31 => shifted + 2 * REBIAS,
        _ => shifted + REBIAS,
    };
    f32::from_bits(magnitude | (half & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of an f16, computed from its definition.
    fn value(half: u16) -> f64 {
        let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * (-24f64).exp2(),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * f64::from(exponent - 25).exp2(),
        };
        if half & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn every_f16_converts_to_its_value_and_back() {
        for half in 0..=u16::MAX {
            let (wide, expected) = (widen_f16(half), value(half));
            if expected.is_nan() {
                assert!(wide.is_nan());
                assert_eq!(narrow_f16(wide), half | 0x200);
            } else {
                assert_eq!(f64::from(wide).to_bits(), expected.to_bits(), "{half:#x}");
                assert_eq!(narrow_f16(wide), half);
            }
            let wide = widen_bf16(half);
            assert_eq!(wide.to_bits(), u32::from(half) << 16);
            assert_eq!(narrow_bf16(wide), if wide.is_nan() { half | 0x40 } else { half });
        }
    }

    /// Around every f16 and every midpoint between two of them.
    #[test]
    fn narrowing_takes_the_nearest_number_and_the_even_one_of_two() {
        for half in 0..0x7bff_u16 {
            let (low, high) = (value(half), value(half + 1));
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(f64::from(middle), (low + high) / 2.0);
            let even = half + half % 2;
            for (x, expected) in
                [(middle.next_down(), half), (middle, even), (middle.next_up(), half + 1)]
            {
                assert_eq!(narrow_f16(x), expected, "{x:e}");
                assert_eq!(narrow_f16(-x), expected | 0x8000, "{x:e}");
            }
        }
        for half in 0..0x7f7f_u16 {
            let middle = f32::from_bits(u32::from(half) << 16 | 0x8000);
            let even = half + half % 2;
            for (x, expected) in
                [(middle.next_down(), half), (middle, even), (middle.next_up(), half + 1)]
            {
                assert_eq!(narrow_bf16(x), expected, "{x:e}");
                assert_eq!(narrow_bf16(-x), expected | 0x8000, "{x:e}");
            }
        }
    }
}
