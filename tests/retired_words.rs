//! Retired names and words of `docs/glossary.md` do not come back.
//!
//! A row of the tables of names has the old name, the new name, and where the old one is retired:
//! `everywhere`, or in the folders that it lists. These names are searched in code only, because many of
//! them are ordinary English words. [`WORDS`] are searched in comments and texts as well.

use std::fs;
use std::path::{Path, PathBuf};

/// Metaphors, and pronouns that do not say what acts.
const WORDS: [&str; 7] = ["house", "houses", "nobody", "room", "rooms", "somebody", "whoever"];

const FOLDERS: [&str; 3] = ["src", "kernels/src", "text/src"];

fn files(folder: &Path, extension: &str, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, extension, all);
        } else if path.extension().is_some_and(|found| found == extension) {
            all.push(path);
        }
    }
}

/// The paths below the root of the repository, with `/`, and the texts.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for folder in FOLDERS {
        files(&root.join(folder), "rs", &mut all);
    }
    assert!(all.len() > 300, "{} files", all.len());
    let named = |path: PathBuf| {
        let below = path.strip_prefix(root).expect("below the root");
        let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
        (parts.join("/"), fs::read_to_string(&path).expect("text"))
    };
    all.into_iter().map(named).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A line of code without its comment and without string literals.
fn code(line: &str) -> String {
    let mut code = String::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            continue;
        }
        let end = part.find("//");
        code.push_str(&part[..end.unwrap_or(part.len())]);
        code.push(' ');
        if end.is_some() {
            break;
        }
    }
    code
}

/// Old name, new name, and the folders where the old name is retired (none means everywhere).
fn retired(page: &str) -> Vec<(String, String, Vec<String>)> {
    let tables = page.split("\n## Retired words").nth(1).expect("the tables");
    let mut rows = Vec::new();
    for line in tables.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [old, new, scope] = cells[..] else { continue };
        let name = |cell: &str| {
            let name = cell.strip_prefix('`')?.split('`').next()?;
            name.chars().all(|c| c.is_alphanumeric() || c == '_').then(|| name.to_owned())
        };
        let (Some(old), Some(new)) = (name(old), name(new)) else { continue };
        let folders = match scope {
            "everywhere" => Vec::new(),
            _ => scope.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        };
        // Files are in tables of their own: a module may have the name that a function had.
        let is_type = old.chars().next().is_some_and(char::is_uppercase);
        if is_type || scope == "everywhere" {
            rows.push((old, new, folders));
        }
    }
    rows
}

#[test]
fn retired_names_do_not_come_back() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/glossary.md");
    let rows = retired(&fs::read_to_string(page).expect("the glossary"));
    assert!(rows.len() > 100, "{} rows", rows.len());
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (index, line) in text.lines().enumerate() {
            let code = code(line);
            for word in words(&code) {
                let row = rows.iter().find(|(old, new, folders)| {
                    let here = folders.is_empty() || folders.iter().any(|f| path.starts_with(f));
                    old == word && old != new && here
                });
                if let Some((old, new, _)) = row {
                    found.push(format!("{path}:{}: {old} is now {new}", index + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn retired_words_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = sources();
    let mut pages = Vec::new();
    files(&root.join("docs"), "md", &mut pages);
    pages.extend(["README.md", "CONTRIBUTING.md", "kernels/README.md"].map(|page| root.join(page)));
    for page in pages.iter().filter(|page| !page.ends_with("glossary.md")) {
        texts.push((page.display().to_string(), fs::read_to_string(page).expect("a page")));
    }
    let mut found = Vec::new();
    for (path, text) in texts {
        // The line has a sentence that the demo model translates.
        let lines = text.lines().enumerate().filter(|(_, line)| !line.contains("white house"));
        for (index, line) in lines {
            let word = words(line).find(|word| WORDS.contains(&word.to_lowercase().as_str()));
            if let Some(word) = word {
                found.push(format!("{path}:{}: {word}", index + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
