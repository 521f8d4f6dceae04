//! The gradients of a linear layer compared with their oracles: small integers, for which every bit must be
//! right, and real numbers within the documented bound, in every layout, with poison around every operand.

use crate::support::gemm::{Packed, product, strides};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::train::{
    ReductionChunks, WriteMode, weight_gradient, weight_gradient_scratch,
};
use simdformer_kernels::{Error, Exec, Isa, Matrix, MatrixMut, Parallelism, reference};
use std::collections::BTreeSet;

/// Operands, and results that are stored or added to.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) d_y: Strided,
    pub(crate) x: Strided,
    pub(crate) ends: Vec<u32>,
    pub(crate) d_weight: Strided,
    pub(crate) d_bias: Vec<f32>,
}

impl Call {
    /// Dense operands, and results that hold poison.
    pub(crate) fn new(
        [rows, outputs, inputs]: [usize; 3],
        ends: &[u32],
        mut value: impl FnMut() -> f32,
    ) -> Self {
        Self {
            d_y: Strided::new(rows, outputs, (outputs, 1), |_, _| value()),
            x: Strided::new(rows, inputs, (inputs, 1), |_, _| value()),
            ends: ends.to_vec(),
            d_weight: Strided::new(outputs, inputs, (inputs, 1), |_, _| POISON),
            d_bias: vec![POISON; outputs],
        }
    }

    /// With a scratch of exactly the documented length, which holds poison.
    pub(crate) fn compute_gradient(
        &mut self,
        isa: Isa,
        write: WriteMode,
        parallelism: Parallelism<'_>,
    ) {
        let mut scratch = poisoned(self.scratch(isa));
        let (to, bias) = (self.d_weight.view_mut(), Some(&mut self.d_bias[..]));
        let operands = (self.d_y.view(), self.x.view());
        gradient(isa, operands, &self.ends, write, (to, bias), &mut scratch, parallelism);
    }

    /// The documented length.
    pub(crate) fn scratch(&self, isa: Isa) -> usize {
        let chunks = ReductionChunks::new(&self.ends).expect("chunks");
        let longest = chunks.ranges().map(|rows| rows.len()).max().unwrap_or(0);
        weight_gradient_scratch(isa, longest, self.d_y.columns, self.x.columns).expect("small")
    }

    /// The gradient of the weight without gaps.
    pub(crate) fn weight(&self) -> Vec<f32> {
        self.d_weight.dense()
    }
}

/// `weight_gradient` of operands that fit.
pub(crate) fn gradient(
    isa: Isa,
    (d_y, x): (Matrix<'_>, Matrix<'_>),
    ends: &[u32],
    write: WriteMode,
    (d_weight, d_bias): (MatrixMut<'_>, Option<&mut [f32]>),
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) {
    let chunks = ReductionChunks::new(ends).expect("chunks");
    weight_gradient(Exec::new(isa, parallelism), d_y, x, chunks, write, d_weight, d_bias, scratch)
        .expect("a fit");
}

/// Reduction chunks that end at up to `cuts` random rows.
pub(crate) fn ends(random: &mut Random, rows: usize, cuts: usize) -> Vec<u32> {
    let mut ends = BTreeSet::new();
    if rows > 0 {
        ends.insert(rows as u32);
        ends.extend((0..cuts).map(|_| 1 + random.below(rows) as u32));
    }
    ends.into_iter().collect()
}

/// Every number of outputs and inputs up to two tiles and one, for few rows and chunks.
#[test]
fn small_integers_are_exact_in_every_shape_around_tiles() {
    for isa in all_isas() {
        let mut random = Random::new(1);
        for outputs in 1..=13 {
            for inputs in 1..=2 * isa.panel() + 1 {
                if brief() && (outputs * inputs) % 17 != 1 {
                    continue;
                }
                if !chosen(isa, outputs + inputs, 3) {
                    continue;
                }
                let rows = 1 + (outputs * 5 + inputs * 3) % 11;
                check_integers(isa, &mut random, [rows, outputs, inputs]);
            }
        }
    }
}

/// Rows around a block, outputs around blocks of strips, several panels, several chunks.
#[test]
fn small_integers_are_exact_around_every_edge() {
    let mut shapes = vec![[512, 48, 64], [513, 49, 65], [100, 95, 130], [40, 97, 200]];
    shapes.extend([
        [1, 145, 129],
        [2, 100, 300],
        [700, 6, 16],
        [1030, 7, 17],
        [5, 300, 3],
        [9, 385, 70],
        [9, 515, 130],
    ]);
    for isa in all_isas() {
        let mut random = Random::new(2);
        for &shape in &shapes {
            check_integers(isa, &mut random, shape);
        }
    }
}

fn check_integers(isa: Isa, random: &mut Random, shape @ [rows, outputs, inputs]: [usize; 3]) {
    let ends = ends(random, rows, rows % 3);
    let mut call = Call::new(shape, &ends, || random.integer(8));
    let mut sums = vec![0i32; outputs * inputs];
    let mut columns = vec![0i32; outputs];
    for k in 0..rows {
        let x = &call.x.data[k * inputs..][..inputs];
        for n in 0..outputs {
            let d_y = call.d_y.at(k, n) as i32;
            columns[n] += d_y;
            for (sum, x) in sums[n * inputs..][..inputs].iter_mut().zip(x) {
                *sum += d_y * *x as i32;
            }
        }
    }
    call.compute_gradient(isa, WriteMode::Store, SERIAL);
    for times in [1, 2] {
        let right = |found: &[f32], sums: &[i32]| {
            found.iter().zip(sums).all(|(&x, &sum)| x == (times * sum) as f32)
        };
        assert!(right(&call.weight(), &sums), "{isa}: dW of {shape:?} in {ends:?}, {times} times");
        assert!(right(&call.d_bias, &columns), "{isa}: db of {shape:?} in {ends:?}, {times} times");
        call.compute_gradient(isa, WriteMode::Add, SERIAL);
    }
}

/// `<dY, X W^T> = <dY W, X> = <dY^T X, W>`, exact because all values are integers.
#[test]
fn forward_and_gradients_are_adjoint() {
    for isa in all_isas() {
        let mut random = Random::new(3);
        for shape @ [rows, outputs, inputs] in [[1, 1, 1], [7, 13, 70], [50, 65, 130], [33, 200, 9]]
        {
            let mut call = Call::new(shape, &ends(&mut random, rows, 2), || random.integer(4));
            let w = random.integers(outputs * inputs, 4);
            let weight = view_matrix(&w, outputs, inputs);
            let (d_y, x) = (&call.d_y.data[..rows * outputs], &call.x.data[..rows * inputs]);
            let forward = Packed::new(isa, weight.transposed());
            let backward = Packed::new(isa, weight);
            let y = product(x, rows, &forward.get(), SERIAL);
            let d_x = product(d_y, rows, &backward.get(), SERIAL);
            let inner = |a: &[f32], b: &[f32]| -> i64 {
                a.iter().zip(b).map(|(&a, &b)| a as i64 * b as i64).sum()
            };
            let (over_y, over_x) = (inner(d_y, &y), inner(&d_x, x));
            call.compute_gradient(isa, WriteMode::Store, SERIAL);
            let over_w = inner(&call.weight(), &w);
            assert_eq!((over_y, over_x), (over_w, over_w), "{isa}: {shape:?}");
        }
    }
}

/// One case of [`every_layout_is_within_its_bound`].
#[derive(Clone, Debug)]
struct Case {
    shape: [usize; 3],
    cuts: usize,
    /// Gaps, and whether it is column-major.
    layouts: [(usize, bool); 3],
    spread: usize,
    write: WriteMode,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let size = |most: usize| prop_oneof![1 => Just(0), 1 => Just(1), 8 => 1..=most];
    let layout = || (0usize..4, prop::bool::weighted(0.25));
    (
        [size(150), size(120), size(150)],
        0usize..5,
        [layout(), layout(), layout()],
        prop_oneof![4 => Just(1usize), 1 => Just(2)],
        prop_oneof![Just(WriteMode::Store), Just(WriteMode::Add)],
        any::<u64>(),
    )
        .prop_map(|(shape, cuts, layouts, spread, write, seed)| Case {
            shape,
            cuts,
            layouts,
            spread,
            write,
            seed,
        })
}

fn check_case(isa: Isa, case: &Case) {
    let &Case { shape: [rows, outputs, inputs], cuts, layouts, spread, write, seed } = case;
    let mut random = Random::new(seed);
    let ends = ends(&mut random, rows, cuts);
    let mut lay = |rows, columns, which: usize, poison: bool| {
        Strided::new(rows, columns, strides(rows, columns, layouts[which], spread), |_, _| {
            if poison { POISON } else { random.value() }
        })
    };
    let store = write == WriteMode::Store;
    let mut call = Call {
        d_y: lay(rows, outputs, 0, false),
        x: lay(rows, inputs, 1, false),
        d_weight: lay(outputs, inputs, 2, store),
        d_bias: vec![POISON; outputs],
        ends,
    };
    if !store {
        call.d_bias = random.values(outputs);
    }
    let before = call.clone();
    call.compute_gradient(isa, write, SERIAL);
    call.d_weight.assert_gaps_untouched();

    let (mut exact, mut magnitude) = (vec![0.0; outputs * inputs], vec![0.0; outputs * inputs]);
    let there = (!store).then(|| before.d_weight.view());
    let (d_y, x) = (call.d_y.view(), call.x.view());
    reference::gemm_gradient::weight_gradient(d_y, x, there, &mut exact, &mut magnitude)
        .expect("a fit");
    let leaves = ReductionChunks::new(&call.ends).expect("leaves");
    let longest = leaves.ranges().map(|rows| rows.len()).max().unwrap_or(0);
    let roundings = 2.0 * (longest + leaves.len() + 2) as f64 * UNIT;
    for (at, &found) in call.weight().iter().enumerate() {
        let bound = roundings * magnitude[at] + 1e-37;
        assert_close(found, exact[at], bound, format_args!("{isa}, {case:?}: dW {at}"));
    }
    let (mut exact, mut magnitude) = (vec![0.0; outputs], vec![0.0; outputs]);
    let there = (!store).then_some(&before.d_bias[..]);
    reference::gemm_gradient::bias_gradient(d_y, there, &mut exact, &mut magnitude).expect("a fit");
    for (at, &found) in call.d_bias.iter().enumerate() {
        let bound = roundings * magnitude[at] + 1e-37;
        assert_close(found, exact[at], bound, format_args!("{isa}, {case:?}: db {at}"));
    }
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn every_layout_is_within_its_bound(case in cases()) {
        for isa in all_isas() {
            check_case(isa, &case);
        }
    }
}

/// Without rows, Store writes zeros and Add changes nothing. Without outputs or inputs there is only a
/// bias.
#[test]
fn zero_sizes_write_what_the_formula_says() {
    for isa in all_isas() {
        let mut call = Call::new([0, 5, 70], &[], || 1.0);
        call.compute_gradient(isa, WriteMode::Add, SERIAL);
        assert!(call.weight().iter().chain(&call.d_bias).all(|x| x.to_bits() == POISON.to_bits()));
        call.compute_gradient(isa, WriteMode::Store, SERIAL);
        assert!(call.weight().iter().chain(&call.d_bias).all(|x| x.to_bits() == 0));

        let mut call = Call::new([3, 5, 0], &[1, 3], || 2.0);
        call.compute_gradient(isa, WriteMode::Store, SERIAL);
        assert_eq!(call.d_bias, [6.0; 5]);
        Call::new([3, 0, 70], &[1, 3], || 2.0).compute_gradient(isa, WriteMode::Store, SERIAL);
        Call::new([3, 0, 0], &[1, 3], || 2.0).compute_gradient(isa, WriteMode::Store, SERIAL);
    }
}

#[test]
fn operands_that_do_not_fit_are_errors_and_nothing_is_written() {
    let data = [1.0f32; 64];
    let matrix = |rows, columns| view_matrix(&data, rows, columns);
    for isa in all_isas() {
        let expected = weight_gradient_scratch(isa, 2, 3, 4).expect("small");
        let run = |x, ends: &[u32], (rows, columns), bias: usize, floats| {
            let (mut d_weight, mut d_bias) = ([POISON; 20], [POISON; 5]);
            let mut scratch = vec![POISON; floats];
            let chunks = ReductionChunks::new(ends).expect("leaves");
            let (to, bias) =
                (view_matrix_mut(&mut d_weight, rows, columns), Some(&mut d_bias[..bias]));
            let (d_y, store) = (matrix(4, 3), WriteMode::Store);
            let found =
                weight_gradient(Exec::serial(isa), d_y, x, chunks, store, to, bias, &mut scratch);
            if found.is_err() {
                let all = [&d_weight[..], &d_bias, &scratch];
                assert!(all.into_iter().all(is_poison), "{found:?}: something was written");
            }
            found
        };
        let (x, ends) = (matrix(4, 4), [2, 4]);
        assert_eq!(run(x, &ends, (3, 4), 3, expected), Ok(()));
        let less = expected - 1;
        for (x, ends, shape, bias, floats, text) in [
            (matrix(5, 4), &ends, (3, 4), 3, expected, "rows of x: expected 4, found 5".to_owned()),
            (x, &[2, 3], (3, 4), 3, expected, "rows of chunks: expected 4, found 3".to_owned()),
            (x, &ends, (4, 3), 3, expected, "shape of d_weight: expected [3, 4], found [4, 3]; the axes are swapped: call `transposed()` on its matrix".to_owned()),
            (x, &ends, (3, 4), 2, expected, "length of d_bias: expected 3, found 2".to_owned()),
            (x, &ends, (3, 4), 3, less, format!("length of scratch: expected at least {expected}, found {less}")),
        ] {
            let found = run(x, ends, shape, bias, floats);
            assert_eq!(found.map_err(|error| error.to_string()), Err(text));
        }
        // The longest reduction chunk counts, not all rows.
        let three = weight_gradient_scratch(isa, 3, 3, 4).expect("small");
        let wanted = errors::min_len("scratch", three, expected);
        if three > expected {
            assert_eq!(run(x, &[3, 4], (3, 4), 3, expected), Err(wanted));
        }
        for (rows, outputs, inputs) in [
            (usize::MAX, 1, 1),
            (usize::MAX / 8, 1, 1),
            (2, usize::MAX, 2),
            (2, 2, usize::MAX),
            (1 << 30, 1 << 30, 1 << 31),
        ] {
            let found = weight_gradient_scratch(isa, rows, outputs, inputs);
            assert!(matches!(found, Err(Error::TooLarge { .. })), "{rows}, {outputs}, {inputs}");
        }
        assert!(weight_gradient_scratch(isa, 0, 0, 0).is_ok());
    }
}
