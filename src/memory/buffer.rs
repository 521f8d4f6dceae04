//! The planned buffer itself: owned or borrowed, and views of its floats.

use super::arena::{CACHE_LINE_F32, MemoryError};
use core::fmt;

/// Buffers of at least this many bytes are mapped directly, with huge pages if the system has them.
#[cfg(target_os = "linux")]
const MIN_MMAP_BYTES: usize = 4 << 20;

/// The planned floats: owned, or borrowed from the caller.
pub(crate) enum Buffer<'a> {
    /// A vector with padding, so that `start` can be at a cache line.
    Owned { memory: Vec<f32>, start: usize, floats: usize },
    /// A mapping from the system.
    #[cfg(target_os = "linux")]
    Pages { memory: memmap2::MmapMut, floats: usize },
    /// The caller's buffer.
    Borrowed(&'a mut [f32]),
}

impl<'a> Buffer<'a> {
    /// `floats` zeros that start on a cache line.
    pub(crate) fn owned(floats: usize) -> Result<Self, MemoryError> {
        let out_of_memory = || MemoryError::OutOfMemory { bytes: floats.saturating_mul(4) };
        #[cfg(target_os = "linux")]
        if floats >= MIN_MMAP_BYTES / size_of::<f32>() {
            let bytes = floats.checked_mul(size_of::<f32>()).ok_or_else(out_of_memory)?;
            let memory = memmap2::MmapMut::map_anon(bytes).map_err(|_| out_of_memory())?;
            // If this fails, the buffer is only slower.
            let _ = memory.advise(memmap2::Advice::HugePage);
            return Ok(Self::Pages { memory, floats });
        }
        let padded = floats.checked_add(CACHE_LINE_F32 - 1).ok_or_else(out_of_memory)?;
        let memory = zeros(padded).map_err(|_| out_of_memory())?;
        // `align_offset` may fail; then the buffer is only slower.
        let start =
            memory.as_ptr().align_offset(CACHE_LINE_F32 * size_of::<f32>()).min(CACHE_LINE_F32 - 1);
        Ok(Self::Owned { memory, start, floats })
    }

    /// An empty buffer.
    pub(crate) fn empty() -> Self {
        Self::Borrowed(&mut [])
    }

    pub(crate) fn floats(&self) -> &[f32] {
        match self {
            Self::Owned { memory, start, floats } => &memory[*start..start + floats],
            #[cfg(target_os = "linux")]
            Self::Pages { memory, floats } => &bytemuck::cast_slice(memory)[..*floats],
            Self::Borrowed(memory) => memory,
        }
    }

    pub(crate) fn floats_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Owned { memory, start, floats } => &mut memory[*start..*start + *floats],
            #[cfg(target_os = "linux")]
            Self::Pages { memory, floats } => &mut bytemuck::cast_slice_mut(memory)[..*floats],
            Self::Borrowed(memory) => memory,
        }
    }
}

impl fmt::Debug for Buffer<'_> {
    /// Prints the size and the owner, not the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self {
            Self::Borrowed(_) => "borrowed",
            _ => "owned",
        };
        write!(f, "{} floats, {owner}", self.floats().len())
    }
}

/// A vector of `floats` zeros. The system maps zero pages, which use memory only after the first write. A failed
/// allocation returns an error instead of aborting the process.
pub(crate) fn zeros(floats: usize) -> Result<Vec<f32>, MemoryError> {
    let bytes = floats.saturating_mul(size_of::<f32>());
    bytemuck::try_zeroed_vec(floats).map_err(|()| MemoryError::OutOfMemory { bytes })
}

/// Reinterprets floats as bytes.
pub(crate) fn bytes(floats: &[f32]) -> &[u8] {
    bytemuck::cast_slice(floats)
}

/// Reinterprets floats as bytes.
pub(crate) fn bytes_mut(floats: &mut [f32]) -> &mut [u8] {
    bytemuck::cast_slice_mut(floats)
}
