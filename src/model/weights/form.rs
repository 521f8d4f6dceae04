//! The forms in which numbers are stored: beside the kernels, the only file that knows them.
//!
//! A new form of weights is a variant of [`WeightForm`] and of [`Form`], and what it takes to count, fill, read and
//! multiply with it here.

use crate::model::error::ModelError;
use crate::model::forms::WeightForm;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::screen::{Screen, ScreenError};
use simdformer_kernels::{
    ByteMatrix, ByteRows, Epilogue, GemmError, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism,
    RowPrecision, Storage, gemm, gemm_bytes,
};

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
    /// bf16, in such panels.
    Bf16,
    /// f16, in such panels.
    F16,
    /// Signed bytes with a scale for each output, in panels that are the same on every instruction set
    /// ([`ByteMatrix`]); rows are rounded to eight bits.
    Int8,
    /// As [`Form::Int8`]; rows are rounded to sixteen bits.
    Int8x16,
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
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int8x16 => "int8x16",
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

impl From<WeightForm> for Form {
    fn from(form: WeightForm) -> Self {
        match form {
            WeightForm::F32 => Self::Panels,
            WeightForm::Bf16 => Self::Bf16,
            WeightForm::F16 => Self::F16,
            WeightForm::Int8 => Self::Int8,
            WeightForm::Int8x16 => Self::Int8x16,
        }
    }
}

/// How the kernels store a form.
#[derive(Clone, Copy)]
enum Kept {
    Floats(Storage),
    Bytes(RowPrecision),
}

impl From<WeightForm> for Kept {
    fn from(form: WeightForm) -> Self {
        match form {
            WeightForm::F32 => Self::Floats(Storage::F32),
            WeightForm::Bf16 => Self::Floats(Storage::Bf16),
            WeightForm::F16 => Self::Floats(Storage::F16),
            WeightForm::Int8 => Self::Bytes(RowPrecision::Eight),
            WeightForm::Int8x16 => Self::Bytes(RowPrecision::Sixteen),
        }
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
    pub(crate) form: WeightForm,
}

/// A matrix, to be multiplied with.
pub(crate) enum Weight<'m> {
    Floats(PackedMatrix<'m>),
    Bytes(ByteMatrix<'m>, RowPrecision),
}

/// Rows, as matrices of one form multiply them.
pub(crate) enum Input<'r> {
    Floats(Matrix<'r>),
    Bytes(ByteRows<'r>, RowPrecision),
}

/// What the words of a part of the memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// A float each.
    F32,
    /// Floats, where minus infinity bans a token.
    OutputBias,
    /// Two f16 each.
    F16,
    /// Two bf16 each.
    Bf16,
    /// Bytes and what belongs to them.
    Bytes,
}

impl Panels {
    /// What its words are.
    pub(crate) fn numbers(&self) -> Numbers {
        match self.form {
            WeightForm::F32 => Numbers::F32,
            WeightForm::Bf16 => Numbers::Bf16,
            WeightForm::F16 => Numbers::F16,
            WeightForm::Int8 | WeightForm::Int8x16 => Numbers::Bytes,
        }
    }

    /// The first column of bytes whose scale is not finite, and that scale. None in other forms.
    pub(crate) fn bad_scale(&self, memory: &[f32]) -> Option<(usize, f32)> {
        if self.numbers() != Numbers::Bytes {
            return None;
        }
        let memory = &memory[self.range.clone()];
        let matrix = ByteMatrix::from_quantised(self.depth, self.columns, memory).ok()?;
        let scales = (0..self.columns).map(|column| (column, matrix.column_scale(column)));
        scales.into_iter().find(|(_, scale)| !scale.is_finite())
    }

    /// Floats of memory, or words as large.
    pub(crate) fn floats(
        isa: Isa,
        form: WeightForm,
        depth: usize,
        columns: usize,
    ) -> Result<usize, GemmError> {
        match form.into() {
            Kept::Floats(storage) => PackedMatrix::len_as(isa, storage, depth, columns),
            Kept::Bytes(_) => ByteMatrix::len(depth, columns),
        }
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
        match self.form.into() {
            Kept::Floats(storage) => PackedMatrix::pack_block_as(
                isa,
                storage,
                columns,
                shape,
                first,
                panels,
                parallelism,
            ),
            Kept::Bytes(_) => ByteMatrix::quantise_block(isa, columns, shape, first, panels),
        }
        .map_err(|error| ModelError::Unfit { form: self.form, error })
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

    pub(crate) fn read<'m>(&self, isa: Isa, memory: &'m [f32]) -> Result<Weight<'m>, GemmError> {
        let memory = &memory[self.range.clone()];
        let &Self { depth, columns, form, .. } = self;
        Ok(match form.into() {
            Kept::Floats(storage) => {
                Weight::Floats(PackedMatrix::from_packed_as(isa, storage, depth, columns, memory)?)
            }
            Kept::Bytes(precision) => {
                Weight::Bytes(ByteMatrix::from_quantised(depth, columns, memory)?, precision)
            }
        })
    }

    /// Floats of the memory in which [`Weight::input`] rounds so many rows.
    pub(crate) fn rounded(&self, rows: usize) -> Result<usize, GemmError> {
        match self.form.into() {
            Kept::Floats(_) => Ok(0),
            Kept::Bytes(precision) => ByteRows::len(rows, self.depth, precision),
        }
    }
}

impl Input<'_> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Floats(x) => x.rows(),
            Self::Bytes(rows, _) => rows.rows(),
        }
    }
}

impl Weight<'_> {
    /// `x`, `[rows, depth]`, as this matrix multiplies it; `room` is of [`Panels::rounded`] floats.
    pub(crate) fn input<'r>(
        &self,
        isa: Isa,
        x: Matrix<'r>,
        room: &'r mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<Input<'r>, GemmError> {
        match *self {
            Self::Floats(_) => Ok(Input::Floats(x)),
            Self::Bytes(_, precision) => {
                let rows = ByteRows::quantise(isa, x, precision, room, parallelism)?;
                Ok(Input::Bytes(rows, precision))
            }
        }
    }

    /// Whether it multiplies rows that were made an input of another.
    pub(crate) fn takes(&self, input: &Input<'_>) -> bool {
        match (self, input) {
            (Self::Floats(_), Input::Floats(_)) => true,
            (Self::Bytes(_, wanted), Input::Bytes(_, precision)) => wanted == precision,
            _ => false,
        }
    }

    /// `out = residual + activation(input W + bias)`; the input is one that it [takes](Weight::takes).
    pub(crate) fn multiply(
        &self,
        input: &Input<'_>,
        epilogue: &Epilogue<'_>,
        out: MatrixMut<'_>,
        parallelism: Parallelism<'_>,
    ) -> Result<(), GemmError> {
        match (self, input) {
            (Self::Floats(weight), Input::Floats(x)) => {
                gemm(*x, weight, epilogue, out, parallelism)
            }
            (Self::Bytes(weight, _), Input::Bytes(rows, _)) => {
                gemm_bytes(rows, weight, epilogue, out, parallelism)
            }
            (Self::Floats(_), Input::Bytes(..)) | (Self::Bytes(..), Input::Floats(_)) => {
                unreachable!("rows of another form")
            }
        }
    }
}

/// The bytes of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct ScreenBytes {
    pub(crate) range: Range<usize>,
    pub(crate) of: Panels,
}

impl ScreenBytes {
    /// Floats of memory; none where a screen gains nothing or cannot hold the matrix, or where it is bytes already.
    pub(crate) fn floats(isa: Isa, of: &Panels) -> Option<usize> {
        let pays = Screen::pays(isa) && !of.form.in_bytes();
        Screen::len(of.depth, of.columns).ok().filter(|_| pays)
    }

    /// Makes the bytes from the panels, which are filled.
    pub(crate) fn fill(&self, isa: Isa, memory: &mut [f32]) -> Result<(), ModelError> {
        // The planner hands out disjoint ranges.
        let parts = memory.get_disjoint_mut([self.of.range.clone(), self.range.clone()]);
        let [panels, bytes] = parts.map_err(|_| ModelError::TooLarge)?;
        let whole = Panels { range: 0..panels.len(), ..self.of.clone() };
        match whole.read(isa, panels)? {
            Weight::Floats(panels) => {
                Screen::build(&panels, bytes).map_err(|_| ModelError::TooLarge)?;
                Ok(())
            }
            Weight::Bytes(..) => Err(ModelError::TooLarge),
        }
    }

    pub(crate) fn read<'m>(&self, memory: &'m [f32]) -> Result<Screen<'m>, ScreenError> {
        Screen::from_built(self.of.depth, self.of.columns, &memory[self.range.clone()])
    }
}
