//! The encoder-decoders that transformers derived from fairseq: one row of defaults for each class.

use super::json::{Fields, not_encoder_decoder};
use super::keys::{Keys, TORCH_EPS, after_pad, scale};
use super::{
    Activation, Config, Family, NormPlacement, Positions, SpecialTokens, Stack, TiedWeights,
};
use crate::error::Error;

/// The defaults that differ between the configuration classes and models.
struct Class {
    vocab: usize,
    width: (&'static str, usize),
    /// Of encoder and decoder.
    layers: [usize; 2],
    heads: usize,
    ffn_dim: usize,
    activation: Activation,
    scale_embedding: bool,
    tied: bool,
    pad: u32,
    bos: Option<u32>,
    eos: u32,
    decoder_start: Option<u32>,
    forced_eos: &'static [u32],
    norm: NormPlacement,
    /// Of encoder and decoder.
    embedding_norm: [Option<NormPlacement>; 2],
    final_norm: bool,
    positions: Written,
    max_positions: usize,
}

/// The encoding of positions.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    HalfSplit,
    Learned(usize),
    /// fairseq counts positions from pad id + 1; its table grows on demand.
    AfterPad,
    /// As `AfterPad`, in single precision.
    AfterPadSingle,
}

const BART: Class = Class {
    vocab: 50_265,
    width: ("d_model", 1024),
    layers: [12, 12],
    heads: 16,
    ffn_dim: 4096,
    activation: Activation::Gelu,
    scale_embedding: false,
    tied: true,
    pad: 1,
    bos: Some(0),
    eos: 2,
    decoder_start: Some(2),
    forced_eos: &[2],
    norm: NormPlacement::Post,
    embedding_norm: [Some(NormPlacement::Post); 2],
    final_norm: false,
    positions: Written::Learned(2),
    max_positions: 1024,
};

const MARIAN: Class = Class {
    vocab: 58_101,
    pad: 58_100,
    bos: None,
    eos: 0,
    decoder_start: Some(58_100),
    forced_eos: &[0],
    embedding_norm: [None; 2],
    positions: Written::HalfSplit,
    ..BART
};

const MBART: Class =
    Class { decoder_start: None, norm: NormPlacement::Pre, final_norm: true, ..BART };

const M2M100: Class = Class {
    vocab: 128_112,
    activation: Activation::Relu,
    scale_embedding: true,
    forced_eos: &[],
    norm: NormPlacement::Pre,
    embedding_norm: [None; 2],
    final_norm: true,
    positions: Written::AfterPad,
    ..BART
};

const PEGASUS: Class = Class {
    pad: 0,
    bos: None,
    eos: 1,
    decoder_start: Some(0),
    forced_eos: &[1],
    norm: NormPlacement::Pre,
    embedding_norm: [None; 2],
    final_norm: true,
    positions: Written::HalfSplit,
    ..BART
};

const BLENDERBOT: Class = Class {
    vocab: 8008,
    width: ("d_model", 2560),
    layers: [2, 24],
    heads: 32,
    ffn_dim: 10_240,
    pad: 0,
    bos: Some(1),
    eos: 2,
    decoder_start: Some(1),
    norm: NormPlacement::Pre,
    embedding_norm: [None; 2],
    final_norm: true,
    positions: Written::Learned(0),
    max_positions: 128,
    ..BART
};

const BLENDERBOT_SMALL: Class = Class {
    width: ("d_model", 512),
    layers: [8, 8],
    ffn_dim: 2048,
    pad: 0,
    bos: Some(1),
    decoder_start: Some(1),
    embedding_norm: [Some(NormPlacement::Post), Some(NormPlacement::Pre)],
    positions: Written::Learned(0),
    max_positions: 512,
    ..BART
};

const MVP: Class = Class { vocab: 50_267, forced_eos: &[], ..BART };

const PLBART: Class = Class {
    vocab: 50_005,
    width: ("d_model", 768),
    layers: [6, 6],
    heads: 12,
    ffn_dim: 3072,
    scale_embedding: true,
    decoder_start: None,
    ..BART
};

const FSMT: Class = Class {
    vocab: 42_024,
    activation: Activation::Relu,
    scale_embedding: true,
    tied: false,
    embedding_norm: [None; 2],
    positions: Written::AfterPadSingle,
    ..BART
};

const SEAMLESS: Class = Class {
    vocab: 256_102,
    width: ("hidden_size", 1024),
    layers: [24, 24],
    ffn_dim: 8192,
    pad: 0,
    bos: Some(2),
    eos: 3,
    decoder_start: Some(3),
    positions: Written::AfterPadSingle,
    ..M2M100
};

const fn class(family: Family) -> Class {
    match family {
        Family::Marian => MARIAN,
        Family::MBart => MBART,
        Family::M2M100 => M2M100,
        Family::Pegasus => PEGASUS,
        Family::Blenderbot => BLENDERBOT,
        Family::BlenderbotSmall => BLENDERBOT_SMALL,
        Family::Mvp => MVP,
        Family::PlBart => PLBART,
        Family::Fsmt => FSMT,
        Family::SeamlessM4t | Family::SeamlessM4tV2 => SEAMLESS,
        _ => BART,
    }
}

/// The configuration with all defaults of its class.
pub(super) fn defaults(family: Family) -> Config {
    let class = class(family);
    let (_, d_model) = class.width;
    let stack = |side: usize| Stack {
        embedding_norm: class.embedding_norm[side],
        final_norm: class.final_norm,
        max_positions: Some(class.max_positions),
        ..Stack::new(class.layers[side], class.heads, class.ffn_dim)
    };
    Config {
        family,
        d_model,
        encoder: stack(0),
        decoder: Some(stack(1)),
        source_vocab: class.vocab,
        target_vocab: class.vocab,
        norm: class.norm,
        layer_norm_eps: TORCH_EPS,
        activation: class.activation,
        embedding_scale: scale(class.scale_embedding, d_model),
        ties: TiedWeights { source_target: true, target_output: class.tied },
        tokens: SpecialTokens {
            pad: Some(class.pad),
            eos: vec![class.eos],
            bos: class.bos,
            decoder_start: class.decoder_start,
            forced_eos: class.forced_eos.to_vec(),
            ..SpecialTokens::default()
        },
        ..Config::base(class.vocab)
    }
}

pub(super) fn keys(keys: &mut Keys<'_>, config: &mut Config) -> Result<(), Error> {
    let (family, class) = (config.family, class(config.family));
    keys.encoder_decoder()?;
    keys.never("use_prompt", "false (prompts of MVP are not built)")?;
    let Some(decoder) = &mut config.decoder else { return Err(not_encoder_decoder()) };
    for (stack, [layers, heads, ffn_dim]) in [
        (&mut config.encoder, ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"]),
        (&mut *decoder, ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"]),
    ] {
        keys.field(layers, &mut stack.layers)?;
        keys.field(heads, &mut stack.heads)?;
        keys.field(ffn_dim, &mut stack.ffn_dim)?;
    }
    keys.field(class.width.0, &mut config.d_model)?;
    if family == Family::Fsmt {
        keys.field("src_vocab_size", &mut config.source_vocab)?;
        keys.field("tgt_vocab_size", &mut config.target_vocab)?;
    } else {
        keys.field("vocab_size", &mut config.source_vocab)?;
        let mut target = Some(config.target_vocab).filter(|&n| n != config.source_vocab);
        keys.optional("decoder_vocab_size", &mut target, &None)?;
        let target = target.filter(|_| family == Family::Marian);
        config.target_vocab = target.unwrap_or(config.source_vocab);
    }
    let tokens = &mut config.tokens;
    keys.field("pad_token_id", &mut tokens.pad)?;
    const POSITIONS: &str = "max_position_embeddings";
    let mut longest = decoder.max_positions.unwrap_or(class.max_positions);
    let max_positions = match class.positions {
        // The table grows on demand.
        Written::AfterPad | Written::AfterPadSingle => {
            keys.fixed(POSITIONS, None, |fields| fields.size(POSITIONS, 0).map(drop))?;
            None
        }
        Written::HalfSplit | Written::Learned(_) => {
            keys.field(POSITIONS, &mut longest)?;
            Some(longest)
        }
    };
    (config.encoder.max_positions, decoder.max_positions) = (max_positions, max_positions);
    config.positions = match class.positions {
        Written::HalfSplit => Positions::HalfSplit,
        Written::Learned(offset) => Positions::Learned { offset },
        Written::AfterPad => Positions::HalfSplitClosed { offset: after_pad(tokens.pad)? },
        Written::AfterPadSingle => Positions::HalfSplitSingle { offset: after_pad(tokens.pad)? },
    };
    keys.activation("activation_function", &mut config.activation)?;
    keys.scale("scale_embedding", &mut config.embedding_scale, config.d_model)?;
    let ties = &mut config.ties;
    match family {
        Family::Marian => {
            keys.field("share_encoder_decoder_embeddings", &mut ties.source_target)?;
            keys.field("tie_word_embeddings", &mut ties.target_output)?;
        }
        _ => {
            keys.field("tie_word_embeddings", &mut ties.target_output)?;
            // FSMT has one setting for both ties, and its vocabularies may differ.
            ties.source_target = family != Family::Fsmt || ties.target_output;
        }
    }
    keys.ids("eos_token_id", &mut tokens.eos)?;
    keys.field("bos_token_id", &mut tokens.bos)?;
    keys.field("decoder_start_token_id", &mut tokens.decoder_start)?;
    keys.forced_ids(tokens)
}

/// Generation settings of a class that apply if no file sets them.
pub(super) fn class_generation(fields: &Fields, config: &mut Config) {
    let absent = |key: &str| fields.get(key).is_none();
    let settings = &mut config.settings;
    match config.family {
        Family::Blenderbot if absent("encoder_no_repeat_ngram_size") => {
            settings.options.encoder_no_repeat_ngram = Some(3);
        }
        Family::Fsmt => {
            if absent("num_beams") {
                settings.beam.beams = 5;
            }
            if absent("max_length") {
                settings.options.max_length = Some(200);
            }
        }
        Family::SeamlessM4t | Family::SeamlessM4tV2 if absent("max_new_tokens") => {
            settings.options.max_new_tokens = Some(256);
        }
        _ => (),
    }
}
