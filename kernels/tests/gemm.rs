//! The GEMM compared with its oracle on every instruction set of the machine.
//!
//! There are two kinds of tests. Sums of small integers are exact in f32, so every bit must be right. Real
//! numbers must be within the documented bound and, on average, much closer. `gemm_bitwise.rs` tests what
//! the bits of a product must not depend on, `gemm_errors.rs` tests the errors.
use crate::support::gemm::{
    ACTIVATIONS, Packed, exact_product, multiply, post_op_of, product, strides,
};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::{Activation, Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, gemm};
use std::collections::BTreeSet;

/// Every `M`, `N` and `K` in `1..=70`, each combined with each value of another one: `K` is `M + N` modulo
/// 70. In a full run, and on an emulator with fewer sizes, all combinations of the three. A, W and C are
/// corners of larger buffers that otherwise hold poison.
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
        let mut packed =
            vec![0.0f32; PackedMatrix::buffer_len(isa, MAX, MAX).expect("a small size")];
        let mut c = vec![POISON; MAX * (MAX + C_GAP)];
        for depth in 1..=MAX {
            // Column `depth - 1` of A and row `depth - 1` of W are filled, and their product is
            // added to the sums. The elements after them are still poison.
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
                let packed = PackedMatrix::pack(isa, weight, &mut packed).expect("space");
                for &rows in &others {
                    let pair = (rows + columns + MAX - depth).is_multiple_of(MAX)
                        && chosen(isa, depth + columns, 3);
                    if !(pair || full() || brief()) {
                        continue;
                    }
                    let stride = columns + C_GAP;
                    let c = &mut c[..rows * stride];
                    c.fill(POISON);
                    let a = Matrix::strided(&a, rows, depth, A_ROW, 1).expect("inside A");
                    let to = MatrixMut::strided(c, rows, columns, stride, 1).expect("inside C");
                    gemm(a, &packed, &Epilogue::default(), to, SERIAL).expect("shapes that fit");
                    let right = c.chunks_exact(stride).enumerate().all(|(i, line)| {
                        let (row, gap) = line.split_at(columns);
                        let expected = &expected[i * MAX..][..columns];
                        row.iter().zip(expected).all(|(&x, &sum)| x == sum as f32) && is_poison(gap)
                    });
                    assert!(right, "{isa}: wrong in {rows} x {columns} x {depth}");
                }
            }
        }
    }
}

/// Exact sums of `a`, `[rows, depth]`, and `w`, `[depth, columns]`: with integers up to 8 and depths up to
/// 2^16 they stay below 2^24.
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

/// Depths around the block of `k` (512) and multiples of it, numbers of rows around the tile (6) and the block of rows
/// (192) and its half, and numbers of columns around the panels of every instruction set.
#[test]
fn small_integers_are_exact_around_every_block_edge() {
    let mut shapes = BTreeSet::new();
    for (at, depth) in [2047, 2048, 2049, 4095, 4096, 4097, 6150].into_iter().enumerate() {
        for (other, rows) in [1, 2, 6, 7, 13, 95, 96, 97, 193].into_iter().enumerate() {
            for (third, columns) in [1, 17, 65].into_iter().enumerate() {
                // Each value with each value of another one.
                if full() || (at + other + third) % 3 == 0 {
                    shapes.insert((rows, columns, depth));
                }
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
        // Long sums are slow on the scalar set.
        for isa in isas_of(index, if depth > 100 { 5 } else { 3 }) {
            let packed = Packed::new(isa, view_matrix(&w, depth, columns));
            let found = product(&a, rows, &packed.get(), SERIAL);
            assert_eq!(difference(&found, &expected), None, "{isa}, {rows} x {columns} x {depth}");
        }
    }
}

/// One case of [`every_epilogue_and_layout_is_within_its_bound`].
#[derive(Clone, Debug)]
struct Case {
    /// Rows, depth and columns.
    shape: (usize, usize, usize),
    /// The gap between rows of A, W, C and the residual, and whether each is column-major.
    layouts: [(usize, bool); 4],
    /// Elements between neighbors in C.
    spread: usize,
    scale: f32,
    bias: bool,
    activation: usize,
    residual: usize,
    seed: u64,
}

fn any_case() -> impl Strategy<Value = Case> {
    let size = || prop_oneof![3 => 0usize..=70, 1 => 90usize..=200];
    let layout = || (0usize..=4, any::<bool>());
    (
        (size(), prop_oneof![6 => 0usize..=70, 2 => 71usize..=300, 1 => 2040usize..=2060], size()),
        [layout(), layout(), layout(), layout()],
        prop_oneof![3 => Just(1usize), 1 => 2usize..=3],
        prop_oneof![2 => Just(1.0f32), 1 => -3.0f32..3.0, 1 => Just(0.0)],
        any::<bool>(),
        0..ACTIVATIONS.len(),
        0usize..4,
        any::<u64>(),
    )
        .prop_map(|(shape, layouts, spread, scale, bias, activation, residual, seed)| Case {
            shape,
            layouts,
            spread,
            scale,
            bias,
            activation,
            residual,
            seed,
        })
}

fn check_case(isas: &[Isa], case: &Case) {
    let (rows, depth, columns) = case.shape;
    let mut random = Random::new(case.seed);
    let [a_layout, w_layout, c_layout, r_layout] = case.layouts;
    let mut lay = |rows, columns, layout, spread, filled| {
        Strided::new(rows, columns, strides(rows, columns, layout, spread), |_, _| {
            if filled { random.value() } else { POISON }
        })
    };
    let (a, w) = (lay(rows, depth, a_layout, 1, true), lay(depth, columns, w_layout, 1, true));
    let residual = lay(rows, columns, r_layout, 1, true);
    // Only a residual that is the output, or a gate, may read the output.
    let before = lay(rows, columns, c_layout, case.spread, matches!(case.residual, 1 | 3));
    let bias = random.values(columns);
    let epilogue = Epilogue {
        scale: case.scale,
        bias: case.bias.then_some(bias.as_slice()),
        activation: ACTIVATIONS[case.activation],
        post_op: post_op_of(case.residual, residual.view()),
    };

    let operands = (a.view(), w.view());
    let (exact, magnitude) = exact_product(operands, &epilogue, Some(before.view()));
    for &isa in isas {
        let mut c = before.clone();
        let packed = Packed::new(isa, w.view());
        packed.multiply(a.view(), &epilogue, c.view_mut(), SERIAL);
        for i in 0..rows {
            for j in 0..columns {
                let at = i * columns + j;
                let rounding = (2.0 * depth as f64 + 4.0) * UNIT * magnitude[at] + 1e-37;
                let bound = match epilogue.activation {
                    Activation::Identity | Activation::Relu => rounding,
                    // The largest slope is that of GELU, 1.13. Then the error of the
                    // activation itself.
                    _ => 1.2 * rounding + 1e-6 + 7e-7 * exact[at].abs(),
                };
                assert_close(
                    c.at(i, j),
                    exact[at],
                    bound,
                    format_args!("{isa}: C[{i}, {j}] in {case:?}"),
                );
            }
        }
        c.assert_gaps_untouched();
    }
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn every_epilogue_and_layout_is_within_its_bound(case in any_case()) {
        check_case(&all_isas(), &case);
    }
}

/// All combinations, in one shape that has a full panel and an edge on every instruction set.
#[test]
fn every_combination_of_epilogues() {
    for scale in [1.0, 0.125, -1.7] {
        for bias in [false, true] {
            for activation in 0..ACTIVATIONS.len() {
                for residual in 0..4 {
                    for spread in [1, 2] {
                        let case = Case {
                            shape: (8, 19, 70),
                            layouts: [(3, false), (2, true), (1, false), (4, spread == 2)],
                            spread,
                            scale,
                            bias,
                            activation,
                            residual,
                            seed: 5,
                        };
                        check_case(&all_isas(), &case);
                    }
                }
            }
        }
    }
}

/// The worst-case bound grows with K, so it does not detect a kernel that loses some digits. The rounding
/// errors of a correct kernel are random: relative to the sum of magnitudes, their mean grows with the
/// square root of K if all terms are positive. If signs are mixed it stays below one unit, because the
/// partial sums then also grow with the square root of K.
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
            let a_view = view_matrix(&a, rows, depth);
            let w_view = view_matrix(&w, depth, columns);
            let found = multiply(isa, a_view, w_view, SERIAL);
            let (exact, magnitude) = exact_product((a_view, w_view), &Epilogue::default(), None);
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
            // A mean error of zero would mean that the oracle is compared with itself.
            assert!(mean > 0.0);
        }
    }
}

/// Sums that cancel almost completely: the bound is relative to the terms, not to the result.
#[test]
fn cancellation_stays_within_the_bound() {
    for isa in all_isas() {
        for seed in 0..cases(8, 20) {
            let mut random = Random::new(seed);
            let (rows, half, columns) = (5, 1 + random.below(300), 33);
            let depth = 2 * half;
            // Terms come in pairs, far apart in k, that differ only in their last digits.
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
            let (a_view, w_view) = (view_matrix(&a, rows, depth), view_matrix(&w, depth, columns));
            let found = multiply(isa, a_view, w_view, SERIAL);
            let (exact, magnitude) = exact_product((a_view, w_view), &Epilogue::default(), None);
            for ((&x, exact), magnitude) in found.iter().zip(exact).zip(magnitude) {
                assert_close(x, exact, 2.0 * depth as f64 * UNIT * magnitude, isa);
            }
        }
    }
}

#[test]
fn zero_sizes_write_what_the_formula_says() {
    for shape in
        [(0, 0, 0), (0, 5, 7), (3, 0, 7), (1, 0, 70), (3, 5, 0), (0, 0, 7), (9, 0, 1), (3, 0, 0)]
    {
        for (activation, residual) in [(0, 0), (1, 0), (0, 1), (1, 2)] {
            let case = Case {
                shape,
                layouts: [(0, false), (0, false), (2, false), (0, true)],
                spread: 1,
                scale: 2.0,
                bias: true,
                activation,
                residual,
                seed: 1,
            };
            check_case(&all_isas(), &case);
        }
    }
}

/// A product of one row prefetches in another way if the weights do not fit into an outer cache. Its last
/// step of `k` counts like the others.
#[test]
fn one_row_times_more_weights_than_a_cache_holds() {
    let (depth, columns) = ((4 << 20) / 128 + 1, 128);
    let w = vec![2.0; depth * columns];
    let mut a = vec![0.0; depth];
    (a[0], a[depth - 1]) = (1.0, 3.0);
    for isa in all_isas() {
        let c = multiply(isa, view_matrix(&a, 1, depth), view_matrix(&w, depth, columns), SERIAL);
        assert_eq!(c, vec![8.0; columns], "{isa}");
    }
}
