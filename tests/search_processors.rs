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
    fn process(&mut self, _: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
        if let Some(token) = self.0 {
            scores.fill(f32::NEG_INFINITY);
            scores[token as usize] = 0.0;
        }
        Ok(())
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
    let allowed = line["options"].get("allowed").map(ids);
    for &token in &history[1..] {
        let mut lead = Lead(Some(token));
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut lead];
        let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
        let mut logits = vec![0.0; limits.vocabulary];
        search.advance(&mut logits, &mut hooks, None).unwrap();
        assert_eq!(search.rows().tokens, [token]);
    }
    let mut logits = scores(&line["scores"]);
    let mut only = |_: &Context<'_>, allow: &mut dyn FnMut(&[u32])| {
        allow(allowed.as_deref().unwrap_or_default());
    };
    let mut hooks = Hooks::default();
    if allowed.is_some() {
        hooks.allowed = Some(&mut only);
    }
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
            let mut hooks = Hooks::default();
            if watched {
                hooks.observer = Some(&mut see);
            }
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
