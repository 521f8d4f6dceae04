//! From gradients to parameters: the norm of the gradients, Adam, the learning rate schedule, and averages.
//!
//! All functions except the norm are elementwise, so parameters may have any layout. No function uses fused
//! multiply-adds, so the bits are the same on every instruction set.
//!
//! An update takes three calls: [`sum_of_squares`] computes the norm of all gradients, after all micro-batches are
//! added; [`clip_factor`] computes their factor, or `None` if the update must be skipped; [`adam`] does the rest in
//! one pass over memory.

mod adam;
mod gradient_norm;
mod schedule;

pub use adam::{Adam, Moments, adam};
pub use gradient_norm::{clip_factor, sum_of_squares, sum_of_squares_scratch};
pub use schedule::Schedule;

use crate::error::Error;
use crate::parallel::Exec;
use crate::row_tasks::for_rows;
use crate::simd::simd_op;
use crate::sync_ptr::SharedMut;

/// Elements whose sums are computed at once.
const CHUNK: usize = 64;

simd_op!(
    /// The elements of the mean from `first` on.
    fn mean<S: SimdF32>(_s: S, vectors: &[&[f32]], first: usize, out: &mut [f32]) {
        let count = vectors.len() as f64;
        for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
            let start = first + chunk * CHUNK;
            let mut sums = [0.0f64; CHUNK];
            for vector in vectors {
                for (sum, &x) in sums.iter_mut().zip(&vector[start..start + out.len()]) {
                    *sum += f64::from(x);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = (sum / count) as f32;
            }
        }
    }
);

/// Writes the mean of `vectors` to `out`, for example of the last checkpoints of a run, as in the paper. The vectors
/// are added in order in f64. Each element is within one ULP of the exact mean if there is no cancellation. The bits
/// do not depend on the number of threads or on the instruction set.
///
/// # Errors
/// There is no vector, or one differs in length from `out`.
///
/// ```
/// use simdformer_kernels::train::average;
/// use simdformer_kernels::{Exec, Isa};
///
/// let mut mean = [0.0; 2];
/// average(Exec::serial(Isa::best()), &[&[1.0, 2.0], &[2.0, 6.0]], &mut mean)?;
/// assert_eq!(mean, [1.5, 4.0]);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
pub fn average(exec: Exec<'_>, vectors: &[&[f32]], out: &mut [f32]) -> Result<(), Error> {
    Error::check_min_len("vectors", 1, vectors)?;
    for vector in vectors {
        Error::check_len("vectors", out.len(), vector)?;
    }
    let (len, shared) = (out.len(), SharedMut::new(out));
    for_rows(exec, [len, 1], |range| {
        // SAFETY: each task has its own elements of `out`.
        let out = unsafe { shared.part(range.start, range.len()) };
        mean(vectors, range.start, out)
    });
    Ok(())
}
