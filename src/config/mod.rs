//! An architecture as data: everything that tells one encoder-decoder Transformer from another.
//!
//! Published models differ in a handful of choices (where the norm stands, how positions are written, what is tied to
//! what, which token starts a translation), and a wrong choice gives fluent nonsense rather than an error. So the
//! choices are fields here, the layers read them, and no layer asks which model it belongs to.
//!
//! A [`Config`] comes from a Hugging Face `config.json` through [`Config::from_hugging_face`], from a checkpoint
//! directory through [`crate::checkpoint::Checkpoint::open`], or is written by hand, best from
//! [`Config::transformer`], and checked by [`Config::validate`].

mod arch;
mod defaults;
mod encoders;
mod error;
mod fairseq;
mod generation;
mod hugging_face;
mod json;
mod keys;
mod presets;
mod relative;
mod t5;
mod torch;
mod transcription;
mod unsupported;
mod whisper;

pub use crate::search::EarlyStopping;
pub use arch::{
    Biases, ConvFrontend, Dimensions, EmbeddingNorm, Family, NormKind, NormPlacement, Positions,
    RelativeBias, Side, SpecialTokens, Stack, TiedWeights, activation_from_name,
};
pub use defaults::Defaulted;
pub use error::ConfigError;
pub use generation::GenerationDefaults;
/// The function between the two matrices of the feed-forward block.
pub use simdformer_kernels::Activation;
pub use transcription::Transcription;

use error::ids_inside;

/// Largest `d_model`, feed-forward width or position count that is believed. Published models stay below
/// a hundredth of it; beyond it products of dimensions could overflow.
const MAX_DIMENSION: usize = 1 << 24;

/// Most layers of a stack that are believed: whoever lists the parts of a model lists all of them.
const MAX_LAYERS: usize = 1 << 12;

/// Largest vocabulary that is believed: ids are `u32`, and products with `d_model` must not overflow.
const MAX_VOCABULARY: usize = 1 << 28;

/// An encoder-decoder Transformer, without its weights.
///
/// By hand: the paper's model in the dimensions wanted, and what differs.
///
/// ```
/// use simdformer::checkpoint::TensorId;
/// use simdformer::config::{
///     Activation, Config, Dimensions, NormPlacement, Positions, SpecialTokens, Stack, TiedWeights,
/// };
///
/// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
/// let paper = Config::transformer(small);
/// // As M2M100 is built: norms before each block and one after the last layer; a decoder of one layer;
/// // two vocabularies, so that only the output is tied.
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
/// // The tensors that its weights are, in the order of use, and what each is called in a checkpoint.
/// for role in TensorId::all(&config) {
///     println!("{role} {:?}: {}", role.shape(&config), role.names(&config).join(" or "));
/// }
/// let tied = ["output.weight", "decoder.embedding.weight"];
/// assert_eq!(TensorId::Output.names(&config), tied);
/// assert_eq!(TensorId::Output.shape(&config), Some(vec![1200, 64]));
/// # Ok::<(), simdformer::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whose names the checkpoint uses.
    pub family: Family,
    /// Width of every vector between layers, in numbers: activations are `[tokens, d_model]`.
    pub d_model: usize,
    /// The encoder's layers.
    pub encoder: Stack,
    /// The decoder's layers; `None` in a model that only encodes (BERT).
    pub decoder: Option<Stack>,
    /// What the encoder reads: features, through convolutions (Whisper); `None` where it reads ids.
    pub stem: Option<ConvFrontend>,
    /// Source ids are below this; 0 where the encoder reads features.
    pub source_vocab: usize,
    /// Target ids are below this; the number of logits. Without a decoder it is the source vocabulary.
    pub target_vocab: usize,
    /// Where the norms stand, in both stacks.
    pub norm: NormPlacement,
    /// What they compute.
    pub norm_kind: NormKind,
    /// Added to the variance, or to the mean of squares, under the root of every norm.
    pub layer_norm_eps: f32,
    /// Which linear maps of the layers have a bias.
    pub biases: Biases,
    /// Of both feed-forward blocks.
    pub activation: Activation,
    /// The hidden layer of a feed-forward block is `activation(x Wg + bg) * (x W1 + b1)` (Shazeer 2020) instead of
    /// `activation(x W1 + b1)`.
    pub gated: bool,
    /// Multiplies the scores of every attention; `None` is `1 / sqrt(head_dim)`.
    pub attention_scale: Option<f32>,
    /// How positions are written.
    pub positions: Positions,
    /// Rows of the table of token types, of which each source token adds one: 0 for no such table.
    pub token_types: usize,
    /// Factor on every embedding before the position is added: 1 or `sqrt(d_model)` in published models, here any
    /// positive number.
    pub embedding_scale: f32,
    /// Multiplies the last hidden states before they become logits: 1, or `1 / sqrt(d_model)` (the first T5).
    pub logit_scale: f32,
    /// Shared matrices. From `config.json` this is what it claims, and decides under which names a checkpoint may keep
    /// them; from a checkpoint, what the tensors show.
    pub ties: TiedWeights,
    /// Token ids with a meaning.
    pub tokens: SpecialTokens,
    /// How the checkpoint wants to be decoded when the caller does not say.
    pub generation: GenerationDefaults,
    /// What the files left open, and what was taken for it; nothing in a configuration by hand. Changes nothing.
    pub defaults: Vec<Defaulted>,
}

impl Config {
    /// The encoder's or the decoder's dimensions; `None` for the decoder of a model that only encodes.
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

    /// Longest source or target that the positions can number; `None` where there is no such limit.
    pub const fn max_positions(&self, side: Side) -> Option<usize> {
        match self.stack(side) {
            Some(stack) => stack.max_positions,
            None => None,
        }
    }

    /// Width of one head: [`Stack::head_dim`], or `d_model / heads`; 0 where there are no heads.
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

    /// Width of all heads side by side: `heads * head_dim`, which is `d_model` where [`Stack::head_dim`] says nothing
    /// else; 0 where there are no heads.
    pub const fn attention_dim(&self, side: Side) -> usize {
        match self.stack(side) {
            Some(stack) => stack.heads.saturating_mul(self.head_dim(side)),
            None => 0,
        }
    }

    /// Checks that the dimensions make a model, that a checkpoint of its family can have all of its parts, and that
    /// every id lies in the target vocabulary. Whatever takes a configuration calls it.
    ///
    /// # Errors
    /// The first thing that is wrong: a zero or absurdly large dimension ([`Zero`](ConfigError::Zero),
    /// [`TooLarge`](ConfigError::TooLarge)), [heads](ConfigError::HeadsDoNotDivide) that do not divide `d_model`, a
    /// [tie](ConfigError::TiedVocabulariesDiffer) between vocabularies of different sizes, an epsilon or scale that is not
    /// a [usable number](ConfigError::BadNumber), positions that the [width](ConfigError::TooNarrowForPositions), the
    /// [table](ConfigError::LearnedPositionsWithoutLimit) or the [buckets](ConfigError::Relative) cannot hold, a part for
    /// which the [family](ConfigError::NotInFamily) has no tensor, an [id](ConfigError::IdOutsideVocabulary) outside the
    /// vocabulary.
    pub fn validate(&self) -> Result<(), ConfigError> {
        dimension("d_model", self.d_model, MAX_DIMENSION)?;
        match self.stem {
            None => dimension("source vocabulary", self.source_vocab, MAX_VOCABULARY)?,
            Some(ConvFrontend { bins }) => {
                dimension("bins of a frame", bins, MAX_DIMENSION)?;
                at_most("source vocabulary of an encoder of features", self.source_vocab, 0)?;
                at_most("token types of an encoder of features", self.token_types, 0)?;
            }
        }
        dimension("target vocabulary", self.target_vocab, MAX_VOCABULARY)?;
        for side in [Side::Encoder, Side::Decoder] {
            let Some(stack) = self.stack(side) else { continue };
            let [layers, heads, head_dim, ffn_dim, positions] = match side {
                Side::Encoder => [
                    "encoder layers",
                    "encoder heads",
                    "encoder head width",
                    "encoder feed-forward width",
                    "max positions of the encoder",
                ],
                Side::Decoder => [
                    "decoder layers",
                    "decoder heads",
                    "decoder head width",
                    "decoder feed-forward width",
                    "max positions of the decoder",
                ],
            };
            dimension(layers, stack.layers, MAX_LAYERS)?;
            dimension(heads, stack.heads, MAX_DIMENSION)?;
            dimension(ffn_dim, stack.ffn_dim, MAX_DIMENSION)?;
            if let Some(width) = stack.head_dim {
                dimension(head_dim, width, MAX_DIMENSION)?;
                at_most(head_dim, stack.heads.saturating_mul(width), MAX_DIMENSION)?;
            } else if !self.d_model.is_multiple_of(stack.heads) {
                let (d_model, heads) = (self.d_model, stack.heads);
                return Err(ConfigError::HeadsDoNotDivide { side, d_model, heads });
            }
            if let Some(n) = stack.max_positions {
                dimension(positions, n, MAX_DIMENSION)?;
            }
            if let Some(bias) = stack.relative_bias {
                bias.of(side)?;
                at_most("relative buckets", bias.buckets, MAX_DIMENSION)?;
                at_most("relative distance", bias.max_distance, MAX_DIMENSION)?;
            }
        }
        if self.ties.source_target && self.source_vocab != self.target_vocab {
            let (source, target) = (self.source_vocab, self.target_vocab);
            return Err(ConfigError::TiedVocabulariesDiffer { source, target });
        }
        // Not `eps <= 0.0`: that would let NaN through.
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
            return Err(ConfigError::BadNumber { what, expected, found });
        }
        at_most("token types", self.token_types, MAX_DIMENSION)?;
        self.validate_positions()?;
        self.validate_parts()?;
        self.validate_ids()?;
        self.generation.validate(self.target_vocab)
    }

    fn validate_positions(&self) -> Result<(), ConfigError> {
        match self.positions {
            Positions::HalfSplit | Positions::Interleaved | Positions::None => Ok(()),
            Positions::HalfSplitClosed { offset } | Positions::HalfSplitSingle { offset } => {
                if self.d_model < 4 {
                    // The exponent k / (d/2 - 1) divides by zero.
                    return Err(ConfigError::TooNarrowForPositions { d_model: self.d_model });
                }
                at_most("position offset", offset, MAX_VOCABULARY)
            }
            Positions::Learned { offset } => {
                let stacks = [Some(&self.encoder), self.decoder.as_ref()];
                if stacks.into_iter().flatten().any(|stack| stack.max_positions.is_none()) {
                    return Err(ConfigError::LearnedPositionsWithoutLimit);
                }
                at_most("position offset", offset, MAX_DIMENSION)
            }
        }
    }

    /// The parts that not every family has: a checkpoint has no name under which they could be looked for.
    fn validate_parts(&self) -> Result<(), ConfigError> {
        let (family, named) = (self.family, self.family.named());
        let has = |side, part: fn(&Stack) -> bool| self.stack(side).is_some_and(part);
        let wanted = [
            ("a decoder", self.decoder.is_some(), named.decoder),
            (
                "an embedding of the source alone",
                self.stem.is_none() && !self.ties.source_target,
                named.source_embedding,
            ),
            ("an encoder that reads features", self.stem.is_some(), named.stem),
            (
                "learned positions",
                matches!(self.positions, Positions::Learned { .. }),
                named.positions,
            ),
            (
                "a norm after the embeddings of the encoder",
                has(Side::Encoder, |stack| stack.embedding_norm.is_some()),
                named.embedding_norm,
            ),
            (
                "a norm after the embeddings of the decoder",
                has(Side::Decoder, |stack| stack.embedding_norm.is_some()),
                named.embedding_norm,
            ),
            (
                "a norm after the last layer of the encoder",
                has(Side::Encoder, |stack| stack.final_norm),
                named.final_norm,
            ),
            (
                "a norm after the last layer of the decoder",
                has(Side::Decoder, |stack| stack.final_norm),
                named.final_norm,
            ),
            ("token types", self.token_types > 0, named.token_types),
            ("a gate in the feed-forward block", self.gated, named.gate),
            (
                "a relative position bias",
                [Side::Encoder, Side::Decoder]
                    .into_iter()
                    .any(|side| has(side, |stack| stack.relative_bias.is_some())),
                named.relative_bias,
            ),
        ];
        match wanted.into_iter().find(|&(_, wanted, named)| wanted && !named) {
            Some((part, ..)) => Err(ConfigError::NotInFamily { family, part }),
            None => Ok(()),
        }
    }

    fn validate_ids(&self) -> Result<(), ConfigError> {
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
        named.into_iter().try_for_each(|(what, ids)| ids_inside(what, ids, self.target_vocab))
    }
}

fn at_most(what: &'static str, found: usize, limit: usize) -> Result<(), ConfigError> {
    if found > limit {
        return Err(ConfigError::TooLarge { what, found, limit });
    }
    Ok(())
}

fn dimension(what: &'static str, found: usize, limit: usize) -> Result<(), ConfigError> {
    if found == 0 {
        return Err(ConfigError::Zero { what });
    }
    at_most(what, found, limit)
}
