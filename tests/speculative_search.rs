//! Drafts in a search without a model: the search reads no logits after a wrong draft token.

use crate::random_model::Random;
use crate::speculative_verify::guess;
use crate::toy::{self, Toy};
use simdformer::search::*;

/// A search on logits alone: the logits after a wrong draft token are never read.
#[test]
fn logits_after_a_wrong_draft_token_are_not_read() {
    let vocabulary = 23;
    let base = SearchOptions { eos: vec![1, 5], max_length: Some(13), ..SearchOptions::default() };
    let sample = SampleOptions { top_k: Some(9), ..SampleOptions::default() };
    let sets = [
        base.clone(),
        SearchOptions { scores: false, no_repeat_ngram: Some(2), ..base.clone() },
        SearchOptions { scores: false, forced_bos: Some(7), forced_eos: vec![5], ..base.clone() },
        SearchOptions {
            scores: false,
            bad_words: vec![vec![8], vec![3, 4], vec![2, 9, 1], vec![6, 6]],
            begin_suppress: vec![2, 3],
            min_length: 7,
            ..base.clone()
        },
        SearchOptions { repetition_penalty: 1.4, min_new_tokens: 3, ..base.clone() },
        SearchOptions { suppress: (0..vocabulary as u32 - 1).collect(), ..base.clone() },
        SearchOptions { strategy: Strategy::Sample(sample), ..base },
    ];
    let (mut right, mut wrong) = (0, 0);
    for options in sets {
        for seed in 0..40 {
            let end = (seed % 3) as f32 * 0.4;
            let toy = Toy { seed, vocabulary, scale: 1.5, end, nan_from: usize::MAX };
            let prefix: &[u32] = if seed % 4 == 3 { &[4, 6] } else { &[] };
            let requests = [
                Request { prefix, ..Request::default() },
                Request { stream: 5, ..Request::default() },
                Request { prefix: &[9], stream: 8, ..Request::default() },
            ];
            let expected = drive(&options, &toy, &requests, None, &mut |_, _| Vec::new());
            let mut random = Random(u64::from(seed));
            let known = Some(&expected);
            let found = drive(&options, &toy, &requests, known, &mut |slot, so_far| {
                let known: &[u32] = &expected[slot].1;
                let kind = random.below(6);
                if kind == 0 {
                    wrong += 1
                } else {
                    right += 1
                }
                match known.strip_prefix(so_far) {
                    Some([]) | None => random.ids(3, vocabulary),
                    Some(_) => guess(kind, &mut random, known, so_far, vocabulary),
                }
            });
            assert_eq!(found, expected, "{options:?} {toy:?}");
        }
    }
    assert!(right > 500 && wrong > 100);
}

/// The finish, the tokens and the bits of the score of each request.
type Searched = Vec<(Option<Finish>, Vec<u32>, u32)>;

/// Runs one search in which some requests have drafts. If the result is `known`, every row of logits that a
/// search without drafts does not see is NaN.
fn drive(
    options: &SearchOptions,
    toy: &Toy,
    requests: &[Request<'_>],
    known: Option<&Searched>,
    draft: &mut dyn FnMut(usize, &[u32]) -> Vec<u32>,
) -> Searched {
    let limits = toy::limits(options, requests.len(), 16, toy.vocabulary);
    let mut memory = vec![0; words(&limits).expect("small")];
    let mut search = Search::new(options, &limits, &mut memory).expect("a search");
    let slots: Vec<u32> =
        requests.iter().map(|request| search.admit(request).expect("admitted")).collect();
    assert!(search.draft(9, &[]).is_err() && search.draft(0, &[99]).is_err());
    while !search.rows().is_empty() {
        for (i, request) in requests.iter().enumerate() {
            let slot = slots[i];
            if search.finish(slot).is_some() {
                assert!(search.draft(slot, &[1]).is_err());
                continue;
            }
            let so_far = search.target(slot)[1 + request.prefix.len()..].to_vec();
            // The second draft replaces the first.
            search.draft(slot, &draft(i, &so_far)).expect("a draft");
            let guess = draft(i, &so_far);
            let taken = search.draft(slot, &guess).expect("a draft");
            assert_eq!(search.drafted(slot), &guess[..taken]);
            let capacity = search.draft_capacity(slot);
            assert_eq!(taken, guess.len().min(capacity));
        }
        let seen = |sentence: u32, history: &[u32]| {
            let i = slots.iter().position(|&slot| slot == sentence).expect("a request");
            let Some((finish, tokens, _)) = known.map(|known| &known[i]) else { return true };
            let so_far = history.get(1 + requests[i].prefix.len()..).unwrap_or_default();
            tokens.starts_with(so_far)
                && (so_far.len() < tokens.len() || *finish == Some(Finish::Exhausted))
        };
        let mut logits = Vec::new();
        let mut push = |sentence: u32, history: &[u32]| {
            logits.push(match seen(sentence, history) {
                true => toy.logits(history),
                false => vec![f32::NAN; toy.vocabulary],
            });
        };
        for row in search.rows().iter() {
            let mut history = search.target(row.sentence)[..=row.position as usize].to_vec();
            assert_eq!(history.last(), Some(&row.token));
            push(row.sentence, &history);
            for &token in search.drafted(row.sentence) {
                history.push(token);
                push(row.sentence, &history);
            }
        }
        let mut hooks = Hooks::default();
        if search.needs_argmax_only(&hooks) {
            let best = (0..).zip(&mut logits).map(|(row, logits)| {
                let mut best = (UNDECIDED, f32::NEG_INFINITY);
                for (token, &logit) in (0..).zip(&*logits) {
                    if !search.banned(row, token) && logit > best.1 {
                        best = (token, logit);
                    }
                }
                if row % 3 == 2 || best.0 == UNDECIDED {
                    return UNDECIDED;
                }
                logits.fill(f32::NAN);
                best.0
            });
            let best: Vec<u32> = best.collect();
            assert!(!search.banned(best.len(), 3), "no such row");
            let mut logits = logits.concat();
            search.advance_argmax(&best, &mut logits, &mut hooks, None).expect("advanced");
        } else {
            let mut logits = logits.concat();
            search.advance(&mut logits, &mut hooks, None).expect("advanced");
        }
    }
    let best = |&slot: &u32| {
        let best = search.hypotheses(slot).next().expect("a hypothesis");
        (search.finish(slot), best.tokens.to_vec(), best.score.to_bits())
    };
    slots.iter().map(best).collect()
}
