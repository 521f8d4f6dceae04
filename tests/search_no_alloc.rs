//! Nothing allocates after a search exists: admit, step, stream and read. There is no test harness, whose
//! thread would be counted.

use core::ops::ControlFlow;
use counting::allocations;
use simdformer::Error;
use simdformer::search::*;
use simdformer_testing::{counting, toy};
use toy::Toy;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

struct Halve;

impl LogitsProcessor for Halve {
    fn process(&mut self, _: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
        scores.iter_mut().for_each(|x| *x *= 0.5);
        Ok(())
    }
}

fn with_every_rule(strategy: Strategy, num_return_sequences: usize) -> SearchOptions {
    SearchOptions {
        strategy,
        num_return_sequences,
        max_new_tokens: Some(20),
        min_length: 5,
        min_new_tokens: 4,
        eos: vec![1, 3],
        sequence_bias: vec![(vec![8], -0.5), (vec![2, 4], 1.5)],
        repetition_penalty: 1.2,
        no_repeat_ngram: Some(3),
        bad_words: vec![vec![9], vec![6, 6]],
        forced_bos: Some(10),
        forced_eos: vec![1],
        remove_invalid: false,
        exponential_decay: Some((4, 1.1)),
        suppress: vec![30],
        begin_suppress: vec![12, 14],
        renormalize: true,
        ..SearchOptions::default()
    }
}

fn main() {
    let beam = BeamOptions::default();
    let drawn = beam.clone();
    let sample = SampleOptions {
        temperature: 1.2,
        top_h: Some(0.9),
        top_k: Some(200),
        top_p: Some(0.95),
        min_p: Some(0.001),
        typical: Some(0.97),
        epsilon: Some(1e-4),
        eta: Some(1e-4),
        ..SampleOptions::default()
    };
    let strategies = [
        with_every_rule(Strategy::Greedy, 1),
        with_every_rule(Strategy::Beam(beam.clone()), 4),
        with_every_rule(
            Strategy::Beam(BeamOptions {
                groups: 2,
                diversity_penalty: 0.5,
                early_stopping: EarlyStopping::Never,
                ..beam
            }),
            4,
        ),
        with_every_rule(Strategy::Sample(SampleOptions::default()), 4),
        with_every_rule(Strategy::Sample(sample.clone()), 4),
        with_every_rule(Strategy::Beam(BeamOptions { sample: Some(sample), ..drawn }), 4),
    ];
    let vocabulary = 2000;
    let limits = SearchLimits {
        sentences: 3,
        sequences: 4,
        max_target_length: 30,
        vocabulary,
        end_tokens: 2,
        source_tokens: 0,
    };
    let mut memory = vec![u32::MAX; words(&limits).unwrap()];
    let mut logits = vec![f32::NAN; 12 * vocabulary];
    let even: Vec<u32> = (0..vocabulary as u32).filter(|t| t % 2 == 0 || *t < 4).collect();
    let mut even = |_: &Context<'_>, allow: &mut dyn FnMut(&[u32])| allow(&even);
    let toy = Toy { seed: 3, vocabulary, scale: 1.5, end: 1.0, nan_from: usize::MAX };
    for options in &strategies {
        let mut streamed = 0usize;
        let mut observed = 0usize;
        let mut tokens = 0usize;
        let mut steps = 0usize;
        let mut search = Search::new(options, &limits, &mut memory).unwrap();
        let before = allocations();
        for prefix in [&[][..], &[5, 6], &[7]] {
            search.admit(&Request { prefix, ..Request::default() }).unwrap();
        }
        while !search.rows().is_empty() {
            let rows = search.rows();
            let logits = &mut logits[..rows.len() * vocabulary];
            for (row, logits) in rows.iter().zip(logits.chunks_exact_mut(vocabulary)) {
                toy.fill(&[row.sentence, row.position, row.token], logits);
            }
            let mut on_token = |_: u32, _: Token| {
                streamed += 1;
                ControlFlow::Continue(())
            };
            let mut halve = Halve;
            let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut halve];
            let mut observe = |_: Observation<'_>| observed += 1;
            let mut hooks = Hooks {
                processors: &mut processors,
                allowed: Some(&mut even),
                observer: Some(&mut observe),
            };
            search.advance(logits, &mut hooks, Some(&mut on_token)).unwrap();
            steps += 1;
        }
        for slot in 0..3 {
            tokens += search.hypotheses(slot).map(|h| h.tokens.len()).sum::<usize>();
            search.release(slot).unwrap();
        }
        let calls = allocations() - before;
        assert_eq!(calls, 0, "{options:?}");
        assert!(steps > 5 && tokens > 10 && streamed > 5, "{steps} steps, {tokens} tokens");
        assert!(observed > 10 * steps, "{observed} observations");
    }
    // The counter works.
    let before = allocations();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(allocations() - before, 1);
}
