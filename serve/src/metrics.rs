//! Counters and times, as Prometheus reads them (text format 0.0.4).

use crate::queue;
use core::fmt::Write;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The upper ends of the classes of times, in seconds.
const CLASSES: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// What was counted since the server started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By route and status.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// By route.
    times: Mutex<BTreeMap<&'static str, Times>>,
    /// Requests whose client left before the answer.
    pub(crate) abandoned: AtomicU64,
    /// Tokens of the requests that were accepted.
    pub(crate) source_tokens: AtomicU64,
    /// Tokens that translations have.
    pub(crate) target_tokens: AtomicU64,
    /// Sentences that were translated.
    pub(crate) sentences: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    classes: [u64; CLASSES.len()],
    count: u64,
    sum: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    pub(crate) fn answered(&self, route: &'static str, status: u16, time: Duration) {
        *lock(&self.answers).entry((route, status)).or_default() += 1;
        let seconds = time.as_secs_f64();
        let mut times = lock(&self.times);
        let times = times.entry(route).or_default();
        times.count += 1;
        times.sum += seconds;
        for (class, &end) in times.classes.iter_mut().zip(&CLASSES) {
            *class += u64::from(seconds <= end);
        }
    }

    /// The page of `/metrics`. `engines` are the bytes that the sessions of each model have.
    pub(crate) fn text(&self, queue: &queue::State, engines: &[(&str, usize)]) -> String {
        let mut out = String::new();
        let mut one = |kind: &str, name: &str, help: &str, values: &[(String, String)]| {
            // Writing to a string cannot fail.
            let _ =
                writeln!(out, "# HELP simdformer_{name} {help}\n# TYPE simdformer_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "simdformer_{name}{labels} {value}");
            }
        };
        let single = |value: u64| vec![(String::new(), value.to_string())];
        let load = |counter: &AtomicU64| single(counter.load(Ordering::Relaxed));
        let answers: Vec<_> = lock(&self.answers)
            .iter()
            .map(|((route, status), count)| {
                (format!("{{route=\"{route}\",status=\"{status}\"}}"), count.to_string())
            })
            .collect();
        one("counter", "requests_total", "Requests by route and status.", &answers);
        let mut lines = Vec::new();
        for (route, times) in lock(&self.times).iter() {
            for (count, end) in times.classes.iter().zip(&CLASSES) {
                let labels = format!("_bucket{{route=\"{route}\",le=\"{end}\"}}");
                lines.push((labels, count.to_string()));
            }
            let labels = format!("_bucket{{route=\"{route}\",le=\"+Inf\"}}");
            lines.push((labels, times.count.to_string()));
            lines.push((format!("_sum{{route=\"{route}\"}}"), times.sum.to_string()));
            lines.push((format!("_count{{route=\"{route}\"}}"), times.count.to_string()));
        }
        one("histogram", "request_seconds", "Time until the answer began.", &lines);
        one("gauge", "queue_tokens", "Tokens that wait or are run.", &single(queue.tokens as u64));
        let requests = single(queue.requests as u64);
        one("gauge", "queue_requests", "Requests that wait or are run.", &requests);
        one(
            "counter",
            "refused_total",
            "Requests that a full queue refused.",
            &single(queue.refused),
        );
        let help = "Requests whose client left before the answer.";
        one("counter", "abandoned_total", help, &load(&self.abandoned));
        let help = "Source tokens of accepted requests.";
        one("counter", "source_tokens_total", help, &load(&self.source_tokens));
        one(
            "counter",
            "target_tokens_total",
            "Tokens of translations.",
            &load(&self.target_tokens),
        );
        one("counter", "sentences_total", "Sentences translated.", &load(&self.sentences));
        let bytes = engines.iter();
        let bytes: Vec<_> = bytes
            .map(|(name, bytes)| (format!("{{model=\"{name}\"}}"), bytes.to_string()))
            .collect();
        one("gauge", "session_bytes", "Bytes of the planned sessions.", &bytes);
        out
    }
}
