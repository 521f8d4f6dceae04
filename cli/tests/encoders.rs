//! Vectors compared with those of transformers. They do not depend on the other texts of a batch.

use crate::command::{err, out, run_command};
use serde_json::Value;
use simdformer_testing::effort::cases;
use simdformer_testing::published::french;
use simdformer_testing::published::{encoder, expected};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::path::PathBuf;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

pub fn embed(place: &TemporaryFolder, more: &[&str], input: &str) -> std::process::Output {
    run_command(&[&["embed", "--model", place.0.to_str().unwrap()], more].concat(), input)
}

fn input(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{}\n", row["text"].as_str().unwrap())).collect()
}

#[test]
fn vectors_match_transformers() {
    // BERT states the longest text. RoBERTa has a limited number of positions, and the caller requests
    // truncation.
    for (name, most, more) in [("bert", 24, &[][..]), ("roberta", 48, &["--truncate"])] {
        let place = encoder(name);
        let rows = expected(name);
        let output = embed(&place, more, &input(&rows));
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let lines: Vec<&str> = out(&output).lines().collect();
        assert_eq!(lines.len(), rows.len());
        let mut cut = String::new();
        for (i, (line, row)) in lines.iter().zip(&rows).enumerate() {
            let found = numbers(&serde_json::from_str(line).unwrap());
            let expected = numbers(&row["vector"]);
            assert_eq!(found.len(), expected.len(), "{name} {i}");
            let largest = expected.iter().fold(0f64, |most, x| most.max(x.abs()));
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error <= 2e-5 * largest, "{name} {i}: {found}, {expected}");
            }
            let tokens = row["tokens"].as_u64().unwrap();
            if tokens > most {
                cut += &format!("simdformer: text {} has {tokens} tokens and was cut\n", i + 1);
            }
        }
        assert!(cut.lines().count() > 3 && err(&output) == cut, "{name}: {}", err(&output));
    }
}

/// Alone, in a batch of all, two at a time, and on any number of threads: the same bits, in the order of
/// the texts.
#[test]
fn a_vector_does_not_depend_on_the_batch() {
    for name in ["bert", "roberta"] {
        let place = encoder(name);
        let rows = expected(name);
        let lines = input(&rows);
        let all = embed(&place, &["--truncate"], &lines);
        assert_eq!(out(&all).lines().count(), rows.len(), "{}", err(&all));
        for more in [&["--slots", "1"][..], &["--slots", "5"], &["--threads", "2"]] {
            let other = embed(&place, &[&["--truncate"], more].concat(), &lines);
            assert_eq!(out(&all), out(&other), "{name} {more:?}");
        }
        // The shortest decimals that give the same bits are printed, so equal lines mean equal
        // bits.
        for (i, line) in out(&all).lines().enumerate().step_by(cases(12, 4)) {
            let alone = embed(&place, &["--truncate", "--", rows[i]["text"].as_str().unwrap()], "");
            assert_eq!(out(&alone).trim_end(), line, "{name} {i}");
        }
    }
}

#[test]
fn a_text_that_is_too_long_is_not_run() {
    let place = encoder("roberta");
    let long = "the old house ".repeat(30);
    let output = embed(&place, &["a house", &long, "the river"], "");
    let lines: Vec<&str> = out(&output).lines().collect();
    assert_eq!((lines.len(), lines[1], output.status.code()), (3, "null", Some(1)));
    assert!(lines[0].starts_with('[') && lines[2].starts_with('['), "{lines:?}");
    let notes = err(&output);
    assert!(
        notes.starts_with("simdformer: text 2: ") && notes.ends_with("1 of 3 texts were not run\n")
    );
    assert!(notes.contains("tokens, the model takes 48; --truncate cuts it\n"), "{notes}");
    // A longest length that exceeds the positions of the model cuts nothing.
    place.write("sentence_bert_config.json", r#"{"max_seq_length": 512}"#);
    let output = embed(&place, &[&long], "");
    assert_eq!((out(&output), output.status.code()), ("null\n", Some(1)), "{}", err(&output));
    place.write("sentence_bert_config.json", r#"{"max_seq_length": 7}"#);
    let output = embed(&place, &[&long], "");
    assert!(err(&output).ends_with("tokens and was cut\n"), "{}", err(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_file_for_numpy_holds_the_same_numbers() {
    let place = encoder("roberta");
    let file = place.0.join("vectors.npy");
    let texts = ["a house", &"the old house ".repeat(30), "", "the river"];
    let output = embed(&place, &[&["--npy", file.to_str().unwrap()][..], &texts].concat(), "");
    assert_eq!((out(&output), output.status.code()), ("", Some(1)), "{}", err(&output));
    let bytes = fs::read(&file).unwrap();
    assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
    let header = str::from_utf8(&bytes[10..128]).unwrap();
    let said = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 5), }";
    assert!(header.starts_with(said) && header.ends_with(" \n"), "{header:?}");
    let rows: Vec<f32> =
        bytes[128..].chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
    assert_eq!(rows.len(), 4 * 5);
    let lines = embed(&place, &texts, "");
    for (row, line) in rows.chunks(5).zip(out(&lines).lines()) {
        match serde_json::from_str::<Option<Vec<f32>>>(line).unwrap() {
            Some(vector) => assert_eq!(row, vector),
            None => assert!(row.iter().all(|x| x.is_nan())),
        }
    }
    // No text gives no rows.
    let output = embed(&place, &["--npy", file.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.len() == 128 && str::from_utf8(&bytes[10..]).unwrap().contains("(0, 5)"));
}

#[test]
fn a_table_has_the_cosine_of_each_with_each() {
    let place = encoder("bert");
    let texts = ["a house", "the river is white", "a house"];
    let output = embed(&place, &[&["--table"][..], &texts].concat(), "");
    let lines: Vec<Vec<&str>> =
        out(&output).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["1", "2", "3"], "{}", err(&output));
    let vectors = embed(&place, &texts, "");
    let vectors: Vec<Vec<f64>> =
        out(&vectors).lines().map(|line| numbers(&serde_json::from_str(line).unwrap())).collect();
    for (i, (line, a)) in lines[1..].iter().zip(&vectors).enumerate() {
        assert_eq!(line[0], (i + 1).to_string());
        for (cell, b) in line[1..4].iter().zip(&vectors) {
            let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let product: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            assert_eq!(*cell, format!("{:.4}", product / length(a) / length(b)));
        }
        assert_eq!(line[4..].join(" "), texts[i]);
    }
    assert_eq!((lines[1][1], lines[1][3]), ("1.0000", "1.0000"));
    assert_ne!(lines[1][2], "1.0000");
}

#[test]
fn a_directory_without_modules_gives_the_mean_and_a_message() {
    let place = encoder("bert");
    let unit = embed(&place, &["a house"], "");
    let remove = |file: &str| fs::remove_file(place.0.join(file)).unwrap();
    remove("modules.json");
    let mean = embed(&place, &["a house"], "");
    let note = "simdformer: no modules.json: a vector is the mean of its text's tokens\n";
    assert_eq!((err(&unit), err(&mean)), ("", note));
    let [unit, mean] =
        [&unit, &mean].map(|output| numbers(&serde_json::from_str(out(output)).unwrap()));
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((length - 1.0).abs() > 0.01, "{length}");
    for (unit, mean) in unit.iter().zip(&mean) {
        assert!((unit - mean / length).abs() <= 1e-6, "{unit}, {mean}, {length}");
    }
}

/// sentence-transformers may store the transformer and its tokenizer in a folder.
#[test]
fn a_transformer_in_a_folder_is_run() {
    let place = encoder("roberta");
    let flat = embed(&place, &["a house"], "");
    let inside = place.0.join("0_Transformer");
    fs::create_dir(&inside).unwrap();
    for entry in fs::read_dir(&place.0).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_file() && !path.ends_with("modules.json") {
            fs::rename(&path, inside.join(path.file_name().unwrap())).unwrap();
        }
    }
    let modules = fs::read_to_string(place.0.join("modules.json")).unwrap();
    place.write("modules.json", modules.replacen(r#""path": """#, r#""path": "0_Transformer""#, 1));
    let folder = embed(&place, &["a house"], "");
    assert_eq!(out(&flat), out(&folder), "{}", err(&folder));
    assert!(out(&flat).starts_with('['));
    let shown = run_command(&["show", "--model", place.0.to_str().unwrap()], "");
    assert!(out(&shown).contains("text: ByteLevel"), "{}", err(&shown));
}

/// Without a `config.json` beside it, `modules.json` names the folder of the tokenizer.
#[test]
fn a_list_of_modules_is_a_small_regular_file() {
    let place = TemporaryFolder::new("modules");
    let path = place.0.join("modules.json");
    let show = || {
        let output = run_command(&["show", "--model", place.0.to_str().unwrap()], "");
        assert_eq!(output.status.code(), Some(1));
        err(&output).to_owned()
    };
    let module =
        r#"[{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]"#;
    place.write("modules.json", format!("{module}{}", " ".repeat(1 << 16)));
    let found = module.len() + (1 << 16);
    let message = format!("modules.json: expected at most 65536 bytes, found {found}");
    assert!(show().contains(&message), "{}", show());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(
        show().contains("modules.json: expected a regular file, found a directory"),
        "{}",
        show()
    );
    #[cfg(unix)]
    {
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(show().contains("modules.json: expected a regular file"), "{}", show());
    }
}

/// Of an encoder-decoder only the encoder is used.
#[test]
fn the_encoder_of_an_encoder_decoder_is_run() {
    use simdformer::{Limits, Model, Session};
    let place = french();
    let output = embed(&place, &["quel mois", "je suis étudiant"], "");
    let tokenizer = simdformer_text::Tokenizer::from_dir(&place.0).unwrap();
    let model = Model::open(&place.0).unwrap();
    let width = model.config().d_model;
    let mut session = Session::new(&model, Limits::new(1, 16, 1)).unwrap();
    let lines: Vec<&str> = out(&output).lines().collect();
    assert_eq!(lines.len(), 2, "{}", err(&output));
    for (text, line) in ["quel mois", "je suis étudiant"].iter().zip(lines) {
        let ids = tokenizer.encode(text, &Default::default()).unwrap().ids;
        let hidden = session.encoder_output(&[&ids]).unwrap();
        let vector: Vec<f32> = serde_json::from_str(line).unwrap();
        assert_eq!(vector.len(), width);
        for (column, &found) in vector.iter().enumerate() {
            let sum: f64 = hidden[column..].iter().step_by(width).map(|&x| f64::from(x)).sum();
            assert_eq!(found, (sum / ids.len() as f64) as f32);
        }
    }
}

#[test]
fn the_loaded_model_is_printed() {
    for (name, line) in [
        ("bert", "vectors: mean, 6 numbers, of length 1\n"),
        ("roberta", "vectors: cls, 5 numbers\n"),
    ] {
        let place = encoder(name);
        let output = embed(&place, &["--summary", "a"], "");
        assert!(err(&output).contains(line), "{}", err(&output));
        assert!(!err(&output).contains("asks for"), "{}", err(&output));
    }
}
