//! `transcribe`: transcribes audio files.

pub(crate) mod arguments;
mod output;
mod stream;

use crate::arguments::UsageError;
use crate::search_arguments::needs;
use crate::streams::{Failure, Streams};
use crate::{progress, show};
use arguments::Transcribe;
use indicatif::ProgressBar;
use output::Outputs;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Config;
use simdformer::search::Strategy;
use simdformer_speech::{
    AudioReader, Channel, Error, FeatureExtractor, InputOptions, Recording, RecordingSummary,
    TranscribeEvent, TranscribeOptions, Transcriber, Transcription, Windows,
};
use simdformer_text::{Family, Tokenizer};
use std::fs;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::Path;

/// Processes all files; returns the exit code.
pub(crate) fn transcribe_files(
    arguments: &Transcribe,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let speech = arguments.speech.as_deref().map(spans).transpose()?;
    let directory = &arguments.model.directory.model;
    let tokenizer = Tokenizer::from_dir(directory)?;
    if tokenizer.family() != Family::Whisper {
        let found = tokenizer.family();
        return Err(format!("expected a model that transcribes (Whisper), found {found:?}").into());
    }
    // Check before gigabytes are read: do features and model match, and do language and task exist?
    let extractor = FeatureExtractor::from_dir(directory)?;
    let checkpoint = Checkpoint::open(directory)?;
    let options = options(arguments, checkpoint.config())?;
    Transcriber::fits(checkpoint.config(), &tokenizer, &extractor, &options)?;
    let outputs = Outputs::new(arguments)?;
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(&tokenizer, &model, streams.notes)?;
        let (bins, samples, rate) = (extractor.bins(), extractor.samples(), extractor.rate());
        let seconds = samples / rate as usize;
        writeln!(streams.notes, "audio: {rate} Hz, {bins} mel bins, windows of {seconds} s")?;
    }
    drop(checkpoint);
    arguments.model.in_pool(|| {
        let engine = arguments.model.engine(model).cache(arguments.cache.dtype).build()?;
        let transcriber = Transcriber::new(engine, tokenizer, extractor, options)?;
        if arguments.stream {
            return stream::transcribe_stream(arguments, transcriber, streams);
        }
        let bar = progress::counter("windows", arguments.reports.quiet);
        let (mut failed, mut cut) = (0, 0);
        for (number, path) in arguments.files.iter().enumerate() {
            let reading = (arguments.input.options(), speech.as_deref());
            let transcribed = match arguments.input.separate_channels {
                true => channels(&transcriber, path, reading, &bar),
                false => file(&transcriber, path, reading, streams.input, &bar),
            };
            failed += usize::from(transcribed.is_err());
            cut +=
                transcribed.as_ref().is_ok_and(|found| found.summary.incomplete.is_some()) as usize;
            bar.suspend(|| outputs.write((number, path), transcribed, streams))?;
        }
        bar.finish_and_clear();
        if failed > 0 {
            let count = arguments.files.len();
            writeln!(streams.notes, "simdformer: {failed} of {count} files were not transcribed")?;
        }
        Ok(u8::from(failed + cut > 0))
    })
}

/// The settings of the checkpoint, with the caller's changes.
fn options(arguments: &Transcribe, config: &Config) -> Result<TranscribeOptions, UsageError> {
    let checks = &arguments.checks;
    let mut options = TranscribeOptions::new(config);
    options.language.clone_from(&arguments.language);
    options.task.clone_from(&arguments.task);
    options.search = arguments.search.options(config)?;
    options.search.num_return_sequences = 1;
    if let Strategy::Sample(sample) = &options.search.strategy {
        options.sample = sample.clone();
        options.temperatures = vec![sample.temperature];
        options.search.strategy = Strategy::Greedy;
    }
    if arguments.batched {
        options.windows = Windows::Batched;
    }
    options.slots = arguments.slots;
    arguments.vad.change(&mut options.vad)?;
    let condition = checks.condition_on_previous_text == Some(true) && arguments.batched;
    let needed = "windows one after the other, not --batched";
    needs(&[("--condition-on-previous-text true", condition)], needed)?;
    options.condition_on_previous_text =
        checks.condition_on_previous_text.unwrap_or(options.condition_on_previous_text);
    options.initial_prompt.clone_from(&checks.initial_prompt);
    options.hotwords.clone_from(&checks.hotwords);
    options.detect_each_window = arguments.detect_each_window;
    options.words = arguments.output.wants_words();
    if checks.no_fallback {
        options.temperatures.truncate(1);
    }
    if !checks.temperatures.is_empty() {
        options.temperatures.clone_from(&checks.temperatures);
    }
    for (given, option) in [
        (checks.no_speech_threshold, &mut options.no_speech_threshold),
        (checks.logprob_threshold, &mut options.logprob_threshold),
        (checks.compression_ratio_threshold, &mut options.compression_ratio_threshold),
    ] {
        *option = given.map(|given| given as f32).or(*option);
    }
    options.timestamps |= arguments.output.timestamps;
    Ok(options)
}

/// The spans of a file of lines, or of JSON.
fn spans(path: &Path) -> Result<Vec<(f64, f64)>, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    if text.trim_start().starts_with('[') {
        let wrong = |error| format!("{name}: expected [[start, end], ...] in seconds: {error}");
        return Ok(serde_json::from_str(&text).map_err(wrong)?);
    }
    let span = |(number, line): (usize, &str)| {
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(start)), Some(Ok(end)), None) => Ok((start, end)),
            _ => Err(format!(
                "{name}, line {}: expected \"start end\" in seconds, found {line:?}",
                number + 1
            )
            .into()),
        }
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(span).collect()
}

/// Transcribes a file, or a pipe, which is read once.
fn file(
    transcriber: &Transcriber,
    path: &Path,
    (options, speech): (InputOptions, Option<&[(f64, f64)]>),
    input: &mut (dyn Read + Send),
    bar: &ProgressBar,
) -> Result<Transcription, Error> {
    if path == Path::new("-") {
        let mut audio = AudioReader::new(input, options)?;
        let recording = Recording { speech, ..Recording::new(&mut audio) };
        return collect(bar, |on_event| transcriber.transcribe_recording(recording, on_event));
    }
    let mut open = || AudioReader::open(path, options);
    if path.is_file() {
        return collect(bar, |on_event| {
            transcriber.transcribe_reopened(&mut open, speech, on_event)
        });
    }
    let mut audio = open()?;
    let recording = Recording { speech, ..Recording::new(&mut audio) };
    collect(bar, |on_event| transcriber.transcribe_recording(recording, on_event))
}

/// Transcribes each channel of a file alone. The file is read for each.
fn channels(
    transcriber: &Transcriber,
    path: &Path,
    (options, speech): (InputOptions, Option<&[(f64, f64)]>),
    bar: &ProgressBar,
) -> Result<Transcription, Error> {
    if !path.is_file() {
        let error = match path.try_exists() {
            Ok(true) => {
                std::io::Error::new(ErrorKind::InvalidInput, "expected a file, found a pipe")
            }
            _ if path == Path::new("-") => std::io::Error::new(
                ErrorKind::InvalidInput,
                "expected a file, found standard input",
            ),
            _ => ErrorKind::NotFound.into(),
        };
        let path = path.display().to_string().into();
        return Err(Error::Io { action: "read", path, error });
    }
    let count = AudioReader::open(path, options)?.channels();
    let one = |channel| {
        let options = InputOptions { channel: Channel::Index(channel), ..options };
        file(transcriber, path, (options, speech), &mut std::io::empty(), bar)
    };
    Ok(Transcription::of_channels((0..count).map(one).collect::<Result<Vec<_>, _>>()?))
}

/// Receives the events of a transcription.
type OnEvent<'e> = dyn FnMut(TranscribeEvent<'_>) -> ControlFlow<()> + 'e;

/// Collects what `transcribe` reports.
fn collect(
    bar: &ProgressBar,
    transcribe: impl FnOnce(&mut OnEvent<'_>) -> Result<RecordingSummary, Error>,
) -> Result<Transcription, Error> {
    let mut found = Transcription::default();
    found.summary = transcribe(&mut |event| {
        match event {
            TranscribeEvent::Window(window) => {
                found.windows.push(window.clone());
                bar.inc(1);
            }
            TranscribeEvent::Segment(segment) => found.segments.push(segment.clone()),
            _ => (),
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
