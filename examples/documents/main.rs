//! Follows one of the documents that teach the Transformer, in its order: what each section computes, the number that the
//! document prints, the number that simdformer computes, the difference, and the function that computed it.
//!
//! ```sh
//! cargo run --release -p documents -- walkthrough
//! cargo run --release -p documents -- --check
//! ```

mod attention;
mod compute;
mod coverage;
mod decoder;
mod decoding;
mod dropout;
#[cfg(test)]
mod mutations;
mod page;
mod pictures;
mod slides;
mod svg;
mod tensor;
#[cfg(feature = "train")]
mod training;
mod transformer;
mod walkthrough;

use page::{Origin, Outcome, Page};
use serde_json::Value;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Why a page could not be made.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A document: its name on the command line, its number, what it is, the numbers and words that it prints, and the page
/// that is made of them.
struct Document {
    name: &'static str,
    number: &'static str,
    about: &'static str,
    data: &'static str,
    page: fn(&Value) -> Result<Page, Failure>,
}

impl Document {
    fn data(&self) -> Result<Value, Failure> {
        Ok(serde_json::from_str(self.data)?)
    }
}

const DOCUMENTS: [Document; 5] = [
    Document {
        name: "attention",
        number: "000",
        about: "a chapter on self-attention and multi-head attention",
        data: include_str!("data/attention.json"),
        page: attention::page,
    },
    Document {
        name: "slides",
        number: "001",
        about: "slides that derive query, key and value by hand",
        data: include_str!("data/slides.json"),
        page: slides::page,
    },
    Document {
        name: "decoder",
        number: "002",
        about: "notes on positions, the three masks and the decoder",
        data: include_str!("data/decoder.json"),
        page: decoder::page,
    },
    Document {
        name: "transformer",
        number: "003",
        about: "slides on the whole Transformer, training and decoding",
        data: include_str!("data/transformer.json"),
        page: transformer::page,
    },
    Document {
        name: "walkthrough",
        number: "004",
        about: "a walkthrough that prints every tensor of a small model",
        data: include_str!("data/walkthrough.json"),
        page: walkthrough::page,
    },
];

const USAGE: &str = "\
Follows the documents that teach the Transformer, and compares every printed number.

usage: documents [--check] [NAME]...
       documents --pictures DIR

  --check   print only which rows differ, which cannot be recomputed and why, and a summary; exit with 1 if a number
            differs by more than the document's printed precision
  --pictures DIR  draw the documents' figures from what the kernels compute, as SVG; the example `picture` of
            `simdformer-pictures` makes PNG of them. With the feature `train` also the learning rate and a loss
  NAME      all if none is given:
";

/// What the command line asks for.
enum Command {
    Help,
    /// Follow these documents; whether to print the summary only.
    Follow(Vec<&'static Document>, bool),
    /// Draw all pictures to a directory.
    Pictures(PathBuf),
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut documents, mut check) = (Vec::new(), false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => check = true,
            "--help" | "-h" => return Ok(Command::Help),
            "--pictures" => {
                let directory = arguments.next().ok_or("--pictures: expected a directory")?;
                return Ok(Command::Pictures(directory.into()));
            }
            name => {
                let found = DOCUMENTS.iter().find(|d| d.name == name || d.number == name);
                documents.push(found.ok_or_else(|| {
                    let names: Vec<&str> = DOCUMENTS.iter().map(|d| d.name).collect();
                    format!("expected a document, one of {}, found {name:?}", names.join(", "))
                })?);
            }
        }
    }
    if documents.is_empty() {
        documents.extend(&DOCUMENTS);
    }
    Ok(Command::Follow(documents, check))
}

fn usage() -> String {
    let line = |d: &Document| format!("            {:<12} {}, {}\n", d.name, d.number, d.about);
    USAGE.to_owned() + &DOCUMENTS.iter().map(line).collect::<String>()
}

/// How many rows of a page had which outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Rows that agree with the document, with a formula, and with numbers worked out on paper.
    pub(crate) same: [usize; 3],
    pub(crate) holds: usize,
    pub(crate) shown: usize,
    pub(crate) not_recomputable: usize,
    pub(crate) differs: usize,
}

impl Counts {
    pub(crate) fn of(page: &Page) -> Self {
        let mut counts = Self::default();
        for row in &page.rows {
            let count = match &row.outcome {
                Outcome::Same(Origin::Document) => &mut counts.same[0],
                Outcome::Same(Origin::Formula) => &mut counts.same[1],
                Outcome::Same(Origin::ByHand) => &mut counts.same[2],
                Outcome::Holds => &mut counts.holds,
                Outcome::Shown(_) => &mut counts.shown,
                Outcome::NotRecomputable(_) => &mut counts.not_recomputable,
                Outcome::Differs(_) => &mut counts.differs,
            };
            *count += 1;
        }
        counts
    }
}

/// Lines for the rows that need attention, and two that count all.
fn summary(document: &Document, page: &Page) -> String {
    let mut out = String::new();
    for row in &page.rows {
        let (word, why) = match &row.outcome {
            Outcome::Same(_) | Outcome::Holds => continue,
            Outcome::Shown(why) => ("shown, not computed", why),
            Outcome::Differs(how) => ("DIFFERS", how),
            Outcome::NotRecomputable(why) => ("not recomputable", why),
        };
        out += &format!("{} {}, {}: {word}: {why}\n", document.name, row.section, row.name);
    }
    let Counts { same: [same, formula, by_hand], holds, shown, not_recomputable, differs } =
        Counts::of(page);
    out + &format!(
        "{0}: {same} rows agree with the document, {formula} with a formula, {by_hand} with numbers by hand; {holds} properties\n\
         hold; {shown} rows are shown and not computed, {not_recomputable} are not recomputable, {differs} differ\n\
         {0}: {1} printed numbers are recomputed, {2} of them end with another last digit\n",
        document.name, page.recomputed, page.marked
    )
}

fn run() -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    let (documents, check) = match parse(std::env::args().skip(1))? {
        Command::Help => {
            out.write_all(usage().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Pictures(directory) => {
            for file in pictures::draw(&directory)? {
                writeln!(out, "{}", file.display())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Command::Follow(documents, check) => (documents, check),
    };
    let mut differs = false;
    for document in documents {
        let page = (document.page)(&document.data()?)?;
        if !check {
            writeln!(out, "{}", page.text)?;
        }
        out.write_all(summary(document, &page).as_bytes())?;
        for wrong in coverage::check(document.name, &page) {
            writeln!(out, "{wrong}")?;
            differs = true;
        }
        differs |= page.rows.iter().any(|row| matches!(row.outcome, Outcome::Differs(_)));
    }
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        // The reader closed the pipe, as `head` does.
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("documents: {error}");
            ExitCode::from(2)
        }
    }
}

/// `cargo test --workspace --bin documents` runs it with what the other tests have compiled.
#[cfg(test)]
mod tests {
    use super::{Counts, DOCUMENTS, Outcome, coverage};

    #[test]
    fn every_page_has_the_numbers_of_its_document() {
        for document in DOCUMENTS {
            let page = (document.page)(&document.data().expect("data")).expect("a page");
            for row in &page.rows {
                let differs = matches!(row.outcome, Outcome::Differs(_));
                assert!(
                    !differs,
                    "{} {}, {}: {:?}",
                    document.name, row.section, row.name, row.outcome
                );
            }
            assert!(Counts::of(&page).same[0] > 1);
            assert_eq!(coverage::check(document.name, &page), Vec::<String>::new());
        }
    }
    #[test]
    fn every_picture_is_drawn() {
        let directory = std::env::temp_dir().join(format!("simdformer-{}", std::process::id()));
        let files = super::pictures::draw(&directory).expect("pictures");
        assert_eq!(files.len(), if cfg!(feature = "train") { 13 } else { 11 });
        for file in &files {
            let picture = std::fs::read_to_string(file).expect("a picture");
            let named = |name: &str| file.ends_with(format!("{name}.svg"));
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{file:?}");
            // Two sublayers in a layer of the encoder, three in one of the decoder.
            assert!(!named("architecture") || picture.matches("add &amp; norm").count() == 5);
        }
        std::fs::remove_dir_all(directory).expect("removed");
    }
}
