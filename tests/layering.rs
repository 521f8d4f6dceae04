//! The layering of `docs/architecture.md`: a module imports only from modules below it, and no files import
//! each other in a cycle.
//!
//! The test reads imports from the source text: `use` declarations and full paths, followed through
//! re-exports to the file that defines the item. Unit tests may import from any module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules of `src`. A module may import from those before it.
const MODULES: [&str; 20] = [
    "cancel",
    "fixed_thread_count",
    "json_object",
    "printable_text",
    "ref_or_arc",
    "memory",
    "error",
    "input_features",
    "search",
    "config",
    "kv",
    "network",
    "checkpoint",
    "task_heads",
    "model",
    "trace",
    "session",
    "generate",
    "engine",
    "train",
];

/// Folders without circular imports.
const FOLDERS: [&str; 10] = [
    "src",
    "kernels/src",
    "text/src",
    "text/documents/src",
    "text/tokenize/src",
    "speech/src",
    "capi/src",
    "cli/src",
    "serve/src",
    "train/src",
];

/// The module path of a file: `["model", "blocks", "output"]`.
type Module = Vec<String>;

/// An imported path with its braces expanded.
struct Import {
    path: Vec<String>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A full path in code.
    Path,
    /// A `use`: the name is visible in this module and in its children.
    Use,
    /// A `pub use`: the name is visible everywhere.
    PubUse,
}

/// The files below a folder and their imports.
struct SourceTree {
    text: BTreeMap<Module, String>,
    uses: BTreeMap<Module, Vec<Import>>,
}

impl SourceTree {
    fn read(folder: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut text = BTreeMap::new();
        read_files(&root, &mut Vec::new(), &mut text);
        assert!(text.len() > 10, "{folder}: {} files", text.len());
        let uses = text.iter().map(|(module, text)| (module.clone(), paths(text))).collect();
        Self { text, uses }
    }

    /// `path`, as written in `module`, from the root of the crate; `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let up = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "super" => Some([&module[..module.len().checked_sub(up)?], &path[up..]].concat()),
            "self" => Some([module, &path[1..]].concat()),
            _ => {
                let here = [module, &path[..1]].concat();
                self.text.contains_key(&here).then(|| [module, path].concat())
            }
        }
    }

    /// The file that defines `path` (from the root of the crate), as seen in `from`.
    fn file(&self, from: &[String], path: &[String], depth: usize) -> Option<Module> {
        let known = (0..=path.len()).rev().find(|&len| self.text.contains_key(&path[..len]))?;
        let (module, rest) = path.split_at(known);
        let again = rest.first().filter(|_| depth < 8).and_then(|name| {
            let seen = |import: &&Import| match import.kind {
                Kind::Path => false,
                Kind::Use => from.starts_with(module),
                Kind::PubUse => true,
            };
            let imports = self.uses[module].iter().filter(seen);
            imports
                .filter_map(|import| {
                    let (last, file) = import.path.split_last()?;
                    let is_all = last == "*" && self.defines(&self.absolute(module, file)?, name);
                    let path =
                        if is_all { [file, &rest[..1]].concat() } else { import.path.clone() };
                    (path.last() == Some(name)).then_some(path)
                })
                .filter_map(|path| self.absolute(module, &path))
                .filter_map(|path| self.file(module, &path, depth + 1))
                .find(|found| found != module)
        });
        Some(again.unwrap_or_else(|| module.to_vec()))
    }

    /// Whether a file defines an item with this name for others.
    fn defines(&self, file: &[String], name: &str) -> bool {
        let item = |kind: &str| format!("pub {kind} {name}");
        let kinds = ["struct", "enum", "trait", "fn"].map(item);
        self.text.get(file).is_some_and(|text| kinds.iter().any(|item| text.contains(item)))
    }

    /// The files from which each file imports.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let imports = |module: &Module| -> BTreeSet<Module> {
            let all = self.uses[module].iter();
            let paths = all.filter_map(|import| self.absolute(module, &import.path));
            let files = paths.filter_map(|path| self.file(module, &path, 0));
            files.filter(|file| file != module).collect()
        };
        self.uses.keys().map(|module| (module, imports(module))).collect()
    }
}

fn read_files(folder: &Path, module: &mut Module, text: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            module.push(name);
            read_files(&path, module, text);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code = fs::read_to_string(&path).expect("text");
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
            let lines = code.lines().map(|line| line.split("//").next().unwrap_or(""));
            let own = [name].into_iter().filter(|name| name != "mod" && name != "lib");
            let module = module.iter().cloned().chain(own).collect();
            text.insert(module, lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Every imported path and every full path in the code.
fn paths(text: &str) -> Vec<Import> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut all, mut rest) = (Vec::new(), text.to_owned());
    for (at, _) in text.match_indices("use ").filter(|&(at, _)| !text[..at].ends_with(word)) {
        let import = text[at..].split(';').next().unwrap_or("");
        let line = text[..at].lines().next_back().unwrap_or("");
        let public = line.trim_start().starts_with("pub");
        let kind = if public { Kind::PubUse } else { Kind::Use };
        expand("", &import[4..], kind, &mut all);
        rest = rest.replacen(import, "", 1);
    }
    for path in rest.split(|c| !word(c) && c != ':').map(|path| path.trim_matches(':')) {
        if path.contains("::") {
            expand("", path, Kind::Path, &mut all);
        }
    }
    all
}

/// Expands `a::{b, c::d as e}` to `a::b` and `a::c::d`.
fn expand(before: &str, tree: &str, kind: Kind, all: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((stem, list)) = tree.split_once('{') {
        let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&format!("{before}{}", stem.trim()), &list[start..at], kind, all);
                    start = at + 1;
                }
                _ => {}
            }
        }
    } else if !tree.is_empty() {
        let path = format!("{before}{}", tree.split(" as ").next().unwrap_or(tree));
        let path = path.split("::").map(|part| part.trim().to_owned()).collect();
        all.push(Import { path, kind });
    }
}

/// A cycle of imports through `file`.
fn cycle(imports: &BTreeMap<&Module, BTreeSet<Module>>, file: &Module) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut next = vec![file];
    while let Some(at) = next.pop() {
        for to in &imports[at] {
            if to == file {
                let mut way = vec![file.join("/"), at.join("/")];
                let mut last = at;
                while let Some(&from) = came_from.get(last) {
                    way.push(from.join("/"));
                    last = from;
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(to) {
                came_from.insert(to, at);
                next.push(to);
            }
        }
    }
    None
}

#[test]
fn no_file_imports_itself_through_others() {
    for folder in FOLDERS {
        let tree = SourceTree::read(folder);
        let imports = tree.imports();
        let count: usize = imports.values().map(BTreeSet::len).sum();
        assert!(count > 2 * imports.len(), "{folder}: {count} imports of {} files", imports.len());
        let cycles: Vec<_> = tree.text.keys().filter_map(|file| cycle(&imports, file)).collect();
        assert!(cycles.is_empty(), "{folder}: {cycles:#?}");
    }
}

#[test]
fn modules_import_from_those_below() {
    let tree = SourceTree::read("src");
    let level = |module: &Module| {
        // `lib.rs` may import from every module.
        let Some(first) = module.first() else { return MODULES.len() };
        MODULES
            .iter()
            .position(|name| name == first)
            .unwrap_or_else(|| panic!("no level for {first}"))
    };
    for (file, imports) in tree.imports() {
        for import in imports {
            let (from, to) = (file.join("/"), import.join("/"));
            assert!(level(&import) <= level(file), "{from} imports from {to}, which is above it");
        }
    }
    // `network` does not use the kernels, `checkpoint` only their `Dtype`; `search` knows neither the model nor the session.
    for (file, text) in &tree.text {
        let name = file.join("/");
        let module = file.first().map_or("", String::as_str);
        if ["checkpoint", "network"].contains(&module) {
            let text = text.replace("use simdformer_kernels::Dtype;", "");
            assert!(!text.contains("simdformer_kernels"), "{name} imports from the kernels");
        }
        if module == "search" {
            // Any module may count the threads of an executor, plan its memory, borrow or share a value, and return the
            // error of the crate.
            let used = [
                "crate::fixed_thread_count::",
                "crate::memory::",
                "crate::ref_or_arc::",
                "crate::error::",
            ];
            let text = used.iter().fold(text.clone(), |text, used| text.replace(used, ""));
            assert!(!text.contains("crate::"), "{name} imports from other modules");
        }
        // Only `model/weights` knows how a matrix is stored.
        if !name.starts_with("model/weights") {
            assert!(
                !text.contains("PackedMatrix") && !text.contains("PruningTable<"),
                "{name} knows it"
            );
        }
    }
}

/// The callers of a session with limits of their own: an own scheduler, the class `Session` of Python, and examples of the
/// session. All others have the lengths, slots and memory of `src/engine`.
const SESSION_LEVEL: [&str; 4] =
    ["python/src/session.rs", "examples/soak.rs", "examples/navigate", "train/examples/train"];

/// Examples of sessions, searches and plans.
const SESSION_EXAMPLES: [&str; 10] = [
    "examples/documents/attention.rs",
    "examples/documents/decoding.rs",
    "examples/first_hour/admit.rs",
    "examples/first_hour/by_hand.rs",
    "examples/first_hour/int8.rs",
    "examples/first_hour/n_best.rs",
    "examples/first_hour/one_head.rs",
    "examples/first_hour/stream.rs",
    "examples/first_hour/tests.rs",
    "examples/pictures/attention_map/main.rs",
];

#[test]
fn only_the_engine_plans() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut files, mut found) = (0, Vec::new());
    for folder in [
        "text/src",
        "text/tokenize/src",
        "speech/src",
        "cli/src",
        "serve/src",
        "train",
        "python/src",
        "examples",
        "embedding/candle/src",
    ] {
        rust_files(&root.join(folder), &mut |path| {
            files += 1;
            let name = path.strip_prefix(root).expect("a file of the repository");
            let plans = |line: &str| {
                let code = line.split("//").next().unwrap_or("");
                let words: Vec<&str> = code
                    .split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':' && c != '{')
                    .collect();
                words.windows(2).any(|pair| {
                    ["Limits", "SearchLimits"].contains(&pair[0]) && pair[1] == "{"
                        || pair.iter().any(|word| ["Limits::new", "Limits::encoder"].contains(word))
                })
            };
            let text = fs::read_to_string(path).expect("text");
            if text.lines().any(plans) {
                found.push(name.to_string_lossy().replace('\\', "/"));
            }
        });
    }
    assert!(files > 150, "{files} files");
    let allowed: Vec<&str> = SESSION_LEVEL.into_iter().chain(SESSION_EXAMPLES).collect();
    let others: Vec<_> =
        found.iter().filter(|name| !allowed.iter().any(|one| name.starts_with(one))).collect();
    assert!(others.is_empty(), "limits of their own: {others:?}");
    for one in allowed {
        assert!(found.iter().any(|name| name.starts_with(one)), "{one} has no limits");
    }
}

/// Calls `each` with every file of Rust below `folder`, of which the built ones are left out.
fn rust_files(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path);
        }
    }
}

#[test]
fn every_test_file_is_a_module_or_a_program() {
    for package in ["", "kernels"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
        let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
        let (manifest, all) = (read("Cargo.toml"), read("tests/all.rs"));
        let mut modules = 0;
        for entry in fs::read_dir(root.join("tests")).expect("tests") {
            let path = entry.expect("an entry").path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".rs"))
            else {
                continue;
            };
            let module = all.lines().any(|line| line == format!("mod {name};"));
            let program = manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
            assert!(
                module != program,
                "{package}/tests/{name}.rs: module or program, and one of them"
            );
            modules += usize::from(module);
        }
        assert!(modules > 10, "{package}: {modules} modules");
    }
}
