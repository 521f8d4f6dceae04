//! The workspace of a task: a block of keys and values in both layouts, their gradients, and a block of queries with
//! their softmax sums.

use crate::attention::online_softmax::KEY_BLOCK;
use crate::attention::panels::value_row;
use crate::simd::CACHE_LINE_F32;

/// Queries that share one pass over a block of keys. Their weights and the gradients of their scores are stored for the
/// products over queries. With more queries per block, the sums of keys are loaded and stored less often.
pub(super) const QUERY_ROWS: usize = 96;

/// Stride from the weights of one query to those of the next. It is an odd number of cache lines: products over queries
/// read columns, and with a power of two a column would share the same cache sets.
pub(super) const WEIGHTS_ROW: usize = KEY_BLOCK + CACHE_LINE_F32;

/// Floats per query: the maximum of its scores, the reciprocal of the sum of its weights, the dot product of its
/// context with the context's gradient, and one unused.
pub(super) const ROW_SUMS: usize = 4;

/// Offsets in the workspace of a task, in floats.
#[derive(Clone, Copy, Default)]
pub(super) struct Workspace {
    /// Row stride: `head_dim` elements, and zeros up to whole vectors.
    pub(super) row: usize,
    /// `[ceil(keys / LANES)][head_dim][LANES]`.
    pub(super) key_panels: usize,
    /// As `key_panels`.
    pub(super) value_panels: usize,
    /// `[keys][row]`.
    pub(super) key_rows: usize,
    /// As `key_rows`.
    pub(super) d_key: usize,
    /// As `key_rows`.
    pub(super) d_value: usize,
    /// `[queries][row]`.
    pub(super) query: usize,
    /// As `query`.
    pub(super) d_context: usize,
    /// `[queries][WEIGHTS_ROW]`.
    pub(super) weights: usize,
    /// As `weights`.
    pub(super) d_scores: usize,
    /// `[queries][ROW_SUMS]`.
    pub(super) sums: usize,
    /// Floats in total.
    pub(super) floats: usize,
}

impl Workspace {
    /// The workspace for sequences of at most `queries` and `keys`, or `None` on overflow. It has space for at most one
    /// block of each.
    pub(super) fn new(lanes: usize, [queries, keys]: [usize; 2], head_dim: usize) -> Option<Self> {
        if queries == 0 || keys == 0 || head_dim == 0 {
            return Some(Self::default());
        }
        let row = value_row(lanes, head_dim);
        let queries = queries.min(QUERY_ROWS);
        let keys = keys.min(KEY_BLOCK).next_multiple_of(lanes);
        let mut layout = Self { row, ..Self::default() };
        let mut floats = 0usize;
        for (place, rows, columns) in [
            (&mut layout.key_panels, keys, row),
            (&mut layout.value_panels, keys, row),
            (&mut layout.key_rows, keys, row),
            (&mut layout.d_key, keys, row),
            (&mut layout.d_value, keys, row),
            (&mut layout.query, queries, row),
            (&mut layout.d_context, queries, row),
            (&mut layout.weights, queries, WEIGHTS_ROW),
            (&mut layout.d_scores, queries, WEIGHTS_ROW),
            (&mut layout.sums, queries, ROW_SUMS),
        ] {
            *place = floats;
            let part = rows.checked_mul(columns)?.checked_next_multiple_of(CACHE_LINE_F32)?;
            floats = floats.checked_add(part)?;
        }
        layout.floats = floats;
        Some(layout)
    }
}
