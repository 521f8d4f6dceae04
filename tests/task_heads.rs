//! Sentence vectors and classifiers: directories of each kind, and each error in one.

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use simdformer::checkpoint::Checkpoint;
use simdformer::task_heads::{Classifier, Pooling, SentenceHead};
use simdformer::{Limits, Model, Session};
use std::fs;
use std::path::{Path, PathBuf};

/// The three kinds of classifier compared with transformers, with token types if the model has them.
#[test]
fn classifiers_score_as_transformers_has_it() {
    for name in ["bert_classifier", "xlm_roberta_classifier", "distilbert_classifier"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families").join(name);
        let file = fs::read(folder.join("expected.safetensors")).expect("expected tensors");
        let file = safetensors::SafeTensors::deserialize(&file).expect("a safetensors file");
        let words = |name: String| -> Option<Vec<[u8; 4]>> {
            let tensor = file.tensor(&name).ok()?;
            let words = tensor.data().chunks_exact(4);
            Some(words.map(|word| word.try_into().expect("four bytes")).collect())
        };
        let ids = |name: String| -> Option<Vec<u32>> {
            // The low four bytes of eight.
            Some(words(name)?.into_iter().step_by(2).map(u32::from_le_bytes).collect())
        };
        let checkpoint = Checkpoint::open(&folder).expect(name);
        let model = Model::open(&folder).expect(name);
        let head = Classifier::from_checkpoint(&checkpoint).expect(name).expect("a head");
        let mut session = Session::new(&model, Limits::encoder(1, 21)).expect("a session");
        let mut checked = 0;
        for i in 0.. {
            let Some(source) = ids(format!("input_ids.{i}")) else { break };
            let types = ids(format!("token_type_ids.{i}")).unwrap_or(vec![0; source.len()]);
            let hidden =
                session.encoder_output_of_types(&[&source], &[&types]).expect("hidden states");
            let found = head.scores(hidden).expect("scores");
            let expected = words(format!("scores.{i}")).expect("expected scores");
            assert_eq!((found.len(), head.labels()), (expected.len(), expected.len()), "{name}");
            for (found, expected) in found.iter().zip(expected.into_iter().map(f32::from_le_bytes))
            {
                assert!((found - expected).abs() <= 1e-5, "{name} {i}: {found}, {expected}");
                checked += 1;
            }
        }
        assert!(checked >= 6, "{name}");
        assert!(matches!(head.scores(&[]), Err(simdformer::Error::InvalidInput { .. })));
        assert!(matches!(head.scores(&[0.0; 5]), Err(simdformer::Error::InvalidInput { .. })));
    }
    let bert = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families/roberta");
    assert!(
        Classifier::from_checkpoint(&Checkpoint::open(bert).expect("opened"))
            .expect("read")
            .is_none()
    );
}

const WIDTH: usize = 3;
/// `[4, WIDTH]`.
const HIDDEN: [f32; 12] = [1.0, -2.0, 0.5, 3.0, 1.0, -1.5, -4.0, 0.25, 2.0, 0.5, 6.0, -0.75];

/// A directory with these files.
fn directory(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("heads").join(name);
    for (file, text) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    }
    folder
}

const POOLING: &str = r#"[
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;

fn vector(folder: &Path) -> Vec<f32> {
    let head = SentenceHead::open(folder, WIDTH).expect("a head");
    let mut scratch = vec![f32::NAN; head.scratch_floats()];
    let mut out = vec![f32::NAN; head.width()];
    head.apply(&HIDDEN, &mut scratch, &mut out).expect("applied");
    out
}

fn close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() <= 1e-6, "{what}: {found}, {expected}");
    }
}

/// The transformer may have a folder of its own, and a maximal length smaller than its number of positions.
#[test]
fn a_transformer_in_a_folder_is_found() {
    let modules = POOLING.replace(r#""path": """#, r#""path": "0_Transformer""#);
    let files = [
        ("modules.json", &modules[..]),
        ("1_Pooling/config.json", r#"{"word_embedding_dimension": 28}"#),
        (
            "0_Transformer/sentence_bert_config.json",
            r#"{"max_seq_length": 17, "do_lower_case": false}"#,
        ),
    ];
    let folder = directory("folder", &files);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families/roberta");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden.join(file), folder.join("0_Transformer").join(file)).expect("copied");
    }
    let model = Model::open(&folder).expect("a model");
    let head = SentenceHead::open(&folder, model.config().d_model).expect("a head");
    assert_eq!((head.max_tokens(), head.width(), head.assumed()), (Some(17), 28, false));
    let outside = directory("outside", &[("modules.json", &modules.replace("0_Tr", "../0_Tr"))]);
    let error = Model::open(outside).expect_err("no such thing").to_string();
    assert!(error.contains("config.json"), "{error}");
    // A list of modules that cannot be read is named, and not the config.json that it would lead to.
    for (number, text) in ["", "{", "7", r#"{"path": ""}"#, r#"[{"path": 7}]"#].iter().enumerate() {
        let broken = directory(&format!("broken-{number}"), &[("modules.json", text)]);
        let error = Model::open(broken).expect_err("broken").to_string();
        assert!(
            error.contains("modules.json: expected a list of modules, found something else: "),
            "{error}"
        );
    }
}

/// The definition of each pooling, in f64.
fn expected(pooling: Pooling) -> Vec<f64> {
    let column = |c: usize| (0..4).map(move |t| f64::from(HIDDEN[t * WIDTH + c]));
    (0..WIDTH)
        .map(|c| match pooling {
            Pooling::Cls => column(c).next().unwrap_or(0.0),
            Pooling::LastToken => column(c).next_back().unwrap_or(0.0),
            Pooling::Max => column(c).fold(f64::NEG_INFINITY, f64::max),
            Pooling::Mean => column(c).sum::<f64>() / 4.0,
            Pooling::MeanSqrtLen => column(c).sum::<f64>() / 2.0,
            Pooling::WeightedMean => {
                column(c).zip([1.0, 2.0, 3.0, 4.0]).map(|(x, weight)| x * weight).sum::<f64>()
                    / 10.0
            }
        })
        .collect()
}

#[test]
fn every_pooling_is_read_in_both_formats() {
    let old = [
        "cls_token",
        "max_tokens",
        "mean_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    ];
    for (pooling, key) in Pooling::ALL.into_iter().zip(old) {
        let mean = if key == "mean_tokens" { "" } else { r#""pooling_mode_mean_tokens": false,"# };
        let old =
            format!(r#"{{"word_embedding_dimension": 3, {mean} "pooling_mode_{key}": true}}"#);
        let new = format!(r#"{{"embedding_dimension": 3, "pooling_mode": "{}"}}"#, pooling.name());
        for (spelling, text) in [("old", old), ("new", new)] {
            let files = [("modules.json", POOLING), ("1_Pooling/config.json", &text)];
            let folder = directory(&format!("{key}_{spelling}"), &files);
            close(&vector(&folder), &expected(pooling), &format!("{key} {spelling}"));
        }
    }
    // Several poolings are concatenated in a fixed order, whatever the order in the file.
    let text = r#"{"pooling_mode_lasttoken": true, "pooling_mode_cls_token": true}"#;
    let files = [("modules.json", POOLING), ("1_Pooling/config.json", text)];
    let three = [Pooling::Cls, Pooling::Mean, Pooling::LastToken].map(expected).concat();
    close(&vector(&directory("three", &files)), &three, "three");
    // A directory that names no pooling.
    let head = SentenceHead::open(directory("nothing", &[("config.json", "{}")]), WIDTH);
    let head = head.expect("the mean");
    assert!(head.assumed() && head.pooling() == [Pooling::Mean] && !head.normalizes());
}

/// Dense layers and a normalization after the pooling, in the order of the file.
#[test]
fn dense_layers_and_normalization_follow_the_pooling() {
    let modules = r#"[
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
        {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;
    let dense = r#"{"in_features": 3, "out_features": 2, "bias": true,
        "activation_function": "torch.nn.modules.activation.Tanh"}"#;
    let mean = r#"{"pooling_mode": ["mean"]}"#;
    let files = [
        ("modules.json", modules),
        ("1_Pooling/config.json", mean),
        ("2_Dense/config.json", dense),
    ];
    let folder = directory("dense", &files);
    let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (weight, bias) = ([0.5, -1.0, 0.25, 1.5, 0.0, -0.5], [0.125, -0.25]);
    let write = |inputs: usize| {
        let (weight, bias) = (bytes(&weight), bytes(&bias));
        let shape = vec![weight.len() / 4 / inputs, inputs];
        let tensors = [
            ("linear.weight", TensorView::new(Dtype::F32, shape, &weight).expect("a tensor")),
            ("linear.bias", TensorView::new(Dtype::F32, vec![2], &bias).expect("a tensor")),
        ];
        let file = folder.join("2_Dense/model.safetensors");
        safetensors::serialize_to_file(tensors, None, &file).expect("written");
    };
    write(3);
    let x = expected(Pooling::Mean);
    let y: Vec<f64> = weight
        .chunks(3)
        .zip(bias)
        .map(|(row, bias)| {
            let sum: f64 = row.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum();
            (sum + f64::from(bias)).tanh()
        })
        .collect();
    let length = y.iter().map(|y| y * y).sum::<f64>().sqrt();
    let y: Vec<f64> = y.iter().map(|y| y / length).collect();
    close(&vector(&folder), &y, "dense and normalized");
    assert!(SentenceHead::open(&folder, WIDTH).expect("a head").normalizes());
    // A dense layer that reads two values where the pooling gives three.
    write(2);
    let error = SentenceHead::open(&folder, WIDTH).expect_err("widths differ").to_string();
    assert!(error.contains("shape") || error.contains("reads vectors of 2"), "{error}");
}

#[test]
fn every_wrong_directory_has_its_own_error() {
    let mean = r#"{"pooling_mode": "mean"}"#;
    let module = |kind: &str, path: &str| {
        format!(r#"[{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}]"#)
    };
    let cases = [
        ("json", "[{".to_owned(), mean, "EOF"),
        ("object", "{}".to_owned(), mean, "invalid type: map"),
        (
            "module",
            module("LayerNorm", "1_Pooling"),
            mean,
            "module: expected one of Transformer, Pooling, Dense, Normalize, found \"sentence_transformers.models.LayerNorm\"",
        ),
        (
            "escape",
            module("Pooling", "../1_Pooling"),
            mean,
            "expected paths inside of the directory, found ",
        ),
        (
            "absolute",
            module("Pooling", "/1_Pooling"),
            mean,
            "expected paths inside of the directory, found ",
        ),
        ("absent", module("Pooling", "9_Pooling"), mean, "no such file"),
        ("none", "[]".to_owned(), mean, "expected a pooling module, found none"),
        (
            "mode",
            module("Pooling", "1_Pooling"),
            r#"{"pooling_mode": "median"}"#,
            "pooling: expected one of cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, found \"median\"",
        ),
        (
            "nomode",
            module("Pooling", "1_Pooling"),
            r#"{"pooling_mode": []}"#,
            "expected at least one pooling",
        ),
        (
            "width",
            module("Pooling", "1_Pooling"),
            r#"{"word_embedding_dimension": 4}"#,
            "pooling: expected a module for vectors of 3 numbers, which it is given, found one that reads vectors of 4",
        ),
    ];
    for (name, modules, pooling, part) in cases {
        let files = [("modules.json", &modules[..]), ("1_Pooling/config.json", pooling)];
        let folder = directory(&format!("wrong_{name}"), &files);
        let error = SentenceHead::open(folder, WIDTH).expect_err(name).to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
    let head = SentenceHead::new(vec![Pooling::Mean], WIDTH, true);
    let mut scratch = vec![0.0; head.scratch_floats()];
    let said = |hidden: &[f32], scratch: &mut [f32], out: &mut [f32]| {
        head.apply(hidden, scratch, out).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(said(&[], &mut scratch, &mut [0.0; 3]).contains("found 0 numbers"));
    assert!(said(&[0.0; 4], &mut scratch, &mut [0.0; 3]).contains("found 4 numbers"));
    assert!(said(&HIDDEN, &mut [], &mut [0.0; 3]).contains("the scratch of a head"));
    assert!(said(&HIDDEN, &mut scratch, &mut [0.0; 2]).contains("the vector of a text"));
    // The normalization of a zero vector is a zero vector.
    let mut out = [1.0; 3];
    assert_eq!(said(&[0.0; 6], &mut scratch, &mut out), "");
    assert_eq!(out, [0.0; 3]);
}

/// Settings of a transformer that change texts, and those that are not supported.
#[test]
fn settings_of_a_transformer_are_read_or_named() {
    let transformer = r#"{"path": "", "type": "sentence_transformers.base.modules.Transformer"}"#;
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families");
    let checkpoint = Checkpoint::open(golden.join("bert_classifier")).expect("a cross-encoder");
    let head = || Classifier::from_checkpoint(&checkpoint).expect("a head").expect("a head");
    let nothing = (None, false);
    let read = |name: &str, file: &str, text: &str| {
        let modules = format!("[{transformer}]");
        let folder = directory(name, &[("modules.json", &modules), (file, text)]);
        let found = head().with_settings(folder).map_err(|error| error.to_string())?;
        Ok::<_, String>((found.max_tokens(), found.lower_case()))
    };
    let settings = read(
        "lower",
        "sentence_bert_config.json",
        r#"{"max_seq_length": 9, "do_lower_case": true}"#,
    )
    .expect("settings");
    assert_eq!(settings, (Some(9), true));
    // A name of older versions.
    let settings = read("older", "sentence_roberta_config.json", r#"{"max_seq_length": null}"#)
        .expect("settings");
    assert_eq!(settings, nothing);
    let forward = r#"{"method": "forward", "method_output_name": "logits"}"#;
    let text = format!(
        r#"{{"transformer_task": "sequence-classification", "modality_config": {{"text": {forward}}},
            "processing_kwargs": {{}}}}"#
    );
    assert_eq!(read("new", "sentence_bert_config.json", &text), Ok(nothing));
    for (name, text, part) in [
        ("task", r#"{"transformer_task": "feature-extraction"}"#.to_owned(), "transformer_task"),
        ("chat", text.replace(r#"{"text""#, r#"{"message": {}, "text""#), "modality_config"),
        ("none", r#"{"modality_config": 1}"#.to_owned(), "modality_config: expected a text"),
        ("kwargs", r#"{"processing_kwargs": [1]}"#.to_owned(), "processing_kwargs: expected none"),
        ("other", r#"{"tokenizer_name_or_path": "x"}"#.to_owned(), "tokenizer_name_or_path"),
    ] {
        let error = read(name, "sentence_bert_config.json", &text).expect_err(name);
        assert!(error.contains(part) && error.contains("sentence_bert_config.json"), "{error}");
    }
    let none = directory("no_modules", &[("config.json", "{}")]);
    let found = head().with_settings(none).expect("settings");
    assert_eq!((found.max_tokens(), found.lower_case()), nothing);
}

/// `include_prompt` leaves the tokens of a prompt out of every pooling.
#[test]
fn a_prompt_is_pooled_only_if_the_directory_says_so() {
    let pooled = |include: &str, prompt: usize| {
        let text = format!(r#"{{"pooling_mode": ["mean", "weightedmean"]{include}}}"#);
        let folder =
            directory("prompt", &[("modules.json", POOLING), ("1_Pooling/config.json", &text)]);
        let head = SentenceHead::open(folder, WIDTH).expect("a head");
        let mut out = vec![f32::NAN; head.width()];
        let mut scratch = vec![f32::NAN; head.scratch_floats()];
        let done = head.apply_after_prompt(&HIDDEN, prompt, &mut scratch, &mut out);
        done.map(|()| out).map_err(|error| error.to_string())
    };
    assert_eq!(pooled("", 3), pooled("", 0));
    assert_eq!(pooled(r#", "include_prompt": false"#, 0), pooled("", 0));
    let column = |c: usize, t: usize| f64::from(HIDDEN[t * WIDTH + c]);
    let mean = (0..WIDTH).map(|c| (column(c, 2) + column(c, 3)) / 2.0);
    let weighted = (0..WIDTH).map(|c| (3.0 * column(c, 2) + 4.0 * column(c, 3)) / 7.0);
    let expected: Vec<f64> = mean.chain(weighted).collect();
    let found = pooled(r#", "include_prompt": false"#, 2).expect("a vector");
    close(&found, &expected, "without the prompt");
    let error = pooled(r#", "include_prompt": false"#, 4).expect_err("nothing is left");
    assert_eq!(
        error,
        "the text: expected more tokens than the 4 of the prompt, which the pooling leaves out, found 4 in all"
    );
    // A dense layer that reads something else than the vector of the text.
    let modules = POOLING.replace(']', r#", {"path": "2_Dense", "type": "models.Dense"}]"#);
    let dense = r#"{"module_input_name": "token_embeddings"}"#;
    let files = [
        ("modules.json", &modules[..]),
        ("1_Pooling/config.json", r#"{"pooling_mode": "mean"}"#),
        ("2_Dense/config.json", dense),
    ];
    let error = SentenceHead::open(directory("input", &files), WIDTH).expect_err("an input");
    assert!(
        error.to_string().contains(
            "input or output: expected one of sentence_embedding, found \"token_embeddings\""
        ),
        "{error}"
    );
}
