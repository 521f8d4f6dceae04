//! Encoder inputs: token ids or features.

use simdformer::{Error, Features, Session, Source, SourceId};
use std::ops::Range;

/// Sources per call of the encoder.
const SOURCES_PER_CALL: usize = 64;

/// The sources of all requests.
pub(crate) enum Sources<'a> {
    Ids(Vec<&'a [u32]>),
    Features(Vec<Features<'a>>),
}

impl<'a> Sources<'a> {
    /// The number of encoder positions of the longest source, at least 1.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Self::Ids(all) => all.iter().map(|ids| ids.len()).max(),
            Self::Features(all) => all.iter().map(Features::positions).max(),
        }
        .unwrap_or(1)
    }

    fn positions(&self, index: usize) -> usize {
        match self {
            Self::Ids(all) => all[index].len(),
            Self::Features(all) => all[index].positions(),
        }
    }

    pub(crate) fn source(&self, index: usize) -> Source<'a> {
        match self {
            Self::Ids(all) => Source::new(all[index]),
            Self::Features(all) => Source::of_features(all[index]),
        }
    }

    /// Encodes the sources of `range`, in the batch size that decoding uses.
    pub(crate) fn encode(
        &self,
        session: &mut Session<'_>,
        range: Range<usize>,
        mut slots: &mut [SourceId],
    ) -> Result<(), Error> {
        let mut first = range.start;
        while first < range.end {
            let end = self.batch_end(session, first..range.end);
            let (at, rest) = slots.split_at_mut(end - first);
            match self {
                Self::Ids(all) => session.encode(&all[first..end], at)?,
                Self::Features(all) => session.encode_features(&all[first..end], at)?,
            }
            (first, slots) = (end, rest);
        }
        Ok(())
    }

    /// The end of the sources of `range` that one call of the encoder takes.
    pub(crate) fn batch_end(&self, session: &Session<'_>, range: Range<usize>) -> usize {
        let most = session.plan().limits().batch_tokens;
        let mut tokens = 0;
        let fits = range.clone().take(SOURCES_PER_CALL).take_while(|&index| {
            tokens += self.positions(index);
            tokens <= most
        });
        range.start + fits.count().max(1)
    }

    /// The hidden states of the sources of `range`.
    pub(crate) fn encoder_output<'s>(
        &self,
        session: &'s mut Session<'_>,
        range: Range<usize>,
    ) -> Result<&'s [f32], Error> {
        match self {
            Self::Ids(all) => session.encoder_output(&all[range]),
            Self::Features(all) => session.encoder_output_of_features(&all[range]),
        }
    }
}
