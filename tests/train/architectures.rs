//! Architectures without a golden of gradients, made from their configurations alone. The gradient is the
//! derivative of the loss, with dropout as well, and the forward pass is that of a session.

use super::bits::of_session;
use super::support::{limits, pairs};
use simdformer::config::{Config, Side};
use simdformer::kernels::Isa;
use simdformer::train::{DropoutRates, Smoothing, TrainLimits, Trainer};
use simdformer_testing::gradient_goldens::OwnedExample;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Weights = BTreeMap<String, Vec<f32>>;

const FAMILIES: [&str; 12] = [
    "blenderbot",
    "blenderbot_small",
    "fsmt",
    "mt5",
    "mvp",
    "plbart",
    "seamless_m4t",
    "seamless_m4t_v2",
    "t5_v1_1",
    "umt5",
    "whisper",
    "whisper_english",
];

fn config(family: &str) -> Config {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families");
    let text = fs::read_to_string(root.join(family).join("config.json")).expect("a configuration");
    Config::from_hugging_face(&text).expect(family)
}

fn random(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
}

/// With the given weights, or with random ones.
fn trainer(config: &Config, isa: Isa, weights: Option<&Weights>) -> Trainer<'static> {
    let mut seed = 9;
    let longest = config.max_positions(Side::Encoder).unwrap_or(24).min(24);
    let limits = TrainLimits { source_length: longest, ..limits() };
    let made = Trainer::new_on(isa, config.clone(), limits, |role, shape, out| {
        match weights {
            Some(weights) => out.copy_from_slice(&weights[&role.to_string()]),
            None if shape.len() == 1 && role.to_string().ends_with("norm.weight") => {
                out.fill_with(|| 1.0 + 0.2 * random(&mut seed));
            }
            None => out.fill_with(|| 0.5 * random(&mut seed)),
        }
        Ok(())
    });
    made.expect("a trainer")
}

/// Tokens that are not special, and an end token.
fn sentences(config: &Config) -> Vec<OwnedExample> {
    let (mut seed, mut noise) = (5, 6);
    let end = config.tokens.eos.first().copied().unwrap_or(2);
    let mut ids = |len: usize, vocabulary: usize| {
        let mut id = || 4 + ((random(&mut seed) + 0.5) * (vocabulary - 8) as f32) as u32;
        let mut ids: Vec<u32> = (1..len).map(|_| id()).collect();
        ids.push(end);
        ids
    };
    [(5, 7), (1, 3), (12, 1), (4, 9), (17, 17)]
        .into_iter()
        .enumerate()
        .map(|(id, (source, target))| OwnedExample {
            source: match config.bins {
                Some(_) => Vec::new(),
                None => ids(source, config.source_vocab),
            },
            // The last frame is odd or even.
            features: config.bins.map(|bins| {
                let numbers = (2 * source - id % 2) * bins;
                ((0..numbers).map(|_| 2.0 * random(&mut noise)).collect(), bins)
            }),
            target: ids(target, config.target_vocab),
            id: 3 * id as u32,
        })
        .collect()
}

fn smoothing() -> Smoothing {
    Smoothing { epsilon: 0.1, ..Smoothing::default() }
}

/// The mean loss of a training pass, and the gradient.
fn learn(
    trainer: &mut Trainer<'_>,
    rates: DropoutRates,
    sentences: &[OwnedExample],
) -> (f64, Weights) {
    trainer.set_dropout(rates).expect("rates");
    let tokens: usize = sentences.iter().map(|s| s.target.len()).sum();
    let totals = trainer.accumulate(&pairs(sentences), smoothing(), tokens as u64);
    let totals = totals.expect("gradients");
    let gradient = trainer.gradients().expect("gradients");
    (totals.mean_loss(), gradient.map(|(role, _, x)| (role.to_string(), x.to_vec())).collect())
}

/// Along the gradient the loss changes as the gradient predicts, under the same dropout masks.
#[test]
fn the_gradient_is_the_derivative_of_the_loss() {
    for family in FAMILIES {
        let config = config(family);
        let sentences = sentences(&config);
        for rates in [
            DropoutRates::default(),
            DropoutRates { attention: 0.3, seed: 6, ..DropoutRates::default() },
            DropoutRates { hidden: 0.1, attention: 0.1, activation: 0.1, seed: 7 },
        ] {
            let mut learner = trainer(&config, Isa::best(), None);
            let start: Weights =
                learner.parameters().map(|(role, _, x)| (role.to_string(), x.to_vec())).collect();
            let (loss, gradient) = learn(&mut learner, rates, &sentences);
            let squares = gradient.values().flatten().map(|&g| f64::from(g) * f64::from(g));
            let length = squares.sum::<f64>().sqrt();
            assert!(length > 0.01 && loss > 1.0, "{family}: {length} {loss}");
            let at = |h: f64| {
                let moved = start.iter().map(|(role, x)| {
                    let along = gradient.get(role);
                    let x = x.iter().enumerate().map(|(i, &x)| {
                        let g = along.map_or(0.0, |along| f64::from(along[i]));
                        (f64::from(x) + h * g / length) as f32
                    });
                    (role.clone(), x.collect())
                });
                let mut moved = trainer(&config, Isa::best(), Some(&moved.collect()));
                learn(&mut moved, rates, &sentences).0
            };
            let h = 1e-3;
            let slope = (at(h) - at(-h)) / (2.0 * h);
            let error = (slope - length).abs();
            assert!(error <= 2e-3 * length, "{family} {rates:?}: {slope} {length}");
        }
    }
}

/// Every trainable parameter has a gradient.
#[test]
fn every_parameter_has_a_gradient() {
    for family in FAMILIES {
        let config = config(family);
        let sentences = sentences(&config);
        let mut learner = trainer(&config, Isa::best(), None);
        let (_, gradient) = learn(&mut learner, DropoutRates::default(), &sentences);
        let still: BTreeSet<_> = gradient
            .iter()
            .filter(|(_, x)| x.iter().all(|&g| g == 0.0))
            .map(|(role, _)| role.clone())
            .collect();
        assert!(still.is_empty(), "{family}: {still:?}");
        assert!(gradient.len() >= 20, "{family}: {}", gradient.len());
    }
}

#[test]
fn the_forward_pass_has_the_bits_of_a_session() {
    for family in FAMILIES {
        let config = config(family);
        let sentences = sentences(&config);
        for isa in Isa::available() {
            let mut trainer = trainer(&config, isa, None);
            let found = trainer.evaluate(&pairs(&sentences), smoothing()).expect("losses");
            let (loss, nll) = of_session(&trainer, &sentences, smoothing());
            assert_eq!(found.loss.to_bits(), loss.to_bits(), "{family} {isa}");
            assert_eq!(found.nll.to_bits(), nll.to_bits(), "{family} {isa}");
        }
    }
}
