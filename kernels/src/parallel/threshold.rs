//! The amount of work from which on a kernel uses several threads.

/// `work`, or a small part of it under Miri and in the build for ThreadSanitizer (`--cfg small_tasks`): there small
/// shapes use several threads too, so that these tools check the interaction of threads.
pub(crate) const fn work_to_share(work: usize) -> usize {
    match work >> 12 {
        _ if !cfg!(any(miri, small_tasks)) => work,
        0 => 1,
        less => less,
    }
}
