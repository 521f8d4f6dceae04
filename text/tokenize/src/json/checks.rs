//! Checks the content of a `tokenizer.json` before the crate `tokenizers` reads it.
//!
//! That crate does not validate its files. This module rejects settings that sample at random, parts that would make
//! the crate panic, and parts that would take memory or time out of proportion to the file and the text.

use super::regex_limits;
use crate::directory::token;
use crate::error::Error;
use crate::spm;
use serde_json::Value;

/// Values in one of the parts that define text processing; published files have fewer than a hundred.
const VALUES: usize = 4096;
/// Levels of nesting: a template in a sequence has six. The reader copies a part once per level.
const DEPTH: usize = 16;
/// Bytes of a string in these parts.
const TEXT: usize = 1024;
/// Bytes of base64 of normalization rules; those of NFKC with case folding have 330 kB.
const RULES: usize = 8 << 20;
/// The largest number of output bytes per input byte of precompiled rules. The rules of NFKC produce up to 11.
const RULE_GROWTH: usize = 16;
/// Ids that a template may add to a text; Whisper adds four.
const TEMPLATE_IDS: usize = 64;
/// Processors in a sequence.
const PROCESSORS: usize = 16;
/// Characters of a word that WordPiece segments. It looks up every substring of a word, so time grows with the cube
/// of the length. Published files have 100.
const WORD: u64 = 256;
/// Bytes of the prefix or suffix that a model adds to a part of a word: `##` and `</w>`.
const AFFIX: usize = 64;

/// Nodes of the trie of a vocabulary with scores, one for each prefix of a piece. In the reader, each node has a
/// table of children of about 250 bytes. mT5 has a million nodes.
const NODES: usize = 1 << 22;

/// The largest number of output bytes per input byte of a file's precompiled rules.
pub(crate) type RuleGrowth = usize;

/// Rejects files that could give different ids for the same text, fail, or exceed the memory bounds.
pub(crate) fn check(value: &Value) -> Result<RuleGrowth, Error> {
    model(&value["model"])?;
    for part in ["normalizer", "pre_tokenizer", "post_processor", "decoder"] {
        let mut values = 0;
        measure(part, "", &value[part], DEPTH, &mut values)?;
        regex_limits::check(&value[part])?;
    }
    let processor = &value["post_processor"];
    let found = processors(processor);
    if found > PROCESSORS {
        return Err(Error::corrupt("", format!("at most {PROCESSORS} processors"), found));
    }
    templates(processor)?;
    rules(&value["normalizer"])
}

fn model(model: &Value) -> Result<(), Error> {
    if model["dropout"].as_f64().is_some_and(|dropout| dropout != 0.0) {
        return Err(Error::corrupt("", "no dropout, which draws lots", &model["dropout"]));
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        let found = model[key].as_str().map_or(0, str::len);
        if found > AFFIX {
            return Err(Error::corrupt(key, format!("at most {AFFIX} bytes"), found));
        }
    }
    let letters = &model["max_input_chars_per_word"];
    if letters.as_u64().is_some_and(|letters| letters > WORD) {
        return Err(Error::corrupt("max_input_chars_per_word", format!("at most {WORD}"), letters));
    }
    let mut longest = 0;
    let mut each = |text: &str| {
        longest = longest.max(text.len());
        token(text)
    };
    match &model["vocab"] {
        Value::Object(entries) => entries.keys().try_for_each(|text| each(text))?,
        Value::Array(entries) => {
            let mut pieces: Vec<&str> =
                entries.iter().filter_map(|entry| entry[0].as_str()).collect();
            pieces.iter().try_for_each(|text| each(text))?;
            let found = nodes(&mut pieces);
            if found > NODES {
                return Err(Error::corrupt(
                    "",
                    format!("pieces with at most {NODES} beginnings"),
                    found,
                ));
            }
        }
        _ => (),
    }
    merges(model, longest)
}

/// The number of distinct prefixes of the texts, in bytes. Sorts the texts.
fn nodes(texts: &mut [&str]) -> usize {
    texts.sort_unstable();
    let mut before = "";
    let each = texts.iter().map(|text| {
        let same = text.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
        before = text;
        text.len() - same
    });
    each.sum()
}

/// Rejects merges that would make the reader panic: it removes the prefix from the second part without a check, and
/// it joins both parts in a buffer as long as the `longest` token of the vocabulary.
fn merges(model: &Value, longest: usize) -> Result<(), Error> {
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    for merge in model["merges"].as_array().into_iter().flatten() {
        let parts = match merge {
            Value::String(pair) => pair.split_once(' '),
            pair => pair[0].as_str().zip(pair[1].as_str()),
        };
        match parts {
            Some((first, second)) if second.starts_with(prefix) => {
                if first.len() + second.len() - prefix.len() > longest {
                    return Err(Error::corrupt(
                        "",
                        "merges that make tokens of the vocabulary",
                        merge,
                    ));
                }
            }
            _ if prefix.is_empty() => (),
            _ => {
                return Err(Error::corrupt(
                    "",
                    format!("merges of parts that begin with {prefix:?}"),
                    merge,
                ));
            }
        }
    }
    Ok(())
}

/// Rejects a part with too many values, too many levels or too long strings.
fn measure(
    part: &str,
    key: &str,
    value: &Value,
    depth: usize,
    values: &mut usize,
) -> Result<(), Error> {
    *values += 1;
    if *values > VALUES {
        return Err(Error::corrupt(part, format!("at most {VALUES} values"), "more"));
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Error::corrupt(part, format!("at most {DEPTH} levels"), "more"));
    };
    let text = |key: &str, text: &str| {
        let most = match key {
            "precompiled_charsmap" => RULES,
            // Regular expressions have their own limit.
            "Regex" => usize::MAX,
            _ => TEXT,
        };
        if text.len() <= most {
            return Ok(());
        }
        Err(Error::corrupt(
            part,
            format!("texts of at most {most} bytes"),
            format!("one of {}", text.len()),
        ))
    };
    match value {
        Value::String(found) => text(key, found),
        Value::Array(several) => {
            several.iter().try_for_each(|value| measure(part, "", value, depth, values))
        }
        Value::Object(keys) => keys.iter().try_for_each(|(key, value)| {
            text("", key)?;
            measure(part, key, value, depth, values)
        }),
        _ => Ok(()),
    }
}

/// The number of processors in a sequence.
fn processors(processor: &Value) -> usize {
    match processor["processors"].as_array() {
        Some(several) => several.iter().map(processors).sum(),
        None => 1,
    }
}

/// The number of templates, at most one. Rejects a template that uses a token it does not define, or the second text
/// in the template of one text, because the reader checks neither. Rejects a second template, because the reader
/// cannot apply a template to the output of another. Rejects a template that repeats a text or adds more ids than any
/// published one, because each is copied that often.
fn templates(processor: &Value) -> Result<usize, Error> {
    if processor.is_array() {
        return Err(Error::corrupt("", "a post_processor that is an object", "a list"));
    }
    let mut count = usize::from(["single", "pair"].iter().any(|key| !processor[key].is_null()));
    for inside in processor["processors"].as_array().into_iter().flatten() {
        count += templates(inside)?;
    }
    if count > 1 {
        return Err(Error::corrupt("", "at most one template in the post_processor", count));
    }
    for (key, texts) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        let mut seen = Vec::new();
        let mut added = 0;
        for piece in processor[key].as_array().into_iter().flatten() {
            let id = |kind: &str| piece[kind]["id"].as_str();
            let known = match (id("SpecialToken"), id("Sequence")) {
                (Some(token), None) => match processor["special_tokens"].get(token) {
                    Some(token) => {
                        added += ids(token)?;
                        true
                    }
                    None => false,
                },
                (None, Some(text)) => {
                    if seen.contains(&text) {
                        return Err(Error::corrupt(
                            "",
                            "a template with each text once",
                            format!("{text:?} twice"),
                        ));
                    }
                    seen.push(text);
                    texts.contains(&text)
                }
                _ => false,
            };
            if !known {
                return Err(Error::corrupt(
                    "",
                    "a template of its own tokens and of the texts that there are",
                    piece,
                ));
            }
            if added > TEMPLATE_IDS {
                return Err(Error::corrupt(
                    "",
                    format!("a template that adds at most {TEMPLATE_IDS} ids"),
                    "more",
                ));
            }
        }
    }
    Ok(count)
}

/// The number of ids of a template's token: one per string.
fn ids(token: &Value) -> Result<usize, Error> {
    let len = |key: &str| token[key].as_array().map_or(0, Vec::len);
    match (len("ids"), len("tokens")) {
        (ids, tokens) if ids == tokens => Ok(ids),
        (ids, tokens) => Err(Error::corrupt(
            "",
            "a template's token with as many ids as texts",
            format!("{ids} and {tokens}"),
        )),
    }
}

/// The largest number of output bytes per input byte of precompiled rules. Rejects rules that are missing or whose
/// offsets are outside the rules, at any level of nesting.
fn rules(normalizer: &Value) -> Result<RuleGrowth, Error> {
    const KEY: &str = "precompiled_charsmap";
    let most = |most: RuleGrowth, value: &Value| Ok(most.max(rules(value)?));
    match normalizer {
        Value::Array(several) => several.iter().try_fold(1, most),
        Value::Object(keys) => {
            let mut growth = 1;
            if normalizer["type"] == "Precompiled" || keys.contains_key(KEY) {
                let bytes = normalizer[KEY].as_str().and_then(base64);
                let Some(found) = bytes.and_then(|bytes| spm::growth(&bytes)) else {
                    return Err(Error::corrupt(
                        KEY,
                        "base64 of units and replacements",
                        "other text",
                    ));
                };
                if found > RULE_GROWTH {
                    return Err(Error::corrupt(
                        KEY,
                        format!("rules that make at most {RULE_GROWTH} bytes of one"),
                        found,
                    ));
                }
                growth = found;
            }
            keys.values().try_fold(growth, most)
        }
        _ => Ok(1),
    }
}

/// Decodes base64 with exact padding and no leftover bits, because the reader that decodes it next panics otherwise.
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

#[cfg(test)]
mod tests {
    use super::nodes;

    #[test]
    fn beginnings_count_once() {
        for (mut texts, expected) in [
            (vec![], 0),
            (vec!["abc"], 3),
            (vec!["abd", "abc", "ab", "abc"], 4),
            (vec!["", "b", "a", "ba"], 3),
        ] {
            assert_eq!(nodes(&mut texts), expected, "{texts:?}");
        }
    }
}
