//! [`AddLayerNorm`] compared with `+` and [`candle_nn::LayerNorm`].

use super::linear::layouts;
use candle_core::{Layout, Module, Result, Storage, Tensor};
use candle_nn::LayerNorm;
use simdformer_candle::AddLayerNorm;
use simdformer_candle_support::{Random, bits, close, isa};
use simdformer_kernels::Isa;

/// The result of candle on contiguous tensors.
fn own(norm: &LayerNorm, residual: &Tensor, x: &Tensor) -> Result<Tensor> {
    norm.forward(&(residual.contiguous()? + x.contiguous()?)?)
}

/// The storage of a tensor without the elements of the tensor.
fn around(tensor: &Tensor) -> Result<Vec<u32>> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { unreachable!("on the CPU") };
    let mut floats: Vec<u32> = storage.as_slice::<f32>()?.iter().map(|x| x.to_bits()).collect();
    for place in places(layout) {
        floats[place] = 0;
    }
    Ok(floats)
}

fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![layout.start_offset()];
    for (&dim, &stride) in layout.dims().iter().zip(layout.stride()) {
        places = places.iter().flat_map(|at| (0..dim).map(move |i| at + i * stride)).collect();
    }
    places
}

#[test]
fn three_hundred_random_layouts() -> Result<()> {
    let mut random = Random::new(11);
    for case in 0..300 {
        // candle computes the variance from a sum of squares, which cancels for a few nearly equal
        // columns.
        let columns = random.from(16, 90);
        let rank = random.from(1, 4);
        let mut dims: Vec<usize> = (1..rank).map(|_| random.from(0, 7)).collect();
        dims.push(columns);
        let x = random.view(&dims, true)?;
        let parameters =
            LayerNorm::new(random.tensor(&[columns])?, random.tensor(&[columns])?, 1e-5);
        let same = random.clone();
        let residual = random.view(&dims, false)?;
        let what = format!("case {case}: {:?} += {:?}", residual.layout(), x.layout());
        for isa in Isa::available() {
            let norm = AddLayerNorm::from_layer_norm(isa, &parameters)?;
            // The same values in the same layout, in a storage of their own.
            let written = same.clone().view(&dims, false)?;
            norm.add(&written, &x)?;
            assert_eq!(around(&written)?, around(&residual)?, "{what}");
            let dense = residual.contiguous()?.copy()?;
            norm.add(&dense, &x.contiguous()?)?;
            assert_eq!(bits(&written)?, bits(&dense)?, "{what}");
            if x.elem_count() > 0 {
                close(&written, &own(&parameters, &residual, &x)?, &what)?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_layout_of_the_table() -> Result<()> {
    let mut random = Random::new(12);
    let parameters = LayerNorm::new(random.tensor(&[37])?, random.tensor(&[37])?, 1e-5);
    for isa in Isa::available() {
        let norm = AddLayerNorm::from_layer_norm(isa, &parameters)?;
        for (name, x) in layouts()? {
            let residual = random.tensor(x.dims())?;
            let expected = match x.elem_count() {
                0 => residual.copy()?,
                _ => own(&parameters, &residual, &x)?,
            };
            norm.add(&residual, &x)?;
            close(&residual, &expected, name)?;
        }
        for (name, residual) in layouts()? {
            if name.starts_with("broadcast") || name == "one value" {
                continue; // An error: see rejections.rs.
            }
            let x = random.tensor(residual.dims())?;
            let expected = match x.elem_count() {
                0 => residual.copy()?,
                _ => own(&parameters, &residual, &x)?,
            };
            norm.add(&residual, &x)?;
            close(&residual, &expected, name)?;
        }
    }
    Ok(())
}

#[test]
fn nan_stays_in_its_row() -> Result<()> {
    let mut random = Random::new(13);
    let parameters = LayerNorm::new(random.tensor(&[40])?, random.tensor(&[40])?, 1e-5);
    let norm = AddLayerNorm::from_layer_norm(isa(), &parameters)?;
    let (x, residual) = (random.tensor(&[6, 40])?, random.tensor(&[6, 40])?);
    let mut broken = x.to_vec2::<f32>()?;
    broken[2][7] = f32::NAN;
    let broken = Tensor::new(broken, x.device())?;
    let (one, other) = (residual.copy()?, residual.copy()?);
    norm.add(&one, &x)?;
    norm.add(&other, &broken)?;
    for row in [0, 1, 3, 4, 5] {
        assert_eq!(bits(&one.narrow(0, row, 1)?)?, bits(&other.narrow(0, row, 1)?)?, "row {row}");
    }
    assert!(other.to_vec2::<f32>()?[2].iter().all(|x| x.is_nan()));
    Ok(())
}
