//! One call of every function that takes a [`Parallelism`], forward and training, and the bits that it
//! writes. This module needs only std, so that programs under Miri and sanitizers can include it.

mod attention;
mod gemm;
mod rows;

use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};

/// A NaN with a payload that no kernel computes. Memory that still has it was not written.
pub(crate) const POISON: f32 = f32::from_bits(0x7fc0_dead);

/// The names of functions, and the bits that each call writes.
pub(crate) type Results = Vec<(&'static str, Vec<u32>)>;

/// The shapes of the calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) tokens: usize,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    /// Columns of the wide matrices, as logits have.
    pub(crate) columns: usize,
}

impl Size {
    /// Each call is just large enough to be split into tasks.
    pub(crate) const SHARED: Self = Self { tokens: 48, heads: 4, head_dim: 40, columns: 720 };

    pub(crate) const fn width(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// Calls every function. The inputs are the same every time.
pub(crate) fn everything(isa: Isa, size: Size, parallelism: Parallelism<'_>) -> Results {
    let mut results = Results::new();
    let call = Calls { isa, size, parallelism };
    gemm::calls(&call, &mut results);
    attention::calls(&call, &mut results);
    rows::calls(&call, &mut results);
    results
}

/// The arguments that all calls share.
struct Calls<'a> {
    isa: Isa,
    size: Size,
    parallelism: Parallelism<'a>,
}

/// Pseudorandom numbers between -1 and 1 (SplitMix64).
pub(crate) fn values(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut value = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| value()).collect()
}

/// `count` floats that a kernel must write before it reads them. Each holds `POISON`.
fn poisoned(count: usize) -> Vec<f32> {
    vec![POISON; count]
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn matrix(data: &[f32], rows: usize, columns: usize) -> Matrix<'_> {
    Matrix::new(data, rows, columns).expect("as many numbers")
}

fn matrix_mut(data: &mut [f32], rows: usize, columns: usize) -> MatrixMut<'_> {
    MatrixMut::new(data, rows, columns).expect("as many numbers")
}
