//! Words, symbols and capitals that a model does not know: what `translate` writes and notes.

use crate::command::{err, out, run_command};
use simdformer_testing::published::french;

#[test]
fn the_command_names_unknown_words() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let translate = |more: &[&str], input: &str| {
        run_command(&[&["translate", "--model", model], more].concat(), input)
    };
    let expected = "the model does not know \"etudiant\" (near it: \"étudiant\"";
    for (more, input) in [
        (&["je suis etudiant"][..], ""),
        (&["--lines", "je suis etudiant"], ""),
        (&["--column", "a", "--format", "csv"], "a\nje suis etudiant\n"),
        (&["--column", "a", "--format", "csv", "--lines"], "a\nje suis etudiant\n"),
    ] {
        let output = translate(more, input);
        assert_eq!(output.status.code(), Some(0), "{more:?}");
        assert!(err(&output).contains(expected), "{more:?}: {}", err(&output));
        assert!(err(&output).contains("1 words are unknown"), "{more:?}: {}", err(&output));
    }
    for more in [&["--json"][..], &["--json", "--lines"]] {
        let output = translate(&[more, &["je suis etudiant"]].concat(), "");
        let line: serde_json::Value = serde_json::from_str(out(&output)).unwrap();
        assert_eq!(line["unknown"][0]["text"], "etudiant", "{line}");
        assert_eq!(line["unknown"][0]["nearest"][0], "étudiant", "{line}");
    }
}

#[test]
fn capitals_may_be_left_as_they_are() {
    let place = french();
    let model = place.0.to_str().unwrap();
    for more in [&[][..], &["--lines"]] {
        let command = ["translate", "--model", model, "--capitals", "false", "LA MAISON EST BELLE"];
        let output = run_command(&[&command, more].concat(), "");
        assert_eq!(out(&output), "the house is beautiful\n", "{more:?}");
    }
}

/// Lines, streams and explanations have the symbols and the capitals that a text has.
#[test]
fn symbols_and_capitals_are_those_of_a_text() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let lines = "la maison est belle ▾\nLA MAISON EST BELLE\n";
    let expected = "the house is beautiful ▾\nTHE HOUSE IS BEAUTIFUL\n";
    for more in [&["--lines"][..], &["--stream", "--beams", "1"]] {
        let output = run_command(&[&["translate", "--model", model], more].concat(), lines);
        assert_eq!((out(&output), err(&output)), (expected, ""), "{more:?}");
    }
    let output = run_command(&["translate", "--model", model, "--explain=1", "--json"], lines);
    let texts: Vec<String> = out(&output)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].to_string())
        .collect();
    assert_eq!(texts, ["\"the house is beautiful ▾\"", "\"THE HOUSE IS BEAUTIFUL\""]);
    assert_eq!(err(&output).matches("the steps are those of its first search").count(), 2);
    let plain = ["translate", "--model", model, "--capitals", "false", "--stream", "--beams", "1"];
    assert_eq!(out(&run_command(&plain, "LA MAISON EST BELLE")), "the house is beautiful\n");
}

#[test]
fn a_text_without_a_known_word_is_copied_with_a_note() {
    let model = french();
    let place = model.0.to_str().unwrap();
    for more in [&[][..], &["--lines"], &["--stream", "--beams", "1"], &["--explain"]] {
        let output = run_command(&[&["translate", "--model", place], more, &["Xyz"]].concat(), "");
        assert_eq!((output.status.code(), out(&output)), (Some(0), "Xyz\n"), "{more:?}");
        let note = "copied, because the model knows no word of it";
        assert!(err(&output).contains(note), "{more:?}: {}", err(&output));
    }
}
