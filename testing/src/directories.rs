//! The directories of `text/tests/golden/dirs` with all their files, in a temporary directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::temporary_folder::TemporaryFolder;

/// A file or folder of `text/tests/golden`.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden").join(path)
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A trained model. Its normalization rules are stored once for all models and are merged into it here.
pub fn model(name: &str, rules: &str) -> Vec<u8> {
    let mut bytes = fs::read(golden(&format!("spm/{name}.spm"))).unwrap();
    if rules != "-" {
        let rules = fs::read(golden(&format!("spm/{rules}.rules"))).unwrap();
        let mut field = vec![0x12];
        varint(rules.len(), &mut field);
        field.extend(rules);
        bytes.push(0x1a);
        varint(field.len(), &mut bytes);
        bytes.extend(field);
    }
    bytes
}

/// `golden/dirs/NAME` as it would be published.
pub fn full(name: &str) -> TemporaryFolder {
    let place = TemporaryFolder::new(name);
    for entry in fs::read_dir(golden(&format!("dirs/{name}"))).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = fs::read(&path).unwrap();
        if file == "spm.txt" {
            for line in String::from_utf8(bytes).unwrap().lines() {
                let words: Vec<&str> = line.split(' ').collect();
                place.write(words[0], model(words[1], words[2]));
            }
            continue;
        }
        if file == "tokenizer.json" {
            let mut text = String::from_utf8(bytes).unwrap();
            for rules in ["nmt_nfkc", "nmt_nfkc_cf"] {
                let mark = format!("\"@{rules}\"");
                if text.contains(&mark) {
                    let rules = fs::read(golden(&format!("spm/{rules}.rules"))).unwrap();
                    text = text.replace(&mark, &format!("\"{}\"", base64(&rules)));
                }
            }
            bytes = text.into_bytes();
        }
        place.write(&file, bytes);
    }
    place
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, &b| bits << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
