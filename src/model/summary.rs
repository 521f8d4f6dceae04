//! A model on one page: the architecture, and what takes how many bytes.

use super::{Form, Model};
use crate::checkpoint::{Attention, LayerPart, Role};
use crate::config::{NormPlacement, Side, Stem};
use crate::memory::ByteTable;
use core::fmt;

/// What a parameter belongs to: a line of the table.
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

fn line(role: Role, form: Form) -> usize {
    use Side::{Decoder, Encoder};
    match role {
        _ if form == Form::Screen => 10,
        Role::SourceEmbedding | Role::TargetEmbedding | Role::TokenTypes => 0,
        Role::Convolution(..) => 1,
        Role::Positions(_) | Role::RelativeBias(_) | Role::Layer(_, _, LayerPart::RelativeBias) => {
            2
        }
        Role::Layer(Encoder, _, LayerPart::Attention(..)) => 3,
        Role::Layer(Encoder, _, LayerPart::FeedForward(..)) => 4,
        Role::Layer(Decoder, _, LayerPart::Attention(Attention::Own, ..)) => 5,
        Role::Layer(Decoder, _, LayerPart::Attention(Attention::Cross, ..)) => 6,
        Role::Layer(Decoder, _, LayerPart::FeedForward(..)) => 7,
        Role::EmbeddingNorm(..)
        | Role::FinalNorm(..)
        | Role::Layer(_, _, LayerPart::AttentionNorm(..) | LayerPart::FeedForwardNorm(_)) => 8,
        Role::Output | Role::OutputBias => 9,
    }
}

impl Model {
    /// Numbers that were trained: a matrix that serves two roles counts once, however often it is stored.
    fn trained(&self) -> usize {
        let tied = |role| role == Role::Output && self.config.ties.target_output;
        self.parameters()
            .filter(|p| !matches!(p.form(), Form::Shared | Form::Screen) && !tied(p.role()))
            .map(|p| p.shape().iter().product::<usize>())
            .sum()
    }
}

impl fmt::Display for Model {
    /// Some lines of architecture, then a table of bytes that add up to [`Model::bytes`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        writeln!(
            f,
            "{}, d_model {}, {} parameters, packed for {}",
            config.family.model_type(),
            config.d_model,
            self.trained(),
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
            match config.stem.filter(|_| side == Side::Encoder) {
                Some(Stem { bins }) => writeln!(f, "frames of {bins} through two convolutions")?,
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
            lines[line(parameter.role(), parameter.form())].1 += parameter.bytes();
        }
        ByteTable { lines: &lines }.fmt(f)
    }
}
