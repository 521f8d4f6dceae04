//! Documents of all formats: what their segments are, and that everything else stays.

use crate::office::shout;
use simdformer_documents::Error;
use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText};
use simdformer_documents::{Blocks, Document, DocumentWriter, Format, ReadOptions};
use std::fs;
use std::path::Path;

/// The files of `documents`, with their names.
pub fn files() -> Vec<(String, Format, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents");
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, Format::from_path(&path).unwrap(), fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// The document with other line ends, none at its end, and a byte order mark.
fn variants(text: &str) -> Vec<String> {
    let carriage = text.replace('\n', "\r\n");
    let mut all = vec![text.to_string(), carriage.clone()];
    for text in [text, &carriage] {
        all.push(text.trim_end_matches(['\r', '\n']).to_string());
        all.push(format!("\u{feff}{text}"));
    }
    all
}

fn parse(text: &str, format: Format) -> Document {
    Document::parse(text, format).unwrap()
}

fn texts(text: &str, format: Format) -> Vec<String> {
    parse(text, format).segments().iter().map(|segment| segment.text.clone()).collect()
}

fn plain(text: &str) -> MarkedText {
    MarkedText { text: text.to_string(), marks: Vec::new() }
}

/// The segments without the source of their marks, in which there may be segments.
fn without_markup(segments: &[MarkedText]) -> Vec<MarkedText> {
    let mut segments = segments.to_vec();
    for mark in segments.iter_mut().flat_map(|segment| &mut segment.marks) {
        match &mut mark.kind {
            MarkKind::Wrap { open, close } => {
                open.clear();
                close.clear();
            }
            MarkKind::Keep { source: Some(source) } | MarkKind::Point { source } => source.clear(),
            MarkKind::Keep { source: None } => {}
        }
    }
    segments
}

/// What lies between the segments.
fn skeleton(document: &Document) -> String {
    let segments = vec![plain("\u{1}X"); document.segments().len()];
    document.render(&segments).unwrap()
}

/// Whether a format has a place for translations beside the texts.
fn has_targets(format: Format) -> bool {
    matches!(format, Format::Gettext | Format::Tmx | Format::Xliff)
}

#[test]
fn sixty_documents_come_back_byte_for_byte() {
    let files = files();
    assert!(files.len() >= 60);
    for format in Format::ALL {
        let least = if has_targets(format) { 1 } else { 4 };
        assert!(files.iter().filter(|(_, of, _)| *of == format).count() >= least, "{format}");
    }
    for (name, format, text) in files {
        for text in variants(&text) {
            let document = parse(&text, format);
            assert_eq!(document.render(document.segments()).unwrap(), text, "{name}");
            let mut writer = DocumentWriter::new(document);
            let mut steps = String::new();
            while let Some(segment) = writer.next_segment().cloned() {
                writer.write(&segment, &mut steps).unwrap();
            }
            writer.finish(&mut steps).unwrap();
            assert_eq!(steps, text, "{name}");
        }
    }
}

/// Another letter of the same case and width.
fn other(c: char) -> char {
    let next = |first: char, last: char| {
        if c == last { first } else { char::from_u32(u32::from(c) + 1).unwrap() }
    };
    match c {
        'a'..='z' => next('a', 'z'),
        'A'..='Z' => next('A', 'Z'),
        'а'..='я' => next('а', 'я'),
        'А'..='Я' => next('А', 'Я'),
        'ب'..='غ' => next('ب', 'غ'),
        'क'..='ह' => next('क', 'ह'),
        '一'..='龠' => next('一', '龠'),
        '가'..='힣' => next('가', '힣'),
        other => other,
    }
}

/// Other letters with the same marks; what is kept stays.
fn changed(segment: &MarkedText) -> MarkedText {
    let kept = |at: usize| {
        segment
            .marks
            .iter()
            .any(|mark| matches!(mark.kind, MarkKind::Keep { .. }) && mark.range.contains(&at))
    };
    let text =
        segment.text.char_indices().map(|(at, c)| if kept(at) { c } else { other(c) }).collect();
    MarkedText { text, marks: segment.marks.clone() }
}

#[test]
fn changed_segments_are_found_again_in_the_same_structure() {
    for (name, format, text) in files() {
        for text in variants(&text) {
            let document = parse(&text, format);
            let segments: Vec<MarkedText> = document.segments().iter().map(changed).collect();
            let written = document.render(&segments).unwrap();
            let again = parse(&written, format);
            if has_targets(format) {
                assert_eq!(again.segments(), [], "{name}: a text with a translation is no segment");
                continue;
            }
            let [found, expected] = [again.segments(), &segments].map(without_markup);
            assert_eq!(found, expected, "{name}\n{written}");
            assert_eq!(skeleton(&again), skeleton(&document), "{name}");
            assert_eq!(again.render(again.segments()).unwrap(), written, "{name}");
        }
    }
}

#[test]
fn markup_in_a_translation_is_text() {
    let general = [
        "a # 1 * 2_3 [a](b) <b> &amp; \\* `x` | y ~~z~~ ~q~ $1$ ![i](u) end",
        "*x* _y_ **z** __w__",
        "a --> b",
        "</p><script>x</script>",
        "\"quotes\" \\n \\",
        "Title {#id}",
        "Title #",
        "x\\",
        "http://a.b/c_d_e~f see",
        "&#65; &eacute; & b",
        "<!-- z",
        "a < b > c",
        "x `` y ` z",
        "[[a]] b",
        "a non-breaking\u{a0}space",
    ];
    let markdown = [
        "# heading",
        "1. item",
        "12) item",
        "- item",
        "+ plus",
        "* star",
        "> quote",
        "--- rule",
        "=== x",
        "::: box",
        "| a | b |",
        ":-- x",
        "~~~ y",
        "[^1] note",
        "[a]: b",
        "``` z",
        "!!! a",
        "{% x %}",
        "    a",
        "-- | -- a",
    ];
    for (name, format, text) in files() {
        let lists: &[&[&str]] = match format {
            Format::Markdown => &[&general, &markdown],
            Format::Html | Format::WebVtt | Format::Json => &[&general],
            _ => continue,
        };
        let document = parse(&text, format);
        for new in lists.iter().copied().flatten() {
            let segments = vec![plain(new); document.segments().len()];
            let written = document.render(&segments).unwrap();
            let again = parse(&written, format);
            for segment in again.segments() {
                assert_eq!(segment.text.trim_start(), new.trim_start(), "{name}\n{written}");
                assert_eq!(segment.marks, [], "{name}\n{written}");
            }
            assert_eq!(skeleton(&again), skeleton(&document), "{name}\n{written}");
        }
    }
}

#[test]
fn paragraphs_of_plain_text() {
    let of = |text| texts(text, Format::Plain);
    // Wrapped lines are one segment.
    assert_eq!(
        of(
            "The old white house at the end of the street has\nbeen empty for years. Nobody knows who owns it, or\nwhy.\n"
        ),
        [
            "The old white house at the end of the street has been empty for years. Nobody knows who owns it, or why."
        ]
    );
    // Sentences, verse and addresses keep their lines.
    for name in ["sentences.txt", "verse.txt", "hindi.txt"] {
        let (_, format, text) = files().into_iter().find(|file| file.0 == name).unwrap();
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(texts(&text, format), lines);
    }
    assert_eq!(
        of("Marie Dupont\n12, rue des Lilas\n69003 Lyon\n"),
        ["Marie Dupont", "12, rue des Lilas", "69003 Lyon"]
    );
    assert_eq!(of("> - one\n> - two\n"), ["one", "two"]);
    assert_eq!(of("key\tvalue\nname    city\n"), ["key", "value", "name", "city"]);
    assert_eq!(of("3.14\n----\n"), [""; 0]);
    // A number that continues a sentence begins no item. In a list it does.
    let date = "Die nächste Versammlung des Vereins findet am\n12. Dezember im Rathaus am Markt statt, und alle\nMitglieder sind eingeladen.\n";
    assert_eq!(of(date), [date.trim_end().replace('\n', " ")]);
    assert_eq!(
        of(
            "Was wir für die nächste Versammlung noch brauchen:\n2. einen Raum\n1. Stühle und Tische für alle Mitglieder im Ort\n2. Kaffee\n"
        ),
        [
            "Was wir für die nächste Versammlung noch brauchen:",
            "einen Raum",
            "Stühle und Tische für alle Mitglieder im Ort",
            "Kaffee"
        ]
    );
    let (_, format, text) = files().into_iter().find(|file| file.0 == "chinese.txt").unwrap();
    assert_eq!(
        texts(&text, format)[0],
        "很久很久以前，在一个遥远的村庄里住着一位老人和他的三个儿子。老人每天早上都会到河边去打水，然后回家给孩子们做饭。"
    );
}

#[test]
fn lines_of_template_tags_are_no_text() {
    let source = "{% block a_b %}\nOne line of text\n{% if x < 3 %}{# a *note* #}\n\nmore {% tag %}\n{{< figure src=\"a_b.png\" >}}\n{% endblock %}\n";
    for format in [Format::Plain, Format::Markdown] {
        assert_eq!(texts(source, format), ["One line of text", "more {% tag %}"], "{format}");
        let document = parse(source, format);
        assert_eq!(document.render(document.segments()).unwrap(), source, "{format}");
    }
    assert_eq!(
        texts("- {% for x in y %}\n- {{ x }} is\n  {% endfor\n", Format::Markdown),
        ["{{ x }} is {% endfor"]
    );
}

#[test]
fn a_plain_paragraph_is_wrapped_again_at_its_width() {
    let source = "> The old white house at the end of the street has\n> been empty for years, and nobody knows why.\nrest\n";
    let document = parse(source, Format::Plain);
    let mut segments = document.segments().to_vec();
    segments[0] = plain(
        "La vieille maison blanche au bout de la rue est vide depuis des années, et personne ne sait pourquoi.",
    );
    assert_eq!(
        document.render(&segments).unwrap(),
        "> La vieille maison blanche au bout de la rue est\n> vide depuis des années, et personne ne sait\n> pourquoi.\nrest\n"
    );
}

/// The segments with their marks, as markup of one kind.
fn shown(text: &str, format: Format) -> Vec<String> {
    let show = |segment: &MarkedText| {
        let mut insertions: Vec<(usize, usize, String)> = Vec::new();
        for (order, mark) in segment.marks.iter().enumerate() {
            let (begin, end) = (mark.range.start, mark.range.end);
            match &mark.kind {
                MarkKind::Wrap { open, close } => {
                    insertions.push((begin, 1000 + order, format!("⟨{open}⟩")));
                    insertions.push((end, 1000 - order, format!("⟨{close}⟩")));
                }
                MarkKind::Keep { source } => {
                    insertions.push((begin, 1000 + order, "⟦".to_string()));
                    insertions.push((end, 500, format!("={}⟧", source.as_deref().unwrap())));
                }
                MarkKind::Point { source } => {
                    insertions.push((begin, 1000 + order, format!("⟪{source}⟫")))
                }
            }
        }
        insertions.sort();
        let mut text = segment.text.clone();
        for (at, _, insertion) in insertions.iter().rev() {
            text.insert_str(*at, insertion);
        }
        text
    };
    parse(text, format).segments().iter().map(show).collect()
}

#[test]
fn marks_of_markdown() {
    let of = |text| shown(text, Format::Markdown);
    assert_eq!(of("a *white* **old `x`** house\n"), ["a ⟨*⟩white⟨*⟩ ⟨**⟩old ⟦x=`x`⟧⟨**⟩ house"]);
    assert_eq!(
        of("see [the *docs*](u \"t\") now\n"),
        ["t", "see ⟨[⟩the ⟨*⟩docs⟨*⟩⟨](u \"t\")⟩ now"]
    );
    assert_eq!(of("see [docs] now\n\n[docs]: u\n"), ["see ⟨[⟩docs⟨][docs]⟩ now"]);
    assert_eq!(of("see [docs][] now\n\n[docs]: u\n"), ["see ⟨[⟩docs⟨][docs]⟩ now"]);
    // Also where the link is the whole segment: else the label would be lost.
    assert_eq!(of("[docs]\n\n[docs]: u\n"), ["⟨[⟩docs⟨][docs]⟩"]);
    assert_eq!(of("[docs][d]\n\n[d]: u\n"), ["⟨[⟩docs⟨][d]⟩"]);
    assert_eq!(of("**all of it**\n"), ["all of it"]);
    assert_eq!(
        of("an ![alt](i.png) image[^1] <http://e.org>\n\n[^1]: n\n"),
        ["alt", "an ⟪![alt](i.png)⟫ image⟪[^1]⟫ ⟦http://e.org=<http://e.org>⟧", "n"]
    );
    assert_eq!(of("> one\n> two  \n> three\\\n> four\n"), ["one two", "three", "four"]);
    assert_eq!(of("\\# a \\* b &eacute;\n"), ["# a * b é"]);
    assert_eq!(of("# Title {#id}\n\nOther {.c}\n---\n"), ["Title", "Other"]);
    assert_eq!(of("# Hello {name}\n"), ["Hello {name}"]);
    assert_eq!(
        of("press <kbd>A</kbd>, <b class=\"x\">now</b><br>then\n"),
        ["press ⟦A=<kbd>A</kbd>⟧, ⟨<b class=\"x\">⟩now⟨</b>⟩", "then"]
    );
    assert_eq!(of("::: note\none\n:::\n\n!!! tip\n\n:::\ntwo\n"), ["one", "two"]);
    assert_eq!(of("中文\n文字 and\nmore\n"), ["中文文字 and more"]);
    assert_eq!(
        of("---\ntitle: T\n---\n\n<p>In <i>HTML</i></p>\n\n    code\n\n- [ ] task\n"),
        ["In ⟨<i>⟩HTML⟨</i>⟩", "task"]
    );
}

#[test]
fn marks_of_html() {
    let of = |text| shown(text, Format::Html);
    assert_eq!(
        of("<p>a <b>white</b> <code>x</code> house<br/>two</p>"),
        ["a ⟨<b>⟩white⟨</b>⟩ ⟦x=<code>x</code>⟧ house", "two"]
    );
    assert_eq!(of("<p>a\n  <i> b </i> c</p>"), ["a ⟨<i>⟩b ⟨</i>⟩c"]);
    assert_eq!(
        of("<p>a <span translate='no'>B <b>C</b></span> d</p>"),
        ["a ⟦B C=<span translate='no'>B <b>C</b></span>⟧ d"]
    );
    assert_eq!(of("<div class='x notranslate'><div>a</div>b</div>c"), ["c"]);
    assert_eq!(of("<p>x <img src=a> y<!-- c --> z</p>"), ["x ⟪<img src=a>⟫ y⟪<!-- c -->⟫ z"]);
    assert_eq!(of("<p><b>a<br>b</b> c</p>"), ["a", "b⟪</b>⟫ c"]);
    assert_eq!(of("<p>t&eacute; &lt;b> &nbsp; &copy 1 AT&T</p>"), ["té <b> \u{a0} © 1 AT&T"]);
    assert_eq!(of("<title>A &amp; <b></title><p><a href=x><b>All</b></a></p>"), ["A & <b>", "All"]);
    assert_eq!(of("<p>a <x id='1'/> b <a></a>c</p>"), ["a ⟪<x id='1'/>⟫ b ⟪<a></a>⟫c"]);
    assert_eq!(of("<pre>a</pre><script>b</script><p>12</p><textarea>c</textarea>"), [""; 0]);
}

#[test]
fn cues() {
    let srt = "1\n00:00:01,000 --> 00:00:02,000\n<i>Hello\nthere</i> you {\\an8}x\n\n2\n00:00:02,000 --> 00:00:03,000\n- One\n- Two\nlines\n";
    assert_eq!(
        shown(srt, Format::Srt),
        ["⟨<i>⟩Hello there⟨</i>⟩ you ⟪{\\an8}⟫x", "One", "Two lines"]
    );
    let tagged = "1\n00:00:01,000 --> 00:00:02,000\n<i>- One</i>\n<i>- Two</i>\n";
    assert_eq!(shown(tagged, Format::Srt), ["One", "Two"]);
    let vtt = "WEBVTT\n\nSTYLE\n::cue {}\n\nNOTE no\n\nid\n00:01.000 --> 00:02.000 align:left\n<v Ann>One &amp; <c.x>two</c>\n<v Bob>Three\n";
    assert_eq!(shown(vtt, Format::WebVtt), ["One & ⟨<c.x>⟩two⟨</c>⟩", "Three"]);
    let document = parse(srt, Format::Srt);
    let mut segments = document.segments().to_vec();
    segments[0] = plain("une phrase qui est bien plus longue --> que l'autre");
    assert_eq!(
        document.render(&segments).unwrap().lines().skip(2).take(3).collect::<Vec<_>>(),
        ["une phrase qui est bien", "plus longue → que l'autre", ""]
    );
}

#[test]
fn strings_of_json() {
    assert_eq!(
        texts(r#"{"k": "a\n\"b\" \u00e9\ud83d\ude00", "n": ["c", 1]}"#, Format::Json),
        ["a", "\"b\" é😀", "c"]
    );
    let document = parse(r#"{"k":"\u00e9t"}"#, Format::Json);
    assert_eq!(
        document.render(&[plain("à \"b\"\u{1}😀")]).unwrap(),
        r#"{"k":"\u00e0 \"b\"\u0001\ud83d\ude00"}"#
    );
    for unfinished in ["b}\n", "b\\\n\"}"] {
        let text = format!("{{\n\"a\": \"{unfinished}");
        let error = Document::parse(&text, Format::Json).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2 of the json document: expected the quotation mark that ends the string, found none"
        );
    }
}

#[test]
fn messages_of_gettext() {
    let (_, format, text) = files().into_iter().find(|file| file.0 == "messages.po").unwrap();
    let document = parse(&text, format);
    let segments: Vec<MarkedText> = document.segments().iter().map(changed).collect();
    let shown = shown(&text, format);
    assert_eq!(
        shown,
        ["Open the file", "%d file", "%d files", "First line ⟪\\n⟫Second \"line\"", "Menu"]
    );
    let written = document.render(&segments).unwrap();
    let translations: Vec<&str> =
        written.lines().filter(|line| line.starts_with("msgstr")).skip(1).collect();
    assert_eq!(
        translations,
        [
            "msgstr \"Pqfo uif gjmf\"",
            "msgstr[0] \"%e gjmf\\n\"",
            "msgstr[1] \"%e gjmft\\n\"",
            "msgstr \"Gjstu mjof\\nTfdpoe \\\"mjof\\\"\"",
            "msgstr \"Fertig\"",
            "msgstr \"Nfov\"",
        ]
    );
    let error = Document::parse("msgid \"a\nmsgstr \"\"\n", format).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1 of the po document: expected the quotation mark that ends the string, found \"msgid \\\"a\""
    );
}

fn wrap(range: std::ops::Range<usize>, open: &str, close: &str) -> Mark {
    Mark { range, kind: MarkKind::Wrap { open: open.to_string(), close: close.to_string() }, id: 0 }
}

/// An emphasis in a place where Markdown would read none becomes a tag.
#[test]
fn emphasis_stays_readable() {
    let document = parse("a *b* **c**\n", Format::Markdown);
    let written = |text: &str, marks: &[Mark]| {
        document.render(&[MarkedText { text: text.to_string(), marks: marks.to_vec() }]).unwrap()
    };
    assert_eq!(written("mot clé ici", &[wrap(3..9, "*", "*")]), "mot *clé* ici\n");
    assert_eq!(
        written("dit «oui»donc", &[wrap(4..11, "**", "**")]),
        "dit <strong>«oui»</strong>donc\n"
    );
    assert_eq!(written("audemus", &[wrap(2..4, "_", "_")]), "au<em>de</em>mus\n");
    assert_eq!(written("audemus", &[wrap(2..4, "*", "*")]), "au*de*mus\n");
    assert_eq!(written("ab c", &[wrap(0..1, "*", "*"), wrap(1..2, "*", "*")]), "*a*<em>b</em> c\n");
    assert_eq!(written("a b", &[wrap(1..2, "*", "*")]), "a b\n");
    assert_eq!(written("ça! là", &[wrap(5..8, "[", "](u)")]), "ça! [là](u)\n");
    assert_eq!(written("ça!là", &[wrap(4..7, "[", "](u)")]), "ça\\![là](u)\n");
    // White space of code is not that of the emphasis around it.
    let code = Mark { range: 2..4, kind: MarkKind::Keep { source: Some("` e`".into()) }, id: 1 };
    assert_eq!(written("a  e", &[wrap(2..4, "_", "_"), code.clone()]), "a _` e`_\n");
    assert_eq!(written("a  e b ", &[wrap(1..7, "_", "_"), code]), "a _` e` b_\n");
}

#[test]
fn wrong_segments_are_errors() {
    let document = parse("one\n\ntwo\n", Format::Plain);
    let one = plain("one");
    let wrong = |found: Result<String, Error>, number: usize| {
        let text = format!("segments: expected 2, as the document has, found {number}");
        assert_eq!(found.map_err(|error| error.to_string()), Err(text));
    };
    wrong(document.render(std::slice::from_ref(&one)), 1);
    let mut writer = DocumentWriter::new(document.clone());
    let mut out = String::new();
    let missing = writer.clone().finish(&mut out);
    wrong(missing.map(|()| String::new()), 0);
    writer.write(&one, &mut out).unwrap();
    writer.write(&one, &mut out).unwrap();
    let more = writer.write(&one, &mut out);
    wrong(more.map(|()| String::new()), 3);
    for (marks, reason) in [
        (vec![wrap(2..9, "<", ">")], "a mark that is not in the text or splits a character"),
        (
            vec![wrap(0..1, "<", ">"), wrap(1..2, "<", ">")],
            "a mark that is not in the text or splits a character",
        ),
        (
            vec![wrap(0..3, "<", ">"), wrap(2..4, "<", ">")],
            "a mark that begins inside another and ends after it",
        ),
    ] {
        let broken = MarkedText { text: "\u{e9}ab".to_string(), marks };
        let error = document.render(&[one.clone(), broken]).unwrap_err();
        assert!(matches!(error, Error::InvalidInput { index: Some(1), .. }), "{error:?}");
        let text = format!("segment 1: expected marks that fit its text, found {reason}");
        assert_eq!(error.to_string(), text);
    }
    let kept = Mark { range: 0..3, kind: MarkKind::Keep { source: Some("k".to_string()) }, id: 0 };
    let broken = MarkedText { text: "abcd".to_string(), marks: vec![kept, wrap(1..2, "<", ">")] };
    assert!(document.render(&[broken, one]).is_err());
}

/// A placeholder that the translator protects is text of the document.
#[test]
fn placeholders_are_written_as_text() {
    let document = parse("<p>a {x} b</p>", Format::Html);
    let keep = Mark { range: 2..5, kind: MarkKind::Keep { source: None }, id: 0 };
    let same = MarkedText { text: "a {x} b".to_string(), marks: vec![keep] };
    assert_eq!(document.render(std::slice::from_ref(&same)).unwrap(), "<p>a {x} b</p>");
    let mut other = same;
    other.text = "é <x> b".to_string();
    assert_eq!(document.render(&[other]).unwrap(), "<p>é &lt;x&gt; b</p>");
}

#[test]
fn blocks_are_documents() {
    for (name, format, text) in files() {
        for text in variants(&text) {
            let whole = parse(&text, format);
            for size in [0, 40, 1 << 16] {
                let parts: Vec<String> =
                    Blocks::new(text.as_bytes(), format, size).map(Result::unwrap).collect();
                assert_eq!(parts.concat(), text, "{name}");
                let segments: Vec<MarkedText> =
                    parts.iter().flat_map(|part| parse(part, format).segments().to_vec()).collect();
                assert_eq!(segments, whole.segments(), "{name}, {size}");
            }
        }
    }
    let long = "one line\n".repeat(400_000);
    let parts: Vec<String> =
        Blocks::new(long.as_bytes(), Format::Plain, 0).map(Result::unwrap).collect();
    assert_eq!(parts.len(), 4);
    assert_eq!(parts.concat(), long);
    let mut blocks = Blocks::new(&b"one\n\ntw\xff\n"[..], Format::Plain, 0);
    assert_eq!(blocks.next().unwrap().unwrap(), "one\n\n");
    assert_eq!(blocks.next().unwrap().unwrap_err().to_string(), "expected UTF-8, byte 7 is not");
    assert!(blocks.next().is_none());
}

#[test]
fn formats_are_guessed() {
    // Nothing in these shows their format, or not at their begin.
    let others = [
        ("broken.srt", Format::Plain),
        ("comments.html", Format::Plain),
        ("escapes.md", Format::Plain),
        ("fragment.html", Format::Plain),
        ("html_in_markdown.md", Format::Html),
        ("no_header.vtt", Format::Srt),
        ("quotes.md", Format::Plain),
        ("svg.html", Format::Plain),
        ("template.html", Format::Plain),
    ];
    for (name, format, text) in files() {
        let expected = others.iter().find(|other| other.0 == name).map_or(format, |other| other.1);
        assert_eq!(Format::guess(&text), expected, "{name}");
    }
    assert_eq!(Format::from_path("a/b.MD"), Some(Format::Markdown));
    assert_eq!(Format::from_path("a/b.docx"), None);
    assert_eq!(Format::from_path("README"), None);
}

/// A document of pairs whose segments are written in capitals, for a language.
fn pairs(source: &str, format: Format, target: Option<&str>) -> Result<String, Error> {
    let options = ReadOptions { target: target.map(str::to_owned), ..ReadOptions::default() };
    let document = Document::parse_with(source, format, &options)?;
    assert_eq!(document.render(document.segments())?, source);
    let segments: Vec<MarkedText> = document.segments().iter().map(shout).collect();
    document.render(&segments)
}

#[test]
fn languages_of_a_memory_may_have_regions() {
    let variant = |language: &str, text: &str| {
        format!("<tuv xml:lang=\"{language}\"><seg>{text}</seg></tuv>")
    };
    let unit = |variants: &[String]| format!("<tu>{}</tu>", variants.concat());
    let memory = |language: &str, units: &[String]| {
        format!("<tmx><header srclang=\"{language}\"/><body>{}</body></tmx>", units.concat())
    };
    // A target of another region is another target, and one without a region is any.
    let units = [variant("fr-FR", "oui"), variant("en-GB", ""), variant("en-US", "")];
    let source = memory("fr", &[unit(&units), unit(&[variant("FR", "non")])]);
    for (target, expected, new) in [
        (Some("en-US"), [variant("en-GB", ""), variant("en-US", "OUI")], "en-US"),
        (Some("eng_Latn"), [variant("en-GB", "OUI"), variant("en-US", "")], "en-GB"),
        (None, [variant("en-GB", "OUI"), variant("en-US", "")], "en-GB"),
    ] {
        let written = pairs(&source, Format::Tmx, target).unwrap();
        assert!(written.contains(&expected.concat()), "{target:?}: {written}");
        let new = unit(&[variant("FR", "non"), variant(new, "NON")]);
        assert!(written.contains(&new), "{target:?}: {written}");
    }
    // The source is the variant of its own region.
    let both = unit(&[variant("en-GB", ""), variant("en-US", "color"), variant("de", "")]);
    let written = pairs(&memory("en-us", &[both]), Format::Tmx, Some("de")).unwrap();
    assert!(written.contains(&variant("de", "COLOR")), "{written}");
}

#[test]
fn files_for_translators_name_the_language_of_their_targets() {
    let unit = "<unit><segment><source>oui</source></segment></unit>";
    let two = format!("<xliff version=\"2.0\"\n srcLang='fr'><file>{unit}{unit}</file></xliff>");
    let error = pairs(&two, Format::Xliff, None).unwrap_err().to_string();
    assert!(error.contains("line 1 of the xliff document"), "{error}");
    assert!(error.contains("expected an attribute trgLang, or the language of"), "{error}");
    let written = pairs(&two, Format::Xliff, Some("eng_Latn")).unwrap();
    assert!(
        written.starts_with("<xliff version=\"2.0\"\n srcLang='fr' trgLang=\"en\"><file>"),
        "{written}"
    );
    assert_eq!(written.matches("<target>OUI</target>").count(), 2, "{written}");
    // Of the second unit alone, and of none.
    let options = ReadOptions { target: Some("en".to_owned()), ..ReadOptions::default() };
    let document = Document::parse_with(&two, Format::Xliff, &options).unwrap();
    let written = document.render(&[plain("oui"), plain("yes")]).unwrap();
    assert!(written.contains(" trgLang=\"en\">"), "{written}");
    assert_eq!(written.matches("<target>").count(), 1, "{written}");
    let none = two.replace("oui", "12");
    assert_eq!(pairs(&none, Format::Xliff, None).unwrap(), none);
    // In XLIFF 1.2 each file may.
    let unit = "<trans-unit><source>oui</source></trans-unit>";
    let file =
        |named: &str| format!("<file source-language=\"fr\"{named}><body>{unit}</body></file>");
    let one = format!(
        "<xliff version=\"1.2\">{}{}{}</xliff>",
        file(""),
        file(" target-language=\"en-GB\""),
        file("")
    );
    let written = pairs(&one, Format::Xliff, None).unwrap();
    assert_eq!(written.matches("target-language").count(), 1, "{written}");
    let written = pairs(&one, Format::Xliff, Some("en")).unwrap();
    assert_eq!(
        written.matches("<file source-language=\"fr\" target-language=\"en\">").count(),
        2,
        "{written}"
    );
    assert_eq!(written.matches("target-language=\"en-GB\">").count(), 1, "{written}");
    // A file in which no target is written stays as it is.
    let document = Document::parse_with(&one, Format::Xliff, &options).unwrap();
    for changed in 0..3 {
        let texts = [0, 1, 2].map(|file| plain(if file == changed { "yes" } else { "oui" }));
        let written = document.render(&texts).unwrap();
        let files = |text: &str| text.split("</file>").map(str::to_owned).collect::<Vec<_>>();
        let (before, after) = (files(&one), files(&written));
        for file in 0..3 {
            assert_eq!(before[file] == after[file], file != changed, "{changed}: {written}");
        }
        assert_eq!(written.matches("target-language").count(), 1 + usize::from(changed != 1));
    }
}

#[test]
fn elements_of_other_versions_and_vocabularies_are_no_units() {
    let one = "<xliff version=\"1.2\"><file source-language=\"fr\" target-language=\"en\"><body>\
               <trans-unit><x:segment/><source>oui</source></trans-unit></body></file></xliff>";
    let written = pairs(one, Format::Xliff, None).unwrap();
    assert!(written.contains(">OUI</target>"), "{written}");
    let two = "<xliff version=\"2.0\" trgLang=\"en\"><file><unit><segment><x:trans-unit/>\
               <source>oui</source></segment></unit></file></xliff>";
    let written = pairs(two, Format::Xliff, None).unwrap();
    assert!(written.contains("<target>OUI</target>"), "{written}");
}

#[test]
fn parts_of_a_unit_lie_directly_in_it() {
    let unit = |inside: &str| {
        format!("<xliff version=\"2.0\" trgLang=\"en\"><file><unit>{inside}</unit></file></xliff>")
    };
    // A match of the memory, before the segment and in it, and a target that a change replaced.
    let other = "<m:match><source>le chat</source><target>the cat</target></m:match>";
    let written = pairs(
        &unit(&format!(
            "<m:matches>{other}</m:matches><segment><source>oui <pc id=\"1\">et <pc id=\"2\">non</pc></pc></source>\
             <x:x>{other}</x:x></segment>"
        )),
        Format::Xliff,
        None,
    );
    let target = "<target>OUI <pc id=\"1\">ET <pc id=\"2\">NON</pc></pc></target>";
    let written = written.unwrap();
    assert!(written.contains(&format!("</pc></source>{target}<x:x>{other}</x:x>")), "{written}");
    // Units in each other.
    for (format, inside) in [
        (Format::Xliff, unit("<segment><segment/><source>oui</source></segment>")),
        (Format::Xliff, "<xliff><trans-unit><a><trans-unit/></a></trans-unit></xliff>".to_owned()),
        (
            Format::Tmx,
            "<tmx><tu><tuv xml:lang=\"fr\"><seg>a</seg></tuv><tu/></tu></tmx>".to_owned(),
        ),
    ] {
        let error = pairs(&inside, format, Some("en")).unwrap_err().to_string();
        assert!(error.contains("expected units that are not in each other, found <"), "{error}");
    }
    // Which of the two texts is the source?
    let memory =
        "<tmx><tu><tuv><seg>a</seg></tuv><tuv xml:lang=\"fr\"><seg>b</seg></tuv></tu></tmx>";
    let error = pairs(memory, Format::Tmx, Some("en")).unwrap_err().to_string();
    assert!(error.contains("expected a <tuv> with xml:lang, found one without it"), "{error}");
}

#[test]
fn pairs_for_translators() {
    let shouted = |name: &str, expected: &[&str]| {
        let (_, format, text) = files().into_iter().find(|(one, ..)| one == name).unwrap();
        assert_eq!(texts(&text, format), expected, "{name}");
        let document = parse(&text, format);
        let segments: Vec<MarkedText> = document.segments().iter().map(shout).collect();
        document.render(&segments).unwrap()
    };
    let mark = "<bpt i=\"1\" x=\"1\">&lt;b&gt;</bpt>VIEILLE<ept i=\"1\">&lt;/b&gt;</ept>";
    let memory = shouted("memory.tmx", &["La vieille maison & le chat", "une maison", "une page"]);
    for expected in [
        &*format!("<seg>LA {mark} MAISON<ph x=\"2\">&lt;br/&gt;</ph> &amp; <hi>LE CHAT</hi></seg>"),
        "une maison</seg></tuv>\n      <tuv xml:lang=\"en-US\"><seg>UNE MAISON</seg></tuv>\n    </tu>",
        "<tuv xml:lang=\"en-US\"><seg>UNE PAGE</seg></tuv>",
    ] {
        assert!(memory.contains(expected), "{expected}: {memory}");
    }
    let units = shouted(
        "units.xliff",
        &["quel mois", "La vieille maison blanche et Paul", "le chien", "une page"],
    );
    let state = "state=\"needs-review-translation\"";
    for expected in [
        &*format!("<source>quel mois</source>\n        <target {state}>QUEL MOIS</target>"),
        &*format!(
            "<target xml:lang=\"en\" {state}>LA <g id=\"1\" ctype=\"bold\">VIEILLE</g> MAISON"
        ),
        "ET <mrk mtype=\"protected\">Paul</mrk></target>",
        &*format!("</seg-source><target {state}>UNE PAGE</target>"),
    ] {
        assert!(units.contains(expected), "{expected}: {units}");
    }
    let units =
        shouted("units_two.xlf", &["quel mois", "La vieille maison blanche", "une page ici"]);
    for expected in [
        "<segment state=\"translated\">\n        <source>quel mois</source>\n        <target>QUEL MOIS</target>",
        "<segment id=\"s2\" state=\"translated\">",
        "<target>LA <pc id=\"1\">VIEILLE</pc> MAISON<ph id=\"2\"/> <sc id=\"3\"/>BLANCHE<ec startRef=\"3\"/></target>",
        "<target>UNE <mrk id=\"m\" translate=\"no\">page</mrk> ICI</target>",
    ] {
        assert!(units.contains(expected), "{expected}: {units}");
    }
    let one = "<tmx><header srclang=\"fr\"/><body><tu><tuv xml:lang=\"fr\"><seg>oui</seg></tuv></tu></body></tmx>";
    let error = Document::parse(one, Format::Tmx).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("found a unit in \"fr\" alone"), "{error}");
    let options = ReadOptions { target: Some("eng_Latn".to_owned()), ..ReadOptions::default() };
    let document = Document::parse_with(one, Format::Tmx, &options).unwrap();
    let written = document.render(&[plain("yes")]).unwrap();
    assert!(written.contains("</tuv><tuv xml:lang=\"en\"><seg>yes</seg></tuv></tu>"), "{written}");
    let bomb = "<!DOCTYPE a [<!ENTITY b \"ha\">]><tmx/>";
    for format in [Format::Tmx, Format::Xliff] {
        let error = Document::parse(bomb, format).unwrap_err().to_string();
        assert!(error.contains("found a DOCTYPE with declarations"), "{error}");
    }
}
