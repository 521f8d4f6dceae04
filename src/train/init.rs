//! Initial weights, for training from scratch.

use super::frozen::{is_frozen, padding_row};
use crate::checkpoint::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};
use crate::config::{Config, Family, Side, first_size};
use crate::error::Error;
use simdformer_kernels::MatrixMut;
use simdformer_kernels::position::{self, PositionEncoding};
use simdformer_kernels::train::{normal, uniform};

/// How weights are initialized. Norms begin as the identity, Whisper's frozen positions as sinusoids, biases as
/// zeros, and the embedding of the padding token as zeros if the family has one without a gradient.
///
/// Every weight is a function of the seed, of its tensor's position in [`TensorId::all`] and of its index in the
/// tensor, so it has the same bits on every machine.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Initial, TrainLimits, Trainer};
///
/// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
/// let config = Config::transformer(small);
/// let fill = Initial::Normal { deviation: 0.02 }.weights(&config, 2017);
/// let trainer = Trainer::new(config, TrainLimits::new(64, 16), fill)?;
/// assert!(trainer.parameters().all(|(_, _, numbers)| numbers.iter().all(|x| x.abs() < 0.2 || *x == 1.0)));
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Initial {
    /// Normally distributed with this deviation, as transformers' `init_std`.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
    /// Uniform within `sqrt(6 / (inputs + outputs))`; embeddings are normal with deviation `d_model^-1/2`. As the
    /// code of Vaswani et al. 2017; after Glorot and Bengio 2010.
    Glorot,
    /// Normal; the deviation of each matrix depends on its inputs, that of queries also on the head width. As T5,
    /// times its `initializer_factor`.
    T5 {
        /// A factor on all deviations.
        factor: f64,
    },
}

impl Initial {
    /// The initialization that transformers uses for the model of a `config.json`, whose text is `json`: its `init_std` or
    /// `initializer_range` (0.02 if it has neither), or T5's rule with its `initializer_factor` (1).
    ///
    /// # Errors
    /// `json` is no JSON object, or has a key twice; the value is not a number of at least 0.
    pub fn from_hugging_face(config: &Config, json: &str) -> Result<Self, Error> {
        Ok(match config.family {
            Family::T5 | Family::Mt5 | Family::Umt5 => {
                Self::T5 { factor: first_size(json, &["initializer_factor"])?.unwrap_or(1.0) }
            }
            _ => {
                let named = first_size(json, &["init_std", "initializer_range"])?;
                Self::Normal { deviation: named.unwrap_or(0.02) }
            }
        })
    }

    /// A function that writes initial weights, for [`Trainer::new`](super::Trainer::new) and
    /// [`Model::from_fn`](crate::Model::from_fn).
    pub fn weights(
        self,
        config: &Config,
        seed: u64,
    ) -> impl FnMut(
        TensorId,
        &[usize],
        &mut [f32],
    ) -> Result<(), Box<dyn core::error::Error + Send + Sync>>
    + use<> {
        let config = config.clone();
        let roles: Vec<TensorId> = TensorId::all(&config).collect();
        move |role, shape, out| {
            let tensor = roles.iter().position(|&known| known == role).unwrap_or(roles.len());
            self.fill(&config, (role, shape), (seed, tensor as u32), out)
        }
    }

    fn fill(
        self,
        config: &Config,
        (role, shape): (TensorId, &[usize]),
        (seed, tensor): (u64, u32),
        out: &mut [f32],
    ) -> Result<(), Box<dyn core::error::Error + Send + Sync>> {
        if is_norm(role) {
            out.fill(1.0);
            return Ok(());
        }
        // For a convolution, all values of a window are inputs.
        let columns = match shape {
            [_, of_row @ ..] if !of_row.is_empty() => of_row.iter().product(),
            _ => {
                out.fill(0.0);
                return Ok(());
            }
        };
        let rows = out.len() / columns;
        if matches!(role, TensorId::Positions(_)) && is_frozen(config, role) {
            // Whisper's table is in the checkpoint and is frozen.
            let formula = PositionEncoding::HalfSplitSingle { offset: 0 };
            return Ok(position::encode(formula, 0, MatrixMut::new(out, rows, columns)?)?);
        }
        let embedding = matches!(role, TensorId::SourceEmbedding | TensorId::TargetEmbedding);
        let d = 1.0 / (config.d_model as f64).sqrt();
        let scale = match self {
            Self::Normal { deviation } => deviation,
            Self::Glorot if embedding => d,
            Self::Glorot => (6.0 / (rows + columns) as f64).sqrt(),
            Self::T5 { factor } => factor * t5_deviation(config, role, columns),
        };
        match self {
            Self::Glorot if !embedding => uniform(seed, tensor, 0, scale as f32, out),
            _ => normal(seed, tensor, 0, scale as f32, out),
        }
        if embedding && let Some(pad) = padding_row(config) {
            let start = pad as usize * columns;
            if let Some(row) = out.get_mut(start..start + columns) {
                row.fill(0.0);
            }
        }
        Ok(())
    }
}

fn is_norm(role: TensorId) -> bool {
    matches!(
        role,
        TensorId::EmbeddingNorm(_, ParamKind::Weight)
            | TensorId::FinalNorm(_, ParamKind::Weight)
            | TensorId::Layer(
                _,
                _,
                LayerPart::AttentionNorm(_, ParamKind::Weight)
                    | LayerPart::FeedForwardNorm(ParamKind::Weight)
            )
    )
}

/// As in `T5PreTrainedModel._init_weights`.
fn t5_deviation(config: &Config, role: TensorId, inputs: usize) -> f64 {
    let d = config.d_model as f64;
    match role {
        TensorId::SourceEmbedding | TensorId::TargetEmbedding | TensorId::Output => 1.0,
        TensorId::Layer(side, _, LayerPart::Attention(kind, Projection::Query, _)) => {
            let side = if kind == Attention::Cross { Side::Decoder } else { side };
            1.0 / (d * config.head_dim(side) as f64).sqrt()
        }
        TensorId::Layer(_, _, LayerPart::FeedForward(FeedForward::Outer, _)) => {
            1.0 / (inputs as f64).sqrt()
        }
        TensorId::Layer(_, _, LayerPart::Attention(_, Projection::Output, _)) => {
            1.0 / (inputs as f64).sqrt()
        }
        _ => 1.0 / d.sqrt(),
    }
}
