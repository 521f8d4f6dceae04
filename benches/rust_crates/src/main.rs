//! Matrix products of this library beside those of other Rust crates, on one thread, in one process.
//!
//! ```sh
//! cargo run --release --manifest-path benches/rust_crates/Cargo.toml                  # every shape
//! cargo run --release --manifest-path benches/rust_crates/Cargo.toml -- --rounds 11 256x512x512
//! ```
//!
//! `C = A W` with W packed beforehand where a crate can do so (numkong, gemmkit, rten-gemm, and this library), f32 and
//! int8. A round runs each crate once, in every other round backwards, each for a few milliseconds; `theirs / ours` is the
//! median of the ratios within a round, so that a drift of the clock cancels. Above 1 we are faster. The results are compared
//! with a sum in f64 before anything is measured. numkong adds products of f32 in f64. The int8 products give i32 sums,
//! except ours, which also multiplies them by the scales of their row and column.
//!
//! The last lines are the geometric means over the shapes of the fastest other crate of each row, and the rows in which
//! another crate is more than 3 % faster.

mod engines;
mod operands;

use engines::{Engine, f32_engines, int8_engines};
use operands::{Operands, Shape};
use simdformer_kernels::Isa;
use std::process::ExitCode;
use std::time::Instant;

/// The products of a Transformer-base and of its decoding steps, and square ones.
const SHAPES: [Shape; 22] = [
    Shape(512, 512, 512),
    Shape(1024, 1024, 1024),
    Shape(256, 512, 512),
    Shape(256, 2048, 512),
    Shape(256, 512, 2048),
    Shape(64, 512, 512),
    Shape(64, 2048, 512),
    Shape(64, 512, 2048),
    Shape(64, 32000, 512),
    Shape(16, 512, 512),
    Shape(16, 2048, 512),
    Shape(16, 512, 2048),
    Shape(16, 32000, 512),
    Shape(8, 512, 512),
    Shape(8, 2048, 512),
    Shape(8, 512, 2048),
    Shape(8, 32000, 512),
    Shape(4, 2048, 512),
    Shape(1, 512, 512),
    Shape(1, 2048, 512),
    Shape(1, 512, 2048),
    Shape(1, 32000, 512),
];

/// Seconds of one engine in one round.
const SLICE: f64 = 0.02;

fn main() -> ExitCode {
    let (mut rounds, mut shapes) = (7, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let accepted = match argument.as_str() {
            "--rounds" => arguments.next().and_then(|text| text.parse().ok()).map(|n| rounds = n),
            text => Shape::parse(text).map(|shape| shapes.push(shape)),
        };
        if accepted.is_none() || rounds == 0 {
            eprintln!("rust_crates: '{argument}': expected --rounds N (N at least 1) or MxNxK");
            return ExitCode::from(2);
        }
    }
    if shapes.is_empty() {
        shapes = SHAPES.to_vec();
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    let isa = match (pool, Isa::detect()) {
        (Ok(_), Ok(isa)) => isa,
        (Err(error), _) => return failed(&error),
        (_, Err(error)) => return failed(&error),
    };
    println!("{} on one thread, {rounds} rounds; time of ours, then theirs / ours", isa.name());
    compare("f32", &shapes, rounds, |operands| f32_engines(isa, operands));
    compare("int8", &shapes, rounds, |operands| int8_engines(isa, operands));
    ExitCode::SUCCESS
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("rust_crates: {error}");
    ExitCode::FAILURE
}

/// Prints a row for each shape, then the summary.
fn compare<'o>(
    kind: &str,
    shapes: &[Shape],
    rounds: usize,
    engines: impl Fn(&'o Operands) -> Vec<Engine<'o>>,
) {
    let mut best_of_rows = Vec::new();
    let mut behind = Vec::new();
    for (row, &shape) in shapes.iter().enumerate() {
        // Engines borrow them, and the program ends after the last shape.
        let operands: &'o Operands = Box::leak(Box::new(Operands::random(shape)));
        let mut engines = engines(operands);
        for engine in &mut engines {
            engine.check(operands);
        }
        if row == 0 {
            let names: Vec<_> = engines[1..].iter().map(|e| format!("{:>16}", e.name)).collect();
            println!("\n{kind:16} {:>10} {}", "ours (us)", names.concat());
        }
        let seconds = measure(&mut engines, rounds);
        let ratios: Vec<f64> = seconds[1..]
            .iter()
            .map(|theirs| median(theirs.iter().zip(&seconds[0]).map(|(t, o)| t / o).collect()))
            .collect();
        let cells: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:>16.2}")).collect();
        let ours = 1e6 * median(seconds[0].clone());
        println!("{:16} {ours:>10.1} {}", shape.name(), cells.concat());
        let best = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        best_of_rows.push(best.ln());
        if best < 0.97 {
            behind.push(format!("{} ({best:.2})", shape.name()));
        }
    }
    let mean = (best_of_rows.iter().sum::<f64>() / best_of_rows.len() as f64).exp();
    println!("the fastest other crate of each row / ours, geometric mean: {mean:.2}");
    match behind.is_empty() {
        true => println!("no row in which another crate is more than 3 % faster"),
        false => {
            println!("rows in which another crate is more than 3 % faster: {}", behind.join(", "))
        }
    }
}

/// Seconds of a call of each engine in each round.
fn measure(engines: &mut [Engine<'_>], rounds: usize) -> Vec<Vec<f64>> {
    let mut calls = Vec::new();
    for engine in engines.iter_mut() {
        (engine.run)();
        let start = Instant::now();
        (engine.run)();
        calls.push((SLICE / start.elapsed().as_secs_f64()).ceil().clamp(1.0, 1e6) as u32);
    }
    let mut seconds = vec![Vec::with_capacity(rounds); engines.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..engines.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let start = Instant::now();
            for _ in 0..calls[index] {
                (engines[index].run)();
            }
            seconds[index].push(start.elapsed().as_secs_f64() / f64::from(calls[index]));
        }
    }
    seconds
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
