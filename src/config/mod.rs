//! An architecture as data: everything that tells one encoder-decoder Transformer from another.
//!
//! Published models differ in a handful of choices (where the norm stands, how positions are written, what is tied to
//! what, which token starts a translation), and a wrong choice gives fluent nonsense rather than an error. So the
//! choices are fields here, the layers read them, and no layer asks which model it belongs to.
//!
//! A [`Config`] comes from a Hugging Face `config.json` through [`Config::from_hugging_face`], from a checkpoint
//! directory through [`crate::checkpoint::Checkpoint::open`], or is written by hand, best from
//! [`Config::transformer`], and checked by [`Config::validate`].

mod choices;
mod defaults;
mod error;
mod generation;
mod hugging_face;
mod json;
mod paper;

pub use crate::search::EarlyStopping;
pub use choices::{
    Dimensions, Family, NormPlacement, Positions, Side, SpecialTokens, Stack, Ties,
    activation_from_name,
};
pub use defaults::Defaulted;
pub use error::ConfigError;
pub use generation::GenerationDefaults;
/// The function between the two matrices of the feed-forward block.
pub use simdformer_kernels::Activation;

use error::ids_inside;

/// Largest `d_model`, feed-forward width, layer count or position count that is believed. Published models stay below
/// a hundredth of it; beyond it products of dimensions could overflow.
const MAX_DIMENSION: usize = 1 << 24;

/// Largest vocabulary that is believed: ids are `u32`, and products with `d_model` must not overflow.
const MAX_VOCABULARY: usize = 1 << 28;

/// An encoder-decoder Transformer, without its weights.
///
/// By hand: the paper's model in the dimensions wanted, and what differs.
///
/// ```
/// use simdformer::checkpoint::Role;
/// use simdformer::config::{
///     Activation, Config, Dimensions, NormPlacement, Positions, SpecialTokens, Stack, Ties,
/// };
///
/// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
/// let paper = Config::transformer(small);
/// // As M2M100 is built: norms before each block and one after the last layer; a decoder of one layer;
/// // two vocabularies, so that only the output is tied.
/// let config = Config {
///     norm: NormPlacement::Pre,
///     encoder: Stack { final_norm: true, ..paper.encoder },
///     decoder: Stack { final_norm: true, layers: 1, ..paper.decoder },
///     activation: Activation::Gelu,
///     positions: Positions::Learned { offset: 0 },
///     max_positions: Some(512),
///     target_vocab: 1200,
///     ties: Ties { source_target: false, target_output: true },
///     tokens: SpecialTokens { decoder_start: Some(1), eos: vec![2], ..SpecialTokens::default() },
///     ..paper
/// };
/// config.validate()?;
///
/// // The tensors that its weights are, in the order of use, and what each is called in a checkpoint.
/// for role in Role::all(&config) {
///     println!("{role} {:?}: {}", role.shape(&config), role.names(&config).join(" or "));
/// }
/// let tied = ["output.weight", "decoder.embedding.weight"];
/// assert_eq!(Role::Output.names(&config), tied);
/// assert_eq!(Role::Output.shape(&config), Some(vec![1200, 64]));
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
    /// The decoder's layers.
    pub decoder: Stack,
    /// Source ids are below this.
    pub source_vocab: usize,
    /// Target ids are below this; the number of logits.
    pub target_vocab: usize,
    /// Where the norms stand, in both stacks.
    pub norm: NormPlacement,
    /// Added to the variance under the root of every LayerNorm; from 0 to below 1.
    pub layer_norm_eps: f32,
    /// Of both feed-forward blocks.
    pub activation: Activation,
    /// How positions are written.
    pub positions: Positions,
    /// Longest source or target that the positions can number, in tokens; `None` where a formula numbers any. Limits of a
    /// session beyond it are refused.
    pub max_positions: Option<usize>,
    /// Factor on every embedding before the position is added: 1 or `sqrt(d_model)` in published models, here any
    /// positive number.
    pub embedding_scale: f32,
    /// Shared matrices. From `config.json` this is what it claims, and decides under which names a checkpoint may keep
    /// them; from a checkpoint, what the tensors show.
    pub ties: Ties,
    /// Token ids with a meaning.
    pub tokens: SpecialTokens,
    /// How the checkpoint wants to be decoded when the caller does not say.
    pub generation: GenerationDefaults,
    /// What the files left open, and what was taken for it; nothing in a configuration by hand. Changes nothing.
    pub defaults: Vec<Defaulted>,
}

impl Config {
    /// The encoder's or the decoder's dimensions.
    pub const fn stack(&self, side: Side) -> &Stack {
        match side {
            Side::Encoder => &self.encoder,
            Side::Decoder => &self.decoder,
        }
    }

    /// Source or target vocabulary, in tokens.
    pub const fn vocab(&self, side: Side) -> usize {
        match side {
            Side::Encoder => self.source_vocab,
            Side::Decoder => self.target_vocab,
        }
    }

    /// Width of one head of this side, in numbers: `d_model / heads`, and 0 where heads are 0.
    pub const fn head_dim(&self, side: Side) -> usize {
        match self.d_model.checked_div(self.stack(side).heads) {
            Some(width) => width,
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
    /// a [usable number](ConfigError::BadNumber), positions that the [width](ConfigError::TooNarrowForPositions) or the
    /// [table](ConfigError::LearnedPositionsWithoutLimit) cannot hold, a part for which the
    /// [family](ConfigError::NotInFamily) has no tensor, an [id](ConfigError::IdOutsideVocabulary) outside the vocabulary.
    pub fn validate(&self) -> Result<(), ConfigError> {
        dimension("d_model", self.d_model, MAX_DIMENSION)?;
        dimension("source vocabulary", self.source_vocab, MAX_VOCABULARY)?;
        dimension("target vocabulary", self.target_vocab, MAX_VOCABULARY)?;
        for side in [Side::Encoder, Side::Decoder] {
            let stack = self.stack(side);
            let names = match side {
                Side::Encoder => ["encoder layers", "encoder heads", "encoder feed-forward width"],
                Side::Decoder => ["decoder layers", "decoder heads", "decoder feed-forward width"],
            };
            for (what, n) in names.into_iter().zip([stack.layers, stack.heads, stack.ffn_dim]) {
                dimension(what, n, MAX_DIMENSION)?;
            }
            if !self.d_model.is_multiple_of(stack.heads) {
                let (d_model, heads) = (self.d_model, stack.heads);
                return Err(ConfigError::HeadsDoNotDivide { side, d_model, heads });
            }
        }
        if self.ties.source_target && self.source_vocab != self.target_vocab {
            let (source, target) = (self.source_vocab, self.target_vocab);
            return Err(ConfigError::TiedVocabulariesDiffer { source, target });
        }
        // Not `eps <= 0.0`: that would let NaN through.
        if !(self.layer_norm_eps >= 0.0 && self.layer_norm_eps < 1.0) {
            let found = self.layer_norm_eps;
            return Err(ConfigError::BadNumber {
                what: "layer_norm_eps",
                expected: "a number from 0 to 1",
                found,
            });
        }
        if !(self.embedding_scale > 0.0 && self.embedding_scale.is_finite()) {
            let found = self.embedding_scale;
            return Err(ConfigError::BadNumber {
                what: "embedding scale",
                expected: "a positive number",
                found,
            });
        }
        self.validate_positions()?;
        self.validate_parts()?;
        self.validate_ids()?;
        self.generation.validate(self.target_vocab)
    }

    fn validate_positions(&self) -> Result<(), ConfigError> {
        if let Some(n) = self.max_positions {
            dimension("max positions", n, MAX_DIMENSION)?;
        }
        match self.positions {
            Positions::HalfSplit | Positions::Interleaved => Ok(()),
            Positions::HalfSplitClosed { offset } => {
                if self.d_model < 4 {
                    // The exponent k / (d/2 - 1) divides by zero.
                    return Err(ConfigError::TooNarrowForPositions { d_model: self.d_model });
                }
                at_most("position offset", offset, MAX_VOCABULARY)
            }
            Positions::Learned { offset } => {
                if self.max_positions.is_none() {
                    return Err(ConfigError::LearnedPositionsWithoutLimit);
                }
                at_most("position offset", offset, MAX_DIMENSION)
            }
        }
    }

    /// The parts that not every family has: a checkpoint has no name under which they could be looked for.
    fn validate_parts(&self) -> Result<(), ConfigError> {
        let (family, encoder, decoder) = (self.family, &self.encoder, &self.decoder);
        let learned = matches!(self.positions, Positions::Learned { .. });
        let wanted = [
            ("learned positions", learned, family.names_positions()),
            (
                "a norm after the embeddings of the encoder",
                encoder.embedding_norm,
                family.names_embedding_norm(),
            ),
            (
                "a norm after the embeddings of the decoder",
                decoder.embedding_norm,
                family.names_embedding_norm(),
            ),
            (
                "a norm after the last layer of the encoder",
                encoder.final_norm,
                family.names_final_norm(),
            ),
            (
                "a norm after the last layer of the decoder",
                decoder.final_norm,
                family.names_final_norm(),
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
