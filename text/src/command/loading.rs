//! Loads a model, reports its memory before, and shows progress.

use crate::{Failure, Streams};
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::{Loading, Model, WeightDtypes};
use std::time::{Duration, Instant};

/// The delay before the first progress line and between two.
const INTERVAL: Duration = Duration::from_millis(200);

/// Columns of the progress line, so that a narrow terminal does not wrap it.
const WIDTH: usize = 79;

/// Loads the model of `checkpoint`. If notes are shown, reports the required memory before any weight is read.
pub(crate) fn load(
    checkpoint: &Checkpoint<'_>,
    forms: &WeightDtypes,
    report_memory: bool,
    streams: &mut Streams<'_>,
) -> Result<Model, Failure> {
    let isa = Isa::detect()?;
    if report_memory {
        writeln!(streams.notes, "needs {}", Model::requirements_as(checkpoint, isa, forms)?)?;
    }
    if !streams.watched {
        return Ok(Model::load_as(checkpoint, isa, forms, &mut |_| ())?);
    }
    let mut last_update = Instant::now();
    let mut shown = false;
    let model = Model::load_as(checkpoint, isa, forms, &mut |loading: Loading<'_>| {
        if last_update.elapsed() < INTERVAL {
            return;
        }
        (last_update, shown) = (Instant::now(), true);
        // If progress cannot be written, the write error is ignored too.
        let _ = write!(streams.notes, "\r{:WIDTH$}", line(&loading));
        let _ = streams.notes.flush();
    });
    if shown {
        let _ = write!(streams.notes, "\r{:WIDTH$}\r", "");
    }
    Ok(model?)
}

/// The progress and the tensor that is being loaded.
fn line(loading: &Loading<'_>) -> String {
    let percent = 100 * loading.done / loading.total.max(1);
    let megabytes = loading.total as f64 / 1e6;
    let line = format!("loading: {percent} % of {megabytes:.1} MB, {}", loading.tensor);
    line.chars().take(WIDTH).collect()
}
