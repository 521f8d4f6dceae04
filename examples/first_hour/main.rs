//! Short example programs, one per file, as starting points for your own.
//!
//! ```sh
//! cargo run --release --example first_hour -- n_best
//! ```
//!
//! `kernels`, `decode`, `no_std` (`tests/no_std/src/lib.rs`), `n_best`, `int8`, `stream`, `admit`, `service`, `by_hand` and
//! `one_head`. Sentences are ids of `models/fr-en/source_vocab.json`; `examples/translate` reads and writes words.

mod admit;
mod by_hand;
mod decode;
mod int8;
mod kernels;
mod n_best;
mod one_head;
mod service;
mod stream;
#[cfg(test)]
mod tests;

use simdformer_kernels::{Matrix, MatrixMut};
use std::error::Error;

const MODEL: &str = "models/fr-en";
const SOURCES: [&[u32]; 5] = [&[6, 11, 0], &[9, 14, 32, 0], &[8, 0], &[6, 8, 11, 0], &[11, 0]];

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("kernels") => println!("{}", kernels::run(2)?),
        Some("decode") => println!("{:?}", decode::run(&[5, 6, 7], [&[8, 9], &[8, 3]])?),
        Some("no_std") => {
            let mut packed = vec![0.0; simdformer_no_std::packed_len(2, 3)?];
            let (weight, mut out) = ([1.0, 0.0, 0.0, 1.0, 1.0, -2.0], [0.0; 3]);
            let (x, weight) = (Matrix::new(&[3.0, 4.0], 1, 2)?, Matrix::new(&weight, 3, 2)?);
            let to = MatrixMut::new(&mut out, 1, 3)?;
            simdformer_no_std::feed_forward(x, (weight, &[0.5; 3]), &mut packed, to)?;
            println!("{out:?}");
        }
        Some("int8") => {
            let file = std::env::temp_dir().join("simdformer-first-hour.packed");
            println!("{:?}", int8::run(MODEL, &file, &SOURCES)?);
        }
        Some("n_best") => println!("{:?}", n_best::run(MODEL)?),
        Some("stream") => println!("{:?}", stream::run(MODEL, 8)?),
        Some("admit") => println!("{:?}", admit::run(MODEL, &SOURCES)?),
        Some("service") => println!("{:?}", service::run(MODEL, &SOURCES)?),
        Some("by_hand") => println!("{:?}", by_hand::run(1)?),
        Some("one_head") => {
            print!("{}", one_head::draw(&one_head::run(MODEL, SOURCES[1], (1, 0))?));
        }
        _ => println!(
            "kernels | decode | no_std | n_best | int8 | stream | admit | service | by_hand | one_head"
        ),
    }
    Ok(())
}
