//! A plan has space for as many hypotheses as it states, in every order of start, fork, release, step and
//! prefill. Each hypothesis reads its own earlier tokens and no others.
//!
//! Tests in `src/kv/cache.rs` run more than a million operations on the slot table alone. Here a
//! whole session runs, and its logits are compared bit by bit with those of the same tokens stepped in a
//! session that does nothing else.

use crate::random_model::{Dims, Random};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::trace::{Probe, Stage, View};
use simdformer::{HypothesisId, Limits, Model, Session, SourceId, StepRow};
use std::collections::HashMap;

const VOCABULARY: usize = 7;
const TARGET: usize = 6;
const SOURCES: [&[u32]; 2] = [&[3, 4, 0], &[6, 5, 2, 1, 0]];

fn model() -> Model {
    let dims = Dims {
        d_model: 8,
        layers: [1, 2],
        heads: [2, 2],
        ffn: [8, 8],
        vocabulary: VOCABULARY,
        ..Dims::small(Family::Marian)
    };
    Model::load(&dims.checkpoint(12), Isa::best()).expect("a model")
}

/// Logits after each history, computed in a session with one hypothesis.
struct Alone<'m> {
    session: Session<'m>,
    known: HashMap<(usize, Vec<u32>), Vec<u32>>,
}

impl Alone<'_> {
    /// The bits of the logits after `tokens`, for a source.
    fn bits(&mut self, source: usize, tokens: &[u32]) -> &[u32] {
        let session = &mut self.session;
        self.known.entry((source, tokens.to_vec())).or_insert_with(|| {
            session.clear();
            let mut sentence = [SourceId::default()];
            session.encode(&[SOURCES[source]], &mut sentence).expect("encoded");
            let row = session.start(sentence[0]).expect("a row");
            let mut bits = Vec::new();
            for &token in tokens {
                let logits = session.step(&[StepRow::new(row, token)]).expect("stepped");
                bits = logits.iter().map(|x| x.to_bits()).collect();
            }
            bits
        })
    }
}

/// A sentence, its hypotheses, and the tokens that each was fed.
struct Active {
    sentence: SourceId,
    source: usize,
    rows: Vec<(HypothesisId, Vec<u32>)>,
}

#[derive(Debug, Default)]
struct Done {
    starts: usize,
    forks: usize,
    releases: usize,
    steps: usize,
    prefills: usize,
    refused: usize,
    compared: usize,
}

/// Random operations. Every operation for which the plan has space must succeed.
fn run(beams: usize, operations: usize) -> Done {
    let model = model();
    let limits = Limits { beams, ..Limits::new(2, 5, TARGET) };
    let mut session = Session::new(&model, limits).expect("a session");
    let alone = Session::new(&model, Limits::new(1, 5, TARGET)).expect("a session");
    let mut alone = Alone { session: alone, known: HashMap::new() };
    let mut random = Random(beams as u64);
    let mut sentences = [SourceId::default(); 2];
    session.encode(&SOURCES, &mut sentences).expect("encoded");
    let tenant = |source: usize| Active { sentence: sentences[source], source, rows: Vec::new() };
    let mut tenants = [tenant(0), tenant(1)];
    let mut done = Done::default();
    for _ in 0..operations {
        let at = random.below(2);
        let Active { sentence, source, rows } = &mut tenants[at];
        let chosen = random.below(rows.len());
        match random.below(10) {
            0..=1 => match session.start(*sentence) {
                Ok(row) => {
                    rows.push((row, Vec::new()));
                    done.starts += 1;
                }
                Err(error) => {
                    assert_eq!(rows.len(), beams, "a start was refused with space: {error}");
                    done.refused += 1;
                }
            },
            2..=3 if !rows.is_empty() => match session.fork(rows[chosen].0) {
                Ok(row) => {
                    rows.push((row, rows[chosen].1.clone()));
                    done.forks += 1;
                }
                Err(error) => {
                    assert_eq!(rows.len(), beams, "a fork was refused with space: {error}");
                    done.refused += 1;
                }
            },
            4 if !rows.is_empty() => {
                session.release(rows.swap_remove(chosen).0).expect("released");
                done.releases += 1;
            }
            5..=6 if !rows.is_empty() => {
                let (row, tokens) = &mut rows[chosen];
                let more = random.below(TARGET + 1 - tokens.len());
                let more = random.ids(more, VOCABULARY);
                let before = tokens.len();
                tokens.extend(&more);
                let mut next = before;
                let mut each = |position: usize, logits: &[f32]| {
                    assert_eq!(position, next);
                    next += 1;
                    let bits = logits.iter().map(|x| x.to_bits());
                    assert!(bits.eq(alone.bits(*source, &tokens[..next]).iter().copied()));
                };
                session.prefill(*row, &more, Some(&mut each)).expect("prefilled");
                assert_eq!(next, tokens.len());
                done.prefills += 1;
                done.compared += more.len();
            }
            7.. => {
                // Step some rows of both sentences, in any order.
                let mut steps: Vec<(usize, usize, u32)> = Vec::new();
                for (at, tenant) in tenants.iter().enumerate() {
                    for (i, (_, tokens)) in tenant.rows.iter().enumerate() {
                        if tokens.len() < TARGET && random.below(3) > 0 {
                            let place = random.below(steps.len() + 1);
                            steps.insert(place, (at, i, random.below(VOCABULARY) as u32));
                        }
                    }
                }
                let step = |&(at, i, token): &(usize, usize, u32)| {
                    StepRow::new(tenants[at].rows[i].0, token)
                };
                let request: Vec<StepRow> = steps.iter().map(step).collect();
                let logits = session.step(&request).expect("stepped");
                for (&(at, i, token), logits) in steps.iter().zip(logits.chunks(VOCABULARY)) {
                    let Active { source, rows, .. } = &mut tenants[at];
                    rows[i].1.push(token);
                    let bits = logits.iter().map(|x| x.to_bits());
                    assert!(bits.eq(alone.bits(*source, &rows[i].1).iter().copied()));
                }
                done.steps += 1;
                done.compared += steps.len();
            }
            _ => {}
        }
        for (row, tokens) in &tenants[at].rows {
            assert_eq!(session.hypothesis_len(*row), Ok(tokens.len()));
        }
    }
    done
}

#[test]
fn a_plan_holds_its_hypotheses_in_any_order() {
    for (beams, operations) in [(1, 2_000), (2, 10_000), (3, 10_000), (5, 10_000)] {
        let done = run(beams, operations);
        let Done { starts, forks, releases, steps, prefills, refused, compared } = done;
        let least = operations / 50;
        assert!(beams == 1 || forks > least, "{done:?}");
        let all = [starts, releases, steps, prefills, refused];
        assert!(all.into_iter().all(|n| n > least) && compared > operations / 4, "{done:?}");
    }
}

/// `beams` counts the hypotheses that are active at the same time.
#[test]
fn a_released_hypothesis_frees_its_space() {
    let model = model();
    let mut session =
        Session::new(&model, Limits { beams: 2, ..Limits::new(1, 5, TARGET) }).expect("a session");
    let mut sentence = [SourceId::default()];
    session.encode(&SOURCES[..1], &mut sentence).expect("encoded");
    let parent = session.start(sentence[0]).expect("a row");
    session.step(&[StepRow::new(parent, 3)]).expect("stepped");
    let child = session.fork(parent).expect("a fork");
    session.release(parent).expect("released");
    let other = session.start(sentence[0]).expect("one lives, two are planned");
    let text = "the limit `beams`: expected at most 2 planned hypotheses of the sentence in slot 0, found 3";
    assert_eq!(session.start(sentence[0]).expect_err("a third").to_string(), text);
    // The new hypothesis takes the hypothesis slot of the parent. The child still reads the keys of the
    // parent.
    for token in [1, 2, 5] {
        session.step(&[StepRow::new(other, token)]).expect("stepped");
    }
    let bits = |logits: &mut [f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let found = bits(session.step(&[StepRow::new(child, 4)]).expect("stepped"));
    session.clear();
    session.encode(&SOURCES[..1], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    session.step(&[StepRow::new(row, 3)]).expect("stepped");
    let expected = bits(session.step(&[StepRow::new(row, 4)]).expect("stepped"));
    assert_eq!(found, expected);
}

/// Long prefixes spread over several KV slots, on every instruction set: prefilled in chunks and by single
/// tokens, with and without a probe.
#[test]
fn a_prefill_after_forks_has_the_bits_of_steps() {
    const LONG: usize = 400;
    let dims = Dims { positions: 512, ..Dims::small(Family::M2M100) };
    let checkpoint = dims.checkpoint(31);
    let vocabulary = dims.vocabulary;
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let mut random = Random(2);
        let source = random.ids(11, vocabulary);
        // A pass takes 24 tokens, so a prefill takes several passes.
        let limits = Limits { beams: 4, batch_tokens: 24, ..Limits::new(2, 12, LONG) };
        let mut session = Session::new(&model, limits).expect("a session");
        let mut sentences = [SourceId::default(); 2];
        session.encode(&[&[1, 2], &source], &mut sentences).expect("encoded");
        let mut rows: Vec<(HypothesisId, Vec<u32>)> = Vec::new();
        let mut last: Vec<Vec<u32>> = Vec::new();
        let first = session.start(sentences[1]).expect("a row");
        let common = random.ids(235, vocabulary);
        session.prefill(first, &common, None).expect("prefilled");
        rows.push((first, common));
        for round in 0..6 {
            // By now the longest prefix is spread over several KV slots. Its first hypothesis
            // is released; the forks continue.
            while rows.len() < limits.beams {
                let (row, tokens) = rows[random.below(rows.len())].clone();
                rows.push((session.fork(row).expect("a fork"), tokens));
            }
            last.clear();
            for (i, (row, tokens)) in rows.iter_mut().enumerate() {
                let more = random.ids(1 + (7 * i + 5 * round) % 19, vocabulary);
                let (mut bits, before) = (Vec::new(), tokens.len());
                let mut each = |_: usize, logits: &[f32]| {
                    bits = logits.iter().map(|x| x.to_bits()).collect();
                };
                if round % 2 == 0 {
                    session.prefill(*row, &more, Some(&mut each)).expect("prefilled");
                } else {
                    let mut keys = Keys { row: row.slot(), seen: 0, longest: 0 };
                    let mut scratch = vec![0.0; session.plan().trace_floats()];
                    let mut watched = session.traced(&mut keys, &mut scratch).expect("space");
                    watched.prefill(*row, &more, Some(&mut each)).expect("prefilled");
                    assert!(keys.seen > 0 && keys.longest == before + more.len(), "{keys:?}");
                }
                tokens.extend(&more);
                last.push(bits);
            }
            if round < 5 {
                let longest = (0..rows.len()).max_by_key(|&i| rows[i].1.len()).expect("rows");
                session.release(rows.swap_remove(longest).0).expect("released");
                session.step(&[StepRow::new(rows[0].0, 3)]).expect("stepped");
                rows[0].1.push(3);
            }
        }
        let mut alone = Session::new(&model, Limits::new(1, 12, LONG)).expect("a session");
        for ((_, tokens), found) in rows.iter().zip(&last) {
            assert!(tokens.len() > 256, "{} tokens", tokens.len());
            alone.clear();
            let mut sentence = [SourceId::default()];
            alone.encode(&[&source], &mut sentence).expect("encoded");
            let row = alone.start(sentence[0]).expect("a row");
            let mut expected = Vec::new();
            for &token in tokens {
                let logits = alone.step(&[StepRow::new(row, token)]).expect("stepped");
                expected = logits.iter().map(|x| x.to_bits()).collect();
            }
            assert_eq!(*found, expected, "{isa}");
        }
    }
}

/// A probe that checks the number of keys that the attention weights cover.
#[derive(Debug)]
struct Keys {
    row: u32,
    seen: usize,
    longest: usize,
}

impl Probe for Keys {
    fn wants(&self, stage: Stage) -> bool {
        matches!(stage, Stage::Weights)
    }

    fn look(&mut self, view: &View<'_>) {
        if view.place.block == Some(simdformer::trace::Block::Own) && view.hypothesis.is_some() {
            assert_eq!(view.hypothesis, Some(self.row));
            assert_eq!(view.columns, view.position + view.rows);
            for (i, weights) in view.iter().enumerate() {
                let (sees, hidden) = weights.split_at(view.position + i + 1);
                assert!((sees.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                assert!(hidden.iter().all(|&weight| weight == 0.0));
            }
            self.seen += 1;
            self.longest = self.longest.max(view.columns);
        }
    }
}
