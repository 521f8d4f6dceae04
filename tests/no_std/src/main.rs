//! A program without std, allocator and unwinding. It runs the kernels on arrays, views of pointers and an
//! executor of its own, on every instruction set of the machine, and compares with numbers computed by
//! hand.
//!
//! Linking is half of the test: an item of the kernels that needs `alloc` would need a global allocator,
//! and there is none. The C library provides the start-up code and `abort`.
//!
//! The exit code is 0 if every number is right. Otherwise it names the first check that failed.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicUsize, Ordering};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, norm};
use simdformer_kernels::{
    Activation, AttentionOptions, CacheMut, CacheShape, CachedSequence, Epilogue, Error, Exec,
    Executor, Heads, HeadsMut, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, PostOp, Qkv,
    Sequence, SlotTable, attention, attention_cached, attention_decode, attention_scratch, gemm,
    gemm_unpacked, gemm_unpacked_scratch,
};

#[link(name = "c")]
unsafe extern "C" {
    safe fn abort() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    abort()
}

/// The prebuilt `core` was compiled for unwinding, and its tables name this symbol, which std would define.
/// Nothing unwinds here, so nothing calls it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {
    abort()
}

/// The check that failed. The value is the exit code.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Failure {
    /// The machine has fewer instruction sets than the scalar one.
    NoInstructionSet = 10,
    /// A view or the packing was an error.
    Setup,
    /// The GEMM was an error.
    GemmRefused,
    /// The GEMM gave wrong numbers.
    GemmWrong,
    /// A call that must be an error succeeded.
    BadCallAccepted,
    /// The attention was an error.
    AttentionRefused,
    /// The attention gave wrong numbers.
    AttentionWrong,
    /// A product in parts of a buffer, on an executor, was an error.
    PartsRefused,
    /// It gave other numbers than the product as a whole.
    PartsWrong,
    /// The executor did not run, or did not run all tasks.
    NotExecuted,
    /// Attention over a cache gave wrong numbers.
    CacheWrong,
    /// A norm was an error or gave wrong numbers.
    NormWrong,
    /// GEMM, LayerNorm and attention in one function were an error or gave wrong numbers.
    LayerWrong,
    /// The function of `lib.rs` was an error or gave wrong numbers.
    ExampleWrong,
}

/// Start of the program, called by the C library.
#[unsafe(no_mangle)]
pub extern "C" fn main(_arguments: i32, _values: *const *const u8) -> i32 {
    let mut sets = 0;
    for isa in Isa::available() {
        sets += 1;
        let checks: [fn(Isa) -> Result<(), Failure>; 7] = [
            matrix_product,
            causal_attention,
            parts_on_an_executor,
            a_cache,
            a_norm,
            a_layer,
            the_example,
        ];
        if let Err(failure) = checks.iter().try_for_each(|check| check(isa)) {
            return failure as i32;
        }
    }
    if sets == 0 { Failure::NoInstructionSet as i32 } else { 0 }
}

/// GEMM, LayerNorm and attention in one function: they return the same error. The product with the identity is
/// `[1, 3]`, its norm is `[-1, 1]`, and the mean over one token is that token.
fn layer(isa: Isa, out: &mut [f32; 2]) -> Result<(), Error> {
    let (serial, row) = (Parallelism::Serial, [1, 1, 2]);
    let (mut buffer, mut h, mut scratch) = ([0.0; 2 * 64], [0.0; 2], [0.0; 64]);
    let weight = Matrix::new(&[1.0, 0.0, 0.0, 1.0], 2, 2)?;
    let weight = PackedMatrix::pack(isa, weight, &mut buffer)?;
    let (x, to) = (Matrix::new(&[1.0, 3.0], 1, 2)?, MatrixMut::new(&mut h, 1, 2)?);
    gemm(x, &weight, &Epilogue::default(), to, serial)?;
    let layer = Norm::Layer(LayerNorm { weight: &[1.0; 2], bias: None, eps: 0.0 });
    norm(Exec::serial(isa), layer, NormInput::Output, MatrixMut::new(&mut h, 1, 2)?)?;
    let (query, context) = (Heads::new(&h, row)?, HeadsMut::new(out, row)?.into());
    let (qkv, sequences) = (Qkv { query, key: query, value: query }, [Sequence::packed(0, 1)]);
    attention(Exec::serial(isa), qkv, &sequences, &AttentionOptions::new(2), context, &mut scratch)
}

fn a_layer(isa: Isa) -> Result<(), Failure> {
    let mut out = [f32::NAN; 2];
    layer(isa, &mut out).map_err(|_| Failure::LayerWrong)?;
    let close = |(x, y): (f32, f32)| (x - y).abs() < 1e-6;
    if out.into_iter().zip([-1.0, 1.0]).all(close) { Ok(()) } else { Err(Failure::LayerWrong) }
}

/// `residual + relu(0.5 A W + bias)`. By hand:
///
/// ```text
/// A W      =  1 2 3 . 1  0 2 -1  =   7 -1  4  8
///             4 5 6   0  1 1  3     16 -1 13 17
///                     2 -1 0  1
/// 0.5 A W + bias  =  4.0 -1.5  2.0  6.0
///                    8.5 -1.5  6.5 10.5
/// relu, + residual = 5.0  1.0  3.0  7.0
///                    8.5 -1.0  6.5  9.5
/// ```
///
/// Every intermediate is a multiple of 0.5, so that any order of summation is exact.
fn matrix_product(isa: Isa) -> Result<(), Failure> {
    static A: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    static W: [f32; 12] = [1.0, 0.0, 2.0, -1.0, 0.0, 1.0, 1.0, 3.0, 2.0, -1.0, 0.0, 1.0];
    static BIAS: [f32; 4] = [0.5, -1.0, 0.0, 2.0];
    static RESIDUAL: [f32; 8] = [1.0, 1.0, 1.0, 1.0, 0.0, -1.0, 0.0, -1.0];
    static EXPECTED: [f32; 8] = [5.0, 1.0, 3.0, 7.0, 8.5, -1.0, 6.5, 9.5];

    let mut buffer = [f32::NAN; 3 * 64];
    let weight = Matrix::new(&W, 3, 4).map_err(|_| Failure::Setup)?;
    let weight = PackedMatrix::pack(isa, weight, &mut buffer).map_err(|_| Failure::Setup)?;
    let a = Matrix::new(&A, 2, 3).map_err(|_| Failure::Setup)?;
    let epilogue = Epilogue {
        scale: 0.5,
        bias: Some(&BIAS),
        activation: Activation::Relu,
        post_op: PostOp::Add(Matrix::new(&RESIDUAL, 2, 4).map_err(|_| Failure::Setup)?),
    };

    let mut result = [f32::NAN; 8];
    let c = MatrixMut::new(&mut result, 2, 4).map_err(|_| Failure::Setup)?;
    gemm(a, &weight, &epilogue, c, Parallelism::Serial).map_err(|_| Failure::GemmRefused)?;
    if result != EXPECTED {
        return Err(Failure::GemmWrong);
    }

    let wrong = MatrixMut::new(&mut result, 4, 2).map_err(|_| Failure::Setup)?;
    match gemm(a, &weight, &epilogue, wrong, Parallelism::Serial) {
        Err(_) => Ok(()),
        Ok(()) => Err(Failure::BadCallAccepted),
    }
}

/// Two causal queries over two keys and a third that is padding and holds NaN. By hand, with scale 1:
///
/// ```text
/// query 0 sees key 0 only:  weights 1          output = value 0
/// query 1: scores 0, ln 3   weights 1/4, 3/4   output = (4 + 3 * 8, 8 + 0, -4 + 3 * 4) / 4
/// ```
fn causal_attention(isa: Isa) -> Result<(), Failure> {
    const LN_3: f32 = 1.098_612_3;
    static QUERY: [f32; 6] = [2.0, -1.0, 3.0, 1.0, 0.0, 0.0];
    static KEY: [f32; 9] = [0.0, 5.0, 0.0, LN_3, 0.0, 7.0, f32::NAN, f32::NAN, f32::NAN];
    static VALUE: [f32; 9] = [4.0, 8.0, -4.0, 8.0, 0.0, 4.0, f32::NAN, f32::NAN, f32::NAN];
    static EXPECTED: [f32; 6] = [4.0, 8.0, -4.0, 7.0, 2.0, 2.0];
    // The documented bound, 8 u (head_dim scale max|q| max|k| + key_len / 8 + 8) max|v| with
    // u = 2^-24: 8 u (3 * 3 * 7 + 8.25) * 8 = 2.72e-4.
    const BOUND: f32 = 2.72e-4;

    let sequences =
        [Sequence { query_start: 0, query_len: 2, key_start: 0, key_len: 2, padded_len: 3 }];
    let mut scratch = [f32::NAN; 256];
    let needed = attention_scratch(isa, &sequences, 1, 3).map_err(|_| Failure::Setup)?;
    let scratch = scratch.get_mut(..needed).ok_or(Failure::Setup)?;
    let mut result = [f32::NAN; 6];
    attention(
        Exec::serial(isa),
        Qkv {
            query: Heads::new(&QUERY, [2, 1, 3]).map_err(|_| Failure::Setup)?,
            key: Heads::new(&KEY, [3, 1, 3]).map_err(|_| Failure::Setup)?,
            value: Heads::new(&VALUE, [3, 1, 3]).map_err(|_| Failure::Setup)?,
        },
        &sequences,
        &AttentionOptions { scale: 1.0, causal: true, ..AttentionOptions::new(3) },
        HeadsMut::new(&mut result, [2, 1, 3]).map_err(|_| Failure::Setup)?.into(),
        scratch,
    )
    .map_err(|_| Failure::AttentionRefused)?;
    for (found, expected) in result.iter().zip(&EXPECTED) {
        let error = (found - expected).abs();
        // Written so that NaN fails.
        if error.is_nan() || error > BOUND {
            return Err(Failure::AttentionWrong);
        }
    }
    Ok(())
}

/// Reports three threads and has one, which runs the last task first.
struct Backwards {
    tasks: AtomicUsize,
}

impl Executor for Backwards {
    fn threads(&self) -> usize {
        3
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.tasks.fetch_add(tasks, Ordering::Relaxed);
        (0..tasks).rev().for_each(task);
    }
}

/// A product large enough to be split into tasks. The matrices are unpacked and write every second column
/// of a buffer; the product with packed weights writes the other columns: two interleaved views of
/// pointers.
fn parts_on_an_executor(isa: Isa) -> Result<(), Failure> {
    const ROWS: usize = 40;
    const DEPTH: usize = 100;
    const COLUMNS: usize = 140;
    static B: [f32; DEPTH * COLUMNS] = [0.25; DEPTH * COLUMNS];
    let mut a = [0.0f32; ROWS * DEPTH];
    for (i, a) in a.iter_mut().enumerate() {
        *a = (i % 7) as f32;
    }
    let (mut scratch, mut packed) = ([f32::NAN; DEPTH * 192], [f32::NAN; DEPTH * 192]);
    let mut c = [f32::NAN; ROWS * 2 * COLUMNS];

    let executor = Backwards { tasks: AtomicUsize::new(0) };
    let threads = Parallelism::Executor(&executor);
    // SAFETY: the arrays have this length, and nothing writes them while the views are used.
    let (a_view, b_view) = unsafe {
        (
            Matrix::from_raw_parts(a.as_ptr(), ROWS, DEPTH, DEPTH, 1),
            // Column-major.
            Matrix::from_raw_parts(B.as_ptr(), DEPTH, COLUMNS, 1, DEPTH),
        )
    };
    let a_view = a_view.map_err(|_| Failure::Setup)?;
    let b_view = b_view.map_err(|_| Failure::Setup)?;
    let start = c.as_mut_ptr();
    // SAFETY: even and odd columns are disjoint, and `c` is not used while the views exist.
    let (even, odd) = unsafe {
        (
            MatrixMut::from_raw_parts(start, ROWS, COLUMNS, 2 * COLUMNS, 2),
            MatrixMut::from_raw_parts(start.add(1), ROWS, COLUMNS, 2 * COLUMNS, 2),
        )
    };
    let even = even.map_err(|_| Failure::Setup)?;
    let odd = odd.map_err(|_| Failure::Setup)?;

    let floats = gemm_unpacked_scratch(isa, DEPTH, COLUMNS).map_err(|_| Failure::Setup)?;
    let scratch = scratch.get_mut(..floats).ok_or(Failure::Setup)?;
    let plain = Epilogue::default();
    gemm_unpacked(Exec { isa, threads }, a_view, b_view, &plain, even, scratch)
        .map_err(|_| Failure::PartsRefused)?;
    let packed = PackedMatrix::pack(isa, b_view, &mut packed).map_err(|_| Failure::Setup)?;
    gemm(a_view, &packed, &plain, odd, threads).map_err(|_| Failure::PartsRefused)?;
    if executor.tasks.load(Ordering::Relaxed) < 2 {
        return Err(Failure::NotExecuted);
    }
    for (row, c) in c.chunks(2 * COLUMNS).enumerate() {
        // Small multiples of 1/4: every order of summation is exact.
        let sum: f32 = a[row * DEPTH..][..DEPTH].iter().map(|a| a * 0.25).sum();
        if c.iter().any(|&c| c != sum) {
            return Err(Failure::PartsWrong);
        }
    }
    Ok(())
}

/// Two keys in a cache, the second one in another slot. A query that sees one key gets its value, and a
/// query that gives both keys the same weight gets the mean of their values.
fn a_cache(isa: Isa) -> Result<(), Failure> {
    const SHAPE: CacheShape = CacheShape::new(2, 2, 1, 2);
    static KEY: [f32; 4] = [1.0, 0.0, 1.0, 0.0];
    static VALUE: [f32; 4] = [2.0, 4.0, 6.0, 8.0];
    static QUERY: [f32; 2] = [0.5, 3.0];
    let mut buffer = [f32::NAN; 256];
    let floats = SHAPE.buffer_len(isa).map_err(|_| Failure::Setup)?;
    let buffer = buffer.get_mut(..floats).ok_or(Failure::Setup)?;
    let heads = |data, tokens| Heads::new(data, [tokens, 1, 2]).map_err(|_| Failure::Setup);
    let mut cache = CacheMut::new(isa, SHAPE, buffer).map_err(|_| Failure::Setup)?;
    for slot in 0..2 {
        cache.write(slot, 0, heads(&KEY, 2)?, heads(&VALUE, 2)?).map_err(|_| Failure::Setup)?;
    }
    let cache = cache.as_view();
    let options = AttentionOptions::new(2);
    let mut out = [f32::NAN; 2];
    let one = CachedSequence { query_start: 0, query_len: 1, slot: 0, key_len: 1 };
    let context = HeadsMut::new(&mut out, [1, 1, 2]).map_err(|_| Failure::Setup)?;
    attention_cached(
        heads(&QUERY, 1)?,
        &cache,
        &[one],
        &options,
        context.into(),
        Parallelism::Serial,
    )
    .map_err(|_| Failure::AttentionRefused)?;
    if out != [2.0, 4.0] {
        return Err(Failure::CacheWrong);
    }
    let past = SlotTable { lens: &[2], slots: &[0, 1], stride: 2 };
    let context = HeadsMut::new(&mut out, [1, 1, 2]).map_err(|_| Failure::Setup)?;
    attention_decode(heads(&QUERY, 1)?, &cache, past, &options, context, Parallelism::Serial)
        .map_err(|_| Failure::AttentionRefused)?;
    if out == [4.0, 6.0] { Ok(()) } else { Err(Failure::CacheWrong) }
}

/// The function of `lib.rs`, on the best instruction set.
fn the_example(_: Isa) -> Result<(), Failure> {
    let mut packed = [f32::NAN; 512];
    let floats = simdformer_no_std::packed_len(2, 3).map_err(|_| Failure::Setup)?;
    let packed = packed.get_mut(..floats).ok_or(Failure::Setup)?;
    let (weight, mut out) = ([1.0, 0.0, 0.0, 1.0, 1.0, -2.0], [f32::NAN; 3]);
    let x = Matrix::new(&[3.0, 4.0], 1, 2).map_err(|_| Failure::Setup)?;
    let weight = Matrix::new(&weight, 3, 2).map_err(|_| Failure::Setup)?;
    let to = MatrixMut::new(&mut out, 1, 3).map_err(|_| Failure::Setup)?;
    simdformer_no_std::feed_forward(x, (weight, &[0.5; 3]), packed, to)
        .map_err(|_| Failure::ExampleWrong)?;
    if out == [3.5, 4.5, 0.0] { Ok(()) } else { Err(Failure::ExampleWrong) }
}

/// A constant row, normalized, is exactly the bias. The rows are the second half of the rows of a buffer.
fn a_norm(isa: Isa) -> Result<(), Failure> {
    let mut data = [3.0f32; 2 * 8];
    let layer = LayerNorm { weight: &[2.0; 4], bias: Some(&[1.0, 2.0, 3.0, 4.0]), eps: 1e-5 };
    let x = [5.0; 8];
    let x = Matrix::new(&x, 2, 4).map_err(|_| Failure::Setup)?;
    // SAFETY: columns 4 to 7 of two rows of eight; `data` is not used while the view exists.
    let half = unsafe { MatrixMut::from_raw_parts(data.as_mut_ptr().add(4), 2, 4, 8, 1) };
    let half = half.map_err(|_| Failure::Setup)?;
    norm(Exec::serial(isa), Norm::Layer(layer), NormInput::Matrix(x), half)
        .map_err(|_| Failure::NormWrong)?;
    let expected = [3.0, 3.0, 3.0, 3.0, 1.0, 2.0, 3.0, 4.0];
    if data.chunks(8).all(|row| row == expected) { Ok(()) } else { Err(Failure::NormWrong) }
}
