//! Progress output during training: a line per interval, and a progress bar on a terminal.

use super::judge::Judged;
use super::metrics::Line;
use super::peak::Work;
use simdformer_train::{StepRecord, Validation};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The interval between redraws of the bar.
const REDRAW: Duration = Duration::from_millis(200);
const BAR: usize = 24;

/// Accumulates steps, and prints a line per interval.
pub(crate) struct Report {
    every: u64,
    steps: Option<u64>,
    work: Work,
    /// The peak operations per second of all threads.
    peak: Option<f64>,
    began: Instant,
    began_at: Option<u64>,
    /// Since the last line.
    since: Since,
    bar: Option<Instant>,
    terminal: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Since {
    steps: u64,
    tokens: u64,
    source_tokens: u64,
    loss: f64,
    nll: f64,
    norm: f64,
    skipped: u64,
    clipped: u64,
    /// The time of the steps, without the validations and saves between them.
    seconds: f64,
}

impl Report {
    pub(crate) fn new(every: u64, steps: Option<u64>, work: Work, peak: Option<f64>) -> Self {
        Self {
            every: every.max(1),
            steps,
            work,
            peak,
            began: Instant::now(),
            began_at: None,
            since: Since::default(),
            bar: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Reports a step that took `seconds`; returns the line if one was due.
    pub(crate) fn step(&mut self, record: &StepRecord, seconds: f64) -> io::Result<Option<Line>> {
        let began_at = *self.began_at.get_or_insert(record.step - 1);
        let since = &mut self.since;
        since.steps += 1;
        since.tokens += record.totals.tokens;
        since.source_tokens += record.source_tokens;
        since.loss += record.totals.loss;
        since.nll += record.totals.nll;
        since.norm += record.update.norm;
        since.skipped += u64::from(record.update.skipped);
        since.clipped += u64::from(record.update.clipped);
        since.seconds += seconds;
        let done = self.steps.is_some_and(|steps| record.step >= steps);
        if !record.step.is_multiple_of(self.every) && !done {
            let now = Instant::now();
            if self.terminal && self.bar.is_none_or(|bar| now - bar > REDRAW) {
                self.bar = Some(now);
                self.draw(record.step, began_at)?;
            }
            return Ok(None);
        }
        let Since { steps, tokens, source_tokens, loss, nll, norm, skipped, seconds, clipped } =
            self.since;
        self.since = Since::default();
        let operations = self.work.operations(source_tokens, tokens);
        let line = Line {
            step: record.step,
            epoch: record.epoch,
            loss: loss / tokens as f64,
            nll: nll / tokens as f64,
            norm: norm / steps as f64,
            rate: record.rate,
            tokens_per_second: tokens as f64 / seconds,
            of_peak: self.peak.map(|peak| operations / seconds / peak),
        };
        self.clear()?;
        let mut out = io::stdout().lock();
        write!(
            out,
            "step {}{}",
            line.step,
            self.steps.map_or(String::new(), |all| format!("/{all}"))
        )?;
        write!(out, "  epoch {:.2}  loss {:.4}  nll {:.4}", line.epoch, line.loss, line.nll)?;
        write!(out, "  norm {:.3}  rate {:.2e}", line.norm, line.rate)?;
        write!(out, "  {:.0} tokens/s", line.tokens_per_second)?;
        if let Some(of_peak) = line.of_peak {
            write!(out, "  {:.0} % of peak", 100.0 * of_peak)?;
        }
        if let Some(left) = self.left(record.step, began_at) {
            write!(out, "  {} left", clock(left))?;
        }
        if 2 * clipped > steps {
            write!(out, "  clipped {clipped} of {steps}")?;
        }
        if skipped > 0 {
            write!(out, "  SKIPPED {skipped}: gradients that are not finite")?;
        }
        writeln!(out)?;
        out.flush()?;
        Ok(Some(line))
    }

    fn left(&self, step: u64, began_at: u64) -> Option<f64> {
        let left = self.steps?.saturating_sub(step) as f64;
        let done = (step - began_at).max(1) as f64;
        Some(self.began.elapsed().as_secs_f64() / done * left)
    }

    fn draw(&self, step: u64, began_at: u64) -> io::Result<()> {
        let Since { tokens, loss, seconds, .. } = self.since;
        let mut out = io::stderr().lock();
        write!(out, "\r\x1b[2K")?;
        if let (Some(steps), Some(left)) = (self.steps, self.left(step, began_at)) {
            let full = (BAR as u64 * step / steps.max(1)).min(BAR as u64) as usize;
            let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
            write!(out, "[{bar}] {step}/{steps}  {} left", clock(left))?;
        } else {
            write!(out, "step {step}")?;
        }
        write!(out, "  loss {:.4}  {:.0} tokens/s", loss / tokens as f64, tokens as f64 / seconds)?;
        out.flush()
    }

    /// Erases the bar.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if self.terminal && self.bar.take().is_some() {
            let mut out = io::stderr().lock();
            write!(out, "\r\x1b[2K")?;
            out.flush()?;
        }
        Ok(())
    }

    /// Reports a validation, and prints sample translations.
    pub(crate) fn validation(
        &mut self,
        found: &Validation,
        judged: Option<&Judged>,
        sentences: usize,
        words: &dyn Fn(&[u32]) -> String,
    ) -> io::Result<()> {
        self.clear()?;
        let mut out = io::stdout().lock();
        let totals = &found.totals;
        write!(out, "  held out: loss {:.4}  nll {:.4}", totals.mean_loss(), totals.mean_nll())?;
        write!(out, "  perplexity {:.3}", totals.mean_nll().exp())?;
        write!(out, "  {:.2} % of tokens", 100.0 * totals.accuracy())?;
        if let Some(judged) = judged {
            write!(out, "  {} of {sentences} exact", judged.exact)?;
        }
        writeln!(out, "{}", if found.best { "  * best" } else { "" })?;
        for [source, target, said] in judged.iter().flat_map(|judged| &judged.samples) {
            show(&mut out, [source, target, said].map(|ids| words(ids)))?;
        }
        out.flush()
    }
}

/// Prints a translation, and the expected one if it differs.
pub(crate) fn show(out: &mut dyn Write, [source, target, said]: [String; 3]) -> io::Result<()> {
    match said == target {
        true => writeln!(out, "    {source}  ->  {said}"),
        false => writeln!(out, "    {source}  ->  {said}  (not: {target})"),
    }
}

/// Minutes and seconds, and hours if there are any.
pub(crate) fn clock(seconds: f64) -> String {
    let all = seconds.round() as u64;
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}
