//! Where dropout stands, and what it draws by.
//!
//! No mask is stored: whether a number is dropped is a function of the seed, the update, the place in the network, the
//! sentence of the corpus and the number's place in it. So forward and backward, any batch and any thread agree.

use super::error::TrainError;
use crate::config::Side;
use simdformer_kernels::train::Dropout;

/// The parts of the numbers that are dropped while learning, each 0 or more and below 1; evaluation drops none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropoutRates {
    /// Of what each block makes, before it is added to the stream, and of the embeddings (the paper's).
    pub hidden: f32,
    /// Of the weights of attention, after their softmax.
    pub attention: f32,
    /// Of the hidden layer of the feed-forward blocks.
    pub activation: f32,
    /// What everything is drawn from.
    pub seed: u64,
}

impl DropoutRates {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let rates = [
            ("dropout", self.hidden),
            ("attention dropout", self.attention),
            ("activation dropout", self.activation),
        ];
        match rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
            Some((setting, found)) => {
                let expected = "at least 0 and below 1";
                Err(TrainError::Setting { setting, expected, found: f64::from(found) })
            }
            None => Ok(()),
        }
    }
}

/// What is dropped in one update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drops {
    pub(super) rates: DropoutRates,
    pub(super) step: u64,
}

/// A place in the network where numbers are dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Site {
    Embedding,
    /// What a block of the layer makes.
    Own(usize),
    Cross(usize),
    FeedForward(usize),
    /// Its hidden layer.
    Hidden(usize),
    /// The weights of an attention.
    OwnWeights(usize),
    CrossWeights(usize),
}

impl Drops {
    /// What is dropped at `site` of one side, if anything.
    pub(super) fn at(self, side: Side, site: Site) -> Option<Dropout> {
        let Self { rates, step } = self;
        let probability = match site {
            Site::Hidden(_) => rates.activation,
            Site::OwnWeights(_) | Site::CrossWeights(_) => rates.attention,
            _ => rates.hidden,
        };
        let site = site.number(side);
        (probability > 0.0).then_some(Dropout { seed: rates.seed, step, site, probability })
    }
}

impl Site {
    /// A number of its own, the same in every version: a run goes on with the masks that it began with.
    fn number(self, side: Side) -> u32 {
        let (kind, layer) = match self {
            Self::Embedding => (0, 0),
            Self::Own(layer) => (1, layer),
            Self::Cross(layer) => (2, layer),
            Self::FeedForward(layer) => (3, layer),
            Self::Hidden(layer) => (4, layer),
            Self::OwnWeights(layer) => (5, layer),
            Self::CrossWeights(layer) => (6, layer),
        };
        let side = u32::from(side == Side::Decoder);
        (layer as u32) << 4 | kind << 1 | side
    }
}
