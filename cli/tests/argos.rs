//! Packages of Argos Translate on the command line: as a model, and as the second model of a pivot.

use crate::command::{err, out, run_command};
use serde_json::json;
use simdformer_testing::argos::{archive, extract, files, metadata};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::translator::Translator;
use std::fs;
use std::path::Path;

#[test]
fn packages_are_models() {
    let place = TemporaryFolder::new("cli-argos");
    let file = place.0.join("fr_en.argosmodel");
    fs::write(&file, archive(&metadata())).unwrap();
    let folder = place.0.join("fr_en");
    extract(&files(&metadata()), &folder);
    for model in [&file, &folder] {
        let model = model.to_str().unwrap();
        let output = run_command(&["languages", "--model", model], "");
        assert_eq!(out(&output), "fr\nen\n", "{}", err(&output));
        let languages = ["--from", "fr", "--to", "en"];
        for more in [&[][..], &languages] {
            let command = [&["translate", "--model", model], more, &["je suis étudiant"]].concat();
            let output = run_command(&command, "");
            assert_eq!(out(&output), "i am a student\n", "{}", err(&output));
        }
        let output = run_command(
            &["translate", "--model", model, "--lines"],
            "quel mois\nje suis étudiant\n",
        );
        assert_eq!(out(&output), "what month\ni am a student\n", "{}", err(&output));
        let output = run_command(&["translate", "--model", model, "--to", "de", "quel mois"], "");
        assert!(err(&output).contains("\"de\"") && !output.status.success(), "{}", err(&output));
        let output = run_command(&["show", "--model", model], "");
        assert!(out(&output).contains("4 beams, length penalty 0.2"), "{}", out(&output));
    }
    // A table, whose journal names the model by its bytes.
    let table = place.0.join("a.csv");
    fs::write(&table, "text\nquel mois\n").unwrap();
    let (model, table) = (file.to_str().unwrap(), table.to_str().unwrap());
    let output =
        run_command(&["translate", "--model", model, "--file", table, "--column", "text"], "");
    assert_eq!(out(&output), "text,translation\nquel mois,what month\n", "{}", err(&output));
    // The package is not replaced.
    let output = run_command(&["translate", "--model", model, "--output", model, "quel mois"], "");
    assert!(err(&output).contains("is read and would be replaced"), "{}", err(&output));
}

/// The output of the first model is the input of the second one, also of documents and archives.
#[test]
fn a_pivot_translates_twice() {
    let place = TemporaryFolder::new("cli-pivot");
    let package = |name: &str, from: &str, to: &str| {
        let mut about = metadata();
        (about["from_code"], about["to_code"]) = (json!(from), json!(to));
        let file = place.0.join(name);
        fs::write(&file, archive(&about)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    // The demo model as one from English to Spanish writes the same nonsense each time.
    let (first, second) =
        (package("fr_en.argosmodel", "fr", "en"), package("en_es.argosmodel", "en", "es"));
    let text = "je suis étudiant. il fait froid.";
    let open = |path: &str| Translator::open(Path::new(path)).unwrap();
    let between = open(&first).translate(text).unwrap();
    let expected = open(&second).translate(&between).unwrap();
    assert_ne!(between, expected);
    let translate = |more: &[&str]| {
        run_command(&[&["translate", "--model", &first, "--pivot", &second], more].concat(), "")
    };
    for more in [&[][..], &["--from", "fr", "--to", "es"]] {
        let output = translate(&[more, &[text]].concat());
        assert_eq!(out(&output), format!("{expected}\n"), "{}", err(&output));
    }
    let page = place.0.join("a.md");
    fs::write(&page, format!("# {text}\n\n`x`\n")).unwrap();
    let output = translate(&["--file", page.to_str().unwrap()]);
    assert_eq!(out(&output), format!("# {expected}\n\n`x`\n"), "{}", err(&output));
    // The languages must meet.
    let command = ["translate", "--model", &second, "--pivot", &second, text];
    let output = run_command(&command, "");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("reads es"), "{}", err(&output));
    let output = translate(&["--lines", text]);
    assert!(err(&output).contains("--pivot"), "{}", err(&output));
}
