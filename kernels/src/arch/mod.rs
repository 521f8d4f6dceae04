//! The instruction sets: for each CPU architecture the vectors of [`crate::simd`] and its int8 instructions.
//!
//! | module | instruction set |
//! |---|---|
//! | `x86_64` | AVX2, AVX-512, VNNI, AMX; `int8_madd` where VNNI is missing |
//! | `aarch64` | NEON, its dot products, I8MM |
//! | `scalar` | plain Rust; on x86-64 with SSE2 registers, which every program may use |

/// Defines the method `call_noinline` of a set: for each kernel a function of its own, which the macro `$compiled` compiles
/// with the features of the set, and with `$more`. Numbers after the kernel's trait are the constants of its `run`.
#[cfg(any(vectors = "x86_64", vectors = "aarch64"))]
macro_rules! call_noinline {
    ($compiled:ident $(+ $more:literal)?: $Set:ident, $Op:ident $(<$($number:literal),+>)?) => {
        #[inline(always)]
        fn call_noinline<K: $Op>(self, kernel: K) -> K::Output {
            $compiled! {
                $(+ $more)?
                #[inline(never)]
                fn inside<S: $Set, K: $Op>(set: S, kernel: K) -> K::Output {
                    kernel.run_with::<S $(, $($number),+)?>(set)
                }
            }
            // SAFETY: `self` proves that the CPU has all of these features.
            unsafe { inside(self, kernel) }
        }
    };
}

/// Defines the constants and types of an [`Int8Dot`](crate::simd::int8::Int8Dot): `ROWS`, `TALL`, `STORED`, the token of
/// the sums and how a set gets it, and `I8x4`.
macro_rules! int8_items {
    ($rows:literal, $tall:literal, $stored:ident, |$set:ident| $sums:expr => $Sums:ty, $I8x4:ty) => {
        const ROWS: usize = $rows;
        const TALL: usize = $tall;
        const STORED: ActivationEncoding = ActivationEncoding::$stored;
        type Floats = <$Sums as SimdI32>::Floats;
        type I32 = <$Sums as SimdI32>::I32;
        type Sums = $Sums;
        type I8x4 = $I8x4;

        #[inline(always)]
        fn sums(self) -> $Sums {
            let $set = self;
            $sums
        }
    };
}

/// Defines the sizes of a [`SimdF32`](crate::simd::SimdF32), and its `with_tile_width`.
macro_rules! sizes {
    ($lanes:literal lanes, $vectors:literal in a panel, $registers:literal registers) => {
        const LANES: usize = $lanes;
        const PANEL: usize = $lanes * $vectors;
        const REGISTERS: usize = $registers;

        #[inline(always)]
        fn with_tile_width<K: $crate::simd::TileOp>(self, kernel: K) -> K::Output {
            $crate::simd::vector::panels::<Self, K, $vectors>(self, kernel)
        }
    };
}

/// Defines methods of [`SimdF32`](crate::simd::SimdF32) by expressions of the token and the arguments. Arguments and
/// results without a type are vectors.
macro_rules! lanewise {
    ($(
        $(#[$meta:meta])*
        $name:ident($s:ident $(, $arg:ident $(: $type:ty)?)*) $(-> $out:ty)? = $body:expr;
    )*) => {$(
        $(#[$meta])*
        #[inline(always)]
        fn $name(self $(, $arg: lanewise!(@type $($type)?))*) -> lanewise!(@type $($out)?) {
            let $s = self;
            $body
        }
    )*};
    (@type) => { Self::F32 };
    (@type $type:ty) => { $type };
}

/// Defines methods of [`SimdF32`](crate::simd::SimdF32) that are one intrinsic of two vectors, of part `$part` of the token.
#[cfg(any(vectors = "x86_64", vectors = "aarch64"))]
macro_rules! of_two {
    ($part:ident: $($name:ident = $intrinsic:ident),* $(,)?) => {
        lanewise! { $($name(s, a, b) = s.$part.$intrinsic(a, b);)* }
    };
}

/// Defines `unsafe` methods of a trait by expressions of the token and the arguments, whose contract is that of the method.
#[cfg(any(vectors = "x86_64", vectors = "aarch64"))]
macro_rules! memory_access {
    ($($name:ident($s:ident $(, $arg:ident: $type:ty)*) $(-> $out:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self $(, $arg: $type)*) $(-> $out)? {
            let $s = self;
            // SAFETY: the caller's contract.
            unsafe { $body }
        }
    )*};
}

/// Defines the items of [`SimdF32`](crate::simd::SimdF32) of a set without vectors of half the width.
macro_rules! without_half_vectors {
    () => {
        type Half = Self;

        #[inline(always)]
        fn half(self) -> Self {
            self
        }
        #[inline(always)]
        unsafe fn load_f16_half(self, from: *const f32, part: usize) -> Self::F32 {
            // SAFETY: the caller's contract.
            unsafe { self.load_f16(from, part) }
        }
    };
}

#[cfg(vectors = "aarch64")]
pub(crate) mod aarch64;
pub(crate) mod scalar;
// On other CPUs the tests use the AMX emulator.
#[cfg(any(vectors = "x86_64", test))]
pub(crate) mod x86_64;
