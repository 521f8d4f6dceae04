//! Counts heap allocations on all threads, so that the examples print the number per token.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and reallocations of the whole program so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::SeqCst)
}

struct Counting;

// SAFETY: every method passes its arguments unchanged to `System`, which fulfills the contract of `GlobalAlloc`;
// counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller fulfills the contract of `GlobalAlloc`. The default implementation is not used, because
        // it would touch every page of a plan.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller fulfills the contract of `GlobalAlloc`, and `pointer` is from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfills the contract of `GlobalAlloc`, and `pointer` is from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
