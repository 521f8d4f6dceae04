//! Several sessions over one list of sources: the bits of one session for any number of sessions, threads and slots; and
//! sources that are refused without refusing the call.

use crate::effort::{cases, thread_counts};
use crate::random_model::{Dims, Random};
use crate::scoped::Scoped;
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::{Isa, ThreadPool};
use simdformer::search::{BeamOptions, Finish, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{
    Cancel, DecodeStats, Error, Event, Limits, Model, Session, SessionPool, Source, Stop, Threads,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const VOCABULARY: usize = 131;

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("a model")
}

fn ids(count: usize) -> Vec<Vec<u32>> {
    let mut random = Random(3);
    (0..count).map(|i| random.ids(1 + 7 * i % 12, VOCABULARY)).collect()
}

fn sources(ids: &[Vec<u32>]) -> Vec<Source<'_>> {
    (ids.iter().zip(0..)).map(|(ids, stream)| Source { stream, ..Source::new(ids) }).collect()
}

fn limits(sentences: usize) -> Limits {
    Limits { beams: 4, ..Limits::new(sentences, 12, 20) }
}

/// Greedy, beams, samples.
fn searches(model: &Model) -> [SearchOptions; 3] {
    let base = SearchOptions {
        max_new_tokens: Some(14),
        max_length: None,
        ..model.config().search_options()
    };
    let beams = Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() });
    let samples = Strategy::Sample(SampleOptions { temperature: 0.7, ..Default::default() });
    [
        base.clone(),
        SearchOptions { strategy: beams, num_return_sequences: 3, ..base.clone() },
        SearchOptions { strategy: samples, num_return_sequences: 2, ..base },
    ]
}

/// The events of a source.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    streamed: Vec<u32>,
    finish: Option<Finish>,
    /// The tokens and the bits of the score of each.
    hypotheses: Vec<(Vec<u32>, u32)>,
    refused: Option<Error>,
}

impl Seen {
    fn take(&mut self, event: &Event<'_>) {
        assert!(self.finish.is_none() && self.refused.is_none(), "an event after the last one");
        match event {
            Event::Token { token, .. } if token.sequence == 0 => {
                assert_eq!(self.streamed.len(), token.index as usize, "in order");
                self.streamed.push(token.id);
            }
            Event::Done(done) => {
                self.finish = Some(done.finish);
                let found = done.hypotheses().map(|one| (one.tokens.to_vec(), one.score.to_bits()));
                self.hypotheses = found.collect();
            }
            Event::Refused { error, .. } => self.refused = Some((*error).clone()),
            _ => (),
        }
    }
}

fn source_of(event: &Event<'_>) -> Option<usize> {
    match event {
        Event::Token { source, .. } | Event::Refused { source, .. } => Some(*source),
        Event::Done(done) => Some(done.source),
        _ => None,
    }
}

/// Runs `sources` in one session that skips refused ones.
fn alone(model: &Model, sources: &[Source<'_>], options: &SearchOptions) -> Vec<Seen> {
    let mut session = Session::new(model, limits(3)).expect("a session");
    let mut seen = vec![Seen::default(); sources.len()];
    let mut on_event = |event: Event<'_>| {
        if let Some(source) = source_of(&event) {
            seen[source].take(&event);
        }
        match event {
            Event::Refused { .. } => ControlFlow::Break(Stop::Source),
            _ => ControlFlow::Continue(()),
        }
    };
    session.generate(sources, options, &mut Hooks::default(), &mut on_event).expect("generated");
    seen
}

/// Runs `sources` in a pool. `answer` is called with each event and the number of events before it.
fn pooled(
    pool: &mut SessionPool<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
    answer: &(dyn Fn(&Event<'_>, usize) -> ControlFlow<Stop> + Sync),
) -> (Result<DecodeStats, Error>, Vec<Seen>) {
    let seen: Vec<Mutex<Seen>> = sources.iter().map(|_| Mutex::default()).collect();
    let events = AtomicUsize::new(0);
    let stats = pool.generate(sources, options, &|event: Event<'_>| {
        if let Some(source) = source_of(&event) {
            // Two threads never report the same source, so this lock is free.
            seen[source].try_lock().expect("one thread at a time").take(&event);
        }
        answer(&event, events.fetch_add(1, Ordering::Relaxed))
    });
    (stats, seen.into_iter().map(|seen| seen.into_inner().expect("no panic")).collect())
}

fn go_on(event: &Event<'_>, _: usize) -> ControlFlow<Stop> {
    match event {
        Event::Refused { .. } => ControlFlow::Break(Stop::Source),
        _ => ControlFlow::Continue(()),
    }
}

#[test]
fn the_bits_are_those_of_one_session() {
    let model = model();
    let ids = ids(41);
    let all = sources(&ids);
    let mut random = Random(7);
    for options in searches(&model) {
        let expected = alone(&model, &all, &options);
        assert!(expected.iter().all(|seen| seen.finish.is_some()));
        for sessions in 1..=4 {
            for threads in 1..=3 {
                let executor = Scoped(threads);
                let slots = 1 + random.below(6);
                let mut pool = SessionPool::new(&model, limits(slots), sessions).expect("a pool");
                pool.set_threads(Threads::Executor(&executor));
                // Random parts of the list, one of them empty; a pool is used many times.
                let mut from = 0;
                while from < all.len() {
                    let to = (from + random.below(cases(30, 12))).min(all.len());
                    let (stats, seen) = pooled(&mut pool, &all[from..to], &options, &go_on);
                    let what = format!("{sessions} sessions, {threads} threads, {from}..{to}");
                    assert_eq!(seen, expected[from..to], "{what}");
                    let rows = stats.expect("generated").rows;
                    assert!(rows >= to - from, "{what}");
                    from = to;
                }
            }
        }
    }
}

/// Sessions on the threads of a real pool all take part, and take their sources at any time.
#[test]
fn every_session_takes_sources() {
    let model = model();
    let ids = ids(200);
    let (all, options) = (sources(&ids), &searches(&model)[0]);
    let expected = alone(&model, &all, options);
    let mut pool = SessionPool::new(&model, limits(4), 3).expect("a pool");
    pool.set_threads(Threads::Shared(Arc::new(ThreadPool::new(3).expect("threads"))));
    let (threads, barrier) = (Mutex::new(Vec::new()), std::sync::Barrier::new(3));
    let (stats, seen) = pooled(&mut pool, &all, options, &|event, _| {
        if let Event::Step(DecodeStats { steps: 0, .. }) = event {
            // Without three threads at the same time this waits for ever.
            barrier.wait();
            threads.lock().expect("no panic").push(std::thread::current().id());
        }
        ControlFlow::Continue(())
    });
    assert_eq!((seen, stats.expect("generated").cancelled), (expected, 0));
    let mut threads = threads.into_inner().expect("no panic");
    threads.dedup();
    assert_eq!(threads.len(), 3);
    assert!(format!("{pool:?}").starts_with("SessionPool { sessions: 3, limits"), "{pool:?}");
}

#[test]
fn a_pool_of_no_sessions_is_an_error() {
    let model = model();
    let error = SessionPool::new(&model, limits(4), 0).expect_err("no sessions");
    assert_eq!(error.to_string(), "the limit `sessions`: expected at least 1, found 0");
    let error = SessionPool::new(&model, limits(4), usize::MAX).expect_err("too many");
    assert!(matches!(error, Error::OutOfMemory { bytes: None, .. }), "{error}");
}

/// Every kind of bad source, alone and among others, at every place.
#[test]
fn a_refused_source_refuses_only_itself() {
    let model = model();
    let ids = ids(9);
    let good = sources(&ids);
    let (long, outside) = ([5; 13], [5, VOCABULARY as u32, 6]);
    let bad = [Source::new(&[]), Source::new(&long), Source::new(&outside)];
    let executor = Scoped(2);
    let mut pool = SessionPool::new(&model, limits(2), 2).expect("a pool");
    pool.set_threads(Threads::Executor(&executor));
    let mut session = Session::new(&model, limits(3)).expect("a session");
    let options = &searches(&model)[0];
    let expected = alone(&model, &good, options);
    for source in bad {
        let error = session.check(&source, options).expect_err("a bad source");
        for at in 0..=good.len() {
            let mut with = good.clone();
            with.insert(at, source);
            let error = error.clone().with_index(at);
            let mut expected = expected.clone();
            expected.insert(at, Seen { refused: Some(error.clone()), ..Seen::default() });
            assert_eq!(alone(&model, &with, options), expected, "{at}");
            let (stats, seen) = pooled(&mut pool, &with, options, &go_on);
            assert_eq!((seen, stats.expect("generated").cancelled), (expected.clone(), 0), "{at}");
            // Without an answer, the call is the error, and nothing runs.
            let mut others = 0;
            let mut ignore =
                |event: Event<'_>| others += usize::from(source_of(&event) != Some(at));
            let whole = session.generate(&with, options, &mut Hooks::default(), &mut ignore);
            assert_eq!((whole, others), (Err(error.clone()), 0));
            let (whole, seen) =
                pooled(&mut pool, &with, options, &|_, _| ControlFlow::Continue(()));
            assert_eq!(whole, Err(error));
            assert!(seen.iter().all(|seen| seen.finish.is_none()));
            // A call that is ended at once reports each other source as stopped, once.
            let (stats, seen) = pooled(&mut pool, &with, options, &|event, _| match event {
                Event::Refused { .. } => ControlFlow::Break(Stop::Source),
                _ => ControlFlow::Break(Stop::All),
            });
            assert_eq!(stats.expect("stopped").cancelled, good.len());
            for (i, seen) in seen.iter().enumerate() {
                assert_eq!((seen.refused.is_some(), seen.finish.is_none()), (i == at, i == at));
            }
        }
        // A call of refused sources only.
        assert_eq!(alone(&model, &[source; 3], options)[2].finish, None);
        let (stats, seen) = pooled(&mut pool, &[source; 3], options, &go_on);
        assert!(stats.is_ok() && seen.iter().all(|seen| seen.refused.is_some()));
    }
}

/// The calls that end early: at a random event one source is stopped, all are, or the flag is set.
#[test]
fn a_call_ends_in_all_sessions() {
    let model = model();
    let ids = ids(60);
    let all = sources(&ids);
    let mut random = Random(11);
    for options in searches(&model) {
        let expected = alone(&model, &all, &options);
        for &threads in &thread_counts()[1..] {
            let (executor, cancel) = (Scoped(threads), Cancel::new());
            let mut pool = SessionPool::new(&model, limits(3), 3).expect("a pool");
            pool.set_threads(Threads::Executor(&executor));
            pool.set_cancel(cancel.clone());
            for _ in 0..cases(8, 100) {
                let at = random.below(300);
                let (stats, seen) = pooled(&mut pool, &all, &options, &|_, event| {
                    if event == at {
                        ControlFlow::Break(Stop::All)
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                let stopped =
                    seen.iter().filter(|seen| seen.finish == Some(Finish::Stopped)).count();
                assert_eq!(stats.expect("stopped").cancelled, stopped);
                for (seen, expected) in seen.iter().zip(&expected) {
                    // Every source is reported; a finished one has its usual result. The tokens of the last step are
                    // not streamed.
                    assert!(
                        seen.finish == Some(Finish::Stopped)
                            || (seen.finish, &seen.hypotheses)
                                == (expected.finish, &expected.hypotheses)
                    );
                }
                let (stats, seen) = pooled(&mut pool, &all, &options, &|_, event| {
                    if event == at {
                        cancel.cancel();
                    }
                    ControlFlow::Continue(())
                });
                assert_eq!(stats, Err(Error::CANCELLED), "{at}");
                for (seen, expected) in seen.iter().zip(&expected) {
                    assert!(seen.finish.is_none() || seen == expected);
                }
                cancel.reset();
            }
            let (_, seen) = pooled(&mut pool, &all, &options, &go_on);
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn a_panic_in_a_callback_reaches_the_caller() {
    let model = model();
    let ids = ids(60);
    let (all, options) = (sources(&ids), &searches(&model)[0]);
    let expected = alone(&model, &all, options);
    for threads in [1, 2, 3] {
        let executor = ThreadPool::new(threads).expect("threads");
        let mut pool = SessionPool::new(&model, limits(3), 3).expect("a pool");
        pool.set_threads(Threads::Executor(&executor));
        for at in [0, 1, 40, 200] {
            let events = AtomicUsize::new(0);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.generate(&all, options, &|_: Event<'_>| {
                    let event = events.fetch_add(1, Ordering::Relaxed);
                    assert_ne!(event, at, "the planned panic");
                })
            }));
            let panic = panic.expect_err("a panic");
            let text = panic.downcast_ref::<String>().expect("a text");
            assert!(text.contains("the planned panic"), "{text}");
            let (stats, seen) = pooled(&mut pool, &all, options, &go_on);
            assert!(stats.is_ok() && seen == expected, "{threads} threads after a panic at {at}");
        }
    }
}

/// Work that the caller divides among the sessions itself.
#[test]
fn sessions_are_lent_to_the_caller() {
    let model = model();
    let ids = ids(30);
    let mut session = Session::new(&model, limits(3)).expect("a session");
    let memory = |ids: &Vec<u32>| session.encoder_output(&[ids]).expect("a memory").to_vec();
    let expected: Vec<Vec<f32>> = ids.iter().map(memory).collect();
    for threads in [1, 3] {
        let executor = Scoped(threads);
        let mut pool = SessionPool::new(&model, limits(3), 3).expect("a pool");
        pool.set_threads(Threads::Executor(&executor));
        for most in 0..5 {
            let (next, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let found = Mutex::new(vec![Vec::new(); ids.len()]);
            pool.for_each_session(most, &|session| {
                calls.fetch_add(1, Ordering::Relaxed);
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(ids) = ids.get(at) else { break };
                    let memory = session.encoder_output(&[ids]).expect("a memory").to_vec();
                    found.lock().expect("no panic")[at] = memory;
                }
            });
            assert_eq!(calls.into_inner(), most.clamp(1, threads), "{threads} {most}");
            assert!(found.into_inner().expect("no panic") == expected, "{threads} {most}");
        }
    }
}
