//! The decoder's memory of keys and values: one cache per layer for its own past, one per layer for
//! the source.
//!
//! Slots are fixed. A hypothesis writes into its own row slot and knows, position by position, which
//! slot holds its past (the ancestry table of the session); the keys and values of the source lie
//! once per sentence and all its hypotheses read them.

use crate::error::KernelError;
use simdformer_kernels::{AttentionError, CacheMut, CacheShape, Isa};

/// Dimensions of all caches of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachesShape {
    pub(crate) isa: Isa,
    pub(crate) layers: usize,
    /// Of one layer's own past: slots are rows.
    pub(crate) own: CacheShape,
    /// Of one layer's view of the source: slots are sentences.
    pub(crate) cross: CacheShape,
}

impl CachesShape {
    /// Floats of the caches of the own past and of the source, all layers.
    pub(crate) fn floats(&self) -> Result<(usize, usize), AttentionError> {
        let all = |shape: CacheShape| {
            shape.len(self.isa)?.checked_mul(self.layers).ok_or(AttentionError::TooLarge)
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
    /// Keys and values of the past in layer `layer`.
    pub(crate) fn own(&mut self, layer: usize) -> Result<CacheMut<'_>, KernelError> {
        let CachesShape { isa, own, .. } = self.shape;
        let len = own.len(isa)?;
        Ok(CacheMut::new(isa, own, &mut self.own[layer * len..][..len])?)
    }

    /// Keys and values of the source in layer `layer`.
    pub(crate) fn cross(&mut self, layer: usize) -> Result<CacheMut<'_>, KernelError> {
        let CachesShape { isa, cross, .. } = self.shape;
        let len = cross.len(isa)?;
        Ok(CacheMut::new(isa, cross, &mut self.cross[layer * len..][..len])?)
    }
}
