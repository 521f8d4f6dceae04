//! The learning rate of each step.

use simdformer_kernels::Error;
use simdformer_kernels::train::Schedule;

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} for {expected}");
}

/// Steps are counted from 1. The first step has a learning rate, the largest rate is at the end of the
/// warmup, and the rate decreases after it.
#[test]
fn the_first_rate_the_peak_and_the_rate_after_it() {
    let w = 4000;
    let peak = 1.0 / (512.0f64 * 4000.0).sqrt();
    let schedule = Schedule::paper(512);
    close(schedule.rate(1), peak / 4000.0);
    close(schedule.rate(w), peak);
    close(schedule.rate(w + 1), 1.0 / (512.0f64 * 4001.0).sqrt());
    close(peak, 6.987_712_429_686_843e-4);
    let peak = 5e-4;
    for schedule in [
        Schedule::Constant { peak, warmup: w },
        Schedule::InverseSquareRoot { peak, warmup: w },
        Schedule::Linear { peak, warmup: w, steps: 100_000, last: 0.1 },
        Schedule::Cosine { peak, warmup: w, steps: 100_000, last: 0.1 },
    ] {
        close(schedule.rate(1), peak / 4000.0);
        assert_eq!(schedule.rate(0), schedule.rate(1));
        close(schedule.rate(w), peak);
        let after = schedule.rate(w + 1);
        let constant = matches!(schedule, Schedule::Constant { .. });
        assert!(if constant { after == peak } else { after < peak && after > 0.999 * peak });
    }
}

#[test]
fn schedules_match_their_definitions() {
    let paper = Schedule::Paper { d_model: 512, factor: 2.0, warmup: 8000 };
    close(paper.rate(8000), 2.0 / (512.0f64 * 8000.0).sqrt());
    let root = Schedule::InverseSquareRoot { peak: 3e-4, warmup: 16_000 };
    close(root.rate(64_000), 1.5e-4);
    close(Schedule::InverseSquareRoot { peak: 1.0, warmup: 0 }.rate(4), 0.5);
    for (schedule, half) in [
        (Schedule::Linear { peak: 1.0, warmup: 10, steps: 110, last: 0.2 }, 0.6),
        (Schedule::Cosine { peak: 1.0, warmup: 10, steps: 110, last: 0.2 }, 0.6),
    ] {
        close(schedule.rate(60), half);
        close(schedule.rate(110), 0.2);
        close(schedule.rate(u64::MAX), 0.2);
        let rates: Vec<f64> = (10..=120).map(|step| schedule.rate(step)).collect();
        assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
    }
    close(Schedule::Cosine { peak: 1.0, warmup: 0, steps: 100, last: 0.0 }.rate(25), {
        0.5 + 0.5 * (0.25 * core::f64::consts::PI).cos()
    });
    assert_eq!(Schedule::Constant { peak: 0.5, warmup: 0 }.rate(1), 0.5);
}

#[test]
fn settings_out_of_range_are_errors_and_others_give_rates() {
    let linear = |peak, warmup, steps, last| Schedule::Linear { peak, warmup, steps, last };
    for (schedule, name) in [
        (Schedule::Constant { peak: -1.0, warmup: 3 }, "the peak"),
        (Schedule::InverseSquareRoot { peak: f64::NAN, warmup: 3 }, "the peak"),
        (Schedule::Paper { d_model: 0, factor: 1.0, warmup: 1 }, "d_model"),
        (Schedule::Paper { d_model: 1, factor: f64::INFINITY, warmup: 1 }, "the factor"),
        (Schedule::Paper { d_model: 1, factor: 1.0, warmup: 0 }, "the warm-up"),
        (linear(1.0, 5, 5, 0.0), "the last step"),
        (linear(1.0, 5, 6, 1.5), "the final fraction of the peak"),
        (Schedule::Cosine { peak: 1.0, warmup: 0, steps: 0, last: 0.0 }, "the last step"),
    ] {
        let error = schedule.check().expect_err("refused");
        assert!(matches!(error, Error::Setting { name: found, .. } if found == name));
        assert!(error.to_string().starts_with(name), "{error}");
    }
    for schedule in [
        Schedule::paper(1),
        Schedule::Paper { d_model: usize::MAX, factor: 0.0, warmup: u64::MAX },
        Schedule::Constant { peak: 0.0, warmup: u64::MAX },
        Schedule::InverseSquareRoot { peak: 1.0, warmup: 0 },
        linear(1.0, 0, 1, 0.0),
        linear(1.0, u64::MAX - 1, u64::MAX, 1.0),
        Schedule::Cosine { peak: 1e300, warmup: 7, steps: u64::MAX, last: 0.5 },
    ] {
        assert_eq!(schedule.check(), Ok(()));
        for step in [0, 1, 2, 100, u64::MAX] {
            let rate = schedule.rate(step);
            assert!(rate.is_finite() && rate >= 0.0, "{schedule:?} at {step}: {rate}");
        }
    }
}
