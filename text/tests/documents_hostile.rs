//! Documents that nobody wrote: they come back byte for byte, soon.

use crate::cpu_time::cpu_time;
use crate::documents::files;
use crate::effort;
use simdformer_text::document::{Document, Format};
use simdformer_text::marked_text::MarkedText;
use std::time::Duration;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

/// Whatever the text is, it comes back, and so do other texts in its places.
fn check(text: &str, format: Format) {
    let Ok(document) = Document::parse(text, format) else {
        assert!(matches!(format, Format::Json | Format::Gettext));
        return;
    };
    assert_eq!(document.render(document.segments()).unwrap(), text, "{format}: {text:?}");
    let changed: Vec<MarkedText> = document
        .segments()
        .iter()
        .map(|segment| MarkedText {
            text: segment.text.replace('e', "f"),
            marks: segment.marks.clone(),
        })
        .collect();
    let written =
        document.render(&changed).unwrap_or_else(|error| panic!("{format}: {text:?}: {error}"));
    if let Ok(again) = Document::parse(&written, format) {
        assert_eq!(again.render(again.segments()).unwrap(), written, "{format}: {text:?}");
    }
    for segment in document.segments() {
        assert!(!segment.text.contains('\n'), "{format}: {text:?}");
        for mark in &segment.marks {
            assert!(segment.text.get(mark.range.clone()).is_some(), "{format}: {text:?}");
        }
        assert!(segment.marks.is_sorted_by_key(|mark| mark.range.start), "{format}: {text:?}");
    }
}

const FRAGMENTS: [&str; 65] = [
    "a",
    "é",
    "文",
    "字",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\t",
    "# ",
    "## x {#a}",
    "> ",
    "- ",
    "1. ",
    "* ",
    "*",
    "**",
    "_",
    "~~",
    "`",
    "```",
    "[",
    "]",
    "(",
    ")",
    "](u)",
    "![",
    "[x]: u",
    "[^1]",
    "\\",
    "<",
    ">",
    "<b>",
    "</b>",
    "<p>",
    "</p>",
    "<br>",
    "<code>",
    "</code>",
    "<!--",
    "-->",
    "<script>",
    "</script>",
    "<span translate=no>",
    "</span>",
    "&",
    ";",
    "&amp;",
    "&#x;",
    "|",
    "---",
    "===",
    ":::",
    "$",
    "{\\an8}",
    "00:00:01,000 --> 00:00:02,000",
    "WEBVTT",
    "\"",
    "\\n",
    "\\u00e9",
    "\u{feff}",
    "word ",
    "\nmsgid \"a\"\nmsgstr \"\"\n",
];

#[test]
fn any_text_comes_back() {
    let mut random = Random(7);
    for _ in 0..effort::cases(500, 100_000) {
        let mut text = String::new();
        for _ in 0..random.below(40) {
            if random.below(20) == 0 {
                text.extend(char::from_u32(random.below(0x11_0000) as u32));
            } else {
                text.push_str(FRAGMENTS[random.below(FRAGMENTS.len())]);
            }
        }
        for format in Format::ALL {
            check(&text, format);
        }
    }
}

#[test]
fn mutated_documents_come_back() {
    let files = files();
    let mut random = Random(11);
    for _ in 0..effort::cases(300, 50_000) {
        let (_, format, text) = &files[random.below(files.len())];
        let mut characters: Vec<char> = text.chars().collect();
        for _ in 0..=random.below(4) {
            let at = random.below(characters.len() + 1);
            let end = (at + random.below(12)).min(characters.len());
            match random.below(3) {
                0 => drop(characters.drain(at..end)),
                1 => {
                    let copy: Vec<char> = characters[at..end].to_vec();
                    let to = random.below(characters.len() + 1);
                    characters.splice(to..to, copy);
                }
                _ => drop(
                    characters.splice(at..at, FRAGMENTS[random.below(FRAGMENTS.len())].chars()),
                ),
            }
        }
        let text: String = characters.into_iter().collect();
        check(&text, *format);
        check(&text, Format::ALL[random.below(Format::ALL.len())]);
    }
}

/// Time to parse and write `text`, the least of some runs.
fn time(text: &str, format: Format, runs: usize) -> Duration {
    let run = || {
        let begin = cpu_time();
        if let Ok(document) = Document::parse(text, format) {
            assert_eq!(document.render(document.segments()).unwrap(), text);
        }
        cpu_time() - begin
    };
    (0..runs).map(|_| run()).min().unwrap_or_default()
}

/// Ten times the text takes about ten times as long: a quadratic step would take a hundred times.
#[test]
fn hostile_texts_take_linear_time() {
    let markup = [
        "[",
        "![",
        "[a](",
        "[a][",
        "]",
        "<",
        "<a ",
        "<a href=\"",
        "</",
        "<!--",
        "<!",
        "<![CDATA[",
        "<?",
        "*",
        "**a",
        "*a **b ",
        "_a_",
        "~",
        "`",
        "`a``",
        "$",
        "$a$$",
        "\\",
        "&",
        "&#",
        "&a",
        "&amp;",
        "<b>",
        "<b><i>",
        "</b>",
        "<code>",
        "<code>a<p>",
        "<pre>",
        "<svg>",
        "<script>",
        "<title>",
        "<span translate=no>",
        "<div translate=no>",
        "<p>",
        "<a a a a",
        "<a a=b ",
        "<a a=",
        "> ",
        "    ",
        "| a ",
        "|a|\n|-|\n",
        "[a]: b\n",
        "[^a]: b\n",
        "a [^a] ",
        "# a\n",
        "a\n---\n",
        "```\n",
        "~~~a\n",
        "<div>\n",
        "<b>\n",
        "a  \n",
        "a\\\n",
        ":::\n",
        ": a\n",
        "{#a",
        "# {#",
    ];
    let other = [
        "<",
        "<a ",
        "<b>",
        "</b>",
        "&",
        "&a",
        "{\\",
        "{",
        "\"",
        "\"a\" ",
        "\\\"",
        "\\",
        "-a\n",
        "<v a>b\n",
        "NOTE\n",
        "1\n",
        "00:00:01,000 --> 00:00:02,000\na\n",
        "文",
        "文\n",
        "a b ",
        "a   b\tc   ",
        "msgid \"\\na\"\nmsgstr \"\"\n",
        "msgstr \"\"\n",
        "\"\\n\"\n",
    ];
    let lines = [">", "> a\n", "- a\n", "- ", "1. ", "\t", " ", "\n", "\r", "a\n", "a b "];
    let size = effort::cases(2_000, 40_000);
    for format in Format::ALL {
        let own: &[&str] =
            if matches!(format, Format::Markdown | Format::Html) { &markup } else { &other };
        for pattern in own.iter().chain(&lines) {
            let [small, large] = [size, 10 * size].map(|size| {
                let mut text = pattern.repeat(size / pattern.len());
                text.push_str(" end");
                text
            });
            let mut ratio = 0.0;
            for attempt in 1..=4 {
                // The system counts in ticks.
                let least = time(&small, format, attempt).max(Duration::from_millis(4));
                ratio = time(&large, format, attempt).as_secs_f64() / least.as_secs_f64();
                if ratio < 40.0 {
                    break;
                }
            }
            assert!(ratio < 40.0, "{format}: {pattern:?} takes {ratio:.0} times as long");
        }
    }
}
