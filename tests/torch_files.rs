//! The files of `torch.save` give the bits of the safetensors of the same model: both formats, every family, views, shared
//! storages, shards. `malicious_torch_files.rs` has the files that are refused.

use crate::random_model::{Dims, Random};
use crate::torch_file::{StateDict, Tensor, contiguous};
use simdformer::Model;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::task_heads::SentenceHead;
use std::path::{Path, PathBuf};

/// Writes a state dict.
type Write = fn(&StateDict) -> Vec<u8>;

const FORMATS: [(&str, Write); 2] = [("zip", StateDict::zip), ("legacy", StateDict::legacy)];

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("torch_files").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// All float tensors by name, as bits.
fn bits(checkpoint: &Checkpoint<'_>) -> Vec<(String, Vec<usize>, Vec<u32>)> {
    let names = checkpoint.names().filter_map(|name| checkpoint.named(name).ok());
    let read = |tensor: simdformer::checkpoint::TensorView<'_>| {
        let numbers = tensor.to_vec().expect("read");
        let bits = numbers.into_iter().map(f32::to_bits).collect();
        (tensor.name().to_owned(), tensor.shape().to_vec(), bits)
    };
    names.map(read).collect()
}

/// The golden checkpoints: every family.
fn goldens() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let families = std::fs::read_dir(root.join("families")).expect("goldens");
    let mut all: Vec<PathBuf> = families.map(|entry| entry.expect("a folder").path()).collect();
    all.extend(["marian_odd", "nn_transformer_pre"].map(|name| root.join(name)));
    all.retain(|golden| golden.join("model.safetensors").exists());
    all.sort();
    assert!(all.len() >= 22, "{} goldens", all.len());
    all
}

#[test]
fn every_golden_checkpoint_has_the_bits_of_its_safetensors() {
    for golden in goldens() {
        let name = golden.file_name().expect("a name").to_string_lossy().into_owned();
        let expected = Checkpoint::open(&golden).expect("the golden");
        let isa = Isa::SCALAR;
        let needed = Model::requirements(&expected, isa).expect("requirements");
        let bytes = std::fs::read(golden.join("model.safetensors")).expect("weights");
        let state_dict = StateDict::of_safetensors(&bytes);
        for (format, write) in FORMATS {
            let folder = folder(&format!("{name}_{format}"));
            for file in ["config.json", "generation_config.json"] {
                let _ = std::fs::copy(golden.join(file), folder.join(file));
            }
            std::fs::write(folder.join("pytorch_model.bin"), write(&state_dict)).expect("written");
            let found = Checkpoint::open(&folder).expect("opened");
            assert!(found.files().all(|file| file.ends_with("pytorch_model.bin")));
            assert_eq!(found.config(), expected.config(), "{name} {format}");
            assert_eq!(found.dtypes(), expected.dtypes(), "{name} {format}");
            assert_eq!(bits(&found), bits(&expected), "{name} {format}");
            let found = Model::requirements(&found, isa).expect("requirements");
            assert_eq!(found.model_bytes, needed.model_bytes);
            assert_eq!(found.peak_bytes, needed.peak_bytes);
        }
    }
}

/// The same tensors in other storages: transposed, cut out of larger storages, shared, and as parameters.
fn rearranged(bytes: &[u8], random: &mut Random) -> StateDict {
    let plain = StateDict::of_safetensors(bytes);
    let mut other = StateDict::default();
    let size = |class: &str| if class == "FloatStorage" { 4 } else { 2 };
    let dtype = |class: &str| match class {
        "FloatStorage" => "F32",
        "HalfStorage" => "F16",
        _ => "BF16",
    };
    // One storage of f32 whose middle several tensors share.
    let shared = other.storage("F32", Vec::new());
    for tensor in &plain.tensors {
        let storage = &plain.storages[tensor.storage];
        let (size, elements) = (size(storage.class), storage.len as usize);
        let lead = random.below(9);
        let mut bytes = vec![0xa5; lead * size];
        let (mut strides, mut offset) = (contiguous(&tensor.shape), lead as i64);
        let mut index = shared;
        match (random.below(3), &tensor.shape[..]) {
            (0, _) if size == 4 => {
                offset = (other.storages[shared].bytes.len() / 4) as i64;
                other.storages[shared].bytes.extend(&storage.bytes);
                other.storages[shared].len = offset + elements as i64;
            }
            (1, &[rows, columns]) => {
                // Columns first.
                for column in 0..columns {
                    for row in 0..rows {
                        let place = ((row * columns + column) as usize) * size;
                        bytes.extend(&storage.bytes[place..place + size]);
                    }
                }
                strides = vec![1, rows];
                index = other.storage(dtype(storage.class), bytes);
            }
            (_, &[rows, columns]) => {
                // Some columns of a wider matrix.
                let wider = columns as usize + 1 + random.below(5);
                for row in 0..rows as usize {
                    let row =
                        &storage.bytes[row * columns as usize * size..][..columns as usize * size];
                    bytes.extend(row);
                    bytes.resize(bytes.len() + (wider - columns as usize) * size, 0x5a);
                }
                strides = vec![wider as i64, 1];
                index = other.storage(dtype(storage.class), bytes);
            }
            _ => {
                bytes.extend(&storage.bytes);
                index = other.storage(dtype(storage.class), bytes);
            }
        }
        let parameter = random.below(2) == 0;
        other.tensors.push(Tensor { storage: index, offset, strides, parameter, ..tensor.clone() });
    }
    other
}

#[test]
fn views_and_shared_storages_have_the_same_bits() {
    let mut random = Random(7);
    for family in [Family::Marian, Family::T5, Family::Bert] {
        let dims = Dims::small(family);
        let bytes = dims.bytes(3);
        let expected = Checkpoint::from_bytes(dims.config(), &bytes[..]).expect("a checkpoint");
        for _ in 0..3 {
            let state_dict = rearranged(&bytes, &mut random);
            for (format, write) in FORMATS {
                let file = write(&state_dict);
                let found = Checkpoint::from_bytes(dims.config(), file).expect(format);
                assert_eq!(bits(&found), bits(&expected), "{family:?} {format}");
                for role in TensorId::all(expected.config()) {
                    let Ok(Some(a)) = expected.optional(role) else { continue };
                    let b = found.tensor(role).expect("there");
                    let rows = 1.min(a.shape()[0])..a.shape()[0];
                    let [a, b] = [a, b].map(|t| t.rows(rows.clone()).and_then(|t| t.to_vec()));
                    assert_eq!(a.expect("read"), b.expect("read"), "{family:?} {format} {role}");
                }
            }
        }
    }
}

/// Half-precision views are widened after they are gathered.
#[test]
fn transposed_halves_are_widened() {
    let dims = Dims::small(Family::Marian);
    let mut state_dict = StateDict::of_safetensors(&dims.bytes(1));
    let halves: Vec<u8> = (0..6u16).flat_map(|i| (0x3c00 + 77 * i).to_le_bytes()).collect();
    for (name, dtype) in [("a", "F16"), ("b", "BF16")] {
        state_dict.whole(name, dtype, &[2, 3], halves.clone());
        state_dict.tensors.last_mut().expect("one").strides = vec![1, 2];
        state_dict.whole(&format!("{name}_plain"), dtype, &[3, 2], halves.clone());
    }
    state_dict.whole("ids", "I64", &[1], vec![0; 8]);
    state_dict.whole("double", "F64", &[1], vec![0; 8]);
    for (format, write) in FORMATS {
        let file = Checkpoint::from_bytes(dims.config(), write(&state_dict)).expect(format);
        for name in ["a", "b"] {
            let numbers = |name: &str| file.named(name).and_then(|t| t.to_vec()).expect("read");
            let (view, plain) = (numbers(name), numbers(&format!("{name}_plain")));
            assert_eq!(view, [0, 2, 4, 1, 3, 5].map(|i| plain[i]), "{format} {name}");
        }
        // Tensors that the model does not need may have any dtype.
        for (name, dtype) in [("ids", "I64"), ("double", "F64")] {
            let error = file.named(name).expect_err("no floats").to_string();
            assert!(error.contains(&format!("found {dtype}")), "{error}");
        }
    }
}

#[test]
fn shards_are_read_and_safetensors_are_preferred() {
    let dims = Dims::small(Family::Marian);
    let bytes = dims.bytes(5);
    let expected = Checkpoint::from_bytes(dims.config(), &bytes[..]).expect("a checkpoint");
    let all = StateDict::of_safetensors(&bytes);
    let folder = folder("shards");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect(name);
    write("config.json", dims.json().as_bytes());
    let mut map = serde_json::Map::new();
    for (part, name) in ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
        .into_iter()
        .enumerate()
    {
        let mut shard = all.clone();
        shard.tensors.retain(|tensor| tensor.storage % 2 == part);
        for tensor in &shard.tensors {
            map.insert(tensor.name.clone(), name.into());
        }
        let keep: Vec<usize> = shard.tensors.iter().map(|tensor| tensor.storage).collect();
        shard.storages = keep.iter().map(|&index| all.storages[index].clone()).collect();
        shard.tensors.iter_mut().enumerate().for_each(|(index, tensor)| tensor.storage = index);
        write(name, &FORMATS[part].1(&shard));
    }
    let open = || Checkpoint::open(&folder);
    let error = open().expect_err("no index").to_string();
    assert!(
        error.contains(
            "pytorch_model.bin.index.json: expected the index that lists the tensors of pytorch_model-00001-of-00002.bin, pytorch_model-00002-of-00002.bin, found no such file"
        ) && error.contains("pytorch_model-00002-of-00002.bin"),
        "{error}"
    );
    write(
        "pytorch_model.bin.index.json",
        serde_json::json!({"weight_map": map}).to_string().as_bytes(),
    );
    let found = open().expect("shards");
    assert_eq!(found.files().count(), 2);
    assert_eq!(bits(&found), bits(&expected));
    // One file is preferred to shards, and safetensors to all.
    write("pytorch_model.bin", b"\x80\x02N.");
    let error = open().expect_err("a wrong file");
    assert!(matches!(error, simdformer::Error::Corrupt { .. }), "{error}");
    write("model.fp16.safetensors", b"x");
    let error = open().expect_err("a wrong file");
    assert!(matches!(error, simdformer::Error::Corrupt { .. }), "{error}");
    write("model.safetensors", &bytes);
    assert!(open().expect("safetensors").files().all(|file| file.ends_with("model.safetensors")));
}

/// The oldest pickler wrote strings of one byte per character, numbers of the memo from 1 on, and an `OrderedDict` as a
/// list of pairs.
#[test]
fn state_dicts_of_python_2_are_read() {
    let dims = Dims::small(Family::Bert);
    let bytes = dims.bytes(2);
    let all = StateDict::of_safetensors(&bytes);
    let expected = Checkpoint::from_bytes(dims.config(), &bytes[..]).expect("a checkpoint");
    let mut pickle = b"\x80\x02ccollections\nOrderedDict\nq\x01]q\x02(".to_vec();
    let text = |pickle: &mut Vec<u8>, text: &str| {
        pickle.push(b'U');
        pickle.push(text.len() as u8);
        pickle.extend(text.as_bytes());
    };
    let int = |pickle: &mut Vec<u8>, number: i64| {
        pickle.push(b'J');
        pickle.extend((number as i32).to_le_bytes());
    };
    for tensor in &all.tensors {
        let storage = &all.storages[tensor.storage];
        pickle.extend(b"](");
        text(&mut pickle, &tensor.name);
        pickle.extend(b"ctorch._utils\n_rebuild_tensor\n((");
        text(&mut pickle, "storage");
        pickle.extend(format!("ctorch\n{}\n", storage.class).as_bytes());
        text(&mut pickle, &storage.key);
        text(&mut pickle, "cpu");
        int(&mut pickle, storage.len);
        // A view of all elements of the storage.
        pickle.push(b'(');
        text(&mut pickle, "1");
        int(&mut pickle, 0);
        int(&mut pickle, storage.len);
        pickle.extend(b"ttQK\0(");
        tensor.shape.iter().for_each(|&size| int(&mut pickle, size));
        pickle.extend(b"t(");
        tensor.strides.iter().for_each(|&stride| int(&mut pickle, stride));
        pickle.extend(b"ttRe");
    }
    pickle.extend(b"e\x85R.");
    let mut file = all.legacy_head();
    file.pickle = pickle;
    let found = Checkpoint::from_bytes(dims.config(), file.bytes()).expect("opened");
    assert_eq!(bits(&found), bits(&expected));
}

/// A dense layer of sentence-transformers has a file of its own.
#[test]
fn dense_layers_are_read() {
    let modules = r#"[
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#;
    let dense = r#"{"in_features": 3, "out_features": 2, "bias": true,
        "activation_function": "torch.nn.modules.activation.Tanh"}"#;
    let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut state_dict = StateDict::default();
    state_dict.whole("linear.weight", "F32", &[2, 3], bytes(&[0.5, -1.0, 0.25, 1.5, 0.0, -0.5]));
    state_dict.whole("linear.bias", "F32", &[2], bytes(&[0.125, -0.25]));
    for (format, write) in FORMATS {
        let folder = folder(&format!("dense_{format}"));
        let file = |name: &str, bytes: &[u8]| {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, bytes).expect(name);
        };
        file("modules.json", modules.as_bytes());
        file("1_Pooling/config.json", br#"{"pooling_mode": ["mean"]}"#);
        file("2_Dense/config.json", dense.as_bytes());
        file("2_Dense/pytorch_model.bin", &write(&state_dict));
        let head = SentenceHead::open(&folder, 3).expect(format);
        let mut scratch = vec![0.0; head.scratch_floats()];
        let mut out = [0.0; 2];
        head.apply(&[1.0, 2.0, 4.0], &mut scratch, &mut out).expect("applied");
        let expected = [-0.375f64, -0.75].map(f64::tanh);
        for (found, expected) in out.into_iter().zip(expected) {
            assert!((f64::from(found) - expected).abs() < 1e-6, "{format}: {out:?}");
        }
    }
}

/// `torch_files/` has what PyTorch 2.15 wrote for one golden: parameters, transposed matrices, vectors in one storage.
#[test]
fn a_file_of_pytorch_has_the_bits_of_its_safetensors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let expected = Checkpoint::open(root.join("families/camembert")).expect("the golden");
    for (format, _) in FORMATS {
        let file = root.join(format!("torch_files/camembert_{format}.bin"));
        let file = std::fs::read(file).expect(format);
        let found = Checkpoint::from_bytes(expected.config().clone(), file).expect(format);
        assert_eq!(bits(&found), bits(&expected), "{format}");
    }
}

/// Files that PyTorch wrote: `SIMDFORMER_TORCH_FILES` names the folder that `torch_files.py` filled.
#[test]
#[ignore = "torch_files.py writes the files"]
fn files_of_pytorch_have_the_bits_of_their_safetensors() {
    let root = std::env::var_os("SIMDFORMER_TORCH_FILES").expect("the folder of torch_files.py");
    let root = PathBuf::from(root);
    let mut compared = 0;
    for golden in goldens() {
        let name = golden.file_name().expect("a name").to_string_lossy().into_owned();
        let expected = Checkpoint::open(&golden).expect("the golden");
        for (format, _) in FORMATS {
            let folder = root.join(format!("{name}_{format}"));
            let found =
                Checkpoint::open(&folder).unwrap_or_else(|e| panic!("{name} {format}: {e}"));
            assert_eq!(bits(&found), bits(&expected), "{name} {format}");
            compared += 1;
        }
    }
    println!("{compared} files of PyTorch");
    assert!(compared >= 44, "{compared} files");
}
