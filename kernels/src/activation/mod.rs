//! Activation functions of the feed-forward block, as separate calls or (through `Applied`) in the epilogue of the
//! first product.
//!
//! Every function has the correct limits: infinities, `f32::MAX` and -1e30 give the limit and never NaN, and NaN gives
//! NaN.

use crate::error::Error;
use crate::input::Input;
use crate::math;
use crate::matrix::MatrixMut;
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::rows::map_slice_by_registers;
use crate::simd::{SimdF32, simd_op};
use core::ops::Range;

#[cfg(feature = "train")]
pub(crate) mod backward;
#[cfg(feature = "train")]
pub(crate) mod derivative;
#[cfg(feature = "train")]
pub(crate) mod gate;
mod gelu;

/// An elementwise function. The bounds are absolute errors against the exact function, over every f32 input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x`.
    #[default]
    Identity,
    /// `max(x, 0)`, exact; NaN gives NaN.
    Relu,
    /// `x (1 + erf(x / sqrt 2)) / 2` (Hendrycks and Gimpel, "Gaussian Error Linear Units"):
    /// within `1.1e-7 + 1.2e-7 |gelu(x)|`, exactly 0 up to -5.5.
    Gelu,
    /// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, the tanh form of the same paper:
    /// within `1.1e-7 + 1.2e-7 |gelu(x)|`, exactly 0 up to -5.5.
    GeluTanh,
    /// `x / (1 + e^-x)`, also called swish: within `2e-36 + 4.7e-7 |silu(x)|`.
    Silu,
    /// The hyperbolic tangent: within 5 units in the last place.
    Tanh,
    /// `1 / (1 + e^-x)`: within `1.3e-38 + 3.6e-7 sigmoid(x)`.
    Sigmoid,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 7] = [
        Self::Identity,
        Self::Relu,
        Self::Gelu,
        Self::GeluTanh,
        Self::Silu,
        Self::Tanh,
        Self::Sigmoid,
    ];

    /// The function of a vector. Where `self` is a constant ([`with_activation`]), the others are not compiled.
    #[inline(always)]
    pub(crate) fn map<S: SimdF32>(self, s: S, x: S::F32) -> S::F32 {
        match self {
            Self::Identity => x,
            // If one argument is NaN, `max` returns the second.
            Self::Relu => s.max(s.splat(0.0), x),
            Self::Gelu => gelu::gelu(s, &gelu::NORMAL, x),
            Self::GeluTanh => gelu::gelu(s, &gelu::TANH, x),
            Self::Silu => math::silu(s, x),
            Self::Tanh => math::tanh(s, x),
            Self::Sigmoid => math::sigmoid(s, x),
        }
    }
}

/// Evaluates an expression with a constant equal to `activation`, so that the `match` over [`Activation`] is outside of
/// loops.
macro_rules! with_activation {
    (@each [$($value:ident)*] $activation:expr, $F:ident => $run:expr) => {
        match $activation {
            $($crate::activation::Activation::$value => {
                const $F: $crate::activation::Activation = $crate::activation::Activation::$value;
                $run
            })*
        }
    };
    ($activation:expr, $F:ident => $run:expr) => {
        with_activation!(@each [Identity Relu Gelu GeluTanh Silu Tanh Sigmoid] $activation, $F => $run)
    };
}
#[cfg(feature = "train")]
pub(crate) use with_activation;

simd_op!(
    /// `to = activation(from)` for `len` floats, with the `match` outside the loop.
    ///
    /// # Safety
    /// `from` is valid for reads and `to` for writes of `len` floats; they are the same or disjoint.
    pub(crate) unsafe fn map_activation<S: SimdF32>(
        s: S,
        activation: Activation,
        from: *const f32,
        to: *mut f32,
        len: usize,
    ) {
        // SAFETY: the contract of this function.
        unsafe {
            with_activation!(activation, F => map_slice_by_registers(
                s,
                from,
                to,
                len,
                #[inline(always)]
                |x| F.map(s, x),
            ));
        }
    }
);

simd_op!(
    fn map_rows<S: SimdF32>(
        s: S,
        activation: Activation,
        rows: Range<usize>,
        columns: usize,
        from: RowPtrs<'_>,
        to: RowPtrs<'_>,
    ) {
        for row in rows {
            // SAFETY: `apply` checked with `RowPtrs::from_matrix` and `RowPtrs::from_matrix_mut` that both matrices have these
            // rows of `columns` floats; `for_rows` gives each task its own rows.
            let row = unsafe { map_activation(activation, from.row(row), to.row(row), columns) };
            s.call_noinline(row);
        }
    }
);

/// `out = activation(x)` for every element of `x` `[rows, columns]`, in place or from another matrix. The bits are those of
/// an [`Epilogue`](crate::Epilogue).
///
/// # Errors
/// Shapes differ, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::activation::{self, Activation};
/// use simdformer_kernels::{Exec, Input, Isa, MatrixMut};
///
/// let mut x = [-1.0, 0.0, 2.0];
/// let view = MatrixMut::new(&mut x, 1, 3)?;
/// activation::apply(Exec::serial(Isa::detect()?), Activation::Relu, Input::Output, view)?;
/// assert_eq!(x, [0.0, 0.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn apply(
    exec: Exec<'_>,
    activation: Activation,
    x: Input<'_>,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [_, columns] = [out.rows(), out.columns()];
    let out = RowPtrs::from_matrix_mut("out", &mut out, shape)?;
    let from = x.rows("x", out, shape)?;
    if activation != Activation::Identity || matches!(x, Input::Matrix(_)) {
        for_rows(exec, shape, |rows| map_rows(activation, rows, columns, from, out));
    }
    Ok(())
}
