//! The architecture as data: all settings that distinguish one encoder-decoder Transformer from another.
//!
//! Published models differ in a few choices: the position of the norm, the encoding of positions, the tied
//! matrices, the first target token. A wrong choice generates fluent but wrong text instead of an error. These
//! choices are therefore fields of [`Config`], and the layers read them; no layer depends on the name of a
//! model.
//!
//! A [`Config`] comes from a Hugging Face `config.json` through [`Config::from_hugging_face`], from a
//! checkpoint directory through [`crate::checkpoint::Checkpoint::open`], or from code, starting with
//! [`Config::transformer`]. [`Config::validate`] checks it.

mod arch;
pub(crate) mod ctranslate2;
mod encoder_only;
mod fairseq;
mod generation;
mod hugging_face;
mod json;
mod keys;
mod plain;
mod presets;
mod relative;
mod t5;
mod torch;
mod transcription;
mod whisper;

pub use crate::search::{EarlyStopping, Settings};
pub use arch::{
    Biases, Dimensions, Family, NormKind, NormPlacement, Positions, RelativeBias, Side,
    SpecialTokens, Stack, TiedWeights,
};
#[cfg(feature = "train")]
pub(crate) use json::first_size;
pub(crate) use json::{Fields, MODEL_TYPE};
/// The function between the two matrices of the feed-forward block.
pub use simdformer_kernels::Activation;
pub use transcription::Transcription;

use crate::error::Error;
use arch::Part;
use json::{ids_inside, not_in_family};
use std::borrow::Cow;

/// Maximum `d_model`, feed-forward width or position count. Published models stay below a hundredth of it;
/// beyond it products of dimensions could overflow.
const MAX_DIMENSION: usize = 1 << 24;

/// Maximum number of layers of a stack: lists of the model's parts contain all layers.
const MAX_LAYERS: usize = 1 << 12;

/// Maximum vocabulary: ids are `u32`, and products with `d_model` must not overflow.
const MAX_VOCABULARY: usize = 1 << 28;

/// The architecture of an encoder-decoder Transformer, without its weights.
///
/// In code: start with the paper's model and change the fields that differ.
///
/// ```
/// use simdformer::checkpoint::TensorId;
/// use simdformer::config::{
///     Activation, Config, Dimensions, NormPlacement, Positions, SpecialTokens, Stack, TiedWeights,
/// };
///
/// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
/// let paper = Config::transformer(small);
/// // The architecture of M2M100: norms before each block and after the last layer; a decoder of one
/// // layer; two vocabularies, so that only the output is tied.
/// let config = Config {
///     norm: NormPlacement::Pre,
///     encoder: Stack { final_norm: true, max_positions: Some(512), ..paper.encoder },
///     decoder: Some(Stack { final_norm: true, max_positions: Some(512), ..Stack::new(1, 4, 256) }),
///     activation: Activation::Gelu,
///     positions: Positions::Learned { offset: 0 },
///     target_vocab: 1200,
///     ties: TiedWeights { source_target: false, target_output: true },
///     tokens: SpecialTokens { decoder_start: Some(1), eos: vec![2], ..SpecialTokens::default() },
///     ..paper
/// };
/// config.validate()?;
///
/// // The tensors of its weights, in the order of use, and their names in a checkpoint.
/// for role in TensorId::all(&config) {
///     println!("{role} {:?}: {}", role.shape(&config), role.names(&config).join(" or "));
/// }
/// let tied = ["output.weight", "decoder.embedding.weight"];
/// assert_eq!(TensorId::Output.names(&config), tied);
/// assert_eq!(TensorId::Output.shape(&config), Some(vec![1200, 64]));
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The family whose tensor names the checkpoint uses.
    pub family: Family,
    /// Width of the vectors between layers: activations are `[tokens, d_model]`.
    pub d_model: usize,
    /// The encoder's layers.
    pub encoder: Stack,
    /// The decoder's layers; `None` in an encoder-only model (BERT).
    pub decoder: Option<Stack>,
    /// Numbers per frame of an encoder that reads features (Whisper: 80 or 128 bins of a mel spectrogram); `None` if it
    /// reads ids. Its input layers (Radford et al. 2022, section 2.2) are two convolutions over frames, both of three frames
    /// with a zero frame before and after, with `d_model` outputs, a bias and GELU (by the error function). The second has
    /// stride 2, so there are half as many positions as frames, rounded up:
    /// [`Features::positions`](crate::Features::positions).
    pub bins: Option<usize>,
    /// Source ids are below this number; 0 if the encoder reads features.
    pub source_vocab: usize,
    /// Target ids are below this number, which is also the number of logits. Without a decoder it is the source
    /// vocabulary.
    pub target_vocab: usize,
    /// The position of the norms, in both stacks.
    pub norm: NormPlacement,
    /// The function of the norms.
    pub norm_kind: NormKind,
    /// Added to the variance, or to the mean of squares, before the square root in every norm.
    pub layer_norm_eps: f32,
    /// Which linear maps of the layers have a bias.
    pub biases: Biases,
    /// The activation of both feed-forward blocks.
    pub activation: Activation,
    /// The hidden layer of a feed-forward block is `activation(x Wg + bg) * (x W1 + b1)` (Shazeer 2020) instead of
    /// `activation(x W1 + b1)`.
    pub gated: bool,
    /// Scale of all attention scores; `None` is `1 / sqrt(head_dim)`.
    pub attention_scale: Option<f32>,
    /// The encoding of positions.
    pub positions: Positions,
    /// Rows of the table of token types; one row is added to each source token. 0 for no table.
    pub token_types: usize,
    /// Scale of every embedding before the position is added: 1 or `sqrt(d_model)` in published models, here any
    /// positive number.
    pub embedding_scale: f32,
    /// Scale of the last hidden states before the output map: 1, or `1 / sqrt(d_model)` (the first T5).
    pub logit_scale: f32,
    /// Tied matrices. From `config.json`: the ties that the file declares, which determine the tensor names that a
    /// checkpoint may use. From a checkpoint: the ties of the actual tensors.
    pub ties: TiedWeights,
    /// Special token ids.
    pub tokens: SpecialTokens,
    /// The generation settings of the checkpoint, used if the caller sets none.
    pub settings: Settings,
    /// The prompt of a transcription model.
    pub transcription: Transcription,
    /// Keys of `generation_config.json` with a value that would change the results and that this crate does not support.
    pub unsupported: Vec<String>,
    /// The keys that the files do not contain, each with the value used, as JSON but a string without quotes: the default of
    /// transformers' configuration class. Older versions of `save_pretrained` omit values that equal the default, so a
    /// missing key is not an error. But a hand-written file may lack one by accident, and 16 heads instead of a model's 4
    /// generate fluent but wrong text, so a program should print them. Empty for a configuration from code.
    pub defaults: Vec<(&'static str, String)>,
}

impl Config {
    /// The encoder's or the decoder's dimensions; `None` for the decoder of an encoder-only model.
    pub const fn stack(&self, side: Side) -> Option<&Stack> {
        match side {
            Side::Encoder => Some(&self.encoder),
            Side::Decoder => self.decoder.as_ref(),
        }
    }

    /// Source or target vocabulary, in tokens.
    pub const fn vocab(&self, side: Side) -> usize {
        match side {
            Side::Encoder => self.source_vocab,
            Side::Decoder => self.target_vocab,
        }
    }

    /// Maximum source or target length that the positions support; `None` if there is no such limit.
    pub const fn max_positions(&self, side: Side) -> Option<usize> {
        match self.stack(side) {
            Some(stack) => stack.max_positions,
            None => None,
        }
    }

    /// Width of one head: [`Stack::head_dim`], or `d_model / heads`; 0 if there are no heads.
    pub const fn head_dim(&self, side: Side) -> usize {
        match self.stack(side) {
            Some(&Stack { head_dim: Some(width), .. }) => width,
            Some(&Stack { heads, .. }) => match self.d_model.checked_div(heads) {
                Some(width) => width,
                None => 0,
            },
            None => 0,
        }
    }

    /// Width of the concatenated heads: `heads * head_dim`, which is `d_model` if [`Stack::head_dim`] is `None`; 0
    /// if there are no heads.
    pub const fn attention_dim(&self, side: Side) -> usize {
        match self.stack(side) {
            Some(stack) => stack.heads.saturating_mul(self.head_dim(side)),
            None => 0,
        }
    }

    /// Checks that the dimensions are valid, that a checkpoint of the family can have all parts, and that every id
    /// is in the target vocabulary. Every function that takes a configuration calls it.
    ///
    /// # Errors
    /// The first error found. [`InvalidOption`](Error::InvalidOption): a dimension that is zero or more than its maximum
    /// (2^28 for a vocabulary or the offset of a formula, 2^24 for others; larger values could overflow products of
    /// dimensions), heads that do not divide `d_model`, a tie between vocabularies of different sizes, an epsilon or
    /// scale that is not a valid number, positions that do not fit the width, the table or the buckets, an id outside
    /// the vocabulary. [`Unsupported`](Error::Unsupported): a part for which the family has no tensor.
    pub fn validate(&self) -> Result<(), Error> {
        dimension("d_model", self.d_model, MAX_DIMENSION)?;
        match self.bins {
            None => dimension("source vocabulary", self.source_vocab, MAX_VOCABULARY)?,
            Some(bins) => {
                dimension("bins of a frame", bins, MAX_DIMENSION)?;
                at_most("source vocabulary of an encoder of features", self.source_vocab, 0)?;
                at_most("token types of an encoder of features", self.token_types, 0)?;
            }
        }
        dimension("target vocabulary", self.target_vocab, MAX_VOCABULARY)?;
        for side in [Side::Encoder, Side::Decoder] {
            let Some(stack) = self.stack(side) else { continue };
            let of_side = |what| format!("{} {what}", side.name());
            dimension(of_side("layers"), stack.layers, MAX_LAYERS)?;
            dimension(of_side("heads"), stack.heads, MAX_DIMENSION)?;
            dimension(of_side("feed-forward width"), stack.ffn_dim, MAX_DIMENSION)?;
            if let Some(width) = stack.head_dim {
                dimension(of_side("head width"), width, MAX_DIMENSION)?;
                at_most(of_side("head width"), stack.heads.saturating_mul(width), MAX_DIMENSION)?;
            } else if !self.d_model.is_multiple_of(stack.heads) {
                let expected = format!("a multiple of the {} {} heads", stack.heads, side.name());
                return Err(Error::invalid_option("d_model", expected, self.d_model.to_string()));
            }
            if let Some(n) = stack.max_positions {
                let what = format!("max positions of the {}", side.name());
                dimension(what, n, MAX_DIMENSION)?;
            }
            if let Some(bias) = stack.relative_bias {
                bias.buckets_for(side)?;
                at_most("relative buckets", bias.buckets, MAX_DIMENSION)?;
                at_most("relative distance", bias.max_distance, MAX_DIMENSION)?;
            }
        }
        if self.ties.source_target && self.source_vocab != self.target_vocab {
            let (source, target) = (self.source_vocab, self.target_vocab);
            let expected =
                format!("{source}, that of the source, because both share one embedding");
            return Err(Error::invalid_option("target vocabulary", expected, target.to_string()));
        }
        // Written with ranges because `eps <= 0.0` would accept NaN.
        let (eps, positive) = ("a number from 0 to 1", "a positive number");
        let scale = |scale: f32| scale > 0.0 && scale.is_finite();
        let numbers = [
            ("layer_norm_eps", eps, self.layer_norm_eps, (0.0..1.0).contains(&self.layer_norm_eps)),
            ("embedding scale", positive, self.embedding_scale, scale(self.embedding_scale)),
            ("logit scale", positive, self.logit_scale, scale(self.logit_scale)),
            (
                "attention scale",
                positive,
                self.attention_scale.unwrap_or(1.0),
                self.attention_scale.is_none_or(scale),
            ),
        ];
        if let Some((what, expected, found, _)) = numbers.into_iter().find(|&(.., good)| !good) {
            return Err(Error::invalid_option(what, expected, found.to_string()));
        }
        at_most("token types", self.token_types, MAX_DIMENSION)?;
        self.validate_positions()?;
        self.validate_parts()?;
        self.validate_ids()?;
        self.validate_settings()
    }

    fn validate_positions(&self) -> Result<(), Error> {
        match self.positions {
            Positions::HalfSplit | Positions::Interleaved | Positions::None => Ok(()),
            Positions::HalfSplitClosed { offset } | Positions::HalfSplitSingle { offset } => {
                if self.d_model < 4 {
                    // The exponent k / (d/2 - 1) would divide by zero.
                    let expected = "at least 4 for half-split positions with an offset";
                    let found = self.d_model.to_string();
                    return Err(Error::invalid_option("d_model", expected, found));
                }
                at_most("position offset", offset, MAX_VOCABULARY)
            }
            Positions::Learned { offset } => {
                let stacks = [Some(&self.encoder), self.decoder.as_ref()];
                if stacks.into_iter().flatten().any(|stack| stack.max_positions.is_none()) {
                    let operand = "max_position_embeddings";
                    let expected = "the length of the table of learned positions";
                    return Err(Error::invalid_option(operand, expected, "none"));
                }
                at_most("position offset", offset, MAX_DIMENSION)
            }
        }
    }

    /// Checks the optional parts: a checkpoint of the family must have tensor names for them.
    fn validate_parts(&self) -> Result<(), Error> {
        let has = |side, part: fn(&Stack) -> bool| self.stack(side).is_some_and(part);
        let norms_embedding = |stack: &Stack| stack.embedding_norm.is_some();
        let norms_last = |stack: &Stack| stack.final_norm;
        let is_relative = |stack: &Stack| stack.relative_bias.is_some();
        let (encoder, decoder) = (Side::Encoder, Side::Decoder);
        let own_source = self.bins.is_none() && !self.ties.source_target;
        let learned = matches!(self.positions, Positions::Learned { .. });
        let relative = has(encoder, is_relative) || has(decoder, is_relative);
        let wanted = [
            ("a decoder", Part::Decoder, self.decoder.is_some()),
            ("an embedding of the source alone", Part::SourceEmbedding, own_source),
            ("an encoder that reads features", Part::Features, self.bins.is_some()),
            ("learned positions", Part::Positions, learned),
            (
                "a norm after the embeddings of the encoder",
                Part::EmbeddingNorm,
                has(encoder, norms_embedding),
            ),
            (
                "a norm after the embeddings of the decoder",
                Part::EmbeddingNorm,
                has(decoder, norms_embedding),
            ),
            (
                "a norm after the last layer of the encoder",
                Part::FinalNorm,
                has(encoder, norms_last),
            ),
            (
                "a norm after the last layer of the decoder",
                Part::FinalNorm,
                has(decoder, norms_last),
            ),
            ("token types", Part::TokenTypes, self.token_types > 0),
            ("a gate in the feed-forward block", Part::Gate, self.gated),
            ("a relative position bias", Part::RelativeBias, relative),
        ];
        let named = self.family.named();
        match wanted.into_iter().find(|(_, part, wanted)| *wanted && !named.contains(part)) {
            Some((part, ..)) => Err(not_in_family(self.family, part)),
            None => Ok(()),
        }
    }

    fn validate_ids(&self) -> Result<(), Error> {
        let t = &self.tokens;
        let named: [(&'static str, &[u32]); 7] = [
            ("pad_token_id", t.pad.as_slice()),
            ("eos_token_id", &t.eos),
            ("bos_token_id", t.bos.as_slice()),
            ("decoder_start_token_id", t.decoder_start.as_slice()),
            ("forced_bos_token_id", t.forced_bos.as_slice()),
            ("forced_eos_token_id", &t.forced_eos),
            ("bad_words_ids", &t.banned),
        ];
        named.into_iter().try_for_each(|(what, ids)| ids_inside(what, ids, self.target_vocab))?;
        let of_source = [
            ("source_begin_token_id", t.source_begin.as_slice()),
            ("source_end_token_id", t.source_end.as_slice()),
        ];
        of_source.into_iter().try_for_each(|(what, ids)| ids_inside(what, ids, self.source_vocab))
    }
}

fn at_most(what: impl Into<Cow<'static, str>>, found: usize, limit: usize) -> Result<(), Error> {
    if found > limit {
        return Err(Error::invalid_option(what, format!("at most {limit}"), found.to_string()));
    }
    Ok(())
}

fn dimension(what: impl Into<Cow<'static, str>>, found: usize, limit: usize) -> Result<(), Error> {
    if found == 0 {
        return Err(Error::invalid_option(what, "at least 1", "0"));
    }
    at_most(what, found, limit)
}
