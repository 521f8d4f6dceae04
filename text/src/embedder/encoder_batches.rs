//! Runs texts through an encoder, many at a time; each result has the same bits as alone.

use super::NotRun;
use crate::encoding::Encoded;
use crate::error::Error;
use core::ops::ControlFlow;
use simdformer::{Engine, Source};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a text is not run: it is longer than the model's limit and must not be cut, or it has no tokens. `None` if it
/// can be run. `positions` is the most that the model reads.
pub(super) fn rejected(one: &Encoded, positions: Option<usize>, cut: bool) -> Option<NotRun> {
    let positions = positions.unwrap_or(usize::MAX);
    if one.ids.is_empty() {
        return Some(NotRun::NoTokens);
    }
    if one.ids.len() > positions || (one.truncated && !cut) {
        let most = one.ids.len().min(positions);
        return Some(NotRun::TooLong { tokens: one.tokens, most });
    }
    None
}

/// Makes a result of the hidden states of a text, `[tokens, d_model]`.
pub(super) type Compute<'c, R> = &'c (dyn Fn(&[f32]) -> Result<R, Error> + Sync);

/// An error if the calls of `engine` are cancelled.
pub(super) fn check_cancel(engine: &Engine) -> Result<(), Error> {
    if engine.cancel().is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

/// Computes a result for every text on the threads of the engine, and calls `each` with the number that stands with the text,
/// in any order.
pub(super) fn run<R: Send>(
    engine: &Engine,
    texts: &[(usize, Encoded)],
    compute: Compute<'_, R>,
    each: &mut (dyn FnMut(usize, R) + Send),
) -> Result<(), Error> {
    let sources: Vec<Source<'_>> = texts.iter().map(|(_, one)| Source::new(&one.ids)).collect();
    let types: Vec<&[u32]> = match engine.model().config().token_types {
        0 | 1 => Vec::new(),
        _ => texts.iter().map(|(_, one)| &one.types[..]).collect(),
    };
    let each = Mutex::new(each);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    engine.stream_hidden(
        &sources,
        &types,
        &|index: usize, hidden: &[f32]| match compute(hidden) {
            Ok(result) => {
                lock(&each)(texts[index].0, result);
                ControlFlow::Continue(())
            }
            Err(error) => {
                lock(&failed).get_or_insert(error);
                ControlFlow::Break(())
            }
        },
    )?;
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The value of a mutex. After a panic of the caller's function, which reaches the caller, nothing reads the value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
