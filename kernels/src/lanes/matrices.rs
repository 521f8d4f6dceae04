//! What multiplies small matrices of bytes beside an instruction set: far more products an instruction than one
//! that multiplies vectors, for many rows.

#[cfg(target_arch = "x86_64")]
use super::amx::Amx;
#[cfg(target_arch = "aarch64")]
use super::neon_matrices::NeonMatrices;

/// What this CPU has, and this process may use.
#[derive(Clone, Copy)]
pub(crate) enum Matrices {
    /// Tiles of sixteen rows and columns.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    /// Two rows and two columns.
    #[cfg(target_arch = "aarch64")]
    Neon(NeonMatrices),
}
