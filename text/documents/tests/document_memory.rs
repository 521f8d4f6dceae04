//! Hostile documents, of every format: each is an error or a document that is written again, in memory of a few megabytes
//! beside its text and in time that grows as its length. This is a part of the program that counts bytes.

use crate::random::Random;
use simdformer_documents::marked_text::MarkedText;
use simdformer_documents::sentences::SentenceSplitter;
use simdformer_documents::{Blocks, Document, Format};
use simdformer_testing::counting::most_bytes;
use simdformer_testing::cpu_time::cpu_time;
use simdformer_testing::effort;
use std::time::Duration;

/// Bytes that may be live beside the text.
const MEMORY: usize = 10 << 20;
/// Bytes of a text.
const SIZE: usize = 1 << 16;

/// Parses a text and writes it, as it is and with changed segments. Returns whether it is a document, and the most bytes that
/// one of these steps had, beside those that were live before it.
fn read_and_write(text: &str, format: Format) -> (bool, usize) {
    let (document, parsing) = most_bytes(|| Document::parse(text, format));
    let Ok(document) = document else { return (false, parsing) };
    let mut segments: Vec<MarkedText> = document.segments().to_vec();
    let (same, writing) = most_bytes(|| document.render(&segments).unwrap());
    assert_eq!(same, text, "{format}: {text:.200?}");
    for segment in &mut segments {
        segment.text = segment.text.replace('a', "o");
    }
    let (_, changing) = most_bytes(|| document.render(&segments).unwrap());
    (true, parsing.max(writing).max(changing))
}

/// The text inside of a document of the format.
fn inside(text: &str, format: Format) -> String {
    let line = || text.replace(['"', '\n', '\r'], "'");
    match format {
        Format::Plain => text.to_owned(),
        Format::Markdown => format!("# a\n\n{text}\n"),
        Format::Html => format!("<html><body><p>{text}</p></body></html>"),
        Format::Srt => format!("1\n00:00:01,000 --> 00:00:02,000\n{text}\n"),
        Format::WebVtt => format!("WEBVTT\n\n00:01.000 --> 00:02.000 line:0\n{text}\n"),
        Format::Json => format!("{{\"a\": \"{}\"}}", line()),
        Format::Gettext => format!("msgid \"{}\"\nmsgstr \"\"\n", line()),
        Format::Tmx => tmx(&format!("<seg>{text}</seg>"), "<seg/>"),
        Format::Xliff => xliff(&format!("<source>{text}</source>")),
        other => panic!("{other}"),
    }
}

/// A translation memory of one unit.
fn tmx(source: &str, target: &str) -> String {
    format!(
        "<tmx><header srclang=\"fr\"/><body><tu><tuv xml:lang=\"fr\">{source}</tuv>\
         <tuv xml:lang=\"en\">{target}</tuv></tu></body></tmx>"
    )
}

/// A file of one unit.
fn xliff(inside: &str) -> String {
    format!("<xliff><file><body><trans-unit>{inside}</trans-unit></body></file></xliff>")
}

/// What each is made of: a begin, what is repeated, and an end.
const HOSTILE: [(&str, &str, &str); 68] = [
    ("", "\0a", ""),
    ("", "a", ""),
    ("", " ", "a"),
    ("a", "\u{301}", ""),
    ("", "\u{feff}a", ""),
    ("", "\u{202e}\u{10ffff}\u{fffe}a", ""),
    ("", "a\n", ""),
    ("", "a\r", ""),
    ("", "\u{2028}a\u{85}", ""),
    ("", "<b>", "a"),
    ("", "<b>a", ""),
    ("", "</b>a", ""),
    ("", "<div>", "a"),
    ("<p title=\"", "a ", "\">a"),
    ("a <b title=\"", "a ", ""),
    ("a ", "<img alt=\"a\">", " a"),
    ("a <i ", "title=a ", ">a</i>"),
    ("<!--", "a-", ""),
    ("<script>", "a</", ""),
    ("<span translate=no>", "<b>a", ""),
    ("", "&#x1f600;&amp;", "a"),
    ("", "&a", ""),
    ("[a", "](b \"a\") [a", "](b)"),
    ("", "![a](b \"c\")", ""),
    ("", "<b>a![a](b \"c\")", ""),
    ("", "[![a](b \"c\")](d \"e\") ", ""),
    ("", "![a](b \"c\")`a`", ""),
    ("", "![", "a"),
    ("", "[", "a"),
    ("", "*a", ""),
    ("", "**a_b", ""),
    ("", "`a``", ""),
    ("", "*a*", ""),
    ("", "*a* ", ""),
    ("", "_a_ ", ""),
    ("", "**a** ", ""),
    ("", "*_", "a"),
    ("", "*__a__* ", ""),
    ("", "***a***", ""),
    ("", "~a~ ", ""),
    ("", "`a`", ""),
    ("", "$a$ ", ""),
    ("", "[a](b)", ""),
    ("", "[*a*](b) ", ""),
    ("", "[a]", "\n\n[a]: b"),
    ("", "\\\n", "a"),
    ("", "a\\\n", ""),
    ("", "<b>a</b>", ""),
    ("", "[^a]", "\n\n[^a]: b"),
    ("```", "a\n", ""),
    ("", "> ---\n", ""),
    ("", "- +++\n", ""),
    ("---\n", "a: b\n", ""),
    ("| a |\n|---|\n", "| a ", "|"),
    ("", "[a]: b \"c\"\n", "[a]"),
    ("", "[^a]: b\n\n[^a]\n", ""),
    ("", "- a\n\n", ""),
    ("", "\\u0061", ""),
    ("", "\\ud83d\\ude00a", ""),
    ("a", "\\ud83d", ""),
    ("", "\\n\\\"", "a"),
    ("", "\\", "a"),
    ("{n, plural, ", "other {# a {n, plural, ", ""),
    ("", "{n, select, a {b} other {c '{'}}", ""),
    ("{n, select, other {", "a '' {b} #", "}}"),
    ("a", "\n\n99999999:99:99,999 --> 00:00:00,000\na", ""),
    ("", "<v a>\n- a\n<i>\n", ""),
    ("", "a\"\nmsgstr \"\"\nmsgid \"a", ""),
];

/// Texts that are no text inside of a document.
const OUTSIDE: [(Format, &str, &str, &str); 24] = [
    (Format::Json, "", "[", ""),
    (Format::Json, "", "{\"a\":", ""),
    (Format::Json, "[", "\"a\",", ""),
    (Format::Json, "\"", "a", ""),
    (Format::Json, "", "\"\"", ""),
    (Format::Json, "[\"a\", ", "\"\\ud800\",", "]"),
    (Format::Gettext, "msgid \"a\"\n", "msgstr \"\"\n", ""),
    (Format::Gettext, "msgid \"a\"\n", "\"a\"\n", "msgstr \"\"\n"),
    (Format::Gettext, "", "msgid \"\"", "msgstr \"\"\n"),
    (Format::Gettext, "", "msgid \"a\\n\"\nmsgstr \"\"\n", ""),
    (
        Format::Gettext,
        "",
        "msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n\n",
        "",
    ),
    (Format::Gettext, "msgid \"a\"\nmsgstr[", "9", "] \"\"\n"),
    (Format::Gettext, "", "#, fuzzy\n", ""),
    (Format::Srt, "", "1\n", ""),
    (Format::Srt, "", "00:00:01,000 --> 00:00:02,000\n", ""),
    (Format::Srt, "", "1\n00:00:01,000 --> 00:00:02,000\na\n\n", ""),
    (Format::Srt, "", "--> ", ""),
    (Format::WebVtt, "WEBVTT\n\n", "NOTE a\n\n", ""),
    (Format::WebVtt, "WEBVTT ", "a", ""),
    (Format::WebVtt, "WEBVTT\n\n", "a\n00:01.000 --> 00:02.000\n<v a>a\n\n", ""),
    (Format::Markdown, "", "> ", "a"),
    (Format::Markdown, "", "1. ", "a"),
    (Format::Markdown, "+++\n", "a = \"b\"\n", "+++\na"),
    (Format::Html, "<!DOCTYPE html><", "a", ""),
];

/// Delimiters around texts, in each other and beside each other, drawn from `seed`.
fn emphases(seed: u64, size: usize) -> String {
    let mut random = Random(seed);
    let mut text = String::with_capacity(size + 64);
    let mut open: Vec<&str> = Vec::new();
    let deepest = [1, 2, 8, 100, size][random.below(5)];
    while text.len() < size {
        let closes = open.len() >= deepest || (!open.is_empty() && random.below(2) == 0);
        match open.pop_if(|_| closes) {
            Some(sign) => text.push_str(sign),
            None => {
                let sign = ["*", "_", "**", "__", "~", "~~", "`"][random.below(7)];
                open.push(sign);
                text.push_str(sign);
            }
        }
        text.push_str(["a", "a ", "", " a"][random.below(4)]);
    }
    text.extend(open.into_iter().rev());
    text
}

type Make = Box<dyn Fn(usize) -> String>;

/// The hostile documents: a format, and a text of about so many bytes.
fn hostile() -> Vec<(Format, String, Make)> {
    let repeated = |begin: &str, part: &str, end: &str, size: usize| {
        format!("{begin}{}{end}", part.repeat(size / part.len()))
    };
    let mut all: Vec<(Format, String, Make)> = Vec::new();
    for (begin, part, end) in HOSTILE {
        for format in Format::ALL {
            let make = move |size| inside(&repeated(begin, part, end, size), format);
            all.push((format, format!("{begin:?} {part:?} {end:?}"), Box::new(make)));
        }
    }
    for seed in 0..effort::cases(20, 400) as u64 {
        let make = move |size| inside(&emphases(seed, size), Format::Markdown);
        all.push((Format::Markdown, format!("emphases {seed}"), Box::new(make)));
    }
    for (format, begin, part, end) in OUTSIDE {
        let make = move |size| repeated(begin, part, end, size);
        all.push((format, format!("{begin:?} {part:?} {end:?}"), Box::new(make)));
    }
    all
}

fn time(text: &str, format: Format) -> Duration {
    let begin = cpu_time();
    read_and_write(text, format);
    cpu_time() - begin
}

#[test]
fn hostile_documents_are_errors_or_documents() {
    let all = hostile();
    assert!(all.len() >= 300, "{}", all.len());
    let mut errors = 0;
    for (format, name, make) in &all {
        let text = make(SIZE);
        let begin = cpu_time();
        let (is_document, most) = read_and_write(&text, *format);
        let spent = cpu_time() - begin;
        errors += usize::from(!is_document);
        assert!(most <= MEMORY + text.len(), "{format}: {name}: {most} bytes");
        // Sixteen times the text takes sixteen times as long; a quadratic step takes 256 times. Short times say nothing.
        let small = make(SIZE / 16);
        let small = (0..3).map(|_| time(&small, *format)).min().unwrap_or_default();
        let most = small.max(Duration::from_millis(4)) * 64;
        let again = || time(&text, *format);
        assert!(spent < most || again() < most || again() < most, "{format}: {name}: {spent:?}");
    }
    assert!(errors > 0 && errors < all.len(), "{errors} errors");
    // Not UTF-8, in the middle of a document and at its end.
    for format in Format::ALL {
        for bytes in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] {
            let text = [inside("a", format).as_bytes(), bytes].concat();
            let read = || Blocks::new(&text[..], format, 0).collect::<Result<Vec<_>, _>>();
            let (read, most) = most_bytes(|| read().map(drop));
            let error = read.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{format}");
            assert!(most <= MEMORY, "{format}: {most}");
        }
    }
}

/// Pairs and triples of what the documents above are made of, and of what sentences end in.
#[test]
fn combinations_take_little_memory() {
    let parts: Vec<&str> = HOSTILE.iter().flat_map(|one| [one.0, one.1, one.2]).collect();
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let mut random = Random(31);
    for case in 0..effort::cases(150, 5_000) {
        let count = 2 + random.below(2);
        let chosen: Vec<&str> = (0..count).map(|_| parts[random.below(parts.len())]).collect();
        let format = Format::ALL[case % Format::ALL.len()];
        let text = match random.below(2) {
            0 => chosen.concat().repeat(SIZE / chosen.concat().len()),
            _ => chosen.iter().map(|part| part.repeat(SIZE / count / part.len())).collect(),
        };
        let text = inside(&text, format);
        let (_, most) = read_and_write(&text, format);
        assert!(most <= MEMORY + text.len(), "{format}: {chosen:?}: {most} bytes");
        let (_, most) = most_bytes(|| SentenceSplitter::new(Some("en")).split(&text));
        assert!(most <= MEMORY, "{chosen:?}: {most} bytes");
    }
}
