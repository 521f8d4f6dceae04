//! Reads the files of a sentence-transformers directory.

use super::dense::OutputActivation;
use super::pooling::Pooling;
use crate::error::Error;
use crate::json_object::object;
use serde_core::Deserialize;
use serde_core::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Maximum size of a JSON file; a real one has a hundredth of it.
const MAX_JSON: u64 = 1 << 16;

object! {
    /// An element of `modules.json`.
    struct Entry {
        path: String = "path" or String::new(),
        kind: String = "type",
    }
}

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
    let Some(entries) = json::<Vec<Entry>>(&file)? else { return Ok(None) };
    let mut modules = Vec::new();
    for Entry { path, kind } in entries {
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
                return Err(unknown(&file, "module", known, &kind));
            }
        }
    }
    Ok(Some(modules))
}

/// The names of poolings. A file has one name or a list of names.
struct Modes(Vec<String>);

impl<'de> Deserialize<'de> for Modes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Modes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a pooling or a list of names")
            }

            fn visit_str<E>(self, name: &str) -> Result<Modes, E> {
                Ok(Modes(vec![name.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Modes, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Modes(names))
            }
        }
        // Both forms are valid; the file selects one of them.
        deserializer.deserialize_any(Names)
    }
}

object! {
    struct PoolingConfig {
        pooling_mode: Option<Modes> = "pooling_mode" or None,
        pooling_mode_cls_token: Option<bool> = "pooling_mode_cls_token" or None,
        pooling_mode_max_tokens: Option<bool> = "pooling_mode_max_tokens" or None,
        pooling_mode_mean_tokens: Option<bool> = "pooling_mode_mean_tokens" or None,
        pooling_mode_mean_sqrt_len_tokens: Option<bool> = "pooling_mode_mean_sqrt_len_tokens" or None,
        pooling_mode_weightedmean_tokens: Option<bool> = "pooling_mode_weightedmean_tokens" or None,
        pooling_mode_lasttoken: Option<bool> = "pooling_mode_lasttoken" or None,
        word_embedding_dimension: Option<usize> =
            "word_embedding_dimension" | "embedding_dimension" or None,
        include_prompt: Option<bool> = "include_prompt" or None,
    }
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
    let file = folder.join("config.json");
    let config: PoolingConfig = json(&file)?.ok_or_else(|| missing(&file))?;
    let modes = match config.pooling_mode {
        Some(Modes(names)) => {
            let known = |name: &String| {
                let found = Pooling::ALL.into_iter().find(|pooling| pooling.name() == name);
                let known = "cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken";
                found.ok_or_else(|| unknown(&file, "pooling", known, name))
            };
            names.iter().map(known).collect::<Result<Vec<_>, _>>()?
        }
        None => {
            let wanted = [
                config.pooling_mode_cls_token.unwrap_or(false),
                config.pooling_mode_max_tokens.unwrap_or(false),
                // The default if the file has no pooling mode.
                config.pooling_mode_mean_tokens.unwrap_or(true),
                config.pooling_mode_mean_sqrt_len_tokens.unwrap_or(false),
                config.pooling_mode_weightedmean_tokens.unwrap_or(false),
                config.pooling_mode_lasttoken.unwrap_or(false),
            ];
            let all = Pooling::ALL.into_iter().zip(wanted);
            all.filter_map(|(pooling, wanted)| wanted.then_some(pooling)).collect()
        }
    };
    if modes.len() > Pooling::ALL.len() {
        let (file, found) = (file.display().to_string(), format!("{} of them", modes.len()));
        return Err(Error::corrupt(file, "each pooling at most once", found));
    }
    if modes.is_empty() {
        return Err(Error::corrupt(file.display().to_string(), "at least one pooling", "none"));
    }
    let include_prompt = config.include_prompt.unwrap_or(true);
    Ok(PoolingModule { modes, width: config.word_embedding_dimension, include_prompt })
}

object! {
    struct DenseConfig {
        activation_function: Option<String> = "activation_function" or None,
        input: Option<String> = "module_input_name" or None,
        output: Option<String> = "module_output_name" or None,
    }
}

/// The activation after the linear map of a folder.
pub(super) fn activation(folder: &Path) -> Result<OutputActivation, Error> {
    let file = folder.join("config.json");
    let config: DenseConfig = json(&file)?.ok_or_else(|| missing(&file))?;
    // Of the tensors that modules pass on, only the vector of the text is kept.
    let mut names = [&config.input, &config.output].into_iter().flatten();
    if let Some(found) = names.find(|name| *name != "sentence_embedding") {
        return Err(unknown(&file, "input or output", "sentence_embedding", found));
    }
    // The default of sentence-transformers.
    let name = config.activation_function.unwrap_or_else(|| "Tanh".to_owned());
    match name.rsplit('.').next() {
        Some("Tanh") => Ok(OutputActivation::Tanh),
        Some("Identity") => Ok(OutputActivation::Identity),
        Some("ReLU") => Ok(OutputActivation::Relu),
        _ => Err(unknown(&file, "activation", "Tanh, Identity, ReLU", &name)),
    }
}

/// Truncates `text` and escapes control characters, for an error message.
pub(super) fn sanitized(text: &str) -> String {
    crate::printable_text::sanitized(text, 200)
}

fn missing(file: &Path) -> Error {
    Error::not_found(file.display().to_string(), "the settings of a module", "no such file")
}

/// A module, a pooling or an activation that is not supported.
fn unknown(file: &Path, kind: &str, supported: &str, found: &str) -> Error {
    let operand = format!("{}: {kind}", file.display());
    Error::unsupported(operand, format!("one of {supported}"), format!("\"{}\"", sanitized(found)))
}

/// Reads a JSON file; `None` if it does not exist.
pub(super) fn json<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, Error> {
    let Some(text) = crate::checkpoint::read_json(file, MAX_JSON)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let found = format!("something else: {}", sanitized(&error.to_string()));
        Error::corrupt(file.display().to_string(), "the settings of a module", found)
    })
}
