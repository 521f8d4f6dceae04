//! Norms that save what their gradient needs, and the gradient of their input, on every instruction set.
//! They are compared with the f64 oracle, which is compared with differences, and bit for bit with the
//! guaranteed order of additions.

use crate::support::errors;
use crate::support::{CREWS, POISON, Random, Strided, UNIT, all_isas, bits, difference};
use proptest::prelude::*;
use simdformer_kernels::norm::{self, LayerNorm, NormInput, RmsNorm};
use simdformer_kernels::reference::norm::{self as oracle, Norm};
use simdformer_kernels::train::{
    SavedNorm, WriteMode, norm_backward, norm_forward_save, norm_recompute,
};
use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut, Parallelism};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
const BOTH: [Norm; 2] = [Norm::Layer, Norm::Rms];

/// A norm of either kind and its learned parameters.
struct Learned {
    norm: Norm,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    eps: f32,
}

/// What a forward and a backward pass write.
struct Passed {
    standard: Strided,
    scale: Vec<f32>,
    out: Strided,
    d_x: Strided,
}

impl Passed {
    fn all(&self) -> Vec<f32> {
        let Self { standard, scale, out, d_x } = self;
        [dense(standard), scale.clone(), dense(out), dense(d_x)].concat()
    }
}

impl Learned {
    fn norm(&self) -> norm::Norm<'_> {
        let (weight, eps) = (&self.weight[..], self.eps);
        match self.norm {
            Norm::Layer => norm::Norm::Layer(LayerNorm { weight, bias: self.bias.as_deref(), eps }),
            Norm::Rms => norm::Norm::Rms(RmsNorm { weight, eps }),
        }
    }

    /// The forward pass that saves, into memory that holds NaN before, except that of `out`.
    fn forward_save(
        &self,
        isa: Isa,
        x: Input<'_>,
        mut out: Strided,
        gap: usize,
        crew: Parallelism<'_>,
    ) -> Passed {
        let mut standard = poison(out.rows, out.columns, gap);
        let mut scale = vec![POISON; out.rows];
        let (keep, to) = (standard.view_mut(), out.view_mut());
        norm_forward_save(Exec::new(isa, crew), self.norm(), x, keep, &mut scale, to)
            .expect("shapes that fit");
        standard.assert_gaps_untouched();
        out.assert_gaps_untouched();
        Passed { standard, scale, d_x: poison(out.rows, out.columns, gap), out }
    }

    /// The gradient of the input, of which `d_x` is the content before.
    fn backward(
        &self,
        isa: Isa,
        saved: SavedNorm<'_>,
        d_out: Input<'_>,
        write: WriteMode,
        mut d_x: Strided,
        crew: Parallelism<'_>,
    ) -> Strided {
        norm_backward(Exec::new(isa, crew), self.norm(), saved, d_out, write, d_x.view_mut())
            .expect("shapes that fit");
        d_x.assert_gaps_untouched();
        d_x
    }

    /// The forward pass that saves, and the gradient of `x` from `d_out`, stored or added to `x`.
    fn forward_backward(
        &self,
        isa: Isa,
        (x, d_out): (&Strided, &Strided),
        write: WriteMode,
        crew: Parallelism<'_>,
    ) -> Passed {
        let memory = || poison(x.rows, x.columns, 0);
        let passed = self.forward_save(isa, Input::Matrix(x.view()), memory(), 0, crew);
        let saved = SavedNorm { standard: passed.standard.view(), scale: &passed.scale };
        let before = if write == WriteMode::Add { x.clone() } else { memory() };
        let d_x = self.backward(isa, saved, Input::Matrix(d_out.view()), write, before, crew);
        Passed { d_x, ..passed }
    }

    /// `g`, in f64.
    fn g(&self, d_out: &[f32]) -> Vec<f64> {
        d_out.iter().zip(&self.weight).map(|(&d, &w)| f64::from(d) * f64::from(w)).collect()
    }

    /// The gradient of one row with every operation in the guaranteed order: 64 lanes, added in halves.
    fn simulated(&self, standard: &[f32], scale: f32, d_out: &[f32]) -> Vec<f32> {
        let (mut plain, mut along) = ([0.0f32; 64], [0.0f32; 64]);
        let g: Vec<f32> = d_out.iter().zip(&self.weight).map(|(d, w)| w * d).collect();
        for (i, (&g, &z)) in g.iter().zip(standard).enumerate() {
            plain[i % 64] += g;
            along[i % 64] = g.mul_add(z, along[i % 64]);
        }
        for half in [32, 16, 8, 4, 2, 1] {
            for i in 0..half {
                plain[i] += plain[i + half];
                along[i] += along[i + half];
            }
        }
        let inverse = 1.0 / g.len() as f32;
        let (mean, along) = (plain[0] * inverse, along[0] * inverse);
        let center = if self.norm == Norm::Layer { mean } else { 0.0 };
        let one = |(&g, &z): (&f32, &f32)| z.mul_add(-along, g - center) * scale;
        g.iter().zip(standard).map(one).collect()
    }
}

fn row(matrix: &Strided, row: usize) -> Vec<f32> {
    (0..matrix.columns).map(|column| matrix.at(row, column)).collect()
}

fn dense(matrix: &Strided) -> Vec<f32> {
    (0..matrix.rows).flat_map(|i| row(matrix, i)).collect()
}

fn poison(rows: usize, columns: usize, gap: usize) -> Strided {
    Strided::new(rows, columns, (columns + gap, 1), |_, _| POISON)
}

#[track_caller]
fn same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(difference(found, expected), None, "{what}");
}

/// The derivative of `sum g standard(x)` by `x[column]`, by central differences.
fn difference_quotient(norm: Norm, x: &[f64], eps: f64, g: &[f64], column: usize) -> f64 {
    let h = 1e-6 * x[column].abs().max(1.0);
    let at = |step: f64| {
        let mut x = x.to_vec();
        x[column] += step;
        (0..x.len()).map(|i| g[i] * oracle::standard(norm, &x, eps, i)).sum::<f64>()
    };
    (at(h) - at(-h)) / (2.0 * h)
}

#[test]
fn the_oracle_matches_central_differences() {
    let mut random = Random::new(1);
    for norm in BOTH {
        for n in 1..12 {
            for eps in [1e-5, 0.3] {
                let mut values = || -> Vec<f64> {
                    (0..n).map(|_| 2.0 * f64::from(random.value()) + 0.5).collect()
                };
                let (x, g) = (values(), values());
                let (_, scale) = oracle::center_and_scale(norm, &x, eps);
                let size = scale * g.iter().fold(0.0, |m, g| g.abs().max(m));
                for column in 0..n {
                    let exact = oracle::backward(norm, &x, eps, &g, column);
                    let found = difference_quotient(norm, &x, eps, &g, column);
                    // One element and a tiny eps: the error is the curvature, not the
                    // oracle.
                    let bound = if n == 1 && eps < 0.1 { 1e-5 } else { 1e-6 };
                    let error = (exact - found).abs();
                    assert!(error <= bound * size, "{norm:?} {n} {eps}: {found} for {exact}");
                }
            }
        }
    }
}

/// Checks every guarantee for one batch.
fn check(learned: &Learned, x: &Strided, d_out: &Strided, gap: usize) {
    let (rows, columns) = (x.rows, x.columns);
    let eps = f64::from(learned.eps);
    let mut first: Option<Vec<f32>> = None;
    // The operands that one set computed are those of every set.
    let mut common: Option<(Strided, Vec<f32>)> = None;
    for isa in all_isas() {
        let mut plain = poison(rows, columns, gap);
        let input = NormInput::Matrix(x.view());
        norm::norm(Exec::serial(isa), learned.norm(), input, plain.view_mut())
            .expect("shapes that fit");
        let memory = || poison(rows, columns, gap);
        let passed = learned.forward_save(isa, Input::Matrix(x.view()), memory(), gap + 1, SERIAL);
        let Passed { standard, scale, out, .. } = passed;
        same(&dense(&out), &dense(&plain), "the bits of the plain norm");
        let over = learned.forward_save(isa, Input::Output, x.clone(), gap, SERIAL);
        same(&dense(&over.out), &dense(&plain), "in place");
        same(&dense(&over.standard), &dense(&standard), "in place, standard");
        same(&over.scale, &scale, "in place, scale");
        let mut recompute = poison(rows, columns, gap + 2);
        norm_recompute(Exec::serial(isa), learned.norm(), standard.view(), recompute.view_mut())
            .expect("shapes that fit");
        recompute.assert_gaps_untouched();
        same(&dense(&recompute), &dense(&plain), "recompute");
        let k = (columns / 64) as f64 + 8.0;
        let k = if learned.norm == Norm::Layer { k } else { k / 2.0 + 8.0 };
        for i in 0..rows {
            let exact: Vec<f64> = row(x, i).iter().map(|&x| x.into()).collect();
            let (_, r) = oracle::center_and_scale(learned.norm, &exact, eps);
            let r = if columns == 0 { 0.0 } else { r };
            let error = (f64::from(scale[i]) - r).abs();
            assert!(error <= UNIT * k * r + 1.5e-45, "{isa}: r is {} for {r}", scale[i]);
            for j in 0..columns {
                let z = oracle::standard(learned.norm, &exact, eps, j);
                let error = (f64::from(standard.at(i, j)) - z).abs();
                let far = if learned.norm == Norm::Layer { z.abs() + 2.0 } else { z.abs() };
                assert!(error <= UNIT * k * far + 1.5e-45, "{isa}: {} for {z}", standard.at(i, j));
            }
        }

        let (standard, scale) = common.get_or_insert((standard, scale));
        let saved = SavedNorm { standard: standard.view(), scale };
        let backward = |d_out, write, d_x| learned.backward(isa, saved, d_out, write, d_x, SERIAL);
        let from = Input::Matrix(d_out.view());
        let stored = backward(from, WriteMode::Store, poison(rows, columns, gap + 1));
        let over = backward(Input::Output, WriteMode::Store, d_out.clone());
        same(&dense(&over), &dense(&stored), "backward in place");
        for (from, before) in [(from, x), (Input::Output, d_out)] {
            let added = backward(from, WriteMode::Add, before.clone());
            let sum: Vec<f32> = dense(before)
                .iter()
                .zip(dense(&stored))
                .map(|(before, new)| before + new)
                .collect();
            same(&dense(&added), &sum, "added");
        }
        for i in 0..rows {
            let g = learned.g(&row(d_out, i));
            let z = row(standard, i);
            let n = columns as f64;
            let mean = g.iter().map(|g| g.abs()).sum::<f64>() / n;
            let mean = if learned.norm == Norm::Layer { mean } else { 0.0 };
            let along = g.iter().zip(&z).map(|(g, &z)| (g * f64::from(z)).abs()).sum::<f64>() / n;
            let k = (columns / 64 + 15) as f64;
            for j in 0..columns {
                let exact = oracle::backward_of_standard(learned.norm, &z, scale[i], &g, j);
                let size = g[j].abs() + mean + f64::from(z[j]).abs() * along;
                let bound = UNIT * k * f64::from(scale[i]) * size;
                let error = (f64::from(stored.at(i, j)) - exact).abs();
                let found = stored.at(i, j);
                assert!(error <= bound, "{isa}: {found} for {exact}, off by {error:e}, {bound:e}");
            }
            let simulated = learned.simulated(&z, scale[i], &row(d_out, i));
            same(&row(&stored, i), &simulated, "64 lanes in halves");
        }
        let all = [dense(&out), scale.clone(), dense(standard), dense(&stored)].concat();
        same(&all, first.get_or_insert_with(|| all.clone()), "on every instruction set");
    }
}

fn batch(seed: u64, rows: usize, columns: usize, gap: usize, mean: f32) -> (Strided, Strided) {
    let mut random = Random::new(seed);
    let mut matrix = |gap: usize, mean: f32| {
        Strided::new(rows, columns, (columns + gap, 1), |_, _| 2.0 * random.value() + mean)
    };
    (matrix(gap, mean), matrix(gap + 3, 0.1))
}

fn learned(norm: Norm, seed: u64, columns: usize, biased: bool, eps: f32) -> Learned {
    let mut random = Random::new(!seed);
    let weight = random.values(columns);
    let bias = (biased && norm == Norm::Layer).then(|| random.values(columns));
    Learned { norm, weight, bias, eps }
}

proptest! {
    #[test]
    fn batches_match_the_oracle(
        rows in 0usize..5,
        columns in 0usize..300,
        gap in 0usize..4,
        mean in prop_oneof![Just(0.0f32), Just(-10.0), Just(1e3)],
        eps in prop_oneof![Just(1e-12f32), Just(1e-5)],
        biased: bool,
        seed: u64,
    ) {
        let (x, d_out) = batch(seed, rows, columns, gap, mean);
        for norm in BOTH {
            check(&learned(norm, seed, columns, biased, eps), &x, &d_out, gap);
        }
    }
}

#[test]
fn rows_of_every_width() {
    for columns in 1..260 {
        let (x, d_out) = batch(columns as u64, 3, columns, 1, 0.2);
        for norm in BOTH {
            check(&learned(norm, 9, columns, columns % 2 == 0, 1e-5), &x, &d_out, 1);
        }
    }
}

/// The gradient from the input on, through the saved values.
#[test]
fn gradients_from_the_input_match_the_oracle() {
    for norm in BOTH {
        for columns in [2, 17, 64, 130, 512] {
            let (x, d_out) = batch(4, 3, columns, 0, 0.3);
            let learned = learned(norm, 5, columns, true, 1e-5);
            for isa in all_isas() {
                let Passed { scale, d_x, .. } =
                    learned.forward_backward(isa, (&x, &d_out), WriteMode::Store, SERIAL);
                for i in 0..3 {
                    let exact: Vec<f64> = row(&x, i).iter().map(|&x| x.into()).collect();
                    let g = learned.g(&row(&d_out, i));
                    let z: Vec<f64> = (0..columns)
                        .map(|j| oracle::standard(norm, &exact, 1e-5f32.into(), j))
                        .collect();
                    let mean = |f: &dyn Fn(usize) -> f64| {
                        (0..columns).map(f).sum::<f64>() / columns as f64
                    };
                    let (mean_g, mean_gz) = (mean(&|j| g[j].abs()), mean(&|j| (g[j] * z[j]).abs()));
                    // The standardized values are off by k (|z| + 2) u, the scale by k
                    // u of itself. Then the error of the kernel.
                    let k = (columns / 64) as f64 + 8.0;
                    for j in 0..columns {
                        let exact = oracle::backward(norm, &exact, 1e-5f32.into(), &g, j);
                        let size = g[j].abs() + mean_g + z[j].abs() * mean_gz;
                        let scores = (z[j].abs() + 2.0) * mean_gz
                            + z[j].abs() * mean(&|j| g[j].abs() * (z[j].abs() + 2.0));
                        let own = (columns / 64 + 15) as f64;
                        let bound = UNIT
                            * f64::from(scale[i])
                            * 1.01
                            * (own * size + k * size + k * scores);
                        let error = (f64::from(d_x.at(i, j)) - exact).abs();
                        assert!(error <= bound, "{isa}: off by {error:e}, {bound:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn threads_and_other_rows_do_not_change_a_bit() {
    for norm in BOTH {
        for (rows, columns) in [(700, 100), (90, 513), (7, 9000)] {
            let (x, d_out) = batch(6, rows, columns, 0, 0.3);
            let learned = learned(norm, 7, columns, true, 1e-5);
            for isa in all_isas() {
                let all = |crew: Parallelism<'_>| {
                    learned.forward_backward(isa, (&x, &d_out), WriteMode::Add, crew).all()
                };
                let expected = bits(&all(SERIAL));
                for crew in CREWS {
                    assert!(
                        bits(&crew.with_parallelism(all)) == expected,
                        "{isa} {norm:?} {crew:?}"
                    );
                }
                // A row alone.
                let last = rows - 1;
                let one = |m: &Strided| {
                    let values = row(m, last);
                    Strided::new(1, columns, (columns, 1), |_, j| values[j])
                };
                let (x, d_out) = (one(&x), one(&d_out));
                let passed = learned.forward_backward(isa, (&x, &d_out), WriteMode::Add, SERIAL);
                let found = bits(&dense(&passed.d_x));
                assert_eq!(found, expected[expected.len() - columns..], "{isa} {norm:?} alone");
            }
        }
    }
}

#[test]
fn rows_without_variance_have_no_gradient() {
    for norm in BOTH {
        let learned = learned(norm, 3, 37, true, 0.0);
        for value in [0.0, 1e-30, 3.0, 1e30] {
            if norm == Norm::Rms && value != 0.0 {
                continue;
            }
            let x = Strided::new(2, 37, (37, 1), |i, j| if i == 0 { value } else { j as f32 });
            let (_, d_out) = batch(3, 2, 37, 0, 0.0);
            for isa in all_isas() {
                let Passed { standard, scale, d_x, .. } =
                    learned.forward_backward(isa, (&x, &d_out), WriteMode::Store, SERIAL);
                assert_eq!(scale[0], 0.0);
                assert_eq!(row(&standard, 0), [0.0; 37], "{isa}: {value}");
                assert_eq!(row(&d_x, 0), [0.0; 37], "{isa}: {value}");
                assert!(row(&d_x, 1).iter().all(|x| x.is_finite() && *x != 0.0));
            }
        }
    }
}

/// The squares of such rows overflow or underflow in f32; standardized values and gradients do not.
#[test]
fn rows_of_1e30_and_of_1e_30_have_finite_gradients() {
    for norm in BOTH {
        for magnitude in [1e19f32, 1e30, 1e38, 1e-16, 1e-20, 1e-30] {
            let mut random = Random::new(12);
            let x = Strided::new(3, 70, (71, 1), |_, _| random.value() * magnitude);
            // Gradients that the scale brings back into the range of f32.
            let (_, unit) = batch(2, 3, 70, 0, 0.0);
            let back = if magnitude > 1.0 { magnitude.min(1e30) } else { 1.0 };
            let d_out = Strided::new(3, 70, (70, 1), |i, j| unit.at(i, j) * back);
            check(&learned(norm, 8, 70, true, 0.0), &x, &d_out, 2);
        }
        // The inverse of the standard deviation overflows f32.
        let x = Strided::new(1, 4, (4, 1), |_, j| f32::from_bits(j as u32));
        let learned = Learned { norm, weight: vec![1.0; 4], bias: None, eps: 0.0 };
        let zero = Strided::new(1, 4, (4, 1), |_, _| 0.0);
        for isa in all_isas() {
            let Passed { scale, d_x, .. } =
                learned.forward_backward(isa, (&x, &zero), WriteMode::Store, SERIAL);
            assert_eq!(scale, [f32::MAX]);
            assert_eq!(dense(&d_x), [0.0; 4]);
        }
    }
}

#[test]
fn a_row_that_is_not_finite_affects_no_other() {
    for norm in BOTH {
        for n in [1, 5, 33, 100] {
            let learned = learned(norm, 3, n, true, 1e-5);
            let (clean, d_out) = batch(3, 3, n, 0, 0.0);
            for isa in all_isas() {
                let run = |x: &Strided, d_out: &Strided| {
                    learned.forward_backward(isa, (x, d_out), WriteMode::Store, SERIAL).d_x
                };
                let expected = run(&clean, &d_out);
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    for spoilt in 0..2 {
                        let (mut x, mut d_out) = (clean.clone(), d_out.clone());
                        let spoilt = if spoilt == 0 { &mut x } else { &mut d_out };
                        spoilt.data[spoilt.row_stride + n / 2] = bad;
                        let found = run(&x, &d_out);
                        let lost = row(&found, 1).iter().all(|x| !x.is_finite());
                        assert!(lost, "{isa} {norm:?} {n}");
                        for other in [0, 2] {
                            same(&row(&found, other), &row(&expected, other), "another row");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn wrong_calls_are_errors_and_write_nothing() {
    let isa = Isa::best();
    let four = [1.0; 4];
    let norm = LayerNorm { weight: &four, bias: None, eps: 1e-5 };
    let data = [0.0; 12];
    let (m, turned) =
        (Matrix::new(&data, 3, 4).expect("m"), Matrix::new(&data, 4, 3).expect("turned"));
    let call = |norm: LayerNorm<'_>, x: Matrix<'_>, standard: [usize; 2], scales: usize| {
        let (mut a, mut b, mut c) = ([POISON; 12], [POISON; 12], [POISON; 12]);
        let [rows, columns] = standard;
        let to = MatrixMut::new(&mut a, rows, columns).expect("standard");
        let out = MatrixMut::new(&mut b, 3, 4).expect("out");
        let (norm, x) = (norm::Norm::Layer(norm), Input::Matrix(x));
        let found = norm_forward_save(Exec::serial(isa), norm, x, to, &mut c[..scales], out);
        for x in a.iter().chain(&b).chain(&c) {
            assert_eq!(x.to_bits(), POISON.to_bits());
        }
        found.expect_err("a wrong call")
    };
    let shape = |operand| errors::shape(operand, [3, 4], [4, 3]);
    assert_eq!(call(norm, turned, [3, 4], 3), shape("x"));
    assert_eq!(call(norm, m, [4, 3], 3), shape("standard"));
    assert_eq!(call(norm, turned.transposed(), [3, 4], 3), errors::strided("x", 3));
    assert_eq!(call(norm, m, [3, 4], 2), errors::len("scale", 3, 2));
    let short = LayerNorm { weight: &four[1..], ..norm };
    assert_eq!(call(short, m, [3, 4], 3), errors::len("weight", 4, 3));
    let error = call(LayerNorm { eps: -1.0, ..norm }, m, [3, 4], 3);
    assert_eq!(error.to_string(), "eps: expected finite and at least 0, found -1");

    let mut out = [POISON; 12];
    let view = MatrixMut::new(&mut out, 3, 4).expect("out");
    let norm = norm::Norm::Layer(norm);
    let error = norm_recompute(Exec::serial(isa), norm, turned, view);
    assert_eq!(error, Err(shape("standard")));
    for (standard, scales, d_out, expected) in [
        (turned, 3, m, shape("standard")),
        (m, 3, turned, shape("d_out")),
        (m, 4, m, errors::len("scale", 3, 4)),
    ] {
        let view = MatrixMut::new(&mut out, 3, 4).expect("out");
        let saved = SavedNorm { standard, scale: &data[..scales] };
        let d_out = Input::Matrix(d_out);
        let found = norm_backward(Exec::serial(isa), norm, saved, d_out, WriteMode::Store, view);
        assert_eq!(found, Err(expected));
    }
    assert_eq!(bits(&out), bits(&[POISON; 12]));
}
