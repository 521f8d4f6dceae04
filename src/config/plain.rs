//! The `config.json` of [`Family::Plain`](super::Family::Plain): a key for each field of a [`Config`]. A missing key
//! has the value of the paper's base model.

use super::json::{unknown_name, unknown_positions};
use super::keys::Keys;
use super::{Activation, Config, NormKind, NormPlacement, Positions, RelativeBias, Stack};
use crate::error::Error;
use std::collections::BTreeMap;

impl Config {
    /// A text of all settings that can change a result: lines of `key value`, sorted. It contains neither the
    /// [family](Config::family), which only names tensors, nor [`Config::defaults`] and
    /// [`Config::unsupported`], which only inform.
    pub(crate) fn identity(&self) -> String {
        // A `config.json` has names for some activations only.
        let mut config = Self { activation: Activation::Identity, ..self.clone() };
        let mut pass = Keys::for_writing();
        let written = keys(&mut pass, &mut config);
        let written = written.and_then(|()| config.settings_keys(&mut pass, &Self::base(0)));
        // The first has a line below, the others are of the caller, whose sources have them.
        for key in ["bad_words_ids", "source_begin_token_id", "source_end_token_id"] {
            pass.written.remove(key);
        }
        let lines = pass.written.iter().map(|(key, value)| (key.as_str(), value.to_string()));
        let mut lines: BTreeMap<&str, String> = lines.collect();
        lines.insert("activation", format!("{:?}", self.activation));
        lines.insert("banned", format!("{:?}", self.tokens.banned));
        lines.insert("bad_words", format!("{:?}", self.settings.options.bad_words));
        if let Err(error) = written {
            // No setting of a valid configuration reaches this line.
            lines.insert("error", error.to_string());
        }
        lines.into_iter().map(|(key, value)| format!("{key} {value}\n")).collect()
    }
}

macro_rules! stack_keys {
    ($side:literal) => {
        [
            concat!($side, "_layers"),
            concat!($side, "_attention_heads"),
            concat!($side, "_head_dim"),
            concat!($side, "_ffn_dim"),
            concat!($side, "_embedding_norm"),
            concat!($side, "_final_norm"),
            concat!($side, "_max_positions"),
            concat!($side, "_relative_buckets"),
            concat!($side, "_relative_max_distance"),
            concat!($side, "_relative_per_layer"),
        ]
    };
}

pub(super) fn keys(keys: &mut Keys<'_>, config: &mut Config) -> Result<(), Error> {
    keys.required("d_model", &mut config.d_model)?;
    keys.required("source_vocab_size", &mut config.source_vocab)?;
    keys.required("target_vocab_size", &mut config.target_vocab)?;
    let mut decodes = config.decoder.is_some();
    keys.field("is_encoder_decoder", &mut decodes)?;
    stack(keys, &ENCODER, &mut config.encoder)?;
    config.decoder = config.decoder.filter(|_| decodes);
    if let Some(decoder) = &mut config.decoder {
        stack(keys, &DECODER, decoder)?;
    }
    keys.field("num_mel_bins", &mut config.bins)?;
    let places = [("pre", NormPlacement::Pre), ("post", NormPlacement::Post)];
    keys.choice("norm", &mut config.norm, &places, unknown_name("norm", "\"pre\" or \"post\""))?;
    let kinds = [
        ("layer_norm", NormKind::LayerNorm { bias: true }),
        ("layer_norm_without_bias", NormKind::LayerNorm { bias: false }),
        ("rms_norm", NormKind::RmsNorm),
    ];
    let unknown =
        unknown_name("norm_kind", "\"layer_norm\", \"layer_norm_without_bias\" or \"rms_norm\"");
    keys.choice("norm_kind", &mut config.norm_kind, &kinds, unknown)?;
    keys.field("layer_norm_eps", &mut config.layer_norm_eps)?;
    let biases = &mut config.biases;
    for (key, bias) in [
        ("query_bias", &mut biases.query),
        ("key_bias", &mut biases.key),
        ("value_bias", &mut biases.value),
        ("attention_output_bias", &mut biases.attention_output),
        ("feed_forward_bias", &mut biases.feed_forward),
        ("gated", &mut config.gated),
        ("share_encoder_decoder_embeddings", &mut config.ties.source_target),
        ("tie_word_embeddings", &mut config.ties.target_output),
    ] {
        keys.field(key, bias)?;
    }
    keys.activation("activation_function", &mut config.activation)?;
    keys.field("attention_scale", &mut config.attention_scale)?;
    let mut offset = match config.positions {
        Positions::HalfSplitClosed { offset }
        | Positions::HalfSplitSingle { offset }
        | Positions::Learned { offset } => offset,
        Positions::HalfSplit | Positions::Interleaved | Positions::None => 0,
    };
    keys.field("position_offset", &mut offset)?;
    let positions = [
        ("half_split", Positions::HalfSplit),
        ("half_split_closed", Positions::HalfSplitClosed { offset }),
        ("half_split_single", Positions::HalfSplitSingle { offset }),
        ("interleaved", Positions::Interleaved),
        ("learned", Positions::Learned { offset }),
        ("none", Positions::None),
    ];
    keys.choice("positions", &mut config.positions, &positions, unknown_positions())?;
    keys.field("type_vocab_size", &mut config.token_types)?;
    keys.field("embedding_scale", &mut config.embedding_scale)?;
    keys.field("logit_scale", &mut config.logit_scale)?;
    let tokens = &mut config.tokens;
    keys.field("pad_token_id", &mut tokens.pad)?;
    keys.ids("eos_token_id", &mut tokens.eos)?;
    keys.field("bos_token_id", &mut tokens.bos)?;
    keys.optional("source_begin_token_id", &mut tokens.source_begin, &None)?;
    keys.optional("source_end_token_id", &mut tokens.source_end, &None)?;
    keys.field("decoder_start_token_id", &mut tokens.decoder_start)?;
    keys.forced_ids(tokens)
}

/// The keys of a stack, in the order of [`stack`].
type StackKeys = [&'static str; 10];

const ENCODER: StackKeys = stack_keys!("encoder");
const DECODER: StackKeys = stack_keys!("decoder");

fn stack(keys: &mut Keys<'_>, names: &StackKeys, stack: &mut Stack) -> Result<(), Error> {
    let &[
        layers,
        heads,
        head_dim,
        ffn_dim,
        embedding_norm,
        final_norm,
        max_positions,
        buckets,
        max_distance,
        per_layer,
    ] = names;
    keys.required(layers, &mut stack.layers)?;
    keys.required(heads, &mut stack.heads)?;
    keys.field(head_dim, &mut stack.head_dim)?;
    keys.required(ffn_dim, &mut stack.ffn_dim)?;
    let norms = [
        ("none", None),
        ("before_positions", Some(NormPlacement::Pre)),
        ("after_positions", Some(NormPlacement::Post)),
    ];
    let unknown =
        unknown_name(embedding_norm, "\"none\", \"before_positions\" or \"after_positions\"");
    keys.choice(embedding_norm, &mut stack.embedding_norm, &norms, unknown)?;
    keys.field(final_norm, &mut stack.final_norm)?;
    keys.field(max_positions, &mut stack.max_positions)?;
    let mut rows = stack.relative_bias.map(|bias| bias.buckets);
    keys.field(buckets, &mut rows)?;
    let t5 = RelativeBias { buckets: 0, max_distance: 128, per_layer: false };
    let mut bias = stack.relative_bias.unwrap_or(t5);
    keys.optional(max_distance, &mut bias.max_distance, &t5.max_distance)?;
    keys.optional(per_layer, &mut bias.per_layer, &t5.per_layer)?;
    stack.relative_bias = rows.map(|buckets| RelativeBias { buckets, ..bias });
    Ok(())
}
