//! The errors: those of a server that cannot start, and those of requests, in the dialect of each route.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use core::fmt;
use serde_json::{Value, json};

/// Why a server cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses an address, a thread or a handler of signals.
    Io {
        /// What it was to do: `"the address 127.0.0.1:80"`.
        operand: Box<str>,
        /// Its error.
        error: std::io::Error,
    },
    /// There is no model.
    NoModel,
    /// A model cannot be used as it is configured.
    Text(simdformer_text::Error),
}

impl Error {
    pub(crate) fn io(operand: impl fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let operand = operand.to_string().into();
        move |error| Self::Io { operand, error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operand, error } => write!(f, "{operand}: {error}"),
            Self::NoModel => f.write_str("models: expected at least one, found none"),
            Self::Text(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

impl From<simdformer_text::Error> for Error {
    fn from(error: simdformer_text::Error) -> Self {
        Self::Text(error)
    }
}

/// In whose form an error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `{"error": TEXT}`.
    LibreTranslate,
    /// `{"error": {"message": TEXT, "type": TYPE, "param": null, "code": null}}`.
    OpenAi,
    /// `{"error": TEXT, "error_type": TYPE}`.
    Tei,
    /// `{"message": TEXT}`.
    Cohere,
}

/// Why a request has no result.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    /// Seconds until the client may try again.
    pub(crate) retry_after: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl fmt::Display) -> Self {
        Self { status, text: text.to_string(), retry_after: None }
    }

    /// The request is wrong.
    pub(crate) fn invalid(text: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// A field has a wrong value.
    pub(crate) fn field(name: &str, expected: &str, found: &Value) -> Self {
        let found = match found {
            Value::Null => "nothing".to_owned(),
            Value::Array(list) => format!("a list of {} items", list.len()),
            Value::Object(_) => "an object".to_owned(),
            Value::String(text) if text.chars().count() > 40 => "a long string".to_owned(),
            other => other.to_string(),
        };
        Self::invalid(format_args!("{name}: expected {expected}, found {found}"))
    }

    /// No model of the server does this.
    pub(crate) fn no_model(does: &str) -> Self {
        let text = format!("expected a server with a model that {does}, found none");
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The server ends, or what runs the model has ended.
    pub(crate) fn closed() -> Self {
        let text = "the server is stopping";
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    pub(crate) fn panicked() -> Self {
        let text = "the thread of the request has panicked";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(crate) fn too_late(seconds: f64) -> Self {
        let text = format!("expected a result within {seconds} s, found none");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    fn kind(&self) -> [&'static str; 2] {
        match self.status {
            StatusCode::UNAUTHORIZED => ["authentication_error", "Unauthorized"],
            StatusCode::NOT_FOUND => ["not_found_error", "NotFound"],
            StatusCode::TOO_MANY_REQUESTS => ["rate_limit_error", "Overloaded"],
            status if status.is_server_error() => ["server_error", "Backend"],
            _ => ["invalid_request_error", "Validation"],
        }
    }

    pub(crate) fn body(&self, dialect: Dialect) -> Value {
        let text = &self.text;
        let [open_ai, tei] = self.kind();
        match dialect {
            Dialect::LibreTranslate => json!({"error": text}),
            Dialect::OpenAi => json!({
                "error": {"message": text, "type": open_ai, "param": null, "code": null}
            }),
            Dialect::Tei => json!({"error": text, "error_type": tei}),
            Dialect::Cohere => json!({"message": text}),
        }
    }

    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let mut response = json_response(&self.body(dialect));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<simdformer_text::Error> for Refusal {
    fn from(error: simdformer_text::Error) -> Self {
        use simdformer_text::Error as E;
        match error {
            E::Closed | E::Cancelled => Self::closed(),
            E::Language { .. }
            | E::FailedSentence { .. }
            | E::InvalidInput { .. }
            | E::InvalidOption { .. }
            | E::Corrupt { .. } => Self::invalid(error),
            E::Model(simdformer::Error::InvalidOption { .. } | simdformer::Error::Token { .. }) => {
                Self::invalid(error)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
}

/// An answer of JSON.
pub(crate) fn json_response(value: &Value) -> Response {
    with_type("application/json", value.to_string())
}

/// An answer of this media type.
pub(crate) fn with_type(media: &'static str, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
