//! Guarantee 4 for checkpoints: broken weights, headers, indexes and configurations are errors that say
//! what was expected and what was found. No two mistakes have the same text.

use crate::random_model::Dims;
use crate::rejections::{Seen, error_text};
use simdformer::Model;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Family, Positions};
use simdformer::kernels::Isa;
use std::path::{Path, PathBuf};

fn dims() -> Dims {
    Dims::small(Family::Marian)
}

/// A safetensors file whose header was changed.
fn with_header(change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) -> Vec<u8> {
    let bytes = dims().bytes(1);
    let (header, data) = split(&bytes);
    let mut header = serde_json::from_slice(header).expect("a header");
    change(&mut header);
    join(&serde_json::to_vec(&header).expect("a header"), data)
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = bytes.split_at(8);
    rest.split_at(u64::from_le_bytes(len.try_into().expect("8 bytes")) as usize)
}

fn join(header: &[u8], data: &[u8]) -> Vec<u8> {
    let len = (header.len() as u64).to_le_bytes();
    [&len[..], header, data].concat()
}

#[test]
fn broken_weights_are_errors() {
    let mut seen = Seen::default();
    let open = |bytes: Vec<u8>| error_text(Checkpoint::from_bytes(dims().config(), bytes));
    let whole = dims().bytes(1);
    let (header, data) = split(&whole);
    const KEY: &str = "model.decoder.layers.1.fc1.weight";
    const LOGITS: &str = "final_logits_bias";
    let set = |key: &'static str, field: &'static str, value: serde_json::Value| {
        open(with_header(|header| header[key][field] = value))
    };
    seen.check("an empty file", open(vec![]), &["memory", "0"]);
    seen.check("seven bytes", open(vec![0; 7]), &["7"]);
    let mut huge = whole.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    seen.check("a huge header", open(huge), &["18446744073709551615"]);
    seen.check("half a header", open(whole[..100].to_vec()), &["92"]);
    seen.check("half the data", open(whole[..whole.len() / 2].to_vec()), &["truncated"]);
    seen.check("bytes too many", open([&whole[..], &[0; 4]].concat()), &["no tensor"]);
    seen.check("a header of bytes", open(join(&[0xff; 40], data)), &["UTF-8"]);
    seen.check("a header of words", open(join(b"[1, 2, 3] and more", data)), &["memory"]);
    let text = String::from_utf8(header.to_vec()).expect("text");
    let twice = text.trim_end().replacen(
        '{',
        r#"{"final_logits_bias":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"#,
        1,
    );
    seen.check("a tensor twice", open(join(twice.as_bytes(), data)), &[LOGITS, "twice"]);
    seen.check("integers", set(KEY, "dtype", "I32".into()), &[KEY, "F32", "I32"]);
    seen.check("an unknown type", set(KEY, "dtype", "F33".into()), &["F33"]);
    seen.check(
        "another shape",
        set(KEY, "shape", [42, 59].to_vec().into()),
        &[KEY, "[59, 42]", "[42, 59]"],
    );
    seen.check(
        "too few bytes",
        set(KEY, "shape", [60, 42].to_vec().into()),
        &[KEY, "10080", "9912"],
    );
    seen.check(
        "a shape that overflows",
        set(KEY, "shape", [usize::MAX, 3].to_vec().into()),
        &[KEY, "whose size overflows"],
    );
    seen.check(
        "offsets reversed",
        set(KEY, "data_offsets", [100, 4].to_vec().into()),
        &[KEY, "100", "4"],
    );
    seen.check(
        "offsets past the end",
        set(KEY, "data_offsets", [0, 1u64 << 40].to_vec().into()),
        &[KEY, "1099511627776"],
    );
    let first = open(with_header(|header| {
        let other = header["model.encoder.layers.0.fc1.weight"].clone();
        header["model.encoder.layers.1.fc1.weight"] = other;
    }));
    seen.check("two tensors in one place", first, &["bytes that they share"]);
    let missing = open(with_header(|header| {
        let tensor = header.remove(KEY).expect("there");
        header.insert("model.decoder.layers.1.fc1.weights".into(), tensor);
    }));
    seen.check("a misspelled tensor", missing, &[KEY, "fc1.weights"]);
    let extra = open(with_header(|header| {
        let tensor = header.remove("model.decoder.layers.0.fc1.weight").expect("there");
        header.insert("model.decoder.layers.2.fc1.weight".into(), tensor);
    }));
    seen.check("a layer too many", extra, &["2 decoder layers", "layers.2"]);
    for (bits, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut poisoned = whole.clone();
        let at = whole.len() - 8;
        poisoned[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        let checkpoint = Checkpoint::from_bytes(dims().config(), poisoned).expect("opened");
        seen.check(word, error_text(Model::load(&checkpoint, Isa::best())), &[word, "element"]);
    }
    let mut config = dims().config();
    config.positions = Positions::Learned { offset: 2 };
    config.encoder.max_positions = None;
    seen.check(
        "a table without end",
        error_text(Checkpoint::from_bytes(config, whole)),
        &["learned"],
    );
}

fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad_files").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

#[test]
fn broken_checkpoint_directories_are_errors() {
    let mut seen = Seen::default();
    let open = |path: PathBuf| error_text(Model::open(path));
    let good = r#"{"model_type": "marian", "d_model": 8, "vocab_size": 9, "pad_token_id": 8,
        "decoder_start_token_id": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}"#;
    let missing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no such folder");
    seen.check("no directory", open(missing), &["no such folder"]);
    let file = folder("file", &[("a.txt", "text")]).join("a.txt");
    seen.check("a file", open(file), &["a.txt", "directory"]);
    seen.check("an empty directory", open(folder("empty", &[])), &["config.json"]);
    seen.check(
        "no weights",
        open(folder("weightless", &[("config.json", good)])),
        &["model.safetensors"],
    );
    let pickled = folder("pickled", &[("config.json", good), ("pytorch_model.bin", "x")]);
    let fix =
        if cfg!(feature = "torch") { "a zip archive or a pickle" } else { "save_pretrained(" };
    seen.check("pickled weights", open(pickled), &["pytorch_model.bin", fix]);
    let index = r#"{"weight_map": {"a": "../../secret"}}"#;
    let outside =
        folder("outside", &[("config.json", good), ("model.safetensors.index.json", index)]);
    seen.check("a shard elsewhere", open(outside), &["../../secret"]);
    let index = r#"{"weight_map": {"a": "one.safetensors"}}"#;
    let lost = folder("lost", &[("config.json", good), ("model.safetensors.index.json", index)]);
    seen.check("a lost shard", open(lost), &["one.safetensors"]);
    let list = folder("list", &[("config.json", good), ("model.safetensors.index.json", "[]")]);
    seen.check("an index of nothing", open(list), &["index.json"]);
    seen.check(
        "a config of words",
        open(folder("words", &[("config.json", "hello")])),
        &["line 1"],
    );
    let defaults = folder("defaults", &[("config.json", good), ("generation_config.json", "3")]);
    seen.check("a number of defaults", open(defaults), &["generation_config.json", "object"]);
    let read = |text: &str| error_text(Config::from_hugging_face(text));
    for (mistake, text, parts) in [
        ("no type", "{}", &["model_type"][..]),
        ("a list", "[]", &["object"]),
        ("another type", r#"{"model_type": "perceiver"}"#, &["perceiver", "marian"]),
        (
            "a key twice",
            r#"{"model_type": "marian", "d_model": 8, "d_model": 16}"#,
            &["d_model", "twice"],
        ),
        ("a width of words", r#"{"model_type": "bart", "d_model": "wide"}"#, &["d_model", "wide"]),
        ("a width of zero", r#"{"model_type": "bart", "d_model": 0}"#, &["d_model", "0"]),
        ("odd heads", r#"{"model_type": "bart", "d_model": 24}"#, &["24", "16"]),
        ("a huge vocabulary", r#"{"model_type": "bart", "vocab_size": 1e15}"#, &["vocab"]),
        (
            "a decoder only",
            r#"{"model_type": "bart", "is_encoder_decoder": false}"#,
            &["encoder-decoder"],
        ),
        (
            "an activation",
            r#"{"model_type": "bart", "activation_function": "tan"}"#,
            &["tan", "gelu"],
        ),
        (
            "a foreign pad",
            r#"{"model_type": "bart", "vocab_size": 50, "pad_token_id": 51, "bos_token_id": 1, "eos_token_id": 2}"#,
            &["pad_token_id", "51"],
        ),
    ] {
        seen.check(mistake, read(text), parts);
    }
}
