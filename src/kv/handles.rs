//! Handles of sentences and hypotheses, and their generation numbers.
//!
//! Slots are reused, within a session and, because a buffer can be reused, in a later session. A handle therefore has
//! a slot and a generation number, and no number is allocated twice in a process. A handle that was released, that is
//! older than a [`clear`](crate::Session::clear), or that belongs to another session is not found.

#[cfg(target_has_atomic = "64")]
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// The number that tells it from others in the same slot: no two handles of a process have the same one. 0 is that of
    /// the default.
    pub const fn generation(self) -> u64 {
        self.generation
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

    /// The number that tells it from others in the same slot: no two handles of a process have the same one. 0 is that of
    /// the default.
    pub const fn generation(self) -> u64 {
        self.generation
    }
}

/// Numbers that a session takes at a time, so that sessions rarely contend.
const BLOCK: u64 = 1 << 16;

/// Returns the first of [`BLOCK`] numbers that no session has taken. 0 is not a generation number. The 2^64 numbers are
/// enough for 2^48 sessions.
///
/// An atomic number and no lock: a thread of the parent may hold a lock when the process forks, and the child would wait
/// for it without end.
#[cfg(target_has_atomic = "64")]
fn allocate_block() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(BLOCK, Ordering::Relaxed)
}

/// As above, for targets without 64-bit atomics.
#[cfg(not(target_has_atomic = "64"))]
fn allocate_block() -> u64 {
    static NEXT: std::sync::Mutex<u64> = std::sync::Mutex::new(1);
    let mut next = NEXT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let first = *next;
    *next = first.wrapping_add(BLOCK);
    first
}

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
            self.next = allocate_block();
            self.end = self.next.wrapping_add(BLOCK);
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

/// The generation number of `slot`.
pub(crate) fn read_generation(generations: &[u32], slot: u32) -> u64 {
    let [low, high] = [0, 1].map(|word| generations[2 * slot as usize + word]);
    u64::from(high) << 32 | u64::from(low)
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
        let mut generations = [0; 4];
        write_generation(&mut generations, 1, 0x1234_5678_9abc_def0);
        assert_eq!(read_generation(&generations, 1), 0x1234_5678_9abc_def0);
    }
}
