//! The macro [`vector_groups`]: a row of vectors, processed in groups of a few constant sizes.

/// Calls a method for each group of vectors from `$at` up to `$end`. The first generic arguments of the method are
/// `$types`, in brackets; the last one is the number of vectors in the group: the first of the widths that fits and whose
/// condition holds, else 1. `$at` advances by `$step` per vector; the last vector may be incomplete.
///
/// ```text
/// vector_groups!(column..columns, step S::LANES, [NV, 2 if NV > 2] => self.columns::[S, MR](s, column));
/// ```
macro_rules! vector_groups {
    ($at:ident..$end:expr, step $step:expr, [$($width:tt $(if $condition:expr)?),*] =>
        $object:ident.$method:ident::$types:tt $args:tt) => {
        while $at < $end {
            let left = ($end - $at).div_ceil($step);
            $(if left >= $width $(&& $condition)? {
                vector_groups!(@call $object $method $types $width $args);
                $at += $width * $step;
            } else)* {
                vector_groups!(@call $object $method $types 1 $args);
                $at += $step;
            }
        }
    };
    (@call $object:ident $method:ident [$($type:tt),*] $width:tt $args:tt) => {
        $object.$method::<$($type,)* $width> $args
    };
}
pub(super) use vector_groups;
