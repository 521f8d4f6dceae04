//! A tensor that is read on demand, a few rows at a time, as f32.

use super::byte_source::Source;
use crate::error::Error;
use crate::memory::zeros;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::Dtype;

/// The values that a read accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accept {
    Anything,
    /// Also minus infinity: in an output bias it bans a token.
    MinusInfinity,
    Finite,
}

impl Accept {
    fn takes(self, x: f32) -> bool {
        match self {
            Self::Anything => true,
            Self::MinusInfinity => x < f32::INFINITY,
            Self::Finite => x.is_finite(),
        }
    }
}

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Elements {
    Float(Dtype),
    /// int8. Each row has a divisor, an f32: a number is its integer times the reciprocal of the divisor, rounded to f32.
    /// The field is the offset of the first row's divisor in the source.
    Int8(u64),
    /// int16 with one such divisor.
    Int16(f32),
}

impl Elements {
    /// Bytes of an element.
    fn size(self) -> usize {
        match self {
            Self::Float(dtype) => dtype.size(),
            Self::Int8(_) => 1,
            Self::Int16(_) => 2,
        }
    }
}

/// Bytes of a divisor.
const DIVISOR: u64 = 4;

/// A tensor of a [`Checkpoint`](super::Checkpoint), or some of its rows, in row-major order. The numbers are
/// not in memory until they are read. A row is one index of the first dimension.
#[derive(Clone)]
pub struct TensorView<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) name: &'a str,
    pub(super) elements: Elements,
    pub(super) shape: Vec<usize>,
    /// Rows that are stored; those after them are zero.
    pub(super) stored_rows: usize,
    /// Offset of the first element in bytes from the start of the source.
    pub(super) offset: u64,
    /// Distances of neighbors in each dimension, in elements; empty if the elements are side by side.
    pub(super) strides: &'a [usize],
    /// Elements of the tensor before the first of the view.
    pub(super) skipped: usize,
    pub(super) accept: Accept,
}

impl<'a> TensorView<'a> {
    /// The name in the file; for a view of some rows, that of the whole tensor.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The stored dtype. Reads always return f32. It is f32 for integers, which only directories of CTranslate2 have.
    pub fn dtype(&self) -> Dtype {
        match self.elements {
            Elements::Float(dtype) => dtype,
            Elements::Int8(_) | Elements::Int16(_) => Dtype::F32,
        }
    }

    /// Whether the elements are int8 with a scale for each row.
    pub(crate) fn is_int8(&self) -> bool {
        matches!(self.elements, Elements::Int8(_))
    }

    /// Dimensions of the view, rows first. A linear map is `[outputs, inputs]`.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements: the product of [`shape`](Self::shape).
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the view in bytes as stored.
    pub(crate) fn stored_bytes(&self) -> u64 {
        (self.len() * self.elements.size()) as u64
    }

    /// Elements of the view that are stored. Those after them are zero.
    fn stored_len(&self) -> usize {
        match self.shape.first() {
            Some(&rows) => self.stored_rows.min(rows) * self.row_len(),
            None => self.len(),
        }
    }

    /// Elements of one row: the product of all dimensions except the first. 1 for a vector.
    pub fn row_len(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// `[rows.len(), ..]`: a view of only `rows`, counted from the first row of this view. Reads nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](Error::InvalidInput): this view does not have these rows, or the range ends before it begins.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self, Error> {
        let available = self.shape.first().copied().unwrap_or(0);
        if rows.start > rows.end || rows.end > available {
            let operand = format!("rows of {}", self.name);
            let expected = format!("a range of the {available} rows that there are");
            return Err(Error::invalid_input(operand, expected, format!("{rows:?}")));
        }
        let skipped = rows.start * self.row_len();
        let mut view = self.clone();
        let stride = self.strides.first().copied().unwrap_or_else(|| self.row_len());
        // A view of zeros only does not read.
        let stored = rows.start.min(self.stored_rows);
        view.offset += (stored * stride * self.elements.size()) as u64;
        view.stored_rows -= stored;
        if let Elements::Int8(divisors) = &mut view.elements {
            *divisors += DIVISOR * stored as u64;
        }
        view.skipped += skipped;
        if let Some(first) = view.shape.first_mut() {
            *first = rows.len();
        }
        Ok(view)
    }

    /// Reads all elements of the view into `out`, row-major; the length of `out` is [`len`](Self::len). Exact: f16
    /// and bf16 are widened without rounding. Integers of CTranslate2 are multiplied by their scales, as it does.
    ///
    /// f32 is read from the file directly into `out`; f16 and bf16 go through a small buffer on the stack. A view with
    /// strides, which only files of `torch.save` have, is gathered.
    ///
    /// # Errors
    /// The [length](Error::InvalidInput) of `out` differs from that of the view, the file cannot be
    /// [read](Error::Io), or a weight of a role is [not finite](Error::NotFinite)
    /// (minus infinity is accepted in an output bias, where it bans a token). After `NotFinite`, `out` holds the
    /// numbers that were read. A view of [`Checkpoint::named`](super::Checkpoint::named) accepts any value.
    pub fn read_into(&self, out: &mut [f32]) -> Result<(), Error> {
        if out.len() != self.len() {
            let operand = format!("the destination of {}", self.name);
            let expected = format!("{} elements", self.len());
            return Err(Error::invalid_input(operand, expected, out.len().to_string()));
        }
        let (stored, zeros) = out.split_at_mut(self.stored_len());
        zeros.fill(0.0);
        match self.elements {
            Elements::Float(Dtype::F32) => {
                self.read_elements(0, bytemuck::cast_slice_mut(stored))?;
                if cfg!(target_endian = "big") {
                    stored.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits().swap_bytes()));
                }
            }
            Elements::Float(dtype) => {
                self.widen(stored, |bytes| dtype.widen(u16::from_le_bytes(bytes)))?;
            }
            Elements::Int16(divisor) => {
                let scale = 1.0 / divisor;
                self.widen(stored, |bytes| f32::from(i16::from_le_bytes(bytes)) * scale)?;
            }
            Elements::Int8(divisors) => {
                self.widen(stored, |[byte]: [u8; 1]| f32::from(byte.cast_signed()))?;
                self.scale_rows(divisors, stored)?;
            }
        }
        match out.iter().position(|&x| !self.accept.takes(x)) {
            Some(at) => Err(Error::not_finite(self.name.to_owned(), self.skipped + at, out[at])),
            None => Ok(()),
        }
    }

    /// All elements of the view, row-major, in a new vector.
    ///
    /// # Errors
    /// As [`Self::read_into`]; the memory [cannot be allocated](Error::OutOfMemory), for example for a
    /// tensor of terabytes in a sparse file.
    pub fn to_vec(&self) -> Result<Vec<f32>, Error> {
        let mut out = zeros(self.len()).map_err(|_| {
            let bytes = self.len().saturating_mul(size_of::<f32>());
            Error::out_of_memory(self.name.to_owned(), bytes)
        })?;
        self.read_into(&mut out)?;
        Ok(out)
    }

    /// Fills `out` with the stored elements from `first` on, in row-major order.
    fn read_elements(&self, first: usize, out: &mut [u8]) -> Result<(), Error> {
        let size = self.elements.size();
        if self.strides.is_empty() {
            return self.source.read_at(self.offset + (first * size) as u64, out);
        }
        let &Self { source, offset, strides, .. } = self;
        Strided { source, offset, size, shape: &self.shape, strides }.read_elements(first, out)
    }

    /// As [`widen`](Self::widen), all elements at once, because a transposed matrix is read by columns. The stored
    /// elements of `N` bytes, at most 2, go to the end of `out`, so that each is read before a wider one is written over
    /// it.
    fn gather<const N: usize>(
        &self,
        out: &mut [f32],
        widen: impl Fn([u8; N]) -> f32,
    ) -> Result<(), Error> {
        let count = out.len();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(out);
        let first = bytes.len() - N * count;
        self.read_elements(0, &mut bytes[first..])?;
        for i in 0..count {
            let mut element = [0; N];
            element.copy_from_slice(&bytes[first + N * i..][..N]);
            bytes[4 * i..4 * i + 4].copy_from_slice(&widen(element).to_ne_bytes());
        }
        Ok(())
    }

    /// Multiplies each row of `out` by the reciprocal of its divisor. The divisors begin at this offset.
    fn scale_rows(&self, divisors: u64, out: &mut [f32]) -> Result<(), Error> {
        const BLOCK: usize = 256;
        let mut bytes = [0; BLOCK * DIVISOR as usize];
        let mut offset = divisors;
        let row_len = self.row_len().max(1);
        for rows in out.chunks_mut(BLOCK * row_len) {
            let bytes = &mut bytes[..rows.len() / row_len * DIVISOR as usize];
            self.source.read_at(offset, bytes)?;
            offset += bytes.len() as u64;
            let (divisors, _) = bytes.as_chunks::<{ DIVISOR as usize }>();
            for (row, &divisor) in rows.chunks_mut(row_len).zip(divisors) {
                let scale = 1.0 / f32::from_le_bytes(divisor);
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Ok(())
    }

    /// Fills `out` with the elements, of `N` bytes each, at most 2, a block at a time.
    fn widen<const N: usize>(
        &self,
        out: &mut [f32],
        widen: impl Fn([u8; N]) -> f32,
    ) -> Result<(), Error> {
        const BYTES: usize = 8192;
        if !self.strides.is_empty() {
            return self.gather(out, widen);
        }
        let mut bytes = [0; BYTES];
        let mut offset = self.offset;
        for block in out.chunks_mut(BYTES / N) {
            let bytes = &mut bytes[..N * block.len()];
            self.source.read_at(offset, bytes)?;
            offset += bytes.len() as u64;
            let (elements, _) = bytes.as_chunks::<N>();
            for (x, &element) in block.iter_mut().zip(elements) {
                *x = widen(element);
            }
        }
        Ok(())
    }

    /// Whether both views have the same numbers, shape and dtype, bit for bit. Stops at the first difference.
    pub(super) fn same_content(&self, other: &Self) -> Result<bool, Error> {
        let form = |view: &Self| {
            let divisor = if let Elements::Int16(divisor) = view.elements { divisor } else { 0.0 };
            (view.dtype(), view.elements.size(), divisor.to_bits(), view.stored_len())
        };
        if self.shape != other.shape || form(self) != form(other) {
            return Ok(false);
        }
        let place = |view: &Self| (view.offset, view.elements);
        if core::ptr::eq(self.source, other.source)
            && place(self) == place(other)
            && self.strides == other.strides
        {
            // Two names of one storage.
            return Ok(true);
        }
        let size = self.elements.size();
        let read =
            |view: &Self, begin: usize, out: &mut [u8]| view.read_elements(begin / size, out);
        if !self.same_bytes(other, size * self.stored_len(), read)? {
            return Ok(false);
        }
        let (Elements::Int8(_), Some(&rows)) = (self.elements, self.shape.first()) else {
            return Ok(true);
        };
        let bytes = rows.min(self.stored_rows) * DIVISOR as usize;
        self.same_bytes(other, bytes, |view, begin, out| match view.elements {
            Elements::Int8(divisors) => view.source.read_at(divisors + begin as u64, out),
            Elements::Float(_) | Elements::Int16(_) => Ok(()),
        })
    }

    /// Whether `read` returns the same `len` bytes for both views; it gets the first byte and the output.
    fn same_bytes(
        &self,
        other: &Self,
        len: usize,
        read: impl Fn(&Self, usize, &mut [u8]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        const BLOCK: usize = 4096;
        let (mut a, mut b) = ([0; BLOCK], [0; BLOCK]);
        for begin in (0..len).step_by(BLOCK) {
            let n = BLOCK.min(len - begin);
            read(self, begin, &mut a[..n])?;
            read(other, begin, &mut b[..n])?;
            if a[..n] != b[..n] {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorView")
            .field("name", &self.name)
            .field("elements", &self.elements)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

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
    pub(super) fn read_elements(&self, first: usize, out: &mut [u8]) -> Result<(), Error> {
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
            row_at(row).read_elements(skipped, start)?;
            row += 1;
        }
        let whole = (count - head) / row_len;
        let (middle, end) = out.split_at_mut(whole * row_len * self.size);
        if whole > 0 {
            self.read_rows(at(row), whole.min(rows), middle)?;
        }
        if end.is_empty() { Ok(()) } else { row_at(row + whole).read_elements(0, end) }
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
                    view.read_elements(first, &mut out).expect("read");
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
