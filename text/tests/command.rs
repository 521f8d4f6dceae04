//! The command as a user runs it.

use crate::directories::{Temporary, full, golden};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The small trained model with SentencePiece files for its words.
fn french() -> Temporary {
    let place = Temporary::new("fr-en");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en");
    let files = |folder: PathBuf, names: &[&str]| {
        for name in names {
            fs::copy(folder.join(name), place.0.join(name)).unwrap();
        }
    };
    files(model, &["config.json", "generation_config.json", "model.safetensors"]);
    files(golden("fr-en"), &["source.spm", "target.spm", "vocab.json", "tokenizer_config.json"]);
    place
}

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_simdformer"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails at once does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn out(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn translate(place: &Temporary, more: &[&str], input: &str) -> Output {
    let model = place.0.to_str().unwrap();
    run(&[&["translate", "--model", model], more].concat(), input)
}

#[test]
fn sentences_are_translated() {
    let place = french();
    let output = translate(&place, &["Je suis étudiant", "Où est-ce qu'elle habite ?"], "");
    assert_eq!(out(&output), "i am a student\nwhere does she live ?\n", "{}", err(&output));
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
}

#[test]
fn lines_come_out_in_order_and_blank_ones_blank() {
    let place = french();
    let input = "la vieille maison blanche est belle\n\n   \nquel mois\r\nje suis étudiant";
    let output = translate(&place, &[], input);
    let expected = "the old white house is beautiful\n\n\nwhat month\ni am a student\n";
    assert_eq!(out(&output), expected, "{}", err(&output));
    // Whatever the number of threads and slots, and from a file.
    place.write("lines.txt", input);
    let file = place.0.join("lines.txt");
    let more = ["--file", file.to_str().unwrap(), "--threads", "2", "--slots", "1"];
    assert_eq!(out(&translate(&place, &more, "")), expected);
    // And streamed.
    assert_eq!(out(&translate(&place, &["--stream", "--beams", "1"], input)), expected);
}

#[test]
fn json_lines_say_more() {
    let place = french();
    let output = translate(&place, &["--json", "--beams", "2"], "quel mois\n\n");
    let lines: Vec<serde_json::Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", err(&output));
    assert_eq!(lines[0]["text"], "what month");
    assert_eq!(lines[0]["finish"], "end");
    assert_eq!(lines[0]["truncated"], false);
    assert!(lines[0]["score"].as_f64().unwrap() < 0.0);
    assert_eq!(lines[1]["text"], "");
    assert_eq!(lines[1]["finish"], serde_json::Value::Null);
}

#[test]
fn what_is_too_long_is_reported() {
    let place = french();
    let long = "la maison ".repeat(400);
    let input = format!("quel mois\n{long}\nquel mois\n");
    let output = translate(&place, &[], &input);
    assert_eq!(out(&output), "what month\n\nwhat month\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("text 2: 801 tokens, the model takes "), "{}", err(&output));
    let output = translate(&place, &["--json"], &input);
    let second: serde_json::Value =
        serde_json::from_str(out(&output).lines().nth(1).unwrap()).unwrap();
    assert!(
        second["text"].is_null() && second["error"].as_str().unwrap().starts_with("801 tokens")
    );
    // Cut on request, and said so.
    place.write(
        "tokenizer_config.json",
        r#"{"tokenizer_class": "MarianTokenizer", "model_max_length": 16}"#,
    );
    let output = translate(&place, &["--truncate", "--json"], &input);
    let second: serde_json::Value =
        serde_json::from_str(out(&output).lines().nth(1).unwrap()).unwrap();
    assert_eq!(second["truncated"], true, "{second}");
    assert!(err(&output).contains("text 2 has 801 tokens and was cut"), "{}", err(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_file_is_one_text_where_it_is_summarized() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let output = run(&["summarize", "--model", model], "je suis étudiant\n");
    assert_eq!(out(&output), "i am a student\n", "{}", err(&output));
    let output = run(&["summarize", "--lines", "--model", model], "quel mois\nquel mois\n");
    assert_eq!(out(&output), "what month\nwhat month\n");
}

#[test]
fn what_was_loaded_is_shown() {
    let place = french();
    let output = run(&["show", "--model", place.0.to_str().unwrap()], "");
    let text = out(&output);
    for part in [
        "marian, d_model 128, ",
        " parameters",
        "text: Marian, 0 languages",
        "asks for: ",
        "max_length 40",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}{}", err(&output));
    }
    let output = translate(&place, &["--summary", "quel mois"], "");
    assert!(err(&output).contains("text: Marian"), "{}", err(&output));
}

#[test]
fn languages_are_listed_and_checked_before_weights_are_read() {
    // There are no weights in this directory.
    let place = full("nllb");
    let model = place.0.to_str().unwrap();
    let output = run(&["languages", "--model", model], "");
    assert_eq!(out(&output).lines().count(), 202);
    assert_eq!(out(&output).lines().next(), Some("ace_Arab"));
    let output = translate(&place, &["--from", "eng_Latn", "--to", "french", "x"], "");
    assert_eq!(output.status.code(), Some(1));
    let message = "simdformer: the model has no language \"french\"; nearest: f";
    assert!(err(&output).starts_with(message), "{}", err(&output));
}

#[test]
fn wrong_command_lines_are_told() {
    for (arguments, message) in [
        (&["translate"][..], "simdformer: expected --model DIR\n"),
        (&["fly"], "simdformer: expected translate, summarize, languages or show, found \"fly\"\n"),
    ] {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).starts_with(message), "{}", err(&output));
    }
    assert!(out(&run(&["--help"], "")).starts_with("Runs a published encoder-decoder on text."));
}
