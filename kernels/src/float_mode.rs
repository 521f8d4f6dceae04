//! The floating-point mode in which results are defined.
//!
//! All bits are those of IEEE 754 arithmetic in its default mode: round to nearest, no flushing of subnormal numbers,
//! no exception trapped. The mode is a register of each thread (MXCSR on x86, FPCR on AArch64), and a host may have
//! changed it: audio engines flush subnormal numbers, numerical libraries change the rounding, some runtimes do either
//! on every thread that they start. Such a thread would compute other bits than the other threads. So each entry into
//! code that computes reads the register, which takes a few cycles. If the mode is not the default one, the entry sets
//! the default mode and restores the old mode at the end, also after a panic.
//!
//! Rust itself assumes the default mode everywhere and does not define the behavior of code in another mode. This
//! module protects the results of a caller in C or in assembly; it does not make a changed mode supported in Rust.

/// While a value of this type exists, this thread computes in the default mode.
pub(crate) struct DefaultMode(Option<Register>);

impl DefaultMode {
    #[inline(always)]
    pub(crate) fn enter() -> Self {
        let found = read_register();
        Self(if found & MODES == DEFAULT { None } else { Some(change(found)) })
    }
}

impl Drop for DefaultMode {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(found) = self.0 {
            restore(found);
        }
    }
}

/// Runs `work` in the default mode, for arithmetic outside the entries of [`Isa`](crate::Isa). `work` runs in a
/// separate function, so none of its arithmetic moves out of the default mode.
pub(crate) fn in_default_mode<R>(work: impl FnOnce() -> R) -> R {
    #[inline(never)]
    fn run_noinline<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    let _mode = DefaultMode::enter();
    run_noinline(work)
}

#[cold]
#[inline(never)]
fn change(found: Register) -> Register {
    // SAFETY: the value is [`DEFAULT`].
    unsafe { write_register(DEFAULT) };
    found
}

#[cold]
#[inline(never)]
fn restore(found: Register) {
    // SAFETY: `found` was read from the register.
    unsafe { write_register(found) };
}

use register::{DEFAULT, MODES, Register, read_register, write_register};

/// MXCSR, on x86.
#[cfg(all(any(target_arch = "x86_64", target_arch = "x86"), target_feature = "sse", not(miri)))]
mod register {
    use core::arch::asm;

    pub(super) type Register = u32;

    /// All bits except the six exception flags that operations set.
    pub(super) const MODES: u32 = !0x3f;
    /// Every exception masked.
    pub(super) const DEFAULT: u32 = 0x1f80;

    #[inline(always)]
    pub(super) fn read_register() -> u32 {
        let mut value = 0u32;
        // SAFETY: the instruction writes the four bytes of `value`; the target has SSE.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags));
        }
        value
    }

    /// # Safety
    /// `value` was read by [`read_register`], or is [`DEFAULT`].
    pub(super) unsafe fn write_register(value: u32) {
        // SAFETY: the instruction reads the four bytes of `value`, in which no reserved bit is set, by the caller's
        // contract. This function is not inlined, so no arithmetic moves past it.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags));
        }
    }
}

/// FPCR, on AArch64.
#[cfg(all(vectors = "aarch64", not(miri)))]
mod register {
    use core::arch::asm;

    pub(super) type Register = u64;

    pub(super) const MODES: u64 = !0;
    /// Round to nearest, nothing flushed, nothing trapped, NaN payloads preserved.
    pub(super) const DEFAULT: u64 = 0;

    #[inline(always)]
    pub(super) fn read_register() -> u64 {
        let value: u64;
        // SAFETY: every program may read FPCR.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nostack, preserves_flags)) };
        value
    }

    /// # Safety
    /// `value` was read by [`read_register`], or is [`DEFAULT`].
    pub(super) unsafe fn write_register(value: u64) {
        // SAFETY: every program may write FPCR, and the value is valid, by the caller's contract. This function is not
        // inlined, so no arithmetic moves past it.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

/// Targets whose register this crate does not read, and Miri, which has only the default mode.
#[cfg(not(any(
    all(any(target_arch = "x86_64", target_arch = "x86"), target_feature = "sse", not(miri)),
    all(vectors = "aarch64", not(miri))
)))]
mod register {
    pub(super) type Register = u32;

    pub(super) const MODES: u32 = 0;
    pub(super) const DEFAULT: u32 = 0;

    #[inline(always)]
    pub(super) const fn read_register() -> u32 {
        0
    }

    /// # Safety
    /// None.
    pub(super) const unsafe fn write_register(_: u32) {}
}
