//! The KV caches of the decoder. Each layer has one for self-attention and one for cross-attention.
//!
//! Keys and values do not move. For self-attention, a hypothesis writes each key and value to a KV slot, and the slot
//! table of the session holds that slot for each position. For cross-attention, the keys and values of a source are
//! stored once, and all its hypotheses read them.

use crate::config::{Config, Side, Stack};
use simdformer_kernels::{CacheMut, CacheShape, Dtype, Error as KernelError, Isa};

/// Dimensions of all caches of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachesShape {
    pub(crate) isa: Isa,
    pub(crate) layers: usize,
    /// Self-attention cache of one layer; slots are KV slots.
    pub(crate) own: CacheShape,
    /// Cross-attention cache of one layer; slots are sentences.
    pub(crate) cross: CacheShape,
}

impl CachesShape {
    /// The caches of a decoder of `config` for `hypotheses` of `target_tokens` and `sentences` of `source_tokens`.
    pub(crate) fn new(
        config: &Config,
        (isa, dtype): (Isa, Dtype),
        [hypotheses, target_tokens]: [usize; 2],
        [sentences, source_tokens]: [usize; 2],
    ) -> Self {
        let decoder = config.decoder.unwrap_or(Stack::new(0, 0, 0));
        let head_dim = config.head_dim(Side::Decoder);
        let shape = |slots, capacity| CacheShape {
            dtype,
            ..CacheShape::new(slots, capacity, decoder.heads, head_dim)
        };
        let (own, cross) = (shape(hypotheses, target_tokens), shape(sentences, source_tokens));
        Self { isa, layers: decoder.layers, own, cross }
    }

    /// Floats of the self-attention and the cross-attention caches of all layers.
    pub(crate) fn floats(&self) -> Result<(usize, usize), KernelError> {
        let all = |shape: CacheShape| {
            shape
                .buffer_len(self.isa)?
                .checked_mul(self.layers)
                .ok_or(KernelError::TooLarge { operand: "the KV caches" })
        };
        Ok((all(self.own)?, all(self.cross)?))
    }
}

/// The caches of a session.
pub(crate) struct Caches<'c> {
    pub(crate) shape: CachesShape,
    pub(crate) own: &'c mut [f32],
    pub(crate) cross: &'c mut [f32],
}

impl Caches<'_> {
    /// The self-attention keys and values of layer `layer`.
    pub(crate) fn own(&mut self, layer: usize) -> Result<CacheMut<'_>, KernelError> {
        let CachesShape { isa, own, .. } = self.shape;
        let len = own.buffer_len(isa)?;
        CacheMut::new(isa, own, &mut self.own[layer * len..][..len])
    }

    /// The cross-attention keys and values of layer `layer`.
    pub(crate) fn cross(&mut self, layer: usize) -> Result<CacheMut<'_>, KernelError> {
        let CachesShape { isa, cross, .. } = self.shape;
        let len = cross.buffer_len(isa)?;
        CacheMut::new(isa, cross, &mut self.cross[layer * len..][..len])
    }
}
