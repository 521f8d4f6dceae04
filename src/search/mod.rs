//! Decoding strategies: greedy search, beam search, diverse beam search, sampling, and logits processors.
//!
//! A [`Search`] is a state machine over logits and tokens. It contains no model and no loop. It returns the
//! tokens to feed, takes the logits, and returns the next tokens to feed. Its memory is one slice from the
//! caller, of [`words`]`(limits)` words; after [`Search::new`] it does not allocate. Each sentence can have
//! [options of its own](Search::admit_with).
//!
//! # The loop
//!
//! ```
//! use simdformer::search::{Hooks, Request, Search, SearchLimits, SearchOptions, words};
//!
//! // A model of 5 tokens that counts to 4, the end token.
//! fn model(token: u32, logits: &mut [f32]) {
//!     logits.fill(0.0);
//!     logits[(token as usize + 1).min(4)] = 9.0;
//! }
//!
//! let options = SearchOptions { eos: vec![4], ..SearchOptions::default() };
//! let limits = SearchLimits {
//!     sentences: 2,
//!     sequences: 1,
//!     max_target_length: 16,
//!     vocabulary: 5,
//!     end_tokens: 1,
//!     source_tokens: 0,
//! };
//! let mut memory = vec![0; words(&limits)?];
//! let mut logits = vec![0.0; limits.sentences * limits.sequences * limits.vocabulary];
//!
//! let mut search = Search::new(&options, &limits, &mut memory)?;
//! let first = search.admit(&Request::default())?;
//! let second = search.admit(&Request { prefix: &[2], ..Request::default() })?;
//! while !search.rows().is_empty() {
//!     let rows = search.rows();
//!     let logits = &mut logits[..rows.len() * limits.vocabulary];
//!     for (row, logits) in rows.iter().zip(logits.chunks_exact_mut(limits.vocabulary)) {
//!         model(row.token, logits); // a real model also uses row.parent: the KV cache to continue
//!     }
//!     search.advance(logits, &mut Hooks::default(), None)?;
//! }
//! let best = |ticket| search.hypotheses(ticket).next().map(|hypothesis| hypothesis.tokens);
//! assert_eq!(best(first), Some(&[1, 2, 3, 4][..]));
//! assert_eq!(best(second), Some(&[3, 4][..]));
//! # Ok::<(), simdformer::Error>(())
//! ```
//!
//! - A [`RowInput`] is a token to feed and its `parent`: the row of the previous step that it continues. If
//!   beams change places, the parents are not in order; no other data moves.
//! - A sentence starts with one row, also in beam search and for several samples: its sequences share the row
//!   until their first tokens differ. Finished sentences have no rows.
//! - A prefix is fed one token per step. A caller that feeds it in one pass calls [`Search::skip_prompt`].
//! - Greedy search without [`SearchOptions::scores`] can advance with only the best token of each row, without
//!   logits: [`Search::needs_argmax_only`], [`Search::advance_argmax`].
//! - Greedy search and sampling accept drafts ([`Search::draft`]), and advance a sentence by several tokens in
//!   one step if the draft is correct.
//! - Sentences are admitted and released between any two steps.
//! - The result of a sentence is a function of its logits, its [`Request`] and the options. It does not depend
//!   on its slot or on other sentences.
//!
//! # Semantics
//!
//! The semantics are those of transformers 5.23 `generate`; the source of the module `beam` describes [beam
//! search](BeamOptions) in detail. Greedy search and sampling apply the processors to raw logits, beam search
//! applies them to log-probabilities. [`Hooks`] lists their order. Where the reference
//! does not define the order of equal scores, the lower token id and the earlier beam come first. Differences
//! from the reference:
//!
//! - Continuations of score `-inf` are never used. The reference may return copies of other hypotheses with
//!   scores near -1e9.
//! - An end is forced at a maximum length that the options set, but not if only the limits end the target.
//! - Groups of beams (which version 5 removed) subtract the diversity penalty after all processors.
//! - A sentence that has no allowed token ends with [`Finish::Exhausted`].
//!
//! # Reproducibility
//!
//! Equal logits give equal tokens on every machine: this module computes exponentials and logarithms itself, in
//! a fixed order, without fused operations. Sampling chooses token `step` of sample `sequence` by inversion of
//! the cumulative distribution in the order of ids. The uniform number is the Philox4x32-10 output for the key
//! `seed` and the counter `(stream, sequence, step)`. Beam sampling uses the same numbers for continuation
//! `sequence` of a step, in the order of beams and, within a beam, of ids.

mod argmax;
mod beam;
mod beam_sampling;
mod draft_acceptance;
mod filters;
mod greedy_sampling;
mod hooks;
mod limits;
mod logits_processors;
mod options;
mod parallel_rows;
mod processor_order;
mod random;
mod request;
mod rows;
mod score_rows;
#[expect(clippy::module_inception, reason = "the state machine that the module is named after")]
mod search;
mod setting_field;
mod state;
mod teacher_forcing;
mod timestamps;

pub use argmax::UNDECIDED;
pub(crate) use hooks::OnToken;
pub use hooks::{Context, Hooks, LogitsProcessor, Observation, Outcome, Token};
pub use limits::SearchLimits;
pub use options::{
    BeamOptions, EarlyStopping, SampleOptions, SearchOptions, Setting, Settings, Strategy,
};
pub use request::Request;
pub use rows::{RowInput, Rows};
pub use search::{Finish, Hypothesis, Search, words};
pub(crate) use setting_field::decimal;
pub(crate) use state::{SlotMemory, SlotOptions};
pub use teacher_forcing::score_targets;
pub use timestamps::Timestamps;
