//! Errors do not repeat themselves. The texts along `source`, joined by colons as `anyhow` prints them, are
//! one sentence without repetitions, and `Display` of the error alone is complete as well.

use crate::random_model::{Dims, decoding};
use crate::tiny_marian::Folder;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::{Config, Dimensions, Family};
use simdformer::kernels::{Expected, Isa};
use simdformer::{KernelError, Limits, Model, Session};
use std::error::Error;

/// The texts along `source`, as `format!("{:#}", anyhow::Error::from(error))` joins them.
fn walk(error: &dyn Error) -> Vec<String> {
    let mut said = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        said.push(cause.to_string());
        next = cause.source();
    }
    said
}

/// The chain is `whole`: one sentence without repetitions, and the first text says what the error is about.
fn reads(error: &dyn Error, whole: &str) {
    let said = walk(error);
    assert_eq!(said.join(": "), whole);
    for (i, piece) in said.iter().enumerate() {
        for (j, other) in said.iter().enumerate() {
            assert!(i == j || !piece.contains(other.as_str()), "{said:?}: {other:?} comes twice");
        }
        assert!(!piece.is_empty() && piece.trim() == piece && !piece.contains('\n'), "{said:?}");
        assert!(!piece.ends_with([':', ';', ',', '.']), "{said:?}");
    }
}

#[test]
fn a_cause_appears_once() {
    let folder = Folder::new("chain");
    folder.put("config.json", r#"{"model_type": "marian", "d_model": 7}"#);
    let error = Model::open(&folder.0).expect_err("7 is no multiple of 16");
    let file = folder.0.join("config.json");
    reads(
        &error,
        &format!(
            "{}: d_model: expected a multiple of the 16 encoder heads, found 7",
            file.display()
        ),
    );
    // The message of the operating system also appears once, in the first text.
    let missing = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let unreadable = simdformer::Error::Io {
        action: "read",
        path: "model.safetensors".into(),
        error: std::io::Error::from(std::io::ErrorKind::PermissionDenied).into(),
    };
    reads(&unreadable, &format!("model.safetensors: cannot be read: {missing}"));

    let isa = Isa::from_name("mmx").expect_err("no such set");
    let KernelError::UnsupportedIsa { expected, .. } = isa else { panic!("{isa}") };
    let error = simdformer::Error::from(isa);
    reads(&error, &format!("SIMDFORMER_ISA: expected one of {expected:?}, found \"mmx\""));
    let gemm = KernelError::Size {
        property: "length",
        operand: "bias",
        index: None,
        expected: Expected::Exactly(3),
        found: 2,
    };
    reads(&gemm, "length of bias: expected 3, found 2");
    let error = simdformer::Error::Kernel(gemm);
    reads(&error, "a kernel rejected its operands: length of bias: expected 3, found 2");
    let error = simdformer::Error::processor("no dictionary").with_index(2);
    reads(&error, "source 2: logits processor: no dictionary");
    let (operand, bytes) = ("the planned memory".into(), Some(9));
    let error = simdformer::Error::OutOfMemory { operand, bytes };
    reads(&error, "the planned memory: expected 9 bytes, which the system does not give");
}

#[derive(Debug)]
struct Outer(std::io::Error);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no weights from the store")
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// A cause that an error of the caller shows only by `source` appears in the chain.
#[test]
fn causes_of_the_caller_appear_in_the_chain() {
    let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 12, vocabulary: 20 };
    let error = Model::from_fn(Config::transformer(small), |_, _, _| {
        Err(Outer(std::io::Error::other("the disk sleeps")).into())
    });
    reads(
        &error.expect_err("an error"),
        "the weights of encoder.embedding.weight: no weights from the store: the disk sleeps",
    );
}

#[test]
fn errors_of_a_whole_run_read_as_one_sentence() {
    let dims = Dims::small(Family::Marian);
    let model = Model::load(&dims.checkpoint(1), Isa::best()).expect("a model");
    let mut errors: Vec<Box<dyn Error>> = vec![
        Box::new(Session::new(&model, Limits::new(0, 4, 4)).expect_err("no sentences")),
        Box::new(Session::new(&model, Limits::new(1, 4, 4000)).expect_err("positions")),
        Box::new(Checkpoint::open("no such place").expect_err("no directory")),
        Box::new(Checkpoint::from_bytes(dims.config(), vec![0; 3]).expect_err("3 bytes")),
        Box::new(Config::from_hugging_face("{").expect_err("half an object")),
    ];
    let checkpoint = dims.checkpoint(1);
    let none = checkpoint.tensor(TensorId::Positions(simdformer::config::Side::Encoder));
    errors.push(Box::new(none.expect_err("a formula")));
    let mut session = Session::new(&model, Limits::new(1, 4, 4)).expect("a session");
    let options = model.config().search_options();
    let sources = [simdformer::Source::new(&[5, 999])];
    let refused = session.generate(&sources, &options, &mut Default::default(), &mut |_| ());
    errors.push(Box::new(refused.expect_err("no such token")));
    for error in &errors {
        reads(error.as_ref(), &error.to_string());
    }
}

/// No error about a missing tensor is an incomplete sentence, whatever the configuration requests.
#[test]
fn every_error_about_a_missing_tensor_is_complete() {
    for family in decoding() {
        let dims = Dims::small(family);
        let checkpoint = dims.checkpoint(1);
        let error = checkpoint.named("nothing like any other").expect_err("no such tensor");
        assert_eq!(
            error.to_string(),
            "the checkpoint: expected a tensor of this name, found no tensor nothing like any other"
        );
        if checkpoint.optional(TensorId::OutputBias).expect("readable").is_none() {
            let error = checkpoint.tensor(TensorId::OutputBias).expect_err("no bias");
            assert_eq!(
                error.to_string(),
                "the tensor of output.bias: expected a family whose checkpoints have one, found one whose checkpoints have none"
            );
        }
        let mut config = dims.config();
        config.encoder.final_norm = true;
        if let Err(error) = Checkpoint::from_bytes(config, dims.bytes(1)) {
            let words = error.to_string();
            assert!(!words.ends_with("expected ") && !words.contains("expected ;"), "{words}");
            let expected = matches!(family, Family::Marian | Family::Fsmt);
            let refused = matches!(error, simdformer::Error::Unsupported { .. });
            assert_eq!(refused, expected, "{words}");
        }
    }
}
