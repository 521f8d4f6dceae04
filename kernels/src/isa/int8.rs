//! The int8 instructions of a set: dot products and matrix units, which some CPUs with the set have.
//!
//! A set with int8 dot products implements `Int8Dot` and gets an arm in [`Isa::dispatch_bytes`]. An int8 matrix unit is
//! not a set: it extends one, as a case of [`MatrixUnit`], and changes no bit.

use super::{Isa, Level};
#[cfg(vectors = "aarch64")]
use crate::arch::aarch64::dotprod::{NeonDot, NeonMadd};
#[cfg(vectors = "aarch64")]
use crate::arch::aarch64::i8mm::NeonI8mm;
#[cfg(vectors = "x86_64")]
use crate::arch::x86_64::amx::Amx;
#[cfg(vectors = "x86_64")]
use crate::arch::x86_64::int8_madd::{Madd256, Madd512};
#[cfg(vectors = "x86_64")]
use crate::arch::x86_64::vnni::{Vnni256, Vnni512};
use crate::float_mode::DefaultMode;
use crate::simd::int8::{Int8Dot, Int8Op};
use crate::simd::matrix_unit::MatrixUnit;

impl Isa {
    /// This set without its int8 dot-product instructions (VNNI for AVX2 and AVX-512, the dot products of NEON) and
    /// without int8 matrix instructions: int8 products are slower and have the same bits, and everything else is
    /// unchanged. For measuring and testing the behavior of a CPU without them. It has the same name,
    /// and does not compare equal to this one.
    pub const fn without_dot_products(self) -> Self {
        Self { level: self.level, dot_products: false, matrix_products: false }
    }

    /// This set without int8 matrix instructions (AMX for AVX-512, I8MM for NEON): products of many rows with int8
    /// weights are slower and have the same bits, and everything else is unchanged. For measuring and testing, and for
    /// programs that do not want AMX tiles in the state of their threads. It has the same name, and
    /// does not compare equal to this one.
    pub const fn without_matrix_products(self) -> Self {
        Self { matrix_products: false, ..self }
    }

    /// Whether products of many rows with int8 weights use int8 matrix instructions: the CPU has them, and for AMX the
    /// operating system permits this process to use them. The permission is requested once, at the first use. It is
    /// for the whole process and permanent; a set [without them](Isa::without_matrix_products) does not request it.
    pub fn has_matrix_products(self) -> bool {
        self.matrices().is_some()
    }

    /// Whether this set multiplies int8 faster than f32.
    pub(crate) const fn has_bytes(self) -> bool {
        !matches!(self.level, Level::Scalar(_))
    }

    /// The int8 matrix unit of this set, if this CPU has it and the operating system permits its use.
    pub(crate) fn matrices(self) -> Option<MatrixUnit> {
        if !self.dot_products || !self.matrix_products {
            return None;
        }
        match self.level {
            #[cfg(vectors = "x86_64")]
            Level::Avx512(token) => {
                Vnni512::detect_with(token).and_then(Amx::detect_with).map(MatrixUnit::Amx)
            }
            #[cfg(vectors = "aarch64")]
            Level::Neon(token) => {
                NeonDot::detect_with(token).and_then(NeonI8mm::detect_with).map(MatrixUnit::Neon)
            }
            _ => None,
        }
    }

    /// As [`Isa::dispatch`], for int8 work, with the best int8 instructions of this set and this CPU.
    #[inline]
    pub(crate) fn dispatch_bytes<K: Int8Op>(self, kernel: K) -> K::Output {
        let _mode = DefaultMode::enter();
        match self.level {
            #[cfg(vectors = "x86_64")]
            Level::Avx512(token) => match Vnni512::detect_with(token).filter(|_| self.dot_products)
            {
                Some(vnni) => vnni.call_noinline(kernel),
                None => Madd512(token).call_noinline(kernel),
            },
            #[cfg(vectors = "x86_64")]
            Level::Avx2(token) => match Vnni256::detect_with(token).filter(|_| self.dot_products) {
                Some(vnni) => vnni.call_noinline(kernel),
                None => Madd256(token).call_noinline(kernel),
            },
            Level::Scalar(token) => Int8Dot::call_noinline(token, kernel),
            #[cfg(vectors = "aarch64")]
            Level::Neon(token) => match NeonDot::detect_with(token).filter(|_| self.dot_products) {
                Some(dot) => dot.call_noinline(kernel),
                None => NeonMadd(token).call_noinline(kernel),
            },
        }
    }
}
