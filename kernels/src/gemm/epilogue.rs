//! The epilogue of a GEMM: scale, bias, activation and post-op, as the caller gives them, the check of all operands, and
//! addresses of matrices with the shape of the output.

use crate::activation::Activation;
use crate::debug_slice::impl_debug;
use crate::error::{Error, Expected};
use crate::matrix::{Matrix, MatrixMut};
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::simd::SimdF32;

/// The epilogue of a GEMM: `C = post_op(activation(scale * sum + bias))`.
///
/// The default stores the sums unchanged.
///
/// ```
/// use simdformer_kernels::{Activation, Epilogue, PostOp};
///
/// // The two products of a feed-forward block. The second one is added to the residual stream.
/// let (first, second) = ([0.1; 2048], [0.2; 512]);
/// let up = Epilogue { bias: Some(&first), activation: Activation::Gelu, ..Epilogue::default() };
/// let down = Epilogue { bias: Some(&second), post_op: PostOp::AddOutput, ..Epilogue::default() };
/// assert_eq!((up.scale, down.scale), (1.0, 1.0));
/// ```
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// Multiplies the sum.
    pub scale: f32,
    /// One value per column, `[columns]`, added after the scale.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Applied last, to the activated result.
    pub post_op: PostOp<'a>,
}

impl_debug!(Epilogue { scale, [bias], activation, post_op });

/// The last operation of an [`Epilogue`], on the activated result and one other operand (oneDNN: the post-ops sum,
/// binary and eltwise).
///
/// A gated feed-forward block, `activation(x W0) * (x W1)` (Shazeer 2020, "GLU Variants Improve Transformer"), is two
/// products into one `C`, the second one with [`PostOp::MultiplyOutput`]:
///
/// ```
/// use simdformer_kernels::{
///     Activation, Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, PostOp, gemm,
/// };
///
/// let isa = Isa::best();
/// let (w0, w1) = ([1.0, -1.0, 0.5], [2.0, 2.0, 3.0]); // Both [1, 3].
/// let mut packed = [0.0; 2 * 64];
/// let (first, second) = packed.split_at_mut(64);
/// let w0 = PackedMatrix::pack(isa, Matrix::new(&w0, 1, 3)?, first)?;
/// let w1 = PackedMatrix::pack(isa, Matrix::new(&w1, 1, 3)?, second)?;
///
/// let x = Matrix::new(&[4.0], 1, 1)?;
/// let mut hidden = [0.0; 3];
/// let relu = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
/// gemm(x, &w0, &relu, MatrixMut::new(&mut hidden, 1, 3)?, Parallelism::Serial)?;
/// let gate = Epilogue { post_op: PostOp::MultiplyOutput, ..Epilogue::default() };
/// gemm(x, &w1, &gate, MatrixMut::new(&mut hidden, 1, 3)?, Parallelism::Serial)?;
/// assert_eq!(hidden, [4.0 * 8.0, 0.0, 2.0 * 12.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// These are two products, and not one product of fused weights. If the caller works in blocks of rows whose `C` stays
/// in an outer cache, as feed-forward blocks do, nothing is written to memory between the two products. Weights are
/// packed and named individually like all others, and each product has the same bits as alone.
#[derive(Clone, Copy, Debug, Default)]
pub enum PostOp<'a> {
    /// The result is stored as it is, and `C` is never read.
    #[default]
    None,
    /// The previous content of `C` is added.
    AddOutput,
    /// A matrix with the shape of `C` is added.
    Add(Matrix<'a>),
    /// The result is multiplied by the previous content of `C`, in f32.
    MultiplyOutput,
    /// The result is multiplied by the derivative of an activation `f`: `C = activation(scale * sum + bias) * f'(pre)`.
    /// This is for the backward pass of a feed-forward block: `f` is the activation between its two products and `pre`
    /// is its input. The bits are those of the product alone followed by
    /// [`activation_backward`](crate::train::activation_backward), and the error of the derivative is the same.
    ///
    /// ```
    /// use simdformer_kernels::{
    ///     Activation, Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, PostOp, gemm,
    /// };
    ///
    /// let isa = Isa::best();
    /// let mut buffer = [0.0; 2 * 64];
    /// let weight = Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?;
    /// let weight = PackedMatrix::pack(isa, weight, &mut buffer)?;
    /// let pre = Matrix::new(&[-1.0, 0.5, 2.0], 1, 3)?;
    /// let post_op = PostOp::ActivationBackward { activation: Activation::Relu, pre };
    /// let mut d_pre = [0.0; 3];
    /// gemm(
    ///     Matrix::new(&[1.0, 10.0], 1, 2)?,
    ///     &weight,
    ///     &Epilogue { post_op, ..Epilogue::default() },
    ///     MatrixMut::new(&mut d_pre, 1, 3)?,
    ///     Parallelism::Serial,
    /// )?;
    /// assert_eq!(d_pre, [0.0, 52.0, 63.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "train")]
    ActivationBackward {
        /// The activation `f`.
        activation: Activation,
        /// The input of the activation, with the shape of `C`.
        pre: Matrix<'a>,
    },
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, activation: Activation::Identity, post_op: PostOp::None }
    }
}

/// Checks that the operands match a weight of `[depth, columns]`. `A` is `[rows, a_columns]`. `names` are those of the
/// parameters for `A` and for the weight.
pub(super) fn check_operands(
    names: [&'static str; 2],
    (rows, a_columns): (usize, usize),
    (depth, columns): (usize, usize),
    epilogue: &Epilogue<'_>,
    c: &MatrixMut<'_>,
) -> Result<(), Error> {
    if a_columns != depth && [columns, depth] == [a_columns, c.columns()] {
        // The usual mistake: a weight that is stored `[out, in]` was packed without `transposed()`.
        return Err(Error::Shape {
            operand: names[1],
            expected: [a_columns, c.columns()],
            found: [depth, columns],
        });
    }
    Error::check_size("columns", names[0], Expected::Exactly(depth), a_columns)?;
    c.as_view().check_shape("c", [rows, columns])?;
    if let Some(bias) = epilogue.bias {
        Error::check_len("bias", columns, bias)?;
    }
    let operand = match epilogue.post_op {
        PostOp::None | PostOp::AddOutput | PostOp::MultiplyOutput => None,
        PostOp::Add(operand) => Some(operand),
        #[cfg(feature = "train")]
        PostOp::ActivationBackward { pre, .. } => Some(pre),
    };
    operand.map_or(Ok(()), |operand| operand.check_shape("post_op", [rows, columns]))
}

/// What combines the result with the other operand.
#[derive(Clone, Copy)]
pub(super) enum Binary {
    Add,
    Multiply,
}

/// The formula of the epilogue: `other op max(floor, scale * x + bias)`. Without a scale, `scale` is 1, without a bias,
/// `bias` is -0, and without ReLU, `floor` is minus infinity: all are exact. Other activations follow between two passes.
#[inline(always)]
pub(super) fn apply<S: SimdF32, const NV: usize>(
    s: S,
    mut x: [S::F32; NV],
    (scale, bias, floor): (S::F32, [S::F32; NV], S::F32),
    other: Option<(Binary, [S::F32; NV])>,
) -> [S::F32; NV] {
    for v in 0..NV {
        x[v] = s.max(floor, s.add(s.mul(x[v], scale), bias[v]));
    }
    match other {
        None => {}
        Some((Binary::Add, other)) => {
            for v in 0..NV {
                x[v] = s.add(other[v], x[v]);
            }
        }
        Some((Binary::Multiply, other)) => {
            for v in 0..NV {
                x[v] = s.mul(other[v], x[v]);
            }
        }
    }
    x
}

/// A matrix with the shape of the output.
#[derive(Clone, Copy)]
pub(super) struct ElementPtrs {
    pub(super) first: *mut f32,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

/// A part of the output: rows `row..row + rows` and columns `column..column + columns`.
#[derive(Clone, Copy)]
pub(super) struct OutputRange {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
}

impl ElementPtrs {
    pub(super) fn from_matrix(m: &Matrix<'_>) -> Self {
        let first = m.as_ptr().cast_mut();
        Self { first, row_stride: m.row_stride(), column_stride: m.column_stride() }
    }

    /// The address of an element, which may be outside the matrix.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, column: usize) -> *mut f32 {
        self.first.wrapping_add(row * self.row_stride + column * self.column_stride)
    }

    /// Prefetches a block, unless its columns are apart.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32>(&self, s: S, cache: CacheLevel, block: OutputRange) {
        if self.column_stride == 1 {
            let at = self.first.wrapping_add(block.row * self.row_stride + block.column);
            prefetch_rows(s, cache, (at, self.row_stride, block.rows), block.columns);
        }
    }

    /// The address of `count` contiguous elements of a row from `column` on: in the matrix or, if its columns are apart,
    /// in `buffer`.
    ///
    /// # Safety
    /// The matrix has these elements, no other thread writes them, and `buffer` is valid for writes of as many.
    #[inline(always)]
    pub(super) unsafe fn row(
        &self,
        row: usize,
        column: usize,
        count: usize,
        buffer: *mut f32,
    ) -> *const f32 {
        let from = self.at(row, column);
        if self.column_stride == 1 {
            return from;
        }
        // SAFETY: `# Safety` of this function.
        unsafe { copy_strided((from, self.column_stride), (buffer, 1), count) };
        buffer
    }
}

/// Copies `count` floats between addresses with strides. Not inlined: elements that are apart are rare.
///
/// # Safety
/// The floats are valid for reads and writes.
#[inline(never)]
pub(super) unsafe fn copy_strided(from: (*const f32, usize), to: (*mut f32, usize), count: usize) {
    for i in 0..count {
        // SAFETY: `# Safety` of this function.
        unsafe { *to.0.add(i * to.1) = *from.0.add(i * from.1) };
    }
}
