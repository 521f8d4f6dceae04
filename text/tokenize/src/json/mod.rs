//! Families that use a `tokenizer.json`, or older files that are converted to one.
//!
//! The crate `tokenizers` reads and runs them. Its input is checked first: settings for padding, truncation or random
//! sampling are removed, and files that would make it panic or use too much memory are rejected.

mod checks;
mod older_files;
mod regex_limits;
mod stages;

use crate::directory::family::Family;
use crate::directory::{Directory, short, token};
use crate::encoded::Encoded;
use crate::encoded::longest_first;
use crate::error::Error;
use crate::incremental_decoder::{Rule, State};
use crate::languages::Language;
use crate::limits;
use crate::special_tokens::{Special, Specials};
use older_files::{byte_level, word_piece};
use serde_json::Value;
use stages::{Decoders, LimitedNormalizer, Normalizers, no_tokenizer, not_segmented};
use std::ops::Range;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::tokenizer::{Model, OffsetType};
use tokenizers::{
    AddedToken, Encoding, PostProcessor, PreTokenizer, TokenizerBuilder, TokenizerImpl,
    TruncationDirection,
};

const FILE: &str = "tokenizer.json";

type Tokenizer =
    TokenizerImpl<ModelWrapper, Normalizers, PreTokenizerWrapper, PostProcessorWrapper, Decoders>;

/// The tokenizer of a `tokenizer.json`.
#[derive(Debug)]
pub(crate) struct Json {
    tokenizer: Tokenizer,
    rule: Rule,
    family: Family,
    /// The tokens that control the model.
    controls: Specials,
    unknown: Option<u32>,
}

/// The settings that name tokens which control a model, and their texts in directories without them.
const CONTROLS: [(&str, &str); 6] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("pad_token", "<pad>"),
    ("unk_token", "<unk>"),
    ("cls_token", "[CLS]"),
    ("sep_token", "[SEP]"),
];

impl Json {
    pub(crate) fn from_directory(directory: &Directory, family: Family) -> Result<Self, Error> {
        let (name, value) = if directory.has(FILE) {
            (FILE, directory.json(FILE, limits::TOKENIZER)?)
        } else {
            match family {
                Family::WordPiece if directory.has("vocab.txt") => {
                    ("vocab.txt", word_piece(directory)?)
                }
                Family::ByteLevel if directory.has("vocab.json") && directory.has("merges.txt") => {
                    ("merges.txt", byte_level(directory)?)
                }
                Family::WordPiece => return Err(directory.missing(&[FILE, "vocab.txt"])),
                Family::ByteLevel => {
                    return Err(directory.missing(&[FILE, "vocab.json and merges.txt"]));
                }
                Family::T5 | Family::Pegasus => {
                    return Err(directory.missing(&["spiece.model", FILE]));
                }
                Family::Whisper => return Err(directory.missing(&[FILE])),
                _ => return Err(directory.missing(&["sentencepiece.bpe.model", FILE])),
            }
        };
        let wrong = |error: Error| error.inside(directory.path(name).display());
        // Unigram models have its id, all others its text.
        let unknown = |key: &str| value.pointer(&format!("/model/{key}"));
        let id = unknown("unk_id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        let token = unknown("unk_token").and_then(Value::as_str).map(str::to_owned);
        let (tokenizer, rule) = build(value).map_err(wrong)?;
        let unknown = id.or_else(|| tokenizer.token_to_id(&token?));
        let controls = Specials::new(Vec::new());
        let mut json = Self { tokenizer, rule, family, controls, unknown };
        json.controls = json.find_controls(directory)?;
        Ok(json)
    }

    /// The tokens that control the model: those that `tokenizer_config.json` names, and the languages; all special ones of
    /// Whisper.
    fn find_controls(&self, directory: &Directory) -> Result<Specials, Error> {
        let mut tokens: Vec<Special> = Vec::new();
        for (key, default) in CONTROLS {
            let text = directory.tokenizer.token(key, default)?;
            if let Some(id) = self.id(&text) {
                tokens.push(Special { text, id, left: false, control: true });
            }
        }
        let languages: Vec<u32> = self.languages(self.family).iter().map(Language::id).collect();
        for (&id, token) in self.tokenizer.get_added_vocabulary().get_added_tokens_decoder() {
            let whisper = self.family == Family::Whisper && token.special;
            if whisper || (self.family != Family::T5 && languages.contains(&id)) {
                let text = token.content.clone();
                tokens.push(Special { text, id, left: false, control: true });
            }
        }
        Ok(Specials::new(tokens))
    }

    /// Whether the file's template adds the special tokens; in other families the direction selects them.
    pub(crate) fn has_template(&self, family: Family) -> bool {
        matches!(
            family,
            Family::WordPiece
                | Family::ByteLevel
                | Family::Whisper
                | Family::XlmRoberta
                | Family::Camembert
        )
    }

    /// Lowercases texts before the normalizers of the file.
    pub(crate) fn lower_case(&mut self) -> Result<(), Error> {
        let normalizers = self.tokenizer.get_normalizer().cloned().unwrap_or_default();
        // This also normalizes the added tokens of the file again.
        let done = self.tokenizer.with_normalizer(Some(normalizers.with_lower_case()));
        done.map(|_| ()).map_err(not_segmented)
    }

    /// Encodes a text with the special tokens of the file, and appends the bytes of each token to `spans`: none of a special
    /// token that the file adds.
    pub(crate) fn encode_whole(
        &self,
        text: &str,
        plain: bool,
        most: Option<usize>,
        (prefix, forced_bos): (Vec<u32>, Option<u32>),
        spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<Encoded, Error> {
        let mut encoding = self.segment_as(text, plain, spans.is_some()).map_err(not_segmented)?;
        let added = self.tokenizer.get_post_processor().map_or(0, |p| p.added_tokens(false));
        let blank = encoding.is_empty();
        let tokens = encoding.len() + added;
        let truncated = most.is_some_and(|most| tokens > most);
        if let Some(most) = most.filter(|_| truncated) {
            encoding.truncate(most.saturating_sub(added), 0, TruncationDirection::Right);
        }
        // The processor of RoBERTa trims the offsets each time it runs.
        let mut offsets = encoding.get_offsets().to_vec().into_iter();
        let encoding = self.tokenizer.post_process(encoding, None, true).map_err(not_segmented)?;
        if let Some(spans) = spans {
            // A special token that the file adds has no place in the text.
            let added = encoding.get_special_tokens_mask().iter().map(|&added| added == 1);
            let mut place = |added| if added { None } else { offsets.next() };
            spans.extend(added.map(|added| place(added).map_or(0..0, |(start, end)| start..end)));
        }
        let ids = encoding.get_ids().to_vec();
        let types = self.types(&encoding);
        Ok(Encoded { ids, types, prefix, forced_bos, truncated, tokens, blank })
    }

    /// Encodes two texts with the special tokens of the file around and between them.
    pub(crate) fn encode_pair(
        &self,
        texts: [&str; 2],
        most: Option<usize>,
        prefix: Vec<u32>,
    ) -> Result<Encoded, Error> {
        let [first, second] = texts.map(|text| self.segment(text, false));
        let (mut first, mut second) =
            (first.map_err(not_segmented)?, second.map_err(not_segmented)?);
        let added = self.tokenizer.get_post_processor().map_or(0, |p| p.added_tokens(true));
        let blank = first.is_empty() && second.is_empty();
        let tokens = first.len() + second.len() + added;
        let truncated = most.is_some_and(|most| tokens > most);
        if let Some(most) = most.filter(|_| truncated) {
            let most = most.saturating_sub(added);
            let (a, b) = longest_first(first.len(), second.len(), most);
            first.truncate(a, 0, TruncationDirection::Right);
            second.truncate(b, 0, TruncationDirection::Right);
        }
        // Some processors do not change the types.
        second.set_type_ids(vec![1; second.len()]);
        let encoding =
            self.tokenizer.post_process(first, Some(second), true).map_err(not_segmented)?;
        let ids = encoding.get_ids().to_vec();
        let types = self.types(&encoding);
        Ok(Encoded { ids, types, prefix, forced_bos: None, truncated, tokens, blank })
    }

    /// Only BERT's tokenizers return types, whatever the file of another family defines.
    fn types(&self, encoding: &Encoding) -> Vec<u32> {
        match self.family {
            Family::WordPiece => encoding.get_type_ids().to_vec(),
            _ => vec![0; encoding.len()],
        }
    }

    /// Appends the ids of a text, without special tokens around it, and the bytes of each to `spans`.
    pub(crate) fn encode(
        &self,
        text: &str,
        plain: bool,
        ids: &mut Vec<u32>,
        spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<(), Error> {
        let encoding = self.segment_as(text, plain, spans.is_some());
        let encoding = encoding.map_err(not_segmented)?;
        ids.extend_from_slice(encoding.get_ids());
        if let Some(spans) = spans {
            spans.extend(encoding.get_offsets().iter().map(|&(start, end)| start..end));
        }
        Ok(())
    }

    /// The tokens of a text. If `plain` is set, the text of a token that controls the model is text: it is cut inside of
    /// such tokens, because the vocabulary of a model may have them as pieces, too.
    fn segment_as(&self, text: &str, plain: bool, offsets: bool) -> tokenizers::Result<Encoding> {
        let cuts = if plain { self.controls.cuts(text) } else { Vec::new() };
        if cuts.is_empty() {
            return self.segment(text, offsets);
        }
        let (mut ids, mut types, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        let (mut words, mut places, mut mask) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for end in cuts.into_iter().chain([text.len()]) {
            let part = self.segment(text.get(start..end).unwrap_or_default(), offsets)?;
            ids.extend_from_slice(part.get_ids());
            types.extend_from_slice(part.get_type_ids());
            tokens.extend_from_slice(part.get_tokens());
            words.extend_from_slice(part.get_word_ids());
            places.extend(part.get_offsets().iter().map(|(from, to)| (from + start, to + start)));
            mask.extend_from_slice(part.get_special_tokens_mask());
            start = end;
        }
        let attention = vec![1; ids.len()];
        let (more, ranges) = (Vec::new(), Default::default());
        Ok(Encoding::new(ids, types, tokens, words, places, mask, attention, more, ranges))
    }

    /// The tokens of a text, by the steps of the crate's `encode_fast`, which drops the errors of normalizers.
    fn segment(&self, text: &str, offsets: bool) -> tokenizers::Result<Encoding> {
        let limited = self.tokenizer.get_normalizer().map(LimitedNormalizer::new);
        let added = self.tokenizer.get_added_vocabulary();
        let mut parts = added.extract_and_normalize(limited.as_ref(), text);
        limited.map_or(Ok(()), LimitedNormalizer::done)?;
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut parts)?;
        }
        self.tokenizer.get_model().tokenize_in_pretokenized(&mut parts, None)?;
        let offsets = if offsets { OffsetType::Byte } else { OffsetType::None };
        let encoding = parts.into_encoding(None, 0, offsets)?;
        self.tokenizer.post_process(encoding, None, false)
    }

    /// Appends the text of one more id.
    pub(crate) fn decode(&self, id: u32, state: &mut State, text: &mut String) {
        if self.rule == Rule::Whole {
            state.ids.push(id);
            return;
        }
        let Some(token) = self.tokenizer.id_to_token(id) else { return };
        let special = self.tokenizer.get_added_vocabulary().is_special_token(&token);
        let time = self.family == Family::Whisper && is_time(&token);
        if time {
            // A character does not continue after a time token.
            state.emit_bytes(true, text);
        } else if !special {
            state.token(&self.rule, &token, text);
        }
    }

    /// Appends the text that was held back.
    pub(crate) fn finish(&self, state: &mut State, text: &mut String) {
        if self.rule == Rule::Whole {
            // `Decoders` accepts only decoders without an error. A text that is missing would be taken for an empty one.
            let decoded = self.tokenizer.decode(&state.ids, true);
            text.push_str(decoded.as_deref().unwrap_or("\u{fffd}"));
        } else {
            state.emit_bytes(true, text);
        }
    }

    pub(crate) fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// The id for what the vocabulary does not have.
    pub(crate) fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// The vocabulary, if it is one of whole words.
    pub(crate) fn words(&self) -> Vec<String> {
        match self.tokenizer.get_model() {
            ModelWrapper::WordLevel(model) => model.get_vocab().into_keys().collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// The languages among the tokens.
    pub(crate) fn languages(&self, family: Family) -> Vec<Language> {
        let code = |text: &str| -> Option<String> {
            let inside = match family {
                Family::Nllb | Family::Mbart25 | Family::Mbart50 => {
                    let (language, script) = text.split_once('_')?;
                    let letters = |s: &str| s.bytes().all(|b| b.is_ascii_alphabetic());
                    let sizes = matches!((language.len(), script.len()), (2, 2) | (3, 4));
                    return (sizes && letters(language) && letters(script))
                        .then(|| text.to_owned());
                }
                Family::T5 => text.strip_prefix("<2")?.strip_suffix('>')?,
                Family::Whisper => text.strip_prefix("<|")?.strip_suffix("|>")?,
                _ => return None,
            };
            let letters = inside.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
            let fits = inside.len() > 1 && (family == Family::T5 || inside.len() < 4);
            (letters && fits).then(|| inside.to_owned())
        };
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let added = added.iter().map(|(&id, token)| (token.content.clone(), id));
        let all: Vec<(String, u32)> = match family {
            Family::T5 => self.tokenizer.get_vocab(true).into_iter().collect(),
            _ => added.collect(),
        };
        all.iter().filter_map(|(text, id)| Some(Language::new(&code(text)?, *id))).collect()
    }
}

/// Builds the tokenizer of a file from its parts, and the rule for decoding its tokens. Truncation and padding are
/// not read: this crate reports long texts to the caller, and never pads.
fn build(mut value: Value) -> Result<(Tokenizer, Rule), Error> {
    if !value.is_object() {
        return Err(Error::corrupt("", "a JSON object", short(&value)));
    }
    let rules = checks::check(&value)?;
    if let Some(found) = value.get("version").filter(|&version| version != "1.0") {
        return Err(Error::corrupt("", "a tokenizer of version \"1.0\"", found));
    }
    let added = added_tokens(value["added_tokens"].take())?;
    // The readers of the parts borrow from text, so each part is serialized again. `take` frees its tree.
    let [model, normalizer, pre_tokenizer, post_processor, decoder] =
        ["model", "normalizer", "pre_tokenizer", "post_processor", "decoder"]
            .map(|part| value[part].take().to_string());
    drop(value);
    let model: Option<ModelWrapper> = serde_json::from_str(&model).map_err(|e| no_tokenizer(&e))?;
    let Some(model) = model else { return Err(no_tokenizer(&"its model is missing")) };
    let normalizer: Option<NormalizerWrapper> =
        serde_json::from_str(&normalizer).map_err(|e| no_tokenizer(&e))?;
    let normalizer = normalizer.map(|whole| Normalizers::new(whole, rules)).transpose()?;
    let pre_tokenizer: Option<PreTokenizerWrapper> =
        serde_json::from_str(&pre_tokenizer).map_err(|e| no_tokenizer(&e))?;
    pre_tokenizer.as_ref().map_or(Ok(()), stages::check_pre_tokenizer)?;
    let post_processor: Option<PostProcessorWrapper> =
        serde_json::from_str(&post_processor).map_err(|e| no_tokenizer(&e))?;
    let decoder: Option<DecoderWrapper> =
        serde_json::from_str(&decoder).map_err(|e| no_tokenizer(&e))?;
    let rule = match &decoder {
        Some(DecoderWrapper::ByteLevel(_)) => Rule::ByteLevel,
        Some(DecoderWrapper::Metaspace(spaces)) => Rule::Spaces {
            space: spaces.get_replacement(),
            drops: spaces.get_prepend_scheme()
                != tokenizers::pre_tokenizers::metaspace::PrependScheme::Never,
        },
        Some(DecoderWrapper::WordPiece(words)) => {
            Rule::Words { prefix: words.prefix.clone(), tidy: words.cleanup }
        }
        _ => Rule::Whole,
    };
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(model)
        .with_normalizer(normalizer)
        .with_pre_tokenizer(pre_tokenizer)
        .with_post_processor(post_processor)
        .with_decoder(decoder.map(Decoders::new).transpose()?)
        .build()
        .map_err(|e| no_tokenizer(&e))?;
    stages::check_added(&added, tokenizer.get_normalizer())?;
    tokenizer.add_tokens(added).map_err(|e| no_tokenizer(&e))?;
    Ok((tokenizer, rule))
}

/// `added_tokens`. Their ids follow from the vocabulary; the reader warns of other ids and uses its own.
fn added_tokens(value: Value) -> Result<Vec<AddedToken>, Error> {
    let tokens = match value {
        Value::Null => Vec::new(),
        Value::Array(tokens) => tokens,
        found => return Err(Error::corrupt("", "a list of added_tokens", short(&found))),
    };
    let (most, found) = (limits::ADDED_TOKENS, tokens.len());
    if found > most {
        return Err(Error::corrupt("", format!("at most {most} added_tokens"), found));
    }
    let read = |entry: Value| {
        if let Some(text) = entry["content"].as_str() {
            token(text)?;
        }
        if entry["id"].as_u64().is_none_or(|id| id > u64::from(u32::MAX)) {
            return Err(Error::corrupt("", "an added token with an id", short(&entry)));
        }
        serde_json::from_value(entry)
            .map_err(|error| no_tokenizer(&format_args!("added_tokens: {error}")))
    };
    tokens.into_iter().map(read).collect()
}

/// Whether the token is a time of Whisper, `<|12.34|>`.
fn is_time(token: &str) -> bool {
    let inside = token.strip_prefix("<|").and_then(|token| token.strip_suffix("|>"));
    inside.and_then(|time| time.split_once('.')).is_some_and(|(seconds, rest)| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits(seconds) && digits(rest)
    })
}
