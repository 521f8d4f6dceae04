//! The kernels on the caller's matrices: products, attention, layer normalization, softmax.

use crate::errors::{Failure, enter};
use crate::executor::{CallerThreads, caller_threads, sf_executor};
use crate::library::{constant_of, isa_of};
use crate::pointers::{
    optional, optional_struct, out, read_struct, reference, sized_struct, slice, slice_mut,
    write_struct,
};
use core::mem::align_of;
use simdformer::Dtype;
use simdformer::kernels::norm::{LayerNorm, Norm, NormInput, norm};
use simdformer::kernels::softmax::softmax;
use simdformer::kernels::{
    Activation, AttentionOptions, Bias, Epilogue, Exec, FullyMasked, Heads, HeadsMut, Input,
    Matrix, MatrixMut, PackOptions, Parallelism, PostOp, Qkv, Sequence, SoftmaxOptions, attention,
    attention_scratch, gemm,
};

/// A matrix that is read: element `(i, j)` is `data[i * row_stride + j * column_stride]`. Strides are in elements and not
/// negative. What is between the elements is never read.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_matrix {
    /// The first element.
    pub data: *const f32,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub column_stride: isize,
}

/// A matrix that is written, as `sf_matrix`. No two elements are the same memory, and none is memory of another argument.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_matrix_mut {
    /// The first element.
    pub data: *mut f32,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub column_stride: isize,
}

/// A tensor `[tokens, heads, head_dim]` that is read: element `(t, h, i)` is `data[t * token_stride + h * head_stride + i]`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_heads {
    /// The first element.
    pub data: *const f32,
    /// Tokens of all sequences.
    pub tokens: usize,
    /// Heads.
    pub heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// Elements from one token to the next.
    pub token_stride: isize,
    /// Elements from one head to the next.
    pub head_stride: isize,
}

/// A tensor that is written, as `sf_heads`. No element is memory of another argument.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_heads_mut {
    /// The first element.
    pub data: *mut f32,
    /// Tokens of all sequences.
    pub tokens: usize,
    /// Heads.
    pub heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// Elements from one token to the next.
    pub token_stride: isize,
    /// Elements from one head to the next.
    pub head_stride: isize,
}

/// 32-bit floats.
pub const SF_DTYPE_F32: i32 = 0;
/// The upper half of a 32-bit float.
pub const SF_DTYPE_BF16: i32 = 1;
/// IEEE 754 binary16.
pub const SF_DTYPE_F16: i32 = 2;

/// A packed weight, as `sf_pack` makes it: a view of the caller's buffer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_packed {
    /// `sizeof(sf_packed)`, set by the caller.
    pub struct_size: usize,
    /// The buffer.
    pub data: *const f32,
    /// Words of four bytes in it: those of `sf_packed_len`.
    pub len: usize,
    /// Rows of the weight: the length of a sum.
    pub depth: usize,
    /// Columns of the weight.
    pub columns: usize,
    /// The constant `SF_ISA` that it is packed for.
    pub isa: i32,
    /// A constant `SF_DTYPE`.
    pub dtype: i32,
}

/// The activation of an epilogue: none.
pub const SF_ACTIVATION_IDENTITY: i32 = 0;
/// `max(x, 0)`.
pub const SF_ACTIVATION_RELU: i32 = 1;
/// GELU by the error function.
pub const SF_ACTIVATION_GELU: i32 = 2;
/// GELU by the hyperbolic tangent.
pub const SF_ACTIVATION_GELU_TANH: i32 = 3;
/// `x / (1 + e^-x)`.
pub const SF_ACTIVATION_SILU: i32 = 4;
/// The hyperbolic tangent.
pub const SF_ACTIVATION_TANH: i32 = 5;
/// `1 / (1 + e^-x)`.
pub const SF_ACTIVATION_SIGMOID: i32 = 6;

/// The result is stored as it is.
pub const SF_POST_NONE: i32 = 0;
/// The previous content of `C` is added.
pub const SF_POST_ADD_OUTPUT: i32 = 1;
/// `sf_epilogue.operand` is added.
pub const SF_POST_ADD: i32 = 2;
/// The result is multiplied by the previous content of `C`.
pub const SF_POST_MULTIPLY_OUTPUT: i32 = 3;

/// What follows a product: `C = post_op(activation(scale * sum + bias))`. Zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_epilogue {
    /// `sizeof(sf_epilogue)`.
    pub struct_size: usize,
    /// `[columns]`; null for none.
    pub bias: *const f32,
    /// The operand of `SF_POST_ADD`, of the shape of `C`; else null.
    pub operand: *const sf_matrix,
    /// The factor of the sum; 0 for 1.
    pub scale: f32,
    /// A constant `SF_ACTIVATION`.
    pub activation: i32,
    /// A constant `SF_POST`.
    pub post_op: i32,
    /// 0.
    pub reserved: i32,
}

/// A sequence of a batch: its rows of queries and of keys. Sequences are in the order of their queries.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_sequence {
    /// The first query.
    pub query_start: usize,
    /// Queries.
    pub query_len: usize,
    /// The first key.
    pub key_start: usize,
    /// Keys.
    pub key_len: usize,
}

/// Masks and bias of attention. Zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_attention_options {
    /// `sizeof(sf_attention_options)`.
    pub struct_size: usize,
    /// Added to the scaled scores: that of head `h`, query `t` of all and key `j` of its sequence is
    /// `bias[h * bias_head_stride + t * bias_query_stride + j]`. Null for none.
    pub bias: *const f32,
    /// Numbers in `bias`.
    pub bias_len: usize,
    /// Elements from one head to the next; 0 if all have one bias.
    pub bias_head_stride: usize,
    /// Elements from one query to the next.
    pub bias_query_stride: usize,
    /// The factor of the scores; 0 for `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// 1: query `i` of a sequence sees its keys 0 to `i + key_len - query_len` only.
    pub causal: i32,
    /// The result of a query that sees no key: 0 for zeros, 1 for the mean of the values.
    pub uniform_if_masked: i32,
    /// 0.
    pub reserved: i32,
}

/// What a softmax computes. Zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_softmax_options {
    /// `sizeof(sf_softmax_options)`.
    pub struct_size: usize,
    /// `[rows]`: the number of columns that are valid in each row; null if all are. The others get 0.
    pub lengths: *const usize,
    /// 1 for the logarithms of the probabilities.
    pub logarithm: i32,
    /// The result of a row without a valid column: 0 for zeros, 1 for `1 / columns`.
    pub uniform_if_masked: i32,
}

sized_struct! {
    sf_packed: dtype as i32;
    sf_epilogue: reserved as i32;
    sf_attention_options: reserved as i32;
    sf_softmax_options: uniform_if_masked as i32;
}

fn stride(operand: &'static str, stride: isize) -> Result<usize, Failure> {
    usize::try_from(stride).map_err(|_| {
        Failure::argument(operand, "strides of at least 0: copy the matrix", "a negative one")
    })
}

fn aligned(operand: &'static str, data: *const f32) -> Result<(), Failure> {
    match data.addr() % align_of::<f32>() {
        0 => Ok(()),
        _ => Err(Failure::argument(operand, "an address that is a multiple of 4", data.addr())),
    }
}

unsafe fn matrix<'a>(operand: &'static str, view: *const sf_matrix) -> Result<Matrix<'a>, Failure> {
    // SAFETY: the caller's contract.
    let view = unsafe { reference(operand, view) }?;
    aligned(operand, view.data)?;
    let (rows, columns) = (stride(operand, view.row_stride)?, stride(operand, view.column_stride)?);
    // SAFETY: the caller's contract: the elements may be read, and are not written.
    Ok(unsafe { Matrix::from_raw_parts(view.data, view.rows, view.columns, rows, columns) }?)
}

unsafe fn matrix_mut<'a>(
    operand: &'static str,
    view: *const sf_matrix_mut,
) -> Result<MatrixMut<'a>, Failure> {
    // SAFETY: the caller's contract.
    let view = unsafe { reference(operand, view) }?;
    aligned(operand, view.data)?;
    let (rows, columns) = (stride(operand, view.row_stride)?, stride(operand, view.column_stride)?);
    // SAFETY: the caller's contract: only this view is used for the elements.
    Ok(unsafe { MatrixMut::from_raw_parts(view.data, view.rows, view.columns, rows, columns) }?)
}

unsafe fn heads<'a>(operand: &'static str, view: *const sf_heads) -> Result<Heads<'a>, Failure> {
    // SAFETY: the caller's contract.
    let view = unsafe { reference(operand, view) }?;
    aligned(operand, view.data)?;
    let shape = [view.tokens, view.heads, view.head_dim];
    let (tokens, heads) = (stride(operand, view.token_stride)?, stride(operand, view.head_stride)?);
    // SAFETY: the caller's contract: the elements may be read, and are not written.
    Ok(unsafe { Heads::from_raw_parts(view.data, shape, tokens, heads) }?)
}

unsafe fn heads_mut<'a>(
    operand: &'static str,
    view: *const sf_heads_mut,
) -> Result<HeadsMut<'a>, Failure> {
    // SAFETY: the caller's contract.
    let view = unsafe { reference(operand, view) }?;
    aligned(operand, view.data)?;
    let shape = [view.tokens, view.heads, view.head_dim];
    let (tokens, heads) = (stride(operand, view.token_stride)?, stride(operand, view.head_stride)?);
    // SAFETY: the caller's contract: only this view is used for the elements.
    Ok(unsafe { HeadsMut::from_raw_parts(view.data, shape, tokens, heads) }?)
}

/// An operand that begins where the result does would be read while it is written.
fn distinct(operand: &'static str, from: *const f32, to: *const f32) -> Result<(), Failure> {
    match !from.is_null() && from == to {
        true => Err(Failure::argument(operand, "other memory than that of the result", "the same")),
        false => Ok(()),
    }
}

fn parallelism(threads: &Option<CallerThreads>) -> Parallelism<'_> {
    threads.as_ref().map_or(Parallelism::Serial, |threads| Parallelism::Executor(threads))
}

fn dtype_of(dtype: i32) -> Result<Dtype, Failure> {
    let known = usize::try_from(dtype).ok().and_then(|dtype| Dtype::ALL.get(dtype).copied());
    known.ok_or_else(|| Failure::argument("dtype", "a constant SF_DTYPE", "another number"))
}

fn masked(operand: &'static str, uniform: i32) -> Result<FullyMasked, Failure> {
    match uniform {
        0 => Ok(FullyMasked::Zeros),
        1 => Ok(FullyMasked::Uniform),
        _ => Err(Failure::argument(operand, "0 or 1", "another number")),
    }
}

/// Writes the words of four bytes of a packed weight `[depth, columns]` of a constant `SF_DTYPE` to `*len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_packed_len(
    isa: i32,
    dtype: i32,
    depth: usize,
    columns: usize,
    len: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let place = unsafe { out("len", len) }?;
        place.write(PackOptions::new(dtype_of(dtype)?).buffer_len(isa_of(isa)?, depth, columns)?);
        Ok(())
    })
}

/// Packs `weight`, `[depth, columns]`, for products into `buffer` of `len` words, and writes the view of it to `*packed`. A
/// weight that is stored `[out, in]` is a matrix with exchanged strides. A buffer that begins on a multiple of 64 bytes is
/// fastest.
///
/// Errors: fewer words than `sf_packed_len`; a number that the dtype cannot have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_pack(
    isa: i32,
    dtype: i32,
    weight: *const sf_matrix,
    buffer: *mut f32,
    len: usize,
    packed: *mut sf_packed,
) -> i32 {
    enter(|| {
        let (isa, options) = (isa_of(isa)?, PackOptions::new(dtype_of(dtype)?));
        // SAFETY: the contract of the interface.
        let (weight, buffer) =
            unsafe { (matrix("weight", weight)?, slice_mut("buffer", buffer, len)?) };
        let (depth, columns) = (weight.rows(), weight.columns());
        let words = options.buffer_len(isa, depth, columns)?;
        // SAFETY: the contract of the interface. Before anything is written.
        unsafe { read_struct(packed.cast_const()) }?;
        options.pack(isa, weight, buffer)?;
        let (data, isa) = (buffer.as_ptr(), constant_of(isa));
        let made = sf_packed { struct_size: 0, data, len: words, depth, columns, isa, dtype };
        // SAFETY: the contract of the interface.
        unsafe { write_struct(packed, made) }
    })
}

/// `C = post_op(activation(scale * A * weight + bias))`: `a` is `[rows, depth]`, `c` is `[rows, columns]`. `epilogue` and
/// `executor` may be null. The bits of a row do not depend on other rows, on threads or on the instruction set.
///
/// Errors: shapes that do not fit, overlapping elements of `c`, negative strides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_gemm(
    a: *const sf_matrix,
    weight: *const sf_packed,
    epilogue: *const sf_epilogue,
    c: *const sf_matrix_mut,
    executor: *const sf_executor,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe {
            let (from, to) = (matrix("a", a)?, matrix_mut("c", c)?);
            distinct("a", (*a).data, (*c).data)?;
            let packed: sf_packed = read_struct(weight)?;
            let data = slice("sf_packed.data", packed.data, packed.len)?;
            let options = PackOptions::new(dtype_of(packed.dtype)?);
            let weight =
                options.from_packed(isa_of(packed.isa)?, packed.depth, packed.columns, data)?;
            let mut after = Epilogue::default();
            if let Some(epilogue) = optional_struct(epilogue)? {
                after = rust_epilogue(&epilogue, packed.columns, (*c).data)?;
            }
            let threads = caller_threads(executor)?;
            Ok(gemm(from, &weight, &after, to, parallelism(&threads))?)
        }
    })
}

unsafe fn rust_epilogue<'a>(
    epilogue: &sf_epilogue,
    columns: usize,
    c: *const f32,
) -> Result<Epilogue<'a>, Failure> {
    let activation = usize::try_from(epilogue.activation).ok();
    let activation = activation.and_then(|at| Activation::ALL.get(at).copied());
    let expected = "a constant SF_ACTIVATION";
    let activation = activation
        .ok_or_else(|| Failure::argument("sf_epilogue.activation", expected, "another number"))?;
    let post_op = match epilogue.post_op {
        SF_POST_NONE => PostOp::None,
        SF_POST_ADD_OUTPUT => PostOp::AddOutput,
        SF_POST_MULTIPLY_OUTPUT => PostOp::MultiplyOutput,
        SF_POST_ADD => {
            // SAFETY: the caller's contract.
            let operand = unsafe { matrix("sf_epilogue.operand", epilogue.operand) }?;
            // SAFETY: checked by `matrix`.
            distinct("sf_epilogue.operand", unsafe { (*epilogue.operand).data }, c)?;
            PostOp::Add(operand)
        }
        _ => {
            let expected = "a constant SF_POST";
            return Err(Failure::argument("sf_epilogue.post_op", expected, "another number"));
        }
    };
    let bias = match epilogue.bias.is_null() {
        true => None,
        // SAFETY: the caller's contract.
        false => Some(unsafe { slice("sf_epilogue.bias", epilogue.bias, columns) }?),
    };
    let scale = if epilogue.scale == 0.0 { 1.0 } else { epilogue.scale };
    Ok(Epilogue { scale, bias, activation, post_op })
}

/// The most sequences of a call that are kept on the stack.
const ON_STACK: usize = 64;

/// Calls `run` with the sequences of the caller. Allocates if there are more than [`ON_STACK`].
unsafe fn with_sequences<R>(
    sequences: *const sf_sequence,
    count: usize,
    run: impl FnOnce(&[Sequence]) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: the caller's contract.
    let sequences = unsafe { slice("sequences", sequences, count) }?;
    let rust = |one: &sf_sequence| Sequence {
        query_start: one.query_start,
        query_len: one.query_len,
        key_start: one.key_start,
        key_len: one.key_len,
        padded_len: one.key_len,
    };
    let mut places = [Sequence::default(); ON_STACK];
    match places.get_mut(..count) {
        Some(places) => {
            places.iter_mut().zip(sequences).for_each(|(place, one)| *place = rust(one));
            run(places)
        }
        None => run(&sequences.iter().map(rust).collect::<Vec<_>>()),
    }
}

/// Writes the floats of scratch that `sf_attention` needs for `count` sequences, with `heads` heads of keys, to `*len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_attention_scratch(
    isa: i32,
    sequences: *const sf_sequence,
    count: usize,
    heads: usize,
    head_dim: usize,
    len: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe {
            let place = out("len", len)?;
            let isa = isa_of(isa)?;
            with_sequences(sequences, count, |sequences| {
                place.write(attention_scratch(isa, sequences, heads, head_dim)?);
                Ok(())
            })
        }
    })
}

/// Attention of every sequence: `query` and `context` are `[tokens, heads, head_dim]`, `key` and `value` `[key tokens, kv_heads,
/// head_dim]`, where `heads` is a multiple of `kv_heads`. `scratch` has `scratch_len` floats, at least those of
/// `sf_attention_scratch`. `options` and `executor` may be null. Queries in no sequence are not written.
///
/// Errors: shapes, sequences or scratch that do not fit; then nothing is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_attention(
    isa: i32,
    query: *const sf_heads,
    key: *const sf_heads,
    value: *const sf_heads,
    sequences: *const sf_sequence,
    count: usize,
    options: *const sf_attention_options,
    context: *const sf_heads_mut,
    scratch: *mut f32,
    scratch_len: usize,
    executor: *const sf_executor,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe {
            let isa = isa_of(isa)?;
            let qkv = Qkv {
                query: heads("query", query)?,
                key: heads("key", key)?,
                value: heads("value", value)?,
            };
            let to = heads_mut("context", context)?;
            for (operand, from) in [("query", query), ("key", key), ("value", value)] {
                distinct(operand, (*from).data, (*context).data)?;
            }
            let mut chosen = AttentionOptions::new((*query).head_dim);
            if let Some(options) = optional_struct::<sf_attention_options>(options)? {
                chosen.scale = if options.scale == 0.0 { chosen.scale } else { options.scale };
                chosen.causal = options.causal != 0;
                let operand = "sf_attention_options.uniform_if_masked";
                chosen.fully_masked = masked(operand, options.uniform_if_masked)?;
                if !options.bias.is_null() {
                    let data = slice("sf_attention_options.bias", options.bias, options.bias_len)?;
                    let head_stride = options.bias_head_stride;
                    let query_stride = options.bias_query_stride;
                    chosen.bias = Some(Bias::Dense { data, head_stride, query_stride });
                }
            }
            let scratch = slice_mut("scratch", scratch, scratch_len)?;
            let threads = caller_threads(executor)?;
            let exec = Exec::new(isa, parallelism(&threads));
            with_sequences(sequences, count, |sequences| {
                Ok(attention(exec, qkv, sequences, &chosen, to.into(), scratch)?)
            })
        }
    })
}

/// Layer normalization of each row of `x + residual`, `[rows, columns]` each, into `y`: `(x - mean) / sqrt(variance + eps) *
/// weight + bias`. A null `x` stands for the content of `y`; `residual` may be null, and then nothing is added. `weight` and
/// `bias`, which may be null, are `[columns]`. `executor` may be null.
///
/// Errors: shapes that do not fit, rows whose elements are apart, a negative `eps`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_layer_norm(
    isa: i32,
    x: *const sf_matrix,
    residual: *const sf_matrix,
    weight: *const f32,
    bias: *const f32,
    eps: f32,
    y: *const sf_matrix_mut,
    executor: *const sf_executor,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe {
            let isa = isa_of(isa)?;
            let to = matrix_mut("y", y)?;
            let columns = to.columns();
            let given = |operand, view: *const sf_matrix| match optional(operand, view)? {
                None => Ok(None),
                Some(found) => {
                    distinct(operand, found.data, (*y).data)?;
                    matrix(operand, view).map(Some)
                }
            };
            let input = match (given("x", x)?, given("residual", residual)?) {
                (None, None) => NormInput::Output,
                (Some(x), None) => NormInput::Matrix(x),
                (None, Some(x)) => NormInput::SumWithOutput { x },
                (Some(x), Some(residual)) => NormInput::Sum { x, residual },
            };
            let weight = slice("weight", weight, columns)?;
            let bias = match bias.is_null() {
                true => None,
                false => Some(slice("bias", bias, columns)?),
            };
            let threads = caller_threads(executor)?;
            let exec = Exec::new(isa, parallelism(&threads));
            Ok(norm(exec, Norm::Layer(LayerNorm { weight, bias, eps }), input, to)?)
        }
    })
}

/// Softmax of each row of `scores`, `[rows, columns]`, into `probabilities`. A null `scores` stands for the content of
/// `probabilities`. `options` and `executor` may be null.
///
/// Errors: shapes that do not fit, rows whose elements are apart, a length beyond the columns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_softmax(
    isa: i32,
    scores: *const sf_matrix,
    options: *const sf_softmax_options,
    probabilities: *const sf_matrix_mut,
    executor: *const sf_executor,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe {
            let isa = isa_of(isa)?;
            let to = matrix_mut("probabilities", probabilities)?;
            let input = match optional("scores", scores)? {
                None => Input::Output,
                Some(found) => {
                    distinct("scores", found.data, (*probabilities).data)?;
                    Input::Matrix(matrix("scores", scores)?)
                }
            };
            let mut chosen = SoftmaxOptions::default();
            if let Some(options) = optional_struct::<sf_softmax_options>(options)? {
                chosen.logarithm = options.logarithm != 0;
                let operand = "sf_softmax_options.uniform_if_masked";
                chosen.fully_masked = masked(operand, options.uniform_if_masked)?;
                if !options.lengths.is_null() {
                    let lengths = slice("sf_softmax_options.lengths", options.lengths, to.rows())?;
                    chosen.lengths = Some(lengths);
                }
            }
            let threads = caller_threads(executor)?;
            Ok(softmax(Exec::new(isa, parallelism(&threads)), input, chosen, to)?)
        }
    })
}
