//! Translators whose sentences join one batch: texts, documents and streams of many threads have the results that they have alone.

use crate::translator::{Demo, sentences};
use simdformer::Cancel;
use simdformer::search::{BeamOptions, Strategy};
use simdformer_text::Error;
use simdformer_text::documents::Format;
use simdformer_text::translator::{Glossary, TextEvent, TextTranslation, Translator};
use std::sync::Arc;
use std::thread::scope;
use std::time::{Duration, Instant};

/// Texts of several sentences, with what takes more than one search.
fn texts() -> Vec<String> {
    let all = sentences(90);
    let mut texts: Vec<String> = all.chunks(3).map(|three| three.join(". ")).collect();
    texts[3] = "La maison ▾ blanche. IL FAIT FROID !\n\n1234".to_owned();
    texts[5] = "maison ".repeat(300);
    texts[7] = "{name} habite dans la vieille maison, https://example.org.".to_owned();
    texts[9].clear();
    texts
}

/// Runs the engine of `translator` while `work` uses it, and closes it.
fn with_batch<R>(translator: &mut Translator, work: impl FnOnce(&Translator) -> R) -> R {
    translator.set_batched(true);
    let engine = translator.engine().clone();
    scope(|scope| {
        let decoding = scope.spawn(|| engine.run());
        let result = work(translator);
        translator.engine().close();
        decoding.join().unwrap().unwrap();
        result
    })
}

fn text(translator: &Translator, text: &str) -> TextTranslation {
    translator.translate_texts(&[text]).unwrap().remove(0)
}

#[test]
fn texts_of_many_threads_have_the_translations_they_have_alone() {
    let demo = Demo::new();
    let texts = texts();
    let beam = Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() });
    for strategy in [Strategy::Greedy, beam] {
        let mut options = demo.options();
        options.search.strategy = strategy;
        options.alignment = true;
        options.glossary = Some(Arc::new(Glossary::from_tsv("maison\thome\n").unwrap()));
        let alone = demo.translator(options.clone());
        let expected: Vec<TextTranslation> = texts.iter().map(|one| text(&alone, one)).collect();
        with_batch(&mut demo.translator_of(5, options), |translator| {
            scope(|scope| {
                for first in 0..6 {
                    let (texts, expected) = (&texts, &expected);
                    let translator = translator.clone();
                    scope.spawn(move || {
                        let mine = texts.iter().zip(expected).skip(first).step_by(6);
                        for (one, expected) in mine {
                            assert_eq!(text(&translator, one), *expected, "{one}");
                        }
                        let all: Vec<&str> = texts.iter().map(String::as_str).collect();
                        if first == 0 {
                            assert_eq!(translator.translate_texts(&all).unwrap(), *expected);
                        }
                    });
                }
            });
        });
    }
}

/// Translators with other options join the batch, and wait for the one session beside it.
#[test]
fn translators_with_other_options_share_two_sessions() {
    let demo = Demo::new();
    let mut aligned = demo.options();
    aligned.alignment = true;
    let expected = text(&demo.translator(aligned.clone()), "la maison blanche.");
    let plans = with_batch(&mut demo.translator(demo.options()), |translator| {
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let other = translator.with_options(aligned.clone()).unwrap();
                        assert_eq!(text(&other, "la maison blanche."), expected);
                    }
                });
            }
        });
        translator.report().plans
    });
    // One, if no alignment was asked for while the batch ran.
    assert!(plans <= 2, "{plans}");
}

#[test]
fn documents_and_streams_are_those_of_a_translator_alone() {
    let demo = Demo::new();
    let alone = demo.translator(demo.options());
    let page = "<p>La <b>maison</b> blanche. Il fait froid.</p><p>{name} habite ici.</p>";
    let expected = alone.translate_document(page, Format::Html).unwrap();
    with_batch(&mut demo.translator(demo.options()), |translator| {
        assert_eq!(translator.translate_document(page, Format::Html).unwrap(), expected);
        for one in &texts() {
            for streams in [&alone, translator] {
                let (mut joined, mut pieces, mut plain) = (String::new(), String::new(), 0);
                let found = streams.translate_text_streamed(one, &mut |event| match event {
                    TextEvent::Copied(text) => joined += text,
                    TextEvent::Piece(piece) => pieces += piece,
                    TextEvent::Sentence { text, translation, .. } => {
                        // Pieces are those of the first search.
                        plain += usize::from(std::mem::take(&mut pieces) == translation.text);
                        joined += text;
                    }
                    _ => panic!("{event:?}"),
                });
                let found = found.unwrap();
                assert_eq!(found, text(&alone, one), "{one}");
                assert_eq!(joined, found.text());
                assert!(one.contains('▾') || one.contains('{') || plain == found.sentences.len());
            }
        }
    });
}

#[test]
fn a_call_is_cancelled_alone_and_a_closed_engine_is_an_error() {
    let demo = Demo::new();
    let long = "la vieille maison blanche est belle. ".repeat(2000);
    let mut translator = demo.translator_of(2, demo.options());
    with_batch(&mut translator, |translator| {
        let mut cancelled = translator.clone();
        let cancel = Cancel::new();
        cancelled.set_cancel(cancel.clone());
        scope(|scope| {
            let call = scope.spawn(|| cancelled.translate(&long));
            std::thread::sleep(Duration::from_millis(100));
            // Another one goes on while the first has all slots.
            let other = translator.clone();
            let other = scope.spawn(move || other.translate("je suis étudiant"));
            cancel.cancel();
            let begun = Instant::now();
            assert!(matches!(call.join().unwrap(), Err(Error::Cancelled)));
            assert_eq!(other.join().unwrap().unwrap(), "i am a student");
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        });
    });
    assert!(matches!(translator.translate("je suis étudiant"), Err(Error::Closed)));
    // What is not translated needs no batch, and a translator that does not join it has none.
    assert_eq!(translator.translate("1234").unwrap(), "1234");
    translator.set_batched(false);
    assert_eq!(translator.translate("je suis étudiant").unwrap(), "i am a student");
}

#[test]
fn a_direction_is_set_or_is_an_error() {
    let place = simdformer_testing::published::nllb();
    let builder = Translator::builder(&place.0).options(|options| {
        options.source = Some("eng_Latn".to_owned());
        options.target = Some("fra_Latn".to_owned());
    });
    let expected = builder.open().unwrap().translate("the old house").unwrap();
    let builder = Translator::builder(&place.0).options(|options| {
        options.source = Some("deu_Latn".to_owned());
        options.target = Some("eng_Latn".to_owned());
    });
    let mut translator = builder.open().unwrap();
    let before = translator.translate("the old house").unwrap();
    let error = translator.set_direction(Some("eng_Latn"), Some("xxx")).unwrap_err().to_string();
    assert!(
        error.starts_with("language: expected one of the model's languages, found \"xxx\""),
        "{error}"
    );
    assert_eq!(translator.translate("the old house").unwrap(), before);
    translator.set_direction(Some("eng_Latn"), Some("fra_Latn")).unwrap();
    assert_eq!(translator.translate("the old house").unwrap(), expected);
}
