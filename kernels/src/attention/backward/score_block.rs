//! One block of queries of one head against one block of keys. Its operands are in the workspace of a task.

use super::workspace::{ROW_SUMS, WEIGHTS_ROW};
use crate::attention::head_views::HeadRows;
use crate::attention::one_head::HeadQuery;
use crate::simd::SimdF32;

/// Addresses of the operands of a block.
#[derive(Clone, Copy)]
pub(super) struct ScoreBlock {
    /// The head. Its output is the gradient of its queries.
    pub(super) head: HeadQuery,
    /// The first key and the number of keys.
    pub(super) key: usize,
    pub(super) keys: usize,
    /// The first query and the number of queries.
    pub(super) query: usize,
    pub(super) queries: usize,
    /// Row length of keys and values in the workspace.
    pub(super) row: usize,
    /// Panels and rows, from key `key`.
    pub(super) key_panels: *const f32,
    pub(super) value_panels: *const f32,
    pub(super) key_rows: HeadRows,
    /// Rows from query `query`.
    pub(super) query_rows: HeadRows,
    pub(super) d_context: HeadRows,
    /// Lines from query `query`.
    pub(super) weights: *mut f32,
    pub(super) d_scores: *mut f32,
    pub(super) sums: *const f32,
    /// Rows from key `key`: sums over the queries so far.
    pub(super) d_key: *mut f32,
    pub(super) d_value: *mut f32,
    /// The gradient of the bias, if it is requested: that of key `j` and query `i` of the head is `table[j - i]`.
    pub(super) table: Option<*mut f32>,
}

/// Softmax sums of a query.
#[derive(Clone, Copy)]
pub(super) struct RowSums {
    /// The value that is subtracted from the scores.
    pub(super) base: f32,
    /// The reciprocal of the sum of the weights; 0 for a fully masked query, and for no other.
    pub(super) inverse: f32,
    /// The dot product of the context with its gradient, if not [`ScoreBlock::sees_all`].
    pub(super) dot: f32,
}

impl ScoreBlock {
    /// Keys of this block that query `local` of it sees.
    #[inline(always)]
    pub(super) fn seen(&self, local: usize) -> usize {
        self.head.limit(self.query + local).saturating_sub(self.key).min(self.keys)
    }

    /// The first query of this block that sees key `local` of it, or the number of queries if none does.
    #[inline(always)]
    pub(super) fn first_query(&self, local: usize) -> usize {
        if self.head.limit_step == 0 {
            return 0;
        }
        let first = (self.key + local + 1) as isize - self.head.first_limit - self.query as isize;
        (first.max(0) as usize).min(self.queries)
    }

    /// Whether this block contains all keys that query `local` and the queries before it see. Then sums over their own
    /// weights replace the dot products with their contexts.
    #[inline(always)]
    pub(super) fn sees_all(&self, local: usize) -> bool {
        self.key == 0 && self.head.limit(self.query + local) <= self.keys
    }

    /// The softmax sums of query `local`.
    ///
    /// # Safety
    /// The block has this query, and its sums are written.
    #[inline(always)]
    pub(super) unsafe fn row_sums(&self, local: usize) -> RowSums {
        // SAFETY: the `# Safety` contract of `row_sums` holds.
        unsafe {
            let at = self.sums.add(local * ROW_SUMS);
            RowSums { base: *at, inverse: *at.add(1), dot: *at.add(2) }
        }
    }

    /// The weights of query `local`.
    #[inline(always)]
    pub(super) fn weights_of(&self, local: usize) -> *mut f32 {
        self.weights.wrapping_add(local * WEIGHTS_ROW)
    }

    /// The gradients of the scores of query `local`.
    #[inline(always)]
    pub(super) fn d_scores_of(&self, local: usize) -> *mut f32 {
        self.d_scores.wrapping_add(local * WEIGHTS_ROW)
    }

    /// Factor of the gradient of query `local` after this block: the scale for the block with the last key that the
    /// query sees, else 1.
    #[inline(always)]
    pub(super) fn query_factor(&self, local: usize) -> f32 {
        let limit = self.head.limit(self.query + local);
        let here = limit > self.key || self.key == 0;
        if here && limit <= self.key + self.keys { self.head.scale } else { 1.0 }
    }

    /// Adds the gradients of the scores of query `local`, which sees `seen` keys, to the gradients of the bias at their
    /// distances.
    ///
    /// # Safety
    /// `table` has every distance of the head, and no other code accesses it.
    #[inline(always)]
    pub(super) unsafe fn add_to_table<S: SimdF32>(
        &self,
        s: S,
        table: *mut f32,
        local: usize,
        seen: usize,
    ) {
        let to = table.wrapping_add(self.key).wrapping_sub(self.query + local);
        let from = self.d_scores_of(local);
        for key in (0..seen).step_by(S::LANES) {
            let count = (seen - key).min(S::LANES);
            // SAFETY: the `# Safety` contract of `add_to_table` holds. The query has the gradient of a score for each
            // key that it sees.
            unsafe {
                let x = s.load_prefix(from.add(key), count);
                let sum = s.add(s.load_prefix(to.add(key), count), x);
                s.store_prefix(to.add(key), sum, count);
            }
        }
    }
}
