//! Corpora, batches, learning rates and configurations.

use super::runs::{corpus, options};
use super::support::{OpenTrainer, limits};
use simdformer::Features;
use simdformer::kernels::Isa;
use simdformer::train::Schedule;
use simdformer_testing::gradient_goldens::goldens;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_train::{
    BatchSize, Batching, Corpus, Layout, Reading, RunOptions, TrainEvent, TrainingRun, Words,
};
use std::collections::BTreeMap;

fn words() -> Words {
    let map = |words: &[(&str, u32)]| -> BTreeMap<String, u32> {
        words.iter().map(|&(word, id)| (word.to_owned(), id)).collect()
    };
    Words::new(map(&[("un", 2), ("chat", 3)]), map(&[("a", 4), ("cat", 5)]))
}

fn read(text: &str) -> Result<Corpus, String> {
    let words = words();
    let reading = Reading {
        words: Some(&words),
        end: Some(0),
        source_length: 4,
        target_length: 3,
        vocabularies: [9, 8],
    };
    Corpus::from_lines(text.as_bytes(), "lines.jsonl", &reading).map_err(|error| error.to_string())
}

#[test]
fn lines_have_ids_or_tokens() {
    let corpus = read(
        "{\"source\": \"un chat\", \"target\": \"a cat\"}\n\n\
         {\"source\": \"un\", \"source_ids\": [8, 8, 0], \"target\": \"a\", \"more\": {}}\r\n\
         {\"source_ids\": [1, 1, 1, 1, 0], \"target_ids\": [0]}\n\
         {\"target_ids\": [7, 0], \"source_ids\": [8]}",
    )
    .expect("a corpus");
    let found: Vec<_> =
        corpus.pairs().map(|pair| (pair.source.to_vec(), pair.target.to_vec())).collect();
    let expected =
        [(vec![2, 3, 0], vec![4, 5, 0]), (vec![8, 8, 0], vec![4, 0]), (vec![8], vec![7, 0])];
    assert_eq!(found, expected);
    assert_eq!((corpus.too_long(), corpus.tokens(), corpus.longest()), (1, 14, [3, 3]));
    assert!(corpus.pairs().map(|pair| pair.id).eq(0..3));
}

#[test]
fn bad_lines_are_named_by_number() {
    let good = "{\"source_ids\": [1], \"target_ids\": [2]}\n";
    for (line, part) in [
        ("{\"source_ids\": [1]}", "neither \"target_ids\" nor \"target\""),
        (
            "{\"source_ids\": [9], \"target_ids\": [2]}",
            "expected ids below 9 in the source, found 9",
        ),
        (
            "{\"source_ids\": [1], \"target_ids\": [8]}",
            "expected ids below 8 in the target, found 8",
        ),
        ("{\"source_ids\": [], \"target_ids\": [2]}", "found no source"),
        (
            "{\"source\": \"un chien\", \"target_ids\": [2]}",
            "expected words of the vocabulary in \"source\", found \"chien\"",
        ),
        ("{\"source_ids\": [-1], \"target_ids\": [2]}", "found another line: invalid value"),
        ("[1, 2]", "found another line: invalid"),
        ("{\"source_ids\": [1], \"target_ids\": [2]", "found another line: EOF"),
        ("{\"source_ids\": [1], \"target_ids\": [2]}}", "found another line: trailing"),
    ] {
        let error = read(&format!("{good}\n{line}\n{good}")).expect_err(line);
        assert!(error.starts_with("lines.jsonl, line 3: ") && error.contains(part), "{error}");
    }
    assert_eq!(read("\n").expect_err("nothing"), "lines.jsonl: expected a sentence, found none");
    let long = read("{\"source_ids\": [1, 1, 1, 1, 1], \"target_ids\": [2]}").expect_err("long");
    assert!(long.contains("all 1 are too long"), "{long}");
}

/// The sentences of each step of a run, found by the tokens and ids that the run has seen.
fn sentences(batching: Batching, seed: u64, epochs: u64) -> Vec<(u64, u64, f64)> {
    let golden = &goldens()[0];
    let data = corpus(golden, 40, 1);
    let options = RunOptions {
        batching,
        seed,
        steps: None,
        epochs: Some(epochs),
        validate_every: 0,
        ..options()
    };
    let mut run =
        TrainingRun::new(golden.trainer(Isa::best(), limits()), &data, options).expect("a run");
    let mut steps = Vec::new();
    loop {
        match run.next().expect("an event") {
            TrainEvent::Step(step) => {
                steps.push((step.source_tokens, step.totals.tokens, step.epoch))
            }
            TrainEvent::Finished(_) => return steps,
            _ => {}
        }
    }
}

/// An epoch has every sentence once, in another order than the next epoch, and the order is reproducible.
#[test]
fn an_epoch_has_every_sentence_once() {
    let golden = &goldens()[0];
    let data = corpus(golden, 40, 1);
    let all = |tokens: &[(u64, u64, f64)]| {
        let sum = |side: fn(&(u64, u64, f64)) -> u64| tokens.iter().map(side).sum::<u64>();
        sum(|step| step.0) + sum(|step| step.1)
    };
    for batching in [
        Batching::Shuffled { size: BatchSize::Sentences(7), pool: 0 },
        Batching::Shuffled { size: BatchSize::Tokens(30), pool: 0 },
        Batching::Shuffled { size: BatchSize::Tokens(30), pool: 13 },
        Batching::InOrder { size: BatchSize::Sentences(7) },
    ] {
        let once = sentences(batching.clone(), 1, 1);
        assert_eq!(all(&once), data.tokens() as u64, "{batching:?}");
        let twice = sentences(batching.clone(), 1, 2);
        assert_eq!(twice[..once.len()], once[..]);
        assert_eq!(all(&twice), 2 * data.tokens() as u64, "{batching:?}");
        assert_eq!(twice.last().map(|step| step.2), Some(2.0));
        if let Batching::Shuffled { size, .. } = batching {
            let tokens = |steps: &[(u64, u64, f64)]| -> Vec<_> {
                steps.iter().map(|s| (s.0, s.1)).collect()
            };
            assert!(tokens(&once) != tokens(&twice[once.len()..]), "{batching:?}");
            assert!(once != sentences(batching.clone(), 2, 1), "{batching:?}");
            match size {
                BatchSize::Tokens(most) => {
                    assert!(once.iter().all(|step| step.0.max(step.1) <= most as u64))
                }
                BatchSize::Sentences(_) => assert_eq!(once.len(), 6),
            }
        }
    }
    let listed = sentences(Batching::Listed(vec![vec![3, 1], vec![0]]), 1, 1);
    let tokens = |number: usize| {
        let pair = data.pair(number).expect("a sentence");
        [pair.source.len() as u64, pair.target.len() as u64]
    };
    let [[a, b], [c, d], [e, f]] = [tokens(3), tokens(1), tokens(0)];
    assert_eq!(listed, [(a + c, b + d, 0.5), (e, f, 1.0)]);
}

/// Steps are counted from 1: the first step has a learning rate, and the largest rate is at the end of the
/// warmup.
#[test]
fn trap_17_the_first_step_has_a_rate() {
    let golden = &goldens()[0];
    let data = corpus(golden, 40, 1);
    let rates = |schedule| {
        let options = RunOptions { schedule, steps: Some(9), validate_every: 0, ..options() };
        let mut run =
            TrainingRun::new(golden.trainer(Isa::best(), limits()), &data, options).expect("a run");
        let mut rates = Vec::new();
        loop {
            match run.next().expect("an event") {
                TrainEvent::Step(step) => rates.push(step.rate),
                TrainEvent::Finished(_) => return rates,
                _ => {}
            }
        }
    };
    let linear = rates(Schedule::Linear { peak: 1.0, warmup: 4, steps: 8, last: 0.0 });
    assert_eq!(linear, [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
    let root = rates(Schedule::InverseSquareRoot { peak: 1.0, warmup: 4 });
    assert_eq!(root[..4], [0.25, 0.5, 0.75, 1.0]);
    assert!((root[8] - 2.0 / 3.0).abs() < 1e-15);
    let paper = rates(Schedule::Paper { d_model: 512, factor: 1.0, warmup: 4 });
    let [first, peak, next] = [paper[0], paper[3], paper[4]];
    assert!(first > 0.0 && first.is_finite());
    assert!((peak - (512.0f64 * 4.0).powf(-0.5)).abs() < 1e-12);
    assert!((first - peak / 4.0).abs() < 1e-12 && next < peak);
    assert_eq!(rates(Schedule::Constant { peak: 0.5, warmup: 0 }), [0.5; 9]);
}

/// A line belongs to the next features, whether the line is used or not, and it has no source.
#[test]
fn lines_with_features_have_only_targets() {
    let reading = Reading {
        words: None,
        end: Some(0),
        source_length: 3,
        target_length: 3,
        vocabularies: [0, 8],
    };
    let frames: Vec<f32> = (0..18).map(|i| i as f32).collect();
    // Seven frames are four positions.
    let features = [&frames[..10], &frames[..14], &frames[..18][8..]].map(|x| Features::new(x, 2));
    let read = |text: &str| {
        Corpus::from_lines_of_features(text.as_bytes(), "lines", &reading, &features)
            .map_err(|error| error.to_string())
    };
    let line = "{\"target_ids\": [5, 0]}";
    let corpus = read(&format!("{line}\n\n{line}\n{line}\n")).expect("a corpus");
    assert_eq!((corpus.len(), corpus.too_long(), corpus.longest()), (2, 1, [3, 2]));
    assert_eq!(corpus.tokens(), 3 + 3 + 4);
    for (pair, features) in corpus.pairs().zip([features[0], features[2]]) {
        assert_eq!((pair.features, pair.source_len()), (Some(features), 3));
        assert_eq!((pair.source, pair.target), (&[][..], &[5, 0][..]));
    }
    let mut others = Corpus::default();
    features.iter().for_each(|features| others.push_features(*features, &[5, 0]));
    assert_ne!(corpus.fingerprint(), others.fingerprint());
    for (text, part) in [
        (format!("{line}\n{line}\n"), "line 3: expected a line for all features"),
        (format!("{line}\n{line}\n{line}\n{line}\n"), "line 4: expected features for each line"),
        ("{\"source_ids\": [1], \"target_ids\": [5]}".to_owned(), "expected no source beside"),
        ("{\"target_ids\": [8]}".to_owned(), "expected ids below 8 in the target, found 8"),
    ] {
        let error = read(&text).expect_err(part);
        assert!(error.contains(part), "{error}");
    }
}

/// A pipe is not opened, because opening it would wait for a writer.
#[cfg(unix)]
#[test]
fn a_configuration_is_a_small_regular_file() {
    let text = std::fs::read_to_string("../models/fr-en/config.json").expect("a configuration");
    for (name, what, message) in [
        ("config.json", "pipe", "config.json: expected a regular file"),
        ("generation_config.json", "pipe", "generation_config.json: expected a regular file"),
        ("config.json", "large", "config.json: expected at most 2097152 bytes"),
        (
            "generation_config.json",
            "large",
            "generation_config.json: expected at most 2097152 bytes",
        ),
        ("config.json", "none", "config.json"),
    ] {
        let folder = TemporaryFolder::new("configuration");
        let path = folder.path().join(name);
        if name != "config.json" {
            std::fs::write(folder.path().join("config.json"), &text).expect("a file");
        }
        match what {
            "pipe" => {
                let made = std::process::Command::new("mkfifo").arg(&path).status();
                assert!(made.expect("mkfifo").success());
            }
            "large" => {
                let file = std::fs::File::create(&path).expect("a file");
                file.set_len((2 << 20) + 1).expect("a length");
            }
            _ => (),
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let place = folder.path().to_owned();
        std::thread::spawn(move || {
            let error = Layout::of_config(&place).map(drop).map_err(|error| error.to_string());
            let _ = sender.send(error);
        });
        let read = receiver.recv_timeout(std::time::Duration::from_secs(20));
        let error = read.expect("an answer").expect_err(what);
        assert!(error.contains(message), "{what}: {error}");
    }
}
