//! A handle is valid only for the slot use for which it was created, and only in its own session.

use crate::random_model::Dims;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::{Error, HypothesisId, Limits, Model, Plan, Session, SourceId, StepRow};

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(5), Isa::best()).expect("a model")
}

fn limits() -> Limits {
    Limits { beams: 2, ..Limits::new(2, 6, 6) }
}

fn begin(session: &mut Session<'_>) -> (SourceId, HypothesisId) {
    let mut sentence = [SourceId::default()];
    session.encode(&[&[5, 6, 0]], &mut sentence).expect("encoded");
    (sentence[0], session.start(sentence[0]).expect("a row"))
}

/// Every call of `session` with one of the two handles is an error.
fn assert_unknown(what: &str, session: &mut Session<'_>, sentence: SourceId, row: HypothesisId) {
    let unknown = |operand: &'static str, expected: &'static str, found: u32| {
        let state = "is free or has another by now";
        Some(Error::InvalidHandle { operand, expected, found, state })
    };
    let no_row = unknown("hypothesis", "a hypothesis of this session", row.slot());
    let step = [StepRow::new(row, 1)];
    assert_eq!(session.step(&step).err(), no_row, "{what}");
    assert_eq!(session.step_argmax(&step, &|_, _| false).err(), no_row, "{what}");
    assert_eq!(session.prefill(row, &[1], None).err(), no_row, "{what}");
    assert_eq!(session.fork(row).err(), no_row, "{what}");
    assert_eq!(session.hypothesis_len(row).err(), no_row, "{what}");
    assert_eq!(session.release(row).err(), no_row, "{what}");
    let no_sentence = unknown("sentence", "a sentence of this session", sentence.slot());
    assert_eq!(session.start(sentence).err(), no_sentence, "{what}");
    assert_eq!(session.release_sentence(sentence).err(), no_sentence, "{what}");
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut out = [0.0; 100];
    let aligned = session.align(sentence, &[1], (0, &[0]), &mut scratch, &mut out);
    assert_eq!(aligned.err(), no_sentence, "{what}");
}

#[test]
fn a_handle_is_unknown_in_another_session() {
    let model = model();
    let mut a = Session::new(&model, limits()).expect("a session");
    let mut b = Session::new(&model, limits()).expect("a session");
    // The same calls in both sessions give the same slot numbers.
    let (of_a, of_b) = (begin(&mut a), begin(&mut b));
    assert_eq!((of_a.0.slot(), of_a.1.slot()), (of_b.0.slot(), of_b.1.slot()));
    assert_ne!(of_a, of_b);
    assert_unknown("a's in b", &mut b, of_a.0, of_a.1);
    assert_unknown("b's in a", &mut a, of_b.0, of_b.1);
    // Neither session has changed.
    assert_eq!((a.hypothesis_len(of_a.1), b.hypothesis_len(of_b.1)), (Ok(0), Ok(0)));
    a.step(&[StepRow::new(of_a.1, 1)]).expect("its own");
    b.step(&[StepRow::new(of_b.1, 1)]).expect("its own");
}

#[test]
fn a_handle_is_unknown_after_clear() {
    let model = model();
    let mut a = Session::new(&model, limits()).expect("a session");
    let mut b = Session::new(&model, limits()).expect("a session");
    for _ in 0..3 {
        let (of_a, of_b) = (begin(&mut a), begin(&mut b));
        a.clear();
        assert_unknown("a's own, cleared", &mut a, of_a.0, of_a.1);
        begin(&mut a);
        assert_unknown("a's own, replaced", &mut a, of_a.0, of_a.1);
        assert_unknown("b's in a", &mut a, of_b.0, of_b.1);
        assert_unknown("a's in b", &mut b, of_a.0, of_a.1);
        a.clear();
        b.clear();
    }
}

#[test]
fn a_handle_is_unknown_in_a_session_in_the_same_memory() {
    let model = model();
    let floats = Plan::new(&model, limits()).expect("a plan").floats();
    let mut buffer = vec![0.0; floats];
    let mut gone = Vec::new();
    for _ in 0..4 {
        let mut session = Session::with_buffer(&model, limits(), &mut buffer).expect("a session");
        for &(sentence, row) in &gone {
            assert_unknown("before it is used", &mut session, sentence, row);
        }
        let own = begin(&mut session);
        for &(sentence, row) in &gone {
            assert_unknown("in use", &mut session, sentence, row);
        }
        assert_eq!(session.hypothesis_len(own.1), Ok(0));
        gone.push(own);
    }
}

#[test]
fn handles_of_sessions_on_other_threads_differ() {
    let model = model();
    let handles = |session: &mut Session<'_>| [begin(session), begin(session)];
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut session = Session::new(&model, limits()).expect("a session");
                    handles(&mut session)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("handles")).collect()
    });
    for (i, a) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|b| a.0 != b.0 && a.1 != b.1), "{a:?} twice");
    }
}
