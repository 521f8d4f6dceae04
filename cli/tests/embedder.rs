//! Prompts, lowercase, dimensions, codes of few bits and activations, compared with those of sentence-transformers.

use crate::command::{err, out, run_command};
use crate::encoders::embed;
use serde_json::{Value, json};
use simdformer_testing::directories::golden;
use simdformer_testing::published::encoder;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::Direction;
use simdformer_text::embedder::{Embedder, Precision, Quantized, Ranges, Reranker};
use std::fs;
use std::process::Output;

/// The cases of `golden/embedder.jsonl`; see `embedder.py`.
fn cases() -> Vec<Value> {
    let text = fs::read_to_string(golden("embedder.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The directory of a case: files replace or extend those of `encoders/NAME`, keys of `config.json` are added.
fn directory(name: &str, files: &Value) -> TemporaryFolder {
    let place = encoder(name);
    for (file, value) in files.as_object().unwrap() {
        let mut value = value.clone();
        if file == "config.json" {
            let text = fs::read_to_string(place.0.join(file)).unwrap();
            let mut config: Value = serde_json::from_str(&text).unwrap();
            config.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            value = config;
        }
        fs::create_dir_all(place.0.join(file).parent().unwrap()).unwrap();
        place.write(file, value.to_string());
    }
    place
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn lines(output: &Output) -> Vec<Value> {
    out(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn rerank(place: &TemporaryFolder, more: &[&str], input: &str) -> Output {
    run_command(&[&["rerank", "--model", place.0.to_str().unwrap()], more].concat(), input)
}

#[test]
fn vectors_are_those_of_sentence_transformers() {
    let mut compared = 0;
    for case in cases().iter().filter(|case| case.get("codes").is_none()) {
        let Some(expected) = case["vectors"].as_array() else { continue };
        let place = directory(case["model"].as_str().unwrap(), &case["files"]);
        let arguments = [&["--truncate"][..], &texts(&case["arguments"])[..]].concat();
        let input: String = texts(&case["texts"]).iter().map(|t| format!("{t}\n")).collect();
        let output = embed(&place, &arguments, &input);
        let what = format!("{} {} {arguments:?}", case["model"], case["files"]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", err(&output));
        let found = lines(&output);
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(expected) {
            let (found, expected) = (floats(found), floats(expected));
            assert_eq!(found.len(), expected.len(), "{what}");
            let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= 2e-5 * largest, "{what}: {found}, {expected}");
            }
            compared += 1;
        }
    }
    assert!(compared > 90, "{compared}");
}

#[test]
fn scores_are_those_of_sentence_transformers() {
    let mut compared = 0;
    for case in &cases() {
        let Some(expected) = case.get("scores").map(floats) else { continue };
        let place = directory(case["model"].as_str().unwrap(), &case["files"]);
        let query = ["--query", case["query"].as_str().unwrap()];
        let arguments = [&query[..], &["--truncate"], &texts(&case["arguments"])[..]].concat();
        let input: String = texts(&case["texts"]).iter().map(|t| format!("{t}\n")).collect();
        let output = rerank(&place, &arguments, &input);
        let what = format!("{} {} {arguments:?}", case["model"], case["files"]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", err(&output));
        let found = lines(&output);
        assert_eq!(found.len(), expected.len(), "{what}");
        for line in found {
            let score = line["score"].as_f64().unwrap() as f32;
            let expected = expected[line["index"].as_u64().unwrap() as usize];
            assert!((score - expected).abs() <= 1e-5, "{what}: {score}, {expected}");
            compared += 1;
        }
    }
    assert!(compared >= 40, "{compared}");
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
fn codes_are_written_as_lines_and_for_numpy() {
    let place = encoder("bert");
    let texts = ["a house", "the river is white", "", "how many people live here?"];
    let path = |name: &str| place.0.join(name).to_str().unwrap().to_owned();
    let (file, ranges) = (path("codes.npy"), path("ranges.npy"));
    let vectors: Vec<Vec<f32>> = lines(&embed(&place, &texts, "")).iter().map(floats).collect();
    let expected = Ranges::from_vectors(vectors.iter().map(|vector| &vector[..])).unwrap().unwrap();
    let long = "the old house ".repeat(30);
    for precision in &Precision::ALL[1..] {
        let to = ["--to", precision.name()];
        let output = embed(&place, &[&to[..], &texts].concat(), "");
        let note = "are those of 4 texts only; --ranges reads those of more\n";
        assert_eq!(err(&output).ends_with(note), precision.needs_ranges(), "{}", err(&output));
        let codes = lines(&output);
        for (code, vector) in codes.iter().zip(&vectors) {
            let expected = precision.apply(vector.clone(), Some(&expected)).unwrap();
            assert_eq!(*code, json!(integers(&expected)), "{}", precision.name());
        }
        // The same with ranges of a file, one text at a time, on two threads.
        let save = ["--save-ranges", &ranges];
        assert_eq!(embed(&place, &[&save[..], &texts].concat(), "").status.code(), Some(0));
        let more = ["--ranges", &ranges, "--slots", "1", "--threads", "2"];
        let again = embed(&place, &[&to[..], &more, &texts].concat(), "");
        assert_eq!((out(&output), err(&again)), (out(&again), ""), "{}", precision.name());
        // No row says that a text was not run: then there is no file.
        place.write("sentence_bert_config.json", r#"{"max_seq_length": 512}"#);
        let npy = ["--npy", &file, "--ranges", &ranges];
        let with_long = embed(&place, &[&to[..], &npy, &texts, &[long.as_str()]].concat(), "");
        assert_eq!(with_long.status.code(), Some(1), "{}", err(&with_long));
        let message = format!("--npy: text 5 has no vector, and {} has no", precision.name());
        assert!(err(&with_long).contains(&message), "{}", err(&with_long));
        assert!(!fs::exists(&file).unwrap());
        let short = embed(&place, &[&to[..], &npy, &texts].concat(), "");
        assert_eq!(short.status.code(), Some(0), "{}", err(&short));
        let bytes = fs::read(&file).unwrap();
        let width = precision.width(6);
        let signed = matches!(precision, Precision::Int8 | Precision::Binary);
        let number = if signed { "|i1" } else { "|u1" };
        let shape = format!("'descr': '{number}', 'fortran_order': False, 'shape': (4, {width})");
        assert!(str::from_utf8(&bytes[10..128]).unwrap().contains(&shape));
        let number = |&byte: &u8| if signed { i64::from(byte as i8) } else { i64::from(byte) };
        let rows: Vec<Vec<i64>> =
            bytes[128..].chunks(width).map(|row| row.iter().map(number).collect()).collect();
        assert_eq!(json!(rows), json!(codes), "{}", precision.name());
        fs::remove_file(&file).unwrap();
    }
    // Ranges of another width, and another file.
    let other = encoder("roberta");
    let output = embed(&other, &["--to", "int8", "--ranges", &ranges, "a"], "");
    let message = "ranges.npy: expected a NumPy array of float32, (2, 5), in order, found \"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 6), }\"\n";
    assert!(err(&output).ends_with(message), "{}", err(&output));
    place.write("ranges.npy", "numbers");
    let output = embed(&place, &["--to", "int8", "--ranges", &ranges, "a"], "");
    assert!(err(&output).ends_with("in order, found another file\n"), "{}", err(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn several_queries_give_the_scores_of_each_alone() {
    let place = encoder("roberta_cross");
    let queries = ["who lives in the old house?", "", "a river"];
    let texts = ["the old house", "a river is white", "", "nobody", "a river is white"];
    let input: String = texts.iter().map(|text| format!("{text}\n")).collect();
    let alone: Vec<Vec<Value>> =
        queries.iter().map(|query| lines(&rerank(&place, &["--query", query], &input))).collect();
    let named: Vec<&str> = queries.iter().flat_map(|query| ["--query", query]).collect();
    let together = rerank(&place, &named, &input);
    assert_eq!(together.status.code(), Some(0), "{}", err(&together));
    let mut expected = alone.clone();
    for (number, lines) in expected.iter_mut().enumerate() {
        lines.iter_mut().for_each(|line| line["query"] = number.into());
    }
    assert_eq!(lines(&together), expected.concat());
    place.write("queries.txt", queries.join("\n"));
    let file = place.0.join("queries.txt");
    let file = ["--queries", file.to_str().unwrap()];
    assert_eq!(out(&rerank(&place, &file, &input)), out(&together));
    let best = rerank(&place, &[&file[..], &["--top-k", "2"]].concat(), &input);
    let best_two: Vec<Value> = expected.iter().flat_map(|lines| lines[..2].to_vec()).collect();
    assert_eq!(lines(&best), best_two, "{}", err(&best));
    // A pair that is too long is named with its query.
    let long = "the old house ".repeat(30);
    let output = rerank(&place, &["--query", "a", "--query", "b", "b", &long], "");
    let notes: Vec<&str> = err(&output).lines().collect();
    assert!(notes[0].starts_with("simdformer: query 1, text 2: "), "{notes:?}");
    assert!(notes[1].starts_with("simdformer: query 2, text 2: "), "{notes:?}");
    assert_eq!(notes[2], "simdformer: 2 of 4 pairs were not run");
    let last = &lines(&output)[3];
    assert_eq!(
        (&last["query"], &last["index"], &last["score"]),
        (&json!(1), &json!(1), &json!(null))
    );
    place.write("queries.txt", "");
    let none = rerank(&place, &file, &input);
    assert!(err(&none).ends_with("queries.txt: expected at least one query, found none\n"));
}

/// Texts whose scores a sigmoid rounds to one number keep the order of the classifier's output.
#[test]
fn the_order_is_that_of_the_raw_scores() {
    let place = encoder("bert_cross");
    let texts = ["a house", "the river", "white", "many people live here", ""];
    let order = |more: &[&str]| -> Vec<u64> {
        let output = rerank(&place, &[&["--query", "a"][..], more, &texts].concat(), "");
        lines(&output).iter().map(|line| line["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(order(&[]), order(&["--raw"]));
}

#[test]
fn what_a_directory_asks_for_and_is_not_done_is_named() {
    let config = "config_sentence_transformers.json";
    let settings = "sentence_bert_config.json";
    let kwargs = json!({"processing_kwargs": {"text": {"padding": "max_length"}}});
    let message = json!({"modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}, "message": {"method": "forward"}}});
    let pooler = json!({"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}});
    for (files, more, part) in [
        (
            json!({}),
            &["--prompt", "query"][..],
            "prompt_name: expected none, as the directory has no prompts, found query",
        ),
        (
            json!({config: {"prompts": {"document": "", "query": "q: "}}}),
            &["--prompt", "passage"],
            "prompt_name: expected one of the prompts that the directory has (document, query), found passage",
        ),
        (
            json!({config: {"prompts": {"a": "b"}, "default_prompt_name": "c"}}),
            &[],
            "default_prompt_name: expected one of the prompts (a), found \"c\"",
        ),
        (json!({config: {"prompts": ["a"]}}), &[], "prompts: expected an object of names to texts"),
        (
            json!({config: {"prompts": {"a": 1}}}),
            &[],
            "prompts: expected an object of names to texts",
        ),
        (
            json!({config: {"truncate_dim": 0}}),
            &[],
            "dim: expected from 1 to 6 dimensions, as the vectors have, found 0",
        ),
        (
            json!({}),
            &["--dims", "7"],
            "dim: expected from 1 to 6 dimensions, as the vectors have, found 7",
        ),
        (
            json!({settings: {"transformer_task": "text-generation"}}),
            &[],
            "transformer_task: expected feature-extraction, found text-generation",
        ),
        (json!({settings: kwargs}), &[], "processing_kwargs: expected none, found {\"text\""),
        (
            json!({settings: message}),
            &[],
            "modality_config: expected a text, read by forward, for last_hidden_state, found {",
        ),
        (json!({settings: pooler}), &[], "modality_config: expected a text"),
        (
            json!({settings: {"tokenizer_name_or_path": "other"}}),
            &[],
            "tokenizer_name_or_path: expected the tokenizer of the directory, found other",
        ),
    ] {
        let place = directory("bert", &files);
        let output = embed(&place, &[more, &["a"]].concat(), "");
        assert_eq!((out(&output), output.status.code()), ("", Some(1)), "{files}");
        assert!(err(&output).contains(part), "{files}: {}", err(&output));
    }
    let score = "sentence_transformers.cross_encoder.modules.LogitScore";
    let dense = json!([{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}, {"path": "1_Dense", "type": "sentence_transformers.base.modules.dense.Dense"}]);
    for (files, part) in [
        (
            json!({"config.json": {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Softmax"}}}),
            "config.json: sentence_transformers.activation_fn: expected Identity, Sigmoid or Tanh of torch.nn, or raw scores, found \"torch.nn.modules.activation.Softmax\"",
        ),
        (
            json!({"config.json": {"sbert_ce_default_activation_function": "own.Sigmoid"}}),
            "sbert_ce_default_activation_function: expected Identity, Sigmoid or Tanh of torch.nn, or raw scores, found \"own.Sigmoid\"",
        ),
        (
            json!({config: {"activation_fn": 1}}),
            "activation_fn: expected Identity, Sigmoid or Tanh",
        ),
    ] {
        let place = directory("bert_cross", &files);
        let output = rerank(&place, &["--query", "a", "b"], "");
        assert_eq!((out(&output), output.status.code()), ("", Some(1)), "{files}");
        assert!(err(&output).contains(part), "{files}: {}", err(&output));
        // Raw scores need no activation.
        let raw = rerank(&place, &["--query", "a", "b", "--raw"], "");
        assert_eq!(raw.status.code(), Some(0), "{}", err(&raw));
    }
    for (files, part) in [
        (json!({"modules.json": [{"path": "", "type": score}]}), score),
        (
            json!({"modules.json": dense}),
            "modules.json: expected one module, Transformer, as in a cross-encoder, found Transformer, Dense",
        ),
        (json!({"modules.json": [], settings: {}}), "as in a cross-encoder, found none"),
    ] {
        let output = rerank(&directory("bert_cross", &files), &["--query", "a", "b"], "");
        assert_eq!((out(&output), output.status.code()), ("", Some(1)), "{files}");
        assert!(err(&output).contains(part), "{files}: {}", err(&output));
    }
}

#[test]
fn a_prompt_that_leaves_nothing_to_pool_is_reported() {
    let files = json!({
        "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": false},
        "sentence_bert_config.json": {"max_seq_length": 5},
    });
    let place = directory("bert", &files);
    let arguments = ["--prompt-text", "the old river is white ", "a house"];
    // The last of the five tokens is the separator, which is pooled.
    let output = embed(&place, &arguments, "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).starts_with("simdformer: text 1 has "), "{}", err(&output));
    // A tokenizer without special tokens.
    let file = fs::read_to_string(golden("dirs/bert_json/tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&file).unwrap();
    tokenizer["post_processor"] = Value::Null;
    place.write("tokenizer.json", tokenizer.to_string());
    let output = embed(&place, &arguments, "");
    assert_eq!((out(&output), output.status.code()), ("null\n", Some(1)), "{}", err(&output));
    let message = "text 1: the prompt has 5 tokens, and no other is left to be pooled\n";
    assert!(err(&output).contains(message), "{}", err(&output));
}

#[test]
fn the_library_gives_the_lines_of_the_command() {
    let place = encoder("bert");
    let texts = ["a house", "the river is white", ""];
    let embedder = Embedder::open(&place.0).unwrap();
    assert_eq!((embedder.setup().width(), embedder.setup().normalizes()), (6, true));
    let found = embedder.embed(&texts).unwrap();
    let command = lines(&embed(&place, &texts, ""));
    for (found, line) in found.iter().zip(&command) {
        assert_eq!(*found.result.as_ref().unwrap(), floats(line));
    }
    let encoded = embedder.setup().tokenizer().encode(texts[0], &Direction::default()).unwrap();
    assert_eq!((found[0].tokens, found[0].truncated), (encoded.ids.len(), false));
    let place = encoder("bert_cross");
    let reranker = Reranker::open(&place.0).unwrap();
    let found = reranker.score("a", &texts).unwrap();
    for line in lines(&rerank(&place, &[&["--query", "a"][..], &texts].concat(), "")) {
        let pair = &found[line["index"].as_u64().unwrap() as usize];
        let score = line["score"].as_f64().unwrap() as f32;
        assert_eq!(pair.result.as_ref().unwrap().value, score);
    }
}

#[test]
fn the_summary_has_the_prompt_and_the_activation() {
    let config = json!({"config_sentence_transformers.json": {"prompts": {"query": "q: "}, "truncate_dim": 3}});
    let output = embed(&directory("bert", &config), &["--summary", "--prompt", "query", "a"], "");
    assert!(
        err(&output).contains("vectors: mean, 3 numbers\nprompt: \"q: \"\n"),
        "{}",
        err(&output)
    );
    let output = rerank(&encoder("bert_cross"), &["--summary", "--query", "a", "b"], "");
    assert!(err(&output).contains("classifier: one score a pair, Sigmoid\n"), "{}", err(&output));
}
