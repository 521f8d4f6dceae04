//! Properties of every search, for any strategy and any model: a sentence does not depend on the others,
//! hypotheses are sorted, a streamed token is final, a prefix may be fed at once, a search can be stopped,
//! and no setting makes it panic.

use crate::effort::{cases, thread_counts};
use crate::naive::{Beams, Early, Rules};
use crate::naive_options::{PLAIN, beam, options, toy};
use crate::scoped::Scoped;
use crate::toy::{Toy, hash, run_on, run_search, run_until};
use simdformer::kernels::Parallelism;
use simdformer::search::*;

pub(crate) fn all_strategies() -> Vec<SearchOptions> {
    let rules = Rules { no_repeat_ngram: 3, min_new_tokens: 2, ..Rules::none(&[1]) };
    let sample = |sample| SearchOptions {
        num_return_sequences: 3,
        ..options(&rules, Strategy::Sample(sample))
    };
    let several = |beams| SearchOptions { num_return_sequences: 4, ..options(&rules, beam(beams)) };
    vec![
        options(&rules, Strategy::Greedy),
        several(PLAIN),
        several(Beams { early: Early::Never, length_penalty: 2.0, ..PLAIN }),
        several(Beams { groups: 2, diversity: 0.8, early: Early::True, ..PLAIN }),
        sample(SampleOptions { seed: 7, ..SampleOptions::default() }),
        sample(SampleOptions {
            seed: 8,
            temperature: 1.3,
            top_h: Some(0.9),
            top_k: Some(12),
            top_p: Some(0.9),
            min_p: Some(0.01),
            typical: Some(0.95),
            epsilon: Some(1e-3),
            eta: Some(1e-3),
        }),
        SearchOptions {
            num_return_sequences: 4,
            ..options(
                &rules,
                Strategy::Beam(BeamOptions {
                    sample: Some(SampleOptions { seed: 9, ..SampleOptions::default() }),
                    ..BeamOptions::default()
                }),
            )
        },
    ]
}

#[test]
fn a_sentence_does_not_depend_on_the_others() {
    let prefixes: [&[u32]; 5] = [&[], &[3], &[2, 5, 7], &[], &[9, 9]];
    for options in all_strategies() {
        let sentences: Vec<(Toy, Request<'_>)> = (0..5)
            .map(|i| {
                let request = Request {
                    source: &[],
                    prefix: prefixes[i as usize],
                    stream: u64::from(100 + i),
                    forced_bos: (i == 3).then_some(6),
                };
                (Toy { vocabulary: 20, ..toy(i) }, request)
            })
            .collect();
        let together = run_search(&options, &sentences, 13).unwrap();
        let backwards: Vec<_> = sentences.iter().rev().copied().collect();
        let mut reversed = run_search(&options, &backwards, 13).unwrap();
        reversed.reverse();
        for (i, sentence) in sentences.iter().enumerate() {
            let alone = &run_search(&options, &[*sentence], 13).unwrap()[0];
            for other in [&together[i], &reversed[i]] {
                assert_eq!(alone.finish, other.finish);
                assert_eq!(alone.hypotheses, other.hypotheses);
                assert_eq!(alone.steps, other.steps);
                let tokens = |o: &crate::toy::Outcome| -> Vec<_> {
                    o.streamed
                        .iter()
                        .map(|t| (t.sequence, t.index, t.id, t.log_probability))
                        .collect()
                };
                assert_eq!(tokens(alone), tokens(other));
            }
        }
        assert_eq!(together[3].hypotheses[0].0[0], 6, "the sentence's own forced token");
    }
}

/// Two vocabularies: with the small one a task has several rows, with the large one it has one row.
#[test]
fn threads_change_no_result() {
    let prefixes: [&[u32]; 5] = [&[], &[3], &[2, 5, 7], &[], &[9, 9]];
    let rules = |options| SearchOptions {
        repetition_penalty: 1.2,
        suppress: vec![30],
        bad_words: vec![vec![9], vec![6, 6]],
        renormalize: true,
        scores: true,
        ..options
    };
    let plain = all_strategies();
    let ruled = plain.clone().into_iter().map(rules);
    let ruled = ruled.map(|options| (options, cases(&[1200][..], &[1200, 9001])));
    let plain = plain.iter().cloned().map(|options| (options, &[1200, 9001][..]));
    for (options, vocabularies) in plain.chain(ruled) {
        for &vocabulary in vocabularies {
            let sentences = |count: u32, broken: Option<u32>| -> Vec<(Toy, Request<'_>)> {
                let sentence = |i| {
                    let prefix = prefixes[i as usize];
                    let forced_bos = (i == 3).then_some(6);
                    let stream = u64::from(100 + i);
                    let scale = if broken == Some(i) { f32::NAN } else { 1.0 };
                    let request = Request { prefix, stream, forced_bos, ..Request::default() };
                    (Toy { vocabulary, scale, end: 4.0, ..toy(i) }, request)
                };
                (0..count).map(sentence).collect()
            };
            let broken = sentences(2, Some(1));
            for (sentences, stop_after) in
                [(sentences(5, None), usize::MAX), (sentences(2, None), 3), (broken, usize::MAX)]
            {
                let length = cases(6, 9);
                let serial = run_until(&options, &sentences, length, stop_after);
                let ended = serial.as_ref().expect("a search")[1].finish;
                let is_broken = ended == Some(Finish::NotFinite);
                assert_eq!(is_broken, sentences[1].0.scale.is_nan());
                for &threads in thread_counts() {
                    let executor = Scoped(threads);
                    let threads = Parallelism::Executor(&executor);
                    let found = run_on(threads, &options, &sentences, length, stop_after);
                    assert_eq!(found, serial, "{threads:?} {options:?}");
                }
            }
        }
    }
}

#[test]
fn hypotheses_are_sorted_and_distinct() {
    for seed in 0..60 {
        let groups = [1, 2, 4][seed as usize % 3];
        let beams = Beams { groups, diversity: 0.3, ..PLAIN };
        let options =
            SearchOptions { num_return_sequences: 4, ..options(&Rules::none(&[1]), beam(beams)) };
        let got = &run_search(&options, &[(toy(seed), Request::default())], 12).unwrap()[0];
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
        // Beams of models with sharp distributions agree early.
        let toy = Toy { scale: 4.0, ..toy(seed) };
        let sentence = [(toy, Request::default())];
        let whole = &run_search(&options, &sentence, 20).unwrap()[0];
        let tokens: Vec<u32> = whole.streamed.iter().map(|t| t.id).collect();
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
fn a_stopped_sentence_keeps_its_tokens() {
    for options in all_strategies() {
        let whole = run_search(&options, &[(toy(4), Request::default())], 16).unwrap();
        let part = run_until(&options, &[(toy(4), Request::default())], 16, 1).unwrap();
        if let Strategy::Greedy | Strategy::Sample(_) = options.strategy {
            assert_eq!(part[0].finish, Some(Finish::Stopped));
            assert_eq!(part[0].hypotheses[0].0, whole[0].hypotheses[0].0[..1]);
        }
        let limits = crate::toy::limits(&options, 2, 16, 20);
        let mut memory = vec![7; words(&limits).unwrap()];
        let mut search = Search::new(&options, &limits, &mut memory).unwrap();
        let slot = search.admit(&Request { prefix: &[4, 4], ..Request::default() }).unwrap();
        search.admit(&Request::default()).unwrap();
        search.stop(slot).unwrap();
        assert!(search.hypotheses(slot).all(|h| h.tokens.is_empty() && h.score == 0.0));
        assert!(search.release(slot).is_err(), "its row is still to be computed");
        assert!(search.stop(slot).is_err());
        let mut logits = vec![0.5; 40];
        search.advance(&mut logits, &mut Hooks::default(), None).unwrap();
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
        let request = Request { prefix, stream: 3, ..Request::default() };
        let slow = &run_search(&options, &[(model, request)], 14).unwrap()[0];
        let limits = crate::toy::limits(&options, 1, 14, 20);
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
            search.advance(&mut logits, &mut Hooks::default(), None).unwrap();
        }
        let fast: Vec<_> = search.hypotheses(slot).map(|h| (h.tokens.to_vec(), h.score)).collect();
        assert_eq!(fast, slow.hypotheses);
        assert!(search.skip_prompt(slot).is_err());
    }
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
        let sample = SampleOptions {
            seed: u64::from(seed),
            temperature: maybe(7, &bad[4..]).unwrap_or(1.0),
            top_h: maybe(28, &bad[5..]),
            top_k: maybe(8, &[1.0, 3.0, 1e9]).map(|k| k as usize),
            top_p: maybe(9, &bad[5..]),
            min_p: maybe(10, &bad[5..]),
            typical: maybe(11, &bad[5..]),
            epsilon: maybe(12, &[0.01, 0.5]),
            eta: maybe(13, &[0.01, 0.5]),
        };
        let strategy = match pick(seed, 1, 3) {
            0 => Strategy::Greedy,
            1 => Strategy::Beam(BeamOptions {
                beams: pick(seed, 2, 7) as usize,
                length_penalty: maybe(3, &bad).unwrap_or(1.0),
                early_stopping: [
                    EarlyStopping::WhenFull,
                    EarlyStopping::Heuristic,
                    EarlyStopping::Never,
                ][pick(seed, 4, 3) as usize],
                groups: 1 + pick(seed, 5, 3) as usize,
                diversity_penalty: maybe(6, &bad).unwrap_or(0.0),
                sample: (pick(seed, 29, 3) == 0).then_some(sample),
            }),
            _ => Strategy::Sample(sample),
        };
        let options = SearchOptions {
            strategy,
            num_return_sequences: 1 + pick(seed, 14, 2) as usize,
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
        match run_search(&options, &[(model, request), (model, Request::default())], 9) {
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
