//! A thread that runs a model for the texts of many requests together.

use crate::error::{Error, Refusal};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The texts that a request gives to the thread at a time, so that one with many does not keep others waiting.
const BLOCK: usize = 32;
/// The texts, of several requests, that the model runs in one call.
const TOGETHER: usize = 4 * BLOCK;

/// Some texts of a request.
struct Job<I, R> {
    items: Vec<I>,
    reply: oneshot::Sender<Result<Vec<R>, Refusal>>,
}

struct State<I, R> {
    jobs: VecDeque<Job<I, R>>,
    closed: bool,
}

struct Shared<I, R> {
    state: Mutex<State<I, R>>,
    changed: Condvar,
}

impl<I, R> Shared<I, R> {
    fn lock(&self) -> MutexGuard<'_, State<I, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread, and what waits for it.
pub(crate) struct Worker<I, R> {
    shared: Arc<Shared<I, R>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<I: Send + 'static, R: Send + 'static> Worker<I, R> {
    /// Starts a thread that calls `run` with items, and gets a result for each.
    pub(crate) fn start(
        name: &str,
        run: impl Fn(&[I]) -> Result<Vec<R>, Refusal> + Send + 'static,
    ) -> Result<Self, Error> {
        let state = Mutex::new(State { jobs: VecDeque::new(), closed: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let jobs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(format!("simdformer-{name}"));
        let thread = thread.spawn(move || {
            while let Some(jobs) = next_jobs(&jobs) {
                run_together(jobs, &run);
            }
        });
        let thread = Mutex::new(Some(thread.map_err(Error::io("the thread of a model"))?));
        Ok(Self { shared, thread })
    }

    /// The result of each item. If the caller no longer waits, what has not begun is not run.
    pub(crate) async fn compute_results(&self, items: Vec<I>) -> Result<Vec<R>, Refusal> {
        let mut results = Vec::with_capacity(items.len());
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let (reply, result) = oneshot::channel();
            let job = Job { items: items.by_ref().take(BLOCK).collect(), reply };
            {
                let mut state = self.shared.lock();
                if state.closed {
                    return Err(Refusal::closed());
                }
                state.jobs.push_back(job);
            }
            self.shared.changed.notify_one();
            results.append(&mut result.await.map_err(|_| Refusal::closed())??);
        }
        Ok(results)
    }
}

impl<I, R> Worker<I, R> {
    /// Ends the thread after the call of the model that runs.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Panics of the model are caught on the thread.
        drop(thread.map(JoinHandle::join));
    }
}

/// Also of a server that does not start.
impl<I, R> Drop for Worker<I, R> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits for jobs whose requests still wait; `None` if there are none and none will come.
fn next_jobs<I, R>(shared: &Shared<I, R>) -> Option<Vec<Job<I, R>>> {
    let mut state = shared.lock();
    loop {
        let (mut together, mut count) = (Vec::new(), 0);
        while count < TOGETHER
            && let Some(job) = state.jobs.pop_front()
        {
            if !job.reply.is_closed() {
                count += job.items.len();
                together.push(job);
            }
        }
        if !together.is_empty() {
            return Some(together);
        }
        if state.closed {
            return None;
        }
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn run_together<I, R>(mut jobs: Vec<Job<I, R>>, run: &impl Fn(&[I]) -> Result<Vec<R>, Refusal>) {
    let counts: Vec<usize> = jobs.iter().map(|job| job.items.len()).collect();
    let items: Vec<I> = jobs.iter_mut().flat_map(|job| job.items.drain(..)).collect();
    let found = catch_unwind(AssertUnwindSafe(|| run(&items))).unwrap_or_else(|_| {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        Err(Refusal::new(status, "the thread of the model has panicked"))
    });
    match found {
        Ok(results) => {
            let mut results = results.into_iter();
            for (job, count) in jobs.into_iter().zip(counts) {
                // A request that no longer waits does not want it.
                drop(job.reply.send(Ok(results.by_ref().take(count).collect())));
            }
        }
        Err(_) if jobs.len() > 1 => {
            // What one of them causes is the error of that one alone.
            let mut items = items.into_iter();
            for (mut job, count) in jobs.into_iter().zip(counts) {
                job.items = items.by_ref().take(count).collect();
                run_together(vec![job], run);
            }
        }
        Err(refusal) => jobs.into_iter().for_each(|job| drop(job.reply.send(Err(refusal.clone())))),
    }
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_dropped_has_no_thread() {
        let held = Arc::new(());
        let by_thread = Arc::clone(&held);
        let worker = Worker::start("test", move |items: &[u8]| {
            let _held = &by_thread;
            Ok(items.to_vec())
        });
        assert_eq!(Arc::strong_count(&held), 2);
        drop(worker.unwrap());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
