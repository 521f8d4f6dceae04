//! The load of a model: what it will take, and a line that says how far it is.

use crate::{Failure, Streams};
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::{Loading, Model, WeightDtypes};
use std::time::{Duration, Instant};

/// Before the first line, and between two.
const PATIENCE: Duration = Duration::from_millis(200);

/// Columns of the line: a narrow terminal does not wrap it.
const WIDTH: usize = 79;

/// Loads the model of `checkpoint`, and says before a weight is read what it will take, to whoever wants to know.
pub(crate) fn load(
    checkpoint: &Checkpoint<'_>,
    forms: &WeightDtypes,
    tell: bool,
    streams: &mut Streams<'_>,
) -> Result<Model, Failure> {
    let isa = Isa::detect()?;
    if tell {
        writeln!(streams.notes, "needs {}", Model::requirements_as(checkpoint, isa, forms)?)?;
    }
    if !streams.watched {
        return Ok(Model::load_as(checkpoint, isa, forms, &mut |_| ())?);
    }
    let mut said = Instant::now();
    let mut shown = false;
    let model = Model::load_as(checkpoint, isa, forms, &mut |loading: Loading<'_>| {
        if said.elapsed() < PATIENCE {
            return;
        }
        (said, shown) = (Instant::now(), true);
        // Who cannot be told of progress is not told of that either.
        let _ = write!(streams.notes, "\r{:WIDTH$}", line(&loading));
        let _ = streams.notes.flush();
    });
    if shown {
        let _ = write!(streams.notes, "\r{:WIDTH$}\r", "");
    }
    Ok(model?)
}

/// How far, and where.
fn line(loading: &Loading<'_>) -> String {
    let percent = 100 * loading.done / loading.total.max(1);
    let megabytes = loading.total as f64 / 1e6;
    let line = format!("loading: {percent} % of {megabytes:.1} MB, {}", loading.tensor);
    line.chars().take(WIDTH).collect()
}
