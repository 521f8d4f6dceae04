//! Arrays in and out. Inputs are copied while Python is attached, because another thread may write to them during a call;
//! outputs are handed over without a copy.

use crate::errors::Failure;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// Rows of ids of different lengths: row `i` is `ids[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    ids: Vec<u32>,
    /// Not empty, from 0 to the number of ids, not decreasing.
    offsets: Vec<usize>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { ids: Vec::new(), offsets: vec![0] }
    }
}

/// Two arrays of numpy: ids, and offsets.
pub(crate) type PyRows<'py> = (PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, i64>);

impl Rows {
    /// Copies two arrays.
    ///
    /// # Errors
    /// The offsets do not begin with 0, decrease, or do not end with the number of ids.
    pub(crate) fn new(arrays: &PyRows<'_>, argument: &str) -> Result<Self, Failure> {
        let ids = arrays.0.as_array().iter().copied().collect::<Vec<_>>();
        let found = arrays.1.as_array();
        let ends = (found.first(), found.last());
        if ends.0 != Some(&0) || ends.1.copied() != i64::try_from(ids.len()).ok() {
            let expected = format!("offsets from 0 to the {} ids", ids.len());
            let found = match ends {
                (Some(first), Some(last)) => format!("{first} to {last}"),
                _ => "none".to_owned(),
            };
            return Err(Failure::input(&format!("{argument} offsets"), expected, found));
        }
        let mut offsets = Vec::with_capacity(found.len());
        let mut before = 0;
        for (row, &offset) in found.iter().enumerate() {
            if offset < before {
                let found = format!("{before}, {offset} at row {}", row.saturating_sub(1));
                return Err(Failure::input(
                    &format!("{argument} offsets"),
                    "offsets that do not decrease",
                    found,
                ));
            }
            before = offset;
            // Between 0 and the number of ids.
            offsets.push(offset as usize);
        }
        Ok(Self { ids, offsets })
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Row `index`; empty if there is none.
    pub(crate) fn row(&self, index: usize) -> &[u32] {
        let range = self.offsets.get(index).copied().zip(self.offsets.get(index + 1).copied());
        range.and_then(|(start, end)| self.ids.get(start..end)).unwrap_or_default()
    }

    /// The rows in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|index| self.row(index))
    }

    /// The number of ids of all rows.
    pub(crate) fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: &[u32]) {
        self.ids.extend_from_slice(row);
        self.offsets.push(self.ids.len());
    }

    /// Hands both arrays to numpy: ids as uint32, offsets as int64.
    pub(crate) fn into_arrays(
        self,
        py: Python<'_>,
    ) -> (Bound<'_, PyArray1<u32>>, Bound<'_, PyArray1<i64>>) {
        let offsets: Vec<i64> = self.offsets.into_iter().map(|offset| offset as i64).collect();
        (self.ids.into_pyarray(py), offsets.into_pyarray(py))
    }
}
