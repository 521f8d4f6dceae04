//! The operands in errors have the names of parameters: of a public function, or of a field of a public structure that is
//! one. The test reads the source of every kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What an error names that is no parameter: items of an operand, followed by their index, and what a size is of.
const OTHERS: [&str; 16] = [
    "the build of simdformer-kernels",
    // One of several.
    "row",
    "token",
    "key",
    "sequence",
    "slot",
    "head",
    "a block of rows",
    "a block of tokens",
    // What a function computes the size of, or what has no such item.
    "the scratch",
    "the list of tasks",
    "the packed matrix",
    "the quantized matrix",
    "the quantized activations",
    "the pruning table",
    "the KV cache",
];
const SIZES: [&str; 5] = [
    "the table of relative positions",
    "a bias or weights",
    "the relative bias",
    "the relative buckets",
    "reduction chunk",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code without comments and unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file");
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The text up to the parenthesis that closes the first one.
fn arguments(from: &str) -> &str {
    let mut depth = 0;
    for (at, c) in from.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return &from[..at],
            ')' => depth -= 1,
            _ => (),
        }
    }
    from
}

fn strings(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The names before a colon: parameters of functions, fields of structures.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.match_indices(": ").map(|(at, _)| &text[..at]);
    ends.filter_map(|before| {
        before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()
    })
}

#[test]
fn operands_have_the_names_of_parameters() {
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    let (mut parameters, mut operands) = (BTreeSet::new(), Vec::new());
    for path in &paths {
        let text = code(path);
        for (at, _) in text.match_indices("pub fn ").chain(text.match_indices("pub unsafe fn ")) {
            let signature = &text[at..];
            // Names in a pattern: `(columns, values): (..)`.
            let inside = arguments(&signature[signature.find('(').unwrap_or(0)..]);
            let words = inside.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            parameters.extend(words.filter(|word| is_name(word)).map(str::to_owned));
        }
        for (at, _) in text.match_indices("pub struct ").chain(text.match_indices("pub enum ")) {
            let body = text[at..].split("\n}").next().unwrap_or_default();
            parameters.extend(names(body).filter(|name| is_name(name)).map(str::to_owned));
        }
        // The place of the operand among the strings of a call.
        for (call, place) in [
            ("check_len(", 0),
            ("check_min_len(", 0),
            ("check_shape(", 0),
            ("check_contiguous_rows(", 0),
            ("RowPtrs::from_matrix(", 0),
            ("RowPtrs::from_matrix_mut(", 0),
            ("check_size(", 1),
            ("check_item(", 1),
            ("check_end(", 1),
            ("check_indices(", 1),
            ("check_operands([", usize::MAX),
        ] {
            for (at, _) in text.match_indices(call) {
                let from = &text[at + call.find('(').unwrap_or(0)..];
                let found = strings(arguments(from));
                let found: Vec<&str> = match place {
                    usize::MAX => found,
                    place => found.get(place).copied().into_iter().collect(),
                };
                operands.extend(found.into_iter().map(|name| (path, name.to_owned())));
            }
        }
        for (at, _) in text.match_indices("operand: \"") {
            let name = strings(&text[at..])[0].to_owned();
            operands.push((path, name));
        }
    }
    assert!(
        parameters.len() > 150 && operands.len() > 130,
        "{} {}",
        parameters.len(),
        operands.len()
    );
    let wrong: Vec<_> = operands
        .iter()
        .filter(|(_, name)| !OTHERS.contains(&name.as_str()) && !SIZES.contains(&name.as_str()))
        .filter(|(_, name)| !name.split('.').all(|part| parameters.contains(part)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
