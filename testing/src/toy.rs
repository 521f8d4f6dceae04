//! A model without weights, and a loop that runs a search with it.

use core::ops::ControlFlow;
use simdformer::Error;
use simdformer::kernels::Parallelism;
use simdformer::search::*;

/// The state of [`hash`] after `words`.
fn absorb(words: &[u32]) -> u64 {
    let mut h = 0x9E37_79B9_7F4A_7C15u64;
    for &word in words {
        h = absorb_one(h, word);
    }
    h
}

fn absorb_one(h: u64, word: u32) -> u64 {
    let h = (h ^ u64::from(word)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h ^ (h >> 29)
}

fn finish(h: u64) -> u64 {
    h.wrapping_mul(0x94D0_49BB_1331_11EB) ^ (h >> 31)
}

/// Pseudorandom bits that depend on every word.
pub fn hash(words: &[u32]) -> u64 {
    finish(absorb(words))
}

#[derive(Clone, Copy, Debug)]
pub struct Toy {
    pub seed: u32,
    pub vocabulary: usize,
    /// The spread of the logits.
    pub scale: f32,
    /// Added to the logit of token 1, the end token.
    pub end: f32,
    /// The logit of the last token is NaN after a history of at least this length.
    pub nan_from: usize,
}

impl Toy {
    /// The logits after a history: a function of its last three tokens and its length.
    pub fn fill(&self, history: &[u32], logits: &mut [f32]) {
        let tail = &history[history.len().saturating_sub(3)..];
        let mut key = [self.seed, history.len() as u32, 0, 0, 0];
        key[2..2 + tail.len()].copy_from_slice(tail);
        // Tests are not optimized, and this loop takes most of the time of the search tests. So the
        // common part of the hash is computed once, and the loop has no closure.
        let common = absorb(&key);
        for (token, logit) in logits.iter_mut().enumerate() {
            let bits = finish(absorb_one(common, token as u32));
            // The sum of four uniform numbers is close enough to a normal distribution.
            let pairs = (bits & 0xffff_0000_ffff) + ((bits >> 16) & 0xffff_0000_ffff);
            let sum = (pairs & 0xffff_ffff) + (pairs >> 32);
            *logit = self.scale * (sum as f32 / 65536.0 - 2.0) * 1.7;
        }
        logits[1] += self.end;
        if history.len() >= self.nan_from {
            logits[self.vocabulary - 1] = f32::NAN;
        }
    }

    pub fn logits(&self, history: &[u32]) -> Vec<f32> {
        let mut logits = vec![0.0; self.vocabulary];
        self.fill(history, &mut logits);
        logits
    }
}

pub type Result<T> = core::result::Result<T, Error>;

/// The result of one sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub finish: Option<Finish>,
    pub hypotheses: Vec<(Vec<u32>, f32)>,
    pub streamed: Vec<Token>,
    pub steps: usize,
}

pub fn limits(
    options: &SearchOptions,
    sentences: usize,
    target: usize,
    vocabulary: usize,
) -> SearchLimits {
    SearchLimits {
        sentences,
        sequences: options.sequences(),
        max_target_length: target,
        vocabulary,
        end_tokens: options.eos.len(),
        source_tokens: 0,
    }
}

/// Runs all sentences together, each with its own model and request. The histories for the models are
/// rebuilt from `parent` and `token` alone.
pub fn run_search(
    options: &SearchOptions,
    sentences: &[(Toy, Request<'_>)],
    target: usize,
) -> Result<Vec<Outcome>> {
    run_until(options, sentences, target, usize::MAX)
}

/// As [`run_search`], but stops each sentence at its n-th streamed token.
pub fn run_until(
    options: &SearchOptions,
    sentences: &[(Toy, Request<'_>)],
    target: usize,
    stop_after: usize,
) -> Result<Vec<Outcome>> {
    run_on(Parallelism::Serial, options, sentences, target, stop_after)
}

/// As [`run_until`], on these threads.
pub fn run_on(
    threads: Parallelism<'_>,
    options: &SearchOptions,
    sentences: &[(Toy, Request<'_>)],
    target: usize,
    stop_after: usize,
) -> Result<Vec<Outcome>> {
    let vocabulary = sentences.first().map_or(1, |s| s.0.vocabulary);
    // The reference ends a target at its longest length. Here the options do this; the limits do not.
    let set_a_length = options.max_new_tokens.or(options.max_length).is_some();
    let max_length = if set_a_length { options.max_length } else { Some(target) };
    let options = &SearchOptions { max_length, ..options.clone() };
    let limits = limits(options, sentences.len(), target, vocabulary);
    let mut memory = vec![0xDEAD_BEEF; words(&limits)?];
    let mut search = Search::new(options, &limits, &mut memory)?;
    let mut slots = vec![];
    for (_, request) in sentences {
        slots.push(search.admit(request)?);
    }
    let mut streamed = vec![vec![]; sentences.len()];
    let mut steps = vec![0; sentences.len()];
    let mut before: Vec<Vec<u32>> = vec![];
    while !search.rows().is_empty() {
        let mut histories = vec![];
        let mut logits = vec![];
        for row in search.rows().iter() {
            let mut history = row.parent.map_or(vec![], |p| before[p as usize].clone());
            assert_eq!(history.len(), row.position as usize);
            history.push(row.token);
            logits.extend(sentences[row.sentence as usize].0.logits(&history));
            histories.push(history);
        }
        let mut rows: Vec<u32> = search.rows().sentences.to_vec();
        rows.dedup();
        for &s in &rows {
            steps[s as usize] += 1;
        }
        before = histories;
        let mut on_token = |sentence: u32, token: Token| {
            let list = &mut streamed[sentence as usize];
            list.push(token);
            if list.len() < stop_after { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        search.advance_on(threads, &mut logits, &mut Hooks::default(), Some(&mut on_token))?;
    }
    let outcome = |slot: u32| Outcome {
        finish: search.finish(slot),
        hypotheses: search.hypotheses(slot).map(|h| (h.tokens.to_vec(), h.score)).collect(),
        streamed: streamed[slot as usize].clone(),
        steps: steps[slot as usize],
    };
    Ok(slots.into_iter().map(outcome).collect())
}
