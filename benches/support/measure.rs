//! Limits and kernels run in turn, so that a drift affects both.

use crate::limits;
use crate::options::Options;
use crate::report::ReportRow;
use crate::work::Work;
use simdformer_kernels::{Isa, Parallelism, Team};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

/// A limit of the machine.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// Multiply-adds in registers.
    Fma,
    /// Int8 multiply-adds in registers.
    Bytes,
    /// Int8 multiply-adds by matrix instructions.
    Matrices,
    /// Reading this number of bytes repeatedly.
    Read(usize),
    /// Reading `inputs` streams and writing one, this number of bytes in total.
    Copy { bytes: usize, inputs: usize },
}

impl Limit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fma => "fma_peak",
            Self::Bytes => "int8_peak",
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

    /// The amount of work in one call, in units of 10^9.
    fn amount(self, work: Amount) -> f64 {
        1e-9 * match self {
            Self::Fma | Self::Bytes | Self::Matrices => work.flops,
            _ => work.bytes,
        }
    }

    /// Whether this one of `limits` applies to a kernel that moves `bytes` in one call: of several
    /// footprints the nearest one applies.
    fn holds(self, limits: &[Self], bytes: f64) -> bool {
        let Self::Read(own) = self else { return true };
        let away = |footprint: usize| (footprint as f64 - bytes).abs();
        !limits.iter().any(|other| matches!(*other, Self::Read(other) if away(other) < away(own)))
    }

    /// The work of one of `copies` that run at the same time and together have the footprint.
    pub(crate) fn work(self, isa: Isa, copies: usize) -> Work {
        match self {
            Self::Fma => limits::fma_peak(isa),
            Self::Bytes => limits::int8_peak(isa),
            Self::Matrices => limits::matrix_peak(isa),
            Self::Read(bytes) => limits::read_bandwidth(isa, bytes / copies),
            Self::Copy { bytes, inputs } => limits::copy_bandwidth(isa, bytes / copies, inputs),
        }
    }
}

/// How the calls use the threads.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// Each call uses all of them.
    Together,
    /// Each thread runs a call of its own.
    Copies,
    /// One call on one thread.
    Serial,
}

/// A kernel that can be measured.
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) isa: Isa,
    pub(crate) mode: Mode,
    pub(crate) build: Box<dyn Fn() -> Work>,
}

/// Kernels that do the same work and have the same limits.
pub(crate) struct Group {
    pub(crate) shape: String,
    pub(crate) limits: Vec<Limit>,
    pub(crate) kernels: Vec<Kernel>,
}

impl Group {
    /// The indices of the kernels whose names are wanted.
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
    /// The amount of work in one call.
    amount: Amount,
    mode: Mode,
    calls: usize,
    /// Seconds of one call in each round.
    times: Vec<f64>,
}

impl Runner {
    fn new(mode: Mode, options: &Options, build: impl Fn() -> Work) -> Self {
        let copies = if mode == Mode::Copies { options.threads } else { 1 };
        let works: Vec<_> = (0..copies).map(|_| build()).collect();
        let amount = Amount { flops: works[0].flops, bytes: works[0].bytes };
        let works = works.into_iter().map(Mutex::new).collect();
        let mut runner = Self { works, amount, mode, calls: 1, times: Vec::new() };
        // The first call warms up. Then as many calls run as fill a slice.
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

    /// The number of copies times the amount of work.
    fn amount(&self, limit: Limit) -> f64 {
        self.works.len() as f64 * limit.amount(self.amount)
    }

    /// One call brings the operands into the caches, then `calls` calls are measured.
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
            // The sum of the rates of the copies, so that a delay of one copy does not change
            // the count of the others.
            spans.len() as f64 / spans.iter().map(|span| 1.0 / span.max(1e-9)).sum::<f64>()
        } else {
            let all = |parallelism: Parallelism<'_>| {
                let mut work = lock(0);
                (work.run)(parallelism);
                options.clock.time(|| (0..calls).for_each(|_| (work.run)(parallelism)))
            };
            if options.threads > 1 && self.mode == Mode::Together {
                Team::form(|team| all(Parallelism::Team(team)))
            } else {
                all(Parallelism::Serial)
            }
        };
        // The clock may not advance during a very short call.
        time.max(1e-9) / calls as f64
    }

    fn round(&mut self, options: &Options) {
        self.times.push(self.seconds(self.calls, options));
    }
}

/// Measures the kernels of `group` with the indices `wanted`.
pub(crate) fn measure(group: &Group, wanted: &[usize], options: &Options) -> Vec<ReportRow> {
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
) -> ReportRow {
    let seconds = median(runner.times.clone());
    let mode = limit_mode(kernel.mode, options);
    // The share of the kernel's time that the limit needs for the same work, round by round.
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
        // The limit of a limit is itself.
        None => {
            let limit = own_limit(kernel);
            let rate = runner.amount(limit) / seconds;
            (1.0, rate, rate, limit)
        }
    };
    ReportRow {
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

/// The limit that a kernel without limits is.
fn own_limit(kernel: &Kernel) -> Limit {
    match kernel.name.as_str() {
        "fma_peak" => Limit::Fma,
        "int8_peak" => Limit::Bytes,
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
