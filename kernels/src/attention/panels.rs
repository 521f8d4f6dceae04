//! The two layouts that attention reads, and how its tiles read them. Keys are in panels of one vector of tokens,
//! `[tokens / LANES][head_dim][LANES]`, which are a packed operand of the GEMM tile. Values are in rows of whole
//! vectors. The elements are f32, or any [`KvElement`] of a cache. The loops are generic over [`KvFormat`], and each
//! dtype is a separate function where a call enters the kernels.

use super::head_views::HeadRows;
use crate::gemm::{F32Operand, Panels, Rows, Tile, TileOperand, multiply};
use crate::prefetch::{CacheLevel, PerStep, Prefetch, prefetch_rows};
use crate::simd::{MAX_MR, SimdF32};
use core::ops::Range;

/// Elements of a value row: `head_dim` rounded up to whole vectors. On overflow, which is only possible for tensors
/// without tokens, `usize::MAX`.
pub(super) const fn value_row(lanes: usize, head_dim: usize) -> usize {
    match head_dim.checked_next_multiple_of(lanes) {
        Some(row) => row,
        None => usize::MAX,
    }
}

/// Elements of the value rows of `tokens` tokens, or `None` on overflow.
pub(super) fn value_rows(lanes: usize, tokens: usize, head_dim: usize) -> Option<usize> {
    head_dim.checked_next_multiple_of(lanes)?.checked_mul(tokens)
}

/// Elements of the key panels of one head for `tokens` tokens, or `None` on overflow.
pub(super) fn key_panels(lanes: usize, tokens: usize, head_dim: usize) -> Option<usize> {
    tokens.checked_next_multiple_of(lanes)?.checked_mul(head_dim)
}

/// Elements of the key panels and the value rows of one head for `tokens` tokens, or `None` on overflow.
pub(super) fn head_floats(lanes: usize, tokens: usize, head_dim: usize) -> Option<usize> {
    key_panels(lanes, tokens, head_dim)?.checked_add(value_rows(lanes, tokens, head_dim)?)
}

/// Steps between the prefetch of keys or values and their use, for a tile of `rows` queries: the latency of the L2
/// cache and a margin. A step of few rows is short. A tile of one row waits for memory, so it prefetches as far ahead
/// as a share of the L1 cache can hold.
const fn attention_steps(rows: usize) -> usize {
    match rows {
        1 => ONE_QUERY_STEPS,
        2..=4 => 16,
        _ => 8,
    }
}

/// [`attention_steps`] of one query: 32 steps of 4 lines are 8 KiB.
pub(super) const ONE_QUERY_STEPS: usize = 32;

/// An element of a KV cache, and its conversion from f32. Implementations are `#[inline(always)]`.
pub(super) trait KvElement: Copy {
    /// Converts `x`.
    fn from_f32(x: f32) -> Self;
    /// Stores a vector: `count <= LANES` floats from `from`, then zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes of `LANES` elements.
    unsafe fn store<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self);
    /// Stores `count` floats from `from`, `LANES` elements apart.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes of these elements.
    #[inline(always)]
    unsafe fn store_strided<S: SimdF32>(_: S, from: *const f32, count: usize, to: *mut Self) {
        for i in 0..count {
            // SAFETY: the `# Safety` contract of `store_strided` holds.
            unsafe { *to.add(i * S::LANES) = Self::from_f32(*from.add(i)) };
        }
    }
    /// Stores `LANES` consecutive vectors, the transpose of a square of `LANES` rows. It has `rows` rows, at most `LANES`;
    /// the others are zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` floats in each row, `to` for writes of `LANES * LANES` elements.
    unsafe fn store_transposed<S: SimdF32>(s: S, from: HeadRows, rows: usize, to: *mut Self);
}

impl KvElement for f32 {
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    unsafe fn store<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
        // SAFETY: the `# Safety` contract of `KvElement::store` holds; `load_prefix` stops at `count`.
        unsafe {
            let whole = count == S::LANES;
            s.store(to, if whole { s.load(from) } else { s.load_prefix(from, count) });
        }
    }
    #[inline(always)]
    unsafe fn store_transposed<S: SimdF32>(s: S, from: HeadRows, rows: usize, to: *mut Self) {
        // SAFETY: the `# Safety` contract of `KvElement::store_transposed` holds.
        unsafe {
            if rows == S::LANES {
                s.transpose(from.at, from.stride, to, S::LANES);
            } else {
                s.transpose_first(from.at, from.stride, rows, to, S::LANES);
            }
        }
    }
}

/// Fewest tokens for which an incomplete panel is written with a transpose.
const MIN_TRANSPOSED: usize = 3;

/// Writes `tokens` rows of keys, of `head_dim` elements, as positions `position..` of the panels at `to`. If `WHOLE`, it
/// may also write the unused lanes of the last panel.
///
/// # Safety
/// The rows are valid for reads. `to` is valid for the panels of `position + tokens` positions, and no other code
/// accesses those positions, nor the panels if `WHOLE`.
#[inline(always)]
pub(super) unsafe fn write_keys<S: SimdF32, N: KvElement, const WHOLE: bool>(
    s: S,
    key: HeadRows,
    (tokens, head_dim): (usize, usize),
    position: usize,
    to: *mut N,
) {
    let HeadRows { at: first, stride } = key;
    let mut token = 0;
    while token < tokens {
        let at = position + token;
        let panel = to.wrapping_add(at / S::LANES * head_dim * S::LANES);
        let from = first.wrapping_add(token * stride);
        let rows = (tokens - token).min(S::LANES);
        let transposed = rows == S::LANES || (WHOLE && rows >= MIN_TRANSPOSED);
        // SAFETY: the rows exist. Either the panel has no other positions, or the elements of one row are written to its
        // own lane.
        unsafe {
            if at.is_multiple_of(S::LANES) && transposed {
                let mut i = 0;
                while i + S::LANES <= head_dim {
                    if token + rows < tokens {
                        let next = S::LANES.wrapping_mul(stride).wrapping_add(i);
                        // The elements of one head in each token are too few for the hardware prefetcher.
                        let next = (from.wrapping_add(next), stride, S::LANES);
                        prefetch_rows(s, CacheLevel::L1, next, 1);
                    }
                    let square = HeadRows { at: from.add(i), stride };
                    N::store_transposed(s, square, rows, panel.add(i * S::LANES));
                    i += S::LANES;
                }
                for i in i..head_dim {
                    for lane in 0..rows {
                        let x = *from.add(lane * stride + i);
                        *panel.add(i * S::LANES + lane) = N::from_f32(x);
                    }
                }
                token += rows;
            } else {
                N::store_strided(s, from, head_dim, panel.add(at % S::LANES));
                token += 1;
            }
        }
    }
}

/// Rows between the prefetch of a row and its read in [`copy_rows`]. It may be 0: no row is prefetched.
pub(super) const ROWS_AHEAD: usize = 8;

/// Copies `rows` rows of `elements` floats to rows of whole vectors at `to`, `to_row` elements apart, with zeros after
/// their elements.
///
/// # Safety
/// The rows are valid for reads. `to` is valid for as many rows, and no other code accesses them.
#[inline(always)]
pub(super) unsafe fn copy_rows<S: SimdF32, N: KvElement, const AHEAD: usize>(
    s: S,
    from: HeadRows,
    (rows, elements): (usize, usize),
    to: *mut N,
    to_row: usize,
) {
    for index in 0..rows {
        let to = to.wrapping_add(index * to_row);
        let at = from.at.wrapping_add(index * from.stride);
        for i in (0..elements).step_by(S::LANES) {
            if AHEAD > 0 {
                s.prefetch(at.wrapping_add(AHEAD.wrapping_mul(from.stride).wrapping_add(i)));
            }
            // SAFETY: the row exists by the `# Safety` contract of `copy_rows`. The count stops at `elements`, and the
            // row at `to` has whole vectors.
            unsafe { N::store(s, at.add(i), (elements - i).min(S::LANES), to.add(i)) };
        }
    }
}

/// How kernels read one dtype of keys and values. Implementations are `#[inline(always)]`.
pub(super) trait KvFormat: Copy {
    /// An element in memory.
    type KvElement: KvElement;
    /// The operand type of a tile.
    type Operand<S: SimdF32>: TileOperand<
            SimdF32 = S,
            Element = f32,
            Weight = Self::KvElement,
            Vector = S::F32,
            Sum = S::F32,
        >;
    /// The prefetches of [`KvFormat::prefetch_lines`].
    type Lines: Prefetch;
    /// Most rows of a tile of queries. Where a load also converts, taller tiles have no registers for it, and each
    /// height would be compiled once more.
    const MAX_MR: usize;

    fn operand<S: SimdF32>(s: S) -> Self::Operand<S>;
    /// Prefetches `count` vectors of `stream` at each step.
    fn prefetch_panel<S: SimdF32>(panel: Panels<Self::KvElement, 1>, count: usize) -> PerStep;
    /// Prefetches, at each step, as many lines as `count` vectors have. The lines follow each other from `at`, and
    /// vectors are `stride` elements apart. The address may be invalid.
    fn prefetch_lines(at: *const Self::KvElement, count: usize, stride: usize) -> Self::Lines;
}

/// Loads a vector of elements as f32.
///
/// # Safety
/// `from` is valid for reads of `LANES` elements.
#[inline(always)]
pub(super) unsafe fn load<S: SimdF32, N: KvFormat>(s: S, from: *const N::KvElement) -> S::F32 {
    // SAFETY: the `# Safety` contract of `load` holds.
    unsafe { N::operand(s).load(from, 0) }
}

/// `NV` consecutive vectors per step, from `at` on: what a panel that is read line by line prefetches.
#[inline(always)]
pub(super) fn line_by_line<T, S: SimdF32, const NV: usize>(at: *const T) -> Panels<T, 1> {
    Panels::from_ptr(at, NV * S::LANES, S::LANES)
}

/// [`multiply`] of a panel in the L2 cache: a block of keys or values is larger than the L1 cache. Prefetches each
/// line of `panel` some steps before it is used and, at the end, the first steps of `next`, which may be an invalid
/// address.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(super) unsafe fn tile_prefetched<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    rows: Rows<f32>,
    panel: Panels<N::KvElement, 1>,
    next: Panels<N::KvElement, 1>,
) -> Tile<S, MR, NV> {
    let ahead = attention_steps(MR);
    let start = depth.saturating_sub(ahead);
    let first = N::prefetch_panel::<S>(panel.skip(ahead), NV);
    let last = N::prefetch_panel::<S>(next, NV);
    let (rows_left, panel_left) = (rows.skip(start), panel.skip(start));
    // SAFETY: the `# Safety` contract of `tile_prefetched` holds; `start <= depth`.
    unsafe {
        let acc = multiply(N::operand(s), [acc], start, rows, panel, first);
        let [acc] = multiply(N::operand(s), acc, depth - start, rows_left, panel_left, last);
        acc
    }
}

/// `acc[i] += rows[i, k] * panel[k]` for the `steps` `k`, in order: for those before `bounds[i]` if `BEFORE`, else for
/// those from there on. It is for the edge of a mask, where the rows of a tile have different lengths.
///
/// # Safety
/// The operands that are multiplied are valid for reads.
#[inline(always)]
pub(super) unsafe fn add_visible<
    S: SimdF32,
    N: KvFormat,
    const MR: usize,
    const NV: usize,
    const BEFORE: bool,
>(
    s: S,
    acc: &mut Tile<S, MR, NV>,
    steps: Range<usize>,
    rows: Rows<f32>,
    panel: Panels<N::KvElement, 1>,
    bounds: &[usize; MR],
) {
    for k in steps {
        let at = panel.skip(k).at[0];
        for (i, line) in acc.iter_mut().enumerate() {
            if (k < bounds[i]) != BEFORE {
                continue;
            }
            // SAFETY: the `# Safety` contract of `add_visible` holds.
            unsafe {
                let x = s.splat(*rows.skip(k).at.add(i * rows.row));
                for (v, sum) in line.iter_mut().enumerate() {
                    *sum = s.mul_add(x, load::<S, N>(s, at.add(v * panel.vector)), *sum);
                }
            }
        }
    }
}

/// f32.
#[derive(Clone, Copy)]
pub(super) struct F32Kv;

impl KvFormat for F32Kv {
    type KvElement = f32;
    type Operand<S: SimdF32> = F32Operand<S>;
    type Lines = PerStep;
    const MAX_MR: usize = MAX_MR;

    #[inline(always)]
    fn operand<S: SimdF32>(s: S) -> F32Operand<S> {
        F32Operand(s)
    }
    #[inline(always)]
    fn prefetch_panel<S: SimdF32>(panel: Panels<f32, 1>, count: usize) -> PerStep {
        PerStep::new(panel.at[0], panel.step, count, panel.vector)
    }
    #[inline(always)]
    fn prefetch_lines(at: *const f32, count: usize, stride: usize) -> PerStep {
        PerStep::running(at, count, stride)
    }
}
