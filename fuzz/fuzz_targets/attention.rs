//! Attention with any shape, layout, mask, relative bias and values.
//!
//! Finite results are compared with a softmax in f64 under the documented error bound. Masked and padding
//! keys hold NaN. Three threads give the bits of one, and a sequence alone has the bits that it has in the
//! batch. Nothing outside of the rows of the sequences is written. Views of arbitrary strides and sequences
//! of arbitrary numbers are an error or right.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::wild::WildAttention;
use simdformer_fuzz::{GAP, Rng, Values, pick_isa, pool, same_bits};
use simdformer_kernels::{
    AttentionOptions, Bias, Exec, FullyMasked, Heads, HeadsMut, Isa, Parallelism, Qkv, Sequence,
    attention, attention_scratch,
};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    kv_heads: u8,
    group: u8,
    head_dim: u8,
    lengths: [Lengths; 3],
    sequences: u8,
    pads: [u8; 4],
    causal: bool,
    uniform: bool,
    relative: Relative,
    values: Values,
    threads: u8,
    alone: u8,
    seed: u64,
    wild: WildAttention,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Lengths {
    gap: u8,
    queries: u8,
    keys: u16,
    padding: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Relative {
    None,
    Shared,
    /// A table for each head.
    Each,
    /// The same with some values that hide their keys.
    Hiding,
}

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    case.wild.check_kernel(isa);
    batch(isa, &case);
});

/// `[tokens, heads, head_dim]` with gaps after heads and after tokens.
#[derive(Clone)]
struct Tokens {
    data: Vec<f32>,
    shape: [usize; 3],
    token_stride: usize,
    head_stride: usize,
}

impl Tokens {
    fn new(shape: [usize; 3], pad: u8) -> Self {
        let head_stride = shape[2] + usize::from(pad % 4);
        let token_stride = shape[1] * head_stride + usize::from(pad / 4 % 4);
        Self { data: vec![GAP; shape[0] * token_stride], shape, token_stride, head_stride }
    }

    fn index(&self, token: usize, head: usize, i: usize) -> usize {
        token * self.token_stride + head * self.head_stride + i
    }

    fn at(&self, token: usize, head: usize, i: usize) -> f32 {
        self.data[self.index(token, head, i)]
    }

    fn fill(&mut self, tokens: std::ops::Range<usize>, values: Values, rng: &mut Rng) {
        for token in tokens {
            for head in 0..self.shape[1] {
                for i in 0..self.shape[2] {
                    let index = self.index(token, head, i);
                    self.data[index] = rng.value(values);
                }
            }
        }
    }

    fn view(&self) -> Heads<'_> {
        Heads::strided(&self.data, self.shape, self.token_stride, self.head_stride)
            .expect("a valid view")
    }

    fn view_mut(&mut self) -> HeadsMut<'_> {
        HeadsMut::strided(&mut self.data, self.shape, self.token_stride, self.head_stride)
            .expect("a valid view")
    }
}

fn options(head_dim: usize, causal: bool, uniform: bool) -> AttentionOptions<'static> {
    let fully_masked = if uniform { FullyMasked::Uniform } else { FullyMasked::Zeros };
    AttentionOptions { causal, fully_masked, ..AttentionOptions::new(head_dim) }
}

fn batch(isa: Isa, case: &Case) {
    let kv_heads = 1 + usize::from(case.kv_heads % 3);
    let group = 1 + usize::from(case.group % 3);
    let heads = kv_heads * group;
    let head_dim = usize::from(case.head_dim % 41);
    let mut sequences = Vec::new();
    let (mut query_end, mut key_end) = (0, 0);
    for lengths in case.lengths.iter().take(usize::from(case.sequences % 4)) {
        let sequence = Sequence {
            query_start: query_end + usize::from(lengths.gap % 3),
            query_len: usize::from(lengths.queries % 60),
            key_start: key_end + usize::from(lengths.gap / 3 % 3),
            key_len: usize::from(lengths.keys % 300),
            padded_len: usize::from(lengths.keys % 300) + usize::from(lengths.padding % 9),
        };
        query_end = sequence.query_start + sequence.query_len;
        key_end = sequence.key_start + sequence.padded_len;
        sequences.push(sequence);
    }

    let mut rng = Rng::new(case.seed);
    let mut query = Tokens::new([query_end + 1, heads, head_dim], case.pads[0]);
    let mut key = Tokens::new([key_end + 1, kv_heads, head_dim], case.pads[1]);
    let mut value = Tokens::new([key_end + 1, kv_heads, head_dim], case.pads[2]);
    for sequence in &sequences {
        let queries = sequence.query_start..sequence.query_start + sequence.query_len;
        let keys = sequence.key_start..sequence.key_start + sequence.key_len;
        query.fill(queries, case.values, &mut rng);
        key.fill(keys.clone(), case.values, &mut rng);
        // A row without visible keys averages the padding, too, if `FullyMasked::Uniform` is set.
        let padded = sequence.key_start..sequence.key_start + sequence.padded_len;
        value.fill(if case.uniform { padded } else { keys }, case.values, &mut rng);
    }

    let both = || sequences.iter().filter(|s| s.query_len > 0 && s.key_len > 0);
    let behind = both().map(|s| s.key_len - 1).max().unwrap_or(0);
    let ahead = both().map(|s| s.query_len - 1).max().unwrap_or(0);
    let ahead = if case.causal { 0 } else { ahead };
    // Two floats before those of each head that no query reads.
    let (zero, head_stride) = (behind + 2, behind + ahead + 3);
    let shared = case.relative == Relative::Shared;
    let table: Vec<f32> = (0..head_stride * if shared { 1 } else { heads })
        .map(|at| match rng.bits() {
            _ if at % head_stride < 2 => GAP,
            bits if case.relative == Relative::Hiding && bits % 5 == 0 => f32::NEG_INFINITY,
            _ => rng.value(Values::Moderate),
        })
        .collect();
    let bias =
        Bias::Relative { data: &table, head_stride: if shared { 0 } else { head_stride }, zero };
    let options = AttentionOptions {
        bias: (case.relative != Relative::None).then_some(bias),
        ..options(head_dim, case.causal, case.uniform)
    };
    let untouched = Tokens::new([query_end + 1, heads, head_dim], case.pads[3]);
    let run = |sequences: &[Sequence], parallelism: Parallelism<'_>| {
        let needed = attention_scratch(isa, sequences, kv_heads, head_dim).expect("a small size");
        let mut scratch = vec![GAP; needed];
        let mut out = untouched.clone();
        attention(
            Exec::new(isa, parallelism),
            Qkv { query: query.view(), key: key.view(), value: value.view() },
            sequences,
            &options,
            out.view_mut().into(),
            &mut scratch,
        )
        .expect("shapes that fit");
        out
    };
    let out = run(&sequences, Parallelism::Serial);

    let mut written = vec![false; out.data.len()];
    for sequence in &sequences {
        for i in 0..sequence.query_len {
            for head in 0..heads {
                for d in 0..head_dim {
                    written[out.index(sequence.query_start + i, head, d)] = true;
                }
                check_head(isa, sequence, i, head, group, &options, [&query, &key, &value, &out]);
            }
        }
    }
    for (index, found) in out.data.iter().enumerate() {
        let kept = found.to_bits() == GAP.to_bits();
        assert!(written[index] || kept, "{isa}: memory of no sequence was written");
    }

    if case.threads.is_multiple_of(8) {
        let shared = pool().install(|| run(&sequences, Parallelism::Rayon));
        for (one, three) in out.data.iter().zip(&shared.data) {
            assert!(same_bits(*one, *three), "{isa}: {one:e} on one thread, {three:e} on three");
        }
    }
    if !sequences.is_empty() {
        let sequence = sequences[usize::from(case.alone) % sequences.len()];
        let alone = run(&[sequence], Parallelism::Serial);
        for token in sequence.query_start..sequence.query_start + sequence.query_len {
            for head in 0..heads {
                for d in 0..head_dim {
                    let (many, one) = (out.at(token, head, d), alone.at(token, head, d));
                    assert!(same_bits(many, one), "{isa}: {many:e} in a batch, {one:e} alone");
                }
            }
        }
    }
}

/// Compares one query of one head with a softmax in f64.
fn check_head(
    isa: Isa,
    sequence: &Sequence,
    i: usize,
    head: usize,
    group: usize,
    options: &AttentionOptions<'_>,
    [query, key, value, out]: [&Tokens; 4],
) {
    let token = sequence.query_start + i;
    let head_dim = query.shape[2];
    let visible = if options.causal {
        (i + 1 + sequence.key_len).saturating_sub(sequence.query_len)
    } else {
        sequence.key_len
    };
    let value_of = |j: usize| match options.bias {
        Some(Bias::Relative { data, head_stride, zero }) => {
            data[head * head_stride + zero + j + sequence.query_len - sequence.key_len - i]
        }
        _ => 0.0,
    };
    let hidden = |j: usize| value_of(j) == f32::NEG_INFINITY;
    let uniform = (0..visible).all(hidden) && options.fully_masked == FullyMasked::Uniform;
    let used = if uniform { sequence.padded_len } else { visible };
    let (mut largest_query, mut largest_key, mut largest_value) = (0f64, 0f64, 0f64);
    let mut largest_bias = 0f64;
    let mut finite = true;
    let mut note = |largest: &mut f64, x: f32| {
        *largest = largest.max(f64::from(x).abs());
        finite &= x.is_finite();
    };
    let mut scores = vec![0f64; used];
    for (j, score) in scores.iter_mut().enumerate() {
        if !uniform && hidden(j) {
            *score = f64::NEG_INFINITY;
            continue;
        }
        for d in 0..head_dim {
            note(&mut largest_value, value.at(sequence.key_start + j, head / group, d));
            if !uniform {
                let (q, k) =
                    (query.at(token, head, d), key.at(sequence.key_start + j, head / group, d));
                note(&mut largest_query, q);
                note(&mut largest_key, k);
                *score += f64::from(q) * f64::from(k);
            }
        }
        if !uniform {
            *score = *score * f64::from(options.scale) + f64::from(value_of(j));
            note(&mut largest_bias, value_of(j));
        }
    }
    let scores_reach = head_dim as f64 * f64::from(options.scale) * largest_query * largest_key;
    let limit = f64::from(f32::MAX) / 4.0;
    // When f32 overflows, only the bits are guaranteed.
    if !(finite && scores_reach < limit && largest_value * (used as f64 + 1.0) < limit) {
        return;
    }
    let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // No visible key: zeros.
    let maximum = if maximum == f64::NEG_INFINITY { 0.0 } else { maximum };
    let sum: f64 = scores.iter().map(|score| (score - maximum).exp()).sum();
    let sum = if sum == 0.0 { 1.0 } else { sum };
    let unit = f64::from(f32::EPSILON) / 2.0;
    let bound = 8.0
        * unit
        * (scores_reach + largest_bias + sequence.padded_len as f64 / 8.0 + 8.0)
        * largest_value
        + 1e-30;
    for d in 0..head_dim {
        let expected: f64 = scores
            .iter()
            .enumerate()
            .map(|(j, score)| {
                if *score == f64::NEG_INFINITY {
                    return 0.0;
                }
                let weight = (score - maximum).exp() / sum;
                weight * f64::from(value.at(sequence.key_start + j, head / group, d))
            })
            .sum();
        let found = f64::from(out.at(token, head, d));
        let error = (found - expected).abs();
        assert!(
            error <= bound,
            "{isa} {sequence:?} query {i} head {head} element {d}: {found} instead of {expected}, \
             error {error:e}, bound {bound:e}"
        );
    }
}
