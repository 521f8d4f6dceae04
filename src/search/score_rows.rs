//! Arithmetic over one row of scores: maximum, log-softmax, top-k.
//!
//! All functions use plain multiplication, addition and comparison in a fixed order, without fused operations
//! and without the platform's `exp` or `ln`. The same scores therefore give the same bits on every machine.
//! Loops run over a fixed number of lanes so that the compiler vectorizes them. They are compiled for the best
//! instruction set of the machine, which changes their speed and not their bits.

use std::cell::Cell;

use simdformer_kernels::{AutoVectorize, Isa};

const LANES: usize = 16;
/// Scores per block: several vectors of any instruction set. In [`TopK::scan`], most blocks have no score that
/// enters the heap.
const BLOCK: usize = 64;
/// Terms that are added in f32 before they are added to the f64 sums.
const SUM_BLOCK: usize = 32 * LANES;

/// The instruction set that the loops use; detected once per thread. A lock for the whole process could be held by a
/// thread of the parent when the process forks, and the child would wait for it without end.
fn best_isa() -> Isa {
    std::thread_local! {
        static ISA: Cell<Option<Isa>> = const { Cell::new(None) };
    }
    ISA.get().unwrap_or_else(|| {
        let isa = Isa::best();
        ISA.set(Some(isa));
        isa
    })
}

/// Declares a type for a function and its argument, for [`Isa::run_vectorized`].
macro_rules! work {
    ($name:ident, $function:ident, $argument:ty, $output:ty) => {
        struct $name<'w>($argument);

        impl<'w> AutoVectorize for $name<'w> {
            type Output = $output;

            #[inline(always)]
            fn do_work(self) -> $output {
                $function(self.0)
            }
        }
    };
}

work!(Maximum, maximum_inline, &'w [f32], f32);
work!(BelowInfinity, below_infinity_inline, &'w [f32], bool);
work!(SumExp, sum_exp_inline, (&'w [f32], f32), f64);
work!(BlockWith, block_with, (&'w [[f32; BLOCK]], f32), Option<usize>);
work!(Subtract, subtract, (&'w mut [f32], f32, f32), ());

/// `e^x` for `x <= 88`, in f32.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`. `e^r` is the Taylor polynomial of degree 7 in `r`, whose truncation
/// error is below `r^8/8! = 6e-9`; with rounding the error is at most 2 units in the last place. Results below
/// the smallest normal number are 0; NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer
    const LN2_HIGH: f32 = 0.693_359_4; // 355/512: n * LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * core::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    // Estrin's scheme: half the depth of Horner's scheme, with one more operation for each square.
    let square = r * r;
    let low = (1.0 + r) + square * (0.5 + r * (1.0 / 6.0));
    let high = (1.0 / 24.0 + r * (1.0 / 120.0)) + square * (1.0 / 720.0 + r * (1.0 / 5040.0));
    let p = low + (square * square) * high;
    // The low bits of `shifted` hold n. The shift and the bias turn them into 2^n.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    let y = p * scale;
    if x < -87.0 { 0.0 } else { y }
}

/// `e^x` in f64, computed as in [`exp`] with the Taylor polynomial of degree 13 (truncation error below 5e-18).
pub(super) fn exp_f64(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    if x > 700.0 {
        return f64::INFINITY;
    }
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8; // the low 21 bits of its mantissa are 0
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let shifted = x * core::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.0;
    for k in (1..=13).rev() {
        p = p * r / f64::from(k) + 1.0;
    }
    p * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// The natural logarithm in f64, for positive normal `x`.
///
/// `x = m 2^e` with m in [1/sqrt 2, sqrt 2); `ln m = 2 artanh((m-1)/(m+1))` is computed by its series up to the
/// 23rd power (truncation error below 1e-19).
pub(super) fn ln_f64(x: f64) -> f64 {
    if !(x > 0.0 && x < f64::INFINITY) {
        return if x == 0.0 { f64::NEG_INFINITY } else { x };
    }
    let mut exponent = ((x.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits((x.to_bits() & ((1 << 52) - 1)) | (1023 << 52));
    if m > core::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let f = (m - 1.0) / (m + 1.0);
    let square = f * f;
    let mut p = 0.0;
    for k in (0..12).rev() {
        p = p * square + 1.0 / f64::from(2 * k + 1);
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * f * p
}

/// `n^power`, clamped to positive finite numbers so that a score divided by it is a number.
pub(super) fn length_norm(n: usize, power: f64) -> f32 {
    let norm = exp_f64(power * ln_f64(n.max(1) as f64)) as f32;
    norm.clamp(f32::MIN_POSITIVE, f32::MAX)
}

/// `base^power` by squaring.
pub(super) fn power(base: f64, power: usize) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, power);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

/// The largest score; NaN is ignored; `-inf` for an empty row.
pub(super) fn maximum(row: &[f32]) -> f32 {
    best_isa().run_vectorized(Maximum(row))
}

#[inline(always)]
fn maximum_inline(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; BLOCK];
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest);
    all.fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max })
}

/// True if no score is NaN or `+inf`.
pub(super) fn below_infinity(row: &[f32]) -> bool {
    best_isa().run_vectorized(BelowInfinity(row))
}

#[inline(always)]
fn below_infinity_inline(row: &[f32]) -> bool {
    // u32 lanes have the width of the scores, so the compiler keeps them in registers.
    let mut bad = [0u32; BLOCK];
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    for block in blocks {
        for (lane, &x) in bad.iter_mut().zip(block) {
            *lane |= u32::from(!(x < f32::INFINITY));
        }
    }
    bad.iter().all(|&lane| lane == 0) && rest.iter().all(|&x| x < f32::INFINITY)
}

/// `sum e^(x - max)`: f32 terms in 16 lanes; after every 512 terms, the lanes are added to f64 sums.
pub(super) fn sum_exp(row: &[f32], max: f32) -> f64 {
    best_isa().run_vectorized(SumExp((row, max)))
}

#[inline(always)]
fn sum_exp_inline((row, max): (&[f32], f32)) -> f64 {
    let mut totals = [0.0f64; LANES];
    for part in row.chunks(SUM_BLOCK) {
        let mut lanes = [0.0f32; LANES];
        let (blocks, rest) = part.as_chunks::<BLOCK>();
        for block in blocks {
            // Compute several vectors of terms at once to hide the latency of `exp`.
            let mut terms = [0.0f32; BLOCK];
            for (term, &x) in terms.iter_mut().zip(block) {
                *term = exp(x - max);
            }
            for vector in terms.as_chunks::<LANES>().0 {
                for (lane, &term) in lanes.iter_mut().zip(vector) {
                    *lane += term;
                }
            }
        }
        for (index, &x) in rest.iter().enumerate() {
            lanes[index % LANES] += exp(x - max);
        }
        for (total, &lane) in totals.iter_mut().zip(&lanes) {
            *total += f64::from(lane);
        }
    }
    totals.iter().sum()
}

/// `ln sum e^x`; `-inf` for a row of `-inf`.
pub(super) fn log_sum_exp(row: &[f32]) -> f64 {
    let max = maximum(row);
    if max == f32::NEG_INFINITY && below_infinity(row) {
        return f64::NEG_INFINITY;
    }
    log_sum_exp_below(row, max)
}

/// [`log_sum_exp`] of a row whose maximum `max` is known and finite.
pub(super) fn log_sum_exp_below(row: &[f32], max: f32) -> f64 {
    f64::from(max) + ln_f64(sum_exp(row, max))
}

/// `x - max - log_sum` for every `x`.
#[inline(always)]
fn subtract((row, max, log_sum): (&mut [f32], f32, f32)) {
    for x in row {
        *x = (*x - max) - log_sum;
    }
}

/// The `max` and `log_sum` with which `(x - max) - log_sum` is the log-softmax of `x` in this row; `None`
/// unless both are finite.
pub(super) fn normalizer(row: &[f32]) -> Option<(f32, f32)> {
    let max = maximum(row);
    let log_sum = ln_f64(sum_exp(row, max)) as f32;
    (max.is_finite() && log_sum.is_finite()).then_some((max, log_sum))
}

/// `x - max - ln sum e^(x - max)` in place. A row of `-inf` stays unchanged; NaN or `+inf` makes every score
/// NaN.
pub(super) fn log_softmax(row: &mut [f32]) {
    if let Some((max, log_sum)) = normalizer(row) {
        best_isa().run_vectorized(Subtract((row, max, log_sum)));
    } else if !(maximum(row) == f32::NEG_INFINITY && below_infinity(row)) {
        row.fill(f32::NAN);
    }
}

/// The lowest index of the largest score; `None` if every score is `-inf`.
pub(super) fn argmax(row: &[f32]) -> Option<usize> {
    let max = maximum(row);
    if max == f32::NEG_INFINITY {
        return None;
    }
    // Search by block first: comparing 64 values at once is many times faster.
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    let block = best_isa().run_vectorized(BlockWith((blocks, max)));
    let start = block.map_or(row.len() - rest.len(), |block| block * BLOCK);
    row[start..].iter().position(|&x| x == max).map(|index| start + index)
}

/// The first block that contains `max`.
#[inline(always)]
fn block_with((blocks, max): (&[[f32; BLOCK]], f32)) -> Option<usize> {
    blocks.iter().position(|block| block.iter().fold(false, |any, &x| any | (x == max)))
}

/// The k best of the offered scores, in a heap whose root is the worst of them.
///
/// Order: higher score first; with equal scores, lower index first. `-inf` never enters.
pub(super) struct TopK<'m> {
    scores: &'m mut [f32],
    indices: &'m mut [u32],
    len: usize,
}

/// The transformation of a score before it is compared: `((x - max) - log_sum) + offset`, rounded at each step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shift {
    pub(super) max: f32,
    pub(super) log_sum: f32,
    pub(super) offset: f32,
}

impl Shift {
    #[inline(always)]
    fn apply_to(self, x: f32) -> f32 {
        ((x - self.max) - self.log_sum) + self.offset
    }
}

struct Scan<'s, 'm>(&'s mut TopK<'m>, &'s [f32], Shift, u32);

impl AutoVectorize for Scan<'_, '_> {
    type Output = bool;

    #[inline(always)]
    fn do_work(self) -> bool {
        self.0.scan_inline(self.1, self.2, self.3)
    }
}

impl<'m> TopK<'m> {
    /// Creates an empty heap; its capacity is the length of the shorter slice.
    pub(super) fn new(scores: &'m mut [f32], indices: &'m mut [u32]) -> Self {
        let k = scores.len().min(indices.len());
        Self { scores: &mut scores[..k], indices: &mut indices[..k], len: 0 }
    }

    /// Offers the shifted scores of a whole row; indices start at `base`. Returns whether all scores were below
    /// `+inf`; if false, the heap must not be used.
    pub(super) fn scan(&mut self, row: &[f32], shift: Shift, base: u32) -> bool {
        best_isa().run_vectorized(Scan(self, row, shift, base))
    }

    #[inline(always)]
    fn scan_inline(&mut self, row: &[f32], shift: Shift, base: u32) -> bool {
        let (blocks, rest) = row.as_chunks::<BLOCK>();
        let mut start = base;
        for block in blocks {
            // One comparison finds all scores that need a closer check: those that enter the heap, NaN and infinity.
            let worst = self.worst();
            let needs_check = |any, &x: &f32| any | u32::from(!(shift.apply_to(x) <= worst));
            if block.iter().fold(0, needs_check) != 0 {
                if !below_infinity_inline(block) {
                    return false;
                }
                self.offer_each(block, shift, start);
            }
            start += BLOCK as u32;
        }
        if !below_infinity_inline(rest) {
            return false;
        }
        self.offer_each(rest, shift, start);
        true
    }

    /// Offers the sorted result ([`Self::sort`]) of a later row. With equal scores, its indices ascend.
    pub(super) fn merge(&mut self, scores: &[f32], indices: &[u32]) {
        for (&score, &index) in scores.iter().zip(indices) {
            self.offer(score, index);
        }
    }

    fn offer_each(&mut self, scores: &[f32], shift: Shift, base: u32) {
        for (index, &x) in (base..).zip(scores) {
            self.offer(shift.apply_to(x), index);
        }
    }

    /// The threshold: a score enters the heap only if it is larger.
    fn worst(&self) -> f32 {
        if self.len < self.scores.len() {
            f32::NEG_INFINITY
        } else {
            self.scores.first().copied().unwrap_or(f32::MAX)
        }
    }

    /// Offers one score. The caller offers indices in ascending order: a later score that equals the threshold does
    /// not enter.
    fn offer(&mut self, score: f32, index: u32) {
        if !(score > self.worst()) {
            return;
        }
        if self.len < self.scores.len() {
            let mut child = self.len;
            self.scores[child] = score;
            self.indices[child] = index;
            self.len += 1;
            while child > 0 {
                let parent = (child - 1) / 2;
                if !self.worse(child, parent) {
                    break;
                }
                self.swap(child, parent);
                child = parent;
            }
        } else {
            self.scores[0] = score;
            self.indices[0] = index;
            self.sink(self.len);
        }
    }

    fn sink(&mut self, len: usize) {
        let mut parent = 0;
        loop {
            let mut child = 2 * parent + 1;
            if child >= len {
                return;
            }
            if child + 1 < len && self.worse(child + 1, child) {
                child += 1;
            }
            if !self.worse(child, parent) {
                return;
            }
            self.swap(child, parent);
            parent = child;
        }
    }

    fn worse(&self, a: usize, b: usize) -> bool {
        self.scores[a] < self.scores[b]
            || (self.scores[a] == self.scores[b] && self.indices[a] > self.indices[b])
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.scores.swap(a, b);
        self.indices.swap(a, b);
    }

    /// Sorts the heap, best first, at the front of both slices, and returns its length.
    pub(super) fn sort(mut self) -> usize {
        for last in (1..self.len).rev() {
            self.swap(0, last);
            self.sink(last);
        }
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_and_logarithm_are_close_to_the_platform() {
        let mut worst = 0.0f64;
        let mut x = -87.0f32;
        while x <= 80.0 {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            worst = worst.max(error);
            assert!(error <= 2.0 * f64::from(f32::EPSILON), "exp({x}): {error}");
            let double = exp_f64(f64::from(x));
            assert!((double - exact).abs() <= 1e-15 * exact * 4.0, "exp_f64({x})");
            assert!(
                (ln_f64(exact) - f64::from(x)).abs() <= 4e-16 * f64::from(x.abs()).max(1.0) * 4.0,
                "ln_f64({exact})"
            );
            x += 0.013_7;
        }
        assert!(worst > 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(length_norm(7, 1.0), 7.0);
        assert_eq!(length_norm(7, 2.0), 49.0);
        assert_eq!(length_norm(7, 0.0), 1.0);
        assert_eq!(power(1.5, 3), 3.375);
    }

    #[test]
    fn log_softmax_is_close_to_f64_and_keeps_infinities() {
        for n in [1, 2, 15, 16, 17, 63, 64, 65, 513, 1000] {
            let mut row: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 * 0.21 - 9.0).collect();
            if n > 3 {
                row[n / 2] = f32::NEG_INFINITY;
            }
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            let expected: Vec<f64> = row.iter().map(|&x| f64::from(x) - sum.ln()).collect();
            log_softmax(&mut row);
            for (&got, want) in row.iter().zip(expected) {
                assert!(f64::from(got) == want || (f64::from(got) - want).abs() <= 4e-6);
            }
        }
        let mut dead = [f32::NEG_INFINITY; 5];
        log_softmax(&mut dead);
        assert_eq!(dead, [f32::NEG_INFINITY; 5]);
        let mut broken = [0.0, f32::NAN, 1.0];
        log_softmax(&mut broken);
        assert!(broken.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn top_k_agrees_with_a_sort_with_ties_and_infinities() {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        for n in [0usize, 1, 5, 63, 64, 65, 200, 1000] {
            for k in [0usize, 1, 2, 7, 64, 300] {
                for offset in [0.0f32, -3.7] {
                    let row: Vec<f32> = (0..n)
                        .map(|_| match random() % 40 {
                            0..4 => f32::NEG_INFINITY,
                            x => x as f32 * 0.5,
                        })
                        .collect();
                    let mut all: Vec<(f32, u32)> = row
                        .iter()
                        .map(|x| x + offset)
                        .zip(10..)
                        .filter(|x| x.0 > f32::NEG_INFINITY)
                        .collect();
                    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                    all.truncate(k);
                    let (mut scores, mut indices) = (vec![f32::NAN; k], vec![0; k]);
                    let mut top = TopK::new(&mut scores, &mut indices);
                    let shift = Shift { offset, ..Shift::default() };
                    assert!(top.scan(&row, shift, 10));
                    let len = top.sort();
                    let got: Vec<(f32, u32)> = scores.into_iter().zip(indices).take(len).collect();
                    assert_eq!(got, all, "n {n} k {k}");
                }
            }
        }
        let (mut scores, mut indices) = ([0.0; 2], [0; 2]);
        let mut row = [0.0; 130];
        for place in [0, 100, 129] {
            row[place] = f32::NAN;
            assert!(!TopK::new(&mut scores, &mut indices).scan(&row, Shift::default(), 0));
            row[place] = 0.0;
        }
    }
}
