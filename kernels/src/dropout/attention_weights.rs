//! Dropout of attention weights. Their matrix is never stored; the dropout is applied to one tile at a time, by separate
//! functions, so that calls without dropout do not contain their code.

use super::mask::{DECISIONS, Dropout, Share};
use super::philox::{GROUP, Philox};
use crate::error::Error;
use crate::simd::simd_op;
use core::mem::MaybeUninit;
use core::ops::Range;

/// The number of this use in the table of the module `dropout`.
const OF_WEIGHTS: u32 = 4;

/// Groups of blocks for the largest tile: 8 queries and 256 keys.
const GROUPS: usize = 8 * 256 / (DECISIONS * GROUP);

/// Selects the attention weights that are dropped at one site of a model in one step, for
/// [`attention_forward_save`](crate::train::attention_forward_save) and
/// [`attention_backward`](crate::train::attention_backward).
///
/// Whether the weight of a query for a key is dropped depends only on the [`Dropout`], on the number of the sentence
/// in the corpus, on the positions of query and key in it, and on the query's head. So the batch, the number of
/// threads and the instruction set do not matter, and the gradient computes the mask of the forward pass again. With a
/// probability of 0 no weight is dropped, and the bits are those without dropout.
///
/// ```
/// use simdformer_kernels::train::{Dropout, WeightDropout};
///
/// let dropout = Dropout { seed: 42, step: 1000, site: 3, probability: 0.1 };
/// // Two sentences, with two query tokens and with one.
/// let of_weights = WeightDropout::new(&dropout, &[7, 7, 8])?;
/// assert!(WeightDropout::new(&Dropout { probability: 1.0, ..dropout }, &[]).is_err());
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WeightDropout<'a> {
    philox: Philox,
    share: Share,
    sentences: &'a [u32],
}

impl<'a> WeightDropout<'a> {
    /// `sentences`, `[query tokens]`: for each query token the number of its sentence in the corpus. A sequence uses
    /// the number of its first token.
    ///
    /// # Errors
    /// The probability is not in its range.
    pub fn new(dropout: &Dropout, sentences: &'a [u32]) -> Result<Self, Error> {
        Ok(Self { philox: dropout.philox(OF_WEIGHTS), share: dropout.share()?, sentences })
    }

    /// The number of query tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.sentences.len()
    }

    /// The dropout of head `head` of the sequence whose queries start at token `start`; `None` if no weight is
    /// dropped.
    pub(crate) fn of_head(&self, start: usize, head: usize) -> Option<HeadDrops> {
        let Self { philox, share, sentences } = *self;
        // A sequence without queries may start after the last token.
        let sentence = *sentences.get(start)?;
        (share.dropped > 0).then_some(HeadDrops { philox, share, sentence, head: head as u32 })
    }
}

/// The dropout of one head of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadDrops {
    philox: Philox,
    share: Share,
    sentence: u32,
    head: u32,
}

/// The decisions of [`decide_drops`]: `[queries][ceil(keys / 8)][8]`.
#[repr(align(64))]
pub(crate) struct DropMask([MaybeUninit<[[u64; 2]; GROUP]>; GROUPS]);

impl DropMask {
    pub(crate) const fn new() -> Self {
        Self([MaybeUninit::uninit(); GROUPS])
    }
}

/// The place after a place, `(row, block)`, in rows of `blocks` blocks.
#[inline(always)]
const fn after((row, block): (usize, usize), blocks: usize) -> (usize, usize) {
    if block + 1 == blocks { (row + 1, 0) } else { (row, block + 1) }
}

impl HeadDrops {
    /// Computes the group of blocks from `place` on, in rows of `blocks` blocks; the place `(0, 0)` is that of `query` and
    /// `key`. Sets `place` to the first one after the group.
    #[inline(always)]
    fn group(
        &self,
        (query, key): (usize, usize),
        place: &mut (usize, usize),
        blocks: usize,
    ) -> [[u64; 2]; GROUP] {
        debug_assert!(key.is_multiple_of(DECISIONS));
        // The array first contains the counters, then the blocks computed from them, to save stack.
        let mut words = [[0; 2]; GROUP];
        for words in &mut words {
            *words = [(key / DECISIONS + place.1) as u64, (query + place.0) as u64];
            *place = after(*place, blocks);
        }
        let (mut c0, mut c1) = ([0; GROUP], [0; GROUP]);
        for i in 0..GROUP {
            [c0[i], c1[i]] = words[i];
        }
        self.philox.group(c0, c1, [self.sentence, self.head], &mut words);
        words
    }

    /// Applies a block of decisions: each weight becomes 0 or is divided by the probability that it is not dropped.
    ///
    /// # Safety
    /// `weights` is valid for reads and writes of [`DECISIONS`] floats.
    #[inline(always)]
    unsafe fn apply(&self, block: &[u64; 2], weights: *mut f32) {
        let block: *const [u64; 2] = block;
        // SAFETY: the caller's contract. Two 64-bit words have the size of eight 16-bit numbers and sufficient alignment.
        let (decisions, weights) = unsafe {
            (&*block.cast::<[u16; DECISIONS]>(), &mut *weights.cast::<[f32; DECISIONS]>())
        };
        for i in 0..DECISIONS {
            weights[i] = self.share.apply(weights[i], decisions[i]);
        }
    }
}

simd_op!(
    /// Computes the decisions for the weights of `queries`, at most 8, and of keys, given as the first, a multiple of 8,
    /// and their number, at most 256.
    pub(crate) fn decide_drops<S: SimdF32>(
        _s: S,
        drops: HeadDrops,
        queries: Range<usize>,
        keys: (usize, usize),
        to: &mut DropMask,
    ) {
        let blocks = keys.1.div_ceil(DECISIONS);
        let groups = (queries.len() * blocks).div_ceil(GROUP);
        debug_assert!(groups <= GROUPS);
        let mut place = (0, 0);
        for to in to.0.iter_mut().take(groups) {
            to.write(drops.group((queries.start, keys.0), &mut place, blocks));
        }
    }
);

simd_op!(
    /// Applies the decisions `from` to weights or to their gradients, of `size = (queries, keys)`. Those of query `i` start
    /// at `lines[i * stride]`. The elements after them, up to a multiple of 8 keys, get unspecified values.
    ///
    /// # Safety
    /// [`decide_drops`] has written the decisions for this number of queries and keys, and the lines are valid for reads
    /// and writes up to a multiple of 8 keys.
    pub(crate) unsafe fn apply_drops<S: SimdF32>(
        _s: S,
        drops: HeadDrops,
        from: &DropMask,
        size: (usize, usize),
        lines: *mut f32,
        stride: usize,
    ) {
        let ((queries, keys), words) = (size, from.0.as_ptr().cast::<[u64; 2]>());
        let blocks = keys.div_ceil(DECISIONS);
        for query in 0..queries {
            for block in 0..blocks {
                // SAFETY: the contract of this function.
                unsafe {
                    let line = lines.add(query * stride + block * DECISIONS);
                    drops.apply(&*words.add(query * blocks + block), line);
                }
            }
        }
    }
);

simd_op!(
    /// Decides and drops in one step, a group of blocks at a time, with little stack. Queries and keys are given as the
    /// first and their number; the first key is a multiple of 8. The weights of query `i` start at `lines[i * stride]`. The
    /// elements after them, up to a multiple of 8 keys, get unspecified values.
    ///
    /// # Safety
    /// The lines of the queries are valid for reads and writes up to a multiple of 8 keys.
    pub(crate) unsafe fn drop_weights<S: SimdF32>(
        _s: S,
        drops: HeadDrops,
        queries: (usize, usize),
        keys: (usize, usize),
        lines: *mut f32,
        stride: usize,
    ) {
        let blocks = keys.1.div_ceil(DECISIONS);
        let (mut place, mut left) = ((0, 0), queries.1 * blocks);
        while left > 0 {
            let mut at = place;
            let group = drops.group((queries.0, keys.0), &mut place, blocks);
            for block in group.iter().take(left) {
                // SAFETY: the contract of this function.
                unsafe { drops.apply(block, lines.wrapping_add(at.0 * stride + at.1 * DECISIONS)) };
                at = after(at, blocks);
            }
            left = left.saturating_sub(GROUP);
        }
    }
);
