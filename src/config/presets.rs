//! The models of the paper.

use super::{
    Activation, Biases, Config, Dimensions, Family, NormKind, NormPlacement, Positions, Settings,
    SpecialTokens, Stack, TiedWeights, Transcription,
};

impl Config {
    /// The Transformer of "Attention Is All You Need" with these dimensions: norms after each block (epsilon
    /// `1e-5`), ReLU, sinusoidal positions, embeddings times `sqrt(d_model)`, one matrix for both embeddings and
    /// the output.
    ///
    /// Other architectures change fields; see the example of [`Config`]. Token ids are not set, because they depend
    /// on the vocabulary: generation needs at least [`SpecialTokens::decoder_start`] and [`SpecialTokens::eos`].
    /// The family is [`Family::Plain`]. The configuration is not checked here; every function that takes it calls
    /// [`Config::validate`].
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions};
    ///
    /// let small = Dimensions { d_model: 128, heads: 4, layers: 3, ffn_dim: 512, vocabulary: 8000 };
    /// let config = Config::transformer(small);
    /// assert!(config.validate().is_ok());
    /// assert_eq!((config.encoder.layers, config.decoder.map(|stack| stack.layers)), (3, Some(3)));
    /// assert_eq!(config.embedding_scale, 128f32.sqrt());
    /// ```
    pub fn transformer(dimensions: Dimensions) -> Self {
        let Dimensions { d_model, heads, layers, ffn_dim, vocabulary } = dimensions;
        let stack = Stack::new(layers, heads, ffn_dim);
        Self {
            family: Family::Plain,
            d_model,
            encoder: stack,
            decoder: Some(stack),
            bins: None,
            source_vocab: vocabulary,
            target_vocab: vocabulary,
            norm: NormPlacement::Post,
            norm_kind: NormKind::LayerNorm { bias: true },
            layer_norm_eps: 1e-5,
            biases: Biases::ALL,
            activation: Activation::Relu,
            gated: false,
            attention_scale: None,
            positions: Positions::Interleaved,
            token_types: 0,
            // Computed in double precision and rounded once, as in the libraries.
            embedding_scale: (d_model as f64).sqrt() as f32,
            logit_scale: 1.0,
            ties: TiedWeights { source_target: true, target_output: true },
            tokens: SpecialTokens::default(),
            settings: Settings::default(),
            transcription: Transcription::default(),
            unsupported: Vec::new(),
            defaults: Vec::new(),
        }
    }

    /// The paper's base model: `d_model` 512, 8 heads, 6 layers, `d_ff` 2048. The vocabularies in the paper had
    /// about 37,000 tokens (English-German) and 32,000 (English-French).
    pub fn base(vocabulary: usize) -> Self {
        Self::transformer(Dimensions {
            d_model: 512,
            heads: 8,
            layers: 6,
            ffn_dim: 2048,
            vocabulary,
        })
    }

    /// The paper's big model: `d_model` 1024, 16 heads, 6 layers, `d_ff` 4096.
    pub fn big(vocabulary: usize) -> Self {
        Self::transformer(Dimensions {
            d_model: 1024,
            heads: 16,
            layers: 6,
            ffn_dim: 4096,
            vocabulary,
        })
    }
}
