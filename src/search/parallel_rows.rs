//! The part of a step that handles each row independently, on several threads.
//!
//! Normalization, rules, filters, and the choice of the best continuations or of a sample read one row only.
//! Merging the rows of a sentence, choosing its tokens and reporting events need all its rows; the calling
//! thread does this afterwards ([`Search::advance`]). A prepared row goes through the same operations in the
//! same order as on the calling thread, so the bits are the same. The calling thread calls the rules of the
//! caller in order: if there are any, no row is prepared.

use crate::fixed_thread_count::counted;
use simdformer_kernels::Parallelism;

use super::error::SearchError;
use super::filters::{draw, most_probable};
use super::logits_processors::Context;
use super::options::{SearchOptions, Strategy};
use super::processor_order::{Hooks, OnToken, Pipeline};
use super::score_rows::{Shift, TopK, argmax, below_infinity, log_softmax, normalizer};
use super::search::{ACTIVE, NONE, Progress, Search};
use super::state::{HEAD, Memory, Shape, result_words};

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
    /// # Ok::<(), simdformer::search::SearchError>(())
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
    ) -> Result<Progress, SearchError> {
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
        results.fill(OPEN);
        Some(Scratch { results, scratch: core::mem::take(&mut self.scratch) })
    }

    /// Returns the buffers. The prepared results are valid until the next step.
    pub(crate) fn take_back(&mut self, buffers: Scratch<'a>) {
        self.results = buffers.results;
        self.scratch = buffers.scratch;
        self.prepared = true;
    }

    /// Prepares the rows of `logits`, each as [`Self::advance`] would process it.
    pub(crate) fn prepare(
        &self,
        parallelism: Parallelism<'_>,
        logits: &mut [f32],
        buffers: &mut Scratch<'_>,
    ) {
        let vocabulary = self.shape.vocabulary;
        let words = result_words(self.shape.candidates);
        if parallelism.threads() < 2 || logits.len() != self.rows * vocabulary {
            return;
        }
        let own = self.own_scratch();
        let most = (buffers.scratch.len() / own.max(1)).clamp(1, TASKS);
        let rows = self.rows.div_ceil(most).max(TASK.div_ceil(vocabulary));
        let count = self.rows.div_ceil(rows);
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
                // The only error is too little scratch. The row then stays open, and `advance` returns the same
                // error.
                let _ = self.prepare_row(row, scores, task.scratch, result);
            }
        });
    }

    /// Words of scratch per row under these options.
    fn own_scratch(&self) -> usize {
        match self.options.drawn() {
            Some(_) => self.shape.scratch_words(),
            None => self.shape.target.max(self.shape.source),
        }
    }

    fn prepare_row(
        &self,
        row: usize,
        scores: &mut [f32],
        scratch: &mut [u32],
        result: &mut [u32],
    ) -> Result<(), SearchError> {
        let m = &self.memory;
        let s = m.row_sentence[row] as usize;
        let start = s * self.shape.width;
        let mut slots = start..start + self.shape.width;
        let slot = slots.find(|&slot| m.alive[slot] == 1 && m.row[slot] as usize == row);
        let (Some(slot), ACTIVE) = (slot, m.phase[s]) else { return Ok(()) };
        if m.len[s] < m.prompt_len[s] {
            return Ok(());
        }
        let sequence = slot - start;
        if let Strategy::Beam(_) = self.options.strategy {
            let keep = self.keeps_logits(s, &Hooks::default());
            let (max, log_sum) = normalize(keep, scores);
            self.view().process(s, slot, scores, scratch)?;
            result[0] = SHAPED;
            if self.shape.groups > 1 || self.options.drawn().is_some() {
                return Ok(());
            }
            let (head, lists) = result.split_at_mut(HEAD);
            let (found, ids) = lists.split_at_mut(self.shape.candidates);
            let mut best = TopK::new(bytemuck::cast_slice_mut(found), ids);
            let shift = Shift { max, log_sum, offset: m.score[slot] };
            if best.scan(scores, shift, (sequence * self.shape.vocabulary) as u32) {
                head[1] = best.sort() as u32;
                head[0] = BEST;
            } else {
                head[0] = NOT_FINITE;
            }
            return Ok(());
        }
        self.view().process(s, slot, scores, scratch)?;
        result[0] = if below_infinity(scores) { SHAPED } else { NOT_FINITE };
        // All sequences share the first row, and each of them chooses its own token from it.
        if result[0] == SHAPED && (self.shape.width == 1 || m.len[s] > m.prompt_len[s]) {
            let chosen = self.view().choose(s, sequence, scores, scratch)?;
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
    options: &'a SearchOptions,
    shape: Shape,
    memory: &'v Memory<'a>,
}

impl<'a> Search<'a> {
    pub(super) fn view(&self) -> View<'_, 'a> {
        View { options: self.options, shape: self.shape, memory: &self.memory }
    }

    /// The view, and the scratch of the calling thread.
    pub(super) fn split(&mut self) -> (View<'_, 'a>, &mut [u32]) {
        let view = View { options: self.options, shape: self.shape, memory: &self.memory };
        (view, self.scratch)
    }
}

impl<'v, 'a> View<'v, 'a> {
    /// The context that the processors of a sequence receive.
    pub(super) fn context(self, s: usize, slot: usize) -> Context<'v> {
        let m = self.memory;
        Context {
            sentence: s as u32,
            source: m.source(&self.shape, s),
            history: &m.history[slot * self.shape.target..][..m.len[s] as usize],
            prompt_len: m.prompt_len[s] as usize,
            max_length: m.max_len[s] as usize,
        }
    }

    /// The processors of a sentence.
    pub(super) fn pipeline(self, s: usize) -> Pipeline<'a> {
        let forced_bos = self.memory.forced_bos[s];
        let forced_bos = (forced_bos != NONE).then_some(forced_bos);
        Pipeline { options: self.options, forced_bos }
    }

    /// Applies the processors to a row if the caller has no rules.
    fn process(
        self,
        s: usize,
        slot: usize,
        scores: &mut [f32],
        scratch: &mut [u32],
    ) -> Result<(), SearchError> {
        let (context, pipeline) = (self.context(s, slot), self.pipeline(s));
        pipeline.restrict(&context, scores, scratch, &mut Hooks::default())?;
        pipeline.shape(&context, scores, scratch, &mut Hooks::default())
    }

    /// The token of a sequence and its log-probability, if scores are computed; `None` if all tokens are banned.
    pub(super) fn choose(
        self,
        s: usize,
        sequence: usize,
        scores: &[f32],
        scratch: &mut [u32],
    ) -> Result<Option<(u32, Option<f32>)>, SearchError> {
        let m = self.memory;
        if let Strategy::Sample(sample) = &self.options.strategy {
            let stream = u64::from(m.stream_low[s]) | u64::from(m.stream_high[s]) << 32;
            let step = m.len[s] - m.prompt_len[s];
            let drawn = draw(scores, sample.draw(stream, sequence as u32, step), scratch)?;
            return Ok(drawn.map(|(token, log_p)| (token as u32, Some(log_p))));
        }
        if !self.options.scored() {
            return Ok(argmax(scores).map(|token| (token as u32, None)));
        }
        Ok(most_probable(scores).map(|(token, log_p)| (token as u32, Some(log_p))))
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
    shape: &Shape,
    options: &SearchOptions,
    row: u32,
) -> Prepared<'m> {
    let result = results.chunks_exact(result_words(shape.candidates)).nth(row as usize);
    let Some(&[state, a, b, ref lists @ ..]) = result.filter(|_| any) else {
        return Prepared::Open;
    };
    match state {
        SHAPED => Prepared::Shaped,
        NOT_FINITE => Prepared::NotFinite,
        CHOSEN => Prepared::Chosen(Some((a, options.scored().then_some(f32::from_bits(b))))),
        EXHAUSTED => Prepared::Chosen(None),
        BEST => {
            let (scores, ids) = lists.split_at(shape.candidates);
            Prepared::Best(bytemuck::cast_slice(&scores[..a as usize]), &ids[..a as usize])
        }
        _ => Prepared::Open,
    }
}
