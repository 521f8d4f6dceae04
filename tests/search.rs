//! Every decoding strategy against readable references, on models without weights.

#[path = "support/naive_search.rs"]
mod naive;
#[path = "support/toy.rs"]
mod toy;

use naive::{Beams, Early, Rules};
use simdformer::search::*;
use toy::{Toy, hash, run, run_until};

fn toy(seed: u32) -> Toy {
    Toy {
        seed,
        vocabulary: 19 + (seed % 4) as usize,
        scale: 1.0 + (seed % 3) as f32 * 0.7,
        end: (seed % 5) as f32 * 0.5,
    }
}

fn options(rules: &Rules, strategy: Strategy) -> SearchOptions {
    SearchOptions {
        strategy,
        eos: rules.eos.clone(),
        repetition_penalty: f64::from(rules.repetition_penalty),
        no_repeat_ngram: (rules.no_repeat_ngram > 0).then_some(rules.no_repeat_ngram),
        bad_words: rules.bad_words.clone(),
        min_length: rules.min_length,
        min_new_tokens: rules.min_new_tokens,
        forced_bos: rules.forced_bos,
        forced_eos: rules.forced_eos.into_iter().collect(),
        suppress: rules.suppress.clone(),
        begin_suppress: rules.begin_suppress.clone(),
        ..SearchOptions::default()
    }
}

fn beam(beams: Beams) -> Strategy {
    Strategy::Beam(BeamOptions {
        beams: beams.beams,
        length_penalty: beams.length_penalty,
        early_stopping: match beams.early {
            Early::True => EarlyStopping::True,
            Early::False => EarlyStopping::False,
            Early::Never => EarlyStopping::Never,
        },
        groups: beams.groups,
        diversity_penalty: f64::from(beams.diversity),
    })
}

const PLAIN: Beams =
    Beams { beams: 4, length_penalty: 1.0, early: Early::False, groups: 1, diversity: 0.0 };

fn rule_sets() -> Vec<Rules> {
    let none = Rules::none(&[1]);
    vec![
        none.clone(),
        Rules::none(&[1, 5, 6]),
        Rules::none(&[]),
        Rules { repetition_penalty: 1.3, ..none.clone() },
        Rules { no_repeat_ngram: 2, ..none.clone() },
        Rules { no_repeat_ngram: 1, min_new_tokens: 3, ..none.clone() },
        Rules { bad_words: vec![vec![7], vec![1], vec![3, 4], vec![2, 9, 1]], ..none.clone() },
        Rules { min_length: 6, forced_eos: Some(1), ..none.clone() },
        Rules { forced_bos: Some(8), begin_suppress: vec![2, 3, 11], ..none.clone() },
        Rules {
            suppress: vec![4, 10],
            begin_suppress: vec![1, 9],
            no_repeat_ngram: 3,
            repetition_penalty: 0.8,
            ..none
        },
    ]
}

fn assert_same(got: &[(Vec<u32>, f32)], want: &[(Vec<u32>, f32)], about: &dyn core::fmt::Debug) {
    assert_eq!(got.len(), want.len(), "{about:?}\n{got:?}\n{want:?}");
    for (g, w) in got.iter().zip(want) {
        assert_eq!(g.0, w.0, "{about:?}\n{got:?}\n{want:?}");
        assert!((g.1 - w.1).abs() <= 1e-4, "{about:?}: {} {}", g.1, w.1);
    }
}

#[test]
fn greedy_agrees_with_the_reference() {
    for (number, rules) in rule_sets().iter().enumerate() {
        for seed in 0..12 {
            let (toy, prefix) = (toy(seed), [[2u32, 3].as_slice(), &[]][seed as usize % 2]);
            let options = options(rules, Strategy::Greedy);
            let request = Request { prefix, ..Request::default() };
            let got = run(&options, &[(toy, request)], 17).unwrap();
            let prompt = [&[0], prefix].concat();
            let want = naive::greedy(&|h| toy.logits(h), rules, &prompt, 17);
            assert_same(&got[0].hypotheses, &[want], &(number, seed));
            let streamed: Vec<u32> = got[0].streamed.iter().map(|t| t.token).collect();
            assert_eq!(streamed, got[0].hypotheses[0].0);
        }
    }
}

#[test]
fn beam_search_agrees_with_the_reference() {
    let (mut cases, mut unlike_greedy, mut lengths_differ) = (0, 0, 0);
    for rules in &rule_sets() {
        for beams in [2, 3, 5] {
            for length_penalty in [0.0, 0.6, 1.0, 2.0, -0.5] {
                for early in [Early::True, Early::False, Early::Never] {
                    for seed in 0..6 {
                        let beams = Beams { beams, length_penalty, early, ..PLAIN };
                        let (toy, prefix) =
                            (toy(seed), [[2u32, 3].as_slice(), &[]][seed as usize % 2]);
                        let options = SearchOptions {
                            num_return: beams.beams,
                            ..options(rules, beam(beams))
                        };
                        let request = Request { prefix, ..Request::default() };
                        let got = &run(&options, &[(toy, request)], 14).unwrap()[0];
                        let prompt = [&[0], prefix].concat();
                        let model = |h: &[u32]| toy.logits(h);
                        let want = naive::beam_search(&model, rules, &prompt, 14, beams);
                        assert_same(&got.hypotheses, &want, &(seed, beams, rules));
                        cases += 1;
                        let greedy = naive::greedy(&model, rules, &prompt, 14);
                        unlike_greedy += usize::from(greedy.0 != want[0].0);
                        let len = want[0].0.len();
                        lengths_differ += usize::from(want.iter().any(|w| w.0.len() != len));
                    }
                }
            }
        }
    }
    // Cases that greedy search would pass, or of one length, prove little.
    assert!(unlike_greedy * 4 > cases, "{unlike_greedy} of {cases}");
    assert!(lengths_differ * 3 > cases, "{lengths_differ} of {cases}");
}

#[test]
fn diverse_beams_agree_with_the_reference_and_are_diverse() {
    let mut more_first_tokens = 0;
    for (groups, diversity) in [(2, 0.0), (2, 0.7), (3, 1.5), (6, 0.4)] {
        for early in [Early::True, Early::False, Early::Never] {
            for seed in 0..10 {
                let beams = Beams { beams: 6, groups, diversity, early, ..PLAIN };
                let rules = Rules { no_repeat_ngram: 3, ..Rules::none(&[1]) };
                let toy = toy(seed);
                let options = SearchOptions { num_return: 6, ..options(&rules, beam(beams)) };
                let got = &run(&options, &[(toy, Request::default())], 12).unwrap()[0];
                let want = naive::beam_search(&|h| toy.logits(h), &rules, &[0], 12, beams);
                assert_same(&got.hypotheses, &want, &(seed, beams));
                let one = Beams { groups: 1, diversity: 0.0, ..beams };
                let plain = naive::beam_search(&|h| toy.logits(h), &rules, &[0], 12, one);
                let firsts = |all: &[(Vec<u32>, f32)]| {
                    let mut firsts: Vec<u32> = all.iter().map(|h| h.0[0]).collect();
                    firsts.sort_unstable();
                    firsts.dedup();
                    firsts.len()
                };
                more_first_tokens += usize::from(groups == 6 && firsts(&want) > firsts(&plain));
            }
        }
    }
    assert!(more_first_tokens > 10, "{more_first_tokens}");
}

#[test]
fn one_beam_is_greedy() {
    for rules in &rule_sets() {
        for seed in 0..10 {
            let one = Beams { beams: 1, length_penalty: 0.0, ..PLAIN };
            let sentence = [(toy(seed), Request::default())];
            // The repetition penalty acts on logits in one and on log-probabilities in the other.
            let rules = Rules { repetition_penalty: 1.0, ..rules.clone() };
            let beam = &run(&options(&rules, beam(one)), &sentence, 15).unwrap()[0];
            let greedy = &run(&options(&rules, Strategy::Greedy), &sentence, 15).unwrap()[0];
            assert_eq!(beam.hypotheses[0].0, greedy.hypotheses[0].0);
        }
    }
}

#[test]
fn wide_beams_find_the_best_sequence_of_all() {
    // 5 tokens, at most 3 of them: a beam of 5 groups cannot lose any prefix that matters when every
    // prefix fits. Here vocabulary^2 prefixes do not fit, so compare on a target of two tokens.
    for seed in 0..40 {
        let toy = Toy { seed, vocabulary: 5, scale: 1.5, end: 0.3 };
        let wide = Beams { beams: 5, length_penalty: 0.0, early: Early::Never, ..PLAIN };
        let rules = Rules::none(&[1]);
        let options = options(&rules, beam(wide));
        let got = &run(&options, &[(toy, Request::default())], 3).unwrap()[0];
        let mut best = (vec![], f32::NEG_INFINITY);
        let first = naive::log_softmax(&toy.logits(&[0]));
        for a in 0..5u32 {
            if a == 1 && first[1] > best.1 {
                best = (vec![1], first[1]);
            }
            let second = naive::log_softmax(&toy.logits(&[0, a]));
            for b in 0..5u32 {
                let score = first[a as usize] + second[b as usize];
                if a != 1 && score > best.1 {
                    best = (vec![a, b], score);
                }
            }
        }
        assert_eq!(got.hypotheses[0].0, best.0, "seed {seed}");
        let greedy = naive::greedy(&|h| toy.logits(h), &rules, &[0], 3);
        assert!(got.hypotheses[0].1 >= greedy.1 - 1e-6);
    }
}

fn all_strategies() -> Vec<SearchOptions> {
    let rules = Rules { no_repeat_ngram: 3, min_new_tokens: 2, ..Rules::none(&[1]) };
    let sample =
        |sample| SearchOptions { num_return: 3, ..options(&rules, Strategy::Sample(sample)) };
    let several = |beams| SearchOptions { num_return: 4, ..options(&rules, beam(beams)) };
    vec![
        options(&rules, Strategy::Greedy),
        several(PLAIN),
        several(Beams { early: Early::Never, length_penalty: 2.0, ..PLAIN }),
        several(Beams { groups: 2, diversity: 0.8, early: Early::True, ..PLAIN }),
        sample(SampleOptions { seed: 7, ..SampleOptions::default() }),
        sample(SampleOptions {
            seed: 8,
            temperature: 1.3,
            top_k: Some(12),
            top_p: Some(0.9),
            min_p: Some(0.01),
            typical: Some(0.95),
            epsilon: Some(1e-3),
            eta: Some(1e-3),
        }),
    ]
}

#[test]
fn a_sentence_does_not_see_the_others() {
    let prefixes: [&[u32]; 5] = [&[], &[3], &[2, 5, 7], &[], &[9, 9]];
    for options in all_strategies() {
        let sentences: Vec<(Toy, Request<'_>)> = (0..5)
            .map(|i| {
                let request = Request {
                    prefix: prefixes[i as usize],
                    stream: u64::from(100 + i),
                    forced_bos: (i == 3).then_some(6),
                };
                (Toy { vocabulary: 20, ..toy(i) }, request)
            })
            .collect();
        let together = run(&options, &sentences, 13).unwrap();
        let backwards: Vec<_> = sentences.iter().rev().copied().collect();
        let mut reversed = run(&options, &backwards, 13).unwrap();
        reversed.reverse();
        for (i, sentence) in sentences.iter().enumerate() {
            let alone = &run(&options, &[*sentence], 13).unwrap()[0];
            for other in [&together[i], &reversed[i]] {
                assert_eq!(alone.finish, other.finish);
                assert_eq!(alone.hypotheses, other.hypotheses);
                assert_eq!(alone.steps, other.steps);
                let tokens = |o: &toy::Outcome| -> Vec<_> {
                    o.streamed
                        .iter()
                        .map(|t| (t.sequence, t.index, t.token, t.log_probability))
                        .collect()
                };
                assert_eq!(tokens(alone), tokens(other));
            }
        }
        assert_eq!(together[3].hypotheses[0].0[0], 6, "the sentence's own forced token");
    }
}

#[test]
fn hypotheses_are_sorted_and_distinct() {
    for seed in 0..60 {
        let groups = [1, 2, 4][seed as usize % 3];
        let beams = Beams { groups, diversity: 0.3, ..PLAIN };
        let options = SearchOptions { num_return: 4, ..options(&Rules::none(&[1]), beam(beams)) };
        let got = &run(&options, &[(toy(seed), Request::default())], 12).unwrap()[0];
        assert!(!got.hypotheses.is_empty());
        assert!(groups > 1 || got.hypotheses.len() == 4);
        for (i, a) in got.hypotheses.iter().enumerate() {
            for b in &got.hypotheses[i + 1..] {
                assert!(a.1 >= b.1);
                assert_ne!(a.0, b.0);
            }
        }
    }
}

#[test]
fn streamed_tokens_are_never_retracted() {
    let mut before_the_end = 0;
    for seed in 0..60 {
        let beams = Beams { beams: 2 + seed as usize % 4, early: Early::Never, ..PLAIN };
        let options = options(&Rules::none(&[1]), beam(beams));
        // Sharp models agree early.
        let toy = Toy { scale: 4.0, ..toy(seed) };
        let sentence = [(toy, Request::default())];
        let whole = &run(&options, &sentence, 20).unwrap()[0];
        let tokens: Vec<u32> = whole.streamed.iter().map(|t| t.token).collect();
        assert_eq!(tokens, whole.hypotheses[0].0);
        assert!(whole.streamed.iter().zip(0..).all(|(t, i)| t.index == i));
        for stop in 1..=tokens.len() {
            let part = &run_until(&options, &sentence, 20, stop).unwrap()[0];
            assert_eq!(part.streamed, whole.streamed[..stop]);
            assert!(part.hypotheses[0].0.starts_with(&tokens[..stop]));
            before_the_end += usize::from(part.finish == Some(Finish::Stopped));
        }
    }
    assert!(before_the_end > 100, "{before_the_end}");
}

#[test]
fn stopping_leaves_what_is_there() {
    for options in all_strategies() {
        let whole = run(&options, &[(toy(4), Request::default())], 16).unwrap();
        let part = run_until(&options, &[(toy(4), Request::default())], 16, 1).unwrap();
        if let Strategy::Greedy | Strategy::Sample(_) = options.strategy {
            assert_eq!(part[0].finish, Some(Finish::Stopped));
            assert_eq!(part[0].hypotheses[0].0, whole[0].hypotheses[0].0[..1]);
        }
        let limits = toy::limits(&options, 2, 16, 20);
        let mut memory = vec![7; words(&limits).unwrap()];
        let mut search = Search::new(&options, &limits, &mut memory).unwrap();
        let slot = search.admit(&Request { prefix: &[4, 4], ..Request::default() }).unwrap();
        search.admit(&Request::default()).unwrap();
        search.stop(slot).unwrap();
        assert!(search.hypotheses(slot).all(|h| h.tokens.is_empty() && h.score == 0.0));
        assert!(search.release(slot).is_err(), "its row is still to be computed");
        assert!(search.stop(slot).is_err());
        let mut logits = vec![0.5; 40];
        search.advance(&mut logits, &mut Hooks::default()).unwrap();
        search.release(slot).unwrap();
        assert_eq!(search.admit(&Request::default()), Ok(slot));
        assert!(search.admit(&Request::default()).is_err());
    }
}

#[test]
fn a_prefix_can_be_fed_at_once() {
    let model = Toy { vocabulary: 20, ..toy(2) };
    for options in all_strategies() {
        let prefix: &[u32] = &[4, 8, 15];
        let request = Request { prefix, stream: 3, forced_bos: None };
        let slow = &run(&options, &[(model, request)], 14).unwrap()[0];
        let limits = toy::limits(&options, 1, 14, 20);
        let mut memory = vec![1; words(&limits).unwrap()];
        let mut search = Search::new(&options, &limits, &mut memory).unwrap();
        let slot = search.admit(&request).unwrap();
        search.skip_prompt(slot).unwrap();
        assert_eq!(search.prompt(slot), [0, 4, 8, 15]);
        let mut before: Vec<Vec<u32>> = vec![];
        while !search.rows().is_empty() {
            let mut logits = vec![];
            let mut histories = vec![];
            for row in search.rows().iter() {
                let start = || search.prompt(slot)[..row.position as usize].to_vec();
                let mut history = row.parent.map_or_else(start, |p| before[p as usize].clone());
                history.push(row.token);
                logits.extend(model.logits(&history));
                histories.push(history);
            }
            before = histories;
            search.advance(&mut logits, &mut Hooks::default()).unwrap();
        }
        let fast: Vec<_> = search.hypotheses(slot).map(|h| (h.tokens.to_vec(), h.score)).collect();
        assert_eq!(fast, slow.hypotheses);
        assert!(search.skip_prompt(slot).is_err());
    }
}

/// Frequencies of the first token over many streams against the processed distribution.
fn chi_squared(sample: SampleOptions, logits: &[f32]) -> (f64, usize) {
    let draws = 20_000;
    let options = SearchOptions {
        strategy: Strategy::Sample(sample.clone()),
        max_new_tokens: Some(1),
        num_return: 4,
        ..SearchOptions::default()
    };
    let vocabulary = logits.len();
    let limits = toy::limits(&options, 1, 4, vocabulary);
    let mut memory = vec![0; words(&limits).unwrap()];
    let mut counts = vec![0usize; vocabulary];
    for stream in 0..draws / 4 {
        let mut search = Search::new(&options, &limits, &mut memory).unwrap();
        let slot = search.admit(&Request { stream, ..Request::default() }).unwrap();
        search.advance(&mut logits.to_vec(), &mut Hooks::default()).unwrap();
        for hypothesis in search.hypotheses(slot) {
            counts[hypothesis.tokens[0] as usize] += 1;
        }
    }
    let expected = naive_distribution(&sample, logits);
    let (mut statistic, mut cells) = (0.0, 0);
    for (token, &p) in expected.iter().enumerate() {
        if p == 0.0 {
            assert_eq!(counts[token], 0, "token {token} is filtered out");
        } else {
            let mean = p * draws as f64;
            statistic += (counts[token] as f64 - mean).powi(2) / mean;
            cells += 1;
        }
    }
    (statistic, cells - 1)
}

/// Temperature, top-k, top-p and min-p by their definitions.
fn naive_distribution(sample: &SampleOptions, logits: &[f32]) -> Vec<f64> {
    let scaled: Vec<f64> = logits.iter().map(|&x| f64::from(x) / sample.temperature).collect();
    let softmax = |keep: &[bool]| -> Vec<f64> {
        let weight = |i: usize| if keep[i] { scaled[i].exp() } else { 0.0 };
        let total: f64 = (0..scaled.len()).map(weight).sum();
        (0..scaled.len()).map(|i| weight(i) / total).collect()
    };
    let mut keep = vec![true; logits.len()];
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]));
    if let Some(k) = sample.top_k {
        order[k..].iter().for_each(|&i| keep[i] = false);
    }
    if let Some(top_p) = sample.top_p {
        let p = softmax(&keep);
        let mut mass = 0.0;
        for &i in &order {
            keep[i] &= mass < top_p;
            mass += p[i];
        }
    }
    if let Some(min_p) = sample.min_p {
        let p = softmax(&keep);
        let max = p.iter().copied().fold(0.0, f64::max);
        (0..p.len()).for_each(|i| keep[i] &= p[i] >= min_p * max);
    }
    softmax(&keep)
}

#[test]
fn samples_follow_the_processed_distribution() {
    let plain = SampleOptions::default();
    let settings = [
        plain.clone(),
        SampleOptions { seed: 99, temperature: 0.6, ..plain.clone() },
        SampleOptions { seed: 5, temperature: 1.7, top_k: Some(7), ..plain.clone() },
        SampleOptions { seed: 6, top_p: Some(0.8), ..plain.clone() },
        SampleOptions { seed: 1 << 40, min_p: Some(0.1), ..plain.clone() },
        SampleOptions {
            seed: 3,
            temperature: 1.4,
            top_k: Some(15),
            top_p: Some(0.95),
            min_p: Some(0.05),
            ..plain
        },
    ];
    for (i, sample) in settings.into_iter().enumerate() {
        let logits = Toy { scale: 1.3, ..toy(i as u32) }.logits(&[0, 3]);
        let (statistic, freedom) = chi_squared(sample, &logits);
        // Wilson and Hilferty: the 0.9999 quantile of chi squared.
        let n = freedom as f64;
        let spread = 2.0 / (9.0 * n);
        let bound = n * (1.0 - spread + 3.719 * spread.sqrt()).powi(3);
        assert!(statistic <= bound, "setting {i}: {statistic} above {bound}, {freedom} degrees");
        assert!(freedom >= 3);
    }
}

#[test]
fn samples_depend_on_seed_stream_and_number() {
    let options = |seed| SearchOptions {
        strategy: Strategy::Sample(SampleOptions {
            seed,
            temperature: 3.0,
            ..SampleOptions::default()
        }),
        num_return: 3,
        ..SearchOptions::default()
    };
    let texts = |seed, stream| -> Vec<Vec<u32>> {
        let request = Request { stream, ..Request::default() };
        let outcome = run(&options(seed), &[(toy(1), request)], 12).unwrap();
        outcome[0].hypotheses.iter().map(|h| h.0.clone()).collect()
    };
    let first = texts(1, 1);
    assert_eq!(first, texts(1, 1));
    assert_ne!(first[0], first[1]);
    assert_ne!(first[1], first[2]);
    for (other, about) in
        [(texts(2, 1), "seed"), (texts(1, 2), "stream"), (texts(1, 1 << 32 | 1), "high word")]
    {
        assert!(other.iter().zip(&first).all(|(a, b)| a != b), "{about}");
    }
}

#[test]
fn the_greedy_token_is_the_lowest_of_the_best() {
    let options = SearchOptions { max_new_tokens: Some(1), ..SearchOptions::default() };
    for n in [1usize, 5, 16, 17, 100] {
        for best in 0..n {
            let limits = toy::limits(&options, 1, 3, n);
            let mut memory = vec![0; words(&limits).unwrap()];
            let mut search = Search::new(&options, &limits, &mut memory).unwrap();
            let slot = search.admit(&Request::default()).unwrap();
            let mut logits: Vec<f32> = (0..n).map(|i| if i < best { 1.0 } else { 2.5 }).collect();
            search.advance(&mut logits, &mut Hooks::default()).unwrap();
            let hypothesis = search.hypotheses(slot).next().unwrap();
            assert_eq!(hypothesis.tokens, [best as u32]);
        }
    }
}

#[test]
fn scores_of_given_targets() {
    let toy = toy(3);
    let targets = [4u32, 1, 18];
    let logits: Vec<f32> =
        [[0].as_slice(), &[0, 4], &[0, 4, 1]].iter().flat_map(|h| toy.logits(h)).collect();
    let mut log_p = [f32::NAN; 3];
    let sum = score_targets(&logits, toy.vocabulary, &targets, &mut log_p).unwrap();
    let mut expected = 0.0;
    for (i, row) in logits.chunks(toy.vocabulary).enumerate() {
        let want = naive::log_softmax(row)[targets[i] as usize];
        assert!((log_p[i] - want).abs() <= 2e-6);
        expected += f64::from(want);
    }
    assert!((sum - expected).abs() <= 1e-5);
    let n = toy.vocabulary;
    assert!(score_targets(&logits[1..], n, &targets, &mut log_p).is_err());
    assert!(score_targets(&logits, n, &targets, &mut [0.0; 2]).is_err());
    assert!(score_targets(&logits, n, &[0, n as u32, 0], &mut log_p).is_err());
    assert!(score_targets(&[f32::NAN; 2], 2, &[0], &mut [0.0]).is_err());
    assert_eq!(score_targets(&[], 0, &[], &mut []), Ok(0.0));
    assert_eq!(
        score_targets(&[f32::NEG_INFINITY, 3.0], 2, &[0], &mut [0.0]),
        Ok(f64::NEG_INFINITY)
    );
}

#[test]
fn random_settings_never_panic() {
    let pick = |seed: u32, what: u32, n: u64| hash(&[seed, what]) % n;
    let (mut fine, mut refused) = (0, 0);
    for seed in 0..3000 {
        let maybe = |what, values: &[f64]| -> Option<f64> {
            let i = pick(seed, what, values.len() as u64 * 3) as usize;
            values.get(i).copied()
        };
        let list = |what: u32, n: u64| -> Vec<u32> {
            (0..pick(seed, what, n))
                .map(|i| pick(seed, what * 50 + i as u32, if what == 25 { 12 } else { 11 }) as u32)
                .collect()
        };
        let bad = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 0.5, 0.9, 1.0, 1.5];
        let strategy = match pick(seed, 1, 3) {
            0 => Strategy::Greedy,
            1 => Strategy::Beam(BeamOptions {
                beams: pick(seed, 2, 7) as usize,
                length_penalty: maybe(3, &bad).unwrap_or(1.0),
                early_stopping: [EarlyStopping::True, EarlyStopping::False, EarlyStopping::Never]
                    [pick(seed, 4, 3) as usize],
                groups: 1 + pick(seed, 5, 3) as usize,
                diversity_penalty: maybe(6, &bad).unwrap_or(0.0),
            }),
            _ => Strategy::Sample(SampleOptions {
                seed: u64::from(seed),
                temperature: maybe(7, &bad[4..]).unwrap_or(1.0),
                top_k: maybe(8, &[1.0, 3.0, 1e9]).map(|k| k as usize),
                top_p: maybe(9, &bad[5..]),
                min_p: maybe(10, &bad[5..]),
                typical: maybe(11, &bad[5..]),
                epsilon: maybe(12, &[0.01, 0.5]),
                eta: maybe(13, &[0.01, 0.5]),
            }),
        };
        let options = SearchOptions {
            strategy,
            num_return: 1 + pick(seed, 14, 2) as usize,
            max_new_tokens: maybe(15, &[1.0, 3.0, 1e15]).map(|n| n as usize),
            max_length: maybe(16, &[2.0, 5.0]).map(|n| n as usize),
            min_length: pick(seed, 17, 9) as usize,
            min_new_tokens: pick(seed, 18, 4) as usize,
            eos: list(19, 4),
            sequence_bias: maybe(20, &[-2.0, f64::NEG_INFINITY])
                .map(|b| (list(21, 3), b as f32))
                .into_iter()
                .collect(),
            repetition_penalty: maybe(22, &[0.5, 1e-30, 1e30]).unwrap_or(1.0),
            no_repeat_ngram: maybe(23, &[1.0, 2.0, 50.0]).map(|n| n as usize),
            bad_words: maybe(24, &[0.0, 0.0]).map(|_| list(25, 4)).into_iter().collect(),
            forced_bos: maybe(26, &[3.0]).map(|t| t as u32),
            forced_eos: list(27, 2),
            exponential_decay: maybe(28, &[1.5, 0.5]).map(|f| (1, f)),
            suppress: list(29, 14),
            begin_suppress: list(30, 14),
            renormalize: pick(seed, 31, 2) == 0,
            remove_invalid: pick(seed, 32, 4) == 0,
            ..SearchOptions::default()
        };
        let model = Toy { vocabulary: 11, ..toy(seed) };
        let prefix = list(33, 3);
        let request = Request { prefix: &prefix, ..Request::default() };
        match run(&options, &[(model, request), (model, Request::default())], 9) {
            Ok(outcomes) => {
                fine += 1;
                for outcome in outcomes {
                    assert!(outcome.finish.is_some());
                    assert!(!outcome.hypotheses.is_empty());
                    for (tokens, score) in &outcome.hypotheses {
                        assert!(!score.is_nan(), "{options:?} {tokens:?}");
                        assert!(
                            tokens.iter().all(|&t| t < 11 && !options.suppress.contains(&t)),
                            "{options:?} {tokens:?}"
                        );
                    }
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(fine > 500 && refused > 500, "{fine} fine, {refused} refused");
}
