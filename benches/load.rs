//! How long it takes to load a checkpoint from safetensors, and from both formats of `torch.save`.
//!
//! ```sh
//! cargo bench -p simdformer-benches --features torch --bench load
//! ```
//!
//! Transformer-base with random weights in f32, from files in the cache of the system. Prints the median of several loads,
//! which take turns, and fails if a format takes more than 1.1 times as long as safetensors.

use random_model::Dims;
use simdformer::Model;
use simdformer::config::Family;
use simdformer_testing::{random_model, torch_file};
use std::path::Path;
use std::time::{Duration, Instant};
use torch_file::StateDict;

/// Loads of each format.
const LOADS: usize = 15;

/// The longest time, relative to safetensors.
const LONGEST: f64 = 1.1;

fn main() {
    let dims = Dims {
        d_model: 512,
        layers: [6, 6],
        heads: [8, 8],
        ffn: [2048, 2048],
        vocabulary: 32_000,
        positions: 512,
        ..Dims::small(Family::Marian)
    };
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load");
    let bytes = dims.bytes(1);
    let state_dict = StateDict::of_safetensors(&bytes);
    let formats = [
        ("safetensors", "model.safetensors", bytes),
        ("zip", "pytorch_model.bin", state_dict.zip()),
        ("legacy", "pytorch_model.bin", state_dict.legacy()),
    ];
    for (format, file, bytes) in &formats {
        let folder = root.join(format);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("config.json"), dims.json()).expect("a configuration");
        std::fs::write(folder.join(file), bytes).expect("weights");
    }
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..LOADS {
        for ((format, ..), times) in formats.iter().zip(&mut times) {
            let start = Instant::now();
            let model = Model::open(root.join(format)).expect("a model");
            times.push(start.elapsed());
            drop(model);
        }
    }
    let median = times.map(|mut times| {
        times.sort_unstable();
        times[LOADS / 2].as_secs_f64() * 1e3
    });
    println!("{:>12}  median ms  of safetensors", "format");
    for ((format, ..), ms) in formats.iter().zip(median) {
        println!("{format:>12}  {ms:9.1}  {:14.3}", ms / median[0]);
    }
    let _ = std::fs::remove_dir_all(&root);
    let slowest = median[1].max(median[2]) / median[0];
    assert!(slowest <= LONGEST, "{slowest} times as long as safetensors");
}
