//! The common names of encoder-only models. All names may have a prefix, if the encoder is part of a larger
//! model such as a classifier. The scale and the bias of a norm also have older names.

use super::hugging_face::affine;
use super::tensor_location::Location;
use crate::config::Side;
use crate::network::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};

/// The names of a family.
pub(super) struct Spelling {
    /// The optional prefix, with its dot.
    pub(super) prefix: &'static str,
    /// The stack of layers.
    pub(super) layers: &'static str,
    /// Query, key, value and output.
    pub(super) projections: [&'static str; 4],
    pub(super) attention_norm: &'static str,
    pub(super) inner: &'static str,
    pub(super) outer: &'static str,
    pub(super) feed_forward_norm: &'static str,
    /// Whether the family has a table of token types.
    pub(super) token_types: bool,
    /// The table of relative positions, if there is one.
    pub(super) relative_bias: Option<&'static str>,
}

impl Spelling {
    pub(super) fn locate(&self, role: TensorId) -> Vec<Location> {
        let whole = |name: &str| self.both(name);
        match role {
            TensorId::SourceEmbedding => whole("embeddings.word_embeddings.weight"),
            TensorId::Positions(Side::Encoder) => whole("embeddings.position_embeddings.weight"),
            TensorId::TokenTypes if self.token_types => {
                whole("embeddings.token_type_embeddings.weight")
            }
            TensorId::EmbeddingNorm(Side::Encoder, of) => self.norm("embeddings.LayerNorm", of),
            TensorId::RelativeBias(Side::Encoder) => {
                self.relative_bias.map(whole).unwrap_or_default()
            }
            TensorId::Layer(Side::Encoder, layer, part) => self.layer(layer, part),
            _ => Vec::new(),
        }
    }

    fn layer(&self, layer: usize, part: LayerPart) -> Vec<Location> {
        let stem = |name: &str| format!("{}.{layer}.{name}", self.layers);
        match part {
            LayerPart::Attention(Attention::Own, projection, of) => {
                let [query, key, value, output] = self.projections;
                let name = match projection {
                    Projection::Query => query,
                    Projection::Key => key,
                    Projection::Value => value,
                    Projection::Output => output,
                };
                self.both(&format!("{}.{}", stem(name), affine(of)))
            }
            LayerPart::AttentionNorm(Attention::Own, of) => {
                self.norm(&stem(self.attention_norm), of)
            }
            LayerPart::FeedForward(FeedForward::Inner, of) => {
                self.both(&format!("{}.{}", stem(self.inner), affine(of)))
            }
            LayerPart::FeedForward(FeedForward::Outer, of) => {
                self.both(&format!("{}.{}", stem(self.outer), affine(of)))
            }
            LayerPart::FeedForwardNorm(of) => self.norm(&stem(self.feed_forward_norm), of),
            _ => Vec::new(),
        }
    }

    fn norm(&self, stem: &str, of: ParamKind) -> Vec<Location> {
        let old = match of {
            ParamKind::Weight => "gamma",
            ParamKind::Bias => "beta",
        };
        let mut places = self.both(&format!("{stem}.{}", affine(of)));
        places.extend(self.both(&format!("{stem}.{old}")));
        places
    }

    /// The name without and with the prefix.
    fn both(&self, name: &str) -> Vec<Location> {
        vec![Location::whole(name), Location::whole(format!("{}{name}", self.prefix))]
    }
}
