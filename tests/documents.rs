//! The documents point at files and tests that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_links_of_the_walkthrough_lead_somewhere() {
    let text = read(&root().join("docs/walkthrough.md"));
    let links: Vec<&str> =
        text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 40, "{} links", links.len());
    for link in links {
        assert!(root().join("docs").join(link).exists(), "{link}");
    }
}

#[test]
fn the_tests_of_each_equation_exist() {
    let text = read(&root().join("docs/walkthrough.md"));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 12, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 4, "{row}");
        let mut file: Option<PathBuf> = None;
        let mut named = 0;
        for word in cells[3].split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                let path = match word.strip_prefix("tests/") {
                    Some(_) => root().join(word),
                    None => root().join("kernels/tests").join(word),
                };
                assert!(path.exists(), "{word}");
                file = Some(path);
            } else {
                let file = file.as_ref().unwrap_or_else(|| panic!("no file before {word}"));
                assert!(read(file).contains(&format!("fn {word}(")), "{word} in {file:?}");
            }
            named += 1;
        }
        assert!(named > 0, "no test: {row}");
    }
}
