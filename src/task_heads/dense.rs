//! A linear map of one vector, with an activation.

use super::HeadError;
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

impl Dense {
    /// The linear map of these tensors; `name` is the name of the matrix.
    pub(super) fn new(
        name: &str,
        (shape, weight): ShapedTensor,
        bias: Option<ShapedTensor>,
        activation: OutputActivation,
    ) -> Result<Self, HeadError> {
        let &[outputs, inputs] = &shape[..] else {
            let (tensor, expected) = (name.to_owned(), vec![0, 0]);
            return Err(HeadError::Shape { tensor, expected, found: shape });
        };
        if inputs == 0 {
            // An empty matrix has no data in the file, so its number of rows is unchecked and could be any value.
            let (tensor, expected) = (name.to_owned(), vec![outputs, 1]);
            return Err(HeadError::Shape { tensor, expected, found: shape });
        }
        let bias = match bias {
            Some((found, _)) if found != [outputs] => {
                let tensor = format!("the bias of {name}");
                return Err(HeadError::Shape { tensor, expected: vec![outputs], found });
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
