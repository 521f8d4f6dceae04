//! Fine-tuning: trains a checkpoint on new pairs of sentences, and saves a checkpoint that this library and
//! transformers load. Needs the feature `train`.

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::train::{Example, Layout, StepOptions, TrainLimits, Trainer};
use std::error::Error;
use std::path::Path;

/// Makes `steps` updates on all of `pairs` (source and target, each with its end token). Returns the mean loss before
/// each update and after the last one.
pub(crate) fn run(
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
    Layout::of(directory)?.write(&trainer, out)?;
    Ok(losses)
}
