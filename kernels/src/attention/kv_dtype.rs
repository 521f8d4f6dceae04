//! The forms in which a cache keeps its numbers, and how attention reads them.
//!
//! A number of sixteen bits is rounded once, when it is written, and widened in the tile, which is exact:
//! attention over such a cache has the bits of attention over floats of the rounded values. Nothing else
//! knows of the form: the loops are generic over [`KvFormat`], and each form is a function of its own where
//! a call enters the kernels.

use crate::gemm::{F32Operand, Panels, Prefetch, PrefetchLines, Rows, Tile, TileOperand, multiply};
use crate::simd::half::narrow_f16;
use crate::simd::{CACHE_LINE_F32, MAX_LANES, SimdF32};

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
/// use simdformer_kernels::{CacheShape, CacheDtype, Isa};
///
/// let shape = CacheShape { storage: CacheDtype::F16, ..CacheShape::new(8, 128, 8, 64) };
/// assert_eq!(2 * shape.len(Isa::best())?, CacheShape::new(8, 128, 8, 64).len(Isa::best())?);
/// # Ok::<(), simdformer_kernels::AttentionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CacheDtype {
    /// As they are.
    #[default]
    F32,
    /// IEEE 754 binary16.
    F16,
}

impl CacheDtype {
    /// Whether this build can attend over a cache in this format: `F16` needs the feature `f16`.
    pub const fn is_enabled(self) -> bool {
        matches!(self, Self::F32) || cfg!(feature = "f16")
    }

    /// The form of that name, `f32` or `f16`: for command lines.
    ///
    /// ```
    /// use simdformer_kernels::CacheDtype;
    ///
    /// assert_eq!(CacheDtype::from_name("f16"), Some(CacheDtype::F16));
    /// assert_eq!(CacheDtype::from_name("int8"), None);
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
pub(super) trait KvElement: Copy {
    /// One of `x`.
    fn of(x: f32) -> Self;
    /// A vector of them: of `count <= LANES` floats from `from`, and zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes of `LANES` numbers.
    unsafe fn put<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self);
    /// `count` floats from `from`, to places `LANES` apart.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes at those places.
    unsafe fn put_apart<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self);
    /// `LANES` vectors, one after the other, from `LANES` rows `stride` apart, of which each becomes a column.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` floats in each row, `to` for writes of `LANES * LANES` numbers.
    unsafe fn put_turned<S: SimdF32>(s: S, from: *const f32, stride: usize, to: *mut Self);
}

impl KvElement for f32 {
    #[inline(always)]
    fn of(x: f32) -> Self {
        x
    }
    #[inline(always)]
    unsafe fn put<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
        // SAFETY: the caller's contract; `load_prefix` stops at `count`.
        unsafe { s.store(to, s.load_prefix(from, count)) };
    }
    #[inline(always)]
    unsafe fn put_apart<S: SimdF32>(_: S, from: *const f32, count: usize, to: *mut Self) {
        for i in 0..count {
            // SAFETY: the caller's contract.
            unsafe { *to.add(i * S::LANES) = *from.add(i) };
        }
    }
    #[inline(always)]
    unsafe fn put_turned<S: SimdF32>(s: S, from: *const f32, stride: usize, to: *mut Self) {
        // SAFETY: the caller's contract.
        unsafe { s.transpose(from, stride, to, S::LANES) };
    }
}

/// Rounded in integers, which compilers make vectors of on every instruction set; a step writes one token of
/// each hypothesis, an encoder what little it keeps of much work.
impl KvElement for u16 {
    #[inline(always)]
    fn of(x: f32) -> Self {
        narrow(x)
    }
    #[inline(always)]
    unsafe fn put<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
        let mut floats = [0.0; MAX_LANES];
        // SAFETY: the caller's contract; `load_prefix` stops at `count`, and there is room for any vector.
        unsafe {
            s.store(floats.as_mut_ptr(), s.load_prefix(from, count));
            narrow_all(floats.as_ptr(), S::LANES, to);
        }
    }
    #[inline(always)]
    unsafe fn put_apart<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
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
    unsafe fn put_turned<S: SimdF32>(s: S, from: *const f32, stride: usize, to: *mut Self) {
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
pub(super) struct PanelView<T> {
    pub(super) at: *const T,
    pub(super) step: usize,
    pub(super) vector: usize,
}

impl<T> Clone for PanelView<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PanelView<T> {}

impl<T> PanelView<T> {
    /// Vectors one after the other, `NV` for each step.
    #[inline(always)]
    pub(super) fn line_by_line<S: SimdF32, const NV: usize>(at: *const T) -> Self {
        Self { at, step: NV * S::LANES, vector: S::LANES }
    }
}

/// A form of keys and values. Implementations are `#[inline(always)]`.
pub(super) trait KvFormat: Copy {
    /// A number as it is kept.
    type KvElement: KvElement;
    /// How a tile reads them.
    type Operand<S: SimdF32>: TileOperand<
            SimdF32 = S,
            Element = f32,
            Weight = Self::KvElement,
            Vector = S::F32,
            Sum = S::F32,
        >;
    /// What asks for those that come.
    type Prefetch: Prefetch;
    /// Rows of the tallest tile of queries. Where a load is more than that, tall tiles have no registers for it, and
    /// they would have to be compiled once more.
    const MAX_MR: usize;

    fn form<S: SimdF32>(s: S) -> Self::Operand<S>;
    /// Asks for `count` vectors of `stream` at each step.
    fn lines<S: SimdF32>(stream: PanelView<Self::KvElement>, count: usize) -> Self::Prefetch;
    /// Asks for as many lines as `count` vectors of full lines are at each step, one after the other from `at`
    /// on, any address, `apart` floats from one request to the next.
    fn running(at: *const Self::KvElement, count: usize, apart: usize) -> Self::Prefetch;
}

/// A vector of numbers as floats.
///
/// # Safety
/// `from` is valid for reads of `LANES` numbers.
#[inline(always)]
pub(super) unsafe fn load<S: SimdF32, N: KvFormat>(s: S, from: *const N::KvElement) -> S::F32 {
    // SAFETY: the caller's contract.
    unsafe { N::form(s).load(from, 0) }
}

/// [`multiply`] of one panel of numbers.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(super) unsafe fn tile<
    S: SimdF32,
    N: KvFormat,
    Q: Prefetch,
    const MR: usize,
    const NV: usize,
>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    rows: Rows<f32>,
    numbers: PanelView<N::KvElement>,
    ahead: Q,
) -> Tile<S, MR, NV> {
    let PanelView { at, step, vector } = numbers;
    let panel = Panels { at: [at], step, vector };
    // SAFETY: the caller's contract.
    let [acc] = unsafe { multiply(N::form(s), [acc], depth, rows, panel, ahead) };
    acc
}

/// Floats.
#[derive(Clone, Copy)]
pub(super) struct F32Kv;

impl KvFormat for F32Kv {
    type KvElement = f32;
    type Operand<S: SimdF32> = F32Operand<S>;
    type Prefetch = PrefetchLines;
    const MAX_MR: usize = crate::gemm::MAX_MR;

    #[inline(always)]
    fn form<S: SimdF32>(s: S) -> F32Operand<S> {
        F32Operand(s)
    }
    #[inline(always)]
    fn lines<S: SimdF32>(stream: PanelView<f32>, count: usize) -> PrefetchLines {
        let PanelView { at, step, vector } = stream;
        PrefetchLines { at, step, count, apart: vector }
    }
    #[inline(always)]
    fn running(at: *const f32, count: usize, apart: usize) -> PrefetchLines {
        PrefetchLines::running(at, count, apart)
    }
}

/// f16.
#[derive(Clone, Copy)]
pub(super) struct F16Kv;

/// [`F16Kv`] in a tile.
#[derive(Clone, Copy)]
pub(super) struct F16Operand<S>(S);

impl<S: SimdF32> TileOperand for F16Operand<S> {
    type SimdF32 = S;
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

/// [`PrefetchLines`] of halves: those that two steps have together are asked for once.
#[derive(Clone, Copy)]
pub(super) struct F16Prefetch {
    lines: PrefetchLines,
    /// Whether the second of two steps has lines of its own.
    each: bool,
}

impl Prefetch for F16Prefetch {
    const PERIOD: usize = 2;

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        if step == 0 || self.each {
            self.lines.issue(s, 0);
        }
    }
}

impl KvFormat for F16Kv {
    type KvElement = u16;
    type Operand<S: SimdF32> = F16Operand<S>;
    type Prefetch = F16Prefetch;
    const MAX_MR: usize = 4;

    #[inline(always)]
    fn form<S: SimdF32>(s: S) -> F16Operand<S> {
        F16Operand(s)
    }
    #[inline(always)]
    fn lines<S: SimdF32>(stream: PanelView<u16>, count: usize) -> F16Prefetch {
        let PanelView { at, step, vector } = stream;
        let at = at.cast();
        if step == S::LANES {
            // Two steps of each vector side by side.
            return F16Prefetch {
                lines: PrefetchLines { at, step, count, apart: vector / 2 },
                each: false,
            };
        }
        // A row of vectors side by side.
        let count = (count * S::LANES).div_ceil(2 * CACHE_LINE_F32);
        F16Prefetch {
            lines: PrefetchLines { at, step: step / 2, count, apart: CACHE_LINE_F32 },
            each: true,
        }
    }
    #[inline(always)]
    fn running(at: *const u16, count: usize, apart: usize) -> F16Prefetch {
        F16Prefetch { lines: PrefetchLines::running(at.cast(), count, apart), each: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::half::widen_f16;

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
