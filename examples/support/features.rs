//! What an encoder reads: ids from the lines of `generate`, or features from a file.

use super::SOURCES_PER_CALL;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use simdformer::{Features, Sentence, Session, SessionError, Source};
use std::ops::Range;
use std::path::Path;

/// The sources of all requests.
pub(crate) enum Inputs<'a> {
    Ids(Vec<&'a [u32]>),
    Features(Vec<Features<'a>>),
}

impl<'a> Inputs<'a> {
    /// Positions of each in the encoder.
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

    /// Encodes the sources of `range`, as many at a time as decoding does.
    pub(crate) fn encode(
        &self,
        session: &mut Session<'_>,
        range: Range<usize>,
        slots: &mut [Sentence],
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

    pub(crate) fn memory<'s>(
        &self,
        session: &'s mut Session<'_>,
        range: Range<usize>,
    ) -> Result<&'s [f32], SessionError> {
        match self {
            Self::Ids(all) => session.memory(&all[range]),
            Self::Features(all) => session.memory_of_features(&all[range]),
        }
    }
}

/// The tensors `features.{i}`, `[frames, bins]`, of a safetensors file, one for each of so many lines, and the numbers in
/// their frames.
pub(crate) fn read(path: &Path, lines: usize) -> Result<Vec<(Vec<f32>, usize)>, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let file = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&file).map_err(|error| wrong(error.to_string()))?;
    let found = tensors.len();
    if found != lines {
        return Err(wrong(format!("expected a tensor for each of {lines} lines, found {found}")));
    }
    let one = |index| {
        let name = format!("features.{index}");
        let tensor = tensors.tensor(&name).map_err(|_| wrong(format!("{name} is missing")))?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let (Dtype::F32, &[_, bins]) = (dtype, shape) else {
            let expected = "expected F32 [frames, bins]";
            return Err(wrong(format!("{name}: {expected}, found {dtype} {shape:?}")));
        };
        let numbers =
            tensor.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        Ok((numbers.collect(), bins))
    };
    (0..lines).map(one).collect()
}
