//! NEON: 4 lanes, 32 registers.

use crate::simd::table::{EXP_ZERO, POWERS, Table};
use crate::simd::vector::{SimdF32, SimdOp};
use core::arch::aarch64::{float32x4_t, uint8x16x2_t, uint32x4_t};
use core::arch::asm;
use pulp::aarch64::Neon;

static INDEX: [u32; 4] = [0, 1, 2, 3];

// SAFETY: 4 lanes, panels of 4 x 4 = 16; partial accesses go lane by lane.
unsafe impl SimdF32 for Neon {
    sizes!(4 lanes, 4 in a panel, 32 registers);
    type F32 = float32x4_t;
    type Mask = uint32x4_t;

    call_noinline!(compiled_for_neon: SimdF32, SimdOp);
    without_half_vectors!();

    memory_access! {
        load(s, from: *const f32) -> float32x4_t = s.neon.vld1q_f32(from);
        store(s, to: *mut f32, v: float32x4_t) = s.neon.vst1q_f32(to, v);
        // 4 rows of 4 floats.
        transpose(s, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) = {
            let neon = s.neon;
            let (a, b) = (s.load(from), s.load(from.add(from_stride)));
            let (c, d) = (s.load(from.add(2 * from_stride)), s.load(from.add(3 * from_stride)));
            let (ac_low, ac_high) = (neon.vzip1q_f32(a, c), neon.vzip2q_f32(a, c));
            let (bd_low, bd_high) = (neon.vzip1q_f32(b, d), neon.vzip2q_f32(b, d));
            s.store(to, neon.vzip1q_f32(ac_low, bd_low));
            s.store(to.add(to_stride), neon.vzip2q_f32(ac_low, bd_low));
            s.store(to.add(2 * to_stride), neon.vzip1q_f32(ac_high, bd_high));
            s.store(to.add(3 * to_stride), neon.vzip2q_f32(ac_high, bd_high));
        };
    }

    #[inline(always)]
    unsafe fn load_prefix(self, from: *const f32, count: usize) -> float32x4_t {
        let mut buffer = [0.0f32; 4];
        for (i, lane) in buffer.iter_mut().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller's contract covers `count` floats.
            *lane = unsafe { from.add(i).read_unaligned() };
        }
        // SAFETY: `buffer` has four floats.
        unsafe { self.neon.vld1q_f32(buffer.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const f32, part: usize) -> float32x4_t {
        let neon = self.neon;
        // SAFETY: the caller's contract.
        let words = neon.vreinterpretq_u32_f32(unsafe { self.load(from) });
        // Half 0 is the low one on little-endian targets.
        neon.vreinterpretq_f32_u32(match (part == 0) == cfg!(target_endian = "little") {
            true => neon.vshlq_n_u32::<16>(words),
            false => neon.vandq_u32(words, neon.vdupq_n_u32(0xffff << 16)),
        })
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const f32, part: usize) -> float32x4_t {
        // SAFETY: the contract of `SimdF32::load_f16`: the four numbers of `part` can be read.
        let halves = unsafe { self.neon.vld1_u16(from.add(2 * part).cast()) };
        let floats;
        // The intrinsic is newer than the minimum Rust version.
        // SAFETY: the instruction is part of NEON, which the token proves, and accesses no memory.
        unsafe {
            asm!("fcvtl {:v}.4s, {:v}.4h", lateout(vreg) floats, in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags));
        }
        floats
    }
    #[inline(always)]
    unsafe fn store_prefix(self, to: *mut f32, v: float32x4_t, count: usize) {
        let mut buffer = [0.0f32; 4];
        // SAFETY: `buffer` has four floats.
        unsafe { self.neon.vst1q_f32(buffer.as_mut_ptr(), v) };
        for (i, lane) in buffer.iter().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller's contract covers `count` floats.
            unsafe { to.add(i).write_unaligned(*lane) };
        }
    }

    of_two!(neon: add = vaddq_f32, sub = vsubq_f32, mul = vmulq_f32, div = vdivq_f32);
    lanewise! {
        splat(s, x: f32) = s.neon.vdupq_n_f32(x);
        #[cfg(feature = "train")]
        sqrt(s, a) = s.neon.vsqrtq_f32(a);
        mul_add(s, a, b, c) = s.neon.vfmaq_f32(c, a, b);
        max(s, a, b) = s.neon.vbslq_f32(s.neon.vcgtq_f32(a, b), a, b);
        min(s, a, b) = s.neon.vbslq_f32(s.neon.vcltq_f32(a, b), a, b);
        abs(s, a) = s.neon.vabsq_f32(a);
        copy_sign(s, magnitude, sign) =
            s.neon.vbslq_f32(s.neon.vdupq_n_u32(1 << 31), sign, magnitude);
        lookup(s, table: &'static Table, index) = {
            let n = s.neon;
            let index = n.vandq_u32(n.vreinterpretq_u32_f32(index), n.vdupq_n_u32(7));
            // The four bytes of a float, in the order of memory.
            let bytes = if cfg!(target_endian = "little") { 0x0302_0100 } else { 0x0001_0203 };
            let index = n.vmlaq_u32(n.vdupq_n_u32(bytes), index, n.vdupq_n_u32(0x0404_0404));
            // SAFETY: a table has sixteen floats.
            let (low, high) = unsafe { (s.load(table.as_ptr()), s.load(table.as_ptr().add(4))) };
            let table = uint8x16x2_t(n.vreinterpretq_u8_f32(low), n.vreinterpretq_u8_f32(high));
            n.vreinterpretq_f32_u8(n.vqtbl2q_u8(table, n.vreinterpretq_u8_u32(index)))
        };
        // `fmax` gives NaN for NaN.
        exp_argument(s, x) = s.neon.vmaxq_f32(s.splat(EXP_ZERO), x);
        exp_result(s, _x, t, p) = {
            let n = s.neon;
            let exponent = n.vshlq_n_u32::<20>(n.vreinterpretq_u32_f32(t));
            let power = n.vaddq_u32(n.vreinterpretq_u32_f32(s.lookup(&POWERS, t)), exponent);
            // 0 where the exponent is 0; it is never negative.
            let power = n.vandq_u32(power, n.vtstq_u32(exponent, exponent));
            let power = n.vreinterpretq_f32_u32(power);
            s.mul_add(power, p, power)
        };

        less(s, a, b) -> uint32x4_t = s.neon.vcltq_f32(a, b);
        not_less(s, a, b) -> uint32x4_t = s.neon.vmvnq_u32(s.less(a, b));
        first(s, count: usize) -> uint32x4_t = {
            let count = if count < 4 { count as u32 } else { 4 };
            // SAFETY: the table has four words.
            let index = unsafe { s.neon.vld1q_u32(INDEX.as_ptr()) };
            s.neon.vcltq_u32(index, s.neon.vdupq_n_u32(count))
        };
        select(s, mask: uint32x4_t, yes, no) = s.neon.vbslq_f32(mask, yes, no);
        any(s, mask: uint32x4_t) -> bool = s.neon.vmaxvq_u32(mask) != 0;

        reduce_add(s, a) -> f32 = {
            let two = s.neon.vadd_f32(s.neon.vget_low_f32(a), s.neon.vget_high_f32(a));
            s.neon.vpadds_f32(two)
        };
        reduce_max(s, a) -> f32 = s.neon.vmaxvq_f32(a);
    }
}
