//! The planned buffer itself: owned or borrowed, and views of its floats.

use super::arena::{CACHE_LINE_F32, MemoryError};
use core::fmt;
use core::panic::RefUnwindSafe;
use std::sync::Arc;

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
    /// Memory that is only read: from byte `start` on.
    Shared { memory: SharedBytes, start: usize, floats: usize },
}

/// Bytes that several owners share.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync + RefUnwindSafe>;

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

    /// The `floats` floats from byte `start` of `memory` on. `None` if they do not start on a cache line, or if there are
    /// not as many.
    pub(crate) fn shared(memory: SharedBytes, start: usize, floats: usize) -> Option<Self> {
        let line = CACHE_LINE_F32 * size_of::<f32>();
        let found = shared_floats(&memory, start, floats);
        let usable = found.len() == floats && found.as_ptr().align_offset(line) == 0;
        usable.then_some(Self::Shared { memory, start, floats })
    }

    /// Replaces memory that is only read by a copy.
    #[cfg(any(test, feature = "train"))]
    pub(crate) fn own(&mut self) -> Result<(), MemoryError> {
        if let Self::Shared { memory, start, floats } = &*self {
            let mut copy = Self::owned(*floats)?;
            let found = shared_floats(memory, *start, *floats);
            copy.floats_mut()[..found.len()].copy_from_slice(found);
            *self = copy;
        }
        Ok(())
    }

    /// Whether the memory is only read.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// The floats. Empty if the owner of shared memory now returns other bytes than at first.
    pub(crate) fn floats(&self) -> &[f32] {
        match self {
            Self::Owned { memory, start, floats } => &memory[*start..start + floats],
            #[cfg(target_os = "linux")]
            Self::Pages { memory, floats } => &bytemuck::cast_slice(memory)[..*floats],
            Self::Borrowed(memory) => memory,
            Self::Shared { memory, start, floats } => shared_floats(memory, *start, *floats),
        }
    }

    /// The floats, to be written. None of shared memory; see [`Buffer::own`].
    pub(crate) fn floats_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Owned { memory, start, floats } => &mut memory[*start..*start + *floats],
            #[cfg(target_os = "linux")]
            Self::Pages { memory, floats } => &mut bytemuck::cast_slice_mut(memory)[..*floats],
            Self::Borrowed(memory) => memory,
            Self::Shared { .. } => &mut [],
        }
    }
}

/// The floats in `memory` from byte `start` on. Its owner is safe code that may return other bytes at each call, so each
/// call is checked.
fn shared_floats(memory: &SharedBytes, start: usize, floats: usize) -> &[f32] {
    let range = floats.checked_mul(size_of::<f32>()).and_then(|bytes| start.checked_add(bytes));
    let bytes = range.and_then(|end| (**memory).as_ref().get(start..end));
    bytes.and_then(|bytes| bytemuck::try_cast_slice(bytes).ok()).unwrap_or(&[])
}

impl fmt::Debug for Buffer<'_> {
    /// Prints the size and the owner, not the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self {
            Self::Borrowed(_) => "borrowed",
            Self::Shared { .. } => "shared",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared memory is never written; a copy of it can be.
    #[test]
    fn shared_memory_is_copied_before_it_is_written() {
        let bytes: Vec<u8> = (0..8 * 64).map(|byte| byte as u8 & 15).collect();
        let start = bytes.as_ptr().align_offset(64);
        let memory: SharedBytes = Arc::new(bytes);
        let mut buffer = Buffer::shared(memory.clone(), start, 32).expect("aligned");
        assert!(buffer.is_shared() && buffer.floats_mut().is_empty());
        let before = buffer.floats().to_vec();
        buffer.own().expect("a copy");
        assert!(!buffer.is_shared() && buffer.floats() == before);
        buffer.floats_mut().fill(1.0);
        assert_eq!(buffer.floats(), [1.0; 32]);
        assert!(Buffer::shared(memory.clone(), start, 32).expect("aligned").floats() == before);
        // Not on a cache line, or too short, or beyond all addresses.
        for (start, floats) in [(start + 4, 16), (start + 1, 16), (start, 129), (usize::MAX, 16)] {
            assert!(Buffer::shared(memory.clone(), start, floats).is_none(), "{start} {floats}");
        }
    }
}
