//! `/translate/stream`: events while the model writes.

use crate::client::{
    config, connect, get, metric, post, posted, request, translating, wait_until_idle,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Duration;

/// The name and the data of each event.
fn events(body: &str) -> Vec<(String, Value)> {
    let event = |text: &str| {
        let (name, data) = text.split_once('\n').unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        (name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
    };
    body.split_terminator("\n\n").map(event).collect()
}

#[test]
fn pieces_are_sentences_and_sentences_are_the_text() {
    let server = translating(config());
    let text = "Je suis étudiant. Il fait froid !\n\n1234\n\nLa maison blanche.";
    let body = json!({"q": text, "source": "fr", "target": "en", "alignment": true});
    let answer = post(&server, "/translate/stream", &body);
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/event-stream"));
    let events = events(&answer.body);
    let (mut whole, mut sentence, mut sentences, mut pieces) = (String::new(), String::new(), 0, 0);
    for (name, data) in &events[..events.len() - 1] {
        match &name[..] {
            "copied" => whole += data["text"].as_str().unwrap(),
            "piece" => {
                pieces += 1;
                sentence += data["text"].as_str().unwrap();
            }
            "sentence" => {
                assert_eq!(data["text"], json!(sentence), "{data}");
                let confidence = data["confidence"].as_f64().unwrap();
                assert!(confidence > 0.0 && confidence <= 1.0, "{data}");
                assert!(!data["words"]["links"].as_array().unwrap().is_empty(), "{data}");
                whole += &std::mem::take(&mut sentence);
                sentences += 1;
            }
            _ => panic!("{name}"),
        }
    }
    let expected = posted(&server, "/translate", &json!({"q": text, "source": "fr"}), 200);
    let (name, last) = events.last().unwrap();
    assert_eq!((&name[..], &last["translatedText"]), ("done", &expected["translatedText"]));
    assert_eq!(json!(whole), expected["translatedText"]);
    assert!(sentences == 3 && pieces > sentences, "{pieces} pieces of {sentences} sentences");
}

#[test]
fn only_one_text_is_streamed() {
    let server = translating(config());
    for body in [
        json!({"q": ["a"]}),
        json!({"q": "a", "alternatives": 1}),
        json!({"q": "a", "format": "html"}),
    ] {
        let found = posted(&server, "/translate/stream", &body, 400);
        assert!(found["error"].as_str().unwrap().starts_with("expected one text"), "{found}");
    }
}

/// A client that reads nothing keeps neither its place nor its connection, of which there is one.
#[test]
fn clients_that_read_nothing_are_left() {
    let mut hasty = config();
    (hasty.connections, hasty.body_bytes) = (1, 32 << 20);
    hasty.write_time = Duration::from_millis(100);
    hasty.deadline = Duration::from_secs(5);
    let server = translating(hasty);
    // More than the buffers of the operating system hold; it is copied.
    let body = json!({"q": "\n".repeat(6 << 20), "source": "fr", "target": "en"}).to_string();
    for path in ["/translate", "/translate/stream"] {
        let mut client = connect(server.address());
        client.write_all(&request("POST", path, "application/json", body.as_bytes())).unwrap();
        // The connection of the next client waits until that of the first one has ended.
        assert_eq!(get(&server, "/health").status, 200);
        wait_until_idle(&server);
        drop(client);
    }
}

/// Many events that the client does not read, and a connection that does not end before the deadline.
#[test]
fn events_that_are_not_read_end_with_the_deadline() {
    let mut hasty = config();
    hasty.deadline = Duration::from_secs(6);
    hasty.body_bytes = 16 << 20;
    let server = translating(hasty);
    let body = json!({"q": format!("1{}", "\n".repeat(30_000)).repeat(160), "source": "fr", "target": "en"}).to_string();
    let mut client = connect(server.address());
    let bytes = request("POST", "/translate/stream", "application/json", body.as_bytes());
    client.write_all(&bytes).unwrap();
    // The answer has begun.
    client.read_exact(&mut [0; 300]).unwrap();
    assert_eq!(metric(&server, "simdformer_queue_requests"), 1.0);
    let begun = std::time::Instant::now();
    wait_until_idle(&server);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(client);
}

/// A client that leaves in the middle of a stream, or before an answer, leaves nothing behind.
#[test]
fn clients_that_leave_are_forgotten() {
    let server = translating(config());
    let text = "La maison blanche. Il fait froid. ".repeat(400);
    let bytes = |path| {
        let body = json!({"q": text, "source": "fr", "target": "en"}).to_string();
        request("POST", path, "application/json", body.as_bytes())
    };
    for path in ["/translate/stream", "/translate", "/translate/stream", "/translate"] {
        let mut client = connect(server.address());
        client.write_all(&bytes(path)).unwrap();
        if path == "/translate" {
            std::thread::sleep(Duration::from_millis(50));
        } else {
            client.read_exact(&mut [0; 300]).unwrap();
        }
    }
    let begun = std::time::Instant::now();
    wait_until_idle(&server);
    // Translating each of them takes longer.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(metric(&server, "simdformer_sentences_total") < 400.0);
    assert!(metric(&server, "simdformer_abandoned_total") >= 1.0);
    assert_eq!(post(&server, "/translate", &json!({"q": "je suis étudiant"})).status, 200);
}
