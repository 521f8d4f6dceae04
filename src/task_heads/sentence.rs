//! The modules after the transformer of a sentence-transformers directory.

use super::HeadError;
use super::dense::{Dense, Numbers};
use super::modules::{self, Module};
use super::pooling::Pooling;
use crate::checkpoint::read_tensors;
use std::path::Path;

/// From the hidden states of a text to its vector: pooling, and whatever linear maps and normalization come after it.
///
/// ```no_run
/// use simdformer::task_heads::SentenceHead;
/// use simdformer::{Limits, Model, Session};
///
/// let directory = "all-MiniLM-L6-v2";
/// let model = Model::open(directory)?;
/// let head = SentenceHead::open(directory, model.config().d_model)?;
/// let mut session = Session::new(&model, Limits::encoder(1, 256))?;
/// let hidden = session.encoder_output(&[&[101, 7592, 2088, 102]])?;
/// let (mut scratch, mut vector) = (vec![0.0; head.scratch_floats()], vec![0.0; head.width()]);
/// head.apply(hidden, &mut scratch, &mut vector)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SentenceHead {
    d_model: usize,
    pooling: Vec<Pooling>,
    steps: Vec<Step>,
    width: usize,
    assumed: bool,
    max_tokens: Option<usize>,
}

#[derive(Debug)]
enum Step {
    Dense(Dense),
    Normalize,
}

impl SentenceHead {
    /// Reads `modules.json` of `directory` and what it names. Where there is none, the mean is taken and nothing done
    /// after it, see [`SentenceHead::assumed`].
    ///
    /// # Errors
    /// Files that are missing, broken or lead out of the directory; a module, a pooling or an activation that this crate
    /// does not know; maps whose widths do not fit each other or `d_model`.
    pub fn open(directory: impl AsRef<Path>, d_model: usize) -> Result<Self, HeadError> {
        let Some(modules) = modules::modules(directory.as_ref())? else {
            return Ok(Self { assumed: true, ..Self::new(vec![Pooling::Mean], d_model, false) });
        };
        let mut head = Self::new(Vec::new(), d_model, false);
        for module in modules {
            match module {
                Module::Transformer(folder) => head.max_tokens = modules::longest(&folder)?,
                Module::Pooling(folder) => {
                    let (pooling, said) = modules::pooling(&folder)?;
                    if let Some(found) = said.filter(|&found| found != d_model) {
                        let module = "pooling".to_owned();
                        return Err(HeadError::Width { module, expected: d_model, found });
                    }
                    head.width = pooling.len() * d_model;
                    head.pooling = pooling;
                }
                Module::Dense(folder) => {
                    let dense = read_dense(&folder)?;
                    let (expected, found) = (head.width, dense.inputs());
                    if expected != found {
                        let module = folder.display().to_string();
                        return Err(HeadError::Width { module, expected, found });
                    }
                    head.width = dense.outputs();
                    head.steps.push(Step::Dense(dense));
                }
                Module::Normalize => head.steps.push(Step::Normalize),
            }
        }
        if head.pooling.is_empty() {
            let file = directory.as_ref().join("modules.json").display().to_string();
            let message = "expected a pooling module, found none".to_owned();
            return Err(HeadError::File { file, message });
        }
        Ok(head)
    }

    /// A head by hand: these poolings side by side, of hidden states `d_model` wide, made of length 1 if `normalize`.
    pub fn new(pooling: Vec<Pooling>, d_model: usize, normalize: bool) -> Self {
        let steps = if normalize { vec![Step::Normalize] } else { Vec::new() };
        let width = pooling.len() * d_model;
        Self { d_model, pooling, steps, width, assumed: false, max_tokens: None }
    }

    /// Length of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The poolings, side by side.
    pub fn pooling(&self) -> &[Pooling] {
        &self.pooling
    }

    /// Whether vectors end with length 1, so that their product is the cosine.
    pub fn normalizes(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalize))
    }

    /// The directory said nothing, and the mean was taken: worth a line of output.
    pub fn assumed(&self) -> bool {
        self.assumed
    }

    /// The longest text that the directory wants encoded, in tokens, special ones included: often less than what the model's
    /// positions allow. `None` where it does not say.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// Floats of scratch for [`SentenceHead::apply`].
    pub fn scratch_floats(&self) -> usize {
        2 * self.widest()
    }

    fn widest(&self) -> usize {
        let outputs = self.steps.iter().map(|step| match step {
            Step::Dense(dense) => dense.outputs(),
            Step::Normalize => 0,
        });
        outputs.fold(self.pooling.len() * self.d_model, usize::max)
    }

    /// Writes the vector of one text, `hidden` its `[tokens, d_model]`, to `out`, [`SentenceHead::width`] long. Allocates
    /// nothing.
    ///
    /// # Errors
    /// `hidden` is empty or no whole vectors; `scratch` is too short or `out` of another length.
    pub fn apply(
        &self,
        hidden: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), HeadError> {
        let (width, found) = (self.d_model, hidden.len());
        if found == 0 || width == 0 || found % width != 0 {
            return Err(HeadError::Hidden { width, found });
        }
        let (expected, found) = (self.scratch_floats(), scratch.len());
        if found < expected {
            return Err(HeadError::Length { what: "the scratch of a head", expected, found });
        }
        if out.len() != self.width {
            let (expected, found) = (self.width, out.len());
            return Err(HeadError::Length { what: "the vector of a text", expected, found });
        }
        let (mut now, mut next) = scratch[..expected].split_at_mut(expected / 2);
        for (pooling, part) in self.pooling.iter().zip(now.chunks_mut(width)) {
            pooling.pool(hidden, part);
        }
        let mut len = self.pooling.len() * width;
        for step in &self.steps {
            match step {
                Step::Dense(dense) => {
                    dense.apply(&now[..len], &mut next[..dense.outputs()]);
                    len = dense.outputs();
                    core::mem::swap(&mut now, &mut next);
                }
                Step::Normalize => normalize(&mut now[..len]),
            }
        }
        out.copy_from_slice(&now[..len]);
        Ok(())
    }
}

/// Divides by the length, which counts as 1e-12 where it is less.
fn normalize(x: &mut [f32]) {
    let length = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt().max(1e-12);
    x.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

fn read_dense(folder: &Path) -> Result<Dense, HeadError> {
    let after = modules::activation(folder)?;
    let file = folder.join("model.safetensors");
    let mut tensors = read_tensors(&file)?;
    let mut take = |name: &str| -> Option<Numbers> { tensors.remove(name) };
    let Some(weight) = take("linear.weight") else {
        let message = "expected a tensor linear.weight, found none".to_owned();
        return Err(HeadError::File { file: file.display().to_string(), message });
    };
    let bias = take("linear.bias");
    Dense::new(&format!("linear.weight of {}", file.display()), weight, bias, after)
}
