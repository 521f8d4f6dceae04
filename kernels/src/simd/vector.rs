//! The vector trait, and the traits of work that uses it.

use super::table::{EXP_ZERO, Table};

/// The number of f32 lanes in the widest vector of any instruction set; an array of this length holds any vector.
pub(crate) const MAX_LANES: usize = 16;

/// Floats in a cache line.
pub(crate) const CACHE_LINE_F32: usize = 16;

/// Rows of the tallest GEMM tile.
pub(crate) const MAX_MR: usize = 6;

/// The largest number of columns in a packed panel of any instruction set.
pub(crate) const MAX_PANEL: usize = 64;

/// Vectors of f32 of one instruction set.
///
/// # Safety
///
/// `LANES <= MAX_LANES`, `LANES * NV <= MAX_PANEL` for the `NV` of `with_tile_width`, and loads and stores access
/// exactly the lanes that they document.
pub(crate) unsafe trait SimdF32: Copy + Send + Sync + 'static {
    /// Lanes in one vector.
    const LANES: usize;
    /// Columns in a packed panel: the width of the GEMM tile.
    const PANEL: usize;
    /// Vector registers of the CPU.
    const REGISTERS: usize;
    /// Whether `prefetch` does anything. If it does not, tile variants that differ only in prefetching are the same.
    const PREFETCHES: bool = false;
    /// Whether `mul_add` is a call to an emulation instead of an instruction.
    const SOFT_FMA: bool = false;
    /// Whether some CPU with this set [prefers its hardware prefetcher](SimdF32::prefers_hw_prefetch).
    const MAY_PREFER_HW_PREFETCH: bool = false;
    /// Vectors with half as many lanes, or this type if there are none: see [`SimdF32::load_f16_half`].
    type Half: SimdF32;
    /// One vector of f32.
    type F32: Copy;
    /// One boolean per lane.
    type Mask: Copy;

    /// Runs `kernel` with the number of vectors in a panel as a constant.
    fn with_tile_width<K: TileOp>(self, kernel: K) -> K::Output;
    /// Runs `kernel` in a separate function, compiled for this instruction set and never inlined. It is for code that
    /// is used in many places, or that is one of many variants, and runs long enough that a call does not matter. The
    /// time to compile a function grows with the square of its loops.
    fn call_noinline<K: SimdOp>(self, kernel: K) -> K::Output;

    /// The token of [`SimdF32::Half`].
    fn half(self) -> Self::Half;
    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// `LANES` floats from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` floats.
    unsafe fn load(self, from: *const f32) -> Self::F32;
    /// The first `count <= LANES` floats from `from`, and zero in the other lanes, whose memory is not accessed.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats.
    unsafe fn load_prefix(self, from: *const f32, count: usize) -> Self::F32;
    /// Converts half `part`, 0 or 1, of each of `LANES` words from `from`, as bf16, to f32; half 0 has the lower
    /// address. Exact.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load_bf16(self, from: *const f32, part: usize) -> Self::F32;
    /// [`SimdF32::load_bf16`] that uses no register except that of the result, for tiles that leave no register free.
    ///
    /// # Safety
    /// As [`SimdF32::load_bf16`].
    #[inline(always)]
    unsafe fn load_bf16_alone(self, from: *const f32, part: usize) -> Self::F32 {
        // SAFETY: the caller's contract.
        unsafe { self.load_bf16(from, part) }
    }
    /// Converts f16 numbers from `from` to f32: the first `LANES` of `2 * LANES` numbers, or the others if `part` is
    /// 1. Exact, except that a NaN becomes quiet.
    ///
    /// # Safety
    /// `from` is valid for reads of the `LANES` f16 numbers of `part`; the others are not read.
    unsafe fn load_f16(self, from: *const f32, part: usize) -> Self::F32;
    /// The first `Half::LANES` numbers of [`SimdF32::load_f16`]. A CPU whose data paths are half a vector wide takes
    /// much longer for a whole vector than for two of these.
    ///
    /// # Safety
    /// As [`SimdF32::load_f16`], for reads of `Half::LANES` numbers.
    unsafe fn load_f16_half(self, from: *const f32, part: usize) -> <Self::Half as SimdF32>::F32;
    /// Writes `LANES` floats, any alignment.
    ///
    /// # Safety
    /// `to` is valid for writes of `LANES` floats.
    unsafe fn store(self, to: *mut f32, v: Self::F32);
    /// Writes the first `count <= LANES` lanes and accesses no other memory.
    ///
    /// # Safety
    /// `to` is valid for writes of `count` floats.
    unsafe fn store_prefix(self, to: *mut f32, v: Self::F32, count: usize);
    /// Prefetches the cache line at `_at`; any address is valid.
    #[inline(always)]
    fn prefetch(self, _at: *const f32) {}
    /// As `prefetch`, into the L2 cache.
    #[inline(always)]
    fn prefetch_l2(self, _at: *const f32) {}
    /// Whether the hardware prefetcher of this CPU is so strong that sequential reads need only sparse prefetches.
    #[inline(always)]
    fn prefers_hw_prefetch(self) -> bool {
        false
    }

    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`, correctly rounded.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The square root, correctly rounded; NaN below zero.
    #[cfg(feature = "train")]
    fn sqrt(self, a: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `a > b ? a : b`: `b` when either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a < b ? a : b`: `b` when either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `|a|`.
    fn abs(self, a: Self::F32) -> Self::F32;
    /// The magnitude of `magnitude` with the sign bit of `sign`.
    fn copy_sign(self, magnitude: Self::F32, sign: Self::F32) -> Self::F32;
    /// The element of `table` whose number is the lowest three bits of `index`.
    fn lookup(self, table: &'static Table, index: Self::F32) -> Self::F32;
    /// The first step of the exponential: `x`, at least [`EXP_ZERO`] unless [`SimdF32::exp_result`] needs no bound.
    #[inline(always)]
    fn exp_argument(self, x: Self::F32) -> Self::F32 {
        self.max(self.splat(EXP_ZERO), x)
    }
    /// The last step: `power + power * p`, rounded once, where `power` is `2^(k / 8)` and the lowest 12 bits of `t` are
    /// `k + 1008`; 0 where `x <= EXP_ZERO`, without the CPU's slow path for subnormal numbers. `x` is the result of
    /// [`SimdF32::exp_argument`]; there `k` is -1008 for `EXP_ZERO` and in -1007..=1016 above.
    fn exp_result(self, x: Self::F32, t: Self::F32, p: Self::F32) -> Self::F32;

    /// `a < b`, false when either is NaN.
    fn less(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `!(a < b)`: true when either is NaN.
    fn not_less(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// True in the first `count` lanes (in all when `count >= LANES`).
    fn first(self, count: usize) -> Self::Mask;
    /// `mask ? yes : no` per lane.
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32;
    /// Whether any lane is true.
    fn any(self, mask: Self::Mask) -> bool;

    /// The sum of all lanes by halving: lane `i` and lane `i + LANES / 2` first, then `i` and `i + LANES / 4`, and so
    /// on.
    fn reduce_add(self, a: Self::F32) -> f32;
    /// The largest lane. If a lane is NaN, the result is an unspecified lane.
    fn reduce_max(self, a: Self::F32) -> f32;

    /// Reads a `LANES x LANES` block of rows and writes its transpose:
    /// `to[j * to_stride + i] = from[i * from_stride + j]`.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` floats at each of `LANES` rows `from_stride` apart, `to`
    /// for writes of as many `to_stride` apart, and they do not overlap.
    unsafe fn transpose(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);

    /// As [`SimdF32::store`], non-temporal where the set has such a store: for data larger than the caches. Another
    /// thread may read the data only after [`SimdF32::fence`].
    ///
    /// # Safety
    /// As [`SimdF32::store`]; `to` is aligned to a vector.
    #[inline(always)]
    unsafe fn store_nontemporal(self, to: *mut f32, v: Self::F32) {
        // SAFETY: the caller's contract.
        unsafe { self.store(to, v) }
    }

    /// [`SimdF32::transpose`] with [`SimdF32::store_nontemporal`].
    ///
    /// # Safety
    /// As [`SimdF32::transpose`]; `to` and `to_stride` are aligned to a vector.
    #[inline(always)]
    unsafe fn transpose_nontemporal(
        self,
        from: *const f32,
        from_stride: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { self.transpose(from, from_stride, to, to_stride) }
    }

    /// Orders non-temporal stores before all later stores.
    #[inline(always)]
    fn fence(self) {}

    /// As [`SimdF32::transpose`] for `rows <= LANES` rows, with zeros for the missing rows.
    ///
    /// # Safety
    /// As [`SimdF32::transpose`], except that only `rows` rows are read.
    #[inline(always)]
    unsafe fn transpose_first(
        self,
        from: *const f32,
        from_stride: usize,
        rows: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        let mut block = [0.0; MAX_LANES * MAX_LANES];
        let at = block.as_mut_ptr();
        for i in 0..rows.min(Self::LANES) {
            // SAFETY: the caller's contract for `from`; `block` has `MAX_LANES * MAX_LANES` floats.
            unsafe { self.store(at.add(i * Self::LANES), self.load(from.add(i * from_stride))) };
        }
        // SAFETY: `block` has `MAX_LANES * MAX_LANES` floats. The contract of this function requires `LANES` rows of
        // `LANES` floats at `to`.
        unsafe { self.transpose(at, Self::LANES, to, to_stride) };
    }
}

/// Work that runs on any instruction set.
#[must_use = "an op runs when it is dispatched"]
pub(crate) trait SimdOp {
    type Output;
    /// Implementations are `#[inline(always)]`.
    fn run_with<S: SimdF32>(self, s: S) -> Self::Output;
}

/// Work that uses the panel width of the instruction set as a constant, to unroll loops.
pub(crate) trait TileOp {
    type Output;
    /// `NV * S::LANES == S::PANEL`, as [`panels`] checks. Implementations are `#[inline(always)]`.
    fn run_with<S: SimdF32, const NV: usize>(self, s: S) -> Self::Output;
}

/// A [`TileOp`] as a [`SimdOp`].
pub(crate) struct Tiled<K>(pub(crate) K);

impl<K: TileOp> SimdOp for Tiled<K> {
    type Output = K::Output;

    #[inline(always)]
    fn run_with<S: SimdF32>(self, s: S) -> K::Output {
        s.with_tile_width(self.0)
    }
}

/// The body of every [`SimdF32::with_tile_width`]. A panel of another width does not compile.
#[inline(always)]
pub(crate) fn panels<S: SimdF32, K: TileOp, const NV: usize>(s: S, kernel: K) -> K::Output {
    const {
        assert!(NV * S::LANES == S::PANEL, "NV vectors are a panel");
        assert!(S::LANES <= MAX_LANES && S::PANEL <= MAX_PANEL);
    }
    kernel.run_with::<S, NV>(s)
}
