//! The fingerprint of a model: equal on every instruction set and for every way to get the same model; another one for
//! another weight, dtype or setting.

use crate::effort::full;
use crate::random_model::Dims;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::{Config, Family};
use simdformer::kernels::Isa;
use simdformer::{LoadOptions, Model};
use std::collections::HashMap;
use std::path::Path;

fn load(checkpoint: &Checkpoint<'_>, isa: Isa, forms: &str) -> Model {
    let dtypes = forms.parse().expect(forms);
    Model::load(checkpoint, LoadOptions { dtypes, ..isa.into() }).expect("a model")
}

/// Widths that are no multiple of a panel, and convolutions, relative positions and token types.
fn models() -> Vec<(&'static str, Checkpoint<'static>)> {
    let wide = |family| Dims { d_model: 132, ffn: [150, 261], ..Dims::small(family) };
    let dims = [
        ("marian", Dims { vocabulary: 397, ..wide(Family::Marian) }),
        ("t5", Dims { d_model: 72, ..wide(Family::T5) }),
        ("whisper", Dims::small(Family::Whisper)),
        ("bert", Dims::small(Family::Bert)),
    ];
    dims.map(|(name, dims)| (name, dims.checkpoint(3))).into()
}

#[test]
fn all_instruction_sets_have_one_fingerprint_for_each_model_and_dtype() {
    let mut seen: HashMap<u128, String> = HashMap::new();
    for (name, checkpoint) in models() {
        for forms in ["f32", "f16", "bf16", "int8", "int8x16"] {
            let numbers = Isa::available().map(|isa| load(&checkpoint, isa, forms).fingerprint());
            let numbers: Vec<u128> = numbers.collect();
            assert!(numbers.iter().all(|&number| number == numbers[0]), "{name} {forms}");
            let other = seen.insert(numbers[0], format!("{name} {forms}"));
            assert_eq!(other, None, "{name} {forms}");
        }
    }
}

/// A model of the repository, in full test runs all of them: the same after it was saved as a checkpoint.
#[test]
fn a_saved_model_has_the_same_fingerprint() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let names: &[&str] =
        if full() { &["copy", "fr-en", "walkthrough", "walkthrough-pre-norm"] } else { &["copy"] };
    for name in names {
        let model = Model::open(root.join(name)).expect(name);
        let folder = crate::tiny_marian::Folder::new(&format!("fingerprint-{name}"));
        model.save(&folder.0).expect("saved");
        let again =
            Model::open_with(&folder.0, "f32".parse::<simdformer::WeightDtypes>().expect("f32"));
        let as_f32 = Model::open_with(
            root.join(name),
            "f32".parse::<simdformer::WeightDtypes>().expect("f32"),
        );
        assert_eq!(again.expect(name).fingerprint(), as_f32.expect(name).fingerprint(), "{name}");
    }
}

/// Every bit of every tensor counts, and every setting.
#[test]
fn another_weight_or_setting_has_another_fingerprint() {
    let dims = Dims::small(Family::Marian);
    let make = |config: Config, changed: Option<TensorId>| {
        let mut value = 0.0;
        let model = Model::from_fn(config, |role, _, out| {
            out.fill_with(|| {
                value += 1.0 / 1024.0;
                value
            });
            if Some(role) == changed {
                let last = out.last_mut().expect("a tensor");
                *last = f32::from_bits(last.to_bits() ^ 1);
            }
            Ok(())
        });
        model.expect("a model").fingerprint()
    };
    let config = dims.config();
    let same = make(config.clone(), None);
    assert_eq!(make(config.clone(), None), same);
    let mut tensors = 0;
    for role in TensorId::all(&config) {
        let tied = [TensorId::TargetEmbedding, TensorId::Output].contains(&role);
        assert_eq!(make(config.clone(), Some(role)) == same, tied, "{role}");
        tensors += 1;
    }
    assert!(tensors > 40, "{tensors} tensors");
    let change = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        make(config, None)
    };
    let changed = [
        change(&|config| config.layer_norm_eps *= 2.0),
        change(&|config| config.embedding_scale *= 2.0),
        change(&|config| config.activation = simdformer::config::Activation::Tanh),
        change(&|config| config.activation = simdformer::config::Activation::Sigmoid),
        change(&|config| config.tokens.eos.push(3)),
        change(&|config| config.tokens.banned.push(4)),
        change(&|config| config.settings.beam.beams += 1),
        change(&|config| config.settings.options.bad_words.push(vec![4, 5])),
        change(&|config| config.settings.beam.length_penalty = 0.75),
    ];
    for (index, number) in changed.iter().enumerate() {
        assert_ne!(*number, same, "change {index}");
        assert!(!changed[..index].contains(number), "change {index}");
    }
    // What only informs, or only names tensors.
    assert_eq!(change(&|config| config.unsupported.push("x".into())), same);
    assert_eq!(change(&|config| config.defaults.clear()), same);
}
