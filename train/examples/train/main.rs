//! Trains an encoder-decoder Transformer, from scratch or from a checkpoint.
//!
//! ```sh
//! cargo run --release -p simdformer-train --example train            # the demo: French to English
//! cargo run --release -p simdformer-train --example train -- --data FILE.jsonl --model DIR
//! cargo run --release -p simdformer-train --example train -- --help  # everything else
//! ```
//!
//! The directory becomes a checkpoint that [`simdformer::Model::open`] and transformers load. It also contains
//! `best`, `checkpoints/step-N` (from which the same command resumes), `metrics.jsonl` and `loss.svg`. The command
//! `cargo run --release -p simdformer-pictures --example picture -- DIR/loss.svg` converts the latter to a PNG.

mod arguments;
mod begin;
mod demo;
#[cfg_attr(not(test), allow(dead_code, reason = "tests call what training does not"))]
mod grammar;
mod judge;
mod metrics;
mod once;
mod peak;
mod report;
mod signals;
#[cfg(test)]
mod tests;

use arguments::Arguments;
use begin::{Data, Failure, From};
use clap::Parser;
use judge::judge;
use metrics::Metrics;
use report::{Report, clock, show};
use simdformer::{Model, Threads};
use simdformer_testing::counting;
use simdformer_train::{Corpus, Reason, TrainEvent, TrainingRun, average};
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Translations that are printed.
const SAMPLES: usize = 3;

fn main() -> ExitCode {
    match with_threads(&Arguments::parse_from(std::env::args_os().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("train: {error}");
            ExitCode::FAILURE
        }
    }
}

fn with_threads(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.threads == 1 {
        return command(arguments, &Threads::Serial);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.threads).build()?;
    pool.broadcast(|_| ());
    pool.install(|| command(arguments, &Threads::Rayon))
}

fn command(arguments: &Arguments, threads: &Threads<'_>) -> Result<(), Failure> {
    if let Some(checkpoints) = &arguments.average {
        let out = arguments.model.clone().ok_or("--average needs --model")?;
        average(checkpoints, &out)?;
        println!("{}: the mean of {} checkpoints", out.display(), checkpoints.len());
        return Ok(());
    }
    if let Some(count) = arguments.sentences {
        return Ok(demo::print_sentences(count, arguments.seed, &mut io::stdout().lock())?);
    }
    let alone = arguments.gradients.is_some() || arguments.benchmark;
    let directory = match &arguments.model {
        Some(directory) => Some(directory.clone()),
        None => arguments.is_demo().then(demo::directory),
    };
    let from = match alone {
        // These commands do not resume a run.
        true => match (&arguments.init_from, &arguments.model) {
            (Some(from), _) | (None, Some(from)) => From::Checkpoint(from.clone()),
            _ => From::of(arguments, None)?,
        },
        false => From::of(arguments, directory.as_deref())?,
    };
    let layout = from.layout()?;
    let options = begin::options(arguments, layout.config())?;
    let data = Data::read(arguments, &from, layout.config())?;
    let trainer = begin::trainer(arguments, &from, &layout, data.limits(arguments), threads)?;
    let out = &mut io::stdout();
    if let Some(file) = &arguments.gradients {
        return once::gradients(arguments, trainer, &data.training, &options, &layout, file, out);
    }
    if arguments.benchmark {
        return once::benchmark(arguments, trainer, &data.training, options, out);
    }
    let directory = directory.ok_or("--model is needed, where everything goes")?;
    introduce(&from, &directory, &data, &trainer)?;

    let words = Wording::of(&data);
    let judged = RefCell::new(None);
    let work = peak::Work::of(layout.config(), &data.training);
    let count = arguments.threads as f64;
    let peak = peak::of_one_thread(trainer.model().isa()).map(|peak| peak * count);
    let mut report = Report::new(arguments.report_every, options.steps, work, peak);
    let mut run = TrainingRun::new(trainer, &data.training, options)?;
    if let Some(held_out) = &data.held_out {
        run.set_held_out(held_out);
        run.set_judge(|model| {
            let found = judge(model, held_out, threads, SAMPLES)?;
            let exact = found.as_ref().map_or(f64::NAN, |found| found.exact as f64);
            *judged.borrow_mut() = found;
            Ok(exact / held_out.len() as f64)
        });
    }
    if let From::Save(save) = &from {
        for change in run.resume(save)? {
            println!("  with another option: {change}");
        }
    }
    run.set_directory(&directory, layout)?;
    signals::listen();
    let mut metrics = Metrics::open(&directory, run.step())?;
    let began = Instant::now();
    let over = |minutes: f64| began.elapsed().as_secs_f64() > 60.0 * minutes;
    let reason = loop {
        if signals::stopped() || arguments.minutes.is_some_and(over) {
            report.clear()?;
            if let Some(place) = run.save()? {
                println!("stopped after step {} and saved {}", run.step(), place.display());
                println!("the same command goes on");
            }
            metrics.draw()?;
            break None;
        }
        let start = Instant::now();
        match run.next()? {
            TrainEvent::Step(record) => {
                if let Some(line) = report.step(&record, start.elapsed().as_secs_f64())? {
                    metrics.line(&line)?;
                }
            }
            TrainEvent::Validated(found) => {
                let judged = judged.borrow_mut().take();
                let sentences = data.held_out.as_ref().map_or(0, Corpus::len);
                report.validation(&found, judged.as_ref(), sentences, &|ids| words.text(ids))?;
                metrics.validation(&found)?;
            }
            // Printed when the run was resumed.
            TrainEvent::OptionsChanged(_) | TrainEvent::Saved(_) => {}
            TrainEvent::Finished(reason) => break Some(reason),
        }
    };
    metrics.draw()?;
    if let Some(reason) = reason {
        finish(reason, &run, &directory, began)?;
        drop(run);
        if let Some(test) = &data.test {
            tell_of_test(&directory, test, threads, &words)?;
        }
    }
    Ok(())
}

fn introduce(
    from: &From,
    directory: &Path,
    data: &Data,
    trainer: &simdformer::train::Trainer<'_>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match from {
        From::Save(save) => writeln!(out, "goes on from {}", save.display())?,
        From::Checkpoint(from) => writeln!(out, "begins from {}", from.display())?,
        From::Nothing(config) => {
            writeln!(out, "begins from nothing, as {} says", config.display())?
        }
    }
    let corpus = &data.training;
    write!(out, "{} sentences, {} tokens", corpus.len(), corpus.tokens())?;
    if corpus.too_long() > 0 {
        write!(out, ", {} left out as too long", corpus.too_long())?;
    }
    if let Some(held_out) = &data.held_out {
        write!(out, "; {} held out", held_out.len())?;
    }
    writeln!(out)?;
    let model = trainer.model();
    writeln!(
        out,
        "{} parameters on {}, {:.1} MB of memory planned; writes to {}",
        trainer.parameters().map(|(_, _, numbers)| numbers.len()).sum::<usize>(),
        model.isa().name(),
        trainer.bytes() as f64 / 1e6,
        directory.display()
    )?;
    out.flush()
}

fn finish(
    reason: Reason,
    run: &TrainingRun<'_>,
    directory: &Path,
    began: Instant,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let why = match reason {
        Reason::Steps | Reason::Epochs => "done",
        Reason::Patience => "no better for long enough",
    };
    write!(out, "{why} after step {}, {}", run.step(), clock(began.elapsed().as_secs_f64()))?;
    match run.best() {
        Some((step, _)) => writeln!(out, "; {} is the best, of step {step}", directory.display()),
        None => writeln!(out, "; the model is {}", directory.display()),
    }
}

/// Opens the written checkpoint and translates the test sentences, which were not used before.
fn tell_of_test(
    directory: &Path,
    test: &Corpus,
    threads: &Threads<'_>,
    words: &Wording<'_>,
) -> Result<(), Failure> {
    let model = Model::open(PathBuf::from(directory))?;
    let Some(judged) = judge(&model, test, threads, 10)? else { return Ok(()) };
    let mut out = io::stdout().lock();
    writeln!(out, "test: {} of {} exact", judged.exact, test.len())?;
    for [source, target, said] in &judged.wrong {
        show(&mut out, [source, target, said].map(|ids| words.text(ids)))?;
    }
    Ok(())
}

/// Converts ids to words, if there is a vocabulary.
struct Wording<'w> {
    words: Vec<&'w str>,
}

impl<'w> Wording<'w> {
    fn of(data: &'w Data) -> Self {
        Self { words: data.words.as_ref().map(|words| words.target_words()).unwrap_or_default() }
    }

    fn text(&self, ids: &[u32]) -> String {
        let word = |&id: &u32| match self.words.get(id as usize) {
            Some(word) if !word.is_empty() => (*word).to_owned(),
            _ => id.to_string(),
        };
        ids.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}
