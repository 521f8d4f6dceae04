//! An allocator that counts calls on every thread.

use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::alloc::{GlobalAlloc, Layout, System};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Calls of the allocator while `work` runs, on all threads.
pub(crate) fn allocations<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = CALLS.load(SeqCst);
    let result = work();
    (CALLS.load(SeqCst) - before, result)
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.fetch_add(1, SeqCst);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
