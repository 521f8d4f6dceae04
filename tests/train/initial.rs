//! Initial weights, and weight decay.

use super::support::{OpenTrainer, limits, pairs};
use simdformer::checkpoint::{LayerPart, ParamKind, TensorId, read_config};
use simdformer::config::{Config, Side};
use simdformer::kernels::Isa;
use simdformer::train::{Initial, StepOptions, Trainer};
use simdformer_testing::gradient_goldens::goldens;

/// Decayed parameters shrink by `1 - rate * decay`. Norms, biases and relative positions do not decay.
#[test]
fn trap_15_norms_and_biases_do_not_decay() {
    for golden in goldens() {
        let pairs = pairs(&golden.sentences);
        let step = |weight_decay: f64| {
            let mut trainer = golden.trainer(Isa::best(), limits());
            let mut options = StepOptions::default();
            options.adam.weight_decay = weight_decay;
            trainer.step(&pairs, &options).expect("a step");
            trainer
        };
        let (plain, decayed) = (step(0.0), step(0.5));
        let mut counts = [0, 0];
        for (role, shape, before) in golden.trainer(Isa::best(), limits()).parameters() {
            let [plain, decayed] =
                [&plain, &decayed].map(|trainer| trainer.parameter(role).expect("numbers"));
            let relative = matches!(
                role,
                TensorId::RelativeBias(_) | TensorId::Layer(_, _, LayerPart::RelativeBias)
            );
            let table = golden.name == "whisper" && role == TensorId::Positions(Side::Encoder);
            let frozen = role == TensorId::OutputBias || table;
            if shape.len() == 1 || relative || frozen {
                assert!(plain == decayed, "{} {role} decays", golden.name);
                counts[0] += 1;
            } else {
                counts[1] += 1;
                for ((plain, decayed), before) in plain.iter().zip(decayed).zip(before) {
                    // The learning rate is 1e-3.
                    let expected = f64::from(*plain) - 0.5e-3 * f64::from(*before);
                    let bound =
                        4.0 * f64::from(f32::EPSILON) * f64::from(before.abs() + plain.abs());
                    let error = (f64::from(*decayed) - expected).abs();
                    assert!(error <= bound, "{} {role}: {error} of {bound}", golden.name);
                }
            }
        }
        assert!(counts.iter().all(|&count| count > 0), "{} {counts:?}", golden.name);
    }
}

/// Whisper from initial weights: its convolutions have the configured width, and the positions of its
/// encoder are the frozen sinusoids.
#[test]
fn initial_weights_of_whisper_have_the_sinusoids() {
    let config = r#"{"model_type": "whisper", "d_model": 12, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 9, "decoder_ffn_dim": 9,
        "num_mel_bins": 5, "max_source_positions": 24, "max_target_positions": 24, "vocab_size": 31,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 30}"#;
    let config = Config::from_hugging_face(config).expect("a configuration");
    let initial = Initial::from_hugging_face(&config, "{\"init_std\": 0.5}").expect("a deviation");
    let trainer = Trainer::new(config.clone(), limits(), initial.weights(&config, 1));
    let trainer = trainer.expect("a trainer");
    let positions = trainer.parameter(TensorId::Positions(Side::Encoder)).expect("a table");
    for (position, row) in positions.chunks(12).enumerate() {
        for k in 0..6 {
            let angle = position as f64 / 10_000f64.powf(k as f64 / 5.0);
            for (found, expected) in [(row[k], angle.sin()), (row[6 + k], angle.cos())] {
                assert!((f64::from(found) - expected).abs() < 4e-6, "{position} {k}: {found}");
            }
        }
    }
    for (index, inputs) in [(0, 5), (1, 12)] {
        let weight =
            trainer.parameter(TensorId::Convolution(index, ParamKind::Weight)).expect("taps");
        assert_eq!(weight.len(), 12 * inputs * 3);
        let squares = weight.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        let deviation = (squares / weight.len() as f64).sqrt();
        assert!((0.4..0.6).contains(&deviation), "{deviation}");
        let bias =
            trainer.parameter(TensorId::Convolution(index, ParamKind::Bias)).expect("a bias");
        assert!(bias.iter().all(|&x| x == 0.0));
    }
}

/// Initial weights: norms are one, biases and the embedding of the padding are zero, and the standard
/// deviation of the rest is that of the configuration.
#[test]
fn initial_weights_follow_the_configuration() {
    let file = "models/fr-en/config.json";
    let config = read_config(file).expect("a configuration");
    let text = std::fs::read_to_string(file).expect("a configuration");
    let initial = Initial::from_hugging_face(&config, &text).expect("a deviation");
    assert_eq!(initial, Initial::Normal { deviation: 0.06 });
    let make = |initial: Initial, seed| {
        Trainer::new(config.clone(), limits(), initial.weights(&config, seed)).expect("a trainer")
    };
    let trainer = make(initial, 1);
    for (role, shape, numbers) in trainer.parameters() {
        match (shape.len(), role) {
            (
                1,
                TensorId::Layer(
                    _,
                    _,
                    LayerPart::AttentionNorm(_, ParamKind::Weight)
                    | LayerPart::FeedForwardNorm(ParamKind::Weight),
                ),
            ) => {
                assert!(numbers.iter().all(|&x| x == 1.0), "{role}");
            }
            (1, _) => assert!(numbers.iter().all(|&x| x == 0.0), "{role}"),
            _ => {
                let squares: f64 = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                let deviation = (squares / numbers.len() as f64).sqrt();
                // Four standard errors of a standard deviation, and the zero row of the
                // padding.
                let bound = 0.06 * (4.0 / (2.0 * numbers.len() as f64).sqrt() + 1e-3);
                assert!((deviation - 0.06).abs() <= bound, "{role}: {deviation}");
            }
        }
    }
    let table = trainer.parameter(TensorId::SourceEmbedding).expect("a table");
    let pad = config.tokens.pad.expect("a padding") as usize;
    let row = |id: usize| &table[id * config.d_model..][..config.d_model];
    assert!(row(pad).iter().all(|&x| x == 0.0) && row(pad - 1).iter().any(|&x| x != 0.0));

    let bits = |trainer: &Trainer<'_>| -> Vec<u32> {
        trainer.parameters().flat_map(|(_, _, x)| x.iter().map(|x| x.to_bits())).collect()
    };
    assert!(bits(&trainer) == bits(&make(initial, 1)) && bits(&trainer) != bits(&make(initial, 2)));
    let glorot = make(Initial::Glorot, 1);
    let inner = glorot.parameters().find(|(_, shape, _)| *shape == [256, 128]).expect("a matrix");
    let largest = inner.2.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let bound = (6.0f32 / 384.0).sqrt();
    assert!(largest <= bound && largest > 0.99 * bound, "{largest} of {bound}");
}

/// A deviation that cannot be read is an error, and no default: for every key, every wrong value.
#[test]
fn unreadable_deviations_are_errors() {
    let text = |path: &str| std::fs::read_to_string(path).expect("a configuration");
    let marian =
        Config::from_hugging_face(&text("models/fr-en/config.json")).expect("a configuration");
    let t5 = r#"{"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2,
        "vocab_size": 20, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}"#;
    let t5 = Config::from_hugging_face(t5).expect("a configuration");
    let mut cases = 0;
    for (config, keys) in
        [(&marian, &["init_std", "initializer_range"][..]), (&t5, &["initializer_factor"])]
    {
        for key in keys {
            for value in ["\"0.5\"", "true", "[0.5]", "{}", "-1", "1e300", "1e999", "0.5.5", "NaN"]
            {
                let json = format!("{{\"{key}\": {value}}}");
                let error = Initial::from_hugging_face(config, &json).expect_err(&json).to_string();
                assert!(error.contains(key) || error.contains("line 1"), "{json}: {error}");
                cases += 1;
            }
            let twice = format!("{{\"{key}\": 0.5, \"{key}\": 0.25}}");
            assert!(
                Initial::from_hugging_face(config, &twice)
                    .expect_err("twice")
                    .to_string()
                    .contains(key)
            );
            assert!(Initial::from_hugging_face(config, &format!("{{\"{key}\": null}}")).is_ok());
            assert!(Initial::from_hugging_face(config, &format!("{{\"{key}\": 0.5}}")).is_ok());
        }
        for json in ["", "[]", "1", "{\"init_std\": 0.5", "{} x"] {
            assert!(Initial::from_hugging_face(config, json).is_err(), "{json:?}");
        }
    }
    assert_eq!(cases, 27);
}
