//! Sentences per second of the translator, beside the decoding loop alone on the same ids.
//!
//! ```sh
//! cargo bench -p simdformer-text --bench translator              # the demo model
//! cargo bench -p simdformer-text --bench translator -- DIR FILE  # a checkpoint, and the lines of a file
//! ```
//!
//! Both run 32 sentences at a time. The loop gets the ids of all sentences at once, in their order; the translator also
//! encodes, sorts and decodes text. The last two columns are shares of the loop's throughput: of the whole, and without the
//! time that encoding and decoding the text takes alone.

use simdformer::search::Hooks;
use simdformer::{Engine, Event, Limits, Model, Session, Source};
use simdformer_text::Error;
use simdformer_text::translator::{TranslateOptions, Translator};
use simdformer_text::{Direction, Tokenizer};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 9;
const SLOTS: usize = 32;

/// The demo model and its sentences.
fn demo() -> Result<(PathBuf, Vec<String>), Box<dyn std::error::Error>> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en");
    let lines = std::fs::read_to_string(place.join("held_out.jsonl"))?;
    let source = |line: &str| -> Result<String, Box<dyn std::error::Error>> {
        let value: serde_json::Value = serde_json::from_str(line)?;
        Ok(value["source"].as_str().unwrap_or_default().to_owned())
    };
    Ok((place, lines.lines().map(source).collect::<Result<_, _>>()?))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (place, lines) = match &arguments[..] {
        [place, file] => {
            let text = std::fs::read_to_string(file)?;
            (PathBuf::from(place), text.lines().map(str::to_owned).collect())
        }
        _ => demo()?,
    };
    let (model, tokenizer) =
        (Arc::new(Model::open(&place)?), Arc::new(Tokenizer::from_dir(&place)?));
    let mut options = TranslateOptions::new(model.config());
    options.search.scores = false;
    let encode = |line: &String| tokenizer.encode(line, &Direction::default());
    let encoded = lines.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
    let sources: Vec<Source<'_>> = encoded.iter().map(|one| Source::new(&one.ids)).collect();
    let longest = encoded.iter().map(|one| one.ids.len()).max().unwrap_or(1);
    let translator = Translator::new(
        Engine::builder(Arc::clone(&model)).slots(SLOTS).build()?,
        Arc::clone(&tokenizer),
        options,
    )?;
    let search = translator.search_options().clone();
    let target = search.max_length.unwrap_or(256);
    let mut session = Session::new(&model, Limits::new(SLOTS, longest, target))?;
    let (mut shares, mut of_ids) = (Vec::new(), Vec::new());
    let mut targets: Vec<Vec<u32>> = Vec::new();
    let mut out = io::stdout().lock();
    writeln!(out, "{} sentences, a loop and a translator in sentences per second", lines.len())?;
    for round in 0..ROUNDS {
        let start = Instant::now();
        let mut tokens = [0usize; 2];
        targets.clear();
        session.generate(&sources, &search, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                tokens[0] += done.hypotheses().next().map_or(0, |best| best.tokens.len());
            }
        })?;
        let alone = start.elapsed().as_secs_f64();
        let start = Instant::now();
        translator.stream_sentences(lines.iter().map(Ok::<_, Error>), |translation| {
            tokens[1] += translation.tokens.len();
            targets.push(translation.tokens);
            Ok(())
        })?;
        let whole = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let mut bytes = 0;
        for (line, one) in lines.iter().zip(&targets) {
            bytes += tokenizer.encode(line, &Direction::default())?.ids.len();
            bytes += tokenizer.decode(one).len();
        }
        let text = start.elapsed().as_secs_f64();
        std::hint::black_box(bytes);
        if tokens[0] != tokens[1] {
            return Err(format!("expected {} tokens, found {}", tokens[0], tokens[1]).into());
        }
        let rate = |seconds: f64| lines.len() as f64 / seconds;
        let (share, of) = (alone / whole, alone / (whole - text));
        // The first round plans the session and warms the caches.
        if round > 0 {
            writeln!(out, "{:10.0} {:10.0} {share:8.3} {of:8.3}", rate(alone), rate(whole))?;
            shares.push(share);
            of_ids.push(of);
        }
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    writeln!(out, "median {:.3} {:.3}", median(shares), median(of_ids))?;
    Ok(())
}
