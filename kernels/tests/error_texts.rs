//! The texts of errors and of `Debug`: an error names the wrong operand, what was expected and what was
//! found. No view prints its elements.

use crate::support::*;
use core::fmt::Debug;
use simdformer_kernels::embedding::Positions;
use simdformer_kernels::norm::{LayerNorm, RmsNorm};
use simdformer_kernels::position::PositionEncoding;
use simdformer_kernels::pruned_argmax::{Product, PruningTable};
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape, Dtype,
    Epilogue, Error, Heads, HeadsMut, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix,
    Parallelism, PostOp, Qkv, SlotTable, Team, gemm,
};

fn text<T, E: std::error::Error>(result: Result<T, E>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_block_that_does_not_fit_names_its_rows() {
    let mut data = [0.0; 32];
    let matrix = view_matrix(&data, 2, 4);
    let expected = "end of a block of rows: expected at most 2, found 3";
    assert_eq!(text(matrix.block(1, 2)), expected);
    let heads = view_heads(&data, [4, 2, 4]);
    let expected = "end of a block of tokens: expected at most 4, found 9";
    assert_eq!(text(heads.block(0, 9)), expected);
    let matrix = view_matrix_mut(&mut data, 2, 4);
    let expected = "end of a block of rows: expected at most 2, found 3";
    assert_eq!(text(matrix.block(3, 0)), expected);
}

#[test]
fn errors_of_a_view_name_the_mistake() {
    let mut data = [0.0; 10];
    assert_eq!(
        text(Matrix::new(&data, 3, 4)),
        "slice of a matrix [3, 4] with strides 4 and 1: expected at least 12 elements, found 10"
    );
    assert_eq!(
        text(MatrixMut::strided(&mut data, 3, 2, 1, 1)),
        "row and column strides of a writable view: expected distinct elements, found 1 and 1"
    );
    assert_eq!(
        text(HeadsMut::strided(&mut data, [2, 2, 2], 3, 2)),
        "token and head strides of a writable view: expected distinct elements, found 3 and 2"
    );
    assert_eq!(
        text(Heads::strided(&data, [2, 2, 2], usize::MAX, 2)),
        format!("the size of heads [2, 2, 2] with strides {} and 2 overflows", usize::MAX)
    );
    // SAFETY: the call returns an error and uses no memory.
    let null = unsafe { Matrix::from_raw_parts(core::ptr::null(), 1, 1, 1, 1) };
    assert_eq!(text(null), "pointer of a view with elements: expected not null, found 0");
}

/// A weight stored `[out, in]`, as PyTorch does, whose `transposed()` was forgotten.
#[test]
fn a_forgotten_transpose_is_named() {
    let isa = Isa::best();
    let (data, mut y) = ([0.5; 12], [0.0; 3]);
    let weight = view_matrix(&data, 3, 4);
    let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 4, 3).expect("small")];
    let swapped = "the axes are swapped: call `transposed()` on its matrix";
    assert_eq!(
        text(PackOptions::default().pack_columns(isa, weight, (4, 3), 0, &mut buffer)),
        format!("shape of block: expected [4, 3], found [3, 4]; {swapped}")
    );
    let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 3, 4).expect("small")];
    let packed = PackedMatrix::pack(isa, weight, &mut buffer).expect("any shape");
    let (x, y) = (Matrix::new(&data, 1, 4), MatrixMut::new(&mut y, 1, 3));
    let found = gemm(x.expect("x"), &packed, &Epilogue::default(), y.expect("y"), SERIAL);
    assert_eq!(text(found), format!("shape of weight: expected [4, 3], found [3, 4]; {swapped}"));
    // Another mistake gets no such hint.
    let (x, mut y) = (Matrix::new(&data, 1, 5), [0.0; 3]);
    let y = view_matrix_mut(&mut y, 1, 3);
    let found = gemm(x.expect("x"), &packed, &Epilogue::default(), y, SERIAL);
    assert_eq!(text(found), "columns of a: expected 3, found 5");
}

#[test]
fn an_unknown_instruction_set_is_named() {
    let names = r#"["scalar", "avx2", "avx512", "neon"]"#;
    for (name, shown) in [
        ("avx51", r#""avx51""#),
        ("", r#""""#),
        ("AVX2 ", r#""AVX2 ""#),
        ("a\"b", r#""a\"b""#),
        ("a name that is longer than an error can carry", r#""a name that is longer than an "..."#),
        ("thirty bytes, and then umlauts: äöü", r#""thirty bytes, and then umlauts"..."#),
        ("äöüäöüäöüäöüäöüäöü", r#""äöüäöüäöüäöüäöü"..."#),
        ("aäöüäöüäöüäöüäöüäöü", r#""aäöüäöüäöüäöüäö"..."#),
    ] {
        let expected = format!("unknown instruction set {shown}: expected one of {names}");
        assert_eq!(text(Isa::from_name(name)), expected);
    }
    for name in ["neon", "avx512"] {
        if let Err(error @ Error::UnsupportedIsa { best: Some(_), .. }) = Isa::from_name(name) {
            let best = Isa::best();
            let expected =
                format!("this machine has no {name}: its best instruction set is {best}");
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn debug_shows_shapes_and_no_elements() {
    let isa = Isa::SCALAR;
    let data = vec![8.125f32; 1 << 14];
    let mut more = vec![8.125f32; 1 << 14];
    let ids = vec![8125u32; 5000];
    let matrix = Matrix::strided(&data, 100, 8, 16, 2).expect("space");
    let heads = Heads::strided(&data, [100, 2, 8], 36, 16).expect("space");
    let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 100, 8).expect("small")];
    let packed = PackedMatrix::pack(isa, matrix, &mut buffer).expect("the length");
    let mut buffer = vec![0.0; PruningTable::buffer_len(100, 8).expect("small")];
    let pruning_table = PruningTable::build(&packed, &mut buffer).expect("the length");
    let shape = CacheShape::new(2, 16, 2, 8);
    let bias = Bias::Dense { data: &data, head_stride: 0, query_stride: 100 };
    let epilogue =
        Epilogue { bias: Some(&data), post_op: PostOp::Add(matrix), ..Epilogue::default() };
    let show = |value: &dyn Debug, expected: &str| {
        let shown = format!("{value:?}");
        if expected.is_empty() {
            assert!(shown.len() < 320 && !shown.contains("8125"), "{shown}");
            assert!(!shown.contains("8.125"), "{shown}");
        } else {
            assert_eq!(shown, expected);
        }
    };
    show(&matrix, "Matrix(100 x 8, strides 16 and 2)");
    let view = view_matrix_mut(&mut more, 16, 8);
    show(&view, "MatrixMut(16 x 8, strides 8 and 1)");
    show(&heads, "Heads(100 x 2 x 8, strides 36 and 16)");
    let view = view_heads_mut(&mut more, [3, 2, 8]);
    show(&view, "HeadsMut(3 x 2 x 8, strides 16 and 8)");
    show(&AttentionOutput::from(view), "");
    show(&Qkv { query: heads, key: heads, value: heads }, "");
    show(&packed, "PackedMatrix(100 x 8, scalar)");
    show(&pruning_table, "PruningTable(100 x 8)");
    show(
        &Product {
            weight: &packed,
            pruning_table: &pruning_table,
            bias: Some(&data),
            by_column: Some(matrix),
        },
        "",
    );
    show(
        &epilogue,
        "Epilogue { scale: 1.0, bias: Some([16384 elements]), activation: Identity, \
         post_op: Add(Matrix(100 x 8, strides 16 and 2)) }",
    );
    show(&Cache::new(isa, shape, &data).expect("space"), "Cache(2 slots of 16 x 2 x 8, scalar)");
    let halves = CacheShape { dtype: Dtype::F16, ..shape };
    show(
        &Cache::new(isa, halves, &data).expect("space"),
        "Cache(2 slots of 16 x 2 x 8 in f16, scalar)",
    );
    show(
        &CacheMut::new(isa, shape, &mut more).expect("space"),
        "CacheMut(2 slots of 16 x 2 x 8, scalar)",
    );
    show(&bias, "Dense { data: [16384 elements], head_stride: 0, query_stride: 100 }");
    show(
        &Bias::Relative { data: &data, head_stride: 9, zero: 4 },
        "Relative { data: [16384 elements], head_stride: 9, zero: 4 }",
    );
    show(&AttentionOptions { bias: Some(bias), ..AttentionOptions::new(8) }, "");
    show(&SlotTable { lens: &ids, slots: &ids, stride: 50 }, "");
    let weights = AttentionWeights {
        data: &mut more,
        heads: &[1, 2],
        head_stride: 8,
        query_stride: 4,
        keys: 3,
    };
    show(&weights, "");
    show(&Positions { table: matrix, rows: &ids }, "");
    show(&PositionEncoding::Learned { table: matrix, offset: 2 }, "");
    show(
        &LayerNorm { weight: &data, bias: Some(&data[1..]), eps: 0.5 },
        "LayerNorm { weight: [16384 elements], bias: Some([16383 elements]), eps: 0.5 }",
    );
    show(&RmsNorm { weight: &data, eps: 0.5 }, "RmsNorm { weight: [16384 elements], eps: 0.5 }");
    show(&SERIAL, "Serial");
    show(&Parallelism::Rayon, "Rayon");
    show(
        &Parallelism::Executor(&Runs(3, |_: usize, _: &(dyn Fn(usize) + Sync)| ())),
        "Executor(3 threads)",
    );
    show(&isa, "Isa(scalar)");
    Team::form(|team| {
        let threads = Parallelism::Team(team).threads();
        assert_eq!(format!("{team:?}"), format!("Team({threads} threads)"));
    });
}
