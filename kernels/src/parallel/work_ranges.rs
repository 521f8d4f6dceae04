//! Equal shares of a range, and the work from which on it is shared.

use core::ops::Range;

/// Part `index` of `0..total` split into `parts` ranges whose lengths differ by at most 1.
#[inline(always)]
pub(crate) const fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, extra) = (total / parts, total % parts);
    let smaller = if index < extra { index } else { extra };
    let start = index * size + smaller;
    start..start + size + (index < extra) as usize
}

/// `work`, or a small part of it under Miri and in the build for ThreadSanitizer (`--cfg small_tasks`): there small
/// shapes use several threads too, so that these tools check the interaction of threads.
pub(crate) const fn work_to_share(work: usize) -> usize {
    match work >> 12 {
        _ if !cfg!(any(miri, small_tasks)) => work,
        0 => 1,
        less => less,
    }
}
