//! Converts the files of older directories, `vocab.txt`, or `vocab.json` and `merges.txt`, to a `tokenizer.json`.

use crate::directory::Directory;
use crate::error::Error;
use crate::limits;
use serde_json::{Value, json};

/// Reads a file of lines.
fn lines(directory: &Directory, name: &str) -> Result<String, Error> {
    let text = directory.read_text(name, limits::VOCABULARY.bytes)?;
    let found = text.matches('\n').count();
    if found > limits::LINES {
        let expected = format!("at most {} lines", limits::LINES);
        return Err(directory.wrong(name, expected, found));
    }
    Ok(text)
}

/// Converts a `vocab.txt` of BERT or MPNet to a `tokenizer.json`.
pub(super) fn word_piece(directory: &Directory) -> Result<Value, Error> {
    const NAME: &str = "vocab.txt";
    let text = lines(directory, NAME)?;
    let lines = text.strip_suffix('\n').unwrap_or(&text).split('\n');
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
            return Err(directory.wrong(NAME, format!("{name:?} in it"), "none"));
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
    // MPNet encodes pairs as RoBERTa: two separators, no types.
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

/// Converts a `vocab.json` and a `merges.txt` of RoBERTa or BART to a `tokenizer.json`.
pub(super) fn byte_level(directory: &Directory) -> Result<Value, Error> {
    const NAME: &str = "merges.txt";
    let vocabulary = directory.vocabulary("vocab.json")?;
    let vocabulary: serde_json::Map<String, Value> =
        vocabulary.into_iter().map(|(text, id)| (text, id.into())).collect();
    let text = lines(directory, NAME)?;
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
        found.ok_or_else(|| directory.wrong("vocab.json", format!("{name:?} in it"), "none"))
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

/// The special tokens of `names` that are in the vocabulary; the token at `left` includes the spaces before it.
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
