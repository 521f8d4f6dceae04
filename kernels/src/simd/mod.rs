//! The vector trait for which every kernel is written once, and the macro [`simd_op`]: work for any instruction set,
//! written as a function.
//!
//! A value of a type that implements [`SimdF32`] is the proof that the CPU has the instruction set, so the arithmetic
//! is safe. Loads and stores take pointers and are `unsafe`. The trait contains only operations that some kernel
//! calls.
//!
//! Everything here is `#[inline(always)]` and is called only from inside [`crate::Isa::dispatch`], which enters the
//! `target_feature` region. A helper that is not inlined into that region would make each operation a function call.

pub(crate) mod half;
pub(crate) mod int8;
mod ladders;
pub(crate) mod matrix_unit;
pub(crate) mod quantize;
mod reduce;
pub(crate) mod table;
pub(crate) mod u8_activations;
pub(crate) mod vector;

pub(crate) use ladders::{array_of, tile_heights, vector_groups};
pub(crate) use reduce::{MOST_PARTS, sum_of_lanes};
#[cfg(feature = "train")]
pub(crate) use reduce::{MOST_VECTORS, VIRTUAL, sum_by_halving};
pub(crate) use table::{EXP_ZERO, Table};
pub(crate) use vector::{CACHE_LINE_F32, MAX_LANES, MAX_MR, MAX_PANEL, SimdF32, SimdOp, TileOp};

/// Defines a function that returns a [`SimdOp`](crate::simd::SimdOp). A closure cannot be one, because it cannot be
/// generic over the instruction set:
///
/// ```text
/// simd_op!(
///     fn scale<S: SimdF32>(s: S, x: &mut [f32], factor: f32) { ... }
/// );
/// isa.dispatch(scale(x, 2.0)); // enters the `target_feature` region of `isa`
/// s.call_noinline(scale(x, 2.0)); // in such a region: a separate function of the same instruction set
/// ```
///
/// The function takes the arguments after the token `s` and only stores them. The body runs when the op is dispatched,
/// compiled for the instruction set. The contract of an `unsafe` function must hold until then. Functions that the body
/// calls must be `#[inline(always)]`, or they are not compiled for the instruction set.
///
/// `S` may be followed by one type parameter with one bound and by constants, which the caller chooses. Only `const NV:
/// usize = { S::PANEL / S::LANES }`, the vectors in a panel, depends on the instruction set: then the op is a
/// [`TileOp`](crate::simd::TileOp).
///
/// `B: Int8Dot` instead of `S: SimdF32` makes an [`Int8Op`](crate::simd::int8::Int8Op), with its constants `NV` and `TV`.
macro_rules! simd_op {
    ($(#[$meta:meta])* $vis:vis unsafe fn $($rest:tt)*) => {
        simd_op!(@generics [$(#[$meta])*] [$vis] [unsafe] $($rest)*);
    };
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        simd_op!(@generics [$(#[$meta])*] [$vis] [] $($rest)*);
    };

    (@generics $meta:tt $vis:tt $unsafe:tt $name:ident
        <$S:ident: SimdF32, const NV: usize = { S::PANEL / S::LANES }>
        $($rest:tt)*) => {
        simd_op!(@define $meta $vis $unsafe $name
            [vector::TileOp => vector::SimdOp] [$crate::simd::vector::Tiled]
            [$S: $crate::simd::vector::SimdF32, const NV: usize]
            [] [] [] $($rest)*);
    };
    (@generics $meta:tt $vis:tt $unsafe:tt $name:ident
        <$S:ident: SimdF32, $T:ident: $Bound:ident, const NV: usize = { S::PANEL / S::LANES } $(,)?>
        $($rest:tt)*) => {
        simd_op!(@define $meta $vis $unsafe $name
            [vector::TileOp => vector::SimdOp] [$crate::simd::vector::Tiled]
            [$S: $crate::simd::vector::SimdF32, const NV: usize]
            [$T: $Bound,] [$T,] [$T,] $($rest)*);
    };
    (@generics $meta:tt $vis:tt $unsafe:tt $name:ident
        <$S:ident: SimdF32 $(, const $C:ident: $type:ty)* $(,)?>
        $($rest:tt)*) => {
        simd_op!(@define $meta $vis $unsafe $name
            [vector::SimdOp => vector::SimdOp] [core::convert::identity]
            [$S: $crate::simd::vector::SimdF32]
            [$(const $C: $type,)*] [$($C,)*] [] $($rest)*);
    };
    (@generics $meta:tt $vis:tt $unsafe:tt $name:ident
        <$S:ident: SimdF32, $T:ident: $Bound:ident $(, const $C:ident: $type:ty)* $(,)?>
        $($rest:tt)*) => {
        simd_op!(@define $meta $vis $unsafe $name
            [vector::SimdOp => vector::SimdOp] [core::convert::identity]
            [$S: $crate::simd::vector::SimdF32]
            [$T: $Bound, $(const $C: $type,)*] [$T, $($C,)*] [$T,] $($rest)*);
    };
    (@generics $meta:tt $vis:tt $unsafe:tt $name:ident
        <$B:ident: Int8Dot, const NV: usize, const TV: usize $(, const $C:ident: $type:ty)* $(,)?>
        $($rest:tt)*) => {
        simd_op!(@define $meta $vis $unsafe $name
            [int8::Int8Op => int8::Int8Op] [core::convert::identity]
            [$B: $crate::simd::int8::Int8Dot, const NV: usize, const TV: usize]
            [$(const $C: $type,)*] [$($C,)*] [] $($rest)*);
    };
    (@generics $meta:tt $vis:tt $unsafe:tt $name:ident
        <$B:ident: Int8Dot, const NV: usize, const TV: usize, $T:ident: $Bound:ident>
        $($rest:tt)*) => {
        simd_op!(@define $meta $vis $unsafe $name
            [int8::Int8Op => int8::Int8Op] [core::convert::identity]
            [$B: $crate::simd::int8::Int8Dot, const NV: usize, const TV: usize]
            [$T: $Bound,] [$T,] [$T,] $($rest)*);
    };

    // In brackets: the trait of the op and that of the result, what makes the result of the op, the generic parameters of
    // `run_with`, those of the op, their names, and the names of those that are types.
    (@define [$($meta:tt)*] [$vis:vis] [$($unsafe:tt)?] $name:ident
        [$in:ident::$trait:ident => $out_in:ident::$result:ident] [$($wrap:tt)*] [$($run:tt)*] [$($params:tt)*] [$($names:tt)*] [$($types:tt)*]
        ($s:ident: $S:ty $(, $arg:ident: $type:ty)* $(,)?) $(-> $out:ty)? $body:block) => {
        $($meta)*
        #[inline(always)]
        $vis $($unsafe)? fn $name<$($params)*>(
            $($arg: $type),*
        ) -> impl $crate::simd::$out_in::$result<Output = simd_op!(@output $($out)?)> {
            struct Op<A, $($params)*>(A, core::marker::PhantomData<($($types)*)>);

            impl<$($params)*> $crate::simd::$in::$trait for Op<($($type,)*), $($names)*> {
                type Output = simd_op!(@output $($out)?);

                #[inline(always)]
                fn run_with<$($run)*>(self, $s: $S) -> Self::Output {
                    let Self(($($arg,)*), _) = self;
                    $body
                }
            }

            $($wrap)*(Op::<_, $($names)*>(($($arg,)*), core::marker::PhantomData))
        }
    };

    (@output) => { () };
    (@output $out:ty) => { $out };
}
pub(crate) use simd_op;

#[cfg(test)]
mod tests;
