//! A tensor in the caller's memory.

use core::fmt;
use std::borrow::Cow;

use super::byte_source::Source;
use super::safetensors_file::{self, Entry, Stored};
use crate::error::Error;
use simdformer_kernels::Dtype;

/// A tensor in the caller's memory, row-major, for
/// [`Checkpoint::from_tensors`](super::Checkpoint::from_tensors). That function checks it, so the fields may
/// have any values.
#[derive(Clone)]
pub struct TensorRef<'t> {
    /// The dtype of the numbers.
    pub dtype: Dtype,
    /// Dimensions, rows first. A linear map is `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// The numbers in row-major order, little-endian as in a safetensors file: as many bytes as `shape` and `dtype`
    /// need, with any alignment.
    pub data: &'t [u8],
}

impl<'t> TensorRef<'t> {
    /// Checks that shape, dtype and number of bytes match.
    pub(super) fn checked(self, name: &str) -> Result<(Source<'t>, Entry), Error> {
        let source = Source::memory(Cow::Borrowed(self.data));
        let entry = safetensors_file::whole(
            &source,
            name,
            Stored::of(&self.dtype.name().to_uppercase()),
            self.shape,
        )?;
        Ok((source, entry))
    }
}

impl fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorRef")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("bytes", &self.data.len())
            .finish()
    }
}
