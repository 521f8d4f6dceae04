//! Families whose truth is a `tokenizer.json`, or the older files that one can be made of.
//!
//! The crate `tokenizers` reads and runs them. What it is given is looked at first: settings that would make
//! it pad, cut or draw lots are left out, and what would make it panic is refused.

use crate::decoding::{Rule, State};
use crate::directory::Directory;
use crate::encoded::Encoded;
use crate::error::TextError;
use crate::family::Family;
use crate::languages::Language;
use crate::pairs::longest_first;
use crate::patterns;
use crate::spm;
use serde_json::{Value, json};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationDirection};

const FILE: &str = "tokenizer.json";

/// The tokenizer of a `tokenizer.json`.
#[derive(Debug)]
pub(crate) struct Json {
    tokenizer: Tokenizer,
    rule: Rule,
    family: Family,
}

impl Json {
    pub(crate) fn read(directory: &Directory, family: Family) -> Result<Self, TextError> {
        let (name, mut value) = if directory.has(FILE) {
            (FILE, directory.json(FILE)?)
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
        let wrong = |reason: &str| directory.wrong(name, reason);
        let Some(keys) = value.as_object_mut() else {
            return Err(wrong("expected a JSON object"));
        };
        // A caller of this crate is told of long texts, and nothing is ever padded.
        keys.insert("truncation".to_owned(), Value::Null);
        keys.insert("padding".to_owned(), Value::Null);
        check(&value).map_err(|reason| wrong(&reason))?;
        // Its reader borrows from text: a value will not do.
        let tokenizer = Tokenizer::from_bytes(value.to_string())
            .map_err(|error| wrong(&format!("expected a tokenizer: {error}")))?;
        let rule = match tokenizer.get_decoder() {
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
        Ok(Self { tokenizer, rule, family })
    }

    /// The file says itself what stands about a text; elsewhere the direction does.
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

    /// A text with what the file puts about it.
    pub(crate) fn encode_whole(
        &self,
        text: &str,
        most: Option<usize>,
        (prefix, forced_bos): (Vec<u32>, Option<u32>),
    ) -> Result<Encoded, TextError> {
        let wrong = |error: tokenizers::Error| TextError::Text { reason: error.to_string() };
        let mut encoding = self.tokenizer.encode_fast(text, false).map_err(wrong)?;
        let added = self.tokenizer.get_post_processor().map_or(0, |p| p.added_tokens(false));
        let blank = encoding.is_empty();
        let tokens = encoding.len() + added;
        let truncated = most.is_some_and(|most| tokens > most);
        if let Some(most) = most.filter(|_| truncated) {
            encoding.truncate(most.saturating_sub(added), 0, TruncationDirection::Right);
        }
        let encoding = self.tokenizer.post_process(encoding, None, true).map_err(wrong)?;
        let ids = encoding.get_ids().to_vec();
        let types = self.types(&encoding);
        Ok(Encoded { ids, types, prefix, forced_bos, truncated, tokens, blank })
    }

    /// Two texts with what the file puts about them and between.
    pub(crate) fn encode_pair(
        &self,
        texts: [&str; 2],
        most: Option<usize>,
        prefix: Vec<u32>,
    ) -> Result<Encoded, TextError> {
        let wrong = |error: tokenizers::Error| TextError::Text { reason: error.to_string() };
        let [first, second] = texts.map(|text| self.tokenizer.encode_fast(text, false));
        let (mut first, mut second) = (first.map_err(wrong)?, second.map_err(wrong)?);
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
        // Some processors take the types as they find them.
        second.set_type_ids(vec![1; second.len()]);
        let encoding = self.tokenizer.post_process(first, Some(second), true).map_err(wrong)?;
        let ids = encoding.get_ids().to_vec();
        let types = self.types(&encoding);
        Ok(Encoded { ids, types, prefix, forced_bos: None, truncated, tokens, blank })
    }

    /// Only BERT's tokenizers give types to a model, whatever the file of another says.
    fn types(&self, encoding: &Encoding) -> Vec<u32> {
        match self.family {
            Family::WordPiece => encoding.get_type_ids().to_vec(),
            _ => vec![0; encoding.len()],
        }
    }

    /// Appends the ids of a text, without what stands about it.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        let encoding = self.tokenizer.encode_fast(text, false);
        let encoding = encoding.map_err(|error| TextError::Text { reason: error.to_string() })?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// The text of one more id.
    pub(crate) fn decode(&self, id: u32, state: &mut State, text: &mut String) {
        if self.rule == Rule::Whole {
            state.ids.push(id);
            return;
        }
        let Some(token) = self.tokenizer.id_to_token(id) else { return };
        let special = self.tokenizer.get_added_vocabulary().is_special_token(&token);
        let time = self.family == Family::Whisper && is_time(&token);
        if time {
            // A character does not go on after a time.
            state.say_bytes(true, text);
        } else if !special {
            state.token(&self.rule, &token, text);
        }
    }

    /// What was held back.
    pub(crate) fn finish(&self, state: &mut State, text: &mut String) {
        if self.rule == Rule::Whole {
            // An error is of a decoder that cannot take these tokens: there is no text.
            text.push_str(&self.tokenizer.decode(&state.ids, true).unwrap_or_default());
        } else {
            state.say_bytes(true, text);
        }
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// The languages among its tokens.
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

/// Whisper's `<|12.34|>`.
fn is_time(token: &str) -> bool {
    let inside = token.strip_prefix("<|").and_then(|token| token.strip_suffix("|>"));
    inside.and_then(|time| time.split_once('.')).is_some_and(|(seconds, rest)| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits(seconds) && digits(rest)
    })
}

/// Refuses what is not certain to give the same ids every time, or any.
fn check(value: &Value) -> Result<(), String> {
    let model = &value["model"];
    if model["dropout"].as_f64().is_some_and(|dropout| dropout != 0.0) {
        return Err(format!("expected no dropout, which draws lots, found {}", model["dropout"]));
    }
    // A merge drops this prefix from its second part without looking.
    if let Some(prefix) = model["continuing_subword_prefix"].as_str().filter(|p| !p.is_empty())
        && let Some(merges) = model["merges"].as_array()
    {
        let second = |merge: &Value| match merge {
            Value::String(pair) => pair.split_once(' ').map(|(_, second)| second.to_owned()),
            pair => pair[1].as_str().map(str::to_owned),
        };
        if let Some(merge) =
            merges.iter().find(|m| !second(m).is_some_and(|s| s.starts_with(prefix)))
        {
            return Err(format!(
                "expected merges of parts that begin with {prefix:?}, found {merge}"
            ));
        }
    }
    templates(&value["post_processor"])?;
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        patterns::check(&value[part])?;
    }
    rules(&value["normalizer"])
}

/// How many templates there are, if there is at most one. Refuses one that names a token it does not have, or the second
/// text of one: its reader looks up neither. Nor does it know what to do with what another one has made.
fn templates(processor: &Value) -> Result<usize, String> {
    if processor.is_array() {
        return Err("expected a post_processor that is an object, found a list".to_owned());
    }
    let mut count = usize::from(["single", "pair"].iter().any(|key| !processor[key].is_null()));
    for inside in processor["processors"].as_array().into_iter().flatten() {
        count += templates(inside)?;
    }
    if count > 1 {
        return Err(format!("expected at most one template in the post_processor, found {count}"));
    }
    for (key, texts) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        for piece in processor[key].as_array().into_iter().flatten() {
            let id = |kind: &str| piece[kind]["id"].as_str();
            let known = match (id("SpecialToken"), id("Sequence")) {
                (Some(token), None) => processor["special_tokens"].get(token).is_some(),
                (None, Some(text)) => texts.contains(&text),
                _ => false,
            };
            if !known {
                return Err(format!(
                    "expected a template of its own tokens and of the texts that there are, found {piece}"
                ));
            }
        }
    }
    Ok(count)
}

/// Refuses precompiled rules that are missing or point outside of themselves, wherever they are.
fn rules(normalizer: &Value) -> Result<(), String> {
    const KEY: &str = "precompiled_charsmap";
    match normalizer {
        Value::Array(several) => several.iter().try_for_each(rules),
        Value::Object(keys) => {
            let precompiled = normalizer["type"] == "Precompiled" || keys.contains_key(KEY);
            let sound = |text: &str| base64(text).is_some_and(|bytes| spm::sound(&bytes));
            if precompiled && !normalizer[KEY].as_str().is_some_and(sound) {
                return Err(format!("the {KEY} is not base64 of units and replacements"));
            }
            keys.values().try_for_each(rules)
        }
        _ => Ok(()),
    }
}

/// The bytes of base64 with its padding, no more of it and no less, and no bits that are left over: the reader that gets it
/// next panics at others.
fn base64(text: &str) -> Option<Vec<u8>> {
    let padding = text.len() - text.trim_end_matches('=').len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text.trim_end_matches('=').bytes().map(digit).collect::<Option<Vec<u8>>>()?;
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let bits =
            four.iter().fold(0u32, |bits, &d| bits << 6 | u32::from(d)) << (6 * (4 - four.len()));
        let [_, bytes_of @ ..] = bits.to_be_bytes();
        let (whole, rest) = bytes_of.split_at(four.len() - 1);
        if rest.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

/// A `vocab.txt` of BERT, or of MPNet, as a `tokenizer.json`.
fn word_piece(directory: &Directory) -> Result<Value, TextError> {
    const NAME: &str = "vocab.txt";
    let bytes = directory.read(NAME)?;
    let text = str::from_utf8(&bytes)
        .map_err(|error| directory.wrong(NAME, &format!("expected UTF-8: {error}")))?;
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let lines: Vec<&str> = lines.map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let vocabulary: serde_json::Map<String, Value> =
        lines.iter().enumerate().map(|(id, &line)| (line.to_owned(), id.into())).collect();
    let settings = &directory.tokenizer;
    let mpnet = directory.config.text("model_type")? == Some("mpnet");
    let names = if mpnet {
        ["[UNK]", "</s>", "<pad>", "<s>", "<mask>"]
    } else {
        ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]
    };
    let keys = ["unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
    let names: Vec<String> = keys
        .iter()
        .zip(names)
        .map(|(key, default)| settings.token(key, default))
        .collect::<Result<_, _>>()?;
    for name in &names[..4] {
        if !vocabulary.contains_key(name) {
            return Err(directory.wrong(NAME, &format!("expected {name:?} in it, found none")));
        }
    }
    let lower = settings.flag("do_lower_case", true)?;
    let accents = match settings.get("strip_accents") {
        Some(_) => Value::Bool(settings.flag("strip_accents", false)?),
        None => Value::Null,
    };
    let around = |name: &str| json!({"id": name, "ids": [vocabulary[name]], "tokens": [name]});
    let (cls, sep) = (&names[3], &names[1]);
    let token = |name: &str, kind: u32| json!({"SpecialToken": {"id": name, "type_id": kind}});
    let sequence = |name: &str, kind: u32| json!({"Sequence": {"id": name, "type_id": kind}});
    // MPNet's pairs are RoBERTa's: two separators, no types.
    let kind = u32::from(!mpnet);
    let mut pair = vec![token(cls, 0), sequence("A", 0), token(sep, 0)];
    pair.extend(mpnet.then(|| token(sep, 0)));
    pair.extend([sequence("B", kind), token(sep, kind)]);
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(&names, &vocabulary, mpnet.then_some(4)),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "lowercase": lower, "strip_accents": accents,
            "handle_chinese_chars": settings.flag("tokenize_chinese_chars", true)?,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token(cls, 0), sequence("A", 0), token(sep, 0)],
            "pair": pair,
            "special_tokens": {cls.as_str(): around(cls), sep.as_str(): around(sep)},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": names[0], "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    }))
}

/// A `vocab.json` and a `merges.txt` of RoBERTa or BART as a `tokenizer.json`.
fn byte_level(directory: &Directory) -> Result<Value, TextError> {
    const NAME: &str = "merges.txt";
    let vocabulary = directory.vocabulary("vocab.json")?;
    let vocabulary: serde_json::Map<String, Value> =
        vocabulary.into_iter().map(|(text, id)| (text, id.into())).collect();
    let bytes = directory.read(NAME)?;
    let text = str::from_utf8(&bytes)
        .map_err(|error| directory.wrong(NAME, &format!("expected UTF-8: {error}")))?;
    let merges: Vec<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).collect();
    let settings = &directory.tokenizer;
    let space = settings.flag("add_prefix_space", false)?;
    let names = [
        ("bos_token", "<s>"),
        ("sep_token", "</s>"),
        ("unk_token", "<unk>"),
        ("pad_token", "<pad>"),
        ("cls_token", "<s>"),
        ("mask_token", "<mask>"),
    ];
    let names: Vec<String> = names
        .iter()
        .map(|(key, default)| settings.token(key, default))
        .collect::<Result<_, _>>()?;
    let id = |name: &str| {
        let found = vocabulary.get(name);
        found.ok_or_else(|| {
            directory.wrong("vocab.json", &format!("expected {name:?} in it, found none"))
        })
    };
    let (sep, cls) = (&names[1], &names[4]);
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(&names, &vocabulary, Some(5)),
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true},
        "post_processor": {
            "type": "RobertaProcessing", "sep": [sep, id(sep)?], "cls": [cls, id(cls)?],
            "trim_offsets": true, "add_prefix_space": space,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
            "vocab": vocabulary, "merges": merges,
        },
    }))
}

/// Special tokens of `names` that are in the vocabulary; the one at `left` takes the spaces before it.
fn added(
    names: &[String],
    vocabulary: &serde_json::Map<String, Value>,
    left: Option<usize>,
) -> Vec<Value> {
    let mut tokens: Vec<Value> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        if let Some(id) = vocabulary.get(name)
            && tokens.iter().all(|token| token["content"] != *name)
        {
            tokens.push(json!({
                "id": id, "content": name, "single_word": false, "lstrip": left == Some(i),
                "rstrip": false, "normalized": false, "special": true,
            }));
        }
    }
    tokens.sort_by_key(|token| token["id"].as_u64());
    tokens
}
