//! The layout of 16-bit weights.
//!
//! Both 16-bit dtypes widen to f32 exactly, so a product with 16-bit weights has the bits of the product with the same
//! values in f32. Only packing can lose bits, once, when it rounds f32 values to 16 bits.
//!
//! A panel stores two rows of the matrix interleaved, `[ceil(depth / 2)][2 panel]` values, with a row of zeros after an
//! odd last row. One vector of memory is then two vectors of f32. The order within two rows is the one that widens in
//! one instruction:
//!
//! * bf16: the two values of each column are adjacent. A mask of a 32-bit word gives the upper row and a shift gives
//!   the lower row. The instructions that multiply bf16 need the same order.
//! * f16: vectors of the two rows alternate, because the conversion instructions read contiguous values.

use crate::dtype::Dtype;
use crate::isa::Isa;

/// The positions of the values of a column, in units of 16-bit values.
#[derive(Clone, Copy)]
pub(crate) struct F16Column {
    /// Position of row 0.
    pub(super) start: usize,
    /// Distance from an even row to the next row.
    pub(super) odd: usize,
    /// Distance from two rows to the next two.
    pub(super) step: usize,
}

impl F16Column {
    /// The positions of column `column` of a matrix with `depth` rows.
    #[inline(always)]
    pub(super) const fn of_column(isa: Isa, dtype: Dtype, depth: usize, column: usize) -> Self {
        let (panel, lanes) = (isa.panel(), isa.lanes());
        let within = column % panel;
        let (offset, odd) = match dtype {
            Dtype::F16 => (within / lanes * 2 * lanes + within % lanes, lanes),
            Dtype::F32 | Dtype::Bf16 => (2 * within, 1),
        };
        Self { start: (column - within) * 2 * depth.div_ceil(2) + offset, odd, step: 2 * panel }
    }

    /// The position of row `k`.
    #[inline(always)]
    pub(super) const fn row(self, k: usize) -> usize {
        self.start + k / 2 * self.step + k % 2 * self.odd
    }
}
