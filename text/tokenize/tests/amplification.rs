//! Small files that need much memory: the file or the text is an error with what was expected and what was
//! found, within a few megabytes. This is a part of the program that counts bytes.

use super::counting::most_bytes;
use super::short;
use simdformer_testing::directories::golden;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_tokenize::{SentencePiece, Tokenizer};
use std::fs;

/// Bytes that may be live beside a few copies of the files: patterns that are compiled once, caches of the
/// reader.
const MEMORY: usize = 8 << 20;

fn place(files: &[(&str, &[u8])]) -> TemporaryFolder {
    let place = TemporaryFolder::new("amplification");
    for (name, bytes) in files {
        place.write(name, bytes);
    }
    place
}

/// Opens a directory of `files`, which must be an error that contains `message`, in memory of a few times
/// the size of the files. A tree of short values takes ten times the bytes of its text.
#[cfg(feature = "json")]
fn refused(what: &str, files: &[(&str, &[u8])], message: &str) {
    refused_within(10, what, files, message);
}

fn refused_within(times: usize, what: &str, files: &[(&str, &[u8])], message: &str) {
    let size: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let place = place(files);
    let (read, most) = most_bytes(|| Tokenizer::from_dir(&place.0).map(drop));
    let error = read.err().map_or_else(|| "it was read".to_owned(), |error| error.to_string());
    assert!(error.contains(message), "{what}: {error:.300}");
    assert!(error.len() < 1000, "{what}: an error of {} bytes", error.len());
    assert!(most <= MEMORY + times * size, "{what}: {most} bytes for {size} of files");
}

fn model() -> Vec<u8> {
    short(&fs::read(golden("spm/unigram_identity.spm")).unwrap(), 30)
}

const MARIAN: &[u8] = br#"{"model_type": "marian"}"#;
const VOCABULARY: &[u8] = br#"{"</s>": 0, "<unk>": 1, "<pad>": 2, "e": 3}"#;

/// A Marian directory with one file replaced. The file is rejected before it is parsed into a tree.
fn marian(what: &str, name: &str, bytes: &[u8], message: &str) {
    let model = model();
    let mut files: Vec<(&str, &[u8])> = vec![
        ("source.spm", &model),
        ("target.spm", &model),
        ("config.json", MARIAN),
        ("vocab.json", VOCABULARY),
    ];
    files.retain(|(file, _)| *file != name);
    files.push((name, bytes));
    refused_within(3, what, &files, message);
}

/// `[0,0,...]` of `count` numbers as the value of a key.
fn numbers(count: usize) -> Vec<u8> {
    let mut text = b"{\"x\":[".to_vec();
    text.extend(b"0,".repeat(count - 1));
    text.extend_from_slice(b"0]}");
    text
}

#[test]
fn values_of_files_are_few() {
    let message = "expected at most 65536 values, found";
    marian("config.json", "config.json", &numbers(100_000), message);
    let message = "tokenizer_config.json: expected at most 524288 values, found";
    marian("settings", "tokenizer_config.json", &numbers(600_000), message);
    let message = "vocab.json: expected at most 1048576 values, found";
    marian("vocabulary", "vocab.json", &numbers(1_100_000), message);
    // A text counts as one value, whatever its length.
    let text = format!(r#"{{"model_type": "marian", "x": "{}"}}"#, "[0,\\\"".repeat(100_000));
    let model = model();
    let files: [(&str, &[u8]); 4] = [
        ("source.spm", &model),
        ("target.spm", &model),
        ("config.json", text.as_bytes()),
        ("vocab.json", VOCABULARY),
    ];
    assert!(Tokenizer::from_dir(&place(&files).0).is_ok());
}

#[test]
fn files_are_small() {
    let spaces = |count: usize| [b"{}".to_vec(), vec![b' '; count]].concat();
    let message = "config.json: expected at most 2097152 bytes, found 2097154";
    marian("config.json", "config.json", &spaces(2 << 20), message);
    // These files are sparse. They are rejected by their length alone, so no byte is read.
    let lengths = [
        ("tokenizer_config.json", 16u64 << 20),
        ("vocab.json", 64 << 20),
        ("source.spm", 128 << 20),
    ];
    for (name, most) in lengths {
        let model = model();
        let place = place(&[
            ("source.spm", &model),
            ("target.spm", &model),
            ("config.json", MARIAN),
            ("vocab.json", VOCABULARY),
        ]);
        fs::File::create(place.0.join(name)).unwrap().set_len(most + 1).unwrap();
        let (read, live) = most_bytes(|| Tokenizer::from_dir(&place.0).map(drop));
        let error = read.unwrap_err().to_string();
        let message = format!("{name}: expected at most {most} bytes, found {}", most + 1);
        assert!(error.contains(&message), "{error}");
        assert!(live < MEMORY, "{name}: {live}");
    }
}

/// Opening a pipe waits for a writer, and a device may have no end.
#[cfg(unix)]
#[test]
fn files_are_regular() {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    for name in ["config.json", "tokenizer_config.json"] {
        for what in ["a pipe", "a device", "a directory"] {
            let place = place(&[]);
            let path = place.0.join(name);
            match what {
                "a pipe" => {
                    let made = std::process::Command::new("mkfifo").arg(&path).status();
                    assert!(made.unwrap().success());
                }
                "a device" => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let (sender, receiver) = channel();
            let folder = place.0.clone();
            std::thread::spawn(move || sender.send(Tokenizer::from_dir(&folder).map(drop)));
            let read = receiver.recv_timeout(Duration::from_secs(20));
            let error = read.unwrap_or_else(|_| panic!("{what}: no answer")).unwrap_err();
            let message = format!("{name}: expected a regular file, found {what}");
            assert!(error.to_string().contains(&message), "{error}");
        }
    }
}

fn added(tokens: impl Iterator<Item = (u32, String)>) -> String {
    let tokens: Vec<String> =
        tokens.map(|(id, text)| format!(r#""{id}":{{"content":"{text}"}}"#)).collect();
    format!(
        r#"{{"tokenizer_class": "NllbTokenizer", "added_tokens_decoder":{{{}}}}}"#,
        tokens.join(",")
    )
}

#[test]
fn added_tokens_are_limited_and_their_ids_make_no_table() {
    let model = model();
    for class in ["NllbTokenizer", "MarianTokenizer"] {
        let open = |tokens: &mut dyn Iterator<Item = (u32, String)>| {
            let settings = added(tokens).replace("NllbTokenizer", class);
            let place = place(&[
                ("source.spm", &model),
                ("target.spm", &model),
                ("sentencepiece.bpe.model", &model),
                ("vocab.json", VOCABULARY),
                ("tokenizer_config.json", settings.as_bytes()),
            ]);
            most_bytes(|| Tokenizer::from_dir(&place.0))
        };
        let (tokenizer, most) = open(&mut [(16_777_215, "<x>".to_owned())].into_iter());
        assert!(most < MEMORY, "{class}: {most}");
        let ids = tokenizer.unwrap().encode_target("e<x>").unwrap();
        assert_eq!(ids.last(), Some(&16_777_215), "{class}");
        let (tokenizer, _) = open(&mut (0..1 << 16).map(|id| (1000 + id, format!("<{id}>"))));
        let ids = tokenizer.unwrap().encode_target("<65535>").unwrap();
        assert_eq!(ids, [66_535], "{class}");
        for (tokens, message) in [
            (
                &mut (0..=1u32 << 16).map(|id| (id, format!("<{id}>")))
                    as &mut dyn Iterator<Item = _>,
                "added_tokens_decoder: expected at most 65536 tokens, found 65537",
            ),
            (
                &mut [(7, "x".repeat(1025))].into_iter(),
                "added_tokens_decoder: expected tokens of at most 1024 bytes, found one of 1025",
            ),
        ] {
            let error = open(tokens).0.map(drop).unwrap_err().to_string();
            assert!(error.contains(message), "{class}: {error:.300}");
        }
    }
    let settings = format!(r#"{{"eos_token": "{}"}}"#, "x".repeat(1 << 20));
    let message = "eos_token: expected tokens of at most 1024 bytes, found one of 1048576";
    marian("a long end", "tokenizer_config.json", settings.as_bytes(), message);
    let vocabulary = format!(r#"{{"<unk>": 1, "{}": 2}}"#, "x".repeat(1 << 20));
    let message = "vocab.json: expected tokens of at most 1024 bytes, found one of 1048576";
    marian("a long piece", "vocab.json", vocabulary.as_bytes(), message);
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], varint(bytes.len()), bytes.to_vec()].concat()
}

/// A double array in which `a` becomes `len` letters.
fn rules(len: usize) -> Vec<u8> {
    let mut units = [0u32; 512];
    let offset = |from: usize, to: usize| ((from ^ to) as u32) << 10;
    units[0] = offset(0, 256);
    let a = 256 ^ usize::from(b'a');
    units[a] = u32::from(b'a') | 1 << 8 | offset(a, 128);
    units[128] = 1 << 31;
    let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(vec![b'b'; len]);
    bytes.push(0);
    bytes
}

#[test]
fn sentencepiece_files_do_not_lengthen_texts() {
    let with = |more: &[u8]| SentencePiece::from_bytes(&[model(), more.to_vec()].concat());
    let error = |more: &[u8]| with(more).map(drop).unwrap_err().to_string();
    let long = vec![b'x'; 1 << 20];
    let message = "expected pieces of at most 1024 bytes, found one of 1048576";
    assert_eq!(error(&field(1, &field(1, &long))), message);
    // The text for every unknown id. Field 44 has a number of two bytes.
    let surface = [&[0xe2, 0x02][..], &varint(long.len()), &long].concat();
    assert_eq!(error(&field(2, &surface)), message);
    // A thousand bytes for each byte.
    let model = with(&field(3, &field(2, &rules(1000)))).unwrap();
    assert!(model.encode("bbb a bbb").is_err());
    let (ids, most) = most_bytes(|| model.encode(&"a".repeat(10_000)));
    let error = ids.unwrap_err().to_string();
    let begin = "text: expected at most 320256 bytes after normalization, found at least 32";
    assert!(error.starts_with(begin) && error.ends_with(": it cannot be segmented"), "{error}");
    assert!(most < 2 << 20, "{most}");
    let model = with(&field(3, &field(2, &rules(30)))).unwrap();
    assert!(model.encode(&"a".repeat(10_000)).is_ok());
}

#[cfg(feature = "json")]
mod json {
    use super::*;
    use simdformer_tokenize::Direction;

    const CONFIG: (&str, &[u8]) = ("config.json", br#"{"model_type": "bart"}"#);
    const MODEL: &str =
        r#""model": {"type": "WordLevel", "unk_token": "x", "vocab": {"x": 0, "a": 1, "aaa": 2}}"#;

    #[test]
    fn values_and_lines_are_few() {
        let bart: (&str, &[u8]) = ("config.json", br#"{"model_type": "bart"}"#);
        let message = "tokenizer.json: expected at most 4194304 values, found";
        refused_within(3, "tokenizer", &[bart, ("tokenizer.json", &numbers(4_200_000))], message);
        let bert: (&str, &[u8]) = ("config.json", br#"{"model_type": "bert"}"#);
        let lines = "\n".repeat((1 << 20) + 1);
        let message = "vocab.txt: expected at most 1048576 lines, found 1048577";
        refused("lines", &[bert, ("vocab.txt", lines.as_bytes())], message);
        let roberta: (&str, &[u8]) = ("config.json", br#"{"model_type": "roberta"}"#);
        let vocabulary: (&str, &[u8]) = ("vocab.json", br#"{"<s>": 0, "</s>": 1}"#);
        let merges = "a\n".repeat((1 << 20) + 1);
        let message = "merges.txt: expected at most 1048576 lines, found 1048577";
        refused("merges", &[roberta, vocabulary, ("merges.txt", merges.as_bytes())], message);
    }

    /// A tokenizer with these parts.
    fn file(parts: &str) -> String {
        let comma = if parts.is_empty() { "" } else { ", " };
        format!(r#"{{"version": "1.0"{comma}{parts}, {MODEL}}}"#)
    }

    fn part(what: &str, parts: &str, message: &str) {
        refused(what, &[CONFIG, ("tokenizer.json", file(parts).as_bytes())], message);
    }

    fn open(parts: &str) -> Tokenizer {
        let place = place(&[CONFIG, ("tokenizer.json", file(parts).as_bytes())]);
        Tokenizer::from_dir(&place.0).unwrap()
    }

    fn sequence(part: &str, key: &str, stages: &[String]) -> String {
        format!(r#""{part}": {{"type": "Sequence", "{key}": [{}]}}"#, stages.join(", "))
    }

    fn replace(kind: &str, pattern: &str, content: &str) -> String {
        format!(
            r#"{{"type": "Replace", "pattern": {{"{kind}": "{pattern}"}}, "content": "{content}"}}"#
        )
    }

    /// The error for a text, and the largest number of live bytes.
    fn too_long(tokenizer: &Tokenizer, text: &str) {
        let (ids, most) = most_bytes(|| tokenizer.encode(text, &Direction::default()));
        let error = ids.unwrap_err().to_string();
        let limit = 32 * (text.len() + 8);
        let message = format!("expected at most {limit} bytes after normalization, found at least");
        assert!(error.contains(&message), "{error}");
        // Two positions, and the copies, for each byte that is allowed.
        assert!(most < 100 * limit + (64 << 10), "{most}");
        assert!(tokenizer.encode_target(text).is_err());
        assert!(tokenizer.encode_pair("x", text).is_err());
    }

    #[test]
    fn normalizers_that_double() {
        for stage in [replace("String", "a", "aa"), replace("Regex", "a|é", "aé")] {
            let tokenizer = open(&sequence("normalizer", "normalizers", &vec![stage; 24]));
            too_long(&tokenizer, "a");
            too_long(&tokenizer, &"a".repeat(1000));
            // A text without the letter is encoded.
            assert_eq!(tokenizer.encode_target("x").unwrap(), [0]);
        }
        let message = "expected at most 32 normalizers, found 35";
        let many = vec![replace("String", "a", "aa"); 35];
        part("35", &sequence("normalizer", "normalizers", &many), message);
        // 35 of them in nested sequences.
        let inner = vec![replace("String", "a", "aa"); 7];
        let inner = format!(r#"{{"type": "Sequence", "normalizers": [{}]}}"#, inner.join(", "));
        part("nested", &sequence("normalizer", "normalizers", &vec![inner; 5]), message);
    }

    #[test]
    fn other_normalizers() {
        let named = |kind: &str| format!(r#"{{"type": "{kind}"}}"#);
        // Between all letters; a long one in one stage; before the text; letters for bytes of
        // letters for bytes.
        let prepend = format!(r#"{{"type": "Prepend", "prepend": "{}"}}"#, "x".repeat(600));
        for (stages, text) in [
            (vec![replace("String", "", "bbbb"); 4], "a"),
            (vec![replace("Regex", "", "bbbb"); 4], "a"),
            (vec![replace("String", "a", &"a".repeat(1000))], "aaaa"),
            (vec![prepend], "a"),
            (vec![named("ByteLevel"); 9], "é"),
        ] {
            too_long(&open(&sequence("normalizer", "normalizers", &stages)), text);
        }
        // The product of the bounds of the three stages exceeds the limit. The text itself becomes
        // 11 times as long, which is found by normalizing a part of it at a time.
        let stages: Vec<String> = ["NFKD", "NFKC", "NFKD"].map(named).to_vec();
        let tokenizer = open(&sequence("normalizer", "normalizers", &stages));
        assert!(tokenizer.encode_target(&"\u{fdfa}".repeat(2000)).is_ok());
        // A token whose text is normalized when the file is read.
        let token = r#""added_tokens": [{"id": 7, "content": "a", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false}]"#;
        let stages = vec![replace("String", "a", "aa"); 24];
        let both = format!("{token}, {}", sequence("normalizer", "normalizers", &stages));
        part("a normalized token", &both, "expected at most 288 bytes after normalization");
    }

    #[test]
    fn rules_that_lengthen() {
        let digits = |bytes: &[u8]| crate::base64(bytes);
        let normalizer = |len| {
            let rules = digits(&rules(len));
            format!(r#""normalizer": {{"type": "Precompiled", "precompiled_charsmap": "{rules}"}}"#)
        };
        let message = "expected rules that make at most 16 bytes of one, found 17";
        part("17 bytes of one", &normalizer(17), message);
        assert!(open(&normalizer(16)).encode_target("a").is_ok());
    }

    #[test]
    fn pre_tokenizers() {
        let all = |stages: &[String]| sequence("pre_tokenizer", "pretokenizers", stages);
        let byte_level = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}"#;
        let message = "expected at most one ByteLevel pre-tokenizer, found 24";
        part("24 of them", &all(&vec![byte_level.to_owned(); 24]), message);
        let spaces = r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}"#;
        let message = "expected at most one Metaspace pre-tokenizer, found 2";
        part("two", &all(&vec![spaces.to_owned(); 2]), message);
        let message = "expected at most 32 pre-tokenizers, found 33";
        part("33", &all(&vec![r#"{"type": "Whitespace"}"#.to_owned(); 33]), message);
        let message = "expected pieces of at least one letter, found a length of 0";
        part("no letters", r#""pre_tokenizer": {"type": "FixedLength", "length": 0}"#, message);
        assert!(open(&all(&[spaces.to_owned(), byte_level.to_owned()])).encode_target("a").is_ok());
    }

    #[test]
    fn decoders() {
        let all = |stages: &[String]| sequence("decoder", "decoders", stages);
        let message =
            "expected decoders that make at most 16 bytes of one, found some that may make 32";
        part("doubled", &all(&vec![replace("String", "a", "aa"); 5]), message);
        let message = "expected decoders that make at most 16 bytes of one, found some";
        let long = "x".repeat(40);
        for stages in [
            vec![replace("String", "a", &long)],
            vec![replace("Regex", "", &long)],
            vec![replace("String", "", "x"); 3],
            vec![r#"{"type": "WordPiece", "prefix": "", "cleanup": false}"#.to_owned(); 5],
            vec![r#"{"type": "BPEDecoder", "suffix": ""}"#.to_owned(); 3],
        ] {
            part(&stages[0], &all(&stages), message);
        }
        // Patterns that are found by backtracking, which may fail: then the text would be missing.
        for pattern in
            ["a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", r"(a)\\1", "(?>a)b", "a++", "a*+", "a?+"]
        {
            let message = "expected a decoder's pattern without look-around";
            part(pattern, &all(&[replace("Regex", pattern, "x")]), message);
        }
        let tokenizer = open(&all(&[replace("Regex", "a+|[b-d]", "x")]));
        assert_eq!(tokenizer.decode(&[2]), "x");
        let message = "expected at most 32 decoders, found 33";
        part("33", &all(&vec![r#"{"type": "Fuse"}"#.to_owned(); 33]), message);
        // The decoders of Llama, then one that strips the end of a text, which may become empty.
        let strip =
            |stop| format!(r#"{{"type": "Strip", "content": "a", "start": 1, "stop": {stop}}}"#);
        let fuse = || r#"{"type": "Fuse"}"#.to_owned();
        let tokenizer = open(&all(&[replace("String", "x", " "), fuse(), strip(0)]));
        assert_eq!(tokenizer.decode(&[2, 0]), "aa ");
        let tokenizer = open(&all(&[fuse(), strip(9)]));
        assert_eq!(tokenizer.decode(&[2]), "");
        assert_eq!(tokenizer.decode(&[2, 0, 1]), "aax");
        let tokenizer = open(&all(&[r#"{"type": "BPEDecoder", "suffix": "</w>"}"#.to_owned()]));
        assert_eq!(tokenizer.decode(&[]), "");
    }

    #[test]
    fn templates() {
        let a = r#"{"Sequence": {"id": "A", "type_id": 0}}"#;
        let end = r#"{"SpecialToken": {"id": "</s>", "type_id": 0}}"#;
        let token = |ids: &str, texts: &str| {
            format!(r#"{{"</s>": {{"id": "</s>", "ids": [{ids}], "tokens": [{texts}]}}}}"#)
        };
        let template = |single: &[&str], tokens: &str| {
            format!(
                r#""post_processor": {{"type": "TemplateProcessing", "single": [{}], "pair": [{a}], "special_tokens": {tokens}}}"#,
                single.join(", ")
            )
        };
        let one = token("1", "\"</s>\"");
        let message = "expected a template with each text once, found \"A\" twice";
        part("a text twice", &template(&[a, a], &one), message);
        let message = "expected a template that adds at most 64 ids, found more";
        part("65 tokens", &template(&[&[a][..], &[end; 65]].concat(), &one), message);
        let many = token(&["1"; 40].join(","), &["\"</s>\""; 40].join(","));
        part("40 ids twice", &template(&[a, end, end], &many), message);
        let message = "expected a template's token with as many ids as texts, found 2 and 1";
        part("ids without texts", &template(&[a, end], &token("1, 2", "\"</s>\"")), message);
        let bert = r#"{"type": "BertProcessing", "sep": ["a", 1], "cls": ["a", 1]}"#.to_owned();
        let message = "expected at most 16 processors, found 17";
        part("17", &sequence("post_processor", "processors", &vec![bert; 17]), message);
        let tokenizer = open(&template(&[&[a][..], &[end; 64]].concat(), &one));
        assert_eq!(tokenizer.encode("a", &Direction::default()).unwrap().ids.len(), 65);
    }

    fn token(id: usize, text: &str, normalized: bool) -> String {
        format!(
            r#"{{"id": {id}, "content": "{text}", "single_word": false, "lstrip": false, "rstrip": false, "normalized": {normalized}, "special": true}}"#
        )
    }

    /// The reader makes an automaton of their texts that takes many bytes for each of them.
    #[test]
    fn added_tokens_are_few_and_short() {
        let list = |count: usize, len: usize| -> String {
            let tokens: Vec<String> =
                (0..count).map(|id| token(id, &format!("{id:x>len$}"), false)).collect();
            format!(r#""added_tokens": [{}]"#, tokens.join(","))
        };
        let message = "expected at most 65536 added_tokens, found 65537";
        part("65537", &list(65_537, 5), message);
        let message = "expected added_tokens of at most 1048576 bytes, found more";
        part("long ones", &list(1 << 11, 513), message);
        // Each becomes sixteen times as long.
        let tokens: Vec<String> =
            (0..1 << 10).map(|id| token(id, &format!("{id:a>80}"), true)).collect();
        let longer = format!(
            r#""added_tokens": [{}], "normalizer": {}"#,
            tokens.join(","),
            replace("String", "a", "bbbbbbbbbbbbbbbb"),
        );
        part("longer ones", &longer, message);
        let text = file(&list(1 << 10, 1000));
        let place = place(&[CONFIG, ("tokenizer.json", text.as_bytes())]);
        let (tokenizer, most) = most_bytes(|| Tokenizer::from_dir(&place.0).unwrap());
        assert!(most < 200 << 20, "{most}");
        assert_eq!(tokenizer.encode_target(&format!("a{:x>1000}a", 77)).unwrap(), [1, 80, 1]);
    }

    /// The reader has a table in each node of their trie.
    #[test]
    fn pieces_have_few_first_bytes() {
        let pieces = |count: usize| -> String {
            let pieces: Vec<String> =
                (0..count).map(|id| format!(r#"["{id:06}{}", 0.0]"#, "x".repeat(1000))).collect();
            let model = r#""type": "Unigram", "unk_id": 0, "vocab""#;
            format!(r#"{{"version": "1.0", "model": {{{model}: [{}]}}}}"#, pieces.join(","))
        };
        let message = "expected pieces with at most 4194304 beginnings, found 42";
        refused("pieces", &[CONFIG, ("tokenizer.json", pieces(4200).as_bytes())], message);
        let file = pieces(100);
        let place = place(&[CONFIG, ("tokenizer.json", file.as_bytes())]);
        let (read, most) = most_bytes(|| Tokenizer::from_dir(&place.0).map(drop));
        read.unwrap();
        assert!(most < 100 * 1000 * 300 + MEMORY, "{most}");
    }

    #[test]
    fn parts_are_small() {
        let long = "x".repeat(1025);
        let message = "normalizer: expected texts of at most 1024 bytes, found one of 1025";
        part(
            "a long text",
            &format!(r#""normalizer": {}"#, replace("String", "a", &long)),
            message,
        );
        let message = "decoder: expected at most 4096 values, found more";
        part("values", &format!(r#""decoder": [{}0]"#, "0,".repeat(4096)), message);
        let message = "pre_tokenizer: expected at most 16 levels, found more";
        let deep = format!("{}{}", "[".repeat(17), "]".repeat(17));
        part("levels", &format!(r#""pre_tokenizer": {deep}"#), message);
        let message = "expected a pattern of at most 8192 bytes, found one of 8193";
        let pattern = replace("Regex", &"x".repeat(8193), "");
        part("a long pattern", &format!(r#""normalizer": {pattern}"#), message);
    }

    #[test]
    fn models() {
        let long = "x".repeat(1025);
        let affix = "#".repeat(65);
        let tokens = "expected tokens of at most 1024 bytes, found one of 1025";
        for (model, message) in [
            (format!(r#"{{"type": "Unigram", "unk_id": 0, "vocab": [["{long}", 0.0]]}}"#), tokens),
            (format!(r#"{{"type": "BPE", "vocab": {{"{long}": 0}}, "merges": []}}"#), tokens),
            (
                format!(r#"{{"type": "BPE", "end_of_word_suffix": "{affix}", "vocab": {{}}, "merges": []}}"#),
                "end_of_word_suffix: expected at most 64 bytes, found 65",
            ),
            (
                r#"{"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "", "max_input_chars_per_word": 257, "vocab": {"a": 0}}"#.to_owned(),
                "max_input_chars_per_word: expected at most 256, found 257",
            ),
            // The reader writes both parts into a buffer for the longest token.
            (
                r#"{"type": "BPE", "vocab": {"a": 0, "ab": 1}, "merges": [["ab", "ab"]]}"#.to_owned(),
                "expected merges that make tokens of the vocabulary, found [\"ab\",\"ab\"]",
            ),
        ] {
            let file = format!(r#"{{"version": "1.0", "model": {model}}}"#);
            refused(message, &[CONFIG, ("tokenizer.json", file.as_bytes())], message);
        }
    }
}
