//! The limits of the machine: multiply-adds in registers, and the bandwidth of reading and copying memory.
//!
//! These loops are the denominators of every fraction, so they must be fast: enough independent chains to
//! hide the latency of an FMA, and for reading the best of several orders (one to four streams, with and
//! without prefetch), which is searched for each footprint.

#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::work::Work;
use simdformer_kernels::{Isa, Parallelism};
use std::hint::black_box;
use std::time::Instant;

/// Steps of the register loop in one call.
const FMA_STEPS: usize = 4096;

/// Floats that one iteration of the widest read loop takes.
const READ_TURN: usize = 512;

/// Multiply-adds in registers only.
pub(crate) fn fma_peak(isa: Isa) -> Work {
    let (run, chains): (fn(usize) -> f32, usize) = match isa.name() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an Isa exists only if the CPU has the instructions.
        "avx512" => (|steps| unsafe { x86::fma_avx512(steps) }, x86::FMA_AVX512),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        "avx2" => (|steps| unsafe { x86::fma_avx2(steps) }, x86::FMA_AVX2),
        #[cfg(target_arch = "x86_64")]
        _ => (x86::fma_sse2, x86::FMA_SSE2),
        #[cfg(not(target_arch = "x86_64"))]
        _ => (portable::fma, portable::CHAINS),
    };
    let flops = 2.0 * (FMA_STEPS * chains) as f64;
    Work::new(flops, 0.0, move |_| {
        black_box(run(black_box(FMA_STEPS)));
    })
}

/// Int8 multiply-adds in registers only; f32 multiply-adds if the CPU has no int8 dot products.
pub(crate) fn int8_peak(isa: Isa) -> Work {
    let (run, chains): (fn(usize) -> i32, usize) = match isa.name() {
        #[cfg(target_arch = "x86_64")]
        "avx512" if is_x86_feature_detected!("avx512vnni") => {
            // SAFETY: an Isa exists only if the CPU has AVX-512, and VNNI was just detected.
            (|steps| unsafe { x86::dot_avx512(steps) }, 4 * x86::FMA_AVX512)
        }
        #[cfg(target_arch = "x86_64")]
        "avx2" if is_x86_feature_detected!("avxvnni") => {
            // SAFETY: as above.
            (|steps| unsafe { x86::dot_avx2(steps) }, 4 * x86::FMA_AVX2)
        }
        #[cfg(target_arch = "aarch64")]
        "neon" if std::arch::is_aarch64_feature_detected!("dotprod") => {
            // SAFETY: as above.
            (|steps| unsafe { aarch64::dot(steps) }, aarch64::CHAINS)
        }
        _ => return fma_peak(isa),
    };
    let operations = 2.0 * (FMA_STEPS * chains) as f64;
    Work::new(operations, 0.0, move |_| {
        black_box(run(black_box(FMA_STEPS)));
    })
}

/// Int8 multiply-adds by matrix instructions in registers only; by vector instructions if the CPU has no
/// matrix instructions.
pub(crate) fn matrix_peak(isa: Isa) -> Work {
    #[cfg(target_arch = "x86_64")]
    if isa.has_matrix_products() {
        let operations = 2.0 * (FMA_STEPS * x86::TILE_PRODUCTS) as f64;
        return Work::new(operations, 0.0, move |_| {
            // SAFETY: this process may use tiles, and nothing else in this thread uses them.
            unsafe { x86::dot_tiles(black_box(FMA_STEPS)) };
        });
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has_matrix_products() {
        let operations = 2.0 * (FMA_STEPS * 2 * aarch64::CHAINS) as f64;
        return Work::new(operations, 0.0, move |_| {
            // SAFETY: the CPU has the instruction.
            black_box(unsafe { aarch64::matrices(black_box(FMA_STEPS)) });
        });
    }
    int8_peak(isa)
}

/// Reads `bytes` bytes, rounded up to whole iterations of the loop, in the fastest order.
pub(crate) fn read_bandwidth(isa: Isa, bytes: usize) -> Work {
    let floats = (bytes / 4).next_multiple_of(READ_TURN).max(READ_TURN);
    let data = Buffer::random(floats, 3);
    let candidates: &[fn(&[f32]) -> u32] = match isa.name() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an Isa exists only if the CPU has the instructions.
        "avx512" => unsafe {
            &[
                |x| x86::read_avx512::<1, false>(x),
                |x| x86::read_avx512::<2, false>(x),
                |x| x86::read_avx512::<4, false>(x),
                |x| x86::read_avx512::<1, true>(x),
                |x| x86::read_avx512::<4, true>(x),
            ]
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        "avx2" => unsafe {
            &[
                |x| x86::read_avx2::<1, false>(x),
                |x| x86::read_avx2::<2, false>(x),
                |x| x86::read_avx2::<4, false>(x),
                |x| x86::read_avx2::<1, true>(x),
                |x| x86::read_avx2::<4, true>(x),
            ]
        },
        _ => &[portable::read_floats],
    };
    let best = fastest(candidates, &data);
    Work::new(0.0, 4.0 * floats as f64, move |_| {
        black_box(best(black_box(&data)));
    })
}

/// The candidate with the shortest time over `data`. The candidates run several times in turn.
fn fastest(candidates: &[fn(&[f32]) -> u32], data: &[f32]) -> fn(&[f32]) -> u32 {
    let calls = ((1 << 20) / data.len()).max(1);
    let mut times = vec![f64::INFINITY; candidates.len()];
    for _ in 0..5 {
        for (time, candidate) in times.iter_mut().zip(candidates) {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(candidate(black_box(data)));
            }
            *time = time.min(start.elapsed().as_secs_f64());
        }
    }
    let best = (0..times.len()).min_by(|&i, &j| times[i].total_cmp(&times[j])).unwrap_or(0);
    candidates[best]
}

/// Reads `inputs` (one or two) streams and writes one, `bytes` bytes in total.
pub(crate) fn copy_bandwidth(isa: Isa, bytes: usize, inputs: usize) -> Work {
    let floats = (bytes / 4 / (inputs + 1)).next_multiple_of(16).max(16);
    let (a, b) = (Buffer::random(floats, 4), Buffer::random(floats * (inputs - 1), 5));
    let mut to = Buffer::zeros(floats);
    let run: fn(&[f32], &[f32], &mut [f32]) = match isa.name() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an Isa exists only if the CPU has the instructions.
        "avx512" => |a, b, to| unsafe { x86::copy_avx512(a, b, to) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        "avx2" => |a, b, to| unsafe { x86::copy_avx2(a, b, to) },
        _ => portable::copy,
    };
    Work::new(0.0, 4.0 * (floats * (inputs + 1)) as f64, move |_: Parallelism<'_>| {
        run(black_box(&a), black_box(&b), black_box(&mut to));
    })
}

/// Plain Rust as the compiler vectorizes it: SSE2 on x86-64, NEON on AArch64.
mod portable {
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const CHAINS: usize = 4 * 12;

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn fma(steps: usize) -> f32 {
        let [half, one] = std::hint::black_box([0.5f32, 1.0]);
        let mut acc = [[0.0f32; 4]; CHAINS / 4];
        for (i, line) in acc.iter_mut().enumerate() {
            *line = std::hint::black_box([i as f32; 4]);
        }
        for _ in 0..steps {
            for line in &mut acc {
                *line = line.map(|x| {
                    if cfg!(target_arch = "aarch64") {
                        x.mul_add(half, one)
                    } else {
                        x * half + one
                    }
                });
            }
        }
        acc.iter().flatten().sum()
    }

    pub(super) fn read_floats(data: &[f32]) -> u32 {
        let mut acc = [0u32; 64];
        for chunk in data.chunks_exact(64) {
            for (x, y) in acc.iter_mut().zip(chunk) {
                *x ^= y.to_bits();
            }
        }
        acc.iter().fold(0, |x, y| x ^ y)
    }

    pub(super) fn copy(a: &[f32], b: &[f32], to: &mut [f32]) {
        if b.is_empty() {
            to.copy_from_slice(a);
        } else {
            for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
                *to = a + b;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Independent sums: the latency of an FMA times the number of units, and some more.
    const CHAINS: usize = 12;
    pub(super) const FMA_AVX512: usize = 16 * CHAINS;
    pub(super) const FMA_AVX2: usize = 8 * CHAINS;

    pub(super) const FMA_SSE2: usize = 4 * CHAINS;

    /// A multiplication and an addition, as in the scalar kernels.
    pub(super) fn fma_sse2(steps: usize) -> f32 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            let [half, one] = black_box([_mm_set1_ps(0.5), _mm_set1_ps(1.0)]);
            let mut acc = [_mm_setzero_ps(); CHAINS];
            for (i, x) in acc.iter_mut().enumerate() {
                *x = black_box(_mm_set1_ps(i as f32));
            }
            for _ in 0..steps {
                for x in &mut acc {
                    *x = _mm_add_ps(_mm_mul_ps(*x, half), one);
                }
            }
            acc.iter().fold(0.0, |sum, &x| sum + _mm_cvtss_f32(x))
        }
    }

    /// The distance in bytes at which the prefetching orders request memory ahead of the loads.
    const AHEAD: usize = 2048;

    #[target_feature(enable = "avx512f")]
    pub(super) fn fma_avx512(steps: usize) -> f32 {
        let [half, one] = black_box([_mm512_set1_ps(0.5), _mm512_set1_ps(1.0)]);
        let mut acc = [_mm512_setzero_ps(); CHAINS];
        for (i, x) in acc.iter_mut().enumerate() {
            *x = black_box(_mm512_set1_ps(i as f32));
        }
        for _ in 0..steps {
            for x in &mut acc {
                *x = _mm512_fmadd_ps(*x, half, one);
            }
        }
        acc.iter().fold(0.0, |sum, &x| sum + _mm512_reduce_add_ps(x))
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fma_avx2(steps: usize) -> f32 {
        let [half, one] = black_box([_mm256_set1_ps(0.5), _mm256_set1_ps(1.0)]);
        let mut acc = [_mm256_setzero_ps(); CHAINS];
        for (i, x) in acc.iter_mut().enumerate() {
            *x = black_box(_mm256_set1_ps(i as f32));
        }
        for _ in 0..steps {
            for x in &mut acc {
                *x = _mm256_fmadd_ps(*x, half, one);
            }
        }
        acc.iter().fold(0.0, |sum, &x| sum + _mm256_cvtss_f32(x))
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dot_avx512(steps: usize) -> i32 {
        let [a, b] = black_box([_mm512_set1_epi8(3), _mm512_set1_epi8(-5)]);
        let mut acc = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..steps {
            for x in &mut acc {
                *x = _mm512_dpbusd_epi32(*x, a, b);
            }
        }
        acc.iter().fold(0, |sum: i32, &x| sum.wrapping_add(_mm512_reduce_add_epi32(x)))
    }

    #[target_feature(enable = "avx2,avxvnni")]
    pub(super) fn dot_avx2(steps: usize) -> i32 {
        let [a, b] = black_box([_mm256_set1_epi8(3), _mm256_set1_epi8(-5)]);
        let mut acc = [_mm256_setzero_si256(); CHAINS];
        for _ in 0..steps {
            for x in &mut acc {
                *x = _mm256_dpbusd_avx_epi32(*x, a, b);
            }
        }
        acc.iter().fold(0, |sum: i32, &x| sum.wrapping_add(_mm256_extract_epi32::<0>(x)))
    }

    /// Multiply-adds of four tile products.
    pub(super) const TILE_PRODUCTS: usize = 4 * 16 * 16 * 64;

    /// Two by two tiles, as in a block, all of them zero.
    ///
    /// # Safety
    /// This process may use the tiles of AMX, and this thread has not configured them.
    pub(super) unsafe fn dot_tiles(steps: usize) {
        // Palette 1, and eight tiles of 64 bytes and sixteen rows.
        let mut configuration = [0u8; 64];
        configuration[0] = 1;
        for tile in 0..8 {
            (configuration[16 + 2 * tile], configuration[48 + tile]) = (64, 16);
        }
        // SAFETY: the contract of the caller; the instruction reads the configuration and writes no
        // memory.
        unsafe {
            std::arch::asm!(
                "ldtilecfg [{configuration}]",
                "2:",
                "tdpbusd tmm0, tmm4, tmm6",
                "tdpbusd tmm1, tmm4, tmm7",
                "tdpbusd tmm2, tmm5, tmm6",
                "tdpbusd tmm3, tmm5, tmm7",
                "dec {steps}",
                "jnz 2b",
                "tilerelease",
                configuration = in(reg) &configuration,
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly),
            );
        }
    }

    /// Eight vectors in each iteration, from `STREAMS` positions at the same time. `data` is a multiple
    /// of that.
    #[target_feature(enable = "avx512f")]
    pub(super) fn read_avx512<const STREAMS: usize, const PREFETCH: bool>(data: &[f32]) -> u32 {
        let stream = data.len() / STREAMS;
        let vectors = 8 / STREAMS;
        let mut acc = [_mm512_setzero_si512(); 8];
        let mut at = 0;
        while at < stream {
            for s in 0..STREAMS {
                // SAFETY: `at + vectors * 16 <= stream`, because `stream` is a multiple of
                // this step.
                unsafe {
                    let from = data.as_ptr().add(s * stream + at);
                    for v in 0..vectors {
                        if PREFETCH {
                            _mm_prefetch::<_MM_HINT_T0>(
                                from.cast::<i8>().wrapping_add(64 * v + AHEAD),
                            );
                        }
                        let x = _mm512_loadu_si512(from.add(16 * v).cast());
                        acc[s * vectors + v] = _mm512_xor_si512(acc[s * vectors + v], x);
                    }
                }
            }
            at += vectors * 16;
        }
        let all = acc.into_iter().fold(_mm512_setzero_si512(), |x, y| _mm512_xor_si512(x, y));
        _mm512_reduce_add_epi32(all) as u32
    }

    /// As `read_avx512`, with eight vectors of half the size.
    #[target_feature(enable = "avx2")]
    pub(super) fn read_avx2<const STREAMS: usize, const PREFETCH: bool>(data: &[f32]) -> u32 {
        let stream = data.len() / STREAMS;
        let vectors = 8 / STREAMS;
        let mut acc = [_mm256_setzero_si256(); 8];
        let mut at = 0;
        while at < stream {
            for s in 0..STREAMS {
                // SAFETY: `at + vectors * 8 <= stream`, because `stream` is a multiple of
                // this step.
                unsafe {
                    let from = data.as_ptr().add(s * stream + at);
                    for v in 0..vectors {
                        if PREFETCH && v % 2 == 0 {
                            _mm_prefetch::<_MM_HINT_T0>(
                                from.cast::<i8>().wrapping_add(32 * v + AHEAD),
                            );
                        }
                        let x = _mm256_loadu_si256(from.add(8 * v).cast());
                        acc[s * vectors + v] = _mm256_xor_si256(acc[s * vectors + v], x);
                    }
                }
            }
            at += vectors * 8;
        }
        let all = acc.into_iter().fold(_mm256_setzero_si256(), |x, y| _mm256_xor_si256(x, y));
        _mm256_extract_epi32::<0>(all) as u32 ^ _mm256_extract_epi32::<5>(all) as u32
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn copy_avx512(a: &[f32], b: &[f32], to: &mut [f32]) {
        let chunks = to.chunks_exact_mut(16).zip(a.chunks_exact(16));
        // SAFETY: every slice is one vector long.
        unsafe {
            if b.is_empty() {
                for (to, a) in chunks {
                    _mm512_storeu_ps(to.as_mut_ptr(), _mm512_loadu_ps(a.as_ptr()));
                }
            } else {
                for ((to, a), b) in chunks.zip(b.chunks_exact(16)) {
                    let sum =
                        _mm512_add_ps(_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr()));
                    _mm512_storeu_ps(to.as_mut_ptr(), sum);
                }
            }
        }
    }

    #[target_feature(enable = "avx")]
    pub(super) fn copy_avx2(a: &[f32], b: &[f32], to: &mut [f32]) {
        let chunks = to.chunks_exact_mut(8).zip(a.chunks_exact(8));
        // SAFETY: every slice is one vector long.
        unsafe {
            if b.is_empty() {
                for (to, a) in chunks {
                    _mm256_storeu_ps(to.as_mut_ptr(), _mm256_loadu_ps(a.as_ptr()));
                }
            } else {
                for ((to, a), b) in chunks.zip(b.chunks_exact(8)) {
                    let sum =
                        _mm256_add_ps(_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr()));
                    _mm256_storeu_ps(to.as_mut_ptr(), sum);
                }
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::{int8x16_t, int32x4_t, vaddvq_s32, vdupq_n_s8, vdupq_n_s32};
    use std::arch::asm;
    use std::hint::black_box;

    /// Sixteen multiply-adds in each of `SUMS` independent sums.
    const SUMS: usize = 16;
    pub(super) const CHAINS: usize = 16 * SUMS;

    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn dot(steps: usize) -> i32 {
        let [a, b]: [int8x16_t; 2] = black_box([vdupq_n_s8(3), vdupq_n_s8(-5)]);
        let mut acc: [int32x4_t; SUMS] = [vdupq_n_s32(0); SUMS];
        for _ in 0..steps {
            for x in &mut acc {
                // SAFETY: the function has the target feature of the instruction, which
                // changes only `x`.
                unsafe {
                    asm!(
                        "sdot {x:v}.4s, {a:v}.16b, {b:v}.16b",
                        x = inout(vreg) *x,
                        a = in(vreg) a,
                        b = in(vreg) b,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
            }
        }
        acc.iter().fold(0, |sum: i32, &x| sum.wrapping_add(vaddvq_s32(x)))
    }
    /// As `dot`, two rows of eight bytes with two columns.
    #[target_feature(enable = "neon,i8mm")]
    pub(super) fn matrices(steps: usize) -> i32 {
        let [a, b]: [int8x16_t; 2] = black_box([vdupq_n_s8(3), vdupq_n_s8(-5)]);
        let mut acc: [int32x4_t; SUMS] = [vdupq_n_s32(0); SUMS];
        for _ in 0..steps {
            for x in &mut acc {
                // SAFETY: the function has the target feature of the instruction, which
                // changes only `x`.
                unsafe {
                    asm!(
                        "smmla {x:v}.4s, {a:v}.16b, {b:v}.16b",
                        x = inout(vreg) *x,
                        a = in(vreg) a,
                        b = in(vreg) b,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
            }
        }
        acc.iter().fold(0, |sum: i32, &x| sum.wrapping_add(vaddvq_s32(x)))
    }
}
