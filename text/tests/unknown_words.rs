//! What a model does not know: words are named, symbols copied, spellings and capitals read as the model knows them.

use crate::effort::cases;
use crate::translator::{Demo, sentences};
use simdformer::search::Hooks;
use simdformer::{Event, Model};
use simdformer_testing::published::french;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::Tokenizer;
use simdformer_text::documents::Format;
use simdformer_text::documents::marked_text::conventions;
use simdformer_text::translator::{
    BatchEvent, BatchRequest, Batcher, Glossary, Note, TranslateOptions, Translator, UnknownWord,
};
use std::sync::{Arc, mpsc};
use unicode_normalization::UnicodeNormalization;

fn names(words: &[UnknownWord]) -> Vec<&str> {
    words.iter().map(|word| word.text.as_str()).collect()
}

fn texts(translator: &Translator, sources: &[String]) -> Vec<String> {
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let found = translator.translate_texts(&sources).unwrap();
    found.into_iter().map(|found| found.target.text).collect()
}

#[test]
fn unknown_words_are_named_with_known_ones_of_close_spelling() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let source = "je suis etudiant. la maison est belle. xyzzy est une maizon";
    let found = translator.translate_texts(&[source]).unwrap().remove(0);
    let unknown: Vec<&[UnknownWord]> =
        found.sentences.iter().map(|one| one.translation.unknown.as_slice()).collect();
    assert_eq!(names(unknown[0]), ["etudiant"]);
    assert_eq!(unknown[0][0].nearest[0], "étudiant");
    assert!(unknown[1].is_empty());
    assert_eq!(names(unknown[2]), ["xyzzy", "maizon"]);
    assert!(unknown[2][0].nearest.is_empty() && unknown[2][1].nearest[0] == "maison");
    let shown = unknown[2][1].to_string();
    assert!(shown.starts_with("\"maizon\" (near it: \"maison\", "), "{shown}");
    assert_eq!(translator.report().unknown_words, 3);
    // A sentence alone, and one of a batcher.
    let found = translator.translate_sentences(&["je suis etudiant", "quel mois"]).unwrap();
    assert_eq!(names(&found[0].unknown), ["etudiant"]);
    assert!(found[1].unknown.is_empty());
    let batcher = Batcher::new(&demo.translator(demo.options())).unwrap();
    let (send, receive) = mpsc::channel();
    let request = BatchRequest { text: "je suis etudiant", ..BatchRequest::default() };
    let ticket = batcher.submit_with(request, move |event| {
        if let BatchEvent::Done(done) = event {
            send.send(done.unknown).unwrap();
        }
    });
    ticket.unwrap();
    assert_eq!(names(&receive.recv().unwrap()), ["etudiant"]);
}

#[test]
fn the_cases_of_symbols_are_right() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    for (source, expected) in [
        ("la maison est belle ▾", "the house is beautiful ▾"),
        ("▾ la maison est belle", "▾ the house is beautiful"),
        ("la maison est belle 😀", "the house is beautiful 😀"),
        ("le chat ▬ est blanc", "the cat ▬ is white"),
        ("où est-ce qu\u{2019}elle habite ?", "where does she live ?"),
        ("l\u{2019}eau est froide", "the water is cold"),
        ("où est\u{a0}le chat\u{a0}?", "where is the cat ?"),
        ("«\u{a0}la maison est belle\u{a0}»", "« the house is beautiful »"),
        ("«la maison est belle»", "«the house is beautiful»"),
        ("(la maison est belle)", "(the house is beautiful)"),
        (
            "la maison est belle 👩\u{200d}👧 1\u{fe0f}\u{20e3}",
            "the house is beautiful 👩\u{200d}👧 1\u{fe0f}\u{20e3}",
        ),
        ("♪ la maison est belle ♪", "♪ the house is beautiful ♪"),
        ("la maison — est belle", "the house — is beautiful"),
    ] {
        let found = translator.translate_texts(&[source]).unwrap().remove(0);
        assert_eq!(found.text(), expected, "{source}");
        assert!(found.sentences.iter().all(|one| one.translation.unknown.is_empty()), "{source}");
    }
    assert_eq!((translator.report().lost, translator.report().unknown_words), (0, 0));
}

/// Symbols that the model does not know, at any place of a sentence, alone or beside a word.
#[test]
fn every_symbol_is_copied_once() {
    const SYMBOLS: [&str; 20] = [
        "▾",
        "😀",
        "👩\u{200d}👩\u{200d}👧",
        "🇫🇷",
        "👍🏽",
        "♪",
        "★",
        "→",
        "€",
        "—",
        "«",
        "»",
        "…",
        "№",
        "±",
        "42",
        "3,5",
        "12:30",
        "✓\u{fe0f}",
        "§",
    ];
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let count = cases(160, 2_000);
    let sentences = sentences(100);
    let mut sources = Vec::new();
    for i in 0..count {
        let mut words: Vec<String> =
            sentences[i % 99].split_whitespace().map(str::to_owned).collect();
        let (place, symbol) = (i * 7919 % (words.len() + 1), SYMBOLS[i % SYMBOLS.len()]);
        let digits = symbol.contains(char::is_numeric);
        match words.get_mut(place) {
            // Beside the word, on either side.
            Some(word) if i % 3 == 1 && !digits => word.push_str(symbol),
            Some(word) if i % 3 == 2 && !digits => word.insert_str(0, symbol),
            _ => words.insert(place, symbol.to_owned()),
        }
        sources.push(words.join(" "));
    }
    let found = texts(&translator, &sources);
    for (i, (source, found)) in sources.iter().zip(&found).enumerate() {
        let symbol = SYMBOLS[i % SYMBOLS.len()];
        assert_eq!(found.matches(symbol).count(), 1, "{source}: {found}");
    }
    let report = translator.report();
    assert_eq!((report.lost, report.failed, report.split), (0, 0, 0), "{report:?}");
    assert_eq!(report.unknown_words, 0, "{report:?}");
}

/// An apostrophe at the end of a word, as in `l'`, and a hyphen before one, as in `-ils`, are of the word beside a sign, too.
#[test]
fn signs_beside_elided_words_leave_these_known() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let mut sources = Vec::new();
    let sentences = [
        "l' oncle apprend l' espagnol maintenant",
        "j' ai toujours joué du violon",
        "qu' est-ce qu' elle ferme ?",
        "emma et nicolas m' ont -ils donné leur parapluie ?",
        "voyageons -nous à l' école ?",
    ];
    for sentence in sentences {
        let words: Vec<&str> = sentence.split(' ').collect();
        for (at, word) in words.iter().enumerate() {
            if !word.contains(['\'', '-']) {
                continue;
            }
            for sign in ["—", "«", "»", "…", "€", "№", "★", "👍🏽"] {
                for apostrophe in ["'", "\u{2019}"] {
                    for written in [
                        format!("{sign}{word}"),
                        format!("{word}{sign}"),
                        format!("{sign}{word}{sign}"),
                    ] {
                        let mut words: Vec<&str> = words.clone();
                        let written = written.replace('\'', apostrophe);
                        words[at] = &written;
                        sources.push((words.join(" "), sign));
                    }
                }
            }
        }
    }
    assert_eq!(sources.len(), 480);
    for (source, sign) in sources {
        let found = translator.translate_texts(&[&source]).unwrap().remove(0);
        for one in &found.sentences {
            assert!(one.translation.unknown.is_empty(), "{source}: {:?}", one.translation);
        }
        assert_eq!(found.text().matches(sign).count(), source.matches(sign).count(), "{source}");
    }
}

/// Each example of each convention in sentences of the model, at any place, beside spaces, brackets and signs.
#[test]
fn placeholders_of_every_convention_are_kept() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let sentences = sentences(100);
    let examples: Vec<&str> =
        conventions().iter().flat_map(|convention| convention.examples).copied().collect();
    let around = [("", ""), ("(", ")"), ("«\u{a0}", "\u{a0}»"), ("", ","), ("", " ?")];
    let rounds = cases(2, 30);
    let mut sources = Vec::new();
    for i in 0..rounds * examples.len() {
        let mut words: Vec<String> =
            sentences[(i * 31) % 99].split_whitespace().map(str::to_owned).collect();
        let (before, after) = around[(i / 3) % around.len()];
        words.insert(
            i * 7919 % (words.len() + 1),
            format!("{before}{}{after}", examples[i % examples.len()]),
        );
        sources.push(words.join(" "));
    }
    let found = texts(&translator, &sources);
    for (i, (source, found)) in sources.iter().zip(&found).enumerate() {
        let piece = examples[i % examples.len()];
        assert_eq!(
            found.matches(piece).count(),
            source.matches(piece).count(),
            "{source}: {found}"
        );
    }
    let report = translator.report();
    assert_eq!((report.lost, report.failed), (0, 0), "{report:?}");
    assert!(sources.len() > 190, "{}", sources.len());
}

/// Every white space of Unicode, alone and repeated, between words, in cells and in sentences.
#[test]
fn white_space_of_every_kind_is_one_space() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let spaces: Vec<char> = ('\0'..='\u{ffff}').filter(|space| space.is_whitespace()).collect();
    assert_eq!(spaces.len(), 25);
    let expected = "the old white house is beautiful";
    for space in spaces {
        for joined in [format!("{space}"), format!(" {space}{space}"), format!("{space}\u{200b} ")]
        {
            let source = format!("la vieille{joined}maison blanche{joined}est belle");
            let found = translator.translate_sentences(&[&source]).unwrap();
            assert_eq!(found[0].text, expected, "{source:?}");
            let document = source
                .contains(['\n', '\r', '\t', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
            if !document && !joined.contains("   ") {
                assert_eq!(
                    texts(&translator, std::slice::from_ref(&source)),
                    [expected],
                    "{source:?}"
                );
                let html = format!("<table><tr><td>{source}</td></tr></table>");
                let found = translator.translate_document(&html, Format::Html).unwrap();
                assert_eq!(
                    found,
                    format!("<table><tr><td>{expected}</td></tr></table>"),
                    "{source:?}"
                );
            }
        }
    }
    assert_eq!(translator.report().unknown_words, 0);
}

/// Characters that cannot be seen, at every place in words.
#[test]
fn invisible_characters_do_not_make_a_word_unknown() {
    const INVISIBLE: [char; 10] = [
        '\u{ad}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{34f}',
        '\u{200e}', '\u{200f}', '\u{2066}',
    ];
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let plain = "la vieille maison blanche est belle";
    let expected = "the old white house is beautiful";
    let mut sources = Vec::new();
    for letter in INVISIBLE {
        // Not at the ends of the text, where a byte order mark is one.
        for at in 1..plain.len() {
            let mut source = plain.to_owned();
            source.insert(at, letter);
            sources.push(source);
        }
    }
    for (source, found) in sources.iter().zip(texts(&translator, &sources)) {
        assert_eq!(found, expected, "{source:?}");
    }
    let alone: Vec<&str> = sources.iter().map(String::as_str).collect();
    for (source, found) in sources.iter().zip(translator.translate_sentences(&alone).unwrap()) {
        assert_eq!(found.text, expected, "{source:?}");
    }
    assert_eq!(translator.report().unknown_words, 0);
    let page = "<p>la mai<wbr>son est belle</p><p>la mai&shy;son est belle</p><p>la mai&#8203;son est belle</p>";
    let found = translator.translate_document(page, Format::Html).unwrap();
    assert_eq!(found.matches("house").count(), 3, "{found}");
}

#[test]
fn inline_elements_without_letters_stay() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    for (source, expected) in [
        ("<i class=\"x\">★</i> la maison est belle", "<i class=\"x\">★</i> the house is beautiful"),
        ("la maison<sup>1</sup> est belle", "the house<sup>1</sup> is beautiful"),
        ("la maison est belle<sup>[2]</sup>", "the house is beautiful<sup>[2]</sup>"),
        ("la maison est belle.<sup>12</sup>", "the house is beautiful .<sup>12</sup>"),
        ("<i class=\"x\"></i> la maison est belle", "<i class=\"x\"></i> the house is beautiful"),
        ("la maison est belle <i class=\"x\"></i>", "the house is beautiful <i class=\"x\"></i>"),
        ("<b>♪</b> la maison est belle <b>♪</b>", "<b>♪</b> the house is beautiful <b>♪</b>"),
        ("le chat <img src=\"a\"> est blanc", "the cat <img src=\"a\"> is white"),
        ("le chat <b>→</b> est blanc", "the cat <b>→</b> is white"),
    ] {
        let found =
            translator.translate_document(&format!("<p>{source}</p>"), Format::Html).unwrap();
        assert_eq!(found, format!("<p>{expected}</p>"));
    }
    // The word of a formula is kept, with what is in it.
    let found =
        translator.translate_document("<p>la maison de H<sub>2</sub>O est belle</p>", Format::Html);
    let found = found.unwrap();
    assert_eq!(found.matches("H<sub>2</sub>O").count(), 1, "{found}");
    let cue = "1\n00:00:01,000 --> 00:00:02,000\n♪ la maison est belle ♪\n";
    let found = translator.translate_document(cue, Format::Srt).unwrap();
    assert_eq!(found, cue.replace("la maison est belle", "the house is beautiful"));
    assert_eq!(translator.report().lost, 0);
}

/// The demo model without its rules of normalization, and with other words in the place of some.
fn without_rules(renamed: &[(&str, &str)]) -> TemporaryFolder {
    let place = french();
    let name = |piece: &str| {
        let piece = piece.replace("'\u{2581}", "'");
        let found = renamed.iter().find(|(old, _)| piece.strip_prefix('\u{2581}') == Some(old));
        found.map_or(piece, |(_, new)| format!("\u{2581}{new}"))
    };
    let spm = std::fs::read(place.0.join("source.spm")).unwrap();
    let mut new = Vec::new();
    for (field, value) in fields(&spm) {
        let value = match field {
            // The text of a piece is its first field.
            1 => {
                let parts = fields(value).into_iter().map(|(field, value)| match field {
                    1 => (1, name(str::from_utf8(value).unwrap()).into_bytes()),
                    _ => (field, value.to_vec()),
                });
                message(parts)
            }
            // The rules are the second field of the normalizer.
            3 => message(
                fields(value)
                    .into_iter()
                    .filter(|&(field, _)| field != 2)
                    .map(|(f, v)| (f, v.to_vec())),
            ),
            _ => value.to_vec(),
        };
        new.extend(message([(field, value)]));
    }
    std::fs::write(place.0.join("source.spm"), new).unwrap();
    let vocabulary = std::fs::read_to_string(place.0.join("vocab.json")).unwrap();
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&vocabulary).unwrap();
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        vocabulary.into_iter().map(|(piece, id)| (name(&piece), id)).collect();
    place.write("vocab.json", serde_json::to_string(&vocabulary).unwrap());
    place
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// The fields of a message of protobuf. Those with a length are without it; of others the number is negative.
fn fields(bytes: &[u8]) -> Vec<(i64, &[u8])> {
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let start = at;
        let key = varint(bytes, &mut at);
        match key & 7 {
            0 => drop(varint(bytes, &mut at)),
            5 => at += 4,
            2 => {
                let len = varint(bytes, &mut at) as usize;
                at += len;
                found.push(((key >> 3) as i64, &bytes[at - len..at]));
                continue;
            }
            kind => panic!("{kind}"),
        }
        found.push((-1, &bytes[start..at]));
    }
    found
}

fn message(fields: impl IntoIterator<Item = (i64, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, value) in fields {
        if field > 0 {
            bytes.push((field as u8) << 3 | 2);
            let mut len = value.len();
            while len >= 0x80 {
                bytes.push(len as u8 | 0x80);
                len >>= 7;
            }
            bytes.push(len as u8);
        }
        bytes.extend(value);
    }
    bytes
}

struct Changed {
    _place: TemporaryFolder,
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
}

impl Changed {
    fn new(place: TemporaryFolder) -> Self {
        let model = Arc::new(Model::open(&place.0).unwrap());
        let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
        Self { _place: place, model, tokenizer }
    }

    fn translator(&self, capitals: bool) -> Translator {
        let mut options = TranslateOptions::new(self.model.config());
        options.capitals = capitals;
        Translator::new(&self.model, Arc::clone(&self.tokenizer), options).unwrap()
    }
}

#[test]
fn a_word_is_read_with_the_apostrophe_that_the_model_knows() {
    let demo = Changed::new(without_rules(&[]));
    let translator = demo.translator(true);
    let straight = "aujourd'hui la maison est belle";
    let curly = straight.replace('\'', "\u{2019}");
    let expected = translator.translate_sentences(&[straight]).unwrap().remove(0);
    assert!(expected.unknown.is_empty() && expected.text.contains("today"), "{expected:?}");
    for text in
        ['\u{2019}', '\u{2bc}', '\u{ff07}'].map(|other| straight.replace('\'', &other.to_string()))
    {
        assert_eq!(translator.translate_sentences(&[&text]).unwrap()[0].text, expected.text);
        assert_eq!(texts(&translator, &[text]), std::slice::from_ref(&expected.text));
    }
    // A model that has the other one.
    let demo = Changed::new(without_rules(&[("aujourd'hui", "aujourd\u{2019}hui")]));
    let translator = demo.translator(true);
    for text in [straight, &curly] {
        let found = translator.translate_sentences(&[text]).unwrap().remove(0);
        assert!(found.unknown.is_empty() && found.text == expected.text, "{found:?}");
    }
}

/// Sentences in capitals have the translation of those in small letters, in capitals.
#[test]
fn capitals_are_read_in_small_letters_if_the_model_knows_these() {
    let count = cases(60, 600);
    let plain: Vec<String> =
        sentences(count).into_iter().filter(|one| !one.trim().is_empty()).collect();
    let capitals: Vec<String> = plain.iter().map(|one| one.to_uppercase()).collect();
    // The rules of the demo model make small letters; without them it does not know a capital.
    let demo = Demo::new();
    let changed = Changed::new(without_rules(&[]));
    let mut options = demo.options();
    options.capitals = true;
    for translator in [demo.translator(options), changed.translator(true)] {
        let expected: Vec<String> =
            texts(&translator, &plain).iter().map(|one| one.to_uppercase()).collect();
        assert_eq!(texts(&translator, &capitals), expected);
        assert_eq!(translator.report().small_letters as usize, plain.len());
    }
    let text = "LA MAISON DE {name} EST BELLE. La maison est belle.";
    let translator = demo.translator(demo.options());
    let found = translator.translate_texts(&[text]).unwrap().remove(0);
    assert_eq!(found.text(), "{name} 'S HOUSE IS BEAUTIFUL . the house is beautiful .");
    assert!(found.sentences[0].translation.notes.contains(&Note::SmallLetters));
    let page = "<p>LA <b>MAISON</b> EST BELLE</p>";
    let found = translator.translate_document(page, Format::Html).unwrap();
    assert_eq!(found, "<p>THE <b>HOUSE</b> IS BEAUTIFUL</p>");
    // The option.
    let translator = changed.translator(false);
    let found = translator.translate_texts(&["LA MAISON EST BELLE"]).unwrap().remove(0);
    assert_eq!(names(&found.sentences[0].translation.unknown), ["LA", "MAISON", "EST", "BELLE"]);
}

/// A model that knows the words in capitals as other words: the reading that it finds more probable is taken.
#[test]
fn of_two_readings_that_are_known_the_more_probable_one_is_taken() {
    let renamed = [("chats", "LA"), ("allons", "MAISON"), ("juillet", "EST"), ("froides", "BELLE")];
    let demo = Changed::new(without_rules(&renamed));
    let translator = demo.translator(true);
    let found = texts(&translator, &["LA MAISON EST BELLE".to_owned()]);
    assert_eq!(found, ["THE HOUSE IS BEAUTIFUL"]);
    assert_eq!(translator.report().small_letters, 1);
    // The words in capitals are those of a good sentence, and the small ones are not.
    let renamed = [
        ("la", "LA"),
        ("maison", "MAISON"),
        ("est", "EST"),
        ("belle", "BELLE"),
        ("chats", "la"),
        ("allons", "maison"),
        ("juillet", "est"),
        ("froides", "belle"),
    ];
    let demo = Changed::new(without_rules(&renamed));
    let translator = demo.translator(true);
    let found = texts(&translator, &["LA MAISON EST BELLE".to_owned()]);
    assert_eq!(found, ["the house is beautiful"]);
    assert_eq!(translator.report().small_letters, 0);
}

/// Joiners that mean something stay: in Persian, in Indic scripts, in emoji; and so does the sign between words of scripts
/// without spaces. A model that copies shows what it read.
#[cfg_attr(not(feature = "json"), ignore = "its tokenizers are not SentencePiece files")]
#[test]
fn joiners_that_mean_something_stay() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/copy");
    let translator = Translator::open(directory).unwrap();
    for text in [
        "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}",
        "\u{915}\u{94d}\u{200d}\u{937}",
        "\u{e20}\u{e32}\u{e29}\u{e32}\u{200b}\u{e44}\u{e17}\u{e22}",
        "voir \u{1f469}\u{200d}\u{1f467} ici",
        "mai\u{ad}son\u{a0}: \u{200b}LA MAISON, l\u{2019}eau",
        "LA MAISON EST {name}",
    ] {
        let found = translator.translate_texts(&[text]).unwrap().remove(0);
        assert_eq!(found.text(), text);
        let words = &found.sentences[0].translation;
        assert!(words.unknown.is_empty());
        let read = translator.tokenizer().decode(&words.tokens);
        let joiner = |text: &str| {
            text.chars().filter(|letter| "\u{200b}\u{200c}\u{200d}".contains(*letter)).count()
        };
        let expected = if text.starts_with("mai") { 0 } else { joiner(text) };
        assert_eq!(joiner(&read), expected, "{read:?}");
    }
}

/// A sentence alone, one of a stream, one with the events of its search, and one of a batcher, has the translation of a text of that sentence: with its symbols in their places,
/// in capitals, and with accents that are characters of their own.
#[test]
fn a_sentence_alone_is_read_as_one_of_a_text() {
    let demo = Demo::new();
    let mut options = demo.options();
    options.guard = false;
    let translator = demo.translator_of(4, options);
    let count = cases(120, 1_000);
    let plain: Vec<String> =
        sentences(100).into_iter().filter(|one| !one.trim().is_empty()).collect();
    let sources: Vec<String> = (0..count)
        .map(|i| {
            let plain = &plain[i * 13 % plain.len()];
            match i % 6 {
                0 => format!("{plain} ▾"),
                1 => format!("😀 {plain}"),
                2 => plain.replacen(' ', " ♪ ", 1),
                3 => plain.to_uppercase(),
                4 => format!("▾ {}", plain.to_uppercase()),
                _ => plain.nfd().collect(),
            }
        })
        .collect();
    let given: Vec<&str> = sources.iter().map(String::as_str).collect();
    let expected = translator.translate_texts(&given).unwrap();
    let found = translator.translate_sentences(&given).unwrap();
    let batcher = Batcher::new(&translator).unwrap();
    let pending: Vec<_> = given.iter().map(|text| batcher.submit(text).unwrap()).collect();
    let mut same = 0;
    let others = demo.translator(demo.options());
    for (((text, expected), found), pending) in given.iter().zip(&expected).zip(&found).zip(pending)
    {
        assert_eq!(pending.wait().unwrap(), *found, "{text}");
        let mut parts = String::new();
        let streamed = others.translate_streamed(text, &mut |part| parts.push_str(part)).unwrap();
        assert_eq!((&streamed, &parts), (found, &found.text), "{text}");
        let mut tokens = Vec::new();
        let observed = others
            .translate_observed(text, &mut Hooks::default(), &mut |event| {
                if let Event::Token { token, .. } = event {
                    tokens.push(token.id);
                }
            })
            .unwrap();
        assert_eq!(observed, *found, "{text}");
        // Unless it was searched again.
        assert!(tokens == found.tokens || !found.notes.is_empty() || found.retries > 0, "{text}");
        for symbol in ["▾", "😀", "♪"] {
            assert_eq!(found.text.matches(symbol).count(), text.matches(symbol).count(), "{text}");
        }
        assert!(found.failure.is_none() && found.unknown.is_empty(), "{text}: {found:?}");
        // A text may be more than one sentence.
        if expected.sentences.len() == 1 {
            assert_eq!(found.text, expected.text(), "{text}");
            same += 1;
        }
    }
    assert!(same * 10 >= count * 9, "{same} of {count}");
    let report = translator.report();
    assert_eq!((report.failed, report.lost, report.unknown_words), (0, 0, 0), "{report:?}");
    // Sequences that are not the best one have the symbols, too.
    let mut options = demo.options();
    options.search = demo.model.config().search_options();
    let beams = simdformer::search::BeamOptions { beams: 3, ..Default::default() };
    options.search.strategy = simdformer::search::Strategy::Beam(beams);
    options.search.num_return_sequences = 3;
    let found = demo.translator(options).translate_sentences(&["la maison est belle ▾"]).unwrap();
    assert_eq!(found[0].alternatives.len(), 2);
    for text in found[0].alternatives.iter().map(|one| &one.text).chain([&found[0].text]) {
        assert_eq!(text.matches('▾').count(), 1, "{text}");
    }
    // A summary has no place for the symbols of a text.
    let mut options = demo.options();
    options.symbols = false;
    let found = demo.translator(options).translate_sentences(&["la maison est belle ▾"]).unwrap();
    assert_eq!((found[0].text.contains('▾'), names(&found[0].unknown)), (false, vec!["▾"]));
}

/// Accents that are characters of their own, for models with and without rules that compose them.
#[test]
fn decomposed_accents_are_composed() {
    let count = cases(100, 1_000);
    let accented = |one: &String| !one.nfd().eq(one.chars());
    let plain: Vec<String> = sentences(count).into_iter().filter(accented).collect();
    let decomposed: Vec<String> = plain.iter().map(|one| one.nfd().collect()).collect();
    assert!(plain.len() > 30, "{}", plain.len());
    let (demo, changed) = (Demo::new(), Changed::new(without_rules(&[])));
    for translator in [demo.translator(demo.options()), changed.translator(true)] {
        assert_eq!(texts(&translator, &decomposed), texts(&translator, &plain));
        let given = |texts: &[String]| -> Vec<String> {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let translator = changed.translator(true);
            let found = translator.translate_sentences(&texts).unwrap();
            assert!(found.iter().all(|one| one.unknown.is_empty()));
            found.into_iter().map(|one| one.text).collect()
        };
        assert_eq!(given(&decomposed), given(&plain));
        assert_eq!(translator.report().unknown_words, 0);
    }
}

/// Of a text without any known word a model makes something up, so it is copied, with a note.
#[test]
fn a_text_without_a_known_word_is_copied() {
    let demo = Demo::new();
    let batcher = Batcher::new(&demo.translator(demo.options())).unwrap();
    let words = ["X", "Xyz", "etudiant", "привет", "你好世界", "XYZ", "x1y", "Ångström"];
    let mut sources: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for (i, word) in words.iter().enumerate() {
        let other = words[(i + 3) % words.len()];
        sources.extend([format!("{word} {other}"), format!("{word} 😀"), format!(" «{word}» ")]);
    }
    for source in &sources {
        let translator = demo.translator(demo.options());
        let text = translator.translate_texts(&[source]).unwrap().remove(0);
        let alone = translator.translate_sentences(&[source]).unwrap().remove(0);
        let batched = batcher.submit(source).unwrap().wait().unwrap();
        assert_eq!(text.text(), source);
        for found in [&text.sentences[0].translation, &alone, &batched] {
            assert_eq!(found.text.trim(), source.trim());
            assert_eq!(found.notes, [Note::NoKnownWord], "{source}");
            assert!(found.finish.is_none() && !found.unknown.is_empty(), "{source}: {found:?}");
        }
        assert_eq!(translator.report().without_known_words, 2);
        let page =
            translator.translate_document(&format!("<p>{source}</p>"), Format::Html).unwrap();
        assert_eq!(page, format!("<p>{source}</p>"));
        // With a known word the model reads it.
        let known = format!("{} la maison", source.trim());
        let found = translator.translate_texts(&[&known]).unwrap().remove(0);
        assert!(found.sentences[0].translation.finish.is_some(), "{known}");
    }
    // A term of the glossary is no unknown word.
    let mut options = demo.options();
    options.glossary = Some(Arc::new(Glossary::from_tsv("Xyz\thouse\n").unwrap()));
    let translator = demo.translator(options);
    let found = translator.translate_texts(&["Xyz"]).unwrap().remove(0);
    assert!(found.text().contains("house"), "{found:?}");
}
