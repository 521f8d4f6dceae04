//! The five products have one shape: `open`, a builder with options, weights and an engine, and errors of options before the
//! weights are read.

use simdformer::kernels::ThreadPool;
use simdformer::search::{BeamOptions, Strategy};
use simdformer::{Quantization, Threads, WeightDtypes};
use simdformer_speech::{TranscribeOptions, Transcriber};
use simdformer_testing::published::encoder;
use simdformer_testing::published::french;
use simdformer_testing::published::{ONE_LANGUAGE, whisper};
use simdformer_text::embedder::{EmbedOptions, Embedder, Prompt, RerankOptions, Reranker};
use simdformer_text::translator::{Batcher, TranslateOptions, Translator};
use simdformer_text::{Product, ProductBuilder};
use std::fmt::{Debug, Display};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Opens a product in several ways. `run` gives what does not depend on the engine, `wrong` asks for what the directory does
/// not have.
fn check<X, R>(
    place: &Path,
    builder: impl Fn() -> ProductBuilder<'static, X>,
    run: impl Fn(&X) -> R,
    (wrong, named): (fn(&mut X::Options), &str),
) where
    X: Product<Error: Debug + Display> + Send + Sync,
    R: PartialEq + Debug,
{
    let expected = run(&builder().open().unwrap());
    for (threads, slots, sessions) in [(1, 1, 1), (2, 3, 1), (2, 2, 2)] {
        let pool = Threads::Shared(Arc::new(ThreadPool::new(threads).unwrap()));
        let opened = builder()
            .engine(move |engine| engine.threads(pool).slots(slots))
            .engine(move |engine| engine.sessions(sessions))
            .open()
            .unwrap();
        assert_eq!(run(&opened), expected, "{threads} {slots} {sessions}");
    }
    let other = builder().load(WeightDtypes::all(Quantization::W8A8)).open().unwrap();
    assert_ne!(run(&other), expected);
    // The options are checked before the weights are read, which are NaN.
    let weights = place.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].fill(0xff);
    fs::write(&weights, bytes).unwrap();
    let error = |found: Result<X, X::Error>| found.map(drop).unwrap_err().to_string();
    let found = error(builder().options(wrong).options(|_| ()).open());
    assert!(found.contains(named), "{found}");
    let weight = error(builder().open());
    assert!(!weight.contains(named), "{weight}");
}

const SENTENCES: [&str; 3] = ["je suis étudiant", "quel mois", "la vieille maison est belle"];

#[test]
fn a_translator_is_opened() {
    let place = french();
    let run = |one: &Translator| {
        let found = one.translate_sentences(&SENTENCES).unwrap();
        found.into_iter().map(|one| one.score.to_bits()).collect::<Vec<_>>()
    };
    let wrong: fn(&mut TranslateOptions) = |options| options.target = Some("xx".to_owned());
    check(&place.0, || Translator::builder(&place.0), run, (wrong, "xx"));
    // The weights are NaN now.
    let no_beams = Strategy::Beam(BeamOptions { beams: 0, ..BeamOptions::default() });
    let builder =
        Translator::builder(&place.0).options(|options| options.search.strategy = no_beams);
    let error = builder.open().map(drop).unwrap_err().to_string();
    assert_eq!(error, "sequences: expected at least 1, found 0");
}

#[test]
fn a_batcher_is_opened() {
    let place = french();
    let run = |one: &Batcher| {
        let pending = SENTENCES.map(|text| one.submit(text).unwrap());
        pending.map(|one| one.wait().unwrap().score.to_bits())
    };
    let wrong: fn(&mut TranslateOptions) = |options| options.target = Some("xx".to_owned());
    check(&place.0, || Batcher::builder(&place.0), run, (wrong, "xx"));
}

#[test]
fn an_embedder_is_opened() {
    let place = encoder("bert");
    let run = |one: &Embedder| one.embed(&["the cat", "a dog", "the"]).unwrap();
    let wrong: fn(&mut EmbedOptions) = |options| options.dims = Some(1 << 20);
    check(&place.0, || Embedder::builder(&place.0), run, (wrong, "1048576"));
}

#[test]
fn a_reranker_is_opened() {
    let place = encoder("bert_cross");
    let run = |one: &Reranker| one.score("a dog", &["the cat", "a dog", "the"]).unwrap();
    let wrong: fn(&mut RerankOptions) =
        |options| options.prompt = Prompt::Named("no_such_prompt".to_owned());
    check(&place.0, || Reranker::builder(&place.0), run, (wrong, "no_such_prompt"));
}

#[test]
fn a_transcriber_is_opened() {
    let place = whisper(ONE_LANGUAGE);
    let samples: Vec<f32> = (0..24_000).map(|i| (i as f32 * 0.05).sin() * 0.3).collect();
    let builder = || {
        Transcriber::builder(&place.0).options(|options| {
            *options = TranscribeOptions::without_fallback(options.clone());
        })
    };
    let run = |one: &Transcriber| {
        let found = one.transcribe(&samples).unwrap();
        found.windows.iter().map(|window| window.avg_logprob.to_bits()).collect::<Vec<_>>()
    };
    let wrong: fn(&mut TranscribeOptions) = |options| options.language = Some("klingon".to_owned());
    check(&place.0, builder, run, (wrong, "klingon"));
}
