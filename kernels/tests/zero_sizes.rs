//! Every view and every kernel with shapes without elements whose other axes are absurd: a call returns at once, whether
//! it succeeds or is refused.

use crate::support::SERIAL;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::softmax::{FullyMasked, SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionPrecision, AttentionWeights, Bias, Cache, CacheMut,
    CacheShape, CachedSequence, Dtype, Epilogue, Exec, Heads, HeadsMut, Input, Isa, Linear, Matrix,
    MatrixMut, PackOptions, PackSource, PackedMatrix, Parallelism, PostOp, Qkv, Quantization,
    QuantizedActivations, QuantizedMatrix, Sequence, SlotTable, attention, attention_cached,
    attention_decode, attention_scratch, gemm, gemm_int8, gemm_unpacked, gemm_unpacked_scratch,
    reference,
};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any call takes on a busy machine, and shorter than a loop over an absurd size.
const LIMIT: Duration = Duration::from_secs(5);

const ABSURD: [usize; 4] =
    [usize::MAX, isize::MAX as usize, 1 << (usize::BITS - 3), usize::MAX / 64];

/// A view without elements.
fn m(rows: usize, columns: usize) -> Option<Matrix<'static>> {
    Matrix::new(&[], rows, columns).ok()
}

fn w(rows: usize, columns: usize) -> Option<MatrixMut<'static>> {
    MatrixMut::new(&mut [], rows, columns).ok()
}

fn h(shape: [usize; 3]) -> Option<Heads<'static>> {
    Heads::new(&[], shape).ok()
}

fn hm(shape: [usize; 3]) -> Option<HeadsMut<'static>> {
    HeadsMut::new(&mut [], shape).ok()
}

/// A call with sizes of which one is 0 and the others are small or absurd. `None` if a view or a length was refused.
type Call = fn(Isa, Parallelism<'_>, [usize; 3]) -> Option<()>;

/// The space that a kernel asks for, if it is little.
fn space(floats: Result<usize, simdformer_kernels::Error>) -> Option<Vec<f32>> {
    let floats = floats.ok().filter(|&floats| floats < 1 << 16)?;
    Some(vec![0.0; floats])
}

const LAYER: LayerNorm<'static> = LayerNorm { weight: &[], bias: Some(&[]), eps: 1e-5 };
const RMS: RmsNorm<'static> = RmsNorm { weight: &[], eps: 1e-5 };

fn with_qkv(sizes: [usize; 3], then: impl FnOnce(Qkv<'static>, HeadsMut<'static>)) -> Option<()> {
    let view = h(sizes)?;
    then(Qkv { query: view, key: view, value: view }, hm(sizes)?);
    Some(())
}

const CALLS: &[(&str, Call)] = &[
    ("views", |_, _, [a, b, c]| {
        let (matrix, mut writable) = (m(a, b)?, w(a, b)?);
        let _ = (matrix.block(0, a), matrix.transposed().block(b, 0), format!("{matrix:?}"));
        let _ = writable.reborrow().block(a / 2, a - a / 2);
        let heads = h([a, b, c])?;
        let _ = (heads.row(0, 0), heads.block(0, a), format!("{heads:?}"));
        let _ = hm([a, b, c])?.block(a / 2, 0);
        let _ = Heads::heads_first(&[], [a, b, c, 1]).map(|view| view.block(0, a));
        let _ = Heads::heads_first(&[], [1, a, b, c]).map(|view| view.block(0, b));
        let _ = (
            HeadsMut::heads_first(&mut [], [a, b, c, 1]),
            HeadsMut::heads_first(&mut [], [1, a, b, c]),
        );
        let _ = (Qkv::fused(&[], [a, b, c]), HeadsMut::side_by_side::<2>(&mut [], [a, b, c]));
        let _ = (PackSource::bf16(&[], a, b), PackSource::f16(&[], a, b));
        Some(())
    }),
    ("gemm", |isa, p, [a, b, c]| {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let options = PackOptions { dtype, parallelism: p };
            let mut buffer = space(options.buffer_len(isa, b, c))?;
            let packed = options.pack(isa, m(b, c)?, &mut buffer).ok()?;
            let _ = packed.unpack_row(0, &mut []);
            let post_op = m(a, c).map_or(PostOp::None, PostOp::Add);
            let epilogue = Epilogue { post_op, ..Epilogue::default() };
            let _ = gemm(m(a, b)?, &packed, &epilogue, w(a, c)?, p);
        }
        Some(())
    }),
    ("pack_columns", |isa, p, [a, b, c]| {
        for dtype in [Dtype::F32, Dtype::F16] {
            let options = PackOptions { dtype, parallelism: p };
            let mut buffer = space(options.buffer_len(isa, a, b))?;
            let _ = options.pack_columns(isa, m(a, c.min(b))?, (a, b), b - c.min(b), &mut buffer);
            let _ =
                options.pack_columns(isa, PackSource::f16(&[], a, b).ok()?, (a, b), 0, &mut buffer);
            let _ = options.from_packed(isa, a, b, &buffer);
        }
        Some(())
    }),
    ("gemm_unpacked", |isa, p, [a, b, c]| {
        let exec = Exec::new(isa, p);
        let mut scratch = space(gemm_unpacked_scratch(isa, b, c))?;
        let _ =
            gemm_unpacked(exec, m(a, b)?, m(b, c)?, &Epilogue::default(), w(a, c)?, &mut scratch);
        let (a_matrix, b_matrix) = (m(b, a)?.transposed(), m(c, b)?.transposed());
        let _ =
            gemm_unpacked(exec, a_matrix, b_matrix, &Epilogue::default(), w(a, c)?, &mut scratch);
        Some(())
    }),
    ("gemm_int8", |isa, p, [a, b, c]| {
        for precision in [Quantization::W8A8, Quantization::W8A16] {
            let mut words = space(QuantizedMatrix::buffer_len(b, c))?;
            let weight = QuantizedMatrix::quantize(isa, m(b, c)?, &mut words).ok()?;
            let mut buffer = space(QuantizedActivations::buffer_len(a, b, precision))?;
            let rows =
                QuantizedActivations::quantize(Exec::new(isa, p), m(a, b)?, precision, &mut buffer)
                    .ok()?;
            let _ = gemm_int8(&rows, &weight, &Epilogue::default(), w(a, c)?, p);
        }
        Some(())
    }),
    ("linear", |isa, p, [a, b, c]| {
        // A layer allocates its memory: only sizes that fit.
        space(PackedMatrix::buffer_len(isa, b, c))?;
        let linear = Linear::new(isa, Dtype::F32, m(c, b)?, None).ok()?;
        let mut scratch = space(linear.forward_scratch(a))?;
        let _ = linear.forward_with(m(a, b)?, &Epilogue::default(), w(a, c)?, &mut scratch, p);
        let _ = linear.forward(m(a, b)?, w(a, c)?);
        space(QuantizedMatrix::buffer_len(b, c))?;
        let linear = Linear::quantized(isa, Quantization::W8A8, m(c, b)?, None).ok()?;
        let mut scratch = space(linear.forward_scratch(a))?;
        let _ = linear.forward_with(m(a, b)?, &Epilogue::default(), w(a, c)?, &mut scratch, p);
        Some(())
    }),
    ("pruned_argmax", |isa, p, [a, b, c]| {
        let mut buffer = space(PackedMatrix::buffer_len(isa, b, c))?;
        let weight = PackedMatrix::pack(isa, m(b, c)?, &mut buffer).ok()?;
        let mut words = space(PruningTable::buffer_len(b, c))?;
        let pruning_table = PruningTable::build(&weight, &mut words).ok()?;
        let mut scratch = space(pruned_argmax::argmax_scratch(a, b))?;
        let product = Product {
            weight: &weight,
            pruning_table: &pruning_table,
            bias: None,
            by_column: m(c, b),
        };
        let (mut columns, mut values) = (vec![0; a.min(99)], vec![0.0; a.min(99)]);
        let (x, to) = (m(a, b)?, (&mut columns[..], &mut values[..]));
        let _ = pruned_argmax::argmax(&product, x, &|_, _| false, to, &mut scratch, p);
        Some(())
    }),
    ("softmax", |isa, p, [a, b, _]| {
        let exec = Exec::new(isa, p);
        for masked in [FullyMasked::Zeros, FullyMasked::Uniform] {
            for logarithm in [false, true] {
                let of = SoftmaxOptions { logarithm, lengths: None, fully_masked: masked };
                let _ = softmax(exec, Input::Matrix(m(a, b)?), of, w(a, b)?);
                let _ = softmax(exec, Input::Output, of, w(a, b)?);
                let of = SoftmaxOptions { lengths: Some(&[]), ..of };
                let _ = softmax(exec, Input::Matrix(m(a, b)?), of, w(a, b)?);
            }
        }
        let _ = log_sum_exp(exec, m(a, b)?, None, &mut vec![0.0; a.min(99)]);
        Some(())
    }),
    ("norms", |isa, p, [a, b, _]| {
        for of in [Norm::Layer(LAYER), Norm::Rms(RMS)] {
            for input in [
                NormInput::Matrix(m(a, b)?),
                NormInput::Output,
                NormInput::Sum { x: m(a, b)?, residual: m(a, b)? },
                NormInput::SumWithOutput { x: m(a, b)? },
                NormInput::AddTo { x: m(a, b)?, residual: w(a, b)? },
            ] {
                let _ = norm(Exec::new(isa, p), of, input, w(a, b)?);
            }
        }
        Some(())
    }),
    ("rows", |isa, p, [a, b, _]| {
        let exec = Exec::new(isa, p);
        for activation in [Activation::Relu, Activation::Gelu, Activation::Identity] {
            let _ = activation::apply(exec, activation, Input::Output, w(a, b)?);
        }
        let _ = argmax(exec, m(a, b)?, &mut vec![0; a.min(99)]);
        for k in [0, 1, 5, a, b] {
            let len = a.saturating_mul(k).min(99);
            let _ = top_k(exec, m(a, b)?, k, &mut vec![0.0; len], &mut vec![0; len]);
        }
        let ids = vec![0; a.min(99)];
        let positions = m(a, b).map(|table| Positions { table, rows: &[] });
        let _ = embed(exec, m(a, b)?, &[], 1.0, positions, w(0, b)?);
        let _ = embed(exec, m(a, b)?, &ids, 1.0, None, w(ids.len(), b)?);
        Some(())
    }),
    ("positions", |_, _, [a, b, c]| {
        for encoding in [
            PositionEncoding::HalfSplit,
            PositionEncoding::Interleaved,
            PositionEncoding::HalfSplitClosed { offset: c },
            PositionEncoding::HalfSplitSingle { offset: c },
            PositionEncoding::Learned { table: m(a, b)?, offset: c },
        ] {
            let _ = encode(encoding, c, w(a, b)?);
        }
        Some(())
    }),
    ("relative", |_, _, [a, b, c]| {
        for bidirectional in [false, true] {
            for buckets in [32, a] {
                let Ok(buckets) = RelativeBuckets::new(buckets, b.max(33), bidirectional) else {
                    continue;
                };
                let _ = (buckets.table_len(b, c), buckets.table_len(a, b));
                let _ = buckets.fill(m(a, b)?, c, &mut []);
                let _ = buckets.fill(m(32, 0)?, c, &mut []);
            }
        }
        Some(())
    }),
    ("attention_int8", |isa, p, sizes @ [a, b, c]| {
        for sequences in [
            vec![],
            vec![Sequence::packed(0, a)],
            vec![Sequence { query_len: a, ..Sequence::default() }],
            vec![Sequence { key_len: a, padded_len: a, ..Sequence::default() }; 2],
        ] {
            for causal in [false, true] {
                let options = AttentionOptions {
                    causal,
                    precision: AttentionPrecision::Int8,
                    ..AttentionOptions::new(c.clamp(1, 64))
                };
                let _ = options.scratch_bound(isa, a, b, c, 1);
                let mut scratch = space(options.scratch(isa, &sequences, b, b, c))?;
                with_qkv(sizes, |qkv, out| {
                    let exec = Exec::new(isa, p);
                    let _ = attention(exec, qkv, &sequences, &options, out.into(), &mut scratch);
                })?;
            }
        }
        Some(())
    }),
    ("attention", |isa, p, sizes @ [a, b, c]| {
        let exec = Exec::new(isa, p);
        let bound = |sizes: [usize; 4]| {
            let [sequences, tokens, heads, head_dim] = sizes;
            AttentionOptions::new(head_dim).scratch_bound(isa, sequences, tokens, heads, head_dim)
        };
        let _ = [bound([a, b, c, 1]), bound([1, a, b, c])];
        for sequences in [
            vec![],
            vec![Sequence::packed(0, a)],
            vec![Sequence { query_len: a, ..Sequence::default() }],
            vec![Sequence { key_len: a, padded_len: a, ..Sequence::default() }; 2],
        ] {
            let mut scratch = space(attention_scratch(isa, &sequences, b, c))?;
            for bias in [None, Some(Bias::Dense { data: &[], head_stride: 0, query_stride: 0 })] {
                let options = AttentionOptions { bias, ..AttentionOptions::new(c.clamp(1, 64)) };
                with_qkv(sizes, |qkv, out| {
                    let _ = attention(exec, qkv, &sequences, &options, out.into(), &mut scratch);
                })?;
                with_qkv(sizes, |qkv, context| {
                    let (data, heads, head_stride, query_stride) = (&mut [][..], &[0][..], 0, 0);
                    let weights =
                        Some(AttentionWeights { data, heads, head_stride, query_stride, keys: a });
                    let output = AttentionOutput { context, weights };
                    let _ = attention(exec, qkv, &sequences, &options, output, &mut scratch);
                })?;
            }
        }
        Some(())
    }),
    ("cache", |isa, p, [a, b, c]| {
        let (few, options) = ([0u32; 3], AttentionOptions::new(1));
        for shape in [
            CacheShape::new(a, b, c, 1),
            CacheShape::new(2, a, b, c),
            CacheShape::new(2, 3, a, b),
            CacheShape::new(a, 3, b, c),
            CacheShape { dtype: Dtype::F16, ..CacheShape::new(2, a, b, c) },
        ] {
            let Some(mut data) = space(shape.buffer_len(isa)) else { continue };
            let Ok(mut cache) = CacheMut::new(isa, shape, &mut data) else { continue };
            for tokens in [0, 1, 3, a] {
                let Some(key) = h([tokens, shape.heads, shape.head_dim]) else { continue };
                let _ = cache.write(0, 0, key, key);
                let ids = &few[..tokens.min(3)];
                let _ = cache.append_with(ids, ids, key, key, p);
            }
            let Ok(cache) = Cache::new(isa, shape, &data) else { continue };
            let _ = (cache.read_key(0, 0, 0, &mut []), cache.read_value(0, 0, 0, &mut []));
            for tokens in [0, 1, 3, a] {
                let shape = [tokens, shape.heads, shape.head_dim];
                let Some(query) = h(shape) else { continue };
                let lens = &few[..tokens.min(3)];
                let table = SlotTable { lens, slots: &few, stride: 1 };
                let _ = attention_decode(query, &cache, table, &options, hm(shape)?, p);
                for slot in [0, a] {
                    let of = CachedSequence { query_start: 0, query_len: tokens, slot, key_len: 0 };
                    let _ = attention_cached(query, &cache, &[of], &options, hm(shape)?.into(), p);
                }
            }
        }
        Some(())
    }),
    ("oracles", |_, _, [a, b, c]| {
        let (epilogue, precision) = (Epilogue::default(), Quantization::W8A8);
        let _ = reference::gemm::gemm(m(a, b)?, m(b, c)?, &epilogue, None, &mut [], &mut []);
        let (x, w) = (m(a, b)?, m(b, c)?);
        let _ = reference::gemm_int8::gemm_int8(x, w, precision, &epilogue, None, &mut []);
        let sequence = Sequence::packed(0, a.min(9));
        with_qkv([a, b, c], |qkv, _| {
            let options = AttentionOptions::new(c.clamp(1, 9));
            let _ = reference::attention::attention(qkv, sequence, &options, &mut [], &mut []);
        })
    }),
    #[cfg(feature = "train")]
    ("training rows", |isa, p, [a, b, c]| {
        let exec = Exec::new(isa, p);
        use simdformer_kernels::train::*;
        let _ = activation_backward(exec, Activation::Gelu, m(a, b)?, w(a, b)?);
        let _ = activation::apply(exec, Activation::Gelu, Input::Matrix(m(a, b)?), w(a, b)?);
        let _ = gate(exec, Activation::Gelu, m(a, b)?, m(a, b)?, w(a, b)?);
        let _ = gate_backward(exec, Activation::Gelu, w(a, b)?, w(a, b)?, m(a, b)?);
        let half = Dropout { seed: 1, step: 1, site: 0, probability: 0.5 };
        let ids = vec![0; a.min(99)];
        let _ = dropout(exec, &half, &ids, &ids, Input::Output, WriteMode::Store, w(a, b)?);
        let _ = dropout(exec, &half, &ids, &ids, Input::Matrix(m(a, b)?), WriteMode::Add, w(a, b)?);
        let smoothing = Smoothing { epsilon: 0.1, over: SmoothingOver::All };
        let mut losses = vec![RowLoss::default(); ids.len()];
        let _ = cross_entropy(exec, w(a, b)?, &ids, smoothing, 1.0, &mut losses);
        let _ = cross_entropy_loss(exec, m(a, b)?, &ids, smoothing, &mut losses);
        let lookup = Lookup { ids: &ids, scale: 1.0, skip: None };
        let mut scratch = vec![0; 1 << 10];
        let _ = embedding_gradient(exec, lookup, m(ids.len(), b)?, w(a, b)?, &mut scratch);
        let _ = c;
        Some(())
    }),
    #[cfg(feature = "train")]
    ("training matrices", |isa, p, [a, b, c]| {
        let exec = Exec::new(isa, p);
        use simdformer_kernels::train::*;
        let rows = u32::try_from(a).ok();
        for ends in [vec![], vec![0], vec![0, 0], rows.map_or(vec![u32::MAX], |rows| vec![rows])] {
            let chunks = ReductionChunks::new(&ends).ok()?;
            for write in [WriteMode::Store, WriteMode::Add] {
                let mut scratch = space(weight_gradient_scratch(isa, a, b, c))?;
                let mut none = vec![];
                for bias in [None, Some(&mut none[..])] {
                    let (d_y, x, to) = (m(a, b)?, m(a, c)?, w(b, c)?);
                    let _ = weight_gradient(exec, d_y, x, chunks, write, to, bias, &mut scratch);
                }
                let to = NormGradients { weight: &mut none, bias: None };
                let _ = norm_parameters_backward(exec, m(a, b)?, m(a, b)?, chunks, write, to);
                let _ =
                    RelativeBuckets::new(32, 128, true).ok()?.gradient(c, &[], write, w(32, 0)?);
                let many = RelativeBuckets::new(a, b.max(33), false);
                let _ =
                    many.map(|many| many.gradient(c, &[], write, MatrixMut::new(&mut [], a, 0)?));
            }
        }
        let mut scale = vec![0.0; a.min(99)];
        for of in [Norm::Layer(LAYER), Norm::Rms(RMS)] {
            for x in [Input::Matrix(m(a, b)?), Input::Output] {
                let _ = norm_forward_save(exec, of, x, w(a, b)?, &mut scale, w(a, b)?);
            }
            let _ = norm_recompute(exec, of, m(a, b)?, w(a, b)?);
        }
        Some(())
    }),
];

/// Triples of sizes of which one is 0, one is absurd, and the third is 0, small or absurd.
fn sizes() -> Vec<[usize; 3]> {
    let mut all = Vec::new();
    for absurd in ABSURD {
        for third in [0, 1, 3, absurd] {
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let from = [0, absurd, third];
                all.push(order.map(|at| from[at]));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn absurd_sizes_without_elements_return_at_once() {
    let isas: Vec<Isa> = [Isa::SCALAR, Isa::best()].into();
    let (send, receive) = mpsc::channel();
    let (mut slow, mut calls, mut reached) = (Vec::new(), 0, 0);
    for &(name, call) in CALLS {
        for parallelism in ["Serial", "Rayon"] {
            for &isa in &isas {
                for sizes in sizes() {
                    let send = send.clone();
                    // A call that does not return keeps its thread until the program ends.
                    std::thread::spawn(move || {
                        let result = std::panic::catch_unwind(move || {
                            let threads = match parallelism {
                                "Rayon" => Parallelism::Rayon,
                                _ => SERIAL,
                            };
                            call(isa, threads, sizes)
                        });
                        let _ = send.send(result.map(|found| found.is_some()).map_err(|_| ()));
                    });
                    calls += 1;
                    match receive.recv_timeout(LIMIT) {
                        Ok(Ok(found)) => reached += usize::from(found),
                        Ok(Err(())) => {
                            slow.push(format!("{name} {isa} {parallelism} {sizes:?}: a panic"))
                        }
                        Err(_) => {
                            slow.push(format!("{name} {isa} {parallelism} {sizes:?}: no answer"))
                        }
                    }
                    if slow.len() > 20 {
                        panic!("{slow:#?}");
                    }
                }
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
    assert!(calls > 3000 && reached > 2000, "{calls} calls, {reached} reached a kernel");
}
