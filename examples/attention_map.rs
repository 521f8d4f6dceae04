//! Draws attention weights: heatmaps of every layer and head, and the word alignment from cross-attention.
//!
//! ```sh
//! cargo run --release -p simdformer-pictures --example attention_map -- "les petites filles sont heureuses"
//! cargo run --release -p simdformer-pictures --example attention_map -- --model DIR "12 5 88 0"   # ids, any checkpoint
//! ```
//!
//! Writes `encoder`, `decoder` and `cross`, each as `.svg` and `.png`, to `target/attention`.

#[path = "support/heatmap.rs"]
pub(crate) mod heatmap;
#[path = "support/vocabulary.rs"]
mod vocabulary;

use clap::Parser;
use heatmap::{Page, Panel};
use simdformer::config::Side;
use simdformer::search::Hooks;
use simdformer::trace::{Block, Place, Probe, Stage, View};
use simdformer::{Event, Limits, Model, Session, Source, SourceId};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vocabulary::Vocabulary;

/// The longest translation where neither the checkpoint nor its positions set a limit.
const LONGEST: usize = 128;

/// Draws what the heads look at
///
/// SENTENCE is French, translated by the model in models/fr-en. For any other checkpoint it is token ids between spaces, or
/// words if DIR has a source_vocab.json as models/fr-en. Labels come from vocab.json, if there is one.
#[derive(Parser)]
#[command(name = "attention_map", no_binary_name = true)]
pub(crate) struct Options {
    /// The checkpoint
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("models/fr-en"))]
    model: PathBuf,
    /// Where the pictures go
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("target/attention"))]
    out: PathBuf,
    /// The decoder layer of the alignment, from 0 (the last)
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Its heads, from 0 (all)
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    heads: Option<Vec<usize>>,
    #[arg(required = true)]
    sentence: Vec<String>,
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

/// The words of ids, if known.
struct Words(BTreeMap<u32, String>);

impl Words {
    /// Reads `vocab.json` of `folder`, if it exists.
    fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let Ok(text) = std::fs::read_to_string(folder.join("vocab.json")) else {
            return Ok(Self(BTreeMap::new()));
        };
        let ids: BTreeMap<String, u32> =
            serde_json::from_str(&text).map_err(|error| format!("vocab.json: {error}"))?;
        Ok(Self(ids.into_iter().map(|(word, id)| (id, word)).collect()))
    }

    fn of(&self, ids: &[u32]) -> Vec<String> {
        ids.iter().map(|id| self.0.get(id).cloned().unwrap_or_else(|| id.to_string())).collect()
    }
}

/// Stores the attention weights of every head.
#[derive(Default)]
struct Heads(Vec<(Place, Vec<Vec<f32>>)>);

impl Probe for Heads {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Weights
    }

    fn look(&mut self, view: &View<'_>) {
        let rows: Vec<Vec<f32>> = view.iter().map(<[f32]>::to_vec).collect();
        // A long prefix is computed in several passes; later passes have more keys.
        match self.0.iter_mut().find(|(place, _)| *place == view.place) {
            Some((_, all)) => all.extend(rows),
            None => self.0.push((view.place, rows)),
        }
    }
}

impl Heads {
    /// Panels of one kind of attention, layer by layer; each row has `keys` values.
    fn panels(&self, side: Side, block: Block, keys: usize) -> Vec<Panel> {
        let here = |place: &Place| (place.side, place.block) == (side, Some(block));
        self.0
            .iter()
            .filter(|(place, _)| here(place))
            .map(|(place, rows)| {
                let (layer, head) = (place.layer.unwrap_or(0), place.head.unwrap_or(0));
                let mut weights = rows.clone();
                weights.iter_mut().for_each(|row| row.resize(keys, 0.0));
                Panel { title: format!("layer {layer}, head {head}"), weights }
            })
            .collect()
    }
}

/// Translates, draws and aligns; returns the text to print.
pub(crate) fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let sentence = options.sentence.join(" ");
    let model = Model::open(&options.model)?;
    let config = model.config();
    let words = Words::read(&options.model)?;
    let vocabulary = if options.model.join("source_vocab.json").is_file() {
        Some(Vocabulary::read(&options.model)?)
    } else {
        None
    };
    let ids = || sentence.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    let source: Vec<u32> = match (&vocabulary, ids()) {
        (_, Ok(ids)) => ids,
        (Some(vocabulary), _) => vocabulary.encode(&sentence)?,
        (None, Err(_)) => return Err("this checkpoint takes token ids between spaces".into()),
    };

    let wanted = config.search_options();
    let decoder = config.decoder.ok_or("this model only encodes")?;
    let positions = decoder.max_positions.unwrap_or(usize::MAX);
    let target = wanted.max_length.unwrap_or(LONGEST).min(positions);
    let limits = Limits { beams: wanted.sequences(), ..Limits::new(1, source.len(), target) };
    let mut session = Session::new(&model, limits)?;
    let search = session.search_options();
    let mut best: Vec<u32> = Vec::new();
    session.generate(&[Source::new(&source)], &search, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event
            && let Some(hypothesis) = done.hypotheses().next()
        {
            best.extend_from_slice(hypothesis.tokens);
        }
    })?;
    let start = config.tokens.decoder_start.ok_or("the checkpoint has no decoder start token")?;
    // The decoder input for `best`.
    let mut read = vec![start];
    read.extend_from_slice(&best);
    read.pop();

    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut heads = Heads::default();
    let mut sentences = [SourceId::default()];
    session.traced(&mut heads, &mut scratch)?.encode(&[&source], &mut sentences)?;
    let row = session.start(sentences[0])?;
    session.traced(&mut heads, &mut scratch)?.prefill(row, &read, None)?;
    session.release(row)?;

    let (from, input, output) = (words.of(&source), words.of(&read), words.of(&best));
    let page = |title: &str, side, block, queries: &[String], keys: &[String]| Page {
        title: title.to_owned(),
        queries: queries.to_vec(),
        keys: keys.to_vec(),
        panels: heads.panels(side, block, keys.len()),
    };
    let pages = [
        ("encoder", page("Encoder self-attention", Side::Encoder, Block::Own, &from, &from)),
        ("decoder", page("Decoder self-attention", Side::Decoder, Block::Own, &input, &input)),
        ("cross", page("Cross-attention", Side::Decoder, Block::Cross, &output, &from)),
    ];
    let mut text = String::new();
    std::fs::create_dir_all(&options.out)?;
    for (name, page) in &pages {
        let path = options.out.join(name);
        std::fs::write(path.with_extension("svg"), page.svg())?;
        std::fs::write(path.with_extension("png"), page.png()?)?;
        writeln!(text, "{}.svg, .png", path.display())?;
    }

    let layer = options.layer.unwrap_or(decoder.layers - 1);
    let chosen = options.heads.clone().unwrap_or_else(|| (0..decoder.heads).collect());
    let mut aligned = vec![0.0; read.len() * source.len()];
    session.align(sentences[0], &read, (layer, &chosen), &mut scratch, &mut aligned)?;
    let mean = Panel {
        title: format!("cross-attention of layer {layer}, mean of heads {chosen:?}"),
        weights: aligned.chunks(source.len()).map(<[f32]>::to_vec).collect(),
    };
    let numbered: Vec<String> = from
        .iter()
        .enumerate()
        .map(|(j, word)| format!("{j} {}", heatmap::isolated(&heatmap::cut(word, 24))))
        .collect();
    writeln!(text, "\n{}", numbered.join("  "))?;
    match &vocabulary {
        Some(vocabulary) => writeln!(text, "-> {}\n", vocabulary.decode(&best))?,
        None => writeln!(text, "-> {}\n", output.join(" "))?,
    }
    text.push_str(&alignment(&from, &output, &mean.weights));
    writeln!(text, "\n{}", pages[2].1.terminal(&mean))?;
    Ok(text)
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
