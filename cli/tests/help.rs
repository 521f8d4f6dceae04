//! What the command prints about itself: help, version, completions, manual pages.

use crate::command::{err, out, run_command};
use std::fs;
use std::path::Path;

const COMMANDS: [&str; 13] = [
    "translate",
    "summarize",
    "generate",
    "embed",
    "rerank",
    "transcribe",
    "get",
    "pack",
    "serve",
    "languages",
    "show",
    "completions",
    "man",
];

/// The help of every command is that of `help.txt`. `SIMDFORMER_WRITE_HELP=1` writes this file; read the
/// difference before it is committed.
#[test]
fn help_is_the_golden_help() {
    let mut found = String::new();
    for command in ["help"].iter().chain(&COMMANDS) {
        let arguments = if *command == "help" { vec!["--help"] } else { vec![*command, "--help"] };
        let output = run_command(&arguments, "");
        assert_eq!((output.status.code(), err(&output)), (Some(0), ""), "{command}");
        found += &format!("$ simdformer {}\n\n{}\n", arguments.join(" "), out(&output));
    }
    // A line that ends in a blank is easily changed by an editor.
    let found: String = found.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help.txt");
    if std::env::var_os("SIMDFORMER_WRITE_HELP").is_some_and(|value| value == "1") {
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    for (number, (found, expected)) in (1..).zip(found.lines().zip(expected.lines())) {
        assert_eq!(found, expected, "help.txt:{number}");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
    assert!(found.lines().all(|line| line.chars().count() <= 100), "wider than 100 columns");
}

#[test]
fn version_has_the_commit_and_the_instruction_set() {
    let output = run_command(&["--version"], "");
    let lines: Vec<&str> = out(&output).lines().collect();
    let version = format!("simdformer {}", env!("CARGO_PKG_VERSION"));
    assert_eq!((lines.len(), lines[0]), (3, &version[..]), "{lines:?}");
    let commit = lines[1].strip_prefix("commit: ").unwrap();
    let known = commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(known || commit == "unknown", "{commit}");
    let isa = lines[2].strip_prefix("instruction set: ").unwrap();
    assert!(simdformer::kernels::ISA_NAMES.contains(&isa), "{isa}");
    let output = run_command(&["-V"], "");
    assert_eq!(out(&output), format!("{version}\n"));
    // A manual page is the same on every machine.
    assert!(!out(&run_command(&["man"], "")).contains("instruction set:"));
}

#[test]
fn completions_know_every_command_and_option() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run_command(&["completions", shell], "");
        assert_eq!((output.status.code(), err(&output)), (Some(0), ""), "{shell}");
        for command in COMMANDS {
            assert!(out(&output).contains(command), "{shell}: {command}");
        }
        for option in ["max-new-tokens", "compare-weights", "table", "language"] {
            assert!(out(&output).contains(option), "{shell}: {option}");
        }
    }
}

#[test]
fn manual_pages_have_the_options_of_their_command() {
    let page = run_command(&["man"], "");
    let text = out(&page);
    assert!(text.contains(".TH simdformer 1") && text.contains("SUBCOMMANDS"), "{text}");
    for command in COMMANDS {
        assert!(text.contains(&format!("simdformer\\-{command}(1)")), "{command}: {text}");
        let page = run_command(&["man", command], "");
        assert_eq!((page.status.code(), err(&page)), (Some(0), ""), "{command}");
        assert!(out(&page).contains(&format!(".TH simdformer-{command} 1")), "{}", out(&page));
    }
    let generate = run_command(&["man", "generate"], "");
    for option in ["beams", "top\\-p", "save\\-packed", "ngrams"] {
        assert!(out(&generate).contains(&format!("\\-\\-{option}")), "{option}");
    }
    let none = run_command(&["man", "fly"], "");
    assert_eq!(none.status.code(), Some(2));
    let message = "simdformer: man: expected one of translate, summarize, ";
    assert!(err(&none).starts_with(message) && err(&none).ends_with("found \"fly\"\n"));
}
