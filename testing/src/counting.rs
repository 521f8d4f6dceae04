//! An allocator that counts. A program uses it with
//! `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator;`.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::alloc::{GlobalAlloc, Layout, System};

/// Counts calls and bytes, and passes every call to the system's allocator.
pub struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The thread that allocated first, which is the harness. No thread, after the harness runs a test itself.
static HARNESS: AtomicUsize = AtomicUsize::new(0);

// They need no initialization and no destructor, so accessing them allocates nothing and is possible until the thread ends.
thread_local! {
    static HERE: u8 = const { 0 };
    /// Allocations and reallocations of this thread.
    static ALLOCATIONS_HERE: Cell<u64> = const { Cell::new(0) };
    /// Bytes that are live. Negative if the thread freed more than it allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The largest number of live bytes since [`most_bytes`] began.
    static MOST: Cell<isize> = const { Cell::new(0) };
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

fn count_allocation() {
    ALLOCATIONS.fetch_add(1, SeqCst);
    ALLOCATIONS_HERE.set(ALLOCATIONS_HERE.get() + 1);
}

/// Allocations and reallocations of all threads so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(SeqCst)
}

/// Allocations and reallocations of this thread so far.
pub fn allocations_here() -> u64 {
    ALLOCATIONS_HERE.get()
}

/// Calls of the allocator so far: allocations, reallocations and deallocations of every thread except that of the test
/// harness, which prints a message after a minute.
pub fn calls() -> usize {
    if HARNESS.load(SeqCst) == here() {
        HARNESS.store(usize::MAX, SeqCst);
    }
    CALLS.load(SeqCst)
}

/// Bytes that are allocated now.
pub fn bytes() -> usize {
    BYTES.load(SeqCst)
}

/// The largest number of bytes allocated at one time since [`forget_peak`].
pub fn peak() -> usize {
    PEAK.load(SeqCst)
}

pub fn forget_peak() {
    PEAK.store(bytes(), SeqCst);
}

/// Calls `run` and returns, with its result, the most bytes that were live at once, beside those that were live before.
/// Only allocations of this thread are counted, so several tests can run at once; memory that another thread frees is
/// subtracted from that thread.
pub fn most_bytes<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    MOST.set(before);
    let result = run();
    (result, (MOST.get() - before).unsigned_abs())
}

fn grow(size: usize) {
    let now = BYTES.fetch_add(size, SeqCst) + size;
    PEAK.fetch_max(now, SeqCst);
    let live = LIVE.get() + size.cast_signed();
    LIVE.set(live);
    MOST.set(MOST.get().max(live));
}

fn shrink(size: usize) {
    BYTES.fetch_sub(size, SeqCst);
    LIVE.set(LIVE.get() - size.cast_signed());
}

#[allow(unsafe_code, reason = "an allocator is an unsafe trait")]
// SAFETY: every call goes to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        count();
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    // The default implementation would touch every page of a plan.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        count();
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocation();
        count();
        // Both blocks exist while the bytes are moved.
        grow(size);
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
