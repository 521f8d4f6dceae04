//! Lists of sources of different lengths, with 24 new tokens each: `--pool SENTENCES`. One session on one thread, one session
//! on all threads, and as many sessions as threads, in turn. Prints, for each, the medians of the seconds and of the CPU
//! seconds of the process. Then calls are cancelled at different times; the longest time until a call ended is printed.

#![allow(unsafe_code)]

use crate::random_model::Random;
use simdformer::kernels::ThreadPool;
use simdformer::search::SearchOptions;
use simdformer::{Cancel, Error, Event, Limits, Model, SessionPool, Source, Threads};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sentences of a session at a time.
const SLOTS: usize = 32;
/// Rounds of all kinds.
const ROUNDS: usize = 5;
/// Calls that are cancelled.
const CANCELS: u64 = 30;

/// New tokens of each source.
const TARGET: usize = 24;

pub(crate) fn lines(model: &Model, forms: &str, threads: usize, count: usize) {
    let mut random = Random(7);
    // Between 4 and 44 tokens, of which short ones are more frequent.
    let length = |random: &mut Random| 4 + random.below(21) + random.below(21);
    let ids: Vec<Vec<u32>> = (0..count)
        .map(|_| {
            let len = length(&mut random);
            random.ids(len, 31_000)
        })
        .collect();
    let sources: Vec<Source<'_>> = ids.iter().map(|ids| Source::new(ids)).collect();
    let options = SearchOptions {
        max_new_tokens: Some(TARGET),
        min_new_tokens: TARGET,
        max_length: None,
        forced_eos: Vec::new(),
        scores: false,
        ..model.config().search_options()
    };
    let limits = Limits::new(SLOTS, 44, TARGET + 1);
    let team = Arc::new(ThreadPool::new(threads).expect("threads"));
    let kinds = [(1, 1), (1, threads), (threads, threads)];
    let mut pools: Vec<SessionPool<'_>> = kinds
        .iter()
        .map(|&(sessions, threads)| {
            let mut pool = SessionPool::new(model, limits, sessions).expect("sessions");
            if threads > 1 {
                pool.set_threads(Threads::Shared(team.clone()));
            }
            pool
        })
        .collect();
    let mut measured = vec![Vec::new(); kinds.len()];
    let mut digests = Vec::new();
    for round in 0..=ROUNDS {
        for (pool, measured) in pools.iter_mut().zip(&mut measured) {
            let digest = AtomicU64::new(0);
            let (begun, cpu) = (Instant::now(), process_seconds());
            pool.generate(&sources, &options, &|event: Event<'_>| {
                if let Event::Done(done) = event {
                    let tokens = done.hypotheses().flat_map(|one| one.tokens);
                    let mix = |digest: u64, &id: &u32| {
                        (digest ^ u64::from(id)).wrapping_mul(0x0100_0000_01b3)
                    };
                    digest.fetch_add(tokens.fold(done.source as u64, mix), Ordering::Relaxed);
                }
            })
            .expect("generated");
            if round > 0 {
                measured.push((begun.elapsed().as_secs_f64(), process_seconds() - cpu));
            }
            digests.push(digest.into_inner());
        }
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "other results: {digests:?}");
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    for (((sessions, threads), pool), measured) in kinds.into_iter().zip(&mut pools).zip(measured) {
        let cancel_ms = 1000.0 * cancel(pool, &sources, &options);
        let bytes = pool.sessions() * pool.plan().bytes();
        let (seconds, cpu): (Vec<f64>, Vec<f64>) = measured.into_iter().unzip();
        let (seconds, cpu) = (median(seconds), median(cpu));
        println!(
            "{{\"engine\": \"simdformer\", \"what\": \"pool {forms}\", \"sessions\": {sessions}, \"threads\": {threads}, \"sentences\": {count}, \
             \"seconds\": {seconds:.4}, \"rate\": {:.1}, \"unit\": \"sentences/s\", \"cpu_ms_per_sentence\": {:.4}, \"plan_bytes\": {bytes}, \"cancel_ms\": {cancel_ms:.1}}}",
            count as f64 / seconds,
            1000.0 * cpu / count as f64
        );
    }
}

/// Cancels calls after different times; the longest seconds from the cancellation to the end of the call.
fn cancel(pool: &mut SessionPool<'_>, sources: &[Source<'_>], options: &SearchOptions) -> f64 {
    let cancel = Cancel::new();
    pool.set_cancel(cancel.clone());
    let mut longest: f64 = 0.0;
    for round in 0..CANCELS {
        let cancelled = std::thread::scope(|scope| {
            let canceller = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(7 * round));
                cancel.cancel();
                Instant::now()
            });
            let done = pool.generate(sources, options, &|_: Event<'_>| ());
            let end = Instant::now();
            let begun = canceller.join().expect("the time");
            matches!(done, Err(Error::Cancelled { .. })).then(|| end - begun)
        });
        longest = longest.max(cancelled.map_or(0.0, |time| time.as_secs_f64()));
        cancel.reset();
    }
    longest
}

/// CPU time of all threads of the process.
#[cfg(unix)]
fn process_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec, which the call fills.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    assert_eq!(status, 0, "the system has no CPU clock for processes");
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

#[cfg(not(unix))]
fn process_seconds() -> f64 {
    f64::NAN
}
