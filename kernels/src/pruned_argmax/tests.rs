//! Tests of the contents of a pruning table and of its quantized rows, against scalar f64 code, on every instruction
//! set.

use super::PruningTable;
use super::build::ColumnStatistic;
use super::error_bound::{TAKEN, TAKEN_BY_BIAS};
use super::product::{CANDIDATES, Candidate, PARTS, Product};
use super::row_bounds::{BoundedRows, ROW_STATISTICS};
use super::scan::{ScanTask, scan};
use crate::gemm::{Integers, PANEL, Single};
use crate::isa::Isa;
use crate::parallel::share;
use crate::simd::SimdF32;
use crate::simd::int8::{Int8Dot, Int8Op, SimdI32};
use crate::simd::u8_activations::ActivationEncoding;
use crate::sync_ptr::SharedMut;
use crate::{
    Epilogue, Matrix, MatrixMut, PackedMatrix, Parallelism, Quantization, QuantizedActivations,
    gemm,
};
use std::vec;
use std::vec::Vec;

/// A pseudo-random value in `-1.0..1.0`, the same in every run.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Vectors of `depth` elements, of every magnitude whose norm is finite in f32: real numbers, odd multiples of half a
/// step, a single nonzero element, and zeros.
fn vectors(count: usize, depth: usize) -> Vec<Vec<f32>> {
    let state = &mut 7;
    let vector = |i: usize| {
        let size = 10.0f32.powi(i as i32 % 36 - 20);
        let element = |k: usize| match i % 5 {
            0 => (random(state) * 127.0).round() - 0.5,
            1 if k > 0 => 0.0,
            2 => 1.0,
            3 if i.is_multiple_of(3) => 0.0,
            _ => random(state),
        };
        (0..depth).map(element).map(|x| x * size).collect()
    };
    (0..count).map(vector).collect()
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    libm::sqrt(x.map(|x| x * x).sum())
}

/// Checks that the scale and the int8 values of `values` are the nearest. Returns the dequantized values.
fn check_bytes(values: &[f32], scale: f32, bytes: &[i32]) -> Vec<f64> {
    let largest = values.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    assert_eq!(scale, largest / 127.0);
    for (&x, &q) in values.iter().zip(bytes) {
        assert!((-127..=127).contains(&q));
        let error_norm = (f64::from(x) - f64::from(scale) * f64::from(q)).abs();
        assert!(error_norm <= f64::from(scale) * 0.5 * (1.0 + 1e-5), "{x} is {q} of {scale}");
    }
    assert!(bytes[values.len()..].iter().all(|&q| q == 0));
    bytes[..values.len()].iter().map(|&q| f64::from(q) * f64::from(scale)).collect()
}

/// Checks that `found` is at least `exact` and at most slightly above `allowed`.
fn check_bound(found: f32, exact: f64, allowed: f64) {
    let found = f64::from(found);
    assert!(found >= exact && found <= allowed + 3e-16, "{found:e} for {exact:e}, {allowed:e}");
}

#[test]
fn a_table_has_the_nearest_int8_values_and_bounds_their_error() {
    for isa in Isa::available() {
        for (depth, columns) in [(1, 1), (3, 31), (4, 32), (65, 33), (130, 100), (2049, 37)] {
            let weights = vectors(columns, depth);
            let dense = weights.concat();
            let mut packed = vec![f32::NAN; PackedMatrix::buffer_len(isa, depth, columns).unwrap()];
            let weight = Matrix::new(&dense, columns, depth).unwrap().transposed();
            let weight = PackedMatrix::pack(isa, weight, &mut packed).unwrap();
            let mut buffer = vec![f32::NAN; PruningTable::buffer_len(depth, columns).unwrap()];
            let pruning_table = PruningTable::build(&weight, &mut buffer).unwrap();
            let zeros = vec![0.0; depth];
            for column in 0..columns.next_multiple_of(PANEL) {
                let values = weights.get(column).unwrap_or(&zeros);
                let ((words, statistics), lane) =
                    (pruning_table.panel(column / PANEL), column % PANEL);
                let bytes: Vec<i32> = words[lane..]
                    .iter()
                    .step_by(PANEL)
                    .flat_map(|word| word.to_bits().to_le_bytes())
                    .map(|byte| i32::from(byte.cast_signed()))
                    .collect();
                let get = |which: ColumnStatistic| statistics[which as usize][lane];
                let dequantized = check_bytes(values, get(ColumnStatistic::Scale), &bytes);
                let sum: i32 = bytes.iter().sum();
                assert_eq!(get(ColumnStatistic::Offset).to_bits().cast_signed(), -128 * sum);
                let whole = norm(values.iter().map(|&x| f64::from(x)));
                let error_norm = norm(
                    values
                        .iter()
                        .zip(dequantized)
                        .map(|(&x, dequantized)| f64::from(x) - dequantized),
                );
                check_bound(get(ColumnStatistic::Norm), whole, whole * 1.001);
                check_bound(
                    get(ColumnStatistic::Error),
                    error_norm,
                    error_norm * 1.001 + whole * 1e-6,
                );
            }
        }
    }
}

#[test]
fn rows_have_the_nearest_int8_values_and_bounds_their_error() {
    for isa in Isa::available() {
        for (rows, depth) in [(1, 1), (5, 16), (12, 63), (13, 17), (30, 130), (2, 2049)] {
            let values = vectors(rows, depth);
            let dense = values.concat();
            let x = Matrix::new(&dense, rows, depth).unwrap();
            let mut words = vec![f32::NAN; scratch_words(rows, depth)];
            let mut statistics = vec![f32::NAN; rows * ROW_STATISTICS];
            let bounded = BoundedRows::new(isa, &x, &mut words, &mut statistics).unwrap();
            let tiles = bounded.quantized.tiles();
            for tile in (0..tiles).map(|tile| share(rows, tiles, tile)) {
                for row in tile.clone() {
                    let bytes = isa.dispatch_bytes(Elements(&bounded, tile.clone(), row));
                    let bound = bounded.bound(row);
                    assert_eq!(bounded.quantized.row_scale(row), bound.scale);
                    let dequantized = check_bytes(&values[row], bound.scale, &bytes);
                    let pairs = values[row].iter().zip(&dequantized);
                    let error_norm =
                        norm(pairs.map(|(&x, dequantized)| f64::from(x) - dequantized));
                    let whole = norm(values[row].iter().map(|&x| f64::from(x)));
                    // Two roundings for each of `depth` sums: in `gemm` and in the norms.
                    let rounding = depth as f64 * f64::from(f32::EPSILON) * whole;
                    let allowed = error_norm * 1.001 + 2.0 * rounding + whole * 1e-5;
                    check_bound(bound.norm_factor, error_norm + 0.5 * rounding, allowed);
                    let dequantized = norm(dequantized.into_iter());
                    check_bound(bound.error_factor, dequantized, dequantized * 1.001);
                    assert_eq!(bounded.best(row).get(), f32::NEG_INFINITY);
                }
            }
        }
    }
}

/// Words of the quantized rows.
fn scratch_words(rows: usize, depth: usize) -> usize {
    QuantizedActivations::buffer_len(rows, depth, Quantization::W8A8).unwrap()
}

/// The quantized elements of a row in a tile, in groups of four.
struct Elements<'r>(&'r BoundedRows<'r>, core::ops::Range<usize>, usize);

impl Int8Op for Elements<'_> {
    type Output = Vec<i32>;

    fn run_with<B: Int8Dot, const NV: usize, const TV: usize>(self, _: B) -> Vec<i32> {
        let Self(rows, tile, row) = self;
        let (height, place, per_step) =
            (tile.len(), row - tile.start, <Single<B> as Integers>::WORDS);
        let words = rows.quantized.words(tile);
        let step = |words: &[f32]| match (B::STORED, &words[place * per_step..][..per_step]) {
            (ActivationEncoding::Unsigned, [word]) => {
                word.to_bits().to_le_bytes().map(|byte| i32::from(byte) - 128)
            }
            (ActivationEncoding::Signed, [word]) => {
                word.to_bits().to_le_bytes().map(|byte| i32::from(byte.cast_signed()))
            }
            (ActivationEncoding::Pairs, [even, odd]) => {
                let half = |word: &f32, shift| i32::from((word.to_bits() >> shift) as i16);
                [half(even, 0), half(odd, 0), half(even, 16), half(odd, 16)]
            }
            _ => unreachable!("{per_step} words"),
        };
        words.chunks_exact(height * per_step).flat_map(step).collect()
    }
}

struct Dots;

impl Int8Op for Dots {
    type Output = ();

    #[inline(always)]
    fn run_with<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        let lanes = <B::Floats as SimdF32>::LANES;
        assert_eq!(lanes * NV, PANEL);
        let extremes = [0u8, 1, 127, 128, 129, 255, 254, 3];
        let bytes = |i: usize| -> [u8; 4] {
            core::array::from_fn(|k| extremes[(i * 3 + k * k) % extremes.len()])
        };
        let word = |i: usize| i32::from_le_bytes(bytes(i));
        // Four elements of a row, `bytes - 128`.
        let row = |i: usize| match B::STORED {
            ActivationEncoding::Unsigned => [word(i), 0],
            ActivationEncoding::Signed => [word(i) ^ 0x8080_8080_u32.cast_signed(), 0],
            ActivationEncoding::Pairs => {
                let four = bytes(i).map(|byte| i32::from(byte) - 128);
                let pair = |low: i32, high: i32| (low & 0xffff) | (high << 16);
                [pair(four[0], four[2]), pair(four[1], four[3])]
            }
        };
        for i in 0..64 {
            let weights: [i32; PANEL] = core::array::from_fn(|lane| word(i + 5 * lane));
            // SAFETY: `weights` has PANEL words, at least one vector.
            let weights_in = unsafe { b.load(weights.as_ptr()) };
            for start in [0, 1 << 30, -(1 << 30)] {
                // The offset that compensates unsigned values of a row, on instruction sets that store them unsigned.
                let offset: [i32; PANEL] = core::array::from_fn(|lane| {
                    weights[lane]
                        .to_le_bytes()
                        .map(|w| -128 * i32::from(w.cast_signed()))
                        .iter()
                        .sum()
                });
                let begin = [start; PANEL];
                // SAFETY: the arrays have PANEL words, at least one vector, and a row has two words.
                let (offset, begin, elements) = unsafe {
                    let offset = Single(b).start(offset.as_ptr());
                    (offset, b.sums().load_sums(begin.as_ptr()), b.row(row(i).as_ptr()))
                };
                let sums = b.dot(b.sums().add(begin, offset), elements, weights_in);
                let mut found = [0.0; PANEL];
                // SAFETY: `found` has PANEL floats, at least one vector.
                unsafe { b.sums().floats().store(found.as_mut_ptr(), b.sums().to_f32(sums)) };
                for lane in 0..lanes {
                    let pairs = word(i).to_le_bytes().into_iter().zip(weights[lane].to_le_bytes());
                    let sum = pairs.map(|(a, w)| (i32::from(a) - 128) * i32::from(w.cast_signed()));
                    assert_eq!(found[lane], (start + sum.sum::<i32>()) as f32, "lane {lane}");
                }
            }
        }
    }
}

#[test]
fn int8_sums_are_exact() {
    for isa in Isa::available() {
        isa.dispatch_bytes(Dots);
        isa.without_dot_products().dispatch_bytes(Dots);
    }
}

/// Half of an epsilon: the largest relative change by one rounding.
const U: f64 = f32::EPSILON as f64 / 2.0;

/// `x w + b` by `gemm`.
fn product(x: &Matrix<'_>, weight: &PackedMatrix<'_>, bias: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; x.rows() * weight.columns()];
    let to = MatrixMut::new(&mut out, x.rows(), weight.columns()).unwrap();
    let epilogue = Epilogue { bias: Some(bias), ..Epilogue::default() };
    gemm(*x, weight, &epilogue, to, Parallelism::Serial).unwrap();
    out
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

#[test]
fn gemm_rounds_no_more_often_than_the_bound_allows_for() {
    for isa in Isa::available() {
        for depth in 1..5 {
            let (columns, state) = (5000, &mut 11);
            let dense: Vec<f32> = (0..columns * depth).map(|_| random(state)).collect();
            let x: Vec<f32> = (0..depth).map(|_| random(state)).collect();
            let bias: Vec<f32> = (0..columns).map(|_| random(state) * 0.1).collect();
            let mut packed = vec![0.0; PackedMatrix::buffer_len(isa, depth, columns).unwrap()];
            let weight = Matrix::new(&dense, columns, depth).unwrap().transposed();
            let weight = PackedMatrix::pack(isa, weight, &mut packed).unwrap();
            let found = product(&Matrix::new(&x, 1, depth).unwrap(), &weight, &bias);
            let mut worst = 0.0f64;
            for (column, w) in dense.chunks_exact(depth).enumerate() {
                let exact = dot(&x, w) + f64::from(bias[column]);
                let norms = libm::sqrt(dot(&x, &x) * dot(w, w));
                let d = depth as f64;
                let allowed = (d + d * d * U + TAKEN[0] as f64) * U * norms
                    + TAKEN_BY_BIAS[0] as f64 * U * f64::from(bias[column].abs());
                let error = (f64::from(found[column]) - exact).abs();
                assert!(error <= allowed, "{isa}, depth {depth}: {error:e} of {allowed:e}");
                worst = worst.max(error / allowed);
            }
            // With few terms the error comes close to the bound, so an additional rounding would be detected.
            assert!(depth > 1 || worst > 0.75, "{isa}: {worst}");
        }
    }
}

#[test]
fn a_scan_rounds_no_more_often_than_the_bound_allows_for() {
    for isa in Isa::available() {
        for (depth, seed) in (0..600).map(|i| (1 + i % 6, i as u64)) {
            let state = &mut (seed + 1);
            // In every third case all values are exact int8 values, so the bound covers only the roundings.
            let mut vector = |largest: f32| -> Vec<f32> {
                let whole = seed.is_multiple_of(3);
                let scale = 1.0 + random(state).abs();
                let element = |k: usize, x: f32| match (whole, k) {
                    (true, 0) => 127.0 * scale,
                    (true, _) => (x * 127.0).round() * scale,
                    _ => x,
                };
                (0..depth).map(|k| element(k, random(state)) * largest).collect()
            };
            let (x, w) = (vector(1.0), vector(0.25));
            let bias = [dot(&x, &w) as f32 * random(state) * 4.0];
            let mut packed = vec![0.0; PackedMatrix::buffer_len(isa, depth, 1).unwrap()];
            let weight = PackedMatrix::pack(isa, Matrix::new(&w, depth, 1).unwrap(), &mut packed);
            let weight = weight.unwrap();
            let mut buffer = vec![0.0; PruningTable::buffer_len(depth, 1).unwrap()];
            let pruning_table = PruningTable::build(&weight, &mut buffer).unwrap();
            let matrix = Matrix::new(&x, 1, depth).unwrap();
            let found = f64::from(product(&matrix, &weight, &bias)[0]);

            let mut words = vec![0.0; scratch_words(1, depth)];
            let mut statistics = vec![0.0; ROW_STATISTICS];
            let mut counts = vec![0u32; PARTS];
            let mut lists = vec![Candidate::default(); PARTS * CANDIDATES];
            let rows = BoundedRows::new(isa, &matrix, &mut words, &mut statistics).unwrap();
            let of_x: Vec<f64> =
                isa.dispatch_bytes(Elements(&rows, 0..1, 0)).into_iter().map(f64::from).collect();
            let (weights, [column_scales, ..]) = pruning_table.panel(0);
            let of_w: Vec<f64> = weights
                .iter()
                .step_by(PANEL)
                .flat_map(|word| word.to_bits().to_le_bytes())
                .map(|byte| f64::from(byte.cast_signed()))
                .collect();
            let scale = f64::from(rows.bound(0).scale) * f64::from(column_scales[0]);
            let exact = of_x.iter().zip(&of_w).map(|(x, w)| x * w).sum::<f64>() * scale;
            let norms = norm(of_x.into_iter()) * norm(of_w.into_iter()) * scale;

            let operands = Product {
                weight: &weight,
                pruning_table: &pruning_table,
                bias: Some(&bias),
                by_column: None,
            };
            let job = ScanTask {
                product: &operands,
                rows,
                banned: &|_, _| false,
                counts: SharedMut::new(&mut counts),
                lists: SharedMut::new(&mut lists),
            };
            isa.dispatch_bytes(scan(&job, 0, 0..1));
            // SAFETY: the scan has finished, and no other reference to the list exists.
            let (count, list) = unsafe { job.list(0, 0) };
            assert_eq!(*count, 1);
            let (upper, lower) = (f64::from(list[0].upper), f64::from(job.rows.best(0).get()));
            assert!(lower <= found && found <= upper, "{lower:e} {found:e} {upper:e}");
            let (middle, bound) = ((upper + lower) / 2.0, (upper - lower) / 2.0);
            let bias = f64::from(bias[0]);
            let allowed = (TAKEN[1] + TAKEN[2]) as f64 * U * norms
                + TAKEN_BY_BIAS[1] as f64 * U * bias.abs()
                + 2.0 * U * bound;
            let error = (middle - (exact + bias)).abs();
            assert!(error <= allowed, "{isa}, depth {depth}: {error:e} of {allowed:e}");
        }
    }
}
