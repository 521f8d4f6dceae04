//! Weights in f16 and bf16: the product has the bits of the product with the same values in f32, in every
//! shape, on every instruction set, on any number of threads. Packing rounds as the oracle does.

use crate::support::gemm::{ACTIVATIONS, HALVES, Packed, post_op_of, product, strides};
use crate::support::pruned_argmax::{Built, Operands, argmax};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::pruned_argmax::Product;
use simdformer_kernels::reference::dtype::stored;
use simdformer_kernels::{
    Dtype, Epilogue, Error, Expected, Isa, PackOptions, PackSource, PackedMatrix, gemm,
};

/// Weights of all magnitudes that both dtypes represent, with subnormal ones of f16.
fn weight(random: &mut Random) -> f32 {
    random.value() * (-((random.below(40)) as f32)).exp2()
}

fn widened(dtype: Dtype, w: &[f32]) -> Vec<f32> {
    w.iter().map(|&x| stored(dtype, x)).collect()
}

/// Packed in `storage`, and the same values packed in f32.
fn both(isa: Isa, dtype: Dtype, w: &[f32], (depth, columns): (usize, usize)) -> (Packed, Packed) {
    let wide = widened(dtype, w);
    let view = |w| view_matrix(w, depth, columns);
    (Packed::with_dtype(isa, dtype, view(w)), Packed::new(isa, view(&wide)))
}

/// Numbers of rows around tiles, few rows and blocks of rows; columns around panels; depths around pairs,
/// blocks and the step in which each instruction set widens.
#[test]
fn the_bits_are_those_of_the_widened_weights_around_every_edge() {
    let mut shapes = Vec::new();
    for rows in (1..=14).chain([35, 36, 37, 42, 95, 96, 97, 193]) {
        for columns in [1, 7, 8, 9, 16, 17, 63, 64, 65, 129] {
            shapes.push((rows, columns, 1 + (rows * 7 + columns) % 38));
        }
    }
    for depth in
        (1..=20).chain([31, 63, 64, 65, 95, 96, 97, 127, 191, 192, 193, 383, 385, 513, 1025])
    {
        for rows in [1, 2, 3, 6, 7, 12, 25, 36, 37, 50, 98, 200] {
            shapes.push((rows, 1 + (depth * 11 + rows) % 150, depth));
        }
    }
    for (index, (rows, columns, depth)) in shapes.into_iter().enumerate() {
        if brief() && index % 16 != 0 {
            continue;
        }
        let mut random = Random::new(index as u64);
        let a = random.values(rows * depth);
        let w: Vec<f32> = (0..depth * columns).map(|_| weight(&mut random)).collect();
        for isa in isas_of(index, 5) {
            for dtype in HALVES {
                let (halves, floats) = both(isa, dtype, &w, (depth, columns));
                let found = product(&a, rows, &halves.get(), SERIAL);
                let expected = product(&a, rows, &floats.get(), SERIAL);
                assert_eq!(
                    difference(&found, &expected),
                    None,
                    "{isa}, {dtype:?}, {rows} x {columns} x {depth}"
                );
            }
        }
    }
}

/// Every 16-bit pattern: every number, infinity and NaN.
#[test]
fn every_16_bit_value_is_widened_exactly() {
    for isa in all_isas() {
        for dtype in HALVES {
            // As rows of two elements and as columns, so that each value is in the lower and in
            // the upper half of a word.
            let (depth, columns) = (2, 1 << 15);
            let words = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("small");
            let all: Vec<f32> = (0..words as u32)
                .map(|word| f32::from_bits((2 * word) | ((2 * word + 1) << 16)))
                .collect();
            let packed = PackOptions::new(dtype).from_packed(isa, depth, columns, &all);
            let packed = packed.expect("the length");
            let mut seen = vec![false; 1 << 16];
            for k in 0..depth {
                // One row, and several rows of which the others are zeros.
                for rows in [1, 3, 7, 40] {
                    let mut a = vec![0.0; rows * depth];
                    a[k] = 1.0;
                    let found = product(&a, rows, &packed, SERIAL);
                    for (column, &x) in found[..columns].iter().enumerate() {
                        let half = place(isa, dtype, k, column);
                        let other = value(dtype, place(isa, dtype, 1 - k, column));
                        let expected = value(dtype, half) + 0.0 * other;
                        // A sum that begins with zero cannot be negative zero.
                        assert!(
                            x.to_bits() == (expected + 0.0).to_bits()
                                || (x.is_nan() && expected.is_nan()),
                            "{isa}, {dtype:?}: {half:#x} is {expected:e}, found {x:e}"
                        );
                        seen[usize::from(half)] = true;
                    }
                }
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}

/// Where the value at row `k` of two is in `column`, if each 16-bit element of the buffer holds its own
/// index.
fn place(isa: Isa, dtype: Dtype, k: usize, column: usize) -> u16 {
    let (panel, lanes) = (isa.panel(), isa.lanes());
    let within = column % panel;
    let at = match dtype {
        Dtype::Bf16 => 2 * within + k,
        _ => within / lanes * 2 * lanes + k * lanes + within % lanes,
    };
    let index = (column - within) * 2 + at;
    // Words are written as they are.
    (if cfg!(target_endian = "big") { index ^ 1 } else { index }) as u16
}

/// The value of a 16-bit pattern by the definition of its dtype.
fn value(dtype: Dtype, half: u16) -> f32 {
    if dtype == Dtype::Bf16 {
        return f32::from_bits(u32::from(half) << 16);
    }
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * (-24f32).exp2(),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * ((exponent - 25) as f32).exp2(),
    };
    if half & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[test]
fn every_epilogue_and_layout_has_the_bits_of_f32() {
    let mut random = Random::new(4);
    for (index, rows) in [1, 2, 6, 8, 40].into_iter().enumerate() {
        for (depth, columns) in [(19, 70), (0, 5), (1, 64), (130, 17)] {
            for activation in 0..ACTIVATIONS.len() {
                for residual in 0..4 {
                    let by_column = (index + residual) % 2 == 1;
                    let mut filled = |rows, columns, gap| {
                        let strides = strides(rows, columns, (gap, by_column), 1);
                        Strided::new(rows, columns, strides, |_, _| random.value())
                    };
                    let a = filled(rows, depth, 3);
                    let w = filled(depth, columns, 2);
                    let other = filled(rows, columns, 1);
                    let before = filled(rows, columns, 4);
                    let bias = random.values(columns);
                    let epilogue = Epilogue {
                        scale: if residual == 2 { -1.5 } else { 1.0 },
                        bias: (activation % 2 == 0).then_some(&bias),
                        activation: ACTIVATIONS[activation],
                        post_op: post_op_of(residual, other.view()),
                    };
                    for isa in all_isas() {
                        for dtype in HALVES {
                            let halves = Packed::with_dtype(isa, dtype, w.view());
                            let strides = (w.row_stride, w.column_stride);
                            let value = |k, j| stored(dtype, w.at(k, j));
                            let wide = Strided::new(depth, columns, strides, value);
                            let floats = Packed::new(isa, wide.view());
                            let [found, expected] = [halves, floats].map(|packed| {
                                let mut c = before.clone();
                                packed.multiply(a.view(), &epilogue, c.view_mut(), SERIAL);
                                c
                            });
                            found.assert_gaps_untouched();
                            let what = format!("{isa}, {dtype:?}, {rows} x {columns} x {depth}");
                            let difference = difference(&found.data, &expected.data);
                            assert_eq!(difference, None, "{what}: {epilogue:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn threads_compute_the_same_bits() {
    let mut random = Random::new(5);
    for (rows, depth, columns) in [(1, 1030, 1100), (5, 301, 700), (20, 257, 300), (130, 100, 129)]
    {
        let a = random.values(rows * depth);
        let w = random.values(depth * columns);
        for isa in all_isas() {
            for dtype in HALVES {
                let (halves, floats) = both(isa, dtype, &w, (depth, columns));
                let expected = product(&a, rows, &floats.get(), SERIAL);
                for crew in crews_of(isa, rows) {
                    let found =
                        crew.with_parallelism(|threads| product(&a, rows, &halves.get(), threads));
                    let what = format!("{isa}, {dtype:?}, {rows} rows, {crew:?}");
                    assert_eq!(difference(&found, &expected), None, "{what}");
                }
                // A row alone, and at any position.
                for row in [0, rows / 2, rows - 1] {
                    let alone = product(&a[row * depth..][..depth], 1, &halves.get(), SERIAL);
                    let there = &expected[row * columns..][..columns];
                    assert_eq!(difference(&alone, there), None, "{isa}, {dtype:?}: row {row}");
                }
            }
        }
    }
}

/// The elements of a packed matrix.
fn unpacked(packed: &PackedMatrix<'_>) -> Vec<f32> {
    let depth = packed.depth();
    let ones: Vec<f32> =
        (0..depth * depth).map(|at| if at / depth == at % depth { 1.0 } else { 0.0 }).collect();
    product(&ones, depth, packed, SERIAL)
}

/// Rounding to nearest, at magnitudes down to subnormal ones and around each midpoint between two values.
#[test]
fn packing_rounds_as_the_oracle_says() {
    let mut random = Random::new(6);
    let (depth, columns) = (37, 150);
    for dtype in HALVES {
        for round in 0..20 {
            let w: Vec<f32> = (0..depth * columns)
                .map(|at| {
                    let least = if dtype == Dtype::F16 { 27 } else { 130 };
                    let exponent = 14 - (at % (least + 14)) as i32;
                    let x = random.value() * (exponent as f32).exp2();
                    // A midpoint, or the value next to one.
                    let digits = if dtype == Dtype::F16 { 0x1fff } else { 0xffff };
                    let middle = (x.to_bits() & !digits) | (digits / 2 + 1);
                    match round % 4 {
                        0 => x,
                        1 => f32::from_bits(middle),
                        2 => f32::from_bits(middle + 1),
                        _ => f32::from_bits(middle - 1),
                    }
                })
                .collect();
            let expected: Vec<f32> = widened(dtype, &w).iter().map(|x| x + 0.0).collect();
            for isa in all_isas() {
                let packed = Packed::with_dtype(isa, dtype, view_matrix(&w, depth, columns));
                let found = unpacked(&packed.get());
                assert_eq!(difference(&found, &expected), None, "{isa}, {dtype:?}");
            }
        }
    }
}

/// In parts with any beginning and end, of any strides, by any number of threads: the same words, and the
/// rest of the buffer is unchanged.
#[test]
fn packing_in_parts_gives_the_same_words() {
    let mut random = Random::new(7);
    for (depth, columns) in [(600, 330), (33, 130), (1, 70), (2, 64), (0, 9), (5, 0), (301, 515)] {
        for by_column in [false, true] {
            let strides = strides(depth, columns, (3, by_column), 1);
            let w = Strided::new(depth, columns, strides, |_, _| random.value());
            for isa in all_isas() {
                for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                    let whole = Packed::with_dtype(isa, dtype, w.view());
                    assert!(whole.data.iter().all(|x| x.to_bits() != POISON.to_bits()));
                    for crew in crews_of(isa, columns) {
                        let mut found = vec![POISON; whole.data.len()];
                        let cuts = [0, columns / 5, columns / 5 + columns / 3, columns];
                        for piece in [2, 0, 1] {
                            let (first, end) = (cuts[piece], cuts[piece + 1]);
                            let turned = w.view().transposed();
                            let block = turned.block(first, end - first).expect("columns");
                            crew.with_parallelism(|threads| {
                                PackOptions { dtype, parallelism: threads }.pack_columns(
                                    isa,
                                    block.transposed(),
                                    (depth, columns),
                                    first,
                                    &mut found,
                                )
                            })
                            .expect("a fit");
                            if piece == 0 {
                                // The columns between the parts are still
                                // poison.
                                let between = found
                                    .iter()
                                    .filter(|x| x.to_bits() == POISON.to_bits())
                                    .count();
                                assert!(between * 4 >= depth * (columns / 3), "{isa}, {dtype:?}");
                            }
                        }
                        let what = format!("{isa}, {dtype:?}: {depth} x {columns}, {crew:?}");
                        assert_eq!(difference(&found, &whole.data), None, "{what}");
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(property(96))]

    /// Packing 16-bit values writes the words, or returns the error, of packing the f32 that they stand for: into every
    /// dtype, whole and in two pieces, stored by row or by column.
    #[test]
    fn u16_values_are_packed_as_what_they_stand_for(
        (depth, columns, cut) in (0usize..70, 0usize..150, 0usize..150),
        (from, to) in (0usize..2, 0usize..3),
        (by_column, small) in any::<(bool, bool)>(),
        (crew, seed) in (0..CREWS.len(), any::<u64>()),
    ) {
        let (from, to) = (HALVES[from], [Dtype::F32, Dtype::Bf16, Dtype::F16][to]);
        let mut random = Random::new(seed);
        let mut half = |_| {
            // Small numbers fit every dtype; most bf16 numbers do not fit f16.
            let half = random.bits() as u16 & if small { 0xbfff } else { 0xffff };
            if value(from, half).is_nan() { 0 } else { half }
        };
        let halves: Vec<u16> = (0..depth * columns).map(&mut half).collect();
        let floats: Vec<f32> = halves.iter().map(|&half| value(from, half)).collect();
        let source = |first: usize, count: usize| {
            let make = if from == Dtype::F16 { PackSource::f16 } else { PackSource::bf16 };
            if by_column {
                make(&halves[first * depth..][..count * depth], count, depth).map(|w| w.transposed())
            } else {
                // A block of columns of a row-major matrix is copied.
                make(&halves, depth, columns)
            }
        };
        for isa in all_isas() {
            let wide = if by_column {
                view_matrix(&floats, columns, depth).transposed()
            } else {
                view_matrix(&floats, depth, columns)
            };
            let length = PackOptions::new(to).buffer_len(isa, depth, columns).expect("small");
            let (mut expected, mut found) = (vec![POISON; length], vec![POISON; length]);
            let result = PackOptions::new(to).pack(isa, wide, &mut expected).map(drop);
            let (shape, pieces) = ((depth, columns), [0, cut.min(columns), columns]);
            let packed = CREWS[crew].with_parallelism(|parallelism| {
                let options = PackOptions { dtype: to, parallelism };
                if !by_column {
                    let whole = source(0, columns).expect("W");
                    return options.pack_columns(isa, whole, shape, 0, &mut found);
                }
                let piece = |i: usize| source(pieces[i], pieces[i + 1] - pieces[i]).expect("W");
                options.pack_columns(isa, piece(1), shape, pieces[1], &mut found)?;
                options.pack_columns(isa, piece(0), shape, 0, &mut found)
            });
            prop_assert_eq!(packed.is_ok(), result.is_ok());
            if result.is_ok() {
                prop_assert_eq!(bits(&found), bits(&expected), "{} {:?} to {:?}", isa, from, to);
            } else {
                let too_large = matches!(packed, Err(Error::ValueTooLarge { dtype, .. }) if dtype == to);
                prop_assert!(too_large, "{:?}", packed);
                if !by_column {
                    prop_assert_eq!(packed, result);
                    prop_assert!(is_poison(&found));
                }
            }
        }
    }
}

#[test]
fn u16_sources_that_do_not_fit_are_errors() {
    let halves = [0u16; 11];
    let short = errors::short_matrix([3, 4], 12, 11);
    assert_eq!(PackSource::f16(&halves, 3, 4).err(), Some(short));
    let large = errors::short_matrix([usize::MAX, 2], usize::MAX, 11);
    assert_eq!(PackSource::bf16(&halves, usize::MAX, 2).err(), Some(large));
    let (options, mut buffer) = (PackOptions::new(Dtype::F16), [POISON; 1024]);
    let block = PackSource::f16(&halves, 5, 2).expect("W");
    let error = options.pack_columns(Isa::best(), block, (2, 5), 0, &mut buffer);
    assert_eq!(error, Err(errors::shape("block", [2, 5], [5, 2])));
    assert!(error.unwrap_err().to_string().contains("transposed()"));
    assert!(is_poison(&buffer));
}

#[test]
fn values_that_are_not_finite_stay_so() {
    let (depth, columns) = (3, 70);
    for isa in all_isas() {
        for dtype in HALVES {
            for special in [f32::NAN, f32::from_bits(0xff80_0001), f32::INFINITY, -f32::INFINITY] {
                for at in [0, 69, 70, 139, 140 + 33] {
                    let mut w = vec![1.0; depth * columns];
                    w[at] = special;
                    let (halves, floats) = both(isa, dtype, &w, (depth, columns));
                    for rows in [1, 4, 9, 50] {
                        let a = vec![1.0; rows * depth];
                        let found = product(&a, rows, &halves.get(), SERIAL);
                        let expected = product(&a, rows, &floats.get(), SERIAL);
                        for (index, (x, y)) in found.iter().zip(&expected).enumerate() {
                            let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
                            assert!(same, "{isa}, {dtype:?}: {x} and {y}");
                            assert_eq!(x.is_finite(), index % columns != at % columns);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn errors_say_what_and_where_and_nothing_is_written() {
    let (depth, columns) = (40, 100);

    for isa in all_isas() {
        for (dtype, least) in [(Dtype::F16, 65_520.0), (Dtype::Bf16, f32::from_bits(0x7f7f_8000))] {
            let length = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("small");
            assert_eq!(length * 2, PackedMatrix::buffer_len(isa, depth, columns).expect("small"));
            let odd = PackOptions::new(dtype).buffer_len(isa, depth - 1, columns);
            assert_eq!(odd, Ok(length));
            let mut data = vec![POISON; length];
            for (row, column, x) in [(0, 0, least), (39, 60, -least), (17, 33, f32::MAX)] {
                let mut w = vec![0.5; depth * 61];
                w[row * 61 + column] = x;
                // Infinity and NaN are not errors, and neither is a value that rounds to
                // the largest finite number.
                w[61] = f32::INFINITY;
                w[62] = f32::NAN;
                w[63] = least.next_down();
                for crew in CREWS {
                    let block = view_matrix(&w, depth, 61);
                    let error = crew.with_parallelism(|threads| {
                        let shape = (depth, columns);
                        PackOptions { dtype, parallelism: threads }
                            .pack_columns(isa, block, shape, 20, &mut data)
                    });
                    let error = error.expect_err("too large");
                    let at = [row, 20 + column];
                    let expected = Error::ValueTooLarge { dtype, at, found: x };
                    assert_eq!(error, expected);
                    let text = error.to_string();
                    assert!(text.contains(&format!("row {row}, column {}", 20 + column)), "{text}");
                    assert!(is_poison(&data));
                }
            }
            let w = vec![0.0; depth * columns];
            let pack = |rows, count, first, data: &mut [f32]| {
                let block = view_matrix(&w, rows, count);
                PackOptions::new(dtype).pack_columns(isa, block, (40, 100), first, data)
            };
            let shape = errors::shape("block", [40, 100], [39, 5]);
            assert_eq!(pack(39, 5, 0, &mut data), Err(shape));
            for first in [96, usize::MAX] {
                let found = first.saturating_add(5);
                let end = errors::size("last column", "block", Expected::AtMost(100), found);
                assert_eq!(pack(40, 5, first, &mut data), Err(end));
            }
            let short = errors::min_len("buffer", length, length - 1);
            assert_eq!(pack(40, 5, 0, &mut data[1..]), Err(short));
            let short = errors::len("data", length, length - 1);
            let found = PackOptions::new(dtype).from_packed(isa, 40, 100, &data[1..]);
            assert_eq!(found.err(), Some(short));
            assert!(is_poison(&data));
            let large = PackOptions::new(dtype).buffer_len(isa, usize::MAX, 2);
            assert_eq!(large, Err(errors::too_large("the packed matrix")));
            let packed = PackOptions::new(dtype).from_packed(isa, 40, 100, &data).expect("length");
            assert_eq!((packed.dtype(), packed.depth(), packed.columns()), (dtype, 40, 100));
            assert!(format!("{packed:?}").contains(&format!("{dtype:?}")));
        }
    }
}

/// The argmax of a row, with the bits of the product, with and without the weight by column.
#[test]
fn the_pruned_argmax_is_that_of_the_widened_product() {
    for isa in all_isas() {
        for dtype in HALVES {
            for (rows, depth, columns) in [(1, 64, 300), (13, 33, 129), (5, 1, 40)] {
                let mut random = Random::new(depth as u64);
                let operands = Operands::gaussian((rows, depth, columns), 8);
                let w = random.normals(depth * columns);
                let (halves, floats) = both(isa, dtype, &w, (depth, columns));
                let x = operands.x.view();
                let turned: Vec<f32> = (0..columns * depth)
                    .map(|at| stored(dtype, w[at % depth * columns + at / depth]))
                    .collect();
                let right = product(&operands.x.dense(), rows, &halves.get(), SERIAL);
                let (halves, floats) = (Built::new(halves), Built::new(floats));
                let same = difference(&halves.pruning_table, &floats.pruning_table);
                assert_eq!(same, None, "{isa}, {dtype:?}");
                for by_column in [false, true] {
                    let turned = view_matrix(&turned, columns, depth);
                    let (best, values) = halves.with_product(|product| {
                        let by_column = by_column.then_some(turned);
                        argmax(&Product { by_column, ..product }, x, &|_, _| false, SERIAL)
                    });
                    for (row, line) in right.chunks_exact(columns).enumerate() {
                        let most = line.iter().copied().fold(f32::MIN, f32::max);
                        let first = line.iter().position(|&x| x == most).expect("one is");
                        let found = (best[row] as usize, values[row].to_bits());
                        assert_eq!(found, (first, most.to_bits()));
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_outside_the_operands_is_read() {
    for isa in all_isas() {
        for dtype in HALVES {
            for (rows, depth, columns) in [(1, 7, 65), (3, 1, 5), (9, 13, 64), (40, 101, 70)] {
                let mut random = Random::new(9);
                let w = Strided::new(depth, columns, (columns + 2, 1), |_, _| random.value());
                // After the last element of an odd row of A, where a step of two would
                // read, is poison.
                let a = Strided::new(rows, depth, (depth + 1, 1), |_, _| random.value());
                let halves = Packed::with_dtype(isa, dtype, w.view());
                let mut c = Strided::nan(rows, columns, 3);
                halves.multiply(a.view(), &Epilogue::default(), c.view_mut(), SERIAL);
                c.assert_gaps_untouched();
                assert!(c.dense().iter().all(|x| x.is_finite()));
            }
        }
    }
    let mut none = [];
    let empty = view_matrix(&[], 4, 0);
    for dtype in HALVES {
        let packed = Packed::with_dtype(Isa::best(), dtype, empty);
        let a = view_matrix(&[], 0, 4);
        let c = view_matrix_mut(&mut none, 0, 0);
        assert_eq!(gemm(a, &packed.get(), &Epilogue::default(), c, SERIAL), Ok(()));
    }
}
