//! Linear layers that own their weight, in every dtype, against the product of views and the oracle.

use crate::support::errors;
use crate::support::{CREWS, POISON, Random, all_isas, bits, property};
use proptest::prelude::*;
use simdformer_kernels::reference;
use simdformer_kernels::{
    Activation, Dtype, Epilogue, Expected, Isa, Linear, Matrix, MatrixMut, Parallelism, PostOp,
    Quantization, QuantizedActivations, QuantizedMatrix, gemm_int8,
};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];
const BITS: [Quantization; 2] = [Quantization::W8A8, Quantization::W8A16];

fn view(data: &[f32], rows: usize, columns: usize) -> Matrix<'_> {
    Matrix::new(data, rows, columns).expect("space")
}

/// The layer as three loops: `y = x W^T + b` in f64, and the magnitude that errors are relative to.
fn naive(x: Matrix<'_>, weight: Matrix<'_>, bias: Option<&[f32]>) -> (Vec<f64>, Vec<f64>) {
    let mut y = vec![0.0; x.rows() * weight.rows()];
    let mut magnitude = y.clone();
    let epilogue = Epilogue { bias, ..Epilogue::default() };
    reference::gemm::gemm(x, weight.transposed(), &epilogue, None, &mut y, &mut magnitude)
        .expect("shapes that match");
    (y, magnitude)
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
        let x = view(&x, rows, inputs);
        for isa in all_isas() {
            for dtype in DTYPES {
                let linear = Linear::new(isa, dtype, view(&w, outputs, inputs), bias).expect("a layer");
                prop_assert_eq!((linear.inputs(), linear.outputs()), (inputs, outputs));
                let kept: Vec<f32> =
                    w.iter().map(|&w| reference::dtype::stored(dtype, w)).collect();
                let (exact, magnitude) = naive(x, view(&kept, outputs, inputs), bias);
                let mut y = vec![POISON; rows * outputs];
                linear.forward(x, MatrixMut::new(&mut y, rows, outputs).expect("y")).expect("fits");
                let unit = f64::from(f32::EPSILON) / 2.0;
                for ((&y, exact), magnitude) in y.iter().zip(&exact).zip(&magnitude) {
                    let bound = (inputs + 3) as f64 * unit * magnitude + 1e-30;
                    let error = (f64::from(y) - exact).abs();
                    prop_assert!(error <= bound, "{} {:?}: {} {}", isa, dtype, error, bound);
                }
                prop_assert_eq!(linear.forward_scratch(rows), Ok(0));
                let mut again = vec![POISON; rows * outputs];
                CREWS[crew].run(|threads| {
                    let y = MatrixMut::new(&mut again, rows, outputs).expect("y");
                    linear.forward_with(x, &Epilogue::default(), y, &mut [], threads)
                }).expect("fits");
                prop_assert_eq!(bits(&again), bits(&y));
            }
            for bit in BITS {
                let linear = Linear::quantized(isa, bit, view(&w, outputs, inputs), bias).expect("a layer");
                let mut y = vec![POISON; rows * outputs];
                linear.forward(x, MatrixMut::new(&mut y, rows, outputs).expect("y")).expect("fits");
                let mut words = vec![0.0; QuantizedMatrix::buffer_len(inputs, outputs).expect("small")];
                let views = QuantizedMatrix::quantize(isa, view(&w, outputs, inputs).transposed(), &mut words);
                let mut scratch = vec![POISON; linear.forward_scratch(rows).expect("small")];
                let serial = Parallelism::Serial;
                let read = QuantizedActivations::quantize(isa, x, bit, &mut scratch, serial);
                let mut expected = vec![POISON; rows * outputs];
                let to = MatrixMut::new(&mut expected, rows, outputs).expect("y");
                let epilogue = Epilogue { bias, ..Epilogue::default() };
                gemm_int8(&read.expect("x"), &views.expect("W"), &epilogue, to, serial)
                    .expect("fits");
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
    let weight = Matrix::new(&w, 2, 1).expect("W");
    let x = Matrix::new(&x, 1, 1).expect("x");
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
        let to = MatrixMut::new(&mut y, 1, 2).expect("y");
        let epilogue = Epilogue { bias: added, ..epilogue };
        linear.forward_with(x, &epilogue, to, &mut [], Parallelism::Serial).expect("fits");
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
        let to = MatrixMut::new(&mut y, 1, 2).expect("y");
        let found = linear.forward_with(x, &epilogue, to, &mut scratch, Parallelism::Serial);
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
    let matrix = |rows, columns| Matrix::new(&zeros, rows, columns).expect("small");
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
            linear.forward(x, MatrixMut::new(&mut y, rows, columns).expect("y"))
        };
        let columns = errors::size("columns", "x", Expected::Exactly(4), 5);
        assert_eq!(call(matrix(2, 5), [2, 3]), Err(columns));
        assert_eq!(call(matrix(2, 4), [3, 2]), Err(errors::shape("y", [2, 3], [3, 2])));
        let to = MatrixMut::new(&mut y, 2, 3).expect("y");
        let plain = Epilogue::default();
        let found = linear.forward_with(matrix(2, 4), &plain, to, &mut [], Parallelism::Serial);
        if linear.forward_scratch(2) == Ok(0) {
            assert_eq!(found, Ok(()));
        } else {
            let needed = linear.forward_scratch(2).expect("small");
            assert_eq!(found, Err(errors::min_len("scratch", needed, 0)));
            assert!(y.iter().all(|x| x.to_bits() == POISON.to_bits()));
        }
    }
}
