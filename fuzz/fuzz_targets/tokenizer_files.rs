//! Arbitrary bytes as tokenizer files: a SentencePiece model, and the JSON of a directory. The result must
//! be an `Err` or a tokenizer that works. Everything else is a bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer_tokenize::{Direction, SentencePiece, Tokenizer};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Files, and the calls of the tokenizer that they make.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    /// The `model_type` of the directory.
    family: u8,
    /// A SentencePiece file.
    model: &'a [u8],
    /// `vocab.json`, `vocab.txt` or `tokenizer.json`.
    vocabulary: &'a [u8],
    /// `tokenizer_config.json`.
    settings: &'a str,
    /// The text that is encoded.
    text: &'a str,
    /// The ids that are decoded.
    ids: Vec<u32>,
}

/// A model of a few pieces, so that a directory can be read if `model` is not valid.
const PIECES: &[u8] = b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02\x0a\x0c\x0a\x03<s>\x15\0\0\0\0\x18\x03\x0a\x0d\x0a\x04</s>\x15\0\0\0\0\x18\x03\
    \x0a\x0a\x0a\x03\xe2\x96\x81\x15\0\0\x80\xbf\x0a\x08\x0a\x01a\x15\0\0\0\xc0";

/// A directory of this process, in memory if the system has such a file system.
fn place() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let place = root.join(format!("simdformer-tokenizer-files-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        place
    })
}

fuzz_target!(|input: Input<'_>| {
    let model = SentencePiece::from_bytes(input.model);
    if let Ok(model) = &model {
        let ids = model.encode(input.text).expect("a short text");
        let _ = model.decode(&ids);
        let _ = model.decode(&input.ids);
    }
    let pieces = if model.is_ok() { input.model } else { PIECES };
    let place = place();
    let write = |name: &str, bytes: &[u8]| fs::write(place.join(name), bytes).expect("a file");
    let families: [(&str, &[&str], &str); 7] = [
        ("marian", &["source.spm", "target.spm"], "vocab.json"),
        ("m2m_100", &["sentencepiece.bpe.model"], "vocab.json"),
        ("mbart", &["sentencepiece.bpe.model"], ""),
        ("t5", &["spiece.model"], ""),
        ("t5", &[], "tokenizer.json"),
        ("bert", &[], "vocab.txt"),
        ("bart", &[], "tokenizer.json"),
    ];
    let (family, models, vocabulary) = families[usize::from(input.family) % families.len()];
    for (_, models, vocabulary) in families {
        for name in models.iter().chain([&vocabulary]).filter(|name| !name.is_empty()) {
            let _ = fs::remove_file(place.join(name));
        }
    }
    write("config.json", format!("{{\"model_type\": \"{family}\"}}").as_bytes());
    write("tokenizer_config.json", input.settings.as_bytes());
    models.iter().for_each(|name| write(name, pieces));
    if !vocabulary.is_empty() {
        write(vocabulary, input.vocabulary);
    }
    let Ok(tokenizer) = Tokenizer::from_dir(place) else { return };
    let code = tokenizer.languages().map(|languages| languages[0].code());
    let direction = Direction { source: None, target: code };
    if let Ok(encoded) = tokenizer.encode(input.text, &direction) {
        let _ = tokenizer.decode(&encoded.ids);
    }
    let _ = tokenizer.encode_pair(input.text, input.settings);
    // The parts of a stream, joined, are the whole text.
    let mut stream = tokenizer.stream();
    let mut said = String::new();
    for &id in &input.ids {
        said.extend(stream.push(id));
    }
    said.push_str(stream.finish());
    assert_eq!(said, tokenizer.decode(&input.ids));
});
