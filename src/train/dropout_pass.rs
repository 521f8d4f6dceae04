//! Dropout in a pass: the same numbers forward and backward.

use super::dropout::Site;
use super::error::TrainError;
use super::pass::Pass;
use crate::config::Side;
use core::ops::Range;
use simdformer_kernels::train::{self as kernels, Dropout, WeightDropout};
use simdformer_kernels::{Matrix, MatrixMut};

impl Pass<'_> {
    /// What is dropped at `site`, if anything.
    pub(super) fn drops(&self, side: Side, site: Site) -> Option<Dropout> {
        self.drops?.at(side, site)
    }

    /// Which weights of an attention are dropped, if any.
    pub(super) fn dropped_weights(
        &self,
        side: Side,
        site: Site,
    ) -> Result<Option<WeightDropout<'_>>, TrainError> {
        let sentences = &self.lines(side).sentences;
        let dropout = self.drops(side, site);
        Ok(dropout.map(|dropout| WeightDropout::new(&dropout, sentences)).transpose()?)
    }

    /// Drops numbers of `x`, the rows `rows` of one side, `columns` wide.
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

    /// `out += x`, with numbers of `x` dropped.
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
