//! `/v1/embeddings`, in the dialect of OpenAI.

use crate::error::{Refusal, with_type};
use crate::shared::{BYTES_PER_TOKEN, EmbedInput, Shared, read_fields, run_blocking};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use simdformer_text::embedder::{TextResult, shorten};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The fields of a request. There is one model, and nothing is known of users.
const FIELDS: [&str; 5] = ["input", "model", "encoding_format", "dimensions", "user"];

/// `POST /v1/embeddings`.
pub(crate) async fn embed(shared: Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let (fields, mut place, deadline) = read_fields(&shared, request, &FIELDS).await?;
    let (embedder, worker) =
        shared.embedder.as_ref().ok_or_else(|| Refusal::no_model("embeds texts"))?;
    let base64 = fields.one_of("encoding_format", &["float", "base64"])? == "base64";
    let dims = fields.number("dimensions", 1, embedder.setup().width())?;
    let inputs = inputs(fields.get("input"))?;
    drop(fields);
    let (width, numbers) = (embedder.setup().width(), shared.config.embedding_numbers);
    let most = numbers / width.max(1);
    if inputs.len() > most {
        return Err(Refusal::invalid(format_args!(
            "input: expected at most {most} items of {width} numbers, found {}",
            inputs.len()
        )));
    }
    let tokens = inputs.iter().map(|input| match input {
        EmbedInput::Text(text) => 1 + text.len() / BYTES_PER_TOKEN,
        EmbedInput::Ids(ids) => ids.len(),
    });
    place.set_tokens(tokens.sum())?;
    let found = deadline.limit(worker.compute_results(inputs)).await??;
    let name = shared.config.name.clone();
    let written = run_blocking(deadline, place, move |_, _place| write(found, &name, dims, base64));
    let (tokens, text) = written.await?;
    shared.metrics.source_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    Ok(with_type("application/json", text))
}

/// The tokens of all items, and the answer.
fn write(
    found: Vec<TextResult<Vec<f32>>>,
    name: &str,
    dims: Option<usize>,
    base64: bool,
) -> Result<(usize, Vec<u8>), Refusal> {
    let mut tokens = 0;
    let mut text = br#"{"object":"list","data":["#.to_vec();
    for (index, one) in found.into_iter().enumerate() {
        let why = |why| Refusal::invalid(format_args!("input[{index}]: {why}"));
        let mut vector = one.result.map_err(why)?;
        let cut = if one.truncated { r#""truncated":true,"# } else { "" };
        tokens += one.tokens;
        if let Some(dims) = dims {
            shorten(&mut vector, dims);
        }
        let comma = if index > 0 { "," } else { "" };
        text.extend(comma.bytes());
        text.extend(format!(r#"{{"object":"embedding","index":{index},{cut}"embedding":"#).bytes());
        let written = match base64 {
            true => {
                let bytes = vector.iter().flat_map(|x| x.to_le_bytes());
                serde_json::to_writer(&mut text, &encode_base64(bytes))
            }
            // A float has the shortest decimal that reads back as the same float.
            false => serde_json::to_writer(&mut text, &vector),
        };
        // Writing to memory cannot fail.
        written.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
        text.push(b'}');
    }
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    text.extend(format!(r#"],"model":{},"usage":{usage}}}"#, Value::from(name)).bytes());
    Ok((tokens, text))
}

/// A string, a list of strings, a list of ids, or a list of lists of ids.
fn inputs(value: &Value) -> Result<Vec<EmbedInput>, Refusal> {
    let wrong = |found: &Value| {
        Refusal::field("input", "a string, or a list of strings or of token ids, not empty", found)
    };
    let ids = |list: &[Value]| -> Result<EmbedInput, Refusal> {
        let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = list.iter().map(|value| id(value).ok_or_else(|| wrong(value)));
        Ok(EmbedInput::Ids(ids.collect::<Result<_, _>>()?))
    };
    match value {
        Value::String(text) => Ok(vec![EmbedInput::Text(text.clone())]),
        Value::Array(list) => match list.first() {
            None => Err(wrong(value)),
            Some(Value::Number(_)) => Ok(vec![ids(list)?]),
            Some(_) => list
                .iter()
                .map(|one| match one {
                    Value::String(text) => Ok(EmbedInput::Text(text.clone())),
                    Value::Array(list) => ids(list),
                    other => Err(wrong(other)),
                })
                .collect(),
        },
        other => Err(wrong(other)),
    }
}

/// Base64 of RFC 4648 with padding, as `numpy.frombuffer(base64.b64decode(..), "<f4")` reads it.
fn encode_base64(bytes: impl IntoIterator<Item = u8>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = bytes.into_iter().collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode_base64(plain.bytes()), coded);
        }
        assert_eq!(encode_base64([0xfb, 0xff, 0xbf]), "+/+/");
    }
}
