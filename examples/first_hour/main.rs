//! Short example programs, one per file, as starting points for your own.
//!
//! ```sh
//! cargo run --release --example first_hour -- translate
//! ```
//!
//! `kernels`, `translate`, `stream`, `admit`, `service`, `by_hand`, `one_head`. Sentences are ids of
//! `models/fr-en/source_vocab.json`; `examples/translate.rs` reads and writes words.

#![allow(unsafe_code, reason = "a pool of std's threads lends tasks to threads that live longer")]

mod admit;
mod by_hand;
mod kernels;
mod one_head;
mod pool;
mod service;
mod stream;
mod translate;

use std::error::Error;

const MODEL: &str = "models/fr-en";
const SOURCES: [&[u32]; 4] = [&[6, 11, 0], &[9, 14, 32, 0], &[8, 0], &[6, 8, 11, 0]];

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("kernels") => println!("{}", kernels::run(2)?),
        Some("translate") => println!("{:?}", translate::run(MODEL)?),
        Some("stream") => println!("{:?}", stream::run(MODEL, 8)?),
        Some("admit") => println!("{:?}", admit::run(MODEL, &SOURCES)?),
        Some("service") => println!("{:?}", service::run(MODEL, &SOURCES)?),
        Some("by_hand") => println!("{:?}", by_hand::run(1)?),
        Some("one_head") => {
            print!("{}", one_head::draw(&one_head::run(MODEL, SOURCES[1], (1, 0))?));
        }
        _ => println!("kernels | translate | stream | admit | service | by_hand | one_head"),
    }
    Ok(())
}
