//! What one task works in: a block of keys and values in both layouts, their gradients, a block of queries
//! and what the softmax gave them.

use crate::attention::online_softmax::KEY_BLOCK;
use crate::attention::panels::value_row;
use crate::simd::CACHE_LINE_F32;

/// Queries that pass over one block of keys together: their weights and the gradients of their scores are
/// kept, for the products over queries. More of them load and store the sums of keys less often.
pub(super) const QUERY_ROWS: usize = 96;

/// From the weights of one query to those of the next: an odd number of lines, as products over queries go
/// down columns, and at a power of two these would share the sets of a cache.
pub(super) const WEIGHTS_ROW: usize = KEY_BLOCK + CACHE_LINE_F32;

/// Floats that are kept of the softmax of each query: its maximum, one over its sum, the product of its
/// context with the context's gradient, and one that is not used.
pub(super) const ROW_SUMS: usize = 4;

/// Places in the room of a task, in floats.
#[derive(Clone, Copy, Default)]
pub(super) struct Workspace {
    /// From one row of `head_dim` elements, and zeros up to whole vectors, to the next.
    pub(super) row: usize,
    /// `[ceil(keys / LANES)][row][LANES]`.
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
    /// Floats in all.
    pub(super) floats: usize,
}

impl Workspace {
    /// Room for sequences of at most `queries` and `keys`, or `None` on overflow. It does not grow beyond
    /// one block of each.
    pub(super) fn new(lanes: usize, [queries, keys]: [usize; 2], head_dim: usize) -> Option<Self> {
        if queries == 0 || keys == 0 || head_dim == 0 {
            return Some(Self::default());
        }
        let row = value_row(lanes, head_dim);
        let queries = queries.min(QUERY_ROWS);
        let keys = keys.min(KEY_BLOCK).next_multiple_of(lanes);
        let mut room = Self { row, ..Self::default() };
        let mut floats = 0usize;
        for (place, rows, columns) in [
            (&mut room.key_panels, keys, row),
            (&mut room.value_panels, keys, row),
            (&mut room.key_rows, keys, row),
            (&mut room.d_key, keys, row),
            (&mut room.d_value, keys, row),
            (&mut room.query, queries, row),
            (&mut room.d_context, queries, row),
            (&mut room.weights, queries, WEIGHTS_ROW),
            (&mut room.d_scores, queries, WEIGHTS_ROW),
            (&mut room.sums, queries, ROW_SUMS),
        ] {
            *place = floats;
            let part = rows.checked_mul(columns)?.checked_next_multiple_of(CACHE_LINE_F32)?;
            floats = floats.checked_add(part)?;
        }
        room.floats = floats;
        Some(room)
    }
}
