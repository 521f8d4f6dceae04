//! A kernel with its operands, ready to be called again and again.

use simdformer_kernels::Parallelism;

/// What one call of a kernel does, and how to call it.
pub(crate) struct Work {
    /// Multiplications and additions of one call, masked ones not counted.
    pub(crate) flops: f64,
    /// Bytes that one call cannot avoid to move.
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
