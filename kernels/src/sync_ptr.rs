//! Memory that several tasks use at once: pointers that may go to other threads. Each task writes its own part, and
//! no task uses memory that another one writes.

use core::marker::PhantomData;
use core::ptr::NonNull;

/// A pointer to exclusively borrowed elements, shared by several tasks. Each task writes its own elements.
pub(crate) struct SharedMut<'a, T = f32> {
    start: *mut T,
    owner: PhantomData<&'a mut [T]>,
}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) const fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), owner: PhantomData }
    }

    /// A pointer to the elements of a view, of which `first` is the first; the caller borrows the view.
    pub(crate) const fn from_first(first: NonNull<T>) -> Self {
        Self { start: first.as_ptr(), owner: PhantomData }
    }

    /// A pointer to elements that the caller borrows, and that no task writes.
    pub(crate) const fn from_read(first: *const T) -> Self {
        Self { start: first.cast_mut(), owner: PhantomData }
    }

    pub(crate) const fn as_ptr(self) -> *mut T {
        self.start
    }

    /// The `len` elements from `start`.
    ///
    /// # Safety
    /// The elements lie in the slice or the view, and are not used through anything else during the lifetime of the
    /// result.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        // SAFETY: the caller's contract.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

impl<T> Clone for SharedMut<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedMut<'_, T> {}

// SAFETY: the value is only a pointer. Reading or writing through it needs `unsafe`, and each such place shows that no
// two threads use the same element; elements of a `Send` type may be used by any thread.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: `&SharedMut` gives only copies of the pointer, which are `Send`.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}
