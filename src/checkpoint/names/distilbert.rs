//! `DistilBertModel`, alone or as `distilbert.` in a larger model.

use super::encoder_only::Spelling;

pub(super) const DISTILBERT: Spelling = Spelling {
    prefix: "distilbert.",
    layers: "transformer.layer",
    projections: ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"],
    attention_norm: "sa_layer_norm",
    inner: "ffn.lin1",
    outer: "ffn.lin2",
    feed_forward_norm: "output_layer_norm",
    token_types: false,
    relative_bias: None,
};
