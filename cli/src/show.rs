//! Shows the content of a directory: languages, and the loaded model.

use crate::loading;
use crate::streams::{Failure, Streams};
use simdformer::search::{SearchOptions, Strategy};
use simdformer::{LoadOptions, Model};
use simdformer_text::Tokenizer;
use simdformer_text::argos::{Package, open_checkpoint, open_tokenizer};
use std::io::Write;
use std::path::Path;

pub(crate) fn languages(model: &Path, out: &mut dyn Write) -> Result<u8, Failure> {
    if Package::is_package(model) {
        let package = Package::open(model)?;
        writeln!(out, "{}\n{}", package.source(), package.target())?;
        return Ok(0);
    }
    let tokenizer = Tokenizer::from_dir(model)?;
    for language in tokenizer.languages().unwrap_or_default() {
        writeln!(out, "{}", language.code())?;
    }
    Ok(0)
}

pub(crate) fn model(path: &Path, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let tokenizer = open_tokenizer(path)?;
    let checkpoint = open_checkpoint(path)?;
    // This is computed before gigabytes are read.
    let needed = Model::requirements(&checkpoint, LoadOptions::default())?;
    writeln!(streams.out, "needs {needed}")?;
    for file in checkpoint.files() {
        writeln!(streams.out, "weights: {file}")?;
    }
    streams.out.flush()?;
    let model = loading::load(&checkpoint, LoadOptions::default(), false)?;
    loaded(&tokenizer, &model, streams.out)?;
    for note in model.notes() {
        writeln!(streams.out, "note: {note}")?;
    }
    writeln!(streams.out, "fingerprint: {:032x}", model.fingerprint())?;
    Ok(0)
}

/// Prints the model and the search options of the checkpoint.
pub(crate) fn loaded(
    tokenizer: &Tokenizer,
    model: &Model,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "{model}")?;
    let languages = tokenizer.languages().map_or(0, <[_]>::len);
    write!(out, "text: {:?}, {languages} languages", tokenizer.family())?;
    match tokenizer.max_tokens() {
        Some(most) => writeln!(out, ", at most {most} tokens")?,
        None => writeln!(out)?,
    }
    for (key, value) in model.defaults() {
        writeln!(out, "not in config.json: {key}, taken as {value}")?;
    }
    // Models with only an encoder have no search.
    if model.config().decoder.is_some() {
        writeln!(out, "asks for: {}", describe_search(&model.config().search_options()))?;
    }
    let ignored = &model.config().unsupported;
    if !ignored.is_empty() {
        writeln!(out, "asks for and does not get: {}", ignored.join(", "))?;
    }
    Ok(())
}

/// Prints the prompt of vectors and scores, if there is one.
pub(crate) fn prompt(prompt: &str, out: &mut dyn Write) -> Result<(), Failure> {
    if !prompt.is_empty() {
        writeln!(out, "prompt: {prompt:?}")?;
    }
    Ok(())
}

/// The search options of a checkpoint that differ from the simplest ones.
fn describe_search(options: &SearchOptions) -> String {
    let mut parts = vec![match &options.strategy {
        Strategy::Greedy => "greedy search".to_owned(),
        Strategy::Beam(beam) => {
            format!("{} beams, length penalty {}", beam.beams, beam.length_penalty)
        }
        Strategy::Sample(_) => "samples".to_owned(),
    }];
    let number = |what: &str, number: Option<usize>| number.map(|n| format!("{what} {n}"));
    parts.extend(number("max_length", options.max_length));
    parts.extend(number("max_new_tokens", options.max_new_tokens));
    parts.extend(number("min_length", Some(options.min_length).filter(|&n| n > 0)));
    parts.extend(number("no_repeat_ngram_size", options.no_repeat_ngram));
    if options.repetition_penalty != 1.0 {
        parts.push(format!("repetition_penalty {}", options.repetition_penalty));
    }
    parts.extend(number("bad_words", Some(options.bad_words.len()).filter(|&n| n > 0)));
    parts.join(", ")
}
