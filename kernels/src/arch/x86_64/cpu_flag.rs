//! Cached properties of the CPU or the operating system that do not change. A query takes microseconds under a
//! hypervisor, so it is made once.

use core::sync::atomic::{AtomicU8, Ordering};

/// The cached value, once it is known.
pub(crate) struct CachedCpuFlag(AtomicU8);

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

impl CachedCpuFlag {
    /// A flag whose value is not known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    /// The value. The first call runs `query`; several threads may run it if they call this at the same time.
    #[inline]
    pub(crate) fn answer(&self, query: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => self.init(query),
            known => known == YES,
        }
    }

    #[cold]
    #[inline(never)]
    fn init(&self, query: impl FnOnce() -> bool) -> bool {
        let answer = query();
        self.0.store(if answer { YES } else { NO }, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_answers_are_cached() {
        for answer in [false, true] {
            let (flag, mut times) = (CachedCpuFlag::new(), 0);
            for _ in 0..3 {
                let found = flag.answer(|| {
                    times += 1;
                    answer
                });
                assert_eq!(found, answer);
            }
            assert_eq!(times, 1);
        }
    }
}
