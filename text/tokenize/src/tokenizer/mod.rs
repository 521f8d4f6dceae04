//! The tokenizer of a directory: its family's files, special tokens and languages.

mod encode;
mod prompt;
mod spans;
pub(crate) mod stream;

use crate::directory::family::Family;
use crate::directory::{Directory, tokenizer_folder};
use crate::error::Error;
use crate::languages::task_prefixes::TaskPrefixes;
use crate::languages::{Direction, Language};
use crate::nearest_words::nearest;
use crate::vocabulary::backend::Engine;
use crate::vocabulary::{self, Parts};
use spans::{decode_with_spans, in_order};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use stream::DecodeStream;

/// Encodes text to the ids that a model was trained on, and decodes ids to text.
///
/// Immutable: any number of threads may share it.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// The languages are sorted by code. Shared with tokenizers that differ in the prefix.
    parts: Arc<Parts>,
    /// What is put before every text; `None` for what the tasks say.
    prefix: Option<String>,
    tasks: TaskPrefixes,
    /// The default languages.
    source: Option<String>,
    target: Option<String>,
    /// Whether the language token follows the text.
    legacy: bool,
    max_tokens: Option<usize>,
    /// Tokens before and after every text that no file of the tokenizer names.
    source_tokens: [Option<u32>; 2],
}

impl Tokenizer {
    /// Reads the tokenizer of a published checkpoint directory.
    ///
    /// A sentence-transformers directory may have the files in the folder of its transformer.
    ///
    /// `tokenizer_config.json` or `config.json` selects the family. If there is a SentencePiece file, it is used, and
    /// a `tokenizer.json` next to it is ignored.
    ///
    /// # Errors
    /// The family is unknown; or a file is missing, truncated, not regular, larger than any published one, or
    /// inconsistent. The error has the file's name, what was expected and what was found.
    pub fn from_dir(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::of_directory(&Directory::open(&tokenizer_folder(path.as_ref())?)?)
    }

    /// As [`from_dir`](Self::from_dir), for a directory whose files are in memory by their names. Errors call it `place`.
    ///
    /// ```
    /// use simdformer_tokenize::{Direction, Tokenizer};
    /// use std::collections::BTreeMap;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc");
    /// let mut files = BTreeMap::new();
    /// for name in ["config.json", "source.spm", "target.spm", "vocab.json"] {
    ///     files.insert(name.to_owned(), std::fs::read(format!("{directory}/{name}"))?);
    /// }
    /// let tokenizer = Tokenizer::from_files("an archive", files)?;
    /// let ids = tokenizer.encode("attention", &Direction::default())?.ids;
    /// assert_eq!(ids, Tokenizer::from_dir(directory)?.encode("attention", &Direction::default())?.ids);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`from_dir`](Self::from_dir).
    pub fn from_files(
        place: impl AsRef<Path>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, Error> {
        Self::of_directory(&Directory::in_memory(place.as_ref(), files)?)
    }

    fn of_directory(directory: &Directory) -> Result<Self, Error> {
        let family = Family::from_directory(directory)?;
        let parts = match family {
            Family::Marian => vocabulary::marian(directory)?,
            Family::M2m100 => vocabulary::m2m100(directory)?,
            Family::Nllb | Family::Mbart25 | Family::Mbart50 | Family::XlmRoberta
                if directory.has("sentencepiece.bpe.model") =>
            {
                vocabulary::fairseq(directory, family)?
            }
            Family::Camembert if directory.has("sentencepiece.bpe.model") => {
                vocabulary::camembert(directory)?
            }
            Family::OpenNmt => vocabulary::opennmt(directory)?,
            Family::T5 if directory.has("spiece.model") => vocabulary::t5(directory)?,
            Family::Pegasus if directory.has("spiece.model") => vocabulary::pegasus(directory)?,
            _ => vocabulary::json(directory, family)?,
        };
        Self::with_settings(parts, directory)
    }

    /// Reads the settings that all families have in common.
    fn with_settings(mut parts: Parts, directory: &Directory) -> Result<Self, Error> {
        let (config, tokenizer) = (&directory.config, &directory.tokenizer);
        parts.languages.sort_unstable();
        parts.languages.dedup_by(|a, b| a.code() == b.code());
        let language = |key, older| {
            let code = tokenizer.text(key)?.or(tokenizer.text(older)?);
            Ok::<_, Error>(code.map(str::to_owned))
        };
        let source = language("src_lang", "source_lang")?;
        let target = language("tgt_lang", "target_lang")?;
        let legacy = tokenizer.flag("legacy_behaviour", false)? || parts.family == Family::Mbart25;
        let tasks = match parts.family {
            Family::T5 => TaskPrefixes::from_config(config)?,
            _ => TaskPrefixes::default(),
        };
        let start = config.number("decoder_start_token_id", u32::MAX)?;
        // Without a setting, the decoder of fairseq's families begins with the end token.
        let fairseq = matches!(parts.family, Family::M2m100 | Family::Nllb | Family::Mbart50);
        parts.start = start.or(parts.start).or(parts.end.filter(|_| fairseq));
        let positions = config.number("max_position_embeddings", u32::MAX)?.filter(|_| {
            // Relative positions have no limit, and the input of Whisper's encoder is not text.
            !matches!(parts.family, Family::T5 | Family::Whisper)
        });
        // RoBERTa's tables have two rows before the first position, and their size includes these rows.
        let model_type = config.text("model_type")?.unwrap_or_default();
        let before = if matches!(model_type, "roberta" | "xlm-roberta" | "camembert" | "mpnet") {
            2
        } else {
            0
        };
        let positions = positions.map(|rows| rows.saturating_sub(before) as usize);
        // An unknown limit is written as 1e30.
        let most = tokenizer.get("model_max_length").map(|value| {
            value.as_f64().ok_or_else(|| tokenizer.wrong("model_max_length", "a number", value))
        });
        let most =
            most.transpose()?.filter(|&most| (1.0..1e9).contains(&most)).map(|most| most as usize);
        let max_tokens = match (positions, most) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let parts = Arc::new(parts);
        Ok(Self {
            parts,
            prefix: None,
            tasks,
            source,
            target,
            legacy,
            max_tokens,
            source_tokens: [None; 2],
        })
    }

    /// The language of texts: the one of `direction`, or the one that the directory names. `None` if neither does. For the
    /// rules of sentences.
    #[must_use]
    pub fn source_language<'t>(&'t self, direction: &Direction<'t>) -> Option<&'t str> {
        // A wrong language is an error of `encode`.
        let of_task = || self.tasks.choose(direction).ok().flatten().map(|(_, language)| language);
        direction.source.or(self.source.as_deref()).or_else(of_task)
    }

    /// The language of translations: the one of `direction`, or the one that the directory names. `None` if neither does.
    #[must_use]
    pub fn target_language<'t>(&'t self, direction: &Direction<'t>) -> Option<&'t str> {
        direction.target.or(self.target.as_deref())
    }

    /// The same tokenizer for texts that are all read after `prefix`: the task of a T5 model, such as
    /// `translate English to German: `. A text that begins with it, or is blank, gets no second one.
    ///
    /// Without this call, or with `None`, the prefix is that of `task_specific_params` in `config.json`, if there is one
    /// translation from and to the languages of the call. An empty prefix turns that off.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use simdformer_tokenize::{Direction, Tokenizer};
    /// let tokenizer = Tokenizer::from_dir("t5-small")?;
    /// let direction = Direction { source: Some("en"), target: Some("de") };
    /// let ids = tokenizer.encode("Good morning.", &direction)?.ids;
    /// let tokenizer = tokenizer.with_prefix(Some("translate English to German: ".to_owned()));
    /// assert_eq!(tokenizer.encode("Good morning.", &Direction::default())?.ids, ids);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_prefix(self, prefix: Option<String>) -> Self {
        Self { prefix, ..self }
    }

    /// The same tokenizer, for which two codes that `same` accepts are one language: `eng` and `en`. It finds the task of a
    /// T5 model for the languages of a call. Without this call they need the codes of `task_specific_params`, as those of
    /// other models need theirs.
    #[must_use]
    pub fn with_same_language(self, same: fn(&str, &str) -> bool) -> Self {
        Self { tasks: self.tasks.with_same_language(same), ..self }
    }

    /// The prefix of a task of `task_specific_params` in `config.json`, by its name: `summarization`,
    /// `translation_en_to_de`.
    #[must_use]
    pub fn task_prefix(&self, task: &str) -> Option<&str> {
        self.tasks.prefix_of(task)
    }

    /// The family of the directory.
    #[must_use]
    pub fn family(&self) -> Family {
        self.parts.family
    }

    /// The languages to choose from, sorted by code; `None` for a model of one direction.
    #[must_use]
    pub fn languages(&self) -> Option<&[Language]> {
        (!self.parts.languages.is_empty()).then_some(&self.parts.languages)
    }

    /// The maximum number of tokens of a text, including special ones, if the directory defines it.
    #[must_use]
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// The same tokenizer for a model that reads `begin` before every text, and `end` after it. Directories of CTranslate2
    /// have this in `config.json`, which [`from_dir`](Self::from_dir) reads, or, before version 6 of the format, in the file
    /// of the weights (`source_begin` in the configuration of the model). Only a tokenizer of [`Family::OpenNmt`] changes; in
    /// others the family decides.
    #[must_use]
    pub fn with_source_tokens(self, begin: Option<u32>, end: Option<u32>) -> Self {
        match self.family() {
            Family::OpenNmt => Self { source_tokens: [begin, end], ..self },
            _ => self,
        }
    }

    /// The tokens before and after every text.
    fn source_tokens(&self) -> [Option<u32>; 2] {
        let [begin, end] = self.source_tokens;
        [begin.or(self.parts.begin), end.or(self.parts.end)]
    }

    /// The same tokenizer with another limit; `None` truncates nothing.
    #[must_use]
    pub fn with_max_tokens(self, max_tokens: Option<usize>) -> Self {
        Self { max_tokens, ..self }
    }

    /// The same tokenizer for texts that are lowercased first, character by character, as `do_lower_case` of
    /// sentence-transformers asks for. Special tokens in a text keep their spelling, and their meaning.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the added tokens of the file cannot be lowercased, or a translator with another prefix
    /// uses the tokenizer.
    pub fn with_lower_case(mut self) -> Result<Self, Error> {
        match Arc::get_mut(&mut self.parts) {
            Some(parts) => parts.engine.lower_case()?,
            None => {
                let (expected, found) =
                    ("a tokenizer of its own", "one that a translator with another prefix shares");
                return Err(Error::invalid_input("tokenizer", expected, found));
            }
        }
        Ok(self)
    }

    /// The text of `ids`. Special tokens and ids outside the vocabulary have no text; a model whose vocabulary is
    /// padded to a round number may produce the latter.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text = String::new();
        for &id in ids {
            text.extend(stream.push(id));
        }
        text.push_str(stream.finish());
        text
    }

    /// [`decode`](Self::decode), with the bytes of the text of each id, for an alignment.
    ///
    /// Starts and ends do not decrease. A span is without white space at its ends. Tokens that are bytes of one character
    /// share it; the span of a token without text is empty. If a `tokenizer.json` has a decoder that determines the text
    /// only after all tokens, all spans are empty; those of translation models have none.
    ///
    /// ```
    /// # use simdformer_tokenize::{Direction, Tokenizer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc");
    /// let tokenizer = Tokenizer::from_dir(directory)?;
    /// let ids = tokenizer.encode("attention is all", &Direction::default())?.ids;
    /// let (text, spans) = tokenizer.decode_with_spans(&ids);
    /// assert_eq!(text, "attention is all");
    /// let parts: Vec<&str> = spans.into_iter().map(|span| &text[span]).collect();
    /// assert_eq!(parts.concat(), "attentionisall");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn decode_with_spans(&self, ids: &[u32]) -> (String, Vec<Range<usize>>) {
        match &self.parts.engine {
            Engine::Moses(words) => {
                let (text, mut spans) = words.decode_with_spans(ids);
                in_order(&text, &mut spans);
                (text, spans)
            }
            _ => decode_with_spans(self.stream(), ids),
        }
    }

    /// The token `id` as the vocabulary of the target writes it, special tokens included: `▁the`, `</s>`. `▁`, `Ġ` and
    /// the like are spaces. `None` for an id outside the vocabulary.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.parts.engine.token(id)
    }

    /// Whether `id` is the token of the source for what its vocabulary does not have, `<unk>`.
    #[must_use]
    pub fn is_unknown(&self, id: u32) -> bool {
        self.parts.engine.unknown() == Some(id)
    }

    /// The words of the source vocabulary with the spelling closest to that of `word`, at most three, the closest first.
    /// Empty if the vocabulary has parts of words: then a word is unknown only for its characters.
    ///
    /// A word is close if at most a third of its letters and one more differ.
    #[must_use]
    pub fn nearest_words(&self, word: &str) -> Vec<String> {
        let known = self.parts.engine.words();
        let known = known.iter().map(String::as_str);
        nearest(word, known.filter(|known| known.contains(char::is_alphabetic)), 1)
    }

    /// A decoder for ids that arrive one at a time.
    #[must_use]
    pub fn stream(&self) -> DecodeStream<'_> {
        // transformers strips spaces for the first two only, Argos and OpenNMT for theirs.
        let trims = matches!(self.parts.family, Family::Marian | Family::M2m100 | Family::OpenNmt);
        DecodeStream::new(&self.parts.engine, trims)
    }
}
