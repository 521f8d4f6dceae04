//! The threads of an op.

use simdformer_kernels::Parallelism;

/// The threads that compute an op. The bits do not depend on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    Serial,
    /// The rayon pool that the calling thread is in, or rayon's global pool if it is in none. Small
    /// work stays on the calling thread.
    #[default]
    Rayon,
}

impl Threads {
    pub(crate) const fn parallelism(self) -> Parallelism<'static> {
        match self {
            Self::Serial => Parallelism::Serial,
            Self::Rayon => Parallelism::Rayon,
        }
    }
}
