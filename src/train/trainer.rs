//! A model that learns: parameters, gradients and moments, and the passes that change them.

use super::batch::{self, Batch, Pair, group_len};
use super::drops::{DropoutRates, Drops};
use super::error::TrainError;
use super::flat::{self, FlatTensor};
use super::frozen;
use super::learn::Outcome;
use super::limits::TrainLimits;
use super::pass::Pass;
use super::plan::TrainPlan;
use super::totals::Totals;
use super::update::{StepOptions, Update};
use crate::checkpoint::{Checkpoint, Role};
use crate::config::{Config, Positions, Side};
use crate::memory::{Buffer, cut};
use crate::model::{Model, ModelError};
use crate::session::Threads;
use core::error::Error;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::Isa;
use simdformer_kernels::train::{Adam, RowLoss, Smoothing, Write, sum_of_squares};

/// A loss of the caller's: the numbers of some sentences, the encoder's output of their tokens laid end to end,
/// `[tokens, d_model]`, and where the gradient of that goes, of the same shape; returns the loss.
pub type EncoderLoss<'l> = dyn FnMut(Range<usize>, &[f32], &mut [f32]) -> f64 + Send + 'l;

/// A model that learns, on planned memory: after [`Trainer::new`] no step allocates.
///
/// A step is one call, [`Trainer::step`]. Whoever wants the parts calls [`accumulate`](Trainer::accumulate) for any
/// number of passes, looks at the [gradients](Trainer::gradients), and [updates](Trainer::update).
///
/// The result is the same bits on any number of threads, for any limits and whatever is
/// [kept](super::Keep) of the forward pass, and when a batch goes in one pass or in several.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Pair, StepOptions, TrainLimits, Trainer};
///
/// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
/// let mut config = Config::transformer(small);
/// config.tokens.decoder_start = Some(1);
/// // Numbers that look random; norms begin as the identity.
/// let mut seed = 1u32;
/// let mut random = || {
///     seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
///     (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
/// };
/// let mut trainer = Trainer::new(config, TrainLimits::new(64, 16), |role, shape, out| {
///     match *shape {
///         [_] if role.to_string().ends_with("norm.weight") => out.fill(1.0),
///         [_, inputs] => out.fill_with(|| random() / (inputs as f32).sqrt()),
///         _ => {}
///     }
///     Ok(())
/// })?;
///
/// // Learn by heart that 5 6 7 is 8 9.
/// let pair = Pair { source: &[5, 6, 7, 0], target: &[8, 9, 0], id: 0 };
/// let mut options = StepOptions::default();
/// options.adam.rate = 3e-3;
/// let first = trainer.step(&[pair], &options)?;
/// for _ in 0..100 {
///     trainer.step(&[pair], &options)?;
/// }
/// let last = trainer.evaluate(&[pair], options.smoothing)?;
/// assert!(last.mean_loss() < 0.1 * first.totals.mean_loss());
/// # Ok::<(), simdformer::train::TrainError>(())
/// ```
pub struct Trainer<'a> {
    pub(super) model: Model,
    pub(super) network: flat::Network,
    pub(super) tensors: Vec<FlatTensor>,
    /// What is updated: ranges of parameters, side by side.
    pub(super) learned: Vec<Range<usize>>,
    /// The same, and whether weights decay there: not those of norms, nor biases.
    decays: Vec<(Range<usize>, bool)>,
    /// Of the average of parameters.
    average_decay: Option<f32>,
    pub(super) plan: TrainPlan,
    pub(super) state: Buffer<'static>,
    work: Buffer<'static>,
    batch: Batch,
    losses: Vec<RowLoss>,
    partials: Vec<f64>,
    order: Vec<u32>,
    threads: Threads<'a>,
    dropout: DropoutRates,
    /// Since the last update.
    accumulated: Totals,
    passes: u64,
    /// Updates made, and refused for gradients that were not finite.
    pub(super) steps: u64,
    pub(super) skipped: u64,
}

/// Writes the weights of a role.
type Fill<'f> =
    dyn FnMut(Role, &[usize], &mut [f32]) -> Result<(), Box<dyn Error + Send + Sync>> + 'f;

impl<'a> Trainer<'a> {
    /// A trainer of a model whose first weights `fill` writes, as [`Model::from_fn`] asks for them, on the best
    /// instruction set of this machine or the one that the environment names.
    ///
    /// # Errors
    /// All that [`Model::from_fn`] and [`TrainPlan::new`] refuse; there is no memory.
    pub fn new<F>(config: Config, limits: TrainLimits, fill: F) -> Result<Self, TrainError>
    where
        F: FnMut(Role, &[usize], &mut [f32]) -> Result<(), Box<dyn Error + Send + Sync>>,
    {
        Self::filled(config, limits, fill, |config, fill| Model::from_fn(config, fill))
    }

    /// As [`Trainer::new`], on `isa`, whatever the environment names.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn new_on<F>(
        isa: Isa,
        config: Config,
        limits: TrainLimits,
        fill: F,
    ) -> Result<Self, TrainError>
    where
        F: FnMut(Role, &[usize], &mut [f32]) -> Result<(), Box<dyn Error + Send + Sync>>,
    {
        Self::filled(config, limits, fill, |config, fill| Model::from_fn_on(isa, config, fill))
    }

    fn filled<F>(
        config: Config,
        limits: TrainLimits,
        mut fill: F,
        make: impl FnOnce(Config, &mut Fill<'_>) -> Result<Model, ModelError>,
    ) -> Result<Self, TrainError>
    where
        F: FnMut(Role, &[usize], &mut [f32]) -> Result<(), Box<dyn Error + Send + Sync>>,
    {
        let placed = flat::place(&config)?;
        let mut values = vec![0.0; placed.floats];
        let model = make(config, &mut |role, shape, out| {
            fill(role, shape, out)?;
            if let Some(tensor) = placed.tensors.iter().find(|tensor| tensor.role == role) {
                values[tensor.range.clone()].copy_from_slice(out);
            }
            Ok(())
        })?;
        let mut trainer = Self::of(model, limits)?;
        trainer.state.floats_mut()[trainer.plan.values.clone()].copy_from_slice(&values);
        trainer.refresh()?;
        Ok(trainer)
    }

    /// A trainer that goes on from the weights of `checkpoint`, on `isa`.
    ///
    /// # Errors
    /// All that [`Model::load`] and [`TrainPlan::new`] refuse; there is no memory.
    pub fn open(
        checkpoint: &Checkpoint<'_>,
        isa: Isa,
        limits: TrainLimits,
    ) -> Result<Self, TrainError> {
        let mut trainer = Self::of(Model::load(checkpoint, isa)?, limits)?;
        let values = &mut trainer.state.floats_mut()[trainer.plan.values.clone()];
        for tensor in trainer.tensors.iter().filter(|tensor| !tensor.shared) {
            let found = match tensor.role.may_be_absent() {
                true => checkpoint.optional(tensor.role)?,
                false => Some(checkpoint.tensor(tensor.role)?),
            };
            if let Some(found) = found {
                found.read_into(&mut values[tensor.range.clone()])?;
            }
        }
        trainer.refresh()?;
        Ok(trainer)
    }

    fn of(model: Model, limits: TrainLimits) -> Result<Self, TrainError> {
        let placed = flat::place(model.config())?;
        let plan = TrainPlan::of(model.config(), model.isa(), limits, &placed)?;
        let flat::Placed { network, tensors, .. } = placed;
        let limits = plan.limits();
        let state = Buffer::owned(plan.state_floats)?;
        let work = Buffer::owned(plan.work_floats)?;
        let targets = if model.decoder().is_some() { limits.target_tokens } else { 0 };
        let mut trainer = Self {
            model,
            network,
            learned: Vec::new(),
            decays: Vec::new(),
            average_decay: None,
            tensors,
            batch: Batch::with_capacity(&limits),
            losses: vec![RowLoss::default(); targets],
            partials: vec![0.0; plan.partials],
            order: vec![0; plan.order],
            plan,
            state,
            work,
            threads: Threads::default(),
            dropout: DropoutRates::default(),
            accumulated: Totals::default(),
            passes: 0,
            steps: 0,
            skipped: 0,
        };
        trainer.learn_all();
        trainer.write_positions()?;
        Ok(trainer)
    }

    /// Learns everything that the architecture's own library learns.
    fn learn_all(&mut self) {
        let learned = self.tensors.iter().filter(|tensor| !tensor.shared && tensor.learned);
        let kinds = learned.map(|tensor| (tensor.range.clone(), frozen::decays(tensor.role)));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_by_key(|(range, _)| range.start);
        self.learned.clear();
        self.decays.clear();
        // What lies between neighbours is padding, which stays zero.
        let next_to = |last: &Range<usize>, start| last.end.next_multiple_of(16) >= start;
        for (range, decays) in kinds {
            match self.learned.last_mut() {
                Some(last) if next_to(last, range.start) => last.end = range.end,
                _ => self.learned.push(range.clone()),
            }
            match self.decays.last_mut() {
                Some((last, same)) if *same == decays && next_to(last, range.start) => {
                    last.end = range.end;
                }
                _ => self.decays.push((range, decays)),
            }
        }
    }

    /// Chooses what is learned: of the tensors that the architecture's own library learns, those for which `learns` says
    /// so. A tied tensor is asked for under the role that comes first. The others keep their bits.
    pub fn set_learned(&mut self, learns: impl Fn(Role) -> bool) {
        for tensor in &mut self.tensors {
            let frozen = frozen::is_frozen(self.model.config(), tensor.role);
            tensor.learned = !frozen && learns(tensor.role);
        }
        self.learn_all();
    }

    /// What is dropped while learning, until it is set again; nothing at first.
    ///
    /// # Errors
    /// A rate is not at least 0 and below 1.
    pub fn set_dropout(&mut self, rates: DropoutRates) -> Result<(), TrainError> {
        rates.check()?;
        self.dropout = rates;
        Ok(())
    }

    /// Keeps an exponential average of the parameters from now on, that begins as they are: after each update
    /// `average += (1 - decay) (parameter - average)`. `None` stops.
    ///
    /// # Errors
    /// The [limits](TrainLimits::average) have no room for one; `decay` is not between 0 and 1.
    pub fn set_average(&mut self, decay: Option<f32>) -> Result<(), TrainError> {
        if let Some(decay) = decay {
            if self.plan.average.is_empty() {
                let (setting, expected) = ("average", "planned for in the limits");
                return Err(TrainError::Setting { setting, expected, found: f64::from(decay) });
            }
            if !(0.0..=1.0).contains(&decay) {
                let (setting, expected) = ("the decay of the average", "from 0 to 1");
                return Err(TrainError::Setting { setting, expected, found: f64::from(decay) });
            }
            if self.average_decay.is_none() {
                let [values, average] =
                    cut(&mut self.state, [&self.plan.values, &self.plan.average])?;
                average.copy_from_slice(values);
            }
        }
        self.average_decay = decay;
        Ok(())
    }

    /// Exchanges parameters and average, in the model too: once to look at the average, to validate or to save it, and
    /// once more to go on. Does nothing where there is none.
    ///
    /// # Errors
    /// None that the caller could cause.
    pub fn swap_average(&mut self) -> Result<(), TrainError> {
        if self.average_decay.is_none() {
            return Ok(());
        }
        let [values, average] = cut(&mut self.state, [&self.plan.values, &self.plan.average])?;
        values.swap_with_slice(average);
        self.refresh()
    }

    /// Who computes; the results are the same bits.
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        self.threads = threads;
    }

    /// The model as it is after the last update: for [sessions](crate::Session) that validate it.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Where its memory is.
    pub fn plan(&self) -> &TrainPlan {
        &self.plan
    }

    /// Bytes of all memory: the model's and the plan's.
    pub fn bytes(&self) -> usize {
        self.model.bytes() + self.plan.bytes()
    }

    /// Updates made so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates that were not made, since their gradients were not finite.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The losses of `pairs`, without learning from them.
    ///
    /// # Errors
    /// A sentence cannot be [learned from](TrainError), or the model has no decoder.
    pub fn evaluate(
        &mut self,
        pairs: &[Pair<'_>],
        smoothing: Smoothing,
    ) -> Result<Totals, TrainError> {
        self.check(pairs)?;
        let mut totals = Totals::default();
        let mut rest = pairs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.pass_len(rest));
            self.batch.lay(self.model.config(), now);
            let Self { model, plan, batch, losses, work, state, threads, .. } = self;
            let values = &state.floats()[plan.values.clone()];
            let memory = work.floats_mut();
            let totals = &mut totals;
            threads.run(|parallelism| {
                let run = model.run(parallelism);
                let write = Write::Store;
                let pass = Pass { run, plan, batch, values, write, drops: None };
                pass.evaluate(model, smoothing, memory, losses, totals)
            })?;
            rest = later;
        }
        Ok(totals)
    }

    /// Adds the gradients of the losses of `pairs`, each divided by `tokens`: the target tokens of all that will be
    /// accumulated before the next update, so that the result is the gradient of the mean. Returns the sums since the
    /// last update.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`]; nothing has been added. `tokens` is zero.
    pub fn accumulate(
        &mut self,
        pairs: &[Pair<'_>],
        smoothing: Smoothing,
        tokens: u64,
    ) -> Result<Totals, TrainError> {
        self.check(pairs)?;
        if self.model.decoder().is_none() {
            return Err(TrainError::NoDecoder);
        }
        if tokens == 0 {
            let (setting, expected) = ("tokens", "at least 1");
            return Err(TrainError::Setting { setting, expected, found: 0.0 });
        }
        let scale = (1.0 / tokens as f64) as f32;
        self.passes(pairs, |pass, both, memory, outcome| {
            pass.learn(both, (smoothing, scale), memory, outcome)
        })
    }

    /// As [`Trainer::accumulate`], for a model without a decoder, from a loss of the caller's: it reads the encoder's
    /// output of some of the sentences laid end to end, `[tokens, d_model]`, and the numbers of these sentences, writes
    /// the gradient of the output, of the same shape, and returns the loss.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`]; the model has a decoder.
    pub fn accumulate_with(
        &mut self,
        sources: &[Pair<'_>],
        loss: &mut EncoderLoss<'_>,
    ) -> Result<Totals, TrainError> {
        self.check(sources)?;
        if self.model.decoder().is_some() {
            return Err(TrainError::HasDecoder);
        }
        let mut first = 0;
        self.passes(sources, |pass, both, memory, outcome| {
            let sentences = first..first + pass.batch.source.lengths.len();
            first = sentences.end;
            let mut loss = |hidden: &[f32], d: &mut [f32]| loss(sentences.clone(), hidden, d);
            pass.learn_encoder(both, &mut loss, memory, outcome)
        })
    }

    /// Learns from all sentences, in as many passes as the plan needs.
    fn passes(
        &mut self,
        pairs: &[Pair<'_>],
        mut learn: impl FnMut(
            &Pass<'_>,
            (&Model, &flat::Network),
            &mut [f32],
            &mut Outcome<'_>,
        ) -> Result<(), TrainError>
        + Send,
    ) -> Result<Totals, TrainError> {
        let mut rest = pairs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.pass_len(rest));
            self.batch.lay(self.model.config(), now);
            let first = self.passes == 0;
            if first {
                self.clear_lookups()?;
                self.accumulated = Totals::default();
            }
            let Self {
                model,
                network,
                plan,
                batch,
                losses,
                work,
                state,
                order,
                threads,
                dropout,
                steps,
                ..
            } = self;
            let [values, gradients, lookups] =
                cut(state, [&plan.values, &plan.gradients, &plan.lookups])?;
            let memory = work.floats_mut();
            let totals = &mut self.accumulated;
            let learn = &mut learn;
            let drops = Some(Drops { rates: *dropout, step: *steps });
            threads.run(|parallelism| {
                let run = model.run(parallelism);
                let write = if first { Write::Store } else { Write::Add };
                let pass = Pass { run, plan, batch, values, write, drops };
                let mut outcome = Outcome { gradients, lookups, losses, order, totals };
                learn(&pass, (model, network), memory, &mut outcome)
            })?;
            self.passes += 1;
            rest = later;
        }
        Ok(self.accumulated)
    }

    fn check(&self, pairs: &[Pair<'_>]) -> Result<(), TrainError> {
        batch::check(self.model.config(), &self.plan.limits, pairs)
    }

    /// How many of the first sentences go in one pass: whole groups, as many as are planned for.
    fn pass_len(&self, pairs: &[Pair<'_>]) -> usize {
        let limits = &self.plan.limits;
        let (mut len, mut source, mut target) = (0, 0, 0);
        while len < pairs.len() {
            let group = &pairs[len..len + group_len(&pairs[len..])];
            source += group.iter().map(|pair| pair.source.len()).sum::<usize>();
            target += group.iter().map(|pair| pair.target.len()).sum::<usize>();
            let fits = source <= limits.source_tokens
                && target <= limits.target_tokens
                && len + group.len() <= limits.sentences;
            // A group alone always fits.
            if !fits && len > 0 {
                break;
            }
            len += group.len();
        }
        len
    }

    /// What lookups add to begins at zero; everything else is stored.
    fn clear_lookups(&mut self) -> Result<(), TrainError> {
        use crate::network::tree::Input;
        let Self { network, plan, state, work, .. } = self;
        let [gradients, lookups] = cut(state, [&plan.gradients, &plan.lookups])?;
        lookups.fill(0.0);
        let ties = self.model.config().ties;
        let encoder = &network.encoder;
        let decoder = network.decoder.as_ref();
        let tied = ties.target_output && decoder.is_some();
        if let Input::Table(table) = &encoder.input
            && !(tied && ties.source_target)
        {
            gradients[table.range.clone()].fill(0.0);
        }
        if let Some(decoder) = decoder
            && !tied
        {
            gradients[decoder.table.range.clone()].fill(0.0);
        }
        let positions = [
            encoder.embedding.positions.as_ref(),
            encoder.token_types.as_ref(),
            decoder.and_then(|decoder| decoder.embedding.positions.as_ref()),
        ];
        for table in positions.into_iter().flatten() {
            gradients[table.range.clone()].fill(0.0);
        }
        for stack in [Some(&plan.encoder), plan.decoder.as_ref()].into_iter().flatten() {
            work.floats_mut()[stack.d_relative.clone()].fill(0.0);
        }
        Ok(())
    }

    /// Puts together the gradients that were kept in parts.
    fn finish(&mut self) -> Result<(), TrainError> {
        let Self { network, plan, state, work, .. } = self;
        let [gradients, lookups] = cut(state, [&plan.gradients, &plan.lookups])?;
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

    /// Every tensor that is learned, with its gradient since the last update, in the order of
    /// [`Role::all`], each once: its shape is that of [`Role::shape`], row after row.
    ///
    /// # Errors
    /// Nothing was accumulated since the last update.
    pub fn gradients(
        &mut self,
    ) -> Result<impl Iterator<Item = (Role, &[usize], &[f32])>, TrainError> {
        if self.passes == 0 {
            return Err(TrainError::NothingAccumulated);
        }
        self.finish()?;
        let all = &self.state.floats()[self.plan.gradients.clone()];
        let tensors = self.tensors.iter().filter(|tensor| !tensor.shared && tensor.learned);
        Ok(tensors.map(|t| (t.role, &t.shape[..], &all[t.range.clone()])))
    }

    /// Every tensor, learned or not, in the order of [`Role::all`], each once.
    pub fn parameters(&self) -> impl Iterator<Item = (Role, &[usize], &[f32])> {
        let all = &self.state.floats()[self.plan.values.clone()];
        let tensors = self.tensors.iter().filter(|tensor| !tensor.shared);
        tensors.map(|t| (t.role, &t.shape[..], &all[t.range.clone()]))
    }

    /// Moves every learned parameter against its gradient, with all gradients scaled down together where their norm is
    /// more than `clip`; the step counted by `adam` is the trainer's own. A norm that is not finite changes nothing,
    /// and is counted.
    ///
    /// # Errors
    /// Nothing was accumulated since the last update; a setting is not a usable number.
    pub fn update(&mut self, adam: &Adam, clip: Option<f64>) -> Result<Update, TrainError> {
        if self.passes == 0 {
            return Err(TrainError::NothingAccumulated);
        }
        if let Some(clip) = clip
            && !(clip > 0.0)
        {
            let (setting, expected) = ("clip", "a positive number");
            return Err(TrainError::Setting { setting, expected, found: clip });
        }
        self.finish()?;
        let average_decay = self.average_decay;
        let Self { model, plan, learned, decays, state, partials, threads, .. } = self;
        let [values, gradients, first, second, average] =
            cut(state, [&plan.values, &plan.gradients, &plan.first, &plan.second, &plan.average])?;
        let (isa, steps) = (model.isa(), self.steps);
        let made = threads.run(|parallelism| {
            let mut squares = 0.0f64;
            for range in learned.iter() {
                let of = &gradients[range.clone()];
                squares += sum_of_squares(isa, of, partials, parallelism)?;
            }
            let norm = squares.sqrt();
            if !norm.is_finite() {
                return Ok::<_, TrainError>(Update { norm, clipped: false, skipped: true });
            }
            let clipped = clip.is_some_and(|clip| norm > clip);
            let factor = if clipped { clip.map_or(1.0, |clip| clip / norm) } else { 1.0 };
            let all = learned.iter().map(|range| (range, false));
            let apart = decays.iter().map(|(range, decays)| (range, *decays));
            let (mut all, mut apart) = (all, apart);
            // In one sweep where nothing decays.
            let ranges: &mut dyn Iterator<Item = (&Range<usize>, bool)> =
                if adam.weight_decay == 0.0 { &mut all } else { &mut apart };
            for (range, decays) in ranges {
                let within = || range.clone();
                let weight_decay = if decays { adam.weight_decay } else { 0.0 };
                let average = average_decay.map(|decay| (&mut average[within()], decay));
                simdformer_kernels::train::adam(
                    isa,
                    &Adam { step: steps + 1, clip: factor, weight_decay, ..*adam },
                    &mut values[within()],
                    &gradients[within()],
                    &mut first[within()],
                    &mut second[within()],
                    average,
                    parallelism,
                )?;
            }
            Ok(Update { norm, clipped, skipped: false })
        })?;
        self.passes = 0;
        if made.skipped {
            self.skipped += 1;
        } else {
            self.steps += 1;
            self.refresh()?;
        }
        Ok(made)
    }

    /// One step: the gradient of the mean loss of all target tokens of `pairs`, in as many passes as the plan needs,
    /// and an update.
    ///
    /// # Errors
    /// As [`Trainer::accumulate`] and [`Trainer::update`].
    pub fn step(
        &mut self,
        pairs: &[Pair<'_>],
        options: &StepOptions,
    ) -> Result<super::Step, TrainError> {
        let tokens = pairs.iter().map(|pair| pair.target.len() as u64).sum();
        let totals = self.accumulate(pairs, options.smoothing, tokens)?;
        let update = self.update(&options.adam, options.clip_norm)?;
        Ok(super::Step { totals, update })
    }

    /// Brings the model to the parameters.
    pub(super) fn refresh(&mut self) -> Result<(), TrainError> {
        let Self { model, tensors, plan, state, .. } = self;
        let values = &state.floats()[plan.values.clone()];
        model.refresh(&|role| {
            let tensor = tensors.iter().find(|tensor| tensor.role == role);
            tensor.map_or(&[], |tensor| &values[tensor.range.clone()])
        })?;
        let learned = matches!(model.config().positions, Positions::Learned { .. });
        if learned || model.config().token_types > 0 {
            self.write_positions()?;
        }
        self.write_relative()
    }

    fn write_positions(&mut self) -> Result<(), TrainError> {
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

    fn write_relative(&mut self) -> Result<(), TrainError> {
        let Self { model, plan, work, .. } = self;
        let memory = work.floats_mut();
        let sides = [(Side::Encoder, Some(&plan.encoder)), (Side::Decoder, plan.decoder.as_ref())];
        for (side, stack) in sides {
            let Some(stack) = stack else { continue };
            if let Some((buckets, positions)) = stack.relative.buckets {
                let to = &mut memory[stack.relative.range.clone()];
                model.write_relative(side, buckets, positions, to)?;
            }
        }
        Ok(())
    }
}

/// The gradients of the learned tables of one stack, from those of distances, layer by layer.
fn relative<'t>(
    plan: &super::plan::StackSaved,
    (shared, own): (&Option<flat::Table>, impl Iterator<Item = &'t Option<flat::Table>>),
    memory: &[f32],
    gradients: &mut [f32],
) -> Result<(), TrainError> {
    let Some((buckets, positions)) = plan.relative.buckets else { return Ok(()) };
    let stride = plan.d_relative_stride;
    let tables = memory[plan.d_relative.clone()].chunks(stride.max(1));
    for (index, (own, d_table)) in own.zip(tables).enumerate() {
        let (table, write) = match (shared, own) {
            (Some(shared), _) if index > 0 => (shared, Write::Add),
            (Some(table), _) | (None, Some(table)) => (table, Write::Store),
            (None, None) => continue,
        };
        let to = Pass::matrix_mut(&mut gradients[table.range.clone()], table.columns)?;
        buckets.gradient(positions, d_table, write, to)?;
    }
    Ok(())
}

impl fmt::Debug for Trainer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("model", &self.model)
            .field("steps", &self.steps)
            .field("skipped", &self.skipped)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
