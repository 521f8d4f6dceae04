//! Arbitrary bytes as a checkpoint: `config.json` and weights. The result must be an `Err` or a model that
//! runs. Everything else is a bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Config;
use simdformer::kernels::Isa;
use simdformer::{Limits, Model, Session, SourceId};

/// A configuration and the bytes of a safetensors file.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    /// `config.json`. The fields below select what is done with it.
    config: &'a str,
    /// Use a small valid configuration instead.
    valid: bool,
    /// Replaces `generation_config.json`.
    generation: &'a str,
    /// The whole file, or the bytes after a valid header.
    file: &'a [u8],
    /// Put a length and the header of the valid configuration before `file`.
    header: Option<&'a str>,
}

const CONFIG: &str = r#"{"model_type": "marian", "d_model": 4, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 4,
    "decoder_ffn_dim": 4, "vocab_size": 6, "pad_token_id": 5, "eos_token_id": 0,
    "decoder_start_token_id": 5, "activation_function": "relu", "max_position_embeddings": 8,
    "scale_embedding": true}"#;

fuzz_target!(|input: Input<'_>| {
    let text = if input.valid { CONFIG } else { input.config };
    let Ok(mut config) = Config::from_hugging_face(text) else { return };
    let _ = config.set_generation_config(input.generation);
    let _ = config.search_options();
    let mut bytes = Vec::new();
    if let Some(header) = input.header {
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
    }
    bytes.extend_from_slice(input.file);
    let Ok(checkpoint) = Checkpoint::from_bytes(config, bytes) else { return };
    for role in TensorId::all(checkpoint.config()) {
        if let Ok(Some(tensor)) = checkpoint.optional(role) {
            let _ = tensor.to_vec();
        }
    }
    let Ok(model) = Model::load(&checkpoint, Isa::SCALAR) else { return };
    let Ok(mut session) = Session::new(&model, Limits::new(1, 2, 2)) else { return };
    let mut sentence = [SourceId::default()];
    if session.encode(&[&[0]], &mut sentence).is_ok() {
        let _ = session.start(sentence[0]);
    }
});
