//! What the routes share: the models, the queue, the counters, and how a request is run.

use crate::batched_translator::BatchedTranslator;
use crate::body::{Fields, check_address, read_body};
use crate::config::{Config, Models};
use crate::error::{Dialect, Error, Refusal};
use crate::metrics::Metrics;
use crate::queue::{Place, Queue};
use crate::worker::Worker;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use simdformer::Cancel;
use simdformer_text::embedder::{Embedder, Reranker, Score, TextResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A text or token ids, to be embedded.
#[derive(Clone, Debug)]
pub(crate) enum EmbedInput {
    Text(String),
    Ids(Vec<u32>),
}

type Embeddings = Worker<EmbedInput, TextResult<Vec<f32>>>;
type Scores = Worker<(Arc<str>, String), TextResult<Score>>;

/// Whether the models give results, as a check found that runs apart from the requests that ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness {
    /// Whether a check runs.
    pub(crate) checking: bool,
    /// When the last check that ended well ended.
    pub(crate) last: Option<Instant>,
    /// Why the last check did not end well.
    pub(crate) failure: Option<Refusal>,
}

/// What the routes share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Metrics,
    pub(crate) stopping: AtomicBool,
    pub(crate) translator: Option<BatchedTranslator>,
    pub(crate) embedder: Option<(Embedder, Embeddings)>,
    pub(crate) reranker: Option<(Reranker, Scores)>,
    #[cfg(feature = "transcribe")]
    pub(crate) transcriber: Option<simdformer_speech::Transcriber>,
    /// Held while a recording is read, waits, or is transcribed.
    #[cfg(feature = "transcribe")]
    pub(crate) recordings: Arc<tokio::sync::Semaphore>,
    /// Held while a recording is transcribed.
    #[cfg(feature = "transcribe")]
    pub(crate) transcribing: Arc<tokio::sync::Semaphore>,
    /// Held while the body of a request is read whose key is not in a header.
    without_key: tokio::sync::Semaphore,
    /// Whether the models give results.
    pub(crate) readiness: tokio::sync::watch::Sender<Readiness>,
}

impl Shared {
    /// Starts the threads of the models.
    pub(crate) fn start(models: Models, config: Config) -> Result<Self, Error> {
        let embeddings = |embedder: Embedder| {
            let runs = embedder.clone();
            let worker = Worker::start("embedder", move |items: &[EmbedInput]| embed(&runs, items));
            worker.map(|worker| (embedder, worker))
        };
        let scores = |reranker: Reranker| {
            let runs = reranker.clone();
            let worker = Worker::start("reranker", move |items: &[(Arc<str>, String)]| {
                let pairs = items.iter().map(|(query, text)| (&**query, &text[..]));
                Ok(runs.score_pairs(&pairs.collect::<Vec<_>>())?)
            });
            worker.map(|worker| (reranker, worker))
        };
        Ok(Self {
            queue: Arc::new(Queue::new(config.queue_tokens, config.requests)),
            #[cfg(feature = "transcribe")]
            recordings: Arc::new(tokio::sync::Semaphore::new(config.recordings.max(1))),
            without_key: tokio::sync::Semaphore::new((config.requests / 2).max(1)),
            config,
            metrics: Metrics::default(),
            stopping: AtomicBool::new(false),
            translator: models.translator.map(BatchedTranslator::start).transpose()?,
            embedder: models.embedder.map(embeddings).transpose()?,
            reranker: models.reranker.map(scores).transpose()?,
            #[cfg(feature = "transcribe")]
            transcriber: models.transcriber,
            #[cfg(feature = "transcribe")]
            transcribing: Arc::new(tokio::sync::Semaphore::new(1)),
            readiness: tokio::sync::watch::Sender::default(),
        })
    }

    /// Ends the threads of the models; what they have not finished fails.
    pub(crate) fn close(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.translator.iter().for_each(BatchedTranslator::close);
        self.embedder.iter().for_each(|(_, worker)| worker.close());
        self.reranker.iter().for_each(|(_, worker)| worker.close());
    }

    /// Whether a key is right, or none is needed.
    pub(crate) fn check_key(
        &self,
        headers: &HeaderMap,
        given: Option<&str>,
    ) -> Result<(), Refusal> {
        let Some(key) = self.config.key.as_deref() else { return Ok(()) };
        // In time that does not depend on where the first difference is.
        let equal = |found: &str| {
            found.len() == key.len()
                && found.bytes().zip(key.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
        };
        match bearer(headers).into_iter().chain(given).any(equal) {
            true => Ok(()),
            false => {
                let text = "expected a valid API key, found another one or none";
                Err(Refusal::new(StatusCode::UNAUTHORIZED, text))
            }
        }
    }
}

/// The key in the headers.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn embed(embedder: &Embedder, items: &[EmbedInput]) -> Result<Vec<TextResult<Vec<f32>>>, Refusal> {
    let texts: Vec<&str> = items
        .iter()
        .filter_map(|item| match item {
            EmbedInput::Text(text) => Some(&text[..]),
            EmbedInput::Ids(_) => None,
        })
        .collect();
    let ids: Vec<&[u32]> = items
        .iter()
        .filter_map(|item| match item {
            EmbedInput::Ids(ids) => Some(&ids[..]),
            EmbedInput::Text(_) => None,
        })
        .collect();
    let mut of_texts = embedder.embed(&texts)?.into_iter();
    let mut of_ids = embedder.embed_ids(&ids)?.into_iter();
    let of_items = items.iter().map_while(|item| match item {
        EmbedInput::Text(_) => of_texts.next(),
        EmbedInput::Ids(_) => of_ids.next(),
    });
    Ok(of_items.collect())
}

/// Sets its flag when it is dropped: the client has left, or the time is over.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs `work` on a thread that may wait, at most until the deadline. The flag is set when nobody waits for the result any
/// more; `work` keeps the place until it ends.
pub(crate) async fn run_blocking<R: Send + 'static>(
    deadline: Deadline,
    place: Place,
    work: impl FnOnce(&Cancel, Place) -> Result<R, Refusal> + Send + 'static,
) -> Result<R, Refusal> {
    let cancel = Cancel::new();
    let guard = CancelOnDrop(cancel.clone());
    let task = tokio::task::spawn_blocking(move || work(&cancel, place));
    let result = deadline.limit(task).await?;
    drop(guard);
    result.unwrap_or_else(|_| Err(Refusal::panicked()))
}

/// When a request must have its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: tokio::time::Instant,
    within: Duration,
}

impl Deadline {
    /// `within` from now.
    pub(crate) fn new(within: Duration) -> Self {
        let now = tokio::time::Instant::now();
        // One that the clock does not have is never reached.
        let far = Duration::from_secs(1 << 30);
        Self { at: now.checked_add(within).unwrap_or_else(|| now + far), within }
    }

    /// The output of `work`, if it is there in time.
    pub(crate) async fn limit<R>(self, work: impl Future<Output = R>) -> Result<R, Refusal> {
        tokio::time::timeout_at(self.at, work).await.map_err(|_| self.refusal())
    }

    pub(crate) fn refusal(self) -> Refusal {
        Refusal::too_late(self.within.as_secs_f64())
    }
}

/// The bytes of a body that are counted as one token before its texts are tokenized.
pub(crate) const BYTES_PER_TOKEN: usize = 4;

/// The fields of a body, the place of the request in the queue, and its deadline. The body is JSON, or a form if one of
/// `names`, the names of the fields, is that of the key.
pub(crate) async fn read_fields(
    shared: &Shared,
    request: Request,
    names: &[&str],
) -> Result<(Fields, Place, Deadline), Refusal> {
    const KEY: &str = "api_key";
    let form = names.contains(&KEY);
    check_address(request.uri())?;
    // Who has no key may not take all places: others have it in a header.
    let without_key = form && shared.config.key.is_some() && bearer(request.headers()).is_none();
    let _without_key = match without_key.then(|| shared.without_key.try_acquire()).transpose() {
        Ok(held) => held,
        Err(_) => {
            let text = "expected the key as Authorization: Bearer KEY while many requests have none there, found none";
            return Err(Refusal {
                retry_after: Some(1),
                ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, text)
            });
        }
    };
    // Before the body is read: what all bodies take is bounded, and a full queue refuses at once.
    let mut place = shared.queue.enter()?;
    let (Parts { headers, .. }, body) = request.into_parts();
    let config = &shared.config;
    let body = read_body(&headers, body, config.body_bytes, config.read_time).await?;
    // A list of numbers takes many times its text, so large bodies are read one after the other.
    let deadline = Deadline::new(config.deadline);
    place.set_tokens(body.len() / BYTES_PER_TOKEN)?;
    let fields = Fields::parse(&headers, &body, form)?;
    if form {
        shared.check_key(&headers, fields.text(KEY)?)?;
    }
    fields.check_names(names)?;
    Ok((fields, place, deadline))
}

/// Counts a request whose answer nobody waits for.
struct Abandoned<'s>(Option<&'s Shared>);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.metrics.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The name of a route, the dialect of its errors, and whether it needs a key in a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) key: KeyCheck,
}

/// Who checks the key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCheck {
    /// Nobody: everyone may ask.
    Open,
    /// It is in a header, which is looked at before the body is read.
    Header,
    /// The route, unless it is in a header: the body may have it.
    Body,
}

/// Answers a request with what `handler` gives, or with its error in the dialect of the route.
pub(crate) async fn answer<F: Future<Output = Result<Response, Refusal>>>(
    route: Route,
    State(shared): State<Arc<Shared>>,
    request: Request,
    handler: impl FnOnce(Arc<Shared>, Request) -> F,
) -> Response {
    let begun = Instant::now();
    let mut abandoned = Abandoned(Some(&shared));
    let found = match route.key {
        KeyCheck::Header => shared.check_key(request.headers(), None),
        KeyCheck::Body if bearer(request.headers()).is_some() => {
            shared.check_key(request.headers(), None)
        }
        KeyCheck::Open | KeyCheck::Body => Ok(()),
    };
    let found = match found {
        Ok(()) => handler(Arc::clone(&shared), request).await,
        Err(refusal) => Err(refusal),
    };
    abandoned.0 = None;
    let response = found.unwrap_or_else(|refusal| refusal.response(route.dialect));
    shared.metrics.answered(route.path, response.status().as_u16(), begun.elapsed());
    response
}
