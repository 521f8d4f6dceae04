//! The reading lists of `docs/architecture.md`: the files that one operation of the kernels runs through. A list is complete and
//! short, and the crate has few public functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The most files of a list and the most lines of them, without unit tests. A change that raises one says why in its commit.
const LISTS: [(&str, usize, usize); 2] = [("gemm", 15, 3800), ("attention", 18, 4800)];
/// The most public functions of the kernels outside of `impl`, without the oracles in `reference`. The lint `unreachable_pub`
/// makes sure that `pub` means public.
const FUNCTIONS: usize = 46;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/src")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md"))
}

/// The path of the deepest module that `parts`, names from the root of the crate, begin with.
fn file_of(parts: &[&str]) -> Option<String> {
    (1..=parts.len()).rev().find_map(|end| {
        let stem = parts[..end].join("/");
        let files = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
        files.into_iter().find(|file| source().join(file).is_file())
    })
}

/// The files of the crate from which the file at `path` imports at its top level, without those of `train`.
fn imports(path: &str) -> BTreeSet<String> {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let module: Vec<&str> = stem.split('/').collect();
    let (text, mut found) = (read(source().join(path)), BTreeSet::new());
    let mut before = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let of_train = before == "#[cfg(feature = \"train\")]";
        before = line;
        let Some(start) = ["use ", "pub use ", "pub(crate) use "]
            .iter()
            .find_map(|keyword| line.strip_prefix(keyword))
        else {
            continue;
        };
        let mut import = start.to_owned();
        while !import.contains(';') {
            import.push_str(lines.next().expect("the end of an import"));
        }
        if of_train {
            continue;
        }
        let import: String = import.split(';').next().unwrap_or("").split_whitespace().collect();
        let (head, group) = import.split_once('{').unwrap_or((&import, ""));
        for item in group.trim_end_matches('}').split(',') {
            let path = format!("{head}{item}");
            let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
            let parts = match parts[..] {
                ["crate", ref rest @ ..] => rest.to_vec(),
                ["super", ref rest @ ..] => [&module[..module.len() - 1], rest].concat(),
                _ => [&module[..], &parts].concat(),
            };
            found.extend(file_of(&parts));
        }
    }
    found.remove(path);
    found
}

/// The files of `kernels/src` that the rows of a table link to, and the code word of the last cell.
fn rows(table: &str) -> Vec<(&str, &str)> {
    let file = |line: &str| -> Option<(usize, usize)> {
        let start = line.find("](../kernels/src/")? + "](../kernels/src/".len();
        Some((start, start + line[start..].find(')')?))
    };
    let lines = table.lines().filter(|line| line.starts_with('|'));
    lines
        .filter_map(|line| {
            let (start, end) = file(line)?;
            let word = line.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or("");
            Some((&line[start..end], word.trim().trim_matches('`')))
        })
        .collect()
}

#[test]
fn reading_lists_are_complete_and_short() {
    let page = page();
    let sections: Vec<&str> = page.split("\n### Reading list: ").skip(1).collect();
    assert_eq!(sections.len(), LISTS.len());
    for (section, (name, most_files, most_lines)) in sections.into_iter().zip(LISTS) {
        let section = section.split("\n#").next().unwrap_or("");
        assert!(section.starts_with(name), "{name}: {}", section.lines().next().unwrap_or(""));
        let files: Vec<&str> = rows(section).into_iter().map(|(file, _)| file).collect();
        // Files and folders that the page names as left out.
        let others = section.split_once("Not in the list:").map_or("", |(_, others)| others);
        let others: Vec<&str> = others.split('`').skip(1).step_by(2).collect();
        let mut lines = 0;
        for file in &files {
            let text = read(source().join(file));
            lines += text.split("#[cfg(test)]\nmod tests").next().unwrap_or("").lines().count();
            for import in imports(file) {
                let left_out = |other: &str| {
                    import == other || other.ends_with('/') && import.starts_with(other)
                };
                let known = files.contains(&&*import) || others.iter().any(|other| left_out(other));
                assert!(known, "{name}: {file} imports from {import}, which is not in the list");
            }
        }
        assert!(files.len() > 10 && files.len() <= most_files, "{name}: {} files", files.len());
        assert!(lines > most_lines / 2 && lines <= most_lines, "{name}: {lines} lines");
    }
}

#[test]
fn the_table_of_terms_names_items() {
    let page = page();
    let terms = page.split_once("\n## Where terms are").expect("the table").1;
    let rows = rows(terms.split("\n## ").next().unwrap_or(""));
    assert!(rows.len() >= 10, "{} rows", rows.len());
    for (file, item) in rows {
        let text = read(source().join(file));
        let kinds = ["fn", "struct", "enum", "trait", "const", "type", "macro_rules!", "union"];
        let declared = kinds.iter().any(|kind| {
            text.match_indices(&format!("{kind} {item}")).any(|(at, found)| {
                !text[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        });
        assert!(declared, "{file} declares no {item}");
    }
}

/// The public functions of the files below `folder`, without those of `reference`.
fn public_functions(folder: &Path) -> usize {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let declares = |line: &&str| {
        let Some(rest) = line.strip_prefix("pub ") else { return false };
        rest.trim_start_matches("const ").trim_start_matches("unsafe ").starts_with("fn ")
    };
    entries
        .map(|path| match path.extension() {
            None if !path.ends_with("reference") => public_functions(&path),
            Some(extension) if extension == "rs" && !path.ends_with("reference.rs") => {
                read(path).lines().filter(declares).count()
            }
            _ => 0,
        })
        .sum()
}

#[test]
fn the_kernels_have_few_public_functions() {
    let found = public_functions(&source());
    assert!(found > FUNCTIONS / 2 && found <= FUNCTIONS, "{found} public functions");
}
