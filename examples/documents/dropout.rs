//! Document 004 printed its contexts with dropout on the weights, and not which weights it kept: they are found by trying
//! all subsets.

use crate::Failure;
use crate::compute::product;
use crate::page::Computed;
use crate::tensor::Tensor;

/// The document printed its tensors in training mode: dropout with this probability is in them.
pub(crate) const PROBABILITY: f32 = 0.1;
/// Half of the last printed digit.
const ROUNDING: f64 = 0.5e-4;

/// Attention weights and values of one head, both rounded, and the mask of the weights.
pub(crate) struct Dropout<'t> {
    pub(crate) weights: &'t Tensor,
    pub(crate) value: &'t Tensor,
    pub(crate) mask: &'t Tensor,
}

/// For each query which of its weights were kept, and how many subsets give its context.
pub(crate) struct Kept {
    pub(crate) kept: Vec<Vec<bool>>,
    pub(crate) solutions: Vec<usize>,
}

impl Dropout<'_> {
    /// How far the rounding of the weights and values can move element `[i, c]` of the context.
    fn error(&self, i: usize, c: usize, kept: &[bool]) -> f64 {
        let seen = self.mask.row(i).iter().filter(|&&m| m != 0.0).count();
        // A single visible key has the weight 1, which is exact.
        let weight_error = if seen == 1 { 0.0 } else { ROUNDING };
        let moved = |j: usize| {
            let (weight, value) =
                (f64::from(self.weights.get(i, j)), f64::from(self.value.get(j, c)));
            weight * ROUNDING + value.abs() * weight_error + ROUNDING * weight_error
        };
        let sum: f64 = (0..kept.len()).filter(|&j| kept[j]).map(moved).sum();
        sum / f64::from(1.0 - PROBABILITY) + 1e-6
    }

    /// Tries all subsets of the visible keys.
    pub(crate) fn search(&self, context: &Tensor) -> Kept {
        let (mut all, mut solutions) = (Vec::new(), Vec::new());
        for i in 0..self.weights.rows() {
            let keys = self.weights.columns();
            let seen: Vec<usize> = (0..keys).filter(|&j| self.mask.get(i, j) != 0.0).collect();
            let mut found = Vec::new();
            for subset in (0..1u32 << seen.len()).rev() {
                let mut kept = vec![false; keys];
                seen.iter().enumerate().for_each(|(bit, &j)| kept[j] = subset >> bit & 1 == 1);
                let gives = (0..self.value.columns()).all(|c| {
                    let products = (0..keys).filter(|&j| kept[j]).map(|j| {
                        f64::from(self.weights.get(i, j)) * f64::from(self.value.get(j, c))
                    });
                    let exact = products.sum::<f64>() / f64::from(1.0 - PROBABILITY);
                    let difference = (exact - f64::from(context.get(i, c))).abs();
                    difference <= ROUNDING + self.error(i, c, &kept)
                });
                if gives {
                    found.push(kept);
                }
            }
            solutions.push(found.len());
            // Without a solution the row differs with whatever was kept.
            all.push(
                found
                    .into_iter()
                    .next()
                    .unwrap_or_else(|| (0..keys).map(|j| self.mask.get(i, j) != 0.0).collect()),
            );
        }
        Kept { kept: all, solutions }
    }

    pub(crate) fn context(&self, kept: &[Vec<bool>]) -> Result<Computed, Failure> {
        let (rows, keys) = (self.weights.rows(), self.weights.columns());
        let left = Tensor::from_fn(rows, keys, |i, j| {
            if kept[i][j] { self.weights.get(i, j) / (1.0 - PROBABILITY) } else { 0.0 }
        });
        let numbers = product(&left, self.value, 1.0)?;
        let columns = self.value.columns();
        let error = (0..rows * columns)
            .map(|at| self.error(at / columns, at % columns, &kept[at / columns]))
            .collect();
        Ok(Computed { numbers, error })
    }
}
