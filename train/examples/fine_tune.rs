//! Fine-tuning: trains a checkpoint on new pairs of sentences, and saves a checkpoint that this library and
//! transformers load.
//!
//! ```sh
//! cargo run --release -p simdformer-train --example fine_tune
//! ```

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::train::{Example, StepOptions, TrainLimits, Trainer};
use simdformer_train::Layout;
use std::error::Error;
use std::path::Path;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::temp_dir().join("simdformer-fine-tuned");
    let pairs: [(&[u32], &[u32]); 2] = [(&[6, 11, 0], &[7, 12, 0]), (&[8, 0], &[7, 0])];
    println!("{:?}", fine_tune(Path::new(MODEL), &out, &pairs, 10)?);
    Ok(())
}

/// Makes `steps` updates on all of `pairs` (source and target, each with its end token). Returns the mean loss before
/// each update and after the last one.
fn fine_tune(
    directory: &Path,
    out: &Path,
    pairs: &[(&[u32], &[u32])],
    steps: usize,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let checkpoint = Checkpoint::open(directory)?;
    // At most 256 tokens in one pass, in sentences of at most 32. A larger batch takes several passes.
    let mut trainer = Trainer::open(&checkpoint, Isa::detect()?, TrainLimits::new(256, 32))?;
    println!("{}", trainer.plan()); // all memory of the training
    let batch: Vec<Example<'_>> =
        (0..).zip(pairs).map(|(id, &(source, target))| Example::new(source, target, id)).collect();

    let mut options = StepOptions::default();
    options.adam.rate = 3e-4;
    options.smoothing.epsilon = 0.1;
    let mut losses = Vec::new();
    for _ in 0..steps {
        let step = trainer.step(&batch, &options)?; // no allocation
        losses.push(step.totals.mean_loss());
    }
    losses.push(trainer.evaluate(&batch, options.smoothing)?.mean_loss());

    // The tensor names, `config.json` and the tokenizer files of the old checkpoint, with the new weights. `TrainingRun`
    // adds validation, schedules and resuming.
    std::fs::create_dir_all(out)?;
    Layout::from_directory(directory)?.write(&trainer, out)?;
    Ok(losses)
}

#[test]
fn fine_tuning_lowers_the_loss_and_saves_a_checkpoint() {
    let out = std::env::temp_dir().join(format!("simdformer-{}-fine-tuned", std::process::id()));
    let pairs: [(&[u32], &[u32]); 2] = [(&[6, 11, 0], &[7, 12, 0]), (&[8, 0], &[7, 0])];
    let losses = fine_tune(Path::new(MODEL), &out, &pairs, 10).expect("trained");
    assert_eq!(losses.len(), 11);
    assert!(losses[10] < losses[0], "{losses:?}");
    let weights = |folder: &Path| std::fs::read(folder.join("model.safetensors")).expect("weights");
    assert_ne!(weights(&out), weights(Path::new(MODEL)));
    simdformer::Model::open(&out).expect("the saved checkpoint");
    std::fs::remove_dir_all(&out).expect("removed");
}
