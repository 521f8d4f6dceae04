//! `translate --column`: the texts are a column of a table.

use super::arguments::Translate;
use super::documents::is_told;
use super::explain_lines::UNFINISHED;
use super::{documents, texts};
use crate::arguments::UsageError;
use crate::command_line::definition;
use crate::output_file::{self, cannot_write};
use crate::progress;
use crate::streams::{Failure, Streams};
use clap::ValueHint;
use simdformer::atomic_file::AtomicFile;
use simdformer_text::documents::Error;
use simdformer_text::documents::tables::{
    ComputeError, Computed, Format, Job, Output, Progress, Summary, Table,
};
use simdformer_text::model_files;
use simdformer_text::translator::{self, Note, TextTranslation, Translation, Translator};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The options that change no byte of the output. The model and the input count by their content.
const NEUTRAL: [&str; 10] = [
    "model", "files", "threads", "sessions", "slots", "isa", "quiet", "summary", "output", "resume",
];
/// The notes about rows that are written; further ones are only counted.
const NOTES: u64 = 1000;

/// Fills a column of a table with the texts of the model; returns the exit code.
pub(crate) fn fill_column(
    format: Format,
    arguments: &Translate,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let (common, options) = (&arguments.common, &arguments.tables);
    let (files, output) = (&common.texts.files[..], arguments.documents.output.as_deref());
    // What is wrong with the command line and the files is found before gigabytes are read.
    if options.resume && output.is_none() {
        let reason = "--resume: standard output cannot be continued; add --output FILE";
        return Err(UsageError(reason.to_owned()).into());
    }
    let mut file = match files {
        [] => None,
        [path] => {
            let opened = File::open(path);
            Some(opened.map_err(|error| format!("cannot read {}: {error}", path.display()))?)
        }
        _ => return Err(UsageError("--column: a table is one --file".to_owned()).into()),
    };
    let written = output.map(Output::files).transpose();
    let written = written.map_err(|error| format!("--output: {error}"))?.unwrap_or_default();
    let written: Vec<&Path> = written.iter().map(PathBuf::as_path).collect();
    let read: Vec<&Path> =
        files.iter().chain(&arguments.documents.glossary).map(PathBuf::as_path).collect();
    output_file::refuse_inputs(&written, &read, &common.model.directory.model)?;
    let mut direct = match output {
        // A device or a pipe.
        Some(path) if written.is_empty() => {
            if options.resume {
                let reason = format!("--resume: {} cannot be continued", path.display());
                return Err(UsageError(reason).into());
            }
            Some(AtomicFile::create(path).map_err(cannot_write(path))?)
        }
        _ => None,
    };
    let header = !options.no_header;
    let source = options.column.clone().unwrap_or_default();
    let mut job = Job::new(Table { format, header, source, output: options.to_column.clone() });
    job.identity = identity(&common.model.directory.model, file.as_ref())?;
    let (model, tokenizer, options) = texts::load_for_texts(arguments, streams)?;
    if options.samples() {
        let reason = "--column: equal texts have one result, and sampling draws another one for \
                      each; add --strategy greedy";
        return Err(UsageError(reason.to_owned()).into());
    }
    let Streams { input, out, notes, .. } = streams;
    let input = match &mut file {
        Some(file) => file as &mut (dyn Read + Send),
        None => *input,
    };
    common.model.in_pool(|| {
        let translator = Translator::new(common.engine(model)?, tokenizer, options)?;
        let mut compute = |sources: &[&str]| -> Result<Vec<Computed>, ComputeError> {
            Ok(if common.texts.lines {
                translator.translate_sentences(sources)?.into_iter().map(sentence).collect()
            } else {
                translator.translate_texts(sources)?.into_iter().map(text).collect()
            })
        };
        let output = match (&mut direct, output) {
            (Some(file), _) => Output::Stream(file),
            (None, Some(path)) => Output::File { path, resume: arguments.tables.resume },
            (None, None) => Output::Stream(*out),
        };
        let bar = progress::counter("rows", common.reports.quiet);
        let mut noted = 0;
        let mut report = |event: Progress<'_>| match event {
            Progress::Resumed(Summary { rows, .. }) => {
                bar.set_position(rows);
                bar.reset_eta();
                note(*notes, &bar, &format!("{rows} rows were written before"));
            }
            Progress::Row { number, note: text } => {
                noted += 1;
                match noted {
                    ..=NOTES => note(*notes, &bar, &format!("row {number}: {text}")),
                    _ if noted == NOTES + 1 => note(*notes, &bar, "further rows are only counted"),
                    _ => (),
                }
            }
            Progress::Window(Summary { rows, .. }) => bar.set_position(rows),
            _ => (),
        };
        let is_file = matches!(output, Output::File { .. });
        let done = job.fill_column(input, output, &mut compute, &mut report);
        bar.finish_and_clear();
        let Summary { rows, failed, .. } = done.map_err(|error| failure(error, is_file))?;
        if let Some(file) = direct {
            file.finish()?;
        }
        if failed > 0 {
            writeln!(notes, "simdformer: {failed} of {rows} rows have no result")?;
        }
        // Those of the rows that this process has run. A row with a failed sentence is counted above.
        let mut report = translator.report();
        report.failed = 0;
        for line in documents::summary(&report) {
            writeln!(notes, "simdformer: {line}")?;
        }
        Ok(u8::from(failed > 0 || report.lost > 0))
    })
}

/// Writes a line above the progress. An error of standard error is ignored, as that of progress is.
fn note(notes: &mut dyn Write, bar: &indicatif::ProgressBar, text: &str) {
    bar.suspend(|| {
        let _ = writeln!(notes, "simdformer: {text}");
    });
}

/// A text in which every sentence has a translation.
fn text(translation: TextTranslation) -> Computed {
    let notes = translation.sentences.iter().flat_map(documents::notes_of);
    let notes: Vec<String> = notes.collect();
    let failed = translation.sentences.iter().any(|one| one.translation.failure.is_some());
    Computed {
        text: (!failed).then(|| translation.text().to_owned()),
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

/// A text that is one sentence.
fn sentence(translation: Translation) -> Computed {
    match translation.failure {
        Some(failure) => {
            let note = match failure {
                translator::Failure::TooLong { .. } => format!("{failure}; --truncate cuts it"),
                _ => failure.to_string(),
            };
            Computed { text: None, note: Some(note) }
        }
        None => {
            let tokens = translation.source_tokens;
            let cut = translation.truncated.then(|| format!("{tokens} tokens, was cut"));
            let unfinished = translation.is_unfinished().then(|| UNFINISHED.to_owned());
            let unknown = translation.unknown.iter();
            let unknown = unknown.map(|word| format!("the model does not know {word}"));
            let told = translation.notes.iter().filter(|note| is_told(note)).map(Note::to_string);
            let notes = cut.into_iter().chain(unfinished).chain(told).chain(unknown);
            let notes: Vec<String> = notes.collect();
            let note = (!notes.is_empty()).then(|| notes.join("; "));
            Computed { text: Some(translation.text), note }
        }
    }
}

/// The error with what to do.
fn failure(error: Error, is_file: bool) -> Failure {
    match error {
        Error::Caller { error, .. } => error,
        Error::Io { action: "written", .. } if is_file => {
            format!("{error}; what was written stays, and --resume continues it").into()
        }
        // The output of an interrupted run.
        Error::Conflict { ref operand, .. } if operand.ends_with(".part") => {
            format!("{error} (--resume)").into()
        }
        error => error.into(),
    }
}

/// Everything on which the output depends, beside the table: the options as they were given, and the content of files.
fn identity(directory: &Path, input: Option<&File>) -> Result<Vec<(String, String)>, Failure> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut identity = vec![("the version of simdformer".to_owned(), version)];
    let definition = definition();
    let matches = definition.clone().try_get_matches_from(std::env::args_os())?;
    let (name, matches) = matches.subcommand().ok_or("expected a command")?;
    let command = definition.find_subcommand(name).ok_or("expected a command")?;
    for option in command.get_arguments() {
        let id = option.get_id().as_str();
        if NEUTRAL.contains(&id) {
            continue;
        }
        let Ok(Some(values)) = matches.try_get_raw(id) else { continue };
        let values: Vec<OsString> = values.map(ToOwned::to_owned).collect();
        let shown: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
        let name = format!("--{}", option.get_long().unwrap_or(id));
        let value = match &shown[..] {
            [one] => one.to_string(),
            // Two values are not one with a space.
            several => format!("{several:?}"),
        };
        identity.push((name.clone(), value));
        if matches!(option.get_value_hint(), ValueHint::FilePath | ValueHint::AnyPath) {
            for path in values.iter().map(Path::new) {
                let folder = path.parent().unwrap_or(Path::new(""));
                let file = path.file_name().map(PathBuf::from);
                let content = model_files::fingerprint(folder, file.as_slice())?;
                identity.push((format!("the content of {name} {}", path.display()), content));
            }
        }
    }
    let content = model_files::list(directory)
        .and_then(|files| model_files::fingerprint(directory, &files))
        .map_err(|error| format!("cannot read {}: {error}", directory.display()))?;
    identity.push(("the content of --model".to_owned(), content));
    // A pipe has no size. The rows that were read are compared by a checksum.
    let about = input.map(File::metadata).transpose();
    let about = about.map_err(|error| format!("cannot read the size of --file: {error}"))?;
    if let Some(about) = about.filter(|about| about.is_file()) {
        identity.push(("the size of --file".to_owned(), about.len().to_string()));
    }
    Ok(identity)
}
