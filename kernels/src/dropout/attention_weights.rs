//! Dropout of attention weights. Their matrix is never stored; the dropout is applied to one tile at a time.

use super::mask::{DECISIONS, Dropout, Share};
use super::philox::{GROUP, Philox};
use crate::error::Error;
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

/// The decisions of [`HeadDrops::decide`]: `[queries][ceil(keys / 8)][8]`.
#[repr(align(64))]
pub(crate) struct DropMask([MaybeUninit<[[u64; 2]; GROUP]>; GROUPS]);

impl DropMask {
    pub(crate) const fn new() -> Self {
        Self([MaybeUninit::uninit(); GROUPS])
    }
}

impl HeadDrops {
    /// Computes the decisions for the weights of `queries`, at most 8, and of the `keys` keys from `key` on. `keys` is
    /// at most 256, and `key` is a multiple of 8.
    #[inline(always)]
    pub(crate) fn decide(
        &self,
        queries: Range<usize>,
        (key, keys): (usize, usize),
        to: &mut DropMask,
    ) {
        let blocks = keys.div_ceil(DECISIONS);
        let groups = (queries.len() * blocks).div_ceil(GROUP);
        debug_assert!(groups <= GROUPS && key.is_multiple_of(DECISIONS));
        let (mut query, mut block) = (queries.start, 0);
        for to in to.0.iter_mut().take(groups) {
            let (mut c0, mut c1) = ([0; GROUP], [0; GROUP]);
            for i in 0..GROUP {
                (c0[i], c1[i]) = ((key / DECISIONS + block) as u64, query as u64);
                block += 1;
                if block == blocks {
                    (query, block) = (query + 1, 0);
                }
            }
            let mut words = [[0; 2]; GROUP];
            self.philox.group(c0, c1, [self.sentence, self.head], &mut words);
            to.write(words);
        }
    }

    /// Decides and drops in one step, a group of blocks at a time. The weights of query `query + i` and the `keys`
    /// keys from `key` on, a multiple of 8, are at `lines[i * stride]`. The elements after them, up to a multiple of 8
    /// keys, get unspecified values.
    ///
    /// # Safety
    /// The lines of `queries` queries are valid for reads and writes up to a multiple of 8 keys.
    #[inline(always)]
    pub(crate) unsafe fn drop_from(
        &self,
        (query, queries): (usize, usize),
        (key, keys): (usize, usize),
        lines: *mut f32,
        stride: usize,
    ) {
        let blocks = keys.div_ceil(DECISIONS);
        let total = queries * blocks;
        let (mut row, mut block) = (0, 0);
        let mut done = 0;
        while done < total {
            let first = (row, block);
            // The array first contains the counters, then the blocks computed from them, to save stack.
            let mut words = [[0; 2]; GROUP];
            for words in &mut words {
                *words = [(key / DECISIONS + block) as u64, (query + row) as u64];
                block += 1;
                if block == blocks {
                    (row, block) = (row + 1, 0);
                }
            }
            let (mut c0, mut c1) = ([0; GROUP], [0; GROUP]);
            for i in 0..GROUP {
                [c0[i], c1[i]] = words[i];
            }
            self.philox.group(c0, c1, [self.sentence, self.head], &mut words);
            (row, block) = first;
            for words in words.iter().take(total - done) {
                let line = lines.wrapping_add(row * stride + block * DECISIONS);
                // SAFETY: the caller's contract. Two 64-bit words have the size of eight 16-bit numbers and sufficient
                // alignment.
                let (decisions, line) = unsafe {
                    let words: *const [u64; 2] = words;
                    (&*words.cast::<[u16; DECISIONS]>(), &mut *line.cast::<[f32; DECISIONS]>())
                };
                for i in 0..DECISIONS {
                    line[i] = self.share.apply(line[i], decisions[i]);
                }
                block += 1;
                if block == blocks {
                    (row, block) = (row + 1, 0);
                }
            }
            done += GROUP;
        }
    }

    /// Applies the decisions `from` to weights or to their gradients: each becomes 0 or is divided by the probability
    /// that it is not dropped. Those of query `i` start at `lines[i * stride]`. The elements after them, up to a
    /// multiple of 8 keys, get unspecified values.
    ///
    /// # Safety
    /// [`HeadDrops::decide`] has written the decisions for this number of queries and keys, and the lines are valid
    /// for reads and writes up to a multiple of 8 keys.
    #[inline(always)]
    pub(crate) unsafe fn apply(
        &self,
        from: &DropMask,
        (queries, keys): (usize, usize),
        lines: *mut f32,
        stride: usize,
    ) {
        let blocks = keys.div_ceil(DECISIONS);
        let words: *const [u16; DECISIONS] = from.0.as_ptr().cast();
        for query in 0..queries {
            for block in 0..blocks {
                // SAFETY: the caller's contract. Two 64-bit words have the size of eight 16-bit numbers and sufficient
                // alignment.
                let (decisions, line) = unsafe {
                    let line = lines.add(query * stride + block * DECISIONS);
                    (*words.add(query * blocks + block), &mut *line.cast::<[f32; DECISIONS]>())
                };
                for i in 0..DECISIONS {
                    line[i] = self.share.apply(line[i], decisions[i]);
                }
            }
        }
    }
}
