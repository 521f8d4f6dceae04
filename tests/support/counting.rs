//! An allocator that counts calls and bytes on every thread except that of the test harness, which prints a
//! message after a minute.

use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::alloc::{GlobalAlloc, Layout, System};

pub(crate) struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The thread that allocated first, which is the harness. No thread, after the harness runs a test itself.
static HARNESS: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number that identifies this thread.
fn here() -> usize {
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

fn count() {
    let harness = HARNESS.load(SeqCst);
    if harness == 0 {
        HARNESS.store(here(), SeqCst);
    }
    if harness != here() {
        CALLS.fetch_add(1, SeqCst);
    }
}

/// Calls of the allocator so far: allocations, reallocations and deallocations.
pub(crate) fn calls() -> usize {
    if HARNESS.load(SeqCst) == here() {
        HARNESS.store(usize::MAX, SeqCst);
    }
    CALLS.load(SeqCst)
}

/// Bytes that are allocated now.
pub(crate) fn bytes() -> usize {
    BYTES.load(SeqCst)
}

/// The largest number of bytes allocated at one time since [`forget_peak`].
pub(crate) fn peak() -> usize {
    PEAK.load(SeqCst)
}

pub(crate) fn forget_peak() {
    PEAK.store(bytes(), SeqCst);
}

fn grown(size: usize) {
    let now = BYTES.fetch_add(size, SeqCst) + size;
    PEAK.fetch_max(now, SeqCst);
}

#[allow(unsafe_code, reason = "an allocator is an unsafe trait")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        grown(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        grown(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        BYTES.fetch_sub(layout.size(), SeqCst);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // Both blocks exist while the bytes are moved.
        grown(size);
        BYTES.fetch_sub(layout.size(), SeqCst);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
