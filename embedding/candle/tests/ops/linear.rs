//! [`SimdLinear`] compared with [`candle_nn::Linear`] and with sums in f64.

use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;
use simdformer_candle::{SimdLinear, activation};
use simdformer_candle_support::{Random, bits, close, isa};
use simdformer_kernels::{Activation, Isa};

#[test]
fn three_hundred_random_layouts() -> Result<()> {
    let mut random = Random::new(1);
    for case in 0..300 {
        let (inputs, outputs) = (random.from(1, 70), random.from(1, 140));
        let rank = random.from(2, 4);
        let mut dims: Vec<usize> = (1..rank).map(|_| random.from(0, 9)).collect();
        dims.push(inputs);
        let x = random.view(&dims, true)?;
        let weight = random.view(&[outputs, inputs], true)?;
        let bias = random.one_in(2).then(|| random.view(&[outputs], true)).transpose()?;
        let act = [candle_nn::Activation::Relu, candle_nn::Activation::Gelu]
            .into_iter()
            .nth(random.from(0, 2));
        let what = format!("case {case}: {:?} to {outputs}, {act:?}", x.layout());

        for isa in Isa::available() {
            let mut layer = SimdLinear::new(isa, &weight, bias.as_ref())?;
            if let Some(act) = act {
                layer = layer.activated(activation(act)?);
            }
            let found = layer.forward(&x)?;
            assert_eq!(bits(&found)?, bits(&layer.forward(&x.contiguous()?)?)?, "{what}");
            if x.elem_count() == 0 {
                let expected = [&dims[..rank - 1], &[outputs]].concat();
                assert_eq!(found.dims(), expected, "{what}");
                continue;
            }
            let own = Linear::new(
                weight.contiguous()?,
                bias.as_ref().map(Tensor::contiguous).transpose()?,
            );
            let expected = own.forward(&x.contiguous()?)?;
            let expected = match act {
                Some(act) => act.forward(&expected)?,
                None => expected,
            };
            close(&found, &expected, &what)?;
        }
    }
    Ok(())
}

/// The layouts that every adapter must read, `[.., 37]` each.
pub(crate) fn layouts() -> Result<Vec<(&'static str, Tensor)>> {
    let mut random = Random::new(2);
    let mut tensor = |dims: &[usize]| random.tensor(dims);
    Ok(vec![
        ("dense", tensor(&[3, 5, 37])?),
        ("one row", tensor(&[1, 37])?),
        ("a vector", tensor(&[37])?),
        ("zero rows", tensor(&[0, 37])?),
        ("zero rows of several", tensor(&[4, 0, 37])?),
        ("transposed", tensor(&[37, 9])?.t()?),
        ("transposed in a batch", tensor(&[2, 37, 9])?.transpose(1, 2)?),
        ("permuted rows", tensor(&[5, 3, 37])?.transpose(0, 1)?),
        ("all permuted", tensor(&[37, 5, 3])?.permute((2, 1, 0))?),
        ("narrowed first", tensor(&[7, 5, 37])?.narrow(0, 2, 3)?),
        ("narrowed second", tensor(&[3, 9, 37])?.narrow(1, 2, 5)?),
        ("narrowed last", tensor(&[3, 5, 41])?.narrow(2, 3, 37)?),
        ("part of a fused projection", tensor(&[3, 5, 3, 37])?.narrow(2, 1, 1)?.squeeze(2)?),
        ("broadcast rows", tensor(&[1, 37])?.broadcast_as((6, 37))?),
        ("broadcast batch", tensor(&[5, 37])?.broadcast_as((3, 5, 37))?),
        ("broadcast columns", tensor(&[4, 1])?.broadcast_as((4, 37))?),
        ("one value", tensor(&[1])?.broadcast_as((4, 37))?),
        ("unaligned base", tensor(&[5 * 37 + 1])?.narrow(0, 1, 5 * 37)?.reshape((5, 37))?),
    ])
}

#[test]
fn every_layout_of_the_table() -> Result<()> {
    let mut random = Random::new(3);
    let (weight, bias) = (random.tensor(&[70, 37])?, random.tensor(&[70])?);
    let own = Linear::new(weight.clone(), Some(bias.clone()));
    let (weights, biases) = (weight.to_vec2::<f32>()?, bias.to_vec1::<f32>()?);
    for isa in Isa::available() {
        let layer = SimdLinear::from_linear(isa, &own)?;
        for (name, x) in layouts()? {
            let found = layer.forward(&x)?;
            let rows = x.contiguous()?.reshape(((), 37))?;
            if rows.elem_count() > 0 {
                close(&found.reshape(((), 70))?, &own.forward(&rows)?, name)?;
            }
            assert_eq!(
                found.dims().split_last().map(|(_, dims)| dims),
                x.dims().split_last().map(|(_, dims)| dims),
                "{name}"
            );
            // Within the error bound of the kernel from the sums in f64.
            for (x, y) in
                rows.to_vec2::<f32>()?.iter().zip(found.reshape(((), 70))?.to_vec2::<f32>()?)
            {
                for ((weights, bias), y) in weights.iter().zip(&biases).zip(y) {
                    let products =
                        || x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w));
                    let exact = products().sum::<f64>() + f64::from(*bias);
                    let sizes = products().map(f64::abs).sum::<f64>() + exact.abs();
                    let error = (f64::from(y) - exact).abs();
                    assert!(
                        error <= 2.0 * 38.0 * f64::from(f32::EPSILON) * sizes,
                        "{name}: {y}, {exact}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn parts_side_by_side_have_the_bits_that_they_have_alone() -> Result<()> {
    let mut random = Random::new(4);
    let x = random.tensor(&[7, 33])?;
    let weights =
        [random.tensor(&[65, 33])?, random.view(&[3, 33], false)?, random.tensor(&[40, 33])?];
    let bias = random.tensor(&[3])?;
    for isa in Isa::available() {
        let parts = [(&weights[0], None), (&weights[1], Some(&bias)), (&weights[2], None)];
        let whole = SimdLinear::side_by_side(isa, &parts)?.forward(&x)?;
        let mut first = 0;
        for (weight, bias) in parts {
            let alone = SimdLinear::new(isa, weight, bias)?.forward(&x)?;
            let count = weight.dim(0)?;
            assert_eq!(bits(&whole.narrow(1, first, count)?)?, bits(&alone)?);
            first += count;
        }
        assert_eq!(whole.dims(), [7, first]);
    }
    Ok(())
}

#[test]
fn rows_have_the_bits_that_they_have_alone() -> Result<()> {
    let mut random = Random::new(5);
    let layer =
        SimdLinear::new(isa(), &random.tensor(&[130, 65])?, None)?.activated(Activation::Silu);
    let x = random.tensor(&[64, 65])?;
    let all = layer.forward(&x)?;
    for row in 0..64 {
        let alone = layer.forward(&x.narrow(0, row, 1)?)?;
        assert_eq!(bits(&all.narrow(0, row, 1)?)?, bits(&alone)?);
    }
    Ok(())
}

#[test]
fn no_inputs_give_the_bias() -> Result<()> {
    let bias = Tensor::new(&[1f32, -2.0], &Device::Cpu)?;
    let weight = Tensor::zeros((2, 0), candle_core::DType::F32, &Device::Cpu)?;
    let layer = SimdLinear::new(isa(), &weight, Some(&bias))?.activated(Activation::Relu);
    let x = Tensor::zeros((3, 0), candle_core::DType::F32, &Device::Cpu)?;
    assert_eq!(layer.forward(&x)?.to_vec2::<f32>()?, vec![[1.0, 0.0]; 3]);
    Ok(())
}

#[test]
fn weights_of_other_types_are_widened() -> Result<()> {
    let mut random = Random::new(6);
    let weight = random.tensor(&[20, 30])?.to_dtype(candle_core::DType::BF16)?;
    let x = random.tensor(&[4, 30])?;
    let wide = SimdLinear::new(isa(), &weight.to_dtype(candle_core::DType::F32)?, None)?;
    let layer = SimdLinear::new(isa(), &weight, None)?;
    assert_eq!(bits(&layer.forward(&x)?)?, bits(&wide.forward(&x)?)?);
    Ok(())
}

#[test]
fn every_activation_matches_candle() -> Result<()> {
    use candle_nn::Activation::{Gelu, GeluPytorchTanh, NewGelu, Relu, Sigmoid, Silu, Swish};
    let mut random = Random::new(7);
    let (weight, x) = (random.tensor(&[40, 9])?, random.tensor(&[5, 9])?);
    let own = Linear::new(weight.clone(), None);
    for act in [Gelu, GeluPytorchTanh, NewGelu, Relu, Sigmoid, Silu, Swish] {
        let layer = SimdLinear::new(isa(), &weight, None)?.activated(activation(act)?);
        close(&layer.forward(&x)?, &act.forward(&own.forward(&x)?)?, &format!("{act:?}"))?;
    }
    let text = activation(candle_nn::Activation::Mish).unwrap_err().to_string();
    assert!(text.starts_with("the activation Mish is not computed here; expected ReLU"), "{text}");
    Ok(())
}

#[test]
fn debug_of_a_layer_shows_its_shape() -> Result<()> {
    let weight = Tensor::zeros((3, 2), candle_core::DType::F32, &Device::Cpu)?;
    let layer = SimdLinear::new(Isa::SCALAR, &weight, None)?;
    assert_eq!(format!("{layer:?}"), "SimdLinear(2 -> 3, Identity, scalar, Rayon)");
    Ok(())
}
