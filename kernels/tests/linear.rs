//! Linear layers that own their weight, in every dtype, against the product of views and the oracle.

use crate::support::gemm::{PRECISIONS as BITS, Quantized, exact_product, multiply_int8};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::reference;
use simdformer_kernels::{
    Activation, Dtype, Epilogue, Expected, Isa, Linear, Matrix, PostOp, Quantization,
};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];
/// The layer as three loops: `y = x W^T + b` in f64, and the magnitude that errors are relative to.
fn naive(x: Matrix<'_>, weight: Matrix<'_>, bias: Option<&[f32]>) -> (Vec<f64>, Vec<f64>) {
    let epilogue = Epilogue { bias, ..Epilogue::default() };
    exact_product((x, weight.transposed()), &epilogue, None)
}

proptest! {
    #![proptest_config(property(48))]

    #[test]
    fn a_layer_is_its_definition_in_every_dtype(
        (rows, inputs, outputs) in (0usize..40, 0usize..50, 0usize..70),
        with_bias in any::<bool>(),
        (crew, seed) in (0..CREWS.len(), any::<u64>()),
    ) {
        let mut random = Random::new(seed);
        let (x, w) = (random.values(rows * inputs), random.values(inputs * outputs));
        let bias = random.values(outputs);
        let bias = with_bias.then_some(&bias[..]);
        let x = view_matrix(&x, rows, inputs);
        for isa in all_isas() {
            for dtype in DTYPES {
                let linear = Linear::new(isa, dtype, view_matrix(&w, outputs, inputs), bias).expect("a layer");
                prop_assert_eq!((linear.inputs(), linear.outputs()), (inputs, outputs));
                let kept: Vec<f32> =
                    w.iter().map(|&w| reference::dtype::stored(dtype, w)).collect();
                let (exact, magnitude) = naive(x, view_matrix(&kept, outputs, inputs), bias);
                let mut y = vec![POISON; rows * outputs];
                linear.forward(x, view_matrix_mut(&mut y, rows, outputs)).expect("fits");
                let unit = f64::from(f32::EPSILON) / 2.0;
                for ((&y, exact), magnitude) in y.iter().zip(&exact).zip(&magnitude) {
                    let bound = (inputs + 3) as f64 * unit * magnitude + 1e-30;
                    assert_close(y, *exact, bound, format_args!("{isa} {dtype:?}"));
                }
                prop_assert_eq!(linear.forward_scratch(rows), Ok(0));
                let mut again = vec![POISON; rows * outputs];
                CREWS[crew].with_parallelism(|threads| {
                    let y = view_matrix_mut(&mut again, rows, outputs);
                    linear.forward_with(x, &Epilogue::default(), y, &mut [], threads)
                }).expect("fits");
                prop_assert_eq!(bits(&again), bits(&y));
            }
            for bit in BITS {
                let linear = Linear::quantized(isa, bit, view_matrix(&w, outputs, inputs), bias).expect("a layer");
                let mut y = vec![POISON; rows * outputs];
                linear.forward(x, view_matrix_mut(&mut y, rows, outputs)).expect("fits");
                let weight = Quantized::new(isa, view_matrix(&w, outputs, inputs).transposed());
                prop_assert!(linear.forward_scratch(rows).is_ok());
                let mut expected = poisoned(rows * outputs);
                let to = view_matrix_mut(&mut expected, rows, outputs);
                let epilogue = Epilogue { bias, ..Epilogue::default() };
                multiply_int8((isa, bit), x, &weight.get(), &epilogue, to, SERIAL).expect("fits");
                prop_assert_eq!(bits(&y), bits(&expected), "{} {:?}", isa, bit);
            }
        }
    }
}

/// The layer's bias is added; an epilogue's bias only if the layer has none. The rest of the epilogue is as elsewhere.
#[test]
fn an_epilogue_keeps_the_bias_of_the_layer() {
    let isa = Isa::best();
    let (w, x) = ([1.0, -2.0], [3.0]);
    let weight = view_matrix(&w, 2, 1);
    let x = view_matrix(&x, 1, 1);
    let epilogue = Epilogue {
        bias: Some(&[100.0, 100.0]),
        activation: Activation::Relu,
        post_op: PostOp::AddOutput,
        ..Epilogue::default()
    };
    let own = Some(&[0.5, 0.5][..]);
    for (bias, added, expected) in [
        (own, None, [13.5, 10.0]),
        (None, epilogue.bias, [113.0, 104.0]),
        (None, None, [13.0, 10.0]),
    ] {
        let linear = Linear::new(isa, Dtype::F32, weight, bias).expect("a layer");
        let mut y = [10.0; 2];
        let to = view_matrix_mut(&mut y, 1, 2);
        let epilogue = Epilogue { bias: added, ..epilogue };
        linear.forward_with(x, &epilogue, to, &mut [], SERIAL).expect("fits");
        assert_eq!(y, expected);
    }
    // Two biases are no sum, and none is dropped.
    for linear in [
        Linear::new(isa, Dtype::F32, weight, own),
        Linear::quantized(isa, Quantization::W8A8, weight, own),
        Linear::quantized(isa, Quantization::W8A16, weight, own),
    ] {
        let linear = linear.expect("a layer");
        let mut scratch = vec![0.0; linear.forward_scratch(1).expect("small")];
        let mut y = [POISON; 2];
        let to = view_matrix_mut(&mut y, 1, 2);
        let found = linear.forward_with(x, &epilogue, to, &mut scratch, SERIAL);
        let message = found.expect_err("two biases").to_string();
        let expected =
            "elements of epilogue.bias for a layer with a bias: expected no bias, found 2";
        assert_eq!(message, expected);
        assert!(y.iter().all(|y| y.to_bits() == POISON.to_bits()));
    }
}

#[test]
fn wrong_calls_are_errors_that_write_nothing() {
    let isa = Isa::best();
    let zeros = [0.0; 64];
    let matrix = |rows, columns| view_matrix(&zeros, rows, columns);
    let short = Some(&zeros[..2]);
    let error = Linear::new(isa, Dtype::F32, matrix(3, 4), short).err();
    assert_eq!(error, Some(errors::len("bias", 3, 2)));
    let error = Linear::quantized(isa, Quantization::W8A8, matrix(3, 4), short).err();
    assert_eq!(error, Some(errors::len("bias", 3, 2)));
    let layers = [
        Linear::new(isa, Dtype::F32, matrix(3, 4), None),
        Linear::quantized(isa, Quantization::W8A8, matrix(3, 4), None),
    ];
    for linear in layers {
        let linear = linear.expect("a layer");
        let mut y = [POISON; 6];
        let mut call = |x, [rows, columns]: [usize; 2]| {
            linear.forward(x, view_matrix_mut(&mut y, rows, columns))
        };
        let columns = errors::size("columns", "x", Expected::Exactly(4), 5);
        assert_eq!(call(matrix(2, 5), [2, 3]), Err(columns));
        assert_eq!(call(matrix(2, 4), [3, 2]), Err(errors::shape("y", [2, 3], [3, 2])));
        let to = view_matrix_mut(&mut y, 2, 3);
        let plain = Epilogue::default();
        let found = linear.forward_with(matrix(2, 4), &plain, to, &mut [], SERIAL);
        if linear.forward_scratch(2) == Ok(0) {
            assert_eq!(found, Ok(()));
        } else {
            let needed = linear.forward_scratch(2).expect("small");
            assert_eq!(found, Err(errors::min_len("scratch", needed, 0)));
            assert!(is_poison(&y));
        }
    }
}
