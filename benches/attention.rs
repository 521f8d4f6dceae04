//! Throughput of attention on one thread with heads of 64: FLOP/s of the visible part of both products, or
//! bytes of keys and values per second if few queries make reading them the limit.
//!
//! The bench `roofline` prints the fraction of the machine's limit.

use criterion::{BenchmarkId, Criterion, Throughput};
use simdformer_kernels::{Dtype, Isa, Parallelism};
use std::time::Duration;
#[cfg(feature = "train")]
use support::heads::Part;
use support::heads::{self, Mask, Shape, Under};
use support::work::Work;
use support::{buffer, work};

mod support {
    pub(crate) mod buffer;
    pub(crate) mod heads;
    #[allow(dead_code, reason = "the shapes here know their own work")]
    pub(crate) mod work;
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    prefill(&mut criterion);
    decode(&mut criterion);
    #[cfg(feature = "train")]
    gradient(&mut criterion);
    criterion.final_summary();
}

/// A bench of the work that `build` makes. It is not built if the filter excludes it.
fn add(
    criterion: &mut Criterion,
    group: &str,
    shape: Shape,
    throughput: Throughput,
    build: impl Fn() -> Work,
) {
    let mut group = criterion.benchmark_group(group);
    let mut built = None;
    group.throughput(throughput);
    group.bench_function(BenchmarkId::from_parameter(shape.name()), |bencher| {
        let work = built.get_or_insert_with(&build);
        bencher.iter(|| (work.run)(Parallelism::Serial));
    });
}

fn prefill(criterion: &mut Criterion) {
    let isa = Isa::detect().expect("the set that the environment names");
    for (group, mask, under) in [
        ("prefill", Mask::None, Under::Nothing),
        ("prefill-causal", Mask::Causal, Under::Nothing),
        ("prefill-padded", Mask::Padded, Under::Nothing),
        ("prefill-relative", Mask::None, Under::Relative),
        ("prefill-relative-causal", Mask::Causal, Under::Relative),
    ] {
        for (batch, tokens) in [(1, 128), (1, 512), (1, 1024), (1, 2048), (8, 128)] {
            let shape = Shape::new(batch, tokens, tokens);
            let flops = Throughput::Elements(shape.flops(mask) as u64);
            add(criterion, group, shape, flops, || heads::prefill(isa, shape, mask, under));
        }
    }
    for (group, mask) in [("prefill-int8", Mask::None), ("prefill-int8-causal", Mask::Causal)] {
        for tokens in [128, 512, 1500] {
            let shape = Shape::new(1, tokens, tokens);
            let flops = Throughput::Elements(shape.flops(mask) as u64);
            add(criterion, group, shape, flops, || heads::prefill_int8(isa, shape, mask));
        }
    }
}

fn decode(criterion: &mut Criterion) {
    let isa = Isa::detect().expect("the set that the environment names");
    for (batch, keys) in [(1, 512), (32, 128)] {
        let shape = Shape::new(batch, 1, keys);
        let bytes = Throughput::Bytes(shape.key_value_bytes() as u64);
        for (group, under) in [("decode", Under::Nothing), ("decode-relative", Under::Relative)] {
            add(criterion, group, shape, bytes.clone(), || {
                heads::cached(isa, Dtype::F32, shape, under)
            });
        }
    }
    // Four hypotheses of one sentence: on its source, and on their own branching prefixes.
    for (batch, keys) in [(1, 128), (8, 128)] {
        let shape = Shape::new(batch, 4, keys);
        let bytes = Throughput::Bytes(shape.key_value_bytes() as u64);
        let under = Under::Nothing;
        add(criterion, "decode-beams", shape, bytes, || {
            heads::cached(isa, Dtype::F32, shape, under)
        });
        let bytes = Throughput::Bytes(heads::step_bytes(shape) as u64);
        for (group, under) in
            [("step-beams", Under::Nothing), ("step-beams-relative", Under::Relative)]
        {
            add(criterion, group, shape, bytes.clone(), || {
                heads::step(isa, Dtype::F32, shape, under)
            });
        }
    }
}

/// The kernels of training: the gradient, and for the sentences of a small model with heads of 32 forward
/// and gradient.
#[cfg(feature = "train")]
fn gradient(criterion: &mut Criterion) {
    let isa = Isa::detect().expect("the set that the environment names");
    for (group, mask, under) in [
        ("gradient", Mask::None, Under::Nothing),
        ("gradient-causal", Mask::Causal, Under::Nothing),
        ("gradient-relative", Mask::None, Under::Relative),
    ] {
        for (batch, tokens) in [(1, 128), (1, 512), (1, 1024), (8, 128), (32, 32)] {
            let shape = Shape::new(batch, tokens, tokens);
            let flops = Throughput::Elements((2.5 * shape.flops(mask)) as u64);
            add(criterion, group, shape, flops, || {
                heads::training(isa, shape, mask, under, Part::Gradient)
            });
        }
    }
    for (group, part) in [("training-forward", Part::Forward), ("training", Part::Both)] {
        for tokens in [4, 8, 16, 24] {
            let shape = Shape { batch: 64, heads: 4, queries: tokens, keys: tokens, head_dim: 32 };
            let heads = Throughput::Elements(64 * 4);
            add(criterion, group, shape, heads, || {
                heads::training(isa, shape, Mask::None, Under::Nothing, part)
            });
        }
    }
}
