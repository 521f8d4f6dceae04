//! T5 and its descendants: no bias, positions only in the attention scores, RMSNorm.

use super::arch::ACTIVATIONS;
use super::json::{missing_key, unknown_activation};
use super::keys::Keys;
use super::{
    Activation, Biases, Config, Family, NormKind, NormPlacement, Positions, RelativeBias,
    SpecialTokens, Stack, TiedWeights,
};
use crate::error::Error;

/// The configuration with all defaults of its class.
pub(super) fn defaults(family: Family) -> Config {
    let first = family == Family::T5;
    let (vocab, layers, heads, ffn_dim) =
        if first { (32_128, 6, 8, 2048) } else { (250_112, 8, 6, 1024) };
    let per_layer = family == Family::Umt5;
    let stack = Stack {
        head_dim: Some(64),
        final_norm: true,
        relative_bias: Some(RelativeBias { buckets: 32, max_distance: 128, per_layer }),
        ..Stack::new(layers, heads, ffn_dim)
    };
    Config {
        family,
        encoder: stack,
        decoder: Some(stack),
        norm: NormPlacement::Pre,
        norm_kind: NormKind::RmsNorm,
        layer_norm_eps: 1e-6,
        biases: Biases::NONE,
        activation: if first { Activation::Relu } else { Activation::GeluTanh },
        gated: !first,
        attention_scale: Some(1.0),
        positions: Positions::None,
        embedding_scale: 1.0,
        tokens: SpecialTokens {
            pad: Some(0),
            eos: vec![1],
            decoder_start: if first { None } else { Some(0) },
            ..SpecialTokens::default()
        },
        ..Config::base(vocab)
    }
}

pub(super) fn keys(keys: &mut Keys<'_>, config: &mut Config) -> Result<(), Error> {
    let first = config.family == Family::T5;
    let stack = &mut config.encoder;
    let mut head_dim = stack.head_dim.unwrap_or(config.d_model / stack.heads.max(1));
    keys.field("d_model", &mut config.d_model)?;
    keys.field("d_kv", &mut head_dim)?;
    stack.head_dim = Some(head_dim);
    keys.field("d_ff", &mut stack.ffn_dim)?;
    keys.field("num_layers", &mut stack.layers)?;
    let mut decoder_layers = config.decoder.map_or(stack.layers, |decoder| decoder.layers);
    keys.optional("num_decoder_layers", &mut decoder_layers, &stack.layers)?;
    keys.field("num_heads", &mut stack.heads)?;
    keys.field("vocab_size", &mut config.target_vocab)?;
    config.source_vocab = config.target_vocab;
    if let Some(bias) = &mut stack.relative_bias {
        keys.field("relative_attention_num_buckets", &mut bias.buckets)?;
        keys.field("relative_attention_max_distance", &mut bias.max_distance)?;
    }
    const CLASSES: &str = "architectures";
    let mut encoder_only = config.decoder.is_none();
    let class = encoder_only.then(|| vec!["T5EncoderModel"].into());
    keys.fixed(CLASSES, class, |fields| {
        let names =
            fields.list(CLASSES, "a list of names")?.iter().filter_map(|name| name.as_str());
        encoder_only = names.into_iter().any(|name| name.ends_with("EncoderModel"));
        Ok(())
    })?;
    if !encoder_only {
        keys.encoder_decoder()?;
    }
    config.decoder = (!encoder_only).then_some(Stack { layers: decoder_layers, ..*stack });
    let mut feed_forward = (config.activation, config.gated);
    keys.text("feed_forward_proj", &mut feed_forward, feed_forward_name, feed_forward_from_name)?;
    (config.activation, config.gated) = feed_forward;
    let mut tied = config.ties.target_output;
    keys.optional("tie_word_embeddings", &mut tied, &true)?;
    // The first T5 scales the hidden states, and its tie indicates this; files from version 5 on have a separate
    // key. Later models of the same type do not scale, nor do the published mT5 and UMT5.
    let mut scaled = config.logit_scale != 1.0;
    if first {
        keys.optional("scale_decoder_outputs", &mut scaled, &tied)?;
    }
    config.logit_scale = if scaled { (1.0 / (config.d_model as f64).sqrt()) as f32 } else { 1.0 };
    // If the checkpoint contains both matrices, their numbers decide.
    config.ties = TiedWeights { source_target: true, target_output: true };
    let tokens = &mut config.tokens;
    keys.field("decoder_start_token_id", &mut tokens.decoder_start)?;
    if tokens.decoder_start.is_none() && !encoder_only {
        return Err(missing_key("decoder_start_token_id"));
    }
    keys.field("layer_norm_epsilon", &mut config.layer_norm_eps)?;
    keys.field("pad_token_id", &mut tokens.pad)?;
    keys.ids("eos_token_id", &mut tokens.eos)?;
    keys.field("bos_token_id", &mut tokens.bos)?;
    keys.forced_ids(tokens)
}

/// `feed_forward_proj`: the activation, and whether there is a gate.
fn feed_forward_from_name(text: &str) -> Result<(Activation, bool), Error> {
    let (name, gated) = match text.strip_prefix("gated-") {
        // The only name whose meaning differs.
        Some("gelu") => ("gelu_new", true),
        Some(name) => (name, true),
        None => (text, false),
    };
    match ACTIVATIONS.into_iter().find(|(known, _)| *known == name) {
        Some((_, activation)) => Ok((activation, gated)),
        None => Err(unknown_activation("feed_forward_proj")(text)),
    }
}

fn feed_forward_name(&(activation, gated): &(Activation, bool)) -> String {
    let known = ACTIVATIONS.into_iter().find(|&(_, known)| known == activation);
    let name = known.map_or("", |(name, _)| name);
    match (name, gated) {
        (name, false) => name.to_owned(),
        ("gelu_new", true) => "gated-gelu".to_owned(),
        ("gelu", true) => "gated-gelu_python".to_owned(),
        (name, true) => format!("gated-{name}"),
    }
}
