//! The GEMM against its oracle, on every instruction set of the machine.
//!
//! Three kinds of evidence: sums of small integers, which f32 holds exactly, so that every bit must
//! be right; real numbers within the documented bound and, on average, much closer; and bits that
//! must not depend on the rest of the batch or on threads.
#![cfg(feature = "rayon")]

mod support;

use proptest::prelude::*;
use simdformer_kernels::activation::apply;
use simdformer_kernels::{
    Activation, Epilogue, GemmError, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Residual,
    ViewError, gemm, reference,
};
use std::collections::BTreeSet;
use support::{CREWS, POISON, Random, Strided, UNIT, all_isas, bits, brief, difference};

const ACTIVATIONS: &[Activation] = &Activation::ALL;

/// A weight matrix in a buffer of exactly its packed length, of which every float was poison.
struct Packed {
    isa: Isa,
    depth: usize,
    columns: usize,
    data: Vec<f32>,
}

impl Packed {
    fn new(isa: Isa, weight: Matrix<'_>) -> Self {
        let (depth, columns) = (weight.rows(), weight.columns());
        let mut data = vec![POISON; PackedMatrix::len(isa, depth, columns).expect("a small size")];
        PackedMatrix::pack(isa, weight, &mut data).expect("a buffer of the packed length");
        Self { isa, depth, columns, data }
    }

    fn get(&self) -> PackedMatrix<'_> {
        PackedMatrix::from_packed(self.isa, self.depth, self.columns, &self.data)
            .expect("a packed matrix")
    }
}

/// `gemm` without epilogue of dense `a`, `[rows, depth]`, into a new dense output full of poison.
fn product(
    a: &[f32],
    rows: usize,
    weight: &PackedMatrix<'_>,
    parallelism: Parallelism<'_>,
) -> Vec<f32> {
    let mut c = vec![POISON; rows * weight.columns()];
    gemm(
        Matrix::new(a, rows, weight.depth()).expect("A is that large"),
        weight,
        &Epilogue::default(),
        MatrixMut::new(&mut c, rows, weight.columns()).expect("C is that large"),
        parallelism,
    )
    .expect("shapes that fit");
    c
}

/// Every `M`, `N`, `K` in `1..=70`: A, W and C are corners of larger buffers, poison elsewhere.
#[test]
fn small_integers_are_exact_in_every_shape_up_to_70() {
    const MAX: usize = 70;
    const A_ROW: usize = MAX + 5;
    const C_GAP: usize = 3;
    let sizes = |dense: bool| -> Vec<usize> {
        (1..=MAX).filter(|n| dense || n % 7 == 0 || [1, 15, 16, 17, 65].contains(n)).collect()
    };
    let depths = sizes(!brief());
    let others = sizes(!brief());
    for isa in all_isas() {
        let mut random = Random::new(70);
        let full_a = random.integers(MAX * MAX, 16);
        let full_w = random.integers(MAX * MAX, 16);
        let mut a = vec![POISON; MAX * A_ROW];
        let mut w = vec![POISON; MAX * A_ROW];
        let mut expected = vec![0i32; MAX * MAX];
        let mut packed = vec![0.0f32; PackedMatrix::len(isa, MAX, MAX).expect("a small size")];
        let mut c = vec![POISON; MAX * (MAX + C_GAP)];
        for depth in 1..=MAX {
            // Column `depth - 1` of A and row `depth - 1` of W come into being, and their product
            // joins the sums; what lies behind them is still poison.
            let k = depth - 1;
            for i in 0..MAX {
                a[i * A_ROW + k] = full_a[i * MAX + k];
                w[k * A_ROW + i] = full_w[k * MAX + i];
                for j in 0..MAX {
                    expected[i * MAX + j] +=
                        full_a[i * MAX + k] as i32 * full_w[k * MAX + j] as i32;
                }
            }
            if !depths.contains(&depth) {
                continue;
            }
            for &columns in &others {
                let weight = Matrix::strided(&w, depth, columns, A_ROW, 1).expect("inside W");
                let packed = PackedMatrix::pack(isa, weight, &mut packed).expect("room");
                for &rows in &others {
                    let stride = columns + C_GAP;
                    let c = &mut c[..rows * stride];
                    c.fill(POISON);
                    gemm(
                        Matrix::strided(&a, rows, depth, A_ROW, 1).expect("inside A"),
                        &packed,
                        &Epilogue::default(),
                        MatrixMut::strided(c, rows, columns, stride, 1).expect("inside C"),
                        Parallelism::Serial,
                    )
                    .expect("shapes that fit");
                    let right = c.chunks_exact(stride).enumerate().all(|(i, line)| {
                        let (row, gap) = line.split_at(columns);
                        let expected = &expected[i * MAX..][..columns];
                        row.iter().zip(expected).all(|(&x, &sum)| x == sum as f32)
                            && gap.iter().all(|x| x.to_bits() == POISON.to_bits())
                    });
                    assert!(right, "{isa}: wrong in {rows} x {columns} x {depth}");
                }
            }
        }
    }
}

/// Exact sums of `a`, `[rows, depth]`, and `w`, `[depth, columns]`: products of integers up to 8 and
/// depths up to 2^16 stay below 2^24.
fn integer_product(a: &[f32], w: &[f32], rows: usize, depth: usize, columns: usize) -> Vec<f32> {
    let mut sums = vec![0i32; rows * columns];
    for i in 0..rows {
        let sums = &mut sums[i * columns..][..columns];
        for k in 0..depth {
            let x = a[i * depth + k] as i32;
            for (sum, &y) in sums.iter_mut().zip(&w[k * columns..][..columns]) {
                *sum += x * y as i32;
            }
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// Depths around the block of `k` (2048) and row counts around the tile (6) and the block of rows
/// (96) and column counts around panels of every instruction set.
#[test]
fn small_integers_are_exact_around_every_block_edge() {
    let mut shapes = BTreeSet::new();
    for depth in [2047, 2048, 2049, 4095, 4096, 4097, 6150] {
        for rows in [1, 2, 6, 7, 13, 95, 96, 97, 193] {
            for columns in [1, 17, 65] {
                shapes.insert((rows, columns, depth));
            }
        }
    }
    for depth in [255, 511, 512, 513, 1025] {
        for rows in [18, 19, 24, 25, 191, 192, 193] {
            for columns in [17, 129] {
                shapes.insert((rows, columns, depth));
            }
        }
    }
    for rows in [5, 6, 7, 11, 12, 13, 18, 19, 95, 96, 97, 191, 192, 193, 385] {
        for columns in [7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 193, 300] {
            shapes.insert((rows, columns, 37));
        }
    }
    shapes.insert((1, 8, 1 << 16));
    shapes.insert((7, 8, 1 << 16));
    for (index, (rows, columns, depth)) in shapes.into_iter().enumerate() {
        if brief() && index % 16 != 0 {
            continue;
        }
        let mut random = Random::new(index as u64);
        let a = random.integers(rows * depth, 8);
        let w = random.integers(depth * columns, 8);
        let expected = integer_product(&a, &w, rows, depth, columns);
        for isa in all_isas() {
            let packed = Packed::new(isa, Matrix::new(&w, depth, columns).expect("W"));
            let found = product(&a, rows, &packed.get(), Parallelism::Serial);
            if let Some(difference) = difference(&found, &expected) {
                panic!("{isa}, {rows} x {columns} x {depth}: {difference}");
            }
        }
    }
}

/// One case of [`every_epilogue_and_layout_is_within_its_bound`].
#[derive(Clone, Debug)]
struct Case {
    rows: usize,
    depth: usize,
    columns: usize,
    /// Gap between rows of A, W, C and the residual, and whether each is laid column by column.
    layouts: [(usize, bool); 4],
    /// Elements between neighbours in C.
    spread: usize,
    scale: f32,
    bias: bool,
    activation: usize,
    residual: usize,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let size = || prop_oneof![3 => 0usize..=70, 1 => 90usize..=200];
    let layout = || (0usize..=4, any::<bool>());
    (
        (size(), prop_oneof![6 => 0usize..=70, 2 => 71usize..=300, 1 => 2040usize..=2060], size()),
        [layout(), layout(), layout(), layout()],
        prop_oneof![3 => Just(1usize), 1 => 2usize..=3],
        prop_oneof![2 => Just(1.0f32), 1 => -3.0f32..3.0, 1 => Just(0.0)],
        any::<bool>(),
        0..ACTIVATIONS.len(),
        0usize..3,
        any::<u64>(),
    )
        .prop_map(
            |((rows, depth, columns), layouts, spread, scale, bias, activation, residual, seed)| {
                Case {
                    rows,
                    depth,
                    columns,
                    layouts,
                    spread,
                    scale,
                    bias,
                    activation,
                    residual,
                    seed,
                }
            },
        )
}

fn strides(
    rows: usize,
    columns: usize,
    (gap, by_column): (usize, bool),
    spread: usize,
) -> (usize, usize) {
    if by_column {
        (spread, spread * rows.max(1) + gap)
    } else {
        (spread * columns.max(1) + gap, spread)
    }
}

fn check_case(isa: Isa, case: &Case) {
    let Case { rows, depth, columns, .. } = *case;
    let mut random = Random::new(case.seed);
    let [a_layout, w_layout, c_layout, r_layout] = case.layouts;
    let a = Strided::new(rows, depth, strides(rows, depth, a_layout, 1), |_, _| random.value());
    let w =
        Strided::new(depth, columns, strides(depth, columns, w_layout, 1), |_, _| random.value());
    let residual =
        Strided::new(rows, columns, strides(rows, columns, r_layout, 1), |_, _| random.value());
    let bias = random.values(columns);
    // Only a residual that is the output may look at what the output holds.
    let output = case.residual == 1;
    let mut c =
        Strided::new(rows, columns, strides(rows, columns, c_layout, case.spread), |_, _| {
            if output { random.value() } else { POISON }
        });
    let before = c.clone();
    let epilogue = Epilogue {
        scale: case.scale,
        bias: case.bias.then_some(bias.as_slice()),
        activation: ACTIVATIONS[case.activation],
        residual: match case.residual {
            0 => Residual::None,
            1 => Residual::Output,
            _ => Residual::Matrix(residual.view()),
        },
    };
    let packed = Packed::new(isa, w.view());
    gemm(a.view(), &packed.get(), &epilogue, c.view_mut(), Parallelism::Serial).expect("a fit");

    let mut exact = vec![0.0; rows * columns];
    let mut magnitude = vec![0.0; rows * columns];
    reference::gemm::gemm(
        a.view(),
        w.view(),
        &epilogue,
        Some(before.view()),
        &mut exact,
        &mut magnitude,
    )
    .expect("the same shapes");
    for i in 0..rows {
        for j in 0..columns {
            let at = i * columns + j;
            let error = (f64::from(c.at(i, j)) - exact[at]).abs();
            let rounding = (2.0 * depth as f64 + 4.0) * UNIT * magnitude[at] + 1e-37;
            let bound = match epilogue.activation {
                Activation::Identity | Activation::Relu => rounding,
                // The steepest slope is GELU's, 1.13; then the function's own error.
                _ => 1.2 * rounding + 1e-6 + 7e-7 * exact[at].abs(),
            };
            assert!(
                error <= bound,
                "{isa}: C[{i}, {j}] is {}, exactly {}: error {error:e} > {bound:e} in {case:?}",
                c.at(i, j),
                exact[at],
            );
        }
    }
    c.check_gaps();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_epilogue_and_layout_is_within_its_bound(case in cases()) {
        for isa in all_isas() {
            check_case(isa, &case);
        }
    }
}

/// All combinations, in one shape that has a whole panel and an edge on every instruction set.
#[test]
fn every_combination_of_epilogues() {
    for isa in all_isas() {
        for scale in [1.0, 0.125, -1.7] {
            for bias in [false, true] {
                for activation in 0..ACTIVATIONS.len() {
                    for residual in 0..3 {
                        for spread in [1, 2] {
                            let case = Case {
                                rows: 8,
                                depth: 19,
                                columns: 70,
                                layouts: [(3, false), (2, true), (1, false), (4, spread == 2)],
                                spread,
                                scale,
                                bias,
                                activation,
                                residual,
                                seed: 5,
                            };
                            check_case(isa, &case);
                        }
                    }
                }
            }
        }
    }
}

/// The worst-case bound grows with K and would hide a kernel that drops digits. The roundings of an
/// honest one are random: relative to the sum of magnitudes, their mean grows with the root of K
/// where all terms are positive, and stays below one unit where signs are mixed, since the partial
/// sums then grow with the root of K as well.
#[test]
fn errors_are_on_average_those_of_random_rounding() {
    for isa in all_isas() {
        for (depth, positive) in
            [64, 512, 2048, 4096].into_iter().flat_map(|depth| [(depth, false), (depth, true)])
        {
            let (rows, columns) = (7, 67);
            let mut random = Random::new(depth as u64);
            let mut a = random.values(rows * depth);
            let mut w = random.values(depth * columns);
            if positive {
                a.iter_mut().chain(&mut w).for_each(|x| *x = x.abs());
            }
            let a_view = Matrix::new(&a, rows, depth).expect("A");
            let w_view = Matrix::new(&w, depth, columns).expect("W");
            let packed = Packed::new(isa, w_view);
            let found = product(&a, rows, &packed.get(), Parallelism::Serial);
            let (mut exact, mut magnitude) = (vec![0.0; found.len()], vec![0.0; found.len()]);
            let epilogue = Epilogue::default();
            reference::gemm::gemm(a_view, w_view, &epilogue, None, &mut exact, &mut magnitude)
                .expect("the same shapes");
            let mean: f64 = found
                .iter()
                .zip(&exact)
                .zip(&magnitude)
                .map(|((&x, &exact), &magnitude)| (f64::from(x) - exact).abs() / magnitude)
                .sum::<f64>()
                / found.len() as f64
                / UNIT;
            let bound = if positive { (depth as f64).sqrt() } else { 1.0 };
            println!(
                "{isa}, K {depth}, positive {positive}: mean error {mean:.3} units of {bound}"
            );
            assert!(mean <= bound, "{isa}, K {depth}: mean error {mean} > {bound} units");
            // Nor can it be zero: then the oracle would be looking at itself.
            assert!(mean > 0.0);
        }
    }
}

/// Sums that cancel almost entirely: the bound is relative to the terms, not to the result.
#[test]
fn cancellation_stays_within_the_bound() {
    for isa in all_isas() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (rows, half, columns) = (5, 1 + random.below(300), 33);
            let depth = 2 * half;
            // Terms come in pairs that differ in the last digits only, far apart in k.
            let mut a = vec![0.0; rows * depth];
            for line in a.chunks_exact_mut(depth) {
                for k in 0..half {
                    line[k] = random.value() * 2f32.powi(random.below(30) as i32 - 15);
                    line[depth - 1 - k] = -line[k] * (1.0 + random.value() * 1e-6);
                }
            }
            let mut w = vec![0.0; depth * columns];
            for k in 0..half {
                for j in 0..columns {
                    let x = random.value();
                    w[k * columns + j] = x;
                    w[(depth - 1 - k) * columns + j] = x;
                }
            }
            let (a_view, w_view) = (
                Matrix::new(&a, rows, depth).expect("A"),
                Matrix::new(&w, depth, columns).expect("W"),
            );
            let packed = Packed::new(isa, w_view);
            let found = product(&a, rows, &packed.get(), Parallelism::Serial);
            let (mut exact, mut magnitude) = (vec![0.0; found.len()], vec![0.0; found.len()]);
            let epilogue = Epilogue::default();
            reference::gemm::gemm(a_view, w_view, &epilogue, None, &mut exact, &mut magnitude)
                .expect("the same shapes");
            for ((&x, exact), magnitude) in found.iter().zip(exact).zip(magnitude) {
                let error = (f64::from(x) - exact).abs();
                assert!(error <= 2.0 * depth as f64 * UNIT * magnitude, "{isa}: {x} for {exact}");
            }
        }
    }
}

#[test]
fn zero_sizes_write_what_the_formula_says() {
    for isa in all_isas() {
        for (rows, depth, columns) in [
            (0, 0, 0),
            (0, 5, 7),
            (3, 0, 7),
            (1, 0, 70),
            (3, 5, 0),
            (0, 0, 7),
            (9, 0, 1),
            (3, 0, 0),
        ] {
            for (activation, residual) in [(0, 0), (1, 0), (0, 1), (1, 2)] {
                let case = Case {
                    rows,
                    depth,
                    columns,
                    layouts: [(0, false), (0, false), (2, false), (0, true)],
                    spread: 1,
                    scale: 2.0,
                    bias: true,
                    activation,
                    residual,
                    seed: 1,
                };
                check_case(isa, &case);
            }
        }
    }
}

#[test]
fn nan_and_infinity_propagate_to_their_row_or_column_only() {
    for isa in all_isas() {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (rows, depth, columns) = (9, 21, 70);
            let mut random = Random::new(3);
            let mut a = random.values(rows * depth);
            let w: Vec<f32> = random.values(depth * columns).iter().map(|x| x + 1.5).collect();
            let packed = Packed::new(isa, Matrix::new(&w, depth, columns).expect("W"));
            let clean = product(&a, rows, &packed.get(), Parallelism::Serial);
            a[4 * depth + 20] = special;
            let found = product(&a, rows, &packed.get(), Parallelism::Serial);
            for (at, (x, clean)) in found.iter().zip(&clean).enumerate() {
                if at / columns != 4 {
                    assert_eq!(x.to_bits(), clean.to_bits(), "{isa}: row {} changed", at / columns);
                } else if special.is_nan() {
                    assert!(x.is_nan());
                } else {
                    assert_eq!(*x, special, "{isa}: W is positive");
                }
            }
        }
    }
}

/// An activation in the epilogue is the activation alone, bit for bit: in its tails, at NaN and
/// infinity, in whole panels and at edges.
#[test]
fn an_activation_in_the_epilogue_is_the_activation_alone() {
    let mut sums = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0];
    for x in [1e-40, 1e-3, 0.5, 1.0, 5.0, 10.0, 20.0, 40.0, 1e4, 1e30] {
        sums.extend([x, -x]);
    }
    for isa in all_isas() {
        for &activation in ACTIVATIONS {
            for columns in [1, 3, 64, 70] {
                let rows = sums.len();
                let ones = vec![1.0; columns];
                let packed = Packed::new(isa, Matrix::new(&ones, 1, columns).expect("W"));
                let run = |activation| {
                    let mut c = vec![POISON; rows * columns];
                    gemm(
                        Matrix::new(&sums, rows, 1).expect("A"),
                        &packed.get(),
                        &Epilogue { activation, ..Epilogue::default() },
                        MatrixMut::new(&mut c, rows, columns).expect("C"),
                        Parallelism::Serial,
                    )
                    .expect("shapes that fit");
                    c
                };
                let found = run(activation);
                let mut expected = run(Activation::Identity);
                let view = MatrixMut::new(&mut expected, rows, columns).expect("C");
                apply(isa, activation, view, Parallelism::Serial).expect("contiguous rows");
                for (at, (x, y)) in found.iter().zip(&expected).enumerate() {
                    let sum = sums[at / columns];
                    assert!(
                        x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()),
                        "{isa}: {activation:?}({sum:e}) is {x:e} fused, {y:e} alone"
                    );
                    assert_eq!(x.is_nan(), sum.is_nan(), "{isa}: {activation:?}({sum:e}) is {x:e}");
                }
            }
        }
    }
}

#[test]
fn packing_in_pieces_and_transposed_gives_the_same_bytes() {
    for isa in all_isas() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let (depth, columns) = (random.below(60), random.below(200));
            let layout = (random.below(5), random.below(2) == 0);
            let w = Strided::new(depth, columns, strides(depth, columns, layout, 1), |_, _| {
                random.value()
            });
            let whole = Packed::new(isa, w.view());
            // The documented layout, element by element.
            let panel = isa.panel();
            for (at, &x) in whole.data.iter().enumerate() {
                let column = at / (panel * depth) * panel + at % panel;
                let k = at / panel % depth;
                let expected = if column < columns { w.at(k, column) } else { 0.0 };
                assert_eq!(
                    x.to_bits(),
                    expected.to_bits(),
                    "{isa}: {k}, {column} of {depth} x {columns}"
                );
            }
            let dense = Strided::new(columns, depth, (depth, 1), |j, k| w.at(k, j));
            let transposed = Packed::new(isa, dense.view().transposed());
            assert_eq!(bits(&whole.data), bits(&transposed.data));
            let mut pieces = vec![POISON; whole.data.len() + 3];
            let mut first = 0;
            loop {
                let count = random.below(columns - first + 1).max(usize::from(first < columns));
                let data = &w.data[(first * w.column_stride).min(w.data.len())..];
                let block = Matrix::strided(data, depth, count, w.row_stride, w.column_stride)
                    .expect("inside W");
                PackedMatrix::pack_block(isa, block, (depth, columns), first, &mut pieces)
                    .expect("a block that fits");
                first += count;
                if first == columns {
                    break;
                }
            }
            let (pieces, rest) = pieces.split_at(whole.data.len());
            assert_eq!(bits(&whole.data), bits(pieces), "{isa}: {depth} x {columns} in pieces");
            assert!(rest.iter().all(|x| x.to_bits() == POISON.to_bits()));
        }
    }
}

/// A block of columns packed later replaces that block and nothing else.
#[test]
fn packing_a_block_leaves_its_neighbours() {
    for isa in all_isas() {
        let (depth, columns) = (11, 130);
        let mut random = Random::new(9);
        let w = random.values(depth * columns);
        let mut packed = Packed::new(isa, Matrix::new(&w, depth, columns).expect("W"));
        let other = random.values(depth * 5);
        let block = Matrix::new(&other, depth, 5).expect("a block");
        PackedMatrix::pack_block(isa, block, (depth, columns), 62, &mut packed.data)
            .expect("a fit");
        let mut changed = w.clone();
        for k in 0..depth {
            changed[k * columns + 62..][..5].copy_from_slice(&other[k * 5..][..5]);
        }
        let expected = Packed::new(isa, Matrix::new(&changed, depth, columns).expect("W"));
        assert_eq!(bits(&packed.data), bits(&expected.data), "{isa}");
    }
}

/// Promise 5: a row's bits depend on nothing but the row, W and the epilogue.
#[test]
fn a_row_alone_has_the_bits_it_has_in_any_batch_on_any_threads() {
    let rounds = if brief() { 4 } else { 24 };
    for isa in all_isas() {
        for seed in 0..rounds {
            let mut random = Random::new(1000 + seed);
            let rows = 1 + random.below(120);
            let columns = 1 + random.below(400);
            let depth = if seed % 4 == 0 { 2030 + random.below(60) } else { 1 + random.below(400) };
            let a = random.values(rows * depth);
            let w = random.values(depth * columns);
            let bias = random.values(columns);
            let before = random.values(rows * columns);
            let packed = Packed::new(isa, Matrix::new(&w, depth, columns).expect("W"));
            let run = |a: &[f32], before: &[f32], parallelism: Parallelism<'_>| {
                let rows = a.len() / depth;
                let mut c = before.to_vec();
                let epilogue = Epilogue {
                    scale: 0.7,
                    bias: Some(&bias),
                    activation: ACTIVATIONS[seed as usize % ACTIVATIONS.len()],
                    residual: Residual::Output,
                };
                gemm(
                    Matrix::new(a, rows, depth).expect("A"),
                    &packed.get(),
                    &epilogue,
                    MatrixMut::new(&mut c, rows, columns).expect("C"),
                    parallelism,
                )
                .expect("shapes that fit");
                c
            };
            let together = run(&a, &before, Parallelism::Serial);
            for i in 0..rows {
                let alone = run(
                    &a[i * depth..][..depth],
                    &before[i * columns..][..columns],
                    Parallelism::Serial,
                );
                if let Some(difference) = difference(&alone, &together[i * columns..][..columns]) {
                    panic!("{isa}: row {i} of {rows} x {columns} x {depth} alone: {difference}");
                }
            }
            for crew in CREWS {
                let found = crew.run(|parallelism| run(&a, &before, parallelism));
                if let Some(difference) = difference(&found, &together) {
                    panic!("{isa}: {rows} x {columns} x {depth}, {crew:?}: {difference}");
                }
            }
        }
    }
}

/// A neighbour's contents, even NaN, cannot reach a row; nor can the position in the batch.
#[test]
fn neighbours_do_not_reach_a_row() {
    for isa in all_isas() {
        for depth in [5, 64, 2100] {
            let (rows, columns) = (14, 75);
            let mut random = Random::new(depth as u64);
            let row = random.values(depth);
            let w = random.values(depth * columns);
            let packed = Packed::new(isa, Matrix::new(&w, depth, columns).expect("W"));
            let alone = product(&row, 1, &packed.get(), Parallelism::Serial);
            for place in 0..rows {
                let mut a = vec![f32::NAN; rows * depth];
                a[place * depth..][..depth].copy_from_slice(&row);
                let found = product(&a, rows, &packed.get(), Parallelism::Serial);
                let found = &found[place * columns..][..columns];
                assert_eq!(difference(found, &alone), None, "{isa}: row {place}");
            }
        }
    }
}

/// FMA sets keep the same order of `k`, so they agree in every bit.
#[test]
fn instruction_sets_with_fma_agree_bitwise() {
    let fused: Vec<Isa> = all_isas().into_iter().filter(|&isa| isa != Isa::SCALAR).collect();
    let (rows, depth, columns) = (13, 2100, 83);
    let mut random = Random::new(17);
    let a = random.values(rows * depth);
    let w = random.values(depth * columns);
    // The definition of that order, one fused multiply-add at a time.
    let mut expected = vec![0.0f32; rows * columns];
    for i in 0..rows {
        for j in 0..columns {
            for k in 0..depth {
                let sum = &mut expected[i * columns + j];
                *sum = a[i * depth + k].mul_add(w[k * columns + j], *sum);
            }
        }
    }
    for isa in fused {
        let packed = Packed::new(isa, Matrix::new(&w, depth, columns).expect("W"));
        let found = product(&a, rows, &packed.get(), Parallelism::Serial);
        assert_eq!(difference(&found, &expected), None, "{isa}");
    }
}

#[test]
fn every_error_is_reached_and_nothing_is_written() {
    let zeros = vec![0.0f32; 4096];
    let matrix = |rows, columns| Matrix::new(&zeros, rows, columns).expect("a small matrix");
    for isa in all_isas() {
        let mut buffer = vec![0.0; PackedMatrix::len(isa, 5, 7).expect("a small size")];
        let packed = PackedMatrix::pack(isa, matrix(5, 7), &mut buffer).expect("a fit");
        let plain = Epilogue::default();
        let short = Epilogue { bias: Some(&zeros[..6]), ..plain };
        let long = Epilogue { bias: Some(&zeros[..8]), ..plain };
        let residual =
            |rows, columns| Epilogue { residual: Residual::Matrix(matrix(rows, columns)), ..plain };
        let cases = [
            ((3, 4), plain, (3, 7), GemmError::Depth { expected: 5, found: 4 }),
            ((3, 6), plain, (3, 7), GemmError::Depth { expected: 5, found: 6 }),
            ((3, 5), plain, (2, 7), GemmError::Rows { expected: 3, found: 2 }),
            ((3, 5), plain, (4, 7), GemmError::Rows { expected: 3, found: 4 }),
            ((3, 5), plain, (3, 6), GemmError::Columns { expected: 7, found: 6 }),
            ((3, 5), plain, (3, 8), GemmError::Columns { expected: 7, found: 8 }),
            ((3, 5), short, (3, 7), GemmError::Bias { expected: 7, found: 6 }),
            ((3, 5), long, (3, 7), GemmError::Bias { expected: 7, found: 8 }),
            (
                (3, 5),
                residual(2, 7),
                (3, 7),
                GemmError::ResidualShape { expected: (3, 7), found: (2, 7) },
            ),
            (
                (3, 5),
                residual(3, 8),
                (3, 7),
                GemmError::ResidualShape { expected: (3, 7), found: (3, 8) },
            ),
        ];
        let mut messages = BTreeSet::new();
        for ((a_rows, a_columns), epilogue, (rows, columns), expected) in cases {
            let mut c = vec![POISON; rows * columns];
            let view = MatrixMut::new(&mut c, rows, columns).expect("C");
            let found =
                gemm(matrix(a_rows, a_columns), &packed, &epilogue, view, Parallelism::Serial);
            assert_eq!(found, Err(expected));
            assert!(c.iter().all(|x| x.to_bits() == POISON.to_bits()), "{expected}: C was written");
            messages.insert(expected.to_string());
        }
        assert_eq!(messages.len(), cases.len(), "every message is distinct: {messages:?}");

        let need = PackedMatrix::len(isa, 5, 7).expect("a small size");
        let mut less = vec![POISON; need - 1];
        let wanted = GemmError::PackedLength { expected: need, found: need - 1 };
        assert_eq!(PackedMatrix::pack(isa, matrix(5, 7), &mut less).err(), Some(wanted));
        assert_eq!(PackedMatrix::from_packed(isa, 5, 7, &less).err(), Some(wanted));
        assert_eq!(PackedMatrix::pack_block(isa, matrix(5, 1), (5, 7), 0, &mut less), Err(wanted));
        assert!(less.iter().all(|x| x.to_bits() == POISON.to_bits()));
        let mut room = vec![POISON; need];
        for (block, first, found) in [
            (matrix(4, 2), 0, (4, 2)),
            (matrix(5, 2), 6, (5, 8)),
            (matrix(5, 8), 0, (5, 8)),
            (matrix(5, 1), usize::MAX, (5, usize::MAX)),
        ] {
            assert_eq!(
                PackedMatrix::pack_block(isa, block, (5, 7), first, &mut room),
                Err(GemmError::PackedBlock { expected: (5, 7), found })
            );
        }
        assert!(room.iter().all(|x| x.to_bits() == POISON.to_bits()));
        for (depth, columns) in [
            (usize::MAX, 2),
            (2, usize::MAX),
            (1 << 40, 1 << 40),
            (usize::MAX / 4, 1),
            (0, usize::MAX),
        ] {
            assert_eq!(PackedMatrix::len(isa, depth, columns), Err(GemmError::TooLarge));
            let found = PackedMatrix::from_packed(isa, depth, columns, &zeros);
            assert_eq!(found.err(), Some(GemmError::TooLarge));
        }
    }
}

#[test]
fn the_oracle_refuses_what_the_kernel_refuses() {
    let zeros = [0.0f32; 64];
    let matrix = |rows, columns| Matrix::new(&zeros, rows, columns).expect("a small matrix");
    let (mut out, mut magnitude) = ([0.0; 6], [0.0; 6]);
    let plain = Epilogue::default();
    let mut run = |a, epilogue: &Epilogue<'_>, n: usize| {
        reference::gemm::gemm(a, matrix(4, 3), epilogue, None, &mut out[..n], &mut magnitude)
    };
    assert_eq!(run(matrix(2, 4), &plain, 6), Ok(()));
    assert_eq!(run(matrix(2, 5), &plain, 6), Err(GemmError::Depth { expected: 4, found: 5 }));
    assert_eq!(
        run(matrix(2, 4), &plain, 5),
        Err(GemmError::PackedLength { expected: 6, found: 5 })
    );
    let bias = Epilogue { bias: Some(&zeros[..2]), ..plain };
    assert_eq!(run(matrix(2, 4), &bias, 6), Err(GemmError::Bias { expected: 3, found: 2 }));
    let residual = Epilogue { residual: Residual::Output, ..plain };
    assert_eq!(
        run(matrix(2, 4), &residual, 6),
        Err(GemmError::ResidualShape { expected: (2, 3), found: (0, 0) })
    );
}

#[test]
fn views_that_lie_are_refused() {
    let mut data = [0.0f32; 24];
    let short = ViewError::TooShort { expected: 25, found: 24 };
    assert_eq!(Matrix::new(&data, 5, 5).err(), Some(short));
    assert_eq!(Matrix::strided(&data, 3, 1, 12, 1).err(), Some(short));
    assert!(Matrix::strided(&data, 3, 4, 10, 1).is_ok());
    for (rows, columns, row_stride) in
        [(usize::MAX, 2, usize::MAX), (2, 2, usize::MAX), (usize::MAX, usize::MAX, 1)]
    {
        let found = Matrix::strided(&data, rows, columns, row_stride, 1);
        assert_eq!(found.err(), Some(ViewError::Overflow));
    }
    for (row_stride, column_stride) in [(0, 1), (2, 1), (1, 1), (1, 2), (3, 2), (0, 0)] {
        assert_eq!(
            MatrixMut::strided(&mut data, 3, 3, row_stride, column_stride).err(),
            Some(ViewError::Overlap { row_stride, column_stride })
        );
    }
    assert!(MatrixMut::strided(&mut data, 3, 3, 1, 3).is_ok());
    assert!(MatrixMut::strided(&mut data, 1, 3, 0, 3).is_ok());
}
