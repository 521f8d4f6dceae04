//! How each family spells the tensors of the network: one file a family.

mod bart;
mod hugging_face;
mod location;
mod m2m100;
mod marian;
mod nn_transformer;

use crate::config::{Family, Side};
use crate::network::Role;
use location::Location;

/// Places where the family keeps a role, the preferred one first; none if the family has no such part.
pub(super) fn locate(family: Family, role: Role) -> Vec<Location> {
    match family {
        Family::Marian => marian::locate(role),
        Family::Bart | Family::MBart => bart::locate(role),
        Family::M2M100 => m2m100::locate(role),
        Family::NnTransformer => nn_transformer::locate(role),
    }
}

/// Whether the family writes this tensor and nobody needs it.
pub(super) fn ignorable(family: Family, name: &str) -> bool {
    if name.ends_with("embed_positions._float_tensor") || name.ends_with(".version") {
        return true;
    }
    match family {
        // Tables of a formula.
        Family::Marian | Family::M2M100 => {
            name.ends_with("embed_positions.weight") || name.ends_with("embed_positions.weights")
        }
        _ => false,
    }
}

/// The stack and the layer that a tensor belongs to, by its name, in any of the families.
pub(super) fn layer_of(name: &str) -> Option<(Side, usize)> {
    let name =
        name.strip_prefix("model.").or_else(|| name.strip_prefix("transformer.")).unwrap_or(name);
    let (side, rest) = name.split_once(".layers.")?;
    let side = [Side::Encoder, Side::Decoder].into_iter().find(|s| s.name() == side)?;
    let (layer, _) = rest.split_once('.')?;
    Some((side, layer.parse().ok()?))
}

/// Up to three of `names` that differ least from `wanted`, the nearest first.
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

/// Insertions, deletions and replacements from one to the other (Wagner and Fischer 1974), one row kept.
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

    #[test]
    fn layers_are_found_in_names() {
        assert_eq!(layer_of("model.decoder.layers.11.fc1.bias"), Some((Side::Decoder, 11)));
        assert_eq!(layer_of("encoder.layers.0.norm1.bias"), Some((Side::Encoder, 0)));
        assert_eq!(layer_of("encoder.layers.x.norm1.bias"), None);
        assert_eq!(layer_of("model.shared.weight"), None);
    }
}
