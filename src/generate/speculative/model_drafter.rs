//! A drafter that uses another model: the same one with int8 weights, or a smaller one.

use super::draft_length::MOST_ROWS;
use super::drafter::{DraftContext, DraftRequest, Drafter};
use crate::error::Error;
use crate::kv::{HypothesisId, SourceId};
use crate::search::SearchOptions;
use crate::session::{Session, StepRow};
use core::fmt;

/// Drafts with another model of the same vocabulary: a copy of the model with
/// [int8 weights](crate::WeightDtypes), which reads a quarter of the bytes per token, or a smaller model. Where both
/// models agree, the f32 model verifies several tokens in one pass. The output is that of the f32 model, bit for bit.
///
/// The drafter handles as many sentences as its session was planned for, and drafts one token of each in one pass. If
/// `draft_tokens` in the limits of its session is at least one per sentence, it feeds the last two tokens of the target
/// in one pass instead of two. It makes no drafts for sources of features and for sentences that do not fit its
/// session. After construction it does not allocate.
///
/// By default it drafts while at most two sentences are active, because drafts were measured to be faster there
/// (`cargo bench --bench drafts`: with an int8 copy of Transformer-base, f32 is 1.6 times as fast for one sentence on
/// Zen 5; on Zen 4 it is 1.8 times as fast for one and 1.4 times for two). With four sentences one step already shares
/// the reading of the f32 weights, and verifying drafts adds arithmetic without saving any.
/// [`ModelDrafter::at_most`] changes the limit.
///
/// ```
/// use simdformer::search::Hooks;
/// use simdformer::{Event, Limits, Model, ModelDrafter, Quantization, Session, Source, WeightDtypes};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// let int8 = Model::open_with("models/fr-en", WeightDtypes::all(Quantization::W8A8))?;
/// let limits = Limits { draft_tokens: 8, ..Limits::new(1, 32, 48) };
/// let mut session = Session::new(&model, limits)?;
/// let options = session.search_options();
/// let mut drafter = ModelDrafter::new(Session::new(&int8, limits)?, &options, 4);
///
/// let mut tokens = Vec::new();
/// let mut on_event = |event: Event<'_>| {
///     if let Event::Token { token, .. } = event {
///         tokens.push(token.id);
///     }
/// };
/// let (sources, hooks) = ([Source::new(&[6, 11, 0])], &mut Hooks::default());
/// let counts = session.generate_drafted(&sources, &options, hooks, &mut drafter, &mut on_event)?;
/// assert!(counts.steps < tokens.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ModelDrafter<'a> {
    session: Session<'a>,
    /// Maximum number of tokens of a draft.
    most: usize,
    /// Maximum number of active sentences with drafts.
    max_sentences: usize,
    rules: Rules,
    /// One entry for each sentence slot of the session.
    entries: Vec<Entry>,
    /// Number of drafting calls, used as a clock for `used`.
    clock: u64,
}

/// Rules of the search for tokens that it never chooses. All other rules only make some drafts wrong.
struct Rules {
    /// Sorted.
    banned: Vec<u32>,
    /// Sorted.
    ends: Vec<u32>,
    min_new_tokens: usize,
}

impl Rules {
    /// Whether `token` is not allowed after `generated` other tokens.
    fn forbids(&self, generated: usize, token: u32) -> bool {
        self.banned.binary_search(&token).is_ok()
            || generated < self.min_new_tokens && self.ends.binary_search(&token).is_ok()
    }
}

/// A sentence of the drafting session.
struct Entry {
    index: usize,
    source: Vec<u32>,
    /// Tokens fed to its hypothesis.
    fed: Vec<u32>,
    /// `None` after an error.
    handles: Option<(SourceId, HypothesisId)>,
    /// `clock` at its last request.
    used: u64,
}

/// The drafting state of one requested sentence.
#[derive(Clone, Copy)]
struct DraftLane {
    entry: usize,
    hypothesis: HypothesisId,
    /// The tokens to feed: the last `fed` of these two. Of a pair, only the token after the second one is unknown.
    pair: [u32; 2],
    fed: usize,
    /// Number of chosen tokens in the target.
    generated: usize,
    most: usize,
    active: bool,
}

impl DraftLane {
    fn tokens(&self) -> &[u32] {
        &self.pair[self.pair.len() - self.fed..]
    }
}

impl<'a> ModelDrafter<'a> {
    /// A drafter on `session`, which is cleared, for a search with `options`. A draft has at most `most` tokens. Four
    /// is a good value for an int8 copy: each token costs a step of the drafting model, also if it is rejected.
    #[must_use]
    pub fn new(mut session: Session<'a>, options: &SearchOptions, most: usize) -> Self {
        session.clear();
        let limits = session.plan().limits();
        let entry = |_| Entry {
            index: usize::MAX,
            source: Vec::with_capacity(limits.source_tokens),
            fed: Vec::with_capacity(limits.target_tokens),
            handles: None,
            used: 0,
        };
        let entries = (0..limits.sentences).map(entry).collect();
        let single = options.bad_words.iter().filter(|words| words.len() == 1).flatten();
        let mut banned: Vec<u32> = single.chain(&options.suppress).copied().collect();
        let mut ends = options.eos.clone();
        banned.sort_unstable();
        ends.sort_unstable();
        let rules = Rules { banned, ends, min_new_tokens: options.min_new_tokens };
        Self { session, most, max_sentences: 2, rules, entries, clock: 0 }
    }

    /// Drafts while at most `max_sentences` sentences are active, instead of two. The search requests no drafts with
    /// more than four.
    #[must_use]
    pub const fn at_most(mut self, max_sentences: usize) -> Self {
        self.max_sentences = max_sentences;
        self
    }

    /// The entry of this sentence. If there is none, replaces the least recently used entry, unless it was used in this
    /// call.
    fn entry(&mut self, context: &DraftContext<'_>) -> Option<usize> {
        let has = |entry: &Entry| entry.index == context.index && entry.source == context.source;
        if let Some(found) =
            self.entries.iter().position(|entry| entry.handles.is_some() && has(entry))
        {
            return Some(found);
        }
        let (found, entry) = self.entries.iter_mut().enumerate().min_by_key(|(_, p)| p.used)?;
        if entry.used == self.clock {
            return None;
        }
        if let Some((sentence, _)) = entry.handles.take() {
            self.session.release_sentence(sentence).ok()?;
        }
        if context.source.is_empty() || context.source.len() > entry.source.capacity() {
            return None;
        }
        let mut sentence = [SourceId::default()];
        self.session.encode(&[context.source], &mut sentence).ok()?;
        entry.handles = Some((sentence[0], self.session.start(sentence[0]).ok()?));
        entry.index = context.index;
        entry.source.clear();
        entry.source.extend_from_slice(context.source);
        entry.fed.clear();
        Some(found)
    }

    /// Drafts for at most [`MOST_ROWS`] sentences, one token of each per pass.
    fn draft_requests(&mut self, requests: &mut [DraftRequest<'_>]) {
        self.clock += 1;
        let mut lanes = [None; MOST_ROWS];
        let mut pairs_left = self.session.plan().limits().draft_tokens;
        for (request, lane) in requests.iter_mut().zip(&mut lanes) {
            request.found = 0;
            let most = request.draft.len().min(self.most);
            if most > 0 && request.context.active <= self.max_sentences {
                *lane = self.sync(&request.context, most, &mut pairs_left);
            }
        }
        while lanes.iter().flatten().any(|lane| lane.active) {
            if self.draft_token(requests, &mut lanes).is_err() {
                // The tokens drafted so far may be right. The sentences are encoded again at the next request.
                for lane in lanes.iter().flatten().filter(|lane| lane.active) {
                    self.release(lane.entry);
                }
                break;
            }
        }
    }

    /// Releases the sentence of `entry`.
    fn release(&mut self, entry: usize) {
        if let Some((sentence, _)) = self.entries[entry].handles.take() {
            // The session made this handle and has not released it, so the call cannot fail.
            let _ = self.session.release_sentence(sentence);
        }
    }

    /// Feeds the hypothesis of the sentence its target except for the last token. If `pairs_left` is above 0, also
    /// leaves the token before it, and the next pass feeds both.
    fn sync(
        &mut self,
        context: &DraftContext<'_>,
        most: usize,
        pairs_left: &mut usize,
    ) -> Option<DraftLane> {
        let vocabulary = self.session.model().config().target_vocab;
        let target = context.target;
        if target.len() > self.session.plan().limits().target_tokens
            || target.iter().any(|&id| id as usize >= vocabulary)
        {
            return None;
        }
        let entry = self.entry(context)?;
        let Entry { fed, handles, used, .. } = &mut self.entries[entry];
        let (_, hypothesis) = (*handles)?;
        *used = self.clock;
        // Rewind to the first difference from the target. The last token of the target is fed in any case.
        let same = fed.iter().zip(target).take_while(|(a, b)| a == b).count();
        let right = same.min(target.len().saturating_sub(1));
        fed.truncate(right);
        let (&token, new) = target[right..].split_last()?;
        let (before, pair, of_pair) = match new.split_last() {
            Some((&first, before)) if *pairs_left > 0 => {
                *pairs_left -= 1;
                (before, [first, token], 2)
            }
            _ => (new, [token; 2], 1),
        };
        let mut fill = || {
            self.session.rewind(hypothesis, right)?;
            match before {
                [] => Ok(()),
                _ => self.session.prefill(hypothesis, before, None),
            }
        };
        if fill().is_err() {
            self.release(entry);
            return None;
        }
        self.entries[entry].fed.extend_from_slice(&target[right..]);
        let generated = target.len().saturating_sub(context.prompt_len);
        Some(DraftLane { entry, hypothesis, pair, fed: of_pair, generated, most, active: true })
    }

    /// Drafts one more token for each active lane, all in one pass.
    fn draft_token(
        &mut self,
        requests: &mut [DraftRequest<'_>],
        lanes: &mut [Option<DraftLane>; MOST_ROWS],
    ) -> Result<(), Error> {
        let Self { session, rules, entries, .. } = self;
        let longest = session.plan().limits().target_tokens;
        let before = *lanes;
        let mut rows = [StepRow::default(); MOST_ROWS];
        // For each fed token: the number of generated tokens before the token that is chosen after it.
        let mut generated = [0; 2 * MOST_ROWS];
        let (mut count, mut fed) = (0, 0);
        for (lane, request) in before.iter().zip(&*requests) {
            let Some(lane) = lane.as_ref().filter(|lane| lane.active) else { continue };
            let [token, draft @ ..] = lane.tokens() else { continue };
            rows[count] = StepRow { hypothesis: lane.hypothesis, token: *token, draft };
            count += 1;
            generated[fed..][..=draft.len()].fill(lane.generated + request.found);
            fed += 1 + draft.len();
        }
        let banned = |i: usize, id: u32| rules.forbids(generated[i], id);
        let best = session.step_argmax(&rows[..count], &banned)?;
        let mut fed = 0;
        for (lane, request) in lanes.iter_mut().zip(requests) {
            let Some(lane) = lane.as_mut().filter(|lane| lane.active) else { continue };
            fed += lane.tokens().len();
            lane.active = false;
            let next = best[fed - 1];
            if next == u32::MAX {
                continue;
            }
            request.draft[request.found] = next;
            request.found += 1;
            let fed_tokens = &mut entries[lane.entry].fed;
            let ends = rules.ends.binary_search(&next).is_ok();
            if !ends && request.found < lane.most && fed_tokens.len() < longest {
                fed_tokens.push(next);
                lane.pair[1] = next;
                (lane.fed, lane.active) = (1, true);
            }
        }
        Ok(())
    }
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        let mut requests = [DraftRequest { context: *context, draft, found: 0 }];
        self.draft_requests(&mut requests);
        requests[0].found
    }

    fn draft_all(&mut self, requests: &mut [DraftRequest<'_>]) {
        requests.chunks_mut(MOST_ROWS).for_each(|requests| self.draft_requests(requests));
    }
}

impl fmt::Debug for ModelDrafter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDrafter").finish_non_exhaustive()
    }
}
