//! A linear layer that owns its weight.

use crate::dtype::Dtype;
use crate::error::{Error, Expected};
use crate::gemm::{
    Epilogue, PackOptions, PackSource, Quantization, QuantizedActivations, QuantizedMatrix, gemm,
    gemm_int8,
};
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Exec, Parallelism};
use crate::simd::CACHE_LINE_F32;
use std::vec;
use std::vec::Vec;

/// A linear layer `y = x W^T + b` that owns its packed weight, in f32, bf16, f16 or int8. It needs the feature `std`.
///
/// `weight` is `[outputs, inputs]`, as checkpoints store it, and `bias` is `[outputs]`. Engines with their own memory
/// use the views instead: [`PackedMatrix`](crate::PackedMatrix) and [`QuantizedMatrix`]. The bits and the error bounds
/// are those of [`gemm`] and [`gemm_int8`].
///
/// ```
/// use simdformer_kernels::{Quantization, Dtype, Isa, Linear, Matrix, MatrixMut};
///
/// let isa = Isa::best();
/// let (weight, bias) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5, 0.5, 0.5]);
/// let weight = Matrix::new(&weight, 3, 2)?; // [out, in]
/// let linear = Linear::new(isa, Dtype::F32, weight, Some(&bias))?;
///
/// let (x, mut y) = ([1.0, 10.0], [0.0; 3]);
/// let x = Matrix::new(&x, 1, 2)?;
/// linear.forward(x, MatrixMut::new(&mut y, 1, 3)?)?;
/// assert_eq!(y, [21.5, 43.5, 65.5]);
///
/// // A quarter of the memory, with rounded weights and activations.
/// let linear = Linear::quantized(isa, Quantization::W8A8, weight, Some(&bias))?;
/// linear.forward(x, MatrixMut::new(&mut y, 1, 3)?)?;
/// assert!((y[0] - 21.5).abs() < 0.2);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Debug)]
pub struct Linear {
    isa: Isa,
    format: Format,
    inputs: usize,
    outputs: usize,
    /// The packed weight, from the first float of a cache line on.
    packed: Vec<f32>,
    start: usize,
    bias: Option<Vec<f32>>,
}

/// How the weight is packed.
#[derive(Clone, Copy, Debug)]
enum Format {
    Float(Dtype),
    Int8(Quantization),
}

impl Linear {
    /// Packs `weight` in `dtype`: a [`Matrix`] or, for 16-bit values, a [`PackSource`].
    ///
    /// # Errors
    /// The length of `bias` is not `outputs`; otherwise as [`PackOptions::pack`].
    pub fn new<'s>(
        isa: Isa,
        dtype: Dtype,
        weight: impl Into<PackSource<'s>>,
        bias: Option<&[f32]>,
    ) -> Result<Self, Error> {
        let (weight, options) = (weight.into().transposed(), PackOptions::new(dtype));
        let [inputs, outputs] = weight.shape();
        let len = options.buffer_len(isa, inputs, outputs)?;
        Self::fill(isa, Format::Float(dtype), [inputs, outputs], (len, bias), |floats| {
            options.pack(isa, weight, floats).map(drop)
        })
    }

    /// Quantizes `weight` to int8, with one scale per output. Activations are quantized to `bits` in each call.
    ///
    /// # Errors
    /// The length of `bias` is not `outputs`; otherwise as [`QuantizedMatrix::quantize`].
    pub fn quantized(
        isa: Isa,
        bits: Quantization,
        weight: Matrix<'_>,
        bias: Option<&[f32]>,
    ) -> Result<Self, Error> {
        let weight = weight.transposed();
        let shape @ [inputs, outputs] = weight.shape();
        let len = QuantizedMatrix::buffer_len(inputs, outputs)?;
        Self::fill(isa, Format::Int8(bits), shape, (len, bias), |words| {
            QuantizedMatrix::quantize(isa, weight, words).map(drop)
        })
    }

    fn fill(
        isa: Isa,
        format: Format,
        [inputs, outputs]: [usize; 2],
        (len, bias): (usize, Option<&[f32]>),
        pack: impl FnOnce(&mut [f32]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        if let Some(bias) = bias {
            Error::check_len("bias", outputs, bias)?;
        }
        let mut packed = vec![0.0; len + CACHE_LINE_F32];
        let start =
            packed.as_ptr().align_offset(CACHE_LINE_F32 * size_of::<f32>()).min(CACHE_LINE_F32);
        pack(&mut packed[start..][..len])?;
        packed.truncate(start + len);
        Ok(Self { isa, format, inputs, outputs, packed, start, bias: bias.map(<[f32]>::to_vec) })
    }

    /// Length of a row of the input.
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// Length of a row of the output.
    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// `y = x W^T + b` on the calling thread: `x` is `[rows, inputs]`, `y` is `[rows, outputs]`, both with any strides.
    /// An int8 layer allocates its scratch; [`Linear::forward_with`] does not.
    ///
    /// # Errors
    /// The shapes do not match. Nothing is written then.
    pub fn forward(&self, x: Matrix<'_>, y: MatrixMut<'_>) -> Result<(), Error> {
        let mut scratch = vec![0.0; self.forward_scratch(x.rows())?];
        self.forward_with(x, &Epilogue::default(), y, &mut scratch, Parallelism::Serial)
    }

    /// Floats of scratch that [`Linear::forward_with`] needs for `rows` rows: 0 unless the layer is int8.
    ///
    /// # Errors
    /// The size overflows.
    pub fn forward_scratch(&self, rows: usize) -> Result<usize, Error> {
        match self.format {
            Format::Float(_) => Ok(0),
            Format::Int8(bits) => QuantizedActivations::buffer_len(rows, self.inputs, bits),
        }
    }

    /// [`Linear::forward`] with an epilogue, the caller's scratch of [`Linear::forward_scratch`] floats and the caller's
    /// threads. It allocates nothing. The layer adds its bias; a layer without one takes the bias of `epilogue`.
    ///
    /// # Errors
    /// The shapes do not match, the scratch is too short, or both the layer and `epilogue` have a bias. Nothing is written
    /// to `y` then.
    pub fn forward_with(
        &self,
        x: Matrix<'_>,
        epilogue: &Epilogue<'_>,
        y: MatrixMut<'_>,
        scratch: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        let Self { isa, inputs, outputs, .. } = *self;
        Error::check_size("columns", "x", Expected::Exactly(inputs), x.columns())?;
        y.as_view().check_shape("y", [x.rows(), outputs])?;
        if let (Some(_), Some(bias)) = (&self.bias, epilogue.bias) {
            return Err(Error::Setting {
                name: "elements of epilogue.bias for a layer with a bias",
                expected: "no bias",
                found: bias.len() as f64,
            });
        }
        Error::check_min_len("scratch", self.forward_scratch(x.rows())?, scratch)?;
        let packed = &self.packed[self.start..];
        let epilogue = Epilogue { bias: self.bias.as_deref().or(epilogue.bias), ..*epilogue };
        match self.format {
            Format::Float(dtype) => {
                let weight = PackOptions::new(dtype).from_packed(isa, inputs, outputs, packed)?;
                gemm(x, &weight, &epilogue, y, parallelism)
            }
            Format::Int8(bits) => {
                let weight = QuantizedMatrix::from_quantized(inputs, outputs, packed)?;
                let x =
                    QuantizedActivations::quantize(Exec::new(isa, parallelism), x, bits, scratch)?;
                gemm_int8(&x, &weight, &epilogue, y, parallelism)
            }
        }
    }
}
