//! What multiplies small matrices of bytes beside an instruction set: far more products an instruction than one
//! that multiplies vectors, for many rows.

#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::i8mm::NeonI8mm;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::amx::Amx;

/// What this CPU has, and this process may use.
#[derive(Clone, Copy)]
pub(crate) enum MatrixUnit {
    /// Tiles of sixteen rows and columns.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    /// Two rows and two columns.
    #[cfg(target_arch = "aarch64")]
    Neon(NeonI8mm),
}
