//! A panel of weights: 32 columns, as words of four bytes each, and what is known of each column.

use super::activation_bits::{LEVELS, Rounding, magnitude, round};
use crate::isa::AutoVectorize;
use crate::matrix::Matrix;
use core::ops::Range;

/// Columns in a panel, on every instruction set: those of the screen, too.
pub(super) const PANEL: usize = 32;

/// Words behind the bytes of a panel: a scale and an offset for each column.
pub(super) const SCALES: usize = 2 * PANEL;

/// Words of a panel.
#[inline(always)]
pub(super) const fn panel_words(depth: usize) -> usize {
    depth.div_ceil(4) * PANEL + SCALES
}

/// Columns that are rounded together: two vectors of the widest.
const TOGETHER: usize = 32;

/// Rounds columns of a block into places of a panel.
pub(super) struct Columns<'b, 'a> {
    pub(super) block: &'b Matrix<'a>,
    /// The first column of the block. Those beyond the last are zeros.
    pub(super) from: usize,
    /// The panel.
    pub(super) words: &'b mut [f32],
    /// Where in the panel the columns go.
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
        // Columns that exist.
        let valid = count.min(block.columns().saturating_sub(from));
        let row = |k: usize| {
            let mut row = [0.0f32; TOGETHER];
            if block.column_stride() == 1 && valid == TOGETHER {
                // SAFETY: so many contiguous elements of row `k`, which the view has.
                row = unsafe {
                    let at = block.as_ptr().add(k * block.row_stride() + from);
                    at.cast::<[f32; TOGETHER]>().read_unaligned()
                };
            } else {
                for (j, x) in row.iter_mut().enumerate().take(valid) {
                    *x = block.at(k, from + j);
                }
            }
            row
        };
        let mut largest = [0i32; TOGETHER];
        for k in 0..depth {
            for (largest, x) in largest.iter_mut().zip(row(k)) {
                *largest = magnitude(x).max(*largest);
            }
        }
        let mut scales = [0.0f32; TOGETHER];
        let mut inverses = [0.0f32; TOGETHER];
        // All bits of columns whose bytes are not zeros altogether.
        let mut usable = [0u16; TOGETHER];
        for j in 0..TOGETHER {
            let rounding = Rounding::new(largest[j], LEVELS);
            scales[j] = rounding.scale;
            if let Some(inverse) = rounding.inverse {
                (inverses[j], usable[j]) = (inverse, u16::MAX);
            }
        }
        let mut sums = [0i32; TOGETHER];
        for step in 0..steps {
            let mut four = [0u32; TOGETHER];
            for byte in 0..4 {
                let k = 4 * step + byte;
                if k >= depth {
                    break;
                }
                let x = row(k);
                for j in 0..TOGETHER {
                    let q = (round(x[j], inverses[j]) & usable[j]) as u8;
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
