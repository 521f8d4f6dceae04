//! Errors of other libraries. Each of them made the kernels of a project wrong or slow. The table names the test
//! that fails if the same error is made here. Tests without a file name are in this file. The test
//! `the_tests_of_known_kernel_errors_exist` in `tests/documents.rs` checks the names.
//!
//! | # | error | test |
//! |---|---|---|
//! | 1 | `-inf - -inf` when the first block of a row is masked | `a_masked_first_block_is_not_nan` |
//! | 2 | fully masked rows are NaN or garbage | `fully_masked_rows_are_zero_beside_others`; `attention.rs`: `rows_without_a_key_get_zeros_or_the_mean` |
//! | 3 | NaN behind a mask leaks as 0 * NaN | `nan_and_infinity_behind_a_mask_do_not_leak`; `attention.rs`: `any_batch_is_within_its_bound_and_reads_nothing_hidden`, `nan_in_later_keys_does_not_reach_earlier_queries` |
//! | 4 | NaN in the input becomes zeros | `nan_in_a_key_reaches_the_output`; `attention.rs`: `nan_in_one_query_stays_in_its_row` |
//! | 5 | a finite number stands for "masked" | `real_scores_below_any_sentinel`, `a_bias_of_the_lowest_float_is_a_number` |
//! | 6 | a soft cap of scores unmasks padding: no soft cap exists here, but the error needed one key more than a block | `one_key_more_than_a_block` |
//! | 7 | causal alignment when lengths differ | `causal_alignment_of_unequal_lengths` |
//! | 8 | padding lanes with score 0 win over very negative scores | `padding_lanes_never_win`; backward: `train/attention_rules.rs`: `trap_10_padded_lanes_do_not_overflow_under_very_negative_maxima` |
//! | 9 | the backward pass ignores the strides of a gradient | `train/attention_rules.rs`: `trap_11_strides_of_the_contexts_gradient_do_not_matter` |
//! | 10 | wrong unless the ratio of query heads to key heads is 8 | `attention.rs`: `grouped_heads_read_their_own_keys` |
//! | 11 | a one-pass variance fails for constant rows and large means | `norm.rs`: `constant_rows_give_exactly_the_bias`, `a_large_mean_keeps_the_variance` |
//! | 12 | the sum of squares overflows | `norm.rs`: `rows_of_1e30_and_of_1e_30_are_normalized` |
//! | 13 | NaN in C is read without a residual; zero depth leaves garbage | `old_contents_of_c_are_not_read_without_a_residual` |
//! | 14 | zero sizes | `gemm.rs`: `zero_sizes_write_what_the_formula_says` |
//! | 15 | wide kernels are wrong in some shapes | `gemm.rs`: `small_integers_are_exact_in_every_shape_up_to_70` |
//! | 16 | reads past the end of an operand | `memory.rs`: `gemm_stays_between_guard_pages`, `attention_stays_between_guard_pages`, `the_cache_stays_between_guard_pages` |
//! | 17 | a masked broadcast reads too far; here the last element of A is directly before an inaccessible page | `memory.rs`: `gemm_stays_between_guard_pages` |
//! | 18 | a length check covers one half only (quantized GEMV) | `pruned_argmax_errors.rs`: `wrong_calls_are_errors_and_write_nothing`, `operands_end_where_memory_does`; every K with one row: `memory.rs`: `gemm_stays_between_guard_pages` |
//! | 19 | rows after the last full tile are dropped | `gemm.rs`: `small_integers_are_exact_in_every_shape_up_to_70` |
//! | 20 | an unmasked tail makes results depend on the vector length | `gemm.rs`: `small_integers_are_exact_in_every_shape_up_to_70`; `gemm_bitwise.rs`: `instruction_sets_agree_bitwise` |
//! | 21 | a wrong register in some column | `counting_numbers_times_the_identity` |
//! | 22, 28 | AMX: code that no test can run, permissions, sandboxes | `src/gemm/int8/tests.rs`: `every_shape_around_every_edge_equals_the_oracle` on an emulation of the tiles, `without_amx_or_its_permission_products_are_the_same` |
//! | 23 | NaN leaks between rows of a tile | `gemm_bitwise.rs`: `other_rows_do_not_affect_a_row` |
//! | 24 | more threads than tiles | `more_threads_than_work` |
//! | 25, 26, 27 | int8: signs, saturation, ends of the range; `pruned_argmax/error_bound.rs` checks at compile time that sums cannot saturate | `gemm_int8.rs`: `extremes_are_exact`, `every_byte_value_is_multiplied_exactly`; `src/pruned_argmax/tests.rs`: `int8_sums_are_exact`, `a_table_has_the_nearest_int8_values_and_bounds_their_error` |
//! | 29 | CPUID reports registers that the system does not save; `isa.rs` checks XCR0 | `every_listed_set_really_runs` |
//! | 30 | VNNI encodings: AVX-512 VNNI and AVX-VNNI are detected separately and have an entry each | `gemm_int8.rs`: `every_shape_around_every_edge_is_equal`; `pruned_argmax.rs`: `a_decided_row_has_the_argmax_of_the_product` |
//! | 31 | aligned moves on unaligned buffers | `memory.rs`: `any_alignment_gives_the_same_bits` |
//! | 32 | tanh computed by exp is inf / inf | `activation.rs`: `tanh_forms_are_flat_where_exp_overflows`; fused: `gemm_bitwise.rs`: `an_activation_in_the_epilogue_has_the_bits_of_the_activation_kernel` |
//! | 33 | GELU and SiLU in their tails | `activation.rs`: `tails_are_limits_and_never_nan`, `gelu_of_large_negative_numbers_is_zero` |
//! | 34 | subnormal numbers are slow or flushed | `denormals_are_numbers` |
//! | 35 | 32-bit indices | `memory.rs`: `strides_beyond_two_to_the_31`; sizes that overflow: `attention_errors.rs`: `absurd_sizes_do_not_panic` |
//! | 36 | zero and negative strides, aliasing; the types allow neither negative strides nor aliasing of an output | `memory.rs`: `zero_strides_repeat_what_they_point_at`; `gemm_errors.rs`: `views_that_exceed_their_slice_are_errors`; `attention_errors.rs`: `views_that_exceed_their_slice_are_errors` |
//! | 37 | spinning threads on too few cores | `many_more_threads_than_cores_finish` |
//! | 38 | hidden allocations | `allocations.rs`: `no_kernel_allocates_on_any_threads` |
//! | 39 | results depend on threads or batch | `gemm_bitwise.rs`: `a_row_alone_has_the_bits_it_has_in_any_batch_on_any_threads`; `attention_bitwise.rs`: `threads_do_not_change_a_bit`, `a_row_alone_has_the_bits_it_has_in_the_batch` |
//! | 40 | stack buffers that larger blocks overflow; blocks are constants here | `gemm.rs`: `small_integers_are_exact_around_every_block_edge` |
//! | 41 | the fallback differs from the vector code | `same_bits.rs`: `products`, `attentions` |

use crate::support::batch::{Batch, with_bias};
use crate::support::gemm::{Packed, multiply};
use crate::support::*;
use simdformer_kernels::{Epilogue, Isa, Parallelism, PostOp};

/// Compares `batch` with the oracle on every instruction set.
fn check(batch: &Batch, what: &str) {
    let exact = batch.exact();
    for isa in all_isas() {
        let output = batch.attention(isa, SERIAL);
        batch.check(&output, &exact, &format!("{isa}, {what}"));
    }
}

#[test]
fn a_masked_first_block_is_not_nan() {
    for masked in [1, 16, 64, 255, 256, 257, 512, 600] {
        let mut batch = Batch::new(&[(7, 601, 0)], [2, 1, 24], [0, 0, 0], 1);
        batch.weight_heads = vec![0];
        check(
            &with_bias(batch, |_, j| if j < masked { f32::NEG_INFINITY } else { 0.5 }),
            &format!("{masked} of 601 keys masked from the front"),
        );
    }
}

#[test]
fn fully_masked_rows_are_zero_beside_others() {
    let lens = [(4, 0, 5), (3, 40, 0), (2, 0, 0), (60, 5, 1)];
    let mut batch = Batch::new(&lens, [2, 2, 33], [0, 1, 2], 2);
    batch.causal = true;
    check(&batch, "lengths of zero, and more queries than keys");
    for isa in all_isas() {
        let output = batch.attention(isa, SERIAL);
        for token in [0, 1, 2, 3] {
            assert!(output.out.row(token, 1).iter().all(|x| x.to_bits() == 0), "{isa}: {token}");
        }
    }
    let batch = Batch::new(&[(5, 40, 0)], [1, 1, 8], [0, 0, 0], 3);
    let batch = with_bias(batch, |i, _| if i % 2 == 0 { f32::NEG_INFINITY } else { -3.0 });
    check(&batch, "a mask of minus infinity in every other row");
}

#[test]
fn nan_and_infinity_behind_a_mask_do_not_leak() {
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (query_len, key_len, padding) in [(9, 17, 15), (1, 256, 1), (50, 250, 60), (3, 0, 9)] {
            let batch = Batch::new(&[(query_len, key_len, padding)], [2, 1, 20], [0, 0, 0], 4);
            for isa in all_isas() {
                let mut filled = batch.clone();
                filled.key.fill(key_len..key_len + padding, || special);
                filled.value.fill(key_len..key_len + padding, || special);
                let mut finite = batch.clone();
                finite.key.fill(key_len..key_len + padding, || 1.0);
                finite.value.fill(key_len..key_len + padding, || 1.0);
                let filled = filled.attention(isa, SERIAL).bits();
                let finite = finite.attention(isa, SERIAL).bits();
                assert!(filled == finite, "{isa}: {special} in {padding} keys after {key_len}");
            }
        }
    }
}

#[test]
fn nan_in_a_key_reaches_the_output() {
    // At every kind of position in a block and in the second block: the running maximum ignores NaN,
    // the sum must not.
    for place in [0, 1, 15, 16, 40, 255, 256, 299] {
        let mut batch = Batch::new(&[(7, 300, 0)], [1, 1, 10], [0, 0, 0], 5);
        batch.key.row_mut(place, 0)[3] = f32::NAN;
        for isa in all_isas() {
            let out = batch.attention(isa, SERIAL).out;
            assert!(out.data.iter().all(|x| x.is_nan()), "{isa}: NaN in key {place} was lost");
        }
        let mut batch = Batch::new(&[(7, 300, 0)], [1, 1, 10], [0, 0, 0], 5);
        batch.value.row_mut(place, 0)[3] = f32::NAN;
        for isa in all_isas() {
            let out = batch.attention(isa, SERIAL).out;
            for (at, x) in out.data.iter().enumerate() {
                assert_eq!(x.is_nan(), at % 10 == 3, "{isa}: NaN in value {place}, element {at}");
            }
        }
    }
}

#[test]
fn real_scores_below_any_sentinel() {
    // All visible scores are near -1e6, and keys are hidden in every way. A mask that fills in -1e4,
    // -5e4 or -1e9 / 1e5 would give the hidden keys all the weight.
    for level in [-1e4, -5e4, -1e6, -1e30, -3e38] {
        let mut batch = Batch::new(&[(5, 40, 9)], [1, 1, 1], [0, 0, 0], 6);
        batch.scale = 1.0;
        batch.causal = true;
        batch.query.fill(0..5, || 1.0);
        batch.key.fill(0..40, || level);
        batch.value.fill(0..40, || 2.0);
        let batch = with_bias(batch, |_, j| if j % 3 == 1 { f32::NEG_INFINITY } else { 0.0 });
        for isa in all_isas() {
            let out = batch.attention(isa, SERIAL).out;
            for x in &out.data {
                assert!((x - 2.0).abs() <= 1e-5, "{isa}: scores at {level:e} gave {x}");
            }
        }
    }
}

#[test]
fn a_bias_of_the_lowest_float_is_a_number() {
    // `f32::MIN` as a mask, alone and together with minus infinity. It is finite, so a row that it
    // covers attends to its keys.
    let (low, inf) = (f32::MIN, f32::NEG_INFINITY);
    for (row, expected) in [
        ([0.0, low, 0.0, low], [0.5, 0.0, 0.5, 0.0]),
        ([low; 4], [0.25; 4]),
        ([low, inf, low, inf], [0.5, 0.0, 0.5, 0.0]),
        ([inf, low, inf, inf], [0.0, 1.0, 0.0, 0.0]),
        ([inf; 4], [0.0; 4]),
    ] {
        let mut batch = Batch::new(&[(1, 4, 0)], [1, 1, 3], [0, 0, 0], 7);
        batch.query.fill(0..1, || 0.0);
        batch.weight_heads = vec![0];
        let batch = with_bias(batch, |_, j| row[j]);
        check(&batch, &format!("bias {row:?}"));
        for isa in all_isas() {
            let output = batch.attention(isa, SERIAL);
            assert_eq!(output.weights(0, 0)[..4], expected, "{isa}: bias {row:?}");
        }
    }
}

#[test]
fn one_key_more_than_a_block() {
    for key_len in [5, 9, 17, 33, 49, 65, 129, 257, 513] {
        let mut batch = Batch::new(&[(3, key_len, 0)], [1, 1, 16], [0, 0, 0], key_len as u64);
        batch.weight_heads = vec![0];
        check(&batch, &format!("{key_len} keys"));
    }
}

#[test]
fn causal_alignment_of_unequal_lengths() {
    for t in [5, 16, 64, 260] {
        for query_len in [1, 3, t] {
            for key_len in [t - 1, t, t + 5] {
                let lens = [(query_len, key_len, 2)];
                let mut batch = Batch::new(&lens, [1, 1, 9], [0, 0, 0], t as u64);
                batch.causal = true;
                batch.weight_heads = vec![0];
                check(&batch, &format!("{query_len} queries, {key_len} keys"));
            }
        }
    }
}

#[test]
fn padding_lanes_never_win() {
    for key_len in [1, 3, 7, 9, 15, 17, 31, 63, 65, 250, 257, 270] {
        let mut batch = Batch::new(&[(8, key_len, 0)], [1, 1, 2], [0, 0, 0], 8);
        batch.scale = 1.0;
        batch.query.fill(0..8, || 1000.0);
        batch.key.fill(0..key_len, || -500.0);
        batch.value.fill(0..key_len, || 1.0);
        batch.weight_heads = vec![0];
        for isa in all_isas() {
            let output = batch.attention(isa, SERIAL);
            for x in &output.out.data {
                assert!((x - 1.0).abs() <= 1e-5, "{isa}: {key_len} keys gave {x}");
            }
            let share = output.weights(0, 7)[0];
            assert!((share * key_len as f32 - 1.0).abs() <= 1e-5, "{isa}: {share}");
        }
    }
}

#[test]
fn old_contents_of_c_are_not_read_without_a_residual() {
    for isa in all_isas() {
        for columns in [1, 7, 8, 15, 17, 31, 64, 65, 130] {
            for rows in 1..=13 {
                for depth in [0, 1, 9] {
                    let (a, w) = (vec![1.0; rows * depth], vec![1.0; depth * columns]);
                    let packed = Packed::new(isa, view_matrix(&w, depth, columns));
                    for held in [f32::NAN, f32::INFINITY] {
                        let mut c = vec![held; rows * columns];
                        let to = view_matrix_mut(&mut c, rows, columns);
                        let a = view_matrix(&a, rows, depth);
                        packed.multiply(a, &Epilogue::default(), to, SERIAL);
                        assert!(
                            c.iter().all(|&x| x == depth as f32),
                            "{isa}: {held} in C, {rows} x {columns} x {depth}"
                        );
                    }
                }
            }
        }
    }
}

/// A of counting numbers, W the identity: a wrong register gives a wrong number that is easy to read.
#[test]
fn counting_numbers_times_the_identity() {
    for isa in all_isas() {
        for size in 1..=70 {
            for rows in [1, 2, 3, 4, 5, 6, 7, 13] {
                let a: Vec<f32> = (1..=rows * size).map(|x| x as f32).collect();
                let mut w = vec![0.0; size * size];
                (0..size).for_each(|i| w[i * size + i] = 1.0);
                let packed = Packed::new(isa, view_matrix(&w, size, size));
                for scale in [0.0, 1.0, 2.0] {
                    for add in [false, true] {
                        let post_op = if add { PostOp::AddOutput } else { PostOp::None };
                        let mut c = vec![100_000.0; rows * size];
                        let epilogue = Epilogue { scale, post_op, ..Epilogue::default() };
                        let to = view_matrix_mut(&mut c, rows, size);
                        packed.multiply(view_matrix(&a, rows, size), &epilogue, to, SERIAL);
                        let base = if add { 100_000.0 } else { 0.0 };
                        let expected: Vec<f32> = a.iter().map(|x| base + scale * x).collect();
                        assert_eq!(c, expected, "{isa}: {rows} rows of {size}, scale {scale}");
                    }
                }
            }
        }
    }
}

/// Thirteen rows and one panel, with enough work for several tasks.
#[test]
fn more_threads_than_work() {
    let (rows, depth, columns) = (13, 9000, 7);
    let mut random = Random::new(24);
    let (a, w) = (random.values(rows * depth), random.values(depth * columns));
    for isa in all_isas() {
        let (a, w) = (view_matrix(&a, rows, depth), view_matrix(&w, depth, columns));
        let run = |parallelism: Parallelism<'_>| bits(&multiply(isa, a, w, parallelism));
        let serial = run(SERIAL);
        let mut batch = Batch::new(&[(40, 500, 0)], [1, 1, 32], [0, 0, 0], 24);
        batch.causal = true;
        let attended = batch.attention(isa, SERIAL).bits();
        for crew in [Crew::Rayon(16), Crew::Rayon(33), Crew::Team(16)] {
            assert!(crew.with_parallelism(run) == serial, "{isa}: {crew:?}");
            let found =
                crew.with_parallelism(|parallelism| batch.attention(isa, parallelism).bits());
            assert!(found == attended, "{isa}: {crew:?}");
        }
    }
}

/// A set that is listed can run, and can be selected by its name.
#[test]
fn every_listed_set_really_runs() {
    for isa in all_isas() {
        assert_eq!(Isa::from_name(isa.name()), Ok(isa));
        let a = [1.0, 2.0, 3.0, 4.0];
        let a = view_matrix(&a, 2, 2);
        assert_eq!(multiply(isa, a, a, SERIAL), [7.0, 10.0, 15.0, 22.0], "{isa}");
    }
}

#[test]
fn denormals_are_numbers() {
    let tiny = f32::from_bits(1);
    for isa in all_isas() {
        // Subnormal times integer, summed: exact, and lost completely by flush-to-zero.
        let a: Vec<f32> = (0..40).map(|x| tiny * x as f32).collect();
        let w = vec![3.0; 40 * 20];
        let c = multiply(isa, view_matrix(&a, 1, 40), view_matrix(&w, 40, 20), SERIAL);
        assert!(c.iter().all(|x| x.to_bits() == 3 * 780), "{isa}: {c:?}");
        // A weight whose exact value is subnormal may be zero, and nothing else.
        let mut batch = Batch::new(&[(1, 30, 0)], [1, 1, 1], [0, 0, 0], 34);
        batch.scale = 1.0;
        batch.query.fill(0..1, || 1.0);
        batch.weight_heads = vec![0];
        let mut next = 0.0;
        batch.key.fill(0..30, || {
            let score = if next == 0.0 { 0.0 } else { -80.0 - next };
            next += 1.0;
            score
        });
        let exact = batch.exact();
        let output = batch.attention(isa, SERIAL);
        batch.check(&output, &exact, &format!("{isa}, weights around the denormals"));
        // Subnormal values have the usual weights.
        batch.key.fill(0..30, || 0.0);
        batch.value.fill(0..30, || tiny * 1000.0);
        let out = batch.attention(isa, SERIAL).out.data[0];
        assert!((out / tiny - 1000.0).abs() <= 16.0, "{isa}: {out:e}");
    }
}

/// Waiting helpers must not keep the cores busy that working threads need.
#[test]
fn many_more_threads_than_cores_finish() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (4 * cores).min(64);
    let (rows, depth, columns) = (64, 256, 256);
    let mut random = Random::new(37);
    let (a, w) = (random.values(rows * depth), random.values(depth * columns));
    let isa = Isa::best();
    let (a, w) = (view_matrix(&a, rows, depth), view_matrix(&w, depth, columns));
    let run = |parallelism: Parallelism<'_>| {
        for _ in 1..if brief() { 10 } else { 50 } {
            multiply(isa, a, w, parallelism);
        }
        bits(&multiply(isa, a, w, parallelism))
    };
    let serial = run(SERIAL);
    assert!(Crew::Rayon(threads).with_parallelism(run) == serial);
    assert!(Crew::Team(threads).with_parallelism(run) == serial);
}
