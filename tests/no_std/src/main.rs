//! A program with no std, no allocator and no unwinding runs the kernels on static arrays, on every
//! instruction set of the machine, and compares with numbers worked out by hand.
//!
//! That it links is half of the test: anything in the kernels that needs `alloc` would ask for a
//! global allocator, and there is none. The C library gives the start-up code and `abort`.
//!
//! The exit code is 0 when every number is right, and otherwise names the first check that failed.
#![no_std]
#![no_main]

use simdformer_kernels::{
    Activation, AttentionOptions, Epilogue, Heads, HeadsMut, Isa, Matrix, MatrixMut, PackedMatrix,
    Parallelism, Qkv, Residual, Sequence, attention, attention_scratch, gemm,
};

#[link(name = "c")]
unsafe extern "C" {
    safe fn abort() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    abort()
}

/// The prebuilt `core` was compiled to unwind and names this symbol in its tables, which std would
/// define. Nothing unwinds here, so nothing calls it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {
    abort()
}

/// What went wrong; the value is the exit code.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Failure {
    /// Fewer instruction sets than the scalar one.
    NoInstructionSet = 10,
    /// A view or the packing was refused.
    Setup,
    /// The GEMM was refused.
    GemmRefused,
    /// The GEMM gave other numbers.
    GemmWrong,
    /// A call that must be refused was not.
    BadCallAccepted,
    /// The attention was refused.
    AttentionRefused,
    /// The attention gave other numbers.
    AttentionWrong,
}

/// Start of the program, called by the C library.
#[unsafe(no_mangle)]
pub extern "C" fn main(_arguments: i32, _values: *const *const u8) -> i32 {
    let mut sets = 0;
    for isa in Isa::available() {
        sets += 1;
        if let Err(failure) = matrix_product(isa).and_then(|()| causal_attention(isa)) {
            return failure as i32;
        }
    }
    if sets == 0 { Failure::NoInstructionSet as i32 } else { 0 }
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
        residual: Residual::Matrix(Matrix::new(&RESIDUAL, 2, 4).map_err(|_| Failure::Setup)?),
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
        isa,
        Qkv {
            query: Heads::new(&QUERY, [2, 1, 3]).map_err(|_| Failure::Setup)?,
            key: Heads::new(&KEY, [3, 1, 3]).map_err(|_| Failure::Setup)?,
            value: Heads::new(&VALUE, [3, 1, 3]).map_err(|_| Failure::Setup)?,
        },
        &sequences,
        &AttentionOptions { scale: 1.0, causal: true, ..AttentionOptions::new(3) },
        HeadsMut::new(&mut result, [2, 1, 3]).map_err(|_| Failure::Setup)?.into(),
        scratch,
        Parallelism::Serial,
    )
    .map_err(|_| Failure::AttentionRefused)?;
    for (found, expected) in result.iter().zip(&EXPECTED) {
        let error = (found - expected).abs();
        // So that NaN fails.
        if error.is_nan() || error > BOUND {
            return Err(Failure::AttentionWrong);
        }
    }
    Ok(())
}
