//! The two layouts that attention reads. Keys are in panels of one vector of tokens,
//! `[tokens / LANES][head_dim][LANES]`, which are a packed operand of the GEMM tile. Values are in rows of whole
//! vectors. The elements are f32, or any [`KvElement`] of a cache.

use super::head_views::Heads;
use super::kv_dtype::KvElement;
use crate::simd::{MAX_LANES, SimdF32};

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

/// Writes tokens `tokens` of `key` as positions `position..` of the panels at `to`.
///
/// # Safety
/// The tokens and the head exist in `key`, in one batch element. `to` is valid for the panels of `position +
/// tokens.len()` positions, and no other code accesses those positions.
#[inline(always)]
pub(super) unsafe fn write_keys<S: SimdF32, N: KvElement>(
    s: S,
    key: &Heads<'_>,
    head: usize,
    tokens: core::ops::Range<usize>,
    position: usize,
    to: *mut N,
) {
    let head_dim = key.head_dim();
    let stride = key.token_stride();
    let mut token = tokens.start;
    while token < tokens.end {
        let at = position + (token - tokens.start);
        let panel = to.wrapping_add(at / S::LANES * head_dim * S::LANES);
        let from = key.at(token, head);
        // SAFETY: either all tokens of a panel exist, or the elements of one token are written to its own lane.
        unsafe {
            if at.is_multiple_of(S::LANES) && tokens.end - token >= S::LANES {
                let mut i = 0;
                while i + S::LANES <= head_dim {
                    let next = S::LANES.wrapping_mul(stride).wrapping_add(i);
                    prefetch_rows(s, from.wrapping_add(next), stride, S::LANES);
                    N::store_transposed(s, from.add(i), stride, panel.add(i * S::LANES));
                    i += S::LANES;
                }
                for i in i..head_dim {
                    for lane in 0..S::LANES {
                        let x = *from.add(lane * stride + i);
                        *panel.add(i * S::LANES + lane) = N::from_f32(x);
                    }
                }
                token += S::LANES;
            } else {
                N::store_strided(s, from, head_dim, panel.add(at % S::LANES));
                token += 1;
            }
        }
    }
}

/// Fewest tokens for which an incomplete panel is written with a transpose.
const MIN_TRANSPOSED: usize = 3;

/// [`write_keys`] of all tokens of a head. It may also write the unused lanes of the last panel.
///
/// # Safety
/// As [`write_keys`], for whole panels that no other code accesses.
#[inline(always)]
pub(super) unsafe fn write_all_keys<S: SimdF32>(
    s: S,
    key: &Heads<'_>,
    head: usize,
    tokens: core::ops::Range<usize>,
    to: *mut f32,
) {
    let (head_dim, stride) = (key.head_dim(), key.token_stride());
    let rest = tokens.len() % S::LANES;
    let whole = tokens.start..if rest < MIN_TRANSPOSED { tokens.end } else { tokens.end - rest };
    let to_rest = to.wrapping_add(whole.len() * head_dim);
    let from = key.at(whole.end, head);
    // SAFETY: the `# Safety` contract of `write_all_keys` holds.
    unsafe { write_keys(s, key, head, whole, 0, to) };
    if rest < MIN_TRANSPOSED {
        return;
    }
    let mut square = [0.0; MAX_LANES * MAX_LANES];
    let mut i = 0;
    while i < head_dim {
        let count = (head_dim - i).min(S::LANES);
        for row in 0..rest {
            // SAFETY: the token exists by the `# Safety` contract of `write_all_keys`, and `load_prefix` stops after
            // `count` elements.
            unsafe {
                let x = s.load_prefix(from.wrapping_add(row * stride + i), count);
                s.store(square.as_mut_ptr().add(row * S::LANES), x);
            }
        }
        let to = to_rest.wrapping_add(i * S::LANES);
        if count == S::LANES {
            // SAFETY: `square` has `LANES` rows, and the panel has as many lines here.
            unsafe { s.transpose(square.as_ptr(), S::LANES, to, S::LANES) };
        } else {
            let mut transposed = [0.0; MAX_LANES * MAX_LANES];
            // SAFETY: both squares have `LANES` rows, and the panel has `count` lines here.
            unsafe {
                s.transpose(square.as_ptr(), S::LANES, transposed.as_mut_ptr(), S::LANES);
                to.copy_from_nonoverlapping(transposed.as_ptr(), count * S::LANES);
            }
        }
        i += S::LANES;
    }
}

/// Rows between the prefetch of a value row and its read.
const PREFETCH_DISTANCE: usize = 8;

/// Prefetches a line of each of `rows` rows. The address may be invalid. The elements of one head in each token are too
/// few for the hardware prefetcher.
#[inline(always)]
fn prefetch_rows<S: SimdF32>(s: S, at: *const f32, stride: usize, rows: usize) {
    for row in 0..rows {
        s.prefetch(at.wrapping_add(row.wrapping_mul(stride)));
    }
}

/// Writes tokens `tokens` of `value` as rows at `to`.
///
/// # Safety
/// The tokens and the head exist in `value`, in one batch element. `to` is valid for as many rows, and no other code
/// accesses them.
#[inline(always)]
pub(super) unsafe fn write_values<S: SimdF32, N: KvElement>(
    s: S,
    value: &Heads<'_>,
    head: usize,
    tokens: core::ops::Range<usize>,
    to: *mut N,
) {
    let head_dim = value.head_dim();
    let row = value_row(S::LANES, head_dim);
    let first = value.at(tokens.start, head);
    for index in 0..tokens.len() {
        let from = first.wrapping_add(index * value.token_stride());
        let to = to.wrapping_add(index * row);
        let mut i = 0;
        while i < head_dim {
            let next = PREFETCH_DISTANCE.wrapping_mul(value.token_stride()).wrapping_add(i);
            prefetch_rows(s, from.wrapping_add(next), 0, 1);
            // SAFETY: the tokens exist by the `# Safety` contract of `write_values`. The count stops at `head_dim`, and
            // the row has whole vectors.
            unsafe { N::store(s, from.add(i), (head_dim - i).min(S::LANES), to.add(i)) };
            i += S::LANES;
        }
    }
}
