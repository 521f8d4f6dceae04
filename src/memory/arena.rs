//! Arenas: the ranges of one planned buffer, declared once.
//!
//! [`arena!`](crate::memory::arena) takes a list of buffers with their types and sizes. It generates the struct of
//! their ranges, which is the plan, and the struct of their views, which are typed and disjoint.

use bytemuck::Pod;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

/// Floats in a cache line. Every range starts at a multiple of it, from the start of the buffer.
pub(super) const CACHE_LINE_F32: usize = 16;

/// Why memory could not be planned or allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryError {
    /// The memory does not fit the address space.
    TooLarge,
    /// The system cannot allocate it.
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
}

/// Assigns ranges of a buffer and counts its floats.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    next: usize,
}

impl Planner {
    /// A range of `floats` floats (or 4-byte words) that is disjoint from all others.
    pub(crate) fn take(&mut self, floats: usize) -> Result<Range<usize>, MemoryError> {
        let start = self.next;
        let end = start.checked_add(floats).ok_or(MemoryError::TooLarge)?;
        self.next = end.checked_next_multiple_of(CACHE_LINE_F32).ok_or(MemoryError::TooLarge)?;
        if self.next > isize::MAX as usize / 8 {
            return Err(MemoryError::TooLarge);
        }
        Ok(start..end)
    }

    /// A range of `a * b` floats.
    #[cfg(feature = "train")]
    pub(crate) fn take_product(&mut self, a: usize, b: usize) -> Result<Range<usize>, MemoryError> {
        self.take(a.checked_mul(b).ok_or(MemoryError::TooLarge)?)
    }

    /// A span whose length is the product of `factors`.
    pub(crate) fn span<T>(&mut self, factors: &[usize]) -> Result<Span<T>, MemoryError> {
        let len = factors.iter().try_fold(1usize, |len, &factor| len.checked_mul(factor));
        Ok(Span { range: self.take(len.ok_or(MemoryError::TooLarge)?)?, element: PhantomData })
    }

    /// Floats of all ranges, including the padding between them.
    pub(crate) fn floats(&self) -> usize {
        self.next
    }
}

/// A range of a planned buffer whose elements are of the 4-byte type `T`.
#[derive(Clone, Debug)]
pub(crate) struct Span<T> {
    range: Range<usize>,
    element: PhantomData<T>,
}

impl<T: Pod> Span<T> {
    /// The elements of this span in the planned buffer.
    pub(crate) fn slice_of<'m>(&self, buffer: &'m [f32]) -> &'m [T] {
        bytemuck::cast_slice(&buffer[self.range.clone()])
    }

    /// As [`Span::slice_of`], mutable.
    pub(crate) fn slice_of_mut<'m>(&self, buffer: &'m mut [f32]) -> &'m mut [T] {
        bytemuck::cast_slice_mut(&mut buffer[self.range.clone()])
    }

    /// Bytes of the span and of the padding after it.
    pub(crate) fn bytes(&self) -> usize {
        self.range.len().next_multiple_of(CACHE_LINE_F32) * size_of::<f32>()
    }
}

/// Splits spans off a buffer, in the order in which they were planned; spans may be left out.
pub(crate) struct Splitter<'m> {
    rest: &'m mut [u32],
    start: usize,
}

impl<'m> Splitter<'m> {
    /// A splitter of a buffer of 4-byte elements.
    pub(crate) fn new(buffer: &'m mut [impl Pod]) -> Self {
        Self { rest: bytemuck::cast_slice_mut(buffer), start: 0 }
    }

    /// The elements of the next span. An error if the buffer is shorter than planned.
    pub(crate) fn next<T: Pod>(&mut self, span: &Span<T>) -> Result<&'m mut [T], MemoryError> {
        let Range { start, end } = span.range;
        let rest = core::mem::take(&mut self.rest).split_at_mut_checked(end - self.start);
        let (part, rest) = rest.ok_or(MemoryError::TooLarge)?;
        let part = &mut part[start - self.start..];
        (self.rest, self.start) = (rest, end);
        Ok(bytemuck::cast_slice_mut(part))
    }
}

/// Declares the buffers of an arena: `name: type = [factors of its length];`, where the factors read the value named in
/// the head. Generates
///
/// - a struct of their ranges, with `new`, which plans them, and `len`, the length of the arena;
/// - a struct of their views, which `split` makes of a buffer.
///
/// If the buffers are grouped under titles, `parts` returns the bytes of each group.
macro_rules! arena {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Ranges:ident, $Views:ident($sizes:ident: &$Sizes:ty) {
            $($title:literal {
                $($(#[$doc:meta])* $name:ident: $element:ty = $factors:expr;)*
            })*
        }
    ) => {
        $crate::memory::arena! {
            $(#[$meta])*
            $vis struct $Ranges, $Views($sizes: &$Sizes) {
                $($($(#[$doc])* $name: $element = $factors;)*)*
            }
        }

        impl $Ranges {
            /// The title and the bytes of each group; their sum is the size of the arena.
            $vis fn parts(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$(($title, 0 $(+ self.$name.bytes())*)),*].into_iter()
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $Ranges:ident, $Views:ident($sizes:ident: &$Sizes:ty) {
            $($(#[$doc:meta])* $name:ident: $element:ty = $factors:expr;)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $Views<'m> {
            $($(#[$doc])* $vis $name: &'m mut [$element],)*
        }

        /// The ranges of the buffers.
        #[derive(Clone, Debug)]
        $vis struct $Ranges {
            $($vis $name: $crate::memory::Span<$element>,)*
            planned: usize,
        }

        impl $Ranges {
            /// Plans the buffers one after the other.
            $vis fn new($sizes: &$Sizes) -> Result<Self, $crate::memory::MemoryError> {
                let mut planner = $crate::memory::Planner::default();
                $(let $name = planner.span(&$factors)?;)*
                Ok(Self { $($name,)* planned: planner.floats() })
            }

            /// Elements of all buffers, with the padding between them.
            $vis const fn len(&self) -> usize {
                self.planned
            }

            /// Divides the planned buffer. An error if it is shorter than planned.
            $vis fn split<'m>(
                &self,
                buffer: &'m mut [impl bytemuck::Pod],
            ) -> Result<$Views<'m>, $crate::memory::MemoryError> {
                let mut splitter = $crate::memory::Splitter::new(buffer);
                Ok($Views { $($name: splitter.next(&self.$name)?),* })
            }
        }
    };
}

pub(crate) use arena;

/// A table of bytes: one line for each part of more than 0 bytes, and a last line with their sum.
pub(crate) struct ByteTable<'t> {
    pub(crate) lines: &'t [(&'static str, usize)],
}

impl fmt::Display for ByteTable<'_> {
    /// Every line except the last ends in a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.lines.iter().map(|&(_, bytes)| bytes).sum();
        for &(what, bytes) in self.lines.iter().filter(|&&(_, bytes)| bytes > 0) {
            let percent = 100.0 * bytes as f64 / total as f64;
            writeln!(f, "{bytes:>15}  {percent:>5.1} %  {what}")?;
        }
        write!(f, "{total:>15}  bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    arena! {
        /// Two buffers of an arena.
        struct Ranges, Views(rows: &usize) {
            "ids" {
                ids: u32 = [*rows];
            }
            "matrices" {
                empty: f32 = [0];
                matrix: f32 = [*rows, 3];
            }
        }
    }

    #[test]
    fn an_arena_is_planned_and_split_by_one_list() {
        let ranges = Ranges::new(&5).expect("a plan");
        assert_eq!(ranges.len(), 32);
        assert_eq!(ranges.parts().collect::<Vec<_>>(), [("ids", 64), ("matrices", 64)]);
        let mut buffer = [0.0f32; 32];
        let views = ranges.split(&mut buffer).expect("a buffer");
        assert_eq!((views.ids.len(), views.empty.len(), views.matrix.len()), (5, 0, 15));
        views.ids.fill(7);
        views.matrix.fill(2.0);
        assert_eq!(
            (ranges.ids.slice_of(&buffer)[4], ranges.matrix.slice_of(&buffer)[14]),
            (7, 2.0)
        );
        assert!(ranges.split(&mut [0u32; 30]).is_err());
        assert!(Ranges::new(&usize::MAX).is_err());
    }

    #[test]
    fn a_part_of_zero_bytes_has_no_line() {
        let lines = [("weights", 300), ("nothing", 0), ("the rest", 100)];
        assert_eq!(
            ByteTable { lines: &lines }.to_string(),
            "            300   75.0 %  weights\n            100   25.0 %  the rest\n            400  bytes"
        );
        assert_eq!(ByteTable { lines: &[] }.to_string(), "              0  bytes");
    }
}
