//! The FMA peak of the CPU, and the operations of a step.

#![allow(unsafe_code, reason = "instructions that not every CPU has")]

use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Side};
use simdformer::kernels::Isa;
use simdformer_train::Corpus;
use std::hint::black_box;
use std::time::Instant;

const STEPS: usize = 4096;
const CHAINS: usize = 12;

/// Floating-point operations per second of one thread, counting multiplications and additions separately; the best of
/// many short measurements. `None` for an instruction set that this function does not support.
pub(crate) fn of_one_thread(isa: Isa) -> Option<f64> {
    let (run, lanes): (fn() -> f32, usize) = match isa.name() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only if the CPU has its instructions.
        "avx512" => (|| unsafe { x86::avx512() }, 16),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only if the CPU has its instructions.
        "avx2" => (|| unsafe { x86::avx2() }, 8),
        _ => return None,
    };
    let operations = (2 * STEPS * CHAINS * lanes) as f64;
    let mut best = f64::INFINITY;
    for _ in 0..400 {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed().as_secs_f64());
    }
    Some(operations / best)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CHAINS, STEPS};
    use core::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512() -> f32 {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(1e-3)));
        let mut sums = [_mm512_set1_ps(1.0); CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2() -> f32 {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(1e-3)));
        let mut sums = [_mm256_set1_ps(1.0); CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
    }
}

/// The operations of a step. For every product with weights: one forward, and twice that backward. For the two
/// products of attention: five products backward.
pub(crate) struct Work {
    for_source: f64,
    for_target: f64,
}

impl Work {
    /// Operations per token of each side; the attention is that of the average sentence of `corpus`.
    pub(crate) fn of(config: &Config, corpus: &Corpus) -> Self {
        let (mut source, mut target) = (0.0, 0.0);
        for role in TensorId::all(config) {
            let Some(shape) = role.shape(config) else { continue };
            let numbers = shape.iter().product::<usize>() as f64;
            let of_memory = role.to_string().contains("cross_attention.key.")
                || role.to_string().contains("cross_attention.value.");
            match role {
                _ if shape.len() < 2 => {}
                TensorId::Output => target += numbers,
                // Two frames per position, and the input needs no gradient.
                TensorId::Convolution(0, _) => source += 2.0 * numbers * 2.0 / 3.0,
                TensorId::Convolution(..) => source += numbers,
                TensorId::Layer(Side::Decoder, ..) if !of_memory => target += numbers,
                TensorId::Layer(..) => source += numbers,
                _ => {}
            }
        }
        let [mut own, mut causal, mut cross, mut sources, mut targets] = [0.0; 5];
        for pair in corpus.pairs() {
            let (s, t) = (pair.source_len() as f64, pair.target.len() as f64);
            own += s * s;
            causal += t * (t + 1.0) / 2.0;
            cross += s * t;
            sources += s;
            targets += t;
        }
        let layers = |side| config.stack(side).map_or(0.0, |stack| stack.layers as f64);
        let width = |side| config.attention_dim(side) as f64;
        let (encoder, decoder) = (Side::Encoder, Side::Decoder);
        Self {
            for_source: 6.0 * source + 14.0 * width(encoder) * layers(encoder) * own / sources,
            for_target: 6.0 * target
                + 14.0 * width(decoder) * layers(decoder) * (causal + cross) / targets,
        }
    }

    pub(crate) fn operations(&self, source_tokens: u64, target_tokens: u64) -> f64 {
        self.for_source * source_tokens as f64 + self.for_target * target_tokens as f64
    }
}
