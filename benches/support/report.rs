//! Prints rows as a table or as JSON.

use serde::Serialize;

/// One kernel on one shape.
#[derive(Serialize)]
pub(crate) struct ReportRow {
    pub(crate) kernel: String,
    pub(crate) shape: String,
    pub(crate) threads: usize,
    pub(crate) isa: &'static str,
    /// The median of the seconds of one call.
    pub(crate) seconds: f64,
    /// The work of one call divided by `seconds`; with copies, of all copies.
    pub(crate) rate: f64,
    /// The unit of `rate` and `limit`.
    pub(crate) unit: &'static str,
    /// The median of the binding limit.
    pub(crate) limit: f64,
    pub(crate) limit_of: &'static str,
    /// The median of the ratios within a round.
    pub(crate) fraction: f64,
}

/// Prints each row when it is measured.
pub(crate) struct Report {
    json: bool,
    empty: bool,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, empty: true }
    }

    pub(crate) fn row(&mut self, row: &ReportRow) {
        if self.json {
            println!("{}", serde_json::to_string(row).expect("a row is plain data"));
            return;
        }
        if self.empty {
            println!(
                "{:<22} {:<16} {:>3} {:<7} {:>10} {:>9} {:>9} {:<8} {:<15} {:>8}",
                "kernel", "shape", "thr", "isa", "time", "rate", "limit", "unit", "of", "fraction"
            );
        }
        self.empty = false;
        println!(
            "{:<22} {:<16} {:>3} {:<7} {:>10} {:>9.2} {:>9.2} {:<8} {:<15} {:>8.3}",
            row.kernel,
            row.shape,
            row.threads,
            row.isa,
            duration(row.seconds),
            row.rate,
            row.limit,
            row.unit,
            row.limit_of,
            row.fraction
        );
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.1} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}
