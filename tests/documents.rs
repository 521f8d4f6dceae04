//! The documents name files, tests and programs that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The packages beside the root package that have a page of their own.
const PACKAGES: [&str; 11] = [
    "atomic_file",
    "capi",
    "cli",
    "kernels",
    "python",
    "serve",
    "speech",
    "text",
    "text/documents",
    "text/tokenize",
    "train",
];

/// Every page: at the root, beside the manifest of a package, of the models, in `docs`, and the results of benches.
fn pages() -> Vec<String> {
    let single = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benches/RESULTS.md"];
    let models =
        ["models/copy/README.md", "models/fr-en/README.md", "models/walkthrough/README.md"];
    let mut pages: Vec<String> = single.iter().chain(&models).map(|&page| page.into()).collect();
    let packages = PACKAGES.iter().map(|package| format!("{package}/README.md"));
    pages.extend(packages.filter(|page| root().join(page).exists()));
    let entries = fs::read_dir(root().join("docs")).expect("docs");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")));
    assert!(pages.len() >= 25, "{pages:?}");
    pages
}

/// The anchors of the headings of a page, as GitHub makes them.
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

/// The paths of all source files below a folder.
fn files(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            files(&path, all);
        } else if path.extension().is_some_and(|found| found == "rs" || found == "py") {
            all.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
}

/// Source files that a page names between backquotes exist. Recipes may have placeholders in capitals.
#[test]
fn files_on_the_pages_exist() {
    let mut all = Vec::new();
    files(&root(), &mut all);
    let mut checked = 0;
    for page in pages() {
        for word in code_words(&read(&root().join(&page))) {
            let is_file = word.ends_with(".rs") || word.ends_with(".py");
            if is_file && !word.contains([' ', '*', '{']) && !word.contains("NAME") {
                let exists = all.iter().any(|path| path.ends_with(&format!("/{word}")));
                assert!(exists, "{page}: {word}");
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked} files");
}

/// Relative links of every page, to files and to headings.
#[test]
fn links_exist() {
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
    // These pages are read outside of the repository, so they have no links to files.
    let packages = PACKAGES.iter().filter(|package| **package != "python");
    let packages = packages.map(|package| format!("{package}/README.md"));
    let packages = packages.filter(|page| root().join(page).exists());
    let single = ["CHANGELOG.md", "docs/package.md", "docs/tensor-names.md"];
    for page in packages.chain(single.map(str::to_owned)) {
        let text = read(&root().join(&page));
        let mut links = text.split("](").skip(1);
        assert!(links.all(|link| link.starts_with("https://")), "{page} links to a file");
    }
}

/// The blocks of Rust of a page without the fences.
fn rust(page: &str) -> Vec<String> {
    let text = read(&root().join(page));
    assert!(!text.contains("```rust,ignore"), "{page} has a program that no test compiles");
    let code = text
        .split("\n```rust")
        .skip(1)
        .filter_map(|rest| rest.split_once('\n')?.1.split("\n```").next());
    code.map(str::to_owned).collect()
}

/// Every program on a page is also on a page that the documentation tests compile.
#[test]
fn the_programs_on_the_pages_are_compiled() {
    let mut compiled = vec![
        ("src/lib.rs".to_owned(), "docs/package.md".to_owned()),
        ("src/lib.rs".to_owned(), "docs/models.md".to_owned()),
        ("src/lib.rs".to_owned(), "docs/training.md".to_owned()),
    ];
    let rust_packages = PACKAGES.iter().filter(|package| **package != "python");
    let with_page = rust_packages.filter(|p| root().join(p).join("README.md").exists());
    let with_library = with_page.filter(|p| root().join(p).join("src/lib.rs").exists());
    compiled.extend(with_library.map(|p| (format!("{p}/src/lib.rs"), format!("{p}/README.md"))));
    let tested = compiled.iter().map(|(_, page)| rust(page)).collect::<Vec<_>>().concat();
    assert!(tested.len() >= 4, "{} blocks", tested.len());
    assert!(!rust("README.md").is_empty(), "no program in README.md");
    let mut shown = 0;
    for page in &pages() {
        for code in rust(page) {
            assert!(tested.contains(&code), "only in {page}:\n{code}");
            shown += 1;
        }
    }
    assert!(shown >= tested.len() + 2, "{shown} blocks");
    for (library, page) in compiled {
        let text = read(&root().join(&library));
        let page = page.rsplit_once('/').expect("a folder");
        let page = if page.0 == "docs" { format!("docs/{}", page.1) } else { page.1.to_owned() };
        let included = format!("#[doc = include_str!(\"../{page}\")]");
        assert!(text.contains(&included), "{library} does not include {page}");
    }
}

/// The commands of the shell blocks of all pages, with the page of each: lines of `sh`, and those of `console` after `$ `.
fn commands() -> Vec<(String, String)> {
    let mut commands = Vec::new();
    for page in pages() {
        let text = read(&root().join(&page));
        for (fence, prompt) in [("\n```sh\n", ""), ("\n```console\n", "$ ")] {
            for block in text.split(fence).skip(1) {
                let lines = block.split("\n```").next().unwrap_or_default().replace("\\\n", " ");
                let lines = lines.lines().filter_map(|line| line.strip_prefix(prompt));
                commands.extend(lines.map(|line| (page.clone(), line.to_owned())));
            }
        }
    }
    commands
}

/// The text of every file below a folder that ends in `.rs` or `.py`, or is named `Cargo.toml`.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" {
            text += &sources(&path);
        } else if name.ends_with(".rs") || name.ends_with(".py") || name == "Cargo.toml" {
            text += &read(&path);
        }
    }
    text
}

/// Packages, examples, benches, scripts and options in the commands of the pages exist.
#[test]
fn the_commands_on_the_pages_exist() {
    let folders =
        ["benches", "capi", "cli", "examples", "kernels", "models", "python/simdformer", "speech"];
    let folders = folders.iter().chain(&["serve", "tests", "text", "train"]);
    let folders = folders.map(|folder| root().join(folder)).filter(|path| path.exists());
    let programs: String = folders.map(|folder| sources(&folder)).collect();
    let manifests = read(&root().join("Cargo.toml")) + &programs;
    let mut checked = 0;
    for (page, line) in commands() {
        let command = line.split(" # ").next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().collect();
        for (i, word) in words.iter().enumerate() {
            let next = words.get(i + 1).copied().unwrap_or_default();
            let exists = match *word {
                "-p" | "--package" | "--example" | "--bench" => {
                    manifests.contains(&format!("name = \"{next}\""))
                }
                "--features" => manifests.contains(&format!("\n{next} = [")),
                word if word.starts_with(".ci/") => root().join(word).exists(),
                word if word.ends_with(".py") => {
                    root().join(word).exists() || root().join("benches/peers").join(word).exists()
                }
                // Options of our own programs, which follow `--`, the command or the script.
                word if word.starts_with("--") && word.len() > 2 => {
                    let mut before = words[..i].iter();
                    let own =
                        before.any(|w| *w == "--" || *w == "simdformer" || w.ends_with(".py"));
                    // clap names an option after its field. A value may follow `=`.
                    let name = word.split('=').next().unwrap_or_default();
                    let field = format!(" {}:", name[2..].replace('-', "_"));
                    !own || programs.contains(name) || programs.contains(&field)
                }
                _ => continue,
            };
            assert!(exists, "{page}: {word} {next} in: {line}");
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked} names and options");
}

/// Runs the program of README.md with ids; `text/tests/translator.rs` runs that with text. The documentation only compiles it, because the package has no
/// model.
#[test]
fn the_program_of_the_readme_with_ids_runs() -> Result<(), Box<dyn std::error::Error>> {
    use simdformer::Engine;

    let engine = Engine::open("models/fr-en")?;
    let found = engine.generate(&[6, 11, 0])?;
    println!("{:?}, score {}", found.tokens(), found.score());

    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let shown = rust("README.md").swap_remove(1).replace("# Ok(()) }", "");
    let (uses, program) = shown
        .split_once("# fn main() -> Result<(), Box<dyn std::error::Error>> {")
        .ok_or("README's program has another beginning")?;
    let here = squeezed(include_str!("documents.rs"));
    assert!(here.contains(&squeezed(uses)) && here.contains(&squeezed(program)), "{shown}");
    Ok(())
}

/// The cells of each table of a page. A table ends at the first line that is none of its rows.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables: Vec<Vec<Vec<String>>> = vec![Vec::new()];
    for line in text.lines() {
        match line.strip_prefix("| ").and_then(|line| line.strip_suffix('|')) {
            Some(row) => {
                let cells = row.split('|').map(|cell| cell.trim().to_owned());
                tables.last_mut().expect("a table").push(cells.collect());
            }
            None if line.starts_with("|---") => {}
            None => tables.push(Vec::new()),
        }
    }
    tables.into_iter().filter(|table| !table.is_empty()).collect()
}

/// What is between backquotes.
fn code_words(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names that a name with braces stands for, in the order of a shell.
fn expand(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a brace that closes");
    let after = expand(after);
    let choices = choices.split(',');
    choices
        .flat_map(|choice| after.iter().map(move |end| format!("{before}{choice}{end}")))
        .collect()
}

/// The rows of the tensors of a row with braces. A cell with one name has it in all rows.
fn expand_row(row: &[String]) -> Vec<Vec<String>> {
    let cells: Vec<Vec<String>> = row
        .iter()
        .map(|cell| code_words(cell).first().map_or(vec![], |name| expand(name)))
        .collect();
    let count = cells[0].len();
    assert!(cells.iter().all(|names| [0, 1, count].contains(&names.len())), "{row:?}");
    let name = |names: &Vec<String>, i: usize| {
        names.get(if names.len() == 1 { 0 } else { i }).cloned().unwrap_or_default()
    };
    (0..count).map(|i| cells.iter().map(|names| name(names, i)).collect()).collect()
}

/// Each name of the page is a name of its family, and each tensor of layer 0 of these families has a row.
#[test]
fn tensor_names_are_those_of_the_families() {
    use crate::random_model::{Dims, families};
    use simdformer::checkpoint::TensorId;

    let tables = tables(&read(&root().join("docs/tensor-names.md")));
    assert_eq!(tables.len(), 2);
    for table in tables {
        let (head, rows) = table.split_first().expect("a header");
        let rows: Vec<Vec<String>> = rows.iter().flat_map(|row| expand_row(row)).collect();
        assert!(rows.len() >= 30, "{} tensors", rows.len());
        for (column, title) in head.iter().enumerate().skip(1) {
            let models = code_words(title.rsplit_once('(').expect("families").1);
            let mut shown = vec![false; rows.len()];
            for family in families().filter(|f| models.iter().any(|m| m == f.model_type())) {
                let config = Dims::small(family).config();
                for id in TensorId::all(&config) {
                    let path = id.to_string();
                    let row = rows.iter().position(|row| row[0] == path);
                    let first_layer = !path.contains(".layers.") || path.contains(".layers.0.");
                    let is_weight = path.ends_with(".weight") || id.may_be_absent();
                    let (names, Some(row)) = (id.names(&config), row) else {
                        assert!(!first_layer || !is_weight, "no row for {path}");
                        continue;
                    };
                    shown[row] |= names.contains(&rows[row][column]);
                }
            }
            for (row, shown) in rows.iter().zip(shown) {
                assert_eq!(shown, !row[column].is_empty(), "{title}: {row:?}");
            }
        }
    }
}

#[test]
fn all_packages_have_the_same_licences() {
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let packages = PACKAGES.iter().filter(|package| **package != "python");
        for package in packages.filter(|p| root().join(p).join("Cargo.toml").exists()) {
            assert_eq!(
                read(&root().join(licence)),
                read(&root().join(package).join(licence)),
                "{package}"
            );
        }
    }
}

/// Checks a list of tests, "`file.rs`: `test`, `test`; `file.rs`": the files exist and have the tests. `file` has those
/// without a file. Returns how many files and tests there are.
fn check_tests(list: &str, mut file: Option<PathBuf>) -> usize {
    let mut named = 0;
    for word in code_words(list) {
        if word.ends_with(".rs") {
            let in_root = ["capi/tests/", "examples/", "serve/tests/", "tests/", "train/tests/"];
            let folders: &[&str] = if in_root.iter().any(|folder| word.starts_with(folder)) {
                &[""]
            } else if word.starts_with("src/") {
                &["kernels"]
            } else {
                &["kernels/tests", "tests/train", "train/tests"]
            };
            let mut paths = folders.iter().map(|folder| root().join(folder).join(&word));
            let path = paths.find(|path| path.exists());
            file = Some(path.unwrap_or_else(|| panic!("{word} is in none of {folders:?}")));
        } else {
            let file = file.as_ref().unwrap_or_else(|| panic!("no file before {word}"));
            assert!(read(file).contains(&format!("fn {word}(")), "{word} in {file:?}");
        }
        named += 1;
    }
    named
}

/// Each guarantee has tests that exist.
#[test]
fn the_tests_of_each_guarantee_exist() {
    let page = read(&root().join("docs/tests.md"));
    let tables = tables(&page);
    let guarantees = &tables[0][1..];
    assert_eq!(guarantees.len(), 9);
    for (number, row) in (1..).zip(guarantees) {
        assert!(row[0].starts_with(&format!("{number}. ")), "{row:?}");
        // Speed and the presence of instruction sets are not only for tests.
        let tests = row[1].split("; the environment").next().unwrap_or_default();
        assert!(number == 9 || check_tests(tests, None) > 0, "{row:?}");
    }
}

/// A file in the folder `tests` of a package is a program of its manifest, or a module of one: it is compiled.
#[test]
fn every_test_file_is_in_a_program() {
    let mut checked = 0;
    for package in PACKAGES.iter().chain(&["."]) {
        let folder = root().join(package).join("tests");
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let programs = sources(&folder) + &read(&root().join(package).join("Cargo.toml"));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.file_stem().expect("a name").to_string_lossy();
                let used = programs.contains(&format!("mod {name};"))
                    || programs.contains(&format!("{name}.rs\""));
                assert!(used, "{} is compiled by no test program", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked} files");
}

/// The table at the beginning of `kernels/tests/regressions.rs`.
#[test]
fn the_tests_of_known_kernel_errors_exist() {
    let file = root().join("kernels/tests/regressions.rs");
    let text = read(&file).replace("\n//! |", "\n|");
    let rows = tables(&text).swap_remove(0);
    assert!(rows.len() > 35, "{} rows", rows.len());
    for row in &rows[1..] {
        assert!(check_tests(&row[2], Some(file.clone())) > 0, "{row:?}");
    }
}

/// Each row of `docs/equations.tsv` names tests that exist, and an equation of the paper a page of the program `documents`.
#[test]
fn the_tests_of_each_equation_exist() {
    let text = read(&root().join("docs/equations.tsv"));
    let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
    assert!(rows.len() >= 12 + 12, "{} rows", rows.len());
    for row in rows {
        let [_, _, _, page, tests] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("expected 5 cells: {row}");
        };
        if let Some(name) = page.split('`').nth(1) {
            let file = root().join("examples/documents").join(name).with_extension("rs");
            assert!(file.exists(), "{row}");
        }
        assert!(check_tests(tests, None) > 0, "no test: {row}");
    }
}

/// The table at the beginning of `tests/train/traps.rs`.
#[test]
fn the_tests_of_known_trainer_errors_exist() {
    let file = root().join("tests/train/traps.rs");
    let text = read(&file).replace("\n//! |", "\n|");
    let rows = tables(&text).swap_remove(0);
    assert_eq!(rows.len(), 1 + 25);
    for (trap, row) in (1..).zip(&rows[1..]) {
        assert!(row[3].contains(&format!("`trap_{trap:02}_")), "{row:?}");
        assert!(check_tests(&row[3], Some(file.clone())) > 0, "{row:?}");
    }
}
