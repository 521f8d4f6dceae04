//! AVX2, AVX-512, VNNI and AMX.

/// Defines the items of [`SimdF32`](crate::simd::SimdF32) for prefetches.
#[cfg(vectors = "x86_64")]
macro_rules! prefetch_items {
    () => {
        const PREFETCHES: bool = true;

        lanewise! {
            // SAFETY: a prefetch never faults.
            prefetch(_s, at: *const f32) -> () = unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast())
            };
            // SAFETY: a prefetch never faults.
            prefetch_l2(_s, at: *const f32) -> () = unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(at.cast())
            };
        }
    };
}

/// Defines a function that loads a vector by one piece of assembly: `{0}` is the vector, `{1}` the address, `{2}` a mask.
#[cfg(vectors = "x86_64")]
macro_rules! asm_load {
    ($name:ident: $feature:literal, $register:ident -> $Floats:ty, $($line:literal),+
        $(, $mask:ident: $Mask:ty)?) => {
        #[target_feature(enable = $feature)]
        #[inline]
        unsafe fn $name(from: *const f32 $(, $mask: $Mask)?) -> $Floats {
            let floats;
            // SAFETY: the caller's contract.
            unsafe {
                core::arch::asm!($($line,)+ lateout($register) floats, in(reg) from,
                    $(in($register) $mask,)? options(pure, readonly, nostack, preserves_flags));
            }
            floats
        }
    };
}

/// Defines the items of [`Int8Dot`](crate::simd::int8::Int8Dot) for words of lanes in vectors of `$width`: the elements of
/// signed words are less by `$offset`, and `$products` adds products.
#[cfg(vectors = "x86_64")]
macro_rules! word_items {
    (
        $width:ident, $form:ident, $keys:literal keys, signed = $sub:ident $offset:literal,
        add_products($set:ident, $sum:ident, $unsigned:ident, $signed:ident) = $products:expr
    ) => {
        const FORM: WordForm = WordForm::$form;
        const KEYS: usize = $keys;
        type Words = $width::Ints;

        #[inline(always)]
        unsafe fn load_words(self, from: *const i32) -> $width::Ints {
            // SAFETY: the caller's contract.
            unsafe { self.sums().load_sums(from) }
        }
        #[inline(always)]
        unsafe fn store_words(self, to: *mut i32, words: $width::Ints) {
            // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
            unsafe { $width::storeu(to.cast(), words) }
        }
        #[inline(always)]
        fn splat_word(self, word: i32) -> $width::Ints {
            self.sums().splat_i32(word)
        }
        #[inline(always)]
        fn add_products(
            self,
            $sum: $width::Ints,
            $unsigned: $width::Ints,
            $signed: $width::Ints,
        ) -> $width::Ints {
            let $set = self;
            $products
        }
        #[inline(always)]
        fn float_of_bits(self, bits: $width::Floats) -> [$width::Floats; 2] {
            // SAFETY: `self` proves that the CPU has the instructions.
            unsafe {
                let bits = $width::cvtps_epi32(bits);
                let mantissa = $width::and_bits(bits, self.splat_word(MANTISSA));
                let one = $width::or_bits(mantissa, self.splat_word(ONE));
                [$width::to_floats(bits), $width::to_floats(one)]
            }
        }
        #[inline(always)]
        fn signed(self, packed: $width::Ints) -> $width::Ints {
            // SAFETY: `self` proves that the CPU has the instructions.
            unsafe { $width::$sub(packed, self.splat_word($offset.cast_signed())) }
        }
    };
}

#[cfg(vectors = "x86_64")]
pub(crate) mod amx;
pub(crate) mod amx_tile;
#[cfg(vectors = "x86_64")]
mod avx2;
#[cfg(vectors = "x86_64")]
mod avx512;
#[cfg(vectors = "x86_64")]
mod detect_hw_prefetcher;
#[cfg(vectors = "x86_64")]
pub(crate) mod features;
#[cfg(vectors = "x86_64")]
pub(crate) mod int8_madd;
#[cfg(vectors = "x86_64")]
mod int8_sums;
#[cfg(vectors = "x86_64")]
mod quantize;
#[cfg(vectors = "x86_64")]
pub(crate) mod vnni;
#[cfg(vectors = "x86_64")]
mod widths;
