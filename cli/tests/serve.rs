//! `serve`: models by their files, the address, a request, and the end by a signal.

use crate::command::{err, run_command};
use serde_json::{Value, json};
use simdformer_testing::published::{encoder, french};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

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
    try_post(address, path, key, body).unwrap()
}

fn try_post(address: &str, path: &str, key: &str, body: &Value) -> io::Result<(u16, Value)> {
    let mut client = TcpStream::connect(address)?;
    let body = body.to_string();
    let length = body.len();
    write!(
        client,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head[9..12].parse().unwrap(), serde_json::from_str(body)?))
}

/// Passes connections to the addresses in turn, or to the next one that takes them, until the process ends. Counts those
/// that each address took.
fn balance(addresses: [String; 2]) -> (String, &'static [AtomicUsize; 2]) {
    static TAKEN: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for (turn, client) in listener.incoming().map(Result::unwrap).enumerate() {
            let taken = [turn % 2, (turn + 1) % 2].into_iter().find_map(|to| {
                let replica = TcpStream::connect(&addresses[to]).ok()?;
                TAKEN[to].fetch_add(1, Relaxed);
                Some(replica)
            });
            let replica = taken.expect("a replica that runs");
            let both = (client.try_clone().unwrap(), replica.try_clone().unwrap());
            for (mut from, mut to) in [(client, replica), (both.1, both.0)] {
                thread::spawn(move || {
                    // A replica that was killed ends the connection of its client.
                    let copied = io::copy(&mut from, &mut to);
                    to.shutdown(Shutdown::Write).and(copied)
                });
            }
        }
    });
    (address, &TAKEN)
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
        let output = run_command(&[&["serve", "--quiet", "--model", model], more].concat(), "");
        let found = (output.status.code(), err(&output));
        assert!(found.0 == Some(code) && found.1.contains(part), "{more:?}: {found:?}");
    }
    let bert = encoder("bert");
    let first = ["serve", "--quiet", "--model", bert.0.to_str().unwrap()];
    let output = run_command(&[&first[..], &["--to", "en"]].concat(), "");
    let text = "--to is for a model that translates, found none";
    assert!(output.status.code() == Some(2) && err(&output).contains(text), "{output:?}");
}

/// Two replicas behind a balancer give the same bytes. One is killed while it answers: clients that ask again have every
/// answer.
#[test]
fn any_replica_answers_and_one_may_be_killed() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let (first, first_address) = start(&["--model", model]);
    let (_second, second_address) = start(&["--model", model, "--threads", "2"]);
    let words = "je suis étudiant dans la vieille maison blanche et il fait froid".split(' ');
    let words: Vec<&str> = words.collect();
    let texts: Vec<String> = (0..40)
        .map(|i| {
            (0..2 + i % 5)
                .map(|at| words[(3 * i + at * (i + 1)) % words.len()])
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let ask = |address: &str, text: &str| {
        let body = json!({"q": text, "source": "fr", "target": "en", "alternatives": 1});
        try_post(address, "/translate", "", &body)
    };
    let expected: Vec<_> = texts.iter().map(|text| ask(&first_address, text).unwrap()).collect();
    for (text, expected) in texts.iter().zip(&expected) {
        assert_eq!((200, &ask(&second_address, text).unwrap()), (expected.0, expected), "{text}");
    }
    let (address, taken) = balance([first_address, second_address]);
    let (first, answered, again) = (Mutex::new(first), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..8 {
            let (address, texts, expected, ask) = (&address, &texts, &expected, &ask);
            let (first, answered, again) = (&first, &answered, &again);
            scope.spawn(move || {
                for round in 0..20 {
                    let index = (7 * client + round) % texts.len();
                    let mut tries = 0;
                    let found = loop {
                        match ask(address, &texts[index]) {
                            Ok(found) => break found,
                            Err(error) if tries == 9 => panic!("{error}"),
                            Err(_) => {
                                tries += 1;
                                again.fetch_add(1, Relaxed);
                                thread::sleep(Duration::from_millis(10));
                            }
                        }
                    };
                    assert_eq!(found, expected[index], "{}", texts[index]);
                    if answered.fetch_add(1, Relaxed) == 60 {
                        first.lock().unwrap().0.kill().unwrap();
                    }
                }
            });
        }
    });
    let taken = taken.each_ref().map(|count| count.load(Relaxed));
    assert_eq!(taken[0] + taken[1], 160 + again.into_inner());
    assert!(taken[0] >= 20 && taken[1] >= 80, "{taken:?}");
}
