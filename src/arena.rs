//! One block of memory, planned before it exists.
//!
//! A [`Planner`] hands out ranges of 32-bit words and knows at the end how many there are; a [`Buffer`] is that many
//! words, its own or the caller's, of which [`Buffer::views`] lends disjoint ranges. Every range begins on a cache line
//! of 64 bytes, so that two threads that write to different ranges share none, and full vectors load unsplit.

use core::fmt;
use core::ops::Range;

/// Bytes at whose multiples ranges begin: a cache line, and an AVX-512 vector.
pub const ALIGNMENT: usize = 64;

/// [`ALIGNMENT`] in words.
const LINE: usize = ALIGNMENT / size_of::<f32>();

/// Why memory could not be planned, made or lent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArenaError {
    /// The plan is larger than the address space.
    PlanTooLarge,
    /// The allocator has not that much.
    OutOfMemory {
        /// Words asked for.
        words: usize,
    },
    /// The caller's memory is shorter than the plan.
    TooShort {
        /// Words needed, given where the memory begins.
        expected: usize,
        /// Words there are.
        found: usize,
    },
    /// Ranges overlap, or one ends outside the buffer.
    BadRanges {
        /// Words of the buffer.
        words: usize,
    },
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PlanTooLarge => f.write_str("the plan is larger than the address space"),
            Self::OutOfMemory { words } => {
                write!(f, "the allocator has not the {words} words of 4 bytes that the plan needs")
            }
            Self::TooShort { expected, found } => {
                write!(f, "the plan needs {expected} words of 4 bytes here, found {found}")
            }
            Self::BadRanges { words } => {
                write!(f, "the ranges overlap or reach beyond the {words} words of the buffer")
            }
        }
    }
}

impl core::error::Error for ArenaError {}

/// Adds up what is needed.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// A multiple of a cache line, or `usize::MAX` after an overflow.
    next: usize,
}

impl Planner {
    /// An empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `count` words, for `f32` or for `u32` (see [`as_u32`]). Ranges never overlap, empty ones included.
    ///
    /// A plan that overflows says so in [`Planner::words`]; its ranges are then of no use.
    pub fn floats(&mut self, count: usize) -> Range<usize> {
        let begin = self.next;
        self.next = begin
            .checked_add(count)
            .and_then(|end| end.checked_next_multiple_of(LINE))
            .unwrap_or(usize::MAX);
        begin..begin.saturating_add(count)
    }

    /// As [`Planner::floats`], the product of `counts`: a matrix, or several.
    pub fn floats_of(&mut self, counts: &[usize]) -> Range<usize> {
        let count = counts.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        self.floats(count.unwrap_or(usize::MAX))
    }

    /// Words of the whole plan, a multiple of 16.
    ///
    /// # Errors
    /// More bytes than a slice can have.
    pub fn words(&self) -> Result<usize, ArenaError> {
        // One line more must fit: it aligns memory that begins anywhere.
        let limit = isize::MAX as usize / size_of::<f32>() - LINE;
        if self.next > limit { Err(ArenaError::PlanTooLarge) } else { Ok(self.next) }
    }
}

#[derive(Debug)]
enum Memory<'a> {
    Own(Vec<f32>),
    Callers(&'a mut [f32]),
}

/// Words that begin on a cache line, owned or borrowed.
#[derive(Debug)]
pub struct Buffer<'a> {
    memory: Memory<'a>,
    /// Words before the first cache line.
    skipped: usize,
    words: usize,
}

impl Buffer<'static> {
    /// Zeroed memory of `words` words, allocated here.
    ///
    /// # Errors
    /// There is not so much.
    pub fn owned(words: usize) -> Result<Self, ArenaError> {
        let with_slack = words.checked_add(LINE - 1).ok_or(ArenaError::PlanTooLarge)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(with_slack).map_err(|_| ArenaError::OutOfMemory { words })?;
        memory.resize(with_slack, 0.0);
        let skipped = lead(&memory);
        Ok(Self { memory: Memory::Own(memory), skipped, words })
    }
}

impl<'a> Buffer<'a> {
    /// `words` words of the caller's memory, from its first cache line on; their content is left as it is.
    ///
    /// # Errors
    /// Fewer words than that. Memory that begins on a cache line needs exactly `words`, any other at most 15 more.
    pub fn borrowed(memory: &'a mut [f32], words: usize) -> Result<Self, ArenaError> {
        let skipped = lead(memory);
        let expected = words.checked_add(skipped).ok_or(ArenaError::PlanTooLarge)?;
        let found = memory.len();
        if found < expected {
            return Err(ArenaError::TooShort { expected, found });
        }
        Ok(Self { memory: Memory::Callers(memory), skipped, words })
    }

    /// Number of words.
    pub fn words(&self) -> usize {
        self.words
    }

    /// All words.
    pub fn all(&mut self) -> &mut [f32] {
        let memory: &mut [f32] = match &mut self.memory {
            Memory::Own(memory) => memory,
            Memory::Callers(memory) => memory,
        };
        &mut memory[self.skipped..self.skipped + self.words]
    }

    /// The words of each range, at the same time.
    ///
    /// # Errors
    /// Ranges overlap, or one ends outside the buffer.
    ///
    /// ```
    /// use simdformer::arena::{Buffer, Planner};
    ///
    /// let mut plan = Planner::new();
    /// let (hidden, scores) = (plan.floats_of(&[3, 5]), plan.floats(7));
    /// let mut buffer = Buffer::owned(plan.words()?)?;
    /// let [hidden, scores] = buffer.views([hidden, scores])?;
    /// assert_eq!((hidden.len(), scores.len()), (15, 7));
    /// # Ok::<(), simdformer::arena::ArenaError>(())
    /// ```
    pub fn views<const N: usize>(
        &mut self,
        ranges: [Range<usize>; N],
    ) -> Result<[&mut [f32]; N], ArenaError> {
        let words = self.words;
        self.all().get_disjoint_mut(ranges).map_err(|_| ArenaError::BadRanges { words })
    }
}

/// Words from the start of `memory` to its first cache line.
fn lead(memory: &[f32]) -> usize {
    memory.as_ptr().align_offset(ALIGNMENT)
}

/// The same words as integers.
pub fn as_u32(words: &mut [f32]) -> &mut [u32] {
    bytemuck::cast_slice_mut(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligned(words: &[f32]) -> bool {
        words.as_ptr().addr().is_multiple_of(ALIGNMENT)
    }

    #[test]
    fn ranges_are_aligned_disjoint_and_counted() {
        let mut plan = Planner::new();
        let ranges = [
            plan.floats(1),
            plan.floats(0),
            plan.floats_of(&[3, 0, 7]),
            plan.floats(17),
            plan.floats(16),
        ];
        assert_eq!(ranges.clone().map(|range| range.start), [0, 16, 16, 16, 48]);
        assert_eq!(plan.words(), Ok(64));
        let mut buffer = Buffer::owned(64).unwrap();
        assert!(buffer.all().iter().all(|x| x.to_bits() == 0));
        let views = buffer.views(ranges).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|i| views[i].len()), [1, 0, 0, 17, 16]);
        assert!(views.iter().all(|view| aligned(view)));
        for (i, view) in views.into_iter().enumerate() {
            as_u32(view).fill(i as u32 + 1);
        }
        let sum: u32 = as_u32(buffer.all()).iter().sum();
        assert_eq!(sum, 1 + 17 * 4 + 16 * 5);
    }

    #[test]
    fn the_callers_memory_may_begin_anywhere_and_nothing_outside_is_touched() {
        let mut memory = vec![7.0f32; 100];
        for start in 0..33 {
            memory.fill(7.0);
            let lead = lead(&memory[start..]);
            let short = Buffer::borrowed(&mut memory[start..start + lead + 31], 32).unwrap_err();
            assert_eq!(short, ArenaError::TooShort { expected: lead + 32, found: lead + 31 });
            let mut buffer = Buffer::borrowed(&mut memory[start..start + lead + 32], 32).unwrap();
            assert!(aligned(buffer.all()));
            let [a, b] = buffer.views([0..16, 16..32]).unwrap();
            a.fill(f32::NAN);
            b.fill(f32::NAN);
            for (i, x) in memory.iter().enumerate() {
                let inside = (start + lead..start + lead + 32).contains(&i);
                assert_eq!(x.is_nan(), inside, "word {i}, start {start}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let mut plan = Planner::new();
        plan.floats(3);
        plan.floats_of(&[usize::MAX, 2]);
        plan.floats(1);
        assert_eq!(plan.words(), Err(ArenaError::PlanTooLarge));
        assert_eq!(Buffer::owned(usize::MAX).unwrap_err(), ArenaError::PlanTooLarge);
        let words = isize::MAX as usize / 4 - 16;
        assert_eq!(Buffer::owned(words).unwrap_err(), ArenaError::OutOfMemory { words });
        let mut buffer = Buffer::owned(32).unwrap();
        for ranges in [[0..17, 16..32], [0..16, 16..33], [0..1, 40..40]] {
            assert_eq!(buffer.views(ranges).unwrap_err(), ArenaError::BadRanges { words: 32 });
        }
    }
}
