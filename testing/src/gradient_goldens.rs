//! The goldens of gradients: small models, sentences, and the gradients that PyTorch computes in f64.

use serde_json::Value;
use simdformer::Features;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Config;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A source and its target.
#[derive(Clone, Debug, Default)]
pub struct OwnedExample {
    pub source: Vec<u32>,
    /// Features in place of ids, and the number of values in a frame.
    pub features: Option<(Vec<f32>, usize)>,
    pub target: Vec<u32>,
    pub id: u32,
}

impl OwnedExample {
    pub fn features(&self) -> Option<Features<'_>> {
        self.features.as_ref().map(|(values, bins)| Features::new(values, *bins))
    }
}

/// A folder of `tests/golden/gradients`.
pub struct Golden {
    pub name: String,
    pub folder: PathBuf,
    pub sentences: Vec<OwnedExample>,
    pub expected: Value,
    /// By name.
    pub gradients: BTreeMap<String, Vec<f64>>,
}

pub fn goldens() -> Vec<Golden> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gradients");
    let folders = fs::read_dir(&root).expect("the goldens");
    let mut goldens: Vec<_> =
        folders.map(|folder| Golden::from_folder(&folder.expect("a folder").path())).collect();
    goldens.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(goldens.len() >= 9, "{} goldens", goldens.len());
    goldens
}

impl Golden {
    fn from_folder(folder: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(folder.join(file)).expect("a text");
        let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let ids = |line: &Value, key: &str| {
            let ids = line[key].as_array().into_iter().flatten();
            ids.map(|id| id.as_u64().expect("an id") as u32).collect()
        };
        let features = fs::read(folder.join("features.safetensors")).ok();
        let features = features
            .as_ref()
            .map(|file| safetensors::SafeTensors::deserialize(file).expect("safetensors"));
        let of_line = |index: usize| {
            let tensors = features.as_ref()?;
            let tensor = tensors.tensor(&format!("features.{index}")).expect("features");
            let numbers = tensor.data().as_chunks::<4>().0.iter();
            Some((numbers.map(|&x| f32::from_le_bytes(x)).collect(), tensor.shape()[1]))
        };
        let lines = text("batch.jsonl");
        let sentences = lines.lines().enumerate().map(|(i, line)| {
            let line = json(line);
            OwnedExample {
                source: ids(&line, "source_ids"),
                features: of_line(i),
                target: ids(&line, "target_ids"),
                id: i as u32,
            }
        });
        let sentences = sentences.collect();
        let file = fs::read(folder.join("gradients.safetensors")).expect("gradients");
        let tensors = safetensors::SafeTensors::deserialize(&file).expect("safetensors");
        let gradients = tensors.iter().map(|(name, tensor)| {
            assert_eq!(tensor.dtype(), safetensors::Dtype::F64, "{name}");
            let numbers = tensor.data().chunks_exact(8);
            let numbers = numbers.map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes")));
            (name.to_string(), numbers.collect())
        });
        Self {
            name: folder.file_name().expect("a name").to_string_lossy().into_owned(),
            folder: folder.to_owned(),
            sentences,
            expected: json(&text("expected.json")),
            gradients: gradients.collect(),
        }
    }

    pub fn checkpoint(&self) -> Checkpoint<'static> {
        Checkpoint::open(&self.folder).expect("a checkpoint")
    }

    pub fn smoothing(&self) -> f32 {
        self.expected["label_smoothing"].as_f64().expect("a number") as f32
    }

    /// The name of the tensor in the file.
    pub fn name_of(&self, role: TensorId, config: &Config) -> String {
        let names = role.names(config);
        let known = names.iter().find(|name| self.gradients.contains_key(*name));
        known.unwrap_or_else(|| panic!("{}: {role} is none of {names:?}", self.name)).clone()
    }
}
