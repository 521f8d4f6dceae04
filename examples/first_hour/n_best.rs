//! Loads a checkpoint and translates: the best hypothesis, the best few of a beam search, samples.

use simdformer::search::{BeamOptions, Finish, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{Event, Limits, Model, Session, Source};
use std::error::Error;

/// Ids of the target, best first.
pub(crate) type Hypotheses = Vec<Vec<u32>>;

/// The hypotheses of each source under `options`.
pub(crate) fn translate(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
) -> Result<Vec<Hypotheses>, Box<dyn Error>> {
    let (mut found, mut broken) = (vec![Vec::new(); sources.len()], None);
    session.generate(sources, options, &mut Hooks::default(), &mut |event| {
        // Sources finish in any order, so `done` has the source's index.
        if let Event::Done(done) = event {
            if done.finish == Finish::NotFinite {
                broken = Some(done.source); // its tokens end where the scores became NaN
            }
            found[done.source].extend(done.hypotheses().map(|one| one.tokens.to_vec()));
        }
    })?;
    match broken {
        Some(source) => Err(format!("source {source}: the scores are NaN or infinite").into()),
        None => Ok(found),
    }
}

/// The best translation of each source, three of the first by beam search, and three samples of it.
pub(crate) fn run(directory: &str) -> Result<[Vec<Hypotheses>; 3], Box<dyn Error>> {
    let model = Model::open(directory)?;
    // Four sources at a time, of at most 32 tokens; targets of 40; four hypotheses each.
    let limits = Limits { beams: 4, ..Limits::new(4, 32, 40) };
    let mut session = Session::new(&model, limits)?;
    println!("{model}\n{}", session.plan());
    // The search options of the checkpoint: end tokens, lengths, forbidden tokens.
    let greedy = session.search_options();
    let sources = [&[6, 11, 0][..], &[9, 14, 32, 0], &[8, 0]].map(Source::new);
    let best = translate(&mut session, &sources, &greedy)?;

    let n_best = SearchOptions {
        strategy: Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() }),
        num_return_sequences: 3,
        ..greedy.clone()
    };
    let n_best = translate(&mut session, &sources[..1], &n_best)?;

    // The samples are reproducible; another seed, or another `Source::stream`, gives others.
    let sample = SampleOptions { seed: 7, temperature: 0.9, top_k: Some(40), ..Default::default() };
    let samples =
        SearchOptions { strategy: Strategy::Sample(sample), num_return_sequences: 3, ..greedy };
    let samples = translate(&mut session, &sources[..1], &samples)?;
    Ok([best, n_best, samples])
}
