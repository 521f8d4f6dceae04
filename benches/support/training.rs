//! The measurements of `roofline` for training, with the feature `train`.

use crate::catalog::{family, single};
use crate::heads::{self, Mask, Part, Under};
use crate::matmul::{self, Shape};
use crate::measure::{Group, Kernel, Limit, Mode};
use crate::options::Options;
use crate::rows;
use crate::updates;
use crate::work::Work;
use simdformer_kernels::{Activation, Epilogue};

/// All groups, in the order of measurement.
pub(crate) fn groups(options: &Options) -> Vec<Group> {
    let mut groups = Vec::new();
    gradients(options, &mut groups);
    attention(options, &mut groups);
    gradients_of_rows(options, &mut groups);
    updates(options, &mut groups);
    groups
}

/// The gradients of a linear layer: `rows x outputs x inputs`.
fn gradients(options: &Options, groups: &mut Vec<Group>) {
    for (rows, outputs, inputs) in matmul::GRADIENTS {
        let shape = (rows, outputs, inputs);
        // The same number of multiply-adds, with the weight packed from its rows.
        let d_x = Shape(rows, inputs, outputs);
        let mut kernels =
            family(options, "gradient/dw", move |isa| matmul::weight_gradient(isa, shape));
        kernels.extend(family(options, "gradient/dx", move |isa| {
            matmul::ours(isa, d_x, Epilogue::default())
        }));
        // The gradient through the activation between two products.
        for (name, of) in
            [("gradient/dx-relu", Activation::Relu), ("gradient/dx-gelu", Activation::Gelu)]
        {
            let build = move |isa| matmul::derivative(isa, d_x, of);
            kernels.push(single(options, name, Mode::Together, build));
        }
        let shape = format!("{rows}x{outputs}x{inputs}");
        groups.push(Group { shape, limits: vec![Limit::Fma], kernels });
    }
    // Both operands of a layer are packed in every step. They are read and written, so the limit is a
    // copy.
    for (outputs, inputs) in [(2048, 512), (512, 2048), (512, 512), (384, 128), (32000, 512)] {
        let bytes = 8 * outputs * inputs;
        let pack = move |columns, depth, by_row| {
            move |isa| Work { bytes: bytes as f64, ..matmul::packing(isa, columns, depth, by_row) }
        };
        let mut kernels = family(options, "gradient/pack-y", pack(outputs, inputs, false));
        kernels.extend(family(options, "gradient/pack-dx", pack(inputs, outputs, true)));
        groups.push(Group {
            shape: format!("{outputs}x{inputs}"),
            limits: vec![Limit::Copy { bytes, inputs: 1 }],
            kernels,
        });
    }
}

/// The attention of training: its gradient, and for the short sentences of a small model forward and
/// gradient.
fn attention(options: &Options, groups: &mut Vec<Group>) {
    for (batch, tokens) in [(1, 128), (1, 512), (1, 1024), (8, 128), (32, 32)] {
        let shape = heads::Shape::new(batch, tokens, tokens);
        let mut kernels = Vec::new();
        for (name, mask, under) in [
            ("attention/gradient", Mask::None, Under::Nothing),
            ("attention/gradient-causal", Mask::Causal, Under::Nothing),
            ("attention/gradient-relative", Mask::None, Under::Relative),
        ] {
            let build = move |isa| heads::training(isa, shape, mask, under, Part::Gradient);
            kernels.extend(family(options, name, build));
        }
        groups.push(Group { shape: shape.name(), limits: vec![Limit::Fma], kernels });
    }
    for tokens in [8, 16, 24] {
        let shape =
            heads::Shape { batch: 64, heads: 4, queries: tokens, keys: tokens, head_dim: 32 };
        let build = move |isa| heads::training(isa, shape, Mask::None, Under::Nothing, Part::Both);
        let kernels = family(options, "attention/training", build);
        groups.push(Group { shape: shape.name(), limits: vec![Limit::Fma], kernels });
    }
}

/// The gradients of norms and activations.
fn gradients_of_rows(options: &Options, groups: &mut Vec<Group>) {
    for (r, c) in [(1500, 128), (4096, 512), (4096, 1024)] {
        let shape = format!("{r}x{c}");
        let bytes = rows::bytes(r, c, 3);
        let norm = move |isa| rows::layer_norm_backward(isa, r, c);
        let mut kernels = family(options, "gradient/layer_norm", norm);
        for (name, activation) in [
            ("gradient/relu", Activation::Relu),
            ("gradient/gelu", Activation::Gelu),
            ("gradient/gelu_tanh", Activation::GeluTanh),
            ("gradient/silu", Activation::Silu),
        ] {
            let build = move |isa| rows::activation_backward(isa, r, c, activation);
            kernels.extend(family(options, name, build));
        }
        let limits = vec![Limit::Copy { bytes, inputs: 2 }];
        groups.push(Group { shape: shape.clone(), limits, kernels });
        groups.push(Group {
            shape,
            limits: vec![Limit::Read(rows::bytes(r, c, 2))],
            kernels: family(options, "gradient/layer_norm_parameters", move |isa| {
                rows::layer_norm_parameters_backward(isa, r, c)
            }),
        });
    }
}

/// The kernels of an update other than products.
fn updates(options: &Options, groups: &mut Vec<Group>) {
    let mut group = |shape: String, limit: Limit, kernels: Vec<Kernel>| {
        groups.push(Group { shape, limits: vec![limit], kernels });
    };
    // The logits of the demo model and of the paper.
    for (r, c) in [(1489, 2318), (512, 32000), (4096, 32000)] {
        let limit = Limit::Copy { bytes: rows::bytes(r, c, 2), inputs: 1 };
        let kernels = family(options, "cross_entropy", move |isa| updates::loss(isa, r, c));
        group(format!("{r}x{c}"), limit, kernels);
    }
    for (rows, tokens, c) in [(2318, 1489, 128), (32000, 4096, 512)] {
        let limit = Limit::Copy { bytes: rows::bytes(tokens, c, 3), inputs: 2 };
        let build = move |isa| updates::lookups(isa, rows, tokens, c);
        let shape = format!("{tokens}x{c}of{rows}");
        group(shape, limit, family(options, "embedding_gradient", build));
    }
    for (r, c) in [(1500, 128), (4096, 512), (4096, 2048)] {
        let limit = Limit::Copy { bytes: rows::bytes(r, c, 2), inputs: 1 };
        let kernels = family(options, "dropout", move |isa| updates::drop(isa, r, c));
        group(format!("{r}x{c}"), limit, kernels);
        let limit = Limit::Copy { bytes: rows::bytes(r, c, 3), inputs: 2 };
        let kernels = family(options, "dropout_add", move |isa| updates::drop_add(isa, r, c));
        group(format!("{r}x{c}"), limit, kernels);
    }
    for len in [1_100_000, 60_500_000] {
        let limit = Limit::Copy { bytes: updates::ADAM * len, inputs: 2 };
        let mut kernels = family(options, "adam", move |isa| updates::update(isa, len, true));
        // After thousands of updates the speed must be the same, because no moment is subnormal.
        kernels.push(single(options, "adam/unused", Mode::Together, move |isa| {
            updates::update(isa, len, false)
        }));
        group(len.to_string(), limit, kernels);
        let kernels = family(options, "sum_of_squares", move |isa| updates::norm(isa, len));
        group(len.to_string(), Limit::Read(4 * len), kernels);
    }
}
