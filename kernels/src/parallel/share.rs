//! Equal shares of a range.

use core::ops::Range;

/// Part `index` of `0..total` split into `parts` ranges whose lengths differ by at most 1.
#[inline(always)]
pub(crate) const fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, extra) = (total / parts, total % parts);
    let smaller = if index < extra { index } else { extra };
    let start = index * size + smaller;
    start..start + size + (index < extra) as usize
}
