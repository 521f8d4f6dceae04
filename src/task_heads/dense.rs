//! A linear map of one vector, with an activation.

use crate::error::Error;
use simdformer_kernels::{Activation, reference};

/// The activation after a linear map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OutputActivation {
    Identity,
    Tanh,
    Relu,
}

/// `activation(W x + b)`.
#[derive(Debug)]
pub(super) struct Dense {
    /// `[outputs, inputs]`.
    weight: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
    activation: OutputActivation,
}

/// A shape and its numbers.
pub(super) type ShapedTensor = (Vec<usize>, Vec<f32>);

/// The shape of a tensor does not match the tensors around it.
fn wrong_shape(tensor: &str, expected: &[usize], found: &[usize]) -> Error {
    Error::corrupt(tensor, format!("shape {expected:?}"), format!("{found:?}"))
}

/// A module reads vectors of another length, `found`, than it is given.
pub(super) fn wrong_width(module: String, expected: usize, found: usize) -> Error {
    let expected = format!("a module for vectors of {expected} numbers, which it is given");
    Error::corrupt(module, expected, format!("one that reads vectors of {found}"))
}

/// Hidden states are empty or contain an incomplete vector.
pub(super) fn wrong_hidden(width: usize, found: usize) -> Error {
    let expected = format!("one or more vectors of {width} numbers");
    Error::invalid_input("the hidden states", expected, format!("{found} numbers"))
}

impl Dense {
    /// The linear map of these tensors; `name` is the name of the matrix.
    pub(super) fn new(
        name: &str,
        (shape, weight): ShapedTensor,
        bias: Option<ShapedTensor>,
        activation: OutputActivation,
    ) -> Result<Self, Error> {
        let &[outputs, inputs] = &shape[..] else {
            return Err(wrong_shape(name, &[0, 0], &shape));
        };
        if inputs == 0 {
            // An empty matrix has no data in the file, so its number of rows is unchecked and could be any value.
            return Err(wrong_shape(name, &[outputs, 1], &shape));
        }
        let bias = match bias {
            Some((found, _)) if found != [outputs] => {
                return Err(wrong_shape(&format!("the bias of {name}"), &[outputs], &found));
            }
            Some((_, bias)) => bias,
            None => vec![0.0; outputs],
        };
        Ok(Self { weight, bias, inputs, activation })
    }

    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(super) fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Sums are in f64, in the order of the inputs.
    pub(super) fn apply(&self, x: &[f32], out: &mut [f32]) {
        let rows = self.weight.chunks(self.inputs.max(1)).zip(&self.bias);
        for (out, (row, &bias)) in out.iter_mut().zip(rows) {
            let product = |(&w, &x): (&f32, &f32)| f64::from(w) * f64::from(x);
            let sum = row.iter().zip(x).map(product).sum::<f64>() + f64::from(bias);
            *out = match self.activation {
                OutputActivation::Identity => sum,
                // The `tanh` of the platform differs between platforms.
                OutputActivation::Tanh => reference::activation(Activation::Tanh, sum),
                OutputActivation::Relu => sum.max(0.0),
            } as f32;
        }
    }
}
