//! A session with a probe, and alignments that are read with one.

use super::encode::Inputs;
use super::error::SessionError;
use super::event::{DecodeStats, Event, Stop};
use super::generate::{DecodeHooks, Source};
use super::handles::{HypothesisId, SourceId};
use super::prefill::OnLogits;
use super::session::Session;
use super::step::StepRow;
use super::verify::{TokenSelector, Verified};
use crate::features::Features;
use crate::model::IntoControlFlow;
use crate::search::{Hooks, SearchOptions};
use crate::trace::{Block, Probe, Stage, TraceObserver, View};

/// A session with a [`Probe`]: it has the same calls and the same bits, and the probe receives every intermediate
/// tensor. See [`Session::traced`].
pub struct TracedSession<'w, 'a> {
    session: &'w mut Session<'a>,
    observer: TraceObserver<'w>,
}

impl<'a> Session<'a> {
    /// Attaches `probe` to the session. `scratch` has at least [`crate::Plan::trace_floats`] floats, with any content.
    /// Does not allocate.
    ///
    /// # Errors
    /// The scratch is [too short](SessionError::Scratch).
    ///
    /// ```
    /// use simdformer::trace::{Probe, Stage, View};
    /// use simdformer::{Limits, Model, Session};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// /// The Euclidean norm of each token's vector after each block.
    /// struct Norms(Vec<f32>);
    ///
    /// impl Probe for Norms {
    ///     fn wants(&self, stage: Stage) -> bool {
    ///         stage == Stage::Residual
    ///     }
    ///
    ///     fn look(&mut self, view: &View<'_>) {
    ///         for row in view.iter() {
    ///             self.0.push(row.iter().map(|x| x * x).sum::<f32>().sqrt());
    ///         }
    ///     }
    /// }
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut scratch = vec![0.0; session.plan().trace_floats()];
    /// let mut norms = Norms(Vec::new());
    /// session.traced(&mut norms, &mut scratch)?.encoder_output(&[&[5, 6, 0]])?;
    /// // Two blocks per layer, three tokens.
    /// assert_eq!(norms.0.len(), model.config().encoder.layers * 2 * 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn traced<'w>(
        &'w mut self,
        probe: &'w mut dyn Probe,
        scratch: &'w mut [f32],
    ) -> Result<TracedSession<'w, 'a>, SessionError> {
        let (expected, found) = (self.plan().trace_floats(), scratch.len());
        if found < expected {
            return Err(SessionError::Scratch { expected, found });
        }
        Ok(TracedSession { session: self, observer: TraceObserver { probe, scratch } })
    }

    /// Writes the cross-attention weights of `layer`, averaged over `heads`, to the start of `out`:
    /// `[target.len(), source tokens]`, row-major. Layers and heads count from 0; a head that is listed twice counts
    /// twice. The weights are those of [`Stage::Weights`]; the sum of each row is 1 except for rounding.
    ///
    /// `target` is the input of the decoder, with the start token first: row `i` belongs to the prediction of the token
    /// after `target[i]`. To align a translation, encode its source again after [`Session::generate`] and feed the
    /// start token and the best hypothesis without its last token. This is one teacher-forced pass. A search does not
    /// compute the matrix of weights.
    ///
    /// Uses a free row slot of `sentence` and releases it; `scratch` is that of [`Session::traced`]. Does not allocate.
    /// Returns the number of source tokens.
    ///
    /// # Errors
    /// As [`Session::start`] and [`Session::prefill`]; a [layer](SessionError::Layer) or
    /// [head](SessionError::Head) that the decoder does not have, [no heads](SessionError::NoHeads);
    /// [`scratch`](SessionError::Scratch) or [`out`](SessionError::Alignment) is too short.
    ///
    /// ```
    /// use simdformer::search::Hooks;
    /// use simdformer::{Event, Limits, Model, SourceId, Session, Source};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(1, 16, 48))?;
    /// let (source, options) = ([6, 11, 0], session.search_options());
    /// let mut target = vec![options.start];
    /// session.generate(&[Source::new(&source)], &options, &mut Hooks::default(), &mut |event| {
    ///     if let Event::Done(done) = event {
    ///         target.extend(done.hypotheses().next().expect("a hypothesis").tokens);
    ///     }
    /// })?;
    /// target.pop();
    ///
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&source], &mut sentence)?;
    /// let mut scratch = vec![0.0; session.plan().trace_floats()];
    /// let mut weights = vec![0.0; target.len() * source.len()];
    /// let last = model.config().decoder.expect("a decoder").layers - 1;
    /// session.align(sentence[0], &target, (last, &[0, 1, 2, 3]), &mut scratch, &mut weights)?;
    /// for row in weights.chunks(source.len()) {
    ///     assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn align(
        &mut self,
        sentence: SourceId,
        target: &[u32],
        (layer, heads): (usize, &[usize]),
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<usize, SessionError> {
        let stack = self.model().config().decoder.ok_or(SessionError::NoDecoder)?;
        if layer >= stack.layers {
            return Err(SessionError::Layer { layers: stack.layers, found: layer });
        }
        if heads.is_empty() {
            return Err(SessionError::NoHeads);
        }
        if let Some(&found) = heads.iter().find(|&&head| head >= stack.heads) {
            return Err(SessionError::Head { heads: stack.heads, found });
        }
        let row = self.start(sentence)?;
        let result = self.align_row(row, target, (layer, heads), scratch, out);
        self.release(row)?;
        result
    }

    fn align_row(
        &mut self,
        row: HypothesisId,
        target: &[u32],
        (layer, heads): (usize, &[usize]),
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<usize, SessionError> {
        let sentence = row.slot() as usize / self.plan().limits().beams;
        let keys = self.words(&self.plan.sentence_len)[sentence] as usize;
        let (expected, found) = (target.len().saturating_mul(keys), out.len());
        let out = out.get_mut(..expected).ok_or(SessionError::Alignment { expected, found })?;
        out.fill(0.0);
        let mut probe = Mean { layer, heads, keys, out };
        self.traced(&mut probe, scratch)?.prefill(row, target, None)?;
        Ok(keys)
    }
}

/// Sums the cross-attention weights of the chosen heads.
struct Mean<'m> {
    layer: usize,
    heads: &'m [usize],
    keys: usize,
    out: &'m mut [f32],
}

impl Probe for Mean<'_> {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Weights
    }

    fn look(&mut self, view: &View<'_>) {
        let place = view.place;
        if place.block != Some(Block::Cross) || place.layer != Some(self.layer) {
            return;
        }
        let times = self.heads.iter().filter(|&&head| Some(head) == place.head).count();
        let share = times as f32 / self.heads.len() as f32;
        let out = self.out.chunks_mut(self.keys.max(1)).skip(view.position);
        for (out, row) in out.zip(view.iter()) {
            for (out, weight) in out.iter_mut().zip(row) {
                *out += share * weight;
            }
        }
    }
}

impl TracedSession<'_, '_> {
    /// As [`Session::generate`]. All logits are computed and passed to the probe, also if the search needs only the
    /// best token; the tokens are the same.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn generate<A: IntoControlFlow<Stop>>(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        on_event: &mut dyn FnMut(Event<'_>) -> A,
    ) -> Result<DecodeStats, SessionError> {
        let mut on_event = |event: Event<'_>| on_event(event).answer();
        let decode_hooks =
            DecodeHooks { observer: &mut self.observer, needs_logits: true, drafter: None };
        self.session.generate_with(sources, options, hooks, &mut on_event, decode_hooks)
    }

    /// As [`Session::start`].
    ///
    /// # Errors
    /// As [`Session::start`].
    pub fn start(&mut self, sentence: SourceId) -> Result<HypothesisId, SessionError> {
        self.session.start(sentence)
    }

    /// As [`Session::fork`].
    ///
    /// # Errors
    /// As [`Session::fork`].
    pub fn fork(&mut self, row: HypothesisId) -> Result<HypothesisId, SessionError> {
        self.session.fork(row)
    }

    /// As [`Session::release`].
    ///
    /// # Errors
    /// As [`Session::release`].
    pub fn release(&mut self, row: HypothesisId) -> Result<(), SessionError> {
        self.session.release(row)
    }

    /// As [`Session::release_sentence`].
    ///
    /// # Errors
    /// As [`Session::release_sentence`].
    pub fn release_sentence(&mut self, sentence: SourceId) -> Result<(), SessionError> {
        self.session.release_sentence(sentence)
    }

    /// As [`Session::encode`].
    ///
    /// # Errors
    /// As [`Session::encode`].
    pub fn encode(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [SourceId],
    ) -> Result<(), SessionError> {
        self.session.encode_with(Inputs::Tokens(sources), sentences, &mut self.observer)
    }

    /// As [`Session::encode_features`].
    ///
    /// # Errors
    /// As [`Session::encode_features`].
    pub fn encode_features(
        &mut self,
        sources: &[Features<'_>],
        sentences: &mut [SourceId],
    ) -> Result<(), SessionError> {
        self.session.encode_with(Inputs::Features(sources), sentences, &mut self.observer)
    }

    /// As [`Session::encoder_output`].
    ///
    /// # Errors
    /// As [`Session::encoder_output`].
    pub fn encoder_output(&mut self, sources: &[&[u32]]) -> Result<&[f32], SessionError> {
        self.session.encoder_output_with(Inputs::Tokens(sources), &[], &mut self.observer)
    }

    /// As [`Session::encoder_output_of_features`].
    ///
    /// # Errors
    /// As [`Session::encoder_output_of_features`].
    pub fn encoder_output_of_features(
        &mut self,
        sources: &[Features<'_>],
    ) -> Result<&[f32], SessionError> {
        self.session.encoder_output_with(Inputs::Features(sources), &[], &mut self.observer)
    }

    /// As [`Session::step`].
    ///
    /// # Errors
    /// As [`Session::step`].
    pub fn step(&mut self, rows: &[StepRow]) -> Result<&mut [f32], SessionError> {
        self.session.step_with(rows, &mut self.observer)
    }

    /// As [`Session::verify`]. The probe receives the token and its draft as one pass, with one row for each. The rows
    /// up to the last accepted token are those of [steps](TracedSession::step). The rows after it belong to rejected
    /// tokens. The probe receives nothing if the request is rejected.
    ///
    /// # Errors
    /// As [`Session::verify`].
    pub fn verify(
        &mut self,
        row: StepRow,
        draft: &[u32],
        choose: TokenSelector<'_>,
    ) -> Result<Verified, SessionError> {
        self.session.verify_with(row, draft, choose, &mut self.observer)
    }

    /// As [`Session::rewind`].
    ///
    /// # Errors
    /// As [`Session::rewind`].
    pub fn rewind(&mut self, row: HypothesisId, len: usize) -> Result<(), SessionError> {
        self.session.rewind(row, len)
    }

    /// As [`Session::prefill`]. The probe receives logits and probabilities if `each` is given.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn prefill(
        &mut self,
        row: HypothesisId,
        tokens: &[u32],
        each: Option<OnLogits<'_>>,
    ) -> Result<(), SessionError> {
        self.session.prefill_with(row, tokens, each, &mut self.observer)
    }
}
