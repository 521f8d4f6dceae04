//! Every logits processor, alone and combined, compared with transformers on the same logits.
//!
//! Each golden line is one step of a search. A processor of the caller leads the search along the history
//! of the line, whatever the other processors do. At the end of the history the scores of the line are
//! processed.

use crate::golden_options::{ids, options, scores};
use serde_json::Value;
use simdformer::Error;
use simdformer::search::*;

/// Allows one token.
struct Lead(Option<u32>);

impl LogitsProcessor for Lead {
    fn process(&mut self, _: &Context<'_>, scores: &mut [f32], _: &mut [u32]) -> Result<(), Error> {
        if let Some(token) = self.0 {
            scores.fill(f32::NEG_INFINITY);
            scores[token as usize] = 0.0;
        }
        Ok(())
    }
}

struct Only(Vec<u32>);

impl AllowedTokens for Only {
    fn allowed(&mut self, _: &Context<'_>, allow: &mut dyn FnMut(&[u32])) {
        allow(&self.0);
    }
}

/// The scores after all processors at the end of the history.
fn process(line: &Value) -> Vec<f32> {
    let eos = ids(&line["eos"]);
    let given = line["options"].as_object().unwrap();
    let options = SearchOptions {
        max_length: Some(line["max_length"].as_u64().unwrap() as usize),
        ..options(given, 1, &eos)
    };
    let history = ids(&line["history"]);
    let limits = SearchLimits {
        sentences: 1,
        sequences: 1,
        max_target_length: 12,
        vocabulary: line["vocab"].as_u64().unwrap() as usize,
        end_tokens: options.eos.len(),
        source_tokens: 0,
    };
    let mut memory = vec![0xFFFF_FFFF; words(&limits).unwrap()];
    let mut search = Search::new(&options, &limits, &mut memory).unwrap();
    search.admit(&Request::default()).unwrap();
    let mut allowed = line["options"].get("allowed").map(|list| Only(ids(list)));
    for &token in &history[1..] {
        let mut lead = Lead(Some(token));
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut lead];
        let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
        let mut logits = vec![0.0; limits.vocabulary];
        let progress = search.advance(&mut logits, &mut hooks, None).unwrap();
        assert_eq!(progress.rows, 1);
        assert_eq!(search.rows().tokens, [token]);
    }
    let mut logits = scores(&line["scores"]);
    let mut hooks = Hooks {
        allowed: allowed.as_mut().map(|only| only as &mut dyn AllowedTokens),
        ..Hooks::default()
    };
    search.advance(&mut logits, &mut hooks, None).unwrap();
    logits
}

#[test]
fn processors_agree_with_transformers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/search/processors.jsonl");
    let text = std::fs::read_to_string(path).expect("the goldens of the processors");
    let (mut lines, mut tied, mut changed, mut banned) = (0, 0, 0, 0);
    let mut worst = 0.0f32;
    for (number, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (mut got, mut want) = (process(&line), scores(&line["expected"]));
        assert_eq!(got.len(), want.len());
        changed += usize::from(want != scores(&line["scores"]));
        if line["order_matters"] == true {
            // An unstable sort in the reference decides which of the equal logits at a
            // threshold are removed. How many are removed is defined.
            got.sort_by(f32::total_cmp);
            want.sort_by(f32::total_cmp);
            tied += 1;
        }
        for (token, (&g, &w)) in got.iter().zip(&want).enumerate() {
            let about = format!(
                "line {}, token {token}: {g}, expected {w}\n{}",
                number + 1,
                line["options"]
            );
            if w == f32::NEG_INFINITY || g == f32::NEG_INFINITY {
                assert_eq!(g, w, "{about}");
                banned += 1;
            } else {
                let error = (g - w).abs();
                worst = worst.max(error / w.abs().max(1.0));
                assert!(error <= 1e-6 * w.abs().max(1.0), "{about}");
            }
        }
        lines += 1;
    }
    println!("{lines} lines, {tied} with ties at a threshold, largest error {worst:e}");
    assert!(
        lines > 150 && tied > 3 && changed > 100 && banned > 1000,
        "{lines} {tied} {changed} {banned}"
    );
}

/// A `top_p` of 1 or more, or NaN, removes nothing.
#[test]
fn top_p_ends_whatever_the_mass_is() {
    let context = Context { sentence: 0, source: &[], history: &[0], prompt_len: 1, max_length: 9 };
    let given = [1.0, f32::NEG_INFINITY, -3.0, 2.0];
    for p in [1.0, 1.5, f64::INFINITY, f64::NAN] {
        let mut scores = given;
        TopP { p, keep: 1 }.process(&context, &mut scores, &mut [0; 8]).expect("enough scratch");
        assert_eq!(scores, given, "{p}");
    }
}

/// Tokens whose mass is exactly `1 - p` are removed, because the reference compares with `<=`.
#[test]
fn top_p_removes_a_mass_of_exactly_the_rest() {
    let context = Context { sentence: 0, source: &[], history: &[0], prompt_len: 1, max_length: 9 };
    let mut scores = [0.0; 4];
    TopP { p: 0.75, keep: 1 }.process(&context, &mut scores, &mut [0; 8]).expect("enough scratch");
    assert_eq!(scores, [f32::NEG_INFINITY, 0.0, 0.0, 0.0]);
}

/// A token whose probability is exactly `min_p` times the largest remains, because the reference compares with `<`.
#[test]
fn min_p_keeps_a_token_at_the_threshold() {
    let context = Context { sentence: 0, source: &[], history: &[0], prompt_len: 1, max_length: 9 };
    let half = -core::f32::consts::LN_2;
    let mut scores = [0.0, half, -3.0];
    MinP { min_p: 0.5, keep: 1 }
        .process(&context, &mut scores, &mut [0; 6])
        .expect("enough scratch");
    assert_eq!(scores, [0.0, half, f32::NEG_INFINITY]);
}

/// Compared with the definitions, on random sources and targets of few different tokens.
#[test]
fn processors_of_the_source_match_the_reference() {
    use crate::random_model::Random;
    use simdformer::search::{NoSourceNgram, SourcePenalty};
    const VOCABULARY: usize = 7;
    let mut random = Random(3);
    let (mut banned, mut free) = (0, 0);
    for round in 0..500 {
        let lens = [random.below(9), 1 + random.below(6)];
        let [source, history] = lens.map(|len| random.ids(len, VOCABULARY));
        let context = Context {
            sentence: 0,
            source: &source,
            history: &history,
            prompt_len: 1,
            max_length: 20,
        };
        let given: [f32; VOCABULARY] = core::array::from_fn(|_| random.symmetric());
        for size in 1..4 {
            let mut scores = given;
            let mut rule = NoSourceNgram { size };
            rule.process(&context, &mut scores, &mut []).expect("no scratch needed");
            for token in 0..VOCABULARY as u32 {
                let said = [&history[..], &[token]].concat();
                let gram = said.len().checked_sub(size).map(|start| &said[start..]);
                let known = gram.is_some_and(|gram| source.windows(size).any(|w| w == gram));
                let expected = if known { f32::NEG_INFINITY } else { given[token as usize] };
                assert_eq!(scores[token as usize], expected, "{round} {size} {source:?} {said:?}");
                if known { banned += 1 } else { free += 1 }
            }
        }
        for penalty in [0.8, 1.0, 1.7] {
            let mut scores = given;
            let mut rule = SourcePenalty { penalty };
            rule.process(&context, &mut scores, &mut [0; 16]).expect("enough scratch");
            let factor = (1.0 / penalty) as f32;
            for (token, (&found, score)) in scores.iter().zip(given).enumerate() {
                let expected = match source.contains(&(token as u32)) {
                    true if score < 0.0 => score * factor,
                    true => score / factor,
                    false => score,
                };
                assert_eq!(found, expected, "{round} {penalty} {source:?} {token}");
            }
        }
        let error = SourcePenalty { penalty: 1.2 }.process(&context, &mut [0.0; 7], &mut []);
        assert_eq!(error.is_err(), !source.is_empty());
    }
    assert!(banned > 500 && free > 500, "{banned} {free}");
}

/// Runs a search over rows of logits, one row for each step, and records what the observer sees.
fn observed(
    options: &SearchOptions,
    rows: &[&[f32]],
    mut see: impl FnMut(Observation<'_>),
) -> Vec<(Vec<u32>, f32)> {
    let limits = SearchLimits {
        sentences: 1,
        sequences: options.sequences(),
        max_target_length: 9,
        vocabulary: rows[0].len(),
        end_tokens: 1,
        source_tokens: 0,
    };
    let mut found = Vec::new();
    for watched in [false, true] {
        let mut memory = vec![0; words(&limits).unwrap()];
        let mut search = Search::new(options, &limits, &mut memory).unwrap();
        let sentence = search.admit(&Request::default()).unwrap();
        for row in rows {
            if search.rows().is_empty() {
                break;
            }
            let mut logits = row.repeat(search.rows().len());
            let observer: Option<Observer<'_>> = if watched { Some(&mut see) } else { None };
            let mut hooks = Hooks { observer, ..Hooks::default() };
            search.advance(&mut logits, &mut hooks, None).unwrap();
        }
        let hypotheses = search.hypotheses(sentence);
        found.push(hypotheses.map(|h| (h.tokens.to_vec(), h.score)).collect::<Vec<_>>());
    }
    assert_eq!(found[0], found[1], "the observer changes nothing");
    found.remove(0)
}

/// The observer sees the scores of the model, then what each rule leaves, in the order of the rules.
#[test]
fn the_observer_sees_what_each_rule_leaves() {
    const NO: f32 = f32::NEG_INFINITY;
    let sample = SampleOptions { temperature: 0.5, top_k: Some(3), ..SampleOptions::default() };
    let options = SearchOptions {
        strategy: Strategy::Sample(sample),
        repetition_penalty: 2.0,
        bad_words: vec![vec![4]],
        eos: vec![5],
        max_new_tokens: Some(1),
        ..SearchOptions::default()
    };
    let mut seen: Vec<(Option<&str>, Vec<f32>)> = Vec::new();
    let row = [4.0, 1.0, 2.0, 0.0, 9.0, -1.0];
    observed(&options, &[&row], |observation| {
        let Observation::Scores { context, rule, scores } = observation else {
            unreachable!("{observation:?}")
        };
        assert_eq!((context.history, context.prompt_len), (&[0][..], 1));
        // Rules that change nothing may be reported, too.
        if seen.last().is_none_or(|(_, before)| before != scores) {
            seen.push((rule, scores.to_vec()));
        }
    });
    let expected = [
        (None, row),
        (Some("RepetitionPenalty"), [2.0, 1.0, 2.0, 0.0, 9.0, -1.0]),
        (Some("BadWords"), [2.0, 1.0, 2.0, 0.0, NO, -1.0]),
        (Some("Temperature"), [4.0, 2.0, 4.0, 0.0, NO, -2.0]),
        (Some("TopK"), [4.0, 2.0, 4.0, NO, NO, NO]),
    ];
    assert_eq!(seen, expected.map(|(rule, scores)| (rule, scores.to_vec())));
}

/// The candidates that continue are the hypotheses of the next step, and those that end have the scores of the result.
#[test]
fn the_observer_sees_what_becomes_of_each_candidate() {
    let options = SearchOptions {
        strategy: Strategy::Beam(BeamOptions { beams: 2, ..BeamOptions::default() }),
        num_return_sequences: 2,
        eos: vec![3],
        max_new_tokens: Some(4),
        ..SearchOptions::default()
    };
    // The table of document 003: A, B, C and the end.
    let table =
        [[0.5, 0.2, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.2, 0.4, 0.2], [0.0, 0.2, 0.2, 0.6]];
    let rows = table.map(|row: [f32; 4]| row.map(f32::ln));
    let (mut now, mut continued, mut ended, mut dropped) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let rows = rows.each_ref().map(|row| &row[..]);
    let result = observed(&options, &rows, |observation| match observation {
        Observation::Scores { context, rule: None, .. } => now.push(context.history.to_vec()),
        Observation::Scores { .. } => (),
        Observation::Candidate { context, token, score, outcome } => {
            // The rows of a step come before its candidates.
            if !continued.is_empty() && !now.is_empty() {
                assert_eq!(now, continued[continued.len() - 2..]);
            }
            now.clear();
            let tokens = [context.history, &[token]].concat();
            match outcome {
                Outcome::Continues => continued.push(tokens),
                Outcome::Ends(normed) => {
                    assert_eq!(normed, score / (tokens.len() - 1) as f32);
                    ended.push((tokens[1..].to_vec(), normed));
                }
                Outcome::Dropped => dropped += 1,
            }
        }
    });
    assert!(continued.len() == 6 && dropped > 5, "{continued:?}, {dropped} dropped");
    assert!(
        result.len() == 2 && result.iter().all(|hypothesis| ended.contains(hypothesis)),
        "{ended:?}"
    );
}
