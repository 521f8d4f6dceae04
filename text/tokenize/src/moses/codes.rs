//! BPE of codes: a file of merges, one in each line, by which `subword-nmt` divides a word.

use crate::error::Error;
use crate::limits;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The end of a piece that is not the last of its word.
pub(super) const PART: &str = "@@";

/// The symbol of the end of a word: a part of its last character, or a symbol of its own.
const END: &str = "</w>";
const NONE: u32 = u32::MAX;

/// The merges.
#[derive(Debug)]
pub(super) struct Codes {
    /// Version 0.1: the end of a word is a symbol of its own.
    end_alone: bool,
    symbols: HashMap<String, u32>,
    /// The rank of two neighbors, and what they become.
    merges: HashMap<(u32, u32), (u32, u32)>,
}

/// A part of a word between merges.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    /// Where its text ends; it begins where the one before it ends.
    end: u32,
    previous: u32,
    next: u32,
}

impl Codes {
    /// Reads a file.
    pub(super) fn from_text(text: &str) -> Result<Self, Error> {
        let mut lines = text.strip_suffix('\n').unwrap_or(text).split('\n').enumerate();
        let mut codes = Self { end_alone: true, symbols: HashMap::new(), merges: HashMap::new() };
        if let Some(version) = text.strip_prefix("#version:") {
            lines.next();
            let version = version.lines().next().unwrap_or_default().trim();
            codes.end_alone = match version {
                "0.1" => true,
                "0.2" => false,
                found => {
                    let found = found.chars().take(20).collect::<String>();
                    return Err(Error::unsupported("#version", "0.1 or 0.2", found));
                }
            };
        }
        for (number, line) in lines {
            let place = || format!("line {}", number + 1);
            let parts: Vec<&str> = line.trim_matches(['\r', ' ']).split(' ').take(3).collect();
            let [first, second] = parts[..] else {
                let found = line.chars().take(80).collect::<String>();
                return Err(Error::corrupt(
                    place(),
                    "two parts of words",
                    format_args!("{found:?}"),
                ));
            };
            if number > limits::VOCABULARY.values
                || first.len() + second.len() > limits::TOKEN_BYTES
            {
                let (lines, bytes) = (limits::VOCABULARY.values, limits::TOKEN_BYTES);
                let expected = format!("at most {lines} lines, each of at most {bytes} bytes");
                return Err(Error::corrupt(place(), expected, "more"));
            }
            let pair = (codes.symbol(first), codes.symbol(second));
            let merged = codes.symbol(&format!("{first}{second}"));
            // Of equal lines the first counts.
            codes.merges.entry(pair).or_insert((number as u32, merged));
        }
        Ok(codes)
    }

    fn symbol(&mut self, text: &str) -> u32 {
        let next = self.symbols.len() as u32;
        *self.symbols.entry(text.to_owned()).or_insert(next)
    }

    /// Calls `each` with the parts of a word of less than 4 GiB, and whether one is the last.
    ///
    /// Of all neighbors that can be merged those of the lowest rank are merged, from left to right, then again.
    pub(super) fn divide(&self, word: &str, each: &mut dyn FnMut(&str, bool)) {
        let mut symbols = self.characters(word);
        let mut agenda = BinaryHeap::new();
        for left in 0..symbols.len() as u32 {
            agenda.extend(self.rank(&symbols, left).map(|rank| Reverse((rank, left))));
        }
        let mut places = Vec::new();
        while let Some(Reverse((rank, left))) = agenda.pop() {
            places.push(left);
            if agenda.peek().is_some_and(|next| next.0.0 == rank) {
                continue;
            }
            // All places of one rank come before what they make possible.
            for left in places.drain(..) {
                if self.rank(&symbols, left) != Some(rank) {
                    continue;
                }
                let a = symbols[left as usize];
                let b = symbols[a.next as usize];
                let merged = self.merges.get(&(a.id, b.id)).map_or(NONE, |merge| merge.1);
                symbols[left as usize] = Symbol { id: merged, end: b.end, next: b.next, ..a };
                symbols[a.next as usize].id = NONE;
                if let Some(after) = symbols.get_mut(b.next as usize) {
                    after.previous = left;
                }
                let new = [a.previous, left].into_iter().filter(|&left| left != NONE);
                agenda.extend(
                    new.filter_map(|left| Some(Reverse((self.rank(&symbols, left)?, left)))),
                );
            }
        }
        let (mut at, mut start) = (0, 0);
        while let Some(symbol) = symbols.get(at) {
            let end = symbol.end as usize;
            // An end of a word that was not merged is empty.
            if end > start {
                each(&word[start..end], end == word.len());
            }
            (at, start) = (symbol.next as usize, end);
        }
    }

    fn characters(&self, word: &str) -> Vec<Symbol> {
        let find = |text: &str| self.symbols.get(text).copied().unwrap_or(NONE);
        let mut symbols: Vec<Symbol> = Vec::with_capacity(word.len() + 1);
        let mut push = |id, end: usize| {
            let at = symbols.len() as u32;
            symbols.push(Symbol {
                id,
                end: end as u32,
                previous: at.wrapping_sub(1),
                next: at + 1,
            });
        };
        let mut buffer = String::new();
        for (start, char) in word.char_indices() {
            let end = start + char.len_utf8();
            buffer.clear();
            buffer.push(char);
            if end == word.len() && !self.end_alone {
                buffer.push_str(END);
            }
            push(find(&buffer), end);
        }
        if self.end_alone {
            push(find(END), word.len());
        }
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        symbols
    }

    /// The rank of a symbol and the one after it.
    fn rank(&self, symbols: &[Symbol], left: u32) -> Option<u32> {
        let a = symbols.get(left as usize)?;
        let b = symbols.get(a.next as usize)?;
        self.merges.get(&(a.id, b.id)).map(|merge| merge.0)
    }
}
