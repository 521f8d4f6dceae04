//! Token ids in, token ids out: a model with sessions that are planned for what calls need.
//!
//! | file | contents |
//! |---|---|
//! | `engine.rs` | [`Engine`], and the calls that generate targets |
//! | `builder.rs` | [`EngineBuilder`]: threads, slots, limits |
//! | `encode.rs` | [`Engine::encode`]: hidden states of the encoder |
//! | `request.rs` | one source or many in, owned results out |
//! | `plan_rule.rs` | the only rule for lengths, slots and memory |
//! | `submit.rs` | [`Engine::submit`] and [`Engine::run`]: requests from any threads in one batch |
//! | `submissions.rs` | the requests that wait, and the handles of their results |
//! | `idle_sessions.rs` | the sessions between calls, and how they grow |
//! | `product.rs` | [`Product`]: what a directory opens to, whose engine is a part; [`ProductBuilder`] opens it |
//! | `on_done.rs` | [`OnDone`]: the progress of a product's calls |

mod builder;
mod encode;
#[expect(clippy::module_inception, reason = "the struct that the module is named after")]
mod engine;
mod idle_sessions;
mod on_done;
mod plan_rule;
mod product;
mod request;
mod submissions;
mod submit;

pub use builder::EngineBuilder;
pub use engine::Engine;
pub use idle_sessions::EngineReport;
pub use on_done::OnDone;
pub use plan_rule::Workload;
pub use product::{Product, ProductBuilder};
pub use request::{Generation, Input, Request};
pub use submissions::RequestHandle;
