//! The choices in which published models differ, each a type of its own.

use simdformer_kernels::Activation;

/// The library whose names and conventions a checkpoint follows. [`TensorId::names`](crate::checkpoint::TensorId::names) has the
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
    /// Hugging Face `pegasus`: pre-norm, half-split positions.
    Pegasus,
    /// Hugging Face `blenderbot`: pre-norm, learned positions.
    Blenderbot,
    /// Hugging Face `blenderbot-small`: post-norm, learned positions, in the decoder after the embedding's norm.
    BlenderbotSmall,
    /// Hugging Face `mvp`: BART.
    Mvp,
    /// Hugging Face `plbart`: BART for source code.
    PlBart,
    /// Hugging Face `fsmt` (WMT19 of fairseq): post-norm, half-split positions, two vocabularies.
    Fsmt,
    /// Hugging Face `seamless_m4t`, from text to text: as M2M100.
    SeamlessM4t,
    /// Hugging Face `seamless_m4t_v2`, from text to text.
    SeamlessM4tV2,
    /// Hugging Face `t5`: also version 1.1, FLAN-T5, MADLAD-400, ByT5. Relative positions, RMSNorm, no bias.
    T5,
    /// Hugging Face `mt5`.
    Mt5,
    /// Hugging Face `umt5`: as mT5, with relative positions of each layer's own.
    Umt5,
    /// Hugging Face `whisper`: pre-norm, learned positions, an encoder that reads the features of sound.
    Whisper,
    /// Hugging Face `bert`, an encoder alone: also MiniLM, E5, BGE and GTE.
    Bert,
    /// Hugging Face `roberta`: BERT with positions counted from an offset.
    Roberta,
    /// Hugging Face `xlm-roberta`: as RoBERTa.
    XlmRoberta,
    /// Hugging Face `camembert`: as RoBERTa.
    Camembert,
    /// Hugging Face `distilbert`: as BERT, without token types.
    DistilBert,
    /// Hugging Face `mpnet`: as RoBERTa, with relative positions too.
    MpNet,
    /// `torch.nn.Transformer`, with `src_embed`, `tgt_embed` and `generator` around it: pre- or post-norm, a norm after
    /// the last layer in either case. Its `config.json` is this crate's own, see
    /// [`Config::from_hugging_face`](super::Config::from_hugging_face).
    NnTransformer,
    /// No library's: a tensor is called what its [`TensorId`](crate::checkpoint::TensorId) prints, such as
    /// `decoder.layers.0.cross_attention.query.weight`. The only family that has a name for every part that a
    /// [`Config`](super::Config) can ask for; that of [`Config::transformer`](super::Config::transformer).
    Plain,
}

impl Family {
    /// Every family that a `config.json` can name: all but [`Family::Plain`].
    pub const ALL: [Self; 23] = [
        Self::Marian,
        Self::Bart,
        Self::MBart,
        Self::M2M100,
        Self::Pegasus,
        Self::Blenderbot,
        Self::BlenderbotSmall,
        Self::Mvp,
        Self::PlBart,
        Self::Fsmt,
        Self::SeamlessM4t,
        Self::SeamlessM4tV2,
        Self::T5,
        Self::Mt5,
        Self::Umt5,
        Self::Whisper,
        Self::Bert,
        Self::Roberta,
        Self::XlmRoberta,
        Self::Camembert,
        Self::DistilBert,
        Self::MpNet,
        Self::NnTransformer,
    ];

    /// The `model_type` of `config.json`; `"plain"` for [`Family::Plain`], which has none.
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::Marian => "marian",
            Self::Bart => "bart",
            Self::MBart => "mbart",
            Self::M2M100 => "m2m_100",
            Self::Pegasus => "pegasus",
            Self::Blenderbot => "blenderbot",
            Self::BlenderbotSmall => "blenderbot-small",
            Self::Mvp => "mvp",
            Self::PlBart => "plbart",
            Self::Fsmt => "fsmt",
            Self::SeamlessM4t => "seamless_m4t",
            Self::SeamlessM4tV2 => "seamless_m4t_v2",
            Self::T5 => "t5",
            Self::Mt5 => "mt5",
            Self::Umt5 => "umt5",
            Self::Whisper => "whisper",
            Self::Bert => "bert",
            Self::Roberta => "roberta",
            Self::XlmRoberta => "xlm-roberta",
            Self::Camembert => "camembert",
            Self::DistilBert => "distilbert",
            Self::MpNet => "mpnet",
            Self::NnTransformer => "nn_transformer",
            Self::Plain => "plain",
        }
    }

    /// For which of the parts that not every model has its checkpoints have names.
    pub(crate) const fn named(self) -> Named {
        const NONE: Named = Named {
            decoder: true,
            source_embedding: true,
            stem: false,
            embedding_norm: false,
            final_norm: false,
            positions: false,
            token_types: false,
            gate: false,
            relative_bias: false,
        };
        const ENCODER: Named =
            Named { decoder: false, embedding_norm: true, positions: true, ..NONE };
        match self {
            Self::Marian | Self::Fsmt => NONE,
            Self::Bart
            | Self::MBart
            | Self::Blenderbot
            | Self::BlenderbotSmall
            | Self::Mvp
            | Self::PlBart => {
                Named { embedding_norm: true, final_norm: true, positions: true, ..NONE }
            }
            Self::M2M100
            | Self::Pegasus
            | Self::SeamlessM4t
            | Self::SeamlessM4tV2
            | Self::NnTransformer => Named { final_norm: true, ..NONE },
            Self::T5 | Self::Mt5 | Self::Umt5 => {
                Named { final_norm: true, gate: true, relative_bias: true, ..NONE }
            }
            Self::Whisper => Named {
                source_embedding: false,
                stem: true,
                final_norm: true,
                positions: true,
                ..NONE
            },
            Self::Bert | Self::Roberta | Self::XlmRoberta | Self::Camembert => {
                Named { token_types: true, ..ENCODER }
            }
            Self::DistilBert => ENCODER,
            Self::MpNet => Named { relative_bias: true, ..ENCODER },
            Self::Plain => Named {
                decoder: true,
                source_embedding: true,
                stem: true,
                embedding_norm: true,
                final_norm: true,
                positions: true,
                token_types: true,
                gate: true,
                relative_bias: true,
            },
        }
    }
}

/// Parts that not every model has, and whether a family's checkpoints have names for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// A decoder at all.
    pub(crate) decoder: bool,
    /// A table of source ids that is not the target's.
    pub(crate) source_embedding: bool,
    /// Convolutions over features in its place.
    pub(crate) stem: bool,
    /// A norm after the embeddings.
    pub(crate) embedding_norm: bool,
    /// A norm after the last layer.
    pub(crate) final_norm: bool,
    /// A table of positions.
    pub(crate) positions: bool,
    /// A table of token types.
    pub(crate) token_types: bool,
    /// The gate of a feed-forward block.
    pub(crate) gate: bool,
    /// A table of relative positions.
    pub(crate) relative_bias: bool,
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

/// One stack of layers. Its width is [`Config::d_model`](super::Config::d_model), that of both stacks.
///
/// ```
/// use simdformer::config::{EmbeddingNorm, Stack};
///
/// // Six layers of eight heads, and a norm once embedding and position are added, as BART has it.
/// let stack = Stack { embedding_norm: Some(EmbeddingNorm::AfterPositions), ..Stack::new(6, 8, 2048) };
/// assert_eq!((stack.layers, stack.head_dim), (6, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Attention heads of each layer; they divide `d_model` where `head_dim` is not given.
    pub heads: usize,
    /// Width of one head where it is not `d_model / heads` (some T5).
    pub head_dim: Option<usize>,
    /// Width of the hidden layer of the feed-forward block.
    pub ffn_dim: usize,
    /// A norm among or after the embeddings (BART, BERT).
    pub embedding_norm: Option<EmbeddingNorm>,
    /// A norm after the last layer.
    pub final_norm: bool,
    /// Longest sequence that the positions can number; `None` where a formula numbers any, or nothing is numbered.
    pub max_positions: Option<usize>,
    /// Scores of self-attention depend on how far a key is from its query (T5, MPNet).
    pub relative_bias: Option<RelativeBias>,
}

impl Stack {
    /// Layers without anything that is optional, and without a longest sequence.
    pub const fn new(layers: usize, heads: usize, ffn_dim: usize) -> Self {
        Self {
            layers,
            heads,
            head_dim: None,
            ffn_dim,
            embedding_norm: None,
            final_norm: false,
            max_positions: None,
            relative_bias: None,
        }
    }
}

/// Where the norm of the embeddings stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingNorm {
    /// `norm(embedding) + position` (Blenderbot-small's decoder).
    BeforePositions,
    /// `norm(embedding + position)` (BART, BERT).
    AfterPositions,
}

/// What stands at the bottom of an encoder that reads features in place of ids (Radford et al. 2022, section 2.2): two
/// convolutions over frames, both of three frames with a zero frame before and after, to `d_model` numbers, each with a
/// bias and the GELU by the error function; the second goes two frames at a time. So there are half as many positions as
/// frames, rounded up: [`Features::positions`](crate::Features::positions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvFrontend {
    /// Numbers in a frame: 80 or 128 bins of a mel spectrogram in published models.
    pub bins: usize,
}

/// What is added to the score of a key, a number for each head that depends on `key - query` alone: row
/// [`bucket`](simdformer_kernels::relative::RelativeBuckets::bucket) of a trained table `[buckets, heads]` (Raffel et al. 2020, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeBias {
    /// Rows of the table.
    pub buckets: usize,
    /// Distances from here on share the last bucket.
    pub max_distance: usize,
    /// Each layer has a table of its own (UMT5); otherwise one serves all.
    pub per_layer: bool,
}

/// What every norm of a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `weight * (x - mean) / sqrt(variance + eps) + bias` (Ba et al. 2016).
    LayerNorm {
        /// Whether there is a bias.
        bias: bool,
    },
    /// `weight * x / sqrt(mean(x^2) + eps)` (Zhang and Sennrich 2019): T5.
    RmsNorm,
}

/// Which linear maps of the layers add a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// The queries of attention.
    pub query: bool,
    /// The keys.
    pub key: bool,
    /// The values.
    pub value: bool,
    /// The map from the joined heads back to the model.
    pub attention_output: bool,
    /// The maps of the feed-forward block.
    pub feed_forward: bool,
}

impl Biases {
    /// Every map has one.
    pub const ALL: Self =
        Self { query: true, key: true, value: true, attention_output: true, feed_forward: true };

    /// None has one (T5).
    pub const NONE: Self = Self {
        query: false,
        key: false,
        value: false,
        attention_output: false,
        feed_forward: false,
    };
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
    /// As [`Positions::HalfSplitClosed`], the angle computed in f32 as transformers does: beyond a few hundred
    /// tokens its sines are not those of the exact angle. FSMT, Seamless.
    HalfSplitSingle {
        /// The position of the first token.
        offset: usize,
    },
    /// Row `p + offset` of a trained table `[max_positions + offset, d]`. BART and mBART with `offset` 2.
    Learned {
        /// Rows of the table before the first position.
        offset: usize,
    },
    /// Nothing is added: the layers tell positions apart in another way (T5), or not at all.
    None,
}

/// Which of the three embedding matrices are one matrix.
///
/// A checkpoint may keep a tied matrix once, under the name of any of its roles. A matrix that is not tied must be
/// there under a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiedWeights {
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
    /// Any of these ends a target. May be empty: then the options of a search must set a longest length
    /// (`max_new_tokens` or `max_length`), or the search is refused.
    pub eos: Vec<u32>,
    /// Begins a sentence in some tokenizers; neither the model nor the search uses it.
    pub bos: Option<u32>,
    /// The token the decoder reads first. `None` in models that want a language here (mBART, PLBart): the caller must
    /// say it, and a search without it is an error.
    pub decoder_start: Option<u32>,
    /// The only token allowed directly after the decoder start (M2M100, NLLB: the target language).
    pub forced_bos: Option<u32>,
    /// The only tokens allowed last in a target as long as [`GenerationDefaults`](super::GenerationDefaults) lets it
    /// become; empty for no such rule.
    pub forced_eos: Vec<u32>,
    /// Never produced: the entries of `bad_words_ids` that are one token, end-of-sentence excepted, each once, ascending.
    pub banned: Vec<u32>,
}
