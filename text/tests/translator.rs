//! The library's translator: the same bits in any company, order, bounded windows, errors of one sentence.

use simdformer::config::{Config, TiedWeights};
use simdformer::search::{BeamOptions, SampleOptions, Strategy};
use simdformer::{Engine, Model, Threads};
use simdformer_testing::published::french;
use simdformer_text::Error;
use simdformer_text::Tokenizer;
use simdformer_text::translator::{
    Failure, Glossary, Report, TranslateOptions, Translation, Translator,
};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The demo model.
pub struct Demo {
    pub model: Arc<Model>,
    pub tokenizer: Arc<Tokenizer>,
}

impl Demo {
    pub fn new() -> Self {
        let place = french();
        let model = Arc::new(Model::open(&place.0).unwrap());
        let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
        Self { model, tokenizer }
    }

    pub fn options(&self) -> TranslateOptions {
        TranslateOptions::new(self.model.config())
    }

    pub fn translator(&self, options: TranslateOptions) -> Translator {
        Translator::new(&self.model, Arc::clone(&self.tokenizer), options).unwrap()
    }

    /// One that decodes this many sentences at the same time.
    pub fn translator_of(&self, slots: usize, options: TranslateOptions) -> Translator {
        let engine = Engine::builder(Arc::clone(&self.model)).slots(slots).build().unwrap();
        Translator::new(engine, Arc::clone(&self.tokenizer), options).unwrap()
    }
}

/// Sentences of the grammar, a blank one among them.
pub fn sentences(count: usize) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en/held_out.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let source = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["source"].as_str().unwrap().to_owned()
    };
    let mut all: Vec<String> = lines.lines().take(count).map(source).collect();
    all[count / 2] = "  ".to_owned();
    all
}

fn all(translator: &Translator, sentences: &[String]) -> Vec<Translation> {
    let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
    translator.translate_sentences(&sentences).unwrap()
}

/// Runs the first program of the repository's README.md, which the documentation only compiles.
#[test]
#[expect(clippy::print_stdout, reason = "the program prints")]
fn the_first_program_of_the_readme_runs() -> Result<(), Box<dyn std::error::Error>> {
    let readme = include_str!("../../README.md");
    let program = readme.split("```rust,no_run\n").nth(1).unwrap().split("# Ok(()) }").next();
    let (uses, program) = program.unwrap().split_once("\n\n# fn main()").unwrap();
    let lines: Vec<&str> = program.lines().skip(1).collect();
    let place = french();
    let found = lines.join("\n").replace("\"models/fr-en\"", "&place.0");
    let translator = Translator::open(&place.0)?;
    println!("{}", translator.translate("je suis étudiant")?);
    assert_eq!(uses, "use simdformer_text::translator::Translator;");
    let here = include_str!("translator.rs");
    assert!(lines.len() == 2 && here.contains(&found.replace('\n', "\n    ")), "{found}");
    assert_eq!(translator.translate("je suis étudiant")?, "i am a student");
    let two = "La vieille maison blanche est belle. Où est-ce qu'elle habite ?";
    let expected = "the old white house is beautiful . where does she live ?";
    assert_eq!(translator.translate(two)?, expected);
    let error = translator.translate(&"la maison ".repeat(400));
    assert!(error.is_ok(), "a long sentence is cut: {error:?}");
    Ok(())
}

#[test]
fn the_bits_depend_on_the_sentence_alone() {
    let demo = Demo::new();
    let sentences = sentences(40);
    let beam = Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() });
    for strategy in [Strategy::Greedy, beam] {
        let mut options = demo.options();
        options.search.strategy = strategy;
        options.search.num_return_sequences = options.search.sequences().min(2);
        let expected = all(&demo.translator(options.clone()), &sentences);
        assert_eq!(expected.len(), sentences.len());
        assert!(expected[20].text == sentences[20] && expected[20].finish.is_none());
        assert!(expected.iter().filter(|one| one.finish.is_some()).count() == 39);
        for slots in [1, 3, 32] {
            let translator = demo.translator_of(slots, options.clone());
            // Alone, and from the end, which plans several sessions.
            for (sentence, expected) in sentences.iter().zip(&expected).rev() {
                let one = translator.translate_sentences(&[sentence]).unwrap();
                assert_eq!(one, std::slice::from_ref(expected), "{slots}: {sentence}");
            }
            assert_eq!(all(&translator, &sentences), expected, "{slots}");
        }
        // On threads.
        let mut translator = demo.translator(options);
        for (threads, sessions) in [(2, 1), (2, 2), (2, 3), (3, 4), (1, 2)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let found = pool.install(|| {
                let engine = Engine::builder(Arc::clone(&demo.model));
                let engine = engine.threads(Threads::Rayon).sessions(sessions).build().unwrap();
                translator.set_engine(engine);
                // One, a few, and more than all slots.
                let part = |range| translator.translate_sentences(range).unwrap();
                let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
                [&texts[..1], &texts[1..3], &texts[3..]].map(part).concat()
            });
            assert_eq!(found, expected, "{threads} threads, {sessions} sessions");
        }
    }
}

/// A translator is shared by threads, and its clones count for themselves.
#[test]
fn calls_at_the_same_time_have_the_results_that_they_have_alone() {
    let demo = Demo::new();
    let sentences = sentences(40);
    let translator = demo.translator(demo.options());
    let expected = all(&translator, &sentences);
    let pages: Vec<String> = sentences.chunks(8).map(|part| part.join("\n\n")).collect();
    let of_pages: Vec<String> =
        pages.iter().map(|page| translator.translate(page).unwrap()).collect();
    let mut shared = demo.translator(demo.options());
    let (done, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, largest) = (Arc::clone(&done), Arc::clone(&most));
    shared.set_on_done(move |finished| {
        count.fetch_add(1, Ordering::Relaxed);
        largest.fetch_max(finished, Ordering::Relaxed);
    });
    std::thread::scope(|scope| {
        for (number, page) in pages.iter().enumerate() {
            let (shared, expected, of_pages) = (&shared, &expected, &of_pages);
            let part = &sentences[8 * number..8 * number + 8];
            scope.spawn(move || {
                for _ in 0..2 {
                    assert_eq!(all(shared, part), expected[8 * number..8 * number + 8]);
                    assert_eq!(shared.translate(page).unwrap(), of_pages[number]);
                }
            });
        }
    });
    let (found, alone) = (shared.report(), translator.report());
    let counts = |of: &Report| (of.sentences, of.texts, of.source_tokens, of.target_tokens);
    let (one, two) = (counts(&alone), counts(&found));
    assert_eq!(two, (2 * one.0, 2 * one.1, 2 * one.2, 2 * one.3));
    // The blank sentence is not run.
    assert_eq!((done.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (156, 156));
    let other = shared.clone();
    assert_eq!(all(&other, &sentences[..8]), expected[..8]);
    assert_eq!(other.report().sentences, found.sentences + 8);
    assert_eq!(shared.report().sentences, found.sentences);
}

#[test]
fn samples_draw_from_the_stream_of_their_sentence() {
    let demo = Demo::new();
    let sentences = sentences(12);
    let mut options = demo.options();
    options.search.strategy =
        Strategy::Sample(SampleOptions { temperature: 3.0, seed: 5, ..SampleOptions::default() });
    assert!(options.samples());
    let expected = all(&demo.translator(options.clone()), &sentences);
    let mut translator = demo.translator(options);
    let parts = [&sentences[..5], &sentences[5..]].map(|part| all(&translator, part));
    assert_eq!(parts.concat(), expected);
    translator.seek(9);
    assert_eq!(all(&translator, &sentences[9..]), expected[9..]);
    assert_ne!(all(&translator, &sentences[9..]), expected[9..]);
}

/// A window is read, translated and emitted before the next is read.
#[test]
fn a_stream_holds_one_window() {
    let demo = Demo::new();
    let translator = demo.translator_of(2, demo.options());
    let (read, emitted) = (Cell::new(0usize), Cell::new(0usize));
    let texts = ["je suis étudiant", "quel mois", "où est-ce qu'elle habite ?"];
    let expected = ["i am a student", "what month", "where does she live ?"];
    let input = (0..1000).map(|i| {
        read.set(read.get() + 1);
        assert!(read.get() - emitted.get() <= 64, "{} read, {}", read.get(), emitted.get());
        Ok::<_, Error>(texts[i % 3])
    });
    let done = translator.stream_sentences(input, |translation| {
        assert_eq!(translation.text, expected[emitted.get() % 3]);
        emitted.set(emitted.get() + 1);
        Ok(())
    });
    done.unwrap();
    assert_eq!((read.get(), emitted.get()), (1000, 1000));
    assert_eq!((translator.report().sentences, translator.report().plans), (1000, 1));
}

/// An error of the input comes after the sentences before it; an error of the output ends the stream.
#[test]
fn errors_end_a_stream_in_order() {
    #[derive(Debug, PartialEq)]
    enum Stop {
        Input,
        Output,
        Other,
    }
    impl From<Error> for Stop {
        fn from(_: Error) -> Self {
            Self::Other
        }
    }
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let mut texts = Vec::new();
    let input = [Ok("quel mois"), Ok(""), Err(Stop::Input), Ok("quel mois")];
    let done = translator.stream_sentences(input, |translation| {
        texts.push(translation.text);
        Ok(())
    });
    assert_eq!(
        (done, &texts[..]),
        (Err(Stop::Input), &["what month".to_owned(), String::new()][..])
    );
    let done = translator.stream_sentences([Ok("quel mois"), Ok("")], |_| Err(Stop::Output));
    assert_eq!(done, Err(Stop::Output));
}

#[test]
fn a_sentence_that_is_too_long_is_an_error_of_this_sentence() {
    let demo = Demo::new();
    let long = "la maison ".repeat(400);
    let sentences = ["quel mois", &long, "quel mois"];
    let translator = demo.translator(demo.options());
    let found = translator.translate_sentences(&sentences).unwrap();
    assert_eq!(found[1].failure, Some(Failure::TooLong { tokens: 801, most: 128 }));
    assert_eq!(found[1].failure.unwrap().to_string(), "801 tokens, the model takes 128");
    assert_eq!((&*found[0].text, &*found[2].text), ("what month", "what month"));
    assert_eq!((translator.report().failed, translator.report().truncated), (1, 0));
    let mut options = demo.options();
    options.truncate = true;
    let translator = demo.translator(options);
    let found = translator.translate_sentences(&sentences).unwrap();
    assert!(found[1].truncated && found[1].source_tokens == 801 && !found[1].text.is_empty());
    assert_eq!(translator.report().truncated, 1);
}

/// A tokenizer that belongs to another model: sentences of known tokens are translated.
#[test]
fn a_token_that_the_model_lacks_is_an_error_of_its_sentence() {
    let demo = Demo::new();
    let largest = |text: &str| {
        let ids = demo.tokenizer.encode(text, &Default::default()).unwrap().ids;
        ids.into_iter().max().unwrap()
    };
    let mut texts = ["quel mois", "où est-ce qu'elle habite ?"];
    texts.sort_by_key(|text| largest(text));
    let sentences = [texts[0], texts[1], texts[0]];
    let (vocabulary, token) = (largest(texts[0]) + 1, largest(texts[1]));
    assert!(token >= vocabulary);
    let ties = TiedWeights { source_target: false, target_output: true };
    let source_vocab = vocabulary as usize;
    let config = Config { source_vocab, ties, ..demo.model.config().clone() };
    let model = Arc::new(Model::from_fn(config, |_, _, _| Ok(())).unwrap());
    let mut options = TranslateOptions::new(model.config());
    options.search.max_new_tokens = Some(3);
    for sessions in [1, 2] {
        let engine = Engine::builder(Arc::clone(&model)).sessions(sessions).build().unwrap();
        let translator =
            Translator::new(engine, Arc::clone(&demo.tokenizer), options.clone()).unwrap();
        let found = translator.translate_sentences(&sentences).unwrap();
        let Some(failure @ Failure::UnknownToken { token: first, .. }) = found[1].failure else {
            panic!("{found:?}")
        };
        assert!((vocabulary..=token).contains(&first));
        let text = format!("token {first} is outside the vocabulary of {vocabulary}");
        assert_eq!((failure.to_string(), found[1].finish), (text, None));
        assert!(found[0].finish.is_some() && found[0] == found[2], "{found:?}");
        assert_eq!(translator.report().failed, 1);
    }
}

#[test]
fn probabilities_of_tokens_are_kept() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let [one]: [Translation; 1] =
        translator.translate_sentences(&["quel mois"]).unwrap().try_into().unwrap();
    assert_eq!(one.token_scores.len(), one.tokens.len());
    let sum: f32 = one.token_scores.iter().sum();
    assert!((sum - one.score).abs() < 1e-5, "{sum} {}", one.score);
    let (mean, min) = (one.mean_log_probability().unwrap(), one.min_log_probability().unwrap());
    assert!((mean - sum / one.tokens.len() as f32).abs() < 1e-6 && min <= mean && mean <= 0.0);
    let mut options = demo.options();
    options.search.scores = false;
    let plain = demo.translator(options).translate_sentences(&["quel mois"]).unwrap();
    assert_eq!((&plain[0].text, plain[0].mean_log_probability()), (&one.text, None));
}

/// A retry has options of its own, whose maximum length is fitted to the positions, too.
#[test]
fn a_retry_ends_at_the_positions_of_the_model() {
    let demo = Demo::new();
    let positions = demo.model.config().decoder.and_then(|one| one.max_positions).unwrap();
    let translate = |max_length| {
        let mut options = demo.options();
        options.search.max_length = Some(max_length);
        options.glossary = Some(Arc::new(Glossary::from_tsv("maison\tcar").unwrap()));
        let found = demo
            .translator(options)
            .translate_texts(&["la vieille maison blanche est belle"])
            .unwrap();
        let one = &found[0].sentences[0].translation;
        (found[0].text().to_owned(), one.retries, one.notes.len())
    };
    let expected = translate(positions + 1);
    assert!(expected.0.contains("car") && expected.1 > 0, "{expected:?}");
    assert_eq!(translate(positions + 2), expected);
    assert_eq!(translate(9 * positions), expected);
}

#[test]
fn wrong_options_are_rejected_at_once() {
    let demo = Demo::new();
    let error =
        |options| Translator::new(&demo.model, Arc::clone(&demo.tokenizer), options).unwrap_err();
    let mut options = demo.options();
    options.target = Some("fr".to_owned());
    assert!(matches!(error(options), Error::Language { .. }));
    let mut options = demo.options();
    options.search.repetition_penalty = -1.0;
    assert!(matches!(error(options), Error::Model(_)));
}

/// The characters of each token are found again on both sides.
#[test]
fn tokens_have_the_bytes_of_their_text() {
    let demo = Demo::new();
    let text = "Où est-ce qu'elle habite ?";
    let direction = simdformer_text::Direction::default();
    let (encoded, spans) = demo.tokenizer.encode_with_spans(text, &direction).unwrap();
    assert_eq!(encoded, demo.tokenizer.encode(text, &direction).unwrap());
    assert_eq!(spans.len(), encoded.ids.len());
    let words: Vec<&str> = spans.iter().map(|span| &text[span.clone()]).collect();
    let joined: String = words.concat();
    assert_eq!(joined, text.replace(' ', ""), "{words:?}");
    assert!(words.contains(&"Où") && words.contains(&"habite"), "{words:?}");
    let found = demo.translator(demo.options()).translate_sentences(&[text]).unwrap();
    let (decoded, spans) = demo.tokenizer.decode_with_spans(&found[0].tokens);
    assert_eq!(decoded, found[0].text);
    let words: Vec<&str> = spans.iter().map(|span| &decoded[span.clone()]).collect();
    assert_eq!(words, ["where", "does", "she", "live", "?", ""]);
}
