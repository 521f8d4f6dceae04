//! What is added to embeddings to say where a token stands (section 3.5 of the paper), and in which part of
//! the source.

use super::blocks::Run;
use super::weights::{Embedding, Table};
use crate::config::Positions;
use crate::error::KernelError;
use simdformer_kernels::MatrixMut;
use simdformer_kernels::position::{self, PositionEncoding};

/// Writes the rows of positions `0..tokens`, `[tokens, d_model]`: the first of a learned table, those of a
/// formula, or zeros. With a table of `types`, `[types, tokens, d_model]`: the same for each type, its row
/// added.
pub(crate) fn write_positions(
    run: &Run<'_>,
    side: &Embedding,
    types: Option<&Table>,
    tokens: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let d = run.config.d_model;
    let (first, others) = out.split_at_mut((tokens * d).min(out.len()));
    if first.is_empty() {
        return Ok(());
    }
    if let Some(table) = &side.positions {
        first.copy_from_slice(&run.weights.rows(table)[..tokens * d]);
    } else if let Positions::HalfSplitSingle { offset } = run.config.positions {
        half_split_single(offset, d, first);
    } else if let Some(encoding) = formula(run.config.positions) {
        position::encode(encoding, 0, MatrixMut::new(first, tokens, d)?)?;
    } else {
        first.fill(0.0);
    }
    let Some(types) = types else { return Ok(()) };
    let mut rows = run.weights.rows(types).chunks(d);
    let zeroth = rows.next().unwrap_or(&[]);
    for (others, row) in others.chunks_mut(first.len()).zip(rows) {
        for (to, from) in others.chunks_mut(d).zip(first.chunks(d)) {
            sum(to, from, row);
        }
    }
    for to in first.chunks_mut(d) {
        to.iter_mut().zip(zeroth).for_each(|(to, x)| *to += x);
    }
    Ok(())
}

fn sum(to: &mut [f32], a: &[f32], b: &[f32]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = a + b;
    }
}

/// What the position formulas of a configuration are called in the kernels.
fn formula(positions: Positions) -> Option<PositionEncoding<'static>> {
    match positions {
        Positions::HalfSplit => Some(PositionEncoding::HalfSplit),
        Positions::HalfSplitClosed { offset } => Some(PositionEncoding::HalfSplitClosed { offset }),
        Positions::Interleaved => Some(PositionEncoding::Interleaved),
        Positions::HalfSplitSingle { .. } | Positions::Learned { .. } | Positions::None => None,
    }
}

/// [`Positions::HalfSplitSingle`]: frequency and angle are rounded to f32, as `torch` has them there.
fn half_split_single(offset: usize, d: usize, out: &mut [f32]) {
    let half = d / 2;
    let step = -((1e4f64.ln() / (half as f64 - 1.0)) as f32);
    for (p, row) in out.chunks_mut(d).enumerate() {
        let position = (p + offset) as f32;
        let (sines, rest) = row.split_at_mut(half);
        let (cosines, rest) = rest.split_at_mut(half);
        for (k, (sine, cosine)) in sines.iter_mut().zip(cosines).enumerate() {
            let frequency = f64::from(k as f32 * step).exp() as f32;
            let angle = f64::from(position * frequency);
            (*sine, *cosine) = (angle.sin() as f32, angle.cos() as f32);
        }
        rest.fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::half_split_single;

    /// Against plain f32 arithmetic, whose exponential may be an ulp off, times the position; and unlike the exact
    /// formula, from which it must differ far from the start.
    #[test]
    fn single_precision_is_reproduced() {
        const D: usize = 64;
        let (positions, offset) = (1100, 2);
        let mut table = vec![f32::NAN; positions * D];
        half_split_single(offset, D, &mut table);
        let step = -(1e4f64.ln() / 31.0);
        let mut furthest = 0.0f64;
        for (p, row) in table.chunks(D).enumerate() {
            let position = (p + offset) as f32;
            for (k, &sine) in row[..D / 2].iter().enumerate() {
                let angle = position * (k as f32 * step as f32).exp();
                let bound = 2e-7 * (position + 2.0);
                assert!((sine - angle.sin()).abs() <= bound, "{p} {k}: {sine}");
                assert!((row[D / 2 + k] - angle.cos()).abs() <= bound, "{p} {k}");
                let exact = (f64::from(position) * (k as f64 * step).exp()).sin();
                furthest = furthest.max((f64::from(sine) - exact).abs());
            }
        }
        assert!(furthest > 1e-5 && furthest < 3e-4, "{furthest}");
    }
}
