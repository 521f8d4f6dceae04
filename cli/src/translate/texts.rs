//! `translate` and `summarize`: what is run, and the lines that are written.

use super::arguments::{TextToText, Translate};
use super::documents;
use super::documents::{NAMED, is_told, unknown_words};
use super::explain::{Recorder, Source, Step};
use super::explain_lines;
use crate::arguments::UsageError;
use crate::inputs::Inputs;
use crate::search_arguments::check;
use crate::streams::{Failure, Streams};
use crate::{progress, show};
use serde_json::{Value, json};
use simdformer::config::{Config, Side};
use simdformer::search::{Hooks, Observation, SearchOptions, Strategy};
use simdformer::{Engine, Event, Model};
use simdformer_text::argos::{open_checkpoint, open_tokenizer};
use simdformer_text::documents::archives::ArchiveFormat;
use simdformer_text::documents::sentences::model_language;
use simdformer_text::translator::{
    self, Glossary, Note, TranslateOptions, Translation, Translator, is_same_language,
};
use simdformer_text::{Direction, Family, Tokenizer};
use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Translates documents, or lines if the options say so; returns the exit code.
pub(crate) fn translate(arguments: &Translate, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let (common, documents) = (&arguments.common, &arguments.documents);
    if arguments.sentences() {
        let given = [
            ("--format", documents.format.is_document()),
            ("--output", documents.output.is_some()),
            ("--keep", !documents.keep.is_empty()),
            ("--glossary", documents.glossary.is_some()),
            ("--no-attributes", documents.no_attributes),
        ];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            let texts = "--lines, --whole, --stream or --explain";
            return Err(UsageError(format!("{option} is for documents, not for {texts}")).into());
        }
        let archive =
            common.texts.files.iter().find(|path| ArchiveFormat::from_path(path).is_some());
        if let Some(path) = archive {
            let found = path.display();
            return Err(UsageError(format!("{found} is a document, without lines")).into());
        }
        return lines(common, false, documents.capitals, streams);
    }
    if common.num_return_sequences.is_some_and(|count| count > 1) && !common.json {
        let more = "--num-return-sequences: a document has one translation; add --json or --lines";
        return Err(UsageError(more.to_owned()).into());
    }
    // What is wrong with the files is found before gigabytes are read.
    let outputs = documents::outputs(arguments)?;
    let mut loaded = vec![load_for_texts(arguments, streams)?];
    if let Some(second) = &arguments.pivot {
        let (directory, languages) = (second, [None, common.to.as_deref()]);
        let mut second = load(common, directory, languages, None, streams)?;
        set_options(arguments, &mut second.2);
        loaded.push(second);
    }
    common.model.in_pool(|| {
        let mut translators = Vec::new();
        for (model, tokenizer, mut options) in loaded {
            (options.token_scores, options.alignment) = (common.json, common.json);
            translators.push(Translator::new(common.engine(model)?, tokenizer, options)?);
        }
        documents::translate_documents(arguments, outputs.as_deref(), &mut translators, streams)
    })
}

/// A model, its tokenizer, and the options of the command line.
type Loaded = (Model, Tokenizer, TranslateOptions);

/// As [`load`], with the options of texts of several sentences.
pub(crate) fn load_for_texts(
    arguments: &Translate,
    streams: &mut Streams<'_>,
) -> Result<Loaded, Failure> {
    let common = &arguments.common;
    let glossary = arguments.documents.glossary.as_deref().map(glossary).transpose()?;
    let directory = &common.model.directory.model;
    let to = match &arguments.pivot {
        Some(second) => pivot_language(directory, second)?,
        None => common.to.clone(),
    };
    let languages = [common.from.as_deref(), to.as_deref()];
    let mut loaded = load(common, directory, languages, None, streams)?;
    set_options(arguments, &mut loaded.2);
    loaded.2.glossary = glossary.map(Arc::new);
    Ok(loaded)
}

/// The language between two models, if the first one has several. If each has one, it must be the same.
fn pivot_language(first: &Path, second: &Path) -> Result<Option<String>, Failure> {
    let (first, second) = (open_tokenizer(first)?, open_tokenizer(second)?);
    let direction = Direction::default();
    let read = second.source_language(&direction);
    match (first.target_language(&direction), read) {
        (Some(written), Some(read)) if !is_same_language(written, read) => {
            let expected = format!("--pivot: expected a model that reads {written}");
            Err(UsageError(format!("{expected}, found one that reads {read}")).into())
        }
        (None, read) if first.languages().is_some() => Ok(read.map(str::to_owned)),
        _ => Ok(None),
    }
}

/// Sets the options of texts of several sentences.
fn set_options(arguments: &Translate, options: &mut TranslateOptions) {
    let documents = &arguments.documents;
    options.keep.clone_from(&documents.keep);
    options.attributes = !documents.no_attributes;
    options.capitals = documents.capitals.unwrap_or(options.capitals);
}

fn glossary(path: &Path) -> Result<Glossary, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Glossary::from_tsv(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Processes all texts, each a whole file if `whole` and if the options do not say otherwise; returns the exit code.
/// `capitals`: [`TranslateOptions::capitals`].
pub(crate) fn lines(
    arguments: &TextToText,
    whole: bool,
    capitals: Option<bool>,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let task = whole.then_some("summarization");
    let languages = [arguments.from.as_deref(), arguments.to.as_deref()];
    let directory = &arguments.model.directory.model;
    let (model, tokenizer, mut options) = load(arguments, directory, languages, task, streams)?;
    options.capitals = capitals.unwrap_or(options.capitals);
    arguments.model.in_pool(|| {
        let translator = Translator::new(arguments.engine(model)?, tokenizer, options)?;
        let search = translator.search_options().clone();
        let tokenizer = &translator.tokenizer().clone();
        Lines { arguments, tokenizer, search, done: 0, failed: 0, unknown: 0 }
            .translate_lines(translator, whole, streams)
    })
}

impl TextToText {
    /// The engine of `model` with the settings of the command line.
    pub(crate) fn engine(&self, model: Model) -> Result<Engine, Failure> {
        Ok(self.texts.engine(&self.model, model).cache(self.cache.dtype).build()?)
    }
}

/// The model of `directory`, its tokenizer, and the options of the command line, from and to these languages. `task` is one
/// of `config.json`; `None` for the one of the languages.
fn load(
    arguments: &TextToText,
    directory: &Path,
    [from, to]: [Option<&str>; 2],
    task: Option<&str>,
    streams: &mut Streams<'_>,
) -> Result<Loaded, Failure> {
    let tokenizer = open_tokenizer(directory)?.with_same_language(is_same_language);
    let of_task = || task.and_then(|task| tokenizer.task_prefix(task)).map(str::to_owned);
    let prefix = arguments.prefix.clone().or_else(of_task);
    let tokenizer = tokenizer.with_prefix(prefix);
    let detect = from == Some("auto");
    let source = match detect {
        true => undetected(&tokenizer, to)?,
        false => from.map(str::to_owned),
    };
    let direction = Direction { source: source.as_deref(), target: to };
    if let (Some(languages), None) = (tokenizer.languages(), to)
        && matches!(tokenizer.family(), Family::Marian | Family::T5)
    {
        // Other models fail without a target language; the output language of these models is undefined without one.
        let many = languages.len();
        writeln!(streams.notes, "simdformer: the model has {many} languages, --to chooses one")?;
    }
    // Check the languages before gigabytes are read.
    let prefix = tokenizer.encode("", &direction)?.prefix;
    let checkpoint = open_checkpoint(directory)?;
    let mut options = TranslateOptions::new(checkpoint.config());
    options.search = search_options(arguments, checkpoint.config(), &prefix)?;
    options.source.clone_from(&source);
    options.detect = detect;
    options.target = to.map(str::to_owned);
    options.truncate = arguments.texts.truncate;
    // A summary has no place for the symbols of a text.
    options.symbols = task.is_none();
    let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
    if arguments.reports.summary {
        show::loaded(&tokenizer, &model, streams.notes)?;
    }
    Ok((model, tokenizer, options))
}

/// The language of texts whose language is not detected: the default of the checkpoint, or English, or the first of the
/// model.
fn undetected(tokenizer: &Tokenizer, target: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(languages) = tokenizer.languages() else {
        return Err(UsageError("--from auto: the model reads one language".to_owned()).into());
    };
    if tokenizer.encode("", &Direction { source: None, target }).is_ok() {
        return Ok(None);
    }
    let codes = || languages.iter().map(|language| language.code());
    Ok(model_language("en", codes()).or_else(|| codes().next()).map(str::to_owned))
}

/// The search options of the checkpoint, with the caller's changes.
fn search_options(
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
    if arguments.search.has("max_new_tokens")
        && let Some(positions) = config.max_positions(Side::Decoder)
    {
        // At most as many tokens as the model has positions.
        let most = positions.saturating_sub(prefix.len().max(1)).max(1);
        options.max_new_tokens = options.max_new_tokens.map(|new| new.min(most));
    }
    Ok(options)
}

/// Texts that become a line each.
struct Lines<'r> {
    arguments: &'r TextToText,
    tokenizer: &'r Tokenizer,
    /// As the translator uses them.
    search: SearchOptions,
    done: usize,
    failed: usize,
    /// Words that the model does not know.
    unknown: usize,
}

impl Lines<'_> {
    fn translate_lines(
        &mut self,
        mut translator: Translator,
        whole: bool,
        streams: &mut Streams<'_>,
    ) -> Result<u8, Failure> {
        let Streams { input, out, notes, .. } = streams;
        let texts = &self.arguments.texts;
        let mut inputs = Inputs::new(texts, texts.whole(whole), *input)?;
        let mut texts =
            std::iter::from_fn(|| inputs.take(1).map(|mut texts| texts.pop()).transpose());
        let (stream, explain) = (self.arguments.stream, self.arguments.explain);
        if stream || explain.is_some() {
            for text in texts {
                let (translation, explanation) = match explain {
                    Some(listed) => self.explained(&translator, &text?, listed, *notes)?,
                    None => (Self::streamed(&translator, &text?, *out)?, None),
                };
                self.write(&translation, explanation.as_ref(), *notes, *out)?;
                out.flush()?;
            }
        } else {
            let progress = progress::counter("texts", self.arguments.reports.quiet);
            let counter = progress.clone();
            translator.set_on_done(move |_| counter.inc(1));
            translator.stream_sentences(&mut texts, |translation| {
                progress.suspend(|| {
                    self.write(&translation, None, *notes, *out)?;
                    out.flush().map_err(Failure::from)
                })
            })?;
            progress.finish_and_clear();
        }
        let Self { done, failed, unknown, .. } = self;
        if *unknown > 0 {
            writeln!(notes, "simdformer: {unknown} words are unknown to the model")?;
        }
        if *failed > 0 {
            writeln!(notes, "simdformer: {failed} of {done} texts have no result")?;
        }
        Ok(u8::from(*failed > 0 || translator.report().lost > 0))
    }

    /// Writes the answer to the next text, and what is to be noted about it.
    fn write(
        &mut self,
        answer: &Translation,
        explanation: Option<&Explanation>,
        notes: &mut dyn Write,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        self.done += 1;
        let number = self.done;
        let error = answer.failure.map(|failure| match failure {
            translator::Failure::TooLong { .. } => format!("{failure}; --truncate cuts it"),
            _ => failure.to_string(),
        });
        if let Some(error) = &error {
            self.failed += 1;
            writeln!(notes, "simdformer: text {number}: {error}")?;
        } else if answer.truncated {
            let tokens = answer.source_tokens;
            writeln!(notes, "simdformer: text {number} has {tokens} tokens and was cut")?;
        }
        if answer.is_unfinished() {
            writeln!(notes, "simdformer: text {number}: {}", explain_lines::UNFINISHED)?;
        }
        for word in &answer.unknown {
            self.unknown += 1;
            if self.unknown <= NAMED {
                writeln!(notes, "simdformer: text {number}: the model does not know {word}")?;
            }
        }
        for note in answer.notes.iter().filter(|note| is_told(note)) {
            writeln!(notes, "simdformer: text {number}: {note}")?;
        }
        let finish = answer.finish.map_or("", explain_lines::finish_name);
        if self.arguments.json {
            let line = match error {
                Some(error) => json!({"text": null, "error": error}),
                None => {
                    let mut line = json!({
                        "text": answer.text, "score": answer.score, "tokens": answer.tokens.len(),
                        "finish": answer.finish.map(|_| finish), "truncated": answer.truncated,
                    });
                    if self.search.num_return_sequences > 1 {
                        line["sequences"] = sequences(answer).collect();
                    }
                    if let Some(unknown) = unknown_words(answer) {
                        line["unknown"] = unknown;
                    }
                    if !answer.notes.is_empty() {
                        line["notes"] = answer.notes.iter().map(Note::to_string).collect();
                    }
                    if let Some(explanation) = explanation {
                        line["steps"] = json!(explanation.steps);
                    }
                    line
                }
            };
            writeln!(out, "{line}")?;
            return Ok(());
        }
        if let Some(Explanation { heading, steps }) = explanation {
            writeln!(out, "{heading}{}", explain_lines::lines(steps, &self.search))?;
        }
        // The output of a text is the same number of lines for every text, even if the model writes two.
        let others = answer.alternatives.iter().map(|other| (&*other.text, other.score));
        let mut texts = std::iter::once((&*answer.text, answer.score)).chain(others);
        for _ in 0..self.search.num_return_sequences {
            let (text, score) = texts.next().unwrap_or_default();
            let line = text.replace(['\n', '\r'], " ");
            match explanation {
                Some(_) => out.write_all(explain_lines::result(&line, score, finish).as_bytes())?,
                None => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }

    /// Translates a text and records each step; without an explanation if the model is not run.
    fn explained(
        &self,
        translator: &Translator,
        text: &str,
        listed: usize,
        notes: &mut dyn Write,
    ) -> Result<(Translation, Option<Explanation>), Failure> {
        let direction = translator.options().direction();
        let mut source = Source::from_text(self.tokenizer, text, &direction)?;
        if let Some(read) = translator.first_reading(text)?.filter(|read| read != text) {
            source.tokens = Source::from_text(self.tokenizer, &read, &direction)?.tokens;
        }
        // Each text has the next stream.
        let stream = self.done as u64;
        // Both callbacks of the search record.
        let recorder = RefCell::new(Recorder::new(self.tokenizer, &self.search, listed, stream));
        let mut observe = |observation: Observation<'_>| recorder.borrow_mut().observe(observation);
        let observer: &mut dyn FnMut(Observation<'_>) = &mut observe;
        let mut hooks = Hooks { observer: Some(observer), ..Hooks::default() };
        let translation =
            translator.translate_observed(text, &mut hooks, &mut |event| match event {
                Event::Step(_) => recorder.borrow_mut().begin_step(),
                Event::Token { token, .. } => recorder.borrow_mut().choose(*token),
                _ => (),
            })?;
        let explanation = translation.finish.map(|_| Explanation {
            heading: explain_lines::heading(text, &source, &self.search),
            steps: recorder.into_inner().finish(),
        });
        let same = self.tokenizer.decode(&translation.tokens) == translation.text;
        if explanation.is_some() && translation.failure.is_none() && !same {
            let number = self.done + 1;
            writeln!(
                notes,
                "simdformer: text {number}: the steps are those of its first search, before symbols were \
                 copied and capitals restored"
            )?;
        }
        Ok((translation, explanation))
    }

    /// Translates a text and writes its parts when the model has written them; the translation has no text that is still to
    /// be written.
    fn streamed(
        translator: &Translator,
        text: &str,
        out: &mut (dyn Write + Send),
    ) -> Result<Translation, Failure> {
        let mut written = Ok(());
        let mut translation = translator.translate_streamed(text, &mut |part| {
            if written.is_ok() {
                // The output of a text is one line.
                let part = part.replace(['\n', '\r'], " ");
                written = out.write_all(part.as_bytes()).and_then(|()| out.flush());
            }
        })?;
        written?;
        translation.text.clear();
        Ok(translation)
    }
}

/// The lines before the steps of a search, and the steps.
struct Explanation {
    heading: String,
    steps: Vec<Step>,
}

/// All sequences of a text, best first; none if the model was not run.
fn sequences(answer: &Translation) -> impl Iterator<Item = Value> {
    let one = |text: &str, score: f32, tokens: &[u32]| json!({"text": text, "score": score, "tokens": tokens.len()});
    let best = answer.finish.map(|_| one(&answer.text, answer.score, &answer.tokens));
    let others = answer.alternatives.iter();
    best.into_iter().chain(others.map(move |other| one(&other.text, other.score, &other.tokens)))
}
