//! The stack that the kernels use. Each kernel runs on a stack that was filled with a pattern; the part
//! that still has the pattern was not used. The limits are documented for builds with optimization
//! (`opt-level` 2 or 3).
use crate::support::stack::{ATTENTION, KIB, OTHERS, check, reach};
use crate::support::{Random, all_isas, cases};
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
use simdformer_kernels::softmax::{SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape,
    CachedSequence, Dtype, Epilogue, Executor, FullyMasked, Heads, HeadsMut, Input, Matrix,
    MatrixMut, PackOptions, PackedMatrix, Parallelism, PostOp, Qkv, Quantization,
    QuantizedActivations, QuantizedMatrix, Sequence, SlotTable, attention, attention_cached,
    attention_decode, attention_scratch, gemm, gemm_int8, gemm_unpacked,
};

/// The limits in the documentation of the crate.
const GEMM: usize = 64 * KIB;
const PRUNED_ARGMAX: usize = 32 * KIB;

const SERIAL: Parallelism<'static> = Parallelism::Serial;

/// Reports two threads and runs everything on the calling one.
struct Here;

impl Executor for Here {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }
}

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
    for isa in all_isas() {
        let mut packed = vec![0.0; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
        for w in [
            Matrix::new(&w, depth, columns).expect("W"),
            Matrix::new(&w, columns, depth).expect("W").transposed(),
        ] {
            check(isa, "packing", OTHERS, || {
                PackedMatrix::pack(isa, w, &mut packed).expect("the length");
            });
        }
        let packed = PackedMatrix::from_packed(isa, depth, columns, &packed).expect("the length");
        for rows in [1, 2, 6, 7, 36, 37, rows] {
            for activation in [Activation::Identity, Activation::Gelu] {
                let epilogue = Epilogue {
                    bias: Some(&a[..columns]),
                    post_op: PostOp::AddOutput,
                    activation,
                    ..Epilogue::default()
                };
                let a = Matrix::new(&a[..rows * depth], rows, depth).expect("A");
                // Both ways of storing a tile.
                for turned in [false, true] {
                    let c = &mut c;
                    check(isa, &format!("a product of {rows} rows"), GEMM, || {
                        let c = if turned {
                            MatrixMut::strided(c, rows, columns, 1, rows)
                        } else {
                            MatrixMut::new(c, rows, columns)
                        };
                        gemm(a, &packed, &epilogue, c.expect("C"), SERIAL).expect("a fit");
                    });
                }
            }
        }
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let length = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("small");
            let mut packed = vec![0.0; length];
            for w in [
                Matrix::new(&w, depth, columns).expect("W"),
                Matrix::new(&w, columns, depth).expect("W").transposed(),
            ] {
                check(isa, "packing in sixteen bits", OTHERS, || {
                    let shape = (depth, columns);
                    PackOptions::new(dtype)
                        .pack_columns(isa, w, shape, 0, &mut packed)
                        .expect("the length");
                });
            }
            let packed = PackOptions::new(dtype).from_packed(isa, depth, columns, &packed);
            let packed = packed.expect("the length");
            for rows in [1, 2, 6, 7, 36, 37, rows] {
                let activation = Activation::Gelu;
                let epilogue = Epilogue { activation, ..Epilogue::default() };
                let a = Matrix::new(&a[..rows * depth], rows, depth).expect("A");
                check(isa, &format!("{rows} rows with {dtype:?}"), GEMM, || {
                    let c = MatrixMut::new(&mut c, rows, columns).expect("C");
                    gemm(a, &packed, &epilogue, c, SERIAL).expect("a fit");
                });
            }
        }
        // Packed during the call, on an executor that runs everything on this thread.
        let mut scratch = vec![0.0; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
        for shared in [false, true] {
            check(isa, "a product that is not packed", GEMM, || {
                let parallelism = if shared { Parallelism::Executor(&Here) } else { SERIAL };
                let a = Matrix::new(&a, rows, depth).expect("A");
                let w = Matrix::new(&w, depth, columns).expect("W");
                let c = MatrixMut::new(&mut c, rows, columns).expect("C");
                gemm_unpacked(isa, a, w, &Epilogue::default(), c, &mut scratch, parallelism)
                    .expect("a fit");
            });
        }
        for isa in [isa, isa.without_dot_products()] {
            let mut words = vec![0.0; QuantizedMatrix::buffer_len(depth, columns).expect("small")];
            check(isa, "rounding weights", OTHERS, || {
                let w = Matrix::new(&w, depth, columns).expect("W");
                QuantizedMatrix::quantize(isa, w, &mut words).expect("the length");
            });
            let weight =
                QuantizedMatrix::from_quantized(depth, columns, &words).expect("the length");
            for rows in [1, 2, 3, 5, 12, rows] {
                for precision in [Quantization::W8A8, Quantization::W8A16] {
                    for activation in [Activation::Relu, Activation::Gelu] {
                        let length = QuantizedActivations::buffer_len(rows, depth, precision)
                            .expect("small");
                        let mut buffer = vec![0.0; length];
                        check(isa, "a product of bytes", OTHERS, || {
                            let a = Matrix::new(&a[..rows * depth], rows, depth).expect("A");
                            let a = QuantizedActivations::quantize(
                                isa,
                                a,
                                precision,
                                &mut buffer,
                                SERIAL,
                            )
                            .expect("the length");
                            let c = MatrixMut::new(&mut c[..rows * columns], rows, columns);
                            let epilogue = Epilogue { activation, ..Epilogue::default() };
                            gemm_int8(&a, &weight, &epilogue, c.expect("C"), SERIAL)
                                .expect("a fit");
                        });
                    }
                }
            }
        }
        let mut bytes = vec![0.0; PruningTable::buffer_len(depth, columns).expect("small")];
        check(isa, "building a pruning table", PRUNED_ARGMAX, || {
            PruningTable::build(&packed, &mut bytes).expect("space");
        });
        let pruning_table = PruningTable::from_built(depth, columns, &bytes).expect("the length");
        let product =
            Product { weight: &packed, pruning_table: &pruning_table, bias: None, by_column: None };
        let mut scratch = vec![0.0; pruned_argmax::argmax_scratch(40, depth).expect("small")];
        let (mut best, mut values) = (vec![0; 40], vec![0.0; 40]);
        for rows in [1, 13, 40] {
            let x = Matrix::new(&a[..rows * depth], rows, depth).expect("x");
            check(isa, "a pruning table", PRUNED_ARGMAX, || {
                let out = (&mut best[..rows], &mut values[..rows]);
                let banned = |_: usize, column: u32| column.is_multiple_of(7);
                pruned_argmax::argmax(&product, x, &banned, out, &mut scratch, SERIAL)
                    .expect("a fit");
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
    AttentionOutput {
        weights: Some(AttentionWeights {
            data: weights,
            heads: all,
            head_stride: tokens * keys,
            query_stride: keys,
            keys,
        }),
        ..HeadsMut::new(out, [tokens, query.heads(), query.head_dim()]).expect("space").into()
    }
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
    let query = Heads::new(&query, [queries, heads, head_dim]).expect("queries");
    let key = Heads::new(&key, [keys, kv_heads, head_dim]).expect("keys");
    let qkv = Qkv { query, key, value: key };
    let all: Vec<usize> = (0..heads).collect();
    for isa in all_isas() {
        let sequence = Sequence {
            query_start: 0,
            query_len: queries,
            key_start: 0,
            key_len: keys,
            padded_len: keys,
        };
        let floats = attention_scratch(isa, &[sequence], kv_heads, head_dim).expect("small");
        let mut scratch = vec![0.0; floats];
        let [floats, halves] = [Dtype::F32, Dtype::F16].map(|dtype| {
            let shape = CacheShape { dtype, ..CacheShape::new(2, keys, kv_heads, head_dim) };
            let mut data = vec![0.0; shape.len(isa).expect("small")];
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
                attention(
                    isa,
                    qkv,
                    &[sequence],
                    &options,
                    output(&mut out, &mut weights, &query, &all),
                    &mut scratch,
                    SERIAL,
                )
                .expect("a fit");
            });
            let cached =
                CachedSequence { query_start: 0, query_len: queries, slot: 1, key_len: keys };
            for cache in &caches {
                check(isa, "attention from a cache", ATTENTION, || {
                    attention_cached(
                        query,
                        cache,
                        &[cached],
                        &options,
                        output(&mut out, &mut weights, &query, &all),
                        SERIAL,
                    )
                    .expect("a fit");
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
                let out = HeadsMut::new(out, [queries, heads, head_dim]).expect("space");
                attention_decode(query, cache, ancestry, &options, out, SERIAL).expect("a fit");
            });
        }
    }
}

/// `data` in `rows` rows.
fn view(data: &mut [f32], rows: usize) -> MatrixMut<'_> {
    let columns = data.len() / rows;
    MatrixMut::new(data, rows, columns).expect("a matrix")
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
        let x = Matrix::new(&x, rows, columns).expect("a matrix");
        for isa in all_isas() {
            for (name, of) in [("rms norm", rms), ("layer norm", layer)] {
                check(isa, name, OTHERS, || {
                    let plain = NormInput::Matrix(x);
                    norm(isa, of, plain, view(&mut out, rows), SERIAL).expect("a fit");
                    let both = NormInput::AddTo { x, residual: view(&mut sum, rows) };
                    norm(isa, of, both, view(&mut out, rows), SERIAL).expect("a fit");
                });
            }
            check(isa, "softmax", OTHERS, || {
                for logarithm in [false, true] {
                    let options = SoftmaxOptions { logarithm, ..SoftmaxOptions::default() };
                    let to = view(&mut out, rows);
                    softmax(isa, Input::Matrix(x), options, to, SERIAL).expect("a fit");
                }
                log_sum_exp(isa, x, None, &mut some[..rows], SERIAL).expect("a fit");
            });
            check(isa, "activations", OTHERS, || {
                for one in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
                    activation::apply(isa, one, view(&mut out, rows), SERIAL).expect("a fit");
                }
            });
            check(isa, "embedding", OTHERS, || {
                let positions = Some(Positions { table: x, rows: &ids });
                embed(isa, x, &ids, 2.0, positions, view(&mut out, rows), SERIAL).expect("a fit");
            });
            check(isa, "positions", OTHERS, || {
                encode(PositionEncoding::Interleaved, 0, view(&mut out, rows)).expect("a fit");
            });
            check(isa, "the best of each row", OTHERS, || {
                top_k(isa, x, 64, &mut some, &mut indices, SERIAL).expect("a fit");
                argmax(isa, x, &mut indices[..rows], SERIAL).expect("a fit");
            });
        }
    }
}
