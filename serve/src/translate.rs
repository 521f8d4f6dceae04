//! `/translate`, `/detect` and `/languages`, in the dialect of LibreTranslate.

use crate::body::Fields;
use crate::error::{Refusal, json_response};
use crate::queue::Place;
use crate::shared::{Shared, read_fields, run_blocking};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use simdformer::Cancel;
use simdformer::search::{BeamOptions, SearchOptions, Strategy};
use simdformer_text::documents::Format;
use simdformer_text::documents::sentences::{detect_language, language_code, model_language};
use simdformer_text::translator::{
    TextTranslation, TranslateOptions, TranslatedSentence, Translator, is_same_language,
};
use simdformer_text::{Family, Tokenizer};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The fields of a request; `alignment` is of a stream alone.
pub(crate) const FIELDS: [&str; 7] =
    ["q", "source", "target", "format", "alternatives", "alignment", "api_key"];

/// The most further translations of a text.
const ALTERNATIVES: usize = 7;

/// A translator of the languages of a request, which ends with `cancel`.
fn for_request(
    of: &Translator,
    request: &TranslateRequest,
    cancel: &Cancel,
) -> Result<Translator, Refusal> {
    let mut options = of.options().clone();
    if request.alternatives > 0 {
        add_alternatives(&mut options.search, request.alternatives);
    }
    options.alignment |= request.alignment;
    options.detect |= request.detect;
    let changed = request.alternatives > 0 || request.alignment || request.detect;
    let mut translator = if changed { of.with_options(options)? } else { of.clone() };
    translator.set_cancel(cancel.clone());
    let (source, target) = (request.source.as_deref(), request.target.as_deref());
    if translator.tokenizer().languages().is_some() || (source, target) != (None, None) {
        translator.set_direction(source, target)?;
    }
    Ok(translator)
}

/// The best `more + 1` translations of a beam search.
fn add_alternatives(search: &mut SearchOptions, more: usize) {
    let beam = match &search.strategy {
        Strategy::Beam(beam) => beam.clone(),
        _ => BeamOptions::default(),
    };
    let beams = beam.beams.max(more + 1);
    search.strategy = Strategy::Beam(BeamOptions { beams, ..beam });
    search.num_return_sequences = more + 1;
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) struct TranslateRequest {
    pub(crate) texts: Vec<String>,
    /// Whether the texts are a list.
    list: bool,
    /// The codes of the model; `None` for its default.
    source: Option<String>,
    target: Option<String>,
    html: bool,
    alternatives: usize,
    /// Whether the client wants to know the language.
    auto: bool,
    /// Whether the model has languages, and none is given.
    detect: bool,
    /// Whether words are aligned. Only of a stream.
    pub(crate) alignment: bool,
}

impl TranslateRequest {
    pub(crate) fn from_fields(fields: &Fields, shared: &Shared) -> Result<Self, Refusal> {
        let batched = shared.translator.as_ref().ok_or_else(|| Refusal::no_model("translates"))?;
        let (texts, list) = fields.texts("q", shared.config.items)?;
        let html = fields.one_of("format", &["text", "html"])? == "html";
        let alternatives = fields.number("alternatives", 0, ALTERNATIVES)?.unwrap_or(0);
        if html && alternatives > 0 {
            let found = fields.get("alternatives");
            return Err(Refusal::field("alternatives", "none for HTML", found));
        }
        let alignment = fields.switch("alignment")?;
        let source = fields.text("source")?;
        let auto = source == Some("auto");
        let source = source.filter(|_| !auto);
        let target = fields.text("target")?;
        let has_languages = batched.translator().tokenizer().languages().is_some();
        let (source, target) = match has_languages {
            true => {
                let find =
                    |name, code| language_of_model(batched.translator().tokenizer(), name, code);
                let source = source.map(|code| find("source", code)).transpose()?;
                (source, target.map(|code| find("target", code)).transpose()?)
            }
            false => {
                let (from, to) = batched.one_direction();
                for (name, found, known) in [("source", source, from), ("target", target, to)] {
                    if let (Some(found), Some(known)) = (found, known)
                        && !is_same_language(found, known)
                    {
                        let found = Value::from(found);
                        return Err(Refusal::field(name, language_code(known), &found));
                    }
                }
                // The task of a T5 model names languages, which only its tokenizer knows.
                match batched.translator().tokenizer().family() {
                    Family::T5 => (source.map(str::to_owned), target.map(str::to_owned)),
                    _ => (None, None),
                }
            }
        };
        let default = batched.translator().options();
        let (source, target) =
            (source.or_else(|| default.source.clone()), target.or_else(|| default.target.clone()));
        let detect = has_languages && (auto || source.is_none());
        Ok(Self { texts, list, source, target, html, alternatives, auto, detect, alignment })
    }

    /// Whether it asks for what a stream does not have.
    pub(crate) fn is_more_than_a_text(&self) -> bool {
        self.list || self.html || self.alternatives > 0
    }

    /// The translator of the request, after its tokens are counted.
    pub(crate) fn prepare(
        &self,
        shared: &Shared,
        cancel: &Cancel,
        place: &mut Place,
    ) -> Result<Translator, Refusal> {
        let batched = shared.translator.as_ref().ok_or_else(|| Refusal::no_model("translates"))?;
        let translator = for_request(batched.translator(), self, cancel)?;
        let tokens = count_tokens(&translator, &self.texts)?;
        place.set_tokens(tokens)?;
        shared.metrics.source_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
        Ok(translator)
    }
}

/// The code of the model for a language that a client names with any code.
fn language_of_model(tokenizer: &Tokenizer, name: &str, code: &str) -> Result<String, Refusal> {
    let codes = tokenizer.languages().unwrap_or_default().iter().map(|language| language.code());
    match model_language(code, codes) {
        Some(known) => Ok(known.to_owned()),
        None => Err(Refusal::field(name, "a language of /languages", &Value::from(code))),
    }
}

fn count_tokens(translator: &Translator, texts: &[String]) -> Result<usize, Refusal> {
    let direction = translator.options().direction();
    let mut tokens = 0;
    for text in texts {
        let encoded = translator.tokenizer().encode_text(text, &direction);
        tokens += encoded.map_err(simdformer_text::Error::from)?.tokens;
    }
    Ok(tokens)
}

/// The translation of a text, what else was asked for, and what is to be known about it.
#[derive(Default)]
struct Translated {
    text: String,
    alternatives: Vec<String>,
    notes: Vec<String>,
}

/// `POST /translate`.
pub(crate) async fn translate(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, place, deadline) = read_fields(&shared, request, &FIELDS).await?;
    let request = TranslateRequest::from_fields(&fields, &shared)?;
    drop(fields);
    if request.alignment {
        let expected = "none, which /translate/stream gives";
        return Err(Refusal::field("alignment", expected, &Value::Bool(true)));
    }
    let list = request.list;
    let with_alternatives = request.alternatives > 0;
    let worker = Arc::clone(&shared);
    let found = run_blocking(deadline, place, move |cancel, mut place| {
        let translator = request.prepare(&worker, cancel, &mut place)?;
        let languages = || request.texts.iter().map(|text| detected(text)).collect();
        let languages: Option<Vec<Value>> = request.auto.then(languages);
        if request.html {
            let texts = request.texts.iter().enumerate();
            let found = texts.map(|(index, text)| page(&worker, &translator, index, text));
            return Ok((found.collect::<Result<_, _>>()?, languages));
        }
        let texts: Vec<&str> = request.texts.iter().map(String::as_str).collect();
        let found = translator.translate_texts(&texts)?;
        let items = found.into_iter().zip(&texts).enumerate();
        let found = items.map(|(index, (found, text))| finish(&worker, index, text, found));
        Ok((found.collect::<Result<_, _>>()?, languages))
    });
    let (found, detected): (Vec<Translated>, _) = found.await?;
    let mut answer = json!({});
    let mut put = |name: &str, values: Vec<Value>| {
        let one = if list { None } else { values.first().cloned() };
        answer[name] = one.unwrap_or(Value::Array(values));
    };
    if with_alternatives {
        put("alternatives", found.iter().map(|one| json!(one.alternatives)).collect());
    }
    if let Some(detected) = detected {
        put("detectedLanguage", detected);
    }
    if found.iter().any(|one| !one.notes.is_empty()) {
        put("notes", found.iter().map(|one| json!(one.notes)).collect());
    }
    put("translatedText", found.into_iter().map(|one| Value::String(one.text)).collect());
    Ok(json_response(&answer))
}

/// The answer for a text, or why a sentence of it has no translation.
fn finish(
    shared: &Shared,
    index: usize,
    source: &str,
    found: TextTranslation,
) -> Result<Translated, Refusal> {
    failed(index, &found)?;
    count(shared, &found);
    let most = found.sentences.iter().map(|one| one.translation.alternatives.len()).max();
    let alternatives = (0..most.unwrap_or(0)).map(|rank| alternative(source, &found, rank));
    let alternatives = alternatives.collect();
    let notes = notes_of(&found).collect();
    Ok(Translated { text: found.target.text, alternatives, notes })
}

/// The translation of a page, or why a sentence of it has none.
fn page(
    shared: &Shared,
    translator: &Translator,
    index: usize,
    source: &str,
) -> Result<Translated, Refusal> {
    let (mut page, mut notes, mut refused) = (Vec::new(), Vec::new(), None);
    let mut on_text = |found: &TextTranslation| {
        count(shared, found);
        notes.extend(notes_of(found));
        refused = failed(index, found).err();
        // An error ends the call.
        if refused.is_some() { Err(ErrorKind::Other.into()) } else { Ok(()) }
    };
    let done =
        translator.translate_reader(source.as_bytes(), Format::Html, &mut page, &mut on_text);
    refused.map_or(Ok(()), Err)?;
    done?;
    let wrong = |error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error);
    let text = String::from_utf8(page).map_err(wrong)?;
    Ok(Translated { text, notes, ..Translated::default() })
}

/// What is to be known about a translation, and the sentence that it is about.
fn notes_of(found: &TextTranslation) -> impl Iterator<Item = String> {
    let of_sentence = |one: &TranslatedSentence| {
        let (source, translation) = (one.source.clone(), &one.translation);
        let cut = (translation.truncated, "only its first tokens were translated");
        let unfinished = (translation.is_unfinished(), "the maximum length was reached");
        let told =
            [cut, unfinished].into_iter().filter(|(is, _)| *is).map(|(_, what)| what.to_owned());
        let unknown = translation.unknown.iter();
        let unknown = unknown.map(|word| format!("the model does not know {word}"));
        let notes = translation.notes.iter().map(ToString::to_string);
        let notes: Vec<String> = told.chain(unknown).chain(notes).collect();
        notes.into_iter().map(move |note| format!("{source:?}: {note}"))
    };
    found.sentences.iter().flat_map(of_sentence)
}

/// An error if a sentence has no translation.
pub(crate) fn failed(index: usize, found: &TextTranslation) -> Result<(), Refusal> {
    match found.failure() {
        None => Ok(()),
        Some((sentence, one, failure)) => {
            let source = one.source.clone();
            Err(simdformer_text::Error::FailedSentence { index, sentence, source, failure }.into())
        }
    }
}

pub(crate) fn count(shared: &Shared, found: &TextTranslation) {
    let tokens: usize = found.sentences.iter().map(|one| one.translation.tokens.len()).sum();
    let metrics = &shared.metrics;
    metrics.target_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    metrics.sentences.fetch_add(found.sentences.len() as u64, Ordering::Relaxed);
}

/// The text of which each sentence has its alternative `rank`, or its best translation if it has fewer.
fn alternative(source: &str, found: &TextTranslation, rank: usize) -> String {
    let (mut text, mut at) = (String::new(), 0);
    for sentence in &found.sentences {
        text += source.get(at..sentence.range.start).unwrap_or_default();
        let one = &sentence.translation;
        text += one.alternatives.get(rank).map_or(&one.text, |other| &other.text);
        at = sentence.range.end;
    }
    text + source.get(at..).unwrap_or_default()
}

/// The language of a text, and how certain that is, in percent; an undetermined language is `und`.
fn detected(text: &str) -> Value {
    let (language, confidence) = detect_language(text).unwrap_or(("und", 0.0));
    json!({"language": language, "confidence": (1000.0 * confidence).round() / 10.0})
}

/// `POST /detect`.
pub(crate) async fn detect(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, place, deadline) = read_fields(&shared, request, &["q", "api_key"]).await?;
    let (texts, list) = fields.texts("q", shared.config.items)?;
    drop(fields);
    let found = run_blocking(deadline, place, move |_, _place| {
        let found = texts.iter().map(|text| json!([detected(text)]));
        Ok(match list {
            true => Value::Array(found.collect()),
            false => json!([detected(&texts[0])]),
        })
    });
    Ok(json_response(&found.await?))
}

/// `GET /languages`.
pub(crate) async fn languages(shared: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    let batched = shared.translator.as_ref().ok_or_else(|| Refusal::no_model("translates"))?;
    let one =
        |code: &str, targets: &[&str]| json!({"code": code, "name": code, "targets": targets});
    Ok(json_response(&match batched.translator().tokenizer().languages() {
        Some(all) => {
            let short: Vec<&str> =
                all.iter().map(|language| language_code(language.code())).collect();
            // A code of ISO 639 that several have, as those of two scripts, names none of them.
            let codes = all.iter().zip(&short).map(|(language, &code)| {
                let once = short.iter().filter(|&&other| other == code).count() == 1;
                if once { code } else { language.code() }
            });
            let codes: Vec<&str> = codes.collect();
            codes.iter().map(|code| one(code, &codes)).collect()
        }
        None => {
            let (source, target) = batched.one_direction();
            let (source, target) = (source.map(language_code), target.map(language_code));
            let targets: Vec<&str> = target.into_iter().collect();
            let source = source.map(|code| one(code, &targets));
            source.into_iter().chain(target.map(|code| one(code, &[]))).collect()
        }
    }))
}

/// The options that a request of one direction has, for `/info`.
pub(crate) fn describe(options: &TranslateOptions) -> Value {
    let strategy = match &options.search.strategy {
        Strategy::Greedy => "greedy".to_owned(),
        Strategy::Beam(beam) => format!("beam search with {} beams", beam.beams),
        Strategy::Sample(_) => "sampling".to_owned(),
    };
    json!({"source": options.source, "target": options.target, "search": strategy})
}
