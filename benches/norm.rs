//! Softmax, log-softmax, layer norm, activations and selection: one thread, bytes read and written.
//!
//! The rows are those of a Transformer's hidden states, feed-forward blocks and vocabularies. The
//! copy rows are the roof for what does not fit the caches: plain copies with the same traffic.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use simdformer_kernels::activation::{Activation, apply};
use simdformer_kernels::norm::{LayerNorm, add_layer_norm, layer_norm};
use simdformer_kernels::softmax::{FullyMasked, log_softmax, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
use std::hint::black_box;
use std::ops::{Deref, DerefMut};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
const SHAPES: [[usize; 2]; 3] = [[128, 512], [1024, 512], [4096, 1024]];

/// Floats that start at a cache line, as planned memory does.
struct Aligned(Vec<f32>, usize);

impl FromIterator<f32> for Aligned {
    fn from_iter<I: IntoIterator<Item = f32>>(numbers: I) -> Self {
        let numbers: Vec<f32> = numbers.into_iter().collect();
        let mut room = vec![0.0; numbers.len() + 16];
        let start = room.as_ptr().align_offset(64);
        room.truncate(start + numbers.len());
        room[start..].copy_from_slice(&numbers);
        Self(room, start)
    }
}

impl Deref for Aligned {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.0[self.1..]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0[self.1..]
    }
}

fn constants(value: f32, count: usize) -> Aligned {
    std::iter::repeat_n(value, count).collect()
}

/// Numbers between -2 and 2, the same every time.
fn numbers(count: usize) -> Aligned {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

fn bench(c: &mut Criterion, name: &str, shape: [usize; 2], arrays: usize, mut work: impl FnMut()) {
    let [rows, columns] = shape;
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Bytes((4 * arrays * rows * columns) as u64));
    group.bench_function(BenchmarkId::from_parameter(format!("{rows}x{columns}")), |b| {
        b.iter(&mut work);
    });
    group.finish();
}

/// The best rate at which this footprint moves: `out = a` and `out = a + b` in plain loops.
fn copies(c: &mut Criterion) {
    for shape in SHAPES {
        let count = shape[0] * shape[1];
        let (a, b, mut out) = (numbers(count), numbers(count), constants(0.0, count));
        bench(c, "copy_one_in", shape, 2, || black_box(&mut out).copy_from_slice(black_box(&a)));
        bench(c, "copy_two_in", shape, 3, || {
            for ((out, a), b) in black_box(&mut out).iter_mut().zip(black_box(&*a)).zip(&*b) {
                *out = a + b;
            }
        });
    }
}

fn softmaxes(c: &mut Criterion) {
    let isa = Isa::detect();
    let zeros = FullyMasked::Zeros;
    let run = |c: &mut Criterion, name: &str, shape: [usize; 2], log: bool, scores: &[f32]| {
        let [rows, columns] = shape;
        let mut out = constants(0.0, rows * columns);
        bench(c, name, shape, 2, || {
            let x = Matrix::new(black_box(scores), rows, columns).unwrap();
            let y = MatrixMut::new(&mut out, rows, columns).unwrap();
            if log {
                log_softmax(isa, x, None, zeros, y, SERIAL).unwrap();
            } else {
                softmax(isa, x, None, zeros, y, SERIAL).unwrap();
            }
            black_box(&mut out);
        });
    };
    for shape in SHAPES {
        let scores = numbers(shape[0] * shape[1]);
        run(c, "softmax", shape, false, &scores);
        run(c, "log_softmax", shape, true, &scores);
        // One entry at 0, the others where exp would be subnormal: the slow path of the CPU.
        let below: Aligned = scores
            .iter()
            .enumerate()
            .map(|(i, x)| if i % shape[1] == 0 { 0.0 } else { x * 2.0 - 93.0 })
            .collect();
        run(c, "softmax_90_below", shape, false, &below);
    }
    for columns in [32_000, 256_000] {
        let shape = [1, columns];
        let scores = numbers(columns);
        run(c, "softmax", shape, false, &scores);
        run(c, "log_softmax", shape, true, &scores);
        let matrix = Matrix::new(&scores, 1, columns).unwrap();
        let mut total = [0.0];
        bench(c, "log_sum_exp", shape, 1, || {
            log_sum_exp(isa, black_box(matrix), None, &mut total, SERIAL).unwrap();
        });
        let mut best = [0];
        bench(c, "argmax", shape, 1, || argmax(isa, black_box(matrix), &mut best, SERIAL).unwrap());
        let (mut values, mut indices) = ([0.0; 8], [0; 8]);
        bench(c, "top_8", shape, 1, || {
            top_k(isa, black_box(matrix), 8, &mut values, &mut indices, SERIAL).unwrap();
        });
    }
}

fn norms(c: &mut Criterion) {
    let isa = Isa::detect();
    for shape in SHAPES {
        let [rows, columns] = shape;
        let (x, residual) = (numbers(rows * columns), numbers(rows * columns));
        let mut out = constants(0.0, rows * columns);
        let (weight, bias) = (constants(1.0, columns), constants(0.0, columns));
        let norm = LayerNorm { weight: &weight, bias: &bias, eps: 1e-5 };
        let x = Matrix::new(&x, rows, columns).unwrap();
        let residual = Matrix::new(&residual, rows, columns).unwrap();
        bench(c, "layer_norm", shape, 2, || {
            let y = MatrixMut::new(&mut out, rows, columns).unwrap();
            layer_norm(isa, norm, black_box(x), y, SERIAL).unwrap();
            black_box(&mut out);
        });
        bench(c, "add_layer_norm", shape, 3, || {
            let y = MatrixMut::new(&mut out, rows, columns).unwrap();
            add_layer_norm(isa, norm, black_box(x), residual, y, SERIAL).unwrap();
            black_box(&mut out);
        });
    }
}

fn activations(c: &mut Criterion) {
    let isa = Isa::detect();
    for shape in SHAPES {
        let [rows, columns] = shape;
        // In place, again and again: so far to the right every activation is the identity, and none
        // takes a different path for it.
        let mut x: Aligned = numbers(rows * columns).iter().map(|x| x + 30.0).collect();
        for (name, activation) in [
            ("gelu", Activation::Gelu),
            ("gelu_tanh", Activation::GeluTanh),
            ("silu", Activation::Silu),
        ] {
            bench(c, name, shape, 2, || {
                let view = MatrixMut::new(black_box(&mut x), rows, columns).unwrap();
                apply(isa, activation, view, SERIAL).unwrap();
            });
        }
    }
}

criterion_group!(benches, copies, softmaxes, norms, activations);
criterion_main!(benches);
