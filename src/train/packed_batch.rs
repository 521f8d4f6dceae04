//! The concatenated sentences of a pass: ids, shifted targets, positions, and the reduction chunks in which sums over
//! tokens are added.

use super::faults::no_decoder;
use super::limits::TrainLimits;
use crate::config::{Config, Side};
use crate::error::Error;
use crate::input_features::Features;
use crate::input_features::{expected_features, tokens_and_features};
use crate::model::forward::BlockId;
use core::ops::Range;
use simdformer_kernels::Sequence;

/// The largest number of tokens of one side in a reduction chunk of a sum over tokens. A chunk holds whole sentences,
/// or a part of one longer sentence. Gradients are sums of chunks in the order of the sentences. So a batch gives the
/// same bits when it is cut into passes between chunks.
pub const REDUCTION_CHUNK: usize = 512;

/// The number of sentences whose descriptions fit on the stack for one call of an attention kernel.
pub(super) const SENTENCES_PER_CALL: usize = 64;

/// A source and its target: one sentence of a batch.
///
/// ```
/// use simdformer::Features;
/// use simdformer::train::Example;
///
/// let of_ids = Example::new(&[5, 6, 7, 0], &[8, 9, 0], 0);
/// let mel = vec![0.0; 3000 * 80];
/// let of_sound = Example::of_features(Features::new(&mel, 80), &[8, 9, 0], 1);
/// assert_eq!((of_ids.source_len(), of_sound.source_len()), (4, 1500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Example<'a> {
    /// Ids of the source, including its end token; empty if the encoder reads features.
    pub source: &'a [u32],
    /// The input of an encoder that reads features instead of ids. Features have no gradient.
    pub features: Option<Features<'a>>,
    /// Ids of the target, including its end token but not its start token; empty for a model that has only an
    /// encoder. The decoder reads the start token and then all target tokens but the last.
    pub target: &'a [u32],
    /// The index of the sentence in the corpus. Dropout masks are a function of it, so a sentence has the same mask
    /// in any batch.
    pub id: u32,
}

impl<'a> Example<'a> {
    /// An example whose source is ids.
    pub const fn new(source: &'a [u32], target: &'a [u32], id: u32) -> Self {
        Self { source, features: None, target, id }
    }

    /// An example whose source is features.
    pub const fn of_features(features: Features<'a>, target: &'a [u32], id: u32) -> Self {
        Self { source: &[], features: Some(features), target, id }
    }

    /// Tokens of the source, or the number of positions that the encoder computes from the features.
    pub fn source_len(&self) -> usize {
        self.features.as_ref().map_or(self.source.len(), Features::positions)
    }

    /// The source id of each position; zeros for features.
    fn source_ids(&self) -> impl ExactSizeIterator<Item = u32> {
        (0..self.source_len()).map(|index| self.source.get(index).copied().unwrap_or(0))
    }
}

/// One side of the sentences of a pass.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The concatenated input tokens of the stack.
    pub(super) ids: Vec<u32>,
    /// Position of each token in its sentence.
    pub(super) positions: Vec<u32>,
    /// Type of each token: 0.
    pub(super) types: Vec<u32>,
    /// The corpus index of the sentence of each token.
    pub(super) sentences: Vec<u32>,
    /// Tokens of each sentence.
    pub(super) lengths: Vec<u32>,
    /// The ends of the reduction chunks.
    pub(super) chunk_ends: Vec<u32>,
}

impl Lines {
    fn with_capacity(tokens: usize, sentences: usize) -> Self {
        Self {
            ids: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            types: Vec::with_capacity(tokens),
            sentences: Vec::with_capacity(tokens),
            lengths: Vec::with_capacity(sentences),
            chunk_ends: Vec::with_capacity(sentences + tokens / REDUCTION_CHUNK + 1),
        }
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.types.clear();
        self.sentences.clear();
        self.lengths.clear();
        self.chunk_ends.clear();
    }

    pub(super) fn rows(&self) -> usize {
        self.ids.len()
    }

    fn push(&mut self, ids: impl ExactSizeIterator<Item = u32>, id: u32) {
        let len = ids.len() as u32;
        self.ids.extend(ids);
        self.positions.extend(0..len);
        self.types.extend((0..len).map(|_| 0));
        self.sentences.extend((0..len).map(|_| id));
        self.lengths.push(len);
    }

    /// Ends a group of sentences. A single sentence may be longer than a reduction chunk.
    fn end_group(&mut self) {
        let mut start = self.chunk_ends.last().copied().unwrap_or(0);
        let end = self.ids.len() as u32;
        while end > start {
            start = end.min(start + REDUCTION_CHUNK as u32);
            self.chunk_ends.push(start);
        }
    }

    /// The rows of each reduction chunk.
    pub(super) fn chunk_rows(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = core::iter::once(0).chain(self.chunk_ends.iter().copied());
        starts.zip(&self.chunk_ends).map(|(start, &end)| start as usize..end as usize)
    }

    /// Bytes of the allocated capacity.
    fn bytes(&self) -> usize {
        4 * (self.ids.capacity()
            + self.positions.capacity()
            + self.types.capacity()
            + self.lengths.capacity()
            + self.sentences.capacity()
            + self.chunk_ends.capacity())
    }
}

/// The sentences of a pass.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) source: Lines,
    pub(super) target: Lines,
    /// The expected output token at each decoder position.
    pub(super) labels: Vec<u32>,
    /// For each group of sentences, the tokens of both sides before its end. Lookups change sides at these ends.
    pub(super) groups: Vec<[u32; 2]>,
}

impl Batch {
    pub(super) fn with_capacity(limits: &TrainLimits) -> Self {
        let TrainLimits { sentences, source_tokens, target_tokens, .. } = *limits;
        Self {
            source: Lines::with_capacity(source_tokens, sentences),
            target: Lines::with_capacity(target_tokens, sentences),
            labels: Vec::with_capacity(target_tokens),
            groups: Vec::with_capacity(sentences),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.source.bytes()
            + self.target.bytes()
            + 4 * self.labels.capacity()
            + 8 * self.groups.capacity()
    }

    /// Lays out sentences that [`check`] has accepted.
    pub(super) fn lay_out(&mut self, config: &Config, pairs: &[Example<'_>]) {
        self.source.clear();
        self.target.clear();
        self.labels.clear();
        self.groups.clear();
        let mut rest = pairs;
        while !rest.is_empty() {
            let (group, after) = rest.split_at(group_len(rest));
            for pair in group {
                self.source.push(pair.source_ids(), pair.id);
                if let Some((&last, before)) = pair.target.split_last() {
                    // If the config names no start token, the last token, a language, is the first: mBART.
                    let start = config.tokens.decoder_start.unwrap_or(last);
                    let ids = (0..pair.target.len()).map(|i| match i {
                        0 => start,
                        i => before[i - 1],
                    });
                    self.target.push(ids, pair.id);
                    self.labels.extend_from_slice(pair.target);
                }
            }
            self.source.end_group();
            self.target.end_group();
            self.groups.push([self.source.rows() as u32, self.target.rows() as u32]);
            rest = after;
        }
    }

    /// One side.
    pub(super) fn lines(&self, side: Side) -> &Lines {
        match side {
            Side::Encoder => &self.source,
            Side::Decoder => &self.target,
        }
    }

    /// Calls `each` with the sequences of an attention block of one side, some sentences at a time.
    pub(super) fn sequences(
        &self,
        side: Side,
        block: BlockId,
        mut each: impl FnMut(&[Sequence]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let queries = &self.lines(side).lengths;
        let keys = match block {
            BlockId::CrossAttention(_) => &self.source.lengths,
            _ => queries,
        };
        let (mut query_start, mut key_start) = (0, 0);
        let chunks = queries.chunks(SENTENCES_PER_CALL).zip(keys.chunks(SENTENCES_PER_CALL));
        for (queries, keys) in chunks {
            let mut sequences = [Sequence::default(); SENTENCES_PER_CALL];
            for ((sequence, &query_len), &key_len) in sequences.iter_mut().zip(queries).zip(keys) {
                let (query_len, key_len) = (query_len as usize, key_len as usize);
                *sequence =
                    Sequence { query_start, query_len, key_start, key_len, padded_len: key_len };
                (query_start, key_start) = (query_start + query_len, key_start + key_len);
            }
            each(&sequences[..queries.len()])?;
        }
        Ok(())
    }
}

/// The number of leading sentences that form a group: as many as fit one reduction chunk on each side, at least one.
pub(super) fn group_len(pairs: &[Example<'_>]) -> usize {
    let (mut source, mut target) = (0, 0);
    let fits = pairs.iter().take_while(|pair| {
        source += pair.source_len();
        target += pair.target.len();
        source <= REDUCTION_CHUNK && target <= REDUCTION_CHUNK
    });
    fits.count().max(1).min(pairs.len())
}

/// Checks that every sentence can be used for training.
pub(super) fn check(
    config: &Config,
    limits: &TrainLimits,
    pairs: &[Example<'_>],
) -> Result<(), Error> {
    if pairs.is_empty() {
        return Err(Error::invalid_input("a batch", "at least one sentence", "none"));
    }
    let decodes = config.decoder.is_some();
    for (sentence, pair) in pairs.iter().enumerate() {
        let of_ids = check_source(config, pair).map_err(|error| error.with_index(sentence))?;
        let too_long = |side, expected_at_most: usize, found: usize| {
            let expected = format!("at most {expected_at_most} tokens");
            Err(Error::invalid_input(text(side), expected, found).with_index(sentence))
        };
        let sides = [
            (of_ids, Side::Encoder, pair.source, limits.source_length),
            (decodes, Side::Decoder, pair.target, limits.target_length),
        ];
        if !of_ids && pair.source_len() > limits.source_length {
            return too_long(Side::Encoder, limits.source_length, pair.source_len());
        }
        for (_, side, ids, expected_at_most) in sides.into_iter().filter(|(there, ..)| *there) {
            let found = ids.len();
            if found == 0 {
                let empty = Error::invalid_input(text(side), "at least one token", "none");
                return Err(empty.with_index(sentence));
            }
            if found > expected_at_most {
                return too_long(side, expected_at_most, found);
            }
            let vocabulary = config.vocab(side);
            if let Some(at) = ids.iter().position(|&id| id as usize >= vocabulary) {
                let operand = match side {
                    Side::Encoder => "the source, token",
                    Side::Decoder => "the target, token",
                };
                let token = Error::token(operand, Some(at), vocabulary, ids[at]);
                return Err(token.with_index(sentence));
            }
        }
        if !decodes && !pair.target.is_empty() {
            return Err(no_decoder());
        }
    }
    Ok(())
}

fn text(side: Side) -> &'static str {
    match side {
        Side::Encoder => "the source",
        Side::Decoder => "the target",
    }
}

/// Returns whether the source is ids. Fails if the source is not of the kind that the encoder reads, or if the
/// features are invalid.
fn check_source(config: &Config, pair: &Example<'_>) -> Result<bool, Error> {
    let bins = config.bins;
    let Some(features) = &pair.features else {
        return match bins {
            Some(bins) => Err(expected_features(bins)),
            None => Ok(true),
        };
    };
    if !pair.source.is_empty() {
        return Err(tokens_and_features());
    }
    features.check(bins, usize::MAX).map(|()| false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Dimensions;

    fn pair(source: &'static [u32], target: &'static [u32]) -> Example<'static> {
        Example::new(source, target, 7)
    }

    /// The decoder input is the target, shifted by one.
    #[test]
    fn targets_are_shifted_by_one() {
        let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 8, vocabulary: 30 };
        let mut config = Config::transformer(small);
        config.tokens.decoder_start = Some(29);
        let mut batch = Batch::with_capacity(&TrainLimits::new(64, 16));
        let pairs = [pair(&[3, 4, 2], &[9, 8, 2]), pair(&[5], &[2])];
        batch.lay_out(&config, &pairs);
        assert_eq!(batch.target.ids, [29, 9, 8, 29]);
        assert_eq!(batch.labels, [9, 8, 2, 2]);
        assert_eq!(batch.source.ids, [3, 4, 2, 5]);
        assert_eq!(batch.source.positions, [0, 1, 2, 0]);
        assert_eq!(
            (&batch.source.lengths[..], &batch.target.lengths[..]),
            (&[3, 1][..], &[3, 1][..])
        );
        // Without a start token the last token, a language, comes first.
        config.tokens.decoder_start = None;
        batch.lay_out(&config, &[pair(&[3], &[9, 8, 2, 17])]);
        assert_eq!(
            (&batch.target.ids[..], &batch.labels[..]),
            (&[17, 9, 8, 2][..], &[9, 8, 2, 17][..])
        );
    }

    /// Reduction chunks end between sentences, or inside a sentence that is longer than one chunk.
    #[test]
    fn chunks_hold_whole_sentences() {
        let (long, short): (Vec<u32>, Vec<u32>) = (vec![1; 1100], vec![1; 300]);
        let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 8, vocabulary: 30 };
        let mut config = Config::transformer(small);
        config.tokens.decoder_start = Some(0);
        let pairs = [
            Example::new(&short[..200], &short, 0),
            Example::new(&short, &short[..10], 1),
            Example::new(&short[..13], &short[..10], 2),
            Example::new(&long, &short[..10], 3),
            Example::new(&short, &short, 4),
        ];
        let mut batch = Batch::with_capacity(&TrainLimits::new(4096, 2000));
        batch.lay_out(&config, &pairs);
        assert_eq!(batch.source.chunk_ends, [500, 513, 1025, 1537, 1613, 1913]);
        assert_eq!(batch.target.chunk_ends, [310, 320, 330, 630]);
        assert_eq!(batch.groups, [[500, 310], [513, 320], [1613, 330], [1913, 630]]);
        // A pass of whole groups has the same reduction chunks.
        batch.lay_out(&config, &pairs[2..4]);
        assert_eq!(batch.source.chunk_ends, [13, 525, 1037, 1113]);
    }
}
