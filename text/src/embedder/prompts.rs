//! `config_sentence_transformers.json`: the prompts of a model, the width of its vectors, and the activation of its
//! scores.

use crate::error::Error;
use serde_json::Value;
use simdformer_tokenize::{FileLimit, Settings};
use std::collections::BTreeMap;
use std::path::Path;

const FILE: &str = "config_sentence_transformers.json";

/// The prompt before a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// That of `default_prompt_name` in the directory; none if the directory has no such name.
    #[default]
    Default,
    /// The prompt of the directory with this name, for example `query`.
    Named(String),
    /// This text.
    Text(String),
}

/// The settings of the file; nothing is set if the file does not exist.
#[derive(Debug, Default)]
pub(super) struct SentenceTransformersConfig {
    prompts: BTreeMap<String, String>,
    default_prompt: Option<String>,
    /// The number of leading dimensions that are kept of a vector.
    pub(super) truncate_dim: Option<usize>,
    /// The file, if it exists.
    pub(super) settings: Option<Settings>,
}

impl SentenceTransformersConfig {
    pub(super) fn from_directory(directory: &Path) -> Result<Self, Error> {
        let Some(settings) = Settings::from_file(directory, FILE, FileLimit::CONFIG)? else {
            return Ok(Self::default());
        };
        let wrong = |found| settings.wrong("prompts", "an object of names to texts", found);
        let mut prompts = BTreeMap::new();
        if let Some(found) = settings.get("prompts") {
            for (name, text) in found.as_object().ok_or_else(|| wrong(found))? {
                // A prompt without a text is empty.
                let text = if text.is_null() { Some("") } else { text.as_str() };
                prompts.insert(name.clone(), text.ok_or_else(|| wrong(found))?.to_owned());
            }
        }
        let default_prompt = settings.text("default_prompt_name")?.map(str::to_owned);
        if let Some(name) = &default_prompt {
            // Every model of sentence-transformers has these two; they are empty if the directory does not say more.
            let everywhere = matches!(&name[..], "query" | "document");
            if everywhere {
                prompts.entry(name.clone()).or_default();
            } else if !prompts.contains_key(name) {
                let names: Vec<&str> = prompts.keys().map(String::as_str).collect();
                let expected = format!("one of the prompts ({})", names.join(", "));
                let found = Value::from(name.as_str());
                return Err(settings.wrong("default_prompt_name", &expected, &found).into());
            }
        }
        let truncate_dim = settings.number("truncate_dim", u32::MAX)?.map(|dims| dims as usize);
        Ok(Self { prompts, default_prompt, truncate_dim, settings: Some(settings) })
    }

    /// The text of a prompt; empty for none.
    pub(super) fn prompt(&self, prompt: &Prompt) -> Result<String, Error> {
        let name = match prompt {
            Prompt::Text(text) => return Ok(text.clone()),
            Prompt::Named(name) => Some(name),
            Prompt::Default => self.default_prompt.as_ref(),
        };
        let Some(name) = name else { return Ok(String::new()) };
        self.prompts.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.prompts.keys().map(String::as_str).collect();
            let expected = match known.is_empty() {
                true => "none, as the directory has no prompts".to_owned(),
                false => {
                    format!("one of the prompts that the directory has ({})", known.join(", "))
                }
            };
            Error::invalid_option("prompt_name", expected, name)
        })
    }
}
