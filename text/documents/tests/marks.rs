//! Slices, joins and checks of marked texts, and the pieces that are found in a text.

use crate::random::Random;
use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText, check};

pub fn wrap(id: usize) -> MarkKind {
    MarkKind::Wrap { open: format!("<w{id}>"), close: format!("</w{id}>") }
}

pub fn keep() -> MarkKind {
    MarkKind::Keep { source: None }
}

fn mark(range: std::ops::Range<usize>, kind: MarkKind, id: usize) -> Mark {
    Mark { range, kind, id }
}

fn text(text: &str, marks: &[Mark]) -> MarkedText {
    MarkedText { text: text.to_owned(), marks: marks.to_vec() }
}

/// Words, kept pieces, points and nested wraps. Wraps begin and end at words, and a point touches a word on one side.
pub fn random_text(random: &mut Random) -> MarkedText {
    fn grow(random: &mut Random, out: &mut MarkedText, depth: usize) {
        let parts = 1 + random.below(4);
        for part in 0..parts {
            if part > 0 {
                out.text.push(' ');
            }
            let (at, id) = (out.text.len(), out.marks.len());
            let word = |random: &mut Random| {
                ["maison", "petit", "où", "l'ami", "日本", "3.5", "été"][random.below(7)].to_owned()
            };
            match random.below(8) {
                0 | 1 if depth < 3 => {
                    out.marks.push(mark(at..at, wrap(id), id));
                    grow(random, out, depth + 1);
                    out.marks[id].range.end = out.text.len();
                }
                2 => {
                    out.text.push_str(&format!("{{n{id}}}"));
                    out.marks.push(mark(at..out.text.len(), keep(), id));
                }
                3 => {
                    let kind = MarkKind::Point { source: format!("<p{id}/>") };
                    let first = random.below(2) == 0;
                    let word = word(random);
                    out.text.push_str(&word);
                    let at = if first { at } else { out.text.len() };
                    out.marks.push(mark(at..at, kind, id));
                }
                _ => {
                    let word = word(random);
                    out.text.push_str(&word);
                }
            }
        }
    }
    let mut out = MarkedText::default();
    grow(random, &mut out, 0);
    out
}

#[test]
fn slices_of_consecutive_ranges_join_to_the_whole() {
    for seed in 0..500 {
        let random = &mut Random(seed);
        let whole = random_text(random);
        let mut cuts = vec![0, whole.text.len()];
        for _ in 0..random.below(6) {
            let at = random.below(whole.text.len() + 1);
            let at = whole.text.floor_char_boundary(at);
            // Some ranges are empty.
            cuts.extend((0..=random.below(2)).map(|_| at));
        }
        cuts.sort_unstable();
        // The marks without text at the end are in each range that ends there.
        cuts.dedup_by(|next, at| next == at && *at == whole.text.len());
        let parts: Vec<MarkedText> =
            cuts.windows(2).map(|cut| whole.slice(cut[0]..cut[1])).collect();
        assert_eq!(MarkedText::join(&parts), whole, "{cuts:?}");
        let parts: Vec<MarkedText> =
            whole.split_at_keeps().into_iter().map(|part| whole.slice(part.range)).collect();
        assert_eq!(MarkedText::join(&parts), whole);
        assert_eq!(check(&whole, &whole), Ok(()));
    }
}

#[test]
fn a_wrap_appears_in_both_parts_if_text_is_between_them() {
    let one = text("one", &[mark(0..3, wrap(0), 0)]);
    let two = text("two", &[mark(1..3, wrap(0), 0)]);
    let joined = MarkedText::join([&one, &text(" ", &[]), &two]);
    assert_eq!(joined, text("one two", &[mark(0..3, wrap(0), 0), mark(5..7, wrap(0), 0)]));
    assert_eq!(check(&text("un deux", &[mark(0..7, wrap(0), 0)]), &joined), Ok(()));
    // Continuing the inner wrap without the outer one would cross it.
    let outer = text("ab", &[mark(1..2, wrap(1), 1)]);
    let inner = text("cd", &[mark(0..2, wrap(0), 0), mark(0..1, wrap(1), 1)]);
    let joined = MarkedText::join([&outer, &inner]);
    assert_eq!(joined.marks.len(), 3);
    assert!(check(&joined, &joined).is_ok());
}

#[test]
fn a_range_that_cuts_a_kept_piece_is_extended() {
    let url = text("See https://a.b/c. Then go. End.", &[mark(4..17, keep(), 0)]);
    assert_eq!(url.whole_keeps(&[0..14, 15..27, 28..32]), [0..27, 28..32]);
    assert_eq!(url.whole_keeps(&[0..17, 18..27]), [0..17, 18..27]);
    assert_eq!(url.whole_keeps(&[0..14, 17..27]), [0..17, 17..27]);
    let none = text("a. b.", &[]);
    assert_eq!(none.whole_keeps(&[0..2, 3..5]), [0..2, 3..5]);
}

#[test]
fn slices_of_any_range_do_not_panic() {
    let whole = text("aé日b", &[mark(1..6, wrap(0), 0)]);
    for start in 0..12 {
        for end in 0..12 {
            let part = whole.slice(start..end);
            assert!(check(&part, &part).is_ok());
        }
    }
}

#[test]
fn what_is_lost_is_named() {
    let point = MarkKind::Point { source: "<br/>".into() };
    let source = text(
        "a %s b",
        &[mark(0..1, wrap(0), 0), mark(2..4, keep(), 1), mark(6..6, point.clone(), 2)],
    );
    let lost = |text: &MarkedText| check(&source, text).unwrap_err();
    let none = lost(&text("x y", &[]));
    assert_eq!((none.missing, none.wraps), (vec![1, 2], vec![0]));
    let twice = [
        mark(0..1, wrap(0), 0),
        mark(2..4, keep(), 1),
        mark(5..7, keep(), 1),
        mark(7..7, point.clone(), 2),
    ];
    assert_eq!(lost(&text("x %s %s", &twice)).repeated, [1]);
    // A copy without a mark.
    let copied = [mark(0..1, wrap(0), 0), mark(2..4, keep(), 1), mark(7..7, point.clone(), 2)];
    assert_eq!(lost(&text("x %s %s", &copied)).repeated, [1]);
    let changed = [mark(0..1, wrap(0), 0), mark(2..4, keep(), 1), mark(4..4, point.clone(), 2)];
    assert_eq!(lost(&text("x %d", &changed)).changed, [1]);
    let crossing = [mark(0..3, wrap(0), 0), mark(2..4, keep(), 1), mark(4..4, point.clone(), 2)];
    let found = lost(&text("x %s", &crossing));
    assert_eq!(found.crossing, [1]);
    assert!(!found.only_wraps());
    assert_eq!(found.to_string(), "expected each mark of the source once, found crossing [1]");
    let unknown = [
        mark(0..1, wrap(0), 0),
        mark(2..4, keep(), 1),
        mark(4..4, point, 2),
        mark(4..4, keep(), 9),
    ];
    assert_eq!(lost(&text("x %s", &unknown)).repeated, [9]);
    let wrap_only =
        lost(&text("%s", &[mark(0..2, keep(), 1), mark(2..2, source.marks[2].kind.clone(), 2)]));
    assert!(wrap_only.only_wraps());
    // The word of a kept piece of letters may occur elsewhere.
    let word = text("run ls", &[mark(4..6, keep(), 0)]);
    assert_eq!(check(&word, &text("ls ls", &[mark(3..5, keep(), 0)])), Ok(()));
}

mod found {
    use super::{Random, keep, mark, text, wrap};
    use regex::Regex;
    use simdformer_documents::marked_text::{
        MarkKind, MarkedText, Placement, StandIn, check, conventions, placeholders,
    };
    use simdformer_testing::cpu_time::cpu_time;
    use std::time::Duration;

    fn pieces(source: &str) -> Vec<String> {
        let found = placeholders(&text(source, &[]), []);
        assert_eq!(found.text, source);
        assert!(check(&found, &found).is_ok());
        found.marks.iter().map(|mark| source[mark.range.clone()].to_owned()).collect()
    }

    #[test]
    fn placeholders_addresses_and_code() {
        for (source, expected) in [
            ("Bonjour {name}, {} et {0:N2}", &["{name}", "{}", "{0:N2}"][..]),
            ("{{name}} {{ user.name }} {{{raw}}}", &["{{name}}", "{{ user.name }}", "{{{raw}}}"]),
            ("${name} %{count} #{x} {% if a %}", &["${name}", "%{count}", "#{x}", "{% if a %}"]),
            (
                "{n, plural, one {# file} other {# files}} left",
                &["{n, plural, one {# file} other {# files}}"],
            ),
            (
                "%s %1$d %.2f %(name)s %@ %% %-5ld%s",
                &["%s", "%1$d", "%.2f", "%(name)s", "%@", "%%", "%-5ld", "%s"],
            ),
            ("<x/> <0>mot</0> <g id=\"1\">a</g>", &["<x/>", "<0>", "</0>", "<g id=\"1\">", "</g>"]),
            ("voir https://example.org/a_(b)?c=d#e.", &["https://example.org/a_(b)?c=d#e"]),
            (
                "(https://example.org/), www.example.org!",
                &["https://example.org/", "www.example.org"],
            ),
            ("請看https://example.org/a這裡。", &["https://example.org/a"]),
            ("écrire à me.you+x@mail.example.org.", &["me.you+x@mail.example.org"]),
            ("run `ls -l` or ``a`b``", &["`ls -l`", "``a`b``"]),
            ("set max_size with open() and a.b_c()", &["max_size", "open()", "b_c()"]),
            ("a&nbsp;b &#160; &#xA0; R&D; x", &["&nbsp;", "&#160;", "&#xA0;"]),
        ] {
            assert_eq!(pieces(source), expected, "{source}");
        }
    }

    #[test]
    fn ordinary_text_has_no_pieces() {
        for source in [
            "50 % of the people, 100% sure, 20%off, 100 % des gens, 100\u{a0}%des, 5 %de plus",
            "a < b and c > d, a <b and c> d, 1<2, <3",
            "{see below} { a b } {",
            "me @ home, a@b, it's (a) b",
            "5 % des gens, 5 %des gens, 50% de la, 100%, 3%-5%",
            "Attention : voir, 10:30, midi:trente, ou:non",
            "[rires] [Musique] [1] [a, b] mot [voir page 3]",
            "*mot* **mot** ~~mot~~ _mot_ ***mot*** (mot) ((mot)) /mot/ |mot",
            "5$, US$ 5, 5 $ et 10 #, n° 5, a#b, 1 + 1 = 2, + 5",
            "et/ou, l'an -50, tout--fait, 5*3, a^b, ~50, \\o/, a\\b",
            "Quoi ?! Non... Oui !! :) :-( <3 ;-) ^^",
            "prix : 5$ : merci, C: et D:, a: b, A+ B+, plus+moins",
            "AT&T; R&D, a & b;",
            "_emphasis_ and snake _ case, __",
            "and/or: 10:30, C:// nothing",
            "www. and wwww.x",
            "don't use ` alone",
        ] {
            assert_eq!(pieces(source), [""; 0], "{source}");
        }
    }

    /// Every example of the table, alone, beside words and punctuation, and beside each other.
    #[test]
    fn every_example_of_the_conventions_is_found() {
        let around = [
            ("", ""),
            ("la maison de ", " est belle"),
            ("", " est belle"),
            ("la maison de ", ""),
            ("(", ")"),
            ("\u{ab}\u{a0}", "\u{a0}\u{bb}"),
            ("\u{201c}", "\u{201d}, "),
            ("voir ", "."),
            ("voir ", ", puis"),
            ("\u{8acb}\u{770b}", "\u{9019}\u{88e1}"),
        ];
        let mut count = 0;
        for convention in conventions() {
            for example in convention.examples {
                for (before, after) in around {
                    // A mail address or an address goes on with some of them.
                    let source = format!("{before}{example}{after}");
                    let found = pieces(&source);
                    assert_eq!(found, [*example], "{}: {source}", convention.name);
                    count += 1;
                }
            }
        }
        assert!(count > 900, "{count}");
    }

    /// The table of the page is that of the code.
    #[test]
    fn the_page_has_every_convention() {
        let code = |text: &&str| {
            let quotes = if text.contains('`') { "`` " } else { "`" };
            let end: String = quotes.chars().rev().collect();
            format!("{quotes}{}{end}", text.replace('|', "\\|"))
        };
        let row = |one: &simdformer_documents::marked_text::Convention| {
            let examples: Vec<String> = one.examples.iter().map(code).collect();
            format!("| {} | {} | {} |\n", one.name, one.projects, examples.join(" "))
        };
        let table: String = conventions().iter().map(row).collect();
        let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let pages = folders.map(|folder| folder.join("docs/placeholders.md"));
        let page = pages.filter_map(|page| std::fs::read_to_string(page).ok()).next().unwrap();
        assert!(page.contains(&table), "expected this table in docs/placeholders.md:\n{table}");
    }

    #[test]
    fn the_cases_that_were_lost_are_found() {
        for (source, expected) in [
            ("le chat %product_title% est blanc", &["%product_title%"][..]),
            ("la maison de __count__ est belle", &["__count__"]),
            ("l'%name% de :name, d'$name", &["%name%", ":name", "$name"]),
            ("%s%name% %d%% %dKB %nBonjour", &["%s", "%name%", "%d", "%%", "%d", "%n"]),
            ("fichier%name%.txt x%2", &["%name%", "%2"]),
            ("{0} aucun|[1,19] des|]20,Inf] plus", &["{0}", "[1,19]", "]20,Inf]"]),
            ("[b]mot[/b] et [i]non", &["[b]", "[/b]"]),
            ("<%= a < b %> et <% x %>", &["<%= a < b %>", "<% x %>"]),
            ("ligne\\nsuite", &["\\n"]),
        ] {
            assert_eq!(pieces(source), expected, "{source}");
        }
    }

    #[test]
    fn patterns_of_the_user() {
        let patterns = [Regex::new("Acme( Inc)?").unwrap(), Regex::new("x*").unwrap()];
        let source = "Acme Inc, Acme {n}";
        let matches = patterns.iter().flat_map(|pattern| pattern.find_iter(source));
        let found = placeholders(&text(source, &[]), matches.map(|found| found.range()));
        let ranges: Vec<_> = found.marks.iter().map(|mark| mark.range.clone()).collect();
        assert_eq!(ranges, [0..8, 10..14, 15..18]);
    }

    #[test]
    fn marks_of_the_text_stay() {
        let point = MarkKind::Point { source: "<br/>".into() };
        // A kept piece is not marked twice, and a wrap may be exactly around one.
        let source = text(
            "%s {name} https://a.b %d",
            &[
                mark(0..2, keep(), 4),
                mark(3..9, wrap(0), 0),
                mark(10..10, point, 1),
                mark(14..23, wrap(2), 2),
            ],
        );
        let found = placeholders(&source, []);
        let ids: Vec<_> = found.marks.iter().map(|mark| (mark.range.clone(), mark.id)).collect();
        // The address is cut by a wrap.
        assert_eq!(
            ids,
            [(0..2, 4), (3..9, 0), (3..9, 5), (10..10, 1), (14..23, 2), (22..24, 6)][..5]
        );
        assert!(check(&found, &found).is_ok());
        let inside = text("see https://a.b/c now", &[mark(12..13, wrap(0), 0)]);
        let found = placeholders(&inside, []);
        assert_eq!(
            found.marks.iter().map(|mark| mark.range.clone()).collect::<Vec<_>>(),
            [4..17, 12..13]
        );
    }

    /// Whatever a text is: pieces are whole characters, and a translation has each of them once.
    #[test]
    fn any_text_keeps_its_pieces() {
        const PARTS: [&str; 36] = [
            "{", "}", "{{", "}}", "%", "s", "1", "$d", "<", "/", ">", "<0>", "</0>", "<a>", "</a>",
            "&", ";", "`", ":", "//", "www.", "@", "a", ".", "_", "(", ")", "\u{e9}", "\u{65e5}",
            "\u{a0}", "\n", " ", " ", "%s", "{n}", "mot",
        ];
        let random = &mut Random(1);
        let mut pieces = 0;
        let texts = simdformer_testing::effort::cases(600, 6_000);
        for number in 0..texts {
            let length = random.below(30);
            let words: String = (0..length).map(|_| PARTS[random.below(36)]).collect();
            let found = placeholders(&text(&words, &[]), []);
            assert_eq!(check(&found, &found), Ok(()), "{words:?}");
            pieces += found.marks.len();
            let stand_in = [StandIn::Nothing, StandIn::Word("Paul"), StandIn::Piece][number % 3];
            let given = found.for_model(stand_in);
            // The words in the other order.
            let target: Vec<&str> = given.text.split_whitespace().rev().collect();
            let target = target.join(" ");
            let placement =
                Placement { source: &found, given: &given, target: &target, alignment: None };
            let placed = placement.place();
            if let Err(lost) = check(&found, &placed) {
                let complete =
                    lost.missing.is_empty() && lost.changed.is_empty() && lost.crossing.is_empty();
                // A text may have a copy of a piece that is not one, such as `%%s`.
                assert!(complete, "{lost}: {words:?} {placed:?}");
            }
        }
        assert!(pieces > texts, "{pieces}");
    }

    /// A scanner that read on to the end of the text from each character would take minutes.
    #[test]
    fn the_time_is_linear() {
        for part in [
            "{",
            "{{",
            "%(",
            "<a ",
            "`",
            "``",
            "a://",
            "www.",
            "_",
            "a@",
            "a.",
            "(",
            "&a",
            "{a,plural,",
            "{%",
            "a_",
            "<%",
            "<!--",
            "$t(",
            "$a[",
            "$a.",
            "[[",
            "[a",
            "[a]",
            "[a=",
            "%a",
            "%a%",
            "#a",
            "__a",
            ":a",
            "@:(",
            "\\a",
            "C:\\",
            "{a:",
        ] {
            let long = text(&part.repeat(300_000 / part.len()), &[]);
            let begin = cpu_time();
            let found = placeholders(&long, []);
            let spent = cpu_time() - begin;
            assert!(spent < Duration::from_secs(2), "{part}: {spent:?}");
            assert!(MarkedText::join([&found]).text.len() > 1000);
        }
    }
}
