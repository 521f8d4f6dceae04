//! Random batches for attention, forward and backward.

use super::batch::{Batch, OwnedBias, with_relative_bias};
use super::{Random, brief, full};
use proptest::prelude::*;
use simdformer_kernels::{FullyMasked, Sequence};

/// Batches of every shape, mask and bias, and the seed of their values. `group` is the number of query heads of a
/// key-value head, and `budget` limits the time of the naive oracle.
pub fn batches(
    length: impl Strategy<Value = usize> + Clone,
    groups: &'static [usize],
    budget: usize,
) -> impl Strategy<Value = (Batch, u64)> {
    (
        prop_oneof![4 => 1usize..=70, 1 => prop::sample::select(vec![64usize, 80, 128])],
        (1usize..=3, prop::sample::select(groups)),
        prop::collection::vec((length.clone(), length, 0usize..=9), 0..=4),
        [0usize..=2, 0usize..=2, 0usize..=2],
        (any::<bool>(), 0usize..7, any::<bool>()),
        prop::sample::select(vec![1.0f32, 1.0, 0.25, -1.5, 10.0]),
        any::<u64>(),
    )
        .prop_map(
            move |(head_dim, (kv_heads, group), mut lens, layouts, kind, scale, seed)| {
                let (causal, bias, uniform) = kind;
                let heads = kv_heads * group;
                for (query_len, key_len, padding) in &mut lens {
                    let most = budget / (heads * head_dim * (*key_len + *padding).max(1));
                    *query_len = (*query_len).min(most.max(2));
                }
                let mut batch = Batch::new(&lens, [heads, kv_heads, head_dim], layouts, seed);
                let mut random = Random::new(!seed);
                batch.scale *= scale;
                batch.causal = causal;
                if uniform {
                    // Then the mean includes the padding.
                    batch.fully_masked = FullyMasked::Uniform;
                    for Sequence { key_start, key_len, padded_len, .. } in batch.sequences.clone() {
                        let padding = key_start + key_len..key_start + padded_len;
                        batch.value.fill(padding, || random.value());
                    }
                }
                let batch = match bias {
                    0 => batch,
                    1..=3 => with_dense_bias(batch, bias, &mut random),
                    // Relative biases: finite ones, and some with minus infinity.
                    _ => with_relative_bias(batch, bias == 4, |_, _| {
                        let hidden = bias == 6 && random.below(5) == 0;
                        if hidden { f32::NEG_INFINITY } else { 3.0 * random.value() }
                    }),
                };
                (batch, seed)
            },
        )
}

/// A bias with some minus infinities: one for all heads, one for each head, or one row for all queries.
/// Keys that are hidden from every query become NaN.
fn with_dense_bias(mut batch: Batch, kind: usize, random: &mut Random) -> Batch {
    let keys = batch.sequences.iter().map(|s| s.key_len).max().unwrap_or(0);
    let (tokens, heads) = (batch.query.shape[0], batch.heads());
    let (query_stride, head_stride) = match kind {
        1 => (keys + 2, 0),
        2 => (keys + 1, tokens * (keys + 1) + 3),
        _ => (0, keys),
    };
    let reach = match tokens * keys * heads {
        0 => 0,
        _ => (heads - 1) * head_stride + (tokens - 1) * query_stride + keys,
    };
    let mut data: Vec<f32> = (0..reach)
        .map(|_| if random.below(5) == 0 { f32::NEG_INFINITY } else { 3.0 * random.value() })
        .collect();
    for hidden in [3, 8, 16, 256, 257].into_iter().filter(|&hidden| hidden < keys) {
        for (head, token) in (0..heads).flat_map(|head| (0..tokens).map(move |i| (head, i))) {
            data[head * head_stride + token * query_stride + hidden] = f32::NEG_INFINITY;
        }
        // A uniform mean would include such a key.
        if batch.fully_masked == FullyMasked::Zeros {
            for sequence in batch.sequences.iter().filter(|sequence| hidden < sequence.key_len) {
                let token = sequence.key_start + hidden..sequence.key_start + hidden + 1;
                batch.key.fill(token.clone(), || f32::NAN);
                batch.value.fill(token, || f32::INFINITY);
            }
        }
    }
    batch.bias = Some(OwnedBias::dense(data, head_stride, query_stride));
    batch
}

/// Every head size up to 70 and some beyond, without and with a causal mask.
pub fn head_sizes() -> impl Iterator<Item = (usize, bool)> {
    let sizes = (1..=70).chain([80, 96, 128, 129, 200]);
    sizes.flat_map(|head_dim| [(head_dim, false), (head_dim, true)])
}

/// All pairs of lengths, with or without a causal mask, in a full run with both: the places of both lengths, the lengths
/// of the query and of the keys, and whether the mask is causal.
pub fn pairs_of_lengths(lengths: &[usize]) -> impl Iterator<Item = ([usize; 2], [usize; 2], bool)> {
    let places = (0..lengths.len()).flat_map(|i| (0..lengths.len()).map(move |j| [i, j]));
    places.filter(|[i, j]| !brief() || (i + j).is_multiple_of(5)).flat_map(move |[i, j]| {
        [false, true]
            .into_iter()
            .filter(move |&causal| full() || brief() || causal == (i + j).is_multiple_of(2))
            .map(move |causal| ([i, j], [lengths[i], lengths[j]], causal))
    })
}
