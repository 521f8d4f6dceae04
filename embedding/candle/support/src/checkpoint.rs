//! A checkpoint with the shapes of OPUS-MT, without a file.

use crate::Random;
use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::VarBuilder;
use candle_nn::var_builder::SimpleBackend;
use candle_transformers::models::marian::Config;

/// A checkpoint with random weights, each seeded by its name.
struct Seeded {
    /// An id whose embedding is NaN.
    broken: Option<usize>,
}

impl SimpleBackend for Seeded {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: candle_nn::Init,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let seed =
            name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let mut floats = Random::new(seed).floats(shape.elem_count());
        let columns = *shape.dims().last().expect("a dimension");
        let (scale, offset) = match name {
            _ if name.contains("norm.weight") => (0.2, 1.0),
            _ if name.ends_with("bias") => (0.1, 0.0),
            // Embeddings and products keep the magnitude of their inputs.
            _ => ((3.0 / columns as f32).sqrt(), 0.0),
        };
        floats.iter_mut().for_each(|x| *x = *x * scale + offset);
        if let Some(id) = self.broken.filter(|_| name.ends_with("shared.weight")) {
            floats[id * columns..][..columns].fill(f32::NAN);
        }
        Tensor::from_vec(floats, shape, device)?.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        Err(Error::Msg(format!("{name} without a shape")))
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

/// The variables of such a checkpoint. `broken`: an id whose embedding is NaN.
pub fn seeded(broken: Option<usize>) -> VarBuilder<'static> {
    VarBuilder::from_backend(Box::new(Seeded { broken }), DType::F32, Device::Cpu)
}

/// OPUS-MT with a smaller vocabulary.
pub fn opus() -> Config {
    let vocabulary = 4001;
    Config {
        vocab_size: vocabulary,
        decoder_vocab_size: Some(vocabulary),
        pad_token_id: 4000,
        decoder_start_token_id: 4000,
        ..Config::opus_mt_fr_en()
    }
}
