//! [`Engine::encode`]: the hidden states of the encoder, many sources at a time.

use super::engine::Engine;
use super::plan_rule::Workload;
use super::request::Input;
use super::submissions::lock;
use crate::error::Error;
use crate::generate::Source;
use crate::input_features::Features;
use crate::model::IntoControlFlow;
use crate::session::{Limits, Plan, Session};
use core::cmp::Reverse;
use std::sync::Mutex;

/// Called with the index of a source and its hidden states, `[positions, d_model]`, from all threads.
type OnHidden<'h, A> = &'h (dyn Fn(usize, &[f32]) -> A + Sync);

impl Engine {
    /// The hidden states of the encoder of one source or of many, `[positions, d_model]` each: one row for each token, or
    /// for two frames of features. [`Input`] lists what can be asked for; what concerns the target has no effect.
    ///
    /// # Errors
    /// For one source, all that can be wrong with it. For many, only what concerns all of them; what concerns one is an
    /// error in its place.
    ///
    /// ```
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let engine = simdformer::Engine::open("models/fr-en")?;
    /// let hidden = engine.encode(&[6, 11, 0])?;
    /// assert_eq!(hidden.len(), 3 * engine.model().config().d_model);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode<I: Input + ?Sized>(&self, input: &I) -> Result<I::Output<Vec<f32>>, Error> {
        let sources = input.sources();
        let plan = self.plan_for(&Workload::encode(1, self.longest(&sources)))?;
        let mut results: Vec<Result<Vec<f32>, Error>> = Vec::with_capacity(sources.len());
        let (mut indices, mut accepted) = (Vec::new(), Vec::new());
        for (index, source) in sources.iter().enumerate() {
            let checked =
                check(&plan, source).map_err(|error| self.of_model(error).with_index(index));
            if checked.is_ok() {
                indices.push(index);
                accepted.push(*source);
            }
            results.push(checked.map(|()| Vec::new()));
        }
        let found = Mutex::new(&mut results);
        self.stream_hidden(&accepted, &[], &|number: usize, hidden: &[f32]| {
            lock(&found)[indices[number]] = Ok(hidden.to_vec());
        })?;
        I::output(results)
    }

    /// Encodes `sources` and calls `on_hidden` with the hidden states of each, `[positions, d_model]`, from all threads
    /// and in any order; `Break` ends the call. `types` are the types of the tokens of each source, for models that were
    /// trained with types (BERT); with none, all are 0.
    ///
    /// # Errors
    /// As [`Session::encoder_output_of_types`] and [`with_session`](Self::with_session); the index of a
    /// [source](Error::index) in an error is that in `sources`. After an error of one session the others end.
    pub fn stream_hidden<A: IntoControlFlow<()>>(
        &self,
        sources: &[Source<'_>],
        types: &[&[u32]],
        on_hidden: OnHidden<'_, A>,
    ) -> Result<(), Error> {
        // The longest first, so that all sessions end at about the same time.
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|&index| Reverse(sources[index].positions()));
        let Some(&longest) = order.first() else { return Ok(()) };
        let work = Workload::encode(sources.len(), sources[longest].positions());
        let mut pool = self.take(&work)?;
        let sessions = pool.sessions();
        let list = Mutex::new(List { left: &order, sessions, ended: Ok(()) });
        // A plan of earlier calls may have more slots.
        let slots = self.slots_of_session();
        let planned = pool.plan().limits();
        let limits = Limits { sentences: planned.sentences.min(slots), ..planned };
        pool.for_each_session(sources.len(), &|session| {
            loop {
                let Some(batch) = lock(&list).take(&limits, sources) else { return };
                match run_batch(session, batch, (sources, types), on_hidden) {
                    Ok(true) => (),
                    Ok(false) => return lock(&list).left = &[],
                    Err(error) => {
                        let mut list = lock(&list);
                        list.left = &[];
                        list.ended = core::mem::replace(&mut list.ended, Ok(())).and(Err(error));
                        return;
                    }
                }
            }
        });
        list.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).ended
    }
}

/// The sources of a call, which its sessions share.
struct List<'l> {
    /// The indices of those that no session has taken, the longest first.
    left: &'l [usize],
    sessions: usize,
    ended: Result<(), Error>,
}

impl<'l> List<'l> {
    /// Takes the next sources: as many as a session runs at a time, but at most a session's share of what is left.
    fn take(&mut self, limits: &Limits, sources: &[Source<'_>]) -> Option<&'l [usize]> {
        if self.left.is_empty() {
            return None;
        }
        let most = limits.sentences.min(self.left.len().div_ceil(self.sessions));
        let mut tokens = 0;
        let fits = self.left.iter().take(most).take_while(|&&index| {
            tokens += sources[index].positions();
            tokens <= limits.batch_tokens
        });
        let (batch, left) = self.left.split_at(fits.count().max(1));
        self.left = left;
        Some(batch)
    }
}

/// Runs the sources of `batch`, and returns whether to go on.
fn run_batch<A: IntoControlFlow<()>>(
    session: &mut Session<'_>,
    batch: &[usize],
    (sources, types): (&[Source<'_>], &[&[u32]]),
    on_hidden: OnHidden<'_, A>,
) -> Result<bool, Error> {
    let d_model = session.model().config().d_model;
    let features: Vec<Features<'_>> = batch.iter().filter_map(|&i| sources[i].features).collect();
    let tokens: Vec<&[u32]> = batch.iter().map(|&i| sources[i].tokens).collect();
    let types: Vec<&[u32]> = batch.iter().filter_map(|&i| types.get(i).copied()).collect();
    let hidden = if !features.is_empty() {
        session.encoder_output_of_features(&features)
    } else if types.is_empty() {
        session.encoder_output(&tokens)
    } else {
        session.encoder_output_of_types(&tokens, &types)
    };
    let mut rest = hidden.map_err(|error| match error.index() {
        Some(index) => error.with_index(batch[index]),
        None => error,
    })?;
    for &index in batch {
        let (own, after) = rest.split_at(sources[index].positions() * d_model);
        if on_hidden(index, own).answer().is_break() {
            return Ok(false);
        }
        rest = after;
    }
    Ok(true)
}

/// Whether the encoder can read a source.
fn check(plan: &Plan, source: &Source<'_>) -> Result<(), Error> {
    match &source.features {
        Some(features) => plan.check_features(0, features),
        None => plan.check_tokens(0, source.tokens),
    }
}
