//! Beam sampling: the continuations of a step, drawn without replacement.
//!
//! A continuation is as probable as `e^(score of its beam + score of its token)` over the sum of these, as
//! in `torch.multinomial` of transformers. One draw inverts the cumulative distribution over all beams, in
//! the order of beams and of ids; what has been drawn leaves the distribution. So each draw reads only
//! the sums of the beams, part of one row, and that row again for its new sum.

use super::error::SearchError;
use super::logits::{below_infinity, exp, maximum, sum_exp};
use super::options::SampleOptions;
use super::processors::short;
use super::random::uniform;
use super::search::Search;

/// Scores whose mass is added at once while a draw looks for its place.
const STRIDE: usize = 512;

impl Search<'_> {
    /// Draws continuations of the sentence's beams into `candidate`, in the order of the draws; returns how
    /// many: fewer than there is room for where the distribution has no more; `None` if a score is NaN or
    /// `+inf`. What is drawn becomes `-inf` in `rows`.
    pub(super) fn draw_candidates(
        &mut self,
        s: usize,
        sample: &SampleOptions,
        rows: &mut [f32],
    ) -> Result<Option<usize>, SearchError> {
        let (width, vocabulary) = (self.shape.width, self.shape.vocabulary);
        let m = &mut self.memory;
        let (first, step) = (m.first_row[s], m.len[s] - m.prompt_len[s]);
        // All beams start from the one row that the prompt ends in.
        let beams = if step == 0 { 1 } else { width };
        let (alive, row, score) = (&*m.alive, &*m.row, &m.score[s * width..(s + 1) * width]);
        let live = || (0..beams).filter(|&b| alive[s * width + b] == 1);
        let range = |b: usize| {
            let start = (row[s * width + b] - first) as usize * vocabulary;
            start..start + vocabulary
        };
        let (mut best, mut exact_best) = (f32::NEG_INFINITY, f64::NEG_INFINITY);
        for b in live() {
            let scores = &rows[range(b)];
            if !below_infinity(scores) {
                return Ok(None);
            }
            let most = maximum(scores);
            best = best.max(most + score[b]);
            exact_best = exact_best.max(f64::from(most) + f64::from(score[b]));
        }
        if best == f32::NEG_INFINITY {
            return Ok(Some(0));
        }
        // The sum of two finite scores may be infinite in f32, and never is in f64.
        let shift = |b: usize| {
            if best < f32::INFINITY {
                best - score[b]
            } else {
                (exact_best - f64::from(score[b])) as f32
            }
        };
        // The masses of the beams, as words.
        let error = short(2 * beams, self.scratch);
        let masses = self.scratch.get_mut(..2 * beams).ok_or(error)?;
        let (masses, _) = masses.as_chunks_mut::<2>();
        for b in live() {
            masses[b] = words(mass(&rows[range(b)], shift(b)));
        }
        let stream = u64::from(m.stream_low[s]) | u64::from(m.stream_high[s]) << 32;
        let mut count = 0;
        while count < m.candidate.len() {
            let total: f64 = live().map(|b| number(masses[b])).sum();
            let goal = uniform(sample.seed, stream, count as u32, step) * total;
            // The last beam that has mass is taken where rounding leaves none that reaches the goal.
            let (mut before, mut chosen) = (0.0, None);
            for b in live() {
                let own = number(masses[b]);
                if own > 0.0 {
                    chosen = Some((b, goal - before));
                    before += own;
                    if before > goal {
                        break;
                    }
                }
            }
            let Some((b, goal)) = chosen else { break };
            let scores = &mut rows[range(b)];
            let shift = shift(b);
            let Some(token) = place(scores, shift, goal) else { break };
            m.candidate[count] = (b * vocabulary + token) as u32;
            m.candidate_score[count] = scores[token] + score[b];
            count += 1;
            scores[token] = f32::NEG_INFINITY;
            masses[b] = words(mass(scores, shift));
        }
        Ok(Some(count))
    }

    /// The first `count` candidates by score, best first; of equal ones the one that was drawn first.
    pub(super) fn rank_candidates(&mut self, count: usize) {
        let m = &mut self.memory;
        for last in 1..count {
            let mut at = last;
            while at > 0 && m.candidate_score[at] > m.candidate_score[at - 1] {
                m.candidate_score.swap(at, at - 1);
                m.candidate.swap(at, at - 1);
                at -= 1;
            }
        }
    }
}

/// `sum e^(x - max)`, the way [`place`] adds it.
fn mass(scores: &[f32], max: f32) -> f64 {
    scores.chunks(STRIDE).map(|chunk| sum_exp(chunk, max)).sum()
}

/// The first token at which the cumulative mass exceeds `goal`, or the last that has any; `None` where none
/// has.
fn place(scores: &[f32], max: f32, goal: f64) -> Option<usize> {
    let (mut before, mut found) = (0.0, None);
    for (chunk, start) in scores.chunks(STRIDE).zip((0..).step_by(STRIDE)) {
        let own = sum_exp(chunk, max);
        if own > 0.0 {
            found = Some((chunk, start, before));
            before += own;
            if before > goal {
                break;
            }
        }
    }
    let (chunk, start, mut before) = found?;
    let mut last = None;
    for (token, score) in (start..).zip(chunk) {
        let own = f64::from(exp(score - max));
        if own > 0.0 {
            last = Some(token);
            before += own;
            if before > goal {
                break;
            }
        }
    }
    last
}

/// A mass as two words of scratch.
fn words(mass: f64) -> [u32; 2] {
    let bits = mass.to_bits();
    [bits as u32, (bits >> 32) as u32]
}

fn number([low, high]: [u32; 2]) -> f64 {
    f64::from_bits(u64::from(low) | u64::from(high) << 32)
}
