//! Documents that nobody wrote: they come back byte for byte, soon.

use crate::documents::files;
use crate::random::Random;
use simdformer_documents::marked_text::MarkedText;
use simdformer_documents::sentences::SentenceSplitter;
use simdformer_documents::{Document, Format};
use simdformer_testing::cpu_time::cpu_time;
use simdformer_testing::effort;
use std::time::Duration;

/// Whatever the text is, it comes back, and so do other texts in its places.
fn check(text: &str, format: Format) {
    let document = match Document::parse(text, format) {
        Ok(document) => document,
        Err(error) => {
            let may_fail =
                matches!(format, Format::Json | Format::Gettext | Format::Tmx | Format::Xliff);
            assert!(may_fail, "{format}: {text:?}: {error}");
            return;
        }
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
    for _ in 0..effort::cases(500, 25_000) {
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
    for _ in 0..effort::cases(300, 12_000) {
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

/// What ends a segment in the middle of a link, whose title stands after the rest of its text.
#[test]
fn links_with_breaks_have_titles() {
    let breaks = ["<br>", "<br/> ", "  \n", "\\\n", "<div>", "\n!!! n\n", "\n{% x %}\n"];
    let around =
        [("", ""), ("x ", ""), ("", " y"), ("*x* ", " <i title=\"z\">y</i>"), ("# ", " y")];
    let inside = ["", "![i](v \"j\") ", "<i title=\"k\">l</i> ", "*m* "];
    let mut written = 0;
    for between in breaks {
        for (before, after) in around {
            if before == "# " && between.contains('\n') {
                continue;
            }
            for inner in inside {
                for link in [
                    format!("[a{between}{inner}b](u \"t\")"),
                    format!("[{inner}a{between}b{between}c](u \"t\")"),
                    format!("[a](u \"s\"){between}{inner}[b{between}c](u 't')"),
                ] {
                    let text = format!("{before}{link}{after}\n");
                    check(&text, Format::Markdown);
                    let document = Document::parse(&text, Format::Markdown).unwrap();
                    let mut segments = document.segments().to_vec();
                    let titles: Vec<&mut MarkedText> =
                        segments.iter_mut().filter(|segment| segment.text == "t").collect();
                    assert_eq!(titles.len(), 1, "{text:?}");
                    titles.into_iter().for_each(|title| "new".clone_into(&mut title.text));
                    let found = document.render(&segments).unwrap();
                    let expected = text.replace("\"t\")", "\"new\")").replace("'t')", "'new')");
                    assert_eq!(found, expected);
                    written += 1;
                }
            }
        }
    }
    assert_eq!(written, 372);
}

/// What Markdown and HTML have.
pub const MARKUP: [&str; 72] = [
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
    "> ---\n",
    "- +++\n",
    ">---\n",
    "- a|b\n",
    "![a](b \"c\")",
    "<img alt=\"a\">",
    "<a title='",
    "<p title=a>",
    "<input type=submit value=\"a\">",
    "](a \"",
    "\"",
];

/// What the other formats have.
pub const OTHER: [&str; 42] = [
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
    "msgid \"\"",
    "msgstr \"\"\n",
    "msgid \"a\"\n",
    "msgid_plural \"a\"\n",
    "msgstr[0] \"\"\n",
    "{n, plural, one {",
    "{n, select, a {b} other {",
    "}}",
    "'",
    "'{",
    "#",
    "[\"a {n, plural, other {b}}\"]\n",
    "\\u0041",
    "\n\n",
    "1\n00:00:01,000 --> 00:00:02,000\n- a\n<i>b\n\n",
    "<i>",
    "a.\n",
    "♪ a\n",
];

/// What every format may have.
const LINES: [&str; 11] =
    [">", "> a\n", "- a\n", "- ", "1. ", "\t", " ", "\n", "\r", "a\n", "a b "];

/// What the rules of sentences look at.
const SENTENCES: [&str; 44] = [
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
    "]",
    "[1]",
    "[12",
    ".",
    ". ",
    "...",
    "… ",
    "! ",
    "?",
    "。",
    "．",
    "—",
    "- ",
    " ",
    "\n",
    "\u{a0}»",
    "a",
    "A ",
    "e.g. ",
    "Mr. ",
    "J.-P. ",
    "1. ",
    "12. 5. ",
    "U.S. ",
    "字",
    "あ",
    "ก",
    "หาก",
    "ก ",
    "👍",
    "¿",
    "word ",
];

/// Time to parse and write `text`.
fn time(text: &str, format: Format) -> Duration {
    let begin = cpu_time();
    if let Ok(document) = Document::parse(text, format) {
        assert_eq!(document.render(document.segments()).unwrap(), text);
    }
    cpu_time() - begin
}

/// Whether `run` takes much longer than in proportion for a text that is `times` as long: a quadratic step takes `times`
/// as long again. `run` returns the time for a text of about so many bytes.
fn is_linear(size: usize, times: usize, run: &dyn Fn(usize) -> Duration) -> Result<(), f64> {
    let mut large = run(times * size);
    // The system counts in ticks, so a short time says nothing.
    let least = Duration::from_millis(4);
    let mut ratio = 0.0;
    for _ in 0..4 {
        let small = (0..3).map(|_| run(size)).min().unwrap_or_default().max(least);
        ratio = large.as_secs_f64() / small.as_secs_f64();
        if ratio < 4.0 * times as f64 {
            return Ok(());
        }
        large = large.min(run(times * size));
    }
    Err(ratio)
}

/// Ten times the text takes about ten times as long: a quadratic step would take a hundred times.
#[test]
fn hostile_texts_take_linear_time() {
    let size = effort::cases(2_000, 40_000);
    for format in Format::ALL {
        for pattern in fragments(format) {
            let run = |size: usize| time(&(pattern.repeat(size / pattern.len()) + " end"), format);
            if let Err(ratio) = is_linear(size, 10, &run) {
                panic!("{format}: {pattern:?} takes {ratio:.0} times as long");
            }
        }
    }
}

fn fragments(format: Format) -> Vec<&'static str> {
    let markup = matches!(format, Format::Markdown | Format::Html);
    let own: &[&str] = if markup { &MARKUP } else { &OTHER };
    own.iter().chain(&LINES).copied().collect()
}

/// A text of about `size` bytes of two or three fragments: alternating, one after the other, or the first one before the
/// others alternating.
fn combined(parts: &[&str], shape: usize, size: usize) -> String {
    let many = |part: &str, size: usize| part.repeat((size / part.len()).max(1));
    match (shape % 3, parts) {
        (0, _) => many(&parts.concat(), size),
        (1, [first, rest @ ..]) => many(first, size / 2) + &many(&rest.concat(), size / 2),
        _ => parts.iter().map(|part| many(part, size / parts.len())).collect(),
    }
}

/// Pairs and triples of fragments of a list, in a shape.
fn combination<'f>(fragments: &[&'f str], random: &mut Random) -> (Vec<&'f str>, usize) {
    let count = 2 + random.below(2);
    ((0..count).map(|_| fragments[random.below(fragments.len())]).collect(), random.below(3))
}

#[test]
fn combinations_of_fragments_take_linear_time() {
    let mut random = Random(23);
    for case in 0..effort::cases(500, 15_000) {
        let format = Format::ALL[case % Format::ALL.len()];
        let (parts, shape) = combination(&fragments(format), &mut random);
        let run = |size: usize| time(&combined(&parts, shape, size), format);
        if let Err(ratio) = is_linear(2_000, 16, &run) {
            panic!("{format}: {parts:?} in shape {shape} take {ratio:.0} times as long");
        }
    }
}

#[test]
fn combinations_of_fragments_are_split_in_linear_time() {
    let mut random = Random(29);
    let languages = [None, Some("en"), Some("de"), Some("th"), Some("zh"), Some("fr")];
    let splitters = languages.map(SentenceSplitter::new);
    for case in 0..effort::cases(200, 8_000) {
        let splitter = &splitters[case % splitters.len()];
        let (parts, shape) = combination(&SENTENCES, &mut random);
        let run = |size: usize| {
            let text = combined(&parts, shape, size);
            let begin = cpu_time();
            let sentences = splitter.split(&text);
            assert!(sentences.len() <= text.len());
            let spent = cpu_time() - begin;
            let begin = cpu_time();
            splitter.cut(&text, &mut |part| part.len() < 200);
            // The parts are halved again and again.
            spent + (cpu_time() - begin) / (text.len().max(4).ilog2())
        };
        if let Err(ratio) = is_linear(1_000, 16, &run) {
            panic!("{parts:?} in shape {shape} take {ratio:.0} times as long");
        }
    }
}
