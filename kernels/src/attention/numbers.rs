//! The forms in which a cache keeps its numbers, and how attention reads them.
//!
//! A number of sixteen bits is rounded once, when it is written, and widened in the tile, which is exact:
//! attention over such a cache has the bits of attention over floats of the rounded values. Nothing else
//! knows of the form: the loops are generic over [`Numbers`], and each form is a function of its own where
//! a call enters the kernels.

use crate::gemm::{Ahead, Floats, Form, Lines, Panels, Rows, Tile, multiply};
use crate::lanes::halves::narrow_f16;
use crate::lanes::{LINE, Lanes, MAX_LANES};

/// How a cache keeps keys and values.
///
/// Reading them is what attention spends its time on where they are many: long sources, large batches. In
/// sixteen bits they are half as much.
///
/// What is written to `F16` is rounded to the nearest number of 11 bits (ties to even), a multiple of
/// `2^-24` below `2^-14`; what is finite and larger than 65,504 becomes that, so no key that is
/// finite in f32 becomes infinite. The rounding changes results: up to there keys and values move by up to
/// `2^-11` of their size, or `2^-25` where that is more. It does so alike on every instruction set, in any batch
/// and on any number of threads: a result is, bit for bit, that of an `F32` cache into which the
/// rounded numbers were written.
///
/// ```
/// use simdformer_kernels::{CacheShape, CacheStorage, Isa};
///
/// let shape = CacheShape { storage: CacheStorage::F16, ..CacheShape::new(8, 128, 8, 64) };
/// assert_eq!(2 * shape.len(Isa::best())?, CacheShape::new(8, 128, 8, 64).len(Isa::best())?);
/// # Ok::<(), simdformer_kernels::AttentionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CacheStorage {
    /// As they are.
    #[default]
    F32,
    /// IEEE 754 binary16.
    F16,
}

impl CacheStorage {
    /// Whether this build can attend over a cache in this format: `F16` needs the feature `f16`.
    pub const fn is_enabled(self) -> bool {
        matches!(self, Self::F32) || cfg!(feature = "f16")
    }

    /// The form of that name, `f32` or `f16`: for command lines.
    ///
    /// ```
    /// use simdformer_kernels::CacheStorage;
    ///
    /// assert_eq!(CacheStorage::from_name("f16"), Some(CacheStorage::F16));
    /// assert_eq!(CacheStorage::from_name("int8"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "f32" => Some(Self::F32),
            "f16" => Some(Self::F16),
            _ => None,
        }
    }

    /// Numbers in a word of four bytes.
    #[inline(always)]
    pub(super) const fn in_word(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::F16 => 2,
        }
    }
}

/// The nearest f16, but of finite numbers a finite one.
#[inline(always)]
fn narrow(x: f32) -> u16 {
    const LARGEST: u16 = 0x7bff;
    let half = narrow_f16(x);
    let became_infinite = half & 0x7fff == LARGEST + 1 && x.is_finite();
    half - u16::from(became_infinite)
}

/// A number as it is kept, and how floats become some. Implementations are `#[inline(always)]`.
pub(super) trait Number: Copy {
    /// One of `x`.
    fn of(x: f32) -> Self;
    /// A vector of them: of `count <= LANES` floats from `from`, and zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes of `LANES` numbers.
    unsafe fn put<S: Lanes>(s: S, from: *const f32, count: usize, to: *mut Self);
    /// `count` floats from `from`, to places `LANES` apart.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes at those places.
    unsafe fn put_apart<S: Lanes>(s: S, from: *const f32, count: usize, to: *mut Self);
    /// `LANES` vectors, one after the other, from `LANES` rows `stride` apart, of which each becomes a column.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` floats in each row, `to` for writes of `LANES * LANES` numbers.
    unsafe fn put_turned<S: Lanes>(s: S, from: *const f32, stride: usize, to: *mut Self);
}

impl Number for f32 {
    #[inline(always)]
    fn of(x: f32) -> Self {
        x
    }
    #[inline(always)]
    unsafe fn put<S: Lanes>(s: S, from: *const f32, count: usize, to: *mut Self) {
        // SAFETY: the caller's contract; `load_first` stops at `count`.
        unsafe { s.store(to, s.load_first(from, count)) };
    }
    #[inline(always)]
    unsafe fn put_apart<S: Lanes>(_: S, from: *const f32, count: usize, to: *mut Self) {
        for i in 0..count {
            // SAFETY: the caller's contract.
            unsafe { *to.add(i * S::LANES) = *from.add(i) };
        }
    }
    #[inline(always)]
    unsafe fn put_turned<S: Lanes>(s: S, from: *const f32, stride: usize, to: *mut Self) {
        // SAFETY: the caller's contract.
        unsafe { s.transpose(from, stride, to, S::LANES) };
    }
}

/// Rounded in integers, which compilers make vectors of on every instruction set; a step writes one token of
/// each hypothesis, an encoder what little it keeps of much work.
impl Number for u16 {
    #[inline(always)]
    fn of(x: f32) -> Self {
        narrow(x)
    }
    #[inline(always)]
    unsafe fn put<S: Lanes>(s: S, from: *const f32, count: usize, to: *mut Self) {
        let mut floats = [0.0; MAX_LANES];
        // SAFETY: the caller's contract; `load_first` stops at `count`, and there is room for any vector.
        unsafe {
            s.store(floats.as_mut_ptr(), s.load_first(from, count));
            narrow_all(floats.as_ptr(), S::LANES, to);
        }
    }
    #[inline(always)]
    unsafe fn put_apart<S: Lanes>(s: S, from: *const f32, count: usize, to: *mut Self) {
        let mut halves = [0; MAX_LANES];
        for i in (0..count).step_by(S::LANES) {
            let part = (count - i).min(S::LANES);
            // SAFETY: the caller's contract, and room for any vector.
            unsafe { Self::put(s, from.add(i), part, halves.as_mut_ptr()) };
            for (lane, &half) in halves.iter().enumerate().take(part) {
                // SAFETY: the caller's contract.
                unsafe { *to.add((i + lane) * S::LANES) = half };
            }
        }
    }
    #[inline(always)]
    unsafe fn put_turned<S: Lanes>(s: S, from: *const f32, stride: usize, to: *mut Self) {
        let mut square = [0.0; MAX_LANES * MAX_LANES];
        // SAFETY: the caller's contract, and room for the square of any vector.
        unsafe {
            s.transpose(from, stride, square.as_mut_ptr(), S::LANES);
            narrow_all(square.as_ptr(), S::LANES * S::LANES, to);
        }
    }
}

/// `count` floats from `from` as halves.
///
/// # Safety
/// `from` is valid for reads of `count` floats, and `to` for writes of as many halves.
#[inline(always)]
unsafe fn narrow_all(from: *const f32, count: usize, to: *mut u16) {
    for i in 0..count {
        // SAFETY: the caller's contract.
        unsafe { *to.add(i) = narrow(*from.add(i)) };
    }
}

/// An operand in memory: `NV` vectors `vector` elements apart, at steps `step` elements apart.
pub(super) struct Stream<T> {
    pub(super) at: *const T,
    pub(super) step: usize,
    pub(super) vector: usize,
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Stream<T> {}

impl<T> Stream<T> {
    /// Vectors one after the other, `NV` for each step.
    #[inline(always)]
    pub(super) fn line_by_line<S: Lanes, const NV: usize>(at: *const T) -> Self {
        Self { at, step: NV * S::LANES, vector: S::LANES }
    }
}

/// A form of keys and values. Implementations are `#[inline(always)]`.
pub(super) trait Numbers: Copy {
    /// A number as it is kept.
    type Number: Number;
    /// How a tile reads them.
    type Form<S: Lanes>: Form<Lanes = S, Element = f32, Weight = Self::Number, Vector = S::F32, Sum = S::F32>;
    /// What asks for those that come.
    type Lines: Ahead;
    /// Rows of the tallest tile of queries. Where a load is more than that, tall tiles have no registers for it, and
    /// they would have to be compiled once more.
    const TALLEST: usize;

    fn form<S: Lanes>(s: S) -> Self::Form<S>;
    /// Asks for `count` vectors of `stream` at each step.
    fn lines<S: Lanes>(stream: Stream<Self::Number>, count: usize) -> Self::Lines;
    /// Asks for as many lines as `count` vectors of full lines are at each step, one after the other from `at`
    /// on, any address, `apart` floats from one request to the next.
    fn running(at: *const Self::Number, count: usize, apart: usize) -> Self::Lines;
}

/// A vector of numbers as floats.
///
/// # Safety
/// `from` is valid for reads of `LANES` numbers.
#[inline(always)]
pub(super) unsafe fn load<S: Lanes, N: Numbers>(s: S, from: *const N::Number) -> S::F32 {
    // SAFETY: the caller's contract.
    unsafe { N::form(s).load(from, 0) }
}

/// [`multiply`] of one panel of numbers.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(super) unsafe fn tile<S: Lanes, N: Numbers, Q: Ahead, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    rows: Rows<f32>,
    numbers: Stream<N::Number>,
    ahead: Q,
) -> Tile<S, MR, NV> {
    let Stream { at, step, vector } = numbers;
    let panel = Panels { at: [at], step, vector };
    // SAFETY: the caller's contract.
    let [acc] = unsafe { multiply(N::form(s), [acc], depth, rows, panel, ahead) };
    acc
}

/// Floats.
#[derive(Clone, Copy)]
pub(super) struct Full;

impl Numbers for Full {
    type Number = f32;
    type Form<S: Lanes> = Floats<S>;
    type Lines = Lines;
    const TALLEST: usize = crate::gemm::MAX_ROWS;

    #[inline(always)]
    fn form<S: Lanes>(s: S) -> Floats<S> {
        Floats(s)
    }
    #[inline(always)]
    fn lines<S: Lanes>(stream: Stream<f32>, count: usize) -> Lines {
        let Stream { at, step, vector } = stream;
        Lines { at, step, count, apart: vector }
    }
    #[inline(always)]
    fn running(at: *const f32, count: usize, apart: usize) -> Lines {
        Lines::running(at, count, apart)
    }
}

/// f16.
#[derive(Clone, Copy)]
pub(super) struct Half;

/// [`Half`] in a tile.
#[derive(Clone, Copy)]
pub(super) struct HalfForm<S>(S);

impl<S: Lanes> Form for HalfForm<S> {
    type Lanes = S;
    type Element = f32;
    type Weight = u16;
    type Vector = S::F32;
    type Sum = S::F32;

    #[inline(always)]
    fn lanes(self) -> S {
        self.0
    }
    #[inline(always)]
    unsafe fn load(self, from: *const u16, _: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load_f16(from.cast(), 0) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> S::F32 {
        // SAFETY: the caller's contract.
        self.0.splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, element: S::F32, numbers: S::F32, sum: S::F32) -> S::F32 {
        self.0.mul_add(element, numbers, sum)
    }
}

/// [`Lines`] of halves: those that two steps have together are asked for once.
#[derive(Clone, Copy)]
pub(super) struct HalfLines {
    lines: Lines,
    /// Whether the second of two steps has lines of its own.
    each: bool,
}

impl Ahead for HalfLines {
    const PERIOD: usize = 2;

    #[inline(always)]
    fn ask<S: Lanes>(&mut self, s: S, step: usize) {
        if step == 0 || self.each {
            self.lines.ask(s, 0);
        }
    }
}

impl Numbers for Half {
    type Number = u16;
    type Form<S: Lanes> = HalfForm<S>;
    type Lines = HalfLines;
    const TALLEST: usize = 4;

    #[inline(always)]
    fn form<S: Lanes>(s: S) -> HalfForm<S> {
        HalfForm(s)
    }
    #[inline(always)]
    fn lines<S: Lanes>(stream: Stream<u16>, count: usize) -> HalfLines {
        let Stream { at, step, vector } = stream;
        let at = at.cast();
        if step == S::LANES {
            // Two steps of each vector side by side.
            return HalfLines { lines: Lines { at, step, count, apart: vector / 2 }, each: false };
        }
        // A row of vectors side by side.
        let count = (count * S::LANES).div_ceil(2 * LINE);
        HalfLines { lines: Lines { at, step: step / 2, count, apart: LINE }, each: true }
    }
    #[inline(always)]
    fn running(at: *const u16, count: usize, apart: usize) -> HalfLines {
        HalfLines { lines: Lines::running(at.cast(), count, apart), each: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::halves::widen_f16;

    #[test]
    fn what_is_finite_stays_finite() {
        for (x, expected) in [
            (65_504.0, 0x7bff),
            (65_519.0, 0x7bff),
            (65_520.0, 0x7bff),
            (f32::MAX, 0x7bff),
            (f32::INFINITY, 0x7c00),
            (0.0, 0),
            (1.0, 0x3c00),
            (1e-9, 0),
            (5.960_464_5e-8, 1),
        ] {
            assert_eq!(narrow(x), expected, "{x:e}");
            assert_eq!(narrow(-x), expected | 0x8000, "{x:e}");
        }
        assert!(widen_f16(narrow(f32::NAN)).is_nan());
        for half in 0..=u16::MAX {
            if !widen_f16(half).is_nan() {
                assert_eq!(narrow(widen_f16(half)), half);
            }
        }
    }
}
