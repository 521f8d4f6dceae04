//! Beam sampling: samples the continuations of a step without replacement.
//!
//! The probability of a continuation is `e^(score of its beam + score of its token)` divided by the sum of
//! these terms, as in `torch.multinomial` of transformers. One draw inverts the cumulative distribution over
//! all beams, in the order of beams and of ids; a drawn continuation leaves the distribution. Each draw
//! therefore reads only the sums of the beams, part of one row, and that row again for its new sum.

use super::options::SampleOptions;
use super::score_rows::{below_infinity, exp, maximum, sum_exp};
use super::search::Search;
use super::state::Slot;

/// Scores whose mass is summed together while a draw searches for its position.
const STRIDE: usize = 512;

impl Search<'_> {
    /// Samples continuations of the sentence's beams into `candidate`, in the order of the draws. Returns their
    /// number, which is below [`Slot::candidates`] if the distribution has fewer continuations; `None` if a
    /// score is NaN or `+inf`. Drawn scores become `-inf` in `rows`.
    pub(super) fn draw_candidates(
        &mut self,
        slot: Slot<'_>,
        sample: &SampleOptions,
        rows: &mut [f32],
    ) -> Option<usize> {
        let Slot { s, first, width, .. } = slot;
        let vocabulary = self.limits.vocabulary;
        let m = &mut self.memory;
        let (first_row, step) = (m.first_row[s], m.len[s] - m.prompt_len[s]);
        // In the first step all beams share the row at the end of the prompt.
        let beams = if step == 0 { 1 } else { width };
        let (alive, row, score) = (&*m.alive, &*m.row, &m.score[slot.sequences()]);
        let live = || (0..beams).filter(|&b| alive[first + b] == 1);
        let range = |b: usize| {
            let start = (row[first + b] - first_row) as usize * vocabulary;
            start..start + vocabulary
        };
        let (mut best, mut exact_best) = (f32::NEG_INFINITY, f64::NEG_INFINITY);
        for b in live() {
            let scores = &rows[range(b)];
            if !below_infinity(scores) {
                return None;
            }
            let most = maximum(scores);
            best = best.max(most + score[b]);
            exact_best = exact_best.max(f64::from(most) + f64::from(score[b]));
        }
        if best == f32::NEG_INFINITY {
            return Some(0);
        }
        // The sum of two finite f32 scores can overflow in f32, but not in f64.
        let shift = |b: usize| {
            if best < f32::INFINITY {
                best - score[b]
            } else {
                (exact_best - f64::from(score[b])) as f32
            }
        };
        // The masses of the beams, two words each.
        let (masses, _) = self.scratch[..2 * beams].as_chunks_mut::<2>();
        for b in live() {
            masses[b] = words(mass(&rows[range(b)], shift(b)));
        }
        let stream = u64::from(m.stream_low[s]) | u64::from(m.stream_high[s]) << 32;
        let mut count = 0;
        while count < slot.candidates() {
            let total: f64 = live().map(|b| number(masses[b])).sum();
            let goal = sample.draw(stream, count as u32, step) * total;
            // If no beam reaches the goal because of rounding, take the last beam with mass.
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
        Some(count)
    }

    /// Sorts the first `count` candidates by score, best first; with equal scores, the earlier draw comes first.
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

/// `sum e^(x - max)`, added in the same order as in [`place`].
fn mass(scores: &[f32], max: f32) -> f64 {
    scores.chunks(STRIDE).map(|chunk| sum_exp(chunk, max)).sum()
}

/// The first token at which the cumulative mass exceeds `goal`; if there is none, the last token with mass;
/// `None` if no token has mass.
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

/// Stores a mass in two words of scratch.
fn words(mass: f64) -> [u32; 2] {
    let bits = mass.to_bits();
    [bits as u32, (bits >> 32) as u32]
}

fn number([low, high]: [u32; 2]) -> f64 {
    f64::from_bits(u64::from(low) | u64::from(high) << 32)
}
