//! Another model that guesses: the same one with its weights in bytes, or a smaller one.

use super::draft_length::MOST_ROWS;
use super::drafter::{DraftContext, DraftRequest, Drafter};
use super::error::SessionError;
use super::handles::{HypothesisId, SourceId};
use super::session::Session;
use super::verify::DraftRow;
use crate::search::SearchOptions;

/// Another model of the same vocabulary guesses what the model of the search will say: its own copy with
/// [weights in bytes](crate::WeightDtypes), which reads a quarter of the memory for a token, or a smaller model. Where
/// the two agree, f32 checks several tokens in one pass, and what comes out is f32's, bit for bit.
///
/// It keeps up with as many sentences as its session was planned for, and guesses a token of each in one pass; with
/// `draft_tokens` of at least one a sentence in that session's limits it reads what the search decided in one pass
/// instead of two. Sources of features, and what its session has no room for, are not guessed at. Nothing is
/// allocated once it is made.
///
/// It guesses where up to two sentences live, as far as it was measured to pay (`cargo bench --bench drafts`: a copy of
/// Transformer-base in bytes makes f32 1.6 times as fast for one on Zen 5, and on Zen 4 1.8 for one and 1.4 for two); of
/// four the steps of f32 are shared, and to check the guesses is arithmetic that nothing saves. [`ModelDrafter::at_most`]
/// says otherwise.
///
/// ```
/// use simdformer::search::Hooks;
/// use simdformer::{Event, WeightDtypes, Limits, Model, ModelDrafter, Session, Source, WeightDtype};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// let bytes = Model::open_as("models/fr-en", &WeightDtypes::all(WeightDtype::Int8))?;
/// let limits = Limits { draft_tokens: 8, ..Limits::new(1, 32, 48) };
/// let mut session = Session::new(&model, limits)?;
/// let options = session.search_options();
/// let mut drafter = ModelDrafter::new(Session::new(&bytes, limits)?, &options, 4);
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
    /// The most tokens of a draft.
    most: usize,
    /// The most sentences that may live.
    living: usize,
    rules: Rules,
    /// One for each sentence that the session has room for.
    places: Vec<Place>,
    /// Drafts so far.
    now: u64,
}

/// What the search never says; the rest of its rules only makes some guesses wrong.
struct Rules {
    /// In order.
    banned: Vec<u32>,
    /// In order.
    ends: Vec<u32>,
    min_new_tokens: usize,
}

impl Rules {
    /// Whether `token` may not be the one after `generated` others.
    fn forbids(&self, generated: usize, token: u32) -> bool {
        self.banned.binary_search(&token).is_ok()
            || generated < self.min_new_tokens && self.ends.binary_search(&token).is_ok()
    }
}

/// A sentence of the drafting session.
struct Place {
    index: usize,
    source: Vec<u32>,
    /// What its row was fed.
    fed: Vec<u32>,
    /// `None` once something failed.
    held: Option<(SourceId, HypothesisId)>,
    /// When it was last asked.
    used: u64,
}

/// Who guesses for one of the sentences that are asked for.
#[derive(Clone, Copy)]
struct DraftLane {
    place: usize,
    row: HypothesisId,
    /// What to feed: one token, or the last two of the target, of which what follows the first is known.
    pair: [u32; 2],
    fed: usize,
    /// Tokens of the target that were chosen.
    generated: usize,
    most: usize,
    speaks: bool,
}

impl DraftLane {
    fn tokens(&self) -> &[u32] {
        &self.pair[self.pair.len() - self.fed..]
    }
}

impl<'a> ModelDrafter<'a> {
    /// Guesses with `session`, which is cleared, for a search of `options`, at most `most` tokens at a time. Four do
    /// well for a copy in bytes: each costs a step of the drafting model, also where it is wrong.
    #[must_use]
    pub fn new(mut session: Session<'a>, options: &SearchOptions, most: usize) -> Self {
        session.clear();
        let limits = session.plan().limits();
        let place = |_| Place {
            index: usize::MAX,
            source: Vec::with_capacity(limits.source_tokens),
            fed: Vec::with_capacity(limits.target_tokens),
            held: None,
            used: 0,
        };
        let places = (0..limits.sentences).map(place).collect();
        let single = options.bad_words.iter().filter(|words| words.len() == 1).flatten();
        let mut banned: Vec<u32> = single.chain(&options.suppress).copied().collect();
        let mut ends = options.eos.clone();
        banned.sort_unstable();
        ends.sort_unstable();
        let rules = Rules { banned, ends, min_new_tokens: options.min_new_tokens };
        Self { session, most, living: 2, rules, places, now: 0 }
    }

    /// Guesses where up to so many sentences live, and not only for the last two; the search asks nobody where
    /// more than four do.
    #[must_use]
    pub const fn at_most(mut self, living: usize) -> Self {
        self.living = living;
        self
    }

    /// The place of this sentence: the one that has it, or else the one that was asked the longest ago, unless
    /// that was just now.
    fn place(&mut self, context: &DraftContext<'_>) -> Option<usize> {
        let has = |place: &Place| place.index == context.index && place.source == context.source;
        if let Some(found) = self.places.iter().position(|place| place.held.is_some() && has(place))
        {
            return Some(found);
        }
        let (found, place) = self.places.iter_mut().enumerate().min_by_key(|(_, p)| p.used)?;
        if place.used == self.now {
            return None;
        }
        if let Some((sentence, _)) = place.held.take() {
            self.session.release_sentence(sentence).ok()?;
        }
        if context.source.is_empty() || context.source.len() > place.source.capacity() {
            return None;
        }
        let mut sentence = [SourceId::default()];
        self.session.encode(&[context.source], &mut sentence).ok()?;
        place.held = Some((sentence[0], self.session.start(sentence[0]).ok()?));
        place.index = context.index;
        place.source.clear();
        place.source.extend_from_slice(context.source);
        place.fed.clear();
        Some(found)
    }

    /// Guesses for at most [`MOST_ROWS`] sentences, a token of each at a time.
    fn guess(&mut self, asked: &mut [DraftRequest<'_>]) {
        self.now += 1;
        let mut speakers = [None; MOST_ROWS];
        let mut together = self.session.plan().limits().draft_tokens;
        for (asked, speaker) in asked.iter_mut().zip(&mut speakers) {
            asked.found = 0;
            let most = asked.draft.len().min(self.most);
            if most > 0 && asked.context.living <= self.living {
                *speaker = self.listen(&asked.context, most, &mut together);
            }
        }
        while speakers.iter().flatten().any(|speaker| speaker.speaks) {
            if self.speak(asked, &mut speakers).is_err() {
                // What was said until then may be right; next time they begin anew.
                for speaker in speakers.iter().flatten().filter(|speaker| speaker.speaks) {
                    self.forget(speaker.place);
                }
                break;
            }
        }
    }

    /// Gives up the sentence at `place`.
    fn forget(&mut self, place: usize) {
        if let Some((sentence, _)) = self.places[place].held.take() {
            // Its row is the session's own, and lives.
            let _ = self.session.release_sentence(sentence);
        }
    }

    /// Brings the sentence's row up to its target, but for the last token and, where one of those that are fed
    /// `together` is left, the one before it.
    fn listen(
        &mut self,
        context: &DraftContext<'_>,
        most: usize,
        together: &mut usize,
    ) -> Option<DraftLane> {
        let vocabulary = self.session.model().config().target_vocab;
        let target = context.target;
        if target.len() > self.session.plan().limits().target_tokens
            || target.iter().any(|&id| id as usize >= vocabulary)
        {
            return None;
        }
        let place = self.place(context)?;
        let Place { fed, held, used, .. } = &mut self.places[place];
        let (_, row) = (*held)?;
        *used = self.now;
        // Back to where the target went another way; its last token is fed in any case.
        let same = fed.iter().zip(target).take_while(|(a, b)| a == b).count();
        let right = same.min(target.len().saturating_sub(1));
        fed.truncate(right);
        let (&token, new) = target[right..].split_last()?;
        let (before, pair, of_pair) = match new.split_last() {
            Some((&first, before)) if *together > 0 => {
                *together -= 1;
                (before, [first, token], 2)
            }
            _ => (new, [token; 2], 1),
        };
        let mut fill = || {
            self.session.rewind(row, right)?;
            match before {
                [] => Ok(()),
                _ => self.session.prefill(row, before, None),
            }
        };
        if fill().is_err() {
            self.forget(place);
            return None;
        }
        self.places[place].fed.extend_from_slice(&target[right..]);
        let generated = target.len().saturating_sub(context.prompt_len);
        Some(DraftLane { place, row, pair, fed: of_pair, generated, most, speaks: true })
    }

    /// One more token of each that speaks, all in one pass.
    fn speak(
        &mut self,
        asked: &mut [DraftRequest<'_>],
        speakers: &mut [Option<DraftLane>; MOST_ROWS],
    ) -> Result<(), SessionError> {
        let Self { session, rules, places, .. } = self;
        let longest = session.plan().limits().target_tokens;
        let before = *speakers;
        let mut rows = [DraftRow::default(); MOST_ROWS];
        // How many tokens come before the one that is chosen after each that is fed.
        let mut generated = [0; 2 * MOST_ROWS];
        let (mut count, mut fed) = (0, 0);
        for (speaker, asked) in before.iter().zip(&*asked) {
            let Some(speaker) = speaker.as_ref().filter(|speaker| speaker.speaks) else { continue };
            let [token, draft @ ..] = speaker.tokens() else { continue };
            rows[count] = DraftRow { row: speaker.row, token: *token, draft };
            count += 1;
            generated[fed..][..=draft.len()].fill(speaker.generated + asked.found);
            fed += 1 + draft.len();
        }
        let banned = |i: usize, id: u32| rules.forbids(generated[i], id);
        let best = session.step_drafts_argmax(&rows[..count], &banned)?;
        let mut fed = 0;
        for (speaker, asked) in speakers.iter_mut().zip(asked) {
            let Some(speaker) = speaker.as_mut().filter(|speaker| speaker.speaks) else { continue };
            fed += speaker.tokens().len();
            speaker.speaks = false;
            let next = best[fed - 1];
            if next == u32::MAX {
                continue;
            }
            asked.draft[asked.found] = next;
            asked.found += 1;
            let own = &mut places[speaker.place].fed;
            let ends = rules.ends.binary_search(&next).is_ok();
            if !ends && asked.found < speaker.most && own.len() < longest {
                own.push(next);
                speaker.pair[1] = next;
                (speaker.fed, speaker.speaks) = (1, true);
            }
        }
        Ok(())
    }
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        let mut asked = [DraftRequest { context: *context, draft, found: 0 }];
        self.guess(&mut asked);
        asked[0].found
    }

    fn draft_all(&mut self, asked: &mut [DraftRequest<'_>]) {
        asked.chunks_mut(MOST_ROWS).for_each(|asked| self.guess(asked));
    }
}
