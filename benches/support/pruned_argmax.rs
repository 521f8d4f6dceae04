//! The argmax of each row of a product, pruned in int8.

use crate::buffer::Buffer;
use crate::matmul::Shape;
use crate::work::Work;
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
use simdformer_kernels::{Isa, Matrix, PackedMatrix};
use std::hint::black_box;

/// The argmax of each row by this library's pruning table of W. W is `[columns, depth]` in memory, as a
/// tied embedding is.
///
/// An int8 multiply-add counts as a quarter of an f32 one, because a VNNI instruction does four in place of
/// one. The multiply-adds of the second pass in f32 do not count.
pub(crate) fn argmax(isa: Isa, shape: Shape) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w) = (Buffer::random(m * k, 1), Buffer::random(n * k, 2));
    let mut packed = Buffer::zeros(PackedMatrix::buffer_len(isa, k, n).expect("length"));
    let weight = Matrix::new(&w, n, k).expect("weight").transposed();
    let weight = PackedMatrix::pack(isa, weight, &mut packed).expect("pack");
    let mut built = Buffer::zeros(PruningTable::buffer_len(k, n).expect("length"));
    PruningTable::build(&weight, &mut built).expect("a pruning table");
    let mut scratch = Buffer::zeros(pruned_argmax::argmax_scratch(m, k).expect("scratch"));
    let (mut columns, mut values) = (vec![0; m], vec![0.0; m]);
    Work::new(shape.flops() / 4.0, bytes(shape) as f64, move |parallelism| {
        let product = Product {
            weight: &PackedMatrix::from_packed(isa, k, n, &packed).expect("packed"),
            pruning_table: &PruningTable::from_built(k, n, &built).expect("a pruning table"),
            bias: None,
            by_column: Some(Matrix::new(&w, n, k).expect("weight")),
        };
        let a = Matrix::new(black_box(&a), m, k).expect("a");
        let outputs = (&mut *columns, &mut *values);
        pruned_argmax::argmax(&product, a, &|_, _| false, outputs, &mut scratch, parallelism)
            .expect("a pruning table");
        black_box(&columns);
    })
}

/// The bytes of the pruning table of W.
pub(crate) fn bytes(shape: Shape) -> usize {
    4 * PruningTable::buffer_len(shape.2, shape.1).expect("length")
}
