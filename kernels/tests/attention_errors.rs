//! Every error of attention: each is reached, each has a text of its own, nothing is written, and nothing
//! panics.

use crate::support::*;
use simdformer_kernels::reference::dtype::stored;
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape,
    CachedSequence, Dtype, Error, Exec, FullyMasked, Heads, HeadsMut, Isa, Qkv, Sequence,
    SlotTable, attention, attention_cached, attention_decode, attention_scratch, reference,
};

const ZEROS: [f32; 4096] = [0.0; 4096];

fn view(tokens: usize, heads: usize, head_dim: usize) -> Heads<'static> {
    view_heads(&ZEROS, [tokens, heads, head_dim])
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
            query: view(6, 4, 8),
            key: view(7, 2, 8),
            value: view(7, 2, 8),
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
        let weights_to = self.weight_heads.map(|heads| AttentionWeights {
            data: &mut weights,
            heads,
            head_stride: self.weight_strides.0,
            query_stride: self.weight_strides.1,
            keys: self.weight_keys,
        });
        let output =
            AttentionOutput { weights: weights_to, ..view_heads_mut(&mut out, self.out).into() };
        let qkv = Qkv { query: self.query, key: self.key, value: self.value };
        let (sequences, options) = (&self.sequences, &self.options);
        let result = attention(Exec::serial(isa), qkv, sequences, options, output, &mut scratch);
        if result.is_err() {
            let all = [&out[..], &weights, &scratch];
            assert!(all.into_iter().all(is_poison), "{result:?}: something was written");
        }
        result
    }
}

type Options = AttentionOptions<'static>;

fn dense(floats: usize, head_stride: usize, query_stride: usize) -> Options {
    let bias = Bias::Dense { data: &ZEROS[..floats], head_stride, query_stride };
    AttentionOptions { bias: Some(bias), ..AttentionOptions::new(8) }
}

fn relative(floats: usize, head_stride: usize, zero: usize) -> Options {
    let bias = Bias::Relative { data: &ZEROS[..floats], head_stride, zero };
    AttentionOptions { bias: Some(bias), ..AttentionOptions::new(8) }
}

fn causal(options: Options) -> Options {
    AttentionOptions { causal: true, ..options }
}

/// Requests the weights of `heads`.
fn ask(
    call: &mut Call<'static>,
    heads: &'static [usize],
    floats: usize,
    strides: (usize, usize),
    keys: usize,
) {
    (call.weight_heads, call.weight_floats) = (Some(heads), floats);
    (call.weight_strides, call.weight_keys) = (strides, keys);
}

/// Two queries and sixteen keys.
fn wide<'c>(call: &'c mut Call<'static>) -> &'c mut Call<'static> {
    (call.query, call.key, call.value) = (view(2, 2, 4), view(16, 2, 4), view(16, 2, 4));
    (call.out, call.options) = ([2, 2, 4], AttentionOptions::new(4));
    call.sequences = vec![Sequence { query_len: 2, ..Sequence::packed(0, 16) }];
    call
}

type Change = fn(&mut Call<'static>);

/// Changes of the correct call that are valid.
const VALID: [Change; 6] = [
    |_| (),
    // Three more heads, two keys behind the query, and three keys ahead of the first of four
    // queries over three keys, unless they are hidden.
    |c| c.options = relative(36, 10, 2),
    |c| c.options = relative(6, 0, 2),
    |c| c.options = causal(relative(33, 10, 2)),
    |c| c.weight_heads = Some(&[3, 1]),
    // Three more heads, five more queries, three keys: the exact length of the bias.
    |c| c.options = dense(3 * 30 + 5 * 5 + 3, 30, 5),
];

/// Changes of the correct call, and the texts of their errors.
const WRONG: &[(Change, &str)] = &[
    (|c| c.out = [5, 4, 8], "shape of output.context: expected [6, 4, 8], found [5, 4, 8]"),
    (|c| c.out = [6, 2, 16], "shape of output.context: expected [6, 4, 8], found [6, 2, 16]"),
    (|c| c.value = view(7, 1, 8), "shape of value: expected [7, 2, 8], found [7, 1, 8]"),
    (|c| c.value = view(7, 2, 9), "shape of value: expected [7, 2, 8], found [7, 2, 9]"),
    (|c| c.value = view(8, 2, 8), "shape of value: expected [7, 2, 8], found [8, 2, 8]"),
    (|c| (c.query, c.out) = (view(6, 4, 7), [6, 4, 7]), "head size of query: expected 8, found 7"),
    (
        |c| (c.query, c.out) = (view(6, 3, 8), [6, 3, 8]),
        "heads of query: expected a multiple of 2, found 3",
    ),
    (
        |c| (c.key, c.value) = (view(7, 0, 8), view(7, 0, 8)),
        "heads of query: expected a multiple of 0, found 4",
    ),
    (|c| c.sequences[1].query_len = 5, "query end of sequence 1: expected at most 6, found 7"),
    (
        |c| c.sequences[1].query_len = usize::MAX,
        "query end of sequence 1: expected at most 6, found MAX",
    ),
    (|c| c.sequences[1].query_start = 1, "query start of sequence 1: expected at least 2, found 1"),
    (
        |c| c.sequences = vec![SECOND, FIRST],
        "query start of sequence 1: expected at least 6, found 0",
    ),
    (|c| c.sequences[1].key_start = 5, "key end of sequence 1: expected at most 7, found 8"),
    (
        |c| c.sequences = vec![Sequence { padded_len: usize::MAX, ..SECOND }],
        "key end of sequence 0: expected at most 7, found MAX",
    ),
    (|c| c.sequences[0].key_len = 5, "valid keys of sequence 0: expected at most 4, found 5"),
    (
        |c| c.options = dense(3 * 30 + 5 * 5 + 2, 30, 5),
        "length of bias: expected at least 118, found 117",
    ),
    (|c| c.options = dense(2, 0, 0), "length of bias: expected at least 3, found 2"),
    (|c| c.options = dense(9, usize::MAX, 1), "the size of a bias or weights overflows"),
    (|c| c.options = relative(35, 10, 2), "length of bias: expected at least 36, found 35"),
    (|c| c.options = relative(5, 0, 2), "length of bias: expected at least 6, found 5"),
    (|c| c.options = causal(relative(32, 10, 2)), "length of bias: expected at least 33, found 32"),
    (
        |c| c.options = relative(90, 10, 1),
        "values before distance 0 of bias: expected at least 2, found 1",
    ),
    (|c| c.options = relative(9, usize::MAX, 2), "the size of bias overflows"),
    (|c| c.options = relative(9, 0, usize::MAX), "the size of bias overflows"),
    (|c| c.weight_heads = Some(&[4]), "head of weights: expected less than 4, found 4"),
    (|c| c.weight_heads = Some(&[7]), "head of weights: expected less than 4, found 7"),
    (|c| ask(c, &[2, 1, 2], 72, (24, 4), 4), "uses in weights of head 2: expected 1, found 2"),
    (|c| ask(c, &[3, 1], 47, (24, 4), 4), "length of weights: expected at least 48, found 47"),
    // Keys without a column.
    (|c| ask(c, &[0], 48, (24, 4), 2), "keys of weights: expected at least 3, found 2"),
    // Rows that overlap.
    (|c| ask(c, &[0], 48, (24, 3), 4), "query stride of weights: expected at least 4, found 3"),
    // Heads that overlap.
    (|c| ask(c, &[0, 1], 48, (23, 4), 4), "head stride of weights: expected at least 24, found 23"),
    (|c| ask(c, &[0, 1], 48, (usize::MAX, 4), 4), "the size of a bias or weights overflows"),
    (
        |c| ask(wide(c), &[0], 4096, (64, 2), 16),
        "query stride of weights: expected at least 16, found 2",
    ),
    (
        |c| ask(wide(c), &[0, 1], 4096, (20, 16), 16),
        "head stride of weights: expected at least 32, found 20",
    ),
    (|c| ask(wide(c), &[0], 4096, (64, 16), 12), "keys of weights: expected at least 16, found 12"),
    (
        |c| ask(wide(c), &[0, 1], 40, (32, 16), 16),
        "length of weights: expected at least 64, found 40",
    ),
    (|c| ask(wide(c), &[2], 4096, (64, 16), 16), "head of weights: expected less than 2, found 2"),
    (
        |c| ask(wide(c), &[1, 1], 4096, (64, 16), 16),
        "uses in weights of head 1: expected 1, found 2",
    ),
];

#[test]
fn every_error_of_attention() {
    for isa in all_isas() {
        let result = |change: Change| {
            let mut call = Call::good();
            change(&mut call);
            call.result(isa)
        };
        for (index, change) in VALID.into_iter().enumerate() {
            assert_eq!(result(change), Ok(()), "{isa}: change {index}");
        }
        for &(change, text) in WRONG {
            let text = text.replace("MAX", &usize::MAX.to_string());
            assert_eq!(result(change).map_err(|error| error.to_string()), Err(text), "{isa}");
        }
        let floats = attention_scratch(isa, &Call::good().sequences, 2, 8).expect("small");
        let short = errors::min_len("scratch", floats, floats - 1);
        assert_eq!(result(|c| c.scratch_less = 1), Err(short), "{isa}");
    }
}

/// A cache of 3 slots of 5 positions, with 2 heads of 8 elements.
const SHAPE: CacheShape = CacheShape::new(3, 5, 2, 8);

const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::F16];

#[test]
fn a_cache_holds_no_bf16() {
    let shape = CacheShape { dtype: Dtype::Bf16, ..SHAPE };
    let error = shape.buffer_len(Isa::best()).expect_err("bf16");
    assert_eq!(error.to_string(), "dtype of the KV cache: expected F32 or F16, found Bf16");
    assert_eq!(Cache::new(Isa::best(), shape, &ZEROS).err(), Some(error));
}

#[test]
fn every_error_of_a_cache() {
    for isa in all_isas() {
        let expected = SHAPE.buffer_len(isa).expect("a small size");
        let mut data = vec![POISON; expected];
        let short = Some(errors::min_len("data", expected, expected - 1));
        assert_eq!(Cache::new(isa, SHAPE, &data[1..]).err(), short);
        assert_eq!(CacheMut::new(isa, SHAPE, &mut data[1..]).err(), short);

        let mut cache = CacheMut::new(isa, SHAPE, &mut data).expect("the length");
        let (good, long) = (view(2, 2, 8), view(3, 2, 8));
        for (slot, position, key, value, text) in [
            (0, 0, view(2, 1, 8), good, "shape of key: expected [2, 2, 8], found [2, 1, 8]"),
            (0, 0, good, view(2, 2, 7), "shape of value: expected [2, 2, 8], found [2, 2, 7]"),
            (0, 0, good, long, "shape of value: expected [2, 2, 8], found [3, 2, 8]"),
            (3, 0, good, good, "slot of the KV cache: expected less than 3, found 3"),
            (0, 4, good, good, "positions of slot 0: expected at most 5, found 6"),
            (0, usize::MAX, good, good, "positions of slot 0: expected at most 5, found MAX"),
        ] {
            let text = text.replace("MAX", &usize::MAX.to_string());
            let found = cache.write(slot, position, key, value);
            assert_eq!(found.map_err(|error| error.to_string()), Err(text));
        }
        let most = (u32::MAX as usize).saturating_add(1).to_string();
        for (slots, positions, value, text) in [
            (&[0, 0][..], &[0, 0][..], long, "shape of value: expected [2, 2, 8], found [3, 2, 8]"),
            (&[0, 9], &[0, 0], good, "slot of the KV cache: expected less than 3, found 9"),
            (&[0, 0], &[0, 5], good, "positions of slot 0: expected at most 5, found 6"),
            (&[0, 0], &[0, u32::MAX], good, "positions of slot 0: expected at most 5, found MOST"),
            (&[0], &[0, 0], good, "length of slots: expected 2, found 1"),
            (&[0, 1], &[0, 0, 0], good, "length of positions: expected 2, found 3"),
        ] {
            let found = cache.append(slots, positions, good, value);
            let text = text.replace("MOST", &most);
            assert_eq!(found.map_err(|error| error.to_string()), Err(text));
        }
        assert!(is_poison(&data), "the cache was written");

        let huge = 1 << (usize::BITS / 2);
        for shape in [
            CacheShape { capacity: usize::MAX, ..SHAPE },
            CacheShape { head_dim: usize::MAX, ..SHAPE },
            CacheShape { head_dim: usize::MAX, capacity: 0, ..SHAPE },
            CacheShape { heads: usize::MAX, ..SHAPE },
            CacheShape { slots: usize::MAX, ..SHAPE },
            CacheShape { slots: huge, capacity: huge, ..SHAPE },
        ] {
            assert_eq!(shape.buffer_len(isa), Err(errors::too_large("the KV cache")), "{shape:?}");
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
        let data = vec![0.0; SHAPE.buffer_len(isa).expect("a small size")];
        let cache = Cache::new(isa, SHAPE, &data).expect("the length");
        let options = AttentionOptions::new(8);
        let fits = CachedSequence { query_start: 0, query_len: 2, slot: 2, key_len: 5 };
        let cached = |query: Heads<'_>, shape: [usize; 3], sequence| {
            let mut out = poisoned(shape.iter().product());
            let to = view_heads_mut(&mut out, shape).into();
            let result = attention_cached(query, &cache, &[sequence], &options, to, SERIAL);
            assert!(result.is_ok() || is_poison(&out), "{result:?}: something was written");
            result.map_err(|error| error.to_string())
        };
        let (query, shape) = (view(2, 4, 8), [2, 4, 8]);
        assert_eq!(cached(query, shape, fits), Ok(()));
        for (query, shape, sequence, text) in [
            (
                query,
                [1, 4, 8],
                fits,
                "shape of output.context: expected [2, 4, 8], found [1, 4, 8]",
            ),
            (view(2, 4, 9), [2, 4, 9], fits, "head size of query: expected 8, found 9"),
            (view(2, 5, 8), [2, 5, 8], fits, "heads of query: expected a multiple of 2, found 5"),
            (
                query,
                shape,
                CachedSequence { slot: 3, ..fits },
                "slot of the KV cache: expected less than 3, found 3",
            ),
            (
                query,
                shape,
                CachedSequence { key_len: 6, ..fits },
                "positions of slot 2: expected at most 5, found 6",
            ),
            (
                query,
                shape,
                CachedSequence { query_start: 1, ..fits },
                "query end of sequence 0: expected at most 2, found 3",
            ),
        ] {
            assert_eq!(cached(query, shape, sequence), Err(text.to_owned()));
        }

        let step = |lens: &[u32], slots: &[u32], stride, options: &AttentionOptions<'_>| {
            let mut out = [POISON; 64];
            let (table, to) = (SlotTable { lens, slots, stride }, view_heads_mut(&mut out, shape));
            let result = attention_decode(query, &cache, table, options, to, SERIAL);
            assert!(result.is_ok() || is_poison(&out), "{result:?}: something was written");
            result.map_err(|error| error.to_string())
        };
        assert_eq!(step(&[3, 5], &[0, 1, 2, 9, 9, 2, 2, 2, 2, 2], 5, &options), Ok(()));
        // Four heads, two rows, five keys.
        assert_eq!(step(&[3, 5], &[0; 10], 5, &dense(40, 10, 5)), Ok(()));
        assert_eq!(step(&[3, 5], &[0; 10], 5, &relative(26, 7, 4)), Ok(()));
        let misplaced = &[0, 0, 0, 0, 0, 1, 1, 3, 1, 1];
        for (lens, slots, stride, options, text) in [
            (&[3][..], &[0; 15][..], 5, options, "length of lens: expected 2, found 1"),
            (&[3, 5, 1], &[0; 15], 5, options, "length of lens: expected 2, found 3"),
            (&[3, 5], &[0; 9], 5, options, "length of slots: expected at least 10, found 9"),
            (&[3, 6], &[0; 20], 6, options, "keys of row 1: expected at most 5, found 6"),
            (&[3, 5], misplaced, 5, options, "slot of key 2: expected less than 3, found 3"),
            (
                &[3, 5],
                &[0; 10],
                5,
                dense(39, 10, 5),
                "length of bias: expected at least 40, found 39",
            ),
            (
                &[3, 5],
                &[0; 10],
                5,
                relative(25, 7, 4),
                "length of bias: expected at least 26, found 25",
            ),
            (
                &[3, 5],
                &[0; 10],
                5,
                relative(4096, 7, 3),
                "values before distance 0 of bias: expected at least 4, found 3",
            ),
        ] {
            assert_eq!(step(lens, slots, stride, &options), Err(text.to_owned()));
        }
        let short = step(&[3, 5], &[0; 9], usize::MAX, &options).expect_err("too short");
        assert!(short.starts_with("length of slots: ") && short.ends_with("found 9"), "{short}");
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
            let qkv = Qkv { query: none, key: none, value: none };
            let sequences = [Sequence::default(); 2];
            let options = AttentionOptions::new(8);
            let result =
                attention(Exec::serial(isa), qkv, &sequences, &options, out.into(), &mut []);
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
            let options = AttentionOptions {
                bias: Some(Bias::Dense { data: &[], head_stride: MAX, query_stride: MAX }),
                fully_masked,
                ..AttentionOptions::new(8)
            };
            let (heads, keys) = (&[0, 1, 2], 0);
            let weights = AttentionWeights {
                data: &mut data,
                heads,
                head_stride: MAX,
                query_stride: MAX,
                keys,
            };
            let context = view_heads_mut(&mut out, [2, 4, 8]);
            let output = AttentionOutput { weights: Some(weights), context };
            let qkv = Qkv { query: view(2, 4, 8), key: none, value: none };
            let sequences = [Sequence { query_len: 2, ..Sequence::default() }];
            let result = attention(Exec::serial(isa), qkv, &sequences, &options, output, &mut []);
            if result.is_ok() {
                assert!(out.iter().all(|&x| x == 0.0), "{isa}: {out:?}");
            }
            assert_eq!(data[0].to_bits(), POISON.to_bits());
        }
        let overflows = Err(errors::too_large("the scratch"));
        let options = AttentionOptions::new(1);
        for (heads, head_dim) in [(MAX, MAX), (1, MAX), (MAX, 1), (2, MAX / 2)] {
            let sequences = [Sequence::packed(0, 3)];
            assert_eq!(attention_scratch(isa, &sequences, heads, head_dim), overflows);
            assert_eq!(options.scratch_bound(isa, 1, 3, heads, head_dim), overflows);
        }
        assert_eq!(attention_scratch(isa, &[], MAX, MAX), Ok(0));
        assert_eq!(options.scratch_bound(isa, MAX, 3, 1, 1), overflows);
        assert_eq!(options.scratch_bound(isa, 1, MAX, 1, 1), overflows);
    }
}

/// More sequences times heads than 32 bits can count. A product that wrapped would give no task at all, or
/// tasks of which two write one row.
#[cfg(target_pointer_width = "32")]
#[test]
fn tasks_beyond_32_bits_are_too_many() {
    let heads = 1 << 20;
    let data = vec![0.5; heads];
    let query = view_heads(&data, [1, heads, 1]);
    let key = view_heads(&data[..1], [1, 1, 1]);
    let options = AttentionOptions::new(1);
    for isa in all_isas() {
        for count in [1 << 12, 5000] {
            let mut out = vec![POISON; heads];
            let mut sequences = vec![Sequence::default(); count - 1];
            sequences.push(Sequence::packed(0, 1));
            let too_many = Err(errors::too_large("the list of tasks"));
            let (qkv, to) =
                (Qkv { query, key, value: key }, view_heads_mut(&mut out, [1, heads, 1]));
            let result = batch::attend(isa, qkv, &sequences, &options, to, SERIAL);
            assert_eq!(result, too_many, "{isa}: {count} sequences");

            let shape = CacheShape::new(1, 1, 1, 1);
            let memory = vec![0.5; shape.buffer_len(isa).expect("small")];
            let cache = Cache::new(isa, shape, &memory).expect("space");
            let mut sequences = vec![CachedSequence::default(); count - 1];
            sequences.push(CachedSequence { query_start: 0, query_len: 1, slot: 0, key_len: 1 });
            let to = view_heads_mut(&mut out, [1, heads, 1]).into();
            let result = attention_cached(query, &cache, &sequences, &options, to, SERIAL);
            assert_eq!(result, too_many, "{isa}: {count} sequences");
            assert!(is_poison(&out), "{isa}: written");
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
    let (query, key) = (view(6, 4, 8), view(7, 2, 8));
    assert_eq!(run(query, key, key, FIRST, 64, 32), Ok(()));
    let less = Sequence { key_len: 5, ..FIRST };
    for (result, text) in [
        (run(query, key, key, FIRST, 63, 32), "length of out: expected 64, found 63"),
        (run(query, key, key, FIRST, 64, 31), "length of weights: expected 32, found 31"),
        (
            run(view(6, 3, 8), key, key, FIRST, 64, 32),
            "heads of query: expected a multiple of 2, found 3",
        ),
        (run(view(6, 4, 9), key, key, FIRST, 64, 32), "head size of query: expected 8, found 9"),
        (
            run(query, key, view(7, 1, 8), FIRST, 64, 32),
            "shape of value: expected [7, 2, 8], found [7, 1, 8]",
        ),
        (
            run(view(1, 4, 8), key, key, FIRST, 64, 32),
            "query end of sequence: expected at most 1, found 2",
        ),
        (
            run(query, view(3, 2, 8), view(3, 2, 8), FIRST, 64, 32),
            "key end of sequence: expected at most 3, found 4",
        ),
        (run(query, key, key, less, 64, 32), "valid keys of sequence: expected at most 4, found 5"),
    ] {
        assert_eq!(result.map_err(|error| error.to_string()), Err(text.to_owned()));
    }
    // With strides of 0 any shape fits the slice.
    let many = usize::MAX / 16 * 2;
    let view = Heads::strided(&ZEROS, [7, many, 8], 0, 0).expect("one head, repeated");
    assert_eq!(run(view, view, view, FIRST, 64, 32), Err(errors::too_large("out")));
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
            Some(errors::overlap("token and head", [token_stride, head_stride]))
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
    let key = view_heads(&numbers, [21, 3, 5]);
    let value = view_heads(&others, [21, 3, 5]);
    for (isa, dtype) in all_isas().into_iter().flat_map(|isa| DTYPES.map(|dtype| (isa, dtype))) {
        let shape = CacheShape { dtype, ..CacheShape::new(2, 21, 3, 5) };
        let mut data = vec![POISON; shape.buffer_len(isa).expect("a small size")];
        let mut cache = CacheMut::new(isa, shape, &mut data).expect("the length");
        cache.write(1, 0, key, value).expect("it fits");
        let cache = cache.as_view();
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
        for (slot, position, head, len, text) in [
            (2, 0, 0, 5, "slot of the KV cache: expected less than 2, found 2"),
            (0, 21, 0, 5, "positions of slot 0: expected at most 21, found 22"),
            (0, usize::MAX, 0, 5, "positions of slot 0: expected at most 21, found MAX"),
            (0, 0, 3, 5, "head of the KV cache: expected less than 3, found 3"),
            (0, 0, 0, 4, "length of out: expected 5, found 4"),
            (0, 0, 0, 2, "length of out: expected 5, found 2"),
        ] {
            let text = text.replace("MAX", &usize::MAX.to_string());
            for read in [Cache::read_key, Cache::read_value] {
                let found = read(&cache, slot, position, head, &mut out[..len]);
                assert_eq!(found.map_err(|error| error.to_string()).as_ref(), Err(&text));
            }
        }
        assert_eq!(out, [7.0; 5]);
    }
}
