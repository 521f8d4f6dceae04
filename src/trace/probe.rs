//! The probe and the views that it receives.

use super::stage::{Place, Stage};
use core::fmt;

/// `[rows, columns]` in f32: an intermediate tensor of one sentence, or of one hypothesis about it. The rows may have a
/// stride. [`View::row`] and [`View::iter`] read them without a copy.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct View<'v> {
    /// The tensor.
    pub stage: Stage,
    /// Its place in the architecture.
    pub place: Place,
    /// Slot of the sentence ([`crate::SourceId::slot`]). In [`crate::Session::encoder_output`], which uses no slot: the
    /// index of the source in the request.
    pub sentence: u32,
    /// Slot of the hypothesis ([`crate::HypothesisId::slot`]); `None` for a tensor of the source.
    pub hypothesis: Option<u32>,
    /// Position of the first row in its sequence. If a hypothesis is fed token by token, this is the step, from 0.
    pub position: usize,
    /// Number of rows: consecutive tokens.
    pub rows: usize,
    /// Numbers in a row; [`Stage`] states their meaning.
    pub columns: usize,
    pub(super) stride: usize,
    pub(super) data: &'v [f32],
}

impl<'v> View<'v> {
    /// Row `i`, `[columns]`; empty if `i >= rows`.
    pub fn row(&self, i: usize) -> &'v [f32] {
        let start = i.saturating_mul(self.stride);
        let end = start.saturating_add(self.columns);
        if i < self.rows { self.data.get(start..end).unwrap_or(&[]) } else { &[] }
    }

    /// The rows in order, each `[columns]`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'v [f32]> + use<'v> {
        let view = *self;
        (0..view.rows).map(move |i| view.row(i))
    }
}

impl fmt::Debug for View<'_> {
    /// Prints the metadata, not the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("stage", &self.stage)
            .field("place", &self.place)
            .field("sentence", &self.sentence)
            .field("hypothesis", &self.hypothesis)
            .field("position", &self.position)
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// Receives the intermediate tensors of a session. An example is at [`Session::traced`](crate::Session::traced).
pub trait Probe: Send {
    /// Whether the probe receives `stage`. Stages that need extra work ([`Stage::Embedding`], [`Stage::Scores`],
    /// [`Stage::Weights`], [`Stage::Projection`], [`Stage::Probabilities`]) are computed only if this is true.
    fn wants(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// Whether the probe receives `stage` of this place; called for [`Stage::Scores`] and [`Stage::Weights`] of each head, if
    /// [`wants`](Self::wants) is true. What it does not receive is not computed.
    fn wants_at(&self, stage: Stage, place: Place) -> bool {
        let _ = (stage, place);
        true
    }

    /// Called with each selected tensor as soon as its block is finished, on the thread that leads the pass. The helper
    /// threads go back to their pool if the call takes long. It may enter rayon, and panic; see
    /// [`Threads`](crate::Threads).
    fn look(&mut self, view: &View<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Side;

    #[test]
    fn a_view_returns_only_its_rows() {
        let data = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 5.0, 6.0];
        let place = Place { side: Side::Encoder, layer: None, block: None, head: None };
        let view = View {
            stage: Stage::Query,
            place,
            sentence: 0,
            hypothesis: None,
            position: 0,
            rows: 2,
            columns: 2,
            stride: 3,
            data: &data,
        };
        assert_eq!(view.iter().collect::<Vec<_>>(), [[1.0, 2.0], [3.0, 4.0]]);
        assert!(view.row(2).is_empty() && view.row(usize::MAX).is_empty());
    }
}
