//! The int8 matrix unit of a CPU. It does many more multiply-adds per instruction than vector instructions do, and is
//! used for products of many rows.

#[cfg(vectors = "aarch64")]
use crate::arch::aarch64::i8mm::NeonI8mm;
#[cfg(vectors = "x86_64")]
use crate::arch::x86_64::amx::Amx;

/// The matrix unit that this CPU has and this process may use.
#[derive(Clone, Copy)]
pub(crate) enum MatrixUnit {
    /// AMX: tiles of 16 rows and 16 columns.
    #[cfg(vectors = "x86_64")]
    Amx(Amx),
    /// I8MM: two rows and two columns.
    #[cfg(vectors = "aarch64")]
    Neon(NeonI8mm),
}
