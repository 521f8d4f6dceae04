//! The moving average of the parameters, which can replace them for a time.

use super::memory_plan::StateBuffers;
use super::trainer::Trainer;
use crate::error::Error;
use crate::session::Threads;
use core::mem;
use core::ops::{Deref, DerefMut};

impl<'a> Trainer<'a> {
    fn swap_values(&mut self) -> Result<(), Error> {
        let StateBuffers { values, average, .. } =
            self.plan.state.split(self.state.floats_mut())?;
        values.swap_with_slice(average);
        Ok(())
    }

    /// Replaces the parameters by their average, also in the model, until the returned value is dropped. Without an
    /// average nothing is replaced.
    ///
    /// # Errors
    /// A panic ended an update before.
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions};
    /// use simdformer::train::{Example, Initial, StepOptions, TrainLimits, Trainer};
    ///
    /// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
    /// let mut config = Config::transformer(small);
    /// config.tokens.decoder_start = Some(1);
    /// let limits = TrainLimits { average: true, ..TrainLimits::new(64, 16) };
    /// let mut trainer = Trainer::new(config.clone(), limits, Initial::Glorot.weights(&config, 1))?;
    /// trainer.set_average(Some(0.99))?;
    /// let pair = Example::new(&[5, 6, 7, 0], &[8, 9, 0], 0);
    /// let options = StepOptions::default();
    /// trainer.step(&[pair], &options)?;
    ///
    /// let mut averaged = trainer.averaged()?;
    /// let of_average = averaged.evaluate(&[pair], options.smoothing)?;
    /// averaged.restore()?;
    /// assert_ne!(trainer.evaluate(&[pair], options.smoothing)?, of_average);
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn averaged(&mut self) -> Result<Averaged<'_, 'a>, Error> {
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

/// A trainer whose parameters are replaced by their average ([`Trainer::averaged`]), to be evaluated or saved. An update
/// would change the average instead of the parameters.
///
/// `Drop` restores the parameters, also after an error and when a callback or thread of the caller panics.
#[derive(Debug)]
pub struct Averaged<'t, 'a> {
    trainer: &'t mut Trainer<'a>,
    state: State,
}

impl<'a> Deref for Averaged<'_, 'a> {
    type Target = Trainer<'a>;

    fn deref(&self) -> &Trainer<'a> {
        self.trainer
    }
}

impl<'a> DerefMut for Averaged<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Trainer<'a> {
        self.trainer
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The parameters and the model are unchanged.
    Plain,
    /// The parameters are restored; the model is not yet refreshed.
    Stale,
    /// The average is in the place of the parameters.
    Swapped,
}

impl Averaged<'_, '_> {
    /// Restores the parameters with the trainer's own threads; `Drop` uses only the calling thread.
    ///
    /// # Errors
    /// Only internal errors; no argument causes one.
    pub fn restore(mut self) -> Result<(), Error> {
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
