//! Drafts change no result: for any draft, the tokens, their probabilities and the bits of all later logits
//! are those of decoding step by step.

use crate::random_model::{Dims, Random, decoding};
use crate::scoped::Scoped;
use safetensors::SafeTensors;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::*;
use simdformer::{
    Error, Event, Features, HypothesisId, Limits, Model, Session, Source, SourceId, StepRow,
    Threads, Verified,
};
use std::path::Path;

/// Goldens with a decoder.
const GOLDENS: [&str; 19] = [
    "marian_odd",
    "marian_untied",
    "nn_transformer_post",
    "nn_transformer_pre",
    "families/pegasus",
    "families/blenderbot",
    "families/blenderbot_small",
    "families/mvp",
    "families/plbart",
    "families/fsmt",
    "families/seamless_m4t",
    "families/seamless_m4t_v2",
    "families/t5",
    "families/t5_v1_1",
    "families/mt5",
    "families/umt5",
    "families/whisper",
    "families/whisper_english",
    "../../models/fr-en",
];

/// The number of new tokens, if the model has no longest length of its own.
const NEW: usize = 14;
const TARGET: usize = 18;
const DRAFT: usize = 6;

/// A model of another implementation, and some of its sources.
pub(crate) struct Golden {
    pub(crate) model: Model,
    pub(crate) ids: Vec<Vec<u32>>,
    features: Vec<(Vec<f32>, usize)>,
}

impl Golden {
    pub(crate) fn all(isa: Isa) -> impl Iterator<Item = (&'static str, Self)> {
        GOLDENS.into_iter().map(move |name| (name, Self::open(name, isa)))
    }

    fn open(name: &str, isa: Isa) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
        let model = Model::load(&checkpoint, isa).expect("a model");
        let Ok(bytes) = std::fs::read(folder.join("expected.safetensors")) else {
            let ids = vec![vec![6, 11, 0], vec![9, 14, 32, 0], vec![8, 0]];
            return Self { model, ids, features: Vec::new() };
        };
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let tensors = |name: &'static str| {
            let file = &file;
            (0..3).filter_map(move |i| file.tensor(&format!("{name}.{i}")).ok())
        };
        let id = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap()) as u32;
        let float = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
        let ids = tensors("input_ids").map(|t| t.data().chunks_exact(8).map(id).collect());
        let features = tensors("features")
            .map(|t| (t.data().chunks_exact(4).map(float).collect(), t.shape()[1]));
        let (ids, features) = (ids.collect(), features.collect());
        Self { model, ids, features }
    }

    pub(crate) fn sources(&self) -> Vec<Source<'_>> {
        let features = self
            .features
            .iter()
            .map(|(values, bins)| Source::of_features(Features { values, bins: *bins }));
        self.ids.iter().map(|ids| Source::new(ids)).chain(features).collect()
    }

    pub(crate) fn limits(&self, sentences: usize) -> Limits {
        let positions = self.sources().into_iter().map(|source| match &source.features {
            Some(features) => features.positions(),
            None => source.tokens.len(),
        });
        let longest = positions.max().expect("sources");
        Limits { draft_tokens: DRAFT, ..Limits::new(sentences, longest, TARGET) }
    }

    /// Searches with one hypothesis. Some of them end early, and some end only at the longest length.
    pub(crate) fn searches(&self) -> Vec<SearchOptions> {
        let mut base = self.model.config().search_options();
        base.strategy = Strategy::Greedy;
        (base.num_return_sequences, base.max_new_tokens) = (1, Some(NEW));
        (base.max_length, base.forced_eos) = (None, Vec::new());
        let fast = SearchOptions { scores: false, ..base.clone() };
        let eos = base.eos.clone();
        let tail = self.model.config().target_vocab as u32 - 9;
        let sample = |sample| SearchOptions { strategy: Strategy::Sample(sample), ..base.clone() };
        vec![
            SearchOptions { min_new_tokens: 4, ..base.clone() },
            SearchOptions { repetition_penalty: 1.3, min_length: 7, ..base.clone() },
            SearchOptions { no_repeat_ngram: Some(2), min_new_tokens: 12, ..fast.clone() },
            SearchOptions {
                no_repeat_ngram: Some(1),
                forced_eos: eos.clone(),
                suppress: vec![tail],
                ..fast.clone()
            },
            SearchOptions {
                bad_words: vec![vec![tail + 1], vec![tail + 2, tail + 3]],
                forced_bos: Some(tail + 4),
                begin_suppress: vec![tail + 5],
                exponential_decay: Some((5, 1.2)),
                renormalize: true,
                ..base.clone()
            },
            fast,
            sample(SampleOptions { seed: 3, ..SampleOptions::default() }),
            sample(SampleOptions {
                seed: 4,
                temperature: 0.7,
                top_k: Some(9),
                top_p: Some(0.8),
                ..SampleOptions::default()
            }),
        ]
    }
}

/// Tokens, the bits of their log-probabilities, and why the target ended.
pub(crate) type Outcome = (Vec<u32>, Vec<Option<u32>>, Finish);

/// Adds an event to the outcomes of its call.
pub(crate) fn record(found: &mut [Outcome], event: Event<'_>) {
    match event {
        Event::Token { source, token } => {
            found[source].1.push(token.log_probability.map(f32::to_bits));
        }
        Event::Done(done) => {
            let best = done.hypotheses().next().expect("a hypothesis");
            found[done.source].0 = best.tokens.to_vec();
            found[done.source].2 = done.finish;
        }
        _ => (),
    }
}

/// Each source step by step, as [`Session::generate`] decodes it.
pub(crate) fn plain(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
) -> Vec<Outcome> {
    let mut found = vec![(Vec::new(), Vec::new(), Finish::Stopped); sources.len()];
    let mut on_event = |event: Event<'_>| record(&mut found, event);
    session.generate(sources, options, &mut Hooks::default(), &mut on_event).expect("generated");
    found
}

/// One source alone. Each pass verifies the draft that `draft` makes from the tokens so far. Returns the
/// number of passes as well.
fn drafted(
    session: &mut Session<'_>,
    source: &Source<'_>,
    options: &SearchOptions,
    draft: &mut dyn FnMut(&[u32]) -> Vec<u32>,
) -> (Outcome, usize) {
    let limits = session.plan().limits();
    let vocabulary = session.model().config().target_vocab;
    let search_limits = SearchLimits {
        sentences: 1,
        sequences: 1,
        max_target_length: limits.target_tokens + 1,
        vocabulary,
        end_tokens: limits.end_tokens,
        source_tokens: limits.source_tokens,
    };
    let mut memory = vec![0; words(&search_limits).expect("small")];
    let mut search = Search::new(options, &search_limits, &mut memory).expect("a search");
    let slot = search.admit(&source.request()).expect("admitted");
    session.clear();
    let mut sentence = [SourceId::default()];
    match source.features {
        Some(features) => session.encode_features(&[features], &mut sentence).expect("encoded"),
        None => session.encode(&[source.tokens], &mut sentence).expect("encoded"),
    }
    let row = session.start(sentence[0]).expect("a row");
    let (mut tokens, mut probabilities, mut passes) = (Vec::new(), Vec::new(), 0);
    while let (Some(&token), Some(&position)) =
        (search.rows().tokens.first(), search.rows().positions.first())
    {
        assert_eq!(session.hypothesis_len(row), Ok(position as usize));
        let mut guess = draft(&tokens);
        guess.truncate(DRAFT.min(limits.target_tokens - 1 - position as usize));
        let before = tokens.len();
        let mut on_token = |_: u32, token: Token| {
            tokens.push(token.id);
            probabilities.push(token.log_probability.map(f32::to_bits));
            core::ops::ControlFlow::Continue(())
        };
        let choose = &mut |_: usize, logits: &mut [f32]| {
            search.advance(logits, &mut Hooks::default(), Some(&mut on_token))?;
            Ok(search.rows().tokens.first().copied())
        };
        let step = StepRow::new(row, token);
        let Verified { accepted, next } =
            session.verify(StepRow { draft: &guess, ..step }, choose).expect("verified");
        assert_eq!(tokens.len() - before, accepted + 1, "one more than was accepted");
        assert_eq!(tokens[before..][..accepted], guess[..accepted]);
        assert_eq!(next, search.rows().tokens.first().copied());
        passes += 1;
    }
    let finish = search.finish(slot).expect("finished");
    ((tokens, probabilities, finish), passes)
}

/// A draft of kind `kind` for a target that will be `expected`.
pub(crate) fn guess(
    kind: usize,
    random: &mut Random,
    expected: &[u32],
    so_far: &[u32],
    vocabulary: usize,
) -> Vec<u32> {
    let rest = &expected[so_far.len()..];
    let junk = random.ids(4, vocabulary);
    let at = random.below(rest.len());
    match kind % 6 {
        // No tokens; the right tokens; more tokens than the output has.
        0 => Vec::new(),
        1 => rest.to_vec(),
        2 => [rest, &junk].concat(),
        // One wrong token; one missing token; random tokens.
        3 => {
            let mut wrong = rest.to_vec();
            wrong[at] = junk[0];
            wrong
        }
        4 => [&rest[..at], &rest[at + 1..], &junk].concat(),
        _ => junk,
    }
}

#[test]
fn every_golden_has_the_same_output_with_any_draft() {
    let (mut drafts, mut saved, mut refused) = (0, 0, 0);
    for (name, golden) in Golden::all(Isa::best()) {
        let sources = golden.sources();
        let mut session = Session::new(&golden.model, golden.limits(1)).expect("a session");
        let mut random = Random(name.len() as u64);
        let vocabulary = golden.model.config().target_vocab;
        for options in golden.searches() {
            for (source, expected) in sources.iter().zip(plain(&mut session, &sources, &options)) {
                let kinds: [usize; 3] = [1, 3, 2 + random.below(40)];
                for kind in kinds {
                    // The last kind changes in every pass.
                    let mut next = |so_far: &[u32]| {
                        let kind = if kind > 3 { random.below(6) } else { kind };
                        drafts += 1;
                        guess(kind, &mut random, &expected.0, so_far, vocabulary)
                    };
                    let (found, passes) = drafted(&mut session, source, &options, &mut next);
                    assert_eq!(found, expected, "{name} {options:?}");
                    if kind == 1 {
                        assert_eq!(passes, expected.0.len().div_ceil(DRAFT + 1), "{name}");
                    }
                    saved += expected.0.len() - passes;
                    refused += usize::from(passes > expected.0.len().div_ceil(DRAFT + 1));
                }
            }
        }
    }
    assert!(drafts > 300 && saved > 300 && refused > 100, "{drafts} {saved} {refused}");
}

#[test]
fn a_wrong_token_is_found_at_every_position() {
    for family in decoding() {
        let model = Model::load(&Dims::small(family).checkpoint(5), Isa::best()).expect("a model");
        let golden = Golden { model, ids: vec![vec![5, 9, 17, 3]], features: Vec::new() };
        let mut session = Session::new(&golden.model, golden.limits(1)).expect("a session");
        let (sources, options) = (golden.sources(), &golden.searches()[2]);
        let expected = plain(&mut session, &sources, options).remove(0);
        assert!(expected.0.len() > DRAFT);
        for at in 0..DRAFT {
            let mut first = true;
            let mut next = |_: &[u32]| {
                let mut draft = if first { expected.0.clone() } else { Vec::new() };
                if core::mem::take(&mut first) {
                    draft[at] = (draft[at] + 1) % 131;
                }
                draft
            };
            let (found, passes) = drafted(&mut session, &sources[0], options, &mut next);
            assert_eq!(found, expected, "{family:?}");
            assert_eq!(passes, expected.0.len() - at, "{family:?}: an error at {at}");
        }
    }
}

/// Hypotheses of one session by steps, and by drafts of random lengths that are partly rewound, with forks
/// and other sentences beside them, on 1, 2 and 3 threads. All logits have the same bits.
#[test]
fn drafts_of_many_rows_have_the_bits_of_steps() {
    const ROWS: usize = 5;
    for (seed, family) in [Family::Marian, Family::T5, Family::Bart].into_iter().enumerate() {
        let dims = Dims { vocabulary: 203, ..Dims::small(family) };
        let model = Model::load(&dims.checkpoint(8), Isa::best()).expect("a model");
        let limits = Limits { beams: 2, draft_tokens: 9, ..Limits::new(3, 9, 40) };
        for threads in 1..=3 {
            let executor = Scoped(threads);
            let mut random = Random(seed as u64);
            let mut session = Session::new(&model, limits).expect("a session");
            if threads > 1 {
                session.set_threads(Threads::Executor(&executor));
            }
            let sources = [9, 2, 5].map(|len| random.ids(len, 203));
            let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
            let mut sentences = [SourceId::default(); 3];
            session.encode(&sources, &mut sentences).expect("encoded");
            let mut rows: Vec<HypothesisId> = Vec::new();
            for i in 0..ROWS {
                let row =
                    if i < 3 { session.start(sentences[i]) } else { session.fork(rows[i - 3]) };
                rows.push(row.expect("a row"));
            }
            let mut fed: Vec<Vec<u32>> = vec![Vec::new(); ROWS];
            let mut steps = Session::new(&model, limits).expect("a session");
            for _ in 0..12 {
                let mut left = limits.draft_tokens;
                let mut tokens: Vec<Vec<u32>> = Vec::new();
                let taken: Vec<usize> = (0..ROWS).filter(|_| random.below(4) > 0).collect();
                for &row in &taken {
                    let drafted = random.below(left + 1).min(38 - fed[row].len());
                    left -= drafted;
                    tokens.push(random.ids(1 + drafted, 203));
                }
                let drafts: Vec<StepRow<'_>> = core::iter::zip(&taken, &tokens)
                    .map(|(&row, tokens)| StepRow {
                        hypothesis: rows[row],
                        token: tokens[0],
                        draft: &tokens[1..],
                    })
                    .collect();
                let logits = session.step(&drafts).expect("stepped").to_vec();
                let mut logits = logits.chunks_exact(203);
                for (&row, tokens) in taken.iter().zip(&tokens) {
                    // The same by steps in another session, alone.
                    steps.clear();
                    let mut sentence = [SourceId::default()];
                    steps.encode(&[sources[row % 3]], &mut sentence).expect("encoded");
                    let twin = steps.start(sentence[0]).expect("a row");
                    for &token in &fed[row] {
                        steps.step(&[StepRow::new(twin, token)]).expect("stepped");
                    }
                    for &token in tokens {
                        let step = steps.step(&[StepRow::new(twin, token)]).expect("stepped");
                        let same = core::iter::zip(&*step, logits.next().expect("a row"));
                        assert!(same.into_iter().all(|(a, b)| a.to_bits() == b.to_bits()));
                    }
                    let stays = fed[row].len() + 1 + random.below(tokens.len());
                    session.rewind(rows[row], stays).expect("rewound");
                    fed[row].extend(tokens);
                    fed[row].truncate(stays);
                    assert_eq!(session.hypothesis_len(rows[row]), Ok(stays));
                }
                assert!(logits.next().is_none());
                // Replace one row by a fork of the rewound row.
                if random.below(3) == 0 {
                    let (parent, child) = if random.below(2) == 0 { (0, 3) } else { (4, 1) };
                    session.release(rows[child]).expect("released");
                    rows[child] = session.fork(rows[parent]).expect("a fork");
                    fed[child] = fed[parent].clone();
                }
            }
        }
    }
}

/// The argmax along a draft is that of steps, also for rows that the pruned argmax leaves undecided.
#[test]
fn the_argmax_along_a_draft() {
    let vocabulary = 2503;
    let dims = Dims { vocabulary, ..Dims::small(Family::Marian) };
    let checkpoint = dims.checkpoint(77);
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let limits = Limits { draft_tokens: 7, ..Limits::new(1, 9, 40) };
        let mut session = Session::new(&model, limits).expect("a session");
        let mut sentence = [SourceId::default()];
        session.encode(&[&[5, 9, 3, 0]], &mut sentence).expect("encoded");
        let row = session.start(sentence[0]).expect("a row");
        // Another set of banned tokens for each position of the target. At one position every token
        // is banned.
        let banned = |place: usize, id: u32| place == 30 || id.is_multiple_of(place as u32 % 5 + 2);
        let mut best = vec![2];
        for place in 0..30 {
            let step = StepRow::new(row, best[place]);
            best.extend(session.step_argmax(&[step], &|_, id| banned(place, id)).expect("stepped"));
        }
        let mut random = Random(3);
        for _ in 0..30 {
            session.rewind(row, 0).expect("rewound");
            while let Ok(len @ ..=30) = session.hypothesis_len(row) {
                let mut draft = best[len + 1..].to_vec();
                draft.truncate(random.below(8));
                let wrong = random.below(9);
                if let Some(token) = draft.get_mut(wrong) {
                    *token ^= 1;
                }
                let accepted = wrong.min(draft.len());
                let step = StepRow::new(row, best[len]);
                let ban = |i: usize, id: u32| banned(len + i, id);
                let verified = session
                    .verify_argmax(StepRow { draft: &draft, ..step }, &ban)
                    .expect("verified");
                let next = best.get(len + accepted + 1).copied();
                assert_eq!(verified, Verified { accepted, next }, "{isa} {len}");
                assert_eq!(session.hypothesis_len(row), Ok(len + accepted + 1));
            }
        }
        assert!(session.step_argmax(&[], &|_, _| false).expect("nothing to do").is_empty());
    }
}

/// Wrong drafts are the same errors as wrong steps.
#[test]
fn wrong_drafts_are_the_errors_of_steps() {
    let model =
        Model::load(&Dims::small(Family::Marian).checkpoint(1), Isa::best()).expect("a model");
    let limits = Limits { beams: 2, draft_tokens: 4, ..Limits::new(1, 9, 12) };
    let mut session = Session::new(&model, limits).expect("a session");
    let mut sentence = [SourceId::default()];
    session.encode(&[&[5, 9, 0]], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    let step = StepRow { hypothesis: row, token: 1, draft: &[1] };
    let twice = session.step(&[step, step]).map(|_| ());
    let text = "hypothesis: expected each one once in one step, found slot 0, which is named twice";
    assert_eq!(twice.expect_err("twice").to_string(), text);
    let many = session.step(&[StepRow::default(); 3]).map(|_| ());
    let beyond = |limit: &str, most: usize, found: usize| {
        format!(
            "the limit `{limit}`: expected at most {most}, with which the session was planned, found {found}"
        )
    };
    let many = many.expect_err("too many").to_string();
    assert_eq!(many, beyond("sentences * beams", 2, 3));
    assert_eq!(session.hypothesis_len(row), Ok(0));
    session.prefill(row, &[1; 10], None).expect("prefilled");
    let long =
        session.verify_argmax(StepRow { draft: &[1; 2], ..StepRow::new(row, 1) }, &|_, _| false);
    assert_eq!(long.expect_err("too long").to_string(), beyond("target_tokens", 12, 13));
    assert_eq!(session.hypothesis_len(row), Ok(10));
    session.release(row).expect("released");
    let error = session.step(&[step]).map(|_| ()).expect_err("released");
    assert!(matches!(error, Error::InvalidHandle { found, .. } if found == row.slot()), "{error}");
    assert_eq!(session.rewind(row, 0), Err(error.clone()));
    let step = StepRow::new(row, 1);
    assert_eq!(
        session.verify(StepRow { draft: &[1], ..step }, &mut |_, _| Ok(None)),
        Err(error.clone())
    );
    assert_eq!(session.verify_argmax(StepRow { draft: &[1], ..step }, &|_, _| false), Err(error));
}

/// Only planned drafts take memory, and the planned memory is enough.
#[test]
fn the_plan_has_memory_for_the_drafts() {
    let model =
        Model::load(&Dims::small(Family::Marian).checkpoint(1), Isa::best()).expect("a model");
    let limits = Limits::new(2, 9, 12);
    let bytes = |draft_tokens| {
        let limits = Limits { draft_tokens, ..limits };
        simdformer::Plan::new(&model, limits).expect("a plan").bytes()
    };
    assert!(bytes(0) < bytes(8) && bytes(8) < bytes(64));
    assert!(simdformer::Plan::new(&model, Limits { draft_tokens: usize::MAX, ..limits }).is_err());
    // A draft longer than the number of tokens that an encode call takes.
    let limits = Limits { draft_tokens: 30, ..Limits::new(1, 2, 40) };
    let mut session = Session::new(&model, limits).expect("a session");
    let mut sentence = [SourceId::default()];
    session.encode(&[&[5, 0]], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    let draft = Random(1).ids(30, 131);
    let logits = session.step(&[StepRow { hypothesis: row, token: 2, draft: &draft }]);
    assert_eq!(logits.expect("stepped").len(), 31 * 131);
    assert!(session.plan().to_string().contains("30 tokens of drafts"));
}
