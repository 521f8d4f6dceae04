//! Applies dropout in a pass; the masks of the forward and the backward pass are the same.

use super::dropout::Site;
use super::error::TrainError;
use super::pass::Pass;
use crate::config::Side;
use core::ops::Range;
use simdformer_kernels::train::{self as kernels, Dropout, WeightDropout};
use simdformer_kernels::{Matrix, MatrixMut};

impl Pass<'_> {
    /// The dropout at `site`, if any.
    pub(super) fn dropout_at(&self, side: Side, site: Site) -> Option<Dropout> {
        self.step_dropout?.at(side, site)
    }

    /// The dropout of the attention weights at `site`, if any.
    pub(super) fn dropped_weights(
        &self,
        side: Side,
        site: Site,
    ) -> Result<Option<WeightDropout<'_>>, TrainError> {
        let sentences = &self.lines(side).sentences;
        let dropout = self.dropout_at(side, site);
        Ok(dropout.map(|dropout| WeightDropout::new(&dropout, sentences)).transpose()?)
    }

    /// Applies dropout to `x`, which holds the rows `rows` of one side.
    pub(super) fn drop_in_place(
        &self,
        dropout: &Dropout,
        (side, rows): (Side, Range<usize>),
        x: MatrixMut<'_>,
    ) -> Result<(), TrainError> {
        let lines = self.lines(side);
        let (sentences, positions) = (&lines.sentences[rows.clone()], &lines.positions[rows]);
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        Ok(kernels::dropout(isa, dropout, sentences, positions, x, parallelism)?)
    }

    /// `out += dropout(x)`.
    pub(super) fn drop_and_add(
        &self,
        dropout: &Dropout,
        side: Side,
        x: Matrix<'_>,
        out: MatrixMut<'_>,
    ) -> Result<(), TrainError> {
        let lines = self.lines(side);
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        let (sentences, positions) = (&lines.sentences, &lines.positions);
        Ok(kernels::dropout_add(isa, dropout, sentences, positions, x, out, parallelism)?)
    }
}
