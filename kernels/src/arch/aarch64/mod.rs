//! NEON, its dot products and I8MM.

/// Compiles a function with NEON and the features after the `+`.
macro_rules! compiled_for_neon {
    (+ $more:literal $($function:tt)*) => {
        compiled_for_neon! { #[target_feature(enable = $more)] $($function)* }
    };
    ($($function:tt)*) => { #[target_feature(enable = "neon")] $($function)* };
}

/// `sum + a b` by the instruction `$name`, which multiplies bytes. Its intrinsic is not stable.
macro_rules! multiply_bytes {
    ($name:literal, $sum:ident, $a:ident, $b:ident) => {{
        let mut sum = $sum;
        core::arch::asm!(
            concat!($name, " {sum:v}.4s, {a:v}.16b, {b:v}.16b"),
            sum = inout(vreg) sum,
            a = in(vreg) $a,
            b = in(vreg) $b,
            options(pure, nomem, nostack, preserves_flags)
        );
        sum
    }};
}

pub(crate) mod dotprod;
pub(crate) mod i8mm;
mod neon;
