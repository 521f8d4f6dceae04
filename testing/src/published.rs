//! Small models in temporary directories, with the files of published ones.

use crate::directories::{full, golden};
use crate::riff::wav;
use crate::sounds::audio;
use crate::temporary_folder::TemporaryFolder;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A copy of the small trained model.
pub fn french() -> TemporaryFolder {
    let place = TemporaryFolder::new("fr-en");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en");
    let weights = ["config.json", "generation_config.json", "model.safetensors"];
    let tokenizer = ["source.spm", "target.spm", "vocab.json", "tokenizer_config.json"];
    for name in weights.into_iter().chain(tokenizer) {
        fs::copy(model.join(name), place.0.join(name)).unwrap();
    }
    place
}

/// A configuration, and a model with random weights.
fn random(place: &TemporaryFolder, config: &str) {
    place.write("config.json", config);
    let config = simdformer::config::Config::from_hugging_face(config).unwrap();
    let mut state = 1u64;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for role in simdformer::checkpoint::TensorId::all(&config) {
        // No file has tensors that a formula computes.
        let names = role.names(&config);
        let (Some(shape), Some(name)) = (role.shape(&config), names.first()) else { continue };
        let floats = shape.iter().product::<usize>();
        let mut bytes = Vec::new();
        for _ in 0..floats {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = ((state >> 40) as f32 / (1u32 << 24) as f32 - 0.5) * 0.6;
            bytes.extend(number.to_le_bytes());
        }
        let name = name.to_string();
        if tensors.iter().all(|(known, ..)| *known != name) {
            tensors.push((name, shape, bytes));
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let f32 = safetensors::Dtype::F32;
        (name, safetensors::tensor::TensorView::new(f32, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    place.write("model.safetensors", bytes);
}

/// A directory of NLLB: its tokenizer, and a small model with random weights.
pub fn nllb() -> TemporaryFolder {
    let place = full("nllb");
    let config = r#"{"model_type": "m2m_100", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16, "vocab_size": 1904, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "decoder_start_token_id": 2, "activation_function": "relu", "max_position_embeddings": 64,
        "scale_embedding": true, "max_length": 12}"#;
    random(&place, config);
    place
}

/// `golden/encoders/NAME` as it would be published.
pub fn encoder(name: &str) -> TemporaryFolder {
    let files = golden(&format!("encoders/{name}"));
    let tokenizer = fs::read_to_string(files.join("from")).unwrap();
    let place = full(tokenizer.trim());
    copy(&files, &place.0);
    place
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else if name != "from" && name != "expected.jsonl" {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

pub fn expected(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(golden(&format!("encoders/{name}/expected.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub const START: u32 = 1296;

const CONFIG: &str = r#"{"model_type": "whisper", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
    "vocab_size": 1458, "num_mel_bins": 80, "max_source_positions": 50, "max_target_positions": 24,
    "pad_token_id": 1295, "bos_token_id": 1295, "eos_token_id": 1295, "decoder_start_token_id": 1296}"#;
pub const ONE_LANGUAGE: &str = r#"{"decoder_start_token_id": 1296, "eos_token_id": 1295, "max_length": 14,
    "is_multilingual": false, "no_timestamps_token_id": 1306, "max_initial_timestamp_index": 50}"#;
pub const SEVERAL: &str = r#"{"decoder_start_token_id": 1296, "eos_token_id": 1295, "max_length": 14,
    "is_multilingual": true, "no_timestamps_token_id": 1306, "max_initial_timestamp_index": 50,
    "lang_to_id": {"<|en|>": 1297, "<|fr|>": 1298, "<|de|>": 1299, "<|yue|>": 1300},
    "task_to_id": {"translate": 1301, "transcribe": 1302}}"#;
const FEATURES: &str = r#"{"chunk_length": 1, "feature_size": 80}"#;

pub fn whisper(generation: &str) -> TemporaryFolder {
    let place = full("whisper");
    random(&place, CONFIG);
    place.write("generation_config.json", generation);
    place.write("preprocessor_config.json", FEATURES);
    place.write("long.wav", wav(&audio("chirp", 40_000)));
    place.write("short.wav", wav(&audio("noise", 9_000)));
    place
}
