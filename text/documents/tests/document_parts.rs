//! Parts of documents that are texts in other texts: attributes, titles, ICU messages, plural forms; and white space, times
//! and escapes that must stay. The segments are changed and read again, for every combination.

use simdformer_documents::marked_text::MarkedText;
use simdformer_documents::{Document, Format, ReadOptions};

fn parse(text: &str, format: Format) -> Document {
    Document::parse(text, format).unwrap_or_else(|error| panic!("{format}: {text:?}: {error}"))
}

fn texts(text: &str, format: Format) -> Vec<String> {
    parse(text, format).segments().iter().map(|segment| segment.text.clone()).collect()
}

/// The document with `change` of each segment's letters.
fn with(text: &str, format: Format, change: fn(&str) -> String) -> String {
    let document = parse(text, format);
    let new = |segment: &MarkedText| MarkedText {
        text: change(&segment.text),
        marks: segment.marks.clone(),
    };
    let segments: Vec<MarkedText> = document.segments().iter().map(new).collect();
    document.render(&segments).unwrap()
}

/// Without spaces: of two around an element that is not shown, one is left.
fn joined(text: &str) -> String {
    text.replace(' ', "")
}

/// Other letters of the same width.
fn upper(text: &str) -> String {
    text.to_ascii_uppercase()
}

#[test]
fn attributes_that_people_read_are_segments() {
    let read = [
        ("<img src=\"a.png\" alt=\"@\">", true),
        ("<area alt='@'>", true),
        ("<p title=\"@\">1</p>", true),
        ("<a href=\"#\" title='@'>1</a>", true),
        ("<abbr title=\"@\">1</abbr>", true),
        ("<input type=\"submit\" value=\"@\">", true),
        ("<input value='@' type=RESET>", true),
        ("<INPUT TYPE=button VALUE=\"@\">", true),
        ("<input placeholder=\"@\">", true),
        ("<textarea placeholder=\"@\">text</textarea>", true),
        ("<button aria-label=\"@\">1</button>", true),
        ("<svg aria-label=\"@\"><path d=\"a\"/></svg>", true),
        ("<iframe title=\"@\" src=\"a\"></iframe>", true),
        ("<option label=\"@\">1</option>", true),
        ("<track label=\"@\">", true),
        ("<meta name=\"description\" content=\"@\">", true),
        ("<meta content='@' property=\"og:title\"/>", true),
        ("<div aria-valuetext=\"@\"></div>", true),
        ("<br title=\"@\">", true),
        ("<pre title=\"@\">code</pre>", true),
        ("<x-button title=\"@\"></x-button>", true),
        ("<input type=\"text\" value=\"@\">", false),
        ("<input type=\"hidden\" value=\"@\">", false),
        ("<button value=\"@\">1</button>", false),
        ("<meta name=\"author\" content=\"@\">", false),
        ("<link title=\"@\" rel=\"stylesheet\">", false),
        ("<p class=\"@\" id='@' data-title=\"@\">1</p>", false),
        ("<p translate=\"no\" title=\"@\">1</p>", false),
        ("<p class=\"notranslate\" title=\"@\">1</p>", false),
        ("<div translate=\"no\"><img alt=\"@\"></div>", false),
        ("a <span translate=\"no\">b <i title=\"@\">c</i></span>", false),
        ("<!-- <img alt=\"@\"> -->", false),
        ("<script>\"<img alt='@'>\"</script>", false),
    ];
    // Alone, after a block, in the middle of a sentence, at its ends, in a wrap, and in HTML in Markdown.
    let around = [
        "@",
        "<p>une phrase</p>@",
        "<p>une @ phrase</p>",
        "<p>@ phrase @</p>",
        "<p>une <b>deux @ trois</b> quatre</p>",
    ];
    let mut cases = 0;
    for (element, is_read) in read {
        for (format, frame) in [
            (Format::Html, "@"),
            (Format::Markdown, "# titre\n\n@\n"),
            (Format::Markdown, "du texte @ et\n"),
        ] {
            for place in around {
                let block = element.starts_with("<p") || element.starts_with("<div");
                if (frame.starts_with("du") || block) && place.starts_with('<') {
                    continue;
                }
                let text =
                    frame.replace('@', &place.replace('@', &element.replace('@', "le chat & moi")));
                let found = texts(&text, format);
                let expected = if is_read {
                    text.matches(element.split('@').next().unwrap()).count()
                } else {
                    0
                };
                let count = found.iter().filter(|one| *one == "le chat & moi").count();
                assert_eq!(count, expected, "{format}: {text:?}: {found:?}");
                assert_eq!(with(&text, format, str::to_owned), text);
                // Only the segments change.
                let changed = with(&text, format, upper);
                let new = changed.matches("LE CHAT &amp; MOI").count();
                assert_eq!(new, expected, "{format}: {text:?}: {changed:?}");
                assert_eq!(
                    joined(&changed.to_ascii_lowercase().replace("&amp;", "&")),
                    joined(&text.to_ascii_lowercase()),
                    "{format}"
                );
                cases += 1;
                let leave = ReadOptions { attributes: false, ..ReadOptions::default() };
                let without = Document::parse_with(&text, format, &leave).unwrap();
                assert!(
                    without.segments().iter().all(|one| !one.text.contains("le chat")),
                    "{text:?}"
                );
            }
        }
    }
    assert!(cases >= 250, "{cases}");
}

#[test]
fn a_value_is_written_with_its_quotation_marks() {
    let cases = [
        ("<p title=\"le chat\">1</p>", "<p title=\"a &quot;b&quot; 'c' &lt;d> &amp; e\">1</p>"),
        ("<p title='le chat'>1</p>", "<p title='a \"b\" &#39;c&#39; &lt;d> &amp; e'>1</p>"),
        ("<p title=chat>1</p>", "<p title=\"a &quot;b&quot; 'c' &lt;d> &amp; e\">1</p>"),
        ("<p title=' le\n chat '>1</p>", "<p title=' a \"b\" &#39;c&#39; &lt;d> &amp; e '>1</p>"),
        ("![le chat](u)\n", "![a \"b\" 'c' \\<d> & e](u)\n"),
        ("[1](u \"le chat\")\n", "[1](u \"a \\\"b\\\" 'c' <d> & e\")\n"),
        ("[1](u 'le chat')\n", "[1](u 'a \"b\" \\'c\\' <d> & e')\n"),
        ("[1](u (le chat))\n", "[1](u (a \"b\" 'c' <d> & e))\n"),
        ("[1]\n\n[1]: u \"le chat\"\n", "[1]\n\n[1]: u \"a \\\"b\\\" 'c' <d> & e\"\n"),
        ("| ![le chat](u) |\n|---|\n", "| ![a \"b\" 'c' \\<d> & e](u) |\n|---|\n"),
    ];
    for (text, expected) in cases {
        let format = if text.starts_with('<') { Format::Html } else { Format::Markdown };
        assert_eq!(with(text, format, |_| "a \"b\" 'c' <d> & e".to_owned()), expected);
        assert_eq!(texts(expected, format), ["a \"b\" 'c' <d> & e"], "{expected}");
    }
}

#[test]
fn titles_and_alternative_texts_of_markdown() {
    let of = |text: &str| texts(text, Format::Markdown);
    assert_eq!(of("une ![alt *a*](i.png \"titre\") image\n"), ["alt a", "titre", "une  image"]);
    assert_eq!(of("[![alt](i.png)](u \"titre\")\n"), ["alt", "titre"]);
    assert_eq!(of("![a ![b](c) d](e)\n"), ["a  d"]);
    assert_eq!(
        of("texte\n\n[a]: u \"titre a\"\n\n> [b]: u (titre b)\n\nfin [a] [b]\n"),
        ["texte", "titre a", "titre b", "fin a b"]
    );
    assert_eq!(of("![alt\nde *deux* lignes  \nou trois](u)\n"), ["alt de deux lignes ou trois"]);
    let text =
        "une ![le chat](i.png \"un titre\") et [un lien](u 'deux') ici\n\n[c]: u \"trois\"\n";
    assert_eq!(
        with(text, Format::Markdown, upper),
        "UNE ![LE CHAT](i.png \"UN TITRE\") ET [UN LIEN](u 'DEUX') ICI\n\n[c]: u \"TROIS\"\n"
    );
}

/// Titles of definitions in items of lists, whose text follows without a block of its own: no text is lost.
#[test]
fn definitions_before_the_text_of_an_item() {
    let mut count = 0;
    for marker in ["", "- ", "* ", "1. ", "- - ", "> - ", "- > ", "- [ ] il\n- "] {
        for text in ["froid", "**froid**", "![froid](b)", "[a] froid", "froid\n\n", "\\*froid"] {
            for title in ["\"maison\"", "'maison'", "(maison)"] {
                let source = format!("{marker}[a]: /u {title}\n{text}\n");
                let found = texts(&source, Format::Markdown);
                let place = |word| found.iter().position(|text| text.contains(word));
                let places = (place("maison"), place("froid"));
                assert!(places.0.is_some() && places.0 < places.1, "{source:?}: {found:?}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 144);
}

#[test]
fn front_matter_is_at_the_begin_alone() {
    let of = |text: &str| texts(text, Format::Markdown);
    for (open, close) in [("---", "---"), ("---", "..."), ("+++", "+++"), ("--- ", "---\t")] {
        assert_eq!(of(&format!("{open}\ntitle: a\n{close}\ntexte\n")), ["texte"], "{open}");
        assert_eq!(
            of(&format!("\u{feff}{open}\r\ntitle: a\r\n{close}\r\ntexte")),
            ["texte"],
            "{open}"
        );
    }
    assert_eq!(of("texte\n\n---\ntitle: a\n---\n"), ["texte", "title: a"]);
    assert_eq!(of("---\n\ntitle: a\n---\n"), ["title: a"]);
    assert_eq!(of("---\ntitle: a\n"), ["title: a"]);
    let deep =
        |signs: &str| Document::parse(&format!("a\n\n{} b\n", signs), Format::Markdown).err();
    for signs in ["> ".repeat(101), ">".repeat(101), "- ".repeat(101), "1. ".repeat(101)] {
        let text = "line 3 of the markdown document: expected at most 100 quotations and lists in each other, found 101";
        assert_eq!(deep(&signs).map(|error| error.to_string()).as_deref(), Some(text), "{signs}");
        assert!(deep(&signs[..signs.len() / 101 * 100]).is_none());
    }
    for line in ["-".repeat(500), "- ".repeat(500), "*".repeat(500), "= ".repeat(300)] {
        assert!(Document::parse(&format!("a\n\n{line}\nb\n"), Format::Markdown).is_ok(), "{line}");
    }
}

/// Messages of ICU, `@` for each text that is translated; the other letters must stay.
fn icu_messages() -> Vec<String> {
    let texts =
        ["@", "# @", "@ #", "{n} @", "@ {d, date, ::yMMMd} @", "@ '{'x'}' @", "l''@", "#", ""];
    let mut inner: Vec<String> = Vec::new();
    for one in texts {
        for kind in ["plural", "selectordinal", "select"] {
            for spaces in ["", " "] {
                let offset = if kind == "select" || spaces.is_empty() { "" } else { "offset:1 " };
                let exact = if kind == "select" { "male" } else { "=0" };
                inner.push(format!("{{n,{spaces}{kind},{spaces}{offset}{exact}{spaces}{{@}}{spaces}other{spaces}{{{one}}}{spaces}}}"));
            }
        }
    }
    let mut all = inner.clone();
    for (index, one) in inner.iter().enumerate() {
        let other = &inner[(index * 7 + 3) % inner.len()];
        all.push(format!("@ {one}"));
        all.push(format!("{one} @ {other} @"));
        all.push(format!("{{g, select, a {{{one}}} other {{@ {other}}}}}"));
        all.push(format!(
            "@ {{g, plural, one {{@ {{h, select, x {{{one}}} other {{@}}}} @}} other {{{other}}}}}"
        ));
    }
    all
}

#[test]
fn icu_messages_keep_their_syntax() {
    let messages = icu_messages();
    assert!(messages.len() >= 250);
    for message in messages {
        let text = message.replace('@', "le chat").replace("l''le", "l''ami le");
        let json = format!("{{\"a\": {}}}", serde_json::to_string(&text).unwrap());
        let found = texts(&json, Format::Json);
        assert_eq!(
            found.iter().map(|one| one.matches("le chat").count()).sum::<usize>(),
            message.matches('@').count(),
            "{text}: {found:?}"
        );
        assert!(
            found.iter().all(|one| !one.contains("plural") && !one.contains("select")),
            "{text}: {found:?}"
        );
        assert_eq!(with(&json, Format::Json, str::to_owned), json);
        let changed = with(&json, Format::Json, |text| {
            text.replace("le chat", "the cat").replace("ami", "friend")
        });
        let expected = json.replace("le chat", "the cat").replace("ami", "friend");
        assert_eq!(changed, expected);
        // Braces, apostrophes and signs of a translation are text.
        for new in ["o'{#}'x", "'{x}#o'"] {
            let hostile = with(
                &json,
                Format::Json,
                match new {
                    "o'{#}'x" => |text| text.replace("le chat", "o'{#}'x"),
                    _ => |text| text.replace("le chat", "'{x}#o'"),
                },
            );
            let all: String = texts(&hostile, Format::Json).concat();
            assert_eq!(all.matches(new).count(), message.matches('@').count(), "{hostile}");
        }
    }
    // What is no message with cases is a text as any other.
    for text in [
        "{n} chats",
        "{n, plural, one {chat}",
        "{n, plural, }",
        "a {b} c }",
        "{n, plural, one chat}",
        "select {",
    ] {
        let json = format!("[\"{text}\"]");
        assert_eq!(texts(&json, Format::Json), [text]);
    }
    let deep = format!("[\"{}a{}\"]", "{n, select, other {".repeat(65), "}}".repeat(65));
    assert_eq!(texts(&deep, Format::Json).len(), 1);
}

#[test]
fn catalogs_keep_white_space_and_escapes() {
    let ends = ["", " ", "  ", "\\n", " \\n", "\\t", "\\n\\n ", "\u{a0}", "\\r\\n"];
    let forms = 1..=6;
    let mut cases = 0;
    for before in ends {
        for after in ends {
            for count in forms.clone() {
                let mut text = format!(
                    "msgid \"{before}un chat{after}\"\nmsgid_plural \"\"\n\"{before}\"\n\"des \\\"chats\\\"\"\n\"{after}\"\n"
                );
                let mut expected = text.clone();
                for form in 0..count {
                    text += &format!("msgstr[{form}] \"\"\n");
                    let new = if form == 0 { "UN CHAT" } else { "DES \\\"CHATS\\\"" };
                    expected += &format!("msgstr[{form}] \"{before}{new}{after}\"\n");
                }
                assert_eq!(with(&text, Format::Gettext, upper), expected);
                cases += 1;
            }
        }
    }
    assert!(cases >= 450, "{cases}");
    let text = "msgid \"un\\a chat\\x1b\\033 \\\\ ici\\n la\\r\\n fin\"\nmsgstr \"\"\n\"\"\n";
    assert_eq!(
        with(text, Format::Gettext, upper),
        "msgid \"un\\a chat\\x1b\\033 \\\\ ici\\n la\\r\\n fin\"\nmsgstr \"UN\\a CHAT\\x1b\\033 \\\\ ICI\\n LA\\r\\n FIN\"\n"
    );
    let errors = [
        (
            "msgid \"a\"\nmsgstr \"\"\nmsgstr \"\"\n",
            3,
            "one msgstr, or msgstr[0], msgstr[1], ... (at most 16)",
        ),
        (
            "msgid \"a\"\nmsgstr[1] \"\"\n",
            2,
            "one msgstr, or msgstr[0], msgstr[1], ... (at most 16)",
        ),
        (
            "msgid \"a\"\nmsgstring \"\"\n",
            2,
            "one msgstr, or msgstr[0], msgstr[1], ... (at most 16)",
        ),
        ("msgid a\n", 1, "a comment, or a keyword and a string in quotation marks"),
        ("\"a\"\n", 1, "a keyword before the string"),
        ("msg \"a\"\n", 1, "msgctxt, msgid, msgid_plural, msgstr, msgstr[N] or domain"),
        ("msgid \"a\" \"b\"\n", 1, "the quotation mark that ends the string"),
        ("msgid \"a\\\"\n", 1, "the quotation mark that ends the string"),
        // The text of the first would be lost, or joined with that of the second.
        ("msgid \"a\"\n\nmsgid \"b\"\nmsgstr \"\"\n", 3, "msgstr of the message before"),
        (
            "msgid \"a\"\nmsgctxt \"b\"\nmsgid \"a\"\nmsgstr \"\"\n",
            2,
            "msgstr of the message before",
        ),
        ("msgstr \"\"\n", 1, "msgid before msgstr"),
        ("msgid_plural \"a\"\nmsgstr[0] \"\"\n", 1, "one msgid_plural, after msgid"),
    ];
    for (text, line, expected) in errors {
        let error = Document::parse(text, Format::Gettext).unwrap_err();
        let begin = format!("line {line} of the po document: expected {expected}, found \"");
        assert!(error.to_string().starts_with(&begin), "{text}: {error}");
    }
    let error =
        Document::parse("msgid \"a\"\nmsgstr \"\"\nmsgid \"b\"\n", Format::Gettext).unwrap_err();
    let expected =
        "line 4 of the po document: expected msgstr of the message before, found the end";
    assert_eq!(error.to_string(), expected);
    let many: String = (0..17).map(|form| format!("msgstr[{form}] \"\"\n")).collect();
    assert!(Document::parse(&format!("msgid \"a\"\n{many}"), Format::Gettext).is_err());
}

/// As in tables of JSON lines, half a surrogate pair is an error.
#[test]
fn escapes_of_json_that_stand_for_no_character_are_errors() {
    let halves = [
        "\\ud800",
        "\\udfff",
        "\\uD83D x",
        "\\ud83d\\n",
        "\\ude00\\ud83d",
        "\\ud83d\\ud83d\\ude00",
    ];
    let wrong = ["\\x", "\\u12", "\\u12g4", "\\'"];
    let places = ["{\"a\": \"@\"}", "[\"b @ c\"]", "{\"@\": 1}", "[\"\\\\@\"]", "[\"\\n\", \"@\"]"];
    for (escapes, expected) in [
        (&halves[..], "both halves of a surrogate pair (\\ud800 to \\udfff)"),
        (&wrong[..], "an escape of JSON after the backslash"),
    ] {
        for escape in escapes {
            for place in places {
                let text = format!("\n{}", place.replace('@', escape));
                let error = Document::parse(&text, Format::Json).unwrap_err();
                let begin = format!("line 2 of the json document: expected {expected}, found \\");
                assert!(error.to_string().starts_with(&begin), "{text}: {error}");
            }
        }
    }
    assert_eq!(texts("[\"\\ud83d\\ude00 a \\\\ud800\"]", Format::Json), ["😀 a \\ud800"]);
}
