//! Decodes windows as requests of the decoding loop: a window is encoded once, each attempt at one of the temperatures is a
//! request, and a window that is done leaves its slot to the next one.

use super::options::{Compression, TranscribeOptions, Windows};
use super::prompt::Prompt;
use super::segments::{compression_ratio, id_bytes, seconds_of};
use super::transcription::Window;
use super::word_timestamps::WordTimer;
use crate::FeatureExtractor;
use crate::error::Error;
use core::cell::{Cell, RefCell};
use core::ops::ControlFlow;
use simdformer::search::{
    Context, Finish, Hooks, LogitsProcessor, SampleOptions, SearchOptions, Strategy, score_targets,
};
use simdformer::{
    Cancel, DecodeStats, Engine, Event, Features, HypothesisId, OnDone, Plan, RequestQueue,
    Session, Source, SourceId, StepRow, Stop, Workload,
};
use simdformer_tokenize::Tokenizer;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all windows of a call have in common.
pub(super) struct Task<'t> {
    pub(super) options: &'t TranscribeOptions,
    pub(super) prompt: &'t Prompt,
    pub(super) tokenizer: &'t Tokenizer,
    /// The text before each window, if it is not that of the options.
    pub(super) earlier: Option<&'t [u32]>,
}

/// Writes the features of the next window, `[frames, bins]`, and returns its first frame and its number of frames.
type NextWindow<'n> = &'n mut dyn FnMut(&mut [f32]) -> Result<Option<(usize, usize)>, Error>;

/// Gets the windows, and their numbers, in the order in which they end.
type OnWindow<'o> = &'o mut dyn FnMut(usize, Window) -> ControlFlow<()>;

/// Rows of logits that an alignment computes at a time.
const ALIGNED_ROWS: usize = 16;

/// The engine that decodes windows, and the memory beside its sessions.
#[derive(Clone)]
pub(super) struct WindowDecoder {
    engine: Engine,
    work: Workload,
    /// The most windows at the same time.
    slots: usize,
    /// Floats of the features of a window, and of a frame of them.
    len: usize,
    bins: usize,
    on_done: OnDone,
    /// Those of the calls that have ended, of all clones.
    idle: Arc<Mutex<Vec<Buffers>>>,
}

/// What a call needs beside its session.
struct Buffers {
    /// Planned with the first window, if words get times.
    timer: Option<WordTimer>,
    /// The input of the encoder for one window, `[frames, bins]`.
    features: Vec<f32>,
}

impl WindowDecoder {
    /// Plans nothing yet.
    pub(super) fn new(
        engine: Engine,
        options: &TranscribeOptions,
        prompt: &Prompt,
        extractor: &FeatureExtractor,
    ) -> Self {
        let slots = match options.windows {
            Windows::Sequential => 1,
            Windows::Batched => options.slots,
        };
        let positions = extractor.frames().div_ceil(2);
        // The last token is not an input of the decoder.
        let target = prompt.positions.saturating_sub(1).max(1);
        let mut work = Workload::targets(slots, positions, target).with_search(&options.search);
        work = match options.words {
            // One window at a time fills the rows of a matrix product.
            false => work.with_batch_tokens(positions),
            // A text is aligned in one pass.
            true => {
                let rows = slots * options.search.sequences();
                let work = work.with_batch_tokens(positions.max(target));
                work.with_drafts(ALIGNED_ROWS.saturating_sub(rows))
            }
        };
        let (len, bins) = (extractor.len(), extractor.bins());
        let (on_done, idle) = Default::default();
        let mut new = Self { engine, work, slots, len, bins, on_done, idle };
        new.limit_engine();
        new
    }

    /// All windows of a call are decoded in one session.
    fn limit_engine(&mut self) {
        self.engine.set_sessions(1);
        self.engine.set_slots(self.slots);
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn set_engine(&mut self, engine: Engine) {
        self.engine = engine;
        self.limit_engine();
    }

    pub(super) fn set_cancel(&mut self, cancel: Cancel) {
        self.engine.set_cancel(cancel);
    }

    pub(super) fn set_on_done(&mut self, on_done: OnDone) {
        self.on_done = on_done;
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Buffers>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn plan(&self) -> Result<Plan, simdformer::Error> {
        self.engine.plan_for(&self.work)
    }

    /// Plans the session, if there is none yet.
    pub(super) fn prepare(&self) -> Result<(), simdformer::Error> {
        self.engine.with_session(&self.work, |_| ())
    }

    /// Decodes windows until `next` has no more, or `done` ends the call. Returns the language of the first one; `language` is
    /// that of all windows, unless it is detected.
    pub(super) fn decode_windows(
        &self,
        task: &Task<'_>,
        language: Option<u32>,
        next: NextWindow<'_>,
        done: OnWindow<'_>,
    ) -> Result<Option<u32>, Error> {
        let idle = self.idle().pop();
        let new = || Buffers { timer: None, features: vec![0.0; self.len] };
        let mut buffers = idle.unwrap_or_else(new);
        let done = &mut |number, window| {
            self.on_done.add_one();
            done(number, window)
        };
        let language = self.run_with(&mut buffers, (task, language), next, done);
        self.idle().push(buffers);
        language
    }

    fn run_with(
        &self,
        Buffers { timer, features }: &mut Buffers,
        (task, language): (&Task<'_>, Option<u32>),
        next: NextWindow<'_>,
        done: OnWindow<'_>,
    ) -> Result<Option<u32>, Error> {
        let recorder = Recorder::default();
        let mut queue = WindowQueue {
            task,
            slots: self.slots,
            features,
            bins: self.bins,
            timer: None,
            next,
            done,
            language,
            encoded: 0,
            finished: 0,
            more: true,
            waiting: VecDeque::new(),
            active: Vec::new(),
            ended: Vec::new(),
            recorder: &recorder,
            failed: None,
        };
        let mut record = |_: &Context<'_>, scores: &mut [f32]| {
            recorder.record(scores);
            Ok(())
        };
        let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut record];
        // Without a rule the search can use all threads.
        let draws = task.temperatures().iter().any(|&temperature| temperature > 0.0);
        let mut hooks = Hooks { processors: &mut rules[..usize::from(draws)], ..Hooks::default() };
        // Each request has its own.
        let options = task.search_options(0, &[task.prompt.start]);
        let served = self.engine.with_session(&self.work, |session| {
            let plan = session.plan();
            if task.options.words {
                match timer {
                    Some(timer) if timer.is_of(plan) => (),
                    _ => *timer = Some(WordTimer::new(session.model().config(), plan)?),
                }
                queue.timer = timer.as_mut();
            }
            queue.active.resize_with(plan.limits().sentences, || None);
            Ok(session.serve(&mut queue, &options, &mut hooks)?)
        });
        match (queue.failed, served) {
            (Some(error), _) => Err(error),
            (None, served) => served?.map(|_| queue.language),
        }
    }
}

/// The scores of the row whose token is chosen next, while attempts draw.
#[derive(Default)]
struct Recorder {
    row: RefCell<Vec<f32>>,
    /// Attempts in slots that draw.
    drawing: Cell<usize>,
}

impl Recorder {
    /// A token is chosen right after the rules of its row.
    fn record(&self, scores: &[f32]) {
        if self.drawing.get() > 0 {
            let mut row = self.row.borrow_mut();
            row.clear();
            row.extend_from_slice(scores);
        }
    }
}

/// A window whose features are encoded.
struct EncodedWindow {
    /// What the encoder made of it.
    source: SourceId,
    /// Its number among the windows of the call.
    number: usize,
    /// Its first frame and its number of frames.
    first: usize,
    frames: usize,
    /// The tokens before its text, and the index of the decoder start among them.
    prompt: Vec<u32>,
    start: usize,
    /// That of its language, if it was detected.
    language_probability: Option<f32>,
}

/// An attempt at a window.
struct Attempt {
    window: EncodedWindow,
    /// From 0.
    number: usize,
    options: Arc<SearchOptions>,
    hypothesis: HypothesisId,
    no_speech: Option<f32>,
    /// Of a sample: the log-probabilities of its tokens at temperature 1, and how many they are. A check does not depend on
    /// the temperature.
    drawn: Option<(f64, usize)>,
}

/// The windows of a call.
struct WindowQueue<'w> {
    task: &'w Task<'w>,
    slots: usize,
    features: &'w mut [f32],
    bins: usize,
    timer: Option<&'w mut WordTimer>,
    next: NextWindow<'w>,
    done: OnWindow<'w>,
    /// That of the first window, once it is known.
    language: Option<u32>,
    /// How many windows were encoded, and how many of them are done.
    encoded: usize,
    finished: usize,
    /// Whether `next` may have another one.
    more: bool,
    waiting: VecDeque<Attempt>,
    /// The attempt in each slot.
    active: Vec<Option<Attempt>>,
    /// Attempts that have ended, and the window of one that is the last.
    ended: Vec<(Attempt, Result<Option<Window>, Error>)>,
    recorder: &'w Recorder,
    failed: Option<Error>,
}

impl WindowQueue<'_> {
    /// Reports the windows that are done, begins further attempts at the others, and encodes new ones.
    fn go_on(&mut self, session: &mut Session<'_>) -> Result<ControlFlow<()>, Error> {
        let &Task { options, prompt, tokenizer, .. } = self.task;
        for (attempt, decided) in core::mem::take(&mut self.ended) {
            let Attempt { window, number, no_speech, .. } = attempt;
            let Some(mut decided) = decided? else {
                self.begin(session, window, number + 1, no_speech)?;
                continue;
            };
            if let Some(timer) = &mut self.timer {
                let about = (options, prompt, tokenizer);
                decided.words = timer.words(session, about, (window.source, &decided))?;
            }
            session.release_sentence(window.source)?;
            self.finished += 1;
            if (self.done)(window.number, decided).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        while self.more && self.encoded - self.finished < self.slots {
            match (self.next)(self.features)? {
                Some(frames) => self.encode(session, frames)?,
                None => self.more = false,
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Encodes the features of a window, and begins its first attempt.
    fn encode(
        &mut self,
        session: &mut Session<'_>,
        (first, frames): (usize, usize),
    ) -> Result<(), Error> {
        let &Task { options, prompt, earlier, .. } = self.task;
        let features = Features::new(self.features, self.bins);
        let mut source = [SourceId::default()];
        session.encode_features(&[features], &mut source)?;
        let [source] = source;
        if let Some(timer) = &mut self.timer {
            timer.keep(source, features);
        }
        let detects = self.language.is_none() || options.detect_each_window;
        let detected = match prompt.to_detect().filter(|_| detects) {
            Some(known) => Some(session.language_probability(source, prompt.start, known)?),
            None => None,
        };
        let language = detected.map(|(language, _)| language).or(self.language);
        let language_probability = detected.map(|(_, probability)| probability);
        self.language = self.language.or(language);
        let (prompt, start) = prompt.tokens(earlier, language);
        let number = self.encoded;
        let window =
            EncodedWindow { source, number, first, frames, prompt, start, language_probability };
        self.encoded += 1;
        self.begin(session, window, 0, None)
    }

    /// Begins an attempt at a window. `no_speech` is that of the attempts before it.
    fn begin(
        &mut self,
        session: &mut Session<'_>,
        window: EncodedWindow,
        number: usize,
        no_speech: Option<f32>,
    ) -> Result<(), Error> {
        let (given, positions) = (window.prompt.len(), self.task.prompt.positions);
        if given >= positions {
            let expected = format!("more positions than the {given} tokens of the prompt");
            return Err(Error::invalid_option("max_target_positions", expected, positions));
        }
        let hypothesis = session.start(window.source)?;
        let no_speech = match no_speech {
            None => self.task.no_speech_prob(session, hypothesis, &window)?,
            known => known,
        };
        let options = Arc::new(self.task.search_options(number, &window.prompt));
        let drawn = matches!(options.strategy, Strategy::Sample(_)).then_some((0.0, 0));
        self.waiting.push_back(Attempt { window, number, options, hypothesis, no_speech, drawn });
        Ok(())
    }
}

impl RequestQueue for WindowQueue<'_> {
    fn before_step(
        &mut self,
        session: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        if self.failed.is_some() {
            return ControlFlow::Break(());
        }
        match self.go_on(session) {
            Ok(ControlFlow::Continue(())) if active + self.waiting.len() > 0 => {
                ControlFlow::Continue(())
            }
            Ok(_) => ControlFlow::Break(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        let fill = waiting.iter_mut().zip(&self.waiting);
        fill.map(|(source, Attempt { window, number, drawn, .. })| {
            // The random numbers of a sample depend on the seed, the first frame of the window and the number of the
            // attempt.
            let stream = drawn.map_or(0, |_| (window.first as u64) << 8 | *number as u64);
            *source = Source { prefix: &window.prompt[1..], stream, ..Source::new(&[]) };
        })
        .count()
    }

    fn options(&self, index: usize) -> Option<Arc<SearchOptions>> {
        self.waiting.get(index).map(|attempt| Arc::clone(&attempt.options))
    }

    fn started(&self, index: usize) -> Option<HypothesisId> {
        self.waiting.get(index).map(|attempt| attempt.hypothesis)
    }

    fn admitted(&mut self, slots: &[u32]) {
        for (&slot, attempt) in slots.iter().zip(self.waiting.drain(..slots.len())) {
            let drawing = &self.recorder.drawing;
            drawing.set(drawing.get() + usize::from(attempt.drawn.is_some()));
            self.active[slot as usize] = Some(attempt);
        }
    }

    fn refused(&mut self, error: simdformer::Error) {
        self.waiting.pop_front();
        // No window is lost: the call is this error.
        self.failed.get_or_insert(error.into());
    }

    fn is_cancelled(&self, _: u32) -> bool {
        false
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        match event {
            Event::Token { source, token } => {
                if let Some(Attempt { drawn: Some((sum, count)), .. }) = &mut self.active[source] {
                    let row = self.recorder.row.borrow();
                    match score_targets(&row, row.len(), &[token.id], &mut [0.0]) {
                        Ok(score) => (*sum, *count) = (*sum + score, *count + 1),
                        Err(error) => {
                            self.failed = Some(error.into());
                            return ControlFlow::Break(Stop::All);
                        }
                    }
                }
            }
            Event::Done(done) => {
                if let Some(attempt) = self.active[done.source].take() {
                    let drawing = &self.recorder.drawing;
                    drawing.set(drawing.get() - usize::from(attempt.drawn.is_some()));
                    let best = done.hypotheses().next();
                    let (tokens, score) =
                        best.map_or((&[][..], 0.0), |best| (best.tokens, best.score));
                    let decided = self.task.decide(&attempt, done.finish, tokens, score);
                    self.ended.push((attempt, decided));
                }
            }
            _ => (),
        }
        ControlFlow::Continue(())
    }
}

impl Task<'_> {
    /// The temperatures of the attempts.
    fn temperatures(&self) -> &[f64] {
        match &self.options.temperatures[..] {
            [] => &[0.0],
            temperatures => temperatures,
        }
    }

    /// The options of an attempt: at temperature 0 those of the task, otherwise those of a sample.
    fn search_options(&self, number: usize, prompt: &[u32]) -> SearchOptions {
        let mut options = self.options.search.clone();
        let temperature = self.temperatures()[number];
        if temperature > 0.0 {
            let sample = self.options.sample.clone();
            options.strategy = Strategy::Sample(SampleOptions { temperature, ..sample });
        }
        (options.num_return_sequences, options.scores) = (1, true);
        (options.start, options.timestamps) = (prompt[0], self.prompt.timestamps);
        let (positions, prompt) = (self.prompt.positions, prompt.len());
        match options.max_new_tokens {
            Some(new) => {
                let most = positions.saturating_sub(prompt).max(1);
                (options.max_new_tokens, options.max_length) = (Some(new.min(most)), None);
            }
            None => {
                // The maximum of the checkpoint does not count the prompt.
                let length = options.max_length.unwrap_or(positions).saturating_add(prompt);
                options.max_length = Some(length.min(positions));
            }
        }
        options
    }

    /// The probability of the no-speech token after the decoder start, before any rule. `None` if the checkpoint has no such
    /// token. Feeds `hypothesis` the prompt of the window up to there.
    fn no_speech_prob(
        &self,
        session: &mut Session<'_>,
        hypothesis: HypothesisId,
        window: &EncodedWindow,
    ) -> Result<Option<f32>, Error> {
        let Some(no_speech) = self.prompt.no_speech else { return Ok(None) };
        session.prefill(hypothesis, &window.prompt[..window.start], None)?;
        let token = window.prompt[window.start];
        let row = session.step(&[StepRow::new(hypothesis, token)])?;
        let mut score = [0.0];
        match score_targets(row, row.len(), &[no_speech], &mut score) {
            Ok(_) => Ok(Some(score[0].exp())),
            Err(simdformer::Error::NotFinite { .. }) => Err(not_finite(window.first)),
            Err(error) => Err(error.into()),
        }
    }

    fn compression_ratio(&self, tokens: &[u32]) -> f32 {
        match self.options.compression {
            Compression::Text => {
                let words: Vec<u32> =
                    tokens.iter().copied().filter(|&id| self.is_text(id)).collect();
                compression_ratio(self.tokenizer.decode(&words).trim().as_bytes())
            }
            Compression::Tokens => compression_ratio(&id_bytes(tokens, self.prompt.vocabulary)),
        }
    }

    fn is_text(&self, id: u32) -> bool {
        self.prompt.timestamp(id).is_none()
    }

    /// The window with the text of an attempt, if it passes the checks or is the last one.
    fn decide(
        &self,
        attempt: &Attempt,
        finish: Finish,
        tokens: &[u32],
        score: f32,
    ) -> Result<Option<Window>, Error> {
        let (options, temperatures) = (self.options, self.temperatures());
        let Attempt { window, number, no_speech, drawn, .. } = attempt;
        if finish == Finish::NotFinite {
            return Err(not_finite(window.first));
        }
        let avg_logprob = match (drawn, &attempt.options.strategy) {
            (Some((sum, count)), _) => (sum / (*count).max(1) as f64) as f32,
            (None, Strategy::Greedy) => score / tokens.len().max(1) as f32,
            (None, _) => score, // it is already divided
        };
        let compression_ratio = self.compression_ratio(tokens);
        let above = |found: f32, threshold: Option<f32>| threshold.is_some_and(|t| found > t);
        let improbable = options.logprob_threshold.is_some_and(|t| avg_logprob < t);
        let repeats = above(compression_ratio, options.compression_ratio_threshold);
        let no_speech_prob = no_speech.unwrap_or(0.0);
        let skipped = improbable && above(no_speech_prob, options.no_speech_threshold);
        let failed = (improbable || repeats) && !skipped;
        if failed && number + 1 < temperatures.len() {
            return Ok(None);
        }
        let text = match tokens.split_last() {
            Some((last, before)) if options.search.eos.contains(last) => before,
            _ => tokens,
        };
        let language = self.prompt.language_of(&window.prompt);
        Ok(Some(Window {
            first_frame: window.first,
            frames: window.frames,
            prompt: window.prompt.clone(),
            tokens: text.to_vec(),
            words: Vec::new(),
            finish,
            attempts: number + 1,
            skipped,
            avg_logprob,
            no_speech_prob,
            compression_ratio,
            temperature: temperatures[*number],
            language: language.and_then(|id| self.prompt.name(id)),
            language_probability: window.language_probability,
        }))
    }
}

/// The error of a window that begins with the frame `first`, for which the model's scores are NaN or infinite.
fn not_finite(first: usize) -> Error {
    let operand = format!("window at {:.2} s, scores of the model", seconds_of(first)).into();
    simdformer::Error::NotFinite { index: None, operand, position: None, found: None }.into()
}
