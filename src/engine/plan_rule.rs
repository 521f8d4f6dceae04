//! The rule for lengths, slots and memory: what a call needs, and the limits of the sessions that do it.

use crate::config::{Config, Side};
use crate::error::{Error, ErrorValue};
use crate::model::Model;
use crate::search::{SearchLimits, SearchOptions};
use crate::session::{Limits, Plan};
use simdformer_kernels::Dtype;

/// The tokens of a target if neither the options nor the model set a maximum.
const LONGEST_TARGET: usize = 256;
/// The source tokens that are encoded in one call, if the sources of all slots have more. More would make no call
/// faster, and the memory of the activations grows with it.
const BATCH_TOKENS: usize = 4096;

/// What a call needs of the sessions of an [`Engine`](super::Engine): the number of sources and the lengths of the longest.
/// The engine chooses the limits of its sessions from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    sources: usize,
    source_tokens: usize,
    target_tokens: usize,
    sequences: usize,
    end_tokens: usize,
    draft_tokens: usize,
    /// `None` for what makes the encoder efficient.
    batch_tokens: Option<usize>,
}

impl Workload {
    /// Sources that are only encoded, of at most `source_tokens` tokens.
    #[must_use]
    pub const fn encode(sources: usize, source_tokens: usize) -> Self {
        Self::targets(sources, source_tokens, 1)
    }

    /// Sources with given targets: at most `target_tokens` tokens are fed to the only hypothesis of each.
    #[must_use]
    pub const fn targets(sources: usize, source_tokens: usize, target_tokens: usize) -> Self {
        let batch_tokens = None;
        let (sequences, end_tokens, draft_tokens) = (1, 1, 0);
        Self {
            sources,
            source_tokens,
            target_tokens,
            sequences,
            end_tokens,
            draft_tokens,
            batch_tokens,
        }
    }

    /// The same for `sources` sources, of which the longest has `source_tokens` tokens.
    #[must_use]
    pub const fn with_sources(self, sources: usize, source_tokens: usize) -> Self {
        Self { sources, source_tokens, ..self }
    }

    /// The same for so many sources.
    pub(super) const fn for_sources(self, sources: usize) -> Self {
        Self { sources, ..self }
    }

    /// The same with drafts: a step verifies at most `draft_tokens` tokens.
    #[must_use]
    pub const fn with_drafts(self, draft_tokens: usize) -> Self {
        Self { draft_tokens, ..self }
    }

    /// The same with sources that are encoded at most `batch_tokens` tokens at a time, at least one source. More than
    /// one source of features that fill the rows of a matrix product takes memory and saves no time.
    #[must_use]
    pub const fn with_batch_tokens(self, batch_tokens: usize) -> Self {
        Self { batch_tokens: Some(batch_tokens), ..self }
    }

    /// The same for a search with `options`: its sequences and end tokens.
    #[must_use]
    pub fn with_search(self, options: &SearchOptions) -> Self {
        Self { sequences: options.sequences(), ..self.with_end_tokens(options) }
    }

    /// The same with as many end tokens as `options` have.
    pub(super) fn with_end_tokens(self, options: &SearchOptions) -> Self {
        Self { end_tokens: options.eos.len().max(1), ..self }
    }

    /// Enough for both.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            sources: self.sources.max(other.sources),
            source_tokens: self.source_tokens.max(other.source_tokens),
            target_tokens: self.target_tokens.max(other.target_tokens),
            sequences: self.sequences.max(other.sequences),
            end_tokens: self.end_tokens.max(other.end_tokens),
            draft_tokens: self.draft_tokens.max(other.draft_tokens),
            batch_tokens: self.batch_tokens.max(other.batch_tokens),
        }
    }

    /// The most tokens that are fed to a hypothesis, decoder start and prefix included.
    #[must_use]
    pub const fn target_tokens(&self) -> usize {
        self.target_tokens
    }
}

/// The most tokens that are fed to a target that begins with `prompt` tokens (the decoder start included): as many as the
/// options ask for, or else [`LONGEST_TARGET`], but no more than the positions of the model.
pub(super) fn target_tokens(config: &Config, options: &SearchOptions, prompt: usize) -> usize {
    let prompt = prompt.max(1);
    let wanted = match (options.max_new_tokens, options.max_length) {
        (Some(new), _) => new.saturating_add(prompt),
        (None, Some(length)) => length,
        (None, None) => LONGEST_TARGET,
    };
    // A source whose prompt leaves no position is refused when it is asked for.
    let positions = config.max_positions(Side::Decoder).unwrap_or(usize::MAX);
    wanted.max(prompt + 1).min(positions)
}

/// Whether the options end a target of `target_tokens` tokens themselves, or not at all.
pub(super) fn fits(options: &SearchOptions, target_tokens: usize) -> bool {
    let longest = target_tokens.saturating_add(1);
    let within = options.max_new_tokens.is_none_or(|new| new < longest)
        && options.max_length.is_none_or(|length| length <= longest);
    within && (options.set_a_length() || options.eos.is_empty())
}

/// `options` with a maximum length that the model allows. A target that would end with the plan ends at the same length in
/// every plan, without a forced end token.
pub(super) fn fit_options(options: &SearchOptions, target_tokens: usize) -> SearchOptions {
    let mut fitted = options.clone();
    let longest = target_tokens.saturating_add(1);
    fitted.fit_length(longest);
    if !fitted.set_a_length() && !fitted.eos.is_empty() {
        fitted.max_length = Some(longest);
        fitted.forced_eos.clear();
    }
    fitted
}

/// What a source needs under `options`.
pub(super) fn search_workload(options: &SearchOptions, target_tokens: usize) -> Workload {
    Workload::targets(1, 1, target_tokens).with_search(options)
}

impl Config {
    /// Whether `options` are valid for some source of a model of this architecture: all but the lengths, which
    /// [`Engine::check_options`](crate::Engine::check_options) checks, and what depends on the source.
    ///
    /// # Errors
    /// As [`SearchOptions::validate`].
    pub fn check_search(&self, options: &SearchOptions) -> Result<(), Error> {
        options.validate(&SearchLimits {
            sentences: 1,
            sequences: options.sequences(),
            max_target_length: usize::MAX,
            vocabulary: self.target_vocab,
            end_tokens: options.eos.len().max(1),
            source_tokens: 0,
        })
    }
}

/// The limit of bytes in an error.
pub(super) const BYTES: &str = "bytes";

/// The settings of an engine that the rule reads.
#[derive(Clone, Debug)]
pub(super) struct PlanRule {
    /// The most sources that a session decodes at the same time.
    pub(super) slots: usize,
    /// The most sessions at the same time; `None` for one on each thread.
    pub(super) sessions: Option<usize>,
    /// The dtype of the KV cache.
    pub(super) cache: Option<Dtype>,
    /// The most bytes of all sessions.
    pub(super) bytes: Option<usize>,
}

/// Sessions of equal limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sessions {
    pub(super) count: usize,
    pub(super) limits: Limits,
}

impl Sessions {
    /// Whether these sessions do the work of `wanted`.
    pub(super) fn cover(&self, wanted: &Self) -> bool {
        let (had, want) = (&self.limits, &wanted.limits);
        wanted.count <= self.count
            && want.sentences <= had.sentences
            && want.source_tokens <= had.source_tokens
            && want.beams <= had.beams
            && want.end_tokens <= had.end_tokens
            && want.draft_tokens <= had.draft_tokens
            && want.batch_tokens <= had.batch_tokens
            && want.cache == had.cache
            && want.target_tokens <= had.target_tokens
    }

    /// Bytes of the planned memory.
    pub(super) fn bytes(&self, model: &Model) -> Result<usize, Error> {
        let one = Plan::new(model, self.limits)?.bytes();
        one.checked_mul(self.count).ok_or(Error::PLAN_TOO_LARGE)
    }
}

impl PlanRule {
    /// The sessions for `work` on `threads` threads. Several sessions on one thread each take less time for a list than one
    /// session on all threads, because their threads meet only at the end of the list (on two cores, two have 1.99 times the
    /// throughput of one on one core: `benches/results/intel-amx.tsv`). So there are as many sessions as threads, but no
    /// more than sources.
    pub(super) fn sessions(&self, model: &Model, work: &Workload, threads: usize) -> Sessions {
        let sources = work.sources.max(1);
        let count = self.sessions.unwrap_or(threads).min(threads).clamp(1, sources);
        let slots = sources.div_ceil(count).clamp(1, self.slots.max(1));
        let target_tokens = match model.config().decoder {
            Some(_) => work.target_tokens.max(1),
            None => 0,
        };
        Sessions { count, limits: self.limits(work, slots, work.source_tokens, target_tokens) }
    }

    /// The sessions that replace `had`: for `wanted`, and as many and as long as before.
    pub(super) fn grown(&self, had: &Sessions, wanted: &Sessions) -> Sessions {
        let (old, new) = (&had.limits, &wanted.limits);
        let work = Workload {
            sequences: old.beams.max(new.beams),
            end_tokens: old.end_tokens.max(new.end_tokens),
            draft_tokens: old.draft_tokens.max(new.draft_tokens),
            ..Workload::targets(1, 1, 1)
        };
        let slots = old.sentences.max(new.sentences);
        let source_tokens = old.source_tokens.max(new.source_tokens);
        let target_tokens = old.target_tokens.max(new.target_tokens);
        let mut limits = self.limits(&work, slots, source_tokens, target_tokens);
        limits.batch_tokens = limits.batch_tokens.max(old.batch_tokens).max(new.batch_tokens);
        Sessions { count: had.count.max(wanted.count), limits }
    }

    /// The sessions of `wanted`, with fewer slots or fewer of them if they have more than `bytes` bytes.
    ///
    /// # Errors
    /// As [`Plan::new`]; one slot has [more bytes](Error::BeyondLimit).
    pub(super) fn within(
        &self,
        bytes: usize,
        mut wanted: Sessions,
        model: &Model,
    ) -> Result<Sessions, Error> {
        loop {
            let found = wanted.bytes(model)?;
            if found <= bytes {
                return Ok(wanted);
            }
            let Limits { sentences, source_tokens, .. } = wanted.limits;
            if sentences > 1 {
                let slots = sentences.div_ceil(2);
                wanted.limits.sentences = slots;
                let fewer = batch_tokens(slots, source_tokens);
                wanted.limits.batch_tokens = fewer.min(wanted.limits.batch_tokens);
            } else if wanted.count > 1 {
                wanted.count = wanted.count.div_ceil(2);
            } else {
                let text = &"at most {}, which the engine may plan, for one source at a time";
                let most = ErrorValue::new(text, [bytes, 0]);
                return Err(Error::beyond_limit(BYTES, most, found));
            }
        }
    }

    /// The source is not rounded up: the caches of a longer plan are further apart, which cost 3 % of the throughput of the
    /// demo model at 32 tokens. New maxima become rare soon.
    fn limits(
        &self,
        work: &Workload,
        slots: usize,
        source_tokens: usize,
        target_tokens: usize,
    ) -> Limits {
        let source_tokens = source_tokens.max(1);
        Limits {
            beams: work.sequences,
            end_tokens: work.end_tokens,
            draft_tokens: work.draft_tokens,
            cache: self.cache,
            batch_tokens: work
                .batch_tokens
                .map_or_else(|| batch_tokens(slots, source_tokens), |most| most.max(source_tokens)),
            ..Limits::new(slots, source_tokens, target_tokens)
        }
    }
}

fn batch_tokens(slots: usize, source_tokens: usize) -> usize {
    slots.saturating_mul(source_tokens).min(BATCH_TOKENS.max(source_tokens))
}
