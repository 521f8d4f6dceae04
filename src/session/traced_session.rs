//! Probes: a session on the same buffer that passes its intermediate tensors on, and alignments, which read one.

use super::session::Session;
use crate::error::{Error, ErrorValue};
use crate::kv::{HandleGenerations, HypothesisId, SourceId};
use crate::memory::Buffer;
use crate::ref_or_arc::RefOrArc;
use crate::search::SlotMemory;
use crate::trace::{Block, Place, Probe, Stage, TraceObserver, View};
use std::sync::Mutex;

impl Session<'_> {
    /// This session with a `probe`: a session on the same buffer, whose calls give the same bits and pass every
    /// intermediate tensor to the probe. Sentences and hypotheses of one are those of the other. The probe gets logits
    /// wherever tokens are chosen, also where the choice needs only the best token; of a draft it gets all rows, those
    /// of rejected tokens included.
    ///
    /// `scratch` has at least [`crate::Plan::trace_floats`] floats, with any content. Does not allocate. A session
    /// without a probe has no cost: the stacks are compiled twice, and one version has no calls of a probe.
    ///
    /// # Errors
    /// The scratch is [too short](Error::InvalidInput).
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
    ) -> Result<Session<'w>, Error> {
        let (expected, found) = (self.plan().trace_floats(), scratch.len());
        if found < expected {
            let expected = ErrorValue::new(&"{} floats (`Plan::trace_floats`)", [expected, 0]);
            return Err(Error::invalid_input("scratch", expected, found));
        }
        Ok(Session {
            model: RefOrArc::Borrowed(&self.model),
            plan: self.plan.clone(),
            buffer: Buffer::Borrowed(self.buffer.floats_mut()),
            decode_loop: Buffer::Borrowed(self.decode_loop.floats_mut()),
            slots: SlotMemory::Borrowed(self.slots.vec_mut()),
            threads: self.threads.clone(),
            cancel: self.cancel.clone(),
            pruning_policy: self.pruning_policy,
            // Numbers are unique in a process, and the buffer holds those of the handles.
            generations: HandleGenerations::default(),
            probe: Some(Mutex::new(TraceObserver { probe, scratch })),
        })
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
    /// Uses a free hypothesis slot of `sentence` and releases it; `scratch` is that of [`Session::traced`]. Does not allocate.
    /// Returns the number of source tokens.
    ///
    /// # Errors
    /// As [`Session::start`] and [`Session::prefill`]; a [layer](Error::BeyondLimit) or
    /// [head](Error::BeyondLimit) that the decoder does not have, [no heads](Error::InvalidInput);
    /// [`scratch`](Error::InvalidInput) or [`out`](Error::InvalidInput) is too short.
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
    ) -> Result<usize, Error> {
        let stack = self.model().config().decoder.ok_or(Error::NO_DECODER)?;
        if layer >= stack.layers {
            let below =
                ErrorValue::new(&"less than {}, the layers of the decoder", [stack.layers, 0]);
            return Err(Error::beyond_limit("layer", below, layer));
        }
        if heads.is_empty() {
            return Err(Error::invalid_input(
                "heads",
                "at least one head for an alignment",
                "none",
            ));
        }
        if let Some(&found) = heads.iter().find(|&&head| head >= stack.heads) {
            let below =
                ErrorValue::new(&"less than {}, the heads of the decoder", [stack.heads, 0]);
            return Err(Error::beyond_limit("head", below, found));
        }
        let hypothesis = self.start(sentence)?;
        let result = self.align_hypothesis(hypothesis, target, (layer, heads), scratch, out);
        self.release(hypothesis)?;
        result
    }

    fn align_hypothesis(
        &mut self,
        hypothesis: HypothesisId,
        target: &[u32],
        (layer, heads): (usize, &[usize]),
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<usize, Error> {
        let sentence = hypothesis.slot() as usize / self.plan.limits.beams;
        let keys = self.source_lens()[sentence] as usize;
        let (expected, found) = (target.len().saturating_mul(keys), out.len());
        let out = out.get_mut(..expected).ok_or_else(|| {
            let expected = ErrorValue::new(&"{} floats for the alignment", [expected, 0]);
            Error::invalid_input("out", expected, found)
        })?;
        out.fill(0.0);
        let mut probe = Mean { layer, heads, keys, out };
        self.traced(&mut probe, scratch)?.prefill(hypothesis, target, None)?;
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

    fn wants_at(&self, _: Stage, place: Place) -> bool {
        let head = place.head.is_some_and(|head| self.heads.contains(&head));
        place.block == Some(Block::Cross) && place.layer == Some(self.layer) && head
    }

    fn look(&mut self, view: &View<'_>) {
        let place = view.place;
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
