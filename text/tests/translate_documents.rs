//! Whole texts and documents: sentences, structure, placeholders, guards.

use crate::effort::cases;
use crate::translator::Demo;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::{Engine, Model, Threads};
use simdformer_testing::published::french;
use simdformer_text::Error;
use simdformer_text::Tokenizer;
use simdformer_text::documents::marked_text::MarkedText;
use simdformer_text::documents::{Document, Format};
use simdformer_text::translator::{Glossary, Note, TextTranslation, TranslateOptions, Translator};
use std::cell::Cell;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

const TWO_SENTENCES: &str = "La vieille maison blanche est belle. Où est-ce qu'elle habite ?";

/// A document of many kinds of text, in the words of the demo model.
const PAGE: &str = "# Quel mois\n\nLa vieille maison blanche est belle. Je suis étudiant.\n\n- quel mois\n  - les \
                    petites filles sont *heureuses*\n\n```\nla maison\n```\n\n> Où est-ce qu'elle habite ?\n\n| quel \
                    mois | 42 |\n|---|---|\n| la maison | `ls` |\n";

/// The documents of `simdformer-documents`, with their names.
pub fn files() -> Vec<(String, Format, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("documents/tests/documents");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, Format::from_path(&path).unwrap(), fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

fn markdown(translator: &Translator) -> String {
    translator.translate_document(PAGE, Format::Markdown).unwrap()
}

#[test]
fn every_sentence_of_a_text_is_translated() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let texts = [TWO_SENTENCES, "", "  \n 42 \n", " quel mois\n\tje suis étudiant  "];
    let found = translator.translate_texts(&texts).unwrap();
    let text = |i: usize| TextTranslation::text(&found[i]);
    assert_eq!(found[0].sentences.len(), 2);
    assert!(text(0).contains("the old white house is beautiful"), "{}", text(0));
    assert!(text(0).ends_with("where does she live ?"), "{}", text(0));
    for sentence in &found[0].sentences {
        assert_eq!(sentence.source, TWO_SENTENCES[sentence.range.clone()]);
    }
    // What has no letter is copied, with all white space.
    assert_eq!([text(1), text(2)], ["", "  \n 42 \n"]);
    assert!(text(3).starts_with(' ') && text(3).ends_with("  "), "{:?}", text(3));
    assert_eq!((translator.report().texts, translator.report().sentences), (4, 3));
}

#[test]
fn a_document_keeps_its_structure() {
    let demo = Demo::new();
    let found = markdown(&demo.translator(demo.options()));
    let (lines, source): (Vec<&str>, Vec<&str>) = (found.lines().collect(), PAGE.lines().collect());
    assert_eq!(lines.len(), source.len(), "{found}");
    for (line, source) in lines.iter().zip(&source) {
        let begin = |line: &str| -> String {
            line.chars().take_while(|c| !c.is_alphabetic() && *c != '*').collect()
        };
        assert_eq!(begin(line), begin(source), "{found}");
    }
    assert_eq!(lines[0], "# what month");
    assert!(found.contains("```\nla maison\n```") && found.contains("| `ls` |"), "{found}");
    // The emphasis is around the word that it was around.
    assert!(found.contains("*happy*"), "{found}");
}

/// French in every format: what is no text is in the translation as it was.
#[test]
fn documents_of_all_formats_keep_their_structure() {
    let documents = [
        (
            Format::Plain,
            "Quel mois\n\n  - la petite maison\n  - je suis étudiant\n\n> quel mois\n\n-----\nla maison\t12\tquel mois\n",
        ),
        (Format::Markdown, PAGE),
        (
            Format::Html,
            "<!doctype html>\n<ul class=\"a\">\n <li>La <b>vieille</b> maison est <i>belle</i>.</li>\n <li><a href='x'>quel mois</a><br>je suis <code>ls</code> étudiant</li>\n</ul>\n<script>la maison</script>\n<!-- quel mois -->\n<p title=\"mois\">où est-ce qu&#39;elle habite&nbsp;?</p>\n",
        ),
        (
            Format::Srt,
            "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>quel mois</i>\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n- je suis étudiant\r\n- la maison est belle\r\n",
        ),
        (
            Format::WebVtt,
            "WEBVTT\n\nNOTE la maison\n\n1\n00:01.000 --> 00:02.000 align:start\n<v Marie>quel mois\n",
        ),
        (
            Format::Json,
            "{\n  \"maison\": \"la maison est belle\",\n  \"b\": [1, true, \"quel mois\\n\\nje suis {n} étudiant\"]\n}\n",
        ),
    ];
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    for (format, text) in documents {
        let found = translator.translate_document(text, format).unwrap();
        let skeleton = |text: &str| {
            let document = Document::parse(text, format).unwrap();
            let plain = MarkedText { text: "X".to_owned(), marks: Vec::new() };
            document.render(&vec![plain; document.segments().len()]).unwrap()
        };
        assert_ne!(found, text, "{format}");
        assert_eq!(skeleton(&found), skeleton(text), "{format}: {found}");
    }
    // An entry that has a translation is no segment.
    let messages = "# la maison\n#: a.c:1\nmsgid \"quel mois\"\nmsgstr \"\"\n";
    let found = translator.translate_document(messages, Format::Gettext).unwrap();
    assert_eq!(found, messages.replace("msgstr \"\"", "msgstr \"what month\""));
    assert_eq!((translator.report().failed, translator.report().lost), (0, 0));
}

/// In windows of any size, on threads, and with other documents before.
#[test]
fn documents_have_the_same_bits_in_any_window() {
    let demo = Demo::new();
    let expected = markdown(&demo.translator(demo.options()));
    for slots in [1, 3] {
        let translator = demo.translator_of(slots, demo.options());
        let many = PAGE.repeat(3);
        let found = translator.translate_document(&many, Format::Markdown).unwrap();
        assert_eq!(found, expected.repeat(3), "{slots}");
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let mut translator = demo.translator(demo.options());
    let engine = Engine::builder(Arc::clone(&demo.model)).threads(Threads::Rayon);
    translator.set_engine(engine.build().unwrap());
    let found = pool.install(|| markdown(&translator));
    assert_eq!(found, expected);
}

/// Counts the bytes that were read and written.
struct Counted<'c, T>(T, &'c Cell<usize>);

impl<T: Read> Read for Counted<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.set(self.1.get() + read);
        Ok(read)
    }
}

impl<T: Write> Write for Counted<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.set(self.1.get() + bytes.len());
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_long_text_is_written_while_it_is_read() {
    let demo = Demo::new();
    let translator = demo.translator_of(1, demo.options());
    let paragraph = format!("quel mois\n\n{}", "-----\n\n".repeat(400));
    let text = paragraph.repeat(100);
    let (read, written) = (Cell::new(0), Cell::new(0));
    let mut output = Vec::new();
    let input = BufReader::with_capacity(1000, Counted(text.as_bytes(), &read));
    let mut most = 0;
    translator
        .translate_reader(input, Format::Plain, &mut Counted(&mut output, &written), &mut |_| {
            most = most.max(read.get() - written.get());
            Ok(())
        })
        .unwrap();
    let found = String::from_utf8(output).unwrap();
    assert_eq!(found, text.replace("quel mois", "what month"));
    assert!(most < text.len() / 2, "{most} of {}", text.len());
}

#[test]
fn placeholders_and_patterns_are_kept() {
    let demo = Demo::new();
    let mut options = demo.options();
    options.keep = vec![regex::Regex::new("Acme-[0-9]+").unwrap()];
    let translator = demo.translator(options);
    let text = "la maison {name} est belle. je suis Acme-7 étudiant %s. quel mois https://example.org/a?b=c";
    let found = translator.translate_texts(&[text]).unwrap();
    for piece in ["{name}", "Acme-7", "%s", "https://example.org/a?b=c"] {
        assert_eq!(found[0].text().matches(piece).count(), 1, "{piece}: {}", found[0].text());
    }
    assert_eq!((translator.report().kept, translator.report().lost), (4, 0));
}

/// The demo model with a bias towards a word: it repeats the word, until rules stop it.
#[test]
fn runaway_repetition_is_translated_again() {
    let demo = Demo::new();
    let word = demo.tokenizer.encode_target("house").unwrap();
    let endless = |guard: bool| {
        let mut options = demo.options();
        options.search.sequence_bias = vec![(word.clone(), 50.0)];
        options.guard = guard;
        let translator = demo.translator(options);
        let found = translator.translate_texts(&["quel mois"]).unwrap();
        (found[0].sentences[0].translation.clone(), translator.report())
    };
    let (plain, report) = endless(false);
    assert_eq!((report.repetitions, plain.retries), (0, 0));
    let (guarded, report) = endless(true);
    assert_eq!((report.repetitions, report.repetitions_left), (1, 0), "{:?}", plain.text);
    assert!(guarded.retries > 0 && guarded.text != plain.text, "{}", guarded.text);
    assert_eq!(endless(true).0, guarded);
}

/// The words that the rules ask for have embeddings that overflow: what was found before stays, with a note.
#[test]
fn an_attempt_that_fails_is_not_taken() {
    let demo = Demo::new();
    let mut options = demo.options();
    let word = demo.tokenizer.encode_target("house").unwrap();
    options.search.sequence_bias = vec![(word, 50.0)];
    // The end token is no way out.
    options.search.min_new_tokens = 20;
    options.guard = false;
    let translate = |translator: Translator| {
        let found = translator.translate_texts(&["quel mois"]).unwrap().remove(0);
        (found.sentences[0].translation.clone(), translator.report())
    };
    let (mut plain, _) = translate(demo.translator(options.clone()));
    let known = [&plain.tokens[..], &[options.search.start]].concat();
    let place = french();
    let checkpoint = Checkpoint::open(&place.0).unwrap();
    let mut config = demo.model.config().clone();
    (config.ties.source_target, config.ties.target_output) = (false, false);
    let model = Model::from_fn(config, |role, shape, out| {
        checkpoint.tensor(role)?.read_into(out)?;
        if role == TensorId::TargetEmbedding {
            let rows = out.chunks_exact_mut(shape[1]).enumerate();
            let rows = rows.filter(|(id, _)| !known.contains(&(*id as u32)));
            rows.for_each(|(_, row)| row.fill(3e38));
        }
        Ok(())
    });
    options.guard = true;
    let tokenizer = Arc::clone(&demo.tokenizer);
    let (found, report) = translate(Translator::new(model.unwrap(), tokenizer, options).unwrap());
    assert_eq!((report.repetitions, report.repetitions_left), (1, 1), "{found:?}");
    plain.retries = 3;
    plain.notes.push(Note::Repetition);
    assert_eq!(found, plain);
}

#[test]
fn terms_of_a_glossary_are_required() {
    let demo = Demo::new();
    let translate = |terms: &str, text: &str| {
        let mut options = demo.options();
        options.glossary = Some(Arc::new(Glossary::from_tsv(terms).unwrap()));
        let translator = demo.translator(options);
        let found = translator.translate_texts(&[text]).unwrap().remove(0);
        (found, translator.report())
    };
    let (found, report) =
        translate("maison\tcar\nchat\tdog\n", "la vieille maison blanche est belle");
    assert!(found.text().contains("car"), "{}", found.text());
    assert_eq!((report.terms, report.terms_again, report.terms_missing), (1, 1, 0));
    assert!(found.sentences[0].translation.retries > 0);
    // What is right already is not translated again.
    let (found, report) = translate("maison\thouse", "la vieille maison blanche est belle");
    assert_eq!(found.text(), "the old white house is beautiful");
    assert_eq!((report.terms, report.terms_again), (1, 0));
    // A sentence that is translated again, because the model does not copy the placeholder, is counted once.
    let text = "la vieille maison {name} est belle";
    let (found, report) = translate("maison\tcar", text);
    assert!(report.kept_again == 1 && found.text().contains("car"), "{report:?} {}", found.text());
    assert_eq!((report.terms, report.terms_again, report.terms_missing), (1, 1, 0));
    // The model cannot write the word.
    let (found, report) = translate("maison\tζ", "la maison est belle");
    let missing = Note::MissingTerm { source: "maison".to_owned(), target: "ζ".to_owned() };
    assert_eq!(report.terms_missing, 1);
    assert!(found.sentences[0].translation.notes.contains(&missing));
}

/// Sentences of which most are translated again: terms that are missing, that no attempt writes, placeholders that the model
/// does not copy, and runaway repetition.
#[test]
fn retries_in_one_batch_are_those_of_each_sentence_alone() {
    const SENTENCES: [&str; 8] = [
        "la vieille maison blanche est belle",
        "je suis étudiant",
        "la vieille maison {name} est belle",
        "quel mois",
        "les petites filles sont heureuses",
        "où est-ce qu'elle habite ?",
        "la maison {a} est belle {b} quel mois",
        "la petite maison est vieille",
    ];
    const TERMS: [&str; 6] =
        ["maison\tcar", "filles\tdogs", "étudiant\tζ", "belle\tmonth", "mois\tgirl", "petite\tζη"];
    let demo = Demo::new();
    let house = demo.tokenizer.encode_target("house").unwrap();
    let (mut again, mut missing, mut kept, mut repeated) = (0, 0, 0, 0);
    for case in 0..cases(3, 40) {
        let chosen = |i: usize| !(case * 7 + i * 5 + case / 3).is_multiple_of(4);
        let terms: Vec<&str> = (0..TERMS.len()).filter(|&i| chosen(i)).map(|i| TERMS[i]).collect();
        let mut options = demo.options();
        options.glossary = Some(Arc::new(Glossary::from_tsv(&terms.join("\n")).unwrap()));
        options.search.sequence_bias = vec![(house.clone(), (case % 4) as f32 * 6.0)];
        let texts: Vec<&str> = (0..12).map(|i| SENTENCES[(i * 3 + case) % 8]).collect();
        let translator = demo.translator(options.clone());
        let together = translator.translate_texts(&texts).unwrap();
        let report = translator.report();
        let alone = demo.translator(options);
        for (text, together) in texts.iter().zip(&together) {
            let found = alone.translate_texts(&[text]).unwrap().remove(0);
            assert_eq!(found.sentences, together.sentences, "case {case}");
            assert_eq!(found.text(), together.text(), "case {case}");
        }
        let mut expected = alone.report();
        expected.plans = report.plans;
        assert_eq!(report, expected, "case {case}");
        (again, missing) = (again + report.terms_again, missing + report.terms_missing);
        (kept, repeated) = (kept + report.kept_again, repeated + report.repetitions);
    }
    assert!(
        again > 10 && missing > 3 && kept > 3 && repeated > 0,
        "{again} {missing} {kept} {repeated}"
    );
}

#[test]
fn a_sentence_that_is_too_long_is_cut_into_parts() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let long =
        format!("{} la maison est belle.", "la vieille maison blanche est belle,".repeat(12));
    let found = translator.translate_texts(&[&long]).unwrap().remove(0);
    assert_eq!((translator.report().cut, translator.report().failed), (1, 0));
    assert!(found.sentences.len() > 1);
    assert!(found.sentences.iter().all(|one| one.translation.notes.contains(&Note::Cut)));
    for sentence in &found.sentences {
        assert!(sentence.translation.text.contains("house"), "{}", found.text());
    }
    let joined: String = found.sentences.iter().map(|one| one.source.clone() + " ").collect();
    assert_eq!(joined.replace(' ', ""), long.replace(' ', ""));
}

/// The model that copies, made by its script's numbers: every document comes back.
#[cfg_attr(not(feature = "json"), ignore = "its tokenizers are not SentencePiece files")]
#[test]
fn sixty_documents_come_back_through_a_model_that_copies() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/copy");
    let model = Model::open(&directory).unwrap();
    let tokenizer = Tokenizer::from_dir(&directory).unwrap();
    let mut options = TranslateOptions::new(model.config());
    options.search.scores = false;
    let translator = Translator::new(model, tokenizer, options).unwrap();
    let files = files();
    assert!(files.len() >= 60);
    for (name, format, text) in files {
        assert_eq!(translator.translate_document(&text, format).unwrap(), text, "{name}");
    }
    let report = translator.report();
    assert_eq!((report.failed, report.lost, report.repetitions), (0, 0, 0), "{report:?}");
}

#[test]
fn errors_of_a_document_are_those_of_its_format() {
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let error = translator.translate_document("{\"a\": \"quel", Format::Json).unwrap_err();
    assert!(matches!(error, Error::InvalidInput { .. }), "{error}");
    let mut sink = Vec::new();
    let input = BufReader::new(&b"quel mois\n\n\xff\n"[..]);
    let error = translator.translate_reader(input, Format::Plain, &mut sink, &mut |_| Ok(()));
    assert!(matches!(error, Err(Error::Io { action: "read", .. })), "{error:?}");
}

/// Of 500 sentences (by day fewer) with a placeholder at any place, also inside of words that belong together, none is lost.
#[test]
fn placeholders_are_kept_in_every_sentence() {
    const PIECES: [&str; 8] = [
        "{name}",
        "{{ name }}",
        "%s",
        "%1$d",
        "<x/>",
        "https://example.org/a?b=c#d",
        "marie@example.org",
        "${total}",
    ];
    let count = cases(120, 500);
    let demo = Demo::new();
    let translator = demo.translator(demo.options());
    let texts: Vec<String> = crate::translator::sentences(count)
        .iter()
        .enumerate()
        .map(|(i, sentence)| {
            let mut words: Vec<&str> = sentence.split_whitespace().collect();
            words.insert(i * 7919 % (words.len() + 1), PIECES[i % PIECES.len()]);
            words.join(" ")
        })
        .collect();
    let sources: Vec<&str> = texts.iter().map(String::as_str).collect();
    let found = translator.translate_texts(&sources).unwrap();
    for (i, found) in found.iter().enumerate() {
        let piece = PIECES[i % PIECES.len()];
        assert_eq!(found.text().matches(piece).count(), 1, "{}: {}", texts[i], found.text());
    }
    let report = translator.report();
    assert_eq!((report.kept, report.lost, report.failed), (count as u64, 0, 0), "{report:?}");
}
