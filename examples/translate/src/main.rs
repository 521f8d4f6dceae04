//! Translates French to English with the small model in `models/fr-en`: a tokenizer around the engine.
//!
//! ```sh
//! cargo run --release -p translate                                   # sample sentences
//! cargo run --release -p translate -- "je suis étudiant" "quel mois" # one sentence each
//! cargo run --release -p translate < sentences.txt                   # one sentence a line
//! ```
//!
//! The model only translates the words of its grammar (`models/fr-en/README.md`). The command `simdformer translate` does
//! the same for every model, for documents, and with all options.

#[cfg(test)]
mod tests;

use simdformer::Engine;
use simdformer_tokenize::{Direction, Tokenizer};
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/fr-en");

/// Agreement, negation, questions, and changes of word order.
const SAMPLES: &str = "je suis étudiant
quel mois
les petites filles sont heureuses
la vieille maison blanche est belle
nous ne mangeons jamais de viande
il n'a rien vu
où est-ce qu'elle habite ?
parles-tu anglais ?
pourquoi Marie n'est-elle pas venue ?
combien de livres as-tu achetés ?
je ne la vois plus
la voiture de Paul est plus rapide que le train
elle aime son père et il aime sa mère
il fait froid et les enfants dorment";

fn main() -> ExitCode {
    match run() {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => eprintln!("translate: {error}"),
    }
    ExitCode::FAILURE
}

fn run() -> Result<bool, Box<dyn Error>> {
    let arguments = std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned());
    let mut text = arguments.collect::<Vec<_>>().join("\n");
    if text.is_empty() && !io::stdin().is_terminal() {
        text = io::read_to_string(io::stdin())?;
    }
    translate(if text.is_empty() { SAMPLES } else { &text }, &mut io::stdout().lock())
}

/// Translates each line of `text` that is not blank. Returns whether all could be translated.
fn translate(text: &str, out: &mut dyn Write) -> Result<bool, Box<dyn Error>> {
    let tokenizer = Tokenizer::from_dir(MODEL)?;
    let engine = Engine::open(MODEL)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).min(60);

    let (start, mut tokens, mut failed) = (Instant::now(), 0, 0);
    for line in &lines {
        let translated = encode(&tokenizer, line).and_then(|ids| Ok(engine.generate(&ids)?));
        match translated {
            Ok(found) => {
                tokens += found.tokens().len();
                writeln!(out, "{line:width$}  ->  {}", tokenizer.decode(found.tokens()))?;
            }
            Err(error) => {
                failed += 1;
                writeln!(out, "{line:width$}  ..  not translated: {error}")?;
            }
        }
    }
    let (elapsed, isa) = (start.elapsed(), engine.model().isa().name());
    let rate = tokens as f64 / elapsed.as_secs_f64();
    writeln!(out, "\n{tokens} tokens in {elapsed:.1?} on {isa}: {rate:.0} tokens per second")?;
    writeln!(out, "{} bytes planned", engine.report().bytes)?;
    Ok(failed == 0)
}

/// The ids of a sentence, if the model knows all of its words.
fn encode(tokenizer: &Tokenizer, line: &str) -> Result<Vec<u32>, Box<dyn Error>> {
    // The model was trained on lower case and plain spaces.
    let line = line.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    let (encoded, spans) = tokenizer.encode_text_with_spans(&line, &Direction::default())?;
    if let Some(at) = encoded.ids.iter().position(|&id| tokenizer.is_unknown(id)) {
        // The characters before and after it may be parts of other words.
        let start = line[..spans[at].start].trim_end_matches(char::is_alphanumeric).len();
        let after = line[spans[at].end..].trim_start_matches(char::is_alphanumeric).len();
        let word = &line[start..line.len() - after];
        let near = tokenizer.nearest_words(word).join(", ");
        let near = if near.is_empty() { near } else { format!("; near it: {near}") };
        return Err(format!("the model does not know the word \"{word}\"{near}").into());
    }
    if encoded.truncated {
        let most = tokenizer.max_tokens().unwrap_or(usize::MAX);
        return Err(format!("it has {} tokens, the model takes {most}", encoded.tokens).into());
    }
    Ok(encoded.ids)
}
