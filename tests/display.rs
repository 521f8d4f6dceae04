//! `Display` and `Debug` of models, plans and other types: tables that add up, and no data.

use crate::random_model::{Dims, decoding};
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::{Config, Dimensions, Family};
use simdformer::kernels::Isa;
use simdformer::search::{Hooks, Search, SearchLimits, words};
use simdformer::{Limits, Model, Plan, Session};
use std::fmt::Debug;

/// The rows of bytes of a table, and the sum in its last line.
fn table(text: &str) -> (Vec<usize>, usize) {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse().ok()) else { continue };
        let rest: Vec<&str> = words.collect();
        if rest == ["bytes"] {
            assert_eq!(text.lines().last(), Some(line));
            return (bytes, number);
        }
        if rest.get(1) == Some(&"%") {
            bytes.push(number);
        }
    }
    panic!("no sum in\n{text}");
}

#[test]
fn the_table_of_a_model_adds_up() {
    for family in decoding() {
        let dims = Dims::small(family);
        for isa in Isa::available() {
            let model = Model::load(&dims.checkpoint(2), isa).expect("a model");
            let text = model.to_string();
            let (lines, sum) = table(&text);
            assert_eq!(lines.iter().sum::<usize>(), sum, "{text}");
            assert_eq!(sum, model.bytes(), "{text}");
            assert!(lines.len() >= 8, "{text}");
            let first = format!("{}, d_model 42, ", family.model_type());
            assert!(text.starts_with(&first) && text.contains(isa.name()), "{text}");
        }
    }
}

#[test]
fn shared_parameters_are_counted_once() {
    let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 12, vocabulary: 20 };
    let model = Model::from_fn(Config::transformer(small), |_, _, _| Ok(())).expect("a model");
    let attention = 4 * (8 * 8 + 8);
    let feed_forward = 12 * 8 + 12 + 8 * 12 + 8;
    let layers = 3 * attention + 2 * feed_forward + 5 * 16;
    let all = 20 * 8 + 20 + layers;
    let text = model.to_string();
    assert!(text.starts_with(&format!("plain, d_model 8, {all} parameters, ")), "{text}");
}

#[test]
fn the_table_of_a_plan_adds_up() {
    let model = Model::load(&Dims::small(Family::M2M100).checkpoint(2), Isa::best()).expect("ok");
    for sentences in [1, 3, 8] {
        for (source, target) in [(1, 1), (5, 40), (64, 17)] {
            for beams in [1, 4] {
                let limits = Limits { beams, ..Limits::new(sentences, source, target) };
                let plan = Plan::new(&model, limits).expect("a plan");
                let text = plan.to_string();
                let (lines, sum) = table(&text);
                assert_eq!(lines.iter().sum::<usize>(), sum, "{text}");
                assert_eq!(sum, plan.bytes(), "{text}");
                assert!(lines.len() >= 7, "{text}");
            }
        }
    }
}

fn short(value: &dyn Debug, name: &str) {
    let text = format!("{value:?}");
    assert!(text.len() <= 700, "{name} prints {} characters: {text:.300}", text.len());
    assert!(text.contains(name), "{text}");
}

/// However much data a value owns or borrows.
#[test]
fn debug_prints_no_data() {
    let dims = Dims::small(Family::Bart);
    let checkpoint = dims.checkpoint(1);
    let model = Model::load(&checkpoint, Isa::best()).expect("a model");
    short(&checkpoint, "Checkpoint");
    short(&checkpoint.tensor(TensorId::Output).expect("there"), "TensorView");
    short(&model, "Model");
    let plan = Plan::new(&model, Limits::new(4, 64, 64)).expect("a plan");
    short(&plan, "Plan");
    let mut session = Session::new(&model, Limits::new(4, 64, 64)).expect("a session");
    short(&session, "Session");
    let mut scratch = vec![0.0; plan.trace_floats()];
    let mut seen = 0;
    struct Print<'s>(&'s mut usize);
    impl simdformer::trace::Probe for Print<'_> {
        fn look(&mut self, view: &simdformer::trace::View<'_>) {
            short(view, "View");
            *self.0 += 1;
        }
    }
    let mut print = Print(&mut seen);
    let mut watched = session.traced(&mut print, &mut scratch).expect("space");
    short(&watched, "Session");
    watched.encoder_output(&[&[5, 6, 7]]).expect("encoded");
    assert!(seen > 10);
    short(&Hooks::default(), "Hooks");
    let options = model.config().search_options();
    let limits = SearchLimits {
        sentences: 2,
        sequences: 1,
        max_target_length: 16,
        vocabulary: 131,
        end_tokens: 1,
        source_tokens: 0,
    };
    let mut memory = vec![0; words(&limits).expect("a size")];
    short(&Search::new(&options, &limits, &mut memory).expect("a search"), "Search");
    let borrowed = dims.bytes(1);
    let from_bytes = Checkpoint::from_bytes(dims.config(), &borrowed).expect("a checkpoint");
    short(&from_bytes, "Checkpoint");
}
