//! The plan is exact: a session accesses nothing outside its buffer, reads nothing in it that it has not
//! written, and rejects requests that do not fit.
//!
//! The buffer lies between two inaccessible pages: once directly after the first, once directly before the
//! second. It is filled with NaN.

use crate::effort::all_cases_on;
use crate::random_model::{Dims, Random};
use crate::rejections::error_text;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{BeamOptions, Hooks, SearchOptions, Strategy};
use simdformer::{Error, Event, Limits, Model, Plan, Session, Source, SourceId, StepRow};

/// A NaN that no computation produces.
const UNWRITTEN: u32 = 0x7fc0_dead;

/// Memory between two inaccessible pages.
struct Guarded {
    map: *mut libc::c_void,
    bytes: usize,
    page: usize,
}

#[allow(unsafe_code, reason = "guard pages are asked of the system")]
impl Guarded {
    /// Memory for `floats` floats.
    fn new(floats: usize) -> Self {
        // SAFETY: the call reads a number of the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a size");
        let inside = (floats * 4).next_multiple_of(page);
        let bytes = inside + 2 * page;
        // SAFETY: a new private mapping at an address that the system chooses.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        let guarded = Self { map, bytes, page };
        // SAFETY: these pages are inside of the mapping above.
        let opened = unsafe {
            libc::mprotect(
                map.cast::<u8>().add(page).cast(),
                inside,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        assert_eq!(opened, 0);
        guarded
    }

    /// `floats` floats that end at the second inaccessible page, or begin at the first.
    fn floats(&mut self, floats: usize, at_end: bool) -> &mut [f32] {
        let inside = self.bytes - 2 * self.page;
        assert!(floats * 4 <= inside);
        let skipped = if at_end { inside - floats * 4 } else { 0 };
        // SAFETY: these bytes are in the accessible pages, are zero or were written as floats, and
        // are borrowed from the mapping. Pages are aligned for floats, and `skipped` is a multiple
        // of 4.
        let floats = unsafe {
            let start = self.map.cast::<u8>().add(self.page + skipped);
            core::slice::from_raw_parts_mut(start.cast::<f32>(), floats)
        };
        floats.fill(f32::from_bits(UNWRITTEN));
        floats
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "the mapping is given back")]
        // SAFETY: this is the mapping of `new`, and nothing borrows it any more.
        let unmapped = unsafe { libc::munmap(self.map, self.bytes) };
        assert_eq!(unmapped, 0);
    }
}

/// Runs every call of a session up to every limit. Returns the bits of all results.
fn use_up(session: &mut Session) -> Vec<u32> {
    let limits = session.plan().limits();
    let config = session.model().config().clone();
    let mut random = Random(4);
    let mut out = Vec::new();
    let each = limits.batch_tokens / limits.sentences;
    let mut sources: Vec<Vec<u32>> = (0..limits.sentences)
        .map(|_| random.ids(each.clamp(1, limits.source_tokens), config.source_vocab))
        .collect();
    // One of the longest sources.
    let longest = limits.source_tokens.min(limits.batch_tokens);
    let alone = random.ids(longest, config.source_vocab);
    out.extend(session.encoder_output(&[&alone]).expect("a memory").iter().map(|x| x.to_bits()));
    for _ in 0..2 {
        let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        out.extend(
            session.encoder_output(&borrowed).expect("a memory").iter().map(|x| x.to_bits()),
        );
        assert_eq!(session.free_sentences(), limits.sentences);
        let mut sentences = vec![SourceId::default(); limits.sentences];
        session.encode(&borrowed, &mut sentences).expect("encoded");
        let mut rows = Vec::new();
        for (i, &sentence) in sentences.iter().enumerate() {
            let first = session.start(sentence).expect("a row");
            // All but the last token of one target, and a few tokens of the others.
            let prefix = if i == 0 { limits.target_tokens - 1 } else { limits.target_tokens / 2 };
            let prefix = random.ids(prefix, config.target_vocab);
            let mut each = |_: usize, logits: &[f32]| {
                out.extend(logits.iter().map(|x| x.to_bits()));
            };
            session.prefill(first, &prefix, Some(&mut each)).expect("prefilled");
            rows.push(first);
            for _ in 1..limits.beams {
                rows.push(session.fork(first).expect("a fork"));
            }
        }
        loop {
            let steps: Vec<StepRow> = rows
                .iter()
                .filter(|&&row| session.hypothesis_len(row).expect("a row") < limits.target_tokens)
                .map(|&row| StepRow::new(row, random.below(config.target_vocab) as u32))
                .collect();
            if steps.is_empty() {
                break;
            }
            let logits = session.step(&steps).expect("stepped");
            out.extend(logits.iter().map(|x| x.to_bits()));
        }
        session.clear();
        sources.reverse();
    }
    let beam = BeamOptions { beams: limits.beams, ..BeamOptions::default() };
    for strategy in [Strategy::Greedy, Strategy::Beam(beam)] {
        let sequences = if strategy == Strategy::Greedy { 1 } else { limits.beams };
        let options = SearchOptions {
            strategy,
            num_return_sequences: sequences,
            eos: Vec::new(),
            max_new_tokens: None,
            max_length: Some(limits.target_tokens + 1),
            ..config.search_options()
        };
        let requests: Vec<Source> =
            sources.iter().chain(&sources).map(|tokens| Source::new(tokens)).collect();
        session
            .generate(&requests, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    for hypothesis in done.hypotheses() {
                        out.extend(hypothesis.tokens);
                        out.push(hypothesis.score.to_bits());
                    }
                }
            })
            .expect("generated");
    }
    assert!(out.iter().all(|&bits| bits != UNWRITTEN), "an unwritten float came out");
    out
}

fn models() -> Vec<(String, Model)> {
    let kinds = [
        Dims::small(Family::Marian),
        Dims::small(Family::M2M100),
        Dims { d_model: 36, heads: [2, 4], ..Dims::small(Family::Bart) },
        Dims { norm_first: true, vocabulary: 97, ..Dims::small(Family::NnTransformer) },
    ];
    let mut models = Vec::new();
    for dims in kinds {
        let checkpoint = dims.checkpoint(3);
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            models.push((format!("{} {isa}", dims.family.model_type()), model));
        }
    }
    models
}

fn some_limits() -> [Limits; 5] {
    [
        Limits::new(1, 1, 2),
        Limits { beams: 3, ..Limits::new(4, 13, 21) },
        // More rows than tokens, and an encode call that takes only one of the longest sources.
        Limits { beams: 5, batch_tokens: 9, ..Limits::new(3, 9, 9) },
        Limits { beams: 2, end_tokens: 1, ..Limits::new(2, 5, 70) },
        // More rows than the feed-forward block has at a time.
        Limits { beams: 2, ..Limits::new(5, 31, 6) },
    ]
}

#[test]
fn nothing_outside_the_buffer_is_accessed_and_nothing_unwritten_is_read() {
    for (index, (what, model)) in models().into_iter().enumerate() {
        // A set that does not run all cases takes one of the limits, another one for each model.
        let (skipped, step) = if all_cases_on(model.isa()) { (0, 1) } else { (index % 5, 5) };
        for limits in some_limits().into_iter().skip(skipped).step_by(step) {
            let expected = use_up(&mut Session::new(&model, limits).expect("a session"));
            let plan = Plan::new(&model, limits).expect("a plan");
            assert_eq!(plan.bytes(), plan.floats() * 4);
            let mut guarded = Guarded::new(plan.floats());
            for at_end in [true, false] {
                let buffer = guarded.floats(plan.floats(), at_end);
                let mut session = Session::with_buffer(&model, limits, buffer).expect("a session");
                let found = use_up(&mut session);
                assert!(found == expected, "{what}, {limits:?}: other bits on a caller's buffer");
                // Again, with the contents of the first run in the buffer.
                session.clear();
                assert!(use_up(&mut session) == expected, "{what}, {limits:?}: other bits again");
            }
        }
    }
}

#[cfg(feature = "rayon")]
#[test]
fn nothing_outside_the_buffer_is_accessed_by_other_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
    let dims =
        Dims { d_model: 132, ffn: [389, 515], vocabulary: 1009, ..Dims::small(Family::Bart) };
    let model = Model::load(&dims.checkpoint(9), Isa::best()).expect("a model");
    let limits = Limits { beams: 3, ..Limits::new(4, 33, 12) };
    let expected = use_up(&mut Session::new(&model, limits).expect("a session"));
    let floats = Plan::new(&model, limits).expect("a plan").floats();
    let mut guarded = Guarded::new(floats);
    for at_end in [true, false] {
        let buffer = guarded.floats(floats, at_end);
        let mut session = Session::with_buffer(&model, limits, buffer).expect("a session");
        session.set_threads(simdformer::Threads::Rayon);
        let found = pool.install(|| use_up(&mut session));
        assert!(found == expected, "other bits");
    }
}

#[test]
fn one_float_less_is_an_error_and_one_more_is_left_alone() {
    let (_, model) = models().swap_remove(0);
    for limits in some_limits() {
        let floats = Plan::new(&model, limits).expect("a plan").floats();
        let mut buffer = vec![f32::from_bits(UNWRITTEN); floats + 100];
        for found in [0, floats / 2, floats - 1] {
            let error = Session::with_buffer(&model, limits, &mut buffer[..found]).err();
            let text =
                format!("buffer: expected {floats} floats, which the session takes, found {found}");
            assert_eq!(error.map(|error| error.to_string()), Some(text));
        }
        assert!(buffer.iter().all(|x| x.to_bits() == UNWRITTEN), "a refused buffer was written");
        use_up(&mut Session::with_buffer(&model, limits, &mut buffer).expect("a session"));
        assert!(buffer[floats..].iter().all(|x| x.to_bits() == UNWRITTEN));
    }
}

#[test]
fn a_request_beyond_the_plan_names_the_limit() {
    let (_, model) = models().swap_remove(0);
    let limits = Limits { batch_tokens: 10, ..Limits::new(3, 8, 4) };
    let mut session = Session::new(&model, limits).expect("a session");
    let expected = use_up(&mut session);
    let planned = |limit: &str, most: usize, found: usize| {
        format!(
            "the limit `{limit}`: expected at most {most}, with which the session was planned, found {found}"
        )
    };
    let beyond = |limit, most, found| Some(planned(limit, most, found));
    let source = |index: usize, found| {
        Some(format!("source {index}: {}", planned("source_tokens", 8, found)))
    };
    let mut two = [SourceId::default(); 2];
    let [long, short] = [vec![3; 9], vec![3; 6]];
    assert_eq!(error_text(session.encoder_output(&[&long])), source(0, 9));
    assert_eq!(
        error_text(session.encoder_output(&[&short, &short])),
        beyond("batch_tokens", 10, 12)
    );
    assert_eq!(error_text(session.encoder_output(&[&[1][..]; 4])), beyond("sentences", 3, 4));
    assert_eq!(error_text(session.encode(&[&short, &long], &mut two)), source(1, 9));
    assert_eq!(
        error_text(session.encode(&[&short, &short], &mut two)),
        beyond("batch_tokens", 10, 12)
    );
    session.clear();
    session.encode(&[&short, &[1]], &mut two).expect("encoded");
    let row = session.start(two[0]).expect("a row");
    assert_eq!(error_text(session.prefill(row, &[1; 5], None)), beyond("target_tokens", 4, 5));
    session.prefill(row, &[1; 3], None).expect("prefilled");
    assert_eq!(error_text(session.prefill(row, &[1; 2], None)), beyond("target_tokens", 4, 5));
    let step = [StepRow::new(row, 1)];
    session.step(&step).expect("stepped");
    assert_eq!(error_text(session.step(&step)), beyond("target_tokens", 4, 5));
    assert_eq!(error_text(session.step(&[step[0]; 4])), beyond("sentences * beams", 3, 4));
    assert_eq!(error_text(session.fork(row)), Some("the limit `beams`: expected at most 1 planned hypotheses of the sentence in slot 0, found 2".to_owned())
    );
    let mut none = [SourceId::default(); 2];
    assert_eq!(
        error_text(session.encode(&[&[1], &[1]], &mut none)),
        Some(
            "the limit `sentences`: expected at most 1, the free sentence slots, found 2"
                .to_owned()
        )
    );
    session.clear();
    assert_eq!(use_up(&mut session), expected, "a refused request changed something");
}

/// The smallest id that is not in the vocabulary is an error, and the last id of the vocabulary is not.
#[test]
fn the_first_id_after_the_vocabulary_is_an_error() {
    let (_, model) = models().swap_remove(0);
    let mut session = Session::new(&model, Limits::new(1, 8, 4)).expect("a session");
    let mut sentence = [SourceId::default()];
    session.encode(&[&[1, 2]], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    let vocabulary = model.config().target_vocab;
    let step = [StepRow::new(row, vocabulary as u32)];
    let error = session.step(&step).expect_err("outside");
    let expected = matches!(error, Error::Token { position: Some(0), vocabulary: size, found, .. }
        if size == vocabulary && found as usize == vocabulary);
    assert!(expected, "{error}");
    session.step(&[StepRow { token: vocabulary as u32 - 1, ..step[0] }]).expect("the last id");
}

#[test]
fn limits_that_no_machine_can_hold_are_errors() {
    let (_, model) = models().swap_remove(1);
    let model = &model;
    let most = u32::MAX as usize - 1;
    // More than 2^47 bytes each, which no setting of the system allows.
    for limits in [
        Limits { beams: most, ..Limits::new(most, 1, 2) },
        Limits { batch_tokens: 256, ..Limits::new(most, 256, 256) },
        Limits { beams: most, ..Limits::new(1, 1, 2) },
        Limits { end_tokens: usize::MAX, ..Limits::new(1, 1, 2) },
        Limits { beams: 1 << 20, ..Limits::new(1 << 11, 256, 256) },
        Limits { sentences: usize::MAX, ..Limits::new(1, 1, 2) },
        Limits { target_tokens: usize::MAX, ..Limits::new(1, 1, 2) },
    ] {
        let error = Session::new(model, limits).err();
        assert!(
            matches!(
                error,
                Some(
                    Error::OutOfMemory { .. } | Error::BeyondLimit { operand: "target_tokens", .. }
                )
            ),
            "{limits:?}: {error:?}"
        );
    }
}
