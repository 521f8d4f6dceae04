//! `Engine::submit` and `Engine::run`: requests from several threads have the results that they have alone; handles that are
//! cancelled, dropped or closed; errors of the loop.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use simdformer::config::Family;
use simdformer::kernels::{Executor, Isa, ThreadPool};
use simdformer::search::{BeamOptions, Finish, SampleOptions, SearchOptions, Strategy};
use simdformer::{
    Cancel, Engine, Error, Generation, Limits, Model, Request, RequestHandle, Threads,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

const VOCABULARY: usize = 131;
/// The most tokens of those that a short request waits for.
const LONGEST: usize = 20;

fn model() -> Arc<Model> {
    Arc::new(Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("a model"))
}

fn greedy(model: &Model, new: usize) -> SearchOptions {
    SearchOptions { max_new_tokens: Some(new), max_length: None, ..model.config().search_options() }
}

fn request(model: &Model, random: &mut Random) -> Request {
    let base = greedy(model, 1 + random.below(12));
    let beams = BeamOptions { beams: 2 + random.below(3), ..BeamOptions::default() };
    let sample = SampleOptions { seed: random.bits(), temperature: 0.8, ..Default::default() };
    let options = match random.below(4) {
        0 => SearchOptions { strategy: Strategy::Beam(beams), num_return_sequences: 2, ..base },
        1 => SearchOptions { strategy: Strategy::Sample(sample), num_return_sequences: 2, ..base },
        2 => SearchOptions { scores: false, ..base },
        _ => base,
    };
    let (length, prefix) = (1 + random.below(14), random.below(4).saturating_sub(1));
    Request {
        tokens: random.ids(length, VOCABULARY),
        prefix: random.ids(prefix, VOCABULARY),
        options: Some(options),
        stream: random.bits(),
        forced_bos: (random.below(4) == 0).then_some(17),
    }
}

/// With the bits of the scores, because some are NaN.
fn bits(generation: &Generation) -> (Finish, Vec<(Vec<u32>, u32)>) {
    let bits = |(tokens, score): &(Vec<u32>, f32)| (tokens.clone(), score.to_bits());
    (generation.finish, generation.hypotheses.iter().map(bits).collect())
}

/// Runs `engine` on `runners` threads while `work` runs, and closes it then.
fn running<R>(engine: &Engine, runners: usize, work: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..runners).map(|_| scope.spawn(|| engine.run())).collect();
        let result = work();
        engine.close();
        for one in all {
            one.join().expect("no panic").expect("closed");
        }
        result
    })
}

#[test]
fn requests_of_several_threads_have_the_results_of_each_alone() {
    let model = model();
    let reference = Engine::from(&model);
    let mut streamed = 0;
    for case in 0..cases(12, 120) {
        let mut random = Random(case as u64);
        let builder = Engine::builder(Arc::clone(&model))
            .slots(1 + random.below(5))
            .queue(1 + random.below(9));
        let builder = match case % 4 {
            0 => builder.limits(Limits { beams: 4, ..Limits::new(3, 14, 24) }),
            1 => builder.bytes(300_000),
            _ => builder,
        };
        let threads = match case % 3 {
            0 => Threads::Serial,
            _ => Threads::Shared(Arc::new(ThreadPool::new(2).expect("threads"))),
        };
        let engine = builder.threads(threads).build().expect("an engine");
        let callers: Vec<Vec<Request>> = (0..3)
            .map(|_| (0..1 + random.below(12)).map(|_| request(&model, &mut random)).collect())
            .collect();
        let read = AtomicUsize::new(0);
        // Whether a later one is cancelled before it ends depends on the threads; this one is.
        let early = engine.submit(request(&model, &mut random)).expect("valid");
        early.cancel();
        running(&engine, 1 + case % 2, || {
            assert_eq!(early.wait().expect("a result").finish, Finish::Stopped);
            std::thread::scope(|scope| {
                for (caller, requests) in callers.iter().enumerate() {
                    let (engine, reference, read) = (&engine, &reference, &read);
                    scope.spawn(move || {
                        let submit = |request: &Request| engine.submit(request.clone());
                        let handles: Vec<RequestHandle> =
                            requests.iter().map(|one| submit(one).expect("valid")).collect();
                        for (number, (mut handle, request)) in
                            handles.into_iter().zip(requests).enumerate()
                        {
                            let expected = reference.generate(request).expect("a result");
                            match (caller + number) % 5 {
                                0 => handle.cancel(),
                                1 => continue, // the handle is dropped
                                2 => {
                                    let mut best = Vec::new();
                                    while let Some(token) = handle.next_token() {
                                        best.extend((token.sequence == 0).then_some(token.id));
                                    }
                                    assert!(handle.is_done());
                                    assert_eq!(best, expected.tokens());
                                    read.fetch_add(best.len(), Ordering::Relaxed);
                                }
                                _ => (),
                            }
                            let found = handle.wait().expect("a result");
                            let was_cancelled = (caller + number) % 5 == 0;
                            if !(was_cancelled && found.finish == Finish::Stopped) {
                                assert_eq!(bits(&found), bits(&expected), "{request:?}");
                            }
                        }
                    });
                }
            });
        });
        streamed += read.into_inner();
    }
    assert!(streamed > 100, "{streamed}");
}

#[test]
fn a_request_is_cancelled_before_and_while_it_is_decoded() {
    let model = model();
    let options = SearchOptions { eos: Vec::new(), ..greedy(&model, 200) };
    let long = Request { options: Some(options), ..Request::new([5, 9, 0]) };
    let engine = Engine::from(&model);
    let waiting = engine.submit(long.clone()).expect("submitted");
    waiting.cancel();
    assert!(!waiting.is_done());
    running(&engine, 1, || {
        let found = waiting.wait().expect("stopped");
        assert_eq!((found.finish, found.hypotheses.len()), (Finish::Stopped, 0));
        assert!(found.tokens().is_empty());
        let expected = engine.generate(&long).expect("a result");
        let mut decoded = engine.submit(long.clone()).expect("submitted");
        let first = decoded.next_token().expect("a token");
        decoded.cancel();
        let found = decoded.wait().expect("a result");
        assert!(expected.tokens().starts_with(found.tokens()));
        assert_eq!(found.tokens()[0], first.id);
    });
}

#[test]
fn what_is_not_done_when_the_engine_is_closed_is_an_error() {
    let model = model();
    let engine = Engine::builder(Arc::clone(&model)).queue(2).build().expect("an engine");
    let submit = || engine.submit(Request::new([5, 9, 0]));
    let (first, second) = (submit().expect("one"), submit().expect("two"));
    std::thread::scope(|scope| {
        // The queue is full.
        let third = scope.spawn(submit);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!third.is_finished());
        engine.clone().close();
        assert_eq!(third.join().expect("no panic").map(drop), Err(Error::Closed));
    });
    for handle in [first, second] {
        assert_eq!(handle.wait(), Err(Error::Closed));
    }
    let error = submit().expect_err("closed");
    assert_eq!(error.to_string(), "expected an open engine, found one that was closed");
    assert!(engine.run().is_ok_and(|stats| stats.steps == 0));
    assert!(engine.generate(&[5, 9, 0]).is_ok());
    // Requests that are decoded.
    let options = SearchOptions { eos: Vec::new(), ..greedy(&model, 200) };
    let engine = Engine::from(&model);
    let long = Request { options: Some(options), ..Request::new([5, 9, 0]) };
    let mut handle = running(&engine, 1, || {
        let mut handle = engine.submit(long.clone()).expect("submitted");
        handle.next_token().expect("a token");
        handle
    });
    while handle.next_token().is_some() {}
    let ended = handle.wait();
    assert!(ended == Err(Error::Closed) || ended.is_ok_and(|one| one.tokens().len() == 200));
    // Nothing will run it.
    let engine = Engine::from(&model);
    let handle = engine.submit(Request::new([5])).expect("submitted");
    drop(engine);
    assert_eq!(handle.wait(), Err(Error::Closed));
}

#[test]
fn errors_reach_the_caller_or_the_handles() {
    let model = model();
    let engine = Engine::from(&model);
    let wrong = |change: &dyn Fn(&mut Request)| {
        let mut request = Request::new([5, 9, 0]);
        change(&mut request);
        engine.submit(request).expect_err("wrong")
    };
    let error = wrong(&|request| request.tokens.clear());
    assert!(matches!(error, Error::InvalidInput { index: Some(0), .. }), "{error:?}");
    let positions = model.config().max_positions(simdformer::config::Side::Encoder);
    let most = positions.expect("a limit");
    let error = wrong(&|request| request.tokens = vec![1; most + 1]);
    let Error::BeyondLimit { index: Some(0), operand: "source_tokens", expected, found, .. } =
        &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((expected.number(), *found), (Some(most), most + 1));
    let invalid = SearchOptions { repetition_penalty: -1.0, ..greedy(&model, 5) };
    let error = wrong(&|request| request.options = Some(invalid.clone()));
    assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    // No session can be planned for one of them.
    let one = Engine::from(&model).plan_for(&simdformer::Workload::targets(1, 3, 8));
    let bytes = one.expect("a plan").bytes();
    let engine = Engine::builder(Arc::clone(&model)).bytes(bytes).build().expect("an engine");
    let options = Some(greedy(&model, 6));
    let small = Request { options, ..Request::new([5, 9, 0]) };
    let large = Request { options: Some(greedy(&model, 30)), ..Request::new([7; 20]) };
    let handles = [&small, &large, &small].map(|one| engine.submit(one.clone()).expect("valid"));
    let [first, second, third] = running(&engine, 1, || handles.map(RequestHandle::wait));
    assert_eq!(first, third);
    assert_eq!(first, engine.generate(&small));
    assert!(matches!(second, Err(Error::BeyondLimit { operand: "bytes", .. })), "{second:?}");
    // The flag of the engine ends the loop.
    let mut engine = Engine::from(&model);
    let cancel = Cancel::new();
    engine.set_cancel(cancel.clone());
    let options = SearchOptions { eos: Vec::new(), ..greedy(&model, 200) };
    let long = Request { options: Some(options), ..Request::new([5, 9, 0]) };
    let mut handles: Vec<RequestHandle> =
        (0..40).map(|_| engine.submit(long.clone()).expect("submitted")).collect();
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            start.wait();
            engine.run()
        });
        start.wait();
        handles[0].next_token().expect("a token");
        cancel.cancel();
        assert_eq!(run.join().expect("no panic"), Err(Error::CANCELLED));
    });
    let ended = handles.into_iter().map(RequestHandle::wait);
    let failed = ended.filter(|one| *one == Err(Error::CANCELLED)).count();
    assert!(failed > 0, "{failed}");
}

/// An executor that panics at a call.
struct Panics(AtomicUsize);

impl Executor for Panics {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        assert_ne!(self.0.fetch_sub(1, Ordering::Relaxed), 1, "the executor panics");
        (0..tasks).for_each(task);
    }
}

#[test]
fn a_panic_of_the_loop_reaches_the_handles() {
    // Large enough that a step has work for several threads.
    let dims = Dims { vocabulary: 2111, ..Dims::small(Family::Marian) };
    let model = Arc::new(Model::load(&dims.checkpoint(8), Isa::best()).expect("a model"));
    for calls in [1, 3, 10] {
        let threads = Threads::Shared(Arc::new(Panics(AtomicUsize::new(calls))));
        let builder = Engine::builder(Arc::clone(&model)).slots(8).threads(threads);
        let engine = builder.build().expect("an engine");
        let beams = Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() });
        let options = Some(SearchOptions { strategy: beams, ..greedy(&model, 12) });
        let request = Request { options, ..Request::new([5, 9, 0]) };
        let submit = |_| engine.submit(request.clone()).expect("submitted");
        let handles: Vec<RequestHandle> = (0..40).map(submit).collect();
        std::thread::scope(|scope| assert!(scope.spawn(|| engine.run()).join().is_err()));
        let ended: Vec<_> = handles.into_iter().map(RequestHandle::wait).collect();
        assert_eq!(ended.last(), Some(&Err(Error::Closed)));
        // It can be run again.
        let handle = submit(0);
        assert_eq!(running(&engine, 1, || handle.wait()), engine.generate(&request));
    }
}

/// Runs everything on the thread that decodes, and calls a function there before each kernel.
struct Between<F>(F);

impl<F: Fn() + Sync> Executor for Between<F> {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (self.0)();
        (0..tasks).for_each(task);
    }
}

/// The steps that a request of one token waits before its own, if it is submitted before kernel `at` of a run that decodes two
/// long ones and `others` of up to [`LONGEST`] tokens, all of another caller.
fn steps_that_a_short_request_waits(model: &Arc<Model>, at: usize, others: usize) -> usize {
    struct Submitting {
        engine: Engine,
        short: Option<RequestHandle>,
        /// That they are decoded says how many steps there were.
        until_submitted: RequestHandle,
        until_done: RequestHandle,
    }
    let submitting: Arc<Mutex<Option<Submitting>>> = Arc::default();
    let (between, kernels) = (Arc::clone(&submitting), AtomicUsize::new(0));
    let between = move || {
        let mut submitting = between.lock().expect("no panic");
        let Some(one) = &mut *submitting else { return };
        if kernels.fetch_add(1, Ordering::Relaxed) == at {
            let options = Some(greedy(one.engine.model(), 1));
            let short = Request { options, ..Request::new([5, 9, 0]) };
            one.short = Some(one.engine.submit(short).expect("submitted"));
            one.until_submitted.cancel();
        }
        if one.short.as_ref().is_some_and(RequestHandle::is_done) {
            one.until_done.cancel();
        }
    };
    let threads = Threads::Shared(Arc::new(Between(between)));
    let engine = Engine::builder(Arc::clone(model)).threads(threads).sessions(1).build();
    let engine = engine.expect("an engine");
    let mut other = engine.clone();
    other.set_cancel(Cancel::new());
    let mut random = Random(at as u64);
    let mut submit = |new: usize| {
        let options = SearchOptions { eos: Vec::new(), ..greedy(model, new) };
        let tokens = random.ids(14, VOCABULARY);
        other.submit(Request { options: Some(options), ..Request::new(tokens) }).expect("submitted")
    };
    let (until_submitted, until_done) = (submit(120), submit(120));
    let others: Vec<RequestHandle> = (0..others).map(|i| submit(1 + i % LONGEST)).collect();
    let short = None;
    let script = Submitting { engine: engine.clone(), short, until_submitted, until_done };
    *submitting.lock().expect("no panic") = Some(script);
    let ended = running(&engine, 1, || {
        others.into_iter().for_each(|one| drop(one.wait()));
        loop {
            let mut script = submitting.lock().expect("no panic");
            if let Some(script) = script.take_if(|script| script.until_done.is_done()) {
                return [script.until_submitted, script.until_done].map(RequestHandle::wait);
            }
            drop(script);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    let [submitted, done] = ended.map(|one| one.expect("a result").tokens().len());
    assert!(done < 120, "the short request was not done before the long one");
    // Its own step, and the one in which it is seen that it is done.
    done - submitted - 2
}

#[test]
fn a_short_request_beside_a_long_one_waits_at_most_three_steps() {
    // Large enough that a step of one row has work for several threads.
    let dims = Dims { vocabulary: 12_700, ..Dims::small(Family::Marian) };
    let model = Arc::new(Model::load(&dims.checkpoint(8), Isa::best()).expect("a model"));
    for at in 1..cases(6, 100) {
        assert_eq!(steps_that_a_short_request_waits(&model, at, 0), 0, "kernel {at}");
    }
    // Others that fill all slots: it gets the first one that is free, and does not wait for those without a slot.
    let count = cases(10, 400);
    let waits = (1..=count).map(|at| steps_that_a_short_request_waits(&model, at % 40, 100));
    let mut waits: Vec<usize> = waits.collect();
    waits.sort_unstable();
    assert!(waits[count * 99 / 100 - 1] <= 3, "{waits:?}");
}

#[test]
fn the_flag_of_a_clone_ends_its_requests_alone() {
    let model = model();
    let engine = Engine::builder(Arc::clone(&model)).slots(2).build().expect("an engine");
    let mut clone = engine.clone();
    let cancel = Cancel::new();
    clone.set_cancel(cancel.clone());
    let long = || Request { options: Some(greedy(&model, 200)), ..Request::new([5, 6, 7, 8]) };
    let expected = engine.generate(&long()).expect("a result");
    // Two that are decoded, and more that wait for a slot.
    let ended: Vec<RequestHandle> = (0..8).map(|_| clone.submit(long()).expect("valid")).collect();
    let kept = engine.submit(long()).expect("valid");
    cancel.cancel();
    running(&engine, 1, || {
        assert_eq!(kept.wait().expect("a result"), expected);
        for handle in ended {
            assert!(handle.is_done(), "it waits for a slot");
            assert_eq!(handle.wait().expect("a result").finish, Finish::Stopped);
        }
    });
    cancel.reset();
}
