//! The tokenizer of a directory: its family's files, special tokens and languages.

mod spans;
pub(crate) mod stream;

use crate::directory::family::Family;
use crate::directory::{Directory, tokenizer_folder};
use crate::encoded::Encoded;
use crate::encoded::longest_first;
use crate::error::Error;
use crate::languages::task_prefixes::TaskPrefixes;
use crate::languages::{self, Direction, Language};
use crate::nearest_words::nearest;
#[cfg(feature = "json")]
use crate::vocabulary::backend::Engine;
use crate::vocabulary::pieces::Reading;
use crate::vocabulary::{self, Parts};
use spans::{decode_with_spans, in_order};
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
        let directory = Directory::open(&tokenizer_folder(path.as_ref())?)?;
        let family = Family::of(&directory)?;
        let parts = match family {
            Family::Marian => vocabulary::marian(&directory)?,
            Family::M2m100 => vocabulary::m2m100(&directory)?,
            Family::Nllb | Family::Mbart25 | Family::Mbart50 | Family::XlmRoberta
                if directory.has("sentencepiece.bpe.model") =>
            {
                vocabulary::fairseq(&directory, family)?
            }
            Family::Camembert if directory.has("sentencepiece.bpe.model") => {
                vocabulary::camembert(&directory)?
            }
            Family::T5 if directory.has("spiece.model") => vocabulary::t5(&directory)?,
            Family::Pegasus if directory.has("spiece.model") => vocabulary::pegasus(&directory)?,
            _ => vocabulary::json(&directory, family)?,
        };
        Self::with_settings(parts, &directory)
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
            Family::T5 => TaskPrefixes::read(config)?,
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
        Ok(Self { parts, prefix: None, tasks, source, target, legacy, max_tokens })
    }

    /// The language of texts: the one of `direction`, or the one that the directory names. `None` if neither does. For the
    /// rules of sentences.
    #[must_use]
    pub fn source_language<'t>(&'t self, direction: &Direction<'t>) -> Option<&'t str> {
        // A wrong language is an error of `encode`.
        let of_task = || self.tasks.choose(direction).ok().flatten().map(|(_, language)| language);
        direction.source.or(self.source.as_deref()).or_else(of_task)
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
        self.tasks.of(task)
    }

    /// The prefix of a text.
    fn prefix(&self, text: &str, direction: &Direction<'_>) -> Result<&str, Error> {
        let prefix = match &self.prefix {
            Some(prefix) => prefix,
            None => self.tasks.choose(direction)?.map_or("", |(prefix, _)| prefix),
        };
        Ok(if text.starts_with(prefix) || text.trim().is_empty() { "" } else { prefix })
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

    /// Encodes `text` for the encoder, with the first tokens of the decoder.
    ///
    /// The text of a special token, such as `</s>`, `<pad>` or `>>fra<<`, is encoded as that token, as in
    /// transformers. A model of tasks reads [their prefix](Self::with_prefix) first.
    ///
    /// # Errors
    /// The model does not have the language (the error lists the most similar ones), requires a language, or has no
    /// languages. [`Error::InvalidInput`] if the file's normalizers produce more than 32 bytes for each byte of the text.
    pub fn encode(&self, text: &str, direction: &Direction<'_>) -> Result<Encoded, Error> {
        self.encode_into(text, direction, false, None)
    }

    /// [`encode`](Self::encode) for a text that people have written: what a token that controls the model is written with,
    /// such as `</s>`, `<pad>` or the language `fra_Latn`, is text in it, and a byte order mark at its begin is left out.
    /// Masks, sentinels and the added tokens of a directory keep their meaning, and so does `>>fra<<` at the begin of a
    /// text for OPUS-MT.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_text(&self, text: &str, direction: &Direction<'_>) -> Result<Encoded, Error> {
        self.encode_into(without_byte_order_mark(text), direction, true, None)
    }

    /// [`encode_text`](Self::encode_text), with the bytes of `text` of each id, as
    /// [`encode_with_spans`](Self::encode_with_spans) gives them.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_text_with_spans(
        &self,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<(Encoded, Vec<Range<usize>>), Error> {
        let mut spans = Vec::new();
        let own = without_byte_order_mark(text);
        let encoded = self.encode_into(own, direction, true, Some(&mut spans))?;
        in_order(own, &mut spans);
        let before = text.len() - own.len();
        for span in &mut spans {
            *span = span.start + before..span.end + before;
        }
        Ok((encoded, spans))
    }

    /// [`encode`](Self::encode), with the bytes of `text` of each id, for an alignment.
    ///
    /// Starts and ends do not decrease. A span is the characters that became the token, without white space at its ends;
    /// normalization may have replaced or dropped some of them. Tokens that are bytes of one character share it. The span
    /// of a special token around the text, and of one that is white space, is empty.
    ///
    /// ```
    /// # use simdformer_tokenize::{Direction, Tokenizer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc");
    /// let tokenizer = Tokenizer::from_dir(directory)?;
    /// let text = "attention is all";
    /// let (encoded, spans) = tokenizer.encode_with_spans(text, &Direction::default())?;
    /// assert_eq!(encoded.ids.len(), spans.len());
    /// let parts: Vec<&str> = spans.into_iter().map(|span| &text[span]).collect();
    /// assert_eq!(parts.concat(), "attentionisall");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_with_spans(
        &self,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<(Encoded, Vec<Range<usize>>), Error> {
        let mut spans = Vec::new();
        let encoded = self.encode_into(text, direction, false, Some(&mut spans))?;
        in_order(text, &mut spans);
        Ok((encoded, spans))
    }

    fn encode_into(
        &self,
        text: &str,
        direction: &Direction<'_>,
        plain: bool,
        mut spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<Encoded, Error> {
        let prefix = self.prefix(text, direction)?;
        if prefix.is_empty() {
            return self.encode_whole(text, direction, plain, spans);
        }
        // A text of control characters may have no tokens.
        let blank = !text.contains(char::is_alphanumeric)
            && self.encode_whole(text, direction, plain, None)?.blank;
        if blank {
            return self.encode_whole(text, direction, plain, spans);
        }
        let whole = format!("{prefix}{text}");
        let encoded = self.encode_whole(&whole, direction, plain, spans.as_deref_mut())?;
        // The tokens of the prefix stand for nothing in the text.
        for span in spans.into_iter().flatten() {
            *span = span.start.saturating_sub(prefix.len())..span.end.saturating_sub(prefix.len());
        }
        Ok(encoded)
    }

    /// Encodes a text that has its prefix.
    fn encode_whole(
        &self,
        text: &str,
        direction: &Direction<'_>,
        plain: bool,
        mut spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<Encoded, Error> {
        let prompt = self.prompt(direction)?;
        let mut content = Vec::new();
        #[cfg(feature = "json")]
        if let Engine::Json(json) = &self.parts.engine
            && json.has_template(self.parts.family)
        {
            return json.encode_whole(text, plain, self.max_tokens, prompt.decoder, spans);
        }
        let reading = Reading { target: false, plain };
        self.parts.engine.encode(text, reading, &mut content, spans.as_deref_mut())?;
        let blank = content.is_empty();
        let around = prompt.before.iter().chain(&prompt.after).count();
        let tokens = content.len() + around;
        let truncated = self.max_tokens.is_some_and(|most| tokens > most);
        if let Some(most) = self.max_tokens {
            content.truncate(most.saturating_sub(around));
        }
        if let Some(spans) = spans {
            spans.truncate(content.len());
            spans.splice(0..0, prompt.before.iter().map(|_| 0..0));
            spans.extend(prompt.after.iter().map(|_| 0..0));
        }
        let ids = [prompt.before, content, prompt.after].concat();
        let (prefix, forced_bos) = prompt.decoder;
        let types = vec![0; ids.len()];
        Ok(Encoded { ids, types, prefix, forced_bos, truncated, tokens, blank })
    }

    /// Encodes two texts for a cross-encoder: `[CLS] first [SEP] second [SEP]`, with types, or `<s> first </s></s>
    /// second </s>`. If both are too long together, the longer one is truncated.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokenizer = simdformer_tokenize::Tokenizer::from_dir("ms-marco-MiniLM-L6-v2")?;
    /// let pair = tokenizer.encode_pair("how many people live in Berlin?", "3.5 million people")?;
    /// assert_eq!(pair.ids.len(), pair.types.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the family encodes single texts only, or a text cannot be
    /// segmented.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoded, Error> {
        let family = self.parts.family;
        if !matches!(
            family,
            Family::WordPiece | Family::ByteLevel | Family::XlmRoberta | Family::Camembert
        ) {
            let expected = "a tokenizer of pairs (BERT, DistilBERT, MPNet, RoBERTa, XLM-R)";
            return Err(Error::invalid_input("", expected, format_args!("{family:?}")));
        }
        let prefix: Vec<u32> = self.parts.start.into_iter().collect();
        #[cfg(feature = "json")]
        if let Engine::Json(json) = &self.parts.engine {
            return json.encode_pair([first, second], self.max_tokens, prefix);
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        self.parts.engine.encode(first, Reading::default(), &mut a, None)?;
        self.parts.engine.encode(second, Reading::default(), &mut b, None)?;
        let begin: Vec<u32> = self.parts.begin.into_iter().collect();
        let end: Vec<u32> = self.parts.end.into_iter().collect();
        let (blank, around) = (a.is_empty() && b.is_empty(), begin.len() + 3 * end.len());
        let tokens = a.len() + b.len() + around;
        if let Some(most) = self.max_tokens {
            let (first, second) = longest_first(a.len(), b.len(), most.saturating_sub(around));
            a.truncate(first);
            b.truncate(second);
        }
        let ids = [&begin[..], &a, &end, &end, &b, &end].concat();
        let (types, truncated) = (vec![0; ids.len()], ids.len() < tokens);
        Ok(Encoded { ids, types, prefix, forced_bos: None, truncated, tokens, blank })
    }

    /// The ids of a target, without special tokens around it: to score it, or to begin a translation with it. The text of a
    /// special token is encoded as that token.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the text cannot be segmented.
    pub fn encode_target(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        let reading = Reading { target: true, plain: false };
        self.parts.engine.encode(text, reading, &mut ids, None)?;
        Ok(ids)
    }

    /// [`encode_target`](Self::encode_target) for a text that people have written, as in
    /// [`encode_text`](Self::encode_text).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the text cannot be segmented.
    pub fn encode_target_text(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        let reading = Reading { target: true, plain: true };
        self.parts.engine.encode(without_byte_order_mark(text), reading, &mut ids, None)?;
        Ok(ids)
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
        decode_with_spans(self.stream(), ids)
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
        // transformers strips spaces for these families only.
        let trims = matches!(self.parts.family, Family::Marian | Family::M2m100);
        DecodeStream::new(&self.parts.engine, trims)
    }

    /// The tokens around a text and at the start of the decoder.
    fn prompt(&self, direction: &Direction<'_>) -> Result<Prompt, Error> {
        let language = |code: Option<&str>, default: &Option<String>, operand| match code {
            Some(code) => languages::find(code, &self.parts.languages).map(|l| Some(l.id())),
            None => match default {
                Some(code) => languages::find(code, &self.parts.languages).map(|l| Some(l.id())),
                None => {
                    let languages = &self.parts.languages;
                    let some = languages.iter().take(4).map(|l| l.code().to_owned());
                    let expected = format!("one of the model's {} languages", languages.len());
                    Err(Error::language_needed(operand, expected, some.collect()))
                }
            },
        };
        let chosen = |code: Option<&str>| match code {
            Some(code) => languages::find(code, &self.parts.languages).map(|l| Some(l.id())),
            None => Ok(None),
        };
        let start: Vec<u32> = self.parts.start.into_iter().collect();
        let list = |ids: [Option<u32>; 2]| ids.into_iter().flatten().collect::<Vec<u32>>();
        Ok(match self.parts.family {
            Family::M2m100 | Family::Nllb | Family::Mbart50 | Family::Mbart25 => {
                let source = language(direction.source, &self.source, "source language")?;
                let target = language(direction.target, &self.target, "target language")?;
                let (before, after) = if self.legacy {
                    (Vec::new(), list([self.parts.end, source]))
                } else {
                    (list([source, None]), list([self.parts.end, None]))
                };
                let decoder = match self.parts.family {
                    Family::Mbart25 => (list([target, None]), None),
                    _ => (start, target),
                };
                Prompt { before, after, decoder }
            }
            Family::Whisper => {
                let source = chosen(direction.source)?;
                let [transcribe, translate, silent] = self.parts.tasks;
                let task = match direction.target {
                    Some(target) if direction.source != Some(target) => translate,
                    _ => transcribe,
                };
                let spoken = source.into_iter().chain(task.filter(|_| source.is_some()));
                let prefix = start.into_iter().chain(spoken).chain(silent).collect();
                Prompt { before: Vec::new(), after: Vec::new(), decoder: (prefix, None) }
            }
            _ => {
                // `prefix` has checked the languages of tasks. With a prefix of the caller they are those of its words.
                let of_tasks = self.parts.family == Family::T5
                    && (self.prefix.is_some() || self.tasks.translate());
                let one_direction = self.parts.languages.is_empty() && !of_tasks;
                if let Some(code) = direction.source
                    && (one_direction || self.source.is_some())
                {
                    same(code, self.source.as_deref())?;
                }
                let target = match direction.target {
                    Some(code) if one_direction => {
                        same(code, self.target.as_deref())?;
                        None
                    }
                    _ if of_tasks => None,
                    target => chosen(target)?,
                };
                let before = list([self.parts.begin, target]);
                Prompt { before, after: list([self.parts.end, None]), decoder: (start, None) }
            }
        })
    }
}

/// A text without the byte order mark at its begin, which is no part of it.
fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Checks a language of a model of one direction: it must be one that its directory names.
fn same(code: &str, known: Option<&str>) -> Result<(), Error> {
    match known {
        Some(known) if known == code => Ok(()),
        Some(known) => Err(Error::no_language(code, vec![known.to_owned()])),
        None => Err(Error::no_languages(code)),
    }
}

/// The tokens around a text.
struct Prompt {
    before: Vec<u32>,
    after: Vec<u32>,
    /// The decoder's prefix, and the forced token after it.
    decoder: (Vec<u32>, Option<u32>),
}
