//! An additive bias that was checked against the sequences of a call.
//!
//! Both kinds of bias give each query a row of values, in which key `j` has element `j`. The rows of a dense bias are a
//! stride apart. The rows of a relative bias overlap: each begins one element *before* that of the previous query. The
//! inner loops use a pointer and a signed stride.

use super::options::{AttentionOptions, AttentionPrecision, Bias, Reach, Sequence};
use crate::error::{Error, Expected};
use crate::simd::{MAX_LANES, SimdF32};

/// `score + bias`, and minus infinity where the bias [`hides`] the key.
#[inline(always)]
fn biased<S: SimdF32>(s: S, score: S::F32, bias: S::F32) -> S::F32 {
    let hidden = s.less(bias, s.splat(f32::MIN));
    s.select(hidden, s.splat(f32::NEG_INFINITY), s.add(score, bias))
}

/// A bias that has a value for every head, query and key of a call.
#[derive(Clone, Copy)]
pub(super) struct CheckedBias<'a> {
    bias: Bias<'a>,
    /// Values up to the last one that the call may use.
    #[cfg_attr(not(feature = "train"), allow(dead_code, reason = "the length of its gradient"))]
    pub(super) len: usize,
    /// Whether a value may hide a key.
    pub(super) hides: bool,
}

impl<'a> CheckedBias<'a> {
    /// The bias of a call with f32 products. `None` if there is no bias, or no score to add it to. In the second case its
    /// strides may be anything.
    pub(super) fn new(options: &AttentionOptions<'a>, reach: Reach) -> Result<Option<Self>, Error> {
        if options.precision != AttentionPrecision::F32 {
            let (operand, found) = ("options.precision", "int8");
            return Err(Error::Unsupported { operand, expected: "f32", found });
        }
        match options.bias {
            None => Ok(None),
            Some(bias @ Bias::Dense { data, head_stride, query_stride }) => {
                let [_, keys] = reach.longest;
                let len = reach.floats(reach.heads, head_stride, query_stride, keys)?;
                Error::check_min_len("bias", len, data)?;
                // A search for hiding values would take a large part of the time of attention, so assume that there are
                // some.
                Ok((len > 0).then_some(Self { bias, len, hides: true }))
            }
            Some(bias @ Bias::Relative { data, head_stride, zero }) => {
                let [queries, keys] = reach.longest_scored;
                if reach.heads == 0 || keys == 0 {
                    return Ok(None);
                }
                // The last query is at the last key. A first query at a position before key 0 still has keys ahead of
                // it.
                let (behind, ahead) = (keys - 1, if options.causal { 0 } else { queries - 1 });
                let keys_before = Expected::AtLeast(behind);
                Error::check_size("values before distance 0", "bias", keys_before, zero)?;
                let len = (reach.heads - 1)
                    .checked_mul(head_stride)
                    .and_then(|last| last.checked_add(zero)?.checked_add(ahead)?.checked_add(1))
                    .ok_or(Error::TooLarge { operand: "bias" })?;
                Error::check_min_len("bias", len, data)?;
                let hides = (0..reach.heads).any(|head| {
                    let at = head * head_stride + zero;
                    data[at - behind..=at + ahead].iter().fold(false, |any, &x| any | hides(x))
                });
                Ok(Some(Self { bias, len, hides }))
            }
        }
    }

    /// The bias of the queries of `sequence` in head `head`.
    #[inline(always)]
    pub(super) fn rows(&self, head: usize, sequence: &Sequence) -> BiasRows {
        let &Sequence { query_start, query_len, key_len, .. } = sequence;
        let hides = self.hides;
        match self.bias {
            Bias::Dense { data, head_stride, query_stride } => {
                let at = head * head_stride + query_start * query_stride;
                let (at, row) = (data.as_ptr().wrapping_add(at), query_stride as isize);
                BiasRows { at, row, hides, whole: false }
            }
            Bias::Relative { data, head_stride, zero } => {
                // The position of query 0 is `key_len - query_len`.
                let zero = head * head_stride + zero;
                let at = data.as_ptr().wrapping_add(zero);
                let at = at.wrapping_add(query_len).wrapping_sub(key_len);
                // Query 0 reads farthest: from key 0, which is `key_len - query_len` before its own position, to the
                // end of the vector of the last key.
                let end = key_len
                    .checked_next_multiple_of(MAX_LANES)
                    .and_then(|keys| keys.checked_add(query_len)?.checked_add(zero))
                    .map(|end| end.saturating_sub(key_len));
                let whole = !hides && end.is_some_and(|end| end <= data.len());
                BiasRows { at, row: -1, hides, whole }
            }
        }
    }
}

/// The additive bias of a head: that of query `i` and key `j` is `at[i * row + j]`.
#[derive(Clone, Copy)]
pub(super) struct BiasRows {
    pub(super) at: *const f32,
    pub(super) row: isize,
    /// Whether the bias may hide keys.
    pub(super) hides: bool,
    /// Whether the bias hides no key, and whole vectors may be read if a query of a tile sees one of their keys.
    pub(super) whole: bool,
}

impl BiasRows {
    /// Address of the bias of query `row` and key `key`.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, key: usize) -> *const f32 {
        self.at.wrapping_offset(row as isize * self.row).wrapping_add(key)
    }

    /// The scores of query `row` and the `count` keys from `key`, plus their biases. The other lanes may have any
    /// value.
    ///
    /// # Safety
    /// Query `row` sees these keys, or a query of its tile sees the first of them.
    #[inline(always)]
    pub(super) unsafe fn add_to<S: SimdF32>(
        &self,
        s: S,
        scores: S::F32,
        (row, key): (usize, usize),
        count: usize,
    ) -> S::F32 {
        let at = self.at(row, key);
        if self.whole {
            // SAFETY: `whole` allows whole vectors to be read here. Callers mask the lanes of keys that the query does
            // not see.
            return s.add(scores, unsafe { s.load(at) });
        }
        // SAFETY: `CheckedBias` ensures a value for every key that the query sees.
        let bias = unsafe { s.load_prefix(at, count) };
        if self.hides { biased(s, scores, bias) } else { s.add(scores, bias) }
    }
}

/// Whether a bias hides its key for every score.
#[inline(always)]
pub(super) fn hides(bias: f32) -> bool {
    bias < f32::MIN
}
