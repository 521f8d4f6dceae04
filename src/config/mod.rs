//! An architecture as data: everything that tells one encoder-decoder Transformer from another.
//!
//! Published models differ in a handful of choices (where the norm stands, how positions are written, what is tied to
//! what, which token starts a translation), and a wrong choice gives fluent nonsense rather than an error. So the
//! choices are fields here, the layers read them, and no layer asks which model it belongs to.
//!
//! A [`Config`] comes from a Hugging Face `config.json` through [`Config::from_hugging_face`], from a checkpoint
//! directory through [`crate::checkpoint::Checkpoint::open`], or is written by hand and checked by [`Config::validate`].

mod error;
mod generation;
mod hugging_face;
mod json;

pub use error::ConfigError;
pub use generation::{EarlyStopping, GenerationDefaults};
/// The function between the two matrices of the feed-forward block.
pub use simdformer_kernels::Activation;

/// Largest `d_model`, feed-forward width, layer count or position count that is believed. Published models stay below
/// a hundredth of it; beyond it products of dimensions could overflow.
const MAX_DIMENSION: usize = 1 << 24;

/// Largest vocabulary that is believed: ids are `u32`, and products with `d_model` must not overflow.
const MAX_VOCABULARY: usize = 1 << 28;

/// The library whose names and conventions a checkpoint follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Hugging Face `marian` (OPUS-MT): post-norm, half-split positions.
    Marian,
    /// Hugging Face `bart`: post-norm, learned positions, a norm after the embeddings.
    Bart,
    /// Hugging Face `mbart`: pre-norm, otherwise as BART.
    MBart,
    /// Hugging Face `m2m_100` (M2M100 and NLLB): pre-norm, half-split positions counted from an offset.
    M2M100,
    /// `torch.nn.Transformer`, with `src_embed`, `tgt_embed` and `generator` around it.
    NnTransformer,
}

impl Family {
    /// Every family, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Marian, Self::Bart, Self::MBart, Self::M2M100, Self::NnTransformer];

    /// The `model_type` of `config.json`.
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::Marian => "marian",
            Self::Bart => "bart",
            Self::MBart => "mbart",
            Self::M2M100 => "m2m_100",
            Self::NnTransformer => "nn_transformer",
        }
    }
}

/// One of the two halves of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Reads the source, writes the memory.
    Encoder,
    /// Reads the target so far and the memory, writes logits.
    Decoder,
}

impl Side {
    /// `"encoder"` or `"decoder"`, as checkpoints spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
        }
    }
}

/// The shape of one stack of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of layers.
    pub layers: usize,
    /// Attention heads of each layer; divides `d_model`.
    pub heads: usize,
    /// Width of the hidden layer of the feed-forward block.
    pub ffn_dim: usize,
    /// A LayerNorm right after embedding and position are added (BART, mBART).
    pub embedding_norm: bool,
    /// A LayerNorm after the last layer.
    pub final_norm: bool,
}

/// Where LayerNorm stands in a block `f` (attention or feed-forward).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// `x + f(norm(x))`.
    Pre,
    /// `norm(x + f(x))`, as in the paper.
    Post,
}

/// The activation that Hugging Face calls `name`; `None` for those that no supported layer uses.
pub fn activation_from_name(name: &str) -> Option<Activation> {
    match name {
        "linear" => Some(Activation::Identity),
        "relu" => Some(Activation::Relu),
        "gelu" | "gelu_python" => Some(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_python_tanh" => Some(Activation::GeluTanh),
        "silu" | "swish" => Some(Activation::Silu),
        _ => None,
    }
}

/// How position `p = 0, 1, ...` of a sentence is written into a vector of `d = d_model` numbers, which is added to the
/// scaled embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Positions {
    /// First half `sin(p / 10000^(2k/d))`, second half the cosines of the same angles, `k = 0 .. d/2`; an odd `d` has
    /// one sine more. Marian as Hugging Face runs it.
    HalfSplit,
    /// First half `sin(q / 10000^(k/(d/2-1)))`, second half the cosines, where `q = p + offset`; an odd `d` ends in a
    /// zero. fairseq, M2M100 and NLLB with `offset` = pad id + 1, Marian's own C++ with 0.
    HalfSplitOffset {
        /// The position of the first token.
        offset: usize,
    },
    /// `sin` at even and `cos` at odd places of the angle `p / 10000^(2k/d)`. Vaswani et al. 2017, section 3.5.
    Interleaved,
    /// Row `p + offset` of a trained table `[max_positions + offset, d]`. BART and mBART with `offset` 2.
    Learned {
        /// Rows of the table before the first position.
        offset: usize,
    },
}

/// Which of the three embedding matrices are one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ties {
    /// The decoder embeds with the encoder's matrix.
    pub source_target: bool,
    /// The output projection is the decoder's embedding.
    pub target_output: bool,
}

/// Token ids with a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Fills the results of sentences that end early.
    pub pad: Option<u32>,
    /// Any of these ends a sentence. May be empty: then only the length does.
    pub eos: Vec<u32>,
    /// Begins a sentence in some tokenizers; the search uses it nowhere.
    pub bos: Option<u32>,
    /// The token the decoder reads first. `None` in models that want a language here (mBART): the caller must say it.
    pub decoder_start: Option<u32>,
    /// The only token allowed first (M2M100, NLLB: the target language).
    pub forced_bos: Option<u32>,
    /// The only tokens allowed at the length limit; empty for no such rule.
    pub forced_eos: Vec<u32>,
    /// Never produced: the entries of `bad_words_ids` that are one token, end-of-sentence excepted.
    pub banned: Vec<u32>,
}

/// An encoder-decoder Transformer, without its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whose names the checkpoint uses.
    pub family: Family,
    /// Width of every vector between layers.
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
    /// Added to the variance under the root of every LayerNorm.
    pub layer_norm_eps: f32,
    /// Of both feed-forward blocks.
    pub activation: Activation,
    /// How positions are written.
    pub positions: Positions,
    /// Longest source or target that the positions can number; `None` where a formula numbers any.
    pub max_positions: Option<usize>,
    /// Factor on every embedding before the position is added: 1 or `sqrt(d_model)`.
    pub embedding_scale: f32,
    /// Shared matrices. From `config.json` this is what it claims; from a checkpoint, what the tensors show.
    pub ties: Ties,
    /// Token ids with a meaning.
    pub tokens: SpecialTokens,
    /// How the checkpoint wants to be decoded when the caller does not say.
    pub generation: GenerationDefaults,
}

impl Config {
    /// The encoder's or the decoder's dimensions.
    pub const fn stack(&self, side: Side) -> &Stack {
        match side {
            Side::Encoder => &self.encoder,
            Side::Decoder => &self.decoder,
        }
    }

    /// Source or target vocabulary.
    pub const fn vocab(&self, side: Side) -> usize {
        match side {
            Side::Encoder => self.source_vocab,
            Side::Decoder => self.target_vocab,
        }
    }

    /// Width of one head: `d_model / heads`, and 0 where heads are 0.
    pub const fn head_dim(&self, side: Side) -> usize {
        match self.d_model.checked_div(self.stack(side).heads) {
            Some(width) => width,
            None => 0,
        }
    }

    /// Checks that the dimensions make a model and that every id lies in its vocabulary.
    ///
    /// # Errors
    /// The first thing that is wrong: a zero or absurdly large dimension, heads that do not divide `d_model`, a tie
    /// between vocabularies of different sizes, an epsilon or scale that is not a usable number, positions that the
    /// width or the table cannot hold, an id outside the vocabulary.
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
        self.validate_ids()?;
        self.generation.validate(self.target_vocab)
    }

    fn validate_positions(&self) -> Result<(), ConfigError> {
        if let Some(n) = self.max_positions {
            dimension("max positions", n, MAX_DIMENSION)?;
        }
        match self.positions {
            Positions::HalfSplit | Positions::Interleaved => Ok(()),
            Positions::HalfSplitOffset { offset } => {
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

fn ids_inside(what: &'static str, ids: &[u32], vocabulary: usize) -> Result<(), ConfigError> {
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(&id) => Err(ConfigError::IdOutsideVocabulary { what, id, vocabulary }),
        None => Ok(()),
    }
}
