//! The first call in a new pool allocates nothing after all threads of the pool have started. The start of
//! a thread allocates in rayon and in the system. There is no test harness, whose threads would be counted.

use simdformer_testing::counting;

#[global_allocator]
static ALLOCATOR: simdformer_testing::counting::CountingAllocator =
    simdformer_testing::counting::CountingAllocator;

/// The number of new pools, with 2, 3 and 4 threads in turn.
#[cfg(feature = "rayon")]
const POOLS: usize = 60;

#[cfg(feature = "rayon")]
fn main() {
    use simdformer::search::Hooks;
    use simdformer::{Event, Limits, Model, Session, Source, Threads};

    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en");
    let model = Model::open(folder).expect("a model");
    let limits = Limits::new(2, 8, 40);
    let mut sessions: Vec<Session<'_>> =
        (0..POOLS).map(|_| Session::new(&model, limits).expect("a session")).collect();
    let options = sessions[0].search_options();
    let sources = [&[585, 0][..], &[1635, 509, 1107, 229, 13, 0]].map(Source::new);
    // All pools live until the end, because the end of a thread would be counted.
    let mut pools = Vec::with_capacity(POOLS);
    let mut expected: Option<usize> = None;
    for (i, session) in sessions.iter_mut().enumerate() {
        session.set_threads(Threads::Rayon);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2 + i % 3).build();
        let pool = pool.expect("a pool");
        pool.broadcast(|_| ());
        let (calls, tokens) = pool.install(|| {
            let (before, mut tokens) = (counting::calls(), 0);
            session
                .generate(&sources, &options, &mut Hooks::default(), &mut |event| {
                    tokens += usize::from(matches!(event, Event::Token { .. }));
                })
                .expect("generated");
            (counting::calls() - before, tokens)
        });
        assert_eq!(calls, 0, "pool {i}, of {} threads", 2 + i % 3);
        assert_eq!(*expected.get_or_insert(tokens), tokens);
        pools.push(pool);
    }
    assert!(expected.is_some_and(|tokens| tokens > 4), "{expected:?}");
    // The counter works.
    let before = counting::calls();
    drop(core::hint::black_box(vec![0u8; 100]));
    assert_eq!(counting::calls() - before, 2);
}

#[cfg(not(feature = "rayon"))]
fn main() {
    let before = counting::calls();
    drop(core::hint::black_box(vec![0u8; 100]));
    assert_eq!(counting::calls() - before, 2);
}
