//! The events that a caller receives during `generate`, and how the caller ends sources or the whole call.

use crate::random_model::{Dims, Random};
use core::ops::ControlFlow;
use simdformer::Error;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Context, Finish, Hooks, LogitsProcessor, SampleOptions, SearchOptions, Strategy,
};
use simdformer::trace::{Probe, Stage, View};
use simdformer::{
    DecodeStats, Event, HypothesisId, Limits, Model, Session, Source, SourceId, StepRow, Stop,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const VOCABULARY: usize = 131;

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("a model")
}

/// Eleven sources for three slots.
fn sources() -> Vec<Vec<u32>> {
    let mut random = Random(3);
    [4, 9, 1, 12, 7, 3, 10, 2, 8, 5, 6].map(|len| random.ids(len, VOCABULARY)).into()
}

fn limits() -> Limits {
    Limits { beams: 4, ..Limits::new(3, 12, 20) }
}

fn searches(model: &Model) -> Vec<SearchOptions> {
    let base = SearchOptions {
        max_new_tokens: Some(14),
        max_length: None,
        ..model.config().search_options()
    };
    let beams = BeamOptions { beams: 4, ..BeamOptions::default() };
    let samples = Strategy::Sample(SampleOptions { temperature: 0.7, ..Default::default() });
    vec![
        base.clone(),
        SearchOptions { scores: false, ..base.clone() },
        SearchOptions { strategy: Strategy::Beam(beams), num_return_sequences: 3, ..base.clone() },
        SearchOptions { strategy: samples, num_return_sequences: 2, ..base },
    ]
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    /// The streamed ids of each sequence.
    streamed: [Vec<u32>; 4],
    finish: Option<Finish>,
    hypotheses: Vec<Vec<u32>>,
}

/// Runs `generate` on all sources and records the events of each. `answer` decides what each event returns.
fn run(
    session: &mut Session<'_>,
    options: &SearchOptions,
    answer: &mut dyn FnMut(&Event<'_>) -> ControlFlow<Stop>,
) -> (Vec<Seen>, DecodeStats) {
    let sources = sources();
    let requests: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    let mut seen = vec![Seen::default(); requests.len()];
    let mut steps = Vec::new();
    let counts = session
        .generate(&requests, options, &mut Hooks::default(), &mut |event| {
            let answer = answer(&event);
            match event {
                Event::Step(counts) => steps.push(counts),
                Event::Token { source, token } => {
                    let seen = &mut seen[source];
                    assert_eq!(seen.finish, None, "a token of a source that is done");
                    let streamed = &mut seen.streamed[token.sequence as usize];
                    assert_eq!(streamed.len(), token.index as usize, "in order");
                    streamed.push(token.id);
                }
                Event::Done(done) => {
                    let seen = &mut seen[done.source];
                    assert_eq!(seen.finish.replace(done.finish), None, "done twice");
                    seen.hypotheses = done.hypotheses().map(|h| h.tokens.to_vec()).collect();
                }
                other => panic!("{other:?}"),
            }
            answer
        })
        .expect("generated");
    // One `Step` event comes before each step, and one before the end.
    assert_eq!(steps[0], DecodeStats::default());
    assert!(steps.iter().enumerate().all(|(i, counts)| counts.steps == i));
    assert!(steps.len() >= counts.steps);
    assert_eq!(session.free_sentences(), limits().sentences);
    (seen, counts)
}

#[test]
fn every_event_names_its_source() {
    let model = model();
    let mut session = Session::new(&model, limits()).expect("a session");
    for options in searches(&model) {
        let (seen, counts) = run(&mut session, &options, &mut |_| ControlFlow::Continue(()));
        assert_eq!(counts.cancelled, 0);
        assert!(counts.steps > 14 && counts.rows >= counts.steps, "{counts:?}");
        for (i, seen) in seen.iter().enumerate() {
            // The streamed tokens are those of the best hypothesis, or of each sample.
            let sampled = matches!(options.strategy, Strategy::Sample(_));
            let count = if sampled { options.num_return_sequences } else { 1 };
            assert_eq!(seen.streamed[..count], seen.hypotheses[..count], "source {i} {options:?}");
            assert!(seen.finish.is_some());
        }
        // The source alone, without the others.
        let sources = sources();
        for (seen, ids) in seen.iter().zip(&sources) {
            let mut alone = Vec::new();
            let request = [Source::new(ids)];
            session
                .generate(&request, &options, &mut Hooks::default(), &mut |event| {
                    if let Event::Token { source, token } = event
                        && token.sequence == 0
                    {
                        assert_eq!(source, 0);
                        alone.push(token.id);
                    }
                })
                .expect("generated");
            assert_eq!(alone, seen.streamed[0]);
        }
    }
}

#[test]
fn one_source_is_stopped_and_the_others_go_on() {
    let model = model();
    let mut session = Session::new(&model, limits()).expect("a session");
    for options in searches(&model) {
        let (whole, _) = run(&mut session, &options, &mut |_| ControlFlow::Continue(()));
        let (part, counts) = run(&mut session, &options, &mut |event| match event {
            Event::Token { source: 4, token } if token.index == 2 => {
                ControlFlow::Break(Stop::Source)
            }
            // `Stop::Source` has no effect for an event that names no token.
            Event::Step(_) | Event::Done(_) => ControlFlow::Break(Stop::Source),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(counts.cancelled, 0);
        for (i, (part, whole)) in part.iter().zip(&whole).enumerate() {
            if i == 4 {
                // A beam search may know its tokens only at the end.
                let beams = matches!(options.strategy, Strategy::Beam(_));
                assert!(beams || part.finish == Some(Finish::Stopped), "{options:?}");
                assert_eq!(part.streamed[0], whole.streamed[0][..3], "{options:?}");
                assert!(part.hypotheses[0].starts_with(&part.streamed[0]), "{options:?}");
            } else {
                assert_eq!(part, whole, "source {i} {options:?}");
            }
        }
    }
}

/// At any event: sources that were done keep their result, active ones are reported as stopped, the others
/// have no hypothesis, and the session can still be used.
#[test]
fn a_whole_call_can_be_cancelled_at_any_event() {
    let model = model();
    let mut session = Session::new(&model, limits()).expect("a session");
    for options in searches(&model) {
        let mut events = 0;
        let (whole, _) = run(&mut session, &options, &mut |_| {
            events += 1;
            ControlFlow::Continue(())
        });
        let (mut stopped, mut unbegun) = (0, 0);
        for at in (0..events).step_by(events / 40 + 1).chain([1, events - 1]) {
            let mut event = 0;
            let (part, counts) = run(&mut session, &options, &mut |_| {
                event += 1;
                // Answers after the first `Stop` have no effect.
                if event == at + 1 {
                    ControlFlow::Break(Stop::All)
                } else {
                    ControlFlow::Continue(())
                }
            });
            let mut cancelled = 0;
            for (part, whole) in part.iter().zip(&whole) {
                assert!(whole.streamed[0].starts_with(&part.streamed[0]), "{options:?}");
                match part.finish {
                    Some(Finish::Stopped) if part.hypotheses.is_empty() => unbegun += 1,
                    Some(Finish::Stopped) => stopped += 1,
                    _ => assert_eq!(
                        (part.finish, &part.hypotheses),
                        (whole.finish, &whole.hypotheses)
                    ),
                }
                cancelled += usize::from(part.finish == Some(Finish::Stopped));
            }
            assert_eq!(cancelled, counts.cancelled);
        }
        assert!(stopped > 10 && unbegun > 10, "{stopped} stopped, {unbegun} not begun");
        let (again, _) = run(&mut session, &options, &mut |_| ControlFlow::Continue(()));
        assert_eq!(again, whole);
    }
}

/// Sources that end in one step: the answer to any of their results ends the call.
#[test]
fn a_stop_at_one_of_several_results_ends_the_call() {
    let model = model();
    let ids = [5, 9, 3, 0];
    let length = |tokens| SearchOptions {
        max_new_tokens: Some(tokens),
        min_new_tokens: tokens,
        max_length: None,
        ..model.config().search_options()
    };
    let (short, long) = (length(3), length(9));
    let mut sources = [Source::new(&ids); 6];
    sources[..3].iter_mut().for_each(|source| source.options = Some(&short));
    let limits = Limits::new(4, ids.len(), 20);
    for at in 0..3 {
        let mut session = Session::new(&model, limits).expect("a session");
        let (mut finishes, mut tokens) = ([None; 6], [0; 6]);
        let counts = session.generate(&sources, &long, &mut Hooks::default(), &mut |event| {
            match event {
                Event::Token { source, .. } => tokens[source] += 1,
                Event::Done(done) => {
                    let results = finishes.iter().flatten().count();
                    assert_eq!(finishes[done.source].replace(done.finish), None, "done twice");
                    if results == at {
                        return ControlFlow::Break(Stop::All);
                    }
                }
                _ => (),
            }
            ControlFlow::Continue(())
        });
        let counts = counts.expect("generated");
        assert_eq!((counts.steps, counts.cancelled), (3, 3), "{at}");
        assert_eq!(tokens, [3, 3, 3, 3, 0, 0], "{at}");
        let (ended, stopped) = (Some(Finish::Length), Some(Finish::Stopped));
        assert_eq!(finishes, [ended, ended, ended, stopped, stopped, stopped], "{at}");
    }
}

#[test]
fn a_flag_set_by_another_thread_ends_the_call() {
    let model = Arc::new(model());
    let stop = Arc::new(AtomicBool::new(false));
    let (begun, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn({
        let (model, stop) = (Arc::clone(&model), Arc::clone(&stop));
        move || {
            let mut session = Session::new(model, Limits::new(1, 4, 256)).expect("a session");
            // Without a stop this would take all positions of ten thousand sources.
            let options = SearchOptions { max_length: Some(257), ..SearchOptions::default() };
            let sources = vec![Source::new(&[3, 4, 0]); 10_000];
            session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Step(_) = event {
                    let _ = begun.send(());
                    if stop.load(Ordering::Relaxed) {
                        return ControlFlow::Break(Stop::All);
                    }
                }
                ControlFlow::Continue(())
            })
        }
    });
    wait.recv().expect("it has begun");
    stop.store(true, Ordering::Relaxed);
    let counts = thread.join().expect("no panic").expect("no error");
    assert!(counts.cancelled > 0 && counts.cancelled <= 10_000, "{counts:?}");
}

/// A struct that owns a session and can move to another thread.
struct Translator {
    model: Arc<Model>,
    session: Session<'static>,
}

impl Translator {
    fn new(model: &Arc<Model>) -> Self {
        Self {
            model: Arc::clone(model),
            session: Session::new(model, limits()).expect("a session"),
        }
    }

    fn translate(&mut self, options: &SearchOptions) -> Vec<Seen> {
        assert!(core::ptr::eq(self.session.model(), &*self.model));
        run(&mut self.session, options, &mut |_| ControlFlow::Continue(())).0
    }
}

#[test]
fn sessions_that_own_a_share_of_the_model_go_to_threads_of_their_own() {
    let model = model();
    let options = searches(&model).swap_remove(2);
    let mut borrowing = Session::new(&model, limits()).expect("a session");
    let (expected, _) = run(&mut borrowing, &options, &mut |_| ControlFlow::Continue(()));
    drop(borrowing);
    let model = Arc::new(model);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (mut translator, options) = (Translator::new(&model), options.clone());
            std::thread::spawn(move || translator.translate(&options))
        })
        .collect();
    // The last session drops the model.
    drop(model);
    for thread in threads {
        assert_eq!(thread.join().expect("a thread"), expected);
    }
    fn goes_anywhere<T: Send + 'static>() {}
    goes_anywhere::<Session<'static>>();
    // `Debug` of a session is short.
    let model = Arc::new(self::model());
    let session = Session::new(Arc::clone(&model), limits()).expect("a session");
    let said = format!("{session:?}");
    assert!(said.contains("Session") && said.len() < 400, "{said}");
}

/// A probe that counts views and records the bits of the logits.
#[derive(Default)]
struct LogitsProbe {
    views: usize,
    rows: usize,
    bits: u64,
}

impl Probe for LogitsProbe {
    fn wants(&self, stage: Stage) -> bool {
        matches!(stage, Stage::Logits | Stage::Memory | Stage::Output)
    }

    fn look(&mut self, view: &View<'_>) {
        self.views += 1;
        if view.stage == Stage::Logits {
            self.rows += view.rows;
            for x in view.iter().flatten() {
                self.bits = self.bits.rotate_left(5) ^ u64::from(x.to_bits());
            }
        }
    }
}

#[test]
fn a_traced_search_finds_the_same_hypotheses() {
    let model = model();
    let sources = sources();
    let requests: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    let mut seen_logits = Vec::new();
    for options in searches(&model) {
        let mut session = Session::new(&model, limits()).expect("a session");
        let (expected, counts) = run(&mut session, &options, &mut |_| ControlFlow::Continue(()));
        let (mut probe, mut scratch) =
            (LogitsProbe::default(), vec![0.0; session.plan().trace_floats()]);
        let mut watched = session.traced(&mut probe, &mut scratch).expect("space");
        let mut found = vec![Vec::new(); requests.len()];
        let watched_counts = watched
            .generate(&requests, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    found[done.source] = done.hypotheses().map(|h| h.tokens.to_vec()).collect();
                }
            })
            .expect("generated");
        assert!(found.iter().eq(expected.iter().map(|seen| &seen.hypotheses)), "{options:?}");
        assert_eq!(watched_counts, counts);
        // The probe saw every row of every step, and every source.
        assert_eq!(probe.rows, counts.rows, "{options:?}");
        assert!(probe.views > counts.rows + requests.len(), "{options:?}");
        seen_logits.push(probe.bits);
    }
    // Greedy search shows the probe the same logits with and without scores.
    assert_eq!(seen_logits[0], seen_logits[1]);

    // The calls that a scheduler of the caller uses.
    let mut session = Session::new(&model, limits()).expect("a session");
    let (mut probe, mut scratch) =
        (LogitsProbe::default(), vec![0.0; session.plan().trace_floats()]);
    let mut watched = session.traced(&mut probe, &mut scratch).expect("space");
    let mut sentence = [SourceId::default()];
    watched.encode(&[&[5, 6, 0]], &mut sentence).expect("encoded");
    let row: HypothesisId = watched.start(sentence[0]).expect("a row");
    watched.prefill(row, &[2, 3], None).expect("prefilled");
    let fork = watched.fork(row).expect("a fork");
    watched.step(&[row, fork].map(|row| StepRow::new(row, 4))).expect("stepped");
    watched.release(fork).expect("released");
    watched.release_sentence(sentence[0]).expect("released");
    assert_eq!(probe.rows, 2);
}

/// The same rule as a type instead of a closure.
struct Falling;

impl LogitsProcessor for Falling {
    fn process(&mut self, context: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
        scores[context.history.len()] -= 3.0;
        Ok(())
    }
}

#[test]
fn closures_are_rules() {
    let model = model();
    let even: Vec<u32> = (0..VOCABULARY as u32).step_by(2).collect();
    let sources = sources();
    let requests: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    let mut session = Session::new(&model, limits()).expect("a session");
    for options in searches(&model) {
        let mut results: Vec<Vec<Vec<Vec<u32>>>> = Vec::new();
        let mut asked = 0;
        let mut closure = |context: &Context<'_>, scores: &mut [f32]| {
            asked += 1;
            scores[context.history.len()] -= 3.0;
            Ok(())
        };
        let mut allow = |_: &Context<'_>, allow: &mut dyn FnMut(&[u32])| {
            even.chunks(10).for_each(&mut *allow);
        };
        let mut all = |_: &Context<'_>, allow: &mut dyn FnMut(&[u32])| allow(&even);
        type Allowed<'a> = &'a mut dyn FnMut(&Context<'_>, &mut dyn FnMut(&[u32]));
        let rules: [(&mut dyn LogitsProcessor, Allowed<'_>); 2] =
            [(&mut closure, &mut allow), (&mut Falling, &mut all)];
        for (processor, allowed) in rules {
            let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut *processor];
            let mut hooks = Hooks {
                processors: &mut processors,
                allowed: Some(&mut *allowed),
                ..Hooks::default()
            };
            let mut found = vec![Vec::new(); requests.len()];
            session
                .generate(&requests, &options, &mut hooks, &mut |event| {
                    if let Event::Done(done) = event {
                        found[done.source] = done.hypotheses().map(|h| h.tokens.to_vec()).collect();
                    }
                })
                .expect("generated");
            results.push(found);
        }
        assert_eq!(results[0], results[1], "{options:?}");
        let mut tokens = results[0].iter().flatten().flatten();
        assert!(asked > 100 && tokens.all(|token| token % 2 == 0), "{options:?}");
    }
}
