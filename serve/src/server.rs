//! [`Server`]: its routes, connections and end.

use crate::config::{Config, Models};
use crate::connection::Connection;
use crate::error::{Dialect, Error, Refusal, with_type};
use crate::shared::{KeyCheck, Route, Shared, answer};
use crate::{embeddings, rerank, status, stream, translate};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use core::fmt;
use core::pin::pin;
use core::task::Poll;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// The threads that read and write; models run on threads of their own.
const IO_THREADS: usize = 2;
/// The pause after a connection could not be accepted, for example because the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that answers requests on threads of its own, until it is stopped.
///
/// ```
/// use simdformer_serve::{Config, Models, Server};
/// use simdformer_text::translator::Translator;
/// use std::io::{Read, Write};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");
/// # if !std::path::Path::new(directory).exists() { return Ok(()) } // not in the published package
/// let mut models = Models::default();
/// models.translator = Some(Translator::open(directory)?);
/// let mut config = Config::default();
/// config.address.set_port(0);
/// let server = Server::start(models, config)?;
///
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// let body = r#"{"q": "je suis étudiant", "source": "fr", "target": "en"}"#;
/// let length = body.len();
/// write!(client, "POST /translate HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")?;
/// write!(client, "content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.ends_with(r#"{"translatedText":"i am a student"}"#));
/// server.stop();
/// # Ok(()) }
/// ```
///
/// Dropping it stops it as [`stop`](Self::stop) does, without waiting for requests. Not for code that runs on a thread of an
/// asynchronous runtime: starting and stopping block.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// `None` when it has stopped.
    running: Option<Running>,
}

struct Running {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    /// Accepts connections; gives what waits for those that are open.
    accepting: JoinHandle<GracefulShutdown>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Starts the threads of the models, and listens.
    ///
    /// # Errors
    /// There is no model; the address is in use or not one of this machine; a thread cannot be started; there is no memory
    /// for sessions of fixed limits.
    pub fn start(models: Models, config: Config) -> Result<Self, Error> {
        let has_model =
            models.translator.is_some() || models.embedder.is_some() || models.reranker.is_some();
        #[cfg(feature = "transcribe")]
        let has_model = has_model || models.transcriber.is_some();
        if !has_model {
            return Err(Error::NoModel);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            // Those of requests, and one of a check whether the models run.
            .max_blocking_threads(config.requests.max(1) + 1)
            .thread_name("simdformer-http")
            .enable_all()
            .build()
            .map_err(Error::io("the threads of the server"))?;
        let bound = runtime.block_on(TcpListener::bind(config.address));
        let listener = bound.map_err(Error::io(format_args!("the address {}", config.address)))?;
        let address = listener.local_addr().map_err(Error::io("the address"))?;
        let shared = Arc::new(Shared::start(models, config)?);
        let (stop, stopped) = oneshot::channel();
        let accepting = runtime.spawn(accept(listener, Arc::clone(&shared), stopped));
        Ok(Self { address, shared, running: Some(Running { runtime, stop, accepting }) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections, and waits until the requests that have begun are answered, at most
    /// [`Config::grace`]; then those that are left fail.
    pub fn stop(mut self) {
        let grace = self.shared.config.grace;
        self.end(grace, pending());
    }

    /// Waits for SIGTERM or SIGINT (Ctrl-C), and stops as [`stop`](Self::stop) does; a second signal ends the wait for
    /// requests.
    ///
    /// # Errors
    /// The operating system does not report signals.
    pub fn wait_for_signal(mut self) -> Result<(), Error> {
        let Some(running) = &self.running else { return Ok(()) };
        let mut signals = running.runtime.block_on(async { Signals::new() })?;
        running.runtime.block_on(signals.next());
        let grace = self.shared.config.grace;
        self.end(grace, signals.next());
        Ok(())
    }

    /// `enough` ends the wait for requests.
    fn end(&mut self, grace: Duration, enough: impl Future<Output = ()>) {
        let Some(Running { runtime, stop, accepting }) = self.running.take() else { return };
        self.shared.stopping.store(true, Ordering::Relaxed);
        // It may have ended by itself.
        let _ = stop.send(());
        runtime.block_on(async {
            let Ok(connections) = accepting.await else { return };
            let drained = tokio::time::timeout(grace, connections.shutdown());
            either(drained, enough).await;
        });
        self.shared.close();
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO, pending());
    }
}

/// Never ends.
fn pending() -> impl Future<Output = ()> {
    core::future::pending()
}

/// Ends with the first of two.
async fn either<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    core::future::poll_fn(|context| {
        match one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// The signals that end the server.
#[cfg(unix)]
struct Signals([tokio::signal::unix::Signal; 2]);

#[cfg(unix)]
impl Signals {
    fn new() -> Result<Self, Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let one = |kind| signal(kind).map_err(Error::io("a handler of signals"));
        Ok(Self([one(SignalKind::terminate())?, one(SignalKind::interrupt())?]))
    }

    async fn next(&mut self) {
        let [terminate, interrupt] = &mut self.0;
        either(terminate.recv(), interrupt.recv()).await;
    }
}

/// The signals that end the server.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    async fn next(&mut self) {
        drop(tokio::signal::ctrl_c().await);
    }
}

/// Serves connections until `stopped`.
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(shared.config.connections.max(1)));
    let routes = TowerToHyperService::new(routes(Arc::clone(&shared)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(shared.config.read_time);
    let serving = async {
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((client, _)) => {
                    let client = Connection::new(without_delay(client), shared.config.write_time);
                    let client = TokioIo::new(client);
                    let connection = http.serve_connection(client, routes.clone());
                    let connection = connections.watch(connection);
                    tokio::spawn(async move {
                        // A client that breaks off has no answer.
                        drop(connection.await);
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    };
    either(serving, stopped).await;
    connections
}

/// Events of a stream are sent at once.
fn without_delay(client: TcpStream) -> TcpStream {
    // Without it they only arrive later.
    drop(client.set_nodelay(true));
    client
}

/// The routes.
fn routes(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    macro_rules! route {
        ($method:ident $path:literal, $dialect:ident, $key:ident, $handler:path) => {
            let (dialect, key) = (Dialect::$dialect, KeyCheck::$key);
            let route = Route { path: $path, dialect, key };
            let handler = move |state: State<Arc<Shared>>, request: Request| {
                answer(route, state, request, $handler)
            };
            router = router.route($path, with_error($method(handler), dialect));
        };
    }
    route!(get "/", LibreTranslate, Open, page);
    route!(get "/openapi.json", LibreTranslate, Open, open_api);
    route!(get "/health", LibreTranslate, Open, status::health);
    route!(get "/ready", LibreTranslate, Open, status::ready);
    route!(get "/info", Tei, Header, status::info);
    route!(get "/metrics", LibreTranslate, Header, status::metrics);
    route!(get "/languages", LibreTranslate, Open, translate::languages);
    route!(post "/translate", LibreTranslate, Body, translate::translate);
    route!(post "/translate/stream", LibreTranslate, Body, stream::translate);
    route!(post "/detect", LibreTranslate, Body, translate::detect);
    route!(get "/v1/models", OpenAi, Header, status::models);
    route!(post "/v1/embeddings", OpenAi, Header, embeddings::embed);
    route!(post "/rerank", Tei, Header, rerank::tei);
    route!(post "/v1/rerank", Cohere, Header, rerank::cohere);
    route!(post "/v2/rerank", Cohere, Header, rerank::cohere);
    #[cfg(feature = "transcribe")]
    {
        use crate::transcriptions;
        route!(post "/v1/audio/transcriptions", OpenAi, Header, transcriptions::transcribe);
        // The body is read, and limited, before its parts are looked for.
        router = router.layer(axum::extract::DefaultBodyLimit::disable());
    }
    let missing = |state: State<Arc<Shared>>, request: Request| {
        let found = request.uri().path().to_owned();
        let route = Route { path: "other", dialect: dialect_of(&found), key: KeyCheck::Open };
        answer(route, state, request, async move |_, _| {
            let text = format!("expected a path of /openapi.json, found {found:?}");
            Err(Refusal::new(StatusCode::NOT_FOUND, text))
        })
    };
    router.fallback(missing).with_state(shared)
}

/// In whose form the error of a path is that is no route.
fn dialect_of(path: &str) -> Dialect {
    if path.starts_with("/v1/") { Dialect::OpenAi } else { Dialect::LibreTranslate }
}

/// A route with an error for other methods.
fn with_error(route: MethodRouter<Arc<Shared>>, dialect: Dialect) -> MethodRouter<Arc<Shared>> {
    let other = move |state: State<Arc<Shared>>, request: Request| {
        let found = request.method().to_string();
        let route = Route { path: "other", dialect, key: KeyCheck::Open };
        answer(route, state, request, async move |_, _| {
            let text = format!("expected another method, found {found}");
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text))
        })
    };
    route.fallback(other)
}

/// `GET /`.
async fn page(_: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    Ok(with_type("text/html; charset=utf-8", include_str!("page.html")))
}

/// `GET /openapi.json`.
async fn open_api(_: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    Ok(with_type("application/json", include_str!("openapi.json")))
}
