//! Counts the sentences that a model translates exactly.

use simdformer::search::{Finish, Hooks, SearchOptions, Strategy};
use simdformer::{Event, Limits, Model, Session, Source, Threads};
use simdformer_train::Corpus;
use std::error::Error;

/// Sentences per batch.
const SLOTS: usize = 100;
/// Additional tokens beyond the target length, so that an output without an end is detected.
const MORE: usize = 8;

/// The results of the sentences.
pub(crate) struct Judged {
    pub(crate) exact: usize,
    /// The first few: source, target and the model's output.
    pub(crate) samples: Vec<[Vec<u32>; 3]>,
    /// The first few that were not exact, in the same form.
    pub(crate) wrong: Vec<[Vec<u32>; 3]>,
}

/// Decodes every source of `corpus` greedily; `None` if the config has no decoder start token.
pub(crate) fn judge(
    model: &Model,
    corpus: &Corpus,
    threads: &Threads<'_>,
    samples: usize,
) -> Result<Option<Judged>, Box<dyn Error + Send + Sync>> {
    let config = model.config();
    if config.tokens.decoder_start.is_none() || config.decoder.is_none() {
        return Ok(None);
    }
    let positions = config.decoder.and_then(|stack| stack.max_positions).unwrap_or(usize::MAX);
    let [source, target] = corpus.longest();
    let target = (target + MORE).min(positions);
    let mut session = Session::new(model, Limits::new(SLOTS.min(corpus.len()), source, target))?;
    session.set_threads(threads.clone());
    let options = SearchOptions {
        strategy: Strategy::Greedy,
        max_length: Some(target),
        max_new_tokens: None,
        scores: false,
        ..session.search_options()
    };
    let sources: Vec<Source<'_>> = corpus.pairs().map(|pair| Source::new(pair.source)).collect();
    let mut said = vec![Vec::new(); sources.len()];
    session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
        // What was written before the scores became NaN is no output.
        if let Event::Done(done) = event
            && done.finish != Finish::NotFinite
            && let Some(best) = done.hypotheses().next()
        {
            said[done.source].extend_from_slice(best.tokens);
        }
    })?;
    let end = |ids: &[u32]| -> Vec<u32> {
        ids.iter().copied().take_while(|id| !config.tokens.eos.contains(id)).collect()
    };
    let mut judged = Judged { exact: 0, samples: Vec::new(), wrong: Vec::new() };
    for (pair, said) in corpus.pairs().zip(&said) {
        let three = || [end(pair.source), end(pair.target), end(said)];
        if judged.samples.len() < samples {
            judged.samples.push(three());
        }
        if end(said) == end(pair.target) {
            judged.exact += 1;
        } else if judged.wrong.len() < samples {
            judged.wrong.push(three());
        }
    }
    Ok(Some(judged))
}
