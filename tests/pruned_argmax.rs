//! Greedy search with the argmax alone gives the tokens of greedy search on all logits: for every rule, in
//! every batch, on every instruction set. On a CPU without int8 dot products both take the same path, and
//! the tests still hold.

use crate::effort::all_cases_on;
use crate::random_model::{Dims, Random};
use crate::toy::{Toy, hash};
use safetensors::SafeTensors;
use simdformer::Error;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::*;
use simdformer::{Event, Limits, Model, Session, Source, StepRow};

fn options(model: &Model) -> SearchOptions {
    SearchOptions {
        strategy: Strategy::Greedy,
        max_new_tokens: Some(14),
        max_length: None,
        forced_eos: Vec::new(),
        ..model.config().search_options()
    }
}

/// The tokens of every source, and whether they have scores.
fn generate(
    session: &mut Session<'_>,
    sources: &[Vec<u32>],
    options: &SearchOptions,
) -> (Vec<Vec<u32>>, bool) {
    let requests: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    let mut found = vec![Vec::new(); sources.len()];
    let mut scored = true;
    session
        .generate(&requests, options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                let best = done.hypotheses().next().expect("a hypothesis");
                scored &= !best.score.is_nan();
                found[done.source] = best.tokens.to_vec();
            }
        })
        .expect("generated");
    (found, scored)
}

/// Rules that only ban or force tokens, one at a time and combined.
fn rules(base: &SearchOptions) -> Vec<SearchOptions> {
    let eos = base.eos.clone();
    vec![
        base.clone(),
        SearchOptions { min_new_tokens: 14, ..base.clone() },
        SearchOptions { min_length: 9, suppress: (40..90).collect(), ..base.clone() },
        SearchOptions { no_repeat_ngram: Some(1), ..base.clone() },
        SearchOptions { no_repeat_ngram: Some(2), begin_suppress: vec![3, 5, 8], ..base.clone() },
        SearchOptions { forced_bos: Some(17), begin_suppress: vec![4, 6], ..base.clone() },
        SearchOptions { forced_eos: eos.clone(), min_new_tokens: 14, ..base.clone() },
        SearchOptions {
            bad_words: vec![vec![7], eos, vec![3, 4], (0..60).collect()],
            forced_eos: vec![21, 9, 30],
            suppress: vec![9],
            ..base.clone()
        },
        // Rules that change scores need all logits. The tokens are the same with and without
        // scores.
        SearchOptions { repetition_penalty: 1.4, ..base.clone() },
        SearchOptions { sequence_bias: vec![(vec![9], 2.5)], ..base.clone() },
    ]
}

#[test]
fn tokens_are_those_of_all_logits() {
    for (family, vocabulary) in
        [(Family::Marian, 131), (Family::M2M100, 3001), (Family::NnTransformer, 1203)]
    {
        let dims = Dims { vocabulary, ..Dims::small(family) };
        let checkpoint = dims.checkpoint(23);
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            let mut random = Random(5);
            let sources: Vec<Vec<u32>> =
                [4, 9, 1, 12, 7, 2, 16].map(|len| random.ids(len, vocabulary)).into();
            let step = if all_cases_on(isa) { 1 } else { 4 };
            for options in rules(&options(&model)).into_iter().step_by(step) {
                let mut batch = Session::new(&model, Limits::new(5, 16, 17)).expect("a session");
                let (expected, scored) = generate(&mut batch, &sources, &options);
                assert!(scored);
                let distinct: std::collections::HashSet<_> = expected.iter().collect();
                assert!(distinct.len() > 1, "every source gives {:?}", expected[0]);
                let options = SearchOptions { scores: false, ..options };
                let (found, scored) = generate(&mut batch, &sources, &options);
                assert!(!scored);
                assert_eq!(found, expected, "{family:?} {isa} {options:?}");
                let mut alone = Session::new(&model, Limits::new(1, 16, 17)).expect("a session");
                for (source, expected) in sources.iter().zip(&expected) {
                    let found = generate(&mut alone, std::slice::from_ref(source), &options).0;
                    assert_eq!(&found[0], expected, "{family:?} {isa} alone {options:?}");
                }
            }
        }
    }
}

#[cfg(feature = "rayon")]
#[test]
fn tokens_do_not_depend_on_threads() {
    let dims = Dims { vocabulary: 5003, ..Dims::small(Family::Bart) };
    let model = Model::load(&dims.checkpoint(3), Isa::best()).expect("a model");
    let mut random = Random(9);
    let sources: Vec<Vec<u32>> = (1..12).map(|len| random.ids(len, 5003)).collect();
    let options = SearchOptions { scores: false, ..options(&model) };
    let mut session = Session::new(&model, Limits::new(11, 16, 17)).expect("a session");
    let expected = generate(&mut session, &sources, &options).0;
    session.set_threads(simdformer::Threads::Rayon);
    for threads in [1, 2, 3, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        let found = pool.install(|| generate(&mut session, &sources, &options).0);
        assert_eq!(found, expected, "{threads} threads");
    }
}

/// `bytes` with tensor `name` replaced by `value(its index)`.
fn with_tensor(bytes: &[u8], name: &str, value: impl Fn(usize) -> f32) -> Vec<u8> {
    let tensors = SafeTensors::deserialize(bytes).expect("a safetensors file");
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(found, view)| {
            let data = if found == name {
                (0..view.data().len() / 4).flat_map(|i| value(i).to_le_bytes()).collect()
            } else {
                view.data().to_vec()
            };
            (found.to_string(), view.shape().to_vec(), data)
        })
        .collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name, view.expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a safetensors file")
}

/// Many logits that are equal or nearly equal. No error bound can separate them, so all logits are
/// computed.
#[test]
fn undecided_rows_fall_back_to_all_logits() {
    let vocabulary = 6007;
    let dims = Dims { vocabulary, ..Dims::small(Family::NnTransformer) };
    let d = dims.d_model;
    let row = Dims::small(Family::NnTransformer);
    let mut random = Random(row.d_model as u64);
    let weights: Vec<f32> = (0..d).map(|_| random.symmetric()).collect();
    let equal = |i: usize| weights[i % d];
    let nearly = |i: usize| {
        let nudge = hash(&[i as u32]) as f32 / u64::MAX as f32;
        weights[i % d] * (1.0 + nudge * 1e-6)
    };
    for (what, bytes) in [
        ("equal", with_tensor(&dims.bytes(4), "generator.weight", equal)),
        ("nearly equal", with_tensor(&dims.bytes(4), "generator.weight", nearly)),
    ] {
        let bytes = with_tensor(&bytes, "generator.bias", |_| 0.0);
        let checkpoint = Checkpoint::from_bytes(dims.config(), bytes).expect("a checkpoint");
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            let options = SearchOptions { suppress: vec![0, 1, 2, 4], ..options(&model) };
            let sources: Vec<Vec<u32>> = (3..10).map(|n| (n..2 * n).collect()).collect();
            let mut session = Session::new(&model, Limits::new(7, 16, 17)).expect("a session");
            let expected = generate(&mut session, &sources, &options).0;
            let fast = SearchOptions { scores: false, ..options };
            assert_eq!(generate(&mut session, &sources, &fast).0, expected, "{what} on {isa}");
        }
    }
}

#[test]
fn step_argmax_gives_the_argmax_of_step() {
    let vocabulary = 2500;
    let dims = Dims { vocabulary, ..Dims::small(Family::Marian) };
    let checkpoint = dims.checkpoint(77);
    let banned = |row: usize, token: u32| {
        row == 3 || token.is_multiple_of(row as u32 + 2) || (row == 1 && token > 11)
    };
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let mut random = Random(1);
        let sources: Vec<Vec<u32>> = (1..5).map(|len| random.ids(len * 3, vocabulary)).collect();
        let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        let limits = Limits { beams: 2, ..Limits::new(4, 16, 17) };
        let mut session = Session::new(&model, limits).expect("a session");
        let mut sentences = [simdformer::SourceId::default(); 4];
        session.encode(&sources, &mut sentences).expect("encoded");
        let rows = sentences.map(|sentence| session.start(sentence).expect("a row"));
        let twins = sentences.map(|sentence| session.start(sentence).expect("a row"));
        let mut fed = [2, 9, 30, 4];
        for _ in 0..6 {
            let steps = |rows: [simdformer::HypothesisId; 4]| -> [StepRow<'static>; 4] {
                core::array::from_fn(|i| StepRow::new(rows[i], fed[i]))
            };
            let logits = session.step(&steps(rows)).expect("stepped").to_vec();
            let best = session.step_argmax(&steps(twins), &banned).expect("stepped").to_vec();
            let expected: Vec<u32> = logits
                .chunks(vocabulary)
                .enumerate()
                .map(|(row, logits)| {
                    let mut best = (u32::MAX, f32::NEG_INFINITY);
                    for (token, &logit) in (0..).zip(logits) {
                        if !banned(row, token) && logit > best.1 {
                            best = (token, logit);
                        }
                    }
                    best.0
                })
                .collect();
            assert_eq!(best, expected, "{isa}");
            assert_eq!(best[3], u32::MAX, "everything is banned in the last row");
            fed = core::array::from_fn(|i| best[i].min(vocabulary as u32 - 1));
        }
        assert!(session.step_argmax(&[], &banned).expect("nothing to do").is_empty());
        let twice = [StepRow::new(rows[0], 1); 2];
        assert!(session.step_argmax(&twice, &banned).is_err());
    }
}

/// The same search, once on all logits and once on the argmax of the tokens that are not banned.
#[test]
fn banned_tokens_are_those_of_the_processors() {
    let vocabulary = 23;
    let none = SearchOptions { eos: vec![1, 5], max_length: Some(13), ..SearchOptions::default() };
    let sets = [
        none.clone(),
        SearchOptions { no_repeat_ngram: Some(1), ..none.clone() },
        SearchOptions { no_repeat_ngram: Some(2), min_new_tokens: 4, ..none.clone() },
        SearchOptions { no_repeat_ngram: Some(3), min_length: 7, ..none.clone() },
        SearchOptions {
            bad_words: vec![vec![1], vec![8], vec![3, 4], vec![2, 9, 1], vec![6, 6]],
            ..none.clone()
        },
        SearchOptions { forced_bos: Some(7), begin_suppress: vec![7, 2, 3], ..none.clone() },
        SearchOptions { forced_bos: Some(7), suppress: vec![7], ..none.clone() },
        SearchOptions { forced_eos: vec![5, 1], begin_suppress: vec![2, 3, 11], ..none.clone() },
        SearchOptions { forced_eos: vec![1, 5], suppress: vec![1], ..none.clone() },
        SearchOptions { forced_eos: vec![1], suppress: vec![1], ..none.clone() },
        SearchOptions { suppress: (0..vocabulary as u32 - 1).collect(), ..none },
    ];
    let mut ends = std::collections::HashSet::new();
    for options in sets {
        for seed in 0..40 {
            let end = (seed % 3) as f32 * 0.4;
            let toy = Toy { seed, vocabulary, scale: 1.5, end, nan_from: usize::MAX };
            let prefix: &[u32] = if seed % 4 == 3 { &[4, 6] } else { &[] };
            let request = Request { prefix, ..Request::default() };
            let slow = drive(&options, &toy, &request, false);
            let fast = SearchOptions { scores: false, ..options.clone() };
            let fast = drive(&fast, &toy, &request, seed % 2 == 0);
            assert_eq!(fast, slow, "{options:?} {toy:?}");
            ends.insert(format!("{:?}", slow.0));
        }
    }
    assert!(ends.len() >= 3, "searches end in too few ways: {ends:?}");
}

/// Runs a greedy search and returns its finish, its tokens and the streamed tokens. A search that needs
/// only the argmax gets it for every row if `all`, else for even rows. The logits of these rows are NaN,
/// because the search must not read them.
fn drive(
    options: &SearchOptions,
    toy: &Toy,
    request: &Request<'_>,
    all: bool,
) -> (Option<Finish>, Vec<u32>, Vec<u32>) {
    let limits = crate::toy::limits(options, 2, 16, toy.vocabulary);
    let mut memory = vec![0; words(&limits).expect("small")];
    let mut search = Search::new(options, &limits, &mut memory).expect("a search");
    let slot = search.admit(request).expect("admitted");
    search.admit(&Request::default()).expect("admitted");
    let mut histories: Vec<Vec<u32>> = Vec::new();
    let mut streamed = Vec::new();
    while !search.rows().is_empty() {
        let mut next = Vec::new();
        for row in search.rows().iter() {
            let mut history = row.parent.map_or(vec![], |p| histories[p as usize].clone());
            history.push(row.token);
            next.push(history);
        }
        histories = next;
        let mut logits: Vec<f32> = histories.iter().flat_map(|h| toy.logits(h)).collect();
        let mut on_token = |sentence: u32, token: Token| {
            if sentence == slot {
                streamed.push(token.id);
            }
            core::ops::ControlFlow::Continue(())
        };
        let mut hooks = Hooks::default();
        assert_eq!(search.needs_argmax_only(&hooks), !options.scores);
        if options.scores {
            search.advance(&mut logits, &mut hooks, Some(&mut on_token)).expect("advanced");
            continue;
        }
        let best: Vec<u32> = logits
            .chunks_mut(toy.vocabulary)
            .enumerate()
            .map(|(row, logits)| {
                if !all && row % 2 == 1 {
                    return UNDECIDED;
                }
                let allowed = (0u32..).zip(&*logits).filter(|&(id, _)| !search.banned(row, id));
                let best = allowed.reduce(|a, b| if b.1 > a.1 { b } else { a });
                let best = best.map_or(UNDECIDED, |(id, _)| id);
                if best != UNDECIDED {
                    logits.fill(f32::NAN);
                }
                best
            })
            .collect();
        search
            .advance_argmax(&best, &mut logits, &mut hooks, Some(&mut on_token))
            .expect("advanced");
    }
    let tokens = search.hypotheses(slot).next().map_or(vec![], |h| h.tokens.to_vec());
    (search.finish(slot), tokens, streamed)
}

/// Even if the memory after the last row holds arbitrary values.
#[test]
fn nothing_is_banned_after_the_last_row() {
    let suppress = vec![3];
    let options =
        SearchOptions { scores: false, max_length: Some(8), suppress, ..SearchOptions::default() };
    let limits = crate::toy::limits(&options, 2, 8, 5);
    let mut memory = vec![u32::MAX; words(&limits).expect("small")];
    let mut search = Search::new(&options, &limits, &mut memory).expect("a search");
    search.admit(&Request::default()).expect("admitted");
    assert!(search.banned(0, 3) && !search.banned(0, 4));
    assert!([1, 2, usize::MAX].into_iter().all(|row| !search.banned(row, 3)));
}

#[test]
fn advance_argmax_rejects_wrong_arguments() {
    let options = SearchOptions { scores: false, max_length: Some(8), ..SearchOptions::default() };
    let limits = crate::toy::limits(&options, 1, 8, 5);
    let mut memory = vec![0; words(&limits).expect("small")];
    let mut search = Search::new(&options, &limits, &mut memory).expect("a search");
    search.admit(&Request::default()).expect("admitted");
    let mut logits = [0.0; 5];
    let hooks = &mut Hooks::default();
    let error = search.advance_argmax(&[], &mut logits, hooks, None).expect_err("no tokens");
    assert_eq!(error.to_string(), "best: expected length 1, found 0");
    let error = search.advance_argmax(&[5], &mut logits, hooks, None).expect_err("no such token");
    assert_eq!(
        error.to_string(),
        "best: expected a token id below 5, the size of the vocabulary, found 5"
    );
    let error = search.advance_argmax(&[4], &mut logits[..4], hooks, None).expect_err("short");
    assert_eq!(error.to_string(), "logits: expected length 5, found 4");
    search.advance_argmax(&[4], &mut logits, hooks, None).expect("advanced");
    assert_eq!(search.rows().tokens, [4]);

    // A processor of the caller may read any score, so the argmax is not enough.
    struct NoChange;
    impl LogitsProcessor for NoChange {
        fn process(&mut self, _: &Context<'_>, _: &mut [f32]) -> Result<(), Error> {
            Ok(())
        }
    }
    let mut rule = NoChange;
    let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut rule];
    assert!(!search.needs_argmax_only(&Hooks { processors: &mut rules, ..Hooks::default() }));
}

#[test]
fn rows_end_with_the_shortest_slice() {
    let rows = simdformer::search::Rows {
        tokens: &[5, 6, 7],
        sentences: &[0, 1],
        parents: &[u32::MAX, 3, 4, 5],
        positions: &[0, 1, 2],
    };
    let read: Vec<_> = rows.iter().map(|row| (row.sentence, row.token, row.parent)).collect();
    assert_eq!(read, [(0, 5, None), (1, 6, Some(3))]);
}
