//! [`Cancel`]: ends running calls from another thread.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that ends running calls: set by any thread or by a signal handler, read by the calls that hold a clone of it.
///
/// [`Session::set_cancel`](crate::Session::set_cancel) gives a session its clone. The session reads the flag between the
/// blocks of a layer, for groups of a few hundred tokens, so a call ends some milliseconds after the flag was set, with
/// [`Error::Cancelled`](crate::Error::Cancelled). What the call reported before stays valid. The session can
/// be used again, with the same bits.
///
/// The flag stays set until [`Cancel::reset`]: a call that begins while it is set ends at once, so a cancellation between
/// two calls is not lost. For a flag of one call, give the session a new one before each.
///
/// ```
/// use simdformer::search::Hooks;
/// use simdformer::{Cancel, Error, Event, Limits, Model, Session, Source};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// let mut session = Session::new(&model, Limits::new(4, 32, 32))?;
/// let cancel = Cancel::new();
/// session.set_cancel(cancel.clone());
/// let options = session.search_options();
/// let mut translate = |cancelling: bool| {
///     let mut finished = 0;
///     let sources = [Source::new(&[6, 11, 0]); 40];
///     let stats = session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
///         if let Event::Done(_) = event {
///             finished += 1;
///             // Usually another thread does this.
///             if cancelling {
///                 cancel.cancel();
///             }
///         }
///     });
///     (stats, finished)
/// };
/// // The four sources that ended in the same step are reported; the others are not run.
/// assert_eq!(translate(true), (Err(Error::CANCELLED), 4));
/// cancel.reset();
/// assert_eq!(translate(false).1, 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag. Calls that hold a clone of it end soon after; this function does not wait for them. It takes no lock
    /// and does not allocate.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether both are the same flag.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Clears the flag, for the next call. A call that has not seen it yet continues.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The flag of something that does not know this crate, such as a table of `simdformer-documents`: whoever sets it, sets both.
impl From<Arc<AtomicBool>> for Cancel {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}
