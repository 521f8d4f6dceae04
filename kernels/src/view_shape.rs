//! The checks that all views share.

use crate::error::{Error, ViewShape};
use core::ptr::NonNull;

/// What all views check: two strided axes over contiguous elements. A matrix has rows and columns of single elements,
/// a tensor of heads has tokens and heads of `head_dim` elements.
impl ViewShape {
    /// The outer axis, the inner axis and the contiguous elements, and the strides of the axes.
    const fn axes(self) -> ([usize; 3], [usize; 2]) {
        match self {
            Self::Matrix { shape: [rows, columns], strides } => ([rows, columns, 1], strides),
            Self::Heads { shape, strides } => (shape, strides),
        }
    }

    /// Number of elements from the first to the last element of the view, both included, or `None` on overflow. Zero
    /// when it has no element.
    fn extent(self) -> Option<usize> {
        let ([outer, inner, elements], [outer_stride, inner_stride]) = self.axes();
        if outer == 0 || inner == 0 || elements == 0 {
            return Some(0);
        }
        let outer_reach = (outer - 1).checked_mul(outer_stride)?;
        let inner_reach = (inner - 1).checked_mul(inner_stride)?;
        let reach = outer_reach.checked_add(inner_reach)?.checked_add(elements)?;
        // Pointer offsets are signed byte counts.
        (reach <= isize::MAX as usize / 4).then_some(reach)
    }

    /// The strides of a view whose [`ViewShape::extent`] does not overflow. Strides that are never used are replaced by
    /// those of a dense view.
    pub(crate) fn stepped(self) -> [usize; 2] {
        let ([outer, inner, elements], [outer_stride, inner_stride]) = self.axes();
        if outer == 0 || inner == 0 || elements == 0 {
            return [0, 1];
        }
        let inner_stride = if inner == 1 { elements } else { inner_stride };
        let dense = (inner - 1) * inner_stride + elements;
        [if outer == 1 { dense } else { outer_stride }, inner_stride]
    }

    /// The address of the first of the `reach` elements of the view, of `len` at `data`; a dangling address when there
    /// is none.
    ///
    /// # Errors
    /// There are fewer than `reach` elements, or `reach` is `None`, or the pointer is null.
    pub(crate) fn first(
        self,
        data: *const f32,
        len: usize,
        reach: Option<usize>,
    ) -> Result<NonNull<f32>, Error> {
        match reach.unwrap_or(usize::MAX) {
            0 => Ok(NonNull::dangling()),
            // Raw parts have no length, which is `usize::MAX`, too.
            expected if len < expected || expected == usize::MAX => {
                Err(Error::ShortView { view: self, expected, found: len })
            }
            _ => NonNull::new(data.cast_mut()).ok_or(Error::Setting {
                name: "pointer of a view with elements",
                expected: "not null",
                found: 0.0,
            }),
        }
    }

    /// The address of the first element of a view of `len` elements at `data`, and its strides.
    pub(crate) fn place(
        self,
        data: *const f32,
        len: usize,
    ) -> Result<(NonNull<f32>, [usize; 2]), Error> {
        Ok((self.first(data, len, self.extent())?, self.stepped()))
    }

    /// `Err` if two elements of a view share memory, unless its [`ViewShape::extent`] overflows. One axis must step over
    /// the contiguous elements, the other one over the whole first axis.
    pub(crate) fn check_disjoint(self) -> Result<(), Error> {
        let ([outer, inner, elements], [outer_stride, inner_stride]) = self.axes();
        let nested = |inner: usize, inner_stride: usize, outer: usize, outer_stride: usize| {
            (inner == 1 || inner_stride >= elements)
                && (outer == 1 || outer_stride >= (inner - 1) * inner_stride + elements)
        };
        if self.extent().is_none_or(|reach| reach == 0)
            || nested(inner, inner_stride, outer, outer_stride)
            || nested(outer, outer_stride, inner, inner_stride)
        {
            return Ok(());
        }
        let axes = match self {
            Self::Matrix { .. } => "row and column",
            Self::Heads { .. } => "token and head",
        };
        Err(Error::Overlap { axes, strides: [outer_stride, inner_stride] })
    }
}
