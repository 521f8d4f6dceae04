//! The files that decide a model's results, and the number for their content.

use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::model_files::{fingerprint, is_weights, list};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of models, in folders of modules, too.
const FILES: [&str; 16] = [
    "1_Pooling/config.json",
    "2_Dense/model.safetensors",
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "merges.txt",
    "model-00001-of-00002.safetensors",
    "model.avx2.packed",
    "model.pt",
    "modules.json",
    "pytorch_model.bin",
    "sentencepiece.bpe.model",
    "source.spm",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
];
/// Files beside them that decide nothing.
const OTHERS: [&str; 8] = [
    ".git/config.json",
    ".hidden.json",
    "README.md",
    "a/b/c/d/deep.json",
    "lines.txt",
    "out.csv.journal",
    "out.csv.part",
    "tf_model.h5",
];

fn write(place: &TemporaryFolder, name: &str, bytes: &[u8]) {
    fs::create_dir_all(place.0.join(name).parent().unwrap()).unwrap();
    place.write(name, bytes);
}

fn print(directory: &Path) -> String {
    fingerprint(directory, &list(directory).unwrap()).unwrap()
}

#[test]
fn the_files_of_a_model_are_listed() {
    let place = TemporaryFolder::new("model-files");
    for name in FILES.into_iter().chain(OTHERS) {
        write(&place, name, name.as_bytes());
    }
    assert_eq!(list(&place.0).unwrap(), FILES.map(PathBuf::from));
    let weights: Vec<_> = FILES.into_iter().filter(|name| is_weights(name)).collect();
    assert_eq!(weights.len(), 5, "{weights:?}");
    let before = print(&place.0);
    for name in OTHERS {
        write(&place, name, b"changed");
    }
    assert_eq!(print(&place.0), before);
    assert!(list(place.0.join("none")).is_err());
    assert!(fingerprint(&place.0, &[PathBuf::from("none")]).is_err());
}

/// Every byte counts, and the name and the length of every file: wherever the directory is.
#[test]
fn every_byte_of_every_file_changes_the_fingerprint() {
    let place = TemporaryFolder::new("model-bytes");
    let content = |name: &str| name.repeat(3).into_bytes();
    for name in FILES {
        write(&place, name, &content(name));
    }
    let before = print(&place.0);
    assert_eq!((before.len(), print(&place.0)), (16, before.clone()));
    let copy = TemporaryFolder::new("model-copy");
    for name in FILES {
        write(&copy, name, &content(name));
    }
    assert_eq!(print(&copy.0), before);
    let mut changed = 0;
    for name in FILES {
        let right = content(name);
        let mut wrong: Vec<Vec<u8>> = (0..right.len())
            .map(|at| {
                let mut wrong = right.clone();
                wrong[at] ^= 1;
                wrong
            })
            .collect();
        wrong.extend([right[1..].to_vec(), [&right[..], b"\0"].concat(), Vec::new()]);
        for bytes in wrong {
            write(&place, name, &bytes);
            assert_ne!(print(&place.0), before, "{name}");
            changed += 1;
        }
        fs::remove_file(place.0.join(name)).unwrap();
        assert_ne!(print(&place.0), before, "{name}");
        write(&place, name, &right);
    }
    assert_eq!(print(&place.0), before);
    assert!(changed > 700, "{changed}");
}

/// A file that is longer than what is read at a time.
#[test]
fn bytes_of_long_files_count() {
    let place = TemporaryFolder::new("model-long");
    let long: Vec<u8> = (0..(5u32 << 18) + 3).map(|i| (i / 251) as u8).collect();
    let print = |bytes: &[u8]| {
        place.write("model.bin", bytes);
        print(&place.0)
    };
    let before = print(&long);
    for at in [0, 1 << 18, (1 << 18) - 1, 700_001, long.len() - 1] {
        let mut wrong = long.clone();
        wrong[at] ^= 128;
        assert_ne!(print(&wrong), before, "{at}");
    }
    assert_eq!(print(&long), before);
}
