//! `embed`: computes a vector for each text from the hidden states, as the directory defines.

use crate::arguments::Embed;
use crate::inputs::Inputs;
use crate::streams::{Failure, Streams};
use crate::vector_formats::Vectors;
use crate::{output_file, progress, show};
use indicatif::ProgressBar;
use simdformer::checkpoint::Checkpoint;
use simdformer_text::embedder::{EmbedOptions, Embedder, EmbedderSetup, NotRun, TextResult};
use simdformer_text::{Direction, Tokenizer};
use std::io::Write;
use std::path::PathBuf;

/// Texts that are read, run and written as one block.
const BLOCK: usize = 512;

/// Processes all texts; returns the exit code.
pub(crate) fn embed_texts(arguments: &Embed, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(directory)?;
    // Check before gigabytes are read: does the model encode single texts, and does the directory define a vector?
    tokenizer.encode("", &Direction::default())?;
    let checkpoint = Checkpoint::open(directory)?;
    let options = EmbedOptions {
        prompt: arguments.prompt.choice(),
        dims: arguments.dims,
        // Without the option the directory decides.
        truncate: arguments.texts.truncate.then_some(true),
        max_tokens: None,
    };
    let setup = EmbedderSetup::from_directory(directory, tokenizer, &checkpoint, &options)?;
    let written = arguments.npy.iter().chain(&arguments.save_ranges).map(PathBuf::as_path);
    let read = arguments.texts.files.iter().chain(&arguments.ranges).map(PathBuf::as_path);
    let (written, read): (Vec<_>, Vec<_>) = (written.collect(), read.collect());
    output_file::refuse_inputs(&written, &read, directory)?;
    let vectors = Vectors::new(arguments, setup.width())?;
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(setup.tokenizer(), &model, streams.notes)?;
        let names: Vec<&str> = setup.head().pooling().iter().map(|one| one.name()).collect();
        let unit = if setup.normalizes() { ", of length 1" } else { "" };
        let (names, width) = (names.join(", "), setup.width());
        writeln!(streams.notes, "vectors: {names}, {width} numbers{unit}")?;
        show::prompt(setup.prompt(), streams.notes)?;
    }
    drop(checkpoint);
    if setup.head().assumed() {
        let what = "no modules.json: a vector is the mean of its text's tokens";
        writeln!(streams.notes, "simdformer: {what}")?;
    }
    let engine = arguments.texts.engine(&arguments.model, model).build()?;
    let mut embedder = Embedder::new(engine, setup);
    let progress = progress::counter("texts", arguments.reports.quiet);
    let counter = progress.clone();
    embedder.set_on_done(move |_| counter.inc(1));
    arguments.model.in_pool(|| texts(arguments, (&embedder, &progress), vectors, streams))
}

fn texts(
    arguments: &Embed,
    (embedder, progress): (&Embedder, &ProgressBar),
    mut vectors: Vectors,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let Streams { input, out, notes, .. } = streams;
    let mut inputs = Inputs::new(&arguments.texts, arguments.texts.whole(false), *input)?;
    let (mut done, mut failed) = (0, 0);
    loop {
        let texts = inputs.take(BLOCK)?;
        if texts.is_empty() {
            break;
        }
        let embeddings = embedder.embed(&texts)?;
        progress.suspend(|| {
            for (text, TextResult { result: vector, tokens, truncated }) in
                texts.iter().zip(embeddings)
            {
                done += 1;
                if let Err(why) = &vector {
                    failed += 1;
                    writeln!(notes, "simdformer: text {done}: {}", reason(why))?;
                } else if truncated {
                    writeln!(notes, "simdformer: text {done} has {tokens} tokens and was cut")?;
                }
                vectors.add(text, vector.ok(), *out)?;
            }
            out.flush().map_err(Failure::from)
        })?;
    }
    progress.finish_and_clear();
    vectors.end(*out, *notes)?;
    if failed > 0 {
        writeln!(notes, "simdformer: {failed} of {done} texts were not run")?;
    }
    Ok(u8::from(failed > 0))
}

/// Why a text was not run, and which option runs it.
pub(crate) fn reason(why: &NotRun) -> String {
    match why {
        NotRun::TooLong { .. } => format!("{why}; --truncate cuts it"),
        why => why.to_string(),
    }
}
