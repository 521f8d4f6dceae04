//! A linear layer whose weights are packed once.

use crate::layout::{View, elements, merged};
use crate::op_error::OpError;
use crate::scratch::{self, aligned, padded_len};
use crate::threads::Threads;
use candle_core::{
    CpuStorage, CustomOp1, DType, Device, Error, Layout, Result, Shape, Storage, Tensor,
};
use candle_nn::{Linear, Module, VarBuilder};
use simdformer_kernels::{
    Activation, Epilogue, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix, Parallelism, gemm,
};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

const OP: &str = "linear";

/// `activation(x Wᵀ + b)` of every row of `x`, `[.., in]` to `[.., out]`: a [`candle_nn::Linear`] and the
/// activation after it.
///
/// The weights are packed for one instruction set when the layer is created; candle's product packs them in
/// every call. The layer takes `in * out` floats, with `out` rounded up to a panel ([`PackedMatrix::buffer_len`]),
/// and keeps no tensor. Clones share the packed weights.
///
/// It is a candle op without a gradient: `x.apply_op1_no_bwd(&layer)`, which [`Module::forward`] calls. The
/// input may have any layout. A call allocates its result.
///
/// The error bound is that of [`gemm`].
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use simdformer_candle::SimdLinear;
/// use simdformer_kernels::{Activation, Isa};
///
/// let weight = Tensor::new(&[[1f32, 2.0], [3.0, -4.0]], &Device::Cpu)?;
/// let bias = Tensor::new(&[0.5f32, 0.5], &Device::Cpu)?;
/// let layer = SimdLinear::new(Isa::detect()?, &weight, Some(&bias))?.activated(Activation::Relu);
/// let x = Tensor::new(&[[1f32, 10.0]], &Device::Cpu)?;
/// assert_eq!(layer.forward(&x)?.to_vec2::<f32>()?, [[21.5, 0.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SimdLinear {
    isa: Isa,
    inputs: usize,
    outputs: usize,
    /// The packed matrix at `range`, which starts at a cache line.
    packed: Arc<Vec<f32>>,
    range: Range<usize>,
    bias: Option<Vec<f32>>,
    activation: Activation,
    threads: Threads,
}

impl fmt::Debug for SimdLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { isa, inputs, outputs, activation, threads, .. } = self;
        write!(f, "SimdLinear({inputs} -> {outputs}, {activation:?}, {}, {threads:?})", isa.name())
    }
}

impl SimdLinear {
    /// Packs `weight`, `[out, in]` as candle and PyTorch store it, with `bias`, `[out]`. Other dtypes
    /// and devices are converted to f32 on the CPU. Any layout is allowed.
    ///
    /// # Errors
    /// The weight is not a matrix, or the length of the bias is not `out`.
    pub fn new(isa: Isa, weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        Self::side_by_side(isa, &[(weight, bias)])
    }

    /// Several layers with one input as one, `[.., in]` to `[.., out_0 + out_1 + ..]`: key and value,
    /// or query, key and value. One product reads the input once. A part without a bias has a bias of
    /// zeros.
    ///
    /// # Errors
    /// There is no part, as [`SimdLinear::new`], or a part has another number of inputs than the first.
    pub fn side_by_side(isa: Isa, parts: &[(&Tensor, Option<&Tensor>)]) -> Result<Self> {
        let Some((first, _)) = parts.first() else {
            let found = "a linear layer of no parts".into();
            return Err(OpError::Unsupported { found, expected: "at least one" }.into());
        };
        let inputs = matrix(first)?.1;
        let mut outputs = 0;
        for (weight, bias) in parts {
            let (rows, columns) = matrix(weight)?;
            let dimension = "the weight's last dimension";
            check(dimension, (inputs, "the inputs of the first part"), columns)?;
            if let Some(bias) = bias {
                check("the bias", (rows, "one for each output"), bias.elem_count())?;
            }
            outputs += rows;
        }

        let floats = PackedMatrix::buffer_len(isa, inputs, outputs).map_err(Error::wrap)?;
        let mut packed = vec![0.0; padded_len(floats)];
        let range = aligned(packed.as_ptr(), floats);
        let mut whole = parts.iter().any(|(_, bias)| bias.is_some()).then(|| vec![0.0; outputs]);
        let mut column = 0;
        for (weight, bias) in parts {
            let count = with_floats(weight, "weight", |view| {
                let (rows, columns) = (view.dims[0], view.dims[1]);
                let (row, step) = (view.strides[0], view.strides[1]);
                let block = Matrix::strided(view.data, rows, columns, row, step);
                let block = block.map_err(Error::wrap)?.transposed();
                let buffer = &mut packed[range.clone()];
                PackOptions::default()
                    .pack_columns(isa, block, (inputs, outputs), column, buffer)
                    .map_err(Error::wrap)?;
                Ok(rows)
            })?;
            if let (Some(bias), Some(whole)) = (bias, &mut whole) {
                with_floats(bias, "bias", |view| {
                    view.gather(&mut whole[column..column + count]);
                    Ok(())
                })?;
            }
            column += count;
        }
        let (activation, threads) = (Activation::Identity, Threads::default());
        let packed = Arc::new(packed);
        Ok(Self { isa, inputs, outputs, packed, range, bias: whole, activation, threads })
    }

    /// Packs the weights of a candle layer, which can be dropped afterwards.
    ///
    /// # Errors
    /// As [`SimdLinear::new`].
    pub fn from_linear(isa: Isa, linear: &Linear) -> Result<Self> {
        Self::new(isa, linear.weight(), linear.bias())
    }

    /// Packs `weight`, `[outputs, inputs]`, and `bias`, `[outputs]`, of `vb`, with the names of
    /// [`candle_nn::linear()`].
    ///
    /// # Errors
    /// `vb` has no such tensors.
    pub fn load(isa: Isa, inputs: usize, outputs: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let weight = vb.get((outputs, inputs), "weight")?;
        Self::new(isa, &weight, Some(&vb.get(outputs, "bias")?))
    }

    /// The same layer with `activation` after it.
    pub fn activated(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// The same layer, computed by `threads`.
    pub fn threads(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// `activation(a Wᵀ + b)` of `rows` rows into `out`, `[rows, outputs]`: the kernel that the op
    /// calls.
    ///
    /// # Errors
    /// The columns of `a` are not the inputs of the layer, or `out` has another shape.
    pub fn multiply(&self, a: Matrix<'_>, out: MatrixMut<'_>) -> Result<()> {
        let packed = self.packed.get(self.range.clone()).unwrap_or(&[]);
        let weight = PackedMatrix::from_packed(self.isa, self.inputs, self.outputs, packed);
        let bias = self.bias.as_deref();
        let epilogue = Epilogue { bias, activation: self.activation, ..Epilogue::default() };
        let parallelism: Parallelism<'_> = self.threads.parallelism();
        gemm(a, &weight.map_err(Error::wrap)?, &epilogue, out, parallelism).map_err(Error::wrap)
    }
}

impl CustomOp1 for SimdLinear {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let input = View::new(OP, "input", storage, layout)?;
        let (Some((&columns, leading)), Some((&step, strides))) =
            (input.dims.split_last(), input.strides.split_last())
        else {
            let expected = "[.., inputs]";
            return Err(OpError::Rank { op: OP, operand: "input", expected, found: 0 }.into());
        };
        let reason = "the inputs of the layer";
        check("the last dimension of the input", (self.inputs, reason), columns)?;

        let rows = elements(OP, leading)?;
        let mut dims = input.dims.to_vec();
        if let Some(last) = dims.last_mut() {
            *last = self.outputs;
        }
        let mut out = vec![0.0; elements(OP, &dims)?];
        let to = MatrixMut::new(&mut out, rows, self.outputs).map_err(Error::wrap)?;
        if let Some(stride) = merged(leading, strides) {
            let a = Matrix::strided(input.data, rows, columns, stride, step);
            self.multiply(a.map_err(Error::wrap)?, to)?;
        } else {
            scratch::with(input.elements, |dense| {
                input.gather(dense);
                self.multiply(Matrix::new(dense, rows, columns).map_err(Error::wrap)?, to)
            })?;
        }
        Ok((CpuStorage::F32(out), Shape::from(dims)))
    }
}

impl Module for SimdLinear {
    /// Applies the layer without a gradient.
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        xs.apply_op1_no_bwd(self)
    }
}

/// The activation of a candle model as an epilogue of a [`SimdLinear`].
///
/// # Errors
/// No kernel computes this activation.
///
/// ```
/// use simdformer_kernels::Activation;
///
/// let silu = simdformer_candle::activation(candle_nn::Activation::Swish)?;
/// assert_eq!(silu, Activation::Silu);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn activation(activation: candle_nn::Activation) -> Result<Activation> {
    use candle_nn::Activation as Theirs;
    Ok(match activation {
        Theirs::Relu => Activation::Relu,
        Theirs::Gelu => Activation::Gelu,
        Theirs::NewGelu | Theirs::GeluPytorchTanh => Activation::GeluTanh,
        Theirs::Silu | Theirs::Swish => Activation::Silu,
        Theirs::Sigmoid => Activation::Sigmoid,
        other => {
            let expected = "ReLU, GELU, SiLU or sigmoid; apply others after a layer without one";
            let found = format!("the activation {other:?}");
            return Err(OpError::Unsupported { found, expected }.into());
        }
    })
}

/// Rows and columns of a weight.
fn matrix(weight: &Tensor) -> Result<(usize, usize)> {
    match *weight.dims() {
        [rows, columns] => Ok((rows, columns)),
        ref dims => {
            let (operand, expected, found) = ("weight", "[outputs, inputs]", dims.len());
            Err(OpError::Rank { op: OP, operand, expected, found }.into())
        }
    }
}

fn check(dimension: &'static str, expected: (usize, &'static str), found: usize) -> Result<()> {
    if found == expected.0 {
        return Ok(());
    }
    Err(OpError::Dimension { op: OP, dimension, expected, found }.into())
}

/// Runs `work` on a tensor as f32 on the CPU.
pub(crate) fn with_floats<R>(
    tensor: &Tensor,
    operand: &'static str,
    work: impl FnOnce(View<'_>) -> Result<R>,
) -> Result<R> {
    let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => work(View::new(OP, operand, storage, layout)?),
        _ => Err(OpError::Unsupported {
            found: format!("a {operand} that is on no CPU"),
            expected: "one that is",
        }
        .into()),
    }
}
