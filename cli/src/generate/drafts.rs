//! Drafts: from the answers of an earlier run, and by prompt lookup.

use super::Generate;
use crate::streams::Failure;
use serde::Deserialize;
use simdformer::config::Config;
use simdformer::search::{Hooks, SearchOptions};
use simdformer::{DecodeStats, Event, PromptLookup, ReferenceDrafter, Session, Source};
use std::path::Path;

/// Draft tokens per step, over all lines.
const TOKENS: usize = 32;

/// The sources of drafts for each line.
pub(crate) struct Drafts {
    /// The answers of an earlier run, with their prefixes; empty without such a run.
    earlier: Vec<Vec<u32>>,
    ngrams: Option<PromptLookup>,
}

/// The fields that are read of an earlier answer.
#[derive(Deserialize)]
struct Earlier {
    sequences: Vec<Vec<u32>>,
}

impl Drafts {
    /// The drafts that `arguments` request; `None` if there are none.
    pub(crate) fn from_arguments(
        arguments: &Generate,
        requests: usize,
        config: &Config,
    ) -> Result<Option<Self>, Failure> {
        let ngrams = arguments.ngrams.map(|shortest| PromptLookup { shortest });
        let earlier = match &arguments.draft {
            Some(path) => earlier(path, requests, config.target_vocab)?,
            None if ngrams.is_none() => return Ok(None),
            None => Vec::new(),
        };
        Ok(Some(Self { earlier, ngrams }))
    }

    /// The limit of draft tokens for the plan.
    pub(crate) fn tokens(drafts: Option<&Self>) -> usize {
        drafts.map_or(0, |_| TOKENS)
    }

    /// The expected answer to each of `requests`, after its prefix.
    pub(crate) fn expected<'d>(
        drafts: Option<&'d Self>,
        requests: &[Source<'_>],
    ) -> Vec<&'d [u32]> {
        let earlier = drafts.map_or(&[][..], |drafts| &drafts.earlier);
        let pairs = earlier.iter().zip(requests);
        pairs.map(|(ids, request)| ids.strip_prefix(request.prefix).unwrap_or(ids)).collect()
    }

    /// [`Session::generate`], with drafts if there are any.
    pub(crate) fn generate(
        drafts: Option<&Self>,
        expected: &[&[u32]],
        session: &mut Session<'_>,
        (requests, options): (&[Source<'_>], &SearchOptions),
        hooks: &mut Hooks<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<DecodeStats, simdformer::Error> {
        let Some(drafts) = drafts else {
            return session.generate(requests, options, hooks, on_event);
        };
        // N-grams of this length never occur.
        let never = PromptLookup { shortest: usize::MAX };
        let mut drafter = (ReferenceDrafter(expected), drafts.ngrams.unwrap_or(never));
        session.generate_drafted(requests, options, hooks, &mut drafter, on_event)
    }
}

/// Reads the best sequence of each line of `path`.
fn earlier(path: &Path, requests: usize, vocabulary: usize) -> Result<Vec<Vec<u32>>, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let mut answers = Vec::with_capacity(requests);
    for (line, text) in (1..).zip(text.lines()) {
        let answer: Earlier =
            serde_json::from_str(text).map_err(|error| format!("{name}: line {line}: {error}"))?;
        let ids = answer.sequences.into_iter().next().unwrap_or_default();
        if let Some(found) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            let expected = format!("expected ids below {vocabulary}, found {found}");
            return Err(format!("{name}: line {line}: {expected}").into());
        }
        answers.push(ids);
    }
    let found = answers.len();
    if found != requests {
        let expected = format!("expected a line for each of {requests} lines, found {found}");
        return Err(format!("{name}: {expected}").into());
    }
    Ok(answers)
}
