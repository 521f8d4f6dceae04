//! Checkpoints: those of other libraries are read right, and every broken one is refused with its own words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use simdformer::checkpoint::{
    Affine, Attention, Checkpoint, CheckpointError, Dtype, FeedForward, LayerPart, Projection, Role,
};
use simdformer::config::{Config, Side};

const MARIAN: &str = r#"{"model_type": "marian", "vocab_size": 5, "d_model": 4, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 3,
    "decoder_ffn_dim": 3, "activation_function": "relu", "max_position_embeddings": 8, "pad_token_id": 4,
    "decoder_start_token_id": 4, "eos_token_id": 0}"#;

/// Tensors to be written: type, shape, bytes.
type Tensors = BTreeMap<String, (&'static str, Vec<usize>, Vec<u8>)>;

fn floats(shape: &[usize], start: usize) -> (&'static str, Vec<usize>, Vec<u8>) {
    let n: usize = shape.iter().product();
    (
        "F32",
        shape.to_vec(),
        (start..start + n).flat_map(|i| (i as f32 * 0.5).to_le_bytes()).collect(),
    )
}

/// A whole small Marian checkpoint, every tensor different.
fn marian_tensors() -> Tensors {
    let mut shapes = vec![("model.shared.weight".to_owned(), vec![5, 4])];
    for side in ["encoder", "decoder"] {
        let layer = format!("model.{side}.layers.0");
        let blocks: &[&str] =
            if side == "encoder" { &["self_attn"] } else { &["self_attn", "encoder_attn"] };
        for block in blocks {
            for map in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                shapes.push((format!("{layer}.{block}.{map}.weight"), vec![4, 4]));
                shapes.push((format!("{layer}.{block}.{map}.bias"), vec![4]));
            }
            shapes.push((format!("{layer}.{block}_layer_norm.weight"), vec![4]));
            shapes.push((format!("{layer}.{block}_layer_norm.bias"), vec![4]));
        }
        shapes.push((format!("{layer}.fc1.weight"), vec![3, 4]));
        shapes.push((format!("{layer}.fc1.bias"), vec![3]));
        shapes.push((format!("{layer}.fc2.weight"), vec![4, 3]));
        shapes.push((format!("{layer}.fc2.bias"), vec![4]));
        shapes.push((format!("{layer}.final_layer_norm.weight"), vec![4]));
        shapes.push((format!("{layer}.final_layer_norm.bias"), vec![4]));
    }
    let mut start = 0;
    let numbered = shapes.into_iter().map(|(name, shape)| {
        start += 100;
        (name, floats(&shape, start))
    });
    numbered.collect()
}

fn write(tensors: &Tensors) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, (dtype, shape, bytes)) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        let info = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert(name.clone(), info);
        data.extend_from_slice(bytes);
    }
    file(&serde_json::Value::Object(header).to_string(), &data)
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn marian_config() -> Config {
    Config::from_hugging_face(MARIAN).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::from_bytes(marian_config(), bytes)
}

/// A directory of its own for one test, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        fs::write(self.0.join(name), bytes).unwrap();
        self
    }

    fn open(&self) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::open(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const QUERY: Role = Role::Layer(
    Side::Decoder,
    0,
    LayerPart::Attention(Attention::Cross, Projection::Query, Affine::Weight),
);

#[test]
fn a_marian_checkpoint_is_read_by_role() {
    let tensors = marian_tensors();
    let checkpoint = open(write(&tensors)).unwrap();
    assert!(checkpoint.config().ties.source_target && checkpoint.config().ties.target_output);
    assert!(checkpoint.optional(Role::OutputBias).unwrap().is_none());
    assert_eq!(checkpoint.unused(), [] as [&str; 0]);
    // Every tensor but the shared one is found exactly once, and holds the numbers that were written.
    let mut found: Vec<&str> = Vec::new();
    for role in Role::all(checkpoint.config()).filter(|&role| role != Role::OutputBias) {
        let view = checkpoint.tensor(role).unwrap();
        assert_eq!(Some(view.shape().to_vec()), role.shape(checkpoint.config()));
        let bytes: Vec<u8> = view.to_vec().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(bytes, tensors[view.name()].2, "{role:?}");
        found.push(view.name());
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), tensors.len());
    let part = LayerPart::FeedForward(FeedForward::Outer, Affine::Weight);
    let outer = checkpoint.tensor(Role::Layer(Side::Encoder, 0, part)).unwrap();
    assert_eq!(
        (outer.name(), outer.shape(), outer.row_len()),
        ("model.encoder.layers.0.fc2.weight", &[4, 3][..], 3)
    );
}

#[test]
fn rows_are_read_in_blocks() {
    let checkpoint = open(write(&marian_tensors())).unwrap();
    let view = checkpoint.tensor(QUERY).unwrap();
    let whole = view.to_vec().unwrap();
    let mut joined = Vec::new();
    for rows in [0..1, 1..1, 1..3, 3..4] {
        joined.extend(view.rows(rows).unwrap().to_vec().unwrap());
    }
    assert_eq!(joined, whole);
    assert_eq!(view.rows(1..4).unwrap().rows(1..2).unwrap().to_vec().unwrap(), whole[8..12]);
    #[expect(clippy::reversed_empty_ranges)]
    for rows in [0..5, 5..5, 3..2] {
        assert!(matches!(view.rows(rows), Err(CheckpointError::RowsOutside { available: 4, .. })));
    }
    let short = view.read_into(&mut [0.0; 15]).unwrap_err().to_string();
    assert_eq!(
        short,
        "model.decoder.layers.0.encoder_attn.q_proj.weight: the destination must have 16 elements, found 15"
    );
}

#[test]
fn halves_are_widened() {
    let values = [1.0f32, -2.5, 0.0, 65504.0];
    let f16: Vec<u8> =
        [0x3c00u16, 0xc100, 0, 0x7bff].iter().flat_map(|x| x.to_le_bytes()).collect();
    let bf16: Vec<u8> =
        values.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect();
    let mut tensors = marian_tensors();
    tensors.insert("model.encoder.layers.0.fc2.bias".into(), ("F16", vec![4], f16));
    tensors.insert("model.decoder.layers.0.fc2.bias".into(), ("BF16", vec![4], bf16));
    let checkpoint = open(write(&tensors)).unwrap();
    let bias = |side| {
        let role = Role::Layer(side, 0, LayerPart::FeedForward(FeedForward::Outer, Affine::Bias));
        checkpoint.tensor(role).unwrap()
    };
    assert_eq!(
        (bias(Side::Encoder).dtype(), bias(Side::Decoder).dtype()),
        (Dtype::F16, Dtype::Bf16)
    );
    assert_eq!(bias(Side::Encoder).to_vec().unwrap(), values);
    assert_eq!(bias(Side::Decoder).to_vec().unwrap(), [1.0, -2.5, 0.0, 65280.0]);
    assert_eq!(bias(Side::Encoder).rows(2..4).unwrap().to_vec().unwrap(), [0.0, 65504.0]);
}

#[test]
fn a_long_half_tensor_is_widened_in_every_block() {
    let config = MARIAN.replace("\"vocab_size\": 5", "\"vocab_size\": 1537");
    let mut tensors = marian_tensors();
    let bits = |i: usize| (i * 7 % 0x7c00) as u16;
    let bytes = (0..1537 * 4).flat_map(|i| bits(i).to_le_bytes()).collect();
    tensors.insert("model.shared.weight".into(), ("F16", vec![1537, 4], bytes));
    let checkpoint =
        Checkpoint::from_bytes(Config::from_hugging_face(&config).unwrap(), write(&tensors))
            .unwrap();
    let view = checkpoint.tensor(Role::Output).unwrap();
    let whole = view.to_vec().unwrap();
    for (i, &x) in whole.iter().enumerate() {
        let (exponent, digits) = (i32::from(bits(i) >> 10), f32::from(bits(i) & 1023) / 1024.0);
        let expected = if exponent == 0 {
            digits * 2f32.powi(-14)
        } else {
            (1.0 + digits) * 2f32.powi(exponent - 15)
        };
        assert_eq!(x, expected, "element {i}");
    }
    assert_eq!(view.rows(700..1500).unwrap().to_vec().unwrap(), whole[2800..6000]);
}

#[test]
fn weights_that_are_not_finite_are_refused_when_read() {
    for (name, value) in [("model.shared.weight", f32::NAN), ("model.shared.weight", f32::INFINITY)]
    {
        let mut tensors = marian_tensors();
        tensors.get_mut(name).unwrap().2[12..16].copy_from_slice(&value.to_le_bytes());
        let error =
            open(write(&tensors)).unwrap().tensor(Role::Output).unwrap().to_vec().unwrap_err();
        assert!(matches!(error, CheckpointError::NotFinite { index: 3, .. }), "{error}");
        assert!(error.to_string().starts_with("model.shared.weight: element 3 is "), "{error}");
    }
    // Minus infinity bans a token; NaN does nothing good.
    for (value, good) in [(f32::NEG_INFINITY, true), (f32::NAN, false), (f32::INFINITY, false)] {
        let mut tensors = marian_tensors();
        let mut bias = floats(&[1, 5], 0);
        bias.2[16..].copy_from_slice(&value.to_le_bytes());
        tensors.insert("final_logits_bias".into(), bias);
        let checkpoint = open(write(&tensors)).unwrap();
        let view = checkpoint.tensor(Role::OutputBias).unwrap();
        assert_eq!((view.shape(), view.to_vec().is_ok()), (&[5][..], good), "{value}");
    }
}

#[test]
fn ties_are_what_the_tensors_show() {
    // A copy of the embedding under another name is the embedding.
    let mut tensors = marian_tensors();
    tensors.insert("lm_head.weight".into(), tensors["model.shared.weight"].clone());
    assert!(open(write(&tensors)).unwrap().config().ties.target_output);
    // Another matrix is not.
    tensors.insert("lm_head.weight".into(), floats(&[5, 4], 7));
    let checkpoint = open(write(&tensors)).unwrap();
    assert!(checkpoint.config().ties.source_target && !checkpoint.config().ties.target_output);
    assert_eq!(checkpoint.tensor(Role::Output).unwrap().name(), "lm_head.weight");
    // Nor does a copy need the shared name: one of the others will do.
    let shared = tensors.remove("model.shared.weight").unwrap();
    tensors.remove("lm_head.weight");
    tensors.insert("model.decoder.embed_tokens.weight".into(), shared);
    let checkpoint = open(write(&tensors)).unwrap();
    assert!(checkpoint.config().ties.source_target && checkpoint.config().ties.target_output);
}

#[test]
fn tensors_nobody_needs_are_listed_or_known() {
    let mut tensors = marian_tensors();
    tensors.insert("model.encoder.embed_positions.weight".into(), floats(&[8, 4], 0));
    tensors.insert("encoder.version".into(), ("I64", vec![1], vec![0; 8]));
    tensors.insert("classifier.weight".into(), floats(&[1, 4], 0));
    assert_eq!(open(write(&tensors)).unwrap().unused(), ["classifier.weight"]);
}

/// The other Hugging Face families: the names that a checkpoint must have are those that transformers saves.
#[test]
fn families_differ_in_the_parts_around_the_layers() {
    let small = |model: &str| MARIAN.replace("\"marian\"", &format!("\"{model}\""));
    let norms = |part: &'static str| {
        ["encoder", "decoder"]
            .into_iter()
            .flat_map(move |side| ["weight", "bias"].map(|of| format!("model.{side}.{part}.{of}")))
    };
    for (model, embedding_norm, final_norm, learned, bias) in [
        ("bart", true, false, true, true),
        ("mbart", true, true, true, true),
        ("m2m_100", false, true, false, false),
    ] {
        let mut tensors = marian_tensors();
        if bias {
            tensors.insert("final_logits_bias".into(), floats(&[1, 5], 0));
        }
        if embedding_norm {
            tensors.extend(norms("layernorm_embedding").map(|name| (name, floats(&[4], 1))));
        }
        if final_norm {
            tensors.extend(norms("layer_norm").map(|name| (name, floats(&[4], 2))));
        }
        if learned {
            for side in ["encoder", "decoder"] {
                tensors.insert(format!("model.{side}.embed_positions.weight"), floats(&[10, 4], 3));
            }
        }
        let config = Config::from_hugging_face(&small(model)).unwrap();
        let checkpoint = Checkpoint::from_bytes(config.clone(), write(&tensors)).unwrap();
        assert_eq!(checkpoint.unused(), [] as [&str; 0], "{model}");
        let used: std::collections::BTreeSet<_> = Role::all(checkpoint.config())
            .filter_map(|role| checkpoint.optional(role).unwrap())
            .map(|view| view.name().to_owned())
            .collect();
        assert!(used.iter().eq(tensors.keys()), "{model}: a tensor is found by no role");
        // And each of them is needed, the bias of the logits excepted.
        for name in tensors.keys().filter(|name| *name != "final_logits_bias") {
            let mut fewer = tensors.clone();
            fewer.remove(name);
            let error = Checkpoint::from_bytes(config.clone(), write(&fewer)).unwrap_err();
            let CheckpointError::MissingTensor { tried, .. } = &error else {
                panic!("{model} without {name}: {error}");
            };
            assert!(tried.contains(name), "{model} without {name}: {error}");
        }
    }
}

#[test]
fn goldens_of_other_libraries_open() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, bias, tied, shared) in [
        ("marian_odd", true, true, true),
        ("marian_untied", false, true, false),
        ("nn_transformer_post", true, false, false),
        ("nn_transformer_pre", true, false, false),
    ] {
        let folder = golden.join(name);
        let checkpoint =
            Checkpoint::open(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = checkpoint.config();
        assert_eq!(
            (config.ties.target_output, config.ties.source_target),
            (tied, shared),
            "{name}"
        );
        assert_eq!(checkpoint.unused(), [] as [&str; 0], "{name}");
        // The safetensors crate itself as the oracle of names, shapes and numbers.
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let oracle = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut elements = 0;
        for role in Role::all(config) {
            let Some(view) = checkpoint.optional(role).unwrap() else {
                assert!(role == Role::OutputBias && !bias, "{name}: no {role:?}");
                continue;
            };
            let tensor = oracle.tensor(view.name()).unwrap();
            let all: Vec<f32> =
                tensor.data().as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
            let found = view.to_vec().unwrap();
            let third = match role {
                Role::Layer(_, _, LayerPart::Attention(_, projection, _))
                    if found.len() < all.len() =>
                {
                    projection as usize
                }
                _ => 0,
            };
            assert_eq!(found, all[third * found.len()..][..found.len()], "{name}: {role:?}");
            elements += found.len();
        }
        // Nothing was left out and nothing read twice, tied matrices excepted.
        let stored: usize = oracle.tensors().iter().map(|(_, t)| t.data().len() / 4).sum();
        let embedding = |side| config.vocab(side) * config.d_model;
        let repeated = match (shared, tied) {
            (true, _) => 2 * embedding(Side::Decoder),
            (false, true) => embedding(Side::Decoder),
            (false, false) => 0,
        };
        assert_eq!(elements, stored + repeated, "{name}");
    }
    let odd = Checkpoint::open(golden.join("marian_odd")).unwrap();
    assert_eq!(
        (odd.config().tokens.banned.as_slice(), odd.config().tokens.eos.as_slice()),
        (&[996][..], &[0][..])
    );
    assert_eq!(
        (odd.config().generation.max_length, odd.config().tokens.forced_eos.len()),
        (Some(512), 0)
    );
}

#[test]
fn shards_are_one_checkpoint() {
    let tensors = marian_tensors();
    let (mut first, mut second, mut map) = (Tensors::new(), Tensors::new(), serde_json::Map::new());
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        let (shard, file) =
            if i % 3 == 0 { (&mut first, "a.safetensors") } else { (&mut second, "b.safetensors") };
        shard.insert(name.clone(), tensor.clone());
        map.insert(name.clone(), file.into());
    }
    let index = |map: &serde_json::Map<String, serde_json::Value>| {
        serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string()
    };
    let folder = Folder::new("shards");
    folder
        .put("config.json", MARIAN)
        .put("a.safetensors", write(&first))
        .put("b.safetensors", write(&second));
    folder.put("model.safetensors.index.json", index(&map));
    let (sharded, whole) = (folder.open().unwrap(), open(write(&tensors)).unwrap());
    assert!(sharded.names().eq(whole.names()));
    for name in whole.names() {
        assert_eq!(
            sharded.named(name).unwrap().to_vec().unwrap(),
            whole.named(name).unwrap().to_vec().unwrap()
        );
    }

    let refused = |map: &serde_json::Map<String, serde_json::Value>, words: &str| {
        folder.put("model.safetensors.index.json", index(map));
        let error = folder.open().unwrap_err().to_string();
        assert!(error.contains(words), "expected {words:?} in: {error}");
    };
    for name in ["../a.safetensors", "/etc/passwd", "x/../a.safetensors", "", ".", ".."] {
        let mut outside = map.clone();
        outside.insert("x".into(), name.into());
        refused(&outside, "is not a plain file name");
    }
    let mut other = map.clone();
    other.insert("x".into(), "a.safetensors".into());
    refused(&other, "a.safetensors: the index places x here, but it is not");
    other.insert("x".into(), "c.safetensors".into());
    refused(&other, "c.safetensors: no such file; the index of shards names it");
    other.insert("x".into(), 7.into());
    refused(&other, "not an index of shards: invalid type: integer `7`, expected a string");
    folder.put("model.safetensors.index.json", "{}");
    assert!(folder.open().unwrap_err().to_string().contains("missing field `weight_map`"));
}

#[test]
fn every_broken_directory_has_its_own_error() {
    let good = write(&marian_tensors());
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let missing = Checkpoint::open(base.join("no/such/place")).unwrap_err();
    assert!(matches!(missing, CheckpointError::DirectoryMissing { .. }), "{missing}");
    let plain = Folder::new("plain");
    plain.put("file", "x");
    let error = Checkpoint::open(plain.0.join("file")).unwrap_err();
    assert!(matches!(error, CheckpointError::NotADirectory { .. }), "{error}");

    type Prepare<'a> = &'a dyn Fn(&Folder);
    let cases: [(&str, Prepare<'_>, &str); 11] = [
        (
            "empty",
            &|_| (),
            "config.json: no such file; a checkpoint directory has its architecture there",
        ),
        (
            "weightless",
            &|f| {
                f.put("config.json", MARIAN);
            },
            "model.safetensors: no such file; nor is there a model.safetensors.index.json",
        ),
        (
            "pickled",
            &|f| {
                f.put("config.json", MARIAN).put("pytorch_model.bin", "x");
            },
            "model.safetensors: no such file; pytorch_model.bin holds Python objects",
        ),
        (
            "latin",
            &|f| {
                f.put("config.json", b"{\"a\": \"\xe9\"}");
            },
            "config.json: not UTF-8 from byte 7 on",
        ),
        (
            "huge",
            &|f| {
                f.put("config.json", vec![b' '; (16 << 20) + 1]);
            },
            "config.json: larger than 16777216 bytes",
        ),
        (
            "bad-config",
            &|f| {
                f.put("config.json", "{");
            },
            "config.json: not JSON at line 1, column 1",
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
            "generation_config.json: eos_token_id must be below the target vocabulary of 5, found 5",
        ),
        (
            "config-folder",
            &|f| fs::create_dir(f.0.join("config.json")).unwrap(),
            "config.json: not a regular file",
        ),
        (
            "weights-folder",
            &|f| {
                f.put("config.json", MARIAN);
                fs::create_dir(f.0.join("model.safetensors")).unwrap();
            },
            "model.safetensors: not a regular file",
        ),
        (
            "cut",
            &|f| {
                f.put("config.json", MARIAN).put("model.safetensors", &good[..good.len() - 1]);
            },
            "follow the header: truncated?",
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
    let error = checkpoint.tensor(Role::Output).unwrap().to_vec().unwrap_err();
    assert!(matches!(error, CheckpointError::Unreadable { .. }), "{error}");
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
        ("empty", vec![], "begins with 8 bytes of length, found 0 bytes"),
        ("cut in the length", good[..7].to_vec(), "begins with 8 bytes of length, found 7 bytes"),
        ("cut after the length", good[..8].to_vec(), "the file 0 after the length"),
        ("cut in the header", good[..8 + header / 2].to_vec(), "truncated: the header has"),
        (
            "cut after the header",
            good[..8 + header].to_vec(),
            "but only 0 follow the header: truncated?",
        ),
        ("cut in a tensor", good[..good.len() - 6].to_vec(), "model.shared.weight ends at byte"),
        ("one byte more", [&good[..], &[0]].concat(), "belong to no tensor"),
        (
            "header length of 2^64 - 1",
            length(u64::MAX),
            "the header claims 18446744073709551615 bytes, the limit is 100000000",
        ),
        ("header length over the limit", length(100_000_001), "the header claims 100000001 bytes"),
        (
            "header length of the limit",
            length(100_000_000),
            "truncated: the header has 100000000 bytes",
        ),
        (
            "header length too short",
            length(header as u64 - 1),
            "wrong header: EOF while parsing an object",
        ),
        ("header length too long", length(header as u64 + 1), "wrong header: trailing characters"),
        ("header length zero", length(0), "wrong header: EOF while parsing a value"),
        (
            "header is not UTF-8",
            [&4u64.to_le_bytes()[..], b"{\"\xff\""].concat(),
            "the header is not UTF-8 from byte 2 on",
        ),
        (
            "header is a list",
            file("[]", &[]),
            "wrong header: invalid type: sequence, expected an object of tensors",
        ),
        (
            "header nests for ever",
            file(&format!("{{\"__metadata__\": {}", "[".repeat(100_000)), &[]),
            "wrong header: EOF while parsing a list",
        ),
        (
            "tensor without shape",
            one(r#"{"dtype": "F32", "data_offsets": [0, 4]}"#, 4),
            "x: missing field `shape`",
        ),
        ("unknown type", one(&info("F99", "[1]", "0", "4"), 4), "x: unknown variant `F99`"),
        ("negative size", one(&info("F32", "[-1]", "0", "4"), 4), "x: invalid value: integer `-1`"),
        ("size NaN", one(&info("F32", "[NaN]", "0", "4"), 4), "wrong header: x: expected value"),
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
            "x stands twice in the header",
        ),
        (
            "the same key twice",
            one(r#"{"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}"#, 4),
            "x: duplicate field `dtype`",
        ),
        (
            "offsets reversed",
            one(&info("F32", "[1]", "4", "0"), 4),
            "x begins at byte 4 and ends at 0, before it",
        ),
        (
            "end beyond the file",
            one(&info("F32", "[2]", "0", "8"), 4),
            "x ends at byte 8, but only 4 follow the header",
        ),
        (
            "end at 2^64 - 1",
            one(&info("U8", &format!("[{max}]"), "0", &max), 4),
            "x ends at byte 18446744073709551615, but only 4",
        ),
        (
            "shape overflows",
            one(&info("F32", &format!("[{max}, {max}]"), "0", "4"), 4),
            "overflows",
        ),
        (
            "bits overflow",
            one(&info("F32", &format!("[{}]", usize::MAX / 8), "0", "4"), 4),
            "the size of x, shape [2305843009213693951], overflows",
        ),
        (
            "zero hides an overflow",
            one(&info("F32", &format!("[0, {max}, {max}]"), "0", "0"), 0),
            "the size of x, shape [0, ",
        ),
        (
            "too few bytes",
            one(&info("F32", "[2]", "0", "4"), 4),
            "x needs 8 bytes for its shape and type, found 4",
        ),
        (
            "too many bytes",
            one(&info("F16", "[1]", "0", "4"), 4),
            "x needs 2 bytes for its shape and type, found 4",
        ),
        ("overlap", two((0, 4), (3, 7), 7), "x and y share bytes"),
        ("one inside the other", two((0, 8), (2, 4), 8), "x and y share bytes"),
        ("the same bytes", two((0, 4), (0, 4), 4), "x and y share bytes"),
        ("gap", two((0, 4), (5, 7), 7), "bytes 4 to 5 after the header belong to no tensor"),
        (
            "gap at the start",
            one(&info("U8", "[2]", "1", "3"), 3),
            "bytes 0 to 1 after the header belong to no tensor",
        ),
        (
            "no tensor at all",
            file("{}", &[]),
            "no tensor for SourceEmbedding: expected model.encoder.embed_tokens.weight, model.shared.weight",
        ),
        (
            "only metadata",
            file(r#"{"__metadata__": {"format": "pt"}}"#, &[]),
            "no tensor for SourceEmbedding",
        ),
        ("no embedding", without(shared), "no tensor for SourceEmbedding"),
        (
            "no norm",
            without("model.encoder.layers.0.final_layer_norm.bias"),
            "expected model.encoder.layers.0.final_layer_norm.bias; the nearest names are model.decoder.layers.0.final_layer_norm.bias",
        ),
        (
            "no cross attention",
            without("model.decoder.layers.0.encoder_attn.k_proj.weight"),
            "expected model.decoder.layers.0.encoder_attn.k_proj.weight; the nearest names are model.decoder.layers.0.encoder_attn.q_proj.weight",
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
            "model.shared.weight: expected F32, F16 or BF16, found F64",
        ),
        (
            "a layer more",
            with("model.decoder.layers.1.fc1.bias", floats(&[3], 0)),
            "the configuration has 1 decoder layers, but there is model.decoder.layers.1.fc1.bias",
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
    assert!(cases.len() >= 30);
}

#[test]
fn asking_for_what_a_model_has_not_is_an_error() {
    let checkpoint = open(write(&marian_tensors())).unwrap();
    for role in [
        Role::Positions(Side::Encoder),
        Role::FinalNorm(Side::Decoder, Affine::Bias),
        Role::EmbeddingNorm(Side::Encoder, Affine::Weight),
        Role::Layer(Side::Encoder, 1, LayerPart::FeedForwardNorm(Affine::Bias)),
        Role::Layer(Side::Encoder, 0, LayerPart::AttentionNorm(Attention::Cross, Affine::Bias)),
    ] {
        let error = checkpoint.tensor(role).unwrap_err();
        assert!(matches!(error, CheckpointError::NoSuchRole { .. }), "{error}");
    }
    let error = checkpoint.named("model.shared.weigth").unwrap_err().to_string();
    assert_eq!(error, "no tensor model.shared.weigth; the nearest names are model.shared.weight");
    assert!(matches!(
        checkpoint.tensor(Role::OutputBias),
        Err(CheckpointError::MissingTensor { .. })
    ));
}

/// Opens, and reads whatever could be opened.
fn exercise(bytes: Vec<u8>) {
    if let Ok(checkpoint) = open(bytes) {
        for role in Role::all(checkpoint.config()) {
            if let Ok(Some(view)) = checkpoint.optional(role) {
                let _ = view.to_vec();
            }
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        exercise(bytes);
    }

    #[test]
    fn random_headers_never_panic(header in "\\{(\"[a-z]{0,2}\": ?[\\[\\]{}\",:0-9a-zF-]{0,40},?){0,3}\\}", data in 0usize..32) {
        exercise(file(&header, &vec![0; data]));
    }

    /// A good file with some bytes of its length, header or tensors changed.
    #[test]
    fn changed_bytes_never_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = write(&marian_tensors());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise(bytes);
    }

    #[test]
    fn any_truncation_is_refused(at in any::<prop::sample::Index>()) {
        let bytes = write(&marian_tensors());
        prop_assert!(open(bytes[..at.index(bytes.len())].to_vec()).is_err());
    }

    #[test]
    fn random_configurations_never_panic(at in any::<prop::sample::Index>(), n in any::<i64>(), text in "\\PC{0,20}") {
        // One value of a good configuration becomes a random number or string.
        let mut object: serde_json::Value = serde_json::from_str(MARIAN).unwrap();
        let keys: Vec<String> = object.as_object().unwrap().keys().cloned().collect();
        let key = &keys[at.index(keys.len())];
        object[key] = n.into();
        let _ = Config::from_hugging_face(&object.to_string());
        object[key] = text.clone().into();
        let _ = Config::from_hugging_face(&object.to_string());
        let _ = Config::from_hugging_face(&text);
    }
}
