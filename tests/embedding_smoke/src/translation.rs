//! A whole translation with the tensors, threads and memory of the engine.

use crate::counting::allocations;
use crate::numbers::{Engine, Numbers, VOCABULARY, checkpoint, config, tensors};
use simdformer::search::{BeamOptions, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{Event, Limits, Model, Plan, Session, Source, Threads};
use simdformer_kernels::Isa;

const SOURCES: usize = 7;
const TARGET: usize = 10;

/// The tokens and the bits of the score of every hypothesis, in memory that exists beforehand.
#[derive(Debug, PartialEq)]
struct Answers {
    tokens: [[[u32; TARGET]; 3]; SOURCES],
    scores: [[u32; 3]; SOURCES],
    done: usize,
}

const NONE: Answers =
    Answers { tokens: [[[0; TARGET]; 3]; SOURCES], scores: [[0; 3]; SOURCES], done: 0 };

fn translate(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
) -> Answers {
    let mut answers = NONE;
    session
        .generate(sources, options, &mut Hooks::default(), &mut |event| {
            let Event::Done(done) = event else { return };
            answers.done += 1;
            for (i, found) in done.hypotheses().enumerate() {
                answers.tokens[done.source][i][..found.tokens.len()].copy_from_slice(found.tokens);
                answers.scores[done.source][i] = found.score.to_bits();
            }
        })
        .expect("translated");
    answers
}

pub(crate) fn a_first_translation_allocates_nothing() {
    let config = config();
    let tensors = tensors(&config);
    let mut random = Numbers(5);
    let sources: Vec<Vec<u32>> = (0..SOURCES)
        .map(|i| (0..3 + i * 5 % 9).map(|_| random.below(VOCABULARY) as u32).collect())
        .collect();
    let sources: Vec<Source<'_>> = sources.iter().map(|tokens| Source::new(tokens)).collect();
    let greedy = SearchOptions { max_new_tokens: Some(TARGET), ..config.search_options() };
    let searches = [
        greedy.clone(),
        SearchOptions { scores: false, ..greedy.clone() },
        SearchOptions {
            strategy: Strategy::Beam(BeamOptions::default()),
            num_return_sequences: 3,
            ..greedy.clone()
        },
        SearchOptions {
            strategy: Strategy::Sample(SampleOptions { top_k: Some(50), ..Default::default() }),
            num_return_sequences: 3,
            ..greedy
        },
    ];
    let limits = Limits { beams: 4, ..Limits::new(3, 12, TARGET + 1) };
    for isa in Isa::available() {
        let checkpoint = checkpoint(&config, &tensors).expect("whole");
        let model = Model::load(&checkpoint, isa).expect("a model");
        for options in &searches {
            let mut alone = Session::new(&model, limits).expect("a session");
            let expected = translate(&mut alone, &sources, options);
            assert_eq!(expected.done, SOURCES);
            assert!(expected.tokens.iter().all(|found| found[0] != [0; TARGET]), "{expected:?}");
            for threads in [1, 2, 3] {
                let pool = Engine::new(threads);
                let mut memory = vec![f32::NAN; Plan::new(&model, limits).expect("small").floats()];
                let mut session =
                    Session::with_buffer(&model, limits, &mut memory).expect("a session");
                session.set_threads(Threads::Executor(&pool));
                // The first call, and one more.
                for _ in 0..2 {
                    let (calls, found) = allocations(|| translate(&mut session, &sources, options));
                    assert_eq!(calls, 0, "{isa}: {threads} threads, {options:?}");
                    assert!(found == expected, "{isa}: {threads} threads, {options:?}");
                    assert!(pool.was_asked(), "{isa}: {threads} threads, {options:?}");
                }
            }
        }
    }
}
