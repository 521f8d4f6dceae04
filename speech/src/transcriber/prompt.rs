//! The prompt of the decoder: earlier text, language, task, and what the ids mean.

use super::options::{TranscribeOptions, previous_token};
use crate::error::Error;
use simdformer::config::{Config, Side, Transcription};
use simdformer::search::Timestamps;
use simdformer_tokenize::{Direction, Tokenizer};

/// The length of a timestamp, in seconds, and in frames.
pub(super) const TIMESTAMP: f64 = 0.02;
pub(super) const FRAMES_PER_TIMESTAMP: usize = 2;
/// Decoder positions if the config does not define them.
const LONGEST: usize = 448;

/// The names and codes of the languages on which Whisper was trained; a checkpoint may use either.
const NAMES: &str = "
    afrikaans:af, amharic:am, arabic:ar, assamese:as, azerbaijani:az, bashkir:ba, belarusian:be,
    bulgarian:bg, bengali:bn, tibetan:bo, breton:br, bosnian:bs, catalan:ca, valencian:ca, czech:cs,
    welsh:cy, danish:da, german:de, greek:el, english:en, castilian:es, spanish:es, estonian:et,
    basque:eu, persian:fa, finnish:fi, faroese:fo, french:fr, galician:gl, gujarati:gu, hausa:ha,
    hawaiian:haw, hebrew:he, hindi:hi, croatian:hr, haitian:ht, haitian creole:ht, hungarian:hu,
    armenian:hy, indonesian:id, icelandic:is, italian:it, japanese:ja, javanese:jw, georgian:ka,
    kazakh:kk, khmer:km, kannada:kn, korean:ko, latin:la, letzeburgesch:lb, luxembourgish:lb,
    lingala:ln, lao:lo, lithuanian:lt, latvian:lv, malagasy:mg, maori:mi, macedonian:mk, malayalam:ml,
    mongolian:mn, marathi:mr, malay:ms, maltese:mt, burmese:my, myanmar:my, nepali:ne, dutch:nl,
    flemish:nl, nynorsk:nn, norwegian:no, occitan:oc, panjabi:pa, punjabi:pa, polish:pl, pashto:ps,
    pushto:ps, portuguese:pt, moldavian:ro, moldovan:ro, romanian:ro, russian:ru, sanskrit:sa,
    sindhi:sd, sinhala:si, sinhalese:si, slovak:sk, slovenian:sl, shona:sn, somali:so, albanian:sq,
    serbian:sr, sundanese:su, swedish:sv, swahili:sw, tamil:ta, telugu:te, tajik:tg, thai:th,
    turkmen:tk, tagalog:tl, turkish:tr, tatar:tt, ukrainian:uk, urdu:ur, uzbek:uz, vietnamese:vi,
    yiddish:yi, yoruba:yo, cantonese:yue, chinese:zh, mandarin:zh ";

/// The options of the caller, or the defaults of the checkpoint, as tokens.
#[derive(Clone)]
pub(super) struct Prompt {
    transcription: Transcription,
    /// The decoder start.
    pub(super) start: u32,
    /// The language of all recordings; `None` if the model has one language, or if it is detected.
    pub(super) language: Option<u32>,
    /// The candidate languages for detection.
    detected: Vec<u32>,
    task: Option<u32>,
    /// The timestamp rule, if the model writes timestamps.
    pub(super) timestamps: Option<Timestamps>,
    /// The token whose probability at the decoder start is that of no speech.
    pub(super) no_speech: Option<u32>,
    /// The token that begins earlier text, and the caller's text.
    previous: Option<u32>,
    initial: Vec<u32>,
    hotwords: Vec<u32>,
    /// The maximum number of tokens of a prompt and its text.
    pub(super) positions: usize,
    pub(super) vocabulary: usize,
}

impl Prompt {
    pub(super) fn new(
        options: &TranscribeOptions,
        config: &Config,
        tokenizer: &Tokenizer,
    ) -> Result<Self, Error> {
        let transcription = config.transcription.clone();
        let default =
            transcription.default_language.as_ref().filter(|_| !transcription.languages.is_empty());
        let language = match options.language.as_ref().or(default) {
            Some(code) => Some(language(code, &transcription, tokenizer)?),
            None => None,
        };
        let task = match &options.task {
            // A model of one language has no task tokens and always transcribes.
            Some(task) if task == "transcribe" && transcription.tasks.is_empty() => None,
            Some(task) => match transcription.task(task) {
                Some(id) => Some(id),
                None => {
                    let expected = match transcription.tasks.is_empty() {
                        true => "a model that has tasks".to_owned(),
                        false => "a task of task_to_id in generation_config.json".to_owned(),
                    };
                    let found = format!("{task:?}, but the model has no task {task:?}");
                    return Err(Error::invalid_option("task", expected, found));
                }
            },
            None => transcription.default_task.as_ref().and_then(|task| transcription.task(task)),
        };
        let missing = |setting, token| {
            let expected = format!("{token} in generation_config.json");
            Error::invalid_option(setting, expected, "none")
        };
        let timestamps = match (options.timestamps, transcription.no_timestamps) {
            (false, _) => None,
            (true, None) => return Err(missing("timestamps", "no_timestamps_token_id")),
            (true, Some(no_timestamps)) => {
                let eos = config.tokens.eos.first().copied().unwrap_or(no_timestamps);
                let max_initial = transcription.max_initial_timestamp;
                Some(Timestamps { no_timestamps, eos, max_initial })
            }
        };
        let previous = previous_token(config);
        let encode = |text: &Option<String>| match text.as_deref().map(str::trim) {
            Some(text) if !text.is_empty() => tokenizer.encode_target(&format!(" {text}")),
            _ => Ok(Vec::new()),
        };
        let (initial, hotwords) = (encode(&options.initial_prompt)?, encode(&options.hotwords)?);
        let given = !initial.is_empty() || !hotwords.is_empty();
        if previous.is_none() && (options.condition_on_previous_text || given) {
            return Err(missing("previous text", "prev_sot_token_id"));
        }
        let detect = language.is_none() && transcription.wants_language();
        let known = transcription.languages.iter().filter(|_| detect);
        Ok(Self {
            start: options.search.start,
            language,
            detected: known.map(|&(_, id)| id).collect(),
            task,
            timestamps,
            no_speech: transcription.no_timestamps.and_then(|id| id.checked_sub(1)),
            previous,
            initial,
            hotwords,
            positions: config.max_positions(Side::Decoder).unwrap_or(LONGEST),
            vocabulary: config.target_vocab,
            transcription,
        })
    }

    /// The candidate languages, if the language is to be detected.
    pub(super) fn to_detect(&self) -> Option<&[u32]> {
        (!self.detected.is_empty()).then_some(&self.detected)
    }

    /// The tokens before the text of a window: earlier text, decoder start, language, task. Also returns the index of
    /// the decoder start.
    pub(super) fn tokens(
        &self,
        earlier: Option<&[u32]>,
        language: Option<u32>,
    ) -> (Vec<u32>, usize) {
        let longest = (self.positions / 2).saturating_sub(1);
        let text = earlier.unwrap_or(&self.initial);
        let mut prompt = Vec::new();
        if !text.is_empty() || earlier.is_some() || !self.hotwords.is_empty() {
            prompt.extend(self.previous);
            prompt.extend(self.hotwords.iter().take(longest));
            let longest = (longest + 1).saturating_sub(prompt.len());
            prompt.extend_from_slice(&text[text.len().saturating_sub(longest)..]);
        }
        let at = prompt.len();
        prompt.push(self.start);
        prompt.extend(self.transcription.prefix(language, self.task, self.timestamps.is_some()));
        (prompt, at)
    }

    /// The tokens before a text without timestamps, and without earlier text.
    pub(super) fn without_timestamps(&self, language: Option<u32>) -> Vec<u32> {
        let mut prompt = vec![self.start];
        prompt.extend(self.transcription.prefix(language, self.task, false));
        prompt
    }

    /// The language in the prompt of a window.
    pub(super) fn language_of(&self, prompt: &[u32]) -> Option<u32> {
        let known = |id: &&u32| self.transcription.languages.iter().any(|(_, known)| known == *id);
        prompt.iter().rev().find(known).copied()
    }

    /// Whether spaces divide the words of a text. A translation is in English.
    pub(super) fn writes_spaces(&self, language: Option<u32>) -> bool {
        const WITHOUT: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
        let translates = self.task.is_some() && self.task == self.transcription.task("translate");
        let name = language.and_then(|id| self.name(id));
        translates || name.is_none_or(|name| !WITHOUT.contains(&name.as_str()))
    }

    /// The text that the caller gave.
    pub(super) fn initial(&self) -> &[u32] {
        &self.initial
    }

    /// The code of a language.
    pub(super) fn name(&self, id: u32) -> Option<String> {
        let (name, _) = self.transcription.languages.iter().find(|&&(_, known)| known == id)?;
        let inside = name.strip_prefix("<|").and_then(|name| name.strip_suffix("|>"));
        Some(inside.unwrap_or(name).to_owned())
    }

    /// The index of a timestamp, from the first one; `None` for other tokens.
    pub(super) fn timestamp(&self, id: u32) -> Option<usize> {
        let first = self.transcription.no_timestamps?.checked_add(1)?;
        id.checked_sub(first).map(|index| index as usize)
    }
}

/// The token of a language; the error lists the most similar ones.
fn language(
    code: &str,
    transcription: &Transcription,
    tokenizer: &Tokenizer,
) -> Result<u32, Error> {
    if transcription.languages.is_empty() {
        return Err(Error::no_languages(code));
    }
    let lower = code.to_lowercase();
    let mut names = NAMES.split(',').filter_map(|pair| pair.trim().split_once(':'));
    let named = names.find(|(name, _)| *name == lower).map_or(&lower[..], |(_, code)| code);
    if let Some(id) = transcription.language(named) {
        return Ok(id);
    }
    tokenizer.encode("", &Direction { source: Some(code), target: None })?;
    let expected = "a language of lang_to_id in generation_config.json".into();
    let found = Some(code.into());
    Err(Error::Language { operand: "language", expected, found, nearest: Vec::new() })
}
