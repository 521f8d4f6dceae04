//! Equal shares of a range.

use core::ops::Range;

/// Part `index` of `0..total` cut into `parts` ranges as equal as can be.
#[inline(always)]
pub(crate) const fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, extra) = (total / parts, total % parts);
    let smaller = if index < extra { index } else { extra };
    let start = index * size + smaller;
    start..start + size + (index < extra) as usize
}
