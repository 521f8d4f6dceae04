//! What happens while sentences are generated, and what the caller may answer.

use crate::search::{Finish, Hypothesis, Search, Token};
use core::ops::ControlFlow;

/// What [`Session::generate`](crate::Session::generate) tells its caller while it runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'g> {
    /// Something is about to be computed: sources that wait are encoded as far as there is room, then
    /// the decoder makes a step. The first event, and one before every step: the place to look at a
    /// clock or a flag. Holds what has been done so far.
    Step(DecodeStats),
    /// A token is certain. The tokens of a source come in order.
    Token {
        /// Index of the source, from 0.
        source: usize,
        /// The token.
        token: Token,
    },
    /// A source is done. Every source is, exactly once, unless an error ends the call.
    Done(Generated<'g>),
}

/// What [`Event`]s may be answered with, in a [`ControlFlow::Break`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The source of the token is done with what it has: [`Finish::Stopped`]. To other events it means
    /// nothing.
    Source,
    /// Nothing more is computed. Every source that is not done is reported with what it has, and
    /// [`Finish::Stopped`]; one that has not begun has no hypotheses.
    All,
}

/// The callback for events, whatever it returns.
pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>) -> ControlFlow<Stop>;

/// A source that is done.
#[derive(Clone, Copy)]
pub struct Generated<'g> {
    /// Index of the source, from 0.
    pub source: usize,
    /// Why it ended.
    pub finish: Finish,
    pub(super) search: &'g Search<'g>,
    /// Of the search; none if the source has not begun.
    pub(super) slot: u32,
}

impl<'g> Generated<'g> {
    /// The hypotheses, best first; samples in the order of their numbers. None of a source that had not
    /// begun when [`Stop::All`] came.
    pub fn hypotheses(&self) -> impl ExactSizeIterator<Item = Hypothesis<'g>> + use<'g> {
        self.search.hypotheses(self.slot)
    }
}

/// What a call of [`Session::generate`](crate::Session::generate) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// Steps of the decoder.
    pub steps: usize,
    /// Rows of all steps: tokens fed, but for prefixes, which are fed at once, and drafts.
    pub rows: usize,
    /// Tokens of drafts that were fed as well.
    pub drafted: usize,
    /// Tokens that came of these beyond the one of each row: as many rows of further steps were saved. An end
    /// token that was guessed saves none.
    pub accepted: usize,
    /// Sources that were not done when [`Stop::All`] came.
    pub cancelled: usize,
}
