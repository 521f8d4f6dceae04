//! The modules after the transformer of a sentence-transformers directory.

use super::dense::{Dense, ShapedTensor, wrong_hidden, wrong_width};
use super::modules::{self, Module, Task, TransformerSettings};
use super::pooling::Pooling;
use crate::checkpoint::read_layer;
use crate::error::Error;
use std::path::Path;

/// Computes the vector of a text from its hidden states: pooling, then any linear maps and normalization.
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
    include_prompt: bool,
    transformer: TransformerSettings,
}

#[derive(Debug)]
enum Step {
    Dense(Dense),
    Normalize,
}

impl SentenceHead {
    /// Reads `modules.json` of `directory` and the files that it names. Without `modules.json`, the head is the mean of
    /// the tokens and nothing else, see [`SentenceHead::assumed`].
    ///
    /// # Errors
    /// A file is missing, invalid or outside the directory; a module, a pooling or an activation is not supported; the
    /// width of a module does not match the module before it or `d_model`.
    pub fn open(directory: impl AsRef<Path>, d_model: usize) -> Result<Self, Error> {
        let Some(modules) = modules::modules(directory.as_ref())? else {
            return Ok(Self { assumed: true, ..Self::new(vec![Pooling::Mean], d_model, false) });
        };
        let mut head = Self::new(Vec::new(), d_model, false);
        for module in modules {
            match module {
                Module::Transformer(folder) => {
                    head.transformer = TransformerSettings::from_folder(&folder, Task::Vectors)?;
                }
                Module::Pooling(folder) => {
                    let module = modules::pooling(&folder)?;
                    if let Some(found) = module.width.filter(|&found| found != d_model) {
                        let module = "pooling".to_owned();
                        return Err(wrong_width(module, d_model, found));
                    }
                    head.width = module.modes.len() * d_model;
                    head.pooling = module.modes;
                    head.include_prompt = module.include_prompt;
                }
                Module::Dense(folder) => {
                    let dense = read_dense(&folder)?;
                    let (expected, found) = (head.width, dense.inputs());
                    if expected != found {
                        let module = folder.display().to_string();
                        return Err(wrong_width(module, expected, found));
                    }
                    head.width = dense.outputs();
                    head.steps.push(Step::Dense(dense));
                }
                Module::Normalize => head.steps.push(Step::Normalize),
            }
        }
        if head.pooling.is_empty() {
            let file = directory.as_ref().join("modules.json").display().to_string();
            return Err(Error::unsupported(file, "a pooling module", "none"));
        }
        Ok(head)
    }

    /// A head with these poolings, concatenated, for hidden states of width `d_model`. `normalize` scales vectors to
    /// length 1.
    pub fn new(pooling: Vec<Pooling>, d_model: usize, normalize: bool) -> Self {
        let steps = if normalize { vec![Step::Normalize] } else { Vec::new() };
        let width = pooling.len() * d_model;
        let transformer = TransformerSettings::default();
        Self { d_model, pooling, steps, width, assumed: false, include_prompt: true, transformer }
    }

    /// Length of the vector of a text.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The poolings, in the order of concatenation.
    pub fn pooling(&self) -> &[Pooling] {
        &self.pooling
    }

    /// Whether vectors have length 1, so that their dot product is the cosine.
    pub fn normalizes(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalize))
    }

    /// Whether the directory has no `modules.json` and the mean was assumed. A program should print this.
    pub fn assumed(&self) -> bool {
        self.assumed
    }

    /// The maximum number of tokens of a text that the directory declares, including special tokens. It is often less
    /// than the number of positions of the model. `None` if not declared.
    pub fn max_tokens(&self) -> Option<usize> {
        self.transformer.max_tokens
    }

    /// Whether the directory declares that texts are lowercased before they are tokenized, whatever the tokenizer does.
    pub fn lower_case(&self) -> bool {
        self.transformer.lower_case
    }

    /// Whether the tokens of a prompt before the text are pooled, too, see [`SentenceHead::apply_after_prompt`].
    pub fn includes_prompt(&self) -> bool {
        self.include_prompt
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

    /// Writes the vector of one text to `out`, of length [`SentenceHead::width`]. `hidden` are its hidden states,
    /// `[tokens, d_model]`. Does not allocate.
    ///
    /// # Errors
    /// `hidden` is empty or its length is not a multiple of `d_model`; `scratch` is too short; `out` has another
    /// length.
    pub fn apply(&self, hidden: &[f32], scratch: &mut [f32], out: &mut [f32]) -> Result<(), Error> {
        self.apply_after_prompt(hidden, 0, scratch, out)
    }

    /// As [`SentenceHead::apply`], for a text that begins with a prompt of `prompt` tokens, special tokens before it
    /// included. If the directory declares so ([`SentenceHead::includes_prompt`]), these tokens are not pooled.
    ///
    /// # Errors
    /// As [`SentenceHead::apply`]; no token is left to be pooled.
    pub fn apply_after_prompt(
        &self,
        hidden: &[f32],
        prompt: usize,
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (width, found) = (self.d_model, hidden.len());
        if found == 0 || width == 0 || found % width != 0 {
            return Err(wrong_hidden(width, found));
        }
        let skipped = if self.include_prompt { 0 } else { prompt };
        if skipped >= found / width {
            let expected = format!(
                "more tokens than the {prompt} of the prompt, which the pooling leaves out"
            );
            let found = format!("{} in all", found / width);
            return Err(Error::invalid_input("the text", expected, found));
        }
        let (expected, found) = (self.scratch_floats(), scratch.len());
        if found < expected {
            return Err(wrong_length("the scratch of a head", expected, found));
        }
        if out.len() != self.width {
            let (expected, found) = (self.width, out.len());
            return Err(wrong_length("the vector of a text", expected, found));
        }
        let (mut now, mut next) = scratch[..expected].split_at_mut(expected / 2);
        for (pooling, part) in self.pooling.iter().zip(now.chunks_mut(width)) {
            pooling.pool(hidden, skipped, part);
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

/// Divides by the Euclidean length, or by 1e-12 if the length is smaller.
fn normalize(x: &mut [f32]) {
    let length = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt().max(1e-12);
    x.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

/// A slice of the wrong length.
fn wrong_length(slice: &'static str, expected: usize, found: usize) -> Error {
    Error::invalid_input(slice, format!("{expected} floats"), found.to_string())
}

fn read_dense(folder: &Path) -> Result<Dense, Error> {
    let activation = modules::activation(folder)?;
    let (file, mut tensors) = read_layer(folder)?;
    let mut take = |name: &str| -> Option<ShapedTensor> { tensors.remove(name) };
    let Some(weight) = take("linear.weight") else {
        return Err(Error::corrupt(file, "a tensor linear.weight", "none"));
    };
    let bias = take("linear.bias");
    Dense::new(&format!("linear.weight of {file}"), weight, bias, activation)
}
