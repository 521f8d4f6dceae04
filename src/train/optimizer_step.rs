//! The optimizer step: combines the gradients, computes their norm, updates all parameters in one pass over memory,
//! and repacks the weights of the model.

use super::loss_step::Totals;
use super::memory_plan::{StackSaved, StateBuffers};
use super::packed_batch::Example;
use super::params;
use super::pass_context::Pass;
use super::trainer::Trainer;
use crate::checkpoint::TensorId;
use crate::config::{Positions, Side};
use crate::error::Error;
use crate::session::Threads;
use core::mem;
use core::ops::Range;
use simdformer_kernels::Exec;
use simdformer_kernels::train::{Adam, Moments, Smoothing, WriteMode, sum_of_squares};

/// The options of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions {
    /// Label smoothing of the targets.
    pub smoothing: Smoothing,
    /// The trainer sets its `step` and `clip`.
    pub adam: Adam,
    /// Gradients are scaled down if their total norm is larger; `None` disables clipping.
    pub clip_norm: Option<f64>,
}

impl Default for StepOptions {
    /// The paper's Adam (0.9, 0.98, 1e-9), a learning rate of 1e-3, no smoothing, gradients clipped at a norm of 1.
    fn default() -> Self {
        let adam = Adam { rate: 1e-3, beta2: 0.98, epsilon: 1e-9, ..Adam::default() };
        Self { smoothing: Smoothing::default(), adam, clip_norm: Some(1.0) }
    }
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The norm of all gradients, before clipping.
    pub norm: f64,
    /// Whether the gradients were scaled down.
    pub clipped: bool,
    /// Whether the update was skipped because the norm is not finite.
    pub skipped: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The losses before the update.
    pub totals: Totals,
    /// The update.
    pub update: Update,
}

impl Trainer<'_> {
    /// Combines the gradients that were accumulated in separate buffers.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let Self { network, plan, state, work, .. } = self;
        let StateBuffers { gradients, lookups, .. } = plan.state.split(state.floats_mut())?;
        if let Some(decoder) = &network.decoder
            && !lookups.is_empty()
        {
            let table = &mut gradients[decoder.table.range.clone()];
            table.iter_mut().zip(lookups.iter_mut()).for_each(|(table, lookup)| {
                *table += *lookup;
                *lookup = 0.0;
            });
        }
        let memory = work.floats();
        let own = network.encoder.layers.iter().map(|l| &l.self_attention.relative_bias);
        let tables = (&network.encoder.relative_bias, own);
        relative(&plan.encoder, tables, memory, gradients)?;
        if let (Some(decoder), Some(plan)) = (&network.decoder, &plan.decoder) {
            let own = decoder.layers.iter().map(|l| &l.self_attention.relative_bias);
            relative(plan, (&decoder.relative_bias, own), memory, gradients)?;
        }
        Ok(())
    }

    /// Every trained tensor once, with its gradient since the last update, in the order of [`TensorId::all`]. The
    /// shape is that of [`TensorId::shape`], in row order.
    ///
    /// # Errors
    /// Nothing was accumulated since the last update.
    pub fn gradients(
        &mut self,
    ) -> Result<impl Iterator<Item = (TensorId, &[usize], &[f32])>, Error> {
        self.check_whole()?;
        if self.passes == 0 {
            return Err(nothing_accumulated());
        }
        self.finish()?;
        let all = self.plan.state.gradients.slice_of(self.state.floats());
        let tensors = self.tensors.iter().filter(|tensor| !tensor.shared && tensor.learned);
        Ok(tensors.map(|t| (t.role, &t.shape[..], &all[t.range.clone()])))
    }

    /// Updates every trained parameter. If the norm of all gradients is larger than `clip`, all gradients are scaled
    /// down to it. The trainer's own step count replaces that of `adam`. If the norm is not finite, the update is
    /// skipped and counted as skipped.
    ///
    /// # Errors
    /// Nothing was accumulated since the last update, or a setting is invalid.
    pub fn update(&mut self, adam: &Adam, clip: Option<f64>) -> Result<Update, Error> {
        self.check_whole()?;
        if self.passes == 0 {
            return Err(nothing_accumulated());
        }
        if let Some(clip) = clip
            && !(clip > 0.0)
        {
            return Err(Error::invalid_option("clip", "a positive number", clip.to_string()));
        }
        self.finish()?;
        let average_decay = self.average_decay;
        let (isa, steps) = (self.model.isa(), self.steps);
        // A gradient is used once, even if a panic of the caller's threads ends the update.
        let passes = mem::take(&mut self.passes);
        let Self { plan, learned, decays, state, partials, threads, interrupted, .. } = self;
        let StateBuffers { values, gradients, first, second, average, .. } =
            plan.state.split(state.floats_mut())?;
        let made = threads.with_parallelism(|parallelism| {
            let exec = Exec::new(isa, parallelism);
            let mut squares = 0.0f64;
            for range in learned.iter() {
                let of = &gradients[range.clone()];
                squares += sum_of_squares(exec, of, partials)?;
            }
            let norm = squares.sqrt();
            if !norm.is_finite() {
                return Ok::<_, Error>(Update { norm, clipped: false, skipped: true });
            }
            *interrupted = true;
            let clipped = clip.is_some_and(|clip| norm > clip);
            let factor = if clipped { clip.map_or(1.0, |clip| clip / norm) } else { 1.0 };
            let all = learned.iter().map(|range| (range, false));
            let by_decay = decays.iter().map(|(range, decays)| (range, *decays));
            let (mut all, mut by_decay) = (all, by_decay);
            // Without weight decay, one pass over all ranges.
            let ranges: &mut dyn Iterator<Item = (&Range<usize>, bool)> =
                if adam.weight_decay == 0.0 { &mut all } else { &mut by_decay };
            for (range, decays) in ranges {
                let within = || range.clone();
                let weight_decay = if decays { adam.weight_decay } else { 0.0 };
                let average = average_decay.map(|decay| (&mut average[within()], decay));
                simdformer_kernels::train::adam(
                    exec,
                    &Adam { step: steps + 1, clip: factor, weight_decay, ..*adam },
                    &mut values[within()],
                    &gradients[within()],
                    Moments { first: &mut first[within()], second: &mut second[within()] },
                    average,
                )?;
            }
            Ok(Update { norm, clipped, skipped: false })
        });
        // An error is returned before any parameter changes.
        self.interrupted = false;
        let made = made.inspect_err(|_| self.passes = passes)?;
        if made.skipped {
            self.skipped += 1;
        } else {
            self.steps += 1;
            self.refresh()?;
        }
        Ok(made)
    }

    /// Makes one step: computes the gradient of the mean loss over all target tokens of `pairs`, in as many passes as
    /// the plan needs, and updates.
    ///
    /// # Errors
    /// As [`Trainer::accumulate`] and [`Trainer::update`].
    pub fn step(&mut self, pairs: &[Example<'_>], options: &StepOptions) -> Result<Step, Error> {
        let tokens = pairs.iter().map(|pair| pair.target.len() as u64).sum();
        let totals = self.accumulate(pairs, options.smoothing, tokens)?;
        let update = self.update(&options.adam, options.clip_norm)?;
        Ok(Step { totals, update })
    }

    /// Copies the parameters into the weights of the model.
    pub(super) fn refresh(&mut self) -> Result<(), Error> {
        let threads = self.threads.clone();
        self.refresh_by(&threads)
    }

    /// As [`Trainer::refresh`], with other threads than the trainer's.
    pub(super) fn refresh_by(&mut self, threads: &Threads<'_>) -> Result<(), Error> {
        let Self { model, tensors, plan, state, work, .. } = self;
        let scratch = &mut work.floats_mut()[plan.conv.reorder_scratch.clone()];
        let values = plan.state.values.slice_of(state.floats());
        let rows_of = |role| {
            let tensor = tensors.iter().find(|tensor| tensor.role == role);
            tensor.map_or(&[][..], |tensor| &values[tensor.range.clone()])
        };
        self.interrupted = true;
        threads.with_parallelism(|parallelism| model.refresh(&rows_of, scratch, parallelism))?;
        self.interrupted = false;
        let learned = matches!(model.config().positions, Positions::Learned { .. });
        if learned || model.config().token_types > 0 {
            self.write_positions()?;
        }
        self.write_relative()
    }

    pub(super) fn write_positions(&mut self) -> Result<(), Error> {
        let Self { model, plan, work, .. } = self;
        let limits = &plan.limits;
        let memory = work.floats_mut();
        let to = &mut memory[plan.encoder.positions.clone()];
        model.write_positions(Side::Encoder, limits.source_length, to)?;
        if let Some(decoder) = &plan.decoder {
            let to = &mut memory[decoder.positions.clone()];
            model.write_positions(Side::Decoder, limits.target_length, to)?;
        }
        Ok(())
    }

    fn write_relative(&mut self) -> Result<(), Error> {
        let Self { model, plan, work, .. } = self;
        let memory = work.floats_mut();
        let sides = [(Side::Encoder, Some(&plan.encoder)), (Side::Decoder, plan.decoder.as_ref())];
        for (side, stack) in sides {
            let Some(stack) = stack else { continue };
            if let Some((buckets, positions)) = stack.relative.buckets {
                let to = &mut memory[stack.relative_tables.clone()];
                model.write_relative(side, buckets, positions, to)?;
            }
        }
        Ok(())
    }
}

/// Computes the gradients of the trained tables of one stack from the gradients by distance, layer by layer.
fn relative<'t>(
    plan: &StackSaved,
    (shared, own): (&Option<params::Table>, impl Iterator<Item = &'t Option<params::Table>>),
    memory: &[f32],
    gradients: &mut [f32],
) -> Result<(), Error> {
    let Some((buckets, positions)) = plan.relative.buckets else { return Ok(()) };
    let stride = plan.d_relative_stride;
    let tables = memory[plan.d_relative.clone()].chunks(stride.max(1));
    for (index, (own, d_table)) in own.zip(tables).enumerate() {
        let (table, write) = match (shared, own) {
            (Some(shared), _) if index > 0 => (shared, WriteMode::Add),
            (Some(table), _) | (None, Some(table)) => (table, WriteMode::Store),
            (None, None) => continue,
        };
        let to = Pass::matrix_mut(&mut gradients[table.range.clone()], table.columns)?;
        buckets.gradient(positions, d_table, write, to)?;
    }
    Ok(())
}

/// Nothing was accumulated since the last update.
fn nothing_accumulated() -> Error {
    let expected = "a gradient that was accumulated since the last update";
    Error::invalid_input("the update", expected, "none")
}
