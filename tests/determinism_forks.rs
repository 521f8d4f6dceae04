//! Guarantee 5 for forks: a fork has the bits of its tokens in a new row, and slots that are used again change no bit.

use crate::determinism::{TARGET, begin, bits, for_every_model, kinds, plan_for};
use crate::random_model::{Dims, Random};
use simdformer::kernels::Isa;
use simdformer::{Error, HypothesisId, Limits, Model, Session, SourceId, StepRow};

#[test]
fn a_fork_has_the_bits_of_its_tokens_in_a_new_row() {
    for_every_model(|what, model| forks(what, model, 0));
}

#[test]
fn a_fork_of_a_long_prefix_has_the_bits_of_its_tokens_in_a_new_row() {
    for dims in [kinds()[1], kinds()[3]] {
        let checkpoint = Dims { positions: 600, ..dims }.checkpoint(23);
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            forks(&format!("long {} {isa}", dims.family.model_type()), &model, 240);
        }
    }
}

/// Grows a tree of hypotheses after a common prefix of `prefix` tokens.
fn forks(what: &str, model: &Model, prefix: usize) {
    let vocabulary = model.config().target_vocab;
    let mut random = Random(21);
    let source = random.ids(19, model.config().source_vocab);
    let target = prefix + TARGET;
    let limits = Limits { beams: 4, ..plan_for(2, 19, target) };
    let mut session = Session::new(model, limits).expect("a session");
    // The second sentence occupies slots, so that the slots of the first do not start at zero.
    begin(&mut session, &[1, 2, 3]);
    let first = begin(&mut session, &source);
    let common = random.ids(prefix, vocabulary);
    session.prefill(first, &common, None).expect("prefilled");
    let mut rows: Vec<(HypothesisId, Vec<u32>, Vec<u32>)> = vec![(first, common, Vec::new())];
    for _ in 0..TARGET - 1 {
        // Some hypotheses are released and some forked, so that slots are used again.
        if rows.len() > 1 && random.below(3) == 0 {
            let (row, ..) = rows.swap_remove(random.below(rows.len()));
            session.release(row).expect("released");
        }
        while rows.len() < limits.beams && random.below(2) == 0 {
            let (row, tokens, last) = rows[random.below(rows.len())].clone();
            // Rows of the same length always find a slot.
            rows.push((session.fork(row).expect("a fork"), tokens, last));
        }
        let steps: Vec<StepRow> = rows
            .iter()
            .map(|&(row, ..)| StepRow::new(row, random.below(vocabulary) as u32))
            .collect();
        let logits = session.step(&steps).expect("stepped");
        for ((logits, step), row) in logits.chunks(vocabulary).zip(&steps).zip(&mut rows) {
            row.1.push(step.token);
            row.2 = bits(logits);
        }
    }
    assert!(!rows.is_empty());
    for (_, tokens, last) in &rows {
        let mut fresh = Session::new(model, plan_for(1, 19, target)).expect("a session");
        let row = begin(&mut fresh, &source);
        let mut logits = Vec::new();
        for &token in tokens {
            logits = bits(fresh.step(&[StepRow::new(row, token)]).expect("stepped"));
        }
        assert_eq!(logits, *last, "{what}: {tokens:?}");
    }
}

/// A released KV slot can still hold keys and values that an active hypothesis reads. A new hypothesis in
/// this slot must write to other cells.
#[test]
fn keys_that_an_active_hypothesis_reads_are_not_overwritten() {
    for_every_model(|what, model| {
        let mut random = Random(27);
        let source = random.ids(11, model.config().source_vocab);
        let [common, own, late] = [6, 4, 4].map(|len| random.ids(len, model.config().target_vocab));
        let limits = Limits { beams: 2, ..plan_for(1, 11, TARGET) };
        let mut session = Session::new(model, limits).expect("a session");
        let mut sentence = [SourceId::default()];
        session.encode(&[&source], &mut sentence).expect("encoded");
        let sentence = sentence[0];
        let parent = session.start(sentence).expect("a row");
        session.prefill(parent, &common, None).expect("prefilled");
        let child = session.fork(parent).expect("a fork");
        session.release(parent).expect("released");
        let newcomer = session.start(sentence).expect("a row");
        assert_eq!(newcomer.slot(), parent.slot(), "{what}");
        let mut alone = Vec::new();
        for &token in &own {
            alone = bits(session.step(&[StepRow::new(newcomer, token)]).expect("stepped"));
        }
        assert!(
            matches!(session.fork(child), Err(Error::BeyondLimit { operand: "beams", .. })),
            "{what}"
        );
        session.release(newcomer).expect("released");
        let second = session.fork(child).expect("space for two");
        let mut last = Vec::new();
        for (&a, &b) in own.iter().zip(&late) {
            let steps = [StepRow::new(second, b), StepRow::new(child, a)];
            last = bits(session.step(&steps).expect("stepped"));
        }
        let vocabulary = model.config().target_vocab;
        for (tail, found) in [(&late, &last[..vocabulary]), (&own, &last[vocabulary..])] {
            let mut fresh = Session::new(model, limits).expect("a session");
            let row = begin(&mut fresh, &source);
            let mut expected = Vec::new();
            for &token in common.iter().chain(tail) {
                expected = bits(fresh.step(&[StepRow::new(row, token)]).expect("stepped"));
            }
            assert_eq!(found, expected, "{what}");
        }
        let mut fresh = Session::new(model, limits).expect("a session");
        let row = begin(&mut fresh, &source);
        let mut expected = Vec::new();
        for &token in &own {
            expected = bits(fresh.step(&[StepRow::new(row, token)]).expect("stepped"));
        }
        assert_eq!(alone, expected, "{what}");
    });
}
