//! A one-page summary of a model: the architecture, and the bytes of its parts.

use super::memory_requirements::trained;
use super::{Model, Storage};
use crate::checkpoint::{Attention, LayerPart, TensorId};
use crate::config::{NormPlacement, Side};
use crate::memory::ByteTable;
use core::fmt;

/// The group of a parameter: a line of the table.
const LINES: [&str; 11] = [
    "embeddings",
    "convolutions",
    "positions",
    "encoder self-attention",
    "encoder feed-forward",
    "decoder self-attention",
    "decoder cross-attention",
    "decoder feed-forward",
    "norms",
    "output",
    "output again, as bytes for greedy search",
];

fn line(role: TensorId, storage: Storage) -> usize {
    use Side::{Decoder, Encoder};
    match role {
        _ if storage == Storage::PruningTable => 10,
        TensorId::SourceEmbedding | TensorId::TargetEmbedding | TensorId::TokenTypes => 0,
        TensorId::Convolution(..) => 1,
        TensorId::Positions(_)
        | TensorId::RelativeBias(_)
        | TensorId::Layer(_, _, LayerPart::RelativeBias) => 2,
        TensorId::Layer(Encoder, _, LayerPart::Attention(..)) => 3,
        TensorId::Layer(Encoder, _, LayerPart::FeedForward(..)) => 4,
        TensorId::Layer(Decoder, _, LayerPart::Attention(Attention::Own, ..)) => 5,
        TensorId::Layer(Decoder, _, LayerPart::Attention(Attention::Cross, ..)) => 6,
        TensorId::Layer(Decoder, _, LayerPart::FeedForward(..)) => 7,
        TensorId::EmbeddingNorm(..)
        | TensorId::FinalNorm(..)
        | TensorId::Layer(_, _, LayerPart::AttentionNorm(..) | LayerPart::FeedForwardNorm(_)) => 8,
        TensorId::Output | TensorId::OutputBias => 9,
    }
}

impl fmt::Display for Model {
    /// Prints a few lines of architecture, then a table of bytes that add up to [`Model::bytes`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        writeln!(
            f,
            "{}, d_model {}, {} parameters, packed for {}",
            config.family.model_type(),
            config.d_model,
            trained(self.weights.parameters(), config.ties),
            self.isa()
        )?;
        for side in [Side::Encoder, Side::Decoder] {
            let Some(stack) = config.stack(side) else { continue };
            write!(
                f,
                "{}: {} layers, {} heads of {}, feed-forward {}, ",
                side.name(),
                stack.layers,
                stack.heads,
                config.head_dim(side),
                stack.ffn_dim,
            )?;
            match config.bins.filter(|_| side == Side::Encoder) {
                Some(bins) => writeln!(f, "frames of {bins} through two convolutions")?,
                None => writeln!(f, "vocabulary {}", config.vocab(side))?,
            }
        }
        let norm = match config.norm {
            NormPlacement::Pre => "pre-norm",
            NormPlacement::Post => "post-norm",
        };
        writeln!(f, "{norm}, {:?}, positions {:?}", config.activation, config.positions)?;
        let mut lines = LINES.map(|what| (what, 0));
        for parameter in self.parameters() {
            lines[line(parameter.role(), parameter.storage())].1 += parameter.bytes();
        }
        ByteTable { lines: &lines }.fmt(f)
    }
}
