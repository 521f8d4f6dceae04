//! Memory that a thread keeps from one op to the next, so that an op allocates only its result.

use std::cell::Cell;

/// Floats in a cache line, to which the memory is aligned.
const LINE: usize = 16;

thread_local! {
    static SPARE: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Runs `work` with `floats` floats of arbitrary values.
///
/// The memory is taken out of the thread-local variable during the call. If this thread runs another op
/// while `work` waits in a pool, that op allocates its own memory, and the larger of the two is kept.
pub(crate) fn with<R>(floats: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    if floats == 0 {
        return work(&mut []);
    }
    let mut spare = SPARE.take();
    if spare.len() < padded_len(floats) {
        spare = vec![0.0; padded_len(floats)];
    }
    let range = aligned(spare.as_ptr(), floats);
    let result = work(&mut spare[range]);
    let other = SPARE.take();
    SPARE.set(if other.len() > spare.len() { other } else { spare });
    result
}

/// Floats in which `floats` floats can be aligned to a cache line.
pub(crate) const fn padded_len(floats: usize) -> usize {
    floats.saturating_add(LINE)
}

/// The range of `floats` floats aligned to a cache line, in a buffer of [`padded_len`] floats.
pub(crate) fn aligned(start: *const f32, floats: usize) -> std::ops::Range<usize> {
    let skip = start.align_offset(LINE * size_of::<f32>()).min(LINE);
    skip..skip + floats
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn an_op_inside_an_op_has_memory_of_its_own() {
        with(100, |outer| {
            outer.fill(1.0);
            with(1000, |inner| inner.fill(2.0));
            with(10, |inner| inner.fill(3.0));
            assert_eq!(outer, [1.0; 100]);
        });
        let kept = with(1000, |floats| floats.as_ptr());
        assert_eq!(with(10, |floats| floats.as_ptr()), kept);
        assert_eq!(kept as usize % 64, 0);
        assert_eq!(with(0, |floats| floats.len()), 0);
    }
}
