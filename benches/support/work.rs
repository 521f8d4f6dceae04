//! A kernel with its operands, ready for repeated calls.

use simdformer_kernels::Parallelism;

/// The amount of work in one call of a kernel, and the call.
pub(crate) struct Work {
    /// Multiplications and additions of one call, without masked ones.
    pub(crate) flops: f64,
    /// Bytes that one call must move.
    pub(crate) bytes: f64,
    /// One call.
    pub(crate) run: Box<dyn FnMut(Parallelism<'_>) + Send>,
}

impl Work {
    pub(crate) fn new(
        flops: f64,
        bytes: f64,
        run: impl FnMut(Parallelism<'_>) + Send + 'static,
    ) -> Self {
        Self { flops, bytes, run: Box::new(run) }
    }
}
