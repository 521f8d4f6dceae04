//! Quantizes weights into panels. A panel has 32 columns, as words of four bytes, followed by a scale and an offset per
//! column.

use super::quantization::{LEVELS, Rounding, magnitude, round};
use crate::isa::AutoVectorize;
use crate::matrix::Matrix;
use core::ops::Range;

/// Columns in a panel, on every instruction set. The pruning table has the same number.
pub(super) const PANEL: usize = 32;

/// Words after the int8 values of a panel: a scale and an offset for each column.
pub(super) const SCALES: usize = 2 * PANEL;

/// Words of a panel.
#[inline(always)]
pub(super) const fn panel_words(depth: usize) -> usize {
    depth.div_ceil(4) * PANEL + SCALES
}

/// Columns that are quantized together: two vectors of the widest instruction set.
const GROUP: usize = 32;

/// Quantizes columns of a block into a range of columns of a panel.
pub(super) struct Columns<'b, 'a> {
    pub(super) block: &'b Matrix<'a>,
    /// The first column of the block. Columns after its last one are zeros.
    pub(super) from: usize,
    /// The panel.
    pub(super) words: &'b mut [f32],
    /// The destination columns in the panel.
    pub(super) places: Range<usize>,
}

impl AutoVectorize for Columns<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { block, from, words, places } = self;
        let depth = block.rows();
        let steps = depth.div_ceil(4);
        let count = places.len();
        // Columns that are in the block.
        let valid = count.min(block.columns().saturating_sub(from));
        let row = |k: usize| {
            let mut row = [0.0f32; GROUP];
            if block.column_stride() == 1 && valid == GROUP {
                // SAFETY: the column stride is 1 and `from + GROUP` is at most the number of columns (`valid`), so row
                // `k` of the view has these elements.
                row = unsafe {
                    let at = block.as_ptr().add(k * block.row_stride() + from);
                    at.cast::<[f32; GROUP]>().read_unaligned()
                };
            } else {
                for (j, x) in row.iter_mut().enumerate().take(valid) {
                    *x = block.at(k, from + j);
                }
            }
            row
        };
        let mut largest = [0i32; GROUP];
        for k in 0..depth {
            for (largest, x) in largest.iter_mut().zip(row(k)) {
                *largest = magnitude(x).max(*largest);
            }
        }
        let mut scales = [0.0f32; GROUP];
        let mut inverses = [0.0f32; GROUP];
        // A mask: all bits set for columns that are quantized, zero for columns of zeros.
        let mut mask = [0u16; GROUP];
        for j in 0..GROUP {
            let rounding = Rounding::new(largest[j], LEVELS);
            scales[j] = rounding.scale;
            if let Some(inverse) = rounding.inverse {
                (inverses[j], mask[j]) = (inverse, u16::MAX);
            }
        }
        let mut sums = [0i32; GROUP];
        for step in 0..steps {
            let mut four = [0u32; GROUP];
            for byte in 0..4 {
                let k = 4 * step + byte;
                if k >= depth {
                    break;
                }
                let x = row(k);
                for j in 0..GROUP {
                    let q = (round(x[j], inverses[j]) & mask[j]) as u8;
                    sums[j] += i32::from(q.cast_signed());
                    four[j] |= u32::from(q) << (8 * byte);
                }
            }
            let to = &mut words[step * PANEL..][..PANEL];
            for (to, four) in to[places.clone()].iter_mut().zip(four) {
                *to = f32::from_bits(four);
            }
        }
        let (to_scales, offsets) = words[steps * PANEL..].split_at_mut(PANEL);
        for (to, scale) in to_scales[places.clone()].iter_mut().zip(scales) {
            *to = scale;
        }
        for (to, sum) in offsets[places].iter_mut().zip(sums) {
            *to = f32::from_bits(sum.wrapping_mul(-128).cast_unsigned());
        }
    }
}
