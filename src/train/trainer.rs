//! A trainable model: parameters, gradients and moments, and the passes that change them.

use super::dropout::DropoutRates;
use super::frozen;
use super::limits::TrainLimits;
use super::loss_step::Totals;
use super::memory_plan::{StateBuffers, TrainPlan};
use super::packed_batch::Batch;
use super::params::{self, FlatTensor};
use crate::checkpoint::{Checkpoint, TensorId};
use crate::config::Config;
use crate::error::Error;
use crate::memory::Buffer;
use crate::model::{LoadOptions, Model, WeightDtypes};
use crate::session::Threads;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::train::RowLoss;
use simdformer_kernels::{Dtype, Isa};

/// A loss that the caller computes. Arguments: the indices of some sentences; the encoder output of their
/// concatenated tokens, `[tokens, d_model]`; and the destination of its gradient, of the same shape. Returns the
/// loss.
pub type EncoderLoss<'l> = dyn FnMut(Range<usize>, &[f32], &mut [f32]) -> f64 + Send + 'l;

/// A trainable model in planned memory: after [`Trainer::new`] no step allocates.
///
/// [`Trainer::step`] makes a whole step. To use the parts, call [`accumulate`](Trainer::accumulate) for any number of
/// passes, read the [gradients](Trainer::gradients), and [update](Trainer::update).
///
/// A panic of a callback or thread of the caller reaches the caller. In a pass, it discards everything that was
/// accumulated since the last update, and the next pass begins a new gradient. In an update, some parameters may be
/// updated and others not: then every later call returns [`Error::InvalidInput`], and nothing is saved.
///
/// The results have the same bits on any number of threads, for any limits and any
/// [`SavedActivations`](super::SavedActivations), and whether a batch takes one pass or several.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Example, StepOptions, TrainLimits, Trainer};
///
/// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
/// let mut config = Config::transformer(small);
/// config.tokens.decoder_start = Some(1);
/// // Pseudorandom numbers; norms begin as the identity.
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
/// // Memorize that 5 6 7 translates to 8 9.
/// let pair = Example::new(&[5, 6, 7, 0], &[8, 9, 0], 0);
/// let mut options = StepOptions::default();
/// options.adam.rate = 3e-3;
/// let first = trainer.step(&[pair], &options)?;
/// for _ in 0..100 {
///     trainer.step(&[pair], &options)?;
/// }
/// let last = trainer.evaluate(&[pair], options.smoothing)?;
/// assert!(last.mean_loss() < 0.1 * first.totals.mean_loss());
/// # Ok::<(), simdformer::Error>(())
/// ```
pub struct Trainer<'a> {
    pub(super) model: Model,
    pub(super) network: params::Network,
    pub(super) tensors: Vec<FlatTensor>,
    /// The parameter ranges that are updated; adjacent ranges are merged.
    pub(super) learned: Vec<Range<usize>>,
    /// The same ranges, each with whether weight decay applies: not to norms and biases.
    pub(super) decays: Vec<(Range<usize>, bool)>,
    /// The decay of the average of parameters.
    pub(super) average_decay: Option<f32>,
    pub(super) plan: TrainPlan,
    pub(super) state: Buffer<'static>,
    pub(super) work: Buffer<'static>,
    pub(super) batch: Batch,
    pub(super) losses: Vec<RowLoss>,
    pub(super) partials: Vec<f64>,
    pub(super) order: Vec<u32>,
    pub(super) threads: Threads<'a>,
    pub(super) dropout: DropoutRates,
    /// Since the last update.
    pub(super) accumulated: Totals,
    pub(super) passes: u64,
    /// Updates made, and updates skipped because of gradients that were not finite.
    pub(super) steps: u64,
    pub(super) skipped: u64,
    /// True during an update and during the copy of the parameters into the model. It stays true if a panic ends
    /// either.
    pub(super) interrupted: bool,
}

impl<'a> Trainer<'a> {
    /// A trainer whose initial weights `fill` writes, in the order of calls of [`Model::from_fn`], on the best
    /// instruction set of this machine or the one that the environment variable names.
    ///
    /// # Errors
    /// All errors of [`Model::from_fn`] and [`TrainPlan::new`]; memory cannot be allocated.
    pub fn new<F>(config: Config, limits: TrainLimits, fill: F) -> Result<Self, Error>
    where
        F: FnMut(
            TensorId,
            &[usize],
            &mut [f32],
        ) -> Result<(), Box<dyn core::error::Error + Send + Sync>>,
    {
        Self::filled(config, limits, fill, LoadOptions::default())
    }

    /// As [`Trainer::new`], on `isa`, regardless of the environment variable.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn new_on<F>(isa: Isa, config: Config, limits: TrainLimits, fill: F) -> Result<Self, Error>
    where
        F: FnMut(
            TensorId,
            &[usize],
            &mut [f32],
        ) -> Result<(), Box<dyn core::error::Error + Send + Sync>>,
    {
        Self::filled(config, limits, fill, isa.into())
    }

    fn filled<F>(
        config: Config,
        limits: TrainLimits,
        mut fill: F,
        options: LoadOptions<'_>,
    ) -> Result<Self, Error>
    where
        F: FnMut(
            TensorId,
            &[usize],
            &mut [f32],
        ) -> Result<(), Box<dyn core::error::Error + Send + Sync>>,
    {
        let placed = params::place(&config)?;
        let mut values = vec![0.0; placed.floats];
        let model = Model::from_fn_with(config, options, |role, shape, out| {
            fill(role, shape, out)?;
            if let Some(tensor) = placed.tensors.iter().find(|tensor| tensor.role == role) {
                values[tensor.range.clone()].copy_from_slice(out);
            }
            Ok(())
        })?;
        let mut trainer = Self::for_model(model, limits)?;
        trainer.plan.state.values.slice_of_mut(trainer.state.floats_mut()).copy_from_slice(&values);
        trainer.refresh()?;
        Ok(trainer)
    }

    /// A trainer that starts from the weights of `checkpoint`, on `isa`.
    ///
    /// # Errors
    /// All errors of [`Model::load`] and [`TrainPlan::new`]; memory cannot be allocated.
    pub fn open(checkpoint: &Checkpoint<'_>, isa: Isa, limits: TrainLimits) -> Result<Self, Error> {
        // The trained weights are f32, whatever dtype the checkpoint has.
        let dtypes = WeightDtypes::all(Dtype::F32);
        let model = Model::load(checkpoint, LoadOptions { dtypes, ..isa.into() })?;
        let mut trainer = Self::for_model(model, limits)?;
        let values = trainer.plan.state.values.slice_of_mut(trainer.state.floats_mut());
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

    fn for_model(model: Model, limits: TrainLimits) -> Result<Self, Error> {
        let placed = params::place(model.config())?;
        let plan = TrainPlan::from_placed(model.config(), model.isa(), limits, &placed)?;
        let params::Placed { network, tensors, .. } = placed;
        let limits = plan.limits();
        let state = Buffer::owned(plan.state.len())?;
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
            interrupted: false,
        };
        trainer.learn_all();
        trainer.write_positions()?;
        Ok(trainer)
    }

    /// Trains every tensor that the architecture's own library trains.
    fn learn_all(&mut self) {
        let learned = self.tensors.iter().filter(|tensor| !tensor.shared && tensor.learned);
        let kinds = learned.map(|tensor| (tensor.range.clone(), frozen::decays(tensor.role)));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_by_key(|(range, _)| range.start);
        self.learned.clear();
        self.decays.clear();
        // The gap between neighboring tensors is padding, which stays zero.
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

    /// Selects the trained tensors: of the tensors that the architecture's own library trains, those for which
    /// `learns` returns true. A tied tensor is passed under its first tensor id. The other tensors keep their bits.
    pub fn set_learned(&mut self, learns: impl Fn(TensorId) -> bool) {
        for tensor in &mut self.tensors {
            let frozen = frozen::is_frozen(self.model.config(), tensor.role);
            tensor.learned = !frozen && learns(tensor.role);
        }
        self.learn_all();
    }

    /// Whether updates change this tensor; also for a tied tensor.
    pub fn is_learned(&self, role: TensorId) -> bool {
        let Some(owner) = self.owner(role) else { return false };
        self.tensors.iter().any(|tensor| tensor.role == owner && tensor.learned)
    }

    /// Sets the dropout rates for training; initially no dropout.
    ///
    /// # Errors
    /// A rate is not in `[0, 1)`.
    pub fn set_dropout(&mut self, rates: DropoutRates) -> Result<(), Error> {
        rates.check()?;
        self.dropout = rates;
        Ok(())
    }

    /// The dropout rates.
    pub fn dropout(&self) -> DropoutRates {
        self.dropout
    }

    /// Starts an exponential moving average of the parameters, initialized with their present values. After each
    /// update: `average += (1 - decay) (parameter - average)`. `None` stops it.
    ///
    /// # Errors
    /// The [limits](TrainLimits::average) include no average, or `decay` is not between 0 and 1.
    pub fn set_average(&mut self, decay: Option<f32>) -> Result<(), Error> {
        if let Some(decay) = decay {
            if !self.has_average() {
                let (expected, found) = ("planned for in the limits", decay.to_string());
                return Err(Error::invalid_option("average", expected, found));
            }
            if !(0.0..=1.0).contains(&decay) {
                let (operand, found) = ("the decay of the average", decay.to_string());
                return Err(Error::invalid_option(operand, "from 0 to 1", found));
            }
            if self.average_decay.is_none() {
                let StateBuffers { values, average, .. } =
                    self.plan.state.split(self.state.floats_mut())?;
                average.copy_from_slice(values);
            }
        }
        self.average_decay = decay;
        Ok(())
    }

    /// The decay of the average of the parameters, if there is one.
    pub fn average_decay(&self) -> Option<f32> {
        self.average_decay
    }

    /// Checks that no panic has ended an update, so that some parameters are updated and others are not. A program that saves
    /// parameters calls it before.
    ///
    /// # Errors
    /// [`InvalidInput`](Error::InvalidInput), as of every later pass and update.
    pub fn check_whole(&self) -> Result<(), Error> {
        if !self.interrupted {
            return Ok(());
        }
        let expected = "one that is opened anew from a checkpoint";
        let found = "one whose parameters are partly updated, because a panic has ended an update";
        Err(Error::invalid_input("the trainer", expected, found))
    }

    /// Sets the threads. The results have the same bits for any threads.
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        self.threads = threads;
    }

    /// The model after the last update, for [sessions](crate::Session) that validate it.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The memory plan.
    pub fn plan(&self) -> &TrainPlan {
        &self.plan
    }

    /// Bytes of all memory: the model and the plan.
    pub fn bytes(&self) -> usize {
        self.model.bytes() + self.plan.bytes()
    }

    /// Updates made so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates that were skipped because their gradients were not finite.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Every tensor once, trained or not, in the order of [`TensorId::all`].
    pub fn parameters(&self) -> impl Iterator<Item = (TensorId, &[usize], &[f32])> {
        let all = self.plan.state.values.slice_of(self.state.floats());
        let tensors = self.tensors.iter().filter(|tensor| !tensor.shared);
        tensors.map(|t| (t.role, &t.shape[..], &all[t.range.clone()]))
    }
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

impl Trainer<'_> {
    /// The values of a tensor in row order, also of a tied tensor; `None` if the model has no such tensor.
    pub fn parameter(&self, role: TensorId) -> Option<&[f32]> {
        let tensor = self.tensors.iter().find(|tensor| tensor.role == role)?;
        self.plan.state.values.slice_of(self.state.floats()).get(tensor.range.clone())
    }

    /// The tensor id under which [`Trainer::gradients`] and [`Trainer::parameters`] return this tensor; it differs
    /// from `role` if the tensor is tied.
    pub fn owner(&self, role: TensorId) -> Option<TensorId> {
        let range = &self.tensors.iter().find(|tensor| tensor.role == role)?.range;
        let mut own = self.tensors.iter().filter(|tensor| !tensor.shared);
        own.find(|tensor| tensor.range == *range).map(|tensor| tensor.role)
    }

    /// Whether memory for an average of the parameters is planned.
    pub fn has_average(&self) -> bool {
        self.plan.limits.average
    }
}
