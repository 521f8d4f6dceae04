//! Sentence vectors with candle's own BERT: the peer of `benches/peers/compare_model.py --sentences DIR`.
//!
//! `cargo bench --bench sentences [--features avx512] -- DIR` with `DIR` from
//! `benches/peers/make_minilm.py` prints a line of JSON for each batch size. Sentences are sorted by
//! length, padded to the longest of their batch and masked; then the mean over their own tokens is
//! normalized to length 1. `RAYON_NUM_THREADS` sets the threads. Every vector is compared with that of
//! transformers before the measurement.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const BATCHES: [usize; 6] = [1, 4, 8, 16, 32, 64];
const RUNS: usize = 1;
const BOUND: f32 = 1e-5;

/// Ids and vectors of `sentences.json`.
struct Sentences {
    ids: Vec<Vec<u32>>,
    vectors: Vec<Vec<f32>>,
}

fn read(directory: &Path) -> Result<Sentences> {
    let text = std::fs::read(directory.join("sentences.json"))?;
    let mut parsed: Value = serde_json::from_slice(&text).map_err(candle_core::Error::wrap)?;
    let ids = serde_json::from_value(parsed["ids"].take()).map_err(candle_core::Error::wrap)?;
    let vectors =
        serde_json::from_value(parsed["vectors"].take()).map_err(candle_core::Error::wrap)?;
    Ok(Sentences { ids, vectors })
}

/// The vectors of a batch, `[sentences, width]`.
fn embed(model: &BertModel, batch: &[&Vec<u32>]) -> Result<Tensor> {
    let longest = batch.iter().map(|ids| ids.len()).max().unwrap_or(0);
    let shape = (batch.len(), longest);
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for sentence in batch {
        let padding = longest - sentence.len();
        ids.extend(sentence.iter().copied().chain(std::iter::repeat_n(0, padding)));
        mask.extend((0..longest).map(|i| if i < sentence.len() { 1f32 } else { 0.0 }));
    }
    let ids = Tensor::from_vec(ids, shape, &Device::Cpu)?;
    let mask = Tensor::from_vec(mask, shape, &Device::Cpu)?;
    let hidden = model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
    let sums = hidden.broadcast_mul(&mask.unsqueeze(2)?)?.sum(1)?;
    let means = sums.broadcast_div(&mask.sum_keepdim(1)?)?;
    means.broadcast_div(&means.sqr()?.sum_keepdim(1)?.sqrt()?)
}

fn run(directory: &Path) -> Result<()> {
    let sentences = read(directory)?;
    let config = std::fs::read(directory.join("config.json"))?;
    let config: Config = serde_json::from_slice(&config).map_err(candle_core::Error::wrap)?;
    let weights = std::fs::read(directory.join("model.safetensors"))?;
    let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
    let model = BertModel::load(weights, &config)?;
    let tokens: usize = sentences.ids.iter().map(Vec::len).sum();
    let mut order: Vec<usize> = (0..sentences.ids.len()).collect();
    order.sort_by_key(|&index| sentences.ids[index].len());
    for size in BATCHES {
        let all = || -> Result<Vec<Tensor>> {
            let batches = order.chunks(size);
            batches
                .map(|batch| {
                    let batch: Vec<_> = batch.iter().map(|&index| &sentences.ids[index]).collect();
                    embed(&model, &batch)
                })
                .collect()
        };
        let found = Tensor::cat(&all()?, 0)?.to_vec2::<f32>()?;
        for (found, &index) in found.iter().zip(&order) {
            for (found, expected) in found.iter().zip(&sentences.vectors[index]) {
                let close = (found - expected).abs() <= BOUND;
                assert!(close, "sentence {index}: {found}, expected {expected}");
            }
        }
        let mut seconds = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            all()?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let (seconds, threads) = (seconds[RUNS / 2], candle_core::utils::get_num_threads());
        let engine = if cfg!(feature = "avx512") { "candle, AVX-512" } else { "candle" };
        println!(
            "{{\"engine\": \"{engine}\", \"what\": \"embed f32\", \"setting\": \"sorted, {size} at a time\", \
             \"threads\": {threads}, \"seconds\": {seconds}, \"rate\": {:.2}, \"unit\": \"tok/s\"}}",
            tokens as f64 / seconds
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let directory = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let Some(directory) = directory else {
        eprintln!("sentences: which directory?");
        return ExitCode::FAILURE;
    };
    match Device::Cpu.with_context(|| run(Path::new(&directory))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sentences: {error}");
            ExitCode::FAILURE
        }
    }
}
