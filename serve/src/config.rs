//! What a server runs, and its limits.

use simdformer_text::embedder::{Embedder, Reranker};
use simdformer_text::translator::Translator;
use std::net::SocketAddr;
use std::time::Duration;

/// The models of a server, at least one. A route whose model is missing answers with an error.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Models {
    /// For `/translate`. Its sentences are decoded in one session, in the batch of [`Engine::run`](simdformer::Engine::run),
    /// on the threads of its engine.
    pub translator: Option<Translator>,
    /// For `/v1/embeddings`.
    pub embedder: Option<Embedder>,
    /// For `/rerank`.
    pub reranker: Option<Reranker>,
    /// For `/v1/audio/transcriptions`. Recordings are transcribed one after the other.
    #[cfg(feature = "transcribe")]
    pub transcriber: Option<simdformer_speech::Transcriber>,
}

/// The address of a server, and its limits: what a client sends takes bounded time and memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where it listens (`127.0.0.1:8080`); with port 0 the system chooses one: [`Server::address`](crate::Server::address).
    pub address: SocketAddr,
    /// What a request must have as `Authorization: Bearer KEY`, or in LibreTranslate's dialect as `api_key`; `None` (the
    /// default) for no check. The page, `/health`, `/ready`, `/languages` and `/openapi.json` need no key.
    pub key: Option<String>,
    /// The name of the model in answers, and in `/v1/models` (`simdformer`).
    pub name: String,
    /// The most source tokens of the requests that wait or are run (32,768). A request beyond them is refused with status
    /// 429. One that has more than half of them is counted as half.
    pub queue_tokens: usize,
    /// The most requests whose body is read, that wait or that are run (256). Each may have a thread that sleeps.
    pub requests: usize,
    /// The most connections (1,024). Further ones wait.
    pub connections: usize,
    /// The most bytes of a body (2 MiB).
    pub body_bytes: usize,
    /// The same of a body with a recording (64 MiB).
    pub audio_bytes: usize,
    /// The most recordings that are read, wait, or are transcribed (8); a further one is refused with status 429.
    pub recordings: usize,
    /// The most texts of a request (1,024); those of `/v1/embeddings` are limited by `embedding_numbers`.
    pub items: usize,
    /// The most numbers of the vectors of a request, its texts times the width of the model (4,194,304): about 50 MB of text.
    pub embedding_numbers: usize,
    /// The time in which the headers of a request must arrive, and then its body (10 s each). Headers that take longer end the
    /// connection without an answer.
    pub read_time: Duration,
    /// The time in which a body with a recording must arrive (60 s).
    pub audio_read_time: Duration,
    /// The time after which the connection of a client ends that takes nothing more of an answer (30 s).
    pub write_time: Duration,
    /// The time from a whole request to its result (120 s), or to the end of a stream.
    pub deadline: Duration,
    /// The time that requests have to end when the server stops (30 s).
    pub grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            key: None,
            name: "simdformer".to_owned(),
            queue_tokens: 32_768,
            requests: 256,
            connections: 1024,
            body_bytes: 2 << 20,
            audio_bytes: 64 << 20,
            recordings: 8,
            items: 1024,
            embedding_numbers: 4 << 20,
            read_time: Duration::from_secs(10),
            audio_read_time: Duration::from_secs(60),
            write_time: Duration::from_secs(30),
            deadline: Duration::from_secs(120),
            grace: Duration::from_secs(30),
        }
    }
}
