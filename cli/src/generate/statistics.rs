//! The statistics that are written to standard error.

use serde::Serialize;
use simdformer::{DecodeStats, Session};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::collections::BTreeMap;

/// The system's allocator, which counts its calls.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Heap allocations of the whole program so far.
pub(super) fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// The peak resident memory of the process, if the system reports it.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[derive(Serialize)]
pub(crate) struct Statistics {
    pub(crate) load_seconds: f64,
    pub(crate) plan_bytes: usize,
    pub(crate) encode_seconds: f64,
    pub(crate) decode_seconds: f64,
    pub(crate) new_tokens: usize,
    pub(crate) tokens_per_second: f64,
    pub(crate) allocations: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drafted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted: Option<usize>,
    pub(crate) model_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak_rss_bytes: Option<u64>,
    pub(crate) isa: &'static str,
    pub(crate) threads: usize,
    /// Defaults that were used for keys missing in the checkpoint's files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) defaults: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unsupported: Vec<String>,
}

/// The measurements of a batch run: medians over its repeats.
pub(crate) struct Measured {
    pub(crate) plan_bytes: usize,
    pub(crate) encode_seconds: f64,
    pub(crate) decode_seconds: f64,
    pub(crate) new_tokens: usize,
    pub(crate) allocations: usize,
    /// Only for a run with drafts.
    pub(crate) counts: Option<DecodeStats>,
}

impl Measured {
    /// The measurements of a run whose repeats took `encoding` and `decoding` seconds, and before which there were
    /// `allocated` allocations. Call it before anything else allocates.
    pub(crate) fn new(
        session: &Session<'_>,
        [encoding, decoding]: [&mut [f64]; 2],
        new_tokens: usize,
        allocated: usize,
    ) -> Self {
        Self {
            allocations: allocations() - allocated,
            plan_bytes: session.plan().bytes(),
            encode_seconds: median(encoding),
            decode_seconds: median(decoding),
            new_tokens,
            counts: None,
        }
    }
}

/// The median; the mean of the two middle values if their number is even.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => 0.0,
        len if len % 2 == 1 => numbers[middle],
        _ => (numbers[middle - 1] + numbers[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn allocations_are_counted() {
        let before = super::allocations();
        drop(std::hint::black_box(vec![0u8; 100]));
        assert!(super::allocations() > before);
    }
}
