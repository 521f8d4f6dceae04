//! Encoder inputs: token ids or features.

use simdformer::{Features, Session, SessionError, Source, SourceId};
use std::ops::Range;

/// Sources per call of the encoder.
pub(super) const SOURCES_PER_CALL: usize = 64;

/// The sources of all requests.
pub(crate) enum Sources<'a> {
    Ids(Vec<&'a [u32]>),
    Features(Vec<Features<'a>>),
}

impl<'a> Sources<'a> {
    /// The number of encoder positions of each source.
    pub(crate) fn positions(&self) -> Vec<usize> {
        match self {
            Self::Ids(all) => all.iter().map(|ids| ids.len()).collect(),
            Self::Features(all) => all.iter().map(Features::positions).collect(),
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
        slots: &mut [SourceId],
    ) -> Result<(), SessionError> {
        let mut slots = slots.chunks_mut(SOURCES_PER_CALL);
        match self {
            Self::Ids(all) => all[range]
                .chunks(SOURCES_PER_CALL)
                .zip(&mut slots)
                .try_for_each(|(some, at)| session.encode(some, at)),
            Self::Features(all) => all[range]
                .chunks(SOURCES_PER_CALL)
                .zip(&mut slots)
                .try_for_each(|(some, at)| session.encode_features(some, at)),
        }
    }

    /// The hidden states of the sources of `range`.
    pub(crate) fn encoder_output<'s>(
        &self,
        session: &'s mut Session<'_>,
        range: Range<usize>,
    ) -> Result<&'s [f32], SessionError> {
        match self {
            Self::Ids(all) => session.encoder_output(&all[range]),
            Self::Features(all) => session.encoder_output_of_features(&all[range]),
        }
    }
}
