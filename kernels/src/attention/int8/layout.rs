//! Where a call keeps its quantized operands in the caller's scratch. All sizes are in words of 32 bits.

use super::super::options::Sequence;
use crate::error::Error;
use crate::isa::Isa;
use crate::simd::SimdF32;
use crate::simd::int8_lanes::{MAX_KEYS, WordForm};
use crate::simd::simd_op;

/// Keys that share one scale of each column of values, and one maximum of each query.
pub(super) const BLOCK: usize = 64;

/// Words in a cache line. Every part begins at a multiple.
const LINE: usize = 16;

/// How an instruction set stores words.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Elements of a word.
    elements: usize,
    /// Queries of a tile.
    pub(super) tile: usize,
    /// Whether weighted sums have a start.
    starts: bool,
}

simd_op!(
    fn shape_of<B: Int8Dot, const NV: usize, const TV: usize>(_b: B) -> Shape {
        Shape {
            elements: B::FORM.elements(),
            tile: TV * B::LaneFloats::LANES,
            starts: matches!(B::FORM, WordForm::Signed),
        }
    }
);

impl Shape {
    pub(super) fn of(isa: Isa) -> Self {
        isa.dispatch_bytes(shape_of())
    }
}

/// The parts of one key-value head of a sequence with `keys` keys, as offsets from its first word.
#[derive(Clone, Copy)]
pub(super) struct KvLayout {
    /// Words of a key.
    pub(super) steps: usize,
    /// `[keys]`: the scale of each key.
    pub(super) key_scales: usize,
    /// `[blocks][words of a block][head_dim]`: a word has consecutive keys of one column.
    pub(super) values: usize,
    /// `[blocks][head_dim]`: the scale of each column in each block.
    pub(super) value_scales: usize,
    /// `[blocks][head_dim]`: where weighted sums start, if they do not at 0.
    pub(super) value_starts: usize,
    /// `[head_dim]`: the mean key, then the factors of a block of values.
    pub(super) columns: usize,
    /// The first key that is not finite.
    pub(super) first_bad: usize,
    /// Words in total.
    pub(super) len: usize,
}

impl KvLayout {
    /// `None` if the size overflows.
    pub(super) fn new(shape: Shape, keys: usize, head_dim: usize) -> Option<Self> {
        let steps = head_dim.div_ceil(shape.elements);
        let blocks = keys.div_ceil(BLOCK);
        let mut len = 0usize;
        let mut part = |words: Option<usize>| {
            let at = len;
            len = at.checked_add(words?.checked_next_multiple_of(LINE)?)?;
            Some(at)
        };
        // A tile reads whole groups of keys, and of columns.
        let rows = keys.checked_add(MAX_KEYS);
        part(rows.and_then(|rows| rows.checked_mul(steps)))?;
        let key_scales = part(rows)?;
        let columns = blocks.checked_mul(head_dim);
        let values = columns.and_then(|n| n.checked_mul(BLOCK / shape.elements));
        let values = part(values.and_then(|n| n.checked_add(MAX_KEYS)))?;
        let columns = columns.and_then(|n| n.checked_add(MAX_KEYS));
        let value_scales = part(columns)?;
        let value_starts = part(if shape.starts { columns } else { Some(0) })?;
        let columns = part(Some(head_dim))?;
        let first_bad = part(Some(1))?;
        Some(Self {
            steps,
            key_scales,
            values,
            value_scales,
            value_starts,
            columns,
            first_bad,
            len,
        })
    }
}

/// The parts of a tile of queries: `[words of a query][queries]`, the start of their scores, and the factor of each.
#[derive(Clone, Copy)]
pub(super) struct QueryLayout {
    pub(super) starts: usize,
    pub(super) factors: usize,
    /// Words of a tile.
    pub(super) tile: usize,
    /// Words of all tiles.
    pub(super) len: usize,
}

impl QueryLayout {
    /// `None` if the size overflows.
    pub(super) fn new(shape: Shape, queries: usize, head_dim: usize) -> Option<Self> {
        let starts = head_dim.div_ceil(shape.elements).checked_mul(shape.tile)?;
        let factors = starts.checked_add(shape.tile)?;
        let tile = factors.checked_add(shape.tile)?.checked_next_multiple_of(LINE)?;
        Some(Self { starts, factors, tile, len: tile.checked_mul(queries.div_ceil(shape.tile))? })
    }
}

/// Words of one key-value head of a sequence, and of the `group` query heads that read it.
pub(super) fn head_words(
    shape: Shape,
    sequence: &Sequence,
    group: usize,
    head_dim: usize,
) -> Option<usize> {
    let query = QueryLayout::new(shape, sequence.query_len, head_dim)?.len.checked_mul(group)?;
    KvLayout::new(shape, sequence.key_len, head_dim)?.len.checked_add(query)
}

/// Floats of scratch that [`attention_int8`](super::attention_int8) needs for `sequences` with `heads` query heads and
/// `kv_heads` key-value heads of `head_dim` elements: their quantized queries, keys and values.
///
/// # Errors
/// The size overflows.
pub fn attention_int8_scratch(
    isa: Isa,
    sequences: &[Sequence],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
) -> Result<usize, Error> {
    let shape = Shape::of(isa);
    // The first part is moved to a cache line.
    let total = sequences.iter().try_fold(LINE - 1, |total: usize, sequence| {
        let words = head_words(shape, sequence, heads.div_ceil(kv_heads.max(1)), head_dim)?;
        total.checked_add(words.checked_mul(kv_heads)?)
    });
    total.ok_or(Error::TooLarge { operand: "the scratch" })
}

/// The first cache line in a scratch.
pub(super) fn aligned(scratch: *mut f32) -> *mut f32 {
    let bytes = LINE * size_of::<f32>();
    let misaligned = scratch.addr() % bytes;
    let skip = if misaligned == 0 { 0 } else { (bytes - misaligned) / size_of::<f32>() };
    scratch.wrapping_add(skip)
}
