//! `transcribe`: transcribes WAV files window by window.

use crate::arguments::Transcribe;
use crate::prompt::Prompt;
use crate::{Failure, Streams, progress, show};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::search::{Finish, Hooks, LogitsProcessor, SearchOptions};
use simdformer::{Event, Features, Limits, Model, Session, Source, SourceId};
use simdformer_text::audio::{AudioError, FeatureExtractor, Wav};
use simdformer_text::{Family, Tokenizer};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;

/// The time between two successive time tokens, in seconds.
const STEP: f64 = 0.02;
/// Decoder positions if the config does not define them.
const LONGEST: usize = 448;

/// A window that is not yet transcribed.
struct Window {
    /// The index of its file.
    file: usize,
    /// Its start and end, in seconds.
    span: (f64, f64),
    /// `[frames, bins]`.
    features: Vec<f32>,
}

/// The transcription of a window.
struct Transcript {
    span: (f64, f64),
    ids: Vec<u32>,
    score: f32,
    finish: Finish,
}

/// The result of a file.
#[derive(Default)]
struct Outcome {
    name: String,
    seconds: f64,
    /// The token of its language, if known.
    language: Option<u32>,
    windows: Vec<Transcript>,
    /// Windows that were read but not yet transcribed.
    pending: usize,
    error: Option<String>,
}

/// Processes all files; returns the exit code.
pub(crate) fn run(arguments: &Transcribe, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(directory)?;
    if tokenizer.family() != Family::Whisper {
        let found = tokenizer.family();
        return Err(format!("expected a model that transcribes (Whisper), found {found:?}").into());
    }
    // Check before gigabytes are read: do features and model match, and do language and task exist?
    let extractor = FeatureExtractor::from_dir(directory)?;
    let checkpoint = Checkpoint::open(directory)?;
    let positions = fits(checkpoint.config(), &extractor)?;
    let prompt = Prompt::new(arguments, checkpoint.config(), &tokenizer)?;
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(&tokenizer, &checkpoint, &model, streams.notes)?;
        let (bins, samples, rate) = (extractor.bins(), extractor.samples(), extractor.rate());
        let seconds = samples / rate as usize;
        writeln!(streams.notes, "audio: {rate} Hz, {bins} mel bins, windows of {seconds} s")?;
    }
    drop(checkpoint);
    let options = options(arguments, &model)?;
    let runner = Runner {
        arguments,
        tokenizer: &tokenizer,
        model: &model,
        extractor: &extractor,
        prompt: &prompt,
        options,
        positions,
    };
    arguments.model.in_pool(|| runner.run(streams))
}

/// The encoder positions of a window; an error if the features do not match the model.
fn fits(config: &Config, extractor: &FeatureExtractor) -> Result<usize, Failure> {
    let Some(stem) = config.stem else {
        return Err(
            "expected a model whose encoder reads features, found one that reads text".into()
        );
    };
    let (bins, found) = (stem.bins, extractor.bins());
    if bins != found {
        return Err(format!("feature_size: the model takes {bins}, found {found}").into());
    }
    let positions = extractor.frames().div_ceil(2);
    match config.max_positions(Side::Encoder) {
        Some(most) if most != positions => {
            let (takes, found) = (2 * most, extractor.frames());
            Err(format!("chunk_length: the model takes {takes} frames, found {found}").into())
        }
        _ => Ok(positions),
    }
}

/// The search options of the checkpoint, with the caller's changes.
fn options(arguments: &Transcribe, model: &Model) -> Result<SearchOptions, Failure> {
    let mut options = arguments.search.options(model.config())?;
    options.num_return_sequences = 1;
    options.scores = arguments.json;
    Ok(options)
}

struct Runner<'r> {
    arguments: &'r Transcribe,
    tokenizer: &'r Tokenizer,
    model: &'r Model,
    extractor: &'r FeatureExtractor,
    prompt: &'r Prompt,
    options: SearchOptions,
    /// Encoder positions per window.
    positions: usize,
}

/// The progress of a run.
struct State<'r> {
    /// Created for the first windows, because the number of windows per batch is not known before.
    session: Option<Session<'r>>,
    windows: Vec<Window>,
    /// Files that are not yet written.
    answers: VecDeque<Outcome>,
    written: usize,
    failed: usize,
    /// Windows that were transcribed: the number of the next random stream.
    transcribed: u64,
    progress: ProgressBar,
}

impl<'r> Runner<'r> {
    fn run(&self, streams: &mut Streams<'_>) -> Result<u8, Failure> {
        let mut state = State {
            session: None,
            windows: Vec::new(),
            answers: VecDeque::new(),
            written: 0,
            failed: 0,
            transcribed: 0,
            progress: progress::counter("windows", self.arguments.reports.quiet),
        };
        let input = Path::new("-");
        for path in &self.arguments.files {
            let name = path.display().to_string();
            state.answers.push_back(Outcome { name, ..Outcome::default() });
            let read = match path {
                path if path == input => {
                    let wav = Wav::new(&mut *streams.input);
                    self.file(wav, &mut state)?
                }
                path => self.file(Wav::open(path), &mut state)?,
            };
            if let Some(answer) = state.answers.back_mut()
                && let Err(error) = read
            {
                answer.error = Some(error.to_string());
            }
            self.write(&mut state, streams)?;
        }
        self.transcribe_windows(&mut state)?;
        self.write(&mut state, streams)?;
        state.progress.finish_and_clear();
        if state.failed > 0 {
            let (failed, done) = (state.failed, state.written);
            writeln!(streams.notes, "simdformer: {failed} of {done} files were not transcribed")?;
        }
        Ok(u8::from(state.failed > 0))
    }

    /// Reads a file to its end. Windows are transcribed whenever a full batch of them was read.
    fn file<R: Read>(
        &self,
        wav: Result<Wav<R>, AudioError>,
        state: &mut State<'r>,
    ) -> Result<Result<(), AudioError>, Failure> {
        let mut wav = match wav.and_then(|wav| self.extractor.takes(&wav).map(|()| wav)) {
            Ok(wav) => wav,
            Err(error) => return Ok(Err(error)),
        };
        let file = state.written + state.answers.len() - 1;
        let rate = f64::from(wav.rate());
        let mut samples = vec![0.0; self.extractor.samples()];
        let mut from = 0;
        loop {
            let read = match wav.read(&mut samples) {
                Ok(0) => return Ok(Ok(())),
                Ok(read) => read,
                Err(error) => return Ok(Err(error)),
            };
            let mut features = vec![0.0; self.extractor.len()];
            if let Err(error) = self.extractor.extract(&samples[..read], &mut features) {
                return Ok(Err(error));
            }
            let span = (from as f64 / rate, (from + read) as f64 / rate);
            from += read;
            state.windows.push(Window { file, span, features });
            if let Some(answer) = state.answers.back_mut() {
                answer.pending += 1;
                answer.seconds = span.1;
            }
            if state.windows.len() == self.arguments.slots {
                self.transcribe_windows(state)?;
            }
        }
    }

    /// Transcribes the windows that were read.
    fn transcribe_windows(&self, state: &mut State<'r>) -> Result<(), Failure> {
        let windows = std::mem::take(&mut state.windows);
        if windows.is_empty() {
            return Ok(());
        }
        let session = match &mut state.session {
            Some(session) if session.plan().limits().sentences >= windows.len() => session,
            session => session.insert(self.session(windows.len())?),
        };
        let first = state.written;
        let bins = self.extractor.bins();
        let mut prefixes = Vec::new();
        for window in &windows {
            let answer = &mut state.answers[window.file - first];
            if answer.language.is_none() {
                answer.language = self.language(session, Features::new(&window.features, bins))?;
            }
            prefixes.push(self.prompt.prefix(answer.language));
        }
        let sources: Vec<Source<'_>> = windows
            .iter()
            .zip(&prefixes)
            .zip(state.transcribed..)
            .map(|((window, prefix), stream)| Source {
                prefix,
                stream,
                ..Source::of_features(Features::new(&window.features, bins))
            })
            .collect();
        let mut options = self.options.clone();
        let fitting = session.search_options();
        match self.arguments.search.max_new_tokens {
            // At most as many tokens as the model has positions.
            Some(most) => {
                let longest = prefixes.iter().map(Vec::len).max().unwrap_or(0);
                let space = session.plan().limits().target_tokens.saturating_sub(longest);
                (options.max_new_tokens, options.max_length) = (Some(most.min(space.max(1))), None);
            }
            None => {
                (options.max_new_tokens, options.max_length) =
                    (fitting.max_new_tokens, fitting.max_length);
            }
        }
        let mut rule = self.prompt.timestamps;
        let mut rules: Vec<&mut dyn LogitsProcessor> = Vec::new();
        if let Some(rule) = &mut rule {
            rules.push(rule);
        }
        let mut hooks = Hooks { processors: &mut rules, ..Hooks::default() };
        let mut transcript: Vec<Option<Transcript>> = windows.iter().map(|_| None).collect();
        let progress = &state.progress;
        session.generate(&sources, &options, &mut hooks, &mut |event| {
            if let Event::Done(done) = event {
                let best = done.hypotheses().next();
                transcript[done.source] = Some(Transcript {
                    span: windows[done.source].span,
                    ids: best.map(|best| best.tokens.to_vec()).unwrap_or_default(),
                    score: best.map_or(0.0, |best| best.score),
                    finish: done.finish,
                });
                progress.inc(1);
            }
        })?;
        state.transcribed += windows.len() as u64;
        for (window, transcript) in windows.iter().zip(transcript) {
            let answer = &mut state.answers[window.file - first];
            answer.pending -= 1;
            if transcript.as_ref().is_some_and(|transcript| transcript.finish == Finish::NotFinite)
            {
                answer.error = Some("the model's scores are NaN or infinite".to_owned());
            }
            answer.windows.extend(transcript);
        }
        Ok(())
    }

    fn session(&self, windows: usize) -> Result<Session<'r>, Failure> {
        let options = &self.options;
        let positions = self.model.config().max_positions(Side::Decoder).unwrap_or(LONGEST);
        let limits = Limits {
            beams: options.sequences(),
            end_tokens: options.eos.len().max(1),
            cache: self.arguments.cache.dtype,
            // The last token is not an input of the decoder.
            ..Limits::new(windows, self.positions, positions.saturating_sub(1).max(1))
        };
        let mut session = Session::new(self.model, limits)?;
        session.set_threads(self.arguments.model.threads());
        Ok(session)
    }

    /// The language of a file: the caller's, the checkpoint's, or the language detected in its first window.
    fn language(
        &self,
        session: &mut Session<'_>,
        features: Features<'_>,
    ) -> Result<Option<u32>, Failure> {
        let Some(known) = self.prompt.to_detect() else { return Ok(self.prompt.language) };
        session.clear();
        let mut sentence = [SourceId::default()];
        session.encode_features(&[features], &mut sentence)?;
        let language = session.detect_language(sentence[0], self.options.start, known)?;
        session.clear();
        Ok(Some(language))
    }

    /// Writes the complete files, in order.
    fn write(&self, state: &mut State<'_>, streams: &mut Streams<'_>) -> Result<(), Failure> {
        let progress = state.progress.clone();
        progress.suspend(|| self.write_complete(state, streams))
    }

    fn write_complete(
        &self,
        state: &mut State<'_>,
        streams: &mut Streams<'_>,
    ) -> Result<(), Failure> {
        // The last file may still be read while its windows are transcribed, but not when this function is called.
        while state.answers.front().is_some_and(|answer| answer.pending == 0) {
            let Some(answer) = state.answers.pop_front() else { break };
            state.written += 1;
            state.failed += usize::from(answer.error.is_some());
            self.note(&answer, streams.notes)?;
            if self.arguments.json {
                writeln!(streams.out, "{}", self.json(&answer))?;
            } else if answer.error.is_some() {
                // The transcription is incomplete: print a blank line if each file is one line.
                if self.prompt.timestamps.is_none() {
                    writeln!(streams.out)?;
                }
            } else if self.prompt.timestamps.is_some() {
                self.segments(&answer).iter().try_for_each(|segment| {
                    let (from, to, text) = segment;
                    writeln!(streams.out, "[{from:.2} -> {to:.2}] {}", line(text))
                })?;
            } else {
                writeln!(streams.out, "{}", line(&self.text(&answer)))?;
            }
            streams.out.flush()?;
        }
        Ok(())
    }

    /// Writes notes about an answer.
    fn note(&self, answer: &Outcome, notes: &mut dyn Write) -> Result<(), Failure> {
        let name = &answer.name;
        if let Some(error) = &answer.error {
            writeln!(notes, "simdformer: {name}: {error}")?;
            return Ok(());
        }
        let (windows, seconds) = (answer.windows.len(), answer.seconds);
        if windows > 1 {
            let window = self.extractor.samples() / self.extractor.rate() as usize;
            let what = format!("{seconds:.1} s, heard as {windows} windows of {window} s");
            writeln!(notes, "simdformer: {name}: {what}, at whose edges a word may be cut")?;
        }
        for transcript in
            answer.windows.iter().filter(|transcript| transcript.finish != Finish::End)
        {
            let (at, tokens) = (transcript.span.0, transcript.ids.len());
            let what = format!("the text from {at:.1} s on was cut after {tokens} tokens");
            writeln!(notes, "simdformer: {name}: {what}")?;
        }
        Ok(())
    }

    fn json(&self, answer: &Outcome) -> Value {
        if let Some(error) = &answer.error {
            return json!({"file": answer.name, "text": null, "error": error});
        }
        let finish = |finish| match finish {
            Finish::End => "end",
            Finish::Length => "length",
            Finish::Stopped => "stopped",
            Finish::Exhausted => "exhausted",
            Finish::NotFinite => "not finite",
        };
        let windows: Vec<Value> = answer
            .windows
            .iter()
            .map(|transcript| {
                json!({
                    "start": transcript.span.0, "end": transcript.span.1, "ids": transcript.ids,
                    "score": transcript.score, "finish": finish(transcript.finish),
                })
            })
            .collect();
        let language = answer.language.and_then(|id| self.prompt.name(id));
        let mut line = json!({
            "file": answer.name, "text": self.text(answer).trim(), "language": language,
            "seconds": answer.seconds, "windows": windows,
        });
        if self.prompt.timestamps.is_some() {
            let segments = self.segments(answer);
            let segment = |(from, to, text): &(f64, f64, String)| json!({"start": from, "end": to, "text": text.trim()});
            line["segments"] = segments.iter().map(segment).collect();
        }
        line
    }

    /// The text of all windows. Spaces between words are part of the tokens.
    fn text(&self, answer: &Outcome) -> String {
        answer.windows.iter().map(|transcript| self.tokenizer.decode(&transcript.ids)).collect()
    }

    /// The segments with start and end, in seconds of the file. A segment without time tokens uses the times of its
    /// neighbors, or those of its window.
    fn segments(&self, answer: &Outcome) -> Vec<(f64, f64, String)> {
        let mut segments = Vec::new();
        for Transcript { span, ids, .. } in &answer.windows {
            let (mut from, mut at) = (span.0, 0);
            let mut end = |at: usize, to: usize, from: f64, until: f64| {
                let text = self.tokenizer.decode(&ids[at..to]);
                if !text.trim().is_empty() {
                    segments.push((from, until, text));
                }
            };
            for (i, &id) in ids.iter().enumerate() {
                if let Some(time) = self.prompt.time(id) {
                    let time = span.0 + STEP * f64::from(time);
                    end(at, i, from, time);
                    (from, at) = (time, i + 1);
                }
            }
            end(at, ids.len(), from, span.1);
        }
        segments
    }
}

/// The output of a text is one line, even if the model writes two.
fn line(text: &str) -> String {
    text.trim().chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }).collect()
}
