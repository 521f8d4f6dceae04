//! Runs sentences through an encoder-decoder. A probe records every intermediate tensor, and the tensors are printed
//! as sections of text.

use super::masks;
use super::page::{MOST_COLUMNS, Section, four, matrix};
use serde_json::Value;
use simdformer::config::{Config, NormKind, Positions, Side};
use simdformer::trace::{Block, Place, Probe, Stage, View};
use simdformer::{Limits, Model, Session, SourceId};
use simdformer_testing::sentences::{Words, decoder_input, source_end, translate};
use std::error::Error;
use std::path::Path;

const MASKS: &str = include_str!("../../tests/golden/walkthrough/masks.json");
/// The longest translation of a sentence without a given target.
const LONGEST: usize = 24;
/// A vocabulary with more words is not listed.
const MOST_WORDS: usize = 20;

/// The sentences of the page: those of the command line, or those in the model's directory.
pub(crate) struct Asked<'a> {
    pub(crate) sources: &'a [String],
    pub(crate) targets: &'a [String],
}

/// The vocabularies and the batch, without padding.
pub(crate) struct Batch {
    words: Words,
    pub(crate) sources: Vec<Vec<u32>>,
    /// What the decoder reads: the start token, then the output without its last token.
    targets: Vec<Vec<u32>>,
    outputs: Vec<Vec<u32>>,
    /// Whether the outputs are given, and not the model's own.
    given: bool,
    /// Whether the sentences are those in the directory.
    kept: bool,
}

fn ids(value: &Value, what: &str) -> Result<Vec<u32>, Box<dyn Error>> {
    serde_json::from_value(value.clone()).map_err(|error| format!("{what}: {error}").into())
}

impl Batch {
    pub(crate) fn read(
        folder: &Path,
        model: &Model,
        asked: &Asked<'_>,
    ) -> Result<Self, Box<dyn Error>> {
        if model.config().bins.is_some() {
            return Err("the encoder of this model reads features, not tokens".into());
        }
        if model.config().decoder.is_none() {
            return Err("this model only encodes; the example attention_map draws it".into());
        }
        let words = Words::from_folder(folder)?;
        let (mut sources, mut outputs) = (Vec::new(), Vec::new());
        let kept = asked.sources.is_empty();
        if kept {
            let text = std::fs::read_to_string(folder.join("sentences.jsonl")).map_err(
                |_| "this directory has no sentences.jsonl: expected --source, with a sentence of words or ids",
            )?;
            for line in text.lines() {
                let pair: Value = serde_json::from_str(line)?;
                sources.push(ids(&pair["source_ids"], "source_ids")?);
                outputs.push(ids(&pair["target_ids"], "target_ids")?);
            }
        }
        let end = source_end(model, &words);
        for text in asked.sources {
            sources.push(words.encode(Side::Encoder, text, end)?);
        }
        let end = model.config().tokens.eos.first().copied();
        for text in asked.targets {
            outputs.push(words.encode(Side::Decoder, text, end)?);
        }
        let given = !outputs.is_empty();
        if !given {
            for source in &sources {
                outputs.push(translate(model, source, LONGEST)?);
            }
        }
        if sources.len() != outputs.len() {
            let (expected, found) = (sources.len(), outputs.len());
            return Err(format!(
                "expected a --target for each of {expected} sources, found {found}"
            )
            .into());
        }
        let targets =
            outputs.iter().map(|output| decoder_input(model, output)).collect::<Result<_, _>>()?;
        Ok(Self { words, sources, targets, outputs, given, kept })
    }

    pub(crate) fn text(&self, side: Side, ids: &[u32]) -> Vec<String> {
        self.words.text(side, ids)
    }
}

/// One recorded view.
struct Seen {
    stage: Stage,
    place: Place,
    sentence: u32,
    from_source: bool,
    position: usize,
    rows: Vec<Vec<f32>>,
}

/// Records every view.
#[derive(Default)]
struct Recorder(Vec<Seen>);

impl Probe for Recorder {
    fn look(&mut self, view: &View<'_>) {
        let &View { stage, place, sentence, hypothesis: row, position, .. } = view;
        let rows = view.iter().map(<[f32]>::to_vec).collect();
        self.0.push(Seen { stage, place, sentence, from_source: row.is_none(), position, rows });
    }
}

/// The whole walkthrough of the model in `folder`.
pub(crate) fn sections(folder: &Path, asked: &Asked<'_>) -> Result<Vec<Section>, Box<dyn Error>> {
    let model = Model::open(folder)?;
    let batch = Batch::read(folder, &model, asked)?;
    let seen = run(&model, &batch)?;
    let lengths: Vec<(usize, usize)> =
        batch.sources.iter().zip(&batch.targets).map(|(s, t)| (s.len(), t.len())).collect();
    let config = model.config();
    let mut sections = vec![
        vocabularies(config, &batch),
        model_section(config, &batch),
        batch_section(config, &batch),
    ];
    sections.push(masks::masks(&lengths));
    if batch.kept {
        sections.push(fill()?);
    }
    sections.extend(stages(config, &batch, &seen));
    sections.push(prediction(&batch, &seen));
    Ok(sections)
}

/// Encodes all sentences and their targets, with the probe.
fn run(model: &Model, batch: &Batch) -> Result<Vec<Seen>, Box<dyn Error>> {
    let longest = |rows: &[Vec<u32>]| rows.iter().map(Vec::len).max().unwrap_or(1);
    let (sources, targets) = (longest(&batch.sources), longest(&batch.targets));
    let mut session = Session::new(model, Limits::new(batch.sources.len(), sources, targets))?;
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut sentences = vec![SourceId::default(); batch.sources.len()];
    let mut keep = Recorder::default();
    let borrowed: Vec<&[u32]> = batch.sources.iter().map(Vec::as_slice).collect();
    session.traced(&mut keep, &mut scratch)?.encode(&borrowed, &mut sentences)?;
    for (&sentence, target) in sentences.iter().zip(&batch.targets) {
        let row = session.start(sentence)?;
        let mut watched = session.traced(&mut keep, &mut scratch)?;
        watched.prefill(row, target, Some(&mut |_, _| {}))?;
    }
    // Free slots are used in order, so the slot of a sentence is its index; fail if that changes.
    for (i, sentence) in sentences.iter().enumerate() {
        if sentence.slot() as usize != i {
            return Err(format!("sentence {i} is in slot {}", sentence.slot()).into());
        }
    }
    Ok(keep.0)
}

fn vocabularies(config: &Config, batch: &Batch) -> Section {
    let note =
        "The words of the ids. The vocabulary of a published model has thousands of word pieces.";
    let mut section = Section::new("vocabulary", "The vocabularies", note);
    let source = (Side::Encoder, "source", config.source_vocab, &batch.sources);
    let target = (Side::Decoder, "target", config.target_vocab, &batch.outputs);
    for (side, title, count, ids) in [source, target] {
        let mut shown: Vec<u32> = (0..count as u32).collect();
        let mut which = "";
        if count > MOST_WORDS {
            shown = ids.concat();
            shown.sort_unstable();
            shown.dedup();
            which = ", of which these occur";
        }
        section.line(format!("{title} [{count} words]{which}"));
        for id in shown {
            section.line(format!("    {id}  {}", batch.words.label(side, id)));
        }
    }
    section
}

fn model_section(config: &Config, batch: &Batch) -> Section {
    let note = match batch.kept {
        true => {
            "Trained on the sentences of the batch, so its predictions are right. \
             models/walkthrough/README.md"
        }
        false => "The architecture, as its config.json describes it.",
    };
    let mut section = Section::new("model", "The model", note);
    section.line(format!("    d_model {}", config.d_model));
    for side in [Side::Encoder, Side::Decoder] {
        let (Some(stack), dim) = (config.stack(side), config.head_dim(side)) else { continue };
        let layers = if stack.layers == 1 { "layer" } else { "layers" };
        let last = if stack.final_norm { ", a norm after the last layer" } else { "" };
        section.line(format!(
            "    {side:?}: {} {layers}, {} heads of {dim}, feed-forward {}{last}",
            stack.layers, stack.heads, stack.ffn_dim
        ));
    }
    section.line(format!("    norm {:?}, activation {:?}", config.norm, config.activation));
    section.line(format!("    positions {:?}", config.positions));
    section
}

fn batch_section(config: &Config, batch: &Batch) -> Section {
    let note = "Text and ids. The textbook pads all sentences to one length; the library lays sentences \
                end to end and computes no padding.";
    let mut section = Section::new("batch", "The batch", note);
    let output = if batch.given { "true output" } else { "output, as the model translates" };
    for (side, title, ids) in [
        (Side::Encoder, "source", &batch.sources),
        (Side::Decoder, "target, as the decoder reads it", &batch.targets),
        (Side::Decoder, output, &batch.outputs),
    ] {
        section.line(title);
        for (i, ids) in ids.iter().enumerate() {
            let text = batch.text(side, ids).join(" ");
            section.line(format!("    {i}  {text:<28} {ids:?}"));
        }
    }
    for (side, title, ids) in [
        (Side::Encoder, "source, padded", &batch.sources),
        (Side::Decoder, "target, padded", &batch.targets),
    ] {
        let Some(pad) = batch.words.pad(side).or(config.tokens.pad) else { continue };
        let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
        section.line(format!("{title} with {pad}"));
        for (i, ids) in ids.iter().enumerate() {
            let mut padded = ids.clone();
            padded.resize(longest, pad);
            section.line(format!("    {i}  {padded:?}"));
        }
    }
    section
}

fn fill() -> Result<Section, Box<dyn Error>> {
    let worked: Value = serde_json::from_str(MASKS)?;
    let lengths = |name: &str| -> Result<Vec<usize>, Box<dyn Error>> {
        Ok(ids(&worked[name], name)?.into_iter().map(|x| x as usize).collect())
    };
    let lengths: Vec<(usize, usize)> =
        lengths("source_lengths")?.into_iter().zip(lengths("target_lengths")?).collect();
    let scores: Vec<Vec<Vec<f32>>> =
        serde_json::from_value(worked["worked_softmax"]["scores"].clone())?;
    masks::fill(&lengths, &scores)
}

/// The formula of a stage and the file that computes it.
fn note(stage: Stage, place: Place, config: &Config) -> String {
    let final_norm = config.stack(place.side).is_some_and(|stack| stack.final_norm);
    let after = if final_norm { ", after the norm of the last layer" } else { "" };
    let text = match stage {
        Stage::Embedding if config.embedding_scale == 1.0 => {
            "table[token]. src/model/blocks/embedding.rs"
        }
        Stage::Embedding => "sqrt(d_model) * table[token]. src/model/blocks/embedding.rs",
        Stage::Position => match config.positions {
            Positions::Interleaved => {
                "PE[p, 2k] = sin(p / 10000^(2k/d)), PE[p, 2k+1] = cos(p / 10000^(2k/d)). \
                 kernels/src/position.rs"
            }
            Positions::HalfSplit => {
                "PE[p, k] = sin(p / 10000^(2k/d)), cosines in the second half. kernels/src/position.rs"
            }
            Positions::Learned { .. } => "Row p of a trained table. src/model/positions.rs",
            Positions::None => {
                "None: the scores have a bias for each distance. src/model/relative.rs"
            }
            _ => "Sines in the first half, cosines in the second. kernels/src/position.rs",
        },
        Stage::Input => "embedding + position. kernels/src/embedding/mod.rs",
        Stage::Query => "x W_Q + b, heads side by side. src/model/blocks/exec_context.rs",
        Stage::Key => "x W_K + b, heads side by side. src/model/blocks/exec_context.rs",
        Stage::Value => "x W_V + b, heads side by side. src/model/blocks/exec_context.rs",
        Stage::Scores if config.positions == Positions::None => {
            "Q K^T + bias of the distance, before the mask. kernels/src/attention/flash.rs"
        }
        Stage::Scores => "Q K^T / sqrt(d_k), before the mask. kernels/src/attention/flash.rs",
        Stage::Weights => {
            "softmax(scores, masked): every row sums to 1. kernels/src/attention/flash.rs"
        }
        Stage::Context => "weights V, heads side by side. kernels/src/attention/flash.rs",
        Stage::Projection => {
            "Concat(heads) W_O + b, before the residual is added. src/model/blocks/self_attention.rs"
        }
        Stage::FeedForward => {
            "activation(x W_1 + b_1); with ReLU max(0, x W_1 + b_1). src/model/blocks/feed_forward.rs"
        }
        Stage::Residual => "x + block(x). kernels/src/gemm/epilogue.rs",
        Stage::Norm if config.norm_kind == NormKind::RmsNorm => {
            "x / sqrt(mean(x^2) + eps) * weight. kernels/src/norm/mod.rs"
        }
        Stage::Norm => "(x - mean) / sqrt(variance + eps) * weight + bias. kernels/src/norm/mod.rs",
        Stage::Memory => {
            return format!(
                "The encoder output{after}, which the decoder reads. src/model/encoder.rs"
            );
        }
        Stage::Output => {
            return format!("The decoder's last hidden state{after}. src/model/decoder.rs");
        }
        Stage::Logits => "output W + b, one number per word. src/model/blocks/output.rs",
        Stage::Probabilities => "softmax(logits). kernels/src/softmax/mod.rs",
        _ => "",
    };
    text.to_owned()
}

/// A section for each stage at each place, in the order of the computation.
fn stages(config: &Config, batch: &Batch, seen: &[Seen]) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut done: Vec<(Stage, Place)> = Vec::new();
    for first in seen {
        let key = (first.stage, Place { head: None, ..first.place });
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let (stage, place) = key;
        let side = format!("{:?}", place.side);
        let mut title = side;
        if let Some(layer) = place.layer {
            title += &format!(", layer {layer}");
        }
        if let Some(block) = place.block {
            title += &format!(", {block}");
        }
        // The output of a block whose name is also that of the stage.
        title += &format!(": {stage}");
        let mut section = Section::new(stage.name(), &title, &note(stage, place, config));
        for sentence in 0..batch.sources.len() as u32 {
            let here: Vec<&Seen> = seen
                .iter()
                .filter(|s| (s.stage, Place { head: None, ..s.place }) == key)
                .filter(|s| s.sentence == sentence)
                .collect();
            tensor(batch, sentence, &here, &mut section);
        }
        sections.push(section);
    }
    sections
}

/// The values of one sentence: one matrix, one matrix per head, or rows that were recorded one by one.
fn tensor(batch: &Batch, sentence: u32, seen: &[&Seen], section: &mut Section) {
    let Some(first) = seen.first() else { return };
    let index = sentence as usize;
    let (source, target) = (&batch.sources[index], &batch.targets[index]);
    let side = if first.from_source { Side::Encoder } else { Side::Decoder };
    let all = if first.from_source { source } else { target };
    let columns = first.rows.first().map_or(0, Vec::len);
    let heads = seen.iter().filter(|s| s.place.head.is_some()).count();
    let rows: usize = seen.iter().map(|s| s.rows.len()).sum::<usize>() / heads.max(1);
    let words = batch.text(side, all);
    let text = words.join(" ");
    let of_words = matches!(first.stage, Stage::Logits | Stage::Probabilities);
    let keys = match (first.stage, first.place.block) {
        (Stage::Scores | Stage::Weights, Some(Block::Cross)) => {
            Some(batch.text(Side::Encoder, source))
        }
        (Stage::Scores | Stage::Weights, _) => Some(words.clone()),
        _ if of_words && columns <= MOST_COLUMNS => {
            Some((0..columns as u32).map(|id| batch.words.label(Side::Decoder, id)).collect())
        }
        _ => None,
    };
    let keys = keys.as_deref().map(borrowed);
    let names = borrowed(&words[first.position..]);
    if heads > 0 {
        section.line(format!("sentence {index} [{heads} heads, {rows}, {columns}]  {text}"));
        for part in seen {
            section.line(format!("  head {}", part.place.head.unwrap_or(0)));
            section.lines.extend(matrix(&names, keys.as_deref(), &part.rows));
        }
        return;
    }
    section.line(format!("sentence {index} [{rows}, {columns}]  {text}"));
    let all_rows: Vec<Vec<f32>> = seen.iter().flat_map(|s| s.rows.iter().cloned()).collect();
    if of_words && columns > MOST_COLUMNS {
        section.lines.extend(largest(batch, &names, &all_rows));
    } else {
        section.lines.extend(matrix(&names, keys.as_deref(), &all_rows));
    }
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The five words with the largest values of each row, for large vocabularies.
fn largest(batch: &Batch, names: &[&str], rows: &[Vec<f32>]) -> Vec<String> {
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(name, row): (&&str, &Vec<f32>)| {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let word = |&id: &usize| {
            format!("{} {}", batch.words.label(Side::Decoder, id as u32), four(row[id]))
        };
        let words: Vec<String> = order.iter().take(5).map(word).collect();
        format!("    {name:width$}  {}", words.join("  "))
    };
    let mut lines = vec!["    the five largest of each row".to_owned()];
    lines.extend(names.iter().zip(rows).map(line));
    lines
}

/// The most probable word after each token, and whether it is the word of the output.
fn prediction(batch: &Batch, seen: &[Seen]) -> Section {
    let [note, title, verdicts] = if batch.given {
        ["The most probable word at each position, beside the true output.", "true", "right wrong"]
    } else {
        [
            "The most probable word at each position, beside the output of the search.",
            "search",
            "same other",
        ]
    };
    let (yes, no) = verdicts.split_once(' ').unwrap_or((verdicts, ""));
    let mut section = Section::new("prediction", "Prediction", note);
    let (mut right, mut all) = (0, 0);
    for (i, (target, outputs)) in batch.targets.iter().zip(&batch.outputs).enumerate() {
        section.line(format!("sentence {i}"));
        section.line(format!("    {:<10}{:<12}{title:<12}", "after", "predicted"));
        let rows = seen
            .iter()
            .filter(|s| s.stage == Stage::Probabilities && s.sentence as usize == i)
            .flat_map(|s| &s.rows);
        for ((row, &token), &output) in rows.zip(target).zip(outputs) {
            let best = (0..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best });
            let verdict = if best == output as usize { yes } else { no };
            right += usize::from(best == output as usize);
            all += 1;
            let [after, found, expected] =
                [token, best as u32, output].map(|id| batch.words.label(Side::Decoder, id));
            section.line(format!(
                "    {after:<10}{found:<12}{expected:<12}{verdict}  p = {:.4}",
                row[best]
            ));
        }
    }
    section.line(format!("{right} of {all} {yes}"));
    section
}
