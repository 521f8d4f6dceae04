//! Guarantee 5: the same bits every time. The result for a sentence depends only on its source and its
//! target tokens: not on the other sentences, its slot, the threads, or whether its prefix was stepped or
//! prefilled.

use crate::effort::{all_cases_on, cases, full, thread_counts};
use crate::random_model::{Dims, Random, decoding};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{BeamOptions, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{
    Dtype, Event, HypothesisId, Limits, LoadOptions, Model, Session, Source, SourceId, StepRow,
    Threads,
};

use std::cell::Cell;

pub(crate) const TARGET: usize = 37;

/// Post- and pre-norm, with and without embedding and final norms, and every kind of position.
pub(crate) fn kinds() -> Vec<Dims> {
    vec![
        Dims::small(Family::Marian),
        Dims::small(Family::Bart),
        Dims { d_model: 40, heads: [5, 2], ..Dims::small(Family::MBart) },
        Dims { d_model: 68, ffn: [141, 260], heads: [4, 4], ..Dims::small(Family::M2M100) },
        Dims { norm_first: true, ..Dims::small(Family::NnTransformer) },
        Dims { norm_first: false, vocabulary: 67, ..Dims::small(Family::NnTransformer) },
        Dims { d_model: 36, ..Dims::small(Family::BlenderbotSmall) },
        Dims { vocabulary: 73, ..Dims::small(Family::Fsmt) },
        Dims { vocabulary: 79, ..Dims::small(Family::T5) },
        Dims { vocabulary: 71, ..Dims::small(Family::Umt5) },
    ]
}

thread_local! {
    /// The dtype of the KV cache of the sessions in a check.
    static CACHE: Cell<Dtype> = const { Cell::new(Dtype::F32) };
}

pub(crate) fn plan_for(sentences: usize, source_tokens: usize, target_tokens: usize) -> Limits {
    Limits { cache: Some(CACHE.get()), ..Limits::new(sentences, source_tokens, target_tokens) }
}

/// Runs `check` for every kind of model on every instruction set. Unless the tests run in full, each set
/// but the best one takes two kinds in f32 and three with other dtypes, and each set takes different kinds.
pub(crate) fn for_every_model(check: impl Fn(&str, &Model)) {
    for (index, dims) in kinds().into_iter().enumerate() {
        let checkpoint = dims.checkpoint(11);
        let what = |isa: Isa, forms: &str| {
            format!("{} norm_first={} {isa} {forms}", dims.family.model_type(), dims.norm_first)
        };
        for (isa, offset) in Isa::available().zip(0..) {
            if all_cases_on(isa) || (index + offset).is_multiple_of(5) {
                let model = Model::load(&checkpoint, isa).expect("a model");
                check(&what(isa, "f32"), &model);
            }
        }
        // Each kind with one other dtype table on each set, so that each table meets each option of
        // the kinds. Unless the tests run in full, the KV cache is in f32 or in f16, and each table
        // meets both.
        for (isa, offset) in Isa::available().zip(0..) {
            if !all_cases_on(isa) && !(index + 2 * offset).is_multiple_of(4) {
                continue;
            }
            let forms = FORMS[(index + offset) % FORMS.len()];
            let chosen = forms.parse().expect("forms");
            let model = Model::load(&checkpoint, LoadOptions { dtypes: chosen, ..isa.into() })
                .expect("a model");
            let in_f16 = index < FORMS.len();
            if full() || !in_f16 {
                check(&what(isa, forms), &model);
            }
            if full() || in_f16 {
                CACHE.set(Dtype::F16);
                check(&format!("{}, keys and values in f16", what(isa, forms)), &model);
                CACHE.set(Dtype::F32);
            }
        }
    }
}

/// Dtype tables other than f32.
const FORMS: [&str; 5] = ["int8", "int8x16", "bf16", "int8,output=int8", "f16,encoder=int8"];

pub(crate) fn bits(floats: &[f32]) -> Vec<u32> {
    assert!(floats.iter().all(|x| x.is_finite()), "not finite");
    floats.iter().map(|x| x.to_bits()).collect()
}

/// A source and the target tokens that are fed to the decoder.
struct Task {
    source: Vec<u32>,
    target: Vec<u32>,
    /// After each token of the target, computed alone.
    logits: Vec<Vec<u32>>,
    memory: Vec<u32>,
}

impl Task {
    fn new(model: &Model, random: &mut Random, source_len: usize, target_len: usize) -> Self {
        let source = random.ids(source_len, model.config().source_vocab);
        let target = random.ids(target_len, model.config().target_vocab);
        let limits = plan_for(1, source_len, target_len);
        let mut session = Session::new(model, limits).expect("a session");
        let memory = bits(session.encoder_output(&[&source]).expect("a memory"));
        let row = begin(&mut session, &source);
        let mut step = |&token| bits(session.step(&[StepRow::new(row, token)]).expect("stepped"));
        let logits: Vec<_> = target.iter().map(&mut step).collect();
        assert!(logits.windows(2).all(|pair| pair[0] != pair[1]), "logits that do not change");
        Self { source, target, logits, memory }
    }
}

/// Tasks whose lengths are around the sizes of vectors, panels and blocks.
fn tasks(model: &Model) -> Vec<Task> {
    let mut random = Random(5);
    [(1, 9), (17, TARGET), (5, 1), (33, 20), (16, 16), (2, 33), (70, 3)]
        .map(|(source, target)| Task::new(model, &mut random, source, target))
        .into()
}

fn limits_for(tasks: &[Task]) -> Limits {
    let longest = tasks.iter().map(|task| task.source.len()).max().unwrap_or(1);
    Limits { beams: 3, ..plan_for(tasks.len(), longest, TARGET) }
}

pub(crate) fn begin(session: &mut Session, source: &[u32]) -> HypothesisId {
    let mut sentence = [SourceId::default()];
    session.encode(&[source], &mut sentence).expect("encoded");
    session.start(sentence[0]).expect("a row")
}

/// Steps all tasks in one session until each has ended, in an order that changes at each step, and checks
/// every logit.
fn step_in_one_batch(what: &str, session: &mut Session, tasks: &[Task]) {
    let vocabulary = session.model().config().target_vocab;
    let sources: Vec<&[u32]> = tasks.iter().map(|task| &task.source[..]).collect();
    let mut sentences = vec![SourceId::default(); tasks.len()];
    session.encode(&sources, &mut sentences).expect("encoded");
    let rows: Vec<HypothesisId> =
        sentences.iter().map(|&s| session.start(s).expect("a row")).collect();
    for at in 0..session.plan().limits().target_tokens {
        let mut alive: Vec<usize> =
            (0..tasks.len()).filter(|&i| at < tasks[i].target.len()).collect();
        let turn = at % alive.len().max(1);
        alive.rotate_left(turn);
        let steps: Vec<StepRow> =
            alive.iter().map(|&i| StepRow::new(rows[i], tasks[i].target[at])).collect();
        let logits = session.step(&steps).expect("stepped");
        for (&i, logits) in alive.iter().zip(logits.chunks(vocabulary)) {
            assert_eq!(bits(logits), tasks[i].logits[at], "{what}: sentence {i}, token {at}");
        }
    }
}

#[test]
fn a_batch_has_the_bits_of_each_sentence_alone() {
    for_every_model(|what, model| {
        let tasks = tasks(model);
        let mut session = Session::new(model, limits_for(&tasks)).expect("a session");
        step_in_one_batch(what, &mut session, &tasks);
        session.clear();
        step_in_one_batch(&format!("{what}, again"), &mut session, &tasks[2..5]);
    });
}

/// More sentences than one pass of the encoder takes, and one sentence that is longer than all the others
/// together.
#[test]
fn many_sentences_have_the_bits_of_each_alone() {
    for dims in [kinds()[1], kinds()[4], kinds()[8]] {
        let dims = Dims { positions: 600, ..dims };
        let checkpoint = dims.checkpoint(23);
        for forms in ["f32", "int8"] {
            let chosen = forms.parse().expect("forms");
            let isa = Isa::best();
            let model = Model::load(&checkpoint, LoadOptions { dtypes: chosen, ..isa.into() })
                .expect("a model");
            let mut random = Random(3);
            let lengths = (0..24).map(|i| 5 + 17 * i % 71).chain([300, 1, 256, 2, 255]);
            let sources: Vec<Vec<u32>> =
                lengths.map(|len| random.ids(len, model.config().source_vocab)).collect();
            let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
            let mut session = Session::new(&model, plan_for(1, 300, 1)).expect("a session");
            let alone: Vec<u32> = sources
                .iter()
                .flat_map(|source| bits(session.encoder_output(&[source]).expect("a memory")))
                .collect();
            let limits = plan_for(sources.len(), 300, 1);
            let mut session = Session::new(&model, limits).expect("a session");
            let what = format!("{} {forms}", dims.family.model_type());
            let found = bits(session.encoder_output(&sources).expect("a memory"));
            assert!(found == alone, "{what}: other bits in a batch");
            session.set_threads(Threads::Rayon);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
            let found = pool.install(|| bits(session.encoder_output(&sources).expect("a memory")));
            assert!(found == alone, "{what}: other bits on threads");
        }
    }
}

/// The options that families share are tested above in detail; this test runs every family.
#[test]
fn every_family_has_the_same_bits_in_a_batch_and_prefilled() {
    for family in decoding() {
        let model = Model::load(&Dims::small(family).checkpoint(37), Isa::best()).expect("a model");
        let what = family.model_type();
        let tasks = tasks(&model);
        let mut session = Session::new(&model, limits_for(&tasks)).expect("a session");
        step_in_one_batch(what, &mut session, &tasks);
        for task in &tasks {
            session.clear();
            let row = begin(&mut session, &task.source);
            prefill(what, &mut session, row, task, 0..task.target.len());
        }
    }
}

/// Longer than every block of keys and rows of the kernels.
#[test]
fn long_sentences_have_the_same_bits_in_a_batch_and_prefilled() {
    const LONG: usize = 530;
    for (index, dims) in [kinds()[1], kinds()[3], kinds()[9]].into_iter().enumerate() {
        let dims = Dims { positions: 600, ..dims };
        let checkpoint = dims.checkpoint(19);
        for isa in Isa::available() {
            let lengths: &[_] = if all_cases_on(isa) {
                &[(523, 130), (129, LONG), (64, 257)]
            } else if index == 1 {
                &[(261, 20), (9, 261)]
            } else {
                continue;
            };
            let what = format!("long {} {isa}", dims.family.model_type());
            let model = Model::load(&checkpoint, isa).expect("a model");
            let mut random = Random(31);
            let tasks: Vec<_> = lengths
                .iter()
                .map(|&(source, target)| Task::new(&model, &mut random, source, target))
                .collect();
            let limits = Limits { target_tokens: LONG, ..limits_for(&tasks) };
            let mut session = Session::new(&model, limits).expect("a session");
            step_in_one_batch(&what, &mut session, &tasks);
            for task in &tasks {
                session.clear();
                let row = begin(&mut session, &task.source);
                prefill(&what, &mut session, row, task, 0..task.target.len());
            }
        }
    }
}

#[test]
fn the_encoder_output_is_the_same_in_any_batch() {
    for_every_model(|what, model| {
        let tasks = tasks(model);
        let mut session = Session::new(model, limits_for(&tasks)).expect("a session");
        for order in [[0, 1, 2, 3, 4, 5, 6], [6, 2, 5, 0, 3, 1, 4]] {
            for &count in cases(&[2, 3, 7][..], &[1, 2, 3, 4, 5, 6, 7]) {
                let chosen = &order[..count];
                let sources: Vec<&[u32]> = chosen.iter().map(|&i| &tasks[i].source[..]).collect();
                let memory = bits(session.encoder_output(&sources).expect("a memory"));
                let expected: Vec<u32> =
                    chosen.iter().flat_map(|&i| tasks[i].memory.clone()).collect();
                assert_eq!(memory, expected, "{what}: {chosen:?}");
            }
        }
    });
}

/// More sentences and rows than one kernel call gets at once, with the rows of one sentence far apart.
#[test]
fn a_large_batch_has_the_same_bits_in_any_order() {
    const SENTENCES: usize = 135;
    const TOKENS: usize = 4;
    for (index, dims) in [kinds()[0], kinds()[3]].into_iter().enumerate() {
        let checkpoint = dims.checkpoint(29);
        for (isa, offset) in Isa::available().zip(0..) {
            if !all_cases_on(isa) && index != offset % 2 {
                continue;
            }
            let model = Model::load(&checkpoint, isa).expect("a model");
            let what = format!("large {} {isa}", dims.family.model_type());
            let vocabulary = model.config().target_vocab;
            let mut random = Random(33);
            let tasks: Vec<Task> =
                (0..SENTENCES).map(|i| Task::new(&model, &mut random, 1 + i % 5, TOKENS)).collect();
            let limits = Limits { beams: 2, ..plan_for(SENTENCES, 5, TOKENS) };
            let mut session = Session::new(&model, limits).expect("a session");
            let sources: Vec<&[u32]> = tasks.iter().map(|task| &task.source[..]).collect();
            let memory = bits(session.encoder_output(&sources).expect("a memory"));
            let expected: Vec<u32> = tasks.iter().flat_map(|task| task.memory.clone()).collect();
            assert_eq!(memory, expected, "{what}");
            let mut sentences = vec![SourceId::default(); SENTENCES];
            session.encode(&sources, &mut sentences).expect("encoded");
            let mut rows: Vec<(usize, HypothesisId)> = (0..2 * SENTENCES)
                .map(|i| (i % SENTENCES, session.start(sentences[i % SENTENCES]).expect("a row")))
                .collect();
            for at in 0..TOKENS {
                let steps: Vec<StepRow> =
                    rows.iter().map(|&(i, row)| StepRow::new(row, tasks[i].target[at])).collect();
                let logits = session.step(&steps).expect("stepped");
                for (&(i, _), logits) in rows.iter().zip(logits.chunks(vocabulary)) {
                    assert_eq!(bits(logits), tasks[i].logits[at], "{what}: {i}, token {at}");
                }
                for i in (1..rows.len()).rev() {
                    rows.swap(i, random.below(i + 1));
                }
            }
        }
    }
}

#[test]
fn earlier_contents_of_slots_change_no_bit() {
    for_every_model(|what, model| {
        let tasks = tasks(model);
        let mut session = Session::new(model, limits_for(&tasks)).expect("a session");
        let mut random = Random(3);
        // Fill every slot with the longest other sentences, with three hypotheses each.
        let limits = session.plan().limits();
        let vocabulary = model.config().target_vocab;
        let strangers: Vec<Vec<u32>> = (0..limits.sentences)
            .map(|_| random.ids(limits.source_tokens, model.config().source_vocab))
            .collect();
        let borrowed: Vec<&[u32]> = strangers.iter().map(Vec::as_slice).collect();
        let mut sentences = vec![SourceId::default(); limits.sentences];
        session.encode(&borrowed, &mut sentences).expect("encoded");
        for &sentence in &sentences {
            for _ in 0..limits.beams {
                let row = session.start(sentence).expect("a row");
                let prefix = random.ids(TARGET, vocabulary);
                session.prefill(row, &prefix, None).expect("prefilled");
            }
        }
        // Release them one after the other, and encode one of the tasks in each free slot.
        for (i, task) in tasks.iter().enumerate() {
            let slot = (i * 3 + 1) % limits.sentences;
            session.release_sentence(sentences[slot]).expect("released");
            let row = begin(&mut session, &task.source);
            for (at, (&token, expected)) in task.target.iter().zip(&task.logits).enumerate() {
                let logits = session.step(&[StepRow::new(row, token)]).expect("stepped");
                assert_eq!(bits(logits), *expected, "{what}: sentence {i}, token {at}");
            }
        }
    });
}

#[cfg(feature = "rayon")]
#[test]
fn threads_change_no_bit() {
    let pools: Vec<_> = thread_counts()
        .iter()
        .map(|&threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool")
        })
        .collect();
    // Large enough that the kernels split their work.
    let wide = [Family::Marian, Family::M2M100].map(|family| Dims {
        d_model: 168,
        heads: [6, 3],
        ffn: [515, 389],
        vocabulary: 1501,
        ..Dims::small(family)
    });
    let check = |what: &str, model: &Model| {
        let tasks = tasks(model);
        let mut session = Session::new(model, limits_for(&tasks)).expect("a session");
        session.set_threads(simdformer::Threads::Rayon);
        for pool in &pools {
            let what = format!("{what}, {} threads", pool.current_num_threads());
            pool.install(|| {
                session.clear();
                step_in_one_batch(&what, &mut session, &tasks);
                let task = &tasks[3];
                let memory = bits(session.encoder_output(&[&task.source]).expect("a memory"));
                assert_eq!(memory, task.memory, "{what}");
                session.clear();
                let row = begin(&mut session, &task.source);
                prefill(&what, &mut session, row, task, 0..task.target.len());
            });
        }
    };
    for_every_model(check);
    for (index, dims) in wide.into_iter().enumerate() {
        let checkpoint = dims.checkpoint(13);
        for (isa, offset) in Isa::available().zip(0..) {
            if !all_cases_on(isa) && index != offset % 2 {
                continue;
            }
            let model = Model::load(&checkpoint, isa).expect("a model");
            check(&format!("wide {} {isa}", dims.family.model_type()), &model);
        }
    }
}

/// Prefills tokens `range` of `task` into `row` and checks the logits.
fn prefill(
    what: &str,
    session: &mut Session,
    row: HypothesisId,
    task: &Task,
    range: core::ops::Range<usize>,
) {
    let mut seen = 0;
    let mut each = |position: usize, logits: &[f32]| {
        assert_eq!(position, range.start + seen, "{what}: order");
        assert_eq!(
            bits(logits),
            task.logits[position],
            "{what}: prefilled {range:?} at {position}"
        );
        seen += 1;
    };
    session.prefill(row, &task.target[range.clone()], Some(&mut each)).expect("prefilled");
    assert_eq!(seen, range.len(), "{what}: logits of every token");
}

#[test]
fn prefill_step_and_recomputation_have_the_same_bits() {
    for_every_model(|what, model| {
        let tasks = tasks(model);
        let mut session = Session::new(model, limits_for(&tasks)).expect("a session");
        for task in &tasks {
            let len = task.target.len();
            let night = [0, 1, len / 3, len / 2, len.saturating_sub(1), len];
            for &cut in cases(&[len / 2, len][..], &night) {
                let cut = cut.min(len);
                session.clear();
                let row = begin(&mut session, &task.source);
                // In two parts, with steps after them.
                prefill(what, &mut session, row, task, 0..cut / 2);
                prefill(what, &mut session, row, task, cut / 2..cut);
                for at in cut..len {
                    let step = [StepRow::new(row, task.target[at])];
                    let logits = session.step(&step).expect("stepped");
                    assert_eq!(bits(logits), task.logits[at], "{what}: cut {cut}, token {at}");
                }
            }
        }
        // Without a cache: each prefix as a whole, in a session of its own size.
        let task = &tasks[1];
        let all: Vec<usize> = (1..=task.target.len()).collect();
        for &len in cases(&[1, 2, 8, 9, 16, 17, 33, TARGET][..], &all) {
            let limits = plan_for(1, task.source.len() + len % 3, len + len % 2);
            let mut session = Session::new(model, limits).expect("a session");
            let row = begin(&mut session, &task.source);
            prefill(what, &mut session, row, task, 0..len);
        }
    });
}

/// The hypotheses of each source with the bits of their scores.
type Results = Vec<Vec<(Vec<u32>, u32)>>;

fn generate(
    model: &Model,
    limits: Limits,
    sources: &[Vec<u32>],
    order: &[usize],
    options: &SearchOptions,
) -> Results {
    let mut session = Session::new(model, limits).expect("a session");
    let requests: Vec<Source> = order
        .iter()
        .map(|&i| {
            let mut source = Source::new(&sources[i]);
            source.stream = i as u64;
            source
        })
        .collect();
    let mut results = vec![Vec::new(); sources.len()];
    session
        .generate(&requests, options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                results[order[done.source]] =
                    done.hypotheses().map(|h| (h.tokens.to_vec(), h.score.to_bits())).collect();
            }
        })
        .expect("generated");
    results
}

#[test]
fn searches_have_the_same_bits_in_any_order_and_session() {
    for_every_model(|what, model| {
        let mut random = Random(8);
        let sources: Vec<Vec<u32>> = [4, 19, 1, 30, 11, 7, 2, 16, 9]
            .map(|len| random.ids(len, model.config().source_vocab))
            .into();
        let base = SearchOptions {
            max_new_tokens: Some(cases(9, 15)),
            max_length: None,
            forced_eos: Vec::new(),
            ..model.config().search_options()
        };
        let beam = BeamOptions { beams: 4, length_penalty: 0.7, ..BeamOptions::default() };
        for (strategy, num_return_sequences) in [
            (Strategy::Greedy, 1),
            (Strategy::Beam(beam), 3),
            (Strategy::Sample(SampleOptions { temperature: 0.8, ..Default::default() }), 2),
        ] {
            let options = SearchOptions { strategy, num_return_sequences, ..base.clone() };
            let beams = options.sequences();
            let forward: Vec<usize> = (0..sources.len()).collect();
            let alone: Results = forward
                .iter()
                .map(|&i| {
                    let limits = Limits { beams, ..plan_for(1, sources[i].len(), 17) };
                    let mut all = generate(model, limits, &sources, &[i], &options);
                    all.swap_remove(i)
                })
                .collect();
            assert!(alone.iter().all(|hypotheses| hypotheses.len() == num_return_sequences));
            let different: std::collections::HashSet<_> = alone.iter().collect();
            assert!(different.len() > 1, "{what}: every source gives {:?}", alone[0]);
            let orders =
                [forward, vec![8, 7, 6, 5, 4, 3, 2, 1, 0], vec![3, 0, 6, 1, 8, 4, 2, 7, 5]];
            let runs = [
                (&orders[0], 9, 99),
                (&orders[1], 4, 34),
                (&orders[2], 2, 60),
                (&orders[2], 5, 40),
            ];
            for &(order, slots, batch) in &runs[..cases(2, 4)] {
                let limits = Limits {
                    batch_tokens: batch,
                    beams: beams + slots % 2,
                    ..plan_for(slots, 30 + slots, 16 + slots)
                };
                let found = generate(model, limits, &sources, order, &options);
                assert_eq!(found, alone, "{what}: {:?} {order:?} {limits:?}", options.strategy);
            }
        }
    });
}

/// Sessions on several threads share one model and give the results of one session alone.
#[test]
fn four_sessions_at_once_share_one_model() {
    fn shared<T: Send + Sync>(_: &T) {}
    for_every_model(|what, model| {
        shared(model);
        let tasks = tasks(model);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (tasks, limits) = (&tasks, limits_for(&tasks));
                scope.spawn(move || {
                    let mut session = Session::new(model, limits).expect("a session");
                    for _ in 0..cases(1, 3) {
                        session.clear();
                        step_in_one_batch(&format!("{what}, thread {thread}"), &mut session, tasks);
                    }
                });
            }
        });
    });
}

/// The same, with all sessions in one pool of the caller.
#[cfg(feature = "rayon")]
#[test]
fn four_sessions_at_once_share_one_pool() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
    let checkpoint = kinds()[3].checkpoint(17);
    let model = Model::load(&checkpoint, Isa::best()).expect("a model");
    let tasks = tasks(&model);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (model, tasks, pool) = (&model, &tasks, &pool);
            scope.spawn(move || {
                let mut session = Session::new(model, limits_for(tasks)).expect("a session");
                session.set_threads(simdformer::Threads::Rayon);
                for _ in 0..5 {
                    session.clear();
                    pool.install(|| {
                        step_in_one_batch(&format!("thread {thread}"), &mut session, tasks)
                    });
                }
            });
        }
    });
}
