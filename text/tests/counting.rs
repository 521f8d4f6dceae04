//! An allocator that counts the live bytes of each thread, so that several tests can run at once.
//!
//! Memory that another thread frees is subtracted from that thread.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes that are live. Negative if the thread freed more than it allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The largest number of live bytes since [`most_bytes`] began.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Calls `run` and returns, with its result, the most bytes that were live at once, beside those that were live before.
/// Only allocations of this thread are counted.
pub fn most_bytes<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    MOST.set(before);
    let result = run();
    (result, (MOST.get() - before).unsigned_abs())
}

// SAFETY: every call goes to the allocator of the system; counting accesses no other memory. The thread-local cells need no
// initialization and no destructor, so accessing them allocates nothing and is possible until the thread ends.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get() + layout.size().cast_signed();
        LIVE.set(live);
        MOST.set(MOST.get().max(live));
        // SAFETY: the layout of the caller is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size().cast_signed());
        // SAFETY: `alloc` above returned the pointer for this layout, as the caller guarantees.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
