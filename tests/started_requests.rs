//! `RequestQueue::started`: requests whose source the queue has encoded, and whose prompt it has fed in part or whole. Several
//! attempts at a source, one after the other or beside each other, have the results of `generate` with each alone.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Finish, Hooks, SampleOptions, SearchOptions, Strategy, Timestamps,
};
use simdformer::{
    DecodeStats, Error, Event, HypothesisId, Limits, Model, RequestQueue, Session, Source,
    SourceId, Stop,
};
use std::collections::VecDeque;
use std::sync::Arc;

const VOCABULARY: usize = 131;
const SLOTS: usize = 3;
const LONGEST: usize = 12;
const BEAMS: usize = 4;

/// The options of the attempts at a source.
fn attempts(model: &Model) -> Vec<Arc<SearchOptions>> {
    let base = SearchOptions {
        max_new_tokens: Some(10),
        max_length: None,
        ..model.config().search_options()
    };
    let beams = |beams| Strategy::Beam(BeamOptions { beams, ..BeamOptions::default() });
    let samples = Strategy::Sample(SampleOptions { temperature: 0.7, ..Default::default() });
    let timestamps = Timestamps { no_timestamps: 60, eos: base.eos[0], max_initial: Some(9) };
    [
        SearchOptions { scores: false, ..base.clone() },
        SearchOptions { strategy: beams(BEAMS), num_return_sequences: 2, ..base.clone() },
        SearchOptions { strategy: samples, num_return_sequences: BEAMS, ..base.clone() },
        SearchOptions { timestamps: Some(timestamps), scores: false, ..base.clone() },
        SearchOptions { timestamps: Some(timestamps), strategy: beams(2), ..base },
    ]
    .map(Arc::new)
    .to_vec()
}

/// Why an attempt ended, the tokens of its hypotheses and the bits of their scores.
type Outcome = (Finish, Vec<(Vec<u32>, u32)>);

struct Attempt {
    /// The index of its source, and its number.
    of: (usize, usize),
    source: SourceId,
    hypothesis: HypothesisId,
    /// The steps after which it is cancelled.
    cancelled_after: usize,
}

struct Queue<'q> {
    sources: &'q [Vec<u32>],
    prefixes: &'q [Vec<u32>],
    options: Vec<Arc<SearchOptions>>,
    /// The next source to encode.
    next: usize,
    waiting: VecDeque<Attempt>,
    slots: [Option<Attempt>; SLOTS],
    ended: Vec<Attempt>,
    outcomes: Vec<Vec<Outcome>>,
    cancels: bool,
    random: Random,
}

impl Queue<'_> {
    /// Begins attempt `number` at a source, and feeds some of its prompt.
    fn begin(&mut self, session: &mut Session<'_>, source: SourceId, of: (usize, usize)) {
        let hypothesis = session.start(source).expect("a free hypothesis");
        let prompt = [&[self.options[of.1].start][..], &self.prefixes[of.0]].concat();
        let fed = self.random.below(prompt.len() + 1);
        session.prefill(hypothesis, &prompt[..fed], None).expect("fed");
        let cancelled_after = match self.cancels && self.random.below(3) == 0 {
            true => 1 + self.random.below(6),
            false => usize::MAX,
        };
        self.waiting.push_back(Attempt { of, source, hypothesis, cancelled_after });
    }
}

impl RequestQueue for Queue<'_> {
    fn before_step(
        &mut self,
        session: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        for Attempt { of: (index, number), source, .. } in core::mem::take(&mut self.ended) {
            if number + 1 < self.options.len() {
                self.begin(session, source, (index, number + 1));
            } else {
                session.release_sentence(source).expect("encoded");
            }
        }
        while self.next < self.sources.len() && session.free_sentences() > 0 {
            let mut source = [SourceId::default()];
            session.encode(&[&self.sources[self.next]], &mut source).expect("encoded");
            self.begin(session, source[0], (self.next, 0));
            self.next += 1;
        }
        self.slots.iter_mut().flatten().for_each(|attempt| {
            attempt.cancelled_after = attempt.cancelled_after.saturating_sub(1);
        });
        match active + self.waiting.len() {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        let fill = waiting.iter_mut().zip(&self.waiting);
        fill.map(|(source, attempt)| {
            let prefix = &self.prefixes[attempt.of.0];
            *source = Source { prefix, stream: attempt.of.1 as u64, ..Source::new(&[]) };
        })
        .count()
    }

    fn options(&self, index: usize) -> Option<Arc<SearchOptions>> {
        self.waiting.get(index).map(|attempt| Arc::clone(&self.options[attempt.of.1]))
    }

    fn started(&self, index: usize) -> Option<HypothesisId> {
        self.waiting.get(index).map(|attempt| attempt.hypothesis)
    }

    fn admitted(&mut self, slots: &[u32]) {
        for (&slot, attempt) in slots.iter().zip(self.waiting.drain(..slots.len())) {
            assert!(self.slots[slot as usize].replace(attempt).is_none(), "a slot of another");
        }
    }

    fn refused(&mut self, error: Error) {
        panic!("refused: {error}");
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        self.slots[slot as usize].as_ref().is_some_and(|attempt| attempt.cancelled_after == 0)
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        if let Event::Done(done) = event {
            let attempt = self.slots[done.source].take().expect("an attempt");
            let found = done.hypotheses();
            let found = found.map(|one| (one.tokens.to_vec(), one.score.to_bits())).collect();
            self.outcomes[attempt.of.0].push((done.finish, found));
            self.ended.push(attempt);
        }
        ControlFlow::Continue(())
    }
}

fn parts() -> (Model, Limits) {
    let model = Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best());
    (model.expect("a model"), Limits { beams: BEAMS, ..Limits::new(SLOTS, LONGEST, 20) })
}

#[test]
fn attempts_at_encoded_sources_have_the_results_of_each_alone() {
    let (model, limits) = parts();
    let options = attempts(&model);
    let mut random = Random(17);
    let some = |random: &mut Random, least: usize, most: usize| {
        let count = least + random.below(most - least + 1);
        random.ids(count, VOCABULARY)
    };
    let sources: Vec<Vec<u32>> =
        (0..cases(40, 400)).map(|_| some(&mut random, 1, LONGEST)).collect();
    let prefixes: Vec<Vec<u32>> = sources.iter().map(|_| some(&mut random, 0, 5)).collect();
    let mut session = Session::new(&model, limits).expect("a session");
    let mut stopped = 0;
    for cancels in [false, true] {
        let mut queue = Queue {
            sources: &sources,
            prefixes: &prefixes,
            options: options.clone(),
            next: 0,
            waiting: VecDeque::new(),
            slots: [const { None }; SLOTS],
            ended: Vec::new(),
            outcomes: vec![Vec::new(); sources.len()],
            cancels,
            random: Random(5),
        };
        session.serve(&mut queue, &options[0], &mut Hooks::default()).expect("served");
        for (index, outcomes) in queue.outcomes.iter().enumerate() {
            assert_eq!(outcomes.len(), options.len());
            for (number, (finish, found)) in outcomes.iter().enumerate() {
                if *finish == Finish::Stopped {
                    stopped += 1;
                    continue;
                }
                let source = Source {
                    prefix: &prefixes[index],
                    stream: number as u64,
                    ..Source::new(&sources[index])
                };
                let mut expected = None;
                session
                    .generate(&[source], &options[number], &mut Hooks::default(), &mut |event| {
                        if let Event::Done(done) = event {
                            let one = done.hypotheses();
                            let one = one.map(|one| (one.tokens.to_vec(), one.score.to_bits()));
                            expected = Some((done.finish, one.collect()));
                        }
                    })
                    .expect("generated");
                assert_eq!(Some((*finish, found.clone())), expected, "{index}, {number}");
            }
        }
        assert_eq!(stopped > 20, cancels, "{stopped}");
    }
}

/// A hypothesis begins one request.
#[test]
fn a_started_hypothesis_is_used_once() {
    /// Three requests with one hypothesis.
    #[derive(Default)]
    struct Twice {
        hypothesis: Option<HypothesisId>,
        waiting: usize,
        admitted: usize,
        refused: Vec<Error>,
    }

    impl RequestQueue for Twice {
        fn before_step(
            &mut self,
            session: &mut Session<'_>,
            active: usize,
            _: &DecodeStats,
        ) -> ControlFlow<()> {
            self.hypothesis.get_or_insert_with(|| {
                let mut source = [SourceId::default()];
                session.encode(&[&[1, 2]], &mut source).expect("encoded");
                session.start(source[0]).expect("started")
            });
            match active + self.waiting {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }

        fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
            let count = waiting.len().min(self.waiting);
            waiting[..count].fill(Source::new(&[]));
            count
        }

        fn started(&self, _: usize) -> Option<HypothesisId> {
            self.hypothesis
        }

        fn admitted(&mut self, slots: &[u32]) {
            self.waiting -= slots.len();
            self.admitted += slots.len();
        }

        fn refused(&mut self, error: Error) {
            self.waiting -= 1;
            self.refused.push(error);
        }

        fn is_cancelled(&self, _: u32) -> bool {
            false
        }

        fn on_event(&mut self, _: Event<'_>) -> ControlFlow<Stop> {
            ControlFlow::Continue(())
        }
    }

    let (model, limits) = parts();
    let mut session = Session::new(&model, limits).expect("a session");
    let mut queue = Twice { waiting: 3, ..Twice::default() };
    let options = &attempts(&model)[0];
    session.serve(&mut queue, options, &mut Hooks::default()).expect("served");
    assert_eq!((queue.admitted, queue.refused.len()), (1, 2));
    let unknown = |error: &Error| matches!(error, Error::InvalidHandle { .. });
    assert!(queue.refused.iter().all(unknown), "{:?}", queue.refused);
}
