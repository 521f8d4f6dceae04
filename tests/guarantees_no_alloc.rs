//! Guarantee 2: after a session exists, nothing allocates: encode, step, fork, search and callbacks, on
//! every thread, serial and inside the caller's rayon pool.

use core::ops::ControlFlow;
use random_model::{Dims, Random};
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Family;
use simdformer::kernels::{Isa, ThreadPool};
use simdformer::search::{
    BeamOptions, Hooks, LogitsProcessor, SampleOptions, SearchOptions, Strategy, Timestamps,
};
use simdformer::{
    DecodeStats, DraftContext, Dtype, Engine, Event, Features, HypothesisId, Limits, LoadOptions,
    Model, PromptLookup, ReferenceDrafter, Request, RequestHandle, RequestQueue, Session,
    SessionPool, Source, SourceId, StepRow, Stop, Threads, Workload,
};
use simdformer_testing::{counting, effort, random_model};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, LazyLock};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// How often each use of a session is counted. `main` computes it, because reading the environment
/// allocates.
static CALLS: LazyLock<usize> = LazyLock::new(|| effort::cases(3, 200));
const SENTENCES: usize = 3;
const BEAMS: usize = 4;
const TARGET: usize = 24;
const DRAFT: usize = 4;

/// The uses of a session that are counted.
const USES: [&str; 17] = [
    "encode",
    "memory",
    "start, fork and release",
    "step",
    "step for the best tokens",
    "prefill",
    "verify and rewind",
    "verify for the best tokens",
    "greedy",
    "greedy without scores",
    "beam",
    "sample",
    "greedy with drafts",
    "one sample with drafts",
    "options of each source",
    "serve",
    "clear",
];

/// A queue of sources, in an array, and the options of each.
struct Queue<'q> {
    waiting: &'q [Source<'q>],
    options: &'q [Option<Arc<SearchOptions>>],
    sum: f32,
}

impl RequestQueue for Queue<'_> {
    fn before_step(
        &mut self,
        _: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        if active == 0 && self.waiting.is_empty() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        waiting.iter_mut().zip(self.waiting).map(|(to, from)| *to = *from).count()
    }

    fn options(&self, index: usize) -> Option<Arc<SearchOptions>> {
        self.options[index].clone()
    }

    fn admitted(&mut self, slots: &[u32]) {
        self.waiting = &self.waiting[slots.len()..];
        self.options = &self.options[slots.len()..];
    }

    fn refused(&mut self, _: simdformer::Error) {
        self.waiting = &self.waiting[1..];
        self.options = &self.options[1..];
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        slot == 1
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        if let Event::Done(done) = event {
            self.sum += done.hypotheses().map(|one| one.tokens.len() as f32).sum::<f32>();
        }
        ControlFlow::Continue(())
    }
}

struct Requests {
    sources: Vec<Vec<u32>>,
    prefix: Vec<u32>,
    searches: [SearchOptions; 6],
    /// Of the requests of a queue.
    shared: [Option<Arc<SearchOptions>>; 7],
}

impl Requests {
    fn new(model: &Model) -> Self {
        let config = model.config();
        let mut random = Random(7);
        let vocabulary = config.source_vocab;
        let base = SearchOptions {
            max_new_tokens: Some(6),
            max_length: None,
            num_return_sequences: 1,
            ..config.search_options()
        };
        let with = |strategy, num_return_sequences| SearchOptions {
            strategy,
            num_return_sequences,
            ..base.clone()
        };
        let drawn = Strategy::Sample(SampleOptions::default());
        let sample =
            SampleOptions { top_k: Some(20), top_p: Some(0.9), ..SampleOptions::default() };
        let searches = [
            with(Strategy::Greedy, 1),
            SearchOptions { scores: false, ..with(Strategy::Greedy, 1) },
            with(Strategy::Beam(BeamOptions { beams: BEAMS, ..BeamOptions::default() }), BEAMS),
            with(Strategy::Sample(sample), 2),
            SearchOptions { scores: false, ..with(Strategy::Greedy, 1) },
            with(drawn, 1),
        ];
        let shared = |i: usize| searches.get(i).map(|options| Arc::new(options.clone()));
        Self {
            sources: [9, 1, 14].map(|len| random.ids(len, vocabulary)).to_vec(),
            prefix: random.ids(5, config.target_vocab),
            shared: core::array::from_fn(shared),
            searches,
        }
    }
}

/// Uses `session` once in way `way`. Returns a value that depends on the results.
fn once(session: &mut Session, requests: &Requests, way: usize, state: &mut State) -> f32 {
    let sources: [&[u32]; SENTENCES] = core::array::from_fn(|i| &requests.sources[i][..]);
    match USES[way] {
        "encode" => {
            session.clear();
            state.started = false;
            session.encode(&sources, &mut state.sentences).expect("encoded");
            1.0
        }
        "memory" => session.encoder_output(&sources).expect("a memory")[0],
        "start, fork and release" => {
            let first = session.start(state.sentences[1]).expect("a row");
            session.step(&[StepRow::new(first, 1)]).expect("stepped");
            let fork = session.fork(first).expect("a fork");
            session.step(&[StepRow::new(first, 1), StepRow::new(fork, 0)]).expect("stepped");
            session.release(first).expect("released");
            session.release(fork).expect("released");
            1.0
        }
        step @ ("step" | "step for the best tokens") => {
            let stale = state.rows.first().map(|&row| session.hypothesis_len(row));
            if !matches!(stale, Some(Ok(len)) if len < TARGET) || !state.started {
                for (row, &sentence) in state.rows.iter_mut().zip(&state.sentences) {
                    if state.started {
                        session.release(*row).expect("released");
                    }
                    *row = session.start(sentence).expect("a row");
                }
                state.started = true;
            }
            let steps = state.rows.map(|row| StepRow::new(row, 1));
            if step == "step" {
                session.step(&steps).expect("stepped")[0]
            } else {
                let best = session.step_argmax(&steps, &|row, token| token as usize == row);
                best.expect("stepped")[0] as f32
            }
        }
        "prefill" => {
            let row = session.start(state.sentences[2]).expect("a row");
            let mut sum = 0.0;
            let mut each = |_: usize, logits: &[f32]| sum += logits[0];
            session.prefill(row, &requests.prefix, Some(&mut each)).expect("prefilled");
            session.release(row).expect("released");
            sum
        }
        verify @ ("verify and rewind" | "verify for the best tokens") => {
            let row = session.start(state.sentences[0]).expect("a row");
            let (step, draft) = (StepRow::new(row, 1), &requests.prefix[..DRAFT]);
            let verified = if verify == "verify and rewind" {
                let mut choose = |i: usize, _: &mut [f32]| Ok(draft[..2].get(i).copied());
                let verified =
                    session.verify(StepRow { draft, ..step }, &mut choose).expect("verified");
                session.rewind(row, 1).expect("rewound");
                verified
            } else {
                let banned = |i: usize, id: u32| i < 2 && id != draft[i];
                session.verify_argmax(StepRow { draft, ..step }, &banned).expect("verified")
            };
            session.release(row).expect("released");
            assert!(verified.accepted >= 2);
            verified.accepted as f32
        }
        "clear" => {
            session.clear();
            state.started = false;
            session.free_sentences() as f32
        }
        "serve" => {
            let too_long = [1; 99];
            let [a, b, c] = sources;
            let waiting = [a, b, c, &too_long, a, b, c].map(Source::new);
            let mut queue = Queue { waiting: &waiting, options: &requests.shared, sum: 0.0 };
            let (options, hooks) = (&requests.searches[2], &mut Hooks::default());
            session.serve(&mut queue, options, hooks).expect("served");
            queue.sum
        }
        search => {
            const SEARCHES: [&str; 7] = [
                "greedy",
                "greedy without scores",
                "beam",
                "sample",
                "greedy with drafts",
                "one sample with drafts",
                "options of each source",
            ];
            let number = SEARCHES.iter().position(|&name| name == search).expect("a search");
            let options = &requests.searches[number % requests.searches.len()];
            let mut sources = sources.map(Source::new);
            sources[1].prefix = &requests.prefix[..2];
            if number == requests.searches.len() {
                let own = requests.searches[1..].iter();
                sources.iter_mut().zip(own).for_each(|(to, own)| to.options = Some(own));
            }
            let mut sum = 0.0;
            let scored = sources.map(|source| source.options.unwrap_or(options).scores);
            let mut on_event = |event: simdformer::Event<'_>| {
                let simdformer::Event::Done(done) = event else { return };
                let score = |score: f32| if scored[done.source] { score } else { 0.0 };
                let hypotheses = done.hypotheses();
                sum += hypotheses.map(|h| score(h.score) + h.tokens.len() as f32).sum::<f32>();
            };
            let hooks = &mut Hooks::default();
            if search.ends_with("with drafts") {
                let given = [&requests.prefix[..]; SENTENCES];
                let mut guess = |context: &DraftContext<'_>, draft: &mut [u32]| {
                    draft.fill(context.target.len() as u32);
                    draft.len()
                };
                let mut drafter =
                    ((ReferenceDrafter(&given), PromptLookup { shortest: 1 }), &mut guess);
                let counts =
                    session.generate_drafted(&sources, options, hooks, &mut drafter, &mut on_event);
                assert!(counts.expect("done").drafted > 0);
            } else {
                session.generate(&sources, options, hooks, &mut on_event).expect("done");
            }
            sum
        }
    }
}

#[derive(Default)]
struct State {
    sentences: [SourceId; SENTENCES],
    rows: [HypothesisId; SENTENCES],
    started: bool,
}

/// Uses the session three times in each way, so that everything that is allocated at the first use exists.
fn warm_up(session: &mut Session, requests: &Requests, state: &mut State) -> f32 {
    let uses = (0..USES.len()).flat_map(|way| [way; 3]);
    uses.map(|way| once(session, requests, way, state)).sum()
}

/// The calls of the allocator in the whole process during [`CALLS`] uses of each kind, after a warm-up.
fn count(session: &mut Session, requests: &Requests) -> [usize; USES.len()] {
    let mut counts = [0; USES.len()];
    let mut state = State::default();
    let mut sum = warm_up(session, requests, &mut state);
    for (way, count) in counts.iter_mut().enumerate() {
        let before = counting::calls();
        for _ in 0..*CALLS {
            sum += once(session, requests, way, &mut state);
        }
        *count = counting::calls() - before;
    }
    assert!(sum.is_finite());
    counts
}

/// The pools of the caller. They live until the end, because rayon frees the memory of a dropped pool
/// during calls of the next pool.
struct Pools {
    #[cfg(feature = "rayon")]
    pools: [rayon::ThreadPool; 2],
}

impl Pools {
    fn new() -> Self {
        Self {
            #[cfg(feature = "rayon")]
            pools: [2, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                let pool = pool.expect("a pool");
                // Threads start asynchronously and allocate while they start. Wait until
                // all have started and have searched for tasks once.
                for _ in 0..50 {
                    pool.broadcast(|_| rayon::join(|| (), || ()));
                    std::thread::sleep(core::time::Duration::from_millis(1));
                }
                pool
            }),
        }
    }

    /// Calls `work` on this thread and in each pool at the same time, with the index of the place.
    fn each(&self, work: &(dyn Fn(usize) + Sync)) {
        #[cfg(not(feature = "rayon"))]
        work(0);
        #[cfg(feature = "rayon")]
        std::thread::scope(|scope| {
            for (index, pool) in self.pools.iter().enumerate() {
                scope.spawn(move || pool.install(|| work(1 + index)));
            }
            work(0);
        });
    }

    /// Calls `work` alone in the place that [`Pools::each`] numbers `index`.
    fn one<T: Send>(&self, index: usize, work: impl FnOnce() -> T + Send) -> T {
        match index {
            #[cfg(feature = "rayon")]
            1.. => self.pools[index - 1].install(work),
            _ => work(),
        }
    }
}

/// The number of places in which a session works: this thread, a pool of two threads, a pool of three
/// threads.
#[cfg(feature = "rayon")]
const PLACES: usize = 3;
#[cfg(not(feature = "rayon"))]
const PLACES: usize = 1;

/// A model, the requests, and a session for each of [`PLACES`].
struct Case {
    what: String,
    model: Arc<Model>,
    requests: Requests,
    cache: Dtype,
}

impl Case {
    fn new(what: &str, checkpoint: &Checkpoint, isa: Isa) -> Self {
        Self::in_forms(what, checkpoint, isa, "stored")
    }

    fn in_forms(what: &str, checkpoint: &Checkpoint, isa: Isa, forms: &str) -> Self {
        let chosen = forms.parse().expect("forms");
        let model =
            Model::load(checkpoint, LoadOptions { dtypes: chosen, ..isa.into() }).expect("a model");
        let requests = Requests::new(&model);
        let what = format!("{what}, {isa}, {forms}");
        Self { what, model: Arc::new(model), requests, cache: Dtype::F32 }
    }

    fn session(&self, _place: usize) -> Session<'static> {
        let limits = Limits {
            beams: BEAMS,
            draft_tokens: DRAFT,
            cache: Some(self.cache),
            ..Limits::new(SENTENCES, 14, TARGET)
        };
        let session = Session::new(Arc::clone(&self.model), limits).expect("a session");
        #[cfg(feature = "rayon")]
        let session = {
            let mut session = session;
            session.set_threads(if _place == 0 { Threads::Serial } else { Threads::Rayon });
            session
        };
        session
    }
}

/// Ends the program after a panic, because the other places would wait at the barrier for ever.
struct Others;

impl Drop for Others {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Runs every case in every place. The places run at the same time, because the counter counts all threads.
fn check(cases: &[Case], pools: &Pools) {
    let ready = Barrier::new(PLACES);
    let (before, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pools.each(&|place| {
        let _others = Others;
        let mut sessions: Vec<_> =
            cases.iter().map(|case| (case, case.session(place), State::default())).collect();
        let mut sum = 0.0;
        for (case, session, state) in &mut sessions {
            sum += warm_up(session, &case.requests, state);
        }
        // The first wait allocates what a barrier needs.
        ready.wait();
        if ready.wait().is_leader() {
            before.store(counting::calls(), Ordering::SeqCst);
        }
        ready.wait();
        for (case, session, state) in &mut sessions {
            for way in 0..USES.len() {
                for _ in 0..*CALLS {
                    sum += once(session, &case.requests, way, state);
                }
            }
        }
        if ready.wait().is_leader() {
            after.store(counting::calls(), Ordering::SeqCst);
        }
        ready.wait();
        assert!(sum.is_finite());
    });
    let calls = after.into_inner() - before.into_inner();
    if calls > 0 {
        for (case, place) in cases.iter().flat_map(|case| (0..PLACES).map(move |n| (case, n))) {
            let mut session = case.session(place);
            let counts = pools.one(place, || count(&mut session, &case.requests));
            for (way, &calls) in counts.iter().enumerate() {
                assert_eq!(calls, 0, "{}, threads {}: {}", case.what, 1 + place, USES[way]);
            }
        }
        panic!("{calls} calls while all sessions were used at once, none when used alone");
    }
}

/// An encoder-only model, with and without token types.
fn check_encoder(what: &str, checkpoint: &Checkpoint, pools: &Pools) {
    let model = Model::load(checkpoint, Isa::best()).expect("a model");
    let mut random = Random(7);
    let sources = [9, 1, 14].map(|len| random.ids(len, model.config().source_vocab));
    let types = [9, 1, 14].map(|len| random.ids(len, model.config().token_types.max(1)));
    let (sources, types) =
        ([&sources[0][..], &sources[1], &sources[2]], [&types[0][..], &types[1], &types[2]]);
    let mut session = Session::new(&model, Limits::encoder(SENTENCES, 14)).expect("a session");
    let run = |session: &mut Session| {
        let before = counting::calls();
        let mut sum = 0.0;
        for _ in 0..*CALLS {
            sum += session.encoder_output(&sources).expect("a memory")[0];
            sum += session.encoder_output_of_types(&sources, &types).expect("a memory")[0];
        }
        assert!(sum.is_finite());
        counting::calls() - before
    };
    run(&mut session);
    assert_eq!(run(&mut session), 0, "{what}, serial");
    #[cfg(feature = "rayon")]
    for pool in &pools.pools {
        session.set_threads(Threads::Rayon);
        pool.install(|| run(&mut session));
        assert_eq!(pool.install(|| run(&mut session)), 0, "{what}, in a pool");
    }
    #[cfg(not(feature = "rayon"))]
    let _ = pools;
}

/// A model whose encoder reads features: encode, language detection, search, timestamps.
fn check_features(what: &str, checkpoint: &Checkpoint, pools: &Pools) {
    let model = Model::load(checkpoint, Isa::best()).expect("a model");
    let bins = model.config().bins.expect("features");
    let mut random = Random(7);
    let values = [17, 1, 28]
        .map(|frames| -> Vec<f32> { (0..frames * bins).map(|_| random.symmetric()).collect() });
    let sources: [Features; SENTENCES] = [0, 1, 2].map(|i| Features::new(&values[i], bins));
    let prefix = random.ids(3, model.config().target_vocab);
    let requests =
        sources.map(|features| Source { prefix: &prefix, ..Source::of_features(features) });
    let limits = Limits { beams: BEAMS, draft_tokens: DRAFT, ..Limits::new(SENTENCES, 14, TARGET) };
    let mut session = Session::new(&model, limits).expect("a session");
    let greedy = SearchOptions { max_new_tokens: Some(6), ..session.search_options() };
    let beam = BeamOptions { beams: BEAMS, ..BeamOptions::default() };
    let beam = SearchOptions { strategy: Strategy::Beam(beam), ..greedy.clone() };
    let run = |session: &mut Session| {
        let before = counting::calls();
        let mut sum = 0.0;
        for _ in 0..*CALLS {
            sum += session.encoder_output_of_features(&sources).expect("a memory")[0];
            let mut sentences = [SourceId::default(); SENTENCES];
            session.encode_features(&sources, &mut sentences).expect("encoded");
            let heard = session.detect_language(sentences[2], 2, &[5, 9, 14]);
            sum += heard.expect("a language") as f32;
            for options in [&greedy, &beam] {
                let mut rule = Timestamps { no_timestamps: 60, eos: 50, max_initial: Some(9) };
                let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut rule];
                let mut hooks = Hooks { processors: &mut rules, ..Hooks::default() };
                let mut on_event = |event: simdformer::Event<'_>| {
                    if let simdformer::Event::Done(done) = event {
                        sum += done.hypotheses().map(|h| h.tokens.len() as f32).sum::<f32>();
                    }
                };
                session.generate(&requests, options, &mut hooks, &mut on_event).expect("done");
            }
        }
        assert!(sum.is_finite());
        counting::calls() - before
    };
    run(&mut session);
    assert_eq!(run(&mut session), 0, "{what}, serial");
    #[cfg(feature = "rayon")]
    for pool in &pools.pools {
        session.set_threads(Threads::Rayon);
        pool.install(|| run(&mut session));
        assert_eq!(pool.install(|| run(&mut session)), 0, "{what}, in a pool");
    }
    #[cfg(not(feature = "rayon"))]
    let _ = pools;
}

/// An engine with fixed limits: calls that stream, and calls of a session.
fn check_engine(checkpoint: &Checkpoint, pools: &Pools) {
    let model = Arc::new(Model::load(checkpoint, Isa::best()).expect("a model"));
    let mut random = Random(5);
    let ids: Vec<Vec<u32>> =
        (0..20).map(|i| random.ids(5 * i % 15, model.config().source_vocab)).collect();
    let sources: Vec<Source<'_>> = ids.iter().map(|ids| Source::new(ids)).collect();
    let limits = Limits { beams: BEAMS, ..Limits::new(4, 14, TARGET) };
    let executor = Threads::Shared(Arc::new(ThreadPool::new(3).expect("threads")));
    let builder = Engine::builder(model).sessions(3).limits(limits).threads(executor);
    let mut engine = builder.build().expect("an engine");
    let greedy = SearchOptions { max_new_tokens: Some(9), ..engine.search_options() };
    let beam = BeamOptions { beams: BEAMS, ..BeamOptions::default() };
    let beam = SearchOptions { strategy: Strategy::Beam(beam), ..greedy.clone() };
    let run = |engine: &Engine| {
        let (events, before) = (AtomicUsize::new(0), counting::calls());
        for _ in 0..*CALLS {
            for options in [&greedy, &beam] {
                let stats = engine.stream(&sources, options, &|event: Event<'_>| {
                    events.fetch_add(1, Ordering::Relaxed);
                    match event {
                        Event::Refused { .. } => ControlFlow::Break(Stop::Source),
                        _ => ControlFlow::Continue(()),
                    }
                });
                assert!(stats.is_ok_and(|stats| stats.rows > 0));
            }
            let length = engine.with_session(&Workload::encode(1, 1), |session| {
                session.encoder_output(&[sources[1].tokens]).map(<[f32]>::len)
            });
            assert!(length.is_ok_and(|length| length.is_ok()));
        }
        assert!(events.into_inner() > 40);
        counting::calls() - before
    };
    // The order of the sources is allocated in the first call.
    assert!(run(&engine) > 0);
    assert_eq!(run(&engine), 0, "an engine on an executor");
    engine.set_threads(Threads::Serial);
    run(&engine);
    assert_eq!(run(&engine), 0, "an engine on one thread");
    #[cfg(feature = "rayon")]
    for pool in &pools.pools {
        engine.set_threads(Threads::Rayon);
        pool.install(|| run(&engine));
        assert_eq!(pool.install(|| run(&engine)), 0, "an engine in a pool of rayon");
    }
    #[cfg(not(feature = "rayon"))]
    let _ = pools;
    assert_eq!(engine.report().plans, 1);
}

/// Requests that are submitted to an engine with fixed limits: 60 of them allocate no more than 6, which is what the call
/// itself takes.
fn check_submitted(checkpoint: &Checkpoint) {
    let model = Arc::new(Model::load(checkpoint, Isa::best()).expect("a model"));
    let limits = Limits { beams: BEAMS, ..Limits::new(4, 14, TARGET) };
    let calls = |count: usize| {
        let builder = Engine::builder(Arc::clone(&model)).limits(limits);
        let engine = builder.build().expect("an engine");
        let requests = Requests::new(&model);
        let mut random = Random(5);
        let handles: Vec<RequestHandle> = (0..count)
            .map(|i| {
                let tokens = random.ids(1 + 5 * i % 14, model.config().source_vocab);
                let options = Some(requests.searches[i % 6].clone());
                let request = Request { options, stream: i as u64, ..Request::new(tokens) };
                engine.submit(request).expect("submitted")
            })
            .collect();
        let start = Barrier::new(2);
        let calls = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                start.wait();
                let before = counting::calls();
                engine.run().expect("closed");
                counting::calls() - before
            });
            start.wait();
            while !handles.iter().all(RequestHandle::is_done) {
                std::thread::yield_now();
            }
            engine.close();
            run.join().expect("no panic")
        });
        for handle in handles {
            assert!(!handle.wait().expect("a result").tokens().is_empty());
        }
        calls
    };
    calls(6);
    let few = calls(6);
    assert_eq!(calls(60), few, "requests that are submitted");
    assert!(few < 10, "{few}");
}

/// Several sessions over one list of sources, some of them refused, on the threads of each kind.
fn check_session_pool(checkpoint: &Checkpoint, pools: &Pools) {
    let model = Model::load(checkpoint, Isa::best()).expect("a model");
    let mut random = Random(5);
    let ids: Vec<Vec<u32>> =
        (0..40).map(|i| random.ids(5 * i % 15, model.config().source_vocab)).collect();
    let sources: Vec<Source<'_>> = ids.iter().map(|ids| Source::new(ids)).collect();
    let options = SearchOptions {
        max_new_tokens: Some(9),
        max_length: None,
        ..model.config().search_options()
    };
    let executor = ThreadPool::new(3).expect("threads");
    let mut sessions = SessionPool::new(&model, Limits::new(4, 14, TARGET), 3).expect("a pool");
    let run = |sessions: &mut SessionPool<'_>| {
        let (events, before) = (AtomicUsize::new(0), counting::calls());
        for _ in 0..*CALLS {
            let stats = sessions.generate(&sources, &options, &|event: Event<'_>| {
                events.fetch_add(1, Ordering::Relaxed);
                match event {
                    Event::Refused { .. } => ControlFlow::Break(Stop::Source),
                    _ => ControlFlow::Continue(()),
                }
            });
            assert!(stats.is_ok_and(|stats| stats.rows > 0));
        }
        assert!(events.into_inner() > 40);
        counting::calls() - before
    };
    sessions.set_threads(Threads::Executor(&executor));
    // The order of the sources is allocated in the first call.
    assert!(run(&mut sessions) > 0);
    assert_eq!(run(&mut sessions), 0, "on an executor");
    #[cfg(feature = "rayon")]
    for pool in &pools.pools {
        sessions.set_threads(Threads::Rayon);
        pool.install(|| run(&mut sessions));
        assert_eq!(pool.install(|| run(&mut sessions)), 0, "in a pool of rayon");
    }
    #[cfg(not(feature = "rayon"))]
    let _ = pools;
}

/// The threads of a pool sleep between calls: in half a second they use at most a few clock ticks of 10 ms.
#[cfg(target_os = "linux")]
fn idle_threads_sleep() {
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("a line");
        // The name of the program is in parentheses and may have any characters. Fields 14 and 15
        // of the line are the time in user mode and in system mode.
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        let fields = fields.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().expect("a number")).sum()
    };
    let before = ticks();
    assert!(before > 10, "{before} ticks after all this work");
    std::thread::sleep(core::time::Duration::from_millis(500));
    let spent = ticks() - before;
    assert!(spent < 10, "{spent} ticks in half a second of nothing to do");
}

/// Without the test harness, which allocates when a test takes long. The counter counts every thread of the
/// process.
fn main() {
    LazyLock::force(&CALLS);
    let pools = Pools::new();
    let mut cases = Vec::new();
    for folder in ["marian_odd", "marian_untied", "nn_transformer_post", "nn_transformer_pre"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
        cases.push(Case::new(folder, &Checkpoint::open(path).expect("a checkpoint"), Isa::best()));
    }
    for (isa, offset) in Isa::available().zip(0..) {
        for (index, family) in [Family::Bart, Family::M2M100].into_iter().enumerate() {
            if !effort::all_cases_on(isa) && index != offset % 2 {
                continue;
            }
            cases.push(Case::new(family.model_type(), &Dims::small(family).checkpoint(1), isa));
        }
    }
    for family in random_model::families() {
        let checkpoint = Dims::small(family).checkpoint(3);
        let config = checkpoint.config();
        match config.decoder {
            Some(_) if config.bins.is_some() => {
                check_features(family.model_type(), &checkpoint, &pools);
            }
            Some(_) => cases.push(Case::new(family.model_type(), &checkpoint, Isa::best())),
            None => check_encoder(family.model_type(), &checkpoint, &pools),
        }
    }
    let large = Dims {
        d_model: 192,
        layers: [2, 2],
        heads: [3, 6],
        ffn: [515, 384],
        vocabulary: 2003,
        ..Dims::small(Family::Marian)
    };
    let large = large.checkpoint(2);
    for forms in ["stored", "bf16", "f16", "int8x16", "int8", "int8,output=int8,attention=int8"] {
        cases.push(Case::in_forms("a larger marian", &large, Isa::best(), forms));
    }
    let halves = Case::in_forms("a larger marian in f16", &large, Isa::best(), "int8");
    cases.push(Case { cache: Dtype::F16, ..halves });
    check(&cases, &pools);
    check_session_pool(&large, &pools);
    check_engine(&large, &pools);
    check_submitted(&large);
    #[cfg(target_os = "linux")]
    idle_threads_sleep();
    // The counter works.
    let before = counting::calls();
    drop(core::hint::black_box(vec![0u8; 100]));
    assert_eq!(counting::calls() - before, 2);
}
