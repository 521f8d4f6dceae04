//! The prompt of a transcription model: language, task, timestamps.

use crate::Failure;
use crate::arguments::Transcribe;
use simdformer::config::{Config, Transcription};
use simdformer::search::Timestamps;
use simdformer_text::{Direction, TextError, Tokenizer};

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
pub(crate) struct Prompt {
    transcription: Transcription,
    /// The language of all files; `None` if the model has one language, or if it is detected.
    pub(crate) language: Option<u32>,
    /// The candidate languages for detection.
    known: Vec<u32>,
    task: Option<u32>,
    /// The timestamp rule, if timestamps are requested.
    pub(crate) timestamps: Option<Timestamps>,
}

impl Prompt {
    pub(crate) fn new(
        arguments: &Transcribe,
        config: &Config,
        tokenizer: &Tokenizer,
    ) -> Result<Self, Failure> {
        let transcription = config.generation.transcription.clone();
        let default =
            transcription.default_language.as_ref().filter(|_| !transcription.languages.is_empty());
        let language = match arguments.language.as_ref().or(default) {
            Some(code) => Some(language(code, &transcription, tokenizer)?),
            None => None,
        };
        let task = match &arguments.task {
            // A model of one language has no task tokens and always transcribes.
            Some(task) if task == "transcribe" && transcription.tasks.is_empty() => None,
            Some(task) => match transcription.task(task) {
                Some(id) => Some(id),
                None => return Err(format!("the model has no task {task:?}").into()),
            },
            None => transcription.default_task.as_ref().and_then(|task| transcription.task(task)),
        };
        let timestamps = match (arguments.timestamps, transcription.no_timestamps) {
            (false, _) => None,
            (true, None) => {
                return Err("--timestamps: expected no_timestamps_token_id in generation_config.json, found none".into());
            }
            (true, Some(no_timestamps)) => {
                let eos = config.tokens.eos.first().copied().unwrap_or(no_timestamps);
                let max_initial = transcription.max_initial_timestamp;
                Some(Timestamps { no_timestamps, eos, max_initial })
            }
        };
        let detect = language.is_none() && transcription.wants_language();
        let known = transcription.languages.iter().filter(|_| detect).map(|&(_, id)| id).collect();
        Ok(Self { transcription, language, known, task, timestamps })
    }

    /// The candidate languages, if the language is to be detected.
    pub(crate) fn to_detect(&self) -> Option<&[u32]> {
        (!self.known.is_empty()).then_some(&self.known)
    }

    /// The tokens after the decoder start.
    pub(crate) fn prefix(&self, language: Option<u32>) -> Vec<u32> {
        self.transcription.prefix(language, self.task, self.timestamps.is_some())
    }

    /// The code of a language.
    pub(crate) fn name(&self, id: u32) -> Option<&str> {
        let (name, _) = self.transcription.languages.iter().find(|&&(_, known)| known == id)?;
        let inside = name.strip_prefix("<|").and_then(|name| name.strip_suffix("|>"));
        Some(inside.unwrap_or(name))
    }

    /// The index of a time token, from the first one; `None` for other tokens.
    pub(crate) fn time(&self, id: u32) -> Option<u32> {
        id.checked_sub(self.transcription.no_timestamps?.checked_add(1)?)
    }
}

/// The token of a language; the error lists the most similar ones.
fn language(
    code: &str,
    transcription: &Transcription,
    tokenizer: &Tokenizer,
) -> Result<u32, Failure> {
    if transcription.languages.is_empty() {
        return Err(TextError::NoLanguages { code: code.to_owned() }.into());
    }
    let lower = code.to_lowercase();
    let mut names = NAMES.split(',').filter_map(|pair| pair.trim().split_once(':'));
    let named = names.find(|(name, _)| *name == lower).map_or(&lower[..], |(_, code)| code);
    if let Some(id) = transcription.language(named) {
        return Ok(id);
    }
    tokenizer.encode("", &Direction { source: Some(code), target: None })?;
    Err(format!("expected a language of lang_to_id in generation_config.json, found {code:?}")
        .into())
}
