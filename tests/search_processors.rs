//! Every logits processor, alone and combined, compared with transformers on the same logits.
//!
//! Each golden line is one step of a search. A processor of the caller leads the search along the history
//! of the line, whatever the other processors do. At the end of the history the scores of the line are
//! processed.

use crate::golden_options::{ids, options, scores};
use serde_json::Value;
use simdformer::search::*;

/// Allows one token.
struct Lead(Option<u32>);

impl LogitsProcessor for Lead {
    fn process(
        &mut self,
        _: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), SearchError> {
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
