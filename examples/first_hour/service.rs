//! A service: threads submit requests, and one thread decodes all of them in one batch, which they join and leave between two
//! steps.

use super::n_best::Hypotheses;
use simdformer::{Engine, Request, RequestHandle};
use std::error::Error;

/// Answers `sources`, which four threads submit, in order. An invalid source gets its error and does not affect the others.
pub(crate) fn run(
    directory: &str,
    sources: &[&[u32]],
) -> Result<Vec<Result<Hypotheses, String>>, Box<dyn Error>> {
    let engine = Engine::open(directory)?;
    let decoder = engine.clone();
    let decoding = std::thread::spawn(move || decoder.run());
    let answer = |tokens: &&[u32]| {
        // A service that streams reads `RequestHandle::next_token` before it waits.
        let found = engine.submit(Request::new(*tokens)).and_then(RequestHandle::wait);
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.hypotheses.into_iter().map(|(tokens, _)| tokens).collect())
    };
    let answers = std::thread::scope(|scope| {
        let client = |part: &[&[u32]]| part.iter().map(answer).collect::<Vec<_>>();
        let parts = sources.chunks(sources.len().div_ceil(4).max(1));
        let clients: Vec<_> = parts.map(|part| scope.spawn(move || client(part))).collect();
        let answers = clients.into_iter().map(std::thread::ScopedJoinHandle::join);
        answers.collect::<Result<Vec<_>, _>>().map_err(|_| "a panic")
    })?;
    engine.close(); // ends the decoding thread
    decoding.join().map_err(|_| "a panic")??;
    Ok(answers.concat())
}
