//! Models by name, from a hub on the loopback interface: what is downloaded, where it is kept, and who gets the token.
//! The failures are in `hub_failures.rs`. No test uses another network.

use crate::command::{err, out};
use crate::hub_server::{Answer, COMMIT, Fault, Hub, REPOSITORY, Request, etag, is_large, sha256};
use simdformer_testing::effort;
use simdformer_testing::published::french;
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

pub const WEIGHTS: &str = "model.safetensors";
pub const CONFIG: &str = "config.json";

/// A hub with a model of 300 kB, and an empty cache.
pub struct Place {
    pub hub: Hub,
    pub home: TemporaryFolder,
}

/// Files of a model, and others that are not needed.
pub fn files() -> BTreeMap<String, Vec<u8>> {
    let noise = |length: usize| -> Vec<u8> {
        let mut state = length as u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    [
        (CONFIG, br#"{"model_type": "marian"}"#.to_vec()),
        ("README.md", b"# A model".to_vec()),
        ("onnx/model.onnx", noise(9)),
        ("pytorch_model.bin", noise(70)),
        ("source.spm", noise(20_000)),
        ("tf_model.h5", noise(80)),
        ("vocab.json", br#"{"a": 0}"#.to_vec()),
        (WEIGHTS, noise(300_000)),
    ]
    .map(|(path, bytes)| (path.to_owned(), bytes))
    .into()
}

/// The files that are needed.
pub const NEEDED: [&str; 4] = [CONFIG, "source.spm", "vocab.json", WEIGHTS];

impl Place {
    pub fn new(fault: impl Fn(&Request, &mut Answer) + Send + Sync + 'static) -> Self {
        Self::with_files(files(), Box::new(fault))
    }

    pub fn with_files(files: BTreeMap<String, Vec<u8>>, fault: Box<Fault>) -> Self {
        Self { hub: Hub::new(files, fault), home: TemporaryFolder::new("hub") }
    }

    /// The command with only these variables, and those of the hub and the cache.
    pub fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simdformer"));
        command.args(arguments).env_clear();
        command.env("HF_ENDPOINT", &self.hub.endpoint).env("HF_HOME", &self.home.0);
        command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1").env("SIMDFORMER_HUB_RETRIES", "2");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run_command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.command(arguments, variables).output().unwrap()
    }

    pub fn get(&self, variables: &[(&str, &str)]) -> Output {
        self.run_command(&["get", REPOSITORY, "--quiet"], variables)
    }

    pub fn folder(&self) -> PathBuf {
        self.home.0.join("hub/models--test--model")
    }

    pub fn snapshot(&self) -> PathBuf {
        self.folder().join("snapshots").join(COMMIT)
    }

    pub fn incomplete(&self, file: &str) -> PathBuf {
        self.folder().join(format!("blobs/{}.incomplete", etag(file, self.hub.file(file))))
    }

    /// Downloads the model, which must be right.
    pub fn succeeds(&self, variables: &[(&str, &str)]) {
        let output = self.get(variables);
        assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
        assert_eq!(Path::new(out(&output).trim_end()), self.snapshot());
        self.check(&NEEDED);
    }

    /// The snapshot has these files and no others, each complete; nothing else is left.
    pub fn check(&self, needed: &[&str]) {
        let mut blobs: Vec<String> = Vec::new();
        for path in needed {
            let bytes = self.hub.file(path);
            assert!(fs::read(self.snapshot().join(path)).unwrap() == bytes, "{path}");
            blobs.push(etag(path, bytes));
            let link = fs::read_link(self.snapshot().join(path)).unwrap();
            let up = "../".repeat(path.matches('/').count());
            assert_eq!(
                link,
                Path::new(&format!("{up}../../blobs/{}", etag(path, bytes))),
                "{path}"
            );
        }
        blobs.sort();
        assert_eq!(names(&self.folder().join("blobs")), blobs);
        assert_eq!(fs::read_to_string(self.folder().join("refs/main")).unwrap(), COMMIT);
    }

    /// The download fails with this exit code, 1, and this part in its message. Nothing is complete then.
    pub fn fails(&self, variables: &[(&str, &str)], part: &str) {
        let output = self.get(variables);
        let text = err(&output);
        assert!(text.contains(part), "{part:?} in {text}");
        assert!(text.starts_with("simdformer: ") && text.lines().count() == 1, "{text}");
        assert_eq!((output.status.code(), out(&output)), (Some(1), ""), "{text}");
        assert!(!self.folder().join("refs/main").exists());
        let offline = self.get(&[("HF_HUB_OFFLINE", "1")]);
        let text = err(&offline);
        assert!(text.contains("test/model is not complete in "), "{text}");
        self.whole_blobs();
    }

    /// Every blob and every file of a snapshot has the content that its name says.
    pub fn whole_blobs(&self) {
        for name in names(&self.folder().join("blobs")) {
            if !name.ends_with(".incomplete") {
                let bytes = fs::read(self.folder().join("blobs").join(&name)).unwrap();
                let known = files()
                    .iter()
                    .any(|(path, known)| *known == bytes && etag(path, known) == name);
                assert!(known || sha256(&bytes) == name, "{name}");
            }
        }
        for name in names(&self.snapshot()) {
            let path = self.snapshot().join(&name);
            assert!(!path.is_file() || fs::read(&path).unwrap() == self.hub.file(&name), "{name}");
        }
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn nothing(_: &Request, _: &mut Answer) {}

#[test]
fn needed_files_are_downloaded_once() {
    let place = Place::new(nothing);
    place.succeeds(&[]);
    let first = place.hub.requests().len();
    // The commit, the list of files, two small files, two large ones with a redirect each.
    assert_eq!(first, 8, "{:?}", place.hub.requests());
    // What is there is not requested again; only what `main` is now.
    place.succeeds(&[]);
    assert_eq!(place.hub.requests().len(), first + 1);
    // A commit never changes.
    let output = place.run_command(&["get", &format!("{REPOSITORY}@{COMMIT}")], &[]);
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    assert_eq!(place.hub.requests().len(), first + 1);
    // Without a network neither is asked.
    place.succeeds(&[("HF_HUB_OFFLINE", "1"), ("HF_ENDPOINT", "http://127.0.0.1:1")]);
}

#[test]
fn progress_is_a_note_unless_it_is_not_wanted() {
    let place = Place::new(nothing);
    let output = place.run_command(&["get", REPOSITORY], &[]);
    let note = "simdformer: downloading test/model, 4 files, 312.53 KiB, to ";
    assert!(err(&output).starts_with(note), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1);
}

#[test]
fn a_name_is_accepted_instead_of_a_directory() {
    let directory = french();
    let mut files = BTreeMap::new();
    for name in names(&directory.0) {
        files.insert(name.clone(), fs::read(directory.0.join(&name)).unwrap());
    }
    let place = Place::with_files(files, Box::new(nothing));
    let named = ["translate", "--model", REPOSITORY, "--quiet", "Je suis étudiant"];
    let output = place.run_command(&named, &[]);
    assert_eq!((out(&output), err(&output)), ("i am a student\n", ""));
    let output =
        place.run_command(&["languages", "--model", REPOSITORY], &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    // A directory of the name is used, and `./` is always a directory.
    let requests = place.hub.requests().len();
    fs::create_dir_all(place.home.0.join("test/model")).unwrap();
    for model in [REPOSITORY, "./none/model", "test/none/model"] {
        let mut command = place.command(&["translate", "--model", model, "x"], &[]);
        let output = command.current_dir(&place.home.0).output().unwrap();
        assert!(
            err(&output).contains(model) && output.status.code() == Some(1),
            "{}",
            err(&output)
        );
    }
    assert_eq!(place.hub.requests().len(), requests);
}

#[test]
fn names_that_are_none_are_wrong_command_lines() {
    let place = Place::new(nothing);
    for (name, part) in [
        (
            "opus-mt-en-fr",
            "expected ORG/NAME or ORG/NAME@REVISION, such as Helsinki-NLP/opus-mt-en-fr",
        ),
        ("https://hub.example/a/b/tree/main", "this address is that of a/b"),
        ("a/b@../c", "expected a branch, a tag or a commit, found \"../c\""),
    ] {
        let output = place.run_command(&["get", name], &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(part), "{}", err(&output));
    }
    assert!(place.hub.requests().is_empty());
}

#[test]
fn revisions_have_their_own_reference() {
    let place = Place::new(nothing);
    for revision in ["v1", "refs/pr/1"] {
        let output = place.run_command(&["get", &format!("{REPOSITORY}@{revision}")], &[]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert_eq!(fs::read_to_string(place.folder().join("refs").join(revision)).unwrap(), COMMIT);
    }
    assert!(!place.folder().join("refs/main").exists());
}

#[test]
fn shards_and_modules_are_found_in_their_lists() {
    let mut files = files();
    files.remove(WEIGHTS);
    files.remove("pytorch_model.bin");
    let index =
        r#"{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}"#;
    let modules = r#"[{"path": ""}, {"path": "1_Pooling"}]"#;
    for (path, text) in [
        ("model.safetensors.index.json", index),
        ("model-1-of-2.safetensors", "one"),
        ("model-2-of-2.safetensors", "two"),
        ("model-3-of-3.safetensors", "not in the index"),
        ("modules.json", modules),
        ("1_Pooling/config.json", "{}"),
        ("2_Other/config.json", "{}"),
    ] {
        files.insert(path.to_owned(), text.as_bytes().to_vec());
    }
    let place = Place::with_files(files, Box::new(nothing));
    let output = place.get(&[]);
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    place.check(&[
        CONFIG,
        "source.spm",
        "vocab.json",
        "model.safetensors.index.json",
        "model-1-of-2.safetensors",
        "model-2-of-2.safetensors",
        "modules.json",
        "1_Pooling/config.json",
    ]);
}

/// The list of files has several pages.
#[test]
fn pages_are_followed() {
    let page = |request: &Request, answer: &mut Answer| {
        if !request.path.contains("/tree/") {
            return;
        }
        let all: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).unwrap();
        let second = request.path.ends_with("cursor=2");
        let half = if second { &all[all.len() / 2..] } else { &all[..all.len() / 2] };
        answer.body = serde_json::to_vec(half).unwrap();
        if !second {
            let host = &request.headers["host"];
            let next = format!("<http://{host}{}&cursor=2>; rel=\"next\"", request.path);
            answer.headers.push(("Link", next));
        }
    };
    // The path of the second page is that of the first, with a cursor.
    let place = Place::new(page);
    place.succeeds(&[]);
}

#[test]
fn the_token_goes_to_the_hub_only() {
    let place = Place::new(nothing);
    fs::write(place.home.0.join("token"), "hf_of_file\n").unwrap();
    place.succeeds(&[]);
    for request in place.hub.requests() {
        let found = request.headers.get("authorization").map(String::as_str);
        let expected = if request.cdn { None } else { Some("Bearer hf_of_file") };
        assert_eq!(found, expected, "{}", request.path);
    }
    let other = Place::new(nothing);
    other.succeeds(&[("HF_TOKEN", "hf_of_variable")]);
    let first = &other.hub.requests()[0];
    assert_eq!(first.headers["authorization"], "Bearer hf_of_variable");
}

/// Two processes want the same model at once: one downloads, the other waits and uses the files.
#[test]
fn two_processes_download_a_file_once() {
    let slow = |request: &Request, answer: &mut Answer| {
        if request.cdn {
            answer.pace = Some((50_000, Duration::from_millis(20)));
        }
    };
    let place = Place::new(slow);
    let children: Vec<_> = (0..3)
        .map(|_| place.command(&["get", REPOSITORY, "--quiet"], &[]).spawn().unwrap())
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    }
    place.check(&NEEDED);
    for file in NEEDED.iter().filter(|file| is_large(file)) {
        assert_eq!(place.hub.bodies(file).len(), 1, "{file}");
    }
}

/// The process is killed at random moments of a download, and the next one continues.
#[test]
fn a_killed_download_is_continued() {
    let slow = |request: &Request, answer: &mut Answer| {
        if request.cdn {
            answer.pace = Some((10_000, Duration::from_millis(2)));
        }
    };
    let mut state = 36u64;
    let (mut killed, mut continued) = (0, 0);
    let wanted = effort::cases(5, 50);
    while killed < wanted {
        let place = Place::new(slow);
        loop {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut child = place.command(&["get", REPOSITORY, "--quiet"], &[]).spawn().unwrap();
            // Every second time it is in the middle of the largest file.
            let before = place.hub.requests().len();
            let reached = || match killed % 2 {
                0 => fs::metadata(place.incomplete(WEIGHTS)).is_ok_and(|part| part.len() > 0),
                _ => place.hub.requests().len() > before + killed % 8,
            };
            while !reached() && child.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_micros(200));
            }
            thread::sleep(Duration::from_micros((state >> 33) % 20_000));
            if child.try_wait().unwrap().is_some_and(|status| status.success()) {
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            killed += 1;
            // What is there is whole, and the model is either complete or not used.
            place.whole_blobs();
            let offline = place.get(&[("HF_HUB_OFFLINE", "1")]);
            if offline.status.success() {
                place.check(&NEEDED);
            }
            if killed == wanted {
                break;
            }
        }
        place.succeeds(&[]);
        let from = |request: &Request| request.from().is_some();
        continued += usize::from(place.hub.bodies(WEIGHTS).iter().any(from));
    }
    // Some moments are in the middle of a file.
    assert!(continued > 0);
}

/// Caches of the Python client before version 1.27 have no list of files, so nobody knows whether they are complete. With a
/// network the list is requested, and no file again.
#[test]
fn a_cache_without_a_list_of_files_is_completed_with_a_network() {
    let place = Place::new(nothing);
    place.succeeds(&[]);
    fs::remove_dir_all(place.folder().join("trees")).unwrap();
    let output = place.get(&[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    let before = place.hub.requests().len();
    place.succeeds(&[]);
    // The commit and the list.
    assert_eq!(place.hub.requests().len(), before + 2);
    place.succeeds(&[("HF_HUB_OFFLINE", "1")]);
}

#[test]
fn no_other_module_has_code_for_the_network() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = ["cli/src", "text", "speech", "train", "src", "kernels/src"]
        .iter()
        .map(|folder| root.join(folder))
        .collect();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = folder.join(&name);
            if path.is_dir() && !["hub", "target", "tests", "benches"].contains(&&*name) {
                folders.push(path);
            } else if name == "serve.rs" {
                // It parses the address on which it listens.
                assert_eq!(folder, root.join("cli/src"));
            } else if name.ends_with(".rs") {
                let code = fs::read_to_string(&path).unwrap();
                let found =
                    ["ureq", "std::net", "TcpStream"].iter().find(|&&word| code.contains(word));
                assert_eq!(found, None, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 300, "{files} files");
}
