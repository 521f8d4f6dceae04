//! Drafts in the decoding loop. With any drafter the events are those of decoding without drafts; only the
//! number of steps differs.

use crate::random_model::{Dims, Random};
use crate::speculative_verify::{Golden, Outcome, guess, plain, record};
use crate::toy;
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::*;
use simdformer::{
    DecodeStats, DraftContext, DraftRequest, Drafter, Error, Event, Limits, LoadOptions, Model,
    ModelDrafter, Plan, PromptLookup, Quantization, ReferenceDrafter, Session, Source, Stop,
    WeightDtypes,
};

/// Generates with a drafter. Returns what became of each source, and the counts.
fn drafted(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
    drafter: &mut dyn Drafter,
) -> (Vec<Outcome>, DecodeStats) {
    let mut found = vec![(Vec::new(), Vec::new(), Finish::Stopped); sources.len()];
    let mut on_event = |event: Event<'_>| record(&mut found, event);
    let counts = session
        .generate_drafted(sources, options, &mut Hooks::default(), drafter, &mut on_event)
        .expect("generated");
    (found, counts)
}

#[test]
fn every_golden_with_every_drafter() {
    let (mut sums, mut ends) = ([DecodeStats::default(); 4], 0);
    for (name, golden) in Golden::all(Isa::best()) {
        let sources = golden.sources();
        let vocabulary = golden.model.config().target_vocab;
        for sentences in [1, sources.len()] {
            let limits = golden.limits(sentences);
            let mut session = Session::new(&golden.model, limits).expect("a session");
            let mut random = Random(name.len() as u64);
            for options in golden.searches() {
                let expected = plain(&mut session, &sources, &options);
                let known: Vec<&[u32]> = expected.iter().map(|one| &one.0[..]).collect();
                ends += expected.iter().filter(|one| one.2 == Finish::End).count();
                let mut any = |context: &DraftContext<'_>, draft: &mut [u32]| {
                    let (known, so_far) =
                        (known[context.index], &context.target[context.prompt_len..]);
                    assert_eq!(known[..so_far.len()], *so_far);
                    let kind = random.below(6);
                    let guess = guess(kind, &mut random, known, so_far, vocabulary);
                    let count = guess.len().min(draft.len());
                    draft[..count].copy_from_slice(&guess[..count]);
                    guess.len()
                };
                let drafters: [&mut dyn Drafter; 4] = [
                    &mut ReferenceDrafter(&known),
                    &mut any,
                    &mut PromptLookup { shortest: 1 },
                    &mut (ReferenceDrafter(&known[..1]), PromptLookup::default()),
                ];
                for (drafter, sum) in drafters.into_iter().zip(&mut sums) {
                    let (found, counts) = drafted(&mut session, &sources, &options, drafter);
                    assert_eq!(found, expected, "{name} {sentences} {options:?}");
                    let tokens: usize = expected.iter().map(|one| one.0.len()).sum();
                    assert_eq!(counts.rows + counts.accepted, tokens, "{name} {sentences}");
                    sum.drafted += counts.drafted;
                    sum.accepted += counts.accepted;
                }
            }
        }
    }
    let [given, any, ngrams, both] = sums;
    // A draft of the end token saves no step.
    assert!(
        given.accepted + ends >= given.drafted,
        "{given:?}, {ends} ends: what is known is right"
    );
    for sum in [any, ngrams, both] {
        assert!(sum.accepted > 100 && sum.accepted < sum.drafted, "{sum:?}");
    }
}

fn model(family: Family) -> Model {
    Model::load(&Dims::small(family).checkpoint(5), Isa::best()).expect("a model")
}

fn options(model: &Model) -> SearchOptions {
    SearchOptions {
        strategy: Strategy::Greedy,
        num_return_sequences: 1,
        max_new_tokens: Some(30),
        max_length: None,
        min_new_tokens: 20,
        forced_eos: Vec::new(),
        ..model.config().search_options()
    }
}

/// A target that is known in advance takes one step for each draft, of 4, 8, 16 tokens.
#[test]
fn a_known_target_takes_few_steps() {
    let model = model(Family::Marian);
    let options = SearchOptions { min_new_tokens: 30, ..options(&model) };
    let limits = Limits { draft_tokens: 16, ..Limits::new(1, 9, 32) };
    let mut session = Session::new(&model, limits).expect("a session");
    let sources = [Source::new(&[5, 9, 3, 0])];
    let expected = plain(&mut session, &sources, &options);
    assert_eq!(expected[0].0.len(), 30);
    let (found, counts) =
        drafted(&mut session, &sources, &options, &mut ReferenceDrafter(&[&expected[0].0]));
    assert_eq!(found, expected);
    // Drafts of 4 and 8 tokens, each with the token chosen after it, then the rest of the target
    // without its last token, which is never fed.
    let steps = DecodeStats { steps: 3, rows: 3, drafted: 27, accepted: 27, cancelled: 0 };
    assert_eq!(counts, steps);
    // Drafts that are always rejected become rare.
    let mut useless = |_: &DraftContext<'_>, draft: &mut [u32]| {
        draft.fill(130);
        draft.len()
    };
    let options = SearchOptions { suppress: vec![130], ..options };
    let expected = plain(&mut session, &sources, &options);
    let (found, counts) = drafted(&mut session, &sources, &options, &mut useless);
    assert_eq!(found, expected);
    assert_eq!((counts.steps, counts.drafted, counts.accepted), (30, 4 + 2 + 1 + 1 + 1, 0));
}

/// Processors of the caller see the same scores after the same histories in the same order.
#[test]
fn stateful_processors_see_the_same_calls() {
    let model = model(Family::Bart);
    let options = options(&model);
    let limits = Limits { draft_tokens: 7, ..Limits::new(1, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let sources = [
        Source::new(&[5, 9, 3, 0]),
        Source { prefix: &[7, 8], forced_bos: Some(11), ..Source::new(&[6, 0]) },
    ];
    let mut runs: Vec<(Vec<u64>, Vec<u32>, Vec<u32>)> = Vec::new();
    let mut known: Vec<u32> = Vec::new();
    for with_drafts in [false, true] {
        let (mut seen, mut asked) = (Vec::new(), Vec::new());
        let mut tokens = Vec::new();
        // A stateful processor: it lowers the score of a token each time the token was the best.
        let mut counts = [0.0; 131];
        let mut rule = |context: &Context<'_>, scores: &mut [f32]| {
            let words = context.history.iter().copied();
            let words: Vec<u32> = words.chain(scores.iter().map(|score| score.to_bits())).collect();
            seen.push(toy::hash(&words));
            let best = (0..131).fold(0, |a, b| if scores[b] > scores[a] { b } else { a });
            counts[best] += 0.01;
            scores.iter_mut().zip(&counts).for_each(|(score, count)| *score -= count);
            Ok(())
        };
        let mut allowed = |context: &Context<'_>, allow: &mut dyn FnMut(&[u32])| {
            asked.push(context.history.len() as u32);
            let rest = context.history.len() as u32 % 3;
            let ids: Vec<u32> = (0..131).filter(|id| id % 3 != rest).collect();
            allow(&ids);
        };
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut rule];
        let mut hooks =
            Hooks { processors: &mut processors, allowed: Some(&mut allowed), ..Hooks::default() };
        let mut on_event = |event: Event<'_>| {
            if let Event::Token { token, .. } = event {
                tokens.push(token.id);
            }
        };
        if with_drafts {
            let second = known.len() / 2;
            let (first, second) = known.split_at(second);
            // The drafts are right except for one token, and no draft for the prefix.
            let mut wrong = second.to_vec();
            wrong[5] ^= 1;
            let given: [&[u32]; 2] = [first, &wrong];
            let counts = session
                .generate_drafted(
                    &sources,
                    &options,
                    &mut hooks,
                    &mut ReferenceDrafter(&given),
                    &mut on_event,
                )
                .expect("generated");
            assert!(counts.accepted > 30 && counts.accepted < counts.drafted, "{counts:?}");
        } else {
            session.generate(&sources, &options, &mut hooks, &mut on_event).expect("generated");
            known.clone_from(&tokens);
        }
        runs.push((seen, asked, tokens));
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].0.len() >= 40);
}

/// A second session makes the drafts. With the same model they are always right, and with another model the
/// second session follows the target.
#[test]
fn a_model_can_draft() {
    let model = model(Family::Marian);
    let bytes = WeightDtypes::all(Quantization::W8A8);
    let checkpoint = Dims::small(Family::Marian).checkpoint(5);
    let copy = Model::load(&checkpoint, LoadOptions { dtypes: bytes, ..model.isa().into() })
        .expect("a copy");
    let other = self::model(Family::T5);
    let options = options(&model);
    let limits = Limits { draft_tokens: 20, ..Limits::new(3, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let ids = [vec![5, 9, 3, 0], vec![7, 0], vec![4, 4, 11, 8, 6, 0]];
    let sources: Vec<Source<'_>> = ids.iter().map(|ids| Source::new(ids)).collect();
    let expected = plain(&mut session, &sources, &options);
    for (drafting, right) in [(&model, true), (&copy, true), (&other, false)] {
        // With and without a spare token in the plan of the drafting session, and with space for
        // one sentence.
        for (sentences, draft_tokens, most) in [(3, 1, 5), (3, 0, 5), (1, 1, 3), (2, 4, 1)] {
            let limits = Limits { draft_tokens, ..Limits::new(sentences, 9, 40) };
            let small = Session::new(drafting, limits).expect("a session");
            let mut drafter = ModelDrafter::new(small, &options, most).at_most(4);
            for sources in [&sources[..], &sources[1..], &sources[..1], &sources[..]] {
                let expected: Vec<_> = if sources.len() == 3 {
                    expected.clone()
                } else {
                    plain(&mut session, sources, &options)
                };
                let (found, counts) = drafted(&mut session, sources, &options, &mut drafter);
                assert_eq!(found, expected);
                assert!(counts.drafted > 0);
                // Tokens drafted after the last token of the target are drafted but not
                // accepted.
                let wrong = counts.drafted - counts.accepted;
                assert!(!right || wrong <= most * sources.len(), "{counts:?}");
            }
        }
    }
}

/// Drafts for several sentences in one pass are those for each sentence alone.
#[test]
fn a_model_drafts_for_several_as_for_each() {
    let model = model(Family::Marian);
    let options = SearchOptions { min_new_tokens: 3, ..options(&model) };
    let (start, vocabulary) = (options.start, model.config().target_vocab);
    let mut random = Random(77);
    for (sentences, draft_tokens, most) in [(4, 4, 5), (4, 1, 3), (4, 0, 8), (2, 3, 2), (1, 2, 4)] {
        let limits = Limits { draft_tokens, ..Limits::new(sentences, 9, 12) };
        let drafter = || {
            let session = Session::new(&model, limits).expect("a session");
            ModelDrafter::new(session, &options, most).at_most(5)
        };
        let mut together = drafter();
        let mut alone: [_; 5] = core::array::from_fn(|_| drafter());
        let sources: Vec<Vec<u32>> = (0..5).map(|i| random.ids(3 + i, vocabulary - 1)).collect();
        let mut targets: Vec<Vec<u32>> = vec![vec![start]; 5];
        for _ in 0..7 {
            let mut drafts = [[u32::MAX; 6]; 5];
            // There are drafts for as many sentences as the session has space for, and perhaps
            // for one more.
            let count = (sentences + 1).min(5);
            let mut asked: Vec<DraftRequest<'_>> = drafts[..count]
                .iter_mut()
                .enumerate()
                .map(|(index, draft)| DraftRequest {
                    context: DraftContext {
                        index,
                        source: &sources[index],
                        target: &targets[index],
                        prompt_len: 1,
                        active: count,
                        ..DraftContext::default()
                    },
                    draft: &mut draft[..6 - index],
                    found: 99,
                })
                .collect();
            together.draft_all(&mut asked);
            let found: Vec<Vec<u32>> =
                asked.iter().map(|asked| asked.draft[..asked.found].to_vec()).collect();
            for (index, found) in found.iter().enumerate() {
                let mut draft = [u32::MAX; 6];
                let context = DraftContext {
                    index,
                    source: &sources[index],
                    target: &targets[index],
                    prompt_len: 1,
                    active: count,
                    ..DraftContext::default()
                };
                let len = alone[index].draft(&context, &mut draft[..6 - index]);
                if index < sentences.min(4) {
                    assert_eq!(found, &draft[..len], "{sentences} {draft_tokens} {most}");
                } else {
                    assert!(found.is_empty() || found == &draft[..len]);
                }
            }
            // The targets follow some drafts, follow others in part, and then differ from them.
            for (target, found) in targets.iter_mut().zip(&found) {
                target.extend(&found[..random.below(found.len() + 1)]);
                target.push(random.ids(1, vocabulary - 1)[0]);
            }
        }
    }
}

/// A pair asks the second drafter for each source for which the first has no draft, in any order of the
/// requests.
#[test]
fn a_pair_drafts_for_several_sources() {
    let targets = [[2, 30, 31, 9, 30], [2, 40, 41, 9, 40], [2, 50, 51, 52, 53]];
    let given: [&[u32]; 3] = [&[], &[40, 41, 9, 40, 7, 8], &[]];
    let mut pair = (ReferenceDrafter(&given), PromptLookup { shortest: 1 });
    let mut drafts = [[0; 3]; 3];
    let mut asked: Vec<DraftRequest<'_>> = targets
        .iter()
        .zip(&mut drafts)
        .enumerate()
        .map(|(index, (target, draft))| DraftRequest {
            context: DraftContext { index, target, prompt_len: 1, ..DraftContext::default() },
            draft,
            found: 0,
        })
        .collect();
    pair.draft_all(&mut asked);
    asked.sort_by_key(|asked| asked.context.index);
    let found: Vec<&[u32]> = asked.iter().map(|asked| &asked.draft[..asked.found]).collect();
    assert_eq!(found, [&[31, 9, 30][..], &[7, 8], &[]]);
}

#[test]
fn a_model_without_space_does_not_draft() {
    let model = model(Family::Marian);
    let options = options(&model);
    let limits = Limits { draft_tokens: 5, ..Limits::new(1, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let sources = [Source::new(&[5, 9, 3, 0])];
    let expected = plain(&mut session, &sources, &options);
    // A source that is too long for the drafting session, and targets that become too long.
    for (source, target) in [(3, 40), (9, 7)] {
        let small = Session::new(&model, Limits::new(1, source, target)).expect("a session");
        let mut drafter = ModelDrafter::new(small, &options, 4);
        let (found, counts) = drafted(&mut session, &sources, &options, &mut drafter);
        assert_eq!(found, expected);
        assert_eq!(counts.drafted > 0, source == 9);
        assert!(counts.drafted <= target);
    }
    // A smaller vocabulary: the target has tokens outside of it.
    let narrow = Dims { vocabulary: 12, ..Dims::small(Family::Marian) };
    let narrow = Model::load(&narrow.checkpoint(1), model.isa()).expect("a model");
    let small = Session::new(&narrow, Limits::new(1, 9, 40)).expect("a session");
    let mut drafter = ModelDrafter::new(small, &options, 4);
    let (found, _) = drafted(&mut session, &sources, &options, &mut drafter);
    assert_eq!(found, expected);
}

#[test]
fn several_hypotheses_of_a_source_get_no_drafts() {
    let model = model(Family::Marian);
    let limits = Limits { beams: 3, draft_tokens: 5, ..Limits::new(2, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let beams = BeamOptions { beams: 3, ..BeamOptions::default() };
    let mut asked = |_: &DraftContext<'_>, _: &mut [u32]| -> usize { panic!("asked") };
    for (strategy, num_return_sequences) in
        [(Strategy::Beam(beams), 2), (Strategy::Sample(SampleOptions::default()), 3)]
    {
        let options = SearchOptions { strategy, num_return_sequences, ..options(&model) };
        let sources = [Source::new(&[5, 9, 0]), Source::new(&[8, 0])];
        let expected = plain(&mut session, &sources, &options);
        let (found, counts) = drafted(&mut session, &sources, &options, &mut asked);
        assert_eq!(found, expected);
        assert_eq!((counts.drafted, counts.accepted), (0, 0));
    }
    // Nor are there drafts while many sentences are active.
    let limits = Limits { draft_tokens: 50, ..Limits::new(9, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let sources: Vec<Vec<u32>> = (0..9).map(|i| vec![20 + i, 9, 0]).collect();
    let sources: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    let options = SearchOptions { max_new_tokens: Some(12), min_new_tokens: 12, ..options(&model) };
    let expected = plain(&mut session, &sources, &options);
    let (found, counts) = drafted(&mut session, &sources, &options, &mut asked);
    assert_eq!((found, counts.steps), (expected, 12));
}

#[test]
fn a_stop_ends_at_the_same_token() {
    let model = model(Family::Marian);
    let options = options(&model);
    let limits = Limits { draft_tokens: 12, ..Limits::new(2, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let sources = [Source::new(&[5, 9, 0]), Source::new(&[8, 0]), Source::new(&[7, 3, 0])];
    let expected = plain(&mut session, &sources, &options);
    let known: Vec<&[u32]> = expected.iter().map(|one| &one.0[..]).collect();
    for (stop, at) in [(Stop::Source, 0), (Stop::Source, 9), (Stop::All, 0), (Stop::All, 7)] {
        let mut told = vec![Vec::new(); 3];
        let mut done = vec![None; 3];
        let mut on_event = |event: Event<'_>| {
            match event {
                Event::Token { source, token } => {
                    told[source].push(token.id);
                    if source == 1 && token.index == at {
                        return ControlFlow::Break(stop);
                    }
                }
                Event::Done(one) => {
                    let best = one.hypotheses().next().map(|best| best.tokens.to_vec());
                    done[one.source] = Some((one.finish, best.unwrap_or_default()));
                }
                _ => (),
            }
            ControlFlow::Continue(())
        };
        let hooks = &mut Hooks::default();
        let counts = session
            .generate_drafted(
                &sources,
                &options,
                hooks,
                &mut ReferenceDrafter(&known),
                &mut on_event,
            )
            .expect("generated");
        assert!(counts.drafted > 0);
        for (source, one) in done.into_iter().enumerate() {
            let (finish, tokens) = one.expect("done");
            // A source has no more tokens than were reported, except one of the step in
            // progress.
            let told = &told[source];
            assert!(tokens.starts_with(told) && tokens.len() <= told.len() + 1, "{stop:?} {at}");
            assert!(known[source].starts_with(&tokens));
            match (stop, source) {
                (_, 1) => assert_eq!((finish, tokens.len()), (Finish::Stopped, at as usize + 1)),
                (Stop::Source, _) => assert_eq!(tokens, known[source]),
                (Stop::All, 2) => assert!(tokens.is_empty(), "it had not begun"),
                (Stop::All, _) => assert_eq!(finish, Finish::Stopped),
            }
        }
    }
}

#[test]
fn wrong_drafts_and_counts_change_nothing() {
    let model = model(Family::Marian);
    let options = options(&model);
    let sources = [Source::new(&[5, 9, 0])];
    let limits = Limits { draft_tokens: 6, ..Limits::new(1, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let expected = plain(&mut session, &sources, &options);
    let known = expected[0].0.clone();
    for (what, says) in [("too many", usize::MAX), ("as many as there are", 6), ("none", 0)] {
        for bad in [131, u32::MAX, 130] {
            let mut drafter = |context: &DraftContext<'_>, draft: &mut [u32]| {
                let rest = &known[context.target.len() - 1..];
                let count = draft.len().min(rest.len());
                draft[..count].copy_from_slice(&rest[..count]);
                draft[count.min(2)..].fill(bad);
                says
            };
            let (found, counts) = drafted(&mut session, &sources, &options, &mut drafter);
            assert_eq!(found, expected, "{what} {bad}");
            assert!((says == 0) == (counts.drafted == 0), "{what} {bad} {counts:?}");
            assert!(bad == 130 || counts.drafted == counts.accepted, "{what} {bad} {counts:?}");
        }
    }
    let mut plain = Session::new(&model, Limits::new(1, 9, 40)).expect("a session");
    let hooks = &mut Hooks::default();
    let refused = plain.generate_drafted(
        &sources,
        &options,
        hooks,
        &mut PromptLookup::default(),
        &mut |_| (),
    );
    let text =
        "the limit `draft_tokens`: expected at most 0, with which the session was planned, found 1";
    assert_eq!(refused.expect_err("no drafts").to_string(), text);
}

/// Breaks the contract of a drafter in the way that `kind` selects, for every sentence.
struct Broken {
    kind: usize,
    found: usize,
}

impl Drafter for Broken {
    fn draft(&mut self, _: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        draft.fill(9);
        self.found
    }

    fn draft_all(&mut self, asked: &mut [DraftRequest<'_>]) {
        for asked in asked.iter_mut() {
            asked.draft.fill(9);
            asked.found = self.found;
        }
        match self.kind {
            // Another slice, longer or empty.
            0 => asked.iter_mut().for_each(|asked| asked.draft = vec![3; 4096].leak()),
            1 => asked.iter_mut().for_each(|asked| asked.draft = &mut []),
            // The slice of another request, which may have another length.
            2 => {
                if let [a, b, ..] = asked {
                    core::mem::swap(&mut a.draft, &mut b.draft);
                }
            }
            // An index without a source, or the same index for all.
            3 => asked.iter_mut().for_each(|asked| asked.context.index = usize::MAX),
            4 => asked.iter_mut().for_each(|asked| asked.context.index = 0),
            _ => (),
        }
    }
}

#[test]
fn a_broken_drafter_changes_nothing() {
    let model = model(Family::Marian);
    let options = options(&model);
    let limits = Limits { draft_tokens: 16, ..Limits::new(3, 9, 32) };
    let mut session = Session::new(&model, limits).expect("a session");
    let sources = [&[5, 9, 3, 0][..], &[6, 0], &[7, 8, 0]].map(Source::new);
    let expected = plain(&mut session, &sources, &options);
    for kind in 0..=5 {
        for found in [0, 1, 7, 100, usize::MAX] {
            let mut drafter = Broken { kind, found };
            let (generated, counts) = drafted(&mut session, &sources, &options, &mut drafter);
            assert_eq!(generated, expected, "{kind} {found}");
            assert!(counts.drafted > 0 || found == 0 || kind == 3, "{kind} {found} {counts:?}");
        }
    }
}

/// A call that fails in the middle leaves drafts behind. The next one has fewer sources and the counts of a new session.
#[test]
fn a_call_after_one_that_failed_has_its_own_drafts() {
    let model = model(Family::Marian);
    let options = options(&model);
    let limits = Limits { draft_tokens: 16, ..Limits::new(3, 9, 40) };
    let sources = [&[5, 9, 3, 0][..], &[6, 0], &[7, 8, 0]].map(Source::new);
    let new = || Session::new(&model, limits).expect("a session");
    let known = plain(&mut new(), &sources, &options);
    let expected: Vec<&[u32]> = known.iter().map(|(tokens, ..)| &tokens[..]).collect();
    for count in 1..3 {
        let sources_after = &sources[..count];
        let mut drafter = ReferenceDrafter(&expected);
        let alone = drafted(&mut new(), sources_after, &options, &mut drafter);
        let mut session = new();
        for calls in 0..12 {
            let mut left = calls;
            let mut rule = |_: &Context<'_>, _: &mut [f32]| match left {
                0 => Err(Error::processor("of the test")),
                _ => {
                    left -= 1;
                    Ok(())
                }
            };
            let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut rule];
            let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
            let failed = session.generate_drafted(
                &sources,
                &options,
                &mut hooks,
                &mut ReferenceDrafter(&expected),
                &mut |_| (),
            );
            assert!(failed.is_err(), "{calls}");
            let found = drafted(&mut session, sources_after, &options, &mut drafter);
            assert_eq!(found, alone, "{count} sources after {calls} calls");
        }
    }
}

/// A planned draft token takes memory for its rows of logits and activations, and nothing else grows.
#[test]
fn only_planned_drafts_take_memory() {
    let model = model(Family::Marian);
    let bytes = |draft_tokens| {
        let limits = Limits { draft_tokens, ..Limits::new(4, 9, 12) };
        Plan::new(&model, limits).expect("a plan").bytes()
    };
    let row = 131 * size_of::<f32>();
    let one = (bytes(1064) - bytes(64)) / 1000;
    // The pruned argmax takes most of it.
    assert!(one > row && one < row + (12 << 10), "{one} bytes for one token of a draft");
    assert!(bytes(64) - bytes(0) < 64 * one + (12 << 10));
}
