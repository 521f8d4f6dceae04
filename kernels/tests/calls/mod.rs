//! One call of every function that takes a [`Parallelism`] or an [`Exec`], forward and with the feature `train` of
//! training, and the bits that it writes. This module needs only std, so that programs under Miri and sanitizers can include it.

mod attention;
mod gemm;
mod rows;

use crate::support::data::{
    Random, bits, poisoned, view_matrix as matrix, view_matrix_mut as matrix_mut,
};
use simdformer_kernels::{Error, Exec, Isa, MatrixMut, Parallelism};

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
    let call = Calls { exec: Exec::new(isa, parallelism), size };
    gemm::calls(&call, &mut results);
    attention::calls(&call, &mut results);
    rows::calls(&call, &mut results);
    results
}

/// The arguments that all calls share.
struct Calls<'a> {
    exec: Exec<'a>,
    size: Size,
}

/// Numbers between -1 and 1.
pub(crate) fn values(seed: u64, count: usize) -> Vec<f32> {
    Random(seed).values(count)
}

/// Calls `run` with `data` as a matrix, and keeps what it has written.
fn written(
    results: &mut Results,
    name: &'static str,
    (mut data, columns): (Vec<f32>, usize),
    run: impl FnOnce(MatrixMut<'_>) -> Result<(), Error>,
) -> Vec<f32> {
    let rows = data.len() / columns;
    run(matrix_mut(&mut data, rows, columns)).expect("fits");
    results.push((name, bits(&data)));
    data
}
