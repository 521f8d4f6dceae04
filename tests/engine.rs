//! [`Engine`]: each source has the bits that it has alone in a session, whatever was planned before; plans grow between
//! calls and not within their limits; one bad source is an error in its place.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use core::ops::ControlFlow;
use simdformer::checkpoint::TensorId;
use simdformer::config::Family;
use simdformer::kernels::{Isa, ThreadPool};
use simdformer::search::{BeamOptions, Finish, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{
    Cancel, Engine, Error, Event, Features, Generation, Limits, Model, Request, Session, Source,
    Stop, Threads, Workload,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};

const VOCABULARY: usize = 131;

fn model() -> Arc<Model> {
    Arc::new(Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("a model"))
}

fn threads(count: usize) -> Threads<'static> {
    match count {
        1 => Threads::Serial,
        _ => Threads::Shared(Arc::new(ThreadPool::new(count).expect("threads"))),
    }
}

fn greedy(model: &Model) -> SearchOptions {
    SearchOptions { max_new_tokens: Some(9), max_length: None, ..model.config().search_options() }
}

/// One of the kinds of options that a request may have.
fn options(model: &Model, random: &mut Random) -> SearchOptions {
    let base = SearchOptions { max_new_tokens: Some(1 + random.below(12)), ..greedy(model) };
    let beams = 2 + random.below(4);
    let beam = BeamOptions { beams, ..BeamOptions::default() };
    let sample = SampleOptions { seed: random.bits(), temperature: 0.8, ..Default::default() };
    match random.below(6) {
        0 => base,
        1 => SearchOptions { repetition_penalty: 1.3, no_repeat_ngram: Some(2), ..base },
        // The target ends at a length of the engine.
        2 => SearchOptions { max_new_tokens: None, ..base },
        3 => SearchOptions { strategy: Strategy::Beam(beam), num_return_sequences: 2, ..base },
        4 => SearchOptions { strategy: Strategy::Sample(sample), num_return_sequences: 2, ..base },
        _ => SearchOptions { max_new_tokens: None, max_length: Some(6), ..base },
    }
}

fn request(model: &Model, random: &mut Random) -> Request {
    let (length, prefix) = (1 + random.below(14), random.below(4).saturating_sub(1));
    Request {
        tokens: random.ids(length, VOCABULARY),
        prefix: random.ids(prefix, VOCABULARY),
        options: (random.below(3) > 0).then(|| options(model, random)),
        stream: random.bits(),
        forced_bos: (random.below(4) == 0).then_some(17),
    }
}

/// The result of a request alone, in a session that was planned for it alone.
fn alone(model: &Model, request: &Request, default: &SearchOptions) -> Generation {
    let options = request.options.as_ref().unwrap_or(default);
    let prompt = 1 + request.prefix.len();
    let target = match (options.max_new_tokens, options.max_length) {
        (Some(new), _) => new + prompt,
        (None, Some(length)) => length.max(prompt + 1),
        (None, None) => 256,
    };
    let positions = model.config().decoder.and_then(|decoder| decoder.max_positions);
    let limits = Limits {
        beams: options.sequences(),
        ..Limits::new(1, request.tokens.len(), target.min(positions.unwrap_or(usize::MAX)))
    };
    let mut session = Session::new(model, limits).expect("a session");
    let source = Source {
        prefix: &request.prefix,
        stream: request.stream,
        forced_bos: request.forced_bos,
        ..Source::new(&request.tokens)
    };
    let mut found = None;
    let done = session.generate(&[source], options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event {
            let hypotheses = done.hypotheses().map(|one| (one.tokens.to_vec(), one.score));
            found = Some(Generation { finish: done.finish, hypotheses: hypotheses.collect() });
        }
    });
    done.expect("a result");
    found.expect("an event")
}

/// The same with the bits of the scores, because some are NaN.
fn bits(generation: &Generation) -> (Finish, Vec<(Vec<u32>, u32)>) {
    let bits = |(tokens, score): &(Vec<u32>, f32)| (tokens.clone(), score.to_bits());
    (generation.finish, generation.hypotheses.iter().map(bits).collect())
}

/// Random calls of random requests with options of their own, on one engine each: every request has the result that it
/// has alone.
#[test]
fn a_request_has_its_bits_alone_whatever_was_planned_before() {
    let model = model();
    let default = greedy(&model);
    let mut requests = 0;
    for case in 0..cases(8, 100) {
        let mut random = Random(case as u64);
        let slots = 1 + random.below(5);
        let builder = Engine::builder(Arc::clone(&model)).slots(slots);
        let builder = builder.threads(threads(1 + case % 2)).sessions(1 + random.below(3));
        let engine = builder.build().expect("an engine");
        for _ in 0..4 {
            let count = random.below(9);
            let call: Vec<Request> = (0..count).map(|_| request(&model, &mut random)).collect();
            let found = engine.generate_with(&call, &default).expect("results");
            assert_eq!(found.len(), call.len());
            for (request, found) in call.iter().zip(found) {
                let expected = alone(&model, request, &default);
                let found = found.expect("a result");
                assert_eq!(bits(&found), bits(&expected), "case {case}: {request:?}");
            }
            requests += count;
        }
    }
    assert!(requests > cases(90, 1000), "{requests}");
}

/// All that can be asked for gives the same result.
#[test]
fn one_source_or_many_in_any_form() {
    let engine = Engine::from(model());
    let options = greedy(engine.model());
    let tokens = [5, 9, 14, 0];
    let expected = engine.generate_with(&tokens, &options).expect("a result");
    assert_eq!(expected.tokens(), &expected.hypotheses[0].0[..]);
    assert_eq!(expected.score().to_bits(), expected.hypotheses[0].1.to_bits());
    let check = |found: Result<Generation, Error>| assert_eq!(found, Ok(expected.clone()));
    check(engine.generate_with(&tokens[..], &options));
    check(engine.generate_with(&tokens.to_vec(), &options));
    check(engine.generate_with(&Source::new(&tokens), &options));
    check(engine.generate_with(&Request::new(tokens), &options));
    let own = Request { options: Some(options.clone()), ..Request::new(tokens) };
    check(engine.generate(&own));
    let many = |input: &dyn Fn() -> Vec<Result<Generation, Error>>| {
        let found = input();
        assert_eq!(found, vec![Ok(expected.clone()); 2]);
    };
    many(&|| engine.generate_with(&[tokens, tokens], &options).expect("results"));
    many(&|| engine.generate_with(&[&tokens, &tokens], &options).expect("results"));
    many(&|| engine.generate_with(&[&tokens[..], &tokens], &options).expect("results"));
    many(&|| engine.generate_with(&vec![tokens.to_vec(); 2], &options).expect("results"));
    many(&|| engine.generate_with(&[Source::new(&tokens); 2][..], &options).expect("results"));
    many(&|| engine.generate(&[own.clone(), own.clone()]).expect("results"));
    let none: [Request; 0] = [];
    assert_eq!(engine.generate(&none), Ok(vec![]));
}

/// Each kind of bad source at each place among good ones: an error with its index, and the others have their results.
#[test]
fn a_bad_source_is_an_error_in_its_place() {
    let model = model();
    let positions = model.config().encoder.max_positions.expect("positions");
    let good = |stream| Request { stream, ..Request::new([5, 9, 14, 0]) };
    let bad = [
        (Request::new([]), "expected at least one token, found none".to_owned()),
        (
            Request::new(vec![5; positions + 1]),
            format!(
                "the limit `source_tokens`: expected at most {positions}, which the model allows, found {}",
                positions + 1
            ),
        ),
        (
            Request::new([5, 900]),
            "token 1: expected a token id below 131, the size of the vocabulary, found 900"
                .to_owned(),
        ),
        (
            Request { prefix: vec![900], ..good(0) },
            "prefix: expected a token id below 131, the size of the vocabulary, found 900"
                .to_owned(),
        ),
        (
            Request {
                options: Some(SearchOptions { repetition_penalty: -1.0, ..greedy(&model) }),
                ..good(0)
            },
            "repetition_penalty: expected a number above 0 and finite, found -1".to_owned(),
        ),
        (
            Request { forced_bos: Some(900), ..good(0) },
            "forced_bos: expected a token id below 131, the size of the vocabulary, found 900"
                .to_owned(),
        ),
    ];
    let options = greedy(&model);
    for count in [1, 2] {
        let builder = Engine::builder(Arc::clone(&model)).threads(threads(count));
        let engine = builder.build().expect("an engine");
        let expected = engine.generate_with(&good(0), &options).expect("a result");
        for (bad, text) in &bad {
            for at in 0..4 {
                let mut call: Vec<Request> = (0..3).map(good).collect();
                call.insert(at, bad.clone());
                let found = engine.generate_with(&call, &options).expect("results");
                for (index, found) in found.into_iter().enumerate() {
                    match found {
                        Ok(found) => assert!(index != at && found == expected),
                        Err(error) => {
                            assert_eq!(error.to_string(), format!("source {at}: {text}"));
                            assert_eq!(index, at);
                        }
                    }
                }
            }
            let error = engine.generate_with(bad, &options).expect_err("one source");
            assert_eq!(error.index(), Some(0), "{error}");
        }
        // What concerns all is the error of the call.
        let wrong = SearchOptions { repetition_penalty: -1.0, ..options.clone() };
        let error = engine.generate_with(&[good(0)], &wrong).expect_err("a wrong option");
        assert!(matches!(error, Error::InvalidOption { index: None, .. }), "{error}");
    }
}

/// A source whose scores are NaN.
#[test]
fn scores_that_are_not_finite_are_an_error_of_their_source() {
    let broken = Model::from_fn(model().config().clone(), |tensor, _, row| {
        let mut random = Random(row.len() as u64);
        row.iter_mut().for_each(|x| *x = 0.1 * random.symmetric());
        if tensor == TensorId::SourceEmbedding {
            row.fill(3e38);
        }
        Ok(())
    });
    let engine = Engine::from(broken.expect("a model"));
    let found = engine.generate_with(&[5, 9, 0], &greedy(engine.model()));
    let text =
        "source 0: expected scores below +inf at position 1 of the target, found NaN or +inf";
    assert_eq!(found.expect_err("not finite").to_string(), text);
}

/// The plan grows for more or longer sources, longer targets and more beams, and for nothing else.
#[test]
fn plans_grow_between_calls() {
    let engine = Engine::builder(model()).slots(4).build().expect("an engine");
    let options = greedy(engine.model());
    assert_eq!((engine.report().plans, engine.plan().is_none()), (0, true));
    let call = |count: usize, tokens: usize, options: &SearchOptions| {
        engine.generate_with(&vec![vec![7; tokens]; count], options).expect("results");
        let limits = engine.plan().expect("a plan").limits();
        (engine.report().plans, [limits.sentences, limits.source_tokens, limits.target_tokens])
    };
    assert_eq!(call(1, 5, &options), (1, [1, 5, 10]));
    assert_eq!(call(1, 4, &options), (1, [1, 5, 10]));
    assert_eq!(call(2, 3, &options), (2, [2, 5, 10]));
    assert_eq!(call(9, 8, &options), (3, [4, 8, 10]));
    assert_eq!(call(99, 8, &options), (3, [4, 8, 10]));
    let short = SearchOptions { max_new_tokens: Some(3), ..options.clone() };
    assert_eq!(call(9, 8, &short), (3, [4, 8, 10]));
    let long = SearchOptions { max_new_tokens: Some(19), ..options.clone() };
    assert_eq!(call(1, 1, &long), (4, [4, 8, 20]));
    let free = SearchOptions { max_new_tokens: None, ..options.clone() };
    let positions = engine.model().config().decoder.and_then(|decoder| decoder.max_positions);
    let most = positions.unwrap_or(256).min(256);
    assert_eq!(call(1, 1, &free), (5, [4, 8, most]));
    let beam = Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() });
    assert_eq!(call(1, 1, &SearchOptions { strategy: beam, ..options.clone() }).0, 6);
    assert_eq!(call(4, 8, &options).0, 6);
    let plan = engine.plan().expect("a plan");
    assert_eq!((plan.limits().beams, engine.report().bytes), (3, plan.bytes()));
    // Lengths that the model's positions do not allow are omitted.
    let beyond = SearchOptions { max_new_tokens: Some(9999), ..options };
    let (fitted, work) = engine.fit(&beyond, 1);
    assert_eq!((fitted.max_new_tokens, Some(work.target_tokens())), (None, positions));
    assert_eq!(fitted.max_length, positions.map(|most| most + 1));
}

#[test]
fn a_limit_of_bytes_holds() {
    let model = model();
    let options = greedy(&model);
    let mut random = Random(5);
    let call: Vec<Vec<u32>> = (0..12).map(|i| random.ids(1 + i, VOCABULARY)).collect();
    let whole = Engine::from(Arc::clone(&model));
    let expected = whole.generate_with(&call, &options).expect("results");
    let one =
        whole.plan_for(&whole.fit(&options, 1).1.with_sources(1, 12)).expect("a plan").bytes();
    let all = whole.report().bytes;
    assert!(3 * one < all, "{one} {all}");
    for bytes in [one, 2 * one, all / 2, all] {
        for count in [1, 2] {
            let builder = Engine::builder(Arc::clone(&model)).threads(threads(count)).bytes(bytes);
            let engine = builder.build().expect("an engine");
            // From the end: the plan grows, within the limit.
            for source in call.iter().rev().take(3) {
                engine.generate_with(source, &options).expect("a result");
            }
            assert_eq!(engine.generate_with(&call, &options).as_ref(), Ok(&expected));
            assert!(engine.report().bytes <= bytes, "{} {bytes}", engine.report().bytes);
            // Calls at the same time share the limit.
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        assert_eq!(engine.generate_with(&call, &options).as_ref(), Ok(&expected));
                    });
                }
            });
            assert!(engine.report().bytes <= bytes, "{} {bytes}", engine.report().bytes);
        }
    }
    let small = Engine::builder(model).bytes(one - 1).build().expect("an engine");
    let error = small.generate_with(&call, &options).expect_err("too few bytes");
    let text = format!(
        "the limit `bytes`: expected at most {}, which the engine may plan, for one source at a time, found {one}",
        one - 1
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(small.report().bytes, 0);
}

#[test]
fn fixed_limits_are_planned_once() {
    let model = model();
    let limits = Limits { beams: 2, ..Limits::new(2, 8, 12) };
    let engine = Engine::builder(Arc::clone(&model)).limits(limits).build().expect("an engine");
    let planned = engine.report();
    assert_eq!((planned.plans, engine.plan().map(|plan| plan.limits())), (1, Some(limits)));
    let options = greedy(&model);
    let call: Vec<Vec<u32>> = (1..10).map(|length| vec![9; length]).collect();
    let found = engine.generate_with(&call, &options).expect("results");
    assert!(found[..8].iter().all(Result::is_ok));
    let text = "source 8: the limit `source_tokens`: expected at most 8, with which the session was planned, found 9";
    assert_eq!(found[8].as_ref().map_err(Error::to_string), Err(text.to_owned()));
    let long = SearchOptions { max_new_tokens: Some(13), ..options.clone() };
    let error = engine.generate_with(&[9, 9], &long).expect_err("too long");
    assert!(matches!(error, Error::BeyondLimit { limit: Some((_, 12)), .. }), "{error}");
    // The options of the checkpoint are fitted.
    assert!(engine.generate(&[9, 9]).is_ok());
    // A call inside of another one would wait for ever.
    let inside = engine.stream(&[Source::new(&[9, 9])], &options, &|event: Event<'_>| {
        if let Event::Done(_) = event {
            let error = engine.generate(&[9]).expect_err("a call inside");
            let text = "expected a call outside of the callbacks of another call, whose sessions it needs, found one inside";
            assert_eq!(error.to_string(), text);
        }
    });
    assert!(inside.is_ok());
    // Calls of other threads wait for each other.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(engine.generate_with(&call[..8], &options).as_deref(), Ok(&found[..8]));
            });
        }
    });
    assert_eq!(engine.report(), planned);
}

/// Two calls are inside of their engine at the same time.
#[test]
fn calls_at_the_same_time_have_sessions_of_their_own() {
    let engine = Engine::from(model());
    let options = greedy(engine.model());
    let (inside, source) = (Barrier::new(2), Source::new(&[5, 9, 0]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let first = AtomicUsize::new(0);
                let done = engine.stream(&[source], &options, &|event: Event<'_>| {
                    if matches!(event, Event::Step(_)) && first.fetch_add(1, Ordering::Relaxed) == 0
                    {
                        inside.wait();
                    }
                });
                assert!(done.is_ok());
            });
        }
    });
    let one = engine.plan().expect("a plan").bytes();
    assert_eq!((engine.report().plans, engine.report().bytes), (2, 2 * one));
}

#[test]
fn a_flag_ends_the_calls_of_one_clone() {
    for count in [1, 2] {
        let builder = Engine::builder(model()).threads(threads(count));
        let engine = builder.build().expect("an engine");
        let options = SearchOptions {
            max_new_tokens: Some(40),
            min_new_tokens: 40,
            ..greedy(engine.model())
        };
        let call = vec![vec![5, 9, 14, 0]; 6];
        let expected = engine.generate_with(&call, &options).expect("results");
        let cancel = Cancel::new();
        let mut own = engine.clone();
        own.set_cancel(cancel.clone());
        let sources: Vec<Source<'_>> = call.iter().map(|ids| Source::new(ids)).collect();
        let ended = own.stream(&sources, &options, &|event: Event<'_>| {
            if let Event::Token { token, .. } = event
                && token.index == 3
            {
                cancel.cancel();
            }
        });
        assert_eq!(ended.err(), Some(Error::CANCELLED));
        assert_eq!(own.generate_with(&call, &options), Err(Error::CANCELLED));
        assert_eq!(own.encode(&call), Err(Error::CANCELLED));
        assert_eq!(engine.generate_with(&call, &options).as_ref(), Ok(&expected));
        own.cancel().reset();
        assert_eq!(own.generate_with(&call, &options).as_ref(), Ok(&expected));
    }
}

/// The answers of a callback are those of a session; after a panic the engine goes on.
#[test]
fn a_callback_ends_sources_and_calls() {
    for count in [1, 2] {
        let builder = Engine::builder(model()).threads(threads(count));
        let engine = builder.build().expect("an engine");
        let options = SearchOptions { min_new_tokens: 9, ..greedy(engine.model()) };
        let sources = [Source::new(&[5, 9, 0]); 5];
        let (finishes, received) = mpsc::channel();
        let done = engine.stream(&sources, &options, &|event: Event<'_>| {
            match event {
                Event::Token { source: 1, .. } => return ControlFlow::Break(Stop::Source),
                Event::Done(done) => finishes.send((done.source, done.finish)).expect("a receiver"),
                _ => (),
            }
            ControlFlow::Continue(())
        });
        assert!(done.is_ok());
        let mut found: Vec<_> = received.try_iter().collect();
        found.sort_by_key(|(source, _)| *source);
        let finish = |source| if source == 1 { Finish::Stopped } else { Finish::Length };
        assert_eq!(found, (0..5).map(|source| (source, finish(source))).collect::<Vec<_>>());
        let panics = || {
            engine.stream(&sources, &options, &|event: Event<'_>| {
                assert!(!matches!(event, Event::Done(_)), "of the caller");
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(engine.generate_with(&[vec![5, 9, 0], vec![4]], &options).is_ok());
        assert_eq!(engine.report().plans, 1 + u64::from(count == 2 && engine.report().plans == 2));
    }
}

/// Hidden states are those of a session, one source at a time.
#[test]
fn hidden_states_are_those_of_a_session() {
    let model = model();
    let mut random = Random(3);
    let ids: Vec<Vec<u32>> = (0..40).map(|i| random.ids(1 + 7 * i % 12, VOCABULARY)).collect();
    let mut session = Session::new(&*model, Limits::new(1, 12, 1)).expect("a session");
    let expected: Vec<Vec<f32>> =
        ids.iter().map(|ids| session.encoder_output(&[ids]).expect("states").to_vec()).collect();
    for count in [1, 2] {
        for slots in [1, 3, 32] {
            let builder = Engine::builder(Arc::clone(&model)).threads(threads(count)).slots(slots);
            let engine = builder.build().expect("an engine");
            assert_eq!(engine.encode(&ids[0]).as_ref(), Ok(&expected[0]));
            let mut call = ids.clone();
            call.insert(7, vec![]);
            call.push(vec![900]);
            let mut found = engine.encode(&call).expect("states");
            let error = found.pop().expect("the last").expect_err("an unknown id");
            assert!(
                error.to_string().starts_with("source 41: token 0: expected a token id"),
                "{error}"
            );
            let error = found.remove(7).expect_err("no tokens");
            assert_eq!(error.to_string(), "source 7: expected at least one token, found none");
            assert_eq!(found.into_iter().collect::<Result<Vec<_>, _>>().as_ref(), Ok(&expected));
            let sources: Vec<Source<'_>> = ids.iter().map(|ids| Source::new(ids)).collect();
            let calls = AtomicUsize::new(0);
            let ended = engine.stream_hidden(&sources, &[], &|_: usize, _: &[f32]| {
                calls.fetch_add(1, Ordering::Relaxed);
                ControlFlow::Break(())
            });
            assert!(ended.is_ok() && calls.into_inner() <= count);
        }
    }
}

/// A model that reads features, and one without a decoder.
#[test]
fn features_and_encoders_are_encoded() {
    let speech = Model::load(&Dims::small(Family::Whisper).checkpoint(8), Isa::best());
    let engine = Engine::from(speech.expect("a model"));
    let bins = engine.model().config().bins.expect("features");
    let values: Vec<f32> = (0..6 * bins).map(|i| (i as f32 * 0.37).sin()).collect();
    let source = Source::of_features(Features::new(&values, bins));
    assert_eq!(
        engine.encode(&source).map(|hidden| hidden.len()),
        Ok(3 * engine.model().config().d_model)
    );
    let found = engine.encode(&[source, Source::new(&[1])]).expect("states");
    let error = found[1].as_ref().expect_err("token ids").to_string();
    assert!(error.starts_with("source 1: expected features"), "{error}");
    let options =
        SearchOptions { max_new_tokens: Some(4), max_length: None, ..engine.search_options() };
    assert!(engine.generate_with(&source, &options).is_ok());

    let encoder = Model::load(&Dims::small(Family::Bert).checkpoint(8), Isa::best());
    let engine = Engine::from(encoder.expect("a model"));
    assert!(engine.encode(&[5, 9, 14]).is_ok());
    assert_eq!(engine.generate(&[5, 9, 14]), Err(Error::NO_DECODER));
    let types = |engine: &Engine, types: &[u32]| {
        let (sender, receiver) = mpsc::channel();
        let sources = [Source::new(&[5, 9, 14])];
        let done = engine.stream_hidden(&sources, &[types], &|_: usize, hidden: &[f32]| {
            sender.send(hidden.to_vec()).expect("a receiver");
        });
        done.map(|()| receiver.recv().expect("hidden states"))
    };
    assert_eq!(types(&engine, &[0, 0, 0]), engine.encode(&[5, 9, 14]));
    assert_ne!(types(&engine, &[0, 1, 1]), engine.encode(&[5, 9, 14]));
    let refused = types(&engine, &[0]).expect_err("a type too few");
    let text = "source 0: types: expected a type for each of 3 tokens, found 1";
    assert_eq!(refused.to_string(), text);
}

/// Bytes that the system does not have are not counted: later calls have the whole limit.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_plan_that_fails_takes_no_bytes() {
    let model = model();
    let engine = Engine::builder(Arc::clone(&model))
        .bytes(1 << 60)
        .slots(1 << 11)
        .build()
        .expect("an engine");
    // More than an address has bits for.
    let beams = BeamOptions { beams: 1 << 20, ..BeamOptions::default() };
    let beams = SearchOptions { strategy: Strategy::Beam(beams), ..greedy(&model) };
    let work = Workload::targets(1 << 11, 256, 256).with_search(&beams);
    for calls in 1..4 {
        let refused = engine.with_session(&work, |_| ()).expect_err("too many bytes");
        assert!(matches!(refused, Error::OutOfMemory { bytes: Some(_), .. }), "{refused}");
        assert_eq!(engine.report().bytes, 0, "{calls}");
    }
    let small = Workload::targets(1, 1, 1);
    let bytes = engine.with_session(&small, |session| session.plan().bytes()).expect("a session");
    assert_eq!(engine.report().bytes, bytes);
}

/// A session for other work: it is planned for what is asked for, and again for more.
#[test]
fn a_session_is_planned_for_its_work() {
    let engine = Engine::from(model());
    let limits = |work: Workload| {
        engine.with_session(&work, |session| session.plan().limits()).expect("a session")
    };
    let first = limits(Workload::targets(3, 9, 7));
    assert_eq!((first.sentences, first.source_tokens, first.target_tokens), (3, 9, 7));
    assert_eq!(limits(Workload::encode(2, 4)), first);
    let drafts = limits(Workload::targets(1, 1, 1).with_drafts(5));
    assert_eq!((drafts.draft_tokens, drafts.sentences, drafts.target_tokens), (5, 3, 7));
    assert_eq!(engine.report().plans, 2);
}

/// Who needs little leaves the large session to who needs it: two callers at a time plan two sessions.
#[test]
fn the_smallest_idle_session_that_suffices_is_taken() {
    let engine = Engine::from(model());
    let (small, large) = (Workload::targets(1, 4, 4), Workload::targets(3, 9, 7));
    let sentences = |outer: &Workload, inner: &Workload| {
        let both = engine.with_session(outer, |one| {
            let inner = engine.with_session(inner, |other| other.plan().limits().sentences);
            (one.plan().limits().sentences, inner.expect("the inner session"))
        });
        both.expect("the outer session")
    };
    assert_eq!(sentences(&large, &small), (3, 1));
    // Now the large one was used last.
    assert_eq!(sentences(&small, &large), (1, 3));
    assert_eq!(engine.report().plans, 2);
}
