//! Drafts in the decoding loop: with any drafter the events are those of decoding without, but for their
//! number of steps.

use crate::random_model::{Dims, Random};
use crate::toy::{self, Toy};
use crate::verify::{Golden, Outcome, guess, plain};
use core::ops::ControlFlow;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::*;
use simdformer::{
    DecodeStats, DraftContext, DraftRequest, Drafter, Event, Limits, Model, ModelDrafter, Plan,
    PromptLookup, ReferenceDrafter, Session, SessionError, Source, Stop, WeightDtype, WeightDtypes,
};

/// Each source with a drafter's help, and what it came to.
fn drafted(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
    drafter: &mut dyn Drafter,
) -> (Vec<Outcome>, DecodeStats) {
    let mut found = vec![(Vec::new(), Vec::new(), Finish::Stopped); sources.len()];
    let mut on_event = |event: Event<'_>| match event {
        Event::Token { source, token } => {
            found[source].1.push(token.log_probability.map(f32::to_bits));
        }
        Event::Done(done) => {
            let best = done.hypotheses().next().expect("a hypothesis");
            found[done.source].0 = best.tokens.to_vec();
            found[done.source].2 = done.finish;
        }
        _ => (),
    };
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
    // An end token saves no step.
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

/// A known target takes as many steps as drafts of 4, 8 and so on.
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
    // 4 + 1, 8 + 1, then what is left but the last, which is chosen and never fed.
    let steps = DecodeStats { steps: 3, rows: 3, drafted: 27, accepted: 27, cancelled: 0 };
    assert_eq!(counts, steps);
    // Useless ones are soon rare.
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

/// The rules of the caller see the same scores under the same histories in the same order.
#[test]
fn rules_with_a_memory_see_what_they_would_see() {
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
        // Takes off the score of a token each time it was the best: a rule with a memory.
        let mut counts = [0.0; 131];
        let mut rule = |context: &Context<'_>, scores: &mut [f32], _: &mut [u32]| {
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
        let mut hooks = Hooks { processors: &mut processors, allowed: Some(&mut allowed) };
        let mut on_event = |event: Event<'_>| {
            if let Event::Token { token, .. } = event {
                tokens.push(token.id);
            }
        };
        if with_drafts {
            let second = known.len() / 2;
            let (first, second) = known.split_at(second);
            // Right, with an error here and there; the prefix is none of the target.
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

/// A second session drafts: of the same model it is always right, and it follows where another is not.
#[test]
fn a_model_can_draft() {
    let model = model(Family::Marian);
    let bytes = WeightDtypes::all(WeightDtype::Int8);
    let checkpoint = Dims::small(Family::Marian).checkpoint(5);
    let copy = Model::load_as(&checkpoint, model.isa(), &bytes, &mut |_| ()).expect("a copy");
    let other = self::model(Family::T5);
    let options = options(&model);
    let limits = Limits { draft_tokens: 20, ..Limits::new(3, 9, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let ids = [vec![5, 9, 3, 0], vec![7, 0], vec![4, 4, 11, 8, 6, 0]];
    let sources: Vec<Source<'_>> = ids.iter().map(|ids| Source::new(ids)).collect();
    let expected = plain(&mut session, &sources, &options);
    for (drafting, right) in [(&model, true), (&copy, true), (&other, false)] {
        // With and without what was decided in one pass; and with space for one sentence at a time.
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
                // What is drafted beyond the last token that is allowed is not counted.
                let wrong = counts.drafted - counts.accepted;
                assert!(!right || wrong <= most * sources.len(), "{counts:?}");
            }
        }
    }
}

/// What is guessed for several sentences in one pass is what is guessed for each alone.
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
            // As many as there is space for are guessed at, and one more that may not be.
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
                        living: count,
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
                    living: count,
                    ..DraftContext::default()
                };
                let len = alone[index].draft(&context, &mut draft[..6 - index]);
                if index < sentences.min(4) {
                    assert_eq!(found, &draft[..len], "{sentences} {draft_tokens} {most}");
                } else {
                    assert!(found.is_empty() || found == &draft[..len]);
                }
            }
            // Some are right, some in part, some go another way.
            for (target, found) in targets.iter_mut().zip(&found) {
                target.extend(&found[..random.below(found.len() + 1)]);
                target.push(random.ids(1, vocabulary - 1)[0]);
            }
        }
    }
}

/// Of a pair the second is asked where the first knows nothing, whatever their order becomes.
#[test]
fn a_pair_is_asked_for_several() {
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
    // A source that is too long for it; targets that become so.
    for (source, target) in [(3, 40), (9, 7)] {
        let small = Session::new(&model, Limits::new(1, source, target)).expect("a session");
        let mut drafter = ModelDrafter::new(small, &options, 4);
        let (found, counts) = drafted(&mut session, &sources, &options, &mut drafter);
        assert_eq!(found, expected);
        assert_eq!(counts.drafted > 0, source == 9);
        assert!(counts.drafted <= target);
    }
    // A vocabulary of which the target leaves.
    let narrow = Dims { vocabulary: 12, ..Dims::small(Family::Marian) };
    let narrow = Model::load(&narrow.checkpoint(1), model.isa()).expect("a model");
    let small = Session::new(&narrow, Limits::new(1, 9, 40)).expect("a session");
    let mut drafter = ModelDrafter::new(small, &options, 4);
    let (found, _) = drafted(&mut session, &sources, &options, &mut drafter);
    assert_eq!(found, expected);
}

#[test]
fn where_there_is_more_than_one_hypothesis_nobody_is_asked() {
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
    // Nor where many sentences live at a time, until few are left.
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
fn stops_come_at_the_same_token() {
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
            // Nobody has more than was told, but for one token of a step that was going on.
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
fn what_a_drafter_says_is_not_trusted() {
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
    let (limit, expected_at_most, found) = ("draft_tokens", 0, 1);
    assert_eq!(refused, Err(SessionError::BeyondPlan { limit, expected_at_most, found }));
}

/// Says of every sentence what only a broken drafter does.
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
            // The slice of a neighbor, whose number of tokens may be another.
            2 => {
                if let [a, b, ..] = asked {
                    core::mem::swap(&mut a.draft, &mut b.draft);
                }
            }
            // A source that is not there, or the same one for all.
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

/// Each token of a draft takes its rows of logits and activations, and nothing else grows.
#[test]
fn what_is_not_planned_is_not_paid() {
    let model = model(Family::Marian);
    let bytes = |draft_tokens| {
        let limits = Limits { draft_tokens, ..Limits::new(4, 9, 12) };
        Plan::new(&model, limits).expect("a plan").bytes()
    };
    let row = 131 * size_of::<f32>();
    let one = (bytes(1064) - bytes(64)) / 1000;
    // The screen takes most of it.
    assert!(one > row && one < row + (12 << 10), "{one} bytes for one token of a draft");
    assert!(bytes(64) - bytes(0) < 64 * one + (12 << 10));
}

/// A search on logits alone: those that a draft is wrong before are never looked at.
#[test]
fn scores_behind_an_error_are_not_looked_at() {
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

/// Finish, tokens and the bits of the score of each request.
type Searched = Vec<(Option<Finish>, Vec<u32>, u32)>;

/// Rows of one search, some of them with drafts. Where it is known what comes out, every row of logits that no
/// plain search sees is NaN.
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
            // The first is replaced by the second.
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
            let bans = search.bans();
            let best = (0..).zip(&mut logits).map(|(row, logits)| {
                let mut best = (UNDECIDED, f32::NEG_INFINITY);
                for (token, &logit) in (0..).zip(&*logits) {
                    if !bans.banned(row, token) && logit > best.1 {
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
            assert!(!bans.banned(best.len(), 3), "no such row");
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
