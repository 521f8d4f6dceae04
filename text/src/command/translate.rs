//! `translate` and `summarize`: encode texts, run the model, and decode the output.

use crate::arguments::TextToText;
use crate::explain::{self, Recorder, Step};
use crate::inputs::Inputs;
use crate::search_arguments::check;
use crate::{Failure, Streams, progress, show};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::search::{Finish, Hooks, Observation, Observer, SearchOptions, Strategy};
use simdformer::{Event, Limits, Model, Session, Source};
use simdformer_text::{Direction, Encoded, Family, Tokenizer};
use std::cell::RefCell;
use std::io::Write;

/// Texts that are read, run and written as one block.
const BLOCK: usize = 512;
/// The maximum output length if neither the checkpoint nor the caller sets one.
const LONGEST: usize = 256;

/// A text that the model wrote.
#[derive(Clone, Debug, Default, Serialize)]
struct Sequence {
    text: String,
    score: f32,
    tokens: usize,
}

/// The result of a text.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// As many as asked for, best first, or less if the search found no more.
    sequences: Vec<Sequence>,
    finish: Option<Finish>,
    /// The lines before the steps, and the steps; only with `--explain`.
    explanation: Option<(String, Vec<Step>)>,
    /// The number of tokens of a text that is longer than the model's limit.
    too_long: Option<usize>,
    /// Why there is no output text.
    error: Option<String>,
}

/// Processes all texts, each a whole file if `whole` and if the options do not say otherwise; returns the exit code.
pub(crate) fn run(
    arguments: &TextToText,
    whole: bool,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(directory)?;
    let direction =
        Direction { source: arguments.from.as_deref(), target: arguments.to.as_deref() };
    if let (Some(languages), None) = (tokenizer.languages(), &arguments.to)
        && matches!(tokenizer.family(), Family::Marian | Family::T5)
    {
        // Other models fail without a target language; the output language of these models is undefined without one.
        let many = languages.len();
        writeln!(streams.notes, "simdformer: the model has {many} languages, --to chooses one")?;
    }
    // Check the languages before gigabytes are read.
    let prefix = tokenizer.encode("", &direction)?.prefix;
    let checkpoint = Checkpoint::open(directory)?;
    let options = options(arguments, checkpoint.config(), &prefix)?;
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(&tokenizer, &checkpoint, &model, streams.notes)?;
    }
    drop(checkpoint);
    let tokenizer = &tokenizer;
    let runner = Runner { arguments, whole, tokenizer, model: &model, options, direction };
    arguments.model.in_pool(|| runner.run(streams))
}

/// The search options of the checkpoint, with the caller's changes.
fn options(
    arguments: &TextToText,
    config: &Config,
    prefix: &[u32],
) -> Result<SearchOptions, Failure> {
    let mut options = arguments.search.options(config)?;
    if let Some(&start) = prefix.first() {
        options.start = start;
    }
    options.num_return_sequences = arguments.num_return_sequences.unwrap_or(1);
    if arguments.stream && options.sequences() > 1 {
        return Err(match options.strategy {
            Strategy::Sample(_) => "--stream writes one sequence of a text",
            _ => "--stream: a beam search decides its text at the end; add --beams 1",
        }
        .into());
    }
    options.scores = arguments.json || arguments.explain.is_some();
    check(&options, config)?;
    Ok(options)
}

struct Runner<'r> {
    arguments: &'r TextToText,
    whole: bool,
    tokenizer: &'r Tokenizer,
    model: &'r Model,
    options: SearchOptions,
    direction: Direction<'r>,
}

impl Runner<'_> {
    fn run(&self, streams: &mut Streams<'_>) -> Result<u8, Failure> {
        let Streams { input, out, notes, .. } = streams;
        let texts = &self.arguments.texts;
        let mut inputs = Inputs::new(texts, texts.whole(self.whole), *input)?;
        let (mut done, mut failed) = (0, 0);
        let alone = self.arguments.stream || self.arguments.explain.is_some();
        let quiet = self.arguments.reports.quiet || alone;
        let progress = progress::counter("texts", quiet);
        loop {
            let texts = inputs.take(if alone { 1 } else { BLOCK })?;
            if texts.is_empty() {
                break;
            }
            let answers = self.block(&texts, done, &progress, *out)?;
            progress.suspend(|| {
                for answer in &answers {
                    done += 1;
                    failed += usize::from(answer.error.is_some());
                    self.write(answer, done, *notes, *out)?;
                }
                out.flush().map_err(Failure::from)
            })?;
        }
        progress.finish_and_clear();
        if failed > 0 {
            writeln!(notes, "simdformer: {failed} of {done} texts have no result")?;
        }
        Ok(u8::from(failed > 0))
    }

    /// Computes the answer to each text; `before` texts came before them.
    fn block(
        &self,
        texts: &[String],
        before: usize,
        progress: &ProgressBar,
        out: &mut (dyn Write + Send),
    ) -> Result<Vec<Outcome>, Failure> {
        let mut answers = vec![Outcome::default(); texts.len()];
        let mut encoded: Vec<(usize, Encoded)> = Vec::new();
        let positions = self.model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
        for (i, text) in texts.iter().enumerate() {
            let mut one = self.tokenizer.encode(text, &self.direction)?;
            if one.blank {
                continue;
            }
            if one.truncated || one.ids.len() > positions {
                answers[i].too_long = Some(one.tokens);
                let most = one.ids.len().min(positions);
                if !self.arguments.texts.truncate || one.ids.len() > positions {
                    let found = one.tokens;
                    let takes =
                        format!("{found} tokens, the model takes {most}; --truncate cuts it");
                    answers[i].error = Some(takes);
                    continue;
                }
                one.truncated = true;
            }
            encoded.push((i, one));
        }
        if encoded.is_empty() {
            return Ok(answers);
        }
        let sources: Vec<Source<'_>> = encoded
            .iter()
            .map(|(i, one)| Source {
                prefix: one.prefix.get(1..).unwrap_or_default(),
                forced_bos: one.forced_bos,
                stream: (before + i) as u64,
                ..Source::new(&one.ids)
            })
            .collect();
        let prefix = encoded.iter().map(|(_, one)| one.prefix.len()).max().unwrap_or(1).max(1);
        let limits = self.limits(&encoded, prefix);
        let mut session = Session::new(self.model, limits)?;
        session.set_threads(self.arguments.model.threads());
        let mut options = self.options.clone();
        let fits = session.search_options();
        match self.arguments.search.max_new_tokens {
            // At most as many tokens as the model has positions.
            Some(most) => options.max_new_tokens = Some(most.min(limits.target_tokens - prefix)),
            None => {
                (options.max_length, options.max_new_tokens) =
                    (fits.max_length, fits.max_new_tokens)
            }
        }
        let mut stream = self.tokenizer.stream();
        let mut written = Ok(());
        // Both callbacks of the search record.
        let recorder = self.arguments.explain.map(|listed| {
            let (tokens, text) = (encoded[0].1.ids.len(), &texts[encoded[0].0]);
            let heading = explain::heading(text, tokens, &options);
            (heading, RefCell::new(Recorder::new(self.tokenizer, &options, listed)))
        });
        let recording = || recorder.as_ref().map(|(_, recorder)| recorder.borrow_mut());
        let mut observe = |observation: Observation<'_>| {
            if let Some(mut recorder) = recording() {
                recorder.observe(observation);
            }
        };
        let observer: Option<Observer<'_>> = recorder.as_ref().map(|_| &mut observe as _);
        let mut hooks = Hooks { observer, ..Hooks::default() };
        session.generate(&sources, &options, &mut hooks, &mut |event| match event {
            Event::Step(_) => {
                if let Some(mut recorder) = recording() {
                    recorder.begin_step();
                }
            }
            Event::Token { token, .. } if recorder.is_some() => {
                if let Some(mut recorder) = recording() {
                    recorder.choose(token);
                }
            }
            Event::Token { token, .. } if self.arguments.stream => {
                if let Some(part) = stream.push(token.id)
                    && written.is_ok()
                {
                    written = out.write_all(part.as_bytes()).and_then(|()| out.flush());
                }
            }
            Event::Done(done) => {
                let answer = &mut answers[encoded[done.source].0];
                answer.finish = Some(done.finish);
                if done.finish == Finish::NotFinite {
                    // Tokens that were chosen before the error are incomplete output.
                    answer.error = Some("the model's scores are NaN or infinite".to_owned());
                } else {
                    let sequences = done.hypotheses().map(|hypothesis| Sequence {
                        text: match self.arguments.stream {
                            true => stream.finish().to_owned(),
                            false => self.tokenizer.decode(hypothesis.tokens),
                        },
                        score: hypothesis.score,
                        tokens: hypothesis.tokens.len(),
                    });
                    answer.sequences = sequences.collect();
                }
                progress.inc(1);
            }
            _ => (),
        })?;
        written?;
        if let Some((heading, recorder)) = recorder {
            answers[encoded[0].0].explanation = Some((heading, recorder.into_inner().finish()));
        }
        Ok(answers)
    }

    /// The session limits for these texts, whose decoders begin with at most `prefix` tokens.
    fn limits(&self, encoded: &[(usize, Encoded)], prefix: usize) -> Limits {
        let positions = self.model.config().max_positions(Side::Decoder).unwrap_or(usize::MAX);
        let longest = encoded.iter().map(|(_, one)| one.ids.len()).max().unwrap_or(1);
        let options = &self.options;
        let target = match (options.max_new_tokens, options.max_length) {
            (Some(new), _) => new.saturating_add(prefix),
            (None, Some(length)) => length.max(prefix + 1),
            (None, None) => LONGEST,
        };
        let slots = if self.arguments.stream { 1 } else { self.arguments.texts.slots };
        Limits {
            beams: options.sequences(),
            end_tokens: options.eos.len().max(1),
            cache: self.arguments.cache.dtype,
            ..Limits::new(slots.min(encoded.len()), longest, target.min(positions).max(prefix + 1))
        }
    }

    fn write(
        &self,
        answer: &Outcome,
        number: usize,
        notes: &mut dyn Write,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if let Some(error) = &answer.error {
            writeln!(notes, "simdformer: text {number}: {error}")?;
        } else if let Some(tokens) = answer.too_long {
            writeln!(notes, "simdformer: text {number} has {tokens} tokens and was cut")?;
        }
        let finish = answer.finish.map_or("", |finish| match finish {
            Finish::End => "end",
            Finish::Length => "length",
            Finish::Stopped => "stopped",
            Finish::Exhausted => "exhausted",
            Finish::NotFinite => "not finite",
        });
        if self.arguments.json {
            let line = match (&answer.error, answer.sequences.first().cloned()) {
                (Some(error), _) => json!({"text": null, "error": error}),
                (None, best) => {
                    let best = best.unwrap_or_default();
                    let mut line = json!({
                        "text": best.text, "score": best.score, "tokens": best.tokens,
                        "finish": answer.finish.map(|_| finish), "truncated": answer.too_long.is_some(),
                    });
                    if self.options.num_return_sequences > 1 {
                        line["sequences"] = json!(answer.sequences);
                    }
                    if let Some((_, steps)) = &answer.explanation {
                        line["steps"] = json!(steps);
                    }
                    line
                }
            };
            writeln!(out, "{line}")?;
            return Ok(());
        }
        if let Some((heading, steps)) = &answer.explanation {
            writeln!(out, "{heading}{}", explain::lines(steps, &self.options))?;
        }
        // The output of a text is the same number of lines for every text, even if the model writes two.
        for i in 0..self.options.num_return_sequences {
            let sequence = answer.sequences.get(i);
            let text = sequence.map_or("", |sequence| &sequence.text);
            let line = text.replace(['\n', '\r'], " ");
            match (sequence, &answer.explanation) {
                (Some(sequence), Some(_)) => {
                    out.write_all(explain::result(&line, sequence.score, finish).as_bytes())?;
                }
                _ => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }
}
