//! Tickets: numbers that no two sentences or hypotheses of one process ever share.
//!
//! Slots are places and are used again, in one session and, since memory is, in the next. So what a
//! caller gets is a slot with a ticket, and a ticket is never given twice: whatever was released, is
//! from before a [`clear`](super::Session::clear) or belongs to another session is not found.

use std::sync::{Mutex, PoisonError};

/// Tickets that a session takes at a time, so that sessions hardly ever meet at the lock.
const BLOCK: u64 = 1 << 16;

/// The first ticket that nobody has taken. 0 is not a ticket. A lock, since there are machines without
/// atomics of 64 bits; the 2^64 tickets last for 2^48 sessions.
static NEXT: Mutex<u64> = Mutex::new(1);

/// The tickets of one session.
#[derive(Debug, Default)]
pub(super) struct HandleGenerations {
    next: u64,
    end: u64,
}

impl HandleGenerations {
    /// A ticket that nobody ever got.
    pub(super) fn draw(&mut self) -> u64 {
        if self.next == self.end {
            let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
            (self.next, self.end) = (*next, next.wrapping_add(BLOCK));
            *next = self.end;
        }
        let ticket = self.next;
        self.next = ticket.wrapping_add(1);
        ticket
    }
}

/// A ticket as two words, the low one first.
pub(super) const fn words_of(ticket: u64) -> [u32; 2] {
    [ticket as u32, (ticket >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ticket_comes_twice() {
        let draw = || {
            let mut tickets = HandleGenerations::default();
            (0..BLOCK + 1000).map(|_| tickets.draw()).collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("tickets")).collect()
        });
        let drawn = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), drawn);
        assert!(!all.contains(&0));
        assert_eq!(words_of(0x1234_5678_9abc_def0), [0x9abc_def0, 0x1234_5678]);
    }
}
