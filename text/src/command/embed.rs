//! `embed`: computes a vector for each text from the hidden states, as the directory defines.

use crate::arguments::Embed;
use crate::encoder_batches;
use crate::inputs::Inputs;
use crate::vector_formats::{Npy, Vectors};
use crate::{Failure, Streams, progress, show};
use indicatif::ProgressBar;
use simdformer::Model;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Side;
use simdformer::task_heads::SentenceHead;
use simdformer_text::{Direction, Encoded, Tokenizer};
use std::io::Write;

/// Texts that are read, run and written as one block.
const BLOCK: usize = 512;

/// Processes all texts; returns the exit code.
pub(crate) fn run(arguments: &Embed, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(encoder_batches::folder(directory)?)?;
    // Check before gigabytes are read: does the model encode single texts, and does the directory define a vector?
    tokenizer.encode("", &Direction::default())?;
    let checkpoint = Checkpoint::open(directory)?;
    let head = SentenceHead::open(directory, checkpoint.config().d_model)?;
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(&tokenizer, &checkpoint, &model, streams.notes)?;
        let names: Vec<&str> = head.pooling().iter().map(|pooling| pooling.name()).collect();
        let unit = if head.normalizes() { ", of length 1" } else { "" };
        let (names, width) = (names.join(", "), head.width());
        writeln!(streams.notes, "vectors: {names}, {width} numbers{unit}")?;
    }
    drop(checkpoint);
    if head.assumed() {
        let what = "no modules.json: a vector is the mean of its text's tokens";
        writeln!(streams.notes, "simdformer: {what}")?;
    }
    let (most, cut) = longest(&tokenizer, &head, &model);
    let tokenizer = tokenizer.with_max_tokens(most);
    let cut = cut || arguments.texts.truncate;
    let runner = Runner { arguments, tokenizer: &tokenizer, model: &model, head: &head, cut };
    arguments.model.in_pool(|| runner.run(streams))
}

/// The maximum number of tokens of a text, and whether longer texts are truncated. They are truncated if the
/// directory defines a maximum length and the model has that many positions.
fn longest(tokenizer: &Tokenizer, head: &SentenceHead, model: &Model) -> (Option<usize>, bool) {
    let positions = model.config().max_positions(Side::Encoder);
    let least = |a: Option<usize>| a.into_iter().chain(positions).min();
    match head.max_tokens() {
        Some(wanted) => (least(Some(wanted)), positions.is_none_or(|most| wanted <= most)),
        None => (least(tokenizer.max_tokens()), false),
    }
}

struct Runner<'r> {
    arguments: &'r Embed,
    tokenizer: &'r Tokenizer,
    model: &'r Model,
    head: &'r SentenceHead,
    /// Whether long texts are truncated.
    cut: bool,
}

impl Runner<'_> {
    fn run(&self, streams: &mut Streams<'_>) -> Result<u8, Failure> {
        let Streams { input, out, notes, .. } = streams;
        let texts = &self.arguments.texts;
        let mut inputs = Inputs::new(texts, texts.whole(false), *input)?;
        let mut vectors = match &self.arguments.npy {
            Some(path) => Vectors::Npy(Npy::new(path, self.head.width())?),
            None if self.arguments.table => Vectors::Table(Vec::new()),
            None => Vectors::Lines,
        };
        let (mut done, mut failed) = (0, 0);
        let progress = progress::counter("texts", self.arguments.reports.quiet);
        loop {
            let texts = inputs.take(BLOCK)?;
            if texts.is_empty() {
                break;
            }
            let answers = self.block(&texts, &progress)?;
            progress.suspend(|| {
                for (text, answer) in texts.iter().zip(answers) {
                    done += 1;
                    let Outcome { vector, too_long, error } = answer;
                    if let Some(error) = &error {
                        failed += 1;
                        writeln!(notes, "simdformer: text {done}: {error}")?;
                    } else if let Some(tokens) = too_long {
                        writeln!(notes, "simdformer: text {done} has {tokens} tokens and was cut")?;
                    }
                    vectors.add(text, error.is_none().then_some(vector), *out)?;
                }
                out.flush().map_err(Failure::from)
            })?;
        }
        progress.finish_and_clear();
        vectors.end(*out)?;
        if failed > 0 {
            writeln!(notes, "simdformer: {failed} of {done} texts were not run")?;
        }
        Ok(u8::from(failed > 0))
    }

    /// Computes the answer to each text. A blank text is run too: its special tokens have a vector.
    fn block(&self, texts: &[String], progress: &ProgressBar) -> Result<Vec<Outcome>, Failure> {
        let mut answers = vec![Outcome::default(); texts.len()];
        let mut encoded: Vec<(usize, Encoded)> = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let one = self.tokenizer.encode(text, &Direction::default())?;
            answers[i].too_long = one.truncated.then_some(one.tokens);
            answers[i].error = encoder_batches::rejected(&one, self.model, self.cut);
            if answers[i].error.is_none() {
                encoded.push((i, one));
            }
        }
        let run: Vec<&Encoded> = encoded.iter().map(|(_, one)| one).collect();
        let mut scratch = vec![0.0; self.head.scratch_floats()];
        encoder_batches::run(
            self.model,
            &self.arguments.model,
            self.arguments.texts.slots,
            &run,
            &mut |number, hidden| {
                let mut vector = vec![0.0; self.head.width()];
                self.head.apply(hidden, &mut scratch, &mut vector)?;
                answers[encoded[number].0].vector = vector;
                progress.inc(1);
                Ok(())
            },
        )?;
        Ok(answers)
    }
}

/// The result of a text.
#[derive(Clone, Debug, Default)]
struct Outcome {
    vector: Vec<f32>,
    /// The number of tokens of a text that is longer than the model's limit.
    too_long: Option<usize>,
    /// Why there is no vector.
    error: Option<String>,
}
