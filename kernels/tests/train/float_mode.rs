//! Threads whose floating-point mode the host has changed: kernels give the bits of the default mode, and
//! restore the changed mode afterwards.
//!
//! Rust guarantees nothing for code that runs in another mode, so little does here: the mode is changed
//! around a call, and inputs and expectations are computed before.

use crate::calls::{Size, everything};
use crate::support::gemm::Packed;
use crate::support::pruned_argmax::Operands;
use crate::support::*;
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::train::{Schedule, WriteMode, clip_factor, normal, uniform};
use simdformer_kernels::{AttentionOptions, Epilogue, Isa, Parallelism, gemm};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(target_arch = "x86_64")]
mod mode {
    use std::arch::asm;

    /// MXCSR: round towards plus infinity, flush subnormal results and operands, mask all exceptions.
    pub(super) const CHANGED: u32 = 0x1f80 | 0b10 << 13 | 1 << 15 | 1 << 6;
    pub(super) const DEFAULT: u32 = 0x1f80;

    /// The mode without the flags that operations set.
    pub(super) fn get() -> u32 {
        let mut value = 0u32;
        // SAFETY: the instruction writes four bytes.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack)) };
        value & !0x3f
    }

    pub(super) fn set(value: u32) {
        // SAFETY: the instruction reads four bytes, in which no reserved bit is set.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod mode {
    use std::arch::asm;

    /// FPCR: round towards plus infinity, flush subnormal numbers.
    pub(super) const CHANGED: u64 = 0b01 << 22 | 1 << 24;
    pub(super) const DEFAULT: u64 = 0;

    pub(super) fn get() -> u64 {
        let value;
        // SAFETY: every program may read FPCR.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nostack)) };
        value
    }

    pub(super) fn set(value: u64) {
        // SAFETY: every program may write FPCR.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nostack)) };
    }
}

/// Runs `work` on this thread in the changed mode.
#[inline(never)]
fn changed<R>(work: impl FnOnce() -> R) -> R {
    mode::set(mode::CHANGED);
    let result = std::hint::black_box(work)();
    let after = mode::get();
    mode::set(mode::DEFAULT);
    assert_eq!(after, mode::CHANGED, "the mode is back");
    result
}

#[test]
fn every_kernel_has_the_bits_of_the_default_mode() {
    // Two threads, both in the changed mode.
    let threads = Runs(2, |tasks: usize, task: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for first in [0, 1] {
                scope.spawn(move || changed(|| (first..tasks).step_by(2).for_each(task)));
            }
        });
    });
    for isa in all_isas() {
        let expected = everything(isa, Size::SHARED, SERIAL);
        let alone = changed(|| everything(isa, Size::SHARED, SERIAL));
        let pooled = everything(isa, Size::SHARED, Parallelism::Executor(&threads));
        for (index, (name, expected)) in expected.iter().enumerate() {
            assert!(alone[index].1 == *expected, "{isa}: {name}, on the calling thread");
            assert!(pooled[index].1 == *expected, "{isa}: {name}, on other threads");
        }
    }
}

/// Numbers that the changed mode flushes as operands and as results.
#[test]
fn subnormal_numbers_stay() {
    let tiny = f32::from_bits(3);
    let (x, weight) = ([1.0, tiny], [tiny, 1.0, 0.5, tiny]);
    for isa in all_isas() {
        let weight = Packed::new(isa, view_matrix(&weight, 2, 2));
        let weight = weight.get();
        let mut c = [0.0; 2];
        changed(|| {
            let x = view_matrix(&x, 1, 2);
            let c = view_matrix_mut(&mut c, 1, 2);
            gemm(x, &weight, &Epilogue::default(), c, SERIAL).expect("a fit");
        });
        // 3 + 3 / 2 units of 2^-149 are halfway between two numbers and round to the even one.
        assert_eq!(c.map(f32::to_bits), [4, 1f32.to_bits()], "{isa}");
    }
}

/// Computations outside of the kernels with a [`Parallelism`].
fn the_rest() -> Vec<u64> {
    let mut floats = vec![0.0; 7 * 9];
    let mut all = Vec::new();
    for encoding in [
        PositionEncoding::HalfSplit,
        PositionEncoding::HalfSplitClosed { offset: 2 },
        PositionEncoding::HalfSplitSingle { offset: 1 },
    ] {
        let to = view_matrix_mut(&mut floats, 7, 9);
        encode(encoding, 3, to).expect("a fit");
        all.extend(floats.iter().map(|x| u64::from(x.to_bits())));
    }
    let buckets = RelativeBuckets::new(32, 128, true).expect("buckets");
    let table: Vec<f32> = (0..799u32).map(|i| f32::from_bits(0x3f80_0000 | (i * 9973))).collect();
    let mut gradient = [0.0; 32];
    let to = view_matrix_mut(&mut gradient, 32, 1);
    buckets.gradient(400, &table, WriteMode::Store, to).expect("a fit");
    all.extend(gradient.iter().map(|x| u64::from(x.to_bits())));
    normal(1, 2, 3, 0.02, &mut floats);
    all.extend(floats.iter().map(|x| u64::from(x.to_bits())));
    uniform(1, 2, 3, 0.02, &mut floats);
    all.extend(floats.iter().map(|x| u64::from(x.to_bits())));
    all.extend((1..20).map(|step| Schedule::paper(512).rate(step).to_bits()));
    all.extend((1..20).map(|norm| clip_factor(f64::from(norm), 0.7).expect("finite").to_bits()));
    all.extend((1..99).map(|width| u64::from(AttentionOptions::new(width).scale.to_bits())));
    all
}

#[test]
fn the_rest_has_the_bits_of_the_default_mode() {
    let expected = the_rest();
    assert!(changed(the_rest) == expected);
}

/// A callback that panics inside of a kernel.
#[test]
fn a_panic_restores_the_mode() {
    let isa = Isa::best();
    let operands = Operands::dense((1, 24, 200), |_, _| 1.0, |k, j| ((200 * k + j) % 7) as f32);
    let built = operands.build(isa);
    let banned = |_: usize, _: u32| -> bool { panic!("meant") };
    let call = || built.argmax(operands.x.view(), &banned, SERIAL);
    let result = changed(|| catch_unwind(AssertUnwindSafe(call)));
    assert!(result.is_err(), "the filter was asked");
}
