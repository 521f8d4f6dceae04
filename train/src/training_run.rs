//! A training run: a trainer, a corpus, validation and checkpoints, one event at a time.

use crate::batch_sampler::Batches;
use crate::checkpoints::Checkpoints;
use crate::corpus::Corpus;
use crate::error::{Error, invalid_option, no_sentences};
use crate::layout::Layout;
use crate::options::{HELD_OUT, Metric, OptionChange, Options, RunOptions, changes, describe};
use crate::run_directory::{RunDirectory, check_run};
use crate::saved_checkpoint::{self, Description, LastCheckpoint, Progress, Same, Saved};
use core::{fmt, mem};
use simdformer::Model;
use simdformer::train::{Example, Totals, Trainer, Update};
use std::path::{Path, PathBuf};

/// The directory of the best model, below that of the run.
const BEST: &str = "best";

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// The step number, from 1; skipped steps count.
    pub step: u64,
    /// Completed epochs plus the fraction of the current one.
    pub epoch: f64,
    /// Losses before the update.
    pub totals: Totals,
    /// The result of the update.
    pub update: Update,
    /// The learning rate of the update.
    pub rate: f64,
    /// Tokens of all sources, or positions of their features.
    pub source_tokens: u64,
}

/// One validation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Validation {
    /// The step after which the validation ran.
    pub step: u64,
    /// Losses of the held-out corpus, with the averaged parameters if there is an average.
    pub totals: Totals,
    /// The value that the judge returned for the same weights.
    pub judged: Option<f64>,
    /// Whether this validation is the best so far. An equal metric counts as best only with
    /// [`Metric::Judged`](super::Metric::Judged).
    pub best: bool,
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainEvent {
    /// Options that differ from those of the saved run. The first event after [`TrainingRun::resume`], only if an
    /// option differs.
    OptionsChanged(Vec<OptionChange>),
    /// A step.
    Step(StepRecord),
    /// A validation. When this event is returned, the best model is already in `best` below the directory of the run,
    /// if the run has a directory.
    Validated(Validation),
    /// A complete checkpoint was saved at this path. It is deleted after [`keep`](RunOptions::keep) later checkpoints
    /// exist.
    Saved(PathBuf),
    /// The run is complete. The directory of the run has the best model, or without validation the last one.
    Finished(Reason),
}

/// Why a run finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It made the configured number of steps.
    Steps,
    /// It completed the configured number of epochs.
    Epochs,
    /// The metric did not improve for the configured number of validations.
    Patience,
}

/// Returns the quality of a model.
pub(crate) type Judge<'a> =
    Box<dyn FnMut(&Model) -> Result<f64, Box<dyn core::error::Error + Send + Sync>> + 'a>;

/// A training run. Each call of [`TrainingRun::next`] does the one action that is due, a step, a validation or a
/// save, and returns it as an event. The caller prints, measures time, and may stop after any event: it calls
/// [`TrainingRun::save`] and drops the run. A later [`TrainingRun::resume`] continues with the same bits.
///
/// Steps and validations do not allocate, except in file writes and in the caller's judge.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Initial, TrainLimits, Trainer};
/// use simdformer_train::{Corpus, Reason, RunOptions, TrainEvent, TrainingRun};
///
/// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
/// let mut config = Config::transformer(small);
/// config.tokens.decoder_start = Some(1);
/// let weights = Initial::Glorot.weights(&config, 1);
/// let trainer = Trainer::new(config, TrainLimits::new(512, 16), weights)?;
///
/// let mut corpus = Corpus::default();
/// corpus.push(&[5, 6, 7, 0], &[8, 9, 0]);
/// corpus.push(&[7, 6, 0], &[9, 0]);
/// let mut run = TrainingRun::new(trainer, &corpus, RunOptions { epochs: Some(20), ..RunOptions::default() })?;
/// let mut losses = Vec::new();
/// let reason = loop {
///     match run.next()? {
///         TrainEvent::Step(record) => losses.push(record.totals.mean_loss()),
///         TrainEvent::Finished(reason) => break reason,
///         _ => {}
///     }
/// };
/// assert_eq!((losses.len(), reason), (20, Reason::Epochs));
/// assert!(losses[19] < losses[0]);
/// # Ok::<(), simdformer::Error>(())
/// ```
pub struct TrainingRun<'a> {
    pub(crate) trainer: Trainer<'a>,
    corpus: &'a Corpus,
    pub(crate) options: RunOptions,
    batches: Batches,
    /// Examples of the current step.
    pairs: Vec<Example<'a>>,
    pub(crate) held_out: Vec<Example<'a>>,
    /// The number of held-out sentences and their checksum; empty without a held-out corpus.
    held_out_text: String,
    pub(crate) judge: Option<Judge<'a>>,
    pub(crate) directory: Option<RunDirectory>,
    same: Same,
    /// The identity of the run; set when the first directory is set or a checkpoint is resumed.
    identity: Option<String>,
    last: Option<LastCheckpoint>,
    /// Option changes that `next` has not yet returned.
    changes: Vec<OptionChange>,
    due: Due,
    pub(crate) validated: u64,
    pub(crate) best: Option<(u64, f64)>,
    pub(crate) patience: u64,
}

/// The actions that are due before the next step.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    validation: bool,
    save: bool,
    finished: Option<Reason>,
}

impl<'a> TrainingRun<'a> {
    /// A run of `trainer`, which may have made steps already, on `corpus`.
    ///
    /// # Errors
    /// The corpus is empty, a setting is invalid, or no setting ends the run.
    pub fn new(
        trainer: Trainer<'a>,
        corpus: &'a Corpus,
        options: RunOptions,
    ) -> Result<Self, Error> {
        if corpus.is_empty() {
            return Err(no_sentences("the corpus", 0));
        }
        options.schedule.check()?;
        if options.accumulate == 0 {
            let operand = "the number of batches of a step";
            return Err(invalid_option(operand, "at least 1", "0"));
        }
        let batches = Batches::new(corpus, options.batching.clone(), options.seed)?;
        let same = Same {
            seed: options.seed,
            batches: options.batching.describe(),
            accumulate: options.accumulate as u64,
            sentences: corpus.len() as u64,
            data: format!("{:016x}", corpus.fingerprint()),
            average: trainer.has_average(),
        };
        Ok(Self {
            trainer,
            corpus,
            batches,
            pairs: Vec::with_capacity(corpus.len().min(1 << 16)),
            held_out: Vec::new(),
            held_out_text: String::new(),
            judge: None,
            directory: None,
            same,
            identity: None,
            last: None,
            changes: Vec::new(),
            due: Due::default(),
            validated: 0,
            best: None,
            patience: 0,
            options,
        })
    }

    /// Sets the sentences for validation.
    pub fn set_held_out(&mut self, corpus: &'a Corpus) {
        self.held_out.clear();
        self.held_out.extend(corpus.pairs());
        self.held_out_text = format!("{} sentences, {:016x}", corpus.len(), corpus.fingerprint());
        self.renew_due();
    }

    /// Sets a judge, which is called at each validation with the weights that are validated. The judge may decode
    /// with a [`Session`](simdformer::Session). It is not called without a held-out corpus.
    pub fn set_judge(
        &mut self,
        judge: impl FnMut(&Model) -> Result<f64, Box<dyn core::error::Error + Send + Sync>> + 'a,
    ) {
        self.judge = Some(Box::new(judge));
    }

    /// Saves below `directory`, in the format `layout`: `checkpoints/step-N` with all state that
    /// [`TrainingRun::resume`] needs, `best`, and at the end the model itself. A directory that was set before is
    /// unlocked first.
    ///
    /// The run locks `train.lock` in the directory until the run is dropped or its process ends, so that no other run
    /// writes there. A new run needs a directory without checkpoints. To continue in the directory of a checkpoint,
    /// [resume](TrainingRun::resume) before this call. In any other directory, the next validation counts as the best
    /// one, because the earlier best model is in another directory.
    ///
    /// # Errors
    /// - [`Conflict`](Error::Conflict): another run has locked the directory; the directory has checkpoints, and the run
    ///   was not resumed from one of them, or not from the latest; a checkpoint has the identity of another run.
    /// - [`Io`](Error::Io): a directory or the lock cannot be created, for example on a file system without locks.
    ///
    /// After an error the run has no directory.
    pub fn set_directory(&mut self, directory: &Path, layout: Layout) -> Result<(), Error> {
        self.directory = None;
        let identity = self.identity.clone().unwrap_or_else(|| {
            saved_checkpoint::identity(&self.same, &self.described_options(), &self.trainer)
        });
        let opened = RunDirectory::open(directory, layout, &identity, self.last.as_ref())?;
        if opened.saved.is_none() {
            (self.best, self.patience) = (None, 0);
        }
        self.identity = Some(identity);
        self.directory = Some(opened);
        self.renew_due();
        Ok(())
    }

    /// The path of the latest checkpoint below `directory`; `None` if there is none. A [`Trainer`] that is
    /// [opened](Trainer::open) from this path continues with [`TrainingRun::resume`].
    ///
    /// # Errors
    /// The latest checkpoint is broken: the error names the file. Nothing is removed, and no older checkpoint is used
    /// instead; to use an older one, remove the broken directory. It is also an error if the directory has
    /// checkpoints of two runs.
    pub fn last_save(directory: &Path) -> Result<Option<PathBuf>, Error> {
        let found = Checkpoints::new(directory).list()?;
        let Some((_, last)) = found.last() else { return Ok(None) };
        let saved = Saved::from_directory(last)?;
        check_run(&found, saved.run_identity())?;
        Ok(Some(last.clone()))
    }

    /// Restores the state of a saved run, so that this run continues with the same bits. `save` is the path from
    /// [`TrainingRun::last_save`], and the trainer of this run was [opened](Trainer::open) from it. Set the
    /// [directory](TrainingRun::set_directory) afterwards.
    ///
    /// Returns the options that differ from those of the saved run, sorted by name. With a different option the run
    /// continues, but its bits differ from those of the saved run. [`TrainingRun::next`] returns the differences
    /// again, as [`TrainEvent::OptionsChanged`]. The held-out corpus is compared only if it was set before.
    ///
    /// # Errors
    /// A file of the checkpoint is broken, or was written with another corpus, seed, batching or architecture. The
    /// parameters of the trainer are [not those](Error::Conflict) of the checkpoint. The run is unchanged.
    pub fn resume(&mut self, save: &Path) -> Result<Vec<OptionChange>, Error> {
        let saved = Saved::from_directory(save)?;
        let progress = saved.progress(&self.same)?;
        saved.check_parameters(&self.trainer)?;
        saved.restore(&mut self.trainer)?;
        let position = usize::try_from(progress.position).unwrap_or(usize::MAX);
        self.batches.seek(self.corpus, progress.epoch, position);
        self.validated = progress.validated;
        self.best = progress.best.map(|best| (progress.best_step, best.value()));
        self.patience = progress.patience;
        if self.directory.is_some() {
            // The directory has no checkpoint of this run, so it has no best model of this run.
            (self.best, self.patience) = (None, 0);
        }
        self.identity = Some(saved.run_identity().to_owned());
        self.last = Some(saved.last_checkpoint());
        let mut given = self.described_options();
        let held_out = saved.options().get(HELD_OUT).filter(|_| self.held_out.is_empty());
        given.extend(held_out.map(|text| (HELD_OUT.to_owned(), text.clone())));
        self.changes = changes(saved.options(), &given);
        self.renew_due();
        Ok(self.changes.clone())
    }

    fn described_options(&self) -> Options {
        describe(&self.options, &self.trainer, &self.held_out_text)
    }

    /// Steps so far, including skipped steps.
    pub fn step(&self) -> u64 {
        self.trainer.steps() + self.trainer.skipped()
    }

    /// The trainer.
    pub fn trainer(&self) -> &Trainer<'a> {
        &self.trainer
    }

    /// The options of the run.
    pub fn options(&self) -> &RunOptions {
        &self.options
    }

    /// Batches in the epoch, and how many of them were used.
    pub fn batches(&self) -> [usize; 2] {
        [self.batches.len(), self.batches.position()]
    }

    /// The step of the best validation, and its metric value.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.best
    }

    /// Does the action that is due.
    ///
    /// # Errors
    /// A sentence cannot be used for training, the judge fails, a parameter to be saved is [not
    /// finite](Error::NotFinite), or a file cannot be written. The run is unchanged, and `next` may be called
    /// again. A panic of the judge or of the caller's threads also leaves the run unchanged, except a panic in an
    /// update: then every later call returns [`Error::InvalidInput`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<TrainEvent, Error> {
        if !self.changes.is_empty() {
            return Ok(TrainEvent::OptionsChanged(mem::take(&mut self.changes)));
        }
        if self.due.validation {
            let validation = self.validate()?;
            self.due.validation = false;
            if self.options.patience.is_some_and(|patience| self.patience >= patience) {
                self.due.finished = self.due.finished.or(Some(Reason::Patience));
                self.due.save = true;
            }
            return Ok(TrainEvent::Validated(validation));
        }
        if self.due.save && self.directory.is_some() {
            let place = self.save()?;
            self.due.save = false;
            if let Some(place) = place {
                return Ok(TrainEvent::Saved(place));
            }
        }
        if let Some(reason) = self.due.finished {
            self.finish()?;
            return Ok(TrainEvent::Finished(reason));
        }
        // The run has nothing to do from its start.
        if let Some(reason) = self.is_over() {
            self.due =
                Due { validation: !self.held_out.is_empty(), save: true, finished: Some(reason) };
            return self.next();
        }
        let record = self.make_step()?;
        self.due = self.due_after(record.step);
        Ok(TrainEvent::Step(record))
    }

    fn is_over(&self) -> Option<Reason> {
        let RunOptions { steps, epochs, .. } = self.options;
        if steps.is_some_and(|steps| self.step() >= steps) {
            return Some(Reason::Steps);
        }
        let epochs_done = self.batches.epoch() + u64::from(self.batches.epoch_is_over());
        epochs.is_some_and(|epochs| epochs_done >= epochs).then_some(Reason::Epochs)
    }

    fn due_after(&self, step: u64) -> Due {
        let patience = self.options.patience.is_some_and(|patience| self.patience >= patience);
        let finished = self.is_over().or(patience.then_some(Reason::Patience));
        let every = |steps: u64| finished.is_some() || steps > 0 && step.is_multiple_of(steps);
        let saved = self.directory.as_ref().and_then(|directory| directory.saved) == Some(step);
        Due {
            validation: !self.held_out.is_empty()
                && self.validated != step
                && every(self.options.validate_every),
            save: !saved && every(self.options.save_every),
            finished,
        }
    }

    /// Recomputes the due actions of a run that was resumed or has saved, because an input of that computation has
    /// changed.
    fn renew_due(&mut self) {
        if self.last.is_some() {
            self.due = self.due_after(self.step());
        }
    }

    fn make_step(&mut self) -> Result<StepRecord, Error> {
        let Self { trainer, corpus, options, batches, pairs, .. } = self;
        let mut taken = Taken::from_batches(batches, corpus);
        let batches = &mut *taken.batches;
        pairs.clear();
        for batch in 0..options.accumulate {
            if batch > 0 && batches.epoch_is_over() {
                break;
            }
            let sentences = batches.next(corpus).iter();
            pairs.extend(sentences.filter_map(|&number| corpus.pair(number as usize)));
        }
        let rate = options.schedule.rate(trainer.steps() + 1);
        let mut step = options.step;
        step.adam.rate = rate;
        let step = trainer.step(pairs, &step)?;
        taken.learned = true;
        let batches = &*taken.batches;
        let source_tokens = pairs.iter().map(|pair| pair.source_len() as u64).sum();
        let part = batches.position() as f64 / batches.len() as f64;
        Ok(StepRecord {
            step: trainer.steps() + trainer.skipped(),
            epoch: batches.epoch() as f64 + part,
            totals: step.totals,
            update: step.update,
            rate,
            source_tokens,
        })
    }

    /// Saves now, between any two events; `None` if there is no directory. Replaces a checkpoint of the same step
    /// atomically.
    ///
    /// # Errors
    /// A parameter is [not finite](Error::NotFinite), or a file cannot be written. Earlier checkpoints are
    /// unchanged.
    pub fn save(&mut self) -> Result<Option<PathBuf>, Error> {
        let step = self.step();
        let options = self.described_options();
        let Self { trainer, batches, directory, same, identity, validated, best, patience, .. } =
            self;
        let Some(directory) = directory else { return Ok(None) };
        let progress = Progress {
            steps: trainer.steps(),
            skipped: trainer.skipped(),
            epoch: batches.epoch(),
            position: batches.position() as u64,
            validated: *validated,
            best_step: best.map_or(0, |(step, _)| step),
            best: best.map(|(_, value)| value.into()),
            patience: *patience,
        };
        let run = identity.as_deref().unwrap_or_default();
        let description = Description { run, progress, same, options };
        let RunDirectory { checkpoints, layout, .. } = directory;
        let keep = self.options.keep;
        let (place, seal) = checkpoints.save((step, keep), trainer, layout, description)?;
        directory.saved = Some(step);
        self.last = Some(LastCheckpoint { step, seal });
        Ok(Some(place))
    }
}

/// The batches of a step. Unless the step is marked as learned, `Drop` returns them, after an error and after a panic
/// of the caller's threads.
struct Taken<'b> {
    batches: &'b mut Batches,
    corpus: &'b Corpus,
    /// Epoch and position before the step.
    before: (u64, usize),
    learned: bool,
}

impl<'b> Taken<'b> {
    fn from_batches(batches: &'b mut Batches, corpus: &'b Corpus) -> Self {
        let before = (batches.epoch(), batches.position());
        Self { batches, corpus, before, learned: false }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.learned {
            let (epoch, position) = self.before;
            self.batches.seek(self.corpus, epoch, position);
        }
    }
}

impl fmt::Debug for TrainingRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingRun")
            .field("trainer", &self.trainer)
            .field("step", &self.step())
            .field("best", &self.best)
            .finish_non_exhaustive()
    }
}

impl TrainingRun<'_> {
    /// Evaluates the held-out corpus with the averaged parameters if there is an average, otherwise with the
    /// parameters. The parameters are restored on return, and also when the caller's judge panics.
    pub(crate) fn validate(&mut self) -> Result<Validation, Error> {
        let mut averaged = self.trainer.averaged()?;
        let totals = averaged.evaluate(&self.held_out, self.options.step.smoothing)?;
        let model = averaged.model();
        let judged = self.judge.as_mut().map(|judge| judge(model)).transpose();
        let judged = judged.map_err(|error| Error::Caller {
            index: None,
            operand: "the judge of the run".into(),
            reason: error.to_string().into(),
            error: Some(error.into()),
        })?;
        let value = match (self.options.metric, judged) {
            (Metric::Loss, _) => -totals.mean_loss(),
            (Metric::Nll, _) => -totals.mean_nll(),
            (Metric::Accuracy, _) => totals.accuracy(),
            (Metric::Judged, Some(judged)) => judged,
            (Metric::Judged, None) => {
                let found = "what the judge says, without a judge";
                return Err(invalid_option("the metric", "one that is measured", found));
            }
        };
        let better = !value.is_nan() && self.best.is_none_or(|(_, best)| value > best);
        // If the judge gives the same value, the later model is the best.
        let same = self.best.is_some_and(|(_, best)| value == best);
        let best = better || same && self.options.metric == Metric::Judged;
        if best && let Some(directory) = &self.directory {
            directory.layout.write(&averaged, &directory.path.join(BEST))?;
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
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let best = directory.path.join(BEST).join("model.safetensors");
        if self.best.is_some() && best.exists() {
            return directory.layout.copy_weights(&best, &directory.path);
        }
        let averaged = self.trainer.averaged()?;
        directory.layout.write(&averaged, &directory.path)?;
        averaged.restore()
    }
}
