//! `Debug` output of structs with slices: the length of a slice instead of its elements. Shapes make a readable line; ten
//! million weights do not.

use core::fmt;

/// The number of elements of a slice.
pub(crate) struct Elements(usize);

impl fmt::Debug for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} elements]", self.0)
    }
}

/// A slice, or one that may be missing.
pub(crate) trait CountElements {
    /// [`Elements`], if there is a slice.
    type Count: fmt::Debug;
    /// The number of elements.
    fn elements(&self) -> Self::Count;
}

impl<T> CountElements for [T] {
    type Count = Elements;

    fn elements(&self) -> Elements {
        Elements(self.len())
    }
}

impl<T: core::ops::Deref<Target = [f32]>> CountElements for Option<T> {
    type Count = Option<Elements>;

    fn elements(&self) -> Option<Elements> {
        self.as_deref().map(<[f32]>::elements)
    }
}

/// Implements `Debug` for a struct with a lifetime. The fields in brackets are slices:
///
/// ```text
/// impl_debug!(LayerNorm { [weight], [bias], eps });
/// ```
macro_rules! impl_debug {
    ($type:ident { $($field:tt),* }) => {
        impl core::fmt::Debug for $type<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                #[allow(unused_imports, reason = "not all structs have slices")]
                use $crate::debug_slice::CountElements;
                let mut fields = f.debug_struct(stringify!($type));
                $($crate::debug_slice::impl_debug!(@field fields, self, $field);)*
                fields.finish()
            }
        }
    };
    (@field $fields:ident, $self:ident, [$field:ident]) => {
        $fields.field(stringify!($field), &$self.$field.elements())
    };
    (@field $fields:ident, $self:ident, $field:ident) => {
        $fields.field(stringify!($field), &$self.$field)
    };
}
pub(crate) use impl_debug;
