//! The operands of a backward call, checked, and where the gradients are written.

use super::workspace::Workspace;
use crate::attention::heads::{HeadPtrs, Heads, Qkv};
use crate::attention::options::Sequence;
use crate::attention::params::AttentionParams;
use crate::mask::FullyMasked;
use crate::shared::SharedMut;

/// A checked call; no tensor is empty.
pub(super) struct Backward<'a> {
    /// The parameters. Their output is the gradient of the query.
    pub(super) params: &'a AttentionParams<'a>,
    pub(super) qkv: Qkv<'a>,
    pub(super) context: Heads<'a>,
    pub(super) d_context: Heads<'a>,
    pub(super) sums: &'a [f32],
    pub(super) sequences: &'a [Sequence],
    pub(super) fully_masked: FullyMasked,
    /// Whether there is a bias that may hide keys.
    pub(super) hides: bool,
    pub(super) d_key: HeadPtrs<'a>,
    pub(super) d_value: HeadPtrs<'a>,
    pub(super) layout: Workspace,
    /// Gradients of the bias: for each sequence and head, one value per distance from key to query, beginning with the
    /// farthest key behind the query.
    pub(super) tables: Option<SharedMut<'a>>,
}

/// Floats of the gradient of the bias for one head of a sequence.
pub(super) fn table_len(sequence: &Sequence) -> usize {
    match (sequence.query_len, sequence.key_len) {
        (0, _) | (_, 0) => 0,
        (queries, keys) => queries.saturating_add(keys - 1),
    }
}
