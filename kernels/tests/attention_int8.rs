//! Int8 attention compared with a naive integer oracle bit for bit on every instruction set, and with the f64 oracle within
//! its bound, in strided memory that holds NaN wherever a query may not read.
use crate::support::batch::Batch;
use crate::support::batches::{batches, head_sizes, pairs_of_lengths};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionPrecision, AttentionWeights, Bias, CacheMut,
    CacheShape, CachedSequence, Error, Exec, Expected, FullyMasked, Heads, HeadsMut, Isa,
    Parallelism, Qkv, Sequence, attention, attention_cached, reference,
};

/// Keys of a block.
const BLOCK: usize = 64;
/// The largest weight is below `2^LOG_WEIGHT`.
const LOG_WEIGHT: f32 = 8.0 - 1.0 / 128.0;
/// `2^(x - 1) / x` for `x` in `1..2`.
const RATIO: [f32; 4] = [1.775_614_7, -1.377_307_6, 0.707_475_83, -0.106_445_7];

/// Every set of this machine, also without its int8 instructions.
fn forms(isas: &[Isa]) -> impl Iterator<Item = Isa> {
    isas.iter().flat_map(|isa| [*isa, isa.without_dot_products()])
}

fn in_int8(options: AttentionOptions<'_>) -> AttentionOptions<'_> {
    AttentionOptions { precision: AttentionPrecision::Int8, ..options }
}

/// Int8 attention with a scratch of exactly the documented length, which holds poison.
fn attend(batch: &Batch, isa: Isa, parallelism: Parallelism<'_>) -> Tensor {
    let mut out = Tensor::new(batch.query.shape, batch.out_layout);
    let (heads, kv_heads) = (batch.heads(), batch.kv_heads());
    let options = in_int8(batch.options());
    let floats = options.scratch(isa, &batch.sequences, heads, kv_heads, batch.head_dim());
    let mut scratch = poisoned(floats.expect("small"));
    let (exec, to) = (Exec::new(isa, parallelism), out.view_mut().into());
    attention(exec, batch.qkv(), &batch.sequences, &options, to, &mut scratch).expect("a fit");
    out
}

/// The scale of a row or a column, 0 for zeros, NaN if an element is not finite; and its integers.
fn quantize(x: &[f32]) -> (f32, Vec<i32>) {
    let finite = x.iter().all(|x| x.is_finite());
    let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    if !finite {
        return (f32::NAN, vec![0; x.len()]);
    }
    if most < 1e-30 {
        return (0.0, vec![0; x.len()]);
    }
    let integer = |x: &f32| (x * (127.0 / most)).round_ties_even() as i32;
    (most / 127.0, x.iter().map(integer).collect())
}

/// Keys, less their center, and values of one head of a sequence.
struct Head {
    keys: Vec<(f32, Vec<i32>)>,
    /// For each block, the scales of the columns and the integers of each column.
    values: Vec<Vec<(f32, Vec<i32>)>>,
    center: Vec<f32>,
}

impl Head {
    fn new(batch: &Batch, sequence: &Sequence, kv_head: usize) -> Self {
        let (n, head_dim) = (sequence.key_len, batch.head_dim());
        let key = |j: usize| batch.key.row(sequence.key_start + j, kv_head);
        let value = |j: usize| batch.value.row(sequence.key_start + j, kv_head);
        let mut center = vec![0.0f32; head_dim];
        if !batch.causal && n > 0 {
            let step = (n / 64).max(1);
            let share = 1.0 / n.div_ceil(step) as f32;
            for j in (0..n).step_by(step) {
                for (mean, x) in center.iter_mut().zip(key(j)) {
                    *mean += x * share;
                }
            }
        }
        let centered = |j: usize| -> Vec<f32> {
            key(j).iter().zip(&center).map(|(x, mean)| x - mean).collect()
        };
        let keys = (0..n).map(|j| quantize(&centered(j))).collect();
        let blocks = (0..n).step_by(BLOCK).map(|first| {
            let rows = first..n.min(first + BLOCK);
            let column = |c: usize| -> Vec<f32> { rows.clone().map(|j| value(j)[c]).collect() };
            (0..head_dim).map(|c| quantize(&column(c))).collect()
        });
        let values = blocks.collect();
        Self { keys, values, center }
    }
}

/// `2^n`.
fn power(n: f32) -> f32 {
    f32::exp2(n.max(-126.0))
}

/// The weight of a score as two factors.
fn weight(score: f32, factor: f32, offset: f32) -> (f32, f32) {
    let bits = score.mul_add(factor * 8_388_608.0, offset);
    let bits = if bits > 87.0 * 8_388_608.0 { bits } else { 87.0 * 8_388_608.0 };
    let bits = bits as u32;
    let mantissa = f32::from_bits(bits & 0x7f_ffff | 0x3f80_0000);
    let [c0, c1, c2, c3] = RATIO;
    let ratio = c3.mul_add(mantissa, c2).mul_add(mantissa, c1).mul_add(mantissa, c0);
    (f32::from_bits(bits), ratio)
}

/// The output of a query that sees the first `seen` keys.
fn oracle(
    batch: &Batch,
    sequence: &Sequence,
    head: &Head,
    q: &[f32],
    kv_head: usize,
    seen: usize,
) -> (Vec<f32>, usize) {
    let head_dim = batch.head_dim();
    let (scale, mut query) = quantize(q);
    let scale_of_scores = batch.scale * std::f32::consts::LOG2_E;
    let factor = scale * scale_of_scores.abs();
    if scale_of_scores.is_sign_negative() {
        query.iter_mut().for_each(|x| *x = -*x);
    }
    let mut out = vec![0.0f32; head_dim];
    let (mut running, mut total) = (-1e30f32, 0.0f32);
    let mut repeated = 0;
    if factor.is_nan() || head.keys[..seen].iter().any(|(scale, _)| scale.is_nan()) {
        return (vec![f32::NAN; head_dim], 0);
    }
    for first in (0..seen).step_by(BLOCK) {
        let n = (seen - first).min(BLOCK);
        let scores: Vec<f32> = (first..first + n)
            .map(|j| {
                let (scale, key) = &head.keys[j];
                let sum: i32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                sum as f32 * scale
            })
            .collect();
        let best = scores.iter().fold(f32::NEG_INFINITY, |most, &x| most.max(x));
        let x = best * factor;
        let above = x.abs().mul_add(1.0 / 4_194_304.0, x + 0.5).round_ties_even();
        let maximum = if x.abs() < 4_194_304.0 { above } else { f32::NAN };
        let offset = (127.0 + LOG_WEIGHT - maximum) * 8_388_608.0;
        let new = if running > maximum { running } else { maximum };
        let (before, after) = (power(running - new), power(maximum - new));
        running = new;
        total = total.mul_add(before, maximum * 0.0);
        out.iter_mut().for_each(|x| *x *= before);
        if batch.causal && n < BLOCK {
            // In f32.
            let mut counted = 0.0f32;
            for (j, &score) in scores.iter().enumerate() {
                let (float, ratio) = weight(score, factor, offset);
                counted += float * ratio;
                let value = batch.value.row(sequence.key_start + first + j, kv_head);
                for (out, x) in out.iter_mut().zip(value) {
                    *out = (float * ratio * after).mul_add(*x, *out);
                }
            }
            total = counted.mul_add(after, total);
            continue;
        }
        let mut weights = Vec::new();
        let mut exact = [0.0f32; 2];
        for (j, &score) in scores.iter().enumerate() {
            let (float, ratio) = weight(score, factor, offset);
            exact[j % 2] = float.mul_add(ratio, exact[j % 2]);
            weights.push((float.mul_add(ratio, 8_388_608.0) - 8_388_608.0) as i32);
        }
        // The hidden keys of the last group of four have the smallest weight.
        for j in n..n.next_multiple_of(4) {
            let (float, ratio) = weight(f32::NEG_INFINITY, factor, offset);
            exact[j % 2] = float.mul_add(ratio, exact[j % 2]);
        }
        let exact = exact[0] + exact[1];
        let mut counted = weights.iter().sum::<i32>() as f32;
        let loss = (counted - exact).abs() * after;
        let mut low = None;
        if exact.mul_add(after, total) * (1.0 / 128.0) < loss && counted > 0.5 {
            repeated += 1;
            let wide = scores.iter().map(|&score| {
                let (float, ratio) = weight(score, factor, offset);
                ((float * 256.0).mul_add(ratio, 12_582_912.0) - 12_582_912.0) as i32
            });
            let wide: Vec<i32> = wide.collect();
            weights = wide.iter().map(|x| x >> 8).collect();
            let rest: Vec<i32> = wide.iter().map(|x| x & 255).collect();
            counted = (rest.iter().sum::<i32>() as f32)
                .mul_add(1.0 / 256.0, weights.iter().sum::<i32>() as f32);
            low = Some(rest);
        }
        let mut add = |weights: &[i32], after: f32| {
            for (out, (scale, column)) in out.iter_mut().zip(&head.values[first / BLOCK]) {
                let sum: i32 = weights.iter().zip(column).map(|(w, v)| w * v).sum();
                *out = (sum as f32 * after).mul_add(*scale, *out);
            }
        };
        add(&weights, after);
        if let Some(low) = low {
            add(&low, after * (1.0 / 256.0));
        }
        total = counted.mul_add(after, total);
    }
    let inverse = 1.0 / total;
    (out.into_iter().map(|x| x * inverse).collect(), repeated)
}

/// The mean of the values of a sequence, or zeros.
fn fully_masked(batch: &Batch, sequence: &Sequence, kv_head: usize) -> Vec<f32> {
    let mut out = vec![0.0f32; batch.head_dim()];
    if batch.fully_masked == FullyMasked::Uniform {
        for j in 0..sequence.padded_len {
            let row = batch.value.row(sequence.key_start + j, kv_head);
            out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
        }
        out.iter_mut().for_each(|x| *x /= sequence.padded_len.max(1) as f32);
    }
    out
}

/// Checks every form of `isas` against the oracle, and the f64 oracle if `bounded`. Returns how many blocks were computed
/// with weights of two bytes.
fn check_on(isas: &[Isa], batch: &Batch, bounded: bool, what: &str) -> usize {
    let mut expected = Tensor::new(batch.query.shape, batch.out_layout);
    let group = batch.heads() / batch.kv_heads().max(1);
    let mut owned = vec![false; batch.query.shape[0]];
    let mut repeated = 0;
    for sequence in &batch.sequences {
        owned[sequence.query_start..][..sequence.query_len].fill(true);
        for kv_head in 0..batch.kv_heads() {
            let head = Head::new(batch, sequence, kv_head);
            for (i, h) in (0..sequence.query_len)
                .flat_map(|i| (0..group).map(move |member| (i, kv_head * group + member)))
            {
                let seen = reference::attention::visible(*sequence, batch.causal, i);
                let token = sequence.query_start + i;
                let row = if seen == 0 {
                    fully_masked(batch, sequence, kv_head)
                } else {
                    let q = batch.query.row(token, h);
                    let (row, blocks) = oracle(batch, sequence, &head, q, kv_head, seen);
                    repeated += blocks;
                    row
                };
                if bounded && seen > 0 {
                    check_bound(batch, sequence, &head, (i, h, kv_head), &row, what);
                }
                expected.row_mut(token, h).copy_from_slice(&row);
            }
        }
    }
    for isa in forms(isas) {
        let found = attend(batch, isa, SERIAL);
        for (token, h) in (0..owned.len()).flat_map(|t| (0..batch.heads()).map(move |h| (t, h))) {
            if !owned[token] {
                continue;
            }
            let (found, expected) = (found.row(token, h), expected.row(token, h));
            let same =
                |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(
                found.iter().zip(expected).all(same),
                "{isa:?}, {what}: token {token}, head {h}: {found:?}, expected {expected:?}"
            );
        }
        found.check_untouched(|token| owned[token]);
    }
    repeated
}

/// The documented bound of one output row.
fn check_bound(
    batch: &Batch,
    sequence: &Sequence,
    head: &Head,
    (i, h, kv_head): (usize, usize, usize),
    row: &[f32],
    what: &str,
) {
    let seen = reference::attention::visible(*sequence, batch.causal, i);
    let q: Vec<f64> =
        batch.query.row(sequence.query_start + i, h).iter().map(|&x| x.into()).collect();
    let key = |j: usize| batch.key.row(sequence.key_start + j, kv_head);
    let value = |j: usize| batch.value.row(sequence.key_start + j, kv_head);
    let scale = f64::from(batch.scale.abs());
    let most_q = q.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let sum_q: f64 = q.iter().map(|x| x.abs()).sum();
    let (mut scores, mut shift) = (Vec::new(), 0.0f64);
    for j in 0..seen {
        let dot: f64 = q.iter().zip(key(j)).map(|(q, &k)| q * f64::from(k)).sum();
        scores.push(f64::from(batch.scale) * dot);
        let centered = key(j).iter().zip(&head.center).map(|(k, m)| f64::from((k - m).abs()));
        let (sum_k, most_k) = centered.fold((0.0, 0.0f64), |(sum, most), x| (sum + x, most.max(x)));
        let step = 0.51 / 127.0;
        let d = q.len() as f64;
        let of = scale * step * (most_k * sum_q + most_q * sum_k + step * d * most_q * most_k);
        shift = shift.max(of + 1e-6 * scale * d * most_q * most_k);
    }
    let best = scores.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x));
    let weights: Vec<f64> = scores.iter().map(|x| (x - best).exp()).collect();
    let total: f64 = weights.iter().sum();
    let growth = shift.exp() * (1.0 + 8e-4);
    let (mut rounding, mut step) = (0.0, 0.0f64);
    for block in weights.chunks(BLOCK) {
        if batch.causal && block.len() < BLOCK {
            continue;
        }
        let most = block.iter().fold(0.0f64, |most, &x| most.max(x));
        rounding += block.len() as f64 * 0.5 / 254.6 * 2.0 * growth * most;
    }
    for columns in &head.values {
        step = columns.iter().fold(step, |step, (scale, _)| step.max(0.51 * f64::from(*scale)));
    }
    let most_v = (0..seen).flat_map(value).fold(0.0f64, |most, &v| most.max(f64::from(v).abs()));
    let relative = 2.0 * (growth - 1.0 + rounding / total);
    let bound = relative * most_v + step + 1e-6 * most_v;
    for (c, &found) in row.iter().enumerate() {
        let exact: f64 =
            (0..seen).map(|j| weights[j] * f64::from(value(j)[c])).sum::<f64>() / total;
        assert!(
            (f64::from(found) - exact).abs() <= bound,
            "{what}: query {i}, head {h}, column {c}: {found}, exactly {exact}, bound {bound}"
        );
    }
}

#[test]
fn every_head_size_up_to_70_and_some_beyond() {
    for (head_dim, causal) in head_sizes() {
        let lens = [(7, 21, 2), (3, 3, 0), (1, 40, 0), (35, 150, 0)];
        let mut batch = Batch::new(&lens, [2, 2, head_dim], [1, 2, 0], head_dim as u64);
        batch.causal = causal;
        batch.out_layout = head_dim % 3;
        let isas = isas_of(head_dim + usize::from(causal), 4);
        check_on(&isas, &batch, true, &format!("head size {head_dim}, causal {causal}"));
    }
}

#[test]
fn every_pair_of_lengths() {
    let lengths = [0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 128, 129, 200];
    for ([i, j], [queries, keys], causal) in pairs_of_lengths(&lengths) {
        let mut batch =
            Batch::new(&[(queries, keys, 3)], [2, 1, 20], [0, 1, 2], (i * 31 + j) as u64);
        batch.causal = causal;
        batch.fully_masked = if i % 2 == 0 { FullyMasked::Uniform } else { FullyMasked::Zeros };
        if batch.fully_masked == FullyMasked::Uniform {
            batch.value.fill(keys..keys + 3, || 0.25);
        }
        let what = format!("{queries} queries, {keys} keys, causal {causal}");
        check_on(&isas_of(i + j, 4), &batch, true, &what);
    }
}

/// Lengths, with the edges of vectors and key blocks among them.
fn length() -> impl Strategy<Value = usize> + Clone {
    let edges = vec![31usize, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256];
    prop_oneof![6 => 0usize..=20, 3 => prop::sample::select(edges), 1 => 0usize..=300]
}

proptest! {
    #![proptest_config(property(48))]

    #[test]
    fn any_batch_is_that_of_the_oracle(
        (mut batch, seed) in batches(length(), &[1, 2, 3, 5], cases(300_000, 2_000_000)),
        out_layout in 0usize..=2,
    ) {
        batch.bias = None;
        batch.out_layout = out_layout;
        // A bias that was removed has left NaN in keys that it had hidden.
        check_on(&isas_of(seed as usize % 64, 4), &batch, false, "any batch");
    }
}

#[test]
fn no_batch_and_no_threads_change_a_bit() {
    let lens = [(70, 130, 0), (1, 64, 3), (33, 7, 0), (0, 9, 0), (129, 129, 1), (5, 0, 2)];
    for (causal, heads) in [(false, [4, 2, 24]), (true, [3, 1, 40]), (false, [16, 16, 8])] {
        let mut batch = Batch::new(&lens, heads, [1, 2, 0], 5);
        batch.causal = causal;
        check_on(&all_isas(), &batch, true, "several sequences");
        for isa in all_isas() {
            let serial = attend(&batch, isa, SERIAL);
            for crew in crews_of(isa, 0) {
                let name = format!("{isa} on {crew:?}");
                let found = crew.with_parallelism(|parallelism| attend(&batch, isa, parallelism));
                assert_eq!(difference(&serial.dense(), &found.dense()), None, "{name}");
            }
            for sequence in &batch.sequences {
                let alone = Batch { sequences: vec![*sequence], ..batch.clone() };
                let found = attend(&alone, isa, SERIAL);
                for token in sequence.query_start..sequence.query_start + sequence.query_len {
                    for head in 0..batch.heads() {
                        let rows = (serial.row(token, head), found.row(token, head));
                        assert_eq!(difference(rows.0, rows.1), None, "{isa}: {sequence:?} alone");
                    }
                }
            }
        }
    }
}

/// A key or a value that is not finite reaches the queries that see it, and no other.
#[test]
fn nan_reaches_only_queries_that_see_it() {
    for (at, what) in [(70, f32::NAN), (130, f32::INFINITY), (0, f32::NEG_INFINITY)] {
        for (in_key, causal) in [(true, true), (false, true), (true, false), (false, false)] {
            let mut batch = Batch::new(&[(150, 150, 0)], [2, 2, 24], [0, 0, 0], 9);
            batch.causal = causal;
            let tensor = if in_key { &mut batch.key } else { &mut batch.value };
            tensor.row_mut(at, 1)[3] = what;
            check_on(&all_isas(), &batch, false, &format!("{what} at {at}, key {in_key}"));
            let out = attend(&batch, Isa::best(), SERIAL);
            for (i, head) in (0..150).flat_map(|i| [(i, 0), (i, 1)]) {
                let sees = head == 1 && (i >= at || !causal);
                let row = out.row(i, head);
                assert_eq!(row[3].is_nan() || row[3].is_infinite(), sees, "query {i}");
                assert_eq!(row[4].is_nan(), sees && in_key, "query {i}");
            }
        }
    }
}

/// A query that is not finite makes its row NaN, also with keys so large that a garbage integer of the query would make
/// every score minus infinity, which hides a key.
#[test]
fn a_query_that_is_not_finite_makes_its_row_nan() {
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut batch = Batch::new(&[(34, 17, 0)], [2, 2, 26], [0, 0, 0], 3);
        batch.causal = true;
        batch.key.data.iter_mut().for_each(|key| *key *= 1e37);
        for (token, head) in (0..34).flat_map(|token| [(token, 0), (token, 1)]) {
            batch.query.row_mut(token, head)[token % 26] = x;
        }
        check_on(&all_isas(), &batch, false, &format!("queries of {x}"));
    }
}

/// Queries and keys of any size: zeros, tiny and huge ones, scores beyond the range of f32, and negative scales.
#[test]
fn any_magnitude() {
    for causal in [false, true] {
        for (of_query, of_key, scale) in [
            (0.0, 1.0, 1.0),
            (1.0, 0.0, -1.0),
            (1e-31, 1.0, 1.0),
            (1e-20, 1e-20, 1e30),
            (30.0, 30.0, -0.5),
            (1e3, 1e3, 1.0),
            (1e5, 1e4, 1.0),
            (1e20, 1e20, 1.0),
            (1e37, 1e37, 1.0),
            (1.0, 1.0, f32::INFINITY),
            (1.0, 1.0, f32::NAN),
            (1.0, 1.0, 0.0),
        ] {
            let mut batch = Batch::new(&[(40, 140, 0)], [1, 1, 16], [0, 0, 0], 3);
            (batch.causal, batch.scale) = (causal, scale);
            batch.query.data.iter_mut().for_each(|x| *x *= of_query);
            batch.key.data.iter_mut().for_each(|x| *x *= of_key);
            check_on(&all_isas(), &batch, false, &format!("{of_query}, {of_key}, {scale}"));
        }
    }
}

/// Visible keys whose scores are all minus infinity are not hidden keys: the row is NaN, as documented.
#[test]
fn scores_below_the_range_of_f32_make_a_row_nan() {
    for causal in [false, true] {
        for keys in [2, 64, 100] {
            let mut batch = Batch::new(&[(2, keys, 0)], [1, 1, 16], [0, 0, 0], 3);
            (batch.causal, batch.scale) = (causal, 1.0);
            batch.query.fill(0..2, || 1e37);
            batch.key.fill(0..keys, || -1e37);
            // Not in the first block: the others count, too.
            batch.key.fill(64.min(keys)..keys, || 0.0);
            check_on(&all_isas(), &batch, false, &format!("{keys} keys"));
            if causal {
                let out = attend(&batch, Isa::best(), SERIAL).dense();
                assert!(out.iter().all(|x| x.is_nan()), "{keys} keys: {out:?}");
            }
        }
    }
}

/// One key has the score 0 and all others -7: their weights are below half a step of a byte, and together they are twice
/// as large as the first.
fn one_key_and_a_tail(keys: usize) -> Batch {
    let mut batch = Batch::new(&[(3, keys, 0)], [1, 1, 4], [0, 0, 0], 1);
    batch.scale = 1.0;
    batch.query.fill(0..3, || 1.0);
    batch.key.fill(0..keys, || -7.0 / 4.0);
    batch.key.fill(0..1, || 0.0);
    batch.value.fill(0..keys, || 1.0);
    batch.value.fill(0..1, || 0.0);
    batch
}

#[test]
fn a_tail_of_small_weights_is_not_lost() {
    for keys in [64, 512, 2048] {
        let batch = one_key_and_a_tail(keys);
        let repeated = check_on(&all_isas(), &batch, false, "a tail");
        assert_eq!(repeated, 3, "each query repeats the block with the large key");
        let tail = (keys - 1) as f64 * (-7.0f64).exp();
        for x in attend(&batch, Isa::best(), SERIAL).dense() {
            let exact = tail / (1.0 + tail);
            assert!((f64::from(x) - exact).abs() <= 0.01 * exact, "{keys}: {x}, exactly {exact}");
        }
    }
}

/// A sink in the first block has most of the weight. The weights of later blocks are rounded against the largest of their
/// own block, so they do not vanish.
#[test]
fn a_sink_in_the_first_block_does_not_hide_later_blocks() {
    for causal in [false, true] {
        let mut batch = Batch::new(&[(1, 1024, 0)], [1, 1, 8], [0, 0, 0], 1);
        (batch.causal, batch.scale) = (causal, 1.0);
        batch.query.fill(0..1, || 1.0);
        let mut random = Random::new(4);
        batch.key.fill(0..1024, || 0.25 * random.value() - 1.0);
        batch.key.fill(0..1, || 0.0);
        batch.value.fill(0..1024, || 1.0);
        batch.value.fill(0..1, || 0.0);
        check_on(&all_isas(), &batch, false, "a sink");
        let exact = batch.exact()[0].out[0];
        let x = f64::from(attend(&batch, Isa::best(), SERIAL).dense()[0]);
        assert!((x - exact).abs() <= 0.01, "{x}, exactly {exact}");
    }
}

/// The error in the mean, which is much smaller than the bound.
#[test]
fn errors_of_gaussian_rows_are_small() {
    for (queries, keys, head_dim) in [(64, 40, 64), (64, 512, 64), (32, 1500, 80)] {
        let mut batch = Batch::new(&[(queries, keys, 0)], [1, 1, head_dim], [0, 0, 0], 2);
        let mut random = Random::new(8);
        let mut normal = || (0..6).map(|_| random.value()).sum::<f32>() * 0.7;
        batch.query.fill(0..queries, &mut normal);
        batch.key.fill(0..keys, &mut normal);
        batch.value.fill(0..keys, &mut normal);
        let exact = &batch.exact()[0].out;
        let found = attend(&batch, Isa::best(), SERIAL).dense();
        let error: f64 = found.iter().zip(exact).map(|(x, e)| (f64::from(*x) - e).powi(2)).sum();
        let norm: f64 = exact.iter().map(|e| e * e).sum();
        let relative = (error / norm).sqrt();
        assert!(relative <= 0.016, "{queries} x {keys} x {head_dim}: {relative}");
    }
}

#[test]
fn every_error_and_nothing_is_written() {
    let isa = Isa::best();
    let (data, good) = (poisoned(7 * 2 * 8), Sequence::packed(0, 4));
    let view =
        |tokens, heads, head_dim| Heads::new(&data, [tokens, heads, head_dim]).expect("fits");
    let options = in_int8(AttentionOptions::new(8));
    let biased = AttentionOptions {
        bias: Some(Bias::Dense { data: &data, head_stride: 0, query_stride: 7 }),
        ..options
    };
    let size = |property, operand, index, expected, found| Error::Size {
        property,
        operand,
        index,
        expected,
        found,
    };
    let all = view(7, 2, 8);
    let shape = |operand, expected, found| Error::HeadsShape { operand, expected, found };
    let late = Sequence { query_start: 4, ..good };
    let long = Sequence { key_len: 5, ..good };
    let few = [7, 1, 8];
    let rows = [
        (
            all,
            all,
            view(6, 2, 8),
            vec![good],
            options,
            [7, 2, 8],
            shape("value", [7, 2, 8], [6, 2, 8]),
        ),
        (all, all, all, vec![good], options, few, shape("output.context", [7, 2, 8], few)),
        (
            view(7, 2, 8),
            view(7, 2, 4),
            view(7, 2, 4),
            vec![good],
            options,
            [7, 2, 8],
            size("head size", "query", None, Expected::Exactly(4), 8),
        ),
        (
            all,
            all,
            all,
            vec![late],
            options,
            [7, 2, 8],
            size("query end", "sequence", Some(0), Expected::AtMost(7), 8),
        ),
        (
            all,
            all,
            all,
            vec![long],
            options,
            [7, 2, 8],
            size("valid keys", "sequence", Some(0), Expected::AtMost(4), 5),
        ),
        (
            all,
            all,
            all,
            vec![good, good],
            options,
            [7, 2, 8],
            size("query start", "sequence", Some(1), Expected::AtLeast(4), 0),
        ),
        (
            all,
            all,
            all,
            vec![good],
            biased,
            [7, 2, 8],
            Error::Unsupported {
                operand: "options.bias",
                expected: "no bias in int8",
                found: "a bias",
            },
        ),
    ];
    for (query, key, value, sequences, options, out_shape, expected) in rows {
        let mut out = poisoned(7 * 2 * 8);
        let to = HeadsMut::new(&mut out, out_shape).expect("fits").into();
        let floats = options.scratch(isa, &sequences, 2, 2, 8).expect("small");
        let mut scratch = poisoned(floats);
        let qkv = Qkv { query, key, value };
        let found = attention(Exec::serial(isa), qkv, &sequences, &options, to, &mut scratch);
        assert_eq!(found, Err(expected));
        assert!(is_poison(&out) && is_poison(&scratch), "{expected}: something was written");
    }
    let floats = options.scratch(isa, &[good], 2, 2, 8).expect("small");
    let (mut out, mut scratch) = (poisoned(7 * 2 * 8), poisoned(floats - 1));
    let to = HeadsMut::new(&mut out, [7, 2, 8]).expect("fits").into();
    let qkv = Qkv { query: all, key: all, value: all };
    let found = attention(Exec::serial(isa), qkv, &[good], &options, to, &mut scratch);
    let short = size("length", "scratch", None, Expected::AtLeast(floats), floats - 1);
    assert_eq!(found, Err(short));
    let context = HeadsMut::new(&mut out, [7, 2, 8]).expect("fits");
    let mut weights = poisoned(7 * 7);
    let weights = AttentionWeights {
        data: &mut weights,
        heads: &[0],
        head_stride: 0,
        query_stride: 7,
        keys: 7,
    };
    let to = AttentionOutput { weights: Some(weights), ..context.into() };
    let found = attention(Exec::serial(isa), qkv, &[good], &options, to, &mut scratch);
    let (operand, expected) = ("output.weights", "no weights in int8");
    assert_eq!(found, Err(Error::Unsupported { operand, expected, found: "a buffer" }));
    // Other kernels have only f32.
    let shape = CacheShape::new(1, 7, 2, 8);
    let mut data = vec![0.0; shape.buffer_len(isa).expect("small")];
    let cache = CacheMut::new(isa, shape, &mut data).expect("fits");
    let sequence = CachedSequence { query_start: 0, query_len: 1, slot: 0, key_len: 1 };
    let to = HeadsMut::new(&mut out, [7, 2, 8]).expect("fits").into();
    let found = attention_cached(all, &cache.as_view(), &[sequence], &options, to, SERIAL);
    let (operand, expected) = ("options.precision", "f32");
    assert_eq!(found, Err(Error::Unsupported { operand, expected, found: "int8" }));
    assert!(is_poison(&out) && is_poison(&scratch), "something was written");
    for (heads, kv_heads, head_dim) in [(usize::MAX, 1, 8), (2, usize::MAX, 8), (2, 2, usize::MAX)]
    {
        let found = options.scratch(isa, &[good], heads, kv_heads, head_dim);
        assert_eq!(found, Err(Error::TooLarge { operand: "the scratch" }));
    }
}

/// The bound suffices for sequences of any lengths, and one that overflows is an error.
#[test]
fn a_planned_scratch_fits_any_lengths() {
    let mut random = Random::new(31);
    for isa in forms(&all_isas()) {
        for head_dim in [1, 7, 64, 80] {
            let options = in_int8(AttentionOptions::new(head_dim));
            for _ in 0..50 {
                let lens: Vec<usize> =
                    (0..1 + random.below(9)).map(|_| random.below(200)).collect();
                let mut start = 0;
                let packed = |len: &usize| {
                    start += len;
                    Sequence::packed(start - len, *len)
                };
                let sequences: Vec<Sequence> = lens.iter().map(packed).collect();
                let needed = options.scratch(isa, &sequences, 3, 3, head_dim).expect("small");
                let bound = options.scratch_bound(isa, lens.len(), start, 3, head_dim);
                assert!(needed <= bound.expect("small"), "{isa}, {head_dim}, {lens:?}");
            }
            let overflows = Error::TooLarge { operand: "the scratch" };
            for [sequences, tokens, heads] in
                [[usize::MAX, 3, 1], [1, usize::MAX, 1], [1, 3, usize::MAX]]
            {
                let bound = options.scratch_bound(isa, sequences, tokens, heads, head_dim);
                assert_eq!(bound, Err(overflows), "{isa}");
            }
        }
    }
}
