//! A run: a trainer, a corpus and everything around them, one event after the other.

use super::batch::Example;
use super::batches::Batches;
use super::checkpoint_layout::Layout;
use super::checkpoints::Checkpoints;
use super::corpus::Corpus;
use super::metrics::Totals;
use super::options::{HELD_OUT, OptionChange, Options, RunOptions, changes, describe};
use super::run_directory::{RunDirectory, check_run};
use super::run_error::RunError;
use super::state::{self, Description, LastCheckpoint, Progress, Same, Saved};
use super::trainer::Trainer;
use super::update::Update;
use crate::model::Model;
use core::error::Error;
use core::{fmt, mem};
use std::path::{Path, PathBuf};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// Its number, from 1; skipped ones count.
    pub step: u64,
    /// Times that the corpus was gone through, and the part of this time.
    pub epoch: f64,
    /// Losses before the update.
    pub totals: Totals,
    /// What became of the gradients.
    pub update: Update,
    /// The rate of the update.
    pub rate: f64,
    /// Tokens of all sources, or positions of their features.
    pub source_tokens: u64,
}

/// One validation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Validation {
    /// After which step.
    pub step: u64,
    /// Losses of the held-out corpus; of the average, if there is one.
    pub totals: Totals,
    /// What the judge said of the same weights.
    pub judged: Option<f64>,
    /// Whether it is the one that is kept: none before was as good, or, in the eyes of a judge, better.
    pub best: bool,
}

/// What a run has done.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainEvent {
    /// What differs from the run that was saved; the first event after [`TrainingRun::resume`], and only if something does.
    OptionsChanged(Vec<OptionChange>),
    /// A step.
    Step(StepRecord),
    /// A validation. The best is in `best` below the directory of the run, if it has one, when this is said.
    Validated(Validation),
    /// A save, and where it is: a whole checkpoint, which stays until [`keep`](RunOptions::keep) later ones are there.
    Saved(PathBuf),
    /// There is nothing left to do; the directory of the run has the best model, or without validation the last one.
    Finished(Reason),
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has made its steps.
    Steps,
    /// It has gone through its epochs.
    Epochs,
    /// It got no better for too long.
    Patience,
}

/// Says how good a model is.
pub(super) type Judge<'a> =
    Box<dyn FnMut(&Model) -> Result<f64, Box<dyn Error + Send + Sync>> + 'a>;

/// A run, which does one thing at a time: [`TrainingRun::next`] makes a step, validates or saves, whichever is due, and says what
/// it was. Whoever calls it prints, measures time, and stops whenever they like: [`TrainingRun::save`] and gone, and a later
/// [`TrainingRun::resume`] goes on to the same bits.
///
/// No step and no validation allocates, writing files and the caller's judge aside.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Corpus, TrainEvent, Initial, Reason, TrainingRun, RunOptions, TrainLimits, Trainer};
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
/// # Ok::<(), simdformer::train::RunError>(())
/// ```
pub struct TrainingRun<'a> {
    pub(super) trainer: Trainer<'a>,
    corpus: &'a Corpus,
    pub(super) options: RunOptions,
    batches: Batches,
    /// Of the step that is being made.
    pairs: Vec<Example<'a>>,
    pub(super) held_out: Vec<Example<'a>>,
    /// How many sentences are held out, and a checksum of them; empty without any.
    held_out_text: String,
    pub(super) judge: Option<Judge<'a>>,
    pub(super) directory: Option<RunDirectory>,
    same: Same,
    /// Which run it is, known from the first directory or checkpoint on.
    identity: Option<String>,
    last: Option<LastCheckpoint>,
    /// What the caller has not been told of yet.
    changes: Vec<OptionChange>,
    due: Due,
    pub(super) validated: u64,
    pub(super) best: Option<(u64, f64)>,
    pub(super) patience: u64,
}

/// What comes before the next step.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    validation: bool,
    save: bool,
    finished: Option<Reason>,
}

impl<'a> TrainingRun<'a> {
    /// A run of `trainer`, which may have made steps before, through `corpus`.
    ///
    /// # Errors
    /// The corpus is empty, a setting is not usable, or there is no end to come.
    pub fn new(
        trainer: Trainer<'a>,
        corpus: &'a Corpus,
        options: RunOptions,
    ) -> Result<Self, RunError> {
        if corpus.is_empty() {
            return Err(RunError::NoSentences { file: "the corpus".to_owned(), too_long: 0 });
        }
        options.schedule.check().map_err(super::error::TrainError::from)?;
        if options.accumulate == 0 {
            let (setting, expected) = ("the number of batches of a step", "at least 1");
            return Err(RunError::Setting { setting, expected, found: "0".to_owned() });
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

    /// Validates on these sentences.
    pub fn set_held_out(&mut self, corpus: &'a Corpus) {
        self.held_out.clear();
        self.held_out.extend(corpus.pairs());
        self.held_out_text = format!("{} sentences, {:016x}", corpus.len(), corpus.fingerprint());
        self.renew_due();
    }

    /// Asks this too at each validation, with the weights that are validated; it may decode with a
    /// [`Session`](crate::Session). Without a held-out corpus it is not asked.
    pub fn set_judge(
        &mut self,
        judge: impl FnMut(&Model) -> Result<f64, Box<dyn Error + Send + Sync>> + 'a,
    ) {
        self.judge = Some(Box::new(judge));
    }

    /// Saves below `directory`, which becomes a checkpoint of the form `layout`: `checkpoints/step-N` with all that
    /// [`TrainingRun::resume`] needs, `best`, and in the end the model itself. A directory that was set before is unlocked first.
    ///
    /// The run locks `train.lock` in the directory until it is dropped or its process ends, so that no other run writes
    /// there. A new run needs a directory without checkpoints. A run that goes on in the directory of its checkpoint is
    /// [resumed](TrainingRun::resume) before this call. In any other directory its next validation is the best one again, since
    /// the best so far is elsewhere.
    ///
    /// # Errors
    /// Another run has [locked](RunError::DirectoryLocked) the directory. It [has checkpoints](RunError::DirectoryHasCheckpoints)
    /// and the run was not resumed from one of them, or not from the [latest](RunError::LaterCheckpoints). A checkpoint there
    /// has the [identity](RunError::OtherRun) of another run. A directory or the lock cannot be made; a file system without
    /// locks is such a case. Then the run has no directory.
    pub fn set_directory(&mut self, directory: &Path, layout: Layout) -> Result<(), RunError> {
        self.directory = None;
        let identity = self.identity.clone().unwrap_or_else(|| {
            state::identity(&self.same, &self.described_options(), &self.trainer)
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

    /// Where a run below `directory` has saved last; `None` if there is no save. A [`Trainer`] that is
    /// [opened](Trainer::open) from there goes on with [`TrainingRun::resume`].
    ///
    /// # Errors
    /// The newest save is broken: the error names the file. Nothing is removed, and an older save is not taken in its
    /// place unasked: removing the broken directory does that. There are saves of two runs beside each other.
    pub fn last_save(directory: &Path) -> Result<Option<PathBuf>, RunError> {
        let found = Checkpoints::new(directory).list()?;
        let Some((_, last)) = found.last() else { return Ok(None) };
        let saved = Saved::read(last)?;
        check_run(&found, saved.run())?;
        Ok(Some(last.clone()))
    }

    /// Goes on from a save of the same run: everything is as it was, and so will be the bits. `save` is what
    /// [`TrainingRun::last_save`] has found, and the trainer that this run was made with was [opened](Trainer::open) from there. The
    /// [directory](TrainingRun::set_directory) is set afterwards.
    ///
    /// Returns the options that differ from those of the run that was saved, in the order of their names: with another
    /// schedule, for example, the run goes on, and its bits are not those of the run that was saved. [`TrainingRun::next`] tells them
    /// once more, by [`TrainEvent::OptionsChanged`]. A held-out corpus is compared if it was set before.
    ///
    /// # Errors
    /// A file of the save is broken, or was written by a run with another corpus, seed or batches, or of another
    /// architecture. The parameters of the trainer are [not those](RunError::OtherParameters) of the save. The run is as it
    /// was before.
    pub fn resume(&mut self, save: &Path) -> Result<Vec<OptionChange>, RunError> {
        let saved = Saved::read(save)?;
        let progress = saved.progress(&self.same)?;
        saved.check_parameters(&self.trainer)?;
        saved.restore(&mut self.trainer)?;
        let position = usize::try_from(progress.position).unwrap_or(usize::MAX);
        self.batches.seek(self.corpus, progress.epoch, position);
        self.validated = progress.validated;
        self.best = progress.best.map(|best| (progress.best_step, best.value()));
        self.patience = progress.patience;
        if self.directory.is_some() {
            // It has no checkpoint of this run, and so no best of it.
            (self.best, self.patience) = (None, 0);
        }
        self.identity = Some(saved.run().to_owned());
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

    /// Steps so far, skipped ones included.
    pub fn step(&self) -> u64 {
        self.trainer.steps() + self.trainer.skipped()
    }

    /// What it trains.
    pub fn trainer(&self) -> &Trainer<'a> {
        &self.trainer
    }

    /// As given.
    pub fn options(&self) -> &RunOptions {
        &self.options
    }

    /// Batches of the epoch, and of those, how many were taken.
    pub fn batches(&self) -> [usize; 2] {
        [self.batches.len(), self.batches.position()]
    }

    /// After which step the best validation was, and what it said.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.best
    }

    /// Does what is due.
    ///
    /// # Errors
    /// A sentence cannot be learned from, the judge fails, a parameter that is to be saved is
    /// [not finite](RunError::NotFinite), or a file cannot be written. The run is as it was before, and may be asked again.
    /// A panic of the judge or of the caller's threads leaves it so too, but for one in an update: then every call is
    /// an [error](super::TrainError::Interrupted).
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<TrainEvent, RunError> {
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
        // A run that has nothing to do from its beginning.
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
        let gone = self.batches.epoch() + u64::from(self.batches.epoch_is_over());
        epochs.is_some_and(|epochs| gone >= epochs).then_some(Reason::Epochs)
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

    /// What is due once more, of a run that was resumed or has saved: what that depends on has changed.
    fn renew_due(&mut self) {
        if self.last.is_some() {
            self.due = self.due_after(self.step());
        }
    }

    fn make_step(&mut self) -> Result<StepRecord, RunError> {
        let Self { trainer, corpus, options, batches, pairs, .. } = self;
        let mut taken = Taken::of(batches, corpus);
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

    /// Saves now, between any two events; `None` if there is no directory. A save after the same step is replaced, at
    /// once and as a whole.
    ///
    /// # Errors
    /// A parameter is [not finite](RunError::NotFinite); a file cannot be written. Earlier saves are as they were.
    pub fn save(&mut self) -> Result<Option<PathBuf>, RunError> {
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

/// Batches that a step has taken; unless the step has learned from them, they are given back, after an error and after a
/// panic of the caller's threads.
struct Taken<'b> {
    batches: &'b mut Batches,
    corpus: &'b Corpus,
    /// Epoch and position before.
    before: (u64, usize),
    learned: bool,
}

impl<'b> Taken<'b> {
    fn of(batches: &'b mut Batches, corpus: &'b Corpus) -> Self {
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
