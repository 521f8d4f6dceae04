//! The screen against what it replaces: the product, then the first of its largest elements.
//!
//! Whatever the operands hold, a row that is decided must have that column and that value, bit for
//! bit; and rows of the usual kind must be decided. What a screen holds is tested beside its source, and calls
//! that cannot be right in `screen_calls.rs`.
use crate::support::pruned_argmax::{Operands, normal};
use crate::support::{Random, Strided, all_isas, brief, cases as number, crews_of, full, property};
use proptest::prelude::*;
use simdformer_kernels::{Isa, Parallelism};

const SERIAL: Parallelism<'_> = Parallelism::Serial;

/// The neighbor of `x` away from zero, or `x`, or the one towards zero.
fn nudged(x: f32, random: &mut Random) -> f32 {
    match random.below(6) {
        0 => f32::from_bits(x.to_bits() + 1),
        1 if x != 0.0 => f32::from_bits(x.to_bits() - 1),
        _ => x,
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gaussian,
    Uniform,
    /// Sums are exact and many are equal.
    Integers,
    /// One dimension of `x` is a thousand times the others.
    Outlier,
    /// Columns of sizes `2^-20` to `2^20`.
    Norms,
    /// Columns that are the same but for an ulp in one element, or altogether.
    Twins,
    /// The same elements in other orders, all of them bytes: only the rounding of sums differs.
    Orders,
}

const KINDS: [Kind; 7] = [
    Kind::Gaussian,
    Kind::Uniform,
    Kind::Integers,
    Kind::Outlier,
    Kind::Norms,
    Kind::Twins,
    Kind::Orders,
];

impl Kind {
    /// Elements of `x` and of the weight, each asked for in the order of [`Strided::new`].
    fn elements(
        self,
        depth: usize,
        columns: usize,
        seed: u64,
    ) -> (impl FnMut(usize, usize) -> f32, impl FnMut(usize, usize) -> f32) {
        let (mut of_x, mut of_weight) = (Random::new(seed), Random::new(!seed));
        let outlier = of_x.below(depth.max(1));
        let sizes: Vec<i32> = (0..columns).map(|_| of_weight.below(41) as i32 - 20).collect();
        let first: Vec<f32> = (0..depth).map(|_| normal(&mut of_weight)).collect();
        let place: Vec<usize> = (0..columns).map(|_| of_weight.below(depth.max(1))).collect();
        let x = move |_, k| match self {
            Self::Uniform => of_x.value(),
            Self::Integers => of_x.integer(2),
            Self::Orders => 0.1,
            Self::Outlier if k == outlier => 1000.0 * normal(&mut of_x),
            _ => normal(&mut of_x),
        };
        let weight = move |k: usize, column: usize| match self {
            Self::Uniform => of_weight.value(),
            Self::Integers => of_weight.integer(1),
            Self::Norms => normal(&mut of_weight) * 2.0f32.powi(sizes[column]),
            Self::Twins if place[column] == k => nudged(first[k], &mut of_weight),
            Self::Twins => first[k],
            Self::Orders => ((k * 3 + place[column]) % depth % 128) as f32 * 0.1,
            _ => normal(&mut of_weight),
        };
        (x, weight)
    }
}

/// One case of [`a_decided_row_is_what_the_product_gives`].
#[derive(Clone, Debug)]
struct Case {
    shape: (usize, usize, usize),
    kind: Kind,
    /// Gaps after rows, elements between neighbors, and whether columns are contiguous instead.
    layouts: [(usize, usize, bool); 2],
    bias: bool,
    by_column: bool,
    /// Of 8 elements.
    banned: usize,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let layout = || (0usize..=4, prop_oneof![3 => Just(1usize), 1 => 2usize..=3], any::<bool>());
    let depth = prop_oneof![8 => 0usize..=200, 1 => 2030usize..=2120];
    (
        (0usize..=40, depth, prop_oneof![1 => 0usize..=70, 2 => 71usize..=700]),
        prop::sample::select(&KINDS[..]),
        [layout(), layout()],
        (any::<bool>(), any::<bool>(), 0usize..=8, any::<u64>()),
    )
        .prop_map(|(shape, kind, layouts, (bias, by_column, banned, seed))| Case {
            shape,
            kind,
            layouts,
            bias,
            by_column,
            // Often nothing, seldom nearly everything.
            banned: banned.saturating_sub(3) + usize::from(banned == 8) * 2,
            seed,
        })
}

fn strides(rows: usize, columns: usize, layout: (usize, usize, bool)) -> (usize, usize) {
    let (gap, spread, turned) = layout;
    if turned {
        (spread, spread * rows.max(1) + gap)
    } else {
        (spread * columns.max(1) + gap, spread)
    }
}

impl Case {
    fn operands(&self) -> Operands {
        let (rows, depth, columns) = self.shape;
        let (x, weight) = self.kind.elements(depth, columns, self.seed);
        let mut random = Random::new(self.seed ^ 0x5eed);
        let bias = (0..columns).map(|_| match self.kind {
            Kind::Integers => random.integer(1),
            // So large that hardly anything is left of the sum.
            _ if self.seed.is_multiple_of(4) => 1e7,
            _ => normal(&mut random),
        });
        let bias = bias.collect();
        Operands {
            x: Strided::new(rows, depth, strides(rows, depth, self.layouts[0]), x),
            weight: Strided::new(depth, columns, strides(depth, columns, self.layouts[1]), weight),
            bias: self.bias.then_some(bias),
            by_column: self.by_column,
            banned: (0..rows * columns).map(|_| random.below(8) < self.banned).collect(),
        }
    }
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn a_decided_row_is_what_the_product_gives(case in cases()) {
        let operands = case.operands();
        for isa in all_isas() {
            operands.check(isa);
        }
    }
}

/// A screen that decides nothing would pass everything else.
#[test]
fn usual_rows_are_all_decided() {
    let shapes = [(1, 64, 2000), (9, 65, 2999), (13, 100, 4000), (25, 512, 2501), (3, 2049, 2100)];
    for (index, shape) in shapes.into_iter().enumerate() {
        let mut operands = Operands::gaussian(shape, index as u64);
        let mut random = Random::new(index as u64);
        if index % 2 == 1 {
            operands.bias = Some((0..shape.2).map(|_| normal(&mut random)).collect());
            operands.by_column = true;
            operands.banned.iter_mut().for_each(|banned| *banned = random.below(50) == 0);
        }
        all_isas().into_iter().for_each(|isa| operands.check_all(isa));
    }
}

/// Which way [`aligned`] leaves most out.
#[derive(Clone, Copy, Debug)]
enum Lost {
    OfX,
    OfWeight,
    OfBoth,
}

/// A row and two columns that matter, `columns.0` the larger and `columns.1` the one that its bytes
/// make the larger: elements just below and just above half a step, so that all of them are lost or
/// doubled, and with the signs of what they are multiplied by, so that nothing cancels. Element 0
/// of the row and element 1 of the columns are 127 steps. The other columns are small.
fn aligned(lost: Lost, n: usize, columns: (usize, usize), width: usize, seed: u64) -> Operands {
    let mut random = Random::new(seed);
    let depth = 2 * n + 2;
    let signs: Vec<f32> = (0..depth).map(|_| random.integer(1).signum()).collect();
    // The first half of the elements is what the larger column has, the second half the other's.
    let (x, weight) = match lost {
        Lost::OfX => ((0.499, 0.501), (1.004, 0.998)),
        Lost::OfWeight => ((10.0, 9.0), (0.499, 0.501)),
        Lost::OfBoth => ((0.499, 0.501), (1.51, 1.501)),
    };
    let fill: Vec<f32> = random.values(width);
    Operands::dense(
        (1, depth, width),
        |_, k| match k {
            0 => 127.0,
            1 => 0.0,
            k if k < n + 2 => x.0 * signs[k],
            k => x.1 * signs[k],
        },
        |k, column| match k {
            0 => 0.0,
            _ if column != columns.0 && column != columns.1 => 1e-3 * fill[column],
            1 => 127.0,
            k if (k < n + 2) != (column == columns.0) => 0.0,
            k if k < n + 2 => weight.0 * signs[k],
            k => weight.1 * signs[k],
        },
    )
}

/// The argmax of the bytes alone.
fn naive(operands: &Operands, row: usize) -> u32 {
    let steps = |values: &[f32]| -> (f64, Vec<f64>) {
        let step = f64::from(values.iter().fold(0.0f32, |max, x| max.max(x.abs()))) / 127.0;
        let q = |&x: &f32| if step > 0.0 { (f64::from(x) / step).round() } else { 0.0 };
        (step, values.iter().map(q).collect())
    };
    let depth = operands.x.columns;
    let x: Vec<f32> = (0..depth).map(|k| operands.x.at(row, k)).collect();
    let (_, x) = steps(&x);
    let mut best = (0, f64::NEG_INFINITY);
    for column in 0..operands.weight.columns {
        let w: Vec<f32> = (0..depth).map(|k| operands.weight.at(k, column)).collect();
        let (step, w) = steps(&w);
        let sum = step * x.iter().zip(&w).map(|(x, w)| x * w).sum::<f64>();
        best = if sum > best.1 { (column as u32, sum) } else { best };
    }
    best.0
}

#[test]
fn what_the_bytes_leave_out_misleads_them_and_not_the_screen() {
    let mut seed = 0;
    for lost in [Lost::OfX, Lost::OfWeight, Lost::OfBoth] {
        for n in [1, 7, 60, 1000, 20_000] {
            for columns in [(40, 3), (3, 40), (69, 70)] {
                seed += 1;
                if n == 20_000 && columns != (40, 3) && !full() {
                    continue;
                }
                let operands = aligned(lost, n, columns, 71, seed);
                let built = operands.build(Isa::SCALAR);
                let right = operands.right(&built)[0].expect("finite").0 as usize;
                assert_eq!(right, columns.0, "{lost:?}, {n}");
                assert_eq!(naive(&operands, 0) as usize, columns.1, "{lost:?}, {n}");
                all_isas().into_iter().for_each(|isa| operands.check_all(isa));
            }
        }
    }
}

/// Elements at random within a hair of half a step.
#[test]
fn elements_at_half_a_step_never_mislead_the_screen() {
    let mut misled = 0;
    let rounds = if brief() { 20 } else { number(80, 200) };
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        let (depth, width) = (8 + random.below(400), 40 + random.below(60));
        let half = |random: &mut Random| {
            let steps = random.integer(3) + 0.5 + 1e-3 * random.value();
            steps * if random.below(2) == 0 { 1.0 } else { -1.0 }
        };
        let mut of_weight = Random::new(!seed);
        let operands = Operands::dense(
            (3, depth, width),
            |_, k| if k == 0 { 127.0 } else { half(&mut random) },
            |k, _| match k {
                0 => 0.0,
                1 => 127.0,
                _ => half(&mut of_weight),
            },
        );
        let built = operands.build(Isa::SCALAR);
        for (row, right) in operands.right(&built).into_iter().enumerate() {
            misled += usize::from(right.is_some_and(|right| right.0 != naive(&operands, row)));
        }
        all_isas().into_iter().for_each(|isa| operands.check_all(isa));
    }
    assert!(misled > rounds as usize / 10, "the bytes alone were wrong in {misled} rows only");
}

/// Values that arithmetic likes to trip over.
const SPECIAL: [f32; 11] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    1e19,
    -1e19,
    1e-30,
    -3e-31,
    f32::from_bits(1),
    -0.0,
];

#[test]
fn whatever_the_operands_hold_a_decided_row_is_right() {
    let mut decided = 0;
    let rounds = if brief() { 30 } else { 300 };
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        let shape = (1 + random.below(14), 1 + random.below(70), 1 + random.below(150));
        let (rows, depth, columns) = shape;
        let mut operands = Operands::gaussian(shape, seed);
        let special = |random: &mut Random| SPECIAL[random.below(SPECIAL.len())];
        let mut bias: Vec<f32> = (0..columns).map(|_| normal(&mut random)).collect();
        for _ in 0..random.below(4) {
            let (row, k) = (random.below(rows), random.below(depth));
            *operands.x_at(row, k) = special(&mut random);
        }
        for _ in 0..random.below(4) {
            let (k, column) = (random.below(depth), random.below(columns));
            *operands.weight_at(k, column) = special(&mut random);
        }
        for _ in 0..random.below(4) {
            bias[random.below(columns)] = special(&mut random);
        }
        operands.bias = (!seed.is_multiple_of(3)).then_some(bias);
        operands.by_column = seed.is_multiple_of(2);
        for isa in all_isas() {
            decided += operands.check(isa).iter().filter(|&&decided| decided).count();
        }
    }
    assert!(decided > rounds as usize, "{decided} rows decided");
}

#[test]
fn tiny_and_huge_operands_are_handled() {
    for scale_of_x in [1e-40, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e17, 1e18, 1e19, 1e30] {
        for scale_of_weight in [1e-40, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e17, 1e18, 1e19, 1e30] {
            let mut operands = Operands::gaussian((4, 33, 90), 5);
            operands.x.data.iter_mut().for_each(|x| *x *= scale_of_x);
            operands.weight.data.iter_mut().for_each(|w| *w *= scale_of_weight);
            for isa in all_isas() {
                operands.check(isa);
            }
        }
        // Rows of every size beside each other; a bias that decides alone.
        let mut operands = Operands::gaussian((4, 33, 90), 6);
        for k in 0..33 {
            *operands.x_at(1, k) *= scale_of_x;
        }
        operands.bias = Some((0..90).map(|column| (column * 7 % 90) as f32 * 10.0).collect());
        all_isas().into_iter().for_each(|isa| {
            let decided = operands.check(isa);
            assert!(decided[0] && decided[2] && decided[3], "{isa}: {decided:?}");
            assert!(decided[1] || scale_of_x >= 1e17, "{isa}, {scale_of_x:e}");
        });
    }
}

#[test]
fn what_is_not_finite_undecides_its_own_rows_only() {
    for isa in all_isas() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut operands = Operands::gaussian((14, 64, 300), 7);
            *operands.x_at(5, 63) = bad;
            let expected: Vec<bool> = (0..14).map(|row| row != 5).collect();
            assert_eq!(operands.check(isa), expected, "{isa}: {bad} in x");
        }
        for column in [0, 31, 32, 299] {
            let mut operands = Operands::gaussian((14, 64, 300), 8);
            *operands.weight_at(17, column) = f32::NAN;
            assert_eq!(operands.check(isa), [false; 14], "{isa}: NaN in column {column}");
            for row in [2, 13] {
                operands.banned[row * 300 + column] = true;
            }
            let expected: Vec<bool> = (0..14).map(|row| [2, 13].contains(&row)).collect();
            assert_eq!(operands.check(isa), expected, "{isa}: column {column} banned");
        }
        let mut operands = Operands::gaussian((14, 64, 300), 9);
        let mut bias = vec![0.25; 300];
        // A column that never comes is one that could have been the largest.
        let largest: Vec<_> = operands.right(&operands.build(isa)).into_iter().flatten().collect();
        assert_eq!(largest.len(), 14);
        for (column, _) in largest {
            bias[column as usize] = f32::NEG_INFINITY;
        }
        operands.bias = Some(bias);
        operands.check_all(isa);
        operands.bias = Some(vec![f32::NEG_INFINITY; 300]);
        assert_eq!(operands.check(isa), [false; 14]);
        let mut bias = vec![0.25; 300];
        bias[3] = f32::NAN;
        operands.bias = Some(bias);
        assert_eq!(operands.check(isa), [false; 14]);
    }
}

/// The bytes of a row and of a column can make a larger product than the row and the column.
#[test]
fn a_product_of_bytes_that_overflows_rules_nothing_out() {
    const DEPTH: usize = 16_130;
    let max = f64::from(f32::MAX);
    // Elements just above half a step, together as long as the largest once bytes have doubled them.
    let step = (0.645 * max / (127.0 * 127.0 * (1.0 + 0.501 * 0.501))).sqrt();
    let element = |k: usize| if k == 0 { 127.0 * step } else { 0.501 * step };
    for column in [0, 1] {
        let operands = Operands::dense(
            (1, DEPTH, 2),
            // A little smaller and larger: what the bytes of the row stand for has a norm.
            |_, k| (element(k) / 1.05) as f32,
            |k, j| match k {
                _ if j == column => (-1.05 * element(k)) as f32,
                0 => (-0.65 * max / (element(0) / 1.05)) as f32,
                _ => 0.0,
            },
        );
        for isa in all_isas() {
            let right = operands.right(&operands.build(isa));
            assert_eq!(right[0].expect("finite").0, column as u32, "{isa}");
            operands.check(isa);
        }
    }
}

/// The least number and a little less is the least number; with what the bytes make of the little,
/// it is negative infinity. The other columns are looked at first, and in groups.
#[test]
fn a_bias_that_overflows_with_bytes_alone_rules_nothing_out() {
    let unit = 2.0f32.powi(51);
    // 1.9 times 2^102 less, of which bytes make 3.7: the tie is at 2.
    let little = 1.9 / (400.0 * 0.51) * unit;
    let mut operands = Operands::dense(
        (1, 402, 41),
        |_, k| match k {
            0 => 127.0 * unit,
            1 => 0.0,
            _ => 0.51 * unit,
        },
        |k, column| match k {
            _ if column > 0 => 0.0,
            0 => 0.0,
            1 => 127.0 * little,
            _ => -little,
        },
    );
    operands.bias = Some(vec![f32::MIN; 41]);
    for isa in all_isas() {
        let right = operands.right(&operands.build(isa));
        assert_eq!(right[0], Some((0, f32::MIN.to_bits())), "{isa}");
        operands.check(isa);
    }
}

/// Sums near 1 on a bias beside which they count as 2 or as nothing: half of all columns tie, and what
/// bytes make of the first of them may be nothing.
#[test]
fn a_bias_that_rounds_most_of_the_sum_away_rules_nothing_out() {
    let (mut of_x, mut of_weight) = (Random::new(13), Random::new(14));
    let mut operands = Operands::dense(
        (60, 32, 90),
        |_, k| if k == 0 { 1.0 } else { of_x.value() },
        |k, _| if k == 0 { 1.0 } else { 0.01 * of_weight.value() },
    );
    operands.bias = Some(vec![16_777_216.0; 90]);
    all_isas().into_iter().for_each(|isa| operands.check_all(isa));
}

#[test]
fn bans_and_ties() {
    for isa in all_isas() {
        // Everything banned, and everything but one.
        let mut operands = Operands::gaussian((13, 70, 333), 10);
        operands.banned.fill(true);
        operands.banned[4 * 333 + 200] = false;
        let expected: Vec<bool> = (0..13).map(|row| row == 4).collect();
        assert_eq!(operands.check(isa), expected, "{isa}");
        // As many ties as the lists hold or fewer: the first column, or the first that is left.
        let mut operands = Operands::dense((13, 70, 333), |_, _| 1.0, |_, _| 0.5);
        operands.check_all(isa);
        operands.banned.iter_mut().step_by(2).for_each(|banned| *banned = true);
        operands.check_all(isa);
        // Far more.
        let mut operands = Operands::dense((2, 9, 5000), |_, _| 1.0, |_, _| 0.5);
        operands.check(isa);
        for k in 0..9 {
            *operands.weight_at(k, 4321) = 50.0;
        }
        operands.check(isa);
        // Nothing to choose from, nothing to choose for, nothing to add up.
        assert_eq!(Operands::gaussian((3, 5, 0), 1).check(isa), [false; 3]);
        assert_eq!(Operands::gaussian((0, 5, 7), 1).check(isa), [false; 0]);
        let mut operands = Operands::gaussian((3, 0, 70), 1);
        operands.check_all(isa);
        operands.bias = Some((0..70).map(|column| (column * 3 % 64) as f32).collect());
        operands.check_all(isa);
    }
}

#[test]
fn a_row_is_the_same_alone_in_a_batch_and_on_any_threads() {
    for isa in all_isas() {
        let mut operands = Operands::gaussian((29, 130, 3003), 11);
        operands.by_column = true;
        *operands.x_at(7, 3) = f32::NAN;
        let built = operands.build(isa);
        let right = operands.right(&built);
        let together = operands.ask(&built, (0, 29), SERIAL);
        assert_eq!(together, right, "{isa}: all decided but one");
        for row in 0..29 {
            assert_eq!(operands.ask(&built, (row, 1), SERIAL), right[row..=row], "{isa}");
        }
        for (first, count) in [(0, 12), (12, 13), (3, 25)] {
            let found = operands.ask(&built, (first, count), SERIAL);
            assert_eq!(found, right[first..first + count], "{isa}");
        }
        for crew in crews_of(isa, 0) {
            let found = crew.run(|parallelism| operands.ask(&built, (0, 29), parallelism));
            assert_eq!(found, right, "{isa}, {crew:?}");
        }
        // Ties in every part: whichever is found first, the first column is given.
        let ties = Operands::dense((5, 8, 900), |_, k| k as f32, |_, j| (j % 30) as f32);
        let built = ties.build(isa);
        let right = ties.right(&built);
        for crew in crews_of(isa, 1) {
            let found = crew.run(|parallelism| ties.ask(&built, (0, 5), parallelism));
            assert_eq!(found, right, "{isa}, {crew:?}");
        }
    }
}
