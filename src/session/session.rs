//! [`Session`]: a model and its planned buffer.

use super::memory_plan::{Limits, Plan};
use super::pruning_policy::PruningPolicy;
use super::threads::Threads;
use crate::cancel::Cancel;
use crate::config::Side;
use crate::error::{Error, ErrorValue};
use crate::kv::HandleGenerations;
use crate::memory::Buffer;
use crate::model::Model;
use crate::ref_or_arc::RefOrArc;
use crate::search::SlotMemory;
use crate::trace::TraceObserver;
use core::fmt;
use simdformer_kernels::Error as KernelError;
use std::sync::Mutex;

/// A model and the planned buffer in which it runs.
///
/// # Whole sentences
///
/// [`Session::generate`] is the complete decoding loop: it takes sources and reports events.
/// [`Session::generate_drafted`] is the same with speculative decoding. [`Session::search_options`] gives the search
/// options of the checkpoint. [`Session::check`] tests in advance whether a source is accepted.
///
/// # Step by step
///
/// An engine with its own scheduler calls the session directly. A session has *sentence slots* and *hypothesis slots*.
/// A sentence slot holds the cross-attention keys and values of one source. A hypothesis slot holds one hypothesis
/// about a sentence. The calls are:
///
/// - [`encode`](Session::encode): encodes sources;
/// - [`start`](Session::start): starts a hypothesis about a source;
/// - [`step`](Session::step): feeds one token to each of any set of hypotheses
///   ([`step_argmax`](Session::step_argmax) returns best tokens instead of logits);
/// - [`prefill`](Session::prefill): feeds many tokens to one hypothesis;
/// - [`verify`](Session::verify): feeds a draft to one hypothesis and checks it;
/// - [`fork`](Session::fork), [`rewind`](Session::rewind), [`release`](Session::release): copy, shorten and end a
///   hypothesis;
/// - [`release_sentence`](Session::release_sentence): ends a sentence and its hypotheses.
///
/// Sentences and hypotheses can be added and removed between any two steps. The logits of a hypothesis depend only on
/// its source and its tokens. They do not depend on its slots, on the rest of the batch, on whether its prefix was
/// fed by steps or by a prefill, or on threads.
///
/// # Numerical error
///
/// Results are f32. Each kernel states its error bound in [`kernels`](crate::kernels). No bound holds for any number
/// of layers and any weights. In every model of the tests, encoder outputs and logits differ from the f64 reference
/// by at most 2e-5 of the largest magnitude.
///
/// # Continuous batching
///
/// This is the loop of `generate`, with sentences admitted at any time. A [`Search`](crate::search::Search) states
/// which rows to feed, and the session computes their logits. Between two steps, the loop maps the rows of the last
/// step to the rows of the next step. The example translates a queue of four sentences, two at a time.
///
/// ```
/// use simdformer::search::{Hooks, Request, Search, words};
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
/// // The search has the same number of sentence slots. Its last token is chosen and never fed.
/// let search_limits = session.plan().search_limits();
/// let mut memory = vec![0; words(&search_limits)?];
/// let mut search = Search::new(&options, &search_limits, &mut memory)?;
///
/// let mut queue: Vec<&[u32]> = vec![&[8, 0], &[9, 14, 32, 0], &[6, 11, 0], &[6, 11, 0]];
/// // For each slot of the search: the sentence of the session and its first hypothesis.
/// let mut active: Vec<Option<(SourceId, HypothesisId)>> = vec![None; limits.sentences];
/// // The hypotheses of the last step, in the order of that step, and the rows of this step.
/// let (mut before, mut now): (Vec<HypothesisId>, Vec<StepRow>) = (Vec::new(), Vec::new());
/// let mut translations = Vec::new();
/// loop {
///     // 1. Waiting sentences take the free slots.
///     while session.free_sentences() > 0
///         && let Some(source) = queue.pop()
///     {
///         let mut sentence = [SourceId::default()];
///         session.encode(&[source], &mut sentence)?;
///         let slot = search.admit(&Request::default())?;
///         active[slot as usize] = Some((sentence[0], session.start(sentence[0])?));
///     }
///     if search.rows().is_empty() {
///         break;
///     }
///     // 2. The first child of a row continues in the slot of its parent; each other child forks the parent.
///     now.clear();
///     for (i, input) in search.rows().iter().enumerate() {
///         let parents = &search.rows().parents[..i];
///         let hypothesis = match input.parent {
///             None => active[input.sentence as usize].expect("an active sentence").1,
///             Some(parent) if parents.contains(&parent) => session.fork(before[parent as usize])?,
///             Some(parent) => before[parent as usize],
///         };
///         now.push(StepRow::new(hypothesis, input.token));
///     }
///     // 3. One step of the decoder, then one step of the search.
///     let logits = session.step(&now)?;
///     search.advance(logits, &mut Hooks::default(), None)?;
///     // 4. Release hypotheses without a child before others are forked.
///     before = now.iter().map(|step| step.hypothesis).collect();
///     let parents = search.rows().parents;
///     for (i, &hypothesis) in before.iter().enumerate() {
///         if !parents.contains(&(i as u32)) {
///             session.release(hypothesis)?;
///         }
///     }
///     // 5. Release finished sentences.
///     for (slot, entry) in active.iter_mut().enumerate() {
///         if let Some((sentence, _)) = *entry
///             && search.finish(slot as u32).is_some()
///         {
///             let best = search.hypotheses(slot as u32).next().map(|best| best.tokens.to_vec());
///             translations.extend(best);
///             search.release(slot as u32)?;
///             session.release_sentence(sentence)?;
///             *entry = None;
///         }
///     }
/// }
/// assert_eq!(translations.len(), 4);
/// # // The result of `generate`.
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
    pub(super) model: RefOrArc<'a, Model>,
    pub(crate) plan: Plan,
    pub(super) buffer: Buffer<'a>,
    /// The buffer of the decoding loop; see `generate/decode_loop.rs`.
    pub(crate) decode_loop: Buffer<'a>,
    /// Memory for the options of each slot of the decoding loop; empty.
    pub(crate) slots: SlotMemory<'a>,
    pub(super) threads: Threads<'a>,
    pub(super) cancel: Option<Cancel>,
    pub(super) pruning_policy: PruningPolicy,
    pub(super) generations: HandleGenerations,
    /// Only [`Session::traced`] sets it. A probe need not be `Sync`, but a session is; the mutex is never locked.
    pub(super) probe: Option<Mutex<TraceObserver<'a>>>,
}

impl<'a> Session<'a> {
    /// Creates a session with its own buffer of [`Plan::bytes`] bytes. `model` is `&model` or an `Arc` of it. The
    /// session computes on the calling thread until [`Session::set_threads`] changes that.
    ///
    /// # Errors
    /// As [`Plan::new`]; the system [cannot allocate](Error::OutOfMemory) the buffer.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session};
    /// use std::sync::Arc;
    ///
    /// /// Holds the model and a session. Any number of threads can share the weights.
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
    pub fn new(model: impl Into<RefOrArc<'a, Model>>, limits: Limits) -> Result<Self, Error> {
        let model = model.into();
        let plan = Plan::new(&model, limits)?;
        let buffer = Buffer::owned(plan.buffers.len())?;
        let decode_loop = Buffer::owned(plan.decode_loop.len())?;
        Self::build(model, plan, buffer, decode_loop)
    }

    /// Creates a session in the caller's `buffer` of at least [`Plan::floats`] floats, with any content. A buffer that
    /// starts at a multiple of 64 bytes is fastest.
    ///
    /// # Errors
    /// As [`Plan::new`]; the buffer is [too short](Error::InvalidInput).
    ///
    /// ```
    /// use simdformer::{Limits, Model, Plan, Session};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let limits = Limits::new(4, 32, 40);
    /// let mut memory = vec![0.0; Plan::new(&model, limits)?.floats()];
    /// let session = Session::with_buffer(&model, limits, &mut memory)?;
    /// assert_eq!(session.free_sentences(), 4);
    /// // After the session is dropped, the next session can use the buffer.
    /// drop(session);
    /// Session::with_buffer(&model, limits, &mut memory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_buffer(
        model: impl Into<RefOrArc<'a, Model>>,
        limits: Limits,
        buffer: &'a mut [f32],
    ) -> Result<Self, Error> {
        let model = model.into();
        let plan = Plan::new(&model, limits)?;
        let found = buffer.len();
        let Some(buffer) = buffer.get_mut(..plan.floats()) else {
            let expected =
                ErrorValue::new(&"{} floats, which the session takes", [plan.floats(), 0]);
            return Err(Error::invalid_input("buffer", expected, found));
        };
        let (buffer, decode_loop) = buffer.split_at_mut(plan.buffers.len());
        Self::build(model, plan, Buffer::Borrowed(buffer), Buffer::Borrowed(decode_loop))
    }

    fn build(
        model: RefOrArc<'a, Model>,
        plan: Plan,
        buffer: Buffer<'a>,
        decode_loop: Buffer<'a>,
    ) -> Result<Self, Error> {
        let slots = Vec::with_capacity(if plan.decodes { plan.limits.sentences } else { 0 });
        let mut session = Self {
            model,
            plan,
            buffer,
            decode_loop,
            slots: SlotMemory::Owned(slots),
            threads: Threads::Serial,
            cancel: None,
            pruning_policy: PruningPolicy::default(),
            generations: HandleGenerations::default(),
            probe: None,
        };
        session.write_positions()?;
        session.clear();
        Ok(session)
    }

    fn write_positions(&mut self) -> Result<(), KernelError> {
        let (model, plan, floats) = (&*self.model, &self.plan, self.buffer.floats_mut());
        let (limits, ranges) = (plan.limits, &plan.buffers);
        for (side, tokens, table, relative, relative_tables) in [
            (
                Side::Encoder,
                limits.source_tokens,
                &ranges.source_positions,
                &plan.source_relative,
                &ranges.source_relative,
            ),
            (
                Side::Decoder,
                limits.target_tokens,
                &ranges.target_positions,
                &plan.target_relative,
                &ranges.target_relative,
            ),
        ] {
            model.write_positions(side, tokens, table.slice_of_mut(floats))?;
            if let Some((buckets, positions)) = relative.buckets {
                let tables = relative_tables.slice_of_mut(floats);
                model.write_relative(side, buckets, positions, tables)?;
            }
        }
        Ok(())
    }

    /// Uses `threads` for all later calls. The results stay bitwise the same. [`Threads`] has an example.
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        self.threads = threads;
    }

    /// Ends later calls when `cancel` is set: every call that computes returns [`Error::Cancelled`] some
    /// milliseconds after that, and changes nothing, except that [`generate`](Session::generate) and its variants release
    /// all sentences. [`Cancel`] has an example.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = Some(cancel);
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The plan of the session's buffer.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("limits", &self.plan.limits)
            .field("bytes", &self.plan.bytes())
            .field("free_sentences", &self.free_sentences())
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_limit(
    limit: &'static str,
    expected_at_most: usize,
    found: usize,
) -> Result<(), Error> {
    if found > expected_at_most {
        let text = &"at most {}, with which the session was planned";
        let most = ErrorValue::new(text, [expected_at_most, 0]);
        return Err(Error::beyond_limit(limit, most, found));
    }
    Ok(())
}

pub(crate) fn check_tokens(tokens: &[u32], vocabulary: usize) -> Result<(), Error> {
    match tokens.iter().position(|&token| token as usize >= vocabulary) {
        Some(at) => Err(Error::token("token", Some(at), vocabulary, tokens[at])),
        None => Ok(()),
    }
}
