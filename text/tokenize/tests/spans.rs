//! The bytes of each token in the source and in the target text.

use crate::golden::{lines, random_ids};
use simdformer_testing::directories::{full, golden};
use simdformer_testing::effort::cases;
use simdformer_tokenize::{Direction, Tokenizer};
use std::fs;
use std::ops::Range;

/// Every golden tokenizer that this build reads.
fn tokenizers() -> Vec<(String, Tokenizer)> {
    let names = fs::read_dir(golden("dirs")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_str().unwrap().to_owned()).collect();
    names.sort();
    let read = |name: String| {
        let place = full(&name);
        let tokenizer = Tokenizer::from_dir(&place.0).ok()?;
        Some((name, tokenizer.with_max_tokens(None)))
    };
    names.into_iter().filter_map(read).collect()
}

fn check_order(text: &str, spans: &[Range<usize>], what: &str) {
    for pair in spans.windows(2) {
        assert!(
            pair[0].start <= pair[1].start && pair[0].end <= pair[1].end,
            "{what}: {pair:?} of {text:?}"
        );
    }
    for span in spans {
        let part = text.get(span.clone()).unwrap_or_else(|| panic!("{what}: {span:?} of {text:?}"));
        assert_eq!(part, part.trim(), "{what}: {text:?}");
    }
}

/// The spans of a source are in order and cover the letters and digits of the text: normalization drops control
/// characters, and some tokenizers replace what they do not know. Each token that decodes to a part of the text as it
/// stands there has that part.
#[test]
fn spans_of_sources() {
    let lines = lines();
    let tokenizers = tokenizers();
    assert!(tokenizers.len() >= 9, "{}", tokenizers.len());
    for (name, tokenizer) in &tokenizers {
        let (mut letters, mut covered, mut same, mut tokens) = (0, 0, 0, 0);
        let mut missing: Vec<String> = Vec::new();
        for line in lines.iter().filter(|line| line.len() < 600).step_by(cases(3, 1)) {
            let (encoded, spans) =
                tokenizer.encode_with_spans(line, &Direction::default()).unwrap();
            assert_eq!(encoded, tokenizer.encode(line, &Direction::default()).unwrap(), "{name}");
            assert_eq!(encoded.ids.len(), spans.len(), "{name}: {line:?}");
            check_order(line, &spans, name);
            let mut next = 0;
            for (at, letter) in line.char_indices().filter(|(_, letter)| letter.is_alphanumeric()) {
                while next < spans.len() && spans[next].end <= at {
                    next += 1;
                }
                letters += 1;
                let end = at + letter.len_utf8();
                if spans.get(next).is_some_and(|span| span.start <= at && end <= span.end) {
                    covered += 1;
                } else if is_removed(tokenizer, letter) {
                    letters -= 1;
                } else if missing.len() < 5 {
                    missing.push(format!(
                        "{letter:?} at {at} of {line:.60?}: {:?}",
                        &spans[..spans.len().min(20)]
                    ));
                }
            }
            for (id, span) in encoded.ids.iter().zip(spans) {
                let token = tokenizer.decode(&[*id]);
                tokens += usize::from(!span.is_empty());
                same += usize::from(
                    !span.is_empty() && line[span].to_lowercase() == token.trim().to_lowercase(),
                );
            }
        }
        assert!(
            covered * 1000 >= letters * 999,
            "{name}: {covered} of {letters} letters: {missing:#?}"
        );
        // Ids of a source are not decoded as those of a target.
        if name != "marian_separate" {
            assert!(same * 10 >= tokens * 3, "{name}: {same} of {tokens} tokens");
        }
    }
}

/// A byte order mark is no part of the text, but its bytes count.
#[test]
fn spans_after_a_byte_order_mark() {
    let texts = ["Tom saw it.", " two  words ", "", "\u{feff}", "é"];
    for (name, tokenizer) in &tokenizers() {
        for text in texts {
            let encode =
                |text: &str| tokenizer.encode_text_with_spans(text, &Direction::default()).unwrap();
            let (expected, spans) = encode(text.trim_start_matches('\u{feff}'));
            let marked = format!("\u{feff}{}", text.trim_start_matches('\u{feff}'));
            let (found, moved) = encode(&marked);
            assert_eq!(found, expected, "{name}: {text:?}");
            let expected: Vec<_> = spans.iter().map(|s| s.start + 3..s.end + 3).collect();
            assert_eq!(moved, expected, "{name}: {text:?}");
        }
    }
}

/// Whether the tokenizer has no token for a letter: BERT removes the vowel marks of Hebrew and Arabic.
fn is_removed(tokenizer: &Tokenizer, letter: char) -> bool {
    let (_, spans) =
        tokenizer.encode_with_spans(&letter.to_string(), &Direction::default()).unwrap();
    spans.iter().all(|span| span.is_empty())
}

/// The spans of a target are in order and cover the text, and the text of the first ids ends where the span of the last of
/// them does.
#[test]
fn spans_of_targets() {
    let lines = lines();
    for (name, tokenizer) in &tokenizers() {
        let direction = Direction::default();
        let texts = lines.iter().filter(|line| line.len() < 400).step_by(cases(12, 3));
        let ids = texts.map(|line| tokenizer.encode(line, &direction).unwrap().ids);
        for ids in ids.chain((0..cases(50, 500) as u64).map(|number| random_ids(number, 1500))) {
            let (text, spans) = tokenizer.decode_with_spans(&ids);
            assert_eq!(text, tokenizer.decode(&ids), "{name}");
            assert_eq!(ids.len(), spans.len(), "{name}");
            check_order(&text, &spans, name);
            let mut end = 0;
            for span in &spans {
                let between = text.get(end..span.start).unwrap_or_default();
                assert_eq!(between.trim(), "", "{name}: {spans:?} of {text:?}");
                end = end.max(span.end);
            }
            assert_eq!(text[end..].trim(), "", "{name}: {spans:?} of {text:?}");
            for count in 1..=ids.len() {
                let first = tokenizer.decode(&ids[..count]);
                // Bytes that are not a character yet have no text before the next token.
                if !first.contains('\u{fffd}') {
                    assert_eq!(
                        first.trim_end().len(),
                        spans[..count].iter().map(|span| span.end).max().unwrap(),
                        "{name}: {text:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn tokens_of_one_character_share_it() {
    let place = full("t5");
    let model = simdformer_testing::directories::model("bpe_nfkc_bytes", "nmt_nfkc");
    place.write("spiece.model", &model);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let text = "a🙂b ½字";
    let (encoded, spans) = tokenizer.encode_with_spans(text, &Direction::default()).unwrap();
    check_order(text, &spans, "bytes");
    let face = spans.iter().filter(|&span| *span == (1..5)).count();
    assert!(face >= 4, "{spans:?}");
    assert_eq!(spans.last(), Some(&(text.len()..text.len())));
    let (text, spans) = tokenizer.decode_with_spans(&encoded.ids);
    check_order(&text, &spans, "bytes");
    assert_eq!(spans.iter().filter(|&span| *span == (1..5)).count(), face, "{spans:?} of {text:?}");
}

#[test]
fn a_truncated_text_has_the_spans_of_its_tokens() {
    let place = full("nllb");
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap().with_max_tokens(Some(5));
    let (encoded, spans) =
        tokenizer.encode_with_spans("The quick brown fox jumps.", &Direction::default()).unwrap();
    assert_eq!((encoded.ids.len(), spans.len()), (5, 5));
    assert!(spans[0].is_empty() && spans[4].is_empty() && !spans[1].is_empty(), "{spans:?}");
}

/// Lower case may be longer or shorter than the text.
#[test]
fn a_lowercased_text_has_its_own_spans() {
    for name in ["t5", "nllb"] {
        let place = full(name);
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap().with_lower_case().unwrap();
        let text = "\u{130}x \u{212a}y The END";
        let (_, spans) = tokenizer.encode_with_spans(text, &Direction::default()).unwrap();
        check_order(text, &spans, name);
        let covered: String = {
            let mut end = 0;
            let new = |span: &Range<usize>| {
                let part = text[span.start.max(end)..span.end.max(end)].to_owned();
                end = end.max(span.end);
                part
            };
            spans.iter().map(new).collect()
        };
        assert_eq!(covered, text.replace(' ', ""), "{name}: {spans:?}");
    }
}
