//! A session with a probe attached, and the alignments read through one.

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
use crate::trace::{Block, Probe, Stage, View, Watch};

/// A session under the eyes of a [`Probe`]: the same calls, the same bits, and every intermediate is
/// shown. See [`Session::traced`].
pub struct TracedSession<'w, 'a> {
    session: &'w mut Session<'a>,
    watch: Watch<'w>,
}

impl<'a> Session<'a> {
    /// Lends `probe` to the session, with a scratch of at least [`crate::Plan::trace_floats`] floats,
    /// whatever they hold. Nothing is allocated.
    ///
    /// # Errors
    /// The scratch is [too short](SessionError::Scratch).
    ///
    /// ```
    /// use simdformer::trace::{Probe, Stage, View};
    /// use simdformer::{Limits, Model, Session};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// /// The length of each token's vector after each block.
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
    /// // Two blocks a layer, three tokens.
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
        Ok(TracedSession { session: self, watch: Watch { probe, scratch } })
    }

    /// What each target token looks at in the source: the weights of cross-attention in `layer`, mean
    /// over `heads`, to the first numbers of `out`, `[target.len(), source tokens]`, row-major. Layers and
    /// heads count from 0; a head that comes twice weighs twice. The weights are those of
    /// [`Stage::Weights`], each row of sum 1 but for rounding.
    ///
    /// `target` is what the decoder reads, its start token first: row `i` belongs to the prediction of
    /// the token after `target[i]`. To align a translation, encode its source again after
    /// [`Session::generate`] and feed the start token and the winning hypothesis without its last
    /// token. That is one teacher-forced pass; the search itself never forms a matrix of weights.
    ///
    /// Takes a free row slot of `sentence` and gives it back; `scratch` is that of
    /// [`Session::traced`]. Allocates nothing. Returns the number of source tokens.
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

/// Adds up the cross-attention weights of chosen heads.
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
    /// As [`Session::generate`]. All logits are computed and shown, also where a search needs only the
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
        let looks = DecodeHooks { tap: &mut self.watch, wants_logits: true, drafter: None };
        self.session.generate_with(sources, options, hooks, &mut on_event, looks)
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
        self.session.encode_with(Inputs::Tokens(sources), sentences, &mut self.watch)
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
        self.session.encode_with(Inputs::Features(sources), sentences, &mut self.watch)
    }

    /// As [`Session::encoder_output`].
    ///
    /// # Errors
    /// As [`Session::encoder_output`].
    pub fn encoder_output(&mut self, sources: &[&[u32]]) -> Result<&[f32], SessionError> {
        self.session.memory_with(Inputs::Tokens(sources), &[], &mut self.watch)
    }

    /// As [`Session::encoder_output_of_features`].
    ///
    /// # Errors
    /// As [`Session::encoder_output_of_features`].
    pub fn encoder_output_of_features(
        &mut self,
        sources: &[Features<'_>],
    ) -> Result<&[f32], SessionError> {
        self.session.memory_with(Inputs::Features(sources), &[], &mut self.watch)
    }

    /// As [`Session::step`].
    ///
    /// # Errors
    /// As [`Session::step`].
    pub fn step(&mut self, rows: &[StepRow]) -> Result<&mut [f32], SessionError> {
        self.session.step_with(rows, &mut self.watch)
    }

    /// As [`Session::verify`]. The token and its draft are shown as one pass, with a row for each of them: the
    /// rows up to the last that is accepted are those that [steps](TracedSession::step) would show, and those after
    /// it are what the wrong tokens would have come to. Nothing is shown of a draft that is refused.
    ///
    /// # Errors
    /// As [`Session::verify`].
    pub fn verify(
        &mut self,
        row: StepRow,
        draft: &[u32],
        choose: TokenSelector<'_>,
    ) -> Result<Verified, SessionError> {
        self.session.verify_with(row, draft, choose, &mut self.watch)
    }

    /// As [`Session::rewind`].
    ///
    /// # Errors
    /// As [`Session::rewind`].
    pub fn rewind(&mut self, row: HypothesisId, len: usize) -> Result<(), SessionError> {
        self.session.rewind(row, len)
    }

    /// As [`Session::prefill`]. Logits and probabilities are shown if `each` is given.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn prefill(
        &mut self,
        row: HypothesisId,
        tokens: &[u32],
        each: Option<OnLogits<'_>>,
    ) -> Result<(), SessionError> {
        self.session.prefill_with(row, tokens, each, &mut self.watch)
    }
}
