//! Tokenizer files with bytes changed, cut, doubled and moved: an error or a tokenizer that works, without
//! a panic, in memory of a few times the file.
//!
//! `cargo test -p simdformer-tokenize --release --test mutations -- --ignored` tries a million files.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod amplification;

use counting::most_bytes;
use simdformer_testing::directories::golden;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_testing::{counting, effort};
use simdformer_tokenize::{Direction, SentencePiece, Tokenizer};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Beside the file: a few copies of it, and texts that rules make longer.
const MEMORY: usize = 10 << 20;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

/// Changes a file in one to four positions.
fn mutate(file: &[u8], random: &mut Random) -> Vec<u8> {
    const NUMBERS: [&[u8]; 12] = [
        b"-1",
        b"0",
        b"1",
        b"4294967295",
        b"1e30",
        b"99999999999",
        b"null",
        b"true",
        b"\"\"",
        b"[]",
        b"{}",
        b"\xff\xff\xff\xff\x0f",
    ];
    let mut bytes = file.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        let len = 1 + random.below(24);
        let end = (at + len).min(bytes.len());
        match random.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => drop(bytes.splice(at..end, NUMBERS[random.below(NUMBERS.len())].iter().copied())),
            6 => {
                // Replaces a whole number by another one.
                let from = bytes[at..].iter().position(u8::is_ascii_digit).map_or(at, |i| at + i);
                let len = bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = NUMBERS[random.below(NUMBERS.len())];
                drop(bytes.splice(from..from + len, number.iter().copied()));
            }
            _ => {
                let (a, b) = (random.below(bytes.len()), random.below(bytes.len()));
                if !bytes.is_empty() {
                    bytes.swap(a, b);
                }
            }
        }
    }
    bytes
}

const TEXTS: [&str; 5] = [
    "The quick brown fox.",
    "  ab c </s> <x> >>fra<<é 字🙂 ",
    "",
    "aaaaaaaaaaaaaaaa ﷺ ﬁ Å",
    "\u{0}\u{7f}\u{feff}",
];

/// Runs `read` on `count` mutations. Returns how many it could read.
fn mutations(
    name: &'static str,
    file: &[u8],
    count: u64,
    read: &mut dyn FnMut(&[u8]) -> bool,
) -> u64 {
    let mut readable = 0;
    let mut panics = Vec::new();
    for number in 0..count {
        let bytes = mutate(file, &mut Random(number * 7 + 1));
        let (read, most) = most_bytes(|| catch_unwind(AssertUnwindSafe(|| read(&bytes))));
        match read {
            Ok(read) => readable += u64::from(read),
            Err(_) => panics.push(number),
        }
        let limit = MEMORY + 20 * bytes.len();
        assert!(most <= limit, "{name} {number}: {most} bytes for a file of {}", bytes.len());
    }
    assert!(panics.is_empty(), "{name}: {} of {count} panicked: {panics:?}", panics.len());
    assert!(readable < count, "{name}: nothing was refused");
    readable
}

fn spm(bytes: &[u8]) -> bool {
    let Ok(model) = SentencePiece::from_bytes(bytes) else { return false };
    for text in TEXTS {
        let ids = model.encode(text).unwrap();
        let _ = model.decode(&ids);
    }
    let _ = model.decode(&[0, 1, 2, 3, 77, 255, u32::MAX]);
    true
}

/// The first pieces of a model, so that many mutations change other parts.
fn short(bytes: &[u8], pieces: usize) -> Vec<u8> {
    let (mut at, mut kept) = (0, 0);
    let mut out = Vec::new();
    while at < bytes.len() {
        // A field of bytes: its number, and a length of one or two bytes.
        let (mut len, mut head) = (usize::from(bytes[at + 1]), 2);
        if len >= 0x80 {
            len = len & 0x7f | usize::from(bytes[at + 2]) << 7;
            head = 3;
        }
        let end = at + head + len;
        if bytes[at] != 0x0a || kept < pieces {
            out.extend_from_slice(&bytes[at..end]);
        }
        kept += usize::from(bytes[at] == 0x0a);
        at = end;
    }
    out
}

fn sentencepiece_files(count: u64) {
    for (name, pieces) in
        [("bpe_symbols", 60), ("unigram_symbols", 60), ("bpe_bytes", 300), ("suffix", 40)]
    {
        let file = short(&fs::read(golden(&format!("spm/{name}.spm"))).unwrap(), pieces);
        let readable = mutations(name, &file, count, &mut spm);
        assert!(readable > count / 100, "{name}: {readable} of {count} could be read");
    }
}

/// A small double array: `a` and `ab` become `x` and `yy`.
fn rules() -> Vec<u8> {
    let mut units = [0u32; 512];
    // The children of the root are at 0 ^ 256.
    let offset = |from: usize, to: usize| ((from ^ to) as u32) << 10;
    units[0] = offset(0, 256);
    let a = 256 ^ usize::from(b'a');
    units[a] = u32::from(b'a') | 1 << 8 | offset(a, 128);
    units[128] = 1 << 31;
    let b = 128 ^ usize::from(b'b');
    units[b] = u32::from(b'b') | 1 << 8 | offset(b, 64);
    units[64] = 1 << 31 | 2;
    let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend_from_slice(b"x\0yy\0");
    bytes
}

fn with_rules(rules: &[u8]) -> Vec<u8> {
    let mut file = short(&fs::read(golden("spm/unigram_identity.spm")).unwrap(), 60);
    let varint = |mut n: usize| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let field = [vec![0x12], varint(rules.len()), rules.to_vec()].concat();
    file.push(0x1a);
    file.extend(varint(field.len()));
    file.extend(field);
    file
}

fn normalization_rules(count: u64) {
    let whole = with_rules(&rules());
    assert!(spm(&whole));
    mutations("rules", &rules(), count, &mut |rules| spm(&with_rules(rules)));
}

/// A directory in which one file at a time is mutated.
fn directory(name: &'static str, files: &[(&'static str, Vec<u8>)], count: u64) {
    let place = TemporaryFolder::new(name);
    for (file, bytes) in files {
        place.write(file, bytes);
    }
    let open = |place: &TemporaryFolder| match Tokenizer::from_dir(&place.0) {
        Ok(tokenizer) => {
            let code = tokenizer.languages().map(|l| l[0].code().to_owned());
            let direction = Direction { source: None, target: code.as_deref() };
            for direction in [direction, Direction::default()] {
                for text in TEXTS {
                    let _ = tokenizer.encode_target(text);
                    let _ = tokenizer.encode_pair(text, "the fox");
                    if let Ok(encoded) = tokenizer.encode(text, &direction) {
                        let _ = tokenizer.decode(&encoded.ids);
                    }
                }
            }
            let _ = tokenizer.decode(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 77, 255, u32::MAX]);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    };
    assert!(open(&place), "{name}");
    for (file, bytes) in files {
        let mut read = |bytes: &[u8]| {
            fs::write(place.0.join(file), bytes).unwrap();
            open(&place)
        };
        mutations(file, bytes, count, &mut read);
        fs::write(place.0.join(file), bytes).unwrap();
    }
}

fn directories(count: u64) {
    let model = short(&fs::read(golden("spm/unigram_identity.spm")).unwrap(), 30);
    let text = |text: &str| text.as_bytes().to_vec();
    directory(
        "marian",
        &[
            ("source.spm", model.clone()),
            ("target.spm", model.clone()),
            (
                "vocab.json",
                text(
                    r#"{"</s>": 0, "<unk>": 1, "▁": 2, "e": 3, "t": 4, ">>fra<<": 5, "<pad>": 6}"#,
                ),
            ),
            (
                "tokenizer_config.json",
                text(
                    r#"{"separate_vocabs": false, "model_max_length": 512, "eos_token": "</s>", "added_tokens_decoder": {"5": {"content": "<x>", "lstrip": true}}}"#,
                ),
            ),
            (
                "config.json",
                text(
                    r#"{"model_type": "marian", "decoder_start_token_id": 6, "max_position_embeddings": 512}"#,
                ),
            ),
        ],
        count,
    );
    directory(
        "nllb",
        &[
            ("sentencepiece.bpe.model", model.clone()),
            (
                "tokenizer_config.json",
                text(
                    r#"{"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "added_tokens_decoder": {"40": {"content": "eng_Latn"}, "41": {"content": "<mask>", "lstrip": true}}}"#,
                ),
            ),
        ],
        count,
    );
    directory(
        "t5",
        &[
            ("spiece.model", model),
            (
                "tokenizer_config.json",
                text(r#"{"tokenizer_class": "T5Tokenizer", "extra_ids": 100}"#),
            ),
        ],
        count,
    );
    directory(
        "moses",
        &[
            ("config.json", text(r#"{"model_type": "plain"}"#)),
            ("shared_vocabulary.txt", text("<unk>\n</s>\nt@@\nthe\n&apos;\nfox\n.\n@-@\n")),
            ("tokenizer_config.json", text(r#"{"src_lang": "en", "tgt_lang": "fr"}"#)),
            ("bpe.model", text("#version: 0.2\nt h\nth e</w>\nf o\nfo x</w>\n")),
            ("nonbreaking_prefixes.txt", text("# Titles\nDr\nNo #NUMERIC_ONLY#\n")),
        ],
        count,
    );
    #[cfg(feature = "json")]
    json_directories(count);
}

#[cfg(feature = "json")]
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)).collect();
    let six =
        |bits: &[u8]| bits.iter().chain([0; 5].iter()).take(6).fold(0, |n, &bit| n << 1 | bit);
    let text: String =
        bits.chunks(6).map(|bits| char::from(DIGITS[usize::from(six(bits))])).collect();
    let pad = "=".repeat((4 - text.len() % 4) % 4);
    text + &pad
}

#[cfg(feature = "json")]
fn json_directories(count: u64) {
    let text = |text: &str| text.as_bytes().to_vec();
    let config =
        |kind: &str| text(&format!(r#"{{"model_type": "{kind}", "max_position_embeddings": 64}}"#));
    directory(
        "bert",
        &[
            ("vocab.txt", text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfox\n##s\na\n##a\n.\n")),
            (
                "tokenizer_config.json",
                text(
                    r#"{"do_lower_case": true, "strip_accents": null, "cls_token": {"content": "[CLS]"}}"#,
                ),
            ),
            ("config.json", config("bert")),
        ],
        count,
    );
    directory(
        "roberta",
        &[
            (
                "vocab.json",
                text(
                    r#"{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "Ġ": 6, "ab": 7, "Ġab": 8}"#,
                ),
            ),
            ("merges.txt", text("#version: 0.2\na b\nĠ ab\n")),
            ("config.json", config("roberta")),
        ],
        count,
    );
    let added = r#"[{"id": 0, "content": "<pad>", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false, "special": true}]"#;
    let unigram = format!(
        r#"{{"version": "1.0", "truncation": {{"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}}, "padding": {{"strategy": {{"Fixed": 9}}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}},
        "added_tokens": {added},
        "normalizer": {{"type": "Sequence", "normalizers": [{{"type": "Precompiled", "precompiled_charsmap": "{}"}}, {{"type": "Replace", "pattern": {{"Regex": " {{2,}}"}}, "content": " "}}]}},
        "pre_tokenizer": {{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}},
        "post_processor": {{"type": "TemplateProcessing", "single": [{{"Sequence": {{"id": "A", "type_id": 0}}}}, {{"SpecialToken": {{"id": "</s>", "type_id": 0}}}}], "pair": [{{"Sequence": {{"id": "A", "type_id": 0}}}}, {{"Sequence": {{"id": "B", "type_id": 0}}}}], "special_tokens": {{"</s>": {{"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}}}},
        "decoder": {{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}},
        "model": {{"type": "Unigram", "unk_id": 2, "vocab": [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.5], ["a", -3.0], ["▁the", -4.0], ["aa", -3.5]], "byte_fallback": false}}}}"#,
        base64(&rules()),
    );
    directory(
        "t5-json",
        &[("tokenizer.json", text(&unigram)), ("config.json", config("t5"))],
        count,
    );
    let bpe = format!(
        r###"{{"version": "1.0", "added_tokens": {added}, "normalizer": {{"type": "NFC"}},
        "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{{"type": "Split", "pattern": {{"Regex": "(?i:'s|'t)|\\p{{L}}+|\\s+(?!\\S)|\\s+"}}, "behavior": "Isolated", "invert": false}}, {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}}]}},
        "post_processor": {{"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": false}},
        "decoder": {{"type": "Sequence", "decoders": [{{"type": "Replace", "pattern": {{"String": "▁"}}, "content": " "}}, {{"type": "ByteFallback"}}, {{"type": "Fuse"}}, {{"type": "Strip", "content": " ", "start": 1, "stop": 0}}]}},
        "model": {{"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": {{"<s>": 0, "</s>": 2, "<unk>": 3, "a": 4, "##a": 5, "aa": 6, "<0x41>": 7, "##a</w>": 8}}, "merges": [["a", "##a"]]}}}}"###
    );
    directory(
        "bart-json",
        &[("tokenizer.json", text(&bpe)), ("config.json", config("bart"))],
        count,
    );
}

#[test]
fn mutated_files_are_errors_or_are_read() {
    sentencepiece_files(effort::cases(400, 1500));
    normalization_rules(effort::cases(1200, 4000));
    directories(effort::cases(150, 500));
}

/// 4 x 100,000, 100,000, and 20 files x 25,000.
#[test]
#[ignore = "a million files"]
fn a_million_mutated_files_are_errors_or_are_read() {
    sentencepiece_files(100_000);
    normalization_rules(100_000);
    directories(25_000);
}
