//! Draws attention weights: heatmaps of every layer and head, and the word alignment from cross-attention.
//!
//! ```sh
//! cargo run --release -p simdformer-pictures --example attention_map -- "les petites filles sont heureuses"
//! cargo run --release -p simdformer-pictures --example attention_map -- "elle dort" "les petites filles sont heureuses"
//! cargo run --release -p simdformer-pictures --example attention_map -- --heads 0,2 "les petites filles sont heureuses"
//! cargo run --release -p simdformer-pictures --example attention_map -- --model DIR "12 5 88 0"   # ids, any checkpoint
//! cargo run --release -p simdformer-pictures --example attention_map -- --model models/walkthrough \
//!     "$(seq 800 | awk '{ print $1 * $1 % 5 }' | tr '\n' ' ')"   # a map of 800 x 800
//! ```
//!
//! Writes `encoder`, `decoder` and `cross`, each as `.svg` and `.png`, to `target/attention`; with several sentences
//! these three for each, with columns for the padding of a batch, which are empty.

mod heatmap;
#[cfg(test)]
mod tests;

use clap::Parser;
use heatmap::{LARGE, Page, Panel};
use simdformer::config::Side;
use simdformer::trace::{Block, Place, Probe, Stage, View};
use simdformer::{Limits, Model, Session, SourceId};
use simdformer_testing::sentences::{Words, decoder_input, source_end, translate};
use simdformer_tokenize::{Direction, Tokenizer};
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The longest translation where neither the checkpoint nor its positions set a limit.
const LONGEST: usize = 128;

/// Draws what the heads look at
///
/// SENTENCE is French, translated by the model in models/fr-en. For any other checkpoint it is token ids between spaces, or
/// words if DIR has a vocab.json. An encoder alone (BERT) has one page.
#[derive(Parser)]
#[command(name = "attention_map", no_binary_name = true)]
struct Options {
    /// The checkpoint
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("models/fr-en"))]
    model: PathBuf,
    /// Where the pictures go
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("target/attention"))]
    out: PathBuf,
    /// The layer of the alignment, from 0 (the last)
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Overlay these heads, from 0, a color for each; the alignment is their mean (a map for each head, the mean of all)
    #[arg(long, value_name = "N,N,...|all", value_parser = chosen)]
    heads: Option<Chosen>,
    /// One argument for each sentence
    #[arg(required = true)]
    sentence: Vec<String>,
}

/// The heads of the command line.
#[derive(Clone, Debug)]
enum Chosen {
    All,
    These(Vec<usize>),
}

fn chosen(text: &str) -> Result<Chosen, String> {
    if text == "all" {
        return Ok(Chosen::All);
    }
    let heads = text.split(',').map(str::parse).collect::<Result<_, _>>();
    heads.map(Chosen::These).map_err(|_| "expected numbers between commas, or `all`".to_owned())
}

impl Chosen {
    fn of(&self, heads: usize) -> Vec<usize> {
        match self {
            Self::All => (0..heads).collect(),
            Self::These(heads) => heads.clone(),
        }
    }
}

/// The root of the repository; the manifest is that of `examples/pictures`.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(""))
}

fn main() -> ExitCode {
    match run(&Options::parse_from(std::env::args_os().skip(1))) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("attention_map: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The attention weights of one head for one sentence.
struct Map {
    place: Place,
    sentence: u32,
    rows: Vec<Vec<f32>>,
}

/// Stores the attention weights of every head.
#[derive(Default)]
struct Heads(Vec<Map>);

impl Probe for Heads {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Weights
    }

    fn look(&mut self, view: &View<'_>) {
        let rows: Vec<Vec<f32>> = view.iter().map(<[f32]>::to_vec).collect();
        let here = |map: &&mut Map| (map.place, map.sentence) == (view.place, view.sentence);
        // A long prefix is computed in several passes; later passes have more keys.
        match self.0.iter_mut().find(here) {
            Some(map) => map.rows.extend(rows),
            None => self.0.push(Map { place: view.place, sentence: view.sentence, rows }),
        }
    }
}

impl Heads {
    /// The maps of one kind of attention and one sentence, layer by layer and head by head; each row has `keys`
    /// values.
    fn maps(
        &self,
        kind: (Side, Block),
        sentence: usize,
        keys: usize,
    ) -> Vec<(Place, Vec<Vec<f32>>)> {
        let of_kind = |map: &&Map| {
            (map.place.side, map.place.block) == (kind.0, Some(kind.1))
                && map.sentence as usize == sentence
        };
        let padded = |map: &Map| {
            let mut rows = map.rows.clone();
            rows.iter_mut().for_each(|row| row.resize(keys, 0.0));
            (map.place, rows)
        };
        self.0.iter().filter(of_kind).map(padded).collect()
    }
}

/// The panels of some maps: one for each, or one for each layer with the chosen heads overlaid.
fn panels(maps: Vec<(Place, Vec<Vec<f32>>)>, overlaid: &[usize]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for (place, rows) in maps {
        let (layer, head) = (place.layer.unwrap_or(0), place.head.unwrap_or(0));
        if overlaid.is_empty() {
            panels.push(Panel { title: format!("layer {layer}, head {head}"), maps: vec![rows] });
        } else if overlaid.contains(&head) {
            let title = format!("layer {layer}");
            match panels.iter_mut().find(|panel| panel.title == title) {
                Some(panel) => panel.maps.push(rows),
                None => panels.push(Panel { title, maps: vec![rows] }),
            }
        }
    }
    panels
}

/// A sentence, and what the decoder reads and writes for it, if there is one.
struct Sentence {
    source: Vec<u32>,
    read: Vec<u32>,
    best: Vec<u32>,
}

impl Sentence {
    fn new(
        text: &str,
        model: &Model,
        (words, typed): (&Words, Option<&Tokenizer>),
    ) -> Result<Self, Box<dyn Error>> {
        let are_ids = text.split_whitespace().all(|word| word.parse::<u32>().is_ok());
        let source = match typed {
            Some(typed) if !are_ids => known_ids(typed, text)?,
            _ => words.encode(Side::Encoder, text, source_end(model, words))?,
        };
        if model.config().decoder.is_none() {
            return Ok(Self { source, read: Vec::new(), best: Vec::new() });
        }
        let best = translate(model, &source, LONGEST)?;
        Ok(Self { read: decoder_input(model, &best)?, source, best })
    }
}

/// The ids of a sentence, in lower case as the demo model was trained.
fn known_ids(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Box<dyn Error>> {
    let text = text.to_lowercase();
    let (encoded, spans) = tokenizer.encode_text_with_spans(&text, &Direction::default())?;
    let unknown = encoded.ids.iter().position(|&id| tokenizer.is_unknown(id));
    match unknown {
        Some(at) => {
            Err(format!("the model does not know the word \"{}\"", &text[spans[at].clone()]).into())
        }
        None => Ok(encoded.ids),
    }
}

/// Computes the weights of all sentences in one batch.
fn trace(
    session: &mut Session<'_>,
    sentences: &[Sentence],
    scratch: &mut [f32],
) -> Result<(Heads, Vec<SourceId>), Box<dyn Error>> {
    let mut heads = Heads::default();
    let sources: Vec<&[u32]> = sentences.iter().map(|one| &one.source[..]).collect();
    if session.model().config().decoder.is_none() {
        session.traced(&mut heads, scratch)?.encoder_output(&sources)?;
        return Ok((heads, Vec::new()));
    }
    let mut slots = vec![SourceId::default(); sentences.len()];
    session.traced(&mut heads, scratch)?.encode(&sources, &mut slots)?;
    for (&slot, sentence) in slots.iter().zip(sentences) {
        let row = session.start(slot)?;
        session.traced(&mut heads, scratch)?.prefill(row, &sentence.read, None)?;
        session.release(row)?;
    }
    // The maps are found by slot.
    if let Some(other) = (0..slots.len()).find(|&i| slots[i].slot() as usize != i) {
        return Err(format!("sentence {other} is in slot {}", slots[other].slot()).into());
    }
    Ok((heads, slots))
}

/// Translates, draws and aligns; returns the text to print.
fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let model = Model::open(&options.model)?;
    let config = model.config();
    if config.bins.is_some() {
        return Err("the encoder of this model reads features, not tokens".into());
    }
    let words = Words::from_folder(&options.model)?;
    // Typed text is for models whose source words are among those of `vocab.json`.
    let typed = Tokenizer::from_dir(&options.model).ok();
    let of = |text: &String| Sentence::new(text, &model, (&words, typed.as_ref()));
    let sentences: Vec<Sentence> = options.sentence.iter().map(of).collect::<Result<_, _>>()?;

    let longest = |of: &dyn Fn(&Sentence) -> usize| sentences.iter().map(of).max().unwrap_or(0);
    let (sources, targets) = (longest(&|one| one.source.len()), longest(&|one| one.read.len()));
    let mut session = Session::new(&model, Limits::new(sentences.len(), sources, targets))?;
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let (heads, slots) = trace(&mut session, &sentences, &mut scratch)?;

    let side = if config.decoder.is_some() { Side::Decoder } else { Side::Encoder };
    let stack = config.stack(side).ok_or("the model has no layers")?;
    let layer = options.layer.unwrap_or(stack.layers - 1);
    let mean_of = options.heads.clone().unwrap_or(Chosen::All).of(stack.heads);
    let mut text = String::new();
    std::fs::create_dir_all(&options.out)?;
    for (i, sentence) in sentences.iter().enumerate() {
        let Sentence { source, read, best } = sentence;
        let aligned = if config.decoder.is_some() {
            let mut aligned = vec![0.0; read.len() * source.len()];
            session.align(slots[i], read, (layer, &mean_of), &mut scratch, &mut aligned)?;
            aligned.chunks(source.len()).map(<[f32]>::to_vec).collect()
        } else {
            mean(&heads, i, source.len(), (layer, &mean_of))?
        };
        let from = words.text(Side::Encoder, source);
        let [mut input, output] = [read, best].map(|ids| words.text(Side::Decoder, ids));
        // Its name alone, as `<pad>`, does not say what it is.
        if let Some(start) = input.first_mut() {
            start.push_str(" (start)");
        }
        let page = |title: &str, kind: (Side, Block), queries: &[String], keys: &[String]| {
            let (own, most) = match kind {
                (Side::Decoder, Block::Own) => (Side::Decoder, targets),
                _ => (Side::Encoder, sources),
            };
            let count = config.stack(kind.0).map_or(0, |stack| stack.heads);
            let overlaid = options.heads.as_ref().map_or(Vec::new(), |heads| heads.of(count));
            let pad = words.pad(own).map_or("<pad>".to_owned(), |id| words.label(own, id));
            let mut padded = keys.to_vec();
            padded.resize(most, pad);
            Page {
                title: title.to_owned(),
                queries: queries.to_vec(),
                padding: most - keys.len(),
                panels: panels(heads.maps(kind, i, most), &overlaid),
                keys: padded,
                overlaid,
            }
        };
        let (own, cross) = (Block::Own, Block::Cross);
        let mut pages =
            vec![("encoder", page("Encoder self-attention", (Side::Encoder, own), &from, &from))];
        if config.decoder.is_some() {
            pages.extend([
                ("decoder", page("Decoder self-attention", (Side::Decoder, own), &input, &input)),
                ("cross", page("Cross-attention", (Side::Decoder, cross), &output, &from)),
            ]);
        }
        for (name, page) in &pages {
            let number = if sentences.len() > 1 { format!("-{}", i + 1) } else { String::new() };
            let path = options.out.join(format!("{name}{number}"));
            simdformer::atomic_file::write(path.with_extension("svg"), page.svg())?;
            simdformer::atomic_file::write(path.with_extension("png"), page.png()?)?;
            writeln!(text, "{}.svg, .png", path.display())?;
        }
        if source.len().max(read.len()) > LARGE {
            continue;
        }
        let numbered: Vec<String> = from
            .iter()
            .enumerate()
            .map(|(j, word)| format!("{j} {}", heatmap::isolated(&heatmap::cut(word, 24))))
            .collect();
        writeln!(text, "\n{}", numbered.join("  "))?;
        let kind = if config.decoder.is_some() {
            match &typed {
                Some(typed) => writeln!(text, "-> {}\n", typed.decode(best))?,
                None => writeln!(text, "-> {}\n", output.join(" "))?,
            }
            text.push_str(&alignment(&from, &output, &aligned));
            "cross-attention"
        } else {
            "self-attention"
        };
        let title = format!("{kind} of layer {layer}, mean of heads {mean_of:?}");
        let panel = Panel { title, maps: vec![aligned] };
        let shown = pages.last().map(|(_, page)| page.terminal(&panel)).unwrap_or_default();
        writeln!(text, "\n{shown}")?;
    }
    Ok(text)
}

/// The mean of some heads of a layer of an encoder, `[tokens][tokens]`.
fn mean(
    heads: &Heads,
    sentence: usize,
    tokens: usize,
    (layer, wanted): (usize, &[usize]),
) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let maps = heads.maps((Side::Encoder, Block::Own), sentence, tokens);
    let mut sum = vec![vec![0.0; tokens]; tokens];
    for &head in wanted {
        let here = |place: &Place| (place.layer, place.head) == (Some(layer), Some(head));
        let map = maps.iter().find(|(place, _)| here(place));
        let (_, rows) =
            map.ok_or_else(|| format!("the encoder has no head {head} in layer {layer}"))?;
        for (sum, x) in sum.iter_mut().flatten().zip(rows.iter().flatten()) {
            *sum += x / wanted.len() as f32;
        }
    }
    Ok(sum)
}

/// Aligns each word of the output with the source word that has its largest weight.
fn alignment(from: &[String], output: &[String], weights: &[Vec<f32>]) -> String {
    let labels: Vec<String> = output.iter().map(|word| heatmap::cut(word, 24)).collect();
    let most = labels.iter().map(|label| heatmap::width(label)).max().unwrap_or(0);
    let mut text = String::new();
    for (label, row) in labels.iter().zip(weights) {
        let best = (0..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best });
        let (Some(word), Some(weight)) = (from.get(best), row.get(best)) else { continue };
        let space = " ".repeat(most - heatmap::width(label));
        let word = heatmap::cut(word, 24);
        let _ = writeln!(
            text,
            "  {space}{}  <-  {weight:.2}  {best} {}",
            heatmap::isolated(label),
            heatmap::isolated(&word)
        );
    }
    text
}
