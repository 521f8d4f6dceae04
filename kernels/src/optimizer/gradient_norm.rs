//! The norm of the gradients, and gradient clipping.

use crate::error::Error;
use crate::float_mode::in_default_mode;
use crate::parallel::Exec;
use crate::row_tasks::for_rows;
use crate::simd::{VIRTUAL, simd_op, sum_by_halving};
use crate::sync_ptr::SharedMut;

/// Elements in one block, whose squares are added in virtual lanes: 16 KiB, a third of an L1 cache.
const BLOCK: usize = 4096;

/// The number of f64 in the scratch of [`sum_of_squares`] for `len` elements.
///
/// # Errors
/// None yet: every length has a scratch.
///
/// ```
/// use simdformer_kernels::train::sum_of_squares_scratch;
///
/// assert_eq!(sum_of_squares_scratch(4097), Ok(2));
/// ```
pub const fn sum_of_squares_scratch(len: usize) -> Result<usize, Error> {
    Ok(len.div_ceil(BLOCK))
}

/// The sum of squares of a block, in virtual lanes. A square of an f32 is exact in f64, so a fused and an unfused multiply-add round to
/// the same value.
#[inline(always)]
fn block_sum(x: &[f32]) -> f64 {
    let (whole, rest) = x.as_chunks::<VIRTUAL>();
    // Arrays that are only indexed by constants stay in registers. In memory, each addition would wait for the
    // previous store.
    let mut sums = [0.0f64; VIRTUAL];
    for chunk in whole {
        let mut next = sums;
        for i in 0..VIRTUAL {
            let x = f64::from(chunk[i]);
            next[i] += x * x;
        }
        sums = next;
    }
    let mut lanes = sums;
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(x) * f64::from(x);
    }
    sum_by_halving(
        lanes,
        VIRTUAL,
        #[inline(always)]
        |a, b| a + b,
    )
}

simd_op!(
    /// The sums of consecutive blocks.
    fn block_sums<S: SimdF32>(_s: S, x: &[f32], sums: &mut [f64]) {
        for (block, sum) in x.chunks(BLOCK).zip(sums) {
            *sum = block_sum(block);
        }
    }
);

/// The sum of the squares of `x`, in f64 and in a fixed order: blocks of 4,096 elements, each in 64 virtual lanes,
/// then the blocks in order.
///
/// Its square root is the norm. Squares of f32 neither overflow nor underflow in f64, so the sum is finite exactly if
/// every element is finite. Relative error: at most `(len / 4096 + 71) 2^-53`. The bits do not depend on the number of
/// threads or on the instruction set.
///
/// `partials` must have at least [`sum_of_squares_scratch`]`(x.len())` elements.
///
/// # Errors
/// The scratch is too short.
///
/// ```
/// use simdformer_kernels::train::sum_of_squares;
/// use simdformer_kernels::{Exec, Isa};
///
/// let sum = sum_of_squares(Exec::serial(Isa::best()), &[3.0, 4.0], &mut [0.0])?;
/// assert_eq!(sum, 25.0);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
pub fn sum_of_squares(exec: Exec<'_>, x: &[f32], partials: &mut [f64]) -> Result<f64, Error> {
    let blocks = sum_of_squares_scratch(x.len())?;
    Error::check_min_len("partials", blocks, partials)?;
    let partials = &mut partials[..blocks];
    let shared = SharedMut::new(&mut *partials);
    for_rows(exec, [blocks, BLOCK], |range| {
        let end = x.len().min(range.end * BLOCK);
        // SAFETY: `sums` has a number for each block, and each task has its own blocks.
        let sums = unsafe { shared.part(range.start, range.len()) };
        block_sums(&x[range.start * BLOCK..end], sums)
    });
    Ok(in_default_mode(|| partials.iter().sum()))
}

/// The factor that limits the norm of the gradients to `limit`: 1, or `limit / (norm + 1e-6)` if that is less, as in
/// PyTorch. `None` if the norm is not finite: skip the update then, because every parameter would become NaN.
///
/// The norm is the square root of [`sum_of_squares`] over the gradients of all parameters, each counted once, after
/// the last micro-batch. A limit of infinity disables clipping.
///
/// ```
/// use simdformer_kernels::train::clip_factor;
///
/// assert_eq!(clip_factor(0.5, 1.0), Some(1.0));
/// assert!(clip_factor(4.0, 1.0).is_some_and(|factor| (factor - 0.25).abs() < 1e-6));
/// assert_eq!(clip_factor(f64::NAN, 1.0), None);
/// ```
pub fn clip_factor(norm: f64, limit: f64) -> Option<f64> {
    // `f64::min` returns 1 if the limit is NaN.
    norm.is_finite().then(|| in_default_mode(|| (limit / (norm + 1e-6)).min(1.0)))
}
