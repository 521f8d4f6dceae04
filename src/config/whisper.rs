//! Whisper: the encoder reads audio features through convolutions, the decoder reads a prompt.

use super::json::{Fields, not_encoder_decoder};
use super::keys::Keys;
use super::{
    Activation, Biases, Config, Dimensions, Family, NormPlacement, Positions, SpecialTokens, Stack,
    TiedWeights,
};
use crate::error::Error;

/// The configuration with all defaults of its class.
pub(super) fn defaults() -> Config {
    let tiny = Dimensions { d_model: 384, heads: 6, layers: 4, ffn_dim: 1536, vocabulary: 51_865 };
    let stack = |positions| Stack {
        final_norm: true,
        max_positions: Some(positions),
        ..Stack::new(tiny.layers, tiny.heads, tiny.ffn_dim)
    };
    Config {
        family: Family::Whisper,
        encoder: stack(1500),
        decoder: Some(stack(448)),
        bins: Some(80),
        source_vocab: 0,
        norm: NormPlacement::Pre,
        biases: Biases { key: false, ..Biases::ALL },
        activation: Activation::Gelu,
        positions: Positions::Learned { offset: 0 },
        // The file contains `scale_embedding`, but the model does not use it.
        embedding_scale: 1.0,
        ties: TiedWeights { source_target: false, target_output: true },
        tokens: SpecialTokens {
            pad: Some(50_256),
            eos: vec![50_256],
            bos: Some(50_256),
            decoder_start: Some(50_257),
            ..SpecialTokens::default()
        },
        ..Config::transformer(tiny)
    }
}

pub(super) fn keys(keys: &mut Keys<'_>, config: &mut Config) -> Result<(), Error> {
    keys.encoder_decoder()?;
    keys.field("d_model", &mut config.d_model)?;
    let Some(decoder) = &mut config.decoder else { return Err(not_encoder_decoder()) };
    for (stack, positions, [layers, heads, ffn_dim]) in [
        (
            &mut config.encoder,
            "max_source_positions",
            ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"],
        ),
        (
            decoder,
            "max_target_positions",
            ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"],
        ),
    ] {
        let mut longest = stack.max_positions.unwrap_or(0);
        keys.field(positions, &mut longest)?;
        stack.max_positions = Some(longest);
        keys.field(layers, &mut stack.layers)?;
        keys.field(heads, &mut stack.heads)?;
        keys.field(ffn_dim, &mut stack.ffn_dim)?;
    }
    if let Some(bins) = &mut config.bins {
        keys.field("num_mel_bins", bins)?;
    }
    keys.field("vocab_size", &mut config.target_vocab)?;
    keys.activation("activation_function", &mut config.activation)?;
    keys.optional("tie_word_embeddings", &mut config.ties.target_output, &true)?;
    let tokens = &mut config.tokens;
    keys.field("pad_token_id", &mut tokens.pad)?;
    keys.ids("eos_token_id", &mut tokens.eos)?;
    keys.field("bos_token_id", &mut tokens.bos)?;
    keys.field("decoder_start_token_id", &mut tokens.decoder_start)?;
    keys.forced_ids(tokens)
}

/// Bans a space and the end token at the first position if no file sets this rule.
pub(super) fn class_generation(fields: &Fields, config: &mut Config) {
    const KEY: &str = "begin_suppress_tokens";
    const DEFAULT: [u32; 2] = [220, 50_256];
    if config.family != Family::Whisper || fields.get(KEY).is_some() {
        return;
    }
    let inside = DEFAULT.into_iter().filter(|&id| (id as usize) < config.target_vocab);
    config.settings.options.begin_suppress = inside.collect();
    let value = format!("{:?}", config.settings.options.begin_suppress);
    config.defaults.push((KEY, value));
}
