//! Requests that are wrong as HTTP, as JSON or as a form: each ends in an error or a closed connection, and the next request is
//! served.

use crate::client::{
    config, connect, exchange, posted, read_answer, request, translating, wait_until_idle,
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

fn translate(media: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    request("POST", "/translate", media, body.as_ref())
}

/// The requests, and their status; 0 if the connection is closed without an answer, as it may be while a long one is sent.
fn cases() -> Vec<(&'static str, Vec<u8>, &'static [u16])> {
    let head = |text: &str| text.replace('\n', "\r\n").into_bytes();
    let chunked = |more: &str, body: &str| {
        let text = format!(
            "POST /translate HTTP/1.1\nhost: x\nconnection: close\ntransfer-encoding: {more}\n\n{body}"
        );
        head(&text)
    };
    let length = |length: &str| {
        head(&format!(
            "POST /translate HTTP/1.1\nhost: x\nconnection: close\ncontent-length: {length}\n\nzz"
        ))
    };
    let line = |line: &str| head(&format!("{line}\nhost: x\nconnection: close\n\n"));
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
        ("a field twice", translate(JSON, "{\"q\": \"a\", \"q\": \"b\"}"), &[400]),
        ("an unknown field", translate(JSON, "{\"q\": \"a\", \"sorce\": \"de\"}"), &[400]),
        ("an unknown field of a form", translate(FORM, "q=a&sorce=de"), &[400]),
        (
            "a query string",
            request("POST", "/translate?source=de", JSON, b"{\"q\": \"a\"}"),
            &[400],
        ),
        ("a deep list", translate(JSON, deep("[", "]")), &[400]),
        ("a deep object", translate(JSON, deep("{\"a\":", "}")), &[400]),
        ("no UTF-8", translate(JSON, b"{\"q\": \"\xff\xfe\"}"), &[400]),
        ("half a surrogate", translate(JSON, "{\"q\": \"\\ud800\"}"), &[400]),
        ("a huge number", translate(JSON, "{\"q\": \"a\", \"alternatives\": 1e999}"), &[400]),
        ("a negative number", translate(JSON, "{\"q\": \"a\", \"alternatives\": -1}"), &[400]),
        ("too many texts", translate(JSON, many), &[400]),
        ("a large body", translate(JSON, large.clone()), &[413]),
        ("JSON in UTF-16", translate(JSON, b"{\0\"\0q\0\"\0:\0\"\0a\0\"\0}\0"), &[400]),
        ("a byte order mark", translate(JSON, "\u{feff}{\"q\": \"a\"}"), &[400]),
        ("a line break in a string", translate(JSON, "{\"q\": \"a\nb\"}"), &[400]),
        ("no number", translate(JSON, "{\"q\": NaN}"), &[400]),
        ("a comma too many", translate(JSON, "{\"q\": \"a\",}"), &[400]),
        ("a compressed body", translate(JSON, b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab"), &[400]),
        ("a form of many fields", translate(FORM, "a=&".repeat(300_000)), &[400]),
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
        ("a path with NUL", line("GET /translate%00 HTTP/1.1"), &[404]),
        ("an escaped path", line("GET /%2e%2e%2fetc%2fpasswd HTTP/1.1"), &[404]),
        ("a path with a wrong escape", line("GET /%zz HTTP/1.1"), &[400, 404]),
        ("a path with a space", line("GET /a b HTTP/1.1"), &[400]),
        ("a path without a slash", line("GET health HTTP/1.1"), &[400, 404]),
        ("an absolute address", line("GET http://example.org/secret HTTP/1.1"), &[404]),
        ("a proxy's method", line("CONNECT example.org:443 HTTP/1.1"), &[400, 404, 405]),
        ("a method without a path", line("OPTIONS * HTTP/1.1"), &[404, 405]),
        ("a method in small letters", line("get /health HTTP/1.1"), &[405]),
        ("a method of no letters", line("G(T /health HTTP/1.1"), &[400]),
        ("HTTP/2", head("PRI * HTTP/2.0\n\nSM\n\n"), &[0, 400, 505]),
        (
            "no HTTP",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello \r\n\r\n".to_vec(),
            &[400],
        ),
        ("another version", head("GET / HTTP/7.3\nhost: x\n\n"), &[400, 505]),
        ("a header without a name", head("GET /health HTTP/1.1\n: x\n\n"), &[400]),
        ("a space before the colon", head("GET /health HTTP/1.1\nhost : x\n\n"), &[400]),
        ("a folded header", head("GET /health HTTP/1.1\na: b\n c\n\n"), &[400]),
        ("a header without a colon", head("GET /health HTTP/1.1\nhello\n\n"), &[400]),
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
        ("a list of lengths", length("2, 2"), &[400]),
        ("a length of letters", length("ten"), &[400]),
        ("a length in base 16", length("0x2"), &[400]),
        ("a length with a sign", length("+2"), &[400]),
        ("a negative length", length("-5"), &[400]),
        ("a length beyond all", length("99999999999999"), &[413]),
        ("a length of 65 bits", length("18446744073709551616"), &[400]),
        // Whoever believes the length takes the rest for another request.
        (
            "chunks and a length",
            chunked("chunked\ncontent-length: 2", "0\n\nGET / HTTP/1.1\n\n"),
            &[400],
        ),
        ("a length and chunks", length("2\ntransfer-encoding: chunked"), &[400]),
        (
            "chunks of HTTP/1.0",
            head("POST /translate HTTP/1.0\ntransfer-encoding: chunked\n\n0\n\n"),
            &[400],
        ),
        ("chunks that are compressed", chunked("chunked, gzip", "0\n\n"), &[400]),
        ("no chunks", chunked("identity", "{}"), &[400]),
        ("a wrong chunk", chunked("chunked", "zz\nab\n0\n\n"), &[400]),
        ("a chunk that is too short", chunked("chunked", "1\nab\n0\n\n"), &[400]),
        ("a chunk of 68 bits", chunked("chunked", "fffffffffffffffff\na"), &[400]),
        (
            "a chunk with a long extension",
            chunked("chunked", &format!("1;{}", "a".repeat(1 << 16))),
            &[400],
        ),
        (
            "chunks with many trailers",
            chunked("chunked", &format!("0\n{}\n", "a: b\n".repeat(5000))),
            &[400],
        ),
        ("chunks beyond the limit", chunked("chunked", &format!("300000\n{large}")), &[413]),
    ]
}

#[test]
fn wrong_requests_are_errors_and_the_next_one_is_served() {
    let server = translating(config());
    let good = json!({"q": "je suis étudiant"});
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
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
            None => assert!(bytes.len() > 1 << 13 || statuses.contains(&0), "{name}: no answer"),
        }
        let found = posted(&server, "/translate", &good, 200);
        assert_eq!(found["translatedText"], "i am a student", "after {name}");
    }
    wait_until_idle(&server);
}

/// Several requests at once are answered in their order, until one that is no HTTP.
#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let server = translating(config());
    let one = |body: &str| {
        let bytes = translate(JSON, body);
        String::from_utf8(bytes).unwrap().replace("connection: close\r\n", "")
    };
    let good = one("{\"q\": \"je suis étudiant\"}");
    let mut client = connect(server.address());
    let all = [&one("{\"q\": 3}")[..], &good, "\0\r\n\r\n", &good].concat();
    client.write_all(all.as_bytes()).unwrap();
    let mut found = String::new();
    client.read_to_string(&mut found).unwrap();
    let statuses: Vec<&str> = found.split("HTTP/1.1 ").skip(1).map(|one| &one[..3]).collect();
    assert_eq!(statuses, ["400", "200", "400"], "{found}");
    posted(&server, "/translate", &json!({"q": "je suis étudiant"}), 200);
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
                client.read_exact(&mut answer).unwrap();
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
