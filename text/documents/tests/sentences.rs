//! Sentences: their boundaries in 48 languages, the parts of long sentences, and languages.
//!
//! `sentences/XX.txt` has sentences of the language `XX`, one in a line; a blank line ends a paragraph. They were written
//! for this test, together with the rules; after the first run only the odd paragraphs were looked at.

use crate::measure::{Counts, Measured, files, folder, join, measure, paragraphs, table};
use simdformer_documents::sentences::SentenceSplitter;
use simdformer_testing::cpu_time::cpu_time;
use simdformer_testing::effort;
use std::io::Write as _;
use std::ops::Range;

fn own() -> Vec<Measured> {
    measure(&folder()).unwrap()
}

fn split(language: &str, text: &str) -> Vec<String> {
    let ranges = SentenceSplitter::new(Some(language)).split(text);
    ranges.into_iter().map(|range| text[range].to_owned()).collect()
}

#[test]
fn f1_is_at_least_97_percent_and_better_than_uax_29() {
    let all = own();
    assert!(all.len() >= 40, "{} languages", all.len());
    let sentences: usize = all.iter().map(|one| one.sentences).sum();
    assert!(sentences >= 1000, "{sentences} sentences");
    let sum = |part: fn(&Measured) -> Counts| all.iter().map(part).sum::<Counts>().f1();
    let (odd, even) = (sum(|one| one.odd), sum(|one| one.even));
    let uax = sum(|one| one.uax_odd + one.uax_even);
    assert!(odd >= 0.97, "odd paragraphs: {odd}");
    assert!(even >= 0.97, "even paragraphs: {even}");
    assert!(sum(|one| one.uax_even) < even && uax < even, "UAX #29: {uax}");
    for one in &all {
        let (own, uax) = ((one.odd + one.even).f1(), (one.uax_odd + one.uax_even).f1());
        assert!(own >= 0.9 && own >= uax, "{}: {own}, UAX #29: {uax}", one.language);
    }
}

/// Prints the table of the languages and the paragraphs with a wrong boundary, of the files `XX.txt` in the folder that
/// `SIMDFORMER_SENTENCES` names, or of those here: `cargo test -p simdformer-documents -- --ignored --nocapture
/// table_of_languages`.
#[test]
#[ignore = "measures"]
fn table_of_languages() {
    let folder = std::env::var_os("SIMDFORMER_SENTENCES").map_or_else(folder, Into::into);
    let all = measure(&folder).unwrap();
    let mut out = std::io::stdout().lock();
    out.write_all(table(&all).as_bytes()).unwrap();
    for one in &all {
        for mistake in &one.mistakes {
            writeln!(out, "\n{}:\n  | {}", one.language, mistake.join("\n  | ")).unwrap();
        }
    }
}

/// Characters that mean something to the rules, and others.
const PIECES: [&str; 64] = [
    ".",
    "!",
    "?",
    "…",
    "...",
    "。",
    "！",
    "।",
    "۔",
    "؟",
    "։",
    "።",
    "။",
    "។",
    "ល",
    "།",
    "\"",
    "'",
    "“",
    "”",
    "„",
    "«",
    "»",
    "「",
    "」",
    "(",
    ")",
    "[",
    "1]",
    "（",
    "）",
    "¿",
    "¡",
    "—",
    "-",
    "•",
    ",",
    ";",
    ":",
    "，",
    " ",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "\u{a0}",
    "\u{2029}",
    "a",
    "B",
    "Dr",
    "z",
    "Oktober",
    "The",
    "12",
    "3",
    "IV",
    "e\u{301}",
    "漢",
    "か",
    "ครับ",
    "ไทย",
    "👍🏽",
    "नि",
    "\u{200d}",
];

const LANGUAGES: [Option<&str>; 12] = [
    None,
    Some("en"),
    Some("deu_Latn"),
    Some("fr_XX"),
    Some("nld"),
    Some("el"),
    Some("hy"),
    Some("hi"),
    Some("zh"),
    Some("ja"),
    Some("th"),
    Some("not a language"),
];

fn random_text(state: &mut u64) -> String {
    let mut next = |bound: usize| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        usize::try_from(*state % (bound as u64)).unwrap()
    };
    let mut text = String::new();
    for _ in 0..next(40) {
        match next(8) {
            0 => text.extend(char::from_u32(u32::try_from(next(0x2_0000)).unwrap())),
            _ => text.push_str(PIECES[next(PIECES.len())]),
        }
    }
    text
}

/// Increasing, disjoint, not empty, without white space at the ends, and nothing but white space between them.
fn assert_covers(text: &str, ranges: &[Range<usize>]) {
    let mut end = 0;
    for range in ranges {
        assert!(range.start >= end && !range.is_empty(), "{text:?}: {ranges:?}");
        assert!(text[end..range.start].trim().is_empty(), "{text:?}: {ranges:?}");
        let part = &text[range.clone()];
        assert_eq!(part.trim(), part, "{text:?}: {ranges:?}");
        end = range.end;
    }
    assert!(text[end..].trim().is_empty(), "{text:?}: {ranges:?}");
}

#[test]
fn sentences_and_parts_cover_any_text() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let splitters = LANGUAGES.map(SentenceSplitter::new);
    for _ in 0..effort::properties(100) {
        let text = random_text(&mut state);
        for splitter in &splitters {
            assert_covers(&text, &splitter.split(&text));
            for limit in [1, 3, 17] {
                let parts = splitter.cut(&text, &mut |part| part.chars().count() <= limit);
                assert_covers(&text, &parts);
                for part in parts {
                    assert!(text[part].chars().count() <= limit, "{text:?}");
                }
            }
            // Nothing fits: each part is a character.
            let parts = splitter.cut(&text, &mut |_| false);
            assert!(parts.into_iter().all(|part| text[part].chars().count() == 1), "{text:?}");
        }
    }
}

/// 16 KB take about 10 ms; with quadratic time they would take seconds.
#[test]
fn the_time_is_linear() {
    let repeated = [
        "a. ",
        ". ",
        ".",
        "(",
        "« a. » ",
        "\"a. ",
        "a.a.",
        "「",
        "。”",
        "St. ",
        "Mr. A. ",
        "ๆ ",
        "ไทย ",
        " ",
        "! ( ",
        "[1",
        "\n",
        "1. ",
        "—",
        "'s ",
        "x",
        "\u{301}",
        ", and ",
    ];
    let splitters = [Some("en"), Some("th")].map(SentenceSplitter::new);
    for piece in repeated {
        let text = format!("a {} b", piece.repeat(16_000 / piece.len()));
        for splitter in &splitters {
            let start = cpu_time();
            assert_covers(&text, &splitter.split(&text));
            let seconds = (cpu_time() - start).as_secs_f64();
            assert!(seconds < 0.4, "{piece:?}: {seconds} s");
        }
        let start = cpu_time();
        assert_covers(&text, &splitters[0].cut(&text, &mut |part| part.len() < 500));
        let seconds = (cpu_time() - start).as_secs_f64();
        assert!(seconds < 0.4, "cut {piece:?}: {seconds} s");
    }
}

#[test]
fn a_line_break_is_a_space_and_a_blank_line_ends_a_sentence() {
    assert_eq!(split("en", "It was\nlate. He\r\nleft."), ["It was\nlate.", "He\r\nleft."]);
    assert_eq!(split("en", "A title\n\nand a text"), ["A title", "and a text"]);
    assert_eq!(split("en", "A title\r\n \r\nand a text"), ["A title", "and a text"]);
    assert_eq!(split("en", " \n "), [""; 0]);
}

#[test]
fn a_text_without_capitals_is_split() {
    assert_eq!(
        split("en", "how are you? i am fine. e.g. today."),
        ["how are you?", "i am fine.", "e.g. today.",]
    );
}

#[test]
fn a_language_has_the_rules_of_each_of_its_codes() {
    let text = "Das ist z. B. am 3. Oktober so. Gut.";
    for code in ["de", "deu", "deu_Latn", "de_DE", "de-AT", "ger", "DE"] {
        assert_eq!(split(code, text).len(), 2, "{code}");
    }
}

fn cut(language: &str, text: &str, limit: usize) -> Vec<String> {
    let splitter = SentenceSplitter::new(Some(language));
    let parts = splitter.cut(text, &mut |part| part.chars().count() <= limit);
    parts.into_iter().map(|range| text[range].to_owned()).collect()
}

#[test]
fn a_long_sentence_is_cut_at_the_best_boundary() {
    let text = "He came early, as he always did; she was late, but not by much.";
    assert_eq!(
        cut("en", text, 60),
        ["He came early, as he always did;", "she was late, but not by much."]
    );
    let text = "Er kam früh nach Hause, weil er am nächsten Tag verreisen wollte";
    assert_eq!(
        cut("de", text, 60),
        ["Er kam früh nach Hause,", "weil er am nächsten Tag verreisen wollte"]
    );
    let text = "the old man went to the harbour and the young man stayed at home";
    assert_eq!(
        cut("en", text, 60),
        ["the old man went to the harbour", "and the young man stayed at home"]
    );
    assert_eq!(cut("en", "one two three four", 10), ["one two", "three four"]);
    assert_eq!(cut("en", "abcdefgh", 5), ["abcd", "efgh"]);
    assert_eq!(cut("zh", "他昨天来过，今天没有来", 8), ["他昨天来过，", "今天没有来"]);
    // A letter keeps its accent.
    assert_eq!(cut("fr", "e\u{301}e\u{301}e\u{301}", 4), ["e\u{301}", "e\u{301}e\u{301}"]);
    assert_eq!(cut("en", "It fits.", 8), ["It fits."]);
    assert_eq!(cut("en", "", 0), [""; 0]);
}

#[test]
fn the_language_of_a_paragraph_is_detected() {
    use simdformer_documents::sentences::detect_language;
    let (mut right, mut total) = (0, 0);
    let mut wrong = Vec::new();
    for file in files(&folder()).unwrap() {
        // Not known to the detector.
        if ["is", "sw"].contains(&file.language.as_str()) {
            continue;
        }
        for paragraph in paragraphs(&file.text) {
            let (text, _) = join(&file.language, &paragraph);
            let (code, confidence) = detect_language(&text).unwrap();
            assert!((0.0..=1.0).contains(&confidence));
            total += 1;
            if code == file.language {
                right += 1;
            } else {
                wrong.push(format!("{} as {code} ({confidence:.2})", file.language));
            }
        }
    }
    assert!(right * 100 >= total * 93, "{right} of {total}; {wrong:?}");
    assert_eq!(detect_language("... 12"), None);
    let traditional = detect_language("他們說這個國家的學生會來。").unwrap();
    assert_eq!(traditional.0, "zh-Hant");
}
