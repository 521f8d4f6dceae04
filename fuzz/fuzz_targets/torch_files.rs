//! Files of `torch.save`: a pickle of arbitrary bytes or instructions in both formats, a valid file with changed bytes, and
//! arbitrary bytes. The result must be an `Err`, or a checkpoint whose tensors can be read. Everything else is a bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Config;
use simdformer::kernels::Isa;
use simdformer::{LoadOptions, Model};
use simdformer_testing::torch_file::{Legacy, Pickler, StateDict};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// What the file contains.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    legacy: bool,
    pickle: Pickle<'a>,
    /// Changes of the bytes of the whole file.
    changes: Vec<Change>,
    /// Bytes that are kept, if it is not the whole file.
    keep: Option<u32>,
    /// In place of all that.
    file: Option<&'a [u8]>,
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Pickle<'a> {
    /// That of a valid file, with changes.
    Valid(Vec<Change>),
    Bytes(&'a [u8]),
    Instructions(Vec<Instruction<'a>>),
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Instruction<'a> {
    Raw(u8),
    Text(&'a str),
    Int(i64),
    Sizes(Vec<i8>),
    Global(u8),
    OtherGlobal(&'a str, &'a str),
    Put,
    Get(u8),
    /// A tensor of a storage, all but `_rebuild_tensor_v2` and the call.
    Storage(u8, i16),
    Tensor(i8, Vec<i8>, Vec<i8>),
}

#[derive(Clone, Copy, Debug, arbitrary::Arbitrary)]
enum Change {
    Set(u32, u8),
    Word(u32, u32),
    Insert(u32, u8),
    Remove(u32),
}

const CONFIG: &str = r#"{"model_type": "marian", "d_model": 4, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 4,
    "decoder_ffn_dim": 4, "vocab_size": 6, "pad_token_id": 5, "eos_token_id": 0,
    "decoder_start_token_id": 5, "activation_function": "relu", "max_position_embeddings": 8}"#;

const GLOBALS: [(&str, &str); 8] = [
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "FloatStorage"),
    ("torch", "HalfStorage"),
    ("torch", "Size"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch", "float32"),
];

fn valid() -> &'static StateDict {
    static VALID: OnceLock<StateDict> = OnceLock::new();
    VALID.get_or_init(|| {
        let config = Config::from_hugging_face(CONFIG).expect("a good configuration");
        let (mut state_dict, mut seen) = (StateDict::default(), BTreeSet::new());
        for role in TensorId::all(&config).filter(|role| *role != TensorId::OutputBias) {
            let names = role.names(&config);
            if names.iter().any(|name| seen.contains(name)) {
                continue;
            }
            let shape = role.shape(&config).expect("a shape");
            let bytes = vec![0; 4 * shape.iter().product::<usize>()];
            state_dict.whole(&names[0], "F32", &shape, bytes);
            seen.extend(names);
        }
        state_dict
    })
}

fn change(bytes: &mut Vec<u8>, changes: &[Change]) {
    for &change in changes {
        let len = bytes.len().max(1);
        match change {
            Change::Set(at, byte) => {
                bytes.iter_mut().skip(at as usize % len).take(1).for_each(|b| *b = byte)
            }
            Change::Word(at, word) => {
                let place = bytes.iter_mut().skip(at as usize % len);
                place.zip(word.to_le_bytes()).for_each(|(b, new)| *b = new);
            }
            Change::Insert(at, byte) => bytes.insert(at as usize % len, byte),
            Change::Remove(at) if !bytes.is_empty() => drop(bytes.remove(at as usize % len)),
            Change::Remove(_) => (),
        }
    }
}

fn pickle(pickle: &Pickle<'_>, legacy: bool) -> Vec<u8> {
    let sizes = |sizes: &[i8]| -> Vec<i64> { sizes.iter().map(|&size| size.into()).collect() };
    match pickle {
        Pickle::Valid(changes) => {
            let mut bytes = valid().pickle(legacy);
            change(&mut bytes, changes);
            bytes
        }
        Pickle::Bytes(bytes) => bytes.to_vec(),
        Pickle::Instructions(instructions) => {
            let mut p = Pickler::default();
            for instruction in instructions {
                match instruction {
                    Instruction::Raw(byte) => p.raw(&[*byte]),
                    Instruction::Text(text) => p.text(text),
                    Instruction::Int(number) => p.int(*number),
                    Instruction::Sizes(list) => p.sizes(&sizes(list)),
                    Instruction::Global(which) => {
                        let (module, name) = GLOBALS[usize::from(*which) % GLOBALS.len()];
                        p.global(module, name)
                    }
                    Instruction::OtherGlobal(module, name) => p.global(module, name),
                    Instruction::Put => p.put(),
                    Instruction::Get(index) => p.raw(&[b'h', *index]),
                    Instruction::Storage(key, len) => {
                        p.raw(b"(").text("storage").global("torch", "FloatStorage");
                        p.text(&key.to_string()).text("cpu").int((*len).into()).raw(b"tQ")
                    }
                    Instruction::Tensor(offset, shape, strides) => {
                        p.int((*offset).into()).sizes(&sizes(shape)).sizes(&sizes(strides));
                        p.raw(b"\x89}t")
                    }
                };
            }
            p.raw(b".");
            p.bytes
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let config = Config::from_hugging_face(CONFIG).expect("a good configuration");
    let pickle = pickle(&input.pickle, input.legacy);
    let mut bytes = if input.legacy {
        Legacy { pickle, ..valid().legacy_head() }.bytes()
    } else {
        valid().archive(pickle).bytes()
    };
    change(&mut bytes, &input.changes);
    if let Some(keep) = input.keep {
        bytes.truncate(keep as usize);
    }
    if let Some(file) = input.file {
        bytes = file.to_vec();
    }
    let untouched = matches!(&input.pickle, Pickle::Valid(changes) if changes.is_empty())
        && input.changes.is_empty()
        && input.keep.is_none()
        && input.file.is_none();
    let checkpoint = match Checkpoint::from_bytes(config, bytes) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(!untouched, "a valid file: {error}");
            return;
        }
    };
    for name in checkpoint.names() {
        if let Ok(tensor) = checkpoint.named(name) {
            let _ = tensor.to_vec();
            let rows = tensor.shape().first().copied().unwrap_or(0);
            let _ = tensor.rows(rows / 2..rows).and_then(|rows| rows.to_vec());
        }
    }
    let _ = Model::load(&checkpoint, LoadOptions::from(Isa::SCALAR));
});
