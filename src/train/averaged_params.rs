//! Temporarily replaces the parameters by their average.

use super::error::TrainError;
use super::trainer::Trainer;
use crate::memory::cut;
use crate::session::Threads;
use core::mem;

impl<'a> Trainer<'a> {
    /// Exchanges the parameters and the average, also in the model. Call it once to read, validate or save the
    /// average, and a second time before training continues. Does nothing without an average.
    ///
    /// # Errors
    /// Only internal errors; no argument causes one.
    pub fn swap_average(&mut self) -> Result<(), TrainError> {
        self.check_whole()?;
        if self.average_decay.is_none() {
            return Ok(());
        }
        self.swap_values()?;
        self.refresh()
    }

    fn swap_values(&mut self) -> Result<(), TrainError> {
        let [values, average] = cut(&mut self.state, [&self.plan.values, &self.plan.average])?;
        values.swap_with_slice(average);
        Ok(())
    }

    /// A guard that replaces the trainer's parameters by its average, if it has one, until the guard is dropped.
    pub(super) fn averaged(&mut self) -> Result<Averaged<'_, 'a>, TrainError> {
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
    pub(super) fn restore(mut self) -> Result<(), TrainError> {
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
