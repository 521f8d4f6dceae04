//! Ids in, ids out: runs the search over rows, and collects what it finds in the order of the rows.

use crate::arrays::Rows;
use crate::errors::Failure;
use core::cmp::Reverse;
use core::ops::ControlFlow;
use simdformer::search::{Finish, SearchOptions};
use simdformer::{Cancel, Engine, Event, Source, Stop};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A search, and what precedes each target.
#[derive(Clone, Debug)]
pub(crate) struct PreparedSearch {
    pub(crate) options: SearchOptions,
    /// Target tokens after the decoder start, for all sources.
    pub(crate) prompt: Vec<u32>,
    pub(crate) forced_bos: Option<u32>,
}

impl PreparedSearch {
    /// The tokens before each target.
    pub(crate) fn start(&self) -> Vec<u32> {
        [&[self.options.start], &self.prompt[..]].concat()
    }
}

/// The sources of a call.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) ids: Rows,
    /// Target tokens that must come first: of each source, or no rows.
    pub(crate) prefixes: Rows,
    /// The random stream of each source; without any, the index of the source.
    pub(crate) streams: Option<Vec<u64>>,
    /// Whether a refused source is reported for itself, and the others are run.
    pub(crate) skips_errors: bool,
    /// Counts finished sources.
    pub(crate) counter: Option<Arc<AtomicU64>>,
}

/// What a call found, in the order of the sources: `num_return` rows of ids for each source.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) ids: Rows,
    /// The score of each row of ids.
    pub(crate) scores: Vec<f32>,
    /// Why each source ended: a number of `simdformer.Finish`.
    pub(crate) finish: Vec<u8>,
    pub(crate) errors: Vec<(usize, Failure)>,
}

/// A source that was refused.
pub(crate) const REFUSED: u8 = 5;

/// The number of `simdformer.Finish`.
pub(crate) fn code(finish: Finish) -> u8 {
    match finish {
        Finish::End => 0,
        Finish::Length => 1,
        Finish::Stopped => 2,
        Finish::Exhausted => 3,
        Finish::NotFinite => 4,
    }
}

/// The sequences of a source in `Collected::tokens`.
#[derive(Clone, Debug)]
struct Row {
    finish: u8,
    /// End in `tokens` and score of each sequence; the first begins at `start`.
    start: usize,
    sequences: Vec<(usize, f32)>,
}

/// What the sessions report, in any order.
#[derive(Debug)]
struct Collected {
    rows: Vec<Option<Row>>,
    tokens: Vec<u32>,
}

/// Runs the search of `prepared` over `sources`, longest first.
///
/// # Errors
/// The first refused source, unless they are skipped; options that the model refuses; no memory; a cancelled call.
pub(crate) fn generate(
    engine: &mut Engine,
    prepared: &PreparedSearch,
    sources: &Sources,
    cancel: &Cancel,
) -> Result<Found, Failure> {
    engine.set_cancel(cancel.clone());
    let rows = sources.ids.len();
    let prefixes: Vec<Vec<u32>> = (0..sources.prefixes.len())
        .map(|index| [&prepared.prompt, sources.prefixes.row(index)].concat())
        .collect();
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by_key(|&index| Reverse(sources.ids.row(index).len()));
    let input = |&index: &usize| {
        let stream = sources.streams.as_ref().and_then(|streams| streams.get(index).copied());
        let own_prefix = !sources.prefixes.row(index).is_empty();
        Source {
            prefix: prefixes.get(index).unwrap_or(&prepared.prompt),
            // What the caller forces comes in its place.
            forced_bos: prepared.forced_bos.filter(|_| !own_prefix),
            stream: stream.unwrap_or(index as u64),
            ..Source::new(sources.ids.row(index))
        }
    };
    let inputs: Vec<Source<'_>> = order.iter().map(input).collect();
    let row_of = |source: usize| order.get(source).copied().unwrap_or(source);
    let errors: Mutex<Vec<(usize, Failure)>> = Mutex::default();
    let collected = Mutex::new(Collected { rows: vec![None; rows], tokens: Vec::new() });
    let result = engine.stream(&inputs, &prepared.options, &|event: Event<'_>| {
        let done = match event {
            // All are reported before anything runs.
            Event::Refused { source, error } => {
                let index = row_of(source);
                let failure = Failure::from(error.clone().with_index(index));
                lock(&errors).push((index, failure));
                return ControlFlow::Break(Stop::Source);
            }
            Event::Step(_) if !sources.skips_errors && !lock(&errors).is_empty() => {
                return ControlFlow::Break(Stop::All);
            }
            Event::Done(done) => done,
            _ => return ControlFlow::Continue(()),
        };
        if let Some(counter) = &sources.counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let mut collected = lock(&collected);
        let Collected { rows, tokens } = &mut *collected;
        let start = tokens.len();
        let mut sequences = Vec::new();
        if done.finish != Finish::NotFinite {
            for hypothesis in done.hypotheses() {
                tokens.extend_from_slice(hypothesis.tokens);
                sequences.push((tokens.len(), hypothesis.score));
            }
        }
        if let Some(row) = rows.get_mut(row_of(done.source)) {
            *row = Some(Row { finish: code(done.finish), start, sequences });
        }
        ControlFlow::Continue(())
    });
    result.map_err(|error| match error.index() {
        Some(index) => error.with_index(row_of(index)),
        None => error,
    })?;
    let mut errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    errors.sort_by_key(|(index, _)| *index);
    if !sources.skips_errors && !errors.is_empty() {
        return Err(errors.swap_remove(0).1);
    }
    let collected = collected.into_inner().unwrap_or_else(PoisonError::into_inner);
    collect(
        &collected.rows,
        &collected.tokens,
        errors,
        prepared.options.num_return_sequences,
        sources.skips_errors,
    )
}

/// The value of a mutex. After a panic, which reaches the caller, nothing reads the value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the sequences in the order of the sources.
fn collect(
    found: &[Option<Row>],
    tokens: &[u32],
    mut errors: Vec<(usize, Failure)>,
    num_return: usize,
    skips_errors: bool,
) -> Result<Found, Failure> {
    let mut out = Found::default();
    let refused: HashSet<usize> = errors.iter().map(|(index, _)| *index).collect();
    for (index, row) in found.iter().enumerate() {
        if row.is_none() && !refused.contains(&index) {
            let message = format!("source {index} has neither a result nor an error");
            return Err(Failure::new("InternalError", message).with("index", index));
        }
        let finish = row.as_ref().map_or(REFUSED, |row| row.finish);
        if finish == code(Finish::NotFinite) {
            let message =
                format!("source {index}: expected finite scores, found NaN or an infinity");
            let failure = Failure::new("NotFiniteError", message).with("index", index);
            if !skips_errors {
                return Err(failure);
            }
            errors.push((index, failure));
        }
        out.finish.push(finish);
        let mut start = row.as_ref().map_or(0, |row| row.start);
        let sequences = row.as_ref().map(|row| &row.sequences[..]).unwrap_or_default();
        for number in 0..num_return {
            let (end, score) = sequences.get(number).copied().unwrap_or((start, f32::NAN));
            out.ids.push(tokens.get(start..end).unwrap_or_default());
            out.scores.push(score);
            start = end;
        }
    }
    errors.sort_by_key(|(index, _)| *index);
    out.errors = errors;
    Ok(out)
}
