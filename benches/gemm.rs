//! Throughput of GEMM beside matrixmultiply on one thread: FLOP/s, or bytes of W per second if a single row makes
//! reading W the limit.
//!
//! The bench `roofline` prints the fraction of the machine's limit, and `rust_crates` compares with more crates.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use simdformer_kernels::{Activation, Epilogue, Isa, Parallelism};
use std::time::Duration;
use support::matmul::Shape;
use support::work::Work;
use support::{buffer, matmul, work};

mod support {
    pub(crate) mod buffer;
    #[allow(dead_code, reason = "what only a roofline measures")]
    pub(crate) mod matmul;
    #[allow(dead_code, reason = "the shapes here know their own work")]
    pub(crate) mod work;
}

const ENCODER: [Shape; 5] = [
    Shape(256, 512, 512),
    Shape(256, 2048, 512),
    Shape(256, 512, 2048),
    Shape(512, 512, 512),
    Shape(1024, 1024, 1024),
];

const DECODER_ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const DECODER_WEIGHTS: [(usize, usize); 4] = [(512, 512), (2048, 512), (512, 2048), (32000, 512)];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    encoder(&mut criterion);
    decoder(&mut criterion);
    odd(&mut criterion);
    packing(&mut criterion);
    epilogue(&mut criterion);
    #[cfg(feature = "train")]
    gradients(&mut criterion);
    criterion.final_summary();
}

/// A bench of the work that `build` makes. It is not built if the filter excludes it.
fn add(group: &mut BenchmarkGroup<'_, WallTime>, who: &str, shape: &str, build: impl Fn() -> Work) {
    let mut built = None;
    group.bench_function(BenchmarkId::new(who, shape), |bencher| {
        let work = built.get_or_insert_with(&build);
        bencher.iter(|| (work.run)(Parallelism::Serial));
    });
}

fn all(group: &mut BenchmarkGroup<'_, WallTime>, shape: Shape) {
    let name = shape.name();
    add(group, "simdformer", &name, || matmul::ours(isa(), shape, Epilogue::default()));
    add(group, "matrixmultiply", &name, || matmul::matrixmultiply(shape));
}

fn encoder(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encoder");
    for shape in ENCODER {
        group.throughput(Throughput::Elements(shape.flops() as u64));
        all(&mut group, shape);
    }
}

fn decoder(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decoder");
    for (n, k) in DECODER_WEIGHTS {
        for m in DECODER_ROWS {
            let shape = Shape(m, n, k);
            group.throughput(if m == 1 {
                Throughput::Bytes(shape.weight_bytes() as u64)
            } else {
                Throughput::Elements(shape.flops() as u64)
            });
            all(&mut group, shape);
        }
    }
}

/// The instruction set that the environment names, or the best one.
fn isa() -> Isa {
    Isa::detect().expect("the set that the environment names")
}

/// Shapes around the edges of the tiles.
fn odd(criterion: &mut Criterion) {
    let isa = isa();
    let mut group = criterion.benchmark_group("odd");
    for shape in matmul::odd_shapes(isa.panel(), isa.lanes()) {
        group.throughput(Throughput::Elements(shape.flops() as u64));
        all(&mut group, shape);
    }
}

fn packing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packing");
    for (columns, depth) in [(512, 512), (2048, 512), (512, 2048), (32000, 512), (2047, 513)] {
        group.throughput(Throughput::Bytes(4 * (columns * depth) as u64));
        for (order, by_row) in [("out-in", false), ("in-out", true)] {
            let name = format!("{columns}x{depth}");
            add(&mut group, order, &name, || matmul::packing(isa(), columns, depth, by_row));
        }
    }
}

/// The cost of a fused activation.
fn epilogue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("epilogue");
    let shape = Shape(256, 2048, 512);
    group.throughput(Throughput::Elements(shape.flops() as u64));
    for (name, activation) in [
        ("none", Activation::Identity),
        ("relu", Activation::Relu),
        ("gelu", Activation::Gelu),
        ("gelu-tanh", Activation::GeluTanh),
        ("silu", Activation::Silu),
    ] {
        let epilogue = Epilogue { activation, ..Epilogue::default() };
        add(&mut group, name, &shape.name(), || matmul::ours(isa(), shape, epilogue));
    }
    // The same number of multiply-adds in two products, the second of which gates the first.
    add(&mut group, "gated", &shape.name(), || matmul::gated(isa(), shape));
}

/// The gradients of a linear layer, `rows x outputs x inputs`: of its weight and of its input.
#[cfg(feature = "train")]
fn gradients(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gradient");
    for (rows, outputs, inputs) in matmul::GRADIENTS {
        let shape = Shape(rows, outputs, inputs);
        group.throughput(Throughput::Elements(shape.flops() as u64));
        add(&mut group, "dw", &shape.name(), || {
            matmul::weight_gradient(isa(), (rows, outputs, inputs))
        });
        let d_x = Shape(rows, inputs, outputs);
        add(&mut group, "dx", &shape.name(), || matmul::ours(isa(), d_x, Epilogue::default()));
        add(&mut group, "dx-gelu", &shape.name(), || {
            matmul::derivative(isa(), d_x, Activation::Gelu)
        });
    }
}
