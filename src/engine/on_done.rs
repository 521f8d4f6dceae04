//! [`OnDone`]: the progress of a product's calls.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The progress of a [`Product`](crate::Product)'s calls: what it calls each time an item is finished, with the number of
/// those that are. By default it calls nothing. Clones share the count, so threads that work on the same list have one each.
///
/// ```
/// use simdformer::OnDone;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let last = Arc::new(AtomicU64::new(0));
/// let seen = Arc::clone(&last);
/// let on_done = OnDone::new(move |finished| seen.store(finished, Ordering::Relaxed));
/// on_done.add_one();
/// on_done.clone().add_one();
/// assert_eq!(last.load(Ordering::Relaxed), 2);
/// ```
#[derive(Clone, Default)]
pub struct OnDone(Option<Arc<Finished>>);

struct Finished {
    count: AtomicUsize,
    call: Box<dyn Fn(u64) + Send + Sync>,
}

impl OnDone {
    /// Calls `call` with 1 for the first item, 2 for the next. Items can be finished on any thread, and calls can overlap.
    pub fn new(call: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let (count, call) = (AtomicUsize::new(0), Box::new(call));
        Self(Some(Arc::new(Finished { count, call })))
    }

    /// One more item is finished.
    pub fn add_one(&self) {
        if let Some(Finished { count, call }) = self.0.as_deref() {
            call(count.fetch_add(1, Ordering::Relaxed) as u64 + 1);
        }
    }
}

impl fmt::Debug for OnDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnDone" } else { "none" })
    }
}
