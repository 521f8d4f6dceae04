//! Who computes.

use simdformer_kernels::Parallelism;

/// Who computes when an op is applied. The bits do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    Serial,
    /// The rayon pool that the calling thread is in, or rayon's global one when it is in none. Small
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
