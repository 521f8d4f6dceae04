//! Marks in translations of the demo model, by its attention.
//!
//! The held-out sentences of the model and its lexicon give the right places: a noun, an adjective or a name that is once
//! in the source and whose English word is once in the target.

use simdformer::search::Hooks;
use simdformer::{Event, Limits, Model, Session, Source, SourceId};
use simdformer_text::documents::marked_text::{
    Alignment, Mark, MarkKind, MarkedText, Placement, StandIn, WordAlignment, check,
};
use simdformer_text::{Direction, Tokenizer};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

fn model_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en").join(name)
}

/// Which attention is used: a layer, its heads, and whether a token has the row of the step that reads it instead of the
/// one that predicts it.
#[derive(Clone, Copy, Debug)]
struct Attention {
    layer: usize,
    heads: &'static [usize],
    shifted: bool,
}

/// The last layer, all heads.
const CHOSEN: Attention = Attention { layer: 1, heads: &[0, 1, 2, 3], shifted: false };

struct Translator {
    model: Model,
    tokenizer: Tokenizer,
}

/// A translation with its attention.
struct Translated {
    text: String,
    weights: Vec<f32>,
    source: Vec<Range<usize>>,
    target: Vec<Range<usize>>,
}

impl Translated {
    fn alignment(&self) -> Alignment<'_> {
        Alignment { weights: &self.weights, source: &self.source, target: &self.target }
    }
}

impl Translator {
    fn new() -> Self {
        let model = Model::open(model_file("")).unwrap();
        let tokenizer = Tokenizer::from_dir(model_file("")).unwrap();
        Self { model, tokenizer }
    }

    fn session(&self) -> Session<'_> {
        Session::new(&self.model, Limits::new(1, 48, 64)).unwrap()
    }

    /// The translation of `text`, and its attention for each of `attentions`.
    fn translate(
        &self,
        session: &mut Session<'_>,
        text: &str,
        attentions: &[Attention],
    ) -> Vec<Translated> {
        let (encoded, source) =
            self.tokenizer.encode_with_spans(text, &Direction::default()).unwrap();
        let options = session.search_options();
        let mut target = vec![options.start];
        let sources = [Source::new(&encoded.ids)];
        session
            .generate(&sources, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    target.extend(done.hypotheses().next().unwrap().tokens);
                }
            })
            .unwrap();
        let (text, spans) = self.tokenizer.decode_with_spans(&target[1..]);
        target.pop();
        let mut scratch = vec![0.0; session.plan().trace_floats()];
        let mut sentence = [SourceId::default()];
        session.encode(&[&encoded.ids], &mut sentence).unwrap();
        let mut result = Vec::new();
        for attention in attentions {
            let columns = encoded.ids.len();
            let mut weights = vec![0.0; target.len() * columns];
            let layer = (attention.layer, attention.heads);
            session.align(sentence[0], &target, layer, &mut scratch, &mut weights).unwrap();
            if attention.shifted {
                let first = columns.min(weights.len());
                weights.copy_within(first.., 0);
            }
            result.push(Translated {
                text: text.clone(),
                weights,
                source: source.clone(),
                target: spans.clone(),
            });
        }
        result
    }
}

/// The sentences that the model has not seen: French and English.
fn sentences() -> Vec<(String, String)> {
    let text = fs::read_to_string(model_file("held_out.jsonl")).unwrap();
    let read = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        (text("source"), text("target"))
    };
    text.lines().map(read).collect()
}

/// The English word of each French noun, adjective (in the singular) and name.
struct Lexicon {
    nouns: BTreeMap<String, String>,
    adjectives: BTreeMap<String, String>,
    names: Vec<String>,
}

fn lexicon() -> Lexicon {
    let text = fs::read_to_string(model_file("lexicon.txt")).unwrap();
    let (mut nouns, mut adjectives, mut names) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut section = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match section {
            "nouns" => {
                for noun in line.split_once(": ").unwrap().1.split(", ") {
                    let words: Vec<&str> = noun.split(' ').collect();
                    nouns.insert(words[0].to_owned(), words[2].to_owned());
                }
            }
            "before" | "after" => {
                let masculine = words[0].split('/').next().unwrap();
                let feminine = match words[1] {
                    "=" => masculine.to_owned(),
                    "+" => format!("{masculine}e"),
                    other => other.to_owned(),
                };
                for form in [masculine.to_owned(), feminine] {
                    adjectives.insert(form, words[2].to_owned());
                }
            }
            "names" => names
                .extend(line.split(", ").map(|name| name.split(' ').next().unwrap().to_owned())),
            _ => (),
        }
    }
    assert!(
        nouns.len() > 100 && adjectives.len() > 60 && names.len() > 5,
        "{} {} {}",
        nouns.len(),
        adjectives.len(),
        names.len()
    );
    Lexicon { nouns, adjectives, names }
}

/// Where `word` is in `text`, if it is there once.
fn once(text: &str, word: &str) -> Option<Range<usize>> {
    let mut at = 0;
    let mut found = Vec::new();
    for part in text.split(' ') {
        if part == word {
            found.push(at..at + part.len());
        }
        at += part.len() + 1;
    }
    if let [one] = &found[..] { Some(one.clone()) } else { None }
}

/// A source, a range of it, and the range of the target that stands for it.
struct Tagged {
    source: String,
    target: String,
    from: Range<usize>,
    to: Range<usize>,
}

/// The words with known places: nouns, adjectives, and nouns with the adjective beside them.
fn tagged() -> Vec<Tagged> {
    let lexicon = lexicon();
    let mut all = Vec::new();
    // The tokenizer writes `o' clock`.
    for (source, target) in
        sentences().into_iter().filter(|(_, target)| !target.contains("o'clock"))
    {
        let place = |words: &BTreeMap<String, String>| -> Vec<(Range<usize>, Range<usize>)> {
            let both = |(french, english): (&String, &String)| {
                Some((once(&source, french)?, once(&target, english)?))
            };
            words.iter().filter_map(both).collect()
        };
        let (nouns, adjectives) = (place(&lexicon.nouns), place(&lexicon.adjectives));
        let mut pairs = Vec::new();
        for (noun, said) in &nouns {
            for (adjective, means) in &adjectives {
                let beside = |a: &Range<usize>, b: &Range<usize>| {
                    a.end + 1 == b.start || b.end + 1 == a.start
                };
                if beside(noun, adjective) && beside(said, means) {
                    let hull =
                        |a: &Range<usize>, b: &Range<usize>| a.start.min(b.start)..a.end.max(b.end);
                    pairs.push((hull(noun, adjective), hull(said, means)));
                }
            }
        }
        for (from, to) in nouns.into_iter().chain(adjectives).chain(pairs) {
            all.push(Tagged { source: source.clone(), target: target.clone(), from, to });
        }
    }
    all
}

fn wrap_at(text: &str, range: Range<usize>) -> MarkedText {
    let kind = MarkKind::Wrap { open: "<b>".into(), close: "</b>".into() };
    MarkedText { text: text.to_owned(), marks: vec![Mark { range, kind, id: 0 }] }
}

/// How many tags wrap the right words with each attention, and the mean share of mutual links.
fn right(tagged: &[Tagged], attentions: &[Attention]) -> Vec<(usize, f32)> {
    let translator = Translator::new();
    let mut session = translator.session();
    let mut counts = vec![(0, 0.0); attentions.len()];
    for one in tagged {
        let source = wrap_at(&one.source, one.from.clone());
        let translations = translator.translate(&mut session, &one.source, attentions);
        for (translated, (right, mutual)) in translations.iter().zip(&mut counts) {
            assert_eq!(translated.text, one.target);
            let alignment = translated.alignment();
            let placement = Placement {
                source: &source,
                given: &source,
                target: &translated.text,
                alignment: Some(alignment),
            };
            let placed = placement.place();
            assert_eq!(check(&source, &placed), Ok(()));
            *right += usize::from(placed.marks[0].range == one.to);
            *mutual += WordAlignment::new(&one.source, &translated.text, &alignment).mutual()
                / tagged.len() as f32;
        }
    }
    counts
}

#[test]
fn at_least_95_of_100_tags_wrap_the_right_words() {
    let all = tagged();
    assert!(all.len() >= 400, "{}", all.len());
    // Every tag of some sentences, of all three kinds.
    let some: Vec<Tagged> = all.into_iter().step_by(3).take(240).collect();
    let (right, _) = right(&some, &[CHOSEN])[0];
    assert!(right * 100 >= some.len() * 95, "{right} of {}", some.len());
}

/// A line of a table.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
}

/// The table of layers and heads: `cargo test -p simdformer-text --test all -- --ignored --nocapture table`.
#[test]
#[ignore = "measures"]
fn table_of_layers_and_heads() {
    let mut attentions = Vec::new();
    for layer in 0..2 {
        for heads in [&[0, 1, 2, 3][..], &[0], &[1], &[2], &[3]] {
            for shifted in [false, true] {
                attentions.push(Attention { layer, heads, shifted });
            }
        }
    }
    let all = tagged();
    for (attention, (right, mutual)) in attentions.iter().zip(right(&all, &attentions)) {
        say(&format!("{attention:?}: {right} of {}, mutual {mutual:.3}", all.len()));
    }
}

/// The names of the sentences become placeholders: how many translations are those of the name, and of how many.
fn placeholders_at_names(stand_in: StandIn<'_>) -> (usize, usize) {
    let lexicon = lexicon();
    let translator = Translator::new();
    let mut session = translator.session();
    let (mut right, mut all) = (0, 0);
    for (french, english) in sentences() {
        let name = lexicon
            .names
            .iter()
            .find_map(|name| Some((once(&french, name)?, once(&english, name)?)));
        let Some((from, to)) = name else { continue };
        let replaced = |text: &str, range: &Range<usize>| {
            [&text[..range.start], "{name}", &text[range.end..]].concat()
        };
        let mark = Mark {
            range: from.start..from.start + 6,
            kind: MarkKind::Keep { source: None },
            id: 0,
        };
        let source = MarkedText { text: replaced(&french, &from), marks: vec![mark] };
        let given = source.for_model(stand_in);
        let translated = &translator.translate(&mut session, &given.text, &[CHOSEN])[0];
        let alignment = Some(translated.alignment());
        let placed =
            Placement { source: &source, given: &given, target: &translated.text, alignment }
                .place();
        assert_eq!(check(&source, &placed), Ok(()), "{} {}", given.text, translated.text);
        let expected = replaced(&english, &to);
        right += usize::from(placed.text == expected);
        all += 1;
    }
    (right, all)
}

#[test]
fn a_name_stands_in_for_a_placeholder() {
    let (right, all) = placeholders_at_names(StandIn::Word("Paul"));
    assert!(all >= 150 && right * 100 >= all * 95, "{right} of {all}");
}

/// The share of translations that are those of a name, by stand-in.
#[test]
#[ignore = "measures"]
fn table_of_stand_ins() {
    for stand_in in
        [StandIn::Piece, StandIn::Word("Paul"), StandIn::Word("Marie"), StandIn::Nothing]
    {
        let (right, all) = placeholders_at_names(stand_in);
        say(&format!("{stand_in:?}: {right} of {all} translations are those of the name"));
    }
}

#[test]
fn of_500_placeholders_none_is_lost_or_repeated() {
    let translator = Translator::new();
    let mut session = translator.session();
    let pieces = [
        "{name}",
        "{{count}}",
        "%s",
        "%1$d",
        "<x/>",
        "https://example.org/a?b",
        "me@example.org",
        "${v}",
        "<0>",
        "`ls`",
    ];
    let mut sentences = 0;
    for (number, (french, _)) in self::sentences().into_iter().enumerate().take(500) {
        // After one of the words, and after a second one in every other sentence.
        let words: Vec<&str> = french.split(' ').collect();
        let mut source = MarkedText::default();
        for (place, word) in words.iter().enumerate() {
            if place > 0 {
                source.text.push(' ');
            }
            source.text.push_str(word);
            let first = place == number * 7 % words.len();
            let second = number % 2 == 0 && place == number * 11 % words.len();
            for piece in
                [first.then_some(number), second.then_some(number + 3)].into_iter().flatten()
            {
                source.text.push(' ');
                let (start, id) = (source.text.len(), source.marks.len());
                source.text.push_str(pieces[piece % pieces.len()]);
                source.marks.push(Mark {
                    range: start..source.text.len(),
                    kind: MarkKind::Keep { source: None },
                    id,
                });
            }
        }
        let stand_in = [StandIn::Nothing, StandIn::Word("paul"), StandIn::Piece][number % 3];
        let given = source.for_model(stand_in);
        let translated = &translator.translate(&mut session, &given.text, &[CHOSEN])[0];
        let alignment = Some(translated.alignment());
        let placed =
            Placement { source: &source, given: &given, target: &translated.text, alignment }
                .place();
        assert_eq!(
            check(&source, &placed),
            Ok(()),
            "{} | {} | {}",
            given.text,
            translated.text,
            placed.text
        );
        sentences += 1;
    }
    assert_eq!(sentences, 500);
}
