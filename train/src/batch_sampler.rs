//! Selects the sentences of each batch, as a function of the seed and of the number of earlier batches.

use crate::corpus::Corpus;
use crate::error::{Error, corrupt, invalid_option, unreadable};
use simdformer::kernels::train::{Philox, permutation};
use std::fs;
use std::path::Path;

/// The size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// This number of sentences.
    Sentences(usize),
    /// As many sentences as have at most this many tokens in total on the larger side; at least one sentence.
    Tokens(usize),
}

/// How a corpus is cut into batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batching {
    /// All sentences once per epoch, in an order that is drawn anew for each epoch.
    Shuffled {
        /// The size of each batch; the last batch of an epoch has the remaining sentences.
        size: BatchSize,
        /// The number of sentences that are sorted by length before they are cut into batches, so that the sentences
        /// of a batch have similar lengths. The batches of a pool are then shuffled. 0 or 1 disables sorting. This
        /// crate does not pad, so sorting saves no work; it reproduces the order of trainers that pad.
        pool: usize,
    },
    /// In the order of the corpus.
    InOrder {
        /// The size of each batch; the last batch of an epoch has the remaining sentences.
        size: BatchSize,
    },
    /// As listed: the indices of the sentences of each batch. An epoch is the whole list.
    Listed(Vec<Vec<u32>>),
}

impl Batching {
    /// Reads a file of batches: each line is a JSON list of sentence indices.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a list of numbers.
    pub fn listed(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(unreadable(file))?;
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let batches = lines.map(|(text, line)| {
            serde_json::from_str(text).map_err(|error| {
                let operand = format!("{}, line {line}", file.display());
                let found = format!("something else: {error}");
                corrupt(operand, "a list of numbers of sentences", found)
            })
        });
        Ok(Self::Listed(batches.collect::<Result<_, _>>()?))
    }

    /// A one-line description, which differs if the batches of the same corpus and seed differ.
    pub(crate) fn describe(&self) -> String {
        let of = |size: &BatchSize| match size {
            BatchSize::Sentences(n) => format!("{n} sentences"),
            BatchSize::Tokens(n) => format!("{n} tokens"),
        };
        match self {
            Self::Shuffled { size, pool } => format!("{}, sorted in pools of {pool}", of(size)),
            Self::InOrder { size } => format!("{}, in order", of(size)),
            Self::Listed(batches) => {
                let mut hash = crate::checksummed_file::Hash::default();
                for batch in batches {
                    hash.word(batch.len() as u64);
                    batch.iter().for_each(|&number| hash.word(u64::from(number)));
                }
                format!("{} listed, {:016x}", batches.len(), hash.value())
            }
        }
    }
}

/// The batches of successive epochs.
#[derive(Debug)]
pub(crate) struct Batches {
    batching: Batching,
    seed: u64,
    /// Sentence indices, batch after batch.
    order: Vec<u32>,
    /// The range of each batch in `order`.
    batches: Vec<[u32; 2]>,
    epoch: u64,
    /// Batches of this epoch that were used.
    position: usize,
}

impl Batches {
    pub(crate) fn new(corpus: &Corpus, batching: Batching, seed: u64) -> Result<Self, Error> {
        let too_many =
            |found: usize| invalid_option("sentences", "fewer than 2^32", found.to_string());
        let (order, batches) = match &batching {
            Batching::Shuffled { size, .. } | Batching::InOrder { size } => {
                if matches!(size, BatchSize::Sentences(0) | BatchSize::Tokens(0)) {
                    return Err(invalid_option("the size of a batch", "at least 1", "0"));
                }
                (corpus.len(), corpus.len())
            }
            Batching::Listed(batches) => {
                let wrong = |expected: &'static str, found: String| {
                    invalid_option("a listed batch", expected, found)
                };
                for batch in batches {
                    if batch.is_empty() {
                        return Err(wrong("at least one sentence", "none".to_owned()));
                    }
                    let beyond = batch.iter().find(|&&number| number as usize >= corpus.len());
                    if let Some(number) = beyond {
                        let expected = "numbers of sentences of the corpus";
                        return Err(wrong(expected, format!("{number} of {}", corpus.len())));
                    }
                }
                if batches.is_empty() {
                    return Err(wrong("in a list with another", "none".to_owned()));
                }
                (batches.iter().map(Vec::len).sum(), batches.len())
            }
        };
        if order >= u32::MAX as usize {
            return Err(too_many(order));
        }
        let mut made = Self {
            batching,
            seed,
            order: Vec::with_capacity(order),
            batches: Vec::with_capacity(batches),
            epoch: 0,
            position: 0,
        };
        made.begin(corpus, 0);
        Ok(made)
    }

    /// Moves to batch `position` of `epoch`.
    pub(crate) fn seek(&mut self, corpus: &Corpus, epoch: u64, position: usize) {
        self.begin(corpus, epoch);
        self.position = position.min(self.batches.len());
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Number of batches in this epoch.
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn epoch_is_over(&self) -> bool {
        self.position >= self.batches.len()
    }

    /// The sentences of the next batch; begins the next epoch if this one is over.
    pub(crate) fn next(&mut self, corpus: &Corpus) -> &[u32] {
        if self.epoch_is_over() {
            self.begin(corpus, self.epoch + 1);
        }
        let [start, end] = self.batches[self.position];
        self.position += 1;
        &self.order[start as usize..end as usize]
    }

    /// Computes the batches of an epoch. Nothing is allocated, because the capacity is one batch per sentence.
    fn begin(&mut self, corpus: &Corpus, epoch: u64) {
        let Self { batching, seed, order, batches, .. } = self;
        (self.epoch, self.position) = (epoch, 0);
        order.clear();
        batches.clear();
        match batching {
            Batching::Listed(listed) => {
                for batch in listed {
                    let start = order.len() as u32;
                    order.extend_from_slice(batch);
                    batches.push([start, order.len() as u32]);
                }
            }
            Batching::InOrder { size } => {
                order.extend(0..corpus.len() as u32);
                cut(corpus, *size, order, 0, batches);
            }
            Batching::Shuffled { size, pool } => {
                order.resize(corpus.len(), 0);
                permutation(*seed, epoch, order);
                if *pool <= 1 {
                    cut(corpus, *size, order, 0, batches);
                    return;
                }
                for (number, sentences) in order.chunks_mut(*pool).enumerate() {
                    sentences.sort_unstable_by_key(|&sentence| {
                        let pair = corpus.pair(sentence as usize);
                        let lengths = pair.map(|pair| (pair.source_len(), pair.target.len()));
                        (lengths, sentence)
                    });
                    let first = batches.len();
                    cut(corpus, *size, sentences, number * *pool, batches);
                    shuffle(*seed, epoch, number as u32, &mut batches[first..]);
                }
            }
        }
    }
}

/// Shuffles the batches of pool `pool` with the Fisher-Yates algorithm, as [`permutation`] shuffles sentences, under
/// a key that has no other use.
fn shuffle(seed: u64, epoch: u64, pool: u32, batches: &mut [[u32; 2]]) {
    let philox = Philox::new(seed).branch([4, epoch as u32, (epoch >> 32) as u32, pool]);
    for last in (1..batches.len()).rev() {
        let [low, high, ..] = philox.block([last as u32, 0, 0, 0]);
        let draw = u128::from(low) | u128::from(high) << 32;
        batches.swap(last, ((draw * (last as u128 + 1)) >> 64) as usize);
    }
}

/// Cuts `sentences`, which begin at `start`, into batches.
fn cut(
    corpus: &Corpus,
    size: BatchSize,
    sentences: &[u32],
    start: usize,
    batches: &mut Vec<[u32; 2]>,
) {
    let mut first = 0;
    while first < sentences.len() {
        let rest = &sentences[first..];
        let len = match size {
            BatchSize::Sentences(len) => len,
            BatchSize::Tokens(most) => {
                let mut sums = [0, 0];
                let fitting = rest.iter().take_while(|&&sentence| {
                    if let Some(pair) = corpus.pair(sentence as usize) {
                        sums[0] += pair.source_len();
                        sums[1] += pair.target.len();
                    }
                    sums[0].max(sums[1]) <= most
                });
                fitting.count()
            }
        };
        let end = first + len.clamp(1, rest.len());
        batches.push([(start + first) as u32, (start + end) as u32]);
        first = end;
    }
}
