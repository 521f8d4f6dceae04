//! The forms in which numbers are stored: beside the kernels, the only file that knows them.
//!
//! A new form of weights is a variant of [`WeightDtype`] and of [`StorageKind`], and what it takes to count, fill, read and
//! multiply with it here.

use crate::model::error::ModelError;
use crate::model::weight_dtypes::WeightDtype;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::pruned_argmax::{PrunedArgmaxError, PruningTable};
use simdformer_kernels::{
    ActivationBits, Dtype, Epilogue, GemmError, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism,
    QuantizedActivations, QuantizedMatrix, gemm, gemm_int8,
};

/// How a tensor is stored in memory; [`Parameter::form`](crate::Parameter::form).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageKind {
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
    /// ([`QuantizedMatrix`]); rows are rounded to eight bits.
    Int8,
    /// As [`StorageKind::Int8`]; rows are rounded to sixteen bits.
    Int8x16,
    /// Bytes from which the largest products can be told, beside the panels of the same matrix; see
    /// [`simdformer_kernels::pruned_argmax`].
    PruningTable,
    /// In the memory of another tensor that holds the same numbers.
    Shared,
}

impl StorageKind {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Panels => "panels",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int8x16 => "int8x16",
            Self::PruningTable => "screen",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for StorageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<WeightDtype> for StorageKind {
    fn from(form: WeightDtype) -> Self {
        match form {
            WeightDtype::F32 => Self::Panels,
            WeightDtype::Bf16 => Self::Bf16,
            WeightDtype::F16 => Self::F16,
            WeightDtype::Int8 => Self::Int8,
            WeightDtype::Int8x16 => Self::Int8x16,
        }
    }
}

/// How the kernels store a form.
#[derive(Clone, Copy)]
enum Format {
    Floats(Dtype),
    Bytes(ActivationBits),
}

impl From<WeightDtype> for Format {
    fn from(form: WeightDtype) -> Self {
        match form {
            WeightDtype::F32 => Self::Floats(Dtype::F32),
            WeightDtype::Bf16 => Self::Floats(Dtype::Bf16),
            WeightDtype::F16 => Self::Floats(Dtype::F16),
            WeightDtype::Int8 => Self::Bytes(ActivationBits::Eight),
            WeightDtype::Int8x16 => Self::Bytes(ActivationBits::Sixteen),
        }
    }
}

/// The matrix of a linear map, `[depth, columns]`, in panels.
#[derive(Clone, Debug)]
pub(crate) struct PackedWeight {
    pub(crate) range: Range<usize>,
    /// Length of a row of the input.
    pub(crate) depth: usize,
    /// Length of a row of the output.
    pub(crate) columns: usize,
    pub(crate) form: WeightDtype,
}

/// A matrix, to be multiplied with.
pub(crate) enum Weight<'m> {
    Floats(PackedMatrix<'m>),
    Bytes(QuantizedMatrix<'m>, ActivationBits),
}

/// Rows, as matrices of one form multiply them.
pub(crate) enum Input<'r> {
    Floats(Matrix<'r>),
    Bytes(QuantizedActivations<'r>, ActivationBits),
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

impl PackedWeight {
    /// What its words are.
    pub(crate) fn numbers(&self) -> Numbers {
        match self.form {
            WeightDtype::F32 => Numbers::F32,
            WeightDtype::Bf16 => Numbers::Bf16,
            WeightDtype::F16 => Numbers::F16,
            WeightDtype::Int8 | WeightDtype::Int8x16 => Numbers::Bytes,
        }
    }

    /// The first column of bytes whose scale is not finite, and that scale. None in other forms.
    pub(crate) fn bad_scale(&self, memory: &[f32]) -> Option<(usize, f32)> {
        if self.numbers() != Numbers::Bytes {
            return None;
        }
        let memory = &memory[self.range.clone()];
        let matrix = QuantizedMatrix::from_quantized(self.depth, self.columns, memory).ok()?;
        let scales = (0..self.columns).map(|column| (column, matrix.column_scale(column)));
        scales.into_iter().find(|(_, scale)| !scale.is_finite())
    }

    /// Floats of memory, or words as large.
    pub(crate) fn floats(
        isa: Isa,
        form: WeightDtype,
        depth: usize,
        columns: usize,
    ) -> Result<usize, GemmError> {
        match form.into() {
            Format::Floats(storage) => PackedMatrix::len_as(isa, storage, depth, columns),
            Format::Bytes(_) => QuantizedMatrix::len(depth, columns),
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
            Format::Floats(storage) => PackedMatrix::pack_block_as(
                isa,
                storage,
                columns,
                shape,
                first,
                panels,
                parallelism,
            ),
            Format::Bytes(_) => QuantizedMatrix::quantize_block(isa, columns, shape, first, panels),
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
            Format::Floats(storage) => {
                Weight::Floats(PackedMatrix::from_packed_as(isa, storage, depth, columns, memory)?)
            }
            Format::Bytes(precision) => {
                Weight::Bytes(QuantizedMatrix::from_quantized(depth, columns, memory)?, precision)
            }
        })
    }

    /// Floats of the memory in which [`Weight::input`] rounds so many rows.
    pub(crate) fn rounded(&self, rows: usize) -> Result<usize, GemmError> {
        match self.form.into() {
            Format::Floats(_) => Ok(0),
            Format::Bytes(precision) => QuantizedActivations::len(rows, self.depth, precision),
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
    /// `x`, `[rows, depth]`, as this matrix multiplies it; `room` is of [`PackedWeight::rounded`] floats.
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
                let rows = QuantizedActivations::quantize(isa, x, precision, room, parallelism)?;
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
                gemm_int8(rows, weight, epilogue, out, parallelism)
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
    pub(crate) of: PackedWeight,
}

impl ScreenBytes {
    /// Floats of memory; none where a screen gains nothing or cannot hold the matrix, or where it is bytes already.
    pub(crate) fn floats(isa: Isa, of: &PackedWeight) -> Option<usize> {
        let pays = PruningTable::is_profitable(isa) && !of.form.in_bytes();
        PruningTable::len(of.depth, of.columns).ok().filter(|_| pays)
    }

    /// Makes the bytes from the panels, which are filled.
    pub(crate) fn fill(&self, isa: Isa, memory: &mut [f32]) -> Result<(), ModelError> {
        // The planner hands out disjoint ranges.
        let parts = memory.get_disjoint_mut([self.of.range.clone(), self.range.clone()]);
        let [panels, bytes] = parts.map_err(|_| ModelError::TooLarge)?;
        let whole = PackedWeight { range: 0..panels.len(), ..self.of.clone() };
        match whole.read(isa, panels)? {
            Weight::Floats(panels) => {
                PruningTable::build(&panels, bytes).map_err(|_| ModelError::TooLarge)?;
                Ok(())
            }
            Weight::Bytes(..) => Err(ModelError::TooLarge),
        }
    }

    pub(crate) fn read<'m>(
        &self,
        memory: &'m [f32],
    ) -> Result<PruningTable<'m>, PrunedArgmaxError> {
        PruningTable::from_built(self.of.depth, self.of.columns, &memory[self.range.clone()])
    }
}
