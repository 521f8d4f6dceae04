//! `Session::serve`: requests that arrive, are refused and are cancelled while others are decoded. Each has the result
//! that `generate` has for it alone.

use crate::random_model::{Dims, Random};
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Context, Finish, Hooks, LogitsProcessor, SampleOptions, SearchOptions, Strategy,
};
use simdformer::{
    DecodeStats, Error, Event, Features, Limits, Model, RequestQueue, Session, SessionPool, Source,
    SourceId, Stop,
};

const VOCABULARY: usize = 131;
const SLOTS: usize = 3;
const LONGEST: usize = 12;

fn limits() -> Limits {
    Limits { beams: 4, ..Limits::new(SLOTS, LONGEST, 20) }
}

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("a model")
}

fn searches(model: &Model) -> Vec<SearchOptions> {
    let base = SearchOptions {
        max_new_tokens: Some(14),
        max_length: None,
        ..model.config().search_options()
    };
    let beams = BeamOptions { beams: 4, ..BeamOptions::default() };
    let samples = Strategy::Sample(SampleOptions { temperature: 0.7, ..Default::default() });
    vec![
        SearchOptions { scores: false, ..base.clone() },
        SearchOptions { strategy: Strategy::Beam(beams), num_return_sequences: 2, ..base.clone() },
        SearchOptions { strategy: samples, num_return_sequences: 2, ..base },
    ]
}

/// The tokens of each hypothesis and the bits of its score.
type Result = Vec<(Vec<u32>, u32)>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    finish: Option<Finish>,
    result: Result,
    streamed: Vec<u32>,
}

/// Requests of random lengths that arrive in groups of random sizes.
struct Queue {
    sources: Vec<Vec<u32>>,
    /// The number of each request that waits.
    waiting: Vec<usize>,
    /// The first that has not arrived.
    next: usize,
    /// The number of the request in each slot.
    slots: [Option<usize>; SLOTS],
    outcomes: Vec<Outcome>,
    refused: Vec<(usize, Error)>,
    /// Requests that are cancelled when they have been decoded for some steps.
    cancel: Vec<bool>,
    steps: Vec<usize>,
    random: Random,
    most: usize,
    /// Ends the call after this many steps.
    end: usize,
}

impl Queue {
    fn new(sources: Vec<Vec<u32>>, seed: u64) -> Self {
        let count = sources.len();
        Self {
            sources,
            waiting: Vec::new(),
            next: 0,
            slots: [None; SLOTS],
            outcomes: vec![Outcome::default(); count],
            refused: Vec::new(),
            cancel: vec![false; count],
            steps: vec![0; count],
            random: Random(seed),
            most: 0,
            end: usize::MAX,
        }
    }
}

impl RequestQueue for Queue {
    fn before_step(
        &mut self,
        _: &mut Session<'_>,
        active: usize,
        stats: &DecodeStats,
    ) -> ControlFlow<()> {
        assert_eq!(active, self.slots.iter().flatten().count());
        self.most = self.most.max(active);
        self.slots.iter().flatten().for_each(|&number| self.steps[number] += 1);
        let arrived = self.random.ids(1, 3)[0] as usize;
        for _ in 0..arrived.min(self.sources.len() - self.next) {
            self.waiting.push(self.next);
            self.next += 1;
        }
        let left = active + self.waiting.len() + self.sources.len() - self.next;
        if left == 0 || stats.steps >= self.end {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        let fill = waiting.iter_mut().zip(&self.waiting);
        fill.map(|(source, &number)| {
            *source = Source { stream: number as u64, ..Source::new(&self.sources[number]) };
        })
        .count()
    }

    fn admitted(&mut self, slots: &[u32]) {
        for (&slot, number) in slots.iter().zip(self.waiting.drain(..slots.len())) {
            assert_eq!(self.slots[slot as usize].replace(number), None, "a slot of another");
        }
    }

    fn refused(&mut self, error: Error) {
        self.refused.push((self.waiting.remove(0), error));
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        let number = self.slots[slot as usize].expect("a request");
        self.cancel[number] && self.steps[number] > number % 5
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        match event {
            Event::Token { source, token } if token.sequence == 0 => {
                let number = self.slots[source].expect("a request");
                self.outcomes[number].streamed.push(token.id);
            }
            Event::Done(done) => {
                let number = self.slots[done.source].take().expect("a request");
                let outcome = &mut self.outcomes[number];
                assert_eq!(outcome.finish.replace(done.finish), None, "done twice");
                outcome.result = done
                    .hypotheses()
                    .map(|hypothesis| (hypothesis.tokens.to_vec(), hypothesis.score.to_bits()))
                    .collect();
            }
            _ => (),
        }
        ControlFlow::Continue(())
    }
}

fn sources(count: usize) -> Vec<Vec<u32>> {
    let mut random = Random(3);
    (0..count)
        .map(|_| {
            let len = 1 + random.ids(1, LONGEST)[0] as usize;
            random.ids(len, VOCABULARY)
        })
        .collect()
}

/// The result of `generate` with one source.
fn alone(session: &mut Session<'_>, ids: &[u32], stream: u64, options: &SearchOptions) -> Result {
    let mut result = Vec::new();
    let source = Source { stream, ..Source::new(ids) };
    session
        .generate(&[source], options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                let hypotheses = done.hypotheses();
                result = hypotheses.map(|one| (one.tokens.to_vec(), one.score.to_bits())).collect();
            }
        })
        .expect("generated");
    result
}

#[test]
fn each_request_has_the_result_of_generate_with_it_alone() {
    let model = model();
    let sources = sources(30);
    for (number, options) in searches(&model).iter().enumerate() {
        let mut session = Session::new(&model, limits()).expect("a session");
        let mut queue = Queue::new(sources.clone(), 7 + number as u64);
        let stats = session.serve(&mut queue, options, &mut Hooks::default()).expect("served");
        assert_eq!((queue.most, stats.cancelled), (SLOTS, 0));
        for (number, outcome) in queue.outcomes.iter().enumerate() {
            let expected = alone(&mut session, &sources[number], number as u64, options);
            assert_eq!(outcome.result, expected, "request {number}");
            assert_eq!(outcome.streamed, expected[0].0, "request {number}");
        }
    }
}

#[test]
fn cancelled_and_refused_requests_change_no_other() {
    let model = model();
    let mut sources = sources(30);
    // No tokens, too many, and one outside the vocabulary.
    sources[4] = Vec::new();
    sources[5] = vec![1; LONGEST + 1];
    sources[17] = vec![1, VOCABULARY as u32];
    for options in &searches(&model) {
        let mut session = Session::new(&model, limits()).expect("a session");
        let mut queue = Queue::new(sources.clone(), 5);
        queue.cancel = (0..sources.len()).map(|number| number % 3 == 1).collect();
        // Alone at the end, so that no other request makes the step at which it would leave.
        *queue.cancel.last_mut().expect("a request") = true;
        let stats = session.serve(&mut queue, options, &mut Hooks::default()).expect("served");
        let refused: Vec<usize> = queue.refused.iter().map(|&(number, _)| number).collect();
        assert_eq!(refused, [4, 5, 17]);
        for (number, error) in &queue.refused {
            assert!(error.index() == Some(*number), "{error}");
        }
        assert!(
            queue.refused[0].1.to_string().ends_with("expected at least one token, found none")
        );
        let mut stopped = 0;
        for (number, outcome) in queue.outcomes.iter().enumerate() {
            if refused.contains(&number) {
                assert_eq!(*outcome, Outcome::default());
                continue;
            }
            let expected = alone(&mut session, &sources[number], number as u64, options);
            if outcome.finish == Some(Finish::Stopped) {
                assert!(queue.cancel[number], "request {number} was stopped");
                assert!(expected[0].0.starts_with(&outcome.streamed), "request {number}");
                stopped += 1;
            } else {
                assert_eq!(outcome.result, expected, "request {number}");
            }
        }
        assert!(stopped > 3, "{stopped} were cancelled");
        assert_eq!(stats.cancelled, stopped);
        assert_eq!(session.free_sentences(), SLOTS);
    }
}

#[test]
fn the_end_of_the_call_reports_what_is_decoded() {
    let model = model();
    let options = &searches(&model)[0];
    let mut session = Session::new(&model, limits()).expect("a session");
    let mut queue = Queue::new(sources(8), 11);
    queue.end = 3;
    let stats = session.serve(&mut queue, options, &mut Hooks::default()).expect("served");
    let stopped = |outcome: &&Outcome| outcome.finish == Some(Finish::Stopped);
    let stopped = queue.outcomes.iter().filter(stopped).count();
    assert!(stopped > 0 && stats.cancelled == stopped && stats.steps == 3, "{stats:?}");
    assert_eq!(session.free_sentences(), SLOTS);
}

/// Every call that takes several sources names the one that it refuses, whatever is wrong with it and wherever it stands.
#[test]
fn errors_have_the_index_of_their_source() {
    const COUNT: usize = 5;
    let model = model();
    let options = &searches(&model)[0];
    let healthy = sources(COUNT);
    let (empty, long, foreign) = (vec![], vec![1; LONGEST + 1], vec![1, VOCABULARY as u32]);
    let (outside, prompt) = ([VOCABULARY as u32], [1; 20]);
    let plain = |tokens| Source::new(tokens);
    let mistakes = [
        ("no tokens", plain(&empty)),
        ("too many", plain(&long)),
        ("outside the vocabulary", plain(&foreign)),
        ("a prefix outside", Source { prefix: &outside, ..plain(&healthy[0]) }),
        ("a prefix without space", Source { prefix: &prompt, ..plain(&healthy[0]) }),
        (
            "a first token outside",
            Source { forced_bos: Some(VOCABULARY as u32), ..plain(&healthy[0]) },
        ),
        ("features", Source::of_features(Features::default())),
    ];
    let limits = Limits { sentences: COUNT, batch_tokens: COUNT * (LONGEST + 1), ..limits() };
    let mut session = Session::new(&model, limits).expect("a session");
    let mut pool = SessionPool::new(&model, limits, 2).expect("a pool");
    let mut checked = 0;
    for place in 0..COUNT {
        for (what, mistake) in &mistakes {
            let mut all: Vec<Source<'_>> = healthy.iter().map(|ids| Source::new(ids)).collect();
            all[place] = *mistake;
            let mut check = |call: &str, error: Error| {
                let right = error.index() == Some(place);
                assert!(right, "{call}, {what} at {place}: {error}");
                checked += 1;
            };
            let mut hooks = Hooks::default();
            let found = session.generate(&all, options, &mut hooks, &mut |_| ());
            check("generate", found.expect_err("an error"));
            let found = pool.generate(&all, options, &|_: Event<'_>| ());
            check("a pool", found.expect_err("an error"));
            let mut hooks = Hooks::default();
            let mut refused = Vec::new();
            let found = session.generate(&all, options, &mut hooks, &mut |event: Event<'_>| {
                if let Event::Refused { source, error } = event {
                    refused.push((source, error.clone()));
                    return ControlFlow::Break(Stop::Source);
                }
                ControlFlow::Continue(())
            });
            found.expect("the others");
            let [(source, error)] = &refused[..] else { panic!("{refused:?}") };
            assert_eq!(*source, place);
            check("an event", error.clone());
            let mut queue = Requests { sources: all.clone(), ..Requests::default() };
            session.serve(&mut queue, options, &mut Hooks::default()).expect("the others");
            let [error] = &queue.refused[..] else { panic!("{:?}", queue.refused) };
            check("serve", error.clone());
            if mistake.prefix.is_empty()
                && mistake.forced_bos.is_none()
                && mistake.features.is_none()
            {
                let ids: Vec<&[u32]> = all.iter().map(|source| source.tokens).collect();
                let mut slots = vec![SourceId::default(); COUNT];
                check("encode", session.encode(&ids, &mut slots).expect_err("an error"));
                check("encoder_output", session.encoder_output(&ids).expect_err("an error"));
            }
        }
    }
    assert_eq!(checked, COUNT * (mistakes.len() * 4 + 3 * 2));
}

/// Requests that all wait from the beginning.
#[derive(Default)]
struct Requests<'s> {
    sources: Vec<Source<'s>>,
    next: usize,
    refused: Vec<Error>,
}

impl RequestQueue for Requests<'_> {
    fn before_step(
        &mut self,
        _: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        if active == 0 && self.next == self.sources.len() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        waiting.iter_mut().zip(&self.sources[self.next..]).map(|(to, from)| *to = *from).count()
    }

    fn admitted(&mut self, slots: &[u32]) {
        self.next += slots.len();
    }

    fn refused(&mut self, error: Error) {
        self.next += 1;
        self.refused.push(error);
    }

    fn is_cancelled(&self, _: u32) -> bool {
        false
    }

    fn on_event(&mut self, _: Event<'_>) -> ControlFlow<Stop> {
        ControlFlow::Continue(())
    }
}

/// A processor that fails for one request, in whatever slot it is, also after others were refused.
#[test]
fn an_error_of_a_processor_has_the_number_of_its_request() {
    struct FailsFor(u32);
    impl LogitsProcessor for FailsFor {
        fn process(
            &mut self,
            context: &Context<'_>,
            _: &mut [f32],
        ) -> core::result::Result<(), Error> {
            if context.history.get(1) == Some(&self.0) {
                return Err(Error::processor("a test"));
            }
            Ok(())
        }
    }
    const COUNT: usize = 14;
    let model = model();
    let options = &searches(&model)[0];
    let mut session = Session::new(&model, limits()).expect("a session");
    // The target of each begins with a token of its own. Some have no tokens.
    let prefixes: Vec<[u32; 1]> = (0..COUNT as u32).map(|number| [10 + number]).collect();
    let request = |number: usize| {
        let tokens: &[u32] = if number % 5 == 3 { &[] } else { &[9, 7, 0] };
        Source { prefix: &prefixes[number], ..Source::new(tokens) }
    };
    for number in (0..COUNT).filter(|number| number % 5 != 3) {
        let sources = (0..COUNT).map(request).collect();
        let mut queue = Requests { sources, ..Requests::default() };
        let mut fails = FailsFor(10 + number as u32);
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut fails];
        let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
        let error = session.serve(&mut queue, options, &mut hooks).expect_err("an error");
        assert!(error.index() == Some(number), "{error}");
    }
}

/// An error of a processor ends the call with the number of its request, and the session stays usable.
#[test]
fn an_error_of_a_processor_ends_the_call() {
    struct Fails;
    impl LogitsProcessor for Fails {
        fn process(
            &mut self,
            context: &Context<'_>,
            _: &mut [f32],
        ) -> core::result::Result<(), Error> {
            // The third sentence is in slot 2, because no other ends so early.
            if context.sentence == 2 && context.history.len() > 2 {
                return Err(Error::processor("a test"));
            }
            Ok(())
        }
    }
    let model = model();
    let options = &searches(&model)[0];
    let mut session = Session::new(&model, limits()).expect("a session");
    let mut queue = Queue::new(vec![vec![5, 6, 7, 0]; 5], 2);
    let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut Fails];
    let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
    let error = session.serve(&mut queue, options, &mut hooks).expect_err("an error");
    assert!(error.index() == Some(2), "{error}");
    assert_eq!(session.free_sentences(), SLOTS);
    let mut queue = Queue::new(sources(5), 2);
    session.serve(&mut queue, options, &mut Hooks::default()).expect("served");
    assert!(queue.outcomes.iter().all(|outcome| outcome.finish.is_some()));
}
