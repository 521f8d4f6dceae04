//! Scores of a text or a pair of texts: the head of `...ForSequenceClassification`, as in cross-encoders.

use super::dense::{Dense, OutputActivation, ShapedTensor, wrong_hidden, wrong_width};
use super::modules::TransformerSettings;
use crate::checkpoint::safetensors_header;
use crate::checkpoint::{Checkpoint, HEADS};
use crate::error::Error;
use simdformer_atomic_file as atomic_file;
use std::io::Write;
use std::path::Path;

/// A linear map of the first token's hidden state, an activation, and a linear map to scores.
///
/// ```no_run
/// use simdformer::checkpoint::Checkpoint;
/// use simdformer::task_heads::Classifier;
/// use simdformer::{Limits, Model, Session};
///
/// let directory = "cross-encoder";
/// let model = Model::open(directory)?;
/// let head = Classifier::from_checkpoint(&Checkpoint::open(directory)?)?.ok_or("no head")?;
/// let mut session = Session::new(&model, Limits::encoder(1, 64))?;
/// // [CLS] question [SEP] answer [SEP]
/// let (pair, types) = ([101, 2040, 102, 2033, 102], [0, 0, 0, 1, 1]);
/// let hidden = session.encoder_output_of_types(&[&pair], &[&types])?;
/// println!("{:?}", head.scores(hidden)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Classifier {
    first: Dense,
    second: Dense,
    transformer: TransformerSettings,
}

impl Classifier {
    /// Reads the head of `checkpoint`; `None` if it has none. Supports the heads of BERT (`pooler.dense`,
    /// `classifier`), of RoBERTa and MPNet (`classifier.dense`, `classifier.out_proj`) and of DistilBERT
    /// (`pre_classifier`, `classifier`).
    ///
    /// # Errors
    /// A tensor of the head is missing, shapes do not match each other or the model, or numbers cannot be read.
    pub fn from_checkpoint(checkpoint: &Checkpoint<'_>) -> Result<Option<Self>, Error> {
        let Some((first, activation, second)) = find(checkpoint) else { return Ok(None) };
        let first = read_dense(checkpoint, first, activation)?;
        let second = read_dense(checkpoint, second, OutputActivation::Identity)?;
        for (module, expected, found) in [
            ("the classifier", checkpoint.config().d_model, first.inputs()),
            ("the last map of the classifier", first.outputs(), second.inputs()),
        ] {
            if expected != found {
                return Err(wrong_width(module.to_owned(), expected, found));
            }
        }
        Ok(Some(Self { first, second, transformer: TransformerSettings::default() }))
    }

    /// The same head with the settings of a cross-encoder's directory: how its texts are tokenized. If it has a
    /// `modules.json`, a transformer is its only module.
    ///
    /// # Errors
    /// A file is invalid or outside the directory; there are other modules; the transformer is declared for another
    /// task than scores, or for a chat template, or with settings or a tokenizer that this crate does not read.
    pub fn with_settings(self, directory: impl AsRef<Path>) -> Result<Self, Error> {
        let transformer = TransformerSettings::of_classifier(directory.as_ref())?;
        Ok(Self { transformer, ..self })
    }

    /// The maximum number of tokens of a text, including special tokens; `None` if the directory declares none.
    pub fn max_tokens(&self) -> Option<usize> {
        self.transformer.max_tokens
    }

    /// Whether the directory declares that texts are lowercased before they are tokenized, whatever the tokenizer does.
    pub fn lower_case(&self) -> bool {
        self.transformer.lower_case
    }

    /// Copies the head of `checkpoint` to a directory with [packed weights](Checkpoint::is_packed), which do not contain
    /// it: its tensors in f32, in a file of their own. [`Classifier::from_checkpoint`] then finds it there. Returns whether there
    /// is a head.
    ///
    /// # Errors
    /// A tensor of the head is missing or cannot be read; the file cannot be [written](Error::Io).
    pub fn save(checkpoint: &Checkpoint<'_>, directory: impl AsRef<Path>) -> Result<bool, Error> {
        let Some((first, _, second)) = find(checkpoint) else { return Ok(false) };
        let mut tensors = Vec::new();
        for map in [first, second] {
            for part in ["weight", "bias"] {
                let name = format!("{map}.{part}");
                let (shape, numbers) = numbers(checkpoint, &name)?;
                tensors.push((name, shape, numbers));
            }
        }
        let file = directory.as_ref().join(HEADS);
        let written = atomic_file::replace(&file, |file| {
            file.write_all(&safetensors_header(tensors.iter().map(|(name, shape, numbers)| {
                (&name[..], "F32", &shape[..], size_of_val(&numbers[..]) as u64)
            })))?;
            let numbers = tensors.iter().flat_map(|(.., numbers)| numbers);
            file.write_all(&numbers.flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
        });
        written.map_err(|error| Error::unwritable(file.display().to_string(), error))?;
        Ok(true)
    }

    /// Number of scores.
    pub fn labels(&self) -> usize {
        self.second.outputs()
    }

    /// The scores of a text before any softmax or sigmoid. `hidden` are its hidden states, `[tokens, d_model]`.
    ///
    /// # Errors
    /// `hidden` is empty or its length is not a multiple of `d_model`.
    pub fn scores(&self, hidden: &[f32]) -> Result<Vec<f32>, Error> {
        let (width, found) = (self.first.inputs(), hidden.len());
        if found == 0 || found % width.max(1) != 0 {
            return Err(wrong_hidden(width, found));
        }
        let mut inner = vec![0.0; self.first.outputs()];
        self.first.apply(&hidden[..width], &mut inner);
        let mut scores = vec![0.0; self.labels()];
        self.second.apply(&inner, &mut scores);
        Ok(scores)
    }
}

/// The first linear map of the head of `checkpoint`, its activation, and the second linear map.
fn find(checkpoint: &Checkpoint<'_>) -> Option<(&'static str, OutputActivation, &'static str)> {
    const HEADS: [(&str, OutputActivation, &str); 4] = [
        ("pooler.dense", OutputActivation::Tanh, "classifier"),
        ("bert.pooler.dense", OutputActivation::Tanh, "classifier"),
        ("classifier.dense", OutputActivation::Tanh, "classifier.out_proj"),
        ("pre_classifier", OutputActivation::Relu, "classifier"),
    ];
    let names: Vec<&str> = checkpoint.names().collect();
    let has = |name: &str| names.binary_search(&format!("{name}.weight").as_str()).is_ok();
    HEADS.into_iter().find(|(first, _, second)| has(first) && has(second))
}

fn read_dense(
    checkpoint: &Checkpoint<'_>,
    name: &str,
    activation: OutputActivation,
) -> Result<Dense, Error> {
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    Dense::new(
        &weight,
        numbers(checkpoint, &weight)?,
        Some(numbers(checkpoint, &bias)?),
        activation,
    )
}

fn numbers(checkpoint: &Checkpoint<'_>, name: &str) -> Result<ShapedTensor, Error> {
    let tensor = checkpoint.named(name)?;
    Ok((tensor.shape().to_vec(), tensor.to_vec()?))
}
