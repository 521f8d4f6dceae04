//! The numbers of a trainer that one step leaves for the next besides the parameters, to be saved and restored.

use super::memory_plan::StateRanges;
use super::trainer::Trainer;
use crate::checkpoint::TensorId;
use crate::memory::Span;
use core::mem;

/// What a trainer keeps of every tensor besides its parameters, in the same order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatePart {
    /// Adam's running average of gradients.
    FirstMoment,
    /// Adam's running average of squared gradients.
    SecondMoment,
    /// The moving average of the parameters, if the [limits](super::TrainLimits::average) include one.
    Average,
}

impl StatePart {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::FirstMoment, Self::SecondMoment, Self::Average];

    fn span(self, state: &StateRanges) -> Span<f32> {
        match self {
            Self::FirstMoment => state.first.clone(),
            Self::SecondMoment => state.second.clone(),
            Self::Average => state.average.clone(),
        }
    }
}

/// The state of a trainer. With the [parameters](Trainer::parameters), the settings and the numbers of
/// [`steps`](Trainer::steps) and [`skipped`](Trainer::skipped) it is all that the next step depends on, so a trainer that
/// is opened from the parameters and [restored](Trainer::restore) continues with the same bits.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Example, Initial, StatePart, StepOptions, TrainLimits, Trainer};
///
/// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
/// let mut config = Config::transformer(small);
/// config.tokens.decoder_start = Some(1);
/// let batch = [Example::new(&[5, 6, 7, 0], &[8, 9, 0], 0)];
/// let limits = TrainLimits::new(64, 16);
/// let mut first = Trainer::new(config.clone(), limits, Initial::Glorot.weights(&config, 1))?;
/// first.step(&batch, &StepOptions::default())?;
///
/// let mut second = Trainer::new(config, limits, |role, _, out| {
///     out.copy_from_slice(first.parameter(role).unwrap_or_default());
///     Ok(())
/// })?;
/// second.restore([first.steps(), first.skipped()], |part, role, out| {
///     out.copy_from_slice(first.state(part, role).unwrap_or_default());
/// });
/// assert_eq!(first.step(&batch, &StepOptions::default())?, second.step(&batch, &StepOptions::default())?);
/// assert!(first.parameters().eq(second.parameters()));
/// # Ok::<(), simdformer::Error>(())
/// ```
impl Trainer<'_> {
    /// A part of the state of a tensor, as many numbers as its [parameters](Trainer::parameter), also of a tied tensor;
    /// `None` if the model has no such tensor, or the plan no such part.
    pub fn state(&self, part: StatePart, role: TensorId) -> Option<&[f32]> {
        let tensor = self.tensors.iter().find(|tensor| tensor.role == role)?;
        part.span(&self.plan.state).slice_of(self.state.floats()).get(tensor.range.clone())
    }

    /// Replaces the state and the numbers of [`steps`](Trainer::steps) and [`skipped`](Trainer::skipped). `read` writes each
    /// part of the state of each tensor of [`Trainer::parameters`]. Gradients that were accumulated before are discarded,
    /// because they belong to other moments.
    ///
    /// If `read` panics, the trainer cannot be used any more, as after a panic in an update.
    pub fn restore(
        &mut self,
        [steps, skipped]: [u64; 2],
        mut read: impl FnMut(StatePart, TensorId, &mut [f32]),
    ) {
        let interrupted = mem::replace(&mut self.interrupted, true);
        for part in StatePart::ALL {
            let all = part.span(&self.plan.state).slice_of_mut(self.state.floats_mut());
            for tensor in self.tensors.iter().filter(|tensor| !tensor.shared) {
                if let Some(numbers) = all.get_mut(tensor.range.clone()) {
                    read(part, tensor.role, numbers);
                }
            }
        }
        (self.steps, self.skipped, self.passes) = (steps, skipped, 0);
        self.interrupted = interrupted;
    }
}
