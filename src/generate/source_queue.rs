//! The sources of a call, from which one session or several take the next one whenever they have a free slot.

use super::request::{Event, OnEvent, Source, Stop};
use crate::error::Error;
use crate::search::SearchOptions;
use crate::session::Plan;
use core::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sources that a session of several takes before the others get their turn: enough for one pass of the encoder to be
/// efficient, few enough that each session gets some of the longest.
const AT_ONCE: usize = 8;

/// The sources of a call in the order in which they are started. Sessions on several threads share it without a lock.
pub(super) struct SourceQueue<'q> {
    sources: &'q [Source<'q>],
    /// The index of each source, in the order of their start; that of `sources` if empty.
    order: &'q [u32],
    /// Sessions that take from the queue at the same time.
    sessions: usize,
    /// What decides whether a source is refused; `None` if none is.
    refusing: Option<(Plan, &'q SearchOptions)>,
    /// Sources that were taken.
    next: AtomicUsize,
    /// Sources that are not finished, whether taken or not.
    unfinished: AtomicUsize,
}

impl<'q> SourceQueue<'q> {
    pub(super) fn new(sources: &'q [Source<'q>], order: &'q [u32], sessions: usize) -> Self {
        let unfinished = AtomicUsize::new(sources.len());
        Self { sources, order, sessions, refusing: None, next: AtomicUsize::new(0), unfinished }
    }

    pub(super) fn sources(&self) -> &'q [Source<'q>] {
        self.sources
    }

    /// How many sources a session takes now that has `held` unfinished ones and `free` slots. With several sessions, no
    /// session holds more than its share of what is unfinished, so that none runs out of sources before the others.
    pub(super) fn capacity(&self, held: usize, free: usize) -> usize {
        if self.sessions == 1 {
            return free;
        }
        let share = self.unfinished.load(Ordering::Relaxed).div_ceil(self.sessions).max(1);
        free.min(share.saturating_sub(held)).min(AT_ONCE)
    }

    /// Checks every source under valid options, before any of them runs. Asks the caller about each that is refused.
    ///
    /// There is no list of the refused ones, which would be allocated: if there are any, each source is checked again
    /// when its turn comes.
    pub(super) fn check(
        &mut self,
        plan: &Plan,
        options: &'q SearchOptions,
        on_event: OnEvent<'_>,
    ) -> Result<(), Error> {
        for (source, checked) in self.sources.iter().enumerate() {
            let Err(error) = plan.check_source(source, checked, options) else { continue };
            let answer = on_event(Event::Refused { source, error: &error });
            if answer != ControlFlow::Break(Stop::Source) {
                return Err(error);
            }
            self.refusing.get_or_insert_with(|| (plan.clone(), options));
            self.finish();
        }
        Ok(())
    }

    fn is_refused(&self, source: &Source<'_>) -> bool {
        let refusing = self.refusing.as_ref();
        refusing.is_some_and(|(plan, options)| plan.check_source(0, source, options).is_err())
    }

    /// Takes the next source that is not refused, if `fits` accepts it. Returns its index.
    pub(super) fn take(&self, fits: impl Fn(&Source<'_>) -> bool) -> Option<usize> {
        let mut at = self.next.load(Ordering::Relaxed);
        loop {
            let index = match self.order {
                [] => at,
                order => *order.get(at)? as usize,
            };
            let source = self.sources.get(index)?;
            let refused = self.is_refused(source);
            if !refused && !fits(source) {
                return None;
            }
            // The number alone is shared; the sources were written before the sessions began.
            match self.next.compare_exchange_weak(at, at + 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) if refused => at += 1,
                Ok(_) => return Some(index),
                Err(now) => at = now,
            }
        }
    }

    /// Counts a source that is finished.
    pub(super) fn finish(&self) {
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE, SourceQueue};
    use crate::generate::request::Source;

    #[test]
    fn every_source_is_taken_once_and_in_order() {
        let sources = [Source::new(&[1]); 40];
        let order: Vec<u32> = (0..40).rev().collect();
        let queue = SourceQueue::new(&sources, &order, 3);
        let taken = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(index) = queue.take(|_| true) {
                        taken.lock().expect("no panic").push(index);
                    }
                });
            }
        });
        let mut taken = taken.into_inner().expect("no panic");
        taken.sort_unstable();
        assert_eq!(taken, (0..40).collect::<Vec<_>>());
        let alone = SourceQueue::new(&sources, &order, 1);
        assert_eq!(
            [alone.take(|_| true), alone.take(|_| false), alone.take(|_| true)],
            [Some(39), None, Some(38)]
        );
    }

    #[test]
    fn no_session_holds_more_than_its_share() {
        let sources = [Source::new(&[1]); 20];
        let queue = SourceQueue::new(&sources, &[], 2);
        assert_eq!(
            (queue.capacity(0, 32), queue.capacity(8, 24), queue.capacity(10, 22)),
            (AT_ONCE, 2, 0)
        );
        (0..17).for_each(|_| queue.finish());
        // Three are left: a session without one takes one in any case.
        assert_eq!((queue.capacity(1, 31), queue.capacity(2, 30), queue.capacity(0, 1)), (1, 0, 1));
        assert_eq!(SourceQueue::new(&sources, &[], 1).capacity(7, 25), 25);
    }
}
