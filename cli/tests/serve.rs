//! `serve`: models by their files, the address, a request, and the end by a signal.

use crate::command::{err, run};
use serde_json::{Value, json};
use simdformer_testing::published::{encoder, french};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

/// Ends the command if the test fails.
struct Running(Child, BufReader<ChildStderr>);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[&str]) -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simdformer"));
    command.args(["serve", "--address", "127.0.0.1:0", "--quiet"]).args(arguments);
    let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let notes = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running(child, notes);
    let mut line = String::new();
    running.1.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("simdformer: listening on http://");
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    (running, address)
}

fn post(address: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
    let mut client = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let length = body.len();
    write!(
        client,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn several_models_are_served_until_a_signal() {
    let (french, bert, cross) = (french(), encoder("bert"), encoder("bert_cross"));
    french.write("key", "secret\n");
    let path = |place: &simdformer_testing::temporary_folder::TemporaryFolder| {
        place.0.to_str().unwrap().to_owned()
    };
    let (model, bert, cross) = (path(&french), path(&bert), path(&cross));
    let key = french.0.join("key");
    let arguments = [
        "--model",
        &model,
        "--also",
        &bert,
        "--also",
        &cross,
        "--threads",
        "2",
        "--key-file",
        key.to_str().unwrap(),
    ];
    let (mut running, address) = start(&arguments);
    let text = json!({"q": "je suis étudiant", "source": "fr", "target": "en"});
    let found = post(&address, "/translate", "secret", &text);
    assert_eq!(found, (200, json!({"translatedText": "i am a student"})));
    assert_eq!(post(&address, "/translate", "other", &text).0, 401);
    let (status, found) = post(&address, "/v1/embeddings", "secret", &json!({"input": "a"}));
    assert!(status == 200 && found["data"][0]["embedding"].is_array(), "{found}");
    let texts = json!({"query": "a", "texts": ["b", "c"]});
    let (status, found) = post(&address, "/rerank", "secret", &texts);
    assert!(status == 200 && found.as_array().unwrap().len() == 2, "{found}");
    let kill = Command::new("kill").arg(running.0.id().to_string()).status().unwrap();
    assert!(kill.success());
    let mut notes = String::new();
    running.1.read_to_string(&mut notes).unwrap();
    assert_eq!((running.0.wait().unwrap().code(), &notes[..]), (Some(0), "simdformer: stopped\n"));
}

#[test]
fn what_cannot_be_served_is_an_error() {
    let (place, other) = (french(), french());
    let (model, other) = (place.0.to_str().unwrap(), other.0.to_str().unwrap());
    place.write("empty", "\n");
    let empty = place.0.join("empty");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (more, code, part) in [
        (&["--also", other][..], 1, "expected one model that translates, found a second one"),
        (&["--address", "nowhere"], 2, "invalid value 'nowhere' for '--address <ADDRESS>'"),
        (&["--address", &taken], 1, "simdformer: the address "),
        (&["--deadline", "0"], 2, "expected a number of seconds from 0.001 to 86400"),
        (
            &["--key-file", empty.to_str().unwrap()],
            1,
            "expected a key in the first line, found none",
        ),
        (&["--also", "no/such/model"], 1, "no/such/model"),
    ] {
        let output = run(&[&["serve", "--quiet", "--model", model], more].concat(), "");
        let found = (output.status.code(), err(&output));
        assert!(found.0 == Some(code) && found.1.contains(part), "{more:?}: {found:?}");
    }
}
