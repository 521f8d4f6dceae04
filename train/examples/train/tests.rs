//! The command line of the example `train`, the files that it writes, and how it resumes.

use super::arguments::Arguments;
use super::command;
use super::metrics::curve;
use clap::{CommandFactory, Parser};
use simdformer::{Model, Threads};
use simdformer_testing::gradient_goldens::{Golden, goldens};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::path::Path;

fn run(words: &[&str]) -> Result<(), String> {
    let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
    command(&arguments, &Threads::Serial).map_err(|error| error.to_string())
}

#[test]
fn wrong_command_lines_are_errors() {
    for (words, part) in [
        (&["--steps"][..], "a value is required for '--steps <N>'"),
        (&["--steps", "many"], "invalid value 'many' for '--steps <N>'"),
        (&["--step", "3"], "unexpected argument '--step' found"),
        (&["3"], "unexpected argument '3' found"),
        (&["--steps", "3", "--steps", "4"], "'--steps <N>' cannot be used multiple times"),
        (&["--batch-tokens", "3", "--batch-sentences", "4"], "'--batch-tokens <N>' cannot be used"),
        (&["--batch-tokens", "3", "--batches", "x"], "cannot be used with '--batch"),
        (&["--schedule", "noam"], "[possible values: paper, inverse-square-root"),
        (&["--betas", "0.9"], "expected two numbers with a comma"),
        (&["--keep", "0"], "expected a whole number from 1 up"),
        (&["--isa", "altivec"], "unknown instruction set"),
        (&["--data", "x"], "not provided:\n  <--model <DIR>|--gradients <FILE>|--benchmark>"),
        (&["--gradients", "x"], "not provided:\n  --data <FILE>"),
        (&["--benchmark"], "not provided:\n  --data <FILE>"),
        (&["--data", "x", "--gradients", "x", "--benchmark"], "cannot be used with '--benchmark'"),
        (&["--average", "x,y"], "not provided:\n  --model <DIR>"),
        (&["--init-from", "x", "--config", "y"], "cannot be used with '--config <DIR_OR_FILE>'"),
        (&["--init-from", "x", "--init", "glorot"], "cannot be used with '--init <INIT>'"),
        (&["--features", "x", "--model", "y"], "not provided:\n  --data <FILE>"),
        (
            &["--features", "x", "--model", "y", "--data", "z", "--test", "t"],
            "'--features <FILE>' cannot be used with '--test <FILE>'",
        ),
    ] {
        let error = Arguments::try_parse_from(words).expect_err(part);
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(part), "{error}");
    }
    let missing =
        run(&["--data", "nowhere.jsonl", "--model", "../models/fr-en"]).expect_err("no file");
    assert!(missing.contains("nowhere.jsonl"), "{missing}");
    let nothing = run(&["--data", "x", "--model", "nowhere"]).expect_err("no weights");
    assert!(nothing.contains("--init-from DIR"), "{nothing}");
}

/// A setting of `config.json` that has another type is an error, and no default.
#[test]
fn settings_that_cannot_be_read_are_errors() {
    let goldens = goldens();
    let golden = goldens.iter().find(|golden| golden.name.starts_with("marian")).expect("Marian");
    let data = golden.folder.join("batch.jsonl").display().to_string();
    let text = fs::read_to_string(golden.folder.join("config.json")).expect("a configuration");
    let folder = TemporaryFolder::new("settings");
    let (config, model) = (folder.path().join("config.json"), folder.path().join("run"));
    let (config, model) = (config.display().to_string(), model.display().to_string());
    let train = |key: &str, value: &str| {
        let mut keys: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        keys[key] = serde_json::from_str(value).expect("a value");
        fs::write(&config, keys.to_string()).expect("a file");
        let words = ["--model", &model, "--config", &config, "--data", &data];
        run(&[&words[..], &["--steps", "1", "--batch-sentences", "6"]].concat())
    };
    for key in ["dropout", "attention_dropout", "activation_dropout", "init_std"] {
        for value in ["\"0.1\"", "true", "[0.1]"] {
            let error = train(key, value).expect_err(value);
            assert!(error.contains(key) && error.contains("a number"), "{key}: {error}");
        }
    }
    train("dropout", "0.1").expect("a step");
}

#[test]
fn options_are_consistent() {
    Arguments::command().debug_assert();
}

/// The names, shapes and values of PyTorch's gradients. Nothing else is written.
#[test]
fn gradients_have_the_names_and_the_layout_of_the_file() {
    let folder = TemporaryFolder::new("gradients");
    for golden in goldens() {
        let file = folder.path().join("gradients.safetensors");
        let text = |path: &Path| path.display().to_string();
        let smoothing = golden.smoothing().to_string();
        let (model, data) = (text(&golden.folder), text(&golden.folder.join("batch.jsonl")));
        let (file_of_features, gradients) =
            (text(&golden.folder.join("features.safetensors")), text(&file));
        let mut words = vec![
            "--model",
            &model,
            "--init-from",
            &model,
            "--data",
            &data,
            "--steps",
            "1",
            "--batch-sentences",
            "6",
            "--label-smoothing",
            &smoothing,
            "--dropout",
            "0",
            "--attention-dropout",
            "0",
            "--activation-dropout",
            "0",
            "--gradients",
            &gradients,
        ];
        if golden.sentences[0].features.is_some() {
            words.extend(["--features", &file_of_features]);
        }
        run(&words).expect("gradients");
        let bytes = fs::read(&file).expect("a file");
        let found = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
        let weights = fs::read(golden.folder.join("model.safetensors")).expect("weights");
        let weights = safetensors::SafeTensors::deserialize(&weights).expect("safetensors");
        let largest = golden.gradients.values().flatten().fold(0.0f64, |most, x| most.max(x.abs()));
        let mut names = 0;
        for (name, tensor) in found.iter().filter(|(name, _)| *name != "loss") {
            let Some(expected) = golden.gradients.get(name) else {
                panic!("{}: {name} is in no golden", golden.name)
            };
            let shape = weights.tensor(name).expect("a weight").shape().to_vec();
            assert_eq!(tensor.shape(), shape, "{} {name}", golden.name);
            let numbers = tensor.data().chunks_exact(4);
            let numbers = numbers.map(|x| f32::from_le_bytes(x.try_into().expect("four bytes")));
            for (found, expected) in numbers.zip(expected) {
                let error = (f64::from(found) - expected).abs();
                assert!(error <= 1e-5 * largest, "{} {name}: {error} of {largest}", golden.name);
            }
            names += 1;
        }
        assert_eq!(names, golden.gradients.len(), "{}", golden.name);
        let loss = found.tensor("loss").expect("a loss");
        let loss = f64::from_le_bytes(loss.data().try_into().expect("eight bytes"));
        let expected = golden.expected["loss"][&smoothing]["f64"].as_f64().expect("a loss");
        assert!((loss - expected).abs() <= 2e-6 * expected, "{}: {loss} {expected}", golden.name);
        assert_eq!(fs::read_dir(folder.path()).expect("files").count(), 1);
    }
}

/// A command ends after its number of steps. With more steps the same command resumes, and the result is
/// that of a run without an interruption.
#[test]
fn the_same_command_resumes() {
    let goldens = goldens();
    resumes(&goldens[0]);
    // A model that reads features has no validation data here.
    resumes(goldens.iter().find(|golden| golden.name == "whisper").expect("a golden"));
}

fn resumes(golden: &Golden) {
    let text = |path: &Path| path.display().to_string();
    let (init, data) = (text(&golden.folder), text(&golden.folder.join("batch.jsonl")));
    let file_of_features = text(&golden.folder.join("features.safetensors"));
    let more = match golden.sentences[0].features {
        Some(_) => ["--features", &file_of_features, "--keep", "3"],
        None => ["--validate", &data, "--test", &data],
    };
    let [once, twice] = ["once", "twice"].map(TemporaryFolder::new);
    let train = |folder: &TemporaryFolder, steps: &str| {
        let model = text(folder.path());
        let mut words = vec![
            "--data",
            &data,
            "--model",
            &model,
            "--init-from",
            &init,
            "--steps",
            steps,
            "--batch-sentences",
            "4",
            "--report-every",
            "1",
            "--save-every",
            "2",
            "--validate-every",
            "2",
            "--ema",
            "0.9",
            "--dropout",
            "0.1",
            "--schedule",
            "constant",
            "--warmup-steps",
            "2",
            "--learning-rate",
            "0.001",
        ];
        words.extend(more);
        run(&words)
    };
    train(&once, "6").expect("a run");
    train(&twice, "3").expect("half a run");
    train(&twice, "6").expect("the rest");
    for file in [
        "model.safetensors",
        "checkpoints/step-6/model.safetensors",
        "checkpoints/step-6/trainer.safetensors",
    ] {
        let [a, b] = [&once, &twice].map(|folder| fs::read(folder.path().join(file)).expect(file));
        assert!(a == b, "{file}");
    }
    Model::open(twice.path()).expect("a model");
    // A run that has ended says so and changes nothing.
    let before = fs::read(twice.path().join("model.safetensors")).expect("weights");
    train(&twice, "6").expect("nothing");
    assert!(before == fs::read(twice.path().join("model.safetensors")).expect("weights"));
    let lines = fs::read_to_string(twice.path().join("metrics.jsonl")).expect("metrics");
    let steps: Vec<u64> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|line| line["rate"].is_f64())
        .map(|line| line["step"].as_u64().expect("a step"))
        .collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
    let svg = fs::read_to_string(twice.path().join("loss.svg")).expect("a curve");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    let folder = text(twice.path());
    // While another run has the directory locked, nothing in it changes.
    let lock = fs::File::open(twice.path().join("train.lock")).expect("the lock");
    lock.try_lock().expect("nobody has it");
    let error = train(&twice, "8").expect_err("it is locked");
    assert!(error.contains("is locked by another run"), "{error}");
    assert!(lines == fs::read_to_string(twice.path().join("metrics.jsonl")).expect("metrics"));
    drop(lock);
    train(&twice, "8").expect("two more");
    let no = ["--data", &data, "--model", &folder, "--resume", "no"];
    let error = run(&no).expect_err("there are saves");
    assert!(error.contains("checkpoints is of another run"), "{error}");
}

/// Every point of a curve is inside of the page, for all losses.
#[test]
fn curves_stay_on_their_page() {
    let long: Vec<(u64, f64)> = (1..500).map(|i| (i * 7, 9.0 / i as f64 + 0.3)).collect();
    for (learned, held_out) in [
        (&long[..], &[(700u64, 0.5f64), (1400, 0.4)][..]),
        (&[(1, 2.0), (2, 2.0)], &[]),
        (&[(1, f64::NAN), (2, 1.0), (3, f64::INFINITY), (4, 2.0)], &[]),
        (&[], &[]),
    ] {
        let svg = curve(learned, held_out);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        for path in svg.split("<path d=\"M").skip(1) {
            let path = path.split('"').next().unwrap_or("");
            let numbers = path.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
            for x in numbers.filter(|x| !x.is_empty()) {
                let x: f64 = x.parse().expect("a number");
                assert!((0.0..=900.0).contains(&x), "{x} in {path}");
            }
        }
    }
}
