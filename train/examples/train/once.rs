//! Commands other than runs: gradients of some sentences, and a benchmark of steps.

use super::arguments::Arguments;
use super::begin::Failure;
use super::counting;
use simdformer::train::Trainer;
use simdformer_train::{BatchSize, Corpus, Layout, RunOptions, TrainEvent, TrainingRun};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Writes the loss of the first sentences and every gradient.
pub(crate) fn gradients(
    arguments: &Arguments,
    mut trainer: Trainer<'_>,
    corpus: &Corpus,
    options: &RunOptions,
    layout: &Layout,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let count = match arguments.batch() {
        Some(BatchSize::Sentences(count)) => count,
        Some(BatchSize::Tokens(_)) => return Err("--gradients takes --batch-sentences".into()),
        None => corpus.len(),
    };
    if corpus.too_long() > 0 {
        return Err(format!("{} sentences are too long for the model", corpus.too_long()).into());
    }
    let pairs: Vec<_> = corpus.pairs().take(count).collect();
    let tokens = pairs.iter().map(|pair| pair.target.len() as u64).sum();
    let totals = trainer.accumulate(&pairs, options.step.smoothing, tokens)?;
    layout.write_gradients(&mut trainer, totals.mean_loss(), file)?;
    let (loss, nll) = (totals.mean_loss(), totals.mean_nll());
    writeln!(out, "{} sentences, {tokens} tokens: loss {loss:.6}, nll {nll:.6}", pairs.len())?;
    writeln!(out, "{}", file.display())?;
    Ok(())
}

/// Makes steps, and prints the time of each as a line of JSON.
pub(crate) fn benchmark(
    arguments: &Arguments,
    trainer: Trainer<'_>,
    corpus: &Corpus,
    options: RunOptions,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let steps = options.steps.unwrap_or(32);
    let isa = trainer.model().isa().name();
    let plan_bytes = trainer.bytes();
    let buffer = || Vec::with_capacity(steps as usize);
    let (mut seconds, mut losses) = (buffer(), buffer());
    let (mut source_tokens, mut target_tokens) =
        (Vec::with_capacity(steps as usize), Vec::with_capacity(steps as usize));
    let options = RunOptions { steps: Some(steps), epochs: None, ..options };
    let mut run = TrainingRun::new(trainer, corpus, options)?;
    let mut allocated = counting::allocations();
    loop {
        let start = Instant::now();
        let event = run.next()?;
        let took = start.elapsed().as_secs_f64();
        match event {
            TrainEvent::Step(record) => {
                seconds.push(took);
                losses.push(record.totals.mean_loss());
                source_tokens.push(record.source_tokens);
                target_tokens.push(record.totals.tokens);
                if record.step == 1 {
                    allocated = counting::allocations();
                }
            }
            TrainEvent::Finished(_) => break,
            _ => {}
        }
    }
    let allocations = counting::allocations() - allocated;
    let line = serde_json::json!({
        "engine": "simdformer", "threads": arguments.threads, "isa": isa,
        "seconds": seconds, "source_tokens": source_tokens, "target_tokens": target_tokens,
        "loss": losses, "plan_bytes": plan_bytes, "allocations": allocations,
    });
    writeln!(out, "{line}")?;
    Ok(())
}
