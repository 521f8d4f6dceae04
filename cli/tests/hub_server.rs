//! A hub on the loopback interface: the interface of the Hugging Face hub as the Python client uses it, a second server
//! for large files to which it redirects, and faults that a test asks for.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub const REPOSITORY: &str = "test/model";
/// The commit of `main` and of the tag `v1`.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whether the second server got it.
    pub cdn: bool,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    /// How many requests for this path came before.
    pub earlier: usize,
}

impl Request {
    /// The first byte that is requested.
    pub fn from(&self) -> Option<usize> {
        let range = self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?;
        range.parse().ok()
    }

    pub fn is_body(&self, file: &str) -> bool {
        self.cdn && self.path == format!("/blob/{file}")
    }
}

/// An answer, which a test may change before it is sent.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The length that is claimed, if it is not that of the body.
    pub length: Option<usize>,
    /// The connection ends after so many bytes of the body.
    pub cut: Option<usize>,
    /// At the end (or at the cut) the connection stays open and silent for this time.
    pub stall: Option<Duration>,
    pub chunked: bool,
    /// The pause after each block of so many bytes.
    pub pace: Option<(usize, Duration)>,
}

impl Answer {
    pub fn error(status: u16, code: &str) -> Self {
        Self { status, headers: vec![("X-Error-Code", code.to_owned())], ..Self::default() }
    }

    fn json(value: &Value) -> Self {
        Self { status: 200, body: value.to_string().into_bytes(), ..Self::default() }
    }

    pub fn redirect(location: &str) -> Self {
        Self { status: 302, headers: vec![("Location", location.to_owned())], ..Self::default() }
    }
}

/// Changes answers.
pub type Fault = dyn Fn(&Request, &mut Answer) + Send + Sync;

struct Shared {
    files: BTreeMap<String, Vec<u8>>,
    fault: Box<Fault>,
    requests: Mutex<Vec<Request>>,
    cdn: String,
    stopped: AtomicBool,
}

/// The two servers, which end when this is dropped.
pub struct Hub {
    pub endpoint: String,
    pub cdn: String,
    shared: Arc<Shared>,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // They wait for a connection.
        for address in [&self.endpoint, &self.cdn] {
            let _ = TcpStream::connect(address.trim_start_matches("http://"));
        }
    }
}

impl Hub {
    pub fn new(files: BTreeMap<String, Vec<u8>>, fault: Box<Fault>) -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [endpoint, cdn] = listeners
            .each_ref()
            .map(|listener| format!("http://{}", listener.local_addr().unwrap()));
        let (requests, stopped) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { files, fault, requests, cdn: cdn.clone(), stopped });
        for (listener, is_cdn) in listeners.into_iter().zip([false, true]) {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    if shared.stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let shared = Arc::clone(&shared);
                    // An error is that of a client that went away.
                    thread::spawn(move || {
                        shared.serve(stream.unwrap(), is_cdn).unwrap_or_default()
                    });
                }
            });
        }
        Self { endpoint, cdn, shared }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The requests for the body of a file in large file storage.
    pub fn bodies(&self, file: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.is_body(file)).collect()
    }

    pub fn file(&self, path: &str) -> &[u8] {
        &self.shared.files[path]
    }
}

/// Whether a file is in large file storage.
pub fn is_large(path: &str) -> bool {
    [".safetensors", ".bin", ".spm"].iter().any(|end| path.ends_with(end))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    digits(ring::digest::digest(&SHA256, bytes).as_ref())
}

pub fn git_sha1(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(format!("blob {}\0", bytes.len()).as_bytes());
    context.update(bytes);
    digits(context.finish().as_ref())
}

/// The name of the blob of a file.
pub fn etag(path: &str, bytes: &[u8]) -> String {
    if is_large(path) { sha256(bytes) } else { git_sha1(bytes) }
}

impl Shared {
    fn serve(&self, stream: TcpStream, cdn: bool) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let Some(path) = first.split(' ').nth(1) else { return Ok(()) };
        let mut headers = BTreeMap::new();
        for line in lines.by_ref() {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let request = {
            let mut requests = self.requests.lock().unwrap();
            let same = |request: &&Request| request.cdn == cdn && request.path == path;
            let earlier = requests.iter().filter(same).count();
            let request = Request { cdn, path: path.to_owned(), headers, earlier };
            requests.push(request.clone());
            request
        };
        let mut answer = self.answer(&request);
        (self.fault)(&request, &mut answer);
        send(stream, &answer, first.starts_with("HEAD"))
    }

    fn answer(&self, request: &Request) -> Answer {
        if request.cdn {
            let body = &self.files[request.path.strip_prefix("/blob/").unwrap()];
            return part(body, request.from());
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let tree = format!("/api/models/{REPOSITORY}/tree/{COMMIT}");
        let revision = format!("/api/models/{REPOSITORY}/revision/");
        let resolve = format!("/{REPOSITORY}/resolve/{COMMIT}/");
        if path == tree {
            return Answer::json(&self.tree());
        }
        if let Some(revision) = path.strip_prefix(&revision) {
            return match revision {
                "main" | "v1" | "refs%2Fpr%2F1" | COMMIT => {
                    Answer::json(&json!({"id": REPOSITORY, "sha": COMMIT}))
                }
                _ => Answer::error(404, "RevisionNotFound"),
            };
        }
        if let Some(file) = path.strip_prefix(&resolve) {
            let Some(bytes) = self.files.get(file) else {
                return Answer::error(404, "EntryNotFound");
            };
            let (tag, size) = (format!("\"{}\"", etag(file, bytes)), bytes.len().to_string());
            let commit = ("X-Repo-Commit", COMMIT.to_owned());
            if is_large(file) {
                let mut answer = Answer::redirect(&format!("{}/blob/{file}", self.cdn));
                answer.headers.extend([commit, ("X-Linked-Etag", tag), ("X-Linked-Size", size)]);
                return answer;
            }
            let mut answer = part(bytes, request.from());
            answer.headers.extend([commit, ("ETag", tag)]);
            return answer;
        }
        // The Hugging Face hub does not tell a visitor whether a model is missing or private.
        let known = request.headers.contains_key("authorization");
        Answer::error(if known { 404 } else { 401 }, "RepoNotFound")
    }

    fn tree(&self) -> Value {
        let file = |(path, bytes): (&String, &Vec<u8>)| {
            let mut file =
                json!({"type": "file", "path": path, "size": bytes.len(), "oid": git_sha1(bytes)});
            if is_large(path) {
                file["lfs"] =
                    json!({"oid": sha256(bytes), "size": bytes.len(), "pointerSize": 130});
            }
            file
        };
        let folder = json!({"type": "directory", "path": "onnx", "size": 0, "oid": "0"});
        self.files.iter().map(file).chain([folder]).collect()
    }
}

/// The bytes from `from` on, as a server answers.
fn part(body: &[u8], from: Option<usize>) -> Answer {
    match from {
        None => Answer { status: 200, body: body.to_vec(), ..Answer::default() },
        Some(from) if from < body.len() => {
            let range = format!("bytes {from}-{}/{}", body.len() - 1, body.len());
            let headers = vec![("Content-Range", range)];
            Answer { status: 206, headers, body: body[from..].to_vec(), ..Answer::default() }
        }
        Some(_) => Answer { status: 416, ..Answer::default() },
    }
}

fn send(mut stream: TcpStream, answer: &Answer, head: bool) -> std::io::Result<()> {
    let length = answer.length.unwrap_or(answer.body.len());
    write!(stream, "HTTP/1.1 {} Answer\r\nConnection: close\r\n", answer.status)?;
    match answer.chunked {
        true => write!(stream, "Transfer-Encoding: chunked\r\n")?,
        false => write!(stream, "Content-Length: {length}\r\n")?,
    }
    for (name, value) in &answer.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "\r\n")?;
    if head {
        return Ok(());
    }
    let body = &answer.body[..answer.cut.unwrap_or(usize::MAX).min(answer.body.len())];
    let (block, pause) = answer.pace.unwrap_or((1 << 20, Duration::ZERO));
    for part in body.chunks(block) {
        if answer.chunked {
            write!(stream, "{:x}\r\n", part.len())?;
        }
        stream.write_all(part)?;
        if answer.chunked {
            write!(stream, "\r\n")?;
        }
        thread::sleep(pause);
    }
    if answer.chunked && answer.cut.is_none() {
        write!(stream, "0\r\n\r\n")?;
    }
    stream.flush()?;
    if let Some(stall) = answer.stall {
        thread::sleep(stall);
    }
    Ok(())
}
