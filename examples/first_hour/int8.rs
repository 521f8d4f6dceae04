//! int8 weights: quantizes a checkpoint while it is loaded, saves the packed weights, and reads them back.

use super::n_best::{Hypotheses, translate};
use simdformer::{Dtype, Limits, Model, Quantization, Session, Source, WeightDtypes};
use std::error::Error;
use std::path::Path;

/// The bytes of a model, and its translation of each source.
pub(crate) type Measured = (usize, Vec<Hypotheses>);

fn measure(model: &Model, sources: &[&[u32]]) -> Result<Measured, Box<dyn Error>> {
    let mut session = Session::new(model, Limits::new(sources.len(), 32, 40))?;
    let options = session.search_options();
    let sources: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    Ok((model.bytes(), translate(&mut session, &sources, &options)?))
}

/// The model in f32, in int8, and in int8 from the packed `file`.
pub(crate) fn run(
    directory: &str,
    file: &Path,
    sources: &[&[u32]],
) -> Result<[Measured; 3], Box<dyn Error>> {
    let f32 = Model::open_with(directory, WeightDtypes::all(Dtype::F32))?;
    // int8 weights and activations, except the last matrix of each decoder feed-forward block, whose activations keep
    // 16 bits. `generate --compare-weights` finds such a table for a checkpoint.
    let dtypes = WeightDtypes::all(Quantization::W8A8)
        .with("decoder.layers.*.feed_forward.outer", Quantization::W8A16)?;
    let int8 = Model::open_with(directory, dtypes)?;
    // Packed once, for this instruction set. Reading the file quantizes nothing.
    int8.save_packed(file)?;
    let read = Model::open_packed(int8.config().clone(), file)?;
    Ok([measure(&f32, sources)?, measure(&int8, sources)?, measure(&read, sources)?])
}
