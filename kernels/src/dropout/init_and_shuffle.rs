//! Random numbers for initial weights, and the shuffled order of an epoch.

use super::philox::Philox;
use crate::float_mode::in_default_mode;

/// 2^32
const WORDS: f64 = 4_294_967_296.0;

/// Writes elements `first..` of a tensor to `out`; `numbers` makes four elements from one block.
fn fill(
    seed: u64,
    tensor: u32,
    first: u64,
    out: &mut [f32],
    numbers: impl Fn([f64; 4]) -> [f64; 4],
) {
    let philox = Philox::new(seed).branch([2, tensor, 0, 0]);
    let mut four = [0.0; 4];
    for (i, out) in out.iter_mut().enumerate() {
        let element = first.wrapping_add(i as u64);
        let (block, place) = (element / 4, (element % 4) as usize);
        if i == 0 || place == 0 {
            let words = philox.block([block as u32, (block >> 32) as u32, 0, 0]);
            four = numbers(words.map(f64::from));
        }
        *out = four[place] as f32;
    }
}

/// Two independent normal numbers from two words: a radius and an angle.
fn box_muller(first: f64, second: f64) -> [f64; 2] {
    let radius = libm::sqrt(-2.0 * libm::log((first + 1.0) / WORDS));
    let (sine, cosine) = libm::sincos(core::f64::consts::TAU * (second / WORDS));
    [radius * cosine, radius * sine]
}

/// Elements `first..` of tensor number `tensor`, normal with mean 0 and standard deviation `deviation`, by the
/// Box-Muller method with 32-bit words. All numbers are within 6.7 standard deviations. A tensor may be filled in
/// parts.
///
/// ```
/// use simdformer_kernels::train::normal;
///
/// let (mut whole, mut part) = ([0.0; 100], [0.0; 50]);
/// normal(42, 3, 0, 0.02, &mut whole);
/// normal(42, 3, 50, 0.02, &mut part);
/// assert_eq!(whole[50..], part);
/// ```
pub fn normal(seed: u64, tensor: u32, first: u64, deviation: f32, out: &mut [f32]) {
    let numbers = |[a, b, c, d]: [f64; 4]| {
        let ([a, b], [c, d]) = (box_muller(a, b), box_muller(c, d));
        [a, b, c, d].map(|x| x * f64::from(deviation))
    };
    in_default_mode(|| fill(seed, tensor, first, out, numbers));
}

/// Elements `first..` of tensor number `tensor`, uniform from `-bound` to `bound`; `bound` itself can only result from
/// rounding. A tensor may be filled in parts.
///
/// ```
/// use simdformer_kernels::train::uniform;
///
/// let mut weights = [9.0; 64];
/// uniform(42, 3, 0, 0.1, &mut weights);
/// assert!(weights.iter().all(|x| x.abs() <= 0.1));
/// ```
pub fn uniform(seed: u64, tensor: u32, first: u64, bound: f32, out: &mut [f32]) {
    let number = |word: f64| f64::from(bound) * (2.0 * word / WORDS - 1.0);
    in_default_mode(|| fill(seed, tensor, first, out, |words| words.map(number)));
}

/// Writes the numbers `0..out.len()` to `out` in the order of epoch `epoch`: a Fisher-Yates shuffle from the last
/// element down, with 64-bit draws. Of more than 2^32 numbers, the low 32 bits are written.
///
/// ```
/// use simdformer_kernels::train::permutation;
///
/// let mut order = [0; 10];
/// permutation(42, 1, &mut order);
/// let mut sorted = order;
/// sorted.sort();
/// assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// ```
pub fn permutation(seed: u64, epoch: u64, out: &mut [u32]) {
    let philox = Philox::new(seed).branch([3, epoch as u32, (epoch >> 32) as u32, 0]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = i as u32;
    }
    let mut block = [0; 4];
    for (draw, last) in (1..out.len()).rev().enumerate() {
        if draw.is_multiple_of(2) {
            let counter = draw as u64 / 2;
            block = philox.block([counter as u32, (counter >> 32) as u32, 0, 0]);
        }
        let words =
            if draw.is_multiple_of(2) { [block[0], block[1]] } else { [block[2], block[3]] };
        let draw = u128::from(words[0]) | u128::from(words[1]) << 32;
        // The result is at most `last`. Its deviation from a uniform distribution is less than 2^-32 for any possible
        // slice.
        out.swap(last, ((draw * (last as u128 + 1)) >> 64) as usize);
    }
}
