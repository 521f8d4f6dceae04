//! The tensors of a network in a file of CTranslate2: the variable of each role, or the block of its rows.

use super::architecture::{TARGET_TABLE, shares_table, source_table, starts_from_zeros};
use super::model_file::ModelFile;
use crate::checkpoint::directory::Tensors;
use crate::config::Config;
use crate::error::Error;
use crate::network::visitor::each_tensor;
use crate::network::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};

/// The tensors of the network of `config`, under the printed forms of their roles, in the only source of a checkpoint.
/// Every variable that a result depends on is among them.
pub(super) fn read_tensors(file: &mut ModelFile, config: &Config) -> Result<Tensors, Error> {
    let zero_row = starts_from_zeros(file)?;
    let shared = shares_table(file);
    let mut tensors = Tensors::new();
    each_tensor(config, |tensor| {
        let role = tensor.role;
        let (variable, block) = place(file, config, role);
        if role.may_be_absent() && !file.has(&variable) {
            return Ok(());
        }
        let padded = match role {
            TensorId::SourceEmbedding => shared,
            TensorId::TargetEmbedding | TensorId::Output | TensorId::OutputBias => true,
            _ => false,
        };
        let zero_rows = usize::from(zero_row && padded);
        let name = role.to_string();
        let entry = file.entry(&variable, block, zero_rows, name.clone())?;
        tensors.insert(name, (0, entry));
        Ok::<(), Error>(())
    })?;
    check_unused(file)?;
    Ok(tensors)
}

/// The variable of a role, and which of how many equal blocks of its rows.
fn place(file: &ModelFile, config: &Config, role: TensorId) -> (String, (usize, usize)) {
    const WHOLE: (usize, usize) = (0, 1);
    let linear = |kind| match kind {
        ParamKind::Weight => "weight",
        ParamKind::Bias => "bias",
    };
    let norm = |kind| match kind {
        ParamKind::Weight => "gamma",
        ParamKind::Bias => "beta",
    };
    let whole = |name: String| (name, WHOLE);
    match role {
        TensorId::SourceEmbedding => whole(source_table(file).to_owned()),
        TensorId::TargetEmbedding => whole(TARGET_TABLE.to_owned()),
        TensorId::Output => whole("decoder/projection/weight".to_owned()),
        TensorId::OutputBias => whole("decoder/projection/bias".to_owned()),
        TensorId::Positions(side) => whole(format!("{}/position_encodings/encodings", side.name())),
        TensorId::TokenTypes => whole("encoder/embeddings_1/weight".to_owned()),
        TensorId::RelativeBias(side) => {
            whole(format!("{}/layer_0/self_attention/relative_attention_bias", side.name()))
        }
        TensorId::Convolution(index, kind) => {
            whole(format!("encoder/conv{}/{}", index + 1, linear(kind)))
        }
        TensorId::EmbeddingNorm(side, kind) => {
            whole(format!("{}/layernorm_embedding/{}", side.name(), norm(kind)))
        }
        TensorId::FinalNorm(side, kind) => {
            whole(format!("{}/layer_norm/{}", side.name(), norm(kind)))
        }
        TensorId::Layer(side, layer, part) => {
            let attention = |attention| match attention {
                Attention::Own => "self_attention",
                Attention::Cross => "attention",
            };
            let (path, block) = match part {
                LayerPart::Attention(kind, projection, of) => {
                    // Query, key and value are one matrix, in cross-attention key and value.
                    let (index, block) = match (kind, projection) {
                        (Attention::Own, Projection::Query) => (0, (0, 3)),
                        (Attention::Own, Projection::Key) => (0, (1, 3)),
                        (Attention::Own, Projection::Value) => (0, (2, 3)),
                        (Attention::Own, Projection::Output) => (1, WHOLE),
                        (Attention::Cross, Projection::Query) => (0, WHOLE),
                        (Attention::Cross, Projection::Key) => (1, (0, 2)),
                        (Attention::Cross, Projection::Value) => (1, (1, 2)),
                        (Attention::Cross, Projection::Output) => (2, WHOLE),
                    };
                    (format!("{}/linear_{index}/{}", attention(kind), linear(of)), block)
                }
                LayerPart::AttentionNorm(kind, of) => {
                    (format!("{}/layer_norm/{}", attention(kind), norm(of)), WHOLE)
                }
                LayerPart::FeedForward(half, of) => {
                    // The activation follows `linear_0`, with a gate and without one.
                    let map = match half {
                        FeedForward::Inner if config.gated => "linear_0_noact",
                        FeedForward::Gate | FeedForward::Inner => "linear_0",
                        FeedForward::Outer => "linear_1",
                    };
                    (format!("ffn/{map}/{}", linear(of)), WHOLE)
                }
                LayerPart::FeedForwardNorm(of) => (format!("ffn/layer_norm/{}", norm(of)), WHOLE),
                LayerPart::RelativeBias => {
                    ("self_attention/relative_attention_bias".to_owned(), WHOLE)
                }
            };
            (format!("{}/layer_{layer}/{path}", side.name()), block)
        }
    }
}

/// Settings without an effect on the results, and the values that the others have if nothing more is asked for.
const NEUTRAL: [(&str, Option<f32>); 12] = [
    ("alignment_layer", None),
    ("alignment_heads", None),
    ("alibi_use_positive_positions", None),
    ("pooler_activation", None),
    ("alibi", Some(0.0)),
    ("scale_alibi", Some(0.0)),
    ("multi_query_attention", Some(0.0)),
    ("layer_norm_use_residual", Some(0.0)),
    ("with_relative_position", Some(0.0)),
    ("final_logit_softcapping", Some(0.0)),
    ("layer_scalar", Some(1.0)),
    ("num_heads_kv", Some(0.0)),
];

/// An error if a variable that nobody has read has an effect on the results.
fn check_unused(file: &mut ModelFile) -> Result<(), Error> {
    for name in file.unused() {
        // The vector for a whole text is no part of the encoder's output.
        if name.starts_with("pooler_dense/") {
            continue;
        }
        let last = name.rsplit('/').next().unwrap_or(&name);
        match NEUTRAL.into_iter().find(|(known, _)| *known == last) {
            Some((_, None)) => {}
            Some((_, neutral)) => {
                let found = file.scalar(&name)?;
                if found != neutral {
                    let shown = |x: Option<f32>| x.map_or(String::new(), |x| x.to_string());
                    return Err(file.unsupported(&name, &shown(neutral), shown(found)));
                }
            }
            None => {
                let expected = "variables of a Transformer that this crate computes";
                return Err(file.unsupported(&name, expected, "a further one".to_owned()));
            }
        }
    }
    Ok(())
}
