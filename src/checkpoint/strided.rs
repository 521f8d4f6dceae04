//! Reads elements of a tensor that is a view with strides: a transposed matrix, or some columns of a larger one.

use super::byte_source::Source;
use crate::error::Error;

/// Bytes that are read at a time where the elements are not side by side.
const WINDOW: usize = 4096;

/// Elements of a file whose distances are strides.
pub(super) struct Strided<'a> {
    pub(super) source: &'a Source<'a>,
    /// Offset of the first element from the start of the source, in bytes.
    pub(super) offset: u64,
    /// Bytes of an element.
    pub(super) size: usize,
    pub(super) shape: &'a [usize],
    /// Distance of neighbors in each dimension, in elements.
    pub(super) strides: &'a [usize],
}

/// A dimension of a block: its length, and the distances of neighbors in the file and in the output.
#[derive(Clone, Copy)]
struct Dimension {
    len: usize,
    stride: usize,
    out: usize,
}

impl Strided<'_> {
    /// Fills `out` with the elements from `first` on in row-major order. `out` has whole elements, and not more than
    /// there are.
    pub(super) fn read(&self, first: usize, out: &mut [u8]) -> Result<(), Error> {
        let (Some((&rows, of_row)), Some((&stride, inner))) =
            (self.shape.split_first(), self.strides.split_first())
        else {
            return self.source.read_at(self.offset, out);
        };
        let row_len: usize = of_row.iter().product();
        let count = out.len() / self.size;
        if count == 0 || row_len == 0 {
            return Ok(());
        }
        let (mut row, skipped) = (first / row_len, first % row_len);
        let at = |row: usize| self.offset + (row * stride * self.size) as u64;
        let row_at = |row: usize| Self { offset: at(row), shape: of_row, strides: inner, ..*self };
        // The end of a row, whole rows, and the beginning of a row.
        let head = if skipped > 0 { (row_len - skipped).min(count) } else { 0 };
        let (start, out) = out.split_at_mut(head * self.size);
        if head > 0 {
            row_at(row).read(skipped, start)?;
            row += 1;
        }
        let whole = (count - head) / row_len;
        let (middle, end) = out.split_at_mut(whole * row_len * self.size);
        if whole > 0 {
            self.read_rows(at(row), whole.min(rows), middle)?;
        }
        if end.is_empty() { Ok(()) } else { row_at(row + whole).read(0, end) }
    }

    /// Fills `out` with whole rows, the first of which begins at `offset`.
    fn read_rows(&self, offset: u64, rows: usize, out: &mut [u8]) -> Result<(), Error> {
        let mut dimensions: Vec<Dimension> = Vec::with_capacity(self.shape.len());
        let mut step = 1;
        for (index, (&len, &stride)) in self.shape.iter().zip(self.strides).enumerate().rev() {
            let len = if index == 0 { rows } else { len };
            if len > 1 {
                dimensions.push(Dimension { len, stride, out: step });
            }
            step *= len;
        }
        // The last dimension has the nearest elements. Those with stride 0 repeat the others.
        dimensions
            .sort_by_key(|d| core::cmp::Reverse(if d.stride == 0 { usize::MAX } else { d.stride }));
        let run = dimensions.pop().unwrap_or(Dimension { len: 1, stride: 1, out: 1 });
        let mut index = vec![0; dimensions.len()];
        loop {
            let place = |distance: fn(&Dimension) -> usize| -> usize {
                index.iter().zip(&dimensions).map(|(&i, d)| i * distance(d)).sum()
            };
            let (from, to) = (place(|d| d.stride), place(|d| d.out));
            self.read_run(offset + (from * self.size) as u64, run, to, out)?;
            // The next index; the last dimension is the fastest.
            let Some(next) = (0..index.len()).rev().find(|&i| index[i] + 1 < dimensions[i].len)
            else {
                return Ok(());
            };
            index[next] += 1;
            index[next + 1..].fill(0);
        }
    }

    /// Reads the elements of one dimension, from byte `offset` on, to the elements `to..` of `out`.
    fn read_run(
        &self,
        offset: u64,
        run: Dimension,
        to: usize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let size = self.size;
        if run.stride == 1 && run.out == 1 {
            return self.source.read_at(offset, &mut out[to * size..(to + run.len) * size]);
        }
        let mut window = [0; WINDOW];
        let between = run.stride * size;
        let most = (WINDOW - size).checked_div(between).map_or(run.len, |more| more + 1);
        let mut done = 0;
        while done < run.len {
            let count = (run.len - done).min(most);
            let window = &mut window[..(count - 1) * between + size];
            self.source.read_at(offset + (done * between) as u64, window)?;
            for i in 0..count {
                let place = (to + (done + i) * run.out) * size;
                out[place..place + size].copy_from_slice(&window[i * between..][..size]);
            }
            done += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    /// Any range of any view has the elements that the strides name.
    #[test]
    fn ranges_of_views_are_gathered() {
        let bytes: Vec<u8> = (0..4000u16).flat_map(u16::to_le_bytes).collect();
        let source = Source::memory(Cow::Borrowed(&bytes));
        let views: [(&[usize], &[usize], usize); 7] = [
            (&[5, 7], &[1, 5], 3),
            (&[5, 7], &[50, 1], 0),
            (&[3, 4, 5], &[5, 15, 1], 11),
            (&[3, 4, 5], &[1, 3, 12], 2),
            (&[4, 6], &[0, 2], 9),
            (&[2, 1, 3], &[1700, 9, 600], 1),
            (&[9], &[7], 4),
        ];
        for (shape, strides, begin) in views {
            let view =
                Strided { source: &source, offset: 2 * begin as u64, size: 2, shape, strides };
            let count: usize = shape.iter().product();
            let place = |mut index: usize| {
                let mut place = begin;
                for (&len, &stride) in shape.iter().zip(strides).rev() {
                    place += index % len * stride;
                    index /= len;
                }
                place as u16
            };
            for first in 0..count {
                for len in 0..=count - first {
                    let mut out = vec![0; 2 * len];
                    view.read(first, &mut out).expect("read");
                    let (pairs, _) = out.as_chunks::<2>();
                    let found: Vec<u16> =
                        pairs.iter().map(|&pair| u16::from_le_bytes(pair)).collect();
                    let expected: Vec<u16> = (first..first + len).map(place).collect();
                    assert_eq!(found, expected, "{shape:?} {strides:?} from {first}");
                }
            }
        }
    }
}
