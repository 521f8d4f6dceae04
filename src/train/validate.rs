//! Validation of a run, and writing its final model.

use super::options::Metric;
use super::run::{TrainingRun, Validation};
use super::run_error::RunError;

/// The directory of the best model, below that of the run.
const BEST: &str = "best";

impl TrainingRun<'_> {
    /// Evaluates the held-out corpus with the averaged parameters if there is an average, otherwise with the
    /// parameters. The parameters are restored on return, and also when the caller's judge panics.
    pub(super) fn validate(&mut self) -> Result<Validation, RunError> {
        let averaged = self.trainer.averaged()?;
        let totals = averaged.trainer.evaluate(&self.held_out, self.options.step.smoothing)?;
        let model = averaged.trainer.model();
        let judged = self.judge.as_mut().map(|judge| judge(model)).transpose();
        let judged = judged.map_err(RunError::Judge)?;
        let value = match (self.options.metric, judged) {
            (Metric::Loss, _) => -totals.mean_loss(),
            (Metric::Nll, _) => -totals.mean_nll(),
            (Metric::Accuracy, _) => totals.accuracy(),
            (Metric::Judged, Some(judged)) => judged,
            (Metric::Judged, None) => {
                let (setting, expected) = ("the metric", "one that is measured");
                let found = "what the judge says, without a judge".to_owned();
                return Err(RunError::Setting { setting, expected, found });
            }
        };
        let better = !value.is_nan() && self.best.is_none_or(|(_, best)| value > best);
        // If the judge gives the same value, the later model is the best.
        let same = self.best.is_some_and(|(_, best)| value == best);
        let best = better || same && self.options.metric == Metric::Judged;
        if best && let Some(directory) = &self.directory {
            directory.layout.write(averaged.trainer, &directory.path.join(BEST))?;
        }
        averaged.restore()?;
        let step = self.step();
        if best {
            self.best = Some((step, value));
        }
        self.patience = if better { 0 } else { self.patience + 1 };
        self.validated = step;
        Ok(Validation { step, totals, judged, best })
    }

    /// Writes the best model, or the last one, to the directory of the run.
    pub(super) fn finish(&mut self) -> Result<(), RunError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let best = directory.path.join(BEST).join("model.safetensors");
        if self.best.is_some() && best.exists() {
            return directory.layout.copy_weights(&best, &directory.path);
        }
        let averaged = self.trainer.averaged()?;
        directory.layout.write(averaged.trainer, &directory.path)?;
        Ok(averaged.restore()?)
    }
}
