//! Values that are not finite: a sentence whose scores are NaN or `+inf` ends without an effect on others,
//! and no valid option makes such scores from finite ones.

use crate::naive::Rules;
use crate::naive_options::{PLAIN, beam, options, toy};
use crate::random_model::{Dims, Random};
use crate::scoped::Scoped;
use crate::search_guarantees::all_strategies;
use crate::toy::{Outcome, Toy, run_on, run_search};
use simdformer::checkpoint::TensorId;
use simdformer::config::Family;
use simdformer::kernels::Parallelism;
use simdformer::search::*;
use simdformer::{
    Drafter, Dtype, Event, Limits, Model, PromptLookup, Quantization, ReferenceDrafter, Session,
    Source, WeightDtype, WeightDtypes,
};

/// Bits, so that NaN equals itself.
type Bits = (Option<Finish>, Vec<(Vec<u32>, u32)>, Vec<(u32, u32, u32, Option<u32>)>);

fn bits(outcome: &Outcome) -> Bits {
    let hypotheses = outcome.hypotheses.iter().map(|(ids, score)| (ids.clone(), score.to_bits()));
    let streamed = outcome.streamed.iter();
    let streamed =
        streamed.map(|t| (t.sequence, t.index, t.id, t.log_probability.map(f32::to_bits)));
    (outcome.finish, hypotheses.collect(), streamed.collect())
}

/// On one thread, and on threads that prepare the rows.
#[test]
fn only_the_poisoned_sentence_ends() {
    for options in all_strategies() {
        for (vocabulary, threads) in [(20, 1), (1200, 3)] {
            for nan_from in [1, 4] {
                let sentence = |i: u32, nan_from| {
                    let toy = Toy { vocabulary, nan_from, ..toy(i) };
                    (toy, Request { stream: u64::from(100 + i), ..Request::default() })
                };
                let never = usize::MAX;
                let sentences = [sentence(0, never), sentence(1, nan_from), sentence(2, never)];
                let executor = Scoped(threads);
                let on = Parallelism::Executor(&executor);
                let found = run_on(on, &options, &sentences, 13, usize::MAX);
                let found = found.expect("the other sentences go on");
                for (i, sentence) in sentences.iter().enumerate() {
                    let alone = run_search(&options, &[*sentence], 13).expect("a search");
                    assert_eq!(bits(&found[i]), bits(&alone[0]), "{i} {nan_from} {options:?}");
                    assert_eq!(found[i].finish == Some(Finish::NotFinite), i == 1, "{options:?}");
                }
                // The poisoned sentence keeps the tokens that it had before.
                let whole = &run_search(&options, &[sentence(1, never)], 13).expect("a search")[0];
                let (part, chosen) = (&found[1], nan_from - 1);
                assert!(!part.hypotheses.is_empty());
                for (tokens, score) in &part.hypotheses {
                    assert!(tokens.len() <= chosen && !score.is_nan(), "{options:?}");
                }
                if !matches!(options.strategy, Strategy::Beam(_)) {
                    for (part, whole) in part.hypotheses.iter().zip(&whole.hypotheses) {
                        assert_eq!(part.0, whole.0[..chosen.min(whole.0.len())], "{options:?}");
                    }
                    assert_eq!(part.streamed, whole.streamed[..part.streamed.len()]);
                }
            }
        }
    }
}

/// A model with finite weights. The row `poison` of an embedding is so large that the results computed from
/// it overflow.
fn model(forms: &WeightDtypes, poison: Option<(TensorId, usize)>) -> Model {
    let dims = Dims { vocabulary: 400, ..Dims::small(Family::NnTransformer) };
    let mut random = Random(11);
    let filled = Model::from_fn_with(dims.config(), forms.clone(), |role, shape, out| {
        let norm = role.to_string().ends_with("norm.weight");
        let inputs = shape[1..].iter().product::<usize>() as f32;
        let embeds = [TensorId::SourceEmbedding, TensorId::TargetEmbedding].contains(&role);
        for x in out.iter_mut() {
            *x = match shape {
                [_] if norm => 1.0,
                [_] => 0.0,
                _ if embeds => random.symmetric(),
                _ => 2.0 * random.symmetric() / inputs.sqrt(),
            };
        }
        if let Some((_, row)) = poison.filter(|poison| poison.0 == role) {
            out[row * shape[1]..][..shape[1]].fill(3e38);
        }
        Ok(())
    });
    filled.expect("a model")
}

/// The finish, the tokens and the bits of the score of each hypothesis, and the streamed tokens.
type Done = (Finish, Vec<(Vec<u32>, u32)>, Vec<u32>);

fn generate(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
    drafter: Option<&mut dyn Drafter>,
) -> Vec<Done> {
    let mut found = vec![None; sources.len()];
    let mut streamed = vec![Vec::new(); sources.len()];
    let mut on_event = |event: Event<'_>| match event {
        Event::Token { source, token } => streamed[source].push(token.id),
        Event::Done(done) => {
            let hypotheses = done.hypotheses().map(|h| (h.tokens.to_vec(), h.score.to_bits()));
            let done_once = found[done.source].replace((done.finish, hypotheses.collect()));
            assert!(done_once.is_none());
        }
        _ => (),
    };
    let hooks = &mut Hooks::default();
    let counts = match drafter {
        Some(drafter) => session.generate_drafted(sources, options, hooks, drafter, &mut on_event),
        None => session.generate(sources, options, hooks, &mut on_event),
    };
    counts.expect("the call goes on");
    let found = found.into_iter().map(|found| found.expect("every source is reported"));
    found.zip(streamed).map(|((finish, hypotheses), ids)| (finish, hypotheses, ids)).collect()
}

#[test]
fn a_source_that_overflows_ends_alone() {
    const POISON: usize = 7;
    let [a, b, c, d] =
        [&[5, 9, 3, 2][..], &[6, POISON as u32, 8, 2], &[11, 12, 2], &[4, 4, 9, 9, 2]];
    let sources = [a, b, c, d].map(Source::new);
    let sources = core::array::from_fn::<_, 4, _>(|i| Source { stream: i as u64, ..sources[i] });
    let clean_sources = [sources[0], sources[2], sources[3]];
    let beams = |groups| Strategy::Beam(BeamOptions { beams: 2, groups, ..BeamOptions::default() });
    let drawn = SampleOptions { seed: 3, ..SampleOptions::default() };
    let drawn_beams = Strategy::Beam(BeamOptions {
        beams: 2,
        sample: Some(drawn.clone()),
        ..BeamOptions::default()
    });
    for dtype in [Dtype::F32.into(), WeightDtype::from(Quantization::W8A8)] {
        let forms = WeightDtypes::all(dtype);
        let poisoned = model(&forms, Some((TensorId::SourceEmbedding, POISON)));
        let limits = Limits { beams: 2, draft_tokens: 8, ..Limits::new(3, 8, 12) };
        let mut session = Session::new(&poisoned, limits).expect("a session");
        for (strategy, scores) in [
            (Strategy::Greedy, true),
            (Strategy::Greedy, false),
            (Strategy::Sample(drawn.clone()), true),
            (beams(1), true),
            (beams(2), true),
            (drawn_beams.clone(), true),
        ] {
            let options = SearchOptions {
                strategy,
                scores,
                max_new_tokens: Some(9),
                ..session.search_options()
            };
            let expected = generate(&mut session, &clean_sources, &options, None);
            let known: Vec<&[u32]> = expected.iter().map(|one| &one.1[0].0[..]).collect();
            let known = [known[0], &[1, 2, 3], known[1], known[2]];
            let mut given = ReferenceDrafter(&known);
            let drafters: [Option<&mut dyn Drafter>; 3] =
                [None, Some(&mut given), Some(&mut PromptLookup { shortest: 1 })];
            for drafter in drafters {
                let found = generate(&mut session, &sources, &options, drafter);
                let [first, broken, rest @ ..] = &found[..] else { panic!() };
                assert_eq!(core::slice::from_ref(first), &expected[..1], "{options:?}");
                assert_eq!(rest, &expected[1..], "{options:?}");
                assert_eq!(broken.0, Finish::NotFinite, "{options:?}");
                assert!(broken.1.iter().all(|one| one.0.is_empty()) && broken.2.is_empty());
            }
        }
    }
}

/// The scores are finite until a token is fed whose embedding overflows.
#[test]
fn tokens_chosen_before_an_overflow_stay() {
    let forms = WeightDtypes::as_stored();
    let clean = model(&forms, None);
    let sources = [&[5, 9, 3, 2][..], &[6, 8, 2], &[11, 12, 2]].map(Source::new);
    let limits = Limits { draft_tokens: 12, ..Limits::new(3, 8, 16) };
    let mut session = Session::new(&clean, limits).expect("a session");
    let sample = Strategy::Sample(SampleOptions { seed: 3, ..SampleOptions::default() });
    for (strategy, scores) in [(Strategy::Greedy, true), (Strategy::Greedy, false), (sample, true)]
    {
        let options = SearchOptions {
            strategy,
            scores,
            max_new_tokens: Some(12),
            min_new_tokens: 8,
            no_repeat_ngram: Some(1),
            ..clean.config().search_options()
        };
        let expected = generate(&mut session, &sources, &options, None);
        let others = |id: &u32| !expected[0].2.contains(id) && !expected[2].2.contains(id);
        let at = (2..7).find(|&at| others(&expected[1].2[at])).expect("a token of its own");
        let token = expected[1].2[at] as usize;
        let poisoned = model(&forms, Some((TensorId::TargetEmbedding, token)));
        let mut session = Session::new(&poisoned, limits).expect("a session");
        let known: Vec<&[u32]> = expected.iter().map(|one| &one.2[..]).collect();
        let mut given = ReferenceDrafter(&known);
        let drafters: [Option<&mut dyn Drafter>; 2] = [None, Some(&mut given)];
        for drafter in drafters {
            let found = generate(&mut session, &sources, &options, drafter);
            assert_eq!((&found[0], &found[2]), (&expected[0], &expected[2]));
            assert_eq!(found[1].0, Finish::NotFinite);
            assert_eq!(found[1].2, expected[1].2[..=at]);
            assert_eq!(found[1].1[0].0, expected[1].2[..=at]);
        }
    }
}

/// Settings at the ends of their ranges, with scores of any size, end no sentence.
#[test]
fn valid_options_keep_finite_scores_finite() {
    let rules = Rules::none(&[1]);
    let extremes = |base: SearchOptions| {
        [
            SearchOptions { exponential_decay: Some((1, 1e300)), ..base.clone() },
            SearchOptions { exponential_decay: Some((0, 1e-300)), ..base.clone() },
            SearchOptions { repetition_penalty: 1e-38, ..base.clone() },
            SearchOptions { repetition_penalty: 1e38, ..base.clone() },
            SearchOptions { sequence_bias: vec![(vec![4], f32::MAX)], ..base.clone() },
            SearchOptions { renormalize: true, sequence_bias: vec![(vec![4], f32::MIN)], ..base },
        ]
    };
    let mut ended = 0;
    for temperature in [1e-45, 1e-38, 1e38] {
        let sample = SampleOptions { seed: 5, temperature, ..SampleOptions::default() };
        let filtered = SampleOptions {
            top_h: Some(0.9),
            top_k: Some(9),
            top_p: Some(0.9),
            min_p: Some(0.01),
            typical: Some(0.9),
            epsilon: Some(1e-3),
            eta: Some(1e-3),
            ..sample.clone()
        };
        let drawn = BeamOptions { sample: Some(sample.clone()), ..BeamOptions::default() };
        for strategy in [
            Strategy::Greedy,
            Strategy::Sample(sample),
            Strategy::Sample(filtered),
            beam(PLAIN),
            Strategy::Beam(drawn),
        ] {
            let base = options(&rules, strategy);
            for options in [base.clone()].into_iter().chain(extremes(base)) {
                for scale in [1e-30, 1.0, 1e30, 5e37] {
                    let sentences = [0, 1].map(|i| {
                        let toy = Toy { vocabulary: 20, scale, end: 0.0, ..toy(i) };
                        (toy, Request { stream: u64::from(i), ..Request::default() })
                    });
                    let found = run_search(&options, &sentences, 9);
                    for one in found.unwrap_or_else(|error| panic!("{error}: {options:?}")) {
                        let finish = one.finish.expect("it ends");
                        assert!(
                            matches!(finish, Finish::End | Finish::Length),
                            "{finish:?} {scale} {options:?}"
                        );
                        assert!(one.hypotheses.iter().all(|h| !h.1.is_nan()), "{options:?}");
                        ended += usize::from(finish == Finish::End);
                    }
                }
            }
        }
    }
    assert!(ended > 50, "{ended}");
}

/// At the lowest temperature sampling draws the best token.
#[test]
fn the_lowest_temperature_is_greedy() {
    for seed in 0..6 {
        let sentence = [(Toy { vocabulary: 20, ..toy(seed) }, Request::default())];
        let rules = Rules::none(&[1]);
        let greedy =
            &run_search(&options(&rules, Strategy::Greedy), &sentence, 13).expect("a search")[0];
        for temperature in [1e-45, 1e-38] {
            let cold = SampleOptions { temperature, ..SampleOptions::default() };
            let found = run_search(&options(&rules, Strategy::Sample(cold)), &sentence, 13);
            let found = &found.expect("a search")[0];
            assert_eq!(found.hypotheses[0].0, greedy.hypotheses[0].0);
            assert!(found.streamed.iter().all(|token| token.log_probability == Some(0.0)));
        }
    }
}
