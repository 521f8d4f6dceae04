//! What a server says of itself, keys, limits of the queue and of time, and its end.

use crate::client::{
    config, connect, exchange, get, metric, post, posted, read_answer, request, translating,
    wait_until_idle,
};
use serde_json::json;
use simdformer_serve::{Error, Models, Server};
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn a_server_describes_itself() {
    let server = translating(config());
    assert_eq!(get(&server, "/health").json(), json!({"status": "ok"}));
    assert_eq!(get(&server, "/ready").json(), json!({"status": "ready"}));
    let info = get(&server, "/info").json();
    assert_eq!(info["models"]["translator"]["family"], "Marian");
    assert_eq!(info["limits"]["queue_tokens"], 32_768);
    posted(&server, "/translate", &json!({"q": "je suis étudiant"}), 200);
    posted(&server, "/translate", &json!({"q": 1}), 400);
    let page = get(&server, "/metrics");
    assert_eq!(page.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for (name, value) in [
        ("simdformer_requests_total{route=\"/translate\",status=\"200\"}", 1.0),
        ("simdformer_requests_total{route=\"/translate\",status=\"400\"}", 1.0),
        ("simdformer_request_seconds_count{route=\"/translate\"}", 2.0),
        ("simdformer_request_seconds_bucket{route=\"/translate\",le=\"+Inf\"}", 2.0),
        ("simdformer_queue_tokens", 0.0),
        ("simdformer_sentences_total", 1.0),
    ] {
        assert_eq!(metric(&server, name), value, "{name}");
    }
    assert!(metric(&server, "simdformer_session_bytes{model=\"translator\"}") > 1000.0);
    // Every line is a comment, or a name of Prometheus with a number.
    for line in page.body.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let name = name.split('{').next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn a_server_without_a_model_or_an_address_does_not_start() {
    let error = Server::start(Models::default(), config()).unwrap_err();
    assert!(matches!(error, Error::NoModel), "{error}");
    let server = translating(config());
    let mut same = config();
    same.address = server.address();
    let mut models = Models::default();
    let translator = simdformer_text::translator::Translator::open(crate::client::french());
    models.translator = Some(translator.unwrap());
    let error = Server::start(models, same).unwrap_err().to_string();
    assert!(error.starts_with(&format!("the address {}: ", server.address())), "{error}");
}

#[test]
fn a_key_is_needed_where_one_is_set() {
    let mut secret = config();
    secret.key = Some("s3cret".to_owned());
    let server = translating(secret);
    let with = |key: &str, body: &str| {
        let length = body.len();
        let bytes = format!(
            "POST /translate HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{key}content-length: {length}\r\n\r\n{body}"
        );
        exchange(server.address(), bytes.as_bytes()).unwrap()
    };
    let plain = r#"{"q": "je suis étudiant"}"#;
    let keyed = r#"{"q": "je suis étudiant", "api_key": "s3cret"}"#;
    for (header, body, status) in [
        ("", plain, 401),
        ("authorization: Bearer s3cre\r\n", plain, 401),
        ("authorization: Bearer s3creT\r\n", plain, 401),
        ("authorization: Basic s3cret\r\n", plain, 401),
        ("authorization: Bearer s3cret\r\n", plain, 200),
        ("", keyed, 200),
    ] {
        let found = with(header, body);
        assert_eq!(found.status, status, "{header}{body}: {found:?}");
        assert_eq!(found.header("www-authenticate"), if status == 401 { "Bearer" } else { "" });
    }
    for (path, status) in [
        ("/", 200),
        ("/health", 200),
        ("/ready", 200),
        ("/openapi.json", 200),
        ("/languages", 200),
        ("/metrics", 401),
        ("/info", 401),
        ("/v1/models", 401),
    ] {
        assert_eq!(get(&server, path).status, status, "{path}");
    }
    // The key is looked at before a body is read.
    let found = post(&server, "/v1/embeddings", &json!({"input": "a"}));
    assert_eq!(
        (found.status, &found.json()["error"]["type"]),
        (401, &json!("authentication_error"))
    );
}

/// Half of the places are for requests that have the key in a header.
#[test]
fn clients_without_a_key_do_not_take_all_places() {
    let mut secret = config();
    (secret.key, secret.requests) = (Some("s3cret".to_owned()), 4);
    let server = translating(secret);
    let head = |key: &str| {
        format!(
            "POST /translate HTTP/1.1\r\nhost: x\r\n{key}connection: close\r\ncontent-length: 25\r\n\r\n"
        )
    };
    // A wrong key is refused before the body is sent.
    for path in ["/translate", "/v1/embeddings"] {
        let head = head("authorization: Bearer wrong\r\n").replace("/translate", path);
        assert_eq!(exchange(server.address(), head.as_bytes()).unwrap().status, 401, "{path}");
    }
    let silent: Vec<_> = (0..2).map(|_| connect(server.address())).collect();
    for mut client in &silent {
        client.write_all(head("").as_bytes()).unwrap();
    }
    let with_key = "authorization: Bearer s3cret\r\n";
    let queued = || {
        let bytes =
            format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{with_key}connection: close\r\n\r\n");
        let page = exchange(server.address(), bytes.as_bytes()).unwrap().body;
        page.contains("\nsimdformer_queue_requests 2\n")
    };
    while !queued() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let found = exchange(server.address(), head("").as_bytes()).unwrap();
    assert_eq!((found.status, found.header("retry-after")), (429, "1"), "{found:?}");
    let body = "{\"q\": \"je suis étudiant\"}";
    assert_eq!(body.len(), 26);
    let good = head(with_key).replace("25", "26") + body;
    assert_eq!(exchange(server.address(), good.as_bytes()).unwrap().status, 200);
}

/// A text that takes some seconds.
fn long_text() -> String {
    "La maison blanche. Il fait froid. ".repeat(if cfg!(debug_assertions) { 400 } else { 4000 })
}

#[test]
fn a_full_queue_refuses_at_once() {
    let mut small = config();
    small.queue_tokens = 60;
    let server = translating(small);
    // Each counts as half of the queue.
    let both = [(); 2].map(|()| connect(server.address()));
    let body = json!({"q": long_text()}).to_string();
    for mut client in &both {
        let bytes = request("POST", "/translate", "application/json", body.as_bytes());
        client.write_all(&bytes).unwrap();
    }
    while metric(&server, "simdformer_queue_tokens") < 60.0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        let found = post(&server, "/translate", &json!({"q": "je suis étudiant"}));
        fastest = fastest.min(begun.elapsed());
        assert_eq!(found.status, 429, "{found:?}");
        let seconds: u64 = found.header("retry-after").parse().unwrap();
        assert!((1..=60).contains(&seconds));
        assert!(found.json()["error"].as_str().unwrap().starts_with("the queue is full: "));
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    assert_eq!(metric(&server, "simdformer_refused_total"), 10.0);
    // A server that is busy is healthy and ready.
    assert_eq!([get(&server, "/health").status, get(&server, "/ready").status], [200, 200]);
    drop(both);
    wait_until_idle(&server);
    posted(&server, "/translate", &json!({"q": "je suis étudiant"}), 200);
}

#[test]
fn a_request_ends_with_its_deadline() {
    let mut hasty = config();
    hasty.deadline = Duration::from_millis(150);
    let server = translating(hasty);
    let found = posted(&server, "/translate", &json!({"q": long_text()}), 503);
    assert_eq!(found["error"], "expected a result within 0.15 s, found none");
    // Long enough for the answer to begin.
    let mut hasty = config();
    hasty.deadline = Duration::from_secs(1);
    let server = translating(hasty);
    let found = post(&server, "/translate/stream", &json!({"q": long_text().repeat(3)}));
    let last = "event: error\ndata: {\"error\":\"expected a result within 1 s, found none\"}\n\n";
    assert!(found.status == 200 && found.body.ends_with(last), "{found:?}");
    wait_until_idle(&server);
    posted(&server, "/translate", &json!({"q": "je suis étudiant"}), 200);
}

#[test]
fn a_server_that_stops_answers_what_has_begun() {
    let server = translating(config());
    let address = server.address();
    let text = "Il fait froid. La maison blanche. ".repeat(60);
    let mut client = connect(address);
    let body = json!({"q": text}).to_string();
    client.write_all(&request("POST", "/translate", "application/json", body.as_bytes())).unwrap();
    while metric(&server, "simdformer_queue_requests") < 1.0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A connection without a request does not delay the end.
    let idle = connect(address);
    let begun = Instant::now();
    let stopping = std::thread::spawn(move || server.stop());
    let found = read_answer(&mut client).unwrap();
    assert_eq!(found.status, 200, "{found:?}");
    let text = found.json()["translatedText"].as_str().unwrap().to_owned();
    assert!(text.matches("it is cold").count() == 60, "{text}");
    stopping.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(idle);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_server_that_may_not_wait_ends_requests() {
    let mut abrupt = config();
    abrupt.grace = Duration::from_millis(50);
    let server = translating(abrupt);
    let address = server.address();
    let (send, answers) = channel();
    let client = std::thread::spawn(move || {
        let _ = send.send(());
        let body = json!({"q": long_text()}).to_string();
        exchange(address, &request("POST", "/translate", "application/json", body.as_bytes()))
    });
    answers.recv().unwrap();
    while metric(&server, "simdformer_queue_requests") < 1.0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // No answer, or an error.
    let found = client.join().unwrap();
    assert!(found.as_ref().is_none_or(|found| found.status >= 500), "{found:?}");
}
