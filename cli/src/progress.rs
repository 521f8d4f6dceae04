//! Progress on standard error; nothing is drawn if it is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;

/// Progress of loading a model.
pub(crate) fn loading(quiet: bool) -> ProgressBar {
    bar("loading: {percent} % of {total_bytes}, {msg}", quiet)
}

/// Progress of a download of `total` bytes.
#[cfg(feature = "hub")]
pub(crate) fn download(total: u64, quiet: bool) -> ProgressBar {
    let bar = bar("downloading: {percent} % of {total_bytes}, {bytes_per_sec}, {msg}", quiet);
    bar.set_length(total);
    bar
}

/// Progress of work whose amount is not known: how many of `unit` are done, and how many a second.
pub(crate) fn counter(unit: &'static str, quiet: bool) -> ProgressBar {
    bar("{pos} {msg}, {rate} a second", quiet).with_message(unit)
}

/// One line of text that changes.
#[cfg(feature = "transcribe")]
pub(crate) fn line(quiet: bool) -> ProgressBar {
    bar("{wide_msg}", quiet)
}

fn bar(template: &str, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let rate = |state: &ProgressState, out: &mut dyn Write| {
        // If progress cannot be written, the write error is ignored.
        let _ = write!(out, "{:.1}", state.per_sec());
    };
    ProgressBar::with_draw_target(None, target).with_style(style.with_key("rate", rate))
}
