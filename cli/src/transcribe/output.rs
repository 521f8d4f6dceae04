//! What `transcribe` writes: texts, phrases or words with times, subtitles, JSON.

use super::arguments::{OutputArguments, Transcribe};
use crate::output_file::{self, cannot_write};
use crate::search_arguments::needs;
use crate::streams::{Failure, Streams};
use serde_json::{Value, json};
use simdformer::atomic_file;
use simdformer::search::Finish;
use simdformer_speech::subtitles::{SubtitleFormat, SubtitleOptions, cues};
use simdformer_speech::{Error, Segment, Transcription, Window, Word};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Seconds between two frames.
const FRAME: f64 = 0.01;

/// A format of results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    /// A line for each phrase, or for each word.
    Times,
    Words,
    Json,
    Subtitles(SubtitleFormat),
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Text | Self::Times | Self::Words => "txt",
            Self::Json => "json",
            Self::Subtitles(format) => format.extension(),
        }
    }
}

/// Where the results go.
pub(crate) struct Outputs {
    formats: Vec<Format>,
    options: SubtitleOptions,
    /// For each format the files of the inputs; `None`: standard output.
    files: Option<Vec<Vec<PathBuf>>>,
}

impl OutputArguments {
    /// Whether words need times.
    pub(crate) fn wants_words(&self) -> bool {
        self.words || self.max_line_width.is_some()
    }
}

impl Outputs {
    /// Checks that the formats can be written where they should be.
    pub(crate) fn new(arguments: &Transcribe) -> Result<Self, Failure> {
        let (inputs, read) = (&arguments.files[..], arguments.speech.as_deref());
        let (model, stream) = (&arguments.model.directory.model, arguments.stream);
        let arguments = &arguments.output;
        let subtitles = |given, format| (given, Format::Subtitles(format));
        let times = if arguments.words { Format::Words } else { Format::Times };
        let mut formats: Vec<Format> = [
            // With JSON, timestamps are a setting of the model.
            (arguments.timestamps && !arguments.json, times),
            (arguments.json, Format::Json),
            subtitles(arguments.srt, SubtitleFormat::Srt),
            subtitles(arguments.vtt, SubtitleFormat::Vtt),
            subtitles(arguments.tsv, SubtitleFormat::Tsv),
        ]
        .into_iter()
        .filter_map(|(given, format)| given.then_some(format))
        .collect();
        let output = arguments.output.as_deref();
        let directory = output.is_some_and(|path| output_file::is_directory(inputs.len(), path));
        if formats.is_empty() {
            let extension = output.filter(|_| !directory).and_then(Path::extension);
            let extension = extension.and_then(OsStr::to_str).unwrap_or_default();
            let subtitles = SubtitleFormat::from_extension(extension).map(Format::Subtitles);
            let json = extension.eq_ignore_ascii_case("json").then_some(Format::Json);
            formats.push(subtitles.or(json).unwrap_or(Format::Text));
        }
        let has = |wanted: fn(&Format) -> bool| formats.iter().any(wanted);
        let cues = has(|format| matches!(format, Format::Subtitles(_)));
        // A stream writes phrases, and words in JSON alone.
        let words =
            has(|&format| format == Format::Json) || !stream && !has(|&f| f == Format::Text);
        let for_words =
            if stream { "--json" } else { "--json, --timestamps, --srt, --vtt or --tsv" };
        needs(&[("--words", arguments.words && !words)], for_words)?;
        let width = arguments.max_line_width.is_some();
        needs(&[("--max-line-width", width && !cues)], "--srt, --vtt or --tsv")?;
        if formats.len() > 1 && !directory {
            return Err("several formats need --output DIR".into());
        }
        let several = inputs.len() > 1 && output.is_none();
        if several && formats.iter().any(|format| matches!(format, Format::Subtitles(_))) {
            return Err("subtitles of several files need --output DIR".into());
        }
        let files = match output {
            None => None,
            Some(output) => {
                let named: Vec<Option<&Path>> = inputs
                    .iter()
                    .map(|path| Some(path.as_path()).filter(|path| *path != Path::new("-")))
                    .collect();
                let of_format = |format: &Format| {
                    let rename = |name: &OsStr| {
                        Path::new(name).with_extension(format.extension()).into_os_string()
                    };
                    output_file::outputs(&named, output, &rename)
                };
                let files = formats.iter().map(of_format).collect::<Result<Vec<_>, _>>()?;
                let written: Vec<&Path> = files.iter().flatten().map(PathBuf::as_path).collect();
                let read: Vec<&Path> = named.into_iter().flatten().chain(read).collect();
                output_file::refuse_inputs(&written, &read, model)?;
                Some(files)
            }
        };
        let options = SubtitleOptions {
            max_line_width: arguments.max_line_width,
            max_line_count: arguments.max_line_count,
        };
        Ok(Self { formats, options, files })
    }

    /// Writes the results of input `number`, and notes about it.
    pub(crate) fn write(
        &self,
        (number, path): (usize, &Path),
        transcribed: Result<Transcription, Error>,
        streams: &mut Streams<'_>,
    ) -> Result<(), Failure> {
        let name = path.display().to_string();
        let Streams { out, notes, .. } = streams;
        let result = match &transcribed {
            Err(error) => {
                writeln!(notes, "simdformer: {name}: {error}")?;
                Err(error.to_string())
            }
            Ok(found) => {
                for what in found.windows.iter().filter_map(cut) {
                    writeln!(notes, "simdformer: {name}: {what}")?;
                }
                if let Some(missing) = &found.summary.incomplete {
                    writeln!(notes, "simdformer: {name}: sound is missing: {missing}")?;
                }
                Ok(found)
            }
        };
        for (i, &format) in self.formats.iter().enumerate() {
            let Some(files) = &self.files else {
                self.write_format(format, &name, &result, *out)?;
                continue;
            };
            // Nothing is written for a file that failed.
            if let (Ok(_), Some(path)) = (&result, files[i].get(number)) {
                atomic_file::replace(path, |file| self.write_format(format, &name, &result, file))
                    .map_err(cannot_write(path))?;
            }
        }
        out.flush()?;
        Ok(())
    }

    fn write_format(
        &self,
        format: Format,
        name: &str,
        result: &Result<&Transcription, String>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match (format, result) {
            (Format::Json, Ok(found)) => writeln!(out, "{}", json(name, found)),
            (Format::Json, Err(error)) => {
                writeln!(out, "{}", json!({"file": name, "text": null, "error": error}))
            }
            (Format::Text, Ok(found)) if found.segments.iter().all(|s| s.channel.is_none()) => {
                writeln!(out, "{}", line(&found.text()))
            }
            // Each file is one line.
            (Format::Text, Err(_)) => writeln!(out),
            (Format::Text, Ok(found)) => found
                .segments
                .iter()
                .try_for_each(|segment| writeln!(out, "{}{}", label(segment), line(&segment.text))),
            (Format::Times, Ok(found)) => found.segments.iter().try_for_each(|segment| {
                let (start, end, text) = (segment.start, segment.end, line(&segment.text));
                writeln!(out, "[{start:.2} -> {end:.2}] {}{text}", label(segment))
            }),
            (Format::Words, Ok(found)) => found.segments.iter().try_for_each(|segment| {
                segment.words.iter().try_for_each(|word| {
                    let (start, end, text) = (word.start, word.end, line(&word.text));
                    writeln!(out, "[{start:.2} -> {end:.2}] {}{text}", label(segment))
                })
            }),
            (Format::Subtitles(format), Ok(found)) => {
                format.write(&cues(&found.segments, &self.options), out)
            }
            (Format::Times | Format::Words | Format::Subtitles(_), Err(_)) => Ok(()),
        }
    }
}

/// The channel before a text.
fn label(segment: &Segment) -> String {
    segment.channel.map_or_else(String::new, |channel| format!("Channel {channel}: "))
}

fn json(name: &str, found: &Transcription) -> Value {
    let finish = |finish| match finish {
        Finish::End => "end",
        Finish::Length => "length",
        Finish::Stopped => "stopped",
        Finish::Exhausted => "exhausted",
        Finish::NotFinite => "not finite",
    };
    let second = |frame: usize| frame as f64 / 100.0;
    let windows = found.windows.iter().map(|window: &Window| {
        json!({
            "start": second(window.first_frame), "end": second(window.first_frame + window.frames),
            "ids": window.tokens, "finish": finish(window.finish), "attempts": window.attempts,
            "skipped": window.skipped, "temperature": window.temperature, "avg_logprob": window.avg_logprob,
            "no_speech_prob": window.no_speech_prob, "compression_ratio": window.compression_ratio,
            "language": window.language,
        })
    });
    let segments = found.segments.iter().map(|segment| {
        let mut object = json!({
            "start": segment.start, "end": segment.end, "text": segment.text.trim(),
            "ids": segment.tokens, "window": segment.window, "language": segment.language,
        });
        if !segment.words.is_empty() {
            object["words"] = words(segment);
        }
        if let Some(channel) = segment.channel {
            object["channel"] = channel.into();
        }
        object
    });
    json!({
        "file": name, "text": found.text(), "language": found.summary.language,
        "seconds": found.summary.duration, "segments": segments.collect::<Value>(),
        "windows": windows.collect::<Value>(),
        "incomplete": found.summary.incomplete.as_ref().map(ToString::to_string),
    })
}

/// The words of a segment.
pub(crate) fn words(segment: &Segment) -> Value {
    let word = |word: &Word| {
        let (start, end) = (centiseconds(word.start), centiseconds(word.end));
        json!({"start": start, "end": end, "text": word.text, "probability": word.probability})
    };
    segment.words.iter().map(word).collect()
}

/// What is said of a window whose text did not end.
pub(crate) fn cut(window: &Window) -> Option<String> {
    let (at, tokens) = (window.first_frame as f64 * FRAME, window.tokens.len());
    let cut = window.finish != Finish::End;
    cut.then(|| format!("the text from {at:.1} s on was cut after {tokens} tokens"))
}

/// Times of words are multiples of 10 ms.
fn centiseconds(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// The output of a text is one line, even if the model writes two.
pub(crate) fn line(text: &str) -> String {
    text.trim().chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }).collect()
}
