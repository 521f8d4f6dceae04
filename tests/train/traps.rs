//! What has gone wrong in other trainers, a test each.

use super::support::{goldens, limits, pairs};
use simdformer::kernels::Isa;
use simdformer::train::{Smoothing, StepOptions};

/// The end token is in the loss and in the count.
#[test]
fn trap_04_the_end_counts() {
    for golden in goldens() {
        let mut trainer = golden.trainer(Isa::best(), limits());
        let totals =
            trainer.evaluate(&pairs(&golden.sentences), Smoothing::default()).expect("losses");
        let expected: usize = golden.sentences.iter().map(|sentence| sentence.target.len()).sum();
        assert_eq!(totals.tokens, expected as u64);
        let loss = golden.expected["loss"]["0"]["f64"].as_f64().expect("a loss");
        assert!((totals.mean_nll() - loss).abs() <= 2e-6 * loss, "{}", golden.name);
    }
}

/// Evaluating changes nothing, and twice gives the same.
#[test]
fn trap_12_evaluation_leaves_no_trace() {
    let golden = &goldens()[0];
    let (mut one, mut other) =
        (golden.trainer(Isa::best(), limits()), golden.trainer(Isa::best(), limits()));
    let sentences = pairs(&golden.sentences);
    for _ in 0..3 {
        let a = one.evaluate(&sentences, Smoothing::default()).expect("losses");
        let b = one.evaluate(&sentences, Smoothing::default()).expect("losses");
        assert_eq!(a, b);
        let a = one.step(&sentences, &StepOptions::default()).expect("a step");
        let b = other.step(&sentences, &StepOptions::default()).expect("a step");
        assert_eq!(a, b);
    }
}
