//! The tables of names, one for each family.

use crate::config::Family;

/// The role of a tensor as [`TensorId`](crate::network::TensorId) prints it, and its name in a file. Several names of a
/// role have a row each, the preferred one first.
///
/// `*` stands for one part of the path, the same in both: the side, the layer, `weight` or `bias`. `?` at the start is
/// nothing or the prefix of a larger model. `@0` to `@2` at the end is a third of the rows of a tensor.
type Rows = &'static [(&'static str, &'static str)];

/// The names of a family.
pub(super) struct Names {
    pub(super) rows: &'static [Rows],
    /// What `?` stands for if the model is a part of a larger one.
    pub(super) prefix: &'static str,
    /// Whether old files call the scale and the bias of a norm `gamma` and `beta`.
    pub(super) has_old_norms: bool,
}

/// The names of a family; `None` for [`Family::Plain`], whose names are the printed roles.
pub(super) fn names(family: Family) -> Option<Names> {
    let whole = |rows| Names { rows, prefix: "", has_old_norms: false };
    let encoder = |prefix, rows| Names { rows, prefix, has_old_norms: true };
    Some(match family {
        Family::Marian => whole(&[EMBEDDINGS, SHARED, OUTPUT, LAYERS, LOGITS_BIAS]),
        Family::Bart
        | Family::MBart
        | Family::Blenderbot
        | Family::BlenderbotSmall
        | Family::Mvp
        | Family::PlBart => whole(&[
            EMBEDDINGS,
            SHARED,
            OUTPUT,
            LAYERS,
            LOGITS_BIAS,
            POSITIONS,
            EMBEDDING_NORM,
            FINAL_NORM,
        ]),
        Family::M2M100 => whole(&[EMBEDDINGS, SHARED, OUTPUT, LAYERS, FINAL_NORM]),
        Family::Pegasus => whole(&[EMBEDDINGS, SHARED, OUTPUT, LAYERS, LOGITS_BIAS, FINAL_NORM]),
        Family::Fsmt => whole(&[EMBEDDINGS, FSMT_OUTPUT, LAYERS]),
        Family::Whisper => whole(&[WHISPER, LAYERS, POSITIONS, FINAL_NORM]),
        Family::SeamlessM4t | Family::SeamlessM4tV2 => whole(&[SEAMLESS]),
        Family::T5 | Family::Mt5 | Family::Umt5 => whole(&[T5]),
        Family::Bert => encoder("bert.", &[ENCODER, TOKEN_TYPES, BERT, BERT_FEED_FORWARD]),
        Family::Roberta | Family::XlmRoberta | Family::Camembert => {
            encoder("roberta.", &[ENCODER, TOKEN_TYPES, BERT, BERT_FEED_FORWARD])
        }
        Family::DistilBert => encoder("distilbert.", &[ENCODER, DISTILBERT]),
        Family::MpNet => encoder("mpnet.", &[ENCODER, MPNET, BERT_FEED_FORWARD]),
        Family::NnTransformer => Names { prefix: "transformer.", ..whole(&[NN_TRANSFORMER]) },
        Family::Plain => return None,
    })
}

/// The row of this role is for models with one embedding for both sides.
pub(super) const SHARED_EMBEDDING: &str = "shared";

// The classes of transformers that were derived from fairseq.

const EMBEDDINGS: Rows = &[
    ("encoder.embedding.*", "model.encoder.embed_tokens.*"),
    ("decoder.embedding.*", "model.decoder.embed_tokens.*"),
];

const SHARED: Rows = &[(SHARED_EMBEDDING, "model.shared.weight")];

const OUTPUT: Rows = &[("output.weight", "lm_head.weight")];

const LAYERS: Rows = &[
    ("*.layers.*.self_attention.query.*", "model.*.layers.*.self_attn.q_proj.*"),
    ("*.layers.*.self_attention.key.*", "model.*.layers.*.self_attn.k_proj.*"),
    ("*.layers.*.self_attention.value.*", "model.*.layers.*.self_attn.v_proj.*"),
    ("*.layers.*.self_attention.output.*", "model.*.layers.*.self_attn.out_proj.*"),
    ("*.layers.*.self_attention_norm.*", "model.*.layers.*.self_attn_layer_norm.*"),
    ("*.layers.*.cross_attention.query.*", "model.*.layers.*.encoder_attn.q_proj.*"),
    ("*.layers.*.cross_attention.key.*", "model.*.layers.*.encoder_attn.k_proj.*"),
    ("*.layers.*.cross_attention.value.*", "model.*.layers.*.encoder_attn.v_proj.*"),
    ("*.layers.*.cross_attention.output.*", "model.*.layers.*.encoder_attn.out_proj.*"),
    ("*.layers.*.cross_attention_norm.*", "model.*.layers.*.encoder_attn_layer_norm.*"),
    ("*.layers.*.feed_forward.inner.*", "model.*.layers.*.fc1.*"),
    ("*.layers.*.feed_forward.outer.*", "model.*.layers.*.fc2.*"),
    ("*.layers.*.feed_forward_norm.*", "model.*.layers.*.final_layer_norm.*"),
];

/// `[1, vocabulary]`: a buffer of the library, not a parameter.
const LOGITS_BIAS: Rows = &[("output.bias", "final_logits_bias")];

const POSITIONS: Rows = &[("*.positions.*", "model.*.embed_positions.*")];

const EMBEDDING_NORM: Rows = &[("*.embedding_norm.*", "model.*.layernorm_embedding.*")];

const FINAL_NORM: Rows = &[("*.final_norm.*", "model.*.layer_norm.*")];

const FSMT_OUTPUT: Rows = &[("output.weight", "model.decoder.output_projection.weight")];

const WHISPER: Rows = &[
    ("encoder.convolutions.0.*", "model.encoder.conv1.*"),
    ("encoder.convolutions.1.*", "model.encoder.conv2.*"),
    ("decoder.embedding.*", "model.decoder.embed_tokens.*"),
    ("output.weight", "proj_out.weight"),
];

/// The text encoder and the text decoder.
const SEAMLESS: Rows = &[
    ("encoder.embedding.*", "text_encoder.embed_tokens.*"),
    ("encoder.embedding.*", "shared.*"),
    ("decoder.embedding.*", "text_decoder.embed_tokens.*"),
    ("decoder.embedding.*", "shared.*"),
    ("output.weight", "lm_head.weight"),
    ("*.layers.*.self_attention.query.*", "text_*.layers.*.self_attn.q_proj.*"),
    ("*.layers.*.self_attention.key.*", "text_*.layers.*.self_attn.k_proj.*"),
    ("*.layers.*.self_attention.value.*", "text_*.layers.*.self_attn.v_proj.*"),
    ("*.layers.*.self_attention.output.*", "text_*.layers.*.self_attn.out_proj.*"),
    ("*.layers.*.self_attention_norm.*", "text_*.layers.*.self_attn_layer_norm.*"),
    ("*.layers.*.cross_attention.query.*", "text_*.layers.*.cross_attention.q_proj.*"),
    ("*.layers.*.cross_attention.key.*", "text_*.layers.*.cross_attention.k_proj.*"),
    ("*.layers.*.cross_attention.value.*", "text_*.layers.*.cross_attention.v_proj.*"),
    ("*.layers.*.cross_attention.output.*", "text_*.layers.*.cross_attention.out_proj.*"),
    ("*.layers.*.cross_attention_norm.*", "text_*.layers.*.cross_attention_layer_norm.*"),
    ("*.layers.*.feed_forward.inner.*", "text_*.layers.*.ffn.fc1.*"),
    ("*.layers.*.feed_forward.outer.*", "text_*.layers.*.ffn.fc2.*"),
    ("*.layers.*.feed_forward_norm.*", "text_*.layers.*.ffn_layer_norm.*"),
    ("*.final_norm.*", "text_*.layer_norm.*"),
];

/// Blocks of two or three numbered layers. Both sides share one table, which has one of three names. The relative
/// positions of a stack are in its first block; the maps of a gated block are numbered.
const T5: Rows = &[
    ("encoder.embedding.*", "shared.*"),
    ("encoder.embedding.*", "encoder.embed_tokens.*"),
    ("decoder.embedding.*", "shared.*"),
    ("decoder.embedding.*", "decoder.embed_tokens.*"),
    ("output.weight", "lm_head.weight"),
    ("*.relative_bias.*", "*.block.0.layer.0.SelfAttention.relative_attention_bias.*"),
    ("*.layers.*.relative_bias.*", "*.block.*.layer.0.SelfAttention.relative_attention_bias.*"),
    ("*.layers.*.self_attention.query.*", "*.block.*.layer.0.SelfAttention.q.*"),
    ("*.layers.*.self_attention.key.*", "*.block.*.layer.0.SelfAttention.k.*"),
    ("*.layers.*.self_attention.value.*", "*.block.*.layer.0.SelfAttention.v.*"),
    ("*.layers.*.self_attention.output.*", "*.block.*.layer.0.SelfAttention.o.*"),
    ("*.layers.*.self_attention_norm.*", "*.block.*.layer.0.layer_norm.*"),
    ("decoder.layers.*.cross_attention.query.*", "decoder.block.*.layer.1.EncDecAttention.q.*"),
    ("decoder.layers.*.cross_attention.key.*", "decoder.block.*.layer.1.EncDecAttention.k.*"),
    ("decoder.layers.*.cross_attention.value.*", "decoder.block.*.layer.1.EncDecAttention.v.*"),
    ("decoder.layers.*.cross_attention.output.*", "decoder.block.*.layer.1.EncDecAttention.o.*"),
    ("decoder.layers.*.cross_attention_norm.*", "decoder.block.*.layer.1.layer_norm.*"),
    ("encoder.layers.*.feed_forward.gate.*", "encoder.block.*.layer.1.DenseReluDense.wi_0.*"),
    ("encoder.layers.*.feed_forward.inner.*", "encoder.block.*.layer.1.DenseReluDense.wi.*"),
    ("encoder.layers.*.feed_forward.inner.*", "encoder.block.*.layer.1.DenseReluDense.wi_1.*"),
    ("encoder.layers.*.feed_forward.outer.*", "encoder.block.*.layer.1.DenseReluDense.wo.*"),
    ("encoder.layers.*.feed_forward_norm.*", "encoder.block.*.layer.1.layer_norm.*"),
    ("decoder.layers.*.feed_forward.gate.*", "decoder.block.*.layer.2.DenseReluDense.wi_0.*"),
    ("decoder.layers.*.feed_forward.inner.*", "decoder.block.*.layer.2.DenseReluDense.wi.*"),
    ("decoder.layers.*.feed_forward.inner.*", "decoder.block.*.layer.2.DenseReluDense.wi_1.*"),
    ("decoder.layers.*.feed_forward.outer.*", "decoder.block.*.layer.2.DenseReluDense.wo.*"),
    ("decoder.layers.*.feed_forward_norm.*", "decoder.block.*.layer.2.layer_norm.*"),
    ("*.final_norm.*", "*.final_layer_norm.*"),
];

// Encoder-only models.

const ENCODER: Rows = &[
    ("encoder.embedding.*", "?embeddings.word_embeddings.*"),
    ("encoder.positions.*", "?embeddings.position_embeddings.*"),
    ("encoder.embedding_norm.*", "?embeddings.LayerNorm.*"),
];

const TOKEN_TYPES: Rows = &[("encoder.token_types.*", "?embeddings.token_type_embeddings.*")];

const BERT: Rows = &[
    ("encoder.layers.*.self_attention.query.*", "?encoder.layer.*.attention.self.query.*"),
    ("encoder.layers.*.self_attention.key.*", "?encoder.layer.*.attention.self.key.*"),
    ("encoder.layers.*.self_attention.value.*", "?encoder.layer.*.attention.self.value.*"),
    ("encoder.layers.*.self_attention.output.*", "?encoder.layer.*.attention.output.dense.*"),
    ("encoder.layers.*.self_attention_norm.*", "?encoder.layer.*.attention.output.LayerNorm.*"),
];

const BERT_FEED_FORWARD: Rows = &[
    ("encoder.layers.*.feed_forward.inner.*", "?encoder.layer.*.intermediate.dense.*"),
    ("encoder.layers.*.feed_forward.outer.*", "?encoder.layer.*.output.dense.*"),
    ("encoder.layers.*.feed_forward_norm.*", "?encoder.layer.*.output.LayerNorm.*"),
];

const DISTILBERT: Rows = &[
    ("encoder.layers.*.self_attention.query.*", "?transformer.layer.*.attention.q_lin.*"),
    ("encoder.layers.*.self_attention.key.*", "?transformer.layer.*.attention.k_lin.*"),
    ("encoder.layers.*.self_attention.value.*", "?transformer.layer.*.attention.v_lin.*"),
    ("encoder.layers.*.self_attention.output.*", "?transformer.layer.*.attention.out_lin.*"),
    ("encoder.layers.*.self_attention_norm.*", "?transformer.layer.*.sa_layer_norm.*"),
    ("encoder.layers.*.feed_forward.inner.*", "?transformer.layer.*.ffn.lin1.*"),
    ("encoder.layers.*.feed_forward.outer.*", "?transformer.layer.*.ffn.lin2.*"),
    ("encoder.layers.*.feed_forward_norm.*", "?transformer.layer.*.output_layer_norm.*"),
];

/// One table of relative positions for all layers.
const MPNET: Rows = &[
    ("encoder.relative_bias.*", "?encoder.relative_attention_bias.*"),
    ("encoder.layers.*.self_attention.query.*", "?encoder.layer.*.attention.attn.q.*"),
    ("encoder.layers.*.self_attention.key.*", "?encoder.layer.*.attention.attn.k.*"),
    ("encoder.layers.*.self_attention.value.*", "?encoder.layer.*.attention.attn.v.*"),
    ("encoder.layers.*.self_attention.output.*", "?encoder.layer.*.attention.attn.o.*"),
    ("encoder.layers.*.self_attention_norm.*", "?encoder.layer.*.attention.LayerNorm.*"),
];

/// `torch.nn.Transformer`, together with `src_embed`, `tgt_embed` and `generator`. Query, key and value are one matrix,
/// with their rows in this order. Norms are numbered in the order of the blocks.
const NN_TRANSFORMER: Rows = &[
    ("encoder.embedding.*", "src_embed.*"),
    ("decoder.embedding.*", "tgt_embed.*"),
    ("output.*", "generator.*"),
    ("*.layers.*.self_attention.query.*", "?*.layers.*.self_attn.in_proj_*@0"),
    ("*.layers.*.self_attention.key.*", "?*.layers.*.self_attn.in_proj_*@1"),
    ("*.layers.*.self_attention.value.*", "?*.layers.*.self_attn.in_proj_*@2"),
    ("*.layers.*.self_attention.output.*", "?*.layers.*.self_attn.out_proj.*"),
    ("*.layers.*.self_attention_norm.*", "?*.layers.*.norm1.*"),
    ("*.layers.*.cross_attention.query.*", "?*.layers.*.multihead_attn.in_proj_*@0"),
    ("*.layers.*.cross_attention.key.*", "?*.layers.*.multihead_attn.in_proj_*@1"),
    ("*.layers.*.cross_attention.value.*", "?*.layers.*.multihead_attn.in_proj_*@2"),
    ("*.layers.*.cross_attention.output.*", "?*.layers.*.multihead_attn.out_proj.*"),
    ("*.layers.*.cross_attention_norm.*", "?*.layers.*.norm2.*"),
    ("*.layers.*.feed_forward.inner.*", "?*.layers.*.linear1.*"),
    ("*.layers.*.feed_forward.outer.*", "?*.layers.*.linear2.*"),
    ("encoder.layers.*.feed_forward_norm.*", "?encoder.layers.*.norm2.*"),
    ("decoder.layers.*.feed_forward_norm.*", "?decoder.layers.*.norm3.*"),
    ("*.final_norm.*", "?*.norm.*"),
];
