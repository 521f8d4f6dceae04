//! `/v1/audio/transcriptions`: what clients of OpenAI get.

use crate::client::{Answer, config, exchange, get, post, request, wait_until_idle};
use serde_json::{Value, json};
use simdformer::search::Finish;
use simdformer_serve::{Models, Server};
use simdformer_speech::subtitles::{SubtitleFormat, SubtitleOptions, cues};
use simdformer_speech::{AudioReader, InputOptions, TranscribeOptions, Transcriber, Transcription};
use simdformer_testing::published::{ONE_LANGUAGE, whisper};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;

fn transcriber(place: &TemporaryFolder, words: bool) -> Transcriber {
    let options = |options: &mut TranscribeOptions| {
        *options = options.clone().without_fallback();
        // The sound of the tests is no speech.
        options.vad = None;
        options.words = words;
    };
    Transcriber::builder(&place.0).options(options).open().unwrap()
}

fn server(place: &TemporaryFolder) -> Server {
    let mut models = Models::default();
    models.transcriber = Some(transcriber(place, false));
    Server::start(models, config()).unwrap()
}

fn alone(place: &TemporaryFolder, words: bool) -> Transcription {
    let mut audio = AudioReader::open(place.0.join("long.wav"), InputOptions::default()).unwrap();
    let mut samples = vec![0.0; 40_000];
    assert_eq!(audio.read(&mut samples).unwrap(), samples.len());
    transcriber(place, words).transcribe(&samples).unwrap()
}

/// Sends a form of these fields and files.
fn send(server: &Server, fields: &[(&str, &str)], files: &[&[u8]]) -> Answer {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head =
            format!("--cut\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(head.into_bytes());
    }
    for file in files {
        let head =
            "--cut\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
        body.extend([head.as_bytes(), file, b"\r\n"].concat());
    }
    body.extend(b"--cut--\r\n");
    let media = "multipart/form-data; boundary=cut";
    exchange(server.address(), &request("POST", "/v1/audio/transcriptions", media, &body)).unwrap()
}

#[test]
fn every_form_has_the_text_of_the_recording() {
    let place = whisper(ONE_LANGUAGE);
    let server = server(&place);
    let found = alone(&place, false);
    assert!(!found.text().is_empty());
    let file = fs::read(place.0.join("long.wav")).unwrap();
    let in_form = |form| {
        let answer = send(&server, &[("model", "whisper-1"), ("response_format", form)], &[&file]);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    };
    // The texts of a random model do not end.
    let cut = found.windows.iter().filter(|window| window.finish == Finish::Length).count();
    let note = format!("the text from 0.0 s on reached the maximum length; {cut} windows did");
    assert_eq!((cut, in_form("json").json()), (3, json!({"text": found.text(), "notes": [note]})));
    let text = in_form("text");
    assert_eq!((text.header("simdformer-notes"), text.body.clone()), (&*note, found.text() + "\n"));
    for (form, format) in [("srt", SubtitleFormat::Srt), ("vtt", SubtitleFormat::Vtt)] {
        let mut expected = Vec::new();
        format.write(&cues(&found.segments, &SubtitleOptions::default()), &mut expected).unwrap();
        let subtitles = in_form(form);
        assert_eq!(subtitles.body.as_bytes(), expected);
        assert_eq!(subtitles.header("simdformer-notes"), note);
    }
    let verbose = in_form("verbose_json").json();
    assert_eq!((&verbose["text"], &verbose["duration"]), (&json!(found.text()), &json!(2.5)));
    assert_eq!(verbose["segments"].as_array().unwrap().len(), found.segments.len());
    for (segment, expected) in verbose["segments"].as_array().unwrap().iter().zip(&found.segments) {
        assert_eq!(segment["text"], json!(expected.text));
        assert_eq!(
            (&segment["start"], &segment["end"]),
            (&json!(expected.start), &json!(expected.end))
        );
        assert_eq!(segment["tokens"], json!(expected.tokens));
    }
    assert_eq!((&verbose["words"], &verbose["notes"]), (&Value::Null, &json!([note])));
    let fields = [("response_format", "verbose_json"), ("timestamp_granularities[]", "word")];
    let words = send(&server, &fields, &[&file]).json();
    let expected = alone(&place, true);
    let expected: Vec<Value> = expected
        .segments
        .iter()
        .flat_map(|segment| &segment.words)
        .map(|word| json!({"word": word.text.trim(), "start": word.start, "end": word.end}))
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(words["words"], json!(expected));
    assert_eq!(get(&server, "/ready").status, 200);
    wait_until_idle(&server);
}

#[test]
fn wrong_forms_are_errors() {
    let place = whisper(ONE_LANGUAGE);
    let server = server(&place);
    let file = fs::read(place.0.join("short.wav")).unwrap();
    let cut = &file[..file.len() / 2];
    type Case<'c> = (&'c [(&'c str, &'c str)], &'c [&'c [u8]], &'c str);
    let word = ("timestamp_granularities[]", "word");
    let cases: [Case<'_>; 14] = [
        (&[("model", "x")], &[], "file: expected a recording, found none"),
        (&[], &[b""], "file: expected a recording, found none"),
        (&[], &[b"hello, this is no sound at all, but a line of text"], "expected"),
        (&[], &[cut], "file: "),
        (&[("response_format", "xml")], &[&file], "response_format: expected json or text or"),
        (&[("temperature", "7")], &[&file], "temperature: expected a number from 0 to 1"),
        (&[("temperature", "NaN")], &[&file], "temperature: expected a number from 0 to 1"),
        (&[("timestamp_granularities[]", "letter")], &[&file], "expected word or segment"),
        (&[("stream", "true")], &[&file], "expected a field of /openapi.json"),
        (&[("diarize", "true")], &[&file], "expected a field of /openapi.json, found \"diarize\""),
        (&[("language", "xx")], &[&file], "language"),
        (&[], &[&file, &file], "file: expected it once, found it twice"),
        (&[("language", "fr"), ("language", "de")], &[&file], "language: expected it once"),
        (&[word, ("response_format", "srt")], &[&file], "expected verbose_json, found \"srt\""),
    ];
    for (fields, files, part) in cases {
        let found = send(&server, fields, files);
        let text = found.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(found.status == 400 && text.contains(part), "{fields:?}: {found:?}");
    }
    assert_eq!(post(&server, "/v1/audio/transcriptions", &json!({})).status, 415);
    for body in
        [&b""[..], b"--cut", b"--cut\r\n\r\n", b"--cut\r\nx: y\r\n\r\nz", b"\xff\xfe--cut--"]
    {
        let media = "multipart/form-data; boundary=cut";
        let bytes = request("POST", "/v1/audio/transcriptions", media, body);
        assert_eq!(exchange(server.address(), &bytes).unwrap().status, 400, "{body:?}");
    }
    let bytes = request("POST", "/v1/audio/transcriptions", "multipart/form-data", b"--cut--");
    assert_eq!(exchange(server.address(), &bytes).unwrap().status, 400);
    assert_eq!(send(&server, &[], &[&file]).status, 200);
    wait_until_idle(&server);
}

/// A check that takes longer than the deadline goes on, and later requests have its result.
#[test]
fn a_server_is_ready_although_those_that_ask_leave() {
    let place = whisper(ONE_LANGUAGE);
    let mut models = Models::default();
    models.transcriber = Some(transcriber(&place, false));
    let mut hasty = config();
    hasty.deadline = std::time::Duration::from_micros(1);
    let server = Server::start(models, hasty).unwrap();
    let mut found = Vec::new();
    while found.len() < 2000 && found.last() != Some(&200) {
        std::thread::sleep(std::time::Duration::from_millis(2));
        found.push(get(&server, "/ready").status);
    }
    assert_eq!((found.first(), found.last()), (Some(&503), Some(&200)), "{}", found.len());
}
