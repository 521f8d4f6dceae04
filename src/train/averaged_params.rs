//! The average in the place of the parameters, for as long as somebody looks at it.

use super::error::TrainError;
use super::trainer::Trainer;
use crate::memory::cut;
use crate::session::Threads;
use core::mem;

impl<'a> Trainer<'a> {
    /// Exchanges parameters and average, in the model too: once to look at the average, to validate or to save it, and
    /// once more to go on. Does nothing where there is none.
    ///
    /// # Errors
    /// None that the caller could cause.
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

    /// The trainer with its average in the place of its parameters, if it has one, until the result is dropped.
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

/// A trainer that has its average in the place of its parameters. Dropping it brings the parameters back: after an error,
/// and when a callback of the caller's or one of the caller's threads panics.
pub(super) struct Averaged<'t, 'a> {
    pub(super) trainer: &'t mut Trainer<'a>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Parameters and model are as they were.
    Plain,
    /// The parameters are as they were; the model is not yet.
    Stale,
    /// The average is where the parameters were.
    Swapped,
}

impl Averaged<'_, '_> {
    /// Brings the parameters back by the trainer's own threads.
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
            // The ranges are those of the plan: `cut` has accepted them before.
            let _ = self.trainer.swap_values();
        }
        if let State::Swapped | State::Stale = state {
            // By this thread alone: an executor of the caller's that panics here, while a panic goes on already, would
            // end the process. The bits are the same.
            let _ = self.trainer.refresh_by(&Threads::Serial);
        }
    }
}
