//! Matrix products.

#[cfg(feature = "train")]
use super::matrix_mut;
use super::{Calls, Results, bits, matrix, poisoned, values, written};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
#[cfg(feature = "train")]
use simdformer_kernels::train::{
    ReductionChunks, WriteMode, weight_gradient, weight_gradient_scratch,
};
use simdformer_kernels::{
    Activation, Dtype, Epilogue, Exec, Matrix, PackOptions, PackedMatrix, PostOp, Quantization,
    QuantizedActivations, QuantizedMatrix, gemm, gemm_int8, gemm_unpacked, gemm_unpacked_scratch,
};

#[cfg(feature = "std")]
use simdformer_kernels::Linear;

pub(super) fn calls(call: &Calls<'_>, results: &mut Results) {
    let Calls { size, .. } = *call;
    let (x, w) = (values(1, size.tokens * size.width()), values(2, size.width() * size.columns));
    let bias = values(3, size.columns);
    packed(call, &x, &w, &bias, results);
    #[cfg(feature = "std")]
    linear(call, &x, &w, &bias, results);
    unpacked(call, &x, &w, results);
    bytes(call, &x, &w, &bias, results);
    largest(call, &x, &w, results);
    #[cfg(feature = "train")]
    gradient(call, results);
}

/// The layer that owns its weight.
#[cfg(feature = "std")]
fn linear(call: &Calls<'_>, x: &[f32], w: &[f32], bias: &[f32], results: &mut Results) {
    let Calls { exec: Exec { isa, threads }, size } = *call;
    let (depth, columns) = (size.width(), size.columns);
    let linear = Linear::new(isa, Dtype::F16, matrix(w, columns, depth), Some(bias)).expect("fits");
    written(results, "forward_with", (poisoned(size.tokens * columns), columns), |to| {
        let x = matrix(x, size.tokens, depth);
        linear.forward_with(x, &Epilogue::default(), to, &mut [], threads)
    });
}

/// Few rows and many, in each dtype.
fn packed(call: &Calls<'_>, x: &[f32], w: &[f32], bias: &[f32], results: &mut Results) {
    let Calls { exec: Exec { isa, threads }, size } = *call;
    let (depth, columns) = (size.width(), size.columns);
    let weight = matrix(w, depth, columns);
    let epilogue =
        Epilogue { bias: Some(bias), activation: Activation::Gelu, ..Epilogue::default() };
    let mut buffer = poisoned(PackedMatrix::buffer_len(isa, depth, columns).expect("small"));
    let whole = PackOptions { parallelism: threads, ..PackOptions::default() }
        .pack(isa, weight, &mut buffer)
        .expect("fits");
    for rows in [1, 7.min(size.tokens), size.tokens] {
        let a = matrix(&x[..rows * depth], rows, depth);
        written(results, "gemm", (poisoned(rows * columns), columns), |to| {
            gemm(a, &whole, &epilogue, to, threads)
        });
    }
    results.push(("pack", bits(&buffer)));
    let shape = (depth, columns);
    let mut again = poisoned(buffer.len());
    PackOptions { parallelism: threads, ..PackOptions::default() }
        .pack_columns(isa, weight, shape, 0, &mut again)
        .expect("fits");
    results.push(("pack_columns", bits(&again)));
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let floats = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("small");
        let mut narrow = poisoned(floats);
        PackOptions { dtype, parallelism: threads }
            .pack_columns(isa, weight, shape, 0, &mut narrow)
            .expect("fits");
        results.push(("pack_columns", bits(&narrow)));
        let narrow =
            PackOptions::new(dtype).from_packed(isa, depth, columns, &narrow).expect("fits");
        let epilogue = Epilogue { post_op: PostOp::AddOutput, ..epilogue };
        written(results, "gemm", (values(4, size.tokens * columns), columns), |to| {
            gemm(matrix(x, size.tokens, depth), &narrow, &epilogue, to, threads)
        });
    }
}

/// Weights that are read in place, and weights that are packed during the call.
fn unpacked(call: &Calls<'_>, x: &[f32], w: &[f32], results: &mut Results) {
    let Calls { exec, size } = *call;
    let Exec { isa, .. } = exec;
    let (depth, columns) = (size.width(), size.columns);
    let transposed: Vec<f32> =
        (0..columns * depth).map(|i| w[i % depth * columns + i / depth]).collect();
    let weights = [matrix(w, depth, columns), matrix(&transposed, columns, depth).transposed()];
    for (rows, weight) in [5.min(size.tokens), size.tokens]
        .into_iter()
        .flat_map(|rows| weights.iter().map(move |weight: &Matrix<'_>| (rows, *weight)))
    {
        let mut scratch = poisoned(gemm_unpacked_scratch(isa, depth, columns).expect("small"));
        let a = matrix(&x[..rows * depth], rows, depth);
        written(results, "gemm_unpacked", (poisoned(rows * columns), columns), |to| {
            gemm_unpacked(exec, a, weight, &Epilogue::default(), to, &mut scratch)
        });
    }
}

fn bytes(call: &Calls<'_>, x: &[f32], w: &[f32], bias: &[f32], results: &mut Results) {
    let Calls { exec, size } = *call;
    let Exec { isa, threads } = exec;
    let (rows, depth, columns) = (size.tokens, size.width(), size.columns);
    let mut buffer = poisoned(QuantizedMatrix::buffer_len(depth, columns).expect("small"));
    let weight =
        QuantizedMatrix::quantize(isa, matrix(w, depth, columns), &mut buffer).expect("fits");
    let epilogue = Epilogue { bias: Some(bias), ..Epilogue::default() };
    let wide = values(5, rows * columns);
    for precision in [Quantization::W8A8, Quantization::W8A16] {
        // A row with this many columns is more than one task.
        for (from, width) in [(x, depth), (&wide[..], columns)] {
            let mut buffer =
                poisoned(QuantizedActivations::buffer_len(rows, width, precision).expect("small"));
            let from = matrix(from, rows, width);
            let rounded =
                QuantizedActivations::quantize(exec, from, precision, &mut buffer).expect("fits");
            let scales: Vec<f32> = (0..rows).map(|row| rounded.row_scale(row)).collect();
            if width == depth {
                written(results, "gemm_int8", (poisoned(rows * columns), columns), |to| {
                    gemm_int8(&rounded, &weight, &epilogue, to, threads)
                });
            }
            results.push(("quantize", [bits(&scales), bits(&buffer)].concat()));
        }
    }
}

fn largest(call: &Calls<'_>, x: &[f32], w: &[f32], results: &mut Results) {
    let Calls { exec: Exec { isa, threads }, size } = *call;
    let (rows, depth, columns) = (size.tokens, size.width(), size.columns);
    let mut buffer = poisoned(PackedMatrix::buffer_len(isa, depth, columns).expect("small"));
    let weight = matrix(w, depth, columns);
    let weight = PackedMatrix::pack(isa, weight, &mut buffer).expect("fits");
    let mut built = poisoned(PruningTable::buffer_len(depth, columns).expect("small"));
    let pruning_table = PruningTable::build(&weight, &mut built).expect("fits");
    let product =
        Product { weight: &weight, pruning_table: &pruning_table, bias: None, by_column: None };
    let (mut found, mut of) = (vec![u32::MAX; rows], poisoned(rows));
    let mut scratch = poisoned(pruned_argmax::argmax_scratch(rows, depth).expect("small"));
    let banned = |row: usize, column: u32| (row + column as usize).is_multiple_of(3);
    let (x, to) = (matrix(x, rows, depth), (&mut found[..], &mut of[..]));
    pruned_argmax::argmax(&product, x, &banned, to, &mut scratch, threads).expect("fits");
    results.push(("argmax", [bits(&of), found].concat()));
}

/// Few outputs, whose inputs are read in place, and many.
#[cfg(feature = "train")]
fn gradient(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let Exec { isa, .. } = exec;
    let (rows, width, columns) = (size.tokens, size.width(), size.columns);
    for (outputs, inputs) in [(width, columns), (columns, width)] {
        let (d_y, x) = (values(6, rows * outputs), values(7, rows * inputs));
        let chunks = [rows as u32 - 2, rows as u32];
        let chunks = ReductionChunks::new(&chunks).expect("in order");
        let floats = weight_gradient_scratch(isa, rows - 2, outputs, inputs).expect("small");
        let mut scratch = poisoned(floats);
        let (mut d_weight, mut d_bias) = (poisoned(outputs * inputs), poisoned(outputs));
        weight_gradient(
            exec,
            matrix(&d_y, rows, outputs),
            matrix(&x, rows, inputs),
            chunks,
            WriteMode::Store,
            matrix_mut(&mut d_weight, outputs, inputs),
            Some(&mut d_bias),
            &mut scratch,
        )
        .expect("fits");
        results.push(("weight_gradient", [bits(&d_weight), bits(&d_bias)].concat()));
    }
}
