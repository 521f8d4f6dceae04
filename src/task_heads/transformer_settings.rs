//! Settings of a transformer's folder in a sentence-transformers directory: `sentence_bert_config.json`.

use super::modules::{self, Module, read_settings, sanitized};
use crate::config::Fields;
use crate::error::Error;
use std::path::Path;

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
        let Some(modules) = modules::modules(directory)? else {
            return Ok(Self::default());
        };
        if let [Module::Transformer(folder)] = &modules[..] {
            return Self::read(folder, Task::Scores);
        }
        let found: Vec<&str> = modules.iter().map(Module::name).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        let file = directory.join("modules.json").display().to_string();
        Err(Error::unsupported(file, "one module, Transformer, as in a cross-encoder", found))
    }

    /// The settings in a transformer's folder.
    pub(super) fn read(folder: &Path, task: Task) -> Result<Self, Error> {
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
