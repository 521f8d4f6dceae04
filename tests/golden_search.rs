//! Every decoding strategy compared with `generate` of transformers, through the whole library.
//!
//! `tests/golden/search/*/` has tiny models of three families and the answers of `generate` for them under
//! 79 settings each; see `tests/golden/README.md`.

use crate::effort::all_cases_on;
use serde_json::Value;
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::search::Hooks;
use simdformer::{Event, Limits, Model, Session, Source, SourceId};
use std::path::Path;

/// The largest difference allowed, relative to the largest magnitude of the tensor.
const TOLERANCE: f32 = 2e-5;
/// The largest difference allowed in a score.
const SCORE_TOLERANCE: f64 = 1e-4;
/// The reference fills up with copies if there are fewer hypotheses than requested. The copies have about
/// this score.
const NOT_A_HYPOTHESIS: f64 = -1e8;

type Hypotheses = Vec<(Vec<u32>, f32)>;

fn check_teacher_forced(session: &mut Session<'_>, sources: &[&[u32]], folder: &Path) {
    let isa = session.model().isa();
    let bytes = std::fs::read(folder.join("expected.safetensors")).expect("expected.safetensors");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let floats = |name: &str| -> Vec<f32> {
        let data = file.tensor(name).expect(name).data();
        data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let ids = |name: &str| -> Vec<u32> {
        let data = file.tensor(name).expect(name).data();
        data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect()
    };
    for (i, source) in sources.iter().enumerate() {
        assert_eq!(*source, ids(&format!("input_ids.{i}")));
        let memory = session.encoder_output(&[source]).expect("a memory");
        assert_close(&format!("{isa} encoder.{i}"), memory, &floats(&format!("encoder.{i}")));
    }
    let mut sentences = vec![SourceId::default(); sources.len()];
    session.encode(sources, &mut sentences).expect("encoded");
    for (i, &sentence) in sentences.iter().enumerate() {
        let row = session.start(sentence).expect("a row");
        let mut found = Vec::new();
        let mut each = |_: usize, logits: &[f32]| found.extend_from_slice(logits);
        let tokens = ids(&format!("decoder_input_ids.{i}"));
        session.prefill(row, &tokens, Some(&mut each)).expect("prefilled");
        assert_close(&format!("{isa} logits.{i}"), &found, &floats(&format!("logits.{i}")));
    }
    session.clear();
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    assert!(!expected.is_empty(), "{what}: nothing to compare");
    let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (found - expected).abs();
        assert!(
            difference <= TOLERANCE * largest,
            "{what}[{i}]: {found} instead of {expected}, largest {largest}"
        );
    }
}

/// The hypotheses of the reference, with its scores if it gives any.
fn expected(result: &Value) -> Vec<(Vec<u32>, Option<f64>)> {
    let sequences = result["sequences"].as_array().expect("sequences").iter();
    sequences
        .enumerate()
        .map(|(i, ids)| (crate::golden_options::ids(ids), result["scores"][i].as_f64()))
        .filter(|(_, score)| score.is_none_or(|score| score > NOT_A_HYPOTHESIS))
        .collect()
}

/// Runs all sentences under `case` and compares. Returns the number of hypotheses that were compared.
fn check_case(session: &mut Session<'_>, sources: &[&[u32]], case: &Value) -> usize {
    let tokens = &session.model().config().tokens;
    let start = tokens.decoder_start.expect("a decoder start");
    let given = case["options"].as_object().expect("options");
    let options = crate::golden_options::options(given, start, &tokens.eos);
    let requests: Vec<Source> = (0..)
        .zip(sources)
        .map(|(stream, tokens)| Source { stream, ..Source::new(tokens) })
        .collect();
    let mut answers: Vec<Hypotheses> = vec![Hypotheses::new(); sources.len()];
    let isa = session.model().isa();
    session
        .generate(&requests, &options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                let hypotheses = done.hypotheses().map(|h| (h.tokens.to_vec(), h.score));
                answers[done.source] = hypotheses.collect();
            }
        })
        .expect("generated");
    let results = case["results"].as_array().expect("results");
    let mut compared = 0;
    for result in results {
        let sentence = result["sentence"].as_u64().expect("a sentence") as usize;
        let (found, expected) = (&answers[sentence], expected(result));
        let what = format!("{isa} sentence {sentence} of {}", case["options"]);
        let sequences: Vec<&[u32]> = found.iter().map(|(tokens, _)| tokens.as_slice()).collect();
        let wanted: Vec<&[u32]> = expected.iter().map(|(tokens, _)| tokens.as_slice()).collect();
        assert_eq!(sequences, wanted, "{what}");
        for ((_, found), (_, expected)) in found.iter().zip(&expected) {
            if let Some(expected) = expected {
                let close = (f64::from(*found) - expected).abs() <= SCORE_TOLERANCE;
                assert!(close, "{what}: score {found} instead of {expected}");
            }
        }
        compared += wanted.len();
    }
    compared
}

/// Runs the cases of `file` in `tests/golden/search/name`. There must be `expected` cases; the sentences
/// `left_out` are skipped. A set that does not run all cases takes every thirteenth.
fn check(name: &str, file: &str, expected: usize, left_out: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/search").join(name);
    let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
    let read = |name| std::fs::read_to_string(folder.join(name)).expect(name);
    let sources: Value = serde_json::from_str(&read("sources.json")).expect("JSON");
    let sources: Vec<Vec<u32>> =
        sources.as_array().expect("a list").iter().map(crate::golden_options::ids).collect();
    let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let longest = sources.iter().map(|source| source.len()).max().expect("a source");
    let cases = read(file);
    let cases: Vec<Value> =
        cases.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(cases.len(), expected);
    let results = |case: &Value| case["results"].as_array().map_or(0, Vec::len);
    let all: usize = cases.iter().map(results).sum();
    assert_eq!(all, expected * sources.len() - left_out);
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let limits = Limits { beams: 5, ..Limits::new(sources.len(), longest, 30) };
        let mut session = Session::new(&model, limits).expect("a session");
        check_teacher_forced(&mut session, &sources, &folder);
        let step = if all_cases_on(isa) { 1 } else { 13 };
        for case in cases.iter().step_by(step) {
            let compared = check_case(&mut session, &sources, case);
            assert!(compared >= results(case), "{isa}: {compared} hypotheses");
        }
    }
}

#[test]
fn bart_a() {
    check("bart_a", "cases.jsonl", 79, 0);
}

#[test]
fn bart_b() {
    check("bart_b", "cases.jsonl", 79, 0);
}

#[test]
fn m2m_a() {
    check("m2m_a", "cases.jsonl", 79, 0);
}

#[test]
fn m2m_b() {
    check("m2m_b", "cases.jsonl", 79, 0);
}

#[test]
fn marian_a() {
    check("marian_a", "cases.jsonl", 79, 0);
}

#[test]
fn marian_b() {
    check("marian_b", "cases.jsonl", 79, 0);
}

/// Beam sampling. The reference uses our random numbers instead of its own.
#[test]
fn beam_sampling() {
    for (name, left_out) in
        [("bart_a", 2), ("bart_b", 1), ("m2m_a", 1), ("m2m_b", 0), ("marian_a", 1), ("marian_b", 0)]
    {
        check(name, "drawn.jsonl", 26, left_out);
    }
}
