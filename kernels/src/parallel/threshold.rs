//! From how much work on threads share it.

/// `work`, or what Miri gets through in the same time: under it small shapes are shared out as well, so that what
/// threads do to each other is checked there.
pub(crate) const fn work_to_share(work: usize) -> usize {
    match work >> 12 {
        _ if !cfg!(miri) => work,
        0 => 1,
        less => less,
    }
}
