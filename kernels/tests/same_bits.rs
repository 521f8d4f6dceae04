//! Every kernel gives the same bits on every instruction set. Each test ends with a digest of its results,
//! which is also that of other machines.
//!
//! Properties that other tests check on each set are not tested again here: rows in a batch, threads, steps
//! and prefills, norms in place or fused with the residual.

use crate::support::batch::{Batch, Output, with_bias, with_relative_bias};
use crate::support::gemm::{Packed, multiply_unpacked};
use crate::support::pruned_argmax::Built;
use crate::support::*;
use simdformer_kernels::activation::apply;
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::softmax::{SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{Activation, Dtype, Epilogue, Exec, Input, Isa, PostOp, math};

/// Runs `work` on every set and compares all results.
#[derive(Default)]
struct Same {
    digest: Option<u64>,
    calls: usize,
    /// The best set runs in every call, each other set in every `share`-th call; 0 means every call.
    share: usize,
}

impl Same {
    /// The payload of a NaN is not guaranteed.
    #[track_caller]
    fn same(&mut self, what: &str, work: impl Fn(Isa) -> Vec<f32>) {
        let bits = |x: &f32| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() };
        let mut first: Option<(Isa, Vec<f32>)> = None;
        self.calls += 1;
        for isa in isas_of(self.calls, self.share.max(1)) {
            let found = work(isa);
            let Some((other, expected)) = &first else {
                self.add(found.iter().map(bits));
                first = Some((isa, found));
                continue;
            };
            assert_eq!(found.len(), expected.len());
            let at = found.iter().zip(expected).position(|(a, b)| bits(a) != bits(b));
            if let Some(at) = at {
                let (a, b) = (found[at], expected[at]);
                panic!("{what}: {a:e} on {isa}, {b:e} on {other}, at {at} of {}", found.len());
            }
        }
    }

    /// FNV-1a (Fowler, Noll and Vo 1991), over words.
    fn add(&mut self, bits: impl Iterator<Item = u32>) {
        let digest = self.digest.get_or_insert(0xcbf2_9ce4_8422_2325);
        for word in bits {
            *digest = (*digest ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Compares the digest of all results with that of every other machine.
    #[track_caller]
    fn everywhere(self, expected: u64) {
        let found = self.digest.expect("something that is the same");
        assert_eq!(format!("{found:016x}"), format!("{expected:016x}"), "on another machine");
    }
}

#[test]
fn products() {
    let mut all = Same::default();
    let mut random = Random::new(1);
    for (case, &(rows, depth, columns)) in
        [(1, 7, 5), (3, 64, 70), (13, 300, 83), (40, 33, 130), (7, 1500, 65), (2, 0, 9)]
            .iter()
            .enumerate()
    {
        let (a, w) = (random.values(rows * depth), random.values(depth * columns));
        let (bias, residual) = (random.values(columns), random.values(rows * columns));
        for activation in Activation::ALL {
            for kind in 0..4 {
                let epilogue = Epilogue {
                    scale: if case % 2 == 0 { 1.0 } else { 0.37 },
                    bias: (kind != 1).then_some(&bias[..]),
                    activation,
                    post_op: match kind {
                        0 => PostOp::None,
                        1 => PostOp::AddOutput,
                        2 => PostOp::MultiplyOutput,
                        _ => PostOp::Add(view_matrix(&residual, rows, columns)),
                    },
                };
                all.same("a product", |isa| {
                    let packed = Packed::new(isa, view_matrix(&w, depth, columns));
                    let mut c = residual.clone();
                    let to = view_matrix_mut(&mut c, rows, columns);
                    packed.multiply(view_matrix(&a, rows, depth), &epilogue, to, SERIAL);
                    c
                });
            }
        }
        all.same("a product of two activations", |isa| {
            let (a, w) = (view_matrix(&a, rows, depth), view_matrix(&w, depth, columns));
            let mut c = poisoned(rows * columns);
            let to = view_matrix_mut(&mut c, rows, columns);
            multiply_unpacked(isa, (a, w), &Epilogue::default(), to, SERIAL);
            c
        });
    }
    all.everywhere(0x11db_90ba_7607_d0fb);
}

#[test]
fn pruned_argmaxes() {
    let mut all = Same::default();
    let mut random = Random::new(2);
    let (rows, depth, columns) = (9, 130, 333);
    let (a, w) = (random.values(rows * depth), random.values(depth * columns));
    all.same("the largest of a row", |isa| {
        let built = Built::new(Packed::new(isa, view_matrix(&w, depth, columns)));
        let (best, mut values) = built.argmax(view_matrix(&a, rows, depth), &|_, _| false, SERIAL);
        values.extend(best.iter().map(|&column| column as f32));
        values
    });
    all.everywhere(0x0ffe_a47d_e0bd_00a1);
}

#[test]
fn norms_of_every_width() {
    let mut all = Same::default();
    let mut random = Random::new(3);
    for columns in (1..280).chain([511, 512, 1000, 1024, 4097]) {
        let x = random.values(3 * columns);
        let (weight, bias) = (random.values(columns), random.values(columns));
        for (size, eps) in [(1.0, 1e-5), (1e-3, 1e-12), (1e25, 0.0)] {
            let x: Vec<f32> = x.iter().map(|x| (x + 0.3) * size).collect();
            all.same("a norm", |isa| {
                let mut y = vec![POISON; 9 * columns];
                let layer = LayerNorm { weight: &weight, bias: Some(&bias), eps };
                let (first, rest) = y.split_at_mut(3 * columns);
                let (second, third) = rest.split_at_mut(3 * columns);
                let x = view_matrix(&x, 3, columns);
                for (of, to) in [
                    (Norm::Layer(layer), first),
                    (Norm::Layer(LayerNorm { bias: None, ..layer }), second),
                    (Norm::Rms(RmsNorm { weight: &weight, eps }), third),
                ] {
                    let to = view_rows(to, 3);
                    norm(Exec::serial(isa), of, NormInput::Matrix(x), to).expect("normed");
                }
                y
            });
        }
    }
    all.everywhere(0x2e2e_9de1_dfcc_2141);
}

#[test]
fn softmaxes_of_every_width() {
    let mut all = Same::default();
    let mut random = Random::new(4);
    for columns in (1..200).chain([1000, 4096, 4097, 9000]) {
        let x: Vec<f32> = random.values(2 * columns).iter().map(|x| 20.0 * x).collect();
        let lengths = [columns, columns - columns / 3];
        all.same("a softmax", |isa| {
            let (mut p, mut log) = (vec![POISON; 2 * columns], vec![POISON; 2 * columns]);
            let mut sums = vec![POISON; 2];
            let (x, lengths) = (view_matrix(&x, 2, columns), Some(&lengths[..]));
            for (logarithm, to) in [(false, &mut p), (true, &mut log)] {
                let options = SoftmaxOptions { lengths, logarithm, ..SoftmaxOptions::default() };
                let to = view_rows(to, 2);
                softmax(Exec::serial(isa), Input::Matrix(x), options, to).expect("a softmax");
            }
            log_sum_exp(Exec::serial(isa), x, lengths, &mut sums).expect("a sum");
            [p, log, sums].concat()
        });
    }
    all.everywhere(0x0834_6b28_72b1_e3a3);
}

#[test]
fn activations_and_exponentials() {
    let mut all = Same::default();
    let mut random = Random::new(5);
    let mut x: Vec<f32> = random.values(60_001).iter().map(|x| 20.0 * x).collect();
    x.extend((0..200_000).map(|_| f32::from_bits(random.bits() as u32)));
    // Where exp underflows to 0, and where it overflows.
    x.extend((0..4000).flat_map(|i| [-87.27 - i as f32 * 1e-5, 88.7 + i as f32 * 1e-5]));
    for activation in Activation::ALL {
        all.same("an activation", |isa| {
            let mut y = x.clone();
            apply(
                Exec::serial(isa),
                activation,
                Input::Output,
                view_matrix_mut(&mut y, 1, x.len()),
            )
            .expect("applied");
            y
        });
    }
    all.same("exp", |isa| {
        let mut y = x.clone();
        math::exp_in_place(isa, &mut y);
        y
    });
    all.everywhere(0x4b58_d365_12c8_3518);
}

/// If 0 and -0 are both the largest, the result must not depend on how they are compared.
#[test]
fn zeros_of_both_signs() {
    let mut all = Same::default();
    let mut random = Random::new(7);
    for columns in (1..80).chain([300]) {
        for most in [2, 3, 6] {
            let kinds = [0.0, -0.0, -1.0, -0.25, 1.0, f32::NEG_INFINITY];
            let x: Vec<f32> = (0..2 * columns).map(|_| kinds[random.below(most)]).collect();
            all.same("rows of zeros", |isa| {
                let x = view_matrix(&x, 2, columns);
                let mut y = vec![POISON; 6 * columns];
                let (first, rest) = y.split_at_mut(2 * columns);
                let (second, third) = rest.split_at_mut(2 * columns);
                for (logarithm, to) in [(false, first), (true, second)] {
                    let options = SoftmaxOptions { logarithm, ..SoftmaxOptions::default() };
                    let to = view_rows(to, 2);
                    softmax(Exec::serial(isa), Input::Matrix(x), options, to).expect("a softmax");
                }
                let weight = vec![-0.0; columns];
                let layer = Norm::Layer(LayerNorm { weight: &weight, bias: None, eps: 1e-5 });
                let to = view_rows(third, 2);
                norm(Exec::serial(isa), layer, NormInput::Matrix(x), to).expect("normed");
                let mut sums = vec![POISON; 2];
                log_sum_exp(Exec::serial(isa), x, None, &mut sums).expect("a sum");
                let k = columns.min(4);
                let (mut values, mut indices) = (vec![POISON; 2 * k], vec![0; 2 * k]);
                top_k(Exec::serial(isa), x, k, &mut values, &mut indices).expect("selected");
                values.extend(indices.iter().map(|&index| index as f32));
                [y, sums, values].concat()
            });
        }
    }
    all.everywhere(0x9890_8ede_065d_39b2);
}

#[test]
fn embeddings_and_selections() {
    let mut all = Same::default();
    for encoding in [
        PositionEncoding::HalfSplit,
        PositionEncoding::HalfSplitClosed { offset: 2 },
        PositionEncoding::HalfSplitSingle { offset: 2 },
        PositionEncoding::Interleaved,
    ] {
        let mut table = vec![POISON; 700 * 66];
        encode(encoding, 0, view_matrix_mut(&mut table, 700, 66)).expect("positions");
        all.add(table.iter().map(|x| x.to_bits()));
    }
    let mut random = Random::new(6);
    for columns in [1, 30, 67, 128] {
        let (table, places) = (random.values(40 * columns), random.values(9 * columns));
        let (ids, rows) = ([3, 39, 0, 3, 17], [0, 1, 8, 2, 2]);
        all.same("an embedding", |isa| {
            let mut y = vec![POISON; 5 * columns];
            let positions = Positions { table: view_matrix(&places, 9, columns), rows: &rows };
            let (table, to) = (view_matrix(&table, 40, columns), view_rows(&mut y, 5));
            embed(Exec::serial(isa), table, &ids, 11.3, Some(positions), to).expect("embedded");
            y
        });
        all.same("a selection", |isa| {
            let scores = view_matrix(&table, 40, columns);
            let k = columns.min(5);
            let (mut values, mut indices) = (vec![POISON; 40 * k], vec![0; 40 * k]);
            top_k(Exec::serial(isa), scores, k, &mut values, &mut indices).expect("selected");
            let mut best = vec![0; 40];
            argmax(Exec::serial(isa), scores, &mut best).expect("selected");
            values.extend(indices.iter().chain(&best).map(|&index| index as f32));
            values
        });
    }
    all.everywhere(0xf7e5_fa5f_feba_eca9);
}

fn numbers(found: Output) -> Vec<f32> {
    [found.out.dense(), found.weights].concat()
}

#[test]
fn attentions() {
    // A batch takes nine calls.
    let mut all = Same { share: 5, ..Same::default() };
    let mut seed = 0;
    for lens in [
        &[(1, 1, 0), (5, 9, 2), (17, 17, 0)][..],
        &[(30, 30, 3), (1, 40, 0), (2, 0, 1)],
        &[(70, 300, 0)],
        &[(3, 700, 5)],
    ] {
        for (heads, kv_heads, head_dim) in [(2, 1, 16), (2, 2, 33), (1, 1, 64), (1, 1, 600)] {
            for causal in [false, true] {
                seed += 1;
                let mut plain = Batch::new(lens, [heads, kv_heads, head_dim], [1, 0, 2], seed);
                plain.causal = causal;
                plain.weight_heads = vec![heads - 1];
                // Scores far apart, so that later blocks have larger maxima.
                plain.scale *= 9.0;
                let mut random = Random::new(seed);
                let dense = with_bias(plain.clone(), |query, key| match (query + key) % 5 {
                    0 => f32::NEG_INFINITY,
                    n => n as f32 * 0.3,
                });
                let relative = with_relative_bias(plain.clone(), false, |_, _| random.value());
                for batch in [plain, dense, relative] {
                    all.same("attention", |isa| numbers(batch.attention(isa, SERIAL)));
                    all.same("attention on a cache", |isa| {
                        numbers(batch.attention_cached(isa, SERIAL))
                    });
                    let halves = Batch { dtype: Dtype::F16, ..batch };
                    all.same("attention on a cache of halves", |isa| {
                        numbers(halves.attention_cached(isa, SERIAL))
                    });
                }
            }
        }
    }
    all.everywhere(0x3f30_86e6_d402_7467);
}
