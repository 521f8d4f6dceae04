//! Writes the measurements as lines of JSON, and draws the loss curve.

use serde_json::{Value, json};
use simdformer::atomic_file;
use simdformer_train::Validation;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Means over the steps since the last line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) step: u64,
    pub(crate) epoch: f64,
    pub(crate) loss: f64,
    pub(crate) nll: f64,
    pub(crate) norm: f64,
    pub(crate) rate: f64,
    pub(crate) tokens_per_second: f64,
    pub(crate) of_peak: Option<f64>,
}

/// `metrics.jsonl` and `loss.svg` of a directory.
pub(crate) struct Metrics {
    directory: PathBuf,
    file: File,
    /// Step and loss, for the training sentences and for the validation sentences.
    learned: Vec<(u64, f64)>,
    held_out: Vec<(u64, f64)>,
}

impl Metrics {
    /// Keeps the lines up to `step` and appends; the steps of an interrupted run after its last save are repeated.
    pub(crate) fn open(directory: &Path, step: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join("metrics.jsonl");
        let (mut kept, mut learned, mut held_out) = (String::new(), Vec::new(), Vec::new());
        if step > 0 && path.exists() {
            for line in fs::read_to_string(&path)?.lines() {
                let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
                let Some(at) = value["step"].as_u64().filter(|&at| at <= step) else { continue };
                if let Some(loss) = value["loss"].as_f64() {
                    learned.push((at, loss));
                }
                if let Some(loss) = value["validation_loss"].as_f64() {
                    held_out.push((at, loss));
                }
                kept.push_str(line);
                kept.push('\n');
            }
        }
        atomic_file::write(&path, kept)?;
        let file = File::options().append(true).open(&path)?;
        Ok(Self { directory: directory.to_owned(), file, learned, held_out })
    }

    pub(crate) fn line(&mut self, line: &Line) -> io::Result<()> {
        self.learned.push((line.step, line.loss));
        let Line { step, epoch, loss, nll, norm, rate, tokens_per_second, of_peak } = *line;
        writeln!(
            self.file,
            "{}",
            json!({
                "step": step, "epoch": epoch, "loss": loss, "nll": nll, "gradient_norm": norm,
                "rate": rate, "target_tokens_per_second": tokens_per_second, "of_peak": of_peak,
            })
        )
    }

    pub(crate) fn validation(&mut self, found: &Validation) -> io::Result<()> {
        let totals = &found.totals;
        self.held_out.push((found.step, totals.mean_loss()));
        writeln!(
            self.file,
            "{}",
            json!({
                "step": found.step, "validation_loss": totals.mean_loss(),
                "validation_nll": totals.mean_nll(), "perplexity": totals.mean_nll().exp(),
                "accuracy": totals.accuracy(), "exact": found.judged, "best": found.best,
            })
        )?;
        self.draw()
    }

    /// Replaces `loss.svg`.
    pub(crate) fn draw(&self) -> io::Result<()> {
        if self.learned.len() < 2 {
            return Ok(());
        }
        let drawn = curve(&self.learned, &self.held_out);
        atomic_file::write(self.directory.join("loss.svg"), drawn)
    }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 56.0;

/// An SVG of both losses over the steps, with a logarithmic loss axis.
pub(crate) fn curve(learned: &[(u64, f64)], held_out: &[(u64, f64)]) -> String {
    let points = || learned.iter().chain(held_out).filter(drawn);
    let last = points().map(|&(step, _)| step).max().unwrap_or(1).max(1) as f64;
    let low = points().map(|&(_, loss)| loss).fold(f64::INFINITY, f64::min);
    let high = points().map(|&(_, loss)| loss).fold(0.0, f64::max);
    let (low, high) = match low < high {
        true => ((0.95 * low).ln(), (1.05 * high).ln()),
        false => (-1.0, 1.0),
    };
    let x = |step: f64| LEFT + step / last * (WIDTH - LEFT - RIGHT);
    let y = |loss: f64| TOP + (high - loss.ln()) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    let mut text = |at: [f64; 2], anchor: &str, color: &str, what: &str| {
        let [x, y] = at;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{what}</text>"
        );
    };
    text([(LEFT + right) / 2.0, HEIGHT - 14.0], "middle", "#333333", "step");
    text([LEFT, 22.0], "start", "#333333", "loss of a token, in nats");
    text([right - 150.0, 22.0], "end", "#1f5fa8", "learned from");
    text([right, 22.0], "end", "#c2410c", "held out");
    let losses = ticks(low.exp(), high.exp());
    for &loss in &losses {
        text([LEFT - 8.0, y(loss) + 4.5], "end", "#333333", &format!("{loss}"));
    }
    let steps: Vec<f64> = {
        let stride = nice(last / 6.0);
        (0..).map(|i| f64::from(i) * stride).take_while(|&step| step <= last).collect()
    };
    for &step in &steps {
        text([x(step), bottom + 20.0], "middle", "#333333", &format!("{step}"));
    }
    for loss in losses {
        let y = y(loss);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\" stroke-width=\"1\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333333\" stroke-width=\"1\"/>"
    );
    let mut line = |points: &[(u64, f64)], color: &str| {
        let mut path = String::new();
        for &(step, loss) in points.iter().filter(drawn) {
            let begin = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{begin}{:.1} {:.1}", x(step as f64), y(loss));
        }
        if !path.is_empty() {
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\" \
                 stroke-linejoin=\"round\"/>"
            );
        }
    };
    line(learned, "#1f5fa8");
    line(held_out, "#c2410c");
    for &(step, loss) in held_out.iter().filter(drawn) {
        let (x, y) = (x(step as f64), y(loss));
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#c2410c\"/>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Whether a loss can be drawn on a logarithmic axis.
fn drawn((_, loss): &&(u64, f64)) -> bool {
    *loss > 0.0 && loss.is_finite()
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|&s| s >= least)
        .unwrap_or(power)
}

/// The tick values of the loss axis.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let all = [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0,
        3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    ];
    all.into_iter().filter(|loss| (low..=high).contains(loss)).collect()
}
