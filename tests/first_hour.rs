//! The programs of a first hour run, say what they should, and stay as short as they are meant to be.
#![allow(unsafe_code, reason = "a pool of std's threads lends tasks to threads that live longer")]

#[path = "../examples/first_hour/admit.rs"]
mod admit;
#[path = "../examples/first_hour/by_hand.rs"]
mod by_hand;
#[path = "../examples/first_hour/kernels.rs"]
mod kernels;
#[path = "../examples/first_hour/one_head.rs"]
mod one_head;
#[path = "../examples/first_hour/pool.rs"]
mod pool;
#[path = "../examples/first_hour/service.rs"]
mod service;
#[path = "../examples/first_hour/stream.rs"]
mod stream;
#[path = "../examples/first_hour/translate.rs"]
mod translate;

use simdformer::search::{Finish, Hooks};
use simdformer::{Event, Limits, Model, Session, Source};
use std::path::Path;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/fr-en");
const SOURCES: [&[u32]; 5] = [&[6, 11, 0], &[9, 14, 32, 0], &[8, 0], &[6, 8, 11, 0], &[11, 0]];

/// Each alone, in a session of its own.
fn alone(source: &[u32]) -> Vec<u32> {
    let model = Model::open(MODEL).expect("the model of the repository");
    let mut session = Session::new(&model, Limits::new(1, 32, 40)).expect("a session");
    let options = session.search_options();
    let mut tokens = Vec::new();
    session
        .generate(&[Source::new(source)], &options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                tokens.extend(done.hypotheses().next().expect("a hypothesis").tokens);
            }
        })
        .expect("translated");
    tokens
}

#[test]
fn kernels_on_buffers_and_threads_of_ones_own() {
    for threads in [1, 2, 3] {
        let largest = kernels::run(threads).expect("shapes that fit");
        assert!((largest - 3.0).abs() < 1e-5, "{largest}");
    }
}

#[test]
fn the_best_the_best_few_and_samples() {
    let [best, n_best, samples] = translate::run(MODEL).expect("translated");
    for (source, best) in SOURCES.iter().zip(&best) {
        assert_eq!(best[..], [alone(source)]);
    }
    assert_eq!((best.len(), n_best.len(), samples.len()), (3, 1, 1));
    let all_distinct =
        |found: &[Vec<u32>]| (1..found.len()).all(|i| !found[..i].contains(&found[i]));
    assert!(n_best[0].len() == 3 && all_distinct(&n_best[0]), "{n_best:?}");
    assert!(n_best[0].contains(&best[0][0]), "{n_best:?}");
    assert!(samples[0].len() == 3 && samples[0].iter().all(|sample| !sample.is_empty()));
    assert_eq!(translate::run(MODEL).expect("again"), [best, n_best, samples]);
}

#[test]
fn streams_are_attributed_and_end_when_they_are_told_to() {
    let (streams, counts) = stream::run(MODEL, usize::MAX).expect("streamed");
    assert_eq!(streams[0].tokens, alone(SOURCES[0]));
    assert_eq!(streams[1].tokens, alone(SOURCES[1])[..2]);
    assert_eq!(streams[2].tokens, alone(SOURCES[2]));
    let finishes: Vec<_> = streams.iter().filter_map(|stream| stream.finish).collect();
    assert_eq!(finishes, [Finish::End, Finish::Stopped, Finish::End]);
    assert_eq!(counts.cancelled, 0);
    // And with an end to everything after one token: of the first or of the second.
    let (streams, counts) = stream::run(MODEL, 1).expect("streamed");
    assert!(streams.iter().all(|stream| stream.finish == Some(Finish::Stopped)), "{streams:?}");
    assert_eq!((counts.cancelled, counts.steps), (3, 1));
    assert!(streams[2].tokens.is_empty());
}

#[test]
fn who_is_admitted_in_the_middle_gets_what_he_gets_alone() {
    let found = admit::run(MODEL, &SOURCES).expect("translated");
    assert_eq!(found, SOURCES.map(alone));
}

#[test]
fn a_service_answers_good_requests_and_refuses_bad_ones() {
    let asked = [&SOURCES[..], &[&[1, 999_999]], &SOURCES[..], &[&[]], &SOURCES[..]].concat();
    let answers = service::run(MODEL, &asked).expect("a service");
    assert_eq!(answers.len(), asked.len());
    for (source, answer) in asked.iter().zip(&answers) {
        match answer {
            Ok(found) => assert_eq!(found[..], [alone(source)]),
            Err(text) => assert!(text.starts_with("source 0: "), "{text}"),
        }
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 2);
}

#[test]
fn an_architecture_by_hand_computes() {
    let logits = by_hand::run(1).expect("logits");
    assert_eq!(logits.len(), 100);
    assert!(logits.iter().all(|x| x.is_finite()) && logits.iter().any(|&x| x != logits[0]));
    assert_eq!(by_hand::run(1).expect("again"), logits);
    assert_ne!(by_hand::run(2).expect("other weights"), logits);
}

#[test]
fn the_weights_of_a_head_are_shares_of_the_source() {
    let all: Vec<_> =
        (0..4).map(|head| one_head::run(MODEL, SOURCES[1], (1, head)).expect("weights")).collect();
    for weights in &all {
        assert_eq!(weights.len(), alone(SOURCES[1]).len());
        for row in weights {
            assert_eq!(row.len(), SOURCES[1].len());
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{row:?}");
        }
        assert_eq!(one_head::draw(weights).lines().count(), weights.len());
    }
    assert!(all[1..].iter().all(|other| *other != all[0]), "heads that look alike");
    assert!(one_head::run(MODEL, SOURCES[1], (9, 0)).is_err());
}

/// A program of a first hour is read at once; the pages that lead to it name each.
#[test]
fn each_is_short_and_named_where_one_begins() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let (model, kernels) = (read("src/lib.rs"), read("kernels/src/lib.rs"));
    let mut programs = 0;
    for entry in std::fs::read_dir(root.join("examples/first_hour")).expect("a folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let text = read(&format!("examples/first_hour/{name}"));
        let code = text.lines().filter(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        });
        assert!(code.count() <= 60, "{name} is too long");
        if name != "main.rs" {
            let named = format!("`examples/first_hour/{name}`");
            assert!(model.contains(&named) || kernels.contains(&named), "{name} is named nowhere");
            programs += 1;
        }
    }
    assert_eq!(programs, 8);
}
