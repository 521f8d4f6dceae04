//! How weights are stored, and what numbers of sixteen bits are.
//!
//! Both 16-bit forms widen to f32 exactly, so a product with weights stored in them has the bits of the
//! product with the f32 that they stand for. What loses something is the way there, once, when a matrix
//! is packed.
//!
//! A panel holds two rows of the matrix side by side, `[ceil(depth / 2)][2 panel]` numbers, with a row of
//! zeros after an odd last one, so that one vector of memory is two vectors of floats. What lies next to
//! what within two rows is what widens in one instruction:
//!
//! * bf16: the two rows of each column next to each other. A word is then the upper row after a mask
//!   and the lower one after a shift (and what instructions that multiply bf16 want, too).
//! * f16: the vectors of the two rows in turn, as conversions take numbers that lie side by side.

use crate::isa::Isa;
use crate::simd::half::{widen_bf16, widen_f16};

/// How a packed matrix stores its numbers.
///
/// The 16-bit forms take half of the memory, and reading it is what the time goes into when there are few
/// rows. They lose nothing if the weights come from a checkpoint of that type; others are rounded to the
/// nearest (ties to even) when they are packed: bf16 keeps 8 bits of a number, f16 keeps 11 from `2^-14`
/// on, and a multiple of `2^-24` below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dtype {
    /// As they are.
    #[default]
    F32,
    /// The upper half of an f32.
    Bf16,
    /// IEEE 754 binary16: up to 65,504.
    F16,
}

impl Dtype {
    /// Whether this build can multiply by weights in this format: 16-bit formats need the feature `f16`.
    pub const fn is_enabled(self) -> bool {
        matches!(self, Self::F32) || cfg!(feature = "f16")
    }

    /// Words of four bytes in a column of `depth` numbers.
    #[inline(always)]
    pub(super) const fn words(self, depth: usize) -> usize {
        match self {
            Self::F32 => depth,
            Self::Bf16 | Self::F16 => depth.div_ceil(2),
        }
    }

    /// The magnitude from which on a finite number would become infinite, as bits of an f32.
    #[inline(always)]
    pub(super) const fn too_large(self) -> u32 {
        const INFINITY: u32 = f32::INFINITY.to_bits();
        match self {
            Self::F32 => INFINITY,
            // Half a unit above the largest, which a tie rounds up.
            Self::Bf16 => 0x7f7f_8000,
            Self::F16 => 65_520f32.to_bits(),
        }
    }

    /// The largest number.
    pub(super) fn largest(self) -> f32 {
        match self {
            Self::F32 => f32::MAX,
            Self::Bf16 => widen_bf16(0x7f7f),
            Self::F16 => widen_f16(0x7bff),
        }
    }

    /// The f32 that a number of this form stands for.
    #[inline(always)]
    pub(super) fn widen(self, half: u16) -> f32 {
        match self {
            Self::F16 => widen_f16(half),
            Self::F32 | Self::Bf16 => widen_bf16(half),
        }
    }
}

/// Where the numbers of a column are, counted in numbers of sixteen bits.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    /// Row 0.
    pub(super) start: usize,
    /// From an even row to the odd one after it.
    pub(super) odd: usize,
    /// From two rows to the next two.
    pub(super) step: usize,
}

impl Halves {
    /// Column `column` of a matrix of `depth` rows.
    #[inline(always)]
    pub(super) const fn of_column(isa: Isa, storage: Dtype, depth: usize, column: usize) -> Self {
        let (panel, lanes) = (isa.panel(), isa.lanes());
        let within = column % panel;
        let (place, odd) = match storage {
            Dtype::F16 => (within / lanes * 2 * lanes + within % lanes, lanes),
            Dtype::F32 | Dtype::Bf16 => (2 * within, 1),
        };
        Self { start: (column - within) * 2 * depth.div_ceil(2) + place, odd, step: 2 * panel }
    }

    /// Row `k`.
    #[inline(always)]
    pub(super) const fn row(self, k: usize) -> usize {
        self.start + k / 2 * self.step + k % 2 * self.odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::half::{narrow_bf16, narrow_f16};

    #[test]
    fn what_is_too_large_is_what_becomes_infinite() {
        for storage in [Dtype::Bf16, Dtype::F16] {
            let narrow = if storage == Dtype::F16 { narrow_f16 } else { narrow_bf16 };
            let first = f32::from_bits(storage.too_large());
            for sign in [1.0, -1.0] {
                let narrowed = |x: f32| storage.widen(narrow(sign * x)) * sign;
                assert!(narrowed(first.next_down()).is_finite());
                for x in [first, f32::MAX, f32::INFINITY] {
                    assert_eq!(narrowed(x), f32::INFINITY, "{storage:?}: {x:e}");
                }
            }
        }
    }
}
