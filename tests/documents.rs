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

/// Every page for readers: those beside a package's manifest, those of `docs`, and the results.
fn pages() -> Vec<String> {
    let single = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "kernels/README.md"];
    let mut pages: Vec<String> =
        single.iter().chain(&["text/README.md", "benches/RESULTS.md"]).map(|&p| p.into()).collect();
    for folder in ["docs", "benches/results"] {
        let entries = fs::read_dir(root().join(folder)).expect(folder);
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|n| format!("{folder}/{n}")));
    }
    assert!(pages.len() >= 6 + 9 + 4, "{pages:?}");
    pages
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut code = false;
    let mut anchors = Vec::new();
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if let Some((marks, title)) = line.split_once(' ')
            && !code
            && !marks.is_empty()
            && marks.bytes().all(|mark| mark == b'#')
        {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            let title: String = title.to_lowercase().chars().filter(kept).collect();
            anchors.push(title.replace(' ', "-"));
        }
    }
    anchors
}

/// Relative links of every page, to files and to headings.
#[test]
fn links_lead_somewhere() {
    for page in pages() {
        let text = read(&root().join(&page));
        let folder = root().join(&page);
        let folder = folder.parent().expect("a folder");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            assert!(folder.join(file).exists(), "{page}: {link}");
            if !anchor.is_empty() {
                let target = if file.is_empty() { text.clone() } else { read(&folder.join(file)) };
                assert!(anchors(&target).iter().any(|found| found == anchor), "{page}: {link}");
            }
        }
    }
    // These are read without the repository around them.
    for page in ["CHANGELOG.md", "docs/package.md", "kernels/README.md"] {
        assert!(!read(&root().join(page)).contains("]("), "{page} links to a file");
    }
}

/// A page that is read once from top to bottom.
#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

/// The blocks of Rust of a page, without their fences. What is to be ignored is of another package.
fn rust(page: &str) -> Vec<String> {
    let text = read(&root().join(page));
    let blocks = text.split("\n```rust").skip(1).filter(|rest| !rest.starts_with(",ignore"));
    let code = blocks.filter_map(|rest| rest.split_once('\n')?.1.split("\n```").next());
    code.map(str::to_owned).collect()
}

/// The programs of all pages are those of the two packages' pages, which are compiled with the documentation, and
/// text/README.md, which its own package compiles.
#[test]
fn the_programs_of_the_pages_are_tested() {
    let tested = [rust("docs/package.md"), rust("kernels/README.md")].concat();
    assert!(tested.len() >= 4, "{} blocks", tested.len());
    assert!(!rust("README.md").is_empty(), "no program in README.md");
    let mut shown = 0;
    for page in pages().iter().filter(|page| *page != "text/README.md") {
        for code in rust(page) {
            assert!(tested.contains(&code), "only in {page}:\n{code}");
            shown += 1;
        }
    }
    assert!(shown >= tested.len() + 3, "{shown} blocks");
    for (library, page) in [
        ("src/lib.rs", "../docs/package.md"),
        ("kernels/src/lib.rs", "../README.md"),
        ("text/src/lib.rs", "../README.md"),
    ] {
        let text = read(&root().join(library));
        assert!(text.contains(&format!("#[doc = include_str!(\"{page}\")]")), "{library}");
    }
}

/// README's first program, which its own page only compiles: the model is not in the package.
#[test]
fn the_first_program_of_the_readme_runs() -> Result<(), Box<dyn std::error::Error>> {
    use simdformer::search::Hooks;
    use simdformer::{Event, Limits, Model, Session, Source};

    let model = Model::open("models/fr-en")?;
    // At most 8 sentences at a time, each with at most 64 source and 64 target tokens.
    let mut session = Session::new(&model, Limits::new(8, 64, 64))?;
    println!("the session uses {} bytes, allocated once", session.plan().bytes());

    let options = session.search_options(); // from generation_config.json
    let sources = [Source::new(&[6, 11, 0]), Source::new(&[9, 14, 32, 0])];
    session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event {
            for hypothesis in done.hypotheses() {
                println!("{}: {:?} ({})", done.source, hypothesis.tokens, hypothesis.score);
            }
        }
    })?;

    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let shown = rust("README.md").swap_remove(0).replace("# Ok(()) }", "");
    let (uses, program) = shown
        .split_once("# fn main() -> Result<(), Box<dyn std::error::Error>> {")
        .ok_or("README's program has another beginning")?;
    let here = squeezed(include_str!("documents.rs"));
    assert!(here.contains(&squeezed(uses)) && here.contains(&squeezed(program)), "{shown}");
    Ok(())
}

#[test]
fn both_packages_have_the_same_licences() {
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert_eq!(read(&root().join(licence)), read(&root().join("kernels").join(licence)));
    }
}

#[test]
fn the_tests_of_each_equation_exist() {
    let text = read(&root().join("docs/walkthrough.md"));
    let lines: Vec<&str> = text.lines().collect();
    let head = |i: usize| lines.get(i + 1).is_some_and(|below| below.starts_with("|---"));
    let rows = lines.iter().enumerate().filter(|&(i, line)| line.starts_with("| ") && !head(i));
    let rows: Vec<&str> = rows.map(|(_, &line)| line).collect();
    assert!(rows.len() >= 12 + 12 + 25, "{} rows", rows.len());
    for trap in 1..=25 {
        let row = rows.iter().find(|row| row.starts_with(&format!("| {trap} | ")));
        let row = row.unwrap_or_else(|| panic!("no row of trap {trap}"));
        assert!(row.contains(&format!("`trap_{trap:02}_")), "{row}");
    }
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        // The paper's equations also name a page of the program `documents`.
        let tests = match cells[..] {
            [_, _, _, tests] => tests,
            [_, _, _, page, tests] => {
                let name = page.split('`').nth(1).unwrap_or_else(|| panic!("no page: {row}"));
                let file = root().join("examples/documents").join(name).with_extension("rs");
                assert!(file.exists(), "{row}");
                tests
            }
            _ => panic!("{row}"),
        };
        let mut file: Option<PathBuf> = None;
        let mut named = 0;
        for word in tests.split('`').skip(1).step_by(2) {
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
