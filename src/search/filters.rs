//! Filters of sampling: they restrict the distribution from which a token is sampled.
//!
//! Each filter bans tokens (`-inf`) and does not change the other scores, except the temperature, which divides
//! them. At least `keep` tokens always remain. Masses are compared in f32 as in the reference; the sums are
//! f64. `scratch` has at least two words for each score.

use core::cmp::Ordering;

use super::score_rows::{
    Shift, TopK, argmax, exp, exp_f64, ln_f64, log_sum_exp, log_sum_exp_below, maximum, sum_exp,
};

/// The two halves of the scratch of a filter of `n` scores, the first as f32.
fn halves(scratch: &mut [u32], n: usize) -> (&mut [f32], &mut [u32]) {
    let (first, second) = scratch[..2 * n].split_at_mut(n);
    (bytemuck::cast_slice_mut(first), second)
}

/// The k-th largest score; the smallest one if there are fewer than k; `-inf` if no score remains.
fn kth_largest(scores: &[f32], k: usize, scratch: &mut [u32]) -> f32 {
    let k = k.min(scores.len());
    if k <= 1 {
        return maximum(scores);
    }
    let (first, second) = halves(scratch, scores.len());
    // If k is larger than this part of the row, a selection moves fewer elements than a heap.
    if k > scores.len() / 16 && k > 64 {
        first.copy_from_slice(scores);
        let (_, kth, _) = first.select_nth_unstable_by(k - 1, |&a, &b| by_score(b, a));
        return *kth;
    }
    let mut best = TopK::new(&mut first[..k], &mut second[..k]);
    best.scan(scores, Shift::default(), 0);
    let found = best.sort();
    if found < k { f32::NEG_INFINITY } else { first[k - 1] }
}

/// A total order (NaN included) in which 0 equals -0.
fn by_score(a: f32, b: f32) -> Ordering {
    (a + 0.0).total_cmp(&(b + 0.0))
}

/// Sorts ids by their numbers in ascending order, equal ones by id. A separate function, because each call of a
/// sort with another closure compiles the whole sort again.
fn sort_by_number(ids: &mut [u32], numbers: &[f32]) {
    ids.sort_unstable_by(|&a, &b| {
        by_score(numbers[a as usize], numbers[b as usize]).then(a.cmp(&b))
    });
}

/// Bans scores below `floor` for which `banned` is true.
fn ban_where(scores: &mut [f32], floor: f32, banned: impl Fn(f32) -> bool) {
    for score in scores {
        if *score < floor && banned(*score) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Divides the scores by a temperature: above 1 flattens the distribution, below 1 sharpens it. If the magnitude of the
/// largest score would exceed 1e30, the largest score is subtracted from all scores before the division: the distribution is
/// the same, the largest becomes 0, and no score becomes NaN or `+inf`. `TemperatureLogitsWarper` of transformers.
pub(super) fn divide(temperature: f32, scores: &mut [f32]) {
    /// Far below the largest f32, because beam search adds as many scores as a target has tokens.
    const LARGEST: f32 = 1e30;
    if temperature < 1.0 {
        let max = maximum(scores);
        if max.is_finite() && (max / temperature).abs() > LARGEST {
            for score in scores {
                *score = (*score - max) / temperature;
            }
            return;
        }
    }
    for score in scores {
        *score /= temperature;
    }
}

/// Keeps the most probable of the hundred largest scores while their total entropy is at most a share of the
/// entropy of the hundred, in (0, 1]; always keeps the largest (Potraghloo et al. 2025, top-H decoding). Entropy is the
/// sum of `-p ln p` over the softmax of the hundred; with equal scores the lower id comes first.
/// `TopHLogitsWarper` of transformers.
pub(super) fn keep_top_h(top_h: f64, scores: &mut [f32], scratch: &mut [u32]) {
    const MOST: usize = 100;
    let most = MOST.min(scores.len());
    let (values, ids) = halves(scratch, scores.len());
    let mut best = TopK::new(&mut values[..most], &mut ids[..most]);
    if !best.scan(scores, Shift::default(), 0) {
        return;
    }
    let found = best.sort();
    let values = &values[..found];
    let log_sum = log_sum_exp(values);
    if !(log_sum > f64::NEG_INFINITY) {
        return;
    }
    let term = |score: f32| {
        let log_p = f64::from(score) - log_sum;
        -log_p * exp_f64(log_p)
    };
    let whole: f64 = values.iter().map(|&score| term(score)).sum();
    let most = (whole * top_h) as f32;
    let mut held = 0.0;
    let within = values.iter().take_while(|&&score| {
        held += term(score);
        held as f32 <= most
    });
    let kept = within.count().max(1).min(found);
    scores.fill(f32::NEG_INFINITY);
    for (&id, &score) in ids[..kept].iter().zip(values) {
        scores[id as usize] = score;
    }
}

/// Keeps the k largest scores and all scores equal to the k-th (Fan et al. 2018, section 5.2); 0 counts as 1.
/// `TopKLogitsWarper` of transformers.
pub(super) fn keep_top_k(k: usize, scores: &mut [f32], scratch: &mut [u32]) {
    let kth = kth_largest(scores, k, scratch);
    ban_where(scores, kth, |_| true);
}

/// Bans the least probable tokens whose total mass is at most `1 - p` (Holtzman et al. 2020, nucleus sampling). A `p`
/// above 1 and NaN count as 1. With equal scores, lower ids are banned first. `TopPLogitsWarper` of transformers.
pub(super) fn keep_top_p((p, keep): (f64, usize), scores: &mut [f32], scratch: &mut [u32]) {
    let max = maximum(scores);
    let total = sum_exp(scores, max);
    if !(total > 0.0) {
        return;
    }
    // Clamp to 0: with a negative or NaN mass the loop below would not end.
    let removable = ((1.0 - p) as f32).max(0.0);
    let (probabilities, ids) = halves(scratch, scores.len());
    for (p, &score) in probabilities.iter_mut().zip(scores.iter()) {
        *p = (f64::from(exp(score - max)) / total) as f32;
    }
    // Sort only the most probable tokens: lower the cutoff until all tokens below it can be banned together.
    let mut cutoff = (1.0 / total) as f32;
    let mut tail;
    loop {
        cutoff /= 64.0;
        let below = probabilities.iter().filter(|&&p| p < cutoff);
        tail = below.map(|&p| f64::from(p)).sum::<f64>();
        if tail as f32 <= removable {
            break;
        }
    }
    let mut head = 0;
    let mut removable_count = 0;
    for (id, &p) in (0..).zip(probabilities.iter()) {
        if p >= cutoff && scores[id as usize] > f32::NEG_INFINITY {
            ids[head] = id;
            head += 1;
        }
    }
    // If fewer than `keep` tokens reach the cutoff, sort all tokens.
    if head < keep {
        (head, tail) = (0, 0.0);
        for (id, &score) in (0..).zip(scores.iter()) {
            if score > f32::NEG_INFINITY {
                ids[head] = id;
                head += 1;
            }
        }
        cutoff = 0.0;
    }
    let head = &mut ids[..head];
    sort_by_number(head, scores);
    let mut mass = tail;
    for &id in &*head {
        mass += f64::from(probabilities[id as usize]);
        if mass as f32 > removable {
            break;
        }
        removable_count += 1;
    }
    let removed = removable_count.min(head.len().saturating_sub(keep.max(1)));
    for (score, &p) in scores.iter_mut().zip(probabilities.iter()) {
        if p < cutoff {
            *score = f32::NEG_INFINITY;
        }
    }
    for &id in &head[..removed] {
        scores[id as usize] = f32::NEG_INFINITY;
    }
}

/// Bans tokens whose probability is below a fraction of the largest probability (Nguyen et al. 2024).
/// `MinPLogitsWarper` of transformers.
pub(super) fn keep_min_p((min_p, keep): (f64, usize), scores: &mut [f32], scratch: &mut [u32]) {
    let max = maximum(scores);
    let total = sum_exp(scores, max);
    let floor = kth_largest(scores, keep, scratch);
    let threshold = min_p as f32 * (1.0 / total) as f32;
    ban_where(scores, floor, |score| ((f64::from(exp(score - max)) / total) as f32) < threshold);
}

/// Keeps the tokens whose surprise `-ln p` is closest to the entropy, up to a total mass (Meister et al. 2022,
/// locally typical sampling). Both use natural logarithms. `TypicalLogitsWarper` of transformers.
pub(super) fn keep_typical((mass, keep): (f64, usize), scores: &mut [f32], scratch: &mut [u32]) {
    let log_sum = log_sum_exp(scores);
    if !(log_sum > f64::NEG_INFINITY) {
        return;
    }
    let (distances, ids) = halves(scratch, scores.len());
    let log_probability = |score: f32| (f64::from(score) - log_sum) as f32;
    let entropy = entropy(scores, log_sum) as f32;
    let mut finite = 0;
    for ((id, distance), &score) in (0..).zip(distances.iter_mut()).zip(scores.iter()) {
        *distance = (-log_probability(score) - entropy).abs();
        if score > f32::NEG_INFINITY {
            ids[finite] = id;
            finite += 1;
        }
    }
    let order = &mut ids[..finite];
    sort_by_number(order, distances);
    let (mut reached, mut last) = (0.0, finite.saturating_sub(1));
    for (rank, &id) in order.iter().enumerate() {
        reached += f64::from(exp(log_probability(scores[id as usize])));
        if !((reached as f32) < mass as f32) {
            last = rank;
            break;
        }
    }
    // `last` counts the tokens whose total is below the mass; it is the index of the token that reaches it.
    let threshold = order.get(last).map_or(f32::INFINITY, |&id| distances[id as usize]);
    for &id in order.iter().skip(keep) {
        if distances[id as usize] > threshold {
            scores[id as usize] = f32::NEG_INFINITY;
        }
    }
}

fn entropy(scores: &[f32], log_sum: f64) -> f64 {
    let mut entropy = 0.0;
    for &score in scores {
        if score > f32::NEG_INFINITY {
            let log_p = f64::from(score) - log_sum;
            entropy -= log_p * exp_f64(log_p);
        }
    }
    entropy
}

/// Bans tokens less probable than a cutoff (Hewitt et al. 2022, epsilon sampling).
/// `EpsilonLogitsWarper` of transformers.
pub(super) fn keep_epsilon((cutoff, keep): (f64, usize), scores: &mut [f32], scratch: &mut [u32]) {
    let log_sum = log_sum_exp(scores);
    let floor = kth_largest(scores, keep, scratch);
    ban_where(scores, floor, |score| exp((f64::from(score) - log_sum) as f32) < cutoff as f32);
}

/// Bans tokens less probable than `min(epsilon, sqrt(epsilon) e^-entropy)`, where the entropy uses natural
/// logarithms (Hewitt et al. 2022, eta sampling). `EtaLogitsWarper` of transformers.
pub(super) fn keep_eta((eta, keep): (f64, usize), scores: &mut [f32], scratch: &mut [u32]) {
    let entropy = entropy(scores, log_sum_exp(scores));
    let cutoff = eta.min(eta.sqrt() * exp_f64(-entropy));
    keep_epsilon((cutoff, keep), scores, scratch);
}

/// The most probable token, the first if several are equal, and its log-probability under the softmax of
/// `scores`; `None` if every score is `-inf`.
pub(super) fn most_probable(scores: &[f32]) -> Option<(usize, f32)> {
    let token = argmax(scores)?;
    let score = scores[token];
    Some((token, (f64::from(score) - log_sum_exp_below(scores, score)) as f32))
}

/// Samples from the softmax of `scores` by inversion: returns the first token, in the order of ids, at which
/// the cumulative mass exceeds `uniform` times the total. `None` if every score is `-inf`.
///
/// `scratch` has at least one word per score.
pub(super) fn draw(scores: &[f32], uniform: f64, scratch: &mut [u32]) -> Option<(usize, f32)> {
    let max = maximum(scores);
    if max == f32::NEG_INFINITY {
        return None;
    }
    let weights: &mut [f32] = bytemuck::cast_slice_mut(&mut scratch[..scores.len()]);
    for (weight, &score) in weights.iter_mut().zip(scores) {
        *weight = exp(score - max);
    }
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    let goal = uniform * total;
    let mut mass = 0.0;
    let mut chosen = None;
    for (token, &weight) in weights.iter().enumerate() {
        mass += f64::from(weight);
        if weight > 0.0 {
            chosen = Some(token);
            if mass > goal {
                break;
            }
        }
    }
    chosen.map(|token| {
        let log_p = f64::from(scores[token]) - f64::from(max) - ln_f64(total);
        (token, log_p as f32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: f32 = f32::NEG_INFINITY;

    /// A `top_p` of 1 or more, or NaN, removes nothing.
    #[test]
    fn top_p_ends_whatever_the_mass_is() {
        let given = [1.0, NO, -3.0, 2.0];
        for p in [1.0, 1.5, f64::INFINITY, f64::NAN] {
            let mut scores = given;
            keep_top_p((p, 1), &mut scores, &mut [0; 8]);
            assert_eq!(scores, given, "{p}");
        }
    }

    /// Compared with the definition: ordered by probability, the tokens after those that reach the mass `p` are banned,
    /// but never the first `keep`. Some rows have one token with almost all of the mass.
    #[test]
    fn top_p_keeps_the_nucleus_and_so_many() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let (mut checked, mut kept) = (0, [0; 4]);
        for case in 0..4000 {
            let len = 1 + below(12) as usize;
            let spread = [1.0, 8.0, 60.0][below(3) as usize];
            let mut draw = || match below(8) {
                0 => NO,
                _ => spread * (below(1 << 20) as f32 / (1 << 20) as f32 - 0.5),
            };
            let given: Vec<f32> = (0..len).map(|_| draw()).collect();
            let (p, keep) = ([0.1, 0.5, 0.9, 0.999][below(4) as usize], below(4) as usize);
            let total: f64 = given.iter().map(|&score| f64::from(score).exp()).sum();
            let mut order: Vec<usize> = (0..len).filter(|&i| given[i] > NO).collect();
            order.sort_by(|&a, &b| given[b].total_cmp(&given[a]).then(b.cmp(&a)));
            // Of each token, the mass of those before it.
            let before = order.iter().scan(0.0, |mass, &i| {
                let before = *mass;
                *mass += f64::from(given[i]).exp() / total;
                Some(before)
            });
            let before: Vec<f64> = before.collect();
            if before.iter().any(|mass| (mass - p).abs() < 1e-5) {
                continue;
            }
            let nucleus = before.iter().filter(|&&mass| mass < p).count();
            let count = nucleus.max(keep).min(order.len());
            let mut expected = vec![NO; len];
            order[..count].iter().for_each(|&i| expected[i] = given[i]);
            let mut found = given.clone();
            keep_top_p((p, keep), &mut found, &mut vec![0; 2 * len]);
            assert_eq!(found, expected, "case {case}: {given:?}, p {p}, {keep}");
            checked += 1;
            kept[keep] += usize::from(nucleus < count);
        }
        assert!(checked > 3500 && kept[2] > 200 && kept[3] > 200, "{checked} {kept:?}");
    }

    /// Tokens whose mass is exactly `1 - p` are removed, because the reference compares with `<=`.
    #[test]
    fn top_p_removes_a_mass_of_exactly_the_rest() {
        let mut scores = [0.0; 4];
        keep_top_p((0.75, 1), &mut scores, &mut [0; 8]);
        assert_eq!(scores, [NO, 0.0, 0.0, 0.0]);
    }

    /// A token whose probability is exactly `min_p` times the largest remains, because the reference compares with `<`.
    #[test]
    fn min_p_keeps_a_token_at_the_threshold() {
        let half = -core::f32::consts::LN_2;
        let mut scores = [0.0, half, -3.0];
        keep_min_p((0.5, 1), &mut scores, &mut [0; 6]);
        assert_eq!(scores, [0.0, half, NO]);
    }

    #[test]
    fn a_temperature_makes_no_infinity_and_changes_no_ordinary_bit() {
        for temperature in [1e-45, 1e-38, 1e-30, 0.3, 0.7, 1.0, 1.3, 1e30, f32::MAX] {
            for scale in [f32::MIN_POSITIVE, 1e-3, 1.0, 30.0, 1e9, f32::MAX] {
                for row in [[0.25, -1.0, 0.5, NO], [-0.5, -0.25, -1.0, NO], [0.0; 4]] {
                    let before = row.map(|x| x * scale);
                    let mut scores = before;
                    divide(temperature, &mut scores);
                    let case = (temperature, before, scores);
                    assert!(scores.iter().all(|x| *x < f32::INFINITY), "{case:?}");
                    let plain = before.map(|x| x / temperature);
                    let best = before.iter().fold(NO, |best, x| best.max(*x));
                    let ordinary = temperature >= 1.0 || (best / temperature).abs() <= 1e30;
                    if ordinary {
                        assert_eq!(scores.map(f32::to_bits), plain.map(f32::to_bits), "{case:?}");
                        continue;
                    }
                    for (after, before) in scores.iter().zip(before) {
                        assert!((*after == 0.0) == (before == best), "{case:?}");
                    }
                }
            }
        }
        // Values that were not finite before stay as they are.
        let mut scores = [f32::NAN, f32::INFINITY, 1.0];
        divide(1e-38, &mut scores);
        assert!(scores[0].is_nan() && scores[1] == f32::INFINITY, "{scores:?}");
    }
}
