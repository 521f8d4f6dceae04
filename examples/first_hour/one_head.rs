//! The cross-attention weights of one head in a translation, target tokens by source tokens.

use super::n_best::translate;
use simdformer::{Limits, Model, Session, Source, SourceId};
use std::error::Error;

/// A row of weights for each target token; each row sums to 1 over the source.
pub(crate) fn run(
    directory: &str,
    source: &[u32],
    (layer, head): (usize, usize),
) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let model = Model::open(directory)?;
    let mut session = Session::new(&model, Limits::new(1, 32, 40))?;
    let options = session.search_options();
    let found = translate(&mut session, &[Source::new(source)], &options)?;
    let best = found[0].first().ok_or("a hypothesis")?;

    // The decoder input: its start token, and all output tokens but the last.
    let mut target = vec![options.start];
    target.extend(&best[..best.len() - 1]);

    // The search never materializes these weights, so the pair is computed once more, in one pass.
    let mut sentence = [SourceId::default()];
    session.encode(&[source], &mut sentence)?;
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut weights = vec![0.0; target.len() * source.len()];
    session.align(sentence[0], &target, (layer, &[head]), &mut scratch, &mut weights)?;
    Ok(weights.chunks(source.len()).map(<[f32]>::to_vec).collect())
}

/// Draws one character per weight and one line per target token.
pub(crate) fn draw(weights: &[Vec<f32>]) -> String {
    let shade = |&weight: &f32| [' ', '.', ':', '*', '#'][((weight * 5.0) as usize).min(4)];
    let line = |row: &Vec<f32>| row.iter().map(shade).chain(['\n']).collect::<String>();
    weights.iter().map(line).collect()
}
