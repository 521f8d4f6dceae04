//! Trainers of the goldens of gradients.

use simdformer::kernels::Isa;
use simdformer::train::{TrainLimits, Trainer};
use simdformer_testing::gradient_goldens::Golden;

/// Opens a golden.
pub(crate) trait OpenTrainer {
    /// A trainer of its model.
    fn trainer(&self, isa: Isa, limits: TrainLimits) -> Trainer<'static>;
}

impl OpenTrainer for Golden {
    fn trainer(&self, isa: Isa, limits: TrainLimits) -> Trainer<'static> {
        Trainer::open(&self.checkpoint(), isa, limits).expect("a trainer")
    }
}

/// Limits that are large enough for every golden.
pub(crate) fn limits() -> TrainLimits {
    TrainLimits::new(64, 24)
}
