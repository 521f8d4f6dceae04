//! The memory of a session: the object, its tables and its floats, one after the other in one block of the caller, or the
//! first two in a block of the library.

use crate::errors::Failure;
use crate::sources::sf_hypothesis_tokens;
use core::alloc::Layout;
use core::mem::{MaybeUninit, align_of, size_of};
use simdformer::{Error, Limits, Source, SourceId, StepRow};

/// The alignment of a block, and of the floats in it.
pub(crate) const ALIGNMENT: usize = 64;

/// Places for values that live as long as a call, in the memory of a session. `T` is the type with any lifetimes.
pub(crate) struct Table<T> {
    start: *mut T,
    capacity: usize,
}

impl<T> Table<T> {
    /// Writes `items` into the table. The caller has checked that there are not more than it has places.
    ///
    /// `U` is `T` with lifetimes of its own.
    pub(crate) fn fill<'t, U: Copy>(
        &'t mut self,
        items: impl Iterator<Item = Result<U, Failure>>,
    ) -> Result<&'t mut [U], Failure> {
        const { assert!(size_of::<U>() == size_of::<T>() && align_of::<U>() == align_of::<T>()) };
        // SAFETY: the block has `capacity` places of this size and alignment from `start` on, which only this table uses.
        // `MaybeUninit` asks for no value.
        let places: &'t mut [MaybeUninit<U>] =
            unsafe { core::slice::from_raw_parts_mut(self.start.cast(), self.capacity) };
        let mut count = 0;
        for (place, item) in places.iter_mut().zip(items) {
            place.write(item?);
            count += 1;
        }
        let places = &mut places[..count];
        // SAFETY: the first `count` places were written above.
        Ok(unsafe { &mut *(core::ptr::from_mut(places) as *mut [U]) })
    }
}

/// The tables of a session.
pub(crate) struct Tables {
    /// Of `encode`: the tokens of each source.
    pub(crate) lists: Table<&'static [u32]>,
    /// Of `encode`: the handles.
    pub(crate) sentences: Table<SourceId>,
    /// Of a step.
    pub(crate) rows: Table<StepRow<'static>>,
    /// Of `sf_generate`.
    pub(crate) sources: Table<Source<'static>>,
    /// Of an event.
    pub(crate) hypotheses: Table<sf_hypothesis_tokens>,
}

/// Where the parts of a block are.
pub(crate) struct BlockPlan {
    counts: [usize; 5],
    offsets: [usize; 5],
    /// The first float.
    pub(crate) floats: usize,
    /// Bytes of object and tables.
    pub(crate) head: Layout,
}

impl BlockPlan {
    /// The block of a session whose object has the layout `object`, with `sources` sources in one call.
    pub(crate) fn new(object: Layout, limits: &Limits, sources: usize) -> Result<Self, Failure> {
        let rows = limits.sentences.checked_mul(limits.beams);
        let rows = rows.ok_or(Failure::Core(TOO_LARGE))?;
        let counts = [limits.sentences, limits.sentences, rows, sources, limits.beams];
        let arrays = [
            Layout::array::<&[u32]>(counts[0]),
            Layout::array::<SourceId>(counts[1]),
            Layout::array::<StepRow<'_>>(counts[2]),
            Layout::array::<Source<'_>>(counts[3]),
            Layout::array::<sf_hypothesis_tokens>(counts[4]),
        ];
        let mut offsets = [0; 5];
        let mut head = object.align_to(ALIGNMENT).map_err(|_| Failure::Core(TOO_LARGE))?;
        for (offset, array) in offsets.iter_mut().zip(arrays) {
            let with = array.and_then(|array| head.extend(array));
            (head, *offset) = with.map_err(|_| Failure::Core(TOO_LARGE))?;
        }
        let head = head.pad_to_align();
        Ok(Self { counts, offsets, floats: head.size(), head })
    }

    /// Bytes of the whole block with `floats` floats, from any address on.
    pub(crate) fn bytes(&self, floats: usize) -> Result<usize, Failure> {
        let bytes = floats.checked_mul(size_of::<f32>());
        let bytes = bytes.and_then(|bytes| bytes.checked_add(self.floats + ALIGNMENT - 1));
        bytes.filter(|&bytes| bytes <= isize::MAX as usize).ok_or(Failure::Core(TOO_LARGE))
    }

    /// The tables of the block that starts at `block`.
    ///
    /// # Safety
    /// The block has the bytes of [`Self::head`], and nothing else uses its tables.
    pub(crate) unsafe fn tables(&self, block: *mut u8) -> Tables {
        let [lists, sentences, rows, sources, hypotheses] = self.offsets;
        let counts = self.counts;
        // SAFETY: the offsets are in the block, by the caller's contract.
        unsafe {
            Tables {
                lists: Table { start: block.add(lists).cast(), capacity: counts[0] },
                sentences: Table { start: block.add(sentences).cast(), capacity: counts[1] },
                rows: Table { start: block.add(rows).cast(), capacity: counts[2] },
                sources: Table { start: block.add(sources).cast(), capacity: counts[3] },
                hypotheses: Table { start: block.add(hypotheses).cast(), capacity: counts[4] },
            }
        }
    }
}

/// More than the address space.
pub(crate) const TOO_LARGE: Error = Error::OutOfMemory {
    operand: std::borrow::Cow::Borrowed("the memory of a session"),
    bytes: None,
};
