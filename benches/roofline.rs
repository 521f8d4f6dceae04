//! Each kernel as a fraction of what this machine can do, measured in the same process and in the
//! same seconds.
//!
//! ```text
//! cargo bench --bench roofline                     every kernel, as a table
//! cargo bench --bench roofline --features train    and those of training
//! cargo bench --bench roofline -- gemm 512x512     kernels whose name and shape contain both words
//! cargo bench --bench roofline -- 'softmax|gelu'   or one of these
//!   --json              one JSON object a line instead of a table
//!   --isa NAME          scalar, avx2, avx512 or neon instead of the best
//!   --threads N         N threads; the limit is N independent copies running at once
//!   --rounds N          rounds of limit and kernel in turn (11)
//!   --slice SECONDS     time of one of them in one round (0.02)
//!   --cpu-time          count the thread's CPU time, on a machine that is busy with other things
//!   --footprint BYTES   also the bandwidths at this footprint; may be repeated
//!   --shape MxNxK       also this GEMM; may be repeated
//!   --test              everything once, to see that it runs
//!   --exact             a filter must be all of a name or shape
//!   --list              names and shapes only
//! ```
//!
//! A round runs the limits and the kernels of one shape once each, every other round backwards, so
//! that the drift of a clock frequency cancels; `fraction` is the median over the rounds of the ratio
//! within a round. `limit_of` names the limit that leaves the kernel the least space: `fma_peak`
//! (multiply-adds in registers) or a bandwidth at the kernel's footprint; `rate` and `limit` are in
//! its unit. Masked multiplications do not count. With several threads, `NAME/copies` are N
//! one-threaded calls running at once, and `NAME/serial` is one. In `gemm/odd` whole panels of columns
//! count, also where they stick out: a shape whose fraction is that of 48x512x512 loses no more than
//! its padding. In `screen` four multiply-adds of bytes count as one, as with VNNI; elsewhere
//! they are plain Rust, and the fraction is small. The limit of `gemm_int8` is `byte_peak`, four
//! multiply-adds of bytes in each lane of registers where the CPU has an instruction for them, and otherwise
//! `fma_peak`; rows in 16 bits count as two of bytes. It goes without AMX and I8MM: on CPUs that have one,
//! `gemm_int8/amx` or `gemm_int8/i8mm` (and `-16`) is the same product with it, and its limit `matrix_peak`,
//! products of small matrices of bytes in registers.
//! `gemm/bf16` and `gemm/f16` have weights of two bytes, `attention/decode-f16` and `attention/step-f16` keys and
//! values, and the bandwidth at half of the footprint.

use std::process::ExitCode;
use support::measure::{self, measure};
use support::{
    buffer, bytes, catalog, clock, heads, limits, matmul, options, pruned_argmax, report, rows,
    work,
};
#[cfg(feature = "train")]
use support::{training, updates};

mod support {
    pub(crate) mod buffer;
    pub(crate) mod bytes;
    pub(crate) mod catalog;
    pub(crate) mod clock;
    pub(crate) mod heads;
    pub(crate) mod limits;
    pub(crate) mod matmul;
    pub(crate) mod measure;
    pub(crate) mod options;
    pub(crate) mod pruned_argmax;
    pub(crate) mod report;
    pub(crate) mod rows;
    #[cfg(feature = "train")]
    pub(crate) mod training;
    #[cfg(feature = "train")]
    pub(crate) mod updates;
    pub(crate) mod work;
}

fn main() -> ExitCode {
    let options = match options::Options::from_arguments(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("roofline: {error}");
            return ExitCode::from(2);
        }
    };
    // The calling thread is one of the threads: what is timed never waits for it to be handed over.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .use_current_thread()
        .build_global();
    if let Err(error) = pool {
        eprintln!("roofline: {error}");
        return ExitCode::FAILURE;
    }

    let mut report = report::Report::new(options.json);
    let mut found = false;
    let groups = catalog::groups(&options).into_iter();
    #[cfg(feature = "train")]
    let groups = groups.chain(training::groups(&options));
    for group in groups {
        let wanted = group.keep(|name| options.wants(name, &group.shape));
        found |= !wanted.is_empty();
        if options.list {
            wanted.iter().for_each(|&i| println!("{} {}", group.kernels[i].name, group.shape));
        } else if !wanted.is_empty() {
            for row in measure(&group, &wanted, &options) {
                report.row(&row);
            }
        }
    }
    if !found {
        eprintln!("roofline: no kernel and shape have {:?}; see --list", options.filters);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
