//! Throughput of norms, softmax and activations on one thread: bytes per second, with each stream counted
//! once.
//!
//! The bench `roofline` prints the fraction of the machine's limit.

use criterion::{BenchmarkId, Criterion, Throughput};
use simdformer_kernels::{Activation, Isa, Parallelism};
use std::time::Duration;
use support::rows::{self, Scores};
use support::work::Work;
use support::{buffer, work};

mod support {
    pub(crate) mod buffer;
    pub(crate) mod rows;
    #[allow(dead_code, reason = "the shapes here know their own work")]
    pub(crate) mod work;
}

const HIDDEN: [(usize, usize); 3] = [(128, 512), (1024, 512), (4096, 1024)];
const LOGITS: [(usize, usize); 3] = [(1, 32000), (8, 32000), (1, 256_000)];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let isa = Isa::detect().expect("the set that the environment names");
    for (r, c) in HIDDEN {
        add(&mut criterion, "add_layer_norm", (r, c), 3, || rows::add_layer_norm(isa, r, c));
        add(&mut criterion, "add_rms_norm", (r, c), 3, || rows::add_rms_norm(isa, r, c));
        add(&mut criterion, "softmax", (r, c), 2, || rows::softmax(isa, r, c, Scores::Near));
        add(&mut criterion, "softmax-far", (r, c), 2, || rows::softmax(isa, r, c, Scores::Far));
        for (name, activation) in [
            ("gelu", Activation::Gelu),
            ("gelu-tanh", Activation::GeluTanh),
            ("silu", Activation::Silu),
        ] {
            let build = || rows::activation(isa, r, c, activation);
            add(&mut criterion, name, (r, c), 2, build);
        }
    }
    for (r, c) in LOGITS {
        add(&mut criterion, "log_softmax", (r, c), 2, || rows::log_softmax(isa, r, c));
    }
    #[cfg(feature = "train")]
    for (r, c) in [(1500, 128), (4096, 512)] {
        let norm = || rows::layer_norm_backward(isa, r, c);
        add(&mut criterion, "layer_norm_backward", (r, c), 3, norm);
        let sums = || rows::layer_norm_parameters_backward(isa, r, c);
        add(&mut criterion, "layer_norm_parameters_backward", (r, c), 2, sums);
        let gelu = || rows::activation_backward(isa, r, c, Activation::Gelu);
        add(&mut criterion, "gelu_backward", (r, c), 3, gelu);
    }
    criterion.final_summary();
}

/// A bench of the work that `build` makes. It is not built if the filter excludes it.
fn add(
    criterion: &mut Criterion,
    group: &str,
    (rows, columns): (usize, usize),
    streams: usize,
    build: impl Fn() -> Work,
) {
    let mut group = criterion.benchmark_group(group);
    let mut built = None;
    group.throughput(Throughput::Bytes(rows::bytes(rows, columns, streams) as u64));
    group.bench_function(BenchmarkId::from_parameter(format!("{rows}x{columns}")), |bencher| {
        let work = built.get_or_insert_with(&build);
        bencher.iter(|| (work.run)(Parallelism::Serial));
    });
}
