//! A plain pool of threads of std, as an engine without rayon has one.

use simdformer_kernels::Executor;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

type Task = &'static (dyn Fn(usize) + Sync);

#[derive(Default)]
struct State {
    task: Option<Task>,
    next: usize,
    tasks: usize,
    running: usize,
    panic: Option<Box<dyn Any + Send>>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// Runs tasks while there are some, until `end`.
    fn work(&self, end: impl Fn(&State) -> bool) {
        let mut state = self.state.lock().expect("no task runs under the lock");
        while !end(&state) {
            let Some(task) = state.task.filter(|_| state.next < state.tasks) else {
                state = self.changed.wait(state).expect("as above");
                continue;
            };
            let index = state.next;
            state.next += 1;
            state.running += 1;
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| task(index)));
            state = self.state.lock().expect("as above");
            state.running -= 1;
            state.panic = state.panic.take().or(result.err());
            self.changed.notify_all();
        }
    }
}

/// A pool of `threads` threads, one of which is the calling thread. Calls wait for each other.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

impl Pool {
    pub fn new(threads: usize) -> Self {
        let shared = Arc::<Shared>::default();
        let worker = |_| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.work(|state| state.closed))
        };
        Self { workers: (1..threads).map(worker).collect(), shared, turn: Mutex::new(()) }
    }
}

impl Executor for Pool {
    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let turn = self.turn.lock();
        // SAFETY: only the lifetime changes, and no thread uses the task after this function
        // returns.
        let task = unsafe { core::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(task) };
        {
            let mut state = self.shared.state.lock().expect("no task runs under the lock");
            (state.task, state.next, state.tasks) = (Some(task), 0, tasks);
            self.shared.changed.notify_all();
        }
        self.shared.work(|state| state.next == tasks && state.running == 0);
        let mut state = self.shared.state.lock().expect("as above");
        state.task = None;
        let panic = state.panic.take();
        drop((state, turn));
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().expect("no task runs under the lock").closed = true;
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            worker.join().expect("a worker catches panics");
        }
    }
}
