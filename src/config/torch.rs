//! State dicts of `torch.nn.Transformer`, which have no configuration; this crate defines a `config.json` for
//! them.

use super::json::short;
use super::keys::{Keys, TORCH_EPS, scale};
use super::{
    Biases, Config, ConfigError, Family, GenerationDefaults, NormKind, NormPlacement, Positions,
    SpecialTokens, Stack, TiedWeights,
};

pub(super) fn nn_transformer(mut keys: Keys<'_>) -> Result<Config, ConfigError> {
    let fields = keys.fields;
    if !fields.flag("is_encoder_decoder", true)? {
        return Err(ConfigError::NotEncoderDecoder);
    }
    let d_model = fields.required_size("d_model")?;
    let heads = fields.required_size("nhead")?;
    let ffn_dim = fields.required_size("dim_feedforward")?;
    let max_positions = fields.optional_size("max_position_embeddings")?;
    let stack = |layers| {
        let layers = fields.required_size(layers)?;
        // The library adds a norm after the last layer even in a post-norm model.
        Ok(Stack { final_norm: true, max_positions, ..Stack::new(layers, heads, ffn_dim) })
    };
    let bos = fields.id("bos_token_id", None)?;
    let positions = match keys.text("positions", "interleaved")? {
        "interleaved" => Positions::Interleaved,
        "half_split" => Positions::HalfSplit,
        other => return Err(ConfigError::UnknownPositions { found: short(other) }),
    };
    Ok(Config {
        family: Family::NnTransformer,
        d_model,
        encoder: stack("num_encoder_layers")?,
        decoder: Some(stack("num_decoder_layers")?),
        stem: None,
        source_vocab: fields.required_size("src_vocab_size")?,
        target_vocab: fields.required_size("tgt_vocab_size")?,
        norm: if keys.flag("norm_first", false)? {
            NormPlacement::Pre
        } else {
            NormPlacement::Post
        },
        norm_kind: NormKind::LayerNorm { bias: true },
        layer_norm_eps: keys.number("layer_norm_eps", TORCH_EPS)?,
        biases: Biases::ALL,
        activation: keys.activation("activation", "relu")?,
        gated: false,
        attention_scale: None,
        positions,
        token_types: 0,
        embedding_scale: scale(keys.flag("scale_embedding", true)?, d_model),
        logit_scale: 1.0,
        ties: TiedWeights {
            source_target: keys.flag("share_encoder_decoder_embeddings", false)?,
            target_output: keys.flag("tie_word_embeddings", false)?,
        },
        tokens: SpecialTokens {
            pad: keys.id("pad_token_id", None)?,
            eos: keys.ids("eos_token_id", &[])?,
            bos,
            decoder_start: keys.id("decoder_start_token_id", bos)?,
            forced_bos: keys.id("forced_bos_token_id", None)?,
            forced_eos: keys.ids("forced_eos_token_id", &[])?,
            banned: Vec::new(),
        },
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}
