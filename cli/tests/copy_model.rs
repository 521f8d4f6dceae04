//! The model that copies its input, in `models/copy`.

use crate::command::{err, out, run_command};
use simdformer_text::documents::{Document, Format};
use std::fs;
use std::path::Path;

/// Lines of every length from 1 to 120 bytes, and of the most bytes that the model reads, in several scripts.
fn lines() -> String {
    let characters: Vec<char> =
        "abcdefghijklmnopqrstuvwxyz ABC,.;:!?<&{'éü文я猫ह😀".chars().collect();
    let mut state = 1_u64;
    let mut lines = String::new();
    for length in (1..=120).chain([500, 1021]) {
        let mut line = "x".to_string();
        loop {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let c = characters[(state >> 33) as usize % characters.len()];
            if line.len() + c.len_utf8() > length {
                break;
            }
            line.push(c);
        }
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}

#[test]
fn every_line_is_copied() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/copy");
    let model = model.to_str().unwrap();
    let mut input = lines();
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/documents/tests/documents");
    for entry in fs::read_dir(documents).unwrap() {
        let path = entry.unwrap().path();
        let (format, text) =
            (Format::from_path(&path).unwrap(), fs::read_to_string(&path).unwrap());
        for segment in Document::parse(&text, format).unwrap().segments() {
            input.push_str(&segment.text);
            input.push('\n');
        }
    }
    for more in [&[] as &[&str], &["--weights", "int8"], &["--beams", "3"]] {
        let output = run_command(&[&["translate", "--model", model], more].concat(), &input);
        assert_eq!(out(&output), input, "{more:?}: {}", err(&output));
    }
}
