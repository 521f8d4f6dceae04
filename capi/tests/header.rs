//! The committed header is what cbindgen makes of the sources.

use std::path::Path;
use std::process::Command;

fn here(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(here(path)).unwrap()
}

/// The header without what separates its words.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn the_header_is_that_of_cbindgen() {
    let cbindgen = Command::new("cbindgen")
        .args(["--config", "cbindgen.toml", "--crate", "simdformer-capi", "--quiet", "."])
        .current_dir(here(""))
        .output();
    let Ok(made) = cbindgen else {
        println!("SKIPPED: there is no cbindgen (cargo install cbindgen)");
        return;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = String::from_utf8(made.stdout).unwrap();
    let committed = read("include/simdformer.h");
    let differs = words(&committed).iter().zip(words(&made)).position(|(a, b)| *a != b);
    assert!(
        differs.is_none() && words(&committed).len() == words(&made).len(),
        "include/simdformer.h differs from the sources: run the command in cbindgen.toml"
    );
}

/// A declaration that is a line of the sources: its name, and its parameters in C.
fn functions_of_sources() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(here("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for (at, _) in text.match_indices("#[unsafe(no_mangle)]") {
            if text[..at].ends_with("#[doc(hidden)]\n") {
                continue;
            }
            let (_, after) = text[at..].split_once("extern \"C\" fn ").unwrap();
            let (name, after) = after.split_once('(').unwrap();
            let (parameters, _) = after.split_once(')').unwrap();
            let names = parameters.split(',').filter_map(|parameter| parameter.split_once(':'));
            let names = names.map(|(name, _)| name.trim().to_owned()).collect();
            found.push((name.to_owned(), names));
        }
    }
    found.sort();
    found
}

/// The functions that the header declares, with the names of their parameters.
fn functions_of_header(text: &str) -> Vec<(String, Vec<String>)> {
    let declarations = text.split("extern \"C\" {").nth(1).unwrap();
    let without_comments: String = declarations
        .split("/**")
        .map(|part| part.split_once("*/").map_or(part, |(_, after)| after))
        .collect();
    let mut found: Vec<_> = without_comments
        .split(';')
        .filter_map(|declaration| {
            let (before, after) = declaration.split_once('(')?;
            let name = before.rsplit([' ', '*', '\n']).next()?.to_owned();
            let parameters = after.rsplit_once(')')?.0.split(',');
            let names = parameters.filter_map(|parameter| {
                let name = parameter.rsplit([' ', '*', '\n']).next()?;
                (name != "void").then(|| name.to_owned())
            });
            Some((name, names.collect()))
        })
        .collect();
    found.sort();
    found
}

/// Without cbindgen too: every function with the names of its parameters, and every constant with its value.
#[test]
fn the_header_has_the_functions_and_constants_of_the_sources() {
    let header = read("include/simdformer.h");
    let functions = functions_of_sources();
    assert!(functions.len() > 40, "{} functions", functions.len());
    assert_eq!(functions_of_header(&header), functions);
    let mut constants = 0;
    for entry in std::fs::read_dir(here("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("pub const SF_")) {
            let (name, value) = line.split_once(": ").unwrap();
            let value = value.split_once("= ").unwrap().1.trim_end_matches(';');
            assert!(header.contains(&format!("#define SF_{name} {value}\n")), "SF_{name} {value}");
            constants += 1;
        }
    }
    assert_eq!(header.matches("#define SF_").count(), constants + 1, "and SF_DEFAULTS");
}

/// Each kind of error has a code of its own, and the other way around.
#[test]
fn codes_are_the_kinds_of_the_error_of_the_core() {
    let errors = read("../src/error/mod.rs");
    let (_, kinds) = errors.split_once("pub enum Error {").unwrap();
    let (kinds, _) = kinds.split_once("\n}\n").unwrap();
    let kinds: Vec<String> = kinds
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .map(|line| line.chars().take_while(char::is_ascii_alphanumeric).collect())
        .collect();
    assert!(kinds.len() > 10);
    let codes = read("src/errors.rs");
    for (value, kind) in (1..).zip(&kinds) {
        let mut name = String::from("SF_ERROR");
        for letter in kind.chars() {
            if letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        assert!(codes.contains(&format!("pub const {name}: i32 = {value};")), "{name} = {value}");
        assert!(codes.contains(&format!("Error::{kind}")), "{kind}");
    }
    // Those of this interface follow from 32 on.
    let own =
        codes.lines().filter(|line| line.starts_with("pub const SF_ERROR_")).count() - kinds.len();
    for value in 32..32 + own {
        assert!(codes.contains(&format!("i32 = {value};")), "{value}");
    }
}
