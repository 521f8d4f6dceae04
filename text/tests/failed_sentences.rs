//! A sentence that fails is reported where its translation would be, in every method of the translator and the batcher;
//! what has no letters is copied; a byte order mark and the texts of special tokens are no commands.

use simdformer::Model;
use simdformer::search::Hooks;
use simdformer_testing::published::french;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::Error;
use simdformer_text::documents::Format;
use simdformer_text::translator::{Batcher, Failure, TranslateOptions, Translation, Translator};
use simdformer_text::{Direction, Tokenizer};
use std::sync::Arc;

/// What a text has instead of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    TooLong,
    Token,
    NotFinite,
}

/// The model as it is; with an id in its vocabulary that it does not have; with weights that make all scores overflow.
const MODELS: [Option<Fault>; 3] = [None, Some(Fault::Token), Some(Fault::NotFinite)];

fn model(fault: Option<Fault>) -> TemporaryFolder {
    let place = french();
    match fault {
        Some(Fault::Token) => {
            let text = std::fs::read_to_string(place.0.join("vocab.json")).unwrap();
            let mut vocabulary: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(vocabulary["▁froid"].is_u64());
            vocabulary["▁froid"] = 5000.into();
            place.write("vocab.json", vocabulary.to_string());
        }
        Some(Fault::NotFinite) => {
            let path = place.0.join("model.safetensors");
            let mut bytes = std::fs::read(&path).unwrap();
            let table = {
                let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
                let data = tensors.tensor("model.shared.weight").unwrap();
                let start = data.data().as_ptr() as usize - bytes.as_ptr() as usize;
                start..start + data.data().len()
            };
            // One row is not enough for all sentences: a logit of minus infinity is a token that is never chosen.
            for number in bytes[table].as_chunks_mut::<4>().0 {
                *number = 3e38f32.to_le_bytes();
            }
            std::fs::write(&path, bytes).unwrap();
        }
        _ => (),
    }
    place
}

/// A text; what it has instead of a translation if the model is as it is, as one sentence; whether it has `froid`.
struct Case {
    text: String,
    fault: Option<Fault>,
    froid: bool,
    /// Whether it has a word that the model knows.
    words: bool,
}

impl Case {
    fn copied(&self) -> bool {
        !self.words
    }

    /// What it has as one sentence of a model with this fault.
    fn expected(&self, model: Option<Fault>) -> Option<Fault> {
        match model {
            _ if self.copied() => None,
            Some(Fault::Token) => self.fault.or(self.froid.then_some(Fault::Token)),
            _ => self.fault.or(model),
        }
    }
}

/// All texts: words, and the odd things before, after and alone.
fn cases() -> Vec<Case> {
    let odd = [
        "",
        " ",
        "\t",
        "\u{a0}",
        "\u{2003}",
        "\0",
        "🙂",
        "👩‍🚀",
        "…",
        "12:30",
        "\u{feff}",
        "</s>x",
        "<pad>é",
        "\r\n",
    ];
    let mut cases: Vec<Case> = Vec::new();
    for words in ["", "il fait froid", "je suis étudiant"] {
        for before in odd {
            for after in odd {
                let text = [before, words, after].concat();
                let (froid, words) = (text.contains("froid"), !words.is_empty());
                cases.push(Case { fault: None, froid, words, text });
            }
        }
    }
    for word in ["je ", "froid "] {
        let text = word.repeat(130);
        let (fault, froid) = (Some(Fault::TooLong), word == "froid ");
        cases.push(Case { fault, froid, words: true, text });
    }
    cases
}

fn fault(failure: Option<Failure>) -> Option<Fault> {
    failure.map(|failure| match failure {
        Failure::TooLong { tokens, most } => {
            assert!(tokens > most);
            Fault::TooLong
        }
        Failure::UnknownToken { token: 5000, vocabulary: 2318 } => Fault::Token,
        Failure::NotFinite => Fault::NotFinite,
        other => panic!("{other:?}"),
    })
}

fn check(case: &Case, model: Option<Fault>, one: &Translation, method: &str) {
    let what = format!("{method}, {model:?}: {:?}", case.text);
    assert_eq!(fault(one.failure), case.expected(model), "{what}");
    assert_eq!(one.result().is_err(), one.failure.is_some(), "{what}");
    if case.copied() {
        assert_eq!((&one.text[..], one.finish), (&case.text[..], None), "{what}");
    } else if one.failure.is_some() {
        assert!(one.text.is_empty() && one.token_scores.is_empty(), "{what}");
    } else {
        assert!(one.finish.is_some() && !one.text.is_empty(), "{what}");
    }
}

#[test]
fn every_method_reports_a_failed_sentence_in_its_place() {
    let mut checked = 0;
    for fault_of_model in MODELS {
        let place = model(fault_of_model);
        let model = Arc::new(Model::open(&place.0).unwrap());
        let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
        let options = TranslateOptions::new(model.config());
        let new = || Translator::new(&model, Arc::clone(&tokenizer), options.clone()).unwrap();
        let cases = cases();
        let texts: Vec<&str> = cases.iter().map(|case| case.text.as_str()).collect();
        let translator = new();
        let together = translator.translate_sentences(&texts).unwrap();
        let failed = cases.iter().filter(|case| case.expected(fault_of_model).is_some()).count();
        assert_eq!(translator.report().failed, failed as u64);
        for (case, one) in cases.iter().zip(&together) {
            check(case, fault_of_model, one, "translate_sentences");
        }
        let batcher = Batcher::new(&new()).unwrap();
        let pending: Vec<_> = texts.iter().map(|text| batcher.submit(text).unwrap()).collect();
        for ((case, one), together) in cases.iter().zip(pending).zip(&together) {
            let one = one.wait().unwrap();
            check(case, fault_of_model, &one, "Batcher");
            assert_eq!(one, *together, "{:?}", case.text);
        }
        let whole = new().translate_texts(&texts).unwrap();
        // Every fifth with the methods that take one text.
        for (number, ((case, found), alone)) in cases.iter().zip(whole).zip(&together).enumerate() {
            let what = format!("{fault_of_model:?}: {:?}", case.text);
            let of_text = found.failure().map(|(_, one, failure)| {
                assert!(case.text.contains(&one.source), "{what}");
                failure
            });
            // As a text, what is too long is translated in parts.
            let expected = match case.expected(fault_of_model) {
                Some(Fault::TooLong) => {
                    fault_of_model.filter(|fault| *fault != Fault::Token || case.froid)
                }
                expected => expected,
            };
            assert_eq!(fault(of_text), expected, "{what}");
            assert_eq!(
                found.finish().is_some_and(|f| f == simdformer::search::Finish::NotFinite),
                expected == Some(Fault::NotFinite),
                "{what}"
            );
            if case.copied() {
                assert_eq!(found.text(), case.text, "{what}");
            }
            checked += 3;
            if number % 5 > 0 {
                continue;
            }
            let one = new().translate_observed(&case.text, &mut Hooks::default(), &mut |_| ());
            check(case, fault_of_model, &one.unwrap(), "translate_observed");
            assert_eq!(alone.failure.is_some(), case.expected(fault_of_model).is_some());
            match (new().translate_document(&case.text, Format::Plain), expected) {
                (Ok(text), None) => assert_eq!(text, found.text(), "{what}"),
                (Err(Error::FailedSentence { failure, .. }), Some(expected)) => {
                    assert_eq!(fault(Some(failure)), Some(expected), "{what}");
                }
                (other, _) => panic!("{what}: {other:?}"),
            }
            checked += 2;
        }
    }
    // 3 models, 590 texts, 3 methods, and 2 more for every fifth text.
    assert!(checked > 5_000, "{checked}");
}

#[test]
fn the_report_counts_what_reached_the_maximum_length() {
    let place = french();
    let (model, tokenizer) =
        (Model::open(&place.0).unwrap(), Tokenizer::from_dir(&place.0).unwrap());
    let mut options = TranslateOptions::new(model.config());
    options.search.max_new_tokens = Some(3);
    let translator = Translator::new(model, tokenizer, options).unwrap();
    let found =
        translator.translate_texts(&["je suis étudiant. non. il fait froid.", "12"]).unwrap();
    let cut = found[0].sentences.iter().filter(|one| one.translation.is_unfinished()).count();
    assert!(cut > 0 && translator.report().unfinished == cut as u64);
    assert_eq!(found[0].finish(), Some(simdformer::search::Finish::Length));
    assert_eq!(found[1].finish(), None);
}

/// Texts of the special tokens of several tokenizers, in and around words: none has the meaning of the token, and the
/// others have the ids that `encode` gives them.
#[cfg_attr(not(feature = "json"), ignore = "its tokenizers are not SentencePiece files")]
#[test]
fn the_text_of_a_special_token_is_text() {
    let dirs = std::fs::read_dir(crate::directories::golden("dirs")).unwrap();
    let (mut checked, mut families) = (0, 0);
    for entry in dirs {
        let path = entry.unwrap().path();
        let place = crate::directories::full(path.file_name().unwrap().to_str().unwrap());
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
        let mut codes =
            tokenizer.languages().unwrap_or_default().iter().map(|one| one.code().to_owned());
        let code = codes.next();
        let direction = Direction { source: code.as_deref(), target: code.as_deref() };
        let Ok(around) = tokenizer.encode("", &direction) else { continue };
        families += 1;
        let plain = ["hello", "the house", "a < b", "s>"];
        for text in plain {
            assert_eq!(
                tokenizer.encode_text(text, &direction).unwrap(),
                tokenizer.encode(text, &direction).unwrap(),
                "{path:?} {text}"
            );
        }
        let named: Vec<String> =
            ["<s>", "</s>", "<pad>", "<unk>", "[CLS]", "[SEP]"].map(str::to_owned).into();
        for special in named.into_iter().chain(code.clone()) {
            for (before, after) in [("", ""), ("a ", " b"), ("a", "b"), ("", " b"), ("a ", "")] {
                let text = [before, &special, after].concat();
                let (found, spans) = tokenizer.encode_text_with_spans(&text, &direction).unwrap();
                assert_eq!(found.ids.len(), spans.len(), "{path:?} {text}");
                assert_eq!(found, tokenizer.encode_text(&text, &direction).unwrap());
                let inside = found.ids.len() - around.ids.len();
                assert!(inside > 0 && !found.blank, "{path:?} {text}: {:?}", found.ids);
                for one in &around.ids {
                    let count = |ids: &[u32]| ids.iter().filter(|id| *id == one).count();
                    // The unknown token may stand for characters.
                    assert_eq!(
                        count(&found.ids),
                        count(&around.ids),
                        "{path:?} {text}: {:?}",
                        found.ids
                    );
                }
                assert_eq!(
                    tokenizer.encode_text(&format!("\u{feff}{text}"), &direction).unwrap(),
                    found
                );
                checked += 1;
            }
        }
    }
    assert!(families >= 20 && checked >= 500, "{families} {checked}");
}
