//! `transcribe --stream` writes while it reads.

use crate::command::{err, out, run_command};
use serde_json::Value;
use simdformer_testing::published::{ONE_LANGUAGE, whisper};
use simdformer_testing::riff::wav;
use simdformer_testing::sounds::audio;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::spawn as spawn_thread;
use std::time::Duration;

#[test]
fn the_command_writes_before_the_pipe_ends() {
    let place = whisper(ONE_LANGUAGE);
    let model = place.0.to_str().unwrap();
    let bytes: Vec<u8> = audio("chirp", 40_000).iter().flat_map(|x| x.to_le_bytes()).collect();
    let spawn = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simdformer"));
        command.args(["transcribe", "--model", model, "--json", "--no-fallback"]).args(more);
        command.args(["--no-speech-threshold", "1", "--raw-format", "s16le", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut whole = spawn(&["--vad", "false"]);
    whole.stdin.take().unwrap().write_all(&bytes).unwrap();
    let whole = whole.wait_with_output().unwrap();
    let whole: Value = serde_json::from_str(out(&whole)).unwrap();
    let mut child = spawn(&["--stream", "--delay", "0.25"]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = channel();
    let reader = spawn_thread(move || lines.for_each(|line| sender.send(line.unwrap()).unwrap()));
    let next = || -> Option<Value> {
        let line = receiver.recv_timeout(Duration::from_secs(300));
        line.ok().map(|line| serde_json::from_str(&line).unwrap())
    };
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes[..30_000]).unwrap();
    // The pipe is open.
    let first = next().expect("a line before the end");
    assert_eq!(first["final"], false, "{first}");
    assert!(first["text"].as_str().unwrap().starts_with(first["stable"].as_str().unwrap()));
    assert!(first["end"].as_f64().unwrap() >= 0.25 && first["behind"].as_f64().unwrap() >= 0.0);
    input.write_all(&bytes[30_000..]).unwrap();
    drop(input);
    let all: Vec<Value> = core::iter::from_fn(next).collect();
    reader.join().unwrap();
    let notes = child.wait_with_output().unwrap();
    assert!(notes.status.success(), "{}", err(&notes));
    let finals = all.iter().filter(|line| line["final"] == true);
    let of = |line: &Value| ["start", "end", "text", "ids", "window"].map(|key| line[key].clone());
    let expected = whole["segments"].as_array().unwrap();
    assert!(!expected.is_empty());
    assert_eq!(finals.map(of).collect::<Vec<_>>(), expected.iter().map(of).collect::<Vec<_>>());
    // A truncated file, or two.
    let two = run_command(&["transcribe", "--model", model, "--stream", "a.wav", "b.wav"], "");
    assert!(err(&two).ends_with("simdformer: --stream: expected one file or pipe, found 2\n"));
    place.write("cut.wav", &wav(&audio("chirp", 40_000))[..60_000]);
    let path = place.0.join("cut.wav");
    let cut =
        run_command(&["transcribe", "--model", model, "--stream", path.to_str().unwrap()], "");
    assert_eq!(cut.status.code(), Some(1), "{}", err(&cut));
    assert!(err(&cut).contains("expected 40000 samples"), "{}", err(&cut));
}
