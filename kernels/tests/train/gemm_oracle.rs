//! The oracles of the gradients of a linear layer compared with central differences of the layer.

use crate::support::*;
use simdformer_kernels::reference::gemm::gemm;
use simdformer_kernels::reference::gemm_gradient::{bias_gradient, weight_gradient};
use simdformer_kernels::{Epilogue, Expected, Matrix};

/// A linear layer and a loss, in f64.
#[derive(Clone)]
struct Layer {
    shape: [usize; 3],
    x: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
}

impl Layer {
    /// `sum_kn tanh(y)[k, n]` with `y = x W^T + b`: not linear, so dY differs from element to element.
    fn loss(&self) -> f64 {
        self.outputs().into_iter().map(f64::tanh).sum()
    }

    fn outputs(&self) -> Vec<f64> {
        let [rows, outputs, inputs] = self.shape;
        let mut y = Vec::new();
        for k in 0..rows {
            for n in 0..outputs {
                let products =
                    (0..inputs).map(|m| self.x[k * inputs + m] * self.weight[n * inputs + m]);
                y.push(self.bias[n] + products.sum::<f64>());
            }
        }
        y
    }

    /// The difference quotient by the element that `part` selects.
    fn slope(&self, part: impl Fn(&mut Self) -> &mut f64) -> f64 {
        const STEP: f64 = 1e-5;
        let at = |step: f64| {
            let mut layer = self.clone();
            *part(&mut layer) += step;
            layer.loss()
        };
        (at(STEP) - at(-STEP)) / (2.0 * STEP)
    }
}

/// Reads dY, writes a gradient and its magnitude.
type Oracle<'a> = &'a dyn Fn(Matrix<'_>, &mut [f64], &mut [f64]);

fn close(found: f64, slope: f64, what: &str) {
    let error = (found - slope).abs();
    assert!(error <= 1e-6 * slope.abs().max(1.0), "{what}: {found} and a slope of {slope}");
}

#[test]
fn the_oracles_are_the_derivatives_of_a_layer() {
    let mut random = Random::new(1);
    for shape @ [rows, outputs, inputs] in [[1, 1, 1], [3, 2, 4], [5, 4, 1], [2, 7, 3]] {
        // Values that f32 represents exactly, because the oracles take f32.
        let mut values =
            |n: usize| -> Vec<f64> { random.values(n).iter().map(|&x| f64::from(x)).collect() };
        let (x, weight) = (values(rows * inputs), values(outputs * inputs));
        let layer = Layer { shape, x, weight, bias: values(outputs) };
        let single = |values: &[f64]| -> Vec<f32> { values.iter().map(|&x| x as f32).collect() };
        let d_y: Vec<f64> = layer.outputs().iter().map(|y| 1.0 - y.tanh() * y.tanh()).collect();
        // dY is not exact in f32: the oracle gets it in two parts, whose gradients are added.
        let high = single(&d_y);
        let low: Vec<f32> =
            d_y.iter().zip(&high).map(|(x, &h)| (x - f64::from(h)) as f32).collect();
        let (x, weight) = (single(&layer.x), single(&layer.weight));
        let x = view_matrix(&x, rows, inputs);
        let weight = view_matrix(&weight, outputs, inputs);
        let gradient = |len: usize, one: Oracle<'_>| {
            let mut sums = vec![0.0; len];
            for part in [&high, &low] {
                let (mut out, mut magnitude) = (vec![f64::NAN; len], vec![f64::NAN; len]);
                one(view_matrix(part, rows, outputs), &mut out, &mut magnitude);
                assert!(out.iter().zip(&magnitude).all(|(x, m)| x.abs() <= m * (1.0 + 1e-12)));
                sums.iter_mut().zip(out).for_each(|(sum, x)| *sum += x);
            }
            sums
        };
        let d_weight = gradient(outputs * inputs, &|d_y, out, magnitude| {
            weight_gradient(d_y, x, None, out, magnitude).expect("a fit");
        });
        let d_bias = gradient(outputs, &|d_y, out, magnitude| {
            bias_gradient(d_y, None, out, magnitude).expect("a fit");
        });
        let d_x = gradient(rows * inputs, &|d_y, out, magnitude| {
            // dX = dY W: the product of dY and the weight as it is stored.
            gemm(d_y, weight, &Epilogue::default(), None, out, magnitude).expect("a fit");
        });
        for (i, &found) in d_weight.iter().enumerate() {
            close(found, layer.slope(|layer| &mut layer.weight[i]), &format!("{shape:?}: dW {i}"));
        }
        for (i, &found) in d_bias.iter().enumerate() {
            close(found, layer.slope(|layer| &mut layer.bias[i]), &format!("{shape:?}: db {i}"));
        }
        for (i, &found) in d_x.iter().enumerate() {
            close(found, layer.slope(|layer| &mut layer.x[i]), &format!("{shape:?}: dX {i}"));
        }
    }
}

/// The earlier contents count in the sum and in its magnitude.
#[test]
fn the_oracles_add_to_what_is_there() {
    let d_y = view_matrix(&[2.0, -3.0], 1, 2);
    let x = view_matrix(&[-4.0], 1, 1);
    let before = [1.0, 100.0];
    let (mut out, mut magnitude) = ([0.0; 2], [0.0; 2]);
    let there = view_matrix(&before, 2, 1);
    weight_gradient(d_y, x, Some(there), &mut out, &mut magnitude).expect("a fit");
    assert_eq!((out, magnitude), ([-7.0, 112.0], [9.0, 112.0]));
    bias_gradient(d_y, Some(&before), &mut out, &mut magnitude).expect("a fit");
    assert_eq!((out, magnitude), ([3.0, 97.0], [3.0, 103.0]));
}

#[test]
fn the_oracles_have_the_errors_of_the_kernel() {
    let zeros = Strided::new(4, 4, (4, 1), |_, _| 0.0);
    let of = |rows, columns| view_matrix(&zeros.data, rows, columns);
    let mut out = [0.0; 6];
    let mut magnitude = [0.0; 6];
    let mut run =
        |x, before, n: usize| weight_gradient(of(2, 3), x, before, &mut out[..n], &mut magnitude);
    assert_eq!(run(of(2, 2), Some(of(3, 2)), 6), Ok(()));
    assert_eq!(run(of(3, 2), None, 6), Err(errors::size("rows", "x", Expected::Exactly(2), 3)));
    assert_eq!(run(of(2, 2), Some(of(2, 2)), 6), Err(errors::shape("before", [3, 2], [2, 2])));
    assert_eq!(run(of(2, 2), None, 5), Err(errors::len("out", 6, 5)));
    let refused = bias_gradient(of(2, 3), Some(&zeros.data[..2]), &mut out[..3], &mut magnitude);
    assert_eq!(refused, Err(errors::len("before", 3, 2)));
    let refused = bias_gradient(of(2, 3), None, &mut out[..3], &mut magnitude);
    assert_eq!(refused, Err(errors::len("magnitude", 3, 6)));
}
