//! `translate` without `--lines`: whole texts, whose structure stays.

use super::arguments::{DocumentFormat, Translate};
use super::explain_lines::{UNFINISHED, finish_name};
use crate::arguments::UsageError;
use crate::output_file::cannot_write;
use crate::streams::{Failure, Streams};
use crate::{output_file, progress};
use serde_json::{Value, json};
use simdformer::atomic_file::AtomicFile;
use simdformer_text::Error;
use simdformer_text::documents::Format;
use simdformer_text::documents::archives::ArchiveFormat;
use simdformer_text::translator::{
    Note, Report, TextTranslation, TranslatedSentence, Translation, Translator,
};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The sentences that are named in the notes, for each kind of note.
pub(crate) const NAMED: usize = 10;

/// Where a document comes from.
struct Input<'i> {
    content: Content<'i>,
    /// The file, if it is one.
    path: Option<&'i Path>,
    /// Whether a line end is written after it.
    argument: bool,
}

/// A text, or an archive, which is not read from its begin to its end.
enum Content<'i> {
    Text(Box<dyn BufRead + Send + 'i>, Format),
    Archive(Box<dyn ReadSeek>, ArchiveFormat),
}

/// What an archive is read from.
trait ReadSeek: Read + Seek {}

impl<R: Read + Seek> ReadSeek for R {}

impl Content<'_> {
    /// Translates with the first translator, and its output with the next one.
    fn translate(
        self,
        translators: &[Translator],
        out: &mut dyn Write,
        on_text: &mut dyn FnMut(&TextTranslation) -> io::Result<()>,
    ) -> Result<(), Error> {
        let Some((translator, next)) = translators.split_first() else { return Ok(()) };
        let mut written = Vec::new();
        let into: &mut dyn Write = if next.is_empty() { &mut *out } else { &mut written };
        let again = match self {
            Self::Text(reader, format) => {
                translator.translate_reader(reader, format, into, on_text)?;
                Content::Text(Box::new(Cursor::new(written)), format)
            }
            Self::Archive(file, format) => {
                translator.translate_archive(file, format, into, on_text)?;
                Content::Archive(Box::new(Cursor::new(written)), format)
            }
        };
        again.translate(next, out, on_text)
    }
}

/// Returns an error for an archive that is no file, or that would be written to standard output.
fn check_archives(arguments: &Translate) -> Result<(), Failure> {
    let (texts, documents) = (&arguments.common.texts, &arguments.documents);
    let no_file = texts.files.is_empty().then_some(None);
    for path in texts.files.iter().map(|path| Some(path.as_path())).chain(no_file) {
        let DocumentFormat::Archive(format) = documents.format.resolve_for(path) else { continue };
        let Some(path) = path else {
            return Err(UsageError(format!("a {format} document is read from --file")).into());
        };
        if documents.output.is_none() && !arguments.common.json {
            let what = format!("{}: a {format} document is written to --output", path.display());
            return Err(UsageError(what).into());
        }
    }
    Ok(())
}

/// The file of each input, if `--output` is given.
pub(crate) fn outputs(arguments: &Translate) -> Result<Option<Vec<PathBuf>>, Failure> {
    check_archives(arguments)?;
    let (texts, documents) = (&arguments.common.texts, &arguments.documents);
    let Some(output) = &documents.output else { return Ok(None) };
    let mut sources = vec![None; texts.texts.len()];
    sources.extend(texts.files.iter().map(|path| Some(path.as_path())));
    if sources.is_empty() {
        // Standard input.
        sources.push(None);
    }
    let outputs = output_file::outputs(&sources, output, &|name| name.into())?;
    let written: Vec<&Path> = outputs.iter().map(PathBuf::as_path).collect();
    let others = documents.glossary.iter().chain(&arguments.pivot);
    let read = texts.files.iter().chain(others).map(PathBuf::as_path);
    let model = &arguments.common.model.directory.model;
    output_file::refuse_inputs(&written, &read.collect::<Vec<_>>(), model)?;
    Ok(Some(outputs))
}

/// Translates the documents of the command line with each translator in turn to standard output or to `outputs`; returns the exit code.
pub(crate) fn translate_documents(
    arguments: &Translate,
    outputs: Option<&[PathBuf]>,
    translators: &mut [Translator],
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let Streams { input, out, notes, .. } = streams;
    let (texts, documents) = (&arguments.common.texts, &arguments.documents);
    let plain = match documents.format.resolve_for(None) {
        DocumentFormat::Text(format) => format,
        DocumentFormat::Archive(_) => Format::Plain,
    };
    let mut inputs: Vec<Input<'_>> = Vec::new();
    for text in &texts.texts {
        let content = Content::Text(Box::new(Cursor::new(text.as_bytes())), plain);
        inputs.push(Input { content, path: None, argument: true });
    }
    for path in &texts.files {
        let file = File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let content = match documents.format.resolve_for(Some(path)) {
            DocumentFormat::Text(format) => Content::Text(Box::new(BufReader::new(file)), format),
            DocumentFormat::Archive(format) => Content::Archive(Box::new(file), format),
        };
        inputs.push(Input { content, path: Some(path), argument: false });
    }
    if inputs.is_empty() {
        let content = Content::Text(Box::new(BufReader::new(&mut **input)), plain);
        inputs.push(Input { content, path: None, argument: false });
    }
    let progress = progress::counter("sentences", arguments.common.reports.quiet);
    for translator in &mut *translators {
        let counter = progress.clone();
        translator.set_on_done(move |_| counter.inc(1));
    }
    let mut named = 0;
    for (number, one) in inputs.into_iter().enumerate() {
        let mut file = match outputs {
            Some(paths) => {
                let path = &paths[number];
                Some((path, AtomicFile::create(path).map_err(cannot_write(path))?))
            }
            None => None,
        };
        let writer: &mut dyn Write = match &mut file {
            Some((_, file)) => file,
            None => *out,
        };
        let mut note = |text: &TextTranslation| {
            for sentence in &text.sentences {
                for what in notes_of(sentence) {
                    named += 1;
                    if named <= NAMED {
                        progress.suspend(|| writeln!(notes, "simdformer: {what}"))?;
                    }
                }
            }
            Ok(())
        };
        let label = one.path.map_or_else(String::new, |path| format!("{}: ", path.display()));
        let done = if arguments.common.json {
            let mut on_text = |text: &TextTranslation| {
                note(text)?;
                text.sentences
                    .iter()
                    .try_for_each(|sentence| writeln!(writer, "{}", json_of(sentence, text)))
            };
            one.content.translate(translators, &mut io::sink(), &mut on_text)
        } else {
            one.content.translate(translators, &mut *writer, &mut note)
        };
        done.map_err(|error| format!("{label}{error}"))?;
        if one.argument && !arguments.common.json {
            writeln!(writer)?;
        }
        writer.flush()?;
        if let Some((path, file)) = file {
            file.finish().map_err(cannot_write(path))?;
        }
    }
    progress.finish_and_clear();
    if named > NAMED {
        writeln!(notes, "simdformer: and {} more", named - NAMED)?;
    }
    let mut complete = true;
    for report in translators.iter().map(Translator::report) {
        for line in summary(&report) {
            writeln!(notes, "simdformer: {line}")?;
        }
        if arguments.common.reports.summary {
            writeln!(notes, "{}", counts(&report))?;
        }
        complete &= report.failed == 0 && report.lost == 0;
    }
    Ok(u8::from(!complete))
}

/// What is to be said about one sentence.
pub(crate) fn notes_of(sentence: &TranslatedSentence) -> Vec<String> {
    let short: String = sentence.source.chars().take(60).collect();
    let failure = sentence.translation.failure.map(|failure| format!("{short:?}: {failure}"));
    let notes = sentence.translation.notes.iter().filter_map(|note| match note {
        Note::MissingTerm { source, target } => {
            Some(format!("{short:?}: the translation lacks {target:?} for {source:?}"))
        }
        Note::Repetition => Some(format!("{short:?}: the translation repeats itself")),
        Note::Lost => Some(format!("{short:?}: a placeholder is missing or repeated")),
        Note::NoKnownWord => Some(format!("{short:?}: {note}")),
        _ => None,
    });
    let unknown = sentence.translation.unknown.iter();
    let unknown = unknown.map(|word| format!("{short:?}: the model does not know {word}"));
    let unfinished = sentence.translation.is_unfinished();
    let unfinished = unfinished.then(|| format!("{short:?}: {UNFINISHED}"));
    failure.into_iter().chain(unfinished).chain(notes).chain(unknown).collect()
}

/// Whether a note of a sentence that is a text of its own is written: something is wrong with its translation.
pub(crate) fn is_told(note: &Note) -> bool {
    matches!(note, Note::Lost | Note::NoKnownWord)
}

/// The words that the model does not know, for `--json`.
pub(crate) fn unknown_words(translation: &Translation) -> Option<Value> {
    let words = translation.unknown.iter();
    let words = words.map(|word| json!({"text": word.text, "nearest": word.nearest}));
    (!translation.unknown.is_empty()).then(|| words.collect())
}

/// What was not as it should be, a line for each kind.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let lines = [
        (report.cut, "sentences are longer than the model takes and were translated in parts"),
        (report.failed, "sentences have no translation and were copied"),
        (report.unfinished, "translations reached the maximum length"),
        (report.lost, "sentences have a placeholder that is missing or repeated"),
        (report.repetitions_left, "translations repeat themselves, also when made again"),
        (report.terms_missing, "terms of the glossary are missing"),
        (report.unknown_words, "words are unknown to the model"),
        (
            report.without_known_words,
            "sentences were copied, because the model knows no word of them",
        ),
    ];
    let lines = lines.into_iter().filter(|(count, _)| *count > 0);
    lines.map(|(count, what)| format!("{count} {what}")).collect()
}

/// All counts, for `--summary`.
fn counts(report: &Report) -> String {
    format!(
        "{} sentences, {} tokens read and {} written; {} texts were in the target language; \
         {} repetitions and {} of {} terms were translated again; {} placeholders, {} sentences split for them; \
         {} sentences in capitals were read in small letters",
        report.sentences,
        report.source_tokens,
        report.target_tokens,
        report.copied,
        report.repetitions,
        report.terms_again,
        report.terms,
        report.kept,
        report.split,
        report.small_letters,
    )
}

/// The object of a sentence.
fn json_of(sentence: &TranslatedSentence, text: &TextTranslation) -> Value {
    let one = &sentence.translation;
    if let Some(failure) = one.failure {
        return json!({"source": sentence.source, "text": null, "error": failure.to_string()});
    }
    let mut object = json!({
        "source": sentence.source,
        "text": one.text,
        "mean_log_probability": one.mean_log_probability(),
        "min_log_probability": one.min_log_probability(),
        "finish": one.finish.map(finish_name),
        "token_log_probabilities": one.token_scores,
        "retries": one.retries,
    });
    if let Some(language) = &text.language {
        object["language"] = json!(language);
    }
    if let Some(words) = &one.alignment {
        let pairs = words.links.iter().map(|(source, target)| json!([source, target]));
        object["source_words"] = json!(words.source);
        object["target_words"] = json!(words.target);
        object["alignment"] = pairs.collect();
    }
    if !one.alternatives.is_empty() {
        let others = one.alternatives.iter();
        object["alternatives"] =
            others.map(|other| json!({"text": other.text, "score": other.score})).collect();
    }
    if let Some(unknown) = unknown_words(one) {
        object["unknown"] = unknown;
    }
    if !one.notes.is_empty() {
        object["notes"] = one.notes.iter().map(Note::to_string).collect();
    }
    object
}
