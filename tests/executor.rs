//! A whole translation on threads of the caller has the bits of one thread: on a thread pool of any size,
//! and on executors that break the contract.

use crate::effort::{all_cases_on, cases, thread_counts};
use crate::random_model::{Dims, Random};
use simdformer::config::Family;
use simdformer::kernels::{Executor, Isa, ThreadPool};
use simdformer::search::{BeamOptions, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{Event, Limits, Model, Session, Source, Threads};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const VOCABULARY: usize = 5003;

/// Wide enough that every product is split into tasks.
fn model(isa: Isa) -> Model {
    let dims = Dims {
        d_model: 96,
        ffn: [256, 256],
        vocabulary: VOCABULARY,
        ..Dims::small(Family::Marian)
    };
    Model::load(&dims.checkpoint(21), isa).expect("a model")
}

/// For each source: the tokens of its hypotheses and the bits of their scores.
type Answers = Vec<Vec<(Vec<u32>, u64)>>;

/// Greedy search and beam search, and every other strategy if the instruction set runs all cases. Three
/// sources at a time.
fn translate<'a>(model: &'a Model, threads: Threads<'a>) -> Answers {
    let (count, tokens) = cases((4, 5), (9, 12));
    let mut random = Random(31);
    let sources: Vec<Vec<u32>> =
        (0..count).map(|i| random.ids(3 + i * 5 % 17, VOCABULARY - 1)).collect();
    let sources: Vec<Source<'_>> = sources.iter().map(|tokens| Source::new(tokens)).collect();
    let limits = Limits { beams: 4, ..Limits::new(3, 20, tokens + 2) };
    let mut session = Session::new(model, limits).expect("a session");
    session.set_threads(threads);
    let sample = SampleOptions { top_k: Some(40), top_p: Some(0.9), ..SampleOptions::default() };
    let sampled = BeamOptions { sample: Some(sample.clone()), ..BeamOptions::default() };
    let mut strategies = vec![
        Strategy::Greedy,
        Strategy::Beam(BeamOptions::default()),
        Strategy::Beam(BeamOptions { groups: 2, ..BeamOptions::default() }),
        Strategy::Beam(sampled),
        Strategy::Sample(SampleOptions::default()),
        Strategy::Sample(sample),
    ];
    if !all_cases_on(model.isa()) {
        strategies.truncate(2);
    }
    let mut answers = vec![Vec::new(); strategies.len() * sources.len()];
    for (index, strategy) in strategies.into_iter().enumerate() {
        let options = SearchOptions {
            num_return_sequences: if index == 0 { 1 } else { 4 },
            strategy,
            max_new_tokens: Some(tokens),
            start: 1,
            eos: vec![0],
            ..SearchOptions::default()
        };
        let answers = &mut answers[index * sources.len()..];
        session
            .generate(&sources, &options, &mut Hooks::default(), &mut |event| {
                let Event::Done(done) = event else { return };
                answers[done.source] = done
                    .hypotheses()
                    .map(|found| (found.tokens.to_vec(), f64::from(found.score).to_bits()))
                    .collect();
            })
            .expect("translated");
    }
    assert!(answers.iter().all(|answer| !answer.is_empty()));
    answers
}

#[test]
fn a_thread_pool_translates_with_the_bits_of_one_thread() {
    for isa in Isa::available() {
        let model = model(isa);
        let serial = translate(&model, Threads::Serial);
        let counts = if all_cases_on(isa) { thread_counts() } else { &[3] };
        for &threads in counts {
            let pool = ThreadPool::new(threads).expect("threads");
            let found = translate(&model, Threads::Executor(&pool));
            assert!(found == serial, "{isa}: a pool of {threads}");
            #[cfg(feature = "rayon")]
            {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                let found = pool.expect("a pool").install(|| translate(&model, Threads::Rayon));
                assert!(found == serial, "{isa}: {threads} threads of rayon's");
            }
        }
        let shared = Threads::Shared(Arc::new(ThreadPool::new(2).expect("threads")));
        assert!(translate(&model, shared.clone()) == serial, "{isa}: a shared pool");
        assert_eq!(format!("{shared:?}"), "Executor(2 threads)");
    }
}

/// Runs some of the tasks, some of them twice, on two threads, and counts the calls of `threads`.
struct Sloppy(AtomicUsize);

impl Executor for Sloppy {
    fn threads(&self) -> usize {
        // A different number each time.
        self.0.fetch_add(1, Ordering::Relaxed) % 5
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..2 * tasks).step_by(3).for_each(task));
            }
        });
    }
}

#[test]
fn an_executor_that_breaks_the_contract_changes_no_bit() {
    let model = model(Isa::best());
    let serial = translate(&model, Threads::Serial);
    let sloppy = Sloppy(AtomicUsize::new(0));
    assert!(translate(&model, Threads::Executor(&sloppy)) == serial);
    assert!(sloppy.0.load(Ordering::Relaxed) >= 72, "asked once for each call");
}

/// A pool whose `threads` gives another number each time, and the count of these calls.
struct Changing(ThreadPool, AtomicUsize);

impl Executor for Changing {
    fn threads(&self) -> usize {
        [3, 1, 3, 2][self.1.fetch_add(1, Ordering::Relaxed) % 4]
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.0.for_each(tasks, task);
    }
}

/// A call of the session asks for the number of threads once, however many kernels it runs.
#[test]
fn a_call_of_a_session_asks_an_executor_once() {
    let model = model(Isa::best());
    let executor = Changing(ThreadPool::new(3).expect("threads"), AtomicUsize::new(0));
    let mut session = Session::new(&model, Limits::new(2, 20, 12)).expect("a session");
    let source: &[u32] = &[5, 6, 7, 8, 9, 0];
    let alone = session.encoder_output(&[source, source]).expect("encoded").to_vec();
    session.set_threads(Threads::Executor(&executor));
    for calls in 1..=5 {
        assert!(session.encoder_output(&[source, source]).expect("encoded") == alone);
        assert_eq!(executor.1.load(Ordering::Relaxed), calls);
    }
}
