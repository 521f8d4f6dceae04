//! The prompt settings of a transcription checkpoint: the tokens between the decoder start and the text.

use super::json::{Fields, ids_inside, token, wrong};
use super::keys::{Keys, Setting, setting};
use crate::error::Error;
use serde_json::{Value, json};

/// The prompt of a transcription model (Radford et al. 2022, section 2.3), named as in transformers'
/// `generation_config.json`: decoder start, language, task, and a token that requests text without timestamps.
/// All tokens except the first are a [prefix](crate::Source::prefix). Fields that the checkpoint does not set
/// are empty.
///
/// ```
/// use simdformer::config::Config;
///
/// let mut config = Config::from_hugging_face(r#"{"model_type": "whisper", "decoder_start_token_id": 50258}"#)?;
/// config.set_generation_config(
///     r#"{
///         "lang_to_id": {"<|en|>": 50259, "<|fr|>": 50265},
///         "task_to_id": {"transcribe": 50359, "translate": 50358},
///         "no_timestamps_token_id": 50363, "max_initial_timestamp_index": 50, "alignment_heads": [[2, 2], [3, 0]]
///     }"#,
/// )?;
/// let asked = &config.transcription;
/// // No language is set: the caller detects it.
/// assert!(asked.wants_language());
/// let french = asked.language("fr");
/// assert_eq!(asked.prefix(french, None, false), [50265, 50359, 50363]);
/// // Translation into English, with timestamps.
/// assert_eq!(asked.prefix(french, asked.task("translate"), true), [50265, 50358]);
/// assert_eq!(asked.alignment_heads, [(2, 2), (3, 0)]);
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcription {
    /// `lang_to_id`: the token of each language, by names such as `<|fr|>`, ascending. Empty in a model for one
    /// language.
    pub languages: Vec<(String, u32)>,
    /// `task_to_id`: the tokens of `transcribe` and `translate`.
    pub tasks: Vec<(String, u32)>,
    /// `no_timestamps_token_id`: requests text without timestamps. The tokens after it are timestamps.
    pub no_timestamps: Option<u32>,
    /// `max_initial_timestamp_index`: the latest timestamp with which a text may begin, counted from the first.
    pub max_initial_timestamp: Option<usize>,
    /// `prev_sot_token_id`: begins a prompt of earlier text.
    pub previous: Option<u32>,
    /// `language`: the default language, in the spelling of the file.
    pub default_language: Option<String>,
    /// `task`: the default task.
    pub default_task: Option<String>,
    /// `forced_decoder_ids` of older files: the tokens after the decoder start, `None` for a token to detect.
    pub forced: Vec<Option<u32>>,
    /// `alignment_heads`: the layers and heads of the decoder, from 0, whose cross-attention follows the spoken words.
    pub alignment_heads: Vec<(usize, usize)>,
}

const FORCED: &str = "forced_decoder_ids";

impl Transcription {
    /// The token of a language, by its code or in the spelling of the file: `fr` or `<|fr|>`; `None` if it is
    /// unknown.
    pub fn language(&self, name: &str) -> Option<u32> {
        let bare = |name: &str| {
            let inner = name.strip_prefix("<|").and_then(|name| name.strip_suffix("|>"));
            inner.unwrap_or(name).to_owned()
        };
        let wanted = bare(name);
        self.languages.iter().find(|(name, _)| bare(name) == wanted).map(|&(_, id)| id)
    }

    /// The token of a task.
    pub fn task(&self, name: &str) -> Option<u32> {
        self.tasks.iter().find(|(task, _)| task == name).map(|&(_, id)| id)
    }

    /// Whether the language must be detected if the caller sets none; see
    /// [`Session::detect_language`](crate::Session::detect_language).
    pub fn wants_language(&self) -> bool {
        !self.languages.is_empty() && self.forced.first().is_none_or(Option::is_none)
    }

    /// The tokens after the decoder start, as in transformers: the tokens of older files with `language` and `task`
    /// replaced; `transcribe` if there is a language and no task; and at the end, unless `timestamps` is true, the
    /// token that requests text without timestamps. A language that must still be detected is left out.
    pub fn prefix(&self, language: Option<u32>, task: Option<u32>, timestamps: bool) -> Vec<u32> {
        let mut tokens = self.forced.clone();
        let no_timestamps = self.no_timestamps.map(Some);
        if language.is_some() {
            match tokens.first_mut() {
                Some(first) => *first = language,
                None => tokens.push(language),
            }
        }
        let is_task = |id: &Option<u32>| self.tasks.iter().any(|&(_, task)| *id == Some(task));
        let given = tokens.iter().position(is_task);
        let wanted = match given {
            None => task.or(language.and_then(|_| self.task("transcribe"))),
            Some(_) => task,
        };
        match (given, wanted) {
            (_, None) => (),
            (Some(at), _) => tokens[at] = wanted,
            (None, _) => {
                let end = tokens.iter().position(|&id| Some(id) == no_timestamps);
                tokens.insert(end.unwrap_or(tokens.len()), wanted);
            }
        }
        tokens.retain(|&id| id.is_some() && Some(id) != no_timestamps);
        tokens.extend(no_timestamps.filter(|_| !timestamps));
        tokens.into_iter().flatten().collect()
    }

    /// Reads or writes the settings; see [`Keys::optional`].
    pub(super) fn keys(&mut self, keys: &mut Keys<'_>, default: &Self) -> Result<(), Error> {
        keys.optional("lang_to_id", &mut self.languages, &default.languages)?;
        keys.optional("task_to_id", &mut self.tasks, &default.tasks)?;
        keys.optional("no_timestamps_token_id", &mut self.no_timestamps, &default.no_timestamps)?;
        let (latest, default_latest) =
            (&mut self.max_initial_timestamp, &default.max_initial_timestamp);
        keys.optional("max_initial_timestamp_index", latest, default_latest)?;
        keys.optional("prev_sot_token_id", &mut self.previous, &default.previous)?;
        keys.optional("language", &mut self.default_language, &default.default_language)?;
        keys.optional("task", &mut self.default_task, &default.default_task)?;
        keys.optional(FORCED, &mut self.forced, &default.forced)?;
        keys.optional("alignment_heads", &mut self.alignment_heads, &default.alignment_heads)
    }

    /// If the file does not set the forced tokens, keeps those of `before`.
    pub(super) fn keep_forced(&mut self, fields: &Fields, before: &Self) {
        if fields.get(FORCED).is_none_or(Value::is_null) {
            self.forced.clone_from(&before.forced);
        }
    }

    pub(super) fn validate(&self, vocabulary: usize) -> Result<(), Error> {
        for (what, names) in [("lang_to_id", &self.languages), ("task_to_id", &self.tasks)] {
            names.iter().try_for_each(|&(_, id)| ids_inside(what, &[id], vocabulary))?;
        }
        ids_inside("no_timestamps_token_id", self.no_timestamps.as_slice(), vocabulary)?;
        ids_inside("prev_sot_token_id", self.previous.as_slice(), vocabulary)?;
        self.forced.iter().try_for_each(|id| ids_inside(FORCED, id.as_slice(), vocabulary))
    }
}

setting!(
    Vec<(String, u32)>,
    |names, fields, key| {
        const EXPECTED: &str = "an object of names and token ids";
        let mut found = match fields.get(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(name, id)| Ok((name.clone(), token(key, EXPECTED, id)?)))
                .collect::<Result<_, Error>>()?,
            Some(other) => return Err(wrong(key, EXPECTED, other)),
        };
        found.sort();
        Ok(found)
    },
    names.iter().cloned().collect(),
    None
);

// Pairs of a position, counted from 1 without gaps, and an id or `null`.
setting!(
    Vec<Option<u32>>,
    |ids, fields, key| {
        const EXPECTED: &str =
            "a list of pairs of a position, from 1 on without a gap, and a token id or null";
        let pair = |(index, value): (usize, &Value)| match value.as_array().map(Vec::as_slice) {
            Some([at, id]) if at.as_u64() == Some(index as u64 + 1) => match id {
                Value::Null => Ok(None),
                id => token(key, EXPECTED, id).map(Some),
            },
            _ => Err(wrong(key, EXPECTED, value)),
        };
        fields.list(key, EXPECTED)?.iter().enumerate().map(pair).collect()
    },
    ids.iter().zip(1..).map(|(id, at)| json!([at, id])).collect(),
    None
);

// Pairs of a layer and a head.
setting!(
    Vec<(usize, usize)>,
    |pairs, fields, key| {
        const EXPECTED: &str = "a list of pairs of a layer and a head, from 0";
        let pair = |value: &Value| match value.as_array().map(Vec::as_slice) {
            Some([layer, head]) => match (layer.as_u64(), head.as_u64()) {
                (Some(layer), Some(head)) => Ok((layer as usize, head as usize)),
                _ => Err(wrong(key, EXPECTED, value)),
            },
            _ => Err(wrong(key, EXPECTED, value)),
        };
        fields.list(key, EXPECTED)?.iter().map(pair).collect()
    },
    pairs.iter().map(|&(layer, head)| json!([layer, head])).collect(),
    None
);
