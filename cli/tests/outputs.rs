//! What the command writes: an input is never an output, a file is whole or not there, links and modes stay.

use crate::command::{err, out};
use simdformer_testing::effort::cases;
use simdformer_testing::published::encoder;
use simdformer_testing::published::french;
use simdformer_testing::published::{ONE_LANGUAGE, whisper};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A model with one of each kind of file that is read.
fn place(model: &str) -> TemporaryFolder {
    let place = match model {
        "french" => french(),
        "encoder" => encoder("bert"),
        _ => whisper(ONE_LANGUAGE),
    };
    place.write("in.txt", "quel mois\n");
    place.write("in.md", "# quel mois\n");
    place.write("in.csv", "fr\nquel mois\n");
    place.write("terms.tsv", "mois\tmonth\n");
    place.write("out.csv.part", "fr\nquel mois\n");
    place.write("out.csv.journal", "fr\nquel mois\n");
    place.write("drafts.jsonl", "{\"sequences\": [[0]]}\n");
    place.write("spans.json", "[]");
    fs::create_dir(place.0.join("folder")).unwrap();
    place
}

/// The command in the directory of its model, with a limit of the bytes that it may write to a file.
fn run(place: &TemporaryFolder, arguments: &str, blocks: Option<usize>) -> Output {
    let program = env!("CARGO_BIN_EXE_simdformer");
    let mut command = match blocks {
        None => Command::new(program),
        // In units of 512 bytes. Without a handler for the signal, a write is an error.
        Some(blocks) => {
            let mut shell = Command::new("sh");
            let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
            shell.args(["-c", &script, "sh", program]);
            shell
        }
    };
    let mut words: Vec<&str> = arguments.split(' ').collect();
    words.splice(1..1, ["--model", "."]);
    if words[0] != "generate" {
        words.push("--quiet");
    }
    command.args(words).current_dir(&place.0).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    if arguments.starts_with("generate") {
        let mut input = child.stdin.take().unwrap();
        let _ = std::io::Write::write_all(&mut input, b"{\"input_ids\": [6, 11, 0]}\n");
    }
    drop(child.stdin.take());
    child.wait_with_output().unwrap()
}

/// The names and contents below a directory, with the targets of links.
fn snapshot(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if about.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            all.push((path.to_str().unwrap().to_owned(), content));
        }
    }
    all.sort();
    all
}

/// Model, what is read, and the command with `@` for the output.
const READ: [(&str, &str, &str); 22] = [
    ("french", "in.md", "translate --file in.md --output @"),
    ("french", "terms.tsv", "translate --file in.md --glossary terms.tsv --output @"),
    ("french", "source.spm", "translate --file in.md --output @"),
    ("french", "config.json", "translate --output @ --file in.md"),
    ("french", "in.csv", "translate --column fr --file in.csv --output @"),
    ("french", "in.csv", "translate --column fr --resume --file in.csv --output @"),
    ("french", "terms.tsv", "translate --column fr --file in.csv --glossary terms.tsv --output @"),
    ("french", "vocab.json", "translate --column fr --file in.csv --output @"),
    ("french", "drafts.jsonl", "generate --beams 1 --draft drafts.jsonl --logits @"),
    ("french", "model.safetensors", "generate --logits @"),
    ("french", "model.safetensors", "generate --save-packed @"),
    ("french", "config.json", "generate --logits @"),
    ("encoder", "in.txt", "embed --file in.txt --npy @"),
    ("encoder", "in.txt", "embed --file in.txt --save-ranges @"),
    ("encoder", "model.safetensors", "embed --npy @ x"),
    ("encoder", "modules.json", "embed --save-ranges @ x"),
    ("encoder", "1_Pooling/config.json", "embed --npy @ x"),
    ("whisper", "short.wav", "transcribe --vad false --output @ short.wav"),
    ("whisper", "short.wav", "transcribe --vad false --json --output @ short.wav"),
    ("whisper", "spans.json", "transcribe --speech spans.json --output @ short.wav"),
    ("whisper", "preprocessor_config.json", "transcribe --vad false --output @ short.wav"),
    ("whisper", "model.safetensors", "transcribe --vad false --srt --output @ short.wav"),
];

/// How a path can name a file.
const PATHS: [&str; 8] = [
    "itself",
    "./",
    "folder/..",
    "absolute",
    "link",
    "link to a link",
    "hard link",
    "linked folder",
];

/// 22 commands x 8 paths (two of them by day): the command ends with an error, and not a byte of any file has changed.
#[test]
fn an_input_is_never_an_output() {
    let mut checked = 0;
    for model in ["french", "encoder", "whisper"] {
        let place = place(model);
        symlink(".", place.0.join("here")).unwrap();
        for (number, (_, read, command)) in READ.iter().enumerate() {
            if READ[number].0 != model {
                continue;
            }
            // By day each path with a few of the commands.
            for path in PATHS.into_iter().skip(cases(number % 4, 0)).step_by(cases(4, 1)) {
                let other = place.0.join("other");
                let name = match path {
                    "itself" => (*read).to_owned(),
                    "./" => format!("./{read}"),
                    "folder/.." => format!("folder/../{read}"),
                    "absolute" => place.0.join(read).to_str().unwrap().to_owned(),
                    "linked folder" => format!("here/{read}"),
                    "link" => symlink(read, &other).map(|()| "other".to_owned()).unwrap(),
                    "hard link" => {
                        fs::hard_link(place.0.join(read), &other).unwrap();
                        "other".to_owned()
                    }
                    _ => {
                        symlink(place.0.join(read), place.0.join("folder/first")).unwrap();
                        symlink("folder/first", &other).map(|()| "other".to_owned()).unwrap()
                    }
                };
                let before = snapshot(&place.0);
                let output = run(&place, &command.replace('@', &name), None);
                let what = format!("{command}, {path}: {}", err(&output));
                assert_eq!((output.status.code(), out(&output)), (Some(2), ""), "{what}");
                assert!(err(&output).contains("is read and would be replaced"), "{what}");
                assert!(snapshot(&place.0) == before, "{what}");
                let _ = fs::remove_file(&other);
                let _ = fs::remove_file(place.0.join("folder/first"));
                checked += 1;
            }
        }
    }
    assert_eq!(checked, READ.len() * cases(2, PATHS.len()));
}

/// Files that a run writes beside its output, a directory with the names of the inputs, and two outputs in one file.
#[test]
fn files_beside_the_output_are_no_inputs_either() {
    let (place, encoder) = (place("french"), place("encoder"));
    let cases = [
        (&place, "translate --column fr --format csv --file out.csv.part --output out.csv"),
        (&place, "translate --column fr --format csv --file out.csv.journal --output out.csv"),
        (&place, "translate --file in.md --file in.txt --output ."),
        (&place, "translate --file in.md --file in.txt --output folder/.."),
        (&place, "translate --file folder/in.md --file in.txt --output ./"),
        (&encoder, "embed x --npy a --save-ranges a"),
        (&encoder, "embed x --npy a --save-ranges ./folder/../a"),
        (&place, "generate --logits a --save-packed ./a"),
    ];
    symlink("../in.md", place.0.join("folder/in.md")).unwrap();
    for (place, command) in cases {
        let before = snapshot(&place.0);
        let output = run(place, command, None);
        let message = err(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {message}");
        let known = ["is read and would be replaced", "two outputs are one file: "];
        assert!(known.iter().any(|known| message.contains(known)), "{command}: {message}");
        assert!(snapshot(&place.0) == before, "{command}");
    }
}

/// The commands that write a file, with `@` for it.
const WRITERS: [(&str, &str); 8] = [
    ("french", "translate --file in.md --output @"),
    ("french", "translate --column fr --file in.csv --output @"),
    ("french", "generate --logits @"),
    ("french", "generate --save-packed @"),
    ("encoder", "embed x --npy @"),
    ("encoder", "embed x --npy folder/vectors --save-ranges @"),
    ("whisper", "transcribe --vad false --output @ short.wav"),
    ("whisper", "transcribe --vad false --srt --output @ short.wav"),
];

/// Every command that writes x every kind of destination: the bytes are those of a new file, the link and the mode stay,
/// and no other file appears.
#[test]
fn links_and_modes_of_outputs_stay() {
    for (model, command) in WRITERS {
        let place = place(model);
        let new = run(&place, &command.replace('@', "new"), None);
        assert_eq!(new.status.code(), Some(0), "{command}: {}", err(&new));
        let expected = fs::read(place.0.join("new")).unwrap();
        let kinds = ["link", "file", "dangling link", "link in a folder"];
        for kind in kinds.into_iter().take(cases(1, 4)) {
            let real = place.0.join("folder/real");
            let given = match kind {
                "file" => "folder/real",
                "link in a folder" => {
                    symlink("real", place.0.join("folder/link")).unwrap();
                    "folder/link"
                }
                _ => {
                    symlink("folder/real", place.0.join("link")).unwrap();
                    "link"
                }
            };
            if kind != "dangling link" {
                fs::write(&real, "old").unwrap();
                fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
            }
            let names = |all: Vec<(String, Vec<u8>)>| -> Vec<String> {
                all.into_iter()
                    .map(|(name, _)| name)
                    .filter(|name| !name.ends_with("/real"))
                    .collect()
            };
            let before = names(snapshot(&place.0));
            let output = run(&place, &command.replace('@', given), None);
            assert_eq!(output.status.code(), Some(0), "{command}, {kind}: {}", err(&output));
            assert!(fs::read(&real).unwrap() == expected, "{command}, {kind}");
            let about = fs::symlink_metadata(&real).unwrap();
            assert!(about.is_file(), "{command}, {kind}");
            if kind != "dangling link" {
                assert_eq!(about.permissions().mode() & 0o777, 0o640, "{command}, {kind}");
            }
            assert_eq!(names(snapshot(&place.0)), before, "{command}, {kind}");
            for name in ["link", "folder/link", "folder/real"] {
                let _ = fs::remove_file(place.0.join(name));
            }
        }
    }
}

/// Every command that writes x every way to fail: an error in one line, the old file as it was, and nothing left behind.
#[test]
fn a_failed_write_is_an_error_and_leaves_nothing() {
    for (model, command) in WRITERS {
        let place = place(model);
        let new = run(&place, &command.replace('@', "new"), None);
        assert_eq!(new.status.code(), Some(0), "{command}: {}", err(&new));
        fs::write(place.0.join("old"), "old").unwrap();
        for (given, blocks) in [
            ("/dev/full", None),
            ("old", Some(0)),
            ("none/file", None),
            ("folder/in.md/file", None),
            ("missing", Some(0)),
        ]
        .into_iter()
        .take(cases(2, 5))
        {
            let before = snapshot(&place.0);
            let output = run(&place, &command.replace('@', given), blocks);
            let what = format!("{command}, {given}: {}", err(&output));
            assert_eq!(output.status.code(), Some(1), "{what}");
            assert!(err(&output).lines().last().unwrap().starts_with("simdformer: "), "{what}");
            assert!(snapshot(&place.0) == before, "{what}");
        }
        let full = fs::metadata("/dev/full").unwrap();
        assert!(full.file_type().is_char_device());
    }
}

/// A device or a pipe is written to, also by tables, and cannot be continued.
#[test]
fn devices_are_written_to_directly() {
    for (model, command) in WRITERS {
        let place = place(model);
        for device in ["/dev/null", "/dev/stderr"] {
            let before = snapshot(&place.0);
            // The number of vectors is written at the begin of the file.
            if device == "/dev/stderr" && command.starts_with("embed") {
                continue;
            }
            let output = run(&place, &command.replace('@', device), None);
            assert_eq!(output.status.code(), Some(0), "{command}, {device}: {}", err(&output));
            assert!(snapshot(&place.0) == before || command.contains("folder/vectors"));
        }
    }
    let place = place("french");
    let command = "translate --column fr --file in.csv --output /dev/null";
    let output = run(&place, &format!("{command} --resume"), None);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("/dev/null cannot be continued"), "{}", err(&output));
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

/// A directory of packed weights is whole, or there is nothing.
#[test]
fn a_failed_pack_leaves_nothing() {
    let place = place("encoder");
    for (blocks, folder) in [(0, "new"), (8, "new"), (40, "new"), (8, "folder")] {
        let before = snapshot(&place.0);
        let output = run(&place, &format!("pack {folder}"), Some(blocks));
        assert_eq!(output.status.code(), Some(1), "{blocks}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
        let _ = fs::remove_dir(place.0.join("new"));
        assert!(snapshot(&place.0) == before, "{blocks}");
    }
    let output = run(&place, "pack new", None);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}
