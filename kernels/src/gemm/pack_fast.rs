//! Whole panels of floats from a matrix that is contiguous one way or the other.

use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Rows of contiguous columns that are asked for before they are needed.
const ROWS_AHEAD: usize = 4;

/// Panels that are copied together from rows: a KiB of each row, and no more streams to write than a CPU
/// follows.
pub(super) const TOGETHER: usize = 4;

/// Rows of a panel that are turned before the next columns of it: what two vectors of columns write to one
/// cache line, they write while it is near.
const TURNED: usize = 512;

/// A whole panel from columns that are contiguous and `stride` apart: a vector of columns after the other, as
/// the hardware follows so many streams, and not a panel of them.
///
/// # Safety
/// `from` is valid for reads of `depth` floats at each of `PANEL` columns, `to` for writes of
/// `depth * PANEL` floats; they do not overlap. If `PAST`, `to` is where a line begins.
#[inline(always)]
pub(super) unsafe fn panel_of_columns<S: SimdF32, const PAST: bool>(
    s: S,
    from: *const f32,
    stride: usize,
    depth: usize,
    to: *mut f32,
) {
    let whole = depth - depth % S::LANES;
    for block in (0..whole).step_by(TURNED) {
        for group in (0..S::PANEL).step_by(S::LANES) {
            for k in (block..whole.min(block + TURNED)).step_by(S::LANES) {
                // SAFETY: LANES columns from the group's first, LANES rows from `k`.
                unsafe {
                    let to = to.add(k * S::PANEL + group);
                    let from = from.add(group * stride + k);
                    if PAST {
                        s.transpose_nontemporal(from, stride, to, S::PANEL);
                    } else {
                        s.transpose(from, stride, to, S::PANEL);
                    }
                }
            }
        }
    }
    for k in whole..depth {
        for column in 0..S::PANEL {
            // SAFETY: `k < depth`.
            unsafe { *to.add(k * S::PANEL + column) = *from.add(column * stride + k) };
        }
    }
}

/// So many whole panels from rows that are contiguous and `stride` apart. The rows that come next and where
/// they go are asked for before: no stream of the hardware's follows steps from row to row.
///
/// # Safety
/// `from` is valid for reads of `panels * PANEL` floats at each of `depth` rows, `to` for writes of
/// `panels * PANEL * depth` floats; they do not overlap. If `PAST`, `to` is where a line begins.
#[inline(always)]
pub(super) unsafe fn panels_of_rows<S: SimdF32, const PAST: bool>(
    s: S,
    from: *const f32,
    stride: usize,
    depth: usize,
    to: *mut f32,
    panels: usize,
) {
    for k in 0..depth {
        for panel in 0..panels {
            let from = from.wrapping_add(k * stride + panel * S::PANEL);
            let to = to.wrapping_add((panel * depth + k) * S::PANEL);
            for line in (0..S::PANEL).step_by(CACHE_LINE_F32) {
                s.prefetch(from.wrapping_add(ROWS_AHEAD.wrapping_mul(stride) + line));
                if !PAST {
                    s.prefetch(to.wrapping_add(ROWS_AHEAD * S::PANEL + line));
                }
            }
            for group in (0..S::PANEL).step_by(S::LANES) {
                // SAFETY: `k < depth`, `panel < panels` and `group + LANES <= PANEL`.
                unsafe {
                    let (to, v) = (to.add(group), s.load(from.add(group)));
                    if PAST { s.store_nontemporal(to, v) } else { s.store(to, v) }
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::gemm::packing::Pack;
    use crate::isa::Isa;
    use crate::matrix::Matrix;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn what_is_written_past_the_caches_is_the_same() {
        for isa in Isa::available() {
            for (depth, columns) in [(1, 64), (17, 150), (40, 192), (550, 330)] {
                let w: Vec<f32> = (0..depth * columns).map(|i| i as f32).collect();
                let by_row = Matrix::new(&w, depth, columns).expect("W");
                let by_column = Matrix::new(&w, columns, depth).expect("W").transposed();
                for block in [by_row, by_column] {
                    let len = columns.next_multiple_of(isa.panel()) * depth;
                    let packed = [false, true].map(|past| {
                        let mut room = vec![f32::NAN; len + 16];
                        let start = room.as_ptr().align_offset(64);
                        let buffer = &mut room[start..start + len];
                        isa.dispatch(Pack { block, columns, first: 0, buffer, past });
                        buffer.to_vec()
                    });
                    assert_eq!(packed[0], packed[1], "{isa}: {depth} x {columns}");
                }
            }
        }
    }
}
