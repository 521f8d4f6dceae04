//! `MPNetModel`, alone or as `mpnet.` in a larger model: one table of relative positions for all layers.

use super::encoder_only::Spelling;

pub(super) const MPNET: Spelling = Spelling {
    prefix: "mpnet.",
    layers: "encoder.layer",
    projections: ["attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"],
    attention_norm: "attention.LayerNorm",
    inner: "intermediate.dense",
    outer: "output.dense",
    feed_forward_norm: "output.LayerNorm",
    token_types: false,
    relative_bias: Some("encoder.relative_attention_bias.weight"),
};
