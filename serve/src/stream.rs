//! `/translate/stream`: a translation while the model writes it, as server-sent events.

use crate::error::{Dialect, Refusal, with_type};
use crate::shared::{CancelOnDrop, Deadline, Shared, read_fields, run_blocking};
use crate::translate::{FIELDS, TranslateRequest, count, failed};
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
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Sleep, sleep_until, timeout_at};

/// Events that wait for the client; then the thread of the request waits.
const WAITING: usize = 64;

/// `POST /translate/stream`: one text, as `/translate` takes it. The events are `copied` and `piece` with a `text`, `sentence`
/// with what is known of one, and at the end `done` with the `translatedText`, or `error`.
pub(crate) async fn translate(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, place, deadline) = read_fields(&shared, request, &FIELDS).await?;
    let request = TranslateRequest::from_fields(&fields, &shared)?;
    if request.is_more_than_a_text() {
        let text = "expected one text without alternatives, found more or HTML";
        return Err(Refusal::invalid(text));
    }
    // What is wrong with the request is an answer of its own, so it is prepared before the stream begins.
    let cancel = Cancel::new();
    let guard = CancelOnDrop(cancel.clone());
    let worker = Arc::clone(&shared);
    let prepared = run_blocking(deadline, place, move |_, mut place| {
        let translator = request.prepare(&worker, &cancel, &mut place)?;
        Ok((translator, place, request, worker, cancel))
    });
    let (translator, place, request, worker, cancel) = prepared.await?;
    let (sender, events) = channel(WAITING);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        // The place of the request, until the thread ends.
        let _place = place;
        // Without a client, or with one that reads nothing, the flag of the translator ends the call.
        let send = |name: &str, data: &Value| {
            let sent = timeout_at(deadline.at, sender.send(Event::new(name, data)));
            if !matches!(runtime.block_on(sent), Ok(Ok(()))) {
                cancel.cancel();
            }
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
    let time = Box::pin(sleep_until(deadline.at));
    let body = Events { events, deadline, time, over: false, _cancel: guard };
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

/// An event as it is sent, and whether it is the last one.
struct Event {
    text: Bytes,
    last: bool,
}

impl Event {
    fn new(name: &str, data: &Value) -> Self {
        let text = format!("event: {name}\ndata: {data}\n\n").into();
        Self { text, last: ["done", "error"].contains(&name) }
    }

    fn error(refusal: &Refusal) -> Self {
        Self::new("error", &refusal.body(Dialect::LibreTranslate))
    }
}

/// The events of a thread as the body of an answer. If it is dropped, because the client has left, the thread ends.
struct Events {
    events: Receiver<Event>,
    deadline: Deadline,
    time: Pin<Box<Sleep>>,
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
        let event = if this.time.as_mut().poll(context).is_ready() {
            this.events.close();
            Event::error(&this.deadline.refusal())
        } else {
            // A thread that ends without a last event has panicked.
            let event = core::task::ready!(this.events.poll_recv(context));
            event.unwrap_or_else(|| Event::error(&Refusal::panicked()))
        };
        this.over = event.last;
        Poll::Ready(Some(Ok(Frame::data(event.text))))
    }
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::time::Duration;

    #[test]
    fn a_thread_that_ends_early_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let collect = |last: Option<Event>| {
            runtime.block_on(async {
                let (sender, events) = channel(2);
                assert!(sender.send(Event::new("piece", &json!({"text": "a"}))).await.is_ok());
                if let Some(last) = last {
                    assert!(sender.send(last).await.is_ok());
                }
                drop(sender);
                let deadline = Deadline::new(Duration::from_secs(60));
                let time = Box::pin(sleep_until(deadline.at));
                let cancel = CancelOnDrop(Cancel::new());
                let body = Events { events, deadline, time, over: false, _cancel: cancel };
                String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
            })
        };
        let piece = "event: piece\ndata: {\"text\":\"a\"}\n\n";
        let error =
            "event: error\ndata: {\"error\":\"the thread of the request has panicked\"}\n\n";
        assert_eq!(collect(None), format!("{piece}{error}"));
        let done = collect(Some(Event::new("done", &json!({}))));
        assert_eq!(done, format!("{piece}event: done\ndata: {{}}\n\n"));
    }
}
