//! The bottom of an encoder that reads features: two convolutions over frames (section 2.2 of Radford et al.
//! 2022).
//!
//! A convolution of three frames is a linear map of a window of three rows. Contiguous rows already contain
//! these windows, each one stride after the previous: the matrix is a view whose rows overlap, and no window is
//! copied. A position depends on only five to seven frames. Both convolutions therefore process a few rows at a
//! time, which stay in the cache between them.

use super::ExecContext;
use super::embedding::{norm_and_positions, position_rows};
use crate::config::{Config, Side};
use crate::error::Error;
use crate::input_features::Features;
use crate::model::forward::{BlockId, BlockOps, ForwardMode};
use crate::model::pass_input::Workspace;
use crate::model::weights::{Embedding, Linear};
use simdformer_kernels::{Activation, Error as KernelError, Matrix, PostOp};

/// Positions that are computed at a time.
pub(crate) const CONV_ROWS: usize = 256;
/// Frames of a window.
pub(crate) const WIDTH: usize = 3;
/// Frames from one window of the second convolution to the next one.
const STRIDE: usize = Features::STRIDE;

/// Rows of the first convolution, and frames, that `positions` positions depend on.
pub(crate) const fn reach(positions: usize) -> (usize, usize) {
    let rows = STRIDE * positions + (WIDTH - STRIDE);
    (rows, rows + WIDTH - 1)
}

/// Floats of [`Workspace::frames`] for sources of up to `positions`; `None` on overflow, 0 if the encoder reads
/// ids.
pub(crate) fn conv_floats(config: &Config, positions: usize) -> Option<usize> {
    let Some(bins) = config.bins else { return Some(0) };
    let (rows, frames) = reach(positions.min(CONV_ROWS));
    rows.checked_mul(config.d_model)?.checked_add(frames.checked_mul(bins)?)
}

/// The maximum number of rows of a product in [`convolve`] for sources of up to `positions`.
pub(crate) const fn conv_rows(positions: usize) -> usize {
    reach(if positions < CONV_ROWS { positions } else { CONV_ROWS }).0
}

/// Sets the residual stream to the output of the convolutions for the features of the pass, plus position embeddings,
/// with the norm if the architecture has one.
pub(crate) fn convolve<M: ForwardMode>(
    run: &ExecContext<'_>,
    [first, second]: &[Linear; 2],
    block: &Embedding,
    mode: &mut M,
) -> Result<(), Error> {
    let d = run.config.d_model;
    let (Workspace { x, h, frames, rounded, .. }, mut ops) = mode.block(BlockId::Embedding)?;
    let positions = position_rows(run, Side::Encoder, ops.tokens().position_table);
    let (mut source, mut row) = (0, 0);
    while let Some(features) = ops.features(source) {
        let len = features.positions();
        for start in (0..len).step_by(CONV_ROWS) {
            let count = CONV_ROWS.min(len - start);
            let (rows, inputs) = reach(count);
            let (window, hidden) = frames.split_at_mut(inputs * features.bins);
            let hidden = &mut hidden[..rows * d];
            let to = (window, &mut *hidden);
            first_rows(run, first, &features, start, Activation::Gelu, rounded, to)?;
            let windows = second_windows(hidden, count, d)?;
            let positions = positions.map(|table| &table[start * d..][..count * d]);
            let to = (row, &mut x[row * d..][..count * d]);
            ops.second_convolution(second, (windows, positions), rounded, to)?;
            row += count;
        }
        source += 1;
    }
    norm_and_positions(run, Side::Encoder, block, [x, h], &mut ops)?;
    drop(ops);
    mode.after(BlockId::Embedding)
}

/// Computes the rows of the first convolution for the positions from `start` on; the first row is that of frame
/// `2 start - 1`. `window` receives the input frames, starting at frame `2 start - 2`. [`reach`] gives the
/// lengths of both. Outside the sound the input of the second convolution is zero, not the output of the first.
pub(crate) fn first_rows(
    run: &ExecContext<'_>,
    first: &Linear,
    features: &Features<'_>,
    start: usize,
    activation: Activation,
    scratch: &mut [f32],
    (window, hidden): (&mut [f32], &mut [f32]),
) -> Result<(), KernelError> {
    let d = run.config.d_model;
    gather(features, STRIDE * start, window);
    let windows = first_windows(window, hidden.len() / d, features.bins)?;
    run.linear_of(first, windows, scratch, (activation, PostOp::None), hidden)?;
    for (row, hidden) in (STRIDE * start..).zip(hidden.chunks_mut(d)) {
        if row == 0 || row > features.frames() {
            hidden.fill(0.0);
        }
    }
    Ok(())
}

/// The input windows of `rows` rows of the first convolution, from `[frames, bins]`.
fn first_windows(window: &[f32], rows: usize, bins: usize) -> Result<Matrix<'_>, KernelError> {
    Matrix::strided(window, rows, WIDTH * bins, bins, 1)
}

/// The input windows of positions, from rows of the first convolution.
pub(crate) fn second_windows(
    hidden: &[f32],
    positions: usize,
    d: usize,
) -> Result<Matrix<'_>, KernelError> {
    Matrix::strided(hidden, positions, WIDTH * d, STRIDE * d, 1)
}

/// Copies frames to `window`, starting at frame `first - 2`, with zeros for frames that do not exist.
fn gather(features: &Features<'_>, first: usize, window: &mut [f32]) {
    const BEFORE: usize = WIDTH - 1;
    let bins = features.bins;
    let leading = BEFORE.saturating_sub(first).min(window.len() / bins);
    let (zeros, window) = window.split_at_mut(leading * bins);
    zeros.fill(0.0);
    let from = first.saturating_sub(BEFORE) * bins;
    let there = features.values.get(from..).unwrap_or(&[]);
    let (copied, zeros) = window.split_at_mut(there.len().min(window.len()));
    copied.copy_from_slice(&there[..copied.len()]);
    zeros.fill(0.0);
}
