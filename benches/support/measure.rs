//! Limits and kernels in turn, so that what drifts drifts for both.

use crate::limits;
use crate::options::Options;
use crate::report::HypothesisId;
use crate::work::Work;
use simdformer_kernels::{Isa, Parallelism, Team};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

/// What the machine can do of one thing.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// Multiply-adds in registers.
    Fma,
    /// Multiply-adds of bytes in registers.
    Bytes,
    /// Multiply-adds of bytes by what multiplies small matrices of them.
    Matrices,
    /// Reading that many bytes again and again.
    Read(usize),
    /// Reading `inputs` streams and writing one, that many bytes in all.
    Copy { bytes: usize, inputs: usize },
}

impl Limit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fma => "fma_peak",
            Self::Bytes => "byte_peak",
            Self::Matrices => "matrix_peak",
            Self::Read(_) => "read_bandwidth",
            Self::Copy { .. } => "copy_bandwidth",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Fma => "GFLOP/s",
            Self::Bytes | Self::Matrices => "GOP/s",
            _ => "GB/s",
        }
    }

    /// Billions of what this limit counts in one call of `work`.
    fn amount(self, work: Amount) -> f64 {
        1e-9 * match self {
            Self::Fma | Self::Bytes | Self::Matrices => work.flops,
            _ => work.bytes,
        }
    }

    /// Whether something that moves `bytes` in one call is held to this one of `limits`: of several
    /// footprints, to the one that is nearest.
    fn holds(self, limits: &[Self], bytes: f64) -> bool {
        let Self::Read(own) = self else { return true };
        let away = |footprint: usize| (footprint as f64 - bytes).abs();
        !limits.iter().any(|other| matches!(*other, Self::Read(other) if away(other) < away(own)))
    }

    /// One of `copies` at once; together they touch the footprint.
    pub(crate) fn work(self, isa: Isa, copies: usize) -> Work {
        match self {
            Self::Fma => limits::fma_peak(isa),
            Self::Bytes => limits::byte_peak(isa),
            Self::Matrices => limits::matrix_peak(isa),
            Self::Read(bytes) => limits::read_bandwidth(isa, bytes / copies),
            Self::Copy { bytes, inputs } => limits::copy_bandwidth(isa, bytes / copies, inputs),
        }
    }
}

/// How a kernel uses the threads.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// All of them in each call.
    Together,
    /// One in each call, and a call on each.
    Copies,
    /// One.
    Serial,
}

/// A kernel that can be measured.
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) isa: Isa,
    pub(crate) mode: Mode,
    pub(crate) build: Box<dyn Fn() -> Work>,
}

/// Kernels that do the same work within the same limits.
pub(crate) struct Group {
    pub(crate) shape: String,
    pub(crate) limits: Vec<Limit>,
    pub(crate) kernels: Vec<Kernel>,
}

impl Group {
    /// Indices of the kernels whose name is wanted.
    pub(crate) fn keep(&self, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        (0..self.kernels.len()).filter(|&i| wanted(&self.kernels[i].name)).collect()
    }
}

#[derive(Clone, Copy)]
struct Amount {
    flops: f64,
    bytes: f64,
}

/// Something to time.
struct Runner {
    works: Vec<Mutex<Work>>,
    /// Of one call.
    amount: Amount,
    mode: Mode,
    calls: usize,
    /// Seconds of one call, a round each.
    times: Vec<f64>,
}

impl Runner {
    fn new(mode: Mode, options: &Options, build: impl Fn() -> Work) -> Self {
        let copies = if mode == Mode::Copies { options.threads } else { 1 };
        let works: Vec<_> = (0..copies).map(|_| build()).collect();
        let amount = Amount { flops: works[0].flops, bytes: works[0].bytes };
        let works = works.into_iter().map(Mutex::new).collect();
        let mut runner = Self { works, amount, mode, calls: 1, times: Vec::new() };
        // The first call warms up. Then as many calls as fill a slice.
        if !options.smoke {
            runner.seconds(1, options);
            while runner.calls < 1 << 30 {
                let time = runner.seconds(runner.calls, options) * runner.calls as f64;
                if time >= options.slice / 4.0 {
                    let calls = runner.calls as f64 * options.slice / time;
                    runner.calls = (calls as usize).max(1);
                    break;
                }
                runner.calls *= 4;
            }
        }
        runner
    }

    /// Copies times the amount that `limit` counts.
    fn amount(&self, limit: Limit) -> f64 {
        self.works.len() as f64 * limit.amount(self.amount)
    }

    /// One call to bring the operands back into the caches, then `calls` on the clock.
    fn seconds(&self, calls: usize, options: &Options) -> f64 {
        let lock = |i: usize| self.works[i].lock().expect("no kernel panicked");
        let time = if self.works.len() > 1 {
            let barrier = Barrier::new(self.works.len());
            let spans = rayon::broadcast(|thread| {
                let mut work = lock(thread.index());
                (work.run)(Parallelism::Serial);
                barrier.wait();
                let start = Instant::now();
                (0..calls).for_each(|_| (work.run)(Parallelism::Serial));
                start.elapsed().as_secs_f64()
            });
            // The copies' rates added up: one that was held up must not hold up the others' count.
            spans.len() as f64 / spans.iter().map(|span| 1.0 / span.max(1e-9)).sum::<f64>()
        } else {
            let all = |parallelism: Parallelism<'_>| {
                let mut work = lock(0);
                (work.run)(parallelism);
                options.clock.time(|| (0..calls).for_each(|_| (work.run)(parallelism)))
            };
            if options.threads > 1 && self.mode == Mode::Together {
                Team::run(|team| all(Parallelism::Team(team)))
            } else {
                all(Parallelism::Serial)
            }
        };
        // The clock may stand still over something very short.
        time.max(1e-9) / calls as f64
    }

    fn round(&mut self, options: &Options) {
        self.times.push(self.seconds(self.calls, options));
    }
}

/// Measures the kernels of `group` with the indices `wanted`.
pub(crate) fn measure(group: &Group, wanted: &[usize], options: &Options) -> Vec<HypothesisId> {
    let mut kernels: Vec<(&Kernel, Runner)> = wanted
        .iter()
        .map(|&i| &group.kernels[i])
        .map(|kernel| (kernel, Runner::new(kernel.mode, options, &kernel.build)))
        .collect();
    // A kernel on one thread has the limits of one thread.
    let mut bounds: Vec<(Limit, Mode, Runner)> = Vec::new();
    for (kernel, runner) in &kernels {
        for &limit in &group.limits {
            if !limit.holds(&group.limits, runner.amount.bytes) {
                continue;
            }
            let mode = limit_mode(kernel.mode, options);
            if !bounds.iter().any(|bound| (bound.0, bound.1) == (limit, mode)) {
                let copies = if mode == Mode::Copies { options.threads } else { 1 };
                let runner = Runner::new(mode, options, || limit.work(kernel.isa, copies));
                bounds.push((limit, mode, runner));
            }
        }
    }
    for round in 0..options.rounds {
        let limits = bounds.iter_mut().map(|bound| &mut bound.2);
        let runners = limits.chain(kernels.iter_mut().map(|kernel| &mut kernel.1));
        let mut order: Vec<_> = runners.collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order.into_iter().for_each(|runner| runner.round(options));
    }
    kernels.iter().map(|(kernel, runner)| row(group, kernel, runner, &bounds, options)).collect()
}

const fn limit_mode(kernel: Mode, options: &Options) -> Mode {
    match kernel {
        Mode::Serial => Mode::Serial,
        _ if options.threads == 1 => Mode::Serial,
        _ => Mode::Copies,
    }
}

fn row(
    group: &Group,
    kernel: &Kernel,
    runner: &Runner,
    bounds: &[(Limit, Mode, Runner)],
    options: &Options,
) -> HypothesisId {
    let seconds = median(runner.times.clone());
    let mode = limit_mode(kernel.mode, options);
    // The share of the kernel's time that the limit takes for the same work, round by round.
    let share = |(limit, _, bound): &(Limit, Mode, Runner)| {
        let least = |time: &f64| time * runner.amount(*limit) / bound.amount(*limit);
        median(bound.times.iter().zip(&runner.times).map(|(l, t)| least(l) / t).collect())
    };
    let binding = bounds
        .iter()
        .filter(|bound| bound.1 == mode && bound.0.holds(&group.limits, runner.amount.bytes))
        .map(|bound| (share(bound), bound))
        .max_by(|x, y| x.0.total_cmp(&y.0));
    let (fraction, limit, rate, limit_of) = match binding {
        Some((fraction, (limit, _, bound))) => {
            let rate = runner.amount(*limit) / seconds;
            (fraction, bound.amount(*limit) / median(bound.times.clone()), rate, *limit)
        }
        // A limit is its own.
        None => {
            let limit = own_limit(kernel);
            let rate = runner.amount(limit) / seconds;
            (1.0, rate, rate, limit)
        }
    };
    HypothesisId {
        kernel: kernel.name.clone(),
        shape: group.shape.clone(),
        threads: if kernel.mode == Mode::Serial { 1 } else { options.threads },
        isa: kernel.isa.name(),
        seconds,
        rate,
        unit: limit_of.unit(),
        limit,
        limit_of: limit_of.name(),
        fraction,
    }
}

/// Which limit a kernel without limits is.
fn own_limit(kernel: &Kernel) -> Limit {
    match kernel.name.as_str() {
        "fma_peak" => Limit::Fma,
        "byte_peak" => Limit::Bytes,
        "matrix_peak" => Limit::Matrices,
        "copy_bandwidth" => Limit::Copy { bytes: 0, inputs: 1 },
        _ => Limit::Read(0),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { 0.5 * (values[middle - 1] + values[middle]) }
}
