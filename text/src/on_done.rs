//! The progress of a call: what is called each time an item is finished.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the products call when an item is finished, with the number of those that are; nothing by default. Clones share the
/// count.
#[derive(Clone, Default)]
pub(crate) struct OnDone(Option<Arc<Finished>>);

struct Finished {
    count: AtomicUsize,
    call: Box<dyn Fn(u64) + Send + Sync>,
}

impl OnDone {
    pub(crate) fn new(call: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let (count, call) = (AtomicUsize::new(0), Box::new(call));
        Self(Some(Arc::new(Finished { count, call })))
    }

    /// One more is finished.
    pub(crate) fn add_one(&self) {
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
