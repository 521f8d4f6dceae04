//! Packs whole f32 panels from a matrix with contiguous rows or contiguous columns.

use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Rows between the prefetch of a row and its use, for contiguous rows.
const PREFETCH_ROWS: usize = 4;

/// Panels that are packed in one pass over contiguous rows: one KiB of each row, and no more write streams than the
/// hardware prefetcher tracks.
pub(super) const PANELS_PER_PASS: usize = 4;

/// Rows of a panel that are transposed before the next vector of columns. Two vectors of columns write to one cache
/// line, and the line is then still in a cache.
const TRANSPOSE_ROWS: usize = 512;

/// Packs one panel from contiguous columns, `stride` floats apart. It reads one vector of columns after another,
/// because the hardware prefetcher tracks that many streams but not a whole panel of them.
///
/// # Safety
/// `from` is valid for reads of `depth` floats at each of `PANEL` columns, and `to` for writes of `depth * PANEL`
/// floats; they do not overlap. If `NONTEMPORAL`, `to` is aligned to a cache line.
#[inline(always)]
pub(super) unsafe fn panel_of_columns<S: SimdF32, const NONTEMPORAL: bool>(
    s: S,
    from: *const f32,
    stride: usize,
    depth: usize,
    to: *mut f32,
) {
    let whole = depth - depth % S::LANES;
    for block in (0..whole).step_by(TRANSPOSE_ROWS) {
        for group in (0..S::PANEL).step_by(S::LANES) {
            for k in (block..whole.min(block + TRANSPOSE_ROWS)).step_by(S::LANES) {
                // SAFETY: `# Safety` of this function: LANES columns from `group` (below `PANEL`) and LANES rows from
                // `k` (below `whole`).
                unsafe {
                    let to = to.add(k * S::PANEL + group);
                    let from = from.add(group * stride + k);
                    if NONTEMPORAL {
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
            // SAFETY: `# Safety` of this function: `k < depth` and `column < PANEL`.
            unsafe { *to.add(k * S::PANEL + column) = *from.add(column * stride + k) };
        }
    }
}

/// Packs `panels` whole panels from contiguous rows, `stride` floats apart. It prefetches the next rows and their
/// places in the panels, because the hardware prefetcher does not follow steps from row to row.
///
/// # Safety
/// `from` is valid for reads of `panels * PANEL` floats at each of `depth` rows, and `to` for writes of
/// `panels * PANEL * depth` floats; they do not overlap. If `NONTEMPORAL`, `to` is aligned to a cache line.
#[inline(always)]
pub(super) unsafe fn panels_of_rows<S: SimdF32, const NONTEMPORAL: bool>(
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
                s.prefetch(from.wrapping_add(PREFETCH_ROWS.wrapping_mul(stride) + line));
                if !NONTEMPORAL {
                    s.prefetch(to.wrapping_add(PREFETCH_ROWS * S::PANEL + line));
                }
            }
            for group in (0..S::PANEL).step_by(S::LANES) {
                // SAFETY: `# Safety` of this function: `k < depth`, `panel < panels` and `group + LANES <= PANEL`.
                unsafe {
                    let (to, v) = (to.add(group), s.load(from.add(group)));
                    if NONTEMPORAL { s.store_nontemporal(to, v) } else { s.store(to, v) }
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
    fn nontemporal_stores_pack_the_same_floats() {
        for isa in Isa::available() {
            for (depth, columns) in [(1, 64), (17, 150), (40, 192), (550, 330)] {
                let w: Vec<f32> = (0..depth * columns).map(|i| i as f32).collect();
                let by_row = Matrix::new(&w, depth, columns).expect("W");
                let by_column = Matrix::new(&w, columns, depth).expect("W").transposed();
                for block in [by_row, by_column] {
                    let len = columns.next_multiple_of(isa.panel()) * depth;
                    let packed = [false, true].map(|nontemporal| {
                        let mut buffer = vec![f32::NAN; len + 16];
                        let start = buffer.as_ptr().align_offset(64);
                        let buffer = &mut buffer[start..start + len];
                        isa.dispatch(Pack { block, columns, first: 0, buffer, nontemporal });
                        buffer.to_vec()
                    });
                    assert_eq!(packed[0], packed[1], "{isa}: {depth} x {columns}");
                }
            }
        }
    }
}
