//! The end of a post-norm block, in place.

use crate::layout::{View, ViewMut, merged, repeats};
use crate::linear::with_floats;
use crate::op_error::OpError;
use crate::scratch;
use crate::threads::Threads;
use candle_core::{CpuStorage, Error, InplaceOp2, Layout, Result, Tensor};
use candle_nn::VarBuilder;
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, norm};
use simdformer_kernels::{Exec, Isa, Matrix, MatrixMut};
use std::fmt;

const OP: &str = "add-layer-norm";

/// `residual = LayerNorm(residual + x)` of every row, in place: a sum and a [`candle_nn::LayerNorm`] in one
/// pass over memory.
///
/// It is a candle op that changes its first operand, and everything else that shares its storage:
/// [`AddLayerNorm::add`], or `residual.inplace_op2(&x, &norm)`. Both may have any layout, but must not
/// share a storage, which is an error of candle. The residual must not be broadcast. A call allocates
/// nothing.
///
/// The error bound is that of [`norm()`](simdformer_kernels::norm::norm()).
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use simdformer_candle::AddLayerNorm;
/// use simdformer_kernels::Isa;
///
/// let (weight, bias) = (Tensor::ones(2, DType::F32, &Device::Cpu)?, Tensor::zeros(2, DType::F32, &Device::Cpu)?);
/// let norm = AddLayerNorm::new(Isa::detect()?, &weight, &bias, 0.0)?;
/// let residual = Tensor::new(&[[1f32, 2.0]], &Device::Cpu)?;
/// let x = Tensor::new(&[[2f32, 5.0]], &Device::Cpu)?;
/// norm.add(&residual, &x)?; // (3, 7): mean 5, standard deviation 2
/// assert_eq!(residual.to_vec2::<f32>()?, [[-1.0, 1.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AddLayerNorm {
    isa: Isa,
    weight: Vec<f32>,
    bias: Vec<f32>,
    eps: f32,
    threads: Threads,
}

impl fmt::Debug for AddLayerNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { isa, weight, eps, threads, .. } = self;
        write!(f, "AddLayerNorm({}, eps {eps}, {}, {threads:?})", weight.len(), isa.name())
    }
}

impl AddLayerNorm {
    /// Copies `weight` and `bias`, a value for each column. Other types and devices are converted to
    /// f32 on the CPU.
    ///
    /// # Errors
    /// They have different lengths.
    pub fn new(isa: Isa, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Self> {
        let expected = (weight.elem_count(), "one for each weight");
        check("the bias", expected, bias.elem_count())?;
        let copy = |tensor: &Tensor, operand| {
            with_floats(tensor, operand, |view| {
                let mut floats = vec![0.0; view.elements];
                view.gather(&mut floats);
                Ok(floats)
            })
        };
        let (weight, bias) = (copy(weight, "weight")?, copy(bias, "bias")?);
        Ok(Self { isa, weight, bias, eps: eps as f32, threads: Threads::default() })
    }

    /// The parameters of a candle layer.
    ///
    /// # Errors
    /// It has no bias, or removes no mean (RmsNorm).
    pub fn from_layer_norm(isa: Isa, norm: &candle_nn::LayerNorm) -> Result<Self> {
        match norm.bias() {
            Some(bias) if norm.remove_mean() => Self::new(isa, norm.weight(), bias, norm.eps()),
            _ => {
                let found = "a norm without a bias or without a mean".into();
                let expected = "a LayerNorm with both; keep candle's layer";
                Err(OpError::Unsupported { found, expected }.into())
            }
        }
    }

    /// Copies `weight` and `bias` of `vb`, `[columns]`, as [`candle_nn::layer_norm()`] would name them.
    ///
    /// # Errors
    /// `vb` has no such tensors.
    pub fn load(isa: Isa, columns: usize, eps: f64, vb: &VarBuilder<'_>) -> Result<Self> {
        Self::new(isa, &vb.get(columns, "weight")?, &vb.get(columns, "bias")?, eps)
    }

    /// The same norm, computed by `threads`.
    pub fn threads(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// `residual = LayerNorm(residual + x)`.
    ///
    /// # Errors
    /// Shapes differ or do not fit the weights, an operand is not f32, or the residual shares memory
    /// with `x` or itself.
    pub fn add(&self, residual: &Tensor, x: &Tensor) -> Result<()> {
        // candle has its own error for a broadcast residual, also if it is empty.
        if repeats(residual.dims(), residual.stride()) {
            return Err(OpError::Overlap { op: OP }.into());
        }
        if residual.elem_count() == 0 && residual.dims() == x.dims() {
            return Ok(());
        }
        residual.inplace_op2(x, self)
    }
}

impl InplaceOp2 for AddLayerNorm {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        s1: &mut CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<()> {
        let mut residual = ViewMut::new(OP, s1, l1)?;
        let x = View::new(OP, "input", s2, l2)?;
        let Some((&columns, leading)) = residual.dims.split_last() else {
            let (operand, expected) = ("destination", "[.., columns]");
            return Err(OpError::Rank { op: OP, operand, expected, found: 0 }.into());
        };
        let width = (self.weight.len(), "the columns of the norm");
        check("the last dimension of the destination", width, columns)?;
        if x.dims.len() != residual.dims.len() {
            let expected = "of the destination's shape";
            let found = x.dims.len();
            return Err(OpError::Rank { op: OP, operand: "input", expected, found }.into());
        }
        for (&expected, &found) in residual.dims.iter().zip(x.dims) {
            check("a dimension of the input", (expected, "as the destination has"), found)?;
        }
        if residual.elements == 0 {
            return Ok(());
        }

        let rows = residual.elements / columns;
        let in_place = unit_rows(leading.len(), residual.dims, residual.strides);
        let readable = unit_rows(leading.len(), x.dims, x.strides);
        let copied = [in_place, readable].map(|stride| match stride {
            Some(_) => 0,
            None => residual.elements,
        });
        scratch::with(copied[0] + copied[1], |buffer| {
            let (dense_residual, dense_x) = buffer.split_at_mut(copied[0]);
            let x = match readable {
                Some(stride) => Matrix::strided(x.data, rows, columns, stride, 1),
                None => {
                    x.gather(dense_x);
                    Matrix::new(dense_x, rows, columns)
                }
            };
            let x = x.map_err(Error::wrap)?;
            let Some(stride) = in_place else {
                residual.view().gather(dense_residual);
                let to = MatrixMut::new(dense_residual, rows, columns).map_err(Error::wrap)?;
                self.normalize_rows(x, to)?;
                residual.scatter(dense_residual);
                return Ok(());
            };
            let to = MatrixMut::strided(residual.data, rows, columns, stride, 1);
            self.normalize_rows(x, to.map_err(Error::wrap)?)
        })
    }
}

impl AddLayerNorm {
    fn normalize_rows(&self, x: Matrix<'_>, residual: MatrixMut<'_>) -> Result<()> {
        let layer = LayerNorm { weight: &self.weight, bias: Some(&self.bias), eps: self.eps };
        let (layer, input) = (Norm::Layer(layer), NormInput::SumWithOutput { x });
        norm(Exec::new(self.isa, self.threads.parallelism()), layer, input, residual)
            .map_err(Error::wrap)
    }
}

/// The stride of rows whose elements are side by side, if one walks all of them.
fn unit_rows(leading: usize, dims: &[usize], strides: &[usize]) -> Option<usize> {
    let unit = dims[leading] <= 1 || strides[leading] == 1;
    merged(&dims[..leading], &strides[..leading]).filter(|_| unit)
}

fn check(dimension: &'static str, expected: (usize, &'static str), found: usize) -> Result<()> {
    if found == expected.0 {
        return Ok(());
    }
    Err(OpError::Dimension { op: OP, dimension, expected, found }.into())
}
