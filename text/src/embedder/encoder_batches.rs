//! Runs texts through an encoder, many at a time; each result has the same bits as alone.

use crate::error::Error;
use core::fmt;
use core::ops::ControlFlow;
use simdformer::{Engine, OnDone, Source};
use simdformer_tokenize::Encoded;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a text or a pair of texts has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun {
    /// It has no tokens.
    NoTokens,
    /// It has more tokens than the model reads, and must not be cut.
    TooLong {
        /// Its tokens, including special ones.
        tokens: usize,
        /// The most that the model reads.
        most: usize,
    },
    /// It has no tokens beside the prompt, which the pooling leaves out.
    OnlyPrompt {
        /// The tokens of the prompt.
        tokens: usize,
    },
    /// The numbers that the model gives for it are NaN or infinite.
    NotFinite,
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTokens => f.write_str("there are no tokens in it"),
            Self::TooLong { tokens, most } => {
                write!(f, "{tokens} tokens, the model takes {most}")
            }
            Self::OnlyPrompt { tokens } => {
                write!(f, "the prompt has {tokens} tokens, and no other is left to be pooled")
            }
            Self::NotFinite => f.write_str("the model's numbers are NaN or infinite"),
        }
    }
}

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
type Compute<'c, R> = &'c (dyn Fn(&[f32]) -> Result<Result<R, NotRun>, Error> + Sync);

/// The result of a text, or of a query with a text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextResult<R> {
    /// The vector or the score, or why there is none.
    pub result: Result<R, NotRun>,
    /// The tokens of the whole text with its prompt, or of both texts, including special ones.
    pub tokens: usize,
    /// Whether the text, or the longer of the two, was cut.
    pub truncated: bool,
}

/// Computes a result for each text on the threads of the engine. `texts` encodes the next one and says why it is not run.
pub(super) fn compute_results<R: Send>(
    engine: &Engine,
    on_done: &OnDone,
    texts: impl Iterator<Item = Result<(Encoded, Option<NotRun>), Error>>,
    compute: Compute<'_, R>,
) -> Result<Vec<TextResult<R>>, Error> {
    let (mut results, mut encoded) = (Vec::new(), Vec::new());
    for (i, text) in texts.enumerate() {
        if engine.cancel().is_cancelled() {
            return Err(Error::Cancelled);
        }
        let (text, rejected) = text?;
        let (tokens, truncated) = (text.tokens, text.truncated);
        if rejected.is_none() {
            encoded.push((i, text));
        }
        // A placeholder: a text that is run gets its own.
        let result = Err(rejected.unwrap_or(NotRun::NotFinite));
        results.push(TextResult { result, tokens, truncated });
    }
    let sources: Vec<Source<'_>> = encoded.iter().map(|(_, one)| Source::new(&one.ids)).collect();
    let types: Vec<&[u32]> = match engine.model().config().token_types {
        0 | 1 => Vec::new(),
        _ => encoded.iter().map(|(_, one)| &one.types[..]).collect(),
    };
    let found = Mutex::new(&mut results);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    engine.stream_hidden(
        &sources,
        &types,
        &|index: usize, hidden: &[f32]| match compute(hidden) {
            Ok(result) => {
                lock(&found)[encoded[index].0].result = result;
                on_done.add_one();
                ControlFlow::Continue(())
            }
            Err(error) => {
                lock(&failed).get_or_insert(error);
                ControlFlow::Break(())
            }
        },
    )?;
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(results), Err)
}

/// The value of a mutex. After a panic of the caller's function, which reaches the caller, nothing reads the value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
