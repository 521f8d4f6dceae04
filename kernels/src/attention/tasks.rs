//! The parameters of one call, and its split into tasks: sequences times heads times blocks of queries. Tasks write
//! disjoint rows of the output.

use super::bias::CheckedBias;
use super::flash::{FlashHead, MIN_QUERY_BLOCK, QUERY_BLOCK, Scores};
use super::head_views::{HeadPtrs, Heads, HeadsMut};
use super::kv_dtype::{KvFormat, with_kv_format};
use super::one_head::{HeadKv, HeadQuery, RowsOut};
use super::options::{AttentionOptions, AttentionWeights, Sequence};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::{Workers, share, work_to_share};
use crate::simd::simd_op;
use crate::softmax::FullyMasked;
use crate::sync_ptr::SharedMut;
use core::ops::Range;

/// Multiply-adds below which a second thread costs more time than it saves.
pub(super) const MIN_WORK_TO_FORK: usize = work_to_share(1 << 18);

/// Chunks of tasks per thread.
const CHUNKS_PER_THREAD: usize = 8;

/// Runs `chunk` on ranges that cover `0..tasks`, on several threads if there is enough work.
pub(super) fn chunked(
    tasks: usize,
    work: usize,
    workers: Workers<'_>,
    chunk: &(dyn Fn(Range<usize>) + Sync),
) {
    let threads = workers.threads();
    if tasks == 0 {
        return;
    }
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return chunk(0..tasks);
    }
    let chunks = tasks.min(threads * CHUNKS_PER_THREAD);
    workers.for_each(chunks, &|index| chunk(share(tasks, chunks, index)));
}

/// Upper bound of the number of tasks of a call on `sequences` sequences, of which the longest has `longest` queries.
/// All other task counts are at most this bound.
///
/// # Errors
/// The number overflows.
pub(super) fn count_tasks(sequences: usize, heads: usize, longest: usize) -> Result<usize, Error> {
    sequences
        .checked_mul(heads)
        .and_then(|pairs| pairs.checked_mul(longest.div_ceil(MIN_QUERY_BLOCK).max(1)))
        .ok_or(Error::TooLarge { operand: "the list of tasks" })
}

/// Multiply-adds of sequences of `(queries, keys)` over `elements` elements of all heads, saturating. It decides the
/// number of threads.
pub(super) fn estimate_work(
    sequences: impl Iterator<Item = (usize, usize)>,
    elements: [usize; 2],
) -> usize {
    sequences
        .map(|(queries, keys)| queries.saturating_mul(keys))
        .fold(0, usize::saturating_add)
        .saturating_mul(elements[0].saturating_mul(elements[1]))
}

/// The checked parameters that all sequences and heads of one call share.
pub(super) struct AttentionParams<'a> {
    pub(super) query: Heads<'a>,
    /// Query heads that read one key-value head.
    pub(super) group: usize,
    pub(super) scale: f32,
    pub(super) causal: bool,
    pub(super) fully_masked: FullyMasked,
    /// The dtype of keys and values.
    pub(super) dtype: Dtype,
    pub(super) bias: Option<CheckedBias<'a>>,
    pub(super) out: HeadPtrs<'a>,
    /// Receives the weights: the data, which the second value does not have any more.
    weights: Option<(SharedMut<'a>, AttentionWeights<'a>)>,
    /// `[query tokens, heads, 2]`: receives the maximum score and the reciprocal of the sum of the weights of each query
    /// and head.
    pub(super) sums: Option<SharedMut<'a>>,
    /// The dropout of weights. There is a sentence for each query token.
    #[cfg(feature = "train")]
    pub(super) dropout: Option<WeightDropout<'a>>,
}

/// The queries, keys and values of a task: the sequence, of which no key is read at `key_start`, and its keys and
/// values.
pub(super) type KvHead = (Sequence, HeadKv);

impl<'a> AttentionParams<'a> {
    /// Keys and values are f32. Sums are not saved, and no weight is dropped.
    pub(super) fn new(
        query: &Heads<'a>,
        kv_heads: usize,
        options: &AttentionOptions<'_>,
        bias: Option<CheckedBias<'a>>,
        out: &'a mut HeadsMut<'_>,
        weights: Option<AttentionWeights<'a>>,
    ) -> Self {
        Self {
            query: *query,
            group: query.heads() / kv_heads,
            scale: options.scale,
            causal: options.causal,
            fully_masked: options.fully_masked,
            dtype: Dtype::F32,
            bias,
            out: out.shared(),
            weights: weights
                .map(|mut weights| (SharedMut::new(core::mem::take(&mut weights.data)), weights)),
            sums: None,
            #[cfg(feature = "train")]
            dropout: None,
        }
    }

    /// The queries of `sequence` in head `head`.
    pub(super) fn head(&self, sequence: &Sequence, head: usize) -> HeadQuery {
        let &Sequence { query_start: start, query_len, key_len, padded_len, .. } = sequence;
        let (first_limit, limit_step) = match self.causal {
            true => (key_len as isize - query_len as isize + 1, 1),
            false => (key_len as isize, 0),
        };
        let weights = self.weights.as_ref().and_then(|(data, weights)| {
            let &AttentionWeights { heads, head_stride, query_stride: row, keys: len, .. } =
                weights;
            let index = heads.iter().position(|&wanted| wanted == head)?;
            let at = data.as_ptr().wrapping_add(index * head_stride + start * row);
            Some(RowsOut { at, row, len })
        });
        let heads = self.query.heads();
        HeadQuery {
            query: self.query.at(start, head),
            query_row: self.query.token_stride(),
            out: self.out.at(start, head),
            out_row: self.out.token_stride(),
            head_dim: self.query.head_dim(),
            scale: self.scale,
            key_len,
            padded_len,
            first_limit,
            limit_step,
            bias: self.bias.map(|bias| bias.rows(head, sequence)),
            fully_masked: self.fully_masked,
            weights,
            sums: self.sums.map(|sums| {
                let at = sums.as_ptr().wrapping_add(2 * (start * heads + head));
                RowsOut { at, row: 2 * heads, len: 2 }
            }),
            #[cfg(feature = "train")]
            drops: self.dropout.and_then(|dropout| dropout.of_head(start, head)),
        }
    }

    /// Computes attention for every block of queries of every head of `sequences` sequences, of which the longest has
    /// `longest` queries. `kv` gives the keys and values of a sequence and a key-value head.
    pub(super) fn run(
        &self,
        isa: Isa,
        (sequences, longest): (usize, usize),
        work: usize,
        workers: Workers<'_>,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
    ) {
        let heads = self.query.heads();
        // Larger blocks read keys and values from the outer caches less often, but each thread needs several tasks. The
        // block size does not change the bits. `count_tasks` has checked the count for the smallest blocks.
        const { assert!(QUERY_BLOCK.is_multiple_of(MIN_QUERY_BLOCK)) };
        let mut block = QUERY_BLOCK;
        while block > MIN_QUERY_BLOCK
            && sequences * heads * longest.div_ceil(block) < 2 * workers.threads()
        {
            block /= 2;
        }
        let blocks = longest.div_ceil(block);
        let tasks = sequences * heads * blocks;
        chunked(tasks, work, workers, &|range| self.run_blocks(isa, kv, (block, blocks), range));
    }

    /// Computes attention for every query of one sequence that reads key-value head `head`.
    pub(super) fn run_head(&self, isa: Isa, head: usize, kv: KvHead) {
        let blocks = kv.0.query_len.div_ceil(QUERY_BLOCK);
        let first = head * self.group * blocks;
        let range = first..first + self.group * blocks;
        self.run_blocks(isa, &|_, _| kv, (QUERY_BLOCK, blocks), range);
    }

    /// A range of `(sequence, head, block of queries)`, with `block` queries in a block and `blocks` blocks for the
    /// longest sequence.
    fn run_blocks(
        &self,
        isa: Isa,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
        (block, blocks): (usize, usize),
        range: Range<usize>,
    ) {
        with_kv_format!(self.dtype, N => {
            isa.dispatch(prefill_blocks::<N>(self, kv, block, blocks, range))
        });
    }
}

simd_op!(
    /// [`AttentionParams::run_blocks`] for one dtype.
    fn prefill_blocks<S: SimdF32, N: KvFormat, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        params: &AttentionParams<'_>,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
        block: usize,
        blocks: usize,
        range: Range<usize>,
    ) {
        let heads = params.query.heads();
        let mut scores = Scores::new();
        for task in range {
            let (pair, index_of_block) = (task / blocks, task % blocks);
            let (index, head) = (pair / heads, pair % heads);
            let (sequence, kv) = kv(index, head / params.group);
            let start = index_of_block * block;
            if start >= sequence.query_len {
                continue;
            }
            let count = (sequence.query_len - start).min(block);
            let head = FlashHead::<N> { query: params.head(&sequence, head), kv: kv.cast() };
            // SAFETY: the entry points checked the views and ranges (`check.rs`). Only this task writes these rows.
            unsafe { head.attend::<S, NV>(s, start, count, &mut scores) };
        }
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    /// A product that wraps around would give few tasks, two of which write the same row.
    #[test]
    fn task_count_overflow_is_rejected() {
        const MAX: usize = usize::MAX;
        let half = 1 << (usize::BITS / 2);
        let block = MIN_QUERY_BLOCK;
        for (sequences, heads, longest) in [
            (half, half, 1),
            (half, half / 2, block + 1),
            (MAX, 2, 0),
            (1, MAX, block + 1),
            (block + 1, 1, MAX),
        ] {
            let found = count_tasks(sequences, heads, longest);
            let expected = Err(Error::TooLarge { operand: "the list of tasks" });
            assert_eq!(found, expected, "{sequences} x {heads} x {longest}");
        }
        assert_eq!(count_tasks(3, 4, 0), Ok(12));
        assert_eq!(count_tasks(3, 4, QUERY_BLOCK), Ok(12 * QUERY_BLOCK / block));
        assert_eq!(count_tasks(0, MAX, MAX), Ok(0));
        assert_eq!(count_tasks(MAX, 1, block), Ok(MAX));
    }

    #[test]
    fn estimated_work_saturates() {
        const MAX: usize = usize::MAX;
        assert_eq!(estimate_work([(2, 3), (4, 5)].into_iter(), [6, 7]), 26 * 42);
        for (sequences, elements) in [
            ([(MAX, MAX), (1, 1)], [1, 1]),
            ([(MAX, 1), (MAX, 1)], [1, 1]),
            ([(1, 1), (1, 1)], [MAX, MAX]),
            ([(1 << (usize::BITS / 2), 1 << (usize::BITS / 2 - 1)), (0, MAX)], [1, 2]),
        ] {
            assert_eq!(estimate_work(sequences.into_iter(), elements), MAX);
        }
    }
}
