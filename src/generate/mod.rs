//! Whole sentences: the decoding loop over a session and a search, its events, and speculative decoding.
//!
//! | file | contents |
//! |---|---|
//! | `decode_loop.rs` | [`Session::generate`](crate::Session::generate): admits sources, steps, reports |
//! | `request.rs` | the sources of a request and their checks, the events of a call, and language detection |
//! | `request_queue.rs` | [`Session::serve`](crate::Session::serve): the loop over requests that arrive at any time |
//! | `session_pool.rs`, `source_queue.rs` | several sessions over one list of sources |
//! | `defaults.rs` | the search options of a checkpoint |
//! | `speculative/` | drafts of the next tokens, verified in one pass |

// The order of these modules is the order of the methods in the documentation.
mod defaults;

mod request;

mod decode_loop;

mod request_queue;

mod session_pool;

mod speculative;

mod source_queue;

pub use request::{DecodeStats, Event, Generated, Source, Stop};
pub use request_queue::RequestQueue;
pub use session_pool::SessionPool;
pub use speculative::{
    DraftContext, DraftRequest, Drafter, ModelDrafter, PromptLookup, ReferenceDrafter,
};
