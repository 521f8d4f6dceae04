//! The command as a user runs it.

use simdformer_testing::directories::full;
use simdformer_testing::published::{french, nllb};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

pub fn run_command(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_simdformer"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails at once does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub fn out(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

pub fn err(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn translate(place: &TemporaryFolder, more: &[&str], input: &str) -> Output {
    let model = place.0.to_str().unwrap();
    run_command(&[&["translate", "--lines", "--model", model], more].concat(), input)
}

#[test]
fn sentences_are_translated() {
    let place = french();
    let output = translate(&place, &["Je suis étudiant", "Où est-ce qu'elle habite ?"], "");
    assert_eq!(out(&output), "i am a student\nwhere does she live ?\n", "{}", err(&output));
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
}

#[test]
fn lines_are_written_in_order_and_blank_lines_stay_blank() {
    let place = french();
    let input = "la vieille maison blanche est belle\n\n   \nquel mois\r\nje suis étudiant";
    let output = translate(&place, &[], input);
    let expected = "the old white house is beautiful\n\n   \nwhat month\ni am a student\n";
    assert_eq!(out(&output), expected, "{}", err(&output));
    // With any number of threads and slots, and from a file.
    place.write("lines.txt", input);
    let file = place.0.join("lines.txt");
    let more = ["--file", file.to_str().unwrap(), "--threads", "2", "--slots", "1"];
    assert_eq!(out(&translate(&place, &more, "")), expected);
    // With streaming.
    assert_eq!(out(&translate(&place, &["--stream", "--beams", "1"], input)), expected);
}

#[test]
fn json_lines_have_more_fields() {
    let place = french();
    let output = translate(&place, &["--json", "--beams", "2"], "quel mois\n\n");
    let lines: Vec<serde_json::Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", err(&output));
    assert_eq!(lines[0]["text"], "what month");
    assert_eq!(lines[0]["finish"], "end");
    assert_eq!(lines[0]["truncated"], false);
    assert!(lines[0]["score"].as_f64().unwrap() < 0.0);
    assert_eq!(lines[1]["text"], "");
    assert_eq!(lines[1]["finish"], serde_json::Value::Null);
}

#[test]
fn what_is_too_long_is_reported() {
    let place = french();
    let long = "la maison ".repeat(400);
    let input = format!("quel mois\n{long}\nquel mois\n");
    let output = translate(&place, &[], &input);
    assert_eq!(out(&output), "what month\n\nwhat month\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("text 2: 801 tokens, the model takes "), "{}", err(&output));
    let output = translate(&place, &["--json"], &input);
    let second: serde_json::Value =
        serde_json::from_str(out(&output).lines().nth(1).unwrap()).unwrap();
    assert!(
        second["text"].is_null() && second["error"].as_str().unwrap().starts_with("801 tokens")
    );
    // Cut if requested, with a message.
    place.write(
        "tokenizer_config.json",
        r#"{"tokenizer_class": "MarianTokenizer", "model_max_length": 16}"#,
    );
    let output = translate(&place, &["--truncate", "--json"], &input);
    let second: serde_json::Value =
        serde_json::from_str(out(&output).lines().nth(1).unwrap()).unwrap();
    assert_eq!(second["truncated"], true, "{second}");
    assert!(err(&output).contains("text 2 has 801 tokens and was cut"), "{}", err(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn summarize_reads_a_file_as_one_text() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let output = run_command(&["summarize", "--model", model], "je suis étudiant\n");
    assert_eq!(out(&output), "i am a student\n", "{}", err(&output));
    let output = run_command(&["summarize", "--lines", "--model", model], "quel mois\nquel mois\n");
    assert_eq!(out(&output), "what month\nwhat month\n");
}

#[test]
fn the_loaded_model_is_printed() {
    let place = french();
    let output = run_command(&["show", "--model", place.0.to_str().unwrap()], "");
    let text = out(&output);
    for part in [
        "marian, d_model 128, ",
        " parameters",
        "text: Marian, 0 languages",
        "asks for: ",
        "max_length 40",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}{}", err(&output));
    }
    // The memory is printed first.
    assert!(text.starts_with("needs ") && text.contains(" at once while loading, from "), "{text}");
    assert!(text.contains("model.safetensors\n"), "{text}");
    let output = translate(&place, &["--summary", "quel mois"], "");
    assert!(err(&output).starts_with("needs "), "{}", err(&output));
    assert!(err(&output).contains("text: Marian"), "{}", err(&output));
}

/// For a checkpoint that cannot be read completely the memory is printed before the error.
#[test]
fn memory_is_printed_before_weights_are_read() {
    let place = french();
    let file = place.0.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let output = run_command(&["show", "--model", place.0.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).starts_with("needs "), "{}", out(&output));
    assert!(err(&output).contains("expected a finite number, found NaN"), "{}", err(&output));
}

#[test]
fn languages_are_listed_and_checked_before_weights_are_read() {
    // This directory has no weights.
    let place = full("nllb");
    let model = place.0.to_str().unwrap();
    let output = run_command(&["languages", "--model", model], "");
    assert_eq!(out(&output).lines().count(), 202);
    assert_eq!(out(&output).lines().next(), Some("ace_Arab"));
    let output = translate(&place, &["--from", "eng_Latn", "--to", "french", "x"], "");
    assert_eq!(output.status.code(), Some(1));
    let message =
        "simdformer: language: expected one of the model's languages, found \"french\"; nearest: f";
    assert!(err(&output).starts_with(message), "{}", err(&output));
}

#[test]
fn wrong_command_lines_are_rejected() {
    let place = french();
    let model = place.0.to_str().unwrap();
    for (arguments, message) in [
        (
            &["translate"][..],
            "error: the following required arguments were not provided:\n  --model <DIR>\n",
        ),
        (&["fly"], "error: unrecognized subcommand 'fly'\n"),
        (
            // Whether an option has an effect depends on the model.
            &["translate", "--model", model, "--seed", "1"],
            "simdformer: --seed has no effect without --sample\n",
        ),
    ] {
        let output = run_command(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).starts_with(message), "{}", err(&output));
    }
}

/// The options of the search are those of `generate`.
#[test]
fn every_option_of_the_search_has_an_effect() {
    let place = french();
    let plain = out(&translate(&place, &["Je suis étudiant"], "")).to_owned();
    for options in [
        &["--max-new-tokens", "2"][..],
        &["--min-new-tokens", "12"],
        &["--repetition-penalty", "0.2"],
        &["--sample", "--seed", "3", "--temperature", "4", "--top-k", "0"],
    ] {
        let output = translate(&place, &[options, &["Je suis étudiant"]].concat(), "");
        // All but a minimum of tokens end at the maximum length.
        let notes = match options[0] {
            "--min-new-tokens" => "",
            _ => "simdformer: text 1: the translation reached the maximum length\n",
        };
        assert_eq!((output.status.code(), err(&output)), (Some(0), notes), "{options:?}");
        assert_ne!(out(&output), plain, "{options:?}");
    }
    let one = ["--sample", "--top-k", "1", "Je suis étudiant"];
    assert_eq!(out(&translate(&place, &one, "")), plain);
}

#[test]
fn a_model_of_many_languages_needs_a_language() {
    let place = nllb();
    let to = |code: &str| {
        let output = translate(
            &place,
            &["--from", "eng_Latn", "--to", code, "--json", "The fox.", "", "Jumps"],
            "",
        );
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output).to_owned()
    };
    let french = to("fra_Latn");
    assert_eq!(french.lines().count(), 3);
    // Other first tokens and other scores: the target language was forced.
    assert_ne!(french, to("deu_Latn"));
    assert_eq!(french, to("fra_Latn"));
    let blank: serde_json::Value = serde_json::from_str(french.lines().nth(1).unwrap()).unwrap();
    assert_eq!(blank["text"], "");
}

/// Finite weights whose sums overflow: each text has its own error, and the command continues to the last
/// text.
#[test]
fn scores_that_are_not_finite_are_an_error_of_the_text() {
    let place = nllb();
    let path = place.0.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    // The embedding matrix, under each of its names.
    let tables: Vec<_> = {
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let views = tensors.iter().map(|(_, view)| view);
        let tables = views.filter(|view| view.shape() == [1904, 8]).map(|view| view.data());
        let start = |data: &[u8]| data.as_ptr() as usize - bytes.as_ptr() as usize;
        tables.map(|data| start(data)..start(data) + data.len()).collect()
    };
    for table in tables {
        for number in bytes[table].as_chunks_mut::<4>().0 {
            *number = 3e38f32.to_le_bytes();
        }
    }
    fs::write(&path, bytes).unwrap();
    let direction = ["--from", "eng_Latn", "--to", "fra_Latn", "The fox.", "", "Jumps"];
    let output = translate(&place, &direction, "");
    assert_eq!((output.status.code(), out(&output)), (Some(1), "\n\n\n"));
    let what = "the model's scores are NaN or infinite";
    let notes = format!(
        "simdformer: text 1: {what}\nsimdformer: text 3: {what}\nsimdformer: 2 of 3 texts have no result\n"
    );
    assert_eq!(err(&output), notes);
    let output = translate(&place, &[&["--json"], &direction[..]].concat(), "");
    let lines: Vec<_> = out(&output).lines().collect();
    let expected = format!("{{\"error\":\"{what}\",\"text\":null}}");
    assert_eq!((lines[0], lines[2]), (&expected[..], &expected[..]));
}

/// The first token of every target is that of its language.
#[test]
fn the_target_language_is_forced() {
    use simdformer::search::{Hooks, SearchOptions};
    use simdformer::{Event, Limits, Model, Session, Source};
    let place = nllb();
    let tokenizer = simdformer_text::Tokenizer::from_dir(&place.0).unwrap();
    let model = Model::open(&place.0).unwrap();
    let mut session = Session::new(&model, Limits::new(1, 16, 16)).unwrap();
    for code in ["fra_Latn", "zul_Latn"] {
        let direction = simdformer_text::Direction { source: Some("eng_Latn"), target: Some(code) };
        let encoded = tokenizer.encode("The fox.", &direction).unwrap();
        let options = SearchOptions { start: encoded.prefix[0], ..session.search_options() };
        let source = Source { forced_bos: encoded.forced_bos, ..Source::new(&encoded.ids) };
        let mut first = None;
        session
            .generate(&[source], &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    first = done.hypotheses().next().map(|best| best.tokens[0]);
                }
            })
            .unwrap();
        let languages = tokenizer.languages().unwrap();
        let language = languages.iter().find(|language| language.code() == code).unwrap();
        assert_eq!(first, Some(language.id()), "{code}");
    }
}

/// Bytes that are no UTF-8 are an error that names their place: every command that reads texts x files and standard input x
/// kinds of bytes.
#[test]
fn texts_that_are_not_utf_8_are_errors() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let mut checked = 0;
    for (bytes, found) in [
        (&b"quel mois\nJe suis \xe9tudiant\n"[..], "line 2, byte 9: expected UTF-8, found 0xe9"),
        (b"\xff\xfeq\0u\0", "line 1, byte 1: expected UTF-8, found 0xff"),
        (b"quel mois \xc3", "line 1, byte 11: expected UTF-8, found 0xc3"),
        (b"\xed\xa0\x80\n", "line 1, byte 1: expected UTF-8, found 0xed"),
    ] {
        place.write("in.txt", bytes);
        let path = place.0.join("in.txt").to_str().unwrap().to_owned();
        for (command, more) in [
            ("translate", &["--lines"][..]),
            ("translate", &["--whole"]),
            ("summarize", &["--lines"]),
            ("summarize", &[]),
        ] {
            for is_file in [true, false] {
                let mut arguments = vec![command, "--model", model];
                arguments.extend(more);
                if is_file {
                    arguments.extend(["--file", &path]);
                }
                let mut child = Command::new(env!("CARGO_BIN_EXE_simdformer"));
                child.args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
                let _ = child.stdin.take().unwrap().write_all(bytes);
                let output = child.wait_with_output().unwrap();
                assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", err(&output));
                let name = if is_file { &path } else { "standard input" };
                let is_whole = more == ["--whole"] || (command == "summarize" && more.is_empty());
                let message = err(&output);
                assert!(message.starts_with(&format!("simdformer: {name}: ")), "{message}");
                assert!(is_whole || message.contains(found), "{message}");
                assert!(message.contains("expected UTF-8, found 0x"), "{message}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 32);
}
