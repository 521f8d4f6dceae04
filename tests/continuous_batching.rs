//! Continuous batching: sentences of all lengths are admitted, forked, delayed and released at any time.
//! Each gets the result that it has alone.

use crate::effort::{all_cases_on, cases};
use crate::random_model::Dims;
use crate::soak::{SOURCE, Soak, TARGET};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::{Limits, Model, Session};

fn limits() -> Limits {
    Limits { beams: 3, ..Limits::new(7, SOURCE, TARGET) }
}

/// The digests of the first `count` sentences, each computed alone.
fn expected(model: &Model, sentences: u64) -> Vec<u64> {
    (0..sentences)
        .map(|number| {
            let limits = Limits::new(1, SOURCE, TARGET);
            let mut session = Session::new(model, limits).expect("a session");
            crate::soak::alone(&mut session, number).expect("alone")
        })
        .collect()
}

fn check(what: &str, session: &mut Session, seed: u64, expected: &[u64]) {
    let mut found = vec![0; expected.len()];
    let mut soak = Soak::new(seed, session);
    soak.decode_sentences(session, 0..expected.len() as u64, &mut |number, digest, _| {
        found[number as usize] = digest
    })
    .expect("soaked");
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{what}: sentence {number}");
    }
    let totals = soak.totals;
    assert_eq!(totals.sentences, expected.len(), "{what}: {totals:?}");
    assert_eq!(session.free_sentences(), 7, "{what}");
    // Without these the run would not test forks and delays.
    let [forks, refills] = [3, 30].map(|share| expected.len() / share);
    assert!(totals.forks > forks && totals.refills > refills, "{totals:?}");
    assert_eq!(totals.most_together, 7, "{totals:?}");
}

#[test]
fn each_sentence_has_the_result_it_has_alone() {
    for dims in [Dims::small(Family::Marian), Dims::small(Family::M2M100)] {
        let checkpoint = dims.checkpoint(41);
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            let what = format!("{} {isa}", dims.family.model_type());
            let (sentences, seeds): (_, &[_]) =
                if all_cases_on(isa) { (cases(100, 300), &[1, 2]) } else { (30, &[1]) };
            let expected = expected(&model, sentences);
            let distinct: std::collections::HashSet<_> = expected.iter().collect();
            assert_eq!(distinct.len(), expected.len(), "{what}: digests that say nothing");
            let mut session = Session::new(&model, limits()).expect("a session");
            for &seed in seeds {
                check(&format!("{what} seed {seed}"), &mut session, seed, &expected);
            }
        }
    }
}

/// Four threads for each core. This is slower, but it must finish: a waiting thread must give the core to
/// the thread that it waits for.
#[cfg(feature = "rayon")]
#[test]
fn with_more_threads_than_cores_it_finishes_with_the_same_bits() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4 * cores).build().expect("a pool");
    let dims = Dims { d_model: 132, ffn: [389, 515], ..Dims::small(Family::Bart) };
    let model = Model::load(&dims.checkpoint(43), Isa::best()).expect("a model");
    let expected = expected(&model, cases(60, 300));
    // Two sessions share one pool, so not even the threads of the pool are free for one session.
    std::thread::scope(|scope| {
        for seed in [3, 4] {
            let (model, pool, expected) = (&model, &pool, &expected);
            scope.spawn(move || {
                let mut session = Session::new(model, limits()).expect("a session");
                session.set_threads(simdformer::Threads::Rayon);
                pool.install(|| {
                    check(&format!("oversubscribed, seed {seed}"), &mut session, seed, expected);
                });
            });
        }
    });
}
