//! Plain Rust, eight floats at a time.

/// Defines the items of [`SimdF32`](crate::simd::SimdF32) that are the same in `portable.rs` and `sse2.rs`.
macro_rules! scalar_items {
    () => {
        const SOFT_FMA: bool = true;
        type F32 = F32x8;
        type Mask = Mask8;
        sizes!(8 lanes, 1 in a panel, 16 registers);
        without_half_vectors!();

        #[inline(never)]
        fn call_noinline<K: SimdOp>(self, kernel: K) -> K::Output {
            kernel.run_with(self)
        }
        #[inline(always)]
        unsafe fn load_prefix(self, from: *const f32, count: usize) -> F32x8 {
            // SAFETY: the caller's contract.
            from_array(unsafe { crate::arch::scalar::load_prefix(from, count) })
        }
        #[inline(always)]
        unsafe fn store_prefix(self, to: *mut f32, v: F32x8, count: usize) {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::scalar::store_prefix(to, &to_array(v), count) }
        }
        #[inline(always)]
        unsafe fn transpose(
            self,
            from: *const f32,
            from_stride: usize,
            to: *mut f32,
            to_stride: usize,
        ) {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::scalar::transpose(from, from_stride, to, to_stride) }
        }
        lanewise! {
            mul_add(_s, a, b, c) = from_array(mul_add(to_array(a), to_array(b), to_array(c)));
            lookup(_s, table: &'static Table, index) =
                from_array(crate::arch::scalar::lookup(table, &to_array(index)));
            exp_result(s, _x, t, p) = {
                let power = from_array(crate::arch::scalar::power(&to_array(t)));
                s.mul_add(power, p, power)
            };
        }
    };
}

use crate::simd::table::{POWERS, Table};

mod int8;
// Unit tests on x86-64 compile it for a token of its own.
#[cfg(any(test, not(vectors = "x86_64")))]
mod portable;
mod quantize;
mod soft_fma;
#[cfg(vectors = "x86_64")]
mod sse2;

/// The token of the scalar set, which needs nothing of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

/// The token that `portable.rs` serves: that of the scalar set where `sse2.rs` does not serve it.
#[cfg(not(vectors = "x86_64"))]
use Scalar as Portable;
#[cfg(all(test, vectors = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

/// The first `count` floats from `from`, and zeros.
///
/// # Safety
/// `from` is valid for reads of `count <= 8` floats.
#[inline(never)]
unsafe fn load_prefix(from: *const f32, count: usize) -> [f32; 8] {
    let mut out = [0.0; 8];
    for (i, lane) in out.iter_mut().enumerate().take(count) {
        // SAFETY: `i < count`, and the caller's contract covers `count` floats.
        *lane = unsafe { from.add(i).read_unaligned() };
    }
    out
}

/// Writes the first `count` floats of `v`.
///
/// # Safety
/// `to` is valid for writes of `count <= 8` floats.
#[inline(never)]
unsafe fn store_prefix(to: *mut f32, v: &[f32; 8], count: usize) {
    for (i, lane) in v.iter().enumerate().take(count) {
        // SAFETY: `i < count`, and the caller's contract covers `count` floats.
        unsafe { to.add(i).write_unaligned(*lane) };
    }
}

/// [`SimdF32::lookup`](crate::simd::SimdF32::lookup) in each lane.
#[inline(never)]
fn lookup(table: &Table, index: &[f32; 8]) -> [f32; 8] {
    // SAFETY: a table has sixteen floats.
    let eight = unsafe { table.as_ptr().cast::<[f32; 8]>().read() };
    index.map(|index| eight[index.to_bits() as usize % 8])
}

/// The power of [`SimdF32::exp_result`](crate::simd::SimdF32::exp_result) in each lane.
#[inline(never)]
fn power(t: &[f32; 8]) -> [f32; 8] {
    let mut power = lookup(&POWERS, t);
    for (power, t) in power.iter_mut().zip(t) {
        let exponent = t.to_bits() << 20;
        let bits = power.to_bits().wrapping_add(exponent);
        // 0 where the exponent is 0; it is never negative.
        *power = f32::from_bits(if exponent == 0 { 0 } else { bits });
    }
    power
}

/// [`SimdF32::transpose`](crate::simd::SimdF32::transpose) of eight rows.
///
/// # Safety
/// As that function.
#[inline(never)]
unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    for i in 0..8 {
        for j in 0..8 {
            // SAFETY: the caller's contract: 8 rows of 8 floats at `from` and at `to`.
            unsafe { *to.add(j * to_stride + i) = *from.add(i * from_stride + j) };
        }
    }
}
