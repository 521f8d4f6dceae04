//! Events of [`Session::generate`](crate::Session::generate), and the replies of the caller.

use crate::error::Error;
use crate::search::{Finish, Hypothesis, Search, Token};
use core::fmt;
use core::ops::ControlFlow;

/// An event of [`Session::generate`](crate::Session::generate).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'g> {
    /// Reported before each step, and before sources are encoded. After it, waiting sources are encoded if slots are free, and
    /// the decoder makes a step. Use it to test a deadline or a flag. Holds the statistics so far.
    Step(DecodeStats),
    /// A source cannot be decoded: [`Session::check`](crate::Session::check) rejects it. Reported before anything runs, once
    /// for each such source. With the answer [`Stop::Source`] the call goes on without it, and it gets no other event; with
    /// any other answer the whole call is this error.
    Refused {
        /// Index of the source, from 0.
        source: usize,
        /// Why it cannot be decoded, with the same [index](crate::Error::index).
        error: &'g Error,
    },
    /// A token of a source is final. The tokens of a source come in order.
    Token {
        /// Index of the source, from 0.
        source: usize,
        /// The token.
        token: Token,
    },
    /// A source is finished. Reported exactly once for every source that was not refused, unless an error ends the call.
    Done(Generated<'g>),
}

/// The reply to an [`Event`], in a [`ControlFlow::Break`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The source of the token ends with its tokens so far: [`Finish::Stopped`]. A source that is refused is left out. Has
    /// no effect as a reply to other events.
    Source,
    /// The call ends. Every unfinished source is reported with its tokens so far and [`Finish::Stopped`]. A source that
    /// was not encoded has no hypotheses.
    All,
}

/// The event callback, with its return value converted.
pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>) -> ControlFlow<Stop>;

/// A finished source.
#[derive(Clone, Copy)]
pub struct Generated<'g> {
    /// Index of the source, from 0.
    pub source: usize,
    /// Why it ended.
    pub finish: Finish,
    pub(super) search: &'g Search<'g>,
    /// Slot of the search; invalid if the source was not encoded.
    pub(super) slot: u32,
}

impl<'g> Generated<'g> {
    /// The hypotheses, best first; samples in the order of their numbers. Empty for a source that was not encoded
    /// before [`Stop::All`].
    pub fn hypotheses(&self) -> impl ExactSizeIterator<Item = Hypothesis<'g>> + use<'g> {
        self.search.hypotheses(self.slot)
    }
}

impl fmt::Debug for Generated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated")
            .field("source", &self.source)
            .field("finish", &self.finish)
            .field("hypotheses", &self.hypotheses().len())
            .finish_non_exhaustive()
    }
}

/// Statistics of a call of [`Session::generate`](crate::Session::generate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// Number of decoder steps.
    pub steps: usize,
    /// Rows of all steps: the tokens fed, without prefixes (which are prefilled) and without drafts.
    pub rows: usize,
    /// Number of draft tokens fed.
    pub drafted: usize,
    /// Number of accepted draft tokens: each saves a row of a later step. An accepted end token is not counted.
    pub accepted: usize,
    /// Number of sources that were not finished at [`Stop::All`].
    pub cancelled: usize,
}
