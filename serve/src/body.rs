//! Reads the bodies of requests, in bounded time and memory, and the fields in them.

use crate::error::Refusal;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use bytes::Bytes;
use core::fmt;
use http_body_util::BodyExt;
use serde_core::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::time::Duration;

/// Reads a body of at most `most` bytes that arrives within `time`.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    most: usize,
    time: Duration,
) -> Result<Bytes, Refusal> {
    let too_large = || {
        let text = format!("body: expected at most {most} bytes, found more");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if declared.and_then(|text| text.parse::<u64>().ok()).is_some_and(|len| len > most as u64) {
        return Err(too_large());
    }
    let read = async {
        let mut body = body;
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Refusal::invalid(format_args!("body: expected a whole one, found: {error}"))
            })?;
            if let Some(data) = frame.data_ref() {
                if whole.len() + data.len() > most {
                    return Err(too_large());
                }
                whole.extend_from_slice(data);
            }
        }
        Ok(Bytes::from(whole))
    };
    tokio::time::timeout(time, read).await.unwrap_or_else(|_| {
        let text = format!("body: expected it within {} s, found a part", time.as_secs_f64());
        Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, text))
    })
}

/// An error if an address has what would have no effect: what a client asks for is in the body.
pub(crate) fn check_address(uri: &Uri) -> Result<(), Refusal> {
    match uri.query() {
        None | Some("") => Ok(()),
        Some(found) => Err(Refusal::field("query string", "none", &Value::from(found))),
    }
}

/// The media type of a request, in small letters and without parameters; empty if it has none.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

/// The fields of a body.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Of JSON, or of a form. A field that a form repeats is a list.
    pub(crate) fn parse(headers: &HeaderMap, body: &[u8], form: bool) -> Result<Self, Refusal> {
        match &media_type(headers)[..] {
            "application/json" | "" => Self::json(body),
            "application/x-www-form-urlencoded" if form => Self::form(body),
            found => {
                let expected = if form { "JSON or a form" } else { "JSON" };
                let text = format!("content type: expected {expected}, found {found:?}");
                Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
            }
        }
    }

    fn json(body: &[u8]) -> Result<Self, Refusal> {
        // `serde_json` refuses more than 127 levels.
        let mut parser = serde_json::Deserializer::from_slice(body);
        let fields = parser.deserialize_map(Object);
        let fields = fields.and_then(|fields| parser.end().map(|()| Self(fields)));
        fields.map_err(|error| {
            Refusal::invalid(format_args!("body: expected a JSON object, found: {error}"))
        })
    }

    fn form(body: &[u8]) -> Result<Self, Refusal> {
        let mut fields = Map::new();
        for pair in body.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
            let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            let (name, value) = (decode(&pair[..at])?, decode(pair.get(at + 1..).unwrap_or(b""))?);
            let value = Value::String(value);
            match fields.get_mut(&name) {
                None => drop(fields.insert(name, value)),
                Some(Value::Array(list)) => list.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
            }
        }
        Ok(Self(fields))
    }

    /// An error if there is a field of another name, unless it is null: it would have no effect.
    pub(crate) fn check_names(&self, names: &[&str]) -> Result<(), Refusal> {
        let mut fields = self.0.iter();
        match fields.find(|(name, value)| !value.is_null() && !names.contains(&&name[..])) {
            None => Ok(()),
            Some((name, _)) => {
                let found = Value::from(&name[..]);
                Err(Refusal::field("body", "fields of /openapi.json", &found))
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// A string; `None` if it is missing, null or empty.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        match self.get(name) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(&text[..]).filter(|text| !text.is_empty())),
            other => Err(Refusal::field(name, "a string", other)),
        }
    }

    /// One of these strings; the first if it is missing.
    pub(crate) fn one_of(
        &self,
        name: &str,
        names: &[&'static str],
    ) -> Result<&'static str, Refusal> {
        let found = self.text(name)?;
        let known = names.iter().find(|known| found.is_none_or(|found| **known == found));
        let unknown = || Refusal::field(name, &names.join(" or "), self.get(name));
        known.copied().ok_or_else(unknown)
    }

    /// A whole number, which a form writes as text.
    pub(crate) fn number(
        &self,
        name: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, Refusal> {
        let found = match self.get(name) {
            Value::Null => return Ok(None),
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|number| usize::try_from(number).ok()),
        };
        let range = least..=most;
        let wrong = || {
            let expected = match most {
                usize::MAX => format!("a whole number from {least} up"),
                most => format!("a whole number from {least} to {most}"),
            };
            Refusal::field(name, &expected, self.get(name))
        };
        found.filter(|found| range.contains(found)).map(Some).ok_or_else(wrong)
    }

    /// A switch, which a form writes as text; false if it is missing.
    pub(crate) fn switch(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            Value::Null => Ok(false),
            Value::Bool(on) => Ok(*on),
            Value::String(text) if ["true", "1"].contains(&&text[..]) => Ok(true),
            Value::String(text) if ["false", "0"].contains(&&text[..]) => Ok(false),
            other => Err(Refusal::field(name, "true or false", other)),
        }
    }

    /// At least one and at most `most` strings, and whether they are a list.
    pub(crate) fn texts(&self, name: &str, most: usize) -> Result<(Vec<String>, bool), Refusal> {
        match self.get(name) {
            Value::String(text) => Ok((vec![text.clone()], false)),
            Value::Array(list) if (1..=most).contains(&list.len()) => {
                let text = |(i, item): (usize, &Value)| match item {
                    Value::String(text) => Ok(text.clone()),
                    other => Err(Refusal::field(&format!("{name}[{i}]"), "a string", other)),
                };
                Ok((list.iter().enumerate().map(text).collect::<Result<_, _>>()?, true))
            }
            other => {
                let expected = match most {
                    usize::MAX => "a string, or a list of strings".to_owned(),
                    most => format!("a string, or a list of 1 to {most} strings"),
                };
                Err(Refusal::field(name, &expected, other))
            }
        }
    }
}

/// Reads an object, in which each name stands once.
struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = entries.next_entry::<String, Value>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("{name:?} twice")));
            }
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

/// Decodes a name or a value of a form.
fn decode(bytes: &[u8]) -> Result<String, Refusal> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(bytes.get(at)), digit(bytes.get(at + 1))) {
                (Some(high), Some(low)) => {
                    at += 2;
                    (16 * high + low) as u8
                }
                _ => {
                    let text =
                        "body: expected two hexadecimal digits after %, found something else";
                    return Err(Refusal::invalid(text));
                }
            },
            byte => byte,
        });
    }
    let wrong = |error| Refusal::invalid(format_args!("body: expected UTF-8, found: {error}"));
    String::from_utf8(decoded).map_err(wrong)
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        let fields = Fields::form(b"q=a+b%C3%A9&q=c%26&n=2&empty=&&lone").unwrap();
        assert_eq!(fields.texts("q", 2).unwrap(), (vec!["a bé".to_owned(), "c&".to_owned()], true));
        assert_eq!(fields.number("n", 0, 2).unwrap(), Some(2));
        assert_eq!((fields.text("empty").unwrap(), fields.text("lone").unwrap()), (None, None));
        for (wrong, part) in [
            (&b"q=%f"[..], "two hexadecimal digits"),
            (b"q=%zz", "two hexadecimal digits"),
            (b"q=%ff", "UTF-8"),
        ] {
            assert!(Fields::form(wrong).unwrap_err().text.contains(part));
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        let fields = Fields::json(br#"{"a": 3, "b": ["x", 4], "c": "d", "e": []}"#).unwrap();
        let texts = [
            fields.text("a").unwrap_err().text,
            fields.texts("b", 9).unwrap_err().text,
            fields.texts("e", 9).unwrap_err().text,
            fields.one_of("c", &["text", "html"]).unwrap_err().text,
            fields.number("a", 4, 9).unwrap_err().text,
            fields.switch("c").unwrap_err().text,
        ];
        assert_eq!(
            texts,
            [
                "a: expected a string, found 3",
                "b[1]: expected a string, found 4",
                "e: expected a string, or a list of 1 to 9 strings, found a list of 0 items",
                "c: expected text or html, found \"d\"",
                "a: expected a whole number from 4 to 9, found 3",
                "c: expected true or false, found \"d\"",
            ]
        );
    }

    #[test]
    fn what_has_no_effect_is_an_error() {
        let fields = Fields::json(br#"{"q": "a", "sorce": "de", "p": null}"#).unwrap();
        assert_eq!(
            fields.check_names(&["q", "source"]).unwrap_err().text,
            "body: expected fields of /openapi.json, found \"sorce\""
        );
        fields.check_names(&["q", "sorce"]).unwrap();
        let twice = Fields::json(br#"{"q": "a", "q": "b"}"#).unwrap_err().text;
        assert!(twice.starts_with("body: expected a JSON object, found: \"q\" twice"), "{twice}");
        check_address(&Uri::from_static("/translate")).unwrap();
        assert_eq!(
            check_address(&Uri::from_static("/translate?source=de")).unwrap_err().text,
            "query string: expected none, found \"source=de\""
        );
    }
}
