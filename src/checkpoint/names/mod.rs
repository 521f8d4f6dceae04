//! Where the tensors of a model are in a checkpoint: their names in each family, from the tables of `families.rs`.

mod families;

use core::ops::Range;

use crate::config::{Config, Family, Side, TiedWeights};
use crate::network::TensorId;
use families::{Names, SHARED_EMBEDDING, names};

/// A possible location of a role: a tensor, or one of several equal blocks of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) name: String,
    /// The index of the block, and the number of blocks.
    pub(crate) block: (usize, usize),
}

impl Location {
    /// The shape of the stored tensor, given that of the role.
    pub(crate) fn stored_shape(&self, mut role: Vec<usize>) -> Vec<usize> {
        if let Some(rows) = role.first_mut() {
            *rows *= self.block.1;
        }
        role
    }

    /// The rows of the stored tensor that belong to the role, which has `rows` rows.
    pub(crate) fn rows(&self, rows: usize) -> Range<usize> {
        let begin = rows * self.block.0;
        begin..begin + rows
    }
}

impl TensorId {
    /// The names of this role in a checkpoint of `config.family`, the preferred one first; the checkpoint must
    /// contain one of them. Empty if the family has no such part. [`TensorId::shape`] tells whether a model of
    /// `config` has the role.
    ///
    /// Where [`Config::ties`] say that matrices are one, each role also has the names of the others. Query, key and
    /// value of [`Family::NnTransformer`] have the same name: they are thirds of one tensor `[3 * d_model, ..]`, in
    /// this order.
    ///
    /// ```
    /// use simdformer::checkpoint::{ParamKind, TensorId};
    /// use simdformer::config::{Config, Side};
    ///
    /// let config = Config::from_hugging_face(r#"{"model_type": "m2m_100"}"#)?;
    /// let norm = TensorId::FinalNorm(Side::Encoder, ParamKind::Weight);
    /// assert_eq!(norm.names(&config), ["model.encoder.layer_norm.weight"]);
    /// assert_eq!(TensorId::Output.names(&config)[..2], ["lm_head.weight", "model.decoder.embed_tokens.weight"]);
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn names(self, config: &Config) -> Vec<String> {
        let locations = locate(config.family, config.ties, self);
        locations.into_iter().map(|location| location.name).collect()
    }
}

/// Locations of a role in checkpoints of the family, the preferred one first; empty if the family has no such
/// part.
///
/// The role's own matrix comes first, then those that it is tied to.
pub(super) fn locate(family: Family, ties: TiedWeights, role: TensorId) -> Vec<Location> {
    use TensorId::{Output, SourceEmbedding, TargetEmbedding};
    let TiedWeights { source_target, target_output } = ties;
    // The role, then the roles that it is tied to, the closest first.
    let roles = match role {
        SourceEmbedding => [
            Some(role),
            source_target.then_some(TargetEmbedding),
            (source_target && target_output).then_some(Output),
        ],
        TargetEmbedding => {
            [Some(role), target_output.then_some(Output), source_target.then_some(SourceEmbedding)]
        }
        Output => [
            Some(role),
            target_output.then_some(TargetEmbedding),
            (source_target && target_output).then_some(SourceEmbedding),
        ],
        _ => [Some(role), None, None],
    };
    let mut places: Vec<Location> = Vec::new();
    for place in roles.into_iter().flatten().flat_map(|role| own(family, source_target, role)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Locations of a role, without ties. `shared`: source and target embedding are one matrix.
fn own(family: Family, shared: bool, role: TensorId) -> Vec<Location> {
    const WHOLE: (usize, usize) = (0, 1);
    let path = role.to_string();
    let Some(Names { rows, prefix, has_old_norms }) = names(family) else {
        return vec![Location { name: path, block: WHOLE }];
    };
    let is_embedding = matches!(role, TensorId::SourceEmbedding | TensorId::TargetEmbedding);
    let mut places = Vec::new();
    for &(from, to) in rows.iter().copied().flatten() {
        let (to, block) = match to.split_once('@') {
            Some((to, third)) => (to, (third.parse().unwrap_or(0), 3)),
            None => (to, WHOLE),
        };
        let outer = to.strip_prefix('?').map(|inner| (inner, prefix));
        let (to, prefix) = outer.map_or((to, None), |(inner, prefix)| (inner, Some(prefix)));
        let is_shared = from == SHARED_EMBEDDING && shared && is_embedding;
        let found = if is_shared { Some(to.to_owned()) } else { renamed(from, to, &path) };
        let Some(name) = found else { continue };
        let old = old_norm(&name).filter(|_| has_old_norms && from.ends_with("norm.*"));
        for name in [Some(name), old].into_iter().flatten() {
            let prefixed = prefix.map(|prefix| format!("{prefix}{name}"));
            let names = [Some(name), prefixed].into_iter().flatten();
            places.extend(names.map(|name| Location { name, block }));
        }
    }
    places
}

/// `path` in the form of `to`, if it has the form of `from`. A `*` is any one part of the path.
fn renamed(from: &str, to: &str, path: &str) -> Option<String> {
    let parts = || from.split('.').zip(path.split('.'));
    let same_length = from.split('.').count() == path.split('.').count();
    if !same_length || !parts().all(|(wanted, found)| wanted == "*" || wanted == found) {
        return None;
    }
    let mut free = parts().filter(|&(wanted, _)| wanted == "*").map(|(_, found)| found);
    let mut fixed = to.split('*');
    let mut name = fixed.next()?.to_owned();
    for fixed in fixed {
        name.extend([free.next()?, fixed]);
    }
    Some(name)
}

/// The name that old files have for the scale or the bias of a norm.
fn old_norm(name: &str) -> Option<String> {
    let scale = name.strip_suffix("weight").map(|stem| format!("{stem}gamma"));
    scale.or_else(|| name.strip_suffix("bias").map(|stem| format!("{stem}beta")))
}

/// Whether checkpoints of the family contain this tensor although the model does not need it.
pub(super) fn ignorable(family: Family, name: &str) -> bool {
    if name.ends_with("embed_positions._float_tensor") || name.ends_with(".version") {
        return true;
    }
    let begins = |parts: &[&str]| {
        let inside = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        let name = inside.unwrap_or(name);
        parts.iter().any(|part| name.starts_with(part))
    };
    match family {
        // Position tables that a formula gives.
        Family::Marian | Family::M2M100 | Family::Pegasus | Family::Fsmt => {
            name.ends_with("embed_positions.weight") || name.ends_with("embed_positions.weights")
        }
        // Speech parts, which text-to-text models do not need.
        Family::SeamlessM4t | Family::SeamlessM4tV2 => {
            name.ends_with("embed_positions.weights")
                || begins(&["speech_encoder.", "t2u_model.", "vocoder."])
        }
        // Some early files contain it; the model does not use it.
        Family::T5 | Family::Mt5 | Family::Umt5 => {
            name.ends_with("EncDecAttention.relative_attention_bias.weight")
        }
        // Position ids, and task heads.
        Family::Bert
        | Family::Roberta
        | Family::XlmRoberta
        | Family::Camembert
        | Family::DistilBert
        | Family::MpNet => begins(&[
            "embeddings.position_ids",
            "embeddings.token_type_ids",
            "pooler.",
            "cls.",
            "lm_head.",
            "classifier.",
            "pre_classifier.",
            "qa_outputs.",
            "vocab_",
        ]),
        _ => false,
    }
}

/// Prefixes of an encoder's names in a larger model.
const PREFIXES: &[&str] = &["bert.", "roberta.", "distilbert.", "mpnet."];

/// The stack and the layer of a tensor, from its name in any of the families.
pub(super) fn layer_of(name: &str) -> Option<(Side, usize)> {
    use Side::{Decoder, Encoder};
    const STACKS: [(&str, Side); 8] = [
        ("encoder.layers.", Encoder),
        ("decoder.layers.", Decoder),
        ("text_encoder.layers.", Encoder),
        ("text_decoder.layers.", Decoder),
        ("encoder.block.", Encoder),
        ("decoder.block.", Decoder),
        ("encoder.layer.", Encoder),
        ("transformer.layer.", Encoder),
    ];
    let prefixes = PREFIXES.iter().chain(&["model.", "transformer."]);
    let mut names = prefixes.filter_map(|prefix| name.strip_prefix(prefix)).chain([name]);
    names.find_map(|name| {
        let stack = STACKS.iter().find_map(|&(stem, side)| Some((side, name.strip_prefix(stem)?)));
        let (side, rest) = stack?;
        let (layer, _) = rest.split_once('.')?;
        Some((side, layer.parse().ok()?))
    })
}

/// Up to three of `names` with the smallest edit distance to `wanted`, the closest first.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    const COMPARED: usize = 4096;
    let limit = 2 + wanted.len() / 4;
    let mut scored: Vec<(usize, &str)> = names
        .filter(|name| name.len().abs_diff(wanted.len()) <= limit)
        .take(COMPARED)
        .map(|name| (edits(wanted.as_bytes(), name.as_bytes()), name))
        .filter(|&(edits, _)| edits <= limit)
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// The edit distance: insertions, deletions and replacements (Wagner and Fischer 1974), computed with one row
/// of the table.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let best = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!(edits(b"", b"abc"), 3);
        assert_eq!(
            nearest("fc1.weight", ["fc1.bias", "fc2.weight", "x"].into_iter()),
            ["fc2.weight"]
        );
    }

    /// A configuration is valid if and only if its family has names for all its parts.
    #[test]
    fn a_configuration_is_valid_if_all_its_parts_have_names() {
        use crate::config::{Dimensions, NormPlacement, Positions, Stack};

        let small = Dimensions { d_model: 4, heads: 2, layers: 2, ffn_dim: 3, vocabulary: 5 };
        let mut refused = 0;
        for family in Family::ALL.into_iter().chain([Family::Plain]) {
            for parts in 0..512 {
                let part = |bit: usize| parts >> bit & 1 == 1;
                let mut config = Config { family, ..Config::transformer(small) };
                let norm = |wanted: bool| wanted.then_some(NormPlacement::Post);
                config.encoder.embedding_norm = norm(part(0));
                config.encoder.final_norm = part(2);
                config.decoder = part(7).then_some(Stack {
                    embedding_norm: norm(part(1)),
                    final_norm: part(3),
                    max_positions: Some(7),
                    ..config.encoder
                });
                if part(4) {
                    config.positions = Positions::Learned { offset: 2 };
                    config.encoder.max_positions = Some(7);
                }
                config.ties.target_output = part(5);
                config.token_types = usize::from(part(6));
                if part(8) {
                    config.bins = Some(3);
                    (config.source_vocab, config.token_types) = (0, 0);
                    config.ties.source_target = false;
                }
                let nameless = TensorId::all(&config)
                    .find(|role| !role.may_be_absent() && role.names(&config).is_empty());
                assert_eq!(config.validate().is_err(), nameless.is_some(), "{config:?}");
                refused += usize::from(nameless.is_some());
            }
        }
        // Marian has none of these parts and rejects more configurations; BART lacks only token types.
        assert!(refused > 512, "{refused}");
    }

    #[test]
    fn layers_are_found_in_names() {
        assert_eq!(layer_of("model.decoder.layers.11.fc1.bias"), Some((Side::Decoder, 11)));
        assert_eq!(layer_of("encoder.layers.0.norm1.bias"), Some((Side::Encoder, 0)));
        assert_eq!(layer_of("encoder.layers.x.norm1.bias"), None);
        let encoder = |layer| Some((Side::Encoder, layer));
        assert_eq!(layer_of("transformer.encoder.layers.3.norm1.bias"), encoder(3));
        assert_eq!(layer_of("bert.encoder.layer.7.output.dense.bias"), encoder(7));
        assert_eq!(layer_of("distilbert.transformer.layer.2.ffn.lin1.bias"), encoder(2));
        assert_eq!(layer_of("transformer.layer.2.ffn.lin1.bias"), encoder(2));
        assert_eq!(layer_of("decoder.block.5.layer.0.layer_norm.weight"), Some((Side::Decoder, 5)));
        assert_eq!(layer_of("text_encoder.layers.1.ffn.fc1.bias"), encoder(1));
        assert_eq!(layer_of("speech_encoder.layers.1.ffn.fc1.bias"), None);
        assert_eq!(layer_of("model.shared.weight"), None);
    }
}
