//! A simple pool of `std` threads, for an engine without rayon. The calling thread also runs tasks, nothing is
//! allocated after [`Pool::new`], and idle threads do not spin.

use simdformer_kernels::Executor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

type Task = &'static (dyn Fn(usize) + Sync);
type Shared = Arc<(Mutex<State>, Condvar)>;

#[derive(Default)]
struct State {
    task: Option<Task>,
    next: usize,
    count: usize,
    running: usize,
    closed: bool,
}

pub(crate) struct Pool(Vec<JoinHandle<()>>, Shared, Mutex<()>);

fn work((state, changed): &(Mutex<State>, Condvar), end: fn(&State) -> bool) {
    let mut now = state.lock().expect("no task runs under it");
    while !end(&now) {
        let Some(task) = now.task.filter(|_| now.next < now.count) else {
            now = changed.wait(now).expect("as above");
            continue;
        };
        let number = now.next;
        (now.next, now.running) = (number + 1, now.running + 1);
        drop(now);
        // If the task panics, the kernel detects that it is not done, and reports it to its caller.
        drop(catch_unwind(AssertUnwindSafe(|| task(number))));
        now = state.lock().expect("as above");
        now.running -= 1;
        changed.notify_all();
    }
}

impl Pool {
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Shared::default();
        let worker = |shared: Shared| move || work(&shared, |state| state.closed);
        let start = |_| std::thread::spawn(worker(Arc::clone(&shared)));
        Self((1..threads).map(start).collect(), shared, Mutex::new(()))
    }
}

impl Executor for Pool {
    fn threads(&self) -> usize {
        self.0.len() + 1
    }
    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let _turn = self.2.lock().expect("nothing here panics");
        // SAFETY: the transmute changes only the lifetime, and no thread uses the task after this function returns.
        let task = unsafe { core::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(task) };
        let state = State { task: Some(task), count: tasks, ..State::default() };
        *self.1.0.lock().expect("no task runs under it") = state;
        self.1.1.notify_all();
        work(&self.1, |state| state.next == state.count && state.running == 0);
        *self.1.0.lock().expect("as above") = State::default();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.1.0.lock().expect("no task runs under it").closed = true;
        self.1.1.notify_all();
        self.0.drain(..).for_each(|worker| worker.join().expect("panics are caught"));
    }
}
