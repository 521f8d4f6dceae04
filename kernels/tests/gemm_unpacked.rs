//! Products of two unpacked matrices have the bits of the packed product, which is compared with the oracle
//! elsewhere, and are compared with the oracle again: every layout, every edge of a block, in a scratch of
//! exactly the documented length.

use crate::support::gemm::{Packed, exact_product, multiply_unpacked, strides};
use crate::support::*;
use simdformer_kernels::{
    Activation, Epilogue, Exec, Isa, PackedMatrix, Parallelism, PostOp, gemm_unpacked,
    gemm_unpacked_scratch,
};

fn run(
    isa: Isa,
    (a, b, residual): (&Strided, &Strided, &Strided),
    bias: &[f32],
    c: &mut Strided,
    parallelism: Parallelism<'_>,
) {
    let epilogue = epilogue(residual, bias);
    multiply_unpacked(isa, (a.view(), b.view()), &epilogue, c.view_mut(), parallelism);
}

fn epilogue<'a>(residual: &'a Strided, bias: &'a [f32]) -> Epilogue<'a> {
    Epilogue {
        scale: 0.5,
        bias: Some(bias),
        activation: Activation::Relu,
        post_op: PostOp::Add(residual.view()),
    }
}

#[test]
fn any_layout_and_any_edge_has_the_bits_of_the_packed_product() {
    let mut random = Random::new(77);
    // Around a panel, around 1,024 columns and around two blocks of them.
    let mut shapes = vec![
        (1, 33, 300),
        (1, 20, 1100),
        (3, 5, 1),
        (1, 64, 70),
        (13, 33, 129),
        (7, 0, 5),
        (0, 4, 9),
        (4, 4, 0),
    ];
    if !brief() {
        shapes.extend([(2, 20, 1024), (7, 17, 1025), (5, 40, 1087), (6, 9, 2048), (3, 11, 2100)]);
    }
    for isa in all_isas() {
        for (index, &(rows, depth, columns)) in shapes.iter().enumerate() {
            for layout in 0..4 {
                let of = |rows, columns, which: usize| {
                    let (gap, by_column) = ((index + which) % 3, (layout >> (which % 2)) & 1 == 1);
                    strides(rows, columns, (gap, by_column), 1 + (index + which + layout) % 2)
                };
                let a = Strided::new(rows, depth, of(rows, depth, 0), |_, _| random.value());
                let b = Strided::new(depth, columns, of(depth, columns, 1), |_, _| random.value());
                let residual =
                    Strided::new(rows, columns, of(rows, columns, 2), |_, _| random.value());
                let bias = random.values(columns);
                let buffer = || Strided::new(rows, columns, of(rows, columns, 1), |_, _| POISON);
                let (mut found, mut expected) = (buffer(), buffer());
                run(isa, (&a, &b, &residual), &bias, &mut found, SERIAL);
                let packed = Packed::new(isa, b.view());
                let epilogue = epilogue(&residual, &bias);
                packed.multiply(a.view(), &epilogue, expected.view_mut(), SERIAL);
                let what = format!("{isa}: {rows} x {columns} x {depth}, layout {layout}");
                assert_eq!(difference(&found.data, &expected.data), None, "{what}");

                let (exact, magnitude) = exact_product((a.view(), b.view()), &epilogue, None);
                for i in 0..rows {
                    for j in 0..columns {
                        let at = i * columns + j;
                        let bound = 2.0 * (depth + 3) as f64 * UNIT * magnitude[at] + 1e-37;
                        assert_close(
                            found.at(i, j),
                            exact[at],
                            bound,
                            format_args!("{what}: ({i}, {j})"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let mut random = Random::new(78);
    let (depth, columns) = (130, 2100);
    for (rows, by_column) in [(4, false), (19, false), (19, true)] {
        let a = Strided::new(rows, depth, (depth, 1), |_, _| random.value());
        let strides = strides(depth, columns, (3, by_column), 1);
        let b = Strided::new(depth, columns, strides, |_, _| random.value());
        let residual = Strided::new(rows, columns, (columns, 1), |_, _| random.value());
        let bias = random.values(columns);
        for isa in all_isas() {
            let buffer = || Strided::new(rows, columns, (columns + 2, 1), |_, _| POISON);
            let mut serial = buffer();
            run(isa, (&a, &b, &residual), &bias, &mut serial, SERIAL);
            for crew in CREWS {
                let mut found = buffer();
                crew.with_parallelism(|parallelism| {
                    run(isa, (&a, &b, &residual), &bias, &mut found, parallelism);
                });
                assert_eq!(difference(&found.data, &serial.data), None, "{isa}: {crew:?}");
            }
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_errors_and_nothing_is_written() {
    let isa = Isa::best();
    let data = [1.0; 64];
    let matrix = |rows, columns| view_matrix(&data, rows, columns);
    let expected = gemm_unpacked_scratch(isa, 3, 4).expect("small");
    assert_eq!(expected, PackedMatrix::buffer_len(isa, 3, 4).expect("small"));
    let mut c = [POISON; 8];
    let mut run = |a, b, epilogue: &Epilogue<'_>, columns, floats| {
        let mut scratch = vec![0.0; floats];
        let c = view_matrix_mut(&mut c, 2, columns);
        gemm_unpacked(Exec::serial(isa), a, b, epilogue, c, &mut scratch)
    };
    let plain = Epilogue::default();
    let bias = Epilogue { bias: Some(&data[..5]), ..plain };
    let residual = Epilogue { post_op: PostOp::Add(matrix(4, 2)), ..plain };
    let less = expected - 1;
    for (a, epilogue, columns, floats, error) in [
        ((2, 5), &plain, 4, expected, "columns of a: expected 3, found 5".to_owned()),
        ((1, 3), &plain, 4, expected, "shape of c: expected [1, 4], found [2, 4]".to_owned()),
        ((2, 3), &plain, 3, expected, "shape of c: expected [2, 4], found [2, 3]".to_owned()),
        ((2, 3), &bias, 4, expected, "length of bias: expected 4, found 5".to_owned()),
        ((2, 3), &residual, 4, expected, "shape of post_op: expected [2, 4], found [4, 2]; the axes are swapped: call `transposed()` on its matrix".to_owned()),
        ((2, 3), &plain, 4, less, format!("length of scratch: expected at least {expected}, found {less}")),
    ] {
        let found = run(matrix(a.0, a.1), matrix(3, 4), epilogue, columns, floats);
        assert_eq!(found.map_err(|error| error.to_string()), Err(error));
    }
    assert!(is_poison(&c), "{c:?}");
    // The scratch length depends on the number of rows, not on the number of columns.
    assert_eq!(gemm_unpacked_scratch(isa, 10, 1024), gemm_unpacked_scratch(isa, 10, usize::MAX));
    assert_eq!(
        gemm_unpacked_scratch(isa, usize::MAX, 2),
        Err(errors::too_large("the packed matrix"))
    );
}
