//! Shows what the encoder knows of the order of words: its output for a sentence and for the same words in reverse,
//! with positions and without.

use super::page::{Section, matrix};
use super::walkthrough::{Asked, Batch};
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Positions, Side, Stack};
use simdformer::{Limits, Model, Session};
use std::error::Error;
use std::path::Path;

/// A section for each sentence: without positions, then with them.
pub(crate) fn sections(folder: &Path, asked: &Asked<'_>) -> Result<Vec<Section>, Box<dyn Error>> {
    let checkpoint = Checkpoint::open(folder)?;
    let with = Model::open(folder)?;
    let batch = Batch::read(folder, &with, asked)?;
    let without = without_positions(&checkpoint)?;
    let mut sections = Vec::new();
    for (model, stage, title, note) in [
        (
            &without,
            "order-off",
            "Without positions: the order of words is lost",
            "The same weights, and no position is added to the embeddings. A sum over all keys does not depend on \
             their order, so each word has the same output in both sentences; only the rounding of the sums \
             differs.",
        ),
        (
            &with,
            "order-on",
            "With positions: a word has another output at another position",
            "The checkpoint as it is. kernels/src/position.rs",
        ),
    ] {
        let mut section = Section::new(stage, title, note);
        for source in &batch.sources {
            compare(model, &batch, source, &mut section)?;
        }
        sections.push(section);
    }
    Ok(sections)
}

/// The model of `checkpoint`, without positions of any kind.
fn without_positions(checkpoint: &Checkpoint<'_>) -> Result<Model, Box<dyn Error>> {
    let config = checkpoint.config();
    let plain = |stack: Stack| Stack { relative_bias: None, ..stack };
    let config = Config {
        positions: Positions::None,
        encoder: plain(config.encoder),
        decoder: config.decoder.map(plain),
        ..config.clone()
    };
    Ok(Model::from_fn(config, |role, _, out| {
        // A checkpoint may lack the bias of the logits, which is then zero.
        if let Some(tensor) = checkpoint.optional(role)? {
            tensor.read_into(out)?;
        }
        Ok(())
    })?)
}

/// The encoder outputs of a sentence and of its reverse, a row for each word of the sentence.
fn compare(
    model: &Model,
    batch: &Batch,
    source: &[u32],
    section: &mut Section,
) -> Result<(), Box<dyn Error>> {
    let reversed: Vec<u32> = source.iter().rev().copied().collect();
    let mut session = Session::new(model, Limits::new(2, source.len(), 1))?;
    let output = session.encoder_output(&[source, &reversed])?;
    let rows: Vec<Vec<f32>> = output.chunks(model.config().d_model).map(<[f32]>::to_vec).collect();
    let (first, second) = rows.split_at(source.len());
    let words = batch.text(Side::Encoder, source);
    let names: Vec<&str> = words.iter().map(String::as_str).collect();
    section.line(format!("encoder output of: {}", names.join(" ")));
    section.lines.extend(matrix(&names, None, first));
    let second: Vec<Vec<f32>> = second.iter().rev().cloned().collect();
    let backwards: Vec<&str> = names.iter().rev().copied().collect();
    section.line(format!("encoder output of: {}, rows in the order above", backwards.join(" ")));
    section.lines.extend(matrix(&names, None, &second));
    let pairs = first.iter().flatten().zip(second.iter().flatten());
    let most = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    section.line(format!("largest difference {most:.6}"));
    Ok(())
}
