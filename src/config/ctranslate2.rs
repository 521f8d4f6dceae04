//! The settings of a directory of CTranslate2: its `config.json`, and what follows from them for a configuration.

use super::keys::Keys;
use super::{Config, Fields, SpecialTokens, Transcription};
use crate::error::Error;
use crate::printable_text::quoted;
use std::collections::HashMap;

/// Maximum characters of a token in an error.
const SHOWN: usize = 80;

/// The `config.json` of CTranslate2, whose tokens are texts. The defaults are those of CTranslate2.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CTranslate2Settings {
    pub(crate) bos: String,
    pub(crate) eos: String,
    /// `None`: the caller sets the first token of the target.
    pub(crate) decoder_start: Option<String>,
    /// Whether CTranslate2 puts the begin token before every source, and the end token after it.
    pub(crate) add_source: [bool; 2],
    /// `None` for that of the kind of norm.
    pub(crate) layer_norm_eps: Option<f32>,
    suppress: Vec<u32>,
    begin_suppress: Vec<u32>,
    /// The ids of languages, of Whisper.
    languages: Vec<u32>,
    alignment_heads: Vec<(usize, usize)>,
}

impl Default for CTranslate2Settings {
    fn default() -> Self {
        Self {
            bos: "<s>".to_owned(),
            eos: "</s>".to_owned(),
            decoder_start: Some("<s>".to_owned()),
            add_source: [false; 2],
            layer_norm_eps: None,
            suppress: Vec::new(),
            begin_suppress: Vec::new(),
            languages: Vec::new(),
            alignment_heads: Vec::new(),
        }
    }
}

impl CTranslate2Settings {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// [`Corrupt`](Error::Corrupt): the text is not a JSON object with distinct keys, or a value has the wrong type.
    /// [`Unsupported`](Error::Unsupported): the weights are quantized in groups.
    pub(crate) fn from_json(json: &str) -> Result<Self, Error> {
        const QUANTIZATION: &str = "quantization_type";
        let fields = Fields::parse(json)?;
        let absent = Self::default();
        let text = |key: &'static str, absent: String| -> Result<String, Error> {
            Ok(fields.optional_text(key)?.map_or(absent, str::to_owned))
        };
        if let Some(kind) = fields.present(QUANTIZATION).filter(|kind| kind.as_u64() != Some(0)) {
            let found = format!("{kind}, weights quantized in groups (AWQ)");
            return Err(Error::unsupported(QUANTIZATION, "0, no further quantization", found));
        }
        let decoder_start = match fields.get("decoder_start_token") {
            None => absent.decoder_start,
            Some(_) => fields.optional_text("decoder_start_token")?.map(str::to_owned),
        };
        let mut alignment_heads = Vec::new();
        Keys::for_reading(&fields).optional(
            "alignment_heads",
            &mut alignment_heads,
            &Vec::new(),
        )?;
        Ok(Self {
            bos: text("bos_token", absent.bos)?,
            eos: text("eos_token", absent.eos)?,
            decoder_start,
            add_source: [
                fields.flag("add_source_bos", false)?,
                fields.flag("add_source_eos", false)?,
            ],
            layer_norm_eps: fields.optional_number("layer_norm_epsilon")?,
            suppress: fields.ids("suppress_ids", &[])?,
            begin_suppress: fields.ids("suppress_ids_begin", &[])?,
            languages: fields.ids("lang_ids", &[])?,
            alignment_heads,
        })
    }

    /// Whether the id of this token of the vocabulary is needed.
    pub(crate) fn names_token(&self, token: &str) -> bool {
        *token == *self.bos || *token == *self.eos || self.decoder_start.as_deref() == Some(token)
    }

    /// The special tokens of a model, by the ids of tokens.
    pub(crate) fn special_tokens(&self, ids: &HashMap<String, u32>) -> SpecialTokens {
        let id = |token: &str| ids.get(token).copied();
        SpecialTokens {
            eos: id(&self.eos).into_iter().collect(),
            bos: id(&self.bos),
            decoder_start: self.decoder_start.as_deref().and_then(id),
            ..SpecialTokens::default()
        }
    }

    /// Sets the tokens that CTranslate2 adds to every source, by the ids of tokens of the source.
    ///
    /// # Errors
    /// [`Corrupt`](Error::Corrupt): the vocabulary does not have one.
    pub(crate) fn set_source_tokens(
        &self,
        ids: &HashMap<String, u32>,
        tokens: &mut SpecialTokens,
    ) -> Result<(), Error> {
        let [begin, end] = self.add_source;
        for (added, token, place) in
            [(begin, &self.bos, &mut tokens.source_begin), (end, &self.eos, &mut tokens.source_end)]
        {
            *place = ids.get(token).copied().filter(|_| added);
            if added && place.is_none() {
                let expected = format!("{}, which is added to every source", quoted(token, SHOWN));
                return Err(Error::corrupt("the vocabulary of the source", expected, "none"));
            }
        }
        Ok(())
    }

    /// Sets the tokens, the prompt and the rules of a Whisper model, by the ids of tokens.
    pub(crate) fn set_transcription(&self, ids: &HashMap<String, u32>, config: &mut Config) {
        let id = |token: &str| ids.get(token).copied();
        let end = id(END_OF_TEXT);
        config.tokens = SpecialTokens {
            pad: end,
            eos: end.into_iter().collect(),
            bos: end,
            decoder_start: id(START),
            ..SpecialTokens::default()
        };
        let options = &mut config.settings.options;
        options.suppress.clone_from(&self.suppress);
        options.begin_suppress.clone_from(&self.begin_suppress);
        let mut transcription = Transcription {
            no_timestamps: id("<|notimestamps|>"),
            // The value of CTranslate2 and of every published model.
            max_initial_timestamp: Some(50),
            previous: id("<|startofprev|>"),
            alignment_heads: self.alignment_heads.clone(),
            ..Transcription::default()
        };
        // Only a vocabulary of several languages has an empty token.
        if ids.contains_key("") {
            let is_language = |(token, id): &(&String, &u32)| {
                language(token).is_some()
                    && (self.languages.is_empty() || self.languages.contains(id))
            };
            let languages = ids.iter().filter(is_language);
            transcription.languages = languages.map(|(token, &id)| (token.clone(), id)).collect();
            transcription.languages.sort();
            let task = |name: &str| Some((name.to_owned(), id(&format!("<|{name}|>"))?));
            let tasks = ["transcribe", "translate"];
            transcription.tasks = tasks.into_iter().filter_map(task).collect();
        }
        config.transcription = transcription;
    }
}

/// The end of a text of Whisper.
pub(crate) const END_OF_TEXT: &str = "<|endoftext|>";
const START: &str = "<|startoftranscript|>";

/// Whether [`CTranslate2Settings::set_transcription`] needs the id of this token.
pub(crate) fn is_transcription_token(token: &str) -> bool {
    let named = [
        "",
        END_OF_TEXT,
        START,
        "<|startofprev|>",
        "<|notimestamps|>",
        "<|transcribe|>",
        "<|translate|>",
    ];
    named.contains(&token) || language(token).is_some()
}

/// The language of a token such as `<|fr|>` or `<|haw|>`.
fn language(token: &str) -> Option<&str> {
    let name = token.strip_prefix("<|")?.strip_suffix("|>")?;
    let fits = (2..=3).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase());
    fits.then_some(name)
}
