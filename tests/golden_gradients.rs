//! The goldens of training agree with inference: the same files, the same decoder inputs, the same loss.
//!
//! The trainer is compared with the values that `tests/golden/gradients.py` wrote. This test checks first,
//! by inference alone, that a golden shifts its targets and names its tensors correctly.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::{Features, Limits, Model, Session, Source, SourceId};

/// The largest difference allowed in the loss, which is about 4. PyTorch's own float32 differs by about as
/// much.
const TOLERANCE: f64 = 5e-6;

const FOLDERS: [&str; 12] = [
    "bart",
    "m2m100",
    "marian_relu_untied",
    "marian_silu",
    "mbart",
    "nn_transformer_post",
    "nn_transformer_pre",
    "pegasus",
    "t5",
    "t5_v1_1",
    "umt5",
    "whisper",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gradients")
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&read(folder, name)).expect(name)
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn names(value: &Value) -> BTreeSet<String> {
    value.as_array().expect("names").iter().map(|name| name.as_str().unwrap().to_string()).collect()
}

/// The source of a line: ids, or frames and the number of values in a frame.
enum Read {
    Ids(Vec<u32>),
    Frames(Vec<f32>, usize),
}

impl Read {
    fn source(&self) -> Source<'_> {
        match self {
            Self::Ids(ids) => Source::new(ids),
            Self::Frames(values, bins) => Source::of_features(Features::new(values, *bins)),
        }
    }

    fn positions(&self) -> usize {
        let source = self.source();
        source.features.map_or(source.tokens.len(), |features| features.positions())
    }
}

/// The source and the target of each line.
fn batch(folder: &Path) -> Vec<(Read, Vec<u32>)> {
    let features = std::fs::read(folder.join("features.safetensors")).ok();
    let features = features
        .as_ref()
        .map(|file| safetensors::SafeTensors::deserialize(file).expect("features"));
    let text = String::from_utf8(read(folder, "batch.jsonl")).expect("text");
    let line = |(index, line): (usize, &str)| {
        let value: Value = serde_json::from_str(line).expect("a line");
        let read = match &features {
            None => Read::Ids(ids(&value["source_ids"])),
            Some(tensors) => {
                let tensor = tensors.tensor(&format!("features.{index}")).expect("frames");
                let numbers = tensor.data().as_chunks::<4>().0.iter();
                let numbers = numbers.map(|&x| f32::from_le_bytes(x)).collect();
                Read::Frames(numbers, tensor.shape()[1])
            }
        };
        (read, ids(&value["target_ids"]))
    };
    text.lines().enumerate().map(line).collect()
}

/// `-log p` of `target` in f64, with the label smoothing of PyTorch.
fn loss(logits: &[f32], target: u32, smoothing: f64) -> f64 {
    let largest = logits.iter().fold(f64::MIN, |m, &z| m.max(f64::from(z)));
    let sum: f64 = logits.iter().map(|&z| (f64::from(z) - largest).exp()).sum();
    let log_sum = largest + sum.ln();
    let mean = logits.iter().map(|&z| f64::from(z)).sum::<f64>() / logits.len() as f64;
    log_sum - (1.0 - smoothing) * f64::from(logits[target as usize]) - smoothing * mean
}

/// The loss computed from the logits of a session, with each of the two smoothings.
fn losses(model: &Model, batch: &[(Read, Vec<u32>)], fed: &[Vec<u32>]) -> [f64; 2] {
    let mut session = Session::new(model, Limits::new(batch.len(), 21, 21)).expect("a session");
    let mut sentences = vec![SourceId::default(); batch.len()];
    for ((read, _), sentence) in batch.iter().zip(&mut sentences) {
        let (source, slot) = (read.source(), core::slice::from_mut(sentence));
        match source.features {
            Some(features) => session.encode_features(&[features], slot),
            None => session.encode(&[source.tokens], slot),
        }
        .expect("encoded");
    }
    let (mut sums, mut tokens) = ([0.0; 2], 0);
    for ((sentence, (_, target)), fed) in sentences.into_iter().zip(batch).zip(fed) {
        let row = session.start(sentence).expect("a row");
        let mut each = |i: usize, logits: &[f32]| {
            for (sum, smoothing) in sums.iter_mut().zip([0.0, 0.1]) {
                *sum += loss(logits, target[i], smoothing);
            }
        };
        session.prefill(row, fed, Some(&mut each)).expect("prefilled");
        tokens += target.len();
    }
    sums.map(|sum| sum / tokens as f64)
}

fn check(name: &str) {
    let folder = root().join(name);
    let expected = json(&folder, "expected.json");
    let batch = batch(&folder);
    let fed: Vec<Vec<u32>> =
        expected["decoder_input_ids"].as_array().expect("rows").iter().map(ids).collect();
    assert_eq!([batch.len(), fed.len()], [6; 2], "{name}");
    assert!(
        batch.iter().any(|pair| pair.0.positions() == 1)
            && batch.iter().any(|pair| pair.1.len() == 1)
    );
    for ((_, target), fed) in batch.iter().zip(&fed) {
        assert_eq!(fed[1..], target[..target.len() - 1], "{name}: shifted by one");
    }
    let tokens: usize = batch.iter().map(|pair| pair.1.len()).sum();
    assert_eq!(expected["target_tokens"].as_u64(), Some(tokens as u64), "{name}");

    let checkpoint = Checkpoint::open(&folder).expect(name);
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect(name);
        for (found, smoothing) in losses(&model, &batch, &fed).into_iter().zip(["0", "0.1"]) {
            let loss = expected["loss"][smoothing]["f64"].as_f64().expect("a loss");
            assert!(
                (found - loss).abs() <= TOLERANCE,
                "{name} {isa}, smoothing {smoothing}: {found}, expected {loss}"
            );
        }
    }
    check_names(name, &folder, &expected);
}

/// Every tensor of the file has a gradient of its shape or is frozen, and every value is a number.
fn check_names(name: &str, folder: &Path, expected: &Value) {
    let (weights, gradients) =
        (read(folder, "model.safetensors"), read(folder, "gradients.safetensors"));
    let weights = safetensors::SafeTensors::deserialize(&weights).expect("weights");
    let gradients = safetensors::SafeTensors::deserialize(&gradients).expect("gradients");
    let (frozen, nothing) = (names(&expected["frozen"]), names(&expected["zero_but_for_rounding"]));
    for (tensor, view) in weights.tensors() {
        if frozen.contains(&tensor) {
            assert!(gradients.tensor(&tensor).is_err(), "{name}: {tensor} is frozen");
            continue;
        }
        let gradient = gradients.tensor(&tensor).expect(&tensor);
        assert_eq!(gradient.dtype(), safetensors::Dtype::F64, "{name}: {tensor}");
        assert_eq!(gradient.shape(), view.shape(), "{name}: {tensor}");
        let numbers = gradient.data().chunks_exact(8);
        let largest = numbers
            .map(|b| f64::from_le_bytes(b.try_into().unwrap()).abs())
            .fold(0.0, |m: f64, x| if x.is_nan() { f64::INFINITY } else { m.max(x) });
        let told = &expected["gradients"][&tensor];
        let said = told["largest"].as_f64().expect("a largest");
        assert!((largest - said).abs() <= 1e-3 * said, "{name}: {tensor}: {largest}, said {said}");
        assert_eq!(largest < 1e-12, nothing.contains(&tensor), "{name}: {tensor}: {largest}");
        let [error, worst] =
            ["f32_error", "f32_error_worst"].map(|key| told[key].as_f64().expect("an error"));
        assert!(0.0 < error && error <= worst, "{name}: {tensor}");
        assert!(nothing.contains(&tensor) || worst <= 1e-5 * largest, "{name}: {tensor}: {worst}");
    }
    assert_eq!(gradients.len() + frozen.len(), weights.len(), "{name}");
}

#[test]
fn goldens_of_training_agree_with_inference() {
    let found: BTreeSet<_> = std::fs::read_dir(root())
        .expect("goldens")
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(found, FOLDERS.iter().map(|name| (*name).into()).collect());
    for name in FOLDERS {
        check(name);
    }
}

#[test]
fn runs_of_adam_differ_only_by_rounding() {
    for name in FOLDERS {
        let expected = json(&root().join(name), "expected.json");
        let run = &expected["run"];
        let [single, double] = ["f32", "f64"].map(|kind| {
            let losses = run["losses"][kind].as_array().expect("losses").iter();
            losses.map(|loss| loss.as_f64().expect("a loss")).collect::<Vec<_>>()
        });
        assert_eq!([single.len(), double.len()], [10; 2], "{name}");
        for (step, (a, b)) in single.iter().zip(&double).enumerate() {
            assert!((a - b).abs() <= 2e-6, "{name}, step {step}: {a}, {b}");
        }
        let smoothing = expected["label_smoothing"].as_f64().expect("smoothing").to_string();
        let first = expected["loss"][&smoothing]["f64"].as_f64().expect("a loss");
        assert!(
            (double[0] - first).abs() < 1e-12,
            "{name}: the order of a batch is nothing to its mean"
        );
        assert!(double[9] < double[0] - 0.1, "{name}: it learns");
        for order in run["orders"].as_array().expect("orders") {
            let mut order = ids(order);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4, 5], "{name}");
        }
    }
}
