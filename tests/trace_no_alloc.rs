//! A probe and an alignment allocate nothing. There is no test harness, because the counter counts every
//! thread and the harness has one.

use simdformer::trace::{Probe, View};
use simdformer::{Limits, Model, Session, SourceId, StepRow};
use simdformer_testing::counting;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Adds up all values.
#[derive(Default)]
struct Sum {
    views: usize,
    total: f64,
}

impl Probe for Sum {
    fn look(&mut self, view: &View<'_>) {
        self.views += 1;
        self.total += view.iter().flatten().map(|&x| f64::from(x)).sum::<f64>();
    }
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en");
    let model = Model::open(folder).expect("a model");
    let mut session = Session::new(&model, Limits::new(2, 8, 8)).expect("a session");
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut alignment = vec![0.0; 3 * 8];
    let mut sentences = [SourceId::default(); 2];
    let mut probe = Sum::default();
    let before = counting::allocations();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(counting::allocations() - before, 1, "the counter counts");
    let before = counting::allocations();
    let mut watched = session.traced(&mut probe, &mut scratch).expect("space");
    watched.encode(&[&[954, 1388, 1444, 0], &[585, 0]], &mut sentences).expect("encoded");
    let rows = sentences.map(|sentence| session.start(sentence).expect("a row"));
    let mut watched = session.traced(&mut probe, &mut scratch).expect("space");
    watched.step(&rows.map(|row| StepRow::new(row, 2317))).expect("stepped");
    watched.prefill(rows[0], &[5, 6, 7], Some(&mut |_, _| {})).expect("prefilled");
    session.release(rows[0]).expect("released");
    let target = [2317, 5, 6];
    let aligned = session.align(sentences[0], &target, (1, &[0, 3]), &mut scratch, &mut alignment);
    assert_eq!(aligned, Ok(4));
    assert_eq!(counting::allocations() - before, 0, "allocations under a probe");
    assert!(probe.views > 100 && probe.total.is_finite(), "{} views", probe.views);
}
