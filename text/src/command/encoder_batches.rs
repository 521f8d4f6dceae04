//! Runs texts through an encoder, many at a time; each result has the same bits as alone.

use crate::Failure;
use crate::arguments::ModelArguments;
use serde_json::Value;
use simdformer::config::Side;
use simdformer::{Limits, Model, Session};
use simdformer_text::Encoded;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// Tokens per run, if no text has more.
const TOKENS_PER_RUN: usize = 4096;

/// The maximum size of a `modules.json` in bytes, as in the model's own reader; published ones have a hundredth of
/// it.
const MODULES: u64 = 1 << 16;

/// The directory of the tokenizer: that of the transformer, which sentence-transformers may store in a subfolder.
///
/// # Errors
/// A `modules.json` is not a regular file, or is too large.
pub(crate) fn folder(directory: &Path) -> Result<PathBuf, Failure> {
    let whole = || Ok(directory.to_owned());
    if directory.join("config.json").exists() {
        return whole();
    }
    let Some(text) = modules(&directory.join("modules.json"))? else { return whole() };
    // Errors in the file are reported by the code that reads its modules.
    let modules: Value = serde_json::from_slice(&text).unwrap_or_default();
    let is = |module: &&Value| {
        module["type"].as_str().is_some_and(|kind| kind.ends_with(".Transformer"))
    };
    let found = modules.as_array().and_then(|modules| modules.iter().find(is));
    let Some(path) = found.and_then(|module| module["path"].as_str()) else { return whole() };
    let mut parts = Path::new(path).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(directory.join(path)),
        _ => whole(),
    }
}

/// The bytes of a `modules.json`, if it exists. A pipe is not opened, because opening it blocks.
fn modules(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display()).into()),
    };
    if !about.is_file() {
        return Err(format!("{}: expected a regular file, found none", path.display()).into());
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MODULES + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if bytes.len() as u64 > MODULES {
        let found = about.len().max(MODULES + 1);
        let path = path.display();
        return Err(format!("{path}: expected at most {MODULES} bytes, found {found}").into());
    }
    Ok(Some(bytes))
}

/// Why a text is not run: it is longer than the model's limit and must not be truncated, or it has no tokens. `None`
/// if it can be run.
pub(crate) fn rejected(one: &Encoded, model: &Model, cut: bool) -> Option<String> {
    let positions = model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
    if one.ids.is_empty() {
        return Some("there are no tokens in it".to_owned());
    }
    if one.ids.len() > positions || (one.truncated && !cut) {
        let most = one.ids.len().min(positions);
        return Some(format!("{} tokens, the model takes {most}; --truncate cuts it", one.tokens));
    }
    None
}

/// Receives the index and the hidden states of a text.
type Each<'e> = dyn FnMut(usize, &[f32]) -> Result<(), Failure> + 'e;

/// Calls `each` with the index and the hidden states, `[tokens, d_model]`, of every text, in order. At most `slots`
/// texts are run at a time.
pub(crate) fn run(
    model: &Model,
    arguments: &ModelArguments,
    slots: usize,
    texts: &[&Encoded],
    each: &mut Each<'_>,
) -> Result<(), Failure> {
    let config = model.config();
    let Some(longest) = texts.iter().map(|one| one.ids.len()).max() else { return Ok(()) };
    let slots = slots.min(texts.len());
    let limits = Limits::encoder(slots, longest);
    let limits = Limits {
        batch_tokens: limits.batch_tokens.min(TOKENS_PER_RUN).max(longest),
        // If the model has a decoder, plan the minimum for it.
        target_tokens: usize::from(config.decoder.is_some()),
        ..limits
    };
    let mut session = Session::new(model, limits)?;
    session.set_threads(arguments.threads());
    let mut from = 0;
    while from < texts.len() {
        let mut tokens = 0;
        let fits = texts[from..].iter().take(slots).take_while(|one| {
            tokens += one.ids.len();
            tokens <= limits.batch_tokens
        });
        let batch = &texts[from..from + fits.count().max(1)];
        let ids: Vec<&[u32]> = batch.iter().map(|one| &one.ids[..]).collect();
        let hidden = if config.token_types > 1 {
            let types: Vec<&[u32]> = batch.iter().map(|one| &one.types[..]).collect();
            session.encoder_output_of_types(&ids, &types)?
        } else {
            session.encoder_output(&ids)?
        };
        let mut rest = hidden;
        for (i, one) in batch.iter().enumerate() {
            let (own, after) = rest.split_at(one.ids.len() * config.d_model);
            each(from + i, own)?;
            rest = after;
        }
        from += batch.len();
    }
    Ok(())
}
