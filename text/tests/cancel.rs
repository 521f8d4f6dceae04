//! Cancelled calls of the library's types: each is an error, what was emitted stays, and the object gives the same bits
//! afterwards.

use crate::directories::golden;
use crate::translator::{Demo, sentences};
use simdformer::kernels::ThreadPool;
use simdformer::search::{SampleOptions, Strategy};
use simdformer::{Cancel, Engine, Threads};
use simdformer_testing::published::encoder;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::Error;
use simdformer_text::documents::Format as DocumentFormat;
use simdformer_text::embedder::{Embedder, Reranker};
use simdformer_text::translator::Translation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_cancelled_translation_comes_again() {
    let demo = Demo::new();
    let sentences = sentences(90);
    let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let mut options = demo.options();
    options.search.strategy =
        Strategy::Sample(SampleOptions { temperature: 3.0, seed: 5, ..SampleOptions::default() });
    let expected = demo.translator_of(1, options.clone()).translate_sentences(&sentences).unwrap();
    let cancel = Cancel::new();
    let mut translator = demo.translator_of(1, options);
    translator.set_cancel(cancel.clone());
    // The second of three windows is cancelled in its middle.
    let flag = cancel.clone();
    translator.set_on_done(move |finished| {
        if finished == 40 {
            flag.cancel();
        }
    });
    let mut emitted: Vec<Translation> = Vec::new();
    let input = || sentences.iter().copied().map(Ok::<_, Error>);
    let done = translator.stream_sentences(input(), |translation| {
        emitted.push(translation);
        Ok(())
    });
    assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
    assert_eq!(emitted, expected[..32]);
    let again = translator.translate_sentences(&["quel mois"]).unwrap_err();
    assert_eq!(again.to_string(), "the call was cancelled");
    cancel.reset();
    // The rest draws from its own streams.
    let rest = translator.translate_sentences(&sentences[32..]).unwrap();
    assert_eq!(rest, expected[32..]);
}

#[test]
fn a_cancelled_document_comes_again() {
    let demo = Demo::new();
    let page = sentences(30).join("\n\n");
    let expected =
        demo.translator(demo.options()).translate_document(&page, DocumentFormat::Markdown);
    let expected = expected.unwrap();
    for at in 0..4 {
        let cancel = Cancel::new();
        let mut translator = demo.translator(demo.options());
        translator.set_cancel(cancel.clone());
        let flag = cancel.clone();
        // With 0, before the document is divided.
        if at == 0 {
            cancel.cancel();
        }
        translator.set_on_done(move |finished| {
            if finished == 9 * at {
                flag.cancel();
            }
        });
        let done = translator.translate_document(&page, DocumentFormat::Markdown);
        // The flag may be set after the last step.
        match done {
            Err(Error::Cancelled) => {}
            done => assert_eq!((done.unwrap(), at), (expected.clone(), 3)),
        }
        translator.set_cancel(Cancel::new());
        let done = translator.translate_document(&page, DocumentFormat::Markdown);
        assert_eq!(done.unwrap(), expected);
    }
}

/// An encoder of `golden/encoders`.
fn place(name: &str) -> TemporaryFolder {
    assert!(golden("encoders").join(name).is_dir(), "{name}");
    encoder(name)
}

#[test]
fn a_clone_of_an_embedder_has_its_own_flag() {
    let texts: Vec<String> = (0..50).map(|i| "the cat ".repeat(1 + i % 7)).collect();
    let embedder = Embedder::open(&place("bert").0).unwrap();
    let expected = embedder.embed(&texts).unwrap();
    let cancel = Cancel::new();
    let mut own = embedder.clone();
    let mut engine = embedder.engine().clone();
    engine.set_slots(8);
    own.set_engine(engine);
    own.set_cancel(cancel.clone());
    let done = Arc::new(AtomicU64::new(0));
    let (count, flag) = (Arc::clone(&done), cancel.clone());
    own.set_on_done(move |finished| {
        count.fetch_add(1, Ordering::Relaxed);
        if finished == 12 {
            flag.cancel();
        }
    });
    let cancelled = own.embed(&texts);
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    // The batch that was run is handed out.
    assert_eq!(done.load(Ordering::Relaxed), 16);
    assert!(matches!(own.embed(&texts[..1]), Err(Error::Cancelled)));
    assert_eq!(embedder.embed(&texts).unwrap(), expected);
    cancel.reset();
    assert_eq!(own.embed(&texts).unwrap(), expected);
}

#[test]
fn a_reranker_is_cancelled() {
    let name = "bert_cross";
    let mut reranker = Reranker::open(&place(name).0).unwrap();
    let expected = reranker.score("a cat", &["the cat", "a dog"]).unwrap();
    let cancel = Cancel::new();
    reranker.set_cancel(cancel.clone());
    cancel.cancel();
    let done = reranker.score("a cat", &["the cat", "a dog"]);
    assert_eq!(done.unwrap_err().to_string(), "the call was cancelled");
    cancel.reset();
    assert_eq!(reranker.score("a cat", &["the cat", "a dog"]).unwrap(), expected);
}

/// Sessions change no result of an embedder or a reranker, and a cancellation ends all of them.
#[test]
fn sessions_of_encoders_give_the_same_bits() {
    let texts: Vec<String> = (0..50).map(|i| "the cat ".repeat(1 + i % 7)).collect();
    let mut embedder = Embedder::open(&place("bert").0).unwrap();
    let mut reranker = Reranker::open(&place("bert_cross").0).unwrap();
    let expected = (embedder.embed(&texts).unwrap(), reranker.score("a dog", &texts).unwrap());
    for (sessions, threads, slots) in [(2, 2, 4), (3, 2, 32), (2, 3, 1), (4, 1, 7)] {
        let pool = Arc::new(ThreadPool::new(threads).unwrap());
        let engine = |of: &Engine| {
            let engine = Engine::builder(Arc::clone(of.model())).slots(slots).sessions(sessions);
            engine.threads(Threads::Shared(pool.clone())).build().unwrap()
        };
        embedder.set_engine(engine(embedder.engine()));
        reranker.set_engine(engine(reranker.engine()));
        for cancels in [false, true] {
            let cancel = Cancel::new();
            embedder.set_cancel(cancel.clone());
            let done = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&done);
            embedder.set_on_done(move |finished| {
                count.fetch_add(1, Ordering::Relaxed);
                if cancels && finished == 3 {
                    cancel.cancel();
                }
            });
            let found = embedder.embed(&texts);
            let done = done.load(Ordering::Relaxed);
            if cancels && found.is_err() {
                assert!(matches!(found, Err(Error::Cancelled)) && done >= 3, "{done}");
            } else {
                assert_eq!((found.unwrap(), done), (expected.0.clone(), 50), "{sessions}");
                // A flag that is set in the last batches of all sessions is not seen.
                assert!(!cancels || slots == 32, "{sessions} {slots}");
            }
        }
        assert_eq!(reranker.score("a dog", &texts).unwrap(), expected.1, "{sessions}");
    }
}
