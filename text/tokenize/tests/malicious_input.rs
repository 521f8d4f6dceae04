//! Malicious tokenizer files. Each is an error that names what is wrong.

use simdformer_testing::directories::golden;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_tokenize::{SentencePiece, Tokenizer};
use std::fs;

/// A protobuf field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 1 << 14);
    let (low, high) = (bytes.len() as u8 & 0x7f, (bytes.len() >> 7) as u8);
    let head =
        if high > 0 { vec![number << 3 | 2, low | 0x80, high] } else { vec![number << 3 | 2, low] };
    [head, bytes.to_vec()].concat()
}

fn piece(text: &[u8], score: f32, kind: u8) -> Vec<u8> {
    let score = [vec![0x15], score.to_le_bytes().to_vec()].concat();
    field(1, &[field(1, text), score, vec![0x18, kind]].concat())
}

/// `<unk>`, and the fields after it.
fn after_unknown(rest: &[u8]) -> Vec<u8> {
    [piece(b"<unk>", 0.0, 2), rest.to_vec()].concat()
}

fn rules(bytes: &[u8]) -> Vec<u8> {
    after_unknown(&field(3, &field(2, bytes)))
}

#[test]
fn sentencepiece_files() {
    let bytes_of_rules = |size: u32, units: usize, replacements: &[u8]| {
        rules(&[&size.to_le_bytes()[..], &vec![0; units], replacements].concat())
    };
    let byte_fallback = field(2, &[0x98, 0x02, 1]);
    let attacks: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "expected exactly one unknown piece"),
        ("text", b"hello, world".to_vec(), "expected a field of wire type 0, 1, 2 or 5, found"),
        (
            "JSON",
            b"{\"model\": {}}".to_vec(),
            "expected a field of wire type 0, 1, 2 or 5, found 3: not a SentencePiece model",
        ),
        ("zip", b"PK\x03\x04aaaa".to_vec(), "expected a field of wire type 0, 1, 2 or 5, found"),
        (
            "cut inside a piece",
            after_unknown(&piece(b"abc", 0.0, 1)[..6]),
            "expected a whole file, found one that ends inside a field: not a SentencePiece model, or cut short",
        ),
        (
            "a length beyond the end",
            after_unknown(b"\x0a\xff\xff\xff\xff\x0f"),
            "expected a whole file, found one that ends inside a field: not a SentencePiece model, or cut short",
        ),
        (
            "a length of 2^63",
            after_unknown(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
            "expected a whole file, found one that ends inside a field: not a SentencePiece model, or cut short",
        ),
        (
            "a number that does not end",
            after_unknown(&[0xff; 24]),
            "expected a whole file, found one that ends inside a field: not a SentencePiece model, or cut short",
        ),
        (
            "a group",
            after_unknown(b"\x0b"),
            "expected a field of wire type 0, 1, 2 or 5, found 3: not a SentencePiece model",
        ),
        (
            "no unknown piece",
            piece(b"a", 0.0, 1),
            "expected exactly one unknown piece, found none: not a SentencePiece model, or cut short",
        ),
        (
            "two unknown pieces",
            after_unknown(&piece(b"<un>", 0.0, 2)),
            "expected exactly one unknown piece, found two: not a SentencePiece model, or cut short",
        ),
        (
            "an empty piece",
            after_unknown(&piece(b"", 0.0, 1)),
            "piece 1: expected text in UTF-8, found none or other bytes",
        ),
        (
            "a piece of other bytes",
            after_unknown(&piece(b"\xff\xfe", 0.0, 1)),
            "piece 1: expected text in UTF-8",
        ),
        (
            "half a character",
            after_unknown(&piece(b"\xe2\x96", 0.0, 1)),
            "piece 1: expected text in UTF-8",
        ),
        (
            "a type that is none",
            after_unknown(&piece(b"a", 0.0, 9)),
            "piece 1: expected a type from 1 to 6, found 9",
        ),
        (
            "a score of NaN",
            after_unknown(&piece(b"a", f32::NAN, 1)),
            "piece 1: expected a finite score, found NaN",
        ),
        (
            "an infinite score",
            after_unknown(&piece(b"a", f32::INFINITY, 1)),
            "piece 1: expected a finite score, found inf",
        ),
        (
            "a piece that comes twice",
            after_unknown(&[piece(b"a", 0.0, 1), piece(b"a", 1.0, 4)].concat()),
            "expected each piece once, found the piece \"a\" twice",
        ),
        (
            "a control piece that comes twice",
            after_unknown(&[piece(b"</s>", 0.0, 3), piece(b"</s>", 0.0, 3)].concat()),
            "expected each piece once, found the piece \"</s>\" twice",
        ),
        (
            "a byte without fallback",
            after_unknown(&piece(b"<0x41>", 0.0, 6)),
            "expected <0x00> to <0xFF> in a model with byte fallback, found the byte \"<0x41>\"",
        ),
        (
            "a byte that is none",
            [byte_fallback.clone(), after_unknown(&piece(b"<0xZZ>", 0.0, 6))].concat(),
            "found the byte \"<0xZZ>\"",
        ),
        (
            "bytes that are missing",
            [byte_fallback, after_unknown(&piece(b"<0x41>", 0.0, 6))].concat(),
            "byte fallback: expected 256 pieces for bytes, found 1, some are missing",
        ),
        (
            "a model of words",
            after_unknown(&field(2, &[0x18, 3])),
            "expected a unigram (1) or BPE (2) model, found type 3 (3: words, 4: characters)",
        ),
        (
            "a model of nothing",
            after_unknown(&field(2, &[0x18, 0])),
            "expected a unigram (1) or BPE (2) model, found type 0",
        ),
        (
            "rules of two bytes",
            rules(b"ab"),
            "normalization rules: expected units and replacements, found 2 bytes that are not",
        ),
        (
            "rules larger than they are",
            bytes_of_rules(u32::MAX, 8, b"x\0"),
            "normalization rules: expected units and replacements, found",
        ),
        (
            "rules of half a unit",
            bytes_of_rules(6, 6, b"x\0"),
            "normalization rules: expected units and replacements, found",
        ),
        (
            "rules without replacements",
            bytes_of_rules(8, 8, b""),
            "normalization rules: expected units and replacements, found",
        ),
        (
            "a replacement of 2000 bytes",
            bytes_of_rules(8, 8, &[b'x'; 2000]),
            "expected replacements of at most 1024 bytes, found one of 2000",
        ),
        (
            "rules for what comes out",
            after_unknown(&field(5, &field(2, b"abc"))),
            "denormalizer_spec: expected no rules for the text that comes out, found some",
        ),
    ];
    let mut failures = Vec::new();
    for (name, bytes, message) in &attacks {
        let error = SentencePiece::from_bytes(bytes).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| "it was read".to_owned());
        if !error.contains(message) {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(SentencePiece::from_bytes(&after_unknown(&piece(b"a", 0.0, 1))).is_ok());
}

/// A directory of `files`, and a part of its error.
fn refused(name: &str, files: &[(&str, &str)], message: &str) {
    let place = TemporaryFolder::new("attack");
    let model = fs::read(golden("spm/unigram_identity.spm")).unwrap();
    for spm in ["source.spm", "target.spm", "sentencepiece.bpe.model", "spiece.model"] {
        let json = files.iter().any(|(file, _)| *file == "tokenizer.json");
        if !json {
            place.write(spm, &model);
        }
    }
    for (file, text) in files {
        place.write(file, text);
    }
    let error = Tokenizer::from_dir(&place.0).err().map(|error| error.to_string());
    let error = error.unwrap_or_else(|| panic!("{name} was read"));
    assert!(error.contains(message), "{name}: {error}");
}

#[test]
fn vocabularies_and_settings() {
    let marian = ("config.json", r#"{"model_type": "marian"}"#);
    let vocabulary = r#"{"</s>": 0, "<unk>": 1, "<pad>": 2}"#;
    let with =
        |name, vocabulary, message| refused(name, &[marian, ("vocab.json", vocabulary)], message);
    with("a list", "[]", "vocab.json: expected an object of texts to ids, found []");
    with(
        "half of it",
        "{\"a\": ",
        "vocab.json: expected JSON, found an error: EOF while parsing a value",
    );
    with(
        "a negative id",
        r#"{"<unk>": -1}"#,
        "expected ids from 0 to 1025, found -1 for \"<unk>\"",
    );
    with(
        "an id that makes a table of gigabytes",
        r#"{"<unk>": 4000000000}"#,
        "found 4000000000 for",
    );
    with("an id of 2^70", r#"{"<unk>": 1180591620717411303424}"#, "expected ids from 0 to 1025");
    with("an id that is text", r#"{"<unk>": "1"}"#, "found \"1\" for \"<unk>\"");
    with("no unknown token", r#"{"</s>": 0}"#, "expected \"<unk>\" in it, found none");
    with(
        "a pointer",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
        "vocab.json: expected the file itself, found a Git-LFS pointer: `git lfs pull` fetches it",
    );
    with(
        "a web page",
        "<!DOCTYPE html><html></html>",
        "vocab.json: expected the file itself, found a web page: the download was refused",
    );
    let with = |name, settings, message| {
        let settings = ("tokenizer_config.json", settings);
        refused(name, &[marian, ("vocab.json", vocabulary), settings], message);
    };
    with(
        "settings that are a list",
        "[1]",
        "tokenizer_config.json: expected a JSON object, found [1]",
    );
    with(
        "a flag that is text",
        r#"{"separate_vocabs": "yes"}"#,
        "separate_vocabs: expected true or false, found \"yes\"",
    );
    with(
        "a token that is a number",
        r#"{"eos_token": 3}"#,
        "eos_token: expected a token's text, found 3",
    );
    with(
        "a token without content",
        r#"{"eos_token": {}}"#,
        "eos_token: expected a token's text, found {}",
    );
    with("a vocabulary that is missing", r#"{"separate_vocabs": true}"#, "target_vocab.json");
    with(
        "a token of no number",
        r#"{"added_tokens_decoder": {"x": {"content": "a"}}}"#,
        "added_tokens_decoder: expected an object of ids to tokens",
    );
    with(
        "a token of 2^31",
        r#"{"added_tokens_decoder": {"2147483648": {"content": "a"}}}"#,
        "added_tokens_decoder",
    );
    with(
        "a token without text",
        r#"{"added_tokens_decoder": {"1": {"content": ""}}}"#,
        "added_tokens_decoder",
    );
    with("a list of tokens", r#"{"added_tokens_decoder": []}"#, "added_tokens_decoder");
    for found in ["\"true\"", "1", "[true]", "{}"] {
        let flag = format!(
            r#"{{"added_tokens_decoder": {{"1": {{"content": "a", "lstrip": {found}}}}}}}"#
        );
        let number = if found == "1" { "\"512\"" } else { found };
        let limit = format!(r#"{{"model_max_length": {number}}}"#);
        for (settings, message) in [
            (flag, "added_tokens_decoder: expected true or false for lstrip of \"a\", found"),
            (limit, "model_max_length: expected a number, found"),
        ] {
            let settings = ("tokenizer_config.json", &*settings);
            refused(found, &[marian, ("vocab.json", vocabulary), settings], message);
        }
    }
    for (modules, message) in
        [("[", "modules.json: expected JSON"), ("", "modules.json: expected JSON")]
    {
        refused("modules", &[("modules.json", modules)], message);
    }
    with(
        "a class that is a number",
        r#"{"tokenizer_class": 1}"#,
        "tokenizer_class: expected a text, found 1",
    );
    let t5 = ("config.json", r#"{"model_type": "t5"}"#);
    for (settings, found) in [
        (r#"{"extra_ids": 1000000000}"#, "found 1000000000"),
        (r#"{"extra_ids": -1}"#, "found -1"),
        (r#"{"extra_ids": 1.5}"#, "found 1.5"),
    ] {
        refused(
            "sentinels",
            &[t5, ("tokenizer_config.json", settings)],
            &format!("extra_ids: expected a number from 0 to 10000, {found}"),
        );
    }
    refused(
        "a start",
        &[("config.json", r#"{"model_type": "t5", "decoder_start_token_id": [1]}"#)],
        "decoder_start_token_id: expected a number",
    );
    let m2m100 = ("config.json", r#"{"model_type": "m2m_100"}"#);
    let settings = (
        "tokenizer_config.json",
        r#"{"tokenizer_class": "M2M100Tokenizer", "language_codes": "all"}"#,
    );
    refused(
        "languages",
        &[m2m100, ("vocab.json", vocabulary), settings],
        "language_codes: expected \"m2m100\" or \"wmt21\", found \"all\"",
    );
}

#[cfg(feature = "json")]
#[test]
fn tokenizer_json_files() {
    let bart = ("config.json", r#"{"model_type": "bart"}"#);
    let with =
        |name, text: &str, message| refused(name, &[bart, ("tokenizer.json", text)], message);
    with("a list", "[]", "tokenizer.json: expected a JSON object");
    with("nothing", "", "tokenizer.json: expected JSON");
    with(
        "brackets",
        &"[".repeat(100_000),
        "tokenizer.json: expected JSON, found an error: recursion limit exceeded",
    );
    with("a pointer", "version https://git-lfs.github.com/spec/v1\n", "a Git-LFS pointer");
    with("no model", "{}", "expected a tokenizer, found an error: its model is missing");
    with("a model that is none", r#"{"model": {"type": "Magic"}}"#, "expected a tokenizer");
    let model =
        |model: &str| format!(r#"{{"version": "1.0", "added_tokens": [], "model": {model}}}"#);
    let bpe = r#"{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "#;
    with(
        "lots",
        &model(&format!("{bpe}\"dropout\": 0.5, \"merges\": []}}")),
        "expected no dropout, which draws lots, found 0.5",
    );
    with(
        "a merge of no piece",
        &model(&format!("{bpe}\"merges\": [[\"a\", \"c\"]]}}")),
        "expected a tokenizer",
    );
    with(
        "a merge without the prefix",
        &model(&format!(
            "{bpe}\"continuing_subword_prefix\": \"##\", \"merges\": [[\"a\", \"b\"]]}}"
        )),
        "expected merges of parts that begin with \"##\"",
    );
    with(
        "an unknown piece outside",
        &model(r#"{"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}"#),
        "expected a tokenizer",
    );
    let normalizer = |normalizer: &str| {
        let unigram = r#"{"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}"#;
        format!(
            r#"{{"version": "1.0", "added_tokens": [], "normalizer": {normalizer}, "model": {unigram}}}"#
        )
    };
    let rules = "precompiled_charsmap: expected base64 of units and replacements, found other text";
    with("rules that are missing", &normalizer(r#"{"type": "Precompiled"}"#), rules);
    with(
        "rules that are null",
        &normalizer(r#"{"type": "Precompiled", "precompiled_charsmap": null}"#),
        rules,
    );
    with(
        "rules that are no base64",
        &normalizer(r#"{"type": "Precompiled", "precompiled_charsmap": "?!"}"#),
        rules,
    );
    // Missing padding, too much padding, padding inside, and bits without a meaning, each of which
    // would panic later.
    for base64 in [
        "BAAAAP////94AA",
        "BAAAAP////94AA=",
        "BAAAAP////94AA===",
        "BAAAAP////94AAA=",
        "BA=AAP////94AA==",
        "BAAAAP////94AB==",
    ] {
        with(
            base64,
            &normalizer(&format!(
                r#"{{"type": "Precompiled", "precompiled_charsmap": "{base64}"}}"#
            )),
            rules,
        );
    }
    with(
        "rules cut short",
        &normalizer(r#"{"type": "Precompiled", "precompiled_charsmap": "AAAA"}"#),
        rules,
    );
    with(
        "rules that point outside",
        &normalizer(
            r#"{"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "BAAAAP////94AA=="}]}"#,
        ),
        rules,
    );
    // The compiled pattern would exceed the limit of the compiler.
    for pattern in [" {4294967295,}", "((a{9}){9}){9}", r"\\p{L}{101}", "x{99999999999999999999}"] {
        with(
            pattern,
            &normalizer(&format!(
                r#"{{"type": "Replace", "pattern": {{"Regex": "{pattern}"}}, "content": ""}}"#
            )),
            "expected a pattern that repeats nothing more than 100 times, found",
        );
    }
    let bert = ("config.json", r#"{"model_type": "bert"}"#);
    // Templates, also inside of a sequence of processors, in which the reader looks up nothing.
    let a = r#"{"Sequence": {"id": "A", "type_id": 0}}"#;
    let b = r#"{"Sequence": {"id": "B", "type_id": 1}}"#;
    let sep = r#"{"SpecialToken": {"id": "[SEP]", "type_id": 0}}"#;
    let list = r#"{"Sequence": ["A", 0]}"#;
    for (what, single, pair) in [
        ("a token that the template does not have", format!("{a}, {sep}"), a.to_owned()),
        ("such a token between two texts", a.to_owned(), format!("{a}, {sep}, {b}")),
        ("a second text of one", format!("{a}, {b}"), format!("{a}, {b}")),
        ("a list for an object", list.to_owned(), a.to_owned()),
    ] {
        let template = format!(
            r#"{{"type": "TemplateProcessing", "single": [{single}], "pair": [{pair}], "special_tokens": {{}}}}"#
        );
        let sequence = format!(r#"{{"type": "Sequence", "processors": [{template}]}}"#);
        for processor in [template, sequence] {
            let words = r#"{"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "", "max_input_chars_per_word": 9, "vocab": {"a": 0}}"#;
            let file = format!(
                r#"{{"version": "1.0", "added_tokens": [], "post_processor": {processor}, "model": {words}}}"#
            );
            let message = "expected a template of its own tokens and of the texts that there are";
            refused(what, &[bert, ("tokenizer.json", &file)], message);
        }
    }
    let template = format!(
        r#"{{"type": "TemplateProcessing", "single": [{a}], "pair": [{a}, {b}], "special_tokens": {{}}}}"#
    );
    let two = format!(
        r#"{{"post_processor": {{"type": "Sequence", "processors": [{template}, {template}]}}}}"#
    );
    let message = "expected at most one template in the post_processor, found 2";
    refused("two templates", &[bert, ("tokenizer.json", &two)], message);
    let list = r#"{"post_processor": []}"#;
    refused("a list", &[bert, ("tokenizer.json", list)], "expected a post_processor that is");
    refused(
        "no [CLS]",
        &[bert, ("vocab.txt", "[UNK]\n[SEP]\n[PAD]\n")],
        "expected \"[CLS]\" in it, found none",
    );
    let roberta = ("config.json", r#"{"model_type": "roberta"}"#);
    refused(
        "no </s>",
        &[roberta, ("vocab.json", r#"{"<s>": 0}"#), ("merges.txt", "")],
        "expected \"</s>\" in it, found none",
    );
    refused(
        "no merges",
        &[roberta, ("vocab.json", "{}")],
        "expected tokenizer.json or vocab.json and merges.txt, found none",
    );
}
