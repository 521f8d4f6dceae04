//! Runs ten thousand sentences of random lengths through continuous batching, compares each with its result when run
//! alone, and measures the memory to the byte.
//!
//! ```sh
//! cargo run --release --example soak
//! # Four threads for each of two cores, on a model that keeps them busy.
//! cargo run --release --example soak -- --sentences 300 --width 512 --threads 8
//! ```
//!
//! Sentences are admitted, stepped, forked and released at random, as in a service. After a warm-up the process must
//! not call the allocator, and its resident memory must not change. The program exits with an error otherwise, or if
//! any bit of any logit differs from the sentence's own result. The printed seconds are those of continuous batching,
//! without the comparison.

use clap::{Parser, value_parser};
use random_model::Dims;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::{Limits, Model, Plan, Session, Threads};
use simdformer_testing::{counting, random_model, soak};
use soak::{SOURCE, Soak, TARGET, Totals};
use std::io::Read;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Compares sentences in continuous batching with each sentence alone, and measures the memory
#[derive(Parser)]
struct Options {
    /// The number of sentences
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(10..))]
    sentences: u64,
    /// The number of threads
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    threads: u16,
    /// The width of the model, in heads of 16
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(16..=4096))]
    width: u16,
}

/// Resident bytes of this process, exactly; `None` if the system does not report them. Allocates nothing.
fn resident() -> Option<u64> {
    let mut text = [0; 4096];
    let mut file = std::fs::File::open("/proc/self/smaps_rollup").ok()?;
    let mut len = 0;
    while let Ok(more @ 1..) = file.read(&mut text[len..]) {
        len += more;
    }
    let text = core::str::from_utf8(&text[..len]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The memory use at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    resident: Option<u64>,
    /// Allocated bytes, and calls of the allocator.
    bytes: usize,
    calls: usize,
}

impl Memory {
    fn now() -> Self {
        Self { resident: resident(), bytes: counting::bytes(), calls: counting::calls() }
    }
}

/// A buffer for a session, made resident before it is used.
fn buffer(model: &Model, limits: Limits) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    Ok(vec![f32::NAN; Plan::new(model, limits)?.floats()])
}

fn report(elapsed: Duration, totals: &Totals, wrong: u64) -> Memory {
    let now = Memory::now();
    println!(
        "{:>7} sentences  {:>8} steps  {:>9} rows  {:>6} forks  {:>6} refilled  {:>2} together  \
         {wrong} wrong  {:>6.1} s  resident {:>11}  allocated {:>11} bytes, {} calls",
        totals.sentences,
        totals.steps,
        totals.rows,
        totals.forks,
        totals.refills,
        totals.most_together,
        elapsed.as_secs_f64(),
        now.resident.unwrap_or(0),
        now.bytes,
        now.calls,
    );
    now
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let heads = usize::from(options.width / 16);
    let width = 16 * heads;
    let dims = Dims {
        d_model: width,
        heads: [heads, heads],
        ffn: [3 * width, 3 * width],
        ..Dims::small(Family::Marian)
    };
    let model = Model::load(&dims.checkpoint(1), Isa::detect()?)?;
    let limits = Limits { beams: 3, ..Limits::new(16, SOURCE, TARGET) };
    let single = Limits::new(1, SOURCE, TARGET);
    let (mut memory, mut lonely) = (buffer(&model, limits)?, buffer(&model, single)?);
    let mut session = Session::with_buffer(&model, limits, &mut memory)?;
    let mut alone = Session::with_buffer(&model, single, &mut lonely)?;
    #[cfg(feature = "rayon")]
    if options.threads > 1 {
        session.set_threads(Threads::Rayon);
    }
    #[cfg(not(feature = "rayon"))]
    session.set_threads(Threads::Serial);
    println!(
        "{} on {} with {} threads, {} bytes planned",
        dims.family.model_type(),
        model.isa(),
        options.threads,
        session.plan().bytes()
    );

    let mut soak = Soak::new(2, &session);
    let (start, every) = (Instant::now(), options.sentences / 10);
    let (mut wrong, mut failed) = (0, None);
    let (mut warm, mut last): (Option<Memory>, Option<Memory>) = (None, None);
    let (mut changes, mut comparing) = (0, Duration::ZERO);
    soak.decode_sentences(&mut session, 0..options.sentences, &mut |number, digest, totals| {
        let began = Instant::now();
        match soak::alone(&mut alone, number) {
            Ok(expected) => wrong += u64::from(expected != digest),
            Err(error) => failed = Some(error),
        }
        comparing += began.elapsed();
        if (totals.sentences as u64).is_multiple_of(every) {
            let now = report(start.elapsed() - comparing, totals, wrong);
            // The first tenth is the warm-up: pages of the program, buffers of standard output.
            match last {
                None => warm = Some(now),
                Some(last) => changes += usize::from(now != last),
            }
            last = Some(now);
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if wrong > 0 {
        return Err(format!("{wrong} sentences are not what they are alone").into());
    }
    if changes > 0 {
        return Err(format!("memory changed {changes} times, from {warm:?} to {last:?}").into());
    }
    println!("every sentence is what it is alone; memory is the same to the byte");
    Ok(())
}

/// Makes the stack of this thread resident, as far as kernels use it. With more threads than cores, some threads
/// would otherwise run a task for the first time long after the warm-up.
#[cfg(feature = "rayon")]
fn touch_stack() {
    core::hint::black_box([1u8; 256 << 10]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    #[cfg(feature = "rayon")]
    if options.threads > 1 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads.into()).build()?;
        pool.broadcast(|_| touch_stack());
        return pool
            .install(|| run(&options).map_err(|error| error.to_string()))
            .map_err(Into::into);
    }
    run(&options)
}
