//! The dtypes of numbers in memory.

use crate::simd::half::{widen_bf16, widen_f16};

/// The dtype of a packed matrix or of a KV cache.
///
/// The 16-bit dtypes take half of the memory; with few rows, reading weights takes most of the time. If the checkpoint
/// has the same dtype, nothing is lost. Other weights are rounded to the nearest value (ties to even) when they are
/// packed: bf16 has 8 significant bits; f16 has 11 from `2^-14` on, and multiples of `2^-24` below. A KV cache is f32
/// or f16; see [`CacheShape::dtype`](crate::CacheShape::dtype).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dtype {
    /// 32-bit floats, not rounded.
    #[default]
    F32,
    /// The upper half of an f32.
    Bf16,
    /// IEEE 754 binary16: up to 65,504.
    F16,
}

impl Dtype {
    /// Whether this build has kernels for this dtype: 16-bit dtypes need the feature `f16`.
    pub const fn is_enabled(self) -> bool {
        matches!(self, Self::F32) || cfg!(feature = "f16")
    }

    /// The dtypes.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// The name: `f32`, `bf16` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The dtype with this name, in lower case as in a command line or in upper case as in a safetensors file.
    ///
    /// ```
    /// use simdformer_kernels::Dtype;
    ///
    /// assert_eq!(Dtype::from_name("f16"), Some(Dtype::F16));
    /// assert_eq!(Dtype::from_name("BF16"), Some(Dtype::Bf16));
    /// assert_eq!(Dtype::from_name("I64"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a number.
    #[inline(always)]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// Words of four bytes in a column of `depth` values.
    #[inline(always)]
    pub(crate) const fn words(self, depth: usize) -> usize {
        match self {
            Self::F32 => depth,
            Self::Bf16 | Self::F16 => depth.div_ceil(2),
        }
    }

    /// The smallest magnitude of a finite f32 that would round to infinity, as bits of an f32.
    #[inline(always)]
    pub(crate) const fn too_large(self) -> u32 {
        const INFINITY: u32 = f32::INFINITY.to_bits();
        match self {
            Self::F32 => INFINITY,
            // Half a unit in the last place above the largest value: a tie, which rounds to infinity.
            Self::Bf16 => 0x7f7f_8000,
            Self::F16 => 65_520f32.to_bits(),
        }
    }

    /// The largest finite value.
    pub(crate) fn largest(self) -> f32 {
        match self {
            Self::F32 => f32::MAX,
            Self::Bf16 => widen_bf16(0x7f7f),
            Self::F16 => widen_f16(0x7bff),
        }
    }

    /// Converts a 16-bit value of this dtype to f32, exactly. A NaN keeps its payload.
    #[inline(always)]
    pub fn widen(self, half: u16) -> f32 {
        match self {
            Self::F16 => widen_f16(half),
            Self::F32 | Self::Bf16 => widen_bf16(half),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::half::{narrow_bf16, narrow_f16};

    #[test]
    fn too_large_is_the_first_magnitude_that_rounds_to_infinity() {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let narrow = if dtype == Dtype::F16 { narrow_f16 } else { narrow_bf16 };
            let first = f32::from_bits(dtype.too_large());
            for sign in [1.0, -1.0] {
                let narrowed = |x: f32| dtype.widen(narrow(sign * x)) * sign;
                assert!(narrowed(first.next_down()).is_finite());
                for x in [first, f32::MAX, f32::INFINITY] {
                    assert_eq!(narrowed(x), f32::INFINITY, "{dtype:?}: {x:e}");
                }
            }
        }
    }
}
