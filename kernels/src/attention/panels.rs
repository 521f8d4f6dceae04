//! The two layouts that attention reads. Keys are in panels of one vector of tokens,
//! `[tokens / LANES][head_dim][LANES]`, which are a packed operand of the GEMM tile. Values are in rows of whole
//! vectors. The elements are f32, or any [`KvElement`] of a cache.

use super::head_views::HeadRows;
use super::kv_dtype::KvElement;
use crate::simd::SimdF32;

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
                    let next = S::LANES.wrapping_mul(stride).wrapping_add(i);
                    prefetch_rows(s, from.wrapping_add(next), stride, S::LANES);
                    N::store_transposed(s, from.add(i), stride, rows, panel.add(i * S::LANES));
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

/// Prefetches a line of each of `rows` rows. The address may be invalid. The elements of one head in each token are too
/// few for the hardware prefetcher.
#[inline(always)]
fn prefetch_rows<S: SimdF32>(s: S, at: *const f32, stride: usize, rows: usize) {
    for row in 0..rows {
        s.prefetch(at.wrapping_add(row.wrapping_mul(stride)));
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
