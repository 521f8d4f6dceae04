//! Vectors of sentences of different lengths: `--sentences DIR`, with `DIR` from
//! `benches/peers/make_minilm.py`. Prints a line for each number of tokens in a call, in the format of
//! `benches/peers/sentences.py`. Several threads share one session, or have one each.
//!
//! Sentences are taken in order and laid end to end; nothing is sorted or padded. Every vector is compared
//! with that of transformers before the measurement.

use crate::measure;
use simdformer::task_heads::SentenceHead;
use simdformer::{Limits, Model, Session, Threads};
use std::path::Path;
use std::sync::Mutex;

/// Tokens of one call of the encoder.
const TOKENS: [usize; 3] = [256, 512, 1024];
/// The largest distance of a vector of length 1 from that of transformers: in f32, and in a dtype that
/// rounds.
const BOUNDS: [f64; 2] = [1e-4, 0.05];

#[derive(serde::Deserialize)]
struct Sentences {
    ids: Vec<Vec<u32>>,
    vectors: Vec<Vec<f32>>,
}

pub(crate) fn lines(directory: &Path, forms: &str, threads: usize) {
    let text = std::fs::read_to_string(directory.join("sentences.json")).expect("sentences.json");
    let Sentences { ids, vectors } = serde_json::from_str(&text).expect("ids and vectors");
    let chosen: simdformer::WeightDtypes = forms.parse().expect("a form");
    let model = Model::open_with(directory, chosen).expect("a model");
    let (engine, bound) = match forms {
        "f32" => ("simdformer".to_owned(), BOUNDS[0]),
        _ => (format!("simdformer, {forms}"), BOUNDS[1]),
    };
    let head = SentenceHead::open(directory, model.config().d_model).expect("a head");
    let tokens: usize = ids.iter().map(Vec::len).sum();
    let borrowed: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let mut found = vec![0.0; ids.len() * head.width()];
    for together in TOKENS {
        let longest = ids.iter().map(Vec::len).max().expect("a sentence");
        let limits = Limits { batch_tokens: together, ..Limits::encoder(ids.len(), longest) };
        let worker = |kind: Threads<'static>| {
            let mut session = Session::new(&model, limits).expect("a session");
            session.set_threads(kind);
            Worker { session, head: &head, scratch: vec![0.0; head.scratch_floats()] }
        };
        let kinds = if threads > 1 { &[1, threads][..] } else { &[1] };
        for &sessions in kinds {
            let alone = sessions == 1;
            let kind = || if alone && threads > 1 { Threads::Rayon } else { Threads::Serial };
            let workers: Vec<_> = (0..sessions).map(|_| Mutex::new(worker(kind()))).collect();
            let plan = |worker: &Mutex<Worker<'_>>| {
                worker.lock().expect("a worker").session.plan().bytes()
            };
            let bytes: usize = workers.iter().map(plan).sum();
            let (seconds, allocations) = pool.install(|| {
                measure(|| {
                    let batches = Mutex::new((&borrowed[..], &mut found[..]));
                    // A thread takes the next sentences when it is free.
                    let take = || {
                        let mut rest = batches.lock().expect("batches");
                        let (sentences, out) = std::mem::take(&mut *rest);
                        let mut sum = 0;
                        let fits = sentences.iter().take_while(|ids| {
                            sum += ids.len();
                            sum <= together
                        });
                        let (batch, sentences) = sentences.split_at(fits.count());
                        let (mine, out) = out.split_at_mut(batch.len() * head.width());
                        *rest = (sentences, out);
                        (!batch.is_empty()).then_some((batch, mine))
                    };
                    let work = |worker: &Mutex<Worker<'_>>| {
                        let mut worker = worker.lock().expect("a worker of its own");
                        while let Some((batch, out)) = take() {
                            worker.embed(batch, out);
                        }
                    };
                    match &workers[..] {
                        [worker] => work(worker),
                        _ => drop(pool.broadcast(|thread| work(&workers[thread.index()]))),
                    }
                })
            });
            for (found, expected) in found.chunks(head.width()).zip(&vectors) {
                let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
                let distance = found.iter().zip(expected).map(square).sum::<f64>().sqrt();
                assert!(distance <= bound, "{distance}, at most {bound}");
            }
            let each = if alone { String::new() } else { format!(", {sessions} sessions") };
            println!(
                "{{\"engine\": \"{engine}\", \"what\": \"embed {forms}\", \"setting\": \"{together} tokens a \
                 call{each}\", \"threads\": {threads}, \"seconds\": {seconds}, \"rate\": {:.2}, \"unit\": \
                 \"tok/s\", \"allocations\": {allocations}, \"plan_bytes\": {bytes}}}",
                tokens as f64 / seconds
            );
        }
    }
}

struct Worker<'m> {
    session: Session<'m>,
    head: &'m SentenceHead,
    scratch: Vec<f32>,
}

impl Worker<'_> {
    /// The vectors of `batch`, `[sentences, width]`.
    fn embed(&mut self, batch: &[&[u32]], out: &mut [f32]) {
        let d_model = self.session.model().config().d_model;
        let mut hidden = self.session.encoder_output(batch).expect("hidden states");
        for (ids, out) in batch.iter().zip(out.chunks_mut(self.head.width())) {
            let (own, others) = hidden.split_at(ids.len() * d_model);
            self.head.apply(own, &mut self.scratch, out).expect("a vector");
            hidden = others;
        }
    }
}
