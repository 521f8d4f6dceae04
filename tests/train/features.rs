//! An encoder that reads features: the gradients of its convolutions compared with a naive f64 version, for
//! sources longer than the parts in which they are computed, and the errors.

use super::support::pairs;
use simdformer::config::{Config, Dimensions, NormPlacement, Positions, TiedWeights};
use simdformer::train::{Example, SavedActivations, Smoothing, StepOptions, TrainLimits, Trainer};
use simdformer::{Features, Threads};
use simdformer_testing::gradient_goldens::OwnedExample;
use std::collections::BTreeMap;

const D: usize = 10;
const BINS: usize = 7;
/// One frame, odd and even numbers of frames, and numbers around multiples of 256 positions.
const FRAMES: [usize; 9] = [1, 2, 3, 8, 511, 512, 513, 514, 1100];

fn random(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
}

fn sounds() -> Vec<OwnedExample> {
    let mut seed = 3;
    let sound = |(id, &frames): (usize, &usize)| OwnedExample {
        features: Some(((0..frames * BINS).map(|_| 3.0 * random(&mut seed)).collect(), BINS)),
        target: (0..=id % 4).map(|token| (2 + 3 * token + id) as u32 % 19).collect(),
        id: id as u32,
        ..OwnedExample::default()
    };
    FRAMES.iter().enumerate().map(sound).collect()
}

fn config() -> Config {
    let small = Dimensions { d_model: D, heads: 2, layers: 1, ffn_dim: 13, vocabulary: 19 };
    let mut config = Config {
        bins: Some(BINS),
        source_vocab: 0,
        norm: NormPlacement::Pre,
        ties: TiedWeights { source_target: false, target_output: true },
        ..Config::transformer(small)
    };
    config.tokens.decoder_start = Some(1);
    config
}

fn limits(keep: SavedActivations) -> TrainLimits {
    TrainLimits { keep, ..TrainLimits::new(2200, 600) }
}

fn trainer(config: Config, limits: TrainLimits, zeros: &[&str]) -> Trainer<'static> {
    let mut seed = 9;
    let made = Trainer::new(config, limits, |role, _, out| {
        let name = role.to_string();
        if zeros.iter().any(|part| name.contains(part)) {
            out.fill(0.0);
        } else if name.ends_with("norm.weight") {
            out.fill_with(|| 1.0 + 0.2 * random(&mut seed));
        } else {
            out.fill_with(|| 0.6 * random(&mut seed));
        }
        Ok(())
    });
    made.expect("a trainer")
}

/// The error function by its series, for arguments below 4.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / core::f64::consts::PI.sqrt()
}

/// GELU and its derivative.
fn gelu(x: f64) -> [f64; 2] {
    assert!(x.abs() < 5.0, "{x}");
    let cdf = 0.5 * (1.0 + erf(x / 2f64.sqrt()));
    let density = (-0.5 * x * x).exp() / (2.0 * core::f64::consts::PI).sqrt();
    [x * cdf, cdf + x * density]
}

/// One convolution over three frames in f64, as PyTorch's `Conv1d(..., 3, stride, padding=1)` followed by
/// GELU.
struct Convolution<'c> {
    /// `[outputs, inputs, 3]`.
    weight: &'c [f32],
    bias: &'c [f32],
    inputs: usize,
    stride: usize,
}

impl Convolution<'_> {
    /// Each frame that a result reads, and the index of its weight.
    fn taps(&self, at: usize, frames: usize) -> impl Iterator<Item = (usize, usize)> {
        let first = self.stride * at;
        (0..3).filter_map(move |tap| {
            let frame = (first + tap).checked_sub(1)?;
            (frame < frames).then_some((tap, frame))
        })
    }

    /// The input of the activation: `[frames, inputs]` to `[results, outputs]`.
    fn forward(&self, x: &[f64]) -> Vec<f64> {
        let frames = x.len() / self.inputs;
        let mut pre = Vec::new();
        for at in 0..frames.div_ceil(self.stride) {
            for (output, &bias) in self.bias.iter().enumerate() {
                let mut sum = f64::from(bias);
                for (tap, frame) in self.taps(at, frames) {
                    for input in 0..self.inputs {
                        let weight = self.weight[(output * self.inputs + input) * 3 + tap];
                        sum += f64::from(weight) * x[frame * self.inputs + input];
                    }
                }
                pre.push(sum);
            }
        }
        pre
    }

    /// Adds to the gradients of weight and bias. Returns the gradient of `x`.
    fn backward(&self, x: &[f64], d_pre: &[f64], [weight, bias]: [&mut [f64]; 2]) -> Vec<f64> {
        let (frames, outputs) = (x.len() / self.inputs, self.bias.len());
        let mut d_x = vec![0.0; x.len()];
        for (at, d_pre) in d_pre.chunks(outputs).enumerate() {
            for (output, d) in d_pre.iter().enumerate() {
                bias[output] += d;
                for (tap, frame) in self.taps(at, frames) {
                    for input in 0..self.inputs {
                        let place = (output * self.inputs + input) * 3 + tap;
                        weight[place] += d * x[frame * self.inputs + input];
                        d_x[frame * self.inputs + input] += d * f64::from(self.weight[place]);
                    }
                }
            }
        }
        d_x
    }
}

/// The gradient that the caller's loss has for an element of the output.
fn d_of(place: usize) -> f32 {
    ((place * 37 % 101) as f32 - 50.0) / 64.0
}

/// An encoder whose layer adds nothing: its output is that of the convolutions, and the gradient of the
/// output is the caller's. The gradients of both convolutions are those of the oracle, in the layout of a
/// checkpoint.
#[test]
fn convolutions_match_a_naive_f64_version() {
    let mut config = Config { decoder: None, positions: Positions::None, ..config() };
    config.ties.target_output = false;
    config.encoder.final_norm = false;
    let still = ["attention.output", "feed_forward.outer"];
    for keep in [SavedActivations::Everything, SavedActivations::Inputs] {
        let mut learner = trainer(config.clone(), limits(keep), &still);
        let weights: BTreeMap<String, Vec<f32>> =
            learner.parameters().map(|(role, _, x)| (role.to_string(), x.to_vec())).collect();
        let of = |name: &str| &weights[&format!("encoder.convolutions.{name}")][..];
        let stem = [(0, BINS, 1), (1, D, 2)].map(|(index, inputs, stride)| Convolution {
            weight: of(&format!("{index}.weight")),
            bias: of(&format!("{index}.bias")),
            inputs,
            stride,
        });
        let mut expected = [3 * BINS * D, D, 3 * D * D, D].map(|len| vec![0.0f64; len]);
        let mut output = Vec::new();
        let sounds = sounds();
        for sound in &sounds {
            let x: Vec<f64> =
                sound.features.iter().flat_map(|(x, _)| x).map(|&x| x.into()).collect();
            let first = stem[0].forward(&x);
            let hidden: Vec<f64> = first.iter().map(|&x| gelu(x)[0]).collect();
            let second = stem[1].forward(&hidden);
            let d_second: Vec<f64> = second
                .iter()
                .enumerate()
                .map(|(i, &x)| f64::from(d_of(output.len() + i)) * gelu(x)[1])
                .collect();
            output.extend(second.iter().map(|&x| gelu(x)[0]));
            let [w0, b0, w1, b1] = &mut expected;
            let d_hidden = stem[1].backward(&hidden, &d_second, [w1, b1]);
            let d_first: Vec<f64> =
                d_hidden.iter().zip(&first).map(|(d, &x)| d * gelu(x)[1]).collect();
            stem[0].backward(&x, &d_first, [w0, b0]);
        }
        let mut place = 0;
        let sources = pairs(&sounds).into_iter().map(|pair| Example { target: &[], ..pair });
        let sources: Vec<_> = sources.collect();
        learner
            .accumulate_with(&sources, &mut |_, hidden, d_hidden| {
                for (d, &h) in d_hidden.iter_mut().zip(hidden) {
                    let error = (f64::from(h) - output[place]).abs();
                    assert!(error <= 2e-6, "{keep:?}: {h}, expected {}", output[place]);
                    *d = d_of(place);
                    place += 1;
                }
                0.0
            })
            .expect("gradients");
        assert_eq!(place, output.len());
        let found: BTreeMap<String, Vec<f32>> = learner
            .gradients()
            .expect("gradients")
            .map(|(role, _, x)| (role.to_string(), x.to_vec()))
            .collect();
        let names = ["0.weight", "0.bias", "1.weight", "1.bias"];
        for (name, expected) in names.iter().zip(&expected) {
            let found = &found[&format!("encoder.convolutions.{name}")];
            let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            assert_eq!(found.len(), expected.len());
            for (&found, &expected) in found.iter().zip(expected) {
                let error = (f64::from(found) - expected).abs();
                assert!(error <= 4e-6 * largest, "{keep:?} {name}: {found}, expected {expected}");
            }
        }
    }
}

/// Losses, norm and parameters after two steps.
fn run(limits: TrainLimits, threads: usize) -> Vec<u64> {
    let sounds = sounds();
    let mut learner = trainer(config(), limits, &[]);
    learner.set_threads(Threads::Rayon);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let mut found = Vec::new();
    pool.install(|| {
        for _ in 0..2 {
            let step = learner.step(&pairs(&sounds), &StepOptions::default()).expect("a step");
            found.extend([step.totals.loss.to_bits(), step.update.norm.to_bits()]);
        }
    });
    for (.., numbers) in learner.parameters() {
        found.extend(numbers.iter().map(|x| u64::from(x.to_bits())));
    }
    found
}

/// Threads, passes and `SavedActivations`, with sources that are computed in several parts.
#[test]
fn long_sources_have_the_same_bits_in_every_split() {
    let expected = run(limits(SavedActivations::Everything), 1);
    for keep in [
        SavedActivations::Everything,
        SavedActivations::Projections,
        SavedActivations::Context,
        SavedActivations::Inputs,
    ] {
        for (limits, threads) in [
            (TrainLimits { keep, ..TrainLimits::new(550, 550) }, 3),
            (limits(keep), 2),
            (TrainLimits { keep, ..TrainLimits::new(900, 700) }, 7),
        ] {
            assert!(run(limits, threads) == expected, "{limits:?} {threads}");
        }
    }
}

/// Features are never written, and memory beside them is not read.
#[test]
fn frames_beside_a_source_are_not_read() {
    let sounds = sounds();
    let learn = |all: &[Example<'_>]| {
        let mut learner = trainer(config(), limits(SavedActivations::Context), &[]);
        learner.accumulate(all, Smoothing::default(), 20).expect("gradients");
        let gradients = learner.gradients().expect("gradients");
        gradients.flat_map(|(.., x)| x.iter().map(|x| x.to_bits())).collect::<Vec<_>>()
    };
    let expected = learn(&pairs(&sounds));
    let apart: Vec<Vec<f32>> = sounds
        .iter()
        .map(|sound| {
            let (values, _) = sound.features.as_ref().expect("features");
            let beside = [f32::NAN; 3 * BINS];
            [&beside[..], values, &beside].concat()
        })
        .collect();
    let within: Vec<_> = sounds
        .iter()
        .zip(&apart)
        .map(|(sound, values)| {
            let values = &values[3 * BINS..values.len() - 3 * BINS];
            Example::of_features(Features::new(values, BINS), &sound.target, sound.id)
        })
        .collect();
    assert!(learn(&within) == expected);
}

/// A source that cannot be used is an error before anything is computed.
#[test]
fn bad_features_are_errors() {
    let mut learner = trainer(config(), limits(SavedActivations::Everything), &[]);
    let (good, long) = ([0.5; 4 * BINS], vec![0.5; 1201 * BINS]);
    let mut odd = good;
    odd[BINS + 2] = f32::INFINITY;
    let of = |values, bins| Example::of_features(Features::new(values, bins), &[4, 0], 0);
    let fine = of(&good, BINS);
    for (pair, part) in [
        (
            Example::new(&[3, 0], &[4, 0], 0),
            "frames of 7 numbers, which the encoder reads, found token ids",
        ),
        (Example { source: &[3], ..fine }, "expected token ids or features, found both"),
        (of(&[], BINS), "expected at least one frame, found none"),
        (of(&good, BINS - 1), "frames of 7 numbers, which the encoder reads, found frames of 6"),
        (of(&good[1..], BINS), "expected whole frames of 7 numbers, found 27"),
        (of(&long, BINS), "the source: expected at most 600 tokens, found 601"),
        (of(&odd, BINS), "features: expected a finite number at place 2 of frame 1, found inf"),
        (Example { target: &[], ..fine }, "the target: expected at least one token, found none"),
    ] {
        let error = learner.accumulate(&[fine, pair], Smoothing::default(), 4).expect_err(part);
        let error = error.to_string();
        assert!(error.starts_with("source 1: ") && error.contains(part), "{error}");
    }
    assert!(learner.gradients().is_err(), "nothing was accumulated");
    let small = Dimensions { d_model: D, heads: 2, layers: 1, ffn_dim: 13, vocabulary: 19 };
    let mut of_ids = trainer(Config::transformer(small), limits(SavedActivations::Everything), &[]);
    let error = of_ids.evaluate(&[fine], Smoothing::default()).expect_err("features");
    assert!(
        error.to_string().contains("expected token ids, which the encoder reads, found features"),
        "{error}"
    );
}
