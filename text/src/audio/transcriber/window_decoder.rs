//! Decodes encoded windows: attempts at several temperatures, which run beside each other, their checks, and slots that are
//! filled again as soon as they are free.

use super::error::TranscribeError;
use super::options::{Compression, TranscribeOptions};
use super::prompt::Prompt;
use super::segments::{compression_ratio, id_bytes, seconds_of};
use super::transcription::Window;
use super::word_timestamps::{Loudness, WordTimer};
use crate::Tokenizer;
use core::cell::{Cell, RefCell};
use core::ops::{ControlFlow, Deref, DerefMut};
use simdformer::search::{
    Context, Finish, Hooks, LogitsProcessor, Request, SampleOptions, Search, SearchError,
    SearchLimits, SearchOptions, Strategy, Token, score_targets, words,
};
use simdformer::{
    Cancel, Features, HypothesisId, Limits, ModelRef, Session, SourceId, StepRow, Threads,
};

/// A window whose features are encoded.
#[derive(Clone, Copy)]
pub(super) struct EncodedWindow {
    /// What the encoder made of it.
    pub(super) source: SourceId,
    /// Its number among the windows of the call.
    pub(super) number: usize,
    /// Its first frame and its number of frames.
    pub(super) first: usize,
    pub(super) frames: usize,
    /// Its language, if that of the task is not that of all windows.
    pub(super) language: Option<u32>,
}

/// What all windows of a call have in common.
pub(super) struct Task<'t> {
    pub(super) options: &'t TranscribeOptions,
    pub(super) prompt: &'t Prompt,
    pub(super) tokenizer: &'t Tokenizer,
    /// The tokens before the text, and the index of the decoder start among them.
    pub(super) tokens: &'t [u32],
    pub(super) start: usize,
}

/// A session, and how loud the windows in its slots are.
pub(super) struct WindowSession<'a> {
    session: Session<'a>,
    /// If words get times.
    loudness: Option<Loudness>,
}

impl<'a> WindowSession<'a> {
    /// The session, and how loud the frames are, if words get times.
    pub(super) fn split(&mut self) -> (&mut Session<'a>, Option<&Loudness>) {
        (&mut self.session, self.loudness.as_ref())
    }
}

impl<'a> Deref for WindowSession<'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        &self.session
    }
}

impl<'a> DerefMut for WindowSession<'a> {
    fn deref_mut(&mut self) -> &mut Session<'a> {
        &mut self.session
    }
}

/// Rows of logits that an alignment computes at a time.
const ALIGNED_ROWS: usize = 16;

/// A session and the memory of its search.
pub(super) struct WindowDecoder<'a> {
    session: WindowSession<'a>,
    /// If words get times.
    word_timer: Option<WordTimer>,
    limits: SearchLimits,
    memory: Vec<u32>,
    /// The rows of a step, and the hypotheses of the step before.
    rows: Vec<StepRow>,
    before: Vec<HypothesisId>,
    /// For each slot of the search.
    active: Vec<Option<Active>>,
    /// The scores of a row after the rules.
    row: Vec<f32>,
}

/// An attempt at a window in a slot of the search.
#[derive(Clone, Copy)]
struct Active {
    window: EncodedWindow,
    /// The number of the attempt, from 0.
    number: usize,
    /// Its first hypothesis, which has read the prompt up to its last token.
    root: HypothesisId,
    /// That of the last attempt which computed it.
    no_speech: Option<f32>,
    /// Of a sample: the log-probabilities of its tokens at temperature 1, and how many they are. A check does not depend on
    /// the temperature.
    drawn: Option<(f64, usize)>,
}

/// The text of an attempt.
struct Attempt {
    tokens: Vec<u32>,
    finish: Finish,
    avg_logprob: f32,
    compression_ratio: f32,
}

impl<'a> WindowDecoder<'a> {
    /// The limits of a session for `slots` windows of `positions` encoder positions.
    pub(super) fn limits(
        options: &TranscribeOptions,
        prompt: &Prompt,
        (slots, positions): (usize, usize),
    ) -> Limits {
        // The last token is not an input of the decoder.
        let target = prompt.positions.saturating_sub(1).max(1);
        let mut limits = Limits {
            beams: options.search.sequences(),
            end_tokens: options.search.eos.len().max(1),
            cache: options.cache,
            // One window at a time fills the rows of a matrix product.
            batch_tokens: positions,
            ..Limits::new(slots, positions, target)
        };
        if options.words {
            // A text is aligned in one pass.
            limits.batch_tokens = positions.max(target);
            limits.draft_tokens = ALIGNED_ROWS.saturating_sub(slots * limits.beams);
        }
        limits
    }

    /// Plans for `slots` windows of `positions` encoder positions.
    pub(super) fn new(
        model: &ModelRef<'a>,
        threads: Threads<'a>,
        options: &TranscribeOptions,
        prompt: &Prompt,
        (slots, positions): (usize, usize),
    ) -> Result<Self, TranscribeError> {
        let limits = Self::limits(options, prompt, (slots, positions));
        let beams = limits.beams;
        let mut session = Session::new(model.clone(), limits)?;
        session.set_threads(threads);
        let word_timer = match options.words {
            true => Some(WordTimer::new(model.config(), session.plan())?),
            false => None,
        };
        let loudness = options.words.then(|| Loudness::new(slots, 2 * positions));
        let session = WindowSession { session, loudness };
        let vocabulary = model.config().target_vocab;
        let limits = session.plan().search_limits();
        Ok(Self {
            session,
            word_timer,
            limits,
            memory: vec![0; words(&limits)?],
            rows: Vec::with_capacity(slots * beams),
            before: Vec::with_capacity(slots * beams),
            active: vec![None; slots],
            row: Vec::with_capacity(vocabulary),
        })
    }

    pub(super) fn set_threads(&mut self, threads: Threads<'a>) {
        self.session.set_threads(threads);
    }

    pub(super) fn set_cancel(&mut self, cancel: Cancel) {
        self.session.set_cancel(cancel);
    }

    /// Encodes the features of a window into a free slot.
    pub(super) fn encode(
        session: &mut WindowSession<'a>,
        features: Features<'_>,
    ) -> Result<SourceId, TranscribeError> {
        let mut source = [SourceId::default()];
        session.encode_features(&[features], &mut source)?;
        if let Some(loudness) = &mut session.loudness {
            loudness.keep(source[0], features);
        }
        Ok(source[0])
    }

    /// The session, without windows.
    pub(super) fn cleared(&mut self) -> &mut WindowSession<'a> {
        self.session.clear();
        &mut self.session
    }

    /// Decodes `first`, then windows until `next` has no more and the last one is done. `next` is called while a slot is free, and
    /// encodes a window into it. `done` gets the numbers of the
    /// windows, and the windows, in the order in which they end.
    pub(super) fn run(
        &mut self,
        task: &Task<'_>,
        mut first: Option<EncodedWindow>,
        next: &mut dyn FnMut(
            &mut WindowSession<'a>,
        ) -> Result<Option<EncodedWindow>, TranscribeError>,
        done: &mut dyn FnMut(usize, Window) -> Result<(), TranscribeError>,
    ) -> Result<(), TranscribeError> {
        let Self { session, word_timer, limits, memory, rows, before, active, row } = self;
        active.fill(None);
        before.clear();
        let active = Cell::from_mut(&mut active[..]).as_slice_of_cells();
        let row = RefCell::new(row);
        let attempts: Vec<SearchOptions> =
            (0..task.temperatures().len()).map(|number| task.search_options(number)).collect();
        let about = (task.options, task.prompt, task.tokenizer);
        let mut search = Search::new(&attempts[0], limits, memory)?;
        let mut more = true;
        loop {
            while more || first.is_some() {
                let window = match first.take() {
                    Some(window) => window,
                    None if session.free_sentences() == 0 => break,
                    None => match next(session)? {
                        Some(window) => window,
                        None => {
                            more = false;
                            break;
                        }
                    },
                };
                let (slot, begun) =
                    task.begin(session, &mut search, &attempts, (window, 0), None)?;
                active[slot as usize].set(Some(begun));
            }
            if search.rows().is_empty() {
                // A window that was not decoded would be lost.
                return match active.iter().any(|slot| slot.get().is_some()) {
                    false => Ok(()),
                    true => Err(task.no_room()),
                };
            }
            // The first child of a row continues it; each other child forks it.
            rows.clear();
            for (i, input) in search.rows().iter().enumerate() {
                let parents = &search.rows().parents[..i];
                let hypothesis = match input.parent {
                    None => match active[input.sentence as usize].get() {
                        Some(active) => active.root,
                        None => continue,
                    },
                    Some(parent) if parents.contains(&parent) => {
                        session.fork(before[parent as usize])?
                    }
                    Some(parent) => before[parent as usize],
                };
                rows.push(StepRow { hypothesis, token: input.token });
            }
            let logits = session.step(rows)?;
            if task.begins_at_end() {
                // The rows that feed the decoder start.
                for (i, input) in search.rows().iter().enumerate() {
                    let slot = &active[input.sentence as usize];
                    if let (None, Some(mut active)) = (input.parent, slot.get()) {
                        let vocabulary = limits.vocabulary;
                        let row = &logits[i * vocabulary..][..vocabulary];
                        let found = task.no_speech_prob(row, active.window)?;
                        active.no_speech = found.or(active.no_speech);
                        slot.set(Some(active));
                    }
                }
            }
            advance(&mut search, logits, task, active, &row)?;
            before.clear();
            before.extend(rows.iter().map(|row| row.hypothesis));
            let parents = search.rows().parents;
            for (i, &hypothesis) in (0..).zip(&*before) {
                if !parents.contains(&i) {
                    session.release(hypothesis)?;
                }
            }
            for (slot, entry) in (0..).zip(active) {
                let Some(finish) = search.finish(slot) else { continue };
                let Some(ended) = entry.take() else { continue };
                let Active { window, number, no_speech, .. } = ended;
                let best = search.hypotheses(slot).next();
                let (tokens, score) = best.map_or((&[][..], 0.0), |best| (best.tokens, best.score));
                let avg_logprob = match (ended.drawn, &attempts[number].strategy) {
                    (Some((sum, count)), _) => (sum / count.max(1) as f64) as f32,
                    (None, Strategy::Greedy) => score / tokens.len().max(1) as f32,
                    (None, _) => score, // it is already divided
                };
                let attempt = task.attempt(tokens, finish, avg_logprob);
                search.release(slot)?;
                let Some(mut decided) = task.decide(&ended, attempt)? else {
                    let again = (window, number + 1);
                    let (slot, begun) =
                        task.begin(session, &mut search, &attempts, again, no_speech)?;
                    active[slot as usize].set(Some(begun));
                    continue;
                };
                if let Some(timer) = word_timer.as_mut().filter(|_| task.options.words) {
                    decided.words =
                        timer.words(session.split(), about, (window.source, &decided))?;
                }
                session.release_sentence(window.source)?;
                done(window.number, decided)?;
            }
        }
    }
}

/// Advances the search by the tokens of a step, and adds the log-probabilities of those that are drawn.
fn advance(
    search: &mut Search<'_>,
    logits: &mut [f32],
    task: &Task<'_>,
    active: &[Cell<Option<Active>>],
    row: &RefCell<&mut Vec<f32>>,
) -> Result<(), TranscribeError> {
    let mut timestamps = task.prompt.timestamps;
    let is_timed = timestamps.is_some();
    let mut rules = |context: &Context<'_>, scores: &mut [f32], scratch: &mut [u32]| {
        if let Some(rule) = &mut timestamps {
            rule.process(context, scores, scratch)?;
        }
        let attempt = active[context.sentence as usize].get();
        if attempt.is_some_and(|active| active.drawn.is_some()) {
            let mut row = row.borrow_mut();
            row.clear();
            row.extend_from_slice(scores);
        }
        Ok(())
    };
    let mut failed = Ok(());
    // A token is chosen right after the rules of its row.
    let mut on_token = |slot: u32, token: Token| {
        let slot = &active[slot as usize];
        if let Some(Active { drawn: Some((sum, count)), .. }) = slot.get() {
            let row = row.borrow();
            match score_targets(&row, row.len(), &[token.id], &mut [0.0]) {
                Ok(score) => {
                    let drawn = Some((sum + score, count + 1));
                    slot.set(slot.get().map(|active| Active { drawn, ..active }));
                }
                Err(error) => failed = Err(error),
            }
        }
        ControlFlow::Continue(())
    };
    let draws = active.iter().any(|slot| slot.get().is_some_and(|active| active.drawn.is_some()));
    let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut rules];
    // Without a rule the search can use all threads.
    let processors = if is_timed || draws { &mut rules[..] } else { &mut [] };
    let mut hooks = Hooks { processors, ..Hooks::default() };
    search.advance(logits, &mut hooks, Some(&mut on_token))?;
    Ok(failed?)
}

impl Task<'_> {
    /// The tokens before the text of a window, in its language.
    fn tokens_of(&self, window: EncodedWindow) -> Vec<u32> {
        let mut tokens = self.tokens.to_vec();
        // The language follows the decoder start.
        if let (Some(language), Some(token)) = (window.language, tokens.get_mut(self.start + 1)) {
            *token = language;
        }
        tokens
    }

    /// Whether the decoder start is the last token of the prompt, as in a model of one language.
    fn begins_at_end(&self) -> bool {
        self.start + 1 == self.tokens.len()
    }

    /// The error if a text cannot have a token.
    pub(super) fn no_room(&self) -> TranscribeError {
        let (prompt, positions) = (self.tokens.len(), self.prompt.positions);
        let expected = format!("more positions than the {prompt} tokens of the prompt");
        TranscribeError::setting("max_target_positions", expected, positions)
    }

    /// The temperatures of the attempts.
    fn temperatures(&self) -> &[f64] {
        match &self.options.temperatures[..] {
            [] => &[0.0],
            temperatures => temperatures,
        }
    }

    /// The options of an attempt: at temperature 0 those of the task, otherwise those of a sample.
    fn search_options(&self, number: usize) -> SearchOptions {
        let mut options = self.options.search.clone();
        let temperature = self.temperatures()[number];
        if temperature > 0.0 {
            let sample = self.options.sample.clone();
            options.strategy = Strategy::Sample(SampleOptions { temperature, ..sample });
        }
        (options.num_return_sequences, options.scores) = (1, true);
        options.start = self.tokens[0];
        let (positions, prompt) = (self.prompt.positions, self.tokens.len());
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

    /// Starts an attempt at a window in a slot of the search. The random numbers of a sample depend on the seed, the first
    /// frame of the window and the number of the attempt. `no_speech` is that of the attempts before it.
    fn begin<'o>(
        &self,
        session: &mut Session<'_>,
        search: &mut Search<'o>,
        attempts: &'o [SearchOptions],
        (window, number): (EncodedWindow, usize),
        no_speech: Option<f32>,
    ) -> Result<(u32, Active), TranscribeError> {
        let (root, found) = self.feed_prompt(session, window)?;
        let tokens = self.tokens_of(window);
        let draws = self.temperatures()[number] > 0.0;
        let stream = if draws { (window.first as u64) << 8 | number as u64 } else { 0 };
        let request = Request { prefix: &tokens[1..], stream, ..Request::default() };
        let slot = search.admit_with(&request, &attempts[number])?;
        search.skip_prompt(slot)?;
        let (no_speech, drawn) = (found.or(no_speech), draws.then_some((0.0, 0)));
        Ok((slot, Active { window, number, root, no_speech, drawn }))
    }

    /// Starts a hypothesis and feeds it the prompt without its last token. Returns the probability of no speech if the
    /// decoder start is among them.
    fn feed_prompt(
        &self,
        session: &mut Session<'_>,
        window: EncodedWindow,
    ) -> Result<(HypothesisId, Option<f32>), TranscribeError> {
        let hypothesis = session.start(window.source)?;
        let tokens = self.tokens_of(window);
        let Some((_, fed)) = tokens.split_last() else { return Ok((hypothesis, None)) };
        if self.begins_at_end() {
            session.prefill(hypothesis, fed, None)?;
            return Ok((hypothesis, None));
        }
        let (before, after) = fed.split_at(self.start);
        session.prefill(hypothesis, before, None)?;
        let mut no_speech = None;
        if let Some((&token, after)) = after.split_first() {
            let row = session.step(&[StepRow { hypothesis, token }])?;
            no_speech = self.no_speech_prob(row, window)?;
            session.prefill(hypothesis, after, None)?;
        }
        Ok((hypothesis, no_speech))
    }

    /// The probability of the no-speech token in a row of logits, before any rule. `None` if the checkpoint has no such
    /// token.
    fn no_speech_prob(
        &self,
        row: &[f32],
        window: EncodedWindow,
    ) -> Result<Option<f32>, TranscribeError> {
        let Some(token) = self.prompt.no_speech else { return Ok(None) };
        let mut score = [0.0];
        match score_targets(row, row.len(), &[token], &mut score) {
            Ok(_) => Ok(Some(score[0].exp())),
            Err(SearchError::NotFinite { .. }) => {
                Err(TranscribeError::NotFinite { start: seconds_of(window.first) })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn attempt(&self, tokens: &[u32], finish: Finish, avg_logprob: f32) -> Attempt {
        let eos = &self.options.search.eos;
        let ratio = match self.options.compression {
            Compression::Text => {
                let words: Vec<u32> =
                    tokens.iter().copied().filter(|&id| self.is_text(id)).collect();
                compression_ratio(self.tokenizer.decode(&words).trim().as_bytes())
            }
            Compression::Tokens => compression_ratio(&id_bytes(tokens, self.prompt.vocabulary)),
        };
        let tokens = match tokens.split_last() {
            Some((last, before)) if eos.contains(last) => before,
            _ => tokens,
        };
        Attempt { tokens: tokens.to_vec(), finish, avg_logprob, compression_ratio: ratio }
    }

    fn is_text(&self, id: u32) -> bool {
        self.prompt.timestamp(id).is_none()
    }

    /// The window, if the attempt passes the checks or is the last one.
    fn decide(&self, active: &Active, attempt: Attempt) -> Result<Option<Window>, TranscribeError> {
        let (options, temperatures) = (self.options, self.temperatures());
        let Active { window, number, no_speech, .. } = *active;
        if attempt.finish == Finish::NotFinite {
            return Err(TranscribeError::NotFinite { start: seconds_of(window.first) });
        }
        let above = |found: f32, threshold: Option<f32>| threshold.is_some_and(|t| found > t);
        let improbable = options.logprob_threshold.is_some_and(|t| attempt.avg_logprob < t);
        let repeats = above(attempt.compression_ratio, options.compression_ratio_threshold);
        let no_speech_prob = no_speech.unwrap_or(0.0);
        let skipped = improbable && above(no_speech_prob, options.no_speech_threshold);
        let failed = (improbable || repeats) && !skipped;
        if failed && number + 1 < temperatures.len() {
            return Ok(None);
        }
        let tokens = self.tokens_of(window);
        let language = self.prompt.language_of(&tokens);
        let Attempt { tokens: text, finish, avg_logprob, compression_ratio } = attempt;
        Ok(Some(Window {
            first_frame: window.first,
            frames: window.frames,
            prompt: tokens,
            tokens: text,
            words: Vec::new(),
            finish,
            attempts: number + 1,
            skipped,
            avg_logprob,
            no_speech_prob,
            compression_ratio,
            temperature: temperatures[number],
            language: language.and_then(|id| self.prompt.name(id)),
        }))
    }
}
