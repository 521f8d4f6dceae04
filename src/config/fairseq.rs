//! The encoder-decoders that transformers derived from fairseq: one row of defaults for each class.

use super::json::Fields;
use super::keys::{Keys, TORCH_EPS, scale};
use super::{
    Biases, Config, ConfigError, EmbeddingNorm, Family, GenerationDefaults, NormKind,
    NormPlacement, Positions, SpecialTokens, Stack, TiedWeights,
};

/// The defaults that differ between the configuration classes and models.
struct Class {
    vocab: usize,
    width: (&'static str, usize),
    /// Of encoder and decoder.
    layers: [usize; 2],
    heads: usize,
    ffn_dim: usize,
    activation: &'static str,
    scale_embedding: bool,
    tied: bool,
    pad: u32,
    bos: Option<u32>,
    eos: u32,
    decoder_start: Option<u32>,
    forced_eos: &'static [u32],
    norm: NormPlacement,
    /// Of encoder and decoder.
    embedding_norm: [Option<EmbeddingNorm>; 2],
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
    activation: "gelu",
    scale_embedding: false,
    tied: true,
    pad: 1,
    bos: Some(0),
    eos: 2,
    decoder_start: Some(2),
    forced_eos: &[2],
    norm: NormPlacement::Post,
    embedding_norm: [Some(EmbeddingNorm::AfterPositions); 2],
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
    activation: "relu",
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
    embedding_norm: [Some(EmbeddingNorm::AfterPositions), Some(EmbeddingNorm::BeforePositions)],
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
    activation: "relu",
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

pub(super) fn read(mut keys: Keys<'_>, family: Family) -> Result<Config, ConfigError> {
    let class = match family {
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
    };
    if !keys.fields.flag("is_encoder_decoder", true)? {
        return Err(ConfigError::NotEncoderDecoder);
    }
    keys.never("use_prompt", "false (prompts of MVP are not built)")?;
    let mut stack = |side: usize, [layers, heads, ffn_dim]: [&'static str; 3]| {
        let (layers, heads) =
            (keys.size(layers, class.layers[side])?, keys.size(heads, class.heads)?);
        Ok::<_, ConfigError>(Stack {
            embedding_norm: class.embedding_norm[side],
            final_norm: class.final_norm,
            ..Stack::new(layers, heads, keys.size(ffn_dim, class.ffn_dim)?)
        })
    };
    let encoder = stack(0, ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"])?;
    let decoder = stack(1, ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"])?;
    let (width, default) = class.width;
    let d_model = keys.size(width, default)?;
    let (source_vocab, target_vocab) = vocabularies(&mut keys, family, class.vocab)?;
    let pad = keys.id("pad_token_id", Some(class.pad))?;
    const POSITIONS: &str = "max_position_embeddings";
    let grows = matches!(class.positions, Written::AfterPad | Written::AfterPadSingle);
    let max_positions = match grows {
        true => keys.fields.size(POSITIONS, class.max_positions).map(|_| None)?,
        false => Some(keys.size(POSITIONS, class.max_positions)?),
    };
    let positions = match class.positions {
        Written::HalfSplit => Positions::HalfSplit,
        Written::Learned(offset) => Positions::Learned { offset },
        Written::AfterPad => Positions::HalfSplitClosed { offset: keys.after_pad(pad)? },
        Written::AfterPadSingle => Positions::HalfSplitSingle { offset: keys.after_pad(pad)? },
    };
    let activation = keys.activation("activation_function", class.activation)?;
    let embedding_scale = scale(keys.flag("scale_embedding", class.scale_embedding)?, d_model);
    let shared = match family {
        Family::Marian => keys.flag("share_encoder_decoder_embeddings", true)?,
        _ => true,
    };
    let tied = keys.flag("tie_word_embeddings", class.tied)?;
    let tokens = SpecialTokens {
        pad,
        eos: keys.ids("eos_token_id", &[class.eos])?,
        bos: keys.id("bos_token_id", class.bos)?,
        decoder_start: keys.id("decoder_start_token_id", class.decoder_start)?,
        forced_bos: keys.id("forced_bos_token_id", None)?,
        forced_eos: keys.ids("forced_eos_token_id", class.forced_eos)?,
        banned: Vec::new(),
    };
    Ok(Config {
        family,
        d_model,
        encoder: Stack { max_positions, ..encoder },
        decoder: Some(Stack { max_positions, ..decoder }),
        stem: None,
        source_vocab,
        target_vocab,
        norm: class.norm,
        norm_kind: NormKind::LayerNorm { bias: true },
        layer_norm_eps: TORCH_EPS,
        biases: Biases::ALL,
        activation,
        gated: false,
        attention_scale: None,
        positions,
        token_types: 0,
        embedding_scale,
        logit_scale: 1.0,
        ties: TiedWeights {
            // FSMT has one setting for both ties, and its vocabularies may differ.
            source_target: shared && (family != Family::Fsmt || tied),
            target_output: tied,
        },
        tokens,
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}

fn vocabularies(
    keys: &mut Keys<'_>,
    family: Family,
    default: usize,
) -> Result<(usize, usize), ConfigError> {
    if family == Family::Fsmt {
        return Ok((keys.size("src_vocab_size", default)?, keys.size("tgt_vocab_size", default)?));
    }
    let source = keys.size("vocab_size", default)?;
    let target = keys.fields.optional_size("decoder_vocab_size")?;
    Ok((source, target.filter(|_| family == Family::Marian).unwrap_or(source)))
}

/// Generation settings of a class that apply if no file sets them.
pub(super) fn class_generation(fields: &Fields, config: &mut Config) {
    let absent = |key: &str| fields.get(key).is_none();
    let generation = &mut config.generation;
    match config.family {
        Family::Blenderbot if absent("encoder_no_repeat_ngram_size") => {
            generation.encoder_no_repeat_ngram_size = 3;
        }
        Family::Fsmt => {
            if absent("num_beams") {
                generation.num_beams = 5;
            }
            if absent("max_length") {
                generation.max_length = Some(200);
            }
        }
        Family::SeamlessM4t | Family::SeamlessM4tV2 if absent("max_new_tokens") => {
            generation.max_new_tokens = Some(256);
        }
        _ => (),
    }
}
