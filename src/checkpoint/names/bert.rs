//! `BertModel`, alone or as `bert.` in a larger model. MiniLM, E5, BGE and GTE use these names.

use super::encoder_only::Spelling;

pub(super) const BERT: Spelling = Spelling {
    prefix: "bert.",
    layers: "encoder.layer",
    projections: [
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
    ],
    attention_norm: "attention.output.LayerNorm",
    inner: "intermediate.dense",
    outer: "output.dense",
    feed_forward_norm: "output.LayerNorm",
    token_types: true,
    relative_bias: None,
};
