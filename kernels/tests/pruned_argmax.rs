//! The pruned argmax compared with what it replaces: the product, then the first of its largest elements.
//!
//! For any operands, a decided row must have that column and that value, bit for bit, and rows of ordinary
//! operands must be decided. Unit tests beside the source check the pruning table, and
//! `pruned_argmax_errors.rs` checks wrong calls.
use crate::support::gemm::strides;
use crate::support::pruned_argmax::Operands;
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::Isa;

/// The next float away from zero, `x` itself, or the next float towards zero.
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
    /// Sums are exact, and many are equal.
    Integers,
    /// One element of `x` is a thousand times the others.
    Outlier,
    /// Columns of magnitudes `2^-20` to `2^20`.
    Norms,
    /// Columns that are equal except for an ulp in one element, or completely equal.
    Twins,
    /// The same elements in other orders, all of them exact in int8: only the rounding of sums differs.
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
    /// The elements of `x` and of the weight, each requested in the order of [`Strided::new`].
    fn elements(
        self,
        depth: usize,
        columns: usize,
        seed: u64,
    ) -> (impl FnMut(usize, usize) -> f32, impl FnMut(usize, usize) -> f32) {
        let (mut of_x, mut of_weight) = (Random::new(seed), Random::new(!seed));
        let outlier = of_x.below(depth.max(1));
        let sizes: Vec<i32> = (0..columns).map(|_| of_weight.below(41) as i32 - 20).collect();
        let first: Vec<f32> = of_weight.normals(depth);
        let place: Vec<usize> = (0..columns).map(|_| of_weight.below(depth.max(1))).collect();
        let x = move |_, k| match self {
            Self::Uniform => of_x.value(),
            Self::Integers => of_x.integer(2),
            Self::Orders => 0.1,
            Self::Outlier if k == outlier => 1000.0 * of_x.normal(),
            _ => of_x.normal(),
        };
        let weight = move |k: usize, column: usize| match self {
            Self::Uniform => of_weight.value(),
            Self::Integers => of_weight.integer(1),
            Self::Norms => of_weight.normal() * 2.0f32.powi(sizes[column]),
            Self::Twins if place[column] == k => nudged(first[k], &mut of_weight),
            Self::Twins => first[k],
            Self::Orders => ((k * 3 + place[column]) % depth % 128) as f32 * 0.1,
            _ => of_weight.normal(),
        };
        (x, weight)
    }
}

/// One case of [`a_decided_row_has_the_argmax_of_the_product`].
#[derive(Clone, Debug)]
struct Case {
    shape: (usize, usize, usize),
    kind: Kind,
    /// Gaps after rows, and whether columns are contiguous instead; elements between neighbors.
    layouts: [((usize, bool), usize); 2],
    bias: bool,
    by_column: bool,
    /// Bans out of 8 elements.
    banned: usize,
    seed: u64,
}

fn any_case() -> impl Strategy<Value = Case> {
    let layout = || ((0usize..=4, any::<bool>()), prop_oneof![3 => Just(1usize), 1 => 2usize..=3]);
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
            // Often no bans, sometimes nearly all.
            banned: banned.saturating_sub(3) + usize::from(banned == 8) * 2,
            seed,
        })
}

impl Case {
    fn operands(&self) -> Operands {
        let (rows, depth, columns) = self.shape;
        let [(lay_x, spread_x), (lay_w, spread_w)] = self.layouts;
        let (x, weight) = self.kind.elements(depth, columns, self.seed);
        let mut random = Random::new(self.seed ^ 0x5eed);
        let bias = (0..columns).map(|_| match self.kind {
            Kind::Integers => random.integer(1),
            // A bias so large that the sum is nearly rounded away.
            _ if self.seed.is_multiple_of(4) => 1e7,
            _ => random.normal(),
        });
        let bias = bias.collect();
        Operands {
            x: Strided::new(rows, depth, strides(rows, depth, lay_x, spread_x), x),
            weight: Strided::new(depth, columns, strides(depth, columns, lay_w, spread_w), weight),
            bias: self.bias.then_some(bias),
            by_column: self.by_column,
            banned: (0..rows * columns).map(|_| random.below(8) < self.banned).collect(),
        }
    }
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn a_decided_row_has_the_argmax_of_the_product(case in any_case()) {
        let operands = case.operands();
        for isa in all_isas() {
            operands.check(isa);
        }
    }
}

/// A pruned argmax that decides no row would pass all other tests.
#[test]
fn ordinary_rows_are_all_decided() {
    let shapes = [(1, 64, 2000), (9, 65, 2999), (13, 100, 4000), (25, 512, 2501), (3, 2049, 2100)];
    for (index, shape) in shapes.into_iter().enumerate() {
        let mut operands = Operands::gaussian(shape, index as u64);
        let mut random = Random::new(index as u64);
        if index % 2 == 1 {
            operands.bias = Some(random.normals(shape.2));
            operands.by_column = true;
            operands.banned.iter_mut().for_each(|banned| *banned = random.below(50) == 0);
        }
        all_isas().into_iter().for_each(|isa| operands.check_all(isa));
    }
}

/// The direction in which [`aligned`] loses most by rounding.
#[derive(Clone, Copy, Debug)]
enum Lost {
    OfX,
    OfWeight,
    OfBoth,
}

/// A row and two columns that matter. Column `columns.0` is larger, but int8 makes `columns.1` larger.
/// Elements are just below or just above half a quantization step, so that rounding loses or doubles all of
/// them, and their signs are those of the elements that they are multiplied by, so that nothing cancels.
/// Element 0 of the row and element 1 of the columns are 127 steps. The other columns are small.
fn aligned(lost: Lost, n: usize, columns: (usize, usize), width: usize, seed: u64) -> Operands {
    let mut random = Random::new(seed);
    let depth = 2 * n + 2;
    let signs: Vec<f32> = (0..depth).map(|_| random.integer(1).signum()).collect();
    // The first half of the elements belongs to the larger column, the second half to the other one.
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

/// The argmax of the int8 product alone.
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
fn rounding_misleads_int8_and_not_the_pruned_argmax() {
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

/// Random elements very close to half a quantization step.
#[test]
fn elements_at_half_a_step_never_mislead_the_pruned_argmax() {
    let mut misled = 0;
    let rounds = if brief() { 20 } else { cases(80, 200) };
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

/// Special values: zeros, subnormals, infinities, NaN and large numbers.
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
fn a_decided_row_is_right_for_special_values() {
    let mut decided = 0;
    let rounds = if brief() { 30 } else { 300 };
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        let shape = (1 + random.below(14), 1 + random.below(70), 1 + random.below(150));
        let (rows, depth, columns) = shape;
        let mut operands = Operands::gaussian(shape, seed);
        let special = |random: &mut Random| SPECIAL[random.below(SPECIAL.len())];
        let mut bias: Vec<f32> = random.normals(columns);
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
        // Rows of every magnitude beside each other. The bias alone decides.
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
fn values_that_are_not_finite_undecide_only_their_rows() {
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
        // A column with NaN could have been the largest, so the row is undecided.
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

/// The int8 product of a row and a column can be larger than the exact product.
#[test]
fn an_int8_product_that_overflows_excludes_no_column() {
    const DEPTH: usize = 16_130;
    let max = f64::from(f32::MAX);
    // Elements just above half a step. After int8 has doubled them, their norm is that of the largest
    // element.
    let step = (0.645 * max / (127.0 * 127.0 * (1.0 + 0.501 * 0.501))).sqrt();
    let element = |k: usize| if k == 0 { 127.0 * step } else { 0.501 * step };
    for column in [0, 1] {
        let operands = Operands::dense(
            (1, DEPTH, 2),
            // A little smaller and a little larger: the int8 row has a norm, too.
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

/// The smallest number with a smaller bias is the smallest number; with the int8 estimate of the sum it is
/// negative infinity. The other columns are scanned first, in groups.
#[test]
fn a_bias_that_overflows_only_in_int8_excludes_no_column() {
    let unit = 2.0f32.powi(51);
    // The sum lowers the bias by 1.9 times 2^102, and by 3.7 in int8. The rounding tie is at 2.
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

/// Sums near 1 beside a bias so large that they are rounded to 2 or to 0: half of all columns are equal,
/// and int8 may round the first of them to 0.
#[test]
fn a_bias_that_rounds_most_of_the_sum_away_excludes_no_column() {
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
fn banned_and_equal_columns() {
    for isa in all_isas() {
        // All columns banned, and all but one.
        let mut operands = Operands::gaussian((13, 70, 333), 10);
        operands.banned.fill(true);
        operands.banned[4 * 333 + 200] = false;
        let expected: Vec<bool> = (0..13).map(|row| row == 4).collect();
        assert_eq!(operands.check(isa), expected, "{isa}");
        // At most as many equal columns as the candidate lists have space for: the first column, or
        // the first that is not banned.
        let mut operands = Operands::dense((13, 70, 333), |_, _| 1.0, |_, _| 0.5);
        operands.check_all(isa);
        operands.banned.iter_mut().step_by(2).for_each(|banned| *banned = true);
        operands.check_all(isa);
        // Many more.
        let mut operands = Operands::dense((2, 9, 5000), |_, _| 1.0, |_, _| 0.5);
        operands.check(isa);
        for k in 0..9 {
            *operands.weight_at(k, 4321) = 50.0;
        }
        operands.check(isa);
        // No columns, no rows, no depth.
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
            let found =
                crew.with_parallelism(|parallelism| operands.ask(&built, (0, 29), parallelism));
            assert_eq!(found, right, "{isa}, {crew:?}");
        }
        // Equal columns in every part: whichever thread finds one first, the result is the first
        // column.
        let ties = Operands::dense((5, 8, 900), |_, k| k as f32, |_, j| (j % 30) as f32);
        let built = ties.build(isa);
        let right = ties.right(&built);
        for crew in crews_of(isa, 1) {
            let found = crew.with_parallelism(|parallelism| ties.ask(&built, (0, 5), parallelism));
            assert_eq!(found, right, "{isa}, {crew:?}");
        }
    }
}
