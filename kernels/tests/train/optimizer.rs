//! Adam, norms and averages compared with f64, and Adam with PyTorch.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::reference::optimizer as oracle;
use simdformer_kernels::train::{
    Adam, Moments, adam, average, clip_factor, sum_of_squares, sum_of_squares_scratch,
};
use simdformer_kernels::{Error, Exec, Isa, Parallelism};

/// Parameters, gradients and moments.
#[derive(Clone)]
struct State {
    parameters: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    average: Option<Vec<f32>>,
}

impl State {
    fn new(parameters: Vec<f32>) -> Self {
        let zeros = vec![0.0; parameters.len()];
        Self { parameters, first: zeros.clone(), second: zeros, average: None }
    }

    fn update(&mut self, isa: Isa, settings: &Adam, gradients: &[f32], crew: Parallelism<'_>) {
        let Self { parameters, first, second, average } = self;
        let average = average.as_deref_mut().map(|average| (average, 0.99));
        let moments = Moments { first, second };
        adam(Exec::new(isa, crew), settings, parameters, gradients, moments, average)
            .expect("a fit");
    }

    fn bits(&self) -> Vec<u32> {
        let parts = [&self.parameters, &self.first, &self.second];
        let average = self.average.iter().flat_map(|average| bits(average));
        parts.into_iter().flat_map(|part| bits(part)).chain(average).collect()
    }
}

const BEFORE: [f32; 4] = [1.0, -0.5, 0.25, 3.0];
const GRADIENTS: [[f32; 4]; 3] =
    [[0.5, -0.25, 1e-3, 2.0], [-0.125, -0.75, 2e-3, 0.0], [0.25, 0.5, -1e-6, -4.0]];

/// `torch.optim.AdamW(lr=0.01, betas=(0.9, beta2), eps=epsilon, weight_decay=decay)` of PyTorch 2.15, after
/// the three gradients above, in f64.
const TORCH: [(f64, f64, f64, [f64; 4]); 3] = [
    (
        0.98,
        1e-9,
        0.0,
        [
            0.979_197_224_203_393_5,
            -0.478_283_388_227_061_8,
            0.222_903_126_896_441_5,
            2.986_647_826_044_648_7,
        ],
    ),
    (
        0.999,
        1e-8,
        0.0,
        [
            0.979_250_577_814_684_4,
            -0.478_243_151_371_138_1,
            0.222_890_372_839_414_3,
            2.986_699_762_246_751_3,
        ],
    ),
    (
        0.98,
        1e-9,
        0.1,
        [
            0.976_224_927_906_114_7,
            -0.476_814_020_508_249,
            0.222_183_490_768_997_8,
            2.977_683_546_042_328_5,
        ],
    ),
];

#[test]
fn trap_16_three_updates_are_pytorchs() {
    for (beta2, epsilon, weight_decay, expected) in TORCH {
        let settings = |step: usize| Adam {
            rate: 0.01,
            beta2,
            epsilon,
            weight_decay,
            step: step as u64 + 1,
            ..Adam::default()
        };
        for (i, &expected) in expected.iter().enumerate() {
            let mut state = [f64::from(BEFORE[i]), 0.0, 0.0];
            for (step, gradients) in GRADIENTS.iter().enumerate() {
                // The golden run used 1e-3 and 1e-6 in f64.
                let gradient = (f64::from(gradients[i]) * 1e9).round() / 1e9;
                state = oracle::adam(&settings(step), state, gradient);
            }
            assert!((state[0] - expected).abs() <= 1e-14, "{} for {expected}", state[0]);
        }
        for isa in all_isas() {
            let mut state = State::new(BEFORE.to_vec());
            for (step, gradients) in GRADIENTS.iter().enumerate() {
                state.update(isa, &settings(step), gradients, SERIAL);
            }
            for (found, expected) in state.parameters.iter().zip(expected) {
                // Two units in the last place of the sum.
                let bound = 4.0 * UNIT * (expected.abs() + 3.0 * 0.01);
                assert_close(*found, expected, bound, format_args!("{isa}, {beta2}"));
            }
        }
    }
}

proptest! {
    #[test]
    fn updates_match_the_oracle(
        len in 0usize..70,
        steps in 1u64..9,
        start in 0u64..100_000,
        rate in prop_oneof![Just(1e-3f64), Just(0.0), Just(0.3)],
        betas in prop_oneof![Just((0.9, 0.98)), Just((0.9, 0.999)), Just((0.0, 0.0))],
        epsilon in prop_oneof![Just(1e-8f64), Just(1e-9), Just(1e-5)],
        weight_decay in prop_oneof![Just(0.0f64), Just(0.1)],
        clip in prop_oneof![Just(1.0f64), Just(0.37)],
        magnitude in prop_oneof![Just(1.0f32), Just(1e-6), Just(1e4)],
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let before = random.values(len);
        let gradients: Vec<Vec<f32>> = (0..steps)
            .map(|_| (0..len).map(|_| magnitude * random.value()).collect())
            .collect();
        let settings = |step: u64| Adam {
            rate,
            beta1: betas.0,
            beta2: betas.1,
            epsilon,
            weight_decay,
            step: start + step + 1,
            clip,
        };
        let mut first: Option<Vec<u32>> = None;
        for isa in all_isas() {
            let mut state = State::new(before.clone());
            state.average = Some(before.clone());
            for (step, gradients) in gradients.iter().enumerate() {
                state.update(isa, &settings(step as u64), gradients, SERIAL);
            }
            for i in 0..len {
                let mut exact = [f64::from(before[i]), 0.0, 0.0];
                let (mut average, mut absolute) = (exact[0], 0.0);
                let (mut bound, mut average_bound) = (0.0, 0.0);
                for (step, gradients) in gradients.iter().enumerate() {
                    let settings = settings(step as u64);
                    let gradient = f64::from(gradients[i]);
                    exact = oracle::adam(&settings, exact, gradient);
                    absolute = betas.0 * absolute + (1.0 - betas.0) * (gradient * clip).abs();
                    let [one, two] =
                        [betas.0, betas.1].map(|beta| 1.0 - beta.powf(settings.step as f64));
                    let root = (exact[2] / two).sqrt() + epsilon;
                    let t = step as f64 + 1.0;
                    let roundings = 5.0 * t + 17.0;
                    bound += UNIT * (3.0 * exact[0].abs() + roundings * rate / one * absolute / root)
                        // Gradients below 2^-50 count as 0.
                        + 8.9e-16 * rate / epsilon;
                    average += 0.01 * (exact[0] - average);
                    average_bound += 4.0 * UNIT * (average.abs() + exact[0].abs());
                    if t as u64 == steps {
                        let tiny = 1e-30;
                        assert_close(state.parameters[i], exact[0], bound, "parameter");
                        let bound1 = (3.0 * t + 5.0) * UNIT * absolute + tiny;
                        assert_close(state.first[i], exact[1], bound1 + 8.9e-16, "first");
                        let bound2 = (3.0 * t + 8.0) * UNIT * exact[2] + tiny;
                        assert_close(state.second[i], exact[2], bound2, "second");
                        let kept = state.average.as_ref().expect("there is one")[i];
                        assert_close(kept, average, bound + average_bound, "average");
                    }
                }
            }
            let first = first.get_or_insert_with(|| state.bits());
            assert!(*first == state.bits(), "{isa}");
        }
    }
}

#[test]
fn threads_change_nothing() {
    let mut random = Random::new(4);
    for len in [1, 16_384, 16_385, 70_001] {
        let (before, gradients) = (random.values(len), random.values(len));
        let settings = Adam { weight_decay: 0.01, ..Adam::default() };
        for isa in all_isas() {
            let run = |parallelism: Parallelism<'_>| {
                let mut state = State::new(before.clone());
                state.average = Some(before.clone());
                state.update(isa, &settings, &gradients, parallelism);
                state.update(isa, &Adam { step: 2, ..settings }, &gradients, parallelism);
                let mut partials = vec![f64::NAN; sum_of_squares_scratch(len).expect("a length")];
                let norm =
                    sum_of_squares(Exec::new(isa, parallelism), &state.parameters, &mut partials);
                let mut mean = vec![f32::NAN; len];
                let vectors = [&before[..], &state.parameters, &gradients];
                average(Exec::new(isa, parallelism), &vectors, &mut mean).expect("a fit");
                (state.bits(), norm.expect("space").to_bits(), bits(&mean))
            };
            let serial = run(SERIAL);
            for crew in CREWS {
                assert!(crew.with_parallelism(run) == serial, "{isa}, {crew:?}");
            }
        }
    }
}

/// A row that is not looked up any more: its moments become 0 without subnormal values in between.
#[test]
fn trap_18_moments_of_unused_rows_become_zero() {
    for isa in all_isas() {
        for beta2 in [0.9, 0.98] {
            let mut state = State::new(vec![0.5, -1.0, 1e-3, 0.0, 2.0]);
            let (settings, gradients) =
                (Adam { beta2, ..Adam::default() }, [1e-2, -30.0, 1e-9, 1e-18, 1e-30]);
            state.update(isa, &settings, &gradients, SERIAL);
            let after = state.parameters[1];
            for step in 2..6000 {
                state.update(isa, &Adam { beta2, step, ..Adam::default() }, &[0.0; 5], SERIAL);
                let moments = state.first.iter().chain(&state.second);
                for moment in moments {
                    assert!(*moment == 0.0 || moment.is_normal(), "{isa}: {moment:e} at {step}");
                }
            }
            assert!(state.first.iter().chain(&state.second).all(|x| x.to_bits() == 0));
            assert!((state.parameters[1] - after).abs() < 0.02);
            // Gradients whose squares underflow count as 0.
            assert_eq!(state.parameters[3..], [0.0, 2.0]);
        }
    }
}

#[test]
fn nan_stays_nan() {
    for isa in all_isas() {
        let mut state = State::new(vec![1.0; 3]);
        state.update(isa, &Adam::default(), &[f32::NAN, f32::INFINITY, 1.0], SERIAL);
        assert!(state.parameters[0].is_nan() && state.first[0].is_nan());
        assert!(state.parameters[1].is_nan() && state.parameters[2] < 1.0);
    }
}

#[test]
fn wrong_updates_are_errors_that_write_nothing() {
    let check = |settings: Adam, name: &str| {
        let (mut p, mut m, mut v) = ([1.0; 3], [2.0; 3], [3.0; 3]);
        let isa = Isa::best();
        let moments = Moments { first: &mut m, second: &mut v };
        let error = adam(Exec::serial(isa), &settings, &mut p, &[1.0; 3], moments, None);
        let error = error.expect_err("refused");
        assert!(matches!(error, Error::Setting { name: found, .. } if found == name), "{error}");
        assert!(error.to_string().contains(name));
        assert_eq!((p, m, v), ([1.0; 3], [2.0; 3], [3.0; 3]));
    };
    let fine = Adam::default();
    check(Adam { rate: -1.0, ..fine }, "the rate");
    check(Adam { rate: f64::NAN, ..fine }, "the rate");
    check(Adam { beta1: 1.0, ..fine }, "beta1");
    check(Adam { beta2: -0.1, ..fine }, "beta2");
    check(Adam { epsilon: 0.0, ..fine }, "epsilon");
    check(Adam { epsilon: 1e-60, ..fine }, "epsilon");
    check(Adam { weight_decay: f64::INFINITY, ..fine }, "the weight decay");
    check(Adam { clip: f64::NAN, ..fine }, "the clip factor");
    check(Adam { step: 0, ..fine }, "the step");

    let (mut p, mut m, mut v, mut a) = ([1.0; 3], [2.0; 3], [3.0; 3], [4.0; 3]);
    let isa = Isa::best();
    let mut call = |g: usize, first: usize, second: usize, mean: usize, decay: f32| {
        let gradients = [1.0; 3];
        let average = Some((&mut a[..mean], decay));
        let moments = Moments { first: &mut m[..first], second: &mut v[..second] };
        let result = adam(Exec::serial(isa), &fine, &mut p, &gradients[..g], moments, average);
        assert_eq!((p, m, v, a), ([1.0; 3], [2.0; 3], [3.0; 3], [4.0; 3]));
        result.expect_err("refused")
    };
    let length = |name, found| errors::len(name, 3, found);
    assert_eq!(call(2, 3, 3, 3, 0.5), length("gradients", 2));
    assert_eq!(call(3, 1, 3, 3, 0.5), length("moments.first", 1));
    assert_eq!(call(3, 3, 0, 3, 0.5), length("moments.second", 0));
    let error = call(3, 3, 3, 2, 0.5);
    assert_eq!(error.to_string(), "length of average: expected 3, found 2");
    let error = call(3, 3, 3, 3, 1.5);
    assert_eq!(error.to_string(), "the decay of the average: expected from 0 to 1, found 1.5");
}

#[test]
fn sums_of_squares_are_exact_except_for_f64_rounding() {
    let mut random = Random::new(6);
    for len in [0, 1, 63, 64, 65, 4095, 4096, 4097, 50_000] {
        for magnitude in [1.0, 1e-25, 1e19, f32::MAX, f32::MIN_POSITIVE / 1000.0] {
            let x: Vec<f32> = (0..len).map(|_| magnitude * random.value()).collect();
            // Kahan summation.
            let (mut exact, mut lost) = (0.0f64, 0.0f64);
            for &x in &x {
                let part = f64::from(x) * f64::from(x) - lost;
                let sum = exact + part;
                (lost, exact) = ((sum - exact) - part, sum);
            }
            let mut first = None;
            for isa in all_isas() {
                let mut partials = vec![f64::NAN; sum_of_squares_scratch(len).expect("a length")];
                let found = sum_of_squares(Exec::serial(isa), &x, &mut partials).expect("space");
                let bound = (len as f64 / 4096.0 + 75.0) * f64::EPSILON / 2.0 * exact;
                assert!((found - exact).abs() <= bound, "{isa}: {found} for {exact}");
                assert!(exact == 0.0 || found > 0.0);
                assert_eq!(found.to_bits(), *first.get_or_insert(found.to_bits()));
            }
        }
    }
}

#[test]
fn a_sum_is_finite_exactly_if_all_elements_are() {
    let mut x = vec![f32::MAX; 9000];
    let mut partials = [0.0; 3];
    for isa in all_isas() {
        let mut sum =
            |x: &[f32]| sum_of_squares(Exec::serial(isa), x, &mut partials).expect("space");
        assert!(sum(&x).is_finite());
        for at in [0, 4095, 5000, 8999] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                x[at] = bad;
                assert!(!sum(&x).is_finite());
            }
            x[at] = f32::MAX;
        }
    }
    let error = sum_of_squares(Exec::serial(Isa::best()), &x, &mut partials[..2]);
    assert_eq!(error, Err(errors::min_len("partials", 3, 2)));
}

#[test]
fn a_factor_clips_large_norms_and_rejects_nan() {
    assert_eq!(clip_factor(0.0, 1.0), Some(1.0));
    assert_eq!(clip_factor(1e30, f64::INFINITY), Some(1.0));
    assert_eq!(clip_factor(3.0, 1.5), Some(1.5 / 3.000_001));
    for norm in [f64::NAN, f64::INFINITY] {
        assert_eq!(clip_factor(norm, 1.0), None);
    }
}

#[test]
fn an_average_is_the_mean() {
    let mut random = Random::new(7);
    for count in [1, 2, 5, 20] {
        for len in [0, 1, 63, 64, 65, 20_000] {
            let vectors: Vec<Vec<f32>> = (0..count).map(|_| random.values(len)).collect();
            let slices: Vec<&[f32]> = vectors.iter().map(|vector| &vector[..]).collect();
            let mut expected = None;
            for isa in all_isas() {
                let mut mean = vec![f32::NAN; len];
                average(Exec::serial(isa), &slices, &mut mean).expect("a fit");
                for i in 0..len {
                    let sum: f64 = vectors.iter().map(|vector| f64::from(vector[i])).sum();
                    let exact = sum / f64::from(count);
                    assert!((f64::from(mean[i]) - exact).abs() <= 1.001 * UNIT * exact.abs());
                }
                assert_eq!(bits(&mean), *expected.get_or_insert(bits(&mean)));
            }
        }
    }
    let mut mean = [5.0; 2];
    let isa = Isa::best();
    assert_eq!(average(Exec::serial(isa), &[], &mut mean), Err(errors::min_len("vectors", 1, 0)));
    let error = average(Exec::serial(isa), &[&[1.0, 2.0], &[1.0]], &mut mean).expect_err("refused");
    assert_eq!(error.to_string(), "length of vectors: expected 2, found 1");
    assert_eq!(mean, [5.0; 2]);
}
