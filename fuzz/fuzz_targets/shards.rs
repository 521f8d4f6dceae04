//! A valid checkpoint in two files with an index, and changes of the index, the headers and the bytes. The
//! result must be an `Err`, or a model that takes the memory that was computed before. Everything else is a
//! bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Config;
use simdformer::kernels::Isa;
use simdformer::{LoadOptions, Model};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The changes.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    headers: Vec<(u8, Change<'a>)>,
    /// Files in which the index places tensors.
    placed: Vec<(u8, Name<'a>)>,
    /// Bytes that are added after the tensors of each file, or cut from them.
    more: [i8; 2],
    /// In place of the index.
    index: Option<&'a str>,
    /// In place of the first header.
    header: Option<&'a str>,
    /// In place of the second file.
    file: Option<&'a [u8]>,
    /// All tensors in one file of this name.
    single: Option<Name<'a>>,
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Change<'a> {
    Remove,
    Twice,
    Rename(&'a str),
    Dtype(u8),
    OtherDtype(&'a str),
    Shape(Vec<u64>),
    Begin(u64),
    End(u64),
    Shift(i8),
    Elsewhere,
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Name<'a> {
    First,
    Second,
    Usual,
    Index,
    UnsupportedFormat(u8),
    Text(&'a str),
}

const CONFIG: &str = r#"{"model_type": "marian", "d_model": 4, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 4,
    "decoder_ffn_dim": 4, "vocab_size": 6, "pad_token_id": 5, "eos_token_id": 0,
    "decoder_start_token_id": 5, "activation_function": "relu", "max_position_embeddings": 8}"#;

const DTYPES: [&str; 9] = ["F32", "F16", "BF16", "F64", "I64", "U8", "F8_E4M3", "BOOL", "F4"];

const FOREIGN: [&str; 8] = [
    "pytorch_model.bin",
    "model.gguf",
    "model.onnx",
    "model.bin",
    "consolidated.safetensors",
    "model.fp16.safetensors",
    "model-00001-of-00002.safetensors",
    "adapter_config.json",
];

const INDEX: &str = "model.safetensors.index.json";

fn name<'a>(name: &Name<'a>) -> &'a str {
    match name {
        Name::First => "a.safetensors",
        Name::Second => "b.safetensors",
        Name::Usual => "model.safetensors",
        Name::Index => INDEX,
        Name::UnsupportedFormat(n) => FOREIGN[usize::from(*n) % FOREIGN.len()],
        Name::Text(text) => text,
    }
}

/// A tensor of a header.
#[derive(Clone)]
struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    offsets: [u64; 2],
    second: bool,
}

/// The tensors of the valid checkpoint, and the bytes of each file.
fn good(config: &Config) -> (Vec<Tensor>, [u64; 2]) {
    let (mut tensors, mut ends, mut seen) = (Vec::new(), [0; 2], BTreeSet::new());
    for role in TensorId::all(config).filter(|role| *role != TensorId::OutputBias) {
        let names = role.names(config);
        if names.iter().any(|name| seen.contains(name)) {
            continue;
        }
        let second = tensors.len() % 3 == 1;
        let shape = role.shape(config).expect("a shape");
        let shape: Vec<u64> = shape.into_iter().map(|size| size as u64).collect();
        let begin = ends[usize::from(second)];
        let end = begin + 4 * shape.iter().product::<u64>();
        ends[usize::from(second)] = end;
        let (name, dtype, offsets) = (names[0].clone(), "F32".to_owned(), [begin, end]);
        seen.extend(names);
        tensors.push(Tensor { name, dtype, shape, offsets, second });
    }
    (tensors, ends)
}

/// A directory of this process, in memory if the system has such a file system.
fn place() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let place = root.join(format!("simdformer-shards-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        place
    })
}

/// Text in quotes.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

fuzz_target!(|input: Input<'_>| {
    let config = Config::from_hugging_face(CONFIG).expect("a good configuration");
    let (mut tensors, ends) = good(&config);
    let untouched = input.headers.is_empty()
        && input.placed.is_empty()
        && input.more == [0; 2]
        && input.index.is_none()
        && input.header.is_none()
        && input.file.is_none()
        && input.single.is_none();
    let placed: Vec<(String, bool)> = tensors.iter().map(|t| (t.name.clone(), t.second)).collect();
    for (which, change) in &input.headers {
        let count = tensors.len();
        let at = usize::from(*which) % count;
        let tensor = &mut tensors[at];
        match change {
            Change::Remove if count > 1 => drop(tensors.remove(at)),
            Change::Remove => (),
            Change::Twice => {
                let tensor = tensor.clone();
                tensors.push(tensor);
            }
            Change::Rename(text) => tensor.name = (*text).to_owned(),
            Change::Dtype(n) => tensor.dtype = DTYPES[usize::from(*n) % DTYPES.len()].to_owned(),
            Change::OtherDtype(text) => tensor.dtype = (*text).to_owned(),
            Change::Shape(shape) => tensor.shape = shape.clone(),
            Change::Begin(begin) => tensor.offsets[0] = *begin,
            Change::End(end) => tensor.offsets[1] = *end,
            Change::Shift(by) => {
                tensor.offsets =
                    tensor.offsets.map(|offset| offset.wrapping_add_signed(i64::from(*by)));
            }
            Change::Elsewhere => tensor.second = !tensor.second,
        }
    }
    let place = place();
    for entry in fs::read_dir(place).expect("the directory").flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let write = |name: &str, bytes: &[u8]| {
        // Names that are not file names here are not written.
        if !name.is_empty() && !name.contains(['/', '\0']) {
            let _ = fs::write(place.join(name), bytes);
        }
    };
    for (second, name) in [(false, "a.safetensors"), (true, "b.safetensors")] {
        let own = tensors.iter().filter(|tensor| tensor.second == second);
        let own: Vec<String> = own
            .map(|t| {
                let (name, dtype) = (quoted(&t.name), quoted(&t.dtype));
                format!(
                    "{name}: {{\"dtype\": {dtype}, \"shape\": {:?}, \"data_offsets\": {:?}}}",
                    t.shape, t.offsets
                )
            })
            .collect();
        let header = format!("{{{}}}", own.join(", "));
        let header = if second { header.as_str() } else { input.header.unwrap_or(&header) };
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        let data = ends[usize::from(second)] as i64 + i64::from(input.more[usize::from(second)]);
        bytes.resize(bytes.len() + data.max(0) as usize, 0);
        let bytes = if second { input.file.unwrap_or(&bytes) } else { &bytes };
        write(name, bytes);
        if !second && let Some(single) = &input.single {
            write(self::name(single), bytes);
        }
    }
    write("config.json", CONFIG.as_bytes());
    let entry = |(i, (tensor, second)): (usize, &(String, bool))| {
        let moved = input.placed.iter().find(|(which, _)| usize::from(*which) % placed.len() == i);
        let file = match moved {
            Some((_, other)) => name(other),
            None if *second => "b.safetensors",
            None => "a.safetensors",
        };
        format!("{}: {}", quoted(tensor), quoted(file))
    };
    let entries: Vec<String> = placed.iter().enumerate().map(entry).collect();
    let index = format!("{{\"weight_map\": {{{}}}}}", entries.join(", "));
    if input.single.is_none() {
        write(INDEX, input.index.unwrap_or(&index).as_bytes());
    }
    let checkpoint = match Checkpoint::open(place) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(!untouched, "{error}");
            let said = error.to_string();
            assert!(!said.is_empty() && said.len() < 1 << 14, "{said}");
            return;
        }
    };
    let _ = checkpoint.unused();
    for name in checkpoint.names() {
        if let Ok(tensor) = checkpoint.named(name) {
            let _ = tensor.to_vec().expect("it is there");
        }
    }
    let needed = Model::requirements(&checkpoint, Isa::SCALAR).expect("a small model");
    let mut last = (0, 0);
    let model = Model::load(
        &checkpoint,
        LoadOptions::from(Isa::SCALAR).on_progress(|loading| last = (loading.done, loading.total)),
    );
    // All weights are zero except bytes of the fuzzer, which may be NaN.
    match model {
        Ok(model) => {
            assert_eq!(model.bytes(), needed.model_bytes);
            assert_eq!(last.0, last.1);
        }
        Err(error) => assert!(input.file.is_some(), "{error}"),
    }
});
