//! The pictures of training: the learning rate of the paper, and the loss of a short run. Only with the feature `train`.

use crate::Failure;
use crate::pictures::COLORS;
use crate::svg::{Frame, Svg};
use simdformer::train::Schedule;
use simdformer_testing::lesson;

/// The paper (no document has it): the rate of `Schedule::Paper` for three models.
pub(crate) fn warm_up() -> Result<String, Failure> {
    const STEPS: u64 = 20_000;
    const HIGHEST: f64 = 0.001;
    let mut svg = Svg::new(
        900.0,
        460.0,
        "Learning rate: d_model^-0.5 min(step^-0.5, step warmup^-1.5) (the paper)",
    );
    let frame = Frame { x: 80.0, y: 70.0, width: 780.0, height: 310.0 };
    svg.axes(frame, ["step 0", "20,000"], ["0", &format!("{HIGHEST}")]);
    let settings = [(512, 4000), (512, 8000), (256, 4000)];
    for (at, (color, (d_model, warmup))) in COLORS.iter().zip(settings).enumerate() {
        let schedule = Schedule::Paper { d_model, factor: 1.0, warmup };
        let point =
            |step: u64| [step as f32 / STEPS as f32, (schedule.rate(step) / HIGHEST) as f32];
        svg.curve(frame, (1..=STEPS).step_by(50).map(point), color);
        let y = 96.0 + 22.0 * at as f32;
        svg.line([510.0, y - 4.0], [540.0, y - 4.0], color, 2.0, 1.0);
        let peak = schedule.rate(warmup);
        let text = format!("d_model {d_model}, warm-up {warmup}: at most {peak:.2e}");
        svg.label(550.0, y, 12.0, "start", &text);
    }
    let note = "It rises linearly to its largest value at the end of the warm-up, then falls with the square root of the step.";
    svg.label(24.0, 430.0, 12.0, "start", note);
    Ok(svg.finish())
}

/// The loss of `navigate --training`: two sentences, 200 steps from random weights.
pub(crate) fn loss() -> Result<String, Failure> {
    let lesson = lesson::learn().map_err(|error| error.to_string())?;
    let losses: Vec<f64> = lesson.course.iter().map(|step| step.totals.mean_loss()).collect();
    let rates: Vec<f64> = lesson.course.iter().map(|step| step.rate).collect();
    let floor = lesson::floor(lesson.options.smoothing);
    let highest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let title = "Loss of a short training: \"je suis étudiant\" and \"merci\", 200 steps (words of document 003)";
    let mut svg = Svg::new(900.0, 520.0, title);
    let steps = losses.len();
    let upper = Frame { x: 80.0, y: 80.0, width: 780.0, height: 260.0 };
    let lower = Frame { x: 80.0, y: 400.0, width: 780.0, height: 60.0 };
    for (frame, name, numbers, digits) in [
        (upper, "mean loss of a target token, in nats", &losses, 2),
        (lower, "learning rate", &rates, 3),
    ] {
        let most = highest(numbers);
        svg.label(frame.x, frame.y - 8.0, 12.0, "start", name);
        svg.axes(frame, ["step 1", &format!("{steps}")], ["0", &format!("{most:.digits$}")]);
        let point = |(i, x): (usize, &f64)| [i as f32 / (steps - 1) as f32, (x / most) as f32];
        svg.curve(frame, numbers.iter().enumerate().map(point), COLORS[0]);
    }
    let y = upper.y + upper.height * (1.0 - (floor / highest(&losses)) as f32);
    svg.line([upper.x, y], [upper.x + upper.width, y], COLORS[1], 1.0, 1.0);
    let least = format!(
        "{floor:.3}: the least that label smoothing of {} permits",
        lesson.options.smoothing.epsilon
    );
    svg.label(upper.x + upper.width - 8.0, y - 6.0, 11.0, "end", &least);
    let last = losses.last().copied().unwrap_or_default();
    let note = format!(
        "The loss falls from {:.3} to {last:.3}.",
        losses.first().copied().unwrap_or_default()
    );
    svg.label(24.0, 500.0, 12.0, "start", &note);
    Ok(svg.finish())
}
