//! The forms in which numbers are stored: beside the kernels, the only file that knows them.
//!
//! A new form of weights is a variant of [`Form`], and what it takes to count, fill and read it here.

use crate::model::error::ModelError;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::screen::{Screen, ScreenError};
use simdformer_kernels::{GemmError, Isa, Matrix, PackedMatrix, Parallelism};

/// How a tensor is stored in memory; [`Parameter::form`](crate::Parameter::form).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// f32, row after row as in the checkpoint: what is looked up or added. Positions begin with the
    /// first that is ever looked up.
    Rows,
    /// f32, in the panels that GEMM reads on the model's instruction set
    /// ([`PackedMatrix`]); projections of one input share a matrix.
    Panels,
    /// Bytes from which the largest products can be told, beside the panels of the same matrix; see
    /// [`simdformer_kernels::screen`].
    Screen,
    /// In the memory of another tensor that holds the same numbers.
    Shared,
}

impl Form {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Panels => "panels",
            Self::Screen => "screen",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The matrix of a linear map, `[depth, columns]`, in panels.
#[derive(Clone, Debug)]
pub(crate) struct Panels {
    pub(crate) range: Range<usize>,
    /// Length of a row of the input.
    pub(crate) depth: usize,
    /// Length of a row of the output.
    pub(crate) columns: usize,
}

impl Panels {
    /// Floats of memory.
    pub(crate) fn floats(isa: Isa, depth: usize, columns: usize) -> Result<usize, ModelError> {
        Ok(PackedMatrix::len(isa, depth, columns)?)
    }

    /// Stores `rows`, `[outputs, depth]` as in a checkpoint, as the columns from `first` on.
    pub(crate) fn fill(
        &self,
        isa: Isa,
        rows: &[f32],
        first: usize,
        memory: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), ModelError> {
        let rows = Matrix::new(rows, rows.len() / self.depth, self.depth);
        let columns = rows.map_err(|_| ModelError::TooLarge)?.transposed();
        let (shape, panels) = ((self.depth, self.columns), &mut memory[self.range.clone()]);
        Ok(PackedMatrix::pack_block_with(isa, columns, shape, first, panels, parallelism)?)
    }

    /// Stores the rows that lie at `rows` in the same memory as the columns from the first on.
    pub(crate) fn fill_from(
        &self,
        isa: Isa,
        rows: Range<usize>,
        memory: &mut [f32],
    ) -> Result<(), ModelError> {
        // The planner hands out disjoint ranges.
        let parts = memory.get_disjoint_mut([rows, self.range.clone()]);
        let [rows, panels] = parts.map_err(|_| ModelError::TooLarge)?;
        let whole = Self { range: 0..panels.len(), ..self.clone() };
        whole.fill(isa, rows, 0, panels, Parallelism::Serial)
    }

    pub(crate) fn read<'m>(
        &self,
        isa: Isa,
        memory: &'m [f32],
    ) -> Result<PackedMatrix<'m>, GemmError> {
        PackedMatrix::from_packed(isa, self.depth, self.columns, &memory[self.range.clone()])
    }
}

/// The bytes of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct ScreenBytes {
    pub(crate) range: Range<usize>,
    pub(crate) of: Panels,
}

impl ScreenBytes {
    /// Floats of memory; none where a screen gains nothing or cannot hold the matrix.
    pub(crate) fn floats(isa: Isa, depth: usize, columns: usize) -> Option<usize> {
        Screen::len(depth, columns).ok().filter(|_| Screen::pays(isa))
    }

    /// Makes the bytes from the panels, which are filled.
    pub(crate) fn fill(&self, isa: Isa, memory: &mut [f32]) -> Result<(), ModelError> {
        // The planner hands out disjoint ranges.
        let parts = memory.get_disjoint_mut([self.of.range.clone(), self.range.clone()]);
        let [panels, bytes] = parts.map_err(|_| ModelError::TooLarge)?;
        let panels = PackedMatrix::from_packed(isa, self.of.depth, self.of.columns, panels)?;
        Screen::build(&panels, bytes).map_err(|_| ModelError::TooLarge)?;
        Ok(())
    }

    pub(crate) fn read<'m>(&self, memory: &'m [f32]) -> Result<Screen<'m>, ScreenError> {
        Screen::from_built(self.of.depth, self.of.columns, &memory[self.range.clone()])
    }
}
