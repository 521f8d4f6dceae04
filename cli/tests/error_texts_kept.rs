//! The texts of errors before this crate had one error type. The new texts say everything that the old ones said.
//!
//! `error_texts_before.tsv` has one line for each kind of text: the old text, a tab, and the new text or the part
//! of it that another test compares with an error.

use simdformer_speech::Wav;
use simdformer_testing::compare_texts::compare_texts;
use simdformer_text::Error;
use simdformer_text::documents::marked_text::{Mark, MarkKind, MarkedText};
use simdformer_text::documents::tables::{Format as TableFormat, Job, Output, Table};
use simdformer_text::documents::{Document, Format};
use simdformer_text::embedder::Ranges;
use simdformer_text::translator::{Failure, Glossary};
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::path::Path;

/// Words that say nothing about a mistake, or whose meaning the form "operand: expected .., found .." has.
const EMPTY: &str = " a already and another are as asked be but cannot comes for has have is it its know must need needs \
    no not of one some supported than that the there these this to two was were given write written ";

/// The text of the tests of a folder and of the folders in it.
fn tests(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            *text += &fs::read_to_string(&path).unwrap();
        }
    }
}

#[test]
fn no_text_has_lost_a_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut expected = String::new();
    for folder in [
        "cli/tests",
        "speech/tests",
        "text/tests",
        "text/documents/tests",
        "text/tokenize/tests",
        "text/src/translator",
    ] {
        tests(&root.join(folder), &mut expected);
    }
    let table = include_str!("error_texts_before.tsv");
    let [kinds, compared] = compare_texts(table, &[&expected], EMPTY);
    assert!(kinds >= 80 && compared >= 600, "{kinds} texts, {compared} words");
}

/// The texts of the list that no other test compares.
#[test]
fn rare_errors_have_their_texts() {
    let denied = || IoError::new(ErrorKind::PermissionDenied, "permission denied");
    let document = Document::parse("one\n\ntwo\n", Format::Plain).unwrap();
    let one = MarkedText { text: "one".to_owned(), marks: Vec::new() };
    let kind = MarkKind::Keep { source: None };
    let broken = MarkedText { marks: vec![Mark { range: 2..9, kind, id: 0 }], ..one.clone() };
    let format = TableFormat::Csv { delimiter: b',' };
    let table = Table { format, header: true, source: "a".to_owned(), output: None };
    let no_answers = Job::new(table).fill_column(
        &mut "a\nx\ny\n".as_bytes(),
        Output::Stream(&mut Vec::new()),
        &mut |_: &[&str]| Ok(Vec::new()),
        &mut |_| (),
    );
    assert_eq!(
        Wav::new(&b""[..]).unwrap_err().to_string(),
        "the format: expected a WAV file, found an empty file; `ffmpeg -i FILE -ac 1 OUT.wav` converts audio",
    );
    let io = |action, path: &str, error| Error::Io { action, path: path.into(), error };
    for (error, text) in [
        (
            Glossary::from_tsv(&"a".repeat((64 << 20) + 1)).unwrap_err(),
            "glossary: expected at most 67108864 bytes, found 67108865",
        ),
        (
            Ranges::new(vec![0.0; 2], vec![1.0; 1]).unwrap_err(),
            "ranges: expected 2 dimensions, found 1",
        ),
        (
            document.render(&[one.clone(), one.clone(), one.clone()]).unwrap_err().into(),
            "segments: expected 2, as the document has, found 3",
        ),
        (
            document.render(&[one, broken]).unwrap_err().into(),
            "segment 1: expected marks that fit its text, found a mark that is not in the text or splits a character",
        ),
        (no_answers.unwrap_err().into(), "answers: expected 2, one for each source, found 0"),
        (io("read", "m/vocab.json", denied()), "m/vocab.json: cannot be read: permission denied"),
        (
            io("written", "m/config.json", denied()),
            "m/config.json: cannot be written: permission denied",
        ),
        (io("read", "the rows", denied()), "the rows: cannot be read: permission denied"),
        (io("written", "the rows", denied()), "the rows: cannot be written: permission denied"),
        (
            io("read on", "the recording", ErrorKind::BrokenPipe.into()),
            "the recording: cannot be read on: broken pipe",
        ),
        (
            Error::FailedSentence {
                index: 4,
                sentence: 1,
                source: "a".to_owned(),
                failure: Failure::NotFinite,
            },
            "text 4, sentence 1, \"a\": the model's scores are NaN or infinite",
        ),
        (Error::Closed, "the batcher is closed"),
        (
            Error::Model(simdformer::Error::NotFinite {
                index: None,
                operand: "window at 1.20 s, scores of the model".into(),
                position: None,
                found: None,
            }),
            "window at 1.20 s, scores of the model: expected finite numbers, found NaN or an infinity",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
