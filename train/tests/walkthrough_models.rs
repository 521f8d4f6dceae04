//! The models of the walkthrough equal what the commands in their README write.

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::train::{Initial, Schedule, TrainLimits, Trainer};
use simdformer_train::{
    BatchSize, Batching, Corpus, Layout, Reading, RunOptions, TrainEvent, TrainingRun,
};
use std::path::Path;

#[test]
fn the_models_of_the_walkthrough_are_reproducible() {
    for model in ["walkthrough", "walkthrough-pre-norm"] {
        reproduce(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(model));
    }
}

fn reproduce(folder: &Path) {
    let layout = Layout::of_config(folder).expect("a configuration");
    let config = layout.config().clone();
    let reading = Reading::for_config(&config, None, 16);
    let corpus = Corpus::read_file(&folder.join("sentences.jsonl"), &reading).expect("sentences");
    for isa in Isa::available() {
        let initial =
            Initial::from_hugging_face(&config, layout.config_text()).expect("a deviation");
        let initial = initial.weights(&config, 2017);
        let trainer = Trainer::new_on(isa, config.clone(), TrainLimits::new(16, 8), initial)
            .expect("a trainer");
        let mut options = RunOptions {
            schedule: Schedule::Constant { peak: 0.02, warmup: 0 },
            batching: Batching::Shuffled { size: BatchSize::Sentences(2), pool: 0 },
            steps: Some(400),
            seed: 2017,
            ..RunOptions::default()
        };
        options.step.smoothing.epsilon = 0.1;
        let mut run = TrainingRun::new(trainer, &corpus, options).expect("a run");
        while !matches!(run.next().expect("an event"), TrainEvent::Finished(_)) {}
        let kept = Checkpoint::open(folder).expect("a checkpoint");
        for (role, _, found) in run.trainer().parameters() {
            let kept = kept.tensor(role).expect("a tensor").to_vec().expect("numbers");
            assert_eq!(kept.len(), found.len(), "{role}");
            // Trained with AVX-512. 400 updates give the same bits on every other
            // instruction set.
            assert!(found == kept, "{role} on {isa}");
        }
    }
}
