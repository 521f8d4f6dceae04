//! The bits of a product: the same for a row alone or in a batch, on any number of threads, beside any
//! other rows and on every instruction set; the same for a weight packed at once, in parts or transposed;
//! and an activation in the epilogue has the bits of the activation kernel.
use crate::support::gemm::{ACTIVATIONS, Packed, multiply_unpacked, product, strides};
use crate::support::*;
use simdformer_kernels::activation::apply;
use simdformer_kernels::{
    Activation, Epilogue, Exec, Input, Matrix, PackOptions, PackedMatrix, Parallelism, PostOp,
};

#[test]
fn nan_and_infinity_propagate_to_their_row_or_column_only() {
    for isa in all_isas() {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (rows, depth, columns) = (9, 21, 70);
            let mut random = Random::new(3);
            let mut a = random.values(rows * depth);
            let w: Vec<f32> = random.values(depth * columns).iter().map(|x| x + 1.5).collect();
            let packed = Packed::new(isa, view_matrix(&w, depth, columns));
            let clean = product(&a, rows, &packed.get(), SERIAL);
            a[4 * depth + 20] = special;
            let found = product(&a, rows, &packed.get(), SERIAL);
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

/// An activation in the epilogue has the bits of the activation kernel: in its tails, for NaN and infinity,
/// in full panels and at edges.
#[test]
fn an_activation_in_the_epilogue_has_the_bits_of_the_activation_kernel() {
    let mut sums = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0];
    for x in [1e-40, 1e-3, 0.5, 1.0, 5.0, 10.0, 20.0, 40.0, 1e4, 1e30] {
        sums.extend([x, -x]);
    }
    for isa in all_isas() {
        for &activation in ACTIVATIONS {
            for columns in [1, 3, 64, 70] {
                let rows = sums.len();
                let ones = vec![1.0; columns];
                let packed = Packed::new(isa, view_matrix(&ones, 1, columns));
                let run = |activation| {
                    let epilogue = Epilogue { activation, ..Epilogue::default() };
                    packed.times(view_matrix(&sums, rows, 1), &epilogue, SERIAL)
                };
                let found = run(activation);
                let mut expected = run(Activation::Identity);
                let view = view_matrix_mut(&mut expected, rows, columns);
                apply(Exec::serial(isa), activation, Input::Output, view).expect("contiguous rows");
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

/// `activation(x W0) * (x W1)` has the bits of the two products, multiplied: for a row alone, in a batch of
/// any size, on any threads, packed or not.
#[test]
fn a_gate_is_the_product_of_two_products() {
    let shapes =
        [(1, 40, 70), (1, 600, 129), (3, 17, 64), (7, 9, 200), (50, 70, 131), (200, 33, 65)];
    for isa in all_isas() {
        for (index, &(rows, depth, columns)) in shapes.iter().enumerate() {
            let mut random = Random::new(index as u64);
            let x = random.values(rows * depth);
            let (w0, w1) = (random.values(depth * columns), random.values(depth * columns));
            let bias = random.values(columns);
            let weight = |w: &[f32]| Packed::new(isa, view_matrix(w, depth, columns));
            let (first, second) = (weight(&w0), weight(&w1));
            let activation = ACTIVATIONS[index % ACTIVATIONS.len()];
            let up = Epilogue { activation, ..Epilogue::default() };
            let plain = Epilogue { bias: Some(&bias), scale: 0.5, ..Epilogue::default() };
            let gate = Epilogue { post_op: PostOp::MultiplyOutput, ..plain };
            let run = |rows: std::ops::Range<usize>, parallelism: Parallelism<'_>| {
                let a = &x[rows.start * depth..rows.end * depth];
                let a = view_matrix(a, rows.len(), depth);
                let mut c = vec![POISON; rows.len() * columns];
                for (weight, epilogue) in [(&first, &up), (&second, &gate)] {
                    let c = view_matrix_mut(&mut c, rows.len(), columns);
                    weight.multiply(a, epilogue, c, parallelism);
                }
                c
            };
            let together = run(0..rows, SERIAL);
            let a = view_matrix(&x, rows, depth);
            let (up_alone, gate_alone) =
                (first.times(a, &up, SERIAL), second.times(a, &plain, SERIAL));
            let expected: Vec<f32> = up_alone.iter().zip(&gate_alone).map(|(x, y)| x * y).collect();
            assert_eq!(difference(&together, &expected), None, "{isa}, {rows}x{columns}x{depth}");
            for row in [0, rows / 2, rows - 1] {
                let alone = run(row..row + 1, SERIAL);
                let row = &together[row * columns..][..columns];
                assert_eq!(difference(&alone, row), None, "{isa}: a row alone");
            }
            for crew in crews_of(isa, index) {
                let found = crew.with_parallelism(|parallelism| run(0..rows, parallelism));
                assert_eq!(difference(&found, &together), None, "{isa}: {crew:?}");
            }
            let mut c = up_alone;
            let to = view_matrix_mut(&mut c, rows, columns);
            multiply_unpacked(isa, (a, view_matrix(&w1, depth, columns)), &gate, to, SERIAL);
            assert_eq!(difference(&c, &together), None, "{isa}: not packed");
        }
    }
}

#[test]
fn packing_in_parts_and_transposed_gives_the_same_panels() {
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
                PackOptions::default()
                    .pack_columns(isa, block, (depth, columns), first, &mut pieces)
                    .expect("a block that fits");
                first += count;
                if first == columns {
                    break;
                }
            }
            let (pieces, rest) = pieces.split_at(whole.data.len());
            assert_eq!(bits(&whole.data), bits(pieces), "{isa}: {depth} x {columns} in pieces");
            assert!(is_poison(rest));
        }
    }
}

/// Packing a block of columns replaces that block and nothing else.
#[test]
fn packing_a_block_changes_no_other_column() {
    for isa in all_isas() {
        let (depth, columns) = (11, 130);
        let mut random = Random::new(9);
        let w = random.values(depth * columns);
        let mut packed = Packed::new(isa, view_matrix(&w, depth, columns));
        let other = random.values(depth * 5);
        let block = view_matrix(&other, depth, 5);
        PackOptions::default()
            .pack_columns(isa, block, (depth, columns), 62, &mut packed.data)
            .expect("a fit");
        let mut changed = w.clone();
        for k in 0..depth {
            changed[k * columns + 62..][..5].copy_from_slice(&other[k * 5..][..5]);
        }
        let expected = Packed::new(isa, view_matrix(&changed, depth, columns));
        assert_eq!(bits(&packed.data), bits(&expected.data), "{isa}");
    }
}

/// Guarantee 5: the bits of a row depend only on the row, W and the epilogue.
#[test]
fn a_row_alone_has_the_bits_it_has_in_any_batch_on_any_threads() {
    let rounds = if brief() { 4 } else { cases(12, 24) };
    for isa in all_isas() {
        for seed in 0..rounds {
            if !brief() && !chosen(isa, seed as usize, 3) {
                continue;
            }
            let mut random = Random::new(1000 + seed);
            let rows = 1 + random.below(120);
            let columns = 1 + random.below(400);
            let depth = if seed % 4 == 0 { 2030 + random.below(60) } else { 1 + random.below(400) };
            let a = random.values(rows * depth);
            let w = random.values(depth * columns);
            let bias = random.values(columns);
            let before = random.values(rows * columns);
            let packed = Packed::new(isa, view_matrix(&w, depth, columns));
            let run = |a: &[f32], before: &[f32], parallelism: Parallelism<'_>| {
                let rows = a.len() / depth;
                let mut c = before.to_vec();
                let epilogue = Epilogue {
                    scale: 0.7,
                    bias: Some(&bias),
                    activation: ACTIVATIONS[seed as usize % ACTIVATIONS.len()],
                    post_op: PostOp::AddOutput,
                };
                let to = view_matrix_mut(&mut c, rows, columns);
                packed.multiply(view_matrix(a, rows, depth), &epilogue, to, parallelism);
                c
            };
            let together = run(&a, &before, SERIAL);
            for i in (0..rows).filter(|&i| i < 13 || i + 1 == rows || chosen(isa, i, 5)) {
                let alone =
                    run(&a[i * depth..][..depth], &before[i * columns..][..columns], SERIAL);
                assert_eq!(
                    difference(&alone, &together[i * columns..][..columns]),
                    None,
                    "{isa}: row {i} of {rows} x {columns} x {depth} alone"
                );
            }
            for crew in crews_of(isa, seed as usize) {
                let found = crew.with_parallelism(|parallelism| run(&a, &before, parallelism));
                assert_eq!(
                    difference(&found, &together),
                    None,
                    "{isa}: {rows} x {columns} x {depth}, {crew:?}"
                );
            }
        }
    }
}

/// Other rows do not affect a row, even if they hold NaN, and neither does its position in the batch.
#[test]
fn other_rows_do_not_affect_a_row() {
    for isa in all_isas() {
        for depth in [5, 64, 2100] {
            let (rows, columns) = (14, 75);
            let mut random = Random::new(depth as u64);
            let row = random.values(depth);
            let w = random.values(depth * columns);
            let packed = Packed::new(isa, view_matrix(&w, depth, columns));
            let alone = product(&row, 1, &packed.get(), SERIAL);
            for place in 0..rows {
                let mut a = vec![f32::NAN; rows * depth];
                a[place * depth..][..depth].copy_from_slice(&row);
                let found = product(&a, rows, &packed.get(), SERIAL);
                let found = &found[place * columns..][..columns];
                assert_eq!(difference(found, &alone), None, "{isa}: row {place}");
            }
        }
    }
}

/// All sets use the same order of `k`, so they agree in every bit.
#[test]
fn instruction_sets_agree_bitwise() {
    let (rows, depth, columns) = (13, 2100, 83);
    let mut random = Random::new(17);
    let a = random.values(rows * depth);
    let w = random.values(depth * columns);
    // The definition of this order, one fused multiply-add at a time.
    let mut expected = vec![0.0f32; rows * columns];
    for i in 0..rows {
        for j in 0..columns {
            for k in 0..depth {
                let sum = &mut expected[i * columns + j];
                *sum = a[i * depth + k].mul_add(w[k * columns + j], *sum);
            }
        }
    }
    for isa in all_isas() {
        let packed = Packed::new(isa, view_matrix(&w, depth, columns));
        let found = product(&a, rows, &packed.get(), SERIAL);
        assert_eq!(difference(&found, &expected), None, "{isa}");
    }
}

/// Packed by any number of threads, as a whole or as a part with any beginning and end: each float is where
/// the layout says, zeros follow the last column, and the rest of the buffer is unchanged.
#[test]
fn threads_pack_the_same_floats() {
    let mut random = Random::new(90);
    for (depth, columns) in [(600, 330), (520, 129), (1100, 64), (33, 2100), (3, 5)] {
        for by_column in [false, true] {
            let strides = strides(depth, columns, (3, by_column), 1);
            let weight = Strided::new(depth, columns, strides, |_, _| random.value());
            for (first, count) in
                [(0, columns), (columns / 3, columns - columns / 3), (1, columns / 2)]
            {
                let block = weight.view().transposed().block(first, count).expect("columns");
                for isa in all_isas() {
                    let panel = isa.panel();
                    let mut expected =
                        vec![POISON; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
                    let end = first + count;
                    for column in
                        first..if end == columns { end.next_multiple_of(panel) } else { end }
                    {
                        for k in 0..depth {
                            let at = (column - column % panel) * depth + k * panel + column % panel;
                            expected[at] = if column < end { weight.at(k, column) } else { 0.0 };
                        }
                    }
                    for crew in [Crew::Serial, Crew::Rayon(2), Crew::Team(3), Crew::Pool(7)] {
                        let mut found = vec![POISON; expected.len()];
                        crew.with_parallelism(|parallelism| {
                            PackOptions { parallelism, ..PackOptions::default() }.pack_columns(
                                isa,
                                block.transposed(),
                                (depth, columns),
                                first,
                                &mut found,
                            )
                        })
                        .expect("a fit");
                        let what = format!("{isa}: {depth} x {columns} from {first}, {crew:?}");
                        assert_eq!(difference(&found, &expected), None, "{what}");
                        if count == columns {
                            found.fill(POISON);
                            crew.with_parallelism(|parallelism| {
                                PackOptions { parallelism, ..PackOptions::default() }
                                    .pack(isa, weight.view(), &mut found)
                                    .map(|_| ())
                            })
                            .expect("a fit");
                            assert_eq!(difference(&found, &expected), None, "{what}");
                        }
                    }
                }
            }
        }
    }
}
