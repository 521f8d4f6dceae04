//! Whisper: the encoder reads audio features through convolutions, the decoder reads a prompt.

use super::json::Fields;
use super::keys::{Keys, TORCH_EPS};
use super::{
    Biases, Config, ConfigError, ConvFrontend, Defaulted, Family, GenerationDefaults, NormKind,
    NormPlacement, Positions, SpecialTokens, Stack, TiedWeights,
};

pub(super) fn read(mut keys: Keys<'_>) -> Result<Config, ConfigError> {
    if !keys.fields.flag("is_encoder_decoder", true)? {
        return Err(ConfigError::NotEncoderDecoder);
    }
    let d_model = keys.size("d_model", 384)?;
    let mut stack = |[layers, heads, ffn_dim, positions]: [&'static str; 4], longest| {
        Ok::<_, ConfigError>(Stack {
            final_norm: true,
            max_positions: Some(keys.size(positions, longest)?),
            ..Stack::new(keys.size(layers, 4)?, keys.size(heads, 6)?, keys.size(ffn_dim, 1536)?)
        })
    };
    let encoder = stack(
        ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "max_source_positions"],
        1500,
    )?;
    let decoder = stack(
        ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "max_target_positions"],
        448,
    )?;
    Ok(Config {
        family: Family::Whisper,
        d_model,
        encoder,
        decoder: Some(decoder),
        stem: Some(ConvFrontend { bins: keys.size("num_mel_bins", 80)? }),
        source_vocab: 0,
        target_vocab: keys.size("vocab_size", 51_865)?,
        norm: NormPlacement::Pre,
        norm_kind: NormKind::LayerNorm { bias: true },
        layer_norm_eps: TORCH_EPS,
        biases: Biases { key: false, ..Biases::ALL },
        activation: keys.activation("activation_function", "gelu")?,
        gated: false,
        attention_scale: None,
        positions: Positions::Learned { offset: 0 },
        token_types: 0,
        // The file contains `scale_embedding`, but the model does not use it.
        embedding_scale: 1.0,
        logit_scale: 1.0,
        ties: TiedWeights {
            source_target: false,
            target_output: keys.fields.flag_or_null("tie_word_embeddings", true)?,
        },
        tokens: SpecialTokens {
            pad: keys.id("pad_token_id", Some(50_256))?,
            eos: keys.ids("eos_token_id", &[50_256])?,
            bos: keys.id("bos_token_id", Some(50_256))?,
            decoder_start: keys.id("decoder_start_token_id", Some(50_257))?,
            forced_bos: keys.id("forced_bos_token_id", None)?,
            forced_eos: keys.ids("forced_eos_token_id", &[])?,
            banned: Vec::new(),
        },
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}

/// Bans a space and the end token at the first position if no file sets this rule.
pub(super) fn class_generation(fields: &Fields, config: &mut Config) {
    const KEY: &str = "begin_suppress_tokens";
    const DEFAULT: [u32; 2] = [220, 50_256];
    if config.family != Family::Whisper || fields.get(KEY).is_some() {
        return;
    }
    let inside = DEFAULT.into_iter().filter(|&id| (id as usize) < config.target_vocab);
    config.generation.begin_suppress_tokens = inside.collect();
    let value = format!("{:?}", config.generation.begin_suppress_tokens);
    config.defaults.push(Defaulted { key: KEY, value });
}
