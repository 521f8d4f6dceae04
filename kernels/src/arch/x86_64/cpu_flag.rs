//! Questions to the CPU or to the system whose answer does not change: asking takes microseconds under a hypervisor,
//! so once is enough.

use core::sync::atomic::{AtomicU8, Ordering};

/// The answer, once there is one.
pub(crate) struct CachedCpuFlag(AtomicU8);

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

impl CachedCpuFlag {
    /// Nobody has asked.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    /// The answer: that of `ask` the first time, and as long as threads ask together for the first time.
    #[inline]
    pub(crate) fn answer(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => self.learn(ask),
            known => known == YES,
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&self, ask: impl FnOnce() -> bool) -> bool {
        let answer = ask();
        self.0.store(if answer { YES } else { NO }, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_kept_as_leave_is() {
        for answer in [false, true] {
            let (asked, mut times) = (CachedCpuFlag::new(), 0);
            for _ in 0..3 {
                let found = asked.answer(|| {
                    times += 1;
                    answer
                });
                assert_eq!(found, answer);
            }
            assert_eq!(times, 1);
        }
    }
}
