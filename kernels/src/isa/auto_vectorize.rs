//! Plain Rust that the compiler vectorizes for an instruction set.

use super::Isa;
use crate::simd::simd_op;

/// Plain Rust that [`Isa::run_vectorized`] compiles for an instruction set. `do_work` and the functions it calls must be
/// `#[inline(always)]`: a function that is not inlined is not compiled for the set.
pub trait AutoVectorize {
    /// The result of the work.
    type Output;
    /// Does the work.
    fn do_work(self) -> Self::Output;
}

simd_op!(
    fn plain<S: SimdF32, W: AutoVectorize>(_s: S, work: W) -> W::Output {
        work.do_work()
    }
);

impl Isa {
    /// Runs `work` compiled for this set: the compiler vectorizes its plain Rust loops with the set's instructions.
    /// The results have the same bits as a direct call: the compiler neither fuses nor reorders arithmetic.
    ///
    /// ```
    /// use simdformer_kernels::{Isa, AutoVectorize};
    ///
    /// struct Double<'x>(&'x mut [f32]);
    ///
    /// impl AutoVectorize for Double<'_> {
    ///     type Output = ();
    ///
    ///     #[inline(always)]
    ///     fn do_work(self) {
    ///         self.0.iter_mut().for_each(|x| *x *= 2.0);
    ///     }
    /// }
    ///
    /// let mut x = [1.0, 2.0, 3.0];
    /// Isa::best().run_vectorized(Double(&mut x));
    /// assert_eq!(x, [2.0, 4.0, 6.0]);
    /// ```
    #[inline]
    pub fn run_vectorized<W: AutoVectorize>(self, work: W) -> W::Output {
        self.dispatch(plain(work))
    }
}
