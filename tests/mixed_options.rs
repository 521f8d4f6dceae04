//! Requests with options of their own in one batch: greedy search with and without scores, beams, samples, rules, lengths,
//! prefixes, in random schedules. Each has the tokens and the bits of the scores of its run alone.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::{Isa, ThreadPool};
use simdformer::search::{
    BeamOptions, EarlyStopping, Finish, Hooks, SampleOptions, SearchOptions, Strategy,
};
use simdformer::{
    DecodeStats, Error, Event, Limits, Model, PromptLookup, RequestQueue, Session, SessionPool,
    Source, Stop, Threads,
};
use std::sync::{Arc, Mutex};

/// Large enough that the rows of a step are prepared on several threads.
const VOCABULARY: usize = 2111;
const SLOTS: usize = 7;
const LONGEST: usize = 12;
const REQUESTS: usize = 50;

fn limits() -> Limits {
    Limits { beams: 6, end_tokens: 2, draft_tokens: 12, ..Limits::new(SLOTS, LONGEST, 20) }
}

fn model() -> Model {
    let dims = Dims { vocabulary: VOCABULARY, ..Dims::small(Family::Marian) };
    Model::load(&dims.checkpoint(8), Isa::best()).expect("a model")
}

fn random_sample(random: &mut Random) -> SampleOptions {
    SampleOptions {
        seed: random.bits(),
        temperature: [0.3, 1.0, 1.7][random.below(3)],
        top_k: [None, Some(1), Some(20)][random.below(3)],
        top_p: [None, Some(0.8)][random.below(2)],
        ..SampleOptions::default()
    }
}

fn random_options(random: &mut Random, base: &SearchOptions) -> SearchOptions {
    let kind = random.below(8);
    let beams = 2 + random.below(5);
    let strategy = match kind {
        0..4 => Strategy::Greedy,
        4 => Strategy::Sample(random_sample(random)),
        _ => Strategy::Beam(BeamOptions {
            beams,
            length_penalty: [0.0, 1.0, 1.6][random.below(3)],
            early_stopping: [
                EarlyStopping::Heuristic,
                EarlyStopping::WhenFull,
                EarlyStopping::Never,
            ][random.below(3)],
            groups: if kind == 5 && beams.is_multiple_of(2) { 2 } else { 1 },
            diversity_penalty: if kind == 5 { 0.7 } else { 0.0 },
            sample: (kind == 6).then(|| random_sample(random)),
        }),
    };
    let num_return_sequences = match &strategy {
        Strategy::Greedy => 1,
        Strategy::Beam(_) => 1 + random.below(beams),
        Strategy::Sample(_) => 1 + random.below(6),
    };
    let mut options = SearchOptions {
        strategy,
        num_return_sequences,
        scores: kind > 1,
        max_new_tokens: [None, Some(3 + random.below(10))][random.below(2)],
        max_length: Some(6 + random.below(15)),
        ..base.clone()
    };
    // Each rule in one of four options, so that many have none.
    let mut rule = |apply: &mut dyn FnMut(&mut SearchOptions, &mut Random)| {
        if random.below(4) == 0 {
            apply(&mut options, random);
        }
    };
    rule(&mut |options, _| options.repetition_penalty = 1.4);
    rule(&mut |options, _| options.no_repeat_ngram = Some(2));
    rule(&mut |options, _| options.encoder_no_repeat_ngram = Some(1));
    rule(&mut |options, _| options.encoder_repetition_penalty = 1.3);
    rule(&mut |options, random| options.min_new_tokens = random.below(6));
    rule(&mut |options, random| options.eos = random.ids(2, VOCABULARY));
    rule(&mut |options, random| options.forced_bos = Some(random.below(VOCABULARY) as u32));
    rule(&mut |options, random| options.forced_eos = random.ids(1, VOCABULARY));
    rule(&mut |options, random| options.suppress = random.ids(1000, VOCABULARY));
    rule(&mut |options, random| options.begin_suppress = random.ids(1000, VOCABULARY));
    rule(&mut |options, random| options.bad_words = vec![random.ids(1, VOCABULARY)]);
    rule(&mut |options, random| options.sequence_bias = vec![(random.ids(1, VOCABULARY), 3.0)]);
    rule(&mut |options, _| options.exponential_decay = Some((2, 1.5)));
    rule(&mut |options, _| options.renormalize = true);
    options
}

/// Options that the plan does not fit, or that are invalid.
fn wrong_options(random: &mut Random, base: &SearchOptions) -> SearchOptions {
    let mut options = random_options(random, base);
    match random.below(4) {
        0 => options.strategy = Strategy::Beam(BeamOptions { beams: 7, ..Default::default() }),
        1 => options.eos = vec![1, 2, 3],
        2 => options.max_length = Some(22),
        _ => options.repetition_penalty = f64::NAN,
    }
    options
}

struct Request {
    ids: Vec<u32>,
    prefix: Vec<u32>,
    forced_bos: Option<u32>,
    stream: u64,
    /// `None` for those of the call.
    options: Option<Arc<SearchOptions>>,
    refused: bool,
    /// Ends after this many tokens or steps.
    cancel: Option<usize>,
}

impl Request {
    fn random(random: &mut Random, base: &SearchOptions) -> Self {
        let len = 1 + random.below(LONGEST);
        let mistake = random.below(20);
        let prefix_len = [0, 0, 1, 3][random.below(4)];
        let options = match mistake {
            0 => Some(wrong_options(random, base)),
            _ => (random.below(6) > 0).then(|| random_options(random, base)),
        };
        let mut ids = random.ids(len, VOCABULARY);
        if mistake == 1 {
            ids.clear();
        }
        let prefix_len = if mistake == 2 { 21 } else { prefix_len };
        Self {
            ids,
            prefix: random.ids(prefix_len, VOCABULARY),
            forced_bos: (random.below(4) == 0).then(|| random.below(VOCABULARY) as u32),
            stream: random.bits(),
            options: options.map(Arc::new),
            refused: mistake < 3,
            cancel: (random.below(6) == 0).then(|| random.below(5)),
        }
    }

    /// Without its options.
    fn plain(&self) -> Source<'_> {
        let Self { prefix, stream, forced_bos, .. } = self;
        let mut source = Source::new(&self.ids);
        (source.prefix, source.stream, source.forced_bos) = (prefix, *stream, *forced_bos);
        source
    }

    fn source(&self) -> Source<'_> {
        Source { options: self.options.as_deref(), ..self.plain() }
    }

    /// Alone, in a session that is planned for its options.
    fn alone(&self, model: &Model, call: &SearchOptions) -> Outcome {
        let options = self.options.as_deref().unwrap_or(call);
        let limits = Limits { sentences: 1, beams: options.sequences(), ..limits() };
        let mut session = Session::new(model, limits).expect("a session");
        let mut outcome = Outcome::default();
        let mut on_event = |event: Event<'_>| outcome.record(&event);
        let hooks = &mut Hooks::default();
        session.generate(&[self.plain()], options, hooks, &mut on_event).expect("generated");
        outcome
    }
}

/// The tokens of each hypothesis and the bits of its score.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    finish: Option<Finish>,
    result: Vec<(Vec<u32>, u32)>,
    streamed: Vec<u32>,
}

impl Outcome {
    fn record(&mut self, event: &Event<'_>) {
        match event {
            Event::Token { token, .. } if token.sequence == 0 => self.streamed.push(token.id),
            Event::Done(done) => {
                assert_eq!(self.finish.replace(done.finish), None, "done twice");
                let result =
                    done.hypotheses().map(|one| (one.tokens.to_vec(), one.score.to_bits()));
                self.result = result.collect();
            }
            _ => (),
        }
    }
}

/// The outcomes of a schedule, and what is expected of each.
struct Schedule {
    call: SearchOptions,
    requests: Vec<Request>,
    expected: Vec<Outcome>,
}

impl Schedule {
    fn random(model: &Model, seed: u64) -> Self {
        let random = &mut Random(seed);
        let base = model.config().search_options();
        let call = random_options(random, &base);
        let requests: Vec<_> = (0..REQUESTS).map(|_| Request::random(random, &base)).collect();
        let expected = requests.iter().map(|request| match request.refused {
            true => Outcome::default(),
            false => request.alone(model, &call),
        });
        let expected = expected.collect();
        Self { call, requests, expected }
    }

    fn sources(&self) -> Vec<Source<'_>> {
        self.requests.iter().map(Request::source).collect()
    }

    /// Returns how many were stopped.
    fn check(&self, what: &str, outcomes: &[Outcome], refused: &[usize]) -> usize {
        let mut stopped = 0;
        for (number, (found, expected)) in outcomes.iter().zip(&self.expected).enumerate() {
            let request = &self.requests[number];
            let about = || format!("{what}, request {number}: {:?}", request.options);
            assert_eq!(refused.contains(&number), request.refused, "{}", about());
            if found.finish == Some(Finish::Stopped) {
                assert!(request.cancel.is_some(), "{}", about());
                let best = expected.result.first().map_or(&[][..], |best| &best.0);
                assert!(best.starts_with(&found.streamed), "{}", about());
                stopped += 1;
            } else {
                let Outcome { finish, result, streamed } = found;
                assert_eq!((finish, result), (&expected.finish, &expected.result), "{}", about());
                // No token follows a stop, also if the request ended in the same step.
                assert!(expected.streamed.starts_with(streamed), "{}", about());
                assert!(request.cancel.is_some() || expected.streamed == *streamed, "{}", about());
            }
        }
        stopped
    }

    /// All at once: `generate`, with drafts, or in a pool.
    fn run_list(
        &self,
        what: &str,
        run: impl FnOnce(&[Source<'_>], &OnEvent<'_>) -> DecodeStats,
    ) -> usize {
        let outcomes = Mutex::new(vec![Outcome::default(); REQUESTS]);
        let refused = Mutex::new(Vec::new());
        let on_event = |event: Event<'_>| {
            let (number, stops) = match &event {
                Event::Refused { source, error } => {
                    check_refusal(error, *source);
                    refused.lock().expect("no panic").push(*source);
                    return ControlFlow::Break(Stop::Source);
                }
                Event::Token { source, token } => {
                    let cancel = self.requests[*source].cancel;
                    (*source, cancel.is_some_and(|at| token.index as usize >= at))
                }
                Event::Done(done) => (done.source, false),
                _ => return ControlFlow::Continue(()),
            };
            outcomes.lock().expect("no panic")[number].record(&event);
            match stops {
                true => ControlFlow::Break(Stop::Source),
                false => ControlFlow::Continue(()),
            }
        };
        let stats = run(&self.sources(), &on_event);
        assert_eq!(stats.cancelled, 0);
        let refused = refused.into_inner().expect("no panic");
        self.check(what, &outcomes.into_inner().expect("no panic"), &refused)
    }

    fn run_queue(&self, what: &str, session: &mut Session<'_>, seed: u64) -> usize {
        let mut queue = Queue {
            schedule: self,
            waiting: Vec::new(),
            next: 0,
            slots: [None; SLOTS],
            steps: vec![0; REQUESTS],
            outcomes: vec![Outcome::default(); REQUESTS],
            refused: Vec::new(),
            most: 0,
            random: Random(seed),
        };
        session.serve(&mut queue, &self.call, &mut Hooks::default()).expect("served");
        assert_eq!(queue.most, SLOTS);
        assert_eq!(session.free_sentences(), SLOTS);
        self.check(what, &queue.outcomes, &queue.refused)
    }
}

type OnEvent<'e> = dyn Fn(Event<'_>) -> ControlFlow<Stop> + Sync + 'e;

/// A refused request is named, and what is wrong with it.
fn check_refusal(error: &Error, number: usize) {
    assert_eq!(error.index(), Some(number), "{error}");
    let named = match error {
        Error::BeyondLimit { limit: Some((limit, _)), .. } => {
            ["beams", "target_tokens", "end_tokens"].contains(limit)
        }
        Error::InvalidOption { .. } | Error::InvalidInput { .. } | Error::Token { .. } => true,
        _ => false,
    };
    assert!(named, "{error}");
}

/// Requests that arrive in groups of random sizes.
struct Queue<'q> {
    schedule: &'q Schedule,
    waiting: Vec<usize>,
    next: usize,
    /// The number of the request in each slot.
    slots: [Option<usize>; SLOTS],
    steps: Vec<usize>,
    outcomes: Vec<Outcome>,
    refused: Vec<usize>,
    most: usize,
    random: Random,
}

impl RequestQueue for Queue<'_> {
    fn before_step(
        &mut self,
        _: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        self.most = self.most.max(active);
        self.slots.iter().flatten().for_each(|&number| self.steps[number] += 1);
        for _ in 0..self.random.below(4).min(REQUESTS - self.next) {
            self.waiting.push(self.next);
            self.next += 1;
        }
        match active + self.waiting.len() + REQUESTS - self.next {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        let fill = waiting.iter_mut().zip(&self.waiting);
        fill.map(|(source, &number)| *source = self.schedule.requests[number].plain()).count()
    }

    fn options(&self, index: usize) -> Option<Arc<SearchOptions>> {
        self.schedule.requests[self.waiting[index]].options.clone()
    }

    fn admitted(&mut self, slots: &[u32]) {
        for (&slot, number) in slots.iter().zip(self.waiting.drain(..slots.len())) {
            assert_eq!(self.slots[slot as usize].replace(number), None, "a slot of another");
        }
    }

    fn refused(&mut self, error: Error) {
        let number = self.waiting.remove(0);
        // Requests are admitted in the order of their numbers.
        check_refusal(&error, number);
        self.refused.push(number);
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        let number = self.slots[slot as usize].expect("a request");
        self.schedule.requests[number].cancel.is_some_and(|at| self.steps[number] > at)
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        let slot = match &event {
            Event::Token { source, .. } => *source,
            Event::Done(done) => done.source,
            _ => return ControlFlow::Continue(()),
        };
        let number = self.slots[slot].expect("a request");
        self.outcomes[number].record(&event);
        if let Event::Done(_) = event {
            self.slots[slot] = None;
        }
        ControlFlow::Continue(())
    }
}

/// 300 schedules of 50 requests in a full run. Each is run as a list, with drafts, by a pool and as a queue, on one thread
/// and on two.
#[test]
fn each_request_has_the_bits_of_its_run_alone() {
    let model = model();
    let threads = Threads::Shared(Arc::new(ThreadPool::new(2).expect("threads")));
    let mut sessions = [Threads::Serial, threads.clone()].map(|threads| {
        let mut session = Session::new(&model, limits()).expect("a session");
        session.set_threads(threads);
        session
    });
    let mut pool = SessionPool::new(&model, limits(), 2).expect("a pool");
    pool.set_threads(threads);
    let (mut kinds, mut stopped) = ([0; 4], 0);
    for seed in 0..cases(2, 300) {
        let schedule = Schedule::random(&model, seed);
        for request in &schedule.requests {
            let options = request.options.as_deref().unwrap_or(&schedule.call);
            kinds[match &options.strategy {
                Strategy::Greedy if options.scores => 0,
                Strategy::Greedy => 1,
                Strategy::Beam(_) => 2,
                Strategy::Sample(_) => 3,
            }] += 1;
        }
        for (threads, session) in (1..).zip(&mut sessions) {
            let what = |way| format!("schedule {seed}, {way}, {threads} threads");
            let hooks = &mut Hooks::default();
            stopped += schedule.run_list(&what("a list"), |sources, on_event| {
                let mut on_event = |event: Event<'_>| on_event(event);
                session.generate(sources, &schedule.call, hooks, &mut on_event).expect("done")
            });
            let hooks = &mut Hooks::default();
            stopped += schedule.run_list(&what("drafts"), |sources, on_event| {
                let mut on_event = |event: Event<'_>| on_event(event);
                let drafter = &mut PromptLookup { shortest: 1 };
                let call = &schedule.call;
                session
                    .generate_drafted(sources, call, hooks, drafter, &mut on_event)
                    .expect("done")
            });
            stopped += schedule.run_queue(&what("a queue"), session, seed);
        }
        stopped += schedule.run_list(&format!("schedule {seed}, a pool"), |sources, on_event| {
            pool.generate(sources, &schedule.call, &on_event).expect("done")
        });
    }
    assert!(kinds.iter().all(|&count| count > 10) && stopped > 20, "{kinds:?} {stopped}");
}

/// Options that a queue lends would end when it changes.
#[test]
fn a_queue_shares_the_options_of_a_request() {
    struct Lends<'q>(&'q [u32], &'q SearchOptions, Option<Error>);

    impl RequestQueue for Lends<'_> {
        fn before_step(
            &mut self,
            _: &mut Session<'_>,
            _: usize,
            _: &DecodeStats,
        ) -> ControlFlow<()> {
            match self.2 {
                None => ControlFlow::Continue(()),
                Some(_) => ControlFlow::Break(()),
            }
        }

        fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
            waiting[0] = Source::new(self.0).with_options(self.1);
            usize::from(self.2.is_none())
        }

        fn admitted(&mut self, _: &[u32]) {
            panic!("it was admitted");
        }

        fn refused(&mut self, error: Error) {
            self.2 = Some(error);
        }

        fn is_cancelled(&self, _: u32) -> bool {
            false
        }

        fn on_event(&mut self, _: Event<'_>) -> ControlFlow<Stop> {
            ControlFlow::Continue(())
        }
    }

    let model = model();
    let mut session = Session::new(&model, limits()).expect("a session");
    let options = model.config().search_options();
    let mut queue = Lends(&[1, 2], &options, None);
    session.serve(&mut queue, &options, &mut Hooks::default()).expect("served");
    let text =
        "source 0: expected a request without options, which the queue shares, found lent options";
    assert_eq!(queue.2.expect("refused").to_string(), text);
}
