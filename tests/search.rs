//! Every decoding strategy compared with readable references, on models without weights.
//!
//! Properties of every search that need no reference are in `search_guarantees.rs`.

use crate::effort::cases;
use crate::naive::{Beams, Early, Rules};
use crate::naive_options::{PLAIN, beam, options, toy};
use crate::toy::{Toy, run_search};
use simdformer::search::*;

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
            let got = run_search(&options, &[(toy, request)], 17).unwrap();
            let prompt = [&[0], prefix].concat();
            let want = crate::naive::greedy(&|h| toy.logits(h), rules, &prompt, 17);
            assert_same(&got[0].hypotheses, &[want], &(number, seed));
            let streamed: Vec<u32> = got[0].streamed.iter().map(|t| t.id).collect();
            assert_eq!(streamed, got[0].hypotheses[0].0);
        }
    }
}

#[test]
fn beam_search_agrees_with_the_reference() {
    let (mut compared, mut unlike_greedy, mut lengths_differ) = (0, 0, 0);
    for rules in &rule_sets() {
        for beams in [2, 3, 5] {
            for length_penalty in [0.0, 0.6, 1.0, 2.0, -0.5] {
                for early in [Early::True, Early::False, Early::Never] {
                    for seed in 0..cases(2, 6) {
                        let beams = Beams { beams, length_penalty, early, ..PLAIN };
                        let (toy, prefix) =
                            (toy(seed), [[2u32, 3].as_slice(), &[]][seed as usize % 2]);
                        let options = SearchOptions {
                            num_return_sequences: beams.beams,
                            ..options(rules, beam(beams))
                        };
                        let request = Request { prefix, ..Request::default() };
                        let got = &run_search(&options, &[(toy, request)], 14).unwrap()[0];
                        let prompt = [&[0], prefix].concat();
                        let model = |h: &[u32]| toy.logits(h);
                        let want = crate::naive::beam_search(&model, rules, &prompt, 14, beams);
                        assert_same(&got.hypotheses, &want, &(seed, beams, rules));
                        compared += 1;
                        let greedy = crate::naive::greedy(&model, rules, &prompt, 14);
                        unlike_greedy += usize::from(greedy.0 != want[0].0);
                        let len = want[0].0.len();
                        lengths_differ += usize::from(want.iter().any(|w| w.0.len() != len));
                    }
                }
            }
        }
    }
    // Cases that greedy search would also solve, or whose hypotheses have one length, prove little.
    assert!(unlike_greedy * 4 > compared, "{unlike_greedy} of {compared}");
    assert!(lengths_differ * 3 > compared, "{lengths_differ} of {compared}");
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
                let options =
                    SearchOptions { num_return_sequences: 6, ..options(&rules, beam(beams)) };
                let got = &run_search(&options, &[(toy, Request::default())], 12).unwrap()[0];
                let want = crate::naive::beam_search(&|h| toy.logits(h), &rules, &[0], 12, beams);
                assert_same(&got.hypotheses, &want, &(seed, beams));
                let one = Beams { groups: 1, diversity: 0.0, ..beams };
                let plain = crate::naive::beam_search(&|h| toy.logits(h), &rules, &[0], 12, one);
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
            // The repetition penalty changes logits in greedy search and log-probabilities in
            // beam search.
            let rules = Rules { repetition_penalty: 1.0, ..rules.clone() };
            let beam = &run_search(&options(&rules, beam(one)), &sentence, 15).unwrap()[0];
            let greedy = &run_search(&options(&rules, Strategy::Greedy), &sentence, 15).unwrap()[0];
            assert_eq!(beam.hypotheses[0].0, greedy.hypotheses[0].0);
        }
    }
}

#[test]
fn wide_beams_find_the_best_sequence() {
    // A vocabulary of 5 tokens and targets of at most 3 tokens. A beam search finds the best sequence
    // if every prefix fits in the beams. Here vocabulary^2 prefixes do not fit, so compare targets of
    // two tokens.
    for seed in 0..40 {
        let toy = Toy { seed, vocabulary: 5, scale: 1.5, end: 0.3, nan_from: usize::MAX };
        let wide = Beams { beams: 5, length_penalty: 0.0, early: Early::Never, ..PLAIN };
        let rules = Rules::none(&[1]);
        let options = options(&rules, beam(wide));
        let got = &run_search(&options, &[(toy, Request::default())], 3).unwrap()[0];
        let mut best = (vec![], f32::NEG_INFINITY);
        let first = crate::naive::log_softmax(&toy.logits(&[0]));
        for a in 0..5u32 {
            if a == 1 && first[1] > best.1 {
                best = (vec![1], first[1]);
            }
            let second = crate::naive::log_softmax(&toy.logits(&[0, a]));
            for b in 0..5u32 {
                let score = first[a as usize] + second[b as usize];
                if a != 1 && score > best.1 {
                    best = (vec![a, b], score);
                }
            }
        }
        assert_eq!(got.hypotheses[0].0, best.0, "seed {seed}");
        let greedy = crate::naive::greedy(&|h| toy.logits(h), &rules, &[0], 3);
        assert!(got.hypotheses[0].1 >= greedy.1 - 1e-6);
    }
}

/// Compares the frequencies of the first token over many streams with the processed distribution.
fn chi_squared(sample: SampleOptions, logits: &[f32]) -> (f64, usize) {
    let draws = 20_000;
    let options = SearchOptions {
        strategy: Strategy::Sample(sample.clone()),
        max_new_tokens: Some(1),
        num_return_sequences: 4,
        ..SearchOptions::default()
    };
    let vocabulary = logits.len();
    let limits = crate::toy::limits(&options, 1, 4, vocabulary);
    let mut memory = vec![0; words(&limits).unwrap()];
    let mut counts = vec![0usize; vocabulary];
    for stream in 0..draws / 4 {
        let mut search = Search::new(&options, &limits, &mut memory).unwrap();
        let slot = search.admit(&Request { stream, ..Request::default() }).unwrap();
        search.advance(&mut logits.to_vec(), &mut Hooks::default(), None).unwrap();
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

/// Temperature, top-h, top-k, top-p and min-p by their definitions.
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
    if let Some(top_h) = sample.top_h {
        let hundred = order.len().min(100);
        order[hundred..].iter().for_each(|&i| keep[i] = false);
        let p = softmax(&keep);
        let entropy = |ids: &[usize]| ids.iter().map(|&i| -p[i] * p[i].ln()).sum::<f64>();
        let kept = (1..=hundred)
            .take_while(|&n| entropy(&order[..n]) <= top_h * entropy(&order[..hundred]));
        let kept = kept.count().max(1);
        order[kept..].iter().for_each(|&i| keep[i] = false);
    }
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
        SampleOptions { seed: 11, temperature: 1.3, top_h: Some(0.7), ..plain.clone() },
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
        num_return_sequences: 3,
        ..SearchOptions::default()
    };
    let texts = |seed, stream| -> Vec<Vec<u32>> {
        let request = Request { stream, ..Request::default() };
        let outcome = run_search(&options(seed), &[(toy(1), request)], 12).unwrap();
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
fn greedy_search_takes_the_lowest_of_equal_tokens() {
    let options = SearchOptions { max_new_tokens: Some(1), ..SearchOptions::default() };
    for n in [1usize, 5, 16, 17, 100] {
        for best in 0..n {
            let limits = crate::toy::limits(&options, 1, 3, n);
            let mut memory = vec![0; words(&limits).unwrap()];
            let mut search = Search::new(&options, &limits, &mut memory).unwrap();
            let slot = search.admit(&Request::default()).unwrap();
            let mut logits: Vec<f32> = (0..n).map(|i| if i < best { 1.0 } else { 2.5 }).collect();
            search.advance(&mut logits, &mut Hooks::default(), None).unwrap();
            let hypothesis = search.hypotheses(slot).next().unwrap();
            assert_eq!(hypothesis.tokens, [best as u32]);
        }
    }
}

/// Also for small logits of a large vocabulary, where most of the error is in the logarithm.
#[test]
fn scores_of_given_targets_are_within_their_bound() {
    let unit = f64::from(f32::EPSILON) / 2.0;
    for n in [1usize, 2, 65, 513, 4753, 58_101] {
        for scale in [0.0f32, 1e-3, 1.0, 8.0, 40.0] {
            let spread = |i: usize| scale * ((i * 7919 % 1009) as f32 / 504.0 - 1.0);
            let row: Vec<f32> = (0..n).map(spread).collect();
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|&x| (f64::from(x) - f64::from(largest)).exp()).sum();
            for target in [0, n / 2, n - 1] {
                let mut found = [f32::NAN];
                score_targets(&row, n, &[target as u32], &mut found).unwrap();
                let expected = f64::from(row[target]) - f64::from(largest) - sum.ln();
                let bound = (36.0 + (n as f64).ln() + expected.abs()) * unit;
                let error = (f64::from(found[0]) - expected).abs();
                assert!(error <= bound, "{n} logits up to {scale}: {error:e} > {bound:e}");
            }
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
        let want = crate::naive::log_softmax(row)[targets[i] as usize];
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
