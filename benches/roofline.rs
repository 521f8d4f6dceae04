//! Each kernel as a fraction of a limit of the machine, measured in the same process and in the same
//! seconds.
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
//! A round runs the limits and the kernels of one shape once each, in every other round backwards, so that
//! a drift of the clock frequency cancels. `fraction` is the median over the rounds of the ratio within a
//! round. `limit_of` names the limit that is closest to the kernel: `fma_peak` (multiply-adds in registers)
//! or a bandwidth at the footprint of the kernel; `rate` and `limit` have its unit. Masked multiplications
//! do not count. With several threads, `NAME/copies` is N one-threaded calls at the same time, and
//! `NAME/serial` is one.
//!
//! In `gemm/odd` full panels of columns count, also where a panel is only partly used: a shape with the
//! fraction of 48x512x512 loses only its padding. In `pruned_argmax` four int8 multiply-adds count as one,
//! as with VNNI; on CPUs without it the fraction is small. The limit of `gemm_int8` is `int8_peak`: four
//! int8 multiply-adds in each lane of registers if the CPU has an instruction for them, otherwise
//! `fma_peak`. Rows in 16 bits count as two of 8 bits. `gemm_int8` runs without AMX and I8MM. On CPUs that
//! have one, `gemm_int8/amx` or `gemm_int8/i8mm` (and `-16`) is the same product with it, and its limit is
//! `matrix_peak`, products of small int8 matrices in registers.
//!
//! `gemm/bf16` and `gemm/f16` have weights of two bytes, `attention/decode-f16` and `attention/step-f16`
//! keys and values of two bytes, so their bandwidth is measured at half of the footprint.

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
    // The calling thread is one of the threads, so no time is lost by handing the work over.
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
