//! AMX tiles: the check whether they may be used, and the assembly that uses them.
//!
//! AMX is not an instruction set of [`crate::Isa`]; it extends AVX-512 with VNNI. Only int8 products use it. Their
//! sums are exact, so the results have the same bits without AMX.
//!
//! * The CPU must have tiles (CPUID), the operating system must save them (XCR0), and on Linux a process must request
//!   permission once: the state of a thread that uses tiles is 8 KiB larger. Linux denies the permission if the kernel
//!   is too old, if a sandbox forbids the system call, or if a thread's signal stack is too small. Then, and on other
//!   operating systems, AMX is not used.
//! * Rust 1.89 has no intrinsics for AMX, but stable Rust has inline assembly. The compiler does not preserve tile
//!   registers between two pieces of assembly, so one piece computes a whole block. The tile configuration is state of
//!   the thread, like a rounding mode, and compiled code does not change it. It is loaded once for many blocks and
//!   released afterwards, so that the operating system saves no tiles for a thread that does other work.

use crate::arch::x86_64::amx_tile::{
    Block, BlockSums, LINE, STEP, Start, TILE_CONFIG, TileUnit, Tiles, block,
};
use crate::arch::x86_64::features::CachedCpuFlag;
use crate::arch::x86_64::features::system_saves;
use crate::arch::x86_64::vnni::Vnni512;
use crate::float_mode::DefaultMode;
use crate::simd::int8::{Int8Dot, Int8Op};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::marker::PhantomData;

#[cfg(test)]
std::thread_local! {
    /// Whether this thread simulates a denied permission.
    static REFUSED: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Runs `work` as in a process that may not use tiles.
#[cfg(test)]
pub(crate) fn none_granted(work: impl FnOnce()) {
    REFUSED.set(true);
    work();
    REFUSED.set(false);
}

/// Proof that the CPU has AMX and its int8 products, and that this process may use them.
#[derive(Clone, Copy)]
pub(crate) struct Amx {
    vnni: Vnni512,
}

/// Whether this process may use tiles.
static PRESENT: CachedCpuFlag = CachedCpuFlag::new();

impl Amx {
    pub(crate) fn detect_with(vnni: Vnni512) -> Option<Self> {
        #[cfg(test)]
        if REFUSED.get() {
            return None;
        }
        let present = || has_tiles() && system_saves(XCR0_TILES) && permitted();
        PRESENT.answer(present).then_some(Self { vnni })
    }

    /// Runs `kernel` with everything that is inlined into it compiled for AVX-512 with VNNI.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        let _mode = DefaultMode::enter();
        self.vnni.call_noinline(kernel)
    }
}

/// The registers of AVX-512 and below, the tile configuration, and the tile data.
const XCR0_TILES: u64 = 0b110_0000_0000_1110_0110;

/// Whether the CPU has int8 tile products and eight tiles of sixteen rows of 64 bytes.
fn has_tiles() -> bool {
    const TILE_AND_INT8: u32 = 0b11 << 24;
    if __cpuid(0).eax < 0x1d || __cpuid_count(7, 0).edx & TILE_AND_INT8 != TILE_AND_INT8 {
        return false;
    }
    let palette = __cpuid_count(0x1d, 1);
    let (bytes_of_a_tile, bytes_of_a_row) = (palette.eax >> 16, palette.ebx & 0xffff);
    let (tiles, rows) = (palette.ebx >> 16, palette.ecx & 0xffff);
    __cpuid_count(0x1d, 0).eax >= 1
        && (bytes_of_a_tile, bytes_of_a_row, tiles, rows) == (1024, 64, 8, 16)
}

/// Requests permission from Linux to use tiles in this process.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
fn permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XTILEDATA: usize = 18;
    let result: usize;
    // SAFETY: the system call takes two numbers and accesses no memory of the process. A kernel without this call
    // returns an error. The instruction itself overwrites `rcx` and `r11`.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
fn permitted() -> bool {
    false
}

impl TileUnit for Amx {
    type Tiles = Configured;

    #[inline(always)]
    fn configured(self) -> Configured {
        // SAFETY: `self` proves that the CPU has tiles and that the system saves them. The instruction reads the 64
        // bytes of a configuration that `has_tiles` has checked. Only the code of this file uses tiles.
        unsafe {
            asm!(
                "ldtilecfg [{configuration}]",
                configuration = in(reg) &TILE_CONFIG,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        Configured(PhantomData)
    }
}

/// The configured tiles of this thread. The type is not `Send`.
pub(crate) struct Configured(PhantomData<*const ()>);

impl Drop for Configured {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread has configured the tiles.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem, preserves_flags),
            );
        }
    }
}

/// An instruction of a block, as text.
macro_rules! instruction {
    (load $tile:literal, $base:ident + $offset:literal, $stride:ident) => {
        concat!("tileloadd tmm", $tile, ", ", instruction!(at $base + $offset, $stride))
    };
    (store $tile:literal, $base:ident + $offset:literal, $stride:ident) => {
        concat!("tilestored ", instruction!(at $base + $offset, $stride), ", tmm", $tile)
    };
    // The memory of a tile.
    (at $base:ident + $offset:literal, $stride:ident) => {
        concat!("[{", stringify!($base), "} + 1*{", stringify!($stride), "} + ", $offset, "]")
    };
    (dot $sums:literal, $rows:literal, $weights:literal) => {
        concat!("tdpbusd tmm", $sums, ", tmm", $rows, ", tmm", $weights)
    };
    (ahead $base:ident, $bytes:literal) => {
        concat!("add {", stringify!($base), "}, ", $bytes)
    };
}

/// A block as one piece of assembly.
macro_rules! assembly {
    (
        with [$($operands:tt)*]
        begin [$(($($begin:tt)*))*]
        step [$(($($step:tt)*))*]
        end [$(($($end:tt)*))*]
    ) => {
        asm!(
            $(instruction!($($begin)*),)*
            "2:",
            $(instruction!($($step)*),)*
            "dec {steps}",
            "jnz 2b",
            $(instruction!($($end)*),)*
            $($operands)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Tiles for Configured {
    #[inline(always)]
    fn multiply<const TALL: usize>(&mut self, block: &Block<'_, TALL>, sums: &mut BlockSums) {
        let sums = sums.0.as_mut_ptr();
        let line = size_of::<[f32; LINE]>();
        let mut starts: [*const i32; TALL] = [sums; TALL];
        let mut start = line;
        for tile in 0..TALL {
            match block.start() {
                // Stride 0: the same line for all rows of a tile.
                Start::Columns(lines) => {
                    (starts[tile], start) = (lines[tile].as_ptr().cast(), 0);
                }
                Start::Sums => starts[tile] = sums.wrapping_add(tile * STEP),
            }
        }
        // SAFETY: the tiles are configured in this thread. `Block::new` has checked that rows and panel contain
        // everything that `steps` steps load. `sums` is two tiles of sixteen lines; a start is one line, or `sums`.
        // Only `sums` is written.
        unsafe {
            if const { TALL == 1 } {
                block!(
                    1,
                    assembly!(
                        rows0 = inout(reg) block.rows(0).as_ptr() => _,
                        panel = inout(reg) block.panel().as_ptr() => _,
                        steps = inout(reg) block.steps() => _,
                        sums = in(reg) sums,
                        start0 = in(reg) starts[0],
                        start = in(reg) start,
                        row = in(reg) block.stride(),
                        line = in(reg) line,
                    )
                );
            } else {
                block!(
                    2,
                    assembly!(
                        rows0 = inout(reg) block.rows(0).as_ptr() => _,
                        rows1 = inout(reg) block.rows(1).as_ptr() => _,
                        panel = inout(reg) block.panel().as_ptr() => _,
                        steps = inout(reg) block.steps() => _,
                        sums = in(reg) sums,
                        start0 = in(reg) starts[0],
                        start1 = in(reg) starts[1],
                        start = in(reg) start,
                        row = in(reg) block.stride(),
                        line = in(reg) line,
                    )
                );
            }
        }
    }
}
