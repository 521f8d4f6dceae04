//! Steps of the decoder, and the one path from every call that feeds tokens to the model.
//!
//! [`Session::step`] and its variants check their rows ([`Session::feed`]) and run one pass ([`Session::forward`]). A
//! prefill and the decoding loop call `forward` directly. `forward` writes down the tokens, positions and KV slots of
//! the pass, and [`DecoderPass::compute_output`] computes it.
//!
//! The slots of the keys of each token are first copied from the slot table of its hypothesis. Hypotheses of different
//! lengths can therefore be in any order, and beams read shared keys without copies.

use super::memory_plan::{Limits, SessionBuffers};
use super::pruning_policy::{
    Banned, PruningPolicy, StepOutput, fallback_logits, resolve_undecided,
};
use super::session::{Session, check_limit, check_tokens};
use super::threads::Threads;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::kv::{Caches, HypothesisId, KvSlots};
use crate::model::Model;
use crate::model::blocks::Best;
use crate::model::forward::{LayerObserver, NoObserver};
use crate::model::pass_input::{Past, TargetPass, Tokens, Workspace};
use crate::model::weights::Decoder;
use crate::search::UNDECIDED;
use simdformer_kernels::Parallelism;
use std::sync::{Mutex, PoisonError};

/// One row of a step: a hypothesis, its next input token, and a draft of the tokens after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow<'d> {
    /// The hypothesis.
    pub hypothesis: HypothesisId,
    /// Its next input: an id below the target vocabulary.
    pub token: u32,
    /// The proposed tokens after `token`: ids below the target vocabulary.
    pub draft: &'d [u32],
}

impl StepRow<'_> {
    /// A row without a draft.
    #[must_use]
    pub const fn new(hypothesis: HypothesisId, token: u32) -> Self {
        Self { hypothesis, token, draft: &[] }
    }
}

/// Called with the logits of a pass, by the threads of the pass.
pub(crate) type OnThreads<'o> = &'o mut (dyn FnMut(Parallelism<'_>, &mut [f32]) + Send);

/// What a pass computes after the last layer.
pub(crate) enum Output<'o> {
    /// Nothing. The hidden states are in the buffer `x`.
    Hidden,
    /// All logits, and a call with them.
    Logits(Option<OnThreads<'o>>),
    /// The best token of each row that is not banned, or the logits of the row.
    Argmax(Banned<'o>),
    /// The logits of the first `logits` rows, at least one and not all, and a call with them; [`Self::Argmax`] for the
    /// others.
    Split {
        /// Rows.
        logits: usize,
        /// The call.
        then: OnThreads<'o>,
        /// Of all rows.
        banned: Banned<'o>,
    },
}

/// Where the tokens of a pass find the keys of their hypotheses.
#[derive(Clone, Copy)]
pub(crate) enum Keys {
    /// Each token has its own row of key slots.
    PerToken,
    /// All tokens continue one hypothesis: in the given KV slot, which holds all its earlier tokens, or else with one
    /// row of key slots.
    OneHypothesis(Option<usize>),
}

impl Session<'_> {
    /// `[rows, vocabulary]`, row-major: feeds one token to each of `rows` and returns their logits in the same order,
    /// including the output bias, before any softmax. The caller may modify them until the next call. An empty `rows`
    /// returns no logits. Keys of a source are read fastest if the rows of one sentence are adjacent. Examples are at
    /// [`Session::start`] and [`Session::fork`].
    ///
    /// With drafts the result is `[rows and all tokens of drafts, vocabulary]`: each row is fed its token and its draft, and
    /// the logits after each token follow each other. They are those of the same number of steps, bit for bit. Use this to
    /// verify drafts of many hypotheses: after the call they have been fed their whole drafts, and [`Session::rewind`]
    /// removes the rejected tokens.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session, SourceId, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// // Up to three draft tokens in a step, over both hypotheses.
    /// let limits = Limits { draft_tokens: 3, ..Limits::new(2, 16, 16) };
    /// let mut session = Session::new(&model, limits)?;
    /// let mut sentences = [SourceId::default(); 2];
    /// session.encode(&[&[6, 11, 0], &[9, 14, 32, 0]], &mut sentences)?;
    /// let both = [session.start(sentences[0])?, session.start(sentences[1])?];
    /// let drafts = [
    ///     StepRow { hypothesis: both[0], token: 2317, draft: &[554, 9] },
    ///     StepRow { hypothesis: both[1], token: 2317, draft: &[14] },
    /// ];
    /// let logits = session.step(&drafts)?.to_vec();
    /// let vocabulary = model.config().target_vocab;
    /// assert_eq!(logits.len(), 5 * vocabulary);
    /// // The second hypothesis is rewound to before its draft and then stepped: the logits are the same.
    /// session.rewind(both[1], 1)?;
    /// let step = session.step(&[StepRow::new(both[1], 14)])?;
    /// assert_eq!(step, &logits[4 * vocabulary..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An [unknown](Error::InvalidHandle) or [repeated](Error::InvalidHandle) hypothesis, one that is at the
    /// [planned length](Error::BeyondLimit), an id outside the [vocabulary](Error::Token), more tokens in all drafts than
    /// [planned](Error::BeyondLimit) (`draft_tokens`). An error changes nothing.
    pub fn step(&mut self, rows: &[StepRow<'_>]) -> Result<&mut [f32], Error> {
        Ok(self.feed(rows, Output::Logits(None))?.logits)
    }

    /// `[rows]`: feeds one token to each of `rows` and returns the best next token of each. It is the token with the
    /// largest logit of [`Session::step`] among those for which `banned(i, token)` is false, and the lowest id among
    /// equal logits; `i` is an index into the result, which has an element for each row and for each token of a draft, as
    /// the logits of a step. The result is `u32::MAX` if all tokens are banned. `banned` is called
    /// on the threads that compute ([`crate::Threads`]).
    ///
    /// On CPUs with VNNI (with AVX-512 or AVX2) this takes a quarter to a third of the time of computing logits.
    ///
    /// # Errors
    /// As [`Session::step`].
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let options = model.config().search_options();
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let hypothesis = session.start(sentence[0])?;
    /// let (mut token, mut target) = (options.start, Vec::new());
    /// while !options.eos.contains(&token) && target.len() < 16 {
    /// // Ban the padding token, and the end token in an empty translation.
    ///     let first = target.is_empty();
    ///     let banned = |_, id| id == options.start || first && options.eos.contains(&id);
    ///     token = session.step_argmax(&[StepRow::new(hypothesis, token)], &banned)?[0];
    ///     target.push(token);
    /// }
    /// assert!(target.len() > 1 && options.eos.contains(&token));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step_argmax(
        &mut self,
        rows: &[StepRow<'_>],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
    ) -> Result<&[u32], Error> {
        let vocabulary = self.model.config().target_vocab;
        let output = self.feed(rows, Output::Argmax(banned))?;
        Ok(resolve_undecided(output, vocabulary, banned))
    }

    /// Checks all of `rows` before anything changes, and feeds them in one pass.
    pub(super) fn feed(
        &mut self,
        rows: &[StepRow<'_>],
        output: Output<'_>,
    ) -> Result<StepOutput<'_>, Error> {
        self.plan.check_decodes()?;
        check_limit("sentences * beams", self.plan.rows, rows.len())?;
        let Limits { draft_tokens, target_tokens, .. } = self.plan.limits;
        let (vocabulary, kv_slots) = (self.model.config().target_vocab, self.kv_slots());
        let mut drafted = 0_usize;
        for (index, &StepRow { hypothesis, token, draft }) in rows.iter().enumerate() {
            let len = kv_slots.len(self.check_hypothesis(hypothesis)?);
            drafted = drafted.saturating_add(draft.len());
            check_limit("draft_tokens", draft_tokens, drafted)?;
            check_limit("target_tokens", target_tokens, len.saturating_add(draft.len() + 1))?;
            if token as usize >= vocabulary {
                return Err(Error::token("token", Some(index), vocabulary, token));
            }
            check_tokens(draft, vocabulary)?;
            let found = hypothesis.slot();
            if rows[..index].iter().any(|other| other.hypothesis.slot() == found) {
                let (operand, expected) = ("hypothesis", "each one once in one step");
                let state = "is named twice";
                return Err(Error::InvalidHandle { operand, expected, found, state });
            }
        }
        let fed = rows.iter().flat_map(|&StepRow { hypothesis, token, draft }| {
            let tokens = core::iter::once(token).chain(draft.iter().copied());
            tokens.map(move |token| (hypothesis.slot(), token))
        });
        self.forward(fed, Keys::PerToken, output)
    }

    /// Runs one pass through the decoder: feeds each token of `fed` to the hypothesis in its slot. The tokens of one
    /// hypothesis are adjacent. The caller has checked all of them, and their number.
    pub(crate) fn forward(
        &mut self,
        fed: impl Iterator<Item = (u32, u32)>,
        keys: Keys,
        output: Output<'_>,
    ) -> Result<StepOutput<'_>, Error> {
        let Self { model, plan, buffer, threads, cancel, pruning_policy, probe, .. } = self;
        let decoder = model.decoder().ok_or(Error::NO_DECODER)?;
        let Limits { beams, target_tokens, .. } = plan.limits;
        let SessionBuffers {
            tokens,
            positions,
            hypotheses,
            slots,
            sentences,
            key_counts,
            key_slots,
            hypothesis_lens,
            slot_table,
            source_lens,
            best_tokens,
            best_values,
            best_scratch,
            x,
            h,
            context,
            qkv,
            hidden,
            rounded,
            logits,
            target_positions,
            target_relative,
            own_cache,
            cross_cache,
            ..
        } = plan.buffers.split(buffer.floats_mut())?;
        let mut kv_slots =
            KvSlots { beams, capacity: target_tokens, lens: hypothesis_lens, ancestry: slot_table };
        let mut count = 0;
        for (hypothesis, token) in fed {
            let row = hypothesis as usize;
            let len = kv_slots.len(row);
            tokens[count] = token;
            positions[count] = len as u32;
            hypotheses[count] = hypothesis;
            sentences[count] = (row / beams) as u32;
            key_counts[count] = len as u32 + 1;
            slots[count] = match keys {
                Keys::OneHypothesis(Some(slot)) => kv_slots.extend_contiguous(row, slot),
                _ => kv_slots.extend(row),
            } as u32;
            if let Keys::PerToken = keys {
                key_slots[count * target_tokens..][..=len].copy_from_slice(kv_slots.slots_of(row));
            }
            count += 1;
        }
        if count == 0 {
            return Ok(StepOutput { best: &mut [], logits: &mut [] });
        }
        let hypotheses = &hypotheses[..count];
        let past = match keys {
            Keys::OneHypothesis(Some(slot)) => {
                Past::Slot { slot, len: kv_slots.len(hypotheses[0] as usize) }
            }
            Keys::OneHypothesis(None) => {
                let shared = kv_slots.slots_of(hypotheses[0] as usize);
                key_slots[..shared.len()].copy_from_slice(shared);
                Past::SlotTable { lens: &key_counts[..count], ancestry: key_slots, stride: 0 }
            }
            Keys::PerToken => {
                let lens = &key_counts[..count];
                Past::SlotTable { lens, ancestry: key_slots, stride: target_tokens }
            }
        };
        // The lengths count these tokens only after the pass has written their keys and values.
        for &hypothesis in hypotheses {
            kv_slots.shrink(hypothesis as usize, 1);
        }
        let (ids, positions) = (&tokens[..count], &positions[..count]);
        let mut pass = DecoderPass {
            model,
            decoder,
            threads,
            cancel: cancel.as_ref(),
            pruning_policy,
            pass: TargetPass {
                tokens: Tokens { ids, positions, position_table: target_positions },
                hypotheses,
                slots: &slots[..count],
                sentences: &sentences[..count],
                source_lens,
                past,
                relative: plan.target_relative.with_tables(target_relative),
            },
            caches: Caches { shape: plan.caches, own: own_cache, cross: cross_cache },
            work: Workspace {
                x: &mut x[..count * plan.d_model],
                h: &mut h[..count * plan.d_model],
                context: &mut context[..count * plan.decoder_attention],
                qkv,
                hidden,
                scratch: &mut [],
                frames: &mut [],
                rounded,
            },
            best: Best { tokens: &mut [], values: &mut [], scratch: best_scratch },
            logits: &mut [],
        };
        if !matches!(output, Output::Hidden) {
            pass.best.tokens = &mut best_tokens[..count];
            pass.best.values = &mut best_values[..count];
            pass.logits = &mut logits[..count * plan.search.vocabulary];
        }
        match probe.as_mut().map(Mutex::get_mut) {
            None => pass.compute_output(output, &mut NoObserver)?,
            Some(probe) => {
                pass.compute_output(output, probe.unwrap_or_else(PoisonError::into_inner))?
            }
        }
        for &hypothesis in hypotheses {
            kv_slots.grow(hypothesis as usize, 1);
        }
        Ok(StepOutput { best: pass.best.tokens, logits: pass.logits })
    }
}

/// A pass through the decoder, in planned memory.
struct DecoderPass<'p> {
    model: &'p Model,
    decoder: &'p Decoder,
    threads: &'p Threads<'p>,
    cancel: Option<&'p Cancel>,
    pruning_policy: &'p mut PruningPolicy,
    pass: TargetPass<'p>,
    caches: Caches<'p>,
    work: Workspace<'p>,
    /// For each token, unless only hidden states are computed.
    best: Best<'p>,
    /// `[tokens, vocabulary]`, unless only hidden states are computed.
    logits: &'p mut [f32],
}

impl DecoderPass<'_> {
    /// Enters the threads once, and runs the decoder and then its output. An observer gets all logits, also if the
    /// caller needs only the best tokens.
    fn compute_output<T: LayerObserver>(
        &mut self,
        output: Output<'_>,
        observer: &mut T,
    ) -> Result<(), Error> {
        let Self { model, decoder, pruning_policy, pass, caches, work, best, logits, .. } = self;
        let cancel = self.cancel;
        self.threads.with_parallelism(|parallelism| {
            let run = model.exec_context(parallelism);
            decoder.run_inference((&run, cancel), pass, caches, work, observer)?;
            let rows = best.tokens.len();
            // Rows whose logits the caller needs, and who needs the best tokens of the others.
            let (first, banned, then) = match output {
                Output::Hidden => return Ok(()),
                Output::Logits(then) => (rows, None, then),
                Output::Argmax(banned) => (0, Some(banned).filter(|_| !T::ENABLED), None),
                Output::Split { logits, then, banned } => {
                    (logits, Some(banned).filter(|_| !T::ENABLED), Some(then))
                }
            };
            let (width, vocabulary) = (work.x.len() / rows, logits.len() / rows);
            best.tokens.fill(UNDECIDED);
            match pruning_policy.select(decoder.has_pruning_table(), banned) {
                Some(banned) => {
                    let (scored, x) = work.x.split_at(first * width);
                    let (scores, logits) = logits.split_at_mut(first * vocabulary);
                    if first > 0 {
                        decoder.logits(&run, scored, work.rounded, scores)?;
                    }
                    let mut best = Best {
                        tokens: &mut best.tokens[first..],
                        values: &mut best.values[first..],
                        scratch: best.scratch,
                    };
                    let banned = |row, token| banned(first + row, token);
                    decoder.best(&run, x, &banned, &mut best)?;
                    let tokens = best.tokens;
                    let undecided =
                        fallback_logits(decoder, &run, tokens, (x, work.rounded), logits)?;
                    pruning_policy.record(undecided, rows - first);
                }
                None => decoder.logits(&run, work.x, work.rounded, logits)?,
            }
            observer.logits(&run, pass.rows(), logits)?;
            if let Some(then) = then {
                then(parallelism, &mut logits[..first * vocabulary]);
            }
            Ok(())
        })
    }
}
