//! Continuous batching: a search with a session, which admits sentences while others are decoded.

use simdformer::search::{Hooks, Request, Search, words};
use simdformer::{HypothesisId, Limits, Model, Session, SourceId, StepRow};
use std::error::Error;

/// The best target of each of `sources`. One source arrives per step; two are translated at a time.
pub(crate) fn run(directory: &str, sources: &[&[u32]]) -> Result<Vec<Vec<u32>>, Box<dyn Error>> {
    let model = Model::open(directory)?;
    let limits = Limits { beams: 1, ..Limits::new(2, 32, 40) };
    let mut session = Session::new(&model, limits)?;
    let options = session.search_options();
    let search_limits = session.plan().search_limits();
    let mut memory = vec![0; words(&search_limits)?];
    let mut search = Search::new(&options, &search_limits, &mut memory)?;

    let mut found = vec![Vec::new(); sources.len()];
    // For each slot of the search: the source's index, its sentence and its hypothesis. With beams, hypotheses fork:
    // see the example at `Session`.
    let mut active: Vec<Option<(usize, SourceId, HypothesisId)>> = vec![None; limits.sentences];
    let mut waiting = sources.iter().enumerate();
    let mut feed = Vec::new();
    loop {
        // 1. Admit a new source; it begins at the next step.
        if session.free_sentences() > 0
            && let Some((number, source)) = waiting.next()
        {
            let mut sentence = [SourceId::default()];
            session.encode(&[source], &mut sentence)?;
            let slot = search.admit(&Request::default())? as usize;
            active[slot] = Some((number, sentence[0], session.start(sentence[0])?));
        }
        // 2. One step of the decoder and one of the search.
        feed.clear();
        feed.extend(search.rows().iter().filter_map(|input| {
            let (.., row) = active[input.sentence as usize]?;
            Some(StepRow::new(row, input.token))
        }));
        if feed.is_empty() {
            return Ok(found);
        }
        search.advance(session.step(&feed)?, &mut Hooks::default(), None)?;
        // 3. Release the slots of finished sentences.
        for (slot, entry) in (0..).zip(&mut active) {
            if let Some((number, sentence, _)) = entry.take_if(|_| search.finish(slot).is_some()) {
                found[number].extend(search.hypotheses(slot).flat_map(|best| best.tokens));
                search.release(slot)?;
                session.release_sentence(sentence)?;
            }
        }
    }
}
