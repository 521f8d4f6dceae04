//! Seeing inside: every intermediate of the architecture, named, while it is computed.
//!
//! A [`Probe`] is lent to a session with [`Session::watch`](crate::Session::watch) and receives a
//! [`View`] of each intermediate as soon as it exists: nothing is copied, nothing is kept, nothing is
//! allocated. [`Stage`] is the list of them, in the order in which data flows.
//!
//! Results with a probe are bitwise those without. Nobody pays for probes that nobody lends: the
//! stacks are compiled twice, and the copy that runs without a probe contains no trace of this file
//! (a tap that answers `None` at compile time).
//!
//! Two things are computed for the probe alone, in the scratch that it brings: flash attention never
//! forms the matrix of scores, so [`Stage::Scores`] and [`Stage::Weights`] are computed anew from the
//! very queries and keys that the kernel read (within the kernel's error bound of what it used); and
//! [`Stage::Probabilities`], which no search asks for.

use crate::config::Side;
use crate::error::KernelError;
use core::fmt;
use simdformer_kernels::{
    FullyMasked, Heads, Isa, MatrixMut, Parallelism, softmax::softmax_in_place,
};

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident = $name:literal,)*) => {
        /// The intermediates, in the order in which data flows. Shapes are those of a [`View`]:
        /// `rows` are tokens of one sentence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// Every stage.
            pub const ALL: &'static [Self] = &[$(Self::$stage,)*];

            /// Its name, in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$stage => $name,)*
                }
            }

            /// The stage of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|stage| stage.name() == name)
            }
        }
    };
}

stages! {
    /// Rows of the embedding table times the embedding scale, `[rows, d_model]`.
    Embedding = "embedding",
    /// What is added to them, `[rows, d_model]`.
    Position = "position",
    /// Their sum, normed where the architecture wants it: what the first layer reads,
    /// `[rows, d_model]`.
    Input = "input",
    /// Queries of all heads side by side, `[rows, d_model]`.
    Query = "query",
    /// Keys of all heads side by side, `[rows, d_model]`. Cross-attention makes its keys once, when
    /// the source is encoded: then `rows` are source tokens and `side` is the decoder's.
    Key = "key",
    /// Values, as the keys.
    Value = "value",
    /// `scale * query key^T` of one head before any mask, `[rows, keys]`; keys count from position 0.
    Scores = "scores",
    /// Softmax of the scores over the keys that a query may see, exactly 0 elsewhere,
    /// `[rows, keys]`.
    Weights = "weights",
    /// `weights value` of all heads side by side, `[rows, d_model]`: merged heads, before the output
    /// projection.
    Context = "context",
    /// `activation(x W1 + b1)`, `[rows, ffn_dim]`: inside the feed-forward block.
    FeedForward = "feed-forward",
    /// The residual stream after a block was added to it, `[rows, d_model]`.
    Residual = "residual",
    /// The block's LayerNorm, `[rows, d_model]`: after [`Stage::Residual`] in post-norm, before the
    /// block in pre-norm.
    Norm = "norm",
    /// The encoder's output, `[rows, d_model]`.
    Memory = "memory",
    /// The decoder's last hidden state, `[rows, d_model]`.
    Output = "output",
    /// One number per word of the target vocabulary, `[rows, vocabulary]`.
    Logits = "logits",
    /// Softmax of the logits, `[1, vocabulary]`, one row at a time.
    Probabilities = "probabilities",
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Block {
    /// Self-attention.
    Own,
    /// Attention of the decoder to the memory.
    Cross,
    /// The feed-forward block.
    FeedForward,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "self-attention",
            Self::Cross => "cross-attention",
            Self::FeedForward => "feed-forward",
        })
    }
}

/// Where in the architecture an intermediate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which stack.
    pub side: Side,
    /// Which layer, from 0; `None` below the first and above the last.
    pub layer: Option<usize>,
    /// Which block of the layer.
    pub block: Option<Block>,
    /// Which head, from 0; `None` where all are side by side.
    pub head: Option<usize>,
}

/// An intermediate of one sentence, or of one hypothesis about it: a matrix of [`View::rows`] rows
/// that may lie apart.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct View<'v> {
    /// What it is.
    pub stage: Stage,
    /// Where it is.
    pub place: Place,
    /// Slot of the sentence ([`crate::Sentence::slot`]); in [`crate::Session::memory`], which fills
    /// no slot, the index of the source in the request.
    pub sentence: u32,
    /// Slot of the hypothesis ([`crate::Row::slot`]); `None` for what belongs to the source.
    pub row: Option<u32>,
    /// Position of the first row in its sequence: the step, counted from 0, when a hypothesis is fed
    /// token by token.
    pub position: usize,
    /// Rows: tokens that follow each other.
    pub rows: usize,
    /// Numbers in a row.
    pub columns: usize,
    stride: usize,
    data: &'v [f32],
}

impl<'v> View<'v> {
    /// Row `i`, `[columns]`; empty past the last.
    pub fn row(&self, i: usize) -> &'v [f32] {
        let start = i.saturating_mul(self.stride);
        let end = start.saturating_add(self.columns);
        if i < self.rows { self.data.get(start..end).unwrap_or(&[]) } else { &[] }
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'v [f32]> + use<'v> {
        let view = *self;
        (0..view.rows).map(move |i| view.row(i))
    }
}

/// Watches the intermediates of a session.
pub trait Probe: Send {
    /// Whether to be shown `stage`. What takes extra work to show ([`Stage::Embedding`],
    /// [`Stage::Scores`], [`Stage::Weights`], [`Stage::Probabilities`]) is not computed if not.
    fn wants(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// Called with each wanted intermediate as soon as it exists.
    fn look(&mut self, view: &View<'_>);
}

/// Whose rows the tokens of a pass are.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'r> {
    /// Whole sources laid end to end; without slots, sentence `i` is source `i`.
    Source { lengths: &'r [u32], slots: Option<&'r [u32]> },
    /// Token `i` is position `positions[i]` of hypothesis `slots[i]` about sentence `sentences[i]`.
    Target { slots: &'r [u32], sentences: &'r [u32], positions: &'r [u32] },
}

/// Tokens of a pass that follow each other in one sequence.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) sentence: u32,
    pub(crate) row: Option<u32>,
    pub(crate) position: usize,
}

impl Rows<'_> {
    /// The run that starts at token `start`.
    fn run_at(&self, index: usize, start: usize) -> Option<Run> {
        match *self {
            Self::Source { lengths, slots } => Some(Run {
                start,
                len: *lengths.get(index)? as usize,
                sentence: slots.map_or(Some(index as u32), |slots| slots.get(index).copied())?,
                row: None,
                position: 0,
            }),
            Self::Target { slots, sentences, positions } => {
                let slot = *slots.get(start)?;
                Some(Run {
                    start,
                    len: slots[start..].iter().take_while(|&&other| other == slot).count(),
                    sentence: *sentences.get(start)?,
                    row: Some(slot),
                    position: *positions.get(start)? as usize,
                })
            }
        }
    }

    fn runs(&self) -> impl Iterator<Item = Run> {
        let (mut index, mut start) = (0, 0);
        core::iter::from_fn(move || {
            let run = self.run_at(index, start)?;
            index += 1;
            start += run.len;
            Some(run)
        })
    }
}

/// Rows at a place: what a block passes on to the probe with its numbers.
#[derive(Clone, Copy)]
pub(crate) struct At<'r> {
    pub(crate) rows: Rows<'r>,
    pub(crate) place: Place,
}

impl<'r> At<'r> {
    /// Outside all layers.
    pub(crate) fn outside(rows: Rows<'r>, side: Side) -> Self {
        Self { rows, place: Place { side, layer: None, block: None, head: None } }
    }

    /// In a block of a layer.
    pub(crate) fn block(self, layer: usize, block: Block) -> Self {
        let place = Place { layer: Some(layer), block: Some(block), ..self.place };
        Self { place, ..self }
    }
}

/// What the stacks are generic over: a probe, or nobody.
pub(crate) trait Tap: Send {
    /// The probe, if there is one.
    fn watch(&mut self) -> Option<Watch<'_>>;
}

/// Nobody looks.
pub(crate) struct NoTap;

impl Tap for NoTap {
    #[inline(always)]
    fn watch(&mut self) -> Option<Watch<'_>> {
        None
    }
}

/// A probe and the scratch it brings.
pub(crate) struct Watch<'w> {
    pub(crate) probe: &'w mut dyn Probe,
    pub(crate) scratch: &'w mut [f32],
}

impl Tap for Watch<'_> {
    fn watch(&mut self) -> Option<Watch<'_>> {
        Some(Watch { probe: &mut *self.probe, scratch: &mut *self.scratch })
    }
}

/// Rows that lie `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'d> {
    pub(crate) data: &'d [f32],
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

impl Watch<'_> {
    /// Shows a matrix with one row per token of the pass, side by side in `data`.
    pub(crate) fn rows(&mut self, stage: Stage, at: &At<'_>, data: &[f32], columns: usize) {
        self.strided(stage, at, 0, Strided { data, columns, stride: columns });
    }

    /// Shows a matrix with one row per token of the pass from token `first` on, as many as it holds.
    pub(crate) fn strided(&mut self, stage: Stage, at: &At<'_>, first: usize, matrix: Strided<'_>) {
        if !self.probe.wants(stage) || matrix.stride == 0 {
            return;
        }
        let last = first + matrix.data.len().div_ceil(matrix.stride);
        for run in at.rows.runs() {
            let (start, end) = (run.start.max(first), (run.start + run.len).min(last));
            if start >= end {
                continue;
            }
            let data = &matrix.data[(start - first) * matrix.stride..];
            let part =
                Run { start, len: end - start, position: run.position + start - run.start, ..run };
            show(self.probe, stage, at.place, &part, Strided { data, ..matrix });
        }
    }

    /// Shows the summands of the input: scaled rows of `table`, and rows of `positions`.
    pub(crate) fn embedding(
        &mut self,
        at: &At<'_>,
        tokens: &[u32],
        (table, scale): (&[f32], f32),
        positions: &[f32],
        d: usize,
    ) -> Result<(), KernelError> {
        for run in at.rows.runs() {
            if self.probe.wants(Stage::Embedding) {
                let rows = scratch(self.scratch, run.len * d)?;
                for (row, &token) in rows.chunks_mut(d).zip(&tokens[run.start..]) {
                    for (x, weight) in row.iter_mut().zip(&table[token as usize * d..]) {
                        *x = scale * weight;
                    }
                }
                let matrix = Strided { data: rows, columns: d, stride: d };
                show(self.probe, Stage::Embedding, at.place, &run, matrix);
            }
            if self.probe.wants(Stage::Position) {
                let data = &positions[run.position * d..];
                let matrix = Strided { data, columns: d, stride: d };
                show(self.probe, Stage::Position, at.place, &run, matrix);
            }
        }
        Ok(())
    }

    /// Shows scores and weights, head by head. `query` has a row for each token of the pass; `keys`
    /// says how many keys a run has, and `key(run, j, head, out)` writes its key `j`.
    pub(crate) fn attention(
        &mut self,
        isa: Isa,
        at: &At<'_>,
        query: Heads<'_>,
        causal: bool,
        keys: impl Fn(&Run) -> usize,
        key: impl Fn(&Run, usize, usize, &mut [f32]) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let wanted = [Stage::Scores, Stage::Weights].map(|stage| self.probe.wants(stage));
        if wanted == [false; 2] {
            return Ok(());
        }
        let head_dim = query.head_dim();
        let scale = (1.0 / (head_dim as f64).sqrt()) as f32;
        for run in at.rows.runs() {
            let columns = keys(&run);
            let floats = scratch(self.scratch, run.len * columns + head_dim)?;
            let (one, scores) = floats.split_at_mut(head_dim);
            for head in 0..query.heads() {
                let place = Place { head: Some(head), ..at.place };
                for j in 0..columns {
                    key(&run, j, head, one)?;
                    for i in 0..run.len {
                        let query = query.row(run.start + i, head).unwrap_or(&[]);
                        let dot: f32 = query.iter().zip(&*one).map(|(q, k)| q * k).sum();
                        scores[i * columns + j] = scale * dot;
                    }
                }
                if wanted[0] {
                    let matrix = Strided { data: scores, columns, stride: columns };
                    show(self.probe, Stage::Scores, place, &run, matrix);
                }
                if !wanted[1] {
                    continue;
                }
                for (i, row) in scores.chunks_mut(columns.max(1)).enumerate() {
                    let hidden = if causal { run.len - 1 - i } else { 0 };
                    softmax_row(isa, row, columns - hidden)?;
                }
                let matrix = Strided { data: scores, columns, stride: columns };
                show(self.probe, Stage::Weights, place, &run, matrix);
            }
        }
        Ok(())
    }

    /// Shows logits and what they make probable.
    pub(crate) fn logits(
        &mut self,
        isa: Isa,
        at: &At<'_>,
        logits: &[f32],
        vocabulary: usize,
    ) -> Result<(), KernelError> {
        self.rows(Stage::Logits, at, logits, vocabulary);
        if !self.probe.wants(Stage::Probabilities) {
            return Ok(());
        }
        for run in at.rows.runs() {
            for i in 0..run.len {
                let Some(from) = logits.get((run.start + i) * vocabulary..) else { break };
                let Some(from) = from.get(..vocabulary) else { break };
                let row = scratch(self.scratch, vocabulary)?;
                row.copy_from_slice(from);
                softmax_row(isa, row, vocabulary)?;
                let one = Run { start: run.start + i, len: 1, position: run.position + i, ..run };
                let matrix = Strided { data: row, columns: vocabulary, stride: vocabulary };
                show(self.probe, Stage::Probabilities, at.place, &one, matrix);
            }
        }
        Ok(())
    }
}

/// Softmax of the first `len` scores of a row, 0 for the others.
fn softmax_row(isa: Isa, row: &mut [f32], len: usize) -> Result<(), KernelError> {
    let columns = row.len();
    softmax_in_place(
        isa,
        MatrixMut::new(row, 1, columns)?,
        Some(&[len]),
        FullyMasked::Zeros,
        Parallelism::Serial,
    )?;
    Ok(())
}

fn scratch(all: &mut [f32], floats: usize) -> Result<&mut [f32], KernelError> {
    let found = all.len();
    all.get_mut(..floats).ok_or(KernelError::TraceScratch { expected: floats, found })
}

fn show(probe: &mut dyn Probe, stage: Stage, place: Place, run: &Run, matrix: Strided<'_>) {
    let Strided { data, columns, stride } = matrix;
    let &Run { len, sentence, row, position, .. } = run;
    probe.look(&View { stage, place, sentence, row, position, rows: len, columns, stride, data });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for (i, &stage) in Stage::ALL.iter().enumerate() {
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
            assert!(Stage::ALL[..i].iter().all(|other| other.name() != stage.name()));
        }
        assert_eq!(Stage::from_name("nothing"), None);
    }

    #[test]
    fn a_view_keeps_to_its_rows() {
        let data = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 5.0, 6.0];
        let place = Place { side: Side::Encoder, layer: None, block: None, head: None };
        let view = View {
            stage: Stage::Query,
            place,
            sentence: 0,
            row: None,
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
