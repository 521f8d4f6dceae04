//! The KV cache: keys and values of earlier tokens, in the layout that attention reads.
//!
//! A cache has a number of *slots* with `capacity` positions each. Appending a token writes its keys and values once;
//! they are never moved. A hypothesis that forks from another one continues in its own slot. A table stores, for each
//! position, the slot that holds its key and value: see [`super::attention_decode`].

use super::head_views::Heads;
use super::kv_f16::with_kv_format;
use super::one_head::{HeadKv, ValueRows};
use super::panels::{KvFormat, ROWS_AHEAD, copy_rows, head_floats, value_row, write_keys};
use crate::dtype::Dtype;
use crate::error::{Error, Expected};
use crate::isa::Isa;
use crate::parallel::{Parallelism, work_to_share};
use crate::simd::half::widen_f16;
use crate::simd::{CACHE_LINE_F32, SimdF32, simd_op};
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::ops::Range;

/// Key elements that one thread appends before a second one is used: some microseconds of work.
const MIN_APPENDED_TO_FORK: usize = work_to_share(2048);

/// The shape of a KV cache.
///
/// A slot is contiguous: slot `s` is elements `s * n..(s + 1) * n` of the buffer, where `n` is
/// [`buffer_len`](CacheShape::buffer_len) divided by the number of slots. A copy of this range into another slot of a cache of the same
/// shape and instruction set copies all its keys and values.
///
/// ```
/// use simdformer_kernels::{CacheShape, Isa};
///
/// // The KV cache of a decoder: 8 hypotheses of up to 128 tokens, 8 heads of 64.
/// let shape = CacheShape::new(8, 128, 8, 64);
/// // Keys and values. 64 is a multiple of the vector width of every instruction set.
/// assert_eq!(shape.buffer_len(Isa::best())?, 2 * 8 * 128 * 8 * 64);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Number of slots; each holds one sequence or hypothesis.
    pub slots: usize,
    /// Positions in each slot.
    pub capacity: usize,
    /// Key-value heads.
    pub heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// The dtype of keys and values: f32 or f16. With many keys (long sources, large batches), attention spends its
    /// time reading keys and values; in f16 they have half the size.
    ///
    /// f16 rounds to the nearest number with 11 significant bits (ties to even), or to a multiple of `2^-24` below
    /// `2^-14`. A finite number larger than 65,504 becomes 65,504, so no finite key becomes infinite. Up to 65,504,
    /// keys and values change by up to `2^-11` of their size, or by `2^-25` where that is more. The rounding is the
    /// same on every instruction set, in every batch and with any number of threads: a result is, bit for bit, that of
    /// an f32 cache into which the rounded numbers were written.
    pub dtype: Dtype,
}

impl CacheShape {
    /// An f32 cache of `slots` slots with `capacity` positions, for `heads` heads of `head_dim` elements.
    pub const fn new(slots: usize, capacity: usize, heads: usize, head_dim: usize) -> Self {
        Self { slots, capacity, heads, head_dim, dtype: Dtype::F32 }
    }

    /// Length of the cache buffer on `isa`, in f32 units. [`Dtype::F16`] stores two elements per f32. The capacity
    /// (for keys) and the head size (for values) are rounded up to whole vectors.
    ///
    /// # Errors
    /// The product overflows; [`Error::Unsupported`] for `Bf16`; [`Error::Unsupported`] for `F16` without the
    /// feature `f16`.
    ///
    /// ```
    /// use simdformer_kernels::{CacheShape, Dtype, Isa};
    ///
    /// let shape = CacheShape { dtype: Dtype::F16, ..CacheShape::new(8, 128, 8, 64) };
    /// assert_eq!(2 * shape.buffer_len(Isa::best())?, CacheShape::new(8, 128, 8, 64).buffer_len(Isa::best())?);
    /// assert!(CacheShape { dtype: Dtype::Bf16, ..shape }.buffer_len(Isa::best()).is_err());
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn buffer_len(self, isa: Isa) -> Result<usize, Error> {
        let operand = "the KV cache";
        if self.dtype == Dtype::Bf16 {
            let (operand, expected) = ("dtype of the KV cache", "F32 or F16");
            return Err(Error::Unsupported { operand, expected, found: "Bf16" });
        }
        if !self.dtype.is_enabled() {
            return Err(Error::NO_F16);
        }
        head_floats(isa.lanes(), self.capacity, self.head_dim)
            .and_then(|head| head.checked_mul(self.heads))
            .and_then(|slot| slot.checked_mul(self.slots))
            // Panels and rows are whole vectors, so an f16 head is a whole number of f32 units.
            .map(|elements| self.dtype.words(elements))
            .filter(|&floats| floats <= isize::MAX as usize / 4)
            .ok_or(Error::TooLarge { operand })
    }

    /// Checks that `slot` exists and has positions `position..position + tokens`.
    pub(super) fn check_range(
        self,
        slot: usize,
        position: usize,
        tokens: usize,
    ) -> Result<(), Error> {
        Error::check_size("slot", "the KV cache", Expected::Below(self.slots), slot)?;
        Error::check_end("positions", "slot", Some(slot), (position, tokens), self.capacity)
    }

    /// The place of `head` for vectors of `lanes` floats. `buffer_len` has checked the shape.
    #[inline(always)]
    fn head(self, lanes: usize, head: usize) -> HeadPlace {
        let keys = self.capacity.next_multiple_of(lanes) * self.head_dim;
        let value_row = value_row(lanes, self.head_dim);
        let values = value_row * self.capacity;
        let slot = (keys + values) * self.heads;
        HeadPlace { keys: head * keys, values: self.heads * keys + head * values, value_row, slot }
    }

    /// Address of element `at` of the buffer at `data`.
    #[inline(always)]
    fn element(self, data: *const f32, at: usize) -> *const () {
        data.wrapping_byte_add(at * self.dtype.size()).cast()
    }
}

/// Where the keys and values of one head are, in elements of the buffer of a cache.
#[derive(Clone, Copy)]
struct HeadPlace {
    /// The panels and the value rows of slot 0.
    keys: usize,
    values: usize,
    value_row: usize,
    /// Elements of a slot.
    slot: usize,
}

impl HeadPlace {
    /// The panels of a slot.
    #[inline(always)]
    fn keys(&self, slot: usize) -> usize {
        slot * self.slot + self.keys
    }

    /// The value row of `position` in a slot.
    #[inline(always)]
    fn value(&self, slot: usize, position: usize) -> usize {
        slot * self.slot + self.values + position * self.value_row
    }
}

/// A KV cache to read: layout
/// `[slots]([heads][capacity / lanes][head_dim][lanes], [heads][capacity][head_dim rounded up])`, in f32 or, for
/// [`Dtype::F16`], in f16.
///
/// It borrows its buffer. The owner stores [`CacheShape::buffer_len`] floats with the shape and the [`Isa`], and makes a
/// [`CacheMut`] or a `Cache` from them for each call; this only checks the length. The layout depends on the
/// instruction set: a buffer written for one cannot be read with another.
#[derive(Clone, Copy)]
pub struct Cache<'a> {
    shape: CacheShape,
    isa: Isa,
    data: &'a [f32],
}

/// A KV cache to write. The previous content of the buffer is ignored: attention does not use positions that were never
/// written.
///
/// ```
/// use simdformer_kernels::{CacheMut, CacheShape, Heads, Isa};
///
/// let isa = Isa::best();
/// let shape = CacheShape::new(2, 16, 1, 2);
/// let mut data = vec![0.0; shape.buffer_len(isa)?];
/// let mut cache = CacheMut::new(isa, shape, &mut data)?;
///
/// // A prompt of three tokens in slot 0, then one token in each of both slots.
/// let prompt = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let prompt = Heads::new(&prompt, [3, 1, 2])?;
/// cache.write(0, 0, prompt, prompt)?;
/// let step = [7.0, 8.0, 9.0, 10.0];
/// let step = Heads::new(&step, [2, 1, 2])?;
/// cache.append(&[0, 1], &[3, 0], step, step)?;
///
/// let (mut key, mut value) = ([0.0; 2], [0.0; 2]);
/// cache.as_view().read_key(0, 3, 0, &mut key)?;
/// cache.as_view().read_value(1, 0, 0, &mut value)?;
/// assert_eq!((key, value), ([7.0, 8.0], [9.0, 10.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CacheMut<'a> {
    shape: CacheShape,
    isa: Isa,
    data: &'a mut [f32],
}

impl<'a> Cache<'a> {
    /// Makes a cache of `shape` from `data`.
    ///
    /// # Errors
    /// The slice is shorter than [`CacheShape::buffer_len`].
    pub fn new(isa: Isa, shape: CacheShape, data: &'a [f32]) -> Result<Self, Error> {
        let expected = shape.buffer_len(isa)?;
        Error::check_min_len("data", expected, data)?;
        Ok(Self { shape, isa, data })
    }

    /// The shape.
    pub const fn shape(&self) -> CacheShape {
        self.shape
    }

    /// The instruction set that determines the layout and reads the cache.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Copies the key of `head` at `position` of `slot` to `out`, `[head_dim]`, with the rounding of the cache. It is
    /// meant for inspection; the kernels read whole panels.
    ///
    /// # Errors
    /// A slot, position or head that the cache does not have, or `out` of another length; then
    /// nothing is written.
    pub fn read_key(
        &self,
        slot: usize,
        position: usize,
        head: usize,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (head_dim, lanes) = (self.shape.head_dim, self.isa.lanes());
        self.copy_elements([slot, position, head], lanes, out, |place| {
            let within = position / lanes * lanes * head_dim + position % lanes;
            place.keys(slot) + within
        })
    }

    /// [`Cache::read_key`] of the value.
    ///
    /// # Errors
    /// As [`Cache::read_key`].
    pub fn read_value(
        &self,
        slot: usize,
        position: usize,
        head: usize,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.copy_elements([slot, position, head], 1, out, |place| place.value(slot, position))
    }

    /// Copies the elements of a head that are `step` apart. `first` computes the index of the first one, after the checks.
    fn copy_elements(
        &self,
        [slot, position, head]: [usize; 3],
        step: usize,
        out: &mut [f32],
        first: impl Fn(HeadPlace) -> usize,
    ) -> Result<(), Error> {
        self.shape.check_range(slot, position, 1)?;
        Error::check_size("head", "the KV cache", Expected::Below(self.shape.heads), head)?;
        Error::check_len("out", self.shape.head_dim, out)?;
        let first = first(self.shape.head(self.isa.lanes(), head));
        for (i, out) in out.iter_mut().enumerate() {
            let at = first + i * step;
            *out = if self.shape.dtype == Dtype::F32 {
                self.data[at]
            } else {
                // The two f16 elements are in memory order, not in order of significance.
                let word = self.data[at / 2].to_bits().to_ne_bytes();
                let [a, b] = [word[at % 2 * 2], word[at % 2 * 2 + 1]];
                widen_f16(u16::from_ne_bytes([a, b]))
            };
        }
        Ok(())
    }

    /// The keys and values of `head` in all slots; `T` is the element of the dtype, and vectors have `lanes` floats.
    #[inline(always)]
    pub(super) fn head<T>(&self, lanes: usize, head: usize) -> CacheHead<T> {
        let HeadPlace { keys, values, value_row, slot } = self.shape.head(lanes, head);
        let data = self.data.as_ptr().cast::<T>();
        let (keys, values) = (data.wrapping_add(keys), data.wrapping_add(values));
        CacheHead { keys, values, value_row, slot }
    }

    /// The keys and values of a head in a slot, and the keys that are read after them, each given as `(slot, head)`.
    pub(super) fn head_kv(&self, (slot, head): (usize, usize), next: (usize, usize)) -> HeadKv {
        let place = |head| self.shape.head(self.isa.lanes(), head);
        let element = |at| self.shape.element(self.data.as_ptr(), at);
        let (this, next_keys) = (place(head), element(place(next.1).keys(next.0)));
        let (keys, values) = (element(this.keys(slot)), element(this.value(slot, 0)));
        HeadKv { keys, next_keys, values, value_row: this.value_row }
    }
}

/// The keys and values of one head in all slots of a cache: their addresses in slot 0, and the elements of a value row and
/// of a slot.
#[derive(Clone, Copy)]
pub(super) struct CacheHead<T> {
    keys: *const T,
    values: *const T,
    value_row: usize,
    slot: usize,
}

impl<T> CacheHead<T> {
    /// The panels of a slot.
    #[inline(always)]
    pub(super) fn keys(&self, slot: u32) -> *const T {
        self.keys.wrapping_add(slot as usize * self.slot)
    }

    /// The value row of `position` in a slot.
    #[inline(always)]
    pub(super) fn value(&self, slot: u32, position: usize) -> *const T {
        self.values.wrapping_add(slot as usize * self.slot + position * self.value_row)
    }

    /// The value rows of the positions whose slots are `slots`.
    #[inline(always)]
    pub(super) fn value_rows<'a>(&self, slots: &'a [u32]) -> ValueRows<'a, T> {
        ValueRows { at: self.values, row: self.value_row, slots: Some((slots, self.slot)) }
    }
}

impl<'a> CacheMut<'a> {
    /// Makes a cache of `shape` from `data`.
    ///
    /// # Errors
    /// The slice is shorter than [`CacheShape::buffer_len`].
    pub fn new(isa: Isa, shape: CacheShape, data: &'a mut [f32]) -> Result<Self, Error> {
        let expected = shape.buffer_len(isa)?;
        Error::check_min_len("data", expected, data)?;
        Ok(Self { shape, isa, data })
    }

    /// A read-only view of the same cache.
    pub fn as_view(&self) -> Cache<'_> {
        Cache { shape: self.shape, isa: self.isa, data: self.data }
    }

    /// Writes all tokens of `key` and `value`, `[tokens, heads, head_dim]`, as positions
    /// `position..position + tokens` of `slot`.
    ///
    /// # Errors
    /// Shapes that differ from the cache's, or positions and slots that it does not have; then
    /// nothing is written.
    pub fn write(
        &mut self,
        slot: usize,
        position: usize,
        key: Heads<'_>,
        value: Heads<'_>,
    ) -> Result<(), Error> {
        self.check_shapes(&key, &value)?;
        self.shape.check_range(slot, position, key.tokens())?;
        key.check_within("key", None, (0, key.tokens()))?;
        value.check_within("value", None, (0, value.tokens()))?;
        if key.shape().contains(&0) {
            return Ok(());
        }
        let isa = self.isa;
        isa.dispatch(write_run(self.writer(key, value), slot, position));
        Ok(())
    }

    /// Writes token `i` of `key` and `value`, `[tokens, heads, head_dim]`, as position `positions[i]` of slot
    /// `slots[i]`, as a decode step does. If the same slot and position occur twice, the last token is stored.
    ///
    /// # Errors
    /// As [`CacheMut::write`]; also if the number of slots or positions is not the number of tokens.
    pub fn append(
        &mut self,
        slots: &[u32],
        positions: &[u32],
        key: Heads<'_>,
        value: Heads<'_>,
    ) -> Result<(), Error> {
        self.append_with(slots, positions, key, value, Parallelism::Serial)
    }

    /// [`CacheMut::append`] on several threads, each of which writes different heads. Several threads are useful
    /// because the key of a token goes to one cache line per element of a head, and these lines were last used for the
    /// token before.
    ///
    /// # Errors
    /// As [`CacheMut::append`].
    pub fn append_with(
        &mut self,
        slots: &[u32],
        positions: &[u32],
        key: Heads<'_>,
        value: Heads<'_>,
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        self.check_shapes(&key, &value)?;
        Error::check_len("slots", key.tokens(), slots)?;
        Error::check_len("positions", key.tokens(), positions)?;
        for (&slot, &position) in slots.iter().zip(positions) {
            self.shape.check_range(slot as usize, position as usize, 1)?;
        }
        // Without elements the other axes may have any size.
        if key.shape().contains(&0) {
            return Ok(());
        }
        let CacheShape { heads, head_dim, .. } = self.shape;
        let (isa, all) = (self.isa, self.writer(key, value));
        let workers = parallelism.workers();
        if workers.threads() == 1 || slots.len() * heads * head_dim < MIN_APPENDED_TO_FORK {
            isa.dispatch(write_each(all, slots, positions));
        } else {
            workers.for_each(heads, &|head| {
                let one = HeadWriter { heads: (head, head + 1), ..all };
                isa.dispatch(write_each(one, slots, positions));
            });
        }
        Ok(())
    }

    /// Writes of tokens to all heads. Their shapes were checked.
    fn writer<'t>(&'t mut self, key: Heads<'t>, value: Heads<'t>) -> HeadWriter<'t> {
        let Self { shape, ref mut data, .. } = *self;
        let data = SharedMut::new(data);
        HeadWriter { shape, data, key, value, heads: (0, shape.heads) }
    }

    fn check_shapes(&self, key: &Heads<'_>, value: &Heads<'_>) -> Result<(), Error> {
        let expected = [key.tokens(), self.shape.heads, self.shape.head_dim];
        key.check_shape("key", expected)?;
        value.check_shape("value", expected)
    }
}

impl fmt::Debug for Cache<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shape("Cache", self.shape, self.isa, f)
    }
}

impl fmt::Debug for CacheMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shape("CacheMut", self.shape, self.isa, f)
    }
}

fn write_shape(
    name: &str,
    CacheShape { slots, capacity, heads, head_dim, dtype }: CacheShape,
    isa: Isa,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let dtype = if dtype == Dtype::F16 { " in f16" } else { "" };
    write!(f, "{name}({slots} slots of {capacity} x {heads} x {head_dim}{dtype}, {isa})")
}

simd_op!(
    /// Writes all tokens to `slot`, from `position`.
    fn write_run<S: SimdF32>(s: S, to: HeadWriter<'_>, slot: usize, position: usize) {
        for head in to.heads.0..to.heads.1 {
            to.write(s, (slot, position), 0..to.key.tokens(), head);
        }
    }
);

simd_op!(
    /// Writes each token to its slot and position. A key is written to one lane of each line of its panel. These lines
    /// were last used one pass over the weights ago, so the lines of the next head, or of the first head of the next
    /// token, are prefetched at the same time.
    fn write_each<S: SimdF32>(s: S, to: HeadWriter<'_>, slots: &[u32], positions: &[u32]) {
        let (first, end) = to.heads;
        let mut places =
            slots.iter().zip(positions).map(|(&slot, &at)| (slot as usize, at as usize));
        let mut next = places.next();
        if let Some(place) = next {
            to.prefetch(s, place, first);
        }
        let mut token = 0;
        while let Some(place) = next {
            next = places.next();
            for head in first..end {
                if head + 1 < end {
                    to.prefetch(s, place, head + 1);
                } else if let Some(next) = next {
                    to.prefetch(s, next, first);
                }
                to.write(s, place, token..token + 1, head);
            }
            token += 1;
        }
    }
);

/// Tokens that are written to some heads of a cache. Only memory of these heads is written.
#[derive(Clone, Copy)]
struct HeadWriter<'a> {
    shape: CacheShape,
    data: SharedMut<'a>,
    key: Heads<'a>,
    value: Heads<'a>,
    /// Start and end.
    heads: (usize, usize),
}

impl HeadWriter<'_> {
    /// Prefetches the lines that a token of `head` is written to.
    #[inline(always)]
    fn prefetch<S: SimdF32>(&self, s: S, (slot, position): (usize, usize), head: usize) {
        let Self { shape, data, .. } = self;
        let panel = shape.head_dim * S::LANES;
        let place = shape.head(S::LANES, head);
        let keys = place.keys(slot) + position / S::LANES * panel;
        let (values, row) = (place.value(slot, position), place.value_row);
        let line = CACHE_LINE_F32 * size_of::<f32>() / shape.dtype.size();
        for (start, elements) in [(keys, panel), (values, row)] {
            for at in (start..start + elements).step_by(line) {
                s.prefetch(shape.element(data.as_ptr(), at).cast());
            }
        }
    }

    /// Writes `tokens` to a head of `slot`, from `position`.
    #[inline(always)]
    fn write<S: SimdF32>(
        &self,
        s: S,
        (slot, position): (usize, usize),
        tokens: Range<usize>,
        head: usize,
    ) {
        let Self { shape, data, .. } = self;
        let (key, value) = (self.key.rows(tokens.start, head), self.value.rows(tokens.start, head));
        let size = (tokens.len(), shape.head_dim);
        let place = shape.head(S::LANES, head);
        let keys = shape.element(data.as_ptr(), place.keys(slot)).cast_mut();
        let values = shape.element(data.as_ptr(), place.value(slot, position)).cast_mut();
        with_kv_format!(shape.dtype, N => {
            type Element = <N as KvFormat>::KvElement;
            // SAFETY: `check_shapes` and `check_range` checked slot, positions, tokens and shapes against the cache, and
            // `CacheMut::new` checked the buffer against the shape. Each task has different heads, whose keys and values
            // do not overlap in any slot.
            unsafe {
                write_keys::<S, Element, false>(s, key, size, position, keys.cast());
                copy_rows::<S, Element, ROWS_AHEAD>(s, value, size, values.cast(), place.value_row);
            }
        });
    }
}
