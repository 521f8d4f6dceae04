//! `generate` against the goldens of other implementations, and what it rejects.

use crate::command::{err, out};
use serde_json::Value;
use simdformer_testing::effort::cases;
use std::path::{Path, PathBuf};

const THREADS: &str = "--threads 3";

/// An id or a list of ids.
fn ids(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(list) => list.iter().flat_map(ids).collect(),
        one => vec![one.as_u64().expect("an id") as u32],
    }
}

/// A folder of the repository.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Runs the command; `options` are parted by blanks. Returns answers and statistics, or exit code and error.
fn try_run(model: &str, options: &str, input: &str) -> Result<(Vec<Value>, Value), (i32, String)> {
    let model = folder(model);
    let mut arguments = vec!["generate", "--model", model.to_str().expect("a path")];
    arguments.extend(options.split_whitespace());
    let output = crate::command::run_command(&arguments, input);
    match output.status.code() {
        Some(0) => {
            let statistics = serde_json::from_str(err(&output)).expect("one object");
            let answers = out(&output).lines();
            Ok((
                answers.map(|line| serde_json::from_str(line).expect("JSON")).collect(),
                statistics,
            ))
        }
        code => {
            let error = err(&output).trim_end();
            let message = error.strip_prefix("simdformer: ").unwrap_or(error);
            Err((code.expect("an exit code"), message.to_owned()))
        }
    }
}

fn run(model: &str, options: &str, input: &str) -> (Vec<Value>, Value) {
    try_run(model, options, input).unwrap_or_else(|error| panic!("{options}: {error:?}"))
}

/// Exit code and error of a run that fails.
fn failure(model: &str, options: &str, input: &str) -> (i32, String) {
    match try_run(model, options, input) {
        Ok((answers, _)) => panic!("{options} {input}: {answers:?}"),
        Err(failure) => failure,
    }
}

fn lines(requests: &[Value]) -> String {
    requests.iter().map(|request| format!("{request}\n")).collect()
}

/// The golden sources of a folder as lines of input.
fn golden_input(name: &str) -> String {
    let text = std::fs::read_to_string(folder(name).join("sources.json")).expect("sources.json");
    let sources: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    sources.iter().map(|ids| format!("{}\n", serde_json::json!({ "input_ids": ids }))).collect()
}

/// The command-line options that say what a golden case says; `None` where one of them has none.
fn as_options(case: &Value, config: &Value) -> Option<String> {
    let mut text = String::new();
    for (name, value) in case["options"].as_object().expect("options") {
        // What the checkpoint says already needs no option.
        let known = config.get(name) == Some(value);
        if known && name != "num_beams" {
            continue;
        }
        let option = match name.as_str() {
            "num_beams" => "beams",
            "max_new_tokens"
            | "min_new_tokens"
            | "length_penalty"
            | "early_stopping"
            | "num_return_sequences"
            | "no_repeat_ngram_size"
            | "repetition_penalty"
            | "forced_bos_token_id" => name,
            _ => return None,
        };
        let value = value.to_string().replace('"', "");
        text += &format!("--{} {value} ", option.replace('_', "-"));
    }
    Some(text)
}

#[test]
fn options_do_what_the_reference_does() {
    // During the day each case runs with one of the models.
    for (skipped, name) in ["marian_a", "bart_b", "m2m_a"].into_iter().enumerate() {
        let (skipped, step) = cases((skipped, 3), (0, 1));
        let name = format!("tests/golden/search/{name}");
        let read = |file| std::fs::read_to_string(folder(&name).join(file)).expect(file);
        let input = golden_input(&name);
        let config: Value = serde_json::from_str(&read("generation_config.json")).expect("JSON");
        let (mut checked, mut unscored_cases) = (0, 0);
        for line in read("cases.jsonl").lines().skip(skipped).step_by(step) {
            let case: Value = serde_json::from_str(line).expect("JSON");
            let Some(options) = as_options(&case, &config) else { continue };
            let (answers, statistics) = run(&name, &options, &input);
            let mut new_tokens = 0;
            for (answer, expected) in answers.iter().zip(case["results"].as_array().unwrap()) {
                let found = answer["sequences"].as_array().expect("sequences");
                let wanted = expected["sequences"].as_array().expect("sequences");
                let scores = expected["scores"].as_array();
                for (i, wanted) in wanted.iter().enumerate() {
                    // The reference fills up with copies of no score where there is no more.
                    let score = scores.map(|scores| scores[i].as_f64().expect("a score"));
                    if score.is_some_and(|score| score < -1e8) {
                        assert_eq!(found.get(i), None, "{options}");
                        continue;
                    }
                    assert_eq!(found[i], *wanted, "{name} {options}");
                    let score = score.map(|s| (s - answer["scores"][i].as_f64().unwrap()).abs());
                    assert!(score.is_none_or(|difference| difference <= 1e-4), "{options}");
                    new_tokens += ids(&found[i]).len();
                }
            }
            assert_eq!(answers.len(), 9);
            assert_eq!(statistics["new_tokens"], new_tokens);
            if case["results"][0]["scores"].is_null() {
                let (unscored, _) = run(&name, &format!("{options} --no-scores"), &input);
                for (unscored, answer) in unscored.iter().zip(&answers) {
                    assert_eq!(unscored["sequences"], answer["sequences"], "{name} {options}");
                    assert!(unscored["scores"][0].is_null());
                }
                unscored_cases += 1;
            }
            checked += 1;
        }
        assert!(unscored_cases > 3 / step, "{unscored_cases} greedy cases");
        assert!(checked > 40 / step, "{checked} cases of {name} have options");
    }
}

/// Tensors of a safetensors file.
struct Tensors(Vec<u8>);

impl Tensors {
    fn read(path: &Path) -> Self {
        Self(std::fs::read(path).expect("a safetensors file"))
    }

    fn get(&self, name: &str) -> (Vec<usize>, Vec<u8>) {
        let file = safetensors::SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let tensor = file.tensor(name).expect(name);
        (tensor.shape().to_vec(), tensor.data().to_vec())
    }

    fn floats(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let (shape, data) = self.get(name);
        let float = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
        (shape, data.chunks_exact(4).map(float).collect())
    }

    fn ids(&self, name: &str) -> Vec<i64> {
        let (_, data) = self.get(name);
        data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

#[test]
fn logits_and_scores_are_those_of_the_reference() {
    let name = "tests/golden/marian_untied";
    let expected = Tensors::read(&folder(name).join("expected.safetensors"));
    let requests: Vec<Value> = (0..8)
        .map(|i| {
            serde_json::json!({
                "input_ids": expected.ids(&format!("input_ids.{i}")),
                "decoder_input_ids": expected.ids(&format!("decoder_input_ids.{i}")),
            })
        })
        .collect();
    let path = std::env::temp_dir().join(format!("generate-{}.safetensors", std::process::id()));
    let options = format!("--score {THREADS} --logits {}", path.display());
    let (answers, statistics) = run(name, &options, &lines(&requests));
    let written = Tensors::read(&path);
    std::fs::remove_file(&path).expect("a file to remove");
    let mut targets = 0;
    for (i, answer) in answers.iter().enumerate() {
        for tensor in ["encoder", "logits"] {
            let tensor = format!("{tensor}.{i}");
            let ((shape, found), (expected_shape, expected)) =
                (written.floats(&tensor), expected.floats(&tensor));
            assert_eq!(shape, expected_shape, "{tensor}");
            let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= 2e-5 * largest, "{tensor}");
            }
        }
        // Each token is scored by the logits that come before it.
        let target = &expected.ids(&format!("decoder_input_ids.{i}"))[1..];
        let (shape, logits) = expected.floats(&format!("logits.{i}"));
        let mut sum = 0.0;
        for (position, (row, &id)) in logits.chunks(shape[1]).zip(target).enumerate() {
            let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            let expected = f64::from(row[id as usize]) - total.ln();
            let found = answer["log_probabilities"][0][position].as_f64().expect("a number");
            assert!((found - expected).abs() <= 1e-4, "line {i}, token {position}");
            sum += expected;
        }
        assert!((answer["scores"][0].as_f64().expect("a score") - sum).abs() <= 1e-3);
        assert_eq!(ids(&answer["sequences"][0]).len(), target.len());
        targets += target.len();
    }
    assert!(targets > 40);
    assert_eq!(statistics["new_tokens"], targets);
}

#[test]
fn a_prefix_is_continued() {
    let name = "tests/golden/search/marian_a";
    let (answers, _) = run(name, "--max-new-tokens 24", &golden_input(name));
    let start = 96;
    let mut requests = Vec::new();
    let input = golden_input(name);
    for (line, answer) in input.lines().zip(&answers) {
        let mut request: Value = serde_json::from_str(line).expect("JSON");
        let sequence = ids(&answer["sequences"][0]);
        for with_start in [false, true] {
            let mut prefix = sequence[..sequence.len() / 2].to_vec();
            if with_start {
                prefix.insert(0, start);
            }
            request["decoder_input_ids"] = prefix.into();
            requests.push(request.clone());
        }
    }
    let (continued, statistics) = run(name, "--max-new-tokens 24", &lines(&requests));
    let mut new_tokens = 0;
    for (pair, answer) in continued.chunks(2).zip(&answers) {
        let sequence = ids(&answer["sequences"][0]);
        for continued in pair {
            assert_eq!(ids(&continued["sequences"][0]), sequence);
            new_tokens += sequence.len() - sequence.len() / 2;
        }
        assert_eq!(pair[0], pair[1]);
    }
    assert_eq!(statistics["new_tokens"], new_tokens);
}

#[test]
fn samples_follow_the_seed() {
    let name = "tests/golden/search/bart_a";
    let input = golden_input(name);
    let sample = |more: &str| {
        let options = format!("--sample --num-return-sequences 3 --max-new-tokens 12 {more}");
        run(name, &options, &input).0
    };
    let first = sample("--seed 7");
    assert_eq!(first, sample(&format!("--seed 7 --repeat 2 {THREADS}")));
    assert_eq!(first, sample("--seed=7 --top-k 50 --top-p 1 --min-p 0"));
    assert_ne!(first, sample("--seed 8"));
    assert_ne!(first, sample("--seed 7 --temperature 3"));
    // The best token alone is left: what greedy takes.
    let (greedy, _) = run(name, "--max-new-tokens 12", &input);
    for (one, greedy) in sample("--top-k 1").iter().zip(&greedy) {
        for sequence in one["sequences"].as_array().expect("sequences") {
            assert_eq!(*sequence, greedy["sequences"][0]);
        }
    }
}

#[test]
fn statistics_are_complete() {
    let name = "tests/golden/search/m2m_b";
    let (_, statistics) = run(name, "--repeat 4 --isa scalar --threads 1", &golden_input(name));
    for key in [
        "load_seconds",
        "plan_bytes",
        "encode_seconds",
        "new_tokens",
        "tokens_per_second",
        "model_bytes",
    ] {
        assert!(statistics[key].as_f64().is_some_and(|x| x > 0.0), "{key} in {statistics}");
    }
    // A difference of two times, which a busy machine may make as small as it likes.
    assert!(statistics["decode_seconds"].as_f64().is_some_and(|x| x >= 0.0), "{statistics}");
    assert!(statistics["allocations"].is_u64());
    assert_eq!((&statistics["isa"], &statistics["threads"]), (&"scalar".into(), &1.into()));
    // No requests, no answers.
    let (answers, statistics) = run(name, "", "\n");
    assert_eq!((answers.len(), &statistics["new_tokens"]), (0, &0.into()));
}

/// What was assumed about the model is said, on standard error with the rest.
#[test]
fn what_was_assumed_is_printed() {
    let golden = folder("tests/golden/search/marian_b");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("assumed");
    std::fs::create_dir_all(&copy).expect("a directory");
    std::fs::copy(golden.join("model.safetensors"), copy.join("model.safetensors"))
        .expect("copied");
    let text = std::fs::read_to_string(golden.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    let assumed = |config: &Value| {
        std::fs::write(copy.join("config.json"), config.to_string()).expect("written");
        let (_, statistics) = run(copy.to_str().expect("a path"), "--max-new-tokens 2", "");
        statistics["defaults"].clone()
    };
    let before = assumed(&config);
    let tied = config.as_object_mut().expect("an object").remove("tie_word_embeddings");
    assert!(before["tie_word_embeddings"].is_null() && tied == Some(true.into()), "{before}");
    assert_eq!(assumed(&config)["tie_word_embeddings"], "true");
}

#[test]
fn wrong_command_lines_are_rejected() {
    let value = |option: &str, expected: &str, found: &str| {
        format!("invalid value '{found}' for '{option}': expected {expected}")
    };
    let from_one = "a whole number from 1 up";
    let (at_least_one, whole) = ("a whole number of at least 1", "a whole number of at least 0");
    let twice = |option: &str| format!("the argument '{option}' cannot be used multiple times");
    let both = |a: &str, b: &str| format!("the argument '{a}' cannot be used with '{b}'");
    let lines = [
        ("--beam 4", "unexpected argument '--beam' found".to_owned()),
        ("--beam 4", "a similar argument exists: '--beams'".to_owned()),
        ("--Beams=4", "unexpected argument '--Beams' found".to_owned()),
        ("-b 4", "unexpected argument '-b' found".to_owned()),
        ("m", "unexpected argument 'm' found".to_owned()),
        ("--beams", "a value is required for '--beams <N>' but none was supplied".to_owned()),
        ("--seed 1 --seed 1", twice("--seed <N>")),
        ("--score --score", twice("--score")),
        ("--sample=yes", "unexpected value 'yes' for '--sample' found".to_owned()),
        ("--threads 0", value("--threads <N>", from_one, "0")),
        ("--threads two", value("--threads <N>", from_one, "two")),
        ("--repeat 0", value("--repeat <N>", from_one, "0")),
        ("--beams -1", value("--beams <N>", at_least_one, "-1")),
        ("--beams 1.5", value("--beams <N>", at_least_one, "1.5")),
        ("--max-new-tokens 0", value("--max-new-tokens <N>", at_least_one, "0")),
        ("--min-new-tokens x", value("--min-new-tokens <N>", whole, "x")),
        ("--num-return-sequences=0", value("--num-return-sequences <N>", from_one, "0")),
        (
            "--no-repeat-ngram-size -2",
            value("--no-repeat-ngram-size <N>", "a whole number of at least 1, or 0", "-2"),
        ),
        ("--length-penalty one", value("--length-penalty <X>", "a number", "one")),
        (
            "--early-stopping maybe",
            value("--early-stopping <WHEN>", "true, false or \"never\"", "maybe"),
        ),
        ("--cache int8", "[possible values: f32, f16]".to_owned()),
        (
            "--forced-bos-token-id 4294967296",
            value("--forced-bos-token-id <ID>", "a token id", "4294967296"),
        ),
        ("--sample --top-k 1e3", value("--top-k <N>", "a whole number of at least 1, or 0", "1e3")),
        ("--seed -1", value("--seed <N>", whole, "-1")),
        (
            "--agreement 0.9",
            "required arguments were not provided:\n  --compare-weights".to_owned(),
        ),
        (
            "--compare-weights --agreement 1.5",
            value("--agreement <X>", "a number from 0 to 1", "1.5"),
        ),
        // All options of the search are named.
        ("--score --beams 2", "'--score' cannot be used with:\n  --strategy <NAME>\n".to_owned()),
        ("--sample --score", "'--score' cannot be used with:\n  --strategy <NAME>\n".to_owned()),
        ("--score --ngrams 2", both("--score", "--ngrams <N>")),
        ("--packed a --weights int8", both("--packed <FILE>", "--weights <DTYPES>")),
        ("--packed a --save-packed b", both("--packed <FILE>", "--save-packed <FILE>")),
        ("--compare-weights --weights int8", both("--compare-weights", "--weights <DTYPES>")),
        ("--compare-weights --logits a", both("--compare-weights", "--logits <FILE>")),
    ];
    for (line, expected) in lines {
        let (code, message) = failure("models/fr-en", line, "");
        assert!(message.starts_with("error: ") && message.contains(&expected), "{line}: {message}");
        assert_eq!(code, 2, "{line}");
    }
    let output = crate::command::run_command(&["generate", "--beams", "2"], "");
    assert!(err(&output).contains("--model <DIR>") && output.status.code() == Some(2));
}

/// Encoding and decoding allocate nothing, on any number of threads, in each kind of search.
#[test]
fn nothing_is_allocated() {
    let input = "\
        {\"input_ids\": [954, 1388, 1444, 774, 2040, 2315, 375, 0]}\n\
        {\"input_ids\": [1635, 509, 1107, 229, 13, 0], \"decoder_input_ids\": [2230, 554]}\n\
        {\"input_ids\": [682, 1966, 2262, 1071, 1190, 0], \"decoder_input_ids\": [2317, 1823]}\n\
        {\"input_ids\": [585, 0], \"decoder_input_ids\": []}\n";
    for options in [
        "",
        "--beams 5 --num-return-sequences 3 --no-repeat-ngram-size 3 --repetition-penalty 1.2",
        "--ngrams 1 --min-new-tokens 20",
        "--sample --num-return-sequences 4 --top-p 0.9 --min-p 0.01 --temperature 1.5",
    ] {
        for threads in ["1", "2", "3"] {
            let options = format!("{options} --repeat 3 --threads {threads}");
            let (_, statistics) = run("models/fr-en", &options, input);
            assert_eq!(statistics["allocations"], 0, "{options}");
            assert!(statistics["new_tokens"].as_u64().is_some_and(|tokens| tokens > 10));
        }
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let name = "tests/golden/search/marian_b";
    let input = golden_input(name);
    for (options, part) in [
        ("--temperature 1", "--temperature has no effect without --sample"),
        ("--beams 4 --seed 1", "--seed has no effect without --sample"),
        ("--length-penalty 2", "--length-penalty has no effect without --beams"),
        ("--sample --early-stopping never", "--early-stopping has no effect without --beams"),
        ("--strategy greedy --beams 2", "--beams has no effect without --strategy beam"),
        ("--strategy beam --top-k 2", "--top-k has no effect without --sample"),
        ("--top-h 0.5", "--top-h has no effect without --sample"),
        ("--sample --top-h 0", "'--top-h <X>': expected a number "),
        ("--sample --beams 2 --top-h 1.5", "'--top-h <X>': expected a number "),
        ("--beams 62", "beams: expected at most 61, found 62"),
        ("--beams 2 --num-return-sequences 3", "num_return_sequences: expected at most 2, found 3"),
        ("--num-return-sequences 2", "num_return_sequences: expected at most 1, found 2"),
        ("--beams 2 --length-penalty NaN", "'--length-penalty <X>': expected a number "),
        ("--beams 2 --length-penalty inf", "'--length-penalty <X>': expected a number "),
        ("--repetition-penalty 0", "'--repetition-penalty <X>': expected a number "),
        ("--sample --temperature 0", "expected a number above 0 (0 is greedy search) and finite"),
        ("--sample --temperature NaN", "'--temperature <X>': expected a number "),
        ("--sample --top-p 0", "'--top-p <X>': expected a number "),
        ("--sample --top-p 1.5", "'--top-p <X>': expected a number "),
        ("--sample --min-p -1", "'--min-p <X>': expected a number "),
        (
            "--forced-bos-token-id 61",
            "forced_bos: expected a token id below 61, the size of the vocabulary, found 61",
        ),
        ("--isa altivec", "'--isa <NAME>': unknown instruction set"),
    ] {
        let (code, message) = failure(name, options, &input);
        assert!(message.contains(part), "{options}: {message}");
        assert_eq!(code, 2, "{options}: {message}");
    }
    // One beam by name may carry the settings of beams.
    let (answers, _) = run(name, "--beams 1 --length-penalty 0.6 --early-stopping never", &input);
    assert_eq!(answers, run(name, "", &input).0);
}

#[test]
fn wrong_lines_are_named() {
    let name = "tests/golden/search/bart_a";
    let long = vec![3; 49];
    let long = [
        serde_json::json!({ "input_ids": long }).to_string(),
        serde_json::json!({ "input_ids": [3], "decoder_input_ids": long }).to_string(),
    ];
    for (line, part) in [
        ("x", "expected value"),
        ("[]", "invalid length 0"),
        ("{}", "missing field `input_ids`"),
        (r#"{"input_ids": null}"#, "missing field `input_ids`"),
        (r#"{"input_ids": [1"#, "EOF while parsing a list"),
        (r#"{"input_ids": [1]} 2"#, "trailing characters"),
        (r#"{"input_ids": [-1]}"#, "integer `-1`, expected u32"),
        (r#"{"input_ids": [1.0]}"#, "floating point `1.0`, expected u32"),
        (r#"{"input_ids": "1"}"#, "string \"1\", expected a sequence"),
        (r#"{"input_ids": [4294967296]}"#, "integer `4294967296`, expected u32"),
        (r#"{"input_ids": []}"#, "expected at least one id in input_ids, found none"),
        (r#"{"input_ids": [1], "attention_mask": [1]}"#, "unknown field `attention_mask`"),
        (r#"{"input_ids": [1], "input_ids": [1]}"#, "duplicate field `input_ids`"),
        (r#"{"input_ids": [2, 500]}"#, "input_ids[1]: expected an id below 113, found 500"),
        (
            r#"{"input_ids": [2], "decoder_input_ids": [113]}"#,
            "decoder_input_ids[0]: expected an id below 113, found 113",
        ),
        (&long[0], ": expected at most 48 ids, found 49"),
        (&long[1], "decoder_input_ids: expected at most 48 ids, found 49"),
    ] {
        let (code, message) = failure(name, "", &format!("{{\"input_ids\": [2]}}\n\n{line}\n"));
        assert!(message.starts_with("line 3: ") && message.contains(part), "{line}: {message}");
        assert_eq!(code, 1, "{line}: {message}");
    }
    let (code, message) = failure(name, "--score", r#"{"input_ids": [2]}"#);
    assert_eq!(
        (code, message.as_str()),
        (1, "line 1: --score needs decoder_input_ids, found none")
    );
    // A prefix that leaves no space.
    let full = r#"{"input_ids": [2], "decoder_input_ids": [3, 3, 3, 3]}"#;
    let full = full.replace("3, 3, 3, 3", &["3"; 48].join(", "));
    let (code, message) = failure(name, "", &full);
    assert!(message.contains("prompt: expected at most"), "{message}");
    assert_eq!(code, 1);
    let (code, message) = failure("tests/golden/absent", "", "");
    assert!(
        message.contains("absent: expected a checkpoint directory, found no such directory"),
        "{message}"
    );
    assert_eq!(code, 1);
}

/// The answers of one run as the guesses of the next: the same answers in fewer steps.
#[test]
fn drafts_are_answers_of_an_earlier_run() {
    let name = "models/fr-en";
    let input = "\
        {\"input_ids\": [954, 1388, 1444, 774, 2040, 2315, 375, 0]}\n\
        {\"input_ids\": [1635, 509, 1107, 229, 13, 0], \"decoder_input_ids\": [2230, 554]}\n";
    let path = std::env::temp_dir().join(format!("answers-{}.jsonl", std::process::id()));
    let draft = format!("--draft {}", path.display());
    for options in ["", "--no-scores", "--sample --seed 5"] {
        let (plain, statistics) = run(name, options, input);
        assert!(statistics.get("steps").is_none(), "{statistics}");
        let tokens = statistics["new_tokens"].as_u64().expect("a count");
        std::fs::write(&path, lines(&plain)).expect("a file");
        for guesses in [&draft, "--ngrams 1", &format!("{draft} --ngrams 2")] {
            let (answers, statistics) = run(name, &format!("{options} {guesses}"), input);
            assert_eq!(answers, plain, "{options} {guesses}");
            let count = |name: &str| statistics[name].as_u64().expect("a count");
            assert!(count("accepted") <= count("drafted"), "{statistics}");
            if guesses.starts_with("--draft") {
                // 4 and 8 tokens are guessed of each, and what is chosen after them comes as well.
                assert!(count("steps") <= 1 + tokens / 5, "{statistics}");
            }
        }
        assert_eq!(run(name, &format!("{draft} --ngrams 1 {options}"), input).0, plain);
    }
    for (text, options, code, part) in [
        ("{}", &draft, 1, "line 1: missing field `sequences`"),
        ("{\"sequences\": [[1]]}", &draft, 1, "expected a line for each of 2 lines, found 1"),
        ("{\"sequences\": [[1, 99999]]}", &draft, 1, "line 1: expected ids below"),
        ("", &"--draft /nowhere/at/all".to_owned(), 1, "/nowhere/at/all: "),
        ("", &format!("{draft} --beams 2"), 2, "--draft has no effect without --beams 1"),
        ("", &"--ngrams 2 --beams 2".to_owned(), 2, "--ngrams has no effect without --beams 1"),
        ("", &"--ngrams 0".to_owned(), 2, "'--ngrams <N>': expected a whole number from 1 up"),
    ] {
        std::fs::write(&path, text).expect("a file");
        let (found, message) = failure(name, options, input);
        assert!(message.contains(part), "{options}: {message}");
        assert_eq!(found, code, "{options}: {message}");
    }
    std::fs::remove_file(&path).expect("a file to remove");
}

/// A model that only encodes: hidden states on demand, and nothing said.
#[test]
fn an_encoder_writes_its_hidden_states_and_says_nothing() {
    let name = "tests/golden/families/bert";
    let expected = Tensors::read(&folder(name).join("expected.safetensors"));
    let requests: Vec<Value> = (0..6)
        .map(|i| serde_json::json!({ "input_ids": expected.ids(&format!("input_ids.{i}")) }))
        .collect();
    let path = std::env::temp_dir().join(format!("encoder-{}.safetensors", std::process::id()));
    let options = format!("{THREADS} --logits {}", path.display());
    let (answers, statistics) = run(name, &options, &lines(&requests));
    let written = Tensors::read(&path);
    std::fs::remove_file(&path).expect("a file to remove");
    assert_eq!(answers.len(), requests.len());
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer["sequences"], serde_json::json!([]), "line {i}");
        let tensor = format!("encoder.{i}");
        let ((shape, found), (expected_shape, expected)) =
            (written.floats(&tensor), expected.floats(&tensor));
        assert_eq!(shape, expected_shape, "{tensor}");
        let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 2e-5 * largest, "{tensor}");
        }
    }
    assert_eq!(statistics["new_tokens"], 0);
    assert!(statistics["encode_seconds"].as_f64().is_some_and(|x| x > 0.0), "{statistics}");
    let line = r#"{"input_ids": [3, 4]}"#;
    let (code, message) = failure(name, "--score", line);
    assert_eq!(
        (code, message.as_str()),
        (2, "--score has no effect without a decoder, which this model does not have")
    );
    let (code, message) = failure(name, "", r#"{"input_ids": [3], "decoder_input_ids": [4]}"#);
    assert_eq!(
        (code, message.as_str()),
        (1, "line 1: decoder_input_ids of a model without a decoder: expected none")
    );
}

/// The tensors of a golden under a name, as the file that `--features` reads; and lines without ids.
fn features_file(name: &str, keep: usize) -> (PathBuf, String) {
    use safetensors::SafeTensors;
    let bytes = std::fs::read(folder(name).join("expected.safetensors")).expect("goldens");
    let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let of = |i: usize| (format!("features.{i}"), tensors.tensor(&format!("features.{i}")));
    let kept = (0..keep).map(of).map(|(name, tensor)| (name, tensor.expect("features")));
    let path = std::env::temp_dir().join(format!(
        "simdformer-{}-{}-{keep}.safetensors",
        std::process::id(),
        name.replace('/', "-")
    ));
    safetensors::serialize_to_file(kept, None, &path).expect("written");
    (path, "{}\n".repeat(keep))
}

/// Whisper from a file of features: in the language that is heard, with and without times, by greedy search and beams;
/// scores of given targets; encoder outputs and logits.
#[test]
fn features_from_a_file_are_transcribed() {
    for name in ["tests/golden/families/whisper", "tests/golden/families/whisper_english"] {
        let expected = std::fs::read(folder(name).join("expected.safetensors")).expect("goldens");
        let expected = safetensors::SafeTensors::deserialize(&expected).expect("a file");
        let ids = |what: &str, i: usize| -> Vec<u32> {
            let tensor = expected.tensor(&format!("{what}.{i}")).expect(what);
            let id = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32;
            tensor.data().chunks_exact(8).map(id).collect()
        };
        let (path, input) = features_file(name, 6);
        let features = format!("--features {}", path.display());
        for (more, prefix, answer) in
            [("", "prefix", "greedy"), ("--timestamps", "timed_prefix", "timed")]
        {
            let options = format!("{features} {more} --max-new-tokens 14 {THREADS}");
            let (answers, statistics) = run(name, &options, &input);
            for (i, found) in answers.iter().enumerate() {
                let whole = [ids(prefix, i), ids(answer, i)].concat();
                assert_eq!(found["sequences"], serde_json::json!([whole]), "{name} {more} {i}");
            }
            assert_eq!(answers.len(), 6);
            assert!(statistics["new_tokens"].as_u64() > Some(10), "{statistics}");
        }
        // What is given is not heard.
        let given: Vec<Value> = (0..6)
            .map(|i| serde_json::json!({ "decoder_input_ids": ids("decoder_input_ids", i) }))
            .collect();
        let out = path.with_extension("out");
        let options = format!("{features} --score --logits {}", out.display());
        let (answers, _) = run(name, &options, &lines(&given));
        assert_eq!(answers.len(), 6);
        let written = std::fs::read(&out).expect("logits");
        let written = safetensors::SafeTensors::deserialize(&written).expect("a file");
        for i in 0..6 {
            for what in ["encoder", "logits"] {
                let name = format!("{what}.{i}");
                let (found, expected) = (written.tensor(&name), expected.tensor(&name));
                assert_eq!(found.expect("there").shape(), expected.expect("there").shape());
            }
        }
        std::fs::remove_file(out).expect("removed");
        std::fs::remove_file(path).expect("removed");
    }
}

#[test]
fn features_and_models_that_do_not_fit_are_refused() {
    let (hears, reads) = ("tests/golden/families/whisper", "tests/golden/marian_odd");
    let (path, input) = features_file(hears, 2);
    let features = format!("--features {}", path.display());
    for (model, options, input, code, said) in [
        (hears, "", &input[..], 2, "--features is missing"),
        (
            reads,
            &features[..],
            r#"{"input_ids": [2]}"#,
            2,
            "--features has no effect without a model that reads features",
        ),
        (
            reads,
            "--timestamps",
            r#"{"input_ids": [2]}"#,
            2,
            "--timestamps has no effect without a checkpoint that has no_timestamps_token_id and eos_token_id",
        ),
        (
            hears,
            &features,
            "{}\n{\"input_ids\": [2]}",
            1,
            "line 2: input_ids of a model that reads features: expected none",
        ),
        (hears, &features, "{}", 1, "expected a tensor for each of 1 lines, found 2"),
        (hears, "--features nowhere", "{}", 1, "nowhere: No such file or directory (os error 2)"),
    ] {
        let (found, message) = failure(model, options, input);
        assert!(found == code && message.ends_with(said), "{options}: {found} {message}");
    }
    std::fs::remove_file(path).expect("removed");
}
