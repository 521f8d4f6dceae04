//! A plan holds the hypotheses that it says, in every order of start, fork, release, step and prefill,
//! and each sees its own past and nothing else.
//!
//! The bookkeeping alone goes through more than a million operations in `src/session/pasts.rs`; here it is a
//! whole session, and what it computes is compared bit by bit with the same tokens fed one by one to a
//! session that has nothing else to do.

use crate::random_model::{Dims, Random};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::{Limits, Model, Row, Sentence, Session, SessionError, StepRow};
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

/// Logits after each history, from sessions of one hypothesis.
struct Alone<'m> {
    session: Session<'m>,
    known: HashMap<(usize, Vec<u32>), Vec<u32>>,
}

impl Alone<'_> {
    /// Bits of the logits after `tokens` about a source.
    fn bits(&mut self, source: usize, tokens: &[u32]) -> &[u32] {
        let session = &mut self.session;
        self.known.entry((source, tokens.to_vec())).or_insert_with(|| {
            session.clear();
            let mut sentence = [Sentence::default()];
            session.encode(&[SOURCES[source]], &mut sentence).expect("encoded");
            let row = session.start(sentence[0]).expect("a row");
            let mut bits = Vec::new();
            for &token in tokens {
                let logits = session.step(&[StepRow { row, token }]).expect("stepped");
                bits = logits.iter().map(|x| x.to_bits()).collect();
            }
            bits
        })
    }
}

/// The hypotheses of one sentence and what they have been fed.
struct Tenant {
    sentence: Sentence,
    source: usize,
    rows: Vec<(Row, Vec<u32>)>,
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

/// Operations at random; every one that the plan has room for must succeed.
fn run(beams: usize, operations: usize) -> Done {
    let model = model();
    let limits = Limits { beams, ..Limits::new(2, 5, TARGET) };
    let mut session = Session::new(&model, limits).expect("a session");
    let alone = Session::new(&model, Limits::new(1, 5, TARGET)).expect("a session");
    let mut alone = Alone { session: alone, known: HashMap::new() };
    let mut random = Random(beams as u64);
    let mut sentences = [Sentence::default(); 2];
    session.encode(&SOURCES, &mut sentences).expect("encoded");
    let tenant = |source: usize| Tenant { sentence: sentences[source], source, rows: Vec::new() };
    let mut tenants = [tenant(0), tenant(1)];
    let mut done = Done::default();
    for _ in 0..operations {
        let at = random.below(2);
        let Tenant { sentence, source, rows } = &mut tenants[at];
        let chosen = random.below(rows.len());
        match random.below(10) {
            0..=1 => match session.start(*sentence) {
                Ok(row) => {
                    rows.push((row, Vec::new()));
                    done.starts += 1;
                }
                Err(error) => {
                    assert_eq!(rows.len(), beams, "a start was refused with room: {error}");
                    done.refused += 1;
                }
            },
            2..=3 if !rows.is_empty() => match session.fork(rows[chosen].0) {
                Ok(row) => {
                    rows.push((row, rows[chosen].1.clone()));
                    done.forks += 1;
                }
                Err(error) => {
                    assert_eq!(rows.len(), beams, "a fork was refused with room: {error}");
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
                // Some rows of both sentences, in any order.
                let mut steps: Vec<(usize, usize, u32)> = Vec::new();
                for (at, tenant) in tenants.iter().enumerate() {
                    for (i, (_, tokens)) in tenant.rows.iter().enumerate() {
                        if tokens.len() < TARGET && random.below(3) > 0 {
                            let place = random.below(steps.len() + 1);
                            steps.insert(place, (at, i, random.below(VOCABULARY) as u32));
                        }
                    }
                }
                let step = |&(at, i, token): &(usize, usize, u32)| StepRow {
                    row: tenants[at].rows[i].0,
                    token,
                };
                let request: Vec<StepRow> = steps.iter().map(step).collect();
                let logits = session.step(&request).expect("stepped");
                for (&(at, i, token), logits) in steps.iter().zip(logits.chunks(VOCABULARY)) {
                    let Tenant { source, rows, .. } = &mut tenants[at];
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
            assert_eq!(session.row_len(*row), Ok(tokens.len()));
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

/// The plan's own words: "hypotheses at a time".
#[test]
fn what_was_released_pins_nothing() {
    let model = model();
    let mut session =
        Session::new(&model, Limits { beams: 2, ..Limits::new(1, 5, TARGET) }).expect("a session");
    let mut sentence = [Sentence::default()];
    session.encode(&SOURCES[..1], &mut sentence).expect("encoded");
    let parent = session.start(sentence[0]).expect("a row");
    session.step(&[StepRow { row: parent, token: 3 }]).expect("stepped");
    let child = session.fork(parent).expect("a fork");
    session.release(parent).expect("released");
    let other = session.start(sentence[0]).expect("one lives, two are planned");
    assert_eq!(
        session.start(sentence[0]).err(),
        Some(SessionError::NoFreeRow { sentence: 0, beams: 2 })
    );
    // The newcomer goes where the parent was, and the child still sees its parent's past.
    for token in [1, 2, 5] {
        session.step(&[StepRow { row: other, token }]).expect("stepped");
    }
    let bits = |logits: &mut [f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let found = bits(session.step(&[StepRow { row: child, token: 4 }]).expect("stepped"));
    session.clear();
    session.encode(&SOURCES[..1], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    session.step(&[StepRow { row, token: 3 }]).expect("stepped");
    let expected = bits(session.step(&[StepRow { row, token: 4 }]).expect("stepped"));
    assert_eq!(found, expected);
}
