//! Every error of attention: each is reached, each has a text of its own, nothing is written, and nothing
//! panics.

use crate::support::errors;
use crate::support::{POISON, all_isas};
use simdformer_kernels::reference::dtype::stored;
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape,
    CachedSequence, Dtype, Error, Expected, FullyMasked, Heads, HeadsMut, Isa, Parallelism, Qkv,
    Sequence, SlotTable, attention, attention_cached, attention_decode, attention_scratch,
    attention_scratch_bound, reference,
};
use std::collections::BTreeSet;

const ZEROS: [f32; 4096] = [0.0; 4096];

fn heads(tokens: usize, heads: usize, head_dim: usize) -> Heads<'static> {
    Heads::new(&ZEROS, [tokens, heads, head_dim]).expect("a small tensor")
}

/// A correct call: queries `[6, 4, 8]`, keys and values `[7, 2, 8]`, two sequences.
#[derive(Clone)]
struct Call<'a> {
    query: Heads<'a>,
    key: Heads<'a>,
    value: Heads<'a>,
    sequences: Vec<Sequence>,
    options: AttentionOptions<'a>,
    out: [usize; 3],
    weight_heads: Option<&'a [usize]>,
    weight_floats: usize,
    weight_strides: (usize, usize),
    weight_keys: usize,
    scratch_less: usize,
}

const FIRST: Sequence =
    Sequence { query_start: 0, query_len: 2, key_start: 0, key_len: 3, padded_len: 4 };
const SECOND: Sequence =
    Sequence { query_start: 2, query_len: 4, key_start: 4, key_len: 3, padded_len: 3 };

impl Call<'_> {
    fn good() -> Self {
        Self {
            query: heads(6, 4, 8),
            key: heads(7, 2, 8),
            value: heads(7, 2, 8),
            sequences: vec![FIRST, SECOND],
            options: AttentionOptions::new(8),
            out: [6, 4, 8],
            weight_heads: None,
            weight_floats: 2 * 6 * 4,
            weight_strides: (24, 4),
            weight_keys: 4,
            scratch_less: 0,
        }
    }

    /// The error of the kernel. Panics if the call wrote anything before it failed.
    fn result(&self, isa: Isa) -> Result<(), Error> {
        let heads = (self.key.heads(), self.key.head_dim());
        let floats = attention_scratch(isa, &self.sequences, heads.0, heads.1).unwrap_or(0);
        let mut scratch = vec![POISON; floats.saturating_sub(self.scratch_less)];
        let mut out = vec![POISON; self.out.iter().product()];
        let mut weights = vec![POISON; self.weight_floats];
        let result = attention(
            isa,
            Qkv { query: self.query, key: self.key, value: self.value },
            &self.sequences,
            &self.options,
            AttentionOutput {
                weights: self.weight_heads.map(|heads| AttentionWeights {
                    data: &mut weights,
                    heads,
                    head_stride: self.weight_strides.0,
                    query_stride: self.weight_strides.1,
                    keys: self.weight_keys,
                }),
                ..HeadsMut::new(&mut out, self.out).expect("space").into()
            },
            &mut scratch,
            Parallelism::Serial,
        );
        if result.is_err() {
            for x in out.iter().chain(&weights).chain(&scratch) {
                assert_eq!(x.to_bits(), POISON.to_bits(), "{result:?}: something was written");
            }
        }
        result
    }
}

#[test]
fn every_error_of_attention() {
    let bias = |floats: usize, head_stride, query_stride| {
        let data = &ZEROS[..floats];
        AttentionOptions {
            bias: Some(Bias::Dense { data, head_stride, query_stride }),
            ..AttentionOptions::new(8)
        }
    };
    let relative = |floats: usize, head_stride, zero| AttentionOptions {
        bias: Some(Bias::Relative { data: &ZEROS[..floats], head_stride, zero }),
        ..AttentionOptions::new(8)
    };
    let causal = |options| AttentionOptions { causal: true, ..options };
    let good = Call::good();
    for isa in all_isas() {
        assert_eq!(good.result(isa), Ok(()));
        // Three more heads, two keys behind the query, and three keys ahead of the first of four
        // queries over three keys, unless they are hidden.
        let fits = [relative(36, 10, 2), relative(6, 0, 2), causal(relative(33, 10, 2))];
        for options in fits {
            assert_eq!(Call { options, ..good.clone() }.result(isa), Ok(()));
        }
        assert_eq!(Call { weight_heads: Some(&[3, 1]), ..good.clone() }.result(isa), Ok(()));
        // Three more heads, five more queries, three keys: the exact length of the bias.
        assert_eq!(
            Call { options: bias(3 * 30 + 5 * 5 + 3, 30, 5), ..good.clone() }.result(isa),
            Ok(())
        );
        let floats = attention_scratch(isa, &good.sequences, 2, 8).expect("small");
        let cases: Vec<(Call<'_>, Error)> = vec![
            (
                Call { out: [5, 4, 8], ..good.clone() },
                errors::heads("output.context", [6, 4, 8], [5, 4, 8]),
            ),
            (
                Call { out: [6, 2, 16], ..good.clone() },
                errors::heads("output.context", [6, 4, 8], [6, 2, 16]),
            ),
            (
                Call { value: heads(7, 1, 8), ..good.clone() },
                errors::heads("value", [7, 2, 8], [7, 1, 8]),
            ),
            (
                Call { value: heads(7, 2, 9), ..good.clone() },
                errors::heads("value", [7, 2, 8], [7, 2, 9]),
            ),
            (
                Call { value: heads(8, 2, 8), ..good.clone() },
                errors::heads("value", [7, 2, 8], [8, 2, 8]),
            ),
            (
                Call { query: heads(6, 4, 7), out: [6, 4, 7], ..good.clone() },
                errors::size("head size", "query", Expected::Exactly(8), 7),
            ),
            (
                Call { query: heads(6, 3, 8), out: [6, 3, 8], ..good.clone() },
                errors::size("heads", "query", Expected::MultipleOf(2), 3),
            ),
            (
                Call { key: heads(7, 0, 8), value: heads(7, 0, 8), ..good.clone() },
                errors::size("heads", "query", Expected::MultipleOf(0), 4),
            ),
            (
                Call {
                    sequences: vec![FIRST, Sequence { query_len: 5, ..SECOND }],
                    ..good.clone()
                },
                errors::item("query end", ("sequence", 1), Expected::AtMost(6), 7),
            ),
            (
                Call {
                    sequences: vec![FIRST, Sequence { query_len: usize::MAX, ..SECOND }],
                    ..good.clone()
                },
                errors::item("query end", ("sequence", 1), Expected::AtMost(6), usize::MAX),
            ),
            (
                Call {
                    sequences: vec![FIRST, Sequence { query_start: 1, ..SECOND }],
                    ..good.clone()
                },
                errors::item("query start", ("sequence", 1), Expected::AtLeast(2), 1),
            ),
            (
                Call { sequences: vec![SECOND, FIRST], ..good.clone() },
                errors::item("query start", ("sequence", 1), Expected::AtLeast(6), 0),
            ),
            (
                Call {
                    sequences: vec![FIRST, Sequence { key_start: 5, ..SECOND }],
                    ..good.clone()
                },
                errors::item("key end", ("sequence", 1), Expected::AtMost(7), 8),
            ),
            (
                Call {
                    sequences: vec![Sequence { padded_len: usize::MAX, ..SECOND }],
                    ..good.clone()
                },
                errors::item("key end", ("sequence", 0), Expected::AtMost(7), usize::MAX),
            ),
            (
                Call { sequences: vec![Sequence { key_len: 5, ..FIRST }], ..good.clone() },
                errors::item("valid keys", ("sequence", 0), Expected::AtMost(4), 5),
            ),
            (
                Call { scratch_less: 1, ..good.clone() },
                errors::min_len("scratch", floats, floats - 1),
            ),
            (
                Call { options: bias(3 * 30 + 5 * 5 + 2, 30, 5), ..good.clone() },
                errors::min_len("bias", 118, 117),
            ),
            (Call { options: bias(2, 0, 0), ..good.clone() }, errors::min_len("bias", 3, 2)),
            (
                Call { options: bias(9, usize::MAX, 1), ..good.clone() },
                errors::too_large("a bias or weights"),
            ),
            (
                Call { options: relative(35, 10, 2), ..good.clone() },
                errors::min_len("bias", 36, 35),
            ),
            (Call { options: relative(5, 0, 2), ..good.clone() }, errors::min_len("bias", 6, 5)),
            (
                Call { options: causal(relative(32, 10, 2)), ..good.clone() },
                errors::min_len("bias", 33, 32),
            ),
            (
                Call { options: relative(90, 10, 1), ..good.clone() },
                errors::size("values before distance 0", "bias", Expected::AtLeast(2), 1),
            ),
            (
                Call { options: relative(9, usize::MAX, 2), ..good.clone() },
                errors::too_large("bias"),
            ),
            (
                Call { options: relative(9, 0, usize::MAX), ..good.clone() },
                errors::too_large("bias"),
            ),
            (
                Call { weight_heads: Some(&[4]), ..good.clone() },
                errors::size("head", "weights", Expected::Below(4), 4),
            ),
            (
                Call { weight_heads: Some(&[2, 1, 2]), weight_floats: 72, ..good.clone() },
                errors::item("uses in weights", ("head", 2), Expected::Exactly(1), 2),
            ),
            (
                Call { weight_heads: Some(&[3, 1]), weight_floats: 47, ..good.clone() },
                errors::min_len("weights", 48, 47),
            ),
            (
                // Keys without a column.
                Call { weight_heads: Some(&[0]), weight_keys: 2, ..good.clone() },
                errors::size("keys", "weights", Expected::AtLeast(3), 2),
            ),
            (
                // Rows that overlap.
                Call { weight_heads: Some(&[0]), weight_strides: (24, 3), ..good.clone() },
                errors::size("query stride", "weights", Expected::AtLeast(4), 3),
            ),
            (
                // Heads that overlap.
                Call { weight_heads: Some(&[0, 1]), weight_strides: (23, 4), ..good.clone() },
                errors::size("head stride", "weights", Expected::AtLeast(24), 23),
            ),
            (
                Call {
                    weight_heads: Some(&[0, 1]),
                    weight_strides: (usize::MAX, 4),
                    ..good.clone()
                },
                errors::too_large("a bias or weights"),
            ),
        ];
        let mut messages = BTreeSet::new();
        let mut distinct = BTreeSet::new();
        for (call, expected) in cases {
            assert_eq!(call.result(isa), Err(expected), "{isa}");
            messages.insert(expected.to_string());
            distinct.insert(format!("{expected:?}"));
        }
        assert_eq!(messages.len(), distinct.len(), "every message is distinct: {messages:?}");
    }
}

/// A cache of 3 slots of 5 positions, with 2 heads of 8 elements.
const SHAPE: CacheShape = CacheShape::new(3, 5, 2, 8);

const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::F16];

#[test]
fn a_cache_holds_no_bf16() {
    let shape = CacheShape { dtype: Dtype::Bf16, ..SHAPE };
    let error = shape.len(Isa::best()).expect_err("bf16");
    assert_eq!(error.to_string(), "dtype of the KV cache: expected F32 or F16, found Bf16");
    assert_eq!(Cache::new(Isa::best(), shape, &ZEROS).err(), Some(error));
}

#[test]
fn every_error_of_a_cache() {
    for isa in all_isas() {
        let expected = SHAPE.len(isa).expect("a small size");
        let mut data = vec![POISON; expected];
        let short = Some(errors::min_len("data", expected, expected - 1));
        assert_eq!(Cache::new(isa, SHAPE, &data[1..]).err(), short);
        assert_eq!(CacheMut::new(isa, SHAPE, &mut data[1..]).err(), short);

        let mut cache = CacheMut::new(isa, SHAPE, &mut data).expect("the length");
        let good = heads(2, 2, 8);
        let shape = |operand, found| Err(errors::heads(operand, [2, 2, 8], found));
        assert_eq!(cache.write(0, 0, heads(2, 1, 8), good), shape("key", [2, 1, 8]));
        assert_eq!(cache.write(0, 0, good, heads(2, 2, 7)), shape("value", [2, 2, 7]));
        let tokens = shape("value", [3, 2, 8]);
        assert_eq!(cache.write(0, 0, good, heads(3, 2, 8)), tokens);
        assert_eq!(cache.append(&[0; 2], &[0; 2], good, heads(3, 2, 8)), tokens);
        let slot = |found| Err(errors::size("slot", "the KV cache", Expected::Below(3), found));
        assert_eq!(cache.write(3, 0, good, good), slot(3));
        assert_eq!(cache.append(&[0, 9], &[0, 0], good, good), slot(9));
        let capacity =
            |found| Err(errors::item("positions", ("slot", 0), Expected::AtMost(5), found));
        assert_eq!(cache.write(0, 4, good, good), capacity(6));
        assert_eq!(cache.write(0, usize::MAX, good, good), capacity(usize::MAX));
        assert_eq!(cache.append(&[0, 0], &[0, 5], good, good), capacity(6));
        assert_eq!(
            cache.append(&[0, 0], &[0, u32::MAX], good, good),
            capacity((u32::MAX as usize).saturating_add(1))
        );
        let slots = Err(errors::len("slots", 2, 1));
        assert_eq!(cache.append(&[0], &[0, 0], good, good), slots);
        let positions = Err(errors::len("positions", 2, 3));
        assert_eq!(cache.append(&[0, 1], &[0, 0, 0], good, good), positions);
        assert!(data.iter().all(|x| x.to_bits() == POISON.to_bits()), "the cache was written");

        let huge = 1 << (usize::BITS / 2);
        for shape in [
            CacheShape { capacity: usize::MAX, ..SHAPE },
            CacheShape { head_dim: usize::MAX, ..SHAPE },
            CacheShape { head_dim: usize::MAX, capacity: 0, ..SHAPE },
            CacheShape { heads: usize::MAX, ..SHAPE },
            CacheShape { slots: usize::MAX, ..SHAPE },
            CacheShape { slots: huge, capacity: huge, ..SHAPE },
        ] {
            assert_eq!(shape.len(isa), Err(errors::too_large("the KV cache")), "{shape:?}");
            assert_eq!(
                Cache::new(isa, shape, &ZEROS).err(),
                Some(errors::too_large("the KV cache"))
            );
        }
    }
}

#[test]
fn every_error_of_cached_attention_and_of_decode() {
    for isa in all_isas() {
        let data = vec![0.0; SHAPE.len(isa).expect("a small size")];
        let cache = Cache::new(isa, SHAPE, &data).expect("the length");
        let options = AttentionOptions::new(8);
        let fits = CachedSequence { query_start: 0, query_len: 2, slot: 2, key_len: 5 };
        let cached = |query: Heads<'_>, shape: [usize; 3], sequence| {
            let mut out = vec![POISON; shape.iter().product()];
            let view = HeadsMut::new(&mut out, shape).expect("space");
            let result = attention_cached(
                query,
                &cache,
                &[sequence],
                &options,
                view.into(),
                Parallelism::Serial,
            );
            let untouched = out.iter().all(|x| x.to_bits() == POISON.to_bits());
            assert!(result.is_ok() || untouched, "{result:?}: something was written");
            result
        };
        let query = heads(2, 4, 8);
        let shape = [2, 4, 8];
        assert_eq!(cached(query, shape, fits), Ok(()));
        assert_eq!(
            cached(query, [1, 4, 8], fits),
            Err(errors::heads("output.context", shape, [1, 4, 8]))
        );
        assert_eq!(
            cached(heads(2, 4, 9), [2, 4, 9], fits),
            Err(errors::size("head size", "query", Expected::Exactly(8), 9))
        );
        assert_eq!(
            cached(heads(2, 5, 8), [2, 5, 8], fits),
            Err(errors::size("heads", "query", Expected::MultipleOf(2), 5))
        );
        let slot = |found| errors::size("slot", "the KV cache", Expected::Below(3), found);
        for (sequence, error) in [
            (CachedSequence { slot: 3, ..fits }, slot(3)),
            (
                CachedSequence { key_len: 6, ..fits },
                errors::item("positions", ("slot", fits.slot), Expected::AtMost(5), 6),
            ),
            (
                CachedSequence { query_start: 1, ..fits },
                errors::item("query end", ("sequence", 0), Expected::AtMost(2), 3),
            ),
        ] {
            assert_eq!(cached(query, shape, sequence), Err(error));
        }

        let step = |lens: &[u32], ancestry: &[u32], stride, options: &AttentionOptions<'_>| {
            let mut out = [POISON; 64];
            let view = HeadsMut::new(&mut out, shape).expect("space");
            let result = attention_decode(
                query,
                &cache,
                SlotTable { lens, slots: ancestry, stride },
                options,
                view,
                Parallelism::Serial,
            );
            let untouched = out.iter().all(|x| x.to_bits() == POISON.to_bits());
            assert!(result.is_ok() || untouched, "{result:?}: something was written");
            result
        };
        assert_eq!(step(&[3, 5], &[0, 1, 2, 9, 9, 2, 2, 2, 2, 2], 5, &options), Ok(()));
        for found in [1, 3] {
            let lens = &[3, 5, 1][..found];
            assert_eq!(step(lens, &[0; 15], 5, &options), Err(errors::len("lens", 2, found)));
        }
        assert_eq!(step(&[3, 5], &[0; 9], 5, &options), Err(errors::min_len("slots", 10, 9)));
        assert!(matches!(
            step(&[3, 5], &[0; 9], usize::MAX, &options),
            Err(Error::Size { operand: "slots", found: 9, .. })
        ));
        assert_eq!(
            step(&[3, 6], &[0; 20], 6, &options),
            Err(errors::item("keys", ("row", 1), Expected::AtMost(5), 6))
        );
        assert_eq!(
            step(&[3, 5], &[0, 0, 0, 0, 0, 1, 1, 3, 1, 1], 5, &options),
            Err(errors::item("slot", ("key", 2), Expected::Below(3), 3))
        );
        // Four heads, two rows, five keys.
        let under =
            |bias| step(&[3, 5], &[0; 10], 5, &AttentionOptions { bias: Some(bias), ..options });
        let dense = |floats: usize| Bias::Dense {
            data: &ZEROS[..floats],
            head_stride: 10,
            query_stride: 5,
        };
        assert_eq!(under(dense(40)), Ok(()));
        assert_eq!(under(dense(39)), Err(errors::min_len("bias", 40, 39)));
        let relative =
            |floats: usize, zero| Bias::Relative { data: &ZEROS[..floats], head_stride: 7, zero };
        assert_eq!(under(relative(26, 4)), Ok(()));
        assert_eq!(under(relative(25, 4)), Err(errors::min_len("bias", 26, 25)));
        assert_eq!(
            under(relative(4096, 3)),
            Err(errors::size("values before distance 0", "bias", Expected::AtLeast(4), 3))
        );
    }
}

/// The text names the operand that is wrong.
#[test]
fn messages_name_what_is_wrong() {
    for isa in all_isas() {
        let said = |call: Call<'_>| call.result(isa).expect_err("a misfit").to_string();
        let weights = Call { weight_heads: Some(&[0, 1]), ..Call::good() };
        assert_eq!(
            said(Call { weight_strides: (24, 3), ..weights.clone() }),
            "query stride of weights: expected at least 4, found 3"
        );
        assert_eq!(
            said(Call { weight_strides: (23, 4), ..weights.clone() }),
            "head stride of weights: expected at least 24, found 23"
        );
        assert_eq!(
            said(Call { weight_keys: 2, ..weights.clone() }),
            "keys of weights: expected at least 3, found 2"
        );
        assert_eq!(
            said(Call { weight_floats: 47, ..weights.clone() }),
            "length of weights: expected at least 48, found 47"
        );
        assert_eq!(
            said(Call { weight_heads: Some(&[7]), ..weights }),
            "head of weights: expected less than 4, found 7"
        );

        let data = vec![0.0; SHAPE.len(isa).expect("a small size")];
        let cache = Cache::new(isa, SHAPE, &data).expect("the length");
        let mut key = [POISON; 8];
        let read =
            |head, key: &mut [f32]| cache.read_key(0, 0, head, key).map_err(|e| e.to_string());
        assert_eq!(read(1, &mut key), Ok(()));
        assert_eq!(
            read(2, &mut key),
            Err("head of the KV cache: expected less than 2, found 2".to_owned())
        );
        assert_eq!(read(1, &mut key[1..]), Err("length of out: expected 8, found 7".to_owned()));

        let zero = Bias::Relative { data: &ZEROS, head_stride: 0, zero: 1 };
        let zero = Call {
            options: AttentionOptions { bias: Some(zero), ..AttentionOptions::new(8) },
            ..Call::good()
        };
        assert_eq!(said(zero), "values before distance 0 of bias: expected at least 2, found 1");
    }
}

/// Views without elements may have any strides. Sizes that overflow are errors, not panics.
#[test]
fn absurd_sizes_do_not_panic() {
    const MAX: usize = usize::MAX;
    let empty = |heads, head_dim, token_stride, head_stride| {
        Heads::strided(&ZEROS, [0, heads, head_dim], token_stride, head_stride).expect("no element")
    };
    for isa in all_isas() {
        for (heads, head_dim) in [(1, MAX), (3, MAX), (1, MAX - 1), (MAX, 1), (3, 8)] {
            let none = empty(heads, head_dim, MAX, MAX);
            let out = HeadsMut::strided(&mut [], [0, heads, head_dim], MAX, MAX).expect("none");
            let result = attention(
                isa,
                Qkv { query: none, key: none, value: none },
                &[Sequence::default(); 2],
                &AttentionOptions::new(8),
                out.into(),
                &mut [],
                Parallelism::Serial,
            );
            assert!(
                matches!(result, Ok(()) | Err(Error::TooLarge { .. })),
                "{isa}: {heads} heads of {head_dim}: {result:?}"
            );
        }
        // Queries, and keys of no elements with strides whose product overflows.
        let none = empty(4, 8, MAX, MAX);
        for fully_masked in [FullyMasked::Zeros, FullyMasked::Uniform] {
            let mut out = [POISON; 2 * 4 * 8];
            let mut data = [POISON; 1];
            let result = attention(
                isa,
                Qkv { query: heads(2, 4, 8), key: none, value: none },
                &[Sequence { query_len: 2, ..Sequence::default() }],
                &AttentionOptions {
                    bias: Some(Bias::Dense { data: &[], head_stride: MAX, query_stride: MAX }),
                    fully_masked,
                    ..AttentionOptions::new(8)
                },
                AttentionOutput {
                    weights: Some(AttentionWeights {
                        data: &mut data,
                        heads: &[0, 1, 2],
                        head_stride: MAX,
                        query_stride: MAX,
                        keys: 0,
                    }),
                    ..HeadsMut::new(&mut out, [2, 4, 8]).expect("space").into()
                },
                &mut [],
                Parallelism::Serial,
            );
            if result.is_ok() {
                assert!(out.iter().all(|&x| x == 0.0), "{isa}: {out:?}");
            }
            assert_eq!(data[0].to_bits(), POISON.to_bits());
        }
        for (heads, head_dim) in [(MAX, MAX), (1, MAX), (MAX, 1), (2, MAX / 2)] {
            let sequences = [Sequence::packed(0, 3)];
            assert_eq!(
                attention_scratch(isa, &sequences, heads, head_dim),
                Err(errors::too_large("the scratch"))
            );
            assert_eq!(
                attention_scratch_bound(isa, 1, 3, heads, head_dim),
                Err(errors::too_large("the scratch"))
            );
        }
        assert_eq!(attention_scratch(isa, &[], MAX, MAX), Ok(0));
        assert_eq!(
            attention_scratch_bound(isa, MAX, 3, 1, 1),
            Err(errors::too_large("the scratch"))
        );
        assert_eq!(
            attention_scratch_bound(isa, 1, MAX, 1, 1),
            Err(errors::too_large("the scratch"))
        );
    }
}

/// More sequences times heads than 32 bits can count. A product that wrapped would give no task at all, or
/// tasks of which two write one row.
#[cfg(target_pointer_width = "32")]
#[test]
fn tasks_beyond_32_bits_are_too_many() {
    let heads = 1 << 20;
    let data = vec![0.5; heads];
    let query = Heads::new(&data, [1, heads, 1]).expect("a query");
    let key = Heads::new(&data[..1], [1, 1, 1]).expect("a key");
    let options = AttentionOptions::new(1);
    for isa in all_isas() {
        for count in [1 << 12, 5000] {
            let mut out = vec![POISON; heads];
            let mut sequences = vec![Sequence::default(); count - 1];
            sequences.push(Sequence::packed(0, 1));
            let floats = attention_scratch(isa, &sequences, 1, 1).expect("small");
            let result = attention(
                isa,
                Qkv { query, key, value: key },
                &sequences,
                &options,
                HeadsMut::new(&mut out, [1, heads, 1]).expect("space").into(),
                &mut vec![POISON; floats],
                Parallelism::Serial,
            );
            assert_eq!(
                result,
                Err(errors::too_large("the list of tasks")),
                "{isa}: {count} sequences"
            );

            let shape = CacheShape::new(1, 1, 1, 1);
            let memory = vec![0.5; shape.len(isa).expect("small")];
            let mut sequences = vec![CachedSequence::default(); count - 1];
            sequences.push(CachedSequence { query_start: 0, query_len: 1, slot: 0, key_len: 1 });
            let result = attention_cached(
                query,
                &Cache::new(isa, shape, &memory).expect("space"),
                &sequences,
                &options,
                HeadsMut::new(&mut out, [1, heads, 1]).expect("space").into(),
                Parallelism::Serial,
            );
            assert_eq!(
                result,
                Err(errors::too_large("the list of tasks")),
                "{isa}: {count} sequences"
            );
            assert!(out.iter().all(|x| x.to_bits() == POISON.to_bits()), "{isa}: written");
        }
    }
}

#[test]
fn the_oracle_has_the_errors_of_the_kernel() {
    let options = AttentionOptions::new(8);
    let run = |query, key, value, sequence, out: usize, weights: usize| {
        reference::attention::attention(
            Qkv { query, key, value },
            sequence,
            &options,
            &mut vec![0.0; out],
            &mut vec![0.0; weights],
        )
    };
    let (query, key) = (heads(6, 4, 8), heads(7, 2, 8));
    assert_eq!(run(query, key, key, FIRST, 64, 32), Ok(()));
    for (result, error) in [
        (run(query, key, key, FIRST, 63, 32), errors::len("out", 64, 63)),
        (run(query, key, key, FIRST, 64, 31), errors::len("weights", 32, 31)),
        (
            run(heads(6, 3, 8), key, key, FIRST, 64, 32),
            errors::size("heads", "query", Expected::MultipleOf(2), 3),
        ),
        (
            run(heads(6, 4, 9), key, key, FIRST, 64, 32),
            errors::size("head size", "query", Expected::Exactly(8), 9),
        ),
        (
            run(query, key, heads(7, 1, 8), FIRST, 64, 32),
            errors::heads("value", [7, 2, 8], [7, 1, 8]),
        ),
        (
            run(heads(1, 4, 8), key, key, FIRST, 64, 32),
            errors::size("query end", "sequence", Expected::AtMost(1), 2),
        ),
        (
            run(query, heads(3, 2, 8), heads(3, 2, 8), FIRST, 64, 32),
            errors::size("key end", "sequence", Expected::AtMost(3), 4),
        ),
        (
            run(query, key, key, Sequence { key_len: 5, ..FIRST }, 64, 32),
            errors::size("valid keys", "sequence", Expected::AtMost(4), 5),
        ),
    ] {
        assert_eq!(result, Err(error));
    }
    // With strides of 0 any shape fits the slice.
    let many = usize::MAX / 16 * 2;
    let view = |heads| Heads::strided(&ZEROS, [7, heads, 8], 0, 0).expect("one head, repeated");
    assert_eq!(
        run(view(many), view(many), view(many), FIRST, 64, 32),
        Err(errors::too_large("out"))
    );
    // A bias whose strides lead out of every slice has no element there.
    let bias = Bias::Dense { data: &ZEROS, head_stride: usize::MAX, query_stride: usize::MAX };
    let options = AttentionOptions { bias: Some(bias), ..options };
    assert!(!reference::attention::hidden(FIRST, &options, 0, 0, 0));
    assert!(reference::attention::hidden(FIRST, &options, 3, 1, 0));
    assert_eq!(reference::attention::visible(FIRST, true, usize::MAX), 3);
}

#[test]
fn views_that_exceed_their_slice_are_errors() {
    let mut data = [0.0f32; 48];
    assert!(errors::is_short_view(Heads::new(&data, [3, 3, 6]).err(), 54, 48));
    assert!(errors::is_short_view(HeadsMut::new(&mut data, [3, 3, 6]).err(), 54, 48));
    for (shape, token_stride, head_stride) in [
        ([usize::MAX, 2, 2], 4, 2),
        ([2, usize::MAX, 2], 4, 2),
        ([1, 2, usize::MAX], 4, 2),
        ([2, 2, 2], usize::MAX, 2),
        ([2, 2, 2], 4, usize::MAX),
    ] {
        let found = Heads::strided(&data, shape, token_stride, head_stride).err();
        assert!(errors::is_large_view(found), "{shape:?}");
    }
    assert!(errors::is_large_view(Heads::new(&data, [0, usize::MAX, 2]).err()));
    for (token_stride, head_stride) in [(0, 4), (4, 0), (7, 4), (3, 1), (4, 11), (1, 12)] {
        assert_eq!(
            HeadsMut::strided(&mut data, [3, 2, 4], token_stride, head_stride).err(),
            Some(Error::Overlap { axes: "token and head", strides: [token_stride, head_stride] })
        );
        // The same memory may be read twice.
        assert!(Heads::strided(&data, [3, 2, 4], token_stride, head_stride).is_ok());
    }
    assert!(HeadsMut::strided(&mut data, [3, 2, 4], 8, 4).is_ok());
    assert!(HeadsMut::strided(&mut data, [3, 2, 4], 4, 12).is_ok());
}

#[test]
fn keys_and_values_are_read_back_from_where_they_were_written() {
    let numbers: Vec<f32> = (0..21 * 15).map(|i| i as f32 / 7.0).collect();
    let others: Vec<f32> = numbers.iter().map(|x| -1.0 - x).collect();
    let key = Heads::new(&numbers, [21, 3, 5]).expect("a tensor");
    let value = Heads::new(&others, [21, 3, 5]).expect("a tensor");
    for (isa, dtype) in all_isas().into_iter().flat_map(|isa| DTYPES.map(|dtype| (isa, dtype))) {
        let shape = CacheShape { dtype, ..CacheShape::new(2, 21, 3, 5) };
        let mut data = vec![POISON; shape.len(isa).expect("a small size")];
        let mut cache = CacheMut::new(isa, shape, &mut data).expect("the length");
        cache.write(1, 0, key, value).expect("it fits");
        let cache = cache.read();
        let mut out = [POISON; 5];
        for (position, head) in (0..21).flat_map(|position| [0, 1, 2].map(|head| (position, head)))
        {
            let kept = |of: Heads<'_>| of.row(position, head).expect("a row").to_vec();
            let kept = |of| kept(of).into_iter().map(|x| stored(dtype, x)).collect::<Vec<_>>();
            cache.read_key(1, position, head, &mut out).expect("it is there");
            assert_eq!(out[..], kept(key), "{isa} {dtype:?} {position} {head}");
            cache.read_value(1, position, head, &mut out).expect("it is there");
            assert_eq!(out[..], kept(value), "{isa} {dtype:?} {position} {head}");
        }
        out.fill(7.0);
        let slot = cache.read_key(2, 0, 0, &mut out);
        assert_eq!(slot, Err(errors::size("slot", "the KV cache", Expected::Below(2), 2)));
        let positions = |found| errors::item("positions", ("slot", 0), Expected::AtMost(21), found);
        let capacity = cache.read_key(0, 21, 0, &mut out);
        assert_eq!(capacity, Err(positions(22)));
        let last = cache.read_key(0, usize::MAX, 0, &mut out);
        assert_eq!(last, Err(positions(usize::MAX)));
        let head = cache.read_key(0, 0, 3, &mut out);
        assert_eq!(head, Err(errors::size("head", "the KV cache", Expected::Below(3), 3)));
        let dim = cache.read_key(0, 0, 0, &mut out[1..]);
        assert_eq!(dim, Err(errors::len("out", 5, 4)));
        let value = cache.read_value(0, usize::MAX, 0, &mut out);
        assert_eq!(value, Err(positions(usize::MAX)));
        assert_eq!(cache.read_value(0, 0, 0, &mut out[1..]), Err(errors::len("out", 5, 4)));
        assert_eq!(out, [7.0; 5]);
    }
}
