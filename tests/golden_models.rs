//! Models of other implementations: encoder output, logits under teacher forcing, and greedy sequences.
//!
//! transformers and `torch.nn.Transformer` computed the values in `tests/golden/*/expected.safetensors` in
//! float64; see `tests/golden/README.md`.

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::search::Hooks;
use simdformer::{Event, Limits, Model, Session, Source, SourceId};
use std::path::Path;

/// The largest difference allowed, relative to the largest magnitude of the expected tensor.
const TOLERANCE: f32 = 2e-5;

struct Expected {
    bytes: Vec<u8>,
}

impl Expected {
    fn read(folder: &Path) -> Self {
        Self {
            bytes: std::fs::read(folder.join("expected.safetensors"))
                .expect("expected.safetensors"),
        }
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let file = safetensors::SafeTensors::deserialize(&self.bytes).expect("a safetensors file");
        let tensor = file.tensor(name).expect(name);
        tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let file = safetensors::SafeTensors::deserialize(&self.bytes).expect("a safetensors file");
        let tensor = file.tensor(name).expect(name);
        let id = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap()) as u32;
        tensor.data().chunks_exact(8).map(id).collect()
    }

    fn sentences(&self) -> usize {
        let file = safetensors::SafeTensors::deserialize(&self.bytes).expect("a safetensors file");
        file.names().iter().filter(|name| name.starts_with("input_ids.")).count()
    }
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let worst = found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0f32, |m, x| if x.is_nan() { f32::INFINITY } else { m.max(x) });
    assert!(worst <= TOLERANCE * largest, "{what}: off by {worst}, largest {largest}");
}

fn check(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
    let expected = Expected::read(&folder);
    let count = expected.sentences();
    assert!(count >= 8);
    let sources: Vec<Vec<u32>> =
        (0..count).map(|i| expected.ids(&format!("input_ids.{i}"))).collect();
    let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let longest = sources.iter().map(Vec::len).max().unwrap();
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let d = model.config().d_model;
        let limits = Limits { beams: 1, ..Limits::new(count, longest, 64) };
        let mut session = Session::new(&model, limits).expect("a session");

        let memory = session.encoder_output(&borrowed).expect("a memory");
        let mut start = 0;
        for (i, source) in sources.iter().enumerate() {
            let end = start + source.len() * d;
            let name = format!("encoder.{i}");
            assert_close(&format!("{isa} {name}"), &memory[start..end], &expected.floats(&name));
            start = end;
        }

        let mut sentences = vec![SourceId::default(); count];
        session.encode(&borrowed, &mut sentences).expect("encoded");
        for (i, &sentence) in sentences.iter().enumerate() {
            let row = session.start(sentence).expect("a row");
            let tokens = expected.ids(&format!("decoder_input_ids.{i}"));
            let mut found = Vec::new();
            let mut each = |_: usize, logits: &[f32]| found.extend_from_slice(logits);
            session.prefill(row, &tokens, Some(&mut each)).expect("prefilled");
            let name = format!("logits.{i}");
            assert_close(&format!("{isa} {name}"), &found, &expected.floats(&name));
        }

        let mut options = model.config().search_options();
        options.max_new_tokens = Some(40);
        options.max_length = None;
        let requests: Vec<Source> = borrowed.iter().map(|tokens| Source::new(tokens)).collect();
        let mut greedy = vec![Vec::new(); count];
        session
            .generate(&requests, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    greedy[done.source] = done.hypotheses().next().expect("one").tokens.to_vec();
                }
            })
            .expect("generated");
        for (i, found) in greedy.iter().enumerate() {
            assert_eq!(*found, expected.ids(&format!("greedy.{i}")), "{isa} greedy.{i}");
        }
    }
}

#[test]
fn marian_with_shared_embeddings() {
    check("marian_odd");
}

#[test]
fn marian_with_untied_embeddings() {
    check("marian_untied");
}

#[test]
fn nn_transformer_post_norm() {
    check("nn_transformer_post");
}

#[test]
fn nn_transformer_pre_norm() {
    check("nn_transformer_pre");
}
