//! The macros that choose a constant by a number, [`tile_heights`] the rows of a tile and [`vector_groups`] the vectors
//! that are processed together, and [`array_of`], which makes an array of constant length.

/// An array, given the element at an index. It is a plain loop: in functions with many tiles, some closures of
/// `core::array::from_fn` are not inlined.
///
/// ```text
/// let at = array_of!(p in P => first.wrapping_add(p * panel));
/// ```
macro_rules! array_of {
    ($i:ident in $len:expr => $element:expr) => {{
        let mut all = {
            let $i = 0;
            [$element; $len]
        };
        for $i in 1..$len {
            all[$i] = $element;
        }
        all
    }};
}
pub(crate) use array_of;

/// Evaluates an expression with a constant equal to `rows`, which is one of the listed heights. After `if`, a condition
/// on the constant; the other heights are not compiled:
///
/// ```text
/// tile_heights!(rows, [1 2 3 4 5 6], MR if MR <= tallest::<S>() => self.tile::<S, MR, NV>(s))
/// ```
macro_rules! tile_heights {
    ($rows:expr, [$($height:literal)*], $mr:ident => $body:expr) => {
        match $rows {
            $($height => {
                const $mr: usize = $height;
                $body
            })*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
    ($rows:expr, [$($height:literal)*], $mr:ident if $possible:expr => $body:expr) => {
        match $rows {
            $($height if const { const $mr: usize = $height; $possible } => {
                const $mr: usize = $height;
                $body
            })*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}
pub(crate) use tile_heights;

/// Processes the vectors `v..end`: calls a method for the first of the listed numbers of vectors that fits, until none
/// is left. The number is the last generic parameter of the method. A number may have a constant condition; the method is
/// not compiled for the numbers whose condition is false:
///
/// ```text
/// vector_groups!(v, end, [8 if MR == 1, NV, 2 if NV > 2, 1] => { self.scores::<S, MR>(s, v, end) })
/// ```
macro_rules! vector_groups {
    (@call $group:tt { $self:ident.$method:ident::<$($param:tt),*>($($arg:expr),* $(,)?) }) => {
        $self.$method::<$($param,)* $group>($($arg),*)
    };
    ($v:ident, $end:expr, [$($group:tt $(if $possible:expr)?),*] => $call:tt) => {
        while $v < $end {
            let left = $end - $v;
            $(if $(const { $possible } &&)? left >= $group {
                vector_groups!(@call $group $call);
                $v += $group;
                continue;
            })*
        }
    };
}
pub(crate) use vector_groups;
