//! The measurements of `roofline`: the limits, then every kernel on the shapes that a Transformer of the
//! usual sizes has.

use crate::bytes;
use crate::heads::{self, Mask, Under};
use crate::matmul::{self, Shape};
use crate::measure::{Group, Kernel, Limit, Mode};
use crate::options::Options;
use crate::pruned_argmax;
use crate::rows::{self, Scores};
use crate::work::Work;
use simdformer_kernels::{Activation, Dtype, Epilogue, Isa, Quantization};

/// The largest number of rows of A for which reading W may be the limit.
const FEW_ROWS: usize = 32;

/// The smallest number of rows of A for which matrix instructions are used.
const MANY_ROWS: usize = 32;

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

/// All groups except those of training, in the order of measurement.
pub(crate) fn groups(options: &Options) -> Vec<Group> {
    let mut groups = Vec::new();
    machine(options, &mut groups);
    gemm(options, &mut groups);
    gemm_int8(options, &mut groups);
    pruned_argmaxes(options, &mut groups);
    odd(options, &mut groups);
    attention(options, &mut groups);
    elementwise(options, &mut groups);
    groups
}

/// The kernel, and with several threads its copies and the kernel on one thread.
pub(crate) fn family(
    options: &Options,
    name: &str,
    build: impl Fn(Isa) -> Work + Clone + 'static,
) -> Vec<Kernel> {
    let mut kernels = vec![single(options, name, Mode::Together, build.clone())];
    if options.threads > 1 {
        let copies = format!("{name}/copies");
        kernels.push(single(options, &copies, Mode::Copies, build.clone()));
        kernels.push(single(options, &format!("{name}/serial"), Mode::Serial, build));
    }
    kernels
}

pub(crate) fn single(
    options: &Options,
    name: &str,
    mode: Mode,
    build: impl Fn(Isa) -> Work + 'static,
) -> Kernel {
    let isa = options.isa;
    Kernel { name: name.to_owned(), isa, mode, build: Box::new(move || build(isa)) }
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

/// `16MiB`; bytes if they are not whole KiB.
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
            limits.push(Limit::Read(shape.half_bytes() as usize));
        }
        let mut kernels =
            family(options, "gemm", move |isa| matmul::ours(isa, shape, Epilogue::default()));
        for (name, dtype) in [("gemm/bf16", Dtype::Bf16), ("gemm/f16", Dtype::F16)] {
            kernels.extend(family(options, name, move |isa| matmul::stored(isa, shape, dtype)));
        }
        // A linear layer with a bias, for the comparison with engines that offer only this.
        kernels.push(single(options, "gemm/bias", Mode::Together, move |isa| {
            let bias = Some(&*vec![0.5; shape.1].leak());
            matmul::ours(isa, shape, Epilogue { bias, ..Epilogue::default() })
        }));
        // The cost of the epilogue where the depth is smallest.
        if shape.2 == 512 && shape.0 >= 256 {
            let epilogue = Epilogue { activation: Activation::Gelu, ..Epilogue::default() };
            kernels.push(single(options, "gemm/gelu", Mode::Together, move |isa| {
                matmul::ours(isa, shape, epilogue)
            }));
        }
        // The hidden layer of a gated feed-forward block.
        if shape.1 == 2048 {
            let build = move |isa| matmul::gated(isa, shape);
            kernels.push(single(options, "gemm/gated", Mode::Together, build));
        }
        // It uses one thread and selects its own instructions.
        if options.threads == 1 && options.isa == Isa::best() {
            kernels.push(single(options, "gemm/matrixmultiply", Mode::Serial, move |_| {
                matmul::matrixmultiply(shape)
            }));
        }
        groups.push(Group { shape: shape.name(), limits, kernels });
    }
    for (columns, depth) in [(512, 512), (2048, 512), (512, 2048), (32000, 512)] {
        groups.push(Group {
            shape: format!("{columns}x{depth}"),
            limits: vec![Limit::Read(4 * columns * depth)],
            kernels: vec![single(options, "gemm/packing", Mode::Serial, move |isa| {
                matmul::packing(isa, columns, depth, false)
            })],
        });
    }
}

/// Products with int8 weights, with rows in 8 and in 16 bits; the same with so many weights in turn that
/// only the last cache holds them, or none; and the quantization of the rows.
fn gemm_int8(options: &Options, groups: &mut Vec<Group>) {
    let kinds = [("gemm_int8", Quantization::W8A8), ("gemm_int8/16", Quantization::W8A16)];
    let mut group = |shape: Shape, name: String, copies: usize| {
        let mut limits = vec![Limit::Bytes];
        if shape.0 <= FEW_ROWS {
            limits.push(Limit::Read(copies * bytes::bytes(shape)));
        }
        let kernels = kinds.into_iter().flat_map(|(kind, precision)| {
            family(options, kind, move |isa| {
                bytes::product(isa.without_matrix_products(), shape, precision, copies)
            })
        });
        groups.push(Group { shape: name.clone(), limits, kernels: kernels.collect() });
        // Many rows with AMX or I8MM, if the CPU has one.
        if shape.0 >= MANY_ROWS && options.isa.has_matrix_products() {
            let kinds = if options.isa.name() == "neon" {
                ["gemm_int8/i8mm", "gemm_int8/i8mm-16"]
            } else {
                ["gemm_int8/amx", "gemm_int8/amx-16"]
            };
            let kinds = kinds.into_iter().zip([Quantization::W8A8, Quantization::W8A16]);
            let kernels = kinds.flat_map(|(kind, precision)| {
                family(options, kind, move |isa| bytes::product(isa, shape, precision, copies))
            });
            let limits = vec![Limit::Matrices];
            groups.push(Group { shape: name, limits, kernels: kernels.collect() });
        }
    };
    for &shape in GEMM.iter().chain(&options.shapes) {
        group(shape, shape.name(), 1);
    }
    for rows in [1, 4, 8] {
        for (columns, depth) in [(2048, 512), (512, 2048), (512, 512)] {
            for mebibytes in [16, 256] {
                let shape = Shape(rows, columns, depth);
                let copies = (mebibytes << 20) / bytes::bytes(shape);
                group(shape, format!("{}*{copies}", shape.name()), copies);
            }
        }
    }
    for (rows, depth) in [(1, 512), (1, 2048), (32, 512), (256, 512), (256, 2048)] {
        let limits = vec![Limit::Copy { bytes: bytes::rounding_bytes(rows, depth), inputs: 1 }];
        let kernels = [
            ("gemm_int8/rounding", Quantization::W8A8),
            ("gemm_int8/rounding-16", Quantization::W8A16),
        ]
        .into_iter()
        .flat_map(|(kind, precision)| {
            family(options, kind, move |isa| bytes::rounding(isa, rows, depth, precision))
        })
        .collect();
        groups.push(Group { shape: format!("{rows}x{depth}"), limits, kernels });
    }
}

/// The argmax of the logits of each row. Few rows are limited by reading the pruning table, more rows by
/// the int8 multiply-adds.
fn pruned_argmaxes(options: &Options, groups: &mut Vec<Group>) {
    for rows in [1, 8, 32] {
        let shape = Shape(rows, 32000, 512);
        groups.push(Group {
            shape: shape.name(),
            limits: vec![Limit::Fma, Limit::Read(pruned_argmax::bytes(shape))],
            kernels: family(options, "pruned_argmax", move |isa| pruned_argmax::argmax(isa, shape)),
        });
    }
}

/// Shapes around the edges of the tiles.
fn odd(options: &Options, groups: &mut Vec<Group>) {
    let (panel, lanes) = (options.isa.panel(), options.isa.lanes());
    for Shape(m, n, k) in matmul::odd_shapes(panel, lanes) {
        let whole = Shape(m, n.next_multiple_of(panel), k);
        let kernel = single(options, "gemm/odd", Mode::Together, move |isa| {
            let work = matmul::ours(isa, Shape(m, n, k), Epilogue::default());
            Work { flops: whole.flops(), bytes: whole.weight_bytes(), ..work }
        });
        let limits = vec![Limit::Fma];
        groups.push(Group { shape: Shape(m, n, k).name(), limits, kernels: vec![kernel] });
    }
}

fn attention(options: &Options, groups: &mut Vec<Group>) {
    // 1,500 keys are a window of Whisper.
    let shapes = [(1, 128), (1, 512), (1, 1024), (1, 1500), (1, 2048), (8, 128)];
    for (batch, tokens) in shapes {
        let shape = heads::Shape::new(batch, tokens, tokens);
        let mut kernels = Vec::new();
        for (name, mask, under) in [
            ("attention", Mask::None, Under::Nothing),
            ("attention/causal", Mask::Causal, Under::Nothing),
            ("attention/padded", Mask::Padded, Under::Nothing),
            ("attention/relative", Mask::None, Under::Relative),
            ("attention/relative-causal", Mask::Causal, Under::Relative),
        ] {
            let build = move |isa| heads::prefill(isa, shape, mask, under);
            kernels.extend(family(options, name, build));
        }
        for (name, mask) in [
            ("attention/int8", Mask::None),
            ("attention/int8-causal", Mask::Causal),
            ("attention/int8-padded", Mask::Padded),
        ] {
            let build = move |isa| heads::prefill_int8(isa, shape, mask);
            kernels.extend(family(options, name, build));
        }
        groups.push(Group { shape: shape.name(), limits: vec![Limit::Fma], kernels });
    }
    let one_head = heads::Shape { heads: 1, ..heads::Shape::new(1, 2048, 2048) };
    groups.push(Group {
        shape: one_head.name(),
        limits: vec![Limit::Fma],
        kernels: family(options, "attention", move |isa| {
            heads::prefill(isa, one_head, Mask::None, Under::Nothing)
        }),
    });
    for dtype in [Dtype::F32, Dtype::F16] {
        for (batch, queries, keys) in [(1, 1, 512), (32, 1, 128), (512, 1, 32), (8, 4, 128)] {
            let shape = heads::Shape::new(batch, queries, keys);
            let bytes = shape.key_value_bytes();
            let build = move |under| move |isa| heads::cached(isa, dtype, shape, under);
            groups.push(on_a_cache(options, "decode", dtype, shape, bytes, build));
        }
        for (batch, beams, keys) in [(512, 1, 32), (1, 4, 128), (8, 4, 128)] {
            let shape = heads::Shape::new(batch, beams, keys);
            let bytes = heads::step_bytes(shape);
            let build = move |under| move |isa| heads::step(isa, dtype, shape, under);
            groups.push(on_a_cache(options, "step", dtype, shape, bytes, build));
        }
    }
}

/// Attention on a cache that would take `bytes` in f32, with and without a bias.
fn on_a_cache<B: Fn(Isa) -> Work + Copy + 'static>(
    options: &Options,
    name: &str,
    dtype: Dtype,
    shape: heads::Shape,
    bytes: f64,
    build: impl Fn(Under) -> B,
) -> Group {
    let kept = if dtype == Dtype::F16 { "-f16" } else { "" };
    let bytes = heads::in_storage(bytes, dtype) as usize;
    let kernels = [("", Under::Nothing), ("-relative", Under::Relative)]
        .into_iter()
        .flat_map(|(bias, under)| {
            family(options, &format!("attention/{name}{kept}{bias}"), build(under))
        })
        .collect();
    Group { shape: shape.name(), limits: vec![Limit::Fma, Limit::Read(bytes)], kernels }
}

fn elementwise(options: &Options, groups: &mut Vec<Group>) {
    for (r, c) in [(128, 512), (1024, 512), (4096, 1024)] {
        let shape = format!("{r}x{c}");
        let bytes = rows::bytes(r, c, 3);
        groups.push(Group {
            shape: shape.clone(),
            limits: vec![Limit::Copy { bytes, inputs: 2 }],
            kernels: [
                family(options, "add_layer_norm", move |isa| rows::add_layer_norm(isa, r, c)),
                family(options, "add_rms_norm", move |isa| rows::add_rms_norm(isa, r, c)),
            ]
            .into_iter()
            .flatten()
            .collect(),
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
