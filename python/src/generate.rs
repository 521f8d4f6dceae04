//! Ids in, ids out: runs the search over rows, and collects what it finds in the order of the rows.

use crate::arrays::Rows;
use crate::errors::Failure;
use crate::id_session::{IdSession, PreparedSearch};
use core::cmp::Reverse;
use simdformer::search::{Finish, SearchOptions};
use simdformer::{Cancel, Event, SessionError, Source};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Runs the search of `prepared`, fitted to the model, over `sources`, longest first.
///
/// # Errors
/// A refused source, unless they are skipped; options that the model refuses; no memory; a cancelled call.
pub(crate) fn generate(
    session: &mut IdSession,
    prepared: &PreparedSearch,
    (target_tokens, search): &(usize, SearchOptions),
    sources: &Sources,
    cancel: &Cancel,
) -> Result<Found, Failure> {
    let model_positions = session.source_positions();
    let rows = sources.ids.len();
    // A source that the model cannot take is refused below: nothing is planned for it.
    let longest = sources.ids.iter().map(<[u32]>::len).filter(|&len| len <= model_positions).max();
    session.set_cancel(cancel);
    let planned = session.plan(rows, longest.unwrap_or(1), *target_tokens, search)?;
    let prefixes: Vec<Vec<u32>> = (0..sources.prefixes.len())
        .map(|index| [&prepared.prompt, sources.prefixes.row(index)].concat())
        .collect();
    let mut errors = Vec::new();
    let mut accepted: Vec<(usize, Source<'_>)> = Vec::with_capacity(rows);
    for (index, tokens) in sources.ids.iter().enumerate() {
        let stream = sources.streams.as_ref().and_then(|streams| streams.get(index).copied());
        let own_prefix = !sources.prefixes.row(index).is_empty();
        let source = Source {
            prefix: prefixes.get(index).unwrap_or(&prepared.prompt),
            // What the caller forces comes in its place.
            forced_bos: prepared.forced_bos.filter(|_| !own_prefix),
            stream: stream.unwrap_or(index as u64),
            ..Source::new(tokens)
        };
        match planned.plan().check(&source, search) {
            Ok(()) => accepted.push((index, source)),
            Err(error) => {
                let failure = Failure::from(of_source(error, index));
                if !sources.skips_errors {
                    return Err(failure);
                }
                errors.push((index, failure));
            }
        }
    }
    accepted.sort_by_key(|(_, source)| Reverse(source.tokens.len()));
    let (order, inputs): (Vec<usize>, Vec<Source<'_>>) = accepted.into_iter().unzip();
    let collected = Mutex::new(Collected { rows: vec![None; rows], tokens: Vec::new() });
    let result = planned.generate(&inputs, search, &|event: Event<'_>| {
        let Event::Done(done) = event else { return };
        if let Some(counter) = &sources.counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        let Collected { rows, tokens } = &mut *collected;
        let start = tokens.len();
        let mut sequences = Vec::new();
        if done.finish != Finish::NotFinite {
            for hypothesis in done.hypotheses() {
                tokens.extend_from_slice(hypothesis.tokens);
                sequences.push((tokens.len(), hypothesis.score));
            }
        }
        if let Some(row) = order.get(done.source).and_then(|&index| rows.get_mut(index)) {
            *row = Some(Row { finish: code(done.finish), start, sequences });
        }
    });
    result.map_err(|error| match error {
        SessionError::Source { index, .. } => {
            of_source(error, order.get(index).copied().unwrap_or(index))
        }
        error => error,
    })?;
    let collected = collected.into_inner().unwrap_or_else(PoisonError::into_inner);
    collect(
        &collected.rows,
        &collected.tokens,
        errors,
        search.num_return_sequences,
        sources.skips_errors,
    )
}

/// The error of a source with its index in the call.
fn of_source(error: SessionError, index: usize) -> SessionError {
    match error {
        SessionError::Source { error, .. } => SessionError::Source { index, error },
        error => error,
    }
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
