//! F1 of sentence boundaries, by language, beside UAX #29 alone.
//!
//! `cargo run -p simdformer-text --example sentences` measures the sentences of this repository, and with the path of a
//! folder those in its files `XX.txt`: `XX` is the language, a line a sentence, and a blank line ends a paragraph. With
//! `--mistakes` it also prints the paragraphs with a wrong boundary.

#![allow(missing_docs, unreachable_pub)]

#[path = "../tests/sentences/measure.rs"]
mod measure;

use std::io::{self, Write as _};
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let (options, folders): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument == "--mistakes");
    let folder = folders.first().map_or_else(measure::folder, PathBuf::from);
    let all = measure::measure(&folder)?;
    let mut out = io::stdout().lock();
    write!(out, "{}", measure::table(&all))?;
    for one in all.iter().filter(|_| !options.is_empty()) {
        for mistake in &one.mistakes {
            writeln!(out, "\n{}:", one.language)?;
            for sentence in mistake {
                writeln!(out, "  | {sentence}")?;
            }
        }
    }
    Ok(())
}
