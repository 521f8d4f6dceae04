//! Two averages: the moving average of the parameters, which can replace them for a time, and the mean of saved
//! checkpoints.

use super::checkpoint_content::Layout;
use super::faults::wrong_state;
use super::memory_plan::StateBuffers;
use super::trainer::Trainer;
use crate::checkpoint::{Checkpoint, TensorId};
use crate::error::Error;
use crate::session::Threads;
use core::mem;
use simdformer_kernels::{Exec, Isa};
use std::path::Path;

impl<'a> Trainer<'a> {
    /// Exchanges the parameters and the average, also in the model. Call it once to read, validate or save the
    /// average, and a second time before training continues. Does nothing without an average.
    ///
    /// # Errors
    /// Only internal errors; no argument causes one.
    pub fn swap_average(&mut self) -> Result<(), Error> {
        self.check_whole()?;
        if self.average_decay.is_none() {
            return Ok(());
        }
        self.swap_values()?;
        self.refresh()
    }

    fn swap_values(&mut self) -> Result<(), Error> {
        let StateBuffers { values, average, .. } =
            self.plan.state.split(self.state.floats_mut())?;
        values.swap_with_slice(average);
        Ok(())
    }

    /// A guard that replaces the trainer's parameters by its average, if it has one, until the guard is dropped.
    pub(super) fn averaged(&mut self) -> Result<Averaged<'_, 'a>, Error> {
        self.check_whole()?;
        let mut averaged = Averaged { trainer: self, state: State::Plain };
        if averaged.trainer.average_decay.is_some() {
            averaged.trainer.swap_values()?;
            averaged.state = State::Swapped;
            averaged.trainer.refresh()?;
        }
        Ok(averaged)
    }
}

/// A trainer whose parameters are replaced by its average. `Drop` restores the parameters, also after an error and
/// when a callback or thread of the caller panics.
pub(super) struct Averaged<'t, 'a> {
    pub(super) trainer: &'t mut Trainer<'a>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// The parameters and the model are unchanged.
    Plain,
    /// The parameters are restored; the model is not yet refreshed.
    Stale,
    /// The average is in the place of the parameters.
    Swapped,
}

impl Averaged<'_, '_> {
    /// Restores the parameters with the trainer's own threads.
    pub(super) fn restore(mut self) -> Result<(), Error> {
        if let State::Swapped = self.state {
            self.trainer.swap_values()?;
            self.state = State::Stale;
            self.trainer.refresh()?;
            self.state = State::Plain;
        }
        Ok(())
    }
}

impl Drop for Averaged<'_, '_> {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.state, State::Plain);
        if let State::Swapped = state {
            // The ranges are those of the plan, and `cut` accepted them before.
            let _ = self.trainer.swap_values();
        }
        if let State::Swapped | State::Stale = state {
            // Use only this thread: if the caller's executor panicked here during another panic, the process would
            // abort. The bits are the same.
            let _ = self.trainer.refresh_by(&Threads::Serial);
        }
    }
}

/// Writes a checkpoint in which every value is the mean of those of `checkpoints`, added in order in f64. Its format
/// is that of the first checkpoint. Vaswani et al. 2017 (section 6.1) average the last five checkpoints of a run,
/// written ten minutes apart.
///
/// # Errors
/// `checkpoints` is empty; a checkpoint cannot be read, or has another architecture than the first; the result cannot
/// be written.
///
/// ```no_run
/// use simdformer::train::average;
///
/// average(&["run/checkpoints/step-2600", "run/checkpoints/step-2800"], "run/mean")?;
/// # Ok::<(), simdformer::Error>(())
/// ```
pub fn average(checkpoints: &[impl AsRef<Path>], out: impl AsRef<Path>) -> Result<(), Error> {
    let Some(first) = checkpoints.first() else {
        return Err(Error::invalid_option("the number of checkpoints", "at least 1", "0"));
    };
    let layout = Layout::of(first.as_ref())?;
    let opened: Result<Vec<_>, _> = checkpoints.iter().map(Checkpoint::open).collect();
    let opened = opened?;
    let mut means: Vec<(TensorId, Vec<f32>)> = Vec::new();
    for role in TensorId::all(layout.config()) {
        let mut found = Vec::with_capacity(opened.len());
        for checkpoint in &opened {
            // A tensor that is absent in all checkpoints stays absent.
            found.extend(checkpoint.optional(role)?.map(|tensor| tensor.to_vec()).transpose()?);
        }
        if found.is_empty() {
            continue;
        }
        let slices: Vec<&[f32]> = found.iter().map(Vec::as_slice).collect();
        let mut mean = vec![0.0; slices[0].len()];
        let other = slices.iter().map(|slice| slice.len()).find(|&len| len != mean.len());
        if let Some(len) = other.or((slices.len() != opened.len()).then_some(0)) {
            return Err(wrong_state(role, mean.len(), len));
        }
        simdformer_kernels::train::average(Exec::serial(Isa::best()), &slices, &mut mean)?;
        means.push((role, mean));
    }
    let value = |wanted| means.iter().find(|(role, _)| *role == wanted).map(|(_, mean)| &mean[..]);
    layout.write_with(&value, out.as_ref())
}
