//! `translate` of whole texts and files of documents.

use crate::command::{err, out, run_command};
use simdformer_testing::published::{french, nllb};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::documents::archives::{Archive, ArchiveFormat};
use std::fs;
use std::path::Path;

const TWO_SENTENCES: &str = "La vieille maison blanche est belle. Où est-ce qu'elle habite ?";

fn translate(place: &TemporaryFolder, more: &[&str], input: &str) -> std::process::Output {
    let model = place.0.to_str().unwrap();
    run_command(&[&["translate", "--model", model], more].concat(), input)
}

#[test]
fn the_command_translates_whole_texts() {
    let place = french();
    let output = translate(&place, &[TWO_SENTENCES], "");
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    let text = out(&output).to_owned();
    assert!(text.contains("is beautiful") && text.ends_with("where does she live ?\n"), "{text}");
    // From standard input, with its blank lines.
    let input = "quel mois\n\n  quel mois\n\n\n";
    assert_eq!(out(&translate(&place, &[], input)), "what month\n\n  what month\n\n\n");
    // Several arguments.
    let output = translate(&place, &["quel mois", "", "quel mois"], "");
    assert_eq!(out(&output), "what month\n\nwhat month\n");
}

#[test]
fn the_command_writes_files_when_they_are_complete() {
    let place = french();
    place.write("a.md", "# quel mois\n\n`x`\n");
    place.write("b.srt", "1\n00:00:01,000 --> 00:00:02,000\nquel mois\n");
    let path = |name: &str| place.0.join(name).to_str().unwrap().to_owned();
    let (a, b, to) = (path("a.md"), path("b.srt"), path("out"));
    let one = path("one.md");
    let output = translate(&place, &["--file", &a, "--output", &one], "");
    assert_eq!((output.status.code(), out(&output)), (Some(0), ""), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(&one).unwrap(), "# what month\n\n`x`\n");
    let output = translate(&place, &["--file", &a, "--file", &b, "--output", &to], "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let read = |name: &str| std::fs::read_to_string(Path::new(&to).join(name)).unwrap();
    assert_eq!(read("a.md"), "# what month\n\n`x`\n");
    assert_eq!(read("b.srt"), "1\n00:00:01,000 --> 00:00:02,000\nwhat month\n");
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 2);
    // A file is not written over while it is read.
    let directory = place.0.to_str().unwrap();
    let output = translate(&place, &["--file", &a, "--file", &b, "--output", directory], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("is read and would be replaced"), "{}", err(&output));
}

#[test]
fn json_has_an_object_for_each_sentence() {
    let place = french();
    for beams in ["1", "2"] {
        let more = ["--json", "--beams", beams, TWO_SENTENCES];
        let output = translate(&place, &more, "");
        let lines: Vec<serde_json::Value> =
            out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{}", err(&output));
        let one = &lines[1];
        assert_eq!(one["source"], "Où est-ce qu'elle habite ?");
        assert_eq!(one["text"], "where does she live ?");
        let scores: Vec<f64> = one["token_log_probabilities"]
            .as_array()
            .unwrap()
            .iter()
            .map(|score| score.as_f64().unwrap())
            .collect();
        // Five words and the end.
        assert_eq!(scores.len(), 6);
        let mean = one["mean_log_probability"].as_f64().unwrap();
        let min = one["min_log_probability"].as_f64().unwrap();
        assert!(
            (scores.iter().sum::<f64>() / 6.0 - mean).abs() < 1e-6 && min <= mean && mean < 0.0
        );
        let words = |key: &str| one[key].as_array().unwrap().clone();
        let place = |words: &[serde_json::Value], word: &str| {
            words
                .iter()
                .position(|found| found == word)
                .unwrap_or_else(|| panic!("{word}: {words:?}"))
        };
        let source = place(&words("source_words"), "habite");
        let target = place(&words("target_words"), "live");
        let links = words("alignment");
        assert!(links.contains(&serde_json::json!([source, target])), "{links:?}");
    }
}

/// Of two paragraphs the one in the language of the output is copied; the language of the other is detected.
#[test]
fn the_language_of_each_paragraph_is_detected() {
    let place = nllb();
    let english = "The weather in the north of the country was very cold during this winter.";
    let french = "Où est-ce qu'elle habite depuis son retour dans la ville de son enfance ?";
    let input = format!("{english}\n\n{french}\n");
    let more = ["--from", "auto", "--to", "eng_Latn", "--json"];
    let output = translate(&place, &more, &input);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines: Vec<serde_json::Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty());
    let sources: Vec<&str> = lines.iter().map(|line| line["source"].as_str().unwrap()).collect();
    assert_eq!(sources.join(" "), french);
    assert!(lines.iter().all(|line| line["language"] == "fra_Latn"), "{lines:?}");
    let output = translate(&place, &more[..4], &input);
    assert!(out(&output).starts_with(&format!("{english}\n\n")), "{}", out(&output));
    assert!(!out(&output).contains(french), "{}", out(&output));
    let output = translate(&place, &[&more[..4], &["--summary"]].concat(), &input);
    assert!(err(&output).contains("1 texts were in the target language"), "{}", err(&output));
}

#[test]
fn options_of_documents_are_refused_with_lines() {
    let place = french();
    let output = translate(&place, &["--lines", "--keep", "x", "quel mois"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).starts_with("simdformer: --keep is for documents"), "{}", err(&output));
    let output = translate(&place, &["--format", "doc", "quel mois"], "");
    assert_eq!(output.status.code(), Some(2));
    let expected = "expected auto, text, markdown, html, srt, vtt, json";
    assert!(err(&output).contains(expected), "{}", err(&output));
    let output = translate(&place, &["--from", "auto", "quel mois"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("the model reads one language"), "{}", err(&output));
    place.write("terms.tsv", "maison\n");
    let terms = place.0.join("terms.tsv");
    let output = translate(&place, &["--glossary", terms.to_str().unwrap(), "quel mois"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("line 1: expected two terms"), "{}", err(&output));
}

#[test]
fn archives_are_read_from_files_and_written_to_files() {
    let place = french();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/documents/tests/archives");
    let source = folder.join("python_docx.docx");
    let (source, path) = (source.to_str().unwrap(), place.0.join("out.docx"));
    let to = path.to_str().unwrap();
    let output = translate(&place, &["--file", source, "--output", to], "");
    assert_eq!((output.status.code(), out(&output)), (Some(0), ""), "{}", err(&output));
    let mut archive = Archive::open(fs::File::open(&path).unwrap(), ArchiveFormat::Docx).unwrap();
    let mut texts = Vec::new();
    while let Some(document) = archive.next_document().unwrap() {
        texts.extend(document.segments().iter().map(|segment| segment.text.clone()));
    }
    assert_eq!(texts[0], "what month");
    let habite = texts.iter().find(|text| text.contains("where does she live"));
    assert!(habite.is_some(), "{texts:?}");
    // The same sentences as JSON.
    let output = translate(&place, &["--file", source, "--json"], "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).starts_with("{") && out(&output).contains("what month"));
    for (more, expected) in [
        (vec!["--file", source], "a docx document is written to --output"),
        (vec!["--file", source, "--lines"], "is a document, without lines"),
        (vec!["--format", "docx"], "a docx document is read from --file"),
        (vec!["--format", "docx", "quel mois"], "a docx document is read from --file"),
    ] {
        let output = translate(&place, &more, "");
        assert_eq!((output.status.code(), out(&output)), (Some(2), ""));
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
    // Nothing is written of an archive that is none.
    place.write("bad.odt", "PK\u{3}\u{4}");
    let (bad, none) = (place.0.join("bad.odt"), place.0.join("none.odt"));
    let more = ["--file", bad.to_str().unwrap(), "--output", none.to_str().unwrap()];
    let output = translate(&place, &more, "");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("bad.odt: the archive: expected a whole zip"),
        "{}",
        err(&output)
    );
    assert!(!none.exists());
}
