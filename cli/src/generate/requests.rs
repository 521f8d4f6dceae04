//! The JSON lines that are read and written.

use crate::streams::Failure;
use serde::{Deserialize, Serialize};
use simdformer::config::{Config, Side};
use simdformer_text::translator;
use std::fmt;

/// What is wrong with request `number`: its sequences end where the scores became NaN or infinite.
pub(super) fn not_finite(number: usize) -> Failure {
    format!("request {number}: {}", translator::Failure::NotFinite).into()
}

/// One line of input.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Source ids, including the end token; absent if the model reads features.
    pub(crate) input_ids: Option<Vec<u32>>,
    /// Target ids: a prefix to continue, or a target to score.
    pub(crate) decoder_input_ids: Option<Vec<u32>>,
}

impl Request {
    /// Source ids.
    pub(crate) fn ids(&self) -> &[u32] {
        self.input_ids.as_deref().unwrap_or_default()
    }

    /// The target ids after the decoder start; the line may include or omit the start.
    pub(crate) fn after_start(&self, start: u32) -> &[u32] {
        match self.decoder_input_ids.as_deref() {
            Some([first, rest @ ..]) if *first == start => rest,
            Some(all) => all,
            None => &[],
        }
    }
}

/// One line of output.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Response {
    /// Ids after the decoder start, best first.
    pub(crate) sequences: Vec<Vec<u32>>,
    /// The score of each; NaN (null in JSON) if scores were not requested.
    pub(crate) scores: Vec<f64>,
    /// The log-probability of each token; only with `--score`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_probabilities: Option<Vec<Vec<f32>>>,
}

/// An error in an input line; lines are counted from 1.
#[derive(Debug)]
pub(crate) struct LineError {
    line: usize,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Json(serde_json::Error),
    Empty,
    Missing,
    Ids,
    Outside { key: &'static str, index: usize, vocabulary: usize, found: u32 },
    TooLong { key: &'static str, expected_at_most: usize, found: usize },
    NoTarget,
    NoDecoder,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.problem {
            // The line number of the JSON error is always 1; only its column is useful.
            Problem::Json(error) => {
                let text = error.to_string();
                let message = text.split(" at line ").next().unwrap_or_default();
                write!(f, "{message}, at column {}", error.column())
            }
            Problem::Empty => write!(f, "expected at least one id in input_ids, found none"),
            Problem::Missing => write!(f, "missing field `input_ids`"),
            Problem::Ids => write!(f, "input_ids of a model that reads features: expected none"),
            Problem::Outside { key, index, vocabulary, found } => {
                write!(f, "{key}[{index}]: expected an id below {vocabulary}, found {found}")
            }
            Problem::TooLong { key, expected_at_most, found } => {
                write!(f, "{key}: expected at most {expected_at_most} ids, found {found}")
            }
            Problem::NoDecoder => {
                write!(f, "decoder_input_ids of a model without a decoder: expected none")
            }
            Problem::NoTarget => write!(f, "--score needs decoder_input_ids, found none"),
        }
    }
}

impl std::error::Error for LineError {}

/// Parses and checks JSON lines; skips blank lines. With `score`, each line needs a target.
pub(crate) fn parse(text: &str, config: &Config, score: bool) -> Result<Vec<Request>, LineError> {
    let mut requests = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let error = |problem| LineError { line: index + 1, problem };
        let request: Request = serde_json::from_str(line).map_err(|e| error(Problem::Json(e)))?;
        match (&request.input_ids, config.bins) {
            (Some(_), Some(_)) => return Err(error(Problem::Ids)),
            (None, None) => return Err(error(Problem::Missing)),
            (Some(ids), None) if ids.is_empty() => return Err(error(Problem::Empty)),
            _ => (),
        }
        if score && request.decoder_input_ids.is_none() {
            return Err(error(Problem::NoTarget));
        }
        if config.decoder.is_none() && request.decoder_input_ids.is_some() {
            return Err(error(Problem::NoDecoder));
        }
        let target = request.decoder_input_ids.as_deref().unwrap_or_default();
        check("input_ids", request.ids(), Side::Encoder, config).map_err(error)?;
        check("decoder_input_ids", target, Side::Decoder, config).map_err(error)?;
        requests.push(request);
    }
    Ok(requests)
}

fn check(key: &'static str, ids: &[u32], side: Side, config: &Config) -> Result<(), Problem> {
    let vocabulary = config.vocab(side);
    if let Some(index) = ids.iter().position(|&id| id as usize >= vocabulary) {
        return Err(Problem::Outside { key, index, vocabulary, found: ids[index] });
    }
    match config.max_positions(side) {
        Some(expected_at_most) if ids.len() > expected_at_most => {
            Err(Problem::TooLong { key, expected_at_most, found: ids.len() })
        }
        _ => Ok(()),
    }
}
