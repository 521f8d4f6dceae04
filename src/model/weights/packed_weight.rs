//! The storage of weights. Outside the kernels, only this file depends on it.
//!
//! A new dtype of weights is a variant of [`WeightDtype`] and of [`StorageKind`], and the code in this file to
//! size, fill, read and multiply it.

use crate::model::error::ModelError;
use crate::model::weight_dtypes::WeightDtype;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::pruned_argmax::PruningTable;
use simdformer_kernels::{
    ActivationBits, Dtype, Epilogue, Error as KernelError, Isa, Matrix, MatrixMut, PackOptions,
    PackedMatrix, Parallelism, QuantizedActivations, QuantizedMatrix, gemm, gemm_int8,
};

/// The storage of a tensor in memory; see [`Parameter::form`](crate::Parameter::form).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageKind {
    /// f32, row-major as in the checkpoint: tables and vectors. Position tables begin with the first position that
    /// the model uses.
    Rows,
    /// f32, in the panels of the model's instruction set ([`PackedMatrix`]). Projections of the same input share a
    /// matrix.
    PackedF32,
    /// bf16, in panels.
    Bf16,
    /// f16, in panels.
    F16,
    /// int8 with a scale for each output, in panels that are the same on every instruction set
    /// ([`QuantizedMatrix`]). Activations are quantized to 8 bits.
    Int8,
    /// As [`StorageKind::Int8`], but activations are quantized to 16 bits.
    Int8x16,
    /// int8 copy of a matrix, in addition to its panels, with which the pruned argmax excludes most outputs; see
    /// [`simdformer_kernels::pruned_argmax`].
    PruningTable,
    /// Stored in the memory of another tensor with the same numbers.
    Shared,
}

impl StorageKind {
    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::PackedF32 => "panels",
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
            WeightDtype::F32 => Self::PackedF32,
            WeightDtype::Bf16 => Self::Bf16,
            WeightDtype::F16 => Self::F16,
            WeightDtype::Int8 => Self::Int8,
            WeightDtype::Int8x16 => Self::Int8x16,
        }
    }
}

/// How the kernels store a dtype.
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

/// A view of a matrix for multiplication.
pub(crate) enum Weight<'m> {
    Floats(PackedMatrix<'m>),
    Bytes(QuantizedMatrix<'m>, ActivationBits),
}

/// The input of a product, in the dtype that the matrix needs.
pub(crate) enum Input<'r> {
    Floats(Matrix<'r>),
    Bytes(QuantizedActivations<'r>, ActivationBits),
}

/// The type of the words in a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// One f32.
    F32,
    /// One f32; minus infinity is valid and bans a token.
    OutputBias,
    /// Two f16.
    F16,
    /// Two bf16.
    Bf16,
    /// int8 weights with their scales.
    Bytes,
}

impl PackedWeight {
    /// The type of the words of this matrix.
    pub(crate) fn numbers(&self) -> Numbers {
        match self.form {
            WeightDtype::F32 => Numbers::F32,
            WeightDtype::Bf16 => Numbers::Bf16,
            WeightDtype::F16 => Numbers::F16,
            WeightDtype::Int8 | WeightDtype::Int8x16 => Numbers::Bytes,
        }
    }

    /// The first column of an int8 matrix whose scale is not finite, and that scale. `None` for other dtypes.
    pub(crate) fn bad_scale(&self, memory: &[f32]) -> Option<(usize, f32)> {
        if self.numbers() != Numbers::Bytes {
            return None;
        }
        let memory = &memory[self.range.clone()];
        let matrix = QuantizedMatrix::from_quantized(self.depth, self.columns, memory).ok()?;
        let scales = (0..self.columns).map(|column| (column, matrix.column_scale(column)));
        scales.into_iter().find(|(_, scale)| !scale.is_finite())
    }

    /// Size in floats, or in words of the same size.
    pub(crate) fn floats(
        isa: Isa,
        form: WeightDtype,
        depth: usize,
        columns: usize,
    ) -> Result<usize, KernelError> {
        match form.into() {
            Format::Floats(dtype) => PackOptions::new(dtype).len(isa, depth, columns),
            Format::Bytes(_) => QuantizedMatrix::len(depth, columns),
        }
    }

    /// Stores `rows`, `[outputs, depth]` as in a checkpoint, as columns `first..`.
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
            Format::Floats(dtype) => {
                PackOptions { dtype, parallelism }.pack_columns(isa, columns, shape, first, panels)
            }
            Format::Bytes(_) => QuantizedMatrix::quantize_block(isa, columns, shape, first, panels),
        }
        .map_err(|error| ModelError::Unfit { form: self.form, error })
    }

    /// Stores the rows in the range `rows` of the same memory as columns `0..`.
    pub(crate) fn fill_from(
        &self,
        isa: Isa,
        rows: Range<usize>,
        memory: &mut [f32],
    ) -> Result<(), ModelError> {
        // The planner returns disjoint ranges.
        let parts = memory.get_disjoint_mut([rows, self.range.clone()]);
        let [rows, panels] = parts.map_err(|_| ModelError::TooLarge)?;
        let whole = Self { range: 0..panels.len(), ..self.clone() };
        whole.fill(isa, rows, 0, panels, Parallelism::Serial)
    }

    pub(crate) fn read<'m>(&self, isa: Isa, memory: &'m [f32]) -> Result<Weight<'m>, KernelError> {
        let memory = &memory[self.range.clone()];
        let &Self { depth, columns, form, .. } = self;
        Ok(match form.into() {
            Format::Floats(dtype) => {
                Weight::Floats(PackOptions::new(dtype).from_packed(isa, depth, columns, memory)?)
            }
            Format::Bytes(precision) => {
                Weight::Bytes(QuantizedMatrix::from_quantized(depth, columns, memory)?, precision)
            }
        })
    }

    /// Floats of the buffer in which [`Weight::input`] quantizes `rows` rows.
    pub(crate) fn rounded(&self, rows: usize) -> Result<usize, KernelError> {
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
    /// Prepares `x`, `[rows, depth]`, as an input of this matrix; `scratch` has [`PackedWeight::rounded`] elements.
    pub(crate) fn input<'r>(
        &self,
        isa: Isa,
        x: Matrix<'r>,
        scratch: &'r mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<Input<'r>, KernelError> {
        match *self {
            Self::Floats(_) => Ok(Input::Floats(x)),
            Self::Bytes(_, precision) => {
                let rows = QuantizedActivations::quantize(isa, x, precision, scratch, parallelism)?;
                Ok(Input::Bytes(rows, precision))
            }
        }
    }

    /// Whether this matrix can multiply `input`, which was prepared for another matrix.
    pub(crate) fn takes(&self, input: &Input<'_>) -> bool {
        match (self, input) {
            (Self::Floats(_), Input::Floats(_)) => true,
            (Self::Bytes(_, wanted), Input::Bytes(_, precision)) => wanted == precision,
            _ => false,
        }
    }

    /// `out = residual + activation(input W + bias)`. The matrix must accept the input; see [`Weight::takes`].
    pub(crate) fn multiply(
        &self,
        input: &Input<'_>,
        epilogue: &Epilogue<'_>,
        out: MatrixMut<'_>,
        parallelism: Parallelism<'_>,
    ) -> Result<(), KernelError> {
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

/// The pruning table of a matrix: its range, and the matrix `of` which it is a copy.
#[derive(Clone, Debug)]
pub(crate) struct PruningTableRange {
    pub(crate) range: Range<usize>,
    pub(crate) of: PackedWeight,
}

impl PruningTableRange {
    /// Size in floats. `None` if a pruning table is not faster on `isa`, cannot hold the matrix, or if the matrix
    /// is already int8.
    pub(crate) fn floats(isa: Isa, of: &PackedWeight) -> Option<usize> {
        let profitable = PruningTable::is_profitable(isa) && !of.form.in_bytes();
        PruningTable::len(of.depth, of.columns).ok().filter(|_| profitable)
    }

    /// Builds the table from the panels, which must be filled.
    pub(crate) fn fill(&self, isa: Isa, memory: &mut [f32]) -> Result<(), ModelError> {
        // The planner returns disjoint ranges.
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

    pub(crate) fn read<'m>(&self, memory: &'m [f32]) -> Result<PruningTable<'m>, KernelError> {
        PruningTable::from_built(self.of.depth, self.of.columns, &memory[self.range.clone()])
    }
}
