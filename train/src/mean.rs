//! The mean of saved checkpoints.

use crate::error::{Error, invalid_option, wrong_state};
use crate::layout::Layout;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::kernels::{self, Exec, Isa};
use std::path::Path;

/// Writes a checkpoint in which every value is the mean of those of `checkpoints`, added in order in f64. Its format
/// is that of the first checkpoint. Vaswani et al. 2017 (section 6.1) average the last five checkpoints of a run,
/// written ten minutes apart.
///
/// # Errors
/// `checkpoints` is empty; a checkpoint cannot be read, or has another architecture than the first; the result cannot
/// be written.
///
/// ```no_run
/// use simdformer_train::average;
///
/// average(&["run/checkpoints/step-2600", "run/checkpoints/step-2800"], "run/mean")?;
/// # Ok::<(), simdformer::Error>(())
/// ```
pub fn average(checkpoints: &[impl AsRef<Path>], out: impl AsRef<Path>) -> Result<(), Error> {
    let Some(first) = checkpoints.first() else {
        return Err(invalid_option("the number of checkpoints", "at least 1", "0"));
    };
    let layout = Layout::from_directory(first.as_ref())?;
    let opened: Result<Vec<_>, _> = checkpoints.iter().map(Checkpoint::open).collect();
    let opened = opened?;
    let mut means: Vec<(TensorId, Vec<f32>)> = Vec::new();
    for role in TensorId::all(layout.config()) {
        let mut found = Vec::with_capacity(opened.len());
        for checkpoint in &opened {
            // A tensor that is absent in all checkpoints stays absent.
            found.extend(checkpoint.optional(role)?.map(|tensor| tensor.to_vec()).transpose()?);
        }
        if found.is_empty() {
            continue;
        }
        let slices: Vec<&[f32]> = found.iter().map(Vec::as_slice).collect();
        let mut mean = vec![0.0; slices[0].len()];
        let other = slices.iter().map(|slice| slice.len()).find(|&len| len != mean.len());
        if let Some(len) = other.or((slices.len() != opened.len()).then_some(0)) {
            return Err(wrong_state(role, mean.len(), len));
        }
        kernels::train::average(Exec::serial(Isa::best()), &slices, &mut mean)?;
        means.push((role, mean));
    }
    let value = |wanted| means.iter().find(|(role, _)| *role == wanted).map(|(_, mean)| &mean[..]);
    layout.write_with(&value, out.as_ref())
}
