//! NEON, its dot products and I8MM.

/// Compiles a function with NEON and the features after the `+`.
macro_rules! compiled_for_neon {
    (+ $more:literal $($function:tt)*) => {
        compiled_for_neon! { #[target_feature(enable = $more)] $($function)* }
    };
    ($($function:tt)*) => { #[target_feature(enable = "neon")] $($function)* };
}

pub(crate) mod dotprod;
pub(crate) mod i8mm;
mod neon;
