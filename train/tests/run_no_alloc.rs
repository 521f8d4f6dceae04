//! A run allocates nothing from its first step on, validations included. Saves allocate, because they write
//! files. There is no test harness, because the counter counts every thread.

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::train::{TrainLimits, Trainer};
use simdformer_testing::counting;
use simdformer_train::{
    BatchSize, Batching, Corpus, Reading, RunOptions, TrainEvent, TrainingRun, Words,
};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en");
    let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
    let words = Words::from_directory(&folder).expect("words");
    let reading = Reading::for_config(checkpoint.config(), Some(&words), 64);
    let lines = std::fs::read(folder.join("held_out.jsonl")).expect("sentences");
    let cut =
        lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(99).expect("lines").0;
    let corpus = Corpus::from_lines(&lines[..cut], "some", &reading).expect("a corpus");

    for (batching, average) in [
        (Batching::Shuffled { size: BatchSize::Sentences(12), pool: 0 }, false),
        (Batching::Shuffled { size: BatchSize::Tokens(90), pool: 40 }, true),
    ] {
        let limits = TrainLimits { average, ..TrainLimits::new(600, 32) };
        let mut trainer = Trainer::open(&checkpoint, Isa::best(), limits).expect("a trainer");
        if average {
            trainer.set_average(Some(0.99)).expect("an average");
        }
        let options = RunOptions {
            batching,
            accumulate: 2,
            steps: Some(50),
            validate_every: 10,
            ..RunOptions::default()
        };
        let mut run = TrainingRun::new(trainer, &corpus, options).expect("a run");
        run.set_held_out(&corpus);
        let before = counting::allocations();
        let (mut steps, mut validations) = (0, 0);
        loop {
            match run.next().expect("an event") {
                TrainEvent::Step(_) => steps += 1,
                TrainEvent::Validated(_) => validations += 1,
                TrainEvent::OptionsChanged(_) | TrainEvent::Saved(_) => {}
                TrainEvent::Finished(_) => break,
            }
        }
        assert_eq!(counting::allocations() - before, 0, "{:?}", run.options().batching);
        assert_eq!((steps, validations), (50, 5));
    }
    println!("a run allocates nothing: ok");
}
