//! The table of parameters is complete: its bytes add up, and every tensor of a checkpoint is in it once.

use crate::random_model::{Dims, families};
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::{Family, Positions};
use simdformer::kernels::Isa;
use simdformer::{Dtype, Model, Storage, WeightDtype};
use std::collections::{BTreeMap, HashSet};

/// Every family, with both norm placements if the family allows both.
fn models() -> impl Iterator<Item = Dims> {
    families()
        .map(Dims::small)
        .chain([Dims { norm_first: true, ..Dims::small(Family::NnTransformer) }])
}

#[test]
fn parameters_add_up_to_the_bytes_of_the_model() {
    for dims in models() {
        let checkpoint = dims.checkpoint(1);
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            let all: usize = model.parameters().map(|parameter| parameter.bytes()).sum();
            assert_eq!(all, model.bytes(), "{dims:?} {isa}");
            for parameter in model.parameters() {
                let numbers: usize = parameter.shape().iter().product();
                // The first rows of a table of learned positions may be unused.
                let offset = match model.config().positions {
                    Positions::Learned { offset } => offset,
                    _ => 0,
                };
                let read = match parameter.role() {
                    TensorId::Positions(_) => numbers - offset * dims.d_model,
                    _ => numbers,
                };
                match parameter.storage() {
                    Storage::Rows | Storage::Packed(WeightDtype::Float(Dtype::F32)) => {
                        assert!(parameter.bytes() >= 4 * read, "{dims:?} {isa}: {parameter}");
                    }
                    Storage::PruningTable => {
                        assert!(parameter.bytes() >= numbers, "{dims:?} {isa}: {parameter}");
                    }
                    Storage::SharedWith(_) => {
                        assert_eq!(parameter.bytes(), 0, "{dims:?} {isa}: {parameter}")
                    }
                    other => panic!("{dims:?} {isa}: {other}"),
                }
            }
        }
    }
}

#[test]
fn every_tensor_of_a_checkpoint_is_stored_once_in_each_storage() {
    for dims in models() {
        let checkpoint = dims.checkpoint(1);
        let written: BTreeMap<String, Vec<usize>> = dims.tensors().into_iter().collect();
        let model = Model::load(&checkpoint, Isa::best()).expect("a model");
        let mut stored: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut seen = HashSet::new();
        for parameter in model.parameters() {
            let (role, storage) = (parameter.role(), parameter.storage());
            assert!(seen.insert((role, storage)), "{dims:?}: {parameter} comes twice");
            assert_eq!(Some(parameter.shape().to_vec()), role.shape(model.config()), "{parameter}");
            let Some(tensor) = checkpoint.optional(role).expect("readable") else {
                assert_eq!(role, TensorId::OutputBias, "{dims:?}");
                continue;
            };
            if let Storage::SharedWith(other) = storage {
                assert_eq!(checkpoint.tensor(other).expect("there").name(), tensor.name());
            } else {
                let numbers: usize = parameter.shape().iter().product();
                *stored.entry((tensor.name().to_owned(), storage.to_string())).or_default() +=
                    numbers;
            }
        }
        // The file's tensors, all of them and none twice. A third of a matrix counts as a third.
        for ((name, storage), numbers) in &stored {
            let expected: usize = written[name].iter().product();
            assert_eq!(*numbers, expected, "{dims:?}: {name} as {storage}");
        }
        let names: HashSet<&String> = stored.keys().map(|(name, _)| name).collect();
        assert!(written.keys().all(|name| names.contains(name)), "{dims:?}: left out");
        // In the order of use. Each tensor has one first storage.
        let first: Vec<TensorId> = model
            .parameters()
            .filter(|parameter| parameter.storage() != Storage::PruningTable)
            .map(|parameter| parameter.role())
            .collect();
        assert_eq!(first, TensorId::all(model.config()).collect::<Vec<_>>(), "{dims:?}");
    }
}

/// A configuration that claims many layers does not make a list of all their tensors.
#[test]
fn a_claim_of_many_layers_ends_at_the_first_that_is_missing() {
    let dims = Dims::small(Family::Marian);
    let mut config = dims.config();
    config.encoder.layers = 1 << 12;
    config.decoder.iter_mut().for_each(|stack| stack.layers = 1 << 12);
    let error = Checkpoint::from_bytes(config, dims.bytes(1)).expect_err("layers are missing");
    let simdformer::Error::Corrupt { expected, .. } = &error else { panic!("{error}") };
    assert_eq!(&**expected, "model.encoder.layers.2.self_attn.q_proj.weight", "{error}");
}
