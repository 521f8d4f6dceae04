//! Dropout of the weights of attention, whose matrix is never there: a tile of it at a time.

use super::error::DropoutError;
use super::mask::{DECISIONS, Dropout, Share};
use super::philox::{GROUP, Philox};
use core::mem::MaybeUninit;
use core::ops::Range;

/// The number of this use.
const OF_WEIGHTS: u32 = 4;

/// Groups of blocks for the largest tile: 8 queries and 256 keys.
const GROUPS: usize = 8 * 256 / (DECISIONS * GROUP);

/// Which weights of attention are dropped at one place of a model in one step, for
/// [`attention_forward_save`](crate::train::attention_forward_save) and
/// [`attention_backward`](crate::train::attention_backward).
///
/// Whether the weight of a query for a key is dropped depends on the [`Dropout`], on which sentence of the corpus
/// they are of, on their places in it and on the query's head; on nothing else. So neither the batch, nor
/// threads, nor the instruction set matter, and the gradient forms the mask of the forward again. With a
/// probability of 0 nothing is dropped, and the bits are those without dropout.
///
/// ```
/// use simdformer_kernels::train::{Dropout, WeightDropout};
///
/// let dropout = Dropout { seed: 42, step: 1000, site: 3, probability: 0.1 };
/// // Two sentences, of two query tokens and of one.
/// let of_weights = WeightDropout::new(&dropout, &[7, 7, 8])?;
/// assert!(WeightDropout::new(&Dropout { probability: 1.0, ..dropout }, &[]).is_err());
/// # Ok::<(), simdformer_kernels::train::DropoutError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WeightDropout<'a> {
    philox: Philox,
    share: Share,
    sentences: &'a [u32],
}

impl<'a> WeightDropout<'a> {
    /// `sentences`, `[query tokens]`: the number in the corpus of the sentence that each query token is of. A
    /// sequence is named by its first.
    ///
    /// # Errors
    /// The probability is none or leaves nothing.
    pub fn new(dropout: &Dropout, sentences: &'a [u32]) -> Result<Self, DropoutError> {
        Ok(Self { philox: dropout.philox(OF_WEIGHTS), share: dropout.share()?, sentences })
    }

    /// Query tokens that it is for.
    pub(crate) fn tokens(&self) -> usize {
        self.sentences.len()
    }

    /// What is dropped of head `head` of the sequence whose queries start at token `start`, if anything.
    pub(crate) fn of_head(&self, start: usize, head: usize) -> Option<HeadDrops> {
        let Self { philox, share, sentences } = *self;
        // A sequence without queries may start behind the last.
        let sentence = *sentences.get(start)?;
        (share.dropped > 0).then_some(HeadDrops { philox, share, sentence, head: head as u32 })
    }
}

/// Which weights of a head of a sequence are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadDrops {
    philox: Philox,
    share: Share,
    sentence: u32,
    head: u32,
}

/// What [`HeadDrops::decide`] has decided: `[queries][ceil(keys / 8)][8]`.
#[repr(align(64))]
pub(crate) struct DropMask([MaybeUninit<[[u64; 2]; GROUP]>; GROUPS]);

impl DropMask {
    pub(crate) const fn new() -> Self {
        Self([MaybeUninit::uninit(); GROUPS])
    }
}

impl HeadDrops {
    /// Decides about the weights of `queries`, at most 8, for the `keys` keys from `key` on, at most 256 of which the first is a
    /// multiple of 8.
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

    /// Decides and drops at once, a group at a time: of the `keys` keys from `key` on, a multiple of 8, query `query + i`
    /// has weights at `lines[i * stride]`. Up to a multiple of 8 keys, what lies behind them becomes anything.
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
            // Counters, and then what becomes of them, in the same place: there is little stack.
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
                // SAFETY: the caller's contract. Two words of 64 bits are aligned for, and as long as, eight of 16.
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

    /// Drops from the weights, or their gradients, that `from` is about: each is 0 or divided by the probability
    /// that it is kept. Those of query `i` start at `lines[i * stride]`; up to a multiple of 8 keys, what lies
    /// behind them becomes anything.
    ///
    /// # Safety
    /// [`HeadDrops::decide`] has decided about as many queries and keys, and the lines are valid for reads and
    /// writes up to a multiple of 8 keys.
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
                // SAFETY: the caller's contract. Two words of 64 bits are aligned for, and as long as, eight of 16.
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
