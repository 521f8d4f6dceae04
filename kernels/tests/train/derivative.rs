//! The derivative of an activation in the epilogue of a product: the bits of the product followed by the
//! derivative kernel, and the oracle.

use crate::support::gemm::{ACTIVATIONS, Packed, exact_product, multiply_unpacked, strides};
use crate::support::*;
use simdformer_kernels::train::activation_backward;
use simdformer_kernels::{Activation, Epilogue, Exec, Isa, Parallelism, PostOp, gemm, reference};

/// `pre` and a product of `rows x columns x depth`.
struct Call {
    d_y: Strided,
    weight: Strided,
    pre: Strided,
}

impl Call {
    fn new(random: &mut Random, [rows, columns, depth]: [usize; 3], by_column: bool) -> Self {
        let lay = strides(rows, columns, (3, by_column), 1);
        let mut pre = Strided::new(rows, columns, lay, |_, _| 4.0 * random.value());
        for (at, special) in [0.0, f32::INFINITY, f32::NEG_INFINITY, 1e30, -30.0].iter().enumerate()
        {
            if at < columns {
                pre.data[at * pre.column_stride] = *special;
            }
        }
        Self {
            d_y: Strided::new(rows, depth, (depth + 1, 1), |_, _| random.value()),
            weight: Strided::new(depth, columns, (columns, 1), |_, _| random.value()),
            pre,
        }
    }

    fn post_op(&self, of: Activation) -> PostOp<'_> {
        PostOp::ActivationBackward { activation: of, pre: self.pre.view() }
    }

    fn run(
        &self,
        isa: Isa,
        epilogue: &Epilogue<'_>,
        turned: bool,
        parallelism: Parallelism<'_>,
    ) -> Strided {
        let (rows, columns) = (self.pre.rows, self.pre.columns);
        let mut c =
            Strided::new(rows, columns, strides(rows, columns, (2, turned), 1), |_, _| POISON);
        let packed = Packed::new(isa, self.weight.view());
        packed.multiply(self.d_y.view(), epilogue, c.view_mut(), parallelism);
        c.assert_gaps_untouched();
        c
    }
}

const SHAPES: [[usize; 3]; 6] =
    [[1, 5, 3], [1, 200, 40], [7, 70, 20], [13, 129, 1], [40, 64, 600], [9, 15, 0]];

#[test]
fn it_has_the_bits_of_the_product_and_the_derivative_kernel() {
    let mut random = Random::new(1);
    for shape in SHAPES {
        for layout in 0..4 {
            let call = Call::new(&mut random, shape, layout % 2 == 1);
            let [rows, columns, _] = shape;
            let bias = random.values(columns);
            for isa in all_isas() {
                for &of in ACTIVATIONS {
                    for plain in [
                        Epilogue::default(),
                        Epilogue { scale: 0.5, bias: Some(&bias), ..Epilogue::default() },
                    ] {
                        let with = Epilogue { post_op: call.post_op(of), ..plain };
                        let found = call.run(isa, &with, layout / 2 == 1, SERIAL);
                        let product = call.run(isa, &plain, false, SERIAL);
                        let dense = |from: &Strided| {
                            Strided::new(rows, columns, (columns, 1), |i, j| from.at(i, j))
                        };
                        let (mut expected, pre) = (dense(&product), dense(&call.pre));
                        activation_backward(Exec::serial(isa), of, pre.view(), expected.view_mut())
                            .expect("rows side by side");
                        let what = format!("{isa}: {of:?}, {shape:?}, layout {layout}");
                        assert_eq!(difference(&dense(&found).data, &expected.data), None, "{what}");

                        // A product that is neither packed nor in place.
                        let mut c = Strided::nan(rows, columns, (columns, 1));
                        let operands = (call.d_y.view(), call.weight.view());
                        multiply_unpacked(isa, operands, &with, c.view_mut(), SERIAL);
                        assert_eq!(difference(&c.data, &expected.data), None, "{what}, unpacked");
                    }
                }
            }
        }
    }
}

/// The bound of the product times the largest slope, 1.13, and the error of the derivative, 8e-7 of the
/// sum.
#[test]
fn it_is_within_its_bound() {
    let mut random = Random::new(2);
    for shape @ [rows, columns, depth] in SHAPES {
        let call = Call::new(&mut random, shape, false);
        for isa in all_isas() {
            for &of in ACTIVATIONS {
                let epilogue = Epilogue { post_op: call.post_op(of), ..Epilogue::default() };
                let found = call.run(isa, &epilogue, false, SERIAL);
                let scalar = call.run(Isa::SCALAR, &epilogue, false, SERIAL);
                assert_eq!(difference(&found.data, &scalar.data), None, "{isa}: {of:?}, {shape:?}");
                let operands = (call.d_y.view(), call.weight.view());
                let oracle = |epilogue: &Epilogue<'_>| exact_product(operands, epilogue, None);
                let (exact, _) = oracle(&epilogue);
                let (sums, magnitude) = oracle(&Epilogue::default());
                for at in 0..rows * columns {
                    let rounding = 2.0 * (depth as f64 + 2.0) * UNIT * magnitude[at];
                    let bound = 1.2 * rounding + 1e-6 * sums[at].abs() + 1e-36;
                    let what = format_args!("{isa}: {of:?}, {shape:?}: {at}");
                    assert_close(found.at(at / columns, at % columns), exact[at], bound, what);
                }
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let call = Call::new(&mut Random::new(3), [100, 300, 70], false);
    for isa in all_isas() {
        let epilogue = Epilogue { post_op: call.post_op(Activation::Gelu), ..Epilogue::default() };
        let serial = call.run(isa, &epilogue, false, SERIAL);
        for crew in CREWS {
            let found =
                crew.with_parallelism(|parallelism| call.run(isa, &epilogue, false, parallelism));
            assert_eq!(difference(&found.data, &serial.data), None, "{isa}: {crew:?}");
        }
    }
}

#[test]
fn another_shape_is_an_error() {
    let data = [1.0; 12];
    let matrix = |rows, columns| view_matrix(&data, rows, columns);
    for isa in all_isas() {
        let packed = Packed::new(isa, matrix(3, 4));
        let mut c = [POISON; 8];
        let post_op =
            PostOp::ActivationBackward { activation: Activation::Relu, pre: matrix(2, 3) };
        let epilogue = Epilogue { post_op, ..Epilogue::default() };
        let view = view_matrix_mut(&mut c, 2, 4);
        assert_eq!(
            gemm(matrix(2, 3), &packed.get(), &epilogue, view, SERIAL),
            Err(errors::shape("post_op", [2, 4], [2, 3]))
        );
        assert!(is_poison(&c));
        let (mut out, mut magnitude) = ([0.0; 8], [0.0; 8]);
        let (a, w) = (matrix(2, 3), matrix(3, 4));
        let found = reference::gemm::gemm(a, w, &epilogue, None, &mut out, &mut magnitude);
        assert_eq!(found, Err(errors::shape("post_op", [2, 4], [2, 3])));
    }
}
