//! Where operands are in memory: directly beside inaccessible pages, unaligned, more than 2^31 elements
//! apart, or on top of each other.
use crate::support::batch::{Batch, attend, attend_slot, attend_step, with_bias};
use crate::support::gemm::{Packed, multiply};
use crate::support::*;
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape, Dtype,
    Epilogue, Exec, FullyMasked, Heads, HeadsMut, Matrix, MatrixMut, PackedMatrix, PostOp, Qkv,
    Sequence, attention, attention_scratch, gemm,
};

#[cfg(unix)]
mod guard {
    use super::*;
    use crate::support::Guarded;

    type Wall = fn(&[f32]) -> Guarded;
    const WALLS: [Wall; 2] = [Guarded::at_start, Guarded::at_end];

    #[test]
    fn gemm_stays_between_guard_pages() {
        for isa in all_isas() {
            let mut random = Random::new(16);
            let depths: Vec<usize> = (0..=70).chain([2048, 2049]).collect();
            for (index, depth) in depths.into_iter().enumerate() {
                for rows in [1, 2, 5, 6, 7] {
                    let columns = 1 + (index * 7 + rows * 11) % 140;
                    let a = random.integers(rows * depth, 8);
                    let w = random.integers(depth * columns, 8);
                    let bias = random.integers(columns, 8);
                    let residual = random.integers(rows * columns, 8);
                    let mut results = Vec::new();
                    for wall in WALLS {
                        let (a, w) = (wall(&a), wall(&w));
                        let (bias, residual) = (wall(&bias), wall(&residual));
                        let floats = PackedMatrix::buffer_len(isa, depth, columns).expect("small");
                        let mut packed = wall(&vec![POISON; floats]);
                        let mut c = wall(&vec![POISON; rows * columns]);
                        // Once packed from rows, once from columns.
                        let by_rows = view_matrix(&w, depth, columns);
                        let turned = view_matrix(&w, columns, depth).transposed();
                        PackedMatrix::pack(isa, turned, &mut packed).expect("the length");
                        let packed =
                            PackedMatrix::pack(isa, by_rows, &mut packed).expect("the length");
                        let post_op = PostOp::Add(view_matrix(&residual, rows, columns));
                        let epilogue =
                            Epilogue { bias: Some(&bias), post_op, ..Epilogue::default() };
                        let (a, to) =
                            (view_matrix(&a, rows, depth), view_matrix_mut(&mut c, rows, columns));
                        gemm(a, &packed, &epilogue, to, SERIAL).expect("shapes that fit");
                        results.push(c.to_vec());
                    }
                    assert_eq!(results[0], results[1], "{isa}: {rows} x {columns} x {depth}");
                    assert!(results[0].iter().all(|x| x.is_finite()));
                }
            }
        }
    }

    #[test]
    fn attention_stays_between_guard_pages() {
        for isa in all_isas() {
            for head_dim in [1, 3, 8, 15, 16, 17, 33, 64, 70] {
                for (query_len, key_len) in [(1, 1), (5, 17), (7, 16), (3, 257), (50, 70), (1, 33)]
                {
                    let lens = [(query_len, key_len, 1)];
                    let mut batch = Batch::new(&lens, [2, 1, head_dim], [0, 0, 0], 9);
                    batch.causal = query_len > 1;
                    let heads = [0, 1];
                    let expected = batch.attention(isa, SERIAL).out;
                    let biased =
                        with_bias(batch.clone(), |_, j| if j % 5 == 4 { -1.0 } else { 0.0 });
                    for wall in WALLS {
                        // The value of a padding key is never read, so it has no memory here.
                        let tensors = [&batch.query, &batch.key, &batch.value];
                        let parts = tensors.map(|tensor| wall(&tensor.data));
                        let [query, key, value] =
                            [0, 1, 2].map(|i| view_heads(&parts[i], tensors[i].shape));
                        let floats = attention_scratch(isa, &batch.sequences, 1, head_dim);
                        let mut scratch = wall(&poisoned(floats.expect("small")));
                        let mut out = wall(&poisoned(query_len * 2 * head_dim));
                        let mut weights = wall(&poisoned(2 * query_len * key_len));
                        let bias = wall(&biased.bias.as_ref().expect("a bias").data);
                        let query_stride = key_len + 1;
                        let bias = Bias::Dense { data: &bias, head_stride: 0, query_stride };
                        // The last query at the last key reads the last value, unless it sees keys after its position.
                        let ahead = if batch.causal { 0 } else { query_len - 1 };
                        let distances = wall(&vec![0.25; key_len + ahead]);
                        let relative =
                            Bias::Relative { data: &distances, head_stride: 0, zero: key_len - 1 };
                        for bias in [None, Some(bias), Some(relative)] {
                            let options = AttentionOptions { bias, ..batch.options() };
                            let output = AttentionOutput {
                                weights: Some(AttentionWeights {
                                    data: &mut weights,
                                    heads: &heads,
                                    head_stride: query_len * key_len,
                                    query_stride: key_len,
                                    keys: key_len,
                                }),
                                ..view_heads_mut(&mut out, batch.query.shape).into()
                            };
                            let (qkv, sequences) = (Qkv { query, key, value }, &batch.sequences);
                            attention(
                                Exec::serial(isa),
                                qkv,
                                sequences,
                                &options,
                                output,
                                &mut scratch,
                            )
                            .expect("a fit");
                            assert!(out.iter().chain(&*weights).all(|x| x.is_finite()));
                            if bias.is_none() {
                                assert_eq!(difference(&out, &expected.data), None, "{isa}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_cache_stays_between_guard_pages() {
        let storages = [Dtype::F32, Dtype::F16];
        for (isa, dtype) in all_isas().into_iter().flat_map(|isa| storages.map(|s| (isa, s))) {
            for head_dim in [1, 5, 16, 17, 64] {
                for capacity in [1, 7, 16, 33, 260] {
                    let shape = CacheShape { dtype, ..CacheShape::new(2, capacity, 2, head_dim) };
                    let mut random = Random::new(10);
                    let key = Tensor::filled([capacity, 2, head_dim], 0, &mut random);
                    let value = Tensor::filled([capacity, 2, head_dim], 0, &mut random);
                    let query = random.values(2 * head_dim);
                    for wall in WALLS {
                        let mut data = wall(&poisoned(shape.buffer_len(isa).expect("small")));
                        let mut cache = CacheMut::new(isa, shape, &mut data).expect("the length");
                        let (key, value) = (wall(&key.data), wall(&value.data));
                        let [key, value] =
                            [&key, &value].map(|x| view_heads(x, [capacity, 2, head_dim]));
                        for slot in 0..2 {
                            cache.write(slot, 0, key, value).expect("a place");
                        }
                        let cache = Cache::new(isa, shape, &data).expect("the length");
                        let query = wall(&query);
                        let query = view_heads(&query, [1, 2, head_dim]);
                        let distances = wall(&vec![0.25; capacity]);
                        let relative =
                            Bias::Relative { data: &distances, head_stride: 0, zero: capacity - 1 };
                        for bias in [None, Some(relative)] {
                            let options =
                                AttentionOptions { bias, ..AttentionOptions::new(head_dim) };
                            let mut cached = wall(&poisoned(2 * head_dim));
                            let to = view_heads_mut(&mut cached, [1, 2, head_dim]);
                            attend_slot(query, &cache, (1, capacity), &options, to);
                            let mut stepped = wall(&poisoned(2 * head_dim));
                            let past: Vec<u32> = (0..capacity as u32).map(|j| j / 3 % 2).collect();
                            let to = view_heads_mut(&mut stepped, [1, 2, head_dim]);
                            attend_step(query, &cache, &past, &options, to);
                            assert_eq!(difference(&cached, &stepped), None, "{isa}");
                            assert!(cached.iter().all(|x| x.is_finite()));
                        }
                    }
                }
            }
        }
    }

    /// Two rows more than `2^31` elements apart. The pages between them are never accessed.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn strides_beyond_two_to_the_31() {
        const STRIDE: usize = (1 << 31) + 9;
        const LEN: usize = STRIDE + 64;
        // SAFETY: an anonymous mapping of that many zeros, of which few pages ever exist.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                LEN * 4,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED, "no space in the address space");
        // SAFETY: the mapping is zeroed, has this length, and nothing else uses it.
        let far = unsafe { core::slice::from_raw_parts_mut(map.cast::<f32>(), LEN) };
        let near: Vec<f32> = (1..=24).map(|x| x as f32).collect();
        for isa in all_isas() {
            far[..12].copy_from_slice(&near[..12]);
            far[STRIDE..STRIDE + 12].copy_from_slice(&near[12..]);
            // As A, as W, as keys and as values.
            let dense = view_matrix(&near, 2, 12);
            let expected = multiply(isa, dense, dense.transposed(), SERIAL);
            let distant = Matrix::strided(far, 2, 12, STRIDE, 1).expect("A");
            assert_eq!(multiply(isa, distant, distant.transposed(), SERIAL), expected, "{isa}");

            let run = |tensor: Heads<'_>, out: HeadsMut<'_>| {
                let qkv = Qkv { query: tensor, key: tensor, value: tensor };
                let options = AttentionOptions::new(12);
                attend(isa, qkv, &[Sequence::packed(0, 2)], &options, out, SERIAL).expect("a fit");
            };
            let (mut expected, mut found) = ([0.0; 24], [0.0; 24]);
            let dense = view_heads(&near, [2, 1, 12]);
            run(dense, view_heads_mut(&mut expected, [2, 1, 12]));
            let distant = Heads::strided(far, [2, 1, 12], STRIDE, 12).expect("tokens");
            run(distant, view_heads_mut(&mut found, [2, 1, 12]));
            assert_eq!(found, expected, "{isa}");

            // As the output of both.
            run(dense, HeadsMut::strided(far, [2, 1, 12], STRIDE, 12).expect("space"));
            assert_eq!(far[..12], expected[..12], "{isa}");
            assert_eq!(far[STRIDE..STRIDE + 12], expected[12..], "{isa}");
            let c = MatrixMut::strided(far, 2, 2, STRIDE, 1).expect("C");
            let packed = Packed::new(isa, view_matrix(&near, 2, 12).transposed());
            packed.multiply(view_matrix(&near, 2, 12), &Epilogue::default(), c, SERIAL);
            assert_eq!(far[..2], [650.0, 1586.0], "{isa}");
            assert_eq!(far[STRIDE..STRIDE + 2], [1586.0, 4250.0], "{isa}");
        }
        // SAFETY: the mapping made above, which nothing uses any more.
        unsafe { libc::munmap(map, LEN * 4) };
    }
}

#[test]
fn any_alignment_gives_the_same_bits() {
    let (rows, depth, columns) = (8, 33, 75);
    let mut random = Random::new(31);
    let (a, w) = (random.values(rows * depth), random.values(depth * columns));
    let batch = Batch::new(&[(9, 40, 0)], [1, 1, 16], [0, 0, 0], 31);
    for isa in all_isas() {
        let mut first: Option<(Vec<u32>, Vec<u32>)> = None;
        for shift in 0..16 {
            let shifted = |values: &[f32]| {
                let mut moved = vec![POISON; shift];
                moved.extend(values);
                moved
            };
            let (a, w) = (shifted(&a), shifted(&w));
            let floats = PackedMatrix::buffer_len(isa, depth, columns).expect("small");
            let mut packed = vec![POISON; shift + floats];
            let w = view_matrix(&w[shift..], depth, columns);
            let packed = PackedMatrix::pack(isa, w, &mut packed[shift..]).expect("the length");
            let mut c = vec![POISON; shift + rows * columns];
            let view = view_matrix_mut(&mut c[shift..], rows, columns);
            let a = view_matrix(&a[shift..], rows, depth);
            gemm(a, &packed, &Epilogue::default(), view, SERIAL).expect("a fit");

            let parts = [&batch.query, &batch.key, &batch.value].map(|t| shifted(&t.data));
            let view = |i: usize, tokens: usize| view_heads(&parts[i][shift..], [tokens, 1, 16]);
            let floats = attention_scratch(isa, &batch.sequences, 1, 16).expect("small");
            let mut scratch = vec![POISON; shift + floats];
            let mut out = vec![POISON; shift + 9 * 16];
            let qkv = Qkv { query: view(0, 9), key: view(1, 40), value: view(2, 40) };
            let to = view_heads_mut(&mut out[shift..], [9, 1, 16]).into();
            let (sequences, options) = (&batch.sequences, batch.options());
            attention(Exec::serial(isa), qkv, sequences, &options, to, &mut scratch[shift..])
                .expect("a fit");
            let found = (bits(&c[shift..]), bits(&out[shift..]));
            assert!(*first.get_or_insert(found.clone()) == found, "{isa}: {shift} floats off");
        }
    }
}

#[test]
fn zero_strides_repeat_what_they_point_at() {
    for isa in all_isas() {
        let data: Vec<f32> = (1..=64).map(|x| x as f32).collect();
        let (rows, depth, columns) = (7, 9, 21);
        for (a_strides, w_strides) in
            [((0, 1), (0, 1)), ((1, 0), (1, 0)), ((0, 0), (1, 2)), ((2, 1), (0, 0))]
        {
            let a = Matrix::strided(&data, rows, depth, a_strides.0, a_strides.1).expect("A");
            let w = Matrix::strided(&data, depth, columns, w_strides.0, w_strides.1).expect("W");
            let c = multiply(isa, a, w, SERIAL);
            for i in 0..rows {
                for j in 0..columns {
                    let sum: f32 = (0..depth).map(|k| a.at(i, k) * w.at(k, j)).sum();
                    assert_eq!(c[i * columns + j], sum, "{isa}: {a_strides:?}, {w_strides:?}");
                }
            }
        }
        // One query for all tokens, one key for all heads.
        let mut random = Random::new(36);
        let values = random.values(40);
        let (tokens, heads, head_dim) = (6, 3, 10);
        let shape = [tokens, heads, head_dim];
        let query = Heads::strided(&values, shape, 0, 0).expect("one row");
        let key = Heads::strided(&values, shape, 5, 0).expect("overlapping rows");
        let mut repeated = Batch::new(&[], shape, [0, 0, 0], 0);
        [repeated.query, repeated.key, repeated.value] = [query, key, key].map(Tensor::copy_of);
        repeated.sequences = vec![Sequence::packed(0, tokens)];
        repeated.fully_masked = FullyMasked::Uniform;
        let expected = repeated.attention(isa, SERIAL).out.data;
        let mut out = poisoned(tokens * heads * head_dim);
        let (qkv, sequences) = (Qkv { query, key, value: key }, &repeated.sequences);
        let to = view_heads_mut(&mut out, shape);
        attend(isa, qkv, sequences, &repeated.options(), to, SERIAL).expect("a fit");
        assert_eq!(difference(&out, &expected), None, "{isa}");
    }
}
