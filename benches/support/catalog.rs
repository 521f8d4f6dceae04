//! What `roofline` can measure: the limits themselves, then every kernel family on the shapes that
//! a Transformer of the usual sizes has.

use crate::heads::{self, Mask};
use crate::matmul::{self, Shape};
use crate::measure::{Group, Kernel, Limit, Mode};
use crate::options::Options;
use crate::rows::{self, Scores};
use crate::work::Work;
use simdformer_kernels::{Activation, Epilogue, Isa};

/// Rows of A up to which reading W may be the limit.
const FEW_ROWS: usize = 32;

const GEMM: [Shape; 22] = [
    Shape(512, 512, 512),
    Shape(1024, 1024, 1024),
    Shape(256, 512, 512),
    Shape(256, 2048, 512),
    Shape(256, 512, 2048),
    Shape(64, 512, 512),
    Shape(64, 2048, 512),
    Shape(64, 512, 2048),
    Shape(64, 32000, 512),
    Shape(16, 512, 512),
    Shape(16, 2048, 512),
    Shape(16, 512, 2048),
    Shape(16, 32000, 512),
    Shape(8, 512, 512),
    Shape(8, 2048, 512),
    Shape(8, 512, 2048),
    Shape(8, 32000, 512),
    Shape(4, 2048, 512),
    Shape(1, 512, 512),
    Shape(1, 2048, 512),
    Shape(1, 512, 2048),
    Shape(1, 32000, 512),
];

/// Everything, in the order in which it is measured.
pub(crate) fn groups(options: &Options) -> Vec<Group> {
    let mut groups = Vec::new();
    machine(options, &mut groups);
    gemm(options, &mut groups);
    attention(options, &mut groups);
    elementwise(options, &mut groups);
    groups
}

/// The kernel, and with several threads its copies and itself on one.
fn family(
    options: &Options,
    name: &str,
    build: impl Fn(Isa) -> Work + Clone + 'static,
) -> Vec<Kernel> {
    let isa = options.isa;
    let kernel = |suffix: &str, mode| {
        let build = build.clone();
        Kernel { name: format!("{name}{suffix}"), isa, mode, build: Box::new(move || build(isa)) }
    };
    let mut kernels = vec![kernel("", Mode::Together)];
    if options.threads > 1 {
        kernels.push(kernel("/copies", Mode::Copies));
        kernels.push(kernel("/serial", Mode::Serial));
    }
    kernels
}

fn machine(options: &Options, groups: &mut Vec<Group>) {
    let copies = options.threads;
    let mut limit = |limit: Limit, isa: Isa, shape: String| {
        let build = Box::new(move || limit.work(isa, copies));
        let kernel = Kernel { name: limit.name().to_owned(), isa, mode: Mode::Copies, build };
        groups.push(Group { shape, limits: Vec::new(), kernels: vec![kernel] });
    };
    if options.forced {
        limit(Limit::Fma, options.isa, "registers".to_owned());
    } else {
        Isa::available().for_each(|isa| limit(Limit::Fma, isa, "registers".to_owned()));
    }
    let usual = [32 << 10, 1 << 20, 16 << 20, 256 << 20];
    let footprints = usual.iter().chain(&options.footprints);
    for &bytes in footprints.clone() {
        limit(Limit::Read(bytes), options.isa, size(bytes));
    }
    for inputs in [1, 2] {
        for &bytes in footprints.clone() {
            let shape = format!("{inputs}in1out-{}", size(bytes));
            limit(Limit::Copy { bytes, inputs }, options.isa, shape);
        }
    }
}

/// `16MiB`, or bytes when they are not whole KiB.
fn size(bytes: usize) -> String {
    match bytes {
        b if b % (1 << 20) == 0 => format!("{}MiB", b >> 20),
        b if b % (1 << 10) == 0 => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}

fn gemm(options: &Options, groups: &mut Vec<Group>) {
    for &shape in GEMM.iter().chain(&options.shapes) {
        let mut limits = vec![Limit::Fma];
        if shape.0 <= FEW_ROWS {
            limits.push(Limit::Read(shape.weight_bytes() as usize));
        }
        let mut kernels =
            family(options, "gemm", move |isa| matmul::ours(isa, shape, Epilogue::default()));
        // What a Linear layer computes, for the comparison with engines that offer no less.
        kernels.extend(family(options, "gemm/bias", move |isa| {
            let bias = Some(&*vec![0.5; shape.1].leak());
            matmul::ours(isa, shape, Epilogue { bias, ..Epilogue::default() })
        }));
        // What the epilogue costs where depth is least.
        if shape.2 == 512 && shape.0 >= 256 {
            let epilogue = Epilogue { activation: Activation::Gelu, ..Epilogue::default() };
            kernels.extend(family(options, "gemm/gelu", move |isa| {
                matmul::ours(isa, shape, epilogue)
            }));
        }
        // It has one thread and chooses its own instructions.
        if options.threads == 1 && options.isa == Isa::best() {
            kernels.push(Kernel {
                name: "gemm/matrixmultiply".to_owned(),
                isa: options.isa,
                mode: Mode::Serial,
                build: Box::new(move || matmul::matrixmultiply(shape)),
            });
        }
        groups.push(Group { shape: shape.name(), limits, kernels });
    }
    for (columns, depth) in [(512, 512), (2048, 512), (512, 2048), (32000, 512)] {
        let build = Box::new({
            let isa = options.isa;
            move || matmul::packing(isa, columns, depth, false)
        });
        let name = "gemm/packing".to_owned();
        groups.push(Group {
            shape: format!("{columns}x{depth}"),
            limits: vec![Limit::Read(4 * columns * depth)],
            kernels: vec![Kernel { name, isa: options.isa, mode: Mode::Serial, build }],
        });
    }
}

fn attention(options: &Options, groups: &mut Vec<Group>) {
    let shapes = [(1, 128), (1, 512), (1, 1024), (1, 2048), (8, 128)];
    for (batch, tokens) in shapes {
        let shape = heads::Shape::new(batch, tokens, tokens);
        let mut kernels = Vec::new();
        for (name, mask) in [
            ("attention", Mask::None),
            ("attention/causal", Mask::Causal),
            ("attention/padded", Mask::Padded),
        ] {
            kernels.extend(family(options, name, move |isa| heads::prefill(isa, shape, mask)));
        }
        groups.push(Group { shape: shape.name(), limits: vec![Limit::Fma], kernels });
    }
    let single = heads::Shape { heads: 1, ..heads::Shape::new(1, 2048, 2048) };
    groups.push(Group {
        shape: single.name(),
        limits: vec![Limit::Fma],
        kernels: family(options, "attention", move |isa| heads::prefill(isa, single, Mask::None)),
    });
    for (batch, queries, keys) in [(1, 1, 512), (32, 1, 128), (8, 4, 128)] {
        let shape = heads::Shape::new(batch, queries, keys);
        groups.push(Group {
            shape: shape.name(),
            limits: vec![Limit::Fma, Limit::Read(shape.key_value_bytes() as usize)],
            kernels: family(options, "attention/decode", move |isa| heads::cached(isa, shape)),
        });
    }
    for (batch, beams, keys) in [(1, 4, 128), (8, 4, 128)] {
        let shape = heads::Shape::new(batch, beams, keys);
        groups.push(Group {
            shape: shape.name(),
            limits: vec![Limit::Fma, Limit::Read(heads::step_bytes(shape) as usize)],
            kernels: family(options, "attention/step", move |isa| heads::step(isa, shape)),
        });
    }
}

fn elementwise(options: &Options, groups: &mut Vec<Group>) {
    for (r, c) in [(128, 512), (1024, 512), (4096, 1024)] {
        let shape = format!("{r}x{c}");
        let bytes = rows::bytes(r, c, 3);
        groups.push(Group {
            shape: shape.clone(),
            limits: vec![Limit::Copy { bytes, inputs: 2 }],
            kernels: family(options, "add_layer_norm", move |isa| rows::add_layer_norm(isa, r, c)),
        });
        let mut kernels = Vec::new();
        for (name, scores) in [("softmax", Scores::Near), ("softmax/far", Scores::Far)] {
            kernels.extend(family(options, name, move |isa| rows::softmax(isa, r, c, scores)));
        }
        for (name, activation) in [
            ("gelu", Activation::Gelu),
            ("gelu_tanh", Activation::GeluTanh),
            ("silu", Activation::Silu),
        ] {
            let build = move |isa| rows::activation(isa, r, c, activation);
            kernels.extend(family(options, name, build));
        }
        let bytes = rows::bytes(r, c, 2);
        groups.push(Group { shape, limits: vec![Limit::Copy { bytes, inputs: 1 }], kernels });
    }
    for (r, c) in [(1, 32000), (8, 32000), (1, 256_000)] {
        let bytes = rows::bytes(r, c, 2);
        groups.push(Group {
            shape: format!("{r}x{c}"),
            limits: vec![Limit::Copy { bytes, inputs: 1 }],
            kernels: family(options, "log_softmax", move |isa| rows::log_softmax(isa, r, c)),
        });
    }
}
