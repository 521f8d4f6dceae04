//! For twelve models: on how many of 500 lines does each reader of SentencePiece files give the ids and the
//! text of Google's library, and how fast is it?
//!
//! ```sh
//! cargo run --release --manifest-path text/measure/Cargo.toml
//! ```

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MODELS: [(&str, &str); 12] = [
    ("unigram", "nmt_nfkc"),
    ("unigram_cf", "nmt_nfkc_cf"),
    ("unigram_identity", "-"),
    ("unigram_bytes", "nmt_nfkc"),
    ("t5", "nmt_nfkc"),
    ("bpe", "nmt_nfkc"),
    ("bpe_bytes", "-"),
    ("unigram_symbols", "nmt_nfkc"),
    ("bpe_symbols", "nmt_nfkc"),
    ("suffix", "nmt_nfkc"),
    ("no_dummy", "nmt_nfkc"),
    ("bpe_nfkc_bytes", "nmt_nfkc"),
];

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(path)
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A trained model. Its rules are stored beside it and are merged into the one normalizer field here,
/// because not every reader merges two fields.
fn model(name: &str, rules: &str) -> Vec<u8> {
    let bytes = fs::read(golden(&format!("spm/{name}.spm"))).expect("a model");
    if rules == "-" {
        return bytes;
    }
    let rules = fs::read(golden(&format!("spm/{rules}.rules"))).expect("rules");
    let mut field = vec![0x12];
    varint(rules.len(), &mut field);
    field.extend(rules);
    let (mut at, mut out) = (0, Vec::new());
    while at < bytes.len() {
        let (tag, mut len, mut shift, mut head) = (bytes[at], 0, 0, 1);
        loop {
            let byte = bytes[at + head];
            len |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            head += 1;
            if byte < 0x80 {
                break;
            }
        }
        let content = &bytes[at + head..at + head + len];
        out.push(tag);
        let extra: &[u8] = if tag == 0x1a { &field } else { &[] };
        varint(content.len() + extra.len(), &mut out);
        out.extend_from_slice(content);
        out.extend_from_slice(extra);
        at += head + len;
    }
    out
}

fn fnv(bytes: impl IntoIterator<Item = u8>) -> String {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step))[4..].to_owned()
}

type Encode = Box<dyn Fn(&str) -> Result<Vec<u32>, String>>;
type Decode = Box<dyn Fn(&[u32]) -> Result<String, String>>;

fn text<E: Display>(error: E) -> String {
    error.to_string()
}

type Reader = (&'static str, Result<(Encode, Decode), String>);

fn readers(bytes: &[u8]) -> Vec<Reader> {
    (0..4).map(|number| reader(bytes, number)).collect()
}

fn reader(bytes: &[u8], number: usize) -> Reader {
    let ours = || {
        let model =
            std::rc::Rc::new(simdformer_tokenize::SentencePiece::from_bytes(bytes).map_err(text)?);
        let decoder = model.clone();
        let encode: Encode = Box::new(move |line| model.encode(line).map_err(text));
        let decode: Decode = Box::new(move |ids| Ok(decoder.decode(ids)));
        Ok((encode, decode))
    };
    let rust = || {
        let model = sentencepiece_rust::SentencePieceProcessor::from_bytes(bytes).map_err(text)?;
        let model = std::rc::Rc::new(model);
        let decoder = model.clone();
        let encode: Encode = Box::new(move |line| {
            Ok(model.encode(line).map_err(text)?.into_iter().map(|id| id as u32).collect())
        });
        let decode: Decode = Box::new(move |ids| {
            decoder.decode(&ids.iter().map(|&id| id as i32).collect::<Vec<_>>()).map_err(text)
        });
        Ok((encode, decode))
    };
    let rs = || {
        let model =
            sentencepiece_rs::SentencePieceProcessor::from_serialized_model(bytes).map_err(text)?;
        let model = std::rc::Rc::new(model);
        let decoder = model.clone();
        let encode: Encode = Box::new(move |line| {
            Ok(model.encode_to_ids(line).map_err(text)?.into_iter().map(|id| id as u32).collect())
        });
        let decode: Decode = Box::new(move |ids| {
            decoder.decode_ids(&ids.iter().map(|&id| id as usize).collect::<Vec<_>>()).map_err(text)
        });
        Ok((encode, decode))
    };
    let kito = || {
        let model = kitoken::Kitoken::from_sentencepiece_slice(bytes).map_err(text)?;
        let model = std::rc::Rc::new(model);
        let decoder = model.clone();
        let encode: Encode = Box::new(move |line| model.encode(line, false).map_err(text));
        let decode: Decode = Box::new(move |ids| {
            let bytes = decoder.decode(ids, false).map_err(text)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        Ok((encode, decode))
    };
    match number {
        0 => ("ours", ours()),
        1 => ("sentencepiece-rust", rust()),
        2 => ("sentencepiece-rs", rs()),
        _ => ("kitoken", kito()),
    }
}

fn main() {
    let lines = fs::read_to_string(golden("lines.jsonl")).expect("lines");
    let lines: Vec<String> =
        lines.lines().map(|l| serde_json::from_str(l).expect("a line")).collect();
    // A line at which a reader panics counts as wrong.
    std::panic::set_hook(Box::new(|_| ()));
    println!("lines of 500 with other ids / other text\n");
    for (name, rules) in MODELS {
        let expected =
            fs::read_to_string(golden(&format!("expected/spm_{name}.txt"))).expect("hashes");
        let expected: Vec<Vec<&str>> =
            expected.lines().skip(1).map(|line| line.split(' ').collect()).collect();
        print!("{name:18}");
        for (reader, made) in readers(&model(name, rules)) {
            let Ok((encode, decode)) = made else {
                print!("  {reader} refuses it");
                continue;
            };
            let (mut ids_differ, mut text_differs) = (0, 0);
            for (line, row) in lines.iter().zip(&expected) {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let ids = encode(line)?;
                    let text = decode(&ids);
                    Ok::<_, String>((ids, text))
                }));
                match done {
                    Ok(Ok((ids, text))) => {
                        let same = fnv(ids.iter().flat_map(|id| id.to_le_bytes())) == row[0];
                        ids_differ += usize::from(!same);
                        // The text of other ids is not compared.
                        let same_text = text.is_ok_and(|text| fnv(text.bytes()) == row[1]);
                        text_differs += usize::from(same && !same_text);
                    }
                    _ => ids_differ += 1,
                }
            }
            print!("  {reader} {ids_differ}/{text_differs}");
        }
        println!();
    }
    println!("\nencoding, MB/s, the best of five\n");
    let text: Vec<&str> = lines[..31].iter().map(String::as_str).collect();
    let bytes = text.iter().map(|line| line.len()).sum::<usize>();
    for (name, rules) in [("unigram", "nmt_nfkc"), ("bpe", "nmt_nfkc")] {
        print!("{name:18}");
        for (reader, made) in readers(&model(name, rules)) {
            let Ok((encode, _)) = made else { continue };
            let best = (0..5)
                .map(|_| {
                    let from = Instant::now();
                    for _ in 0..50 {
                        for line in &text {
                            std::hint::black_box(encode(line).map_or(0, |ids| ids.len()));
                        }
                    }
                    from.elapsed().as_secs_f64()
                })
                .fold(f64::INFINITY, f64::min);
            print!("  {reader} {:.1}", 50.0 * bytes as f64 / best / 1e6);
        }
        println!();
    }

    println!("\nchanged files, 2000 of each of two models, at which a reader panics\n");
    for (name, rules) in [("unigram", "nmt_nfkc"), ("bpe_bytes", "-")] {
        print!("{name:18}");
        let file = model(name, rules);
        for number in 0..4 {
            let (mut state, mut panics) = (7u64, 0);
            let mut below = |limit: usize| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as usize % limit
            };
            for _ in 0..2000 {
                let mut bytes = file.clone();
                // Most of the file is rules, so half of the changes are made in other
                // parts.
                for _ in 0..1 + below(3) {
                    let end = if below(2) == 0 { bytes.len() } else { bytes.len().min(20_000) };
                    bytes[below(end)] = below(256) as u8;
                }
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    if let (_, Ok((encode, decode))) = reader(&bytes, number) {
                        for line in &lines[..12] {
                            let _ = encode(line).map(|ids| decode(&ids));
                        }
                    }
                }));
                panics += usize::from(done.is_err());
            }
            print!("  {} {panics}", reader(&file, number).0);
        }
        println!();
    }
}
