//! Words of Moses in pieces of BPE codes, compared with sacremoses and subword-nmt (`text/tests/golden/moses.py`).

use serde_json::{Value, json};
use simdformer_testing::directories::golden;
use simdformer_testing::effort;
use simdformer_tokenize::{Direction, Error, Tokenizer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

/// Bytes of a long text, and what it may take. The square of it takes minutes.
const LENGTH: usize = 1 << 17;
const MOST_SECONDS: u64 = 30;

/// A directory of CTranslate2 with these codes.
fn open(code: &str, codes: &str, abbreviations: &str, pieces: &[&str]) -> Result<Tokenizer, Error> {
    let languages = json!({"src_lang": code, "tgt_lang": code});
    let vocabulary: Vec<&str> = ["<unk>", "<s>", "</s>"].iter().chain(pieces).copied().collect();
    let files = [
        ("model.bin", String::new()),
        ("shared_vocabulary.json", json!(vocabulary).to_string()),
        ("tokenizer_config.json", languages.to_string()),
        ("bpe.model", codes.to_owned()),
        ("nonbreaking_prefixes.txt", abbreviations.to_owned()),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes()));
    Tokenizer::from_files("memory", BTreeMap::from(files))
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_text(text, &Direction::default()).unwrap().ids
}

/// The pieces that are decoded: the last ones, or those of the text.
fn decoded(row: &Value) -> Vec<&str> {
    texts(if row[4].is_null() { &row[3] } else { &row[4] })
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect()
}

#[test]
fn pieces_and_texts_are_those_of_sacremoses_and_subword_nmt() {
    let file = fs::read_to_string(golden("moses.jsonl")).unwrap();
    let mut rows = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let about = rows.next().unwrap();
    let (newer, abbreviations) = (about[0].as_str().unwrap(), texts(&about[1]).join("\n"));
    let older = newer.split_once('\n').unwrap().1;
    let rows: Vec<Value> = rows.collect();
    assert!(rows.len() >= 300);
    let pieces = |row: &Value| {
        texts(&row[3]).into_iter().chain(decoded(row)).map(str::to_owned).collect::<Vec<_>>()
    };
    let vocabulary: BTreeSet<String> = rows.iter().flat_map(pieces).collect();
    let vocabulary: Vec<&str> = vocabulary.iter().map(String::as_str).collect();
    let mut opened: BTreeMap<(&str, &str), Tokenizer> = BTreeMap::new();
    let mut different = Vec::new();
    for row in &rows {
        let [code, version, text, joined] = [0, 1, 2, 5].map(|at| row[at].as_str().unwrap());
        let codes = if version == "0.1" { older } else { newer };
        let tokenizer = opened
            .entry((code, version))
            .or_insert_with(|| open(code, codes, &abbreviations, &vocabulary).unwrap());
        let (encoded, spans) =
            tokenizer.encode_text_with_spans(text, &Direction::default()).unwrap();
        let found: Vec<String> =
            encoded.ids.iter().map(|&id| tokenizer.token(id).unwrap()).collect();
        // A byte order mark at the begin is no part of a text here.
        if found != texts(&row[3]) && !text.starts_with('\u{feff}') {
            different.push(format!("{code} {text:?}:\n  {found:?}\n  {:?}", texts(&row[3])));
        }
        assert!(spans.iter().all(|span| text.get(span.clone()).is_some()), "{text:?}: {spans:?}");
        assert!(spans.is_sorted_by_key(|span| span.start), "{text:?}: {spans:?}");
        let ids: Vec<u32> = decoded(row)
            .iter()
            .map(|piece| 3 + vocabulary.binary_search(piece).unwrap() as u32)
            .collect();
        let found = tokenizer.decode(&ids);
        if found != joined {
            different.push(format!("{code} {:?}:\n  {found:?}\n  {joined:?}", decoded(row)));
        }
        let (with_spans, spans) = tokenizer.decode_with_spans(&ids);
        assert_eq!(with_spans, found);
        assert!(spans.iter().all(|span| found.get(span.clone()).is_some()), "{found:?}: {spans:?}");
    }
    let shown = different.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(different.is_empty(), "{} of {} rows differ:\n{shown}", different.len(), rows.len());
}

#[test]
fn spans_are_words_and_unknown_pieces_are_unk() {
    let pieces = ["l&apos;", "e@@", "au", ",", "&quot;", "b@@", "a", ".", "don", "&apos;t"];
    let tokenizer = open("fr", "#version: 0.2\na u</w>\n", "", &pieces).unwrap();
    let text = "  L’eau, « ba ».";
    let (encoded, spans) = tokenizer.encode_text_with_spans(text, &Direction::default()).unwrap();
    let found: Vec<(String, &str)> = (encoded.ids.iter().zip(spans))
        .map(|(&id, span)| (tokenizer.token(id).unwrap(), &text[span]))
        .collect();
    let found: Vec<(&str, &str)> = found.iter().map(|(token, part)| (&token[..], *part)).collect();
    let escaped = ["’"; 6];
    assert_eq!(found[0], ("<unk>", "L"));
    assert!(found[1..7].iter().zip(escaped).all(|(found, part)| *found == ("<unk>", part)));
    assert_eq!(found[7..10], [("e@@", "e"), ("au", "au"), (",", ",")]);
    assert_eq!(found[found.len() - 1], (".", "."));
    assert!(tokenizer.is_unknown(encoded.ids[0]));
    // All pieces of a word have its place.
    let ids: Vec<u32> = [0, 1, 2, 3, 5, 6, 7].iter().map(|piece| piece + 3).collect();
    let (text, spans) = tokenizer.decode_with_spans(&ids);
    assert_eq!(text, "l'eau, ba.");
    let parts: Vec<&str> = spans.into_iter().map(|span| &text[span]).collect();
    assert_eq!(parts, ["l'", "eau", "eau", ",", "ba", "ba", "."]);
}

/// Whatever the text, the time grows with its length: it is far from that of its square.
#[test]
fn any_text_takes_linear_time() {
    let codes = "#version: 0.2\na a\naa aa\nb a</w>\na b\nab ab\n. .\n";
    let parts = [
        "a", "ab", "a ", ".", "..a", ".\"", ".\" ", "\"", "\",", ",", ",,1", "'", "a'", "''", "(",
        ") ", " ", "\u{a0}", "1\u{a0}", "中", "&", "&amp;", "<", "\u{1}", "—", "\u{fffd}", "a.",
        "「", "€", "@@ ", "@-@ ", "e\u{301}", ".' ",
    ];
    for (number, part) in parts.into_iter().enumerate() {
        for code in
            if effort::full() { &["fr", "en"][..] } else { &["fr", "en"][number % 2..][..1] }
        {
            let pieces = ["a", "aa@@", "ab@@", ".", "&apos;", ","];
            let tokenizer = open(code, codes, "", &pieces).unwrap();
            let text = part.repeat(LENGTH / part.len());
            let begun = Instant::now();
            let _ = tokenizer.decode_with_spans(&encode(&tokenizer, &text));
            let seconds = begun.elapsed().as_secs();
            assert!(seconds < MOST_SECONDS, "{part:?}: {seconds} s");
        }
    }
    // Pieces of a hostile vocabulary.
    let pieces = ["a \u{a0}b@@", "&amp", "@@", "@-@", "'", "", "“@@", "\u{3000}"];
    let tokenizer = open("it", codes, "", &pieces).unwrap();
    for piece in 0..pieces.len() as u32 {
        let begun = Instant::now();
        let _ = tokenizer.decode_with_spans(&vec![piece + 3; LENGTH]);
        assert!(begun.elapsed().as_secs() < MOST_SECONDS, "{piece}");
    }
}

#[test]
fn wrong_codes_are_errors_with_their_line() {
    let long = format!("{} a\n", "a".repeat(1100));
    for (codes, expected) in [
        ("#version: 0.3\na b\n", "expected 0.1 or 0.2, found 0.3"),
        ("#version: 0.2\na b\na b c\n", "line 3: expected two parts of words, found \"a b c\""),
        ("", "line 1"),
        ("a\n", "line 1"),
        ("a b\n\n", "line 2"),
        (long.as_str(), "bytes"),
    ] {
        let error = open("en", codes, "", &["a"]).unwrap_err().to_string();
        assert!(error.contains("bpe.model") && error.contains(expected), "{error}");
    }
    // Nothing is merged, and the last line has no end.
    for codes in ["#version: 0.2", "#version: 0.2\r\na b</w>\r\n"] {
        assert_eq!(open("en", codes, "", &["a"]).unwrap().decode(&[3, 3]), "a a");
    }
}
