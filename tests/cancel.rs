//! Cancelled calls: at any moment, on any threads, the call is an error, it changes nothing, and the session gives the
//! same bits afterwards.

use crate::effort::{cases, thread_counts};
use crate::random_model::{Dims, Random};
use crate::scoped::Scoped;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{BeamOptions, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::trace::{Probe, Stage, View};
use simdformer::{
    Cancel, DecodeStats, Error, Event, Limits, Model, Session, Source, SourceId, StepRow, Threads,
};

const VOCABULARY: usize = 131;
/// More than one call of the encoder takes.
const SOURCES: usize = 70;

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("a model")
}

fn limits() -> Limits {
    Limits { beams: 4, ..Limits::new(SOURCES, 12, 20) }
}

fn ids(count: usize) -> Vec<Vec<u32>> {
    let mut random = Random(3);
    (0..count).map(|i| random.ids(1 + 7 * i % 12, VOCABULARY)).collect()
}

/// Sets a flag at the view with number `at`.
struct CancelAt {
    cancel: Cancel,
    views: usize,
    at: usize,
}

impl Probe for CancelAt {
    fn wants(&self, stage: Stage) -> bool {
        matches!(stage, Stage::Residual | Stage::Query)
    }

    fn look(&mut self, _: &View<'_>) {
        self.views += 1;
        if self.views == self.at {
            self.cancel.cancel();
        }
    }
}

/// What a session computes: the floats of a call, or nothing.
type Call<'c> = dyn Fn(&mut Session<'_>) -> Result<Vec<f32>, Error> + 'c;

/// Cancels `call` at every view of it, and compares with the result of a session that was not cancelled.
fn cancel_everywhere(what: &str, session: &mut Session<'_>, call: &Call<'_>) {
    let (cancel, mut scratch) = (Cancel::new(), vec![0.0; session.plan().trace_floats()]);
    session.set_cancel(cancel.clone());
    let mut views = usize::MAX;
    let mut at = 1;
    let mut results = Vec::new();
    while at <= views {
        let mut probe = CancelAt { cancel: cancel.clone(), views: 0, at };
        let before = (session.free_sentences(), format!("{session:?}"));
        let result = call(&mut session.traced(&mut probe, &mut scratch).expect("a probe"));
        if let Ok(result) = result {
            // After the last check of the pass.
            views = probe.views;
            assert!(at + 2 > views, "{what}: not cancelled at view {at} of {views}");
            results.push(result);
        } else {
            assert_eq!(result, Err(Error::CANCELLED), "{what} {at}");
            assert_eq!(before, (session.free_sentences(), format!("{session:?}")), "{what} {at}");
            // The next call ends before it begins.
            assert_eq!(call(session), Err(Error::CANCELLED), "{what} {at}");
        }
        cancel.reset();
        at += 1;
    }
    assert!(views > 4 && !results.is_empty(), "{what}: {views}");
}

#[test]
fn a_cancelled_pass_changes_nothing() {
    let model = model();
    let sources = ids(SOURCES);
    let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    for &threads in thread_counts() {
        let executor = Scoped(threads);
        let mut session = Session::new(&model, limits()).expect("a session");
        session.set_threads(Threads::Executor(&executor));
        let expected = session.encoder_output(&sources).expect("a memory").to_vec();
        cancel_everywhere("encoder_output", &mut session, &|session| {
            Ok(session.encoder_output(&sources)?.to_vec())
        });
        assert_eq!(session.encoder_output(&sources).expect("a memory"), expected);
        cancel_everywhere("encode", &mut session, &|session| {
            session.encode(&sources, &mut [SourceId::default(); SOURCES])?;
            session.clear();
            Ok(Vec::new())
        });

        // Decoder passes of a hypothesis with three tokens.
        let mut sentence = [SourceId::default()];
        session.encode(&sources[..1], &mut sentence).expect("encoded");
        let hypothesis = session.start(sentence[0]).expect("a hypothesis");
        session.prefill(hypothesis, &[2, 9, 4], None).expect("fed");
        let row = StepRow::new(hypothesis, 7);
        let step = |session: &mut Session<'_>| {
            let logits = session.step(&[row])?.to_vec();
            session.rewind(hypothesis, 3)?;
            Ok(logits)
        };
        let expected = step(&mut session).expect("stepped");
        cancel_everywhere("step", &mut session, &step);
        cancel_everywhere("prefill", &mut session, &|session| {
            session.prefill(hypothesis, &[7, 1, 5, 8], None)?;
            session.rewind(hypothesis, 3)?;
            Ok(Vec::new())
        });
        assert_eq!(session.hypothesis_len(hypothesis), Ok(3));
        assert_eq!(step(&mut session).expect("stepped"), expected, "{threads} threads");
    }
}

/// The tokens and score bits of each source that was reported.
type Reported = Vec<Option<Vec<(Vec<u32>, u32)>>>;

/// Runs `generate`, and sets `cancel` at the event with number `at`.
fn generate(
    session: &mut Session<'_>,
    options: &SearchOptions,
    (cancel, at): (&Cancel, usize),
) -> (Result<DecodeStats, Error>, Reported, usize) {
    let sources = ids(11);
    let requests: Vec<Source<'_>> = (sources.iter().zip(0..))
        .map(|(ids, stream)| Source { stream, ..Source::new(ids) })
        .collect();
    let (mut reported, mut events) = (vec![None; requests.len()], 0);
    let stats = session.generate(&requests, options, &mut Hooks::default(), &mut |event| {
        events += 1;
        if events == at {
            cancel.cancel();
        }
        if let Event::Done(done) = event {
            let hypotheses = done.hypotheses();
            let found = hypotheses.map(|one| (one.tokens.to_vec(), one.score.to_bits()));
            reported[done.source] = Some(found.collect());
        }
    });
    (stats, reported, events)
}

#[test]
fn a_cancelled_search_keeps_what_it_reported() {
    let model = model();
    let base = SearchOptions {
        max_new_tokens: Some(14),
        max_length: None,
        ..model.config().search_options()
    };
    let beams = BeamOptions { beams: 4, ..BeamOptions::default() };
    let beams =
        SearchOptions { strategy: Strategy::Beam(beams), num_return_sequences: 3, ..base.clone() };
    let samples = Strategy::Sample(SampleOptions { temperature: 0.7, ..Default::default() });
    let samples = SearchOptions { strategy: samples, num_return_sequences: 2, ..base.clone() };
    let mut random = Random(5);
    for options in [base, beams, samples] {
        for &threads in thread_counts() {
            let (executor, cancel) = (Scoped(threads), Cancel::new());
            let limits = Limits { sentences: 3, ..limits() };
            let mut session = Session::new(&model, limits).expect("a session");
            session.set_threads(Threads::Executor(&executor));
            session.set_cancel(cancel.clone());
            let all = generate(&mut session, &options, (&cancel, 0));
            assert!(all.0.is_ok() && all.1.iter().all(Option::is_some));
            let mut partly = 0;
            for _ in 0..cases(12, 200) {
                let at = 1 + random.below(all.2);
                let (stats, found, events) = generate(&mut session, &options, (&cancel, at));
                // A flag that is set by the events of the last step is not seen.
                assert!(stats == Err(Error::CANCELLED) || events == all.2, "{at}: {stats:?}");
                assert_eq!(session.free_sentences(), 3);
                for (found, all) in found.iter().zip(&all.1) {
                    assert!(found.is_none() || found == all, "{at} of {}", all.iter().len());
                }
                partly += usize::from(found.iter().any(Option::is_some) && stats.is_err());
                cancel.reset();
            }
            assert!(partly > 0, "no call was cancelled between two finished sources");
            assert_eq!(generate(&mut session, &options, (&cancel, 0)), all);
        }
    }
}

#[test]
fn another_thread_ends_a_call() {
    let model = model();
    let mut session = Session::new(&model, limits()).expect("a session");
    let cancel = Cancel::new();
    session.set_cancel(cancel.clone());
    assert_eq!(format!("{cancel:?}"), "Cancel(false)");
    let source = ids(3);
    let cancelled = std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            // Without the cancellation this loop does not end.
            loop {
                if let Err(error) = session.encoder_output(&[&source[2]]) {
                    return error;
                }
            }
        });
        cancel.cancel();
        call.join().expect("the call ends")
    });
    assert_eq!(cancelled, Error::CANCELLED);
    assert_eq!(cancelled.to_string(), "the call was cancelled");
    // A new flag replaces the one that is set.
    session.set_cancel(Cancel::new());
    assert!(session.encoder_output(&[&source[2]]).is_ok());
}
