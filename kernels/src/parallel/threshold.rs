//! From how much work on threads share it.

/// `work`, or a small part of it under Miri and in the build for ThreadSanitizer (`--cfg small_tasks`): small shapes
/// are shared out there as well, so that what threads do to each other is checked.
pub(crate) const fn work_to_share(work: usize) -> usize {
    match work >> 12 {
        _ if !cfg!(any(miri, small_tasks)) => work,
        0 => 1,
        less => less,
    }
}
