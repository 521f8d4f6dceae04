//! Encoder-only models: BERT and its descendants.

use super::json::short;
use super::keys::Keys;
use super::{
    Biases, Config, ConfigError, EmbeddingNorm, Family, GenerationDefaults, NormKind,
    NormPlacement, Positions, RelativeBias, SpecialTokens, Stack, TiedWeights,
};

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

pub(super) fn read(mut keys: Keys<'_>, family: Family) -> Result<Config, ConfigError> {
    let class = match family {
        Family::Roberta => ROBERTA,
        Family::XlmRoberta | Family::Camembert => XLM_ROBERTA,
        Family::DistilBert => DISTILBERT,
        Family::MpNet => MPNET,
        _ => BERT,
    };
    for key in ["is_decoder", "add_cross_attention", "is_encoder_decoder"] {
        keys.never(key, "false, for a model that only encodes")?;
    }
    const KIND: &str = "position_embedding_type";
    if let Some(found) = keys.fields.text(KIND)?.filter(|&kind| kind != "absolute") {
        let (expected, found) = ("\"absolute\"", format!("\"{}\"", short(found)));
        return Err(ConfigError::WrongType { key: KIND, expected, found });
    }
    let [width, layers, heads, ffn_dim, activation] = class.keys;
    let d_model = keys.size(width, 768)?;
    let layers = keys.size(layers, class.layers)?;
    let heads = keys.size(heads, 12)?;
    let ffn_dim = keys.size(ffn_dim, 3072)?;
    let vocab = keys.size("vocab_size", class.vocab)?;
    let pad = keys.id("pad_token_id", Some(class.pad))?;
    let offset = match class.first_position {
        First::Fixed(row) => row,
        First::AfterPad => keys.after_pad(pad)?,
    };
    // Unlike in BART, this is the number of rows of the table.
    let rows = keys.size("max_position_embeddings", 512)?;
    let relative_bias = match family {
        Family::MpNet => Some(RelativeBias {
            buckets: keys.size("relative_attention_num_buckets", 32)?,
            max_distance: 128,
            per_layer: false,
        }),
        _ => None,
    };
    let encoder = Stack {
        embedding_norm: Some(EmbeddingNorm::AfterPositions),
        max_positions: Some(rows.saturating_sub(offset)),
        relative_bias,
        ..Stack::new(layers, heads, ffn_dim)
    };
    Ok(Config {
        family,
        d_model,
        encoder,
        decoder: None,
        stem: None,
        source_vocab: vocab,
        target_vocab: vocab,
        norm: NormPlacement::Post,
        norm_kind: NormKind::LayerNorm { bias: true },
        layer_norm_eps: match class.eps {
            Some(key) => keys.number(key, 1e-12)?,
            None => 1e-12,
        },
        biases: Biases::ALL,
        activation: keys.activation(activation, "gelu")?,
        gated: false,
        attention_scale: None,
        positions: Positions::Learned { offset },
        token_types: if class.token_types { keys.size("type_vocab_size", 2)? } else { 0 },
        embedding_scale: 1.0,
        logit_scale: 1.0,
        ties: TiedWeights { source_target: false, target_output: false },
        tokens: SpecialTokens {
            pad,
            eos: keys.ids("eos_token_id", class.eos)?,
            bos: keys.id("bos_token_id", class.bos)?,
            ..SpecialTokens::default()
        },
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}
