//! `Session::serve`: requests that arrive, are refused and are cancelled while others are decoded. Each has the result
//! that `generate` has for it alone.

use crate::random_model::{Dims, Random};
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Context, Finish, Hooks, LogitsProcessor, SampleOptions, SearchError,
    SearchOptions, Strategy,
};
use simdformer::{
    DecodeStats, Event, Limits, Model, RequestQueue, Session, SessionError, Source, SourceError,
    Stop,
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
    refused: Vec<(usize, SessionError)>,
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
    fn before_step(&mut self, active: usize, stats: &DecodeStats) -> ControlFlow<()> {
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

    fn refused(&mut self, error: SessionError) {
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
        let first = &queue.refused[0].1;
        assert_eq!(*first, SessionError::Source { index: 0, error: SourceError::Empty });
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

/// An error of a processor ends the call with the slot of its request, and the session stays usable.
#[test]
fn an_error_of_a_processor_ends_the_call() {
    struct Fails;
    impl LogitsProcessor for Fails {
        fn process(
            &mut self,
            context: &Context<'_>,
            _: &mut [f32],
            _: &mut [u32],
        ) -> core::result::Result<(), SearchError> {
            // The third sentence is in slot 2, because no other ends so early.
            if context.sentence == 2 && context.history.len() > 2 {
                return Err(SearchError::Processor("a test"));
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
    assert!(matches!(error, SessionError::Source { index: 2, .. }), "{error}");
    assert_eq!(session.free_sentences(), SLOTS);
    let mut queue = Queue::new(sources(5), 2);
    session.serve(&mut queue, options, &mut Hooks::default()).expect("served");
    assert!(queue.outcomes.iter().all(|outcome| outcome.finish.is_some()));
}
