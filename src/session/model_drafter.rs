//! Another model that guesses: the same one with its weights in bytes, or a smaller one.

use super::drafter::{DraftContext, Drafter};
use super::error::SessionError;
use super::session::Session;
use super::slots::{Row, Sentence};
use super::verify::DraftRow;
use crate::search::SearchOptions;

/// Another model of the same vocabulary guesses what the model of the search will say: its own copy with
/// [weights in bytes](crate::Forms), which reads a quarter of the memory for a token, or a smaller model. Where
/// the two agree, f32 checks several tokens in one pass, and what comes out is f32's, bit for bit.
///
/// It keeps up with as many sentences as its session was planned for; with `draft_tokens` of at least 1 in
/// that session's limits it reads what the search decided in one pass instead of two. Sources of features,
/// and what its session has no room for, are not guessed at. Nothing is allocated once it is made.
///
/// It guesses for one sentence at a time, where it was measured to pay (`cargo bench --bench drafts`: a copy of
/// Transformer-base in bytes makes f32 1.6 times as fast on Zen 5); of several the steps of f32 are shared, and guesses
/// for one after the other cost more than they save. [`ModelDrafter::at_most`] says otherwise.
///
/// ```
/// use simdformer::search::Hooks;
/// use simdformer::{Event, Forms, Limits, Model, ModelDrafter, Session, Source, WeightForm};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// let bytes = Model::open_as("models/fr-en", &Forms::all(WeightForm::Int8))?;
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
    held: Option<(Sentence, Row)>,
    /// When it was last asked.
    used: u64,
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
        Self { session, most, living: 1, rules, places, now: 0 }
    }

    /// Guesses where up to so many sentences live, and not only for the last; the search asks nobody where
    /// more than four do.
    #[must_use]
    pub const fn at_most(mut self, living: usize) -> Self {
        self.living = living;
        self
    }

    /// The place of this sentence: the one that has it, or else the one that was asked the longest ago.
    fn place(&mut self, context: &DraftContext<'_>) -> Option<usize> {
        let has = |place: &Place| place.index == context.index && place.source == context.source;
        if let Some(found) = self.places.iter().position(|place| place.held.is_some() && has(place))
        {
            return Some(found);
        }
        let (found, place) = self.places.iter_mut().enumerate().min_by_key(|(_, p)| p.used)?;
        if let Some((sentence, _)) = place.held.take() {
            self.session.release_sentence(sentence).ok()?;
        }
        if context.source.is_empty() || context.source.len() > place.source.capacity() {
            return None;
        }
        let mut sentence = [Sentence::default()];
        self.session.encode(&[context.source], &mut sentence).ok()?;
        place.held = Some((sentence[0], self.session.start(sentence[0]).ok()?));
        place.index = context.index;
        place.source.clear();
        place.source.extend_from_slice(context.source);
        place.fed.clear();
        Some(found)
    }

    /// Guesses into `draft`, and how many it came to.
    fn guess(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> Option<usize> {
        let vocabulary = self.session.model().config().target_vocab;
        let target = context.target;
        if target.len() > self.session.plan().limits().target_tokens
            || target.iter().any(|&id| id as usize >= vocabulary)
        {
            return None;
        }
        let place = self.place(context)?;
        let (sentence, row) = self.places[place].held?;
        self.now += 1;
        let Self { session, rules, places, now, .. } = self;
        let place = &mut places[place];
        place.used = *now;
        let mut count = 0;
        if speak(session, rules, (row, &mut place.fed), context, draft, &mut count).is_err() {
            // What was said until then may be right; next time it begins anew.
            place.held = None;
            session.release_sentence(sentence).ok()?;
        }
        Some(count)
    }
}

/// Feeds `row` what it lacks of the target and then its own words. `fed` is what it was fed, `count` counts the guesses.
fn speak(
    session: &mut Session<'_>,
    rules: &Rules,
    (row, fed): (Row, &mut Vec<u32>),
    context: &DraftContext<'_>,
    draft: &mut [u32],
    count: &mut usize,
) -> Result<(), SessionError> {
    let limits = session.plan().limits();
    let generated = context.target.len().saturating_sub(context.prompt_len);
    // Back to where the target went another way; its last token is fed in any case.
    let pairs = fed.iter().zip(context.target);
    let same = pairs.take_while(|(a, b)| a == b).count();
    let right = same.min(context.target.len().saturating_sub(1));
    session.rewind(row, right)?;
    fed.truncate(right);
    let new = &context.target[right..];
    let (together, before) = match new.split_at_checked(new.len().saturating_sub(2)) {
        Some((before, last @ [_, _])) if limits.draft_tokens > 0 => (last, before),
        _ => match new.split_last() {
            Some((last, before)) => (core::slice::from_ref(last), before),
            None => return Ok(()),
        },
    };
    if !before.is_empty() {
        session.prefill(row, before, None)?;
    }
    let [first, rest @ ..] = together else { return Ok(()) };
    let (mut token, mut with) = (*first, rest);
    fed.extend_from_slice(new);
    for (place, guess) in (generated..).zip(draft) {
        if fed.len() > limits.target_tokens {
            break;
        }
        let banned = |_: usize, id: u32| rules.forbids(place, id);
        let best = session.step_drafts_best(&[DraftRow { row, token, draft: with }], &banned)?;
        let Some(&next) = best.last().filter(|&&next| next != u32::MAX) else { break };
        *guess = next;
        *count += 1;
        if rules.ends.binary_search(&next).is_ok() {
            break;
        }
        (token, with) = (next, &[]);
        fed.push(next);
    }
    // The last guess has not been read.
    if *count > 0 && fed.len() > context.target.len() {
        fed.pop();
    }
    Ok(())
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        let most = draft.len().min(self.most);
        if most == 0 || context.living > self.living {
            0
        } else {
            self.guess(context, &mut draft[..most]).unwrap_or(0)
        }
    }
}
