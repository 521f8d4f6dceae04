//! Shows the computation of sentences step by step: vocabularies, batch, masks, then every intermediate tensor with its
//! title, shape and values, up to the prediction.
//!
//! ```sh
//! cargo run --release --example navigate
//! cargo run --release --example navigate -- --step            # Enter for the next stage
//! cargo run --release --example navigate -- --stage weights   # one stage, wherever it occurs
//! cargo run --release --example navigate -- --markdown walkthrough.md
//! cargo run --release --example navigate -- --order           # what the encoder knows of the order of words
//! cargo run --release --example navigate -- --model models/walkthrough-pre-norm
//! cargo run --release --example navigate -- --model models/fr-en --source "les petites filles sont heureuses"
//! cargo run --release --features train --example navigate -- --training   # how such a model learns
//! ```
//!
//! The model is a real one with 6 dimensions and 3 heads (`models/walkthrough`), or any other encoder-decoder. All
//! printed values were recorded by a probe (`src/trace/mod.rs`) during the engine's own computation.

#[cfg(feature = "train")]
mod lesson_page;
mod masks;
mod order;
mod page;
#[cfg(test)]
mod tests;
mod walkthrough;

use clap::Parser;
use page::{Section, Style};
use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use walkthrough::Asked;

/// Shows the computation of sentences, step by step
#[derive(Parser)]
#[command(name = "navigate", no_binary_name = true)]
struct Options {
    /// The checkpoint of an encoder-decoder
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("models/walkthrough"))]
    model: PathBuf,
    /// A source of words or ids, once for each sentence (those in sentences.jsonl of DIR)
    #[arg(long, value_name = "TEXT")]
    source: Vec<String>,
    /// The output of each source (the model's own translation)
    #[arg(long, value_name = "TEXT", requires = "source")]
    target: Vec<String>,
    /// Wait for Enter between stages; q ends
    #[arg(long)]
    step: bool,
    /// Show one stage, wherever it occurs
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Write a page to FILE instead
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// List the names of the stages
    #[arg(long)]
    list: bool,
    /// Show the encoder output of a sentence and of its words in reverse, with positions and without
    #[arg(long)]
    order: bool,
    /// Show how a model learns two sentences instead; needs the feature `train`
    #[arg(long, conflicts_with_all = ["model", "source", "target", "order"])]
    training: bool,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page of sections.
struct Page {
    head: &'static str,
    sections: Vec<Section>,
}

#[cfg(feature = "train")]
fn training() -> Result<Page, Box<dyn Error>> {
    let head = "# Two sentences that a Transformer learns\n\nWritten by `cargo run --release \
                --features train --example navigate -- --training --markdown`.\n\n";
    Ok(Page { head, sections: lesson_page::sections(&simdformer_testing::lesson::learn()?) })
}

#[cfg(not(feature = "train"))]
fn training() -> Result<Page, Box<dyn Error>> {
    let command = "cargo run --release --features train --example navigate -- --training";
    Err(format!("this build has no feature `train`; run {command}").into())
}

fn inference(options: &Options) -> Result<Page, Box<dyn Error>> {
    let head = "# Sentences through the Transformer\n\nWritten by `cargo run --release \
                --example navigate -- --markdown`.\n\n";
    let asked = Asked { sources: &options.source, targets: &options.target };
    let sections = match options.order {
        true => order::sections(&options.model, &asked)?,
        false => walkthrough::sections(&options.model, &asked)?,
    };
    Ok(Page { head, sections })
}

fn main() -> ExitCode {
    let options = Options::parse_from(std::env::args_os().skip(1));
    let color = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let style = if color { Style::Colour } else { Style::Plain };
    match run(options, style, &mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<io::Error>() {
            // The reader closed the pipe, as `head` does.
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            _ => {
                eprintln!("navigate: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// Runs the command line.
fn run(
    options: Options,
    style: Style,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let Page { head, mut sections } =
        if options.training { training() } else { inference(&options) }?;
    let mut names: Vec<String> = Vec::new();
    for Section { stage, .. } in &sections {
        if !names.contains(stage) {
            names.push(stage.clone());
        }
    }
    if options.list {
        writeln!(out, "{}", names.join("\n"))?;
        return Ok(());
    }
    if let Some(stage) = options.stage {
        sections.retain(|section| section.stage == stage);
        if sections.is_empty() {
            let names = names.join(", ");
            return Err(format!("expected one of {names}; found `{stage}`").into());
        }
    }
    if let Some(path) = options.markdown {
        let body = |all: String, section: &Section| all + &section.show(Style::Markdown);
        let page = sections.iter().fold(head.to_owned(), body);
        simdformer::atomic_file::write(&path, page.trim_end().to_owned() + "\n")
            .map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(());
    }
    let count = sections.len();
    for (i, section) in sections.iter().enumerate() {
        out.write_all(section.show(style).as_bytes())?;
        if options.step && i + 1 < count {
            write!(out, "[{} of {count}] Enter for the next, q to end ", i + 1)?;
            out.flush()?;
            let mut line = String::new();
            let read = input.read_line(&mut line)?;
            writeln!(out)?;
            if read == 0 || line.trim() == "q" {
                break;
            }
        }
    }
    out.flush()?;
    Ok(())
}
