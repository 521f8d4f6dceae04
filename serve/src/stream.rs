//! `/translate/stream`: a translation while the model writes it, as server-sent events.

use crate::error::{Dialect, Refusal, with_type};
use crate::shared::{CancelOnDrop, Shared, run_blocking};
use crate::translate::{TranslateRequest, count, failed, read};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};
use http_body::{Body as HttpBody, Frame};
use serde_json::{Value, json};
use simdformer::Cancel;
use simdformer_text::translator::{TextEvent, Translation};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::Sleep;

/// Events that wait for the client; then the thread of the request waits.
const WAITING: usize = 64;

/// `POST /translate/stream`: one text, as `/translate` takes it. The events are `copied` and `piece` with a `text`, `sentence`
/// with what is known of one, and at the end `done` with the `translatedText`, or `error`.
pub(crate) async fn translate(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, place) = read(&shared, request).await?;
    let request = TranslateRequest::read(&fields, &shared)?;
    if request.is_more_than_a_text() {
        let text = "expected one text without alternatives, found more or HTML";
        return Err(Refusal::invalid(text));
    }
    // What is wrong with the request is an answer of its own, so it is prepared before the stream begins.
    let cancel = Cancel::new();
    let guard = CancelOnDrop(cancel.clone());
    let worker = Arc::clone(&shared);
    let prepared = run_blocking(&shared, place, move |_, mut place| {
        let translator = request.prepare(&worker, &cancel, &mut place)?;
        Ok((translator, place, request, worker))
    });
    let (translator, place, request, worker) = prepared.await?;
    let (sender, events) = channel(WAITING);
    tokio::task::spawn_blocking(move || {
        // The place of the request, until the thread ends.
        let _place = place;
        // Without a client nothing is sent; the flag of the translator ends the call.
        let send = |name: &str, data: &Value| {
            let event = format!("event: {name}\ndata: {data}\n\n");
            drop(sender.blocking_send(Bytes::from(event)));
        };
        let text = request.texts.first().map_or("", String::as_str);
        let found = translator.translate_text_streamed(text, &mut |event| match event {
            TextEvent::Copied(text) => send("copied", &json!({"text": text})),
            TextEvent::Piece(text) => send("piece", &json!({"text": text})),
            TextEvent::Sentence { source, text, translation } => {
                send("sentence", &sentence(source, text, translation));
            }
            _ => (),
        });
        let found = found.map_err(Refusal::from).and_then(|found| {
            failed(0, &found)?;
            count(&worker, &found);
            Ok(found)
        });
        match found {
            Ok(found) => {
                send("done", &json!({"translatedText": found.text(), "language": found.language}));
            }
            Err(refusal) => send("error", &refusal.body(Dialect::LibreTranslate)),
        }
    });
    let deadline = Box::pin(tokio::time::sleep(shared.config.deadline));
    let seconds = shared.config.deadline.as_secs_f64();
    let body = Events { events, deadline, seconds, over: false, _cancel: guard };
    let mut response = with_type("text/event-stream", Body::new(body));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// What is known of a sentence.
fn sentence(source: &str, text: &str, translation: &Translation) -> Value {
    let confidence = translation.mean_log_probability().map(f32::exp);
    let words = translation
        .alignment
        .as_ref()
        .map(|words| json!({"source": words.source, "target": words.target, "links": words.links}));
    let unknown: Vec<&str> = translation.unknown.iter().map(|word| &word.text[..]).collect();
    json!({
        "source": source,
        "text": text,
        "confidence": confidence,
        "unfinished": translation.is_unfinished(),
        "unknown": unknown,
        "words": words,
    })
}

/// The events of a thread as the body of an answer. If it is dropped, because the client has left, the thread ends.
struct Events {
    events: Receiver<Bytes>,
    deadline: Pin<Box<Sleep>>,
    seconds: f64,
    over: bool,
    _cancel: CancelOnDrop,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        if this.deadline.as_mut().poll(context).is_ready() {
            this.over = true;
            this.events.close();
            let data = Refusal::too_late(this.seconds).body(Dialect::LibreTranslate);
            let event = format!("event: error\ndata: {data}\n\n");
            return Poll::Ready(Some(Ok(Frame::data(event.into()))));
        }
        this.events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
