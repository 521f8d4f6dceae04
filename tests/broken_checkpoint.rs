//! Every broken checkpoint is an error with a text of its own, and none panics.

use std::fs;
use std::path::Path;

use crate::random_model::Random;
use crate::tiny_marian::{Folder, MARIAN, file, floats, marian_tensors, open, write};
use simdformer::Error;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Config;

#[test]
fn every_broken_directory_has_its_own_error() {
    let good = write(&marian_tensors());
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let missing = Checkpoint::open(base.join("no/such/place")).unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    let plain = Folder::new("plain");
    plain.put("file", "x");
    let error = Checkpoint::open(plain.0.join("file")).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");

    type Prepare<'a> = &'a dyn Fn(&Folder);
    let cases: [(&str, Prepare<'_>, &str); 11] = [
        (
            "empty",
            &|_| (),
            "config.json: expected the architecture, which a checkpoint directory has there, found no such file",
        ),
        (
            "weightless",
            &|f| {
                f.put("config.json", MARIAN);
            },
            if cfg!(feature = "torch") {
                "model.safetensors: expected weights here, in model.safetensors.index.json or in pytorch_model.bin, found no such file"
            } else {
                "model.safetensors: expected weights here or in model.safetensors.index.json, found no such file"
            },
        ),
        (
            "pickled",
            &|f| {
                f.put("config.json", MARIAN).put("pytorch_model.bin", "x");
            },
            if cfg!(feature = "torch") {
                "pytorch_model.bin: expected a state dict of torch.save, found a wrong one: expected a zip archive or a pickle, found 1 bytes"
            } else {
                "pytorch_model.bin: expected a checkpoint in safetensors, found pickled Python objects, which can run code when they are read; the cargo feature `torch` reads"
            },
        ),
        (
            "latin",
            &|f| {
                f.put("config.json", b"{\"a\": \"\xe9\"}");
            },
            "config.json: expected UTF-8, found other bytes from byte 7 on",
        ),
        (
            "huge",
            &|f| {
                f.put("config.json", vec![b' '; (2 << 20) + 1]);
            },
            "config.json: expected at most 2097152 bytes, as in every real one, found more",
        ),
        (
            "bad-config",
            &|f| {
                f.put("config.json", "{");
            },
            "config.json: expected JSON, found an error at line 1, column 1",
        ),
        (
            "bad-generation",
            &|f| {
                f.put("config.json", MARIAN).put("generation_config.json", "[]");
            },
            "generation_config.json: expected a JSON object, found a list",
        ),
        (
            "other-ids",
            &|f| {
                f.put("config.json", MARIAN).put("generation_config.json", "{\"eos_token_id\": 5}");
            },
            "generation_config.json: eos_token_id: expected an id below the target vocabulary of 5, found 5",
        ),
        (
            "config-folder",
            &|f| fs::create_dir(f.0.join("config.json")).unwrap(),
            "config.json: expected a regular file, found something else",
        ),
        (
            "weights-folder",
            &|f| {
                f.put("config.json", MARIAN);
                fs::create_dir(f.0.join("model.safetensors")).unwrap();
            },
            "model.safetensors: expected a regular file, found something else",
        ),
        (
            "cut",
            &|f| {
                f.put("config.json", MARIAN).put("model.safetensors", &good[..good.len() - 1]);
            },
            "bytes that follow the header, found byte 1448: truncated?",
        ),
    ];
    for (name, prepare, words) in cases {
        let folder = Folder::new(name);
        prepare(&folder);
        match folder.open() {
            Ok(_) => panic!("{name}: accepted"),
            Err(error) => {
                assert!(error.to_string().contains(words), "{name}: expected {words:?} in: {error}")
            }
        }
    }
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error() {
    let folder = Folder::new("shrinks");
    let bytes = write(&marian_tensors());
    folder.put("config.json", MARIAN).put("model.safetensors", &bytes);
    let checkpoint = folder.open().unwrap();
    let file = fs::OpenOptions::new().write(true).open(folder.0.join("model.safetensors")).unwrap();
    file.set_len(bytes.len() as u64 / 2).unwrap();
    let error = checkpoint.tensor(TensorId::Output).unwrap().to_vec().unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn every_broken_file_has_its_own_error() {
    let tensors = marian_tensors();
    let good = write(&tensors);
    let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let with = |name: &str, tensor: (&'static str, Vec<usize>, Vec<u8>)| {
        let mut tensors = tensors.clone();
        tensors.insert(name.into(), tensor);
        write(&tensors)
    };
    let without = |name: &str| {
        let mut tensors = tensors.clone();
        tensors.remove(name).unwrap();
        write(&tensors)
    };
    let length = |n: u64| [&n.to_le_bytes(), &good[8..]].concat();
    let one = |info: &str, data: usize| file(&format!(r#"{{"x": {info}}}"#), &vec![0; data]);
    let info = |dtype: &str, shape: &str, begin: &str, end: &str| {
        format!(r#"{{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [{begin}, {end}]}}"#)
    };
    let two = |a: (usize, usize), b: (usize, usize), data: usize| {
        let tensor = |(begin, end): (usize, usize)| {
            info("U8", &format!("[{}]", end - begin), &begin.to_string(), &end.to_string())
        };
        file(&format!(r#"{{"x": {}, "y": {}}}"#, tensor(a), tensor(b)), &vec![0; data])
    };
    let max = usize::MAX.to_string();
    let shared = "model.shared.weight";
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "empty",
            vec![],
            "expected 8 bytes of length, with which a safetensors file begins, found 0 bytes",
        ),
        (
            "cut in the length",
            good[..7].to_vec(),
            "expected 8 bytes of length, with which a safetensors file begins, found 7 bytes",
        ),
        (
            "cut after the length",
            good[..8].to_vec(),
            "found 0 in the file after the length: truncated?",
        ),
        (
            "cut in the header",
            good[..8 + header / 2].to_vec(),
            " in the file after the length: truncated?",
        ),
        (
            "cut after the header",
            good[..8 + header].to_vec(),
            "expected an end within the 0 bytes that follow the header, found byte ",
        ),
        (
            "cut in a tensor",
            good[..good.len() - 6].to_vec(),
            "model.shared.weight: expected an end within the ",
        ),
        ("one byte more", [&good[..], &[0]].concat(), "which belong to no tensor"),
        (
            "header length of 2^64 - 1",
            length(u64::MAX),
            "the header: expected at most 100000000 bytes, found 18446744073709551615 bytes",
        ),
        (
            "header length over the limit",
            length(100_000_001),
            "the header: expected at most 100000000 bytes, found 100000001 bytes",
        ),
        (
            "header length of the limit",
            length(100_000_000),
            "the header: expected 100000000 bytes, found ",
        ),
        (
            "header length too short",
            length(header as u64 - 1),
            "the header: expected a table of tensors, found something else: EOF while parsing an object",
        ),
        (
            "header length too long",
            length(header as u64 + 1),
            "the header: expected a table of tensors, found something else: trailing characters",
        ),
        (
            "header length zero",
            length(0),
            "the header: expected a table of tensors, found something else: EOF while parsing a value",
        ),
        (
            "header is not UTF-8",
            [&4u64.to_le_bytes()[..], b"{\"\xff\""].concat(),
            "the header: expected UTF-8, found other bytes from byte 2 on",
        ),
        (
            "header is a list",
            file("[]", &[]),
            "the header: expected a table of tensors, found something else: invalid type: sequence, expected an object of tensors",
        ),
        (
            "header nests for ever",
            file(&format!("{{\"__metadata__\": {}", "[".repeat(100_000)), &[]),
            "the header: expected a table of tensors, found something else: EOF while parsing a list",
        ),
        (
            "tensor without shape",
            one(r#"{"dtype": "F32", "data_offsets": [0, 4]}"#, 4),
            "x: missing field `shape`",
        ),
        (
            "a tensor is a list",
            one(r#"["F32", [1], [0, 4]]"#, 4),
            "x: invalid type: sequence, expected an object",
        ),
        ("negative size", one(&info("F32", "[-1]", "0", "4"), 4), "x: invalid value: integer `-1`"),
        (
            "size NaN",
            one(&info("F32", "[NaN]", "0", "4"), 4),
            "the header: expected a table of tensors, found something else: x: expected value",
        ),
        (
            "size 1.5",
            one(&info("F32", "[1.5]", "0", "6"), 6),
            "x: invalid type: floating point `1.5`",
        ),
        (
            "size 2^64",
            one(&info("F32", "[18446744073709551616]", "0", "4"), 4),
            "x: invalid type: floating point",
        ),
        (
            "one offset",
            one(r#"{"dtype": "F32", "shape": [1], "data_offsets": [0]}"#, 4),
            "x: invalid length 1",
        ),
        (
            "the same name twice",
            file(&format!("{{\"x\": {0}, \"x\": {0}}}", info("F32", "[1]", "0", "4")), &[0; 4]),
            "x: expected to stand once in the header, found it twice",
        ),
        (
            "the same key twice",
            one(r#"{"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}"#, 4),
            "x: duplicate field `dtype`",
        ),
        (
            "offsets reversed",
            one(&info("F32", "[1]", "4", "0"), 4),
            "x: expected an end after its begin, byte 4, found byte 0",
        ),
        (
            "end beyond the file",
            one(&info("F32", "[2]", "0", "8"), 4),
            "x: expected an end within the 4 bytes that follow the header, found byte 8: truncated?",
        ),
        (
            "end at 2^64 - 1",
            one(&info("U8", &format!("[{max}]"), "0", &max), 4),
            "x: expected an end within the 4 bytes that follow the header, found byte 18446744073709551615",
        ),
        (
            "shape overflows",
            one(&info("F32", &format!("[{max}, {max}]"), "0", "4"), 4),
            "whose size overflows",
        ),
        (
            "bits overflow",
            one(&info("F32", &format!("[{}]", usize::MAX / 8), "0", "4"), 4),
            "x: expected a size that fits the address space, found shape [2305843009213693951], whose size overflows",
        ),
        (
            "zero hides an overflow",
            one(&info("F32", &format!("[0, {max}, {max}]"), "0", "0"), 0),
            "x: expected a size that fits the address space, found shape [0, ",
        ),
        (
            "too few bytes",
            one(&info("F32", "[2]", "0", "4"), 4),
            "x: expected 8 bytes for its shape and type, found 4",
        ),
        (
            "too many bytes",
            one(&info("F16", "[1]", "0", "4"), 4),
            "x: expected 2 bytes for its shape and type, found 4",
        ),
        (
            "overlap",
            two((0, 4), (3, 7), 7),
            "x and y: expected bytes of their own, found bytes that they share",
        ),
        (
            "one inside the other",
            two((0, 8), (2, 4), 8),
            "x and y: expected bytes of their own, found bytes that they share",
        ),
        (
            "the same bytes",
            two((0, 4), (0, 4), 4),
            "x and y: expected bytes of their own, found bytes that they share",
        ),
        (
            "gap",
            two((0, 4), (5, 7), 7),
            "expected a tensor for each byte, found bytes 4 to 5 after the header, which belong to no tensor",
        ),
        (
            "gap at the start",
            one(&info("U8", "[2]", "1", "3"), 3),
            "expected a tensor for each byte, found bytes 0 to 1 after the header, which belong to no tensor",
        ),
        (
            "no tensor at all",
            file("{}", &[]),
            "the tensor of encoder.embedding.weight: expected model.encoder.embed_tokens.weight, model.shared.weight, ",
        ),
        (
            "only metadata",
            file(r#"{"__metadata__": {"format": "pt"}}"#, &[]),
            "the tensor of encoder.embedding.weight: expected ",
        ),
        ("no embedding", without(shared), "the tensor of encoder.embedding.weight: expected "),
        (
            "no norm",
            without("model.encoder.layers.0.final_layer_norm.bias"),
            "expected model.encoder.layers.0.final_layer_norm.bias, found none; the nearest names are model.decoder.layers.0.final_layer_norm.bias",
        ),
        (
            "no cross attention",
            without("model.decoder.layers.0.encoder_attn.k_proj.weight"),
            "expected model.decoder.layers.0.encoder_attn.k_proj.weight, found none; the nearest names are model.decoder.layers.0.encoder_attn.q_proj.weight",
        ),
        (
            "vocabulary",
            with(shared, floats(&[6, 4], 0)),
            "model.shared.weight: expected shape [5, 4], found [6, 4]",
        ),
        (
            "transposed",
            with("model.encoder.layers.0.fc1.weight", floats(&[4, 3], 0)),
            "fc1.weight: expected shape [3, 4], found [4, 3]",
        ),
        (
            "flattened",
            with(shared, floats(&[20], 0)),
            "model.shared.weight: expected shape [5, 4], found [20]",
        ),
        (
            "scalar",
            with("model.encoder.layers.0.fc2.bias", floats(&[], 0)),
            "fc2.bias: expected shape [4], found []",
        ),
        (
            "zero size",
            with("model.encoder.layers.0.fc2.bias", floats(&[0], 0)),
            "fc2.bias: expected shape [4], found [0]",
        ),
        (
            "bias of the logits",
            with("final_logits_bias", floats(&[5, 1], 0)),
            "final_logits_bias: expected shape [5], found [5, 1]",
        ),
        (
            "head of another width",
            with("lm_head.weight", floats(&[5, 5], 0)),
            "lm_head.weight: expected shape [5, 4], found [5, 5]",
        ),
        (
            "integers",
            with(shared, ("I32", vec![5, 4], vec![0; 80])),
            "model.shared.weight: expected F32, F16 or BF16, found I32",
        ),
        (
            "doubles",
            with(shared, ("F64", vec![5, 4], vec![0; 160])),
            "model.shared.weight: expected F32, F16 or BF16, found F64, which would be rounded",
        ),
        (
            "unknown type",
            with(shared, ("F99", vec![5, 4], vec![0; 80])),
            "model.shared.weight: expected F32, F16 or BF16, found F99",
        ),
        (
            "a layer more",
            with("model.decoder.layers.1.fc1.bias", floats(&[3], 0)),
            "model.decoder.layers.1.fc1.bias: expected a tensor of the 1 decoder layer of the configuration, found one of a further layer",
        ),
    ];
    assert!(open(good.clone()).is_ok());
    for (name, bytes, words) in &cases {
        match open(bytes.clone()) {
            Ok(_) => panic!("{name}: accepted"),
            Err(error) => {
                assert!(error.to_string().contains(words), "{name}: expected {words:?} in: {error}")
            }
        }
    }
}

/// Opens the file, and reads every tensor of it that can be read.
fn exercise(bytes: Vec<u8>) {
    if let Ok(checkpoint) = open(bytes) {
        for role in TensorId::all(checkpoint.config()) {
            if let Ok(Some(view)) = checkpoint.optional(role) {
                let _ = view.to_vec();
            }
        }
    }
}

/// Runs 256 cases, each with a seed of its own. A case that panics prints its seed.
fn cases(case: impl Fn(&mut Random) + std::panic::RefUnwindSafe) {
    for seed in 0..256 {
        let outcome = std::panic::catch_unwind(|| case(&mut Random(seed)));
        assert!(outcome.is_ok(), "the case of seed {seed} panics");
    }
}

/// Up to `most` characters of `alphabet`.
fn letters(random: &mut Random, alphabet: &[char], most: usize) -> String {
    (0..random.below(most + 1)).map(|_| alphabet[random.below(alphabet.len())]).collect()
}

/// Up to `most` Unicode characters without control characters.
fn any_text(random: &mut Random, most: usize) -> String {
    let mut text = String::new();
    for _ in 0..random.below(most + 1) {
        // As many characters of one byte as of all longer encodings.
        let limit = if random.below(2) == 0 { 0x80 } else { 0x11_0000 };
        text.extend(char::from_u32(random.below(limit) as u32).filter(|c| !c.is_control()));
    }
    text
}

#[test]
fn random_bytes_never_panic() {
    cases(|random| {
        let len = random.below(300);
        exercise((0..len).map(|_| random.bits() as u8).collect());
    });
}

#[test]
fn random_headers_never_panic() {
    let names: Vec<char> = ('a'..='z').collect();
    let values: Vec<char> =
        "[]{}\",:".chars().chain('0'..='9').chain('a'..='z').chain(['F', '-']).collect();
    cases(|random| {
        let mut header = "{".to_owned();
        for _ in 0..random.below(4) {
            let space = ["", " "][random.below(2)];
            let (name, value) = (letters(random, &names, 2), letters(random, &values, 40));
            header += &format!("\"{name}\":{space}{value}");
            header += ["", ","][random.below(2)];
        }
        header.push('}');
        exercise(file(&header, &vec![0; random.below(32)]));
    });
}

/// A valid file in which some bytes of the length, the header or the tensors were changed.
#[test]
fn changed_bytes_never_panic() {
    let good = write(&marian_tensors());
    cases(|random| {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(5) {
            bytes[random.below(good.len())] = random.bits() as u8;
        }
        exercise(bytes);
    });
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = write(&marian_tensors());
    for at in 0..bytes.len() {
        assert!(open(bytes[..at].to_vec()).is_err(), "cut to {at} of {} bytes", bytes.len());
    }
}

#[test]
fn random_configurations_never_panic() {
    // One value of a valid configuration becomes a random number or string.
    let good: serde_json::Value = serde_json::from_str(MARIAN).unwrap();
    let keys: Vec<String> = good.as_object().unwrap().keys().cloned().collect();
    cases(|random| {
        let mut object = good.clone();
        let key = &keys[random.below(keys.len())];
        let number = (random.bits() as i64) >> random.below(64);
        object[key] = number.into();
        let _ = Config::from_hugging_face(&object.to_string());
        let text = any_text(random, 20);
        object[key] = text.clone().into();
        let _ = Config::from_hugging_face(&object.to_string());
        let _ = Config::from_hugging_face(&text);
    });
}
