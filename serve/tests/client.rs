//! A server on the loopback, and a client that writes HTTP by hand, so that it can also write it wrongly.

use serde_json::Value;
use simdformer_serve::{Config, Models, Server};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_text::translator::Translator;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// No answer takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directory of the small trained model.
pub fn french() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en")
}

/// Limits for tests, on a free port.
pub fn config() -> Config {
    let mut config = Config::default();
    config.address.set_port(0);
    config
}

/// A server of the small trained model.
pub fn translating(config: Config) -> Server {
    let mut models = Models::default();
    models.translator = Some(Translator::open(french()).unwrap());
    Server::start(models, config).unwrap()
}

/// A server of a random model that embeds, or ranks.
pub fn of_encoder(place: &TemporaryFolder, config: Config, ranks: bool) -> Server {
    use simdformer_text::embedder::{Embedder, Reranker};
    let mut models = Models::default();
    match ranks {
        true => models.reranker = Some(Reranker::open(&place.0).unwrap()),
        false => models.embedder = Some(Embedder::open(&place.0).unwrap()),
    }
    Server::start(models, config).unwrap()
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, media: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {media}\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Sends bytes, and reads all that comes until the server closes; `None` if that is no answer.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut client = connect(address);
    // A server that has refused a large body may not read the rest.
    let _ = client.write_all(bytes);
    read_answer(&mut client)
}

pub fn read_answer(client: &mut TcpStream) -> Option<Answer> {
    let mut found = Vec::new();
    // A reset after the answer is an end, too.
    let _ = client.read_to_end(&mut found);
    let found = String::from_utf8(found).unwrap();
    let (headers, body) = found.split_once("\r\n\r\n")?;
    let status = headers.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let (headers, body) = (headers.to_owned(), body.to_owned());
    let mut answer = Answer { status, headers, body };
    if answer.header("transfer-encoding") == "chunked" {
        answer.body = chunks(&answer.body);
    }
    Some(answer)
}

/// The content of a chunked body.
fn chunks(mut body: &str) -> String {
    let mut content = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length, 16) else { break };
        let Some(chunk) = rest.get(..length) else { break };
        content += chunk;
        body = rest.get(length + 2..).unwrap_or_default();
    }
    content
}

pub fn get(server: &Server, path: &str) -> Answer {
    let bytes = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    exchange(server.address(), bytes.as_bytes()).unwrap()
}

pub fn post(server: &Server, path: &str, body: &Value) -> Answer {
    post_to(server.address(), path, body)
}

pub fn post_to(address: SocketAddr, path: &str, body: &Value) -> Answer {
    let bytes = request("POST", path, "application/json", body.to_string().as_bytes());
    exchange(address, &bytes).unwrap()
}

/// The answer to a JSON body, which must have this status.
pub fn posted(server: &Server, path: &str, body: &Value, status: u16) -> Value {
    let answer = post(server, path, body);
    assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
    answer.json()
}

/// The value of a line of `/metrics`.
pub fn metric(server: &Server, name: &str) -> f64 {
    let page = get(server, "/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {page}")).parse().unwrap()
}

/// Waits until no request waits or is run.
pub fn wait_until_idle(server: &Server) {
    for _ in 0..2000 {
        let left = ["simdformer_queue_requests", "simdformer_queue_tokens"];
        if left.map(|name| metric(server, name)) == [0.0, 0.0] {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("requests are left: {}", get(server, "/metrics").body);
}
