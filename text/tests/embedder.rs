//! Codes of few bits, compared with those of sentence-transformers; texts that are too long.

use crate::directories::golden;
use serde_json::{Value, json};
use simdformer_testing::published::encoder;
use simdformer_text::Tokenizer;
use simdformer_text::embedder::{Embedder, Precision, Quantized, Ranges};
use std::fs;

/// The cases of `golden/embedder.jsonl`; see `embedder.py`.
fn cases() -> Vec<Value> {
    let text = fs::read_to_string(golden("embedder.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// A code as the golden file has it.
fn integers(code: &Quantized) -> Vec<i64> {
    match code {
        Quantized::I8(code) => code.iter().map(|&x| x.into()).collect(),
        Quantized::U8(code) => code.iter().map(|&x| x.into()).collect(),
        Quantized::F32(code) => panic!("{code:?}"),
    }
}

#[test]
fn codes_are_those_of_sentence_transformers() {
    let mut compared = 0;
    for case in cases().iter().filter(|case| case.get("codes").is_some()) {
        let vectors: Vec<Vec<f32>> =
            case["vectors"].as_array().unwrap().iter().map(floats).collect();
        let all = Ranges::from_vectors(vectors.iter().map(|vector| &vector[..])).unwrap().unwrap();
        let [least, most] = [0, 1].map(|row| floats(&case["ranges"][row]));
        let some = Ranges::new(least, most).unwrap();
        for (key, ranges) in [("codes", all), ("codes_within_ranges", some)] {
            for (name, expected) in case[key].as_object().unwrap() {
                let precision = Precision::from_name(name).unwrap();
                for (vector, expected) in vectors.iter().zip(expected.as_array().unwrap()) {
                    let code = precision.apply(vector.clone(), Some(&ranges)).unwrap();
                    let code = integers(&code);
                    assert_eq!(json!(code), *expected, "{name} of {vector:?}");
                    assert_eq!(code.len(), precision.width(vector.len()));
                    compared += 1;
                }
            }
        }
        let error = Precision::Int8.apply(vectors[0].clone(), None).unwrap_err().to_string();
        assert_eq!(
            error,
            "ranges: expected the range of each dimension, which int8 and uint8 need, found none"
        );
    }
    assert!(compared >= 600, "{compared}");
    let error = Ranges::new(vec![0.0, 2.0], vec![1.0, 1.0]).unwrap_err().to_string();
    assert_eq!(error, "ranges: expected a range in dimension 1, found 2 to 1");
}

/// `truncate` of the options: what the directory says, cut, or refuse; and another limit. A text of one token more than fits
/// and longer ones, for each of them and for rerankers.
#[test]
fn a_text_that_may_not_be_cut_is_not_run() {
    use simdformer::Model;
    use simdformer::checkpoint::Checkpoint;
    use simdformer_text::embedder::{EmbedOptions, EmbedderSetup, NotRun};
    let place = encoder("bert");
    let checkpoint = Checkpoint::open(&place.0).unwrap();
    let model = std::sync::Arc::new(Model::open(&place.0).unwrap());
    let embedder = |truncate, max_tokens| {
        let options = EmbedOptions { truncate, max_tokens, ..EmbedOptions::default() };
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
        let setup =
            EmbedderSetup::from_directory(&place.0, tokenizer, &checkpoint, &options).unwrap();
        Embedder::new(&model, setup)
    };
    let texts: Vec<String> = (0..60).map(|words| "a ".repeat(words)).collect();
    let whole = embedder(Some(true), None).embed(&texts).unwrap();
    let mut refused = 0;
    for limit in [None, Some(3), Some(7), Some(1000)] {
        let default = embedder(None, limit);
        let most = default.setup().tokenizer().max_tokens().unwrap();
        assert!(limit.is_none_or(|limit| most <= limit));
        let refusing = embedder(Some(false), limit).embed(&texts).unwrap();
        let cutting = embedder(Some(true), limit).embed(&texts).unwrap();
        for ((refusing, cutting), whole) in refusing.iter().zip(&cutting).zip(&whole) {
            assert_eq!((refusing.tokens, cutting.truncated), (whole.tokens, whole.tokens > most));
            if refusing.tokens > most {
                let why = NotRun::TooLong { tokens: refusing.tokens, most };
                assert_eq!(refusing.result, Err(why));
                refused += 1;
            } else {
                assert_eq!(refusing.result, cutting.result);
                assert!(whole.truncated || cutting.result == whole.result);
            }
            assert!(cutting.result.is_ok());
        }
    }
    assert!(refused > 100, "{refused}");
}
