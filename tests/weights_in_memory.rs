//! Weights without files: written by a function, or borrowed from named tensors of the caller. The model is
//! the one that a checkpoint of the same values gives, bit for bit.

use crate::random_model::{Dims, Random, decoding};
use crate::tiny_marian::{MARIAN, floats, marian_tensors};
use safetensors::SafeTensors;
use simdformer::checkpoint::{Checkpoint, Dtype, ParamKind, TensorId};
use simdformer::config::{
    Biases, Config, Dimensions, NormPlacement, Positions, Side, SpecialTokens, Stack, TiedWeights,
};
use simdformer::kernels::Isa;
use simdformer::{Error, Limits, Model, Session, StepRow, Storage};
use std::collections::HashSet;
use std::path::Path;

/// The bits of the logits after `target`, fed token by token.
fn logits(model: &Model, source: &[u32], target: &[u32]) -> Vec<u32> {
    let mut session = Session::new(model, Limits::new(1, 16, 16)).expect("a session");
    let mut sentence = [Default::default()];
    session.encode(&[source], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("started");
    let mut bits = Vec::new();
    for &token in target {
        let logits = session.step(&[StepRow::new(row, token)]).expect("a step");
        bits.extend(logits.iter().map(|x| x.to_bits()));
    }
    bits
}

fn same(a: &Model, b: &Model, what: &str) {
    let vocabulary = a.config().source_vocab.min(a.config().target_vocab);
    let (source, target) = (Random(7).ids(9, vocabulary), Random(8).ids(5, vocabulary));
    assert_eq!(a.bytes(), b.bytes(), "{what}");
    let text = |model: &Model| model.parameters().map(|p| format!("{p}\n")).collect::<String>();
    assert_eq!(text(a), text(b), "{what}");
    assert_eq!(logits(a, &source, &target), logits(b, &source, &target), "{what}");
}

/// A checkpoint of every family, and checkpoints with other ties.
fn checkpoints() -> Vec<(String, Checkpoint<'static>)> {
    let families = decoding()
        .map(|family| (family.model_type().to_owned(), Dims::small(family).checkpoint(3)));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let opened = ["marian_untied", "marian_odd", "nn_transformer_pre"]
        .map(|name| (name.to_owned(), Checkpoint::open(golden.join(name)).expect("a golden")));
    families.chain(opened).collect()
}

#[test]
fn weights_written_by_a_function_are_those_of_a_checkpoint() {
    for (name, checkpoint) in checkpoints() {
        for isa in Isa::available() {
            let mut asked = Vec::new();
            let config = checkpoint.config().clone();
            let model = Model::from_fn_with(config.clone(), isa, |role, shape, out| {
                assert_eq!(Some(shape.to_vec()), role.shape(&config), "{role}");
                assert!(out.iter().all(|x| x.to_bits() == 0), "{role}: not zeros");
                asked.push(role);
                if let Some(tensor) = checkpoint.optional(role)? {
                    tensor.read_into(out)?;
                }
                Ok(())
            });
            let model = model.expect("a model");
            assert_eq!((model.isa(), model.config()), (isa, &config));
            same(
                &model,
                &Model::load(&checkpoint, isa).expect("a model"),
                &format!("{name} {isa}"),
            );
            // Once each, in the order of use, except tied matrices.
            let TiedWeights { source_target, target_output } = config.ties;
            let tied = |role: &TensorId| match role {
                TensorId::TargetEmbedding => source_target,
                TensorId::Output => target_output,
                _ => false,
            };
            let wanted: Vec<TensorId> = TensorId::all(&config).filter(|role| !tied(role)).collect();
            assert_eq!(asked, wanted, "{name} {isa}");
        }
    }
}

#[test]
fn a_function_that_fails_or_writes_nan_is_an_error() {
    let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 12, vocabulary: 20 };
    let config = Config::transformer(small);
    let error = Model::from_fn(config.clone(), |role, _, _| match role {
        TensorId::FinalNorm(..) => Err("never asked".into()),
        TensorId::Layer(Side::Decoder, ..) => {
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the disk sleeps").into())
        }
        _ => Ok(()),
    });
    let error = error.expect_err("an error");
    assert_eq!(
        error.to_string(),
        "the weights of decoder.layers.0.self_attention.query.weight: the disk sleeps"
    );
    let Error::Caller { error: Some(error), .. } = error else { panic!("{error}") };
    assert!(error.downcast_ref::<std::io::Error>().is_some());

    let with = |wanted: TensorId, index: usize, number: f32| {
        Model::from_fn(config.clone(), |role, _, out| {
            if role == wanted {
                out[index] = number;
            }
            Ok(())
        })
    };
    for role in TensorId::all(&config) {
        let outcome = with(role, 5, f32::NAN);
        if [TensorId::TargetEmbedding, TensorId::Output].contains(&role) {
            assert!(outcome.is_ok(), "{role} is asked for");
            continue;
        }
        let error = outcome.expect_err("an error").to_string();
        assert_eq!(
            error,
            format!("the weights of {role}, element 5: expected a finite number, found NaN")
        );
    }
    assert!(with(TensorId::OutputBias, 3, f32::NEG_INFINITY).is_ok());
    assert!(with(TensorId::OutputBias, 3, f32::INFINITY).is_err());
    assert!(with(TensorId::SourceEmbedding, 3, f32::NEG_INFINITY).is_err());

    let wrong = Config { d_model: 9, ..config };
    let error = Model::from_fn(wrong, |_, _, _| Ok(())).expect_err("9 is no multiple of 2");
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
}

/// Every option of a configuration. No family has all of them.
fn everything() -> Config {
    let small = Dimensions { d_model: 12, heads: 3, layers: 2, ffn_dim: 20, vocabulary: 30 };
    let paper = Config::transformer(small);
    let stack = Stack {
        embedding_norm: Some(NormPlacement::Post),
        final_norm: true,
        max_positions: Some(16),
        ..paper.encoder
    };
    let before = Some(NormPlacement::Pre);
    Config {
        encoder: Stack { head_dim: Some(5), ..stack },
        decoder: Some(Stack {
            layers: 1,
            heads: 4,
            embedding_norm: before,
            max_positions: Some(19),
            ..stack
        }),
        biases: Biases { key: false, ..Biases::ALL },
        attention_scale: Some(0.25),
        logit_scale: 0.5,
        token_types: 3,
        positions: Positions::Learned { offset: 3 },
        target_vocab: 25,
        ties: TiedWeights { source_target: false, target_output: false },
        tokens: SpecialTokens { decoder_start: Some(1), eos: vec![2], ..SpecialTokens::default() },
        ..paper
    }
}

#[test]
fn plain_names_are_enough_for_every_architecture() {
    let config = everything();
    config.validate().expect("a configuration");
    let mut random = Random(5);
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = TensorId::all(&config)
        .map(|role| {
            let shape = role.shape(&config).expect("a shape");
            let len = shape.iter().product();
            let numbers = (0..len).flat_map(|_| random.symmetric().to_le_bytes()).collect();
            assert_eq!(role.names(&config), [role.to_string()]);
            (role.to_string(), shape, numbers)
        })
        .collect();
    let names: HashSet<&str> = tensors.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names.len(), tensors.len(), "two roles have one name");
    let find = |name: &str| {
        let (_, shape, data) = tensors.iter().find(|(known, ..)| known == name)?;
        Some((Dtype::F32, shape.clone(), &data[..]))
    };
    let checkpoint = Checkpoint::from_tensors(config.clone(), find).expect("a checkpoint");
    assert_eq!(checkpoint.names().collect::<HashSet<_>>(), names);
    let loaded = Model::load(&checkpoint, Isa::best()).expect("a model");
    let written = Model::from_fn_with(config, Isa::best(), |role, _, out| {
        Ok(checkpoint.tensor(role)?.read_into(out)?)
    });
    same(&loaded, &written.expect("a model"), "plain");
    assert!(
        loaded.parameters().all(|parameter| !matches!(parameter.storage(), Storage::SharedWith(_)))
    );
}

#[test]
fn borrowed_tensors_give_the_bits_of_the_file() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for name in [
        "marian_odd",
        "marian_untied",
        "nn_transformer_post",
        "nn_transformer_pre",
        "search/bart_a",
        "search/m2m_a",
    ] {
        let file = std::fs::read(golden.join(name).join("model.safetensors")).expect("a file");
        let config = std::fs::read_to_string(golden.join(name).join("config.json"));
        let config = Config::from_hugging_face(&config.expect("a file")).expect("a configuration");
        let opened = Checkpoint::open(golden.join(name)).expect("a golden");
        // Any alignment is allowed.
        for shift in 0..4 {
            let moved = [&vec![0; shift][..], &file].concat();
            let tensors = SafeTensors::deserialize(&moved[shift..]).expect("safetensors");
            let find = |name: &str| {
                let tensor = tensors.tensor(name).ok()?;
                let dtype = Dtype::from_name(&tensor.dtype().to_string())?;
                Some((dtype, tensor.shape().to_vec(), tensor.data()))
            };
            let borrowed = Checkpoint::from_tensors(config.clone(), find).expect("a checkpoint");
            assert!(borrowed.names().eq(opened.names()), "{name}");
            assert_eq!(borrowed.config().ties, opened.config().ties, "{name}");
            let model = Model::load(&borrowed, Isa::best()).expect("a model");
            same(&model, &Model::load(&opened, Isa::best()).expect("a model"), name);
        }
    }
}

/// Changes a tensor, or returns false for none.
type Change<'c> = &'c dyn Fn(&mut (Dtype, Vec<usize>, &[u8])) -> bool;

#[test]
fn borrowed_tensors_that_do_not_fit_are_errors() {
    let tensors = marian_tensors();
    let config = || Config::from_hugging_face(MARIAN).expect("a configuration");
    const SHARED: &str = "model.shared.weight";
    let open = |name: &'static str, change: Change<'_>| {
        let find = |wanted: &str| {
            let (_, shape, data) = tensors.get(wanted)?;
            let mut tensor = (Dtype::F32, shape.clone(), &data[..]);
            (wanted != name || change(&mut tensor)).then_some(tensor)
        };
        Checkpoint::from_tensors(config(), find).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = |name, change: Change<'_>, words: &str| {
        let error = open(name, change).expect_err("an error");
        assert_eq!(error, words);
    };
    assert_eq!(open("", &|_| true), Ok(()));
    const BIAS: &str = "model.encoder.layers.0.fc1.bias";
    refused(
        BIAS,
        &|_| false,
        "the tensor of encoder.layers.0.feed_forward.inner.bias: expected model.encoder.layers.0.fc1.bias, found none; the nearest names are model.encoder.layers.0.fc1.weight",
    );
    refused(
        BIAS,
        &|tensor| {
            tensor.2 = &tensor.2[1..];
            true
        },
        "memory: model.encoder.layers.0.fc1.bias: expected 12 bytes for its shape and type, found 11",
    );
    refused(
        BIAS,
        &|tensor| {
            tensor.0 = Dtype::Bf16;
            true
        },
        "memory: model.encoder.layers.0.fc1.bias: expected 6 bytes for its shape and type, found 12",
    );
    refused(
        SHARED,
        &|tensor| {
            tensor.1 = vec![4, 5];
            true
        },
        "model.shared.weight: expected shape [5, 4], found [4, 5]",
    );
    refused(
        SHARED,
        &|tensor| {
            tensor.1 = vec![usize::MAX, 4];
            true
        },
        &format!(
            "memory: model.shared.weight: expected a size that fits the address space, found shape [{}, 4], whose size overflows",
            usize::MAX
        ),
    );
    // One layer more than the configuration has, of which only one tensor is present.
    let more = floats(&[3], 0);
    let find = |name: &str| {
        let (_, shape, data) = match name {
            "model.decoder.layers.1.fc1.bias" => &more,
            _ => tensors.get(name)?,
        };
        Some((Dtype::F32, shape.clone(), &data[..]))
    };
    let error = Checkpoint::from_tensors(config(), find).expect_err("a layer more");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let wrong = Config { d_model: 0, ..config() };
    let error = Checkpoint::from_tensors(wrong, find).expect_err("no width").to_string();
    assert_eq!(error, "memory: d_model: expected at least 1, found 0");
}

#[test]
fn every_tensor_id_has_its_own_name_and_position() {
    let config = everything();
    let first = |names: Vec<String>| names.into_iter().next();
    let hub = Config::from_hugging_face(r#"{"model_type": "mbart"}"#).expect("a configuration");
    let norm = TensorId::FinalNorm(Side::Decoder, ParamKind::Bias);
    assert_eq!(first(norm.names(&hub)).as_deref(), Some("model.decoder.layer_norm.bias"));
    assert_eq!(norm.to_string(), "decoder.final_norm.bias");
    assert_eq!(TensorId::Positions(Side::Encoder).to_string(), "encoder.positions.weight");
    assert_eq!(TensorId::Positions(Side::Encoder).shape(&config), Some(vec![19, 12]));
    // A tied matrix may have any of these names.
    let shared = ["model.decoder.embed_tokens.weight", "model.shared.weight", "lm_head.weight"];
    assert_eq!(TensorId::TargetEmbedding.names(&hub)[..3], shared);
    let untied = r#"{"model_type": "mbart", "tie_word_embeddings": false}"#;
    let untied = Config::from_hugging_face(untied).expect("a configuration");
    assert_eq!(TensorId::Output.names(&untied), ["lm_head.weight"]);
    assert!(!TensorId::TargetEmbedding.names(&untied).contains(&"lm_head.weight".to_owned()));
}
