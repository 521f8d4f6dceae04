//! `/rerank` in the dialect of TEI, and `/v1/rerank` and `/v2/rerank` in that of Cohere.

use crate::body::Fields;
use crate::error::{Refusal, json_response};
use crate::queue::Place;
use crate::shared::{BYTES_PER_TOKEN, Deadline, Shared, read_fields};
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};
use simdformer_text::embedder::{Score, TextResult};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The fields of requests. There is one model.
const TEI: [&str; 5] = ["query", "texts", "raw_scores", "return_text", "truncate"];
const COHERE: [&str; 5] = ["model", "query", "documents", "top_n", "return_documents"];

/// A text, its place in the request, and how well it answers the query.
struct Ranked {
    index: usize,
    text: String,
    score: Score,
    /// Whether only a part of it or of the query was read.
    truncated: bool,
}

/// `POST /rerank`: the scores of `texts`, best first. A text that is too long is an error without `truncate`.
pub(crate) async fn tei(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, place, deadline) = read_fields(&shared, request, &TEI).await?;
    let (query, texts) = (query(&fields)?, texts(&fields, "texts", &shared)?);
    let raw = fields.switch("raw_scores")?;
    let with_text = fields.switch("return_text")?;
    let truncate = fields.switch("truncate")?;
    let ranked = rank(&shared, (place, deadline), query, texts).await?;
    if let Some(cut) = ranked.iter().find(|one| one.truncated && !truncate) {
        let text =
            format!("text {}: expected one that the model takes whole, or truncate", cut.index);
        return Err(Refusal::invalid(format_args!("{text}, found a longer one")));
    }
    let one = |one: Ranked| {
        let score = if raw { one.score.raw } else { one.score.value };
        let mut item = json!({"index": one.index, "score": score});
        if one.truncated {
            item["truncated"] = true.into();
        }
        if with_text {
            item["text"] = Value::String(one.text);
        }
        item
    };
    Ok(json_response(&ranked.into_iter().map(one).collect()))
}

/// `POST /v1/rerank` and `/v2/rerank`: the `top_n` best of `documents`.
pub(crate) async fn cohere(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, place, deadline) = read_fields(&shared, request, &COHERE).await?;
    let (query, texts) = (query(&fields)?, documents(&fields, &shared)?);
    let most = fields.number("top_n", 1, usize::MAX)?.unwrap_or(usize::MAX);
    let with_text = fields.switch("return_documents")?;
    let ranked = rank(&shared, (place, deadline), query, texts).await?;
    let one = |one: Ranked| {
        let mut item = json!({"index": one.index, "relevance_score": one.score.value});
        if one.truncated {
            item["truncated"] = true.into();
        }
        if with_text {
            item["document"] = json!({"text": one.text});
        }
        item
    };
    let results: Vec<Value> = ranked.into_iter().take(most).map(one).collect();
    Ok(json_response(&json!({
        "id": shared.config.name,
        "results": results,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
    })))
}

fn query(fields: &Fields) -> Result<&str, Refusal> {
    match fields.get("query") {
        Value::String(query) => Ok(query),
        other => Err(Refusal::field("query", "a string", other)),
    }
}

fn texts(fields: &Fields, name: &str, shared: &Shared) -> Result<Vec<String>, Refusal> {
    match fields.get(name) {
        Value::Array(_) => Ok(fields.texts(name, shared.config.items)?.0),
        other => Err(Refusal::field(name, "a list of strings", other)),
    }
}

/// The documents of Cohere: strings, or with version 1 objects with a `text`.
fn documents(fields: &Fields, shared: &Shared) -> Result<Vec<String>, Refusal> {
    const NAME: &str = "documents";
    match fields.get(NAME) {
        Value::Array(list) if list.first().is_some_and(Value::is_object) => {
            if list.len() > shared.config.items {
                let expected = format!("at most {} texts", shared.config.items);
                return Err(Refusal::field(NAME, &expected, fields.get(NAME)));
            }
            let text = |document: &Value| match document.get("text") {
                Some(Value::String(text)) => Ok(text.clone()),
                _ => Err(Refusal::field(NAME, "strings, or objects with a text", document)),
            };
            list.iter().map(text).collect()
        }
        _ => texts(fields, NAME, shared),
    }
}

/// Scores all texts, and sorts them, the best first.
async fn rank(
    shared: &Shared,
    (mut place, deadline): (Place, Deadline),
    query: &str,
    texts: Vec<String>,
) -> Result<Vec<Ranked>, Refusal> {
    let (_, worker) = shared.reranker.as_ref().ok_or_else(|| Refusal::no_model("ranks texts"))?;
    let bytes: usize = texts.iter().map(|text| text.len() + query.len()).sum();
    place.set_tokens(texts.len() + bytes / BYTES_PER_TOKEN)?;
    // All pairs share the query.
    let query: Arc<str> = query.into();
    let pairs = texts.iter().map(|text| (Arc::clone(&query), text.clone())).collect();
    let found: Vec<TextResult<Score>> = deadline.limit(worker.compute_results(pairs)).await??;
    drop(place);
    let tokens: usize = found.iter().map(|one| one.tokens).sum();
    shared.metrics.source_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    let mut ranked = Vec::with_capacity(found.len());
    for (index, (text, one)) in texts.into_iter().zip(found).enumerate() {
        let why = |why| Refusal::invalid(format_args!("text {index}: {why}"));
        let (score, truncated) = (one.result.map_err(why)?, one.truncated);
        ranked.push(Ranked { index, text, score, truncated });
    }
    ranked.sort_by(|a, b| a.score.best_first(&b.score));
    Ok(ranked)
}
