//! Vectors of ragged sentences, `--sentences DIR`, with `DIR` from `benches/peers/make_minilm.py`: a line for each
//! number of tokens in a call, in the format of `benches/peers/sentences.py`.
//!
//! Sentences are taken as they come, laid end to end: nothing is sorted or padded. Every vector is held to transformers'
//! before anything is timed.

use super::measure;
use simdformer::heads::SentenceHead;
use simdformer::{Limits, Model, Session, Threads};
use std::path::Path;

/// Tokens of one call of the encoder.
const TOKENS: [usize; 4] = [256, 512, 1024, 2048];
const BOUND: f32 = 1e-5;

#[derive(serde::Deserialize)]
struct Sentences {
    ids: Vec<Vec<u32>>,
    vectors: Vec<Vec<f32>>,
}

pub(crate) fn lines(directory: &Path, threads: usize) {
    let text = std::fs::read_to_string(directory.join("sentences.json")).expect("sentences.json");
    let Sentences { ids, vectors } = serde_json::from_str(&text).expect("ids and vectors");
    let model = Model::open(directory).expect("a model");
    let head = SentenceHead::open(directory, model.config().d_model).expect("a head");
    let longest = ids.iter().map(Vec::len).max().expect("a sentence");
    let tokens: usize = ids.iter().map(Vec::len).sum();
    let borrowed: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    for together in TOKENS {
        let limits = Limits { batch_tokens: together, ..Limits::encoder(ids.len(), longest) };
        let mut session = Session::new(&model, limits).expect("a session");
        if threads > 1 {
            session.set_threads(Threads::Rayon);
        }
        let bytes = session.plan().bytes();
        let mut scratch = vec![0.0; head.scratch_floats()];
        let mut found = vec![0.0; ids.len() * head.width()];
        let mut all = || {
            let mut rest = &borrowed[..];
            let mut out = found.chunks_mut(head.width());
            while !rest.is_empty() {
                let mut sum = 0;
                let fits = rest.iter().take_while(|ids| {
                    sum += ids.len();
                    sum <= together
                });
                let (batch, after) = rest.split_at(fits.count());
                let mut hidden = session.memory(batch).expect("hidden states");
                for (ids, out) in batch.iter().zip(&mut out) {
                    let (own, others) = hidden.split_at(ids.len() * model.config().d_model);
                    head.apply(own, &mut scratch, out).expect("a vector");
                    hidden = others;
                }
                rest = after;
            }
        };
        let (seconds, allocations) = pool.install(|| measure(&mut all));
        for (found, expected) in found.chunks(head.width()).zip(&vectors) {
            for (found, expected) in found.iter().zip(expected) {
                let close = (found - expected).abs() <= BOUND;
                assert!(close, "{found}, expected {expected}");
            }
        }
        println!(
            "{{\"engine\": \"simdformer\", \"what\": \"embed f32\", \"setting\": \"{together} tokens a call\", \
             \"threads\": {threads}, \"seconds\": {seconds}, \"rate\": {:.2}, \"unit\": \"tok/s\", \
             \"allocations\": {allocations}, \"plan_bytes\": {bytes}}}",
            tokens as f64 / seconds
        );
    }
}
