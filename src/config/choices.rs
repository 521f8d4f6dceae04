//! The choices in which published models differ, each a type of its own.

use simdformer_kernels::Activation;

/// The library whose names and conventions a checkpoint follows. [`Role::names`](crate::checkpoint::Role::names) has the
/// names.
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
    /// `torch.nn.Transformer`, with `src_embed`, `tgt_embed` and `generator` around it: pre- or post-norm, a norm after
    /// the last layer in either case. Its `config.json` is this crate's own, see
    /// [`Config::from_hugging_face`](super::Config::from_hugging_face).
    NnTransformer,
    /// No library's: a tensor is called what its [`Role`](crate::checkpoint::Role) prints, such as
    /// `decoder.layers.0.cross_attention.query.weight`. The only family that has a name for every part that a
    /// [`Config`](super::Config) can ask for; that of [`Config::transformer`](super::Config::transformer).
    Plain,
}

impl Family {
    /// Every family that a `config.json` can name: all but [`Family::Plain`].
    pub const ALL: [Self; 5] =
        [Self::Marian, Self::Bart, Self::MBart, Self::M2M100, Self::NnTransformer];

    /// The `model_type` of `config.json`; `"plain"` for [`Family::Plain`], which has none.
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::Marian => "marian",
            Self::Bart => "bart",
            Self::MBart => "mbart",
            Self::M2M100 => "m2m_100",
            Self::NnTransformer => "nn_transformer",
            Self::Plain => "plain",
        }
    }

    /// Whether its checkpoints have names for a norm after the embeddings.
    pub(crate) const fn names_embedding_norm(self) -> bool {
        matches!(self, Self::Bart | Self::MBart | Self::Plain)
    }

    /// Whether its checkpoints have names for a norm after the last layer.
    pub(crate) const fn names_final_norm(self) -> bool {
        !matches!(self, Self::Marian)
    }

    /// Whether its checkpoints have names for a table of positions.
    pub(crate) const fn names_positions(self) -> bool {
        matches!(self, Self::Bart | Self::MBart | Self::Plain)
    }
}

/// One of the two halves of the model (figure 1 of Vaswani et al. 2017).
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

/// The shape of one stack of layers. Its width is [`Config::d_model`](super::Config::d_model), that of both stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Attention heads of each layer, each `d_model / heads` wide; divides `d_model`.
    pub heads: usize,
    /// Width of the hidden layer of the feed-forward block, at least 1.
    pub ffn_dim: usize,
    /// A LayerNorm right after embedding and position are added (BART, mBART).
    pub embedding_norm: bool,
    /// A LayerNorm after the last layer (M2M100, mBART, `torch.nn.Transformer`).
    pub final_norm: bool,
}

/// The dimensions by which table 3 of Vaswani et al. 2017 tells its models apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Width of every vector between layers, `d_model`.
    pub d_model: usize,
    /// Attention heads of each layer, `h`; divides `d_model`.
    pub heads: usize,
    /// Layers of the encoder, and as many of the decoder, `N`.
    pub layers: usize,
    /// Width of the hidden layer of the feed-forward block, `d_ff`.
    pub ffn_dim: usize,
    /// Tokens of the one vocabulary that both sides share.
    pub vocabulary: usize,
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
///
/// | name | activation |
/// |---|---|
/// | `linear` | [`Activation::Identity`] |
/// | `relu` | [`Activation::Relu`] |
/// | `gelu`, `gelu_python` | [`Activation::Gelu`], by the error function |
/// | `gelu_new`, `gelu_pytorch_tanh`, `gelu_python_tanh` | [`Activation::GeluTanh`] |
/// | `silu`, `swish` | [`Activation::Silu`] |
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
    HalfSplitClosed {
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
///
/// A checkpoint may keep a tied matrix once, under the name of any of its roles. A matrix that is not tied must be
/// there under a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ties {
    /// The decoder embeds with the encoder's matrix.
    pub source_target: bool,
    /// The output projection is the decoder's embedding.
    pub target_output: bool,
}

/// Token ids with a meaning. All are of the target, and below its vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Fills up the shorter sentences of a batch in other libraries. Nothing is filled up here; what counts its positions
    /// from this id (M2M100) has them as [`Positions::HalfSplitClosed`].
    pub pad: Option<u32>,
    /// Any of these ends a target. May be empty: then only the length does.
    pub eos: Vec<u32>,
    /// Begins a sentence in some tokenizers; neither the model nor the search uses it.
    pub bos: Option<u32>,
    /// The token the decoder reads first. `None` in models that want a language here (mBART): the caller must say it.
    pub decoder_start: Option<u32>,
    /// The only token allowed directly after the decoder start (M2M100, NLLB: the target language).
    pub forced_bos: Option<u32>,
    /// The only tokens allowed last in a target as long as [`GenerationDefaults`](super::GenerationDefaults) lets it
    /// become; empty for no such rule.
    pub forced_eos: Vec<u32>,
    /// Never produced: the entries of `bad_words_ids` that are one token, end-of-sentence excepted, each once, ascending.
    pub banned: Vec<u32>,
}
