//! `transcribe` as a user runs it: a small model with random weights and windows of one second.

use crate::command::{err, out, run_command};
use serde_json::Value;
use simdformer::search::{Finish, Hooks, LogitsProcessor, Strategy, Timestamps};
use simdformer::{Event, Features, Limits, Model, Session, Source};
use simdformer_speech::FeatureExtractor;
use simdformer_testing::directories::golden;
use simdformer_testing::published::{ONE_LANGUAGE, SEVERAL, START, whisper};
use simdformer_testing::riff::{chunk, format, riff, wav};
use simdformer_testing::sounds::audio;
use simdformer_testing::sounds::floats;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::Tokenizer;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const NO_TIMESTAMPS: u32 = 1306;
/// The first id that is not a word.
const END: u32 = 1295;

/// Runs `transcribe` on files of the directory. Returns the standard output, and checks standard error.
fn transcribe(
    place: &TemporaryFolder,
    more: &[&str],
    files: &[&str],
) -> (String, String, Option<i32>) {
    let model = place.0.to_str().unwrap();
    let paths: Vec<String> =
        files.iter().map(|file| place.0.join(file).to_str().unwrap().to_owned()).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    // No voice is in the recordings of these tests.
    let first = ["transcribe", "--model", model, "--vad", "false"];
    let output = run_command(&[&first, more, &paths].concat(), "");
    (out(&output).to_owned(), err(&output).to_owned(), output.status.code())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The frames of a whole recording, computed with the library: `[frames, bins]`, in windows of one second.
fn frames(samples: &[f32]) -> Vec<f32> {
    let extractor = FeatureExtractor::whisper(80, 3).unwrap();
    assert!(samples.len() < extractor.samples() - 400, "silence of the extractor is not mirrored");
    let mut features = vec![0.0; extractor.len()];
    // The extractor pads with silence, where a recording is mirrored at its end.
    let mut mirrored = samples.to_vec();
    mirrored.extend(samples.iter().rev().skip(1).take(200));
    extractor.extract(&mirrored, &mut features).unwrap();
    features.truncate(samples.len() / 160 * 80);
    features
}

/// The output of the model for a window after a prefix, computed with the library.
fn expected(place: &TemporaryFolder, frames: &[f32], prefix: &[u32]) -> (Vec<u32>, Finish) {
    let mut features = frames[..frames.len().min(8000)].to_vec();
    features.resize(8000, 0.0);
    let model = Model::open(&place.0).unwrap();
    let mut session = Session::new(&model, Limits::new(1, 50, 23)).unwrap();
    let mut options = session.search_options();
    assert_eq!(options.start, START);
    options.strategy = Strategy::Greedy;
    // The prompt is not counted.
    options.max_length = options.max_length.map(|length| length + 1 + prefix.len());
    let source = Source { prefix, ..Source::of_features(Features::new(&features, 80)) };
    let mut rule = Timestamps { no_timestamps: NO_TIMESTAMPS, eos: END, max_initial: Some(50) };
    let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut rule];
    let mut hooks = Hooks { processors: &mut rules, ..Hooks::default() };
    let mut found = None;
    session
        .generate(&[source], &options, &mut hooks, &mut |event| {
            if let Event::Done(done) = event {
                found = Some((done.hypotheses().next().unwrap().tokens.to_vec(), done.finish));
            }
        })
        .unwrap();
    let (mut tokens, finish) = found.unwrap();
    tokens.retain(|&id| id != END);
    (tokens, finish)
}

fn ids(window: &Value) -> Vec<u32> {
    window["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Switches the checks off: each window is decoded once, and its text is kept.
const ONCE: [&str; 3] = ["--no-fallback", "--no-speech-threshold", "1"];

#[test]
fn files_become_lines_in_order() {
    let place = whisper(ONE_LANGUAGE);
    place.write("empty.wav", wav(&[]));
    let files = ["long.wav", "empty.wav", "short.wav", "long.wav"];
    let (text, notes, code) = transcribe(&place, &[&["--json"], &ONCE[..]].concat(), &files);
    assert_eq!(code, Some(0), "{notes}");
    let answers = lines(&text);
    assert_eq!(answers.len(), 4, "{notes}");
    let (long, short) = (audio("chirp", 40_000), audio("noise", 9_000));
    for (answer, samples) in answers.iter().zip([&long[..], &[], &short, &long]) {
        let frames = frames(&floats(samples));
        let windows = answer["windows"].as_array().unwrap();
        assert_eq!(windows.is_empty(), samples.is_empty());
        let mut seek = 0;
        for window in windows {
            let from = (100.0 * window["start"].as_f64().unwrap()).round() as usize;
            assert!(from > seek || from == 0, "{answer}");
            seek = from;
            let (tokens, finish) = expected(&place, &frames[80 * from..], &[]);
            assert_eq!(ids(window), tokens);
            assert_eq!(window["finish"], if finish == Finish::End { "end" } else { "length" });
            assert!(window["avg_logprob"].as_f64().unwrap() < 0.0);
            assert_eq!((&window["attempts"], &window["skipped"]), (&1.into(), &false.into()));
        }
        // The segments have all words up to the last pair of timestamps.
        let said: String = answer["segments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["text"].as_str().unwrap())
            .collect();
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(squeezed(answer["text"].as_str().unwrap()), squeezed(&said));
        assert_eq!(answer["seconds"].as_f64(), Some(samples.len() as f64 / 16_000.0));
        assert!(answer["language"].is_null());
    }
    for more in [&["--slots", "1"][..], &["--threads", "2"]] {
        let more = [&["--json"], &ONCE[..], more].concat();
        assert_eq!(transcribe(&place, &more, &files).0, text);
    }
    // Without JSON there is a line for each file; that of a silent file is blank.
    let plain = transcribe(&place, &ONCE, &files).0;
    let texts: Vec<&str> = plain.split('\n').collect();
    assert_eq!(texts.len(), 5);
    let one_line = |text: &Value| text.as_str().unwrap().replace(['\n', '\r'], " ");
    answers
        .iter()
        .zip(&texts)
        .for_each(|(answer, text)| assert_eq!(one_line(&answer["text"]), *text));
    assert_eq!(texts[1], "");
}

#[test]
fn batched_windows_are_the_same_in_any_batch() {
    let place = whisper(ONE_LANGUAGE);
    let files = ["long.wav", "short.wav", "long.wav"];
    for beams in ["1", "3"] {
        let with = |more: &[&str]| {
            let options = [&["--json", "--batched", "--beams", beams][..], more].concat();
            let (text, notes, code) = transcribe(&place, &options, &files);
            assert_eq!(code, Some(0), "{notes}");
            text
        };
        let text = with(&[]);
        for more in [&["--slots", "1"][..], &["--slots", "3"], &["--threads", "2"]] {
            assert_eq!(with(more), text);
        }
        let answers = lines(&text);
        assert_eq!(answers[0], answers[2]);
        let windows = answers[0]["windows"].as_array().unwrap();
        // They follow each other and cover the file.
        assert!(windows.len() >= 3);
        assert_eq!(windows[0]["start"], 0.0);
        assert!(windows.windows(2).all(|pair| pair[0]["end"] == pair[1]["start"]));
        assert_eq!(windows[windows.len() - 1]["end"], 2.5);
    }
}

#[test]
fn attempts_rise_in_temperature_and_are_reproducible() {
    let place = whisper(ONE_LANGUAGE);
    // Random weights write improbable texts.
    let with = |more: &[&str]| {
        let options = [&["--json", "--no-speech-threshold", "1"][..], more].concat();
        let (text, notes, code) = transcribe(&place, &options, &["long.wav"]);
        assert_eq!(code, Some(0), "{notes}");
        (text.clone(), lines(&text).remove(0)["windows"].as_array().unwrap().clone())
    };
    let (text, windows) = with(&[]);
    assert!(windows.iter().all(|w| w["attempts"] == 6 && w["temperature"] == 1.0), "{text}");
    assert_eq!(with(&["--threads", "2"]).0, text);
    assert_ne!(with(&["--sample", "--seed", "7"]).0, text);
    let (_, windows) = with(&["--temperatures", "0,0.5", "--logprob-threshold", "-0.1"]);
    assert!(windows.iter().all(|w| w["attempts"] == 2 && w["temperature"] == 0.5));
    // The first attempt passes checks that are off.
    let off = ["--logprob-threshold", "-1000", "--compression-ratio-threshold", "1000"];
    let (_, windows) = with(&off);
    assert!(windows.iter().all(|w| w["attempts"] == 1 && w["temperature"] == 0.0));
    assert_eq!(windows, with(&["--no-fallback"]).1);
    // Any probability of no speech is above 0: nothing is said.
    let silent = ["--json", "--no-speech-threshold", "0", "--logprob-threshold", "0"];
    let (text, notes, _) = transcribe(&place, &silent, &["long.wav"]);
    let answer = lines(&text).remove(0);
    assert_eq!(answer["text"], "", "{notes}");
    assert!(answer["windows"].as_array().unwrap().iter().all(|w| w["skipped"] == true));
}

#[test]
fn earlier_text_and_a_given_text_are_prompts() {
    let place = whisper(ONE_LANGUAGE);
    let with = |more: &[&str]| {
        let options = [&["--json"], &ONCE[..], more].concat();
        transcribe(&place, &options, &["long.wav"])
    };
    let (_, notes, code) = with(&["--condition-on-previous-text", "true"]);
    assert_eq!(code, Some(1));
    assert!(notes.contains("expected prev_sot_token_id in generation_config.json"), "{notes}");
    place.write(
        "generation_config.json",
        ONE_LANGUAGE.replacen('{', r#"{"prev_sot_token_id": 1304, "#, 1),
    );
    let plain = with(&[]).0;
    assert_eq!(with(&["--condition-on-previous-text", "true"]).0, plain);
    assert_eq!(with(&["--condition-on-previous-text", "false"]).2, Some(0));
    let prompted = with(&["--initial-prompt", "attention is all"]).0;
    assert_ne!(prompted, plain);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let mut prefix = tokenizer.encode_target(" attention is all").unwrap();
    prefix.push(START);
    let windows = lines(&prompted).remove(0)["windows"].clone();
    let frames = frames(&floats(&audio("chirp", 40_000)));
    let model = Model::open(&place.0).unwrap();
    let mut session = Session::new(&model, Limits::new(1, 50, 23)).unwrap();
    let mut features = frames[..8000].to_vec();
    features.resize(8000, 0.0);
    let mut options = session.search_options();
    options.start = 1304;
    let mut source =
        Source { prefix: &prefix, ..Source::of_features(Features::new(&features, 80)) };
    source.stream = 0;
    let mut rule = Timestamps { no_timestamps: NO_TIMESTAMPS, eos: END, max_initial: Some(50) };
    let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut rule];
    let mut hooks = Hooks { processors: &mut rules, ..Hooks::default() };
    (options.max_length, options.max_new_tokens) = (Some(24.min(14 + 1 + prefix.len())), None);
    session
        .generate(&[source], &options, &mut hooks, &mut |event| {
            if let Event::Done(done) = event {
                let mut best = done.hypotheses().next().unwrap().tokens.to_vec();
                best.retain(|&id| id != END);
                assert_eq!(ids(&windows[0]), best);
            }
        })
        .unwrap();
}

#[test]
fn languages_are_detected_or_given() {
    let place = whisper(SEVERAL);
    let samples = floats(&audio("noise", 9_000));
    let short = frames(&samples);
    let heard = |more: &[&str]| {
        let (text, notes, code) =
            transcribe(&place, &[&["--json"], &ONCE[..], more].concat(), &["short.wav"]);
        assert_eq!(code, Some(0), "{notes}");
        let answer = lines(&text).remove(0);
        (answer["language"].as_str().unwrap().to_owned(), ids(&answer["windows"][0]))
    };
    for (more, language, prefix) in [
        (&["--language", "fr"][..], "fr", [1298, 1302]),
        (&["--language", "<|de|>"], "de", [1299, 1302]),
        (&["--language", "German"], "de", [1299, 1302]),
        (&["--language", "cantonese"], "yue", [1300, 1302]),
        (&["--language", "yue", "--task", "translate"], "yue", [1300, 1301]),
    ] {
        let (tokens, _) = expected(&place, &short, &prefix);
        assert_eq!(heard(more), (language.to_owned(), tokens), "{more:?}");
    }
    // The most probable first token of the four.
    let (language, tokens) = heard(&[]);
    let model = Model::open(&place.0).unwrap();
    let mut features = short.clone();
    features.resize(8000, 0.0);
    let mut session = Session::new(&model, Limits::new(1, 50, 23)).unwrap();
    let mut sentence = [simdformer::SourceId::default()];
    session.encode_features(&[Features::new(&features, 80)], &mut sentence).unwrap();
    let row = session.start(sentence[0]).unwrap();
    let logits = session.step(&[simdformer::StepRow::new(row, START)]).unwrap();
    let best = (1297..=1300).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
    assert_eq!(language, ["en", "fr", "de", "yue"][best - 1297]);
    assert_eq!(tokens, expected(&place, &short, &[best as u32, 1302]).0);
    // A checkpoint may name its language.
    place.write("generation_config.json", SEVERAL.replacen('{', r#"{"language": "french", "#, 1));
    assert_eq!(heard(&[]).0, "fr");
    assert_eq!(heard(&["--language", "en"]).0, "en");
    // A language that the model lacks is an error with the nearest languages.
    let (_, notes, code) = transcribe(&place, &["--language", "fra"], &["short.wav"]);
    assert_eq!(code, Some(1));
    let message =
        "simdformer: language: expected one of the model's languages, found \"fra\"; nearest: fr";
    assert!(notes.starts_with(message), "{notes}");
}

#[test]
fn timestamps_are_relative_to_the_file() {
    let place = whisper(ONE_LANGUAGE);
    let (text, notes, _) =
        transcribe(&place, &[&["--json", "--timestamps"], &ONCE[..]].concat(), &["long.wav"]);
    let answer = lines(&text).remove(0);
    let windows = answer["windows"].as_array().unwrap();
    let segments = answer["segments"].as_array().unwrap();
    assert!(segments.len() > 1, "{notes}");
    for segment in segments {
        let window = &windows[segment["window"].as_u64().unwrap() as usize];
        let (start, end) = (segment["start"].as_f64().unwrap(), segment["end"].as_f64().unwrap());
        let offset = window["start"].as_f64().unwrap();
        let last = window["end"].as_f64().unwrap();
        assert!(offset <= start && start <= end && end <= last, "{segment} {window}");
        let tokens = ids(segment);
        if tokens[0] > NO_TIMESTAMPS {
            let time = offset + f64::from(tokens[0] - NO_TIMESTAMPS - 1) * 0.02;
            assert!((start - time.min(last)).abs() <= 1e-9, "{segment} {time}");
        }
    }
    let plain = transcribe(&place, &[&["--timestamps"], &ONCE[..]].concat(), &["long.wav"]).0;
    assert_eq!(plain.lines().count(), segments.len());
    let first = plain.lines().next().unwrap();
    assert!(first.starts_with(&format!("[{:.2} -> ", segments[0]["start"])), "{first}");
    // Without the timestamps of the model a segment is a window, and the next window begins after it.
    place.write("generation_config.json", r#"{"max_length": 14}"#);
    let (_, notes, code) = transcribe(&place, &["--timestamps"], &["long.wav"]);
    assert_eq!(code, Some(1));
    assert!(notes.contains("timestamps: expected no_timestamps_token_id"), "{notes}");
    let (text, _, _) = transcribe(&place, &[&["--json"], &ONCE[..]].concat(), &["long.wav"]);
    let starts = |of: &str| -> Vec<f64> {
        let all = lines(&text).remove(0)[of].as_array().unwrap().clone();
        all.iter().map(|window| window["start"].as_f64().unwrap()).collect()
    };
    assert_eq!((starts("windows"), starts("segments")), (vec![0.0, 1.0, 2.0], vec![0.0, 1.0, 2.0]));
}

#[test]
fn wrong_files_are_reported_and_the_others_transcribed() {
    let place = whisper(ONE_LANGUAGE);
    place.write("notes.txt", "A text is no recording.");
    place.write("song.mp3", b"ID3\x04\0\0\0\0\0\0\0\0\0\0");
    let mut nan: Vec<u8> = [0f32; 20_000].iter().flat_map(|x| x.to_le_bytes()).collect();
    nan[4 * 19_000..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    place
        .write("nan.wav", riff(&[chunk(b"fmt ", &format(3, 1, 16_000, 32)), chunk(b"data", &nan)]));
    let files = ["notes.txt", "short.wav", "song.mp3", "nan.wav", "none.wav"];
    let (text, notes, code) = transcribe(&place, &["--json"], &files);
    assert_eq!(code, Some(1));
    let answers = lines(&text);
    let error = |i: usize| {
        assert!(answers[i]["text"].is_null());
        answers[i]["error"].as_str().unwrap()
    };
    assert!(error(0).contains("expected ") && error(0).contains(", found "), "{}", error(0));
    assert!(answers[1]["text"].is_string());
    assert!(error(2).contains("MP3"), "{}", error(2));
    assert_eq!(error(3), "sample 19000: expected a finite number, found NaN");
    assert!(error(4).contains("none.wav: cannot be read: "), "{}", error(4));
    assert!(notes.ends_with("simdformer: 4 of 5 files were not transcribed\n"), "{notes}");
    assert!(notes.contains("song.mp3: "), "{notes}");
    // Nothing of the file is written, not even the text before the error.
    let plain = transcribe(&place, &[], &files).0;
    let blank: Vec<bool> = plain.lines().map(str::is_empty).collect();
    assert_eq!(blank, [true, false, true, true, true], "{plain}");
}

/// A file that is cut gives its text, a note that says where, and exit code 1; a recorder that was killed, and a pipe, wrote no
/// length, and their files are whole.
#[test]
fn files_that_are_cut_are_transcribed_and_noted() {
    let place = whisper(ONE_LANGUAGE);
    let whole = wav(&audio("chirp", 40_000));
    place.write("half.wav", wav(&audio("chirp", 40_000)[..20_000]));
    place.write("cut.wav", &whole[..44 + 40_000]);
    for (name, all, length) in [("killed.wav", 36u32, 0u32), ("pipe.wav", 0x7fff_f024, 0x7fff_f000)]
    {
        let mut file = whole.clone();
        file[4..8].copy_from_slice(&all.to_le_bytes());
        file[40..44].copy_from_slice(&length.to_le_bytes());
        place.write(name, file);
    }
    let (expected, _, code) = transcribe(&place, &ONCE, &["long.wav", "long.wav", "half.wav"]);
    assert_eq!(code, Some(0));
    let files = ["killed.wav", "pipe.wav", "half.wav"];
    let (text, notes, code) = transcribe(&place, &ONCE, &files);
    assert_eq!((&text, code), (&expected, Some(0)), "{notes}");
    let half = "WAV, after 1.25 s: the file ends too early: expected 40000 samples, found 20000";
    let files = ["killed.wav", "pipe.wav", "cut.wav"];
    let (text, notes, code) = transcribe(&place, &ONCE, &files);
    assert_eq!((&text, code), (&expected, Some(1)), "{notes}");
    assert!(notes.ends_with(&format!("cut.wav: sound is missing: {half}\n")), "{notes}");
    let more = [&ONCE[..], &["--json"]].concat();
    let (text, _, code) = transcribe(&place, &more, &["cut.wav", "long.wav"]);
    let answers = lines(&text);
    assert_eq!((answers[0]["incomplete"].as_str(), code), (Some(half), Some(1)));
    assert_eq!(
        (answers[0]["seconds"].as_f64(), answers[1]["incomplete"].is_null()),
        (Some(1.25), true)
    );
    // Also the text of a stream, of separate channels, and of a compressed file.
    let (model, cut) = (place.0.to_str().unwrap(), place.0.join("cut.wav"));
    let stream = ["transcribe", "--model", model, "--stream", "--delay", "100"];
    let output = run_command(&[&stream, &ONCE[..], &[cut.to_str().unwrap()]].concat(), "");
    let (text, notes, code) = (out(&output), err(&output), output.status.code());
    assert!(!text.is_empty() && notes.contains(half) && code == Some(1), "{notes}");
    let channels = [&ONCE[..], &["--separate-channels"]].concat();
    let (_, notes, code) = transcribe(&place, &channels, &["cut.wav"]);
    assert!(notes.contains(half) && code == Some(1), "{notes}");
    // Two recordings that were joined: the page of the second one is cut.
    let opus = fs::read(golden("audio").join("opus.ogg")).unwrap().repeat(2);
    place.write("cut.ogg", &opus[..opus.len() * 3 / 4]);
    let (text, notes, code) = transcribe(&place, &ONCE, &["cut.ogg"]);
    assert!(text.len() > 1 && notes.contains("ogg, after 0.") && code == Some(1), "{text} {notes}");
}

#[test]
fn samples_without_a_header_and_one_of_two_channels() {
    let place = whisper(ONE_LANGUAGE);
    let expected = transcribe(&place, &ONCE, &["long.wav"]).0;
    let samples = audio("chirp", 40_000);
    place.write("long.raw", samples.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let both = samples.iter().flat_map(|x| [0_i16.to_le_bytes(), x.to_le_bytes()].concat());
    place.write("both.raw", both.collect::<Vec<u8>>());
    let raw = ["--raw-format", "s16le"];
    assert_eq!(transcribe(&place, &[&ONCE[..], &raw].concat(), &["long.raw"]).0, expected);
    let right = ["--channels", "2", "--channel", "1"];
    let right = [&ONCE[..], &raw, &right].concat();
    assert_eq!(transcribe(&place, &right, &["both.raw"]).0, expected);
    let (_, notes, code) = transcribe(&place, &["--channel", "1"], &["long.wav"]);
    assert_eq!(code, Some(1));
    assert!(notes.contains("the channel: expected 0 to 0, found 1"), "{notes}");
}

#[test]
fn standard_input_may_be_a_pipe_of_ffmpeg() {
    let place = whisper(ONE_LANGUAGE);
    let mut file = wav(&audio("chirp", 40_000));
    for at in [4, 40] {
        file[at..at + 4].fill(0xff);
    }
    // A pipe is read once, and its features are scaled by what was read so far.
    let expected = transcribe(&place, &ONCE, &["long.wav"]).0;
    for more in [&ONCE[..], &[&ONCE[..], &["-"]].concat()] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_simdformer"))
            .args(["transcribe", "--model", place.0.to_str().unwrap(), "--vad", "false"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&file).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(out(&output), expected, "{}", err(&output));
    }
}

#[test]
fn only_speech_is_transcribed() {
    let place = whisper(ONE_LANGUAGE);
    let model = place.0.to_str().unwrap();
    let heard = |more: &[&str]| {
        let file = place.0.join("long.wav");
        let first = ["transcribe", "--model", model, "--json", file.to_str().unwrap()];
        let output = run_command(&[&first, more].concat(), "");
        (out(&output).to_owned(), err(&output).to_owned(), output.status.code())
    };
    let spans = |more: &[&str]| {
        let found = &lines(&heard(more).0)[0];
        let windows = found["windows"].as_array().unwrap().iter();
        windows
            .map(|w| (w["start"].as_f64().unwrap(), w["end"].as_f64().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(spans(&[]), [], "a tone is no speech");
    assert_eq!(spans(&["--vad", "false", "--batched"]).last().unwrap().1, 2.5);
    // Where the network hears speech depends on the thresholds.
    assert!(!spans(&["--vad-threshold", "0", "--batched"]).is_empty());
    for (number, text) in ["0.25 0.75\n\n 1 1.5\n", "[[0.25, 0.75], [1, 1.5]]"].iter().enumerate() {
        let name = place.0.join(format!("spans{number}"));
        place.write(&format!("spans{number}"), text);
        let found = spans(&["--speech", name.to_str().unwrap()]);
        assert!(
            found.iter().all(|w| (0.25..0.75).contains(&w.0) || (1.0..1.5).contains(&w.0)),
            "{found:?}"
        );
        assert_eq!((found[0].0, found.last().unwrap().1), (0.25, 1.5));
    }
    for (text, message) in [
        ("0 1\n2\n", "line 2: expected \"start end\" in seconds, found \"2\""),
        ("[[1]]", "expected [[start, end], ...] in seconds: "),
        ("2 1", "speech: expected seconds that ascend from 0, found 2 to 1"),
    ] {
        place.write("wrong", text);
        let (_, notes, code) = heard(&["--speech", place.0.join("wrong").to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(notes.contains(message), "{notes}");
    }
    let (_, notes, code) = heard(&["--vad-threshold", "2"]);
    assert!(
        code == Some(1) && notes.contains("the threshold of speech: expected 0 to 1, found 2"),
        "{notes}"
    );
}

#[test]
fn features_that_do_not_fit_the_model_are_errors() {
    let place = whisper(ONE_LANGUAGE);
    let refused = |more: &[&str], message: &str| {
        let (_, notes, code) = transcribe(&place, more, &["short.wav"]);
        assert_eq!(code, Some(1));
        assert!(notes.contains(message), "{notes}");
    };
    refused(
        &["--language", "en"],
        "language: expected none, as the model has no languages to choose from, found \"en\"",
    );
    refused(&["--task", "translate"], "the model has no task \"translate\"");
    place.write("preprocessor_config.json", r#"{"chunk_length": 1, "feature_size": 128}"#);
    refused(&[], "feature_size: expected the 80 mel bins of the model, found 128");
    place.write("preprocessor_config.json", "{}");
    refused(&[], "chunk_length: expected the 100 frames of the model, found 3000");
    place.write("preprocessor_config.json", r#"{"n_fft": 512}"#);
    refused(&[], "preprocessor_config.json: n_fft: expected 400, found 512");
    fs::remove_file(place.0.join("preprocessor_config.json")).unwrap();
    refused(&[], "expected preprocessor_config.json or processor_config.json, found none");
    let text = golden("dirs/bert");
    let output = run_command(&["transcribe", "--model", text.to_str().unwrap()], "");
    let message = "simdformer: expected a model that transcribes (Whisper), found WordPiece\n";
    assert_eq!(err(&output), message);
}

#[test]
fn the_loaded_model_is_printed() {
    let place = whisper(SEVERAL);
    let (_, notes, _) = transcribe(
        &place,
        &["--summary", "--no-fallback", "--max-new-tokens", "2"],
        &["short.wav"],
    );
    for part in ["whisper, d_model 8", "audio: 16000 Hz, 80 mel bins, windows of 1 s"] {
        assert!(notes.contains(part), "{part:?} in {notes}");
    }
    let cut = "short.wav: the text from 0.0 s on was cut after 2 tokens\n";
    assert!(notes.ends_with(cut), "{notes}");
}

#[test]
fn subtitles_are_written_and_read() {
    let place = whisper(ONE_LANGUAGE);
    let with =
        |more: &[&str], files: &[&str]| transcribe(&place, &[&ONCE[..], more].concat(), files);
    let (text, notes, code) = with(&["--json", "--words"], &["long.wav"]);
    assert_eq!(code, Some(0), "{notes}");
    let segments = lines(&text).remove(0)["segments"].as_array().unwrap().clone();
    let words: usize = segments.iter().map(|s| s["words"].as_array().unwrap().len()).sum();
    assert_eq!(with(&["--words", "--timestamps"], &["long.wav"]).0.lines().count(), words);
    // The file of a width: no line is longer, and times ascend.
    let cues = ["--max-line-width", "16"];
    for flag in ["--srt", "--vtt"] {
        let (file, _, _) = with(&[&[flag][..], &cues].concat(), &["long.wav"]);
        let times: Vec<&str> = file.lines().filter(|line| line.contains(" --> ")).collect();
        assert!(times.len() >= segments.len());
        assert!(times.is_sorted());
        let long = |line: &&str| line.chars().count() > 16 && !line.contains(" --> ");
        assert_eq!(
            file.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&").lines().find(long),
            None
        );
    }
    let out = place.0.join("out");
    let directory = format!("{}/", out.display());
    let to = ["--output", &directory, "--srt", "--vtt", "--tsv", "--json"];
    let (text, notes, code) = with(&to, &["long.wav", "short.wav"]);
    assert_eq!((text.as_str(), code), ("", Some(0)), "{notes}");
    for name in ["long", "short"] {
        for extension in ["srt", "vtt", "tsv", "json"] {
            assert!(out.join(format!("{name}.{extension}")).is_file(), "{name}.{extension}");
        }
    }
    let srt = out.join("one.srt");
    with(&["--output", srt.to_str().unwrap()], &["long.wav"]);
    assert_eq!(fs::read(srt).unwrap(), fs::read(out.join("long.srt")).unwrap());
    for (more, files, message) in [
        (&["--srt", "--vtt"][..], &["long.wav"][..], "several formats need --output DIR"),
        (&["--srt"], &["long.wav", "short.wav"], "subtitles of several files need --output DIR"),
    ] {
        let (_, notes, code) = with(more, files);
        assert_eq!((code, notes.trim_end()), (Some(1), &*format!("simdformer: {message}")));
    }
}

#[test]
fn options_without_an_effect_are_errors() {
    let place = whisper(SEVERAL);
    for (more, message) in [
        (&["--vad-threshold", "0.4"][..], "--vad-threshold has no effect without --vad true"),
        (&["--vad-pad", "2"], "--vad-pad has no effect without --vad true"),
        (&["--speech", "spans", "--vad-pad", "2"], "cannot be used with"),
        (
            &["--batched", "--condition-on-previous-text", "true"],
            "--condition-on-previous-text true has no effect without windows one after the other",
        ),
        (&["--detect-each-window", "--language", "fr"], "cannot be used with"),
        (&["--words"], "--words has no effect without --json, --timestamps, --srt, --vtt or --tsv"),
        (
            &["--max-line-width", "16"],
            "--max-line-width has no effect without --srt, --vtt or --tsv",
        ),
        (&["--json", "--max-line-width", "16"], "--max-line-width has no effect without --srt"),
    ] {
        let (text, notes, code) = transcribe(&place, more, &["short.wav"]);
        assert_eq!((text.as_str(), code), ("", Some(2)), "{more:?}: {notes}");
        assert!(notes.contains(message), "{more:?}: {notes}");
    }
    let model = ["transcribe", "--model", place.0.to_str().unwrap()];
    let stream = ["--stream", "--words", "--timestamps"];
    let output = run_command(&[model, stream].concat(), "");
    let message = "--words has no effect without --json";
    assert!(output.status.code() == Some(2) && err(&output).contains(message), "{output:?}");
}

#[test]
fn channels_are_transcribed_separately() {
    let place = whisper(ONE_LANGUAGE);
    let (left, right) = (audio("chirp", 40_000), audio("noise", 40_000));
    let both =
        left.iter().zip(&right).flat_map(|(l, r)| [l.to_le_bytes(), r.to_le_bytes()].concat());
    place.write("both.raw", both.collect::<Vec<u8>>());
    let raw = ["--raw-format", "s16le", "--channels", "2", "--json"];
    let with = |more: &[&str], file: &str| {
        let (text, notes, code) = transcribe(&place, &[&ONCE[..], &raw, more].concat(), &[file]);
        (lines(&text).remove(0), notes, code)
    };
    let (answer, notes, code) = with(&["--separate-channels"], "both.raw");
    assert_eq!(code, Some(0), "{notes}");
    let segments = answer["segments"].as_array().unwrap();
    for channel in [0, 1] {
        let alone = with(&["--channel", &channel.to_string()], "both.raw").0;
        let texts = |segments: &[Value]| -> Vec<(Value, Value)> {
            segments.iter().map(|s| (s["text"].clone(), s["start"].clone())).collect()
        };
        let own: Vec<Value> =
            segments.iter().filter(|segment| segment["channel"] == channel).cloned().collect();
        assert_eq!(texts(&own), texts(alone["segments"].as_array().unwrap()));
    }
    assert!(
        segments.is_sorted_by_key(|segment| (100.0 * segment["start"].as_f64().unwrap()) as u64)
    );
    let (answer, _, code) = with(&["--separate-channels"], "none.raw");
    assert_eq!(code, Some(1));
    assert!(answer["error"].as_str().unwrap().contains("none.raw: cannot be read: "));
}
