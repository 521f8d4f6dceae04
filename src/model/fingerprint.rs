//! The identity of a model: one number for all that determines its results.

use super::weights::{Part, Weights};
use crate::config::Config;
use crate::memory::bytes;
use simdformer_kernels::AttentionPrecision;
use xxhash_rust::xxh3::Xxh3;

/// The version of the bits of all results. A release in which any bit of any result may differ has a larger number.
///
/// Results of one version may be stored together and compared byte for byte; those of two versions may not. It is a
/// part of [`Model::fingerprint`](crate::Model::fingerprint). `tests/golden/bits.txt` belongs to this version, and its test fails if a digest there
/// changes while this number does not.
pub const BITS_VERSION: u32 = 4;

/// Changes with the definition of a fingerprint.
const DEFINITION: &str = "simdformer fingerprint 2";

/// The fingerprint of `weights` alone, which reads all of them.
pub(super) fn of_weights(weights: &Weights) -> u128 {
    let mut hash = Xxh3::new();
    let visited = weights.each_part(&mut |part| match part {
        Part::Tensor(title) => text(&mut hash, &title),
        Part::Words(part) => words(&mut hash, part),
    });
    if let Err(error) = visited {
        // The ranges of a model are inside its memory, so this is never the identity of a valid model.
        text(&mut hash, &error.to_string());
    }
    hash.digest128()
}

/// The fingerprint of a model with this configuration, with weights of this fingerprint, and with self-attention of its
/// encoder in this precision.
pub(super) fn of_model(config: &Config, weights: u128, attention: AttentionPrecision) -> u128 {
    let mut hash = Xxh3::new();
    text(&mut hash, DEFINITION);
    hash.update(&BITS_VERSION.to_le_bytes());
    text(&mut hash, &config.identity());
    hash.update(&weights.to_le_bytes());
    if attention != AttentionPrecision::F32 {
        text(&mut hash, &format!("attention in {attention:?}"));
    }
    hash.digest128()
}

/// Adds a text, with its length before it.
fn text(hash: &mut Xxh3, text: &str) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Adds words in little-endian order.
fn words(hash: &mut Xxh3, words: &[f32]) {
    if cfg!(target_endian = "little") {
        hash.update(bytes(words));
    } else {
        words.iter().for_each(|word| hash.update(&word.to_le_bytes()));
    }
}
