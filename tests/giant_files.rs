//! Files and configurations that need more memory than there is are errors. An infallible allocation would
//! abort the process.
//!
//! The test starts itself again in a child process with a limited address space, so that the result does
//! not depend on the machine. The files are sparse: they take neither disk space nor memory.

use crate::random_model::Dims;
use crate::tiny_marian::Folder;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Dimensions, Family};
use simdformer::kernels::Isa;
use simdformer::task_heads::SentenceHead;
use simdformer::{Error, Model};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The name of this test in the harness.
const NAME: &str = "giant_files::giants_are_errors_and_the_process_lives";

/// Set in the child process.
const CHILD: &str = "SIMDFORMER_TEST_GIANTS";

/// Address space that the child process may use beyond what a case states.
const SPARE: u64 = 48 << 20;

/// A sparse safetensors file of zeros.
fn write_sparse(path: &Path, tensors: &[(String, Vec<u64>)]) {
    let mut end = 0;
    let entries = tensors.iter().map(|(name, shape)| {
        let begin = end;
        end += 4 * shape.iter().product::<u64>();
        format!(
            r#""{name}": {{"dtype": "F32", "shape": {shape:?}, "data_offsets": [{begin}, {end}]}}"#
        )
    });
    let header = format!("{{{}}}", entries.collect::<Vec<_>>().join(", "));
    let mut file = File::create(path).expect("a file");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("a length");
    file.write_all(header.as_bytes()).expect("a header");
    file.set_len(8 + header.len() as u64 + end).expect("holes");
}

/// The tensors of a model, with sizes of 64 bits.
fn tensors(dims: &Dims) -> Vec<(String, Vec<u64>)> {
    let wide = |(name, shape): (String, Vec<usize>)| {
        (name, shape.into_iter().map(|size| size as u64).collect())
    };
    dims.tensors().into_iter().map(wide).collect()
}

fn write_model(folder: &Path, dims: &Dims, tensors: &[(String, Vec<u64>)]) {
    fs::write(folder.join("config.json"), dims.json()).expect("config.json");
    write_sparse(&folder.join("model.safetensors"), tensors);
}

/// Limits the address space of this process to its present size and `more` bytes.
#[allow(unsafe_code, reason = "the limit is set by a system call")]
fn limit(more: u64) {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("VmSize");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    let wanted = libc::rlimit { rlim_cur: 1024 * kilobytes + more, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads one `rlimit`, which lives until it returns.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const wanted) };
    assert_eq!(set, 0, "the address space was not limited");
}

/// A tensor of a terabyte in a file of a few kilobytes.
fn a_giant_tensor() {
    let folder = Folder::new("giant-tensor");
    let dims = Dims::small(Family::Marian);
    let giant = ("giant".to_owned(), vec![1 << 38]);
    write_model(&folder.0, &dims, &[tensors(&dims), vec![giant]].concat());
    let checkpoint = Checkpoint::open(&folder.0).expect("a checkpoint");
    let giant = checkpoint.named("giant").expect("a tensor");
    limit(SPARE);
    let error = giant.to_vec().expect_err("a terabyte");
    assert!(!matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "giant: expected 1099511627776 bytes, which the system does not give"
    );
}

/// The weights fit in memory, but the rows that are read at a time do not.
fn giant_rows() {
    let folder = Folder::new("giant-rows");
    let dims = wide();
    write_model(&folder.0, &dims, &tensors(&dims));
    let checkpoint = Checkpoint::open(&folder.0).expect("a checkpoint");
    let needed = Model::requirements(&checkpoint, Isa::SCALAR).expect("known");
    limit(needed.model_bytes as u64 + SPARE);
    out_of_memory(Model::load(&checkpoint, Isa::SCALAR), Some(256 << 20));
}

/// A matrix of 256 MiB in the feed-forward block.
fn wide() -> Dims {
    Dims {
        d_model: 64,
        heads: [2, 2],
        layers: [1, 1],
        ffn: [1 << 20, 16],
        ..Dims::small(Family::Marian)
    }
}

fn out_of_memory(result: Result<Model, Error>, expected: Option<usize>) {
    match result.expect_err("no memory for it") {
        Error::OutOfMemory { bytes: Some(bytes), .. } => {
            assert!(expected.is_none_or(|expected| bytes == expected), "{bytes} bytes");
        }
        Error::OutOfMemory { bytes: None, .. } if expected.is_none() => {}
        error => panic!("{error}"),
    }
}

/// The weights fit in memory, but the tensor that is written at a time does not. Then the largest possible
/// sizes.
fn giants_from_a_function() {
    let folder = Folder::new("giant-function");
    let dims = wide();
    write_model(&folder.0, &dims, &tensors(&dims));
    let checkpoint = Checkpoint::open(&folder.0).expect("a checkpoint");
    let needed = Model::requirements(&checkpoint, Isa::SCALAR).expect("known");
    limit(needed.model_bytes as u64 + SPARE);
    let fill = |_: _,
                _: &[usize],
                _: &mut [f32]|
     -> Result<(), Box<dyn std::error::Error + Send + Sync>> { Ok(()) };
    out_of_memory(Model::from_fn_with(dims.config(), Isa::SCALAR, fill), Some(256 << 20));
    for size in [1 << 16, 1 << 20, 1 << 24] {
        let giant =
            Dimensions { d_model: size, heads: 1, layers: 4096, ffn_dim: size, vocabulary: size };
        out_of_memory(Model::from_fn_with(Config::transformer(giant), Isa::SCALAR, fill), None);
    }
}

/// A header of the largest size allowed, in a sparse file.
fn a_giant_header() {
    let folder = Folder::new("giant-header");
    fs::write(folder.0.join("config.json"), Dims::small(Family::Marian).json()).expect("config");
    let mut file = File::create(folder.0.join("model.safetensors")).expect("a file");
    let length: u64 = 100_000_000;
    file.write_all(&length.to_le_bytes()).expect("a length");
    file.set_len(1 << 40).expect("holes");
    limit(SPARE);
    let error = Checkpoint::open(&folder.0).expect_err("holes");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// The matrix of a module after the Transformer.
fn a_giant_module() {
    let folder = Folder::new("giant-module");
    let module = |kind: &str, path: &str| {
        format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#)
    };
    let modules = format!("[{}, {}]", module("Pooling", "1_Pooling"), module("Dense", "2_Dense"));
    fs::write(folder.0.join("modules.json"), modules).expect("modules.json");
    for inner in ["1_Pooling", "2_Dense"] {
        fs::create_dir_all(folder.0.join(inner)).expect("a folder");
    }
    let pooling = r#"{"word_embedding_dimension": 3, "pooling_mode_mean_tokens": true}"#;
    fs::write(folder.0.join("1_Pooling/config.json"), pooling).expect("config.json");
    let dense = r#"{"in_features": 3, "out_features": 3, "bias": false,
        "activation_function": "torch.nn.modules.activation.Tanh"}"#;
    fs::write(folder.0.join("2_Dense/config.json"), dense).expect("config.json");
    let file = folder.0.join("2_Dense/model.safetensors");
    limit(SPARE);
    for (shape, words) in [
        (
            vec![1 << 38, 1],
            "linear.weight: expected 1099511627776 bytes, which the system does not give",
        ),
        // No columns at all, and a bias with an element for each row.
        (vec![1 << 50, 0], "linear.weight"),
    ] {
        write_sparse(&file, &[("linear.weight".to_owned(), shape)]);
        let error = SentenceHead::open(&folder.0, 3).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn giants_are_errors_and_the_process_lives() {
    let cases: [(&str, fn()); 5] = [
        ("tensor", a_giant_tensor),
        ("rows", giant_rows),
        ("function", giants_from_a_function),
        ("header", a_giant_header),
        ("module", a_giant_module),
    ];
    if let Ok(child) = std::env::var(CHILD) {
        let (_, case) = cases.iter().find(|(name, _)| *name == child).expect("a case");
        return case();
    }
    // An emulator does not limit the address space of the emulated program.
    if std::env::var_os("SIMDFORMER_TEST_RUNNER").is_some() {
        return;
    }
    for (name, _) in cases {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args([NAME, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, name);
        let output = child.output().expect("a child process");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}: {said}", output.status);
        // A name that matches no test would also succeed.
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 passed"), "{name}: {said}");
    }
}
