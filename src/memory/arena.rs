//! Planned memory: one buffer, cut into named ranges before anything runs.

use super::error::MemoryError;
use core::fmt;
use core::ops::Range;

/// Floats in a cache line. Every range starts on one, counted from the start of the buffer.
const LINE: usize = 16;

/// Counts floats and hands out ranges.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    next: usize,
}

impl Planner {
    /// A range of `floats` floats (or words of 4 bytes) that overlaps no other.
    pub(crate) fn take(&mut self, floats: usize) -> Result<Range<usize>, MemoryError> {
        let start = self.next;
        let end = start.checked_add(floats).ok_or(MemoryError::TooLarge)?;
        self.next = end.checked_next_multiple_of(LINE).ok_or(MemoryError::TooLarge)?;
        if self.next > isize::MAX as usize / 8 {
            return Err(MemoryError::TooLarge);
        }
        Ok(start..end)
    }

    /// A range of `a * b` floats.
    pub(crate) fn take_product(&mut self, a: usize, b: usize) -> Result<Range<usize>, MemoryError> {
        self.take(a.checked_mul(b).ok_or(MemoryError::TooLarge)?)
    }

    /// Floats handed out, padding between ranges included.
    pub(crate) fn floats(&self) -> usize {
        self.next
    }
}

/// Bytes from which a buffer is asked for as pages of its own, huge where the system has them.
#[cfg(target_os = "linux")]
const PAGES_FROM: usize = 4 << 20;

/// The planned floats: owned, or borrowed from the caller.
pub(crate) enum Buffer<'a> {
    /// With room to start on a cache line.
    Owned { memory: Vec<f32>, start: usize, floats: usize },
    /// Pages from the system.
    #[cfg(target_os = "linux")]
    Pages { memory: memmap2::MmapMut, floats: usize },
    /// Exactly what the caller lent.
    Borrowed(&'a mut [f32]),
}

impl<'a> Buffer<'a> {
    /// `floats` zeros that start on a cache line.
    pub(crate) fn owned(floats: usize) -> Result<Self, MemoryError> {
        let refused = || MemoryError::OutOfMemory { bytes: floats.saturating_mul(4) };
        #[cfg(target_os = "linux")]
        if floats >= PAGES_FROM / size_of::<f32>() {
            let bytes = floats.checked_mul(size_of::<f32>()).ok_or_else(refused)?;
            let memory = memmap2::MmapMut::map_anon(bytes).map_err(|_| refused())?;
            // A wish: without huge pages the buffer is only slower.
            let _ = memory.advise(memmap2::Advice::HugePage);
            return Ok(Self::Pages { memory, floats });
        }
        let padded = floats.checked_add(LINE - 1).ok_or_else(refused)?;
        let memory = zeros(padded).map_err(|_| refused())?;
        // `align_offset` may decline to answer; then the buffer is only slower.
        let start = memory.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE - 1);
        Ok(Self::Owned { memory, start, floats })
    }

    /// No memory.
    pub(crate) fn nothing() -> Self {
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
    /// How much and whose, never what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self {
            Self::Borrowed(_) => "borrowed",
            _ => "owned",
        };
        write!(f, "{} floats, {owner}", self.floats().len())
    }
}

/// A vector of `floats` zeros. The system gives pages of zeros, which take memory when they are written to; if it refuses,
/// that is an error and not the end of the process.
pub(crate) fn zeros(floats: usize) -> Result<Vec<f32>, MemoryError> {
    let bytes = floats.saturating_mul(size_of::<f32>());
    bytemuck::try_zeroed_vec(floats).map_err(|()| MemoryError::OutOfMemory { bytes })
}

/// Disjoint parts of the planned memory.
pub(crate) fn cut<'b, const N: usize>(
    buffer: &'b mut Buffer<'_>,
    ranges: [&Range<usize>; N],
) -> Result<[&'b mut [f32]; N], MemoryError> {
    let parts = buffer.floats_mut().get_disjoint_mut(ranges.map(Clone::clone));
    // The planner hands out disjoint ranges.
    parts.map_err(|_| MemoryError::TooLarge)
}

/// The same memory as bytes.
pub(crate) fn bytes(floats: &[f32]) -> &[u8] {
    bytemuck::cast_slice(floats)
}

/// The same memory as bytes.
pub(crate) fn bytes_mut(floats: &mut [f32]) -> &mut [u8] {
    bytemuck::cast_slice_mut(floats)
}

/// The same memory as words of 4 bytes.
pub(crate) fn words(floats: &[f32]) -> &[u32] {
    bytemuck::cast_slice(floats)
}

/// The same memory as words of 4 bytes.
pub(crate) fn words_mut(floats: &mut [f32]) -> &mut [u32] {
    bytemuck::cast_slice_mut(floats)
}
