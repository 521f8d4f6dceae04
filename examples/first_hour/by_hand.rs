//! A model architecture and its weights, defined in code: no file and no download.

use simdformer::config::{Config, Dimensions, NormPlacement, SpecialTokens, Stack};
use simdformer::kernels::Activation;
use simdformer::{Limits, Model, Session, SourceId, StepRow};
use std::error::Error;

/// The shape of the paper with two later changes: norms before each block, and GELU.
fn config() -> Config {
    let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 128, vocabulary: 100 };
    let mut config = Config {
        norm: NormPlacement::Pre,
        activation: Activation::Gelu,
        tokens: SpecialTokens { eos: vec![0], decoder_start: Some(1), ..Default::default() },
        ..Config::transformer(small)
    };
    // With norms before the blocks, the last sum of a stack is not normalized, so each stack has a final norm.
    config.encoder.final_norm = true;
    config.decoder = config.decoder.map(|stack| Stack { final_norm: true, ..stack });
    config
}

/// Pseudorandom numbers, a function of the seed.
fn numbers(mut seed: u32) -> impl FnMut() -> f32 {
    move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
    }
}

/// The logits of the token after the first, from untrained weights.
pub(crate) fn run(seed: u32) -> Result<Vec<f32>, Box<dyn Error>> {
    let mut random = numbers(seed);
    let model = Model::from_fn(config(), |role, shape, out| {
        match *shape {
            [_] if role.to_string().ends_with("norm.weight") => out.fill(1.0),
            // A linear map is `[outputs, inputs]` in row order.
            [_, inputs] => out.fill_with(|| random() / (inputs as f32).sqrt()),
            _ => (), // biases are zero
        }
        Ok(())
    })?;
    let mut session = Session::new(&model, Limits::new(1, 8, 8))?;
    let mut sentence = [SourceId::default()];
    session.encode(&[&[5, 6, 7, 0]], &mut sentence)?;
    let row = session.start(sentence[0])?;
    let token = model.config().tokens.decoder_start.ok_or("a start token")?;
    Ok(session.step(&[StepRow::new(row, token)])?.to_vec())
}
