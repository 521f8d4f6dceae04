//! candle's tensors as views of the kernels.
//!
//! A storage is a whole allocation. A layout says which of its elements belong to the tensor: a start, and
//! a stride for each dimension, which is 0 for a broadcast one. All of this is checked once, here, so that
//! no later index can leave the storage.

use crate::op_error::OpError;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout};

/// The number of elements from the first to the last of a tensor, both included, and the number of its
/// elements.
fn reach(op: &'static str, dims: &[usize], strides: &[usize]) -> Result<(usize, usize), OpError> {
    let overflow = OpError::TooLarge { op };
    let elements = elements(op, dims)?;
    if elements == 0 {
        return Ok((0, 0));
    }
    let last = dims
        .iter()
        .zip(strides)
        .try_fold(0usize, |last, (&dim, &stride)| last.checked_add((dim - 1).checked_mul(stride)?));
    let reach = last.and_then(|last| last.checked_add(1)).ok_or(overflow)?;
    Ok((reach, elements))
}

/// The product of `dims`.
pub(crate) fn elements(op: &'static str, dims: &[usize]) -> Result<usize, OpError> {
    if dims.contains(&0) {
        return Ok(0);
    }
    let product = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    product.filter(|&elements| elements <= isize::MAX as usize / 4).ok_or(OpError::TooLarge { op })
}

/// The elements of a tensor that an op reads.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// From the first element to the last.
    pub(crate) data: &'a [f32],
    pub(crate) dims: &'a [usize],
    pub(crate) strides: &'a [usize],
    /// The product of `dims`.
    pub(crate) elements: usize,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        op: &'static str,
        operand: &'static str,
        storage: &'a CpuStorage,
        layout: &'a Layout,
    ) -> Result<Self, OpError> {
        let CpuStorage::F32(data) = storage else {
            return Err(OpError::DType { op, operand, found: storage.dtype() });
        };
        let (dims, strides) = (layout.dims(), layout.stride());
        let (reach, elements) = reach(op, dims, strides)?;
        let range = place(op, layout.start_offset(), reach, data.len())?;
        Ok(Self { data: &data[range], dims, strides, elements })
    }

    /// Copies the elements to `to`, in order.
    pub(crate) fn gather(&self, to: &mut [f32]) {
        if self.elements > 0 {
            gather(self.data, self.dims, self.strides, to);
        }
    }
}

/// The elements of a tensor that an op writes.
pub(crate) struct ViewMut<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) dims: &'a [usize],
    pub(crate) strides: &'a [usize],
    /// The product of `dims`.
    pub(crate) elements: usize,
}

impl<'a> ViewMut<'a> {
    pub(crate) fn new(
        op: &'static str,
        storage: &'a mut CpuStorage,
        layout: &'a Layout,
    ) -> Result<Self, OpError> {
        let CpuStorage::F32(data) = storage else {
            return Err(OpError::DType { op, operand: "destination", found: storage.dtype() });
        };
        let (dims, strides) = (layout.dims(), layout.stride());
        let (reach, elements) = reach(op, dims, strides)?;
        let range = place(op, layout.start_offset(), reach, data.len())?;
        if repeats(dims, strides) {
            return Err(OpError::Overlap { op });
        }
        Ok(Self { data: &mut data[range], dims, strides, elements })
    }

    /// The same elements, for reading.
    pub(crate) fn view(&self) -> View<'_> {
        let Self { dims, strides, elements, .. } = *self;
        View { data: self.data, dims, strides, elements }
    }

    /// Copies `from` to the elements, in order.
    pub(crate) fn scatter(&mut self, from: &[f32]) {
        if self.elements > 0 {
            scatter(from, self.dims, self.strides, self.data);
        }
    }
}

/// Whether a tensor is broadcast, so that elements share memory.
pub(crate) fn repeats(dims: &[usize], strides: &[usize]) -> bool {
    !dims.contains(&0) && dims.iter().zip(strides).any(|(&dim, &stride)| dim > 1 && stride == 0)
}

/// The range of `reach` elements from `start` in a storage of `len`.
fn place(
    op: &'static str,
    start: usize,
    reach: usize,
    len: usize,
) -> Result<std::ops::Range<usize>, OpError> {
    if reach == 0 {
        return Ok(0..0);
    }
    let expected = start.checked_add(reach).ok_or(OpError::TooLarge { op })?;
    if expected > len {
        return Err(OpError::Storage { op, expected, found: len });
    }
    Ok(start..expected)
}

/// The stride of `dims` if they can be stepped through as one dimension. Any stride, if there is at most
/// one element.
pub(crate) fn merged(dims: &[usize], strides: &[usize]) -> Option<usize> {
    let (mut count, mut step) = (1usize, 0);
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        match dim {
            0 => return Some(0),
            1 => {}
            _ if count == 1 => (count, step) = (dim, stride),
            _ if Some(stride) == count.checked_mul(step) => count = count.saturating_mul(dim),
            _ => return None,
        }
    }
    Some(step)
}

fn gather(from: &[f32], dims: &[usize], strides: &[usize], to: &mut [f32]) {
    let (&[dim, ref dims @ ..], &[stride, ref strides @ ..]) = (dims, strides) else {
        to.copy_from_slice(&from[..1]);
        return;
    };
    if dims.is_empty() {
        if stride == 1 {
            to.copy_from_slice(&from[..dim]);
        } else {
            to.iter_mut().enumerate().for_each(|(index, to)| *to = from[index * stride]);
        }
        return;
    }
    for (index, to) in to.chunks_exact_mut(to.len() / dim).enumerate() {
        gather(&from[index * stride..], dims, strides, to);
    }
}

fn scatter(from: &[f32], dims: &[usize], strides: &[usize], to: &mut [f32]) {
    let (&[dim, ref dims @ ..], &[stride, ref strides @ ..]) = (dims, strides) else {
        to[..1].copy_from_slice(from);
        return;
    };
    if dims.is_empty() {
        if stride == 1 {
            to[..dim].copy_from_slice(from);
        } else {
            from.iter().enumerate().for_each(|(index, &from)| to[index * stride] = from);
        }
        return;
    }
    for (index, from) in from.chunks_exact(from.len() / dim).enumerate() {
        scatter(from, dims, strides, &mut to[index * stride..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_merge_if_one_stride_steps_through_them() {
        for (dims, strides, expected) in [
            (&[][..], &[][..], Some(0)),
            (&[4], &[7], Some(7)),
            (&[2, 3], &[30, 10], Some(10)),
            (&[2, 3], &[31, 10], None),
            (&[3, 2], &[10, 30], None),
            (&[2, 1, 3], &[30, 99, 10], Some(10)),
            (&[2, 3], &[0, 0], Some(0)),
            (&[2, 3], &[0, 10], None),
            (&[2, 3], &[10, 0], None),
            (&[2, 0], &[1, 5], Some(0)),
            (&[1, 1], &[5, 5], Some(0)),
            (&[2, usize::MAX], &[1, 2], None),
        ] {
            assert_eq!(merged(dims, strides), expected, "{dims:?} {strides:?}");
        }
    }

    #[test]
    fn layouts_that_leave_the_storage_are_errors() {
        let mut storage = CpuStorage::F32(vec![0.0; 10]);
        for (dims, strides, start, fits) in [
            (vec![2, 5], vec![5, 1], 0, true),
            (vec![2, 5], vec![5, 1], 1, false),
            (vec![5, 2], vec![1, 5], 0, true),
            (vec![0, 5], vec![5, 1], 99, true),
            (vec![2, 5], vec![usize::MAX, 1], 0, false),
            (vec![1, 5], vec![usize::MAX, 1], 5, true),
            (vec![1, 5], vec![5, 1], usize::MAX, false),
            (vec![usize::MAX, 5], vec![0, 1], 0, false),
            (vec![], vec![], 9, true),
            (vec![], vec![], 10, false),
        ] {
            let layout = Layout::new(dims.clone().into(), strides.clone(), start);
            let read = View::new("test", "input", &storage, &layout).is_ok();
            assert_eq!(read, fits, "{dims:?} {strides:?} {start}");
            let written = ViewMut::new("test", &mut storage, &layout).is_ok();
            assert_eq!(written, fits, "{dims:?} {strides:?} {start}");
        }
    }

    #[test]
    fn scatter_is_the_inverse_of_gather() {
        let storage = CpuStorage::F32((0..60).map(|i| i as f32).collect());
        for (dims, strides, start) in [
            (vec![3, 4, 5], vec![20, 5, 1], 0),
            (vec![5, 4, 3], vec![1, 5, 20], 0),
            (vec![2, 3], vec![7, 2], 11),
            (vec![], vec![], 42),
            (vec![2, 0, 3], vec![3, 3, 1], 0),
        ] {
            let layout = Layout::new(dims.into(), strides, start);
            let view = View::new("test", "input", &storage, &layout).unwrap();
            let mut dense = vec![f32::NAN; view.elements];
            view.gather(&mut dense);
            let mut other = CpuStorage::F32(vec![f32::NAN; 60]);
            let mut to = ViewMut::new("test", &mut other, &layout).unwrap();
            to.scatter(&dense);
            let mut again = vec![f32::NAN; view.elements];
            to.view().gather(&mut again);
            assert_eq!(again, dense);
            assert!(dense.first().is_none_or(|&first| first == start as f32));
        }
    }
}
