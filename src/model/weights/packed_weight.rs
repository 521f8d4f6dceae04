//! Packed weights as operands: their size, a view of them, and the products.
//!
//! A new dtype of weights is a variant of [`WeightDtype`], the code in this file to size, read and multiply it, and the
//! code in `load.rs` to pack it.

use crate::error::Error;
use crate::model::weight_dtypes::WEIGHTS;
use crate::model::weight_dtypes::WeightDtype;
use core::ops::Range;
#[cfg(feature = "train")]
use simdformer_kernels::PostOp;
use simdformer_kernels::pruned_argmax::PruningTable;
use simdformer_kernels::{
    Epilogue, Error as KernelError, Exec, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix,
    Parallelism, Quantization, QuantizedActivations, QuantizedMatrix, gemm, gemm_int8,
};

/// The matrix of a linear map, `[depth, columns]`, in panels.
#[derive(Clone, Debug)]
pub(crate) struct PackedWeight {
    pub(crate) range: Range<usize>,
    /// Length of a row of the input.
    pub(crate) depth: usize,
    /// Length of a row of the output.
    pub(crate) columns: usize,
    pub(crate) dtype: WeightDtype,
}

/// A view of a matrix for multiplication.
pub(crate) enum Weight<'m> {
    Floats(PackedMatrix<'m>),
    Bytes(QuantizedMatrix<'m>, Quantization),
}

/// The input of a product, in the dtype that the matrix needs.
pub(crate) enum Input<'r> {
    Floats(Matrix<'r>),
    Bytes(QuantizedActivations<'r>, Quantization),
}

impl PackedWeight {
    /// The first column of an int8 matrix whose scale is not finite, and that scale. `None` for other dtypes.
    pub(crate) fn bad_scale(&self, memory: &[f32]) -> Option<(usize, f32)> {
        if !self.dtype.is_int8() {
            return None;
        }
        let memory = memory.get(self.range.clone())?;
        let matrix = QuantizedMatrix::from_quantized(self.depth, self.columns, memory).ok()?;
        let scales = (0..self.columns).map(|column| (column, matrix.column_scale(column)));
        scales.into_iter().find(|(_, scale)| !scale.is_finite())
    }

    /// Size in floats, or in words of the same size.
    pub(crate) fn floats(
        isa: Isa,
        dtype: WeightDtype,
        depth: usize,
        columns: usize,
    ) -> Result<usize, KernelError> {
        match dtype {
            WeightDtype::Float(dtype) => PackOptions::new(dtype).buffer_len(isa, depth, columns),
            WeightDtype::Quantized(_) => QuantizedMatrix::buffer_len(depth, columns),
        }
    }

    pub(crate) fn weight_in<'m>(
        &self,
        isa: Isa,
        memory: &'m [f32],
    ) -> Result<Weight<'m>, KernelError> {
        // The kernels check the length.
        let memory = memory.get(self.range.clone()).unwrap_or(&[]);
        let &Self { depth, columns, dtype, .. } = self;
        Ok(match dtype {
            WeightDtype::Float(dtype) => {
                Weight::Floats(PackOptions::new(dtype).from_packed(isa, depth, columns, memory)?)
            }
            WeightDtype::Quantized(quantization) => Weight::Bytes(
                QuantizedMatrix::from_quantized(depth, columns, memory)?,
                quantization,
            ),
        })
    }

    /// Floats of the buffer in which [`Weight::input`] quantizes `rows` rows.
    pub(crate) fn rounded(&self, rows: usize) -> Result<usize, KernelError> {
        match self.dtype {
            WeightDtype::Float(_) => Ok(0),
            WeightDtype::Quantized(quantization) => {
                QuantizedActivations::buffer_len(rows, self.depth, quantization)
            }
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
        exec: Exec<'_>,
        x: Matrix<'r>,
        scratch: &'r mut [f32],
    ) -> Result<Input<'r>, KernelError> {
        match *self {
            Self::Floats(_) => Ok(Input::Floats(x)),
            Self::Bytes(_, precision) => {
                let rows = QuantizedActivations::quantize(exec, x, precision, scratch)?;
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
                unreachable!("rows of another dtype")
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
        let profitable = PruningTable::is_profitable(isa) && !of.dtype.is_int8();
        PruningTable::buffer_len(of.depth, of.columns).ok().filter(|_| profitable)
    }

    /// Builds the table from the panels, which must be filled.
    pub(crate) fn fill(&self, isa: Isa, memory: &mut [f32]) -> Result<(), Error> {
        // The planner returns disjoint ranges.
        let parts = memory.get_disjoint_mut([self.of.range.clone(), self.range.clone()]);
        let [panels, bytes] = parts.map_err(|_| Error::too_large(WEIGHTS))?;
        let whole = PackedWeight { range: 0..panels.len(), ..self.of.clone() };
        match whole.weight_in(isa, panels)? {
            Weight::Floats(panels) => {
                PruningTable::build(&panels, bytes).map_err(|_| Error::too_large(WEIGHTS))?;
                Ok(())
            }
            Weight::Bytes(..) => Err(Error::too_large(WEIGHTS)),
        }
    }

    pub(crate) fn table_in<'m>(&self, memory: &'m [f32]) -> Result<PruningTable<'m>, KernelError> {
        let memory = memory.get(self.range.clone()).unwrap_or(&[]);
        PruningTable::from_built(self.of.depth, self.of.columns, memory)
    }
}

/// The matrix of a linear map for the gradient of its input, `d_x = d_y W`; the forward pass is `y = x W^T`. It
/// is f32, in panels of the other orientation, and is packed from the parameters for each pass.
#[cfg(feature = "train")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backward<'m>(PackedMatrix<'m>);

#[cfg(feature = "train")]
impl<'m> Backward<'m> {
    /// Size in floats.
    pub(crate) fn floats(isa: Isa, outputs: usize, inputs: usize) -> Result<usize, KernelError> {
        PackedMatrix::buffer_len(isa, outputs, inputs)
    }

    /// Packs `weight`, `[outputs, inputs]` as in a checkpoint.
    pub(crate) fn pack(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'m mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<Self, KernelError> {
        PackOptions { parallelism, ..PackOptions::default() }.pack(isa, weight, buffer).map(Self)
    }

    /// `[outputs, inputs]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.0.depth(), self.0.columns()]
    }

    /// `d_x = residual + d_y W`: `d_y` is `[rows, outputs]`, `d_x` `[rows, inputs]`.
    pub(crate) fn multiply(
        &self,
        d_y: Matrix<'_>,
        post_op: PostOp<'_>,
        d_x: MatrixMut<'_>,
        parallelism: Parallelism<'_>,
    ) -> Result<(), KernelError> {
        gemm(d_y, &self.0, &Epilogue { post_op, ..Epilogue::default() }, d_x, parallelism)
    }
}
