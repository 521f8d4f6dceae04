//! Pairs of texts: their scores compared with transformers.

use crate::command::{err, out, run_command};
use simdformer_testing::directories::full;
use simdformer_testing::temporary_folder::TemporaryFolder;

use crate::encoders::embed;
use serde_json::Value;
use simdformer_testing::effort::cases;
use simdformer_testing::published::{encoder, expected};

fn rerank(
    place: &TemporaryFolder,
    query: &str,
    more: &[&str],
    input: &str,
) -> std::process::Output {
    let model = place.0.to_str().unwrap();
    run_command(&[&["rerank", "--model", model, "--query", query], more].concat(), input)
}

/// The index and the score of each line.
fn scores(output: &std::process::Output) -> Vec<(usize, f64)> {
    let lines = out(output).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| (line["index"].as_u64().unwrap() as usize, line["score"].as_f64().unwrap()))
        .collect()
}

#[test]
fn scores_match_transformers() {
    for name in ["bert_cross", "roberta_cross"] {
        let place = encoder(name);
        let rows = expected(name);
        let mut queries: Vec<&str> =
            rows.iter().map(|row| row["query"].as_str().unwrap()).collect();
        queries.sort();
        queries.dedup();
        let mut cut = 0;
        for query in queries {
            let rows: Vec<&Value> = rows.iter().filter(|row| row["query"] == query).collect();
            let input: String =
                rows.iter().map(|row| format!("{}\n", row["text"].as_str().unwrap())).collect();
            let output = rerank(&place, query, &["--truncate", "--raw"], &input);
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
            let found = scores(&output);
            assert_eq!(found.len(), rows.len(), "{name}");
            assert!(found.is_sorted_by(|(_, a), (_, b)| a >= b), "{found:?}");
            for (index, score) in found {
                let row = rows[index];
                let expected = row.get("score").or(row.get("cut")).unwrap().as_f64().unwrap();
                assert!((score - expected).abs() <= 1e-5, "{name} {row}: {score}");
            }
            // A truncated text is reported. Without the option to truncate it is not run and
            // comes last.
            let long = rows.iter().filter(|row| row.get("cut").is_some()).count();
            assert_eq!(err(&output).lines().count(), long, "{}", err(&output));
            assert_eq!(err(&output).matches(" tokens and were cut\n").count(), long);
            let output = rerank(&place, query, &[], &input);
            let lines: Vec<Value> =
                out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines.len(), rows.len());
            for (i, line) in lines.iter().enumerate() {
                let last = i + long >= rows.len();
                assert_eq!((line["score"].is_null(), line.get("error").is_some()), (last, last));
                let index = line["index"].as_u64().unwrap() as usize;
                assert_eq!(rows[index].get("cut").is_some(), last);
            }
            assert_eq!(output.status.code(), Some(i32::from(long > 0)), "{}", err(&output));
            cut += long;
        }
        assert!(cut > 5, "{name}: {cut}");
    }
}

/// Alone, in a batch of all, three at a time, and on any number of threads: the same bits.
#[test]
fn a_score_does_not_depend_on_the_batch() {
    for name in ["bert_cross", "roberta_cross"] {
        let place = encoder(name);
        let rows = expected(name);
        let query = "who lives in the old house?";
        let texts: Vec<&str> = rows.iter().map(|row| row["text"].as_str().unwrap()).collect();
        let input: String = texts.iter().map(|text| format!("{text}\n")).collect();
        let all = rerank(&place, query, &["--truncate"], &input);
        assert_eq!(out(&all).lines().count(), rows.len(), "{}", err(&all));
        for more in [&["--slots", "1"][..], &["--slots", "3"], &["--threads", "2"]] {
            let other = rerank(&place, query, &[&["--truncate"], more].concat(), &input);
            assert_eq!(out(&all), out(&other), "{name} {more:?}");
        }
        for line in out(&all).lines().step_by(cases(15, 5)) {
            let index = serde_json::from_str::<Value>(line).unwrap()["index"].as_u64().unwrap();
            let alone = rerank(&place, query, &["--truncate", "--", texts[index as usize]], "");
            let alone = out(&alone).replace("\"index\":0,", &format!("\"index\":{index},"));
            assert_eq!(alone.trim_end(), line, "{name}");
        }
    }
    // Equal scores keep the order of their texts.
    let place = encoder("bert_cross");
    let output = rerank(&place, "a", &["same", "other", "same", "same"], "");
    let order: Vec<usize> = scores(&output).iter().map(|(index, _)| *index).collect();
    assert!(order == [1, 0, 2, 3] || order == [0, 2, 3, 1], "{order:?}");
}

#[test]
fn a_model_without_a_classifier_is_an_error() {
    let place = encoder("roberta");
    let output = rerank(&place, "a", &["b"], "");
    let message =
        "simdformer: expected a model with a classifier, as cross-encoders have, found none\n";
    assert_eq!((err(&output), output.status.code()), (message, Some(1)));
    let output = embed(&encoder("roberta_cross"), &["b"], "");
    assert!(err(&output).starts_with("simdformer: no modules.json"), "{}", err(&output));
    let output = rerank(&full("t5_json"), "a", &["b"], "");
    let message = "simdformer: expected a tokenizer of pairs (BERT, DistilBERT, MPNet, RoBERTa, XLM-R), found T5\n";
    assert_eq!((err(&output), output.status.code()), (message, Some(1)));
}

/// A directory of a tokenizer without a model: the command names what is missing.
#[test]
fn a_directory_without_a_model_is_an_error() {
    let output = rerank(&full("bert"), "a", &["b"], "");
    assert_eq!((out(&output), output.status.code()), ("", Some(1)), "{}", err(&output));
}
