//! Where a call keeps its quantized operands in the caller's scratch. All sizes are in words of 32 bits.

use super::super::options::Sequence;
use crate::error::Error;
use crate::isa::Isa;
use crate::simd::SimdF32;
use crate::simd::int8::MAX_KEYS;
use crate::simd::simd_op;

/// Keys that share one scale of each column of values, and one maximum of each query.
pub(super) const BLOCK: usize = 64;

/// Words in a cache line, at least the lanes of a vector. Every part begins at a multiple.
const LINE: usize = 16;

/// How an instruction set stores words.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Elements of a word.
    elements: usize,
    /// Queries of a tile.
    pub(super) tile: usize,
}

simd_op!(
    fn shape_of<B: Int8Dot, const NV: usize, const TV: usize>(_b: B) -> Shape {
        Shape { elements: B::FORM.elements(), tile: TV * B::Floats::LANES }
    }
);

impl Shape {
    pub(super) fn for_isa(isa: Isa) -> Self {
        isa.dispatch_bytes(shape_of())
    }

    /// Words of a query or a key.
    pub(super) const fn steps(self, head_dim: usize) -> usize {
        head_dim.div_ceil(self.elements)
    }

    /// Words of a tile of queries: `[words of a query][queries]`, then the factor of each query, and where its scores start.
    /// `None` if the size overflows.
    pub(super) fn tile_words(self, head_dim: usize) -> Option<usize> {
        self.steps(head_dim).checked_add(2)?.checked_mul(self.tile)?.checked_next_multiple_of(LINE)
    }
}

/// One key-value head of a sequence: its blocks, the mean key, and the number of the first key that is not finite.
#[derive(Clone, Copy)]
pub(super) struct KvLayout {
    /// Words of a key.
    pub(super) steps: usize,
    /// Columns of the values, rounded up.
    pub(super) columns: usize,
    /// Words of a column in a block.
    words: usize,
    /// Words of a block.
    block: usize,
    /// The mean key.
    pub(super) center: usize,
    /// Words in total.
    pub(super) len: usize,
}

/// The parts of a block of keys. The layout has [`MAX_KEYS`] more words after the last one.
#[derive(Clone, Copy)]
pub(super) struct KvBlock {
    /// `[words of a key][BLOCK]`.
    pub(super) keys: *mut i32,
    /// `[BLOCK]`: the scale of each key.
    pub(super) key_scales: *mut f32,
    /// `[words of a column][columns]`: a word has consecutive keys of one column.
    pub(super) values: *mut i32,
    /// `[columns]`: the scale of each column, and where its weighted sums start, if not at 0.
    pub(super) value_scales: *mut f32,
    pub(super) value_starts: *mut i32,
}

impl KvLayout {
    /// `None` if the size overflows.
    pub(super) fn new(shape: Shape, keys: usize, head_dim: usize) -> Option<Self> {
        let (steps, words) = (shape.steps(head_dim), BLOCK / shape.elements);
        let columns = head_dim.checked_next_multiple_of(LINE)?;
        let of_keys = steps.checked_add(1)?.checked_mul(BLOCK)?;
        let block = columns.checked_mul(words + 2)?.checked_add(of_keys)?;
        let center = block.checked_mul(keys.div_ceil(BLOCK))?;
        let len = center.checked_add(columns)?.checked_add(LINE + MAX_KEYS)?;
        Some(Self {
            steps,
            columns,
            words,
            block,
            center,
            len: len.checked_next_multiple_of(LINE)?,
        })
    }

    /// The block of `key`, which is a multiple of [`BLOCK`].
    #[inline(always)]
    pub(super) fn block(&self, kv: *mut f32, key: usize) -> KvBlock {
        let keys = kv.wrapping_add(key / BLOCK * self.block);
        let key_scales = keys.wrapping_add(self.steps * BLOCK);
        let values = key_scales.wrapping_add(BLOCK);
        let value_scales = values.wrapping_add(self.words * self.columns);
        KvBlock {
            keys: keys.cast(),
            key_scales,
            values: values.cast(),
            value_scales,
            value_starts: value_scales.wrapping_add(self.columns).cast(),
        }
    }

    /// The number of the first key that is not finite.
    #[inline(always)]
    pub(super) fn first_bad(&self, kv: *mut f32) -> *mut u32 {
        kv.wrapping_add(self.center + self.columns).cast()
    }
}

/// Words of one key-value head of a sequence, and of the `group` query heads that read it.
pub(super) fn head_words(
    shape: Shape,
    sequence: &Sequence,
    group: usize,
    head_dim: usize,
) -> Option<usize> {
    let tiles = sequence.query_len.div_ceil(shape.tile).checked_mul(group)?;
    let queries = shape.tile_words(head_dim)?.checked_mul(tiles)?;
    KvLayout::new(shape, sequence.key_len, head_dim)?.len.checked_add(queries)
}

/// [`AttentionOptions::scratch`](crate::AttentionOptions::scratch) for int8.
pub(crate) fn scratch(
    isa: Isa,
    sequences: &[Sequence],
    [heads, kv_heads, head_dim]: [usize; 3],
) -> Result<usize, Error> {
    let shape = Shape::for_isa(isa);
    // The first part is moved to a cache line.
    let total = sequences.iter().try_fold(LINE - 1, |total: usize, sequence| {
        let words = head_words(shape, sequence, heads.div_ceil(kv_heads.max(1)), head_dim)?;
        total.checked_add(words.checked_mul(kv_heads)?)
    });
    total.ok_or(Error::TooLarge { operand: "the scratch" })
}

/// [`AttentionOptions::scratch_bound`](crate::AttentionOptions::scratch_bound) for int8. Each sequence has at most one block
/// and one tile more than its share of all tokens.
pub(crate) fn scratch_bound(
    isa: Isa,
    [sequences, tokens, heads, head_dim]: [usize; 4],
) -> Result<usize, Error> {
    let shape = Shape::for_isa(isa);
    let words = |tokens| head_words(shape, &Sequence::packed(0, tokens), 1, head_dim);
    let total = words(1).and_then(|each| {
        let all = words(tokens)?.checked_add(each.checked_mul(sequences)?)?;
        all.checked_mul(heads)?.checked_add(LINE - 1)
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
