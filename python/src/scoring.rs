//! Given targets: their log-probabilities, and which source tokens each of their tokens attends to.

use crate::arrays::Rows;
use crate::errors::Failure;
use crate::generate::PreparedSearch;
use simdformer::search::score_targets;
use simdformer::{Cancel, Engine, Error, Session, SourceId, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sources and the targets of a call, as many of one as of the other.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub(crate) sources: Rows,
    pub(crate) targets: Rows,
    pub(crate) counter: Option<Arc<AtomicU64>>,
}

impl Pairs {
    /// What all pairs need. `start` are the tokens before each target.
    fn work(&self, start: &[u32]) -> Workload {
        let source = self.sources.iter().map(<[u32]>::len).max().unwrap_or(1);
        let target = self.targets.iter().map(<[u32]>::len).max().unwrap_or(1);
        Workload::targets(self.sources.len(), source, target.saturating_add(start.len()))
    }
}

/// The natural logarithm of the probability of each target token, in the layout of the targets: one teacher-forced pass
/// of the decoder for each pair. No processor of the search changes them.
///
/// # Errors
/// A source or a target that the model refuses, with its index; scores that are NaN or infinite; no memory.
pub(crate) fn score(
    engine: &mut Engine,
    prepared: &PreparedSearch,
    pairs: &Pairs,
    cancel: &Cancel,
) -> Result<Vec<f32>, Failure> {
    engine.set_cancel(cancel.clone());
    let start = prepared.start();
    engine.with_session(&pairs.work(&start), |session| score_in(session, &start, pairs))?
}

fn score_in(
    session: &mut Session<'static>,
    start: &[u32],
    pairs: &Pairs,
) -> Result<Vec<f32>, Failure> {
    let vocabulary = session.model().config().target_vocab;
    let limits = session.plan().limits();
    let mut scores = Vec::with_capacity(pairs.targets.tokens());
    let mut first = 0;
    while first < pairs.sources.len() {
        // As many sources as are encoded in one call.
        let mut tokens = 0;
        let rest = (first..pairs.sources.len()).take(limits.sentences);
        let fit = rest.take_while(|&index| {
            tokens += pairs.sources.row(index).len();
            tokens <= limits.batch_tokens
        });
        let count = fit.count().max(1);
        let group: Vec<&[u32]> = (first..first + count).map(|i| pairs.sources.row(i)).collect();
        let mut ids = vec![SourceId::default(); count];
        session.clear();
        session.encode(&group, &mut ids).map_err(|error| match error.index() {
            Some(index) => error.with_index(first + index),
            None => error,
        })?;
        for (index, &id) in (first..).zip(&ids) {
            let target = pairs.targets.row(index);
            let from = scores.len();
            scores.resize(from + target.len(), 0.0);
            let out = scores.get_mut(from..).unwrap_or_default();
            score_one(session, id, start, target, vocabulary, out)
                .map_err(|error| Failure::from(error).with("index", index))?;
            if let Some(counter) = &pairs.counter {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        first += count;
    }
    session.clear();
    Ok(scores)
}

fn score_one(
    session: &mut Session<'static>,
    source: SourceId,
    start: &[u32],
    target: &[u32],
    vocabulary: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    let Some((_, fed)) = target.split_last() else { return Ok(()) };
    let input = [start, fed].concat();
    let mut failed: Result<(), Error> = Ok(());
    let mut on_logits = |position: usize, logits: &[f32]| {
        let index = (position + 1).checked_sub(start.len());
        let pair = index.and_then(|index| Some((target.get(index)?, out.get_mut(index)?)));
        if let Some((&token, score)) = pair {
            let one = core::slice::from_mut(score);
            let scored = score_targets(logits, vocabulary, &[token], one);
            if failed.is_ok() {
                failed = scored.map(|_| ());
            }
        }
    };
    let hypothesis = session.start(source)?;
    session.prefill(hypothesis, &input, Some(&mut on_logits))?;
    session.release(hypothesis)?;
    failed
}

/// The cross-attention weights of one pair, `[target tokens, source tokens]`: the mean over `heads` of `layers`. Row `i`
/// belongs to the choice of target token `i`. Without layers, those after the middle but the last (Garg et al. 2019);
/// without heads, all.
///
/// # Errors
/// A source or a target that the model refuses; a layer or a head that the decoder does not have; weights that are NaN; no
/// memory.
pub(crate) fn align(
    engine: &mut Engine,
    prepared: &PreparedSearch,
    pair: &Pairs,
    layers: Option<Vec<usize>>,
    heads: Option<Vec<usize>>,
    cancel: &Cancel,
) -> Result<Vec<f32>, Failure> {
    engine.set_cancel(cancel.clone());
    let decoder = engine.model().config().decoder.ok_or(Error::NO_DECODER)?;
    let aligning =
        decoder.layers / 2..(decoder.layers - decoder.layers.min(1)).max(decoder.layers / 2 + 1);
    let layers = layers.unwrap_or_else(|| aligning.collect());
    let heads = heads.unwrap_or_else(|| (0..decoder.heads).collect());
    if layers.is_empty() {
        return Err(Failure::option("layers", "at least one layer", "none"));
    }
    let start = prepared.start();
    let run = |session: &mut Session<'static>| align_in(session, &start, pair, (&layers, &heads));
    engine.with_session(&pair.work(&start), run)?
}

fn align_in(
    session: &mut Session<'static>,
    start: &[u32],
    pair: &Pairs,
    (layers, heads): (&[usize], &[usize]),
) -> Result<Vec<f32>, Failure> {
    let (source, target) = (pair.sources.row(0), pair.targets.row(0));
    let Some((_, fed)) = target.split_last() else { return Ok(Vec::new()) };
    let input = [start, fed].concat();
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut one = vec![0.0; input.len() * source.len()];
    let mut mean = vec![0.0; target.len() * source.len()];
    let mut id = [SourceId::default()];
    session.clear();
    session.encode(&[source], &mut id)?;
    for &layer in layers {
        session.align(id[0], &input, (layer, heads), &mut scratch, &mut one)?;
        let rows = one.get((start.len() - 1) * source.len()..).unwrap_or_default();
        for (mean, weight) in mean.iter_mut().zip(rows) {
            *mean += weight / layers.len() as f32;
        }
    }
    session.clear();
    if mean.iter().any(|weight| !weight.is_finite()) {
        let message = "expected finite attention weights, found NaN or an infinity";
        return Err(Failure::new("NotFiniteError", message));
    }
    Ok(mean)
}
