//! A service with threads that share the weights. Each thread owns its session and takes jobs from one queue. The
//! threads borrow nothing, so they may run until the program ends.

use super::translate::{Hypotheses, translate};
use simdformer::{Limits, Model, Session, Source};
use std::error::Error;
use std::sync::{Arc, Mutex, mpsc};

/// A source, and the channel for its answer.
struct Job {
    tokens: Vec<u32>,
    answer: mpsc::Sender<Result<Hypotheses, String>>,
}

/// A struct that owns the model and the session's memory.
struct Worker {
    model: Arc<Model>,
    session: Session<'static>,
}

impl Worker {
    fn serve(&mut self, tokens: &[u32]) -> Result<Hypotheses, String> {
        let options = self.session.search_options();
        let source = Source::new(tokens);
        let mut found = translate(&mut self.session, &[source], &options)
            .map_err(|error| format!("{error} ({} layers)", self.model.config().encoder.layers))?;
        Ok(found.swap_remove(0))
    }
}

/// Answers `sources` on four threads, in order. An invalid source gets its error and does not affect the others.
pub(crate) fn run(
    directory: &str,
    sources: &[&[u32]],
) -> Result<Vec<Result<Hypotheses, String>>, Box<dyn Error>> {
    let model = Arc::new(Model::open(directory)?);
    let (jobs, queue) = mpsc::channel::<Job>();
    let queue = Arc::new(Mutex::new(queue));
    let mut threads = Vec::new();
    for _ in 0..4 {
        let session = Session::new(&model, Limits::new(1, 32, 40))?;
        let mut worker = Worker { model: Arc::clone(&model), session };
        let queue = Arc::clone(&queue);
        threads.push(std::thread::spawn(move || {
            // The lock is held while waiting, not while working.
            let next = || queue.lock().ok()?.recv().ok();
            while let Some(Job { tokens, answer }) = next() {
                answer.send(worker.serve(&tokens)).ok();
            }
        }));
    }
    let ask = |tokens: &&[u32]| {
        let (answer, response) = mpsc::channel();
        jobs.send(Job { tokens: tokens.to_vec(), answer }).map(|()| response)
    };
    let responses = sources.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
    drop(jobs); // closes the queue, so the threads end
    let answers = responses.iter().map(mpsc::Receiver::recv).collect::<Result<_, _>>()?;
    threads.into_iter().try_for_each(std::thread::JoinHandle::join).map_err(|_| "a panic")?;
    Ok(answers)
}
