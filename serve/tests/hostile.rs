//! Requests that are wrong as HTTP, as JSON or as a form: each ends in an error or a closed connection, and the next request is
//! served.

use crate::client::{
    config, connect, exchange, posted, read_answer, request, translating, wait_until_idle,
};
use serde_json::json;
use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

fn translate(media: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    request("POST", "/translate", media, body.as_ref())
}

/// The requests, and their status; 0 if the connection is closed without an answer, as it may be in any case.
fn cases() -> Vec<(&'static str, Vec<u8>, &'static [u16])> {
    let head = |text: &str| text.replace('\n', "\r\n").into_bytes();
    let deep = |open: &str, close: &str| {
        format!("{{\"q\": {}1{}}}", open.repeat(100_000), close.repeat(100_000))
    };
    let large = format!("{{\"q\": \"{}\"}}", "a".repeat(3 << 20));
    let many = format!("{{\"q\": [{}\"a\"]}}", "\"a\",".repeat(2000));
    vec![
        ("no JSON", translate(JSON, "hello"), &[400]),
        ("half JSON", translate(JSON, "{\"q\": \"a"), &[400]),
        ("an empty body", translate(JSON, ""), &[400]),
        ("two values", translate(JSON, "{\"q\": \"a\"} {}"), &[400]),
        ("a deep list", translate(JSON, deep("[", "]")), &[400]),
        ("a deep object", translate(JSON, deep("{\"a\":", "}")), &[400]),
        ("no UTF-8", translate(JSON, b"{\"q\": \"\xff\xfe\"}"), &[400]),
        ("half a surrogate", translate(JSON, "{\"q\": \"\\ud800\"}"), &[400]),
        ("a huge number", translate(JSON, "{\"q\": \"a\", \"alternatives\": 1e999}"), &[400]),
        ("a negative number", translate(JSON, "{\"q\": \"a\", \"alternatives\": -1}"), &[400]),
        ("too many texts", translate(JSON, many), &[400]),
        ("a large body", translate(JSON, large.clone()), &[413]),
        ("form with a wrong escape", translate(FORM, "q=%zz"), &[400]),
        ("form without UTF-8", translate(FORM, "q=%ff"), &[400]),
        ("an empty form", translate(FORM, ""), &[400]),
        ("another media type", translate("application/xml", "<q>a</q>"), &[415]),
        ("a media type of no letters", translate("\u{7f}", "{}"), &[400, 415]),
        ("a multipart form", translate("multipart/form-data; boundary=x", "--x--"), &[415]),
        ("another method", request("DELETE", "/translate", JSON, b""), &[405]),
        ("a method of nobody", request("FROB", "/health", JSON, b""), &[405]),
        ("another path", request("POST", "/translate/", JSON, b"{}"), &[404]),
        ("a path that climbs", request("GET", "/../../etc/passwd", JSON, b""), &[404, 400]),
        ("a long path", request("GET", &"/a".repeat(100_000), JSON, b""), &[400, 414, 431]),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello \r\n\r\n".to_vec(), &[400]),
        ("another version", head("GET / HTTP/7.3\nhost: x\n\n"), &[400, 505]),
        ("a header without a name", head("GET /health HTTP/1.1\n: x\n\n"), &[400]),
        ("a header with NUL", b"GET /health HTTP/1.1\r\na: \0\r\n\r\n".to_vec(), &[400]),
        (
            "many headers",
            head(&format!("GET /health HTTP/1.1\n{}\n", "a: b\n".repeat(5000))),
            &[400, 431],
        ),
        (
            "a huge header",
            head(&format!("GET /health HTTP/1.1\na: {}\n\n", "b".repeat(1 << 20))),
            &[400, 431],
        ),
        (
            "two lengths",
            head("POST /translate HTTP/1.1\nhost: x\ncontent-length: 3\ncontent-length: 4\n\nabcd"),
            &[400],
        ),
        (
            "a length of letters",
            head("POST /translate HTTP/1.1\nhost: x\ncontent-length: ten\n\n"),
            &[400],
        ),
        (
            "a negative length",
            head("POST /translate HTTP/1.1\nhost: x\ncontent-length: -5\n\n"),
            &[400],
        ),
        (
            "a length beyond all",
            head("POST /translate HTTP/1.1\nhost: x\nconnection: close\ncontent-length: 99999999999999\n\n"),
            &[413],
        ),
        (
            "a wrong chunk",
            head("POST /translate HTTP/1.1\nhost: x\nconnection: close\ntransfer-encoding: chunked\n\nzz\nab\n0\n\n"),
            &[400],
        ),
        (
            "chunks beyond the limit",
            [
                &head("POST /translate HTTP/1.1\nhost: x\nconnection: close\ntransfer-encoding: chunked\n\n300000\n")[..],
                large.as_bytes(),
            ]
            .concat(),
            &[413],
        ),
    ]
}

#[test]
fn wrong_requests_are_errors_and_the_next_one_is_served() {
    let server = translating(config());
    let good = json!({"q": "je suis étudiant"});
    let cases = cases();
    assert!(cases.len() >= 30, "{}", cases.len());
    for (name, bytes, statuses) in cases {
        match exchange(server.address(), &bytes) {
            Some(found) => {
                assert!(statuses.contains(&found.status), "{name}: {found:?}");
                // What a route says is an error of its dialect; what is no HTTP has no route.
                let of_route = found.header("content-type") == JSON;
                assert!(of_route || found.body.is_empty(), "{name}: {found:?}");
                if of_route {
                    assert!(found.json()["error"].is_string(), "{name}: {found:?}");
                }
            }
            // The server may close while the client still sends.
            None => assert!(bytes.len() > 1 << 17, "{name}: no answer"),
        }
        let found = posted(&server, "/translate", &good, 200);
        assert_eq!(found["translatedText"], "i am a student", "after {name}");
    }
    wait_until_idle(&server);
}

/// Clients that stop in the middle.
#[test]
fn slow_and_silent_clients_are_left() {
    let mut hasty = config();
    hasty.read_time = Duration::from_millis(200);
    let server = translating(hasty);
    let head = "POST /translate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n";
    for (name, bytes, status) in [
        ("nothing", "", None),
        ("half a line", "POST /trans", None),
        ("half the headers", head, None),
        ("no body", &format!("{head}\r\n")[..], Some(408)),
        (
            "a chunk beyond all",
            "POST /translate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\na",
            Some(408),
        ),
        ("half a body", &format!("{head}\r\n{{\"q\":")[..], Some(408)),
    ] {
        let begun = Instant::now();
        let mut client = connect(server.address());
        client.write_all(bytes.as_bytes()).unwrap();
        let found = match status {
            // With the connection kept alive there is no end of the answer to wait for.
            Some(_) => {
                let mut answer = [0; 12];
                std::io::Read::read_exact(&mut client, &mut answer).unwrap();
                std::str::from_utf8(&answer).unwrap().rsplit(' ').next().unwrap().parse().ok()
            }
            None => read_answer(&mut client).map(|found| found.status),
        };
        // Headers that do not arrive have no answer.
        assert_eq!(found, status, "{name}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}: {:?}", begun.elapsed());
    }
    // Half a request, and the end of the connection.
    for bytes in [head.to_owned(), format!("{head}\r\n{{\"q\":")] {
        let mut client = connect(server.address());
        client.write_all(bytes.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let found = read_answer(&mut client);
        assert!(found.as_ref().is_none_or(|found| [400, 408].contains(&found.status)), "{found:?}");
    }
    posted(&server, "/translate", &json!({"q": "je suis étudiant"}), 200);
    wait_until_idle(&server);
}

/// Random bytes, and good requests of which a byte is changed.
#[test]
fn changed_requests_do_no_harm() {
    use simdformer_testing::effort::cases;
    use simdformer_testing::random_model::Random;
    let server = translating(config());
    let body = json!({"q": "je suis étudiant", "source": "fr", "target": "en"}).to_string();
    let good = translate(JSON, body);
    let mut random = Random(55);
    for _ in 0..cases(60, 2000) {
        let mut bytes = good.clone();
        let at = random.below(bytes.len());
        bytes[at] = random.below(256) as u8;
        let mut client = connect(server.address());
        client.write_all(&bytes).unwrap();
        // A longer length than there is: the server would wait for the rest.
        client.shutdown(Shutdown::Write).unwrap();
        if let Some(found) = read_answer(&mut client) {
            assert!(
                found.status == 200 || (400..500).contains(&found.status),
                "{bytes:?}: {found:?}"
            );
        }
    }
    wait_until_idle(&server);
    posted(&server, "/translate", &json!({"q": "je suis étudiant"}), 200);
}
