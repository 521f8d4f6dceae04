//! The bits of the gradients of a linear layer do not depend on how they are computed.

use super::weight_gradient::{Call, ends, gradient};
use crate::support::*;
use simdformer_kernels::train::{ReductionChunks, WriteMode};

#[track_caller]
fn assert_same(found: &Call, expected: &Call, what: &str) {
    assert_eq!(difference(&found.weight(), &expected.weight()), None, "{what}");
    assert_eq!(difference(&found.d_bias, &expected.d_bias), None, "{what}");
}

/// Sums over rows by their definition, with one rounding for each multiply-add.
#[test]
fn an_element_is_one_chain_per_reduction_chunk() {
    for isa in all_isas() {
        let mut random = Random::new(4);
        for shape @ [rows, outputs, inputs] in [[9, 7, 70], [40, 13, 20], [600, 50, 65]] {
            let ends = ends(&mut random, rows, 3);
            let mut call = Call::new(shape, &ends, || random.value());
            call.compute_gradient(isa, WriteMode::Store, SERIAL);
            let chunks = ReductionChunks::new(&ends).expect("chunks");
            for n in 0..outputs {
                let mut bias = f32::NAN;
                for m in 0..inputs {
                    let mut sum = f32::NAN;
                    for (index, rows) in chunks.ranges().enumerate() {
                        let (mut chunk, mut column) = (0.0f32, 0.0f32);
                        for k in rows {
                            chunk = call.d_y.at(k, n).mul_add(call.x.at(k, m), chunk);
                            column += call.d_y.at(k, n);
                        }
                        sum = if index == 0 { chunk } else { sum + chunk };
                        bias = if index == 0 { column } else { bias + column };
                    }
                    let found = call.d_weight.at(n, m);
                    assert_eq!(found.to_bits(), sum.to_bits(), "{isa}: {shape:?}, ({n}, {m})");
                }
                assert_eq!(call.d_bias[n].to_bits(), bias.to_bits(), "{isa}: {shape:?}, {n}");
            }
        }
    }
}

#[test]
fn instruction_sets_give_the_same_bits() {
    let mut random = Random::new(5);
    for shape @ [rows, ..] in [[1, 1, 1], [530, 49, 130], [77, 200, 33], [64, 6, 64]] {
        let ends = ends(&mut random, rows, 2);
        let call = Call::new(shape, &ends, || random.value());
        let mut results = Vec::new();
        for isa in all_isas() {
            let mut call = call.clone();
            call.compute_gradient(isa, WriteMode::Store, SERIAL);
            call.compute_gradient(isa, WriteMode::Add, SERIAL);
            results.push((isa, call));
        }
        for pair in results.windows(2) {
            let what = format!("{} and {}: {shape:?}", pair[0].0, pair[1].0);
            assert_same(&pair[0].1, &pair[1].1, &what);
        }
    }
}

/// A batch, and micro-batches of whole reduction chunks that add to the first.
#[test]
fn calls_that_add_whole_chunks_equal_one_call() {
    let (rows, outputs, inputs) = (230, 61, 70);
    for isa in all_isas() {
        let mut random = Random::new(6);
        let ends = [40u32, 41, 100, 163, 230];
        let mut whole = Call::new([rows, outputs, inputs], &ends, || random.value());
        for cuts in [&[5][..], &[1, 5], &[2, 3, 5], &[1, 2, 3, 4, 5]] {
            for write in [WriteMode::Store, WriteMode::Add] {
                let mut parts = whole.clone();
                if write == WriteMode::Add {
                    parts.d_weight.data[..outputs * inputs].fill(0.75);
                    parts.d_bias.fill(-0.25);
                }
                whole.d_weight.data.clone_from(&parts.d_weight.data);
                whole.d_bias.clone_from(&parts.d_bias);
                whole.compute_gradient(isa, write, SERIAL);
                let (mut chunk, mut row) = (0, 0);
                for &cut in cuts {
                    let own: Vec<u32> = ends[chunk..cut].iter().map(|end| end - row).collect();
                    let count = own[own.len() - 1] as usize;
                    let block = |from: &Strided| {
                        Strided::new(count, from.columns, 0, |i, j| from.at(row as usize + i, j))
                    };
                    let mut part = Call {
                        d_y: block(&whole.d_y),
                        x: block(&whole.x),
                        ends: own,
                        d_weight: parts.d_weight.clone(),
                        d_bias: parts.d_bias.clone(),
                    };
                    part.compute_gradient(
                        isa,
                        if chunk == 0 { write } else { WriteMode::Add },
                        SERIAL,
                    );
                    (parts.d_weight, parts.d_bias) = (part.d_weight, part.d_bias);
                    (chunk, row) = (cut, ends[cut - 1]);
                }
                assert_same(&parts, &whole, &format!("{isa}: {cuts:?}, {write:?}"));
            }
        }
    }
}

#[test]
fn trap_19_threads_do_not_change_a_bit() {
    let mut random = Random::new(7);
    for shape @ [rows, ..] in [[300, 100, 200], [130, 350, 20], [70, 5, 1000], [3, 4, 5]] {
        let ends = ends(&mut random, rows, 2);
        let call = Call::new(shape, &ends, || random.value());
        for isa in all_isas() {
            let mut serial = call.clone();
            serial.compute_gradient(isa, WriteMode::Store, SERIAL);
            for crew in CREWS {
                let mut found = call.clone();
                crew.with_parallelism(|parallelism| {
                    found.compute_gradient(isa, WriteMode::Store, parallelism)
                });
                assert_same(&found, &serial, &format!("{isa}: {shape:?}, {crew:?}"));
            }
        }
    }
}

/// A NaN in a row of dY or X reaches the gradients that depend on it, and no others.
#[test]
fn nan_reaches_its_column_only() {
    for isa in all_isas() {
        let mut random = Random::new(8);
        let shape @ [_, outputs, inputs] = [20, 14, 70];
        let mut call = Call::new(shape, &[9, 20], || random.value());
        call.d_y.data[3 * outputs + 5] = f32::NAN;
        call.x.data[11 * inputs + 66] = f32::NAN;
        call.compute_gradient(isa, WriteMode::Store, SERIAL);
        for n in 0..outputs {
            assert_eq!(call.d_bias[n].is_nan(), n == 5);
            for m in 0..inputs {
                assert_eq!(call.d_weight.at(n, m).is_nan(), n == 5 || m == 66, "{isa}: {n}, {m}");
            }
        }
    }
}

/// Without a gradient of the bias the gradient of the weight is the same, and so it is with the scratch at
/// any address.
#[test]
fn neither_a_missing_bias_nor_the_address_of_the_scratch_changes_a_bit() {
    let [rows, outputs, inputs] = [50, 20, 90];
    for isa in all_isas() {
        let mut random = Random::new(9);
        let mut call = Call::new([rows, outputs, inputs], &[50], || random.value());
        call.compute_gradient(isa, WriteMode::Store, SERIAL);
        let floats = call.scratch(isa);
        let mut buffer = poisoned(floats + 16);
        for offset in 0..16 {
            let mut d_weight = poisoned(outputs * inputs);
            let to = view_matrix_mut(&mut d_weight, outputs, inputs);
            let (operands, scratch) =
                ((call.d_y.view(), call.x.view()), &mut buffer[offset..][..floats]);
            gradient(isa, operands, &call.ends, WriteMode::Store, (to, None), scratch, SERIAL);
            assert_eq!(difference(&d_weight, &call.weight()), None, "{isa}: {offset}");
        }
    }
}

#[cfg(unix)]
#[test]
fn everything_stays_between_guard_pages() {
    use crate::support::Guarded;
    type Wall = fn(&[f32]) -> Guarded;
    let walls: [Wall; 2] = [Guarded::at_start, Guarded::at_end];
    for isa in all_isas() {
        let mut random = Random::new(10);
        for index in 0..if brief() { 10 } else { 60 } {
            let shape @ [rows, outputs, inputs] =
                [1 + index % 23, 1 + (index * 7) % 60, 1 + (index * 13) % 140];
            let mut expected = Call::new(shape, &[rows as u32], || random.integer(8));
            expected.compute_gradient(isa, WriteMode::Store, SERIAL);
            for wall in walls {
                let d_y = wall(&expected.d_y.data[..rows * outputs]);
                let x = wall(&expected.x.data[..rows * inputs]);
                let mut scratch = wall(&poisoned(expected.scratch(isa)));
                let mut d_weight = wall(&poisoned(outputs * inputs));
                let mut d_bias = wall(&poisoned(outputs));
                let operands = (view_matrix(&d_y, rows, outputs), view_matrix(&x, rows, inputs));
                let to = (view_matrix_mut(&mut d_weight, outputs, inputs), Some(&mut d_bias[..]));
                let ends = &expected.ends;
                gradient(isa, operands, ends, WriteMode::Store, to, &mut scratch, SERIAL);
                assert_eq!(d_weight.to_vec(), expected.weight(), "{isa}: {shape:?}");
                assert_eq!(d_bias.to_vec(), expected.d_bias, "{isa}: {shape:?}");
            }
        }
    }
}
