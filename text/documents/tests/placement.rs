//! Marks in a translation, by alignments that are made here.

use crate::marks::{keep, random_text, wrap};
use crate::random::Random;
use simdformer_documents::marked_text::{
    Alignment, Mark, MarkKind, MarkedText, Placement, StandIn, WordAlignment, check,
};
use simdformer_testing::effort;
use std::ops::Range;

/// The words of a text, at spaces.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let start = text.as_ptr() as usize;
    let place =
        |word: &str| word.as_ptr() as usize - start..word.as_ptr() as usize - start + word.len();
    text.split_whitespace().map(place).collect()
}

/// `[target, source]` with the weight of each pair.
fn weights(target: usize, source: usize, weight: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    (0..target).flat_map(|t| (0..source).map(move |s| (t, s))).map(|(t, s)| weight(t, s)).collect()
}

fn place(source: &MarkedText, given: &MarkedText, target: &str, weights: &[f32]) -> MarkedText {
    let (from, to) = (tokens(&given.text), tokens(target));
    let alignment = Alignment { weights, source: &from, target: &to };
    Placement { source, given, target, alignment: Some(alignment) }.place()
}

/// The words of a text, at spaces and before punctuation.
fn fine_tokens(text: &str) -> Vec<Range<usize>> {
    let split = |word: Range<usize>| {
        let bare = word.start + text[word.clone()].trim_end_matches(['!', ',']).len();
        [word.start..bare, bare..word.end]
    };
    tokens(text).into_iter().flat_map(split).filter(|part| !part.is_empty()).collect()
}

fn wrapped<'t>(text: &'t MarkedText, mark: &Mark) -> Vec<&'t str> {
    text.text[mark.range.clone()].split_whitespace().collect()
}

#[test]
fn an_identity_gives_the_source() {
    for seed in 0..400 {
        let source = random_text(&mut Random(seed));
        let given = source.for_model(StandIn::Piece);
        assert_eq!(given, source);
        let count = tokens(&given.text).len();
        let identity = weights(count, count, |t, s| if t == s { 0.9 } else { 0.01 });
        assert_eq!(place(&source, &given, &given.text, &identity), source);
        // Words at the same part of both texts.
        let none =
            Placement { source: &source, given: &given, target: &given.text, alignment: None };
        assert_eq!(none.place(), source);
        // A space before a script without spaces is not added.
        if !given.text.contains('日') {
            let given = source.for_model(StandIn::Nothing);
            let count = tokens(&given.text).len();
            let identity = weights(count, count, |t, s| f32::from(u8::from(t == s)));
            let placed = place(&source, &given, &given.text, &identity);
            assert_eq!(placed.text, source.text);
        }
    }
}

#[test]
fn a_reversal_keeps_the_words_of_each_wrap() {
    for seed in 0..400 {
        let source = random_text(&mut Random(seed));
        let given = source.for_model(StandIn::Piece);
        let mut reversed: Vec<&str> = given.text.split_whitespace().collect();
        reversed.reverse();
        let count = reversed.len();
        let target = reversed.join(" ");
        let reversal =
            weights(count, count, |t, s| if t + s + 1 == count { 0.8 } else { 0.2 / count as f32 });
        let placed = place(&source, &given, &target, &reversal);
        assert_eq!(check(&source, &placed), Ok(()));
        assert_eq!(placed.text, target);
        for mark in source.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Wrap { .. })) {
            let own = placed.marks.iter().find(|own| own.id == mark.id).unwrap();
            let mut words = wrapped(&placed, own);
            words.reverse();
            assert_eq!(words, wrapped(&source, mark), "{source:?} {placed:?}");
        }
    }
}

/// Thousands of marks in one sentence: nested wraps, pieces and points at every word.
#[test]
fn many_marks_take_no_long_time() {
    let start = std::time::Instant::now();
    let words = 60;
    let mut source = MarkedText::default();
    let depth = 400;
    for id in 0..depth {
        source.marks.push(Mark { range: 0..0, kind: wrap(id), id });
    }
    for word in 0..words {
        for kind in 0..3 {
            let id = source.marks.len();
            let at = source.text.len();
            if kind < 2 {
                source.text.push_str("%s");
                source.marks.push(Mark { range: at..at + 2, kind: keep(), id });
            } else {
                source.marks.push(Mark {
                    range: at..at,
                    kind: MarkKind::Point { source: "<br/>".into() },
                    id,
                });
            }
            source.text.push(' ');
        }
        source.text.push_str(&format!("mot{word} "));
    }
    source.text.push_str("fin");
    let end = source.text.len();
    for (id, mark) in source.marks.iter_mut().enumerate().take(depth) {
        mark.range.end = end - id.min(300);
    }
    for stand_in in [StandIn::Nothing, StandIn::Word("Paul"), StandIn::Piece] {
        let given = source.for_model(stand_in);
        let from = tokens(&given.text);
        let target: Vec<&str> = given.text.split_whitespace().rev().step_by(2).collect();
        let matrix = weights(target.len(), from.len(), |t, s| ((t * 31 + s * 17) % 13) as f32);
        let placed = place(&source, &given, &target.join(" "), &matrix);
        let lost = check(&source, &placed).err().unwrap_or_default();
        assert!(
            lost.missing.is_empty() && lost.repeated.is_empty() && lost.crossing.is_empty(),
            "{lost}"
        );
        assert_eq!(placed.marks.iter().filter(|mark| mark.kind == keep()).count(), 2 * words);
    }
    // Seconds without optimization; a step that reads all marks for each mark and word would take minutes.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

/// Whatever the attention and the translation are: marks are well-formed, each is there once, and the words are those of
/// the translation.
#[test]
fn any_attention_loses_nothing() {
    let mut omitted = 0;
    let seeds = effort::cases(500, 3_000);
    for seed in 0..seeds as u64 {
        let random = &mut Random(seed);
        let source = random_text(random);
        let stand_in = [StandIn::Nothing, StandIn::Piece, StandIn::Word("Paul")][random.below(3)];
        let given = source.for_model(stand_in);
        // A part of the words, in another order.
        let words: Vec<&str> = given.text.split_whitespace().collect();
        let length = random.below(words.len() + 3);
        let target: Vec<&str> =
            (0..length).map(|_| *words.get(random.below(9)).unwrap_or(&"word.")).collect();
        let target = target.join(" ");
        let kind = random.below(8);
        let numbers: Vec<f32> =
            (0..words.len() * length).map(|_| random.below(1000) as f32 / 999.0).collect();
        let matrix = weights(length, words.len(), |t, s| match kind {
            0 => 0.0,
            1 => f32::NAN,
            2 => [f32::INFINITY, -1.0, f32::NEG_INFINITY, 0.5][(t + s) % 4],
            3 => f32::from(u8::from(s == 0)),
            4 => f32::MAX,
            5 => numbers[t * words.len() + s].powi(8),
            _ => numbers[t * words.len() + s],
        });
        let short = &matrix[..matrix.len() - usize::from(kind == 6 && !matrix.is_empty())];
        let placed = place(&source, &given, &target, short);
        match check(&source, &placed) {
            Ok(()) => (),
            // Only if every word is in another wrap.
            Err(lost) if lost.only_wraps() => omitted += 1,
            Err(lost) => panic!("{lost}: {source:?} {target:?} {placed:?}"),
        }
        if stand_in == StandIn::Nothing && !given.text.trim().is_empty() {
            let mut rest = placed.text.clone();
            for mark in placed.marks.iter().rev().filter(|mark| mark.kind == keep()) {
                rest.replace_range(mark.range.clone(), " ");
            }
            let letters =
                |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&rest), letters(&target), "{placed:?}");
        }
    }
    assert!(omitted < seeds / 5, "{omitted}");
}

fn one(text: &str, marks: &[(Range<usize>, MarkKind)]) -> MarkedText {
    let mark = |(id, (range, kind)): (usize, &(Range<usize>, MarkKind))| Mark {
        range: range.clone(),
        kind: kind.clone(),
        id,
    };
    MarkedText { text: text.to_owned(), marks: marks.iter().enumerate().map(mark).collect() }
}

/// Each word of the target has the source word of `links`.
fn linked(source: &MarkedText, stand_in: StandIn<'_>, target: &str, links: &[usize]) -> MarkedText {
    let given = source.for_model(stand_in);
    let count = tokens(&given.text).len();
    let matrix =
        weights(links.len(), count, |t, s| if links[t] == s { 0.7 } else { 0.2 / count as f32 });
    place(source, &given, target, &matrix)
}

#[test]
fn pieces_are_inserted_with_the_spaces_that_they_need() {
    for (source, piece, target, links, expected) in [
        ("Bonjour {x} !", 8..11, "Hello!", &[0, 1][..], "Hello {x}!"),
        ("Bonjour {x}, entrez", 8..11, "Hello, come in", &[0, 1, 2, 2], "Hello {x}, come in"),
        ("{x} est là", 0..3, "is here", &[0, 1], "{x} is here"),
        ("voir {x}", 5..8, "see", &[0], "see {x}"),
        ("l'{x} rouge est là", 2..5, "the red is here", &[0, 1, 2, 3], "the {x} red is here"),
        ("il a ({x}) ans", 6..9, "he is years old", &[0, 1, 3, 3], "he is {x} years old"),
        ("你好{x}再见", 6..9, "hello goodbye", &[0, 1], "hello {x} goodbye"),
    ] {
        let source = one(source, &[(piece, keep())]);
        let given = source.for_model(StandIn::Nothing);
        let source_tokens: Vec<Range<usize>> = if source.text.starts_with('你') {
            vec![0..6, 6..12]
        } else {
            fine_tokens(&given.text)
        };
        let target_tokens = fine_tokens(target);
        let count = source_tokens.len();
        let matrix =
            weights(
                links.len(),
                count,
                |t, s| if links[t] == s { 0.9 } else { 0.1 / count as f32 },
            );
        let alignment =
            Alignment { weights: &matrix, source: &source_tokens, target: &target_tokens };
        let placed =
            Placement { source: &source, given: &given, target, alignment: Some(alignment) }
                .place();
        assert_eq!(placed.text, expected);
        assert_eq!(&placed.text[placed.marks[0].range.clone()], "{x}");
    }
}

#[test]
fn stand_ins_are_replaced_once() {
    let source = one("la voiture de {x} et {y}", &[(14..17, keep()), (21..24, keep())]);
    // Both names in the other order.
    let placed = linked(&source, StandIn::Word("paul"), "paul and paul 's car", &[5, 4, 3, 3, 1]);
    assert_eq!(placed.text, "{y} and {x} 's car");
    // One of three is too many.
    let placed =
        linked(&source, StandIn::Word("paul"), "paul and paul 's car paul", &[5, 4, 3, 3, 1, 0]);
    assert_eq!(placed.text, "{y} and {x} 's car");
    // The model has translated one.
    let placed =
        linked(&source, StandIn::Word("paul"), "the car of peter and paul", &[0, 1, 2, 3, 4, 5]);
    assert_eq!(placed.text, "the car of {x} and {y}");
    let placed = linked(&source, StandIn::Piece, "the car of {x} and {z}", &[0, 1, 2, 3, 4, 5]);
    assert_eq!(placed.text, "the car of {x} and {y}");
    // The model may change the case.
    let placed = linked(&source, StandIn::Word("Paul"), "paul and Paul 's car", &[5, 4, 3, 3, 1]);
    assert_eq!(placed.text, "{y} and {x} 's car");
    // The text has the word too.
    let source = one("paul voit {x}", &[(10..13, keep())]);
    let placed = linked(&source, StandIn::Word("paul"), "paul sees paul", &[0, 1, 2]);
    assert_eq!(placed.text, "paul sees {x}");
    let all = one("{x} %s", &[(0..3, keep()), (4..6, keep())]);
    assert_eq!(linked(&all, StandIn::Nothing, "", &[]), all);
}

#[test]
fn a_translation_without_a_stand_in_is_noticed() {
    let source = one("paul voit {x} et {y}", &[(10..13, keep()), (17..20, keep())]);
    let found = |stand_in: StandIn<'_>, target: &str| {
        let given = source.for_model(stand_in);
        Placement { source: &source, given: &given, target, alignment: None }.has_stand_ins()
    };
    assert!(found(StandIn::Piece, "paul sees {y} and {X}"));
    assert!(!found(StandIn::Piece, "paul sees {z} and {x}"));
    assert!(!found(StandIn::Piece, "paul sees {y} and {x} and {x}"));
    assert!(found(StandIn::Word("Paul"), "Paul sees Paul and Paul"));
    assert!(!found(StandIn::Word("Paul"), "Paul sees Paul and Pauline"));
    assert!(found(StandIn::Nothing, "see"));
}

#[test]
fn tags_stay_around_their_words() {
    let source = one(
        "la <0>maison</0> <1>blanche</1>",
        &[(3..6, keep()), (12..16, keep()), (17..20, keep()), (27..31, keep())],
    );
    let given = source.for_model(StandIn::Piece);
    assert_eq!(given.text, "la maison blanche");
    let placed = linked(&source, StandIn::Piece, "the white house", &[0, 2, 1]);
    assert_eq!(placed.text, "the <1>white</1> <0>house</0>");
    assert_eq!(check(&source, &placed), Ok(()));
    let nested = one(
        "<0>la <1>maison</1></0> blanche",
        &[(0..3, keep()), (6..9, keep()), (15..19, keep()), (19..23, keep())],
    );
    let placed = linked(&nested, StandIn::Word("x"), "white the house", &[2, 0, 1]);
    assert_eq!(placed.text, "white <0>the <1>house</1></0>");
}

#[test]
fn wraps_are_contiguous_and_nested() {
    // `ne` and `pas` are one word in English.
    let source = one("il ne mange pas", &[(3..15, wrap(0)), (6..11, wrap(1))]);
    let placed = linked(&source, StandIn::Piece, "he eats not", &[0, 2, 3]);
    assert_eq!(
        placed.marks.iter().map(|mark| mark.range.clone()).collect::<Vec<_>>(),
        [3..11, 3..7]
    );
    // A wrap around a piece contains it, whatever the attention says.
    let source = one("voir {x} ici", &[(5..8, wrap(0)), (5..8, keep())]);
    let placed = linked(&source, StandIn::Nothing, "see here", &[0, 1]);
    assert_eq!((placed.text.as_str(), placed.marks[0].range.clone()), ("see {x} here", 4..7));
    // All of the text stays all of the text, and a word is wrapped without its punctuation.
    let source = one("Bonjour monde.", &[(0..14, wrap(0)), (8..13, wrap(1))]);
    let placed = linked(&source, StandIn::Piece, "Hello, whole world.", &[0, 1, 1]);
    assert_eq!(placed.marks.iter().map(|mark| mark.range.clone()).collect::<Vec<_>>()[0], 0..19);
    // Two wraps share one word: one of them is omitted.
    let source = one("est ce", &[(0..3, wrap(0)), (4..6, wrap(1))]);
    let placed = linked(&source, StandIn::Piece, "is", &[0]);
    assert_eq!(placed.marks.len(), 1);
    assert!(check(&source, &placed).unwrap_err().only_wraps());
}

#[test]
fn marks_inside_a_piece_move_with_it() {
    let source = one("see https://a.b now", &[(4..15, keep()), (12..13, wrap(1))]);
    let placed = linked(&source, StandIn::Word("it"), "now it see", &[2, 1, 0]);
    assert_eq!(placed.text, "now https://a.b see");
    assert_eq!(placed.marks[1].range, 12..13);
    assert_eq!(check(&source, &placed), Ok(()));
}

#[test]
fn word_alignments() {
    let (source, target) = ("l'ami parle-t-il ?", "日本 does he 3.5 speak?");
    let (from, to) = (tokens(source), tokens(target));
    let matrix = [0.5, 0.3, 0.2, 0.0, 0.0, 0.0, f32::NAN, 1.0, 0.0, 0.1, 0.8, 0.1, 0.0, 0.9, 0.6];
    let alignment = Alignment { weights: &matrix, source: &from, target: &to };
    let words = WordAlignment::new(source, target, &alignment);
    let texts = |text: &str, words: &[Range<usize>]| {
        words.iter().map(|word| text[word.clone()].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(source, &words.source), ["l'ami", "parle-t-il", "?"]);
    assert_eq!(texts(target, &words.target), ["日本", "does", "he", "3.5", "speak", "?"]);
    let links: Vec<_> = words.links.iter().map(|link| (link.target, link.source)).collect();
    assert_eq!(links, [(0, 0), (2, 1), (3, 1), (4, 1), (4, 2), (5, 1), (5, 2)]);
    assert!(words.mutual() > 0.2 && words.mutual() <= 1.0);
    // The number of weights is not that of the tokens.
    let wrong = Alignment { weights: &matrix[1..], ..alignment };
    assert_eq!(WordAlignment::new(source, target, &wrong).links, []);
    // In a script without spaces, a token is a word.
    let spaceless =
        Alignment { weights: &[1.0, 0.0, 0.0, 1.0], source: &[0..6, 6..9], target: &[0..3, 3..9] };
    let words = WordAlignment::new("日本人", "日本人", &spaceless);
    assert_eq!((words.source, words.target), (vec![0..6, 6..9], vec![0..3, 3..9]));
}
