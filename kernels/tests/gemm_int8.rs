//! Products with int8 weights are equal to those of their oracle, on every instruction set of the machine,
//! with and without int8 dot products.

use crate::support::gemm::{
    ACTIVATIONS, PRECISIONS, Quantized, multiply_int8, post_op_of, strides, with_quantized,
};
use crate::support::*;
use simdformer_kernels::reference::gemm_int8::{Rounded, gemm_int8 as oracle, levels};
use simdformer_kernels::{
    Activation, Epilogue, Exec, Expected, Input, Isa, Matrix, Parallelism, PostOp, Quantization,
    QuantizedActivations, QuantizedMatrix, activation, gemm_int8,
};

/// Every instruction set, and the same set as on CPUs without int8 dot products. On a CPU with AMX also
/// without AMX.
fn sets() -> Vec<Isa> {
    let of = |isa: Isa| {
        let without_matrix_products =
            isa.has_matrix_products().then_some(isa.without_matrix_products());
        [isa, isa.without_dot_products()].into_iter().chain(without_matrix_products)
    };
    all_isas().into_iter().flat_map(of).collect()
}

/// The product of dense rows without an epilogue, into a new output.
fn plain(
    set: (Isa, Quantization),
    x: &[f32],
    rows: usize,
    weight: &Quantized,
    parallelism: Parallelism<'_>,
) -> Vec<f32> {
    let mut c = poisoned(rows * weight.columns);
    let x = view_matrix(x, rows, weight.depth);
    let to = view_matrix_mut(&mut c, rows, weight.columns);
    multiply_int8(set, x, &weight.get(), &Epilogue::default(), to, parallelism).expect("a fit");
    c
}

/// Panics unless all elements have the same bits or are both NaN.
fn assert_same(found: &[f32], expected: &[f32], what: impl Fn() -> String) {
    assert_eq!(found.len(), expected.len());
    for (at, (&x, &y)) in found.iter().zip(expected).enumerate() {
        let poison = x.to_bits() == POISON.to_bits() && y.to_bits() != POISON.to_bits();
        let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan() && !poison);
        assert!(same, "{}: at {at}: {x:e}, expected {y:e}", what());
    }
}

/// The product of dense matrices by the oracle, without an epilogue.
fn expected(
    x: &[f32],
    w: &[f32],
    (rows, depth, columns): (usize, usize, usize),
    precision: Quantization,
) -> Vec<f32> {
    let mut out = vec![0.0; rows * columns];
    let x = view_matrix(x, rows, depth);
    let w = view_matrix(w, depth, columns);
    oracle(x, w, precision, &Epilogue::default(), None, &mut out).expect("shapes that fit");
    out
}

/// Compares the product of dense matrices with `all`, on every set.
fn check(
    precision: Quantization,
    (x, w): (&[f32], &[f32]),
    (rows, depth, columns): (usize, usize, usize),
    all: &[f32],
    what: impl core::fmt::Display,
) {
    for isa in sets() {
        let weight = Quantized::new(isa, view_matrix(w, depth, columns));
        let c = plain((isa, precision), x, rows, &weight, SERIAL);
        assert_same(&c, all, || format!("{isa}, {precision:?}, {what}"));
    }
}

/// Every number of rows up to two of the tallest tiles, columns around panels and parts of panels, depths
/// around words of four and around the step of the loop.
#[test]
fn every_shape_around_every_edge_is_equal() {
    const ROWS: usize = 26;
    const COLUMNS: usize = 100;
    let mut depths: Vec<usize> = (0..=9).collect();
    depths.extend([15, 16, 17, 31, 33, 63, 64, 65, 66, 127, 130]);
    let columns: Vec<usize> = (1..=COLUMNS)
        .filter(|n| *n < 3 || [0, 1, 7].contains(&(n % 8)) || [33, 66, 99].contains(n))
        .collect();
    for (seed, &depth) in depths.iter().enumerate() {
        if brief() && ![0, 1, 5, 66].contains(&depth) {
            continue;
        }
        let mut random = Random::new(seed as u64);
        let x = random.values(ROWS * depth);
        let w = random.values(depth * COLUMNS);
        for precision in PRECISIONS {
            let all = expected(&x, &w, (ROWS, depth, COLUMNS), precision);
            for isa in sets() {
                for (index, &n) in columns.iter().enumerate() {
                    if !chosen(isa, seed + index, 4) {
                        continue;
                    }
                    let weight = Matrix::strided(&w, depth, n, COLUMNS, 1).expect("inside W");
                    let weight = Quantized::new(isa, weight);
                    for rows in 1..=ROWS {
                        if brief() && ![1, 2, 3, 5, 8, 13, 24].contains(&rows) {
                            continue;
                        }
                        let c = plain((isa, precision), &x[..rows * depth], rows, &weight, SERIAL);
                        for (row, c) in c.chunks_exact(n).enumerate() {
                            assert_same(c, &all[row * COLUMNS..][..n], || {
                                format!("{isa}, {precision:?}, {rows} x {n} x {depth}, row {row}")
                            });
                        }
                    }
                }
            }
        }
    }
}

/// More rows than a block has, and enough panels that each tile prefetches a part of the next block.
#[test]
fn blocks_of_rows_are_equal() {
    for (rows, depth, columns) in [(130, 40, 70), (37, 2050, 65), (300, 1500, 33), (29, 3, 700)] {
        if brief() && depth > 1000 {
            continue;
        }
        let mut random = Random::new(rows as u64);
        let x = random.values(rows * depth);
        let w = random.values(depth * columns);
        for precision in PRECISIONS {
            // The oracle in two parts: once the integer sums, then the epilogue.
            let integers = |elements: &[f32], levels: i32| -> (f32, Vec<i32>) {
                let rounded = Rounded::new(elements.iter().copied(), levels);
                (rounded.scale, elements.iter().map(|&x| rounded.integer(x)).collect())
            };
            let levels = levels(precision, depth);
            let of_rows: Vec<_> = x.chunks_exact(depth).map(|row| integers(row, levels)).collect();
            let of_columns: Vec<_> = (0..columns)
                .map(|n| integers(&(0..depth).map(|k| w[k * columns + n]).collect::<Vec<_>>(), 127))
                .collect();
            let mut all = Vec::new();
            for (row_scale, row) in &of_rows {
                for (scale, column) in &of_columns {
                    let sum: i32 = row.iter().zip(column).map(|(x, w)| x * w).sum();
                    all.push(sum as f32 * scale * row_scale);
                }
            }
            check(precision, (&x, &w), (rows, depth, columns), &all, format_args!("{rows} rows"));
        }
    }
}

/// Depths around the blocks of weights that are converted for several tiles, and numbers of rows around one and several
/// tiles and around the tiles that share a block.
#[test]
fn blocks_of_the_depth_are_equal() {
    const ROWS: usize = 130;
    const COLUMNS: usize = 49;
    for (seed, depth) in [509, 512, 513, 517, 1024, 1027, 2050].into_iter().enumerate() {
        if brief() && ![512, 517].contains(&depth) {
            continue;
        }
        let mut random = Random::new(seed as u64);
        let x = random.values(ROWS * depth);
        let w = random.values(depth * COLUMNS);
        for precision in PRECISIONS {
            let all = expected(&x, &w, (ROWS, depth, COLUMNS), precision);
            for isa in sets() {
                let weight = Quantized::new(isa, view_matrix(&w, depth, COLUMNS));
                for rows in [4, 5, 6, 7, 12, 13, 17, 59, 60, 61, 66, 121, ROWS] {
                    if brief() && ![5, 7, 13, 61].contains(&rows) {
                        continue;
                    }
                    let c = plain((isa, precision), &x[..rows * depth], rows, &weight, SERIAL);
                    assert_same(&c, &all[..rows * COLUMNS], || {
                        format!("{isa}, {precision:?}, {rows} x {COLUMNS} x {depth}")
                    });
                }
            }
        }
    }
}

/// The largest sums of both signs, up to the largest depth whose sums fit in 32 bits.
#[test]
fn extremes_are_exact() {
    for depth in [4, 63, 518, 519, 1041, 4096, 65_537, 131_072, 133_144] {
        if brief() && depth > 5000 {
            continue;
        }
        for (x_sign, w_sign) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
            // Long sums of one sign and of the other.
            if depth > 60_000 && x_sign < 0.0 && !full() {
                continue;
            }
            let (rows, columns) = (3, 2);
            let x: Vec<f32> = vec![x_sign * 127.0; rows * depth];
            let w: Vec<f32> = vec![w_sign * 127.0; depth * columns];
            for precision in PRECISIONS {
                let all = expected(&x, &w, (rows, depth, columns), precision);
                let exact = f64::from(x_sign * w_sign) * 16129.0 * depth as f64;
                assert!((f64::from(all[0]) - exact).abs() <= 1e-6 * exact.abs());
                check(
                    precision,
                    (&x, &w),
                    (rows, depth, columns),
                    &all,
                    format_args!("depth {depth}"),
                );
            }
        }
    }
}

fn next(x: f32, steps: i32) -> f32 {
    f32::from_bits(x.to_bits().checked_add_signed(steps).expect("a float"))
}

/// Rows and columns of every magnitude that is a special case, at every position of a tile, among other
/// rows and columns that keep their results.
#[test]
fn special_magnitudes_stay_in_their_row_and_column() {
    let mut kinds = vec![0.0f32, -0.0, 1e-31, 1.4e-45, f32::MIN_POSITIVE, f32::MAX, f32::MIN];
    kinds.extend([next(1e-30, -1), 1e-30, next(1e-30, 1), -1e-30, 1e30, 1e38]);
    kinds.extend([f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY]);
    kinds.push(f32::NEG_INFINITY);
    let (depth, columns) = (21, 35);
    for rows in [1, 2, 5, 12, 13, 25] {
        let mut random = Random::new(rows as u64);
        let x = random.values(rows * depth);
        let w = random.values(depth * columns);
        for (index, &kind) in kinds.iter().enumerate() {
            for place in 0..rows {
                if brief() && place % 5 != index % 5 {
                    continue;
                }
                if !full() && rows > 5 && place % 3 != index % 3 {
                    continue;
                }
                // Alone in a row of zeros, among other elements, and in a whole row.
                for share in [1, depth / 2, depth] {
                    let mut x = x.clone();
                    let row = &mut x[place * depth..][..depth];
                    if share == 1 {
                        row.fill(0.0);
                    }
                    for i in 0..share {
                        row[(index + place + i) % depth] = kind;
                    }
                    for precision in PRECISIONS {
                        let all = expected(&x, &w, (rows, depth, columns), precision);
                        let bad = !kind.is_finite();
                        for (i, row) in all.chunks_exact(columns).enumerate() {
                            assert_eq!(row.iter().all(|y| y.is_nan()), bad && i == place);
                        }
                        let what = format!("{kind:e} in row {place} of {rows}");
                        check(precision, (&x, &w), (rows, depth, columns), &all, what);
                    }
                }
            }
        }
    }
    // The same in columns.
    let rows = 7;
    let mut random = Random::new(1);
    let x = random.values(rows * depth);
    let w = random.values(depth * columns);
    for (index, &kind) in kinds.iter().enumerate() {
        for place in 0..columns {
            if !full() && place % 3 != index / 2 % 3 {
                continue;
            }
            let mut w = w.clone();
            for k in 0..depth {
                if index % 2 == 0 || k % 5 == index % 5 {
                    w[k * columns + place] = kind;
                }
            }
            let precision = PRECISIONS[place % 2];
            let all = expected(&x, &w, (rows, depth, columns), precision);
            let what = format!("{kind:e} in column {place}");
            check(precision, (&x, &w), (rows, depth, columns), &all, what);
        }
    }
}

/// A value halfway between two integers rounds to the even one.
#[test]
fn ties_go_to_even() {
    let depth = 255;
    for precision in PRECISIONS {
        // The largest element makes the inverse scale 1, so -63.5, -63.0, .. 63.5 keep their
        // values.
        let top = levels(precision, depth) as f32;
        let mut x: Vec<f32> = (0..depth).map(|k| (k as f32 - 127.0) / 2.0).collect();
        x[0] = top;
        for k in 1..depth {
            let mut w = vec![0.0; depth];
            w[k] = 127.0;
            let all = expected(&x, &w, (1, depth, 1), precision);
            assert_eq!(all[0], 127.0 * libm::rintf(x[k]), "{precision:?}: {}", x[k]);
            check(precision, (&x, &w), (1, depth, 1), &all, x[k]);
        }
    }
}

/// Strides, epilogues and gaps. The result equals the oracle if the oracle has the whole epilogue, else the
/// activation kernel applied to the result of the oracle.
#[test]
fn every_epilogue_and_layout_is_equal() {
    let mut seed = 0;
    for isa in sets() {
        for precision in PRECISIONS {
            for (rows, depth, columns) in [(1, 9, 33), (4, 17, 70), (12, 30, 64), (23, 6, 31)] {
                for &activation in ACTIVATIONS {
                    for residual in 0..4 {
                        for (scale, spread) in [(1.0, 1), (-1.7, 2), (0.125, 1)] {
                            seed += 1;
                            if !chosen(isa, seed as usize, 5) {
                                continue;
                            }
                            let mut random = Random::new(seed);
                            let mut layout = || (random.below(4), random.below(2) == 1);
                            let layouts = [layout(), layout(), layout(), layout()];
                            let mut matrix = |rows, columns, layout, spread| {
                                let strides = strides(rows, columns, layout, spread);
                                Strided::new(rows, columns, strides, |_, _| random.value())
                            };
                            let x = matrix(rows, depth, layouts[0], 1);
                            let w = matrix(depth, columns, layouts[1], 1);
                            let added = matrix(rows, columns, layouts[2], 1);
                            let mut c = matrix(rows, columns, layouts[3], spread);
                            let before = c.clone();
                            let bias = random.values(columns);
                            let post_op = post_op_of(residual, added.view());
                            let bias = (seed % 3 > 0).then_some(bias.as_slice());
                            let epilogue = Epilogue { scale, bias, activation, post_op };
                            let weight = Quantized::new(isa, w.view());
                            let set = (isa, precision);

                            let to = c.view_mut();
                            multiply_int8(set, x.view(), &weight.get(), &epilogue, to, SERIAL)
                                .expect("a fit");
                            c.assert_gaps_untouched();

                            let mut right = vec![0.0; rows * columns];
                            let (xs, ws) = (x.view(), w.view());
                            if matches!(activation, Activation::Identity | Activation::Relu) {
                                let before = Some(before.view());
                                oracle(xs, ws, precision, &epilogue, before, &mut right)
                                    .expect("shapes that fit");
                            } else {
                                let inner = Epilogue {
                                    activation: Activation::Identity,
                                    post_op: PostOp::None,
                                    ..epilogue
                                };
                                oracle(xs, ws, precision, &inner, None, &mut right)
                                    .expect("shapes that fit");
                                let view = view_matrix_mut(&mut right, rows, columns);
                                activation::apply(
                                    Exec::serial(isa),
                                    activation,
                                    Input::Output,
                                    view,
                                )
                                .expect("rows of an output");
                                for (at, y) in right.iter_mut().enumerate() {
                                    let (i, j) = (at / columns, at % columns);
                                    *y = match post_op {
                                        PostOp::AddOutput => before.at(i, j) + *y,
                                        PostOp::Add(_) => added.at(i, j) + *y,
                                        PostOp::MultiplyOutput => before.at(i, j) * *y,
                                        _ => *y,
                                    };
                                }
                            }
                            assert_same(&c.dense(), &right, || {
                                format!("{isa}, {precision:?}, {rows} rows, {epilogue:?}")
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn empty_products_are_the_bias_or_nothing() {
    for isa in sets() {
        for precision in PRECISIONS {
            for (rows, depth, columns) in [(0, 5, 7), (5, 7, 0), (3, 0, 40), (0, 0, 0), (13, 0, 1)]
            {
                let (x, w) = (vec![1.0; rows * depth], vec![1.0; depth * columns]);
                let weight = Quantized::new(isa, view_matrix(&w, depth, columns));
                let bias: Vec<f32> = (0..columns).map(|n| n as f32 - 2.5).collect();
                let mut c = vec![POISON; rows * columns];
                let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::default() };
                let (x, to) =
                    (view_matrix(&x, rows, depth), view_matrix_mut(&mut c, rows, columns));
                let set = (isa, precision);
                multiply_int8(set, x, &weight.get(), &epilogue, to, SERIAL).expect("a fit");
                let all: Vec<f32> = (0..rows).flat_map(|_| bias.clone()).collect();
                assert_same(&c, &all, || format!("{isa}, {rows} x {columns} x {depth}"));
            }
        }
    }
}

/// Bytes that the quantization never produces, such as -128, with the integers that belong to them.
#[test]
fn every_byte_value_is_multiplied_exactly() {
    let (rows, depth, columns) = (14, 50usize, 40usize);
    let steps = depth.div_ceil(4);
    let mut random = Random::new(8);
    let x = random.values(rows * depth);
    let mut words = vec![0.0; QuantizedMatrix::buffer_len(depth, columns).expect("a small size")];
    let panel = words.len() / columns.div_ceil(32);
    let mut bytes = vec![vec![0i8; 4 * steps]; columns];
    for (n, bytes) in bytes.iter_mut().enumerate() {
        for byte in bytes.iter_mut() {
            *byte = if random.below(2) == 0 { -128 } else { random.bits() as i8 };
        }
        let at = n / 32 * panel + n % 32;
        for (step, four) in bytes.chunks_exact(4).enumerate() {
            let word = u32::from_le_bytes([four[0], four[1], four[2], four[3]].map(|b| b as u8));
            words[at + 32 * step] = f32::from_bits(word);
        }
        let sum: i32 = bytes.iter().map(|&byte| i32::from(byte)).sum();
        words[at + 32 * steps] = 0.25;
        words[at + 32 * (steps + 1)] = f32::from_bits((-128 * sum) as u32);
    }
    let weight = Quantized { depth, columns, words };
    assert_eq!(weight.get().column_scale(39), 0.25);
    assert!(weight.get().column_scale(40).is_nan());
    for precision in PRECISIONS {
        let mut all = Vec::new();
        for row in x.chunks_exact(depth) {
            let rounded = Rounded::new(row.iter().copied(), levels(precision, depth));
            for bytes in &bytes {
                let products = row.iter().zip(bytes);
                let sum: i32 = products.map(|(&x, &w)| rounded.integer(x) * i32::from(w)).sum();
                all.push(sum as f32 * 0.25 * rounded.scale);
            }
        }
        for isa in sets() {
            let c = plain((isa, precision), &x, rows, &weight, SERIAL);
            assert_same(&c, &all, || format!("{isa}, {precision:?}"));
        }
    }
}

/// The weights have the same words on every instruction set, quantized at once or in parts, with any
/// strides.
#[test]
fn weights_are_the_same_words_everywhere() {
    for (depth, columns) in [(1, 1), (7, 31), (64, 32), (13, 33), (30, 100), (0, 5), (9, 64)] {
        let mut random = Random::new(columns as u64);
        let w = random.values(depth * columns);
        let turned: Vec<f32> =
            (0..columns * depth).map(|i| w[i % depth * columns + i / depth]).collect();
        let matrix = view_matrix(&w, depth, columns);
        let whole = Quantized::new(Isa::SCALAR, matrix).words;
        assert!(whole.iter().all(|x| x.to_bits() != POISON.to_bits()));
        for isa in sets() {
            let same = |words: &[f32]| {
                assert!(
                    words.iter().zip(&whole).all(|(x, y)| x.to_bits() == y.to_bits()),
                    "{isa}: {depth} x {columns}"
                );
            };
            same(&Quantized::new(isa, matrix).words);
            let by_column = view_matrix(&turned, columns, depth).transposed();
            same(&Quantized::new(isa, by_column).words);
            for piece in [1, 3, 32, 45] {
                let mut words = vec![POISON; whole.len()];
                for first in (0..columns).step_by(piece) {
                    let n = piece.min(columns - first);
                    let reach = if depth == 0 { &w[..] } else { &w[first..] };
                    let block = Matrix::strided(reach, depth, n, columns, 1).expect("inside W");
                    let shape = (depth, columns);
                    QuantizedMatrix::quantize_block(isa, block, shape, first, &mut words)
                        .expect("a block that fits");
                }
                same(&words);
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch_nor_on_threads() {
    let (most, depth, columns) = (100, 700, 133);
    let mut random = Random::new(3);
    let x = random.values(most * depth);
    let w = random.values(depth * columns);
    for isa in sets() {
        let weight = Quantized::new(isa, view_matrix(&w, depth, columns));
        for precision in PRECISIONS {
            let set = (isa, precision);
            let whole = plain(set, &x, most, &weight, SERIAL);
            for (first, rows) in [(0, 1), (99, 1), (17, 2), (3, 6), (40, 11), (1, 36), (20, 50)] {
                let part = &x[first * depth..][..rows * depth];
                let c = plain(set, part, rows, &weight, SERIAL);
                assert_same(&c, &whole[first * columns..][..rows * columns], || {
                    format!("{isa}, {precision:?}, {rows} rows from {first}")
                });
            }
            for crew in crews_of(isa, 0) {
                for rows in [1, 5, 24, most] {
                    let x = &x[..rows * depth];
                    let c = crew.with_parallelism(|threads| plain(set, x, rows, &weight, threads));
                    assert_same(&c, &whole[..rows * columns], || {
                        format!("{isa}, {precision:?}, {rows} rows, {crew:?}")
                    });
                }
            }
        }
    }
}

/// Rows that are quantized once serve several products.
#[test]
fn rows_are_read_by_several_products() {
    let (rows, depth) = (5, 40);
    let mut random = Random::new(2);
    let x = random.values(rows * depth);
    for isa in sets() {
        let view = view_matrix(&x, rows, depth);
        let precision = Quantization::W8A8;
        let mut words =
            poisoned(QuantizedActivations::buffer_len(rows, depth, precision).expect("small"));
        let read = QuantizedActivations::quantize(Exec::serial(isa), view, precision, &mut words)
            .expect("the length");
        assert_eq!((read.rows(), read.depth(), read.precision()), (rows, depth, precision));
        let largest = x[..depth].iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert_eq!(read.row_scale(0), largest / 127.0);
        assert!(read.row_scale(rows).is_nan());
        for columns in [3, 64] {
            let w = random.values(depth * columns);
            let weight = Quantized::new(isa, view_matrix(&w, depth, columns));
            let mut c = vec![POISON; rows * columns];
            let view = view_matrix_mut(&mut c, rows, columns);
            gemm_int8(&read, &weight.get(), &Epilogue::default(), view, SERIAL)
                .expect("shapes that fit");
            let all = expected(&x, &w, (rows, depth, columns), precision);
            assert_same(&c, &all, || format!("{isa}, {columns} columns"));
        }
    }
}

/// Rows that repeat one element, and a matrix that repeats one row, are those of a dense matrix.
#[cfg(unix)]
#[test]
fn repeated_rows_and_columns_are_read_where_they_are() {
    use crate::support::Guarded;
    let (rows, columns) = (5, 3);
    let mut random = Random::new(8);
    for isa in sets() {
        for precision in PRECISIONS {
            for depth in [2, 7, 33, 64, 130] {
                let w = random.values(depth * columns);
                let weight = Quantized::new(isa, view_matrix(&w, depth, columns));
                let of_rows = Guarded::at_end(&random.values(rows));
                let of_columns = Guarded::at_end(&random.values(depth));
                for (x, strides) in [(&of_rows, (1, 0)), (&of_columns, (0, 1))] {
                    let view =
                        Matrix::strided(x, rows, depth, strides.0, strides.1).expect("a view");
                    let mut c = poisoned(rows * columns);
                    let to = view_matrix_mut(&mut c, rows, columns);
                    let set = (isa, precision);
                    multiply_int8(set, view, &weight.get(), &Epilogue::default(), to, SERIAL)
                        .expect("a fit");
                    let dense: Vec<f32> = (0..rows * depth)
                        .map(|at| x[at / depth * strides.0 + at % depth * strides.1])
                        .collect();
                    assert_same(&c, &plain(set, &dense, rows, &weight, SERIAL), || {
                        format!("{isa}, {precision:?}, depth {depth}, strides {strides:?}")
                    });
                }
            }
        }
    }
}

/// The memory outside of the operands is not even mapped.
#[cfg(unix)]
#[test]
fn nothing_outside_the_operands_is_touched() {
    use crate::support::Guarded;
    let (depth, columns) = (39, 41);
    let mut random = Random::new(6);
    for isa in sets() {
        for rows in [1, 2, 7, 13, 30] {
            for precision in PRECISIONS {
                for guard in [Guarded::at_end, Guarded::at_start] {
                    let x = guard(&random.values(rows * depth));
                    let w = guard(&random.values(depth * columns));
                    let zeros = |n: usize| vec![0.0; n];
                    let length = QuantizedMatrix::buffer_len(depth, columns).expect("a small size");
                    let mut weight = guard(&zeros(length));
                    let length = QuantizedActivations::buffer_len(rows, depth, precision)
                        .expect("a small size");
                    let mut words = guard(&zeros(length));
                    let mut c = guard(&zeros(rows * columns));
                    let w = view_matrix(&w, depth, columns);
                    let weight =
                        QuantizedMatrix::quantize(isa, w, &mut weight).expect("the length");
                    let view = view_matrix(&x, rows, depth);
                    let read = QuantizedActivations::quantize(
                        Exec::serial(isa),
                        view,
                        precision,
                        &mut words,
                    )
                    .expect("the length");
                    let out = view_matrix_mut(&mut c, rows, columns);
                    gemm_int8(&read, &weight, &Epilogue::default(), out, SERIAL).expect("a fit");
                    assert!(c.iter().all(|y| y.is_finite()));
                }
            }
        }
    }
}

#[test]
fn every_error_is_reached_and_nothing_is_written() {
    let zeros = vec![0.0f32; 4096];
    let matrix = |rows, columns| view_matrix(&zeros, rows, columns);
    let precision = Quantization::W8A8;
    let isa = Isa::best();

    let need = QuantizedMatrix::buffer_len(5, 7).expect("a small size");
    let mut short = vec![POISON; need - 1];
    let wanted = errors::len("data", need, need - 1);
    assert_eq!(QuantizedMatrix::from_quantized(5, 7, &short).err(), Some(wanted));
    let wanted = errors::min_len("buffer", need, need - 1);
    assert_eq!(QuantizedMatrix::quantize(isa, matrix(5, 7), &mut short).err(), Some(wanted));
    let found = QuantizedMatrix::quantize_block(isa, matrix(5, 1), (5, 7), 0, &mut short);
    assert_eq!(found, Err(wanted));
    assert!(is_poison(&short));
    let mut more = vec![POISON; need + 1];
    let long = errors::len("data", need, need + 1);
    assert_eq!(QuantizedMatrix::from_quantized(5, 7, &more).err(), Some(long));
    QuantizedMatrix::quantize(isa, matrix(5, 7), &mut more).expect("the buffer may be longer");
    assert!(is_poison(&more[need..]));
    let mut buffer = vec![POISON; need];
    let end = |found| errors::size("last column", "block", Expected::AtMost(7), found);
    for (block, first, error) in [
        (matrix(4, 2), 0, errors::shape("block", [5, 7], [4, 2])),
        (matrix(5, 2), 6, end(8)),
        (matrix(5, 8), 0, end(8)),
        (matrix(5, 1), usize::MAX, end(usize::MAX)),
    ] {
        let found = QuantizedMatrix::quantize_block(isa, block, (5, 7), first, &mut buffer);
        assert_eq!(found, Err(error));
    }
    assert!(is_poison(&buffer));
    let deep = |operand| errors::size("depth", operand, Expected::AtMost(133_144), 133_145);
    assert_eq!(QuantizedMatrix::buffer_len(133_145, 1), Err(deep("the quantized matrix")));
    let found = QuantizedActivations::buffer_len(1, 133_145, precision);
    assert_eq!(found, Err(deep("the quantized activations")));
    assert!(QuantizedMatrix::buffer_len(133_144, 1).is_ok());
    assert!(QuantizedActivations::buffer_len(1, 133_144, precision).is_ok());
    for (depth, columns) in [(1, usize::MAX), (0, usize::MAX), (4, usize::MAX / 8)] {
        let error = errors::too_large("the quantized matrix");
        assert_eq!(QuantizedMatrix::buffer_len(depth, columns), Err(error));
        let found = QuantizedMatrix::from_quantized(depth, columns, &zeros);
        assert_eq!(found.err(), Some(error));
        let found = QuantizedActivations::buffer_len(columns, depth.max(8), precision);
        assert_eq!(found, Err(errors::too_large("the quantized activations")));
    }

    for precision in PRECISIONS {
        let need = QuantizedActivations::buffer_len(3, 5, precision).expect("a small size");
        let mut short = vec![POISON; need - 1];
        let wanted = errors::min_len("buffer", need, need - 1);
        let found =
            QuantizedActivations::quantize(Exec::serial(isa), matrix(3, 5), precision, &mut short);
        assert_eq!(found.err(), Some(wanted));
        assert!(is_poison(&short));
        assert!(wanted.to_string().contains(&need.to_string()));
    }

    let weight = Quantized::new(isa, matrix(5, 7));
    let plain = Epilogue::default();
    let bias = Epilogue { bias: Some(&zeros[..6]), ..plain };
    let residual = Epilogue { post_op: PostOp::Add(matrix(2, 7)), ..plain };
    for (x, epilogue, (rows, columns), expected) in [
        ((3, 4), plain, (3, 7), errors::size("columns", "rows", Expected::Exactly(5), 4)),
        ((3, 5), plain, (2, 7), errors::shape("c", [3, 7], [2, 7])),
        ((3, 5), plain, (3, 8), errors::shape("c", [3, 7], [3, 8])),
        ((3, 5), bias, (3, 7), errors::len("bias", 7, 6)),
        ((3, 5), residual, (3, 7), errors::shape("post_op", [3, 7], [2, 7])),
    ] {
        let mut c = vec![POISON; rows * columns];
        let (x, to) = (matrix(x.0, x.1), view_matrix_mut(&mut c, rows, columns));
        let found = multiply_int8((isa, precision), x, &weight.get(), &epilogue, to, SERIAL);
        assert_eq!(found, Err(expected));
        assert!(is_poison(&c), "{expected}: C was written");
    }
}

/// The documented bound, for rows and columns of every magnitude down to the smallest subnormal number: every pair of
/// magnitudes is an element of the product.
#[test]
fn the_bound_holds_for_every_magnitude() {
    const DEPTH: usize = 21;
    // The sums of products of 16 bits fit in any case; the magnitudes 2^-149 to 2^127, and around 1e-30.
    let mut magnitudes: Vec<f32> = (-149..=127).step_by(4).map(|e| 2f64.powi(e) as f32).collect();
    magnitudes.extend([1e-30, next(1e-30, -1), next(1e-30, 1), f32::MAX, f32::from_bits(3), 0.0]);
    let mut random = Random::new(11);
    let mut of_magnitude = |magnitude: f32| -> Vec<f32> {
        let mut values: Vec<f32> = random.values(DEPTH).iter().map(|x| x * magnitude).collect();
        values[3] = magnitude;
        values
    };
    let count = magnitudes.len();
    let x: Vec<f32> = magnitudes.iter().flat_map(|&m| of_magnitude(m)).collect();
    let w: Vec<f32> = magnitudes.iter().flat_map(|&m| of_magnitude(m)).collect();
    let (rows, weight) =
        (view_matrix(&x, count, DEPTH), view_matrix(&w, count, DEPTH).transposed());
    let (mut checked, mut zeros) = (0, 0);
    for isa in sets() {
        let packed = Quantized::new(isa, weight);
        let packed = packed.get();
        for precision in PRECISIONS {
            let mut c = poisoned(count * count);
            let mut scales = Vec::new();
            with_quantized((isa, precision), rows, SERIAL, |quantized| {
                scales.extend((0..count).map(|m| quantized.row_scale(m)));
                let to = view_matrix_mut(&mut c, count, count);
                gemm_int8(quantized, &packed, &Epilogue::default(), to, SERIAL).expect("a fit");
            });
            for (m, n) in (0..count).flat_map(|m| (0..count).map(move |n| (m, n))) {
                let (row, column) = (scales[m], packed.column_scale(n));
                let (row, column) = (f64::from(row), f64::from(column));
                zeros += usize::from(row == 0.0 || column == 0.0);
                let (mut exact, mut error, mut largest) = (0.0, 0.0, 0.0);
                for k in 0..DEPTH {
                    let (x, w) = (f64::from(rows.at(m, k)), f64::from(weight.at(k, n)));
                    let dx = if row == 0.0 { x.abs() } else { 0.51 * row };
                    let dw = if column == 0.0 { w.abs() } else { 0.51 * column };
                    // What is rounded to zero has no magnitude left.
                    let rounded = if row == 0.0 { 0.0 } else { x.abs() + dx };
                    exact += x * w;
                    error += dx * w.abs() + rounded * dw;
                    largest += rounded * (w.abs() + dw);
                }
                let found = f64::from(c[m * count + n]);
                if found.is_infinite() {
                    // The result, or the sum times the scale of the column before that of the row.
                    let most = largest / row.min(1.0);
                    assert!(most > f64::from(f32::MAX), "{isa} {precision:?}: {m}, {n}");
                    continue;
                }
                let roundings = 4.0 * (largest * 2f64.powi(-24) + 2f64.powi(-150));
                let bound = (error + roundings) * (1.0 + 1e-6);
                let difference = (found - exact).abs();
                assert!(
                    difference <= bound,
                    "{isa} {precision:?}: {:e} x {:e}: {difference:e} is more than {bound:e}",
                    magnitudes[m],
                    magnitudes[n]
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 8_000 && zeros > 5_000, "{checked} within the bound, {zeros} of zeros");
}
