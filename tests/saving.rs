//! Configurations and models that are written, and read again.

use crate::random_model::{Dims, Random, families};
use crate::tiny_marian::Folder;
use simdformer::checkpoint::{Checkpoint, Dtype, TensorId};
use simdformer::config::*;
use simdformer::{Error, Model, Quantization, WeightDtypes};
use std::fs;
use std::path::{Path, PathBuf};

/// The configuration without what only tells how its file was read.
fn bare(config: &Config) -> Config {
    Config { defaults: Vec::new(), unsupported: Vec::new(), ..config.clone() }
}

fn is_read_as_written(config: &Config, what: &str) {
    let text = config.to_json().unwrap_or_else(|error| panic!("{what}: {error}"));
    let read = Config::from_hugging_face(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
    // The ties of the families of T5 follow from the tensors.
    let ties = match config.family {
        Family::T5 | Family::Mt5 | Family::Umt5 => config.ties,
        _ => read.ties,
    };
    assert_eq!(bare(&Config { ties, ..read }), bare(config), "{what}: {text}");
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.ends_with("config.json") && !path.with_file_name("model.bin").exists() {
            found.push(path);
        }
    }
}

#[test]
fn every_configuration_is_read_as_it_was_written() {
    for family in families() {
        let dims = Dims::small(family);
        is_read_as_written(&dims.config(), family.model_type());
        let text = format!(
            r#"{{"model_type": "{}", "decoder_start_token_id": 2, "pad_token_id": 3, "num_beams": 4,
            "forced_bos_token_id": 5, "early_stopping": "never", "length_penalty": 0.6, "top_p": 0.9,
            "max_length": 99, "bad_words_ids": [[7], [8, 9]], "suppress_tokens": [5],
            "begin_suppress_tokens": [1, 2], "exponential_decay_length_penalty": [3, 1.5],
            "sequence_bias": [[[4, 5], -2.5]], "nhead": 2, "d_model": 96, "dim_feedforward": 12,
            "num_encoder_layers": 3, "num_decoder_layers": 3, "src_vocab_size": 50,
            "tgt_vocab_size": 60, "encoder_no_repeat_ngram_size": 0, "lang_to_id": {{"<|fr|>": 11}},
            "forced_decoder_ids": [[1, null], [2, 6]], "language": "fr"}}"#,
            family.model_type()
        );
        let config = Config::from_hugging_face(&text).expect("a configuration");
        is_read_as_written(&config, family.model_type());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    ["tests/golden", "models"].iter().for_each(|folder| files(&root.join(folder), &mut found));
    assert!(found.len() > 20, "{} files", found.len());
    for file in found {
        let text = fs::read_to_string(&file).expect("text");
        let what = file.display().to_string();
        is_read_as_written(&Config::from_hugging_face(&text).expect(&what), &what);
        // With the generation settings, and with the ties of the tensors.
        if let Ok(checkpoint) = Checkpoint::open(file.parent().expect("a folder")) {
            is_read_as_written(checkpoint.config(), &what);
        }
    }
}

#[test]
fn architectures_of_code_are_read_as_they_were_written() {
    let small = Dimensions { d_model: 24, heads: 3, layers: 2, ffn_dim: 20, vocabulary: 90 };
    let paper = Config::transformer(small);
    let encoder = Stack {
        embedding_norm: Some(NormPlacement::Pre),
        max_positions: Some(33),
        head_dim: Some(5),
        relative_bias: Some(RelativeBias { buckets: 8, max_distance: 20, per_layer: true }),
        ..paper.encoder
    };
    let tokens = SpecialTokens { eos: vec![2, 3], decoder_start: Some(1), ..paper.tokens.clone() };
    let all = Config {
        encoder,
        decoder: Some(Stack { final_norm: true, max_positions: Some(44), ..paper.encoder }),
        norm: NormPlacement::Pre,
        norm_kind: NormKind::LayerNorm { bias: false },
        layer_norm_eps: 3e-7,
        biases: Biases { key: false, ..Biases::ALL },
        activation: Activation::GeluTanh,
        gated: true,
        attention_scale: Some(0.3),
        positions: Positions::Learned { offset: 2 },
        token_types: 3,
        embedding_scale: 1.7,
        logit_scale: 0.1,
        ties: TiedWeights { source_target: false, target_output: true },
        tokens,
        ..paper.clone()
    };
    is_read_as_written(&paper, "the paper's");
    is_read_as_written(&all, "all options");
    let bins = Some(7);
    let hears = Config { bins, source_vocab: 0, token_types: 0, ..all.clone() };
    is_read_as_written(&hears, "features");
    is_read_as_written(&Config { decoder: None, ..all.clone() }, "an encoder");
    // A family whose file cannot say this.
    let error = Config { family: Family::Bart, ..all }.to_json().expect_err("no BART");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = Config { family: Family::Marian, norm: NormPlacement::Pre, ..paper };
    let error = error.to_json().expect_err("no Marian").to_string();
    assert!(error.ends_with("found marian: no marian checkpoint has it"), "{error}");
}

/// The packed weights, which have every bit of a model.
fn packed(model: &Model, folder: &Folder) -> Vec<u8> {
    let file = folder.0.join("packed");
    model.save_packed(&file).expect("saved");
    fs::read(file).expect("read")
}

#[test]
fn a_saved_model_has_the_same_bits() {
    for (number, family) in families().enumerate() {
        let folder = Folder::new(&format!("saved-{number}"));
        let checkpoint = Dims::small(family).checkpoint(3);
        for dtypes in [WeightDtypes::as_stored(), "f16".parse().expect("a dtype")] {
            let model = Model::load(&checkpoint, dtypes.clone()).expect("a model");
            let saved = folder.0.join("a/new/folder");
            model.save(&saved).unwrap_or_else(|error| panic!("{family:?}: {error}"));
            let again = Model::open_with(&saved, dtypes).expect("saved");
            assert_eq!(packed(&again, &folder), packed(&model, &folder), "{family:?}");
            assert_eq!(bare(again.config()), bare(model.config()), "{family:?}");
            assert!(Checkpoint::open(&saved).expect("saved").unused().is_empty(), "{family:?}");
        }
    }
}

#[test]
fn a_model_made_by_hand_is_saved() {
    let folder = Folder::new("by-hand");
    let small = Dimensions { d_model: 24, heads: 3, layers: 2, ffn_dim: 20, vocabulary: 90 };
    let paper = Config::transformer(small);
    for (source_target, target_output) in [(true, true), (false, true), (true, false)] {
        let ties = TiedWeights { source_target, target_output };
        let mut random = Random(5);
        let model = Model::from_fn(Config { ties, ..paper.clone() }, |_, _, out| {
            out.fill_with(|| random.symmetric());
            Ok(())
        });
        let model = model.expect("a model");
        model.save(&folder.0).expect("saved");
        let again = Model::open(&folder.0).expect("saved");
        assert_eq!((again.config(), again.bytes()), (model.config(), model.bytes()));
        assert_eq!(packed(&again, &folder), packed(&model, &folder), "{ties:?}");
    }
}

#[test]
fn what_cannot_be_saved_is_an_error() {
    let folder = Folder::new("unsaved");
    let checkpoint = Dims::small(Family::Marian).checkpoint(3);
    let int8 = WeightDtypes::all(Quantization::W8A8);
    let error = Model::load(&checkpoint, int8).expect("a model").save(&folder.0);
    let error = error.expect_err("int8");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(
        error.to_string().ends_with("expected f32, bf16 or f16, to be saved, found int8"),
        "{error}"
    );
    assert!(!folder.0.join("model.safetensors").exists());
    let model = Model::load(&checkpoint, WeightDtypes::as_stored()).expect("a model");
    fs::write(folder.0.join("generation_config.json"), "{}").expect("written");
    let error = model.save(&folder.0).expect_err("a file in the way");
    let Error::Io { action: "written", path: file, .. } = &error else { panic!("{error}") };
    assert!(file.ends_with("generation_config.json"), "{error}");
}

/// Two tensors in memory that the configuration ties, with different numbers.
#[test]
fn tensors_that_contradict_a_tie_are_an_error() {
    let folder = Folder::new("contradicts");
    let small = Dimensions { d_model: 24, heads: 3, layers: 1, ffn_dim: 20, vocabulary: 90 };
    let untied = TiedWeights { source_target: true, target_output: false };
    let config = Config { ties: untied, ..Config::transformer(small) };
    let model = Model::from_fn(config.clone(), |role, _, out| {
        out.fill(if role == TensorId::Output { 0.25 } else { 0.5 });
        Ok(())
    });
    model.expect("a model").save(&folder.0).expect("saved");
    let bytes = fs::read(folder.0.join("model.safetensors")).expect("saved");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let find = |name: &str| {
        let tensor = tensors.tensor(name).ok()?;
        let (dtype, shape) = (Dtype::F32, tensor.shape().to_vec());
        Some((dtype, shape, tensor.data()))
    };
    assert!(Checkpoint::from_tensors(config, find).is_ok());
    let tied = || Config::transformer(small);
    // In a file, the numbers decide.
    let file = Checkpoint::from_bytes(tied(), &bytes).expect("a file");
    assert!(!file.config().ties.source_target);
    let error = Checkpoint::from_tensors(tied(), find).expect_err("a tie");
    assert_eq!(
        error.to_string(),
        "encoder.embedding.weight and output.weight: expected the same numbers, because the configuration ties them, found different ones"
    );
}
