//! How many tokens and requests the server has accepted and not finished.

use crate::error::Refusal;
use axum::http::StatusCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The requests that wait or are run.
#[derive(Debug)]
pub(crate) struct Queue {
    most_tokens: usize,
    most_requests: usize,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    pub(crate) tokens: usize,
    pub(crate) requests: usize,
    /// Requests that were refused.
    pub(crate) refused: u64,
    /// The moving mean of the time that a request takes.
    mean: Duration,
}

/// The place of a request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<Queue>,
    tokens: usize,
    since: Instant,
}

impl Queue {
    pub(crate) fn new(tokens: usize, requests: usize) -> Self {
        let (most_tokens, most_requests) = (tokens.max(1), requests.max(1));
        Self { most_tokens, most_requests, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        *self.lock()
    }

    /// A place for a request whose tokens are not counted yet: one token. A full queue refuses before a text is looked at.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Place, Refusal> {
        let mut state = self.lock();
        if state.requests >= self.most_requests || state.tokens >= self.most_tokens {
            return Err(self.refusal(&mut state));
        }
        state.requests += 1;
        state.tokens += 1;
        Ok(Place { queue: Arc::clone(self), tokens: 1, since: Instant::now() })
    }

    fn refusal(&self, state: &mut State) -> Refusal {
        state.refused += 1;
        let text = format!(
            "the queue is full: expected room for the request, found {} tokens of {} and {} requests of {}",
            state.tokens, self.most_tokens, state.requests, self.most_requests
        );
        let seconds = state.mean.as_secs_f64().ceil().clamp(1.0, 60.0) as u64;
        Refusal { retry_after: Some(seconds), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, text) }
    }
}

impl Place {
    /// The request has so many tokens. One with more than half of what all may have is counted as half, so that it has a place
    /// beside others.
    pub(crate) fn set_tokens(&mut self, tokens: usize) -> Result<(), Refusal> {
        let most = self.queue.most_tokens;
        let mut state = self.queue.lock();
        let others = state.tokens - self.tokens;
        let tokens = tokens.clamp(1, (most / 2).max(1));
        if others > 0 && others + tokens > most {
            return Err(self.queue.refusal(&mut state));
        }
        state.tokens = others + tokens;
        self.tokens = tokens;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.tokens -= self.tokens;
        state.requests -= 1;
        state.mean = (state.mean * 7 + self.since.elapsed()) / 8;
    }
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_places_come_back() {
        let queue = Arc::new(Queue::new(10, 3));
        let mut first = queue.enter().unwrap();
        first.set_tokens(3).unwrap();
        let mut second = queue.enter().unwrap();
        // More than half is half.
        second.set_tokens(1000).unwrap();
        let mut third = queue.enter().unwrap();
        let refusal = third.set_tokens(3).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.retry_after), (429, Some(1)));
        // The requests are used up, then the tokens.
        assert_eq!(queue.enter().unwrap_err().status.as_u16(), 429);
        drop(third);
        first.set_tokens(5).unwrap();
        assert_eq!(queue.enter().unwrap_err().status.as_u16(), 429);
        drop((first, second));
        let State { tokens, requests, refused, .. } = queue.state();
        assert_eq!((tokens, requests, refused), (0, 0, 3));
    }
}
