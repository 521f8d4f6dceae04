//! A model and its planned memory.

use super::error::SessionError;
use super::plan::{Limits, Plan};
use super::screening::Screening;
use super::threads::Threads;
use crate::config::Side;
use crate::error::KernelError;
use crate::memory::{Buffer, words, words_mut};
use crate::model::Model;

/// A model at work on planned memory.
///
/// A session is a set of *sentence slots*, each with the keys and values of one source, and of *row
/// slots*, each with one hypothesis about a sentence. An engine with its own scheduler drives it
/// directly:
///
/// ```no_run
/// # use simdformer::{Limits, Model, Session, SessionError, StepRow};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Model::open("path/to/checkpoint")?;
/// let mut session = Session::new(&model, Limits::new(2, 64, 64))?;
/// let mut sentences = [Default::default(); 2];
/// session.encode(&[&[5, 6, 7, 0], &[8, 9, 0]], &mut sentences)?;
/// let row = session.start(sentences[0])?;
/// let logits = session.step(&[StepRow { row, token: 1 }])?;
/// # Ok(()) }
/// ```
///
/// Sentences and hypotheses come and go between any two steps. The logits of a hypothesis depend on
/// its source and its tokens only: not on its slots, on what else is in the batch, on whether its
/// prefix was stepped or filled in, or on threads.
#[derive(Debug)]
pub struct Session<'a> {
    pub(super) model: &'a Model,
    pub(super) plan: Plan,
    pub(super) buffer: Buffer<'a>,
    /// The memory of the decoding loop; see `generate.rs`.
    pub(super) search: Buffer<'a>,
    pub(super) threads: Threads<'a>,
    pub(super) screening: Screening,
    /// The last ticket that was given out.
    pub(super) ticket: u32,
}

impl<'a> Session<'a> {
    /// A session with its own memory of [`Plan::bytes`] bytes.
    ///
    /// # Errors
    /// As [`Plan::new`]; the system does not give the memory.
    pub fn new(model: &'a Model, limits: Limits) -> Result<Self, SessionError> {
        let plan = Plan::new(model, limits)?;
        let search = Buffer::owned(plan.search_floats)?;
        let buffer = Buffer::owned(plan.floats - plan.search_floats)?;
        Self::build(model, plan, buffer, search)
    }

    /// A session on the caller's memory, of at least [`Plan::floats`] floats, whatever they hold.
    /// It is fastest when it starts on a multiple of 64 bytes.
    ///
    /// # Errors
    /// As [`Plan::new`]; the buffer is too short.
    pub fn with_buffer(
        model: &'a Model,
        limits: Limits,
        buffer: &'a mut [f32],
    ) -> Result<Self, SessionError> {
        let plan = Plan::new(model, limits)?;
        let found = buffer.len();
        let Some(buffer) = buffer.get_mut(..plan.floats) else {
            return Err(SessionError::Buffer { expected: plan.floats, found });
        };
        let (buffer, search) = buffer.split_at_mut(plan.floats - plan.search_floats);
        Self::build(model, plan, Buffer::Borrowed(buffer), Buffer::Borrowed(search))
    }

    fn build(
        model: &'a Model,
        plan: Plan,
        buffer: Buffer<'a>,
        search: Buffer<'a>,
    ) -> Result<Self, SessionError> {
        let (threads, screening) = (Threads::Serial, Screening::default());
        let mut session = Self { model, plan, buffer, search, threads, screening, ticket: 0 };
        session.write_positions()?;
        session.clear();
        Ok(session)
    }

    fn write_positions(&mut self) -> Result<(), KernelError> {
        let (model, limits) = (self.model, self.plan.limits);
        let floats = self.buffer.floats_mut();
        for (side, tokens, range) in [
            (Side::Encoder, limits.source_tokens, self.plan.source_positions.clone()),
            (Side::Decoder, limits.target_tokens, self.plan.target_positions.clone()),
        ] {
            model.write_positions(side, tokens, &mut floats[range])?;
        }
        Ok(())
    }

    /// Forgets every sentence and hypothesis.
    pub fn clear(&mut self) {
        let Plan { row_live, sentence_len, .. } = self.plan.clone();
        let floats = self.buffer.floats_mut();
        words_mut(&mut floats[row_live]).fill(0);
        words_mut(&mut floats[sentence_len]).fill(0);
    }

    /// Uses `threads` from now on. The results do not change by a bit.
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        self.threads = threads;
    }

    /// The model.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// The planned memory.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn words(&self, range: &core::ops::Range<usize>) -> &[u32] {
        words(&self.buffer.floats()[range.clone()])
    }

    pub(super) fn words_mut(&mut self, range: &core::ops::Range<usize>) -> &mut [u32] {
        words_mut(&mut self.buffer.floats_mut()[range.clone()])
    }
}

pub(super) fn beyond(
    limit: &'static str,
    expected_at_most: usize,
    found: usize,
) -> Result<(), SessionError> {
    if found > expected_at_most {
        return Err(SessionError::BeyondPlan { limit, expected_at_most, found });
    }
    Ok(())
}

pub(super) fn check_tokens(tokens: &[u32], vocabulary: usize) -> Result<(), SessionError> {
    match tokens.iter().position(|&token| token as usize >= vocabulary) {
        Some(index) => Err(SessionError::Token { index, vocabulary, found: tokens[index] }),
        None => Ok(()),
    }
}
