//! The part of a step that handles each row independently, on several threads.
//!
//! Normalization, rules, filters, and the choice of the best continuations or of a sample read one row only.
//! Merging the rows of a sentence, choosing its tokens and reporting events need all its rows; the calling
//! thread does this afterwards ([`Search::advance`]). A prepared row goes through the same operations in the
//! same order as on the calling thread, so the bits are the same. The calling thread calls the rules of the
//! caller in order: if there are any, no row is prepared.

use crate::fixed_thread_count::counted;
use simdformer_kernels::Parallelism;

use super::filters::{draw, most_probable};
use super::hooks::{Context, Hooks, OnToken};
use super::limits::SearchLimits;
use super::options::{SearchOptions, Strategy};
use super::processor_order::Pipeline;
use super::score_rows::{Shift, TopK, argmax, below_infinity, log_softmax, normalizer};
use super::search::{ACTIVE, NONE, Search};
use super::state::Slot;
use super::state::{HEAD, Memory, result_words};
use crate::error::Error;

/// Maximum number of tasks per step.
const TASKS: usize = 32;

/// Minimum number of scores per task: some microseconds of work, enough to justify handing it to another
/// thread.
const TASK: usize = 1 << 13;

/// The prepared result of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prepared<'m> {
    /// Not prepared.
    Open,
    /// The processors have been applied.
    Shaped,
    /// The processors have been applied, and a score is NaN or `+inf`.
    NotFinite,
    /// The chosen token, with its log-probability if scores are computed; `None` if all tokens are banned.
    Chosen(Option<(u32, Option<f32>)>),
    /// Scores and ids of the best continuations of a beam, best first.
    Best(&'m [f32], &'m [u32]),
}

const OPEN: u32 = 0;
const SHAPED: u32 = 1;
const NOT_FINITE: u32 = 2;
const CHOSEN: u32 = 3;
const EXHAUSTED: u32 = 4;
const BEST: u32 = 5;

/// The buffers of [`Search::prepare`], taken out of the search while it runs.
pub(crate) struct Scratch<'a> {
    results: &'a mut [u32],
    scratch: &'a mut [u32],
}

/// A range of consecutive rows.
#[derive(Default)]
struct Task<'t> {
    first: usize,
    scores: &'t mut [f32],
    results: &'t mut [u32],
    scratch: &'t mut [u32],
}

impl<'a> Search<'a> {
    /// As [`Self::advance`], on several threads if there is enough work: the rows are normalized, processed,
    /// filtered and searched for their best tokens in parallel. The result is the same. Rules of the caller
    /// ([`Hooks`]) run on the calling thread; if there are any, all work runs on it.
    ///
    /// ```
    /// use simdformer::kernels::Parallelism;
    /// use simdformer::search::{Hooks, Request, Search, SearchLimits, SearchOptions, words};
    ///
    /// let options = SearchOptions { eos: vec![2], ..SearchOptions::default() };
    /// let limits = SearchLimits {
    ///     sentences: 1,
    ///     sequences: 1,
    ///     max_target_length: 8,
    ///     vocabulary: 5,
    ///     end_tokens: 1,
    ///     source_tokens: 0,
    /// };
    /// let mut memory = vec![0; words(&limits)?];
    /// let mut search = Search::new(&options, &limits, &mut memory)?;
    /// let sentence = search.admit(&Request::default())?;
    /// let mut logits = [0.0, 0.0, 9.0, 0.0, 0.0];
    /// search.advance_on(Parallelism::Serial, &mut logits, &mut Hooks::default(), None)?;
    /// let best = search.hypotheses(sentence).next().map(|hypothesis| hypothesis.tokens);
    /// assert_eq!(best, Some(&[2][..]));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::advance`].
    pub fn advance_on(
        &mut self,
        parallelism: Parallelism<'_>,
        logits: &mut [f32],
        hooks: &mut Hooks<'_>,
        on_token: Option<OnToken<'_>>,
    ) -> Result<(), Error> {
        if let Some(mut buffers) = self.lend_scratch(hooks) {
            counted(parallelism, |parallelism| self.prepare(parallelism, logits, &mut buffers));
            self.take_back(buffers);
        }
        self.advance(logits, hooks, on_token)
    }

    /// Takes out the buffers for [`Self::prepare`], if the step can be prepared. The caller returns them with
    /// [`Self::take_back`] before the search continues.
    pub(crate) fn lend_scratch(&mut self, hooks: &Hooks<'_>) -> Option<Scratch<'a>> {
        // Which tokens of a draft are evaluated depends on the tokens before them.
        let drafts = self.scored_rows != self.rows;
        if drafts || self.rows < 2 || !hooks.is_empty() {
            return None;
        }
        let results = core::mem::take(&mut self.results);
        for result in results.chunks_mut(result_words(self.limits.candidates())).take(self.rows) {
            result[0] = OPEN;
        }
        Some(Scratch { results, scratch: core::mem::take(&mut self.scratch) })
    }

    /// Returns the buffers. The prepared results are valid until the next step.
    pub(crate) fn take_back(&mut self, buffers: Scratch<'a>) {
        self.results = buffers.results;
        self.scratch = buffers.scratch;
        self.prepared = true;
    }

    /// Prepares the rows of `logits`, the first rows of the step, each as [`Self::advance`] would process it.
    pub(crate) fn prepare(
        &self,
        parallelism: Parallelism<'_>,
        logits: &mut [f32],
        buffers: &mut Scratch<'_>,
    ) {
        let vocabulary = self.limits.vocabulary;
        let words = result_words(self.limits.candidates());
        let all = logits.len() / vocabulary;
        if parallelism.threads() < 2 || all > self.rows || !logits.len().is_multiple_of(vocabulary)
        {
            return;
        }
        let own = self.own_scratch();
        let most = (buffers.scratch.len() / own.max(1)).clamp(1, TASKS);
        let rows = all.div_ceil(most).max(TASK.div_ceil(vocabulary));
        let count = all.div_ceil(rows);
        if count < 2 {
            return;
        }
        let parts =
            logits.chunks_mut(rows * vocabulary).zip(buffers.results.chunks_mut(rows * words));
        let parts = parts.zip(buffers.scratch.chunks_mut(own.max(1))).enumerate();
        let mut tasks: [Task<'_>; TASKS] = core::array::from_fn(|_| Task::default());
        for (task, (index, ((scores, results), scratch))) in tasks.iter_mut().zip(parts) {
            *task = Task { first: index * rows, scores, results, scratch };
        }
        parallelism.for_each_mut(&mut tasks[..count], &|_, task| {
            let rows = task.scores.chunks_mut(vocabulary).zip(task.results.chunks_mut(words));
            for (row, (scores, result)) in (task.first..).zip(rows) {
                // Only rules of the caller have errors. A row with one stays open, and `advance` returns the error.
                let _ = self.prepare_row(row, scores, task.scratch, result);
            }
        });
    }

    /// Words of scratch per row that are enough for every sentence.
    fn own_scratch(&self) -> usize {
        let sentences = self.memory.row_count.iter().zip(&self.slots);
        match sentences.filter(|(rows, _)| **rows > 0).any(|(_, slot)| slot.drawn().is_some()) {
            true => self.limits.scratch_words(),
            false => self.limits.max_target_length.max(self.limits.source_tokens),
        }
    }

    fn prepare_row(
        &self,
        row: usize,
        scores: &mut [f32],
        scratch: &mut [u32],
        result: &mut [u32],
    ) -> Result<(), Error> {
        let m = &self.memory;
        let s = m.row_sentence[row] as usize;
        let slot = self.slot(s);
        let mut places = slot.sequences();
        let place = places.find(|&place| m.alive[place] == 1 && m.row[place] as usize == row);
        let (Some(place), ACTIVE) = (place, m.phase[s]) else { return Ok(()) };
        if m.len[s] < m.prompt_len[s] {
            return Ok(());
        }
        let (view, sequence) = (self.view(slot), place - slot.first);
        if let Strategy::Beam(_) = slot.options.strategy {
            let keep = self.keeps_logits(slot, &Hooks::default());
            let (max, log_sum) = normalize(keep, scores);
            view.process(place, scores, scratch)?;
            result[0] = SHAPED;
            if slot.groups > 1 || slot.options.drawn().is_some() {
                return Ok(());
            }
            let (head, lists) = result.split_at_mut(HEAD);
            let (found, ids) = lists.split_at_mut(self.limits.candidates());
            let count = slot.candidates();
            let mut best =
                TopK::new(bytemuck::cast_slice_mut(&mut found[..count]), &mut ids[..count]);
            let shift = Shift { max, log_sum, offset: m.score[place] };
            if best.scan(scores, shift, (sequence * self.limits.vocabulary) as u32) {
                head[1] = best.sort() as u32;
                head[0] = BEST;
            } else {
                head[0] = NOT_FINITE;
            }
            return Ok(());
        }
        view.process(place, scores, scratch)?;
        result[0] = if below_infinity(scores) { SHAPED } else { NOT_FINITE };
        // All sequences share the first row, and each of them chooses its own token from it.
        if result[0] == SHAPED && (slot.width == 1 || m.len[s] > m.prompt_len[s]) {
            let chosen = view.choose(sequence, scores, scratch);
            result[0] = if chosen.is_some() { CHOSEN } else { EXHAUSTED };
            let (token, log_p) = chosen.unwrap_or_default();
            result[1] = token;
            result[2] = log_p.unwrap_or_default().to_bits();
        }
        Ok(())
    }
}

/// The parts of a search that the work on one row reads.
#[derive(Clone, Copy)]
pub(super) struct View<'v, 'a> {
    slot: Slot<'v>,
    limits: SearchLimits,
    memory: &'v Memory<'a>,
}

impl<'a> Search<'a> {
    pub(super) fn view<'v>(&'v self, slot: Slot<'v>) -> View<'v, 'a> {
        View { slot, limits: self.limits, memory: &self.memory }
    }

    /// The view, and the scratch of the calling thread.
    pub(super) fn split<'v>(&'v mut self, slot: Slot<'v>) -> (View<'v, 'a>, &'v mut [u32]) {
        (View { slot, limits: self.limits, memory: &self.memory }, self.scratch)
    }
}

impl<'v, 'a> View<'v, 'a> {
    /// The context that the processors of the sequence in slot `place` receive.
    pub(super) fn context(self, place: usize) -> Context<'v> {
        let (s, m) = (self.slot.s, self.memory);
        Context {
            sentence: s as u32,
            source: m.source(&self.limits, s),
            history: &m.history[place * self.limits.max_target_length..][..m.len[s] as usize],
            prompt_len: m.prompt_len[s] as usize,
            max_length: m.max_len[s] as usize,
        }
    }

    /// The processors of a sentence.
    pub(super) fn pipeline(self) -> Pipeline<'v> {
        let forced_bos = self.memory.forced_bos[self.slot.s];
        let forced_bos = (forced_bos != NONE).then_some(forced_bos);
        Pipeline { options: self.slot.options, forced_bos }
    }

    /// Applies the processors to a row if the caller has no rules.
    fn process(self, place: usize, scores: &mut [f32], scratch: &mut [u32]) -> Result<(), Error> {
        let (context, pipeline) = (self.context(place), self.pipeline());
        pipeline.restrict(&context, scores, scratch, &mut Hooks::default())?;
        pipeline.shape(&context, scores, scratch, &mut Hooks::default())
    }

    /// The token of a sequence and its log-probability, if scores are computed; `None` if all tokens are banned.
    pub(super) fn choose(
        self,
        sequence: usize,
        scores: &[f32],
        scratch: &mut [u32],
    ) -> Option<(u32, Option<f32>)> {
        let (Slot { s, options, .. }, m) = (self.slot, self.memory);
        if let Strategy::Sample(sample) = &options.strategy {
            let stream = u64::from(m.stream_low[s]) | u64::from(m.stream_high[s]) << 32;
            let step = m.len[s] - m.prompt_len[s];
            let drawn = draw(scores, sample.draw(stream, sequence as u32, step), scratch);
            return drawn.map(|(token, log_p)| (token as u32, Some(log_p)));
        }
        if !options.scored() {
            return argmax(scores).map(|token| (token as u32, None));
        }
        most_probable(scores).map(|(token, log_p)| (token as u32, Some(log_p)))
    }
}

/// Turns a beam's row into log-probabilities and returns zeros; or, if the row keeps its logits, returns the
/// maximum and log-sum to subtract.
pub(super) fn normalize(keep_logits: bool, scores: &mut [f32]) -> (f32, f32) {
    let normalizer = if keep_logits { normalizer(scores) } else { None };
    if normalizer.is_none() {
        log_softmax(scores);
    }
    normalizer.unwrap_or_default()
}

/// The result of row `row` in `results`, the results of a step; [`Prepared::Open`] if `any` is false.
pub(super) fn prepared<'m>(
    any: bool,
    results: &'m [u32],
    limits: &SearchLimits,
    options: &SearchOptions,
    row: u32,
) -> Prepared<'m> {
    let result = results.chunks_exact(result_words(limits.candidates())).nth(row as usize);
    let Some(&[state, a, b, ref lists @ ..]) = result.filter(|_| any) else {
        return Prepared::Open;
    };
    match state {
        SHAPED => Prepared::Shaped,
        NOT_FINITE => Prepared::NotFinite,
        CHOSEN => Prepared::Chosen(Some((a, options.scored().then_some(f32::from_bits(b))))),
        EXHAUSTED => Prepared::Chosen(None),
        BEST => {
            let (scores, ids) = lists.split_at(limits.candidates());
            Prepared::Best(bytemuck::cast_slice(&scores[..a as usize]), &ids[..a as usize])
        }
        _ => Prepared::Open,
    }
}
