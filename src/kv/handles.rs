//! Handles of sentences and hypotheses, and their generation numbers.
//!
//! Slots are reused, within a session and, because a buffer can be reused, in a later session. A handle therefore has
//! a slot and a generation number, and no number is allocated twice in a process. A handle that was released, that is
//! older than a [`clear`](crate::Session::clear), or that belongs to another session is not found.

use std::sync::{Mutex, PoisonError};

/// Handle of an encoded source in one session. The default is no sentence. A released handle, or a handle of another
/// session, never matches another sentence in the same slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceId {
    pub(crate) slot: u32,
    /// Never 0, and unique among all sentences and hypotheses of the process.
    pub(crate) generation: u64,
}

impl SourceId {
    /// Number of the slot, as in [`crate::trace::View::sentence`].
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// Handle of a hypothesis in one session. The default is no hypothesis. A released handle, or a handle of another
/// session, never matches another hypothesis in the same slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HypothesisId {
    pub(crate) slot: u32,
    /// As in [`SourceId`].
    pub(crate) generation: u64,
}

impl HypothesisId {
    /// Number of the slot, as in [`crate::trace::View::hypothesis`].
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// Numbers that a session takes at a time, so that sessions rarely contend for the lock.
const BLOCK: u64 = 1 << 16;

/// The first number that no session has taken. 0 is not a generation number. This is a lock because some targets have
/// no 64-bit atomics. The 2^64 numbers are enough for 2^48 sessions.
static NEXT: Mutex<u64> = Mutex::new(1);

/// The generation numbers of one session.
#[derive(Debug, Default)]
pub(crate) struct HandleGenerations {
    next: u64,
    end: u64,
}

impl HandleGenerations {
    /// Returns a new number.
    pub(crate) fn allocate(&mut self) -> u64 {
        if self.next == self.end {
            let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
            (self.next, self.end) = (*next, next.wrapping_add(BLOCK));
            *next = self.end;
        }
        let generation = self.next;
        self.next = generation.wrapping_add(1);
        generation
    }
}

/// Writes the generation number of `slot` to `generations`, `[slots, 2]`.
pub(crate) fn write_generation(generations: &mut [u32], slot: u32, generation: u64) {
    generations[2 * slot as usize..][..2].copy_from_slice(&words_of(generation));
}

/// Whether `slot` has this generation number.
pub(crate) fn has_generation(generations: &[u32], slot: u32, generation: u64) -> bool {
    generations[2 * slot as usize..][..2] == words_of(generation)
}

/// A generation number as two words, the low one first.
const fn words_of(generation: u64) -> [u32; 2] {
    [generation as u32, (generation >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_generation_is_allocated_twice() {
        let allocate = || {
            let mut generations = HandleGenerations::default();
            (0..BLOCK + 1000).map(|_| generations.allocate()).collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(allocate)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("generations")).collect()
        });
        let allocated = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), allocated);
        assert!(!all.contains(&0));
        assert_eq!(words_of(0x1234_5678_9abc_def0), [0x9abc_def0, 0x1234_5678]);
    }
}
