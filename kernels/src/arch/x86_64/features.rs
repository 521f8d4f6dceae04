//! The CPU features of pulp's tokens, for functions that are compiled for an instruction set without pulp's own entry.

use pulp::x86::{V3, V4};

/// Compiles a function with the features of [`V3`] and the features after the `+`.
macro_rules! compiled_for_v3 {
    (+ $more:literal $($function:tt)*) => {
        compiled_for_v3! { #[target_feature(enable = $more)] $($function)* }
    };
    ($($function:tt)*) => {
        #[target_feature(
            enable = "sse,sse2,fxsr,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt"
        )]
        $($function)*
    };
}
pub(crate) use compiled_for_v3;

/// Compiles a function with the features of [`V4`] and the features after the `+`.
macro_rules! compiled_for_v4 {
    (+ $more:literal $($function:tt)*) => {
        compiled_for_v4! { #[target_feature(enable = $more)] $($function)* }
    };
    ($($function:tt)*) => {
        $crate::arch::x86_64::features::compiled_for_v3! {
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
            $($function)*
        }
    };
}
pub(crate) use compiled_for_v4;

/// Destructures the tokens, so that a token that gains or loses a feature no longer compiles.
const _: fn(V3, V4) = |v3, v4| {
    macro_rules! is_all_of {
        ($token:ident: $set:ident $($feature:ident)*) => {
            let $set { $($feature: _),* } = $token;
        };
    }
    is_all_of!(v3: V3 sse sse2 fxsr sse3 ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 fma lzcnt);
    is_all_of!(v4: V4 sse sse2 fxsr sse3 ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 fma lzcnt
        avx512f avx512bw avx512cd avx512dq avx512vl);
};
