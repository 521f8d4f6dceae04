//! The stack that the kernels use. Each kernel runs on a stack that was filled with a pattern; the part
//! that still has the pattern was not used. The limits are documented for builds with optimization
//! (`opt-level` 2 or 3).
use crate::support::gemm::{PRECISIONS, Packed, multiply_int8};
use crate::support::pruned_argmax::Built;
use crate::support::stack::{ATTENTION, ATTENTION_INT8, KIB, OTHERS, check, reach};
use crate::support::*;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::pruned_argmax::PruningTable;
use simdformer_kernels::softmax::{SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionPrecision, AttentionWeights, Bias, Cache, CacheMut,
    CacheShape, CachedSequence, Dtype, Epilogue, Exec, FullyMasked, Heads, Input, MatrixMut,
    PackOptions, PackedMatrix, Parallelism, PostOp, Qkv, QuantizedMatrix, Sequence, SlotTable,
    attention, attention_cached, attention_decode, attention_scratch, gemm, gemm_unpacked,
};

/// The limits in the documentation of the crate.
const GEMM: usize = 64 * KIB;
const GEMM_INT8: usize = 32 * KIB;
const PRUNED_ARGMAX: usize = 32 * KIB;

#[test]
fn the_measure_sees_what_is_used() {
    for used in [5000, 20_000] {
        let found = match used {
            5000 => reach(&mut || {
                std::hint::black_box([1u8; 5000]);
            }),
            _ => reach(&mut || {
                std::hint::black_box([1u8; 20_000]);
            }),
        };
        assert!((used..used + 8 * KIB).contains(&found), "{used} bytes, found {found}");
    }
}

#[test]
fn products() {
    // More than one block of rows, of panels and of the depth.
    let (rows, depth, columns) = cases((200, 530, 140), (300, 1100, 150));
    let mut random = Random::new(1);
    let (a, w) = (random.values(rows * depth), random.values(depth * columns));
    let mut c = vec![0.0; rows * columns];
    let weights = [view_matrix(&w, depth, columns), view_matrix(&w, columns, depth).transposed()];
    let a_rows = |rows: usize| view_matrix(&a[..rows * depth], rows, depth);
    for isa in all_isas() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let options = PackOptions::new(dtype);
            let mut packed = vec![0.0; options.buffer_len(isa, depth, columns).expect("small")];
            for w in weights {
                check(isa, &format!("packing in {dtype:?}"), OTHERS, || {
                    PackOptions::new(dtype).pack(isa, w, &mut packed).expect("the length");
                });
            }
            let packed = options.from_packed(isa, depth, columns, &packed).expect("the length");
            for rows in [1, 2, 6, 7, 36, 37, rows] {
                for activation in [Activation::Identity, Activation::Gelu] {
                    let (bias, post_op) = (Some(&a[..columns]), PostOp::AddOutput);
                    let epilogue = Epilogue { bias, post_op, activation, ..Epilogue::default() };
                    // Both ways of storing a tile.
                    for strides in [(1, rows), (columns, 1)] {
                        let c = &mut c;
                        check(isa, &format!("{rows} rows with {dtype:?}"), GEMM, || {
                            let c = MatrixMut::strided(c, rows, columns, strides.0, strides.1);
                            gemm(a_rows(rows), &packed, &epilogue, c.expect("C"), SERIAL)
                                .expect("a fit");
                        });
                    }
                }
            }
        }
        // Packed during the call, on an executor that runs everything on this thread.
        let mut scratch = vec![0.0; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
        let here = Runs(2, |tasks: usize, task: &(dyn Fn(usize) + Sync)| (0..tasks).for_each(task));
        for shared in [false, true] {
            check(isa, "a product that is not packed", GEMM, || {
                let parallelism = if shared { Parallelism::Executor(&here) } else { SERIAL };
                let (c, plain) = (view_rows(&mut c, rows), Epilogue::default());
                let (a, w) = (a_rows(rows), weights[0]);
                gemm_unpacked(Exec::new(isa, parallelism), a, w, &plain, c, &mut scratch)
                    .expect("a fit");
            });
        }
        for isa in [isa, isa.without_dot_products()] {
            let mut words = vec![0.0; QuantizedMatrix::buffer_len(depth, columns).expect("small")];
            check(isa, "rounding weights", OTHERS, || {
                QuantizedMatrix::quantize(isa, weights[0], &mut words).expect("the length");
            });
            let weight =
                QuantizedMatrix::from_quantized(depth, columns, &words).expect("the length");
            for rows in [1, 2, 3, 5, 12, rows] {
                for precision in PRECISIONS {
                    for activation in [Activation::Relu, Activation::Gelu] {
                        let epilogue = Epilogue { activation, ..Epilogue::default() };
                        let c = &mut c[..rows * columns];
                        // The heap holds the quantized rows.
                        check(isa, "a product of bytes", GEMM_INT8, || {
                            let (set, c) = ((isa, precision), view_rows(c, rows));
                            multiply_int8(set, a_rows(rows), &weight, &epilogue, c, SERIAL)
                                .expect("a fit");
                        });
                    }
                }
            }
        }
        let packed = Packed::new(isa, weights[0]);
        let mut bytes = vec![0.0; PruningTable::buffer_len(depth, columns).expect("small")];
        check(isa, "building a pruning table", PRUNED_ARGMAX, || {
            PruningTable::build(&packed.get(), &mut bytes).expect("space");
        });
        let built = Built::new(packed);
        for rows in [1, 13, 40] {
            check(isa, "a pruning table", PRUNED_ARGMAX, || {
                built.argmax(a_rows(rows), &|_, column| column.is_multiple_of(7), SERIAL);
            });
        }
    }
}

/// Memory for the context of `query` and for the weights of all its heads.
fn output<'a>(
    out: &'a mut [f32],
    weights: &'a mut [f32],
    query: &Heads<'_>,
    all: &'a [usize],
) -> AttentionOutput<'a> {
    let (tokens, keys) = (query.tokens(), weights.len() / query.tokens() / all.len());
    let (head_stride, query_stride) = (tokens * keys, keys);
    let weights = AttentionWeights { data: weights, heads: all, head_stride, query_stride, keys };
    let context = view_heads_mut(out, [tokens, query.heads(), query.head_dim()]);
    AttentionOutput { context, weights: Some(weights) }
}

#[test]
fn attentions() {
    // More than one block of queries and of keys.
    let (queries, keys, heads, kv_heads, head_dim) =
        cases((100, 260, 2, 1, 72), (200, 300, 4, 2, 72));
    let mut random = Random::new(2);
    let query = random.values(queries * heads * head_dim);
    let key = random.values(keys * kv_heads * head_dim);
    let bias = random.values(queries * keys);
    let mut out = vec![0.0; query.len()];
    let mut weights = vec![0.0; heads * queries * keys];
    let query = view_heads(&query, [queries, heads, head_dim]);
    let key = view_heads(&key, [keys, kv_heads, head_dim]);
    let qkv = Qkv { query, key, value: key };
    let all: Vec<usize> = (0..heads).collect();
    for isa in all_isas() {
        let sequence = Sequence { query_len: queries, ..Sequence::packed(0, keys) };
        let floats = attention_scratch(isa, &[sequence], kv_heads, head_dim).expect("small");
        let mut scratch = vec![0.0; floats];
        let [floats, halves] = [Dtype::F32, Dtype::F16].map(|dtype| {
            let shape = CacheShape { dtype, ..CacheShape::new(2, keys, kv_heads, head_dim) };
            let mut data = vec![0.0; shape.buffer_len(isa).expect("small")];
            let mut cache = CacheMut::new(isa, shape, &mut data).expect("the length");
            for slot in 0..2 {
                check(isa, "writing a cache", OTHERS, || {
                    cache.write(slot, 0, key, key).expect("a place");
                    cache.append(&vec![0; keys], &vec![7; keys], key, key).expect("places");
                });
            }
            (shape, data)
        });
        let caches = [floats, halves];
        let caches =
            caches.each_ref().map(|(s, data)| Cache::new(isa, *s, data).expect("the length"));
        // As many values in one direction as in the other.
        let zero = keys.max(queries) - 1;
        for (isa, causal) in
            [isa, isa.without_dot_products()].map(|isa| [(isa, false), (isa, true)]).as_flattened()
        {
            let options = AttentionOptions {
                causal: *causal,
                precision: AttentionPrecision::Int8,
                ..AttentionOptions::new(head_dim)
            };
            let floats = options.scratch(*isa, &[sequence], heads, kv_heads, head_dim);
            let mut scratch = vec![0.0; floats.expect("small")];
            check(*isa, "attention with int8 products", ATTENTION_INT8, || {
                let to = view_heads_mut(&mut out, [queries, heads, head_dim]).into();
                attention(Exec::serial(*isa), qkv, &[sequence], &options, to, &mut scratch)
                    .expect("a fit");
            });
        }
        for (causal, biased) in [(false, 0), (true, 0), (true, 1), (false, 2)] {
            let bias = match biased {
                0 => None,
                1 => Some(Bias::Dense { data: &bias, head_stride: 0, query_stride: keys }),
                _ => Some(Bias::Relative { data: &bias, head_stride: 0, zero }),
            };
            let options = AttentionOptions {
                causal,
                bias,
                fully_masked: FullyMasked::Uniform,
                ..AttentionOptions::new(head_dim)
            };
            check(isa, "attention", ATTENTION, || {
                let to = output(&mut out, &mut weights, &query, &all);
                attention(Exec::serial(isa), qkv, &[sequence], &options, to, &mut scratch)
                    .expect("a fit");
            });
            let cached =
                CachedSequence { query_start: 0, query_len: queries, slot: 1, key_len: keys };
            for cache in &caches {
                check(isa, "attention from a cache", ATTENTION, || {
                    let to = output(&mut out, &mut weights, &query, &all);
                    attention_cached(query, cache, &[cached], &options, to, SERIAL).expect("a fit");
                });
            }
        }
        let lens = vec![keys as u32; queries];
        let slots: Vec<u32> = (0..keys as u32).map(|j| j / 3 % 2).collect();
        for cache in &caches {
            let out = &mut out;
            check(isa, "a step of attention", ATTENTION, || {
                let ancestry = SlotTable { lens: &lens, slots: &slots, stride: 0 };
                let options = AttentionOptions::new(head_dim);
                let out = view_heads_mut(out, [queries, heads, head_dim]);
                attention_decode(query, cache, ancestry, &options, out, SERIAL).expect("a fit");
            });
        }
    }
}

#[test]
fn kernels_of_rows() {
    let mut random = Random::new(3);
    for (rows, columns) in [(5, 70), (3, 9000)] {
        let x = random.values(rows * columns);
        let mut sum = x.clone();
        let mut out = vec![0.0; rows * columns];
        let mut some = vec![0.0; rows * 64];
        let mut indices = vec![0; rows * 64];
        let ids: Vec<u32> = (0..rows as u32).collect();
        let weight = &x[..columns];
        let layer = Norm::Layer(LayerNorm { weight, bias: Some(weight), eps: 1e-5 });
        let rms = Norm::Rms(RmsNorm { weight, eps: 1e-6 });
        let x = view_matrix(&x, rows, columns);
        for isa in all_isas() {
            for (name, of) in [("rms norm", rms), ("layer norm", layer)] {
                check(isa, name, OTHERS, || {
                    let plain = NormInput::Matrix(x);
                    norm(Exec::serial(isa), of, plain, view_rows(&mut out, rows)).expect("a fit");
                    let both = NormInput::AddTo { x, residual: view_rows(&mut sum, rows) };
                    norm(Exec::serial(isa), of, both, view_rows(&mut out, rows)).expect("a fit");
                });
            }
            check(isa, "softmax", OTHERS, || {
                for logarithm in [false, true] {
                    let options = SoftmaxOptions { logarithm, ..SoftmaxOptions::default() };
                    let to = view_rows(&mut out, rows);
                    softmax(Exec::serial(isa), Input::Matrix(x), options, to).expect("a fit");
                }
                log_sum_exp(Exec::serial(isa), x, None, &mut some[..rows]).expect("a fit");
            });
            check(isa, "activations", OTHERS, || {
                for one in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
                    activation::apply(
                        Exec::serial(isa),
                        one,
                        Input::Output,
                        view_rows(&mut out, rows),
                    )
                    .expect("a fit");
                }
            });
            check(isa, "embedding", OTHERS, || {
                let positions = Some(Positions { table: x, rows: &ids });
                embed(Exec::serial(isa), x, &ids, 2.0, positions, view_rows(&mut out, rows))
                    .expect("a fit");
            });
            check(isa, "positions", OTHERS, || {
                encode(PositionEncoding::Interleaved, 0, view_rows(&mut out, rows)).expect("a fit");
            });
            check(isa, "the best of each row", OTHERS, || {
                top_k(Exec::serial(isa), x, 64, &mut some, &mut indices).expect("a fit");
                argmax(Exec::serial(isa), x, &mut indices[..rows]).expect("a fit");
            });
        }
    }
}
