//! A whole Marian checkpoint of two small layers, in memory and in directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use simdformer::Error;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Config;

pub(crate) const MARIAN: &str = r#"{"model_type": "marian", "vocab_size": 5, "d_model": 4, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 3,
    "decoder_ffn_dim": 3, "activation_function": "relu", "max_position_embeddings": 8, "pad_token_id": 4,
    "decoder_start_token_id": 4, "eos_token_id": 0}"#;

/// Tensors to write: dtype, shape, bytes.
pub(crate) type Tensors = BTreeMap<String, (&'static str, Vec<usize>, Vec<u8>)>;

pub(crate) fn floats(shape: &[usize], start: usize) -> (&'static str, Vec<usize>, Vec<u8>) {
    let n: usize = shape.iter().product();
    (
        "F32",
        shape.to_vec(),
        (start..start + n).flat_map(|i| (i as f32 * 0.5).to_le_bytes()).collect(),
    )
}

/// The tensors of a small Marian checkpoint, all of them different.
pub(crate) fn marian_tensors() -> Tensors {
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

pub(crate) fn write(tensors: &Tensors) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, (dtype, shape, bytes)) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        let info = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert(name.clone(), info);
        data.extend_from_slice(bytes);
    }
    file(&serde_json::Value::Object(header).to_string(), &data)
}

pub(crate) fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

pub(crate) fn marian_config() -> Config {
    Config::from_hugging_face(MARIAN).unwrap()
}

pub(crate) fn open(bytes: Vec<u8>) -> Result<Checkpoint<'static>, Error> {
    Checkpoint::from_bytes(marian_config(), bytes)
}

/// A directory for one test, which is deleted at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        fs::write(self.0.join(name), bytes).unwrap();
        self
    }

    pub(crate) fn open(&self) -> Result<Checkpoint<'static>, Error> {
        Checkpoint::open(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
