//! One model, one planned memory: encode, step, fork, release. See [`Session`].

use crate::arena::{Buffer, cut, words, words_mut};
use crate::cache::Caches;
use crate::config::Side;
use crate::decoder::{self, Pass, Past};
use crate::encoder;
use crate::error::{KernelError, SessionError};
use crate::layers::Run;
use crate::model::Model;
use crate::plan::{Limits, Plan};
use crate::trace::{NoTap, Tap};
use simdformer_kernels::Parallelism;

/// Sources that one call of the encoder takes.
pub(crate) const SOURCES_PER_CALL: usize = 64;

/// Who computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threads {
    /// The calling thread.
    #[default]
    Serial,
    /// The rayon pool that the calling thread belongs to (the global pool if to none), entered once
    /// per call. Inside `ThreadPool::install` no call allocates; nothing spins between calls.
    #[cfg(feature = "rayon")]
    Rayon,
}

impl Threads {
    /// Runs `work` with this parallelism.
    fn run<R: Send>(self, work: impl FnOnce(Parallelism<'_>) -> R + Send) -> R {
        match self {
            Self::Serial => work(Parallelism::Serial),
            #[cfg(feature = "rayon")]
            Self::Rayon => simdformer_kernels::Team::run(|team| work(Parallelism::Team(team))),
        }
    }
}

/// An encoded source sentence of one session. The default names none, and a sentence that was
/// released is not mistaken for the one that came into its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sentence {
    slot: u32,
    /// Different for every tenant of the slot, never 0.
    ticket: u32,
}

impl Sentence {
    /// Number of the slot: what [`crate::trace::View::sentence`] says.
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// A hypothesis of one session. The default names none, and a hypothesis that was released is not
/// mistaken for the one that came into its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    slot: u32,
    /// As in [`Sentence`].
    ticket: u32,
}

impl Row {
    /// Number of the slot: what [`crate::trace::View::row`] says.
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// Called with each position and its logits, `[vocabulary]`.
pub type EachLogits<'f> = &'f mut dyn FnMut(usize, &[f32]);

/// One hypothesis of a step and the token it is continued with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// The hypothesis.
    pub row: Row,
    /// Its next input.
    pub token: u32,
}

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
    pub(crate) model: &'a Model,
    pub(crate) plan: Plan,
    pub(crate) buffer: Buffer<'a>,
    /// The memory of the decoding loop; see `generate.rs`.
    pub(crate) search: Buffer<'a>,
    threads: Threads,
    /// The last ticket that was given out.
    ticket: u32,
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
        let mut session = Self { model, plan, buffer, search, threads: Threads::Serial, ticket: 0 };
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

    /// Uses `threads` from now on. The results do not change by a bit.
    pub fn set_threads(&mut self, threads: Threads) {
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

    /// Forgets every sentence and hypothesis.
    pub fn clear(&mut self) {
        let Plan { row_live, sentence_len, .. } = self.plan.clone();
        let floats = self.buffer.floats_mut();
        words_mut(&mut floats[row_live]).fill(0);
        words_mut(&mut floats[sentence_len]).fill(0);
    }

    /// A ticket that no tenant of any slot has, until four billion others have come.
    fn next_ticket(&mut self) -> u32 {
        self.ticket = self.ticket.wrapping_add(1).max(1);
        self.ticket
    }

    /// Sentence slots that are free.
    pub fn free_sentences(&self) -> usize {
        self.words(&self.plan.sentence_len).iter().filter(|&&len| len == 0).count()
    }

    pub(crate) fn words(&self, range: &core::ops::Range<usize>) -> &[u32] {
        words(&self.buffer.floats()[range.clone()])
    }

    pub(crate) fn words_mut(&mut self, range: &core::ops::Range<usize>) -> &mut [u32] {
        words_mut(&mut self.buffer.floats_mut()[range.clone()])
    }

    /// Encodes `sources`, each the ids of one sentence with its end token, and keeps what
    /// cross-attention needs of them in free slots, which are written to `sentences` in order.
    ///
    /// # Errors
    /// An empty or too long source, more sentences or tokens than planned, or than slots are free, an
    /// id outside the vocabulary, `sentences` of another length. Then nothing has changed.
    pub fn encode(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [Sentence],
    ) -> Result<(), SessionError> {
        self.encode_with(sources, sentences, &mut NoTap)
    }

    pub(crate) fn encode_with<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [Sentence],
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let limits = self.plan.limits;
        if sentences.len() != sources.len() {
            return Err(SessionError::Sentences {
                expected: sources.len(),
                found: sentences.len(),
            });
        }
        for (sentence, source) in sources.iter().enumerate() {
            self.check_source(sentence, source)?;
        }
        let tokens = sources.iter().map(|source| source.len()).sum();
        beyond("batch_tokens", limits.batch_tokens, tokens)?;
        let free = self.free_sentences();
        if sources.len() > free {
            return Err(SessionError::NoFreeSentence {
                expected_at_most: free,
                found: sources.len(),
            });
        }
        let mut start = 0;
        for chunk in sources.chunks(SOURCES_PER_CALL) {
            self.encode_chunk(chunk, &mut sentences[start..start + chunk.len()], tap)?;
            start += chunk.len();
        }
        Ok(())
    }

    /// Encodes at most SOURCES_PER_CALL sources into the lowest free slots.
    fn encode_chunk<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        sentences: &mut [Sentence],
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let mut slots = [0u32; SOURCES_PER_CALL];
        let slots = &mut slots[..sources.len()];
        let free = self.words(&self.plan.sentence_len).iter().enumerate();
        let free = free.filter(|(_, len)| **len == 0).map(|(slot, _)| slot as u32);
        for (slot, free) in slots.iter_mut().zip(free) {
            *slot = free;
        }
        self.run_encoder(sources, Some(slots), tap)?;
        let Plan { sentence_len, sentence_ticket, .. } = self.plan.clone();
        for ((&slot, source), sentence) in slots.iter().zip(sources).zip(sentences) {
            let ticket = self.next_ticket();
            self.words_mut(&sentence_len)[slot as usize] = source.len() as u32;
            self.words_mut(&sentence_ticket)[slot as usize] = ticket;
            *sentence = Sentence { slot, ticket };
        }
        Ok(())
    }

    /// The encoder's output of `sources` laid end to end, `[tokens, d_model]`, without keeping
    /// anything: sentence embeddings, or a look at the memory.
    ///
    /// # Errors
    /// As [`Session::encode`], but no slot needs to be free.
    pub fn memory(&mut self, sources: &[&[u32]]) -> Result<&[f32], SessionError> {
        self.memory_with(sources, &mut NoTap)
    }

    pub(crate) fn memory_with<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        tap: &mut T,
    ) -> Result<&[f32], SessionError> {
        let limits = self.plan.limits;
        for (sentence, source) in sources.iter().enumerate() {
            self.check_source(sentence, source)?;
        }
        beyond("sentences", limits.sentences, sources.len())?;
        let tokens: usize = sources.iter().map(|source| source.len()).sum();
        beyond("batch_tokens", limits.batch_tokens, tokens)?;
        self.run_encoder(sources, None, tap)?;
        let start = self.plan.x.start;
        Ok(&self.buffer.floats()[start..start + tokens * self.model.config().d_model])
    }

    /// Runs the encoder over checked sources and, with `slots`, keeps their keys and values.
    fn run_encoder<T: Tap>(
        &mut self,
        sources: &[&[u32]],
        slots: Option<&[u32]>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let (model, plan) = (self.model, &self.plan);
        let d = model.config().d_model;
        let count: usize = sources.iter().map(|source| source.len()).sum();
        let [positions, x, h, context, qkv, hidden, scratch, own, cross, tokens, at, lengths] =
            cut(
                &mut self.buffer,
                [
                    &plan.source_positions,
                    &plan.x,
                    &plan.h,
                    &plan.context,
                    &plan.qkv,
                    &plan.hidden,
                    &plan.scratch,
                    &plan.own_cache,
                    &plan.cross_cache,
                    &plan.pass_tokens,
                    &plan.pass_positions,
                    // No source is empty: there are no more of them than tokens.
                    &plan.pass_slots,
                ],
            )?;
        let (tokens, at) = (&mut words_mut(tokens)[..count], &mut words_mut(at)[..count]);
        let lengths = &mut words_mut(lengths)[..sources.len()];
        for (len, source) in lengths.iter_mut().zip(sources) {
            *len = source.len() as u32;
        }
        let mut start = 0;
        for source in sources {
            tokens[start..start + source.len()].copy_from_slice(source);
            for (position, at) in at[start..start + source.len()].iter_mut().enumerate() {
                *at = position as u32;
            }
            start += source.len();
        }
        let mut caches = Caches { shape: plan.caches, own, cross };
        self.threads.run(|parallelism| {
            let run = Run { model, parallelism };
            let x = &mut x[..count * d];
            let work = encoder::Workspace {
                x,
                h: &mut h[..count * d],
                context: &mut context[..count * d],
                qkv: &mut qkv[..count * 3 * d],
                hidden,
                scratch,
            };
            model.encoder().run(&run, positions, tokens, at, lengths, slots, work, tap)?;
            if let Some(slots) = slots {
                model.decoder().keep_memory(&run, x, lengths, slots, &mut caches, qkv, tap)?;
            }
            Ok::<(), KernelError>(())
        })?;
        Ok(())
    }

    /// Starts an empty hypothesis about `sentence`.
    ///
    /// # Errors
    /// There is no such sentence, or all its row slots are taken.
    pub fn start(&mut self, sentence: Sentence) -> Result<Row, SessionError> {
        let slot = self.start_slot(self.check_sentence(sentence)?)?;
        Ok(self.row_in(slot))
    }

    /// [`Session::start`] for a sentence slot that is taken; returns the row slot.
    pub(crate) fn start_slot(&mut self, sentence: u32) -> Result<u32, SessionError> {
        let row = self.free_row(sentence, 0)?;
        let (live, len) = (self.plan.row_live.clone(), self.plan.row_len.clone());
        self.words_mut(&live)[row] = self.next_ticket();
        self.words_mut(&len)[row] = 0;
        Ok(row as u32)
    }

    /// A hypothesis that has the past of `row` and goes its own way from here. No key or value is
    /// copied: only the table of where they lie.
    ///
    /// # Errors
    /// There is no such hypothesis, or all row slots of its sentence are taken.
    pub fn fork(&mut self, row: Row) -> Result<Row, SessionError> {
        let from = self.check_row(row)?;
        let to = self.fork_slot(from as u32)?;
        Ok(self.row_in(to))
    }

    /// [`Session::fork`] of the hypothesis in slot `from`; returns the new one's slot.
    pub(crate) fn fork_slot(&mut self, from: u32) -> Result<u32, SessionError> {
        let from = self.check_row_slot(from)?;
        let len = self.words(&self.plan.row_len)[from];
        let to = self.free_row((from / self.plan.limits.beams) as u32, len as usize)?;
        let Plan { row_live, row_len, row_ancestry, .. } = self.plan.clone();
        self.words_mut(&row_live)[to] = self.next_ticket();
        self.words_mut(&row_len)[to] = len;
        let stride = self.plan.limits.target_tokens;
        let start = from * stride;
        self.words_mut(&row_ancestry).copy_within(start..start + len as usize, to * stride);
        Ok(to as u32)
    }

    /// Drops a hypothesis; its slot can be used again as soon as no other needs the past in it.
    ///
    /// # Errors
    /// There is no such hypothesis.
    pub fn release(&mut self, row: Row) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        self.release_slot(slot as u32)
    }

    /// [`Session::release`] of the hypothesis in `slot`.
    pub(crate) fn release_slot(&mut self, slot: u32) -> Result<(), SessionError> {
        let row = self.check_row_slot(slot)?;
        let live = self.plan.row_live.clone();
        self.words_mut(&live)[row] = 0;
        Ok(())
    }

    /// Drops a sentence and all its hypotheses.
    ///
    /// # Errors
    /// There is no such sentence.
    pub fn release_sentence(&mut self, sentence: Sentence) -> Result<(), SessionError> {
        let slot = self.check_sentence(sentence)?;
        self.release_sentence_slot(slot);
        Ok(())
    }

    /// [`Session::release_sentence`] of the sentence in `slot`, which exists.
    pub(crate) fn release_sentence_slot(&mut self, slot: u32) {
        let Plan { row_live, sentence_len, limits, .. } = self.plan.clone();
        let first = slot as usize * limits.beams;
        self.words_mut(&row_live)[first..first + limits.beams].fill(0);
        self.words_mut(&sentence_len)[slot as usize] = 0;
    }

    /// The hypothesis in a slot that is taken.
    pub(crate) fn row_in(&self, slot: u32) -> Row {
        Row { slot, ticket: self.words(&self.plan.row_live)[slot as usize] }
    }

    /// Tokens that `row` has been fed.
    ///
    /// # Errors
    /// There is no such hypothesis.
    pub fn row_len(&self, row: Row) -> Result<usize, SessionError> {
        let row = self.check_row(row)?;
        Ok(self.words(&self.plan.row_len)[row] as usize)
    }

    /// Feeds one token to each of `rows` and returns their logits, `[rows, vocabulary]`, in the same
    /// order. No rows give no logits. Rows of one sentence read its keys fastest when they lie side by
    /// side.
    ///
    /// # Errors
    /// An unknown or repeated hypothesis, one that is at the planned length, an id outside the
    /// vocabulary. Then nothing has changed.
    pub fn step(&mut self, rows: &[StepRow]) -> Result<&mut [f32], SessionError> {
        self.step_with(rows, &mut NoTap)
    }

    pub(crate) fn step_with<T: Tap>(
        &mut self,
        rows: &[StepRow],
        tap: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        beyond("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        self.step_slots(rows.len(), |i| (rows[i].row.slot, rows[i].token), tap)
    }

    /// [`Session::step`] of `count` row slots, `row(i)` the `i`-th with its token.
    pub(crate) fn step_slots<T: Tap>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        tap: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        self.check_step(count, &row)?;
        if count == 0 {
            return Ok(&mut []);
        }
        let (model, plan) = (self.model, &self.plan);
        let config = model.config();
        let (d, stride) = (config.d_model, plan.limits.target_tokens);
        let [
            position_table,
            x,
            h,
            context,
            qkv,
            hidden,
            logits,
            own,
            cross,
            tokens,
            positions,
            slots,
            sentences,
            lens,
            step_ancestry,
            row_len,
            row_ancestry,
            source_lens,
        ] = cut(
            &mut self.buffer,
            [
                &plan.target_positions,
                &plan.x,
                &plan.h,
                &plan.context,
                &plan.qkv,
                &plan.hidden,
                &plan.logits,
                &plan.own_cache,
                &plan.cross_cache,
                &plan.pass_tokens,
                &plan.pass_positions,
                &plan.pass_slots,
                &plan.pass_sentences,
                &plan.step_lens,
                &plan.step_ancestry,
                &plan.row_len,
                &plan.row_ancestry,
                &plan.sentence_len,
            ],
        )?;
        let (tokens, positions) = (words_mut(tokens), words_mut(positions));
        let (slots, sentences, lens) = (words_mut(slots), words_mut(sentences), words_mut(lens));
        let (step_ancestry, row_len) = (words_mut(step_ancestry), words_mut(row_len));
        let row_ancestry = words_mut(row_ancestry);
        for i in 0..count {
            let (slot, token) = row(i);
            let slot = slot as usize;
            let len = row_len[slot] as usize;
            tokens[i] = token;
            positions[i] = len as u32;
            slots[i] = slot as u32;
            sentences[i] = (slot / plan.limits.beams) as u32;
            lens[i] = len as u32 + 1;
            row_ancestry[slot * stride + len] = slot as u32;
            let past = &row_ancestry[slot * stride..][..len + 1];
            step_ancestry[i * stride..][..len + 1].copy_from_slice(past);
        }
        let pass = Pass {
            position_table,
            tokens: &tokens[..count],
            positions: &positions[..count],
            slots: &slots[..count],
            sentences: &sentences[..count],
            source_lens: words(source_lens),
            past: Past::Ancestry { lens: &lens[..count], ancestry: step_ancestry, stride },
        };
        let mut caches = Caches { shape: plan.caches, own, cross };
        let mut work = decoder::Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * d],
            qkv: &mut qkv[..count * 3 * d],
            hidden,
        };
        let logits = &mut logits[..count * config.target_vocab];
        let decoder = model.decoder();
        self.threads.run(|parallelism| {
            let run = Run { model, parallelism };
            decoder.run(&run, &pass, &mut caches, &mut work, tap)?;
            decoder.logits(&run, work.x, logits)?;
            if let Some(mut watch) = tap.watch() {
                watch.logits(model.isa(), &pass.at(), logits, config.target_vocab)?;
            }
            Ok::<(), KernelError>(())
        })?;
        for &slot in &slots[..count] {
            row_len[slot as usize] += 1;
        }
        Ok(logits)
    }

    /// Feeds `tokens` to `row` at once, and calls `each(position, logits)` with the logits after each
    /// of them; `each` of `None` leaves the logits uncomputed. The bits are those of feeding them one
    /// by one.
    ///
    /// # Errors
    /// An unknown hypothesis or one that has been forked, more tokens than planned, an id outside the
    /// vocabulary. Then nothing has changed.
    pub fn prefill(
        &mut self,
        row: Row,
        tokens: &[u32],
        each: Option<EachLogits<'_>>,
    ) -> Result<(), SessionError> {
        self.prefill_with(row, tokens, each, &mut NoTap)
    }

    pub(crate) fn prefill_with<T: Tap>(
        &mut self,
        row: Row,
        tokens: &[u32],
        mut each: Option<EachLogits<'_>>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        let stride = self.plan.limits.target_tokens;
        let len = self.words(&self.plan.row_len)[slot] as usize;
        beyond("target_tokens", stride, len.saturating_add(tokens.len()))?;
        check_tokens(tokens, self.model.config().target_vocab)?;
        let past = &self.words(&self.plan.row_ancestry)[slot * stride..][..len];
        if past.iter().any(|&other| other as usize != slot) {
            return Err(SessionError::ForkedRow { found: row.slot });
        }
        for (index, chunk) in tokens.chunks(self.plan.pass).enumerate() {
            let at = len + index * self.plan.pass;
            self.prefill_chunk(slot, at, chunk, &mut each, tap)?;
        }
        Ok(())
    }

    fn prefill_chunk<T: Tap>(
        &mut self,
        slot: usize,
        len: usize,
        chunk: &[u32],
        each: &mut Option<EachLogits<'_>>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let (model, plan) = (self.model, &self.plan);
        let config = model.config();
        let (d, count, stride) = (config.d_model, chunk.len(), plan.limits.target_tokens);
        let [
            position_table,
            x,
            h,
            context,
            qkv,
            hidden,
            logits,
            own,
            cross,
            tokens,
            positions,
            slots,
            sentences,
            row_len,
            row_ancestry,
            source_lens,
        ] = cut(
            &mut self.buffer,
            [
                &plan.target_positions,
                &plan.x,
                &plan.h,
                &plan.context,
                &plan.qkv,
                &plan.hidden,
                &plan.logits,
                &plan.own_cache,
                &plan.cross_cache,
                &plan.pass_tokens,
                &plan.pass_positions,
                &plan.pass_slots,
                &plan.pass_sentences,
                &plan.row_len,
                &plan.row_ancestry,
                &plan.sentence_len,
            ],
        )?;
        let (tokens, positions) = (words_mut(tokens), words_mut(positions));
        let (slots, sentences) = (words_mut(slots), words_mut(sentences));
        tokens[..count].copy_from_slice(chunk);
        for (i, position) in positions[..count].iter_mut().enumerate() {
            *position = (len + i) as u32;
        }
        slots[..count].fill(slot as u32);
        sentences[..count].fill((slot / plan.limits.beams) as u32);
        let past = &mut words_mut(row_ancestry)[slot * stride + len..][..count];
        past.fill(slot as u32);
        let pass = Pass {
            position_table,
            tokens: &tokens[..count],
            positions: &positions[..count],
            slots: &slots[..count],
            sentences: &sentences[..count],
            source_lens: words(source_lens),
            past: Past::Slot { slot, len: len + count },
        };
        let mut caches = Caches { shape: plan.caches, own, cross };
        let mut work = decoder::Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * d],
            qkv: &mut qkv[..count * 3 * d],
            hidden,
        };
        let decoder = model.decoder();
        self.threads.run(|parallelism| {
            decoder.run(&Run { model, parallelism }, &pass, &mut caches, &mut work, tap)
        })?;
        words_mut(row_len)[slot] += count as u32;
        if let Some(each) = each {
            let vocabulary = config.target_vocab;
            let mut position = len;
            for x in work.x.chunks(plan.rows * d) {
                let logits = &mut logits[..x.len() / d * vocabulary];
                self.threads
                    .run(|parallelism| decoder.logits(&Run { model, parallelism }, x, logits))?;
                if let Some(mut watch) = tap.watch() {
                    watch.logits(
                        model.isa(),
                        &pass.skip(position - len).at(),
                        logits,
                        vocabulary,
                    )?;
                }
                for logits in logits.chunks(vocabulary) {
                    each(position, logits);
                    position += 1;
                }
            }
        }
        Ok(())
    }

    /// Checks source number `sentence` of a request.
    pub(crate) fn check_source(&self, sentence: usize, source: &[u32]) -> Result<(), SessionError> {
        if source.is_empty() {
            return Err(SessionError::EmptySource { sentence });
        }
        let limits = self.plan.limits;
        beyond("source_tokens", limits.source_tokens, source.len())?;
        beyond("batch_tokens", limits.batch_tokens, source.len())?;
        check_tokens(source, self.model.config().source_vocab)
    }

    /// The slot of a sentence that is there.
    fn check_sentence(&self, sentence: Sentence) -> Result<u32, SessionError> {
        let Sentence { slot, ticket } = sentence;
        let len = self.words(&self.plan.sentence_len).get(slot as usize);
        let tenant = self.words(&self.plan.sentence_ticket).get(slot as usize);
        match (len, tenant) {
            (Some(&len), Some(&tenant)) if len > 0 && tenant == ticket => Ok(slot),
            _ => Err(SessionError::UnknownSentence { found: slot }),
        }
    }

    /// The slot of a hypothesis that is there.
    fn check_row(&self, row: Row) -> Result<usize, SessionError> {
        match self.words(&self.plan.row_live).get(row.slot as usize) {
            Some(&tenant) if tenant > 0 && tenant == row.ticket => Ok(row.slot as usize),
            _ => Err(SessionError::UnknownRow { found: row.slot }),
        }
    }

    fn check_row_slot(&self, slot: u32) -> Result<usize, SessionError> {
        match self.words(&self.plan.row_live).get(slot as usize) {
            Some(&tenant) if tenant > 0 => Ok(slot as usize),
            _ => Err(SessionError::UnknownRow { found: slot }),
        }
    }

    fn check_step(
        &self,
        count: usize,
        step: &impl Fn(usize) -> (u32, u32),
    ) -> Result<(), SessionError> {
        let vocabulary = self.model.config().target_vocab;
        beyond("sentences * beams", self.plan.rows, count)?;
        for index in 0..count {
            let (found, token) = step(index);
            let slot = self.check_row_slot(found)?;
            let len = self.words(&self.plan.row_len)[slot] as usize;
            beyond("target_tokens", self.plan.limits.target_tokens, len + 1)?;
            if token as usize >= vocabulary {
                return Err(SessionError::Token { index, vocabulary, found: token });
            }
            if (0..index).any(|other| step(other).0 == found) {
                return Err(SessionError::RowTwice { found });
            }
        }
        Ok(())
    }

    /// A row slot of `sentence` in which positions from `from` on are nobody's past.
    fn free_row(&self, sentence: u32, from: usize) -> Result<usize, SessionError> {
        let Plan { limits, row_live, row_len, row_ancestry, .. } = &self.plan;
        let (live, lens) = (self.words(row_live), self.words(row_len));
        let ancestry = self.words(row_ancestry);
        let first = sentence as usize * limits.beams;
        let rows = first..first + limits.beams;
        let needed = |slot: usize| {
            rows.clone().filter(|&row| live[row] > 0).any(|row| {
                let past = &ancestry[row * limits.target_tokens..][..lens[row] as usize];
                past.get(from..).unwrap_or(&[]).contains(&(slot as u32))
            })
        };
        rows.clone()
            .find(|&slot| live[slot] == 0 && !needed(slot))
            .ok_or(SessionError::NoFreeRow { sentence, beams: limits.beams })
    }
}

pub(crate) fn beyond(
    limit: &'static str,
    expected_at_most: usize,
    found: usize,
) -> Result<(), SessionError> {
    if found > expected_at_most {
        return Err(SessionError::BeyondPlan { limit, expected_at_most, found });
    }
    Ok(())
}

fn check_tokens(tokens: &[u32], vocabulary: usize) -> Result<(), SessionError> {
    match tokens.iter().position(|&token| token as usize >= vocabulary) {
        Some(index) => Err(SessionError::Token { index, vocabulary, found: tokens[index] }),
        None => Ok(()),
    }
}
