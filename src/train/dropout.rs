//! The dropout sites, and the keys of their masks.
//!
//! No mask is stored. Whether a value is dropped is a function of the seed, the update, the site in the network, the
//! corpus index of the sentence, and the index of the value in the sentence. So the forward and the backward pass use
//! the same mask, in any batch and on any thread.

use crate::config::Side;
use crate::error::Error;
use crate::model::forward::BlockId;
use simdformer_kernels::train::Dropout;

/// The fractions of values that are dropped during training, each in `[0, 1)`. Evaluation drops none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropoutRates {
    /// For the output of each block, before it is added to the residual stream, and for the embeddings (as in the
    /// paper).
    pub hidden: f32,
    /// For the attention weights, after the softmax.
    pub attention: f32,
    /// For the hidden layer of the feed-forward blocks.
    pub activation: f32,
    /// The seed of all masks.
    pub seed: u64,
}

impl DropoutRates {
    pub(super) fn check(&self) -> Result<(), Error> {
        let rates = [
            ("dropout", self.hidden),
            ("attention dropout", self.attention),
            ("activation dropout", self.activation),
        ];
        match rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
            Some((setting, found)) => {
                Err(Error::invalid_option(setting, "at least 0 and below 1", found.to_string()))
            }
            None => Ok(()),
        }
    }
}

/// The dropout of one update.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepDropout {
    pub(super) rates: DropoutRates,
    pub(super) step: u64,
}

/// A site in the network where dropout is applied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Site {
    /// The output of a block.
    Output(BlockId),
    /// The hidden layer of a feed-forward block.
    Hidden(BlockId),
    /// The attention weights of a block.
    Weights(BlockId),
}

impl StepDropout {
    /// The dropout at `site` of one side; `None` if the site has none or if the rate is zero.
    pub(super) fn at(self, side: Side, site: Site) -> Option<Dropout> {
        let Self { rates, step } = self;
        let probability = match site {
            Site::Output(_) => rates.hidden,
            Site::Hidden(_) => rates.activation,
            Site::Weights(_) => rates.attention,
        };
        let site = site.number(side)?;
        (probability > 0.0).then_some(Dropout { seed: rates.seed, step, site, probability })
    }
}

impl Site {
    /// The number of a site. It must never change between versions, because a resumed run must use the same masks.
    fn number(self, side: Side) -> Option<u32> {
        use BlockId::{CrossAttention, Embedding, FeedForward, SelfAttention};
        let (kind, layer) = match self {
            Self::Output(Embedding) => (0, 0),
            Self::Output(SelfAttention(layer)) => (1, layer),
            Self::Output(CrossAttention(layer)) => (2, layer),
            Self::Output(FeedForward(layer)) => (3, layer),
            Self::Hidden(FeedForward(layer)) => (4, layer),
            Self::Weights(SelfAttention(layer)) => (5, layer),
            Self::Weights(CrossAttention(layer)) => (6, layer),
            _ => return None,
        };
        let side = u32::from(side == Side::Decoder);
        Some((layer as u32) << 4 | kind << 1 | side)
    }
}
