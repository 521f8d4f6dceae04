//! Encoder-only models: BERT and its descendants.

use super::json::unknown_name;
use super::keys::{Keys, after_pad};
use super::{
    Activation, Config, Family, NormPlacement, Positions, RelativeBias, SpecialTokens, Stack,
    TiedWeights,
};
use crate::error::Error;

/// The defaults that differ between the configuration classes.
struct Class {
    vocab: usize,
    /// The keys of width, layers, heads, feed-forward width and activation.
    keys: [&'static str; 5],
    layers: usize,
    /// Rows of the position table before the first position.
    first_position: First,
    /// The key of epsilon, if the class has one.
    eps: Option<&'static str>,
    token_types: bool,
    pad: u32,
    bos: Option<u32>,
    eos: &'static [u32],
}

#[derive(Clone, Copy)]
enum First {
    Fixed(usize),
    AfterPad,
}

const BERT_KEYS: [&str; 5] =
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"];

const BERT: Class = Class {
    vocab: 30_522,
    keys: BERT_KEYS,
    layers: 12,
    first_position: First::Fixed(0),
    eps: Some("layer_norm_eps"),
    token_types: true,
    pad: 0,
    bos: None,
    eos: &[],
};

/// XLM-R and CamemBERT: as RoBERTa's classes, except the vocabulary.
const XLM_ROBERTA: Class =
    Class { first_position: First::AfterPad, pad: 1, bos: Some(0), eos: &[2], ..BERT };

const ROBERTA: Class = Class { vocab: 50_265, ..XLM_ROBERTA };

const DISTILBERT: Class = Class {
    keys: ["dim", "n_layers", "n_heads", "hidden_dim", "activation"],
    layers: 6,
    eps: None,
    token_types: false,
    ..BERT
};

/// The first position is row 2, independent of the pad id.
const MPNET: Class =
    Class { vocab: 30_527, first_position: First::Fixed(2), token_types: false, ..XLM_ROBERTA };

const fn class(family: Family) -> Class {
    match family {
        Family::Roberta => ROBERTA,
        Family::XlmRoberta | Family::Camembert => XLM_ROBERTA,
        Family::DistilBert => DISTILBERT,
        Family::MpNet => MPNET,
        _ => BERT,
    }
}

/// The configuration with all defaults of its class.
pub(super) fn defaults(family: Family) -> Config {
    let class = class(family);
    let offset = class.offset(Some(class.pad)).unwrap_or(0);
    let relative = RelativeBias { buckets: 32, max_distance: 128, per_layer: false };
    Config {
        family,
        d_model: 768,
        encoder: Stack {
            embedding_norm: Some(NormPlacement::Post),
            max_positions: Some(512 - offset),
            relative_bias: (family == Family::MpNet).then_some(relative),
            ..Stack::new(class.layers, 12, 3072)
        },
        decoder: None,
        layer_norm_eps: 1e-12,
        activation: Activation::Gelu,
        positions: Positions::Learned { offset },
        token_types: if class.token_types { 2 } else { 0 },
        embedding_scale: 1.0,
        ties: TiedWeights { source_target: false, target_output: false },
        tokens: SpecialTokens {
            pad: Some(class.pad),
            eos: class.eos.to_vec(),
            bos: class.bos,
            ..SpecialTokens::default()
        },
        ..Config::base(class.vocab)
    }
}

impl Class {
    /// Rows of the position table before the first position.
    fn offset(&self, pad: Option<u32>) -> Result<usize, Error> {
        match self.first_position {
            First::Fixed(row) => Ok(row),
            First::AfterPad => after_pad(pad),
        }
    }
}

pub(super) fn keys(keys: &mut Keys<'_>, config: &mut Config) -> Result<(), Error> {
    let class = class(config.family);
    for key in ["is_decoder", "add_cross_attention", "is_encoder_decoder"] {
        keys.never(key, "false, for a model that only encodes")?;
    }
    const KIND: &str = "position_embedding_type";
    keys.fixed(KIND, None, |fields| match fields.text(KIND)? {
        None | Some("absolute") => Ok(()),
        Some(found) => Err(unknown_name(KIND, "\"absolute\"")(found)),
    })?;
    let [width, layers, heads, ffn_dim, activation] = class.keys;
    let (encoder, tokens) = (&mut config.encoder, &mut config.tokens);
    // Unlike in BART, this is the number of rows of the table.
    let mut rows = encoder.max_positions.unwrap_or(0) + class.offset(tokens.pad)?;
    keys.field(width, &mut config.d_model)?;
    keys.field(layers, &mut encoder.layers)?;
    keys.field(heads, &mut encoder.heads)?;
    keys.field(ffn_dim, &mut encoder.ffn_dim)?;
    keys.field("vocab_size", &mut config.source_vocab)?;
    config.target_vocab = config.source_vocab;
    keys.field("pad_token_id", &mut tokens.pad)?;
    let offset = class.offset(tokens.pad)?;
    keys.field("max_position_embeddings", &mut rows)?;
    encoder.max_positions = Some(rows.saturating_sub(offset));
    config.positions = Positions::Learned { offset };
    if let Some(bias) = &mut encoder.relative_bias {
        keys.field("relative_attention_num_buckets", &mut bias.buckets)?;
    }
    if let Some(key) = class.eps {
        keys.field(key, &mut config.layer_norm_eps)?;
    }
    keys.activation(activation, &mut config.activation)?;
    if class.token_types {
        keys.field("type_vocab_size", &mut config.token_types)?;
    }
    keys.ids("eos_token_id", &mut tokens.eos)?;
    keys.field("bos_token_id", &mut tokens.bos)
}
