//! The configuration of a file of CTranslate2, from its settings and from the shapes of its variables.

use super::model_file::ModelFile;
use crate::config::ctranslate2::CTranslate2Settings;
use crate::config::{
    Activation, Biases, Config, Dimensions, NormKind, NormPlacement, Positions, RelativeBias, Side,
    Stack, TiedWeights,
};
use crate::error::Error;

/// A specification of CTranslate2 that is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Specification {
    /// An encoder-decoder.
    Transformer,
    /// An encoder alone.
    Encoder,
    Whisper,
}

impl Specification {
    /// The name in a file, and the latest revision.
    const KNOWN: [(&'static str, u32, Self); 5] = [
        ("TransformerSpec", 7, Self::Transformer),
        ("TransformerBase", 7, Self::Transformer),
        ("TransformerBig", 7, Self::Transformer),
        ("TransformerEncoderSpec", 1, Self::Encoder),
        ("WhisperSpec", 3, Self::Whisper),
    ];

    /// That of `file`, in a revision that is read.
    pub(super) fn from_file(file: &ModelFile) -> Result<Self, Error> {
        let (found, revision) = (&*file.specification, file.revision);
        let known = Self::KNOWN.into_iter().find(|(name, ..)| *name == found);
        let Some((_, latest, specification)) = known else {
            let expected = "TransformerSpec, TransformerEncoderSpec or WhisperSpec";
            return Err(file.unsupported("the specification", expected, found.to_owned()));
        };
        // The first revision of the Transformer had the names of OpenNMT-tf.
        let first = if specification == Self::Transformer { 2 } else { 1 };
        if !(first..=latest).contains(&revision) {
            let expected = format!("revision {first} to {latest} of {found}");
            return Err(file.unsupported("the specification", &expected, revision.to_string()));
        }
        Ok(specification)
    }
}

/// What one stack says. Parts that a [`Config`] has once must be equal in both.
struct Half {
    stack: Stack,
    d_model: usize,
    norm: NormPlacement,
    norm_kind: NormKind,
    activation: Activation,
    gated: bool,
    biases: Biases,
    attention_scale: Option<f32>,
    positions: Positions,
    /// `None` if the stack has no embedding.
    embedding_scale: Option<f32>,
}

/// The configuration of `file` without its tokens. The decoder's table has one row more in the configuration if the
/// decoder [starts from zeros](starts_from_zeros).
pub(super) fn read_architecture(
    file: &mut ModelFile,
    specification: Specification,
    settings: &CTranslate2Settings,
) -> Result<Config, Error> {
    let encoder = half(file, Side::Encoder, specification)?;
    let decodes = specification != Specification::Encoder;
    let decoder = decodes.then(|| half(file, Side::Decoder, specification)).transpose()?;
    if let Some(decoder) = &decoder {
        check_equal(file, &encoder, decoder)?;
    }
    let Half { stack, d_model, norm, norm_kind, activation, gated, biases, .. } = encoder;
    let mut bins = None;
    let mut token_types = 0;
    let mut source_vocab = 0;
    if specification == Specification::Whisper {
        let name = "encoder/conv1/weight";
        let shape = file.required(name)?.shape.clone();
        let [_, inputs, 3] = shape[..] else {
            return Err(file.wrong(name, "a convolution of 3 frames", format!("shape {shape:?}")));
        };
        bins = Some(inputs);
    } else {
        let table = source_table(file);
        source_vocab = file.matrix(table)?[0];
        token_types = read_token_types(file, specification)?;
    }
    let mut target_vocab = source_vocab;
    let mut logit_scale = 1.0;
    if decoder.is_some() {
        target_vocab = file.matrix(TARGET_TABLE)?[0];
        logit_scale = file.scalar("decoder/scale_outputs")?.unwrap_or(1.0);
        if starts_from_zeros(file)? {
            target_vocab += 1;
            if shares_table(file) {
                source_vocab += 1;
            }
        }
    }
    let eps = match norm_kind {
        NormKind::RmsNorm => 1e-6,
        NormKind::LayerNorm { .. } => 1e-5,
    };
    let Stack { layers, heads, ffn_dim, .. } = stack;
    let paper = Config::transformer(Dimensions {
        d_model,
        heads,
        layers,
        ffn_dim,
        vocabulary: target_vocab,
    });
    let of_decoder = decoder.as_ref().and_then(|half| half.embedding_scale);
    Ok(Config {
        encoder: stack,
        decoder: decoder.as_ref().map(|half| half.stack),
        bins,
        source_vocab,
        target_vocab,
        norm,
        norm_kind,
        layer_norm_eps: settings.layer_norm_eps.unwrap_or(eps),
        biases,
        activation,
        gated,
        attention_scale: encoder.attention_scale,
        positions: encoder.positions,
        token_types,
        embedding_scale: encoder.embedding_scale.or(of_decoder).unwrap_or(1.0),
        logit_scale,
        // The variables decide.
        ties: TiedWeights { source_target: false, target_output: false },
        ..paper
    })
}

/// The variable of the target embedding.
pub(super) const TARGET_TABLE: &str = "decoder/embeddings/weight";

/// The variable of the source embedding, which has a number since revision 3.
pub(super) fn source_table(file: &ModelFile) -> &'static str {
    const NUMBERED: &str = "encoder/embeddings_0/weight";
    if file.has(NUMBERED) { NUMBERED } else { "encoder/embeddings/weight" }
}

/// Whether both embeddings are one variable.
pub(super) fn shares_table(file: &mut ModelFile) -> bool {
    let source = source_table(file);
    let source = file.find(source).map(|table| table.offset);
    source.is_some() && source == file.find(TARGET_TABLE).map(|table| table.offset)
}

/// Whether the first input of the decoder is a vector of zeros instead of an embedding. The configuration then has a
/// further token with such a row.
pub(super) fn starts_from_zeros(file: &mut ModelFile) -> Result<bool, Error> {
    file.flag("decoder/start_from_zero_embedding", false)
}

/// The rows of a second table, which is added to the embeddings.
fn read_token_types(file: &mut ModelFile, specification: Specification) -> Result<usize, Error> {
    const SECOND: &str = "encoder/embeddings_1/weight";
    const MERGE: &str = "encoder/embeddings_merge";
    const ADDED: f32 = 1.0;
    let merge = match file.scalar(MERGE)? {
        Some(merge) => merge,
        None => file.scalar("embeddings_merge")?.unwrap_or(0.0),
    };
    if !file.has(SECOND) {
        return Ok(0);
    }
    if specification != Specification::Encoder {
        let expected = "one embedding of the source";
        return Err(file.unsupported(SECOND, expected, "a second one, of features".to_owned()));
    }
    if merge != ADDED {
        let expected = "1, tables that are added";
        return Err(file.unsupported(MERGE, expected, merge.to_string()));
    }
    Ok(file.matrix(SECOND)?[0])
}

/// Reads one stack.
fn half(file: &mut ModelFile, side: Side, specification: Specification) -> Result<Half, Error> {
    let scope = side.name();
    let whisper = specification == Specification::Whisper;
    let of = |name: &str| format!("{scope}/{name}");
    let layer = |index: usize, name: &str| format!("{scope}/layer_{index}/{name}");
    let layers = (0..).take_while(|&index| file.has(&layer(index, "ffn/linear_0/weight"))).count();
    let first = layer(0, "ffn/linear_0/weight");
    let [ffn_dim, d_model] = file.matrix(&first)?;
    let heads = read_heads(file, scope)?;
    let projections = layer(0, "self_attention/linear_0/weight");
    let [rows, _] = file.matrix(&projections)?;
    let inner = rows / 3;
    let head_dim = inner.checked_div(heads).unwrap_or(0);
    if rows != 3 * heads * head_dim {
        let expected = format!("rows for query, key and value of {heads} heads");
        return Err(file.wrong(&projections, &expected, format!("{rows} rows")));
    }
    let pre_norm = match file.scalar(&of("pre_norm"))? {
        Some(flag) => flag != 0.0,
        None => file.flag("pre_norm", true)?,
    };
    let norm = if pre_norm { NormPlacement::Pre } else { NormPlacement::Post };
    let has_beta = file.has(&layer(0, "ffn/layer_norm/beta"));
    let norm_kind = if has_beta { NormKind::LayerNorm { bias: true } } else { NormKind::RmsNorm };
    let activation = match file.scalar(&of("activation"))? {
        Some(number) => number,
        None if whisper => GELU,
        None => file.scalar("activation")?.unwrap_or(0.0),
    };
    let relative_bias = read_relative_bias(file, scope, layers)?;
    let encodings = of("position_encodings/encodings");
    let (positions, max_positions) = match relative_bias {
        Some(_) => (Positions::None, None),
        None if file.has(&encodings) => {
            (Positions::Learned { offset: 0 }, Some(file.matrix(&encodings)?[0]))
        }
        // The first position is 1, and angles are computed in f32.
        None => (Positions::HalfSplitSingle { offset: 1 }, None),
    };
    let bias = |name: &str| file.has(&layer(0, name));
    let (inputs, output) =
        (bias("self_attention/linear_0/bias"), bias("self_attention/linear_1/bias"));
    let biases = Biases {
        query: inputs,
        key: inputs,
        value: inputs,
        attention_output: output,
        feed_forward: bias("ffn/linear_0/bias"),
    };
    let has = |name: &str| file.has(&of(name));
    let embedding_norm = has("layernorm_embedding/gamma").then_some(NormPlacement::Post);
    let final_norm = has("layer_norm/gamma");
    let gated = file.has(&layer(0, "ffn/linear_0_noact/weight"));
    let embeds = side == Side::Decoder || !whisper;
    Ok(Half {
        stack: Stack {
            head_dim: (inner != d_model).then_some(head_dim),
            embedding_norm,
            final_norm,
            max_positions,
            relative_bias,
            ..Stack::new(layers, heads, ffn_dim)
        },
        d_model,
        norm,
        norm_kind,
        activation: activation_of(file, &of("activation"), activation)?,
        gated,
        biases,
        attention_scale: read_attention_scale(file, scope, layers)?,
        positions,
        embedding_scale: embeds.then(|| read_embedding_scale(file, side, d_model)).transpose()?,
    })
}

/// The number of GELU.
const GELU: f32 = 3.0;

fn activation_of(file: &ModelFile, name: &str, number: f32) -> Result<Activation, Error> {
    const KNOWN: [Activation; 4] =
        [Activation::Relu, Activation::GeluTanh, Activation::Silu, Activation::Gelu];
    let known = KNOWN.into_iter().zip(0u8..).find(|&(_, known)| f32::from(known) == number);
    known.map(|(activation, _)| activation).ok_or_else(|| {
        let expected = "0 (ReLU), 1 (GELU by tanh), 2 (SiLU) or 3 (GELU)";
        file.unsupported(name, expected, number.to_string())
    })
}

/// The heads of a stack; in early revisions of the whole model, or those that its name implies.
fn read_heads(file: &mut ModelFile, scope: &str) -> Result<usize, Error> {
    let own = format!("{scope}/num_heads");
    let heads = match file.size(&own)? {
        Some(heads) => Some(heads),
        None => file.size("num_heads")?,
    };
    let implied = match &*file.specification {
        "TransformerBase" => Some(8),
        "TransformerBig" => Some(16),
        _ => None,
    };
    match heads.or(implied) {
        Some(0) => Err(file.wrong(&own, "at least 1 head", "0".to_owned())),
        Some(heads) => Ok(heads),
        None => Err(file.wrong(&own, "the number of heads", "no such variable".to_owned())),
    }
}

/// The scale of attention scores: one for all layers, and for both kinds of attention.
fn read_attention_scale(
    file: &mut ModelFile,
    scope: &str,
    layers: usize,
) -> Result<Option<f32>, Error> {
    let mut first: Option<Option<f32>> = None;
    for layer in 0..layers {
        for attention in ["self_attention", "attention"] {
            let block = format!("{scope}/layer_{layer}/{attention}");
            if !file.has(&format!("{block}/linear_0/weight")) {
                continue;
            }
            let name = format!("{block}/queries_scale");
            let scale = file.scalar(&name)?;
            let expected = *first.get_or_insert(scale);
            if scale != expected {
                let shown = |scale: Option<f32>| scale.map_or("none".to_owned(), |x| x.to_string());
                let expected = format!("{}, as in the first layer", shown(expected));
                return Err(file.unsupported(&name, &expected, shown(scale)));
            }
        }
    }
    Ok(first.flatten())
}

/// The scale of the embeddings of a side: a flag for the square root of the width, or the scale itself.
fn read_embedding_scale(file: &mut ModelFile, side: Side, d_model: usize) -> Result<f32, Error> {
    let root = (d_model as f64).sqrt() as f32;
    let name = format!("{}/scale_embeddings", side.name());
    let table = if side == Side::Decoder { TARGET_TABLE } else { source_table(file) };
    let older = table.replace("/weight", "/multiply_by_sqrt_depth");
    let name = if file.has(&name) { name } else { older };
    let is_flag = file.find(&name).is_some_and(|scale| scale.dtype.to_string() == "I8");
    Ok(match file.scalar(&name)? {
        None => root,
        Some(flag) if is_flag => {
            if flag != 0.0 {
                root
            } else {
                1.0
            }
        }
        Some(scale) => scale,
    })
}

/// The bias of scores by distance. All layers have the table of the first, or each has its own.
fn read_relative_bias(
    file: &mut ModelFile,
    scope: &str,
    layers: usize,
) -> Result<Option<RelativeBias>, Error> {
    let mut first = None;
    let mut per_layer = false;
    let mut bias: Option<RelativeBias> = None;
    for layer in 0..layers {
        let block = format!("{scope}/layer_{layer}/self_attention");
        let table = format!("{block}/relative_attention_bias");
        if !file.has(&table) {
            continue;
        }
        let [buckets, _] = file.matrix(&table)?;
        let offset = file.find(&table).map(|table| table.offset);
        per_layer |= *first.get_or_insert(offset) != offset;
        let name = format!("{block}/relative_attention_max_distance");
        let Some(max_distance) = file.size(&name)? else {
            return Err(file.wrong(&name, "a distance", "no such variable".to_owned()));
        };
        let same = bias.get_or_insert(RelativeBias { buckets, max_distance, per_layer: false });
        if (same.buckets, same.max_distance) != (buckets, max_distance) {
            let expected = format!("{}, as in the first layer", same.max_distance);
            return Err(file.unsupported(&name, &expected, max_distance.to_string()));
        }
    }
    Ok(bias.map(|bias| RelativeBias { per_layer, ..bias }))
}

/// Checks that both stacks agree in what a configuration has once.
fn check_equal(file: &ModelFile, encoder: &Half, decoder: &Half) -> Result<(), Error> {
    let scale = |half: &Half| half.embedding_scale.or(encoder.embedding_scale);
    let own_scale = encoder.embedding_scale.is_none() || scale(encoder) == scale(decoder);
    let parts = [
        ("a width", encoder.d_model == decoder.d_model),
        ("a place of the norms", encoder.norm == decoder.norm),
        ("a kind of norm", encoder.norm_kind == decoder.norm_kind),
        ("an activation", encoder.activation == decoder.activation),
        ("a gate", encoder.gated == decoder.gated),
        ("biases", encoder.biases == decoder.biases),
        ("a scale of attention scores", encoder.attention_scale == decoder.attention_scale),
        ("an encoding of positions", encoder.positions == decoder.positions),
        ("a scale of embeddings", own_scale),
    ];
    match parts.into_iter().find(|&(_, equal)| !equal) {
        Some((part, _)) => {
            let expected = format!("{part} that encoder and decoder have in common");
            Err(file.unsupported("decoder", &expected, "different ones".to_owned()))
        }
        None => Ok(()),
    }
}
