//! The choices in which published models differ, with a type for each.

use simdformer_kernels::Activation;

/// The library whose names and conventions a checkpoint follows.
/// [`TensorId::names`](crate::checkpoint::TensorId::names) returns the names.
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
    /// Hugging Face `blenderbot-small`: post-norm, learned positions; the decoder adds them after the norm of the
    /// embedding.
    BlenderbotSmall,
    /// Hugging Face `mvp`: as BART.
    Mvp,
    /// Hugging Face `plbart`: as BART, for source code.
    PlBart,
    /// Hugging Face `fsmt` (WMT19 of fairseq): post-norm, half-split positions, two vocabularies.
    Fsmt,
    /// Hugging Face `seamless_m4t`, text to text: as M2M100.
    SeamlessM4t,
    /// Hugging Face `seamless_m4t_v2`, text to text.
    SeamlessM4tV2,
    /// Hugging Face `t5`: also version 1.1, FLAN-T5, MADLAD-400, ByT5. Relative positions, RMSNorm, no bias.
    T5,
    /// Hugging Face `mt5`.
    Mt5,
    /// Hugging Face `umt5`: as mT5, with a table of relative positions in each layer.
    Umt5,
    /// Hugging Face `whisper`: pre-norm, learned positions; the encoder reads audio features.
    Whisper,
    /// Hugging Face `bert`, encoder-only: also MiniLM, E5, BGE and GTE.
    Bert,
    /// Hugging Face `roberta`: BERT with positions counted from an offset.
    Roberta,
    /// Hugging Face `xlm-roberta`: as RoBERTa.
    XlmRoberta,
    /// Hugging Face `camembert`: as RoBERTa.
    Camembert,
    /// Hugging Face `distilbert`: as BERT, without token types.
    DistilBert,
    /// Hugging Face `mpnet`: as RoBERTa, plus relative positions.
    MpNet,
    /// `torch.nn.Transformer`, together with `src_embed`, `tgt_embed` and `generator`: pre- or post-norm, with a
    /// norm after the last layer in either case. This crate defines its `config.json`; see
    /// [`Config::from_hugging_face`](super::Config::from_hugging_face).
    NnTransformer,
    /// No library: the name of a tensor is the printed form of its [`TensorId`](crate::checkpoint::TensorId), for
    /// example `decoder.layers.0.cross_attention.query.weight`. The only family with a name for every part of a
    /// [`Config`](super::Config); that of [`Config::transformer`](super::Config::transformer).
    Plain,
}

impl Family {
    /// The families of published checkpoints: all except [`Family::Plain`].
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

    /// The `model_type` of `config.json`.
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

    /// Whether a `config.json` of the family does not tell which matrices are tied.
    pub(crate) const fn ties_follow_from_tensors(self) -> bool {
        matches!(self, Self::T5 | Self::Mt5 | Self::Umt5)
    }

    /// The optional parts for which checkpoints of the family have names.
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

/// Optional parts of a model, and whether the checkpoints of a family have names for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// A decoder.
    pub(crate) decoder: bool,
    /// A source embedding that is separate from the target embedding.
    pub(crate) source_embedding: bool,
    /// Convolutions over features instead of the source embedding.
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
    /// Reads the source, writes the encoder output.
    Encoder,
    /// Reads the previous target tokens and the encoder output, writes logits.
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

/// One stack of layers. Its width is [`Config::d_model`](super::Config::d_model), the same for both stacks.
///
/// ```
/// use simdformer::config::{EmbeddingNorm, Stack};
///
/// // Six layers with eight heads, and a norm after the sum of embedding and position, as in BART.
/// let stack = Stack { embedding_norm: Some(EmbeddingNorm::AfterPositions), ..Stack::new(6, 8, 2048) };
/// assert_eq!((stack.layers, stack.head_dim), (6, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Attention heads of each layer; `d_model` must be a multiple if `head_dim` is `None`.
    pub heads: usize,
    /// Width of one head if it is not `d_model / heads` (some T5).
    pub head_dim: Option<usize>,
    /// Width of the hidden layer of the feed-forward block.
    pub ffn_dim: usize,
    /// A norm of the embeddings, before or after the positions are added (BART, BERT).
    pub embedding_norm: Option<EmbeddingNorm>,
    /// A norm after the last layer.
    pub final_norm: bool,
    /// Maximum length of a sequence with a position table; `None` if a formula gives the positions or there are
    /// none.
    pub max_positions: Option<usize>,
    /// A bias of self-attention scores that depends on the distance from query to key (T5, MPNet).
    pub relative_bias: Option<RelativeBias>,
}

impl Stack {
    /// Layers without optional parts and without a maximum length.
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

/// The position of the embedding norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingNorm {
    /// `norm(embedding) + position` (Blenderbot-small's decoder).
    BeforePositions,
    /// `norm(embedding + position)` (BART, BERT).
    AfterPositions,
}

/// The input layers of an encoder that reads features instead of ids (Radford et al. 2022, section 2.2): two
/// convolutions over frames, both of three frames with a zero frame before and after, with `d_model` outputs, a
/// bias and GELU (by the error function). The second has stride 2, so there are half as many positions as
/// frames, rounded up: [`Features::positions`](crate::Features::positions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvFrontend {
    /// Numbers per frame: 80 or 128 bins of a mel spectrogram in published models.
    pub bins: usize,
}

/// A bias of attention scores for each head that depends only on `key - query`: row
/// [`bucket`](simdformer_kernels::relative::RelativeBuckets::bucket) of a trained table `[buckets, heads]`
/// (Raffel et al. 2020, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeBias {
    /// Rows of the table.
    pub buckets: usize,
    /// Distances from this one on share the last bucket.
    pub max_distance: usize,
    /// Each layer has its own table (UMT5); otherwise all layers share one.
    pub per_layer: bool,
}

/// The function of every norm of a model.
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

/// The linear maps of the layers that have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// The queries of attention.
    pub query: bool,
    /// The keys.
    pub key: bool,
    /// The values.
    pub value: bool,
    /// The map from the concatenated heads to `d_model`.
    pub attention_output: bool,
    /// The maps of the feed-forward block.
    pub feed_forward: bool,
}

impl Biases {
    /// Every map has a bias.
    pub const ALL: Self =
        Self { query: true, key: true, value: true, attention_output: true, feed_forward: true };

    /// No map has a bias (T5).
    pub const NONE: Self = Self {
        query: false,
        key: false,
        value: false,
        attention_output: false,
        feed_forward: false,
    };
}

/// The dimensions that distinguish the models in table 3 of Vaswani et al. 2017.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Width of the vectors between layers, `d_model`.
    pub d_model: usize,
    /// Attention heads of each layer, `h`; divides `d_model`.
    pub heads: usize,
    /// Layers of the encoder, and the same number in the decoder, `N`.
    pub layers: usize,
    /// Width of the hidden layer of the feed-forward block, `d_ff`.
    pub ffn_dim: usize,
    /// Tokens of the vocabulary that both sides share.
    pub vocabulary: usize,
}

/// The position of the norm in a block `f` (attention or feed-forward).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// `x + f(norm(x))`.
    Pre,
    /// `norm(x + f(x))`, as in the paper.
    Post,
}

/// The activation that Hugging Face calls `name`; `None` for activations that no supported layer uses.
///
/// | name | activation |
/// |---|---|
/// | `linear` | [`Activation::Identity`] |
/// | `relu` | [`Activation::Relu`] |
/// | `gelu`, `gelu_python` | [`Activation::Gelu`], by the error function |
/// | `gelu_new`, `gelu_pytorch_tanh`, `gelu_python_tanh` | [`Activation::GeluTanh`] |
/// | `silu`, `swish` | [`Activation::Silu`] |
pub fn activation_from_name(name: &str) -> Option<Activation> {
    ACTIVATIONS.into_iter().find(|(known, _)| *known == name).map(|(_, activation)| activation)
}

/// The names of activations, the preferred name of each first.
pub(super) const ACTIVATIONS: [(&str, Activation); 9] = [
    ("linear", Activation::Identity),
    ("relu", Activation::Relu),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

/// The encoding of position `p = 0, 1, ...` of a sentence as a vector of `d = d_model` numbers, which is added
/// to the scaled embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Positions {
    /// First half `sin(p / 10000^(2k/d))`, second half the cosines of the same angles, `k = 0 .. d/2`; an odd `d`
    /// has one more sine. Marian in Hugging Face's implementation.
    HalfSplit,
    /// First half `sin(q / 10000^(k/(d/2-1)))`, second half the cosines, where `q = p + offset`; for an odd `d` the
    /// last number is zero. fairseq, M2M100 and NLLB with `offset` = pad id + 1, Marian's own C++ with 0.
    HalfSplitClosed {
        /// The position of the first token.
        offset: usize,
    },
    /// `sin` at even and `cos` at odd indices, of the angle `p / 10000^(2k/d)`. Vaswani et al. 2017, section 3.5.
    Interleaved,
    /// As [`Positions::HalfSplitClosed`], with the angle computed in f32 as in transformers: beyond a few hundred
    /// tokens the sines differ from those of the exact angle. FSMT, Seamless.
    HalfSplitSingle {
        /// The position of the first token.
        offset: usize,
    },
    /// Row `p + offset` of a trained table `[max_positions + offset, d]`. BART and mBART with `offset` 2.
    Learned {
        /// Rows of the table before the first position.
        offset: usize,
    },
    /// No position vectors: the layers use relative positions (T5), or none.
    None,
}

/// Which of the three embedding matrices are one matrix.
///
/// A checkpoint may store a tied matrix once, under the name of any of its roles. A matrix that is not tied
/// must be stored under its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiedWeights {
    /// The source embedding is also the target embedding.
    pub source_target: bool,
    /// The target embedding is also the output matrix.
    pub target_output: bool,
}

/// Special token ids. All belong to the target and are below its vocabulary size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Pads the shorter sentences of a batch in other libraries. This crate does not pad. Models that count
    /// positions from this id (M2M100) use [`Positions::HalfSplitClosed`].
    pub pad: Option<u32>,
    /// Tokens that end a target. If empty, the options of a search must set a maximum length (`max_new_tokens` or
    /// `max_length`); otherwise the search returns an error.
    pub eos: Vec<u32>,
    /// Begins a sentence in some tokenizers; neither the model nor the search uses it.
    pub bos: Option<u32>,
    /// The first token of the decoder. `None` in models that need a language token here (mBART, PLBart): the caller
    /// must set it, and a search without it is an error.
    pub decoder_start: Option<u32>,
    /// The only token allowed directly after the decoder start (M2M100, NLLB: the target language).
    pub forced_bos: Option<u32>,
    /// The only tokens allowed at the last position of a target of the maximum length of
    /// [`Settings`](super::Settings); empty disables the rule.
    pub forced_eos: Vec<u32>,
    /// Tokens that are never generated: the entries of `bad_words_ids` with one token, except end tokens; each
    /// once, ascending.
    pub banned: Vec<u32>,
}
