//! The options of each sentence slot, and the part of its memory that they use.

use super::options::{SearchOptions, Strategy};
use super::state::{Shape, candidates};
use core::ops::{Deref, Range};
use std::sync::Arc;

/// A reference to the options of one sentence, or an `Arc` of them.
///
/// [`Search::admit_with`](super::Search::admit_with) accepts both. Options that outlive the search are borrowed; those of a
/// request that arrives during the search are shared.
#[derive(Clone, Debug)]
pub enum SlotOptions<'o> {
    /// Borrowed.
    Borrowed(&'o SearchOptions),
    /// Shared.
    Shared(Arc<SearchOptions>),
}

impl<'o> From<&'o SearchOptions> for SlotOptions<'o> {
    fn from(options: &'o SearchOptions) -> Self {
        Self::Borrowed(options)
    }
}

impl From<Arc<SearchOptions>> for SlotOptions<'_> {
    fn from(options: Arc<SearchOptions>) -> Self {
        Self::Shared(options)
    }
}

impl Deref for SlotOptions<'_> {
    type Target = SearchOptions;

    fn deref(&self) -> &SearchOptions {
        match self {
            Self::Borrowed(options) => options,
            Self::Shared(options) => options,
        }
    }
}

/// An empty vector in the memory of `slots`, for options of another lifetime. A vector that is collected from its own
/// iterator keeps its memory; the tests that count allocations would fail otherwise.
pub(super) fn reuse_memory<'o>(mut slots: Vec<SlotOptions<'_>>) -> Vec<SlotOptions<'o>> {
    slots.clear();
    slots.into_iter().map_while(|_| None).collect()
}

/// Where a session keeps the memory of the options of its slots between two calls.
pub(crate) enum SlotMemory<'a> {
    Owned(Vec<SlotOptions<'static>>),
    /// That of the session from which a traced one was made.
    Borrowed(&'a mut Vec<SlotOptions<'static>>),
}

impl SlotMemory<'_> {
    pub(crate) fn vec_mut(&mut self) -> &mut Vec<SlotOptions<'static>> {
        match self {
            Self::Owned(slots) => slots,
            Self::Borrowed(slots) => slots,
        }
    }
}

/// A sentence slot, its options, and the part of its memory that they use. Memory has the shape of the limits, so that
/// sentences with different options stand side by side.
#[derive(Clone, Copy)]
pub(super) struct Slot<'o> {
    /// Its index.
    pub(super) s: usize,
    pub(super) options: &'o SearchOptions,
    /// Index of its first sequence slot.
    pub(super) first: usize,
    /// Index of its first group of beams.
    pub(super) first_group: usize,
    /// Its sequences.
    pub(super) width: usize,
    /// Its groups of beams.
    pub(super) groups: usize,
}

impl<'o> Slot<'o> {
    pub(super) fn new(s: usize, options: &'o SearchOptions, shape: &Shape) -> Self {
        let width = options.sequences();
        let groups = match &options.strategy {
            Strategy::Beam(beam) => beam.groups,
            _ => 1,
        };
        Self {
            s,
            options,
            first: s.saturating_mul(shape.width),
            first_group: s.saturating_mul(shape.groups),
            width,
            groups,
        }
    }

    /// Its sequence slots.
    pub(super) fn sequences(&self) -> Range<usize> {
        self.first..self.first + self.width
    }

    /// Beams of one group.
    pub(super) fn group_width(&self) -> usize {
        self.width / self.groups
    }

    /// Candidates that one group examines in one step.
    pub(super) fn candidates(&self) -> usize {
        candidates(self.options.eos.len(), self.group_width())
    }
}
