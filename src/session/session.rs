//! A model and its planned memory.

use super::error::SessionError;
use super::generations::HandleGenerations;
use super::model_ref::ModelRef;
use super::plan::{Limits, Plan};
use super::pruning_policy::PruningPolicy;
use super::threads::Threads;
use crate::config::Side;
use crate::error::KernelError;
use crate::memory::{Buffer, words, words_mut};
use crate::model::Model;

/// A model at work on planned memory.
///
/// # Sentences in, hypotheses out
///
/// [`Session::generate`] is the whole loop: sources in, events out; [`Session::generate_drafted`] the same
/// with guesses at what comes. [`Session::search_options`] is what
/// the checkpoint asks for, and [`Session::check`] tells beforehand whether a source will be taken.
///
/// # Step by step
///
/// An engine with its own scheduler drives the session directly. A session is a set of *sentence
/// slots*, each with the keys and values of one source, and of *row slots*, each with one hypothesis
/// about a sentence: [`encode`](Session::encode) sources, [`start`](Session::start) hypotheses about
/// them, [`step`](Session::step) any set of hypotheses by one token (or
/// [`step_argmax`](Session::step_argmax), or [`prefill`](Session::prefill) one by many, or
/// [`verify`](Session::verify) a guess at many), [`fork`](Session::fork), [`rewind`](Session::rewind) and
/// [`release`](Session::release) them, and
/// [`release_sentence`](Session::release_sentence) when it is done. Sentences and hypotheses come and go
/// between any two steps. The logits of a hypothesis depend on its source and its tokens only: not on
/// its slots, on what else is in the batch, on whether its prefix was stepped or filled in, or on
/// threads.
///
/// # Numbers
///
/// All are f32. Each kernel states its error bound in [`kernels`](crate::kernels); there is none that
/// would hold for any number of layers and any weights. In every model of the tests, encoder outputs and
/// logits are within 2e-5 of the largest magnitude of what the reference computes in f64.
///
/// # Continuous batching
///
/// What `generate` does, with sentences admitted at any time: a [`Search`](crate::search::Search) says
/// which rows to feed, the session computes their logits, and in between the rows of the last step find
/// their places. This is all of it; here two sentences at a time are translated of a queue of four.
///
/// ```
/// use simdformer::search::{Hooks, Request, Search, SearchLimits, words};
/// use simdformer::{Limits, Model, HypothesisId, SourceId, Session, StepRow};
///
/// let model = Model::open("models/fr-en")?;
/// let limits = Limits { beams: 2, ..Limits::new(2, 16, 40) };
/// let mut session = Session::new(&model, limits)?;
/// let mut options = session.search_options();
/// options.strategy = simdformer::search::Strategy::Beam(simdformer::search::BeamOptions {
///     beams: 2,
///     ..Default::default()
/// });
///
/// // The search has slots for as many sentences; its last token is chosen and never fed.
/// let search_limits = SearchLimits {
///     sentences: limits.sentences,
///     sequences: limits.beams,
///     max_target_length: limits.target_tokens + 1,
///     vocabulary: model.config().target_vocab,
///     end_tokens: limits.end_tokens,
///     source_tokens: 0,
/// };
/// let mut memory = vec![0; words(&search_limits)?];
/// let mut search = Search::new(&options, &search_limits, &mut memory)?;
///
/// let mut queue: Vec<&[u32]> = vec![&[8, 0], &[9, 14, 32, 0], &[6, 11, 0], &[6, 11, 0]];
/// // By slot of the search: the session's sentence, and its first row.
/// let mut tenants: Vec<Option<(SourceId, HypothesisId)>> = vec![None; limits.sentences];
/// // The rows of the last step, in its order, and of this one.
/// let (mut before, mut now): (Vec<HypothesisId>, Vec<StepRow>) = (Vec::new(), Vec::new());
/// let mut translations = Vec::new();
/// loop {
///     // 1. Sentences that wait take the slots that are free.
///     while session.free_sentences() > 0
///         && let Some(source) = queue.pop()
///     {
///         let mut sentence = [SourceId::default()];
///         session.encode(&[source], &mut sentence)?;
///         let slot = search.admit(&Request::default())?;
///         tenants[slot as usize] = Some((sentence[0], session.start(sentence[0])?));
///     }
///     if search.rows().is_empty() {
///         break;
///     }
///     // 2. The first child of a row goes on in its place, others fork it.
///     now.clear();
///     for (i, input) in search.rows().iter().enumerate() {
///         let parents = &search.rows().parents[..i];
///         let row = match input.parent {
///             None => tenants[input.sentence as usize].expect("a tenant").1,
///             Some(parent) if parents.contains(&parent) => session.fork(before[parent as usize])?,
///             Some(parent) => before[parent as usize],
///         };
///         now.push(StepRow { row, token: input.token });
///     }
///     // 3. One step of the decoder, one of the search.
///     let logits = session.step(&now)?;
///     search.advance(logits, &mut Hooks::default(), None)?;
///     // 4. Rows that nobody continues leave, before others are forked.
///     before = now.iter().map(|step| step.row).collect();
///     let parents = search.rows().parents;
///     for (i, &row) in before.iter().enumerate() {
///         if !parents.contains(&(i as u32)) {
///             session.release(row)?;
///         }
///     }
///     // 5. Sentences that are done make room.
///     for (slot, tenant) in tenants.iter_mut().enumerate() {
///         if let Some((sentence, _)) = *tenant
///             && search.finish(slot as u32).is_some()
///         {
///             let best = search.hypotheses(slot as u32).next().map(|best| best.tokens.to_vec());
///             translations.extend(best);
///             search.release(slot as u32)?;
///             session.release_sentence(sentence)?;
///             *tenant = None;
///         }
///     }
/// }
/// assert_eq!(translations.len(), 4);
/// # // As `generate` does it.
/// # let sources: [simdformer::Source; 4] =
/// #     [&[8, 0][..], &[9, 14, 32, 0], &[6, 11, 0], &[6, 11, 0]].map(simdformer::Source::new);
/// # let mut expected = Vec::new();
/// # session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
/// #     if let simdformer::Event::Done(done) = event {
/// #         expected.push(done.hypotheses().next().expect("a hypothesis").tokens.to_vec());
/// #     }
/// # })?;
/// # expected.sort();
/// # translations.sort();
/// # assert_eq!(translations, expected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session<'a> {
    pub(super) model: ModelRef<'a>,
    pub(super) plan: Plan,
    pub(super) buffer: Buffer<'a>,
    /// The memory of the decoding loop; see `generate.rs`.
    pub(super) search: Buffer<'a>,
    pub(super) threads: Threads<'a>,
    pub(super) screening: PruningPolicy,
    pub(super) tickets: HandleGenerations,
}

impl<'a> Session<'a> {
    /// A session with its own memory of [`Plan::bytes`] bytes, of `&model` or of an `Arc` of it. It
    /// computes on the calling thread until [`Session::set_threads`] says otherwise.
    ///
    /// # Errors
    /// As [`Plan::new`]; the system does [not give](SessionError::OutOfMemory) the memory.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session};
    /// use std::sync::Arc;
    ///
    /// /// Holds both; as many as there are threads can share the weights.
    /// struct Translator {
    ///     model: Arc<Model>,
    ///     session: Session<'static>,
    /// }
    ///
    /// let model = Arc::new(Model::open("models/fr-en")?);
    /// let translator = Translator { session: Session::new(&model, Limits::new(4, 32, 40))?, model };
    /// let thread = std::thread::spawn(move || translator.session.plan().bytes());
    /// assert!(thread.join().expect("bytes") > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(model: impl Into<ModelRef<'a>>, limits: Limits) -> Result<Self, SessionError> {
        let model = model.into();
        let plan = Plan::new(&model, limits)?;
        let search = Buffer::owned(plan.search_floats)?;
        let buffer = Buffer::owned(plan.floats - plan.search_floats)?;
        Self::build(model, plan, buffer, search)
    }

    /// A session on the caller's memory, of at least [`Plan::floats`] floats, whatever they hold.
    /// It is fastest when it starts on a multiple of 64 bytes.
    ///
    /// # Errors
    /// As [`Plan::new`]; the buffer is [too short](SessionError::Buffer).
    ///
    /// ```
    /// use simdformer::{Limits, Model, Plan, Session};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let limits = Limits::new(4, 32, 40);
    /// let mut memory = vec![0.0; Plan::new(&model, limits)?.floats()];
    /// let session = Session::with_buffer(&model, limits, &mut memory)?;
    /// assert_eq!(session.free_sentences(), 4);
    /// // When the session has gone, the memory is there for the next.
    /// drop(session);
    /// Session::with_buffer(&model, limits, &mut memory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_buffer(
        model: impl Into<ModelRef<'a>>,
        limits: Limits,
        buffer: &'a mut [f32],
    ) -> Result<Self, SessionError> {
        let model = model.into();
        let plan = Plan::new(&model, limits)?;
        let found = buffer.len();
        let Some(buffer) = buffer.get_mut(..plan.floats) else {
            return Err(SessionError::Buffer { expected: plan.floats, found });
        };
        let (buffer, search) = buffer.split_at_mut(plan.floats - plan.search_floats);
        Self::build(model, plan, Buffer::Borrowed(buffer), Buffer::Borrowed(search))
    }

    fn build(
        model: ModelRef<'a>,
        plan: Plan,
        buffer: Buffer<'a>,
        search: Buffer<'a>,
    ) -> Result<Self, SessionError> {
        let (threads, screening) = (Threads::Serial, PruningPolicy::default());
        let tickets = HandleGenerations::default();
        let mut session = Self { model, plan, buffer, search, threads, screening, tickets };
        session.write_positions()?;
        session.clear();
        Ok(session)
    }

    fn write_positions(&mut self) -> Result<(), KernelError> {
        let (model, limits) = (&*self.model, self.plan.limits);
        let floats = self.buffer.floats_mut();
        for (side, tokens, range) in [
            (Side::Encoder, limits.source_tokens, self.plan.source_positions.clone()),
            (Side::Decoder, limits.target_tokens, self.plan.target_positions.clone()),
        ] {
            model.write_positions(side, tokens, &mut floats[range])?;
        }
        for (side, plan) in [
            (Side::Encoder, &self.plan.source_relative),
            (Side::Decoder, &self.plan.target_relative),
        ] {
            if let Some((buckets, positions)) = plan.buckets {
                let tables = &mut floats[plan.range.clone()];
                model.write_relative(side, buckets, positions, tables)?;
            }
        }
        Ok(())
    }

    /// Uses `threads` from now on. The results do not change by a bit. An example is at [`Threads`].
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        self.threads = threads;
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
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
