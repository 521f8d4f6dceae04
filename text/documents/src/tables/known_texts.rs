//! The texts of the last sources, in memory that is allocated once.
//!
//! A ring of bytes has pairs of a source and its text, one after the other; a new pair replaces the oldest ones. A
//! table has the position of a pair at the hash of its source; of two with one hash, the later one is known. So the
//! memory does not depend on the number of sources, and nothing is allocated for one.

use core::hash::BuildHasher;
use std::hash::RandomState;

/// The bytes of the ring.
const BYTES: usize = 8 << 20;
/// The places of the table.
const PLACES: usize = 1 << 16;
/// A pair of more bytes is not kept: it would replace too many others.
const LONGEST: usize = BYTES / 16;
/// The two lengths before a pair.
const LENGTHS: usize = 8;

/// The texts of sources.
pub(super) struct KnownTexts {
    ring: Vec<u8>,
    /// The bytes that were ever written; the next pair begins at this position, modulo the length of the ring.
    written: u64,
    /// One more than the position of a pair; 0 where there is none.
    table: Vec<u64>,
    hash: RandomState,
}

impl KnownTexts {
    pub(super) fn new() -> Self {
        // Bytes of zeros would become resident one page after the other, as the ring is filled.
        Self { ring: vec![1; BYTES], written: 0, table: vec![0; PLACES], hash: RandomState::new() }
    }

    fn place(&self, source: &str) -> usize {
        self.hash.hash_one(source) as usize % PLACES
    }

    /// The text of `source`, if it is known.
    pub(super) fn get(&self, source: &str) -> Option<&str> {
        let begin = self.table[self.place(source)].checked_sub(1)?;
        // The ring has the last bytes that were written.
        if begin + (BYTES as u64) < self.written {
            return None;
        }
        let rest = &self.ring[(begin % BYTES as u64) as usize..];
        let (lengths, rest) = rest.split_at_checked(LENGTHS)?;
        let (first, second) = lengths.split_at(LENGTHS / 2);
        let length = |bytes: &[u8]| {
            bytes.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize)
        };
        let (known, rest) = rest.split_at_checked(length(first))?;
        if known != source.as_bytes() {
            return None;
        }
        str::from_utf8(rest.get(..length(second))?).ok()
    }

    pub(super) fn insert(&mut self, source: &str, text: &str) {
        let len = LENGTHS + source.len() + text.len();
        if len > LONGEST {
            return;
        }
        let mut at = (self.written % BYTES as u64) as usize;
        // A pair does not go over the end of the ring.
        if at + len > BYTES {
            self.written += (BYTES - at) as u64;
            at = 0;
        }
        let place = self.place(source);
        self.table[place] = self.written + 1;
        self.written += len as u64;
        // The lengths are below `LONGEST`.
        let parts: [&[u8]; 4] = [
            &(source.len() as u32).to_le_bytes(),
            &(text.len() as u32).to_le_bytes(),
            source.as_bytes(),
            text.as_bytes(),
        ];
        for part in parts {
            self.ring[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever was inserted, a text that is found is the right one, and the latest pairs are found.
    #[test]
    fn a_known_text_is_that_of_its_source() {
        let mut known = KnownTexts::new();
        let pair = |number: usize| (format!("{number}"), format!("{number} ").repeat(number % 300));
        let mut state = 1u64;
        let mut found = 0;
        for number in 0..60_000 {
            let (source, text) = pair(number);
            known.insert(&source, &text);
            assert_eq!(known.get(&source), Some(&text[..]), "{number}");
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (source, text) = pair((state >> 33) as usize % (number + 1));
            if let Some(known) = known.get(&source) {
                assert_eq!(known, text);
                found += 1;
            }
        }
        // The ring has the last 1 in 6 pairs.
        assert!((2_000..50_000).contains(&found), "{found}");
        assert_eq!(known.get("none"), None);
        known.insert("long", &"x".repeat(LONGEST));
        assert_eq!(known.get("long"), None);
        known.insert("", "");
        assert_eq!(known.get(""), Some(""));
    }
}
