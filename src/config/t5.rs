//! T5 and its descendants: no bias, positions only in the attention scores, RMSNorm.

use super::json::short;
use super::keys::Keys;
use super::{
    Activation, Biases, Config, ConfigError, Family, GenerationDefaults, NormKind, NormPlacement,
    Positions, RelativeBias, SpecialTokens, Stack, TiedWeights, activation_from_name,
};

pub(super) fn read(mut keys: Keys<'_>, family: Family) -> Result<Config, ConfigError> {
    let first = family == Family::T5;
    let d_model = keys.size("d_model", 512)?;
    let head_dim = Some(keys.size("d_kv", 64)?);
    let ffn_dim = keys.size("d_ff", if first { 2048 } else { 1024 })?;
    let layers = keys.size("num_layers", if first { 6 } else { 8 })?;
    let decoder_layers = keys.fields.optional_size("num_decoder_layers")?.unwrap_or(layers);
    let heads = keys.size("num_heads", if first { 8 } else { 6 })?;
    let vocab = keys.size("vocab_size", if first { 32_128 } else { 250_112 })?;
    let relative_bias = Some(RelativeBias {
        buckets: keys.size("relative_attention_num_buckets", 32)?,
        max_distance: keys.size("relative_attention_max_distance", 128)?,
        per_layer: family == Family::Umt5,
    });
    let stack = |layers| Stack {
        head_dim,
        final_norm: true,
        relative_bias,
        ..Stack::new(layers, heads, ffn_dim)
    };
    let encoder_only = keys
        .fields
        .list("architectures", "a list of names")?
        .iter()
        .any(|name| name.as_str().is_some_and(|name| name.ends_with("EncoderModel")));
    if !encoder_only && !keys.fields.flag("is_encoder_decoder", true)? {
        return Err(ConfigError::NotEncoderDecoder);
    }
    let (activation, gated) = feed_forward(&mut keys, first)?;
    let tied = keys.fields.flag_or_null("tie_word_embeddings", true)?;
    // The first T5 scales the hidden states, and its tie indicates this; files from version 5 on have a separate
    // key. Later models of the same type do not scale, nor do the published mT5 and UMT5.
    let scaled = first && keys.fields.flag_or_null("scale_decoder_outputs", tied)?;
    let start = match family {
        Family::T5 => None,
        _ => Some(0),
    };
    let decoder_start = keys.id("decoder_start_token_id", start)?;
    if decoder_start.is_none() && !encoder_only {
        return Err(ConfigError::MissingKey { key: "decoder_start_token_id" });
    }
    Ok(Config {
        family,
        d_model,
        encoder: stack(layers),
        decoder: (!encoder_only).then(|| stack(decoder_layers)),
        stem: None,
        source_vocab: vocab,
        target_vocab: vocab,
        norm: NormPlacement::Pre,
        norm_kind: NormKind::RmsNorm,
        layer_norm_eps: keys.number("layer_norm_epsilon", 1e-6)?,
        biases: Biases::NONE,
        activation,
        gated,
        attention_scale: Some(1.0),
        positions: Positions::None,
        token_types: 0,
        embedding_scale: 1.0,
        logit_scale: if scaled { (1.0 / (d_model as f64).sqrt()) as f32 } else { 1.0 },
        // If the checkpoint contains both matrices, their numbers decide.
        ties: TiedWeights { source_target: true, target_output: true },
        tokens: SpecialTokens {
            pad: keys.id("pad_token_id", Some(0))?,
            eos: keys.ids("eos_token_id", &[1])?,
            bos: keys.id("bos_token_id", None)?,
            decoder_start,
            forced_bos: keys.id("forced_bos_token_id", None)?,
            forced_eos: keys.ids("forced_eos_token_id", &[])?,
            banned: Vec::new(),
        },
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}

/// `feed_forward_proj`: the activation, and whether there is a gate.
fn feed_forward(keys: &mut Keys<'_>, first: bool) -> Result<(Activation, bool), ConfigError> {
    let text = keys.text("feed_forward_proj", if first { "relu" } else { "gated-gelu" })?;
    let (name, gated) = match text.strip_prefix("gated-") {
        // The only name whose meaning differs.
        Some("gelu") => ("gelu_new", true),
        Some(name) => (name, true),
        None => (text, false),
    };
    let activation = activation_from_name(name);
    let found = || ConfigError::UnknownActivation { found: short(text) };
    Ok((activation.ok_or_else(found)?, gated))
}
