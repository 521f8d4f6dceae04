//! Decoding strategies: greedy, beam, diverse beam, sampling, and the rules that shape them.
//!
//! A [`Search`] is a state machine over logits and tokens. It knows no model and runs no loop: it says
//! which tokens to feed, is handed logits, and says which tokens to feed next. All of its memory is
//! one slice of the caller's, of [`words`]`(limits)` words; after [`Search::new`] nothing allocates.
//!
//! # The loop
//!
//! ```
//! use simdformer::search::{Hooks, Request, Search, SearchError, SearchLimits, SearchOptions, words};
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
//!         model(row.token, logits); // a real one also uses row.parent: whose cache to continue
//!     }
//!     search.advance(logits, &mut Hooks::default(), None)?;
//! }
//! let best = |ticket| search.hypotheses(ticket).next().map(|hypothesis| hypothesis.tokens);
//! assert_eq!(best(first), Some(&[1, 2, 3, 4][..]));
//! assert_eq!(best(second), Some(&[3, 4][..]));
//! # Ok::<(), SearchError>(())
//! ```
//!
//! - A [`RowInput`] is a token to feed and its `parent`: the row of the step before whose history it
//!   continues. Beams that cross show up as parents that are not in order; nothing else moves.
//! - A sentence starts with one row, also in beam search and when several samples are wanted: its
//!   sequences share the row until their first tokens differ. Finished sentences have no rows.
//! - A prefix is fed one token a step, or all at once by the driver: [`Search::skip_prompt`].
//! - Greedy search without [`SearchOptions::scores`] can be advanced with the best token of each row
//!   alone, and the logits need not exist: [`Search::needs_argmax_only`], [`Search::advance_argmax`].
//! - Greedy search and sampling take guesses at what comes next, [`Search::draft`], and several tokens of a
//!   sentence in one step as far as these are right.
//! - Slots are admitted and released at any time, between any two steps.
//! - The outcome for a sentence is a function of its logits, its [`Request`] and the options: it does
//!   not depend on its slot or on other sentences.
//!
//! # Semantics
//!
//! Those of transformers 5.23 `generate`, of which [`beam`](BeamOptions) search is described in detail
//! in the source. In short: greedy search and sampling apply the processors to raw logits, beam
//! search to log-probabilities; the order of processors is that of the module list below; where the
//! reference leaves a tie open, the lower token id and the earlier beam win. Differences: continuations
//! of score `-inf` are never taken (the reference may return copies of other hypotheses with scores
//! near -1e9), an end is forced at a longest length that the options set and not where the limits alone
//! cut, groups of beams (which version 5 removed) subtract the diversity penalty after all
//! processors, and a sentence that has no allowed token left ends with [`Finish::Exhausted`].
//!
//! # Order of processors
//!
//! [`SequenceBias`], [`SourcePenalty`], [`RepetitionPenalty`], [`NoRepeatNgram`], [`NoSourceNgram`], [`BadWords`], [`MinLength`],
//! [`MinNewTokens`], [`AllowedPrefix`], [`ForcedBos`], [`ForcedEos`], [`RemoveInvalid`],
//! [`ExponentialDecay`], [`Suppress`], [`BeginSuppress`], the caller's ([`Hooks::processors`]), then for
//! sampling [`Temperature`], [`TopH`], [`TopK`], [`TopP`], [`MinP`], [`Typical`], [`Epsilon`], [`Eta`], and last
//! [`Renormalize`].
//!
//! # The same tokens everywhere
//!
//! Given equal logits the tokens are equal on every machine: exponentials and logarithms are computed
//! here, in a fixed order, without fused operations. Sampling draws token `step` of sample `sequence`
//! with the Philox4x32-10 number of the key `seed` and the counter `(stream, sequence, step)`, by
//! inversion of the cumulative distribution in the order of ids. Beam sampling draws continuation
//! `sequence` of a step so, in the order of beams and, within a beam, of ids.

mod argmax;
mod beam;
mod beam_sampling;
mod debug;
mod draft;
mod error;
mod filters;
mod greedy_sampling;
mod logits;
mod options;
mod parallel;
mod pipeline;
mod processors;
mod random;
mod scoring;
#[expect(clippy::module_inception, reason = "the state machine that the module is named after")]
mod search;
mod state;
mod timestamps;

pub use argmax::{TokenMask, UNDECIDED};
pub use error::SearchError;
pub use filters::{Epsilon, Eta, MinP, Temperature, TopH, TopK, TopP, Typical};
pub use options::{
    BeamOptions, EarlyStopping, SampleOptions, SearchLimits, SearchOptions, Strategy,
};
pub use pipeline::{Hooks, OnToken, Token};
pub use processors::{
    AllowedPrefix, AllowedTokens, BadWords, BeginSuppress, Context, ExponentialDecay, ForcedBos,
    ForcedEos, LogitsProcessor, MinLength, MinNewTokens, NoRepeatNgram, NoSourceNgram,
    RemoveInvalid, Renormalize, RepetitionPenalty, SequenceBias, SourcePenalty, Suppress,
    scratch_words,
};
pub use scoring::score_targets;
pub use search::{Finish, Hypothesis, Progress, Request, RowInput, Rows, Search, words};
pub use timestamps::Timestamps;
