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
    Activation, Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Residual, gemm,
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
}

/// Start of the program, called by the C library.
#[unsafe(no_mangle)]
pub extern "C" fn main(_arguments: i32, _values: *const *const u8) -> i32 {
    let mut sets = 0;
    for isa in Isa::available() {
        sets += 1;
        if let Err(failure) = matrix_product(isa) {
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
