//! The files of a directory that decide the results of its model, and a number for their content.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Endings of the files that a model is read from.
const ENDINGS: [&str; 8] = ["bin", "jinja", "json", "model", "packed", "pt", "safetensors", "spm"];
/// Files of the ending `txt` that are vocabularies; others may be anything.
const VOCABULARIES: [&str; 6] = [
    "merges.txt",
    "shared_vocabulary.txt",
    "source_vocabulary.txt",
    "target_vocabulary.txt",
    "vocab.txt",
    "vocabulary.txt",
];
/// Files of weights have these endings.
const WEIGHTS: [&str; 4] = ["bin", "packed", "pt", "safetensors"];
/// Folders in folders that are looked at: those of the modules of sentence-transformers.
const DEPTH: usize = 3;
/// The most files and folders that are looked at.
const ENTRIES: usize = 100_000;
/// Bytes that are read at a time: a multiple of eight.
const BLOCK: usize = 1 << 18;

/// The files of a model's directory and of its folders that can decide a result: settings, tokenizers, prompts, weights.
/// The paths are relative to the directory and sorted.
///
/// A file counts by its name, whether or not this version reads it. A model that is one file, such as a package of Argos, has
/// the absolute path of that file.
///
/// # Errors
/// A folder cannot be read; it has more than 100,000 entries.
pub fn list(directory: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    let directory = directory.as_ref();
    if directory.is_file() {
        return Ok(vec![std::path::absolute(directory)?]);
    }
    let mut found = Vec::new();
    let mut entries = 0;
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(directory.join(&folder))? {
            let name = PathBuf::from(entry?.file_name());
            entries += 1;
            if entries > ENTRIES {
                let reason = format!("expected at most {ENTRIES} files of a model, found more");
                return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
            }
            if name.as_os_str().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = folder.join(&name);
            // A link that leads nowhere is no file.
            let about = match fs::metadata(directory.join(&path)) {
                Ok(about) => about,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if about.is_dir() && depth < DEPTH {
                folders.push((path, depth + 1));
            } else if about.is_file() && is_of_model(&name) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_of_model(name: &Path) -> bool {
    let is_vocabulary = VOCABULARIES.iter().any(|known| name == Path::new(known));
    is_vocabulary || has_ending(name, &ENDINGS)
}

/// Whether the name of a file is that of weights.
pub fn is_weights(file: impl AsRef<Path>) -> bool {
    has_ending(file.as_ref(), &WEIGHTS)
}

fn has_ending(name: &Path, endings: &[&str]) -> bool {
    name.extension().is_some_and(|found| endings.iter().any(|ending| found == *ending))
}

/// A number for files of a directory, as 16 hexadecimal digits: for their paths in it, their sizes and every byte,
/// wherever the directory is and whenever they were written. It tells models apart, and is no proof of who wrote a file.
///
/// # Errors
/// A file cannot be read, or changes meanwhile.
pub fn fingerprint(directory: impl AsRef<Path>, files: &[PathBuf]) -> io::Result<String> {
    let mut checksum = Checksum(0x9e37_79b9_7f4a_7c15);
    let mut block = vec![0; BLOCK];
    for path in files {
        // A model that is one file has an absolute path, of which only the name counts.
        let name = path.file_name().filter(|_| path.is_absolute()).unwrap_or(path.as_os_str());
        checksum.text(name.to_string_lossy().as_bytes());
        let mut file = File::open(directory.as_ref().join(path))?;
        let size = file.metadata()?.len();
        checksum.word(size);
        let mut read = 0;
        loop {
            let filled = fill(&mut file, &mut block)?;
            checksum.bytes(&block[..filled]);
            read += filled as u64;
            if filled < BLOCK {
                break;
            }
        }
        if read != size {
            let reason = format!("{}: expected {size} bytes, found {read}", path.display());
            return Err(io::Error::new(ErrorKind::InvalidData, reason));
        }
    }
    Ok(format!("{:016x}", checksum.0))
}

/// Fills `block`, or a part of it if the file ends first.
fn fill(file: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A checksum of 64-bit words. Each step is a bijection of the state, so a change of one word always changes the result.
struct Checksum(u64);

impl Checksum {
    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ mixed >> 29;
    }

    /// Eight bytes are a word; the last one is padded with zeros.
    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.word(u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.word(text.len() as u64);
        self.bytes(text);
    }
}
