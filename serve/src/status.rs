//! What the server says of itself: `/health`, `/ready`, `/info`, `/metrics`, `/v1/models`.

use crate::error::{Refusal, json_response, with_type};
use crate::shared::{CancelOnDrop, Deadline, EmbedInput, Shared};
use crate::translate::describe;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use core::fmt::Display;
use serde_json::{Value, json};
use simdformer::{Cancel, Model};
use simdformer_text::translator::Translator;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A result of the models is believed for so long.
const BELIEVED: Duration = Duration::from_secs(10);

/// `GET /health`: the process answers.
pub(crate) async fn health(_: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    Ok(json_response(&json!({"status": "ok"})))
}

/// `GET /ready`: each model has given a result in the last seconds (that of recordings once), and the server is not stopping. A
/// request that leaves does not end the check, and at most one runs, because a request for it needs no key.
pub(crate) async fn ready(shared: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Refusal::closed());
    }
    let mut readiness = shared.readiness.subscribe();
    let mut first = true;
    let begins = shared.readiness.send_if_modified(|found| {
        let old = found.last.is_none_or(|last| last.elapsed() > BELIEVED);
        first = found.last.is_none();
        let begins = old && !found.checking;
        found.checking |= begins;
        begins
    });
    if begins {
        let checks = Arc::clone(&shared);
        let check = tokio::spawn(async move { check(&checks, first).await });
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let result = check.await.unwrap_or_else(|_| Err(Refusal::panicked()));
            shared.readiness.send_modify(|found| {
                found.checking = false;
                found.last = result.is_ok().then(Instant::now).or(found.last);
                found.failure = result.err();
            });
        });
    }
    let deadline = Deadline::new(shared.config.deadline);
    // The sender is as long there as the server.
    let found = deadline.limit(readiness.wait_for(|found| !found.checking)).await?;
    let found = found.map_err(|_| Refusal::closed())?;
    match &found.failure {
        None => Ok(json_response(&json!({"status": "ready"}))),
        Some(failure) => Err(failure.clone()),
    }
}

/// Runs each model; that of recordings, which takes longest, only the first time.
async fn check(shared: &Arc<Shared>, first: bool) -> Result<(), Refusal> {
    let not_ready = |error: &dyn Display| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error);
    if let Some(batched) = &shared.translator {
        let mut translator = batched.translator().clone();
        let cancel = Cancel::new();
        translator.set_cancel(cancel.clone());
        let _guard = CancelOnDrop(cancel);
        let token = tokio::task::spawn_blocking(move || one_token(&translator)).await;
        match token {
            Ok(found) => found.map_err(|error| not_ready(&error))?,
            Err(error) => return Err(not_ready(&error)),
        }
    }
    if let Some((_, worker)) = &shared.embedder {
        for one in worker.compute_results(vec![EmbedInput::Text("a".to_owned())]).await? {
            one.result.map_err(|error| not_ready(&error))?;
        }
    }
    if let Some((_, worker)) = &shared.reranker {
        for one in worker.compute_results(vec![("a".into(), "a".to_owned())]).await? {
            one.result.map_err(|error| not_ready(&error))?;
        }
    }
    #[cfg(feature = "transcribe")]
    if first && shared.transcriber.is_some() {
        crate::transcriptions::transcribe_a_tone(shared).await?;
    }
    #[cfg(not(feature = "transcribe"))]
    let _ = first;
    Ok(())
}

/// Decodes a token in the batch.
fn one_token(translator: &Translator) -> Result<(), simdformer_text::Error> {
    let mut direction = translator.options().direction();
    let tokenizer = translator.tokenizer();
    if let Some(any) = tokenizer.languages().and_then(<[_]>::first) {
        // A model may have no default.
        direction.source = direction.source.or(Some(any.code()));
        direction.target = direction.target.or(Some(any.code()));
    }
    let encoded = tokenizer.encode("a", &direction)?;
    let mut options = translator.search_options().clone();
    options.max_new_tokens = Some(1);
    options.min_new_tokens = 0;
    let request = simdformer::Request {
        prefix: encoded.prefix.get(1..).unwrap_or_default().to_vec(),
        forced_bos: encoded.forced_bos,
        options: Some(options),
        ..simdformer::Request::new(encoded.ids)
    };
    translator.engine().submit(request)?.wait()?;
    Ok(())
}

fn described(model: &Model) -> Value {
    let config = model.config();
    json!({
        "family": format!("{:?}", config.family),
        "instruction_set": model.isa().name(),
        "weight_bytes": model.bytes(),
    })
}

/// `GET /info`.
pub(crate) async fn info(shared: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    let config = &shared.config;
    let mut models = json!({});
    if let Some(batched) = &shared.translator {
        let translator = batched.translator();
        models["translator"] = described(translator.model());
        models["translator"]["options"] = describe(translator.options());
        models["translator"]["slots"] = translator.engine().slots().into();
    }
    if let Some((embedder, _)) = &shared.embedder {
        models["embedder"] = described(embedder.engine().model());
        models["embedder"]["dimensions"] = embedder.setup().width().into();
    }
    if let Some((reranker, _)) = &shared.reranker {
        models["reranker"] = described(reranker.engine().model());
    }
    #[cfg(feature = "transcribe")]
    if let Some(transcriber) = &shared.transcriber {
        models["transcriber"] = described(transcriber.model());
    }
    Ok(json_response(&json!({
        "model_id": config.name,
        "version": env!("CARGO_PKG_VERSION"),
        "models": models,
        "limits": {
            "queue_tokens": config.queue_tokens,
            "requests": config.requests,
            "body_bytes": config.body_bytes,
            "audio_bytes": config.audio_bytes,
            "items": config.items,
            "deadline_seconds": config.deadline.as_secs_f64(),
        },
    })))
}

/// `GET /metrics`.
pub(crate) async fn metrics(shared: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    let mut engines = Vec::new();
    if let Some(batched) = &shared.translator {
        engines.push(("translator", batched.translator().engine().report().bytes));
    }
    if let Some((embedder, _)) = &shared.embedder {
        engines.push(("embedder", embedder.engine().report().bytes));
    }
    if let Some((reranker, _)) = &shared.reranker {
        engines.push(("reranker", reranker.engine().report().bytes));
    }
    let text = shared.metrics.text(&shared.queue.state(), &engines);
    Ok(with_type("text/plain; version=0.0.4; charset=utf-8", text))
}

/// `GET /v1/models`, which clients of OpenAI list.
pub(crate) async fn models(shared: Arc<Shared>, _: Request) -> Result<Response, Refusal> {
    let model = json!({
        "id": shared.config.name, "object": "model", "created": 0, "owned_by": "simdformer"
    });
    Ok(json_response(&json!({"object": "list", "data": [model]})))
}
