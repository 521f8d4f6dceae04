//! The batcher: sentences that many threads submit at any time have the translations that each has alone.

use crate::translator::{Demo, sentences};
use simdformer::search::{BeamOptions, Finish, Strategy};
use simdformer_text::Error;
use simdformer_text::translator::{
    BatchEvent, BatchRequest, Batcher, Failure, TranslateOptions, Translation,
};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn batcher(demo: &Demo, options: TranslateOptions) -> Batcher {
    Batcher::new(&demo.translator(options)).unwrap()
}

fn alone(demo: &Demo, options: &TranslateOptions, sentences: &[String]) -> Vec<Translation> {
    let translator = demo.translator(options.clone());
    let one = |text: &String| translator.translate_sentences(&[text]).unwrap().remove(0);
    sentences.iter().map(one).collect()
}

/// Fails when `work` does not end within 100 seconds.
fn within<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || drop(send.send(work())));
    match receive.recv_timeout(Duration::from_secs(100)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

#[test]
fn sentences_of_many_threads_have_the_translations_they_have_alone() {
    let demo = Demo::new();
    let mut sentences = sentences(120);
    // Longer than what the first sentences plan.
    sentences[77] = sentences[..10].join(" ");
    // Sentences that take more than one search.
    for i in (3..120).step_by(7) {
        sentences[i].push_str(" ▾");
    }
    for i in (5..120).step_by(11) {
        sentences[i] = sentences[i].to_uppercase();
    }
    let beam = Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() });
    for strategy in [Strategy::Greedy, beam] {
        let mut options = demo.options();
        options.search.strategy = strategy;
        let expected = alone(&demo, &options, &sentences);
        let batcher = Batcher::new(&demo.translator_of(5, options)).unwrap();
        let (sentences, expected) = (sentences.clone(), expected);
        within(move || {
            std::thread::scope(|scope| {
                for first in 0..8 {
                    let (batcher, sentences, expected) = (&batcher, &sentences, &expected);
                    scope.spawn(move || {
                        let mine = sentences.iter().zip(expected).skip(first).step_by(8);
                        // Several at a time, received in the opposite order.
                        let mine: Vec<_> = mine
                            .map(|(text, expected)| (batcher.submit(text).unwrap(), text, expected))
                            .collect();
                        for (pending, text, expected) in mine.into_iter().rev() {
                            assert_eq!(pending.wait().unwrap(), *expected, "{text}");
                        }
                    });
                }
            });
            assert!(batcher.is_empty());
            batcher.close();
        });
    }
}

#[test]
fn pieces_of_text_are_the_text() {
    let demo = Demo::new();
    let batcher = batcher(&demo, demo.options());
    let pending = batcher.submit("la vieille maison blanche est belle").unwrap();
    let (mut pieces, mut text) = (Vec::new(), None);
    while let Some(event) = pending.next_event() {
        match event {
            BatchEvent::Text(piece) => pieces.push(piece),
            BatchEvent::Done(translation) => text = Some(translation.text),
            other => panic!("{other:?}"),
        }
    }
    assert!(pieces.len() > 3, "{pieces:?}");
    assert_eq!(Some(pieces.concat()), text);
}

/// The first sentence waits in its first event, so that the others are submitted and cancelled meanwhile.
#[test]
fn a_cancelled_sentence_ends_and_the_others_do_not_change() {
    let demo = Demo::new();
    let sentences = sentences(12);
    let (slots, options) = (2, demo.options());
    let expected = alone(&demo, &options, &sentences);
    let batcher = Batcher::new(&demo.translator_of(slots, options)).unwrap();
    within(move || {
        let (submitted, first_event) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (wait, tell) = (Arc::clone(&submitted), Arc::clone(&first_event));
        let (send, done) = channel();
        let mut events = 0;
        let request = BatchRequest { text: &sentences[0], ..BatchRequest::default() };
        let ticket = batcher.submit_with(request, move |event| {
            events += 1;
            if events == 1 {
                tell.wait();
                wait.wait();
            }
            if let BatchEvent::Done(translation) = event {
                send.send(translation).unwrap();
            }
        });
        first_event.wait();
        let pending: Vec<_> =
            sentences[1..].iter().map(|text| batcher.submit(text).unwrap()).collect();
        ticket.unwrap().cancel();
        pending.iter().step_by(2).for_each(simdformer_text::translator::Pending::cancel);
        submitted.wait();
        let first = done.recv().unwrap();
        assert_eq!(first.finish, Some(Finish::Stopped));
        assert!(!first.text.is_empty() && expected[0].text.starts_with(&first.text));
        for (number, (pending, expected)) in pending.into_iter().zip(&expected[1..]).enumerate() {
            let found = pending.wait().unwrap();
            if number % 2 == 0 {
                assert_eq!(
                    (found.finish, &found.text[..]),
                    (Some(Finish::Stopped), ""),
                    "{number}"
                );
            } else {
                assert_eq!(found, *expected, "{number}");
            }
        }
    });
}

#[test]
fn what_cannot_be_translated_is_said_of_its_sentence() {
    let demo = Demo::new();
    let batcher = batcher(&demo, demo.options());
    let long = "la maison ".repeat(400);
    let long = batcher.submit(&long).unwrap().wait().unwrap();
    assert!(matches!(long.failure, Some(Failure::TooLong { .. })), "{long:?}");
    let spaces = batcher.submit("   ").unwrap().wait().unwrap();
    assert_eq!((&spaces.text[..], spaces.finish), ("   ", None));
    let request = BatchRequest { text: "a", target: Some("xx"), ..BatchRequest::default() };
    let error = batcher.submit_with(request, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Language { .. }), "{error}");
    assert_eq!(batcher.submit("la maison").unwrap().wait().unwrap().finish, Some(Finish::End));
}

/// Fixed limits have no session for a longer sentence: it is refused, and those behind it are translated.
#[test]
fn a_sentence_beyond_fixed_limits_is_refused() {
    within(|| {
        let place = simdformer_testing::published::french();
        let builder = Batcher::builder(&place.0).options(|options| {
            options.search.max_new_tokens = Some(16);
            options.search.max_length = None;
        });
        let limits = simdformer::Limits::new(2, 12, 24);
        let batcher = builder.engine(move |engine| engine.limits(limits)).open().unwrap();
        let texts = ["quel mois", &"la maison ".repeat(20), "je suis étudiant"];
        let pending = texts.map(|text| batcher.submit(text).unwrap());
        let [first, long, last] = pending.map(|one| one.wait());
        assert_eq!((&*first.unwrap().text, &*last.unwrap().text), ("what month", "i am a student"));
        let error = long.unwrap_err().to_string();
        assert!(error.contains("at most 12, with which the session was planned"), "{error}");
    });
}

#[test]
fn nothing_waits_for_a_batcher_that_is_gone() {
    let demo = Demo::new();
    let sentences = sentences(40);
    let dropped = batcher(&demo, demo.options());
    let panicked = batcher(&demo, demo.options());
    within(move || {
        let pending: Vec<_> = sentences.iter().map(|text| dropped.submit(text).unwrap()).collect();
        drop(dropped);
        let mut ended = 0;
        for (one, text) in pending.into_iter().zip(&sentences) {
            match one.wait() {
                Ok(whole) if whole.finish.is_none() => assert_eq!(whole.text, *text),
                Ok(whole) => assert_eq!(whole.finish, Some(Finish::End), "{text}"),
                Err(Error::Closed) => ended += 1,
                Err(error) => panic!("{text}: {error}"),
            }
        }
        assert!(ended > 10, "{ended}");
        for text in &sentences[..2] {
            let request = BatchRequest { text, ..BatchRequest::default() };
            // The second is refused if the thread has ended before.
            drop(panicked.submit_with(request, |_| panic!("a panic of the test")));
        }
        let mut closed = 0;
        for text in &sentences[2..] {
            let found = panicked.submit(text).and_then(simdformer_text::translator::Pending::wait);
            closed += usize::from(matches!(found, Err(Error::Closed)));
        }
        assert!(closed > 10, "{closed}");
        panicked.close();
    });
}

/// Sentences of every kind that wait when the decoding thread ends by a panic.
#[test]
fn a_panic_ends_what_waits() {
    let demo = Demo::new();
    let sentences = sentences(20);
    let batcher = batcher(&demo, demo.options());
    within(move || {
        let (begun, submitted) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&submitted));
        let mut is_first = true;
        let request = BatchRequest { text: &sentences[0], ..BatchRequest::default() };
        let first = batcher.submit_with(request, move |_| {
            if std::mem::take(&mut is_first) {
                tell.wait();
                wait.wait();
                panic!("a panic of the test");
            }
        });
        first.unwrap();
        begun.wait();
        // Two of three take more than one search.
        let texts = sentences[1..7].iter().enumerate().map(|(i, text)| match i % 3 {
            0 => text.clone(),
            1 => format!("{text} ▾"),
            _ => text.to_uppercase(),
        });
        let pending: Vec<_> = texts.map(|text| batcher.submit(&text).unwrap()).collect();
        submitted.wait();
        for one in pending {
            assert!(matches!(one.wait(), Err(Error::Closed)));
        }
        batcher.close();
    });
}

#[test]
fn who_submits_more_than_the_capacity_waits() {
    let demo = Demo::new();
    let sentences = sentences(60);
    let (slots, options) = (2, demo.options());
    let batcher = Batcher::new(&demo.translator_of(slots, options)).unwrap();
    batcher.set_capacity(3);
    within(move || {
        std::thread::scope(|scope| {
            for first in 0..4 {
                let (batcher, sentences) = (&batcher, &sentences);
                scope.spawn(move || {
                    let mine = sentences.iter().skip(first).step_by(4);
                    let pending: Vec<_> = mine
                        .map(|text| {
                            assert!(batcher.len() <= 3);
                            batcher.submit(text).unwrap()
                        })
                        .collect();
                    pending.into_iter().for_each(|one| drop(one.wait().unwrap()));
                });
            }
        });
        assert!(batcher.is_empty());
    });
}

/// One that may not wait: what submits it is what would make room.
#[test]
fn an_event_may_submit_beyond_the_capacity() {
    let demo = Demo::new();
    let batcher = Arc::new(batcher(&demo, demo.options()));
    batcher.set_capacity(1);
    within(move || {
        let (send, receive) = channel();
        let (own, request) = (
            Arc::downgrade(&batcher),
            BatchRequest { text: "il fait froid", ..BatchRequest::default() },
        );
        let submitted = batcher.submit_with(request, move |event| {
            if let (BatchEvent::Text(_), Some(batcher)) = (event, own.upgrade()) {
                drop(send.send(batcher.submit("la maison").unwrap()));
            }
        });
        submitted.unwrap();
        assert_eq!(receive.recv().unwrap().wait().unwrap().finish, Some(Finish::End));
    });
}

/// Sentences that take more than one search get their turn while others arrive without end, and leave the others alone when
/// they are cancelled at any time.
#[test]
fn sentences_of_more_than_one_search_get_their_turn() {
    let demo = Demo::new();
    let (slots, options) = (3, demo.options());
    let sentences = sentences(60);
    let plain = alone(&demo, &options, &sentences);
    let marked: Vec<String> = sentences.iter().map(|one| format!("♪ {one}")).collect();
    let expected = alone(&demo, &options, &marked);
    let batcher = Arc::new(Batcher::new(&demo.translator_of(slots, options)).unwrap());
    within(move || {
        // Each that ends submits another, so that the batch is never empty.
        fn feed(batcher: &Arc<Batcher>, sentences: &Arc<Vec<String>>, left: usize) {
            let again = (Arc::clone(batcher), Arc::clone(sentences));
            let text = sentences[left % sentences.len()].clone();
            let request = BatchRequest { text: &text, ..BatchRequest::default() };
            let ticket = batcher.submit_with(request, move |event| {
                if matches!(event, BatchEvent::Done(_)) && left > 0 {
                    feed(&again.0, &again.1, left - 1);
                }
            });
            drop(ticket.unwrap());
        }
        let shared = Arc::new(sentences.clone());
        (0..4).for_each(|_| feed(&batcher, &shared, 100));
        for (i, (text, expected)) in marked.iter().zip(&expected).enumerate().step_by(5) {
            let kept = batcher.submit(text).unwrap();
            let cancelled = batcher.submit(text).unwrap();
            std::thread::sleep(Duration::from_millis(i as u64 % 4));
            cancelled.cancel();
            let found = cancelled.wait().unwrap();
            assert!(found.finish == Some(Finish::Stopped) || found == *expected, "{text}");
            assert_eq!(kept.wait().unwrap(), *expected, "{text}");
            assert_eq!(batcher.submit(&sentences[i]).unwrap().wait().unwrap(), plain[i]);
        }
        // Cancelled before anything else arrives.
        for text in &marked[..10] {
            batcher.submit(text).unwrap().cancel();
        }
        assert_eq!(batcher.submit(&sentences[3]).unwrap().wait().unwrap(), plain[3]);
        // The decoding thread must not be the one that drops the batcher.
        while Arc::strong_count(&batcher) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
