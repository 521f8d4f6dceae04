//! Attention with int8 products: keys, queries, weights and values are quantized to bytes, within one call. The result has
//! the same bits on every instruction set.
//!
//! ```text
//! center:  k minus the mean of the keys, which the softmax cancels; not under a causal mask
//! query:   scale_q = amax_q / 127         q' = round(q * (127 / amax_q))
//! key:     scale_k = amax_k / 127         k' = round(k * (127 / amax_k))
//! score:   y = f32(q' . k') * scale_k     x = y * (scale_q * scale * log2 e)
//! block:   64 keys from key 0 on          M = an integer, at least the largest x
//! weight:  p = 254.6 * 2^(x - M)          p' = round(p)
//! value:   scale_v of a block and a column, v' = round(v * (127 / amax_v))
//! sums:    o = o 2^(M0 - M1) + f32(p' . v') 2^(M - M1) scale_v
//!          t = t 2^(M0 - M1) + f32(sum of p') 2^(M - M1)
//! result:  o * (1 / t)
//! ```
//!
//! `M0` and `M1` are the largest `M` before and after the block. All of them are integers, so the powers of two are exact, and
//! a sink in one block does not make the weights of other blocks vanish. The sum has the rounded weights, so that 254.6
//! cancels and it is never 0.
//!
//! Rounding may lose many small weights at once. So the sum of the weights before rounding is computed as well. If both
//! sums differ by more than 1/128 of all weights so far, the block is computed again for this query, with two bytes for each
//! weight.
//!
//! Under a causal mask, a query that sees only a part of a block multiplies its weights with the values of that block in
//! f32: a scale of the block would depend on values that it must not see. So the bits of a query never depend on a hidden
//! key or value.
//!
//! Lanes are queries (`simd/int8.rs`), so no maximum and no sum crosses lanes, and each query has its own chain of
//! operations. Scores and weights of a tile of queries and a block of keys are on the stack.
//!
//! * `layout.rs`: where the quantized operands are in the scratch; `quantize.rs` writes them.
//! * `block.rs`: one block of keys for one tile of queries; `tile.rs`: all blocks; `rare_blocks.rs`: what few blocks need.
//!
//! The block against its own maximum and the check of lost weights answer two failures of other kernels: a tail that rounds
//! to zeros while the sum has it (ROCm/aiter#5535), and weights that underflow after a sink (arXiv 2606.06521).

mod block;
mod layout;
mod quantize;
mod rare_blocks;
mod tile;

pub(super) use layout::{scratch, scratch_bound};

use super::head_views::Qkv;
use super::one_head::HeadQuery;
use super::options::{
    AttentionOptions, AttentionOutput, Sequence, check_keys, check_query, check_sequences,
};
use super::tasks::{AttentionParams, MIN_WORK_TO_FORK, chunked, count_tasks};
use crate::error::{Error, Expected};
use crate::float_mode::{DefaultMode, in_default_mode};
use crate::isa::Isa;
use crate::parallel::{Exec, Workers};
use crate::simd::simd_op;
use crate::softmax::FullyMasked;
use crate::sync_ptr::SharedMut;
use block::{Int8Head, TileRows, TileStack};
use core::ops::Range;
use layout::{KvLayout, Shape, aligned, head_words};
use quantize::quantize_head;
use tile::attend_tile;

/// [`attention`](super::attention()) with [`AttentionPrecision::Int8`](super::AttentionPrecision::Int8).
pub(super) fn attend(
    Exec { isa, threads }: Exec<'_>,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    AttentionOutput { mut context, weights }: AttentionOutput<'_>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    if !cfg!(feature = "int8") {
        return Err(Error::NO_INT8);
    }
    let Qkv { query, key, value } = qkv;
    let (kv_heads, head_dim) = (key.heads(), key.head_dim());
    value.check_shape("value", key.shape())?;
    for (operand, found, expected, is_some) in [
        ("options.bias", "a bias", "no bias in int8", options.bias.is_some()),
        ("output.weights", "a buffer", "no weights in int8", weights.is_some()),
    ] {
        if is_some {
            return Err(Error::Unsupported { operand, expected, found });
        }
    }
    check_query(&query, ("output.context", &context), kv_heads, head_dim)?;
    Error::check_size("head size", "query", Expected::AtMost(MAX_HEAD_DIM), head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check_sequences(queries, &query, &[context.as_view()])?;
    check_keys(sequences, &key, &[value])?;
    let expected = options.scratch(isa, sequences, query.heads(), kv_heads, head_dim)?;
    Error::check_min_len("scratch", expected, scratch)?;
    count_tasks(sequences.len(), query.heads(), reach.longest[0])?;
    if query.tokens() == 0 || query.heads() == 0 || head_dim == 0 {
        return Ok(());
    }
    let workers = threads.workers();
    let mut params = AttentionParams::new(&query, kv_heads, options, None, &mut context, None);
    params.scale = in_default_mode(|| options.scale * core::f32::consts::LOG2_E);
    let (shape, scratch) = (Shape::for_isa(isa), SharedMut::new(scratch));
    let call = Call { isa, shape, qkv, sequences, params, scratch };
    call.attend_sequences(reach.longest[0], reach.work, workers);
    Ok(())
}

/// The largest head size: the sum of as many products of bytes fits 32 bits.
const MAX_HEAD_DIM: usize = 1 << 17;

/// Key-value heads per thread from which heads are not split into blocks of queries.
const HEADS_PER_THREAD: usize = 4;

/// Queries of a task where there are few heads: whole tiles on every set.
const QUERIES_PER_TASK: usize = 64;

/// A checked call; no tensor is empty.
struct Call<'a> {
    isa: Isa,
    shape: Shape,
    qkv: Qkv<'a>,
    sequences: &'a [Sequence],
    /// Their scale is that of scores as powers of two.
    params: AttentionParams<'a>,
    scratch: SharedMut<'a>,
}

impl Call<'_> {
    fn attend_sequences(&self, longest: usize, work: usize, workers: Workers<'_>) {
        // This does not overflow: `count_tasks` checked a larger count, with at least one task per query head.
        let tasks = self.sequences.len() * self.kv_heads();
        if workers.threads() == 1 || tasks / workers.threads() >= HEADS_PER_THREAD {
            // One head after the other in the same scratch, so that its keys and values stay in the cache. The scratch of
            // a range is at least as large as that of each of its heads.
            chunked(tasks, work, workers, &|range| {
                let at = self.place(range.start);
                for task in range {
                    self.quantize(task, at);
                    let (sequence, _) = self.split(task);
                    for member in 0..self.params.group {
                        self.attend(task, at, member, 0..sequence.query_len);
                    }
                }
            });
            return;
        }
        let quantizing = if work < MIN_WORK_TO_FORK { Workers::SERIAL } else { workers };
        quantizing.for_each(tasks, &|task| self.quantize(task, self.place(task)));
        let blocks = longest.div_ceil(QUERIES_PER_TASK);
        let per_head = blocks * self.params.group;
        chunked(tasks * per_head, work, workers, &|range| {
            for index in range {
                let (task, part) = (index / per_head, index % per_head);
                let first = part % blocks * QUERIES_PER_TASK;
                let end = self.split(task).0.query_len.min(first + QUERIES_PER_TASK);
                self.attend(task, self.place(task), part / blocks, first..end);
            }
        });
    }

    fn kv_heads(&self) -> usize {
        self.qkv.key.heads()
    }

    /// The sequence and the key-value head of a task.
    fn split(&self, task: usize) -> (Sequence, usize) {
        (self.sequences[task / self.kv_heads()], task % self.kv_heads())
    }

    /// Words of the scratch of a task. They are within the checked scratch.
    fn words(&self, sequence: &Sequence) -> usize {
        head_words(self.shape, sequence, self.params.group, self.qkv.key.head_dim()).unwrap_or(0)
    }

    /// The scratch of a task.
    fn place(&self, task: usize) -> *mut f32 {
        let (index, head) = (task / self.kv_heads(), task % self.kv_heads());
        let before: usize =
            self.sequences[..index].iter().map(|s| self.kv_heads() * self.words(s)).sum();
        let own = head * self.words(&self.sequences[index]);
        aligned(self.scratch.as_ptr()).wrapping_add(before + own)
    }

    fn layout(&self, sequence: &Sequence) -> KvLayout {
        let layout = KvLayout::new(self.shape, sequence.key_len, self.qkv.key.head_dim());
        layout.expect("a size that was computed")
    }

    /// Quantizes the keys and values of a task into the scratch at `at`.
    fn quantize(&self, task: usize, at: *mut f32) {
        let (sequence, head) = self.split(task);
        let Qkv { key, value, .. } = self.qkv;
        let rows = [key, value].map(|heads| heads.rows(sequence.key_start, head));
        let (layout, keys) = (self.layout(&sequence), sequence.key_len);
        let head_dim = self.qkv.key.head_dim();
        // SAFETY: `check_keys` checked that the keys and values exist; the scratch at `at` belongs to this task.
        self.isa.dispatch_bytes(unsafe {
            quantize_head(layout, rows, [keys, head_dim], !self.params.causal, at)
        });
    }

    /// Computes some queries of query head `member` of the group of a task, whose scratch is at `at`.
    fn attend(&self, task: usize, at: *mut f32, member: usize, queries: Range<usize>) {
        let (sequence, kv_head) = self.split(task);
        let Sequence { query_len, key_start, .. } = sequence;
        let (layout, tile) = (self.layout(&sequence), self.shape.tile);
        let query = self.params.head(&sequence, kv_head * self.params.group + member);
        let tile_words = self.shape.tile_words(query.head_dim).expect("a size that was computed");
        let words = layout.len + member * query_len.div_ceil(tile) * tile_words;
        let value = self.qkv.value.rows(key_start, kv_head);
        let head = Int8Head { query, layout, kv: at, value };
        // Limits never decrease from query to query.
        let unseen = queries.clone().take_while(|&row| query.limit(row) == 0).count();
        let seen = queries.start + unseen..queries.end;
        if !seen.is_empty() {
            let rows = |index: usize| TileRows {
                words: at.wrapping_add(words + index * tile_words).cast(),
                first: index * tile,
                count: (query_len - index * tile).min(tile),
            };
            let tiles = seen.start / tile..seen.end.div_ceil(tile);
            // SAFETY: `check_sequences` checked that the queries and outputs exist. Only this task writes these rows and
            // the words of these tiles. The keys and values have been quantized.
            self.isa.dispatch_bytes(unsafe { attend_tiles(&head, tiles, &rows) });
        }
        // After the first tile, which may have written some of them.
        fill_fully_masked(&head, queries.start..seen.start);
    }
}

/// Writes the outputs of queries that see no key: zeros, or the mean of the values.
fn fill_fully_masked(Int8Head { query, value, .. }: &Int8Head, queries: Range<usize>) {
    let _mode = DefaultMode::enter();
    let HeadQuery { out, out_row, head_dim, padded_len, fully_masked, .. } = *query;
    for row in queries {
        for column in 0..head_dim {
            let mut x = 0.0;
            if fully_masked == FullyMasked::Uniform {
                for key in 0..padded_len {
                    // SAFETY: `check_keys` checked that the padded keys exist.
                    x += unsafe { *value.at.wrapping_add(key * value.stride + column) };
                }
                x /= padded_len.max(1) as f32;
            }
            // SAFETY: `check_sequences` checked that the output exists; only this task writes it.
            unsafe { *out.wrapping_add(row * out_row + column) = x };
        }
    }
}

simd_op!(
    /// Computes the tiles that `rows` describes.
    ///
    /// # Safety
    /// That of [`attend_tile`] for each of them.
    unsafe fn attend_tiles<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        head: &Int8Head,
        tiles: Range<usize>,
        rows: &dyn Fn(usize) -> TileRows,
    ) {
        let mut stack = TileStack::new();
        for tile in tiles {
            // SAFETY: the contract of this function.
            b.call_noinline(unsafe { attend_tile(head, rows(tile), &mut stack) });
        }
    }
);
