//! An unsupported call is one error that says what to call instead, and nothing is written.

use candle_core::{DType, Device, Module, Result, Tensor};
use simdformer_candle::{AddLayerNorm, HeadLayout, SimdAttention, SimdLinear};
use simdformer_candle_support::{Random, bits, isa};

#[track_caller]
fn rejected<T>(result: Result<T>, text: &str) {
    match result {
        Ok(_) => panic!("not rejected: {text}"),
        // A backtrace may follow.
        Err(error) => assert_eq!(error.to_string().lines().next(), Some(text)),
    }
}

fn zeros(dims: &[usize]) -> Result<Tensor> {
    Tensor::zeros(dims, DType::F32, &Device::Cpu)
}

#[test]
fn linear() -> Result<()> {
    let isa = isa();
    let layer = SimdLinear::new(isa, &zeros(&[3, 4])?, None)?;
    rejected(
        layer.forward(&zeros(&[2, 4])?.to_dtype(DType::F16)?),
        "linear: the input must be f32, found f16; convert it with `.to_dtype(DType::F32)`",
    );
    rejected(
        layer.forward(&zeros(&[2, 4])?.to_dtype(DType::U32)?),
        "linear: the input must be f32, found u32; convert it with `.to_dtype(DType::F32)`",
    );
    rejected(
        layer.forward(&zeros(&[4, 2])?),
        "linear: the last dimension of the input must be 4, the inputs of the layer, found 2",
    );
    rejected(
        layer.forward(&zeros(&[])?),
        "linear: the input must be [.., inputs], found 0 dimensions; `.reshape(..)` it",
    );
    rejected(
        SimdLinear::new(isa, &zeros(&[3, 4, 5])?, None),
        "linear: the weight must be [outputs, inputs], found 3 dimensions; `.reshape(..)` it",
    );
    rejected(
        SimdLinear::new(isa, &zeros(&[3, 4])?, Some(&zeros(&[4])?)),
        "linear: the bias must be 3, one for each output, found 4",
    );
    rejected(
        SimdLinear::side_by_side(isa, &[(&zeros(&[3, 4])?, None), (&zeros(&[3, 5])?, None)]),
        "linear: the weight's last dimension must be 4, the inputs of the first part, found 5",
    );
    rejected(
        SimdLinear::side_by_side(isa, &[]),
        "a linear layer of no parts is not computed here; expected at least one",
    );
    Ok(())
}

#[test]
fn attention() -> Result<()> {
    let isa = isa();
    let op = SimdAttention::new(isa, HeadLayout::TokensFirst);
    let [query, key] = [zeros(&[2, 3, 8, 16])?, zeros(&[2, 5, 4, 16])?];
    let half = query.to_dtype(DType::F16)?;
    rejected(
        op.attend(&half, &key, &key),
        "attention: the query must be f32, found f16; convert it with `.to_dtype(DType::F32)`",
    );
    rejected(
        op.attend(&query, &key, &key.to_dtype(DType::BF16)?),
        "attention: the value must be f32, found bf16; convert it with `.to_dtype(DType::F32)`",
    );
    rejected(
        op.attend(&query.flatten_to(1)?, &key, &key),
        "attention: the query must be (batch, tokens, heads, head_dim), found 3 dimensions; \
         `.reshape(..)` it",
    );
    let heads_first = SimdAttention::new(isa, HeadLayout::HeadsFirst);
    rejected(
        heads_first.attend(&query.transpose(1, 2)?, &key.flatten_to(1)?, &key),
        "attention: the key must be (batch, heads, tokens, head_dim), found 3 dimensions; \
         `.reshape(..)` it",
    );
    let odd = zeros(&[2, 5, 3, 16])?;
    rejected(
        op.attend(&query, &odd, &odd),
        "attention: 8 query heads are not a multiple of 3 key heads; give key and value a number \
         of heads that divides 8",
    );
    let none = zeros(&[2, 5, 0, 16])?;
    rejected(
        op.attend(&query, &none, &none),
        "attention: 8 query heads are not a multiple of 0 key heads; give key and value a number \
         of heads that divides 8",
    );
    for (key, value, text) in [
        ([3, 5, 4, 16], [2, 5, 4, 16], "the batch of the key must be 2, as the query has, found 3"),
        (
            [2, 5, 4, 16],
            [3, 5, 4, 16],
            "the batch of the value must be 2, as the query has, found 3",
        ),
        (
            [2, 5, 4, 16],
            [2, 6, 4, 16],
            "the tokens of the value must be 5, as the key has, found 6",
        ),
        ([2, 5, 4, 16], [2, 5, 2, 16], "the heads of the value must be 4, as the key has, found 2"),
        (
            [2, 5, 4, 8],
            [2, 5, 4, 16],
            "the head size of the key must be 16, as the query has, found 8",
        ),
        (
            [2, 5, 4, 16],
            [2, 5, 4, 8],
            "the head size of the value must be 16, as the query has, found 8",
        ),
    ] {
        rejected(op.attend(&query, &zeros(&key)?, &zeros(&value)?), &format!("attention: {text}"));
    }
    rejected(
        op.key_lengths(&[1, 2, 3]).attend(&query, &key, &key),
        "attention: 3 key lengths for 2 sequences; give one for each",
    );
    rejected(
        op.query_lengths(&[1]).attend(&query, &key, &key),
        "attention: 1 query lengths for 2 sequences; give one for each",
    );
    rejected(
        op.key_lengths(&[5, 6]).attend(&query, &key, &key),
        "attention: sequence 1 is said to have 6 key tokens, but the tensor has 5; give a length \
         from 0 to 5",
    );
    rejected(
        op.query_lengths(&[4, 3]).attend(&query, &key, &key),
        "attention: sequence 0 is said to have 4 query tokens, but the tensor has 3; give a length \
         from 0 to 3",
    );
    Ok(())
}

#[test]
fn norm() -> Result<()> {
    let isa = isa();
    let mut random = Random::new(31);
    let norm = AddLayerNorm::new(isa, &random.tensor(&[4])?, &random.tensor(&[4])?, 1e-5)?;
    let residual = random.tensor(&[2, 4])?;
    let before = bits(&residual)?;
    rejected(
        norm.add(&residual, &zeros(&[2, 4])?.to_dtype(DType::F16)?),
        "add-layer-norm: the input must be f32, found f16; convert it with `.to_dtype(DType::F32)`",
    );
    rejected(
        norm.add(&residual, &zeros(&[3, 4])?),
        "add-layer-norm: a dimension of the input must be 2, as the destination has, found 3",
    );
    rejected(
        norm.add(&residual, &zeros(&[4])?),
        "add-layer-norm: the input must be of the destination's shape, found 1 dimensions; \
         `.reshape(..)` it",
    );
    assert_eq!(bits(&residual)?, before);
    rejected(
        norm.add(&residual.to_dtype(DType::F64)?, &zeros(&[2, 4])?),
        "add-layer-norm: the destination must be f32, found f64; convert it with \
         `.to_dtype(DType::F32)`",
    );
    rejected(
        norm.add(&zeros(&[2, 5])?, &zeros(&[2, 5])?),
        "add-layer-norm: the last dimension of the destination must be 4, the columns of the norm, \
         found 5",
    );
    rejected(
        norm.add(&zeros(&[])?, &zeros(&[])?),
        "add-layer-norm: the destination must be [.., columns], found 0 dimensions; \
         `.reshape(..)` it",
    );
    for broadcast in [zeros(&[1, 4])?, zeros(&[2, 1])?, zeros(&[1])?] {
        rejected(
            norm.add(&broadcast.broadcast_as((2, 4))?, &zeros(&[2, 4])?),
            "add-layer-norm: the destination is broadcast, so its elements share memory; call \
             `.contiguous()` on it first",
        );
    }
    rejected(
        AddLayerNorm::new(isa, &zeros(&[4])?, &zeros(&[5])?, 1e-5),
        "add-layer-norm: the bias must be 4, one for each weight, found 5",
    );
    for theirs in [
        candle_nn::LayerNorm::rms_norm(zeros(&[4])?, 1e-5),
        candle_nn::LayerNorm::new_no_bias(zeros(&[4])?, 1e-5),
    ] {
        rejected(
            AddLayerNorm::from_layer_norm(isa, &theirs),
            "a norm without a bias or without a mean is not computed here; expected a LayerNorm \
             with both; keep candle's layer",
        );
    }
    // candle's own error text; the point is that it is not a deadlock.
    assert!(norm.add(&residual, &residual).is_err());
    assert!(norm.add(&residual, &residual.copy()?.broadcast_as((2, 4))?).is_ok());
    Ok(())
}
