//! The choices in which published models differ, with a type for each.

use simdformer_kernels::Activation;

/// Declares [`Family`] with the `model_type` of each: first the families of published checkpoints, then the others.
macro_rules! families {
    (
        $($(#[$doc:meta])* $family:ident = $name:literal,)*;
        $($(#[$other_doc:meta])* $other:ident = $other_name:literal,)*
    ) => {
        /// The library whose names and conventions a checkpoint follows.
        /// [`TensorId::names`](crate::checkpoint::TensorId::names) returns the names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Family {
            $($(#[$doc])* $family,)*
            $($(#[$other_doc])* $other,)*
        }

        impl Family {
            /// The families of published checkpoints: all except [`Family::Plain`].
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$family),*];

            /// The `model_type` of `config.json`.
            pub const fn model_type(self) -> &'static str {
                match self {
                    $(Self::$family => $name,)*
                    $(Self::$other => $other_name,)*
                }
            }
        }
    };
}

families! {
    /// Hugging Face `marian` (OPUS-MT): post-norm, half-split positions.
    Marian = "marian",
    /// Hugging Face `bart`: post-norm, learned positions, a norm after the embeddings.
    Bart = "bart",
    /// Hugging Face `mbart`: pre-norm, otherwise as BART.
    MBart = "mbart",
    /// Hugging Face `m2m_100` (M2M100 and NLLB): pre-norm, half-split positions counted from an offset.
    M2M100 = "m2m_100",
    /// Hugging Face `pegasus`: pre-norm, half-split positions.
    Pegasus = "pegasus",
    /// Hugging Face `blenderbot`: pre-norm, learned positions.
    Blenderbot = "blenderbot",
    /// Hugging Face `blenderbot-small`: post-norm, learned positions; the decoder adds them after the norm of the
    /// embedding.
    BlenderbotSmall = "blenderbot-small",
    /// Hugging Face `mvp`: as BART.
    Mvp = "mvp",
    /// Hugging Face `plbart`: as BART, for source code.
    PlBart = "plbart",
    /// Hugging Face `fsmt` (WMT19 of fairseq): post-norm, half-split positions, two vocabularies.
    Fsmt = "fsmt",
    /// Hugging Face `seamless_m4t`, text to text: as M2M100.
    SeamlessM4t = "seamless_m4t",
    /// Hugging Face `seamless_m4t_v2`, text to text.
    SeamlessM4tV2 = "seamless_m4t_v2",
    /// Hugging Face `t5`: also version 1.1, FLAN-T5, MADLAD-400, ByT5. Relative positions, RMSNorm, no bias.
    T5 = "t5",
    /// Hugging Face `mt5`.
    Mt5 = "mt5",
    /// Hugging Face `umt5`: as mT5, with a table of relative positions in each layer.
    Umt5 = "umt5",
    /// Hugging Face `whisper`: pre-norm, learned positions; the encoder reads audio features.
    Whisper = "whisper",
    /// Hugging Face `bert`, encoder-only: also MiniLM, E5, BGE and GTE.
    Bert = "bert",
    /// Hugging Face `roberta`: BERT with positions counted from an offset.
    Roberta = "roberta",
    /// Hugging Face `xlm-roberta`: as RoBERTa.
    XlmRoberta = "xlm-roberta",
    /// Hugging Face `camembert`: as RoBERTa.
    Camembert = "camembert",
    /// Hugging Face `distilbert`: as BERT, without token types.
    DistilBert = "distilbert",
    /// Hugging Face `mpnet`: as RoBERTa, plus relative positions.
    MpNet = "mpnet",
    /// `torch.nn.Transformer`, together with `src_embed`, `tgt_embed` and `generator`: pre- or post-norm, with a
    /// norm after the last layer in either case. This crate defines its `config.json`; see
    /// [`Config::from_hugging_face`](super::Config::from_hugging_face).
    NnTransformer = "nn_transformer",
    ;
    /// No library: the name of a tensor is the printed form of its [`TensorId`](crate::checkpoint::TensorId), for
    /// example `decoder.layers.0.cross_attention.query.weight`. The only family with a name for every part of a
    /// [`Config`](super::Config); that of [`Config::transformer`](super::Config::transformer).
    Plain = "plain",
}

impl Family {
    /// Whether a `config.json` of the family does not tell which matrices are tied.
    pub(crate) const fn ties_follow_from_tensors(self) -> bool {
        matches!(self, Self::T5 | Self::Mt5 | Self::Umt5)
    }

    /// The optional parts for which checkpoints of the family have names.
    pub(crate) const fn named(self) -> &'static [Part] {
        use Part::*;
        match self {
            Self::Marian | Self::Fsmt => &[Decoder, SourceEmbedding],
            Self::Bart
            | Self::MBart
            | Self::Blenderbot
            | Self::BlenderbotSmall
            | Self::Mvp
            | Self::PlBart => &[Decoder, SourceEmbedding, Positions, EmbeddingNorm, FinalNorm],
            Self::M2M100
            | Self::Pegasus
            | Self::SeamlessM4t
            | Self::SeamlessM4tV2
            | Self::NnTransformer => &[Decoder, SourceEmbedding, FinalNorm],
            Self::T5 | Self::Mt5 | Self::Umt5 => {
                &[Decoder, SourceEmbedding, FinalNorm, Gate, RelativeBias]
            }
            Self::Whisper => &[Decoder, Features, Positions, FinalNorm],
            Self::Bert | Self::Roberta | Self::XlmRoberta | Self::Camembert => {
                &[SourceEmbedding, Positions, EmbeddingNorm, TokenTypes]
            }
            Self::DistilBert => &[SourceEmbedding, Positions, EmbeddingNorm],
            Self::MpNet => &[SourceEmbedding, Positions, EmbeddingNorm, RelativeBias],
            Self::Plain => &[
                Decoder,
                SourceEmbedding,
                Features,
                Positions,
                EmbeddingNorm,
                FinalNorm,
                TokenTypes,
                Gate,
                RelativeBias,
            ],
        }
    }
}

/// An optional part of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Decoder,
    /// A source embedding that is separate from the target embedding.
    SourceEmbedding,
    /// Convolutions over features instead of the source embedding.
    Features,
    /// A table of positions.
    Positions,
    EmbeddingNorm,
    /// A norm after the last layer.
    FinalNorm,
    TokenTypes,
    /// The gate of a feed-forward block.
    Gate,
    RelativeBias,
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
/// use simdformer::config::{NormPlacement, Stack};
///
/// // Six layers with eight heads, and a norm after the sum of embedding and position, as in BART.
/// let stack = Stack { embedding_norm: Some(NormPlacement::Post), ..Stack::new(6, 8, 2048) };
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
    /// A norm of the embeddings: `norm(embedding) + position` with [`NormPlacement::Pre`] (Blenderbot-small's decoder),
    /// `norm(embedding + position)` with [`NormPlacement::Post`] (BART, BERT).
    pub embedding_norm: Option<NormPlacement>,
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
    /// The first token of every source, which CTranslate2 puts before the tokens of its caller (`add_source_bos`,
    /// `with_source_bos`). The sources of this crate are whole: a tokenizer or the caller adds it.
    pub source_begin: Option<u32>,
    /// The last token of every source, as [`source_begin`](Self::source_begin) (`add_source_eos`, `with_source_eos`).
    pub source_end: Option<u32>,
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
