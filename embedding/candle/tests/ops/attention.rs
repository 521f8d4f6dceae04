//! [`SimdAttention`] compared with candle's products and softmax, and with itself in other layouts.

use candle_core::{D, Device, Result, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use simdformer_candle::{HeadLayout, SimdAttention};
use simdformer_candle_support::{Random, bits, close, isa};
use simdformer_kernels::Isa;

/// Which pairs of query and key are visible.
#[derive(Clone, Debug, Default)]
struct Mask {
    causal: bool,
    scale: Option<f32>,
    query_lengths: Option<Vec<usize>>,
    key_lengths: Option<Vec<usize>>,
}

impl Mask {
    fn op(&self, isa: Isa, layout: HeadLayout) -> SimdAttention<'_> {
        let mut op = SimdAttention::new(isa, layout);
        if self.causal {
            op = op.causal();
        }
        if let Some(scale) = self.scale {
            op = op.scale(scale);
        }
        if let Some(lengths) = &self.query_lengths {
            op = op.query_lengths(lengths);
        }
        if let Some(lengths) = &self.key_lengths {
            op = op.key_lengths(lengths);
        }
        op
    }
}

/// Attention of `(batch, tokens, heads, head_dim)` by candle: a product, a mask, a softmax, a product.
fn own(mask: &Mask, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    let (batch, queries, heads, head_dim) = query.dims4()?;
    let (_, keys, key_heads, _) = key.dims4()?;
    let first = |tensor: &Tensor| tensor.transpose(1, 2)?.contiguous();
    let spread = |tensor: &Tensor| {
        let shape = (batch, key_heads, heads / key_heads, keys, head_dim);
        first(tensor)?
            .unsqueeze(2)?
            .broadcast_as(shape)?
            .contiguous()?
            .reshape((batch, heads, keys, head_dim))
    };
    let (mut seen, mut asking) = (Vec::new(), Vec::new());
    for sequence in 0..batch {
        let queries_here = mask.query_lengths.as_ref().map_or(queries, |lengths| lengths[sequence]);
        let keys_here = mask.key_lengths.as_ref().map_or(keys, |lengths| lengths[sequence]);
        for row in 0..queries {
            let visible = |column: usize| {
                column < keys_here && (!mask.causal || column + queries_here < row + 1 + keys_here)
            };
            let asks = row < queries_here && (0..keys).any(visible);
            asking.push(f32::from(u8::from(asks)));
            // A row of minus infinities has no softmax.
            seen.extend((0..keys).map(|column| match !asks || visible(column) {
                true => 0.0,
                false => f32::NEG_INFINITY,
            }));
        }
    }
    let seen = Tensor::from_vec(seen, (batch, 1, queries, keys), &Device::Cpu)?;
    let asking = Tensor::from_vec(asking, (batch, 1, queries, 1), &Device::Cpu)?;
    let scale = mask.scale.map_or(1.0 / (head_dim as f64).sqrt(), f64::from);
    let scores = (first(query)?.matmul(&spread(key)?.transpose(D::Minus2, D::Minus1)?)? * scale)?;
    let weights = candle_nn::ops::softmax_last_dim(&scores.broadcast_add(&seen)?)?;
    weights.matmul(&spread(value)?)?.broadcast_mul(&asking)?.transpose(1, 2)?.contiguous()
}

/// `dims` in the order of `layout`, and back.
fn ordered(dims: [usize; 4], layout: HeadLayout) -> [usize; 4] {
    match layout {
        HeadLayout::TokensFirst => dims,
        HeadLayout::HeadsFirst => [dims[0], dims[2], dims[1], dims[3]],
    }
}

fn tokens_first(tensor: &Tensor, layout: HeadLayout) -> Result<Tensor> {
    match layout {
        HeadLayout::TokensFirst => tensor.contiguous(),
        HeadLayout::HeadsFirst => tensor.transpose(1, 2)?.contiguous(),
    }
}

#[test]
fn three_hundred_random_layouts() -> Result<()> {
    let mut random = Random::new(21);
    for case in 0..300 {
        let (batch, queries) = (random.from(0, 4), random.from(0, 20));
        let causal = random.one_in(3);
        let keys = queries.max(1) + random.from(0, 20);
        let (key_heads, head_dim) = (random.from(1, 3), random.from(1, 40));
        let heads = key_heads * random.from(1, 3);
        let mut lengths = |count: usize, most: usize| -> Vec<usize> {
            (0..count).map(|_| random.from(0, most)).collect()
        };
        let mask = match case % 4 {
            0 => Mask { causal, ..Mask::default() },
            1 => Mask { causal, scale: Some(0.3), ..Mask::default() },
            2 => Mask { key_lengths: Some(lengths(batch, keys)), ..Mask::default() },
            _ => Mask {
                causal,
                query_lengths: Some(lengths(batch, queries)),
                key_lengths: Some(lengths(batch, keys)),
                ..Mask::default()
            },
        };
        for layout in [HeadLayout::TokensFirst, HeadLayout::HeadsFirst] {
            let query = random.view(&ordered([batch, queries, heads, head_dim], layout), true)?;
            let shape = ordered([batch, keys, key_heads, head_dim], layout);
            let (key, value) = (random.view(&shape, true)?, random.view(&shape, true)?);
            let what = format!(
                "case {case}, {layout:?}, {mask:?}: {:?}, {:?}, {:?}",
                query.layout(),
                key.layout(),
                value.layout()
            );
            let dense = [
                tokens_first(&query, layout)?,
                tokens_first(&key, layout)?,
                tokens_first(&value, layout)?,
            ];
            for isa in Isa::available() {
                let found = mask.op(isa, layout).attend(&query, &key, &value)?;
                assert_eq!(found.dims(), query.dims(), "{what}");
                let found = tokens_first(&found, layout)?;
                let [query, key, value] = &dense;
                let again = mask.op(isa, HeadLayout::TokensFirst).attend(query, key, value)?;
                assert_eq!(bits(&found)?, bits(&again)?, "{what}");
                if found.elem_count() > 0 {
                    close(&found, &own(&mask, query, key, value)?, &what)?;
                }
            }
        }
    }
    Ok(())
}

/// A batch of two with 5 tokens and 4 heads of 37, in every layout that an adapter must read.
fn layouts(layout: HeadLayout) -> Result<Vec<(&'static str, Tensor)>> {
    let mut random = Random::new(22);
    let mut tensor = |dims: &[usize]| random.tensor(dims);
    let [_, one, two, _] = ordered([2, 5, 4, 37], layout);
    let shape = [2, one, two, 37];
    Ok(vec![
        ("dense", tensor(&shape)?),
        ("tokens and heads permuted", tensor(&[2, two, one, 37])?.transpose(1, 2)?),
        ("batch inside", tensor(&[one, 2, two, 37])?.transpose(0, 1)?),
        ("transposed heads", tensor(&[2, one, 37, two])?.transpose(2, 3)?),
        ("fused projection", tensor(&[2, one, 3, two, 37])?.narrow(2, 1, 1)?.squeeze(2)?),
        ("narrowed batch", tensor(&[5, one, two, 37])?.narrow(0, 2, 2)?),
        ("narrowed second", tensor(&[2, one + 6, two, 37])?.narrow(1, 3, one)?),
        ("narrowed third", tensor(&[2, one, two + 6, 37])?.narrow(2, 3, two)?),
        ("narrowed last", tensor(&[2, one, two, 45])?.narrow(3, 5, 37)?),
        ("broadcast batch", tensor(&[one, two, 37])?.broadcast_as(&shape)?),
        ("broadcast second", tensor(&[2, 1, two, 37])?.broadcast_as(&shape)?),
        ("broadcast third", tensor(&[2, one, 1, 37])?.broadcast_as(&shape)?),
        ("broadcast last", tensor(&[2, one, two, 1])?.broadcast_as(&shape)?),
        ("one value", tensor(&[1])?.broadcast_as(&shape)?),
        (
            "unaligned base",
            tensor(&[2 * 5 * 4 * 37 + 1])?.narrow(0, 1, 2 * 5 * 4 * 37)?.reshape(&shape)?,
        ),
    ])
}

#[test]
fn every_layout_of_the_table_for_every_operand() -> Result<()> {
    let masks = [
        Mask::default(),
        Mask { causal: true, ..Mask::default() },
        Mask { key_lengths: Some(vec![2, 5]), ..Mask::default() },
    ];
    for layout in [HeadLayout::TokensFirst, HeadLayout::HeadsFirst] {
        let table = layouts(layout)?;
        for isa in Isa::available() {
            for (query_name, query) in &table {
                for (key_name, key) in &table {
                    let value = &table[0].1;
                    for (mask, [query, key, value]) in masks
                        .iter()
                        .flat_map(|mask| [(mask, [query, key, value]), (mask, [query, value, key])])
                    {
                        let found = mask.op(isa, layout).attend(query, key, value)?;
                        let [query, key, value] = [
                            tokens_first(query, layout)?,
                            tokens_first(key, layout)?,
                            tokens_first(value, layout)?,
                        ];
                        let expected = own(mask, &query, &key, &value)?;
                        let what = format!("{layout:?}, {query_name}, {key_name}, {mask:?}");
                        close(&tokens_first(&found, layout)?, &expected, &what)?;
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn candles_own_flash_attention_agrees() -> Result<()> {
    let mut random = Random::new(23);
    for (batch, queries, keys, causal) in [(1, 33, 33, true), (1, 20, 33, false), (3, 17, 17, true)]
    {
        let query = random.tensor(&[batch, queries, 4, 32])?;
        let [key, value] =
            [random.tensor(&[batch, keys, 2, 32])?, random.tensor(&[batch, keys, 2, 32])?];
        let mask = Mask { causal, ..Mask::default() };
        let theirs = if causal { AttnMask::causal() } else { AttnMask::None };
        let scale = 1.0 / 32f32.sqrt();
        // (batch, heads, tokens, head_dim)
        let expected = flash_attn::<f32>(&query, &key, &value, scale, theirs, None, None)?;
        for isa in Isa::available() {
            let found = mask.op(isa, HeadLayout::TokensFirst).attend(&query, &key, &value)?;
            close(&found, &expected.transpose(1, 2)?.contiguous()?, "flash")?;
        }
    }
    Ok(())
}

/// A tensor whose rows after the lengths are `fill`.
fn padded(tensor: &Tensor, lengths: &[usize], layout: HeadLayout, fill: f32) -> Result<Tensor> {
    let (batch, tokens, heads, head_dim) = tokens_first(tensor, layout)?.dims4()?;
    let mut floats = tokens_first(tensor, layout)?.flatten_all()?.to_vec1::<f32>()?;
    let row = heads * head_dim;
    for (sequence, floats) in floats.chunks_exact_mut(tokens * row).enumerate() {
        floats[lengths[sequence] * row..].fill(fill);
    }
    let tensor = Tensor::from_vec(floats, (batch, tokens, heads, head_dim), &Device::Cpu)?;
    tensor.transpose(1, 2)?.contiguous()?.transpose(1, 2)?.contiguous().and_then(|tensor| {
        match layout {
            HeadLayout::TokensFirst => Ok(tensor),
            HeadLayout::HeadsFirst => tensor.transpose(1, 2)?.contiguous(),
        }
    })
}

#[test]
fn padding_with_any_value_changes_no_bit() -> Result<()> {
    let lengths = [1, 7, 64];
    let mut random = Random::new(24);
    for layout in [HeadLayout::TokensFirst, HeadLayout::HeadsFirst] {
        let axis = if layout == HeadLayout::TokensFirst { 1 } else { 2 };
        let shape = ordered([3, 64, 4, 48], layout);
        let operands = [random.tensor(&shape)?, random.tensor(&shape)?, random.tensor(&shape)?];
        for isa in Isa::available() {
            for causal in [false, true] {
                let mask = Mask {
                    causal,
                    query_lengths: Some(lengths.to_vec()),
                    key_lengths: Some(lengths.to_vec()),
                    ..Mask::default()
                };
                for fill in [0.0, f32::NAN, f32::INFINITY, 1e30] {
                    let [query, key, value] =
                        operands.each_ref().map(|operand| padded(operand, &lengths, layout, fill));
                    let batch = mask.op(isa, layout).attend(&query?, &key?, &value?)?;
                    for (sequence, &length) in lengths.iter().enumerate() {
                        let one = |tensor: &Tensor| {
                            tensor.narrow(0, sequence, 1)?.narrow(axis, 0, length)?.contiguous()
                        };
                        let [query, key, value] = operands.each_ref().map(one);
                        let alone = Mask { causal, ..Mask::default() };
                        let alone = alone.op(isa, layout).attend(&query?, &key?, &value?)?;
                        let what = format!("{layout:?}, causal {causal}, {fill}, length {length}");
                        assert_eq!(bits(&one(&batch)?)?, bits(&alone)?, "{what}");
                        let rest =
                            batch.narrow(0, sequence, 1)?.narrow(axis, length, 64 - length)?;
                        assert!(bits(&rest)?.iter().all(|&bits| bits == 0), "{what}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_query_without_a_key_gives_zeros() -> Result<()> {
    let mut random = Random::new(25);
    let query = random.tensor(&[2, 3, 2, 8])?;
    let [key, value] = [random.tensor(&[2, 2, 2, 8])?, random.tensor(&[2, 2, 2, 8])?];
    let op = SimdAttention::new(isa(), HeadLayout::TokensFirst);
    // Aligned to the end: the first of three queries is before both keys.
    let found = op.causal().attend(&query, &key, &value)?;
    assert!(bits(&found.narrow(1, 0, 1)?)?.iter().all(|&bits| bits == 0));
    assert!(bits(&found.narrow(1, 1, 2)?)?.iter().all(|&bits| bits != 0));
    // No key at all.
    let none = key.narrow(1, 0, 0)?;
    let found = op.attend(&query, &none, &none)?;
    assert!(bits(&found)?.iter().all(|&bits| bits == 0));
    Ok(())
}

/// More sequences than one call of the kernel takes.
#[test]
fn a_large_batch_is_its_sequences() -> Result<()> {
    let mut random = Random::new(26);
    let lengths: Vec<usize> = (0..150).map(|_| random.from(1, 6)).collect();
    let [query, key, value] = [(); 3].map(|()| random.tensor(&[150, 6, 2, 16]));
    let (query, key, value) = (query?, key?, value?);
    let op = SimdAttention::new(isa(), HeadLayout::TokensFirst);
    let all = op.lengths(&lengths).attend(&query, &key, &value)?;
    for (sequence, length) in lengths.iter().enumerate() {
        let one = |tensor: &Tensor| tensor.narrow(0, sequence, 1);
        let alone = op.lengths(std::slice::from_ref(length));
        let alone = alone.attend(&one(&query)?, &one(&key)?, &one(&value)?)?;
        assert_eq!(bits(&one(&all)?)?, bits(&alone)?, "{sequence}");
    }
    Ok(())
}
