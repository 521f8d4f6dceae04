//! Draws the three masks of a batch, and shows the effect of the textbook fill on rows without visible keys.

use super::page::{Section, beside, four};
use simdformer::kernels::softmax::softmax;
use simdformer::kernels::{Exec, FullyMasked, Input, Isa, Matrix, MatrixMut, SoftmaxOptions};
use std::error::Error;

/// The number of visible keys of each query, always the first ones; 0 for a padding query.
pub(crate) struct Mask {
    pub(crate) title: &'static str,
    pub(crate) keys: usize,
    pub(crate) visible: Vec<usize>,
}

/// Encoder self-attention, decoder self-attention and cross-attention of a sentence with `source` of `sources` and
/// `target` of `targets` tokens.
pub(crate) fn three(source: usize, sources: usize, target: usize, targets: usize) -> [Mask; 3] {
    let rows = |len: usize, of: usize, sees: &dyn Fn(usize) -> usize| -> Vec<usize> {
        (0..of).map(|i| if i < len { sees(i) } else { 0 }).collect()
    };
    [
        Mask { title: "encoder", keys: sources, visible: rows(source, sources, &|_| source) },
        Mask { title: "decoder", keys: targets, visible: rows(target, targets, &|i| i + 1) },
        Mask { title: "cross", keys: sources, visible: rows(target, targets, &|_| source) },
    ]
}

impl Mask {
    /// `#` for a visible key, `.` for a masked one.
    pub(crate) fn draw(&self) -> Vec<String> {
        let row = |&seen: &usize| {
            let cell = |j| if j < seen { "# " } else { ". " };
            (0..self.keys).map(cell).collect::<String>()
        };
        let mut lines = vec![format!("{:<8}", self.title)];
        lines.extend(self.visible.iter().map(row));
        lines
    }

    /// Masked softmax of `scores`, `[queries, keys]`, computed with the kernels.
    pub(crate) fn weights(
        &self,
        scores: &[f32],
        fully_masked: FullyMasked,
    ) -> Result<Vec<f32>, Box<dyn Error>> {
        let mut out = vec![0.0; scores.len()];
        let (rows, columns) = (self.visible.len(), self.keys);
        let lengths = Some(&self.visible[..]);
        softmax(
            Exec::serial(Isa::best()),
            Input::Matrix(Matrix::new(scores, rows, columns)?),
            SoftmaxOptions { lengths, fully_masked, ..SoftmaxOptions::default() },
            MatrixMut::new(&mut out, rows, columns)?,
        )?;
        Ok(out)
    }
}

/// The masks of sentences with `lengths` (source, target), all padded to the longest.
pub(crate) fn masks(lengths: &[(usize, usize)]) -> Section {
    let mut section = Section::new(
        "masks",
        "The three masks",
        "# is visible, . is masked; a row is a query, a column is a key. The library computes no \
         padding, because it has lengths (kernels/src/attention/mod.rs).",
    );
    let sources = lengths.iter().map(|l| l.0).max().unwrap_or(0);
    let targets = lengths.iter().map(|l| l.1).max().unwrap_or(0);
    for (i, &(source, target)) in lengths.iter().enumerate() {
        section.line(format!("sentence {i}: source length {source}, target length {target}"));
        let masks = three(source, sources, target, targets);
        section.lines.extend(beside(&masks.map(|mask| mask.draw())));
    }
    section
}

/// The masks and the softmax of `scores`, `[sentences][queries][keys]`, side by side: with real masks, and with
/// masked scores set to -1e9.
pub(crate) fn fill(
    lengths: &[(usize, usize)],
    scores: &[Vec<Vec<f32>>],
) -> Result<Section, Box<dyn Error>> {
    let mut section = Section::new(
        "fill",
        "A batch with padding, without and with the textbook fill",
        "A query without visible keys attends to nothing (FullyMasked::Zeros). Filled with -1e9 its \
         scores are all equal, and softmax gives all keys the same weight, padding included \
         (FullyMasked::Uniform). Rows with a visible key are the same in both.",
    );
    let sources = lengths.iter().map(|l| l.0).max().unwrap_or(0);
    let targets = lengths.iter().map(|l| l.1).max().unwrap_or(0);
    for (i, (&(source, target), scores)) in lengths.iter().zip(scores).enumerate() {
        section.line(format!("sentence {i}: source length {source}, target length {target}"));
        let flat: Vec<f32> = scores.iter().flatten().copied().collect();
        for mask in three(source, sources, target, targets) {
            let mut blocks = vec![mask.draw()];
            for (title, rule) in
                [("without fill", FullyMasked::Zeros), ("with -1e9 fill", FullyMasked::Uniform)]
            {
                let weights = mask.weights(&flat, rule)?;
                let row = |row: &[f32]| -> String {
                    row.iter().map(|&x| format!("{:>8}", four(x))).collect()
                };
                let mut block = vec![format!("  {title}")];
                block.extend(weights.chunks(mask.keys).map(row));
                blocks.push(block);
            }
            section.lines.extend(beside(&blocks));
            section.line("");
        }
    }
    Ok(section)
}
