//! Caches of models that are incomplete or damaged: what is not known to be whole is downloaded again, or is an error. A
//! model is never run from the wrong files.

use crate::command::{err, out};
use crate::hub::{CONFIG, NEEDED, Place, WEIGHTS, nothing};
use crate::hub_server::{COMMIT, REPOSITORY, etag};
use serde_json::Value;
use simdformer_testing::effort;
use simdformer_testing::published::{encoder, expected};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `check` with all cases, on two threads.
fn each<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(case);
                }
            });
        }
    });
}

/// What a damage does to a file of a snapshot, or to its blob.
const DAMAGES: [&str; 13] = [
    "no link",
    "no blob",
    "half",
    "empty",
    "zeros",
    "one bit",
    "longer",
    "folder",
    "blob is a folder",
    "link to another blob",
    "link to nowhere",
    "wrong file instead of a link",
    "half, and a wrong part",
];

/// Damages a file. Its times stay, where that is possible.
fn damage(place: &Place, file: &str, kind: &str) {
    let link = place.snapshot().join(file);
    let bytes = place.hub.file(file).to_vec();
    let blob = place.folder().join("blobs").join(etag(file, &bytes));
    let times = fs::metadata(&blob).unwrap();
    let times = fs::FileTimes::new()
        .set_modified(times.modified().unwrap())
        .set_accessed(times.accessed().unwrap());
    let write = |bytes: &[u8]| {
        fs::write(&blob, bytes).unwrap();
        fs::File::options().write(true).open(&blob).unwrap().set_times(times).unwrap();
    };
    let replace = |target: &Path| {
        fs::remove_file(&link).unwrap();
        symlink(target, &link).unwrap();
    };
    match kind {
        "no link" => fs::remove_file(&link).unwrap(),
        "no blob" => fs::remove_file(&blob).unwrap(),
        "half" => write(&bytes[..bytes.len() / 2]),
        "empty" => write(b""),
        "zeros" => write(&vec![0; bytes.len()]),
        "one bit" => {
            let mut wrong = bytes.clone();
            wrong[bytes.len() / 2] ^= 1;
            write(&wrong);
        }
        "longer" => write(&[&bytes[..], b"\n"].concat()),
        "folder" => {
            fs::remove_file(&link).unwrap();
            fs::create_dir(&link).unwrap();
        }
        "blob is a folder" => {
            fs::remove_file(&blob).unwrap();
            fs::create_dir(&blob).unwrap();
        }
        "link to another blob" => {
            let other = NEEDED.iter().find(|other| **other != file).unwrap();
            let name = etag(other, place.hub.file(other));
            replace(&Path::new("../../blobs").join(name));
        }
        "link to nowhere" => replace(Path::new("../../blobs/none")),
        "wrong file instead of a link" => {
            fs::remove_file(&link).unwrap();
            let mut wrong = bytes.clone();
            wrong[0] ^= 1;
            fs::write(&link, wrong).unwrap();
        }
        "half, and a wrong part" => {
            write(&bytes[..bytes.len() / 2]);
            fs::write(place.incomplete(file), vec![7; bytes.len() - 1]).unwrap();
        }
        _ => unreachable!("{kind}"),
    }
}

/// Without a network it is an error; with one the right files are there, or it is an error if `repairs` is false.
fn check(place: &Place, what: &str, repairs: bool) {
    let offline = place.get(&[("HF_HUB_OFFLINE", "1")]);
    assert_eq!((offline.status.code(), out(&offline)), (Some(1), ""), "{what}");
    assert!(err(&offline).contains("test/model is not complete in "), "{what}: {}", err(&offline));
    let unreachable = place.get(&[("HF_ENDPOINT", "http://127.0.0.1:1")]);
    assert_eq!((unreachable.status.code(), out(&unreachable)), (Some(1), ""), "{what}");
    let online = place.get(&[]);
    if !repairs {
        assert_eq!(online.status.code(), Some(1), "{what}");
        assert_eq!(err(&online).lines().count(), 1, "{what}: {}", err(&online));
        return;
    }
    assert_eq!((online.status.code(), err(&online)), (Some(0), ""), "{what}");
    for path in NEEDED {
        let found = fs::read(place.snapshot().join(path)).unwrap();
        assert!(found == place.hub.file(path), "{what}: {path}");
    }
    let again = place.get(&[("HF_HUB_OFFLINE", "1")]);
    assert_eq!((again.status.code(), err(&again)), (Some(0), ""), "{what}");
}

/// 52 layouts: every needed file x every damage.
#[test]
fn damaged_files_are_downloaded_again() {
    let cases: Vec<(&str, &str)> =
        NEEDED.iter().flat_map(|file| DAMAGES.map(|kind| (*file, kind))).collect();
    assert_eq!(cases.len(), 52);
    // By day every second one.
    let cases: Vec<_> = cases.into_iter().step_by(effort::cases(2, 1)).collect();
    each(&cases, |(file, kind)| {
        let place = Place::new(nothing);
        place.succeeds(&[]);
        damage(&place, file, kind);
        let is_folder = ["folder", "blob is a folder"].contains(kind);
        check(&place, &format!("{file}: {kind}"), !is_folder);
    });
}

/// The list of files, the reference and the folders.
#[test]
fn damaged_lists_and_references_are_requested_again() {
    let cases = [
        "no list",
        "empty list",
        "half a list",
        "no object",
        "another format",
        "no files in the list",
        "no weights in the list",
        "wrong sizes",
        "wrong checksums",
        "checksums that are paths",
        "a list of zeros",
        "no reference",
        "empty reference",
        "wrong reference",
        "reference to another commit",
        "no snapshot",
        "no blobs",
        "wrong notes",
        "a lock that is held by nobody",
    ];
    each(&cases, |what| {
        let place = Place::new(nothing);
        place.succeeds(&[]);
        let list = place.folder().join("trees").join(format!("{COMMIT}.json"));
        let text = fs::read_to_string(&list).unwrap();
        let reference = place.folder().join("refs/main");
        let changed = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
            let mut value: Value = serde_json::from_str(&text).unwrap();
            change(value["files"].as_object_mut().unwrap());
            fs::write(&list, value.to_string()).unwrap();
        };
        let mut is_damaged = true;
        match *what {
            "no list" => fs::remove_file(&list).unwrap(),
            "empty list" => fs::write(&list, "").unwrap(),
            "half a list" => fs::write(&list, &text[..text.len() / 2]).unwrap(),
            "no object" => fs::write(&list, "[]").unwrap(),
            "another format" => {
                fs::write(&list, text.replace("\"format_version\":1", "\"format_version\":2"))
                    .unwrap();
            }
            "no files in the list" => changed(&|files| files.clear()),
            "no weights in the list" => changed(&|files| {
                files.retain(|name, _| !name.ends_with(".safetensors") && !name.ends_with(".bin"));
            }),
            "wrong sizes" => changed(&|files| {
                files.values_mut().for_each(|file| file["size"] = 7.into());
                files.values_mut().for_each(|file| file["lfs_size"] = 7.into());
            }),
            "wrong checksums" => changed(&|files| {
                for file in files.values_mut() {
                    file["blob_id"] = "a".repeat(40).into();
                    file["lfs_sha256"] = "b".repeat(64).into();
                }
            }),
            "checksums that are paths" => changed(&|files| {
                files.values_mut().for_each(|file| file["blob_id"] = "../../x".into());
            }),
            "a list of zeros" => fs::write(&list, vec![0; text.len()]).unwrap(),
            "no reference" => fs::remove_file(&reference).unwrap(),
            "empty reference" => fs::write(&reference, "").unwrap(),
            "wrong reference" => fs::write(&reference, "../../etc/passwd").unwrap(),
            "reference to another commit" => fs::write(&reference, "f".repeat(40)).unwrap(),
            "no snapshot" => fs::remove_dir_all(place.snapshot()).unwrap(),
            "no blobs" => fs::remove_dir_all(place.folder().join("blobs")).unwrap(),
            "wrong notes" => {
                is_damaged = false;
                for entry in fs::read_dir(place.folder().join(".simdformer")).unwrap() {
                    fs::write(entry.unwrap().path(), "7 (0, 0)").unwrap();
                }
            }
            "a lock that is held by nobody" => {
                is_damaged = false;
                let locks = place.home.0.join("hub/.locks/models--test--model");
                fs::create_dir_all(&locks).unwrap();
                let lock = format!("{}.lock", etag(CONFIG, place.hub.file(CONFIG)));
                fs::write(locks.join(lock), "").unwrap();
            }
            _ => unreachable!("{what}"),
        }
        if is_damaged {
            check(&place, what, true);
        } else {
            place.succeeds(&[("HF_HUB_OFFLINE", "1")]);
        }
    });
}

/// A cache that another program has begun: every choice of the needed files, without a list of files.
#[test]
fn files_of_another_program_are_completed() {
    let cases: Vec<u32> = (0..1 << NEEDED.len()).step_by(effort::cases(3, 1)).collect();
    each(&cases, |chosen| {
        let place = Place::new(nothing);
        fill(&place, NEEDED.into_iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1));
        check(&place, &format!("{chosen:04b}"), true);
        // What was there is not requested again.
        for (i, file) in NEEDED.into_iter().enumerate() {
            let requested = place
                .hub
                .requests()
                .iter()
                .any(|request| request.path.ends_with(&format!("/resolve/{COMMIT}/{file}")));
            assert_eq!(requested, chosen >> i & 1 == 0, "{chosen:04b}: {file}");
        }
    });
}

/// Files in the cache as `hf_hub_download` leaves them.
fn fill<'f>(place: &Place, files: impl Iterator<Item = (usize, &'f str)>) {
    let mut any = false;
    for (_, file) in files {
        any = true;
        let bytes = place.hub.file(file);
        let blobs = place.folder().join("blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(etag(file, bytes)), bytes).unwrap();
        let link = place.snapshot().join(file);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let up = "../".repeat(file.matches('/').count() + 2);
        symlink(format!("{up}blobs/{}", etag(file, bytes)), link).unwrap();
    }
    if any {
        fs::create_dir_all(place.folder().join("refs")).unwrap();
        fs::write(place.folder().join("refs/main"), COMMIT).unwrap();
    }
}

/// The pooling of a sentence encoder is in files that other libraries do not ask for: the vectors are those of the whole
/// model, whatever was there before.
#[test]
fn vectors_of_a_partial_cache_are_those_of_the_whole_model() {
    let model = encoder("bert");
    let mut files = BTreeMap::new();
    let mut folders = vec![model.0.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&model.0).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let texts = expected("bert");
    let text = texts[0]["text"].as_str().unwrap();
    let embed = |place: &Place, variables: &[(&str, &str)]| {
        place.run_command(&["embed", "--model", REPOSITORY, "--quiet", text], variables)
    };
    let right = Place::with_files(files.clone(), Box::new(nothing));
    let right = embed(&right, &[]);
    assert_eq!((right.status.code(), err(&right)), (Some(0), ""));
    let names: Vec<String> = files.keys().cloned().collect();
    let settings = names.iter().filter(|name| *name != WEIGHTS).count();
    // Each file alone is missing, all but config and weights are, and only the weights are there.
    let mut cases: Vec<Vec<&String>> = (0..names.len())
        .map(|missing| names.iter().filter(|name| **name != names[missing]).collect())
        .collect();
    cases.push(names.iter().filter(|name| [CONFIG, WEIGHTS].contains(&name.as_str())).collect());
    cases.push(names.iter().filter(|name| *name == WEIGHTS).collect());
    assert!(settings >= 4, "{names:?}");
    let done = Mutex::new(0);
    each(&cases, |present| {
        let place = Place::with_files(files.clone(), Box::new(nothing));
        fill(&place, present.iter().map(|name| (0, name.as_str())));
        let offline = embed(&place, &[("HF_HUB_OFFLINE", "1")]);
        assert_eq!((offline.status.code(), out(&offline)), (Some(1), ""), "{present:?}");
        let online = embed(&place, &[]);
        assert_eq!((online.status.code(), err(&online)), (Some(0), ""), "{present:?}");
        assert_eq!(out(&online), out(&right), "{present:?}");
        *done.lock().unwrap() += 1;
    });
    assert_eq!(*done.lock().unwrap(), names.len() + 2);
}
