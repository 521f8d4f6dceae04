//! A run: a trainer, a corpus and everything around them, one event after the other.

use super::batch::Pair;
use super::batches::{Batches, Batching};
use super::corpus::Corpus;
use super::layout::Layout;
use super::run_error::RunError;
use super::state::{Progress, Same, Saved, Saves};
use super::totals::Totals;
use super::trainer::Trainer;
use super::update::{StepOptions, Update};
use crate::model::Model;
use core::error::Error;
use core::fmt;
use simdformer_kernels::train::Schedule;
use std::path::{Path, PathBuf};

/// What a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// How a step learns; the rate is the schedule's.
    pub step: StepOptions,
    /// The rate of each step.
    pub schedule: Schedule,
    /// How sentences come.
    pub batching: Batching,
    /// Batches of a step, at least 1; the last step of an epoch has what is left.
    pub accumulate: usize,
    /// Of the order of sentences.
    pub seed: u64,
    /// Ends the run after as many steps, those included that were skipped.
    pub steps: Option<u64>,
    /// Ends the run after as many times through the corpus.
    pub epochs: Option<u64>,
    /// Steps from one validation to the next; 0 for one at the end alone.
    pub validate_every: u64,
    /// Steps from one save to the next; 0 for one at the end alone.
    pub save_every: u64,
    /// Saves that are kept, the newest; at least 1.
    pub keep: usize,
    /// What the best is the best of.
    pub metric: Metric,
    /// Ends the run after as many validations without a better one.
    pub patience: Option<u64>,
}

impl Default for RunOptions {
    /// Batches of 4,096 tokens in a shuffled order, at a constant rate of 1e-3, without an end; nothing is validated or
    /// saved before it, the loss is what counts, and five saves are kept.
    fn default() -> Self {
        let size = super::batches::BatchSize::Tokens(4096);
        Self {
            step: StepOptions::default(),
            schedule: Schedule::Constant { peak: 1e-3, warmup: 0 },
            batching: Batching::Shuffled { size, pool: 0 },
            accumulate: 1,
            seed: 0,
            steps: None,
            epochs: None,
            validate_every: 0,
            save_every: 0,
            keep: 5,
            metric: Metric::Loss,
            patience: None,
        }
    }
}

/// What validations are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The loss that is learned from, smoothed as there; less is better.
    #[default]
    Loss,
    /// The negative log-probability of a token; less is better.
    Nll,
    /// The part of the tokens that were the likeliest; more is better.
    Accuracy,
    /// What the caller's [judge](Run::set_judge) says; more is better.
    Judged,
}

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
pub enum Event {
    /// A step.
    Step(StepRecord),
    /// A validation. The best is in `best` below the directory of the run, if it has one, when this is said.
    Validated(Validation),
    /// A save, and where it is.
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
type Judge<'a> = Box<dyn FnMut(&Model) -> Result<f64, Box<dyn Error + Send + Sync>> + 'a>;

/// A run, which does one thing at a time: [`Run::next`] makes a step, validates or saves, whichever is due, and says what
/// it was. Whoever calls it prints, measures time, and stops whenever they like: [`Run::save`] and gone, and a later
/// [`Run::resume`] goes on to the same bits.
///
/// No step and no validation allocates, writing files and the caller's judge aside.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{Corpus, Event, Initial, Reason, Run, RunOptions, TrainLimits, Trainer};
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
/// let mut run = Run::new(trainer, &corpus, RunOptions { epochs: Some(20), ..RunOptions::default() })?;
/// let mut losses = Vec::new();
/// let reason = loop {
///     match run.next()? {
///         Event::Step(record) => losses.push(record.totals.mean_loss()),
///         Event::Finished(reason) => break reason,
///         _ => {}
///     }
/// };
/// assert_eq!((losses.len(), reason), (20, Reason::Epochs));
/// assert!(losses[19] < losses[0]);
/// # Ok::<(), simdformer::train::RunError>(())
/// ```
pub struct Run<'a> {
    trainer: Trainer<'a>,
    corpus: &'a Corpus,
    options: RunOptions,
    batches: Batches,
    /// Of the step that is being made.
    pairs: Vec<Pair<'a>>,
    held_out: Vec<Pair<'a>>,
    judge: Option<Judge<'a>>,
    files: Option<Files>,
    same: Same,
    due: Due,
    validated: u64,
    best: Option<(u64, f64)>,
    patience: u64,
}

/// Where a run keeps what it makes.
#[derive(Debug)]
struct Files {
    directory: PathBuf,
    layout: Layout,
    saves: Saves,
    /// The step after which it saved last.
    saved: Option<u64>,
}

/// What comes before the next step.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    validation: bool,
    save: bool,
    finished: Option<Reason>,
}

impl<'a> Run<'a> {
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
            judge: None,
            files: None,
            same,
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
    /// [`Run::resume`] needs, `best`, and in the end the model itself.
    pub fn set_directory(&mut self, directory: &Path, layout: Layout) {
        let saves = Saves::new(directory, self.options.keep);
        let directory = directory.to_owned();
        self.files = Some(Files { directory, layout, saves, saved: None });
    }

    /// The trainer as a run below `directory` has saved it last, and where that is; `None` if there is no save. The run
    /// goes on with [`Run::resume`].
    ///
    /// # Errors
    /// The newest save is broken: the error names the file. Nothing is removed, and an older save is not taken in its
    /// place unasked: removing the broken directory does that.
    pub fn last_save(directory: &Path) -> Result<Option<PathBuf>, RunError> {
        let saves = Saves::new(directory, 1);
        let Some(step) = saves.steps()?.last().copied() else { return Ok(None) };
        let place = saves.directory(step);
        Saved::read(&place).map(|saved| Some(saved.directory().to_owned()))
    }

    /// Goes on from a save of the same run: everything is as it was, and so will be the bits. `save` is what
    /// [`Run::last_save`] has found, and the trainer that this run was made with was [opened](Trainer::open) from there.
    ///
    /// # Errors
    /// A file of the save is broken, or was written by a run with another corpus, seed or batches, or of another
    /// architecture.
    pub fn resume(&mut self, save: &Path) -> Result<(), RunError> {
        let saved = Saved::read(save)?;
        let progress = saved.progress(&self.same)?;
        saved.restore(&mut self.trainer)?;
        let position = usize::try_from(progress.position).unwrap_or(usize::MAX);
        self.batches.seek(self.corpus, progress.epoch, position);
        self.validated = progress.validated;
        self.best = progress.best.map(|best| (progress.best_step, best.value()));
        self.patience = progress.patience;
        let step = self.step();
        if let Some(files) = &mut self.files {
            files.saved = Some(step);
        }
        self.due = self.due_after(step);
        Ok(())
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
    /// A sentence cannot be learned from, the judge fails, or a file cannot be written. The run is as it was before, and may
    /// be asked again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Event, RunError> {
        if self.due.validation {
            let validation = self.validate()?;
            self.due.validation = false;
            if self.options.patience.is_some_and(|patience| self.patience >= patience) {
                self.due.finished = self.due.finished.or(Some(Reason::Patience));
                self.due.save = true;
            }
            return Ok(Event::Validated(validation));
        }
        if self.due.save && self.files.is_some() {
            let place = self.save()?;
            self.due.save = false;
            if let Some(place) = place {
                return Ok(Event::Saved(place));
            }
        }
        if let Some(reason) = self.due.finished {
            self.finish()?;
            return Ok(Event::Finished(reason));
        }
        // A run that has nothing to do from its beginning.
        if let Some(reason) = self.is_over() {
            self.due =
                Due { validation: !self.held_out.is_empty(), save: true, finished: Some(reason) };
            return self.next();
        }
        let record = self.make_step()?;
        self.due = self.due_after(record.step);
        Ok(Event::Step(record))
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
        let saved = self.files.as_ref().and_then(|files| files.saved) == Some(step);
        Due {
            validation: !self.held_out.is_empty()
                && self.validated != step
                && every(self.options.validate_every),
            save: !saved && every(self.options.save_every),
            finished,
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

    /// Looks at the held-out corpus with the weights that would be kept: of the average, where there is one. The parameters
    /// are back when this returns, and when the caller's judge panics.
    fn validate(&mut self) -> Result<Validation, RunError> {
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
        // Of two that a judge takes for the same, the one that has learned longer.
        let same = self.best.is_some_and(|(_, best)| value == best);
        let best = better || same && self.options.metric == Metric::Judged;
        if best && let Some(files) = &self.files {
            files.layout.write(averaged.trainer, &files.directory.join("best"))?;
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

    /// Saves now, between any two events; `None` if there is no directory. What was saved after the same step is
    /// not written again.
    ///
    /// # Errors
    /// A file cannot be written; earlier saves are as they were.
    pub fn save(&mut self) -> Result<Option<PathBuf>, RunError> {
        let step = self.step();
        let Self { trainer, batches, files, same, validated, best, patience, .. } = self;
        let Some(files) = files else { return Ok(None) };
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
        let place = files.saves.save(step, trainer, &files.layout, (progress, same.clone()))?;
        files.saved = Some(step);
        Ok(Some(place))
    }

    /// The directory of the run becomes the model that was best, or the last.
    fn finish(&mut self) -> Result<(), RunError> {
        let Some(files) = &self.files else { return Ok(()) };
        let best = files.directory.join("best").join("model.safetensors");
        if self.best.is_some() && best.exists() {
            return files.layout.copy_weights(&best, &files.directory);
        }
        let averaged = self.trainer.averaged()?;
        files.layout.write(averaged.trainer, &files.directory)?;
        Ok(averaged.restore()?)
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

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("trainer", &self.trainer)
            .field("step", &self.step())
            .field("best", &self.best)
            .finish_non_exhaustive()
    }
}
