//! Runs two sentences through a model of six dimensions. A probe records every intermediate tensor, and the tensors
//! are printed as sections of text.

use super::masks;
use super::page::{Section, matrix};
use serde_json::Value;
use simdformer::config::Side;
use simdformer::trace::{Block, Place, Probe, Stage, View};
use simdformer::{Limits, Model, Session, SourceId};
use std::error::Error;
use std::path::Path;

const TRACE: &str = include_str!("../../tests/golden/walkthrough/navigate_trace.json");
const MASKS: &str = include_str!("../../tests/golden/walkthrough/masks.json");

/// The vocabularies and the batch, without its padding.
struct Batch {
    source_words: Vec<String>,
    target_words: Vec<String>,
    sources: Vec<Vec<u32>>,
    targets: Vec<Vec<u32>>,
    truth: Vec<Vec<u32>>,
    blanks: [u32; 2],
    padded: [Vec<Vec<u32>>; 2],
}

/// A number; the error names the value.
fn number(value: &Value, what: &str) -> Result<u32, Box<dyn Error>> {
    let number = value.as_u64().and_then(|x| u32::try_from(x).ok());
    number.ok_or_else(|| format!("{what}: expected an id, found {value}").into())
}

fn list<'v>(value: &'v Value, what: &str) -> Result<&'v Vec<Value>, Box<dyn Error>> {
    value.as_array().ok_or_else(|| format!("{what}: expected a list, found {value}").into())
}

fn ids(value: &Value, what: &str) -> Result<Vec<Vec<u32>>, Box<dyn Error>> {
    let row = |row| list(row, what)?.iter().map(|id| number(id, what)).collect();
    list(value, what)?.iter().map(row).collect()
}

fn words(value: &Value, what: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let word = |word: &Value| word.as_str().map(str::to_owned);
    let words = list(value, what)?.iter().map(word).collect::<Option<_>>();
    words.ok_or_else(|| format!("{what}: expected words").into())
}

impl Batch {
    fn read() -> Result<Self, Box<dyn Error>> {
        let trace: Value = serde_json::from_str(TRACE)?;
        let (vocabulary, batch) = (&trace["vocabulary"], &trace["batch"]);
        let blanks = [
            number(&batch["blank_source"], "blank_source")?,
            number(&batch["blank_target"], "blank_target")?,
        ];
        let padded = [ids(&batch["source"], "source")?, ids(&batch["target"], "target")?];
        let without = |rows: &[Vec<u32>], blank: u32| -> Vec<Vec<u32>> {
            rows.iter().map(|row| row.iter().copied().filter(|&id| id != blank).collect()).collect()
        };
        let truth = without(&ids(&batch["target_true"], "target_true")?, blanks[1]);
        let mut targets = without(&padded[1], blanks[1]);
        // The decoder reads one token for each output token.
        for (target, truth) in targets.iter_mut().zip(&truth) {
            target.truncate(truth.len());
        }
        Ok(Self {
            source_words: words(&vocabulary["source"], "source vocabulary")?,
            target_words: words(&vocabulary["target"], "target vocabulary")?,
            sources: without(&padded[0], blanks[0]),
            targets,
            truth,
            blanks,
            padded,
        })
    }

    fn word(&self, side: Side, id: u32) -> &str {
        let words = match side {
            Side::Encoder => &self.source_words,
            Side::Decoder => &self.target_words,
        };
        words.get(id as usize).map_or("?", String::as_str)
    }

    fn text(&self, side: Side, ids: &[u32]) -> Vec<&str> {
        ids.iter().map(|&id| self.word(side, id)).collect()
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
        let &View { stage, place, sentence, row, position, .. } = view;
        let rows = view.iter().map(<[f32]>::to_vec).collect();
        self.0.push(Seen { stage, place, sentence, from_source: row.is_none(), position, rows });
    }
}

/// The whole walkthrough, with the small model in `folder`.
pub(crate) fn sections(folder: &Path) -> Result<Vec<Section>, Box<dyn Error>> {
    let batch = Batch::read()?;
    let model = Model::open(folder)?;
    let seen = run(&model, &batch)?;
    let lengths: Vec<(usize, usize)> =
        batch.sources.iter().zip(&batch.targets).map(|(s, t)| (s.len(), t.len())).collect();
    let mut sections = vec![vocabularies(&batch), model_section(&model), batch_section(&batch)];
    sections.push(masks::masks(&lengths));
    sections.push(fill()?);
    sections.extend(stages(&batch, &seen));
    sections.push(prediction(&batch, &seen));
    Ok(sections)
}

/// Encodes both sentences and both targets, with the probe.
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

fn vocabularies(batch: &Batch) -> Section {
    let note = "The words of the ids. This is a tiny grammar; the vocabulary of a real model has \
                thousands of word pieces.";
    let mut section = Section::new("vocabulary", "The vocabularies", note);
    for (title, words) in [("source", &batch.source_words), ("target", &batch.target_words)] {
        section.line(format!("{title} [{} words]", words.len()));
        for (id, word) in words.iter().enumerate() {
            section.line(format!("    {id}  {word}"));
        }
    }
    section
}

fn model_section(model: &Model) -> Section {
    let config = model.config();
    let note =
        "Trained on the two sentences, so its predictions are right. models/walkthrough/README.md";
    let mut section = Section::new("model", "The model", note);
    section.line(format!("    d_model {}", config.d_model));
    for side in [Side::Encoder, Side::Decoder] {
        let (Some(stack), dim) = (config.stack(side), config.head_dim(side)) else { continue };
        section.line(format!(
            "    {side:?}: {} layer, {} heads of {dim}, feed-forward {}",
            stack.layers, stack.heads, stack.ffn_dim
        ));
    }
    section.line(format!("    norm {:?}, activation {:?}", config.norm, config.activation));
    section
}

fn batch_section(batch: &Batch) -> Section {
    let note = "Text and ids. The textbook pads all sentences to one length with <blank>; the library \
                lays sentences end to end and computes no padding.";
    let mut section = Section::new("batch", "The batch", note);
    for (side, title, ids) in [
        (Side::Encoder, "source", &batch.sources),
        (Side::Decoder, "target, as the decoder reads it", &batch.targets),
        (Side::Decoder, "true output", &batch.truth),
    ] {
        section.line(title);
        for (i, ids) in ids.iter().enumerate() {
            let text = batch.text(side, ids).join(" ");
            section.line(format!("    {i}  {text:<28} {ids:?}"));
        }
    }
    for (title, padded, blank) in [
        ("source, padded", &batch.padded[0], batch.blanks[0]),
        ("target, padded", &batch.padded[1], batch.blanks[1]),
    ] {
        section.line(format!("{title} with {blank}"));
        for (i, ids) in padded.iter().enumerate() {
            section.line(format!("    {i}  {ids:?}"));
        }
    }
    section
}

fn fill() -> Result<Section, Box<dyn Error>> {
    let worked: Value = serde_json::from_str(MASKS)?;
    let lengths = |name: &str| -> Result<Vec<usize>, Box<dyn Error>> {
        list(&worked[name], name)?.iter().map(|x| Ok(number(x, name)? as usize)).collect()
    };
    let lengths: Vec<(usize, usize)> =
        lengths("source_lengths")?.into_iter().zip(lengths("target_lengths")?).collect();
    let scores: Vec<Vec<Vec<f32>>> =
        serde_json::from_value(worked["worked_softmax"]["scores"].clone())?;
    masks::fill(&lengths, &scores)
}

/// The formula of a stage and the file that computes it.
fn note(stage: Stage) -> &'static str {
    match stage {
        Stage::Embedding => "sqrt(d_model) * table[token]. src/model/blocks/embedding.rs",
        Stage::Position => {
            "PE[p, k] = sin(p / 10000^(2k/d)), cosines in the second half. \
             kernels/src/position.rs"
        }
        Stage::Input => "embedding + position. kernels/src/embedding.rs",
        Stage::Query => "x W_Q + b, heads side by side. src/model/blocks/exec_context.rs",
        Stage::Key => "x W_K + b, heads side by side. src/model/blocks/exec_context.rs",
        Stage::Value => "x W_V + b, heads side by side. src/model/blocks/exec_context.rs",
        Stage::Scores => "Q K^T / sqrt(d_k), before the mask. kernels/src/attention/flash.rs",
        Stage::Weights => {
            "softmax(scores, masked): every row sums to 1. \
                           kernels/src/attention/flash.rs"
        }
        Stage::Context => "weights V, heads side by side. kernels/src/attention/flash.rs",
        Stage::FeedForward => "max(0, x W_1 + b_1). src/model/blocks/feed_forward.rs",
        Stage::Residual => "x + block(x). kernels/src/gemm/epilogue.rs",
        Stage::Norm => "(x - mean) / sqrt(variance + eps) * weight + bias. kernels/src/norm.rs",
        Stage::Memory => "The encoder output, which the decoder reads. src/model/encoder.rs",
        Stage::Output => "The decoder's last hidden state. src/model/decoder.rs",
        Stage::Logits => "output W + b, one number per word. src/model/blocks/output.rs",
        Stage::Probabilities => "softmax(logits). kernels/src/softmax.rs",
        _ => "",
    }
}

/// A section for each stage at each place, in the order of the computation.
fn stages(batch: &Batch, seen: &[Seen]) -> Vec<Section> {
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
        let mut section = Section::new(stage.name(), &title, note(stage));
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
    let text = batch.text(side, all).join(" ");
    let keys = match (first.stage, first.place.block) {
        (Stage::Scores | Stage::Weights, Some(Block::Cross)) => {
            Some(batch.text(Side::Encoder, source))
        }
        (Stage::Scores | Stage::Weights, _) => Some(batch.text(side, all)),
        (Stage::Logits | Stage::Probabilities, _) => {
            Some(batch.target_words.iter().map(String::as_str).collect())
        }
        _ => None,
    };
    if heads > 0 {
        section.line(format!("sentence {index} [{heads} heads, {rows}, {columns}]  {text}"));
        for part in seen {
            section.line(format!("  head {}", part.place.head.unwrap_or(0)));
            let names = batch.text(side, &all[part.position..]);
            section.lines.extend(matrix(&names, keys.as_deref(), &part.rows));
        }
        return;
    }
    section.line(format!("sentence {index} [{rows}, {columns}]  {text}"));
    let all_rows: Vec<Vec<f32>> = seen.iter().flat_map(|s| s.rows.iter().cloned()).collect();
    let names = batch.text(side, &all[first.position..]);
    section.lines.extend(matrix(&names, keys.as_deref(), &all_rows));
}

/// The most probable word after each token, and whether it is correct.
fn prediction(batch: &Batch, seen: &[Seen]) -> Section {
    let note = "The most probable word at each position, beside the true output.";
    let mut section = Section::new("prediction", "Prediction", note);
    let (mut right, mut all) = (0, 0);
    for (i, (target, truth)) in batch.targets.iter().zip(&batch.truth).enumerate() {
        section.line(format!("sentence {i}"));
        section.line(format!("    {:<10}{:<12}{:<12}", "after", "predicted", "true"));
        let rows = seen
            .iter()
            .filter(|s| s.stage == Stage::Probabilities && s.sentence as usize == i)
            .flat_map(|s| &s.rows);
        for ((row, &token), &truth) in rows.zip(target).zip(truth) {
            let best = (0..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best });
            let verdict = if best == truth as usize { "right" } else { "wrong" };
            right += usize::from(best == truth as usize);
            all += 1;
            section.line(format!(
                "    {:<10}{:<12}{:<12}{verdict}  p = {:.4}",
                batch.word(Side::Decoder, token),
                batch.word(Side::Decoder, best as u32),
                batch.word(Side::Decoder, truth),
                row[best]
            ));
        }
    }
    section.line(format!("{right} of {all} right"));
    section
}
