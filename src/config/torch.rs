//! State dicts of `torch.nn.Transformer`, which have no configuration; this crate defines a `config.json` for
//! them.

use super::json::{not_encoder_decoder, unknown_positions};
use super::keys::Keys;
use super::{Config, Family, NormPlacement, Positions, Stack, TiedWeights};
use crate::error::Error;

/// The configuration with all defaults; the dimensions have none.
pub(super) fn defaults() -> Config {
    // The library adds a norm after the last layer even in a post-norm model.
    let stack = Stack { final_norm: true, ..Stack::new(0, 0, 0) };
    Config {
        family: Family::NnTransformer,
        encoder: stack,
        decoder: Some(stack),
        ties: TiedWeights { source_target: false, target_output: false },
        ..Config::base(0)
    }
}

pub(super) fn keys(keys: &mut Keys<'_>, config: &mut Config) -> Result<(), Error> {
    keys.encoder_decoder()?;
    keys.required("d_model", &mut config.d_model)?;
    let encoder = &mut config.encoder;
    let Some(decoder) = &mut config.decoder else { return Err(not_encoder_decoder()) };
    keys.required("nhead", &mut encoder.heads)?;
    keys.required("dim_feedforward", &mut encoder.ffn_dim)?;
    keys.field("max_position_embeddings", &mut encoder.max_positions)?;
    keys.field("bos_token_id", &mut config.tokens.bos)?;
    let names = [("interleaved", Positions::Interleaved), ("half_split", Positions::HalfSplit)];
    keys.choice("positions", &mut config.positions, &names, unknown_positions())?;
    keys.required("num_encoder_layers", &mut encoder.layers)?;
    keys.required("num_decoder_layers", &mut decoder.layers)?;
    *decoder = Stack { layers: decoder.layers, ..*encoder };
    keys.required("src_vocab_size", &mut config.source_vocab)?;
    keys.required("tgt_vocab_size", &mut config.target_vocab)?;
    let mut pre = config.norm == NormPlacement::Pre;
    keys.field("norm_first", &mut pre)?;
    config.norm = if pre { NormPlacement::Pre } else { NormPlacement::Post };
    keys.field("layer_norm_eps", &mut config.layer_norm_eps)?;
    keys.activation("activation", &mut config.activation)?;
    keys.scale("scale_embedding", &mut config.embedding_scale, config.d_model)?;
    keys.field("share_encoder_decoder_embeddings", &mut config.ties.source_target)?;
    keys.field("tie_word_embeddings", &mut config.ties.target_output)?;
    let tokens = &mut config.tokens;
    keys.field("pad_token_id", &mut tokens.pad)?;
    keys.ids("eos_token_id", &mut tokens.eos)?;
    if keys.reads() {
        tokens.decoder_start = tokens.bos;
    }
    keys.field("decoder_start_token_id", &mut tokens.decoder_start)?;
    keys.forced_ids(tokens)
}
