//! Reads the files of a sentence-transformers directory: its modules, and the settings of the folder of its transformer.

use super::dense::OutputActivation;
use super::pooling::Pooling;
use crate::checkpoint::{read_json, read_modules};
use crate::config::Fields;
use crate::error::Error;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// Maximum size of a JSON file; a real one has a hundredth of it.
const MAX_JSON: u64 = 1 << 16;

/// A module with its folder.
pub(super) enum Module {
    Transformer(PathBuf),
    Pooling(PathBuf),
    Dense(PathBuf),
    Normalize,
}

impl Module {
    /// The name, without the path of Python classes before it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Transformer(_) => "Transformer",
            Self::Pooling(_) => "Pooling",
            Self::Dense(_) => "Dense",
            Self::Normalize => "Normalize",
        }
    }
}

/// The modules in order; `None` if the directory has no `modules.json`.
pub(super) fn modules(directory: &Path) -> Result<Option<Vec<Module>>, Error> {
    let file = directory.join("modules.json");
    let Some(entries) = read_modules(directory)? else { return Ok(None) };
    let mut modules = Vec::new();
    for (path, kind) in entries {
        let normal = |part| matches!(part, Component::Normal(_));
        let unsafe_path = path.contains(|c: char| matches!(c, '\\' | ':') || c.is_control());
        let inside = !unsafe_path && Path::new(&path).components().all(normal);
        if !inside {
            let found = format!("\"{}\", which leads out of it", sanitized(&path));
            let file = file.display().to_string();
            return Err(Error::corrupt(file, "paths inside of the directory", found));
        }
        let path = directory.join(path);
        // A path of Python classes. Its last part is the same in all versions.
        match kind.rsplit('.').next() {
            Some("Transformer") => modules.push(Module::Transformer(path)),
            Some("Pooling") => modules.push(Module::Pooling(path)),
            Some("Dense") => modules.push(Module::Dense(path)),
            Some("Normalize") => modules.push(Module::Normalize),
            _ => {
                let known = "Transformer, Pooling, Dense, Normalize";
                let error = unknown("module", known, &kind);
                return Err(error.in_file(&file.display().to_string()));
            }
        }
    }
    Ok(Some(modules))
}

/// What the folder of a pooling module declares.
pub(super) struct PoolingModule {
    /// In the order in which they are concatenated.
    pub(super) modes: Vec<Pooling>,
    /// The width of the vectors that are pooled, if declared.
    pub(super) width: Option<usize>,
    /// Whether the tokens of a prompt are pooled, too.
    pub(super) include_prompt: bool,
}

/// The pooling module of a folder.
pub(super) fn pooling(folder: &Path) -> Result<PoolingModule, Error> {
    const FLAGS: [(&str, Pooling); 6] = [
        ("pooling_mode_cls_token", Pooling::Cls),
        ("pooling_mode_max_tokens", Pooling::Max),
        ("pooling_mode_mean_tokens", Pooling::Mean),
        ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
        ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
        ("pooling_mode_lasttoken", Pooling::LastToken),
    ];
    const MODE: &str = "pooling_mode";
    of_module(folder, |fields| {
        let mut modes = Vec::new();
        match fields.present(MODE) {
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
                for name in names.iter().filter_map(Value::as_str) {
                    modes.push(pooling_of_name(name)?);
                }
            }
            Some(Value::String(name)) => modes.push(pooling_of_name(name)?),
            Some(other) => {
                let expected = "the name of a pooling or a list of names";
                return Err(Error::corrupt(MODE, expected, sanitized(&other.to_string())));
            }
            None => {
                for (key, pooling) in FLAGS {
                    // The mean is the default if the file has no pooling mode.
                    if fields.flag_or_null(key, pooling == Pooling::Mean)? {
                        modes.push(pooling);
                    }
                }
            }
        }
        if modes.len() > Pooling::ALL.len() {
            let found = format!("{} of them", modes.len());
            return Err(Error::corrupt("", "each pooling at most once", found));
        }
        if modes.is_empty() {
            return Err(Error::corrupt("", "at least one pooling", "none"));
        }
        let [key, short] = ["word_embedding_dimension", "embedding_dimension"];
        if fields.get(key).is_some() && fields.get(short).is_some() {
            return Err(Error::corrupt(key, "one spelling of this key", format!("also {short}")));
        }
        let width = fields.optional_size(key)?.or(fields.optional_size(short)?);
        let include_prompt = fields.flag_or_null("include_prompt", true)?;
        Ok(PoolingModule { modes, width, include_prompt })
    })
}

fn pooling_of_name(name: &str) -> Result<Pooling, Error> {
    let found = Pooling::ALL.into_iter().find(|pooling| pooling.name() == name);
    let known = "cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken";
    found.ok_or_else(|| unknown("pooling", known, name))
}

/// The activation after the linear map of a folder.
pub(super) fn activation(folder: &Path) -> Result<OutputActivation, Error> {
    of_module(folder, |fields| {
        // Of the tensors that modules pass on, only the vector of the text is kept.
        for key in ["module_input_name", "module_output_name"] {
            match fields.optional_text(key)? {
                None | Some("sentence_embedding") => {}
                Some(found) => return Err(unknown("input or output", "sentence_embedding", found)),
            }
        }
        // The default of sentence-transformers.
        let name = fields.optional_text("activation_function")?.unwrap_or("Tanh");
        match name.rsplit('.').next() {
            Some("Tanh") => Ok(OutputActivation::Tanh),
            Some("Identity") => Ok(OutputActivation::Identity),
            Some("ReLU") => Ok(OutputActivation::Relu),
            _ => Err(unknown("activation", "Tanh, Identity, ReLU", name)),
        }
    })
}

/// Truncates `text` and escapes control characters, for an error message.
fn sanitized(text: &str) -> String {
    crate::printable_text::sanitized(text, 200)
}

/// A module, a pooling or an activation that is not supported.
fn unknown(kind: &str, supported: &str, found: &str) -> Error {
    Error::unsupported(kind, format!("one of {supported}"), format!("\"{}\"", sanitized(found)))
}

/// What `read` makes of the settings of the module in a folder.
fn of_module<T>(folder: &Path, read: impl FnOnce(&Fields) -> Result<T, Error>) -> Result<T, Error> {
    let file = folder.join("config.json");
    read_settings(&file, read)?.ok_or_else(|| {
        let file = file.display().to_string();
        Error::not_found(file, "the settings of a module", "no such file")
    })
}

/// What `read` makes of the settings in a JSON file; `None` if it does not exist.
fn read_settings<T>(
    file: &Path,
    read: impl FnOnce(&Fields) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let Some(text) = read_json(file, MAX_JSON)? else { return Ok(None) };
    let found = Fields::parse(&text).and_then(|fields| read(&fields));
    found.map(Some).map_err(|error| error.in_file(&file.display().to_string()))
}

/// How a text is tokenized, as a sentence-transformers directory declares it. The default is that of a directory that
/// declares nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TransformerSettings {
    /// The maximum number of tokens of a text, including special tokens; `None` if not declared.
    pub(super) max_tokens: Option<usize>,
    /// Whether texts are lowercased first, whatever the tokenizer does.
    pub(super) lower_case: bool,
}

/// The names of the file with the settings of a transformer in a sentence-transformers directory. The first that
/// exists is read, as sentence-transformers does.
pub const SETTINGS_FILES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// What a transformer is run for: the name of the task, and the output that is used.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Vectors,
    Scores,
}

impl Task {
    const fn name(self) -> &'static str {
        match self {
            Self::Vectors => "feature-extraction",
            Self::Scores => "sequence-classification",
        }
    }

    const fn output(self) -> &'static str {
        match self {
            Self::Vectors => "last_hidden_state",
            Self::Scores => "logits",
        }
    }
}

impl TransformerSettings {
    /// The settings of a cross-encoder's directory.
    pub(super) fn of_classifier(directory: &Path) -> Result<Self, Error> {
        let Some(modules) = modules(directory)? else {
            return Ok(Self::default());
        };
        if let [Module::Transformer(folder)] = &modules[..] {
            return Self::from_folder(folder, Task::Scores);
        }
        let found: Vec<&str> = modules.iter().map(Module::name).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        let file = directory.join("modules.json").display().to_string();
        Err(Error::unsupported(file, "one module, Transformer, as in a cross-encoder", found))
    }

    /// The settings in a transformer's folder.
    pub(super) fn from_folder(folder: &Path, task: Task) -> Result<Self, Error> {
        for name in SETTINGS_FILES {
            let file = folder.join(name);
            let settings = read_settings(&file, |fields| {
                check(fields, task)?;
                let max_tokens = fields.optional_size("max_seq_length")?;
                Ok(Self { max_tokens, lower_case: fields.flag_or_null("do_lower_case", false)? })
            })?;
            if let Some(settings) = settings {
                return Ok(settings);
            }
        }
        Ok(Self::default())
    }
}

/// Rejects settings that change the result and that this crate does not apply.
fn check(fields: &Fields, task: Task) -> Result<(), Error> {
    let wrong = |key: &str, expected: &str, found: &str| {
        Err(Error::unsupported(key, expected, sanitized(found)))
    };
    if let Some(found) =
        fields.optional_text("transformer_task")?.filter(|&name| name != task.name())
    {
        return wrong("transformer_task", task.name(), found);
    }
    if let Some(modalities) = fields.present("modality_config") {
        let text = &modalities["text"];
        let plain = text["method"] == "forward" && text["method_output_name"] == task.output();
        // With a message format, sentence-transformers puts every text into a chat template.
        if !plain || !modalities["message"].is_null() {
            let expected = format!("a text, read by forward, for {}", task.output());
            return wrong("modality_config", &expected, &modalities.to_string());
        }
    }
    if let Some(found) = fields.present("processing_kwargs")
        && found.as_object().is_none_or(|keys| !keys.is_empty())
    {
        return wrong("processing_kwargs", "none", &found.to_string());
    }
    if let Some(found) = fields.optional_text("tokenizer_name_or_path")? {
        return wrong("tokenizer_name_or_path", "the tokenizer of the directory", found);
    }
    Ok(())
}
