//! Tensors whose module was wrapped when the model was saved, and notes about tensors that a model does not use as its
//! files may mean them: in every family.

use crate::random_model::{Dims, families};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use simdformer::Model;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use std::collections::BTreeMap;

type Named = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn read(bytes: &[u8]) -> Named {
    let file = SafeTensors::deserialize(bytes).expect("a safetensors file");
    let tensor = |(name, view): (String, TensorView<'_>)| {
        (name, (view.shape().to_vec(), view.data().to_vec()))
    };
    file.tensors().into_iter().map(tensor).collect()
}

fn write(tensors: &Named) -> Vec<u8> {
    let views = tensors.iter().map(|(name, (shape, data))| {
        (name, TensorView::new(Dtype::F32, shape.clone(), data).expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a safetensors file")
}

fn open(dims: &Dims, tensors: &Named) -> Result<Checkpoint<'static>, simdformer::Error> {
    Checkpoint::from_bytes(dims.config(), write(tensors))
}

fn fingerprint(checkpoint: &Checkpoint<'_>) -> u128 {
    Model::load(checkpoint, Isa::SCALAR).expect("a model").fingerprint()
}

fn renamed(tensors: &Named, name: impl Fn(&str) -> String) -> Named {
    tensors.iter().map(|(old, tensor)| (name(old), tensor.clone())).collect()
}

/// Every prefix of up to three wrappers, and wrappers inside of names.
#[test]
fn wrappers_change_nothing_in_any_family() {
    const WRAPPERS: [&str; 4] =
        ["_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
    let mut prefixes: Vec<String> = vec![String::new()];
    for first in &WRAPPERS[..2] {
        prefixes.push(format!("{first}."));
        for second in WRAPPERS {
            prefixes.push(format!("{first}.{second}."));
            prefixes.push(format!("{second}.{first}.module."));
        }
    }
    let mut read_as = 0;
    for family in families() {
        let dims = Dims::small(family);
        let tensors = read(&dims.bytes(1));
        let plain = open(&dims, &tensors).expect("the names of the family");
        let expected = fingerprint(&plain);
        let mut check = |changed: Named, what: &str| {
            let found =
                open(&dims, &changed).unwrap_or_else(|error| panic!("{family:?} {what}: {error}"));
            assert!(found.names().eq(plain.names()), "{family:?} {what}");
            assert_eq!(found.notes(), plain.notes(), "{family:?} {what}");
            read_as += 1;
            found
        };
        for prefix in &prefixes {
            check(renamed(&tensors, |name| format!("{prefix}{name}")), prefix);
        }
        // One part was wrapped: the encoder, every layer, or the matrices.
        for wrapper in WRAPPERS {
            check(
                renamed(&tensors, |name| name.replace("encoder.", &format!("encoder.{wrapper}."))),
                wrapper,
            );
            check(
                renamed(&tensors, |name| name.replace(".1.", &format!(".1.{wrapper}."))),
                wrapper,
            );
            let last = renamed(&tensors, |name| match name.rsplit_once('.') {
                Some((stem, kind)) => format!("{stem}.{wrapper}.{kind}"),
                None => name.to_owned(),
            });
            let found = check(last, wrapper);
            assert_eq!(fingerprint(&found), expected, "{family:?}");
        }
    }
    assert!(read_as > 600, "{read_as}");
}

/// A tensor under two names that differ only in wrappers is an error that names both, also if the numbers are equal.
#[test]
fn a_mix_of_names_is_an_error() {
    for family in families() {
        let dims = Dims::small(family);
        let tensors = read(&dims.bytes(1));
        for (number, (name, tensor)) in tensors.iter().enumerate() {
            let wrapper = ["_orig_mod.", "module.", "module._orig_mod."][number % 3];
            let mut both = tensors.clone();
            both.insert(format!("{wrapper}{name}"), tensor.clone());
            match open(&dims, &both) {
                Err(simdformer::Error::Corrupt { operand, expected, found }) => {
                    assert_eq!((&*operand, &*expected), (&**name, "one tensor of this name"));
                    let mut names = [name.clone(), format!("{wrapper}{name}")];
                    names.sort_unstable();
                    let [first, second] = names;
                    let either =
                        [format!("{first} and {second}:"), format!("{second} and {first}:")];
                    assert!(either.iter().any(|names| found.starts_with(names)), "{found}");
                }
                other => panic!("{family:?} {name}: {other:?}"),
            }
        }
    }
}

/// An output matrix and tables that differ from the one that they are tied to, in every family that ties.
#[test]
fn a_matrix_that_differs_from_its_tied_table_gives_a_note() {
    let (mut noted, mut equal) = (0, 0);
    for family in families() {
        let dims = Dims::small(family);
        let config = dims.config();
        let tensors = read(&dims.bytes(1));
        let plain = open(&dims, &tensors).expect("a checkpoint");
        for role in [TensorId::SourceEmbedding, TensorId::TargetEmbedding, TensorId::Output] {
            if role.shape(&config).is_none() {
                continue;
            }
            let used = plain.tensor(role).expect("a table").name().to_owned();
            for name in role.names(&config).into_iter().filter(|name| !tensors.contains_key(name)) {
                let mut more = tensors.clone();
                more.insert(name.clone(), tensors[&used].clone());
                let same = open(&dims, &more).expect("a copy");
                assert_eq!(same.notes(), plain.notes(), "{family:?} {name}");
                equal += 1;
                more.get_mut(&name).expect("it").1[3] ^= 1;
                let checkpoint = open(&dims, &more).expect("another matrix");
                let notes = checkpoint.notes();
                let [note] = &notes[..] else { panic!("{family:?} {name}: {notes:?}") };
                let words: Vec<&str> = note.split([' ', ',']).collect();
                let unties = note.starts_with("the configuration ties ");
                let copies = note.contains(" are two names of one matrix, ");
                assert!(unties || copies, "{family:?} {name}: {note}");
                assert!(words.contains(&&*name), "{family:?} {name}: {note}");
                assert!(unties || words.contains(&&*used), "{family:?}: {note}");
                let model = Model::load(&checkpoint, Isa::SCALAR).expect("a model");
                assert_eq!(model.notes(), notes);
                noted += 1;
            }
        }
    }
    assert!(noted == equal && noted > 20, "{noted}");
    let config = Dims::small(Family::Marian).config();
    assert!(Model::from_fn(config, |_, _, _| Ok(())).expect("zeros").notes().is_empty());
}

/// A tensor that no part of the model is, and one that an index of shards does not list.
#[test]
fn tensors_that_are_not_used_give_a_note() {
    let mut many = 0;
    for family in families() {
        let dims = Dims::small(family);
        let mut tensors = read(&dims.bytes(1));
        for extra in ["prefix_projection.weight", "adapter.down.bias", "module.extra"] {
            tensors.insert(extra.to_owned(), (vec![1], vec![0; 4]));
        }
        let notes = open(&dims, &tensors).expect("a checkpoint").notes();
        let unused = ["adapter.down.bias", "extra", "prefix_projection.weight"];
        let expected = format!("tensors that no part of the model is: {}", unused.join(", "));
        assert_eq!(notes, [expected], "{family:?}");
        many += 1;
    }
    assert!(many > 15);

    let dims = Dims::small(Family::Marian);
    let folder = std::env::temp_dir().join(format!("unlisted-{}", std::process::id()));
    dims.write(1, &folder);
    let weights = folder.join("model.safetensors");
    let tensors = read(&std::fs::read(&weights).expect("weights"));
    let mut more = tensors.clone();
    more.insert("forgotten.weight".to_owned(), (vec![1], vec![0; 4]));
    std::fs::write(folder.join("a.safetensors"), write(&more)).expect("a shard");
    std::fs::remove_file(weights).expect("the single file");
    let listed: Vec<String> =
        tensors.keys().map(|name| format!("\"{name}\": \"a.safetensors\"")).collect();
    let index = format!("{{\"weight_map\": {{{}}}}}", listed.join(", "));
    std::fs::write(folder.join("model.safetensors.index.json"), index).expect("an index");
    let notes = Checkpoint::open(&folder).expect("a checkpoint").notes();
    let expected = "tensors that the index of the shards does not list: forgotten.weight";
    assert_eq!(notes, [expected]);
    std::fs::remove_dir_all(&folder).expect("the folder");
}
